//! `halfgnn bench bspmm`: sums of ±1 over neighbours, beside the SpMM in half and the time that reading alone takes.

use super::args::Gathering;
use super::measure::{Operand, Times, samples};
use super::peers::{BITS, PeerTime, Peers};
use super::table::{Row, Table};
use crate::failure::Failure;
use crate::graphs::GraphName;
use crate::json::JsonLines;
use crate::names::DeviceName;
use clap::{Args, ValueEnum};
use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::{Csr, Frdc, Graph};
use halfgnn::ops::{self, BitMatrix, Spmm, TiledAdjacency, Trinary};
use halfgnn::tensor::{Element, Matrix};
use halfgnn_contract::rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench bspmm --graph kron:18
  halfgnn bench bspmm --graph kron:16 --variant BBB --frdc if-else,two-counts,one-count
  halfgnn bench bspmm --graph kron21 --graph products-like --features 64,128,256 --against gather --json bspmm.jsonl

Variants have BitGNN's names: activation, adjacency, result; F is full precision (half), B is bits. Graphs are those of
`halfgnn bench spmm`. Sums of bits are compared with exact ones on rows from the whole range before they are timed.";

/// Options of `bench bspmm`.
#[derive(Args)]
pub struct BspmmArgs {
    /// Graphs to time on; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// Feature lengths
    #[arg(long, value_name = "F", value_delimiter = ',', default_values_t = [64, 128, 256], value_parser = clap::value_parser!(u32).range(1..=65536))]
    features: Vec<u32>,
    /// What is summed up, and what sums become
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true, default_values_t = [Variant::Bbb, Variant::Bbf, Variant::Fbf])]
    variant: Vec<Variant>,
    /// Time BBB and BBF of the variants on BitGNN's own format as well, tiles of 4 x 4 bits in which an edge that occurs twice is one,
    /// with these ways to multiply edges and signs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORM")]
    frdc: Vec<TrinaryName>,
    /// What to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    against: Vec<Gathering>,
    /// Timed runs of each; the median is told
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Where to run; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// BitGNN's names: activation, adjacency, result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Variant {
    /// Bits, no weights, bits: the signs of the sums
    Bbb,
    /// Bits, no weights, half: the sums
    Bbf,
    /// Half, no weights, half: this library's SpMM
    Fbf,
}

/// [`Trinary`], as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TrinaryName {
    /// Each edge is asked for: form (1) of the paper
    IfElse,
    /// A count of each sign: form (2)
    TwoCounts,
    /// A count of one sign and of the edges: form (3)
    OneCount,
}

impl From<TrinaryName> for Trinary {
    fn from(name: TrinaryName) -> Self {
        match name {
            TrinaryName::IfElse => Trinary::IfElse,
            TrinaryName::TwoCounts => Trinary::TwoCounts,
            TrinaryName::OneCount => Trinary::OneCount,
        }
    }
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Bbb => "BBB",
            Variant::Bbf => "BBF",
            Variant::Fbf => "FBF",
        }
    }

    /// Bytes of a row of so many columns that is gathered, and of one that is written.
    fn row_bytes(self, features: u32) -> (f64, f64) {
        let bits = f64::from(features).max(64.0) / 8.0;
        let half = f64::from(features) * 2.0;
        match self {
            Variant::Bbb => (bits, bits),
            Variant::Bbf => (bits, half),
            Variant::Fbf => (half, half),
        }
    }
}

/// Times every combination that was asked for.
pub fn run(args: &BspmmArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let sums_bits = args.variant.iter().any(|&variant| variant != Variant::Fbf);
    if !args.frdc.is_empty() && !sums_bits {
        return Err(Failure::Input(
            "--frdc is of sums of bits, and --variant names none; add BBB or BBF".into(),
        ));
    }
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut table = Table::new(&mut json);
    for name in &args.graphs {
        for opened in name.open() {
            let (label, graph) = opened?;
            let bench = Bench {
                args,
                label: &label,
                graph: &graph,
                table: &mut table,
                stop,
            };
            device::open(args.device.into(), bench)??;
        }
    }
    table.summarise()?;
    json.finish()
}

struct Bench<'a, 'b> {
    args: &'a BspmmArgs,
    label: &'a str,
    graph: &'a Graph,
    table: &'a mut Table<'b>,
    stop: &'a AtomicBool,
}

