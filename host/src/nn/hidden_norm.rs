//! The norm between layers, by name, and what a stage keeps for it.

use super::batch_norm::{BatchNormalization, Statistics};
use super::{Context, Kept, Mode, Parameter};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{
    self, AffineGradients, GroupGradients, GroupNorm, GroupNormalization, LayerNorm, RowGroups,
};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::norms::STATISTICS_ROWS;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What normalises what a hidden layer writes: behind its bias, before a residual input, activation and dropout, as PyG's `BasicGNN`
/// has it. The batch normalisation inside the MLP of a layer of GIN is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HiddenNorm {
    /// Nothing.
    #[default]
    None,
    /// Each column over all vertices, with running statistics in evaluation (Ioffe and Szegedy, ICML 2015; PyG's `BatchNorm`).
    Batch,
    /// Each vertex over its columns (Ba, Kiros and Hinton, 2016; PyG's `LayerNorm` of the mode `node`, which is PyTorch's).
    Layer,
    /// Each column less its mean, all by one number of each graph (Zhao and Akoglu, ICLR 2020; PyG's `PairNorm`).
    Pair,
    /// Each column of each graph less a learnt multiple of its mean (Cai et al., ICML 2021; PyG's `GraphNorm`).
    Graph,
}

impl HiddenNorm {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Batch,
        Self::Layer,
        Self::Pair,
        Self::Graph,
    ];

    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Batch => "batch",
            Self::Layer => "layer",
            Self::Pair => "pair",
            Self::Graph => "graph",
        }
    }

    /// Whether there is none.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// Whether it takes statistics of all vertices of a graph, each rank's among them, which ranks do not exchange.
    pub fn wants_whole_graphs(self) -> bool {
        matches!(self, Self::Pair | Self::Graph)
    }
}

impl fmt::Display for HiddenNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Added to a variance before its root is taken, in PyG's layers all alike.
const EPSILON: f32 = 1e-5;

/// The norm of a stage at work.
#[derive(Debug)]
pub(super) struct StageNorm<B: Backend, E: Element> {
    /// What the layer wrote, with its bias.
    given: Kept<B, E>,
    kind: Kind<B, E>,
}

#[derive(Debug)]
enum Kind<B: Backend, E: Element> {
    Batch(BatchNormalization<B, E>),
    Layer {
        weight: Parameter<B, E>,
        bias: Parameter<B, E>,
        statistics: Matrix<B, f32>,
    },
    Groups(Box<Groups<B, E>>),
}

/// A norm of the rows of each graph.
#[derive(Debug)]
struct Groups<B: Backend, E: Element> {
    parameters: Option<GraphParameters<B, E>>,
    /// Each graph's parts of the gradients of those.
    parts: Option<[Matrix<B, f32>; 3]>,
    statistics: Matrix<B, f32>,
    /// One group of all rows, where nobody says which are whose.
    whole: Option<RowGroups<B>>,
}

/// What a GraphNorm learns.
#[derive(Debug)]
struct GraphParameters<B: Backend, E: Element> {
    weight: Parameter<B, E>,
    bias: Parameter<B, E>,
    mean_scale: Parameter<B, E>,
}

impl<B: Backend, E: Element> StageNorm<B, E> {
    /// The norm of a stage that writes so many columns; none where there is nothing to do.
    pub(super) fn new(
        backend: &B,
        norm: HiddenNorm,
        columns: usize,
        prefix: &str,
    ) -> Result<Option<Self>, Error> {
        let row = |name: &str, value: f32| {
            let name = format!("{prefix}hidden_norm.{name}");
            let mut row = Parameter::bias(backend, name, columns)?;
            if value != 0.0 {
                row.write_with(backend, || vec![value; columns])?;
            }
            Ok::<_, Error>(row)
        };
        let nothing = |columns| Matrix::zeros(backend, 0, columns, MemoryKind::Activations);
        let kind = match norm {
            HiddenNorm::None => return Ok(None),
            HiddenNorm::Batch => Kind::Batch(BatchNormalization::new(
                backend,
                columns,
                Statistics::Running,
                false,
                ["weight", "bias"].map(|name| format!("{prefix}hidden_norm.{name}")),
            )?),
            HiddenNorm::Layer => Kind::Layer {
                weight: row("weight", 1.0)?,
                bias: row("bias", 0.0)?,
                statistics: nothing(2)?,
            },
            HiddenNorm::Pair => Kind::Groups(Box::new(Groups {
                parameters: None,
                parts: None,
                statistics: nothing(columns)?,
                whole: None,
            })),
            HiddenNorm::Graph => Kind::Groups(Box::new(Groups {
                parameters: Some(GraphParameters {
                    weight: row("weight", 1.0)?,
                    bias: row("bias", 0.0)?,
                    mean_scale: row("mean_scale", 1.0)?,
                }),
                parts: Some([nothing(columns)?, nothing(columns)?, nothing(columns)?]),
                statistics: nothing(columns)?,
                whole: None,
            })),
        };
        Ok(Some(Self {
            given: Kept::new(backend, columns)?,
            kind,
        }))
    }

