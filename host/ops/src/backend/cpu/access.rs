//! Operands as slices, for operators of one's own.

use super::Cpu;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use std::ops::Deref;

impl<E: Element> Matrix<Cpu, E> {
    /// The elements, row by row, [`stride`](Matrix::stride) of them a row: past the last column they are zero.
    pub fn elements_on_host(&self) -> impl Deref<Target = [E]> + '_ {
        self.buffer.read()
    }

    /// The elements, to be written. Those past the last column of a row must stay zero, since operators count on it.
    pub fn elements_on_host_mut(&mut self) -> &mut [E] {
        self.buffer.get_mut()
    }
}

impl<T: Pod + Send + Sync> Array<Cpu, T> {
    /// The values.
    pub fn values_on_host(&self) -> impl Deref<Target = [T]> + '_ {
        self.buffer.read()
    }

    /// The values, to be written.
    pub fn values_on_host_mut(&mut self) -> &mut [T] {
        self.buffer.get_mut()
    }
}
