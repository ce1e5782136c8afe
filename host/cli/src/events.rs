//! What a session reports: JSON lines for programs, a screen for people.

use crate::curves::Curves;
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::placement::{BatchMemory, Placement};
use crate::ranks::{Dealt, Ranks};
use crate::screen::{Screen, bytes};
use crate::session::{Observer, Outcome, Plan};
use crate::structure::EdgePlace;
use crate::task::Goal;
use crate::types::TypesOf;
use crate::watch::Watch;
use halfgnn::backend::{MemoryKind, MemoryReport};
use halfgnn::data::{Dataset, GraphIndex, Preparation};
use halfgnn::distributed::Gather;
use halfgnn::metrics::Metric;
use halfgnn::nn::{HiddenNorm, Jumping, Store};
use halfgnn::ops::{CodeFormat, Scaling};
use halfgnn::sample::Sampling;
use halfgnn::train::{
    BatchReport, EpochReport, Footprint, RunSummary, Score, Split, Spread, Status,
};
use halfgnn_bench::rank_memory::RankMemory;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of training in batches.
#[derive(Serialize)]
pub struct Batches {
    /// How they are sampled, such as `neighbor:15,10,5`.
    sampler: String,
    /// Vertices, clusters or graphs of one.
    batch: u32,
    /// How many times the vertices were sampled to count them, of GraphSAINT's samplers.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<u32>,
}

impl From<&Sampling> for Batches {
    fn from(sampling: &Sampling) -> Self {
        let counted = sampling.policy.is_counted();
        Self {
            sampler: sampling.policy.to_string(),
            batch: sampling.batch,
            coverage: counted.then_some(sampling.coverage),
        }
    }
}

/// Several ranks, and what each has, in their order.
#[derive(Serialize)]
pub struct RanksOf<'a> {
    /// How many there are.
    ranks: usize,
    /// Of a graph that is partitioned; of batches each rank has all of it.
    #[serde(flatten)]
    dealt: Option<Shares<'a>>,
}

/// How a graph is partitioned.
#[derive(Serialize)]
struct Shares<'a> {
    /// `degree`, `louvain`, or the file.
    partition: &'a str,
    /// Vertices.
    vertices: &'a [usize],
    /// Edges that lead to them, self-loops that the model adds not counted.
    edges: &'a [usize],
    /// Vertices of other ranks that they aggregate; not known of parts before ranks have read theirs.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    halo: &'a [usize],
    /// Rows that they send.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sent: &'a [usize],
    /// The most edges over the mean.
    imbalance: f64,
}

impl<'a> From<&'a Ranks> for RanksOf<'a> {
    fn from(ranks: &'a Ranks) -> Self {
        let share = |dealt: &'a Dealt| {
            let balance = &dealt.balance;
            Shares {
                partition: &dealt.by,
                vertices: &balance.vertices,
                edges: &balance.edges,
                halo: &balance.halo,
                sent: &balance.sent,
                imbalance: balance.imbalance(),
            }
        };
        Self {
            ranks: ranks.count,
            dealt: ranks.dealt.as_ref().map(share),
        }
    }
}

