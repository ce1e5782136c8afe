//! Matrices that are lent for the length of an operator.

use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, gathered_stride, padded};

/// Lends matrices and arrays, and keeps those that come back for the next who asks for their shape.
///
/// A model asks for the same shapes in the same order in every step, so from the second step on nothing is allocated.
#[derive(Debug)]
pub struct Pool<B: Backend, E: Element> {
    free: Vec<Matrix<B, E>>,
    free_numbers: Vec<Array<B, f32>>,
    free_words: Vec<Array<B, u32>>,
}

impl<B: Backend, E: Element> Default for Pool<B, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend, E: Element> Pool<B, E> {
    /// A pool with nothing in it.
    pub fn new() -> Self {
        Self {
            free: Vec::new(),
            free_numbers: Vec::new(),
            free_words: Vec::new(),
        }
    }

    /// A matrix of so many rows and columns with any content.
    ///
    /// # Errors
    /// Those of [`Matrix::uninit`].
    pub fn take(
        &mut self,
        backend: &B,
        (rows, columns): (usize, usize),
    ) -> Result<Matrix<B, E>, Error> {
        match self.find((rows, columns), padded::<E>(columns)) {
            Some(matrix) => Ok(matrix),
            None => Matrix::uninit(backend, rows, columns, MemoryKind::Activations),
        }
    }

    /// The same for what is written by a product and then read by a sum over neighbours alone, with rows as far apart as that
    /// [reads fastest](gathered_stride).
    ///
    /// # Errors
    /// Those of [`Matrix::uninit_gathered`].
    pub fn take_gathered(
        &mut self,
        backend: &B,
        shape: (usize, usize),
    ) -> Result<Matrix<B, E>, Error> {
        match self.find(shape, gathered_stride::<E>(shape.1)) {
            Some(matrix) => Ok(matrix),
            None => Matrix::uninit_gathered(backend, shape, MemoryKind::Activations),
        }
    }

    fn find(&mut self, shape: (usize, usize), stride: usize) -> Option<Matrix<B, E>> {
        let fits = |matrix: &Matrix<B, E>| matrix.shape() == shape && matrix.stride() == stride;
        let index = self.free.iter().rposition(fits)?;
        Some(self.free.swap_remove(index))
    }

    /// Takes a matrix back.
    pub fn give(&mut self, matrix: Matrix<B, E>) {
        self.free.push(matrix);
    }

    /// An array of `len` floats with any content.
    ///
    /// # Errors
    /// Those of [`Array::uninit`].
    pub fn take_numbers(&mut self, backend: &B, len: usize) -> Result<Array<B, f32>, Error> {
        match self
            .free_numbers
            .iter()
            .rposition(|array| array.len() == len)
        {
            Some(index) => Ok(self.free_numbers.swap_remove(index)),
            None => Array::uninit(backend, len, MemoryKind::Activations),
        }
    }

    /// Takes an array back.
    pub fn give_numbers(&mut self, array: Array<B, f32>) {
        self.free_numbers.push(array);
    }

    /// An array of `len` words with any content.
    ///
    /// # Errors
    /// Those of [`Array::uninit`].
    pub(super) fn take_words(&mut self, backend: &B, len: usize) -> Result<Array<B, u32>, Error> {
        let fits = |array: &Array<B, u32>| array.len() == len;
        match self.free_words.iter().rposition(fits) {
            Some(index) => Ok(self.free_words.swap_remove(index)),
            None => Array::uninit(backend, len, MemoryKind::Activations),
        }
    }

    /// Takes an array back.
    pub(super) fn give_words(&mut self, array: Array<B, u32>) {
        self.free_words.push(array);
    }
}
