//! Matrices and arrays on a backend.
//!
//! A matrix is row-major. Its rows start at multiples of 16 bytes, so that the widest load of a lane is always legal:
//! a row of 41 halves takes the place of 48 (the paper's feature padding, HalfGNN §4.1.1, taken to the width of half8).
//! Padding is always zero, and no public function shows it.

use crate::backend::cpu::convert;
use crate::error::Error;
use crate::storage::{MemoryKind, Storage};
use bytemuck::Pod;
use half::{bf16, f16};
use halfgnn_contract::{Format, VECTOR_BYTES};
use halfgnn_graph::parallel::{self, Items};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// The number format of features, activations and the weights that kernels read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE 754 binary16.
    Half,
    /// IEEE 754 binary32.
    Float,
    /// bfloat16: the upper half of a float, with its range and 8 bits of precision.
    #[serde(rename = "bfloat16", alias = "bf16")]
    BFloat16,
}

impl Precision {
    /// That of master weights, their gradients, and sums.
    pub const MASTER: Self = Precision::Float;

    /// Of a precision whose sums are made in float, whatever was asked for, what cannot be done; `None` where it can.
    ///
    /// bfloat16 has no arithmetic of its own, and GPUs before sm_90 do not add to it in memory.
    pub(crate) fn without_arithmetic(self, wanted: bool) -> Option<String> {
        (self == Precision::BFloat16 && wanted).then(|| {
            format!(
                "{self} has no arithmetic of its own: it is added up in float, with discretized scaling and the staged \
                 write"
            )
        })
    }

    /// As the launch contract calls the format of the elements.
    pub(crate) const fn format(self) -> Format {
        match self {
            Precision::Half => Format::F16,
            Precision::Float => Format::F32,
            Precision::BFloat16 => Format::BF16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::Half => "half",
            Precision::Float => "float",
            Precision::BFloat16 => "bfloat16",
        })
    }
}

mod sealed {
    /// Kernels are built for these elements, and read rows of no other.
    pub trait Sealed: crate::ops::loops::Loops {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for f32 {}
}

/// An element of a matrix that operators compute with: `f16`, `bf16` or `f32`. No other type can be one, since the
/// kernels read memory by what an element says of itself:
///
/// ```compile_fail,E0277
/// # use halfgnn_ops::tensor::{Element, Precision};
/// # #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(transparent)]
/// struct Byte(u8);
///
/// impl Element for Byte {
///     const PRECISION: Precision = Precision::Half; // it is not
///     fn from_f32(value: f32) -> Self {
///         Byte(value as u8)
///     }
///     fn to_f32(self) -> f32 {
///         self.0.into()
///     }
/// }
/// ```
pub trait Element: sealed::Sealed + Pod + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The element's number format.
    const PRECISION: Precision;
    /// Elements of a 16-byte vector: 8 of 16 bits or 4 floats.
    const LANES: usize = VECTOR_BYTES as usize / size_of::<Self>();
    /// The nearest element, ties to even.
    fn from_f32(value: f32) -> Self;
    /// The value, exactly.
    fn to_f32(self) -> f32;
}