/// One JSON line. Accuracies, F1, areas and ranks are in percent, times in milliseconds, memory in bytes; a number that
/// is not finite is `null`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// What is about to be trained.
    Start {
        /// Version of the program.
        version: &'static str,
        /// The dataset's name.
        dataset: &'a str,
        /// Its graphs, where it is many.
        #[serde(skip_serializing_if = "Option::is_none")]
        graphs: Option<usize>,
        /// What is taken of the vertices of each.
        #[serde(skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
        /// Its types of vertices and edges, where there are several.
        #[serde(skip_serializing_if = "Option::is_none")]
        types: Option<Box<TypesOf>>,
        /// Its vertices; of several types those that have labels.
        vertices: usize,
        /// Its edges, self-loops that the model adds not counted.
        edges: usize,
        /// Its features.
        features: usize,
        /// Its classes, labels or values; of links the width of an embedding.
        classes: usize,
        /// `classes`, `labels`, `values` or `links`.
        task: &'static str,
        /// What is made small.
        loss: &'static str,
        /// Where it came from, and what was done to it.
        preparation: Vec<Prepared<'a>>,
        /// The model's name.
        model: &'a str,
        /// `half` or `float`.
        precision: String,
        /// Number of layers.
        layers: usize,
        /// Width of hidden layers.
        hidden: usize,
        /// Widths of hidden layers one by one, where they differ.
        #[serde(skip_serializing_if = "<[usize]>::is_empty")]
        hidden_by_layer: &'a [usize],
        /// `batch`, `layer`, `pair` or `graph`, where hidden layers have a norm.
        #[serde(skip_serializing_if = "Option::is_none")]
        hidden_norm: Option<&'static str>,
        /// `dot`, `bilinear` or `mlp`, where links are predicted.
        #[serde(skip_serializing_if = "Option::is_none")]
        decoder: Option<&'static str>,
        /// `cat`, `max` or `all`, where all layers' outputs go on.
        #[serde(skip_serializing_if = "Option::is_none")]
        jumping: Option<&'static str>,
        /// `int8` or `e4m3`, where what is summed up over neighbours is sent so.
        #[serde(skip_serializing_if = "Option::is_none")]
        messages: Option<&'static str>,
        /// `eight-bit`, where activations are kept so for the backward pass.
        #[serde(skip_serializing_if = "Option::is_none")]
        store: Option<&'static str>,
        /// `full` or `bin`, where the model is of one bit, or layer by layer `bin,full`.
        #[serde(skip_serializing_if = "Option::is_none")]
        binary: Option<String>,
        /// Epochs of a run.
        epochs: u32,
        /// `adam`, `adamw` or `sgd`.
        optimizer: String,
        /// Where there are several ranks.
        #[serde(skip_serializing_if = "Option::is_none")]
        ranks: Option<Box<RanksOf<'a>>>,
        /// Where training is in batches.
        #[serde(flatten)]
        batches: Option<Box<Batches>>,
        /// Learning rate, before the schedule.
        learning_rate: f32,
        /// Weight decay.
        weight_decay: f32,
        /// How the learning rate changes, such as `cosine, warm-up of 10`.
        schedule: String,
        /// How gradients are clipped, such as `norm 1`, or `none`.
        clipping: String,
        /// Seed of the first run.
        seed: u64,
        /// Number of runs.
        seeds: u32,
        /// The files in which they are kept, in the order of the seeds.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        checkpoints: Vec<String>,
    },
    /// What each rank is going to take of its device, where there are several.
    RankMemory {
        /// All of it, of each.
        bytes: Vec<u64>,
        /// The same by kind.
        bytes_by_kind: RanksByKind,
        /// Which takes most.
        largest: usize,
        /// What each receives of the others, of a graph that is partitioned: `halo` or `whole`.
        #[serde(skip_serializing_if = "Option::is_none")]
        gather: Option<&'static str>,
    },
    /// An epoch.
    Epoch {
        /// The run's label.
        model: &'a str,
        /// The run's seed.
        seed: u64,
        /// Which epoch, from 1.
        epoch: u32,
        /// The loss of what is learnt from.
        loss: f32,
        /// Learning rate of the step.
        learning_rate: f32,
        /// The metric that chooses the best epoch.
        metric: Metric,
        /// What it and the others say, by name.
        scores: BTreeMap<String, Scores>,
        /// Accuracy of the training vertices, where it is the metric.
        #[serde(skip_serializing_if = "Option::is_none")]
        train_accuracy: Option<f64>,
        /// Accuracy of the validation vertices, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        validation_accuracy: Option<f64>,
        /// Accuracy of the test vertices, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy: Option<f64>,
        /// Time of the training step.
        ms: f64,
        /// The loss scale after the step.
        loss_scale: f32,
        /// Steps skipped for an overflow so far.
        skipped_steps: u32,
    },
    /// The end of one run.
    Run {
        /// The run's label.
        model: &'a str,
        /// The run's seed.
        seed: u64,
        /// `finished`, `stopped`, `early_stopped` or `diverged`.
        status: &'static str,
        /// Epochs that were trained.
        epochs: u32,
        /// The metric that chose the best epoch.
        metric: Metric,
        /// The epoch of the best validation; `null` where no epoch has a validation score.
        best_epoch: Option<u32>,
        /// The epoch whose weights are kept: the best one, else the last one.
        kept_epoch: Option<u32>,
        /// The metric on the test split at the kept epoch.
        test_score: f64,
        /// What it says at the last epoch.
        test_score_last: f64,
        /// Test accuracy at the best epoch, where it is the metric.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy: Option<f64>,
        /// Test accuracy at the last epoch, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy_last: Option<f64>,
        /// Time of a training step.
        ms_per_epoch: f64,
    },
    /// What runs take, reported before the first step.
    Memory {
        /// The plan's label.
        model: &'a str,
        /// All of it on the device.
        foretold_bytes: u64,
        /// Of each kind.
        foretold_bytes_by_kind: PeakByKind,
        /// What graphs, features and activations of the largest batch take of it, where training is in batches.
        #[serde(skip_serializing_if = "Option::is_none")]
        batch_bytes: Option<u64>,
        /// The vertices whose features go into that or, where they are read in place, those that aggregate them.
        #[serde(skip_serializing_if = "Option::is_none")]
        batch_vertices: Option<usize>,
        /// Its edges, in all layers.
        #[serde(skip_serializing_if = "Option::is_none")]
        batch_edges: Option<usize>,
        /// Vertices of whose features, in the host's memory, the GPU has copies.
        #[serde(skip_serializing_if = "Option::is_none")]
        cached_vertices: Option<usize>,
        /// What those take of the GPU's memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        cached_bytes: Option<u64>,
        /// What edges take of the host's memory of which the GPU draws neighbours, where they lie there.
        #[serde(skip_serializing_if = "Option::is_none")]
        host_edge_bytes: Option<u64>,
        /// Where the edges lie of which the host draws neighbours, if it does: `memory` or `disk`.
        #[serde(skip_serializing_if = "Option::is_none")]
        host_draws_from: Option<&'static str>,
    },
    /// All runs of a plan.
    Summary {
        /// The plan's label.
        model: &'a str,
        /// The device's name.
        device: &'a str,
        /// `half` or `float`.
        precision: String,
        /// `discretized`, `post_reduction` or `pre_reduction`.
        scaling: &'static str,
        /// `finished`, `stopped`, `early_stopped` or `diverged`.
        status: &'static str,
        /// Runs that were begun.
        runs: usize,
        /// The metric that chose the best epochs.
        metric: Metric,
        /// What the metrics say of what was tested, at the best validation epoch, by name.
        test_scores: BTreeMap<String, MeanAndStd>,
        /// Test accuracy at the best validation epoch, mean over the runs, where it is the metric.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy: Option<f64>,
        /// Its standard deviation.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy_std: Option<f64>,
        /// Test accuracy at the last epoch, mean over the runs.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy_last: Option<f64>,
        /// Its standard deviation.
        #[serde(skip_serializing_if = "Option::is_none")]
        test_accuracy_last_std: Option<f64>,
        /// Time of a training step, mean over the runs.
        ms_per_epoch: f64,
        /// Its standard deviation.
        ms_per_epoch_std: f64,
        /// Messages that were out of the range of their scales, where they are sent in 8 bits.
        #[serde(skip_serializing_if = "Option::is_none")]
        saturated_messages: Option<u64>,
        /// The most memory at any moment.
        peak_bytes: u64,
        /// The most of each kind.
        peak_bytes_by_kind: PeakByKind,
        /// Steps skipped for an overflow.
        skipped_steps: u32,
    },
}

