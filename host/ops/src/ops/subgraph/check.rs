//! What fits what.

use super::EdgeNorms;
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::{Draw, Operator, Places};
use crate::tensor::{Array, Element};
use halfgnn_contract::subgraph::{DRAWS, MOST_FRONTIER};

fn refuse(operator: &'static str, reason: String) -> Result<(), Error> {
    Err(Error::Unsupported { operator, reason })
}

fn expect_square<B: Storage>(operator: &'static str, graph: &Adjacency<B>) -> Result<(), Error> {
    Error::expect(
        operator,
        "columns of the graph",
        graph.rows(),
        graph.columns(),
    )
}

/// That this number of items is distinguished by 32 bits.
fn expect_countable(operator: &'static str, what: &str, count: usize) -> Result<(), Error> {
    if u32::try_from(count).is_ok_and(|count| count != u32::MAX) {
        return Ok(());
    }
    refuse(
        operator,
        format!("{count} {what}; 2^32 - 2 are the most that 32-bit numbers tell apart"),
    )
}

/// Operands of [`random_walks`](super::random_walks).
#[derive(Debug)]
pub struct RandomWalkOperands<'a, B: Storage> {
    /// What is walked on, from rows to columns.
    pub graph: &'a Adjacency<B>,
    /// Where walks begin; at ends of edges where absent.
    pub roots: Option<&'a Array<B, u32>>,
    /// Edges of a walk.
    pub length: u32,
    /// Of which random numbers.
    pub draw: Draw,
    /// Becomes the vertices of the walks.
    pub vertices: &'a mut Array<B, u32>,
}

impl<B: Storage> RandomWalkOperands<'_, B> {
    /// Walks that there is memory for.
    pub(super) fn walks(&self) -> usize {
        self.vertices.len() / (self.length as usize + 1)
    }
}

impl<B: Storage> Operator for RandomWalkOperands<'_, B> {
    const NAME: &'static str = "random_walks";

    fn check(&self) -> Result<(), Error> {
        expect_square(Self::NAME, self.graph)?;
        let (walks, length) = (self.walks(), self.length as usize + 1);
        let whole = walks * length;
        Error::expect(
            Self::NAME,
            "vertices of whole walks",
            whole,
            self.vertices.len(),
        )?;
        expect_countable(Self::NAME, "walks", walks)?;
        match self.roots {
            Some(roots) if roots.is_empty() => refuse(
                Self::NAME,
                "no vertex to begin at; name one at least".into(),
            ),
            Some(roots) => expect_countable(Self::NAME, "roots", roots.len()),
            None if self.graph.edges() == 0 => refuse(
                Self::NAME,
                "no edge to begin at; take a graph that has one, or name roots".into(),
            ),
            None => Ok(()),
        }
    }
}

/// Operands of [`frontier_walk`](super::frontier_walk).
#[derive(Debug)]
pub struct FrontierWalkOperands<'a, B: Storage> {
    /// What is walked on, from rows to columns.
    pub graph: &'a Adjacency<B>,
    /// Where the frontier may begin.
    pub roots: &'a Array<B, u32>,
    /// Vertices of it.
    pub frontier: u32,
    /// Of which random numbers.
    pub draw: Draw,
    /// Becomes the vertices that it came to.
    pub vertices: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for FrontierWalkOperands<'_, B> {
    const NAME: &'static str = "frontier_walk";

    fn check(&self) -> Result<(), Error> {
        expect_square(Self::NAME, self.graph)?;
        expect_countable(Self::NAME, "vertices", self.vertices.len())?;
        expect_countable(Self::NAME, "roots", self.roots.len())?;
        let (frontier, room) = (self.frontier, self.vertices.len());
        if self.roots.is_empty() {
            return refuse(
                Self::NAME,
                "no vertex to begin at; name one at least".into(),
            );
        }
        if frontier == 0 || frontier > MOST_FRONTIER || frontier as usize > room {
            return refuse(
                Self::NAME,
                format!(
                    "a frontier of {frontier} vertices in a walk of {room}; take 1 to {MOST_FRONTIER}, and no more than the walk has"
                ),
            );
        }
        Ok(())
    }
}

/// Operands of [`SubgraphOperators::count_within`](super::SubgraphOperators::count_within).
#[derive(Debug)]
pub struct WithinOperands<'a, B: Storage> {
    /// Whose edges they are.
    pub graph: &'a Adjacency<B>,
    /// Which vertices are known.
    pub places: &'a Places<B>,
    /// Whose rows are looked at.
    pub vertices: &'a Array<B, u32>,
    /// Becomes the number of each one's edges.
    pub counts: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for WithinOperands<'_, B> {
    const NAME: &'static str = "count_within";

    fn check(&self) -> Result<(), Error> {
        expect_places(Self::NAME, self.graph, self.places.places.len())?;
        expect_countable(Self::NAME, "vertices", self.vertices.len())?;
        let vertices = self.vertices.len();
        Error::expect(Self::NAME, "counts", vertices + 1, self.counts.len())
    }
}

/// That there is a place for each row and each column.
fn expect_places<B: Storage>(
    operator: &'static str,
    graph: &Adjacency<B>,
    places: usize,
) -> Result<(), Error> {
    Error::expect(operator, "rows of the graph", places, graph.rows())?;
    expect_square(operator, graph)
}

