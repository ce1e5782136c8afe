//! Matrices of 8-bit codes.

use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;
use halfgnn_contract::quantize::{COUNTS, CodeFormat, NOT_FINITE, SATURATED, row_codes};

/// A row-major matrix of 8-bit codes on a backend: element (`r`, `c`) is the number of its code times the scale of column `c`.
///
/// Rows start at multiples of 16 bytes; codes past the last column are that of zero once something was
/// [quantized](crate::ops::quantize). The scales lie on the device, beside the largest magnitude of each column, from which the
/// next ones are made, and two counts.
#[derive(Debug)]
pub struct QuantizedMatrix<B: Storage> {
    /// Four a word, the first in its lowest bits.
    pub(crate) codes: Array<B, u32>,
    /// As many as a row has codes; those of padding are 1.
    pub(crate) scales: Array<B, f32>,
    /// Bits of the largest magnitudes, as many.
    pub(crate) largest: Array<B, u32>,
    pub(crate) counts: Array<B, u32>,
    format: CodeFormat,
    rows: usize,
    columns: usize,
}

/// Elements that no code stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrepresented {
    /// Larger than the scale allows, infinities among them: they became the largest number. Modulo 2³².
    pub saturated: u32,
    /// Infinities, and NaNs, which became zero. Modulo 2³².
    pub not_finite: u32,
}

impl<B: Storage> QuantizedMatrix<B> {
    /// `rows` × `columns` zeros with scales of 1.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix has more elements than can be addressed, [`Error::Driver`] where there is not enough
    /// memory.
    pub fn zeros(
        backend: &B,
        (rows, columns): (usize, usize),
        format: CodeFormat,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let too_large = Error::TooLarge { rows, columns };
        let stride = Some(columns)
            .filter(|&columns| columns <= u32::MAX as usize / 2)
            .map(Self::stride_of);
        let len = stride
            .and_then(|stride| stride.checked_mul(rows))
            .filter(|&len| len <= isize::MAX as usize);
        let (Some(stride), Some(len)) = (stride, len) else {
            return Err(too_large);
        };
        let mut codes = Array::zeros(backend, len / 4, kind)?;
        if format.zero() != 0 && !backend.only_counts() {
            let word = u32::from_ne_bytes([format.zero(); 4]);
            codes.write(backend, &vec![word; len / 4])?;
        }
        Ok(Self {
            codes,
            scales: Array::from_slice(backend, &vec![1.0; stride], kind)?,
            largest: Array::zeros(backend, stride, kind)?,
            counts: Array::zeros(backend, COUNTS as usize, kind)?,
            format,
            rows,
            columns,
        })
    }

    /// The elements, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_f32(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let (codes, scales) = (self.to_codes(backend)?, self.scales(backend)?);
        Ok(codes
            .iter()
            .enumerate()
            .map(|(at, &code)| self.format.decode(code) * scales[at % self.columns])
            .collect())
    }

    /// The codes, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_codes(&self, backend: &B) -> Result<Vec<u8>, Error> {
        let words = self.codes.to_vec(backend)?;
        let codes = words.iter().flat_map(|word| word.to_le_bytes());
        let stride = self.stride();
        Ok(codes
            .enumerate()
            .filter(|(at, _)| at % stride < self.columns)
            .map(|(_, code)| code)
            .collect())
    }

    /// The scale of each column.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn scales(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let mut scales = self.scales.to_vec(backend)?;
        scales.truncate(self.columns);
        Ok(scales)
    }

    /// Replaces the scales: those of a checkpoint, say. The codes are of the scales before and no numbers any more.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not one a column, [`Error::Unsupported`] for one that is not positive or has no finite
    /// reciprocal, with its column.
    pub fn set_scales(&mut self, backend: &B, scales: &[f32]) -> Result<(), Error> {
        const NAME: &str = "QuantizedMatrix::set_scales";
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
        self.scales.write(backend, &padded)
    }

    /// The largest finite magnitude of each column since the scales were last [updated](crate::ops::update_scales).
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn largest(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let bits = self.largest.to_vec(backend)?;
        let largest = bits.into_iter().take(self.columns);
        Ok(largest.map(f32::from_bits).collect())
    }

    /// What no code stood for, since the matrix was made.
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

    /// How codes tell numbers.
    pub fn format(&self) -> CodeFormat {
        self.format
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

    /// Codes, and so bytes, between the starts of two rows: a multiple of 16.
    pub fn stride(&self) -> usize {
        Self::stride_of(self.columns)
    }

    fn stride_of(columns: usize) -> usize {
        row_codes(columns as u64) as usize
    }
}
