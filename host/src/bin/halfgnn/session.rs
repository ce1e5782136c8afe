//! Training on a device that is not known before the program runs.

use half::f16;
use halfgnn::Error;
use halfgnn::backend::{AdamHyper, Backend, MemoryKind, MemoryReport, SpmmPolicy};
use halfgnn::data::Dataset;
use halfgnn::device::{Device, Task};
use halfgnn::graph::Graph;
use halfgnn::nn::{Gcn, GcnConfig, Norm, Propagation};
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{
    EpochReport, Footprint, Objective, RunSummary, Spread, Status, TrainConfig, Trainer,
};

use std::ops::ControlFlow;

/// What to train, and how: one model shape, with one or more seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What a person calls it.
    pub label: &'static str,
    /// Precision of state tensors.
    pub precision: Precision,
    /// How aggregations sum up.
    pub policy: SpmmPolicy,
    /// Degree norm.
    pub norm: Norm,
    /// Number of layers.
    pub layers: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// Dropout probability.
    pub dropout: f32,
    /// Steps of a run.
    pub epochs: u32,
    /// Learning rate.
    pub learning_rate: f32,
    /// L2 penalty.
    pub weight_decay: f32,
    /// Seed of the first run.
    pub seed: u64,
    /// Number of runs.
    pub seeds: u32,
}

/// What came of a [`Plan`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The device's name.
    pub device: String,
    /// Memory of the device at its peak.
    pub memory: MemoryReport,
    /// The runs, each with its seed.
    pub runs: Vec<(u64, RunSummary)>,
}

impl Outcome {
    /// Test accuracy at the best validation epoch.
    pub fn test_accuracy(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.test_accuracy()))
    }

    /// Test accuracy at the last epoch.
    pub fn test_accuracy_last(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.test_accuracy_last()))
    }

    /// Milliseconds of a training step.
    pub fn ms_per_epoch(&self) -> Spread {
        Spread::of(self.runs.iter().map(|(_, run)| run.ms_per_epoch))
    }

    /// How the last run ended.
    pub fn status(&self) -> Status {
        self.runs
            .last()
            .map_or(Status::Stopped, |(_, run)| run.status)
    }

    /// Steps that were skipped for an overflow, in all runs.
    pub fn skipped(&self) -> u32 {
        self.runs
            .iter()
            .filter_map(|(_, run)| run.last)
            .map(|last| last.optimizer.skipped)
            .sum()
    }
}

/// Who follows a session.
pub trait Observer {
    /// A run begins.
    fn run_starts(&mut self, plan: &Plan, device: &str, seed: u64);
    /// An epoch is done; may end the session.
    fn epoch(&mut self, plan: &Plan, seed: u64, report: &EpochReport) -> ControlFlow<()>;
    /// A run is done.
    fn run_ends(&mut self, plan: &Plan, seed: u64, run: &RunSummary);
}

/// Plans that are carried out one after the other on one device.
pub struct Session<'a> {
    /// The labelled graph.
    pub dataset: &'a Dataset,
    /// What to train.
    pub plans: &'a [Plan],
    /// Who follows.
    pub observer: &'a mut dyn Observer,
}

impl Task for Session<'_> {
    type Output = Result<Vec<Outcome>, Error>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let graph = self.dataset.graph.with_self_loops()?;
        let mut outcomes = Vec::new();
        for plan in self.plans {
            let outcome = match plan.precision {
                Precision::Half => {
                    carry_out::<B, f16>(device, self.dataset, &graph, plan, self.observer)
                }
                Precision::Float => {
                    carry_out::<B, f32>(device, self.dataset, &graph, plan, self.observer)
                }
            }?;
            let stopped = outcome.status() == Status::Stopped;
            outcomes.push(outcome);
            if stopped {
                break;
            }
        }
        Ok(outcomes)
    }
}

fn carry_out<B: Backend, E: Element>(
    device: &Device<B>,
    dataset: &Dataset,
    graph: &Graph,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let backend = &device.backend;
    let config = GcnConfig {
        features: dataset.feature_len(),
        hidden: plan.hidden,
        classes: dataset.classes,
        layers: plan.layers,
        dropout: plan.dropout,
        policy: plan.policy,
    };
    let mut footprint = Footprint::of_task::<E>(graph, plan.norm, dataset.feature_len());
    let (activations, weights) = Gcn::<B, E>::bytes(graph.vertices(), &config);
    footprint.add(MemoryKind::Activations, activations);
    footprint.add(MemoryKind::Weights, weights);
    footprint.check(device.memory)?;

    backend.reset_peak();
    let objective = Objective::new(
        backend,
        Propagation::new(backend, graph, plan.norm)?,
        dataset.upload_features(backend)?,
        &dataset.labels,
        dataset.classes,
        [&dataset.train, &dataset.val, &dataset.test],
    )?;
    let device_name = backend.name();
    let mut runs = Vec::new();
    for seed in (0..plan.seeds).map(|run| plan.seed.wrapping_add(run.into())) {
        observer.run_starts(plan, &device_name, seed);
        let train = TrainConfig {
            epochs: plan.epochs,
            adam: AdamHyper {
                learning_rate: plan.learning_rate,
                weight_decay: plan.weight_decay,
                ..AdamHyper::default()
            },
            seed,
            ..TrainConfig::new(plan.precision)
        };
        let model = Gcn::<B, E>::new(backend, graph.vertices(), config.clone(), seed)?;
        let mut stopped = false;
        let run = Trainer::new(backend, &objective, model, train)?.run(|report| {
            let flow = observer.epoch(plan, seed, report);
            stopped |= flow.is_break();
            flow
        })?;
        observer.run_ends(plan, seed, &run);
        runs.push((seed, run));
        if stopped {
            break;
        }
    }
    Ok(Outcome {
        device: device_name,
        memory: backend.memory(),
        runs,
    })
}
