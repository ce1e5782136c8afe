//! Rows as a person and as JSON read them, and what comes of all of them.

use super::measure::Times;
use super::peers::{CUSPARSE, GATHER, PeerTime};
use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::json::JsonLines;
use crate::screen::{Page, count, rate};
use halfgnn::graph::Graph;
use halfgnn::tensor::Precision;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// One timed operator, with the baselines of the same run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The operator.
    pub event: &'static str,
    pub graph: String,
    pub device: String,
    pub vertices: usize,
    pub edges: usize,
    pub features: u32,
    pub precision: String,
    pub policy: String,
    #[serde(flatten)]
    pub times: Times,
    /// Bytes of each edge's indices and rows, over the time.
    pub gathered_tb_per_s: f64,
    /// Largest |error| over Σ|terms| on the rows that were checked.
    pub largest_error: f64,
    /// What else was timed on this graph and feature length.
    pub peers: Vec<PeerTime>,
    /// How many times faster than each peer: `cusparse half`, `cusparse float`, `cusparse` (the better of the two) …
    pub speedup: BTreeMap<String, f64>,
    /// Time over the bound: reading indices and rows, and writing the result as fast as a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_bound: Option<f64>,
}

impl Row {
    /// Computes how many times faster it is than each of its baselines.
    pub fn compare(&mut self) {
        let mut best = f64::INFINITY;
        // The bound is nothing that could be picked instead.
        for peer in self.peers.iter().filter(|peer| peer.peer != GATHER) {
            let ratio = peer.times.ms / self.times.ms;
            self.speedup
                .insert(format!("{} {}", peer.peer, peer.precision), ratio);
            if peer.peer == CUSPARSE {
                best = best.min(ratio);
            }
        }
        if best.is_finite() {
            self.speedup.insert(CUSPARSE.into(), best);
        }
    }
}

/// What was chosen from the graph and the GPU, compared with the best of what was forced.
#[derive(Clone, Debug, Serialize)]
pub struct Choice<'a> {
    /// `choice`.
    pub event: &'static str,
    pub operator: &'static str,
    pub graph: &'a str,
    pub features: u32,
    pub precision: String,
    /// The policy whose choice it was.
    pub policy: String,
    pub best_forced: String,
    /// Its time over that of the best.
    pub over_best: f64,
}

/// Fills a table, which also goes to `json`, with what `time` adds to it of every graph, and reports what comes of all
/// of them.
///
/// # Errors
/// Those of [`graphs::each`], and of writing.
pub fn of_graphs(
    names: &[GraphName],
    json: Option<&Path>,
    mut time: impl FnMut(&str, &Graph, &mut Table<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut json = graphs::json_lines(names, json)?;
    let mut table = Table::new(&mut json);
    graphs::each(names, |label, graph| time(label, &graph, &mut table))?;
    table.summarise()?;
    json.finish()
}

/// All rows of a command.
pub struct Table<'a> {
    json: &'a mut JsonLines,
    rows: Vec<Row>,
}

impl<'a> Table<'a> {
    /// A table whose rows also go to `json`.
    pub fn new(json: &'a mut JsonLines) -> Self {
        Self {
            json,
            rows: Vec::new(),
        }
    }

    /// A line that is not a row.
    pub fn say(&self, line: &str) {
        Page::new(self.json.is_stdout()).line(&line);
    }

    /// Reports what is no time, in a line for a person.
    pub fn tell(&mut self, line: &str, event: &impl Serialize) -> Result<(), Failure> {
        if !self.json.is_stdout() {
            Page::new(false).line(&line);
        }
        Ok(self.json.write(event)?)
    }

    /// Adds a row and shows it.
    pub fn push(&mut self, mut row: Row) -> Result<(), Failure> {
        row.compare();
        if !self.json.is_stdout() {
            let mut line = format!(
                "{:<16} {:>11} edges  F={:<4} {:<5} {:<24} {:>9.4} ms ({:.4} to {:.4})  {:>11} gathered  error {:.1e}",
                row.graph,
                count(row.edges),
                row.features,
                row.precision,
                row.policy,
                row.times.ms,
                row.times.ms_fastest,
                row.times.ms_slowest,
                rate(row.gathered_tb_per_s),
                row.largest_error,
            );
            for (peer, ratio) in &row.speedup {
                line += &format!("  {ratio:.2}x {peer}");
            }
            if let Some(over) = row.over_bound {
                line += &format!("  {over:.2} of the bound");
            }
            Page::new(false).line(&line);
        }
        self.json.write(&row)?;
        self.rows.push(row);
        Ok(())
    }

    /// Shows how good a choice was.
    pub fn choice(&mut self, choice: &Choice<'_>) -> Result<(), Failure> {
        self.say(&format!(
            "{} F={} {} {}: what was chosen takes {:.2} of the time of the best forced, {}",
            choice.graph,
            choice.features,
            choice.precision,
            choice.policy,
            choice.over_best,
            choice.best_forced,
        ));
        Ok(self.json.write(choice)?)
    }

    /// Shows a baseline's time.
    pub fn peer(&self, graph: &str, features: u32, peer: &PeerTime) {
        self.say(&format!(
            "{graph:<16} {:>17}  F={features:<4} {:<5} {:<24} {:>9.4} ms ({:.4} to {:.4})",
            "",
            peer.precision,
            match peer.algorithm {
                Some(algorithm) => format!("{} {algorithm}", peer.peer),
                None => peer.peer.into(),
            },
            peer.times.ms,
            peer.times.ms_fastest,
            peer.times.ms_slowest,
        ));
    }

    /// Shows the geometric mean and the worst of each ratio over the graphs, where there are several.
    pub fn summarise(&mut self) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Summary {
            event: &'static str,
            operator: &'static str,
            precision: String,
            policy: String,
            features: u32,
            against: String,
            graphs: usize,
            geometric_mean: f64,
            worst: f64,
        }
        let mut ratios: BTreeMap<(String, String, u32, String), Vec<f64>> = BTreeMap::new();
        for row in &self.rows {
            for (peer, &ratio) in &row.speedup {
                let key = (
                    row.precision.clone(),
                    row.policy.clone(),
                    row.features,
                    peer.clone(),
                );
                ratios.entry(key).or_default().push(ratio);
            }
        }
        for ((precision, policy, features, against), ratios) in ratios {
            if ratios.len() < 2 {
                continue;
            }
            let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            let summary = Summary {
                event: "speedup",
                operator: self.rows[0].event,
                precision,
                policy,
                features,
                against,
                graphs: ratios.len(),
                geometric_mean: (logs / ratios.len() as f64).exp(),
                worst: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            };
            self.say(&format!(
                "{} {} {} F={}: {:.2}x {} in the geometric mean of {} graphs, {:.2}x on the worst",
                summary.operator,
                summary.precision,
                summary.policy,
                summary.features,
                summary.geometric_mean,
                summary.against,
                summary.graphs,
                summary.worst,
            ));
            self.json.write(&summary)?;
        }
        Ok(())
    }
}

/// The precisions in which baselines are timed in any case: a user may choose either.
pub const PRECISIONS: [Precision; 2] = [Precision::Half, Precision::Float];
