//! `halfgnn bench bspmm`: sums of ±1 over neighbours, compared with the SpMM in half and the time that reading alone
//! takes.

use super::args::Gathering;
use super::measure::{Operand, Times, samples};
use super::peers::{BITS, PeerTime, Peers};
use super::table::{Row, Table, of_graphs};
use super::variants::{Variants, named, row_bytes};
use crate::failure::Failure;
use crate::graphs::GraphName;
use crate::names::DeviceName;
use clap::{Args, ValueEnum};
use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind, RowShare};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::{Csr, Frdc, Graph};
use halfgnn::ops::{
    self, BitMatrix, BitOutput, BitVariant, BspmmOperands, BspmmSignsOperands, Checked,
    ColumnFactors, Schedule, SumOperand, TiledAdjacency, Trinary,
};
use halfgnn::tensor::{Array, Element, Matrix};
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
  halfgnn bench bspmm --graph kron:18 --variant all --against gather    the eight of the paper
  halfgnn bench bspmm --graph cora.npz --variant BBB,BBF --schedule edge,vertex    is the choice the better?
  halfgnn bench bspmm --graph kron21 --graph products-like --features 64,128,256 --against gather --json bspmm.jsonl

Variants have BitGNN's names: activation, adjacency, result; F is full precision (half), B is bits. An adjacency F has a factor a
column, in float for half (FFF, FFB) and in 8 bits for bits (BFF, BFB); FBF is this library's SpMM. Graphs are those of
`halfgnn bench spmm`. Sums are compared with exact ones on rows from the whole range before they are reported.";

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
    #[arg(long, value_delimiter = ',', value_name = "VARIANT|all", default_values = ["BBB", "BBF", "FBF"])]
    variant: Vec<Variants>,
    /// Time BBB and BBF of the variants on BitGNN's own format as well, tiles of 4 x 4 bits in which an edge that
    /// occurs twice is one, with these ways to multiply edges and signs
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORM")]
    frdc: Vec<TrinaryName>,
    /// Time BBB and BBF of the variants by these ways to distribute edges to warps as well: shares of the edges in two
    /// launches, or a row a warp in one; by itself an operator takes what suits the graph
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SCHEDULE")]
    schedule: Vec<ScheduleName>,
    /// What to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    against: Vec<Gathering>,
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

/// A [`Schedule`] that sums of bits have, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScheduleName {
    /// By edges, in two launches
    Edge,
    /// By vertices, in one
    Vertex,
}

impl ScheduleName {
    const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Vertex => "vertex",
        }
    }
}

impl From<ScheduleName> for Schedule {
    fn from(name: ScheduleName) -> Self {
        match name {
            ScheduleName::Edge => Self::Edge,
            ScheduleName::Vertex => Self::Vertex,
        }
    }
}

/// Times every combination that was asked for.
pub fn run(args: &BspmmArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let sums_bits = named(&args.variant).into_iter().any(is_of_ones);
    let asked = [
        ("--frdc", args.frdc.is_empty()),
        ("--schedule", args.schedule.is_empty()),
    ];
    if let Some((option, _)) = asked
        .iter()
        .find(|(_, is_left_out)| !is_left_out && !sums_bits)
    {
        return Err(Failure::Input(format!(
            "{option} is of sums of bits, and --variant names none; add BBB or BBF"
        )));
    }
    of_graphs(&args.graphs, args.json.as_deref(), |label, graph, table| {
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

/// Whether it is a sum of bits over edges without factors, which BitGNN's own format has here and which has schedules.
fn is_of_ones(variant: BitVariant) -> bool {
    variant.activation && variant.second
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
        let coded = Coded::new(backend, self.graph.vertices())?;
        for &features in &self.args.features {
            let rows = self.graph.vertices();
            let words = words(rows, features as usize);
            let shape = (rows, features as usize);
            let x = BitMatrix::from_words(backend, shape, &words, MemoryKind::Features)?;
            let variants = named(&self.args.variant);
            let mut gathers = Vec::new();
            if let Some(peers) = &peers {
                gathers.push(peers.gather_bits(self.graph.csr(), &x, self.args.runs)?);
            }
            let elements = match variants.iter().any(|variant| !variant.activation) {
                true => Some(Operand::<B, f16>::new(backend, 0, rows, features as usize)?),
                false => None,
            };
            if let (Some(peers), Some(x)) = (&peers, &elements) {
                gathers.push(peers.gather(self.graph.csr(), &x.matrix, self.args.runs)?);
            }
            let of = Summed {
                bits: (&x, &words),
                elements: elements.as_ref(),
                coded: &coded,
            };
            for variant in variants {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let timed = self.time(backend, &a, &of, variant)?;
                let name = variant.name().into();
                self.tell(backend, (variant, name), &x, timed, (&gathers, copy))?;
                for &schedule in self.args.schedule.iter().filter(|_| is_of_ones(variant)) {
                    let timed = self.time_schedule(backend, &a, &of, (variant, schedule.into()))?;
                    let name = format!("{} {}", variant.name(), schedule.name());
                    self.tell(backend, (variant, name), &x, timed, (&gathers, copy))?;
                }
                let of_bits = tiled.as_ref().filter(|_| is_of_ones(variant));
                let Some((tiles, once)) = of_bits else {
                    continue;
                };
                for trinary in self.args.frdc.iter().map(|&name| Trinary::from(name)) {
                    let how = (variant, trinary);
                    let timed = self.time_tiles(backend, (tiles, once), &of, how)?;
                    let name = format!("FRDC {} {trinary}", variant.name());
                    self.tell(backend, (variant, name), &x, timed, (&gathers, copy))?;
                }
            }
        }
        Ok(())
    }
}

/// A factor a column of the graph, in 8 bits and as they are.
struct Coded<B: Backend> {
    codes: Vec<u32>,
    in_bits: ColumnFactors<B>,
    in_float: Array<B, f32>,
}

/// What a code is worth.
const CODE: f32 = 1.0 / 256.0;

impl<B: Backend> Coded<B> {
    fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let draw = |at: usize| 1 + rng::uniform_u32(rng::key(1, 2), at as u64) % 255;
        let mut codes: Vec<u32> = (0..columns).map(draw).collect();
        // The largest is met, so that the quantized values are these.
        codes.iter_mut().take(1).for_each(|code| *code = 255);
        let factors: Vec<f32> = codes.iter().map(|&code| code as f32 * CODE).collect();
        let kind = MemoryKind::Features;
        Ok(Self {
            in_bits: ColumnFactors::new(backend, &factors, kind)?,
            in_float: Array::from_slice(backend, &factors, kind)?,
            codes,
        })
    }
}

/// What is summed up.
struct Summed<'a, B: Backend> {
    /// Bits, and their words on the host.
    bits: (&'a BitMatrix<B>, &'a [u64]),
    elements: Option<&'a Operand<B, f16>>,
    coded: &'a Coded<B>,
}

