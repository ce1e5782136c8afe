//! `halfgnn bench scale`: what each of several ranks would have of a graph, and what they would send one another.

use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::names::PrecisionName;
use crate::screen::{Page, bytes, count};
use clap::Args;
use halfgnn::distributed::{Balance, Gather, Partition};
use halfgnn::graph::Graph;
use halfgnn::tensor::{Precision, padded};
use halfgnn::with_element;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench scale --graph kron:18 --ranks 2,4,8
  halfgnn bench scale --graph products-like --ranks 1000 --features 128 --json scale.jsonl
  halfgnn bench scale --graph cora.npz --ranks 4 --partition louvain

The graph is partitioned, and vertices, edges, halos and bytes of each rank are counted, edge by edge: they are exact. Times are not
measured: an exchange takes α and the most bytes that a rank sends or receives over β, an all-gather of all rows likewise. `halo` or `whole`
is what --gather auto of `train` takes.";

/// Options of `bench scale`.
#[derive(Args)]
pub struct ScaleArgs {
    /// Graphs to partition; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    graphs: Vec<GraphName>,
    /// Numbers of ranks
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u32).range(1..=65536))]
    ranks: Vec<u32>,
    /// How it is partitioned: degree, louvain, or a file with a part in each line, one a vertex
    #[arg(long, value_name = "degree|louvain|FILE", default_value = "degree")]
    partition: PathBuf,
    /// Columns of the rows that are exchanged
    #[arg(long, value_name = "F", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    features: u32,
    /// What they are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Half)]
    precision: PrecisionName,
    /// α: microseconds that an exchange takes of nothing; 12 were measured on four H200s of one host
    #[arg(long, value_name = "US", default_value_t = 12.0, value_parser = positive)]
    alpha: f64,
    /// β: GB/s that a rank sends and receives at once; 315 were measured there
    #[arg(long, value_name = "GB/S", default_value_t = 315.0, value_parser = positive)]
    beta: f64,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("it must be a number above 0".into()),
    }
}

/// A graph on a number of ranks.
#[derive(Clone, Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    vertices: usize,
    edges: usize,
    ranks: u32,
    partition: String,
    features: u32,
    precision: String,
    /// The most vertices and edges of a rank, and edges over their mean.
    most_vertices: usize,
    most_edges: usize,
    imbalance: f64,
    /// Vertices of others that a rank aggregates: the mean over the graph's vertices, and the most.
    halo_share: f64,
    most_halo: usize,
    /// Of an exchange: of the rank that sends or receives most, and of all.
    most_sent_bytes: u64,
    most_received_bytes: u64,
    exchanged_bytes: u64,
    /// What times are made of: microseconds, and GB/s.
    alpha_us: f64,
    beta_gb_per_s: f64,
    /// Not measured: of an exchange of halos, and of a gather of all rows on each rank.
    modelled_exchange_ms: f64,
    modelled_all_gather_ms: f64,
    /// What ranks are given of one another: `halo` or `whole`.
    gather: &'static str,
}

