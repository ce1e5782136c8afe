//! Memory of Python's arrays as operands of a backend.

use bytemuck::Pod;
use halfgnn::Error;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{self, AdjacencyArrays, Backend, MemoryKind};
use halfgnn::driver::emulated::Emulated;
use halfgnn::graph::Starts;
use halfgnn::tensor::{Array, Element, Matrix, padded};
use pyo3::FromPyObject;

const KIND: MemoryKind = MemoryKind::Activations;

/// A list of numbers: `(address, length)`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct RawArray(pub u64, pub usize);

impl RawArray {
    /// The values, on the host.
    ///
    /// # Safety
    /// As of [`Lend`], for as long as the result is used.
    pub unsafe fn read<'a, T>(self) -> &'a [T] {
        // SAFETY: what this method asks of its caller.
        unsafe { slice(self.0, self.1) }
    }
}

/// A matrix: `(address, rows, columns, stride)`, the stride in elements.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct RawMatrix(pub u64, pub usize, pub usize, pub usize);

impl RawMatrix {
    /// All but the address.
    pub fn numbers(&self) -> [usize; 3] {
        [self.1, self.2, self.3]
    }

    /// The elements, on the host.
    ///
    /// # Safety
    /// As of [`Lend`], for as long as the result is used.
    pub unsafe fn read<'a, E>(self) -> &'a [E] {
        // SAFETY: what this method asks of its caller.
        unsafe { slice(self.0, self.1 * self.3) }
    }
}

/// An adjacency, whose arrays lie one after the other:
/// `(address, rows, edges, rows without edges, columns, longest row)`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct RawAdjacency(pub u64, pub usize, pub usize, pub usize, pub usize, pub u32);

impl RawAdjacency {
    /// All but the address.
    pub fn numbers(&self) -> [usize; 5] {
        [self.1, self.2, self.3, self.4, self.5 as usize]
    }
}

/// Where the arrays of an adjacency lie.
pub struct Layout {
    /// First byte and length of each: offsets, columns, rows, starts, filled and empty rows.
    pub arrays: [(usize, usize); 6],
    /// Words of four bytes of all.
    pub words: usize,
}

impl Layout {
    /// Of an adjacency of a number of rows, edges, and rows without edges. Each array begins at a multiple of 16 bytes.
    pub fn new(rows: usize, edges: usize, empty: usize) -> Self {
        let filled = Starts::filled(rows.saturating_sub(empty));
        let lengths = [
            (rows.saturating_add(1), 2),
            (edges, 1),
            (edges, 1),
            (Starts::words(edges), 2),
            (filled, 1),
            (empty, 1),
        ];
        let mut words = 0_usize;
        let arrays = lengths.map(|(len, wide)| {
            let at = words * size_of::<u32>();
            words += (len * wide).next_multiple_of(4);
            (at, len)
        });
        Self { arrays, words }
    }

    /// The arrays of an adjacency that lies at `address`.
    pub fn at(&self, address: u64) -> [RawArray; 6] {
        self.arrays
            .map(|(at, len)| RawArray(address + at as u64, len))
    }
}

/// A backend that takes memory of another program's.
///
/// # Safety of all methods
/// The memory lives until the operand is dropped and its work is done, has as many elements of the type as is said, on
/// the backend's device (the host's, of the emulator), and it is not used elsewhere meanwhile; of a matrix `stride`
/// times rows of them, those past the last column zero.
pub trait Lend: Backend {
    /// An array.
    ///
    /// # Safety
    /// See [`Lend`].
    unsafe fn array<T: Pod + Send + Sync>(&self, of: RawArray) -> Result<Array<Self, T>, Error>;

    /// A matrix.
    ///
    /// # Safety
    /// See [`Lend`].
    unsafe fn matrix<E: Element>(&self, of: RawMatrix) -> Result<Matrix<Self, E>, Error>;

    /// Has what an operator wrote in the memory that `array` was made of.
    ///
    /// # Safety
    /// See [`Lend`].
    unsafe fn give_array<T: Pod + Send + Sync>(
        &self,
        array: &Array<Self, T>,
        of: RawArray,
    ) -> Result<(), Error> {
        let _ = (array, of);
        Ok(())
    }

    /// The same of a matrix.
    ///
    /// # Safety
    /// See [`Lend`].
    unsafe fn give_matrix<E: Element>(
        &self,
        matrix: &Matrix<Self, E>,
        of: RawMatrix,
    ) -> Result<(), Error> {
        let _ = (matrix, of);
        Ok(())
    }

    /// An adjacency.
    ///
    /// # Safety
    /// See [`Lend`]; and the arrays are those of an adjacency.
    unsafe fn adjacency(&self, of: &RawAdjacency) -> Result<backend::Adjacency<Self>, Error> {
        let RawAdjacency(address, rows, edges, empty, width, longest) = *of;
        let [offsets, columns, rows, starts, filled, empty] =
            Layout::new(rows, edges, empty).at(address);
        // SAFETY: what this method asks of its caller.
        unsafe {
            backend::Adjacency::from_arrays(AdjacencyArrays {
                columns: width,
                longest_row: longest,
                row_ids: self.array(rows)?,
                column_ids: self.array(columns)?,
                offsets: self.array(offsets)?,
                starts: self.array(starts)?,
                filled_rows: self.array(filled)?,
                empty_rows: self.array(empty)?,
            })
        }
    }

