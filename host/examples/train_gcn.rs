//! Trains a graph convolutional network in half precision and prints how well it predicts.
//!
//! `cargo run --release --example train_gcn -- [cora.npz]`: without a file, on a graph that the program makes.

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, UploadFeatures};
use halfgnn::nn::{ModelConfig, Network, Propagation};
use halfgnn::tensor::Precision;
use halfgnn::train::{Objective, TrainConfig, Trainer};
use std::error::Error;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn Error>> {
    let data = match std::env::args_os().nth(1) {
        Some(file) => Dataset::open(std::path::Path::new(&file))?,
        None => Dataset::synthetic()?,
    };
    let accuracy = train(&data, 60)?;
    println!("test accuracy {accuracy:.1} %");
    Ok(())
}

/// Test accuracy, in percent, at the epoch of the best validation accuracy.
fn train(data: &Dataset, epochs: u32) -> Result<f64, Box<dyn Error>> {
    let backend = Cpu::new();
    let shape = ModelConfig::gcn(data.feature_len(), data.outputs);
    let graph = shape.prepare(&data.graph)?;

    // What stays the same from epoch to epoch: graph, features, labels, splits.
    let objective = Objective::<_, f16>::new(
        &backend,
        Propagation::new(&backend, &graph, shape.norm())?,
        data.upload_features(&backend)?,
        data.class_labels()?,
        data.outputs,
        [&data.train, &data.val, &data.test],
    )?;
    let model = Network::new(&backend, &shape, 0)?;
    let config = TrainConfig {
        epochs,
        ..TrainConfig::new(Precision::Half)
    };
    let run = Trainer::new(&backend, &objective, model, config)?.run(|epoch| {
        println!("epoch {}: loss {:.4}", epoch.epoch, epoch.loss);
        ControlFlow::Continue(())
    })?;
    Ok(run.test_score())
}

#[test]
fn it_learns() {
    let data = Dataset::synthetic().unwrap();
    let guessed = 100.0 / data.outputs as f64;
    let accuracy = train(&data, 8).unwrap();
    assert!(accuracy > 1.5 * guessed, "{accuracy} %");
}
