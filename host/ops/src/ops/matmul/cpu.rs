//! Dense products: halves become floats a block at a time, and `gemm` multiplies floats. A block that is mostly zeros
//! is summed up from what is not ([`Terms`]).
//!
//! Work is cut into blocks by the shapes alone, never by the number of threads, and `gemm` runs each block on one
//! thread, so that a product has the same bits on any number of threads.

use super::sparse::Terms;
use super::{Form, MatmulOperands, MatmulOperators, QuantizedMatmulOperands};
use crate::backend::cpu::convert::{round, round_to, widen, widened};
use crate::backend::cpu::nonzeros::Nonzeros;
use crate::backend::cpu::view::{View, ViewMut, nonzeros, read, read_matrix, view, view_mut};
use crate::backend::cpu::{Cpu, Instructions};
use crate::error::Error;
use crate::ops::elementwise::cpu::{KeepPositive, add_bias_and_activate};
use crate::ops::normalize::cpu::AffineColumns;
use crate::ops::{self, Activation, Checked, CodeFormat};
use crate::tensor::Element;
use halfgnn_graph::parallel;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

/// Rows of the result that are one piece of work.
const BLOCK_ROWS: usize = 256;

/// Terms of a sum over rows (form TN) that are multiplied at a time: with [`BLOCK_ROWS`] columns of floats, 1 MiB.
const BLOCK_DEPTH: usize = 1024;

/// Most pieces that a sum over rows is cut into; each is as large as the result.
const MAX_PIECES: usize = 16;

impl MatmulOperators for Cpu {
    fn matmul<E: Element, O: Element>(
        &self,
        operands: Checked<MatmulOperands<'_, Self, E, O>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (rows, epilogue) = (of.rows_of_a(), of.epilogue);
        if let Some(sums) = of.fusion.column_sums {
            ops::column_sums(self, of.b, sums)?;
        }
        let output = read_matrix(of.fusion.positive);
        let codes = of.fusion.positive_codes;
        let codes = codes.map(|codes| (codes.codes.buffer.read(), codes.stride()));
        let positive = match (&output, &codes) {
            (Some(output), _) => Some(Positive::Output(output)),
            (None, Some((words, stride))) => Some(Positive::Codes {
                codes: bytemuck::cast_slice(words),
                stride: *stride,
            }),
            (None, None) => None,
        };
        let (row_scale, bias) = (read(epilogue.row_scale), read_matrix(epilogue.bias));
        let finish = Finish {
            alpha: epilogue.alpha,
            row_scale: row_scale.as_deref(),
            bias: bias.as_deref(),
            relu: epilogue.relu,
            positive,
            sum: of.fusion.sum,
        };
        let (a_values, b_values) = (of.a.buffer.read(), of.b.buffer.read());
        let affine = of.fusion.normalization.map(AffineColumns::new);
        let (whole, all) = (view(of.a, &a_values), rows == of.a.rows());
        let second = of.fusion.second_pair;
        let second_values = second.map(|[a, b]| (a.buffer.read(), b.buffer.read()));
        let second = second.zip(second_values.as_ref());
        let second = second.map(|([a, b], (a_values, b_values))| {
            let a = LeftOperand {
                matrix: view(a, a_values).rows(0..of.c.rows()),
                affine: None,
                nonzeros: nonzeros(a, a_values),
            };
            (a, view(b, b_values))
        });
        matmul(
            self.instructions(),
            of.form,
            LeftOperand {
                matrix: if all { whole } else { whole.rows(0..rows) },
                affine: affine.as_ref(),
                nonzeros: match (of.form, &affine) {
                    // What is kept is of all rows.
                    (Form::NN | Form::TN, None) if all => nonzeros(of.a, &a_values),
                    _ => None,
                },
            },
            view(of.b, &b_values),
            second,
            &finish,
            view_mut(of.c),
        );
        if of.fusion.dropout.is_some() {
            let drop = Activation {
                dropout: of.fusion.dropout,
                ..Activation::default()
            };
            ops::activate(self, &drop, None, of.c)?;
        }
        match of.fusion.coding {
            Some(coding) => coding.of(self, of.c),
            None => Ok(()),
        }
    }

