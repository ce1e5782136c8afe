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

/// The names of a parameter here and in other frameworks. A part of a name that stands for a relation or a number is `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterNames {
    /// Here, behind `layers.N.`.
    pub here: &'static str,
    /// In PyG's convolution.
    pub pyg: Names,
    /// In DGL's.
    pub dgl: Names,
}

/// What one framework calls a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Its name; of a parameter whose rows are several there, the name of each row; none where there is no such parameter.
    pub names: &'static [&'static str],
    /// Whether it is outputs × inputs there, and inputs × outputs here.
    pub transposed: bool,
}

impl Names {
    /// No such parameter.
    pub const NONE: Self = Self::same(&[]);

    /// Of the shape that it has here.
    pub const fn same(names: &'static [&'static str]) -> Self {
        Self {
            names,
            transposed: false,
        }
    }

    /// The weight of a `Linear`.
    pub const fn linear(names: &'static [&'static str]) -> Self {
        Self {
            names,
            transposed: true,
        }
    }
}

impl ParameterNames {
    /// Of the shape that it has here, in both frameworks.
    pub const fn same(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self {
            here,
            pyg: Names::same(pyg),
            dgl: Names::same(dgl),
        }
    }

    /// The weight of a `Linear` in both frameworks.
    pub const fn linear(
        here: &'static str,
        pyg: &'static [&'static str],
        dgl: &'static [&'static str],
    ) -> Self {
        Self {
            here,
            pyg: Names::linear(pyg),
            dgl: Names::linear(dgl),
        }
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
