//! `halfgnn bench train`: how long a training step takes, and how much memory, compared with figures of others.
//!
//! The task is made up: random features, a random class for each vertex, all of them trained on, no dropout. What a
//! step costs does not depend on what there is to learn.

mod figures;
mod task;

use crate::failure::Failure;
use crate::graphs::{self, GraphName, Opened};
use crate::json::JsonLines;
use crate::launch::{self, Devices, devices};
use crate::model::ModelName;
use crate::names::{CodeFormatName, DeviceName, PrecisionName, StoreName};
use crate::operators;
use crate::processes::{
    Exchange, GatherName, Overlap, check_key, device_name, first_given, meet, moved_by,
    this_process,
};
use crate::rank_memory::RankMemory;
use crate::screen::{Page, bytes};
use clap::Args;
use figures::{Peer, Ratio, fastest, read_peers};
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::device::{self, Device, Task};
use halfgnn::distributed::{Balance, Gather, Group, Member, Rendezvous};
use halfgnn::nn::{ModelConfig, Network, Store};
use halfgnn::ops::{CodeFormat, RandomState};
use halfgnn::program::Profile;
use halfgnn::tensor::Element;
use halfgnn::train::{TrainConfig, Trainer};
use halfgnn::with_element;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use task::Prepared;

pub use task::objective;

/// Steps that are not timed: the first allocates, and then they are recorded.
const WARM_UP: u32 = 3;

/// How long a rank may stay away.
const DEADLINE: Duration = Duration::from_secs(300);

/// Examples of `bench train`.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench train --graph kron:18 --features 64 --classes 16
  halfgnn bench train --graph reddit-like --features 602 --classes 41 --model gcn,gin --against pyg.jsonl --json ours.jsonl
  halfgnn bench train --graph kron21 --model gcn,gin,gat --precision half --devices 0,1
  halfgnn bench train --graph reddit-like --model gat --precision half --bound

Graphs are those of `halfgnn bench spmm`. Features and labels are random, every vertex is trained on, nothing is dropped.
A time is the wall clock's over all timed epochs, divided by their number; nothing is evaluated in between. Of several ranks, by degree,
it is the slowest one's, and memory that of the one that takes most. Of a graph that R-MAT makes each rank makes a share; others
each reads whole.

--against takes JSON lines, one a figure of a peer; the fastest of a peer on a graph counts:
  {\"name\": \"PyG, float\", \"model\": \"gcn\", \"graph\": \"reddit-like\", \"ms\": 83.2, \"gib\": 14.7}";

/// Options of `bench train`.
#[derive(Args)]
pub struct TrainBenchArgs {
    /// Graphs to train on; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    pub graphs: Vec<GraphName>,
    /// Models
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ModelName::default()])]
    pub model: Vec<ModelName>,
    /// Precisions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Half, PrecisionName::Float])]
    pub precision: Vec<PrecisionName>,
    /// Input features of a vertex
    #[arg(long, value_name = "F", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub features: u32,
    /// Classes
    #[arg(long, value_name = "C", default_value_t = 47, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub classes: u32,
    /// Width of the hidden layers
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden: u32,
    /// Number of layers [default: the model's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub layers: Option<u32>,
    /// Timed training steps
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Make outputs of layers again in the backward pass instead of storing them, where one product does (GIN)
    #[arg(long)]
    pub recompute: bool,
    /// Send what is summed up over neighbours in 8 bits, of models that can, in half and bf16
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub messages: Option<CodeFormatName>,
    /// Keep what the backward pass reads of the forward pass in this way, of models that can, in half and bf16
    #[arg(long, value_enum, value_name = "HOW")]
    pub store: Option<StoreName>,
    /// Edges that a warp of an SpMM walks, a power of two from 16 to 256, instead of what suits graph and GPU
    #[arg(long, value_name = "N")]
    pub edges_per_warp: Option<u32>,
    /// Time the operators of a step as well, one by one, next to the bytes that each must move
    #[arg(long)]
    pub bound: bool,
    /// Launch the kernels of a step one by one instead of replaying a recorded step
    #[arg(long)]
    pub no_record: bool,
    /// Partition each graph between processes that the program starts, one for each of these GPUs of this host
    #[arg(long, value_name = "0,1,…|all", value_parser = devices, conflicts_with = "rendezvous")]
    pub devices: Option<Devices>,
    /// Partition it between processes that you start, and where these meet
    #[arg(long, value_name = "tcp://HOST:PORT|file:PATH|local:PATH|mpi")]
    pub rendezvous: Option<Rendezvous>,
    /// What moves rows and gradients between processes [default: auto]
    #[arg(long, value_enum)]
    pub exchange: Option<Exchange>,
    /// Whether devices compute while NCCL moves rows, in recorded steps [default: off]
    #[arg(long, value_enum)]
    pub overlap: Option<Overlap>,
    /// Which rows of others a rank is given at each layer [default: auto]
    #[arg(long, value_enum)]
    pub gather: Option<GatherName>,
    /// Figures of others to compare with: JSON lines with name, model, graph, ms, gib
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,
    /// Where to train; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

