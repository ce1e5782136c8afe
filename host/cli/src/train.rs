//! `halfgnn train`.

mod plan;

use crate::args::{DeviceName, TrainArgs};
use crate::checkpoint::Saving;
use crate::curves::Curves;
use crate::dataset::source::SourceName;
use crate::events::{Event, Recorder};
use crate::failure::Failure;
use crate::launch;
use crate::outputs::Outputs;
use crate::placement::stays_on_disk;
use crate::ranks::InParts;
use crate::reorder::{Gathering, Ordering, ReorderName};
use crate::screen::{Page, bytes, count};
use crate::session::{Outcome, Plan, Session};
use crate::structure::may_be_reordered;
use crate::task::{Goal, TaskName};
use crate::types::{self, TypesOf};
use crate::watch::Watch;
use halfgnn::backend::MemoryKind;
use halfgnn::data::{
    Dataset, HalfRange, InfiniteFeatures, Origin, Preparation, Recipe, UNLABELLED,
};
use halfgnn::device;
use halfgnn::message::escaped;
use halfgnn::metrics::Metric;
use halfgnn::nn::{EdgeData, HiddenNorm, Jumping, LinkDecoder, ModelConfig};
use halfgnn::program::Explanation;
use halfgnn::tensor::Precision;
use halfgnn::train::{Split, Spread, Status, TrainConfig, Work};
use halfgnn::with_element;
use halfgnn_bench::room;
use plan::plan;
pub use plan::read_edges;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Prints the operators of a step over the whole graph.
fn explain(plan: &Plan, dataset: &Dataset) -> Result<(), Failure> {
    if let Some(types) = &dataset.types {
        let edges = types.edges().iter().map(|of| of.edges.edges());
        let edges: Vec<usize> = edges.collect();
        let explanation = Explanation::of_types(&plan.model, plan.precision, &edges)?;
        Page::new(false).line(&explanation);
        return Ok(());
    }
    let prepared = plan.model.prepare(&dataset.graph)?;
    let size = (prepared.vertices(), prepared.edges());
    let explanation = Explanation::new(&plan.model, plan.precision, size)?;
    let mut page = Page::new(false);
    page.line(&explanation);
    Ok(())
}

/// Trains, and says how it went.
pub fn run(args: &TrainArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    if let Some(devices) = &args.ranks.devices {
        return launch::run(devices, matches!(args.device, DeviceName::Auto));
    }
    args.ranks.check_key()?;
    // What one process shows and keeps, others need not.
    let follows = args.ranks.follows()?;
    let files = match follows {
        true => Files::default(),
        false => Files::open(args)?,
    };
    let (mut dataset, in_parts, temporary) = read(args)?;
    let reordering = reorder(args, &mut dataset)?;
    let (plan, changes) = plan(args, &mut dataset, (files.saving, in_parts), temporary)?;
    takes_edge_weights(&plan.model, &dataset)?;
    if let Some(divisors) = &plan.feature_divisors {
        let by = match plan.resume {
            Some(_) => Origin::Checkpoint,
            None => Origin::Option,
        };
        dataset.scale_features(divisors, by);
    }
    tell_use(&plan.model, &mut dataset);
    if args.explain {
        return explain(&plan, &dataset);
    }
    // What is there is overwritten from here on, and all that is read has been.
    let watch = match follows {
        true => Watch::default(),
        false => args.watch.open()?,
    };
    let mut recorder = Recorder::new(files.json, plan.train.epochs, stop)?;
    if follows {
        recorder.screen.silence();
    }
    recorder.draw(files.curves);
    recorder.follow(watch);
    recorder.screen.line(&describe(&dataset));
    reordering
        .iter()
        .for_each(|line| recorder.screen.line(line));
    say_plan(&mut recorder, &plan, &changes);
    warn_of_data(&plan, &dataset);
    recorder.record(&Event::start(&dataset, &plan));
    let session = Session {
        dataset: &dataset,
        plans: std::slice::from_ref(&plan),
        observer: &mut recorder,
    };
    let outcomes = device::open(args.device.into(), session)??;
    report(recorder, (&plan, &dataset), &outcomes)
}

