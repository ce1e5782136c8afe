//! `halfgnn predict`: what a trained model says of the vertices of a graph.

mod pairs;
mod table;

use crate::args::DeviceName;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::placement::{
    Fetched, OnDisk, Placement, PlacementArgs, TempFolderArgs, WorkOn, may_be_sharded, place,
    place_types, stays_on_disk,
};
use crate::reorder::{Gathering, Ordering, ReorderName};
use crate::screen::{Page, count};
use crate::session::inputs;
use crate::structure::{GraphPlace, may_be_reordered};
use crate::task::take_targets_of;
use crate::train::{describe, tell_use, warn_of_infinite};
use crate::types;
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::{Dataset, FeatureRows, Features, Origin, Types, UNLABELLED, UploadFeatures};
use halfgnn::device::{self, Device, Task};
use halfgnn::file;
use halfgnn::graph::reorder::Permutation;
use halfgnn::nn::{EdgeData, Inputs, Mode, Model, ModelConfig, ModelTypes, Network};
use halfgnn::ops::BitMatrix;
use halfgnn::predict::{Kind, class};
use halfgnn::tensor::Element;
use halfgnn::train::{Checkpoint, Work, load_weights};
use halfgnn::with_element;
use halfgnn_bench::names::FeaturesName;
use pairs::Pairs;
use serde::Serialize;
use std::path::{Path, PathBuf};
use table::{OutputFormat, Predictions};

/// Options of `predict`.
#[derive(Args)]
pub struct PredictArgs {
    /// A checkpoint that `train --save` wrote; the weights of its best validation epoch are taken
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// A graph with as many features as the model was trained with: file, folder, name below HALFGNN_DATA, or recipe
    #[arg(long, value_name = "DATASET")]
    pub dataset: SourceName,
    #[command(flatten)]
    pub open: OpenArgs,
    /// Rename the vertices first, so that neighbours lie close together; what is written is in the order of the dataset
    #[arg(long, value_enum, value_name = "ORDER")]
    pub reorder: Option<ReorderName>,
    /// Where to write what is predicted, the class of each vertex, or of each graph of many, its labels as zeros and
    /// ones, or its values: a NumPy array of u32 (.npy), or a table of vertices and classes (.csv, or .parquet in a
    /// build with it), under the ids and names that the dataset's tables have
    #[arg(long, value_name = "FILE.npy|FILE.csv|FILE.parquet")]
    pub out: PathBuf,
    /// Write the logits instead, vertices x classes, as f32; in a table, a column for each class
    #[arg(long, group = "wanted")]
    pub logits: bool,
    /// Write the probability of each class instead, the softmax of the logits; of each label its own, the sigmoid of
    /// its logit
    #[arg(long, group = "wanted")]
    pub probabilities: bool,
    /// Write embeddings instead: what layer N gives, from 1, with its bias and activation
    #[arg(long, value_name = "N", group = "wanted", value_parser = clap::value_parser!(u32).range(1..))]
    pub layer: Option<u32>,
    /// Write the score of each pair of vertices of a table of two columns, .csv or .tsv, and the probability that they
    /// are linked, of a model of links; vertices under the ids of the dataset's tables, or numbered from 0
    #[arg(long, value_name = "FILE", group = "wanted")]
    pub pairs: Option<PathBuf>,
    /// Where to compute; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Where what is computed on lies
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Where the edges lie; auto puts those of a folder of parts on disk where they do not fit the host's memory
    #[arg(long, value_enum, value_name = "WHERE", default_value_t)]
    pub structure: GraphPlace,
    #[command(flatten)]
    pub temporary: TempFolderArgs,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// What a prediction gathers, which `--reorder auto` weighs an order against: a sum of each layer, once.
fn gathering(checkpoint: &Checkpoint, dataset: &Dataset) -> Gathering {
    let bytes = with_element!(checkpoint.precision, E => size_of::<E>());
    let sums = match dataset.graphs {
        None => checkpoint.model.layers as u64,
        Some(_) => 0,
    };
    Gathering {
        sums,
        row_bytes: (checkpoint.model.hidden * bytes) as u64,
    }
}

/// What was predicted.
#[derive(Debug, Serialize)]
struct Predicted<'a> {
    event: &'static str,
    dataset: &'a str,
    device: &'a str,
    vertices: usize,
    classes: usize,
    /// How many vertices each class was given.
    vertices_by_class: &'a [usize],
    /// The file, and whether logits are in it rather than classes.
    output: String,
    logits: bool,
    /// `classes`, `labels`, `values`, `logits`, `probabilities`, `embeddings` or `links`.
    written: &'static str,
    /// In how many pieces the graph was taken, where not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<usize>,
    /// The number of pairs of vertices that are predicted, where links are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<usize>,
    /// In percent; none where the dataset has no test vertices.
    test_accuracy: Option<f64>,
}

