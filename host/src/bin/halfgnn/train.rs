//! `halfgnn train`.

use crate::args::{DatasetName, TrainArgs};
use crate::events::{Event, Recorder};
use crate::failure::Failure;
use crate::screen::{bytes, count};
use crate::session::{Outcome, Plan, Session};
use halfgnn::backend::{MemoryKind, SpmmPolicy};
use halfgnn::data::Dataset;
use halfgnn::device;
use halfgnn::nn::Norm;
use halfgnn::train::{Spread, Status};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Trains, and tells how it went.
pub fn run(args: &TrainArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut recorder = Recorder::new(args.json.as_deref(), args.epochs, stop)?;
    let dataset = open_dataset(&args.dataset)?;
    let plan = Plan {
        label: args.model.as_str(),
        precision: args.precision.into(),
        policy: SpmmPolicy::default(),
        norm: Norm::Both,
        layers: args.layers as usize,
        hidden: args.hidden as usize,
        dropout: args.dropout,
        epochs: args.epochs,
        learning_rate: args.lr,
        weight_decay: args.weight_decay,
        seed: args.seed,
        seeds: args.seeds,
    };
    recorder.screen.line(&describe(&dataset));
    recorder.record(&Event::start(&dataset, &plan));
    let session = Session {
        dataset: &dataset,
        plans: std::slice::from_ref(&plan),
        observer: &mut recorder,
    };
    let outcomes = device::open(args.device.into(), session)??;
    for outcome in &outcomes {
        print(&mut recorder, &plan, outcome);
        recorder.record(&Event::summary(&plan, outcome));
    }
    recorder.finish()?;
    match outcomes.last().map(Outcome::status) {
        Some(Status::Diverged { since }) => Err(Failure::Run(format!(
            "the loss is not a finite number from epoch {since} on; lower --lr, or try --precision float"
        ))),
        _ => Ok(()),
    }
}

/// Opens or makes the dataset that was asked for.
pub fn open_dataset(name: &DatasetName) -> Result<Dataset, Failure> {
    let input = |error: halfgnn::data::DataError| Failure::Input(error.to_string());
    match name {
        DatasetName::Synthetic => Dataset::synthetic().map_err(input),
        DatasetName::File(path) => Dataset::open(path).map_err(input),
    }
}

/// One line on a dataset.
pub fn describe(dataset: &Dataset) -> String {
    format!(
        "{}: {} vertices, {} edges (largest degree {}), {} features, {} classes; {} vertices to train on, {} to validate, {} to test",
        dataset.name,
        count(dataset.graph.vertices()),
        count(dataset.graph.edges()),
        count(dataset.graph.degree_stats().max() as usize),
        count(dataset.feature_len()),
        count(dataset.classes),
        count(dataset.train.len()),
        count(dataset.val.len()),
        count(dataset.test.len()),
    )
}

fn print(recorder: &mut Recorder, plan: &Plan, outcome: &Outcome) {
    let done = outcome.runs.len();
    let mut seeds = match plan.seeds {
        1 => format!("seed {}", plan.seed),
        all => format!("{done} of {all} seeds, mean ± standard deviation"),
    };
    if let (Status::Stopped, Some((_, run))) = (outcome.status(), outcome.runs.last()) {
        let epoch = run.last.map_or(0, |last| last.epoch);
        seeds.push_str(&format!(", stopped at epoch {epoch} of {}", plan.epochs));
    }
    let screen = &mut recorder.screen;
    screen.line(&format_args!(
        "\n{} in {} on {} ({seeds})",
        plan.label.to_uppercase(),
        plan.precision,
        outcome.device
    ));
    let spread = |value: Spread, digits: usize| match done {
        0 | 1 => format!("{:.digits$}", value.mean),
        _ => format!("{:.digits$} ± {:.digits$}", value.mean, value.deviation),
    };
    let mut row =
        |name: &str, value: String| screen.line(&format_args!("  {name:<40} {value:>18}"));
    row(
        "test accuracy, best validation epoch (%)",
        spread(outcome.test_accuracy(), 2),
    );
    row(
        "test accuracy, last epoch (%)",
        spread(outcome.test_accuracy_last(), 2),
    );
    row(
        "training step (ms an epoch)",
        spread(outcome.ms_per_epoch(), 2),
    );
    row("peak memory", bytes(outcome.memory.peak_total));
    for (kind, peak) in MemoryKind::ALL.into_iter().zip(outcome.memory.peak) {
        row(&format!("  {kind}"), bytes(peak));
    }
    if outcome.skipped() > 0 {
        row(
            "steps skipped for an overflow",
            outcome.skipped().to_string(),
        );
    }
}
