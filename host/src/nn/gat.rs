//! The graph attention network of Veličković et al. (ICLR 2018): each vertex takes the mean of what it hears, weighted by
//! a softmax of scores that two learnt vectors give to destination and source.
//!
//! `h = H · W`, `e(i,j) = LeakyReLU(a_d · h_i + a_s · h_j)`, `α(i, ·) = softmax(e(i, ·))`, `y_i = Σ_j α(i,j) · h_j`, for
//! several heads side by side, which are concatenated or, in the last layer, averaged.
//!
//! No array of edges is stored: the weights are computed inside the SpMM from a few floats a vertex. The gradient goes the
//! same way. With `g` the gradient of `y`, `D_i = g_i · y_i` is the inner sum of the softmax's gradient (as in
//! FlashAttention, Dao et al., NeurIPS 2022), and with `α⁺` the weights of the edges whose score is positive and `s` the
//! slope below zero
//!
//! ```text
//! dL/d(a_d · h_i) = (1 − s) · (g_i · Σ_j α⁺ h_j − D_i · Σ_j α⁺)
//! dL/d(a_s · h_j) = h_j · (s · Σ_i α g_i + (1 − s) · Σ_i α⁺ g_i) − Σ_i LeakyReLU'(e) · α · D_i
//! ```

use super::convolution::{Blueprint, Context, Convolution, Place, dropout};
use super::{MemoryPlan, Mode, Parameter};
use crate::backend::{
    AttentionScores, Backend, EdgeAttention, EdgeWeights, Epilogue, Form, HeadDots, MemoryKind,
    Spmm, SpmmPolicy,
};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Array, Element, Matrix, padded};

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
        let planes = self.heads * place.vertices;
        let numbers = || Array::zeros(backend, planes, kind);
        let weight =
            Parameter::weights(backend, place.name("weight"), (self.inputs, width), || {
                let weights = place.glorot((self.inputs, columns), 0);
                self.spread::<E>(self.inputs, &weights)
            })?;
        let attention = Parameter::weights(backend, place.name("attention"), (2, width), || {
            // Of each end of an edge a matrix of heads × columns of a head.
            let vector = |number| place.glorot((self.heads, self.head()), number);
            self.spread::<E>(2, &[vector(1), vector(2)].concat())
        })?;
        Ok(GatConvolution {
            shape: *self,
            weight,
            attention,
            transformed: features()?,
            heard: features()?,
            softmax: Softmax {
                heads: self.heads,
                slope: self.slope,
                policy: self.policy,
                dropout: (self.dropout, ATTENTION_DROPOUT + place.layer as u32),
                destination: numbers()?,
                source: numbers()?,
                statistics: Array::zeros(backend, planes, kind)?,
                positive_share: numbers()?,
            },
        })
    }
}

impl Blueprint for GatBlueprint {
    fn keeps(&self, plan: &mut MemoryPlan) {
        let width = plan.heads(self.heads, self.head(), self.outputs);
        plan.weights(self.inputs, width);
        plan.weights(2, width);
        plan.keep(width);
        plan.keep(width);
        plan.numbers(5 * self.heads * self.vertices);
    }

    fn forward(&self, _plan: &mut MemoryPlan) {}

    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool) {
        let width = plan.heads(self.heads, self.head(), self.outputs);
        let planes = self.heads * self.vertices;
        if self.averaged && self.heads > 1 {
            plan.take(width);
        }
        (0..4).for_each(|_| plan.take_numbers(planes));
        plan.take(width);
        plan.take(width);
        plan.give(width);
        (0..4).for_each(|_| plan.give_numbers(planes));
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
    /// The vectors of destination and source, a row each.
    attention: Parameter<B, E>,
    /// `H · W`
    transformed: Matrix<B, E>,
    /// What each vertex has heard, all heads side by side.
    heard: Matrix<B, E>,
    softmax: Softmax<B>,
}

/// A few floats of each vertex and head, from which the weight of every edge is computed where it is used.
#[derive(Debug)]
struct Softmax<B: Backend> {
    heads: usize,
    slope: f32,
    policy: SpmmPolicy,
    /// Probability of an edge to be dropped, and what tells this dropout from others.
    dropout: (f32, u32),
    /// Score of each vertex as destination, `a_d · h_i`.
    destination: Array<B, f32>,
    /// Score of each vertex as source, `a_s · h_j`.
    source: Array<B, f32>,
    statistics: Array<B, [f32; 2]>,
    /// Sum of the weights of the edges whose score is positive.
    positive_share: Array<B, f32>,
}

