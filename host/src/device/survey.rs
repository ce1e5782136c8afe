//! What there is to compute on, asked of the machine without taking hold of it.

use crate::backend::cpu::Instructions;
use crate::driver::{DeviceInfo, DriverError};
use halfgnn_platform::machine;
use std::fmt;

/// The CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its architecture, such as `x86_64` or `aarch64`.
    pub architecture: &'static str,
    /// The operating system, such as `linux`, `macos` or `windows`.
    pub system: &'static str,
    /// What the system calls it; `None` where it does not say.
    pub model: Option<String>,
    /// The instructions that its operators can use, narrower vectors first.
    pub instructions: Vec<Instructions>,
    /// Threads that this process may run at a time.
    pub threads: usize,
    /// Free and total bytes of memory, of the machine or of the control group, whichever is less.
    pub memory: Option<(u64, u64)>,
}

impl Processor {
    /// Asks the system.
    pub fn survey() -> Self {
        Self {
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            model: machine::processor(),
            instructions: Instructions::available().collect(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: machine::memory(),
        }
    }
}

impl fmt::Display for Processor {
    /// `linux on x86_64 with plain, avx2, avx512 (AMD EPYC 9554 64-Core Processor)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.instructions.iter().map(ToString::to_string).collect();
        let (system, architecture) = (self.system, self.architecture);
        write!(f, "{system} on {architecture} with {}", names.join(", "))?;
        match &self.model {
            Some(model) => write!(f, " ({model})"),
            None => Ok(()),
        }
    }
}

/// NVIDIA's driver and the cards that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDriver {
    /// The library, as it was named to the dynamic linker.
    pub library: String,
    /// Release of the driver, such as `580.65.06`; `None` where the kernel does not say.
    pub release: Option<String>,
    /// The cards that `CUDA_VISIBLE_DEVICES` leaves visible, too old ones among them; [`super::Choice::Cuda`] takes the
    /// first.
    pub cards: Vec<DeviceInfo>,
}

/// The CUDA driver and its cards.
///
/// # Errors
/// [`DriverError::Unavailable`] where there is no driver, it does not start, or the crate was built without the feature
/// `cuda`; [`DriverError::Device`] where a card does not answer.
pub fn cuda_driver() -> Result<CudaDriver, DriverError> {
    #[cfg(feature = "cuda")]
    {
        let (library, cards) = crate::driver::cuda::Cuda::survey()?;
        Ok(CudaDriver {
            library: library.to_owned(),
            release: std::fs::read_to_string("/proc/driver/nvidia/version")
                .ok()
                .and_then(|text| driver_release(&text)),
            cards,
        })
    }
    #[cfg(not(feature = "cuda"))]
    Err(super::built_without_cuda())
}

/// The release in the text of `/proc/driver/nvidia/version`, whose first line is such as
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:09:58 UTC 2025`.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
fn driver_release(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_release = |word: &&str| {
        word.contains('.')
            && word
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    line.split_whitespace().find(is_release).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_either_kernel_module() {
        for (text, release) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc version 12.2.0\n",
                Some("535.129.03"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
                Some("580.65.06"),
            ),
            ("GCC version:  gcc version 12.2.0\n", None),
            ("", None),
        ] {
            assert_eq!(driver_release(text).as_deref(), release, "{text}");
        }
    }

    #[test]
    fn a_processor_is_named_with_its_architecture_and_vectors() {
        let processor = Processor::survey();
        assert!(processor.threads >= 1);
        let text = processor.to_string();
        let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
        let start = format!("{system} on {architecture} with plain");
        assert!(text.starts_with(&start), "{text}");
        let widest = Instructions::widest().to_string();
        assert!(text.contains(&widest), "{text}");
    }
}
