//! What a layer does with the graph: the linear part of it, and what models of every kind share.

use super::{Inputs, MemoryPlan, Mode, Parameter, Pool, Propagation};
use crate::backend::{
    Backend, Beside, Dropout, EdgeWeights, Epilogue, Form, Normalization, Schedule, Spmm,
    SpmmEpilogue, SpmmPolicy,
};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Element, Matrix};
use std::fmt;

/// What a convolution computes with.
pub(super) struct Context<'a, B: Backend, E: Element> {
    pub(super) backend: &'a B,
    pub(super) graph: &'a Propagation<B>,
    pub(super) mode: Mode<'a, B>,
    pub(super) pool: &'a mut Pool<B, E>,
    /// Forward: what follows element by element. A convolution whose last operator can do it as well takes it; what is not
    /// taken is done after it.
    pub(super) after: Option<After<'a, B>>,
    /// Backward: the factor of what the ReLU and the dropout before the layer let through, which is where its input is
    /// positive. A convolution whose last operator can undo them as well takes it; else they are undone after it.
    pub(super) through: Option<f32>,
    /// Backward: where the sums of the columns of `d` are wanted, of a convolution that [sums](Convolution::sums_columns).
    pub(super) column_sums: Option<&'a mut Matrix<B, f32>>,
}

/// A bias, and whether a ReLU comes after it.
#[derive(Debug)]
pub(super) struct After<'a, B: Backend> {
    pub(super) bias: &'a Matrix<B, f32>,
    pub(super) relu: bool,
}

impl<'a, B: Backend, E: Element> Context<'a, B, E> {
    pub(super) fn new(
        inputs: Inputs<'a, B, E>,
        mode: Mode<'a, B>,
        pool: &'a mut Pool<B, E>,
    ) -> Self {
        Self {
            backend: inputs.backend,
            graph: inputs.graph,
            mode,
            pool,
            after: None,
            through: None,
            column_sums: None,
        }
    }

    /// A matrix with one row a vertex, to give back to the pool.
    pub(super) fn take(&mut self, columns: usize) -> Result<Matrix<B, E>, Error> {
        self.pool.take(self.backend, columns)
    }

    /// What the convolution's last operator does, where that is a product.
    pub(super) fn epilogue(&mut self) -> Epilogue<'a, B> {
        match self.after.take() {
            Some(After { bias, relu }) => Epilogue {
                bias: Some(bias),
                relu,
                ..Epilogue::default()
            },
            None => Epilogue::default(),
        }
    }

    /// What the convolution's last operator does, where that is an aggregation.
    pub(super) fn spmm_epilogue(&mut self) -> SpmmEpilogue<'a, B, E> {
        match self.after.take() {
            Some(After { bias, relu }) => SpmmEpilogue {
                addend: None,
                bias: Some(bias),
                relu,
            },
            None => SpmmEpilogue::default(),
        }
    }

    /// The gradient of a linear map's weights, `xᵀ · d`, where `d` is that of the layer's output.
    pub(super) fn weight_gradient(
        &mut self,
        x: &Matrix<B, E>,
        d: &Matrix<B, E>,
        gradient: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        self.weight_gradient_behind(None, x, d, gradient)
    }

    /// [`Context::weight_gradient`] of a map that sees a normalisation of `x`.
    pub(super) fn weight_gradient_behind(
        &mut self,
        normalization: Option<&Normalization<'_, B>>,
        x: &Matrix<B, E>,
        d: &Matrix<B, E>,
        gradient: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        let beside = Beside {
            normalization,
            column_sums: self.column_sums.take(),
            ..Beside::default()
        };
        let plain = Epilogue::default();
        ops::matmul_beside(self.backend, Form::TN, x, d, &plain, beside, gradient)
    }

    /// The gradient of the layer's input `x`, `d · Wᵀ`, in a matrix of the pool.
    pub(super) fn input_gradient(
        &mut self,
        x: &Matrix<B, E>,
        d: &Matrix<B, E>,
        weight: &Matrix<B, E>,
    ) -> Result<Matrix<B, E>, Error> {
        let mut dx = self.take(x.columns())?;
        let through = self.through.take();
        let epilogue = Epilogue {
            alpha: through.unwrap_or(1.0),
            ..Epilogue::default()
        };
        let beside = Beside {
            positive: through.map(|_| x),
            ..Beside::default()
        };
        ops::matmul_beside(
            self.backend,
            Form::NT,
            d,
            weight,
            &epilogue,
            beside,
            &mut dx,
        )?;
        Ok(dx)
    }
}

/// A graph convolution: vertices × inputs to vertices × outputs. Bias, activation and dropout come after it and are not
/// its own.
pub(super) trait Convolution<B: Backend, E: Element>: fmt::Debug + Send + Sync {
    /// Computes `y` from `x`, or [`Convolution::output`], and keeps what [`Convolution::backward`] wants to see again.
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error>;

    /// The gradients of the parameters and, where it is wanted, of `x`, in a matrix of the pool, from `d`, the gradient
    /// of `y`, which may be overwritten.
    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        wants_input: bool,
    ) -> Result<Option<Matrix<B, E>>, Error>;

    /// Computes `y` once more from what the last [`Convolution::forward`] kept, bit for bit, with the same
    /// [`Context::after`]. Of a convolution whose [`Blueprint::repeats`].
    fn repeat(&self, _at: &mut Context<'_, B, E>, _y: &mut Matrix<B, E>) -> Result<(), Error> {
        Err(Error::Unsupported {
            operator: "Model::backward",
            reason: "the convolution keeps too little to compute its output once more".into(),
        })
    }

    /// Whether the backward pass leaves the sums of the columns of `d`, the gradient of the bias, in
    /// [`Context::column_sums`]: one that multiplies by `d` as it is has them beside the product.
    fn sums_columns(&self) -> bool {
        false
    }

    /// The output, where the convolution keeps it for its backward pass and leaves `y` alone.
    fn output(&self) -> Option<&Matrix<B, E>> {
        None
    }

    /// The parameters, in a fixed order.
    fn parameters(&self) -> Vec<&Parameter<B, E>>;

    /// The parameters, in the same order.
    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>>;

    /// Running statistics and the like, by name: see [`Model::buffers`](super::Model::buffers).
    fn buffers(&self) -> Vec<(&'static str, &Matrix<B, f32>)> {
        Vec::new()
    }

    /// The same, in the same order.
    fn buffers_mut(&mut self) -> Vec<(&'static str, &mut Matrix<B, f32>)> {
        Vec::new()
    }

    /// What is kept of the last forward pass, by name, in the order in which it was computed.
    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)>;
}

