//! Where operands lie on the device, for kernels of one's own; and operands in memory of another program's.

use super::{Buffer, Gpu};
use crate::backend::MemoryKind;
use crate::backend::borrowed::{expect_aligned, expect_stride};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::{BitMatrix, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix, padded};
use bytemuck::Pod;

impl<D: Driver, E: Element> Matrix<Gpu<D>, E> {
    /// Address of the first element on the device; row `r` begins `r ·` [`stride`](Matrix::stride) elements later. Rows
    /// are 16-byte aligned, and elements past the last column are zero and must stay zero.
    ///
    /// It is good until the matrix is dropped. A kernel that is given it is launched through [`Gpu::driver`], whose
    /// stream is the one that operators use: it runs after the operators that were called before it.
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }

    /// A matrix in memory that another program allocated, such as a framework's tensor or columns of one; dropping it
    /// frees nothing. Rows are `stride` elements apart: [`padded(columns)`](crate::tensor::padded), as the crate's own
    /// matrices have them, or more. Of what lies between the padded columns of two rows nothing is read or written; one
    /// after the other the matrix is taken by products and sums over neighbours alone, unless its rows
    /// [follow](Matrix::is_contiguous) one another.
    ///
    /// # Safety
    /// From `address` on lie `rows` times `padded(columns)` elements, `stride` apart, on the device of `backend`, until
    /// the matrix and every recording that was made while it lived are dropped and their work is done. No one else
    /// writes them while operators read them, nor uses them while operators write them: events order the streams.
    /// Elements past the last column, up to the padded ones, are zero and stay zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address or a stride that is no multiple of 16 bytes, and for a stride that is
    /// shorter than the padded columns or longer than 2³² − 1 bytes; [`Error::TooLarge`].
    pub unsafe fn from_raw(
        backend: &Gpu<D>,
        address: u64,
        (rows, columns): (usize, usize),
        stride: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        const NAME: &str = "Matrix::from_raw";
        expect_aligned(NAME, address)?;
        let all = Self::elements(rows, columns)?;
        let row = padded::<E>(columns);
        // There is no distance between the rows of a matrix of one.
        let stride = if rows > 1 { stride } else { row };
        expect_stride::<E>(NAME, stride, row)?;
        let elements = match rows {
            0 | 1 => all,
            _ => Self::elements(rows - 1, stride)?
                .checked_add(row)
                .ok_or(Error::TooLarge { rows, columns })?,
        };
        // SAFETY: what this function asks of its caller.
        let buffer = unsafe { Buffer::borrowed(&backend.allocator(), address, elements, kind) }?;
        Ok(Self::strided(buffer, (rows, columns), stride))
    }
}

impl<D: Driver> Gpu<D> {
    /// [`Matrix::device_address`], for an operator of one's own whose kernel takes rows to follow one another: an error
    /// where the matrix is another device's, or they do not.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::Unsupported`].
    pub fn address_of<E: Element>(&self, matrix: &Matrix<Self, E>) -> Result<u64, Error> {
        Ok(self.matrix::<E, E>(matrix)?.address())
    }

    /// [`Gpu::address_of`] for a kernel that takes the distance of rows ([`Matrix::stride`]) and touches nothing
    /// between their padded columns.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn strided_address_of<E: Element>(&self, matrix: &Matrix<Self, E>) -> Result<u64, Error> {
        Ok(self.strided::<E, E>(matrix)?.address())
    }

    /// [`Array::device_address`], as [`Gpu::address_of`] is of a matrix.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn address_of_array<T: Pod + Send + Sync>(
        &self,
        array: &Array<Self, T>,
    ) -> Result<u64, Error> {
        Ok(self.array::<T, T>(array)?.address())
    }

    /// The address of a matrix of bits: rows of 64-bit words, [`BitMatrix::stride`] apart.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn address_of_bits(&self, matrix: &BitMatrix<Self>) -> Result<u64, Error> {
        self.address_of_array(&matrix.words)
    }

    /// The address of a matrix of 8-bit values: rows of bytes, [`QuantizedMatrix::stride`] apart.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn address_of_codes(&self, matrix: &QuantizedMatrix<Self>) -> Result<u64, Error> {
        self.address_of_array(&matrix.codes)
    }
}

impl<D: Driver, T: Pod + Send + Sync> Array<Gpu<D>, T> {
    /// Address of the first value on the device; see [`Matrix::device_address`].
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }

    /// An array in memory that another program allocated; dropping it frees nothing.
    ///
    /// # Safety
    /// From `address` on lie `len` values on the device of `backend`; else as of [`Matrix::from_raw`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address that is no multiple of 16 bytes.
    pub unsafe fn from_raw(
        backend: &Gpu<D>,
        address: u64,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        expect_aligned("Array::from_raw", address)?;
        // SAFETY: what this function asks of its caller.
        let buffer = unsafe { Buffer::borrowed(&backend.allocator(), address, len, kind) }?;
        Ok(Self::of(buffer, len))
    }
}
