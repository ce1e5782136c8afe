//! The training loop.

use super::{Accuracy, EpochReport, Objective, RunSummary, Status};
use crate::backend::{
    AdamHyper, Backend, LossScaling, MemoryKind, OptimizerSnapshot, OptimizerState,
};
use crate::error::Error;
use crate::nn::{Mode, Model};
use crate::ops;
use crate::tensor::{Array, Element, Precision};
use std::ops::ControlFlow;
use std::time::Instant;

/// How to train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainConfig {
    /// Training steps, each on the whole graph.
    pub epochs: u32,
    /// The optimiser.
    pub adam: AdamHyper,
    /// How the loss scale follows overflows.
    pub scaling: LossScaling,
    /// Seed of the dropout masks.
    pub seed: u64,
    /// Epochs in a row without a finite loss after which a run is given up.
    pub patience_non_finite: u32,
}

impl TrainConfig {
    /// 200 epochs of Adam at 0.01 with weight decay 5e-4, as is customary for citation graphs.
    pub fn new(precision: Precision) -> Self {
        Self {
            epochs: 200,
            adam: AdamHyper {
                weight_decay: 5e-4,
                ..AdamHyper::default()
            },
            scaling: loss_scaling(precision),
            seed: 0,
            patience_non_finite: 10,
        }
    }
}

/// The loss scaling of a precision: dynamic in half precision, with PyTorch's start and interval; none in float.
pub fn loss_scaling(precision: Precision) -> LossScaling {
    match precision {
        Precision::Half => LossScaling {
            initial: 65536.0,
            growth_interval: 2000,
            maximum: 16_777_216.0,
        },
        Precision::Float => LossScaling {
            initial: 1.0,
            growth_interval: 0,
            maximum: 1.0,
        },
    }
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer<'a, B: Backend, E: Element, M: Model<B, E>> {
    backend: &'a B,
    objective: &'a Objective<B, E>,
    model: M,
    config: TrainConfig,
    optimizer: OptimizerState<B>,
    loss: Array<B, f32>,
    correct: Array<B, u32>,
    step: u32,
}

