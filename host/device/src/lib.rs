//! What a device must offer: memory, modules, launches and events.
//!
//! [`Driver`] is the lowest layer of HalfGNN and the only one that knows whether kernels run on a GPU (`cuda`, feature
//! `cuda`) or on the PTX emulator (`emulated`, feature `emulator`). Everything above it is written once. [`kernels`]
//! finds the built kernels.

#[cfg(any(feature = "cuda", feature = "emulator"))]
mod capture;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dry;
#[cfg(feature = "emulator")]
pub mod emulated;
pub mod kernels;
pub mod link;
#[cfg(feature = "mpi")]
pub mod mpi;

pub use link::{Interconnect, LinkPlace, LocalLink, Part, Watch};

use bytemuck::NoUninit;
use std::fmt;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name a person knows it by, such as `NVIDIA H200` or `PTX emulator`.
    pub name: String,
    /// Compute capability, `(9, 0)` for sm_90.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Memory of the device in bytes.
    pub memory_bytes: u64,
    /// The most shared memory a CTA may have, in bytes, static and dynamic together.
    pub max_shared_bytes: u32,
    /// The most that the memory can deliver, in bytes a second, from its clock and the width of its bus; `None` where
    /// the device does not say.
    pub memory_bytes_per_second: Option<u64>,
    /// CUDA version that the driver supports, as `(major, minor)`; `None` for the emulator.
    pub driver_version: Option<(u32, u32)>,
}

/// The geometry of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs in x, y and z; the limits are 2³¹−1, 65,535 and 65,535.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y and z; at most 1,024 together.
    pub block: [u32; 3],
    /// Dynamic shared memory of a CTA in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// CTAs of `block` threads in one dimension, as few as have a thread for each of `elements`; none for no element.
    /// The last threads of the last CTA have none: the kernel must see to that.
    ///
    /// ```
    /// use halfgnn_device::LaunchConfig;
    ///
    /// assert_eq!(LaunchConfig::linear(1000, 256).map(|config| config.grid), Some([4, 1, 1]));
    /// ```
    ///
    /// `None` where `block` is not from 1 to 1,024, or more CTAs would be needed than a grid may have, 2³¹ − 1.
    pub fn linear(elements: usize, block: u32) -> Option<Self> {
        if !(1..=1024).contains(&block) {
            return None;
        }
        let ctas = i32::try_from(elements.div_ceil(block as usize)).ok()?;
        Some(Self {
            grid: [ctas.unsigned_abs(), 1, 1],
            block: [block, 1, 1],
            shared_bytes: 0,
        })
    }
}

/// How much device memory is in use and was at most, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in buffers that are alive.
    pub current: u64,
    /// The most that [`MemoryUse::current`] has been since the driver was opened or [`Driver::reset_peak`] was called.
    pub peak: u64,
}

