//! Matrices that are lent for the length of an operator.

use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// Lends matrices with one row a vertex, and keeps those that come back for the next who asks for their width.
///
/// A model asks for the same widths in the same order in every step, so from the second step on nothing is allocated.
#[derive(Debug)]
pub struct Pool<B: Backend, E: Element> {
    rows: usize,
    free: Vec<Matrix<B, E>>,
}

impl<B: Backend, E: Element> Pool<B, E> {
    /// A pool of matrices of `rows` rows, with none in it.
    pub fn new(rows: usize) -> Self {
        Self {
            rows,
            free: Vec::new(),
        }
    }

    /// A matrix of `columns` columns with any content.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn take(&mut self, backend: &B, columns: usize) -> Result<Matrix<B, E>, Error> {
        match self
            .free
            .iter()
            .rposition(|matrix| matrix.columns() == columns)
        {
            Some(index) => Ok(self.free.swap_remove(index)),
            None => Matrix::zeros(backend, self.rows, columns, MemoryKind::Activations),
        }
    }

    /// Takes a matrix back.
    pub fn give(&mut self, matrix: Matrix<B, E>) {
        debug_assert_eq!(matrix.rows(), self.rows);
        self.free.push(matrix);
    }
}