/// Predicts, and says how well where the classes are known.
pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new();
    outputs.reads("--model", &args.model);
    outputs.reads_source(&args.dataset, &args.open);
    args.pairs.iter().for_each(|pairs| {
        outputs.reads("--pairs", pairs);
    });
    outputs
        .file("--out", &args.out)?
        .stream("--json", args.json.as_deref())?;
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let checkpoint = crate::checkpoint::open_model(&args.model)?;
    let format = OutputFormat::of(&args.out)?;
    check_wanted(args, &checkpoint)?;
    let (mut dataset, between) = read(args, &checkpoint)?;
    let mut pairs = match &args.pairs {
        Some(path) => Some(Pairs::read(path, &dataset)?),
        None => None,
    };
    let labels = match checkpoint.links.is_some() {
        true => None,
        false => labels(&checkpoint, &dataset)?,
    };
    if let Some(divisors) = &checkpoint.feature_divisors {
        dataset.scale_features(divisors, Origin::Checkpoint);
    }
    warn_of_infinite(
        &dataset,
        checkpoint.precision,
        "a model trained with --scale-features",
    );
    tell_use(&checkpoint.model, &mut dataset);
    let (reordered, reordering) = reorder(args, &checkpoint, &mut dataset)?;
    page.line(&describe(&dataset));
    let rename = |vertex| match &reordered {
        Some((_, order)) => order.rename(vertex),
        None => vertex,
    };
    let prediction = Prediction {
        pairs: pairs.as_ref().map(|pairs| pairs.ends(rename)),
        checkpoint: &checkpoint,
        dataset: reordered.as_ref().map_or(&dataset, |(renamed, _)| renamed),
        layer: args.layer,
        placement: args.placement,
        between,
    };
    let (device, mut output) = device::open(args.device.into(), prediction)??;
    output.placement.lines().for_each(|line| page.line(&line));
    reordering.iter().for_each(|line| page.line(line));
    if let Some((_, order)) = reordered {
        output.restore(&order, checkpoint.model.classes);
    }
    let mut writing = Writing {
        args,
        checkpoint: &checkpoint,
        dataset: &dataset,
        device: &device,
        format,
        page: &mut page,
        json: &mut json,
    };
    match &mut pairs {
        Some(pairs) => writing.pairs(pairs, output)?,
        None => writing.rows(output, labels)?,
    }
    json.finish()
}

/// That the model gives what is asked for.
fn check_wanted(args: &PredictArgs, checkpoint: &Checkpoint) -> Result<(), Failure> {
    match (checkpoint.links.is_some(), &args.pairs, args.layer) {
        (true, None, None) => {
            return Err(Failure::Input(format!(
                "{}: its model tells links; say which by --pairs FILE, or take its embeddings by --layer {}, without --logits and --probabilities",
                args.model.display(),
                checkpoint.model.layers
            )));
        }
        (false, Some(_), _) => {
            return Err(Failure::Input(format!(
                "{}: --pairs is of models that tell links (train --task link), and this one tells something of vertices; leave it out",
                args.model.display()
            )));
        }
        _ => {}
    }
    if args.probabilities && !Kind::of(checkpoint).has_probabilities() {
        return Err(Failure::Input(format!(
            "{}: its model was trained by its {}, so that it gives numbers, which have no probabilities; leave --probabilities out",
            args.model.display(),
            checkpoint.loss.name()
        )));
    }
    Ok(())
}

/// The dataset, which has the features and the targets of the model; and the folder of files for a while.
fn read(args: &PredictArgs, checkpoint: &Checkpoint) -> Result<(Dataset, PathBuf), Failure> {
    // Evaluations are in pieces where features are on disk, so that they may be.
    let source = (&args.dataset, &args.open);
    let on_disk = stays_on_disk(args.placement.features, source, true)?;
    let edges_on_disk = args.structure.goes_to_disk(source, on_disk)?;
    let between = args.temporary.folder(on_disk || edges_on_disk)?;
    may_be_sharded(args.placement.features, 1, true)?;
    let stays = (on_disk, edges_on_disk.then_some(&*between));
    let mut dataset = args.open.dataset_of_types(&args.dataset, stays)?;
    types::check_prediction(args, &dataset)?;
    checkpoint
        .check_dataset(&dataset)
        .map_err(|reason| Failure::Input(format!("{}: {reason}", args.model.display())))?;
    if checkpoint.links.is_none() {
        take_targets_of(&checkpoint.loss, &mut dataset)?;
    }
    Ok((dataset, between))
}

