//! Import and export of models: the names and shapes of the `state_dict` of PyG's and DGL's convolutions. The file is a
//! safetensors file, as `safetensors.torch.save_file(model.state_dict(), file)` writes it.
//!
//! Layer `N` of a file has the prefix `convs.N.` (PyG's `GCN`, `GraphSAGE`, `GAT` and models made like them) or
//! `layers.N.` (DGL). An imported file may have any prefixes, such as `conv1.` and `conv2.`: their last numbers order
//! them. Weights of `Linear` are outputs × inputs there and inputs × outputs here.
//!
//! | here, `layers.N.` | PyG | DGL |
//! |---|---|---|
//! | GCN `weight`, `bias` | `GCNConv`: `lin.weight`, `bias` | `GraphConv`: `weight` (inputs × outputs), `bias` |
//! | GraphSAGE `self.weight`, `neighbours.weight`, `bias` | `SAGEConv`: `lin_r.weight`, `lin_l.weight`, `lin_l.bias` | `SAGEConv('mean')`: `fc_self.weight`, `fc_neigh.weight`, `fc_self.bias` |
//! | GAT `weight`, `attention` (destination, source), `bias` | `GATConv`: `lin.weight`, `att_dst`, `att_src`, `bias`; with `edge_dim` also `lin_edge.weight`, `att_edge` (`edge.weight`, `edge.attention`) | `GATConv`: `fc.weight`, `attn_r`, `attn_l`, `bias` (of each head, also in the last layer) |
//! | GATv2 `source.weight`, `source.bias`, `destination.weight`, `destination.bias`, `attention`, `bias` | `GATv2Conv`: `lin_l.weight`, `lin_l.bias`, `lin_r.weight`, `lin_r.bias`, `att`, `bias` | none |
//! | GIN `mlp.0.weight`, `norm.weight`, `norm.bias`, `norm.running`, `mlp.1.weight`, `bias`, `epsilon` | `GINConv(Sequential(Linear, BatchNorm1d, ReLU, Linear))`: `nn.0.weight`, `nn.1.weight`, `nn.1.bias`, `nn.1.running_mean` and `nn.1.running_var`, `nn.3.weight`, `nn.3.bias`, `eps` | `GINConv` with the same: `apply_func.…`, `eps` |
//! | between layers, `hidden_norm.weight`, `.bias`, `.running` (two rows), `.mean_scale` | `norms.N.` of `BasicGNN`: `module.weight`, `module.bias`, `module.running_mean`, `module.running_var` of `BatchNorm`; `weight`, `bias` of `LayerNorm(mode='node')`; `weight`, `bias`, `mean_scale` of `GraphNorm`; none of `PairNorm` | none |
//!
//! Layers of `graphconv`, `sg`, `ssg`, `tag`, `cheb`, `arma`, `mixhop`, `clustergcn`, `leconv`, `gatedgraph`,
//! `transformer`, `gine`, `resgated`, `cg`, `edge`, `gen`, `pna` and `rgcn` are converted under PyG's names alone,
//! which the [registry](crate::program::layers::ALL) lists. [`ImportOptions::layers`] names them. Linear maps around
//! them are `lins.N`: one before a `GatedGraphConv` that is narrower than its input, and those before and after all
//! `CGConv`.
//!
//! Parameters without a counterpart are folded into others, where that changes no logit. Divisors of features and GIN's
//! λ go into the first map, and the bias of GIN's first map into the running mean. What cannot be folded is refused.

mod jumping;
mod norms;
mod read;
mod registry;
mod write;

use super::checkpoint::{Checkpoint, CheckpointError};
use crate::file;
use crate::message::shortened;
use crate::nn::ConvolutionConfig;
use crate::tensor::Precision;
use std::collections::BTreeMap;
use std::path::Path;

/// The framework whose names a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// PyTorch Geometric.
    Pyg,
    /// Deep Graph Library.
    Dgl,
}

impl Framework {
    /// The prefix before the number of a layer.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Pyg => "convs",
            Self::Dgl => "layers",
        }
    }

    /// The prefix of GIN's MLP.
    const fn mlp(self) -> &'static str {
        match self {
            Self::Pyg => "nn",
            Self::Dgl => "apply_func",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Pyg => "PyG",
            Self::Dgl => "DGL",
        }
    }
}

/// A tensor of a `state_dict`, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Vec<f32>,
}

/// Tensors of a `state_dict`, by name.
pub type StateDict = BTreeMap<String, StateTensor>;