impl TrainBenchArgs {
    /// An option that says something about several ranks, if one was given.
    fn of_ranks(&self) -> Option<&'static str> {
        first_given(&[
            ("--exchange", self.exchange.is_some()),
            ("--overlap", self.overlap.is_some()),
            ("--gather", self.gather.is_some()),
        ])
    }
}

/// A line of ours.
#[derive(Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    model: &'a str,
    graph: &'a str,
    device: &'a str,
    vertices: usize,
    edges: usize,
    features: u32,
    classes: u32,
    hidden: u32,
    layers: usize,
    precision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
    recorded: bool,
    /// Ranks, where there are several, and what moves rows between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<&'a str>,
    /// Which rows of others each is given: `halo` or `whole`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gather: Option<&'static str>,
    /// Whether devices compute meanwhile, where they exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<bool>,
    #[serde(flatten)]
    shares: Option<Shares>,
    #[serde(flatten)]
    bound: Option<Bound>,
    ms: f64,
    gib: f64,
    foretold_gib: f64,
    /// The rank that was estimated to take most, what each took and what was estimated of it, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    largest_rank: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rank_gib: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    foretold_rank_gib: Vec<f64>,
    loss: f32,
    /// How many times faster, and smaller, than each peer.
    against: Vec<Ratio<'a>>,
}

/// What the bytes of a step take, of the rank whose bytes take longest.
#[derive(Clone, Copy, Debug, Serialize)]
struct Bound {
    /// The time of the bytes that the operators must move, at the bandwidth of a copy, in milliseconds.
    bytes_ms: f64,
    /// The time of the operators of both passes over that.
    over_bytes: f64,
}

/// How a step is partitioned between several ranks.
#[derive(Clone, Copy, Debug, Serialize)]
struct Shares {
    /// The most edges of a rank over the mean.
    imbalance: f64,
    /// The most vertices of others that a rank is given rows of.
    most_halo: u64,
    /// Bytes that a rank gives the others in a step, of the one that gives most.
    most_sent_bytes: u64,
    /// What a step takes longer than without exchanges, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    exposed_ms: Option<f64>,
}

impl Bound {
    fn of(profile: &Profile, group: Option<&Group>) -> Result<Self, Error> {
        let own = 1e3 * profile.bytes() as f64 / profile.bytes_per_second;
        let all = match group {
            Some(group) => group.gather("bytes of a step", &[own, profile.ms])?,
            None => vec![vec![own, profile.ms]],
        };
        let slowest = |at: usize| all.iter().map(|of| of[at]).fold(0.0, f64::max);
        Ok(Self {
            bytes_ms: slowest(0),
            over_bytes: slowest(1) / slowest(0),
        })
    }
}

impl Shares {
    /// Of what each rank has: edges, rows of others, bytes that it gives, and without exchanges the milliseconds of a
    /// step, which takes `ms` with them.
    fn new(all: &[Vec<f64>], ms: f64) -> Self {
        let most = |at: usize| all.iter().map(|of| of[at]).fold(0.0, f64::max);
        let balance = Balance {
            vertices: Vec::new(),
            edges: all.iter().map(|of| of[0] as usize).collect(),
            halo: Vec::new(),
            sent: Vec::new(),
        };
        Self {
            imbalance: balance.imbalance(),
            most_halo: most(1) as u64,
            most_sent_bytes: most(2) as u64,
            exposed_ms: Some(most(3))
                .filter(|still| *still > 0.0)
                .map(|still| (ms - still).max(0.0)),
        }
    }
}

