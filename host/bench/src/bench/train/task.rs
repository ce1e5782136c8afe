//! What is trained: random features and classes on a graph, whole or a rank's share of it.

use crate::bench::measure::zeros;
use crate::failure::Failure;
use crate::graphs::Opened;
use crate::rank_memory::{self, RankMemory};
use halfgnn::Error;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::Targets;
use halfgnn::distributed::{Gather, Group, Partition, Shard};
use halfgnn::graph::generate::draw_words;
use halfgnn::graph::{Graph, GraphCounts};
use halfgnn::nn::{EdgeData, ModelConfig, PreparedGraph, PreparedRows, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Footprint, Goal, Loss, Objective, TrainConfig, Work};
use halfgnn_contract::rng;
use rayon::prelude::*;
use std::borrow::Cow;

/// Multiprocessors of a device, and its free and whole memory in bytes; nothing of one that has none of its own.
pub type Card = (Option<u32>, Option<(u64, u64)>);

/// A graph as a model needs it, and what this process has of it.
pub enum Prepared<'a, E: Element> {
    /// All of it.
    Whole(Cow<'a, Graph>),
    /// A rank's share.
    Dealt(&'a Group, Box<Dealt<'a, E>>),
}

impl<'a, E: Element> Prepared<'a, E> {
    /// Of the graph that was opened; the ranks of `group` have a share each.
    ///
    /// # Errors
    /// Those of [`ModelConfig::prepare`] and of dealing a graph out.
    pub fn new(
        graph: &'a Opened,
        config: &ModelConfig,
        (group, gather): (Option<&'a Group>, Gather),
    ) -> Result<Self, Error> {
        match (graph, group) {
            (_, Some(group)) => Ok(Self::Dealt(
                group,
                Box::new(Dealt::new(graph, config, (group, gather))?),
            )),
            (Opened::Whole(graph), None) => Ok(Self::Whole(config.prepare(graph)?)),
            (Opened::Share(_), None) => unreachable!("a share is a rank's"),
        }
    }

    /// Which rows of others each rank is given, where there are several.
    pub fn gather(&self) -> Option<Gather> {
        self.shard().map(Shard::gather)
    }

    /// Edges that lead to the vertices of this rank, and rows of others that it is given, where there are several.
    pub fn of_rank(&self) -> Option<(usize, usize)> {
        let part = &self.shard()?.part;
        let edges = part.block().csr().edges();
        Some((edges, part.vertices().len() - part.own().len()))
    }

    fn shard(&self) -> Option<&Shard> {
        match self {
            Self::Whole(_) => None,
            Self::Dealt(_, dealt) => Some(dealt.shard()),
        }
    }

    /// Vertices and edges of the whole graph.
    pub fn counts(&self) -> (usize, usize) {
        match self {
            Self::Whole(graph) => (graph.vertices(), graph.edges()),
            Self::Dealt(_, dealt) => dealt.counts,
        }
    }

    /// What training takes of this process, and of each rank where there are several; refused where one has no memory.
    ///
    /// # Errors
    /// [`Failure::Input`] where memory is short.
    pub fn room(
        &self,
        (config, train): (&ModelConfig, &TrainConfig),
        (card, memory): Card,
    ) -> Result<(Footprint, Option<RankMemory>), Failure> {
        match self {
            Self::Dealt(group, dealt) => dealt.room(group, (config, train), (card, memory)),
            Self::Whole(graph) => {
                let how = (config, train, Work::Training);
                let own = Footprint::check_work::<E>(&GraphCounts::of(graph), how, card, memory)?;
                Ok((own, None))
            }
        }
    }

    /// The task on the device, for a model whose first layer aggregates neighbours or does not.
    ///
    /// # Errors
    /// Those of the device.
    pub fn objective<B: Backend>(
        &self,
        backend: &B,
        (config, first_aggregates): (&ModelConfig, bool),
    ) -> Result<Objective<B, E>, Error> {
        match self {
            Self::Dealt(group, dealt) => {
                dealt.objective(backend, (config, first_aggregates), group)
            }
            Self::Whole(graph) => objective::<B, E>(backend, graph, config),
        }
    }
}

/// Random features and labels on a graph; every vertex is trained on.
///
/// # Errors
/// Those of the device.
pub fn objective<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    config: &ModelConfig,
) -> Result<Objective<B, E>, Error> {
    let vertices = graph.vertices();
    let mut features = zeros(vertices, config.features)?;
    let rows = features.par_chunks_mut(config.features).enumerate();
    rows.for_each(|(row, to)| write_features((row * config.features) as u64, to));
    let labels = labels(vertices, config.classes);
    let all: Vec<u32> = (0..vertices as u32).collect();
    let kind = MemoryKind::Features;
    Objective::new(
        backend,
        Propagation::new(backend, graph, config.norm())?,
        Matrix::from_f32(backend, vertices, config.features, &features, kind)?,
        &labels,
        config.classes,
        [&all, &[], &[]],
    )
}

