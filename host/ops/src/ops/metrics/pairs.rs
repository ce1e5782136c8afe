//! Scores of pairs of rows.

use super::MetricsOperators;
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};

/// The dot product of row `firsts[i]` of `a` and row `seconds[i]` of `b`, added up in double and rounded to a float:
/// what a link predictor says of a pair, before it is rounded to fewer bits, in which many pairs would be tied. A NaN
/// where there is no such row.
///
/// The bits are the same on every backend.
///
/// # Errors
/// [`Error::Shape`] where `b` has other columns than `a`, or there is not a second and a score for each first.
pub fn score_pairs<B: MetricsOperators, E: Element>(
    backend: &B,
    [a, b]: [&Matrix<B, E>; 2],
    [firsts, seconds]: [&Array<B, u32>; 2],
    scores: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = ScorePairsOperands {
        a,
        b,
        firsts,
        seconds,
        scores,
    };
    backend.score_pairs(Checked::new(operands)?)
}

/// Operands of [`score_pairs`].
#[derive(Debug)]
pub struct ScorePairsOperands<'a, B: Storage, E: Element> {
    /// Rows that pairs begin in.
    pub a: &'a Matrix<B, E>,
    /// Rows that they end in.
    pub b: &'a Matrix<B, E>,
    /// A row of `a` for each pair.
    pub firsts: &'a Array<B, u32>,
    /// A row of `b` for each pair.
    pub seconds: &'a Array<B, u32>,
    /// Become the scores.
    pub scores: &'a mut Array<B, f32>,
}
