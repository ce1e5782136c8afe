//! A layer of your own in a network: forward, backward, and trained like the crate's.
//!
//! `Y = D⁻¹ A X W`: the mean of the neighbours after a linear map. Bias, ReLU and dropout come from the stage around it. It
//! is generic over the backend and the precision, so it runs on the CPU, on the emulator and on a card alike.
//!
//! `cargo run --example custom_layer`

use half::f16;
use halfgnn::backend::{Backend, cpu::Cpu};
use halfgnn::data::{Dataset, UploadFeatures};
use halfgnn::nn::{
    Aggregation, Context, InputGradient, Layer, Network, Norm, Output, OutputGradient, Parameter,
    Place, Propagation, Stage,
};
use halfgnn::ops::{Epilogue, Form, SpmmEpilogue, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Objective, TrainConfig, Trainer};
use halfgnn::{Error, ops};
use std::ops::ControlFlow;

/// The layer has but its weights: nothing of the forward pass is wanted again.
#[derive(Debug)]
struct Mean<B: Backend, E: Element> {
    weight: Parameter<B, E>,
}

impl<B: Backend, E: Element> Mean<B, E> {
    /// The sum over neighbours; that it is a mean is the degree norm's doing.
    const SUM: Aggregation = Aggregation {
        policy: SpmmPolicy::DEFAULT,
        factor: 1.0,
    };

    fn new(backend: &B, place: Place, widths: (usize, usize)) -> Result<Self, Error> {
        Ok(Self {
            weight: place.weights(backend, "weight", widths, 0)?,
        })
    }
}

impl<B: Backend, E: Element> Layer<B, E> for Mean<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weight.shape()
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let mut product = at.pool.take(at.backend, (x.rows(), y.columns()))?;
        let (weight, plain) = (self.weight.values(), Epilogue::default());
        ops::matmul(at.backend, Form::NN, x, weight, &plain, &mut product)?;
        // Bias and ReLU are done where the sum is written; `y.matrix()` would leave them to a pass of their own.
        y.aggregate(at, Self::SUM, false, None, &product)?;
        at.give(product);
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        // Along the edges the other way, each message times the factor of the vertex that it went to: Aᵀ D⁻¹ d.
        let shape = (x.rows(), dy.matrix().columns());
        let mut product = at.pool.take(at.backend, shape)?;
        Self::SUM.backward(
            at,
            false,
            SpmmEpilogue::default(),
            dy.matrix(),
            &mut product,
        )?;
        let (weight, gradient) = self.weight.values_and_gradient();
        let plain = Epilogue::default();
        ops::matmul(at.backend, Form::TN, x, &product, &plain, gradient)?;
        // Where nobody wants the gradient of the input, as of the first layer, this does nothing.
        dx.product(at, &product, weight)?;
        at.give(product);
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Cpu::new();
    let data: Dataset = "blocks:800".parse::<halfgnn::data::Recipe>()?.dataset(0)?;
    let graph = data.graph.with_self_loops()?;
    let objective = Objective::<_, f16>::new(
        &backend,
        Propagation::new(&backend, &graph, Norm::Right)?,
        data.upload_features(&backend)?,
        data.class_labels()?,
        data.outputs,
        [&data.train, &data.val, &data.test],
    )?;
    let mean = |layer, widths| Mean::new(&backend, Place { layer, seed: 0 }, widths);
    let model = Network::from_layers(
        &backend,
        [
            Stage::new(mean(0, (data.feature_len(), 32))?).bias().relu(),
            Stage::new(mean(1, (32, data.outputs))?).bias().dropout(0.5),
        ],
    )?;
    let mut trainer = Trainer::new(
        &backend,
        &objective,
        model,
        TrainConfig::new(Precision::Half),
    )?;
    let run = trainer.run(|epoch| {
        if epoch.epoch.is_multiple_of(50) {
            println!("epoch {}: loss {:.4}", epoch.epoch, epoch.loss);
        }
        ControlFlow::Continue(())
    })?;
    println!(
        "validation accuracy {:.1} %",
        run.best
            .map_or(0.0, |best| best.score.of(halfgnn::train::Split::Validation))
    );
    Ok(())
}
