//! Operators on borrowed memory. Shapes are checked by the operators themselves; what is written is what the page of
//! each says.

mod additive;
pub mod attention;
mod dot;
mod messages;

pub use additive::{gatv2_backward, gatv2_forward};
pub use attention::{gat_backward, gat_forward};
pub use dot::{dot_backward, dot_forward};
pub use messages::{messages_backward, messages_forward, reduce_backward, reduce_forward};

use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Operation, Place, Shape, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    self, Addend, Aggregation, Dropout, EdgeWeights, RandomState, Sddmm, Spmm, SpmmEpilogue,
};
use halfgnn::tensor::{self, Element, Precision};
use halfgnn::with_element;
use pyo3::prelude::*;

/// An operation on elements of a precision that is not known before.
trait OnElements: Sync {
    fn precision(&self) -> Precision;

    /// Calls the operators.
    ///
    /// # Safety
    /// All memory is as [`Lend`] needs it.
    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error>;

    /// As [`Operation::shape`], of one kind of operation.
    fn shape(&self) -> Option<Shape> {
        None
    }

    /// Products of numbers that it takes.
    fn products(&self) -> usize {
        usize::MAX
    }
}

/// An operation's [`Shape`], of the numbers of its operands.
fn shape(name: &'static str, precision: Precision, parts: &[&[usize]]) -> Shape {
    let mut numbers = vec![precision as usize];
    parts
        .iter()
        .for_each(|part| numbers.extend_from_slice(part));
    (name, numbers)
}

fn bits(flags: &[bool]) -> usize {
    let next = |bits, flag: &bool| 2 * bits + usize::from(*flag);
    flags.iter().fold(0, next)
}

/// An exponential takes as long as this number of products, about.
const EXPONENTIAL: usize = 16;

/// This number of products takes a thread of the CPU less time than to wake another.
const FEW: usize = 1 << 14;

impl<T: OnElements> Operation for T {
    fn run<B: Lend>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: Python gives tensors of these sizes and types on the place's device, and keeps them until it is
        // called back; on a GPU whatever torch does with their memory later is queued behind, on the same stream.
        with_element!(self.precision(), E => unsafe { OnElements::run::<B, E>(self, backend) })
    }

    fn shape(&self) -> Option<Shape> {
        OnElements::shape(self)
    }

    fn is_small(&self) -> bool {
        self.products() <= FEW
    }
}

/// Distinguishes the masks of attention from others that are sampled from the same words.
const STREAM: u32 = 0x6174_7465;

/// What masks of weights are sampled from: the word on the device, where the probability, in [0, 1), is not 0.
///
/// # Safety
/// As of [`Lend`].
unsafe fn random<B: Lend>(
    backend: &B,
    operator: &'static str,
    (probability, seed): (f32, Option<RawArray>),
) -> Result<Option<RandomState<B>>, Error> {
    if probability <= 0.0 {
        return Ok(None);
    }
    let seed = seed.ok_or_else(|| Error::Unsupported {
        operator,
        reason: "dropout without a seed".into(),
    })?;
    // SAFETY: what this function asks of its caller.
    let word = unsafe { backend.array(seed) }?;
    RandomState::counted_by(0, word).map(Some)
}

/// Dropout by what [`random`] gives.
fn dropout<B: Storage>(
    probability: f32,
    random: Option<&RandomState<B>>,
) -> Option<Dropout<'_, B>> {
    random.map(|random| Dropout {
        probability,
        stream: STREAM,
        random,
    })
}

/// The operands of an SpMM.
pub struct SpmmCall {
    pub precision: Precision,
    pub a: RawAdjacency,
    pub x: RawMatrix,
    pub y: RawMatrix,
    pub weights: Option<RawArray>,
    pub heads: usize,
    pub row_scale: Option<RawArray>,
    pub column_scale: Option<RawArray>,
    pub bias: Option<RawMatrix>,
    /// Four floats, of which the first counts.
    pub epsilon: Option<RawArray>,
    pub relu: bool,
    pub maximum: bool,
}

