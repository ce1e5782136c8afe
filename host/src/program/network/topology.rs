//! Which adjacencies a pass runs over, and how large they are.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{ModelConfig, ModelTypes, Propagation};
use crate::program::list::refuse;

/// Which adjacencies there are. A program is made for one topology and sized anew for each size of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One over the same vertices, which is that of all layers.
    Whole,
    /// One for each type of edges, of a model of several, which all layers read.
    Types {
        /// Whether the vertices are a sample. For each type without features there is then one more, which leads from all vertices of the type to
        /// the sampled ones.
        sampled: bool,
    },
    /// One for each layer, from more vertices to fewer.
    Blocks {
        /// Whether the first reads features where they lie: its sources are all vertices.
        in_place: bool,
    },
    /// A rank's part of a graph, which is that of all layers, with the vertices of other ranks among its sources.
    Ranks {
        /// Whether edges go both ways, so that ranks can exchange quantized messages in both passes.
        is_mutual: bool,
    },
}

impl Topology {
    /// That of whole graphs, which nothing is known of yet.
    pub(super) fn of_whole_graphs(model: &ModelConfig) -> Self {
        match model.types {
            Some(_) => Self::Types { sampled: false },
            None => Self::Whole,
        }
    }
}

/// The adjacencies that lists are made for.
#[derive(Clone, Debug)]
pub(super) struct Graphs {
    pub(super) topology: Topology,
    /// The largest degree of each, for formulas that keep their sums in range by it.
    pub(super) degrees: Vec<u32>,
    /// Whether elements of the features are dropped before a step reads them.
    pub(super) dropped: bool,
}

impl Graphs {
    /// Those of a topology, before any of them is known.
    pub(super) fn of(topology: Topology) -> Self {
        Self {
            topology,
            degrees: Vec::new(),
            dropped: false,
        }
    }

    /// Whether a model has the same lists over both.
    pub(super) fn is_like(&self, other: &Self, model: &ModelConfig) -> bool {
        let scale = |degree: Option<&u32>| model.convolution.sum_scale(*degree.unwrap_or(&0));
        let count = self.degrees.len().max(other.degrees.len());
        let mut numbers = 0..count;
        self.topology == other.topology
            && self.dropped == other.dropped
            && numbers.all(|at| scale(self.degrees.get(at)) == scale(other.degrees.get(at)))
    }
}

/// Sources, destinations and edges of each adjacency, and the rows that a rank exchanges over it.
pub(super) type Sizes = Vec<[usize; 5]>;

/// The adjacencies of a pass as lists know them, and their sizes.
///
/// # Errors
/// [`Error::Unsupported`] where there are neither one for all layers nor one for each.
pub(super) fn of<B: Backend>(
    model: &ModelConfig,
    graphs: &[Propagation<B>],
) -> Result<(Graphs, Sizes), Error> {
    let pools = usize::from(model.readout.is_some());
    let size = |graph: &Propagation<B>| {
        let edges = graph.forward().edges();
        let [packed, returned] = graph
            .halo()
            .map_or([0; 2], |halo| [halo.packed_rows(), halo.returned_rows()]);
        let (sources, destinations) = (graph.sources(), graph.destinations());
        [sources, destinations, edges, packed, returned]
    };
    let layers = graphs.len().saturating_sub(pools);
    let hops = model.hops();
    let sampled = |types: &ModelTypes| {
        let with_samples = types.edges.len() + types.without_features().count();
        let sampled = graphs.len() != types.edges.len();
        let wanted = if sampled { with_samples } else { graphs.len() };
        let what = "graphs, one for each type of edges, and of a sample one for each type without features";
        Error::expect("Network", what, wanted, graphs.len()).map(|()| sampled)
    };
    let sampled = model.types.as_ref().map(sampled).transpose()?;
    let is_square = |graph: &Propagation<B>| graph.sources() == graph.destinations();
    let in_place = graphs.first().is_some_and(|graph| graph.own().is_some());
    let topology = match layers {
        _ if model.types.is_some() => Topology::Types {
            sampled: sampled == Some(true),
        },
        1 if graphs[0].halo().is_some() => Topology::Ranks {
            is_mutual: graphs[0].exchanges_codes(),
        },
        1 if hops == 1 && (!is_square(&graphs[0]) || in_place) => Topology::Blocks { in_place },
        1 => Topology::Whole,
        count if count == hops => Topology::Blocks { in_place },
        count => {
            return refuse(match pools {
                0 => format!(
                    "the model has {hops} layers that aggregate, and there are {count} graphs; give one for each, or one for all"
                ),
                _ => format!(
                    "the model has {hops} layers that aggregate and a readout, and there are {} graphs; give one for each, or one for all layers and one for the readout",
                    graphs.len()
                ),
            });
        }
    };
    if topology == Topology::Whole && !is_square(&graphs[0]) {
        return refuse(format!(
            "one graph for all {hops} layers leads from its vertices to themselves, and this one has {} sources and {} destinations",
            graphs[0].sources(),
            graphs[0].destinations()
        ));
    }
    let degrees = graphs.iter().map(Propagation::largest_degree).collect();
    let sizes = graphs.iter().map(size).collect();
    let dropped = false;
    let graphs = Graphs {
        topology,
        degrees,
        dropped,
    };
    Ok((graphs, sizes))
}
