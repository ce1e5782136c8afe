//! Matrices of bits.

use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;
use halfgnn_contract::bits::{WORD_BITS, row_words};
use halfgnn_graph::parallel;

/// A row-major matrix of +1 (a bit that is set) and −1 on a backend, an eighth of a byte an element. Element `f` of a
/// row is bit `f % 64` of its word `f / 64`; bits past the last column are zero, always, and rows of more than 64
/// columns start at multiples of 16 bytes.
#[derive(Debug)]
pub struct BitMatrix<B: Storage> {
    pub(crate) words: Array<B, u64>,
    rows: usize,
    columns: usize,
}

impl<B: Storage> BitMatrix<B> {
    /// `rows` × `columns` of −1.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix has more elements than can be addressed, [`Error::Unsupported`] for no
    /// columns, [`Error::Driver`] where there is not enough memory.
    pub fn zeros(
        backend: &B,
        rows: usize,
        columns: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        if columns == 0 {
            return Err(Error::Unsupported {
                operator: "BitMatrix",
                reason: format!("{rows} x 0 bits; a row has at least one column"),
            });
        }
        let too_large = Error::TooLarge { rows, columns };
        let words = Self::words_of(columns)
            .checked_mul(rows)
            .filter(|&words| words <= isize::MAX as usize / 8 && columns <= u32::MAX as usize / 2)
            .ok_or(too_large)?;
        Ok(Self {
            words: Array::zeros(backend, words, kind)?,
            rows,
            columns,
        })
    }

    /// A copy of `values`, row-major, `rows · columns` long, each +1 or −1.
    ///
    /// # Errors
    /// Those of [`BitMatrix::zeros`]; [`Error::Shape`] where the length is another, [`Error::Unsupported`] for another
    /// value, with its place.
    pub fn from_signs(
        backend: &B,
        (rows, columns): (usize, usize),
        values: &[f32],
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        const NAME: &str = "BitMatrix::from_signs";
        let mut matrix = Self::zeros(backend, rows, columns, kind)?;
        Error::expect(NAME, "values", rows * columns, values.len())?;
        if let Some(at) = values.iter().position(|value| value.abs() != 1.0) {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "row {}, column {} is {}; a bit is +1 or -1: binarize other numbers",
                    at / columns,
                    at % columns,
                    values[at]
                ),
            });
        }
        let mut words = vec![0_u64; matrix.words.len()];
        for (row, values) in values.chunks_exact(columns).enumerate() {
            for (column, _) in values.iter().enumerate().filter(|&(_, &value)| value > 0.0) {
                words[row * matrix.stride() + column / 64] |= 1 << (column % 64);
            }
        }
        matrix.words.write(backend, &words)?;
        Ok(matrix)
    }

    /// A copy of the words of all rows, [`BitMatrix::stride`] each.
    ///
    /// # Errors
    /// Those of [`BitMatrix::zeros`]; [`Error::Shape`] where there are not as many, [`Error::Unsupported`] for a bit
    /// past the last column, with its place.
    pub fn from_words(
        backend: &B,
        (rows, columns): (usize, usize),
        words: &[u64],
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        const NAME: &str = "BitMatrix::from_words";
        let mut matrix = Self::zeros(backend, rows, columns, kind)?;
        Error::expect(NAME, "words", matrix.words.len(), words.len())?;
        let stride = matrix.stride();
        let is_past = |(at, word): (usize, &u64)| word & !matrix.columns_of(at % stride) != 0;
        if let Some(at) = words.iter().enumerate().position(is_past) {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "word {} of row {} has bits past column {columns}; they are zero",
                    at % stride,
                    at / stride
                ),
            });
        }
        matrix.words.write(backend, words)?;
        Ok(matrix)
    }

    /// Rows whose words `put` writes, where all are zero, on several threads: the number of the row, and its
    /// [`stride`](BitMatrix::stride) words.
    ///
    /// # Errors
    /// Those of [`BitMatrix::from_words`].
    pub fn from_rows(
        backend: &B,
        (rows, columns): (usize, usize),
        kind: MemoryKind,
        put: impl Fn(usize, &mut [u64]) + Sync,
    ) -> Result<Self, Error> {
        let stride = Self::words_of(columns);
        let too_large = Error::TooLarge { rows, columns };
        let mut words = vec![0; rows.checked_mul(stride).ok_or(too_large)?];
        if stride > 0 {
            parallel::for_each(parallel::chunks_mut(&mut words, stride), put);
        }
        Self::from_words(backend, (rows, columns), &words, kind)
    }

    /// The elements, +1 and −1, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_signs(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let words = self.to_words(backend)?;
        let sign = |word: u64, column: usize| {
            if word >> (column % 64) & 1 != 0 {
                1.0
            } else {
                -1.0
            }
        };
        Ok(words
            .chunks_exact(self.stride())
            .flat_map(|row| (0..self.columns).map(|column| sign(row[column / 64], column)))
            .collect())
    }

    /// The words of all rows, [`BitMatrix::stride`] each, padding included.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_words(&self, backend: &B) -> Result<Vec<u64>, Error> {
        self.words.to_vec(backend)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, padding not counted.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `(rows, columns)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Words between the starts of two rows: one, or an even number.
    pub fn stride(&self) -> usize {
        Self::words_of(self.columns)
    }

    fn words_of(columns: usize) -> usize {
        row_words(columns as u64) as usize
    }

    /// The columns that word `word` of a row has, as bits.
    pub(crate) fn columns_of(&self, word: usize) -> u64 {
        let bits = WORD_BITS as usize;
        match self.columns.saturating_sub(word * bits) {
            there if there >= bits => u64::MAX,
            there => (1 << there) - 1,
        }
    }
}
