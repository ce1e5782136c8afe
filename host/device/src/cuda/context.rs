//! One GPU's primary context with its memory: what all streams of it share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cust::context::{Context as PrimaryContext, ContextHandle as _};
use cust::device::{Device, DeviceAttribute};
use cust::sys::{self, CUcontext, CUdevice_attribute, CUresult, CUstream};

use super::error::{check, check_cust, words};
use super::graph::Capture;
use super::nccl::Watched;
use super::pool::{Block, Pool, size_class};
use super::stream::{Mark, Streams};
use crate::capture::Captures;
use crate::{DeviceInfo, DriverError, MemoryUse};

/// The oldest compute capability that the kernels run on: sm_80 brought the tensor-core products and the asynchronous
/// copies that they use.
pub const MINIMUM_CAPABILITY: (u32, u32) = (8, 0);

/// Environment variable that, where it is set and not `0`, makes every buffer an allocation of its own, of exactly its
/// length, which goes back to the GPU when it is dropped. Slow; it lets `compute-sanitizer` see a read past a buffer's
/// end, or of a new buffer before anything wrote it, where the pool's blocks hide them.
pub const NO_POOL_VARIABLE: &str = "HALFGNN_CUDA_NO_POOL";

/// A GPU in use.
#[derive(Debug)]
pub(super) struct Context {
    info: DeviceInfo,
    /// Its number of those that are visible.
    ordinal: u32,
    /// Whether freed memory is kept: see [`NO_POOL_VARIABLE`].
    pooled: bool,
    pool: Mutex<Pool>,
    captures: Captures<Capture>,
    graph_launches: Mutex<()>,
    streams: Mutex<Streams>,
    /// What work on the GPU may wait for.
    links: Mutex<Vec<Weak<Watched>>>,
    primary: PrimaryContext,
}

impl Context {
    /// Finds the driver and GPU `ordinal` of the visible ones, and retains its primary context.
    pub(super) fn open(ordinal: u32) -> Result<Self, DriverError> {
        let library = load()?;
        let device = find(library, ordinal)?;
        let info = describe(device)?;
        if info.compute_capability < MINIMUM_CAPABILITY {
            let ((major, minor), (needs_major, needs_minor)) =
                (info.compute_capability, MINIMUM_CAPABILITY);
            return Err(DriverError::Unavailable(format!(
                "GPU {ordinal}, {}, has compute capability {major}.{minor} and the kernels need \
                 {needs_major}.{needs_minor}; choose another GPU with CUDA_VISIBLE_DEVICES, or the CPU",
                info.name
            )));
        }
        // This makes it current, too.
        let _before = Entered::leaving(current()?);
        let primary = check_cust("cuDevicePrimaryCtxRetain", PrimaryContext::new(device))?;
        tracing::info!(
            card = info.name,
            capability = ?info.compute_capability,
            driver = ?info.driver_version,
            library,
            "opened a GPU"
        );
        let pooled =
            std::env::var_os(NO_POOL_VARIABLE).is_none_or(|value| value.is_empty() || value == "0");
        Ok(Self {
            info,
            ordinal,
            pooled,
            pool: Mutex::default(),
            captures: Captures::default(),
            graph_launches: Mutex::default(),
            streams: Mutex::default(),
            links: Mutex::default(),
            primary,
        })
    }

    /// Makes this context the calling thread's until the result is dropped: every call of the driver's below needs it.
    pub(super) fn enter(&self) -> Result<Entered, DriverError> {
        let before = current()?;
        if before == self.primary.get_inner() {
            return Ok(Entered::staying());
        }
        self.make_current()?;
        Ok(Entered::leaving(before))
    }

    /// Makes this context the calling thread's for good.
    pub(super) fn make_current(&self) -> Result<(), DriverError> {
        set_current(self.primary.get_inner())
    }

    /// What distinguishes the GPU from all others.
    pub(super) fn identity(&self) -> Result<[u8; 16], DriverError> {
        let device = check_cust("cuDeviceGet", Device::get_device(self.ordinal))?;
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes; the device is the driver's own.
        check("cuDeviceGetUuid", unsafe {
            sys::cuDeviceGetUuid(&mut uuid, device.as_raw())
        })?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// What the GPU says of itself.
    pub(super) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Adds what work on the GPU may wait for from now on.
    pub(super) fn add_link(&self, link: &Arc<Watched>) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
    }

    /// Waits by `wait` for work on the GPU, which ends where a link that the work may wait for does.
    pub(super) fn wait<T>(
        &self,
        wait: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let link = {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            // A process is one rank.
            links.iter().rev().find_map(Weak::upgrade)
        };
        match link {
            Some(link) => link.waits(wait),
            None => wait(),
        }
    }

    /// The streams that are in use.
    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        // Each change of the list is whole before anything can panic.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The threads whose launches are recorded.
    pub(super) fn captures(&self) -> &Captures<Capture> {
        &self.captures
    }

