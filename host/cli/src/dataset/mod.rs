//! `halfgnn dataset`: what is in a file, the same in another format, graphs that are made, and where to get the known
//! ones.

mod convert;
mod download;
mod info;
mod partition;

use crate::failure::Failure;
use clap::{Args, Subcommand, ValueEnum};
use halfgnn::data::parts::{FeaturePrecision, MOST_PARTS};
use halfgnn::data::{Format, Recipe};
use halfgnn_bench::names::size;
pub use halfgnn_bench::source;
use source::{OpenArgs, SourceName};
use std::path::{Path, PathBuf};

/// Examples of `dataset`.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn dataset info cora.npz
  halfgnn dataset info web-Google.txt.gz --undirected --json -
  halfgnn dataset convert ogbn-arxiv arxiv.npz --undirected
  halfgnn dataset convert people.csv,knows.csv people.npz --id-column name --ignore-columns email
  halfgnn dataset partition ogbn-products --out products.parts --undirected
  halfgnn dataset convert cora.npz cora-bits.npz --features bits
  halfgnn dataset generate reddit-like:0.1 small-reddit.npz
  halfgnn dataset download --print

A dataset is a file or folder whose content decides its format (--format forces one), or, of a bare name, what lies below
HALFGNN_DATA by that name:
  labelled   gnn-benchmark .npz, PyG's arrays .npz, torch's .pt of a Data object, tables nodes.csv,edges.csv (or their folder), Planetoid's ind.NAME.* files, OGB's folder (raw/, split/), DGL's Reddit, a folder of `dataset partition`
  graphs     scipy's sparse .npz, Matrix Market .mtx[.gz], edge lists .txt[.gz] (SNAP), raw CSR .csr, BitGNN's tiles of bits (FRDC) .frdc
or it is made from a seed: synthetic, reddit-like:SCALE, blocks:VERTICES, communities:VERTICESxCOMMUNITIES, kron:SCALE, rmat:VERTICESxEDGES, grid:WIDTHxHEIGHT, star:HUBSxLEAVES; and of several types
of vertices and edges: mag-like:SCALE";

const INFO_EXAMPLES: &str = "\
Examples:
  halfgnn dataset info cora
  halfgnn dataset info kron:16 --json - | jq 'select(.event == \"dataset\").half'

`half` is what plain sums in half precision, divided by the degree afterwards, would do on this graph: past 2,048 a sum
of ones no longer grows, past 65,504 a sum is infinite. The kernels of this program do neither.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  halfgnn dataset convert cora/ cora.npz
  halfgnn dataset convert web-Google.txt.gz web.csr
  halfgnn dataset convert web.csr web.frdc
  halfgnn dataset convert roadNet-CA.txt.gz road.mtx.gz --undirected

