//! `halfgnn bench spmv`: a graph times a vector, compared with cuSPARSE and the time that reading 8 bytes an edge alone
//! takes.

use super::measure::{Times, samples, unit};
use super::peers::{PeerTime, Peers};
use super::table::{Row, Table, of_graphs};
use crate::failure::Failure;
use crate::graphs::GraphName;
use crate::names::{DeviceName, PrecisionName};
use clap::{Args, ValueEnum};
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{self, BitMatrix, edge_plane};
use halfgnn::tensor::{Array, Element, Precision};
use halfgnn::with_element;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench spmv --graph kron:18
  halfgnn bench spmv --graph kron21 --graph products-like --against cusparse,gather --json spmv.jsonl

Graphs are those of `halfgnn bench spmm`. Sums are compared with those in double precision on rows from the whole range before
they are timed. The bound reads each edge's column and 8 bytes that it names, and writes the result as fast as a copy; cuSPARSE
reads a weight an edge in any case.";

/// Options of `bench spmv`.
#[derive(Args)]
pub struct SpmvArgs {
    /// Graphs to time on; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// Precisions of vector, weights and result; sums are float
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Half, PrecisionName::Float])]
    precision: Vec<PrecisionName>,
    /// What edges weigh
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Weights::Ones, Weights::Edges])]
    weights: Vec<Weights>,
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

/// What edges weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weights {
    /// Nothing is read: one each
    Ones,
    /// A number an edge
    Edges,
}

impl Weights {
    fn name(self) -> &'static str {
        match self {
            Weights::Ones => "ones",
            Weights::Edges => "edges",
        }
    }
}

/// Something to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// NVIDIA's library, the best of its algorithms
    Cusparse,
    /// Only reading each edge's column and 8 bytes that it names, and writing the result as fast as a copy
    Gather,
}

/// What the bound gathers, in rows.
const EIGHT_BYTES: &str = "8 bytes";

/// Times every combination that was asked for.
pub fn run(args: &SpmvArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
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

struct Bench<'a, 'b> {
    args: &'a SpmvArgs,
    label: &'a str,
    graph: &'a Graph,
    table: &'a mut Table<'b>,
    stop: &'a AtomicBool,
}

/// Numbers in [−0.5, 0.5), rounded: those of operand `operand`.
struct Numbers<B: Backend, E: Element> {
    array: Array<B, E>,
    host: Vec<E>,
}

impl<B: Backend, E: Element> Numbers<B, E> {
    fn new(backend: &B, operand: u32, len: usize) -> Result<Self, Failure> {
        let host: Vec<E> = (0..len)
            .map(|at| E::from_f32(unit(operand, at) - 0.5))
            .collect();
        Ok(Self {
            array: Array::from_slice(backend, &host, MemoryKind::Features)?,
            host,
        })
    }

    fn get(&self, at: usize) -> f64 {
        self.host[at].to_f32().into()
    }
}

impl Task for Bench<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let peers = self.peers(backend);
        let mut bound = None;
        if let Some(peers) = peers.as_ref().filter(|_| self.wants(Peer::Gather)) {
            let rows = self.graph.vertices();
            let words = vec![0; rows];
            let x = BitMatrix::from_words(backend, (rows, 64), &words, MemoryKind::Features)?;
            let gather = PeerTime {
                precision: EIGHT_BYTES.into(),
                ..peers.gather_bits(self.graph.csr(), &x, self.args.runs)?
            };
            self.table.peer(self.label, 1, &gather);
            bound = Some((gather, peers.copy_bandwidth()?));
        }
        let a = Adjacency::new(backend, self.graph.csr())?;
        for &precision in &self.args.precision {
            let precision: Precision = precision.into();
            with_element!(precision, E => {
                self.precision::<B, E>(backend, &a, peers.as_ref(), bound.as_ref())
            })?;
        }
        Ok(())
    }
}

impl Bench<'_, '_> {
    fn wants(&self, peer: Peer) -> bool {
        self.args.against.contains(&peer)
    }

