//! Neighbours of vertices, sampled at random.

use super::{Operator, Places, SamplingOperators};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Array;
use halfgnn_contract::sampling::{ALL_NEIGHBORS, sampled};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// How many neighbours of a vertex are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// All of them.
    All,
    /// At most this number, or all where there are fewer.
    AtMost(NonZeroU32),
}

impl Fanout {
    /// `count` neighbours.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 0, and for 2³² − 1, which is more than a row has.
    pub fn of(count: u32) -> Result<Self, Error> {
        NonZeroU32::new(count)
            .filter(|count| count.get() != ALL_NEIGHBORS)
            .map(Self::AtMost)
            .ok_or_else(|| Error::Unsupported {
                operator: "Fanout",
                reason: format!("a fanout of {count}; take 1 to 2^32 - 2, or all neighbours (-1)"),
            })
    }

    /// As kernels take it.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::All => ALL_NEIGHBORS,
            Self::AtMost(count) => count.get(),
        }
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("-1"),
            Self::AtMost(count) => count.fmt(f),
        }
    }
}

impl FromStr for Fanout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "a fanout is a number from 1 on, or -1 for all neighbours, and `{text}` is none"
            )
        };
        match text.trim() {
            "-1" => Ok(Self::All),
            number => number
                .parse()
                .ok()
                .and_then(|count| Self::of(count).ok())
                .ok_or_else(wrong),
        }
    }
}

/// How the neighbours of a layer are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NeighborPolicy {
    /// How many of each vertex.
    pub fanout: Fanout,
    /// Whether a neighbour may be sampled again; then [`Fanout::AtMost`] are sampled of every vertex that has any.
    pub replace: bool,
    /// Whether each vertex aggregates itself as well, which is not sampled: an edge before the others, as a model with
    /// self-loops needs it of a graph without.
    pub self_loops: bool,
}

impl NeighborPolicy {
    /// Whether a neighbour may be sampled again; all of a row are not sampled.
    pub(super) fn draws_again(self) -> bool {
        self.replace && self.fanout != Fanout::All
    }

    /// Edges that a row has at most, sampled of a graph whose longest row has that number.
    pub fn longest_row(self, of_graph: u32) -> u32 {
        sampled(of_graph, self.fanout.word(), self.replace).saturating_add(self.self_loops.into())
    }
}

/// Which random numbers are sampled. The same numbers of the same vertex are the same neighbours, on every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Draw {
    /// Of the run.
    pub seed: u64,
    /// Which batch.
    pub step: u32,
    /// Which layer of it.
    pub layer: u32,
}

/// Where the edges of each of `vertices` begin that [`sample_neighbors`] draws, and behind them how many there are. A
/// number that is no row of `graph` has none. Numbers of 32 bits wrap around.
///
/// # Errors
/// [`Error::Shape`] where `firsts` is not one longer than `vertices`, [`Error::Unsupported`] for 2³² − 1 vertices.
pub fn first_edges<B: SamplingOperators>(
    backend: &B,
    graph: &Adjacency<B>,
    policy: NeighborPolicy,
    vertices: &Array<B, u32>,
    firsts: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = FirstEdgesOperands {
        graph,
        policy,
        vertices,
        firsts,
    };
    backend.first_edges(Checked::new(operands)?)
}

/// Neighbours of each of `vertices`, sampled by `policy`, all sets of that size as likely: edge `k` is of vertex
/// `rows[k]` of the list from the vertex `neighbors[k]`. Those of vertex `i` begin at `firsts[i]`, as [`first_edges`]
/// reports; a vertex whose edges would lie past the memory for them is left out, and behind the last edge stands
/// [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX). Without replacement it is Floyd's algorithm (Bentley and
/// Floyd, "A sample of brilliance", CACM 1987).
///
/// # Errors
/// [`Error::Shape`] where lengths do not agree, [`Error::Unsupported`] for 2³² − 1 vertices.
pub fn sample_neighbors<B: SamplingOperators>(
    backend: &B,
    graph: &Adjacency<B>,
    (policy, draw): (NeighborPolicy, Draw),
    vertices: &Array<B, u32>,
    firsts: &Array<B, u32>,
    rows: &mut Array<B, u32>,
    neighbors: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = SampleNeighborsOperands {
        graph,
        policy,
        draw,
        vertices,
        firsts,
        steps: None,
        total: None,
        rows,
        neighbors,
        row_offsets: None,
        marks: None,
    };
    backend.sample_neighbors(Checked::new(operands)?)
}

