//! The owner of each vertex.

use crate::graph::{Graph, reorder};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::BufRead;
use std::path::Path;

/// An assignment of vertices to ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    owners: Vec<u32>,
    ranks: usize,
}

/// Why a partition is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// There are no ranks.
    #[error("a graph is dealt out to 1 rank at least")]
    NoRanks,
    /// The graph has another number of vertices.
    #[error(
        "the partition is of {parts} vertices, and the graph has {vertices}: give the one that was made of this graph"
    )]
    Vertices {
        /// Vertices of the partition.
        parts: usize,
        /// Vertices of the graph.
        vertices: usize,
    },
    /// A part has no rank.
    #[error(
        "vertex {vertex} is in part {part}, and there are {ranks} ranks, from 0 on; cut the graph into {ranks} parts"
    )]
    Part {
        /// The vertex.
        vertex: usize,
        /// Its part.
        part: u64,
        /// The number of ranks.
        ranks: usize,
    },
    /// A line is not a number.
    #[error(
        "{path}, line {line}: {text:?} is no part; a file of parts has a number from 0 on in each line, one a vertex"
    )]
    Line {
        /// The file.
        path: String,
        /// The line, from 1 on.
        line: usize,
        /// Its text.
        text: String,
    },
    /// A file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The system's message.
        reason: String,
    },
}

/// How evenly a partition splits a graph, and how many rows ranks exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// Vertices of each rank.
    pub vertices: Vec<usize>,
    /// Edges that lead to them, for each rank.
    pub edges: Vec<usize>,
    /// Halo vertices of each rank, which are the rows that it receives.
    pub halo: Vec<usize>,
    /// Rows that each rank sends: own vertices, each counted once for each other rank that reads it.
    pub sent: Vec<usize>,
}

impl Balance {
    /// The largest number of edges of a rank, over the mean; 1 for a graph without edges.
    pub fn imbalance(&self) -> f64 {
        let all: usize = self.edges.iter().sum();
        let most = self.edges.iter().max().copied().unwrap_or(0);
        match all {
            0 => 1.0,
            all => most as f64 * self.edges.len() as f64 / all as f64,
        }
    }
}

impl Partition {
    /// Assigns vertices in descending order of their degrees, each to the rank with the fewest edges that is below its
    /// share of the vertices. Hubs are on different ranks. Ranks have nearly equal numbers of edges, and at most an
    /// even share of the vertices, rounded up.
    ///
    /// # Errors
    /// [`PartitionError::NoRanks`].
    pub fn by_degree(graph: &Graph, ranks: usize) -> Result<Self, PartitionError> {
        Self::of_degrees(&graph.in_degrees(), ranks)
    }

    /// [`Partition::by_degree`] from the degrees of the vertices alone.
    ///
    /// # Errors
    /// [`PartitionError::NoRanks`].
    pub fn of_degrees(degrees: &[u32], ranks: usize) -> Result<Self, PartitionError> {
        let count = Self::check_ranks(ranks)?;
        let order = reorder::degree_order(degrees);
        let share = degrees.len().div_ceil(ranks);
        let (mut owners, mut held) = (vec![0; order.len()], vec![0; ranks]);
        let mut fewest: BinaryHeap<_> = (0..count).map(|rank| Reverse((0_u64, rank))).collect();
        for vertex in order {
            let Some(Reverse((edges, rank))) = fewest.pop() else {
                unreachable!("all shares together are all vertices");
            };
            owners[vertex as usize] = rank;
            held[rank as usize] += 1;
            if held[rank as usize] < share {
                let degree = u64::from(degrees[vertex as usize]);
                fewest.push(Reverse((edges + degree, rank)));
            }
        }
        Ok(Self { owners, ranks })
    }

    /// Renumbers the parts, for vertices with these degrees. Consecutive ranges of parts then have nearly equal numbers
    /// of edges, however many ranges there are. By degree the hubs are in the first parts. Here each heavier part is as
    /// far as possible from those before it, in the order of van der Corput's sequence.
    #[must_use]
    pub fn spread(mut self, degrees: &[u32]) -> Self {
        let mut edges = vec![0_u64; self.ranks];
        for (&owner, &degree) in self.owners.iter().zip(degrees) {
            edges[owner as usize] += u64::from(degree);
        }
        let mut heaviest: Vec<u32> = (0..self.ranks as u32).collect();
        heaviest.sort_by_key(|&part| Reverse(edges[part as usize]));
        let mut places: Vec<u32> = (0..self.ranks as u32).collect();
        places.sort_by_key(|place| place.reverse_bits());
        let mut renamed = vec![0; self.ranks];
        for (&part, &place) in heaviest.iter().zip(&places) {
            renamed[part as usize] = place;
        }
        for owner in &mut self.owners {
            *owner = renamed[*owner as usize];
        }
        self
    }