impl<B: Backend> Summed<'_, B> {
    fn operand(&self, variant: BitVariant) -> SumOperand<'_, B, f16> {
        let factors = !variant.second;
        match self.elements.filter(|_| !variant.activation) {
            Some(x) => SumOperand::Elements(&x.matrix, factors.then_some(&self.coded.in_float)),
            None => SumOperand::Bits(self.bits.0, factors.then_some(&self.coded.in_bits)),
        }
    }

    /// What row `row` of the operand adds to a sum: a whole number of bits, and of 8-bit values where there are any.
    fn term(&self, variant: BitVariant, row: usize, column: usize) -> f64 {
        let (bits, words) = self.bits;
        let code = f64::from(self.coded.codes[row]);
        match self.elements.filter(|_| !variant.activation) {
            Some(x) if variant.second => x.get(row, column),
            Some(x) => x.get(row, column) * code * f64::from(CODE),
            None => {
                let word = words[row * bits.stride() + column / 64];
                let sign = 2.0 * (word >> (column % 64) & 1) as f64 - 1.0;
                if variant.second { sign } else { sign * code }
            }
        }
    }
}

/// Times of a variant, what a row is of that its bound gathers, and the largest |error| over Σ|terms|.
type Timed = (Times, String, f64);

/// How far a sum in half may be from the exact one, over Σ|terms|.
const TOLERANCE: f64 = 0.01;

impl Bench<'_, '_> {
    fn time<B: Backend>(
        &self,
        backend: &B,
        a: &Adjacency<B>,
        of: &Summed<'_, B>,
        variant: BitVariant,
    ) -> Result<Timed, Failure> {
        let mut sums = None;
        let csr = self.graph.csr();
        if variant.result {
            return self.time_signs(backend, csr, of, variant, |y| {
                let y = BitOutput::Bits(y);
                ops::bspmm_of(backend, (a, of.operand(variant)), None, y, &mut sums)
            });
        }
        self.time_sums(backend, csr, of, variant, |y| {
            let y = BitOutput::Elements(y);
            ops::bspmm_of(backend, (a, of.operand(variant)), None, y, &mut sums)
        })
    }

    /// By a schedule that is given.
    fn time_schedule<B: Backend>(
        &self,
        backend: &B,
        a: &Adjacency<B>,
        of: &Summed<'_, B>,
        (variant, schedule): (BitVariant, Schedule),
    ) -> Result<Timed, Failure> {
        let (x, csr) = (of.bits.0, self.graph.csr());
        if variant.result {
            return self.time_signs(backend, csr, of, variant, |y| {
                let operands = BspmmSignsOperands {
                    a,
                    factors: None,
                    x,
                    schedule,
                    y,
                };
                backend.bspmm_signs(Checked::new(operands)?)
            });
        }
        self.time_sums(backend, csr, of, variant, |y| {
            let operands = BspmmOperands {
                a,
                share: RowShare::ALL,
                factors: None,
                x,
                row_scale: None,
                scale: 1.0,
                schedule,
                y,
            };
            backend.bspmm(Checked::new(operands)?)
        })
    }

