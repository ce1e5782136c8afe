//! Which adjacencies a pass runs over, and how large they are.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{ModelConfig, Propagation};
use crate::program::list::refuse;

/// Which adjacencies there are. A program is made for one topology and sized anew for each size of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One over the same vertices, which is that of all layers.
    Whole,
    /// One for each layer, from more vertices to fewer.
    Blocks,
    /// A rank's part of a graph, which is that of all layers, with the vertices of other ranks among its sources.
    Ranks {
        /// Whether edges go both ways, so that ranks can exchange quantized messages in both passes.
        is_mutual: bool,
    },
}

/// Sources, destinations and edges of each adjacency, and the rows that a rank exchanges over it.
pub(super) type Sizes = Vec<[usize; 5]>;

/// The topology of the adjacencies of a pass, and their sizes.
///
/// # Errors
/// [`Error::Unsupported`] where there are neither one for all layers nor one for each.
pub(super) fn of<B: Backend>(
    model: &ModelConfig,
    graphs: &[Propagation<B>],
) -> Result<(Topology, Sizes), Error> {
    let pools = usize::from(model.readout.is_some());
    let size = |graph: &Propagation<B>| {
        let edges = graph.forward().edges();
        let [packed, returned] = graph.halo().map_or([0; 2], |halo| {
            [halo.packed_rows(), halo.returned_rows()]
        });
        let (sources, destinations) = (graph.sources(), graph.destinations());
        [sources, destinations, edges, packed, returned]
    };
    let layers = graphs.len().saturating_sub(pools);
    let is_square = |graph: &Propagation<B>| graph.sources() == graph.destinations();
    let topology = match layers {
        1 if graphs[0].halo().is_some() => Topology::Ranks {
            is_mutual: graphs[0].exchanges_codes(),
        },
        1 if model.layers == 1 && (!is_square(&graphs[0]) || graphs[0].own().is_some()) => {
            Topology::Blocks
        }
        1 => Topology::Whole,
        count if count == model.layers => Topology::Blocks,
        count => {
            return refuse(format!(
                "the model has {} layers that aggregate, and there are {count} graphs; give one for each, or one for all",
                model.layers
            ));
        }
    };
    if topology == Topology::Whole && !is_square(&graphs[0]) {
        return refuse(format!(
            "one graph for all {} layers leads from its vertices to themselves, and this one has {} sources and {} destinations",
            model.layers,
            graphs[0].sources(),
            graphs[0].destinations()
        ));
    }
    Ok((topology, graphs.iter().map(size).collect()))
}
