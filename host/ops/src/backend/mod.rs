//! Where operators run.
//!
//! [`Backend`] has the operators that a model needs, a trait a family, for shapes that are already checked: call them
//! through [`crate::ops`], which checks. There are two: [`cpu::Cpu`], plain and readable, which says what the answer is,
//! and [`gpu::Gpu`], which launches kernels on any [`crate::driver::Driver`].

mod adjacency;
mod attention;
pub mod cpu;
mod dense;
pub mod gpu;
mod ledger;
mod loss;
mod normalize;
mod optimizer;
mod random;
mod sddmm;
mod shadow;
mod sparse;
mod storage;

pub use adjacency::{Adjacency, Block, DeviceGraph};
pub use attention::{
    AttentionOperators, AttentionPair, AttentionScores, EdgeAttention, EdgeMap, EdgeStep,
    EdgeValues, HeadDots, SegmentReduction, SoftmaxGradient,
};
pub use dense::{Activation, Beside, DenseOperators, Dropout, Epilogue, Form};
pub use ledger::{Ledger, MemoryKind, MemoryReport, Tracked};
pub use loss::{LossOperators, NO_TARGET};
pub use normalize::{
    BatchNorm, Combine, Normalization, NormalizationGradients, NormalizeOperators,
};
pub use optimizer::{
    AdamHyper, LossScaling, OptimizerOperators, OptimizerSnapshot, OptimizerState, ParameterMut,
};
pub use random::RandomState;
pub use sddmm::{
    EdgeCombine, EdgeOperand, HalfLoad, Reduction, Sddmm, SddmmOperators, SddmmPolicy, edge_plane,
};
pub use shadow::{Shadow, ShadowOperators};
pub use sparse::{
    Accumulate, Addend, Aggregation, EdgeWeights, Scaling, Schedule, SparseOperators, Spmm,
    SpmmEpilogue, SpmmPolicy, Write,
};
pub use storage::Storage;

/// A device with all operators: whatever has each family of them.
pub trait Backend:
    Storage
    + SparseOperators
    + AttentionOperators
    + SddmmOperators
    + DenseOperators
    + LossOperators
    + NormalizeOperators
    + OptimizerOperators
    + ShadowOperators
{
}

impl<B> Backend for B where
    B: Storage
        + SparseOperators
        + AttentionOperators
        + SddmmOperators
        + DenseOperators
        + LossOperators
        + NormalizeOperators
        + OptimizerOperators
        + ShadowOperators
{
}
