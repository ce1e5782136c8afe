//! `halfgnn profile step`: what the operators of a training step take, next to the bytes that they must move.

use crate::args::DeviceName;
use crate::args::PrecisionName;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::model::{ModelArgs, ModelName};
use crate::operators;
use crate::outputs::Outputs;
use crate::placement::{PlacementArgs, WorkOn, place, place_types};
use crate::screen::Page;
use crate::session::{goal_of, inputs};
use crate::train::{describe, read_edges, takes_edge_weights, tell_use};
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::{Dataset, UploadFeatures};
use halfgnn::device::{self, Device, Task};
use halfgnn::nn::{EdgeData, Inputs, ModelConfig, ModelTypes, Network};
use halfgnn::ops::RandomState;
use halfgnn::program::Profile;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{Loss, Objective, TrainConfig};
use halfgnn::with_element;
use serde::Serialize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  halfgnn profile step --dataset cora.npz
  halfgnn profile step --dataset synthetic --model gat --precision bf16 --device cuda
  halfgnn profile step --dataset synthetic --json - | jq 'select(.event == \"operator\")'

A share of the bandwidth is of what a copy of a large matrix reaches in the same run. It is above 100 % where a cache has what an operator
reads. The line `step` times all operators together, without the loss and the optimizer.";

/// Options of `profile step`.
#[derive(Args)]
pub struct StepArgs {
    /// A graph with features and labels: file, folder, name below HALFGNN_DATA, or a recipe such as `synthetic`
    #[arg(long, value_name = "DATASET")]
    dataset: SourceName,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// What features, activations and the weights that kernels read are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Half)]
    precision: PrecisionName,
    /// Where to compute; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Steps that are timed, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// The step, as a line of JSON.
#[derive(Debug, Serialize)]
struct StepRow<'a> {
    event: &'static str,
    dataset: &'a str,
    model: &'a str,
    precision: Precision,
    device: &'a str,
    ms: f64,
    bytes: u64,
    bytes_per_second: f64,
    over_bytes: f64,
}

/// Times the operators of a step and prints them.
pub fn run(args: &StepArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new();
    outputs.reads_source(&args.dataset, &args.open);
    outputs.stream("--json", args.json.as_deref())?;
    let mut dataset = (args.open).dataset_of_types(&args.dataset, (false, None))?;
    if dataset.outputs == 0 {
        return Err(Failure::Input(format!(
            "{}: it has no labels, so that no step trains on it; give some {} labels",
            dataset.name,
            dataset.members()
        )));
    }
    let of_graphs = dataset.graphs.is_some();
    let mut model = args
        .model
        .config_for(dataset.feature_len(), dataset.outputs, of_graphs)?;
    model.types = ModelTypes::of(&dataset);
    read_edges(&mut model, &dataset);
    takes_edge_weights(&model, &dataset)?;
    tell_use(&model, &mut dataset);
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let step = Step {
        dataset: &dataset,
        model: &model,
        precision: args.precision.into(),
        steps: args.runs as usize,
    };
    let (device, profile) = device::open(args.device.into(), &step)??;
    if !json.is_stdout() {
        page.line(&describe(&dataset));
        let name = ModelName::label(&model.convolution);
        page.line(&format_args!("{name} in {} on {device}\n", step.precision));
        page.line(&profile);
    }
    for row in operators::rows(&profile) {
        json.write(&row)?;
    }
    json.write(&StepRow {
        event: "step",
        dataset: &dataset.name,
        model: model.convolution.name(),
        precision: step.precision,
        device: &device,
        ms: profile.ms,
        bytes: profile.bytes(),
        bytes_per_second: profile.bytes_per_second,
        over_bytes: profile.over_bytes(),
    })?;
    json.finish()
}

/// What is timed.
#[derive(Debug)]
struct Step<'a> {
    dataset: &'a Dataset,
    model: &'a ModelConfig,
    precision: Precision,
    steps: usize,
}

impl Task for &Step<'_> {
    type Output = Result<(String, Profile), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let profile = with_element!(self.precision, E => self.profile::<B, E>(device)?);
        Ok((device.backend.name(), profile))
    }
}

impl Step<'_> {
    fn profile<B: Backend, E: Element>(&self, device: &Device<B>) -> Result<Profile, Failure> {
        let (backend, model, dataset) = (&device.backend, self.model, self.dataset);
        let train = TrainConfig::new(self.precision);
        if dataset.types.is_some() {
            let learning = (model, &train).into();
            place_types::<B, E>(dataset, learning, device, PlacementArgs::default())?;
            let loss = Loss::of(&dataset.targets);
            let goal = goal_of(dataset, &loss);
            let task = Objective::of_types(backend, (dataset, model), &goal)?;
            return self.time::<B, E>(task.inputs(backend));
        }
        let prepared = model.prepare_edges(&dataset.graph, EdgeData::of_dataset(model, dataset))?;
        let of = WorkOn {
            prepared: &prepared,
            graphs: dataset.graphs.as_ref(),
            fetched: None,
            asked_for: None,
        };
        let (placement, _) =
            place::<B, E>(of, (model, &train).into(), device, PlacementArgs::default())?;
        let features = dataset.feature_rows(backend, placement.features)?;
        let whole = prepared.propagation::<B, E>(backend, model)?;
        let graphs = inputs(backend, model, dataset, Some(whole))?;
        self.time::<B, E>(Inputs {
            backend,
            graphs: &graphs,
            features: features.matrix(),
            of_types: &[],
            dropped: false,
        })
    }

    fn time<B: Backend, E: Element>(&self, inputs: Inputs<'_, B, E>) -> Result<Profile, Failure> {
        let mut network = Network::<B, E>::new(inputs.backend, self.model, 0)?;
        let random = RandomState::new(inputs.backend, 0, 0)?;
        Ok(network.profile(inputs, &random, self.steps)?)
    }
}