/// What a run writes besides lines for a person.
#[derive(Default)]
struct Files<'a> {
    saving: Option<Saving>,
    curves: Option<Curves>,
    json: Option<&'a Path>,
}

impl<'a> Files<'a> {
    /// Those that the options name, checked against what is read.
    fn open(args: &'a TrainArgs) -> Result<Self, Failure> {
        let mut outputs = Outputs::new();
        outputs.reads_source(&args.dataset, &args.open);
        outputs.reads(
            "--partition",
            args.ranks.partition.as_deref().unwrap_or(Path::new("")),
        );
        let seeds = (args.seed, args.seeds);
        let saving = args.checkpoint.saving(seeds, &mut outputs)?;
        // A run that goes on may be kept where it was.
        if let Some(path) = &args.checkpoint.resume {
            outputs.reads("--resume", path);
        }
        let curves = args.plot.as_deref();
        let curves = curves.map(|path| Curves::new(path, &mut outputs));
        let curves = curves.transpose()?;
        args.watch.check(&mut outputs)?;
        let json = args.json.as_deref();
        outputs.stream("--json", json)?;
        Ok(Self {
            saving,
            curves,
            json,
        })
    }
}

/// The dataset or an outline of it, the parts that ranks read, and the folder of files for a while.
fn read(args: &TrainArgs) -> Result<(Dataset, Option<Arc<InParts>>, PathBuf), Failure> {
    // A run that goes on has the sampler that it had, which is known later.
    let resumes = args.checkpoint.resume.is_some();
    let may_batch = args.sampling.sampler.is_some() || resumes;
    let source = (&args.dataset, &args.open);
    let on_disk = stays_on_disk(args.placement.features, source, may_batch)?;
    let structure = args.edges.structure;
    let policy = (args.sampling.sampler.as_ref(), resumes);
    let edges_on_disk = structure.goes_to_disk(source, policy, on_disk)?;
    // Before the dataset is read.
    let temporary = args.temporary.folder(on_disk || edges_on_disk)?;
    let stays = (on_disk, edges_on_disk.then_some(&*temporary));
    check_memory(args)?;
    // In batches each rank has the whole dataset.
    let in_parts = match args.sampling.sampler {
        Some(_) => None,
        None => args.ranks.in_parts(&args.dataset, &args.open)?,
    };
    let dataset = match &in_parts {
        Some(in_parts) => args.open.outline(&in_parts.parted, &in_parts.table)?,
        None => args.open.dataset_of_types(&args.dataset, stays)?,
    };
    types::check_training(args, &dataset)?;
    let of_links = args.task.task == TaskName::Link || resumes;
    if dataset.outputs == 0 && !of_links {
        return Err(Failure::Input(format!(
            "{}: it has no labels, so that there is nothing to train on; give some {} labels, train on its links (--task link), or \
             predict with a model of another graph",
            dataset.name,
            dataset.members(),
        )));
    }
    Ok((dataset, in_parts, temporary))
}

/// That there is memory for a dataset that is made, and for training on it.
fn check_memory(args: &TrainArgs) -> Result<(), Failure> {
    let is_of_types = |recipe: &Recipe| recipe.has_types();
    if matches!(&args.dataset, SourceName::Made(recipe) if is_of_types(recipe)) {
        // Once it is made its graphs are counted.
        return Ok(());
    }
    if args.ranks.count()? > 1 {
        // Each rank checks its own part, once the graph is partitioned.
        return match &args.dataset {
            SourceName::Made(recipe) => room::for_recipe(recipe),
            _ => Ok(()),
        };
    }
    if args.checkpoint.resume.is_some() {
        return Ok(());
    }
    room::for_training(
        &args.dataset,
        args.device,
        room::Training {
            precision: args.precision.into(),
            work: Work::of_run(args.sampling.sampler.is_some()),
            features: args.placement.features.into(),
        },
        |demand| {
            let classes = args
                .task
                .embedding
                .map_or(demand.classes, |width| width as usize);
            // No recipe makes many graphs.
            let model = args.model.config(demand.features, classes)?;
            let defaults = TrainConfig::new(args.precision.into());
            let train = args.optimize.config(defaults, &model)?;
            Ok((model, train))
        },
    )
}

