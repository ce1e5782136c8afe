//! Sparse times dense over the edges of a graph: SpMM (HalfGNN §4.3).
//!
//! - [`attention`]: weights by attention, computed where they are used, and two products with them at once.
//! - `quantized`: of a matrix of 8-bit values.
//! - `schedule`: how a GPU distributes the edges to its warps.

mod attention;
mod check;
pub(crate) mod cpu;
mod gpu;
mod quantized;
mod schedule;

pub use attention::{
    AttentionPair, AttentionPairOperands, AttentionScores, EdgeAttention,
    QuantizedAttentionPairOperands, SoftmaxGradient, attention_pair, quantized_attention_pair,
};

pub use quantized::{QuantizedSpmmOperands, quantized_spmm};

pub(crate) use attention::cpu::{Planes, with_scores};
pub(crate) use attention::expect_biases;
pub(in crate::ops) use schedule::one_launch_suits;

use super::Checked;
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};

const NAME: &str = "spmm";

/// Sparse times dense (HalfGNN §4.3): `y[i] = scale · s[i] · Σ_j w(i,j) · x[j]` over the edges of row `i`, and what
/// [`Spmm::epilogue`] makes of it.
///
/// `x` is columns × F and `y` rows × F, for any F; several heads must be equally wide and begin at 16 bytes. A row
/// without edges has a sum of zero. In half precision and with the default policy every batch of edges is summed up and
/// scaled in float, and the row is rounded once.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph, [`Error::Unsupported`] where no kernel has the policy.
pub fn spmm<B: SpmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: &Spmm<'_, B, E>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = SpmmOperands { a, op, x, y };
    backend.spmm(Checked::new(operands)?)
}

/// An SpMM: what is multiplied with what, and how.
#[derive(Debug)]
pub struct Spmm<'a, B: Storage, E: Element> {
    /// Weights of the edges.
    pub weights: EdgeWeights<'a, B, E>,
    /// What becomes of the products of a row.
    pub aggregation: Aggregation,
    /// Factor of each row; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Factor of the whole product.
    pub scale: f32,
    /// How it computes.
    pub policy: SpmmPolicy,
    /// What becomes of the sums.
    pub epilogue: SpmmEpilogue<'a, B, E>,
}

impl<B: Storage, E: Element> Default for Spmm<'_, B, E> {
    /// The plain sum of the neighbours' rows.
    fn default() -> Self {
        Self {
            weights: EdgeWeights::Ones,
            aggregation: Aggregation::Sum,
            row_scale: None,
            scale: 1.0,
            policy: SpmmPolicy::default(),
            epilogue: SpmmEpilogue::default(),
        }
    }
}

/// Weights of the edges of an SpMM.
#[derive(Debug)]
pub enum EdgeWeights<'a, B: Storage, E: Element> {
    /// All ones, and no array at all: SpMMv.
    Ones,
    /// One an edge, in the order of the adjacency: SpMMve.
    Features(&'a Array<B, E>),
    /// One an edge and head. The columns of `x` are cut into heads of equal width, and each has a plane of edge
    /// features, of which the next begins [`edge_plane`](crate::ops::edge_plane) elements later.
    Planes {
        /// The features, plane by plane.
        values: &'a Array<B, E>,
        /// Number of heads.
        heads: usize,
    },
    /// One a column of the adjacency: the left degree norm without a pass over `x`.
    Columns(&'a Array<B, f32>),
    /// The attention of each edge and head, computed in float where it is used. Two such products at once are an
    /// [`AttentionPair`].
    Attention(&'a EdgeAttention<'a, B>),
}

/// What becomes of the products of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aggregation {
    /// Their sum. A mean is the sum with 1/degree as [`Spmm::row_scale`], which is multiplied batch by batch.
    #[default]
    Sum,
    /// The largest of each column, exactly; then times the row's factor. The policy has no meaning.
    Max,
}

