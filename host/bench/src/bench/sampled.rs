//! `halfgnn bench sampled`: sampled subgraphs, each new: what a graph costs that is made and used once, compared with
//! cuSPARSE.

use super::measure::{Operand, check_spmm};
use super::peers::Peers;
use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::json::JsonLines;
use crate::names::{DeviceName, PrecisionName};
use crate::screen::{Page, count};
use clap::{Args, ValueEnum};
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::Graph;
use halfgnn::ops::{self, Spmm};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use halfgnn::with_element;
use halfgnn_contract::rng;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench sampled --graph products-like --against cusparse --json sampled.jsonl
  halfgnn bench sampled --graph kron:12 --subgraphs 8 --vertices 200,800 --device cpu

HP-SpMM is measured on 838 subgraphs, one a training step. Here as many are sampled by GraphSAINT's node sampler: vertices
in proportion to their degree, and all edges between them; the same on every machine. Their edges lie on the device, row by row, when
time begins: looked at on the host before, as row ids are, or not, as a COO is that the device checks. The report has the time of making
the graph, where one is made, and of one SpMM, until the device is done, by the clock; of cuSPARSE what it asks for before
its first SpMM (descriptors, workspace, preprocessing) and one, by the best of its algorithms, with its offsets given to it. Results are
compared with sums in double precision on rows from the whole range.";

/// The subgraphs of HP-SpMM's paper.
const SUBGRAPHS: u32 = 838;

/// Options of `bench sampled`.
#[derive(Args)]
pub struct SampledArgs {
    /// Graphs to draw from; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// Subgraphs to draw
    #[arg(long, value_name = "N", default_value_t = SUBGRAPHS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    subgraphs: u32,
    /// Sampled vertices of a subgraph, the numbers round-robin; a vertex that is sampled twice is there once
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2_000, 8_000, 32_000], value_parser = clap::value_parser!(u32).range(1..))]
    vertices: Vec<u32>,
    /// Seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u32,
    /// Feature length
    #[arg(long, value_name = "F", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    features: u32,
    /// Precisions
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Half, PrecisionName::Float])]
    precision: Vec<PrecisionName>,
    /// What our SpMM reads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORM", default_values_t = [Form::RowIds, Form::Coo])]
    form: Vec<Form>,
    /// What to time in the same run, on the same operands
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    against: Vec<Peer>,
    /// Timed runs of each subgraph; the fastest counts, on both sides
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

/// What an SpMM reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Form {
    /// The row and column of each edge, in order of rows, as they are: nothing is made
    RowIds,
    /// A graph that the device makes of a COO in any order: starts, lists of rows
    Coo,
}

/// Something to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// NVIDIA's library, the best of its algorithms
    Cusparse,
}

/// One subgraph.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    device: String,
    subgraph: u32,
    vertices: usize,
    edges: usize,
    features: u32,
    precision: String,
    form: Form,
    /// Making the graph; of row ids nothing is made.
    construct_ms: f64,
    /// One SpMM.
    spmm_ms: f64,
    /// Both.
    ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cusparse_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cusparse_algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speedup: Option<f64>,
}

/// All of them, in one precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Summary<'a> {
    event: &'static str,
    graph: &'a str,
    device: String,
    features: u32,
    precision: String,
    form: Form,
    subgraphs: usize,
    mean_vertices: f64,
    mean_edges: f64,
    mean_construct_ms: f64,
    mean_spmm_ms: f64,
    /// Of those that were compared: how many times faster than cuSPARSE.
    compared: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_speedup: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometric_mean_speedup: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    faster: Option<f64>,
}

