//! Bias, ReLU and dropout, their gradient, and the sums of columns.
//!
//! A row is widened to float, computed with, and rounded once.

use super::{
    ActivateBackwardOperands, ActivateOperands, ColumnSumsOperands, DropRowsOperands, Dropout,
    ElementwiseOperators, MultiplyOperands, OfParts, SumPartsOperands,
};
use crate::backend::Floats;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{WIDEST, round, widen, widened};
use crate::backend::cpu::simd::{self, Kernel, Lanes, is_zero};
use crate::backend::cpu::view::{
    for_rows, for_rows_together, nonzeros, read, read_matrix, view, view_mut,
};
use crate::error::Error;
use crate::ops::{self, Checked};
use crate::tensor::Element;
use halfgnn_contract::rng;
use halfgnn_graph::parallel;

/// Elements of a product that a thread takes at once.
const PRODUCTS: usize = 1 << 14;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

impl ElementwiseOperators for Cpu {
    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ActivateOperands {
            op,
            mut x,
            order,
            sum,
            y,
        } = operands.into_inner();
        if let (Some(rows), Some(order)) = (x, order) {
            ops::take_rows(self, rows, order, y)?;
            x = None;
        }
        let mask = op.dropout.map(Mask::new);
        let (values, bias) = (read_matrix(x), read_matrix(op.bias));
        let kept = match (x, &values, &bias) {
            (Some(x), Some(values), None) if !sum => nonzeros(x, values),
            _ => None,
        };
        if let Some(kept) = kept {
            let (elements, before) = y.buffer.get_mut_and_nonzeros();
            let dropped = kept.map(elements, before.as_ref(), |rows, columns, values| {
                add_bias_and_activate(values, None, op.relu);
                if let Some(mask) = &mask {
                    self.instructions().run(DropSome {
                        mask,
                        rows,
                        columns,
                        values,
                    });
                }
            });
            y.buffer.keep_nonzeros(dropped);
            return Ok(());
        }
        let (x, bias) = (values.as_deref(), bias.as_deref());
        let stride = y.stride();
        for_rows_together(view_mut(y), |first, columns, y, floats| {
            let source = x.map_or(&*y, |x| &x[first * stride..][..y.len()]);
            if bias.is_none() && !sum && is_mostly_zeros(source) {
                if let Some(x) = x {
                    y.copy_from_slice(&x[first * stride..][..y.len()]);
                }
                return activate_runs(op.relu, mask.as_ref(), first, stride, y, floats);
            }
            if sum {
                let (floats, addends) = floats[..2 * y.len()].split_at_mut(y.len());
                widen(source, floats);
                widen(y, addends);
                add(floats, addends);
            } else {
                widen(source, &mut floats[..y.len()]);
            }
            let floats = &mut floats[..y.len()];
            match bias {
                // What lies behind the columns stays zero.
                Some(_) => floats
                    .chunks_mut(stride)
                    .for_each(|row| add_bias_and_activate(&mut row[..columns], bias, op.relu)),
                None => add_bias_and_activate(floats, None, op.relu),
            }
            if let Some(mask) = &mask {
                mask.apply((first, 0), stride, floats);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let operands = operands.into_inner();
        let (op, d) = (operands.op, operands.d);
        let (y, row_scale) = (read_matrix(operands.y), read(operands.row_scale));
        let (y, row_scale) = (y.as_deref(), row_scale.as_deref());
        let mask = op.dropout.map(Mask::new);
        let stride = d.stride();
        for_rows_together(view_mut(d), |first, columns, d, floats| {
            let floats = &mut floats[..d.len()];
            widen(d, floats);
            match (op.relu, y) {
                // What ReLU or dropout made zero says so by itself: no mask is sampled again.
                (true, Some(y)) => {
                    let scale = mask.as_ref().map_or(1.0, |mask| mask.scale);
                    E::keep_positive(KeepPositive::new(
                        floats,
                        &y[first * stride..][..d.len()],
                        scale,
                    ));
                }
                _ => {
                    if let Some(mask) = &mask {
                        mask.apply((first, 0), stride, floats);
                    }
                }
            }
            if let Some(scale) = row_scale {
                for (row, scale) in floats.chunks_mut(stride).zip(&scale[first..]) {
                    // A zero behind the columns times an infinite factor would be none.
                    row[..columns].iter_mut().for_each(|value| *value *= scale);
                }
            }
            round(floats, d);
        });
        Ok(())
    }

    fn multiply<E: Element>(
        &self,
        operands: Checked<MultiplyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MultiplyOperands { x, by, y } = operands.into_inner();
        let (x, by) = (x.map(|x| x.buffer.read()), by.buffer.read());
        let products = |y: &mut [E], x: Option<&[E]>, by: &[E]| {
            let mut floats = widened(x.unwrap_or(&*y)).into_owned();
            let factors = widened(by);
            floats
                .iter_mut()
                .zip(&*factors)
                .for_each(|(x, by)| *x *= by);
            round(&floats, y);
        };
        let pieces = parallel::chunks_mut(y.buffer.get_mut(), PRODUCTS);
        let by = parallel::chunks(&by, PRODUCTS);
        match &x {
            Some(x) => {
                let factors = (parallel::chunks(x, PRODUCTS), by);
                parallel::for_each((pieces, factors), |_, (y, (x, by))| {
                    products(y, Some(x), by)
                });
            }
            None => parallel::for_each((pieces, by), |_, (y, by)| products(y, None, by)),
        }
        Ok(())
    }

    fn drop_rows<E: Element>(
        &self,
        operands: Checked<DropRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DropRowsOperands {
            dropout,
            vertices,
            y,
        } = operands.into_inner();
        let (mask, vertices) = (Mask::new(dropout), vertices.buffer.read());
        for_rows(view_mut(y), |row, columns, y, floats| {
            widen(y, floats);
            mask.apply((vertices[row] as usize, 0), y.len(), &mut floats[..columns]);
            round(floats, y);
        });
        Ok(())
    }

    /// Sums of blocks of rows, then of the blocks, each in order.
    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ColumnSumsOperands { x, sums } = operands.into_inner();
        let values = x.buffer.read();
        let (x, sums) = (view(x, &values), sums.buffer.get_mut());
        sums.fill(0.0);
        if x.columns == 0 {
            return Ok(());
        }
        let blocks = parallel::map(
            parallel::chunks(x.values, SUM_ROWS * x.stride),
            |_, block| {
                let mut sums = vec![0.0; x.columns];
                for row in widened(block).chunks_exact(x.stride) {
                    add(&mut sums, row);
                }
                sums
            },
        );
        for block in &blocks {
            add(sums, block);
        }
        Ok(())
    }

    fn sum_parts(&self, operands: Checked<SumPartsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let parts = of.parts.buffer.read();
        let sums = match of.sums {
            Floats::Matrix(matrix) => matrix.buffer.get_mut(),
            Floats::Array(array) => array.buffer.get_mut(),
        };
        let fold: fn(f32, f32) -> f32 = match of.of {
            OfParts::Sum => |sum, term| sum + term,
            OfParts::Largest => f32::max,
        };
        let len = sums.len();
        for (at, sum) in sums.iter_mut().enumerate() {
            let terms = (0..of.count).map(|part| parts[part * len + at]);
            *sum = of.factor * terms.fold(0.0, fold);
        }
        Ok(())
    }
}

/// Elements of a row that are compared with zero at a time.
const RUN: usize = 16;

/// Whether most runs of some rows are zeros, as in bags of words.
fn is_mostly_zeros<E: Element>(rows: &[E]) -> bool {
    let runs = rows.chunks(RUN);
    let most = runs.len() / 2;
    runs.filter(|run| is_zero(run)).count() > most
}

/// ReLU and dropout in place, of what is not zero: zeros stay what they are. `y` begins with row `first`.
fn activate_runs<E: Element>(
    relu: bool,
    mask: Option<&Mask>,
    first: usize,
    stride: usize,
    y: &mut [E],
    floats: &mut [f32],
) {
    for (run, elements) in y.chunks_mut(RUN).enumerate() {
        if is_zero(elements) {
            continue;
        }
        let floats = &mut floats[..elements.len()];
        widen(elements, floats);
        add_bias_and_activate(floats, None, relu);
        if let Some(mask) = mask {
            let (row, column) = (run * RUN / stride, run * RUN % stride);
            mask.apply((first + row, column), stride, floats);
        }
        round(floats, elements);
    }
}

/// Adds the bias, and makes zeros of what is below zero.
pub(crate) fn add_bias_and_activate(floats: &mut [f32], bias: Option<&[f32]>, relu: bool) {
    if let Some(bias) = bias {
        floats
            .iter_mut()
            .zip(bias)
            .for_each(|(value, bias)| *value += bias);
    }
    if relu {
        for value in floats {
            // Not `max`, which would make a zero of a NaN. Written whether it changes or not, so that there is no
            // branch.
            *value = if *value < 0.0 { 0.0 } else { *value };
        }
    }
}

/// Elements of [`KeepPositive`] that are widened at a time.
const KEPT_TOGETHER: usize = 64;

/// Scales what stands where `y` is above zero, and makes zeros of the rest.
pub struct KeepPositive<'a, E> {
    floats: &'a mut [f32],
    y: &'a [E],
    scale: f32,
}

