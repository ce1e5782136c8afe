//! Matrices that are made anew in each step, in 8-bit codes.
//!
//! Scales, one a column, are those of the step before with some room (delayed scaling, as in Transformer Engine), so that nobody has to look
//! at a matrix before its codes are made. The first step looks at itself; a checkpoint holds the scales.

use super::Pool;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, CodeFormat, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix};

/// How many times the largest magnitude of the step before there is room for.
const ROOM: f32 = 1.5;

/// Codes whose scales follow the step before.
#[derive(Debug)]
pub(super) struct DelayedCodes<B: Backend> {
    pub(super) codes: QuantizedMatrix<B>,
    /// Whether the scales follow something.
    has_scales: bool,
}

impl<B: Backend> DelayedCodes<B> {
    /// Codes of so many columns, without rows yet.
    ///
    /// # Errors
    /// Those of [`QuantizedMatrix::zeros`].
    pub(super) fn new(backend: &B, columns: usize, format: CodeFormat) -> Result<Self, Error> {
        let codes = QuantizedMatrix::zeros(backend, (0, columns), format, MemoryKind::Activations)?;
        Ok(Self {
            codes,
            has_scales: false,
        })
    }

    /// Whether scales have nothing to follow yet. Those of a checkpoint go on; a first step has none, and looks at itself.
    pub(super) fn wants_scales(&mut self, backend: &B) -> Result<bool, Error> {
        if !self.has_scales && !backend.only_counts() {
            let scales = self.codes.scales().to_vec(backend)?;
            if scales.iter().all(|&scale| scale == 1.0) {
                return Ok(true);
            }
        }
        self.has_scales = true;
        Ok(false)
    }

    /// New scales, for codes that are made next.
    pub(super) fn next_scales(&mut self, backend: &B) -> Result<(), Error> {
        ops::update_scales(backend, ROOM, self.codes.scales_mut())
    }

    /// Makes the codes by `quantize`, with new scales.
    pub(super) fn make(
        &mut self,
        backend: &B,
        quantize: impl Fn(&mut QuantizedMatrix<B>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.wants_scales(backend)? {
            quantize(&mut self.codes)?;
            self.codes.scales_mut().forget_counts(backend)?;
        }
        self.has_scales = true;
        self.next_scales(backend)?;
        quantize(&mut self.codes)
    }

    /// What a checkpoint holds: the scales, and the largest magnitudes that the next ones are made of.
    pub(super) fn state(&self) -> [&Matrix<B, f32>; 2] {
        self.codes.scales().state()
    }

    /// The same, to be restored.
    pub(super) fn state_mut(&mut self) -> [&mut Matrix<B, f32>; 2] {
        self.has_scales = false;
        self.codes.scales_mut().state_mut()
    }

    /// The largest magnitudes of the last step: infinite where something was, which its codes do not tell.
    pub(super) fn largest(&self) -> &Matrix<B, f32> {
        self.state()[1]
    }

    /// Numbers that were larger than their scales had room for, so far.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn saturated(&self, backend: &B) -> Result<u64, Error> {
        let told = self.codes.scales().unrepresented(backend)?;
        Ok(told.saturated.into())
    }
}

/// Rows that a backward pass reads again, in int8 codes. Whatever is positive has a positive code, so that what a ReLU and a dropout behind
/// it let through is known exactly.
#[derive(Debug)]
pub struct StoredCodes<B: Backend>(DelayedCodes<B>);

impl<B: Backend> StoredCodes<B> {
    /// Codes of so many columns, without rows yet.
    ///
    /// # Errors
    /// Those of [`QuantizedMatrix::zeros`].
    pub fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        DelayedCodes::new(backend, columns, CodeFormat::Int8).map(Self)
    }

    /// Makes them of `x`.
    ///
    /// # Errors
    /// Those of [`ops::quantize_positive`] and [`Array::uninit`].
    pub fn keep<E: Element>(&mut self, backend: &B, x: &Matrix<B, E>) -> Result<(), Error> {
        let codes = &mut self.0.codes;
        if codes.rows() != x.rows() {
            let words = QuantizedMatrix::<B>::words(x.rows(), codes.columns())?;
            let words = Array::uninit(backend, words, MemoryKind::Activations)?;
            codes.replace_codes(words, x.rows())?;
        }
        self.0
            .make(backend, |codes| ops::quantize_positive(backend, x, codes))
    }

    /// The codes.
    pub fn get(&self) -> &QuantizedMatrix<B> {
        &self.0.codes
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

    pub(super) fn delayed(&self) -> &DelayedCodes<B> {
        &self.0
    }

    pub(super) fn delayed_mut(&mut self) -> &mut DelayedCodes<B> {
        &mut self.0
    }
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
