//! What a rank computes on, of rows that it read itself: see [`data::parts`](crate::data::parts).
//!
//! ```text
//!  rows of own parts ─ own vertices and in-neighbours, renumbered in the graph's order ─► a small graph
//!                                                                                          │ self-loops, means
//!  degrees and sums of weights of all vertices ─────► factors of the whole graph ────► Shard, Propagation
//!  the vertices that others need, by request ──────────────────────────────────────────────┘
//! ```

use super::edge_features::{EdgeColumns, EdgeFeatures};
use super::{EdgeData, ModelConfig, Norm, PartFactors, PreparedGraph, Propagation, weights};
use crate::backend::Backend;
use crate::data::parts::{PartRows, RowFeatures, VertexTable};
use crate::distributed::{Gather, Group, Partition, Shard, all_to_others};
use crate::error::Error;
use crate::graph::{Graph, Part, generate, parallel};
use crate::tensor::Element;
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "ModelConfig::prepare_rows";

/// What a rank has of rows that it read, on the host: see [`ModelConfig::prepare_rows`].
#[derive(Clone, Debug)]
pub struct PreparedRows<E: Element> {
    /// Its vertices and edges, and what it exchanges.
    pub shard: Shard,
    factors: PartFactors<E>,
    weighted: bool,
    features: EdgeColumns,
}

impl<E: Element> PreparedRows<E> {
    /// Whether each edge has a weight, and how many features of each are read.
    pub fn of_edges(&self) -> (bool, usize) {
        (self.weighted, self.features.len())
    }

    /// The graph on a backend, of a rank of `group`.
    ///
    /// # Errors
    /// Those of [`PreparedGraph::propagation_of_shard`].
    pub fn propagation<B: Backend>(
        &self,
        backend: &B,
        group: &Group,
    ) -> Result<Propagation<B>, Error> {
        let graph = Propagation::of_shard(backend, &self.factors, (&self.shard, group))?;
        match self.features.is_empty() {
            true => Ok(graph),
            false => {
                let part = &self.shard.part;
                Ok(graph.with(EdgeFeatures::of_part::<E>(backend, part, &self.features)?))
            }
        }
    }
}

/// The vertices that a rank owns or receives, ascending, and the edges that lead to its own, as indices into that list.
struct Local {
    vertices: Vec<u32>,
    /// Indices of the own ones.
    own: Vec<u32>,
    graph: Graph,
    /// Whether the rank receives all vertices, needed or not.
    whole: bool,
}

impl Local {
    /// Includes all vertices of others where ranks exchange all rows, on which they agree.
    fn new(
        rows: &PartRows,
        vertices: usize,
        (group, gather): (&Group, Gather),
    ) -> Result<Self, Error> {
        let here: Vec<AtomicBool> = (0..vertices).map(|_| AtomicBool::new(false)).collect();
        for some in [&rows.vertices, &rows.columns] {
            parallel::for_each(&some[..], |_, &vertex| {
                here[vertex as usize].store(true, Ordering::Relaxed);
            });
        }
        let needed = match gather {
            Gather::Auto => {
                let here = here.iter().filter(|here| here.load(Ordering::Relaxed));
                let needed = here.count().saturating_sub(rows.vertices.len());
                let of_ranks = group.gather("vertices needed", &[needed as u64])?;
                of_ranks.iter().map(|of_rank| of_rank[0]).sum()
            }
            Gather::Halo | Gather::Whole => 0,
        };
        let whole = gather.is_whole(needed, (group.ranks(), vertices));
        let mut places = vec![u32::MAX; vertices];
        let mut local = Vec::new();
        for (vertex, (place, here)) in places.iter_mut().zip(here).enumerate() {
            if here.into_inner() || whole {
                *place = local.len() as u32;
                local.push(vertex as u32);
            }
        }
        let place = |&vertex: &u32| places[vertex as usize];
        let own: Vec<u32> = rows.vertices.iter().map(place).collect();
        let mut offsets = vec![0; local.len() + 1];
        for (row, &place) in own.iter().enumerate() {
            offsets[place as usize + 1] = rows.offsets[row + 1] - rows.offsets[row];
        }
        for at in 1..offsets.len() {
            offsets[at] += offsets[at - 1];
        }
        let mut columns = vec![0; rows.columns.len()];
        parallel::for_each((&mut columns[..], &rows.columns[..]), |_, (to, column)| {
            *to = place(column);
        });
        Ok(Self {
            graph: Graph::from_offsets(offsets, columns)?,
            vertices: local,
            own,
            whole,
        })
    }
}