    /// Where the layer writes.
    pub(super) fn room(&mut self, backend: &B, rows: usize) -> Result<&mut Matrix<B, E>, Error> {
        self.given.room(backend, rows)
    }

    /// What the layer wrote.
    pub(super) fn given(&self) -> &Matrix<B, E> {
        self.given.get()
    }

    /// `y` becomes the norm of what the layer wrote, with a ReLU where that is asked for; `groups` are the graphs of its rows, where
    /// there are several.
    pub(super) fn forward(
        &mut self,
        at: &Context<'_, B, E>,
        groups: Option<&RowGroups<B>>,
        relu: bool,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, given) = (at.backend, self.given.get());
        match &mut self.kind {
            Kind::Batch(norm) => {
                norm.forward(at, 1.0, given)?;
                let op = ops::Normalization { relu, ..norm.op() };
                ops::normalize(backend, &op, given, y)
            }
            Kind::Layer {
                weight,
                bias,
                statistics,
            } => {
                fit(backend, statistics, (given.rows(), 2))?;
                let op = LayerNorm {
                    weight: weight.master(),
                    bias: bias.master(),
                    epsilon: EPSILON,
                    relu,
                };
                ops::normalize_rows(backend, &op, given, statistics, y)
            }
            Kind::Groups(norm) => norm.forward(at, groups, relu, given, y),
        }
    }

    /// `d`, the gradient of the norm, becomes that of what the layer wrote.
    pub(super) fn backward(
        &mut self,
        at: &Context<'_, B, E>,
        groups: Option<&RowGroups<B>>,
        d: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, given) = (at.backend, self.given.get());
        match &mut self.kind {
            Kind::Batch(norm) => norm.backward(at, given, d, (1.0, None), None),
            Kind::Layer {
                weight,
                bias,
                statistics,
            } => {
                let (weight, d_weight) = weight.master_and_gradient();
                let gradients = AffineGradients {
                    weight: d_weight,
                    bias: bias.gradient_mut(),
                };
                ops::normalize_rows_backward(backend, weight, given, statistics, d, gradients)
            }
            Kind::Groups(norm) => norm.backward(at, groups, given, d),
        }
    }

    pub(super) fn parameters(&self) -> Vec<&Parameter<B, E>> {
        match &self.kind {
            Kind::Batch(norm) => norm.parameters().into(),
            Kind::Layer { weight, bias, .. } => vec![weight, bias],
            Kind::Groups(norm) => {
                let all = norm.parameters.iter();
                all.flat_map(|all| [&all.weight, &all.bias, &all.mean_scale])
                    .collect()
            }
        }
    }

    pub(super) fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        match &mut self.kind {
            Kind::Batch(norm) => norm.parameters_mut().into(),
            Kind::Layer { weight, bias, .. } => vec![weight, bias],
            Kind::Groups(norm) => {
                let all = norm.parameters.iter_mut();
                all.flat_map(|all| [&mut all.weight, &mut all.bias, &mut all.mean_scale])
                    .collect()
            }
        }
    }

    /// Whether it takes statistics of each graph.
    pub(super) fn is_of_groups(&self) -> bool {
        matches!(self.kind, Kind::Groups(_))
    }

    /// The running statistics of a batch normalisation.
    pub(super) fn buffers(&self) -> Option<(&'static str, &Matrix<B, f32>)> {
        match &self.kind {
            Kind::Batch(norm) => Some((RUNNING, norm.running())),
            _ => None,
        }
    }

    pub(super) fn buffers_mut(&mut self) -> Option<(&'static str, &mut Matrix<B, f32>)> {
        match &mut self.kind {
            Kind::Batch(norm) => Some((RUNNING, norm.running_mut())),
            _ => None,
        }
    }
}

