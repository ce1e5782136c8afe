//! What memory of another program's must be like, on whichever backend.

use crate::error::Error;
use crate::tensor::Element;
use halfgnn_contract::VECTOR_BYTES;

/// Kernels load 16 bytes at a time.
pub(super) fn expect_aligned(operator: &'static str, address: u64) -> Result<(), Error> {
    if address.is_multiple_of(VECTOR_BYTES.into()) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!("the address {address:#x} is no multiple of {VECTOR_BYTES} bytes"),
    })
}

/// Rows begin where kernels can load, and do not overlap.
pub(super) fn expect_stride<E: Element>(
    operator: &'static str,
    stride: usize,
    row: usize,
) -> Result<(), Error> {
    let lanes = E::LANES;
    let reason = if !stride.is_multiple_of(lanes) {
        format!(
            "rows that are {stride} elements apart do not begin at multiples of {VECTOR_BYTES} bytes, as kernels load them: \
             make that a multiple of {lanes}, {} at least",
            row
        )
    } else if stride < row {
        format!(
            "rows that are {stride} elements apart overlap: with their padding they are {row} long"
        )
    } else if stride > u32::MAX as usize / size_of::<E>() {
        format!("rows that are {stride} elements apart are more than 2^32 - 1 bytes apart")
    } else {
        return Ok(());
    };
    Err(Error::Unsupported { operator, reason })
}
