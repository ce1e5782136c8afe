//! SpMV: a graph times a vector, which is what an SpMM of one feature would be if rows were no longer than their
//! elements.
//!
//! It is a segment reduction whose values are gathered: edges are partitioned evenly by their row ids (COO), as GNNOne
//! §4.4 has it, four neighbours a lane, rows that cross warps are staged, and nothing is atomic.

mod cpu;
mod gpu;

use super::check::expect_edges;
use super::{Checked, Operator};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};

/// `y = A x`: of each row the sum of the elements of `x` that its columns name, each times the weight of its edge where
/// there are some. Products and sums are float, in an order that the graph alone decides, and a sum is rounded once;
/// rows without edges are zero. Its gradient with respect to `x` is the same on the transpose, with the weights in that
/// one's order.
///
/// `x` has an element a column of `a`, `y` one a row. Weights are a plane of edges, [`edge_plane`](super::edge_plane)
/// long.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Driver`] where there is not enough memory for the
/// graph's row ids, which are made at the first call.
pub fn spmv<B: SpmvOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    weights: Option<&Array<B, E>>,
    x: &Array<B, E>,
    y: &mut Array<B, E>,
) -> Result<(), Error> {
    backend.spmv(Checked::new(SpmvOperands { a, weights, x, y })?)
}

/// Operands of [`spmv`].
#[derive(Debug)]
pub struct SpmvOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// A weight an edge.
    pub weights: Option<&'a Array<B, E>>,
    /// An element a column.
    pub x: &'a Array<B, E>,
    /// Becomes an element a row.
    pub y: &'a mut Array<B, E>,
}

impl<B: Storage, E: Element> Operator for SpmvOperands<'_, B, E> {
    const NAME: &'static str = "spmv";

    fn check(&self) -> Result<(), Error> {
        Error::expect(Self::NAME, "elements of x", self.a.columns(), self.x.len())?;
        Error::expect(Self::NAME, "elements of y", self.a.rows(), self.y.len())?;
        self.weights.map_or(Ok(()), |weights| {
            expect_edges(Self::NAME, "edge weights", 1, self.a, weights)
        })
    }
}

/// Products with vectors.
pub trait SpmvOperators: Storage {
    /// The product.
    ///
    /// # Errors
    /// Those of the device.
    fn spmv<E: Element>(&self, operands: Checked<SpmvOperands<'_, Self, E>>) -> Result<(), Error>;
}
