//! The command line.

#[cfg(feature = "bench")]
use crate::bench::args::BenchCommand;
use crate::checkpoint::CheckpointArgs;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::dataset::{self, DatasetArgs};
use crate::exchange::{ExportArgs, ImportArgs};
use crate::feature_cache::FeatureCacheArgs;
use crate::help;
use crate::model::ModelArgs;
use crate::optimize::OptimizeArgs;
use crate::placement::{PlacementArgs, TempFolderArgs};
use crate::predict::PredictArgs;
use crate::profile::{self, ProfileCommand};
use crate::ranks::RanksArgs;
use crate::reorder::ReorderName;
use crate::sampling::SamplingArgs;
use crate::structure::StructureArgs;
use crate::task::TaskArgs;
use crate::tune::{self, TuneArgs};
use crate::tune_binary::{self, TuneBinaryArgs};
use crate::watch::WatchArgs;
use clap::{Args, Parser, Subcommand};
pub use halfgnn_bench::names::{DeviceName, PrecisionName};
use halfgnn_bench::report::ReportArgs;
use std::path::PathBuf;

/// Graph neural networks in half precision, on GPU kernels written in Rust
#[derive(Parser)]
#[command(
    name = "halfgnn",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = help::PROGRAM
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
    /// Train a model on a labelled graph and report how well it predicts
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(Box<TrainArgs>),
    /// Try options of train that are sampled from a space, and report the best
    #[command(after_help = tune::EXAMPLES)]
    Tune(TuneArgs),
    /// Try other parts of a trained network of one bit: accuracy, time and memory of each variant of its layers
    #[command(after_help = tune_binary::EXAMPLES)]
    TuneBinary(TuneBinaryArgs),
    /// Write what a trained model predicts for the vertices of a graph
    #[command(after_help = help::PREDICT)]
    Predict(PredictArgs),
    /// Write a trained model's weights under the names of PyG's or DGL's layers
    #[command(after_help = help::EXPORT)]
    Export(ExportArgs),
    /// Make a checkpoint of weights that have the names of PyG's or DGL's layers
    #[command(after_help = help::IMPORT)]
    Import(ImportArgs),
    /// Train a GCN in half, in float and with plain half sums on a graph with hubs, and compare
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Time an operator on a graph, checked before it is timed, and its baselines
    #[cfg(feature = "bench")]
    #[command(subcommand, after_help = help::BENCH)]
    Bench(BenchCommand),
    /// Measure a training step operator by operator, or count what the kernels of an SpMM do
    #[command(subcommand, after_help = profile::EXAMPLES)]
    Profile(ProfileCommand),
    /// Make figures and tables of what --json wrote, in one HTML file
    #[command(after_help = help::REPORT)]
    Report(ReportArgs),
    /// Show what is in a dataset, convert it, make one, or print where to get one
    #[command(after_help = dataset::EXAMPLES)]
    Dataset(DatasetArgs),
    /// Show the devices of this machine, and why one cannot be used
    #[command(after_help = help::DEVICE)]
    Device(DeviceArgs),
    /// Write the completions of a shell to stdout
    #[command(after_help = help::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(after_help = help::MAN)]
    Man(ManArgs),
}