impl<'a> Summary<'a> {
    /// Of the rows of one precision and form; none where there are none.
    fn of(rows: &[&Row<'a>]) -> Option<Self> {
        let first = rows.first()?;
        let mean = |number: &dyn Fn(&Row<'_>) -> f64| {
            rows.iter().map(|row| number(row)).sum::<f64>() / rows.len() as f64
        };
        let speedups: Vec<f64> = rows.iter().filter_map(|row| row.speedup).collect();
        let of_speedups = |number: &dyn Fn(f64) -> f64| {
            let sum: f64 = speedups.iter().map(|&speedup| number(speedup)).sum();
            (!speedups.is_empty()).then(|| sum / speedups.len() as f64)
        };
        Some(Self {
            event: "sampled_summary",
            graph: first.graph,
            device: first.device.clone(),
            features: first.features,
            precision: first.precision.clone(),
            form: first.form,
            subgraphs: rows.len(),
            mean_vertices: mean(&|row| row.vertices as f64),
            mean_edges: mean(&|row| row.edges as f64),
            mean_construct_ms: mean(&|row| row.construct_ms),
            mean_spmm_ms: mean(&|row| row.spmm_ms),
            compared: speedups.len(),
            mean_speedup: of_speedups(&|speedup| speedup),
            geometric_mean_speedup: of_speedups(&f64::ln).map(f64::exp),
            faster: of_speedups(&|speedup| f64::from(u8::from(speedup > 1.0))),
        })
    }

    fn line(&self) -> String {
        let made = match self.form {
            Form::RowIds => "of row ids".to_owned(),
            Form::Coo => format!("{:.4} ms to make one of a COO,", self.mean_construct_ms),
        };
        let mut line = format!(
            "{:<16} {} subgraphs of {} vertices and {} edges in the mean, F={} {}: {made} {:.4} ms an SpMM",
            self.graph,
            self.subgraphs,
            count(self.mean_vertices as usize),
            count(self.mean_edges as usize),
            self.features,
            self.precision,
            self.mean_spmm_ms,
        );
        if let (Some(mean), Some(geometric), Some(faster)) =
            (self.mean_speedup, self.geometric_mean_speedup, self.faster)
        {
            line += &format!(
                "; {mean:.2}x as fast as cuSPARSE in the mean ({geometric:.2}x in the geometric), faster on {:.0} % of {}",
                100.0 * faster,
                self.compared
            );
        }
        line
    }
}

/// Times every graph that was asked for.
pub fn run(args: &SampledArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut json = graphs::json_lines(&args.graphs, args.json.as_deref())?;
    graphs::each(&args.graphs, |label, graph| {
        if graph.edges() == 0 {
            return Err(Failure::Run(format!(
                "{label}: no edges, so nothing to draw subgraphs by; take a graph that has some"
            )));
        }
        let bench = Bench {
            args,
            label,
            graph: &graph,
            json: &mut json,
            stop,
        };
        device::open(args.device.into(), bench)?
    })?;
    json.finish()
}

struct Bench<'a> {
    args: &'a SampledArgs,
    label: &'a str,
    graph: &'a Graph,
    json: &'a mut JsonLines,
    stop: &'a AtomicBool,
}

/// Vertices of subgraph `number`, each once: the columns of edges that are sampled at random.
fn drawn(graph: &Graph, seed: u32, number: u32, draws: u32) -> Vec<u32> {
    let key = rng::key(u64::from(seed), number);
    let edges = graph.edges() as u64;
    let mut vertices: Vec<u32> = (0..u64::from(draws))
        .map(|at| {
            let draw = u64::from(rng::uniform_u32(key, at));
            graph.cols()[((draw * edges) >> 32) as usize]
        })
        .collect();
    vertices.sort_unstable();
    vertices.dedup();
    vertices
}

