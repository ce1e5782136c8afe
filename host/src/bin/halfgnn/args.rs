//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use halfgnn::device;
use halfgnn::tensor::Precision;
use std::path::PathBuf;
use std::str::FromStr;

/// Graph neural networks in half precision, on GPU kernels written in Rust
#[derive(Parser)]
#[command(
    name = "halfgnn",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// Say more: -v for what is going on, -vv for details (or set RUST_LOG)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What the program can do.
#[derive(Subcommand)]
pub enum Command {
    /// Train a model on a labelled graph and tell how well it predicts
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(TrainArgs),
    /// Train a GCN in half, in float and with plain half sums on a graph with hubs, and compare
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Time SpMM on a graph, checked before it is timed
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Count what the kernels of an SpMM do, on the emulator: instructions, sectors, conflicts, shuffles
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
}

const TRAIN_EXAMPLES: &str = "\
Examples:
  halfgnn train --dataset synthetic
  halfgnn train --dataset cora.npz --seeds 10
  halfgnn train --dataset cora.npz --precision float --device cpu --json runs.jsonl
  halfgnn train --dataset cora.npz --json - | jq 'select(.event == \"summary\").test_accuracy'

Ctrl-C ends the run with the summary so far; a second Ctrl-C ends the program.
Exit status: 0 trained (or stopped), 1 the run failed, 2 wrong usage or input.";

const DEMO_EXAMPLES: &str = "\
Examples:
  halfgnn demo
  halfgnn demo --device cpu --epochs 10 --json -";

const BENCH_EXAMPLES: &str = "\
Examples:
  halfgnn bench --graph kron:18
  halfgnn bench --graph web.csr --features 32,64 --precision half,float --json -

A graph is kron:SCALE (Graph500's, 2^SCALE vertices) or a raw CSR file:
  i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]";

const PROFILE_EXAMPLES: &str = "\
Examples:
  halfgnn profile --graph kron:10
  halfgnn profile --graph web.csr --features 32 --accumulate half --json -

The kernels are executed on the CPU, every access checked: take a small graph.";

/// Options of `profile`.
#[derive(Args)]
pub struct ProfileArgs {
    /// Graph to run on
    #[arg(long, value_name = "FILE|kron:SCALE")]
    pub graph: GraphName,
    /// Feature length
    #[arg(long, value_name = "F", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub features: u32,
    /// Precision
    #[arg(long, value_enum, default_value_t = PrecisionName::Half)]
    pub precision: PrecisionName,
    /// What a batch of edges is added up in, in half precision
    #[arg(long, value_enum, default_value_t = AccumulateName::Float)]
    pub accumulate: AccumulateName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `bench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Graphs to time on; may be repeated
    #[arg(long = "graph", value_name = "FILE|kron:SCALE", required = true)]
    pub graphs: Vec<GraphName>,
    /// Feature lengths
    #[arg(long, value_name = "F", value_delimiter = ',', default_values_t = [32, 64], value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub features: Vec<u32>,
    /// Precisions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Half, PrecisionName::Float])]
    pub precision: Vec<PrecisionName>,
    /// What a batch of edges is added up in, in half precision
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [AccumulateName::Half, AccumulateName::Float])]
    pub accumulate: Vec<AccumulateName>,
    /// Timed runs of each; the median is told
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Where to run; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Which graph to time on.
#[derive(Clone, Debug)]
pub enum GraphName {
    /// Graph500's Kronecker graph of this scale.
    Kronecker(u32),
    /// One in a raw CSR file.
    File(PathBuf),
}

impl FromStr for GraphName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("kron:") {
            Some(scale) => match scale.parse() {
                Ok(scale @ 1..=30) => Ok(GraphName::Kronecker(scale)),
                _ => Err(format!("`{scale}` is no scale from 1 to 30")),
            },
            None => Ok(GraphName::File(text.into())),
        }
    }
}

/// What a batch of edges is added up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccumulateName {
    /// half2 arithmetic, as in the paper
    Half,
    /// Float
    Float,
}

/// Options of `train`.
#[derive(Args)]
pub struct TrainArgs {
    /// A graph with features, labels and splits (.npz), or `synthetic` for one that the program makes
    #[arg(long, value_name = "PATH|synthetic")]
    pub dataset: DatasetName,
    /// Model to train
    #[arg(long, value_enum, default_value_t = ModelName::Gcn)]
    pub model: ModelName,
    /// What features, activations and the weights that kernels read are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Half)]
    pub precision: PrecisionName,
    /// Where to train; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Number of layers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub layers: u32,
    /// Width of the hidden layers
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden: u32,
    /// Training steps, each on the whole graph
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Learning rate of Adam
    #[arg(long, value_name = "X", default_value = "0.01", value_parser = positive)]
    pub lr: f32,
    /// L2 penalty, added to the gradients
    #[arg(long, value_name = "X", default_value = "5e-4", value_parser = not_negative)]
    pub weight_decay: f32,
    /// Probability of an input of a layer to be dropped in training
    #[arg(long, value_name = "P", default_value = "0.5", value_parser = probability)]
    pub dropout: f32,
    /// Seed of initial weights and dropout
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Runs, with the seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// Where to train; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Training steps of each of the three runs
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Which graph to train on.
#[derive(Clone, Debug)]
pub enum DatasetName {
    /// One that the program makes.
    Synthetic,
    /// One in a file.
    File(PathBuf),
}

impl FromStr for DatasetName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "synthetic" => DatasetName::Synthetic,
            path => DatasetName::File(path.into()),
        })
    }
}

/// Which model to train.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModelName {
    /// Graph convolutional network (Kipf and Welling)
    Gcn,
}

impl ModelName {
    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            ModelName::Gcn => "gcn",
        }
    }
}

/// [`device::Choice`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DeviceName {
    /// A CUDA card if one can be used, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// A CUDA card
    Cuda,
    /// The GPU kernels on the CPU: slow, checks every access
    Emulator,
}

impl From<DeviceName> for device::Choice {
    fn from(name: DeviceName) -> Self {
        match name {
            DeviceName::Auto => device::Choice::Auto,
            DeviceName::Cpu => device::Choice::Cpu,
            DeviceName::Cuda => device::Choice::Cuda,
            DeviceName::Emulator => device::Choice::Emulator,
        }
    }
}

/// [`Precision`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PrecisionName {
    /// IEEE binary16, with float master weights
    Half,
    /// IEEE binary32
    Float,
}

impl From<PrecisionName> for Precision {
    fn from(name: PrecisionName) -> Self {
        match name {
            PrecisionName::Half => Precision::Half,
            PrecisionName::Float => Precision::Float,
        }
    }
}

fn number(text: &str, valid: fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && valid(value) => Ok(value),
        _ => Err(format!("it must be {wanted}")),
    }
}

fn positive(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a number above 0")
}

fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "0 or a number above it")
}

fn probability(text: &str) -> Result<f32, String> {
    number(
        text,
        |value| (0.0..1.0).contains(&value),
        "at least 0 and below 1",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_literature() {
        let cli = Cli::try_parse_from(["halfgnn", "train", "--dataset", "x.npz"])
            .ok()
            .unwrap();
        let Command::Train(args) = cli.command else {
            panic!("not train")
        };
        assert_eq!(
            (args.layers, args.hidden, args.epochs, args.seed, args.seeds),
            (2, 64, 200, 0, 1)
        );
        assert_eq!(
            (args.lr, args.weight_decay, args.dropout),
            (0.01, 5e-4, 0.5)
        );
        assert!(matches!(args.dataset, DatasetName::File(path) if path.as_os_str() == "x.npz"));
    }
}
