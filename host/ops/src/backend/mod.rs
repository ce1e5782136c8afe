//! Where operators run.
//!
//! [`Backend`] is a device with all operators of [`crate::ops`], whose functions check their operands before they call
//! it. There are two: [`cpu::Cpu`], whose plain form says what the answer is, and [`gpu::Gpu`], which launches kernels
//! on any [`crate::driver::Driver`].

mod adjacency;
mod borrowed;
pub mod cpu;
pub mod gpu;
mod row_share;

pub use crate::storage::{
    Floats, Ledger, MemoryKind, MemoryReport, Rows, Storage, Tracked, Transfer,
};
pub use adjacency::{Adjacency, AdjacencyArrays, Block, DeviceGraph};
pub use row_share::RowShare;

use crate::driver::Driver;
use crate::ops::{
    AdditiveOperators, AttentionOperators, BitsOperators, CommunityOperators, ConstructOperators,
    DotAttentionOperators, ElementwiseOperators, FrdcOperators, HeadOperators, LossOperators,
    MatmulOperators, MaximumOperators, MessageOperators, MetricsOperators, NonlinearityOperators,
    NormalizeOperators, NormsOperators, OptimizerOperators, QuantizeOperators, ReductionOperators,
    SamplingOperators, SddmmOperators, SegmentOperators, ShadowOperators, SortOperators,
    SpmmOperators, SpmvOperators, SubgraphOperators,
};

/// A device with all operators, of every family.
pub trait Backend:
    Storage
    + AdditiveOperators
    + DotAttentionOperators
    + AttentionOperators
    + BitsOperators
    + CommunityOperators
    + ConstructOperators
    + ElementwiseOperators
    + FrdcOperators
    + HeadOperators
    + LossOperators
    + MatmulOperators
    + MaximumOperators
    + MessageOperators
    + MetricsOperators
    + NonlinearityOperators
    + NormalizeOperators
    + NormsOperators
    + OptimizerOperators
    + QuantizeOperators
    + ReductionOperators
    + SamplingOperators
    + SddmmOperators
    + SegmentOperators
    + ShadowOperators
    + SortOperators
    + SpmmOperators
    + SpmvOperators
    + SubgraphOperators
{
}

impl Backend for cpu::Cpu {}

impl<D: Driver> Backend for gpu::Gpu<D> {}