impl Element for f16 {
    const PRECISION: Precision = Precision::Half;
    #[inline]
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
    #[inline]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

impl Element for bf16 {
    const PRECISION: Precision = Precision::BFloat16;
    #[inline]
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
    #[inline]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

impl Element for f32 {
    const PRECISION: Precision = Precision::Float;
    #[inline]
    fn from_f32(value: f32) -> Self {
        value
    }
    #[inline]
    fn to_f32(self) -> f32 {
        self
    }
}

#[doc(hidden)] // for `with_element`
pub use half;

/// The one switch from a precision that is a value to the type of its elements: `with_element!(precision, E => …)` is
/// the expression with `E` for that type.
///
/// ```
/// use halfgnn_ops::tensor::{Element, Precision};
///
/// let lanes = |precision| halfgnn_ops::with_element!(precision, E => E::LANES);
/// assert_eq!([Precision::Half, Precision::BFloat16, Precision::Float].map(lanes), [8, 8, 4]);
/// ```
#[macro_export]
macro_rules! with_element {
    ($precision:expr, $element:ident => $body:expr) => {
        match $precision {
            $crate::tensor::Precision::Half => {
                type $element = $crate::tensor::half::f16;
                $body
            }
            $crate::tensor::Precision::Float => {
                type $element = f32;
                $body
            }
            $crate::tensor::Precision::BFloat16 => {
                type $element = $crate::tensor::half::bf16;
                $body
            }
        }
    };
}

/// Distance of two rows of a matrix of `columns` columns, in elements: the next multiple of a 16-byte vector.
pub fn padded<E: Element>(columns: usize) -> usize {
    columns.next_multiple_of(E::LANES)
}

/// Writes `floats` to `elements`, each rounded to the nearest, ties to even: many at a time, by the widest instructions
/// that the processor has.
///
/// # Panics
/// If they are not as many.
pub fn round<E: Element>(floats: &[f32], elements: &mut [E]) {
    assert_eq!(floats.len(), elements.len(), "an element for each float");
    convert::round(floats, elements);
}

/// `len` plain values on a backend.
#[derive(Debug)]
pub struct Array<B: Storage, T: Pod> {
    pub(crate) buffer: B::Buffer<T>,
    len: usize,
}

impl<B: Storage, T: Pod + Send + Sync> Array<B, T> {
    /// Zeros (all bytes zero).
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn zeros(backend: &B, len: usize, kind: MemoryKind) -> Result<Self, Error> {
        Ok(Self {
            buffer: backend.alloc(len, kind)?,
            len,
        })
    }

    /// `len` values of any content: an output of an operator that writes all of it.
    ///
    /// # Errors
    /// Those of [`Array::zeros`].
    pub fn uninit(backend: &B, len: usize, kind: MemoryKind) -> Result<Self, Error> {
        let buffer = backend.alloc_uncleared(len, kind)?;
        Ok(Self::of(buffer, len))
    }

    /// Values in memory that is there; `buffer` has `len` of them.
    pub(crate) fn of(buffer: B::Buffer<T>, len: usize) -> Self {
        Self { buffer, len }
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn from_slice(backend: &B, values: &[T], kind: MemoryKind) -> Result<Self, Error> {
        let array = Self::uninit(backend, values.len(), kind)?;
        backend.upload(&array.buffer, values)?;
        Ok(array)
    }

    /// The values, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_vec(&self, backend: &B) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        backend.download(&self.buffer, &mut values)?;
        Ok(values)
    }

    /// Replaces the values.
    ///
    /// # Errors
    /// [`Error::Shape`] where `values` is not [`Array::len`] long.
    pub fn write(&mut self, backend: &B, values: &[T]) -> Result<(), Error> {
        Error::expect("Array::write", "values", self.len, values.len())?;
        backend.upload(&self.buffer, values)
    }

    /// Makes all bytes zero.
    ///
    /// # Errors
    /// Those of the device.
    pub fn clear(&mut self, backend: &B) -> Result<(), Error> {
        backend.clear(&self.buffer)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Bytes of a cache line of a GPU.
pub(crate) const LINE_BYTES: usize = 128;

/// Distances of the rows of a matrix of `columns`, in elements, that are worth trying where rows are gathered: as close
/// as can be, at whole sectors of 32 bytes, and at whole lines of 128, of which a row that begins anywhere takes one
/// more than it must. Ascending, each once.
pub fn gathered_strides<E: Element>(columns: usize) -> Vec<usize> {
    const SECTOR: usize = 32;
    let least = padded::<E>(columns);
    let at = |bytes: usize| least.next_multiple_of(bytes / size_of::<E>());
    let mut strides = vec![least, at(SECTOR), at(LINE_BYTES)];
    strides.dedup();
    strides
}

/// The one of [`gathered_strides`] that a sum over neighbours reads fastest: whole lines, for elements of 16 bits in
/// rows of more than half of one and at most two. As measured with 40, 47, 100 and 200 columns: of a wider row fewer of
/// its lines are spared, and rows of floats gain nothing, and take more memory.
pub fn gathered_stride<E: Element>(columns: usize) -> usize {
    let least = padded::<E>(columns);
    let (half_a_line, line) = (LINE_BYTES / 2 / size_of::<E>(), LINE_BYTES / size_of::<E>());
    match size_of::<E>() == 2 && least > half_a_line && least <= 2 * line {
        true => least.next_multiple_of(line),
        false => least,
    }
}

/// Bytes of rows that are made at a time on their way to a device.
const PIECE_BYTES: usize = 64 << 20;

/// A row-major matrix on a backend.
#[derive(Debug)]
pub struct Matrix<B: Storage, E: Element> {
    pub(crate) buffer: B::Buffer<E>,
    rows: usize,
    columns: usize,
    /// At least [`padded`] columns; more in memory of another program's.
    stride: usize,
    /// Rows before the first: none but where [some](Matrix::with_rows) are written.
    before: usize,
}

impl<B: Storage, E: Element> Matrix<B, E> {
    /// `rows` × `columns` zeros.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix has more elements than can be addressed, [`Error::Driver`] where there is
    /// not enough memory.
    pub fn zeros(
        backend: &B,
        rows: usize,
        columns: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let buffer = backend.alloc(Self::elements(rows, columns)?, kind)?;
        Ok(Self::of(buffer, rows, columns))
    }

    /// `rows` × `columns` of any content, padding included: an output of an operator that writes all of it, which saves
    /// the clearing. What is read before it is written is anything.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn uninit(
        backend: &B,
        rows: usize,
        columns: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let buffer = backend.alloc_uncleared(Self::elements(rows, columns)?, kind)?;
        Ok(Self::of(buffer, rows, columns))
    }

    /// The same for what sums over neighbours read: rows are a [`gathered_stride`] apart.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn uninit_gathered(
        backend: &B,
        (rows, columns): (usize, usize),
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let stride = gathered_stride::<E>(columns);
        // As many for the last row as for all: who writes rows writes what is between them, too.
        let buffer = backend.alloc_uncleared(Self::elements(rows, stride)?, kind)?;
        Ok(Self::strided(buffer, (rows, columns), stride))
    }

