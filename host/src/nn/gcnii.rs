//! Deep graph convolutions with initial residual and identity mapping (Chen, Wei, Huang, Ding and Li, ICML 2020):
//! `S = (1 − α) · Â · H + α · H⁰`, `H' = relu((1 − β) · S + β · S · W)` with `β = ln(λ / l + 1)` in layer `l`. A linear
//! layer before them makes `H⁰`, and another follows them.

use super::architecture::{Architecture, LayerOption, not_negative, probability, store};
use super::{ModelConfig, Norm};
use crate::program::layers::{self as formulas, Layer as Formula, LayerSetting, Reads};
use serde::{Deserialize, Serialize};

/// `relu((1 − β) · S + β · S · W)` with `S = (1 − α) · Â · H + α · H⁰`: 64 layers of 64 with dropout 0.6, α = 0.1 and λ
/// = 0.5. [`ModelConfig::layers`] counts the convolutions, without the linear layers before and after them.
///
/// The weight decay is that of the convolutions, and the linear layers have a twentieth of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gcnii {
    /// Share of the initial rows, in [0, 1).
    pub alpha: f32,
    /// How fast layers come near the identity, the paper's λ.
    pub theta: f32,
}

impl Default for Gcnii {
    fn default() -> Self {
        Self {
            alpha: 0.1,
            theta: 0.5,
        }
    }
}

impl Gcnii {
    /// β of convolution `number`, from 1 on.
    fn share_of_weights(&self, number: usize) -> f32 {
        libm::log1p(f64::from(self.theta) / number as f64) as f32
    }
}

impl Architecture for Gcnii {
    const NAME: &'static str = "gcnii";
    const TITLE: &'static str =
        "Deep graph convolutional network with initial residual (Chen et al.)";
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "alpha",
            value: "X",
            help: "share of the first layer's output in each sum [default: 0.1]",
            set: |gcnii, text| store(&mut gcnii.alpha, probability(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "theta",
            value: "X",
            help: "the λ of the paper: layer l has a share of ln(λ / l + 1) in its weights [default: 0.5]",
            set: |gcnii, text| store(&mut gcnii.theta, not_negative(text)),
            ..LayerOption::NONE
        },
    ];

    fn shape(&self, model: &mut ModelConfig) {
        (model.layers, model.dropout) = (64, 0.6);
    }

    fn norm(&self) -> Norm {
        Norm::Both
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn weight_decay(&self) -> f32 {
        1e-2
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        let Self { alpha, theta } = self;
        if !(0.0..1.0).contains(alpha) || !theta.is_finite() || *theta < 0.0 {
            return Err(format!(
                "α {alpha} should be in [0, 1), and λ {theta} a number from 0 on"
            ));
        }
        if !model.hidden_by_layer.is_empty() || !model.dropout_by_layer.is_empty() {
            return Err("GCNII's layers are of one width and one dropout; give one for all".into());
        }
        match (model.hidden, model.residual) {
            (0, _) => Err("a layer of width 0 computes nothing; give it at least 1".into()),
            (_, true) => {
                Err("GCNII has a residual connection of its own, to its first layer".into())
            }
            _ => Ok(()),
        }
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        let dense = |outputs| LayerSetting {
            decay: 0.05,
            ..LayerSetting::dense(outputs, model.dropout)
        };
        let first = LayerSetting {
            is_hidden: true,
            is_initial: true,
            ..dense(model.hidden)
        };
        let convolution = LayerSetting {
            aggregates: true,
            bias: false,
            is_hidden: true,
            ..LayerSetting::dense(model.hidden, model.dropout)
        };
        let convolutions = std::iter::repeat_n(convolution, model.layers);
        let last = dense(model.classes);
        let first = std::iter::once(first);
        first.chain(convolutions).chain([last]).collect()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        let dense = |outputs| Box::new(formulas::Dense { outputs }) as Box<dyn Formula>;
        match number {
            0 => dense(model.hidden),
            last if last > model.layers => dense(model.classes),
            convolution => Box::new(formulas::Gcnii {
                edges: reads.edges,
                initial: reads.initial,
                alpha: self.alpha,
                beta: self.share_of_weights(convolution),
            }),
        }
    }
}
