//! `halfgnn bench sampling`: how long a batch takes: what is sampled, the features of it, and a training step on it.

use super::measure::Times;
use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::json::JsonLines;
use crate::names::{DeviceName, probability, size};
use crate::room::feature_copies;
use crate::screen::{Page, count};
use clap::{Args, ValueEnum};
use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Backend, Block, MemoryKind};
use halfgnn::data::{FeatureRows, Targets, most_read};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::Graph;
use halfgnn::nn::{ModelConfig, Network, Propagation};
use halfgnn::ops::RowCache;
use halfgnn::sample::{
    Batch, EdgesIn, LayerSizes, LayerSources, Loader, Sampler, Sampling, SamplingPolicy, Seeds,
    SubgraphSampler, Subgraphs,
};
use halfgnn::tensor::{Matrix, Precision, padded};
use halfgnn::train::{Batches, Goal, Loss, Objective, TrainConfig, Trainer};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench sampling --graph kron:18
  halfgnn bench sampling --graph products-like --sampler neighbor:15,10,5 --batch 1024 --json sampling.jsonl

Three times are reported of the same batches: sampling the blocks and making them (sample), taking the rows of features in half from where they
lie (features), and a training step of a GraphSAGE on them (step). Of neighbours, on a GPU, two more: sampling the blocks into the same
memory each time, with places for all that it meets, recorded (replay), and all of a batch as train does it then, in which the next one is
sampled and its features are taken while this one is learnt from, or read where they lie (batch). Of GraphSAINT's subgraphs one more: counting for
their norms how often each vertex and edge is sampled, once a run (count). Seeds are all vertices, shuffled.";

/// Classes of the step: of ogbn-products.
const CLASSES: usize = 47;
/// Layers of a model whose graph is one for all.
const LAYERS: usize = 3;

/// Options of `bench sampling`.
#[derive(Args)]
pub struct SamplingBenchArgs {
    /// Graphs to draw from; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// How batches are sampled: neighbor:F,F,… or neighbor-replace:F,F,… with a fanout for each layer
    #[arg(long, value_name = "SAMPLER", default_value = "neighbor:15,10,5")]
    sampler: SamplingPolicy,
    /// Seeds of a batch
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Batches that are timed, after two that are not; the median is reported
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Features of a vertex
    #[arg(long, value_name = "F", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65536))]
    features: u32,
    /// Where features lie
    #[arg(long, value_enum, value_name = "MEMORY", default_value_t = LiesIn::Device)]
    features_in: LiesIn,
    /// Where the edges lie that neighbours are sampled from
    #[arg(long, value_enum, value_name = "MEMORY", default_value_t = EdgesLie::Device)]
    structure_in: EdgesLie,
    /// Of features in the host's memory: the amount of the GPU's memory for copies of those of the vertices that most
    /// edges lead from, such as 4GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    feature_cache: Option<u64>,
    /// Width of hidden layers
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    hidden: u32,
    /// Probability of an input of a layer to be dropped in a step, that of the features first, or one for all. Where no
    /// features are dropped a batch on a GPU reads them where they lie
    #[arg(long, value_name = "P[,P]…", value_delimiter = ',', num_args = 1, value_parser = probability, default_value = "0")]
    dropout: Vec<f32>,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// Where features lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum LiesIn {
    /// On the device
    Device,
    /// In the host's memory, page-locked, from where a GPU reads what a batch takes
    Host,
}

/// Where edges lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum EdgesLie {
    /// On the device
    Device,
    /// In the host's memory, page-locked, from where a GPU reads those that it samples
    Host,
    /// In a file in the folder of temporary files, TMPDIR or /tmp, of which the host draws
    Disk,
}

impl EdgesLie {
    fn place(self) -> EdgesIn {
        match self {
            Self::Device => EdgesIn::Device,
            Self::Host => EdgesIn::Host,
            Self::Disk => EdgesIn::Graph,
        }
    }
}

impl LiesIn {
    fn of_features(self) -> MemoryKind {
        match self {
            Self::Device => MemoryKind::Features,
            Self::Host => MemoryKind::HostFeatures,
        }
    }
}

/// A part of a batch on one graph.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    device: String,
    vertices: usize,
    edges: usize,
    sampler: String,
    batch: u32,
    dropout: &'a [f32],
    features_in: LiesIn,
    structure_in: EdgesLie,
    /// Vertices of whose features the GPU has copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_vertices: Option<usize>,
    /// `sample`, `features` or `step`; `replay` or `batch`; `count`.
    part: &'static str,
    #[serde(flatten)]
    times: Times,
    /// Batches in a second.
    batches_per_s: f64,
    /// Edges that a batch has, in the mean.
    sampled_edges: f64,
    /// Vertices whose features go into a batch, in the mean.
    inputs: f64,
    /// Bytes of features that are taken for it, in the mean.
    gathered_bytes: f64,
}

