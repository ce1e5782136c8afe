//! `halfgnn profile spmm`: what the kernels of an SpMM do, counted by the emulator.

use crate::args::PrecisionName;
use crate::failure::Failure;
use crate::graphs::GraphName;
use crate::screen::{Page, bytes};
use clap::Args;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{DeviceGraph, MemoryKind};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Launched, Options};
use halfgnn::graph::Graph;
use halfgnn::kernels::Kernels;
use halfgnn::ops;
use halfgnn::ops::{Accumulate, Spmm, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::with_element;
use serde::Serialize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  halfgnn profile spmm --graph kron:10
  halfgnn profile spmm --graph web.csr --features 32 --accumulate half --json -

The kernels are executed on the CPU, every access checked: take a small graph.";

/// Options of `profile spmm`.
#[derive(Args)]
pub struct SpmmArgs {
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

/// What a batch of edges is added up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AccumulateName {
    /// half2 arithmetic, as in the paper
    Half,
    /// Float
    Float,
}

/// Bytes of a sector, in which global memory is counted.
const SECTOR: u64 = 32;

/// Counts of one launch.
#[derive(Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    features: u32,
    kernel: &'a str,
    ctas: u64,
    warp_instructions: u64,
    lane_instructions: u64,
    loaded_bytes: u64,
    stored_bytes: u64,
    load_efficiency: f64,
    bank_conflicts: u64,
    shuffles: u64,
    barriers: u64,
    atomics: u64,
    divergent_branches: u64,
}

/// Runs one SpMM of ones and prints what its kernels did.
pub fn run(args: &SpmmArgs) -> Result<(), Failure> {
    let mut json =
        crate::graphs::json_lines(std::slice::from_ref(&args.graph), args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let (label, graph) = args.graph.open_first()?;
    let driver = Emulated::with_options(Options {
        record: true,
        ..Options::default()
    });
    let kernels =
        Kernels::find(Some(driver.info().compute_capability)).map_err(halfgnn::Error::from)?;
    let gpu = Gpu::new(driver, kernels)?;
    let (launches, least) =
        with_element!(args.precision.into(), E => spmm::<E>(&gpu, &graph, args)?);
    if !json.is_stdout() {
        page.line(&format_args!(
            "{:<34} {:>7} {:>12} {:>12} {:>11} {:>11} {:>6} {:>9} {:>8} {:>8} {:>8} {:>9}",
            "kernel",
            "CTAs",
            "warp instr",
            "lane instr",
            "loaded",
            "stored",
            "used",
            "conflicts",
            "shuffles",
            "barriers",
            "atomics",
            "divergent"
        ));
    }
    for launched in &launches {
        let row = row(&label, args.features, launched);
        if !json.is_stdout() {
            page.line(&format_args!(
                "{:<34} {:>7} {:>12} {:>12} {:>11} {:>11} {:>5.0}% {:>9} {:>8} {:>8} {:>8} {:>9}",
                row.kernel,
                row.ctas,
                row.warp_instructions,
                row.lane_instructions,
                bytes(row.loaded_bytes),
                bytes(row.stored_bytes),
                100.0 * row.load_efficiency,
                row.bank_conflicts,
                row.shuffles,
                row.barriers,
                row.atomics,
                row.divergent_branches
            ));
        }
        json.write(&row)?;
    }
    if !json.is_stdout() {
        page.line(&format_args!(
            "\nLoaded and stored: 32-byte sectors, summed over requests; used: what lanes asked for over what was loaded, more than all where lanes share.\n\
             The SpMM must load at least {} (indices and every row once) and store {}; gathering every edge's row anew is {}.",
            bytes(least.load),
            bytes(least.store),
            bytes(least.gathered)
        ));
    }
    json.finish()
}

/// Bytes that an SpMM must move.
struct Least {
    /// Indices and the input, once.
    load: u64,
    /// The output, once.
    store: u64,
    /// Indices, and the input once an edge.
    gathered: u64,
}

fn spmm<E: Element>(
    gpu: &Gpu<Emulated>,
    graph: &Graph,
    args: &SpmmArgs,
) -> Result<(Vec<Launched>, Least), Failure> {
    let (vertices, features) = (graph.vertices(), args.features as usize);
    let device = DeviceGraph::new(gpu, graph)?;
    let ones = vec![1.0; vertices * features];
    let x = Matrix::<_, E>::from_f32(gpu, vertices, features, &ones, MemoryKind::Features)?;
    let mut y = Matrix::zeros(gpu, vertices, features, MemoryKind::Activations)?;
    let accumulate = match args.accumulate {
        AccumulateName::Half => Accumulate::Half,
        AccumulateName::Float => Accumulate::Float,
    };
    let policy = SpmmPolicy {
        accumulate,
        ..SpmmPolicy::default()
    };
    let op = Spmm {
        policy,
        ..Spmm::default()
    };
    gpu.driver().take_launches();
    ops::spmm(gpu, device.forward(), &op, &x, &mut y)?;
    let row = (features * size_of::<E>()) as u64;
    let indices = graph.edges() as u64 * 8;
    let least = Least {
        load: indices + vertices as u64 * row,
        store: vertices as u64 * row,
        gathered: indices + graph.edges() as u64 * row,
    };
    Ok((gpu.driver().take_launches(), least))
}

fn row<'a>(graph: &'a str, features: u32, launched: &'a Launched) -> Row<'a> {
    let counts = &launched.report.counts;
    Row {
        event: "profile",
        graph,
        features,
        kernel: &launched.kernel,
        ctas: launched
            .config
            .grid
            .iter()
            .copied()
            .map(u64::from)
            .product(),
        warp_instructions: counts.warp_instructions(),
        lane_instructions: counts.lane_instructions(),
        loaded_bytes: counts.global_loads.sectors * SECTOR,
        stored_bytes: counts.global_stores.sectors * SECTOR,
        load_efficiency: counts.global_loads.efficiency(),
        bank_conflicts: counts.bank_conflicts,
        shuffles: counts.shuffles(),
        barriers: counts.block_barriers + counts.warp_barriers,
        atomics: counts.atomics(),
        divergent_branches: counts.divergent_branches,
    }
}