    /// A matrix in memory that is there; `buffer` has [`Matrix::elements`].
    pub(crate) fn of(buffer: B::Buffer<E>, rows: usize, columns: usize) -> Self {
        Self::strided(buffer, (rows, columns), padded::<E>(columns))
    }

    /// A matrix in memory that is there, whose rows are `stride` elements apart: a multiple of a vector's, and no fewer
    /// than [`padded`] columns; `buffer` has as many, but for the last row, of which it has the padded columns.
    pub(crate) fn strided(
        buffer: B::Buffer<E>,
        (rows, columns): (usize, usize),
        stride: usize,
    ) -> Self {
        Self {
            buffer,
            rows,
            columns,
            stride,
            before: 0,
        }
    }

    /// Refuses to write a matrix between whose rows there is something else.
    pub(crate) fn expect_contiguous(&self, operator: &'static str) -> Result<(), Error> {
        match self.is_contiguous() {
            true => Ok(()),
            false => Err(Error::Unsupported {
                operator,
                reason: format!(
                    "rows are {} elements apart, and what lies between them is somebody else's: write the memory where it \
                     was allocated",
                    self.stride
                ),
            }),
        }
    }

    /// Elements of a matrix, padding included.
    pub(crate) fn elements(rows: usize, columns: usize) -> Result<usize, Error> {
        columns
            .checked_next_multiple_of(E::LANES)
            .and_then(|stride| rows.checked_mul(stride))
            .filter(|len| {
                len.checked_mul(size_of::<E>())
                    .is_some_and(|bytes| bytes <= isize::MAX as usize)
            })
            .ok_or(Error::TooLarge { rows, columns })
    }

    /// A copy of `values`, row-major, `rows · columns` long, each rounded to the nearest element.
    ///
    /// # Errors
    /// [`Error::Shape`] where the length is another, [`Error::Driver`] where there is not enough memory.
    pub fn from_f32(
        backend: &B,
        rows: usize,
        columns: usize,
        values: &[f32],
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let mut matrix = Self::zeros(backend, rows, columns, kind)?;
        matrix.write_f32(backend, values)?;
        Ok(matrix)
    }

