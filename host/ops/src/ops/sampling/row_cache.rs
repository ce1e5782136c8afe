//! Copies of rows that lie in another memory.

use super::{SamplingOperators, take_rows};
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, padded};
use halfgnn_contract::sampling::mark_words;

/// Copies, in a device's memory, of some rows of a matrix that lies elsewhere, such as [the
/// host's](MemoryKind::HostFeatures): [`take_cached_rows`](super::take_cached_rows) reads them where a row has one, and
/// all others over the bus. It takes two bits a row of the matrix as well.
///
/// They are copies of what rows were when it was made, and of a matrix that is written later no more.
#[derive(Debug)]
pub struct RowCache<B: Storage, E: Element> {
    /// Rows of the matrix.
    of: usize,
    /// For each 32 rows a bit of each that has a copy, and how many have one before.
    pub(super) marks: Array<B, [u32; 2]>,
    /// The copies, by their numbers.
    pub(super) copies: Matrix<B, E>,
}

impl<B: SamplingOperators, E: Element> RowCache<B, E> {
    /// Of the rows `numbers` of `matrix`, in any order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where one is no row, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, matrix: &Matrix<B, E>, numbers: &[u32]) -> Result<Self, Error> {
        let rows = matrix.rows();
        let mut marks = vec![[0_u32; 2]; mark_words(rows as u64) as usize];
        for &number in numbers {
            if number as usize >= rows {
                return Err(Error::Unsupported {
                    operator: "RowCache",
                    reason: format!("a copy of row {number} is asked for, and there are {rows}"),
                });
            }
            marks[number as usize / 32][0] |= 1 << (number % 32);
        }
        let mut copied = Vec::with_capacity(numbers.len());
        for (word, mark) in marks.iter_mut().enumerate() {
            mark[1] = copied.len() as u32;
            let bits = (0..32).filter(|bit| mark[0] >> bit & 1 == 1);
            copied.extend(bits.map(|bit| 32 * word as u32 + bit));
        }
        let kind = MemoryKind::Features;
        let marks = Array::from_slice(backend, &marks, kind)?;
        let mut copies = Matrix::uninit(backend, copied.len(), matrix.columns(), kind)?;
        let copied = Array::from_slice(backend, &copied, MemoryKind::Workspace)?;
        take_rows(backend, matrix, &copied, &mut copies)?;
        Ok(Self {
            of: rows,
            marks,
            copies,
        })
    }
}

impl<B: Storage, E: Element> RowCache<B, E> {
    /// How many rows have a copy.
    pub fn len(&self) -> usize {
        self.copies.rows()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of the matrix.
    pub fn of(&self) -> usize {
        self.of
    }

    /// Columns of the matrix.
    pub fn columns(&self) -> usize {
        self.copies.columns()
    }

    /// Bytes that it takes with a number of copies, of a matrix of such rows and columns.
    pub fn bytes((rows, columns): (usize, usize), copies: usize) -> u64 {
        Self::bytes_of_marks(rows).saturating_add(Self::bytes_of_row(columns) * copies as u64)
    }

    /// How many of a number of rows, of a number of columns, have a copy within `bytes`.
    pub fn copies_within((rows, columns): (usize, usize), bytes: u64) -> usize {
        let of_copies = bytes.saturating_sub(Self::bytes_of_marks(rows));
        let most = of_copies
            .checked_div(Self::bytes_of_row(columns))
            .unwrap_or(0);
        most.min(rows as u64) as usize
    }

    fn bytes_of_marks(rows: usize) -> u64 {
        mark_words(rows as u64) * size_of::<[u32; 2]>() as u64
    }

    fn bytes_of_row(columns: usize) -> u64 {
        (padded::<E>(columns) * size_of::<E>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use half::f16;

    #[test]
    fn rows_fit_the_bytes_that_they_take() {
        type Copies = RowCache<Cpu, f16>;
        let shape = (1000, 41);
        for copies in [0, 1, 7, 1000] {
            let bytes = Copies::bytes(shape, copies);
            assert_eq!(Copies::copies_within(shape, bytes), copies);
            assert_eq!(Copies::copies_within(shape, bytes + 1), copies);
            let fewer = Copies::copies_within(shape, bytes.saturating_sub(1));
            assert_eq!(fewer, copies.saturating_sub(1));
        }
        assert_eq!(Copies::copies_within(shape, u64::MAX), 1000);
        assert_eq!(Copies::copies_within((1000, 0), u64::MAX), 0);
    }
}
