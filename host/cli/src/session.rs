//! Training on a device that is not known before the program runs.

use crate::checkpoint::{Run, Saving};
use crate::failure::Failure;
use crate::feature_cache::FeatureCache;
use crate::placement::{
    BatchMemory, Fetched, OnDisk, PieceCount, Placement, PlacementArgs, WorkOn, place, place_types,
};
use crate::ranks::{self, Ranks};
use crate::structure::{EdgePlace, EdgesElsewhere, Made, StructureName, lacks_room};
use crate::task::Goal;
use halfgnn::backend::{Backend, MemoryKind, MemoryReport};
use halfgnn::data::{Dataset, FeatureRows, Types, UploadFeatures};
use halfgnn::device::{Device, Task};
use halfgnn::distributed::{Gather, Group};
use halfgnn::graph::Graph;
use halfgnn::metrics::Metric;
use halfgnn::nn::{EdgeData, ModelConfig, Network, Pieces, PreparedGraph, Propagation, kept_as};
use halfgnn::sample::{EdgesIn, Sampling, SamplingPolicy, Subgraphs};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{
    self, BatchReport, Batches, Checkpoint, EpochReport, Footprint, GraphBatches, Loss, Objective,
    RunSummary, Split, Spread, Status, TrainConfig, Trainer, Work, host_memory,
};
use halfgnn::with_element;
use halfgnn_bench::names::FeaturesName;
use halfgnn_bench::rank_memory::RankMemory;

use std::borrow::Cow;
use std::iter;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What to train, and how: one model shape, with one or more seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What a person calls it.
    pub label: &'static str,
    /// Precision of state tensors.
    pub precision: Precision,
    /// The model.
    pub model: ModelConfig,
    /// What it is to report.
    pub goal: Goal,

    /// How it is cut into batches, where it is.
    pub sampling: Option<Sampling>,
    /// Where what is computed on may lie.
    pub placement: PlacementArgs,
    /// The folder for what layers give, with features on disk.
    pub between: PathBuf,
    /// What of a GPU's memory is for copies of features that lie in the host's.
    pub feature_cache: FeatureCache,
    /// Where the edges are to lie that neighbours are sampled of.
    pub structure: StructureName,
    /// The ranks that train it together, where there are several.
    pub ranks: Option<Ranks>,
    /// What the columns of the dataset's features were divided by, where they were.
    pub feature_divisors: Option<Vec<f32>>,
    /// How it is trained; the seed is that of the first run.
    pub train: TrainConfig,
    /// Number of runs.
    pub seeds: u32,
    /// Where the run is kept, and on which dataset it is trained.
    pub saving: Option<(Saving, TaskIdentity)>,
    /// The run to go on with.
    pub resume: Option<Checkpoint>,
}

/// What came of a [`Plan`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The device's name.
    pub device: String,
    /// Memory of the device at its peak.
    pub memory: MemoryReport,
    /// Messages that were out of the range of their scales, in all runs, where they are sent in 8 bits.
    pub saturated: Option<u64>,
    /// The runs, each with its seed.
    pub runs: Vec<(u64, RunSummary)>,
}

impl Plan {
    /// What a person calls it, and the precision where the name does not have it.
    pub fn title(&self) -> String {
        let precision = match self.model.binary_name() {
            Some(binary) => format!("binary {binary} {}", self.precision),
            None => self.precision.to_string(),
        };
        if self.label.split(' ').any(|word| word == precision) {
            self.label.into()
        } else {
            format!("{} {precision}", self.label)
        }
    }

    /// What the runs compute with and what is in fewer bits, for a person.
    pub fn formats(&self) -> String {
        let binary = self.model.binary_name();
        let binary = binary.map(|binary| format!(", binary {binary}"));
        let messages =
            (self.model.messages).map(|format| format!(", messages in {}", format.name()));
        let store =
            (self.model.store).map(|store| format!(", activations stored in {}", store.name()));
        let fewer = [binary, messages, store].into_iter().flatten();
        iter::once(self.precision.to_string())
            .chain(fewer)
            .collect()
    }

    /// Whether each rank may have a share of the features and ask the others for rows.
    fn may_share_features(&self) -> bool {
        let learns_vertices = |sampling: &Sampling| sampling.policy != SamplingPolicy::Graphs;
        self.sampling.as_ref().is_some_and(learns_vertices)
    }