/// What a metric says of each split; `null` where it is not defined.
#[derive(Serialize)]
pub struct Scores {
    train: f64,
    validation: f64,
    test: f64,
}

impl From<Score> for Scores {
    fn from(score: Score) -> Self {
        Self {
            train: score.of(Split::Train),
            validation: score.of(Split::Validation),
            test: score.of(Split::Test),
        }
    }
}

/// A mean and the standard deviation over runs.
#[derive(Serialize)]
pub struct MeanAndStd {
    mean: f64,
    std: f64,
}

impl From<Spread> for MeanAndStd {
    fn from(spread: Spread) -> Self {
        Self {
            mean: spread.mean,
            std: spread.deviation,
        }
    }
}

/// A number where the metric is the accuracy, which has names of its own.
fn of_accuracy(metric: Metric, value: f64) -> Option<f64> {
    (metric == Metric::Accuracy).then_some(value)
}

/// One thing that was done to a dataset, or decided about it.
#[derive(Serialize)]
pub struct Prepared<'a> {
    /// `source`, `edges`, `self-loops`, `features`, `labels`, `splits` or `order`.
    of: &'static str,
    /// What was done, in words.
    what: &'a str,
    /// Who asked for it: `file`, `recipe`, `default`, `option`, `model` or `checkpoint`.
    by: &'static str,
}

