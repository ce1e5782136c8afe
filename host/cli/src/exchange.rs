//! `halfgnn export` and `halfgnn import`: models for and from PyG and DGL, and models of one bit as bits.

use crate::args::PrecisionName;
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::model::{ModelName, OwnOptions};
use crate::outputs::Outputs;
use crate::screen::{Page, bytes, count};
use clap::{Args, ValueEnum};
use halfgnn::nn::ModelConfig;
use halfgnn::train::Checkpoint;
use halfgnn::train::state_dict::{Framework, ImportOptions};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A framework whose names tensors have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FrameworkName {
    /// PyTorch Geometric: convs.0.lin.weight and so on
    Pyg,
    /// Deep Graph Library: layers.0.weight and so on
    Dgl,
}

impl From<FrameworkName> for Framework {
    fn from(name: FrameworkName) -> Self {
        match name {
            FrameworkName::Pyg => Self::Pyg,
            FrameworkName::Dgl => Self::Dgl,
        }
    }
}

/// What a model is exported to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExportName {
    /// PyTorch Geometric: convs.0.lin.weight and so on
    Pyg,
    /// Deep Graph Library: layers.0.weight and so on
    Dgl,
    /// Of a model of one bit (train --binary) a checkpoint to predict with alone, with a bit for each weight
    Bits,
}

impl ExportName {
    fn framework(self) -> Option<FrameworkName> {
        match self {
            Self::Pyg => Some(FrameworkName::Pyg),
            Self::Dgl => Some(FrameworkName::Dgl),
            Self::Bits => None,
        }
    }
}

/// Options of `export`.
#[derive(Args)]
pub struct ExportArgs {
    /// A checkpoint that `train --save` wrote; the weights of its best validation epoch are taken
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// Whose names the tensors get, or that a model of one bit is packed
    #[arg(long, value_enum, value_name = "FRAMEWORK|bits")]
    pub to: ExportName,
    /// File to write, a state_dict or a checkpoint as safetensors
    #[arg(value_name = "FILE.safetensors")]
    pub output: PathBuf,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `import`.
#[derive(Args)]
pub struct ImportArgs {
    /// A state_dict as safetensors
    #[arg(value_name = "FILE.safetensors")]
    pub state_dict: PathBuf,
    /// Whose names the tensors have
    #[arg(long, value_enum, value_name = "FRAMEWORK")]
    pub from: FrameworkName,
    /// Checkpoint to write, to predict with
    #[arg(value_name = "CHECKPOINT")]
    pub output: PathBuf,
    /// The layers of the file, with their options as `train` has them; a gcn, sage, gin, gat or gatv2 is found without
    #[arg(long, value_enum)]
    pub model: Option<ModelName>,
    #[command(flatten)]
    pub own: OwnOptions,
    /// What features, activations and the weights that kernels read are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Float)]
    pub precision: PrecisionName,
    /// The model was trained on weights of edges, so that `predict` uses them
    #[arg(long)]
    pub edge_weights: bool,
    /// Features of a vertex, where no tensor has them as a side: of a gatedgraph whose first layer is wider
    #[arg(long, value_name = "N")]
    pub features: Option<usize>,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Carried<'a> {
    /// `exported` or `imported`.
    event: &'static str,
    framework: &'static str,
    model: &'a str,
    layers: usize,
    features: usize,
    outputs: usize,
    output: String,
    /// What a reader of it should know.
    notes: &'a [String],
}

/// The JSON lines of a command that makes `output` of `input`, three files.
fn open_json(input: &Path, output: &Path, json: Option<&Path>) -> Result<JsonLines, Failure> {
    let mut outputs = Outputs::new();
    outputs.reads("", input);
    outputs.file("", output)?.stream("--json", json)?;
    JsonLines::open(json)
}

/// Writes another framework's tensors.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let mut json = open_json(&args.checkpoint, &args.output, args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let checkpoint = crate::checkpoint::open_model(&args.checkpoint)?;
    let notes = match args.to.framework() {
        Some(framework) => checkpoint.export(framework.into(), &args.output)?,
        None => {
            let packed = checkpoint.packed(&args.checkpoint)?;
            packed.save(&args.output)?;
            vec![packed_note(&args.checkpoint, &args.output)]
        }
    };
    page.line(&format_args!(
        "{} of {} layers written to {}",
        checkpoint.model.convolution.name().to_uppercase(),
        checkpoint.model.layers,
        args.output.display()
    ));
    for note in &notes {
        page.line(&format_args!("  {note}"));
    }
    json.write(&carried(
        "exported",
        args.to.framework(),
        &checkpoint.model,
        &args.output,
        &notes,
    ))?;
    json.finish()
}

/// Reads another framework's tensors.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let mut json = open_json(&args.state_dict, &args.output, args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    if let (None, Some(option)) = (args.model, args.own.first()) {
        return Err(Failure::Input(format!(
            "--{option} is an option of the layers, and --model does not say which they are; add it, or leave it out"
        )));
    }
    let layers = args.model.map(|model| args.own.convolution(model));
    let options = ImportOptions {
        layers: layers.transpose()?,
        from: args.from.into(),
        precision: args.precision.into(),
        edge_weights: args.edge_weights,
        features: args.features,
    };
    let checkpoint = Checkpoint::import(&args.state_dict, &options)?;
    checkpoint.save(&args.output)?;
    let model = &checkpoint.model;
    page.line(&format_args!(
        "{} of {} layers, {} features and {} outputs written to {}",
        model.convolution.name().to_uppercase(),
        model.layers,
        count(model.features),
        count(model.classes),
        args.output.display()
    ));
    json.write(&carried(
        "imported",
        Some(args.from),
        model,
        &args.output,
        &[],
    ))?;
    json.finish()
}

/// What the file is worth.
fn packed_note(from: &Path, to: &Path) -> String {
    let [before, now] = [from, to].map(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
    format!(
        "{}, where the checkpoint has {}; to predict with, and not to go on with",
        bytes(now),
        bytes(before)
    )
}

fn carried<'a>(
    event: &'static str,
    framework: Option<FrameworkName>,
    model: &'a ModelConfig,
    output: &Path,
    notes: &'a [String],
) -> Carried<'a> {
    Carried {
        event,
        framework: match framework {
            Some(FrameworkName::Pyg) => "pyg",
            Some(FrameworkName::Dgl) => "dgl",
            None => "bits",
        },
        model: model.convolution.name(),
        layers: model.layers,
        features: model.features,
        outputs: model.classes,
        output: output.display().to_string(),
        notes,
    }
}
