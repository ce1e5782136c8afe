//! A stream of a GPU: its work is done in the order of the calls, from whichever thread.
//!
//! A GPU may have several, which have no order among one another but where one waits for an event of another's. Two
//! things keep memory safe all the same. A block that is freed goes to another stream only behind all work that was
//! queued, on any stream, when it was freed ([`Context::release`]). And an upload that another stream might read is
//! waited for, so that the indices of a graph are there for all of them.

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::stream::{Stream, StreamFlags};
use cust::sys::{self, CUevent, CUstream};

use super::context::Context;
use super::error::{check, check_cust};
use super::staging::{self, Staging};
use crate::DriverError;

/// The first priority of all: the driver takes the first that a GPU has.
pub(super) const FIRST: i32 = i32::MIN;

/// A stream in use.
pub(super) struct Queue {
    raw: CUstream,
    /// None where the stream is another program's.
    owned: Option<Stream>,
    /// Whether the GPU's memory is ordered for it; not where all that it works on is another program's.
    ordered: bool,
    /// Where it has one of its own.
    priority: Option<i32>,
    /// Made by the first small upload.
    staging: Mutex<Option<Staging>>,
    context: Arc<Context>,
}

// SAFETY: a stream's handle belongs to a context and not to a thread, and the driver's calls on one stream may be made
// from several threads at a time.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A new stream of `context`, behind all work that its others have.
    pub(super) fn new(context: &Arc<Context>, priority: Option<i32>) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        let stream = Stream::new(StreamFlags::DEFAULT, priority);
        let stream = check_cust("cuStreamCreateWithPriority", stream)?;
        Self::with(context, stream.as_inner(), (Some(stream), priority))
    }

    /// A stream that another program made in `context`.
    ///
    /// # Safety
    /// It is a stream of the context, and outlives the result.
    pub(super) unsafe fn foreign(
        context: &Arc<Context>,
        raw: CUstream,
    ) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        Self::with(context, raw, (None, None))
    }

    fn with(
        context: &Arc<Context>,
        raw: CUstream,
        (owned, priority): (Option<Stream>, Option<i32>),
    ) -> Result<Self, DriverError> {
        let queue = Self {
            raw,
            owned,
            ordered: true,
            priority,
            staging: Mutex::default(),
            context: Arc::clone(context),
        };
        context.streams().add(raw)?;
        Ok(queue)
    }

    /// A stream that another program made in `context`, for work on memory of theirs.
    ///
    /// # Safety
    /// It is a stream of the context, and outlives the result.
    pub(super) unsafe fn lent(context: &Arc<Context>, raw: CUstream) -> Self {
        Self {
            raw,
            owned: None,
            ordered: false,
            priority: None,
            staging: Mutex::default(),
            context: Arc::clone(context),
        }
    }

    /// An error where only memory of another program's may be used.
    pub(super) fn expect_own_memory(&self) -> Result<(), DriverError> {
        if self.ordered {
            return Ok(());
        }
        Err(DriverError::Device {
            call: "an allocation",
            reason: "this handle is for borrowed memory alone (Cuda::on_lent_stream)".into(),
        })
    }

    /// What all streams of the GPU share.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// That of the stream, where it is not the GPU's own choice.
    pub(super) fn priority(&self) -> Option<i32> {
        self.priority
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        let _entered = self.context.enter()?;
        self.context.wait(|| synchronize(self.raw))
    }

    /// Copies `source` to the GPU. May return before the copy is done, but not before `source` may be reused.
    ///
    /// # Safety
    /// The `source.len()` bytes from `address` on lie in a buffer of this context.
    pub(super) unsafe fn upload(&self, address: u64, source: &[u8]) -> Result<(), DriverError> {
        if source.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let copy = |from: *const u8| {
            // A copy from memory that is not locked may wait for the GPU by itself.
            self.context.wait(|| {
                // SAFETY: the target by what this function asks of its caller; `from` is `source` or a copy of it, and
                // stays unchanged until the copy is done: the one because of the wait below, the other as `stage` sees
                // to.
                check("cuMemcpyHtoDAsync", unsafe {
                    sys::cuMemcpyHtoDAsync_v2(address, from.cast(), source.len(), self.raw)
                })
            })
        };
        if source.len() > staging::LONGEST || !self.ordered || self.context.streams().several() {
            let copied = copy(source.as_ptr());
            // Also after a failure: nothing may read `source` when this returns.
            return copied.and(self.synchronize());
        }
        // The lock is held until the copy is queued, so that `stage` of another thread waits for this copy, too.
        let mut staging = self.staging();
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new()?),
        };
        let staged = staging.stage(source, || self.synchronize())?;
        copy(staged)
    }

    /// Copies from the GPU, once all work before it is done.
    ///
    /// # Safety
    /// The `target.len()` bytes from `address` on lie in a buffer of this context.
    pub(super) unsafe fn download(
        &self,
        address: u64,
        target: &mut [u8],
    ) -> Result<(), DriverError> {
        if target.is_empty() {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // A copy to memory that is not locked waits for the GPU by itself, and so is a wait that a link may have to
        // end.
        let queued = self.context.wait(|| {
            // SAFETY: the source by what this function asks of its caller; the target is borrowed until the wait below.
            check("cuMemcpyDtoHAsync", unsafe {
                sys::cuMemcpyDtoHAsync_v2(
                    target.as_mut_ptr().cast(),
                    address,
                    target.len(),
                    self.raw,
                )
            })
        });
        // Also after a failure: nothing may write to `target` when this returns.
        let done = self.synchronize();
        queued.and(done)
    }

    /// Copies `len` bytes on the GPU.
    ///
    /// # Safety
    /// The `len` bytes from `source` on and from `target` on lie in buffers of this context.
    pub(super) unsafe fn copy(
        &self,
        source: u64,
        target: u64,
        len: usize,
    ) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // SAFETY: what this function asks of its caller.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(target, source, len, self.raw)
        })
    }

    /// Sets `len` bytes, in the stream of a recording where one is given.
    ///
    /// # Safety
    /// The `len` bytes from `address` on lie in a buffer of this context, until the recording is gone. The stream is
    /// this context's.
    pub(super) unsafe fn fill(
        &self,
        (address, len): (u64, usize),
        byte: u8,
        recorded: Option<CUstream>,
    ) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        // SAFETY: what this function asks of its caller.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(address, byte, len, recorded.unwrap_or(self.raw))
        })
    }

    fn staging(&self) -> MutexGuard<'_, Option<Staging>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.ordered {
            return;
        }
        // A failure (a kernel that was at fault, mostly) has been reported to those that waited for it.
        let emptied = self.context.enter().and_then(|_entered| {
            let waited = self.context.streams().remove(self.raw);
            if let Some(staging) = &mut *self.staging() {
                // SAFETY: the context is current, the stream is done or dead, and `self` is not used after this.
                unsafe { staging.free() };
            }
            waited
        });
        if let Err(error) = emptied {
            tracing::debug!(%error, "closing a stream");
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("owned", &self.owned.is_some())
            .finish_non_exhaustive()
    }
}