impl OnElements for SpmmCall {
    fn precision(&self) -> Precision {
        self.precision
    }

    fn shape(&self) -> Option<Shape> {
        let flags = [
            self.weights.is_some(),
            self.row_scale.is_some(),
            self.column_scale.is_some(),
            self.bias.is_some(),
            self.epsilon.is_some(),
            self.relu,
            self.maximum,
        ];
        let rest = [self.heads, bits(&flags)];
        let (a, x, y) = (self.a.numbers(), self.x.numbers(), self.y.numbers());
        Some(shape("spmm", self.precision, &[&a, &x, &y, &rest]))
    }

    fn products(&self) -> usize {
        let (RawAdjacency(_, rows, edges, ..), RawMatrix(_, _, columns, _)) = (self.a, self.x);
        edges.saturating_add(rows).saturating_mul(columns)
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller, here and below.
        let (a, x, mut y) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.matrix::<E>(self.x)?,
                backend.matrix::<E>(self.y)?,
            )
        };
        let epsilon = self.epsilon.map(one_of_four).transpose()?;
        // SAFETY: as above.
        let (weights, row_scale, column_scale, bias, epsilon) = unsafe {
            (
                backend.optional::<E>(self.weights)?,
                backend.optional::<f32>(self.row_scale)?,
                backend.optional::<f32>(self.column_scale)?,
                self.bias
                    .map(|bias| backend.matrix::<f32>(bias))
                    .transpose()?,
                epsilon
                    .map(|epsilon| backend.matrix::<f32>(epsilon))
                    .transpose()?,
            )
        };
        let op = Spmm {
            weights: match (&weights, &column_scale) {
                (Some(values), None) => EdgeWeights::Planes {
                    values,
                    heads: self.heads,
                },
                (None, Some(scale)) => EdgeWeights::Columns(scale),
                (None, None) => EdgeWeights::Ones,
                (Some(_), Some(_)) => {
                    return Err(Error::Unsupported {
                        operator: "spmm",
                        reason: "weights of edges and factors of columns at once; multiply one by the other".into(),
                    });
                }
            },
            aggregation: match self.maximum {
                true => Aggregation::Max,
                false => Aggregation::Sum,
            },
            row_scale: row_scale.as_ref(),
            epilogue: SpmmEpilogue {
                addend: epsilon.as_ref().map(|epsilon| Addend {
                    matrix: &x,
                    factor: 1.0,
                    row_scale: None,
                    epsilon: Some(epsilon),
                }),
                bias: bias.as_ref(),
                relu: self.relu,
                positive: None,
            },
            ..Spmm::default()
        };
        ops::spmm(backend, &a, &op, &x, &mut y)?;
        // SAFETY: as above.
        unsafe { backend.give_matrix(&y, self.y) }
    }
}

/// The first of four floats, which are one vector, as a matrix.
fn one_of_four(RawArray(address, len): RawArray) -> Result<RawMatrix, Error> {
    Error::expect("spmm", "floats of epsilon", f32::LANES, len)?;
    Ok(RawMatrix(address, 1, 1, len))
}

/// How far apart rows of a number of elements of a format should be where sums over neighbours read them.
#[pyfunction]
pub fn gathered_stride(format: u8, columns: usize) -> PyResult<usize> {
    Ok(with_element!(precision(format)?, E => tensor::gathered_stride::<E>(columns)))
}

/// `y = relu(R · A_w · (C · x) + (1 + epsilon) · x + bias)`, each part where it is given; or the maximum in place of
/// the sum.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn spmm(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    x: RawMatrix,
    y: RawMatrix,
    weights: Option<RawArray>,
    heads: usize,
    row_scale: Option<RawArray>,
    column_scale: Option<RawArray>,
    bias: Option<RawMatrix>,
    epsilon: Option<RawArray>,
    relu: bool,
    maximum: bool,
) -> PyResult<()> {
    let call = SpmmCall {
        precision: precision(format)?,
        a,
        x,
        y,
        weights,
        heads,
        row_scale,
        column_scale,
        bias,
        epsilon,
        relu,
        maximum,
    };
    perform(py, place, allocate, &call)
}

