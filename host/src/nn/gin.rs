//! The graph isomorphism network of Xu et al. (ICLR 2019), with the aggregation that HalfGNN (§4.3.1, eq. 4) has for half
//! precision: `H' = MLP((1 + ε) · H + λ · aggregate(H))`, the MLP two linear maps with a batch normalisation and a ReLU
//! between them.
//!
//! The aggregation and the first map are linear, so a layer does first what makes its rows narrower ([`Order`]).
//!
//! **Sums in range.** The mean of neighbours is as large as they are. A sum is as many times larger as there are
//! neighbours, and leaves the range of half on any hub. But it goes through a batch normalisation, whose output is the same
//! for any multiple of its input: so the sum is taken in float and stored times a power of two that brings a row of the
//! largest degree back into range.

use super::aggregation::{Aggregation, Order, Sending};
use super::architecture::{Architecture, LayerOption, finite, not_negative, stack, store};
use super::batch_norm::{BatchNormalization, Statistics};
use super::codes::LayerInput;
use super::messages::Direction;
use super::{
    Context, InputGradient, Kept, Layer, Mode, ModelConfig, Norm, Output, OutputGradient, OwnRows,
    Parameter, Place, Propagation, Stage, StoredCodes,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{
    self, Addend, Combine, Epilogue, Form, QuantizedMatrix, SpmmEpilogue, SpmmPolicy,
};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use crate::tensor::{Array, Element, Matrix, padded};
use serde::{Deserialize, Serialize};

/// `MLP((1 + ε) · H + λ · aggregate(H))` (Xu et al., ICLR 2019; HalfGNN eq. 4), the MLP with one batch normalisation: five
/// layers of 128 with dropout 0.5, the mean of the neighbours with λ = 0.1, and ε = −0.95, so that a vertex counts itself
/// half as much as its neighbours.
///
/// Half as wide it learns Cora as well, and Citeseer four points worse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gin {
    /// What is taken of the neighbours.
    pub aggregate: Aggregate,
    /// How much of it.
    pub lambda: f32,
    /// How much more than once a vertex counts itself.
    pub epsilon: f32,
    /// Whether `epsilon` is learnt, one a layer, from that value on.
    pub learn_epsilon: bool,
    /// What the batch normalisation evaluates with.
    pub statistics: Statistics,
}

impl Default for Gin {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
            lambda: 0.1,
            epsilon: -0.95,
            learn_epsilon: false,
            statistics: Statistics::Batch,
        }
    }
}

/// What is taken of the rows of a vertex's neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// Their mean, which is never larger than they are.
    #[default]
    Mean,
    /// Their sum, kept in the range of half by a power of two that the batch normalisation takes out again.
    Sum,
}

impl Gin {
    /// Takes the mean of the neighbours, with the default's λ and ε, or the sum, with the paper's, 1 and 0.
    fn aggregate_by(&mut self, aggregate: Aggregate) {
        let default = Self::default();
        (self.lambda, self.epsilon) = match aggregate {
            Aggregate::Mean => (default.lambda, default.epsilon),
            Aggregate::Sum => (1.0, 0.0),
        };
        self.aggregate = aggregate;
    }

    /// What the stored aggregation is of the true one: a power of two, such that a row of `degree` neighbours, each up
    /// to 64, stays within half.
    pub(crate) fn scale(&self, degree: u32) -> f32 {
        let mut scale = 1.0;
        if self.aggregate == Aggregate::Sum {
            while f64::from(degree) * f64::from(self.lambda.abs() * scale) > 1023.0 {
                scale *= 0.5;
            }
        }
        scale
    }
}

