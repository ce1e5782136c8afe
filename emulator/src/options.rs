//! Options of a device and of a launch, and the report of a launch.

use crate::counts::Counts;
use crate::fault::Fault;
use crate::memory::MemoryError;
use thiserror::Error;

/// What a device is made with.
#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// Bytes that all allocations may take together.
    pub memory: u64,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { memory: 8 << 30 }
    }
}

/// Which checks a launch makes besides bounds, alignment, barriers and lanes, which are always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Reads of global, shared and local memory that nothing wrote.
    pub uninitialised: bool,
    /// Races inside blocks and between them.
    pub races: bool,
}

impl Checks {
    /// Every check.
    pub const ALL: Checks = Checks {
        uninitialised: true,
        races: true,
    };
    /// Only what is always checked.
    pub const NONE: Checks = Checks {
        uninitialised: false,
        races: false,
    };
}

impl Default for Checks {
    fn default() -> Self {
        Self::ALL
    }
}

/// How to run a launch.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// Orders blocks and warps: one seed, one result and one report; 0 keeps the grid's own order of blocks.
    pub seed: u64,
    /// Which checks to make.
    pub checks: Checks,
    /// Warp instructions that one block may execute before it counts as an endless loop.
    pub step_limit: u64,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            checks: Checks::ALL,
            step_limit: 1 << 28,
        }
    }
}

/// What a launch without faults did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchReport {
    /// Exact counts: they do not depend on the machine or, for kernels whose work does not, on the order of blocks.
    pub counts: Counts,
}

/// Why a launch failed.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The grid, the block, the shared memory or the parameters cannot be those of this kernel.
    #[error("kernel {kernel} cannot be launched: {message}")]
    InvalidConfiguration {
        /// The kernel.
        kernel: String,
        /// What is wrong, with the two figures that disagree.
        message: String,
    },
    /// The module has no kernel of this name.
    #[error("the module has no kernel {name}; it has {available}")]
    UnknownEntry {
        /// The name that was asked for.
        name: String,
        /// The kernels that there are.
        available: String,
    },
    /// The module's variables do not fit the device.
    #[error("the module's variables cannot be placed: {0}")]
    Memory(#[from] MemoryError),
    /// The kernel did something wrong. Memory that it may have written is undefined.
    #[error("{0}")]
    Fault(Box<Fault>),
}
