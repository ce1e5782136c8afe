//! What the benches share: an SpMM on a Graph500 graph, ready to run on any backend.

use halfgnn::backend::{Backend, DeviceGraph, MemoryKind, Spmm};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::tensor::{Element, Matrix};
use halfgnn::{Error, ops};

/// Graph500's graph of 2^`scale` vertices.
///
/// # Panics
/// Where the scale is out of range.
pub fn kronecker(scale: u32) -> Graph {
    Rmat::graph500(scale)
        .generate(1)
        .expect("a scale that Graph500 has")
}

/// Operands of an SpMM on a backend.
#[derive(Debug)]
pub struct Operands<B: Backend, E: Element> {
    graph: DeviceGraph<B>,
    x: Matrix<B, E>,
    y: Matrix<B, E>,
}

impl<B: Backend, E: Element> Operands<B, E> {
    /// Ones in the shape that fits `graph`.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(backend: &B, graph: &Graph, features: usize) -> Result<Self, Error> {
        let (vertices, kind) = (graph.vertices(), MemoryKind::Features);
        let ones = vec![1.0; vertices * features];
        Ok(Self {
            graph: DeviceGraph::new(backend, graph)?,
            x: Matrix::from_f32(backend, vertices, features, &ones, kind)?,
            y: Matrix::zeros(backend, vertices, features, kind)?,
        })
    }

    /// One SpMM.
    ///
    /// # Errors
    /// Those of the device.
    pub fn spmm(&mut self, backend: &B) -> Result<(), Error> {
        ops::spmm(
            backend,
            self.graph.forward(),
            &Spmm::default(),
            &self.x,
            &mut self.y,
        )
    }
}
