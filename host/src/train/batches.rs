//! The batches that a trainer learns from.

use super::batch_sizes::BatchSizes;
use super::fixed_batches::{Fetch, FixedBatches, LOOKED_AT, batches_ahead};
use super::objective::Objective;
use super::random_of_step::RandomOfStep;
use super::subgraph_batches::{DrawnSubgraph, SubgraphBatches, SubgraphNorms, SubgraphPlan};
use super::type_batches::{self, TypeBatches};
use super::{Goal, GraphBatches, Loss};
use crate::backend::{Backend, MemoryKind};
use crate::data::{FeatureRows, ReadAhead, Types};
use crate::distributed::Group;
use crate::error::Error;
use crate::graph::Graph;
use crate::nn::{GraphFactors, ModelConfig, Norm, Propagation};
use crate::ops::Dropout;
use crate::sample::{
    Batch, EdgesIn, LayerSources, Loader, Sampler, Sampling, Seeds, SubgraphSampler, Subgraphs,
};
use crate::tensor::{Array, Element, Matrix};
use std::ops::Range;
use std::sync::Arc;

/// Batches of a task's training vertices: see [`Trainer::sampled`](super::Trainer::sampled).
#[derive(Debug)]
pub struct Batches<B: Backend, E: Element> {
    /// The task whose features and targets they are.
    task: Objective<B, E>,
    loss: Loss,
    loader: Loader,
    source: Source<B, E>,
    /// The epoch whose batches were requested last, and its seeds.
    order: Option<(u32, Vec<Seeds>)>,
    /// Whether batches may have unused capacity.
    may_be_fixed: bool,
    /// Whether the model may read features from the matrix of all vertices.
    may_read_in_place: bool,
    /// Batches that use the same buffers each time.
    fixed: Option<Box<FixedBatches<B, E>>>,
    /// The ranks over which each batch is sharded.
    group: Option<Group>,
    /// The next batch, where its features are read from disk in the background.
    ahead: Option<Ahead<B, E>>,
    random: RandomOfStep<B>,
}

/// A rank's share of each batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    rank: usize,
    ranks: usize,
}

impl Share {
    /// This rank's range of `count` vertices. Its length never decreases as `count` grows.
    pub(super) fn of(self, count: usize) -> Range<usize> {
        let (each, more) = (count / self.ranks, count % self.ranks);
        let start = |rank: usize| each * rank + rank.min(more);
        start(self.rank)..start(self.rank + 1)
    }
}

/// A sampled batch, before its features are gathered.
#[derive(Debug)]
pub(super) enum Drawn<B: Backend> {
    Sampled(Batch<B>),
    Subgraph(Box<DrawnSubgraph<B>>),
}

impl<B: Backend> Drawn<B> {
    /// The vertices whose features are inputs.
    fn inputs(&self) -> &Array<B, u32> {
        match self {
            Self::Sampled(batch) => &batch.inputs,
            Self::Subgraph(subgraph) => &subgraph.subgraph.vertices,
        }
    }
}

/// A batch whose features are being read.
#[derive(Debug)]
struct Ahead<B: Backend, E: Element> {
    step: u32,
    drawn: Drawn<B>,
    rows: ReadAhead<E>,
}

/// The source of batches.
#[derive(Debug)]
enum Source<B: Backend, E: Element> {
    /// Vertices with a sample of their neighbours, and the degree norm of each block.
    Sampled(Box<dyn Sampler<B>>, Norm),
    /// Whole graphs.
    Graphs(Box<GraphBatches>),
    /// Vertices that are chosen together, and the edges between them.
    Subgraphs(Box<SubgraphBatches<B, E>>),
    /// Vertices of a graph of several types, and a sample of their neighbours.
    Types(Box<TypeBatches<B>>),
}

/// A batch in the buffers of an earlier one.
pub(super) struct InPlace<B: Backend, E: Element> {
    pub(super) batch: Objective<B, E>,
    /// The index of these buffers, from 0 on.
    pub(super) place: usize,
    /// The number of its training vertices, on all ranks.
    pub(super) vertices: usize,
}