/// A piece of device memory; freed, or kept for reuse, when it is dropped.
pub trait DeviceBuffer: fmt::Debug + Send + Sync + 'static {
    /// Address on the device; aligned to at least 256 bytes.
    fn address(&self) -> u64;
    /// Length in bytes, as it was asked for.
    fn len(&self) -> usize;
    /// Whether the buffer holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A stream of a device that runs PTX: work is done in the order of the calls.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Device memory.
    type Buffer: DeviceBuffer;
    /// A loaded module.
    type Module: fmt::Debug + Send + Sync + 'static;
    /// One entry of a module; keeps what it needs of the module alive.
    type Function: fmt::Debug + Clone + Send + Sync + 'static;
    /// A point in the stream.
    type Event: fmt::Debug + 'static;
    /// Launches that were recorded, to be made all at once; keeps what it needs of their modules alive.
    type Graph: fmt::Debug + Send + Sync + 'static;
    /// What a rank moves memory by between its device and those of others: a handle.
    type Link: fmt::Debug + Clone + Send + Sync + 'static;

    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// `bytes` of device memory with any content. Zero bytes are legal and give an address that is never read.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] with what was asked and what was free.
    fn alloc(&self, bytes: usize) -> Result<Self::Buffer, DriverError>;

    /// `bytes` of the host's memory with any content, which launches read and write at the address that the buffer
    /// says, and copies reach like any other: for what does not fit the device. A GPU has it over its bus; of other
    /// devices it is memory like all of theirs.
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] where the host has not as much, or does not let it be locked;
    /// [`DriverError::OutOfMemory`] of a device whose memory it is.
    fn alloc_host(&self, bytes: usize) -> Result<Self::Buffer, DriverError> {
        self.alloc(bytes)
    }

    /// Copies `source` to `buffer` from byte `offset` on. `source` may be reused when this returns.
    ///
    /// # Errors
    /// [`DriverError::OutOfRange`] where the bytes do not fit.
    fn upload(
        &self,
        buffer: &Self::Buffer,
        offset: usize,
        source: &[u8],
    ) -> Result<(), DriverError>;

    /// Copies from byte `offset` of `buffer` on, after all work before it is done.
    ///
    /// # Errors
    /// [`DriverError::OutOfRange`] where the buffer is shorter; the failure of an earlier launch may show here.
    fn download(
        &self,
        buffer: &Self::Buffer,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), DriverError>;

    /// Sets every byte of the buffer.
    ///
    /// # Errors
    /// Those of the device.
    fn fill(&self, buffer: &Self::Buffer, byte: u8) -> Result<(), DriverError>;

    /// Loads PTX. A device may compile an entry no earlier than [`Driver::function`] asks for it.
    ///
    /// # Errors
    /// [`DriverError::Module`] with the compiler's own words.
    fn load(&self, ptx: &str) -> Result<Self::Module, DriverError>;

    /// Whether [`Driver::load_machine_code`] takes any.
    fn runs_machine_code(&self) -> bool {
        false
    }

    /// Loads machine code of this device.
    ///
    /// # Errors
    /// [`DriverError::Module`] where it is of another device, or no machine code.
    fn load_machine_code(&self, code: &[u8]) -> Result<Self::Module, DriverError> {
        let _ = code;
        Err(DriverError::Module("this device takes PTX alone".into()))
    }

    /// The entry `name` of `module`, compiled if it is not yet. May be called from several threads at a time.
    ///
    /// # Errors
    /// [`DriverError::NoEntry`] where there is none; [`DriverError::Module`] where it does not compile.
    fn function(&self, module: &Self::Module, name: &str) -> Result<Self::Function, DriverError>;

    /// Launches `function` with `params`, the bytes of its one by-value parameter.
    ///
    /// # Safety
    /// `params` must be the whole parameter struct that the entry declares, and every device address in it must lie
    /// in a buffer that is alive until the launch is done and is as long as the kernel's contract asks for.
    ///
    /// # Errors
    /// [`DriverError::Launch`]; a fault inside a kernel shows at once on the emulator, and on a GPU at a later call.
    unsafe fn launch(
        &self,
        function: &Self::Function,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), DriverError>;

    /// [`Driver::launch`] with a struct for the entry's parameter; nothing where the grid is empty.
    ///
    /// The struct is the one that the kernel declares, `#[repr(C)]` and without padding bytes; `examples/own_kernels`
    /// in the repository compiles one definition into both sides.
    ///
    /// # Safety
    /// As for [`Driver::launch`].
    ///
    /// # Errors
    /// Those of [`Driver::launch`].
    unsafe fn launch_with<P: NoUninit>(
        &self,
        function: &Self::Function,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), DriverError> {
        if config.grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: what this function asks of its caller; without padding, the bytes are the struct's fields.
        unsafe { self.launch(function, config, bytemuck::bytes_of(params)) }
    }

    /// Records what this thread launches and [fills](Driver::fill) in `work`, in its order, instead of doing it. What
    /// other threads do is done as ever.
    ///
    /// # Errors
    /// [`DriverError::Recording`] from every other method that `work` calls on this driver, and where this thread
    /// records already; those of `work` and of the device.
    fn capture<E: From<DriverError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self::Graph, E>;

    /// Makes the launches of `graph`, in their order.
    ///
    /// # Safety
    /// What [`Driver::launch`] asks of its caller holds again for each of them, and what is filled has not been freed.
    ///
    /// # Errors
    /// Those of [`Driver::launch`].
    unsafe fn replay(&self, graph: &Self::Graph) -> Result<(), DriverError>;

    /// Waits until all work is done.
    ///
    /// # Errors
    /// The failure of an earlier launch.
    fn synchronize(&self) -> Result<(), DriverError>;

    /// Marks this point of the stream.
    ///
    /// # Errors
    /// Those of the device.
    fn record(&self) -> Result<Self::Event, DriverError>;

    /// The same device through a stream of its own, which begins behind all work that was called before. From then on
    /// work of the two has no order but that which [`Driver::wait`] makes. Memory and modules are both streams': memory
    /// that is freed is used again only behind what any stream still does with it, and an upload is done when it
    /// returns.
    ///
    /// # Errors
    /// Those of the device.
    fn new_stream(&self) -> Result<Self, DriverError>
    where
        Self: Sized,
    {
        Err(DriverError::Device {
            call: "a new stream",
            reason: "this device has one stream".into(),
        })
    }

    /// Whether there is a [`Driver::new_stream`].
    fn has_streams(&self) -> bool {
        false
    }

    /// [`Driver::new_stream`] whose work, and what is recorded through it, goes before that of other streams where both
    /// compete for the device: for short work in parallel with long.
    ///
    /// # Errors
    /// Those of [`Driver::new_stream`].
    fn new_urgent_stream(&self) -> Result<Self, DriverError>
    where
        Self: Sized,
    {
        self.new_stream()
    }

    /// Has what is called from now on wait for `event`, of this stream or another of the device. Returns at once.
    ///
    /// # Errors
    /// Those of the device.
    fn wait(&self, event: &Self::Event) -> Result<(), DriverError> {
        // With one stream, order is all that is needed.
        let _ = event;
        Ok(())
    }

    /// Memory of the device that another program allocated, as a buffer that does not free it.
    ///
    /// # Safety
    /// The `bytes` from `address` on are memory of the device for as long as the buffer lives and work that uses it is
    /// under way, and other users of them see to the order.
    ///
    /// # Errors
    /// [`DriverError::Device`] where the device takes none.
    unsafe fn borrow(&self, address: u64, bytes: usize) -> Result<Self::Buffer, DriverError> {
        let _ = (address, bytes);
        Err(DriverError::Device {
            call: "a loan of memory",
            reason: "this device takes none".into(),
        })
    }

    /// What links this device with those of other processes.
    ///
    /// # Errors
    /// [`DriverError::Link`] with why nothing does, and what to do about it.
    fn interconnect(&self) -> Result<Interconnect, DriverError> {
        Err(DriverError::Link(
            "nothing links such devices but the host; take GPUs".into(),
        ))
    }

    /// An id that one rank makes and all are [linked](Driver::link) by. Ids of a driver have one length.
    ///
    /// # Errors
    /// Those of [`Driver::interconnect`].
    fn link_id(&self) -> Result<Vec<u8>, DriverError>;

    /// Links a rank with the others, which all call it. It and whatever waits for the device from then on end when
    /// `watch` says so.
    ///
    /// # Errors
    /// [`DriverError::Link`] with what the library says, or why `watch` gave up.
    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<Self::Link, DriverError>;

    /// Gives each of `sends` to its rank and fills each of `receives` with what its rank gives, as many bytes in the
    /// same order between each two ranks, all at once: work like a launch, which is done in the order of the calls and
    /// can be recorded.
    ///
    /// # Errors
    /// [`DriverError::OutOfRange`]; [`DriverError::Link`], also of a later call, where a rank fails or the watch gives
    /// up.
    fn transfer(
        &self,
        link: &Self::Link,
        sends: &[Part<'_, Self::Buffer>],
        receives: &[Part<'_, Self::Buffer>],
    ) -> Result<(), DriverError>;

    /// The same as far as it is begun: where it is recorded it may go on in parallel with the work behind it, until
    /// [`Driver::transfer_end`]. Before that nothing else is given to the link, what is sent stays as it is and what is
    /// received is not read. Elsewhere it may be done by then.
    ///
    /// # Errors
    /// Those of [`Driver::transfer`].
    fn transfer_begin(
        &self,
        link: &Self::Link,
        sends: &[Part<'_, Self::Buffer>],
        receives: &[Part<'_, Self::Buffer>],
    ) -> Result<(), DriverError>;

    /// Has the work behind it wait for the transfer that was begun, of the same `receives`.
    ///
    /// # Errors
    /// Those of [`Driver::transfer`].
    fn transfer_end(
        &self,
        link: &Self::Link,
        receives: &[Part<'_, Self::Buffer>],
    ) -> Result<(), DriverError>;

    /// Makes each of the first `count` words of 32 bits in `buffer` the sum of those of all ranks, which wraps around:
    /// work like [`Driver::transfer`].
    ///
    /// # Errors
    /// Those of [`Driver::transfer`].
    fn sum_words(
        &self,
        link: &Self::Link,
        buffer: &Self::Buffer,
        count: usize,
    ) -> Result<(), DriverError>;

    /// Ends what `link` still does, and whatever waits for it, for `reason`.
    fn cut(&self, link: &Self::Link, reason: &str);

    /// Milliseconds from `start` to `end` on the device's clock, after waiting for `end`.
    ///
    /// # Errors
    /// The failure of a launch between them.
    fn elapsed_ms(&self, start: &Self::Event, end: &Self::Event) -> Result<f64, DriverError>;

    /// Memory in use, buffers that are kept for reuse not counted.
    fn memory(&self) -> MemoryUse;

    /// Makes the present use the peak.
    fn reset_peak(&self);
}

/// Why a device did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// No device can be used, and why.
    #[error("no CUDA device can be used: {0}")]
    Unavailable(String),
    /// Not enough memory.
    #[error(
        "out of device memory: {asked} bytes were asked for, {free} of {total} are free; use a smaller graph, --hidden or --layers"
    )]
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
    /// Not enough memory of the host's that a device can read.
    #[error(
        "the host gives no {asked} bytes that a GPU can read; free some of its memory, or see what `ulimit -l` lets a process lock"
    )]
    OutOfHostMemory {
        /// Bytes asked for.
        asked: u64,
    },
    /// Ranks whose devices are not linked, or not any more; and why, in full.
    #[error("{0}")]
    Link(String),
    /// A copy past the end of a buffer.
    #[error("bytes {offset}..{end} were addressed in a buffer of {len} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// One past the last byte.
        end: usize,
        /// Length of the buffer.
        len: usize,
    },
    /// PTX that does not load.
    #[error("the PTX does not load: {0}; rebuild it with `cargo xtask build-ptx`")]
    Module(String),
    /// An entry that is not in the module.
    #[error("the PTX has no kernel `{0}`; rebuild it with `cargo xtask build-ptx`")]
    NoEntry(String),
    /// A launch that failed.
    #[error("kernel `{kernel}` failed: {reason}")]
    Launch {
        /// The entry's name.
        kernel: String,
        /// What the device or the emulator said.
        reason: String,
    },
    /// A call that cannot be recorded, made where launches are.
    #[error(
        "{call} cannot be part of a recorded step: whatever a step needs must be there before it is recorded"
    )]
    Recording {
        /// The call.
        call: &'static str,
    },
    /// Any other failure, with the call that reported it.
    #[error("the device failed in {call}: {reason}")]
    Device {
        /// The driver's call.
        call: &'static str,
        /// The driver's words.
        reason: String,
    },
}

impl DriverError {
    /// [`DriverError::OutOfRange`] unless `offset + count` is within `len`.
    ///
    /// # Errors
    /// That it is not.
    pub fn check_range(offset: usize, count: usize, len: usize) -> Result<(), DriverError> {
        match offset.checked_add(count) {
            Some(end) if end <= len => Ok(()),
            end => Err(DriverError::OutOfRange {
                offset,
                end: end.unwrap_or(usize::MAX),
                len,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_grid_covers_its_elements_and_knows_its_limits() {
        let ctas =
            |elements, block| LaunchConfig::linear(elements, block).map(|config| config.grid[0]);
        assert_eq!(ctas(0, 128), Some(0));
        assert_eq!(ctas(1, 128), Some(1));
        assert_eq!(ctas(128, 128), Some(1));
        assert_eq!(ctas(129, 128), Some(2));
        let most = i32::MAX as usize;
        assert_eq!(ctas(most * 1024, 1024), Some(i32::MAX as u32));
        assert_eq!(ctas(most * 1024 + 1, 1024), None);
        assert_eq!(ctas(usize::MAX, 1), None);
        assert_eq!(ctas(1, 0), None);
        assert_eq!(ctas(1, 1025), None);
    }
}