    /// The files in which the runs are kept.
    pub fn saved(&self) -> Vec<PathBuf> {
        let saving = self.saving.iter();
        saving
            .flat_map(|(saving, _)| saving.paths(self.train.seed, self.seeds))
            .collect()
    }
}

impl Outcome {
    /// The metric that chose the epochs.
    pub fn metric(&self) -> Metric {
        let last = self.runs.iter().find_map(|(_, run)| run.last);
        last.map_or(Metric::default(), |last| last.score.metric)
    }

    /// Whether a run kept its last epoch since no epoch has a validation score.
    pub fn lacks_validation(&self) -> bool {
        self.runs.iter().any(|(_, run)| run.lacks_validation())
    }

    /// The other metrics, and what they say of the test vertices at the kept epoch.
    pub fn others(&self) -> Vec<(Metric, Spread)> {
        let last = self.runs.iter().find_map(|(_, run)| run.last);
        let metrics = last
            .iter()
            .flat_map(|last| last.others.iter())
            .map(|score| score.metric);
        let spread = |metric| {
            let of_run =
                |best: EpochReport| best.others.iter().find(|score| score.metric == metric);
            let best = self
                .runs
                .iter()
                .filter_map(|(_, run)| run.kept().and_then(of_run));
            (metric, Spread::of(best.map(|score| score.of(Split::Test))))
        };
        metrics.map(spread).collect()
    }

    /// What the metric says of the test vertices at the kept epoch.
    pub fn test_score(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.test_score()))
    }

    /// What it says of them at the last epoch.
    pub fn test_score_last(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.test_score_last()))
    }

    /// Milliseconds of a training step.
    pub fn ms_per_epoch(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.ms_per_epoch))
    }

    /// How the last run ended.
    pub fn status(&self) -> Status {
        self.runs
            .last()
            .map_or(Status::Stopped, |(_, run)| run.status)
    }

    /// Steps that were skipped for an overflow, in all runs.
    pub fn skipped(&self) -> u32 {
        self.runs
            .iter()
            .filter_map(|(_, run)| run.last)
            .map(|last| last.optimizer.skipped)
            .sum()
    }
}

/// Who follows a session.
pub trait Observer {
    /// Where what is computed on is to lie, for a run or several.
    fn placed(&mut self, placement: Placement);
    /// What each rank is going to take of its device, where there are several; and what others give it, of a graph that
    /// is partitioned.
    fn ranks_take(&mut self, memory: &RankMemory, gather: Option<Gather>);
    /// What runs take that learn from the whole graph, before the first step.
    fn foretold(&mut self, plan: &Plan, memory: &Footprint);
    /// What runs in batches take, before the first step.
    fn batches_foretold(&mut self, plan: &Plan, memory: &BatchMemory);
    /// A run begins.
    fn run_starts(&mut self, plan: &Plan, device: &str, seed: u64);
    /// A batch of an epoch is done; may end the session.
    fn batch(&mut self, report: &BatchReport) -> ControlFlow<()>;
    /// An epoch is done; may end the session.
    fn epoch(&mut self, plan: &Plan, seed: u64, report: &EpochReport) -> ControlFlow<()>;
    /// A run is done.
    fn run_ends(&mut self, plan: &Plan, seed: u64, run: &RunSummary);
}

/// Plans that are carried out one after the other on one device.
pub struct Session<'a> {
    /// The labelled graph.
    pub dataset: &'a Dataset,
    /// What to train.
    pub plans: &'a [Plan],
    /// Who follows.
    pub observer: &'a mut dyn Observer,
}

impl Task for Session<'_> {
    type Output = Result<Vec<Outcome>, Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let mut outcomes = Vec::new();
        for plan in self.plans {
            let outcome = with_element!(plan.precision, E => {
                match &plan.ranks {
                    Some(ranks) => {
                        ranks::carry_out::<B, E>(device, self.dataset, (plan, ranks), self.observer)
                    }
                    None => carry_out::<B, E>(device, self.dataset, plan, self.observer),
                }
            })?;
            let stopped = outcome.status() == Status::Stopped;
            outcomes.push(outcome);
            if stopped {
                break;
            }
        }
        Ok(outcomes)
    }
}

