//! What layers are called: on the command line, and their parameters in other frameworks.

use crate::nn::{Architecture, ModelKind, ModelOption};
use std::fmt;

/// A layer by name.
#[derive(Clone, Copy)]
pub struct LayerKind {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, with its authors.
    pub title: &'static str,
    /// Its options there.
    pub options: fn() -> Vec<ModelOption>,
    /// Its parameters and buffers. With them is the `bias` that a network puts behind it.
    pub parameters: &'static [ParameterNames],
}

/// The names of a parameter here and in other frameworks. A part of a name that stands for a relation or a number is `*`. It may be several, with
/// dots between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterNames {
    /// Here, behind `layers.N.`.
    pub here: &'static str,
    /// In PyG's convolution.
    pub pyg: Names,
    /// In DGL's.
    pub dgl: Names,
    /// What a divisor of the layer's input becomes in it.
    pub divisor: Divisor,
}

/// What one framework calls a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Its name; of a parameter whose rows are several there, the name of each row; none where there is no such parameter. Parameters that share a
    /// name are parts of one tensor there, in their order.
    pub names: &'static [&'static str],
    /// How they lie in that tensor.
    pub layout: Layout,
    /// Whether its columns are those of several heads, which are padded here and not there.
    pub heads: bool,
    /// Whether it is of a `Linear` before the convolution, `lins.N` before `convs.N`.
    pub before: bool,
}

/// How parameters lie in a tensor of another framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As here; of vectors one behind the other. One row is a vector.
    Same,
    /// A matrix as here, also of one row.
    Matrix,
    /// The weight of a `Linear`, outputs × inputs. Several have their inputs side by side.
    Linear,
    /// The weight of a `Linear`. Several have their outputs side by side.
    Outputs,
    /// As here, in a tensor with a dimension more for each part of the parameters' names. Blocks along a diagonal have one more.
    Stacked,
    /// Numbers, in a tensor with a dimension for each part of their names.
    Numbers,
}

/// What a divisor of a column of a layer's input becomes in a parameter, so that the layer computes the same of the input as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divisor {
    /// Nothing: it is not multiplied by the input.
    Nothing,
    /// A divisor of the row.
    OfRow,
    /// A factor of the column, which is added to the input before an activation.
    TimesColumn,
}

impl Names {
    /// No such parameter.
    pub const NONE: Self = Self::same(&[]);

    const fn of(names: &'static [&'static str], layout: Layout) -> Self {
        Self {
            names,
            layout,
            heads: false,
            before: false,
        }
    }

    /// Of the shape that it has here.
    pub const fn same(names: &'static [&'static str]) -> Self {
        Self::of(names, Layout::Same)
    }

    /// The weight of a `Linear`.
    pub const fn linear(names: &'static [&'static str]) -> Self {
        Self::of(names, Layout::Linear)
    }

    /// The weight of a `Linear` before the convolution.
    pub const fn linear_before(names: &'static [&'static str]) -> Self {
        Self {
            before: true,
            ..Self::linear(names)
        }
    }
}

impl ParameterNames {
    /// Of the names in both frameworks.
    pub const fn of(here: &'static str, pyg: Names, dgl: Names) -> Self {
        let divisor = match pyg.layout {
            Layout::Linear => Divisor::OfRow,
            _ => Divisor::Nothing,
        };
        Self {
            here,
            pyg,
            dgl,
            divisor,
        }
    }

    const fn laid_out(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
        layout: Layout,
    ) -> Self {
        Self::of(here, Names::of(pyg, layout), Names::of(dgl, layout))
    }

    /// Of the shape that it has here, in both frameworks.
    pub const fn same(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Same)
    }

    /// A matrix of the shape that it has here, in both frameworks.
    pub const fn matrix(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Matrix)
    }

    /// The weight of a `Linear` in both frameworks, which multiplies the layer's input.
    pub const fn linear(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Linear)
    }

    /// The weight of a `Linear` whose outputs are several parameters here.
    pub const fn outputs(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Outputs)
    }

    /// A part of a tensor of more dimensions.
    pub const fn stacked(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Stacked)
    }

    /// A number of a tensor.
    pub const fn numbers(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self::laid_out(here, pyg, dgl, Layout::Numbers)
    }

    /// The same, of several heads.
    pub const fn of_heads(mut self) -> Self {
        self.pyg.heads = true;
        self
    }

    /// The same, with another divisor.
    pub const fn with_divisor(mut self, divisor: Divisor) -> Self {
        self.divisor = divisor;
        self
    }
}

impl LayerKind {
    /// The layer of an architecture, whose name and options it has.
    pub const fn of<A: Architecture>(parameters: &'static [ParameterNames]) -> Self {
        Self {
            name: A::NAME,
            title: A::TITLE,
            options: || ModelKind::options_of::<A>(),
            parameters,
        }
    }
}

impl fmt::Debug for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