/// A graph that is partitioned by degree: what a rank has of it, and vertices and edges of all.
pub struct Dealt<'a, E: Element> {
    of_rank: OfRank<'a, E>,
    counts: (usize, usize),
}

/// What a rank has of a graph that each has, or of one that they made together.
enum OfRank<'a, E: Element> {
    Whole(PreparedGraph<'a>, Shard),
    Rows(PreparedRows<E>),
}

impl<'a, E: Element> Dealt<'a, E> {
    /// Once, of the graph as the model needs it.
    fn new(
        graph: &'a Opened,
        config: &ModelConfig,
        (group, gather): (&Group, Gather),
    ) -> Result<Self, Error> {
        match graph {
            Opened::Whole(graph) => {
                let prepared = config.prepare_edges(graph, EdgeData::default())?;
                let partition = Partition::by_degree(&prepared.graph, group.ranks());
                let partition = partition.map_err(|problem| Error::Unsupported {
                    operator: "bench train",
                    reason: problem.to_string(),
                })?;
                let rank = group.rank();
                let shard = Shard::gathering(&prepared.graph, &partition, rank, gather)?;
                Ok(Self {
                    counts: (prepared.graph.vertices(), prepared.graph.edges()),
                    of_rank: OfRank::Whole(prepared, shard),
                })
            }
            Opened::Share(edges) => {
                let loops = config.wants_self_loops();
                let dealt = edges.deal(group, loops)?;
                let (rows, table) = (&dealt.rows, &dealt.table);
                let edges: usize = table.in_degrees.iter().map(|&of| of as usize).sum();
                let added = if loops { table.without_loops() } else { 0 };
                let counts = (table.vertices(), edges + added);
                let none = EdgeData::default();
                let of = (table, &dealt.partition);
                let prepared = config.prepare_rows((rows, none), of, (group, gather))?;
                Ok(Self {
                    of_rank: OfRank::Rows(prepared),
                    counts,
                })
            }
        }
    }

    fn shard(&self) -> &Shard {
        match &self.of_rank {
            OfRank::Whole(_, shard) => shard,
            OfRank::Rows(prepared) => &prepared.shard,
        }
    }

    /// What training takes of this rank, and of all; refused where one has no memory.
    fn room(
        &self,
        group: &Group,
        how: (&ModelConfig, &TrainConfig),
        (card, memory): Card,
    ) -> Result<(Footprint, Option<RankMemory>), Failure> {
        let of_edges = match &self.of_rank {
            OfRank::Whole(prepared, _) => prepared.of_edges(),
            OfRank::Rows(prepared) => prepared.of_edges(),
        };
        let own = Footprint::of_shard::<E>((self.shard(), of_edges), how, card)?;
        let all = RankMemory::agree(group, &own, memory, rank_memory::Devices::Own)?;
        Ok((own, Some(all)))
    }

    /// Random features and labels on what a rank has, for a model whose first layer aggregates neighbours or does not.
    fn objective<B: Backend>(
        &self,
        backend: &B,
        (config, first_aggregates): (&ModelConfig, bool),
        group: &Group,
    ) -> Result<Objective<B, E>, Error> {
        let (shard, (count, _)) = (self.shard(), self.counts);
        let vertices = match first_aggregates {
            true => shard.part.vertices(),
            false => shard.part.own(),
        };
        let (shape, kind) = ((vertices.len(), config.features), MemoryKind::Features);
        let features = Matrix::from_rows(backend, shape, kind, |row, values| {
            write_features(u64::from(vertices[row]) * config.features as u64, values);
        })?;
        let targets = Targets::from(labels(count, config.classes));
        let all: Vec<u32> = (0..count as u32).collect();
        let goal = Goal {
            targets: &targets,
            outputs: config.classes,
            loss: &Loss::of(&targets),
            splits: [&all, &[], &[]],
        };
        let graph = match &self.of_rank {
            OfRank::Whole(prepared, shard) => {
                prepared.propagation_of_shard::<B, E>(backend, config, (shard, group))?
            }
            OfRank::Rows(prepared) => prepared.propagation(backend, group)?,
        };
        Objective::of_shard(backend, graph, features, &goal, shard)
    }
}

/// The features of a number of vertices before them.
fn write_features(first: u64, to: &mut [f32]) {
    let mut words = vec![0; to.len()];
    draw_words(rng::key(1, 0), first, &mut words);
    for (to, word) in to.iter_mut().zip(words) {
        *to = 2.0 * rng::unit_f32(word) - 1.0;
    }
}

fn labels(vertices: usize, classes: usize) -> Vec<u32> {
    /// Vertices that a thread looks at at a time.
    const CHUNK: usize = 1 << 16;
    let mut labels = vec![0; vertices];
    let chunks = labels.par_chunks_mut(CHUNK).enumerate();
    chunks.for_each(|(chunk, labels)| {
        draw_words(rng::key(1, 1), (chunk * CHUNK) as u64, labels);
        labels.iter_mut().for_each(|label| *label %= classes as u32);
    });
    labels
}
