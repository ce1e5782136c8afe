//! GPUs, through `cust`, opened at run time.
//!
//! ```text
//! Cuda ── Queue: a stream, pinned memory for small uploads      CudaModule, CudaFunction, CudaEvent
//!           └─ Context ─┬─ cust: primary context
//!                       └─ Pool: freed buffers, kept by size    CudaBuffer  ──▶ back to the pool on drop
//! ```
//!
//! All work of a handle and its clones goes to one stream, in the order of the calls, from whichever thread. That order
//! is also what makes it safe to hand a buffer's memory on while a kernel that uses it is still queued: whatever uses
//! it next comes after. Where a GPU has several streams, the next owner's waits for what the others had to do.
//!
//! `cust` provides the context, the stream and the events. Memory, modules and launches go to `cust::sys`, since `cust`
//! has no untyped buffers, no log of the PTX compiler, no shared memory above 48 KiB, and a function of its own cannot
//! outlive a borrow of its module.

mod buffer;
mod context;
mod error;
mod graph;
mod host;
mod launch;
mod module;
pub mod nccl;
mod pieces;
mod pool;
mod staging;
mod stream;

use std::sync::Arc;

use super::{
    DeviceBuffer as _, DeviceInfo, Driver, DriverError, Interconnect, LaunchConfig, LinkPlace,
    MemoryUse, Part, Watch,
};
use context::Context;
use graph::Capture;
use host::HostMemory;
use nccl::{Nccl, NcclLink};
use stream::Queue;

pub use buffer::CudaBuffer;
pub use context::{MINIMUM_CAPABILITY, NO_POOL_VARIABLE};
pub use graph::CudaGraph;
pub use launch::CudaEvent;
pub use module::{CudaFunction, CudaModule};

/// A GPU.
#[derive(Clone, Debug)]
pub struct Cuda {
    queue: Arc<Queue>,
}

/// The rank of a part, and its address and length in bytes.
type Place = (usize, u64, usize);

impl Cuda {
    /// Opens GPU `ordinal`, counting those that `CUDA_VISIBLE_DEVICES` leaves visible, with its primary context.
    ///
    /// # Errors
    /// [`DriverError::Unavailable`] where there is no driver, no GPU of that number, or one older than
    /// [`MINIMUM_CAPABILITY`]; [`DriverError::Device`] where the GPU does not give a context.
    pub fn open(ordinal: u32) -> Result<Self, DriverError> {
        let context = Arc::new(Context::open(ordinal)?);
        Ok(Self {
            queue: Arc::new(Queue::new(&context, None)?),
        })
    }

    /// A handle whose work goes to a stream that another program made, such as a framework's. A stream that is being
    /// captured takes launches, fills and copies on the GPU into its graph; what needs an answer, an allocation or an
    /// upload is then an error, and nothing may be freed, so whatever a step needs is there before.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of the GPU's primary context, and lives longer than every clone of the result.
    ///
    /// # Errors
    /// Those of the device.
    pub unsafe fn on_foreign_stream(
        &self,
        stream: *mut std::ffi::c_void,
    ) -> Result<Self, DriverError> {
        // SAFETY: what this function asks of its caller.
        let queue = unsafe { Queue::foreign(self.queue.context(), stream.cast()) }?;
        Ok(Self {
            queue: Arc::new(queue),
        })
    }

    /// [`Cuda::on_foreign_stream`] for work on [borrowed](Driver::borrow) memory alone, whose owner sees to the order
    /// of streams: nothing is allocated, recorded or waited for to open it, so that it may be opened while the stream
    /// is being captured. An allocation through it is an error.
    ///
    /// # Safety
    /// As of [`Cuda::on_foreign_stream`].
    pub unsafe fn on_lent_stream(&self, stream: *mut std::ffi::c_void) -> Self {
        // SAFETY: what this function asks of its caller.
        let queue = unsafe { Queue::lent(self.queue.context(), stream.cast()) };
        Self {
            queue: Arc::new(queue),
        }
    }

    fn context(&self) -> &Arc<Context> {
        self.queue.context()
    }