fn carry_out<B: Backend, E: Element>(
    device: &Device<B>,
    dataset: &Dataset,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Outcome, Failure> {
    let backend = &device.backend;
    for (tensor, kept) in kept_as(plan.precision, plan.model.messages, plan.model.store) {
        tracing::info!("kept in {kept}: {tensor}");
    }
    let placed = Placed::<E>::new(device, dataset, plan)?;
    observer.placed(placed.placement);
    if plan.sampling.is_none() {
        observer.foretold(plan, &placed.placement.footprint);
    }

    backend.reset_peak();
    let tasks = placed.tasks(backend, None)?;
    let device_name = backend.name();
    let mut runs = Vec::new();
    let mut saturated = None;
    for seed in (0..plan.seeds).map(|run| plan.train.seed.wrapping_add(run.into())) {
        observer.run_starts(plan, &device_name, seed);
        let run = placed.train(device, &tasks, (seed, None), Some(observer))?;
        if let Some(more) = run.saturated {
            *saturated.get_or_insert(0) += more;
        }
        observer.run_ends(plan, seed, &run.summary);
        runs.push((seed, run.summary));
        if run.stopped {
            break;
        }
    }
    Ok(Outcome {
        device: device_name,
        memory: backend.memory(),
        saturated,
        runs,
    })
}

/// A plan on a graph that is as the model needs it, and where it is to lie; nothing of it is on a device yet.
pub struct Placed<'a, E: Element> {
    dataset: &'a Dataset,
    plan: &'a Plan,
    graph: PreparedGraph<'a>,
    /// Where features and graph lie, and what that takes.
    pub placement: Placement,
    pieces: Option<Pieces<E>>,
    /// Where the edges lie of which the first run's neighbours were sampled.
    edges: OnceLock<EdgesIn>,
}

/// A plan on a graph that is as the model needs it; where it is to lie is open.
struct Whole<'a> {
    dataset: &'a Dataset,
    plan: &'a Plan,
    graph: PreparedGraph<'a>,
}

impl<'a> Whole<'a> {
    fn new(dataset: &'a Dataset, plan: &'a Plan) -> Result<Self, Failure> {
        let config = &plan.model;
        let graph = config.prepare_edges(&dataset.graph, EdgeData::of_dataset(config, dataset))?;
        Ok(Self {
            dataset,
            plan,
            graph,
        })
    }

    /// Whence features are fetched that stay on disk.
    fn on_disk(&self) -> Option<Fetched<'a>> {
        let stored = self.dataset.features.as_stored();
        let on_disk = |features| OnDisk {
            features,
            between: &self.plan.between,
        };
        stored.map(|stored| Fetched::Disk(on_disk(stored)))
    }

    /// Where it fits.
    fn place<B: Backend, E: Element>(
        &self,
        device: &Device<B>,
        (asked, fetched): (PlacementArgs, Option<Fetched<'_>>),
    ) -> Result<(Placement, Option<Pieces<E>>), Failure> {
        let (graph, plan) = (&self.graph, self.plan);
        let work = Work::of_run(plan.sampling.is_some());
        if self.dataset.types.is_some() {
            let learning = (&plan.model, &plan.train, work).into();
            let learning = plan.goal.counting(learning, self.dataset);
            let placed = place_types::<B, E>(self.dataset, learning, device, asked)?;
            return Ok((placed, None));
        }
        let of = WorkOn {
            prepared: graph,
            graphs: self.dataset.graphs.as_ref(),
            fetched,
            asked_for: self.evaluated(),
        };
        let learning = (&plan.model, &plan.train, work).into();
        place::<B, E>(
            of,
            plan.goal.counting(learning, self.dataset),
            device,
            asked,
        )
    }

    /// The vertices that evaluations are about, those of all splits; none of links.
    fn evaluated(&self) -> Option<Vec<u32>> {
        let Dataset {
            train, val, test, ..
        } = self.dataset;
        let of_vertices = matches!(self.plan.goal, Goal::Vertices { .. });
        of_vertices.then(|| [&train[..], val, test].concat())
    }

    fn placed<E: Element>(
        self,
        (placement, pieces): (Placement, Option<Pieces<E>>),
    ) -> Placed<'a, E> {
        Placed {
            dataset: self.dataset,
            plan: self.plan,
            graph: self.graph,
            placement,
            pieces,
            edges: OnceLock::new(),
        }
    }
}

