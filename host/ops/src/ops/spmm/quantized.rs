//! SpMM of a matrix of 8-bit values: half the bytes an edge, which is what an SpMM in half is bound by.

use super::check::check_op;
use super::{Accumulate, Aggregation, EdgeWeights, HalfLoad, Scaling, Spmm, SpmmOperators, Write};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::{Checked, Operator, QuantizedMatrix};
use crate::tensor::{Element, Matrix, Precision};

const NAME: &str = "quantized_spmm";

/// Why there is no output in float.
pub(super) const FLOAT_OUTPUT: &str =
    "the output is float; 8-bit rows save nothing beside its own: take half or bfloat16";

/// [`spmm`](super::spmm) of a matrix of 8-bit values: sums are made of the quantized values' numbers, exactly for int8
/// without weights inside a batch and else in float, and multiplied by the scales of the columns where a row is
/// written.
///
/// The output is half or bfloat16. Factors of columns go into the quantized values, as factors of rows of
/// [`quantize`](crate::ops::quantize()).
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph, [`Error::Unsupported`] for factors of columns, maxima, an
/// output in float and every policy but the default one's scaling, sums, write and load.
pub fn quantized_spmm<B: SpmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: &Spmm<'_, B, E>,
    x: &QuantizedMatrix<B>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.quantized_spmm(Checked::new(QuantizedSpmmOperands { a, op, x, y })?)
}

/// Operands of [`quantized_spmm`].
#[derive(Debug)]
pub struct QuantizedSpmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What is computed, and how.
    pub op: &'a Spmm<'a, B, E>,
    /// The input, columns × F.
    pub x: &'a QuantizedMatrix<B>,
    /// Becomes the output, rows × F.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for QuantizedSpmmOperands<'_, B, E> {
    const NAME: &'static str = NAME;

    fn check(&self) -> Result<(), Error> {
        let QuantizedSpmmOperands { a, op, x, y } = self;
        Error::expect(NAME, "rows of x", a.columns(), x.rows())?;
        check_op(NAME, a, op, x.columns(), y)?;
        let policy = op.policy;
        let reason = if E::PRECISION == Precision::Float {
            FLOAT_OUTPUT
        } else if op.aggregation == Aggregation::Max {
            "maxima are not made of 8-bit codes; take them of the matrix itself"
        } else if matches!(op.weights, EdgeWeights::Columns(_)) {
            "factors of columns go into the codes: give them to `quantize` as factors of rows"
        } else if policy.scaling != Scaling::Discretized
            || policy.accumulate != Accumulate::Float
            || policy.write != Write::Staged
            || policy.load != HalfLoad::Half8
        {
            "8-bit codes are added up with discretized scaling, float sums, the staged write and the widest load alone"
        } else {
            return Ok(());
        };
        Err(Error::Unsupported {
            operator: NAME,
            reason: reason.into(),
        })
    }
}
