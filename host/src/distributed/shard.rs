//! A rank's part of a graph, on the host.

use super::{Gather, Partition, PartitionError};
use crate::error::Error;
use crate::graph::{Graph, GraphCounts, Part, RowCounts};
use std::ops::Range;

/// The vertices of a rank, the edges that lead to them, and the rows that it exchanges with other ranks.
///
/// ```text
///   vertices       1 4 6 │ 0 3 │ 5       rank 1 owns 1, 4 and 6; its halo is 0 and 3 of rank 0, and 5 of rank 2
///   sources        0 1 2 │ 3 4 │ 5       their rows in its matrices
///   receives              3..5  5..6     from ranks 0 and 2
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The rank.
    pub rank: usize,
    /// The own vertices, the received vertices of other ranks in the order of ranks, and the edges that lead to the own
    /// vertices.
    pub part: Part,
    /// For each rank the own rows that are sent to it, in the order in which it receives them.
    pub sends: Vec<Vec<u32>>,
    /// The rows that each rank sends to it.
    pub receives: Vec<Range<usize>>,
    /// Number of own vertices of each rank.
    pub counts: Vec<usize>,
    /// Whether every edge of the whole graph has a reverse. The edges that lead to the own vertices are then the
    /// reverse of those that lead from them.
    pub mutual: bool,
    /// Whether ranks exchange all rows, read or not.
    pub whole: bool,
}

impl Shard {
    /// The part of `rank` in `graph`, which receives its halo. Each rank makes its own, from the same graph and
    /// partition.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the partition is of another graph, or there is no such rank; [`Error::Graph`].
    pub fn new(graph: &Graph, partition: &Partition, rank: usize) -> Result<Self, Error> {
        Self::gathering(graph, partition, rank, Gather::Halo)
    }

    /// [`Shard::new`] that receives the rows that `gather` selects, which must be the same on all ranks.
    ///
    /// # Errors
    /// Those of [`Shard::new`].
    pub fn gathering(
        graph: &Graph,
        partition: &Partition,
        rank: usize,
        gather: Gather,
    ) -> Result<Self, Error> {
        let refuse = |problem: PartitionError| Error::Unsupported {
            operator: "Shard",
            reason: problem.to_string(),
        };
        partition.check(graph).map_err(refuse)?;
        let (owners, ranks) = (partition.owners(), partition.ranks());
        if rank >= ranks {
            return Err(Error::Unsupported {
                operator: "Shard",
                reason: format!("rank {rank}, and there are {ranks}, from 0 on"),
            });
        }
        let mut counts = vec![0; ranks];
        owners.iter().for_each(|&owner| counts[owner as usize] += 1);
        let own = partition.vertices(rank);
        let Boundaries {
            mut sends,
            mut halo,
            heard,
        } = boundaries(graph, owners, (rank, ranks));
        let whole = gather.is_whole(heard, (ranks, owners.len()));
        if whole {
            let vertices = 0..owners.len() as u32;
            halo = vertices
                .filter(|&it| owners[it as usize] as usize != rank)
                .collect();
            sends = all_to_others(&own, (rank, ranks));
        }
        halo.sort_unstable_by_key(|&vertex| (owners[vertex as usize], vertex));

        let mut places = vec![u32::MAX; owners.len()];
        for (place, &vertex) in own.iter().enumerate() {
            places[vertex as usize] = place as u32;
        }
        let mut receives = Vec::with_capacity(ranks);
        let mut start = own.len();
        for from in 0..ranks {
            let of_rank = halo[start - own.len()..]
                .iter()
                .take_while(|&&vertex| owners[vertex as usize] as usize == from);
            let end = start + of_rank.count();
            receives.push(start..end);
            start = end;
        }
        let sends = sends.into_iter().map(|wanted| {
            let place = |vertex: u32| places[vertex as usize];
            wanted.into_iter().map(place).collect()
        });
        let sends = sends.collect();
        Ok(Self {
            rank,
            part: Part::new(graph, &own, &halo)?,
            sends,
            receives,
            counts,
            mutual: graph.is_symmetric(),
            whole,
        })
    }

    /// The rows that it receives: [`Gather::Halo`] or [`Gather::Whole`], which [`Gather::Auto`] may have chosen.
    pub fn gather(&self) -> Gather {
        match self.whole {
            true => Gather::Whole,
            false => Gather::Halo,
        }
    }

    /// The counts of its block, which determine the memory of the graph. They include neither weights nor features of
    /// edges.
    pub fn counts_of_block(&self) -> GraphCounts {
        let csr = self.part.block().csr();
        let (forward, backward) = (RowCounts::of(csr), RowCounts::of_transposed(csr));
        let alone = forward.rows == forward.columns && self.sends.iter().all(Vec::is_empty);
        GraphCounts {
            forward,
            backward: Some(backward),
            balanced: alone && csr.row_degrees() == csr.column_degrees(),
            weighted: false,
            edge_features: 0,
            edge_rows: false,
            graphs: 0,
        }
    }
}

/// A copy of `own` for each other rank, and nothing for this one.
pub(crate) fn all_to_others(own: &[u32], (rank, ranks): (usize, usize)) -> Vec<Vec<u32>> {
    let to = |other: usize| if other == rank { &[] } else { own };
    (0..ranks).map(|other| to(other).to_vec()).collect()
}

/// The vertices that ranks read of one another.
struct Boundaries {
    /// The vertices of a rank that each other rank reads, in their order.
    sends: Vec<Vec<u32>>,
    /// The vertices of other ranks that it reads itself.
    halo: Vec<u32>,
    /// The halo rows of all ranks together: a vertex counts once for each other rank that reads it.
    heard: u64,
}

fn boundaries(graph: &Graph, owners: &[u32], (rank, ranks): (usize, usize)) -> Boundaries {
    let mut found = Boundaries {
        sends: vec![Vec::new(); ranks],
        halo: Vec::new(),
        heard: 0,
    };
    let heard = graph.transposed();
    let mut last_heard_by = vec![u32::MAX; ranks];
    for vertex in 0..owners.len() as u32 {
        let owner = owners[vertex as usize] as usize;
        for &row in heard.row(vertex as usize) {
            let by = owners[row as usize] as usize;
            if by == owner || last_heard_by[by] == vertex {
                continue;
            }
            last_heard_by[by] = vertex;
            found.heard += 1;
            if owner == rank {
                found.sends[by].push(vertex);
            } else if by == rank {
                found.halo.push(vertex);
            }
        }
    }
    found
}
