//! The PTX emulator as a device: every kernel, and every check of it, where there is no GPU.
//!
//! A launch is run to its end before [`Driver::launch`] returns, and a fault (an access out of bounds, a read of memory
//! that nothing wrote, a race, a barrier that not all threads reach …) is that launch's error.

use super::{DeviceBuffer, DeviceInfo, Driver, DriverError, LaunchConfig, MemoryUse};
use ptx_emulator::{
    Device, DeviceOptions, LaunchError, LaunchOptions, LaunchReport, MemoryError, Module,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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
    /// The order of blocks and warps, and what is checked.
    pub launch: LaunchOptions,
    /// Multiprocessors that it claims to have; operators split their work by it.
    pub multiprocessors: u32,
    /// Whether launches are kept for [`Emulated::take_launches`].
    pub record: bool,
}

impl Default for Options {
    /// Every check, and few multiprocessors, so that small operands are split as large ones are on a card.
    fn default() -> Self {
        Self {
            launch: LaunchOptions::default(),
            multiprocessors: 4,
            record: false,
        }
    }
}

/// The emulator, as a device.
#[derive(Debug)]
pub struct Emulated {
    device: Arc<Device>,
    info: DeviceInfo,
    options: Options,
    launches: Mutex<Vec<Launched>>,
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
            driver_version: None,
        };
        Self {
            device: Arc::new(Device::new(device)),
            info,
            options,
            launches: Mutex::default(),
        }
    }

    /// The launches since the last call, if they are recorded.
    pub fn take_launches(&self) -> Vec<Launched> {
        std::mem::take(&mut self.launches.lock().unwrap_or_else(PoisonError::into_inner))
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
        if self.len > 0 {
            // The buffer alone knows the address, so it cannot have been freed before.
            let freed = self.device.free(self.address);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
}

/// An entry of a module.
#[derive(Clone, Debug)]
pub struct EmulatedFunction {
    module: Arc<Module>,
    name: String,
}

impl Emulated {
    fn memory_error(&self, call: &'static str, error: &MemoryError, asked: usize) -> DriverError {
        let (used, total) = (self.device.bytes_in_use(), self.info.memory_bytes);
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

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<EmulatedBuffer, DriverError> {
        let address = if bytes == 0 {
            0
        } else {
            self.device
                .alloc(bytes as u64)
                .map_err(|error| self.memory_error("alloc", &error, bytes))?
        };
        Ok(EmulatedBuffer {
            device: Arc::clone(&self.device),
            address,
            len: bytes,
        })
    }

    fn upload(
        &self,
        buffer: &EmulatedBuffer,
        offset: usize,
        source: &[u8],
    ) -> Result<(), DriverError> {
        DriverError::check_range(offset, source.len(), buffer.len)?;
        if source.is_empty() {
            return Ok(());
        }
        let written = self.device.write(buffer.address + offset as u64, source);
        written.map_err(|error| self.memory_error("upload", &error, 0))
    }

    fn download(
        &self,
        buffer: &EmulatedBuffer,
        offset: usize,
        target: &mut [u8],
    ) -> Result<(), DriverError> {
        DriverError::check_range(offset, target.len(), buffer.len)?;
        if target.is_empty() {
            return Ok(());
        }
        let read = self.device.read(buffer.address + offset as u64, target);
        read.map_err(|error| self.memory_error("download", &error, 0))
    }

    fn fill(&self, buffer: &EmulatedBuffer, byte: u8) -> Result<(), DriverError> {
        if buffer.len == 0 {
            return Ok(());
        }
        let filled = self.device.fill(buffer.address, byte, buffer.len as u64);
        filled.map_err(|error| self.memory_error("fill", &error, 0))
    }

    fn load(&self, ptx: &str) -> Result<Arc<Module>, DriverError> {
        Module::parse(ptx)
            .map(Arc::new)
            .map_err(|error| DriverError::Module(error.to_string()))
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
        let LaunchConfig {
            grid,
            block,
            shared_bytes,
        } = config;
        let EmulatedFunction { module, name } = function;
        let launched = self.device.launch(
            module,
            name,
            grid,
            block,
            shared_bytes,
            params,
            &self.options.launch,
        );
        let report = launched.map_err(|error| match error {
            LaunchError::UnknownEntry { name, .. } => DriverError::NoEntry(name),
            error => DriverError::Launch {
                kernel: name.clone(),
                reason: error.to_string(),
            },
        })?;
        if self.options.record {
            let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
            launches.push(Launched {
                kernel: name.clone(),
                config,
                report,
            });
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn record(&self) -> Result<Instant, DriverError> {
        Ok(Instant::now())
    }

    fn elapsed_ms(&self, start: &Instant, end: &Instant) -> Result<f64, DriverError> {
        Ok(end.duration_since(*start).as_secs_f64() * 1e3)
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse {
            current: self.device.bytes_in_use(),
            peak: self.device.peak_bytes(),
        }
    }

    fn reset_peak(&self) {
        self.device.reset_peak();
    }
}
