//! Quantized values.

use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, QuantizedMatrix, Rounding};
use crate::tensor::{Element, Matrix};

/// Has `codes` hold `x`, with the smallest scale of each column that its numbers fit. What is positive stays so.
///
/// # Errors
/// Those of [`ops::quantize_positive`].
pub(crate) fn store_in_8_bits<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    codes: &mut QuantizedMatrix<B>,
) -> Result<(), Error> {
    // Forgets the largest magnitudes of the step before, and then has those of this one.
    ops::update_scales(backend, 1.0, codes.scales_mut())?;
    ops::quantize(backend, x, None, Rounding::Nearest, codes)?;
    ops::update_scales(backend, 1.0, codes.scales_mut())?;
    ops::quantize_positive(backend, x, codes)
}

/// How many times the largest magnitude of the step before a scale holds.
pub(crate) const MARGIN: f32 = 1.5;