fn synchronize(stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the caller has a stream that lives.
    check("cuStreamSynchronize", unsafe {
        sys::cuStreamSynchronize(stream)
    })
}

/// A point in a stream.
#[derive(Debug)]
pub(super) struct Mark {
    event: CUevent,
    stream: CUstream,
}

// SAFETY: an event's handle belongs to a context and not to a thread; that of the stream is only compared.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl Mark {
    /// The point that `stream`, which lives, has come to. The context is current.
    pub(super) fn record(stream: CUstream) -> Result<Self, DriverError> {
        let mut event = ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, 0)
        })?;
        let mark = Self { event, stream };
        // SAFETY: event and stream are live and of one context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(mark.event, stream)
        })?;
        Ok(mark)
    }

    /// Has `stream` wait for it, unless it is of that stream.
    pub(super) fn hold(&self, stream: CUstream) -> Result<(), DriverError> {
        if self.stream == stream {
            return Ok(());
        }
        // SAFETY: event and stream are live.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(stream, self.event, 0)
        })
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUevent {
        self.event
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the handle is not used any more; a stream that waits for it goes on to. A failure leaves an event
        // behind.
        unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// The streams of a context that are in use.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<CUstream>);

// SAFETY: a stream's handle belongs to a context and not to a thread.
unsafe impl Send for Streams {}

impl Streams {
    /// Whether there is more than one.
    pub(super) fn several(&self) -> bool {
        self.0.len() > 1
    }

    /// Adds `stream`, behind all work that the others have: what was freed before is ordered for it, too.
    fn add(&mut self, stream: CUstream) -> Result<(), DriverError> {
        for &other in &self.0 {
            Mark::record(other)?.hold(stream)?;
        }
        self.0.push(stream);
        Ok(())
    }

    /// Waits for `stream` and removes it: under the lock, so that no block is freed that its work still uses.
    fn remove(&mut self, stream: CUstream) -> Result<(), DriverError> {
        match self.0.iter().position(|&other| other == stream) {
            Some(at) => {
                let waited = synchronize(stream);
                self.0.swap_remove(at);
                waited
            }
            None => Ok(()),
        }
    }

    /// Where each has come to, if there are several: with one, order is all that is needed.
    pub(super) fn marks(&self) -> Result<Vec<Mark>, DriverError> {
        if !self.several() {
            return Ok(Vec::new());
        }
        self.0.iter().map(|&stream| Mark::record(stream)).collect()
    }

    /// Waits for all.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        self.0
            .iter()
            .map(|&stream| synchronize(stream))
            .fold(Ok(()), Result::and)
    }
}
