//! The graph attention network of Veličković et al. (ICLR 2018): each vertex takes the mean of what it hears, weighted by
//! a softmax of scores that two learnt vectors give to destination and source.
//!
//! `h = H · W`, `e(i,j) = LeakyReLU(a_d · h_i + a_s · h_j)`, `α(i, ·) = softmax(e(i, ·))`, `y_i = Σ_j α(i,j) · h_j`, for
//! several heads side by side, which are concatenated or, in the last layer, averaged.
//!
//! No array of edges is stored, neither here nor in the gradient: the weights are computed inside the SpMM from a few floats
//! a vertex, by [`ops::Attention`], whose page has the formulas.

use super::convolution::{Blueprint, Context, Convolution, Place, dropout};
use super::{MemoryPlan, Mode, Parameter};
use crate::backend::cpu::Cpu;
use crate::backend::{Backend, Epilogue, Form, MemoryKind, SpmmPolicy};
use crate::error::Error;
use crate::ops::{self, Attention, AttentionBackward, AttentionForward};
use crate::tensor::{Element, Matrix, padded};

/// Tells attention's dropout from those of features.
const ATTENTION_DROPOUT: u32 = 1 << 16;

/// The shape of a [`GatConvolution`].
#[derive(Clone, Copy, Debug)]
pub(super) struct GatBlueprint {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) vertices: usize,
    pub(super) heads: usize,
    /// Whether the outputs are the mean of the heads, and not all of them.
    pub(super) averaged: bool,
    pub(super) slope: f32,
    pub(super) dropout: f32,
    pub(super) policy: SpmmPolicy,
}

impl GatBlueprint {
    /// Columns of a head that hold something.
    fn head(&self) -> usize {
        if self.averaged {
            self.outputs
        } else {
            self.outputs / self.heads
        }
    }

    /// Columns of all heads; each but a single one begins at a whole vector.
    fn width<E: Element>(&self) -> usize {
        match self.heads {
            1 => self.outputs,
            heads => heads * padded::<E>(self.head()),
        }
    }

    /// Values of a matrix of `rows` rows and all heads' columns, zero where a head is padded.
    fn spread<E: Element>(&self, rows: usize, values: &[f32]) -> Vec<f32> {
        let (head, width) = (self.head(), self.width::<E>());
        let distance = width / self.heads;
        let mut all = vec![0.0; rows * width];
        for (k, &value) in values.iter().enumerate() {
            let (row, column) = (k / (self.heads * head), k % (self.heads * head));
            all[row * width + column / head * distance + column % head] = value;
        }
        all
    }

    pub(super) fn make<B: Backend, E: Element>(
        &self,
        backend: &B,
        place: Place,
    ) -> Result<GatConvolution<B, E>, Error> {
        let (kind, width) = (MemoryKind::Activations, self.width::<E>());
        let columns = self.heads * self.head();
        let features = || Matrix::zeros(backend, place.vertices, width, kind);
        let weight =
            Parameter::weights(backend, place.name("weight"), (self.inputs, width), || {
                let weights = place.glorot((self.inputs, columns), 0);
                self.spread::<E>(self.inputs, &weights)
            })?;
        let vectors = Parameter::weights(backend, place.name("attention"), (2, width), || {
            // Of each end of an edge a matrix of heads × columns of a head.
            let vector = |number| place.glorot((self.heads, self.head()), number);
            self.spread::<E>(2, &[vector(1), vector(2)].concat())
        })?;
        Ok(GatConvolution {
            shape: *self,
            weight,
            vectors,
            transformed: features()?,
            heard: features()?,
            positive: features()?,
            softmax: Attention::new(backend, place.vertices, self.heads, self.slope)?
                .with_policy(self.policy),
            dropout: (self.dropout, ATTENTION_DROPOUT + place.layer as u32),
        })
    }
}

impl Blueprint for GatBlueprint {
    fn keeps(&self, plan: &mut MemoryPlan) {
        let width = plan.heads(self.heads, self.head(), self.outputs);
        plan.weights(self.inputs, width);
        plan.rounded(2, width);
        plan.aggregation(width, Some(self.heads));
        (0..3).for_each(|_| plan.keep(width));
        plan.numbers(Attention::<Cpu>::floats(self.vertices, self.heads));
    }

