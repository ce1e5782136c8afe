//! Communities of vertices, and the order that puts them together: label propagation, a launch a round.
//!
//! It costs some twenty reads of a part of the edges, in parallel, where Louvain's method goes through the vertices one
//! after the other; and it has the same labels on every device ([`halfgnn_contract::communities`]).

mod cpu;
mod gpu;

use super::{Checked, GraphRows, Operator, SortOperators, sort_pairs};
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::graph::Graph;
use crate::tensor::Array;
use halfgnn_contract::sort::bits_below;
use halfgnn_graph::reorder::Permutation;

/// Most rounds. Labels of communities that there are have settled after some fifteen.
pub const MOST_ROUNDS: u32 = 24;

/// Two rounds that change fewer than one in this number of labels are the last.
const MOVED_OF: u64 = 256;

/// Whose label each vertex may take: rows of a graph, on the device.
#[derive(Debug)]
pub struct Neighbors<'a, B: Storage> {
    /// The first edge of each vertex, and the number of edges.
    pub offsets: &'a Array<B, u64>,
    /// The neighbour of each edge.
    pub columns: &'a Array<B, u32>,
}

/// A round of label propagation (Raghavan, Albert and Kumara, 2007): `next` becomes the label of each vertex that most
/// of its neighbours have, of 32 at most and in all rounds but the first of half of the vertices; its own where that is
/// among those that most have. How many are others than before is returned; it waits for the device.
///
/// # Errors
/// [`Error::Shape`] where there is not a label a vertex before and after, [`Error::Unsupported`] where there is no
/// offset or more vertices than 2³² − 1.
pub fn propagate_labels<B: CommunityOperators>(
    backend: &B,
    neighbors: Neighbors<'_, B>,
    round: u32,
    labels: &Array<B, u32>,
    next: &mut Array<B, u32>,
) -> Result<u64, Error> {
    let operands = PropagateOperands {
        neighbors,
        round,
        labels,
        next,
    };
    backend.propagate_labels(Checked::new(operands)?)
}

/// The community of each vertex.
#[derive(Debug)]
pub struct Communities<B: Storage> {
    /// Its label: the number of one of the vertices.
    pub labels: Array<B, u32>,
    /// Rounds that it took.
    pub rounds: u32,
}

/// Communities of `graph`, which is copied to the device for it: rounds of [`propagate_labels`] from a label of its own
/// for each vertex, until few change. Of a graph that is not symmetric, vertices listen to those that they aggregate
/// and to those that aggregate them, in turns.
///
/// # Errors
/// [`Error::Driver`] where there is not enough memory.
pub fn label_propagation<B: CommunityOperators>(
    backend: &B,
    graph: &Graph,
) -> Result<Communities<B>, Error> {
    label_propagation_of(backend, graph, &GraphRows::new(backend, graph.csr())?)
}

/// [`label_propagation`] of a graph whose rows are on the device already.
///
/// # Errors
/// Those of [`label_propagation`]; [`Error::Shape`] where `heard` has not the vertices or the edges of `graph`.
pub fn label_propagation_of<B: CommunityOperators>(
    backend: &B,
    graph: &Graph,
    heard: &GraphRows<B>,
) -> Result<Communities<B>, Error> {
    const NAME: &str = "label_propagation_of";
    Error::expect(NAME, "rows", graph.vertices(), heard.vertices())?;
    Error::expect(NAME, "edges", graph.edges(), heard.edges())?;
    let hearing = match graph.is_symmetric() {
        true => None,
        false => Some(GraphRows::new(backend, &graph.csr().transposed())?),
    };
    let vertices = graph.vertices();
    let first: Vec<u32> = (0..vertices as u32).collect();
    let mut labels = Array::from_slice(backend, &first, MemoryKind::Graph)?;
    let mut next = Array::uninit(backend, vertices, MemoryKind::Workspace)?;
    let mut rounds = 0;
    let mut before = vertices as u64;
    while rounds < MOST_ROUNDS {
        let rows = match &hearing {
            Some(hearing) if rounds % 2 == 1 => hearing,
            _ => heard,
        };
        let moved = propagate_labels(backend, rows.neighbors(), rounds, &labels, &mut next)?;
        std::mem::swap(&mut labels, &mut next);
        rounds += 1;
        if (before + moved) * MOVED_OF <= vertices as u64 {
            break;
        }
        before = moved;
    }
    Ok(Communities { labels, rounds })
}

impl<B: CommunityOperators> Communities<B> {
    /// The order in which communities lie one after the other, by label, and within one its vertices in theirs.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn order(&self, backend: &B) -> Result<Permutation, Error> {
        let vertices = self.labels.len();
        let uninit = || Array::uninit(backend, vertices, MemoryKind::Workspace);
        let (mut sorted, mut order) = (uninit()?, uninit()?);
        let bits = bits_below(vertices as u64);
        sort_pairs(backend, &self.labels, None, bits, &mut sorted, &mut order)?;
        Ok(Permutation::of_order(&order.to_vec(backend)?)?)
    }

    /// How many there are.
    ///
    /// # Errors
    /// Those of the device.
    pub fn count(&self, backend: &B) -> Result<usize, Error> {
        let labels = self.labels.to_vec(backend)?;
        let mut seen = vec![false; labels.len()];
        let new = |&label: &u32| !std::mem::replace(&mut seen[label as usize], true);
        Ok(labels.iter().copied().filter(new).count())
    }
}

/// Operands of [`propagate_labels`].
#[derive(Debug)]
pub struct PropagateOperands<'a, B: Storage> {
    /// Whose labels are looked at.
    pub neighbors: Neighbors<'a, B>,
    /// Which round, from 0 on.
    pub round: u32,
    /// The labels before.
    pub labels: &'a Array<B, u32>,
    /// Become the labels after it.
    pub next: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for PropagateOperands<'_, B> {
    const NAME: &'static str = "propagate_labels";

    fn check(&self) -> Result<(), Error> {
        let vertices = self.labels.len();
        let unsupported = |reason| Error::Unsupported {
            operator: Self::NAME,
            reason,
        };
        if self.neighbors.offsets.is_empty() {
            let reason = "no offsets; there is one more than vertices".into();
            return Err(unsupported(reason));
        }
        let rows = self.neighbors.offsets.len() - 1;
        Error::expect(Self::NAME, "labels", rows, vertices)?;
        Error::expect(Self::NAME, "next labels", vertices, self.next.len())?;
        if u32::try_from(vertices).is_err() {
            let reason = format!("{vertices} vertices; 2^32 - 1 are the most");
            return Err(unsupported(reason));
        }
        Ok(())
    }
}

/// Communities.
pub trait CommunityOperators: SortOperators {
    /// A round of label propagation: see [`propagate_labels`].
    ///
    /// # Errors
    /// Those of the device.
    fn propagate_labels(
        &self,
        operands: Checked<PropagateOperands<'_, Self>>,
    ) -> Result<u64, Error>;
}
