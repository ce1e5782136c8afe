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

/// Rows that lie one behind the other, padding included: what ranks give one another of elements or of quantized
/// values.
#[derive(Debug)]
pub struct Rows<'a, B: Storage, T: Pod> {
    buffer: &'a B::Buffer<T>,
    /// Elements from one to the next.
    stride: usize,
}

impl<B: Storage, T: Pod> Clone for Rows<'_, B, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, T: Pod> Copy for Rows<'_, B, T> {}

impl<'a, B: Storage, E: Element> Rows<'a, B, E> {
    /// Those of a matrix.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another.
    pub fn of_matrix(matrix: &'a Matrix<B, E>) -> Result<Self, Error> {
        matrix.expect_contiguous("Rows::of_matrix")?;
        Ok(Self {
            buffer: &matrix.buffer,
            stride: matrix.stride(),
        })
    }
}

impl<'a, B: Storage> Rows<'a, B, u32> {
    /// Those of an array, of `stride` words each.
    pub fn of_words(words: &'a Array<B, u32>, stride: usize) -> Self {
        Self {
            buffer: &words.buffer,
            stride,
        }
    }
}

impl<'a, B: Storage, T: Pod> Rows<'a, B, T> {
    /// Elements from the start of a row to that of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Some of them, for a rank or from it.
    pub fn transfer(&self, rank: usize, rows: Range<usize>) -> Transfer<'a, B, T> {
        Transfer {
            rank,
            buffer: self.buffer,
            elements: rows.start * self.stride..rows.end * self.stride,
        }
    }

    /// Has the elements of the rows from `first` on in `elements`, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] where there are not that number, or with the failure of an earlier operator.
    pub fn read(&self, backend: &B, first: usize, elements: &mut [T]) -> Result<(), Error> {
        backend.download_at(self.buffer, first * self.stride, elements)
    }

    /// Replaces the rows from `first` on by what was [read](Rows::read) of others.
    ///
    /// # Errors
    /// [`Error::Driver`] where there are not that number.
    pub fn write(&self, backend: &B, first: usize, elements: &[T]) -> Result<(), Error> {
        backend.upload_at(self.buffer, first * self.stride, elements)
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
