//! Which adjacencies a pass runs over, and how large they are.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{ModelConfig, Propagation};
use crate::program::list::refuse;

/// Which adjacencies there are. A program is made for one topology and sized anew for each size of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    /// Whether each layer has an adjacency of its own, from more vertices to fewer. Else one over the same vertices is that of all.
    pub(super) blocks: bool,
}

/// Sources, destinations and edges of each adjacency.
pub(super) type Sizes = Vec<[usize; 3]>;

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
        [graph.sources(), graph.destinations(), edges]
    };
    let layers = graphs.len().saturating_sub(pools);
    let is_square = |graph: &Propagation<B>| graph.sources() == graph.destinations();
    let blocks = match layers {
        1 if model.layers == 1 => !is_square(&graphs[0]) || graphs[0].own().is_some(),
        1 => false,
        count if count == model.layers => true,
        count => {
            return refuse(format!(
                "the model has {} layers that aggregate, and there are {count} graphs; give one for each, or one for all",
                model.layers
            ));
        }
    };
    if !blocks && !is_square(&graphs[0]) {
        return refuse(format!(
            "one graph for all {} layers leads from its vertices to themselves, and this one has {} sources and {} destinations",
            model.layers,
            graphs[0].sources(),
            graphs[0].destinations()
        ));
    }
    Ok((Topology { blocks }, graphs.iter().map(size).collect()))
}
