//! The readers, one for each format.
//!
//! A reader of a single file takes an [`Input`](super::input::Input) and returns a [`DataProblem`](super::DataProblem),
//! to which its caller adds the file's name. A reader of a folder names the file itself.

#[cfg(feature = "numpy")]
pub(super) mod arrays;
#[cfg(feature = "text")]
pub(super) mod edge_list;
pub(super) mod frdc;
#[cfg(feature = "numpy")]
pub(super) mod gnn_benchmark;
#[cfg(feature = "text")]
pub(super) mod matrix_market;
#[cfg(any(feature = "numpy", feature = "planetoid"))]
mod npy;
#[cfg(feature = "numpy")]
pub(super) mod npz;
#[cfg(feature = "ogb")]
pub(super) mod ogb;
#[cfg(any(feature = "planetoid", feature = "torch"))]
mod pickle;
#[cfg(feature = "planetoid")]
pub(super) mod planetoid;
#[cfg(feature = "numpy")]
pub(super) mod pyg;
pub(super) mod raw_csr;
#[cfg(feature = "numpy")]
pub(super) mod reddit;
#[cfg(feature = "numpy")]
pub(super) mod scipy;
#[cfg(feature = "csv")]
pub(super) mod tables;
#[cfg(feature = "torch")]
pub(super) mod torch;
#[cfg(feature = "text")]
pub(super) mod tu;
#[cfg(feature = "numpy")]
pub(super) mod types;

use super::error::DataProblem;
use super::input::{Input, Progress};
use halfgnn_graph::{Direction, EdgeBlocks, Graph, parallel};
use std::io::Read;

/// Bytes of a vertex while edges are brought into row order: offsets of the graph, and of the one that is made of it.
pub(super) const OF_VERTEX: u64 = 16;

/// Words that are read at a time.
const PIECE: usize = 1 << 18;

/// The next `count` little-endian words of a file, as `from_le` takes one; `what` they are in messages.
fn words<T: bytemuck::Pod + Send>(
    input: &mut Input<'_>,
    what: &str,
    count: usize,
    from_le: impl Fn(T) -> T + Sync,
) -> Result<Vec<T>, DataProblem> {
    let mut words = DataProblem::with_capacity(what, count as u64)?;
    words.resize(count, T::zeroed());
    // In chunks, so that progress is reported.
    for piece in words.chunks_mut(PIECE) {
        input.read_exact(bytemuck::cast_slice_mut(piece))?;
    }
    parallel::for_each(words.as_mut_slice(), |_, word| *word = from_le(*word));
    Ok(words)
}

/// Where a reader puts the edges (row, column) that it reads: into memory, or into a file.
pub(super) trait EdgeStore {
    /// Checks that there is space for the given bytes of per-vertex data. Edges in memory find that out when memory is
    /// allocated.
    fn expect_space(&self, of_vertices: u64) -> Result<(), DataProblem>;

    /// Adds edges behind those that are there.
    fn add(&mut self, block: Vec<[u32; 2]>) -> Result<(), DataProblem>;

    /// Notes what of the file is not read with its edges, such as [`WEIGHTS_LEFT_OUT`](crate::WEIGHTS_LEFT_OUT).
    fn leave_out(&mut self, _what: &'static str) {}

    /// The number of edges.
    fn edges(&self) -> u64;

    /// Calls `each` with the edges of every block that was added and which it is, in any order.
    fn each_block(&mut self, each: impl Fn(usize, &[[u32; 2]]) + Sync) -> Result<(), DataProblem>;

    /// Gives the ends of all edges other numbers, by the block that they are in.
    fn rename(&mut self, number: impl Fn(usize, u32) -> u32 + Sync) -> Result<(), DataProblem>;
}

impl EdgeStore for EdgeBlocks {
    fn expect_space(&self, _: u64) -> Result<(), DataProblem> {
        Ok(())
    }

    fn add(&mut self, block: Vec<[u32; 2]>) -> Result<(), DataProblem> {
        self.push(block);
        Ok(())
    }

    fn edges(&self) -> u64 {
        self.len()
    }

    fn each_block(&mut self, each: impl Fn(usize, &[[u32; 2]]) + Sync) -> Result<(), DataProblem> {
        parallel::for_each(self.blocks(), |at, block| each(at, block));
        Ok(())
    }

    fn rename(&mut self, number: impl Fn(usize, u32) -> u32 + Sync) -> Result<(), DataProblem> {
        let mut blocks = self.blocks_mut();
        parallel::for_each(blocks.as_mut_slice(), |at, block| {
            let ends = block.iter_mut().flatten();
            ends.for_each(|end| *end = number(at, *end));
        });
        Ok(())
    }
}

/// The graph of the edges that were read.
fn brought_into_order(
    edges: EdgeBlocks,
    vertices: usize,
    direction: Direction,
    progress: &dyn Progress,
) -> Result<Graph, DataProblem> {
    progress.begin("bringing edges into row order", 0);
    // The number of vertices is a header's, which may declare many without an edge. Whether there is memory for them is
    // found out here.
    drop(DataProblem::with_capacity::<u64>(
        "row offsets",
        vertices as u64 + 1,
    )?);
    let graph = edges.into_graph(vertices, direction);
    graph.map_err(|error| DataProblem::graph("edges", error))
}
