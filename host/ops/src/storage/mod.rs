//! Memory and time of a device.

mod ledger;
mod transfer;

pub use ledger::{Ledger, MemoryKind, MemoryReport, Tracked};
pub use transfer::{Floats, Rows, Transfer};

use crate::backend::gpu::{KernelSet, ModuleState};
use crate::driver::{Interconnect, LinkPlace, Watch};
use crate::error::Error;
use crate::tensor::Array;
use bytemuck::Pod;
use std::fmt;

/// A place where matrices lie and operators run, in the order of the calls: a handle, whose clones are the same place.
pub trait Storage: Clone + fmt::Debug + Send + Sync + 'static {
    /// Memory for elements of one type.
    type Buffer<T: Pod>: fmt::Debug + Send + Sync + 'static;

    /// Operators that were recorded; they keep the memory that they use.
    type Recording: fmt::Debug + Send + Sync + 'static;

    /// What a rank moves memory by between its device and those of others, without the host: a handle.
    type Link: fmt::Debug + Clone + Send + Sync + 'static;

    /// The name a person knows the device by.
    fn name(&self) -> String;

    /// Whether it only counts memory, and keeps no value: then none need be made.
    fn only_counts(&self) -> bool {
        false
    }

    /// Loads kernels that are known to be launched soon, in parallel where the device compiles them. A hint: a kernel
    /// that cannot be loaded is left to its launch, which reports why.
    fn prefetch(&self, kernels: KernelSet) {
        let _ = kernels;
    }

    /// Every module of kernels, by name, and which of them are loaded; none of a device that launches no kernels.
    fn modules(&self) -> Vec<ModuleState> {
        Vec::new()
    }

    /// Memory for `len` elements, all bytes zero.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough.
    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Self::Buffer<T>, Error>;

    /// Memory for `len` elements of any content, for what is written before it is read; cleared where clearing is free.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough.
    fn alloc_uncleared<T: Pod>(
        &self,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self::Buffer<T>, Error> {
        self.alloc(len, kind)
    }

    /// Whether `buffer` lies in another memory than what the device computes in, so that each read of it goes over a
    /// bus.
    fn is_remote<T: Pod>(&self, buffer: &Self::Buffer<T>) -> bool {
        let _ = buffer;
        false
    }

    /// Makes all bytes of `buffer` zero.
    ///
    /// # Errors
    /// Those of the device.
    fn clear<T: Pod>(&self, buffer: &Self::Buffer<T>) -> Result<(), Error>;

    /// Copies `source` to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::Driver`] where it does not fit.
    fn upload<T: Pod>(&self, buffer: &Self::Buffer<T>, source: &[T]) -> Result<(), Error>;

    /// Copies from the start of `buffer`, after all operators before it are done.
    ///
    /// # Errors
    /// [`Error::Driver`] where the buffer is shorter, or with the failure of an earlier operator.
    fn download<T: Pod>(&self, buffer: &Self::Buffer<T>, target: &mut [T]) -> Result<(), Error>;

    /// Copies `source` to `buffer` from element `at` on.
    ///
    /// # Errors
    /// [`Error::Driver`] where it does not fit.
    fn upload_at<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        at: usize,
        source: &[T],
    ) -> Result<(), Error>;

    /// Copies from element `at` of `buffer` on, after all operators before it are done.
    ///
    /// # Errors
    /// [`Error::Driver`] where the buffer is shorter, or with the failure of an earlier operator.
    fn download_at<T: Pod>(
        &self,
        buffer: &Self::Buffer<T>,
        at: usize,
        target: &mut [T],
    ) -> Result<(), Error>;

    /// Records the operators that `work` calls instead of running them, to be run again and again at the cost of one
    /// call ([`Storage::replay`]). They read and write the same memory each time, and memory that is freed while the
    /// recording lives is not used again before it is dropped. `None` where a device gains nothing by it: then `work`
    /// is not called.
    ///
    /// # Errors
    /// Those of `work`, and [`DriverError::Recording`](crate::driver::DriverError::Recording) where it allocates,
    /// copies or waits.
    fn record(
        &self,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Option<Self::Recording>, Error>;

    /// Runs the operators of `recording`, in their order.
    ///
    /// # Errors
    /// Those of the operators.
    fn replay(&self, recording: &Self::Recording) -> Result<(), Error>;

    /// Whether [`Storage::beside`] gives a handle.
    fn has_beside(&self) -> bool {
        false
    }

    /// The same device with an order of its own: operators of the two run in parallel, with a workspace each, and those
    /// of the result first where both compete for resources on the device. `None` where a device does one thing after
    /// the other. What one of them writes is there for the other once the first is [waited for](Storage::synchronize).
    ///
    /// # Errors
    /// Those of the device.
    fn beside(&self) -> Result<Option<Self>, Error> {
        Ok(None)
    }

    /// Has what is called of this handle from now on wait for what was called of `other` until now, a handle of the
    /// same device.
    ///
    /// # Errors
    /// Those of the device.
    fn follow(&self, other: &Self) -> Result<(), Error> {
        // Where there is one order, they do.
        let _ = other;
        Ok(())
    }

    /// Waits until all operators are done.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    fn synchronize(&self) -> Result<(), Error>;

    /// Milliseconds that the operators called by `work` take on the device, by its own clock where it has one.
    ///
    /// # Errors
    /// Those of `work`, and the failure of an earlier operator.
    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error>;

    /// What links this device with those of other processes.
    ///
    /// # Errors
    /// [`DriverError::Link`](crate::driver::DriverError::Link) with why nothing does, and what to do about it.
    fn interconnect(&self) -> Result<Interconnect, Error>;

    /// An id that one rank makes and all are [linked](Storage::link) by. Ids of a kind of device have one length.
    ///
    /// # Errors
    /// Those of [`Storage::interconnect`].
    fn link_id(&self) -> Result<Vec<u8>, Error>;

    /// Links a rank with the others, which all call it. It and whatever waits for the device from then on end when
    /// `watch` says so.
    ///
    /// # Errors
    /// Those of the device.
    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<Self::Link, Error>;

    /// Gives each of `sends` to its rank and fills each of `receives` with what its rank gives, as many elements in the
    /// same order between each two ranks, all at once: work like an operator's, in the order of the calls, which is
    /// recorded as they are.
    ///
    /// # Errors
    /// Those of the device; that a rank failed may show at a later call.
    fn transfer<T: Pod>(
        &self,
        link: &Self::Link,
        sends: &[Transfer<'_, Self, T>],
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error>;

    /// The same as far as it is begun: where it is recorded it may go on in parallel with the operators behind it,
    /// until [`Storage::transfer_end`]. Before that no other transfer is begun, what is sent stays as it is and what is
    /// received is not read.
    ///
    /// # Errors
    /// Those of [`Storage::transfer`].
    fn transfer_begin<T: Pod>(
        &self,
        link: &Self::Link,
        sends: &[Transfer<'_, Self, T>],
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error>;

    /// Has the operators behind it wait for the transfer that was begun, of the same `receives`.
    ///
    /// # Errors
    /// Those of [`Storage::transfer`].
    fn transfer_end<T: Pod>(
        &self,
        link: &Self::Link,
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error>;

    /// Makes each word the sum of those of all ranks, which wraps around: work like [`Storage::transfer`].
    ///
    /// # Errors
    /// Those of [`Storage::transfer`].
    fn sum_words(&self, link: &Self::Link, words: &mut Array<Self, u32>) -> Result<(), Error>;

    /// Ends what `link` still does, and whatever waits for it, for `reason`.
    fn cut(&self, link: &Self::Link, reason: &str);

    /// Memory in use by kind, and its peak.
    fn memory(&self) -> MemoryReport;

    /// Makes the present use the peak, less the workspace that operators have had and the next ones may want less of.
    fn reset_peak(&self);
}
