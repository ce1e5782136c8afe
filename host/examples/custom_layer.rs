//! A layer of your own: `GraphConv` of PyG, `H · W₁ + A · H · W₂`, as its formula. The gradient, every precision,
//! ranks, sampled batches, quantized messages and checkpoints follow from it.
//!
//! `cargo run --example custom_layer`

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, Recipe, UploadFeatures};
use halfgnn::nn::{ModelConfig, Network, Norm, OtherLayers, OwnLayers, Propagation};
use halfgnn::program::layers::{Layer, Reads};
use halfgnn::program::{Builder, Edges, Value};
use halfgnn::tensor::Precision;
use halfgnn::train::{Objective, Split, TrainConfig, Trainer};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The layer: the adjacency, and columns of the output.
#[derive(Debug)]
struct GraphConv(Edges, usize);

impl Layer for GraphConv {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.1);
        let (root, neighbours) = (
            g.weight("lin_root.weight", shape),
            g.weight("lin_rel.weight", shape),
        );
        let (own, mean) = (g.own_rows(self.0, x), g.aggregate(self.0, x));
        let (own, mean) = (g.matmul(own, root), g.matmul(mean, neighbours));
        g.add(mean, own)
    }
}

/// A network of such layers, with the mean of the neighbours in place of their sum.
#[derive(Debug)]
struct GraphConvs;

impl OwnLayers for GraphConvs {
    fn layer(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(GraphConv(reads.edges, model.layer(number).1))
    }

    fn norm(&self) -> Norm {
        Norm::Right
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Cpu::new();
    let data: Dataset = "blocks:800".parse::<Recipe>()?.dataset(0)?;
    let layers = OtherLayers::new("graphconv-mean", Arc::new(GraphConvs));
    let model = ModelConfig::of(layers, data.feature_len(), data.outputs);
    let objective = Objective::<_, f16>::new(
        &backend,
        Propagation::new(&backend, &data.graph, model.norm())?,
        data.upload_features(&backend)?,
        data.class_labels()?,
        data.outputs,
        [&data.train, &data.val, &data.test],
    )?;
    let network = Network::new(&backend, &model, 0)?;
    let config = TrainConfig::new(Precision::Half);
    let mut trainer = Trainer::new(&backend, &objective, network, config)?;
    let run = trainer.run(|epoch| {
        if epoch.epoch.is_multiple_of(50) {
            println!("epoch {}: loss {:.4}", epoch.epoch, epoch.loss);
        }
        ControlFlow::Continue(())
    })?;
    let accuracy = run
        .best
        .map_or(0.0, |best| best.score.of(Split::Validation));
    println!("validation accuracy {accuracy:.1} %");
    Ok(())
}
