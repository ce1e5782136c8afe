//! `halfgnn tune-binary`: what a trained network of one bit is worth with other parts of its layers of one bit.

use crate::args::DeviceName;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::screen::{Page, bytes};
use crate::session::inputs;
use crate::task::take_targets_of;
use crate::train::describe;
use clap::Args;
use halfgnn::backend::{Backend, MemoryReport};
use halfgnn::data::{Dataset, Features, Origin, UNLABELLED, UploadFeatures};
use halfgnn::device::{self, Device, Task};
use halfgnn::nn::{Binary, EdgeData, Inputs, Mode, Model, ModelConfig, Network};
use halfgnn::ops::BitMatrix;
use halfgnn::predict::class;
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Checkpoint, Tensor, Tensors, load_weights};
use halfgnn::with_element;
use serde::Serialize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  halfgnn train --dataset cora.npz --binary bin --save cora.safetensors
  halfgnn tune-binary --model cora.safetensors --dataset cora.npz
  halfgnn tune-binary --model cora.safetensors --dataset cora.npz --lose 2 --json variants.jsonl

Of each layer the products are of bits; what it sums up over neighbours is in half (full) or of bits as well (bin). Every variant
takes the weights as they are trained: one that proves fast and almost as good is worth a training of its own (train --binary bin,full).
The time of a variant is that of an evaluation which is recorded once and replayed. Where its first layer reads nothing but signs of the
features, these are made before, once, and lie on the device instead of the features; so are bits of weights.
A layer that sums up signs takes the mean over neighbours, and so do all layers with it. Names of operators are BitGNN's:
activation, second factor, result, F in full precision, B of bits.";

/// More layers have too many variants.
const MOST_LAYERS: usize = 6;

/// Options of `tune-binary`.
#[derive(Args)]
pub struct TuneBinaryArgs {
    /// A checkpoint of a network of one bit, of train --binary, or packed by export --to bits
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// A graph with as many features as the model was trained with, and with labels: file, folder, name below
    /// HALFGNN_DATA, or recipe
    #[arg(long, value_name = "DATASET")]
    pub dataset: SourceName,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Points of validation accuracy that the variant may lose that is named at the end, the fastest of those that lose
    /// no more
    #[arg(long, value_name = "POINTS", default_value_t = 1.0, value_parser = points)]
    pub lose: f64,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Where to compute; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

fn points(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(points) if (0.0..=100.0).contains(&points) => Ok(points),
        _ => Err("say points of accuracy, from 0 to 100".into()),
    }
}

/// A variant, and what it is worth.
#[derive(Clone, Debug, Serialize)]
struct Variant {
    event: &'static str,
    device: String,
    /// `full` or `bin` of each layer, as `train --binary` takes them.
    binary: String,
    /// The operators of each layer, under BitGNN's names.
    operators: Vec<&'static str>,
    /// Whether it is what was trained.
    is_trained: bool,
    /// In percent; none where the dataset has no such vertices.
    validation_accuracy: Option<f64>,
    test_accuracy: Option<f64>,
    /// Of an evaluation.
    ms: f64,
    ms_fastest: f64,
    ms_slowest: f64,
    /// Memory of the device at its peak, graph and features among it.
    peak_bytes: u64,
}

/// The variant that is worth a training.
#[derive(Debug, Serialize)]
struct Chosen<'a> {
    event: &'static str,
    binary: &'a str,
    lose: f64,
    /// How many times faster it is than what was trained.
    speedup: f64,
}