    /// The driver's library, and the GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, too old ones among them. No GPU
    /// is made ready for work.
    ///
    /// # Errors
    /// [`DriverError::Unavailable`] where there is no driver or it does not start; [`DriverError::Device`] where a GPU
    /// does not answer.
    pub fn survey() -> Result<(&'static str, Vec<DeviceInfo>), DriverError> {
        context::survey()
    }

    /// Bytes of the GPU's memory that are free, and all of them. What the pool keeps for reuse is not free.
    ///
    /// # Errors
    /// Those of the device.
    pub fn memory_info(&self) -> Result<(u64, u64), DriverError> {
        let _entered = self.context().enter()?;
        context::memory_info()
    }

    /// Gives the memory of freed buffers back to the GPU, and returns how many bytes that was.
    ///
    /// # Errors
    /// Those of the device, the failure of an earlier launch among them.
    pub fn trim(&self) -> Result<u64, DriverError> {
        let _entered = self.context().enter()?;
        self.context().trim()
    }

    /// The stream for work of `link`: the one that this thread records in, which holds the link then, or the handle's
    /// own.
    fn stream_for(&self, link: &NcclLink) -> Result<*mut std::ffi::c_void, DriverError> {
        link.check_owner(self.context())?;
        let recorded = self.context().captures().with(|it| it.stream_with(link));
        Ok(recorded.unwrap_or_else(|| self.queue.raw()).cast())
    }

    /// Ranks, addresses and lengths of `parts`.
    fn places(&self, parts: &[Part<'_, CudaBuffer>]) -> Result<Vec<Place>, DriverError> {
        let place = |part: &Part<'_, CudaBuffer>| {
            DriverError::check_range(part.offset, part.len, part.buffer.len())?;
            part.buffer.check_owner(self.context())?;
            let address = part.buffer.address() + part.offset as u64;
            Ok((part.rank, address, part.len))
        };
        parts.iter().map(place).collect()
    }

    /// [`Self::places`] of what is sent and what is received; nothing where both are no bytes.
    fn ends(
        &self,
        sends: &[Part<'_, CudaBuffer>],
        receives: &[Part<'_, CudaBuffer>],
    ) -> Result<Option<[Vec<Place>; 2]>, DriverError> {
        let (sends, receives) = (self.places(sends)?, self.places(receives)?);
        let is_empty = (sends.iter().chain(&receives)).all(|(_, _, bytes)| *bytes == 0);
        Ok((!is_empty).then_some([sends, receives]))
    }

    /// The address of byte `offset` of `buffer`, for work on `count` bytes.
    fn place(&self, buffer: &CudaBuffer, offset: usize, count: usize) -> Result<u64, DriverError> {
        DriverError::check_range(offset, count, buffer.len())?;
        self.context().captures().refuse("a copy")?;
        buffer.check_owner(self.context())?;
        Ok(buffer.address() + offset as u64)
    }

    /// The host's memory, where `buffer` is that, once all work before is done.
    fn host_memory<'b>(
        &self,
        buffer: &'b CudaBuffer,
    ) -> Result<Option<&'b HostMemory>, DriverError> {
        let Some(memory) = buffer.host() else {
            return Ok(None);
        };
        self.queue.synchronize()?;
        Ok(Some(memory))
    }

    /// Copies one buffer to another, as much as both have.
    ///
    /// # Errors
    /// Those of the device.
    pub fn copy(&self, from: &CudaBuffer, to: &CudaBuffer) -> Result<(), DriverError> {
        let bytes = from.len().min(to.len());
        let (source, target) = (self.place(from, 0, bytes)?, self.place(to, 0, bytes)?);
        // SAFETY: `place` has checked both ranges.
        unsafe { self.queue.copy(source, target, bytes) }
    }

    /// Makes the GPU's primary context the calling thread's, for libraries that work in whichever is. Every other call
    /// leaves the thread's context as it finds it.
    ///
    /// # Errors
    /// Those of the device.
    pub fn make_current(&self) -> Result<(), DriverError> {
        self.context().make_current()
    }