/// Times every graph that was asked for.
pub fn run(args: &SamplingBenchArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    if args.feature_cache.is_some() && args.features_in == LiesIn::Device {
        return Err(Failure::Input(
            "--feature-cache: copies are of features in the host's memory; add --features-in host, or leave it out".into(),
        ));
    }
    if args.structure_in != EdgesLie::Device && args.sampler.subgraphs().is_some() {
        return Err(Failure::Input(format!(
            "--structure-in: --sampler {} takes edges on the device, and only those of neighbours are drawn elsewhere; leave it out",
            args.sampler
        )));
    }
    let mut json = graphs::json_lines(&args.graphs, args.json.as_deref())?;
    graphs::each(&args.graphs, |label, mut graph| {
        if args.structure_in == EdgesLie::Disk {
            let stored = graph.to_disk(&std::env::temp_dir());
            graph = stored.map_err(|error| Failure::Input(error.to_string()))?;
        }
        let bench = Bench {
            args,
            label,
            graph: &graph,
            json: &mut json,
            stop,
            cached: None,
        };
        device::open(args.device.into(), bench)?
    })?;
    json.finish()
}

/// Draws the batch of some seeds and a step.
type Drawing<'a, B> = dyn FnMut(&[u32], u32) -> Result<Batch<B>, Error> + 'a;

struct Bench<'a> {
    args: &'a SamplingBenchArgs,
    label: &'a str,
    graph: &'a Graph,
    json: &'a mut JsonLines,
    stop: &'a AtomicBool,
    /// Vertices of whose features the GPU has copies.
    cached: Option<usize>,
}

/// What was seen of batches: milliseconds of each part, and sizes.
#[derive(Default)]
struct Seen {
    ms: [Vec<f64>; 3],
    edges: f64,
    inputs: f64,
    /// The largest layers.
    room: Vec<LayerSizes>,
}

/// Milliseconds of `work` with all that it queues on the backend.
fn timed<B: Backend, T>(
    backend: &B,
    ms: &mut Vec<f64>,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    backend.synchronize()?;
    let begin = Instant::now();
    let done = work()?;
    backend.synchronize()?;
    ms.push(begin.elapsed().as_secs_f64() * 1e3);
    Ok(done)
}