    fn quantized_matmul<E: Element>(
        &self,
        operands: Checked<QuantizedMatmulOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        if let Some(sums) = of.column_sums {
            ops::column_sums(self, of.b, sums)?;
        }
        let (words, scales) = (of.a.codes.buffer.read(), of.a.scales.scales.buffer.read());
        let finish = Finish::<f32> {
            alpha: of.alpha,
            row_scale: Some(&scales),
            bias: None,
            relu: false,
            positive: None,
            sum: false,
        };
        let a = CodedOperand {
            codes: bytemuck::cast_slice(&words),
            stride: of.a.stride(),
        };
        let values = of.b.buffer.read();
        let (instructions, b) = (self.instructions(), view(of.b, &values));
        for_blocks(&finish, view_mut(of.c), |rows| {
            over_rows(instructions, a, b, rows)
        });
        Ok(())
    }
}

/// What becomes of the sums: `relu(alpha · row_scale[m] · sum + bias[n])`, and zero where `positive` is not.
struct Finish<'a, O> {
    alpha: f32,
    row_scale: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    relu: bool,
    positive: Option<Positive<'a, O>>,
    /// Whether it is added to what is there, once it is rounded.
    sum: bool,
}

/// The output of a ReLU.
#[derive(Clone, Copy)]
enum Positive<'a, O> {
    /// Lies as the result does.
    Output(&'a [O]),
    /// int8 values, rows of `stride`.
    Codes { codes: &'a [u8], stride: usize },
}

impl<O: Element> Finish<'_, O> {
    /// Writes row `m` of the result, from its sums.
    fn row(&self, m: usize, sums: &mut [f32], c: &mut [O]) {
        let factor = self
            .row_scale
            .map_or(self.alpha, |scale| self.alpha * scale[m]);
        sums.iter_mut().for_each(|sum| *sum *= factor);
        add_bias_and_activate(sums, self.bias, self.relu);
        match self.positive {
            None => {}
            Some(Positive::Output(output)) => {
                let output = &output[m * c.len()..][..sums.len()];
                O::keep_positive(KeepPositive::new(sums, output, 1.0));
            }
            Some(Positive::Codes { codes, stride }) => {
                let codes = &codes[m * stride..][..sums.len()];
                for (sum, &code) in sums.iter_mut().zip(codes) {
                    *sum = if code > CodeFormat::Int8.zero() {
                        *sum
                    } else {
                        0.0
                    };
                }
            }
        }
        let (row, padding) = c.split_at_mut(sums.len());
        if self.sum {
            let mut there = vec![0.0; row.len()];
            widen(row, &mut there);
            round(sums, row);
            widen(row, sums);
            for (sum, there) in sums.iter_mut().zip(there) {
                *sum += there;
            }
        }
        round(sums, row);
        padding.fill(O::zeroed());
    }
}

/// The first operand: a matrix, or what a normalisation makes of it, rounded to its elements.
#[derive(Clone, Copy)]
struct LeftOperand<'a, E> {
    matrix: View<'a, E>,
    affine: Option<&'a AffineColumns>,
    /// What is kept of its elements.
    nonzeros: Option<&'a Nonzeros>,
}

impl<'a, E: Element> LeftOperand<'a, E> {
    /// Some columns of some rows as they are; none of what is normalised, which has no zeros.
    fn elements(
        self,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> Option<impl ExactSizeIterator<Item = &'a [E]> + Clone> {
        let View { values, stride, .. } = self.matrix.rows(rows);
        (self.affine.is_none() && stride > 0).then(|| {
            values
                .chunks_exact(stride)
                .map(move |row| &row[columns.clone()])
        })
    }

