//! Bits, a column at a time.

use super::blocks::Addition;
use super::factors::code_of;
use super::{
    BinarizeOperands, BitMatrix, BitsOperators, BmmElements, BmmOperands, BmmSigns,
    BspmmIntegersOperands, BspmmOperands, BspmmSignsOperands, ColumnFactors,
};
use crate::backend::Adjacency;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::{read, view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::ops::normalize::cpu::AffineColumns;
use crate::tensor::Element;
use halfgnn_graph::parallel::{self, Items};

/// The sums of the neighbours of each row: `write` gets a row and a number a column, of none where it has no
/// neighbours.
fn for_sums<T: Send>(
    (a, factors): (&Adjacency<Cpu>, Option<&ColumnFactors<Cpu>>),
    x: &BitMatrix<Cpu>,
    (before, rows): (usize, &mut [T]),
    stride: usize,
    write: impl Fn(usize, Option<&[i32]>, &mut [T]) + Sync,
) {
    let (offsets, columns) = (a.row_offsets().buffer.read(), a.column_ids.buffer.read());
    let words = x.words.buffer.read();
    let codes = factors.map(|factors| factors.codes.buffer.read());
    let (offsets, columns, words): (&[u64], &[u32], &[u64]) = (&offsets, &columns, &words);
    let codes: Option<&[u32]> = codes.as_deref();
    parallel::pieces(parallel::chunks_mut(rows, stride), 1, &|first, rows| {
        let mut sums = vec![0_i32; x.columns()];
        for (row, out) in (before + first..).zip(rows.each()) {
            let edges = offsets[row] as usize..offsets[row + 1] as usize;
            if edges.is_empty() {
                write(row, None, out);
                continue;
            }
            sums.fill(0);
            for &column in &columns[edges] {
                let bits = &words[column as usize * x.stride()..][..x.stride()];
                let factor = codes.map_or(1, |codes| code_of(codes, column));
                for (at, sum) in sums.iter_mut().enumerate() {
                    *sum += factor * (2 * (bits[at / 64] >> (at % 64) & 1) as i32 - 1);
                }
            }
            write(row, Some(&sums), out);
        }
    });
}

/// The products of each row of `a` with all rows of `b`, with what is done with them.
fn for_products<T: Send>(
    of: &BmmOperands<'_, Cpu>,
    rows: &mut [T],
    stride: usize,
    write: impl Fn(&[f32], &mut [T]) + Sync,
) {
    let (a, b) = (of.a.words.buffer.read(), of.b.words.buffer.read());
    let (a, b): (&[u64], &[u64]) = (&a, &b);
    let [row_scale, column_scale, bias] =
        [of.op.row_scale, of.op.column_scale, of.op.bias].map(read);
    let [row_scale, column_scale, bias] =
        [&row_scale, &column_scale, &bias].map(|numbers| numbers.as_deref());
    let number = |of: Option<&[f32]>, at: usize, none: f32| of.map_or(none, |numbers| numbers[at]);
    let words = of.a.stride();
    parallel::pieces(parallel::chunks_mut(rows, stride), 1, &|first, rows| {
        let mut values = vec![0.0; of.b.rows()];
        for (row, out) in (first..).zip(rows.each()) {
            let own = &a[row * words..][..words];
            let factor = of.op.scale * number(row_scale, row, 1.0);
            for (column, value) in values.iter_mut().enumerate() {
                let other = &b[column * words..][..words];
                let pairs = own.iter().zip(other);
                let differ: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
                let product = of.a.columns() as i32 - 2 * differ as i32;
                let scaled = product as f32 * factor * number(column_scale, column, 1.0);
                *value = scaled + number(bias, column, 0.0);
            }
            write(&values, out);
        }
    });
}

/// Writes the sums of a row times a factor; zeros where it has no neighbours, and past the last.
pub(in crate::ops) fn write_sums<E: Element>(sums: Option<&[i32]>, factor: f32, out: &mut [E]) {
    out.fill(E::zeroed());
    for (to, &sum) in out.iter_mut().zip(sums.unwrap_or_default()) {
        *to = E::from_f32(sum as f32 * factor);
    }
}

/// Writes a bit for each of the sums of a row, set where it is zero or more, as all are where it has no neighbours.
pub(in crate::ops) fn write_signs(sums: Option<&[i32]>, columns: usize, out: &mut [u64]) {
    out.fill(0);
    for at in 0..columns {
        let sum = sums.map_or(0, |sums| sums[at]);
        out[at / 64] |= u64::from(sum >= 0) << (at % 64);
    }
}

impl BitsOperators for Cpu {
    fn binarize<E: Element>(
        &self,
        operands: Checked<BinarizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let BinarizeOperands {
            x,
            normalization,
            y,
        } = operands.into_inner();
        let affine = normalization.map(AffineColumns::new);
        let (values, stride) = (x.buffer.read(), y.stride());
        let x = view(x, &values);
        let rows = parallel::chunks_mut(y.words.buffer.get_mut(), stride);
        parallel::for_each(rows, |row, words| {
            words.fill(0);
            let values = &x.values[row * x.stride..][..x.columns];
            for (at, value) in values.iter().enumerate() {
                let mut value = [value.to_f32()];
                if let Some(affine) = &affine {
                    affine.apply(at, &mut value);
                }
                // The sign of what would have been stored: the smallest are rounded to zero.
                let is_set = E::from_f32(value[0]).to_f32() >= 0.0;
                words[at / 64] |= u64::from(is_set) << (at % 64);
            }
        });
        Ok(())
    }

    fn bspmm<E: Element>(
        &self,
        operands: Checked<BspmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let row_scale = read(of.row_scale);
        let (y, rows) = (view_mut(of.y), of.share.rows(of.a.rows()));
        let scale = of.scale * of.factors.map_or(1.0, ColumnFactors::scale);
        // The last row of all may have nothing behind it.
        let end = y.values.len().min(rows.len() * y.stride);
        for_sums(
            (of.a, of.factors),
            of.x,
            (rows.start, &mut y.values[..end]),
            y.stride,
            |row, sums, out| {
                let row_factor = row_scale.as_ref().map_or(1.0, |factors| factors[row]);
                write_sums(sums, scale * row_factor, out);
            },
        );
        Ok(())
    }

    fn bspmm_signs(&self, operands: Checked<BspmmSignsOperands<'_, Self>>) -> Result<(), Error> {
        let BspmmSignsOperands {
            a,
            factors,
            x,
            y,
            schedule: _,
        } = operands.into_inner();
        let (columns, stride) = (y.columns(), y.stride());
        let words = y.words.buffer.get_mut();
        for_sums((a, factors), x, (0, words), stride, |_, sums, out| {
            write_signs(sums, columns, out);
        });
        Ok(())
    }

    fn bspmm_integers(
        &self,
        operands: Checked<BspmmIntegersOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let stride = of.y.stride();
        let values = of.y.values.buffer.get_mut();
        for_sums(
            (of.a, of.factors),
            of.x,
            (0, values),
            stride,
            |_, sums, out| {
                out.fill(0);
                let sums = sums.unwrap_or_default();
                out[..sums.len()].copy_from_slice(sums);
            },
        );
        Ok(())
    }

    fn bmm<E: Element>(&self, operands: Checked<BmmElements<'_, Self, E>>) -> Result<(), Error> {
        let BmmElements {
            operands,
            addition,
            y,
        } = operands.into_inner();
        let y = view_mut(y);
        for_products(&operands, y.values, y.stride, |values, out| {
            let (columns, padding) = out.split_at_mut(values.len());
            padding.fill(E::zeroed());
            for (to, &value) in columns.iter_mut().zip(values) {
                *to = E::from_f32(match addition {
                    None => value,
                    Some(Addition::Products) => to.to_f32() + value,
                    Some(Addition::Signs { share }) if value >= 0.0 => to.to_f32() + share,
                    Some(Addition::Signs { share }) => to.to_f32() - share,
                });
            }
        });
        Ok(())
    }

    fn bmm_signs(&self, operands: Checked<BmmSigns<'_, Self>>) -> Result<(), Error> {
        let BmmSigns { operands, y } = operands.into_inner();
        let stride = y.stride();
        for_products(
            &operands,
            y.words.buffer.get_mut(),
            stride,
            |values, out| {
                out.fill(0);
                for (at, &value) in values.iter().enumerate() {
                    out[at / 64] |= u64::from(value >= 0.0) << (at % 64);
                }
            },
        );
        Ok(())
    }
}