impl Architecture for Gin {
    const NAME: &'static str = "gin";
    const TITLE: &'static str = "Graph isomorphism network (Xu et al.)";
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "aggregate",
            value: "AGGREGATE",
            choices: &[("mean", "Their mean"), ("sum", "Their sum")],
            help: "what is taken of the neighbours [default: mean; sum of a model that tells whole graphs]",
            set: |gin, text| {
                gin.aggregate_by(match text {
                    "sum" => Aggregate::Sum,
                    _ => Aggregate::Mean,
                });
                Ok(())
            },
        },
        LayerOption {
            name: "lambda",
            value: "X",
            help: "how much of it [default: 0.1 of the mean, 1 of the sum]",
            set: |gin, text| store(&mut gin.lambda, not_negative(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "epsilon",
            value: "X",
            help: "how much more than once a vertex counts itself [default: -0.95; 0 with the sum]",
            set: |gin, text| store(&mut gin.epsilon, finite(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "learn-epsilon",
            help: "learn epsilon, one a layer",
            set: |gin, _| store(&mut gin.learn_epsilon, Ok(true)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "running-statistics",
            help: "evaluate with the running statistics of training, not with those of all vertices; always so where whole graphs are told",
            set: |gin, _| store(&mut gin.statistics, Ok(Statistics::Running)),
            ..LayerOption::NONE
        },
    ];

    fn tell_graphs(&mut self) {
        self.aggregate_by(Aggregate::Sum);
        self.statistics = Statistics::Running;
    }

    fn wants_all_vertices(&self) -> Option<&'static str> {
        (self.statistics == Statistics::Batch).then_some(
            "the batch normalisations of GIN take the statistics of all vertices, unless it is trained with running statistics",
        )
    }

    fn shape(&self, model: &mut ModelConfig) {
        (model.layers, model.hidden) = (5, 128);
    }

    fn norm(&self) -> Norm {
        match self.aggregate {
            Aggregate::Mean => Norm::Right,
            Aggregate::Sum => Norm::None,
        }
    }

    /// A GIN, which has four times the parameters a layer, learns few labels by heart without a larger one.
    fn weight_decay(&self) -> f32 {
        1e-2
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        let (lambda, epsilon) = (self.lambda, self.epsilon);
        if lambda.is_finite() && epsilon.is_finite() {
            return Ok(());
        }
        Err(format!("λ {lambda} and ε {epsilon} should be finite"))
    }

    fn sum_scale(&self, largest_degree: u32) -> f32 {
        self.scale(largest_degree)
    }

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        Some(Box::new(formulas::Gin {
            edges: reads.edges,
            hidden: model.hidden_of(number),
            outputs: model.layer(number).1,
            options: self.clone(),
        }))
    }

    fn stages<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        stack(model, seed, |place, (inputs, outputs)| {
            let widths = [inputs, model.hidden_of(place.layer), outputs];
            GinLayer::new(backend, place, widths, self, model.policy)
        })
    }
}

impl ModelConfig {
    /// A graph isomorphism network: see [`Gin`].
    pub fn gin(features: usize, classes: usize) -> Self {
        Self::of(Gin::default(), features, classes)
    }
}

/// Rows of a layer that transforms first, which are sent, and added to what is heard.
const SENT: Sending = Sending {
    direction: Direction::Forward,
    scaled: false,
    alone: false,
};

/// The name of the running statistics.
const RUNNING: &str = "norm.running";

/// The layer of a [`Gin`].
#[derive(Debug)]
pub struct GinLayer<B: Backend, E: Element> {
    gin: Gin,
    policy: SpmmPolicy,
    epsilon: Option<Parameter<B, E>>,
    first: Parameter<B, E>,
    norm: BatchNormalization<B, E>,
    second: Parameter<B, E>,
    /// `H · W₁`, where the layer transforms first and the gradient of ε wants it.
    transformed: Option<Kept<B, E>>,
    /// The aggregation of `H`, where the layer aggregates first.
    aggregated: Option<Kept<B, E>>,
    /// What is normalised, by the products of the second map that read it.
    between: Kept<B, E>,
    /// Where the backward pass reads codes of that, which has no rows then but while they are made.
    between_codes: Option<StoredCodes<B>>,
}