impl<'a> From<&'a Preparation> for Prepared<'a> {
    fn from(step: &'a Preparation) -> Self {
        Self {
            of: step.of,
            what: &step.what,
            by: step.by.name(),
        }
    }
}

/// Bytes of each kind of memory on a device, of each rank.
#[derive(Serialize)]
pub struct RanksByKind {
    graph: Vec<u64>,
    features: Vec<u64>,
    activations: Vec<u64>,
    weights: Vec<u64>,
    workspace: Vec<u64>,
}

impl From<&RankMemory> for RanksByKind {
    fn from(memory: &RankMemory) -> Self {
        Self {
            graph: memory.of(MemoryKind::Graph),
            features: memory.of(MemoryKind::Features),
            activations: memory.of(MemoryKind::Activations),
            weights: memory.of(MemoryKind::Weights),
            workspace: memory.of(MemoryKind::Workspace),
        }
    }
}

/// The most bytes of each kind of memory.
#[derive(Serialize)]
pub struct PeakByKind {
    graph: u64,
    features: u64,
    activations: u64,
    weights: u64,
    workspace: u64,
    /// Of the host's memory, where features stay there.
    #[serde(skip_serializing_if = "is_nothing")]
    host_features: u64,
    /// Of the host's memory, where edges stay there.
    #[serde(skip_serializing_if = "is_nothing")]
    host_graph: u64,
}

fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

impl From<&MemoryReport> for PeakByKind {
    fn from(report: &MemoryReport) -> Self {
        Self::of(|kind| report.peak[kind as usize])
    }
}

impl PeakByKind {
    fn of(peak: impl Fn(MemoryKind) -> u64) -> Self {
        Self {
            graph: peak(MemoryKind::Graph),
            features: peak(MemoryKind::Features),
            activations: peak(MemoryKind::Activations),
            weights: peak(MemoryKind::Weights),
            workspace: peak(MemoryKind::Workspace),
            host_features: peak(MemoryKind::HostFeatures),
            host_graph: peak(MemoryKind::HostGraph),
        }
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Finished => "finished",
        Status::Stopped => "stopped",
        Status::EarlyStopped => "early_stopped",
        Status::Diverged { .. } => "diverged",
    }
}

