//! `halfgnn bench quantized`: sums over neighbours of rows of 8 bits, compared with the SpMM in half and the time that
//! reading alone takes.

mod layers;

use super::measure::{Operand, Times, check_spmm, samples};
use super::peers::{PeerTime, Peers};
use super::table::{Row, Table, of_graphs};
use crate::failure::Failure;
use crate::graphs::GraphName;
use crate::model::ModelName;
use crate::names::DeviceName;
use clap::{Args, ValueEnum};
use half::f16;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{self, CodeFormat, QuantizedMatrix, Rounding, Spmm};
use halfgnn::tensor::{Element, Matrix, padded};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench quantized --graph kron:18
  halfgnn bench quantized --graph kron21 --graph products-like --against cusparse,gather --json quantized.jsonl
  halfgnn bench quantized --graph kron:14 --model gcn,gin,gat,sage

A row is stored in 8 bits a number with a scale a column; sums are written in half. `quantize` is the pass that quantizes
a matrix in half. Graphs are those of `halfgnn bench spmm`. Sums are compared with exact ones of the same values on rows from
the whole range before they are timed; the reported error is against the numbers before they were quantized.

With --model nothing is timed: the errors of each layer's output and of the gradient of its weights are reported, of one training
step of each model in half with quantized messages, against the same in float: the norm of the difference over the norm.";

/// Options of `bench quantized`.
#[derive(Args)]
pub struct QuantizedArgs {
    /// Graphs to time on; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// Feature lengths
    #[arg(long, value_name = "F", value_delimiter = ',', default_values_t = [64], value_parser = clap::value_parser!(u32).range(1..=65536))]
    features: Vec<u32>,
    /// How rows are stored
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMAT", default_values_t = [Storage::Int8, Storage::E4m3, Storage::Half])]
    storage: Vec<Storage>,
    /// Report the error of each layer of these models in one training step, by its messages, instead of timing sums
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODEL", conflicts_with_all = ["against", "runs"])]
    model: Vec<ModelName>,
    /// What to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    against: Vec<Peer>,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// How rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// Whole numbers of 8 bits
    Int8,
    /// Floats of 8 bits, 3 of them mantissa
    E4m3,
    /// This library's SpMM in half
    Half,
}

impl Storage {
    /// The format of 8-bit values, if it is one.
    fn format(self) -> Option<CodeFormat> {
        match self {
            Self::Int8 => Some(CodeFormat::Int8),
            Self::E4m3 => Some(CodeFormat::E4m3),
            Self::Half => None,
        }
    }
}

/// Something to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// NVIDIA's library, the best of its algorithms, in half and in float
    Cusparse,
    /// Only reading each edge's index and row, and writing the result as fast as a copy: the speed of light
    Gather,
}

/// Times every combination that was asked for.
pub fn run(args: &QuantizedArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    of_graphs(&args.graphs, args.json.as_deref(), |label, graph, table| {
        if !args.model.is_empty() {
            let layers = layers::Layers {
                models: &args.model,
                storage: &args.storage,
                features: &args.features,
                label,
                graph,
                table,
                stop,
            };
            return device::open(args.device.into(), layers)?;
        }
        let bench = Bench {
            args,
            label,
            graph,
            table,
            stop,
        };
        device::open(args.device.into(), bench)?
    })
}

struct Bench<'a, 'b> {
    args: &'a QuantizedArgs,
    label: &'a str,
    graph: &'a Graph,
    table: &'a mut Table<'b>,
    stop: &'a AtomicBool,
}

/// What the graph and its operands are timed with.
struct Setting<'a, B: Backend> {
    backend: &'a B,
    a: &'a Adjacency<B>,
    x: &'a Operand<B, f16>,
    peers: Option<&'a Peers<'a>>,
    /// Bytes a second of a copy, read and written together.
    copy: Option<f64>,
    cusparse: Vec<PeerTime>,
}