    /// An array that may be absent.
    ///
    /// # Safety
    /// See [`Lend`].
    unsafe fn optional<T: Pod + Send + Sync>(
        &self,
        of: Option<RawArray>,
    ) -> Result<Option<Array<Self, T>>, Error> {
        // SAFETY: what this method asks of its caller.
        of.map(|of| unsafe { self.array(of) }).transpose()
    }
}

impl Lend for Cpu {
    unsafe fn array<T: Pod + Send + Sync>(&self, of: RawArray) -> Result<Array<Self, T>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe { Array::<Cpu, T>::from_pointer(self, pointer(of.0), of.1, KIND) }
    }

    unsafe fn matrix<E: Element>(&self, of: RawMatrix) -> Result<Matrix<Self, E>, Error> {
        let RawMatrix(address, rows, columns, stride) = of;
        // SAFETY: what this method asks of its caller.
        unsafe {
            Matrix::<Cpu, E>::from_pointer(self, pointer(address), (rows, columns), stride, KIND)
        }
    }
}

#[cfg(feature = "cuda")]
impl Lend for Gpu<halfgnn::driver::cuda::Cuda> {
    unsafe fn array<T: Pod + Send + Sync>(&self, of: RawArray) -> Result<Array<Self, T>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe { Array::<Self, T>::from_raw(self, of.0, of.1, KIND) }
    }

    unsafe fn matrix<E: Element>(&self, of: RawMatrix) -> Result<Matrix<Self, E>, Error> {
        let RawMatrix(address, rows, columns, stride) = of;
        // SAFETY: what this method asks of its caller.
        unsafe { Matrix::<Self, E>::from_raw(self, address, (rows, columns), stride, KIND) }
    }
}

/// The emulator has memory of its own, so operands are copied there and back.
impl Lend for Gpu<Emulated> {
    unsafe fn array<T: Pod + Send + Sync>(&self, of: RawArray) -> Result<Array<Self, T>, Error> {
        // SAFETY: what this method asks of its caller.
        Array::from_slice(self, unsafe { slice(of.0, of.1) }, KIND)
    }

    unsafe fn matrix<E: Element>(&self, of: RawMatrix) -> Result<Matrix<Self, E>, Error> {
        let RawMatrix(address, rows, columns, stride) = of;
        // SAFETY: what this method asks of its caller.
        let elements: &[E] = unsafe { slice(address, rows * stride) };
        Matrix::from_rows(self, (rows, columns), KIND, |row, floats| {
            let row = &elements[row * stride..][..columns];
            (floats.iter_mut().zip(row)).for_each(|(float, element)| *float = element.to_f32());
        })
    }

    unsafe fn give_array<T: Pod + Send + Sync>(
        &self,
        array: &Array<Self, T>,
        of: RawArray,
    ) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller.
        unsafe { slice_mut(of.0, of.1) }.copy_from_slice(&array.to_vec(self)?);
        Ok(())
    }

    unsafe fn give_matrix<E: Element>(
        &self,
        matrix: &Matrix<Self, E>,
        of: RawMatrix,
    ) -> Result<(), Error> {
        let RawMatrix(address, rows, columns, stride) = of;
        let floats = matrix.to_f32(self)?;
        // SAFETY: what this method asks of its caller.
        let elements: &mut [E] = unsafe { slice_mut(address, rows * stride) };
        for row in 0..rows {
            let (from, to) = (
                &floats[row * columns..][..columns],
                &mut elements[row * stride..],
            );
            (to.iter_mut().zip(from)).for_each(|(element, float)| *element = E::from_f32(*float));
            to[columns..padded::<E>(columns)].fill(E::zeroed());
        }
        Ok(())
    }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// As of [`Lend`].
unsafe fn slice<'a, T>(address: u64, len: usize) -> &'a [T] {
    match len {
        0 => &[],
        // SAFETY: what this function asks of its caller.
        _ => unsafe { std::slice::from_raw_parts(pointer(address), len) },
    }
}

/// # Safety
/// As of [`Lend`].
unsafe fn slice_mut<'a, T>(address: u64, len: usize) -> &'a mut [T] {
    match len {
        0 => &mut [],
        // SAFETY: what this function asks of its caller.
        _ => unsafe { std::slice::from_raw_parts_mut(pointer(address), len) },
    }
}

/// Writes `values` to an array on the host.
///
/// # Safety
/// As of [`Lend`].
pub unsafe fn write<T: Copy>(values: &[T], to: RawArray) -> Result<(), Error> {
    Error::expect("copy", "elements", values.len(), to.1)?;
    // SAFETY: what this function asks of its caller.
    unsafe { slice_mut(to.0, to.1) }.copy_from_slice(values);
    Ok(())
}