/// What came of a run.
pub struct Trained {
    /// How it went.
    pub summary: RunSummary,
    /// Whether it was ended from outside.
    pub stopped: bool,
    /// Messages that were out of the range of their scales.
    pub saturated: Option<u64>,
}

impl<'a, E: Element> Placed<'a, E> {
    /// A plan for a device that has memory for it.
    pub fn new<B: Backend>(
        device: &Device<B>,
        dataset: &'a Dataset,
        plan: &'a Plan,
    ) -> Result<Self, Failure> {
        let whole = Whole::new(dataset, plan)?;
        let placed = whole.place(device, (plan.placement, whole.on_disk()))?;
        Ok(whole.placed(placed))
    }

    /// The same of one of several ranks that learn in batches. Where it is open where features lie, they are
    /// partitioned as soon as some rank has no memory for all of them and each has for a share. Ranks that exchange
    /// features evaluate in as many pieces as the one that has the least memory, since all are to exchange equally
    /// often.
    pub fn of_rank<B: Backend>(
        device: &Device<B>,
        (dataset, plan): (&'a Dataset, &'a Plan),
        group: &Group,
    ) -> Result<Self, Failure> {
        let asked = plan.placement;
        let share = Some(Fetched::Ranks(group.ranks()));
        let shares = match asked.features {
            FeaturesName::Sharded => true,
            FeaturesName::Auto => plan.may_share_features(),
            _ => false,
        };
        if !shares {
            return Self::new(device, dataset, plan);
        }
        let whole = Whole::new(dataset, plan)?;
        let own = if asked.features == FeaturesName::Sharded {
            whole.place(device, (asked, share))?
        } else {
            let on_device = PlacementArgs {
                features: FeaturesName::Device,
                ..asked
            };
            // Whether the host of each rank has memory for them may differ.
            let on_disk = whole.on_disk();
            let all = whole.place(device, (on_device, None));
            if !group.any("room for features", on_disk.is_some() || all.is_err())? {
                return Ok(whole.placed(all?));
            }
            let own = whole.place(device, (asked, share));
            let lacks = on_disk.is_some() || own.is_err();
            if group.any("room for a share of the features", lacks)? {
                let placed = whole.place(device, (asked, on_disk))?;
                return Ok(whole.placed(placed));
            }
            own?
        };
        let pieces = own.0.pieces as u32;
        let all = group.gather("pieces", &[pieces])?;
        let most = all.iter().map(|of| of[0]).fold(pieces, u32::max);
        match NonZeroU32::new(most) {
            Some(most) if most.get() > pieces => {
                let asked = PlacementArgs {
                    pieces: PieceCount::Of(most),
                    ..asked
                };
                let own = whole.place(device, (asked, share))?;
                Ok(whole.placed(own))
            }
            _ => Ok(whole.placed(own)),
        }
    }