impl Task for Bench<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let peers = match (!self.args.against.is_empty()).then(|| Peers::of(backend)) {
            Some(Err(reason)) => {
                self.table.say(&format!("no peers: {reason}"));
                None
            }
            Some(Ok(peers)) => Some(peers),
            None => None,
        };
        let wants = |peer| self.args.against.contains(&peer);
        let copy = match &peers {
            Some(peers) if wants(Peer::Gather) => Some(peers.copy_bandwidth()?),
            _ => None,
        };
        let a = Adjacency::new(backend, self.graph.csr())?;
        for &features in &self.args.features {
            let (rows, columns) = (self.graph.vertices(), features as usize);
            let x = Operand::<B, f16>::new(backend, 0, rows, columns)?;
            let mut cusparse = Vec::new();
            if let Some(peers) = peers.as_ref().filter(|_| wants(Peer::Cusparse)) {
                cusparse.extend(self.cusparse(backend, peers, &x)?);
                let x = Operand::<B, f32>::new(backend, 0, rows, columns)?;
                cusparse.extend(self.cusparse(backend, peers, &x)?);
            }
            let setting = Setting {
                backend,
                a: &a,
                x: &x,
                peers: peers.as_ref(),
                copy,
                cusparse,
            };
            for &storage in &self.args.storage {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match storage.format() {
                    None => self.half(&setting)?,
                    Some(format) => self.codes(&setting, format)?,
                }
            }
        }
        Ok(())
    }
}

impl Bench<'_, '_> {
    /// The same sum by cuSPARSE, if it can.
    fn cusparse<B: Backend, E: Element>(
        &self,
        backend: &B,
        peers: &Peers<'_>,
        x: &Operand<B, E>,
    ) -> Result<Option<PeerTime>, Failure> {
        let (rows, columns) = x.matrix.shape();
        let mut y = Matrix::zeros(backend, rows, columns, MemoryKind::Activations)?;
        let time = peers.spmm(self.graph.csr(), x, &mut y, self.args.runs);
        Ok(time
            .inspect_err(|reason| self.table.say(&format!("no cuSPARSE: {reason}")))
            .ok())
    }

    fn wants_bound(&self) -> bool {
        self.args.against.contains(&Peer::Gather)
    }

    /// The SpMM of the same numbers in half.
    fn half<B: Backend>(&mut self, of: &Setting<'_, B>) -> Result<(), Failure> {
        let x = &of.x.matrix;
        let kind = MemoryKind::Activations;
        let mut y = Matrix::<B, f16>::zeros(of.backend, x.rows(), x.columns(), kind)?;
        let gather = match of.peers.filter(|_| self.wants_bound()) {
            Some(peers) => Some(peers.gather(self.graph.csr(), x, self.args.runs)?),
            None => None,
        };
        let mut call = || ops::spmm(of.backend, of.a, &Spmm::default(), x, &mut y);
        call()?;
        let times = Times::of(of.backend, self.args.runs, call)?;
        let error = check_spmm(of.backend, self.graph.csr(), of.x, &y);
        let error = error.map_err(|wrong| self.wrong("half", &wrong))?;
        self.push(of, "half", times, error, gather, 2)
    }

    /// The SpMM of quantized values, and the pass that quantizes.
    fn codes<B: Backend>(
        &mut self,
        of: &Setting<'_, B>,
        format: CodeFormat,
    ) -> Result<(), Failure> {
        let name = format.name();
        let (backend, runs, x) = (of.backend, self.args.runs, &of.x.matrix);
        let shape = x.shape();
        let mut codes = QuantizedMatrix::zeros(backend, shape, format, MemoryKind::Features)?;
        // Once for the scales, and once with them.
        ops::quantize(backend, x, None, Rounding::Nearest, &mut codes)?;
        ops::update_scales(backend, 1.0, codes.scales_mut())?;
        let pass = Times::of(backend, runs, || {
            ops::quantize(backend, x, None, Rounding::Nearest, &mut codes)
        })?;
        let gather = match of.peers.filter(|_| self.wants_bound()) {
            Some(peers) => Some(peers.gather_codes(self.graph.csr(), &codes, name, runs)?),
            None => None,
        };
        let mut y = Matrix::<B, f16>::zeros(backend, shape.0, shape.1, MemoryKind::Activations)?;
        let mut call = || ops::quantized_spmm(backend, of.a, &Spmm::default(), &codes, &mut y);
        call()?;
        let times = Times::of(backend, runs, call)?;
        let error = check(backend, self.graph.csr(), of.x, &codes, &y)?;
        let error = error.map_err(|wrong| self.wrong(name, &wrong))?;
        self.push(of, name, times, error, gather, 1)?;
        let pass_name = format!("quantize {name}");
        self.push(of, &pass_name, pass, 0.0, None, 3)
    }