const RUNNING: &str = "hidden_norm.running";

/// The matrix with this shape, of any content.
fn fit<B: Backend>(
    backend: &B,
    matrix: &mut Matrix<B, f32>,
    (rows, columns): (usize, usize),
) -> Result<(), Error> {
    if matrix.shape() != (rows, columns) {
        *matrix = Matrix::zeros(backend, rows, columns, MemoryKind::Activations)?;
    }
    Ok(())
}

/// The groups that were given, or all rows as one.
fn or_whole<'a, B: Backend>(
    backend: &B,
    groups: Option<&'a RowGroups<B>>,
    whole: &'a mut Option<RowGroups<B>>,
    rows: usize,
) -> Result<&'a RowGroups<B>, Error> {
    if let Some(groups) = groups {
        return Ok(groups);
    }
    if whole.as_ref().is_none_or(|whole| whole.rows() != rows) {
        *whole = Some(RowGroups::whole(backend, rows)?);
    }
    Ok(whole.as_ref().expect("it was just made"))
}

impl<B: Backend, E: Element> Groups<B, E> {
    fn forward(
        &mut self,
        at: &Context<'_, B, E>,
        groups: Option<&RowGroups<B>>,
        relu: bool,
        given: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        if at.ranks.is_some() {
            return Err(Error::Unsupported {
                operator: "Network",
                reason: "pair and graph norms take statistics of whole graphs, which several ranks do not exchange; take batch or layer, or one rank"
                    .into(),
            });
        }
        let groups = or_whole(at.backend, groups, &mut self.whole, given.rows())?;
        let shape = (STATISTICS_ROWS as usize * groups.groups(), given.columns());
        fit(at.backend, &mut self.statistics, shape)?;
        let (norm, [weight, bias]) = norm_of(self.parameters.as_ref());
        let statistics = &mut self.statistics;
        ops::group_statistics(at.backend, &norm, EPSILON, groups, given, statistics)?;
        let op = GroupNormalization {
            groups,
            statistics,
            weight,
            bias,
            relu,
        };
        ops::normalize_groups(at.backend, &op, given, y)?;
        // A backward pass will want them; an evaluation finds them as they are.
        if let (Mode::Train { .. }, Some(parts)) = (at.mode, &mut self.parts) {
            let shape = (groups.groups(), given.columns());
            for part in parts {
                fit(at.backend, part, shape)?;
            }
        }
        Ok(())
    }

    fn backward(
        &mut self,
        at: &Context<'_, B, E>,
        groups: Option<&RowGroups<B>>,
        given: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let groups = or_whole(at.backend, groups, &mut self.whole, given.rows())?;
        let (norm, [weight, bias]) = norm_of(self.parameters.as_ref());
        let op = GroupNormalization {
            groups,
            statistics: &self.statistics,
            weight,
            bias,
            relu: false,
        };
        let gradients = self
            .parts
            .as_mut()
            .map(|[weight, bias, mean_scale]| GroupGradients {
                weight,
                bias,
                mean_scale,
            });
        ops::normalize_groups_backward(at.backend, &norm, &op, given, d, gradients)?;
        if let (Some(parameters), Some(parts)) = (&mut self.parameters, &self.parts) {
            let all = [
                &mut parameters.weight,
                &mut parameters.bias,
                &mut parameters.mean_scale,
            ];
            for (of, part) in all.into_iter().zip(parts) {
                ops::column_sums(at.backend, part, of.gradient_mut())?;
            }
        }
        Ok(())
    }
}

/// A norm, and its scales and shifts.
type NormOf<'a, B> = (GroupNorm<'a, B>, [Option<&'a Matrix<B, f32>>; 2]);

/// The norm of these parameters.
fn norm_of<B: Backend, E: Element>(parameters: Option<&GraphParameters<B, E>>) -> NormOf<'_, B> {
    match parameters {
        None => (GroupNorm::Pair, [None, None]),
        Some(all) => (
            GroupNorm::Graph(all.mean_scale.master()),
            [Some(all.weight.master()), Some(all.bias.master())],
        ),
    }
}
