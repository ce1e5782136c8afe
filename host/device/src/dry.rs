//! A device that only counts: memory that holds nothing, launches that do nothing.
//!
//! The operators plan for it as for the device that it stands for, so what they allocate is what they would allocate
//! there.

use crate::{
    DeviceBuffer, DeviceInfo, Driver, DriverError, LaunchConfig, LinkPlace, MemoryUse, Part, Watch,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device without memory.
#[derive(Debug)]
pub struct Dry {
    info: DeviceInfo,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Dry {
    /// One that stands for the device of `info`.
    pub fn new(info: DeviceInfo) -> Self {
        Self {
            info,
            counters: Arc::default(),
        }
    }
}

/// A number of bytes without contents.
#[derive(Debug)]
pub struct DryBuffer {
    len: usize,
    counters: Arc<Counters>,
}

impl DeviceBuffer for DryBuffer {
    fn address(&self) -> u64 {
        256
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for DryBuffer {
    fn drop(&mut self) {
        self.counters.current.fetch_sub(self.len as u64, Relaxed);
    }
}

impl Driver for Dry {
    type Buffer = DryBuffer;
    type Module = ();
    type Function = ();
    type Event = ();
    type Graph = ();
    type Link = Infallible;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DryBuffer, DriverError> {
        let before = self.counters.current.load(Relaxed);
        // Far past any memory there is, counting ends before it wraps around.
        let Some(after) = before
            .checked_add(bytes as u64)
            .filter(|after| *after <= i64::MAX as u64)
        else {
            let total = i64::MAX as u64;
            return Err(DriverError::OutOfMemory {
                asked: bytes as u64,
                free: total - before,
                total,
            });
        };
        self.counters.current.store(after, Relaxed);
        self.counters.peak.fetch_max(after, Relaxed);
        Ok(DryBuffer {
            len: bytes,
            counters: Arc::clone(&self.counters),
        })
    }

    fn upload(&self, buffer: &DryBuffer, offset: usize, source: &[u8]) -> Result<(), DriverError> {
        DriverError::check_range(offset, source.len(), buffer.len)
    }

    fn download(
        &self,
        buffer: &DryBuffer,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), DriverError> {
        DriverError::check_range(offset, target.len(), buffer.len)?;
        target.fill(0);
        Ok(())
    }

    fn fill(&self, _buffer: &DryBuffer, _byte: u8) -> Result<(), DriverError> {
        Ok(())
    }

    fn load(&self, _ptx: &str) -> Result<(), DriverError> {
        Ok(())
    }

    fn function(&self, _module: &(), _name: &str) -> Result<(), DriverError> {
        Ok(())
    }

    unsafe fn launch(
        &self,
        _function: &(),
        _config: LaunchConfig,
        _params: &[u8],
    ) -> Result<(), DriverError> {
        Ok(())
    }

    fn capture<E: From<DriverError>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        work()
    }

    unsafe fn replay(&self, _graph: &()) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn record(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn link_id(&self) -> Result<Vec<u8>, DriverError> {
        self.interconnect().map(|_| Vec::new())
    }

    fn link(&self, _place: LinkPlace<'_>, _watch: Watch) -> Result<Infallible, DriverError> {
        Err(DriverError::Link("a count of memory is no rank".into()))
    }

    fn transfer(
        &self,
        link: &Infallible,
        _sends: &[Part<'_, DryBuffer>],
        _receives: &[Part<'_, DryBuffer>],
    ) -> Result<(), DriverError> {
        match *link {}
    }

    fn transfer_begin(
        &self,
        link: &Infallible,
        _sends: &[Part<'_, DryBuffer>],
        _receives: &[Part<'_, DryBuffer>],
    ) -> Result<(), DriverError> {
        match *link {}
    }

    fn transfer_end(
        &self,
        link: &Infallible,
        _receives: &[Part<'_, DryBuffer>],
    ) -> Result<(), DriverError> {
        match *link {}
    }

    fn sum_words(
        &self,
        link: &Infallible,
        _buffer: &DryBuffer,
        _count: usize,
    ) -> Result<(), DriverError> {
        match *link {}
    }

    fn cut(&self, link: &Infallible, _reason: &str) {
        match *link {}
    }

    fn elapsed_ms(&self, _start: &(), _end: &()) -> Result<f64, DriverError> {
        Ok(0.0)
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            current: self.counters.current.load(Relaxed),
            peak: self.counters.peak.load(Relaxed),
        }
    }

    fn reset_peak(&self) {
        let current = self.counters.current.load(Relaxed);
        self.counters.peak.store(current, Relaxed);
    }
}
