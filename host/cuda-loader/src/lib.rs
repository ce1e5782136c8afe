//! Binds the CUDA driver at run time, so that a program built with `cust` starts where there is none.
//!
//! `cust` links against `libcuda.so`: a program that uses it needs NVIDIA's driver to build and, worse, to start. This
//! crate stands in its place. It defines every entry point that `cust_raw` declares as a trampoline (one jump through a
//! table); until [`load`] has found the machine's driver, each of them answers `CUDA_ERROR_NO_DEVICE`. One program then
//! serves machines with a GPU and machines without.
//!
//! ```no_run
//! match halfgnn_cuda_loader::load() {
//!     Ok(driver) => println!("{}", driver.library()), // cust may be used now
//!     Err(error) => println!("running without a GPU: {error}"),
//! }
//! ```
//!
//! # To build with it
//! - The program must call [`load`]: that is what makes the linker take the trampolines.
//! - `cust_raw`'s build script looks for `lib64` in `$CUDA_LIBRARY_PATH` and asks for `-lcuda`. The crate's folder
//!   `link-stub` holds a `lib64/libcuda.so` that is an empty linker script, and empty archives for Windows. In
//!   `.cargo/config.toml`:
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = { value = "host/cuda-loader/link-stub", relative = true }
//! ```
//!
//! # Where it works
//! Linux on x86-64 and on AArch64, Windows on x86-64. Elsewhere the crate compiles, defines nothing, and [`load`] says
//! so.

mod platform;

use halfgnn_platform::support::Unsupported;
use platform::USUAL_NAME;
use std::sync::OnceLock;

/// Environment variable that names the driver's library, instead of the places where [`load`] looks by itself.
pub const LIBRARY_VARIABLE: &str = "HALFGNN_LIBCUDA";

/// The driver that the entry points are bound to.
#[derive(Debug)]
pub struct CudaDriver {
    library: String,
    missing: Vec<&'static str>,
}

impl CudaDriver {
    /// The library that was opened, as it was named to the dynamic linker.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Entry points that this driver does not export (it is older than `cust_raw`, or has dropped them): they answer
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

/// Why there is no driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error(
        "no CUDA driver: {attempts}; install NVIDIA's driver (in a container, start it with the NVIDIA Container \
         Toolkit, as by `--gpus all`), or set {LIBRARY_VARIABLE} to the path of {USUAL_NAME}"
    )]
    NotFound {
        /// Each library that was tried, with the dynamic linker's reason.
        attempts: String,
    },
    /// A library that is not the CUDA driver.
    #[error(
        "{library} is not a CUDA driver: it exports no `cuInit`; let {LIBRARY_VARIABLE} name {USUAL_NAME} or unset it"
    )]
    NotADriver {
        /// The library.
        library: String,
    },
    /// A platform for which this crate has no trampolines.
    #[error(transparent)]
    UnsupportedPlatform(#[from] Unsupported),
}

/// Opens the machine's CUDA driver and binds every entry point to it.
///
/// Looks for the library that `HALFGNN_LIBCUDA` names, or else for `libcuda.so.1` where the dynamic linker looks, where
/// WSL has it and where NixOS has it; on Windows for `nvcuda.dll`. May be called from any thread and any number of
/// times: the first call decides, the others wait for it and return the same. The library is never closed.
///
/// # Errors
/// [`LoadError`]; the entry points then go on answering `CUDA_ERROR_NO_DEVICE`.
pub fn load() -> Result<&'static CudaDriver, LoadError> {
    static DRIVER: OnceLock<Result<CudaDriver, LoadError>> = OnceLock::new();
    DRIVER
        .get_or_init(platform::find_and_bind)
        .as_ref()
        .map_err(LoadError::clone)
}