/// A convolution before it is made: how much memory it will take. Each method makes the calls on the plan that the
/// method of the same name of the convolution makes on a backend or a pool.
pub(super) trait Blueprint {
    /// What it keeps, parameters included.
    fn keeps(&self, plan: &mut MemoryPlan);
    /// What [`Convolution::forward`] borrows.
    fn forward(&self, plan: &mut MemoryPlan);
    /// Whether there is [`Convolution::repeat`], which borrows nothing.
    fn repeats(&self) -> bool {
        false
    }
    /// What [`Convolution::backward`] borrows; the gradient of the input stays taken.
    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool);
}

/// A sum over neighbours with the degree norms of a [`Propagation`]: `factor · R · A · C · x`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    pub(super) policy: SpmmPolicy,
    pub(super) factor: f32,
}

impl Aggregation {
    /// `y = factor · R · A · C · x`, and the epilogue; `scaled` where `x` is multiplied by `C` already.
    pub(super) fn forward<B: Backend, E: Element>(
        self,
        at: &Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let columns = at.graph.column_scale().filter(|_| !scaled);
        let op = Spmm {
            weights: columns.map_or(EdgeWeights::Ones, EdgeWeights::Columns),
            row_scale: at.graph.row_scale(),
            scale: self.factor,
            policy: self.policy,
            epilogue,
            ..Spmm::default()
        };
        ops::spmm(at.backend, at.graph.forward(), &op, x, y)
    }

    /// The gradient: through the transposed adjacency the two norms change places, `dx = factor · C · Aᵀ · R · d`, and
    /// the epilogue; `scaled` where `d` is multiplied by `R` already.
    pub(super) fn backward<B: Backend, E: Element>(
        self,
        at: &Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        d: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let rows = at.graph.row_scale().filter(|_| !scaled);
        let op = Spmm {
            weights: rows.map_or(EdgeWeights::Ones, EdgeWeights::Columns),
            row_scale: at.graph.column_scale(),
            scale: self.factor,
            policy: self.policy,
            epilogue,
            ..Spmm::default()
        };
        ops::spmm(at.backend, at.graph.backward(), &op, d, dx)
    }
}

/// Which of a convolution's two linear maps comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// `A · (H · W)`: the aggregation sees the layer's outputs.
    TransformFirst,
    /// `(A · H) · W`: the aggregation sees the layer's inputs, and its result is stored for the gradient of `W`.
    AggregateFirst,
}

impl Order {
    /// The order whose aggregation is narrower. Aggregating first wants the column factors inside the SpMM, which only
    /// the default policy has kernels for.
    pub(super) fn choose(inputs: usize, outputs: usize, policy: SpmmPolicy) -> Self {
        // Which warp has what is another question.
        let rounding = SpmmPolicy {
            schedule: Schedule::Auto,
            edges_per_warp: None,
            ..policy
        };
        if inputs < outputs && rounding == SpmmPolicy::default() {
            Order::AggregateFirst
        } else {
            Order::TransformFirst
        }
    }

    /// Columns of what is aggregated.
    pub(super) fn width(self, inputs: usize, outputs: usize) -> usize {
        match self {
            Order::TransformFirst => outputs,
            Order::AggregateFirst => inputs,
        }
    }
}

/// Tags the random numbers of dropout, so that initial weights share none with them.
const DROPOUT_STREAM: u32 = 0x6472_6f70;

/// The dropout number `number` of a model; none in evaluation, or where nothing is dropped.
pub(super) fn dropout<B: Backend>(
    probability: f32,
    number: u32,
    mode: Mode<'_, B>,
) -> Option<Dropout<'_, B>> {
    match mode {
        Mode::Train { seed, state } if probability > 0.0 => Some(Dropout {
            probability,
            seed,
            stream: DROPOUT_STREAM.wrapping_add(number),
            state,
        }),
        _ => None,
    }
}

/// Where a layer stands in its model, and what its parameters are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) layer: usize,
    pub(super) vertices: usize,
    pub(super) seed: u64,
}

impl Place {
    /// The name of one of the layer's parameters.
    pub(super) fn name(self, parameter: &str) -> String {
        format!("layers.{}.{parameter}", self.layer)
    }

    /// Initial weights of a linear map, the `number`-th of the layer.
    pub(super) fn weights<B: Backend, E: Element>(
        self,
        backend: &B,
        name: &str,
        (inputs, outputs): (usize, usize),
        number: u32,
    ) -> Result<Parameter<B, E>, Error> {
        Parameter::weights(backend, self.name(name), (inputs, outputs), || {
            self.glorot((inputs, outputs), number)
        })
    }

    /// The initial values of [`Place::weights`].
    pub(super) fn glorot(self, (inputs, outputs): (usize, usize), number: u32) -> Vec<f32> {
        let stream = (self.layer as u32) | number << 16;
        super::glorot_uniform(inputs, outputs, self.seed, stream)
    }
}