/// Evaluates every variant.
pub fn run(args: &TuneBinaryArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new();
    outputs.reads("--model", &args.model);
    outputs.reads_source(&args.dataset, &args.open);
    outputs.stream("--json", args.json.as_deref())?;
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let checkpoint = crate::checkpoint::open_model(&args.model)?;
    let refuse = |reason: String| Failure::Input(format!("{}: {reason}", args.model.display()));
    let model = &checkpoint.model;
    if model.binary.is_none() {
        return Err(refuse(
            "its model has no layers of one bit; name one of train --binary".into(),
        ));
    }
    if model.layers > MOST_LAYERS {
        return Err(refuse(format!(
            "its model has {} layers, which are 2^{} variants; at most {MOST_LAYERS} layers are tried",
            model.layers, model.layers
        )));
    }
    if checkpoint.links.is_some() {
        return Err(refuse(
            "its model tells links, and variants are told by the accuracy of classes".into(),
        ));
    }
    let mut dataset = args.open.dataset(&args.dataset)?;
    if dataset.feature_len() != model.features {
        return Err(refuse(format!(
            "its model was trained on {} features, and {} has {}",
            model.features,
            dataset.name,
            dataset.feature_len()
        )));
    }
    take_targets_of(&checkpoint.loss, &mut dataset)?;
    if dataset.edge_weights.is_some() {
        return Err(Failure::Input(format!(
            "{}: its edges have weights, and sums of signs have none; add --ignore-edge-weights",
            dataset.name
        )));
    }
    let has_truth = |list: &[u32]| !list.is_empty();
    if dataset.targets.classes().is_none() || !(has_truth(&dataset.val) || has_truth(&dataset.test))
    {
        return Err(Failure::Input(format!(
            "{}: variants are told by their accuracy, and it has no classes of vertices to validate or to test on",
            dataset.name
        )));
    }
    if let Some(divisors) = &checkpoint.feature_divisors {
        dataset.scale_features(divisors, Origin::Checkpoint);
    }
    page.line(&describe(&dataset));
    let tuning = Tuning {
        args,
        checkpoint: &checkpoint,
        dataset: &dataset,
    };
    let variants = device::open(args.device.into(), tuning)??;
    page.line(&format_args!(
        "{:<24} {:>10} {:>10} {:>11} {:>11}  operators",
        "layers", "validation", "test", "ms", "memory"
    ));
    let percent = |of: Option<f64>| of.map_or("-".into(), |of| format!("{of:.2} %"));
    for variant in &variants {
        page.line(&format_args!(
            "{:<24} {:>10} {:>10} {:>11.4} {:>11}  {}{}",
            variant.binary,
            percent(variant.validation_accuracy),
            percent(variant.test_accuracy),
            variant.ms,
            bytes(variant.peak_bytes),
            variant.operators.join("; "),
            if variant.is_trained {
                "   (trained)"
            } else {
                ""
            },
        ));
        json.write(variant)?;
    }
    let trained = variants.iter().find(|variant| variant.is_trained);
    if let (Some(chosen), Some(trained)) = (choose(&variants, args.lose), trained) {
        let speedup = trained.ms / chosen.ms;
        page.line(&format_args!(
            "fastest within {} points of the best validation: {}, {speedup:.2} times as fast as what was trained",
            args.lose, chosen.binary
        ));
        json.write(&Chosen {
            event: "chosen",
            binary: &chosen.binary,
            lose: args.lose,
            speedup,
        })?;
    }
    json.finish()
}

/// The fastest of those that lose no more than the given number of points; where nothing is validated it is the test
/// that has no part in a choice, and none is made.
fn choose(variants: &[Variant], lose: f64) -> Option<&Variant> {
    let of = |variant: &Variant| variant.validation_accuracy;
    let best = variants.iter().filter_map(of).reduce(f64::max)?;
    let good = |variant: &&Variant| of(variant).is_some_and(|own| own >= best - lose);
    let good = variants.iter().filter(good);
    good.min_by(|a, b| a.ms.total_cmp(&b.ms))
}

struct Tuning<'a> {
    args: &'a TuneBinaryArgs,
    checkpoint: &'a Checkpoint,
    dataset: &'a Dataset,
}

impl Task for Tuning<'_> {
    type Output = Result<Vec<Variant>, Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let layers = self.checkpoint.model.layers;
        let parts = |number: usize, layer: usize| match number >> layer & 1 {
            0 => Binary::Full,
            _ => Binary::Bin,
        };
        let variants = (0..1_usize << layers)
            .map(|number| (0..layers).map(|layer| parts(number, layer)).collect());
        variants
            .map(|parts: Vec<Binary>| {
                with_element!(self.checkpoint.precision, E => self.variant::<B, E>(&device.backend, &parts))
            })
            .collect()
    }
}

/// What an evaluation reads of the features.
enum Read<B: Backend, E: Element> {
    Signs(BitMatrix<B>),
    Elements(Matrix<B, E>),
}