    /// The terms of a block of rows, where most elements are zeros.
    fn terms_of_rows(self, rows: Range<usize>) -> Option<Terms> {
        let depth = self.matrix.columns;
        let Some(nonzeros) = self.nonzeros else {
            return Terms::of_rows(depth, self.elements(rows, 0..depth)?);
        };
        let (places, values) = (nonzeros.places(), nonzeros.values());
        let (elements, starts) = (rows.len() * depth, &places.starts[rows.start..=rows.end]);
        Terms::of_listed(elements, starts, &places.columns, |term| values[term])
    }

    /// Some rows, in float.
    fn rows(self, rows: Range<usize>) -> Cow<'a, [f32]> {
        let View {
            columns, stride, ..
        } = self.matrix;
        let floats = widened(self.matrix.rows(rows).values);
        let Some(affine) = self.affine else {
            return floats;
        };
        let (mut floats, mut room) = (floats.into_owned(), vec![E::zeroed(); columns]);
        for row in floats.chunks_exact_mut(stride.max(1)) {
            affine.apply(0, &mut row[..columns]);
            round_to(&mut row[..columns], &mut room);
        }
        Cow::Owned(floats)
    }
}

/// A first operand whose columns the rows of a result are sums over.
trait SummedOver: Copy + Sync {
    /// The terms of a block of columns over the `number`-th of [`depth_ranges`], where most elements are zeros.
    fn terms(self, rows: (usize, Range<usize>), columns: Range<usize>) -> Option<Terms>;

    /// Some columns of some rows, in float and without padding.
    fn part(self, rows: Range<usize>, columns: Range<usize>) -> Vec<f32>;
}

impl<E: Element> SummedOver for LeftOperand<'_, E> {
    fn terms(self, (number, rows): (usize, Range<usize>), columns: Range<usize>) -> Option<Terms> {
        let Some(nonzeros) = self.nonzeros else {
            return Terms::of_columns(columns.len(), self.elements(rows, columns)?);
        };
        let values = nonzeros.values();
        let by_columns = nonzeros.places().by_columns(depth_ranges(self.matrix.rows));
        let of = &by_columns[number];
        let (elements, starts) = (
            rows.len() * columns.len(),
            &of.starts[columns.start..=columns.end],
        );
        Terms::of_listed(elements, starts, &of.rows, |term| {
            values[of.places[term] as usize]
        })
    }

    fn part(self, rows: Range<usize>, columns: Range<usize>) -> Vec<f32> {
        let mut floats = vec![0.0; rows.len() * columns.len()];
        let mut room = vec![E::zeroed(); columns.len()];
        let rows = self.matrix.rows(rows).values;
        let rows = rows.chunks_exact(self.matrix.stride);
        for (row, floats) in rows.zip(floats.chunks_exact_mut(columns.len())) {
            widen(&row[columns.clone()], floats);
            if let Some(affine) = self.affine {
                affine.apply(columns.start, floats);
                round_to(floats, &mut room);
            }
        }
        floats
    }
}

/// A first operand in int8 values.
#[derive(Clone, Copy)]
struct CodedOperand<'a> {
    codes: &'a [u8],
    stride: usize,
}

impl SummedOver for CodedOperand<'_> {
    fn terms(self, _: (usize, Range<usize>), _: Range<usize>) -> Option<Terms> {
        None
    }

    fn part(self, rows: Range<usize>, columns: Range<usize>) -> Vec<f32> {
        let rows = self.codes[rows.start * self.stride..rows.end * self.stride].chunks(self.stride);
        let codes = rows.flat_map(|row| &row[columns.clone()]);
        codes.map(|&code| CodeFormat::Int8.decode(code)).collect()
    }
}

/// A second operand that every block of rows reads, as a layer's weights are: small, and widened once.
struct Weights<'a> {
    floats: Cow<'a, [f32]>,
    stride: usize,
    columns: usize,
    are_finite: OnceLock<bool>,
}

impl<'a> Weights<'a> {
    fn new<E: Element>(of: View<'a, E>) -> Self {
        Self {
            floats: widened(of.values),
            stride: of.stride,
            columns: of.columns,
            are_finite: OnceLock::new(),
        }
    }

