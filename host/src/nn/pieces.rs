//! A graph in pieces, for a device whose memory cannot hold it.

use super::edge_features::{EdgeColumns, EdgeFeatures};
use super::{
    ConvolutionConfig, HiddenNorm, ModelConfig, Norm, PartFactors, PreparedGraph, Propagation,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::graph::{Graph, Part, even_ranges};
use crate::ops::SpmmPolicy;
use crate::tensor::Element;
use std::borrow::Cow;
use std::ops::Range;
#[cfg(feature = "parts")]
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A graph on the host as a model requires it, cut into ranges of vertices. Each piece has the edges that lead to its
/// vertices, with their factors in the whole graph.
///
/// [`Network::forward_in_pieces`](super::Model::forward_in_pieces) computes each layer one piece after the other, each
/// with all of its neighbours. No more than a piece lies on the device, and nothing is sampled. The results are those
/// of the whole graph, except for the order in which the terms of a row are added.
///
/// A handle, whose clones are the same pieces.
#[derive(Clone, Debug)]
pub struct Pieces<E: Element> {
    cut: Arc<Cut<E>>,
    /// The ascending vertices whose rows the last layer writes, where those are not all.
    asked: Option<Arc<[u32]>>,
    between: Between,
}

/// Where the outputs of a layer lie until the next has read them.
#[derive(Clone, Debug, Default)]
pub(crate) enum Between {
    /// In the host's memory. The edges of all pieces are there as well, once they were made.
    #[default]
    Memory,
    /// In unnamed files in a folder. A piece is made whenever a layer computes it.
    #[cfg(feature = "parts")]
    Disk(Arc<Path>),
    /// The same for a device that only counts memory: nowhere.
    Counted,
}

/// The graph and its ranges.
#[derive(Debug)]
struct Cut<E: Element> {
    graph: Graph,
    ranges: Vec<Range<usize>>,
    /// Those that were made and kept.
    parts: Vec<OnceLock<Part>>,
    factors: PartFactors<E>,
    /// Columns that the model reads as features of edges, for all edges of the graph.
    edge_features: EdgeColumns,
}

impl<E: Element> Pieces<E> {
    /// Cuts `prepared`, which is a graph as `model` requires it, into `count` pieces of nearly equal numbers of edges
    /// and vertices together, but no more than there are vertices.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no pieces, and for a model that [reads all vertices](ModelConfig::wants_all_vertices)
    /// at once. Those of [`PartFactors::new`].
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
        let graph = prepared.graph.clone().into_owned();
        let ranges = even_ranges(&graph, count);
        let cut = Cut {
            parts: ranges.iter().map(|_| OnceLock::new()).collect(),
            ranges,
            graph,
            factors: prepared.part_factors(model)?,
            edge_features: prepared.features.clone(),
        };
        Ok(Self {
            cut: Arc::new(cut),
            asked: None,
            between: Between::Memory,
        })
    }

    /// The same, where the last layer writes only the rows of these vertices, in ascending order.
    #[must_use]
    pub fn asked_for(self, mut vertices: Vec<u32>) -> Self {
        vertices.sort_unstable();
        vertices.dedup();
        Self {
            asked: Some(vertices.into()),
            ..self
        }
    }

    /// The same for a graph whose layers' outputs do not fit in the host's memory. They lie in files in `folder` until
    /// the next layer has read them: half numbers in half, all others in float. The files have no name, and are removed
    /// with the pass, however it ends. The edges of a piece are put together whenever a layer computes it, and are not
    /// kept. Results are the same, to the bit.
    #[cfg(feature = "parts")]
    #[must_use]
    pub fn on_disk(self, folder: &Path) -> Self {
        Self {
            between: Between::Disk(folder.into()),
            ..self
        }
    }

    /// The same for a device that only counts memory.
    pub(crate) fn counted(self) -> Self {
        let between = match self.between {
            Between::Memory => Between::Memory,
            _ => Between::Counted,
        };
        Self { between, ..self }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cut.ranges.len()
    }

    /// Vertices of the graph.
    pub fn vertices(&self) -> usize {
        self.cut.graph.vertices()
    }

    /// The ascending vertices whose rows the last layer [writes](Pieces::asked_for), where those are not all.
    pub fn asked(&self) -> Option<&[u32]> {
        self.asked.as_deref()
    }

    /// Checks that the requested vertices exist.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.asked().and_then(<[u32]>::last) {
            Some(&last) if last as usize >= self.vertices() => Err(Error::Unsupported {
                operator: "Pieces",
                reason: format!(
                    "the row of vertex {last} is asked for, and there are {}",
                    self.vertices()
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The number of rows that the last layer writes.
    pub(crate) fn rows_asked_for(&self) -> usize {
        match &self.asked {
            Some(asked) => asked.len(),
            None => self.vertices(),
        }
    }

    pub(crate) fn between(&self) -> &Between {
        &self.between
    }

    /// The vertices of a piece whose rows a layer writes, the `last` or another.
    pub(crate) fn own(&self, piece: usize, last: bool) -> Vec<u32> {
        let range = self.cut.ranges[piece].clone();
        match &self.asked {
            Some(asked) if last => {
                let place = |end: usize| asked.partition_point(|&vertex| (vertex as usize) < end);
                asked[place(range.start)..place(range.end)].to_vec()
            }
            _ => range.map(|vertex| vertex as u32).collect(),
        }
    }

    /// Those, and the edges that lead to them.
    pub(crate) fn part(&self, piece: usize, last: bool) -> Result<Cow<'_, Part>, Error> {
        let Cut {
            graph,
            ranges,
            parts,
            ..
        } = &*self.cut;
        if last && self.asked.is_some() {
            return Ok(Cow::Owned(Part::of_rows(graph, &self.own(piece, last))?));
        }
        let kept = &parts[piece];
        match (kept.get(), &self.between) {
            (Some(part), _) => Ok(Cow::Borrowed(part)),
            // Edges on disk are read again, because those of all pieces do not fit in memory.
            (None, Between::Memory) if !graph.csr().is_on_disk() => {
                let made = Part::of_range(graph, ranges[piece].clone())?;
                Ok(Cow::Borrowed(kept.get_or_init(|| made)))
            }
            _ => Ok(Cow::Owned(Part::of_range(graph, ranges[piece].clone())?)),
        }
    }

    /// A piece on the backend, to be evaluated.
    pub(crate) fn propagation<B: Backend>(
        &self,
        backend: &B,
        part: &Part,
    ) -> Result<Propagation<B>, Error> {
        let (factors, edge_features) = (&self.cut.factors, &self.cut.edge_features);
        let graph = Propagation::of_part_forward(backend, part, factors)?;
        match edge_features.is_empty() {
            true => Ok(graph),
            false => {
                let features = EdgeFeatures::of_part_forward::<E>(backend, part, edge_features)?;
                Ok(graph.with(features))
            }
        }
    }
}

impl ModelConfig {
    /// Why it cannot be evaluated on a graph in [pieces](Pieces), where that is so: it reads all vertices at once.
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

    /// Whether padding rows of a batch do not change the other rows, and its graphs only need sums along edges. Batches
    /// may then have padding.
    pub(crate) fn ignores_empty_rows(&self) -> bool {
        let convolution = &self.convolution;
        let normalises = match convolution {
            // Its batch normalisations, with running statistics as well, take those of the batch in training.
            ConvolutionConfig::Gin(_)
            | ConvolutionConfig::Gine(_)
            | ConvolutionConfig::Other(_) => true,
            _ => self.hidden_norm == HiddenNorm::Batch,
        };
        self.wants_all_vertices().is_none()
            && !normalises
            && self.messages.is_none()
            && self.store.is_none()
            && !convolution.drops_edges()
            && self.edge_features() == 0
            && !self.reads_edge_rows()
            && self.edge_weights().is_ok()
            && self.policy == SpmmPolicy::default()
    }

    /// Whether a step on a sampled block may read features where those of the whole graph lie: it needs only sums along
    /// edges and the destinations' rows, and drops none of their elements.
    pub(crate) fn reads_features_in_place(&self) -> bool {
        self.ignores_empty_rows()
            && self.dropout_of(0) == 0.0
            && !self.residual
            && self.jumping.is_none()
            && self.readout.is_none()
            // Other norms need the out-degrees of sources.
            && matches!(self.norm(), Norm::Right | Norm::None)
            && self.convolution.reads_in_place(self)
    }
}