    /// The baselines of the backend; what is missing is said.
    fn peers<'p, B: Backend>(&self, backend: &'p B) -> Option<Peers<'p>> {
        if self.args.against.is_empty() {
            return None;
        }
        let peers = Peers::of(backend)
            .map_err(|reason| self.table.say(&format!("no peers: {reason}")))
            .ok()?;
        match peers.cusparse() {
            Err(reason) if self.wants(Peer::Cusparse) => {
                self.table.say(&format!("no cuSPARSE: {reason}"));
            }
            _ => {}
        }
        Some(peers)
    }

    fn precision<B: Backend, E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        peers: Option<&Peers<'_>>,
        bound: Option<&(PeerTime, f64)>,
    ) -> Result<(), Failure> {
        let csr = self.graph.csr();
        let (rows, edges) = (self.graph.vertices(), self.graph.edges());
        let x = Numbers::<B, E>::new(backend, 0, rows)?;
        let weights = Numbers::<B, E>::new(backend, 1, edge_plane(edges))?;
        let mut y = Array::<B, E>::zeros(backend, rows, MemoryKind::Activations)?;
        let mut timed = Vec::new();
        timed.extend(bound.map(|(gather, _)| gather.clone()));
        if let Some(peers) =
            peers.filter(|peers| self.wants(Peer::Cusparse) && peers.cusparse().is_ok())
        {
            let is_right = |y: &Array<B, E>| check(backend, csr, &x, None, y).map(drop);
            match peers.spmv(csr, &x.array, &mut y, self.args.runs, is_right) {
                Ok(peer) => {
                    self.table.peer(self.label, 1, &peer);
                    timed.push(peer);
                }
                Err(reason) => self.table.say(&format!(
                    "{}: no cuSPARSE in {}: {reason}",
                    self.label,
                    E::PRECISION
                )),
            }
        }
        for &kind in &self.args.weights {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let weights = (kind == Weights::Edges).then_some(&weights);
            let mut call = || {
                ops::spmv(
                    backend,
                    a,
                    weights.map(|weights| &weights.array),
                    &x.array,
                    &mut y,
                )
            };
            call()?;
            let times = Times::of(backend, self.args.runs, call)?;
            let largest_error = check(backend, csr, &x, weights, &y).map_err(|wrong| {
                Failure::Run(format!("{}: {wrong}; spmv is not timed", self.label))
            })?;
            let element = size_of::<E>() as f64;
            let weight = if weights.is_some() { element } else { 0.0 };
            self.table.push(Row {
                event: "spmv",
                graph: self.label.into(),
                device: backend.name(),
                vertices: rows,
                edges,
                features: 1,
                precision: E::PRECISION.to_string(),
                policy: kind.name().into(),
                gathered_tb_per_s: edges as f64 * (4.0 + element + weight) / times.ms / 1e9,
                times,
                largest_error,
                peers: timed.clone(),
                speedup: BTreeMap::new(),
                over_bound: bound.map(|(gather, copy)| {
                    times.ms / (gather.times.ms + rows as f64 * element / copy * 1e3)
                }),
            })?;
        }
        Ok(())
    }
}

/// The largest |error| over Σ|terms| of sampled rows, or what is wrong there.
fn check<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    x: &Numbers<B, E>,
    weights: Option<&Numbers<B, E>>,
    y: &Array<B, E>,
) -> Result<f64, String> {
    let y = y.to_vec(backend).map_err(|error| error.to_string())?;
    let mut largest = 0.0f64;
    for row in samples(graph.vertices()) {
        let (sum, magnitude) = graph
            .row_range(row)
            .map(|edge| {
                let weight = weights.map_or(1.0, |weights| weights.get(edge));
                weight * x.get(graph.cols()[edge] as usize)
            })
            .fold((0.0, 0.0), |(sum, all), term| {
                (sum + term, all + term.abs())
            });
        let found = f64::from(y[row].to_f32());
        let error = (found - sum).abs() / f64::max(magnitude, 1.0);
        if error.is_nan() || error > 0.01 {
            return Err(format!("row {row} is {found}, should be {sum}"));
        }
        largest = largest.max(error);
    }
    Ok(largest)
}