impl<'a, E: Element> KeepPositive<'a, E> {
    /// Both have one length.
    pub(crate) fn new(floats: &'a mut [f32], y: &'a [E], scale: f32) -> Self {
        Self { floats, y, scale }
    }

    #[inline(always)]
    fn by(self, widen: impl Fn(&[E], &mut [f32])) {
        let mut room = [0.0; KEPT_TOGETHER];
        let of_y = self.y.chunks(KEPT_TOGETHER);
        for (floats, y) in self.floats.chunks_mut(KEPT_TOGETHER).zip(of_y) {
            let room = &mut room[..y.len()];
            widen(y, room);
            for (value, &y) in floats.iter_mut().zip(&*room) {
                *value = if y > 0.0 { *value * self.scale } else { 0.0 };
            }
        }
    }
}

impl<E: Element> Kernel for KeepPositive<'_, E> {
    type Output = ();

    fn plain(self) {
        self.by(|y, floats| {
            (floats.iter_mut().zip(y)).for_each(|(float, y)| *float = y.to_f32());
        });
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        self.by(
            #[inline(always)]
            |y, floats| simd::widen(lanes, y, floats),
        );
    }
}

/// Which elements dropout keeps.
pub(crate) struct Mask {
    key: [u32; 2],
    step: u32,
    threshold: u32,
    scale: f32,
}