/// Milliseconds of `work` with all that it queues, by the clock.
pub fn clocked<B: Backend, T>(
    backend: &B,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<(f64, T), Error> {
    backend.synchronize()?;
    let begin = Instant::now();
    let done = work()?;
    backend.synchronize()?;
    Ok((begin.elapsed().as_secs_f64() * 1e3, done))
}

impl Task for Bench<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let mut page = Page::new(self.json.is_stdout());
        let peers = (!self.args.against.is_empty()).then(|| Peers::of(backend));
        let peers = match peers {
            Some(Err(reason)) => {
                page.line(&format!("no peers: {reason}"));
                None
            }
            Some(Ok(peers)) => match peers.cusparse() {
                Err(reason) => {
                    page.line(&format!("no cuSPARSE: {reason}"));
                    None
                }
                Ok(_) => Some(peers),
            },
            None => None,
        };
        for &precision in &self.args.precision {
            let precision: Precision = precision.into();
            let mut rows = Vec::new();
            let sizes = self.args.vertices.iter().cycle();
            for (number, &draws) in (0..self.args.subgraphs).zip(sizes) {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let of_forms = with_element!(precision, E => {
                    self.subgraph::<B, E>(backend, peers.as_ref(), number, draws)
                })?;
                for row in of_forms {
                    self.json.write(&row)?;
                    rows.push(row);
                }
            }
            for form in &self.args.form {
                let of_form: Vec<&Row<'_>> = rows.iter().filter(|row| row.form == *form).collect();
                if let Some(summary) = Summary::of(&of_form) {
                    page.line(&summary.line());
                    self.json.write(&summary)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Bench<'a> {
    fn subgraph<B: Backend, E: Element>(
        &self,
        backend: &B,
        peers: Option<&Peers<'_>>,
        number: u32,
        draws: u32,
    ) -> Result<Vec<Row<'a>>, Failure> {
        let vertices = drawn(self.graph, self.args.seed, number, draws);
        let (graph, _) = self
            .graph
            .induced(&vertices)
            .map_err(|error| Failure::Run(error.to_string()))?;
        let csr = graph.csr();
        let features = self.args.features as usize;
        let x = Operand::<B, E>::new(backend, 0, graph.vertices(), features)?;
        let mut y = Matrix::zeros(backend, graph.vertices(), features, MemoryKind::Activations)?;
        let wrong =
            |wrong: String| Failure::Run(format!("{}: subgraph {number}: {wrong}", self.label));
        // Of the edges as they are nothing is made: they are the graph, and lie where they lie, as cuSPARSE's do.
        let edges = Adjacency::from_row_ids(backend, csr.shape(), csr.rows(), csr.cols())?;
        let (row_ids, columns) = (
            edges.row_ids(backend)?,
            Array::from_slice(backend, csr.cols(), MemoryKind::Graph)?,
        );
        let make = || Adjacency::from_coo(backend, csr.shape(), row_ids, &columns);
        let mut times = Vec::new();
        for &form in &self.args.form {
            let mut best = (f64::INFINITY, f64::INFINITY);
            // One more than is timed: in the first, memory is asked for.
            for run in 0..=self.args.runs {
                let (construct, made) = match form {
                    Form::RowIds => (0.0, None),
                    Form::Coo => {
                        let (ms, (made, _)) = clocked(backend, make)?;
                        (ms, Some(made))
                    }
                };
                let a = made.as_ref().unwrap_or(&edges);
                let (spmm, ()) = clocked(backend, || {
                    ops::spmm(backend, a, &Spmm::default(), &x.matrix, &mut y)
                })?;
                if run > 0 && construct + spmm < best.0 + best.1 {
                    best = (construct, spmm);
                }
            }
            check_spmm(backend, csr, &x, &y).map_err(wrong)?;
            times.push((form, best));
        }
        let cusparse = match peers {
            Some(peers) => Some(
                peers
                    .spmm_of_a_new_graph(csr, &x, &mut y, self.args.runs)
                    .map_err(wrong)?,
            ),
            None => None,
        };
        let cusparse_ms = cusparse.as_ref().map(|peer| peer.times.ms);
        let row = |(form, (construct_ms, spmm_ms))| Row {
            event: "sampled",
            graph: self.label,
            device: backend.name(),
            subgraph: number,
            vertices: graph.vertices(),
            edges: graph.edges(),
            features: self.args.features,
            precision: E::PRECISION.to_string(),
            form,
            construct_ms,
            spmm_ms,
            ms: construct_ms + spmm_ms,
            cusparse_ms,
            cusparse_algorithm: cusparse.as_ref().and_then(|peer| peer.algorithm),
            speedup: cusparse_ms.map(|cusparse| cusparse / (construct_ms + spmm_ms)),
        };
        Ok(times.into_iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ms: f64, speedup: Option<f64>) -> Row<'static> {
        Row {
            event: "sampled",
            graph: "g",
            device: "a GPU".into(),
            subgraph: 0,
            vertices: 10,
            edges: 30,
            features: 64,
            precision: "half".into(),
            form: Form::Coo,
            construct_ms: ms,
            spmm_ms: 2.0 * ms,
            ms: 3.0 * ms,
            cusparse_ms: speedup.map(|speedup| 3.0 * ms * speedup),
            cusparse_algorithm: None,
            speedup,
        }
    }

    #[test]
    fn means_are_of_what_was_compared() {
        let rows = [row(1.0, Some(4.0)), row(2.0, None), row(3.0, Some(0.25))];
        let summary = Summary::of(&rows.each_ref()).expect("rows");
        assert_eq!((summary.subgraphs, summary.compared), (3, 2));
        assert_eq!(
            (summary.mean_construct_ms, summary.mean_spmm_ms),
            (2.0, 4.0)
        );
        assert_eq!(summary.mean_speedup, Some(2.125));
        assert_eq!(summary.geometric_mean_speedup, Some(1.0));
        assert_eq!(summary.faster, Some(0.5));
        assert!(summary.line().contains("2.12x"), "{}", summary.line());
        let alone = Summary::of(&[&rows[1]]).expect("a row");
        assert_eq!((alone.compared, alone.mean_speedup), (0, None));
        assert!(!alone.line().contains("cuSPARSE"));
        assert_eq!(Summary::of(&[]), None);
    }

    /// Vertices come in proportion to how often columns name them, the same for a seed, others for another subgraph.
    #[test]
    fn draws_follow_degrees_and_seeds() {
        let rows: Vec<u32> = (0..100).collect();
        let columns: Vec<u32> = rows
            .iter()
            .map(|row| if *row < 90 { 7 } else { *row })
            .collect();
        let graph = Graph::from_edges(100, &rows, &columns).expect("a graph");
        let of = |number| drawn(&graph, 3, number, 40);
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        assert_ne!(of(0), drawn(&graph, 4, 0, 40));
        assert!(of(0).contains(&7) && of(0).len() < 12);
        assert!(of(0).is_sorted_by(|a, b| a < b));
    }
}
