//! Batches of whole graphs: a selection of the blocks of a block-diagonal adjacency.

use super::objective::{Goal, Objective};
use crate::backend::{Backend, MemoryKind};
use crate::data::GraphIndex;
use crate::error::Error;
use crate::graph::Graph;
use crate::nn::{ModelConfig, PreparedGraph};
use crate::ops;
use crate::tensor::{Array, Element, Matrix};
use std::borrow::Cow;

const NAME: &str = "GraphBatches";

/// Many graphs, prepared for a model. A batch is a selection of them: see
/// [`Batches::of_graphs`](super::Batches::of_graphs).
#[derive(Debug)]
pub struct GraphBatches {
    prepared: PreparedGraph<'static>,
    index: GraphIndex,
    model: ModelConfig,
    largest_degree: u32,
}

impl GraphBatches {
    /// Takes `prepared`, which `model` made of the graphs of `index`.
    ///
    /// # Errors
    /// [`Error::Shape`] where `index` is of another number of vertices, [`Error::Unsupported`] where the model has no
    /// readout.
    pub fn new(
        prepared: &PreparedGraph<'_>,
        index: &GraphIndex,
        model: &ModelConfig,
    ) -> Result<Self, Error> {
        let vertices = prepared.graph.vertices();
        Error::expect(NAME, "vertices of the graphs", vertices, index.vertices())?;
        model.expect_readout(NAME)?;
        let weights = prepared.weights.as_deref();
        Ok(Self {
            largest_degree: prepared.graph.csr().longest_row(),
            prepared: PreparedGraph {
                graph: Cow::Owned(prepared.graph.clone().into_owned()),
                weights: weights.map(|weights| Cow::Owned(weights.to_vec())),
                features: prepared.features.clone(),
            },
            index: index.clone(),
            model: model.clone(),
        })
    }

    /// The index of the graphs.
    pub fn index(&self) -> &GraphIndex {
        &self.index
    }

    /// The task of predicting `goal` for some graphs, in this order; `features` are those of all vertices.
    pub(super) fn objective<B: Backend, E: Element>(
        &self,
        backend: &B,
        graphs: &[u32],
        features: &Matrix<B, E>,
        goal: &Goal<'_>,
    ) -> Result<Objective<B, E>, Error> {
        let index = self.index.selected(graphs);
        let prepared = self.selected(graphs, &index)?;
        // Stored sums, and running statistics of them, are scaled by it. It must be the same in all batches.
        let graph = prepared
            .propagation::<B, E>(backend, &self.model)?
            .with_largest_degree(self.largest_degree);
        let readout = self.model.expect_readout(NAME)?;
        let pooled = readout.propagation(backend, &index)?;
        let vertices: Vec<u32> = graphs
            .iter()
            .flat_map(|&graph| self.index.vertices_of(graph as usize))
            .map(|vertex| vertex as u32)
            .collect();
        let kind = MemoryKind::Features;
        let places = Array::from_slice(backend, &vertices, kind)?;
        let mut taken = Matrix::uninit(backend, vertices.len(), features.columns(), kind)?;
        ops::take_rows(backend, features, &places, &mut taken)?;
        Objective::of(backend, vec![graph, pooled], taken, goal)
    }

    /// The edges of some graphs, whose vertices get the ids of `index`.
    fn selected(
        &self,
        graphs: &[u32],
        index: &GraphIndex,
    ) -> Result<PreparedGraph<'static>, Error> {
        let csr = self.prepared.graph.csr();
        let (mut offsets, mut columns, mut edges) = (vec![0_u64], Vec::new(), Vec::new());
        for (&graph, &start) in graphs.iter().zip(index.starts()) {
            let vertices = self.index.vertices_of(graph as usize);
            let moved = |column: &u32| column - vertices.start as u32 + start;
            for vertex in vertices.clone() {
                columns.extend(csr.row(vertex).iter().map(moved));
                edges.extend(csr.row_range(vertex));
                offsets.push(columns.len() as u64);
            }
        }
        let of_edges = |values: &[f32]| edges.iter().map(|&edge| values[edge]).collect::<Vec<_>>();
        let prepared = &self.prepared;
        Ok(PreparedGraph {
            graph: Cow::Owned(Graph::from_offsets(offsets, columns)?),
            weights: prepared
                .weights
                .as_deref()
                .map(|weights| Cow::Owned(of_edges(weights))),
            features: prepared.features.selected(&edges),
        })
    }
}
