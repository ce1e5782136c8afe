//! What a trainer learns from batch by batch.

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

/// A task whose training vertices are learnt from in batches: see [`Trainer::sampled`](super::Trainer::sampled).
#[derive(Debug)]
pub struct Batches<B: Backend, E: Element> {
    /// Whose features and targets they are.
    task: Objective<B, E>,
    loss: Loss,
    loader: Loader,
    source: Source<B, E>,
    /// The seeds of an epoch, of which batches were asked for last.
    order: Option<(u32, Vec<Seeds>)>,
    /// Whether batches may have room that is empty.
    may_be_fixed: bool,
    /// Whether features may be read where those of all vertices lie.
    may_read_in_place: bool,
    /// The same batches in the same memory each time.
    fixed: Option<Box<FixedBatches<B, E>>>,
    /// The ranks among which each is dealt out.
    group: Option<Group>,
    /// The next batch, where its features are read from disk meanwhile.
    ahead: Option<Ahead<B, E>>,
    random: RandomOfStep<B>,
}

/// A rank's part of each batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    rank: usize,
    ranks: usize,
}

impl Share {
    /// Which of so many vertices. Of more vertices no rank has fewer.
    pub(super) fn of(self, count: usize) -> Range<usize> {
        let (each, more) = (count / self.ranks, count % self.ranks);
        let start = |rank: usize| each * rank + rank.min(more);
        start(self.rank)..start(self.rank + 1)
    }
}

/// A batch that was drawn, before its features are there.
#[derive(Debug)]
pub(super) enum Drawn<B: Backend> {
    Sampled(Batch<B>),
    Subgraph(Box<DrawnSubgraph<B>>),
}

impl<B: Backend> Drawn<B> {
    /// The vertices whose features go in.
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

/// What makes a batch.
#[derive(Debug)]
enum Source<B: Backend, E: Element> {
    /// Vertices, and what is drawn of their neighbours, with a degree norm of each block.
    Sampled(Box<dyn Sampler<B>>, Norm),
    /// Whole graphs.
    Graphs(Box<GraphBatches>),
    /// Vertices that are chosen together, and the edges between them.
    Subgraphs(Box<SubgraphBatches<B, E>>),
    /// Vertices of a graph of several types, and a sample of their neighbors.
    Types(Box<TypeBatches<B>>),
}

/// A batch that lies where another lay.
pub(super) struct InPlace<B: Backend, E: Element> {
    pub(super) batch: Objective<B, E>,
    /// Where that is, from 0 on.
    pub(super) place: usize,
    /// How many vertices learn in it, on all ranks.
    pub(super) vertices: usize,
}

impl<B: Backend, E: Element> Batches<B, E> {
    /// Batches of `batch` of the training vertices of `task`, in orders that `seed` decides, of what `sampler` draws of their graph
    /// by the same seed; `loss` is the task's and `norm` the model's, taken of the degrees of each block.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sampler is of another number of vertices, [`Error::Unsupported`] for batches of no vertices, a task
    /// of links, and [`Norm::In`], which blocks have not.
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

    /// Batches of `batch` of the training graphs of `task`, which `graphs` are, in orders that `seed` decides; `loss` is the task's.
    ///
    /// # Errors
    /// [`Error::Shape`] where the task is of another number of graphs or of vertices, [`Error::Unsupported`] for batches of no graphs.
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

    /// Batches of subgraphs in which all vertices are heard and those of training learn: GraphSAINT's (Zeng et al., ICLR 2020), or of
    /// [clusters](Subgraphs::Clusters) `batch` at a time. `graph` is that of `task` as the model wants it, with the weights of its
    /// edges; `loss` is the task's and `norm` the model's.
    ///
    /// Subgraphs that are drawn are normalised by how often vertices and edges come into them, which is counted first
    /// ([`SubgraphSampler::coverage`] of `coverage` times the graph): losses always, and edges where the model `sums_edges` by
    /// factors of theirs ([`ModelConfig::normalizes_drawn_edges`]), with the degree norm of the whole graph. Clusters, and all other
    /// models, have the norm of the subgraph's own degrees. An epoch has so many subgraphs as have the training vertices
    /// of the graph, in the mean.
    ///
    /// # Errors
    /// Those of [`SubgraphSampler`], [`GraphFactors`] and [`Batches::new`], and [`Error::Unsupported`] for weights of edges that have no
    /// factors.
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

