//! The vertices of a batch, and the place of each.

use super::{
    Draw, NeighborPolicy, Operator, SampleNeighborsOperands, SamplingOperators, Total, first_edges,
};
use crate::backend::{Adjacency, Block, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{Checked, ConstructOperators, GroupRoom, SortOperators};
use crate::tensor::Array;
use bytemuck::Pod;
use halfgnn_contract::sampling::mark_words;

/// Where the vertices of a batch are distinguished: a bit and a place for each vertex of the graph, from which a batch
/// takes as many as it meets. It takes 4 bytes a vertex, and three eighths.
#[derive(Debug)]
pub struct Places<B: Storage> {
    vertices: usize,
    /// Of the vertices that are known.
    pub(crate) places: Array<B, u32>,
    pub(crate) known: Array<B, u32>,
    /// Words of those that were met and are not known, each with how many are in the words before; and behind them one
    /// without any.
    pub(crate) marks: Array<B, [u32; 2]>,
}

impl<B: SamplingOperators + ConstructOperators + SortOperators> Places<B> {
    /// Of a graph of a number of vertices, none of which is known.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than 2³² − 2 vertices, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, vertices: usize) -> Result<Self, Error> {
        if u32::try_from(vertices).is_ok_and(|count| count < u32::MAX) {
            let words = mark_words(vertices as u64) as usize;
            let zeros = |len| Array::zeros(backend, len, MemoryKind::Graph);
            return Ok(Self {
                vertices,
                places: zeros(vertices)?,
                known: zeros(words)?,
                marks: Array::zeros(backend, words + 1, MemoryKind::Graph)?,
            });
        }
        Err(Error::Unsupported {
            operator: "Places",
            reason: format!(
                "{vertices} vertices; 2^32 - 2 are the most that 32-bit numbers tell apart"
            ),
        })
    }

    /// Vertices of the graph.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// Forgets what was known, and gives `seeds` the places from 0 on.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where one is no vertex or stands there twice.
    pub fn begin(&mut self, backend: &B, seeds: &[u32]) -> Result<Array<B, u32>, Error> {
        let refuse = |reason| {
            Err(Error::Unsupported {
                operator: "Places",
                reason,
            })
        };
        let mut sorted = seeds.to_vec();
        sorted.sort_unstable();
        if let Some(&vertex) = sorted
            .last()
            .filter(|&&last| last as usize >= self.vertices)
        {
            let vertices = self.vertices;
            return refuse(format!(
                "vertex {vertex} is asked for, and there are {vertices}"
            ));
        }
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!(
                "vertex {} is asked for twice; list each once",
                twice[0]
            ));
        }
        let seeds = Array::from_slice(backend, seeds, MemoryKind::Graph)?;
        self.begin_at(backend, &seeds)?;
        Ok(seeds)
    }

    /// [`Places::begin`] of seeds on the device, which are different; numbers that are no vertices are passed over.
    ///
    /// # Errors
    /// Those of the device.
    pub fn begin_at(&mut self, backend: &B, seeds: &Array<B, u32>) -> Result<(), Error> {
        backend.clear(&self.known.buffer)?;
        backend.place_vertices(Checked::new(PlaceVerticesOperands {
            places: self,
            vertices: seeds,
        })?)
    }

    /// Forgets what was known, and gives each of `vertices` a place in the order of their numbers, however often it
    /// stands there. Numbers that are no vertices are passed over.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn distinct(
        &mut self,
        backend: &B,
        vertices: &Array<B, u32>,
    ) -> Result<Array<B, u32>, Error> {
        backend.clear(&self.known.buffer)?;
        backend.mark_vertices(Checked::new(MarkVerticesOperands {
            places: self,
            vertices,
        })?)?;
        let none = Array::uninit(backend, 0, MemoryKind::Workspace)?;
        self.place_met(backend, &none)
    }

    /// A layer of a batch: of each of `destinations`, which are all that is known, in the order of their places, the
    /// neighbours that are sampled; and its sources, the destinations first and then those that were met, by their
    /// numbers.
    ///
    /// Two sizes are read from the device: edges, and vertices that were met. The transpose is made when it is first
    /// asked for.
    ///
    /// # Errors
    /// [`Error::Shape`] where the graph has not a row and a column a vertex, [`Error::Driver`] where there is not
    /// enough memory.
    pub fn hop(
        &mut self,
        backend: &B,
        graph: &Adjacency<B>,
        (policy, draw): (NeighborPolicy, Draw),
        destinations: &Array<B, u32>,
    ) -> Result<(Block<B>, Array<B, u32>), Error> {
        const NAME: &str = "Places::hop";
        Error::expect(NAME, "rows of the graph", self.vertices, graph.rows())?;
        Error::expect(NAME, "columns of the graph", self.vertices, graph.columns())?;
        let [rows, mut neighbors] = self.meet(backend, graph, (policy, draw), destinations)?;
        let sources = self.place_met(backend, destinations)?;
        self.relabel(backend, &mut neighbors)?;
        let shape = (destinations.len(), sources.len());
        let longest = policy.longest_row(graph.longest_row());
        let forward = Adjacency::of_drawn(backend, shape, rows, neighbors, longest)?;
        Ok((Block::of_forward(forward), sources))
    }

    /// Samples in-neighbors of `destinations`, which are rows of `graph`, and marks those that are not known. The graph
    /// leads from the vertices of these places; its rows may be other vertices.
    ///
    /// The result is the row of each sampled edge, counted from 0 within `destinations`, and its neighbor.
    ///
    /// # Errors
    /// [`Error::Shape`] where the graph has not a column a vertex, [`Error::Driver`] where there is not enough memory.
    pub fn meet(
        &mut self,
        backend: &B,
        graph: &Adjacency<B>,
        (policy, draw): (NeighborPolicy, Draw),
        destinations: &Array<B, u32>,
    ) -> Result<[Array<B, u32>; 2], Error> {
        const NAME: &str = "Places::meet";
        Error::expect(NAME, "columns of the graph", self.vertices, graph.columns())?;
        let count = destinations.len();
        let made = |len| Array::uninit(backend, len, MemoryKind::Graph);
        let mut firsts = Array::uninit(backend, count + 1, MemoryKind::Workspace)?;
        first_edges(backend, graph, policy, destinations, &mut firsts)?;
        let edges = item(backend, &firsts, count)? as usize;
        let (mut rows, mut neighbors) = (made(edges)?, made(edges)?);
        backend.sample_neighbors(Checked::new(SampleNeighborsOperands {
            graph,
            policy,
            draw,
            vertices: destinations,
            firsts: &firsts,
            steps: None,
            total: None,
            rows: &mut rows,
            neighbors: &mut neighbors,
            row_offsets: None,
            marks: Some(self),
        })?)?;
        Ok([rows, neighbors])
    }

    /// Gives the vertices that are marked the places behind those of `known`, which is all that is known. The result
    /// is `known` and then those vertices, by their numbers.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn place_met(
        &mut self,
        backend: &B,
        known: &Array<B, u32>,
    ) -> Result<Array<B, u32>, Error> {
        let met = self.met(backend)?;
        let mut all = Array::uninit(backend, known.len() + met, MemoryKind::Graph)?;
        backend.place_marked(Checked::new(PlaceMarkedOperands {
            places: self,
            destinations: known,
            sources: &mut all,
            total: None,
        })?)?;
        Ok(all)
    }

    /// Turns vertices that are known into their places.
    ///
    /// # Errors
    /// Those of the device.
    pub fn relabel(&self, backend: &B, vertices: &mut Array<B, u32>) -> Result<(), Error> {
        backend.relabel(Checked::new(RelabelOperands {
            places: self,
            vertices,
            counted: None,
        })?)
    }

    /// How many vertices are marked, which is waited for; and how many before each word.
    fn met(&mut self, backend: &B) -> Result<usize, Error> {
        backend.rank_marked(self)?;
        let [_, met] = item(backend, &self.marks, self.marks.len() - 1)?;
        Ok(met as usize)
    }
}