    fn wrong(&self, name: &str, wrong: &str) -> Failure {
        Failure::Run(format!("{}: {wrong}; {name} is not timed", self.label))
    }

    /// A row of the table: of sums of numbers of a width in bytes, or of the pass, which has `gathered` 3 bytes a
    /// number.
    fn push<B: Backend>(
        &mut self,
        of: &Setting<'_, B>,
        policy: &str,
        times: Times,
        largest_error: f64,
        gather: Option<PeerTime>,
        bytes: usize,
    ) -> Result<(), Failure> {
        let (rows, columns) = of.x.matrix.shape();
        let edges = self.graph.edges();
        let is_pass = bytes == 3;
        let moved = if is_pass {
            (rows * columns * bytes) as f64
        } else {
            edges as f64 * (columns * bytes + 4) as f64
        };
        let written = (rows * columns * size_of::<f16>()) as f64;
        let bound = gather
            .as_ref()
            .zip(of.copy)
            .map(|(gather, copy)| gather.times.ms + written / copy * 1e3);
        let cusparse = of.cusparse.iter().filter(|_| !is_pass);
        self.table.push(Row {
            event: "quantized",
            graph: self.label.into(),
            device: of.backend.name(),
            vertices: rows,
            edges,
            features: columns as u32,
            precision: f16::PRECISION.to_string(),
            policy: policy.into(),
            gathered_tb_per_s: moved / times.ms / 1e9,
            times,
            largest_error,
            peers: gather.into_iter().chain(cusparse.cloned()).collect(),
            speedup: BTreeMap::new(),
            over_bound: bound.map(|bound| times.ms / bound),
        })
    }
}

/// Compares sums on sampled rows with exact ones of the same quantized values, and gives the largest |error| over
/// Σ|terms| against the numbers before they were rounded.
fn check<B: Backend>(
    backend: &B,
    graph: &Csr,
    x: &Operand<B, f16>,
    codes: &QuantizedMatrix<B>,
    y: &Matrix<B, f16>,
) -> Result<Result<f64, String>, Failure> {
    let (columns, stride) = (y.columns(), padded::<f16>(y.columns()));
    let (bytes, scales) = (codes.to_codes(backend)?, codes.scales().to_vec(backend)?);
    let y = y.to_padded(backend)?;
    let mut largest = 0.0f64;
    for row in samples(graph.vertices()) {
        for (column, &scale) in scales.iter().enumerate() {
            let (mut sum, mut exact, mut size) = (0.0, 0.0, 0.0);
            for &of in graph.row(row) {
                let code = bytes[of as usize * columns + column];
                sum += f64::from(codes.format().decode(code)) * f64::from(scale);
                let term = x.get(of as usize, column);
                exact += term;
                size += term.abs();
            }
            let found = f64::from(y[row * stride + column].to_f32());
            // A rounding to half, and float's own.
            let allowed = sum.abs() / 1024.0 + size * 1e-4 + 1e-6;
            let off = (found - sum).abs();
            if off.is_nan() || off > allowed {
                return Ok(Err(format!(
                    "row {row}, column {column} is {found}, should be {sum}"
                )));
            }
            largest = largest.max((found - exact).abs() / f64::max(size, 1.0));
        }
    }
    Ok(Ok(largest))
}
