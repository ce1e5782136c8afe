//! The PTX emulator as a device: every kernel, and every check of it, where there is no GPU.
//!
//! A launch is run to its end before [`Driver::launch`] returns, and a fault (an access out of bounds, a read of memory
//! that nothing wrote, a race, a barrier that not all threads reach …) is that launch's error.

use super::capture::Captures;
use super::{
    DeviceBuffer, DeviceInfo, Driver, DriverError, LaunchConfig, LinkPlace, LocalLink, MemoryUse,
    Part, Watch,
};
use ptx_emulator::{
    Device, DeviceOptions, LaunchError, LaunchOptions, LaunchReport, MemoryError, Module,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The texts that devices were given last: parsing takes time, and most devices of a process are given the same
/// modules.
static PARSED: Mutex<VecDeque<Module>> = Mutex::new(VecDeque::new());

/// How many of them are kept: all modules of this project, and some more.
const KEPT: usize = 96;

/// What a launch was and what it counted.
#[derive(Clone, Debug)]
pub struct Launched {
    /// The entry's name.
    pub kernel: String,
    /// Its geometry.
    pub config: LaunchConfig,
    /// Instructions, sectors, bank conflicts and the like.
    pub report: LaunchReport,
}

/// How an [`Emulated`] device behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is checked, and the order of blocks and warps until [`Emulated::set_seed`] changes it.
    pub launch: LaunchOptions,
    /// Multiprocessors that it claims to have; operators split their work by it.
    pub multiprocessors: u32,
    /// Whether launches are kept for [`Emulated::take_launches`].
    pub record: bool,
}

impl Default for Options {
    /// Every check, and few multiprocessors, so that small operands are split as large ones are on a GPU.
    fn default() -> Self {
        Self {
            launch: LaunchOptions::default(),
            multiprocessors: 4,
            record: false,
        }
    }
}

/// The emulator, as a device: a handle, of which clones are the same device. Its streams run in the order of the calls,
/// one launch after the other.
#[derive(Clone, Debug)]
pub struct Emulated(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    device: Arc<Device>,
    info: DeviceInfo,
    options: Options,
    seed: AtomicU64,
    launches: Mutex<Vec<Launched>>,
    captures: Captures<EmulatedGraph>,
}

impl Emulated {
    /// A device with the default options.
    pub fn new() -> Self {
        Self::with_options(Options::default())
    }

    /// A device that behaves as `options` say.
    pub fn with_options(options: Options) -> Self {
        let device = DeviceOptions::default();
        let info = DeviceInfo {
            name: "PTX emulator".into(),
            compute_capability: (9, 0),
            multiprocessors: options.multiprocessors,
            l2_bytes: 0,
            memory_bytes: device.memory,
            max_shared_bytes: 227 * 1024,
            memory_bytes_per_second: None,
            driver_version: None,
        };
        Self(Arc::new(Shared {
            device: Arc::new(Device::new(device)),
            info,
            seed: AtomicU64::new(options.launch.seed),
            options,
            launches: Mutex::default(),
            captures: Captures::default(),
        }))
    }

    /// From the next launch on, blocks and warps run in the order of this seed; 0 is the grid's own order.
    pub fn set_seed(&self, seed: u64) {
        self.0.seed.store(seed, Relaxed);
    }