/// An item of the device, which is waited for.
fn item<B: Storage, T: Pod + Send + Sync>(
    backend: &B,
    items: &Array<B, T>,
    at: usize,
) -> Result<T, Error> {
    let mut read = [T::zeroed()];
    backend.download_at(&items.buffer, at, &mut read)?;
    Ok(read[0])
}

/// Operands of [`SamplingOperators::place_vertices`].
#[derive(Debug)]
pub struct PlaceVerticesOperands<'a, B: Storage> {
    /// What is known.
    pub places: &'a mut Places<B>,
    /// Get the places from 0 on.
    pub vertices: &'a Array<B, u32>,
}

impl<B: Storage> Operator for PlaceVerticesOperands<'_, B> {
    const NAME: &'static str = "place_vertices";

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Operands of [`SamplingOperators::mark_vertices`].
#[derive(Debug)]
pub struct MarkVerticesOperands<'a, B: Storage> {
    /// What is known.
    pub places: &'a mut Places<B>,
    /// Are marked where they are not known.
    pub vertices: &'a Array<B, u32>,
}

impl<B: Storage> Operator for MarkVerticesOperands<'_, B> {
    const NAME: &'static str = "mark_vertices";

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Operands of [`SamplingOperators::place_marked`].
#[derive(Debug)]
pub struct PlaceMarkedOperands<'a, B: Storage> {
    /// What is known and what is marked.
    pub places: &'a mut Places<B>,
    /// All that is known, in the order of the places.
    pub destinations: &'a Array<B, u32>,
    /// Becomes the destinations and those that are marked, and [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX)
    /// behind them.
    pub sources: &'a mut Array<B, u32>,
    /// Where the number of those that are marked is reported, memory for them or not.
    pub total: Option<Total<'a, B>>,
}

impl<B: Storage> Operator for PlaceMarkedOperands<'_, B> {
    const NAME: &'static str = "place_marked";

    fn check(&self) -> Result<(), Error> {
        Total::check(&self.total, Self::NAME)?;
        if self.sources.len() >= self.destinations.len() {
            return Ok(());
        }
        let least = self.destinations.len();
        Error::expect(Self::NAME, "sources", least, self.sources.len())
    }
}

/// Operands of [`SamplingOperators::relabel`].
#[derive(Debug)]
pub struct RelabelOperands<'a, B: Storage> {
    /// What is known.
    pub places: &'a Places<B>,
    /// Become their places.
    pub vertices: &'a mut Array<B, u32>,
    /// Where the places are counted, for a [`group_pairs`](crate::ops::group_pairs) of them.
    pub counted: Option<&'a mut GroupRoom<B>>,
}

impl<B: Storage> Operator for RelabelOperands<'_, B> {
    const NAME: &'static str = "relabel";

    fn check(&self) -> Result<(), Error> {
        match &self.counted {
            Some(room) => Error::expect(Self::NAME, "slots", self.vertices.len(), room.slots.len()),
            None => Ok(()),
        }
    }
}
