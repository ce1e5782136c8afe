//! How long planes of numbers of edges are: see [`crate::ops`].

use crate::backend::{Adjacency, Storage};
use halfgnn_contract::attention::edge_plane_stride;

/// Distance of two planes of numbers of edges, and the length of one: the next multiple of 8, so that each starts at a
/// 16-byte boundary. An array for `heads` heads is `heads · edge_plane(edges)` long.
pub fn edge_plane(edges: usize) -> usize {
    edge_plane_stride(edges as u64) as usize
}

/// Length of an array of a number for each edge and head of `a`.
pub fn edge_values<B: Storage>(a: &Adjacency<B>, heads: usize) -> usize {
    heads.saturating_mul(edge_plane(a.edges()))
}
