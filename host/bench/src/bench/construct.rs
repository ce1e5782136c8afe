//! `halfgnn bench construct`: how long a graph takes that is made on the device, of edges that lie there.

use super::measure::Times;
use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::json::JsonLines;
use crate::names::DeviceName;
use crate::screen::{Page, count};
use clap::Args;
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::{Csr, Graph};
use halfgnn::tensor::Array;
use halfgnn_contract::rng;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench construct --graph kron:18
  halfgnn bench construct --graph products-like --graph reddit-like --json construct.jsonl

Edges are given in a random order (coo), or row by row (csr). What is made is compared with the host's graph, array by array.
The host's time is that of all threads, from edges in the same random order.";

/// Options of `bench construct`.
#[derive(Args)]
pub struct ConstructArgs {
    /// Graphs to make; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
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

/// One way of making one graph.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    device: String,
    vertices: usize,
    edges: usize,
    /// `coo`, `csr` or `transpose`.
    from: &'static str,
    #[serde(flatten)]
    times: Times,
    edges_per_s: f64,
    /// Milliseconds that the host takes, from the same edges.
    host_ms: f64,
    /// Times faster than the host.
    speedup: Speedup,
}

/// Times faster, as other benches have it by baseline.
#[derive(Clone, Debug, Serialize)]
struct Speedup {
    host: f64,
}

/// Times every graph that was asked for.
pub fn run(args: &ConstructArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut json = graphs::json_lines(&args.graphs, args.json.as_deref())?;
    graphs::each(&args.graphs, |label, graph| {
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

/// What is timed.
type Call<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

struct Bench<'a> {
    args: &'a ConstructArgs,
    label: &'a str,
    graph: &'a Graph,
    json: &'a mut JsonLines,
    stop: &'a AtomicBool,
}

/// Rows and columns of the edges in a random order, the same on every machine.
fn shuffled(graph: &Csr) -> [Vec<u32>; 2] {
    let mut order: Vec<u32> = (0..graph.edges() as u32).collect();
    for at in (1..order.len()).rev() {
        let draw = u64::from(rng::uniform_u32(rng::key(1, 0), at as u64));
        order.swap(at, ((draw * (at as u64 + 1)) >> 32) as usize);
    }
    let pick = |ids: &[u32]| order.iter().map(|&at| ids[at as usize]).collect();
    [pick(graph.rows()), pick(graph.cols())]
}

impl Task for Bench<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let csr = self.graph.csr();
        let [rows, columns] = shuffled(csr);
        let begin = Instant::now();
        let host = Csr::rectangular_from_edges(csr.shape(), &rows, &columns)
            .map_err(|error| Failure::Run(error.to_string()))?;
        let host_ms = begin.elapsed().as_secs_f64() * 1e3;
        let upload = |ids: &[u32]| Array::from_slice(backend, ids, MemoryKind::Graph);
        let given = (upload(&rows)?, upload(&columns)?);
        drop((rows, columns));
        let offsets = Array::from_slice(backend, csr.offsets(), MemoryKind::Graph)?;
        let in_order = upload(csr.cols())?;
        let expected = Adjacency::new(backend, &host)?.arrays(backend)?;
        let wrong = |from: &str| Failure::Run(format!("{}: {from} made another graph", self.label));
        let made = Adjacency::from_coo(backend, csr.shape(), &given.0, &given.1)?.0;
        if made.arrays(backend)? != expected {
            return Err(wrong("coo"));
        }
        let from_csr = Adjacency::from_csr(backend, csr.shape().1, &offsets, &in_order)?.0;
        if from_csr.arrays(backend)? != expected {
            return Err(wrong("csr"));
        }
        drop(from_csr);
        let ways: [(&'static str, Call<'_>); 3] = [
            ("coo", &mut || {
                Adjacency::from_coo(backend, csr.shape(), &given.0, &given.1).map(drop)
            }),
            ("csr", &mut || {
                Adjacency::from_csr(backend, csr.shape().1, &offsets, &in_order).map(drop)
            }),
            ("transpose", &mut || made.transposed(backend).map(drop)),
        ];
        for (from, call) in ways {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let times = Times::of(backend, self.args.runs, call)?;
            self.tell(backend.name(), from, times, host_ms)?;
        }
        Ok(())
    }
}

impl Bench<'_> {
    fn tell(
        &mut self,
        device: String,
        from: &'static str,
        times: Times,
        host_ms: f64,
    ) -> Result<(), Failure> {
        let edges = self.graph.edges();
        let row = Row {
            event: "construct",
            graph: self.label,
            device,
            vertices: self.graph.vertices(),
            edges,
            from,
            times,
            edges_per_s: edges as f64 / times.ms * 1e3,
            host_ms,
            speedup: Speedup {
                host: host_ms / times.ms,
            },
        };
        if !self.json.is_stdout() {
            Page::new(false).line(&format!(
                "{:<16} {:>11} edges  {from:<10} {:>9.3} ms ({:.3} to {:.3})  {:>7.2} G edges/s  {:.1}x the host",
                row.graph,
                count(edges),
                times.ms,
                times.ms_fastest,
                times.ms_slowest,
                row.edges_per_s / 1e9,
                row.speedup.host,
            ));
        }
        Ok(self.json.write(&row)?)
    }
}