/// Options of `device`.
#[derive(Args)]
pub struct DeviceArgs {
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Args)]
pub struct ManArgs {
    /// The command to write the page of; the program's own without it
    pub command: Option<String>,
    /// Write the pages of the program and of every command into DIR
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

const TRAIN_EXAMPLES: &str = "\
Examples:
  halfgnn train --dataset synthetic
  halfgnn train --dataset cora.npz --seeds 10
  halfgnn train --dataset cora.npz --precision float --device cpu --json runs.jsonl
  halfgnn train --dataset cora.npz --precision bf16 --model gat
  halfgnn train --dataset cora.npz --optimizer adamw --schedule cosine --warmup 10 --clip-norm 1
  halfgnn train --dataset cora.npz --model sage --sampler neighbor:15,10,5 --batch 512
  halfgnn train --dataset mag-like:0.01 --model rgcn --undirected
  halfgnn train --dataset cora.npz --ranks 4 --partition louvain
  halfgnn train --dataset cora.npz --save cora.safetensors --plot cora.svg
  halfgnn train --dataset cora.npz --watch --csv cora.csv --tensorboard runs
  halfgnn train --dataset cora.npz --resume cora.safetensors --epochs 400 --save cora.safetensors
  halfgnn train --dataset cora.npz --seeds 3 --save cora.safetensors    cora.seed-0.safetensors, cora.seed-1.safetensors, …
  halfgnn train --dataset cora.npz --class-weights balanced --metric macro-f1 --metrics accuracy,roc-auc
  halfgnn train --dataset cora.npz --task link --hidden 32 --embedding 16 --metrics average-precision,hits@100
  halfgnn train --dataset cora.npz --json - | jq 'select(.event == \"summary\").test_accuracy'

Ctrl-C ends the run with the summary so far, and keeps it where --save says; a second Ctrl-C ends the program.
Exit status: 0 trained (or stopped), 1 the run failed, 2 wrong usage or input.";

const DEMO_EXAMPLES: &str = "\
Examples:
  halfgnn demo
  halfgnn demo --device cpu --epochs 10 --json -";

/// Options of `train`.
#[derive(Args)]
pub struct TrainArgs {
    /// A graph with features and labels: file, folder, name below HALFGNN_DATA, or a recipe such as `synthetic`
    #[arg(long, value_name = "DATASET")]
    pub dataset: SourceName,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Rename the vertices first, so that neighbours lie close together; a run that goes on needs the same order
    #[arg(long, value_enum, value_name = "ORDER")]
    pub reorder: Option<ReorderName>,
    /// Divide each column of features by its largest magnitude, so that half holds them; `predict` does the same
    #[arg(long)]
    pub scale_features: bool,
    /// What it is to report
    #[command(flatten)]
    pub task: TaskArgs,
    /// Which model
    #[command(flatten)]
    pub model: ModelArgs,
    /// What features, activations and the weights that kernels read are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Half)]
    pub precision: PrecisionName,
    /// Where to train; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Where what is computed on lies
    #[command(flatten)]
    pub placement: PlacementArgs,
    #[command(flatten)]
    pub temporary: TempFolderArgs,
    #[command(flatten)]
    pub cache: FeatureCacheArgs,
    /// Who has which part of the graph
    #[command(flatten)]
    pub ranks: RanksArgs,
    /// In which batches it learns
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub edges: StructureArgs,
    /// Epochs: a training step each, on the whole graph, or of --sampler a step on each batch [default: 200, or as many
    /// as the run to resume was to have]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: Option<u32>,
    /// End a run when validation has not become better for N epochs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub early_stopping: Option<u32>,
    /// What is kept of the run
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Draw loss and metric by epoch
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// What follows the run
    #[command(flatten)]
    pub watch: WatchArgs,
    /// How weights follow their gradients
    #[command(flatten)]
    pub optimize: OptimizeArgs,
    /// Seed of initial weights and dropout
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Runs, with the seeds from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    /// Print the operators of a step after each pass over their list, with shapes and bytes, and train nothing
    #[arg(long, conflicts_with_all = ["json", "plot", "save", "resume", "devices", "csv", "tensorboard", "watch"])]
    pub explain: bool,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// Where to train; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Training steps of each of the three runs
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..))]
    pub epochs: u32,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
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
    fn every_command_teaches_by_examples() {
        let mut program = Cli::command();
        program.build();
        let mut commands: Vec<&mut clap::Command> = program.get_subcommands_mut().collect();
        while let Some(command) = commands.pop() {
            if command.get_name() == "help" {
                continue;
            }
            // As it is typed: with the name of the family before it.
            let name = command.get_bin_name().unwrap_or_default().to_owned();
            let help = command.render_help().to_string();
            assert!(help.contains("Examples:"), "{name}: {help}");
            assert!(help.contains(&name), "{name}: {help}");
            commands.extend(command.get_subcommands_mut());
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_literature() {
        let cli = Cli::try_parse_from(["halfgnn", "train", "--dataset", "x.npz"])
            .ok()
            .unwrap();
        let Command::Train(args) = cli.command else {
            panic!("not train")
        };
        assert_eq!((args.epochs, args.seed, args.seeds), (None, 0, 1));
        assert_eq!(
            (
                args.optimize.lr,
                args.optimize.weight_decay,
                &args.model.dropout
            ),
            (None, None, &None)
        );
        assert!(matches!(args.dataset, SourceName::File(path) if path.as_os_str() == "x.npz"));
    }
}
