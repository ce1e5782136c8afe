//! A graph that ranks build together. Each has some of its edges, in any order, and none ever has all.
//!
//! ```text
//!  edges of each rank ─ count ─► degrees, summed over ranks ─► Partition
//!          └──── to the owner of their row, by exchange ─ sort ─► rows of the own vertices
//! ```

use super::{Group, Partition, PartitionError};
use crate::data::parts::{PartRows, VertexTable};
use crate::error::Error;
use crate::graph::{Csr, GraphError, index, parallel};
use std::sync::atomic::{AtomicU32, Ordering};

/// Edges that a thread partitions at a time.
const CHUNK: usize = 1 << 20;

/// A rank's part of a graph that was partitioned by degree, and what each rank knows of all vertices. It is the input
/// of [`ModelConfig::prepare_rows`](crate::nn::ModelConfig::prepare_rows).
#[derive(Clone, Debug, PartialEq)]
pub struct DealtEdges {
    /// Rows of the own vertices.
    pub rows: PartRows,
    /// Degrees and owners of all vertices.
    pub table: VertexTable,
    /// The partition, which is that of [`Partition::by_degree`] for the whole graph.
    pub partition: Partition,
}

/// Some of a graph's edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SomeEdges {
    /// Vertices of the whole graph.
    pub vertices: usize,
    /// The edges, each as (row, column).
    pub edges: Vec<[u32; 2]>,
    /// Whether each edge stands for its reverse as well.
    pub undirected: bool,
}

impl SomeEdges {
    /// Partitions the graph by degree over the ranks of `group`. All ranks call this at once, each with edges of its
    /// own of the same graph; every edge of the graph is on one rank. With `with_loops`, each vertex without a
    /// self-loop counts one more, as for a model that adds self-loops.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`], [`GraphError::TooManyEdges`] for all ranks together, and those of
    /// [`Communicator::exchange`](super::Communicator::exchange).
    pub fn deal(&self, group: &Group, with_loops: bool) -> Result<DealtEdges, Error> {
        let (rank, ranks) = (group.rank(), group.ranks());
        self.check(group)?;
        let in_degrees = sum(group, "degrees", self.counts(0))?;
        let out_degrees = match self.undirected {
            true => in_degrees.clone(),
            false => sum(group, "degrees", self.counts(1))?,
        };
        let loops = self.edges.iter().filter(|[row, column]| row == column);
        let loops: Vec<u32> = loops.map(|&[row, _]| row).collect();
        let counts = group.gather("self-loops", &[loops.len() as u64])?;
        let counts: Vec<usize> = counts.iter().map(|of| of[0] as usize).collect();
        let loops = group.gather_of("self-loops", &loops, &counts)?.concat();

        let mut degrees = in_degrees.clone();
        if with_loops {
            degrees.iter_mut().for_each(|degree| *degree += 1);
            let mut looped = loops.clone();
            looped.sort_unstable();
            looped.dedup();
            looped.iter().for_each(|&of| degrees[of as usize] -= 1);
        }
        let refuse = |problem: PartitionError| Error::Unsupported {
            operator: "SomeEdges::deal",
            reason: problem.to_string(),
        };
        let partition = Partition::of_degrees(&degrees, ranks).map_err(refuse)?;
        drop(degrees);

        let vertices = self.vertices;
        let mut sends = self.dealt(&partition);
        let own = std::mem::take(&mut sends[rank]);
        let asked: Vec<u64> = sends.iter().map(|of| of[0].len() as u64).collect();
        let given = group.gather("edges of each rank", &asked)?;
        let given: Vec<usize> = given.iter().map(|by| by[rank] as usize).collect();
        let mut ends = own;
        let (rows, columns) = sends.into_iter().map(<(_, _)>::from).unzip();
        let sends: [Vec<Vec<u32>>; 2] = [rows, columns];
        for (ends, sends) in ends.iter_mut().zip(sends) {
            ends.reserve_exact(given.iter().sum());
            for of_rank in group.exchange("edges", &sends, &given)? {
                ends.extend(of_rank);
            }
        }
        let [rows, columns] = ends;
        let own = partition.vertices(rank);
        let csr = Csr::rectangular_from_edges((own.len(), vertices), &rows, &columns)?;
        drop((rows, columns));
        let (offsets, columns) = csr.into_offsets();
        let owners = partition.owners().to_vec();
        let mutual = self.undirected.then_some(true);
        Ok(DealtEdges {
            rows: PartRows::of_edges(own, offsets, columns),
            table: VertexTable::of_degrees(owners, [in_degrees, out_degrees], &loops, mutual),
            partition,
        })
    }