/// Renames the vertices as `--reorder` says; a line about the order.
fn reorder(args: &TrainArgs, dataset: &mut Dataset) -> Result<Option<String>, Failure> {
    let Some(order) = args.reorder else {
        return Ok(None);
    };
    may_be_reordered(dataset)?;
    if order == ReorderName::Auto && args.checkpoint.resume.is_some() {
        return Err(Failure::Input(
            "--reorder auto would decide anew, and a run that goes on wants the order that it had; say --reorder label-propagation \
             where its first lines did, and leave it out otherwise"
                .into(),
        ));
    }
    let ordering = Ordering {
        name: order,
        label: &dataset.name,
        graph: &dataset.graph,
        gathering: gathering(args, dataset)?,
    };
    let reordered = ordering.apply_on(args.device.into(), |order| dataset.reordered(order))?;
    let line = reordered.line;
    if let Some((reordered, _)) = reordered.what {
        *dataset = reordered;
        dataset.preparations.push(order.preparation());
    }
    Ok(Some(line))
}

/// Lines about what is to be trained, and about what `changes` in a run that goes on.
fn say_plan(recorder: &mut Recorder, plan: &Plan, changes: &[String]) {
    if let Some(ranks) = &plan.ranks {
        recorder.screen.line(&ranks.line());
    }
    if plan.model.hidden_norm != HiddenNorm::None {
        let norm = plan.model.hidden_norm;
        recorder
            .screen
            .line(&format_args!("a {norm} norm behind each hidden layer"));
    }
    if let Some(jumping) = plan.model.jumping {
        let what = match jumping {
            Jumping::Cat => "the outputs of all layers, side by side, go on to a last map",
            Jumping::Max => "the largest of all layers' outputs go on to a last map",
            Jumping::All => {
                "the features and the outputs of all layers, side by side, go on to a last map"
            }
        };
        recorder.screen.line(&what);
    }
    if plan.model.decoder != LinkDecoder::Dot {
        recorder.screen.line(&format_args!(
            "links are told by a decoder that learns, {}",
            plan.model.decoder
        ));
    }
    if !changes.is_empty() {
        let epoch = plan
            .resume
            .as_ref()
            .map_or(0, |kept| kept.snapshot.progress.epoch);
        recorder.screen.line(&format_args!(
            "from epoch {} on with {}",
            epoch + 1,
            changes.join(", ")
        ));
    }
    if let [first, .., last] = &plan.saved()[..] {
        recorder.screen.line(&format_args!(
            "each run is kept in a file of its own: {} to {}",
            first.display(),
            last.display()
        ));
    }
}

/// Warns of features that overflow, of classes without members and of splits without any.
fn warn_of_data(plan: &Plan, dataset: &Dataset) {
    let instead = match dataset.types {
        Some(_) => "features that are divided by their largest magnitude",
        None => "--scale-features, which divides each column by its largest magnitude",
    };
    warn_of_infinite(dataset, plan.precision, instead);
    if dataset.targets.classes().is_some() {
        warn_of_classes(dataset);
    }
    let members = dataset.members();
    for (what, of, split) in [
        (
            "validate",
            "the last epoch is kept instead of the best one",
            Split::Validation,
        ),
        ("test", "no test score is reported", Split::Test),
    ] {
        if members_of(&plan.goal, dataset, split) == 0 {
            let members = match plan.goal {
                Goal::Vertices { .. } => members,
                Goal::Links { .. } => "links",
            };
            tracing::warn!(
                "no {members} are left to {what}: {of}; for others, split otherwise, such as by {}",
                match plan.goal {
                    Goal::Vertices { .. } => "--split fractions:0.6,0.2",
                    Goal::Links { .. } => "--held-out 0.05,0.1",
                }
            );
        }
    }
}

