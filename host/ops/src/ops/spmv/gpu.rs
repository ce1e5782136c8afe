//! SpMV: the two launches of a segment reduction.

use super::{SpmvOperands, SpmvOperators};
use crate::backend::gpu::{Gpu, entry};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::segment::{self as contract, SegmentParams};

impl<D: Driver> SpmvOperators for Gpu<D> {
    fn spmv<E: Element>(&self, operands: Checked<SpmvOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmvOperands { a, weights, x, y } = operands.into_inner();
        let params = SegmentParams {
            values: self.optional_array(weights)?,
            factors: self.array(x)?,
            result: self.array(y)?,
            ..self.segment_params(a)?
        };
        let first = match weights {
            Some(_) => "spmv_weighted",
            None => "spmv",
        };
        let names = [entry::<E>(first)?, entry::<E>("spmv_follow_up")?];
        // SAFETY: the operator checked that the vector has an element a column, the result one a row, and that weights
        // are a plane of edges.
        unsafe { self.reduce_segments(names, 1, contract::FLOAT_WORDS, params) }
    }
}
