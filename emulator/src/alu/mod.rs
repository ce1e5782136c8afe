//! What one lane computes. Values travel as the low bits of a `u64`, zero above the type's width.

pub(crate) mod atomic;
pub(crate) mod convert;
pub(crate) mod directed;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod int;
pub(crate) mod matrix;