/// Writes what came of the runs; an error where the last one diverged.
fn report(
    mut recorder: Recorder,
    (plan, dataset): (&Plan, &Dataset),
    outcomes: &[Outcome],
) -> Result<(), Failure> {
    for outcome in outcomes {
        print(&mut recorder, plan, outcome);
        recorder.record(&Event::summary(plan, outcome));
    }
    if let Some(curves) = recorder.take_curves() {
        curves.finish(
            &format!(
                "{} in {} on {}",
                plan.label.to_uppercase(),
                plan.precision,
                dataset.name
            ),
            plan.goal.loss(),
        )?;
    }
    recorder.finish()?;
    match outcomes.last().map(Outcome::status) {
        Some(Status::Diverged { since }) => Err(Failure::Run(format!(
            "the loss is not a finite number from epoch {since} on; lower --lr, or try --precision float"
        ))),
        _ => Ok(()),
    }
}

/// What a run gathers, which `--reorder auto` weighs an order against: a sum of each layer forward and one backward, an
/// epoch. What batches gather is sampled at random in any order, and many graphs keep theirs.
fn gathering(args: &TrainArgs, dataset: &Dataset) -> Result<Gathering, Failure> {
    let of_graphs = dataset.graphs.is_some();
    let outputs = dataset.outputs.max(1);
    let model = args
        .model
        .config_for(dataset.feature_len(), outputs, of_graphs)?;
    let precision: Precision = args.precision.into();
    // A quantized message is a byte an element, forward and backward.
    let bytes = match model.messages {
        Some(_) => 1,
        None => with_element!(precision, E => size_of::<E>()),
    };
    let epochs = args
        .epochs
        .unwrap_or(TrainConfig::new(precision).epochs)
        .saturating_mul(args.seeds);
    let sums = match args.sampling.sampler {
        None if !of_graphs => 2 * model.layers as u64 * u64::from(epochs),
        _ => 0,
    };
    Ok(Gathering {
        sums,
        row_bytes: (model.hidden * bytes) as u64,
    })
}

/// Vertices, graphs or links of a split.
fn members_of(goal: &Goal, dataset: &Dataset, split: Split) -> usize {
    match (goal, split) {
        (Goal::Links { split: links, .. }, _) => links.edges[split as usize].len(),
        (_, Split::Train) => dataset.train.len(),
        (_, Split::Validation) => dataset.val.len(),
        (_, Split::Test) => dataset.test.len(),
    }
}

/// That the model uses the weights of edges, where there are some.
pub fn takes_edge_weights(model: &ModelConfig, dataset: &Dataset) -> Result<(), Failure> {
    let edges = EdgeData::of_dataset(model, dataset);
    let read = model.expect_edges(&dataset.name, edges);
    read.map_err(Failure::Input)
}

