//! `halfgnn predict`: what a trained model says of the vertices of a graph.

use crate::args::DeviceName;
use crate::dataset::source::{OpenArgs, SourceName};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::reorder::ReorderName;
use crate::screen::Page;
use crate::task::take_targets_of;
use crate::train::{describe, takes_edge_weights, tell_self_loops, warn_of_infinite};
use clap::Args;
use halfgnn::backend::Backend;
use halfgnn::data::{Dataset, Origin, UploadFeatures};
use halfgnn::device::{self, Device, Task};
use halfgnn::file;
use halfgnn::graph::GraphCounts;
use halfgnn::nn::{Inputs, Mode, Model, Network, Propagation};
use halfgnn::tensor::Element;
use halfgnn::train::{Checkpoint, Footprint, Loss, load_weights};
use halfgnn::with_element;
use serde::Serialize;
use std::path::{Path, PathBuf};

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
    /// Where to write what is predicted, the class of each vertex: a NumPy array of u32 (.npy), or lines of `vertex,class` under
    /// these names (.csv)
    #[arg(long, value_name = "FILE.npy|FILE.csv")]
    pub out: PathBuf,
    /// Write the logits instead, vertices x classes, as f32; in a .csv, a column for each class
    #[arg(long)]
    pub logits: bool,
    /// Where to compute; auto takes a CUDA card if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
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
    /// In percent; none where the dataset has no test vertices.
    test_accuracy: Option<f64>,
}

/// What predictions are written as.
#[derive(Clone, Copy)]
enum OutputFormat {
    Npy,
    Csv,
}

impl OutputFormat {
    /// What the name of a file asks for.
    fn of(path: &Path) -> Result<Self, Failure> {
        let is = |wanted: &str| {
            path.extension()
                .is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
        };
        if is("npy") {
            Ok(Self::Npy)
        } else if is("csv") {
            Ok(Self::Csv)
        } else {
            Err(Failure::Input(format!(
                "--out {}: the name tells no format; end it in .npy for a NumPy array, or in .csv",
                path.display()
            )))
        }
    }
}

/// Predicts, and tells how well where the classes are known.
pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let checkpoint = Checkpoint::open(&args.model)?;
    let format = OutputFormat::of(&args.out)?;
    let of_classes = matches!(checkpoint.loss, Loss::CrossEntropy { .. });
    if !of_classes && !args.logits {
        return Err(Failure::Input(format!(
            "{}: its model was trained by its {}, and gives no class of each vertex; add --logits for the numbers that it gives",
            args.model.display(),
            checkpoint.loss.name()
        )));
    }
    // Before anything is computed: that it can be written.
    let refuse = |error| Failure::Input(cannot_write(&args.out, &error));
    drop(file::WholeFile::create(&args.out).map_err(refuse)?);
    let mut dataset = args.open.dataset(&args.dataset)?;
    let (features, own) = (dataset.feature_len(), checkpoint.model.features);
    if features != own {
        return Err(Failure::Input(format!(
            "{}: its model was trained on {own} features, and {} has {features}",
            args.model.display(),
            dataset.name
        )));
    }
    take_targets_of(&checkpoint.loss, &mut dataset)?;
    takes_edge_weights(&checkpoint.model, &dataset)?;
    if dataset.edge_weights.is_some() && !checkpoint.task.edge_weights {
        return Err(Failure::Input(format!(
            "{}: its model was trained on edges without weights, and those of {} have some; add --ignore-edge-weights",
            args.model.display(),
            dataset.name
        )));
    }
    if let Some(divisors) = &checkpoint.feature_divisors {
        dataset.scale_features(divisors, Origin::Checkpoint);
    }
    warn_of_infinite(
        &dataset,
        checkpoint.precision,
        "a model trained with --scale-features",
    );
    tell_self_loops(&checkpoint.model, &mut dataset);
    dataset
        .preparations
        .extend(args.reorder.map(ReorderName::preparation));
    page.line(&describe(&dataset));
    let reordered = match args.reorder {
        Some(order) => Some(order.apply(&dataset.name, &dataset.graph, |order| {
            dataset.reordered(order)
        })?),
        None => None,
    };
    let prediction = Prediction {
        checkpoint: &checkpoint,
        dataset: reordered.as_ref().map_or(&dataset, |it| &it.what),
    };
    let (device, mut logits) = device::open(args.device.into(), prediction)??;

    let columns = checkpoint.model.classes;
    if let Some(reordered) = reordered {
        page.line(&reordered.line);
        logits = reordered.order.restore(&logits, columns);
    }
    let classes: Vec<u32> = logits.chunks_exact(columns).map(class).collect();
    let bytes = match (format, args.logits) {
        (OutputFormat::Csv, false) => csv(&["class".into()], &classes, 1),
        (OutputFormat::Csv, true) => {
            let names: Vec<String> = (0..columns).map(|class| format!("logit_{class}")).collect();
            csv(&names, &logits, columns)
        }
        (OutputFormat::Npy, true) => npy(
            "<f4",
            &[classes.len(), columns],
            logits.iter().map(|x| x.to_le_bytes()),
        ),
        (OutputFormat::Npy, false) => npy(
            "<u4",
            &[classes.len()],
            classes.iter().map(|x| x.to_le_bytes()),
        ),
    };
    file::write(&args.out, &bytes)
        .map_err(|error| Failure::Run(cannot_write(&args.out, &error)))?;
    page.line(&format_args!(
        "{} of {} vertices written to {}",
        if args.logits { "logits" } else { "classes" },
        classes.len(),
        args.out.display()
    ));
    let known = (dataset.targets.classes()).filter(|_| of_classes && !dataset.test.is_empty());
    let accuracy = known.map(|labels| {
        let right = |&&vertex: &&u32| classes[vertex as usize] == labels[vertex as usize];
        let right = dataset.test.iter().filter(right).count();
        100.0 * right as f64 / dataset.test.len() as f64
    });
    if let Some(accuracy) = accuracy {
        page.line(&format_args!("test accuracy {accuracy:.2} %"));
    }
    let mut by_class = vec![0; columns];
    classes
        .iter()
        .for_each(|&class| by_class[class as usize] += 1);
    let predicted = Predicted {
        event: "prediction",
        dataset: &dataset.name,
        device: &device,
        vertices: classes.len(),
        classes: columns,
        vertices_by_class: &by_class,
        output: args.out.display().to_string(),
        logits: args.logits,
        test_accuracy: accuracy,
    };
    json.write(&predicted)?;
    json.finish()
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!(
        "--out {}: cannot be written: {error}; name a file in a folder that can be",
        path.display()
    )
}