/// Operands of [`SubgraphOperators::take_within`](super::SubgraphOperators::take_within).
#[derive(Debug)]
pub struct TakeEdgesOperands<'a, B: Storage> {
    /// Whose edges they are.
    pub graph: &'a Adjacency<B>,
    /// The places of vertices that are known.
    pub places: &'a Places<B>,
    /// Whose rows are taken.
    pub vertices: &'a Array<B, u32>,
    /// The first edge of each, and the number of edges.
    pub firsts: &'a Array<B, u32>,
    /// Becomes the place in the list of each edge's row.
    pub rows: &'a mut Array<B, u32>,
    /// Becomes the place of each edge's column.
    pub neighbors: &'a mut Array<B, u32>,
    /// Becomes the number of each edge in the graph.
    pub edges: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for TakeEdgesOperands<'_, B> {
    const NAME: &'static str = "take_within";

    fn check(&self) -> Result<(), Error> {
        expect_places(Self::NAME, self.graph, self.places.places.len())?;
        expect_countable(Self::NAME, "vertices", self.vertices.len())?;
        expect_countable(Self::NAME, "edges of the graph", self.graph.edges())?;
        let (vertices, edges) = (self.vertices.len(), self.rows.len());
        Error::expect(Self::NAME, "first edges", vertices + 1, self.firsts.len())?;
        Error::expect(Self::NAME, "neighbours", edges, self.neighbors.len())?;
        Error::expect(Self::NAME, "numbers of edges", edges, self.edges.len())
    }
}

/// Operands of [`mark_draw`](super::mark_draw).
#[derive(Debug)]
pub struct MarkDrawOperands<'a, B: Storage> {
    /// The draws that each vertex is in, a bit each.
    pub members: &'a mut Array<B, u32>,
    /// Those of the draw.
    pub vertices: &'a Array<B, u32>,
    /// Its bit.
    pub draw: u32,
}

impl<B: Storage> Operator for MarkDrawOperands<'_, B> {
    const NAME: &'static str = "mark_draw";

    fn check(&self) -> Result<(), Error> {
        match self.draw < DRAWS {
            true => Ok(()),
            false => refuse(
                Self::NAME,
                format!("draw {} of {DRAWS} that a word has bits for", self.draw),
            ),
        }
    }
}

/// Operands of [`size_draws`](super::size_draws).
#[derive(Debug)]
pub struct SizeDrawsOperands<'a, B: Storage> {
    /// The draws that each vertex is in, a bit each.
    pub members: &'a Array<B, u32>,
    /// Are added to, one for each draw.
    pub sizes: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for SizeDrawsOperands<'_, B> {
    const NAME: &'static str = "size_draws";

    fn check(&self) -> Result<(), Error> {
        Error::expect(Self::NAME, "sizes", DRAWS as usize, self.sizes.len())
    }
}

/// Operands of [`tally_draws`](super::tally_draws).
#[derive(Debug)]
pub struct TallyDrawsOperands<'a, B: Storage> {
    /// Whose edges they are.
    pub graph: &'a Adjacency<B>,
    /// The draws that each vertex is in, a bit each.
    pub members: &'a Array<B, u32>,
    /// The bits of those that are counted.
    pub draws: u32,
    /// Are added to, one for each vertex.
    pub vertex_counts: &'a mut Array<B, u32>,
    /// Are added to, one for each edge.
    pub edge_counts: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for TallyDrawsOperands<'_, B> {
    const NAME: &'static str = "tally_draws";

    fn check(&self) -> Result<(), Error> {
        let (vertices, edges) = (self.graph.rows(), self.graph.edges());
        expect_square(Self::NAME, self.graph)?;
        Error::expect(Self::NAME, "members", vertices, self.members.len())?;
        let counts = self.vertex_counts.len();
        Error::expect(Self::NAME, "counts of vertices", vertices, counts)?;
        Error::expect(Self::NAME, "counts of edges", edges, self.edge_counts.len())
    }
}

impl<B: Storage> Operator for EdgeNorms<'_, B> {
    const NAME: &'static str = "edge_norms";

    fn check(&self) -> Result<(), Error> {
        let (vertices, edges) = (self.graph.rows(), self.graph.edges());
        let expect = |what, wanted, is| Error::expect(Self::NAME, what, wanted, is);
        expect_square(Self::NAME, self.graph)?;
        expect("counts of vertices", vertices, self.vertex_counts.len())?;
        expect("counts of edges", edges, self.edge_counts.len())?;
        let weights = self.weights.map_or(edges, Array::len);
        expect("edge weights", edges, weights)?;
        for factors in self.sides.iter().flatten() {
            expect("factors of rows and of columns", vertices, factors.len())?;
        }
        Ok(())
    }
}

/// Operands of [`edge_norms`](super::edge_norms).
#[derive(Debug)]
pub struct EdgeNormOperands<'a, B: Storage, E: Element> {
    /// What they are made of.
    pub norms: EdgeNorms<'a, B>,
    /// What all are divided by.
    pub scale: f32,
    /// Become these, one for each edge.
    pub values: &'a mut Array<B, E>,
}

impl<B: Storage, E: Element> Operator for EdgeNormOperands<'_, B, E> {
    const NAME: &'static str = EdgeNorms::<B>::NAME;

    fn check(&self) -> Result<(), Error> {
        self.norms.check()?;
        let edges = self.norms.graph.edges();
        Error::expect(Self::NAME, "values", edges, self.values.len())?;
        match self.scale > 0.0 && self.scale.is_finite() {
            true => Ok(()),
            false => refuse(
                Self::NAME,
                format!("a scale of {}; take a positive number", self.scale),
            ),
        }
    }
}