    /// The launches since the last call, if they are recorded.
    pub fn take_launches(&self) -> Vec<Launched> {
        std::mem::take(
            &mut self
                .0
                .launches
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Default for Emulated {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of the emulator; freed when it is dropped.
#[derive(Debug)]
pub struct EmulatedBuffer {
    device: Arc<Device>,
    address: u64,
    len: usize,
    borrowed: bool,
}

impl DeviceBuffer for EmulatedBuffer {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for EmulatedBuffer {
    fn drop(&mut self) {
        if self.len > 0 && !self.borrowed {
            // The buffer alone knows the address, so it cannot have been freed before.
            let freed = self.device.free(self.address);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
}

/// What was recorded.
#[derive(Debug, Default)]
pub struct EmulatedGraph {
    work: Vec<Work>,
}

/// Work that a device is given.
#[derive(Debug)]
enum Work {
    Launch(EmulatedFunction, LaunchConfig, Vec<u8>),
    /// A byte, and all of a buffer.
    Fill(u8, Place),
    /// Bytes for ranks and from ranks, by their addresses.
    Transfer {
        link: LocalLink,
        sends: Vec<Place>,
        receives: Vec<Place>,
    },
    /// The first half of a transfer: until the second what is to come is no number, so that a premature reader is found
    /// out.
    Give {
        link: LocalLink,
        sends: Vec<Place>,
        receives: Vec<Place>,
    },
    /// The second.
    Take {
        link: LocalLink,
        receives: Vec<Place>,
    },
    /// Words at an address.
    Sum {
        link: LocalLink,
        words: Place,
    },
}

/// Bytes of, or for, a rank.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: usize,
    address: u64,
    len: usize,
}

impl Place {
    fn whole(buffer: &EmulatedBuffer) -> Self {
        Self {
            rank: 0,
            address: buffer.address,
            len: buffer.len,
        }
    }

    fn of(part: &Part<'_, EmulatedBuffer>) -> Result<Self, DriverError> {
        DriverError::check_range(part.offset, part.len, part.buffer.len)?;
        Ok(Self {
            rank: part.rank,
            address: part.buffer.address + part.offset as u64,
            len: part.len,
        })
    }

    fn of_all(parts: &[Part<'_, EmulatedBuffer>]) -> Result<Vec<Self>, DriverError> {
        parts.iter().map(Self::of).collect()
    }
}

/// An entry of a module.
#[derive(Clone, Debug)]
pub struct EmulatedFunction {
    module: Arc<Module>,
    name: String,
}

impl Emulated {
    /// Does `work` between ranks, or keeps it where this thread records.
    fn between_ranks(&self, work: Work) -> Result<(), DriverError> {
        let mut work = Some(work);
        let recorded = self.0.captures.with(|graph| graph.work.extend(work.take()));
        match (recorded, work) {
            (None, Some(work)) => self.move_bytes(&work),
            _ => Ok(()),
        }
    }

    fn move_bytes(&self, work: &Work) -> Result<(), DriverError> {
        let device = &self.0.device;
        let read = |place: &Place| {
            let mut bytes = vec![0; place.len];
            let read = match place.len {
                0 => Ok(()),
                _ => device.read(place.address, &mut bytes),
            };
            read.map_err(|error| self.memory_error("a transfer", &error, 0))?;
            Ok::<_, DriverError>((place.rank, bytes))
        };
        let write = |place: &Place, bytes: &[u8]| match place.len {
            0 => Ok(()),
            _ => (device.write(place.address, bytes))
                .map_err(|error| self.memory_error("a transfer", &error, 0)),
        };
        let give = |link: &LocalLink, sends: &[Place]| {
            let sends = sends.iter().map(read).collect::<Result<_, _>>()?;
            link.exchange(sends, &mut [])
        };
        let take = |link: &LocalLink, receives: &[Place]| {
            let mut arrived: Vec<_> = (receives.iter())
                .map(|place| (place.rank, vec![0; place.len]))
                .collect();
            link.exchange(Vec::new(), &mut arrived)?;
            let mut pairs = receives.iter().zip(&arrived);
            pairs.try_for_each(|(place, (_, bytes))| write(place, bytes))
        };
        match work {
            Work::Launch(..) => Ok(()),
            Work::Fill(_, place) if place.len == 0 => Ok(()),
            Work::Fill(byte, place) => {
                let filled = device.fill(place.address, *byte, place.len as u64);
                filled.map_err(|error| self.memory_error("fill", &error, 0))
            }
            Work::Transfer {
                link,
                sends,
                receives,
            } => {
                give(link, sends)?;
                take(link, receives)
            }
            Work::Give {
                link,
                sends,
                receives,
            } => {
                give(link, sends)?;
                let mut places = receives.iter();
                places.try_for_each(|place| write(place, &vec![0xff; place.len]))
            }
            Work::Take { link, receives } => take(link, receives),
            Work::Sum { link, words } => {
                let (_, bytes) = read(words)?;
                let mut sums: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
                link.sum(&mut sums)?;
                write(words, bytemuck::cast_slice(&sums))
            }
        }
    }

    fn memory_error(&self, call: &'static str, error: &MemoryError, asked: usize) -> DriverError {
        let (used, total) = (self.0.device.bytes_in_use(), self.0.info.memory_bytes);
        if asked as u64 > total.saturating_sub(used) {
            return DriverError::OutOfMemory {
                asked: asked as u64,
                free: total.saturating_sub(used),
                total,
            };
        }
        DriverError::Device {
            call,
            reason: error.to_string(),
        }
    }
}

impl Driver for Emulated {
    type Buffer = EmulatedBuffer;
    type Module = Arc<Module>;
    type Function = EmulatedFunction;
    type Event = Instant;
    type Graph = EmulatedGraph;
    type Link = LocalLink;

    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn alloc(&self, bytes: usize) -> Result<EmulatedBuffer, DriverError> {
        self.0.captures.refuse("an allocation")?;
        let address = if bytes == 0 {
            0
        } else {
            self.0
                .device
                .alloc(bytes as u64)
                .map_err(|error| self.memory_error("alloc", &error, bytes))?
        };
        Ok(EmulatedBuffer {
            device: Arc::clone(&self.0.device),
            address,
            len: bytes,
            borrowed: false,
        })
    }

    unsafe fn borrow(&self, address: u64, bytes: usize) -> Result<EmulatedBuffer, DriverError> {
        Ok(EmulatedBuffer {
            device: Arc::clone(&self.0.device),
            address,
            len: bytes,
            borrowed: true,
        })
    }

    fn upload(
        &self,
        buffer: &EmulatedBuffer,
        offset: usize,
        source: &[u8],
    ) -> Result<(), DriverError> {
        self.0.captures.refuse("a copy")?;
        DriverError::check_range(offset, source.len(), buffer.len)?;
        if source.is_empty() {
            return Ok(());
        }
        let written = self.0.device.write(buffer.address + offset as u64, source);
        written.map_err(|error| self.memory_error("upload", &error, 0))
    }

    fn download(
        &self,
        buffer: &EmulatedBuffer,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), DriverError> {
        self.0.captures.refuse("a copy")?;
        DriverError::check_range(offset, target.len(), buffer.len)?;
        if target.is_empty() {
            return Ok(());
        }
        let read = self.0.device.read(buffer.address + offset as u64, target);
        read.map_err(|error| self.memory_error("download", &error, 0))
    }

    fn fill(&self, buffer: &EmulatedBuffer, byte: u8) -> Result<(), DriverError> {
        let fill = || Work::Fill(byte, Place::whole(buffer));
        match self.0.captures.with(|graph| graph.work.push(fill())) {
            Some(()) => Ok(()),
            None => self.move_bytes(&fill()),
        }
    }

    fn load(&self, ptx: &str) -> Result<Arc<Module>, DriverError> {
        let parsed = || PARSED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = parsed().iter().find(|module| module.text() == ptx) {
            return Ok(Arc::new(module.again()));
        }
        // Not under the lock: devices of other threads parse other modules meanwhile.
        let module = Module::parse(ptx).map_err(|error| DriverError::Module(error.to_string()))?;
        let own = module.again();
        let mut parsed = parsed();
        parsed.truncate(KEPT - 1);
        parsed.push_front(module);
        Ok(Arc::new(own))
    }

    fn function(&self, module: &Arc<Module>, name: &str) -> Result<EmulatedFunction, DriverError> {
        match module.entry(name) {
            Some(_) => Ok(EmulatedFunction {
                module: Arc::clone(module),
                name: name.to_owned(),
            }),
            None => Err(DriverError::NoEntry(name.to_owned())),
        }
    }

    unsafe fn launch(
        &self,
        function: &EmulatedFunction,
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), DriverError> {
        let recorded = self.0.captures.with(|graph| {
            let launch = Work::Launch(function.clone(), config, params.to_vec());
            graph.work.push(launch);
        });
        if recorded.is_some() {
            return Ok(());
        }
        let LaunchConfig {
            grid,
            block,
            shared_bytes,
        } = config;
        let EmulatedFunction { module, name } = function;
        let options = LaunchOptions {
            seed: self.0.seed.load(Relaxed),
            ..self.0.options.launch.clone()
        };
        let launched =
            self.0
                .device
                .launch(module, name, grid, block, shared_bytes, params, &options);
        let report = launched.map_err(|error| match error {
            LaunchError::UnknownEntry { name, .. } => DriverError::NoEntry(name),
            error => DriverError::Launch {
                kernel: name.clone(),
                reason: error.to_string(),
            },
        })?;
        if self.0.options.record {
            let mut launches = self
                .0
                .launches
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            launches.push(Launched {
                kernel: name.clone(),
                config,
                report,
            });
        }
        Ok(())
    }

    fn capture<E: From<DriverError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<EmulatedGraph, E> {
        self.0.captures.record(EmulatedGraph::default(), work)
    }

    unsafe fn replay(&self, graph: &EmulatedGraph) -> Result<(), DriverError> {
        self.0.captures.refuse("a replay")?;
        for work in &graph.work {
            match work {
                // SAFETY: what this method asks of its caller.
                Work::Launch(function, config, params) => unsafe {
                    self.launch(function, *config, params)?;
                },
                others => self.move_bytes(others)?,
            }
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        self.0.captures.refuse("a wait")
    }

    fn record(&self) -> Result<Instant, DriverError> {
        self.0.captures.refuse("an event")?;
        Ok(Instant::now())
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn new_stream(&self) -> Result<Self, DriverError> {
        self.0.captures.refuse("a stream")?;
        Ok(self.clone())
    }

    /// Whatever was called before is done.
    fn wait(&self, _event: &Instant) -> Result<(), DriverError> {
        self.0.captures.refuse("a wait")
    }

    fn link_id(&self) -> Result<Vec<u8>, DriverError> {
        Ok(LocalLink::id())
    }

    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<LocalLink, DriverError> {
        LocalLink::join(place, watch)
    }

    fn transfer(
        &self,
        link: &LocalLink,
        sends: &[Part<'_, EmulatedBuffer>],
        receives: &[Part<'_, EmulatedBuffer>],
    ) -> Result<(), DriverError> {
        self.between_ranks(Work::Transfer {
            link: link.clone(),
            sends: Place::of_all(sends)?,
            receives: Place::of_all(receives)?,
        })
    }

    fn transfer_begin(
        &self,
        link: &LocalLink,
        sends: &[Part<'_, EmulatedBuffer>],
        receives: &[Part<'_, EmulatedBuffer>],
    ) -> Result<(), DriverError> {
        self.between_ranks(Work::Give {
            link: link.clone(),
            sends: Place::of_all(sends)?,
            receives: Place::of_all(receives)?,
        })
    }

    fn transfer_end(
        &self,
        link: &LocalLink,
        receives: &[Part<'_, EmulatedBuffer>],
    ) -> Result<(), DriverError> {
        self.between_ranks(Work::Take {
            link: link.clone(),
            receives: Place::of_all(receives)?,
        })
    }

    fn sum_words(
        &self,
        link: &LocalLink,
        buffer: &EmulatedBuffer,
        count: usize,
    ) -> Result<(), DriverError> {
        let words = Place::of(&Part {
            rank: 0,
            buffer,
            offset: 0,
            len: count.saturating_mul(size_of::<u32>()),
        })?;
        let link = link.clone();
        self.between_ranks(Work::Sum { link, words })
    }

    fn cut(&self, link: &LocalLink, reason: &str) {
        link.cut(reason);
    }

    fn elapsed_ms(&self, start: &Instant, end: &Instant) -> Result<f64, DriverError> {
        Ok(end.duration_since(*start).as_secs_f64() * 1e3)
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            current: self.0.device.bytes_in_use(),
            peak: self.0.device.peak_bytes(),
        }
    }

    fn reset_peak(&self) {
        self.0.device.reset_peak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launch's last block leaves its number.
    #[test]
    fn a_seed_changes_the_order_of_the_launches_behind_it() {
        let driver = Emulated::new();
        let module = driver
            .load(
                ".version 8.0 .target sm_80 .address_size 64
                 .visible .entry last(.param .u64 to) {
                     .reg .b32 %r<2>; .reg .b64 %rd<1>;
                     ld.param.b64 %rd0, [to];
                     mov.u32 %r0, %ctaid.x;
                     atom.global.exch.b32 %r1, [%rd0], %r0;
                     ret;
                 }",
            )
            .unwrap();
        let function = driver.function(&module, "last").unwrap();
        let buffer = driver.alloc(4).unwrap();
        driver.fill(&buffer, 0).unwrap();
        let config = LaunchConfig {
            grid: [100, 1, 1],
            block: [1, 1, 1],
            shared_bytes: 0,
        };
        let last = |seed| {
            driver.set_seed(seed);
            // SAFETY: the kernel's parameter is the address of one word, which `buffer` has.
            unsafe { driver.launch(&function, config, &buffer.address().to_le_bytes()) }.unwrap();
            let mut word = [0; 4];
            driver.download(&buffer, 0, &mut word).unwrap();
            u32::from_le_bytes(word)
        };
        assert_eq!(last(0), 99);
        let others: Vec<u32> = (1..4).map(last).collect();
        assert!(others.iter().any(|block| *block != 99), "{others:?}");
        assert_eq!((1..4).map(last).collect::<Vec<_>>(), others);
    }
    /// A text that is read once has variables of its own wherever it is loaded, as on a GPU; what cannot be read leaves
    /// it as it was.
    #[test]
    fn who_loads_the_same_text_shares_no_memory() {
        let text = ".version 8.0 .target sm_80 .address_size 64
            .global .align 4 .b32 launches = 5;
            .visible .entry count(.param .u64 to) {
                .reg .b32 %r<2>; .reg .b64 %rd<2>;
                ld.param.b64 %rd0, [to];
                mov.b64 %rd1, launches;
                ld.global.b32 %r0, [%rd1];
                add.u32 %r0, %r0, 1;
                st.global.b32 [%rd1], %r0;
                st.global.b32 [%rd0], %r0;
                ret;
            }";
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
        };
        let launch = |driver: &Emulated, module: &Arc<Module>| {
            let function = driver.function(module, "count").unwrap();
            let buffer = driver.alloc(4).unwrap();
            // SAFETY: the kernel's parameter is the address of one word, which `buffer` has.
            unsafe { driver.launch(&function, config, &buffer.address().to_le_bytes()) }.unwrap();
            let mut word = [0; 4];
            driver.download(&buffer, 0, &mut word).unwrap();
            u32::from_le_bytes(word)
        };
        let [one, other] = [(); 2].map(|()| Emulated::new());
        let [first, second] = [(); 2].map(|()| one.load(text).unwrap());
        assert_eq!((launch(&one, &first), launch(&one, &first)), (6, 7));
        assert!(matches!(
            one.load(&text.replace("ret", "leave")),
            Err(DriverError::Module(_))
        ));
        assert_eq!((launch(&one, &second), launch(&one, &first)), (6, 8));
        assert_eq!(launch(&other, &other.load(text).unwrap()), 6);
    }
}
