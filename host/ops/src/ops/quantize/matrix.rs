//! Matrices of 8-bit values.

use crate::backend::{MemoryKind, Rows, Storage};
use crate::error::Error;
use crate::tensor::{Array, Matrix};
use halfgnn_contract::quantize::{COUNTS, CodeFormat, NOT_FINITE, SATURATED, row_codes};

/// Scales of columns on a backend, in addition to the largest magnitude of each, from which the next ones are
/// [made](crate::ops::update_scales), and two counts.
#[derive(Debug)]
pub struct ColumnScales<B: Storage> {
    /// One row, with as many columns as a row has quantized values; those of padding are 1.
    pub(crate) scales: Matrix<B, f32>,
    /// Of as many columns.
    pub(crate) largest: Matrix<B, f32>,
    pub(crate) counts: Array<B, u32>,
    format: CodeFormat,
    columns: usize,
}

/// A row-major matrix of 8-bit values on a backend: element (`r`, `c`) is its 8-bit value times the scale of column
/// `c`.
///
/// Rows start at multiples of 16 bytes; quantized values past the last column are that of zero once something was
/// [quantized](crate::ops::quantize).
#[derive(Debug)]
pub struct QuantizedMatrix<B: Storage> {
    /// Four a word, the first in its lowest bits.
    pub(crate) codes: Array<B, u32>,
    pub(crate) scales: ColumnScales<B>,
    rows: usize,
    /// Rows from here on are not counted.
    pub(crate) counted: usize,
}

/// Elements that no code stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrepresented {
    /// Larger than the scale allows, infinities among them: they became the largest number. Modulo 2³².
    pub saturated: u32,
    /// Infinities, and NaNs, which became zero. Modulo 2³².
    pub not_finite: u32,
}

impl<B: Storage> ColumnScales<B> {
    /// Scales of 1 of a number of columns.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more columns than can be addressed, [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        columns: usize,
        format: CodeFormat,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        if columns > u32::MAX as usize / 2 {
            return Err(Error::TooLarge { rows: 1, columns });
        }
        let stride = stride_of(columns);
        let mut scales = Matrix::zeros(backend, 1, stride, kind)?;
        if !backend.only_counts() {
            scales.write_f32(backend, &vec![1.0; stride])?;
        }
        Ok(Self {
            scales,
            largest: Matrix::zeros(backend, 1, stride, kind)?,
            counts: Array::zeros(backend, COUNTS as usize, kind)?,
            format,
            columns,
        })
    }

    /// The scale of each column.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_vec(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let mut scales = self.scales.to_f32(backend)?;
        scales.truncate(self.columns);
        Ok(scales)
    }

    /// Replaces the scales. Quantized values that were made are of the scales before and no numbers any more.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not one a column, [`Error::Unsupported`] for one that is not positive or has no
    /// finite reciprocal, with its column.
    pub fn write(&mut self, backend: &B, scales: &[f32]) -> Result<(), Error> {
        const NAME: &str = "ColumnScales::write";
        Error::expect(NAME, "scales", self.columns, scales.len())?;
        let fits = |&scale: &f32| scale > 0.0 && scale.is_finite() && (1.0 / scale).is_finite();
        if let Some(column) = scales.iter().position(|scale| !fits(scale)) {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "the scale of column {column} is {}; a scale is positive, and so is its reciprocal, both finite",
                    scales[column]
                ),
            });
        }
        let mut padded = scales.to_vec();
        padded.resize(self.stride(), 1.0);
        self.scales.write_f32(backend, &padded)
    }

    /// The largest magnitude of each column since the scales were last [updated](crate::ops::update_scales), infinite
    /// where there was an infinity or a NaN.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn largest(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let mut largest = self.largest.to_f32(backend)?;
        largest.truncate(self.columns);
        Ok(largest)
    }

    /// What no code stood for, since the scales were made or the counts were last
    /// [forgotten](ColumnScales::forget_counts).
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn unrepresented(&self, backend: &B) -> Result<Unrepresented, Error> {
        let counts = self.counts.to_vec(backend)?;
        Ok(Unrepresented {
            saturated: counts[SATURATED as usize],
            not_finite: counts[NOT_FINITE as usize],
        })
    }

    /// Begins to count anew: after a pass that was only to find scales.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn forget_counts(&mut self, backend: &B) -> Result<(), Error> {
        self.counts.write(backend, &[0; COUNTS as usize])
    }

    /// Whether there are neither scales nor magnitudes that the next scales could follow: those of a matrix that was
    /// never quantized, or of a checkpoint of such.
    ///
    /// # Errors
    /// Those of the device.
    pub fn are_unset(&self, backend: &B) -> Result<bool, Error> {
        let unset = self.to_vec(backend)?.iter().all(|&scale| scale == 1.0);
        Ok(unset && self.largest.to_f32(backend)?.iter().all(|&it| it == 0.0))
    }

    /// What a checkpoint keeps, each a row of [`ColumnScales::stride`] numbers: the scales, and the largest magnitudes,
    /// which are finite unless something was not.
    pub fn state(&self) -> [&Matrix<B, f32>; 2] {
        [&self.scales, &self.largest]
    }

    /// The same, to be restored.
    pub fn state_mut(&mut self) -> [&mut Matrix<B, f32>; 2] {
        [&mut self.scales, &mut self.largest]
    }

    /// How quantized values represent numbers.
    pub fn format(&self) -> CodeFormat {
        self.format
    }

    /// Number of columns, padding not counted.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Quantized values, and so bytes, between the starts of two rows: a multiple of 16.
    pub fn stride(&self) -> usize {
        stride_of(self.columns)
    }
}