impl<'a> Row<'a> {
    fn new(args: &ScaleArgs, label: &'a str, graph: &Graph, ranks: u32, balance: &Balance) -> Self {
        let precision = Precision::from(args.precision);
        let row_bytes = with_element!(precision, E => {
            (padded::<E>(args.features as usize) * size_of::<E>()) as u64
        });
        let most = |of: &[usize]| of.iter().max().copied().unwrap_or(0);
        let bytes_of = |rows: usize| rows as u64 * row_bytes;
        let all: usize = balance.halo.iter().sum();
        let vertices = graph.vertices();
        let (most_sent, most_received) = (most(&balance.sent), most(&balance.halo));
        let modelled = |bytes: f64| match ranks {
            1 => 0.0,
            _ => args.alpha * 1e-3 + bytes / (args.beta * 1e6),
        };
        // A rank receives what it has not.
        let others = vertices - balance.vertices.iter().min().copied().unwrap_or(0);
        Self {
            event: "scale",
            graph: label,
            vertices,
            edges: graph.edges(),
            ranks,
            partition: args.partition.display().to_string(),
            features: args.features,
            precision: precision.to_string(),
            most_vertices: most(&balance.vertices),
            most_edges: most(&balance.edges),
            imbalance: balance.imbalance(),
            halo_share: all as f64 / (f64::from(ranks) * vertices.max(1) as f64),
            most_halo: most_received,
            most_sent_bytes: bytes_of(most_sent),
            most_received_bytes: bytes_of(most_received),
            exchanged_bytes: bytes_of(all),
            alpha_us: args.alpha,
            beta_gb_per_s: args.beta,
            modelled_exchange_ms: modelled(bytes_of(most_sent.max(most_received)) as f64),
            modelled_all_gather_ms: modelled(bytes_of(others) as f64),
            gather: Gather::cheaper(all as u64, (ranks as usize, vertices)).name(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:<16} {:>6} ranks  {:>11} edges at most ({:.3} of the mean)  halo {:>5.1} % of all, {} received at most  exchange {:.3} ms \
             by the model, all-gather {:.3}; --gather auto takes {}",
            self.graph,
            self.ranks,
            count(self.most_edges),
            self.imbalance,
            100.0 * self.halo_share,
            bytes(self.most_received_bytes),
            self.modelled_exchange_ms,
            self.modelled_all_gather_ms,
            self.gather,
        )
    }
}

/// Partitions every graph that was asked for, to each number of ranks.
pub fn run(args: &ScaleArgs, stop: &AtomicBool) -> Result<(), Failure> {
    let mut json = graphs::json_lines(&args.graphs, args.json.as_deref())?;
    for name in &args.graphs {
        for opened in name.open() {
            let (label, graph) = opened?;
            for &ranks in &args.ranks {
                if stop.load(Ordering::Relaxed) {
                    return json.finish();
                }
                let refuse = |problem| {
                    let by = args.partition.display();
                    Failure::Input(format!("--partition {by}: {problem}"))
                };
                let partition = Partition::by_name(&args.partition, &graph, ranks as usize);
                let balance = partition.and_then(|partition| partition.balance(&graph));
                let row = Row::new(args, &label, &graph, ranks, &balance.map_err(refuse)?);
                if !json.is_stdout() {
                    Page::new(false).line(&row.line());
                }
                json.write(&row)?;
            }
        }
    }
    json.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ScaleArgs,
    }

    #[test]
    fn bytes_are_those_of_the_halos_and_times_the_models() {
        let line = [
            "x",
            "--graph",
            "kron:4",
            "--features",
            "41",
            "--alpha",
            "10",
            "--beta",
            "2",
        ];
        let args = Line::try_parse_from(line)
            .map(|line| line.args)
            .ok()
            .unwrap();
        // 0 and 1 aggregate each other and 2; 3 aggregates 0.
        let graph = Graph::from_edges(4, &[0, 1, 0, 1, 3], &[1, 0, 2, 2, 0]).unwrap();
        let partition = Partition::from_parts(vec![0, 0, 1, 1], 2).unwrap();
        let balance = partition.balance(&graph).unwrap();
        assert_eq!((&balance.halo, &balance.sent), (&vec![1, 1], &vec![1, 1]));
        let row = Row::new(&args, "x", &graph, 2, &balance);
        // Rows of 41 halves take the place of 48.
        assert_eq!(
            [
                row.most_sent_bytes,
                row.most_received_bytes,
                row.exchanged_bytes
            ],
            [96, 96, 192]
        );
        assert_eq!((row.most_edges, row.imbalance), (4, 1.6));
        assert_eq!(row.halo_share, 0.25);
        assert!((row.modelled_exchange_ms - (0.01 + 96.0 / 2e6)).abs() < 1e-12);
        assert!((row.modelled_all_gather_ms - (0.01 + 192.0 / 2e6)).abs() < 1e-12);
        assert_eq!(row.gather, "halo");
        let all_heard = Balance {
            halo: vec![2, 2],
            ..balance
        };
        assert_eq!(Row::new(&args, "x", &graph, 2, &all_heard).gather, "whole");
        for wrong in ["0", "-1", "nan", "inf", "x"] {
            assert!(positive(wrong).is_err(), "{wrong}");
        }
    }
}
