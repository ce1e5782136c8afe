//! One card's primary context with its stream and memory: what everything else here shares.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cust::context::{Context as PrimaryContext, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::stream::{Stream, StreamFlags};
use cust::sys::{self, CUdevice_attribute, CUresult};

use super::error::{check, check_cust, words};
use super::graph::Capture;
use super::pool::{Block, Pool, size_class};
use super::staging::{self, Staging};
use crate::capture::Captures;
use crate::{DeviceInfo, DriverError, MemoryUse};

/// The oldest compute capability that the kernels run on: sm_80 brought the tensor-core products and the asynchronous
/// copies that they use.
pub const MINIMUM_CAPABILITY: (u32, u32) = (8, 0);

/// Environment variable that, where it is set and not `0`, makes every buffer an allocation of its own, of exactly its
/// length, which goes back to the card when it is dropped. Slow; it lets `compute-sanitizer` see a read past a buffer's
/// end, or of a new buffer before anything wrote it, where the pool's blocks hide them.
pub const NO_POOL_VARIABLE: &str = "HALFGNN_CUDA_NO_POOL";

/// A card in use.
#[derive(Debug)]
pub(super) struct Context {
    info: DeviceInfo,
    /// Whether freed memory is kept: see [`NO_POOL_VARIABLE`].
    pooled: bool,
    pool: Mutex<Pool>,
    staging: Mutex<Staging>,
    captures: Captures<Capture>,
    graph_launches: Mutex<()>,
    // Fields are dropped in this order: the stream before the context that it belongs to.
    stream: Stream,
    primary: PrimaryContext,
}

impl Context {
    /// Finds the driver and card `ordinal` of the visible ones, retains its primary context, and makes a stream.
    pub(super) fn open(ordinal: u32) -> Result<Self, DriverError> {
        let library = load()?;
        let device = find(library, ordinal)?;
        let info = describe(device)?;
        if info.compute_capability < MINIMUM_CAPABILITY {
            let ((major, minor), (needs_major, needs_minor)) =
                (info.compute_capability, MINIMUM_CAPABILITY);
            return Err(DriverError::Unavailable(format!(
                "card {ordinal}, {}, has compute capability {major}.{minor} and the kernels need \
                 {needs_major}.{needs_minor}; choose another card with CUDA_VISIBLE_DEVICES, or the CPU",
                info.name
            )));
        }
        let primary = check_cust("cuDevicePrimaryCtxRetain", PrimaryContext::new(device))?;
        check_cust("cuCtxSetCurrent", CurrentContext::set_current(&primary))?;
        let stream = check_cust("cuStreamCreate", Stream::new(StreamFlags::DEFAULT, None))?;
        let staging = Mutex::new(Staging::new()?);
        tracing::info!(
            card = info.name,
            capability = ?info.compute_capability,
            driver = ?info.driver_version,
            library,
            "opened a CUDA card"
        );
        let pooled =
            std::env::var_os(NO_POOL_VARIABLE).is_none_or(|value| value.is_empty() || value == "0");
        Ok(Self {
            info,
            pooled,
            pool: Mutex::default(),
            staging,
            captures: Captures::default(),
            graph_launches: Mutex::default(),
            stream,
            primary,
        })
    }

    /// Makes this context the calling thread's: every call of the driver's below needs it.
    pub(super) fn enter(&self) -> Result<(), DriverError> {
        check_cust(
            "cuCtxSetCurrent",
            CurrentContext::set_current(&self.primary),
        )
    }

    /// What the card says of itself.
    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The stream that all work goes to.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The threads whose launches are recorded.
    pub(super) fn captures(&self) -> &Captures<Capture> {
        &self.captures
    }