impl<'a, B: Backend, E: Element, M: Model<B, E>> Trainer<'a, B, E, M> {
    /// A trainer before its first step.
    ///
    /// # Errors
    /// [`Error::Shape`] where the model gives another number of logits than there are classes, [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(
        backend: &'a B,
        objective: &'a Objective<B, E>,
        model: M,
        config: TrainConfig,
    ) -> Result<Self, Error> {
        Error::expect(
            "Trainer",
            "logits of the model",
            objective.classes(),
            model.logits().columns(),
        )?;
        Ok(Self {
            backend,
            objective,
            model,
            config,
            optimizer: OptimizerState::new(backend, &config.scaling)?,
            loss: Array::zeros(backend, 1, MemoryKind::Workspace)?,
            correct: Array::zeros(backend, 3, MemoryKind::Workspace)?,
            step: 0,
        })
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, to change it between steps.
    pub fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// One training step. Nothing is transferred, and on a GPU the work may still be running on return.
    ///
    /// # Errors
    /// Those of the device.
    pub fn step(&mut self) -> Result<(), Error> {
        self.gradients()?;
        self.update()
    }

    /// The first half of a step: loss and gradients at the present weights.
    ///
    /// # Errors
    /// Those of the device.
    pub fn gradients(&mut self) -> Result<(), Error> {
        let Self {
            backend,
            objective,
            model,
            config,
            optimizer,
            loss,
            ..
        } = self;
        let inputs = objective.inputs(backend);
        let mode = Mode::Train {
            seed: config.seed,
            step: self.step,
        };
        model.forward(inputs, mode)?;
        let (logits, gradient) = model.loss_operands();
        let count = objective.sizes[0];
        ops::cross_entropy(
            *backend,
            logits,
            &objective.targets,
            count,
            optimizer,
            gradient,
            loss,
        )?;
        model.backward(inputs, mode)
    }

    /// The second half of a step: Adam, or nothing but a smaller loss scale where a gradient is not finite.
    ///
    /// # Errors
    /// Those of the device.
    pub fn update(&mut self) -> Result<(), Error> {
        let mut parameters = self.model.parameters_mut();
        let mut parameters: Vec<_> = parameters
            .iter_mut()
            .map(|parameter| parameter.for_optimizer())
            .collect();
        let gradients: Vec<_> = parameters
            .iter()
            .map(|parameter| parameter.gradient)
            .collect();
        ops::check_finite(self.backend, &gradients, &mut self.optimizer)?;
        ops::adam(
            self.backend,
            &self.config.adam,
            &self.optimizer,
            &mut parameters,
        )?;
        ops::end_step(self.backend, &self.config.scaling, &mut self.optimizer)?;
        self.step += 1;
        Ok(())
    }

    /// The loss of the last step: the mean cross-entropy of the training vertices.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn loss(&self) -> Result<f32, Error> {
        Ok(self.loss.to_vec(self.backend)?[0])
    }

    /// Loss scale and step count.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn optimizer(&self) -> Result<OptimizerSnapshot, Error> {
        self.optimizer.snapshot(self.backend)
    }

    /// The accuracy of the model as it is, without dropout.
    ///
    /// # Errors
    /// Those of the device.
    pub fn evaluate(&mut self) -> Result<Accuracy, Error> {
        let Self {
            backend,
            objective,
            model,
            correct,
            ..
        } = self;
        model.forward(objective.inputs(backend), Mode::Evaluate)?;
        ops::count_correct(
            *backend,
            model.logits(),
            &objective.labels,
            &objective.splits,
            correct,
        )?;
        let counts = self.correct.to_vec(self.backend)?;
        Ok(Accuracy::new(
            [counts[0], counts[1], counts[2]],
            self.objective.sizes,
        ))
    }

    /// Trains, evaluates after every epoch, and reports each to `observe`, which may end the run.
    ///
    /// # Errors
    /// Those of the device. A loss that is not finite is none: see [`Status::Diverged`].
    pub fn run(
        &mut self,
        mut observe: impl FnMut(&EpochReport) -> ControlFlow<()>,
    ) -> Result<RunSummary, Error> {
        let mut summary = RunSummary {
            status: Status::Finished,
            best: None,
            last: None,
            ms_per_epoch: 0.0,
        };
        let mut later_ms = 0.0;
        let mut non_finite_since = None;
        for epoch in 1..=self.config.epochs {
            self.backend.synchronize()?;
            let start = Instant::now();
            self.step()?;
            self.backend.synchronize()?;
            let ms = start.elapsed().as_secs_f64() * 1e3;

            let report = EpochReport {
                epoch,
                loss: self.loss()?,
                accuracy: self.evaluate()?,
                ms,
                optimizer: self.optimizer()?,
            };
            if epoch == 1 {
                summary.ms_per_epoch = ms;
            } else {
                later_ms += ms;
                summary.ms_per_epoch = later_ms / f64::from(epoch - 1);
            }
            summary.last = Some(report);
            let validation = |report: &EpochReport| report.accuracy.of(super::Split::Validation);
            if summary
                .best
                .is_none_or(|best| validation(&report) > validation(&best))
            {
                summary.best = Some(report);
            }

            if observe(&report).is_break() {
                // Told to stop after the last epoch is nothing but finished.
                if epoch < self.config.epochs {
                    summary.status = Status::Stopped;
                }
                break;
            }
            if report.loss.is_finite() {
                non_finite_since = None;
                continue;
            }
            let since = *non_finite_since.get_or_insert(epoch);
            if epoch - since + 1 >= self.config.patience_non_finite {
                summary.status = Status::Diverged { since };
                break;
            }
        }
        Ok(summary)
    }
}
