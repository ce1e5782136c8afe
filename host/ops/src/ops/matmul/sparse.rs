//! Products whose first operand is mostly zeros, as bags of words are: sums of the second operand's rows, of those that
//! something is multiplied with.
//!
//! Which operands are so is a question of their elements alone, so that bits depend on nothing else. A zero times a
//! number that is not finite is not zero, so the second operand must be finite.

use crate::backend::cpu::Instructions;
use crate::backend::cpu::nonzeros::SPARSITY;
use crate::backend::cpu::simd::{self, InPlace, Kernel, Lanes, RowSums, WeightedSums};
use crate::tensor::{Element, Precision};

/// Elements that are compared with zero at a time.
const RUN: usize = 32;

/// The elements that are not zero of a part of a matrix, by rows of the result: row `i` has the terms
/// `starts[i]..starts[i + 1]`.
pub(super) struct Terms {
    starts: Vec<usize>,
    rows: Vec<u32>,
    weights: Vec<f32>,
}

impl Terms {
    /// Of rows of elements, whose product's rows are theirs. `None` where too few are zero.
    pub(super) fn of_rows<'a, E: Element>(
        columns: usize,
        rows: impl ExactSizeIterator<Item = &'a [E]> + Clone,
    ) -> Option<Self> {
        let most = rows.len() * columns / SPARSITY;
        // To count them is a small part of listing them.
        let mut count = 0;
        for row in rows.clone() {
            count += E::count_nonzero(row);
            if count > most {
                return None;
            }
        }
        let mut terms = Self {
            starts: vec![0],
            rows: Vec::with_capacity(count),
            weights: Vec::with_capacity(count),
        };
        for row in rows {
            E::push_nonzero(row, &mut terms.rows, &mut terms.weights);
            terms.starts.push(terms.rows.len());
        }
        Some(terms)
    }

    /// Of rows of elements, whose product's rows are their columns. `None` where too few are zero.
    pub(super) fn of_columns<'a, E: Element>(
        columns: usize,
        rows: impl ExactSizeIterator<Item = &'a [E]> + Clone,
    ) -> Option<Self> {
        let by_rows = Self::of_rows(columns, rows)?;
        let mut starts = vec![0; columns + 1];
        for &column in &by_rows.rows {
            starts[column as usize + 1] += 1;
        }
        for column in 0..columns {
            starts[column + 1] += starts[column];
        }
        let mut places = starts.clone();
        let mut rows = vec![0; by_rows.rows.len()];
        let mut weights = vec![0.0; by_rows.rows.len()];
        for (row, ends) in by_rows.starts.windows(2).enumerate() {
            for term in ends[0]..ends[1] {
                let place = &mut places[by_rows.rows[term] as usize];
                (rows[*place], weights[*place]) = (row as u32, by_rows.weights[term]);
                *place += 1;
            }
        }
        Some(Self {
            starts,
            rows,
            weights,
        })
    }

    /// Of what is listed of a part of a number of elements: row `i` of the result has the terms
    /// `starts[i]..starts[i + 1]` of `rows`, those of which `weight` is not zero. `None` where too few are zero.
    pub(super) fn of_listed(
        elements: usize,
        starts: &[usize],
        rows: &[u32],
        weight: impl Fn(usize) -> f32,
    ) -> Option<Self> {
        let listed = starts[starts.len() - 1] - starts[0];
        let mut terms = Self {
            starts: vec![0],
            rows: vec![0; listed],
            weights: vec![0.0; listed],
        };
        let mut count = 0;
        for ends in starts.windows(2) {
            for (term, &row) in (ends[0]..).zip(&rows[ends[0]..ends[1]]) {
                // A zero is overwritten by the next, since it cannot be foreseen which ones a dropout has made.
                let weight = weight(term);
                (terms.rows[count], terms.weights[count]) = (row, weight);
                count += usize::from(weight.to_bits() != 0);
            }
            terms.starts.push(count);
        }
        (count <= elements / SPARSITY).then_some(terms)
    }

    /// Adds to each row of `sums` its sum of rows of `b`, which are `stride` floats apart. `sums` has rows of `columns`
    /// floats.
    pub(super) fn add_product(
        &mut self,
        instructions: Instructions,
        b: &[f32],
        stride: usize,
        columns: usize,
        sums: &mut [f32],
    ) {
        instructions.run(Product {
            terms: self,
            b,
            stride,
            columns,
            sums,
        });
    }
}

/// Adds what has a bit that is not zero, with its columns.
pub(crate) fn push_nonzero<E: Element>(row: &[E], columns: &mut Vec<u32>, values: &mut Vec<f32>) {
    let mut push = |first: usize, run: &[E]| {
        for (column, element) in (first..).zip(run) {
            if !simd::is_zero(std::slice::from_ref(element)) {
                columns.push(column as u32);
                values.push(element.to_f32());
            }
        }
    };
    let mut runs = row.chunks_exact(RUN);
    let mut first = 0;
    for run in &mut runs {
        if !simd::is_zero(run) {
            push(first, run);
        }
        first += RUN;
    }
    push(first, runs.remainder());
}

/// How many elements have a bit that is not zero.
pub(crate) fn count_nonzero<E: Element>(row: &[E]) -> usize {
    match E::PRECISION {
        Precision::Float => count(bytemuck::cast_slice::<E, u32>(row), 0),
        Precision::Half | Precision::BFloat16 => count(bytemuck::cast_slice::<E, u16>(row), 0),
    }
}

fn count<T: PartialEq + Copy>(bits: &[T], zero: T) -> usize {
    bits.iter().map(|&bits| usize::from(bits != zero)).sum()
}

struct Product<'a> {
    terms: &'a mut Terms,
    b: &'a [f32],
    stride: usize,
    columns: usize,
    sums: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    fn plain(self) {
        let Terms {
            starts,
            rows,
            weights,
        } = self.terms;
        let mut row_sums = vec![0.0; self.columns];
        for (sums, ends) in self
            .sums
            .chunks_exact_mut(self.columns)
            .zip(starts.windows(2))
        {
            row_sums.fill(0.0);
            for term in ends[0]..ends[1] {
                let row = &self.b[rows[term] as usize * self.stride..][..self.columns];
                for (sum, value) in row_sums.iter_mut().zip(row) {
                    *sum += weights[term] * value;
                }
            }
            for (sum, value) in sums.iter_mut().zip(&row_sums) {
                *sum += value;
            }
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        let Terms {
            starts,
            rows,
            weights,
        } = self.terms;
        // Rows of `b` are padded, and those of the sums are not.
        let is_padded = self.stride > self.columns;
        let mut padded = vec![0.0; self.stride];
        let places = self.sums.chunks_exact_mut(self.columns);
        for (row, sums) in places.enumerate() {
            let terms = starts[row]..starts[row + 1];
            if is_padded {
                padded[..self.columns].copy_from_slice(sums);
            }
            let total = if is_padded { &mut padded } else { &mut *sums };
            let row_sums = RowSums {
                x: self.b,
                stride: self.stride,
                rows: &rows[terms.start..],
                count: terms.len(),
                batch: usize::MAX,
                factor: 1.0,
                total: InPlace(total),
            };
            let mut row_sums = WeightedSums {
                sums: row_sums,
                weights: &mut weights[terms],
            };
            simd::sweep(lanes, 0, self.stride, &mut row_sums);
            if is_padded {
                sums.copy_from_slice(&padded[..self.columns]);
            }
        }
    }
}
