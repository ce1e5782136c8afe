//! `halfgnn bench`: how long an SpMM takes.

use crate::args::{AccumulateName, BenchArgs, GraphName};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::screen::count;
use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Accumulate, Backend, DeviceGraph, MemoryKind, Spmm, SpmmPolicy};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::ops;
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn_contract::rng;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs that are not timed.
const WARM_UP: u32 = 2;

/// Rows that are compared with a sum in double precision before anything is timed.
const CHECKED_ROWS: usize = 256;

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    device: &'a str,
    vertices: usize,
    edges: usize,
    features: u32,
    precision: String,
    accumulate: &'static str,
    ms: f64,
    ms_fastest: f64,
    ms_slowest: f64,
    gathered_tb_per_s: f64,
    largest_error: f64,
}

/// Times every combination that was asked for.
pub fn run(args: &BenchArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut json = JsonLines::open(args.json.as_deref())?;
    for name in &args.graphs {
        let (label, graph) = open(name)?;
        let bench = Bench {
            args,
            label: &label,
            graph: &graph,
            json: &mut json,
            stop,
        };
        device::open(args.device.into(), bench)??;
    }
    json.finish()
}

/// Reads or generates a graph.
pub fn open(name: &GraphName) -> Result<(String, Graph), Failure> {
    match name {
        GraphName::Kronecker(scale) => {
            let graph = Rmat::graph500(*scale).generate(1).map_err(Error::from)?;
            Ok((format!("kron{scale}"), graph))
        }
        GraphName::File(path) => {
            let graph = Graph::read_raw(path).map_err(|error| Failure::Input(error.to_string()))?;
            Ok((
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                graph,
            ))
        }
    }
}

struct Bench<'a> {
    args: &'a BenchArgs,
    label: &'a str,
    graph: &'a Graph,
    json: &'a mut JsonLines,
    stop: &'a AtomicBool,
}

impl Task for Bench<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let graph = DeviceGraph::new(&device.backend, self.graph)?;
        for &features in &self.args.features {
            for &precision in &self.args.precision {
                match precision.into() {
                    Precision::Half => {
                        for &accumulate in &self.args.accumulate {
                            self.time::<B, f16>(&device.backend, &graph, features, accumulate)?;
                        }
                    }
                    Precision::Float => {
                        self.time::<B, f32>(
                            &device.backend,
                            &graph,
                            features,
                            AccumulateName::Float,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Bench<'_> {
    fn time<B: Backend, E: Element>(
        &mut self,
        backend: &B,
        graph: &DeviceGraph<B>,
        features: u32,
        accumulate: AccumulateName,
    ) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (vertices, columns) = (self.graph.vertices(), features as usize);
        let key = rng::key(1, 0);
        let value = |i: usize| rng::unit_f32(rng::uniform_u32(key, i as u64)) - 0.5;
        let values: Vec<f32> = (0..vertices * columns).map(value).collect();
        let x =
            Matrix::<B, E>::from_f32(backend, vertices, columns, &values, MemoryKind::Features)?;
        let mut y = Matrix::<B, E>::zeros(backend, vertices, columns, MemoryKind::Activations)?;
        let accumulate = match accumulate {
            AccumulateName::Half => (Accumulate::Half, "half"),
            AccumulateName::Float => (Accumulate::Float, "float"),
        };
        let policy = SpmmPolicy {
            accumulate: accumulate.0,
            ..SpmmPolicy::default()
        };
        let op = Spmm {
            policy,
            ..Spmm::default()
        };
        for _ in 0..WARM_UP {
            ops::spmm(backend, graph.forward(), &op, &x, &mut y)?;
        }
        let largest_error = self.check::<E>(&values, &y.to_f32(backend)?, columns)?;
        let mut times = (0..self.args.runs)
            .map(|_| backend.timed(|| ops::spmm(backend, graph.forward(), &op, &x, &mut y)))
            .collect::<Result<Vec<f64>, Error>>()?;
        times.sort_by(f64::total_cmp);
        let ms = times[times.len() / 2];
        let edges = self.graph.edges();
        let row = Row {
            event: "spmm",
            graph: self.label,
            device: &backend.name(),
            vertices,
            edges,
            features,
            precision: E::PRECISION.to_string(),
            accumulate: accumulate.1,
            ms,
            ms_fastest: times[0],
            ms_slowest: times[times.len() - 1],
            gathered_tb_per_s: edges as f64 * (columns * size_of::<E>() + 4) as f64 / ms / 1e9,
            largest_error,
        };
        if !self.json.is_stdout() {
            println!(
                "{:<16} {:>11} edges  F={features:<4} {:<5} in {:<5} {ms:>9.4} ms ({:.4} to {:.4})  {:>6.2} TB/s gathered  error {largest_error:.1e}",
                row.graph,
                count(edges),
                row.precision,
                row.accumulate,
                row.ms_fastest,
                row.ms_slowest,
                row.gathered_tb_per_s
            );
        }
        self.json
            .write(&row)
            .map_err(|error| Failure::Run(format!("--json: {error}")))
    }

    /// Compares rows from the whole range with sums in double precision; says the largest error over the sum of
    /// magnitudes.
    fn check<E: Element>(&self, x: &[f32], y: &[f32], columns: usize) -> Result<f64, Failure> {
        let vertices = self.graph.vertices();
        let step = vertices.div_ceil(CHECKED_ROWS).max(1);
        let mut largest = 0.0f64;
        for row in (0..vertices).step_by(step) {
            for column in 0..columns {
                let terms = self.graph.csr().row(row).iter().map(|&neighbour| {
                    f64::from(E::from_f32(x[neighbour as usize * columns + column]).to_f32())
                });
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), term| {
                    (sum + term, all + term.abs())
                });
                let error =
                    (f64::from(y[row * columns + column]) - sum).abs() / f64::max(magnitude, 1.0);
                if error.is_nan() || error > 0.01 {
                    return Err(Failure::Run(format!(
                        "row {row}, column {column} of the SpMM on {} is {}, should be {sum}; not timed",
                        self.label,
                        y[row * columns + column]
                    )));
                }
                largest = largest.max(error);
            }
        }
        Ok(largest)
    }
}