impl<B: Backend, E: Element> GinLayer<B, E> {
    /// A layer of so many inputs, columns between the two linear maps, and outputs.
    ///
    /// # Errors
    /// Those of [`Parameter::weights`].
    pub fn new(
        backend: &B,
        place: Place,
        [inputs, hidden, outputs]: [usize; 3],
        gin: &Gin,
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        let epsilon = if gin.learn_epsilon {
            let mut epsilon = Parameter::bias(backend, "epsilon".into(), 1)?;
            epsilon.write(backend, &[gin.epsilon])?;
            Some(epsilon)
        } else {
            None
        };
        let (transformed, aggregated) = match Order::choose(inputs, hidden, policy) {
            Order::AggregateFirst => (None, Some(Kept::new(backend, inputs)?)),
            Order::TransformFirst if gin.learn_epsilon => (Some(Kept::new(backend, hidden)?), None),
            Order::TransformFirst => (None, None),
        };
        Ok(Self {
            gin: gin.clone(),
            policy,
            epsilon,
            first: place.weights(backend, "mlp.0.weight", (inputs, hidden), 0)?,
            norm: BatchNormalization::new(
                backend,
                hidden,
                gin.statistics,
                true,
                ["norm.weight", "norm.bias"].map(String::from),
            )?,
            second: place.weights(backend, "mlp.1.weight", (hidden, outputs), 1)?,
            transformed,
            aggregated,
            between: Kept::new(backend, hidden)?,
            between_codes: None,
        })
    }
}

/// `(1 + ε) · x + λ · aggregate(x)`, times a scale, and its gradient.
struct SelfAndNeighbours<'a, B: Backend> {
    neighbours: Aggregation,
    scale: f32,
    /// `1 + ε` where it is fixed.
    factor: f32,
    epsilon: Option<&'a Matrix<B, f32>>,
}

/// A gradient's rows, multiplied by `f[i] = power · R[i]` where they are computed, for the backward pass of a mean:
/// `dx = (1 + ε) · d + λ · Aᵀ · R · d` becomes `(1 + ε) / f · (f · d) + λ / power · Aᵀ · (f · d)`. So the factor of each column
/// is a factor of a row, of which there are fewer than edges, and the SpMM has none to look up.
///
/// In half `f` must not be far from 1 for any row: with `R` alone, one over the degree, the rows of a hub of 85,059 would be
/// subnormal where `d` is still in the middle of half's range, and with `R` times the largest degree, rows of lonely vertices
/// would overflow first, and the loss scale would leave the hub no more digits than before. The power is half way, by
/// exponents: rows are at most 2⁸ or so away from `d`, on either side.
struct ScaledRows<'a, B: Backend> {
    power: f32,
    row_scale: Option<&'a Array<B, f32>>,
    row_divisor: Option<&'a Array<B, f32>>,
}

impl<B: Backend> ScaledRows<'_, B> {
    /// The rows as they are.
    const NONE: Self = Self {
        power: 1.0,
        row_scale: None,
        row_divisor: None,
    };
}

impl<'a, B: Backend> ScaledRows<'a, B> {
    /// `None` where rows have no factors.
    fn of(backend: &B, graph: &'a Propagation<B>) -> Result<Option<Self>, Error> {
        let factors = graph.row_scale().zip(graph.row_divisor(backend)?);
        Ok(factors.map(|(row_scale, row_divisor)| Self {
            power: balancing_power(graph.largest_degree()),
            row_scale: Some(row_scale),
            row_divisor: Some(row_divisor),
        }))
    }

    /// What a product does that makes such rows.
    fn product(&self) -> Epilogue<'a, B> {
        Epilogue {
            alpha: self.power,
            row_scale: self.row_scale,
            ..Epilogue::default()
        }
    }
}

/// The power of two next to the square root of the largest degree, or the one below.
pub(crate) fn balancing_power(largest_degree: u32) -> f32 {
    let exponent = largest_degree.max(1).ilog2() / 2;
    (1_u32 << exponent) as f32
}

