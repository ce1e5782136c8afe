//! Where operands lie on the device, for kernels of one's own; and operands in memory of somebody else's.

use super::{Buffer, Gpu};
use crate::backend::MemoryKind;
use crate::driver::Driver;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, padded};
use bytemuck::Pod;
use halfgnn_contract::VECTOR_BYTES;

impl<D: Driver, E: Element> Matrix<Gpu<D>, E> {
    /// Address of the first element on the device; row `r` begins `r ·` [`stride`](Matrix::stride) elements later. Rows
    /// are 16-byte aligned, and elements past the last column are zero and must stay zero.
    ///
    /// It is good until the matrix is dropped. A kernel that is given it is launched through [`Gpu::driver`], whose stream
    /// is the one that operators use: it runs after the operators that were called before it.
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }

    /// A matrix in memory that somebody else allocated, such as a framework's tensor; dropping it frees nothing. Rows are
    /// `stride` elements apart, which is what the crate's own matrices have:
    /// [`padded(columns)`](crate::tensor::padded).
    ///
    /// # Safety
    /// From `address` on lie `rows · stride` elements on the device of `backend`, until the matrix and every recording that was
    /// made while it lived are dropped and their work is done. Nobody else writes them while operators read them, nor uses
    /// them while operators write them: events order the streams. Elements past the last column are zero, and stay zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address that is no multiple of 16 bytes or another stride, [`Error::TooLarge`].
    pub unsafe fn from_raw(
        backend: &Gpu<D>,
        address: u64,
        (rows, columns): (usize, usize),
        stride: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        const NAME: &str = "Matrix::from_raw";
        expect_aligned(NAME, address)?;
        Error::expect(NAME, "the stride", padded::<E>(columns), stride)?;
        let elements = Self::elements(rows, columns)?;
        // SAFETY: what this function asks of its caller.
        let buffer = unsafe { Buffer::borrowed(&backend.allocator(), address, elements, kind) }?;
        Ok(Self::of(buffer, rows, columns))
    }
}

impl<D: Driver> Gpu<D> {
    /// [`Matrix::device_address`], for an operator of one's own: an error where the matrix is another device's.
    ///
    /// # Errors
    /// [`Error::Elsewhere`].
    pub fn address_of<E: Element>(&self, matrix: &Matrix<Self, E>) -> Result<u64, Error> {
        Ok(self.matrix::<E, E>(matrix)?.address())
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
}

/// Kernels load 16 bytes at a time.
fn expect_aligned(operator: &'static str, address: u64) -> Result<(), Error> {
    if address.is_multiple_of(VECTOR_BYTES.into()) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!("the address {address:#x} is no multiple of {VECTOR_BYTES} bytes"),
    })
}

impl<D: Driver, T: Pod + Send + Sync> Array<Gpu<D>, T> {
    /// Address of the first value on the device; see [`Matrix::device_address`].
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }

    /// An array in memory that somebody else allocated; dropping it frees nothing.
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