/// Trains every model that was asked for on every graph.
pub fn run(args: &TrainBenchArgs, stop: &AtomicBool) -> Result<(), Failure> {
    if let Some(devices) = &args.devices {
        return launch::run(devices, matches!(args.device, DeviceName::Auto));
    }
    let ranks = match &args.rendezvous {
        Some(rendezvous) => {
            let (rank, ranks) = this_process()?;
            let device = device_name("a GPU");
            check_key(rendezvous, ranks)?;
            let group = meet(rendezvous, &Member::new(rank, ranks, &device, DEADLINE))?;
            Some(group).filter(|group| group.ranks() > 1)
        }
        None => None,
    };
    if let (None, Some(option)) = (&ranks, args.of_ranks()) {
        return Err(Failure::Input(format!(
            "{option} is of several ranks, and this is one; give --devices with several GPUs or --rendezvous, or leave it out"
        )));
    }
    if let Some(group) = &ranks {
        let gather = args.gather.unwrap_or_default();
        group.expect_same("--gather", gather as u64)?;
    }
    let follows = ranks.as_ref().is_some_and(|group| group.rank() > 0);
    let mut peers = Vec::new();
    for path in &args.against {
        peers.extend(read_peers(path)?);
    }
    let json = graphs::json_lines(&args.graphs, args.json.as_deref().filter(|_| !follows))?;
    let mut bench = Bench {
        args,
        peers: &fastest(peers),
        page: Page::new(json.is_stdout()),
        json,
        ratios: BTreeMap::new(),
        ranks,
        follows,
        stop,
    };
    let place = (bench.ranks.as_ref()).map_or((0, 1), |group| (group.rank(), group.ranks()));
    for name in &args.graphs {
        let mut phases = Phases::begin();
        for opened in name.open_for_rank(place) {
            let (label, graph) = opened?;
            phases.end("made its edges");
            let on_graph = OnGraph {
                bench: &mut bench,
                label: &label,
                graph: &graph,
            };
            device::open(args.device.into(), on_graph)??;
            phases = Phases::begin();
        }
    }
    bench.summarise();
    bench.json.finish()
}

struct Bench<'a> {
    args: &'a TrainBenchArgs,
    peers: &'a [Peer],
    page: Page,
    json: JsonLines,
    /// Ratios by peer, model and precision.
    ratios: BTreeMap<(String, String, String), Vec<(f64, f64)>>,
    /// Of several ranks.
    ranks: Option<Group>,
    /// Whether another process shows what this one times.
    follows: bool,
    stop: &'a AtomicBool,
}

struct OnGraph<'a, 'b> {
    bench: &'a mut Bench<'b>,
    label: &'a str,
    graph: &'a Opened,
}

/// Reports with `-v` what the time before the first step goes to.
struct Phases(Instant);

impl Phases {
    fn begin() -> Self {
        Self(Instant::now())
    }

    fn end(&mut self, what: &str) {
        let now = Instant::now();
        tracing::info!("{what} in {:.1} s", (now - self.0).as_secs_f64());
        self.0 = now;
    }
}

impl Task for OnGraph<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let args = self.bench.args;
        let group = match &self.bench.ranks {
            Some(group) => Some(Overlap::of(
                args.overlap,
                (args.exchange.unwrap_or_default()).link(group.clone(), &device.backend)?,
            )?),
            None => None,
        };
        for &name in &args.model {
            for &precision in &args.precision {
                if self.bench.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                with_element!(precision.into(), E => self.time::<B, E>(device, name, group.as_ref())?);
            }
        }
        Ok(())
    }
}

