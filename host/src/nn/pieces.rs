//! A graph in pieces, for a device that has no room for it.

use super::edge_features::EdgeFeatures;
use super::{ConvolutionConfig, HiddenNorm, ModelConfig, PartFactors, PreparedGraph, Propagation};
use crate::backend::Backend;
use crate::error::Error;
use crate::graph::{Part, even_ranges};
use crate::ops::SpmmPolicy;
use crate::tensor::Element;
use std::sync::Arc;

/// A graph on the host as a model wants it, cut into ranges of vertices: each with the edges that lead to them, and with the factors
/// that the whole graph gives those.
///
/// [`Network::forward_in_pieces`](super::Model::forward_in_pieces) computes a layer of one piece after the other, each with all of
/// its neighbours. So no more than a piece lies on the device, nothing is sampled, and the results are those of the whole graph, but
/// for the order in which the terms of a row are added up.
///
/// A handle, whose clones are the same pieces.
#[derive(Clone, Debug)]
pub struct Pieces<E: Element>(Arc<Cut<E>>);

/// What [`Pieces`] stand for.
#[derive(Debug)]
struct Cut<E: Element> {
    parts: Vec<Part>,
    factors: PartFactors<E>,
    /// Columns that the model reads as features of edges, for all edges of the graph.
    edge_features: Vec<Vec<f32>>,
    vertices: usize,
}

impl<E: Element> Pieces<E> {
    /// So many pieces of `prepared`, which is a graph as `model` wants it: of nearly as many edges and vertices together each, and no
    /// more than there are vertices.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of no pieces, and of a model that [wants all vertices](ModelConfig::wants_all_vertices) at once. Those of
    /// [`PartFactors::new`].
    pub fn new(
        prepared: &PreparedGraph<'_>,
        model: &ModelConfig,
        count: usize,
    ) -> Result<Self, Error> {
        let refuse = |reason: String| Error::Unsupported {
            operator: "Pieces",
            reason,
        };
        if count == 0 {
            return Err(refuse("a graph has 1 piece at least".into()));
        }
        if let Some(why) = model.wants_all_vertices() {
            return Err(refuse(format!("{why}; take the graph whole")));
        }
        let graph = &prepared.graph;
        let parts = even_ranges(graph, count).into_iter();
        Ok(Self(Arc::new(Cut {
            parts: parts
                .map(|range| Part::of_range(graph, range))
                .collect::<Result<_, _>>()?,
            factors: prepared.part_factors(model)?,
            edge_features: prepared.features.clone(),
            vertices: graph.vertices(),
        })))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.parts.len()
    }

    /// Vertices of the graph.
    pub fn vertices(&self) -> usize {
        self.0.vertices
    }

    /// The pieces, whose own vertices follow one another.
    pub(super) fn parts(&self) -> &[Part] {
        &self.0.parts
    }

    /// A piece on the backend, to be evaluated.
    pub(super) fn propagation<B: Backend>(
        &self,
        backend: &B,
        part: &Part,
    ) -> Result<Propagation<B>, Error> {
        let graph = Propagation::of_part_forward(backend, part, &self.0.factors)?;
        match self.0.edge_features.is_empty() {
            true => Ok(graph),
            false => Ok(graph.with(EdgeFeatures::of_part_forward(
                backend,
                part,
                &self.0.edge_features,
            )?)),
        }
    }
}

impl ModelConfig {
    /// Why it cannot be evaluated on a graph in [pieces](Pieces), where that is so: something that it reads is of all vertices at once.
    pub fn wants_all_vertices(&self) -> Option<&'static str> {
        if self.binary.is_some() {
            return Some("a model of bits normalises features over all vertices");
        }
        if self.readout.is_some() {
            return Some("a model of whole graphs pools all of their vertices");
        }
        if self.hidden_norm.wants_whole_graphs() {
            return Some("a norm over whole graphs takes the statistics of all vertices");
        }
        self.convolution.wants_all_vertices()
    }

    /// Whether rows of a batch that stand for no vertex change nothing of the others, and its graphs are asked for nothing but sums along
    /// edges: then batches may have room that is empty.
    pub(crate) fn ignores_empty_rows(&self) -> bool {
        let convolution = &self.convolution;
        let normalises = match convolution {
            // Its batch normalisations, with running statistics as well, take those of the batch in training.
            ConvolutionConfig::Gin(_) | ConvolutionConfig::Other(_) => true,
            _ => self.hidden_norm == HiddenNorm::Batch,
        };
        self.wants_all_vertices().is_none()
            && !normalises
            && self.messages.is_none()
            && self.store.is_none()
            && !convolution.drops_edges()
            && self.edge_features() == 0
            && self.edge_weights().is_ok()
            && self.policy == SpmmPolicy::default()
    }
}
