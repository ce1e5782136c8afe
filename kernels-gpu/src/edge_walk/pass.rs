//! What a walk computes.

use super::lanes::Lane;
use super::part::Walked;
use super::ring::Edge;
use crate::device::global::Global;
use crate::device::vector::Vector;
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::{DevicePtr, HalfBits};

/// The parameters of a walk's kernels.
pub trait Params {
    /// What the walk itself reads.
    fn walk(&self) -> &EdgeWalk;
    /// A matrix with a row for each column. One that is null has zeros.
    fn of_column(&self, matrix: usize) -> DevicePtr<HalfBits>;
    /// A matrix with a row for each edge, likewise.
    #[inline(always)]
    fn of_edge(&self, _matrix: usize) -> DevicePtr<HalfBits> {
        DevicePtr::NULL
    }
    /// The row that the matrices of edges have for each edge; null where they are in the order of edges.
    #[inline(always)]
    fn order(&self) -> DevicePtr<u32> {
        DevicePtr::NULL
    }
    /// Matrices with a row for each row, which are zero where a row has no edges; null where there is none.
    fn outputs(&self) -> [DevicePtr<HalfBits>; 3];
}

/// What a pass stages, merges and writes of a row.
pub type PartOf<V, const R: usize, P> = <<P as Pass<V, R>>::Part as Walked>::Part;

/// A policy of the walk.
pub trait Pass<V: Vector<Bits = [u32; 4]>, const R: usize> {
    /// The parameters of its kernels.
    type Params: Params;
    /// Matrices with a row for each column.
    const COLUMNS: usize;
    /// Matrices with a row for each edge.
    const EDGES: usize = 0;
    /// Whether edges bring their column and their row of the matrices of edges.
    const IDS: bool;
    /// Whether an edge brings the statistics of its column.
    const STATISTICS: bool = false;

    /// Where the statistics of a column and a head lie.
    #[inline(always)]
    fn statistics(_: &Self::Params, _column: u32, _head: u32) -> Global<[u32; 2]> {
        Global::at_address(0)
    }

    /// What a lane keeps of a row while it walks the row's edges.
    type Row: Copy;
    /// What it has of the row's sums.
    type Part: Walked;

    /// Loads what belongs to row `row`; `begins` says whether its first edge is in the chunk.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and the row has edges.
    unsafe fn row(params: &Self::Params, lane: Lane<R>, row: u32, begins: bool) -> Self::Row;

    /// Adds an edge of row `row`.
    ///
    /// # Safety
    /// As [`Pass::row`]; it is an edge of the row, in the ring's current step, or none.
    unsafe fn add(
        params: &Self::Params,
        lane: Lane<R>,
        row: (u32, &Self::Row),
        part: Self::Part,
        edge: Edge<R>,
    ) -> Self::Part;

    /// A chunk's part of a row, before it is staged or written.
    #[inline(always)]
    fn closed(_: &Self::Params, part: PartOf<V, R, Self>) -> PartOf<V, R, Self> {
        part
    }

    /// Writes a row.
    ///
    /// # Safety
    /// The launch contract; no other warp writes the row, and the part is that of all its edges.
    unsafe fn write(params: &Self::Params, lane: Lane<R>, row: u32, part: PartOf<V, R, Self>);

    /// Writes what belongs to a row without edges, apart from the outputs: for each head from `first` on, every 32nd.
    ///
    /// # Safety
    /// The launch contract; the row has no edges.
    #[inline(always)]
    unsafe fn clear(_: &Self::Params, _row: u32, _first: u32) {}
}
