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

use super::batch_norm::NormalizedRelu;
use super::config::{Aggregate, Statistics};
use super::convolution::{Aggregation, Blueprint, Context, Convolution, Order, Place};
use super::{MemoryPlan, Parameter, Propagation};
use crate::backend::{
    Addend, Backend, Beside, Epilogue, Form, MemoryKind, SpmmEpilogue, SpmmPolicy,
};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Array, Element, Matrix};

/// The shape of a [`GinConvolution`].
#[derive(Clone, Copy, Debug)]
pub(super) struct GinBlueprint {
    pub(super) inputs: usize,
    /// Width between the two linear maps.
    pub(super) hidden: usize,
    pub(super) outputs: usize,
    pub(super) policy: SpmmPolicy,
    pub(super) aggregate: Aggregate,
    pub(super) lambda: f32,
    pub(super) epsilon: f32,
    pub(super) learn_epsilon: bool,
    pub(super) statistics: Statistics,
}

impl GinBlueprint {
    fn order(&self) -> Order {
        Order::choose(self.inputs, self.hidden, self.policy)
    }

    /// Width of the aggregation.
    fn width(&self) -> usize {
        self.order().width(self.inputs, self.hidden)
    }

    pub(super) fn make<B: Backend, E: Element>(
        &self,
        backend: &B,
        place: Place,
    ) -> Result<GinConvolution<B, E>, Error> {
        let activations =
            |columns| Matrix::zeros(backend, place.vertices, columns, MemoryKind::Activations);
        let epsilon = if self.learn_epsilon {
            let mut epsilon = Parameter::bias(backend, place.name("epsilon"), 1)?;
            epsilon.write(backend, &[self.epsilon])?;
            Some(epsilon)
        } else {
            None
        };
        let order = self.order();
        Ok(GinConvolution {
            shape: *self,
            epsilon,
            first: place.weights(backend, "mlp.0.weight", (self.inputs, self.hidden), 0)?,
            norm: NormalizedRelu::new(backend, place, self.hidden, self.statistics)?,
            second: place.weights(backend, "mlp.1.weight", (self.hidden, self.outputs), 1)?,
            transformed: if order == Order::TransformFirst && self.learn_epsilon {
                Some(activations(self.hidden)?)
            } else {
                None
            },
            aggregated: match order {
                Order::AggregateFirst => Some(activations(self.inputs)?),
                Order::TransformFirst => None,
            },
            between: activations(self.hidden)?,
        })
    }

    /// What the stored aggregation is of the true one: a power of two, such that a row of `degree` neighbours, each up
    /// to 64, stays within half.
    fn scale(&self, degree: u32) -> f32 {
        let mut scale = 1.0;
        if self.aggregate == Aggregate::Sum {
            while f64::from(degree) * f64::from(self.lambda.abs() * scale) > 1023.0 {
                scale *= 0.5;
            }
        }
        scale
    }
}

impl Blueprint for GinBlueprint {
    fn keeps(&self, plan: &mut MemoryPlan) {
        if self.learn_epsilon {
            plan.bias(1);
        }
        plan.weights(self.inputs, self.hidden);
        plan.batch_norm(self.hidden);
        plan.weights(self.hidden, self.outputs);
        plan.aggregation(self.width(), None);
        if self.order() == Order::AggregateFirst || self.learn_epsilon {
            plan.keep(self.width());
        }
        plan.keep(self.hidden);
    }

    fn forward(&self, plan: &mut MemoryPlan) {
        if self.order() == Order::TransformFirst && !self.learn_epsilon {
            plan.take(self.hidden);
            plan.give(self.hidden);
        }
    }

