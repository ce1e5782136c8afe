//! Options that put a run aside and take it up again.

use crate::failure::Failure;
use crate::task::{Goal, hold_out, take_targets_of};
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::Dataset;
use halfgnn::file;
use halfgnn::nn::{Model, ModelConfig};
use halfgnn::sample::Sampling;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, Loss, Progress, TrainConfig, Trainer};
use std::path::PathBuf;

/// Files that one command keeps at most.
const MOST_KEPT: u32 = 10_000;

/// What is kept of a run.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Keep the run in FILE (safetensors): at every best validation epoch, at the end, and at Ctrl-C; with --seeds, each in a
    /// file of its own, whose name tells the seed
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Keep it every N epochs instead of at the best ones
    #[arg(long, value_name = "N", requires = "save", value_parser = clap::value_parser!(u32).range(1..))]
    pub save_every: Option<u32>,
    /// Go on with the run in FILE, with the same bits as if it had never stopped; --epochs may give it more, and --lr,
    /// --weight-decay, --schedule, --warmup, --clip-norm and --clip-value change what they say from there on
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "layers", "recompute", "hidden", "dropout", "residual", "activation", "hidden_norm", "jumping", "messages", "store", "binary", "policy", "pool", "OwnOptions", "scale_features", "precision", "optimizer", "momentum", "nesterov", "sampler", "batch", "coverage", "seed", "seeds"])]
    pub resume: Option<PathBuf>,
}

impl CheckpointArgs {
    /// The run to go on with, if there is one, and what it is to tell; it must be one on `dataset`.
    pub fn open(&self, dataset: &mut Dataset) -> Result<Option<(Checkpoint, Goal)>, Failure> {
        let Some(path) = &self.resume else {
            return Ok(None);
        };
        let checkpoint = Checkpoint::open(path)?;
        if checkpoint.model.binary.is_some() && !checkpoint.can_go_on() {
            return Err(Failure::Input(format!(
                "--resume {}: it has the weights to predict with alone; name the checkpoint that train --save wrote",
                path.display()
            )));
        }
        let goal = match checkpoint.links {
            Some(links) => hold_out(dataset, links, checkpoint.model.classes)?,
            None => {
                take_targets_of(&checkpoint.loss, dataset)?;
                Goal::Vertices {
                    loss: checkpoint.loss.clone(),
                    inductive: checkpoint.inductive,
                }
            }
        };
        checkpoint.check_task(path, dataset)?;
        Ok(Some((checkpoint, goal)))
    }

    /// Where and when to keep runs of so many seeds from the first on; that they can be written is found out now.
    pub fn saving(&self, first: u64, seeds: u32) -> Result<Option<Saving>, Failure> {
        let Some(path) = &self.save else {
            return Ok(None);
        };
        if seeds > MOST_KEPT {
            return Err(Failure::Input(format!(
                "--save keeps a file for each of {seeds} seeds; take at most {MOST_KEPT} at a time"
            )));
        }
        let saving = Saving {
            path: path.clone(),
            every: self.save_every,
            numbered: seeds > 1,
        };
        for path in saving.paths(first, seeds) {
            file::WholeFile::create(&path).map_err(|error| {
                Failure::Input(format!(
                    "--save {}: cannot be written: {error}; name a file in a folder that can be",
                    path.display()
                ))
            })?;
        }
        Ok(Some(saving))
    }
}

/// Where and when a run is kept.
#[derive(Clone, Debug)]
pub struct Saving {
    path: PathBuf,
    every: Option<u32>,
    /// Whether the names of the files have the seed.
    numbered: bool,
}

/// What does not change in the course of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What it is trained on.
    pub dataset: &'a Dataset,
    /// The model.
    pub model: &'a ModelConfig,
    /// What columns of features were divided by.
    pub feature_divisors: Option<&'a [f32]>,
    /// What it is to tell.
    pub goal: &'a Goal,
    /// How it is cut into batches.
    pub sampling: Option<&'a Sampling>,
    /// Precision of state tensors.
    pub precision: Precision,
    /// How it is trained.
    pub train: &'a TrainConfig,
}

impl Saving {
    /// The files of runs of so many seeds from the first on.
    pub fn paths(&self, first: u64, seeds: u32) -> impl Iterator<Item = PathBuf> {
        (0..seeds).map(move |run| self.path_of(first.wrapping_add(run.into())))
    }

    /// The file of a seed: of `run.safetensors`, `run.seed-3.safetensors` where there are several.
    fn path_of(&self, seed: u64) -> PathBuf {
        if !self.numbered {
            return self.path.clone();
        }
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!(".seed-{seed}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// Whether it is time to keep a run, after an epoch that is not the last.
    pub fn is_due(&self, progress: &Progress) -> bool {
        match self.every {
            Some(every) => progress.epoch.is_multiple_of(every),
            None => progress
                .best
                .is_some_and(|best| best.epoch == progress.epoch),
        }
    }

    /// Keeps the run of `trainer`.
    pub fn keep<B: Backend, E: Element, M: Model<B, E>>(
        &self,
        run: Run<'_>,
        trainer: &Trainer<B, E, M>,
    ) -> Result<(), Failure> {
        let (loss, inductive, links) = match run.goal {
            Goal::Vertices { loss, inductive } => (loss.clone(), *inductive, None),
            Goal::Links { split, .. } => {
                let loss = Loss::BinaryCrossEntropy {
                    positive_weights: None,
                };
                (loss, false, Some(split.held_out))
            }
        };
        let checkpoint = Checkpoint {
            loss,
            inductive,
            links,
            sampling: run.sampling.cloned(),
            task: TaskIdentity::of(run.dataset),
            model: run.model.clone(),
            precision: run.precision,
            train: *run.train,
            feature_divisors: run.feature_divisors.map(<[f32]>::to_vec),
            snapshot: trainer.snapshot()?,
        };
        let path = self.path_of(run.train.seed);
        checkpoint.save(&path)?;
        let epoch = checkpoint.snapshot.progress.epoch;
        tracing::debug!(epoch, file = %path.display(), "kept the run");
        Ok(())
    }
}
