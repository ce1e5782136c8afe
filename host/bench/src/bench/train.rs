//! `halfgnn bench train`: how long a training step takes, and how much memory, beside figures of others.
//!
//! The task is made up: random features, a random class for each vertex, all of them trained on, no dropout. What a step
//! costs does not depend on what there is to learn.

use super::measure::zeros;
use crate::failure::Failure;
use crate::graphs::{GraphName, Opened};
use crate::json::JsonLines;
use crate::launch::{self, Devices, devices};
use crate::model::ModelName;
use crate::names::{CodeFormatName, DeviceName, PrecisionName, StoreName};
use crate::processes::{Exchange, Overlap, device_name, moved_by, this_process};
use crate::rank_memory::{self, RankMemory};
use crate::screen::{Page, bytes};
use clap::Args;
use halfgnn::Error;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::Targets;
use halfgnn::device::{self, Device, Task};
use halfgnn::distributed::{Group, Partition, Rendezvous, Shard, Tcp};
use halfgnn::graph::generate::draw_words;
use halfgnn::graph::{Graph, GraphCounts};
use halfgnn::nn::{EdgeData, ModelConfig, Network, PreparedGraph, PreparedRows, Propagation};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Footprint, Goal, Loss, Objective, TrainConfig, Trainer, Work};
use halfgnn::with_element;
use halfgnn_contract::rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    /// Edges that a warp of an SpMM walks, a power of two from 16 to 256, instead of what suits graph and card
    #[arg(long, value_name = "N")]
    pub edges_per_warp: Option<u32>,
    /// Launch the kernels of a step one by one instead of replaying a recorded step
    #[arg(long)]
    pub no_record: bool,
    /// Deal each graph out to processes, one for each of these cards of this host, which the program starts
    #[arg(long, value_name = "0,1,…|all", value_parser = devices, conflicts_with = "rendezvous")]
    pub devices: Option<Devices>,
    /// Deal it out to processes that somebody starts, and where these meet
    #[arg(long, value_name = "tcp://HOST:PORT|file:PATH")]
    pub rendezvous: Option<Rendezvous>,
    /// What moves rows and gradients between processes
    #[arg(long, value_enum, default_value_t = Exchange::Auto)]
    pub exchange: Exchange,
    /// Whether devices compute while NCCL moves rows, in recorded steps [default: off]
    #[arg(long, value_enum)]
    pub overlap: Option<Overlap>,
    /// Figures of others to set beside: JSON lines with name, model, graph, ms, gib
    #[arg(long, value_name = "FILE")]
    pub against: Vec<PathBuf>,
    /// Where to train; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// A figure of somebody else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Peer {
    name: String,
    model: String,
    graph: String,
    ms: f64,
    gib: f64,
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
    recorded: bool,
    /// Ranks, where there are several, and what moves rows between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<&'a str>,
    /// Whether devices compute meanwhile, where they exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<bool>,
    ms: f64,
    gib: f64,
    foretold_gib: f64,
    /// The rank that was foretold to take most, what each took and what was foretold of it, where there are several.
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

#[derive(Clone, Debug, Serialize)]
struct Ratio<'a> {
    name: &'a str,
    faster: f64,
    smaller: f64,
}

