//! The shapes of what operators exchange in, of a graph that several ranks have.

use super::{Result_, numbers, row, rows_of};
use crate::program::list::Program;
use crate::program::operator::{Operator, Take};
use crate::program::value::{Edges, Exchanged, Format, Rows, Shape, Value};
use crate::tensor::padded;

impl Program {
    /// What an operator exchanges in, for its length.
    pub(super) fn scratch_of_ranks(&self, operator: &Operator) -> Vec<Result_> {
        let columns = |value: Value| self.values[value.0].shape.columns;
        let rows = |edges: Edges, of: Exchanged, columns: usize| {
            let rows = Rows::Exchanged(edges, of);
            (Shape { rows, columns }, Format::Element)
        };
        // Two rows of floats of each rank are one behind the other, with their padding.
        let of_ranks = |edges: Edges, rows: usize, value: Value| {
            let of = Rows::Exchanged(edges, Exchanged::Ranks);
            numbers(of, rows * padded::<f32>(columns(value)))
        };
        let mut scratch = match operator {
            Operator::Extend { edges, x, .. } => {
                vec![rows(*edges, Exchanged::Packed, columns(*x))]
            }
            Operator::Fold { edges, d, .. } => {
                vec![rows(*edges, Exchanged::Returned, columns(*d))]
            }
            Operator::BatchStatistics(op) => match op.of_rank {
                Some(edges) if op.take != Take::Running => {
                    let of_ranks = of_ranks(edges, 2, op.x);
                    vec![rows_of(2, columns(op.x)), of_ranks, of_ranks]
                }
                _ => Vec::new(),
            },
            Operator::NormalizeGradient(op) => match op.of_rank {
                Some(edges) => {
                    let (sums, of_ranks) = (row(columns(op.x)), of_ranks(edges, 1, op.x));
                    vec![sums, sums, of_ranks, of_ranks]
                }
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        let codes = operator.coding().and_then(|coding| coding.exchanged());
        if let Some(edges) = codes
            && let Ok(results) = self.results_of(operator)
            && let Some((shape, format)) = results.last()
        {
            let rows = Rows::Exchanged(edges, Exchanged::Packed);
            scratch.push((Shape { rows, ..*shape }, *format));
        }
        scratch
    }
}