impl OnGraph<'_, '_> {
    fn time<B: Backend, E: Element>(
        &mut self,
        device: &Device<B>,
        name: ModelName,
        group: Option<&Group>,
    ) -> Result<(), Failure> {
        let (args, backend) = (self.bench.args, &device.backend);
        let (features, classes) = (args.features as usize, args.classes as usize);
        let mut config = ModelConfig {
            hidden: args.hidden as usize,
            dropout: 0.0,
            recompute: args.recompute,
            messages: args.messages.map(Into::into),
            store: args.store.map(Into::into),
            ..name.config(features, classes)
        };
        config.policy.edges_per_warp = args.edges_per_warp;
        config.layers = args.layers.map_or(config.layers, |layers| layers as usize);
        if let Opened::Whole(graph) = self.graph {
            // Features that no model can be trained on, whatever it takes.
            crate::bench::measure::reserved(graph.vertices(), features)?;
        }
        let mut phases = Phases::begin();
        let gather = args.gather.unwrap_or_default();
        let graph = Prepared::<E>::new(self.graph, &config, (group, gather.into()))?;
        phases.end("prepared the graph");
        let train = TrainConfig {
            record: !args.no_record,
            ..TrainConfig::new(E::PRECISION)
        };
        let room = graph.room((&config, &train), (device.multiprocessors, device.memory));
        phases.end("counted memory");
        let (footprint, by_rank) = match room {
            Ok(room) => room,
            Err(Failure::Input(reason)) => {
                self.bench.page.line(&format_args!(
                    "{:<16} {:<5} {:<6} left out: {reason}",
                    self.label,
                    name.as_str(),
                    E::PRECISION
                ));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };

        backend.reset_peak();
        let layers = config.layers;
        let model = Network::new(backend, &config, train.seed)?;
        let objective = graph.objective(backend, (&config, model.first_aggregates()))?;
        phases.end("brought graph and features to the device");
        let mut trainer = Trainer::new(backend, &objective, model, train)?;
        let given = group.map(Group::given_bytes);
        // The first step is launched.
        trainer.step()?;
        let given = (given.zip(group)).map(|(before, group)| group.given_bytes() - before);
        phases.end("took the first step");
        let mut ms = timed_steps(backend, &mut trainer, (args.epochs, group))?;
        if let Some(group) = group {
            let all = group.gather("times", &[ms])?;
            ms = all
                .iter()
                .fold(0.0, |most: f64, of_rank| most.max(of_rank[0]));
        }
        let loss = trainer.loss()?;
        if !loss.is_finite() {
            return Err(Failure::Run(format!(
                "the loss of {} in {} on {} is {loss} after {} steps; its time is none",
                name.as_str(),
                E::PRECISION,
                self.label,
                1 + WARM_UP + args.epochs
            )));
        }
        let recorded = trainer.is_recorded();
        let mut peak = backend.memory().peak_total;
        drop(trainer);
        let profile = match args.bound {
            true => {
                let mut model = Network::new(backend, &config, train.seed)?;
                let random = RandomState::new(backend, 0, 0)?;
                let steps = args.epochs as usize;
                Some(model.profile(objective.inputs(backend), &random, steps)?)
            }
            false => None,
        };
        let bound = profile.as_ref().map(|profile| Bound::of(profile, group));
        let bound = bound.transpose()?;
        // On the emulator no time means anything, and what was not sent may not be read.
        let still = match group {
            Some(group) if !matches!(args.device, DeviceName::Emulator) => {
                let model = Network::new(backend, &config, train.seed)?;
                group.keep_still(true);
                let time = || {
                    let mut trainer = Trainer::new(backend, &objective, model, train)?;
                    timed_steps(backend, &mut trainer, (args.epochs, Some(group)))
                };
                let time = time();
                group.keep_still(false);
                time?
            }
            _ => 0.0,
        };
        let shares = match (group, graph.of_rank(), given) {
            (Some(group), Some((edges, halo)), Some(given)) => {
                let own = [edges as f64, halo as f64, given as f64, still];
                Some(Shares::new(&group.gather("shares", &own)?, ms))
            }
            _ => None,
        };
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let mut rank_gib = Vec::new();
        if let Some(group) = group {
            let peaks = group.gather("memory", &[peak])?.concat();
            peak = peaks.iter().copied().max().unwrap_or(peak);
            rank_gib = peaks.into_iter().map(gib).collect();
        }
        let against: Vec<Ratio<'_>> = self
            .bench
            .peers
            .iter()
            .filter_map(|peer| peer.ratio(name.as_str(), self.label, (ms, gib(peak))))
            .collect();
        let row = Row {
            event: "train",
            model: name.as_str(),
            graph: self.label,
            device: &backend.name(),
            vertices: graph.counts().0,
            edges: graph.counts().1,
            features: args.features,
            classes: args.classes,
            hidden: args.hidden,
            layers,
            precision: E::PRECISION.to_string(),
            messages: config.messages.map(CodeFormat::name),
            store: config.store.map(Store::name),
            recorded,
            ranks: group.map(Group::ranks),
            exchange: group.map(moved_by),
            gather: graph.gather().map(Gather::name),
            overlap: group.and_then(|group| group.library().map(|_| group.overlaps())),
            shares,
            bound,
            ms,
            gib: gib(peak),
            foretold_gib: gib(by_rank
                .as_ref()
                .map_or(footprint.total(), |of| of.largest().1)),
            largest_rank: by_rank.as_ref().map(|of| of.largest().0),
            rank_gib,
            foretold_rank_gib: (by_rank.iter())
                .flat_map(RankMemory::totals)
                .map(gib)
                .collect(),
            loss,
            against,
        };
        self.bench.tell(&row, (profile.as_ref(), peak))
    }
}

/// Milliseconds of a step, the mean of a number of steps after some that are not timed, which all ranks begin together.
fn timed_steps<B: Backend, E: Element>(
    backend: &B,
    trainer: &mut Trainer<B, E, Network<B, E>>,
    (steps, group): (u32, Option<&Group>),
) -> Result<f64, Error> {
    for _ in 0..WARM_UP {
        trainer.step()?;
    }
    backend.synchronize()?;
    if let Some(group) = group {
        group.any("timed epochs", false)?;
    }
    let start = Instant::now();
    for _ in 0..steps {
        trainer.step()?;
    }
    backend.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(steps))
}