    /// Rows that `write_row` gives: it is called with each row's index and zeros or an earlier row, which it
    /// overwrites, from all threads. Each number is rounded to the nearest element.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix cannot be addressed, [`Error::Driver`] where there is not enough memory.
    pub fn from_rows(
        backend: &B,
        (rows, columns): (usize, usize),
        kind: MemoryKind,
        write_row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self, Error> {
        Self::from_rows_apart(
            backend,
            (rows, columns),
            padded::<E>(columns),
            kind,
            write_row,
        )
    }

    /// [`Matrix::from_rows`] whose rows are `stride` elements apart, with zeros between them: some of
    /// [`gathered_strides`]. Sums over neighbours and products take it; what needs rows that
    /// [follow](Matrix::is_contiguous) one another refuses it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stride below [`padded`] columns or of no whole 16-byte vectors; those of
    /// [`Matrix::from_rows`].
    pub fn from_rows_apart(
        backend: &B,
        (rows, columns): (usize, usize),
        stride: usize,
        kind: MemoryKind,
        write_row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self, Error> {
        let least = padded::<E>(columns);
        if stride < least || !stride.is_multiple_of(E::LANES) {
            return Err(Error::Unsupported {
                operator: "Matrix::from_rows_apart",
                reason: format!(
                    "rows of {columns} columns {stride} elements apart; take a multiple of {} from {least} on",
                    E::LANES
                ),
            });
        }
        // Behind the last row there is nothing.
        let len = Self::elements(rows, stride)? - (stride - least) * rows.min(1);
        let buffer = backend.alloc_uncleared(len, kind)?;
        let matrix = Self::strided(buffer, (rows, columns), stride);
        if rows * columns == 0 || backend.only_counts() {
            return Ok(matrix);
        }
        // Piece by piece, so that the host needs no second matrix.
        let piece = (PIECE_BYTES / size_of::<E>() / stride).clamp(1, rows);
        let mut padded = vec![E::zeroed(); piece * stride];
        for start in (0..rows).step_by(piece) {
            let count = piece.min(rows - start);
            let end = match start + count == rows {
                true => count * stride - (stride - least),
                false => count * stride,
            };
            let padded = &mut padded[..end];
            let chunks = parallel::chunks_mut(padded, stride);
            parallel::pieces(chunks, 1, &|first, rows| {
                let mut values = vec![0.0; columns];
                for (row, padded) in (start + first..).zip(rows.each()) {
                    write_row(row, &mut values);
                    round(&values, &mut padded[..columns]);
                }
            });
            backend.upload_at(&matrix.buffer, start * stride, padded)?;
        }
        Ok(matrix)
    }

    /// The elements of an array as rows of `columns` whole 16-byte vectors, without a copy.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many as `rows · columns`, [`Error::Unsupported`] where rows of the given
    /// number of columns have padding.
    pub fn from_array(array: Array<B, E>, rows: usize, columns: usize) -> Result<Self, Error> {
        const NAME: &str = "Matrix::from_array";
        if padded::<E>(columns) != columns {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "rows of {columns} columns have padding; take a multiple of {}",
                    E::LANES
                ),
            });
        }
        let elements = Self::elements(rows, columns)?;
        Error::expect(NAME, "elements of the array", elements, array.len)?;
        Ok(Self::of(array.buffer, rows, columns))
    }

    /// The elements of an array as rows that are [`padded`] columns apart, without a copy. What lies behind the columns
    /// of a row is padding, and should be zero: products read it.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many as such rows have.
    pub fn from_padded(array: Array<B, E>, rows: usize, columns: usize) -> Result<Self, Error> {
        let elements = Self::elements(rows, columns)?;
        Error::expect(
            "Matrix::from_padded",
            "elements of the array",
            elements,
            array.len,
        )?;
        Ok(Self::of(array.buffer, rows, columns))
    }

    /// All elements one after the other, padding included, without a copy.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another.
    pub fn into_array(self) -> Result<Array<B, E>, Error> {
        self.expect_contiguous("Matrix::into_array")?;
        let len = self.rows * self.stride;
        Ok(Array::of(self.buffer, len))
    }

    /// Makes all elements zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another; those of the device.
    pub fn clear(&mut self, backend: &B) -> Result<(), Error> {
        self.expect_contiguous("Matrix::clear")?;
        backend.clear(&self.buffer)
    }

    /// Replaces the values; see [`Matrix::from_f32`].
    ///
    /// # Errors
    /// [`Error::Shape`] where `values` is not `rows · columns` long, [`Error::Unsupported`] where rows do not
    /// [follow](Matrix::is_contiguous) one another.
    pub fn write_f32(&mut self, backend: &B, values: &[f32]) -> Result<(), Error> {
        Error::expect(
            "Matrix::write_f32",
            "values",
            self.rows * self.columns,
            values.len(),
        )?;
        self.expect_contiguous("Matrix::write_f32")?;
        let stride = self.stride();
        let mut padded = vec![E::zeroed(); self.rows * stride];
        if self.columns > 0 {
            for (row, source) in padded
                .chunks_exact_mut(stride)
                .zip(values.chunks_exact(self.columns))
            {
                round(source, &mut row[..self.columns]);
            }
        }
        backend.upload(&self.buffer, &padded)
    }