impl<'a> Event<'a> {
    /// What the runs of `plan` will take, and of it what batches do where they learn from some.
    pub fn memory(plan: &'a Plan, footprint: &Footprint, batches: Option<&BatchMemory>) -> Self {
        let edges = batches.and_then(|memory| memory.edges);
        let cached = batches.and_then(|memory| memory.cached);
        Self::Memory {
            model: plan.label,
            foretold_bytes: footprint.total(),
            foretold_bytes_by_kind: PeakByKind::of(|kind| footprint.of(kind)),
            batch_bytes: batches.map(|memory| memory.bytes),
            batch_vertices: batches.map(|memory| memory.sizes.vertices()),
            batch_edges: batches.map(|memory| memory.sizes.edges()),
            cached_vertices: cached.map(|cached| cached.vertices),
            cached_bytes: cached.map(|cached| cached.bytes),
            host_edge_bytes: edges.map(|edges| edges.bytes()).filter(|&bytes| bytes > 0),
            host_draws_from: edges.and_then(|edges| match edges.place {
                EdgePlace::Host(_) => None,
                EdgePlace::Memory => Some("memory"),
                EdgePlace::Disk => Some("disk"),
            }),
        }
    }

    /// What `plan` will train on `dataset`.
    pub fn start(dataset: &'a Dataset, plan: &'a Plan) -> Self {
        Event::Start {
            version: env!("CARGO_PKG_VERSION"),
            dataset: &dataset.name,
            graphs: dataset.graphs.as_ref().map(GraphIndex::graphs),
            pool: plan.model.readout.map(|readout| readout.to_string()),
            types: TypesOf::new(dataset).map(Box::new),
            vertices: dataset.graph.vertices(),
            edges: dataset.edges(),
            features: dataset.feature_len(),
            classes: plan.model.classes,
            task: plan.goal.unit(dataset),
            loss: plan.goal.loss(),
            preparation: dataset.preparations.iter().map(Prepared::from).collect(),
            model: plan.label,
            precision: plan.precision.to_string(),
            layers: plan.model.layers,
            hidden: plan.model.hidden,
            hidden_by_layer: &plan.model.hidden_by_layer,
            decoder: matches!(plan.goal, Goal::Links { .. }).then(|| plan.model.decoder.name()),
            jumping: plan.model.jumping.map(Jumping::name),
            hidden_norm: Some(plan.model.hidden_norm)
                .filter(|norm| *norm != HiddenNorm::None)
                .map(HiddenNorm::name),
            messages: plan.model.messages.map(CodeFormat::name),
            store: plan.model.store.map(Store::name),
            binary: plan.model.binary_name(),
            epochs: plan.train.epochs,
            optimizer: plan.train.optimizer.to_string(),
            ranks: (plan.ranks.as_ref()).map(|ranks| Box::new(RanksOf::from(ranks))),
            batches: plan
                .sampling
                .as_ref()
                .map(|sampling| Box::new(Batches::from(sampling))),
            learning_rate: plan.train.optimizer.learning_rate(),
            weight_decay: plan.train.optimizer.weight_decay(),
            schedule: plan.train.schedule.to_string(),
            clipping: plan.train.clipping.to_string(),
            seed: plan.train.seed,
            seeds: plan.seeds,
            checkpoints: plan
                .saved()
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        }
    }