    /// Whether a zero times any of them is zero.
    fn are_finite(&self) -> bool {
        *self.are_finite.get_or_init(|| is_finite(&self.floats))
    }

    /// Adds the product of a block of rows of `a` to their sums.
    fn add_product<E: Element>(
        &self,
        instructions: Instructions,
        a: LeftOperand<'_, E>,
        rows: Range<usize>,
        sums: &mut [f32],
    ) {
        let terms = a.terms_of_rows(rows.clone());
        match terms.filter(|_| self.are_finite()) {
            Some(mut terms) => {
                terms.add_product(instructions, &self.floats, self.stride, self.columns, sums);
            }
            None => add_rows(a, rows, self.as_operand(), self.columns, sums),
        }
    }

    fn as_operand(&self) -> Operand<'_> {
        Operand::new(&self.floats, self.stride)
    }
}

/// Writes the product to `c`, padding included, with that of a second pair in it.
fn matmul<E: Element, O: Element>(
    instructions: Instructions,
    form: Form,
    a: LeftOperand<'_, E>,
    b: View<'_, E>,
    second: Option<(LeftOperand<'_, O>, View<'_, O>)>,
    finish: &Finish<'_, O>,
    c: ViewMut<'_, O>,
) {
    let columns = c.columns;
    let sums_of = |rows: &Range<usize>| vec![0.0; rows.len() * columns];
    match form {
        Form::NN => {
            let weights = Weights::new(b);
            let second = second.map(|(a, b)| (a, Weights::new(b)));
            for_blocks(finish, c, |rows| {
                let mut sums = sums_of(&rows);
                weights.add_product(instructions, a, rows.clone(), &mut sums);
                if let Some((a, weights)) = &second {
                    weights.add_product(instructions, *a, rows, &mut sums);
                }
                sums
            });
        }
        Form::NT => {
            let weights = Weights::new(b);
            for_blocks(finish, c, |rows| {
                let mut sums = sums_of(&rows);
                add_rows(
                    a,
                    rows,
                    weights.as_operand().transposed(),
                    columns,
                    &mut sums,
                );
                sums
            });
        }
        Form::TN => {
            if let Some(nonzeros) = a.nonzeros {
                // Before every block would make them.
                nonzeros.places().by_columns(depth_ranges(a.matrix.rows));
            }
            for_blocks(finish, c, |rows| over_rows(instructions, a, b, rows));
        }
    }
}

/// Writes a result to `c`, block by block of rows, from their `sums`.
fn for_blocks<O: Element>(
    finish: &Finish<'_, O>,
    c: ViewMut<'_, O>,
    sums: impl Fn(Range<usize>) -> Vec<f32> + Sync,
) {
    let (columns, stride) = (c.columns, c.stride);
    if columns == 0 {
        return;
    }
    let blocks = parallel::chunks_mut(c.values, BLOCK_ROWS * stride);
    parallel::for_each(blocks, |block, c| {
        let rows = block * BLOCK_ROWS..block * BLOCK_ROWS + c.len() / stride;
        let mut sums = sums(rows.clone());
        let sums = sums.chunks_exact_mut(columns);
        for ((row, sums), c) in rows.zip(sums).zip(c.chunks_exact_mut(stride)) {
            finish.row(row, sums, c);
        }
    });
}

fn is_finite(floats: &[f32]) -> bool {
    // Without a branch, so that it is done in vectors.
    floats
        .iter()
        .fold(true, |all, float| all & float.is_finite())
}

/// Adds those of `a` times `b` to the sums of a block of rows.
fn add_rows<E: Element>(
    a: LeftOperand<'_, E>,
    rows: Range<usize>,
    b: Operand<'_>,
    columns: usize,
    sums: &mut [f32],
) {
    let shape = [rows.len(), columns, a.matrix.columns];
    let floats = a.rows(rows);
    let a = Operand::new(&floats, a.matrix.stride);
    add_product(shape, a, b, sums);
}

