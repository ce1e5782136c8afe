//! Operands of the CPU's operators as slices: matrices, and graphs.

use super::Cpu;
use super::buffer::Reading;
use super::nonzeros::Nonzeros;
use crate::backend::Adjacency;
use crate::tensor::{Array, Element, Matrix, padded};
use bytemuck::Pod;
use halfgnn_graph::parallel::{self, Items};
use std::ops::Range;

/// A matrix as a slice: `rows` rows of `columns` elements, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, E> {
    pub(crate) values: &'a [E],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

impl<'a, E: Element> View<'a, E> {
    /// The first `width` elements of a row.
    pub(crate) fn row(&self, row: usize, width: usize) -> &'a [E] {
        &self.values[row * self.stride..][..width]
    }

    /// Some of the rows.
    pub(crate) fn rows(self, rows: Range<usize>) -> Self {
        Self {
            values: &self.values[rows.start * self.stride..rows.end * self.stride],
            rows: rows.len(),
            ..self
        }
    }
}

/// A matrix as a slice to write to: rows of `columns` elements, `stride` apart.
pub(crate) struct ViewMut<'a, E> {
    pub(crate) values: &'a mut [E],
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

pub(crate) fn view<'a, E: Element>(
    matrix: &Matrix<Cpu, E>,
    values: &'a Reading<'_, E>,
) -> View<'a, E> {
    View {
        values: &values[matrix.elements_before().min(values.len())..],
        rows: matrix.rows(),
        columns: matrix.columns(),
        stride: matrix.stride(),
    }
}

/// What is not zero of a matrix, where that is [kept](Reading::nonzeros).
pub(crate) fn nonzeros<'a, E: Element>(
    matrix: &Matrix<Cpu, E>,
    values: &'a Reading<'_, E>,
) -> Option<&'a Nonzeros> {
    values.nonzeros(matrix.shape(), matrix.stride())
}

pub(crate) fn view_mut<E: Element>(matrix: &mut Matrix<Cpu, E>) -> ViewMut<'_, E> {
    let (rows, columns, stride) = (matrix.rows(), matrix.columns(), matrix.stride());
    let first = matrix.elements_before();
    let values = matrix.buffer.get_mut();
    let first = first.min(values.len());
    let values = &mut values[first..];
    // Of some rows alone those; the last of all may have nothing behind it.
    let len = values.len().min(rows * stride);
    ViewMut {
        values: &mut values[..len],
        columns,
        stride,
    }
}

/// Makes the padding of each row zero, of a matrix whose columns are written one by one.
pub(crate) fn clear_padding<E: Element>(matrix: &mut Matrix<Cpu, E>) {
    let view = view_mut(matrix);
    let (columns, own) = (view.columns, padded::<E>(view.columns));
    for row in view.values.chunks_mut(view.stride.max(1)) {
        let padding = row.iter_mut().take(own).skip(columns);
        padding.for_each(|element| *element = E::from_f32(0.0));
    }
}

pub(crate) fn read<'a, T: Pod + Send + Sync>(
    array: Option<&'a Array<Cpu, T>>,
) -> Option<Reading<'a, T>> {
    array.map(|array| array.buffer.read())
}

pub(crate) fn read_matrix<'a, E: Element>(
    matrix: Option<&'a Matrix<Cpu, E>>,
) -> Option<Reading<'a, E>> {
    matrix.map(|matrix| matrix.buffer.read())
}

/// Rows that are one piece of work at least: less would cost more to hand out than to do.
const MIN_ROWS: usize = 16;

/// Calls `f(row, columns, elements, floats)` for every row, with the padding in `elements` and `floats`.
pub(crate) fn for_rows<E: Element>(
    matrix: ViewMut<'_, E>,
    f: impl Fn(usize, usize, &mut [E], &mut [f32]) + Sync,
) {
    let (columns, stride) = (matrix.columns, matrix.stride);
    if stride == 0 {
        return;
    }
    let rows = parallel::chunks_mut(matrix.values, stride);
    let least = MIN_ROWS.max(TOGETHER / stride);
    parallel::pieces(rows, least, &|first, rows| {
        let mut floats = vec![0.0; stride];
        for (row, elements) in (first..).zip(rows.each()) {
            f(row, columns, elements, &mut floats);
        }
    });
}

/// Elements that are widened together: as floats they lie in the first-level cache, twice.
const TOGETHER: usize = 1 << 11;

/// Blocks of them that are one piece of work at least: to wake a thread takes longer than fewer do.
const MIN_BLOCKS: usize = 4;

/// Calls `f(first row, columns, elements, floats)` for some whole rows at a time, with the padding; `floats` have
/// memory for the elements twice.
pub(crate) fn for_rows_together<E: Element>(
    matrix: ViewMut<'_, E>,
    f: impl Fn(usize, usize, &mut [E], &mut [f32]) + Sync,
) {
    let (columns, stride) = (matrix.columns, matrix.stride);
    if stride == 0 {
        return;
    }
    let rows = TOGETHER.div_ceil(stride);
    let blocks = parallel::chunks_mut(matrix.values, rows * stride);
    parallel::pieces(blocks, MIN_BLOCKS, &|first, blocks| {
        let mut floats = vec![0.0; 2 * rows * stride];
        for (block, elements) in (first..).zip(blocks.each()) {
            f(block * rows, columns, elements, &mut floats);
        }
    });
}

/// Numbers of vertices that are one piece of work at least.
const MIN_NUMBERS: usize = 64;

/// A graph as the loops below see it.
pub(crate) struct Edges<'a> {
    offsets: &'a [u64],
    pub(crate) columns: &'a [u32],
    count: usize,
}

/// Calls `f` with the arrays of `a`.
pub(crate) fn with_edges<T>(a: &Adjacency<Cpu>, f: impl FnOnce(&Edges<'_>) -> T) -> T {
    f(&Edges {
        offsets: &a.row_offsets().buffer.read(),
        columns: &a.column_ids.buffer.read(),
        count: a.rows(),
    })
}

impl Edges<'_> {
    pub(crate) fn of_row(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Writes `f(head, row)` to each number of `planes`.
    pub(crate) fn for_rows<T: Pod + Send>(
        &self,
        planes: &mut [T],
        f: impl Fn(usize, usize) -> T + Sync,
    ) {
        for_planes(planes, self.count, f);
    }
}

/// Writes `f(plane, place)` to each number of planes that are `len` long.
pub(crate) fn for_planes<T: Send>(
    planes: &mut [T],
    len: usize,
    f: impl Fn(usize, usize) -> T + Sync,
) {
    for_numbers(planes, |at, out| *out = f(at / len, at % len));
}

/// Calls `f(place, number)` for each number.
pub(crate) fn for_numbers<T: Send>(numbers: &mut [T], f: impl Fn(usize, &mut T) + Sync) {
    parallel::pieces(numbers, MIN_NUMBERS, &|first, numbers| {
        (first..)
            .zip(numbers)
            .for_each(|(at, number)| f(at, number));
    });
}
