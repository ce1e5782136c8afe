//! What a run is to be, of the options that were given and of the run that it goes on from.

use super::members_of;
use crate::args::TrainArgs;
use crate::checkpoint::Saving;
use crate::failure::Failure;
use crate::model::ModelName;
use crate::placement::{PieceCount, may_be_sharded, whole_from_disk};
use crate::ranks::InParts;
use crate::sampling;
use crate::session::Plan;
use crate::structure::check_on_disk;
use crate::task::Goal;
use halfgnn::data::Dataset;
use halfgnn::nn::{ModelConfig, ModelTypes};
use halfgnn::sample::{Sampling, SamplingPolicy};
use halfgnn::tensor::Precision;
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, Split, TrainConfig};
use halfgnn_bench::names::FeaturesName;
use std::path::PathBuf;
use std::sync::Arc;

/// What was asked for, or what the run that goes on was, and in words what it is otherwise from here on.
pub(super) fn plan(
    args: &TrainArgs,
    dataset: &mut Dataset,
    (saving, in_parts): (Option<Saving>, Option<Arc<InParts>>),
    between: PathBuf,
) -> Result<(Plan, Vec<String>), Failure> {
    if args.checkpoint.resume.is_some() && args.task.is_given() {
        return Err(Failure::Input(
            "--resume goes on with the task and the metrics of the run; leave the options of the task out".into(),
        ));
    }
    let (resume, goal, known) = match args.checkpoint.open(dataset)? {
        Some((checkpoint, goal, task)) => (Some(checkpoint), goal, Some(task)),
        None => (None, args.task.goal(dataset, args.seed)?, None),
    };
    // Before features are scaled.
    let saving = saving.map(|saving| (saving, known.unwrap_or_else(|| TaskIdentity::of(dataset))));
    let dataset = &*dataset;
    let Learning {
        precision,
        model,
        mut train,
        feature_divisors,
    } = match &resume {
        Some(checkpoint) => Learning::of_checkpoint(checkpoint),
        None => Learning::of_options(args, dataset, &goal)?,
    };
    let sampling = match &resume {
        Some(checkpoint) => checkpoint.sampling.clone(),
        None => args.sampling.sampling(dataset.graphs.is_some())?,
    };
    check(args, dataset, (&goal, &model), sampling.as_ref())?;
    let changes = change(args, resume.is_some(), &mut train);
    let is_asked = resume.is_none() || args.early_stopping.is_some();
    if let Some(what) = train.follows_validation().filter(|_| is_asked)
        && members_of(&goal, dataset, Split::Validation) == 0
    {
        return Err(Failure::Input(format!(
            "{}: {what} follows the validation score, and nothing is left to validate; leave it out, or split otherwise, such as by \
             --split fractions:0.6,0.2",
            dataset.name
        )));
    }
    let plan = Plan {
        label: ModelName::label(&model.convolution),
        precision,
        model,
        goal,
        ranks: args.ranks.deal(dataset, in_parts, sampling.is_some())?,
        sampling,
        placement: args.placement,
        between,
        feature_cache: args.cache.feature_cache,
        structure: args.edges.structure,
        feature_divisors,
        train,
        seeds: args.seeds,
        saving,
        resume,
    };
    Ok((plan, changes))
}

/// What learns, and how.
struct Learning {
    precision: Precision,
    model: ModelConfig,
    train: TrainConfig,
    feature_divisors: Option<Vec<f32>>,
}

impl Learning {
    fn of_checkpoint(checkpoint: &Checkpoint) -> Self {
        Self {
            precision: checkpoint.precision,
            model: checkpoint.model.clone(),
            train: checkpoint.train,
            feature_divisors: checkpoint.feature_divisors.clone(),
        }
    }