impl<'a, B: Backend> SelfAndNeighbours<'a, B> {
    fn new<E: Element>(
        gin: &Gin,
        policy: SpmmPolicy,
        epsilon: Option<&'a Parameter<B, E>>,
        at: &Context<'_, B, E>,
    ) -> Result<Self, Error> {
        let scale = gin.scale(at.graph()?.largest_degree());
        Ok(Self {
            neighbours: Aggregation {
                policy,
                factor: gin.lambda * scale,
            },
            scale,
            factor: match epsilon {
                Some(_) => 1.0,
                None => 1.0 + gin.epsilon,
            },
            epsilon: epsilon.map(Parameter::master),
        })
    }

    /// The multiple of `x` that is added to the sum.
    fn own<'x, E: Element>(&self, x: &'x Matrix<B, E>) -> Addend<'x, B, E>
    where
        'a: 'x,
    {
        Addend {
            matrix: x,
            factor: self.scale * self.factor,
            row_scale: None,
            epsilon: self.epsilon,
        }
    }

    fn forward<E: Element>(
        &self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let epilogue = SpmmEpilogue {
            addend: Some(self.own(x)),
            ..SpmmEpilogue::default()
        };
        self.neighbours.forward(at, false, epilogue, x, y)
    }

    /// From `d`, whose rows are multiplied `ahead`.
    fn backward<E: Element>(
        &self,
        at: &mut Context<'_, B, E>,
        scaling: &ScaledRows<'_, B>,
        d: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let own = self.own(d);
        let own = Addend {
            factor: own.factor / scaling.power,
            row_scale: scaling.row_divisor,
            ..own
        };
        let neighbours = Aggregation {
            factor: self.neighbours.factor / scaling.power,
            ..self.neighbours
        };
        let scaled = scaling.row_scale.is_some();
        if d.rows() == dx.rows() {
            let epilogue = SpmmEpilogue {
                addend: Some(own),
                ..SpmmEpilogue::default()
            };
            return neighbours.backward(at, scaled, epilogue, d, dx);
        }
        // Not every source has a row of its own in `d`.
        neighbours.backward(at, scaled, SpmmEpilogue::default(), d, dx)?;
        let own = Combine {
            x_factor: own.factor,
            epsilon: own.epsilon,
            x_scale: own.row_scale,
            y_factor: 1.0,
        };
        ops::combine_rows(at.backend, d.rows(), &own, d, dx)
    }
}