impl ModelConfig {
    /// The shard of a rank of `group`, from rows that it read itself, and the data from which the graph on a backend is
    /// made. They are those that [`Shard::gathering`] and [`PreparedGraph::propagation_of_shard`] make of the whole
    /// graph with the same `partition`, to the bit. `table` has the degrees of all vertices, and `edges` are of the
    /// rows' edges. All ranks call it at once, with the same `gather`. Nothing is on a backend yet.
    ///
    /// # Errors
    /// Those of [`ModelConfig::prepare_edges`], [`PreparedGraph::propagation_of_shard`] and
    /// [`Communicator::exchange`](crate::distributed::Communicator::exchange).
    pub fn prepare_rows<E: Element>(
        &self,
        (rows, edges): (&PartRows, EdgeData<'_>),
        (table, partition): (&VertexTable, &Partition),
        (group, gather): (&Group, Gather),
    ) -> Result<PreparedRows<E>, Error> {
        self.check_ranks()?;
        let vertices = table.vertices();
        Error::expect(
            NAME,
            "vertices of the partition",
            vertices,
            partition.owners().len(),
        )?;
        Error::expect(
            NAME,
            "ranks of the partition",
            group.ranks(),
            partition.ranks(),
        )?;
        let local = Local::new(rows, vertices, (group, gather))?;
        let prepared = self.prepare_edges(&local.graph, edges)?;
        Ok(PreparedRows {
            shard: shard(&local, &prepared.graph, (table, partition.owners()), group)?,
            factors: self.rank_factors::<E>(&local, &prepared, table, group)?,
            weighted: prepared.weights.is_some(),
            features: prepared.features,
        })
    }

    /// A degree of each vertex, with the self-loop that the model adds.
    fn degrees(&self, table: &VertexTable, of: &[u32]) -> Vec<u32> {
        let loops = self.wants_self_loops();
        let degrees = of.iter().enumerate();
        degrees
            .map(|(vertex, degree)| degree + u32::from(loops && !table.has_loop(vertex)))
            .collect()
    }

    /// The factors of edges, as [`PartFactors::new`] has them of the whole graph.
    fn rank_factors<E: Element>(
        &self,
        local: &Local,
        prepared: &PreparedGraph<'_>,
        table: &VertexTable,
        group: &Group,
    ) -> Result<PartFactors<E>, Error> {
        let norm = self.norm();
        let rows = self.degrees(table, &table.in_degrees);
        let Some(of_edges) = &prepared.weights else {
            let columns = match norm {
                Norm::Both | Norm::Left => self.degrees(table, &table.out_degrees),
                Norm::In => rows.clone(),
                Norm::Right | Norm::None => Vec::new(),
            };
            let largest = rows.iter().copied().max().unwrap_or(0);
            return Ok(PartFactors::of_rank(norm, [rows, columns], None, largest));
        };
        let with_loops = usize::from(self.wants_self_loops());
        let Some(sums) = &table.sums else {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: "edges have weights, and the table of the vertices has no sums of them"
                    .into(),
            });
        };
        let sides = weights::sides([&sums.rows[with_loops], &sums.columns[with_loops]], norm)?;
        let graph = &prepared.graph;
        let mut factors = vec![0.0_f32; graph.edges()];
        let mut most = 0.0_f64;
        // Rows of others are not here, except for the loops that were added.
        for &row in &local.own {
            let scale = sides[0][local.vertices[row as usize] as usize];
            let mut size = 0.0;
            for edge in graph.csr().row_range(row as usize) {
                let weight = f64::from(of_edges[edge]);
                let column = local.vertices[graph.cols()[edge] as usize];
                factors[edge] = (scale * weight * sides[1][column as usize]) as f32;
                size += weight.abs();
            }
            most = most.max(size);
        }
        let own = [most, weights::largest_magnitude(&factors).into()];
        let all = group.gather("weights", &own)?;
        let largest = |of: usize| all.iter().map(|rank| rank[of]).fold(0.0, f64::max);
        let values = weights::scaled_by::<E>(&factors, largest(1) as f32);
        Ok(PartFactors::of_rank(
            norm,
            [rows, Vec::new()],
            Some(values),
            largest(0).ceil() as u32,
        ))
    }
}