/// Operands of [`first_edges`].
#[derive(Debug)]
pub struct FirstEdgesOperands<'a, B: Storage> {
    /// Whose rows list neighbours.
    pub graph: &'a Adjacency<B>,
    /// How they are sampled.
    pub policy: NeighborPolicy,
    /// Whose neighbours are sampled.
    pub vertices: &'a Array<B, u32>,
    /// Becomes the first edge of each, and the number of edges.
    pub firsts: &'a mut Array<B, u32>,
}

fn expect_countable(operator: &'static str, vertices: usize) -> Result<(), Error> {
    if u32::try_from(vertices).is_ok_and(|count| count != u32::MAX) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!(
            "{vertices} vertices; 2^32 - 2 are the most that 32-bit numbers tell apart"
        ),
    })
}

impl<B: Storage> Operator for FirstEdgesOperands<'_, B> {
    const NAME: &'static str = "first_edges";

    fn check(&self) -> Result<(), Error> {
        let vertices = self.vertices.len();
        expect_countable(Self::NAME, vertices)?;
        Error::expect(Self::NAME, "first edges", vertices + 1, self.firsts.len())
    }
}

/// A word of an array on the device that a number is reported in.
#[derive(Debug)]
pub struct Total<'a, B: Storage> {
    /// The array.
    pub words: &'a mut Array<B, u32>,
    /// Which of its words.
    pub at: usize,
}

impl<B: Storage> Total<'_, B> {
    /// That there is such a word.
    pub(super) fn check(of: &Option<Self>, operator: &'static str) -> Result<(), Error> {
        match of {
            Some(of) if of.at >= of.words.len() => {
                Error::expect(operator, "totals", of.at + 1, of.words.len())
            }
            _ => Ok(()),
        }
    }
}

/// Operands of [`sample_neighbors`].
#[derive(Debug)]
pub struct SampleNeighborsOperands<'a, B: Storage> {
    /// Whose rows list neighbours.
    pub graph: &'a Adjacency<B>,
    /// How they are sampled.
    pub policy: NeighborPolicy,
    /// Of which random numbers.
    pub draw: Draw,
    /// Whose neighbours are sampled.
    pub vertices: &'a Array<B, u32>,
    /// The first edge of each, and the number of edges.
    pub firsts: &'a Array<B, u32>,
    /// A number on the device that is added to the draw's step.
    pub steps: Option<&'a Array<B, u32>>,
    /// Where the number of edges is reported, memory for them or not.
    pub total: Option<Total<'a, B>>,
    /// Becomes the place in the list of the vertex of each edge.
    pub rows: &'a mut Array<B, u32>,
    /// Becomes the neighbour of each edge.
    pub neighbors: &'a mut Array<B, u32>,
    /// Becomes the first edge of each vertex, and the number of edges behind them, as far as memory is free.
    pub row_offsets: Option<&'a mut Array<B, u64>>,
    /// Where neighbours are marked that are not known.
    pub marks: Option<&'a mut Places<B>>,
}

impl<B: Storage> Operator for SampleNeighborsOperands<'_, B> {
    const NAME: &'static str = "sample_neighbors";

    fn check(&self) -> Result<(), Error> {
        let (vertices, edges) = (self.vertices.len(), self.rows.len());
        expect_countable(Self::NAME, vertices)?;
        Error::expect(Self::NAME, "first edges", vertices + 1, self.firsts.len())?;
        if let Some(steps) = self.steps {
            Error::expect(Self::NAME, "numbers of a step", 1, steps.len())?;
        }
        Total::check(&self.total, Self::NAME)?;
        if let Some(offsets) = &self.row_offsets {
            Error::expect(Self::NAME, "offsets of rows", vertices + 1, offsets.len())?;
        }
        if let Some(places) = &self.marks {
            let columns = self.graph.columns();
            Error::expect(
                Self::NAME,
                "places of vertices",
                columns,
                places.places.len(),
            )?;
        }
        Error::expect(Self::NAME, "neighbours", edges, self.neighbors.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_are_numbers_or_all() {
        assert_eq!("-1".parse(), Ok(Fanout::All));
        let five = Fanout::of(5).expect("a fanout");
        assert_eq!(" 5".parse(), Ok(five));
        assert_eq!(
            (five.to_string(), Fanout::All.to_string()),
            ("5".into(), "-1".into())
        );
        for wrong in ["", "0", "-2", "x", "4294967295", "1.5"] {
            let refused = wrong.parse::<Fanout>().expect_err(wrong);
            assert!(
                refused.ends_with(&format!("`{wrong}` is none")),
                "{refused}"
            );
        }
    }
}
