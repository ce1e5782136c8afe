//! Where operators run.
//!
//! [`Backend`] has the operators that a model needs, for shapes that are already checked: call them through
//! [`crate::ops`], which checks. There are two: [`cpu::Cpu`], plain and readable, which says what the answer is, and
//! [`gpu::Gpu`], which launches kernels on any [`crate::driver::Driver`].

mod adjacency;
pub mod cpu;
pub mod gpu;
mod ledger;

pub use adjacency::{Adjacency, DeviceGraph};
pub use ledger::{Ledger, MemoryKind, MemoryReport, Tracked};

use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use std::fmt;

/// A place where matrices lie and operators run, in the order of the calls.
pub trait Backend: fmt::Debug + Send + Sync + Sized + 'static {
    /// Memory for elements of one type.
    type Buffer<T: Pod>: fmt::Debug + Send + Sync + 'static;

    /// The name a person knows the device by.
    fn name(&self) -> String;

    /// Memory for `len` elements, all bytes zero.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough.
    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Self::Buffer<T>, Error>;

    /// Copies `source` to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::Driver`] where it does not fit.
    fn upload<T: Pod>(&self, buffer: &Self::Buffer<T>, source: &[T]) -> Result<(), Error>;

    /// Copies from the start of `buffer`, after all operators before it are done.
    ///
    /// # Errors
    /// [`Error::Driver`] where the buffer is shorter, or with the failure of an earlier operator.
    fn download<T: Pod>(&self, buffer: &Self::Buffer<T>, target: &mut [T]) -> Result<(), Error>;

    /// Waits until all operators are done.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    fn synchronize(&self) -> Result<(), Error>;

    /// Milliseconds that the operators called by `work` take on the device, by its own clock where it has one.
    ///
    /// # Errors
    /// Those of `work`, and the failure of an earlier operator.
    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error>;

    /// Memory in use by kind, and its peak.
    fn memory(&self) -> MemoryReport;

    /// Makes the present use the peak.
    fn reset_peak(&self);

    /// `y = scale · S · (A_w x)` with the weights, the row factors `S` and the policy of `op`.
    ///
    /// # Errors
    /// Those of the device.
    fn spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error>;

    /// `c = epilogue(a · b)` in one of three forms, accumulated in float and rounded once.
    ///
    /// # Errors
    /// Those of the device.
    fn matmul<E: Element, O: Element>(
        &self,
        form: Form,
        a: &Matrix<Self, E>,
        b: &Matrix<Self, E>,
        epilogue: &Epilogue<'_, Self>,
        c: &mut Matrix<Self, O>,
    ) -> Result<(), Error>;

    /// `y = dropout(relu(x + bias))`, each part where `op` has it, element by element. `x` absent means in place.
    ///
    /// # Errors
    /// Those of the device.
    fn activate<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        x: Option<&Matrix<Self, E>>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error>;

    /// The gradient of [`Backend::activate`] in place: `d` holds dL/dy and becomes dL/dx, times `row_scale` where it is
    /// given. `y` is the stored output, wanted where the activation has a ReLU.
    ///
    /// # Errors
    /// Those of the device.
    fn activate_backward<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        y: Option<&Matrix<Self, E>>,
        row_scale: Option<&Array<Self, f32>>,
        d: &mut Matrix<Self, E>,
    ) -> Result<(), Error>;

    /// `sums[0, c] = Σ_r x[r, c]` in float, in a fixed order.
    ///
    /// # Errors
    /// Those of the device.
    fn column_sums<E: Element>(
        &self,
        x: &Matrix<Self, E>,
        sums: &mut Matrix<Self, f32>,
    ) -> Result<(), Error>;

    /// Log-softmax and cross-entropy over the rows whose target is not [`NO_TARGET`], averaged over `count` of them,
    /// and its gradient times the loss scale of `state`. Rows without a target get a zero gradient.
    ///
    /// # Errors
    /// Those of the device.
    fn cross_entropy<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        targets: &Array<Self, u32>,
        count: usize,
        state: &OptimizerState<Self>,
        gradient: &mut Matrix<Self, E>,
        loss: &mut Array<Self, f32>,
    ) -> Result<(), Error>;

    /// How many rows of each split have their largest logit at their label. `splits` holds 0, 1 or 2 for each row, or
    /// [`NO_TARGET`]; ties go to the lowest class, and a row with a NaN is never right.
    ///
    /// # Errors
    /// Those of the device.
    fn count_correct<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        labels: &Array<Self, u32>,
        splits: &Array<Self, u32>,
        correct: &mut Array<Self, u32>,
    ) -> Result<(), Error>;

    /// Sets the overflow flag of `state` where one of `gradients` holds an infinity or a NaN; never clears it.
    ///
    /// # Errors
    /// Those of the device.
    fn check_finite(
        &self,
        gradients: &[&Matrix<Self, f32>],
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error>;

    /// One step of Adam on the float master weights of all `parameters`, and the copies of them that kernels read. Does
    /// nothing where the overflow flag of `state` is set.
    ///
    /// # Errors
    /// Those of the device.
    fn adam<E: Element>(
        &self,
        hyper: &AdamHyper,
        state: &OptimizerState<Self>,
        parameters: &mut [ParameterMut<'_, Self, E>],
    ) -> Result<(), Error>;

    /// Ends an optimiser step: counts it and, where the overflow flag is set, halves the loss scale, clears the flag and
    /// does not count it; doubles the scale after `growth_interval` steps without overflow.
    ///
    /// # Errors
    /// Those of the device.
    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error>;
}

/// In a target or split array: this row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

/// Weights of the edges of an SpMM.
#[derive(Debug)]
pub enum EdgeWeights<'a, B: Backend, E: Element> {
    /// All ones, and no array at all: SpMMv.
    Ones,
    /// One a edge, in the order of the adjacency: SpMMve.
    Features(&'a Array<B, E>),
    /// One a column of the adjacency: the left degree norm without a pass over `x`.
    Columns(&'a Array<B, f32>),
}

/// Where the row factors of an SpMM are multiplied (HalfGNN §4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// After each batch of a row; batches are merged in float. Neither overflows nor underflows.
    #[default]
    Discretized,
    /// Once a row is summed up in half, as frameworks do: overflows past 65,504, saturates at 2,048 ones.
    PostReduction,
    /// On each product before it is added in half: may underflow.
    PreReduction,
}

/// What a batch of edges is summed up in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulate {
    /// half2 arithmetic, as in the paper; an infinity where a batch's own sum leaves the range of half.
    Half,
    /// Float.
    #[default]
    Float,
}