impl Bench<'_> {
    fn tell(
        &mut self,
        row: &Row<'_>,
        (profile, peak): (Option<&Profile>, u64),
    ) -> Result<(), Failure> {
        if self.follows {
            return Ok(());
        }
        let mut line = format!(
            "{:<16} {:<5} {:<6} {:>10.3} ms an epoch  {:>10}",
            row.graph,
            row.model,
            row.messages.unwrap_or(&row.precision),
            row.ms,
            bytes(peak)
        );
        if let Some(store) = row.store {
            line.push_str(&format!("  stored in {store}"));
        }
        if let (Some(ranks), Some(exchange)) = (row.ranks, row.exchange) {
            line.push_str(&format!("  {ranks} ranks by {exchange}"));
            if row.overlap == Some(true) {
                line.push_str(" beside computation");
            }
            if row.gather == Some(Gather::Whole.name()) {
                line.push_str(", whole gathers");
            }
            if let Some(exposed) = row.shares.and_then(|shares| shares.exposed_ms) {
                line.push_str(&format!(", {exposed:.3} ms of it for exchanges"));
            }
            if let Some(largest) = row.largest_rank {
                line.push_str(&format!(", rank {largest} the largest"));
            }
        }
        for ratio in &row.against {
            line.push_str(&format!(
                "  {}: {:.1} x faster, {:.1} x smaller",
                ratio.name, ratio.faster, ratio.smaller
            ));
            let key = (
                ratio.name.to_owned(),
                row.model.to_owned(),
                row.precision.clone(),
            );
            let ratios = self.ratios.entry(key).or_default();
            ratios.push((ratio.faster, ratio.smaller));
        }
        self.page.line(&line);
        if let Some(profile) = profile {
            if let Some(bound) = row.bound {
                self.page.line(&format_args!(
                    "its bytes take {:.3} ms; operators of {}, one by one:",
                    bound.bytes_ms,
                    row.ranks.map_or("the step", |_| "rank 0"),
                ));
            }
            self.page.line(profile);
            for operator in operators::rows(profile) {
                self.json.write(&operator)?;
            }
        }
        Ok(self.json.write(row)?)
    }

    /// Geometric means over the graphs.
    fn summarise(&mut self) {
        for ((peer, model, precision), ratios) in &self.ratios {
            let mean = |value: fn(&(f64, f64)) -> f64| {
                let sum: f64 = ratios.iter().map(|ratio| value(ratio).ln()).sum();
                (sum / ratios.len() as f64).exp()
            };
            self.page.line(&format_args!(
                "{model} in {precision} against {peer}, geometric mean of {} graphs: {:.1} x faster, {:.1} x smaller",
                ratios.len(),
                mean(|ratio| ratio.0),
                mean(|ratio| ratio.1)
            ));
        }
    }
}
