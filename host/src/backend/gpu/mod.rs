//! Operators as kernels, on any [`Driver`]: it picks a kernel, computes its geometry, and launches it.
//!
//! - `kernels`: a module of PTX, compared with the launch contract before anything is launched.
//! - one file an operator family: what the kernel is told.

mod buffer;
mod dense;
mod kernels;
mod matmul;
mod spmm;
mod workspace;

pub use buffer::Buffer;

use super::{
    Activation, AdamHyper, Adjacency, Backend, Epilogue, Form, Ledger, LossScaling, MemoryKind,
    MemoryReport, OptimizerState, ParameterMut, Spmm,
};
use crate::driver::Driver;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use halfgnn_contract::DevicePtr;
use kernels::Kernels;
use workspace::Workspace;

/// A backend that launches kernels.
#[derive(Debug)]
pub struct Gpu<D: Driver> {
    driver: D,
    kernels: Kernels<D>,
    workspace: Workspace<D>,
    ledger: Ledger,
}

impl<D: Driver> Gpu<D> {
    /// The backend of `driver`, with the kernels in `ptx`.
    ///
    /// # Errors
    /// [`Error::Contract`] where the PTX lacks a kernel, or was built from other sources than this crate;
    /// [`Error::Driver`] where it does not load.
    pub fn new(driver: D, ptx: &str) -> Result<Self, Error> {
        let kernels = Kernels::load(&driver, ptx)?;
        Ok(Self {
            driver,
            kernels,
            workspace: Workspace::default(),
            ledger: Ledger::default(),
        })
    }

    /// The device.
    pub fn driver(&self) -> &D {
        &self.driver
    }
}

/// Address of a matrix, whatever its elements.
fn matrix<D: Driver, E: Element, T>(matrix: &Matrix<Gpu<D>, E>) -> DevicePtr<T> {
    DevicePtr::new(matrix.buffer.address())
}

/// Address of an array.
fn array<D: Driver, T: Pod + Send + Sync, U>(array: &Array<Gpu<D>, T>) -> DevicePtr<U> {
    DevicePtr::new(array.buffer.address())
}

/// Address of an array, or null.
fn optional_array<D: Driver, T: Pod + Send + Sync, U>(
    array: Option<&Array<Gpu<D>, T>>,
) -> DevicePtr<U> {
    array.map_or(DevicePtr::NULL, self::array)
}

/// Address of a matrix, or null.
fn optional_matrix<D: Driver, E: Element, T>(matrix: Option<&Matrix<Gpu<D>, E>>) -> DevicePtr<T> {
    matrix.map_or(DevicePtr::NULL, self::matrix)
}

/// Distance of two rows of a matrix in 16-byte vectors.
fn stride_vectors<D: Driver, E: Element>(
    operator: &'static str,
    matrix: &Matrix<Gpu<D>, E>,
) -> Result<u32, Error> {
    narrow(operator, "columns of a matrix", matrix.stride() / E::LANES)
}

/// A size as kernels count it.
fn narrow(operator: &'static str, what: &'static str, value: usize) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Unsupported {
        operator,
        reason: format!("{what}: {value} is more than 2^32 - 1"),
    })
}

impl<D: Driver> Backend for Gpu<D> {
    type Buffer<T: Pod> = Buffer<D, T>;

    fn name(&self) -> String {
        self.driver.info().name.clone()
    }

    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<D, T>, Error> {
        Buffer::zeroed(&self.driver, len, &self.ledger, kind)
    }

    fn upload<T: Pod>(&self, buffer: &Buffer<D, T>, source: &[T]) -> Result<(), Error> {
        Ok(self
            .driver
            .upload(buffer.memory(), 0, bytemuck::cast_slice(source))?)
    }

    fn download<T: Pod>(&self, buffer: &Buffer<D, T>, target: &mut [T]) -> Result<(), Error> {
        Ok(self
            .driver
            .download(buffer.memory(), 0, bytemuck::cast_slice_mut(target))?)
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(self.driver.synchronize()?)
    }

    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let start = self.driver.record()?;
        work()?;
        let end = self.driver.record()?;
        Ok(self.driver.elapsed_ms(&start, &end)?)
    }

    fn memory(&self) -> MemoryReport {
        self.ledger.report()
    }

    fn reset_peak(&self) {
        self.ledger.reset_peak();
        self.driver.reset_peak();
    }

    fn spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        self.launch_spmm(a, op, x, y)
    }

    fn matmul<E: Element, O: Element>(
        &self,
        form: Form,
        a: &Matrix<Self, E>,
        b: &Matrix<Self, E>,
        epilogue: &Epilogue<'_, Self>,
        c: &mut Matrix<Self, O>,
    ) -> Result<(), Error> {
        self.launch_matmul(form, a, b, epilogue, c)
    }

    fn activate<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        x: Option<&Matrix<Self, E>>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        self.launch_activate(op, x, y)
    }

    fn activate_backward<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        y: Option<&Matrix<Self, E>>,
        row_scale: Option<&Array<Self, f32>>,
        d: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        self.launch_activate_backward(op, y, row_scale, d)
    }

    fn column_sums<E: Element>(
        &self,
        x: &Matrix<Self, E>,
        sums: &mut Matrix<Self, f32>,
    ) -> Result<(), Error> {
        self.launch_column_sums(x, sums)
    }

    fn cross_entropy<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        targets: &Array<Self, u32>,
        count: usize,
        state: &OptimizerState<Self>,
        gradient: &mut Matrix<Self, E>,
        loss: &mut Array<Self, f32>,
    ) -> Result<(), Error> {
        self.launch_cross_entropy(logits, targets, count, state, gradient, loss)
    }

    fn count_correct<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        labels: &Array<Self, u32>,
        splits: &Array<Self, u32>,
        correct: &mut Array<Self, u32>,
    ) -> Result<(), Error> {
        self.launch_count_correct(logits, labels, splits, correct)
    }

    fn check_finite(
        &self,
        gradients: &[&Matrix<Self, f32>],
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        self.launch_check_finite(gradients, state)
    }

    fn adam<E: Element>(
        &self,
        hyper: &AdamHyper,
        state: &OptimizerState<Self>,
        parameters: &mut [ParameterMut<'_, Self, E>],
    ) -> Result<(), Error> {
        self.launch_adam(hyper, state, parameters)
    }

    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        self.launch_end_step(scaling, state)
    }
}