/// Random words of a row of bits, those past the last column zero.
pub fn words(rows: usize, features: usize) -> Vec<u64> {
    let stride = halfgnn_contract::bits::row_words(features as u64) as usize;
    let word = |at: usize| {
        let draw = |half: u32| u64::from(rng::uniform_u32(rng::key(1, half), at as u64));
        let there = features.saturating_sub(at % stride * 64).min(64) as u32;
        let columns = u64::MAX.checked_shr(64 - there).unwrap_or(0);
        (draw(0) << 32 | draw(1)) & columns
    };
    (0..rows * stride).map(word).collect()
}

impl Task for Bench<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let wants_bound = self.args.against.contains(&Gathering::Gather);
        let peers = match wants_bound.then(|| Peers::of(backend)) {
            Some(Err(reason)) => {
                self.table.say(&format!("no peers: {reason}"));
                None
            }
            Some(Ok(peers)) => Some(peers),
            None => None,
        };
        let copy = match &peers {
            Some(peers) => Some(peers.copy_bandwidth()?),
            None => None,
        };
        let a = Adjacency::new(backend, self.graph.csr())?;
        let tiled = match &self.args.frdc[..] {
            [] => None,
            _ => {
                let tiled = Frdc::new(self.graph.csr())?;
                let on_device = TiledAdjacency::new(backend, &tiled)?;
                self.table.say(&format!(
                    "{}: {:.2} edges a tile, {:.2} B an edge; {} of {} edges are another's bit",
                    self.label,
                    tiled.edges() as f64 / tiled.tiles().len().max(1) as f64,
                    tiled.bytes() as f64 / tiled.edges().max(1) as f64,
                    tiled.merged(),
                    self.graph.edges(),
                ));
                Some((on_device, tiled.to_csr()?))
            }
        };
        for &features in &self.args.features {
            let rows = self.graph.vertices();
            let words = words(rows, features as usize);
            let shape = (rows, features as usize);
            let x = BitMatrix::from_words(backend, shape, &words, MemoryKind::Features)?;
            let mut gathers = Vec::new();
            if let Some(peers) = &peers {
                gathers.push(peers.gather_bits(self.graph.csr(), &x, self.args.runs)?);
            }
            for &variant in &self.args.variant {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.time(
                    backend,
                    &a,
                    (&x, &words),
                    variant,
                    &mut gathers,
                    &peers,
                    copy,
                )?;
                let of_bits = tiled.as_ref().filter(|_| variant != Variant::Fbf);
                let Some((tiles, once)) = of_bits else {
                    continue;
                };
                for trinary in self.args.frdc.iter().map(|&name| Trinary::from(name)) {
                    let (of, how) = ((tiles, once), (variant, trinary));
                    let times = self.time_tiles(backend, of, (&x, &words), how)?;
                    let name = format!("FRDC {} {trinary}", variant.name());
                    self.tell(backend, (variant, name), &x, times, (&gathers, copy))?;
                }
            }
        }
        Ok(())
    }
}

/// The bits of a matrix, and its words on the host.
type Bits<'a, B> = (&'a BitMatrix<B>, &'a [u64]);

