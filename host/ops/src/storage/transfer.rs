//! What goes from one rank's device to another's.

use super::Storage;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use std::ops::Range;

/// Elements of a buffer that go to a rank, or come from it: see [`Storage::transfer`].
#[derive(Debug)]
pub struct Transfer<'a, B: Storage, T: Pod> {
    /// Which rank.
    pub(crate) rank: usize,
    pub(crate) buffer: &'a B::Buffer<T>,
    pub(crate) elements: Range<usize>,
}

impl<'a, B: Storage, E: Element> Transfer<'a, B, E> {
    /// Some rows of a matrix, their padding included.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another.
    pub fn of_rows(
        rank: usize,
        matrix: &'a Matrix<B, E>,
        rows: Range<usize>,
    ) -> Result<Self, Error> {
        matrix.expect_contiguous("Transfer::of_rows")?;
        let stride = matrix.stride();
        Ok(Self {
            rank,
            buffer: &matrix.buffer,
            elements: rows.start * stride..rows.end * stride,
        })
    }
}

impl<'a, B: Storage, T: Pod + Send + Sync> Transfer<'a, B, T> {
    /// Some values of an array.
    pub fn of_array(rank: usize, array: &'a Array<B, T>, values: Range<usize>) -> Self {
        Self {
            rank,
            buffer: &array.buffer,
            elements: values,
        }
    }
}

/// The floats of a matrix, its padding included, or of an array, one after the other.
#[derive(Debug)]
pub enum Floats<'a, B: Storage> {
    /// Of a matrix whose rows [follow](Matrix::is_contiguous) one another.
    Matrix(&'a mut Matrix<B, f32>),
    /// Of an array.
    Array(&'a mut Array<B, f32>),
}

impl<B: Storage> Floats<'_, B> {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Matrix(matrix) => matrix.rows() * matrix.stride(),
            Self::Array(array) => array.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their values, after all work on the backend is done.
    ///
    /// # Errors
    /// Those of [`Array::to_vec`].
    pub fn to_vec(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; self.len()];
        backend.download(self.buffer(), &mut values)?;
        Ok(values)
    }

    /// All of them, for a rank.
    pub fn transfer(&self, rank: usize) -> Transfer<'_, B, f32> {
        Transfer {
            rank,
            buffer: self.buffer(),
            elements: 0..self.len(),
        }
    }

    pub(crate) fn buffer(&self) -> &B::Buffer<f32> {
        match self {
            Self::Matrix(matrix) => &matrix.buffer,
            Self::Array(array) => &array.buffer,
        }
    }
}