/// How an SpMM computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpmmPolicy {
    /// Where the row factors are multiplied.
    pub scaling: Scaling,
    /// What a batch is summed up in. Without meaning in float precision.
    pub accumulate: Accumulate,
    /// How the parts of a row come together.
    #[serde(default)]
    pub write: Write,
    /// Edges of a warp: a power of two from 16 to 256, and no fewer than four for each of its sub-warps. By itself a
    /// GPU chooses from the number of edges and of multiprocessors; the CPU has no warps. Where it is given the
    /// schedule is [`Schedule::Edge`] or one by row ids.
    #[serde(default)]
    pub edges_per_warp: Option<u32>,
    /// What a warp has. The CPU has no warps.
    #[serde(default)]
    pub schedule: Schedule,
    /// What a lane loads at once in half precision; narrow loads are for comparison. The CPU has no lanes.
    #[serde(default)]
    pub load: HalfLoad,
    /// Which columns of a row are aggregated together. The CPU takes all of them.
    #[serde(default)]
    pub slices: Slices,
}

impl SpmmPolicy {
    /// [`SpmmPolicy::default`], for constants.
    pub const DEFAULT: Self = Self {
        scaling: Scaling::Discretized,
        accumulate: Accumulate::Float,
        write: Write::Staged,
        edges_per_warp: None,
        schedule: Schedule::Auto,
        load: HalfLoad::Half8,
        slices: Slices::Auto,
    };
}

/// Which columns of a row a GPU aggregates in one walk over the edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slices {
    /// What is faster: lines where wide rows of the operand do not fit the GPU's cache.
    #[default]
    Auto,
    /// As many as the lanes of a warp load.
    Whole,
    /// Those of a cache line, then those of the next. Rows that are read often then stay in the cache.
    Lines,
}

/// Where the row factors of an SpMM are multiplied (HalfGNN §4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// After each batch of a row; batches are merged in float. Neither overflows nor underflows.
    #[default]
    Discretized,
    /// Once a row is summed up in half, as frameworks do: overflows past 65,504, saturates at 2,048 ones.
    PostReduction,
    /// On each product before it is added in half: may underflow.
    PreReduction,
}

/// What a batch of edges is summed up in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accumulate {
    /// half2 arithmetic, as in the paper; an infinity where a batch's own sum leaves the range of half.
    Half,
    /// Float.
    #[default]
    Float,
}

/// How what a row has in several sub-warps comes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Write {
    /// Merged inside the CTA, and across CTAs through the staging buffer (HalfGNN §4.3.2): each element is written
    /// once, and results repeat bit for bit.
    #[default]
    Staged,
    /// Added to the output by atomics, each addition rounded to the output's precision: for comparison. The CPU, which
    /// has no parts to add, computes as with [`Write::Staged`].
    Atomic,
}

/// What a warp of a GPU has of the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// What is faster for the graph, the feature length and the GPU.
    #[default]
    Auto,
    /// A share of the edges, equal for all: whatever the degrees, no warp has more to do than another. Rows that cross
    /// CTAs are completed by a second launch.
    Edge,
    /// A row, in one launch: for small graphs whose rows are short, where a launch is what takes time (HalfGNN §4.3.3,
    /// after Huang et al.).
    Vertex,
    /// As [`Schedule::Edge`], with as many edges a warp as HP-SpMM's inequality says (Fan, Wang, Chu 2023, §III-B): the
    /// most of 32, 64, 128 and 256 with which there still are enough full waves of CTAs. Its 8 and 512 are no size that
    /// the kernels have.
    Hybrid,
    /// As [`Schedule::Edge`], with the row of an edge read from its row id, as GNNOne has it (Gong and Kumar 2024, §4):
    /// of the graph a GPU reads a plain COO in order of rows and nothing that is made of one. The same sums in the same
    /// order. For sums with the default of the other policies; of an adjacency [from row ids](Adjacency::from_row_ids)
    /// a GPU takes it by itself.
    RowIds,
    /// As [`Schedule::RowIds`], but the sub-warps of a warp take its edges one after the other and not an equal share
    /// of consecutive ones each: GNNOne's round-robin (§4.2.2), for comparison. A row is then shared, so all is added
    /// by atomics ([`Write::Atomic`]).
    RowIdsInTurn,
}

