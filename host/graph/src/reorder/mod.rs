//! Orders of the vertices in which neighbours lie close together, so that rows which are read for one vertex are still
//! in the cache for the next.
//!
//! | order | what it does | cost |
//! |---|---|---|
//! | [`by_degree`] | vertices of many edges first: their rows share cache lines and pages | a sort |
//! | [`louvain`] | communities together, and communities of communities (as in HP-SpMM) | some passes over the edges |
//!
//! A third, label propagation, is an operator of `halfgnn-ops`, since a GPU finds it in well below a second. What an
//! order is good for is estimated by [`cached_share`].
//!
//! An order is a [`Permutation`]: [`Graph::permuted`](super::Graph::permuted) applies it to a graph,
//! [`Permutation::apply`] to what there is one of a vertex, and [`Permutation::restore`] maps results back.
//!
//! ```
//! use halfgnn_graph::generate::Rmat;
//! use halfgnn_graph::reorder::by_degree;
//!
//! let graph = Rmat::graph500(8).generate(1)?;
//! let order = by_degree(&graph);
//! let reordered = graph.permuted(order.new_of_old())?;
//! let degrees = reordered.in_degrees();
//! assert!(degrees.windows(2).all(|pair| pair[0] >= pair[1]));
//! assert_eq!(order.restore(&degrees, 1), graph.in_degrees());
//! # Ok::<(), halfgnn_graph::GraphError>(())
//! ```

mod locality;
mod louvain;
mod permutation;

pub use locality::cached_share;
pub use louvain::louvain;
pub use permutation::Permutation;

use super::Graph;
use rayon::prelude::*;
use std::cmp::Reverse;

/// Vertices of many edges first; those of one degree keep their order.
pub fn by_degree(graph: &Graph) -> Permutation {
    Permutation::from_order(degree_order(&graph.in_degrees()))
}

/// The vertices of these degrees in that order.
pub fn degree_order(degrees: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..degrees.len() as u32).collect();
    order.par_sort_by_key(|&vertex| Reverse(degrees[vertex as usize]));
    order
}
