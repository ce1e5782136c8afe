//! Where operands lie on the device, for kernels of one's own.

use super::Gpu;
use crate::driver::Driver;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;

impl<D: Driver, E: Element> Matrix<Gpu<D>, E> {
    /// Address of the first element on the device; row `r` begins `r ·` [`stride`](Matrix::stride) elements later. Rows
    /// are 16-byte aligned, and elements past the last column are zero and must stay zero.
    ///
    /// It is good until the matrix is dropped. A kernel that is given it is launched through [`Gpu::driver`], whose stream
    /// is the one that operators use: it runs after the operators that were called before it.
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }
}

impl<D: Driver, T: Pod + Send + Sync> Array<Gpu<D>, T> {
    /// Address of the first value on the device; see [`Matrix::device_address`].
    pub fn device_address(&self) -> u64 {
        self.buffer.address()
    }
}