    /// What came of `plan`.
    pub fn summary(plan: &'a Plan, outcome: &'a Outcome) -> Self {
        let (best, last, ms) = (
            outcome.test_score(),
            outcome.test_score_last(),
            outcome.ms_per_epoch(),
        );
        let metric = outcome.metric();
        Event::Summary {
            model: plan.label,
            device: &outcome.device,
            precision: plan.precision.to_string(),
            scaling: match plan.model.policy.scaling {
                Scaling::Discretized => "discretized",
                Scaling::PostReduction => "post_reduction",
                Scaling::PreReduction => "pre_reduction",
            },
            status: status(outcome.status()),
            runs: outcome.runs.len(),
            metric,
            test_scores: std::iter::once((metric, best))
                .chain(outcome.others())
                .map(|(metric, spread)| (metric.to_string(), spread.into()))
                .collect(),
            test_accuracy: of_accuracy(metric, best.mean),
            test_accuracy_std: of_accuracy(metric, best.deviation),
            test_accuracy_last: of_accuracy(metric, last.mean),
            test_accuracy_last_std: of_accuracy(metric, last.deviation),
            ms_per_epoch: ms.mean,
            ms_per_epoch_std: ms.deviation,
            saturated_messages: outcome.saturated,
            peak_bytes: outcome.memory.peak_total,
            peak_bytes_by_kind: (&outcome.memory).into(),
            skipped_steps: outcome.skipped(),
        }
    }
}

/// Passes what happens on to the screen and to the JSON lines.
pub struct Recorder {
    /// What a person sees.
    pub screen: Screen,
    json: JsonLines,
    /// Why nothing is written any more: a failure, or a reader who has left, which is none.
    ended: Option<Result<(), Failure>>,
    curves: Option<Curves>,
    watch: Watch,
    stop: Arc<AtomicBool>,
    label: String,
}

impl Recorder {
    /// A recorder of runs of `epochs` epochs, which ends them when `stop` is set.
    pub fn new(json: Option<&Path>, epochs: u32, stop: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let json = JsonLines::open(json)?;
        let screen = Screen::new(json.is_stdout(), epochs, stop);
        Ok(Self {
            screen,
            json,
            ended: None,
            curves: None,
            watch: Watch::default(),
            stop: Arc::clone(stop),
            label: String::new(),
        })
    }

    /// Draws the curves of what is to come.
    pub fn draw(&mut self, curves: Option<Curves>) {
        self.curves = curves;
    }

    /// Has the runs that are to come followed.
    pub fn follow(&mut self, watch: Watch) {
        self.watch = match watch.draws() && !self.screen.follow() {
            true => {
                self.screen.line(
                    &"--watch draws on a terminal, and this is none; --plot FILE.svg draws into a file",
                );
                watch.without_chart()
            }
            false => watch,
        };
    }

    /// The curves of what came.
    pub fn take_curves(&mut self) -> Option<Curves> {
        self.curves.take()
    }

    /// Writes a JSON line. Where that cannot be done the run ends like by Ctrl-C.
    pub fn record(&mut self, event: &Event<'_>) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.json.write(event) {
            self.end(match error.reader_left() {
                true => Ok(()),
                false => Err(error.into()),
            });
        }
    }

    /// Whether the run is to go on.
    fn stopped(&self) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Ends the run, and what is written of it.
    fn end(&mut self, why: Result<(), Failure>) {
        self.ended.get_or_insert(why);
        self.screen.stop();
    }

    /// That everything was written, but to a reader who has left.
    pub fn finish(self) -> Result<(), Failure> {
        self.ended.unwrap_or(Ok(()))?;
        self.json.finish()?;
        let unwritten = |error| Failure::Run(format!("cannot write: {error}"));
        self.screen.finish().map_err(unwritten)
    }
}

impl Observer for Recorder {
    fn placed(&mut self, placement: Placement) {
        placement.lines().for_each(|line| self.screen.line(&line));
    }

    fn ranks_take(&mut self, memory: &RankMemory, gather: Option<Gather>) {
        if gather == Some(Gather::Whole) {
            self.screen
                .line(&"each rank is given all rows of the others, heard or not");
        }
        self.screen.line(&memory.line());
        self.record(&Event::RankMemory {
            bytes: memory.totals(),
            bytes_by_kind: memory.into(),
            largest: memory.largest().0,
            gather: gather.map(Gather::name),
        });
    }

    fn foretold(&mut self, plan: &Plan, memory: &Footprint) {
        let line = format!("memory: {} in all, foretold", bytes(memory.total()));
        self.screen.line(&line);
        self.record(&Event::memory(plan, memory, None));
    }