/// What a lane loads at once in half precision (HalfGNN §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HalfLoad {
    /// Two halves, 4 bytes.
    Half2,
    /// Four halves, 8 bytes.
    Half4,
    /// Eight halves, 16 bytes.
    #[default]
    Half8,
}

/// What is added to the sum of a row of an SpMM, and what becomes of it, before it is rounded:
/// `relu(sum + factor[i] · addend[i] + bias)`, each part where it is there, and zero where a ReLU is undone. A row
/// without edges has a sum of zero.
///
/// Done where the row is written, it takes no pass over the output. A GPU has kernels for that with the default policy,
/// for plain sums and those with column factors, and those that undo a ReLU where a warp has a row
/// ([`Schedule::Vertex`]); elsewhere passes follow, and the sum is rounded before them.
#[derive(Debug)]
pub struct SpmmEpilogue<'a, B: Storage, E: Element> {
    /// A multiple of another matrix.
    pub addend: Option<Addend<'a, B, E>>,
    /// Added to each row: 1 × F.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// The output of a ReLU, as wide as the product, with a row for each of its rows or more, which are not read: where
    /// it holds no positive number the result becomes zero. So that is the gradient of what the ReLU was given.
    pub positive: Option<&'a Matrix<B, E>>,
}

impl<B: Storage, E: Element> SpmmEpilogue<'_, B, E> {
    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        let sums = self.addend.is_none() && self.bias.is_none();
        sums && !self.relu && self.positive.is_none()
    }
}

impl<B: Storage, E: Element> Clone for SpmmEpilogue<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for SpmmEpilogue<'_, B, E> {}

impl<B: Storage, E: Element> Default for SpmmEpilogue<'_, B, E> {
    /// The sums as they are.
    fn default() -> Self {
        Self {
            addend: None,
            bias: None,
            relu: false,
            positive: None,
        }
    }
}

/// A matrix that is added to a product, row by row: `factor · (1 + epsilon) · row_scale[i] · matrix[i]`. GIN's is the
/// operand of the product itself, APPNP's what it began with.
#[derive(Debug)]
pub struct Addend<'a, B: Storage, E: Element> {
    /// As wide as the product, with a row for each of its rows. It may have more, which are not read: of a
    /// [`Block`](crate::backend::Block), whose destinations are its first sources, it may be the operand.
    pub matrix: &'a Matrix<B, E>,
    /// The factor of all.
    pub factor: f32,
    /// Another of each row; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Another, less 1: a matrix of one element; 0 where absent.
    pub epsilon: Option<&'a Matrix<B, f32>>,
}

impl<B: Storage, E: Element> Clone for Addend<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for Addend<'_, B, E> {}

/// Operands of an [SpMM](spmm).
#[derive(Debug)]
pub struct SpmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What is computed, and how.
    pub op: &'a Spmm<'a, B, E>,
    /// The input, columns × F.
    pub x: &'a Matrix<B, E>,
    /// Becomes the output, rows × F.
    pub y: &'a mut Matrix<B, E>,
}

/// Operators over the edges of a graph.
pub trait SpmmOperators: Storage {
    /// `y = scale · S · (A_w x)` with the weights, the row factors `S` and the policy of `op`, and its epilogue.
    ///
    /// # Errors
    /// Those of the device.
    fn spmm<E: Element>(&self, operands: Checked<SpmmOperands<'_, Self, E>>) -> Result<(), Error>;

    /// As [`SpmmOperators::spmm`], of a matrix of 8-bit values.
    ///
    /// # Errors
    /// Those of the device.
    fn quantized_spmm<E: Element>(
        &self,
        operands: Checked<QuantizedSpmmOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Two SpMMs of `x` in one walk over the edges.
    ///
    /// # Errors
    /// Those of the device, and [`Error::Unsupported`] for a policy that no kernel is built for.
    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// As [`SpmmOperators::attention_pair`], of a matrix of 8-bit values.
    ///
    /// # Errors
    /// Those of the device, and [`Error::Unsupported`] for a policy that no kernel is built for.
    fn quantized_attention_pair<E: Element>(
        &self,
        operands: Checked<QuantizedAttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