/// How an SpMM computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SpmmPolicy {
    /// Where the row factors are multiplied.
    pub scaling: Scaling,
    /// What a batch is summed up in. Without meaning in float precision.
    pub accumulate: Accumulate,
}

/// An SpMM: what is multiplied with what, and how.
#[derive(Debug)]
pub struct Spmm<'a, B: Backend, E: Element> {
    /// Weights of the edges.
    pub weights: EdgeWeights<'a, B, E>,
    /// Factor of each row; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Factor of the whole product.
    pub scale: f32,
    /// How it computes.
    pub policy: SpmmPolicy,
}

impl<B: Backend, E: Element> Default for Spmm<'_, B, E> {
    /// The plain sum of the neighbours' rows.
    fn default() -> Self {
        Self {
            weights: EdgeWeights::Ones,
            row_scale: None,
            scale: 1.0,
            policy: SpmmPolicy::default(),
        }
    }
}

/// Which operand of a product is transposed. Sizes are those of the product: `c` is M × N, the sum runs over K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `a` is M × K, `b` is K × N: the forward product of a linear layer.
    NN,
    /// `a` is M × K, `b` is N × K: the gradient of its input.
    NT,
    /// `a` is K × M, `b` is K × N: the gradient of its weights.
    TN,
}

/// What becomes of the sums of a matrix product before they are rounded: `relu(alpha · row_scale[m] · sum + bias[n])`.
#[derive(Debug)]
pub struct Epilogue<'a, B: Backend> {
    /// Factor of everything.
    pub alpha: f32,
    /// Factor of each row of the result.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
}

impl<B: Backend> Default for Epilogue<'_, B> {
    /// The sums as they are.
    fn default() -> Self {
        Self {
            alpha: 1.0,
            row_scale: None,
            bias: None,
            relu: false,
        }
    }
}

/// Dropout: which elements are kept is a function of seed, stream, step and the element's place alone, so that every
/// backend keeps the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of an element to be dropped, in [0, 1).
    pub probability: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Tells the dropouts of one model apart.
    pub stream: u32,
    /// Training step.
    pub step: u32,
}

/// Bias, ReLU and dropout, in this order.
#[derive(Debug)]
pub struct Activation<'a, B: Backend> {
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative elements become zero.
    pub relu: bool,
    /// Which elements are dropped; the others are divided by `1 − probability`.
    pub dropout: Option<Dropout>,
}

/// Adam's constants. Weight decay is added to the gradient, as in PyTorch's `Adam`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamHyper {
    /// Learning rate.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// L2 penalty.
    pub weight_decay: f32,
}

impl Default for AdamHyper {
    fn default() -> Self {
        Self {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        }
    }
}

/// A parameter as the optimiser sees it; all matrices have one shape.
#[derive(Debug)]
pub struct ParameterMut<'a, B: Backend, E: Element> {
    /// Gradient, times the loss scale.
    pub gradient: &'a Matrix<B, f32>,
    /// Float master weights.
    pub master: &'a mut Matrix<B, f32>,
    /// First moment.
    pub first_moment: &'a mut Matrix<B, f32>,
    /// Second moment.
    pub second_moment: &'a mut Matrix<B, f32>,
    /// The master weights rounded to what kernels read; absent where they read the master weights.
    pub rounded: Option<&'a mut Matrix<B, E>>,
}

/// How the loss scale follows overflows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// Scale of the first step.
    pub initial: f32,
    /// Steps without overflow after which the scale doubles; 0 keeps it as it is.
    pub growth_interval: u32,
    /// The scale never exceeds this.
    pub maximum: f32,
}

/// Loss scale, overflow flag and step count, kept on the device so that a step needs no transfer.
#[derive(Debug)]
pub struct OptimizerState<B: Backend> {
    pub(crate) words: Array<B, u32>,
}

/// [`OptimizerState`] as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerSnapshot {
    /// The present loss scale.
    pub loss_scale: f32,
    /// Steps that were taken, those skipped for an overflow not counted.
    pub steps: u32,
    /// Steps that were skipped for an overflow.
    pub skipped: u32,
    /// Steps since the scale changed.
    pub since_change: u32,
}