impl Mask {
    pub(crate) fn new(dropout: Dropout<'_, Cpu>) -> Self {
        let (words, at) = dropout.random.count();
        Self {
            key: rng::key(dropout.random.seed(), dropout.stream),
            step: words.buffer.read()[at],
            threshold: rng::threshold(dropout.probability),
            scale: 1.0 / (1.0 - dropout.probability),
        }
    }

    /// What becomes of the weight of the edge from `source` to `destination`.
    pub(crate) fn edge(&self, weight: f32, head: usize, destination: usize, source: usize) -> f32 {
        // Ids are 32 bits wide, and there are no more heads than columns.
        let [head, destination, source] = [head, destination, source].map(|id| id as u32);
        let counter = rng::edge_dropout_counter(self.step, head, destination, source);
        if rng::philox(self.key, counter)[0] >= self.threshold {
            weight * self.scale
        } else {
            0.0
        }
    }

    /// Drops of `values`, which begin at a column of a row, a multiple of four, and go on with the rows behind it. Rows
    /// are `stride` apart, another multiple.
    fn apply(&self, (row, column): (usize, usize), stride: usize, values: &mut [f32]) {
        WIDEST.run(DropRows {
            mask: self,
            row: row as u64,
            block: (column / 4) as u32,
            blocks: (stride / 4) as u32,
            values,
        });
    }

    /// What becomes of a value, by the number that was sampled for it.
    #[inline(always)]
    fn decide(&self, value: f32, bits: u32) -> f32 {
        if bits >= self.threshold {
            value * self.scale
        } else {
            0.0
        }
    }
}

/// [`Mask::apply`].
struct DropRows<'a> {
    mask: &'a Mask,
    row: u64,
    block: u32,
    /// Of a row.
    blocks: u32,
    values: &'a mut [f32],
}

impl Kernel for DropRows<'_> {
    type Output = ();

    #[inline(always)]
    fn plain(self) {
        /// Blocks of four that are sampled at a time, so that the compiler samples for as many as vectors hold.
        const TOGETHER: usize = 16;
        let Self {
            mask,
            mut row,
            mut block,
            blocks,
            values,
        } = self;
        for values in values.chunks_mut(4 * TOGETHER) {
            let mut places = [(0, 0); TOGETHER];
            for place in &mut places[..values.len().div_ceil(4)] {
                *place = (row, block);
                block += 1;
                if block == blocks {
                    (row, block) = (row + 1, 0);
                }
            }
            // Kept or not, a zero stays one; bag-of-words features have little else.
            if values.iter().all(|value| value.to_bits() == 0) {
                continue;
            }
            let mut drawn = [[0; 4]; TOGETHER];
            for (drawn, (row, block)) in drawn.iter_mut().zip(places) {
                *drawn = rng::dropout_bits(mask.key, mask.step, row, block);
            }
            for (value, &bits) in values.iter_mut().zip(drawn.as_flattened()) {
                *value = mask.decide(*value, bits);
            }
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, _: L) {
        self.plain();
    }
}

/// Drops of `values`, whose places are given one by one.
struct DropSome<'a> {
    mask: &'a Mask,
    rows: &'a [u32],
    columns: &'a [u32],
    values: &'a mut [f32],
}

impl Kernel for DropSome<'_> {
    type Output = ();

    #[inline(always)]
    fn plain(self) {
        let (rows, columns) = (self.rows.iter(), self.columns.iter());
        for ((value, &row), &column) in self.values.iter_mut().zip(rows).zip(columns) {
            let bits = rng::dropout_bits(self.mask.key, self.mask.step, row.into(), column / 4);
            // Chosen without an index, so that the compiler draws for as many values at a time as vectors hold.
            let is_odd = column & 1 != 0;
            let low = if is_odd { bits[1] } else { bits[0] };
            let high = if is_odd { bits[3] } else { bits[2] };
            let bits = if column & 2 != 0 { high } else { low };
            *value = self.mask.decide(*value, bits);
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, _: L) {
        self.plain();
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