impl Bench<'_, '_> {
    #[allow(clippy::too_many_arguments)] // the operands of a product, and how it is timed
    fn time<B: Backend>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        (x, words): Bits<'_, B>,
        variant: Variant,
        gathers: &mut Vec<PeerTime>,
        peers: &Option<Peers<'_>>,
        copy: Option<f64>,
    ) -> Result<(), Failure> {
        let (rows, columns) = (self.graph.vertices(), x.columns());
        let kind = MemoryKind::Activations;
        let csr = self.graph.csr();
        let (times, precision) = match variant {
            Variant::Bbb => {
                let sum = |y: &mut _| ops::bspmm_signs(backend, a, x, y);
                let times = self.time_signs(backend, csr, (x, words), sum)?;
                (times, BITS.to_owned())
            }
            Variant::Bbf => {
                let sum = |y: &mut _| ops::bspmm(backend, a, x, None, 1.0, y);
                let times = self.time_sums(backend, csr, (x, words), sum)?;
                (times, BITS.to_owned())
            }
            Variant::Fbf => {
                let x = Operand::<B, f16>::new(backend, 0, rows, columns)?;
                let mut y = Matrix::zeros(backend, rows, columns, kind)?;
                if let Some(peers) = peers {
                    gathers.push(peers.gather(csr, &x.matrix, self.args.runs)?);
                }
                let call = || -> Result<(), Error> {
                    ops::spmm(backend, a, &Spmm::default(), &x.matrix, &mut y)
                };
                let times = Times::of(backend, self.args.runs, call)?;
                (times, f16::PRECISION.to_string())
            }
        };
        let times = (times, precision);
        let name = variant.name().into();
        self.tell(backend, (variant, name), x, times, (gathers, copy))
    }

    /// On the graph as tiles, whose edges are those of `once`.
    fn time_tiles<B: Backend>(
        &self,
        backend: &B,
        (a, once): (&TiledAdjacency<B>, &Csr),
        (x, words): Bits<'_, B>,
        (variant, trinary): (Variant, Trinary),
    ) -> Result<(Times, String), Failure> {
        let times = if variant == Variant::Bbb {
            let sum = |y: &mut _| ops::frdc_bspmm_signs(backend, a, x, trinary, y);
            self.time_signs(backend, once, (x, words), sum)?
        } else {
            let sum = |y: &mut _| ops::frdc_bspmm(backend, a, x, (None, 1.0), trinary, y);
            self.time_sums(backend, once, (x, words), sum)?
        };
        Ok((times, BITS.to_owned()))
    }

    /// What makes signs of sums over the neighbours in `graph`, once they are right.
    fn time_signs<B: Backend>(
        &self,
        backend: &B,
        graph: &Csr,
        (x, words): Bits<'_, B>,
        sum: impl Fn(&mut BitMatrix<B>) -> Result<(), Error>,
    ) -> Result<Times, Failure> {
        let (rows, columns, kind) = (graph.vertices(), x.columns(), MemoryKind::Activations);
        let mut y = BitMatrix::zeros(backend, rows, columns, kind)?;
        sum(&mut y)?;
        let times = Times::of(backend, self.args.runs, || sum(&mut y))?;
        let signs = y.to_words(backend)?;
        self.check(Variant::Bbb, graph, (words, columns), |row, column, sum| {
            let word = signs[row * x.stride() + column / 64];
            (word >> (column % 64) & 1 == 1) == (sum >= 0)
        })?;
        Ok(times)
    }

    /// The same of the sums.
    fn time_sums<B: Backend>(
        &self,
        backend: &B,
        graph: &Csr,
        (x, words): Bits<'_, B>,
        sum: impl Fn(&mut Matrix<B, f16>) -> Result<(), Error>,
    ) -> Result<Times, Failure> {
        let (rows, columns, kind) = (graph.vertices(), x.columns(), MemoryKind::Activations);
        let mut y = Matrix::<B, f16>::zeros(backend, rows, columns, kind)?;
        sum(&mut y)?;
        let times = Times::of(backend, self.args.runs, || sum(&mut y))?;
        let sums = y.to_padded(backend)?;
        self.check(Variant::Bbf, graph, (words, columns), |row, column, sum| {
            sums[row * y.stride() + column] == f16::from_f32(sum as f32)
        })?;
        Ok(times)
    }

    /// A row of the table.
    fn tell<B: Backend>(
        &mut self,
        backend: &B,
        (variant, name): (Variant, String),
        x: &BitMatrix<B>,
        (times, precision): (Times, String),
        (gathers, copy): (&[PeerTime], Option<f64>),
    ) -> Result<(), Failure> {
        let rows = self.graph.vertices();
        let (gathered, written) = variant.row_bytes(x.columns() as u32);
        let edges = self.graph.edges();
        let bound = gathers
            .iter()
            .find(|peer| peer.precision == precision)
            .zip(copy)
            .map(|(gather, copy)| gather.times.ms + rows as f64 * written / copy * 1e3);
        self.table.push(Row {
            event: "bspmm",
            graph: self.label.into(),
            device: backend.name(),
            vertices: rows,
            edges,
            features: x.columns() as u32,
            precision,
            policy: name,
            gathered_tb_per_s: edges as f64 * (gathered + 4.0) / times.ms / 1e9,
            times,
            largest_error: 0.0,
            peers: gathers.to_vec(),
            speedup: BTreeMap::new(),
            over_bound: bound.map(|bound| times.ms / bound),
        })
    }

    /// Compares results on sampled rows with exact sums.
    fn check(
        &self,
        variant: Variant,
        graph: &Csr,
        (words, columns): (&[u64], usize),
        is_right: impl Fn(usize, usize, i64) -> bool,
    ) -> Result<(), Failure> {
        let stride = halfgnn_contract::bits::row_words(columns as u64) as usize;
        for row in samples(graph.vertices()) {
            for column in 0..columns {
                let sign = |&of: &u32| {
                    let word = words[of as usize * stride + column / 64];
                    2 * (word >> (column % 64) & 1) as i64 - 1
                };
                let sum: i64 = graph.row(row).iter().map(sign).sum();
                if !is_right(row, column, sum) {
                    return Err(Failure::Run(format!(
                        "{}: row {row}, column {column} is not what {sum} becomes; {} is not timed",
                        self.label,
                        variant.name()
                    )));
                }
            }
        }
        Ok(())
    }
}