impl<B: Backend, E: Element> GatConvolution<B, E> {
    /// Whether the output is made from `heard`, and is not `heard` itself.
    fn is_averaged(&self) -> bool {
        self.shape.averaged && self.shape.heads > 1
    }
}

impl<B: Backend> Softmax<B> {
    /// Scores and statistics of the heads of `h`.
    fn compute<E: Element>(
        &mut self,
        at: &Context<'_, B, E>,
        h: &Matrix<B, E>,
        vectors: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, heads) = (at.backend, self.heads);
        let (destination, source) = (&mut self.destination, &mut self.source);
        ops::head_scores(backend, heads, h, vectors, destination, source)?;
        let scores = AttentionScores {
            heads,
            destination: &self.destination,
            source: &self.source,
            slope: self.slope,
        };
        let share = Some(&mut self.positive_share);
        ops::attention_statistics(
            backend,
            at.graph.forward(),
            &scores,
            &mut self.statistics,
            share,
        )
    }

    /// The weights of the edges, in the order of the rows.
    fn weights<'a>(&'a self, mode: Mode<'a, B>) -> EdgeAttention<'a, B> {
        let (probability, number) = self.dropout;
        EdgeAttention {
            heads: self.heads,
            destination: &self.destination,
            source: &self.source,
            statistics: &self.statistics,
            slope: self.slope,
            transposed: false,
            positive_only: false,
            dropout: dropout(probability, number, mode),
        }
    }

    /// The sum of rows of `x` with these weights.
    fn aggregate<E: Element>(
        &self,
        at: &Context<'_, B, E>,
        weights: &EdgeAttention<'_, B>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = Spmm {
            weights: EdgeWeights::Attention(weights),
            policy: self.policy,
            ..Spmm::default()
        };
        let edges = if weights.transposed {
            at.graph.backward()
        } else {
            at.graph.forward()
        };
        ops::spmm(at.backend, edges, &op, x, y)
    }
}

/// `factor · a · b` of each head.
fn dots<'a, B: Backend, E: Element>(
    heads: usize,
    a: &'a Matrix<B, E>,
    b: (f32, &'a Matrix<B, E>),
) -> HeadDots<'a, B, E> {
    HeadDots {
        heads,
        a,
        b,
        c: None,
        u: None,
        v: None,
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
        self.softmax.compute(at, h, self.attention.values())?;
        let weights = self.softmax.weights(at.mode);
        self.softmax
            .aggregate(at, &weights, &self.transformed, &mut self.heard)?;
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
        let mut inner = at.pool.take_numbers(backend, planes)?;
        let mut through = at.pool.take_numbers(backend, planes)?;
        let mut d_destination = at.pool.take_numbers(backend, planes)?;
        let mut d_source = at.pool.take_numbers(backend, planes)?;
        let mut dh = at.take(width)?;
        let mut positive = at.take(width)?;

        let h = &self.transformed;
        let (slope, rest) = (self.shape.slope, 1.0 - self.shape.slope);
        ops::head_dots(backend, &dots(heads, g, (1.0, &self.heard)), &mut inner)?;

        let softmax = &self.softmax;
        let forward = EdgeAttention {
            positive_only: true,
            ..softmax.weights(at.mode)
        };
        softmax.aggregate(at, &forward, h, &mut positive)?;
        let of_destination = HeadDots {
            u: Some((-rest, &inner)),
            v: Some(&softmax.positive_share),
            ..dots(heads, g, (rest, &positive))
        };
        ops::head_dots(backend, &of_destination, &mut d_destination)?;

        let backward = EdgeAttention {
            transposed: true,
            ..softmax.weights(at.mode)
        };
        let positive_backward = EdgeAttention {
            transposed: true,
            ..forward
        };
        softmax.aggregate(at, &backward, g, &mut dh)?;
        softmax.aggregate(at, &positive_backward, g, &mut positive)?;
        let edges = at.graph.backward();
        ops::attention_gradient_sums(backend, edges, &backward, &inner, &mut through)?;
        let of_source = HeadDots {
            c: Some((rest, &positive)),
            u: Some((-1.0, &through)),
            ..dots(heads, h, (slope, &dh))
        };
        ops::head_dots(backend, &of_source, &mut d_source)?;

        let vectors = self.attention.values();
        ops::head_outer(backend, heads, &d_destination, &d_source, vectors, &mut dh)?;
        let gradient = self.attention.gradient_mut();
        ops::head_sums(backend, heads, h, &d_destination, &d_source, gradient)?;
        at.pool.give(positive);
        for numbers in [inner, through, d_destination, d_source] {
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
        vec![&self.weight, &self.attention]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight, &mut self.attention]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        vec![("transformed", &self.transformed), ("heard", &self.heard)]
    }
}