/// A dataset whose vertices have other numbers, and which.
type Renamed = (Dataset, Permutation);

/// The dataset in the order that `--reorder` names, and a line about it.
fn reorder(
    args: &PredictArgs,
    checkpoint: &Checkpoint,
    dataset: &mut Dataset,
) -> Result<(Option<Renamed>, Option<String>), Failure> {
    let Some(name) = args.reorder else {
        return Ok((None, None));
    };
    may_be_reordered(dataset)?;
    let ordering = Ordering {
        name,
        label: &dataset.name,
        graph: &dataset.graph,
        gathering: gathering(checkpoint, dataset),
    };
    let found = ordering.apply_on(args.device.into(), |order| dataset.reordered(order))?;
    let preparation = found.what.as_ref().map(|_| name.preparation());
    dataset.preparations.extend(preparation);
    Ok((found.what, Some(found.line)))
}

/// Where predictions go.
struct Writing<'a> {
    args: &'a PredictArgs,
    checkpoint: &'a Checkpoint,
    dataset: &'a Dataset,
    device: &'a str,
    format: OutputFormat,
    page: &'a mut Page,
    json: &'a mut JsonLines,
}

impl Writing<'_> {
    /// Writes the scores of pairs.
    fn pairs(&mut self, pairs: &mut Pairs, output: Output) -> Result<(), Failure> {
        let in_pieces = output.in_pieces();
        pairs.take_scores(output.scores);
        self.file(&pairs.to_bytes(self.format, self.dataset.ids.as_ref())?)?;
        self.page.line(&format_args!(
            "scores and probabilities of {} pairs written to {}",
            count(pairs.len()),
            self.args.out.display()
        ));
        self.json.write(&Predicted {
            event: "prediction",
            dataset: &self.dataset.name,
            device: self.device,
            vertices: self.dataset.graph.vertices(),
            classes: self.checkpoint.model.classes,
            vertices_by_class: &[],
            output: self.args.out.display().to_string(),
            logits: false,
            written: "links",
            pairs: Some(pairs.len()),
            pieces: in_pieces,
            test_accuracy: None,
        })?;
        Ok(())
    }

    /// Writes a row for each vertex or graph, and says how many classes are right where `labels` are known.
    fn rows(&mut self, output: Output, labels: Option<Vec<u32>>) -> Result<(), Failure> {
        let (columns, in_pieces) = (self.checkpoint.model.classes, output.in_pieces());
        let classes: Vec<u32> = output.logits.chunks_exact(columns).map(class).collect();
        let (written, predictions) = self.predictions(output, &classes);
        // A layer before the readout gives a row for each vertex, also of many graphs.
        let (rows, dataset) = (predictions.rows(), self.dataset);
        let member = match rows == dataset.graph.vertices() && rows != dataset.targets.vertices() {
            true => ("vertex", "vertices"),
            false => (dataset.member(), dataset.members()),
        };
        self.file(&predictions.to_bytes(self.format, member.0, dataset.ids.as_ref())?)?;
        self.page.line(&format_args!(
            "{written} of {} {} written to {}",
            count(rows),
            member.1,
            self.args.out.display()
        ));
        let labels = labels.filter(|_| Kind::of(self.checkpoint) == Kind::Classes);
        let accuracy = labels.map(|labels| {
            let right = |&&vertex: &&u32| classes[vertex as usize] == labels[vertex as usize];
            let right = dataset.test.iter().filter(right).count();
            100.0 * right as f64 / dataset.test.len() as f64
        });
        if let Some(accuracy) = accuracy {
            self.page
                .line(&format_args!("test accuracy {accuracy:.2} %"));
        }
        let mut by_class = vec![0; columns];
        classes
            .iter()
            .for_each(|&class| by_class[class as usize] += 1);
        self.json.write(&Predicted {
            event: "prediction",
            dataset: &dataset.name,
            device: self.device,
            vertices: classes.len(),
            classes: columns,
            vertices_by_class: &by_class,
            output: self.args.out.display().to_string(),
            logits: self.args.logits,
            written,
            pieces: in_pieces,
            pairs: None,
            test_accuracy: accuracy,
        })?;
        Ok(())
    }

    /// What is written of an output, and what it is.
    fn predictions(&self, output: Output, classes: &[u32]) -> (&'static str, Predictions<'_>) {
        let (mut logits, columns) = (output.logits, self.checkpoint.model.classes);
        let kind = Kind::of(self.checkpoint);
        let (what, name, values, columns) = if self.args.logits {
            ("logits", "logit", logits, columns)
        } else if self.args.probabilities {
            kind.to_probabilities(&mut logits, columns);
            ("probabilities", "probability", logits, columns)
        } else if let Some((values, columns)) = output.embeddings {
            ("embeddings", "embedding", values, columns)
        } else if kind == Kind::Labels {
            // More likely than not.
            let has = |logit: &mut f32| *logit = f32::from(u8::from(*logit > 0.0));
            logits.iter_mut().for_each(has);
            ("labels", "label", logits, columns)
        } else if kind == Kind::Values {
            ("values", "value", logits, columns)
        } else {
            let names = self.checkpoint.task.class_names.as_deref();
            let classes = Predictions::Classes(classes.to_vec(), names);
            return ("classes", classes);
        };
        let predictions = Predictions::Numbers {
            values,
            columns,
            name,
        };
        (what, predictions)
    }

    fn file(&self, bytes: &[u8]) -> Result<(), Failure> {
        let out = &self.args.out;
        file::write(out, bytes).map_err(|error| Failure::Run(cannot_write(out, &error)))
    }
}