    fn of_options(args: &TrainArgs, dataset: &Dataset, goal: &Goal) -> Result<Self, Failure> {
        let precision = args.precision.into();
        let mut model = args.model.config_for(
            dataset.feature_len(),
            goal.outputs(dataset),
            dataset.graphs.is_some(),
        )?;
        // None is given where no links are predicted.
        model.decoder = args.task.decoder();
        model.types = ModelTypes::of(dataset);
        // A sampled batch has no numbers of edges: weights are refused, and features are said to be unused.
        let sampling = args.sampling.sampling(dataset.graphs.is_some())?;
        if sampling.is_none_or(|sampling| sampling.policy == SamplingPolicy::Graphs) {
            read_edges(&mut model, dataset);
        }
        let defaults = args.task.measure(TrainConfig::new(precision))?;
        let train = TrainConfig {
            seed: args.seed,
            ..args.optimize.config(defaults, &model)?
        };
        let refused = |problem| Failure::Input(format!("--scale-features: {problem}"));
        let feature_divisors = match args.scale_features {
            true => Some(dataset.column_magnitudes().map_err(refused)?),
            false => None,
        };
        Ok(Self {
            precision,
            model,
            train,
            feature_divisors,
        })
    }
}

/// Has a model read the numbers of each edge and the degrees of vertices, where it can.
/// For edges, `tell_use` and `takes_edge_weights` say whether it does.
pub fn read_edges(model: &mut ModelConfig, dataset: &Dataset) {
    let features = dataset.edge_features.as_ref();
    let weights = usize::from(dataset.edge_weights.is_some());
    model.read_edge_features(weights + features.map_or(0, |features| features.columns()));
    model.read_degrees(&dataset.graph);
}

/// That what was asked for fits together.
fn check(
    args: &TrainArgs,
    dataset: &Dataset,
    (goal, model): (&Goal, &ModelConfig),
    sampling: Option<&Sampling>,
) -> Result<(), Failure> {
    if let Some(sampling) = sampling {
        sampling::check(sampling, goal, model, dataset)?;
    }
    if sampling.is_none() && dataset.features.as_stored().is_some() {
        return Err(whole_from_disk());
    }
    let of_vertices = sampling.is_some_and(|sampling| sampling.policy != SamplingPolicy::Graphs);
    may_be_sharded(args.placement.features, args.ranks.count()?, of_vertices)?;
    args.cache.feature_cache.check(of_vertices)?;
    let policy = sampling.map(|sampling| &sampling.policy);
    args.edges.structure.check(policy)?;
    let inductive = matches!(
        goal,
        Goal::Vertices {
            inductive: true,
            ..
        }
    );
    if inductive && model.binary.is_some() {
        return Err(Failure::Input(
            "--binary normalises features over all vertices, and --inductive shows training some of them; leave one of them out".into(),
        ));
    }
    check_on_disk(dataset, (policy, inductive))?;
    args.ranks.check(&[
        ("--task link", matches!(goal, Goal::Links { .. })),
        ("--inductive", inductive && policy.is_none()),
        ("--binary", model.binary.is_some()),
        (
            "--sampler saint-… or cluster:…",
            policy.is_some_and(|policy| policy.subgraphs().is_some()),
        ),
        (
            "--features host",
            args.placement.features == FeaturesName::Host && policy.is_none(),
        ),
        (
            "--features disk",
            args.placement.features == FeaturesName::Disk,
        ),
        (
            "--pieces",
            args.placement.pieces != PieceCount::Auto && policy.is_none(),
        ),
        (
            "--hidden-norm pair or graph",
            model.hidden_norm.wants_whole_graphs() && policy != Some(&SamplingPolicy::Graphs),
        ),
    ])
}

/// Changes how a run goes on, or how one that begins ends; in words what is otherwise than it was.
fn change(args: &TrainArgs, resumes: bool, train: &mut TrainConfig) -> Vec<String> {
    let mut changes = Vec::new();
    if resumes {
        changes = args.optimize.change(train);
        if let Some(epochs) = args.epochs.filter(|epochs| *epochs != train.epochs) {
            changes.push(format!(
                "{epochs} epochs in all instead of {}",
                train.epochs
            ));
        }
    }
    train.epochs = args.epochs.unwrap_or(train.epochs);
    train.early_stopping = args.early_stopping.or(train.early_stopping);
    // Also of a process that does not keep them itself: all ranks are given the same.
    train.keep_best = args.checkpoint.save.is_some();
    changes
}
