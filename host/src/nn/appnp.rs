//! Predict, then propagate (Gasteiger, Bojchevski and Günnemann, ICLR 2019). A perceptron makes logits `H⁰` of each
//! vertex alone. Personalised PageRank spreads them, `H ← (1 − α) · Â · H + α · H⁰`, by a few steps of power iteration.

use super::architecture::{Architecture, LayerOption, number, probability, store};
use super::{ModelConfig, Norm};
use crate::program::layers::{self as formulas, Layer as Formula, LayerSetting, Reads};
use serde::{Deserialize, Serialize};

/// `H ← (1 − α) · Â · H + α · H⁰` after a perceptron of two layers of 64 with dropout 0.5, ten times with α = 0.1.
/// [`ModelConfig::layers`] counts the layers of the perceptron.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Appnp {
    /// Steps of propagation, `K`.
    pub steps: usize,
    /// Probability to start anew, in [0, 1].
    pub alpha: f32,
    /// Probability of an input of a step to be dropped in training; that of the perceptron's where absent.
    pub propagation_dropout: Option<f32>,
}

impl Default for Appnp {
    fn default() -> Self {
        Self {
            steps: 10,
            alpha: 0.1,
            propagation_dropout: None,
        }
    }
}

/// The most steps; a file may name any number.
const MOST_STEPS: usize = 1000;

impl Architecture for Appnp {
    const NAME: &'static str = "appnp";
    const TITLE: &'static str = "Perceptron and personalised PageRank (Gasteiger et al.)";
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "steps",
            value: "N",
            help: "steps of propagation [default: 10]",
            set: |appnp, text| store(&mut appnp.steps, number(text, 1..=MOST_STEPS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "alpha",
            value: "X",
            help: "share of the perceptron's own logits in each step [default: 0.1]",
            set: |appnp, text| store(&mut appnp.alpha, probability(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "propagation-dropout",
            value: "P",
            help: "probability of an input of a step to be dropped in training [default: that of --dropout]",
            set: |appnp, text| store(&mut appnp.propagation_dropout, probability(text).map(Some)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        Norm::Both
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    /// That of the first layer; the others have none.
    fn weight_decay(&self) -> f32 {
        5e-3
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        let dropout = self.propagation_dropout.unwrap_or(model.dropout);
        if !(1..=MOST_STEPS).contains(&self.steps) {
            return Err(format!(
                "{} steps of propagation; there are from 1 to {MOST_STEPS}",
                self.steps
            ));
        }
        if !(0.0..1.0).contains(&self.alpha) || !(0.0..1.0).contains(&dropout) {
            return Err(format!(
                "α {} and the dropout {dropout} of the propagation should be in [0, 1)",
                self.alpha
            ));
        }
        if model.residual {
            return Err("APPNP has no residual connections; each step has its own".into());
        }
        Ok(())
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        let dense = |number: usize| {
            let is_last = number + 1 == model.layers;
            LayerSetting {
                is_hidden: !is_last,
                is_initial: is_last,
                decay: if number == 0 { 1.0 } else { 0.0 },
                ..LayerSetting::dense(model.layer(number).1, model.dropout_of(number))
            }
        };
        let step = LayerSetting {
            aggregates: true,
            bias: false,
            ..LayerSetting::dense(
                model.classes,
                self.propagation_dropout.unwrap_or(model.dropout),
            )
        };
        let steps = std::iter::repeat_n(step, self.steps);
        (0..model.layers).map(dense).chain(steps).collect()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        if number < model.layers {
            let outputs = model.layer(number).1;
            return Box::new(formulas::Dense { outputs });
        }
        // The network drops the input of each step.
        Box::new(formulas::Appnp {
            edges: reads.edges,
            initial: Some(reads.initial),
            steps: 1,
            alpha: self.alpha,
            dropout: 0.0,
        })
    }
}
