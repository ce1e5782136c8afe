//! Networks as programs of operators: a layer is its formula, and everything else is done to the list of operators.
//!
//! ```text
//!  Builder ──► Program ──► reorder ──► differentiate ──► fuse ──► store ──► recompute ──► Plan ──► Runner
//!  formulas    forward     a pass      forward and       passes over both lists           memory   one loop
//!              list                    backward list                                               each way
//! ```
//!
//! - [`Builder`] writes formulas down. [`layers`] has those of many layers, a file each, with the names of their parameters in other
//!   frameworks.
//! - [`Program`] is the list, as data: neither a backend nor an element type. Its `Display` is a line for each operator.
//! - [`differentiate`] adds the backward list.
//! - [`passes`] change the list, a file each.
//! - [`Plan`] is the memory of the list, to the byte.
//! - [`Network`] is a model that a [`Trainer`](crate::train::Trainer) trains: the lists of its layers for training and for evaluation.
//! - [`Runner`] runs it on any [`Backend`](crate::backend::Backend), in any precision.
//!
//! An operator names the adjacency that it sums over, so several edge types, or the same vertices under two graphs, are written
//! down like one.

mod builder;
mod formulas;
mod gradient;
pub mod layers;
mod list;
mod network;
mod operator;
pub mod passes;
mod plan;
mod run;
mod shape;
mod text;
mod traffic;
mod value;

pub use builder::Builder;
pub use formulas::{BatchNorm, GruCell, Heads, Scores};
pub use gradient::differentiate;
pub use list::Program;
#[cfg(feature = "checkpoints")]
pub(crate) use network::shapes;
pub use network::{Explanation, Network, Profile, TimedOperator};
pub use operator::{
    Activate, ActivateGradient, Addend, AdditiveAttention, AdditiveGradient, Aggregate,
    AggregateSigns, AggregateSignsMatmul, Attention, AttentionGradient, BatchStatistics,
    BinaryMatmul, Coding, Direction, DotAttention, DotAttentionGradient, Dropout, EdgeTerms, End,
    GroupNorm, GroupScales, Matmul, MessageGradient, MessageRows, MessageSums, Node, Normalization,
    NormalizeGradient, Operator, Own, OwnCall, OwnOperands, OwnOperator, RankPart, ReadFactors,
    ReduceMessages, ReduceMessagesGradient, RowFactors, Take,
};
pub use plan::{Place, Plan, Slot};
pub use run::Runner;
#[cfg(feature = "checkpoints")]
pub(crate) use run::{row_dots, sign};
pub use traffic::Traffic;
pub use value::{
    Buffer, Constant, Description, Edges, Exchanged, Format, HeadValues, Initial, Origin, Rows,
    Shape, Value, Vertices,
};
