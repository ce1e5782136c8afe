//! Options of `bench`.

use crate::args::{DeviceName, PrecisionName};
use crate::bench::graphs::GraphName;
use crate::bench::train::{self, TrainBenchArgs};
use clap::{Args, Subcommand, ValueEnum};
use halfgnn::backend::{Accumulate, HalfLoad, Reduction, Scaling, SddmmPolicy, SpmmPolicy, Write};
use std::path::PathBuf;

/// What to time.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// Time SpMM, checked before it is timed, beside what a user would pick instead
    #[command(after_help = SPMM_EXAMPLES)]
    Spmm(SpmmArgs),
    /// Time SDDMM, checked before it is timed, beside what a user would pick instead
    #[command(after_help = SDDMM_EXAMPLES)]
    Sddmm(SddmmArgs),
    /// Time training on random features and labels, beside figures of others
    #[command(after_help = train::EXAMPLES)]
    Train(TrainBenchArgs),
}

const SPMM_EXAMPLES: &str = "\
Examples:
  halfgnn bench spmm --graph kron:18
  halfgnn bench spmm --graph kron:21 --graph products-like --against cusparse,gather --json spmm.jsonl
  halfgnn bench spmm --graph web.csr --features 32,64,128 --precision half --policy discretized-half,post-half

A graph is a file (raw CSR, .npz, Matrix Market, edge list: whatever its content says) or one that the
program makes, the same on every machine:
  kron:SCALE, kron:18..23   Graph500's Kronecker graph of 2^SCALE vertices, or one a scale
  amazon-like, road-like, kron21, products-like, reddit-like
                            the sizes and the skew of the graphs of the paper

Times are the device's own (events), each of enough launches that the launch itself does not count. A peer that is not
installed is named and left out.";

const SDDMM_EXAMPLES: &str = "\
Examples:
  halfgnn bench sddmm --graph kron:18
  halfgnn bench sddmm --graph kron:21 --graph reddit-like --against cusparse,dgl,gather --json sddmm.jsonl
  halfgnn bench sddmm --graph web.mtx --policy half8-in-half,half2-in-half    the paper's ablation

Graphs and peers are those of `halfgnn bench spmm`.";

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

/// Options of `bench spmm`.
#[derive(Args)]
pub struct SpmmArgs {
    #[command(flatten)]
    pub common: Common,
    /// How it computes: where row factors are multiplied, and what a batch of edges is added up in
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [SpmmPolicyName::DiscretizedFloat, SpmmPolicyName::DiscretizedHalf])]
    pub policy: Vec<SpmmPolicyName>,
}

/// Options of `bench sddmm`.
#[derive(Args)]
pub struct SddmmArgs {
    #[command(flatten)]
    pub common: Common,
    /// How it computes in half: what a lane loads, and how lanes are added up
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [SddmmPolicyName::Half8Tensor])]
    pub policy: Vec<SddmmPolicyName>,
}

/// An order of the vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReorderName {
    /// Vertices of many edges first
    Degree,
    /// Communities together, by Louvain's method
    Louvain,
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

/// [`SpmmPolicy`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpmmPolicyName {
    /// Batches added up in float, scaled and merged in float
    DiscretizedFloat,
    /// Batches added up in half2, scaled and merged in float
    DiscretizedHalf,
    /// Rows summed up in half, then scaled
    PostHalf,
    /// Products scaled, then summed up in half
    PreHalf,
    /// As discretized-float, but what warps share of a row is added to the output by atomics
    AtomicFloat,
    /// As discretized-half, likewise
    AtomicHalf,
}

impl SpmmPolicyName {
    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            SpmmPolicyName::DiscretizedFloat => "discretized-float",
            SpmmPolicyName::DiscretizedHalf => "discretized-half",
            SpmmPolicyName::PostHalf => "post-half",
            SpmmPolicyName::PreHalf => "pre-half",
            SpmmPolicyName::AtomicFloat => "atomic-float",
            SpmmPolicyName::AtomicHalf => "atomic-half",
        }
    }
}

impl From<SpmmPolicyName> for SpmmPolicy {
    fn from(name: SpmmPolicyName) -> Self {
        let (scaling, accumulate) = match name {
            SpmmPolicyName::DiscretizedFloat => (Scaling::Discretized, Accumulate::Float),
            SpmmPolicyName::DiscretizedHalf => (Scaling::Discretized, Accumulate::Half),
            SpmmPolicyName::PostHalf => (Scaling::PostReduction, Accumulate::Half),
            SpmmPolicyName::PreHalf => (Scaling::PreReduction, Accumulate::Half),
            SpmmPolicyName::AtomicFloat => (Scaling::Discretized, Accumulate::Float),
            SpmmPolicyName::AtomicHalf => (Scaling::Discretized, Accumulate::Half),
        };
        let write = match name {
            SpmmPolicyName::AtomicFloat | SpmmPolicyName::AtomicHalf => Write::Atomic,
            _ => Write::Staged,
        };
        SpmmPolicy {
            scaling,
            accumulate,
            write,
            ..SpmmPolicy::DEFAULT
        }
    }
}

/// [`SddmmPolicy`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SddmmPolicyName {
    /// The default: 16-byte loads, lanes added up on tensor cores
    Half8Tensor,
    /// 16-byte loads, lanes added up in float by shuffles
    Half8,
    /// 16-byte loads, half2 arithmetic
    Half8InHalf,
    /// 8-byte loads, half2 arithmetic
    Half4InHalf,
    /// 4-byte loads, half2 arithmetic
    Half2InHalf,
}

impl SddmmPolicyName {
    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            SddmmPolicyName::Half8Tensor => "half8-tensor",
            SddmmPolicyName::Half8 => "half8",
            SddmmPolicyName::Half8InHalf => "half8-in-half",
            SddmmPolicyName::Half4InHalf => "half4-in-half",
            SddmmPolicyName::Half2InHalf => "half2-in-half",
        }
    }
}

impl From<SddmmPolicyName> for SddmmPolicy {
    fn from(name: SddmmPolicyName) -> Self {
        let (load, reduction, accumulate) = match name {
            SddmmPolicyName::Half8Tensor => return SddmmPolicy::default(),
            SddmmPolicyName::Half8 => (HalfLoad::Half8, Reduction::Shuffles, Accumulate::Float),
            SddmmPolicyName::Half8InHalf => {
                (HalfLoad::Half8, Reduction::Shuffles, Accumulate::Half)
            }
            SddmmPolicyName::Half4InHalf => {
                (HalfLoad::Half4, Reduction::Shuffles, Accumulate::Half)
            }
            SddmmPolicyName::Half2InHalf => {
                (HalfLoad::Half2, Reduction::Shuffles, Accumulate::Half)
            }
        };
        SddmmPolicy {
            load,
            reduction,
            accumulate,
            ..SddmmPolicy::default()
        }
    }
}