    /// What its runs compute on, of one rank or as one of a group.
    pub fn tasks<B: Backend>(
        &self,
        backend: &B,
        group: Option<&Group>,
    ) -> Result<Tasks<'a, B, E>, Failure> {
        if self.dataset.types.is_some() {
            return task_of_types(backend, self.dataset, self.plan);
        }
        let graph = match self.pieces {
            None => Some(self.graph.propagation::<B, E>(backend, &self.plan.model)?),
            Some(_) => None,
        };
        let features = match group {
            Some(group) if self.placement.sharded => FeaturesAt::Ranks(group),
            _ => FeaturesAt::Memory(self.placement.features),
        };
        objectives::<B, E>(backend, self.dataset, (self.plan, features), graph)
    }

    /// The batches of a run, of one rank or as one of a group; and, where that is reported, what it takes with them,
    /// for which memory is free.
    fn batches<B: Backend>(
        &self,
        device: &Device<B>,
        (training, learnt): (&Objective<B, E>, &Learnt<'_>),
        (sampling, seed, hops): (&Sampling, u64, usize),
        (group, is_estimated): (Option<&Group>, bool),
    ) -> Made<(Batches<B, E>, Option<BatchMemory>)> {
        let (backend, plan) = (&device.backend, self.plan);
        let is_on_host = sampling.edges == EdgesIn::Host;
        if is_on_host && self.placement.is_card() {
            let room = StructureName::check_host(learnt.edges(), host_memory());
            if let Err(no_room) = room {
                return Ok(Err(no_room));
            }
        }
        let lies = |kind: MemoryKind| backend.memory().current[kind as usize];
        let kinds = [MemoryKind::Graph, MemoryKind::HostGraph];
        let before = kinds.map(lies);
        let made = match &self.dataset.graphs {
            Some(index) => {
                let graphs = GraphBatches::new(&self.graph, index, &plan.model)?;
                Ok(batches_of_graphs(training, graphs, plan, sampling, seed)?)
            }
            None => batches(backend, (training, learnt), plan, (sampling, seed), hops)?,
        };
        let mut batches = match made {
            Ok(batches) => batches,
            Err(no_room) => return Ok(Err(no_room)),
        };
        if let Some(group) = group {
            batches = batches.among(group)?;
        }
        let [drawn_from, bytes] = [0, 1].map(|at| lies(kinds[at]).saturating_sub(before[at]));
        let place = match sampling.edges {
            EdgesIn::Device => None,
            EdgesIn::Host => Some(EdgePlace::Host(bytes)),
            EdgesIn::Graph if learnt.graph.csr().is_on_disk() => Some(EdgePlace::Disk),
            EdgesIn::Graph => Some(EdgePlace::Memory),
        };
        let edges = place.map(|place| EdgesElsewhere {
            place,
            for_room: plan.structure == StructureName::Auto,
        });
        let sizes = match is_estimated {
            true => batches.sizes(backend)?,
            false => None,
        };
        let Some(sizes) = sizes else {
            return Ok(Ok((batches, None)));
        };
        let learning = (&plan.model, &plan.train).into();
        let learning = plan.goal.counting(learning, self.dataset);
        let (of, how) = ((sizes, drawn_from), (learning, plan.train.record));
        Ok(
            match self.placement.with_batches::<B, E>(device, of, how)? {
                Err(no_room) => Err(no_room),
                Ok(mut memory) => {
                    memory.add_edges(edges);
                    Ok((batches, Some(memory)))
                }
            },
        )
    }

    /// The batches of a run, with rows of features that are read often on the device, and what they take where that is
    /// said.
    fn copied_batches<B: Backend>(
        &self,
        device: &Device<B>,
        tasks: &Tasks<'_, B, E>,
        (sampling, seed, hops): (&Sampling, u64, usize),
        group: Option<&Group>,
    ) -> Result<(Batches<B, E>, Option<BatchMemory>), Failure> {
        let Tasks {
            training, learnt, ..
        } = tasks;
        let plan = self.plan;
        // Memory is estimated once for all runs, and for ranks without their batches.
        let is_estimated = group.is_none() && seed == plan.train.seed;
        let drawn = |edges| {
            let sampling = &Sampling {
                edges,
                ..sampling.clone()
            };
            let of = (sampling, seed, hops);
            self.batches(device, (training, learnt), of, (group, is_estimated))
        };
        let (batches, mut memory) = match self.edges.get() {
            Some(&edges) => drawn(edges)??,
            None => {
                let on_disk = learnt.graph.csr().is_on_disk();
                let on = (self.placement.is_card(), on_disk);
                let made = |edges| Ok(drawn(edges)?.map(|made| (made, edges)));
                let (made, edges) = plan.structure.made(&sampling.policy, on, made)?;
                // So that all seeds have them there.
                self.edges.get_or_init(|| edges);
                // Of several ranks the first says it, and not what they take, whose devices may be one.
                if edges != EdgesIn::Device && group.is_some_and(|it| it.rank() == 0) {
                    let memory = match (edges, on_disk) {
                        (EdgesIn::Graph, true) => "on the disk",
                        _ => "in the host's memory",
                    };
                    tracing::info!("edges {memory} of each rank");
                }
                made
            }
        };
        let of_vertices = self.dataset.graphs.is_none();
        plan.feature_cache.copy(
            device,
            (training, &learnt.graph),
            (&self.placement, of_vertices),
            memory.as_mut(),
        )?;
        Ok((batches, memory))
    }

    /// A run, of one rank or as one of a group that learns from parts of each batch, of which the first keeps it.
    pub fn train<B: Backend>(
        &self,
        device: &Device<B>,
        tasks: &Tasks<'_, B, E>,
        (seed, group): (u64, Option<&Group>),
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<Trained, Failure> {
        let backend = &device.backend;
        let Self { plan, pieces, .. } = self;
        let Tasks {
            training,
            whole: objective,
            ..
        } = tasks;
        let config = &plan.model;
        let train = TrainConfig { seed, ..plan.train };
        let model = Network::<B, E>::new(backend, config, seed)?;
        let mut trainer = match &plan.sampling {
            Some(sampling) => {
                let (batches, memory) =
                    self.copied_batches(device, tasks, (sampling, seed, model.hops()), group)?;
                if let (Some(observer), Some(memory)) = (&mut observer, &memory) {
                    observer.batches_foretold(plan, memory);
                }
                Trainer::sampled(backend, batches, objective, model, train)?
            }
            None => Trainer::inductive(backend, training, objective, model, train)?,
        };
        if let Some(pieces) = pieces {
            trainer = trainer.evaluated_in(pieces.clone())?;
        }
        if let Some(checkpoint) = &plan.resume {
            trainer.restore(&checkpoint.snapshot)?;
        }
        let keep = |trainer: &Trainer<B, E, _>, (saving, task): &(Saving, TaskIdentity)| {
            let run = Run {
                task,
                model: config,
                feature_divisors: plan.feature_divisors.as_deref(),
                goal: &plan.goal,
                sampling: plan.sampling.as_ref(),
                precision: plan.precision,
                train: &train,
            };
            saving.keep(run, trainer)
        };
        let keeps = group.is_none_or(|group| group.rank() == 0);
        let saving = plan.saving.as_ref().filter(|_| keeps);
        let mut kept = None;
        let stopped = loop {
            let batch = |report: &BatchReport| match &mut observer {
                Some(observer) => observer.batch(report),
                None => ControlFlow::Continue(()),
            };
            let Some(report) = trainer.next_epoch_with(batch)? else {
                break trainer.progress().part.is_some();
            };
            if let Some(kept_at) = saving
                && kept_at.0.is_due(trainer.progress())
            {
                keep(&trainer, kept_at)?;
                kept = Some(report.epoch);
            }
            let stop = match &mut observer {
                Some(observer) => observer.epoch(plan, seed, &report).is_break(),
                None => false,
            };
            if trainer.any_rank(stop)? {
                break true;
            }
        };
        if let Some(saving) = saving
            && (kept != Some(trainer.progress().epoch) || trainer.progress().part.is_some())
        {
            keep(&trainer, saving)?;
        }
        // Each rank counts what its own parts send.
        let mut saturated = trainer.model().saturated_messages(backend)?;
        if let (Some(own), Some(group)) = (&mut saturated, group) {
            let all = group.gather("saturated messages", &[*own])?;
            *own = all.iter().map(|of_rank| of_rank[0]).sum();
        }
        Ok(Trained {
            summary: trainer.summary(),
            stopped,
            saturated,
        })
    }
}

/// The batches of whole graphs of a run.
fn batches_of_graphs<B: Backend, E: Element>(
    training: &Objective<B, E>,
    graphs: GraphBatches,
    plan: &Plan,
    sampling: &Sampling,
    seed: u64,
) -> Result<Batches<B, E>, Failure> {
    let Goal::Vertices { loss, .. } = &plan.goal else {
        return Err(Failure::Input(
            "links are told of one graph; leave --task link out".into(),
        ));
    };
    let batch = sampling.batch as usize;
    Ok(Batches::of_graphs(training, loss, graphs, batch, seed)?)
}

/// The graphs that a model computes on: `graph`, unless that is in pieces, and where it pools the one that does it.
pub fn inputs<B: Backend>(
    backend: &B,
    model: &ModelConfig,
    dataset: &Dataset,
    graph: Option<Propagation<B>>,
) -> Result<Vec<Propagation<B>>, Failure> {
    model
        .expect_graphs(dataset.graphs.as_ref())
        .map_err(|reason| Failure::Input(format!("{}: {reason}", dataset.name)))?;
    Ok(model.inputs(backend, graph, dataset.graphs.as_ref())?)
}

/// The batches of a run, of the task that is learnt from and its graph.
fn batches<B: Backend, E: Element>(
    backend: &B,
    (training, learnt): (&Objective<B, E>, &Learnt<'_>),
    plan: &Plan,
    (sampling, seed): (&Sampling, u64),
    hops: usize,
) -> Made<Batches<B, E>> {
    let loss = match &plan.goal {
        Goal::Vertices { loss, .. } => loss,
        Goal::Links { .. } => return Err(links_are_whole()),
    };
    let model = &plan.model;
    let of = (&*learnt.graph, learnt.weights.as_deref());
    let how = (sampling, seed);
    let made = match learnt.types {
        Some(types) => Batches::of_types(backend, training, (loss, model, hops), types, how),
        None => Batches::of_sampling(backend, training, (loss, model, hops), of, how),
    };
    let batches = match made {
        Err(error) if lacks_room(&error) => return Ok(Err(error.into())),
        made => made?,
    };
    if let Some(subgraphs) = sampling.policy.subgraphs() {
        tracing::info!(
            "{}: {} subgraphs an epoch, {}",
            sampling.policy,
            batches.count(),
            match (subgraphs, model.normalizes_drawn_edges(of.1.is_some())) {
                (Subgraphs::Clusters(_), _) => "with the degree norm of each",
                (_, true) => "normalised by how often edges and vertices are drawn",
                (_, false) if model.binary.is_some() =>
                    "whose losses are normalised by how often vertices are drawn, and not the edges, whose weights a network of one bit learns less with",
                (_, false) =>
                    "whose losses are normalised by how often vertices are drawn, and not the edges, which the model weighs itself",
            }
        );
    }
    Ok(Ok(batches))
}

fn links_are_whole() -> Failure {
    Failure::Input("links are learnt from whole graphs; leave --sampler out".into())
}

/// What a run learns from.
struct Learnt<'a> {
    graph: Cow<'a, Graph>,
    /// Of its edges, where they have some.
    weights: Option<Cow<'a, [f32]>>,
    /// Of several types of vertices and edges.
    types: Option<&'a Types>,
}

impl Learnt<'_> {
    fn edges(&self) -> usize {
        match self.types {
            Some(types) => types.edges().iter().map(|of| of.edges.edges()).sum(),
            None => self.graph.edges(),
        }
    }
}

