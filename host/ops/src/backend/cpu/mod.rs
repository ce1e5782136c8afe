//! The reference: every operator on the CPU, plain and readable, in half and in float.
//!
//! Each operator (`cpu.rs` of its folder) is the twin of a GPU kernel and computes the same formula. Work is shared out over the threads of
//! the surrounding rayon pool in pieces that depend on shapes alone, and sums are merged in a fixed order, so that a
//! result has the same bits for any number of threads.

mod access;
mod address;
#[cfg(test)]
mod address_tests;
mod buffer;
pub(crate) mod convert;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub use buffer::Buffer;

pub(crate) use buffer::Reading;

use super::{Ledger, MemoryKind, MemoryReport, Storage};
use crate::error::Error;
use bytemuck::Pod;
use std::convert::Infallible;

/// The CPU of this machine, through the threads of the surrounding rayon pool. However many there are, they are one device:
/// the memory is the process's, and operands of one are operands of any. Clones count what they allocate together.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    ledger: Ledger,
}

impl Cpu {
    /// The CPU.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Storage for Cpu {
    type Buffer<T: Pod> = Buffer<T>;
    type Recording = Infallible;

    fn name(&self) -> String {
        format!("CPU ({} threads)", rayon::current_num_threads())
    }

    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<T>, Error> {
        Ok(Buffer::zeroed(len, |bytes| self.ledger.track(bytes, kind))?)
    }

    fn clear<T: Pod>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        buffer.clear();
        Ok(())
    }

    fn upload<T: Pod>(&self, buffer: &Buffer<T>, source: &[T]) -> Result<(), Error> {
        Ok(buffer.write(source)?)
    }

    fn download<T: Pod>(&self, buffer: &Buffer<T>, target: &mut [T]) -> Result<(), Error> {
        Ok(buffer.copy_to(target)?)
    }

    /// A call costs nothing here.
    fn record(
        &self,
        _work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Option<Infallible>, Error> {
        Ok(None)
    }

    fn replay(&self, recording: &Infallible) -> Result<(), Error> {
        match *recording {}
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }

    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let start = std::time::Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn memory(&self) -> MemoryReport {
        self.ledger.report()
    }

    fn reset_peak(&self) {
        self.ledger.reset_peak();
    }
}