impl<B: Backend, E: Element> Batches<B, E> {
    /// Makes batches of `batch` training vertices of `task`, in orders that `seed` decides. `sampler` samples their
    /// graph by the same seed. `loss` is the task's; `norm` is the model's, computed from the degrees of each block.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sampler is of another number of vertices. [`Error::Unsupported`] for batches of no
    /// vertices, for link prediction, and for [`Norm::In`], which blocks do not support.
    pub fn new(
        task: &Objective<B, E>,
        (loss, norm): (&Loss, Norm),
        sampler: Box<dyn Sampler<B>>,
        batch: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::check(task, task.0.features.rows(), sampler.vertices())?;
        if norm == Norm::In {
            return Err(no_in_norm());
        }
        let loader = Loader::new(task.0.lists[0].clone(), batch, seed)?;
        let source = Source::Sampled(sampler, norm);
        Ok(Self::made(task, loss, loader, source))
    }

    /// Makes batches of `batch` training graphs of `task`, in orders that `seed` decides. `graphs` are the graphs of
    /// the task, and `loss` is the task's.
    ///
    /// # Errors
    /// [`Error::Shape`] where the task is of another number of graphs or of vertices, [`Error::Unsupported`] for
    /// batches of no graphs.
    pub fn of_graphs(
        task: &Objective<B, E>,
        loss: &Loss,
        graphs: GraphBatches,
        batch: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        const NAME: &str = "Batches";
        if !task.0.features.are_whole() {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: "features that stay on disk or are dealt out are of one graph, and these are many; have them all in memory".into(),
            });
        }
        let (index, vertices) = (graphs.index(), task.0.features.rows());
        Error::expect(NAME, "vertices of the graphs", vertices, index.vertices())?;
        Error::expect(NAME, "graphs", task.vertices(), index.graphs())?;
        let loader = Loader::new(task.0.lists[0].clone(), batch, seed)?;
        let source = Source::Graphs(Box::new(graphs));
        Ok(Self::made(task, loss, loader, source))
    }

    /// Makes batches of subgraphs. All their vertices are aggregated, and the training vertices have a loss. They are
    /// GraphSAINT's (Zeng et al., ICLR 2020), or of [clusters](Subgraphs::Clusters), `batch` at a time. `graph` is that
    /// of `task` as the model needs it, with the weights of its edges. `loss` is the task's and `norm` the model's.
    ///
    /// Sampled subgraphs are normalised by the frequencies of vertices and edges in them, which are counted first
    /// ([`SubgraphSampler::coverage`] of `coverage` times the graph). Losses are always normalised. Edges have factors
    /// where the model `sums_edges` ([`ModelConfig::normalizes_drawn_edges`]), which include the degree norm of the
    /// whole graph. Clusters, and all other models, use the degree norm of the subgraph. An epoch has as many subgraphs
    /// as hold, on average, all training vertices of the graph.
    ///
    /// # Errors
    /// Those of [`SubgraphSampler`], [`GraphFactors`] and [`Batches::new`], and [`Error::Unsupported`] for weights of
    /// edges that have no factors.
    pub fn of_subgraphs(
        backend: &B,
        task: &Objective<B, E>,
        (loss, norm): (&Loss, Norm),
        (graph, weights, sums_edges): (&Graph, Option<&[f32]>, bool),
        how: SubgraphPlan,
    ) -> Result<Self, Error> {
        let SubgraphPlan {
            subgraphs,
            batch,
            coverage,
            seed,
        } = how;
        let vertices = task.0.features.rows();
        Self::check(task, vertices, graph.vertices())?;
        let train = task.0.lists[0].clone();
        if weights.is_some() && (matches!(subgraphs, Subgraphs::Clusters(_)) || !sums_edges) {
            return Err(Error::Unsupported {
                operator: "Batches",
                reason: "the edges of such subgraphs have no factors, and weights are given; draw for a model that sums edges up by one of GraphSAINT's samplers, or leave the weights out".into(),
            });
        }
        let mut sampler = SubgraphSampler::new(backend, graph, &train, subgraphs)?;
        let mut in_training = vec![false; vertices];
        train
            .iter()
            .for_each(|&vertex| in_training[vertex as usize] = true);
        let (norms, loader) = match subgraphs {
            Subgraphs::Clusters(_) => {
                if norm == Norm::In {
                    return Err(no_in_norm());
                }
                let clusters = (0..sampler.clusters().len() as u32).collect();
                (None, Loader::new(clusters, batch, seed)?)
            }
            _ => {
                let coverage = sampler.coverage(backend, seed, coverage)?;
                let edges = match sums_edges {
                    true => {
                        let others = coverage.edge_norms(sampler.graph());
                        Some(GraphFactors::new(backend, graph, weights, norm, others)?)
                    }
                    false => None,
                };
                let norms = SubgraphNorms {
                    edges,
                    vertices: coverage.vertex_weights(),
                    divisor: task.divisor(loss, &train),
                };
                (Some(norms), coverage.loader(&train, seed)?)
            }
        };
        let source = Source::Subgraphs(Box::new(SubgraphBatches {
            sampler,
            norm,
            norms,
            in_training,
        }));
        Ok(Self::made(task, loss, loader, source))
    }

    /// Makes batches as `sampling` specifies, in which `model` learns from the training vertices of `task`. `hops` of
    /// its layers [aggregate](crate::nn::Network::hops). `graph` and the weights of its edges are those that the model
    /// is prepared from.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for whole graphs, which are for [`Batches::of_graphs`], and for a number of fanouts other
    /// than `hops`. Likewise for neighbour sampling with binary models, and for weights where edges are sampled without
    /// their ids. Those of [`Batches::new`] and [`Batches::of_subgraphs`].
    pub fn of_sampling(
        backend: &B,
        task: &Objective<B, E>,
        (loss, model, hops): (&Loss, &ModelConfig, usize),
        (graph, weights): (&Graph, Option<&[f32]>),
        (sampling, seed): (&Sampling, u64),
    ) -> Result<Self, Error> {
        let policy = &sampling.policy;
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: "Batches",
                reason,
            })
        };
        let (how, batch) = ((loss, model.norm()), sampling.batch as usize);
        if let Some(subgraphs) = policy.subgraphs() {
            let (graph, weights) = model.prepare_weighted(graph, weights)?;
            let plan = SubgraphPlan {
                subgraphs,
                batch,
                coverage: sampling.coverage,
                seed,
            };
            let sums_edges = model.normalizes_drawn_edges(weights.is_some());
            let of = (&*graph, weights.as_deref(), sums_edges);
            return Self::of_subgraphs(backend, task, how, of, plan);
        }
        if model.binary.is_some() {
            return refuse(format!(
                "of {policy} a layer hears from more vertices than it tells, and layers of one bit give a row for each that they read; take a sampler of subgraphs, or another model"
            ));
        }
        if let Some(fanouts) = policy.layers().filter(|&fanouts| fanouts != hops) {
            return refuse(format!(
                "{policy} has {fanouts} fanouts, and {hops} layers of the model hear from neighbours; name {hops} fanouts, or change the model's layers"
            ));
        }
        if weights.is_some() {
            return refuse(format!(
                "{policy} draws edges without their weights; take one of GraphSAINT's samplers, or leave the weights out"
            ));
        }
        let sampler = policy.sampler(backend, (graph, sampling.edges), model.wants_self_loops())?;
        Ok(Self {
            // Batches that the host samples have their own buffers.
            may_be_fixed: model.ignores_empty_rows() && sampling.edges != EdgesIn::Graph,
            may_read_in_place: model.reads_features_in_place(),
            ..Self::new(task, how, sampler, batch, seed)?
        })
    }

    /// Makes batches of the training vertices of `task`, which is [of several types](Objective::of_types). Neighbours
    /// are sampled as `sampling` specifies over every type of edges of `types`. `hops` layers of `model`
    /// [aggregate](crate::nn::Network::hops). Every layer reads the whole sample, as with PyG's `NeighborLoader`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `model` has one type, or `sampling` is not neighbour sampling of as many hops.
    /// Likewise where it names a type of edges that does not exist. [`Error::Shape`] where `task` has other vertices;
    /// [`Error::Driver`] where there is not enough memory.
    pub fn of_types(
        backend: &B,
        task: &Objective<B, E>,
        (loss, model, hops): (&Loss, &ModelConfig, usize),
        types: &Types,
        (sampling, seed): (&Sampling, u64),
    ) -> Result<Self, Error> {
        let source = TypeBatches::new(backend, (model, hops), types, sampling)?;
        let labelled = model.types.as_ref().map_or(0, |of| of.labelled);
        let of_graph = types.vertices()[labelled].vertices;
        Self::check(task, task.0.features.rows(), of_graph)?;
        let loader = Loader::new(task.0.lists[0].clone(), sampling.batch as usize, seed)?;
        let source = Source::Types(Box::new(source));
        Ok(Self::made(task, loss, loader, source))
    }

    /// Shards each batch over the ranks of `group`, which all have the whole task. Each rank has a contiguous range of
    /// its vertices (or graphs), and the first ranks one more where the division has a remainder. Each samples the
    /// in-neighbours of its own. Samples depend on the vertex and not on the rest of the batch, so the ranks together
    /// sample what one rank does. All ranks take a step together: see [`Trainer::sampled`](super::Trainer::sampled). A
    /// group of one rank changes nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for subgraphs, which cannot be sharded by vertex.
    pub fn among(mut self, group: &Group) -> Result<Self, Error> {
        if let Source::Subgraphs(_) = self.source {
            return Err(Error::Unsupported {
                operator: "Batches",
                reason: "a subgraph is drawn as one, and several ranks deal the vertices of a batch out; draw neighbours of vertices, or train with one rank".into(),
            });
        }
        if group.ranks() > 1 {
            self.group = Some(group.clone());
        }
        Ok(self)
    }

    /// The ranks over which batches are sharded, where there are several.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// This rank's share of a batch.
    pub(super) fn share(&self) -> Share {
        match &self.group {
            None => Share { rank: 0, ranks: 1 },
            Some(group) => Share {
                rank: group.rank(),
                ranks: group.ranks(),
            },
        }
    }

    /// Makes all batches use the same buffers, with unused capacity, where the model of [`Batches::of_sampling`]
    /// ignores it and the device benefits. Sampling is then recorded, and steps can be.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Driver`] where there is not enough memory.
    pub(super) fn in_place(mut self, backend: &B, record: bool) -> Result<Self, Error> {
        let gains = self.will_be_in_place(backend)?;
        // Sampling ahead for features on disk releases memory outside of the recordings, which would keep it from being
        // reused.
        let record = record && !self.reads_from_disk();
        let (share, inputs) = (self.share(), self.inputs(backend));
        if let (Source::Sampled(sampler, norm), true) = (&mut self.source, gains) {
            let of = (&self.task, &self.loss, *norm);
            let how = (&self.loader, share, record);
            let fixed = FixedBatches::new(backend, of, &mut **sampler, inputs, how)?;
            self.fixed = fixed.map(Box::new);
        }
        Ok(self)
    }

    /// Whether they are sampled. Whole graphs are not.
    pub(super) fn are_drawn(&self) -> bool {
        !matches!(self.source, Source::Graphs(_))
    }

    /// Whether they have several types of vertices.
    pub(super) fn is_of_types(&self) -> bool {
        matches!(self.source, Source::Types(_))
    }

    /// The sizes of batches of several types, estimated from the first ones of the run.
    pub(super) fn sizes_of_types(&mut self, backend: &B) -> Result<Option<BatchSizes>, Error> {
        let mut looked_at = Vec::new();
        for number in 0..LOOKED_AT.min(self.count()) {
            let (step, vertices) = self.seeds(0, number)?;
            let own = vertices[self.share().of(vertices.len())].to_vec();
            looked_at.push((step, own));
        }
        match &mut self.source {
            Source::Types(batches) => batches.sizes(backend, &looked_at, self.loader.seed()),
            _ => Ok(None),
        }
    }

    /// The features of all vertices of the task.
    pub(super) fn features(&self) -> Arc<FeatureRows<B, E>> {
        self.task.0.features.clone()
    }

    /// The number of vertices of the graph.
    pub(super) fn vertices(&self) -> usize {
        self.task.0.features.rows()
    }

    /// Whether features are read from disk, batch by batch.
    pub(super) fn reads_from_disk(&self) -> bool {
        self.task.0.features.as_stored().is_some()
    }

    /// Whether they [will](Batches::in_place) use the same buffers each time.
    pub(super) fn will_be_in_place(&self, backend: &B) -> Result<bool, Error> {
        // A device that does not record would compute on the unused capacity for nothing.
        Ok(self.may_be_fixed && backend.record(|| Ok(()))?.is_some())
    }

    /// The sources of the first layer, where batches [will](Batches::in_place) use the same buffers. All vertices, read
    /// in place, where their features are on the device and the model needs nothing else.
    pub(super) fn inputs(&self, backend: &B) -> LayerSources {
        let features = &self.task.0.features;
        let hops = match &self.source {
            Source::Sampled(sampler, _) => sampler.layers(),
            Source::Graphs(_) | Source::Subgraphs(_) | Source::Types(_) => 0,
        };
        let are_there = features.are_whole() && !features.matrix().is_remote(backend);
        match self.may_read_in_place && are_there && hops > 1 {
            true => LayerSources::All,
            false => LayerSources::Met,
        }
    }

    /// The number of batches that are sampled during a training step, where they [will](Batches::in_place) use the same
    /// buffers.
    pub(super) fn will_be_drawn_ahead(&self, backend: &B) -> usize {
        batches_ahead(backend, &self.task.0.features)
    }

    /// Whether they use the same buffers each time.
    pub(super) fn are_in_place(&self) -> bool {
        self.fixed.is_some()
    }

    /// Whether steps read features from the matrix of all vertices.
    pub(super) fn read_in_place(&self) -> bool {
        let inputs = self.fixed.as_ref().map(|fixed| fixed.inputs());
        inputs == Some(LayerSources::All)
    }

    /// Discards recordings of batches. A recording keeps the memory that others release while it lives.
    pub(super) fn forget(&mut self) {
        if let Some(fixed) = &mut self.fixed {
            fixed.forget();
        }
    }

    /// Batches that are neither sharded nor in the same buffers each time.
    fn made(task: &Objective<B, E>, loss: &Loss, loader: Loader, source: Source<B, E>) -> Self {
        Self {
            task: task.clone(),
            loss: loss.clone(),
            loader,
            source,
            order: None,
            may_be_fixed: false,
            may_read_in_place: false,
            fixed: None,
            group: None,
            ahead: None,
            random: RandomOfStep::default(),
        }
    }

    /// Refuses a task that has no batches, and a graph of other vertices.
    fn check(task: &Objective<B, E>, vertices: usize, of_graph: usize) -> Result<(), Error> {
        const NAME: &str = "Batches";
        if task.changes() {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: "batches are of vertices, and this task tells links; train it whole".into(),
            });
        }
        Error::expect(NAME, "vertices of the sampler", vertices, of_graph)
    }

    /// The number of batches of an epoch.
    pub fn count(&self) -> usize {
        self.loader.batches()
    }

    /// Batch `number` of an epoch, both from 0 on, and the number of its vertices. With several [ranks](Batches::among)
    /// it is this rank's part, whose loss has the divisor of the whole batch. The number of vertices is that of all
    /// ranks.
    ///
    /// # Errors
    /// [`Error::Shape`] where an epoch has fewer batches, [`Error::Unsupported`] where this rank has no vertex of it;
    /// those of the sampler and of [`Objective::of`].
    pub fn batch(
        &mut self,
        backend: &B,
        epoch: u32,
        number: usize,
    ) -> Result<(Objective<B, E>, usize), Error> {
        let (own, vertices) = self.own(backend, (epoch, number), None)?;
        let own = own.ok_or_else(|| Error::Unsupported {
            operator: "Batches",
            reason: format!(
                "batch {number} has {vertices} vertices, which are fewer than there are ranks, and none is this one's"
            ),
        })?;
        Ok((own, vertices))
    }

    /// [`Batches::batch`], where this rank has a part of it. `dropout` applies to features whose rows the device
    /// gathers.
    pub(super) fn own(
        &mut self,
        backend: &B,
        (epoch, number): (u32, usize),
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<(Option<Objective<B, E>>, usize), Error> {
        let (step, vertices) = self.seeds(epoch, number)?;
        let own = &vertices[self.share().of(vertices.len())];
        if own.is_empty() {
            self.task.0.features.take_none(backend)?;
            return Ok((None, vertices.len()));
        }
        let learnt = Learnt {
            own,
            whole: self.group.is_some().then_some(&vertices[..]),
        };
        if let Source::Graphs(graphs) = &mut self.source {
            let features = self.task.0.features.matrix();
            let made = learnt.objective(backend, &self.task, &self.loss, |goal| {
                graphs.objective(backend, own, features, goal)
            });
            return Ok((Some(made?), vertices.len()));
        }
        if let Source::Types(batches) = &mut self.source {
            let seeds = type_batches::Seeds {
                own,
                whole: learnt.whole,
                draw: (self.loader.seed(), step),
            };
            let made = batches.objective(backend, (&self.task, &self.loss), seeds);
            return Ok((Some(made?), vertices.len()));
        }
        let ahead = self.ahead.take().filter(|ahead| ahead.step == step);
        let (drawn, rows) = match ahead {
            Some(Ahead { drawn, rows, .. }) => (drawn, Some(rows)),
            None => (self.draw(backend, step, own)?, None),
        };
        let (inputs, whole) = (drawn.inputs(), &self.task.0.features);
        let shape = (inputs.len(), whole.columns());
        let mut features = Matrix::uninit(backend, shape.0, shape.1, MemoryKind::Features)?;
        let is_there = match rows {
            Some(rows) => rows.finish(backend, inputs, &mut features)?,
            None => false,
        };
        let dropout = dropout.filter(|_| whole.are_whole());
        let dropout = self.random.dropout(backend, dropout, step)?;
        if !is_there {
            whole.take_through(backend, dropout, inputs, &mut features)?;
        }
        let is_dropped = dropout.is_some();
        let (task, loss) = (&self.task, &self.loss);
        let (own, vertices) = match (&self.source, drawn) {
            (Source::Subgraphs(subgraphs), Drawn::Subgraph(drawn)) => {
                subgraphs.objective(backend, task, loss, (*drawn, features))?
            }
            (Source::Sampled(_, norm), Drawn::Sampled(batch)) => {
                let graphs = (batch.blocks.into_iter())
                    .map(|block| Propagation::of_sampled(backend, block, *norm))
                    .collect::<Result<_, _>>()?;
                let made = learnt.objective(backend, task, loss, |goal| {
                    Objective::of(backend, graphs, features, goal)
                });
                (made?, vertices.len())
            }
            _ => unreachable!("a batch is drawn by what draws batches"),
        };
        let own = match is_dropped {
            true => own.of_dropped(),
            false => own,
        };
        Ok((Some(own), vertices))
    }

    /// Samples a batch. Whole graphs are not sampled.
    pub(super) fn draw(
        &mut self,
        backend: &B,
        step: u32,
        vertices: &[u32],
    ) -> Result<Drawn<B>, Error> {
        let seed = self.loader.seed();
        match &mut self.source {
            Source::Sampled(sampler, _) => {
                let batch = sampler.sample(backend, vertices, seed, step)?;
                Ok(Drawn::Sampled(batch))
            }
            Source::Subgraphs(subgraphs) => {
                let drawn = subgraphs.draw(backend, (seed, step, vertices))?;
                Ok(Drawn::Subgraph(Box::new(drawn)))
            }
            Source::Graphs(_) | Source::Types(_) => {
                unreachable!("such a batch is made as a whole")
            }
        }
    }

    /// Samples a batch whose features are on disk, and starts to read them during the current step. It is the batch
    /// that is requested next, if the epoch has one. Also starts sampling on the host, for the batch that is sampled
    /// next.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Features`] where nothing can be read. Errors of the reading itself are
    /// reported when the batch is requested.
    pub(super) fn fetch_ahead(
        &mut self,
        backend: &B,
        epoch: u32,
        number: usize,
    ) -> Result<(), Error> {
        if self.reads_from_disk() && number < self.count() {
            let (step, vertices) = self.seeds(epoch, number)?;
            let own = &vertices[self.share().of(vertices.len())];
            if own.is_empty() {
                return Ok(());
            }
            let drawn = self.draw(backend, step, own)?;
            let inputs = drawn.inputs().to_vec(backend)?;
            let rows = self.task.0.features.read_ahead(inputs)?;
            self.ahead = rows.map(|rows| Ahead { step, drawn, rows });
        }
        self.begin(epoch, number + usize::from(self.ahead.is_some()))
    }

    /// Starts to sample a batch, if the epoch has it, where the sampler runs in parallel to the device.
    fn begin(&mut self, epoch: u32, number: usize) -> Result<(), Error> {
        if number >= self.count() || !matches!(self.source, Source::Sampled(..)) {
            return Ok(());
        }
        let (step, vertices) = self.seeds(epoch, number)?;
        let own = &vertices[self.share().of(vertices.len())];
        if let (Source::Sampled(sampler, _), false) = (&mut self.source, own.is_empty()) {
            sampler.begin(own, self.loader.seed(), step);
        }
        Ok(())
    }

    /// [`Batches::batch`] in the buffers of an earlier one, if batches [use them](Batches::in_place) and it fits. The
    /// batch must be dropped before the next one is sampled or requested.
    pub(super) fn next_in_place(
        &mut self,
        backend: &B,
        (epoch, number): (u32, usize),
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<Option<InPlace<B, E>>, Error> {
        if self.fixed.is_none() {
            return Ok(None);
        }
        let (step, vertices) = self.seeds(epoch, number)?;
        if self.share().of(vertices.len()).is_empty() {
            return Ok(None);
        }
        let Self {
            fixed: Some(fixed),
            task,
            loss,
            ahead,
            ..
        } = self
        else {
            return Ok(None);
        };
        let mut fetch = |inputs: &Array<B, u32>, features: &mut Matrix<B, E>| {
            let ahead = ahead.take().filter(|ahead| ahead.step == step);
            let is_there = match ahead {
                Some(ahead) => ahead.rows.finish(backend, inputs, features)?,
                None => false,
            };
            match is_there {
                true => Ok(()),
                false => task.0.features.take_into(backend, inputs, features),
            }
        };
        let features = (dropout, &mut fetch as &mut Fetch<'_, B, E>);
        let batch = fixed.batch(backend, (task, loss), (step, &vertices), features)?;
        if batch.is_none() {
            // The memory of a batch in its own buffers must be free again after it, and recordings would keep it.
            fixed.forget();
        }
        Ok(batch.map(|(batch, place)| InPlace {
            batch,
            place,
            vertices: vertices.len(),
        }))
    }

    /// Samples the batches that are requested next, from `number` on, if the epoch has them, during the step on the
    /// previous one. It does so where batches are [in place](Batches::in_place) and the device runs several streams.
    /// All earlier steps must be complete.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn draw_ahead(
        &mut self,
        backend: &B,
        (epoch, number): (u32, usize),
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<(), Error> {
        let ahead = self.fixed.as_ref().map_or(0, |it| it.batches_ahead());
        for number in (number..self.count()).take(ahead) {
            let (step, vertices) = self.seeds(epoch, number)?;
            if self.share().of(vertices.len()).is_empty() {
                return Ok(());
            }
            if let Some(fixed) = &mut self.fixed {
                let of = (&self.task, &self.loss);
                fixed.draw_ahead(backend, of, (step, &vertices), dropout)?;
            }
        }
        Ok(())
    }

    /// The handle that samples batches during the steps on them, if there is one.
    pub(super) fn drawer(&self) -> Option<B> {
        self.fixed.as_ref()?.drawer().cloned()
    }

    /// The step that seeds the sampling of a batch, and its seed vertices.
    pub(super) fn seeds(&mut self, epoch: u32, number: usize) -> Result<(u32, Vec<u32>), Error> {
        if number >= self.count() {
            return Err(Error::Unsupported {
                operator: "Batches",
                reason: format!(
                    "batch {number} of an epoch that has {}, from 0 on",
                    self.count()
                ),
            });
        }
        self.order = self.order.take().filter(|(of, _)| *of == epoch);
        let order = || (epoch, self.loader.epoch(epoch).collect());
        let (_, order) = self.order.get_or_insert_with(order);
        let Seeds { step, vertices, .. } = &order[number];
        Ok((*step, vertices.clone()))
    }
}

/// The training vertices, or graphs, of a batch.
#[derive(Clone, Copy)]
struct Learnt<'a> {
    /// All of this rank.
    own: &'a [u32],
    /// Those of all ranks, where there are several.
    whole: Option<&'a [u32]>,
}

impl Learnt<'_> {
    /// The task of a batch, made from its targets. With several ranks the loss has the divisor of the whole batch.
    fn objective<B: Backend, E: Element>(
        self,
        backend: &B,
        task: &Objective<B, E>,
        loss: &Loss,
        make: impl FnOnce(&Goal<'_>) -> Result<Objective<B, E>, Error>,
    ) -> Result<Objective<B, E>, Error> {
        let all: Vec<u32> = (0..self.own.len() as u32).collect();
        let objective = make(&Goal {
            targets: &task.0.targets.selected(self.own),
            outputs: task.outputs(),
            loss,
            splits: [&all, &[], &[]],
        })?;
        match self.whole {
            None => Ok(objective),
            Some(whole) => {
                let ones = vec![1.0; self.own.len()];
                objective.weighing(backend, &ones, task.divisor(loss, whole))
            }
        }
    }
}

/// The error for a norm that a block alone does not determine.
fn no_in_norm() -> Error {
    Error::Unsupported {
        operator: "Batches",
        reason: "the norm `in` wants the in-degrees of sources, which a sampled block does not have; take the norm `both`".into(),
    }
}
