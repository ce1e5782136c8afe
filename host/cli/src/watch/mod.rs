//! What follows a run while it goes on: a table, TensorBoard's event files, a chart on the terminal.

mod chart;
mod table;
mod tensorboard;

use crate::failure::Failure;
use crate::outputs::Outputs;
use chart::Chart;
use clap::Args;
use halfgnn::train::{EpochReport, Score, Split};
use std::path::PathBuf;
use table::Table;
use tensorboard::EventFiles;

/// What follows a run.
#[derive(Args, Default)]
pub struct WatchArgs {
    /// Write a row of numbers an epoch to FILE, in the file when the epoch is done
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write TensorBoard's event files, a folder a run below DIR
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Draw loss and metric on the terminal while they come
    #[arg(long)]
    pub watch: bool,
}

/// What [`WatchArgs`] asked for, open.
#[derive(Debug, Default)]
pub struct Watch {
    table: Option<Table>,
    events: Option<EventFiles>,
    chart: Option<Chart>,
}

impl WatchArgs {
    /// Adds its files to the outputs.
    pub fn check(&self, outputs: &mut Outputs) -> Result<(), Failure> {
        outputs.stream("--csv", self.csv.as_deref())?;
        if let Some(folder) = &self.tensorboard {
            outputs.folder("--tensorboard", folder)?;
        }
        Ok(())
    }

    /// Opens files, before the first step and after everything was read.
    pub fn open(&self) -> Result<Watch, Failure> {
        Ok(Watch {
            table: self.csv.as_deref().map(Table::create).transpose()?,
            events: self
                .tensorboard
                .as_deref()
                .map(EventFiles::below)
                .transpose()?,
            chart: self.watch.then(Chart::default),
        })
    }
}

impl Watch {
    /// Whether there is a chart to show.
    pub fn draws(&self) -> bool {
        self.chart.is_some()
    }

    /// A run of `model` begins.
    pub fn run_starts(&mut self, model: &str, seed: u64) -> Result<(), Failure> {
        if let Some(chart) = &mut self.chart {
            *chart = Chart::default();
        }
        match &mut self.events {
            Some(events) => events.run_starts(model, seed),
            None => Ok(()),
        }
    }

    /// Leaves the chart out, where there is no terminal.
    pub fn without_chart(mut self) -> Self {
        self.chart = None;
        self
    }

    /// An epoch is done. Gives the chart with it, where there is one.
    pub fn epoch(
        &mut self,
        model: &str,
        seed: u64,
        report: &EpochReport,
    ) -> Result<Option<String>, Failure> {
        if let Some(table) = &mut self.table {
            table.epoch(model, seed, report)?;
        }
        if let Some(events) = &mut self.events {
            events.epoch(report)?;
        }
        if let Some(chart) = &mut self.chart {
            chart.add(report);
        }
        Ok(self.chart())
    }

    /// The chart as it is, which is left standing when a run ends.
    pub fn chart(&self) -> Option<String> {
        self.chart.as_ref().map(Chart::to_string)
    }
}

/// The splits, as the fields of an event call them.
const SPLITS: [(&str, Split); 3] = [
    ("train", Split::Train),
    ("validation", Split::Validation),
    ("test", Split::Test),
];

/// The metric that chooses the best epoch, and the others.
fn scores(report: &EpochReport) -> impl Iterator<Item = Score> {
    std::iter::once(report.score).chain(report.others.iter())
}