    /// [`Matrix::write_f32`] of the values that `make` makes, which is called where there are any to be kept.
    ///
    /// # Errors
    /// [`Error::Shape`] where their number is not `rows · columns`.
    pub fn write_with(
        &mut self,
        backend: &B,
        make: impl FnOnce() -> Vec<f32>,
    ) -> Result<(), Error> {
        if backend.only_counts() {
            return Ok(());
        }
        self.write_f32(backend, &make())
    }

    /// The values, row-major, `rows · columns` long, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_f32(&self, backend: &B) -> Result<Vec<f32>, Error> {
        let rows = self.to_padded(backend)?;
        if self.columns == 0 {
            return Ok(Vec::new());
        }
        Ok(rows
            .chunks_exact(padded::<E>(self.columns))
            .flat_map(|row| row[..self.columns].iter().map(|value| value.to_f32()))
            .collect())
    }

    /// The elements of the rows, their padding included, `rows ·` [`padded`]`(columns)` long. For tests.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    #[doc(hidden)]
    pub fn to_padded(&self, backend: &B) -> Result<Vec<E>, Error> {
        let (row, stride) = (padded::<E>(self.columns), self.stride);
        // As long as the rows are, without what follows the last one.
        let last = self.rows.saturating_sub(1);
        let mut values = vec![E::zeroed(); last * stride + row * self.rows.min(1)];
        backend.download(&self.buffer, &mut values)?;
        if !self.is_contiguous() {
            for at in 0..self.rows {
                values.copy_within(at * stride..at * stride + row, at * row);
            }
            values.truncate(self.rows * row);
        }
        Ok(values)
    }

    /// The elements of some rows as they lie, their padding included, on their way to another [`Matrix::write_rows`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another, [`Error::Driver`] where
    /// there are not that number, or with the failure of an earlier operator.
    pub fn read_rows(&self, backend: &B, rows: Range<usize>) -> Result<Vec<E>, Error> {
        self.expect_contiguous("Matrix::read_rows")?;
        let first = rows.start * self.stride;
        let mut elements = vec![E::zeroed(); rows.len() * self.stride];
        backend.download_at(&self.buffer, first, &mut elements)?;
        Ok(elements)
    }

    /// Replaces the rows from `first` on by those that [`Matrix::read_rows`] gave of a matrix of as many columns.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows do not [follow](Matrix::is_contiguous) one another, [`Error::Driver`] where
    /// there are not that number.
    pub fn write_rows(&mut self, backend: &B, first: usize, rows: &[E]) -> Result<(), Error> {
        self.expect_contiguous("Matrix::write_rows")?;
        backend.upload_at(&self.buffer, first * self.stride, rows)
    }

    /// What `work` makes of as many of these rows as there are, as of a matrix that has no others. It leaves the matrix
    /// where it is, and is an operator that comes by the matrix' elements through its address or a view of it.
    pub(crate) fn with_rows<T>(
        &mut self,
        rows: Range<usize>,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let all = self.rows;
        self.before = rows.start.min(all);
        self.rows = rows.end.clamp(self.before, all) - self.before;
        let made = work(self);
        (self.before, self.rows) = (0, all);
        made
    }

    /// Elements before those of the first row.
    pub(crate) fn elements_before(&self) -> usize {
        self.before * self.stride
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, padding not counted.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `(rows, columns)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Distance of two rows in elements: [`padded`] columns, or more in memory of another program's.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Whether rows follow one another with nothing but their padding between them. Products and sums over neighbours
    /// take other matrices as well, and other operators refuse them.
    pub fn is_contiguous(&self) -> bool {
        self.stride == padded::<E>(self.columns)
    }

    /// Whether it lies in another memory than what `backend` computes in: [`MemoryKind::HostFeatures`] of a GPU.
    pub fn is_remote(&self, backend: &B) -> bool {
        backend.is_remote(&self.buffer)
    }
}