The output's name gives its format, or --to: .npz is gnn-benchmark's archive for a dataset with labels and scipy's sparse
archive for a graph (PyG's arrays where a dataset has features of edges, or other targets than classes, or --to pyg); .mtx, .txt, .csr, .frdc hold a graph only, and .frdc an edge that occurs several times once. Features are written as they are read, not normalised, unless
--normalize-features asks for it. A file appears whole or not at all.

An edge list (.txt, .tsv, .gz; what follows the two ids of a line is left out), a matrix of Matrix Market's or scipy's, raw compressed rows and tiles of bits
are converted as a stream, within --memory: it holds what there is one of a vertex, and edges are sorted on disk, in up to 24 bytes a listed
edge. Datasets are read whole: gnn-benchmark's and PyG's archives, .pt, tables of vertices and edges, OGB's, Planetoid's and TU's folders, DGL's
Reddit, parts.";

const PARTITION_EXAMPLES: &str = "\
Examples:
  halfgnn dataset partition products.npz --out products.parts
  halfgnn dataset partition cora --out cora.parts --parts 8 --by louvain --feature-precision float
  halfgnn train --dataset products.parts --devices all

The folder has manifest.json, vertices.bin and a file a part. Several ranks (train --ranks, --devices, --rendezvous) read a range of parts
each, and none reads all; for one rank, `predict` and `dataset info` it is a dataset as any other, with the vertices in their order. An
archive of PyG's arrays without numbers of edges, or of gnn-benchmark's with dense features, is read as a stream, several times over, so that
memory is for its vertices alone. Read whole are: what is cut --by louvain, what --undirected or --self-loops changes, weights and features of
edges, sparse features, many graphs, .pt, tables, OGB's, Planetoid's and TU's folders, DGL's Reddit. The folder appears whole or not at all.";

const GENERATE_EXAMPLES: &str = "\
Examples:
  halfgnn dataset generate kron:18 kron18.csr
  halfgnn dataset generate reddit-like:0.1 small-reddit.npz --data-seed 7

A recipe and a seed make the same graph on every machine.";

const DOWNLOAD_EXAMPLES: &str = "\
Examples:
  halfgnn dataset download --print
  halfgnn dataset download cora --print | grep ^http | xargs -n 1 wget -P \"$HALFGNN_DATA/cora\"

Nothing is fetched by this program.";

/// Options of `dataset`.
#[derive(Args)]
pub struct DatasetArgs {
    /// What to do
    #[command(subcommand)]
    pub command: DatasetCommand,
}

/// What `dataset` can do.
#[derive(Subcommand)]
pub enum DatasetCommand {
    /// Show what is in a graph or dataset, and where half precision would overflow on it
    #[command(after_help = INFO_EXAMPLES)]
    Info(InfoArgs),
    /// Write a graph or dataset in another format
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
    /// Cut a dataset into a folder of parts, of which each of several ranks reads its own
    #[command(after_help = PARTITION_EXAMPLES)]
    Partition(PartitionArgs),
    /// Make a graph or dataset from a seed
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(GenerateArgs),
    /// Print where the known datasets are published and where to put them
    #[command(after_help = DOWNLOAD_EXAMPLES)]
    Download(DownloadArgs),
}

/// Options of `dataset info`.
#[derive(Args)]
pub struct InfoArgs {
    /// File, folder, name below HALFGNN_DATA, or recipe
    #[arg(value_name = "DATASET")]
    pub source: SourceName,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `dataset convert`.
#[derive(Args)]
pub struct ConvertArgs {
    /// File, folder, name below HALFGNN_DATA, or recipe
    #[arg(value_name = "DATASET")]
    pub source: SourceName,
    /// File to write
    pub output: PathBuf,
    /// Format to write, where the name of the file does not give it
    #[arg(long, value_name = "FORMAT")]
    pub to: Option<Format>,
    /// How features are stored: as bits, eight a byte, where all are +1 and -1 or all 1 and 0; a .npz is PyG's then
    #[arg(long, value_enum, value_name = "AS", default_value_t = FeatureStorage::Numbers)]
    pub features: FeatureStorage,
    #[command(flatten)]
    pub stream: StreamArgs,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Where a graph is while it is converted as a stream.
#[derive(Args, Default)]
pub struct StreamArgs {
    /// Memory that a graph takes which is converted as a stream, such as 256MiB or 4GiB [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Where its edges are meanwhile, in files without names [default: the folder of the output]
    #[arg(long, value_name = "FOLDER")]
    pub temp_folder: Option<PathBuf>,
}

/// Options of `dataset partition`.
#[derive(Args)]
pub struct PartitionArgs {
    /// File, folder, name below HALFGNN_DATA, or recipe
    #[arg(value_name = "DATASET")]
    pub source: SourceName,
    /// Folder to write, which is not there yet
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Parts: as many ranks may train on it at most [default: 1024, or as many as there are vertices]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=MOST_PARTS as i64))]
    pub parts: Option<u32>,
    /// How: degree, each part has as many vertices and nearly as many edges; louvain, communities stay together; or a
    /// file with a part from 0 on in each line, one a vertex, as METIS and KaHIP write it
    #[arg(long, value_name = "degree|louvain|FILE", default_value = "degree")]
    pub by: PathBuf,
    /// What features are kept in: half the space, each number rounded; or as they are
    #[arg(long, value_enum, value_name = "PRECISION", default_value_t = KeptPrecision::Half)]
    pub feature_precision: KeptPrecision,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// What features of parts are kept in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeptPrecision {
    /// 16 bits
    Half,
    /// 32 bits
    Float,
}

impl From<KeptPrecision> for FeaturePrecision {
    fn from(precision: KeptPrecision) -> Self {
        match precision {
            KeptPrecision::Half => Self::Half,
            KeptPrecision::Float => Self::Float,
        }
    }
}

/// How features are stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FeatureStorage {
    /// Numbers, whatever they are
    Numbers,
    /// Bits
    Bits,
}

/// Options of `dataset generate`.
#[derive(Args)]
pub struct GenerateArgs {
    /// What to make: reddit-like:SCALE, kron:SCALE, …
    pub recipe: Recipe,
    /// File to write
    pub output: PathBuf,
    /// Format to write, where the name of the file does not give it
    #[arg(long, value_name = "FORMAT")]
    pub to: Option<Format>,
    /// Seed of the graph, of its features and splits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub data_seed: u64,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `dataset download`.
#[derive(Args)]
pub struct DownloadArgs {
    /// The dataset; all that are known without it
    pub name: Option<String>,
    /// Print addresses and places; this program fetches nothing
    #[arg(long, required = true)]
    pub print: bool,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// The folder that a file or folder is to be in.
fn folder_of(output: &Path) -> &Path {
    let folder = output.parent();
    let named = folder.filter(|folder| !folder.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Does what was asked for.
pub fn run(args: &DatasetArgs) -> Result<(), Failure> {
    match &args.command {
        DatasetCommand::Info(args) => info::run(args),
        DatasetCommand::Convert(args) => convert::run(args),
        DatasetCommand::Partition(args) => partition::run(args),
        DatasetCommand::Generate(args) => convert::generate(args),
        DatasetCommand::Download(args) => download::run(args),
    }
}