/// Warns of features that are infinite in the precision of a model, from which nothing but NaN can come; `instead` is
/// the way out in half.
pub fn warn_of_infinite(dataset: &Dataset, precision: Precision, instead: &str) {
    if precision != Precision::Half {
        return;
    }
    if dataset.outline().is_some() || dataset.features.as_stored().is_some() {
        // Known of those that are not there without looking at each.
        let columns = dataset.column_magnitudes().unwrap_or_default();
        let columns = columns.iter();
        let infinite = columns.filter(|most| **most >= HalfRange::LEAST_INFINITE);
        let (count, most) = infinite.fold((0, 0.0_f32), |(count, largest), &most| {
            (count + 1, largest.max(most))
        });
        if count > 0 {
            tracing::warn!(
                "{count} columns have features that are infinite in half, which holds up to {}: the largest is {most}; take {instead}, or --precision bf16 or float",
                HalfRange::LARGEST,
            );
        }
        return;
    }
    let others = dataset.types.iter().flat_map(|types| {
        let others = (0..types.vertices().len()).filter(|of| *of != types.labelled());
        others.filter_map(|of| dataset.features_of_type(of))
    });
    let all = std::iter::once(&dataset.features).chain(others);
    for infinite in all.filter_map(InfiniteFeatures::of) {
        tracing::warn!(
            "{} features are infinite in half, which holds up to {}: the largest is {}, in column {} (from 0); take {instead}, or --precision bf16 or float",
            count(infinite.count),
            HalfRange::LARGEST,
            infinite.largest,
            infinite.column,
        );
    }
}

/// Warns of labels from which nothing can be learnt, or that were hardly meant.
fn warn_of_classes(dataset: &Dataset) {
    let sizes = class_sizes(dataset);
    let used = sizes.iter().filter(|&&size| size > 0).count();
    if used == 1 {
        tracing::warn!(
            "all labels are of one class, so that any model is right about all of them; there is nothing to learn"
        );
    }
    if used < sizes.len() {
        tracing::warn!("{}", empty_classes(&sizes));
    }
}

/// How many labelled vertices each class has.
pub fn class_sizes(dataset: &Dataset) -> Vec<usize> {
    let mut sizes = vec![0; dataset.outputs];
    for &label in dataset
        .targets
        .classes()
        .unwrap_or_default()
        .iter()
        .filter(|&&label| label != UNLABELLED)
    {
        sizes[label as usize] += 1;
    }
    sizes
}

/// That there are classes without vertices, and how that may have come about.
pub fn empty_classes(sizes: &[usize]) -> String {
    let empty = sizes.iter().filter(|&&size| size == 0).count();
    format!(
        "{} of {} classes have no vertex, and the model has an output for each; number the labels from 0 without gaps",
        count(empty),
        count(sizes.len())
    )
}

/// Takes note of what a model does with a dataset: the self-loops that it adds, the features of edges that it leaves
/// out.
pub fn tell_use(model: &ModelConfig, dataset: &mut Dataset) {
    let read = model.edge_features();
    let readers = match model.reads_edge_rows() {
        true => "messages",
        false => "the scores of attention",
    };
    for step in &mut dataset.preparations {
        match step.of {
            "edge features" if read > 0 && dataset.edge_features.is_some() => {
                let how = format!(
                    ", which {readers} have a term of; --ignore-edge-features leaves it out"
                );
                step.what.push_str(&how);
            }
            "edge features" if step.by == Origin::File => {
                step.what.push_str(", which the model does not use");
            }
            "edge weights" if read > 0 && dataset.edge_weights.is_some() => {
                step.what = step.what.replace(
                    "multiply what neighbours send",
                    &format!("are in {readers}, a term that is learnt"),
                );
            }
            _ => {}
        }
    }
    if let (Some(readout), Some(graphs)) = (model.readout, &dataset.graphs) {
        let what = format!(
            "the {readout} of the vertices of each of {}, in the rows that come before the logits",
            count(graphs.graphs())
        );
        dataset
            .preparations
            .push(Preparation::new("pooling", what, Origin::Model));
    }
    if !model.wants_self_loops() {
        return;
    }
    let added = dataset.without_loops();
    if added > 0 {
        let loops = Preparation::self_loops(added, Origin::Model);
        dataset.preparations.push(loops);
    }
}