/// What a run computes on.
pub struct Tasks<'a, B: Backend, E: Element> {
    /// What is learnt from.
    training: Objective<B, E>,
    /// Its graph, as the dataset has it.
    learnt: Learnt<'a>,
    /// What is evaluated.
    whole: Objective<B, E>,
}

/// Where features are to lie.
#[derive(Clone, Copy)]
enum FeaturesAt<'a> {
    /// In memory of this kind, but for those that stay on disk.
    Memory(MemoryKind),
    /// A share on each rank.
    Ranks(&'a Group),
}

/// What is learnt from with its graph, and what is evaluated on `graph`, the dataset's as the model needs it; none
/// where that is in pieces.
fn objectives<'a, B: Backend, E: Element>(
    backend: &B,
    dataset: &'a Dataset,
    (plan, features): (&Plan, FeaturesAt<'_>),
    graph: Option<Propagation<B>>,
) -> Result<Tasks<'a, B, E>, Failure> {
    let all = Learnt {
        graph: Cow::Borrowed(&dataset.graph),
        weights: dataset.edge_weights.as_deref().map(Cow::Borrowed),
        types: None,
    };
    let (loss, inductive) = match &plan.goal {
        Goal::Links { split, width } => {
            let graph = graph.ok_or_else(links_are_whole)?;
            let FeaturesAt::Memory(kind) = features else {
                return Err(links_are_whole());
            };
            let features = dataset.upload_features_as(backend, kind)?;
            let objective = Objective::of_links(backend, graph, features, *width, split)?;
            return Ok(Tasks {
                training: objective.clone(),
                learnt: all,
                whole: objective,
            });
        }
        Goal::Vertices { loss, inductive } => (loss, *inductive),
    };
    let goal = goal_of(dataset, loss);
    let graphs = inputs(backend, &plan.model, dataset, graph)?;
    let rows = match features {
        FeaturesAt::Memory(kind) => dataset.feature_rows(backend, kind)?,
        FeaturesAt::Ranks(group) => dataset.shard_features(backend, group)?,
    };
    let objective = Objective::of_rows(backend, graphs, rows, &goal)?;
    let (training, learnt) = match inductive {
        true => of_training_vertices(backend, dataset, (plan, features), loss)?,
        false => (objective.clone(), all),
    };
    Ok(Tasks {
        training,
        learnt,
        whole: objective,
    })
}