impl<B: Backend, E: Element> GinLayer<B, E> {
    fn backward_of_input(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: LayerInput<'_, B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let (inputs, hidden) = self.first.shape();
        let normalization = self.norm.op();
        let (second, gradient) = self.second.values_and_gradient();
        // In codes where they are stored so: then their numbers have a copy until the largest other one is wanted.
        let between = match &self.between_codes {
            Some(codes) => OwnRows::Copied(codes.widened(backend, at.pool)?),
            None => OwnRows::All(self.between.get()),
        };
        dy.weight_gradient(1.0, Some(&normalization), &between, gradient)?;
        let mut d_between = at.take(hidden)?;
        let (d, form) = (dy.matrix(), Form::NT);
        ops::matmul(backend, form, d, second, &plain, &mut d_between)?;
        // The gradient of ε wants to see the rows as they are, and so does that of the first map, if it comes after the
        // aggregation.
        let scaling = match &self.epsilon {
            Some(_) => ScaledRows::NONE,
            None => ScaledRows::of(backend, at.graph()?)?.unwrap_or(ScaledRows::NONE),
        };
        let factors = match self.aggregated {
            Some(_) => (1.0, None),
            None => (scaling.power, scaling.row_scale),
        };
        let sending = Sending {
            direction: Direction::Backward,
            scaled: scaling.row_scale.is_some(),
            alone: false,
        };
        let (rows, graph) = (d_between.rows(), at.graph()?);
        let mut messages = at.messages.take();
        let coding = match &self.aggregated {
            Some(_) => None,
            None => {
                let messages = messages.as_deref_mut();
                sending.coding(backend, messages, at.pool, at.mode, graph, rows)?
            }
        };
        self.norm
            .backward(at, &between, &mut d_between, factors, coding)?;
        at.messages = messages;
        at.give_rows(between);

        let sum = SelfAndNeighbours::new(&self.gin, self.policy, self.epsilon.as_ref(), at)?;
        let scale = sum.scale;
        let (first, gradient) = self.first.values_and_gradient();
        let Some(aggregated) = &self.aggregated else {
            let sources = at.sources(x.rows());
            let mut d_transformed = at.pool.take(backend, (sources, hidden))?;
            sum.backward(at, &scaling, &d_between, &mut d_transformed)?;
            if let (Some(epsilon), Some(transformed)) = (&mut self.epsilon, &self.transformed) {
                let (own, gradient) = (at.own_rows(transformed.get())?, epsilon.gradient_mut());
                ops::dot(backend, scale, &d_between, &own, gradient)?;
                at.give_rows(own);
            }
            at.give(d_between);
            let d_transformed = at.fold(d_transformed)?;
            dx.product(at, &d_transformed, first)?;
            x.weight_gradient(backend, &d_transformed, gradient)?;
            at.give(d_transformed);
            return Ok(());
        };
        let aggregated = aggregated.get();
        ops::matmul(backend, Form::TN, aggregated, &d_between, &plain, gradient)?;
        if !dx.is_wanted() && self.epsilon.is_none() {
            at.give(d_between);
            return Ok(());
        }
        let mut d_aggregated = at.take(inputs)?;
        let (d, d_x, scaled) = (&d_between, &mut d_aggregated, scaling.product());
        if dx.is_wanted() {
            sending.product(at, Form::NT, [d, first], &scaled, d_x)?;
        } else {
            ops::matmul(backend, Form::NT, d, first, &scaled, d_x)?;
        }
        at.give(d_between);
        if dx.is_wanted() {
            let dx = dx.matrix(at)?;
            sum.backward(at, &scaling, &d_aggregated, dx)?;
        }
        if let Some(epsilon) = &mut self.epsilon {
            let own = at.own_rows_of(x)?;
            ops::dot(backend, scale, &d_aggregated, &own, epsilon.gradient_mut())?;
            at.give_rows(own);
        }
        at.give(d_aggregated);
        Ok(())
    }
}