    fn repeats(&self) -> bool {
        true
    }

    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool) {
        plan.take(self.hidden);
        match self.order() {
            Order::TransformFirst => {
                plan.take(self.hidden);
                plan.give(self.hidden);
                if wants_input {
                    plan.take(self.inputs);
                }
                plan.give(self.hidden);
            }
            Order::AggregateFirst => {
                let lent = wants_input || self.learn_epsilon;
                if lent {
                    plan.take(self.inputs);
                }
                plan.give(self.hidden);
                if wants_input {
                    plan.take(self.inputs);
                }
                if lent {
                    plan.give(self.inputs);
                }
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct GinConvolution<B: Backend, E: Element> {
    shape: GinBlueprint,
    epsilon: Option<Parameter<B, E>>,
    first: Parameter<B, E>,
    norm: NormalizedRelu<B, E>,
    second: Parameter<B, E>,
    /// `H · W₁`, where the layer transforms first and the gradient of ε wants it.
    transformed: Option<Matrix<B, E>>,
    /// The aggregation of `H`, where the layer aggregates first.
    aggregated: Option<Matrix<B, E>>,
    /// What is normalised, by the products of the second map that read it.
    between: Matrix<B, E>,
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
struct Ahead<'a, B: Backend> {
    power: f32,
    row_scale: Option<&'a Array<B, f32>>,
    row_divisor: Option<&'a Array<B, f32>>,
}

impl<B: Backend> Ahead<'_, B> {
    /// The rows as they are.
    const NONE: Self = Self {
        power: 1.0,
        row_scale: None,
        row_divisor: None,
    };
}

impl<'a, B: Backend> Ahead<'a, B> {
    /// `None` where rows have no factors.
    fn of(graph: &'a Propagation<B>) -> Option<Self> {
        Some(Self {
            power: Ahead::<B>::power(graph.largest_degree()),
            row_scale: Some(graph.row_scale()?),
            row_divisor: Some(graph.row_divisor()?),
        })
    }

    /// What a product does that makes such rows.
    fn product(&self) -> Epilogue<'a, B> {
        Epilogue {
            alpha: self.power,
            row_scale: self.row_scale,
            ..Epilogue::default()
        }
    }

    /// The power of two next to the square root of the largest degree, or the one below.
    fn power(largest_degree: u32) -> f32 {
        let exponent = largest_degree.max(1).ilog2() / 2;
        (1_u32 << exponent) as f32
    }
}

impl<'a, B: Backend> SelfAndNeighbours<'a, B> {
    fn new<E: Element>(
        shape: &GinBlueprint,
        epsilon: Option<&'a Parameter<B, E>>,
        at: &Context<'_, B, E>,
    ) -> Self {
        let scale = shape.scale(at.graph.largest_degree());
        Self {
            neighbours: Aggregation {
                policy: shape.policy,
                factor: shape.lambda * scale,
            },
            scale,
            factor: match epsilon {
                Some(_) => 1.0,
                None => 1.0 + shape.epsilon,
            },
            epsilon: epsilon.map(Parameter::master),
        }
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
        at: &Context<'_, B, E>,
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
        at: &Context<'_, B, E>,
        ahead: &Ahead<'_, B>,
        d: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let own = self.own(d);
        let epilogue = SpmmEpilogue {
            addend: Some(Addend {
                factor: own.factor / ahead.power,
                row_scale: ahead.row_divisor,
                ..own
            }),
            ..SpmmEpilogue::default()
        };
        let neighbours = Aggregation {
            factor: self.neighbours.factor / ahead.power,
            ..self.neighbours
        };
        neighbours.backward(at, ahead.row_scale.is_some(), epilogue, d, dx)
    }
}

impl<B: Backend, E: Element> Convolution<B, E> for GinConvolution<B, E> {
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let plain = Epilogue::default();
        let sum = SelfAndNeighbours::new(&self.shape, self.epsilon.as_ref(), at);
        let (first, between) = (self.first.values(), &mut self.between);
        if let Some(aggregated) = &mut self.aggregated {
            sum.forward(at, x, aggregated)?;
            ops::matmul(at.backend, Form::NN, aggregated, first, &plain, between)?;
        } else if let Some(transformed) = &mut self.transformed {
            ops::matmul(at.backend, Form::NN, x, first, &plain, transformed)?;
            sum.forward(at, transformed, between)?;
        } else {
            let mut transformed = at.take(self.shape.hidden)?;
            ops::matmul(at.backend, Form::NN, x, first, &plain, &mut transformed)?;
            sum.forward(at, &transformed, between)?;
            at.pool.give(transformed);
        }
        let scale = sum.scale;
        self.norm.forward(at, scale, between)?;
        self.repeat(at, y)
    }

    fn repeat(&self, at: &mut Context<'_, B, E>, y: &mut Matrix<B, E>) -> Result<(), Error> {
        let (between, second) = (&self.between, self.second.values());
        let normalization = self.norm.op();
        let beside = Beside {
            normalization: Some(&normalization),
            ..Beside::default()
        };
        let (backend, epilogue) = (at.backend, at.epilogue());
        ops::matmul_beside(backend, Form::NN, between, second, &epilogue, beside, y)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        wants_input: bool,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let (normalization, gradient) = (self.norm.op(), self.second.gradient_mut());
        at.weight_gradient_behind(Some(&normalization), &self.between, d, gradient)?;
        let mut d_between = at.take(self.shape.hidden)?;
        let second = self.second.values();
        ops::matmul(backend, Form::NT, d, second, &plain, &mut d_between)?;
        // The gradient of ε wants to see the rows as they are, and so does that of the first map, if it comes after the
        // aggregation.
        let ahead = match &self.epsilon {
            Some(_) => Ahead::NONE,
            None => Ahead::of(at.graph).unwrap_or(Ahead::NONE),
        };
        let factors = match self.aggregated {
            Some(_) => (1.0, None),
            None => (ahead.power, ahead.row_scale),
        };
        self.norm
            .backward(at, &self.between, &mut d_between, factors)?;

        let sum = SelfAndNeighbours::new(&self.shape, self.epsilon.as_ref(), at);
        let scale = sum.scale;
        let Some(aggregated) = &self.aggregated else {
            let mut d_transformed = at.take(self.shape.hidden)?;
            sum.backward(at, &ahead, &d_between, &mut d_transformed)?;
            if let (Some(epsilon), Some(transformed)) = (&mut self.epsilon, &self.transformed) {
                let gradient = epsilon.gradient_mut();
                ops::dot(backend, scale, &d_between, transformed, gradient)?;
            }
            at.pool.give(d_between);
            at.weight_gradient(x, &d_transformed, self.first.gradient_mut())?;
            let dx = if wants_input {
                Some(at.input_gradient(x, &d_transformed, self.first.values())?)
            } else {
                None
            };
            at.pool.give(d_transformed);
            return Ok(dx);
        };
        at.weight_gradient(aggregated, &d_between, self.first.gradient_mut())?;
        if !wants_input && self.epsilon.is_none() {
            at.pool.give(d_between);
            return Ok(None);
        }
        let mut d_aggregated = at.take(self.shape.inputs)?;
        let (first, scaled) = (self.first.values(), ahead.product());
        let (d, d_x) = (&d_between, &mut d_aggregated);
        ops::matmul(backend, Form::NT, d, first, &scaled, d_x)?;
        at.pool.give(d_between);
        let dx = if wants_input {
            let mut dx = at.take(self.shape.inputs)?;
            sum.backward(at, &ahead, &d_aggregated, &mut dx)?;
            Some(dx)
        } else {
            None
        };
        if let Some(epsilon) = &mut self.epsilon {
            ops::dot(backend, scale, &d_aggregated, x, epsilon.gradient_mut())?;
        }
        at.pool.give(d_aggregated);
        Ok(dx)
    }

    fn sums_columns(&self) -> bool {
        true
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
        self.norm.buffers()
    }

    fn buffers_mut(&mut self) -> Vec<(&'static str, &mut Matrix<B, f32>)> {
        self.norm.buffers_mut()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let transformed = self.transformed.iter().map(|kept| ("transformed", kept));
        let aggregated = self.aggregated.iter().map(|kept| ("aggregated", kept));
        transformed
            .chain(aggregated)
            .chain([("between", &self.between)])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;

    #[test]
    fn rows_ahead_stay_near_the_middle_of_half() {
        for largest in [0, 1, 2, 3, 4, 1_000, 85_059, u32::MAX] {
            let power = Ahead::<Cpu>::power(largest);
            assert_eq!(power.log2().fract(), 0.0, "{largest}");
            let degree = f64::from(largest.max(1));
            let (most, least) = (f64::from(power), f64::from(power) / degree);
            assert!(most <= degree.sqrt() && most * least >= 0.25, "{largest}");
        }
        assert_eq!(Ahead::<Cpu>::power(85_059), 256.0);
    }

    #[test]
    fn sums_of_hubs_are_scaled_into_half() {
        let mut shape = GinBlueprint {
            inputs: 4,
            hidden: 4,
            outputs: 4,
            policy: SpmmPolicy::default(),
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: 0.0,
            learn_epsilon: false,
            statistics: Statistics::Batch,
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