/// The operands of an SDDMM.
pub struct SddmmCall {
    pub precision: Precision,
    pub a: RawAdjacency,
    pub u: RawMatrix,
    pub v: RawMatrix,
    pub e: RawArray,
    pub heads: usize,
}

impl OnElements for SddmmCall {
    fn precision(&self) -> Precision {
        self.precision
    }

    fn shape(&self) -> Option<Shape> {
        let (a, u, v) = (self.a.numbers(), self.u.numbers(), self.v.numbers());
        Some(shape("sddmm", self.precision, &[&a, &u, &v, &[self.heads]]))
    }

    fn products(&self) -> usize {
        self.a.2.saturating_mul(self.u.2)
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller.
        let (a, u, v, mut e) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.matrix::<E>(self.u)?,
                backend.matrix::<E>(self.v)?,
                backend.array::<E>(self.e)?,
            )
        };
        let op = Sddmm {
            heads: self.heads,
            ..Sddmm::default()
        };
        ops::sddmm(backend, &a, &op, &u, &v, &mut e)?;
        // SAFETY: as above.
        unsafe { backend.give_array(&e, self.e) }
    }
}

/// Dot products of edges, a plane a head.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn sddmm(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    u: RawMatrix,
    v: RawMatrix,
    e: RawArray,
    heads: usize,
) -> PyResult<()> {
    let call = SddmmCall {
        precision: precision(format)?,
        a,
        u,
        v,
        e,
        heads,
    };
    perform(py, place, allocate, &call)
}

/// The operands of a softmax over edges, or of its gradient.
pub struct SoftmaxCall {
    pub precision: Precision,
    pub a: RawAdjacency,
    /// Of the gradient.
    pub alpha: Option<RawArray>,
    /// In place.
    pub e: RawArray,
    /// Memory for a float a head and row.
    pub rows: RawArray,
    pub heads: usize,
}

impl OnElements for SoftmaxCall {
    fn precision(&self) -> Precision {
        self.precision
    }

    fn shape(&self) -> Option<Shape> {
        let rest = [self.heads, bits(&[self.alpha.is_some()])];
        let a = self.a.numbers();
        Some(shape("edge_softmax", self.precision, &[&a, &rest]))
    }

    fn products(&self) -> usize {
        let RawAdjacency(_, rows, edges, ..) = self.a;
        let numbers = edges.saturating_add(rows).saturating_mul(self.heads);
        numbers.saturating_mul(EXPONENTIAL)
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller.
        let (a, alpha, mut e, mut rows) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.optional::<E>(self.alpha)?,
                backend.array::<E>(self.e)?,
                backend.array::<f32>(self.rows)?,
            )
        };
        match &alpha {
            None => ops::edge_softmax(backend, &a, self.heads, &mut e, &mut rows)?,
            Some(alpha) => {
                ops::edge_softmax_backward(backend, &a, self.heads, alpha, &mut e, &mut rows)?
            }
        }
        // SAFETY: as above.
        unsafe { backend.give_array(&e, self.e) }
    }
}

/// Softmax over the edges of each row, in place; `rows` is memory for a float a head and row.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn edge_softmax(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    e: RawArray,
    rows: RawArray,
    heads: usize,
) -> PyResult<()> {
    let call = SoftmaxCall {
        precision: precision(format)?,
        a,
        alpha: None,
        e,
        rows,
        heads,
    };
    perform(py, place, allocate, &call)
}

/// The gradient of [`edge_softmax`]: `d` holds that of the output and becomes that of the input.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn edge_softmax_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    alpha: RawArray,
    d: RawArray,
    rows: RawArray,
    heads: usize,
) -> PyResult<()> {
    let call = SoftmaxCall {
        precision: precision(format)?,
        a,
        alpha: Some(alpha),
        e: d,
        rows,
        heads,
    };
    perform(py, place, allocate, &call)
}