impl Task for Bench<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        /// Batches that are not timed: memory is asked for in them.
        const WARM_UP: usize = 2;
        let (backend, args) = (&device.backend, self.args);
        let (width, vertices) = (args.features as usize, self.graph.vertices());
        let all: Vec<u32> = (0..vertices as u32).collect();
        let mut neighbors = None;
        let mut counted = Vec::new();
        let edges = args.structure_in.place();
        let mut draw: Box<Drawing<'_, B>> = match args.sampler.subgraphs() {
            None => {
                let sampler = args.sampler.sampler(backend, (self.graph, edges), false)?;
                let sampler = neighbors.insert(sampler);
                Box::new(|seeds, step| sampler.sample(backend, seeds, 0, step))
            }
            Some(Subgraphs::Clusters(_)) => {
                return Err(Failure::Input(
                        "clusters are made before a run, and none of its batches draws; time a sampler that does".into(),
                    ));
            }
            Some(how) => {
                let mut sampler = SubgraphSampler::new(backend, self.graph, &all, how)?;
                let coverage = Sampling::of(args.sampler.clone(), None, None).coverage;
                // Once with little to count, for memory and kernels.
                sampler.coverage(backend, 0, 1)?;
                timed(backend, &mut counted, || {
                    let coverage = sampler.coverage(backend, 0, coverage)?;
                    let of_edges = coverage.edge_factors(backend, sampler.graph())?;
                    Ok((of_edges, coverage.vertex_weights()))
                })?;
                Box::new(move |_, step| {
                    let subgraph = sampler.draw(backend, 0, step)?;
                    Ok(Batch {
                        blocks: vec![subgraph.block],
                        inputs: subgraph.vertices,
                    })
                })
            }
        };
        let kind = args.features_in.of_features();
        let features = Matrix::<B, f16>::from_rows(backend, (vertices, width), kind, |row, to| {
            to.iter_mut()
                .zip(row..)
                .for_each(|(to, at)| *to = (at % 17) as f32 / 17.0);
        })?;
        let features = FeatureRows::from(features);
        if let Some(bytes) = args.feature_cache {
            if device.multiprocessors.is_none() {
                return Err(Failure::Input(
                    "--feature-cache: on a CPU all memory is the host's; leave it out".into(),
                ));
            }
            let copies = feature_copies::<B, f16>((vertices, width), bytes)?;
            features.cache_rows(backend, &most_read(self.graph, copies))?;
        }
        self.cached = features.cached().map(RowCache::len);
        let shape = ModelConfig {
            layers: args.sampler.layers().unwrap_or(LAYERS),
            hidden: args.hidden as usize,
            dropout: args.dropout[0],
            dropout_by_layer: match &args.dropout[..] {
                [_] => Vec::new(),
                of_each => of_each.to_vec(),
            },
            ..ModelConfig::sage(width, CLASSES)
        };
        let loader = Loader::new(all, args.batch as usize, 0)?;
        let mut trainer: Option<Trainer<B, f16, Network<B, f16>>> = None;
        let mut seen = Seen::default();
        // From its beginning again where an epoch has not enough.
        let epoch: Vec<Seeds> = loader.epoch(0).collect();
        let seeds = epoch.iter().cycle().take(WARM_UP + args.batches as usize);
        for (number, Seeds { step, vertices, .. }) in seeds.enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if number == WARM_UP {
                seen = Seen {
                    room: seen.room,
                    ..Seen::default()
                };
            }
            let [of_sample, of_features, of_step] = &mut seen.ms;
            let batch: Batch<B> = timed(backend, of_sample, || draw(vertices, *step))?;
            let edges = batch.blocks.iter().map(|block| block.forward().edges());
            seen.edges += edges.sum::<usize>() as f64;
            seen.inputs += batch.inputs.len() as f64;
            largest(&mut seen.room, &batch);
            let take = || features.take(backend, &batch.inputs, MemoryKind::Features);
            let taken = timed(backend, of_features, take)?;
            // Of a subgraph all vertices learn.
            let learning = batch.blocks.last().map_or(0, Block::destinations);
            let labels: Vec<u32> = (0..learning as u32).map(|it| it % CLASSES as u32).collect();
            let learn = || {
                let norm = shape.norm();
                let graphs = (batch.blocks.into_iter())
                    .map(|block| Propagation::of_sampled(backend, block, norm))
                    .collect::<Result<_, _>>()?;
                let all: Vec<u32> = (0..labels.len() as u32).collect();
                let splits = [&all[..], &[], &[]];
                let task = Objective::on_blocks(backend, graphs, taken, &labels, CLASSES, splits)?;
                match &mut trainer {
                    Some(trainer) => trainer.step_on(&task),
                    None => {
                        let model = Network::new(backend, &shape, 0)?;
                        let config = TrainConfig::new(Precision::Half);
                        let made = Trainer::new(backend, &task, model, config)?;
                        trainer.insert(made).step_on(&task)
                    }
                }
            };
            timed(backend, of_step, learn)?;
        }
        drop((draw, trainer));
        let timed = args.batches as usize;
        let sizes = [seen.edges, seen.inputs].map(|sum| sum / timed as f64);
        let mut parts: Vec<_> = ["sample", "features", "step"]
            .into_iter()
            .zip(seen.ms)
            .collect();
        parts.push(("count", counted));
        if let Some(sampler) = neighbors {
            let seeds = epoch.iter().cycle().take(timed);
            let replayed = replayed(backend, &*sampler, &seen.room, seeds)?;
            drop(sampler);
            // Whole batches where the next is sampled while one is learnt from.
            let draws_ahead = replayed.is_some() || args.structure_in == EdgesLie::Disk;
            parts.extend(replayed.map(|ms| ("replay", ms)));
            if draws_ahead {
                parts.push(("batch", self.whole_batches(backend, features, &shape)?));
            }
        }
        for (part, mut ms) in parts {
            if ms.is_empty() {
                continue;
            }
            ms.sort_by(f64::total_cmp);
            let times = Times {
                ms: ms[ms.len() / 2],
                ms_fastest: ms[0],
                ms_slowest: ms[ms.len() - 1],
            };
            self.tell(backend.name(), part, times, sizes)?;
        }
        Ok(())
    }
}

/// Keeps the largest sizes of each layer, that of the seeds first.
fn largest<B: Backend>(room: &mut Vec<LayerSizes>, batch: &Batch<B>) {
    let nothing = LayerSizes {
        destinations: 0,
        edges: 0,
        met: 0,
    };
    room.resize(batch.blocks.len(), nothing);
    for (room, block) in room.iter_mut().zip(batch.blocks.iter().rev()) {
        room.edges = room.edges.max(block.forward().edges());
        room.met = room.met.max(block.sources() - block.destinations());
    }
}

