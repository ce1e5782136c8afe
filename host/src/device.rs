//! Where a program runs: the one place where a name typed by a person becomes a backend.
//!
//! Everything else is generic over [`Backend`], so what is to be done there is a [`Task`].

mod survey;

pub use survey::{CudaDriver, Processor, cuda_driver};

use crate::backend::Backend;
use crate::backend::cpu::Cpu;
#[cfg(any(feature = "cuda", feature = "emulator"))]
use crate::backend::gpu::Gpu;
#[cfg(any(feature = "cuda", feature = "emulator"))]
use crate::driver::Driver;
use crate::error::Error;
use crate::train::host_memory;

/// A device, as a person names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A GPU if one can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first CUDA card that `CUDA_VISIBLE_DEVICES` shows.
    Cuda,
    /// The GPU's kernels, run on the CPU by the PTX emulator: slow, and checked at every step.
    Emulator,
}

/// A backend, and what is known of its device.
#[derive(Debug)]
pub struct Device<B: Backend> {
    /// The backend.
    pub backend: B,
    /// Free and total bytes; `None` where the system does not say.
    pub memory: Option<(u64, u64)>,
    /// Streaming multiprocessors; `None` of the CPU, whose operators borrow next to nothing.
    pub multiprocessors: Option<u32>,
    /// What stands between it and its memory.
    pub cache: Cache,
}

/// A device's last cache, and the memory behind it: what an order of the vertices is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cache {
    /// Bytes of it that hold rows which are gathered.
    pub bytes: u64,
    /// Bytes a second from memory.
    pub bytes_per_second: f64,
}

impl Cache {
    /// Of a CPU, none of which says so in a way that all have: what a few cores have of their caches, and rows at random from memory.
    const OF_CPU: Self = Self {
        bytes: 8 << 20,
        bytes_per_second: 10e9,
    };

    /// Of a card. Half of its L2, since each half of the card keeps copies of what the other's memory holds.
    #[cfg(any(feature = "cuda", feature = "emulator"))]
    fn of_card(info: &crate::driver::DeviceInfo) -> Self {
        Self {
            bytes: info.l2_bytes / 2,
            bytes_per_second: info.memory_bytes_per_second.unwrap_or(1 << 40) as f64,
        }
    }
}

/// What to do on a device.
pub trait Task {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output;
}

/// Runs `task` on the device of `choice`.
///
/// # Errors
/// [`Error::Driver`] where the device cannot be used, [`Error::Contract`] where its kernels are missing or old,
/// [`Error::Unsupported`] where `HALFGNN_CPU_INSTRUCTIONS` names none that the CPU has.
pub fn open<T: Task>(choice: Choice, task: T) -> Result<T::Output, Error> {
    match choice {
        Choice::Auto => match cuda() {
            Ok(device) => Ok(task.run(&device)),
            Err(Error::Driver(reason)) => {
                tracing::info!("on the CPU: {reason}");
                Ok(task.run(&cpu()?))
            }
            // There is a card, and it would be used if the kernels were there.
            Err(reason) => {
                tracing::warn!("on the CPU, though there is a GPU: {reason}");
                Ok(task.run(&cpu()?))
            }
        },
        Choice::Cpu => Ok(task.run(&cpu()?)),
        Choice::Cuda => Ok(task.run(&cuda()?)),
        Choice::Emulator => Ok(task.run(&emulator()?)),
    }
}

fn cpu() -> Result<Device<Cpu>, Error> {
    Ok(Device {
        backend: Cpu::from_environment()?,
        memory: host_memory(),
        multiprocessors: None,
        cache: Cache::OF_CPU,
    })
}

/// The kernels for the newest architecture, on the emulator.
#[cfg(feature = "emulator")]
fn emulator() -> Result<Device<Gpu<crate::driver::emulated::Emulated>>, Error> {
    gpu(crate::driver::emulated::Emulated::new(), host_memory())
}

/// That there is no emulator in this build.
#[cfg(not(feature = "emulator"))]
fn emulator() -> Result<Device<Cpu>, Error> {
    Err(Error::Unsupported {
        operator: "device emulator",
        reason: "this program was built without it; take another device, or build with the feature `emulator`, as `cargo build -p halfgnn-cli` does".into(),
    })
}

/// The first card that `CUDA_VISIBLE_DEVICES` shows.
#[cfg(feature = "cuda")]
fn cuda() -> Result<Device<Gpu<crate::driver::cuda::Cuda>>, Error> {
    let driver = crate::driver::cuda::Cuda::open(0)?;
    let memory = driver.memory_info()?;
    gpu(driver, Some(memory))
}

/// A driver with the kernels for its device.
#[cfg(any(feature = "cuda", feature = "emulator"))]
fn gpu<D: Driver>(driver: D, memory: Option<(u64, u64)>) -> Result<Device<Gpu<D>>, Error> {
    let info = driver.info();
    let (multiprocessors, cache) = (info.multiprocessors, Cache::of_card(info));
    let kernels = crate::kernels::Kernels::find(Some(info.compute_capability))?;
    Ok(Device {
        backend: Gpu::new(driver, kernels)?,
        memory,
        multiprocessors: Some(multiprocessors),
        cache,
    })
}

/// That the program was built without CUDA.
#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Device<Cpu>, Error> {
    Err(built_without_cuda().into())
}

/// Why there is no card without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
fn built_without_cuda() -> crate::driver::DriverError {
    let reason = "the program was built without CUDA; build it with \
                  `cargo build --release --bin halfgnn --features cuda`";
    crate::driver::DriverError::Unavailable(reason.into())
}