    /// The right to launch a graph, of which the driver wants one thread at a time.
    pub(super) fn graph_launches(&self) -> MutexGuard<'_, ()> {
        self.graph_launches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as `self`.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream.as_inner())
        })
    }

    /// A block for `len` bytes: one from the pool, or new memory. Before it gives up, it returns the pool's to the card.
    pub(super) fn alloc(&self, len: usize) -> Result<Block, DriverError> {
        let mut pool = self.pool();
        let class = if self.pooled {
            size_class(len)
        } else {
            Some(len.max(1))
        };
        let Some(class) = class.filter(|&class| class as u64 <= self.info.memory_bytes) else {
            return Err(out_of_memory(len));
        };
        let block = match pool.take(class) {
            Some(block) => block,
            None => match new_block(class)? {
                Some(block) => block,
                None => {
                    let returned = free_all(&mut pool)?;
                    tracing::debug!(
                        returned,
                        asked = len,
                        "device memory is full: emptied the pool"
                    );
                    new_block(class)?.ok_or_else(|| out_of_memory(len))?
                }
            },
        };
        pool.count_in(len);
        Ok(block)
    }

    /// Takes back the block of a buffer of `len` bytes.
    pub(super) fn release(&self, block: Block, len: usize) {
        let mut pool = self.pool();
        pool.give(block);
        pool.count_out(len);
        if !self.pooled {
            // A failure is of an earlier kernel, and told to whoever waits for that.
            if let Err(error) = self.enter().and_then(|()| free_all(&mut pool)) {
                tracing::debug!(%error, "freeing device memory");
            }
        }
    }

    /// Returns the memory of freed buffers to the card; how many bytes.
    pub(super) fn trim(&self) -> Result<u64, DriverError> {
        free_all(&mut self.pool())
    }

    /// Bytes in buffers.
    pub(super) fn memory(&self) -> MemoryUse {
        self.pool().used()
    }

    /// Makes the present use the peak.
    pub(super) fn reset_peak(&self) {
        self.pool().reset_peak();
    }

    /// Copies `source` to the card. May return before the copy is done, but not before `source` may be reused.
    ///
    /// # Safety
    /// The `source.len()` bytes from `address` on lie in a buffer of this context.
    pub(super) unsafe fn upload(&self, address: u64, source: &[u8]) -> Result<(), DriverError> {
        if source.is_empty() {
            return Ok(());
        }
        let copy = |from: *const u8| {
            // SAFETY: the target by what this function asks of its caller; `from` is `source` or a copy of it, and stays
            // unchanged until the copy is done: the one because of the wait below, the other as `stage` sees to.
            check("cuMemcpyHtoDAsync", unsafe {
                sys::cuMemcpyHtoDAsync_v2(
                    address,
                    from.cast(),
                    source.len(),
                    self.stream.as_inner(),
                )
            })
        };
        if source.len() > staging::LONGEST {
            copy(source.as_ptr())?;
            return self.synchronize();
        }
        // The lock is held until the copy is queued, so that `stage` of another thread waits for this copy, too.
        let mut staging = self.staging();
        let staged = staging.stage(source, || self.synchronize())?;
        copy(staged)
    }

    /// Copies from the card, once all work before it is done.
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
        // SAFETY: the source by what this function asks of its caller; the target is borrowed until the wait below.
        let queued = check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                target.as_mut_ptr().cast(),
                address,
                target.len(),
                self.stream.as_inner(),
            )
        });
        // Also after a failure: nothing may write to `target` when this returns.
        let done = self.synchronize();
        queued.and(done)
    }

    /// Copies `len` bytes on the card.
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
        // SAFETY: what this function asks of its caller.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(target, source, len, self.stream.as_inner())
        })
    }

    /// Sets `len` bytes.
    ///
    /// # Safety
    /// The `len` bytes from `address` on lie in a buffer of this context.
    pub(super) unsafe fn fill(
        &self,
        address: u64,
        len: usize,
        byte: u8,
    ) -> Result<(), DriverError> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: what this function asks of its caller.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(address, byte, len, self.stream.as_inner())
        })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Each change of the pool is whole before anything can panic.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Buffers, modules and events hold the context, so nothing is in use but what is freed here. A failure (a kernel
        // that was at fault, mostly) has been told to whoever waited for it; the primary context goes in any case.
        let emptied = self.enter().and_then(|()| {
            let waited = self.synchronize();
            let freed = free_all(&mut self.pool());
            // SAFETY: the context is current, the stream is done or dead, and `self` is not used after this.
            unsafe { self.staging().free() };
            waited.and(freed)
        });
        if let Err(error) = emptied {
            tracing::debug!(%error, "closing a CUDA card");
        }
    }
}

/// The driver's library, and what it says of every card that is visible, without making any of them ready for work.
pub(super) fn survey() -> Result<(&'static str, Vec<DeviceInfo>), DriverError> {
    let library = load()?;
    let cards = (0..count(library)?)
        .map(|ordinal| {
            let device = check_cust("cuDeviceGet", Device::get_device(ordinal))?;
            describe(device)
        })
        .collect::<Result<_, _>>()?;
    Ok((library, cards))
}

/// Opens the driver's library; its name.
fn load() -> Result<&'static str, DriverError> {
    halfgnn_cuda_loader::load()
        .map(|driver| driver.library())
        .map_err(|error| DriverError::Unavailable(error.to_string()))
}

/// Starts the driver and counts the visible cards, which may be none.
fn count(library: &str) -> Result<u32, DriverError> {
    // SAFETY: may be called at any time; zero is the only legal argument.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => check_cust("cuDeviceGetCount", Device::num_devices()),
        CUresult::CUDA_ERROR_NO_DEVICE => Ok(0),
        failure => Err(DriverError::Unavailable(format!(
            "{library} does not start: {}",
            words(failure)
        ))),
    }
}