fn stride_of(columns: usize) -> usize {
    row_codes(columns as u64) as usize
}

impl<B: Storage> QuantizedMatrix<B> {
    /// `rows` × `columns` zeros with scales of 1.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix has more elements than can be addressed, [`Error::Driver`] where there is
    /// not enough memory.
    pub fn zeros(
        backend: &B,
        (rows, columns): (usize, usize),
        format: CodeFormat,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let words = Self::words(rows, columns)?;
        let scales = ColumnScales::new(backend, columns, format, kind)?;
        let mut codes = Array::zeros(backend, words, kind)?;
        if format.zero() != 0 && !backend.only_counts() {
            let word = u32::from_ne_bytes([format.zero(); 4]);
            codes.write(backend, &vec![word; words])?;
        }
        Ok(Self {
            codes,
            scales,
            rows,
            counted: usize::MAX,
        })
    }

    /// Words that the quantized values of a matrix take.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where it has more elements than can be addressed.
    pub fn words(rows: usize, columns: usize) -> Result<usize, Error> {
        Some(columns)
            .filter(|&columns| columns <= u32::MAX as usize / 2)
            .and_then(|columns| stride_of(columns).checked_mul(rows))
            .filter(|&len| len <= isize::MAX as usize)
            .map(|len| len / 4)
            .ok_or(Error::TooLarge { rows, columns })
    }

    /// Takes `codes`, whatever they are, in the place of its own, which it gives back: so that one array serves one
    /// matrix after the other. It has `rows` rows from then on, and scales as before.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are not as many [words](QuantizedMatrix::words) as the matrix takes.
    pub fn replace_codes(
        &mut self,
        codes: Array<B, u32>,
        rows: usize,
    ) -> Result<Array<B, u32>, Error> {
        const NAME: &str = "QuantizedMatrix::replace_codes";
        let words = Self::words(rows, self.columns())?;
        Error::expect(NAME, "words of codes", words, codes.len())?;
        self.rows = rows;
        Ok(std::mem::replace(&mut self.codes, codes))
    }

    /// Takes the first `rows` of those that there is memory for as all that it has.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is no memory for that many.
    pub fn set_rows(&mut self, rows: usize) -> Result<(), Error> {
        const NAME: &str = "QuantizedMatrix::set_rows";
        let words = Self::words(rows, self.columns())?;
        let room = self.codes.len();
        Error::expect(NAME, "words of codes", words.max(room), room)?;
        self.rows = rows;
        Ok(())
    }

    /// Has the first `rows` alone [counted](ColumnScales::unrepresented) from now on: the others are copies of rows
    /// that another rank counts.
    pub fn count_first(&mut self, rows: usize) {
        self.counted = rows;
    }

    /// The scales of the columns.
    pub fn scales(&self) -> &ColumnScales<B> {
        &self.scales
    }

    /// The scales of the columns, to change them.
    pub fn scales_mut(&mut self) -> &mut ColumnScales<B> {
        &mut self.scales
    }

    /// The elements, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_f32(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let (codes, scales) = (self.to_codes(backend)?, self.scales.to_vec(backend)?);
        Ok(codes
            .iter()
            .enumerate()
            .map(|(at, &code)| self.format().decode(code) * scales[at % self.columns()])
            .collect())
    }

    /// The quantized values, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_codes(&self, backend: &B) -> Result<Vec<u8>, Error> {
        let words = self.codes.to_vec(backend)?;
        let codes = words.iter().flat_map(|word| word.to_le_bytes());
        let stride = self.stride();
        Ok(codes
            .take(self.rows * stride)
            .enumerate()
            .filter(|(at, _)| at % stride < self.columns())
            .map(|(_, code)| code)
            .collect())
    }

    /// The rows of quantized values, to be given to other ranks or taken from them.
    pub fn as_rows(&self) -> Rows<'_, B, u32> {
        self.rows_of(&self.codes)
    }

    /// As many quantized values a row in an array by itself.
    pub fn rows_of<'a>(&self, words: &'a Array<B, u32>) -> Rows<'a, B, u32> {
        Rows::of_words(words, self.stride() / size_of::<u32>())
    }

    /// How quantized values represent numbers.
    pub fn format(&self) -> CodeFormat {
        self.scales.format
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, padding not counted.
    pub fn columns(&self) -> usize {
        self.scales.columns
    }

    /// `(rows, columns)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns())
    }

    /// Quantized values, and so bytes, between the starts of two rows: a multiple of 16.
    pub fn stride(&self) -> usize {
        self.scales.stride()
    }
}