/// Trains every model that was asked for on every graph.
pub fn run(args: &TrainBenchArgs, stop: &AtomicBool) -> Result<(), Failure> {
    if let Some(devices) = &args.devices {
        return launch::run(devices, matches!(args.device, DeviceName::Auto));
    }
    let ranks = match &args.rendezvous {
        Some(rendezvous) => {
            let place = this_process()?;
            let device = device_name("a card");
            let group = Group::new(Tcp::meet(rendezvous, place, &device, DEADLINE)?);
            Some(group).filter(|group| group.ranks() > 1)
        }
        None => None,
    };
    let follows = ranks.as_ref().is_some_and(|group| group.rank() > 0);
    let mut peers = Vec::new();
    for path in &args.against {
        peers.extend(read_peers(path)?);
    }
    let json = JsonLines::open(args.json.as_deref().filter(|_| !follows))?;
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

/// The lines of a file of peers.
fn read_peers(path: &Path) -> Result<Vec<Peer>, Failure> {
    let refuse = |reason: String| Failure::Input(format!("--against {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| match serde_json::from_str::<Peer>(line) {
            Ok(Peer { name, .. }) if name.contains(char::is_control) => Err(refuse(format!(
                "line {}: the name has control characters, which cannot be shown",
                index + 1
            ))),
            Ok(peer) if peer.ms > 0.0 && peer.gib > 0.0 => Ok(peer),
            Ok(_) => Err(refuse(format!("line {}: ms and gib must be above 0", index + 1))),
            Err(error) => Err(refuse(format!(
                "line {}: {error}; a line is such as {{\"name\": \"PyG\", \"model\": \"gcn\", \"graph\": \"kron21\", \"ms\": 62.0, \"gib\": 10.2}}",
                index + 1
            ))),
        })
        .collect()
}

/// Of each peer's figures for a model on a graph the one with the least time.
fn fastest(peers: Vec<Peer>) -> Vec<Peer> {
    let mut best: Vec<Peer> = Vec::new();
    for peer in peers {
        let same = |other: &&mut Peer| {
            (&other.name, &other.model, &other.graph) == (&peer.name, &peer.model, &peer.graph)
        };
        match best.iter_mut().find(same) {
            Some(other) if peer.ms < other.ms => *other = peer,
            Some(_) => {}
            None => best.push(peer),
        }
    }
    best
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

/// Tells with `-v` what the time before the first step goes to.
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
                args.exchange.link(group.clone(), &device.backend)?,
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
        let mut phases = Phases::begin();
        let graph = Prepared::<E>::new(self.graph, &config, group)?;
        phases.end("prepared the graph");
        let (card, memory) = (device.multiprocessors, device.memory);
        let train = TrainConfig {
            record: !args.no_record,
            ..TrainConfig::new(E::PRECISION)
        };
        let how = (&config, &train, Work::Training);
        let room = match &graph {
            Prepared::Dealt(group, dealt) => dealt.room(group, (&config, &train), (card, memory)),
            Prepared::Whole(graph) => {
                Footprint::check_work::<E>(&GraphCounts::of(graph), how, card, memory)
                    .map(|footprint| (footprint, None))
                    .map_err(Failure::from)
            }
        };
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
        let objective = match &graph {
            Prepared::Dealt(group, dealt) => {
                dealt.objective(backend, (&config, model.first_hears()), group)?
            }
            Prepared::Whole(graph) => objective::<B, E>(backend, graph, &config)?,
        };
        phases.end("brought graph and features to the device");
        let mut trainer = Trainer::new(backend, &objective, model, train)?;
        for _ in 0..WARM_UP {
            trainer.step()?;
        }
        backend.synchronize()?;
        phases.end("took the first steps");
        if let Some(group) = group {
            group.any("timed epochs", false)?;
        }
        let start = Instant::now();
        for _ in 0..args.epochs {
            trainer.step()?;
        }
        backend.synchronize()?;
        let mut ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(args.epochs);
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
                WARM_UP + args.epochs
            )));
        }
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let mut peak = backend.memory().peak_total;
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
            .filter(|peer| peer.model == name.as_str() && peer.graph == self.label)
            .map(|peer| Ratio {
                name: &peer.name,
                faster: peer.ms / ms,
                smaller: peer.gib / gib(peak),
            })
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
            recorded: trainer.is_recorded(),
            ranks: group.map(Group::ranks),
            exchange: group.map(moved_by),
            overlap: group.and_then(|group| group.library().map(|_| group.overlaps())),
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
        self.bench.tell(&row, peak)
    }
}