/// Card `ordinal` of the visible ones, or why there is none.
fn find(library: &str, ordinal: u32) -> Result<Device, DriverError> {
    match count(library)? {
        0 => Err(no_card(library)),
        count if ordinal >= count => Err(DriverError::Unavailable(format!(
            "there is no card {ordinal}: {count} visible{}, counted from 0",
            visible_devices()
        ))),
        _ => check_cust("cuDeviceGet", Device::get_device(ordinal)),
    }
}

/// A driver without a card.
fn no_card(library: &str) -> DriverError {
    DriverError::Unavailable(format!(
        "{library} finds no card{}; see what `nvidia-smi` lists",
        visible_devices()
    ))
}

/// What the user said of which cards to use, for an error's text.
fn visible_devices() -> String {
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        Some(value) => format!(" (CUDA_VISIBLE_DEVICES is \"{}\")", value.to_string_lossy()),
        None => String::new(),
    }
}

/// Asks the driver about the card.
fn describe(device: Device) -> Result<DeviceInfo, DriverError> {
    let attribute = |attribute: DeviceAttribute| -> Result<u32, DriverError> {
        let value = check_cust("cuDeviceGetAttribute", device.get_attribute(attribute))?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let version = check_cust("cuDriverGetVersion", cust::CudaApiVersion::get())?;
    let mut max_shared_bytes = 0;
    // SAFETY: writes one integer; the device is the driver's own.
    check("cuDeviceGetAttribute", unsafe {
        sys::cuDeviceGetAttribute(
            &mut max_shared_bytes,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            device.as_raw(),
        )
    })?;
    let memory_clock = device.get_attribute(DeviceAttribute::MemoryClockRate);
    let bus_bits = device.get_attribute(DeviceAttribute::GlobalMemoryBusWidth);
    Ok(DeviceInfo {
        memory_bytes_per_second: memory_rate(memory_clock.unwrap_or(0), bus_bits.unwrap_or(0)),
        name: check_cust("cuDeviceGetName", device.name())?,
        compute_capability: (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        ),
        multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
        l2_bytes: attribute(DeviceAttribute::L2CacheSize)?.into(),
        memory_bytes: check_cust("cuDeviceTotalMem", device.total_memory())? as u64,
        max_shared_bytes: u32::try_from(max_shared_bytes).unwrap_or(0),
        driver_version: Some((
            version.major().unsigned_abs(),
            version.minor().unsigned_abs(),
        )),
    })
}

/// Bytes a second of a memory with this clock in kHz, which transfers twice a cycle over a bus of so many bits. `None`
/// where the driver gave no such numbers.
fn memory_rate(kilohertz: i32, bits: i32) -> Option<u64> {
    let (hertz, bits) = (
        u64::try_from(kilohertz).ok()?.checked_mul(1000)?,
        u64::try_from(bits).ok()?,
    );
    let rate = hertz.checked_mul(2 * (bits / 8))?;
    (rate > 0).then_some(rate)
}

/// Bytes free and in all, of the card whose context is current.
pub(super) fn memory_info() -> Result<(u64, u64), DriverError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers.
    check("cuMemGetInfo", unsafe {
        sys::cuMemGetInfo_v2(&mut free, &mut total)
    })?;
    Ok((free as u64, total as u64))
}

/// New memory in the context that is current, `None` where there is not enough.
fn new_block(class: usize) -> Result<Option<Block>, DriverError> {
    let mut address = 0;
    // SAFETY: writes one address.
    match unsafe { sys::cuMemAlloc_v2(&mut address, class) } {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
        result => check("cuMemAlloc", result).map(|()| {
            Some(Block {
                address,
                bytes: class,
            })
        }),
    }
}

/// Returns every block of `pool` to the card whose context is current; how many bytes.
fn free_all(pool: &mut Pool) -> Result<u64, DriverError> {
    let (mut returned, mut outcome) = (0, Ok(()));
    for block in pool.drain() {
        // SAFETY: a block is what `cuMemAlloc` gave and is in the pool only while no buffer has it; the call waits for
        // work that was queued before.
        let freed = check("cuMemFree", unsafe { sys::cuMemFree_v2(block.address) });
        returned += block.bytes as u64;
        outcome = outcome.and(freed);
    }
    outcome.map(|()| returned)
}

/// [`DriverError::OutOfMemory`] for a request of `asked` bytes.
fn out_of_memory(asked: usize) -> DriverError {
    match memory_info() {
        Ok((free, total)) => DriverError::OutOfMemory {
            asked: asked as u64,
            free,
            total,
        },
        Err(error) => error,
    }
}