/// Milliseconds of drawing batches into the same memory, recorded, with the transposes that a GraphSAGE asks for and
/// the sizes that a host looks at; none where nothing is gained by recording.
fn replayed<'a, B: Backend>(
    backend: &B,
    sampler: &dyn Sampler<B>,
    room: &[LayerSizes],
    seeds: impl Iterator<Item = &'a Seeds> + Clone,
) -> Result<Option<Vec<f64>>, Error> {
    let Some(most) = seeds.clone().map(|seeds| seeds.vertices.len()).max() else {
        return Ok(None);
    };
    let Some((mut fixed, mut blocks)) =
        sampler.fixed(backend, (most, 0), (room, LayerSources::Met))?
    else {
        return Ok(None);
    };
    let mut recording = None;
    let mut ms = Vec::new();
    for Seeds { step, vertices, .. } in seeds {
        if recording.is_none() {
            fixed.begin(backend, vertices, *step)?;
            fixed.draw(backend, blocks.iter_mut())?;
            for block in blocks.iter().skip(1) {
                block.backward(backend)?;
            }
            // Once with the transposes, before it is recorded.
            fixed.begin(backend, vertices, *step)?;
            fixed.draw(backend, blocks.iter_mut())?;
            recording = backend.record(|| fixed.draw(backend, blocks.iter_mut()))?;
        }
        let Some(recording) = &recording else {
            return Ok(None);
        };
        timed(backend, &mut ms, || {
            fixed.begin(backend, vertices, *step)?;
            backend.replay(recording)?;
            fixed.fits(backend)
        })?;
    }
    Ok(Some(ms))
}

impl Bench<'_> {
    /// Milliseconds of batches as training has them: sampling, features, a step, and the loss that is reported of it.
    fn whole_batches<B: Backend>(
        &self,
        backend: &B,
        features: FeatureRows<B, f16>,
        model: &ModelConfig,
    ) -> Result<Vec<f64>, Error> {
        /// Batches that are not timed: those behind which draws and steps are recorded.
        const WARM_UP: usize = 4;
        let vertices = self.graph.vertices() as u32;
        let labels = Targets::from(
            (0..vertices)
                .map(|it| it % CLASSES as u32)
                .collect::<Vec<_>>(),
        );
        let (all, loss): (Vec<u32>, _) = ((0..vertices).collect(), Loss::of(&labels));
        let goal = Goal {
            targets: &labels,
            outputs: CLASSES,
            loss: &loss,
            splits: [&all, &[], &[]],
        };
        // Nothing is evaluated, so there is no graph to do it on.
        let objective = Objective::of_rows(backend, Vec::new(), features, &goal)?;
        let sampling = Sampling {
            edges: self.args.structure_in.place(),
            ..Sampling::of(self.args.sampler.clone(), Some(self.args.batch), None)
        };
        let how = (&loss, model, model.layers);
        let of = (self.graph, None);
        let batches = Batches::of_sampling(backend, &objective, how, of, (&sampling, 0))?;
        let network = Network::<B, f16>::new(backend, model, 0)?;
        let config = TrainConfig::new(Precision::Half);
        let mut trainer = Trainer::sampled(backend, batches, &objective, network, config)?;
        let (mut ms, mut begin) = (Vec::new(), Instant::now());
        trainer.next_epoch_with(|report| {
            let now = Instant::now();
            if report.batch > WARM_UP {
                ms.push((now - begin).as_secs_f64() * 1e3);
            }
            begin = now;
            // The last batch of an epoch would be followed by an evaluation.
            match ms.len() < self.args.batches as usize && report.batch + 1 < report.of {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(ms)
    }

    fn tell(
        &mut self,
        device: String,
        part: &'static str,
        times: Times,
        [sampled_edges, inputs]: [f64; 2],
    ) -> Result<(), Failure> {
        let stride = padded::<f16>(self.args.features as usize) * size_of::<f16>();
        let row = Row {
            event: "sampling",
            graph: self.label,
            device,
            vertices: self.graph.vertices(),
            edges: self.graph.edges(),
            sampler: self.args.sampler.to_string(),
            batch: self.args.batch,
            dropout: &self.args.dropout,
            features_in: self.args.features_in,
            structure_in: self.args.structure_in,
            cached_vertices: self.cached,
            part,
            times,
            batches_per_s: 1e3 / times.ms,
            sampled_edges,
            inputs,
            gathered_bytes: inputs * stride as f64,
        };
        if !self.json.is_stdout() {
            Page::new(false).line(&format!(
                "{:<16} {:<18} {part:<9} {:>9.3} ms a {} ({:.3} to {:.3})  {:>9.0} a second; {} edges of {} vertices",
                row.graph,
                row.sampler,
                times.ms,
                if part == "count" { "run" } else { "batch" },
                times.ms_fastest,
                times.ms_slowest,
                row.batches_per_s,
                count(sampled_edges as usize),
                count(inputs as usize),
            ));
        }
        Ok(self.json.write(&row)?)
    }
}
