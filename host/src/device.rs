//! Where a program runs: the one place where a name typed by a person becomes a backend.
//!
//! Everything else is generic over [`Backend`], so what is to be done there is a [`Task`].

use crate::backend::Backend;
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::train::host_memory;

/// A device, as a person names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A CUDA card if one can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The first CUDA card that `CUDA_VISIBLE_DEVICES` shows.
    Cuda,
    /// The GPU's kernels, run on the CPU by the PTX emulator: slow, and checked at every step.
    Emulator,
}

/// A backend, and what is known of its memory.
#[derive(Debug)]
pub struct Device<B: Backend> {
    /// The backend.
    pub backend: B,
    /// Free and total bytes; `None` where the system does not say.
    pub memory: Option<(u64, u64)>,
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
/// [`Error::Driver`] where the device cannot be used, [`Error::Contract`] where its kernels are missing or old.
pub fn open<T: Task>(choice: Choice, task: T) -> Result<T::Output, Error> {
    match choice {
        Choice::Cpu => Ok(task.run(&cpu())),
        Choice::Cuda => Ok(task.run(&cuda()?)),
        Choice::Auto => match cuda() {
            Ok(card) => Ok(task.run(&card)),
            Err(reason) => {
                tracing::info!("the CPU is used, because no card can be: {reason}");
                Ok(task.run(&cpu()))
            }
        },
        Choice::Emulator => {
            let reason = "this build computes on the CPU alone; use --device cpu".to_owned();
            Err(crate::driver::DriverError::Unavailable(reason).into())
        }
    }
}

/// The first card, with the kernels that fit it.
#[cfg(feature = "cuda")]
fn cuda() -> Result<Device<crate::backend::gpu::Gpu<crate::driver::cuda::Cuda>>, Error> {
    use crate::driver::Driver;
    let driver = crate::driver::cuda::Cuda::open(0)?;
    let memory = Some(driver.memory_info()?);
    let ptx = crate::ptx::read(Some(driver.info().compute_capability))?;
    Ok(Device {
        backend: crate::backend::gpu::Gpu::new(driver, &ptx)?,
        memory,
    })
}

/// Says that this build has no cards.
#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Device<Cpu>, Error> {
    let reason = "this program was built without them; build it with `--features cuda`".to_owned();
    Err(crate::driver::DriverError::Unavailable(reason).into())
}

fn cpu() -> Device<Cpu> {
    Device {
        backend: Cpu::new(),
        memory: host_memory(),
    }
}
