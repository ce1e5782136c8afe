//! Matrices of 8-bit codes: made of elements, and their scales.

mod coder;
mod codes;
mod scales;

pub(crate) use coder::Coder;

use halfgnn_contract::quantize::{QuantizeParams, UpdateScalesParams};

/// The functions that the entries are, by name.
mod family {
    pub use super::codes::quantize;
    pub use super::scales::update_scales;
}

halfgnn_contract::quantize_entries!(entries);