impl Tuning<'_> {
    fn variant<B: Backend, E: Element>(
        &self,
        backend: &B,
        parts: &[Binary],
    ) -> Result<Variant, Failure> {
        let trained = &self.checkpoint.model;
        let is_trained = (0..trained.layers).all(|at| trained.binary_of(at) == Some(parts[at]));
        let config = &match is_trained {
            true => trained.clone(),
            false => ModelConfig {
                hidden: trained.hidden,
                ..trained.clone().of_bits_by_layer(parts)
            },
        };
        backend.reset_peak();
        let graph = config.prepare_edges(
            &self.dataset.graph,
            EdgeData::of_dataset(config, self.dataset),
        )?;
        let mut model = Network::<B, E>::new(backend, config, 0)?;
        let tensors = with_biases(&model, &self.checkpoint.snapshot.tensors);
        load_weights(backend, &mut model, &tensors)?;
        model.freeze(backend)?;
        // Before the graph, so that features of which signs alone are read need not lie in memory with it.
        let features = match (&self.dataset.features, model.reads_signs()) {
            (Features::Bits(bits), true) => Read::Signs(model.signs_of_bits(backend, bits)?),
            (_, reads_signs) => {
                let features = self.dataset.upload_features::<B, E>(backend)?;
                match reads_signs {
                    true => Read::Signs(model.signs_of_features(backend, &features)?),
                    false => Read::Elements(features),
                }
            }
        };
        let propagation = graph.propagation::<B, E>(backend, config)?;
        let graphs = &inputs(backend, config, self.dataset, Some(propagation))?;
        let mut forward = || match &features {
            Read::Signs(signs) => model.evaluate_signs(backend, graphs, signs),
            Read::Elements(features) => {
                let inputs = Inputs {
                    backend,
                    graphs,
                    features,
                    of_types: &[],
                    dropped: false,
                };
                model.forward(inputs, Mode::Evaluate)
            }
        };
        // What is made when it is first wanted.
        forward()?;
        // As evaluations in training are: on small graphs it is launches that take time.
        let recording = backend.record(&mut forward)?;
        let mut evaluate = || match &recording {
            Some(recording) => backend.replay(recording),
            None => forward(),
        };
        let mut times = (0..self.args.runs)
            .map(|_| backend.timed(&mut evaluate))
            .collect::<Result<Vec<f64>, _>>()?;
        times.sort_by(f64::total_cmp);
        let logits = model.logits().to_f32(backend)?;
        let MemoryReport { peak_total, .. } = backend.memory();
        let accuracy = |list: &[u32]| accuracy(self.dataset, &logits, config.classes, list);
        let names: Vec<&str> = parts.iter().map(|part| part.name()).collect();
        Ok(Variant {
            event: "variant",
            device: backend.name(),
            binary: names.join(","),
            operators: (0..parts.len())
                .map(|layer| operators(parts[layer], layer + 1 == parts.len()))
                .collect(),
            is_trained,
            validation_accuracy: accuracy(&self.dataset.val),
            test_accuracy: accuracy(&self.dataset.test),
            ms: times[times.len() / 2],
            ms_fastest: times[0],
            ms_slowest: times[times.len() - 1],
            peak_bytes: peak_total,
        })
    }
}

/// What a layer does, in order, under BitGNN's names.
fn operators(part: Binary, is_last: bool) -> &'static str {
    match (part, is_last) {
        (Binary::Full, _) => "BMM.FBF, SpMM.FBF",
        (Binary::Bin, false) => "BMM.FBB, BSpMM.BBF",
        // The sum comes first, of signs of the layer's inputs.
        (Binary::Bin, true) => "BSpMM.BBF, MM of signs of weights",
    }
}

/// The tensors, with biases of zero where a layer has one now and had none when it was trained. Biases that no layer
/// has now are left out.
fn with_biases<B: Backend, E: Element>(model: &Network<B, E>, tensors: &Tensors) -> Tensors {
    let mut tensors = tensors.clone();
    let parameters = model.parameters();
    let has = |name: &str| parameters.iter().any(|parameter| parameter.name() == name);
    tensors.retain(|name, _| !name.ends_with(".bias") || has(name));
    for parameter in &parameters {
        let (rows, columns) = parameter.shape();
        if parameter.name().ends_with("bias") {
            tensors
                .entry(parameter.name().to_owned())
                .or_insert_with(|| Tensor {
                    rows,
                    columns,
                    values: vec![0.0; rows * columns],
                });
        }
    }
    tensors
}

/// In percent, of the vertices of a list whose class is known.
fn accuracy(dataset: &Dataset, logits: &[f32], classes: usize, list: &[u32]) -> Option<f64> {
    let labels = dataset.targets.classes()?;
    let known = list.iter().map(|&vertex| vertex as usize);
    let known: Vec<usize> = known
        .filter(|&vertex| labels[vertex] != UNLABELLED)
        .collect();
    let is_right =
        |&&vertex: &&usize| class(&logits[vertex * classes..][..classes]) == labels[vertex];
    let right = known.iter().filter(is_right).count();
    (!known.is_empty()).then(|| 100.0 * right as f64 / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_loses_little_is_chosen() {
        let variant = |binary: &str, validation: f64, ms: f64| Variant {
            event: "variant",
            device: String::new(),
            binary: binary.into(),
            operators: Vec::new(),
            is_trained: false,
            validation_accuracy: Some(validation),
            test_accuracy: None,
            ms,
            ms_fastest: ms,
            ms_slowest: ms,
            peak_bytes: 0,
        };
        let all = [
            variant("full,full", 80.0, 4.0),
            variant("full,bin", 79.5, 3.0),
            variant("bin,full", 78.5, 2.0),
            variant("bin,bin", 60.0, 1.0),
        ];
        let chosen = |lose| choose(&all, lose).expect("one is").binary.clone();
        assert_eq!(
            [0.0, 1.0, 1.5, 100.0].map(chosen),
            ["full,full", "full,bin", "bin,full", "bin,bin"]
        );
        let mut unknown = all.clone();
        unknown
            .iter_mut()
            .for_each(|of| of.validation_accuracy = None);
        assert!(choose(&unknown, 1.0).is_none());
    }
}