/// Why a model cannot be converted.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{}", shortened(.0))]
pub struct StateDictError(String);

fn refuse<T>(reason: impl Into<String>) -> Result<T, StateDictError> {
    Err(StateDictError(reason.into()))
}

/// Options for importing a model of another framework.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The layers of the file, with their options. Where absent, the names of the tensors decide between GCN,
    /// GraphSAGE, GIN, GAT and GATv2.
    pub layers: Option<ConvolutionConfig>,
    /// The framework whose names the file has.
    pub from: Framework,
    /// Precision of state tensors.
    pub precision: Precision,
    /// Whether the model was trained with edge weights.
    pub edge_weights: bool,
    /// The number of features of a vertex, where no tensor has it as a dimension: that of a first `GatedGraphConv`.
    /// Where absent, it is the number of the layer's columns.
    pub features: Option<usize>,
}

impl Checkpoint {
    /// The model's parameters under the names of a framework, and notes for its user.
    ///
    /// # Errors
    /// What the framework's layers do not support.
    pub fn state_dict(&self, to: Framework) -> Result<(StateDict, Vec<String>), StateDictError> {
        write::state_dict(self, to)
    }

    /// A model with another framework's parameters, for prediction: a checkpoint of a run that has trained nothing.
    ///
    /// # Errors
    /// What the layers here do not support, with the name of the tensor.
    pub fn from_state_dict(
        tensors: &StateDict,
        options: &ImportOptions,
    ) -> Result<Self, StateDictError> {
        read::checkpoint(tensors, options)
    }

    /// Writes [`Checkpoint::state_dict`] to a safetensors file, and returns the notes for its user.
    ///
    /// # Errors
    /// [`CheckpointError::StateDict`] and [`CheckpointError::Write`].
    pub fn export(&self, to: Framework, path: &Path) -> Result<Vec<String>, CheckpointError> {
        let (tensors, notes) = self.state_dict(to).map_err(|error| at(path, error))?;
        write::bytes(&tensors)
            .and_then(|bytes| file::write(path, &bytes))
            .map_err(|source| CheckpointError::Write {
                path: path.to_owned(),
                source,
            })?;
        Ok(notes)
    }

    /// Reads a safetensors file of another framework's `state_dict`, as [`Checkpoint::from_state_dict`] does.
    ///
    /// # Errors
    /// [`CheckpointError::Read`], [`CheckpointError::Format`] and [`CheckpointError::StateDict`].
    pub fn import(path: &Path, options: &ImportOptions) -> Result<Self, CheckpointError> {
        let bytes = super::checkpoint::read(path)?;
        read::tensors(&bytes)
            .and_then(|tensors| Self::from_state_dict(&tensors, options))
            .map_err(|error| at(path, error))
    }
}

fn at(path: &Path, error: StateDictError) -> CheckpointError {
    CheckpointError::StateDict {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// The sort key of a file's layers: the last number of a prefix, and the prefix.
type LayerPlace = (Option<u64>, String);

/// The sort key of the layer with this prefix.
fn layer_place(prefix: &str) -> LayerPlace {
    let digits = prefix.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let start = digits
        .trim_end_matches(|letter: char| letter.is_ascii_digit())
        .len();
    (digits[start..].parse().ok(), prefix.to_owned())
}

/// The transpose of a matrix of `rows` rows.
fn transposed(values: &[f32], rows: usize) -> Vec<f32> {
    let columns = values.len() / rows.max(1);
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.map(|place| values[place]).collect()
}

/// Heads of `head` columns, `distance` apart, padded with zeros.
fn spread(values: &[f32], head: usize, distance: usize) -> Vec<f32> {
    let heads = values.chunks_exact(head.max(1));
    let zeros = std::iter::repeat_n(0.0, distance.saturating_sub(head));
    heads
        .flat_map(|values| values.iter().copied().chain(zeros.clone()))
        .collect()
}

/// Heads of `head` columns that are `distance` apart, without their padding.
fn packed(values: &[f32], distance: usize, head: usize) -> Vec<f32> {
    let heads = values.chunks_exact(distance.max(1));
    heads
        .flat_map(|padded| padded[..head.min(padded.len())].to_vec())
        .collect()
}

/// The columns of a head with padding, in a precision: see [`crate::nn::Gat`].
fn padded(precision: Precision, columns: usize) -> usize {
    columns.next_multiple_of(match precision {
        Precision::Float => 4,
        _ => 8,
    })
}