/// The class with the largest logit, the lowest of equals.
fn class(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] || logits[best].is_nan() {
            best = class;
        }
    }
    best as u32
}

/// A file in NumPy's format, version 1.0.
fn npy<const N: usize>(
    kind: &str,
    shape: &[usize],
    elements: impl Iterator<Item = [u8; N]>,
) -> Vec<u8> {
    let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The whole header is a multiple of 64 bytes and ends with a line break.
    const BEFORE: usize = 10;
    let length = (BEFORE + header.len() + 1).next_multiple_of(64) - BEFORE - 1;
    header = format!("{header:<length$}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    // A shape of two numbers is far below 64 KiB.
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements.flatten());
    bytes
}

/// Lines of a vertex and its `columns` values, under their names.
fn csv<T: std::fmt::Display>(names: &[String], values: &[T], columns: usize) -> Vec<u8> {
    let mut text = format!("vertex,{}\n", names.join(","));
    for (vertex, row) in values.chunks_exact(columns).enumerate() {
        text.push_str(&vertex.to_string());
        for value in row {
            text.push_str(&format!(",{value}"));
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// A forward pass, on a device that is not known before the program runs.
struct Prediction<'a> {
    checkpoint: &'a Checkpoint,
    dataset: &'a Dataset,
}

impl Task for Prediction<'_> {
    type Output = Result<(String, Vec<f32>), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let logits = with_element!(self.checkpoint.precision, E => self.logits::<B, E>(device));
        Ok((device.backend.name(), logits?))
    }
}

impl Prediction<'_> {
    /// The logits, row-major.
    fn logits<B: Backend, E: Element>(&self, device: &Device<B>) -> Result<Vec<f32>, Failure> {
        let (backend, config) = (&device.backend, &self.checkpoint.model);
        let weights = self.dataset.edge_weights.as_deref();
        let (graph, weights) = config.prepare_weighted(&self.dataset.graph, weights)?;
        let weights = weights.as_deref();
        let counts = GraphCounts::of(&graph).weighted(weights.is_some());
        Footprint::check_training::<E>(&counts, config, device.multiprocessors, device.memory)?;

        let mut model = Network::<B, E>::new(backend, config, 0)?;
        load_weights(backend, &mut model, &self.checkpoint.snapshot.tensors)?;
        let inputs = Inputs {
            backend,
            graphs: &[Propagation::of_graph::<E>(
                backend,
                &graph,
                weights,
                config.norm(),
            )?],
            features: &self.dataset.upload_features(backend)?,
        };
        model.forward(inputs, Mode::Evaluate)?;
        Ok(model.logits().to_f32(backend)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_is_the_class() {
        assert_eq!(class(&[0.0, 2.0, 1.0]), 1);
        assert_eq!(class(&[3.0, 3.0]), 0);
        assert_eq!(class(&[f32::NAN, -1.0, 5.0]), 2);
        assert_eq!(class(&[f32::NAN; 2]), 1);
    }

    #[test]
    fn the_header_is_numpys() {
        let bytes = npy("<u4", &[2], [1_u32, 7].into_iter().map(u32::to_le_bytes));
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!((10 + length) % 64, 0);
        let header = std::str::from_utf8(&bytes[10..10 + length]).expect("text");
        assert_eq!(
            header.trim_end(),
            "{'descr': '<u4', 'fortran_order': False, 'shape': (2, ), }"
        );
        assert_eq!(bytes[10 + length..], [1, 0, 0, 0, 7, 0, 0, 0]);
    }
}
