//! Options that say how weights follow their gradients: optimiser, learning rate and its schedule, clipping.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use halfgnn::nn::ModelConfig;
use halfgnn::ops::{AdamHyper, Optimizer, SgdHyper};
use halfgnn::train::{Clipping, Decay, TrainConfig};
use halfgnn_bench::model::with_defaults;
use halfgnn_bench::names::{not_negative, positive};

/// How weights follow their gradients.
#[derive(Args)]
#[command(mut_arg("weight_decay", |arg| with_defaults(arg, |model| format!("{:e}", model.weight_decay()))))]
pub struct OptimizeArgs {
    /// How weights follow their gradients
    #[arg(long, value_enum, default_value_t)]
    pub optimizer: OptimizerName,
    /// Learning rate [default: 0.01; with --binary full 0.003, with bin 0.001]
    #[arg(long, value_name = "X", value_parser = positive, allow_hyphen_values = true)]
    pub lr: Option<f32>,
    /// Weight decay: an L2 penalty that is added to the gradients; of adamw what shrinks the weights
    #[arg(long, value_name = "X", value_parser = not_negative, allow_hyphen_values = true)]
    pub weight_decay: Option<f32>,
    /// Momentum of sgd [default: 0]
    #[arg(long, value_name = "X", value_parser = halfgnn_bench::names::probability, allow_hyphen_values = true)]
    pub momentum: Option<f32>,
    /// Take Nesterov's momentum
    #[arg(long, requires = "momentum")]
    pub nesterov: bool,
    /// How the learning rate falls: constant, cosine (to 0 after the last epoch), step:EVERY,FACTOR (every EVERY
    /// epochs), plateau:PATIENCE,FACTOR (when validation has not become better for more epochs than that) [default:
    /// constant]
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<Decay>,
    /// Epochs at the beginning in which the learning rate grows to its full size [default: 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Scale gradients down to a norm of at most X, of all parameters together
    #[arg(long, value_name = "X", value_parser = positive, allow_hyphen_values = true, conflicts_with = "clip_value")]
    pub clip_norm: Option<f32>,
    /// Take elements of gradients to at most the size X
    #[arg(long, value_name = "X", value_parser = positive, allow_hyphen_values = true)]
    pub clip_value: Option<f32>,
}

/// [`Optimizer`], as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OptimizerName {
    /// Adam, weight decay added to the gradients
    #[default]
    Adam,
    /// Adam, weight decay apart from the gradients
    Adamw,
    /// Stochastic gradient descent
    Sgd,
}

impl OptimizeArgs {
    /// `defaults` with what was given, where weights decay by `weight_decay` unless that was.
    ///
    /// # Errors
    /// Where an option is given that the optimiser does not have.
    pub fn config(
        &self,
        defaults: TrainConfig,
        model: &ModelConfig,
    ) -> Result<TrainConfig, Failure> {
        let (learning_rate, weight_decay) = (model.learning_rate(), model.weight_decay());
        let adam = AdamHyper {
            learning_rate,
            weight_decay,
            ..AdamHyper::default()
        };
        let optimizer = match self.optimizer {
            OptimizerName::Adam => Optimizer::Adam(adam),
            OptimizerName::Adamw => Optimizer::AdamW(adam),
            OptimizerName::Sgd => Optimizer::Sgd(SgdHyper {
                learning_rate,
                momentum: self.momentum.unwrap_or(0.0),
                nesterov: self.nesterov,
                weight_decay,
            }),
        };
        if let (Some(_), OptimizerName::Adam | OptimizerName::Adamw) =
            (self.momentum, self.optimizer)
        {
            return Err(Failure::Input(format!(
                "--momentum is an option of sgd, and the optimizer is {optimizer}; add --optimizer sgd, or leave it out"
            )));
        }
        if self.nesterov && self.momentum == Some(0.0) {
            return Err(Failure::Input(
                "--nesterov looks ahead along the momentum, and --momentum is 0; give a --momentum above 0, or leave it out"
                    .into(),
            ));
        }
        let mut config = TrainConfig {
            optimizer,
            ..defaults
        };
        self.change(&mut config);
        Ok(config)
    }

    /// Changes what was given of what a run may go on with, and reports each change: what, from what, to what.
    pub fn change(&self, config: &mut TrainConfig) -> Vec<String> {
        let mut told = Vec::new();
        let mut tell = |what: &str, before: String, after: String| {
            if before != after {
                told.push(format!("{what} {after} instead of {before}"));
            }
        };
        let before = *config;
        if let Some(rate) = self.lr {
            config.optimizer = config.optimizer.with_learning_rate(rate);
        }
        if let Some(decay) = self.weight_decay {
            config.optimizer = config.optimizer.with_weight_decay(decay);
        }
        config.schedule.decay = self.schedule.unwrap_or(config.schedule.decay);
        config.schedule.warmup = self.warmup.unwrap_or(config.schedule.warmup);
        config.clipping = match (self.clip_norm, self.clip_value) {
            (Some(maximum), _) => Clipping::Norm(maximum),
            (None, Some(largest)) => Clipping::Value(largest),
            (None, None) => config.clipping,
        };
        let rate = |config: &TrainConfig| config.optimizer.learning_rate().to_string();
        tell("a learning rate of", rate(&before), rate(config));
        let decay = |config: &TrainConfig| config.optimizer.weight_decay().to_string();
        tell("a weight decay of", decay(&before), decay(config));
        let schedule = |config: &TrainConfig| config.schedule.to_string();
        tell("the schedule", schedule(&before), schedule(config));
        let clipping = |config: &TrainConfig| config.clipping.to_string();
        tell("clipping to", clipping(&before), clipping(config));
        told
    }
}