/// The targets and splits of a dataset, to be trained on by a loss.
pub fn goal_of<'a>(dataset: &'a Dataset, loss: &'a Loss) -> train::Goal<'a> {
    train::Goal {
        targets: &dataset.targets,
        outputs: dataset.outputs,
        loss,
        splits: [&dataset.train, &dataset.val, &dataset.test],
    }
}

/// The task of the labelled vertices of a dataset of several types.
fn task_of_types<'a, B: Backend, E: Element>(
    backend: &B,
    dataset: &'a Dataset,
    plan: &Plan,
) -> Result<Tasks<'a, B, E>, Failure> {
    let Goal::Vertices { loss, .. } = &plan.goal else {
        return Err(links_are_whole());
    };
    let goal = goal_of(dataset, loss);
    let whole = Objective::of_types(backend, (dataset, &plan.model), &goal)?;
    Ok(Tasks {
        training: whole.clone(),
        learnt: Learnt {
            graph: Cow::Borrowed(&dataset.graph),
            weights: None,
            types: dataset.types.as_ref(),
        },
        whole,
    })
}

/// The task of the training vertices and the edges between them.
fn of_training_vertices<B: Backend, E: Element>(
    backend: &B,
    dataset: &Dataset,
    (plan, features): (&Plan, FeaturesAt<'_>),
    loss: &Loss,
) -> Result<(Objective<B, E>, Learnt<'static>), Failure> {
    let (induced, edges) = (dataset.graph.induced(&dataset.train))
        .map_err(|error| Failure::Input(format!("{}: {error}", dataset.name)))?;
    let of_dataset = EdgeData::of_dataset(&plan.model, dataset);
    let weights = of_dataset
        .weights
        .map(|weights| -> Vec<f32> { edges.iter().map(|&edge| weights[edge as usize]).collect() });
    let edge_features = of_dataset.features.map(|(columns, values)| {
        let rows = edges.iter().map(|&edge| edge as usize * columns);
        let rows: Vec<f32> = rows
            .flat_map(|row| &values[row..row + columns])
            .copied()
            .collect();
        (columns, rows)
    });
    let read = EdgeData {
        weights: weights.as_deref(),
        features: edge_features
            .as_ref()
            .map(|(columns, rows)| (*columns, &rows[..])),
    };
    let all: Vec<u32> = (0..dataset.train.len() as u32).collect();
    let goal = train::Goal {
        targets: &dataset.targets.selected(&dataset.train),
        outputs: dataset.outputs,
        loss,
        splits: [&all, &[], &[]],
    };
    let shape = (dataset.train.len(), dataset.feature_len());
    let write_row = |vertex: usize, row: &mut [f32]| {
        dataset
            .features
            .write_row(dataset.train[vertex] as usize, row);
    };
    let (graphs, rows) = match (features, dataset.features.as_stored()) {
        // No step is on the whole of it.
        (FeaturesAt::Ranks(group), _) => {
            let rows = FeatureRows::sharded(backend, group, shape, write_row)?;
            (Vec::new(), rows)
        }
        (FeaturesAt::Memory(_), Some(stored)) => {
            let selected = Arc::new(stored.selected(&dataset.train));
            (Vec::new(), FeatureRows::stored(backend, selected)?)
        }
        (FeaturesAt::Memory(kind), None) => {
            let prepared = plan.model.prepare_edges(&induced, read)?;
            let rows = Matrix::from_rows(backend, shape, kind, write_row)?;
            let graph = prepared.propagation::<B, E>(backend, &plan.model)?;
            (vec![graph], rows.into())
        }
    };
    let objective = Objective::of_rows(backend, graphs, rows, &goal)?;
    let learnt = Learnt {
        graph: Cow::Owned(induced),
        weights: weights.map(Cow::Owned),
        types: None,
    };
    Ok((objective, learnt))
}
