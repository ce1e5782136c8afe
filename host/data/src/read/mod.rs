//! The readers, one for each format.
//!
//! A reader of a single file takes an [`Input`](super::input::Input) and returns a [`DataProblem`](super::DataProblem);
//! whoever opened the file adds its name. A reader of a folder names the file itself.

pub(super) mod edge_list;
pub(super) mod gnn_benchmark;
pub(super) mod matrix_market;
mod npy;
pub(super) mod npz;
pub(super) mod ogb;
mod pickle;
pub(super) mod planetoid;
pub(super) mod raw_csr;
pub(super) mod reddit;
pub(super) mod scipy;

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
    let graph = edges.into_graph(vertices, direction);
    graph.map_err(|error| DataProblem::graph("edges", error))
}
