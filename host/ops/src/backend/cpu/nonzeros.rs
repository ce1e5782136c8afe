//! What is not zero of a matrix that is mostly zeros, kept as long as the matrix is not written: bags of words are read
//! at every step of a training, and are a hundred times as long as what is in them.
//!
//! The matrix itself lies where it did, zeros and all. A list takes 16 bytes for each element that is listed, which is
//! no more than two for each that the matrix has.

use super::convert::{round, widen};
use super::view::View;
use crate::tensor::Element;
use halfgnn_graph::parallel;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Elements of which one may be other than zero: a product of which fewer are zero is faster as a dense one.
pub(crate) const SPARSITY: usize = 8;

/// Rows whose elements are one piece of work.
const BLOCK_ROWS: usize = 256;

/// The elements of a matrix of which some bit is not zero, with some whose bits were.
#[derive(Debug)]
pub(crate) struct Nonzeros {
    places: Arc<Places>,
    /// In float, in the order of the places.
    values: Vec<f32>,
}

/// Where they are: row `i` has those of columns `columns[starts[i]..starts[i + 1]]`, ascending.
#[derive(Debug)]
pub(crate) struct Places {
    /// Columns of the matrix, and the distance of its rows.
    shape: (usize, usize),
    pub(crate) starts: Vec<usize>,
    pub(crate) columns: Vec<u32>,
    by_columns: OnceLock<Vec<Columns>>,
}

/// The places of some rows by columns: column `i` has the places `places[starts[i]..starts[i + 1]]`, whose rows are
/// `rows`, counted from the first of the range and ascending.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) starts: Vec<usize>,
    pub(crate) rows: Vec<u32>,
    pub(crate) places: Vec<u32>,
}

/// A piece of the rows: their numbers, elements of the matrix, and listed ones.
struct Block<'a, E> {
    rows: Range<usize>,
    elements: &'a mut [E],
    values: &'a mut [f32],
}