    /// Batches as `sampling` says, in which `model`, so many of whose layers [hear from neighbours](crate::nn::Network::hops), learns from the
    /// training vertices of `task`; `graph` and the weights of its edges are those that the model is prepared from.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for whole graphs, of which [`Batches::of_graphs`] makes batches, for as many fanouts as the model has
    /// no layers, for neighbours of models of bits, and for weights where edges are drawn without their numbers; those of [`Batches::new`]
    /// and [`Batches::of_subgraphs`].
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
            // What the host draws comes in memory of its own.
            may_be_fixed: model.ignores_empty_rows() && sampling.edges != EdgesIn::Graph,
            may_read_in_place: model.reads_features_in_place(),
            ..Self::new(task, how, sampler, batch, seed)?
        })
    }

    /// Batches of the training vertices of `task`, which is [of several types](Objective::of_types), with neighbors that are sampled as `sampling`
    /// says over every type of edges of `types`. `hops` layers of `model` [aggregate](crate::nn::Network::hops). Every layer reads the whole
    /// sample, as with PyG's `NeighborLoader`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `model` has one type, or `sampling` is no neighbor sampling of as many hops, or names a type of edges that is
    /// not there; [`Error::Shape`] where `task` has other vertices; [`Error::Driver`] where there is not enough memory.
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

    /// The same batches, each of which is dealt out to the ranks of `group`, which all have the whole task: of its vertices (or graphs) each
    /// has as many in a row, the first ranks one more where they do not come out even, and draws what they hear from. Draws follow from the
    /// vertex, not from who else is in a batch, so together the ranks draw what one rank does. A step is on all of them: see
    /// [`Trainer::sampled`](super::Trainer::sampled). One rank is as none.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for subgraphs, which are not made of vertices that could be dealt out.
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

    /// The ranks among which batches are dealt out, where there are several.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Which part of a batch this rank has.
    pub(super) fn share(&self) -> Share {
        match &self.group {
            None => Share { rank: 0, ranks: 1 },
            Some(group) => Share {
                rank: group.rank(),
                ranks: group.ranks(),
            },
        }
    }

    /// Has batches in the same memory each time, with room that is empty behind what each has, where the model of
    /// [`Batches::of_sampling`] takes no notice of that and the device gains by it: then drawing them is recorded, and steps can be.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Driver`] where there is not enough memory.
    pub(super) fn in_place(mut self, backend: &B, record: bool) -> Result<Self, Error> {
        let gains = self.will_be_in_place(backend)?;
        // What is drawn ahead of a batch on disk gives memory back beside the recordings, which would not be used again.
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

    /// Whether they are drawn, and not whole graphs.
    pub(super) fn are_drawn(&self) -> bool {
        !matches!(self.source, Source::Graphs(_))
    }

    /// Whether they are of several types of vertices.
    pub(super) fn is_of_types(&self) -> bool {
        matches!(self.source, Source::Types(_))
    }

    /// How large batches of several types are, as the first ones of the run tell.
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

    /// The features of all vertices that they are of.
    pub(super) fn features(&self) -> Arc<FeatureRows<B, E>> {
        self.task.0.features.clone()
    }

    /// Vertices of the graph that they are of.
    pub(super) fn vertices(&self) -> usize {
        self.task.0.features.rows()
    }

    /// Whether features are read from disk, batch by batch.
    pub(super) fn reads_from_disk(&self) -> bool {
        self.task.0.features.as_stored().is_some()
    }

    /// Whether they [are to](Batches::in_place) lie in the same memory each time.
    pub(super) fn will_be_in_place(&self, backend: &B) -> Result<bool, Error> {
        // Of a device that records nothing the room would only be computed on.
        Ok(self.may_be_fixed && backend.record(|| Ok(()))?.is_some())
    }

    /// What features go in where they [are to](Batches::in_place) lie in the same memory: those of all vertices, which are read where they lie,
    /// if that is on the device and the model asks for no more.
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

    /// How many of them are drawn while another is learnt from, where they are [to](Batches::in_place) lie in the same memory.
    pub(super) fn will_be_drawn_ahead(&self, backend: &B) -> usize {
        batches_ahead(backend, &self.task.0.features)
    }

    /// Whether they lie in the same memory each time.
    pub(super) fn are_in_place(&self) -> bool {
        self.fixed.is_some()
    }

    /// Whether steps read features where those of all vertices lie.
    pub(super) fn read_in_place(&self) -> bool {
        let inputs = self.fixed.as_ref().map(|fixed| fixed.inputs());
        inputs == Some(LayerSources::All)
    }

    /// Forgets what was recorded of batches: a recording keeps the memory that others give back while it lives.
    pub(super) fn forget(&mut self) {
        if let Some(fixed) = &mut self.fixed {
            fixed.forget();
        }
    }

    /// Batches that are neither on ranks nor in the same memory each time.
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

    /// Refuses what has no batches, and a graph of other vertices.
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

    /// Batches of an epoch.
    pub fn count(&self) -> usize {
        self.loader.batches()
    }

    /// Batch `number` of an epoch, both from 0 on, and of how many vertices it is. Of several [ranks](Batches::among) it is this one's
    /// part, whose loss is divided by what that of the whole batch is; the vertices are those of all.
    ///
    /// # Errors
    /// [`Error::Shape`] where an epoch has fewer batches, [`Error::Unsupported`] where this rank has no vertex of it; those of the sampler
    /// and of [`Objective::of`].
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

    /// [`Batches::batch`], where this rank has a part of it. Features of which rows are picked on the device go through `dropout` on
    /// the way.
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

    /// Draws a batch; of whole graphs none is drawn.
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

    /// Draws a batch whose features stay on disk, and has them read while the one before is computed on. It is the one that is asked
    /// for next, if there is one in the epoch. What the host draws is begun, of the batch that is drawn next.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Features`] where nothing can be read; what goes wrong with the reading is told when the batch
    /// is asked for.
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

    /// Begins to draw a batch, if there is one in the epoch, where that is done beside the device.
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

    /// [`Batches::batch`] where one before lay, if they [do](Batches::in_place) and it has room there. It is to be given back before the
    /// next is drawn or asked for.
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
            // What is drawn in memory of its own is to be free again behind it.
            fixed.forget();
        }
        Ok(batch.map(|(batch, place)| InPlace {
            batch,
            place,
            vertices: vertices.len(),
        }))
    }

    /// Draws the batches that are asked for next, from `number` on, if there are some in the epoch, while the step on the one before is
    /// computed: where batches lie [in place](Batches::in_place), and a device does several things at a time. All steps but that one are to
    /// be done.
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

    /// Who draws batches beside the steps on them, if somebody does.
    pub(super) fn drawer(&self) -> Option<B> {
        self.fixed.as_ref()?.drawer().cloned()
    }

    /// What a batch is drawn by, and its seeds.
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

/// The vertices, or graphs, that are learnt of a batch.
#[derive(Clone, Copy)]
struct Learnt<'a> {
    /// All of its own.
    own: &'a [u32],
    /// Those of all ranks, where there are several.
    whole: Option<&'a [u32]>,
}

impl Learnt<'_> {
    /// The task of a batch, made of what it is to tell. Of several ranks the loss is divided by what that of all is.
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

/// That a block alone does not tell what the norm wants.
fn no_in_norm() -> Error {
    Error::Unsupported {
        operator: "Batches",
        reason: "the norm `in` wants the in-degrees of sources, which a sampled block does not have; take the norm `both`".into(),
    }
}
