//! Every operator on the CPU, in half, bfloat16 and float.
//!
//! Each operator (`cpu.rs` of its folder) is the twin of a GPU kernel and computes the same formula. Where time is
//! spent it is written twice: plain and readable, which is the reference ([`Cpu::reference`]), and in vectors of the
//! widest [`Instructions`] that the processor has.
//!
//! # Bits
//! Work is shared out over the threads of the surrounding rayon pool in pieces that depend on graph and shapes alone,
//! and sums are merged in a fixed order, so that a result has the same bits for any number of threads.
//!
//! Vectors lie along the features, nothing is contracted to a fused multiply-add, and sums over features are kept in a
//! fixed number of parts. So results are the same bits for all instructions too, and on all machines, up to two things:
//! the dense products, which `gemm` computes with fused operations and vectors as wide as it finds (on a machine
//! without AVX2 and FMA they may differ in the last bit; those whose first operand is mostly zeros do not go through
//! it), and what a NaN holds in addition to being one.

mod access;
mod address;
#[cfg(test)]
mod address_tests;
mod buffer;
pub(crate) mod convert;
mod instructions;
pub(crate) mod nonzeros;
pub(crate) mod simd;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub use buffer::Buffer;
pub use instructions::Instructions;

pub(crate) use buffer::{Reading, Words};

use super::{Ledger, MemoryKind, MemoryReport, Storage, Transfer};
use crate::driver::{DriverError, Interconnect, LinkPlace, LocalLink, Watch};
use crate::error::Error;
use crate::tensor::Array;
use bytemuck::Pod;
use std::convert::Infallible;
use std::sync::Arc;

/// The CPU of this machine, through the threads of the surrounding rayon pool. However many there are, they are one
/// device: the memory is the process's, and operands of one are operands of any, whatever instructions each uses.
/// Clones count what they allocate together.
#[derive(Clone, Debug)]
pub struct Cpu {
    ledger: Ledger,
    instructions: Instructions,
}

impl Cpu {
    /// The CPU, with the widest vectors that it has.
    pub fn new() -> Self {
        Self::of(Instructions::widest())
    }

    /// The CPU in plain Rust alone: every operator as its formula is written.
    pub fn reference() -> Self {
        Self::of(Instructions::Plain)
    }

    /// The CPU with some instructions.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the processor has not got them.
    pub fn with(instructions: Instructions) -> Result<Self, Error> {
        Ok(Self::of(instructions.expect_available()?))
    }

    /// The CPU with the instructions that the environment variable `HALFGNN_CPU_INSTRUCTIONS` names, the widest where
    /// it is not set: for comparisons, and where one set is slower than it should be.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are none of that name, or the processor has not got them.
    pub fn from_environment() -> Result<Self, Error> {
        match std::env::var_os("HALFGNN_CPU_INSTRUCTIONS") {
            None => Ok(Self::new()),
            Some(name) => Ok(Self::of(name.to_string_lossy().parse()?)),
        }
    }

    fn of(instructions: Instructions) -> Self {
        Self {
            ledger: Ledger::default(),
            instructions,
        }
    }

    /// The instructions that its operators use.
    pub fn instructions(&self) -> Instructions {
        self.instructions
    }
}

impl Cpu {
    /// What is there as an array, without a copy, and not counted: it is another program's as well.
    pub(crate) fn share<T: Pod + Send + Sync>(&self, words: Arc<dyn Words>) -> Array<Self, T> {
        let len = words.bytes().len() / size_of::<T>();
        let uncounted = self.ledger.track(0, MemoryKind::Graph);
        Array::of(Buffer::shared(words, uncounted), len)
    }
}

impl Default for Cpu {
    /// [`Cpu::new`].
    fn default() -> Self {
        Self::new()
    }
}

impl Storage for Cpu {
    type Buffer<T: Pod> = Buffer<T>;
    type Recording = Infallible;
    type Link = LocalLink;

    fn name(&self) -> String {
        format!("CPU ({} threads)", rayon::current_num_threads())
    }

    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<T>, Error> {
        // Its memory is the host's.
        let kind = match kind {
            MemoryKind::HostFeatures => MemoryKind::Features,
            MemoryKind::HostGraph => MemoryKind::Graph,
            other => other,
        };
        Ok(Buffer::zeroed(len, |bytes| self.ledger.track(bytes, kind))?)
    }

    fn clear<T: Pod>(&self, buffer: &Buffer<T>) -> Result<(), Error> {
        buffer.clear();
        Ok(())
    }

    fn upload<T: Pod>(&self, buffer: &Buffer<T>, source: &[T]) -> Result<(), Error> {
        Ok(buffer.write_at(0, source)?)
    }

    fn download<T: Pod>(&self, buffer: &Buffer<T>, target: &mut [T]) -> Result<(), Error> {
        Ok(buffer.copy_from(0, target)?)
    }

    fn upload_at<T: Pod>(&self, buffer: &Buffer<T>, at: usize, source: &[T]) -> Result<(), Error> {
        Ok(buffer.write_at(at, source)?)
    }

    fn download_at<T: Pod>(
        &self,
        buffer: &Buffer<T>,
        at: usize,
        target: &mut [T],
    ) -> Result<(), Error> {
        Ok(buffer.copy_from(at, target)?)
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

    fn interconnect(&self) -> Result<Interconnect, Error> {
        Err(DriverError::Link("CPUs are linked by nothing but the host; take GPUs".into()).into())
    }

    fn link_id(&self) -> Result<Vec<u8>, Error> {
        Ok(LocalLink::id())
    }

    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<LocalLink, Error> {
        Ok(LocalLink::join(place, watch)?)
    }

    fn transfer<T: Pod>(
        &self,
        link: &LocalLink,
        sends: &[Transfer<'_, Self, T>],
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        self.transfer_begin(link, sends, receives)?;
        self.transfer_end(link, receives)
    }

    fn transfer_begin<T: Pod>(
        &self,
        link: &LocalLink,
        sends: &[Transfer<'_, Self, T>],
        _receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        let mut given = Vec::with_capacity(sends.len());
        for part in sends {
            let mut elements = vec![T::zeroed(); part.elements.len()];
            part.buffer.copy_from(part.elements.start, &mut elements)?;
            given.push((part.rank, bytemuck::cast_slice(&elements).to_vec()));
        }
        Ok(link.exchange(given, &mut [])?)
    }

    fn transfer_end<T: Pod>(
        &self,
        link: &LocalLink,
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        let room = |part: &Transfer<'_, Self, T>| vec![0; part.elements.len() * size_of::<T>()];
        let mut arrived: Vec<_> = (receives.iter())
            .map(|part| (part.rank, room(part)))
            .collect();
        link.exchange(Vec::new(), &mut arrived)?;
        for (part, (_, bytes)) in receives.iter().zip(&arrived) {
            let elements: Vec<T> = bytemuck::pod_collect_to_vec(bytes);
            part.buffer.write_at(part.elements.start, &elements)?;
        }
        Ok(())
    }

    fn sum_words(&self, link: &LocalLink, words: &mut Array<Self, u32>) -> Result<(), Error> {
        Ok(link.sum(words.buffer.get_mut())?)
    }

    fn cut(&self, link: &LocalLink, reason: &str) {
        link.cut(reason);
    }

    fn memory(&self) -> MemoryReport {
        self.ledger.report()
    }

    fn reset_peak(&self) {
        self.ledger.reset_peak();
    }
}
