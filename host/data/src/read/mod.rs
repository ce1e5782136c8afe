//! The readers, one for each format.
//!
//! A reader of a single file takes an [`Input`](super::input::Input) and returns a [`DataProblem`](super::DataProblem);
//! whoever opened the file adds its name. A reader of a folder names the file itself.

#[cfg(feature = "numpy")]
pub(super) mod arrays;
#[cfg(feature = "text")]
pub(super) mod edge_list;
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

use super::error::DataProblem;
use super::input::Progress;
use halfgnn_graph::{Direction, EdgeBlocks, Graph};

/// The graph of the edges that were read.
fn brought_into_order(
    edges: EdgeBlocks,
    vertices: usize,
    direction: Direction,
    progress: &dyn Progress,
) -> Result<Graph, DataProblem> {
    progress.begin("bringing edges into row order", 0);
    // The number of vertices is a header's, which may promise many without an edge: whether there is room is found out here.
    drop(DataProblem::room::<u64>(
        "row offsets",
        vertices as u64 + 1,
    )?);
    let graph = edges.into_graph(vertices, direction);
    graph.map_err(|error| DataProblem::graph("edges", error))
}