/// The shard that [`Shard::gathering`] finds in a whole graph. Other ranks say which vertices they need.
fn shard(
    local: &Local,
    graph: &Graph,
    (table, owners): (&VertexTable, &[u32]),
    group: &Group,
) -> Result<Shard, Error> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let mut counts = vec![0; ranks];
    owners.iter().for_each(|&owner| counts[owner as usize] += 1);
    Error::expect(NAME, "own vertices", counts[rank], local.own.len())?;
    let owner = |place: u32| owners[local.vertices[place as usize] as usize] as usize;
    let mut requests = vec![Vec::new(); ranks];
    let mut halo = vec![Vec::new(); ranks];
    for place in 0..local.vertices.len() as u32 {
        let of = owner(place);
        if of != rank {
            halo[of].push(place);
            requests[of].push(local.vertices[place as usize]);
        }
    }
    let mut start = local.own.len();
    let receives = halo.iter().map(|of_rank| {
        let from = start;
        start += of_rank.len();
        from..start
    });
    let receives: Vec<_> = receives.collect();
    let own: Vec<u32> = (local.own.iter())
        .map(|&place| local.vertices[place as usize])
        .collect();
    let sends = match local.whole {
        true => {
            let places: Vec<u32> = (0..own.len() as u32).collect();
            all_to_others(&places, (rank, ranks))
        }
        false => asked_for(&own, &requests, group)?,
    };
    Ok(Shard {
        rank,
        part: Part::new(graph, &local.own, &halo.concat())?.renamed(&local.vertices),
        sends,
        receives,
        counts,
        whole: local.whole,
        mutual: match table.mutual {
            Some(known) => known,
            None => is_mutual(local, graph, owners, group)?,
        },
    })
}

/// Indices among `own` vertices of those that each other rank requests. `requests` are the vertices that this rank
/// requests.
fn asked_for(own: &[u32], requests: &[Vec<u32>], group: &Group) -> Result<Vec<Vec<u32>>, Error> {
    let rank = group.rank();
    let asked: Vec<u64> = requests.iter().map(|wanted| wanted.len() as u64).collect();
    let asked = group.gather("halo sizes", &asked)?;
    let asked: Vec<usize> = asked.iter().map(|by_rank| by_rank[rank] as usize).collect();
    let sends = group
        .exchange("halo", requests, &asked)?
        .into_iter()
        .enumerate();
    let sends = sends.map(|(by, wanted)| {
        let mut places = vec![u32::MAX; wanted.len()];
        parallel::for_each((&mut places[..], &wanted[..]), |_, (place, vertex)| {
            *place = own.binary_search(vertex).map_or(u32::MAX, |place| place as u32);
        });
        match places.iter().position(|&place| place == u32::MAX) {
            None => Ok(places),
            Some(at) => Err(Error::Communication(format!(
                "rank {by} asks rank {rank} for vertex {}, which it has not: give all ranks the same parts",
                wanted[at]
            ))),
        }
    });
    sends.collect()
}

/// Whether the whole graph is symmetric. A rank has only edges to its own vertices. Each pair of ranks therefore
/// compares sums of hashes of the edges between them, in both directions.
fn is_mutual(local: &Local, graph: &Graph, owners: &[u32], group: &Group) -> Result<bool, Error> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let hashes = |from: u32, to: u32| {
        let [a, b, c, d] = generate::draw(
            [0x6d75_7475, 0x616c],
            u64::from(to) << 32 | u64::from(from),
            0,
        );
        [
            u64::from(a) << 32 | u64::from(b),
            u64::from(c) << 32 | u64::from(d),
        ]
    };
    // For each rank two words of the edges from its vertices, and two of their reverses.
    let of_chunks = parallel::map(parallel::chunks(&local.own, 1 << 12), |_, rows| {
        let mut sums = vec![0_u64; 4 * ranks];
        for &row in rows {
            let to = local.vertices[row as usize];
            for &column in graph.csr().row(row as usize) {
                let from = local.vertices[column as usize];
                let first = 4 * owners[from as usize] as usize;
                let ([a, b], [c, d]) = (hashes(from, to), hashes(to, from));
                for (sum, word) in sums[first..].iter_mut().zip([a, b, c, d]) {
                    *sum = sum.wrapping_add(word);
                }
            }
        }
        sums
    });
    let mut sums = vec![0_u64; 4 * ranks];
    for (at, word) in of_chunks.iter().flat_map(|of| of.iter().enumerate()) {
        sums[at] = sums[at].wrapping_add(*word);
    }
    let all = group.gather("whether edges are mutual", &sums)?;
    let agree = (0..ranks).all(|other| {
        let (own, theirs) = (&sums[4 * other..][..4], &all[other][4 * rank..][..4]);
        own[..2] == theirs[2..] && own[2..] == theirs[..2]
    });
    group
        .any("edges that are not mutual", !agree)
        .map(|any| !any)
}

impl Shard {
    /// The features of the own vertices, and after them those of the vertices that other ranks [send](Shard::part). All
    /// ranks call it at once.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`](crate::distributed::Communicator::exchange).
    pub fn with_halo(&self, group: &Group, features: RowFeatures) -> Result<RowFeatures, Error> {
        let sends: Vec<Vec<u8>> = self
            .sends
            .iter()
            .map(|rows| features.packed(rows))
            .collect();
        let row = features.packed_row();
        let counts: Vec<usize> = self.receives.iter().map(|of| of.len() * row).collect();
        let received = group.exchange("features", &sends, &counts)?;
        Ok(features.extended(&received.concat()))
    }
}