/// The class of each vertex in the model's numbers, where the dataset has classes and vertices to test on.
fn labels(checkpoint: &Checkpoint, dataset: &Dataset) -> Result<Option<Vec<u32>>, Failure> {
    let Some(labels) = dataset.targets.classes() else {
        return Ok(None);
    };
    if dataset.test.is_empty() {
        return Ok(None);
    }
    // Tables number their names by themselves, and another may have others.
    let (Some(own), Some(names)) = (&checkpoint.task.class_names, &dataset.class_names) else {
        return Ok(Some(labels.to_vec()));
    };
    let number = |name: &String| {
        let found = own.iter().position(|other| other == name);
        found.map(|class| class as u32).ok_or_else(|| {
            Failure::Input(format!(
                "{}: its class '{name}' is none that the model was trained on, {}",
                dataset.name,
                own.join(", ")
            ))
        })
    };
    let numbers = names.iter().map(number).collect::<Result<Vec<u32>, _>>()?;
    let renumbered = labels.iter().map(|&label| {
        let number = numbers.get(label as usize).copied();
        number.unwrap_or(UNLABELLED)
    });
    Ok(Some(renumbered.collect()))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!(
        "--out {}: cannot be written: {error}; name a file in a folder that can be",
        path.display()
    )
}

/// What a forward pass gave, row-major.
struct Output {
    placement: Placement,
    logits: Vec<f32>,
    /// What the layer that was asked for gave, and its columns.
    embeddings: Option<(Vec<f32>, usize)>,
    /// Of the pairs that were asked for.
    scores: Vec<f32>,
}

impl Output {
    /// Pieces, where the graph was not taken whole.
    fn in_pieces(&self) -> Option<usize> {
        let pieces = self.placement.pieces;
        (pieces > 1).then_some(pieces)
    }

    /// Puts rows in the order that the dataset has them in.
    fn restore(&mut self, order: &Permutation, classes: usize) {
        self.logits = order.restore(&self.logits, classes);
        if let Some((values, width)) = &mut self.embeddings {
            *values = order.restore(values, *width);
        }
    }
}

/// A forward pass, on a device that is not known before the program runs.
struct Prediction<'a> {
    checkpoint: &'a Checkpoint,
    dataset: &'a Dataset,
    /// The layer whose output is wanted as well, from 1.
    layer: Option<u32>,
    /// The pairs whose scores are wanted as well.
    pairs: Option<Vec<[u32; 2]>>,
    /// Where what is computed on may lie.
    placement: PlacementArgs,
    /// The folder for what layers give, with features on disk.
    between: PathBuf,
}

/// What a forward pass reads of the features.
enum Read<B: Backend, E: Element> {
    Signs(BitMatrix<B>),
    Rows(FeatureRows<B, E>),
}

impl Task for Prediction<'_> {
    type Output = Result<(String, Output), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let output = with_element!(self.checkpoint.precision, E => self.output::<B, E>(device));
        Ok((device.backend.name(), output?))
    }
}