    /// The stream that this handle's work goes to, as `CUstream`, for libraries that are to queue theirs behind it. It
    /// lives as long as a clone of this driver.
    pub fn raw_stream(&self) -> *mut std::ffi::c_void {
        self.queue.raw().cast()
    }

    /// How many CTAs of `block_threads` threads with `shared_bytes` of dynamic shared memory fit on one multiprocessor
    /// at a time.
    ///
    /// # Errors
    /// [`DriverError::Launch`] where not even one can be.
    pub fn resident_ctas(
        &self,
        function: &CudaFunction,
        block_threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, DriverError> {
        let _entered = self.context().enter()?;
        launch::resident_ctas(self.context(), function, block_threads, shared_bytes)
    }
}

impl Driver for Cuda {
    type Buffer = CudaBuffer;
    type Module = CudaModule;
    type Function = CudaFunction;
    type Event = CudaEvent;
    type Graph = CudaGraph;
    type Link = NcclLink;

    fn info(&self) -> &DeviceInfo {
        self.context().info()
    }

    fn alloc(&self, bytes: usize) -> Result<CudaBuffer, DriverError> {
        self.context().captures().refuse("an allocation")?;
        self.queue.expect_own_memory()?;
        CudaBuffer::new(&self.queue, bytes)
    }

    fn alloc_host(&self, bytes: usize) -> Result<CudaBuffer, DriverError> {
        self.context().captures().refuse("an allocation")?;
        CudaBuffer::of_host(self.context(), bytes)
    }

    unsafe fn borrow(&self, address: u64, bytes: usize) -> Result<CudaBuffer, DriverError> {
        // SAFETY: what this method asks of its caller.
        Ok(unsafe { CudaBuffer::borrowed(self.context(), address, bytes) })
    }

    fn upload(&self, buffer: &CudaBuffer, offset: usize, source: &[u8]) -> Result<(), DriverError> {
        let address = self.place(buffer, offset, source.len())?;
        if let Some(memory) = self.host_memory(buffer)? {
            memory.write(offset, source);
            return Ok(());
        }
        // SAFETY: `place` has checked the range.
        unsafe { self.queue.upload(address, source) }
    }

    fn download(
        &self,
        buffer: &CudaBuffer,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), DriverError> {
        let address = self.place(buffer, offset, target.len())?;
        if let Some(memory) = self.host_memory(buffer)? {
            memory.read(offset, target);
            return Ok(());
        }
        // SAFETY: `place` has checked the range.
        unsafe { self.queue.download(address, target) }
    }

    fn fill(&self, buffer: &CudaBuffer, byte: u8) -> Result<(), DriverError> {
        buffer.check_owner(self.context())?;
        let recorded = self.context().captures().with(|it| it.stream());
        if buffer.host().is_some() && recorded.is_some() {
            let call = "a fill of the host's memory";
            return Err(DriverError::Recording { call });
        }
        if let Some(memory) = self.host_memory(buffer)? {
            memory.fill(byte);
            return Ok(());
        }
        let bytes = (buffer.address(), buffer.len());
        // SAFETY: the range is the whole buffer. Of a recording, memory that is freed is set aside until that is gone.
        unsafe { self.queue.fill(bytes, byte, recorded) }
    }

    fn load(&self, ptx: &str) -> Result<CudaModule, DriverError> {
        CudaModule::load(self.context(), ptx)
    }

    fn runs_machine_code(&self) -> bool {
        true
    }

    fn load_machine_code(&self, code: &[u8]) -> Result<CudaModule, DriverError> {
        CudaModule::load_machine_code(self.context(), code)
    }

    fn function(&self, module: &CudaModule, name: &str) -> Result<CudaFunction, DriverError> {
        module.function(name)
    }

    unsafe fn launch(
        &self,
        function: &CudaFunction,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), DriverError> {
        let _entered = self.context().enter()?;
        // SAFETY: what this method asks of its caller.
        unsafe { launch::launch(&self.queue, function, config, params) }
    }

    fn capture<E: From<DriverError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<CudaGraph, E> {
        CudaGraph::capture(&self.queue, work)
    }

