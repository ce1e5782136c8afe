//! Training on a device that is not known before the program runs.

use crate::checkpoint::{Run, Saving};
use crate::failure::Failure;
use halfgnn::backend::{Backend, MemoryReport};
use halfgnn::data::{Dataset, UploadFeatures};
use halfgnn::device::{Device, Task};
use halfgnn::graph::GraphCounts;
use halfgnn::nn::{ModelConfig, Network, Propagation, kept_as};
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{
    Checkpoint, EpochReport, Footprint, Objective, RunSummary, Spread, Status, TrainConfig, Trainer,
};
use halfgnn::with_element;

use std::ops::ControlFlow;
use std::path::PathBuf;

/// What to train, and how: one model shape, with one or more seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What a person calls it.
    pub label: &'static str,
    /// Precision of state tensors.
    pub precision: Precision,
    /// The model.
    pub model: ModelConfig,
    /// What the columns of the dataset's features were divided by, where they were.
    pub feature_divisors: Option<Vec<f32>>,
    /// How it is trained; the seed is that of the first run.
    pub train: TrainConfig,
    /// Number of runs.
    pub seeds: u32,
    /// Where the run is kept.
    pub saving: Option<Saving>,
    /// The run to go on with.
    pub resume: Option<Checkpoint>,
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

impl Plan {
    /// What a person calls it, and the precision where that does not tell it.
    pub fn title(&self) -> String {
        let precision = self.precision.to_string();
        if self.label.split(' ').any(|word| word == precision) {
            self.label.into()
        } else {
            format!("{} {precision}", self.label)
        }
    }

    /// The files in which the runs are kept.
    pub fn saved(&self) -> Vec<PathBuf> {
        let saving = self.saving.iter();
        saving
            .flat_map(|saving| saving.paths(self.train.seed, self.seeds))
            .collect()
    }
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
    type Output = Result<Vec<Outcome>, Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let mut outcomes = Vec::new();
        for plan in self.plans {
            let outcome = with_element!(plan.precision, E => {
                carry_out::<B, E>(device, self.dataset, plan, self.observer)
            })?;
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
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Outcome, Failure> {
    let backend = &device.backend;
    let config = &plan.model;
    for (tensor, kept) in kept_as(plan.precision) {
        tracing::info!("kept in {kept}: {tensor}");
    }
    let weights = dataset.edge_weights.as_deref();
    let (graph, weights) = config.prepare_weighted(&dataset.graph, weights)?;
    let norm = config.norm();
    let counts = GraphCounts::of(&graph).weighted(weights.is_some());
    Footprint::check_training::<E>(
        &counts,
        config,
        &plan.train,
        device.multiprocessors,
        device.memory,
    )?;

    backend.reset_peak();
    let objective = Objective::new(
        backend,
        Propagation::of_graph::<E>(backend, &graph, weights.as_deref(), norm)?,
        dataset.upload_features(backend)?,
        dataset.class_labels()?,
        dataset.outputs,
        [&dataset.train, &dataset.val, &dataset.test],
    )?;
    let device_name = backend.name();
    let mut runs = Vec::new();
    for seed in (0..plan.seeds).map(|run| plan.train.seed.wrapping_add(run.into())) {
        observer.run_starts(plan, &device_name, seed);
        let train = TrainConfig { seed, ..plan.train };
        let model = Network::<B, E>::new(backend, config, seed)?;
        let mut trainer = Trainer::new(backend, &objective, model, train)?;
        if let Some(checkpoint) = &plan.resume {
            trainer.restore(&checkpoint.snapshot)?;
        }
        let keep = |trainer: &Trainer<B, E, _>, saving: &Saving| {
            let run = Run {
                dataset,
                model: config,
                feature_divisors: plan.feature_divisors.as_deref(),
                precision: plan.precision,
                train: &train,
            };
            saving.keep(run, trainer)
        };
        let (mut stopped, mut kept) = (false, None);
        while let Some(report) = trainer.next_epoch()? {
            if let Some(saving) = &plan.saving
                && saving.is_due(trainer.progress())
            {
                keep(&trainer, saving)?;
                kept = Some(report.epoch);
            }
            if observer.epoch(plan, seed, &report).is_break() {
                stopped = true;
                break;
            }
        }
        if let Some(saving) = &plan.saving
            && kept != Some(trainer.progress().epoch)
        {
            keep(&trainer, saving)?;
        }
        let run = trainer.summary();
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
