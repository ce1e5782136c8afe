//! Generic code that most test binaries use, compiled once.
//!
//! A crate that is optimised as little as these takes what a crate before it has made of a generic function instead of making it
//! again. Nothing calls what is here; without it, layers and trainers of the CPU are compiled for every file of `tests/`, half a minute
//! each.

use crate::task;
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{Mode, Model, Norm};
use halfgnn::tensor::Element;
use halfgnn::train::TrainConfig;
use halfgnn::{Error, train};

/// Trains on the CPU, in every precision.
///
/// # Errors
/// None that anybody has seen.
pub fn trained_on_the_cpu() -> Result<(), Error> {
    trained::<f16>()?;
    trained::<bf16>()?;
    trained::<f32>()
}

fn trained<E: Element>() -> Result<(), Error> {
    let cpu = Cpu::new();
    let objective = task::objective::<Cpu, E>(&cpu, Norm::Both);
    let mut trainer = task::trainer(
        &cpu,
        &objective,
        task::model(),
        TrainConfig::new(E::PRECISION),
    );
    trainer.step()?;
    trainer.gradients()?;
    trainer.update()?;
    trainer.next_epoch()?;
    trainer.evaluate()?;
    trainer.loss()?;
    trainer.optimizer()?;
    let snapshot = trainer.snapshot()?;
    trainer.restore(&snapshot)?;
    train::load_weights(&cpu, trainer.model_mut(), &snapshot.tensors)?;
    trainer.summary();
    task::weights(&cpu, trainer.model());
    let mut network = trainer.into_model();
    network.forward(objective.inputs(&cpu), Mode::Evaluate)?;
    network.logits().to_f32(&cpu).map(drop)
}
