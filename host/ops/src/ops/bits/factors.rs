//! Factors of the columns of a graph, in 8 bits.

use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;
use halfgnn_contract::bits::{CODE_BITS, CODES_PER_WORD, LARGEST_CODE};

/// A factor a column of a graph, as [`scale`](ColumnFactors::scale) times a whole number from 0 to 255: what BitGNN
/// takes for the full-precision matrix of edges of sums of bits, of which each bit of a factor is a plane. A factor is
/// off by at most half a `scale`, 1/510 of the largest.
#[derive(Debug)]
pub struct ColumnFactors<B: Storage> {
    /// Four a word, the first in the lowest bits.
    pub(crate) codes: Array<B, u32>,
    scale: f32,
    len: usize,
}

impl<B: Storage> ColumnFactors<B> {
    /// The factors that come closest to `factors`, of which the largest is met.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a factor that is negative or not finite, with its place; [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(backend: &B, factors: &[f32], kind: MemoryKind) -> Result<Self, Error> {
        let is_legal = |factor: &f32| factor.is_finite() && *factor >= 0.0;
        if let Some(column) = factors.iter().position(|factor| !is_legal(factor)) {
            return Err(Error::Unsupported {
                operator: "ColumnFactors::new",
                reason: format!(
                    "the factor of column {column} is {}; factors are finite, and zero or more",
                    factors[column]
                ),
            });
        }
        let largest = factors
            .iter()
            .fold(0.0_f32, |most, &factor| most.max(factor));
        // Of numbers so small that this is zero, all quantized values are.
        let scale = largest / LARGEST_CODE as f32;
        let code = |factor: &f32| match scale > 0.0 {
            true => ((factor / scale).round() as u32).min(LARGEST_CODE),
            false => 0,
        };
        let words: Vec<u32> = factors
            .chunks(CODES_PER_WORD as usize)
            .map(|some| {
                let places = (0..).step_by(CODE_BITS as usize);
                some.iter()
                    .zip(places)
                    .fold(0, |word, (factor, at): (_, u32)| word | code(factor) << at)
            })
            .collect();
        let mut codes = Array::zeros(backend, words.len(), kind)?;
        codes.write(backend, &words)?;
        Ok(Self {
            codes,
            scale,
            len: factors.len(),
        })
    }

    /// What a code is multiplied by.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The quantized values, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_codes(&self, backend: &B) -> Result<Vec<u8>, Error> {
        let words = self.codes.to_vec(backend)?;
        let mut codes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        codes.truncate(self.len);
        Ok(codes)
    }
}

/// The code of a column, among words of them.
pub(super) fn code_of(words: &[u32], column: u32) -> i32 {
    let word = words[(column / CODES_PER_WORD) as usize];
    (word >> (column % CODES_PER_WORD * CODE_BITS) & LARGEST_CODE) as i32
}
