//! The norm between layers, by name, and the state that a stage keeps for it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The normalisation of a hidden layer's output: after its bias, before a residual input, activation and dropout, as in
/// PyG's `BasicGNN`. The batch normalisation inside the MLP of a layer of GIN is separate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HiddenNorm {
    /// Nothing.
    #[default]
    None,
    /// Each column over all vertices, with running statistics in evaluation (Ioffe and Szegedy, ICML 2015; PyG's
    /// `BatchNorm`).
    Batch,
    /// Each vertex over its columns (Ba, Kiros and Hinton, 2016; PyG's `LayerNorm` with mode `node`, which is
    /// PyTorch's).
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

    /// Whether it takes statistics over all vertices of a graph, including those of all ranks, which ranks do not
    /// exchange.
    pub fn wants_whole_graphs(self) -> bool {
        matches!(self, Self::Pair | Self::Graph)
    }
}

impl fmt::Display for HiddenNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