    /// On the graph as tiles, whose edges are those of `once`.
    fn time_tiles<B: Backend>(
        &self,
        backend: &B,
        (a, once): (&TiledAdjacency<B>, &Csr),
        of: &Summed<'_, B>,
        (variant, trinary): (BitVariant, Trinary),
    ) -> Result<Timed, Failure> {
        let x = of.bits.0;
        if variant.result {
            return self.time_signs(backend, once, of, variant, |y| {
                ops::frdc_bspmm_signs(backend, a, x, trinary, y)
            });
        }
        self.time_sums(backend, once, of, variant, |y| {
            ops::frdc_bspmm(backend, a, x, (None, 1.0), trinary, y)
        })
    }

    /// What makes signs of sums over the neighbours in `graph`, once they are right.
    fn time_signs<B: Backend>(
        &self,
        backend: &B,
        graph: &Csr,
        of: &Summed<'_, B>,
        variant: BitVariant,
        mut sum: impl FnMut(&mut BitMatrix<B>) -> Result<(), Error>,
    ) -> Result<Timed, Failure> {
        let (rows, columns) = (graph.vertices(), of.bits.0.columns());
        let mut y = BitMatrix::zeros(backend, rows, columns, MemoryKind::Activations)?;
        sum(&mut y)?;
        let times = Times::of(backend, self.args.runs, || sum(&mut y))?;
        let signs = y.to_words(backend)?;
        let is_exact = variant.activation;
        self.check(variant, graph, of, |row, column, sum, magnitude| {
            let word = signs[row * y.stride() + column / 64];
            let is_right = (word >> (column % 64) & 1 == 1) == (sum >= 0.0);
            // Of sums that are rounded a small one may have the other sign.
            let is_small = !is_exact && sum.abs() <= TOLERANCE * magnitude;
            (is_right || is_small).then_some(0.0)
        })?;
        Ok((times, precision(variant), 0.0))
    }

    /// The same of the sums.
    fn time_sums<B: Backend>(
        &self,
        backend: &B,
        graph: &Csr,
        of: &Summed<'_, B>,
        variant: BitVariant,
        mut sum: impl FnMut(&mut Matrix<B, f16>) -> Result<(), Error>,
    ) -> Result<Timed, Failure> {
        let (rows, columns) = (graph.vertices(), of.bits.0.columns());
        let mut y = Matrix::<B, f16>::zeros(backend, rows, columns, MemoryKind::Activations)?;
        sum(&mut y)?;
        let times = Times::of(backend, self.args.runs, || sum(&mut y))?;
        let sums = y.to_padded(backend)?;
        let scale = if variant.second { 1.0 } else { CODE };
        let largest = self.check(variant, graph, of, |row, column, sum, magnitude| {
            let found = sums[row * y.stride() + column];
            if variant.activation {
                return (found == f16::from_f32(sum as f32 * scale)).then_some(0.0);
            }
            let error = (f64::from(found.to_f32()) - sum).abs() / magnitude.max(1.0);
            (error <= TOLERANCE).then_some(error)
        })?;
        Ok((times, precision(variant), largest))
    }

    /// A row of the table.
    fn tell<B: Backend>(
        &mut self,
        backend: &B,
        (variant, name): (BitVariant, String),
        x: &BitMatrix<B>,
        (times, precision, largest_error): Timed,
        (gathers, copy): (&[PeerTime], Option<f64>),
    ) -> Result<(), Failure> {
        let rows = self.graph.vertices();
        let columns = x.columns() as u32;
        let gathered = row_bytes(variant.activation, columns);
        let written = row_bytes(variant.result, columns);
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
            largest_error,
            peers: gathers.to_vec(),
            speedup: BTreeMap::new(),
            over_bound: bound.map(|bound| times.ms / bound),
        })
    }

    /// Compares results on sampled rows with exact sums; the largest error.
    fn check<B: Backend>(
        &self,
        variant: BitVariant,
        graph: &Csr,
        of: &Summed<'_, B>,
        error: impl Fn(usize, usize, f64, f64) -> Option<f64>,
    ) -> Result<f64, Failure> {
        let mut largest = 0.0_f64;
        for row in samples(graph.vertices()) {
            for column in 0..of.bits.0.columns() {
                let terms = graph.row(row).iter();
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), &neighbour| {
                    let term = of.term(variant, neighbour as usize, column);
                    (sum + term, all + term.abs())
                });
                let Some(error) = error(row, column, sum, magnitude) else {
                    return Err(Failure::Run(format!(
                        "{}: row {row}, column {column} is not what {sum} becomes; {} is not told",
                        self.label,
                        variant.name()
                    )));
                };
                largest = largest.max(error);
            }
        }
        Ok(largest)
    }
}

/// What rows are of that are gathered.
fn precision(variant: BitVariant) -> String {
    match variant.activation {
        true => BITS.to_owned(),
        false => f16::PRECISION.to_string(),
    }
}
