//! What is kept of a forward pass in 8-bit codes, and how a backward pass reads it.

use super::Pool;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, CodeFormat, QuantizedMatrix, Rounding};
use crate::tensor::{Array, Element, Matrix};

/// Rows that a backward pass reads again, in int8 codes with a scale a column, the smallest that has room for it. Whatever is positive has a
/// positive code, so that what a ReLU and a dropout behind it let through is known exactly.
///
/// Scales of the step before, as messages have them, would spare a pass; but where a dropout takes the largest of a column in one step and
/// leaves it in the next, it would become a fraction of what it is.
#[derive(Debug)]
pub struct StoredCodes<B: Backend>(QuantizedMatrix<B>);

impl<B: Backend> StoredCodes<B> {
    /// Codes of so many columns, without rows yet.
    ///
    /// # Errors
    /// Those of [`QuantizedMatrix::zeros`].
    pub fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let shape = (0, columns);
        let kind = MemoryKind::Activations;
        QuantizedMatrix::zeros(backend, shape, CodeFormat::Int8, kind).map(Self)
    }

    /// Makes them of `x`.
    ///
    /// # Errors
    /// Those of [`ops::quantize_positive`] and [`Array::uninit`].
    pub fn keep<E: Element>(&mut self, backend: &B, x: &Matrix<B, E>) -> Result<(), Error> {
        let codes = &mut self.0;
        if codes.rows() != x.rows() {
            let words = QuantizedMatrix::<B>::words(x.rows(), codes.columns())?;
            let words = Array::uninit(backend, words, MemoryKind::Activations)?;
            codes.replace_codes(words, x.rows())?;
        }
        store_in_8_bits(backend, x, codes)
    }

    /// The codes.
    pub fn get(&self) -> &QuantizedMatrix<B> {
        &self.0
    }

    /// Their numbers, in a matrix of the pool's, to be given back.
    ///
    /// # Errors
    /// Those of [`ops::dequantize`] and [`Matrix::zeros`].
    pub fn widened<E: Element>(
        &self,
        backend: &B,
        pool: &mut Pool<B, E>,
    ) -> Result<Matrix<B, E>, Error> {
        widened(backend, pool, self.get())
    }

    /// The largest magnitude of each column: infinite where something was, which the codes do not tell.
    pub fn largest(&self) -> &Matrix<B, f32> {
        self.0.scales().state()[1]
    }
}

/// Has `codes` hold `x`, with the smallest scale of each column that its numbers fit. What is positive stays so.
///
/// # Errors
/// Those of [`ops::quantize_positive`].
pub(crate) fn store_in_8_bits<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    codes: &mut QuantizedMatrix<B>,
) -> Result<(), Error> {
    // Forgets the largest magnitudes of the step before, and then has those of this one.
    ops::update_scales(backend, 1.0, codes.scales_mut())?;
    ops::quantize(backend, x, None, Rounding::Nearest, codes)?;
    ops::update_scales(backend, 1.0, codes.scales_mut())?;
    ops::quantize_positive(backend, x, codes)
}

/// The numbers of codes, in a matrix of the pool's.
pub(super) fn widened<B: Backend, E: Element>(
    backend: &B,
    pool: &mut Pool<B, E>,
    codes: &QuantizedMatrix<B>,
) -> Result<Matrix<B, E>, Error> {
    let mut rows = pool.take(backend, codes.shape())?;
    ops::dequantize(backend, codes, &mut rows)?;
    Ok(rows)
}

/// The input of a layer, as its backward pass sees it.
#[derive(Debug)]
pub(super) enum LayerInput<'x, B: Backend, E: Element> {
    /// As the forward pass saw it.
    Elements(&'x Matrix<B, E>),
    /// In codes, which is what was kept of it.
    Codes(&'x QuantizedMatrix<B>),
}

impl<B: Backend, E: Element> Clone for LayerInput<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, E: Element> Copy for LayerInput<'_, B, E> {}

impl<'x, B: Backend, E: Element> LayerInput<'x, B, E> {
    /// Rows and columns.
    pub(super) fn shape(self) -> (usize, usize) {
        match self {
            Self::Elements(x) => x.shape(),
            Self::Codes(x) => x.shape(),
        }
    }

    /// Rows: those of the sources of the layer's graph.
    pub(super) fn rows(self) -> usize {
        self.shape().0
    }

    /// Columns.
    pub(super) fn columns(self) -> usize {
        self.shape().1
    }

    /// Where it is kept as it was.
    pub(super) fn elements(self) -> Option<&'x Matrix<B, E>> {
        match self {
            Self::Elements(x) => Some(x),
            Self::Codes(_) => None,
        }
    }

    /// Where it is kept in codes.
    pub(super) fn codes(self) -> Option<&'x QuantizedMatrix<B>> {
        match self {
            Self::Elements(_) => None,
            Self::Codes(x) => Some(x),
        }
    }

    /// `gradient = xᵀ · d`, that of the weights of a linear map.
    ///
    /// # Errors
    /// Those of [`ops::matmul`] and [`ops::quantized_matmul`].
    pub(super) fn weight_gradient(
        self,
        backend: &B,
        d: &Matrix<B, E>,
        gradient: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        match self {
            Self::Elements(x) => {
                let plain = ops::Epilogue::default();
                ops::matmul(backend, ops::Form::TN, x, d, &plain, gradient)
            }
            Self::Codes(x) => ops::quantized_matmul(backend, x, d, 1.0, None, gradient),
        }
    }
}
