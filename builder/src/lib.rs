//! Compiles a crate of Rust GPU kernels to PTX, from a build script or from a program, in the manner of Rust-CUDA's
//! `cuda_builder`:
//!
//! ```no_run
//! use halfgnn_builder::PtxBuilder;
//!
//! let built = PtxBuilder::new("kernels-gpu").arch("sm_80").arch("sm_90").copy_to("resources").build()?;
//! println!("{}", built.manifest_path.display());
//! # Ok::<(), halfgnn_builder::BuildError>(())
//! ```
//!
//! A kernels crate is a `cdylib` for `nvptx64-nvidia-cuda` whose kernels are `extern "ptx-kernel"` functions under
//! `#[unsafe(no_mangle)]`. The steps, one module each:
//!
//! 1. [`toolchain`] finds a rustc with the sources of `core`, and LLVM's programs;
//! 2. `compile` builds the crate and `core` to one bitcode module;
//! 3. `convergence` marks what the optimiser must not duplicate, and sets launch bounds;
//! 4. `lower` optimises and emits PTX for each architecture;
//! 5. [`checks`] holds the PTX to its rules, `compact` makes it small, [`ptxas`] assembles it where ptxas is found;
//! 6. [`manifest`] says what came out.
//!
//! Launch bounds and exceptions from the rules are declared in the kernels crate's own manifest, by entry name:
//!
//! ```toml
//! [package.metadata.ptx.launch-bounds]
//! "spmm_*" = { max-threads = 128, min-ctas = 8 }
//!
//! [package.metadata.ptx.checks]
//! "spmm_*" = { barriers = 2, shuffles = 5 }
//! "histogram" = { local = true }
//! ```

pub mod checks;
pub mod manifest;
pub mod pattern;
pub mod ptx;
pub mod ptxas;
pub mod toolchain;

mod builder;
mod compact;
mod compile;
mod convergence;
mod emit;
mod error;
mod files;
mod lower;
mod narrow;
mod package;
mod twins;

pub use builder::{Built, PtxBuilder, PtxFile};
pub use error::BuildError;
pub use files::{write_atomically, write_executable};
pub use package::{LaunchBounds, Metadata};
