//! Draws batches of neighbours and trains a GraphSAGE on them, step by step: the loader, the sampler and the trainer
//! are used by themselves, as a loop of one's own does.
//!
//! `cargo run --release --example sampled_batches -- [cora.npz]`: without a file, on a graph that the program makes.

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, UploadFeatures};
use halfgnn::nn::{ModelConfig, Network, Propagation};
use halfgnn::sample::{Fanout, Loader, NeighborSampler, Sampler};
use halfgnn::tensor::Precision;
use halfgnn::train::{Objective, Split, TrainConfig, Trainer};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let data = match std::env::args_os().nth(1) {
        Some(file) => Dataset::open(std::path::Path::new(&file))?,
        None => Dataset::synthetic()?,
    };
    let accuracy = train(&data, 10)?;
    println!("test accuracy {accuracy:.1} %");
    Ok(())
}

/// Test accuracy after the given number of epochs, in percent.
fn train(data: &Dataset, epochs: u32) -> Result<f64, Box<dyn Error>> {
    const SEED: u64 = 0;
    let backend = Cpu::new();
    let shape = ModelConfig {
        layers: 2,
        ..ModelConfig::sage(data.feature_len(), data.outputs)
    };
    let labels = data.class_labels()?;

    // Graph and features lie on the device; a batch gathers the rows of its in-neighbors.
    let features = data.upload_features::<_, f16>(&backend)?;
    let fanouts = vec![Fanout::of(10)?, Fanout::of(5)?];
    let mut sampler = NeighborSampler::new(&backend, data.graph.csr(), fanouts)?;
    let loader = Loader::new(data.train.clone(), 128, SEED)?;

    // What is evaluated is the whole graph.
    let whole = Objective::<_, f16>::new(
        &backend,
        Propagation::new(&backend, &data.graph, shape.norm())?,
        data.upload_features(&backend)?,
        labels,
        data.outputs,
        [&data.train, &data.val, &data.test],
    )?;
    let model = Network::new(&backend, &shape, SEED)?;
    let config = TrainConfig::new(Precision::Half);
    let mut trainer = Trainer::new(&backend, &whole, model, config)?;
    for epoch in 0..epochs {
        for seeds in loader.epoch(epoch) {
            let batch = sampler.sample(&backend, &seeds.vertices, SEED, seeds.step)?;
            let of_batch = batch.features(&backend, &features)?;
            let graphs = batch
                .blocks
                .into_iter()
                .map(|block| Propagation::of_sampled(&backend, block, shape.norm()))
                .collect::<Result<_, _>>()?;
            let own: Vec<u32> = (seeds.vertices.iter())
                .map(|&vertex| labels[vertex as usize])
                .collect();
            let all: Vec<u32> = (0..own.len() as u32).collect();
            let splits = [&all[..], &[], &[]];
            let classes = data.outputs;
            let objective =
                Objective::on_blocks(&backend, graphs, of_batch, &own, classes, splits)?;
            trainer.step_on(&objective)?;
        }
        println!("epoch {}: loss {:.4}", epoch + 1, trainer.loss()?);
    }
    let (score, _) = trainer.evaluate()?;
    Ok(score.of(Split::Test))
}

#[test]
fn it_learns() {
    let data = Dataset::synthetic().unwrap();
    let guessed = 100.0 / data.outputs as f64;
    let accuracy = train(&data, 3).unwrap();
    assert!(accuracy > 1.5 * guessed, "{accuracy} %");
}