/// One line on a dataset, and one on each thing that was done to it.
pub fn describe(dataset: &Dataset) -> String {
    let mut text = format!(
        "{}: {}{} vertices, {} edges (largest degree {}), {} features, {} {}; {} {} to train on, {} to validate, {} to test",
        dataset.name,
        match &dataset.graphs {
            Some(graphs) => format!("{} graphs, ", count(graphs.graphs())),
            None => String::new(),
        },
        count(match &dataset.types {
            Some(types) => types.vertex_count(),
            None => dataset.graph.vertices(),
        }),
        count(dataset.edges()),
        count(dataset.largest_degree() as usize),
        count(dataset.feature_len()),
        match dataset.outputs {
            0 => "no".into(),
            some => count(some),
        },
        dataset.targets.unit(),
        count(dataset.train.len()),
        dataset.members(),
        count(dataset.val.len()),
        count(dataset.test.len()),
    );
    for step in &dataset.preparations {
        let what = escaped(&step.what);
        text.push_str(&format!("\n  {:<12} {what} ({})", step.of, step.by.name()));
    }
    for (name, of) in TypesOf::new(dataset).iter().flat_map(TypesOf::lines) {
        text.push_str(&format!("\n  {name}: {of}"));
    }
    text
}

fn print(recorder: &mut Recorder, plan: &Plan, outcome: &Outcome) {
    let done = outcome.runs.len();
    let mut seeds = match plan.seeds {
        1 => format!("seed {}", plan.train.seed),
        all => format!("{done} of {all} seeds, mean ± standard deviation"),
    };
    if let (Status::Stopped, Some((_, run))) = (outcome.status(), outcome.runs.last()) {
        let epoch = run.last.map_or(0, |last| last.epoch);
        seeds.push_str(&format!(
            ", stopped at epoch {epoch} of {}",
            plan.train.epochs
        ));
    }
    let screen = &mut recorder.screen;
    screen.line(&format_args!(
        "\n{} in {} on {} ({seeds})",
        plan.label.to_uppercase(),
        plan.formats(),
        outcome.device
    ));
    let spread = |value: Spread, digits: usize| match done {
        _ if value.mean.is_nan() => "undefined".into(),
        0 | 1 => format!("{:.digits$}", value.mean),
        _ => format!("{:.digits$} ± {:.digits$}", value.mean, value.deviation),
    };
    let metric = outcome.metric();
    let unit_of = |metric: Metric| match metric.is_percent() {
        true => (" (%)", 2),
        false => ("", 4),
    };
    let (unit, digits) = unit_of(metric);
    let kept = match outcome.lacks_validation() {
        true => {
            screen.line(&format_args!(
                "  the validation {metric} is undefined in every epoch: the last epoch is kept"
            ));
            "last epoch"
        }
        false => "best validation epoch",
    };
    let mut row =
        |name: &str, value: String| screen.line(&format_args!("  {name:<50} {value:>18}"));
    row(
        &format!("test {metric}, {kept}{unit}"),
        spread(outcome.test_score(), digits),
    );
    if !outcome.lacks_validation() {
        row(
            &format!("test {metric}, last epoch{unit}"),
            spread(outcome.test_score_last(), digits),
        );
    }
    for (other, value) in outcome.others() {
        let (unit, digits) = unit_of(other);
        row(
            &format!("test {other}, {kept}{unit}"),
            spread(value, digits),
        );
    }
    row(
        "training step (ms an epoch)",
        spread(outcome.ms_per_epoch(), 2),
    );
    row("peak memory", bytes(outcome.memory.peak_total));
    for (kind, peak) in MemoryKind::ALL.into_iter().zip(outcome.memory.peak) {
        if peak > 0 || !kind.is_on_host() {
            row(&format!("  {kind}"), bytes(peak));
        }
    }
    if let Some(saturated) = outcome.saturated {
        let name = match outcome.skipped() {
            0 => "messages beyond their scales",
            _ => "messages beyond their scales, of skipped steps too",
        };
        row(name, saturated.to_string());
    }
    if outcome.skipped() > 0 {
        row(
            "steps skipped for an overflow",
            outcome.skipped().to_string(),
        );
    }
}