    fn batches_foretold(&mut self, plan: &Plan, memory: &BatchMemory) {
        self.screen.line(&memory.line());
        self.record(&Event::memory(plan, &memory.footprint, Some(memory)));
    }

    fn run_starts(&mut self, plan: &Plan, device: &str, seed: u64) {
        tracing::info!("{} on {device}, seed {seed}", plan.title());
        // What moves their rows is known once they have met.
        let processes = plan.ranks.as_ref().is_some_and(Ranks::are_processes);
        if processes && seed == plan.train.seed {
            self.screen.line(&format!("on {device}"));
        }
        self.label = match plan.seeds {
            1 => plan.title(),
            _ => format!("{} seed {seed}", plan.title()),
        };
        self.screen.start(&self.label);
        if let Err(failure) = self.watch.run_starts(plan.label, seed) {
            self.end(Err(failure));
        }
    }

    fn batch(&mut self, report: &BatchReport) -> ControlFlow<()> {
        let BatchReport {
            epoch,
            batch,
            of,
            loss,
        } = report;
        let message = format!("epoch {epoch} batch {batch}/{of} loss {loss:.4}");
        self.screen.batch(&message);
        self.stopped()
    }

    fn epoch(&mut self, plan: &Plan, seed: u64, report: &EpochReport) -> ControlFlow<()> {
        let metric = report.score.metric;
        let score = |split| report.score.of(split);
        let shown = |split| metric.shown(score(split));
        let mut message = format!("loss {:.4} ", report.loss);
        if metric != Metric::Accuracy {
            message.push_str(&format!("{metric} "));
        }
        message.push_str(&format!(
            "train {} validation {} test {}",
            shown(Split::Train),
            shown(Split::Validation),
            shown(Split::Test)
        ));
        for other in report.others.iter() {
            let test = other.metric.shown(other.of(Split::Test));
            message.push_str(&format!("; {} test {test}", other.metric));
        }
        match self.watch.epoch(plan.label, seed, report) {
            Ok(chart) => message.push_str(&chart.unwrap_or_default()),
            Err(failure) => self.end(Err(failure)),
        }
        self.screen.epoch(&self.label, report.epoch, &message);
        if let Some(curves) = &mut self.curves {
            curves.add(report);
        }
        self.record(&Event::Epoch {
            model: plan.label,
            seed,
            epoch: report.epoch,
            loss: report.loss,
            learning_rate: report.learning_rate,
            metric,
            scores: std::iter::once(report.score)
                .chain(report.others.iter())
                .map(|score| (score.metric.to_string(), score.into()))
                .collect(),
            train_accuracy: of_accuracy(metric, score(Split::Train)),
            validation_accuracy: of_accuracy(metric, score(Split::Validation)),
            test_accuracy: of_accuracy(metric, score(Split::Test)),
            ms: report.ms,
            loss_scale: report.optimizer.loss_scale,
            skipped_steps: report.optimizer.skipped,
        });
        self.stopped()
    }

    fn run_ends(&mut self, plan: &Plan, seed: u64, run: &RunSummary) {
        self.screen.end();
        if let Some(chart) = self.watch.chart() {
            self.screen.line(&chart);
        }
        let metric = run.last.map_or(Metric::default(), |last| last.score.metric);
        self.record(&Event::Run {
            model: plan.label,
            seed,
            status: status(run.status),
            epochs: run.last.map_or(0, |last| last.epoch),
            metric,
            best_epoch: run.best.map(|best| best.epoch),
            kept_epoch: run.kept().map(|kept| kept.epoch),
            test_score: run.test_score(),
            test_score_last: run.test_score_last(),
            test_accuracy: of_accuracy(metric, run.test_score()),
            test_accuracy_last: of_accuracy(metric, run.test_score_last()),
            ms_per_epoch: run.ms_per_epoch,
        });
    }
}