    /// The right to launch a graph, of which the driver needs one thread at a time.
    pub(super) fn graph_launches(&self) -> MutexGuard<'_, ()> {
        self.graph_launches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A block for `len` bytes that `stream` may use, and streams that wait for it: one from the pool, or new memory.
    /// Before it gives up, it returns the pool's to the GPU.
    pub(super) fn alloc(&self, len: usize, stream: CUstream) -> Result<Block, DriverError> {
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
            Some((block, marks)) => {
                let held = marks
                    .iter()
                    .map(|mark| mark.hold(stream))
                    .fold(Ok(()), Result::and);
                if let Err(error) = held {
                    pool.give(block, marks);
                    return Err(error);
                }
                block
            }
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

    /// Takes back the block of a buffer of `len` bytes, and where each stream has come to, if there are several: what
    /// any of them still does with the block comes before what its next owner does.
    pub(super) fn release(&self, block: Block, len: usize) {
        let marks = self.marks();
        let mut pool = self.pool();
        pool.give(block, marks);
        pool.count_out(len);
        if !self.pooled {
            // A failure is of an earlier kernel, and reported to those that wait for that.
            if let Err(error) = self.enter().and_then(|_entered| free_all(&mut pool)) {
                tracing::debug!(%error, "freeing device memory");
            }
        }
    }

    /// Returns the memory of freed buffers to the GPU; how many bytes.
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

    /// Where each stream has come to; none where there is one, or where all are done.
    fn marks(&self) -> Vec<Mark> {
        let streams = self.streams();
        if !streams.several() {
            return Vec::new();
        }
        let marks = self.enter().and_then(|_entered| streams.marks());
        marks.unwrap_or_else(|error| {
            tracing::debug!(%error, "marking the streams of a freed buffer: waiting for them instead");
            // A failure is of an earlier kernel, and reported to those that wait for that: nothing runs any more.
            let _ = streams.synchronize();
            Vec::new()
        })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Each change of the pool is whole before anything can panic.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Streams, buffers, modules and events hold the context, so nothing is in use but what is freed here. A failure
        // (a kernel that was at fault, mostly) has been reported to those that waited for it; the primary context goes
        // in any case.
        let emptied = self
            .enter()
            .and_then(|_entered| free_all(&mut self.pool()).map(|_| ()));
        if let Err(error) = emptied {
            tracing::debug!(%error, "closing a GPU");
        }
    }
}

/// A context that is the calling thread's; once this is dropped, the one before is again. A framework in the same
/// process, such as torch, takes the current context for what its user chose.
#[derive(Debug)]
#[must_use = "the context is the thread's only until this is dropped"]
pub(super) struct Entered {
    /// What was current, null where nothing was; none where that needs no change.
    before: Option<CUcontext>,
}

impl Entered {
    fn staying() -> Self {
        Self { before: None }
    }

    fn leaving(before: CUcontext) -> Self {
        Self {
            before: Some(before),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // It fails where the other context was destroyed meanwhile: then it is not missed.
        if let Err(error) = set_current(before) {
            tracing::debug!(%error, "leaving a CUDA context");
        }
    }
}

/// The calling thread's context, or null.
fn current() -> Result<CUcontext, DriverError> {
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one handle.
    check("cuCtxGetCurrent", unsafe {
        sys::cuCtxGetCurrent(&mut context)
    })?;
    Ok(context)
}

/// Makes `context`, or none where it is null, the calling thread's.
fn set_current(context: CUcontext) -> Result<(), DriverError> {
    // SAFETY: the driver looks the handle up, and refuses one of a context that is gone.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
}

/// The driver's library, and what it says of every GPU that is visible, without making any of them ready for work.
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

/// Starts the driver and counts the visible GPUs, which may be none.
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

/// GPU `ordinal` of the visible ones, or why there is none.
fn find(library: &str, ordinal: u32) -> Result<Device, DriverError> {
    match count(library)? {
        0 => Err(no_card(library)),
        count if ordinal >= count => Err(DriverError::Unavailable(format!(
            "there is no GPU {ordinal}: {count} visible{}, counted from 0",
            visible_devices()
        ))),
        _ => check_cust("cuDeviceGet", Device::get_device(ordinal)),
    }
}

/// A driver without a GPU.
fn no_card(library: &str) -> DriverError {
    DriverError::Unavailable(format!(
        "{library} finds no GPU{}; see what `nvidia-smi` lists",
        visible_devices()
    ))
}

/// What the user said of which GPUs to use, for an error's text.
fn visible_devices() -> String {
    match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        Some(value) => format!(" (CUDA_VISIBLE_DEVICES is \"{}\")", value.to_string_lossy()),
        None => String::new(),
    }
}

/// Asks the driver about the GPU.
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

/// Bytes a second of a memory with this clock in kHz, which transfers twice a cycle over a bus of a number of bits.
/// `None` where the driver gave no such numbers.
fn memory_rate(kilohertz: i32, bits: i32) -> Option<u64> {
    let (hertz, bits) = (
        u64::try_from(kilohertz).ok()?.checked_mul(1000)?,
        u64::try_from(bits).ok()?,
    );
    let rate = hertz.checked_mul(2 * (bits / 8))?;
    (rate > 0).then_some(rate)
}

/// Bytes free and in all, of the GPU whose context is current.
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

/// Returns every block of `pool` to the GPU whose context is current; how many bytes.
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