    /// Checks that all ends are vertices, and that all ranks together do not have too many edges. Then no degree
    /// overflows.
    fn check(&self, group: &Group) -> Result<(), Error> {
        let vertices = self.vertices as u64;
        let outside = parallel::position_first(&self.edges, |ends| {
            ends.iter().any(|&end| u64::from(end) >= vertices)
        });
        let directions = if self.undirected { 2 } else { 1 };
        let own = [
            directions * self.edges.len() as u64,
            outside.map_or(0, |at| at as u64 + 1),
        ];
        let all = group.gather("edges", &own)?;
        if let Some(at) = outside {
            let [row, column] = self.edges[at];
            return Err(Error::from(GraphError::VertexOutOfRange {
                field: "edges",
                index: at as u64,
                value: row.max(column).into(),
                vertices,
            }));
        }
        if let Some(other) = all.iter().position(|of| of[1] > 0) {
            return Err(Error::Communication(format!(
                "rank {other} has an edge of no vertex; give all ranks edges of one graph"
            )));
        }
        let edges = all.iter().fold(0_u64, |sum, of| sum.saturating_add(of[0]));
        match edges > index::MAX_EDGES {
            true => Err(GraphError::TooManyEdges { edges }.into()),
            false => Ok(()),
        }
    }

    /// How often each vertex is a row (`end` 0) or a column (`end` 1) of these edges.
    fn counts(&self, end: usize) -> Vec<u32> {
        let counts: Vec<AtomicU32> = (0..self.vertices).map(|_| AtomicU32::new(0)).collect();
        let count = |vertex: u32| counts[vertex as usize].fetch_add(1, Ordering::Relaxed);
        parallel::for_each(&self.edges[..], |_, edge| {
            count(edge[end]);
            if self.undirected {
                count(edge[1 - end]);
            }
        });
        counts.into_iter().map(AtomicU32::into_inner).collect()
    }

    /// The edges that lead to the vertices of each rank: their rows, as indices among these vertices, and their
    /// columns.
    fn dealt(&self, partition: &Partition) -> Vec<[Vec<u32>; 2]> {
        let (owners, ranks) = (partition.owners(), partition.ranks());
        let mut next = vec![0_u32; ranks];
        let places: Vec<u32> = (owners.iter())
            .map(|&owner| {
                let next = &mut next[owner as usize];
                *next += 1;
                *next - 1
            })
            .collect();
        let chunks = parallel::map(parallel::chunks(&self.edges, CHUNK), |_, edges| {
            let each = |sink: &mut dyn FnMut(u32, u32)| {
                for &[row, column] in edges {
                    sink(row, column);
                    if self.undirected {
                        sink(column, row);
                    }
                }
            };
            let mut counts = vec![0; ranks];
            each(&mut |row, _| counts[owners[row as usize] as usize] += 1);
            let room = |&count: &usize| [0; 2].map(|_| Vec::<u32>::with_capacity(count));
            let mut dealt: Vec<[Vec<u32>; 2]> = counts.iter().map(room).collect();
            each(&mut |row, column| {
                let [rows, columns] = &mut dealt[owners[row as usize] as usize];
                rows.push(places[row as usize]);
                columns.push(column);
            });
            dealt
        });
        parallel::map(0..ranks, |rank, _| {
            [0, 1].map(|end| {
                let of_chunks: Vec<&[u32]> = chunks.iter().map(|of| &of[rank][end][..]).collect();
                of_chunks.concat()
            })
        })
    }
}

/// Sums over all ranks, element by element. Each rank sums its share, which the others then receive. The sums fit 32
/// bits.
fn sum(group: &Group, what: &str, own: Vec<u32>) -> Result<Vec<u32>, Error> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let share = |of: usize| {
        let (of, ranks, all) = (of as u64, ranks as u64, own.len() as u64);
        let share = index::part(all, of, ranks);
        share.start as usize..share.end as usize
    };
    let sends = (0..ranks).map(|to| match to == rank {
        true => Vec::new(),
        false => own[share(to)].to_vec(),
    });
    let mut counts = vec![share(rank).len(); ranks];
    counts[rank] = 0;
    let mut sums = own[share(rank)].to_vec();
    for given in group.exchange(what, &sends.collect::<Vec<_>>(), &counts)? {
        for (sum, given) in sums.iter_mut().zip(given) {
            *sum += given;
        }
    }
    let counts: Vec<usize> = (0..ranks).map(|of| share(of).len()).collect();
    Ok(group.gather_of(what, &sums, &counts)?.concat())
}
