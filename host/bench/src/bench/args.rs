//! Options of `bench`.

use crate::bench::ablations::{self, AblationsArgs};
use crate::bench::bmm::{self, BmmArgs};
use crate::bench::bspmm::{self, BspmmArgs};
use crate::bench::comm::{self, CommArgs};
use crate::bench::construct::{self, ConstructArgs};
use crate::bench::quantized::{self, QuantizedArgs};
use crate::bench::sampled::{self, SampledArgs};
use crate::bench::sampling::{self, SamplingBenchArgs};
use crate::bench::scale::{self, ScaleArgs};
use crate::bench::spmv::{self, SpmvArgs};
use crate::bench::train::{self, TrainBenchArgs};
use crate::graphs::GraphName;
use crate::names::{DeviceName, PrecisionName};
use crate::policy::{SPMM_GRAMMAR, SddmmPolicyName, SpmmPolicies};
use crate::reorder::ReorderName;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;

/// What to time.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Time SpMM, checked before it is timed, and its baselines
    #[command(after_help = format!("{SPMM_EXAMPLES}\n\n{SPMM_GRAMMAR}"))]
    Spmm(SpmmArgs),
    /// Time SDDMM, checked before it is timed, and its baselines
    #[command(after_help = SDDMM_EXAMPLES)]
    Sddmm(SddmmArgs),
    /// Time SpMV, a graph times a vector, and its baselines
    #[command(after_help = spmv::EXAMPLES)]
    Spmv(SpmvArgs),
    /// Time sums of bits over neighbours (BitGNN), and the SpMM in half
    #[command(after_help = bspmm::EXAMPLES)]
    Bspmm(BspmmArgs),
    /// Time products of matrices of bits (BitGNN), and the product in half
    #[command(after_help = bmm::EXAMPLES)]
    Bmm(BmmArgs),
    /// Time sums over neighbours of rows of 8 bits, and the SpMM in half
    #[command(after_help = quantized::EXAMPLES)]
    Quantized(QuantizedArgs),
    /// Time the making of graphs, on the device and on the host
    #[command(after_help = construct::EXAMPLES)]
    Construct(ConstructArgs),
    /// Time sampled subgraphs, each made and used once (HP-SpMM), and cuSPARSE
    #[command(after_help = sampled::EXAMPLES)]
    Sampled(SampledArgs),
    /// Time batches that are sampled on the device: sampling, features, a training step
    #[command(after_help = sampling::EXAMPLES)]
    Sampling(SamplingBenchArgs),
    /// Time exchanges of rows between ranks, by size and by what moves them
    #[command(after_help = comm::EXAMPLES)]
    Comm(CommArgs),
    /// What each of several ranks would have of a graph, and what they would send one another: counted, and times by a
    /// model
    #[command(after_help = scale::EXAMPLES)]
    Scale(ScaleArgs),
    /// What each of the paper's ideas is worth: with it and without, times and errors in one table
    #[command(after_help = ablations::EXAMPLES)]
    Ablations(AblationsArgs),
    /// Time training on random features and labels, and compare with figures of others
    #[command(after_help = train::EXAMPLES)]
    Train(TrainBenchArgs),
}

const SPMM_EXAMPLES: &str = "\
Examples:
  halfgnn bench spmm --graph kron:18
  halfgnn bench spmm --graph kron:21 --graph products-like --against cusparse,gather --json spmm.jsonl
  halfgnn bench spmm --graph web.csr --features 32,64,128 --precision half --policy discretized-half,post-half
  halfgnn bench spmm --graph cora.npz --precision half --policy all    is the choice the best?
  halfgnn bench spmm --graph kron:21 --features 40,100 --precision half --against gather --stride auto
  halfgnn bench spmm --graph communities:2400000x4000 --features 64 --reorder auto

A graph is a file (raw CSR, FRDC, .npz, Matrix Market, edge list: whatever its content says) or one that the
program makes, the same on every machine:
  kron:SCALE, kron:18..23   Graph500's Kronecker graph of 2^SCALE vertices, or one a scale
  rmat:VERTICESxEDGES       the same of any number of vertices, with EDGES sampled edges
  amazon-like, road-like, kron21, products-like, reddit-like, papers-like
                            the sizes and the skew of the graphs of the paper

Times are the device's own (events), each of enough launches that the launch itself does not count. A peer that is not
installed is named and left out.";

const SDDMM_EXAMPLES: &str = "\
Examples:
  halfgnn bench sddmm --graph kron:18
  halfgnn bench sddmm --graph kron:21 --graph reddit-like --against cusparse,dgl,gather --json sddmm.jsonl
  halfgnn bench sddmm --graph web.mtx --policy half8-in-half,half2-in-half    the paper's ablation

Graphs and baselines are those of `halfgnn bench spmm`.";

/// Options that every bench has.
#[derive(Args)]
pub struct Common {
    /// Graphs to time on; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    pub graphs: Vec<GraphName>,
    /// Feature lengths
    #[arg(long, value_name = "F", value_delimiter = ',', default_values_t = [32, 64], value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub features: Vec<u32>,
    /// Precisions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Half, PrecisionName::Float])]
    pub precision: Vec<PrecisionName>,
    /// What to time in the same run, on the same operands
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    pub against: Vec<PeerName>,
    /// Rename the vertices first, so that neighbours lie close together
    #[arg(long, value_enum, value_name = "ORDER")]
    pub reorder: Option<ReorderName>,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Options of `bench spmm`.
#[derive(Args)]
pub struct SpmmArgs {
    /// What, where and how often.
    #[command(flatten)]
    pub common: Common,
    /// How it computes: see below; may be repeated
    #[arg(long, value_delimiter = ',', value_name = "POLICY|all", default_values = ["discretized-float", "discretized-half"])]
    pub policy: Vec<SpmmPolicies>,
    /// Bytes from one row that is gathered to the next, a multiple of 16; auto times rows as close as can be, at whole
    /// sectors of 32 bytes and at whole lines of 128; as close as can be if left away
    #[arg(long, value_delimiter = ',', value_name = "auto|BYTES")]
    pub stride: Vec<Stride>,
}

/// How far apart rows are that are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Each that is worth trying.
    Auto,
    /// The given number of bytes, whole 16-byte vectors.
    Bytes(u32),
}

impl FromStr for Stride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(bytes) if bytes > 0 && u32::is_multiple_of(bytes, 16) => Ok(Self::Bytes(bytes)),
            _ => Err("auto is wanted, or bytes, a multiple of 16".into()),
        }
    }
}

/// Options of `bench sddmm`.
#[derive(Args)]
pub struct SddmmArgs {
    /// What, where and how often.
    #[command(flatten)]
    pub common: Common,
    /// How it computes in half: what a lane loads, and how lanes are added up
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [SddmmPolicyName::Half8Tensor])]
    pub policy: Vec<SddmmPolicyName>,
}

/// The bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Gathering {
    /// Only reading each edge's index and row, and writing the result as fast as a copy: the speed of light
    Gather,
}

/// Something to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// NVIDIA's library, the best of its algorithms, in half and in float
    Cusparse,
    /// SDDMM as DGL does it: a warp an edge, scalar loads
    Dgl,
    /// Only reading each edge's index and row, and writing the result as fast as a copy: the speed of light
    Gather,
}
