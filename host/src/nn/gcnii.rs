//! Deep graph convolutions with initial residual and identity mapping (Chen, Wei, Huang, Ding and Li, ICML 2020):
//! `S = (1 − α) · Â · H + α · H⁰`, `H' = relu((1 − β) · S + β · S · W)` with `β = ln(λ / l + 1)` in layer `l`, between two
//! linear layers, the first of which makes `H⁰`.

use super::aggregation::Aggregation;
use super::architecture::{Architecture, LayerOption, not_negative, probability, store};
use super::{
    Context, Dense, InputGradient, Kept, Layer, ModelConfig, Norm, Output, OutputGradient,
    Parameter, Place, Stage,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Addend, Combine, Epilogue, Form, SpmmEpilogue, SpmmPolicy};
use crate::program::layers::{self as formulas, Layer as Formula, LayerSetting, Reads};
use crate::tensor::{Element, Matrix};
use serde::{Deserialize, Serialize};

/// `relu((1 − β) · S + β · S · W)` with `S = (1 − α) · Â · H + α · H⁰`: 64 layers of 64 with dropout 0.6, α = 0.1 and
/// λ = 0.5. [`ModelConfig::layers`] counts the convolutions; a linear layer before and one behind them come beside.
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

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        let dense = |outputs| Some(Box::new(formulas::Dense { outputs }) as Box<dyn Formula>);
        match number {
            0 => dense(model.hidden),
            last if last > model.layers => dense(model.classes),
            convolution => Some(Box::new(formulas::Gcnii {
                edges: reads.edges,
                initial: reads.initial,
                alpha: self.alpha,
                beta: self.share_of_weights(convolution),
            })),
        }
    }

    fn stages<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        let last = model.layers + 1;
        let dense = |layer, widths| {
            let dense = Dense::new(backend, Place { layer, seed }, widths)?;
            let mut stage = Stage::new(dense).bias().dropout(model.dropout);
            stage.decay(0.05);
            Ok::<_, Error>(stage)
        };
        let mut stages = Vec::with_capacity(last + 1);
        stages.push(
            dense(0, (model.features, model.hidden))?
                .hidden(model)
                .initial(),
        );
        for layer in 1..last {
            let place = Place { layer, seed };
            let beta = self.share_of_weights(layer);
            let convolution = GcniiLayer::new(
                backend,
                place,
                model.hidden,
                [self.alpha, beta],
                model.policy,
            )?;
            stages.push(Stage::new(convolution).hidden(model).dropout(model.dropout));
        }
        stages.push(dense(last, (model.hidden, model.classes))?);
        Ok(stages)
    }
}

/// A convolution of a [`Gcnii`].
#[derive(Debug)]
pub struct GcniiLayer<B: Backend, E: Element> {
    alpha: f32,
    beta: f32,
    aggregation: Aggregation,
    weight: Parameter<B, E>,
    /// `S`
    mixed: Kept<B, E>,
}

impl<B: Backend, E: Element> GcniiLayer<B, E> {
    /// A layer of rows of `width` with the shares α and β.
    ///
    /// # Errors
    /// Those of [`Parameter::weights`].
    pub fn new(
        backend: &B,
        place: Place,
        width: usize,
        [alpha, beta]: [f32; 2],
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        let factor = 1.0 - alpha;
        Ok(Self {
            alpha,
            beta,
            aggregation: Aggregation { policy, factor },
            weight: place.weights(backend, "weight", (width, width), 0)?,
            mixed: Kept::new(backend, width)?,
        })
    }

    /// `β` times a product.
    fn share(&self) -> Epilogue<'static, B> {
        Epilogue {
            alpha: self.beta,
            ..Epilogue::default()
        }
    }

    /// `y + (1 − β) · x`
    fn identity(&self) -> Combine<'static, B> {
        Combine {
            x_factor: 1.0 - self.beta,
            ..Combine::sum()
        }
    }
}

impl<B: Backend, E: Element> Layer<B, E> for GcniiLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weight.shape()
    }

    fn hears_sums_alone(&self) -> bool {
        true
    }

    fn message_columns(&self) -> Option<usize> {
        Some(self.weight.shape().0)
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        let initial = SpmmEpilogue {
            addend: Some(Addend {
                matrix: at.initial()?,
                factor: self.alpha,
                row_scale: None,
                epsilon: None,
            }),
            ..SpmmEpilogue::default()
        };
        let mixed = self.mixed.room(backend, at.rows())?;
        self.aggregation.forward(at, false, initial, x, mixed)?;
        let (mixed, weight, y) = (self.mixed.get(), self.weight.values(), y.matrix());
        ops::matmul(backend, Form::NN, mixed, weight, &self.share(), y)?;
        ops::combine(backend, &self.identity(), mixed, y)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        let (share, identity) = (self.share(), self.identity());
        let (weight, gradient) = self.weight.values_and_gradient();
        dy.weight_gradient(self.beta, None, self.mixed.get(), gradient)?;
        let mut d_mixed = at.take(x.columns())?;
        ops::matmul(backend, Form::NT, dy.matrix(), weight, &share, &mut d_mixed)?;
        ops::combine(backend, &identity, dy.matrix(), &mut d_mixed)?;
        at.add_to_initial(self.alpha, &d_mixed)?;
        dx.aggregate(at, self.aggregation, false, &d_mixed)?;
        at.give(d_mixed);
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        vec![("mixed", self.mixed.get())]
    }
}