    /// Communities by [Louvain's method](reorder::louvain), laid out one after the other. They are cut where each rank
    /// has its share of the edges. Ranks have smaller halos than by degree, and less even shares.
    ///
    /// # Errors
    /// [`PartitionError::NoRanks`].
    pub fn louvain(graph: &Graph, ranks: usize) -> Result<Self, PartitionError> {
        let last = Self::check_ranks(ranks)? - 1;
        let places = reorder::louvain(graph);
        let vertices = graph.vertices();
        let mut order = vec![0_u32; vertices];
        for vertex in 0..vertices as u32 {
            order[places.rename(vertex) as usize] = vertex;
        }
        let degrees = graph.in_degrees();
        // A vertex without edges has a weight as well.
        let weight = |vertex: u32| u64::from(degrees[vertex as usize]) + 1;
        let all = (graph.edges() + vertices).max(1) as u128;
        let (mut owners, mut before) = (vec![0; vertices], 0_u64);
        for vertex in order {
            let middle = u128::from(before) + u128::from(weight(vertex) / 2);
            let rank = (middle * ranks as u128 / all) as u32;
            owners[vertex as usize] = rank.min(last);
            before += weight(vertex);
        }
        Ok(Self { owners, ranks })
    }

    /// A partition from the part of each vertex, as METIS and KaHIP output it.
    ///
    /// # Errors
    /// [`PartitionError::NoRanks`], [`PartitionError::Part`].
    pub fn from_parts(parts: Vec<u32>, ranks: usize) -> Result<Self, PartitionError> {
        Self::check_ranks(ranks)?;
        match parts.iter().position(|&part| part as usize >= ranks) {
            Some(vertex) => Err(PartitionError::Part {
                vertex,
                part: parts[vertex].into(),
                ranks,
            }),
            None => Ok(Self {
                owners: parts,
                ranks,
            }),
        }
    }

    /// Reads a file of parts, which has one number on a line for each vertex.
    ///
    /// # Errors
    /// [`PartitionError::File`], [`PartitionError::Line`], and those of [`Partition::from_parts`].
    pub fn read(path: &Path, ranks: usize) -> Result<Self, PartitionError> {
        let file = |error: std::io::Error| PartitionError::File {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let lines = std::io::BufReader::new(std::fs::File::open(path).map_err(file)?).lines();
        let mut parts = Vec::new();
        for (number, line) in lines.enumerate() {
            let line = line.map_err(file)?;
            let part = line.trim().parse::<u32>();
            parts.push(part.map_err(|_| PartitionError::Line {
                path: path.display().to_string(),
                line: number + 1,
                // Enough to recognise a file of another kind.
                text: line.chars().take(40).collect(),
            })?);
        }
        Self::from_parts(parts, ranks)
    }

    /// The partition that a user names: `degree`, `louvain`, or a file of parts.
    ///
    /// # Errors
    /// Those of [`Partition::by_degree`], [`Partition::louvain`] and [`Partition::read`].
    pub fn by_name(name: &Path, graph: &Graph, ranks: usize) -> Result<Self, PartitionError> {
        match name.to_str() {
            Some("degree") => Self::by_degree(graph, ranks),
            Some("louvain") => Self::louvain(graph, ranks),
            _ => Self::read(name, ranks),
        }
    }

    fn check_ranks(ranks: usize) -> Result<u32, PartitionError> {
        match u32::try_from(ranks) {
            Ok(some) if some > 0 => Ok(some),
            _ => Err(PartitionError::NoRanks),
        }
    }

    /// Checks that it has the vertices of `graph`.
    ///
    /// # Errors
    /// [`PartitionError::Vertices`].
    pub fn check(&self, graph: &Graph) -> Result<(), PartitionError> {
        let (parts, vertices) = (self.owners.len(), graph.vertices());
        match parts == vertices {
            true => Ok(()),
            false => Err(PartitionError::Vertices { parts, vertices }),
        }
    }

    /// The rank of each vertex.
    pub fn owners(&self) -> &[u32] {
        &self.owners
    }

    /// The number of ranks; some may have no vertex.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The vertices of a rank, in their order.
    pub fn vertices(&self, rank: usize) -> Vec<u32> {
        let owners = self.owners.iter().enumerate();
        owners
            .filter(|(_, owner)| **owner as usize == rank)
            .map(|(vertex, _)| vertex as u32)
            .collect()
    }

    /// How it splits a graph, counted edge by edge.
    ///
    /// # Errors
    /// [`PartitionError::Vertices`].
    pub fn balance(&self, graph: &Graph) -> Result<Balance, PartitionError> {
        self.check(graph)?;
        let mut balance = Balance {
            vertices: vec![0; self.ranks],
            edges: vec![0; self.ranks],
            halo: vec![0; self.ranks],
            sent: vec![0; self.ranks],
        };
        for (vertex, &owner) in self.owners.iter().enumerate() {
            balance.vertices[owner as usize] += 1;
            balance.edges[owner as usize] += graph.csr().row(vertex).len();
        }
        // The rows of a vertex' column are its out-neighbours.
        let heard = graph.transposed();
        let mut last_heard_by = vec![usize::MAX; self.ranks];
        for (vertex, &owner) in self.owners.iter().enumerate() {
            for &row in heard.row(vertex) {
                let rank = self.owners[row as usize] as usize;
                if rank != owner as usize && last_heard_by[rank] != vertex {
                    last_heard_by[rank] = vertex;
                    balance.halo[rank] += 1;
                    balance.sent[owner as usize] += 1;
                }
            }
        }
        Ok(balance)
    }
}
