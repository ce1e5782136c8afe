//! Inputs from a seed, the same on every machine.

use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::tensor::{Array, Element, Matrix, padded};
use halfgnn_contract::rng;

/// What the tests' buffers are counted as.
pub const KIND: MemoryKind = MemoryKind::Activations;

/// Numbers from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u32);

impl Random {
    /// The `index`-th 32-bit number.
    pub fn bits(self, index: usize) -> u32 {
        rng::uniform_u32(rng::key(0x5eed, self.0), index as u64)
    }

    /// `len` numbers below `bound`.
    pub fn below(self, bound: u32, len: usize) -> Vec<u32> {
        (0..len).map(|i| self.bits(i) % bound).collect()
    }

    /// `len` integers from `-most` to `most`.
    pub fn integers(self, most: u32, len: usize) -> Vec<f32> {
        let integer = |bits| bits as f32 - most as f32;
        self.below(2 * most + 1, len)
            .into_iter()
            .map(integer)
            .collect()
    }

    /// `len` numbers in [-1, 1), rounded to the element.
    pub fn uniform<E: Element>(self, len: usize) -> Vec<f32> {
        let unit = |i| rng::unit_f32(self.bits(i)) * 2.0 - 1.0;
        (0..len).map(|i| rounded::<E>(unit(i))).collect()
    }
}

/// The nearest element, as a float.
pub fn rounded<E: Element>(value: f32) -> f32 {
    E::from_f32(value).to_f32()
}

/// A matrix of these values.
pub fn matrix<B: Backend, E: Element>(
    backend: &B,
    (rows, columns): (usize, usize),
    values: &[f32],
) -> Matrix<B, E> {
    Matrix::from_f32(backend, rows, columns, values, KIND).expect("room for a matrix")
}

/// A matrix of NaN, padding included, for an operator to write.
pub fn unwritten<B: Backend, E: Element>(
    backend: &B,
    (rows, columns): (usize, usize),
) -> Matrix<B, E> {
    let all = elements(backend, &vec![f32::NAN; rows * padded::<E>(columns)]);
    Matrix::from_padded(all, rows, columns).expect("whole rows")
}

/// An array of these elements.
pub fn elements<B: Backend, E: Element>(backend: &B, values: &[f32]) -> Array<B, E> {
    let values: Vec<E> = values.iter().map(|&value| E::from_f32(value)).collect();
    Array::from_slice(backend, &values, KIND).expect("room for an array")
}

/// An array of these words.
pub fn words<B: Backend>(backend: &B, values: &[u32]) -> Array<B, u32> {
    Array::from_slice(backend, values, KIND).expect("room for an array")
}

/// The elements of a matrix, after asserting that its padding is zero.
pub fn read<B: Backend, E: Element>(backend: &B, matrix: &Matrix<B, E>) -> Vec<f32> {
    let values_with_padding = matrix.to_padded(backend).expect("no failure before");
    if matrix.columns() == 0 {
        return Vec::new();
    }
    let mut values = Vec::with_capacity(matrix.rows() * matrix.columns());
    let row_len = padded::<E>(matrix.columns());
    for (row, elements) in values_with_padding.chunks_exact(row_len).enumerate() {
        let (elements, padding) = elements.split_at(matrix.columns());
        assert!(
            padding.iter().all(|value| value.to_f32() == 0.0),
            "the padding of row {row} is {padding:?}"
        );
        values.extend(elements.iter().map(|value| value.to_f32()));
    }
    values
}

/// The bits of floats, so that NaN equals NaN and -0 differs from 0.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