impl Nonzeros {
    /// Of a matrix; `None` where too much of it is not zero.
    pub(crate) fn find<E: Element>(matrix: View<'_, E>) -> Option<Self> {
        let View {
            values,
            rows,
            columns,
            stride,
        } = matrix;
        // Rows and places are counted in 32 bits.
        let most = (rows * columns / SPARSITY).max(rows);
        if columns == 0 || values.len() != rows * stride || u32::try_from(most).is_err() {
            return None;
        }
        let blocks = parallel::chunks(values, BLOCK_ROWS * stride);
        let blocks = parallel::map(blocks, |_, block| {
            let rows = block.chunks_exact(stride);
            let most = rows.len() * columns / SPARSITY;
            let (mut counts, mut listed, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for row in rows {
                E::push_nonzero(&row[..columns], &mut listed, &mut values);
                if listed.len() > most {
                    return None;
                }
                counts.push(listed.len());
            }
            Some((counts, listed, values))
        });
        let (mut starts, mut listed, mut values) = (vec![0], Vec::new(), Vec::new());
        for block in blocks {
            let (ends, block_columns, block_values) = block?;
            starts.extend(ends.iter().map(|end| listed.len() + end));
            listed.extend(block_columns);
            values.extend(block_values);
        }
        let places = Places {
            shape: (columns, stride),
            starts,
            columns: listed,
            by_columns: OnceLock::new(),
        };
        Some(Self {
            places: Arc::new(places),
            values,
        })
    }

    /// Whether it can be that of a matrix of the given number of columns, whose rows are `stride` apart.
    pub(super) fn fits(&self, columns: usize, stride: usize) -> bool {
        self.places.shape == (columns, stride)
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// What `f` makes of each element, which of a zero must be a zero: written to `elements`, and listed. `f` is called
    /// with the rows of some elements, their columns, and their values in float, which it overwrites. `before` is what
    /// is listed of `elements`.
    pub(crate) fn map<E: Element>(
        &self,
        elements: &mut [E],
        before: Option<&Self>,
        f: impl Fn(&[u32], &[u32], &mut [f32]) + Sync,
    ) -> Self {
        let Places { shape, starts, .. } = &*self.places;
        let (rows, stride) = (starts.len() - 1, shape.1);
        // Then there is nothing but zeros where none is written.
        let is_clear = before.is_some_and(|before| Arc::ptr_eq(&before.places, &self.places));
        let mut values = self.values.clone();
        let mut blocks = Vec::with_capacity(rows.div_ceil(BLOCK_ROWS));
        let mut rest = (&mut *elements, values.as_mut_slice());
        for first in (0..rows).step_by(BLOCK_ROWS) {
            let rows = first..rows.min(first + BLOCK_ROWS);
            let (block, others) = rest.0.split_at_mut(rows.len() * stride);
            let (values, other_values) = rest.1.split_at_mut(starts[rows.end] - starts[first]);
            blocks.push(Block {
                rows,
                elements: block,
                values,
            });
            rest = (others, other_values);
        }
        parallel::for_each(blocks.as_mut_slice(), |_, block| {
            if !is_clear {
                block.elements.fill(E::zeroed());
            }
            self.map_block(block, &f);
        });
        Self {
            places: Arc::clone(&self.places),
            values,
        }
    }

    fn map_block<E: Element>(
        &self,
        block: &mut Block<'_, E>,
        f: impl Fn(&[u32], &[u32], &mut [f32]),
    ) {
        let Places {
            shape,
            starts,
            columns,
            ..
        } = &*self.places;
        let first = starts[block.rows.start];
        let places = |row: usize| starts[row] - first..starts[row + 1] - first;
        let columns = &columns[first..starts[block.rows.end]];
        let mut row_ids = Vec::with_capacity(columns.len());
        for row in block.rows.clone() {
            row_ids.resize(places(row).end, row as u32);
        }
        f(&row_ids, columns, block.values);
        let mut rounded = vec![E::zeroed(); block.values.len()];
        round(block.values, &mut rounded);
        widen(&rounded, block.values);
        let rows = block.elements.chunks_exact_mut(shape.1);
        for (row, elements) in block.rows.clone().zip(rows) {
            let places = places(row);
            for (&column, &value) in columns[places.clone()].iter().zip(&rounded[places]) {
                elements[column as usize] = value;
            }
        }
    }
}

impl Places {
    /// The places of each of `ranges` of rows by columns; they are the same ranges at each call.
    pub(crate) fn by_columns(&self, ranges: impl Iterator<Item = Range<usize>>) -> &[Columns] {
        match self.by_columns.get() {
            Some(columns) => columns,
            // Not made while others wait: a thread that waits for its part might take work of theirs.
            None => {
                let ranges: Vec<_> = ranges.collect();
                let columns = parallel::map(&*ranges, |_, rows| self.columns_of(rows.clone()));
                self.by_columns.get_or_init(|| columns)
            }
        }
    }

    fn columns_of(&self, rows: Range<usize>) -> Columns {
        let (first, end) = (self.starts[rows.start], self.starts[rows.end]);
        let mut starts = vec![0; self.shape.0 + 1];
        for &column in &self.columns[first..end] {
            starts[column as usize + 1] += 1;
        }
        for column in 0..self.shape.0 {
            starts[column + 1] += starts[column];
        }
        let mut next = starts.clone();
        let (mut row_ids, mut places) = (vec![0; end - first], vec![0; end - first]);
        for (row, ends) in self.starts[rows.start..=rows.end].windows(2).enumerate() {
            for place in ends[0]..ends[1] {
                let at = &mut next[self.columns[place] as usize];
                (row_ids[*at], places[*at]) = (row as u32, place as u32);
                *at += 1;
            }
        }
        Columns {
            starts,
            rows: row_ids,
            places,
        }
    }
}
