//! What is the same on every processor and system: losses of training on the CPU, bit for bit those that `tests/data/same_bits.txt` has,
//! of every model in every precision; and what files have in them that were written under Linux on x86-64 (`tests/data/files`).

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, OpenGraph};
use halfgnn::graph::Graph;
use halfgnn::nn::{ConvolutionConfig, ModelConfig};
use halfgnn::tensor::Element;
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, TrainConfig};
use halfgnn_tests::{task, training};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Epochs of each run.
const EPOCHS: usize = 5;

const EXPECTED: &str = include_str!("../data/same_bits.txt");

/// The models by name: all kinds, activations, one bit, 8-bit messages and 8-bit stores.
fn models() -> Vec<(String, ModelConfig)> {
    let named = |(name, model): (&str, ModelConfig)| (name.replace(' ', "-"), model);
    let mut all: Vec<_> = training::models().into_iter().map(named).collect();
    all.extend(training::others().into_iter().map(named));
    let kinds = ConvolutionConfig::kinds().into_iter();
    let kinds = kinds.filter(|kind| all.iter().all(|(name, _)| name != kind.name));
    let of_kinds = kinds.map(|kind| {
        let model = ModelConfig::of(kind.convolution, task::FEATURES, task::CLASSES);
        let model = ModelConfig {
            hidden: 24,
            layers: 2,
            hidden_by_layer: Vec::new(),
            ..model
        };
        (kind.name.to_owned(), model)
    });
    all.extend(of_kinds.collect::<Vec<_>>());
    let activations = training::models_of_activations().into_iter();
    all.extend(activations.map(|model| (format!("gcn-{}", model.activation), model)));
    let bits = training::models_of_bits().into_iter().enumerate();
    all.extend(bits.map(|(at, model)| (format!("one-bit-{at}"), model)));
    let messages = training::models_of_messages().into_iter().enumerate();
    all.extend(messages.map(|(at, (name, model))| (format!("messages-{at}-{name}"), model)));
    let stores = training::models_of_store().into_iter();
    all.extend(stores.map(|(name, model)| (format!("store-{name}"), model)));
    all
}

/// The bits of the loss after each epoch, in hexadecimal.
fn losses<E: Element>(backend: &Cpu, model: &ModelConfig) -> String {
    let objective = task::objective::<_, E>(backend, model.norm());
    let mut config = TrainConfig::new(E::PRECISION);
    // Where a run begins a larger one overflows, and a step that is skipped shows nothing.
    config.scaling.initial = config.scaling.initial.min(256.0);
    let mut trainer = task::trainer(backend, &objective, model.clone(), config);
    let mut text = String::new();
    for _ in 0..EPOCHS {
        trainer.step().expect("a step");
        let loss = trainer.loss().expect("a loss");
        // Sums of LEConv leave the range of half at a hub. The bits of a NaN mean nothing.
        match loss.is_finite() {
            true => write!(text, " {:08x}", loss.to_bits()).expect("a string"),
            false => text.push_str(" overflow"),
        }
    }
    text
}

#[test]
fn every_model_has_the_same_losses_on_every_machine() {
    let backend = Cpu::from_environment().expect("the CPU has the instructions");
    let mut found = BTreeMap::new();
    for (name, model) in models() {
        let mut of = vec![
            ("half", losses::<f16>(&backend, &model)),
            ("bfloat16", losses::<bf16>(&backend, &model)),
        ];
        // What is kept or sent in 8 bits is of models of 16.
        if model.messages.is_none() && model.store.is_none() {
            of.push(("float", losses::<f32>(&backend, &model)));
        }
        for (precision, losses) in of {
            let twice = found.insert(format!("{name} {precision}"), losses);
            assert!(twice.is_none(), "two models are called {name}");
        }
    }
    let table: String = found
        .iter()
        .map(|(run, losses)| format!("{run}{losses}\n"))
        .collect();
    let expected: Vec<&str> = EXPECTED.lines().collect();
    let differing: Vec<&str> = table
        .lines()
        .filter(|line| !expected.contains(line))
        .collect();
    if !differing.is_empty() || expected.len() != found.len() {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("same_bits.txt");
        std::fs::write(&place, &table).expect("a folder of tests");
        panic!(
            "{} of {} runs differ from tests/data/same_bits.txt, which has {}:\n{}\nwhere that is meant, copy {} over it",
            differing.len(),
            found.len(),
            expected.len(),
            differing.join("\n"),
            place.display()
        );
    }
}

/// A file of `tests/data/files`, which `halfgnn dataset convert`, `dataset partition` and `train --save` wrote.
fn file(name: &str) -> String {
    format!("{}/data/files/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn files_of_one_machine_open_on_all_others() {
    let ring = Dataset::open(file("ring.npz")).expect("a dataset");
    assert_eq!((ring.graph.vertices(), ring.graph.edges()), (12, 36));
    let features = ring.features.to_dense().expect("features");
    // As they stand in `nodes.csv`.
    assert_eq!(features[..4], [-0.25, -1.0, 0.75, 1.75]);
    for name in ["ring.csr", "ring.frdc"] {
        let graph = Graph::open(file(name)).expect(name);
        assert_eq!(graph, ring.graph, "{name}");
    }
    let tables = format!("{},{}", file("nodes.csv"), file("edges.csv"));
    for name in [file("ring.parts"), tables] {
        let other = Dataset::open(&name).expect(&name);
        assert_eq!(other.graph, ring.graph, "{name}");
        assert_eq!(other.targets, ring.targets, "{name}");
        assert_eq!(other.features.to_dense().expect("features"), features);
    }
    // The checkpoint has digests of its dataset, and sums of its tensors, which are taken anew here.
    let path = file("model");
    let checkpoint = Checkpoint::open(path.as_ref()).expect("a checkpoint");
    let task = TaskIdentity::of(&ring);
    checkpoint
        .check_task(path.as_ref(), &task)
        .expect("the dataset that it was trained on");
}
