//! Matrices of 8-bit codes: made of elements, their scales, and elements of them.

mod coder;
mod codes;
mod elements;
mod scales;

pub(crate) use coder::Coder;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::codes::{quantize, quantize_positive};
    pub use super::elements::dequantize;
    pub use super::scales::update_scales;
}
