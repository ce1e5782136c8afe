//! Options that put a run aside and take it up again.

use crate::failure::Failure;
use crate::outputs::Outputs;
use crate::task::{Goal, hold_out, take_targets_of};
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::Dataset;
use halfgnn::nn::{Model, ModelConfig};
use halfgnn::sample::Sampling;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, Loss, Progress, TrainConfig, Trainer};
use std::path::{Path, PathBuf};

/// Files that one command keeps at most.
const MOST_KEPT: u32 = 10_000;

/// What is kept of a run.
#[derive(Args)]
pub struct CheckpointArgs {
    /// Keep the run in FILE (safetensors): at every best validation epoch, at the end, and at Ctrl-C; without a
    /// validation score the last epoch is kept. With --seeds, each run has a file of its own, whose name has the seed
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
    /// The run to go on with, if there is one, what it is to predict, and of which task: that of `dataset`.
    pub fn open(
        &self,
        dataset: &mut Dataset,
    ) -> Result<Option<(Checkpoint, Goal, TaskIdentity)>, Failure> {
        let Some(path) = &self.resume else {
            return Ok(None);
        };
        let checkpoint = open_model(path)?;
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
        let task = TaskIdentity::of(dataset);
        checkpoint.check_task(path, &task)?;
        if checkpoint.task.digest.is_none() {
            tracing::warn!(
                "--resume {}: an earlier release wrote it, without digests of the data, so features, edges, labels and splits of {} are not compared",
                path.display(),
                dataset.name
            );
        }
        Ok(Some((checkpoint, goal, task)))
    }

    /// Where and when to keep runs of as many seeds from the first on, whose files are among the outputs then.
    pub fn saving(
        &self,
        (first, seeds): (u64, u32),
        outputs: &mut Outputs,
    ) -> Result<Option<Saving>, Failure> {
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
            outputs.file("--save", &path)?;
        }
        Ok(Some(saving))
    }
}

/// Opens a checkpoint. Where it is not there, and runs of several seeds are under that name, they are named.
pub fn open_model(path: &Path) -> Result<Checkpoint, Failure> {
    let seeds = match path.exists() {
        true => Vec::new(),
        false => of_seeds(path),
    };
    match seeds.as_slice() {
        [] => Ok(Checkpoint::open(path)?),
        [first, others @ ..] => Err(Failure::Input(format!(
            "{}: there is no such file, but {}{}: --seeds keeps each run in a file of its own; name one of them",
            path.display(),
            first.display(),
            match others {
                [] => String::new(),
                [.., last] => format!(" and {} more, to {}", others.len(), last.display()),
            }
        ))),
    }
}

/// The files that `--seeds` with `--save path` has written, by their seeds.
fn of_seeds(path: &Path) -> Vec<PathBuf> {
    let saving = Saving {
        path: path.to_owned(),
        every: None,
        numbered: true,
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let names = entries.into_iter().flatten().flatten();
    let seed = |name: String| -> Option<u64> {
        let (_, rest) = name.rsplit_once(".seed-")?;
        let digits = rest.split('.').next()?;
        digits.parse().ok()
    };
    let mut seeds: Vec<u64> = names
        .filter_map(|entry| seed(entry.file_name().to_string_lossy().into_owned()))
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    let files = seeds.into_iter().map(|seed| saving.path_of(seed));
    files.filter(|file| file.exists()).collect()
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
    pub task: &'a TaskIdentity,
    /// The model.
    pub model: &'a ModelConfig,
    /// What columns of features were divided by.
    pub feature_divisors: Option<&'a [f32]>,
    /// What it is to report.
    pub goal: &'a Goal,
    /// How it is cut into batches.
    pub sampling: Option<&'a Sampling>,
    /// Precision of state tensors.
    pub precision: Precision,
    /// How it is trained.
    pub train: &'a TrainConfig,
}

impl Saving {
    /// The files of runs of a number of seeds from the first on.
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
            task: run.task.clone(),
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
