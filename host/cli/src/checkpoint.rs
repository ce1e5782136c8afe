//! Options that put a run aside and take it up again.

use crate::failure::Failure;
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::Dataset;
use halfgnn::file;
use halfgnn::nn::{Model, ModelConfig};
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, Progress, TrainConfig, Trainer};
use std::path::PathBuf;

/// What is kept of a run.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Keep the run in FILE (safetensors): at every best validation epoch, at the end, and at Ctrl-C
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub save: Option<PathBuf>,
    /// Keep it every N epochs instead of at the best ones
    #[arg(long, value_name = "N", requires = "save", value_parser = clap::value_parser!(u32).range(1..))]
    pub save_every: Option<u32>,
    /// Go on with the run in FILE, with the same bits as if it had never stopped; --epochs may give it more
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "layers", "recompute", "hidden", "dropout", "residual", "policy", "OwnOptions", "precision", "lr", "weight_decay", "seed", "seeds"])]
    pub resume: Option<PathBuf>,
}

impl CheckpointArgs {
    /// The run to go on with, if there is one; it must be one on `dataset`.
    pub fn open(&self, dataset: &Dataset) -> Result<Option<Checkpoint>, Failure> {
        let Some(path) = &self.resume else {
            return Ok(None);
        };
        let checkpoint = Checkpoint::open(path)?;
        checkpoint.check_task(path, dataset)?;
        Ok(Some(checkpoint))
    }

    /// Where and when to keep it; that it can be written there is found out now.
    pub fn saving(&self) -> Result<Option<Saving>, Failure> {
        let Some(path) = &self.save else {
            return Ok(None);
        };
        match file::WholeFile::create(path) {
            Ok(_) => Ok(Some(Saving {
                path: path.clone(),
                every: self.save_every,
            })),
            Err(error) => Err(Failure::Input(format!(
                "--save {}: cannot be written: {error}; name a file in a folder that can be",
                path.display()
            ))),
        }
    }
}

/// Where and when a run is kept.
#[derive(Clone, Debug)]
pub struct Saving {
    path: PathBuf,
    every: Option<u32>,
}

/// What does not change in the course of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What it is trained on.
    pub dataset: &'a Dataset,
    /// The model.
    pub model: &'a ModelConfig,
    /// Precision of state tensors.
    pub precision: Precision,
    /// How it is trained.
    pub train: &'a TrainConfig,
}

impl Saving {
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
        let checkpoint = Checkpoint {
            task: TaskIdentity::of(run.dataset),
            model: run.model.clone(),
            precision: run.precision,
            train: *run.train,
            snapshot: trainer.snapshot()?,
        };
        checkpoint.save(&self.path)?;
        let epoch = checkpoint.snapshot.progress.epoch;
        tracing::debug!(epoch, file = %self.path.display(), "kept the run");
        Ok(())
    }
}
