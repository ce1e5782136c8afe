//! `halfgnn demo`: why discretized reduction, on a graph with hubs.

use crate::args::DemoArgs;
use crate::events::{Event, Recorder};
use crate::failure::Failure;
use crate::feature_cache::FeatureCache;
use crate::placement::PlacementArgs;
use crate::screen::bytes;
use crate::session::{Outcome, Plan, Session};
use crate::structure::StructureName;
use crate::task::Goal;
use crate::train::describe;
use halfgnn::data::Dataset;
use halfgnn::device;
use halfgnn::nn::{Gcn, ModelConfig, Norm};
use halfgnn::ops::{Accumulate, Scaling, SpmmPolicy};
use halfgnn::tensor::Precision;
use halfgnn::train::{Status, TrainConfig};
use halfgnn_bench::names::FeaturesName;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The sums of frameworks: a row is added up in half, and divided by its degree when that is done.
const PLAIN: SpmmPolicy = SpmmPolicy {
    scaling: Scaling::PostReduction,
    accumulate: Accumulate::Half,
    ..SpmmPolicy::DEFAULT
};

/// Trains the same model three times and compares.
pub fn run(args: &DemoArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut recorder = Recorder::new(args.json.as_deref(), args.epochs, stop)?;
    let dataset = Dataset::synthetic().map_err(|error| Failure::Input(error.to_string()))?;
    let plan = |label, precision, policy| Plan {
        label,
        precision,
        model: ModelConfig {
            policy,
            convolution: Gcn { norm: Norm::Right }.into(),
            ..ModelConfig::gcn(dataset.feature_len(), dataset.outputs)
        },
        ranks: None,
        sampling: None,
        placement: PlacementArgs {
            features: FeaturesName::Device,
            ..PlacementArgs::default()
        },
        between: std::env::temp_dir(),
        feature_cache: FeatureCache::None,
        structure: StructureName::Device,
        goal: Goal::default(),
        feature_divisors: None,
        train: TrainConfig {
            epochs: args.epochs,
            ..TrainConfig::new(precision)
        },
        seeds: 1,
        saving: None,
        resume: None,
    };
    let plans = [
        plan("discretized half", Precision::Half, SpmmPolicy::default()),
        plan("float", Precision::Float, SpmmPolicy::default()),
        plan("plain half", Precision::Half, PLAIN),
    ];
    recorder.screen.line(&describe(&dataset));
    let session = Session {
        dataset: &dataset,
        plans: &plans,
        observer: &mut recorder,
    };
    let outcomes = device::open(args.device.into(), session)??;

    let screen = &mut recorder.screen;
    let device = outcomes
        .first()
        .map_or("", |outcome| outcome.device.as_str());
    screen.line(&format_args!(
        "\nGCN, 2 layers of 64, {} epochs, mean of the neighbours, on {device}\n\
         {:<18} {:>15} {:>12} {:>14}  what happened",
        args.epochs, "", "test accuracy", "ms an epoch", "peak memory"
    ));
    for (plan, outcome) in plans.iter().zip(&outcomes) {
        screen.line(&format_args!(
            "{:<18} {:>14.2}% {:>12.1} {:>14}  {}",
            plan.label,
            outcome.test_score_last().mean,
            outcome.ms_per_epoch().mean,
            bytes(outcome.memory.peak_total),
            what_happened(outcome),
        ));
    }
    if let [half, float, plain] = &outcomes[..] {
        screen.line(&explain(half, float, plain));
    }
    for (plan, outcome) in plans.iter().zip(&outcomes) {
        recorder.record(&Event::summary(plan, outcome));
    }
    recorder.finish()
}

fn what_happened(outcome: &Outcome) -> String {
    match outcome.status() {
        Status::Diverged { since } => format!("the loss is not a number from epoch {since} on"),
        Status::Stopped => "stopped".into(),
        Status::Finished | Status::EarlyStopped => {
            match outcome.runs.last().and_then(|(_, run)| run.last) {
                Some(last) => format!(
                    "loss {:.3}, {} steps skipped",
                    last.loss, last.optimizer.skipped
                ),
                None => "no epoch".into(),
            }
        }
    }
}

fn explain(half: &Outcome, float: &Outcome, plain: &Outcome) -> String {
    let accuracy = |outcome: &Outcome| outcome.test_score_last().mean;
    format!(
        "\nA hub sums up 24,000 neighbours. Added up in half and divided afterwards, such a sum leaves the range of half \
         (65,504), or stops growing long before, and the mean is wrong wherever the hub is heard: {:+.2} points \
         against float.\n\
         Discretized reduction divides after every batch of edges and merges batches in float: {:+.2} points against \
         float, in {:.0} % of its memory.",
        accuracy(plain) - accuracy(float),
        accuracy(half) - accuracy(float),
        100.0 * half.memory.peak_total as f64 / float.memory.peak_total.max(1) as f64,
    )
}