impl<B: Backend, E: Element> Layer<B, E> for GinLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        (self.first.shape().0, self.second.shape().1)
    }

    fn hears_sums_alone(&self) -> bool {
        true
    }

    fn exchanges_products(&self, _graph: &Propagation<B>) -> bool {
        let (inputs, width) = self.first.shape();
        self.aggregated.is_none() && width <= padded::<E>(inputs)
    }

    fn message_columns(&self) -> Option<usize> {
        let (inputs, hidden) = self.first.shape();
        Some(match &self.aggregated {
            Some(_) => inputs,
            None => hidden,
        })
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, rows, plain) = (at.backend, at.rows(), Epilogue::default());
        let sum = SelfAndNeighbours::new(&self.gin, self.policy, self.epsilon.as_ref(), at)?;
        let (first, hidden) = (self.first.values(), self.first.shape().1);
        if self.between_codes.is_some() {
            let nothing = self.between.put(at.pool.take(backend, (rows, hidden))?);
            at.give(nothing);
        }
        let between = self.between.room(backend, rows)?;
        if let Some(aggregated) = &mut self.aggregated {
            let aggregated = aggregated.room(backend, rows)?;
            sum.forward(at, x, aggregated)?;
            ops::matmul(backend, Form::NN, aggregated, first, &plain, between)?;
        } else if let Some(transformed) = &mut self.transformed {
            let transformed = transformed.room(backend, at.sources(x.rows()))?;
            at.product_of_sources(SENT, (x, first), &plain, transformed)?;
            sum.forward(at, transformed, between)?;
        } else {
            let sources = at.sources(x.rows());
            let mut transformed = at.pool.take(backend, (sources, hidden))?;
            at.product_of_sources(SENT, (x, first), &plain, &mut transformed)?;
            sum.forward(at, &transformed, between)?;
            at.give(transformed);
        }
        let scale = sum.scale;
        self.norm.forward(at, scale, between)?;
        self.repeat(at, y)?;
        if let Some(codes) = &mut self.between_codes {
            let nothing = at.pool.take(backend, (0, hidden))?;
            let between = self.between.put(nothing);
            if let Mode::Train { .. } = at.mode {
                codes.keep(backend, &between)?;
            }
            at.give(between);
        }
        Ok(())
    }

    fn stored(&self) -> Vec<&StoredCodes<B>> {
        self.between_codes.iter().collect()
    }

    fn repeats(&self) -> bool {
        self.between_codes.is_none()
    }

    fn repeat(&self, _at: &mut Context<'_, B, E>, y: &mut Output<'_, B, E>) -> Result<(), Error> {
        let normalization = self.norm.op();
        let (between, second) = (self.between.get(), self.second.values());
        y.product(Some(&normalization), between, second)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        self.backward_of_input(at, LayerInput::Elements(x), dy, dx)
    }

    fn store_codes(&mut self, backend: &B) -> Result<bool, Error> {
        self.between_codes = Some(StoredCodes::new(backend, self.first.shape().1)?);
        Ok(true)
    }

    fn backward_of_codes(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &QuantizedMatrix<B>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        self.backward_of_input(at, LayerInput::Codes(x), dy, dx)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        let [weight, bias] = self.norm.parameters();
        let all = [&self.first, weight, bias, &self.second];
        self.epsilon.iter().chain(all).collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        let [weight, bias] = self.norm.parameters_mut();
        let all = [&mut self.first, weight, bias, &mut self.second];
        self.epsilon.iter_mut().chain(all).collect()
    }

    fn buffers(&self) -> Vec<(&'static str, &Matrix<B, f32>)> {
        vec![(RUNNING, self.norm.running())]
    }

    fn buffers_mut(&mut self) -> Vec<(&'static str, &mut Matrix<B, f32>)> {
        vec![(RUNNING, self.norm.running_mut())]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let transformed = self.transformed.iter();
        let aggregated = self.aggregated.iter();
        transformed
            .map(|kept| ("transformed", kept.get()))
            .chain(aggregated.map(|kept| ("aggregated", kept.get())))
            .chain([("between", self.between.get())])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ahead_stay_near_the_middle_of_half() {
        for largest in [0, 1, 2, 3, 4, 1_000, 85_059, u32::MAX] {
            let power = balancing_power(largest);
            assert_eq!(power.log2().fract(), 0.0, "{largest}");
            let degree = f64::from(largest.max(1));
            let (most, least) = (f64::from(power), f64::from(power) / degree);
            assert!(most <= degree.sqrt() && most * least >= 0.25, "{largest}");
        }
        assert_eq!(balancing_power(85_059), 256.0);
    }

    #[test]
    fn sums_of_hubs_are_scaled_into_half() {
        let mut shape = Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: 0.0,
            ..Gin::default()
        };
        assert_eq!([0, 1023].map(|degree| shape.scale(degree)), [1.0; 2]);
        assert_eq!(shape.scale(1024), 0.5);
        assert!(64.0 * 85_059.0 * shape.scale(85_059) < 65_504.0);
        shape.lambda = 0.1;
        assert_eq!(shape.scale(10_000), 1.0);
        shape.aggregate = Aggregate::Mean;
        assert_eq!(shape.scale(u32::MAX), 1.0);
    }
}
