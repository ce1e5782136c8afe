//! Where numbers of vertices and of edges lie, for operators with heads.
//!
//! - Numbers of vertices lie in planes of floats, one a head: head `h`, vertex `v` at `h · vertices + v`.
//! - Numbers of edges lie in planes of elements, one a head, in the order of the adjacency, [`edge_plane`] apart. What lies
//!   between the last edge and the end of a plane is zero.
//! - Features have their heads side by side, all of one width; with more than one head a width must fill whole 16-byte
//!   vectors (8 halves or 4 floats), so that every head starts at one.

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