impl Prediction<'_> {
    fn output<B: Backend, E: Element>(&self, device: &Device<B>) -> Result<Output, Failure> {
        // What is not trained has nothing to make again, and a layer that is asked for keeps what it gives.
        let config = &ModelConfig {
            recompute: false,
            ..self.checkpoint.model.clone()
        };
        let backend = &device.backend;
        if let (Some(own), Some(types)) = (&config.types, &self.dataset.types) {
            return self.output_of_types::<B, E>(device, config, (own, types));
        }
        let graph = config.prepare_edges(
            &self.dataset.graph,
            EdgeData::of_dataset(config, self.dataset),
        )?;
        let graphs = self.dataset.graphs.as_ref();
        let stored = self.dataset.features.as_stored();
        let on_disk = |features| OnDisk {
            features,
            between: &self.between,
        };
        let of = WorkOn {
            prepared: &graph,
            graphs,
            fetched: stored.map(|stored| Fetched::Disk(on_disk(stored))),
            asked_for: None,
        };
        let work = match self.placement.features {
            // All of them, from there.
            FeaturesName::Host => Work::Evaluation,
            _ => Work::of_prediction::<E>(config, &self.dataset.features)?,
        };
        let how = (config, &self.checkpoint.train, work);
        let (placement, pieces) = place::<B, E>(of, how.into(), device, self.placement)?;

        let mut model = self.model::<B, E>(backend, config)?;
        let read = match (&self.dataset.features, work, &pieces) {
            (Features::Bits(bits), Work::EvaluationOfSigns, None) => {
                Read::Signs(model.signs_of_bits(backend, bits)?)
            }
            _ => Read::Rows(self.dataset.feature_rows(backend, placement.features)?),
        };
        let whole = match pieces {
            None => Some(graph.propagation::<B, E>(backend, config)?),
            Some(_) => None,
        };
        let graphs = &inputs(backend, config, self.dataset, whole)?;
        match (&read, &pieces) {
            (Read::Signs(signs), _) => model.evaluate_signs(backend, graphs, signs)?,
            (Read::Rows(features), Some(pieces)) => {
                let wanted = self.layer.map(|layer| layer as usize - 1);
                model.forward_in_pieces(backend, features, pieces, wanted.as_slice())?;
            }
            (Read::Rows(features), None) => {
                let inputs = Inputs {
                    backend,
                    graphs,
                    features: features.matrix(),
                    of_types: &[],
                    dropped: false,
                };
                model.forward(inputs, Mode::Evaluate)?;
            }
        }
        self.read_output(backend, placement, &model)
    }

    /// The model with its trained weights.
    fn model<B: Backend, E: Element>(
        &self,
        backend: &B,
        config: &ModelConfig,
    ) -> Result<Network<B, E>, Failure> {
        let mut model = Network::<B, E>::new(backend, config, 0)?;
        load_weights(backend, &mut model, &self.checkpoint.snapshot.tensors)?;
        model.freeze(backend)?;
        if self.layer.is_some() {
            model.keep_activations();
        }
        Ok(model)
    }

    /// The same of several types of vertices and edges.
    fn output_of_types<B: Backend, E: Element>(
        &self,
        device: &Device<B>,
        config: &ModelConfig,
        (own, types): (&ModelTypes, &Types),
    ) -> Result<Output, Failure> {
        let (backend, dataset) = (&device.backend, self.dataset);
        let how = (config, &self.checkpoint.train, Work::Evaluation);
        let placement = place_types::<B, E>(dataset, how.into(), device, self.placement)?;
        let mut model = self.model::<B, E>(backend, config)?;
        let inputs = Inputs {
            backend,
            graphs: &ModelTypes::graphs(backend, types, config.norm())?,
            features: &dataset.upload_features(backend)?,
            of_types: &own.features(backend, dataset)?,
            dropped: false,
        };
        model.forward(inputs, Mode::Evaluate)?;
        self.read_output(backend, placement, &model)
    }

    /// What is wanted of a pass.
    fn read_output<B: Backend, E: Element>(
        &self,
        backend: &B,
        placement: Placement,
        model: &Network<B, E>,
    ) -> Result<Output, Failure> {
        let embeddings = match self.layer {
            None => None,
            Some(layer) if layer as usize > model.depth() => {
                return Err(Failure::Input(format!(
                    "--layer {layer}: the model has {} layers, from 1",
                    model.depth()
                )));
            }
            Some(layer) => {
                let output = model.activations(layer as usize - 1)?;
                Some((output.to_f32(backend)?, output.columns()))
            }
        };
        let scores = match &self.pairs {
            Some(pairs) => model.score_pairs(backend, pairs)?,
            None => Vec::new(),
        };
        Ok(Output {
            placement,
            scores,
            logits: model.logits().to_f32(backend)?,
            embeddings,
        })
    }
}
