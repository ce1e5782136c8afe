//! Operands in memory of another program's, such as a framework's tensors.

use super::{Buffer, Cpu};
use crate::backend::MemoryKind;
use crate::backend::borrowed::{expect_aligned, expect_stride};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, padded};
use bytemuck::Pod;
use std::ptr::NonNull;

impl<E: Element> Matrix<Cpu, E> {
    /// A matrix in memory that another program allocated; dropping it frees nothing. Rows are
    /// [`padded(columns)`](crate::tensor::padded) elements apart, as the crate's own are: every operator takes it, also
    /// for its output.
    ///
    /// ```
    /// use halfgnn_ops::backend::{MemoryKind, cpu::Cpu};
    /// use halfgnn_ops::tensor::Matrix;
    ///
    /// /// Two rows of three floats each, padded to four, at a multiple of 16 bytes.
    /// #[repr(align(16))]
    /// struct Rows([f32; 8]);
    ///
    /// let mut rows = Rows([1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]);
    /// let backend = Cpu::new();
    /// // SAFETY: the rows outlive the matrix, no one else uses them meanwhile, and their padding is zero.
    /// let x = unsafe {
    ///     Matrix::<Cpu, f32>::from_pointer(&backend, rows.0.as_mut_ptr(), (2, 3), 4, MemoryKind::Features)
    /// }?;
    /// assert_eq!(x.to_f32(&backend)?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// # Ok::<(), halfgnn_ops::Error>(())
    /// ```
    ///
    /// # Safety
    /// From `start` on lie `rows` times `stride` elements, until the matrix is dropped. No one else writes them while
    /// operators read them, nor uses them while operators write them. Elements past the last column are zero and stay
    /// zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address that is no multiple of 16 bytes or is null, and for any other stride: then
    /// copy the rows first; [`Error::TooLarge`].
    pub unsafe fn from_pointer(
        backend: &Cpu,
        start: *mut E,
        (rows, columns): (usize, usize),
        stride: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        const NAME: &str = "Matrix::from_pointer";
        let row = padded::<E>(columns);
        // There is no distance between the rows of a matrix of one.
        let stride = if rows > 1 { stride } else { row };
        expect_stride::<E>(NAME, stride, row)?;
        if stride != row {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "rows of {columns} columns that are {stride} elements apart; the CPU takes them {row} apart: copy them first"
                ),
            });
        }
        let elements = Self::elements(rows, columns)?;
        // SAFETY: what this function asks of its caller, and of the place `borrowed` has seen to it.
        let buffer = unsafe { borrowed(NAME, backend, start, elements, kind) }?;
        Ok(Self::of(buffer, rows, columns))
    }
}

impl<T: Pod + Send + Sync> Array<Cpu, T> {
    /// An array in memory that another program allocated; dropping it frees nothing.
    ///
    /// # Safety
    /// From `start` on lie `len` values; else as of [`Matrix::from_pointer`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an address that is no multiple of 16 bytes or is null.
    pub unsafe fn from_pointer(
        backend: &Cpu,
        start: *mut T,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        // SAFETY: what this function asks of its caller.
        let buffer = unsafe { borrowed("Array::from_pointer", backend, start, len, kind) }?;
        Ok(Self::of(buffer, len))
    }
}

/// A buffer of `len` elements at `start`, anywhere where there is none.
///
/// # Safety
/// As of [`Array::from_pointer`].
unsafe fn borrowed<T: Pod>(
    operator: &'static str,
    backend: &Cpu,
    start: *mut T,
    len: usize,
    kind: MemoryKind,
) -> Result<Buffer<T>, Error> {
    const { assert!(align_of::<T>() <= 16) };
    let start = match NonNull::new(start) {
        _ if len == 0 => NonNull::dangling(),
        Some(start) => start,
        None => {
            return Err(Error::Unsupported {
                operator,
                reason: format!("{len} elements at the address 0"),
            });
        }
    };
    if len > 0 {
        expect_aligned(operator, start.as_ptr().addr() as u64)?;
    }
    if len
        .checked_mul(size_of::<T>())
        .is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        return Err(Error::TooLarge {
            rows: 1,
            columns: len,
        });
    }
    // Its owner counts it.
    let uncounted = backend.ledger.track(0, kind);
    // SAFETY: what this function asks of its caller; the address is a multiple of 16 bytes, and no type is aligned to
    // more.
    Ok(unsafe { Buffer::borrowed(start, len, uncounted) })
}