    fn forward(&self, _plan: &mut MemoryPlan) {}

    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool) {
        let width = plan.heads(self.heads, self.head(), self.outputs);
        let planes = self.heads * self.vertices;
        if self.averaged && self.heads > 1 {
            plan.take(width);
        }
        (0..3).for_each(|_| plan.take_numbers(planes));
        plan.take(width);
        plan.take(width);
        plan.give(width);
        (0..3).for_each(|_| plan.give_numbers(planes));
        if self.averaged && self.heads > 1 {
            plan.give(width);
        }
        if wants_input {
            plan.take(self.inputs);
        }
        plan.give(width);
    }
}

#[derive(Debug)]
pub(super) struct GatConvolution<B: Backend, E: Element> {
    shape: GatBlueprint,
    weight: Parameter<B, E>,
    /// The attention vectors of destination and source, a row each.
    vectors: Parameter<B, E>,
    /// `H · W`
    transformed: Matrix<B, E>,
    /// What each vertex has heard, all heads side by side.
    heard: Matrix<B, E>,
    /// What it has heard along the edges of positive sum of scores.
    positive: Matrix<B, E>,
    softmax: Attention<B>,
    /// Probability of an edge to be dropped, and what tells this dropout from others.
    dropout: (f32, u32),
}

impl<B: Backend, E: Element> GatConvolution<B, E> {
    /// Whether the output is made from `heard`, and is not `heard` itself.
    fn is_averaged(&self) -> bool {
        self.shape.averaged && self.shape.heads > 1
    }
}

impl<B: Backend, E: Element> Convolution<B, E> for GatConvolution<B, E> {
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, heads) = (at.backend, self.shape.heads);
        let plain = Epilogue::default();
        let (weight, h) = (self.weight.values(), &mut self.transformed);
        ops::matmul(backend, Form::NN, x, weight, &plain, h)?;
        let (probability, number) = self.dropout;
        let of = AttentionForward {
            h,
            vectors: self.vectors.values(),
            dropout: dropout(probability, number, at.mode),
            y: &mut self.heard,
            positive: match at.mode {
                Mode::Train { .. } => Some(&mut self.positive),
                Mode::Evaluate => None,
            },
        };
        self.softmax.forward(backend, at.graph.forward(), of)?;
        if self.is_averaged() {
            ops::head_mean(backend, heads, &self.heard, y)?;
        }
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        wants_input: bool,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        let (backend, heads) = (at.backend, self.shape.heads);
        let width = self.heard.columns();
        let spread = if self.is_averaged() {
            let mut spread = at.take(width)?;
            ops::head_mean_backward(backend, heads, d, &mut spread)?;
            Some(spread)
        } else {
            None
        };
        let g = spread.as_ref().unwrap_or(d);
        let planes = heads * g.rows();
        let mut numbers = || at.pool.take_numbers(backend, planes);
        let (mut inner, mut d_destination, mut through) = (numbers()?, numbers()?, numbers()?);
        let mut dh = at.take(width)?;
        let mut lent = at.take(width)?;

        let (probability, number) = self.dropout;
        let (vectors, d_vectors) = self.vectors.values_and_gradient();
        let of = AttentionBackward {
            h: &self.transformed,
            vectors,
            y: &self.heard,
            positive: &self.positive,
            dy: g,
            dropout: dropout(probability, number, at.mode),
            lent: (&mut lent, [&mut inner, &mut d_destination, &mut through]),
            dh: &mut dh,
            d_vectors,
        };
        self.softmax.backward(backend, at.graph.backward(), of)?;
        at.pool.give(lent);
        for numbers in [inner, d_destination, through] {
            at.pool.give_numbers(numbers);
        }
        if let Some(spread) = spread {
            at.pool.give(spread);
        }
        let plain = Epilogue::default();
        let gradient = self.weight.gradient_mut();
        ops::matmul(backend, Form::TN, x, &dh, &plain, gradient)?;
        let dx = if wants_input {
            let mut dx = at.take(x.columns())?;
            let weight = self.weight.values();
            ops::matmul(backend, Form::NT, &dh, weight, &plain, &mut dx)?;
            Some(dx)
        } else {
            None
        };
        at.pool.give(dh);
        Ok(dx)
    }

    fn output(&self) -> Option<&Matrix<B, E>> {
        (!self.is_averaged()).then_some(&self.heard)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight, &self.vectors]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight, &mut self.vectors]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        vec![("transformed", &self.transformed), ("heard", &self.heard)]
    }
}