impl Bench<'_> {
    fn tell(&mut self, row: &Row<'_>, peak: u64) -> Result<(), Failure> {
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
        if let (Some(ranks), Some(exchange)) = (row.ranks, row.exchange) {
            line.push_str(&format!("  {ranks} ranks by {exchange}"));
            if row.overlap == Some(true) {
                line.push_str(" beside computation");
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

/// The features of so many before them.
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

/// A graph as a model wants it, and what this process has of it.
enum Prepared<'a, E: Element> {
    Whole(Cow<'a, Graph>),
    Dealt(&'a Group, Box<Dealt<'a, E>>),
}

impl<'a, E: Element> Prepared<'a, E> {
    fn new(
        graph: &'a Opened,
        config: &ModelConfig,
        group: Option<&'a Group>,
    ) -> Result<Self, Error> {
        match (graph, group) {
            (_, Some(group)) => Ok(Self::Dealt(
                group,
                Box::new(Dealt::new(graph, config, group)?),
            )),
            (Opened::Whole(graph), None) => Ok(Self::Whole(config.prepare(graph)?)),
            (Opened::Share(_), None) => unreachable!("a share is a rank's"),
        }
    }

    /// Vertices and edges of the whole graph.
    fn counts(&self) -> (usize, usize) {
        match self {
            Self::Whole(graph) => (graph.vertices(), graph.edges()),
            Self::Dealt(_, dealt) => dealt.counts,
        }
    }
}

/// Random features and labels on a graph; every vertex is trained on.
fn objective<B: Backend, E: Element>(
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

/// A graph that is dealt out by degree: what a rank has of it, and vertices and edges of all.
struct Dealt<'a, E: Element> {
    of_rank: OfRank<'a, E>,
    counts: (usize, usize),
}

/// What a rank has of a graph that each has, or of one that they made together.
enum OfRank<'a, E: Element> {
    Whole(PreparedGraph<'a>, Shard),
    Rows(PreparedRows<E>),
}

impl<'a, E: Element> Dealt<'a, E> {
    /// Once, of the graph as the model wants it.
    fn new(graph: &'a Opened, config: &ModelConfig, group: &Group) -> Result<Self, Error> {
        match graph {
            Opened::Whole(graph) => {
                let prepared = config.prepare_edges(graph, EdgeData::default())?;
                let partition = Partition::by_degree(&prepared.graph, group.ranks());
                let partition = partition.map_err(|problem| Error::Unsupported {
                    operator: "bench train",
                    reason: problem.to_string(),
                })?;
                let shard = Shard::new(&prepared.graph, &partition, group.rank())?;
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
                let prepared = config.prepare_rows((rows, none), of, group)?;
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

    /// What training takes of this rank, and of all; refused where one has no room.
    fn room(
        &self,
        group: &Group,
        how: (&ModelConfig, &TrainConfig),
        (card, memory): (Option<u32>, Option<(u64, u64)>),
    ) -> Result<(Footprint, Option<RankMemory>), Failure> {
        let of_edges = match &self.of_rank {
            OfRank::Whole(prepared, _) => prepared.of_edges(),
            OfRank::Rows(prepared) => prepared.of_edges(),
        };
        let own = Footprint::of_shard::<E>((self.shard(), of_edges), how, card)?;
        let all = RankMemory::agree(group, &own, memory, rank_memory::Devices::Own)?;
        Ok((own, Some(all)))
    }

    /// Random features and labels on what a rank has, for a model whose first layer hears from neighbours or does not.
    fn objective<B: Backend>(
        &self,
        backend: &B,
        (config, first_hears): (&ModelConfig, bool),
        group: &Group,
    ) -> Result<Objective<B, E>, Error> {
        let (shard, (count, _)) = (self.shard(), self.counts);
        let vertices = match first_hears {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, graph: &str, ms: f64) -> Peer {
        Peer {
            name: name.into(),
            model: "gcn".into(),
            graph: graph.into(),
            ms,
            gib: 1.0 + ms,
        }
    }

    #[test]
    fn the_fastest_of_a_peer_counts() {
        let all = vec![
            peer("a", "g", 3.0),
            peer("a", "g", 2.0),
            peer("b", "g", 9.0),
            peer("a", "h", 5.0),
            peer("a", "g", 4.0),
        ];
        let best = [
            peer("a", "g", 2.0),
            peer("b", "g", 9.0),
            peer("a", "h", 5.0),
        ];
        assert_eq!(fastest(all), best);
    }

    #[test]
    fn a_line_that_is_no_figure_is_told_by_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("peers");
        let line = serde_json::to_string(&peer("a", "g", 1.0)).expect("JSON");
        let read = |text: String| {
            std::fs::write(&path, text).expect("room");
            read_peers(&path).map_err(|failure| failure.to_string())
        };
        assert_eq!(
            read(format!("{line}\n\n{line}\n")).expect("figures").len(),
            2
        );
        let error = read(format!("{line}\n{{\"name\": 1}}\n")).expect_err("no figure");
        assert!(
            error.contains("line 2") && error.contains("peers"),
            "{error}"
        );
        let nothing = serde_json::to_string(&peer("a", "g", 0.0)).expect("JSON");
        assert!(read(nothing).expect_err("no time").contains("line 1"));
    }
}