/// The sums of a block of the result whose rows are the columns `block` of `a`, over all rows of `a` and `b`: pieces
/// of that range are summed up in parallel, and added in their order.
fn over_rows<E: Element>(
    instructions: Instructions,
    a: impl SummedOver,
    b: View<'_, E>,
    block: Range<usize>,
) -> Vec<f32> {
    let depth = piece_depth(b.rows);
    let pieces: Vec<Range<usize>> = ranges(0..b.rows, depth).collect();
    let partial = parallel::map(&*pieces, |number, piece| {
        let mut sums = vec![0.0; block.len() * b.columns];
        let first = number * depth.div_ceil(BLOCK_DEPTH);
        for (number, rows) in (first..).zip(ranges(piece.clone(), BLOCK_DEPTH)) {
            let shape = [block.len(), b.columns, rows.len()];
            let b_floats = widened(b.rows(rows.clone()).values);
            let terms = a.terms((number, rows.clone()), block.clone());
            if let Some(mut terms) = terms.filter(|_| is_finite(&b_floats)) {
                let columns = b.columns;
                terms.add_product(instructions, &b_floats, b.stride, columns, &mut sums);
                continue;
            }
            let a_floats = a.part(rows, block.clone());
            add_product(
                shape,
                Operand::new(&a_floats, block.len()).transposed(),
                Operand::new(&b_floats, b.stride),
                &mut sums,
            );
        }
        sums
    });
    let mut sums = vec![0.0; block.len() * b.columns];
    for partial in &partial {
        for (sum, value) in sums.iter_mut().zip(partial) {
            *sum += value;
        }
    }
    sums
}

/// Rows of a piece of a sum over `rows`.
fn piece_depth(rows: usize) -> usize {
    rows.div_ceil(MAX_PIECES).max(BLOCK_DEPTH)
}

/// The ranges that a sum over `rows` takes one after the other, of all pieces.
fn depth_ranges(rows: usize) -> impl Iterator<Item = Range<usize>> {
    ranges(0..rows, piece_depth(rows)).flat_map(|piece| ranges(piece, BLOCK_DEPTH))
}

/// `range` in pieces of `step`, the last as long as what is left.
fn ranges(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(step)
        .map(move |start| start..end.min(start + step))
}

/// An operand of [`add_product`]: floats, and the distances of two rows and of two columns.
#[derive(Clone, Copy)]
struct Operand<'a> {
    floats: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Operand<'a> {
    fn new(floats: &'a [f32], stride: usize) -> Self {
        Self {
            floats,
            row_stride: stride,
            column_stride: 1,
        }
    }

    fn transposed(self) -> Self {
        Self {
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Whether `rows` × `columns` elements lie in the slice.
    fn holds(self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.row_stride + (columns - 1) * self.column_stride < self.floats.len()
    }
}

/// `c += a · b` for `[m, n, k]`, on this thread; `c` has no padding.
fn add_product([m, n, k]: [usize; 3], a: Operand<'_>, b: Operand<'_>, c: &mut [f32]) {
    assert!(a.holds(m, k) && b.holds(k, n) && c.len() == m * n);
    // SAFETY: the assertion bounds every element that the strides address, in `a`, in `b` and, for rows of `n`, in
    // `c`; `c` is borrowed mutably, so it overlaps neither. No stride exceeds `isize::MAX`, being at most the length
    // of a slice of floats or, where there is one row or column only, never multiplied by anything but 0.
    unsafe {
        // The transposed product: the kernels want columns of `c` that are contiguous.
        gemm_f32::gemm::f32::get_gemm_fn()(
            n,
            m,
            k,
            c.as_mut_ptr(),
            n as isize,
            1,
            true,
            b.floats.as_ptr(),
            b.row_stride as isize,
            b.column_stride as isize,
            a.floats.as_ptr(),
            a.row_stride as isize,
            a.column_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}