    unsafe fn replay(&self, graph: &CudaGraph) -> Result<(), DriverError> {
        // SAFETY: what this method asks of its caller.
        unsafe { graph.launch(&self.queue) }
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        self.context().captures().refuse("a wait")?;
        self.queue.synchronize()
    }

    fn record(&self) -> Result<CudaEvent, DriverError> {
        self.context().captures().refuse("an event")?;
        CudaEvent::record(&self.queue)
    }

    fn new_stream(&self) -> Result<Self, DriverError> {
        self.context().captures().refuse("a stream")?;
        Ok(Self {
            queue: Arc::new(Queue::new(self.context(), None)?),
        })
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn new_urgent_stream(&self) -> Result<Self, DriverError> {
        self.context().captures().refuse("a stream")?;
        Ok(Self {
            queue: Arc::new(Queue::new(self.context(), Some(stream::FIRST))?),
        })
    }

    fn wait(&self, event: &CudaEvent) -> Result<(), DriverError> {
        self.context().captures().refuse("a wait")?;
        event.hold(&self.queue)
    }

    fn interconnect(&self) -> Result<Interconnect, DriverError> {
        Ok(Interconnect {
            library: Nccl::load()?.name(),
            device: self.context().identity()?,
        })
    }

    fn link_id(&self) -> Result<Vec<u8>, DriverError> {
        Nccl::load()?.unique_id()
    }

    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<NcclLink, DriverError> {
        self.context().captures().refuse("a link")?;
        NcclLink::new(self.context(), place, watch)
    }

    fn transfer(
        &self,
        link: &NcclLink,
        sends: &[Part<'_, CudaBuffer>],
        receives: &[Part<'_, CudaBuffer>],
    ) -> Result<(), DriverError> {
        let Some([sends, receives]) = self.ends(sends, receives)? else {
            return Ok(());
        };
        let stream = self.stream_for(link)?;
        // SAFETY: `places` has checked the ranges; memory that is freed is used again behind what is in the stream, or,
        // of a recording, when that is gone. The stream is this context's, as are link and buffers.
        unsafe { link.transfer(stream, &sends, &receives) }
    }

    fn transfer_begin(
        &self,
        link: &NcclLink,
        sends: &[Part<'_, CudaBuffer>],
        receives: &[Part<'_, CudaBuffer>],
    ) -> Result<(), DriverError> {
        let Some([sends, receives]) = self.ends(sends, receives)? else {
            return Ok(());
        };
        link.check_owner(self.context())?;
        let _entered = self.context().enter()?;
        let aside = self.context().captures().with(|it| it.fork(link));
        let stream = aside.unwrap_or_else(|| Ok(self.queue.raw()))?.cast();
        // SAFETY: as of `transfer`; a stream aside is of a recording, which sets freed memory aside until it is gone.
        unsafe { link.transfer(stream, &sends, &receives) }
    }

    fn transfer_end(
        &self,
        _link: &NcclLink,
        _receives: &[Part<'_, CudaBuffer>],
    ) -> Result<(), DriverError> {
        let _entered = self.context().enter()?;
        let joined = self.context().captures().with(Capture::join);
        joined.unwrap_or(Ok(()))
    }

    fn sum_words(
        &self,
        link: &NcclLink,
        buffer: &CudaBuffer,
        count: usize,
    ) -> Result<(), DriverError> {
        let words = Part {
            rank: 0,
            buffer,
            offset: 0,
            len: count.saturating_mul(size_of::<u32>()),
        };
        let places = self.places(&[words])?;
        let stream = self.stream_for(link)?;
        // SAFETY: as of `transfer`.
        unsafe { link.sum_words(stream, places[0].1, count) }
    }

    fn cut(&self, link: &NcclLink, reason: &str) {
        link.cut(reason);
    }

    fn elapsed_ms(&self, start: &CudaEvent, end: &CudaEvent) -> Result<f64, DriverError> {
        self.context().wait(|| end.elapsed_ms_since(start))
    }

    fn memory(&self) -> MemoryUse {
        self.context().memory()
    }

    fn reset_peak(&self) {
        self.context().reset_peak();
    }
}
