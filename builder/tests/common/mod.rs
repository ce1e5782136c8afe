//! What the tests that compile kernels share.

// The tests of the whole workspace say it in the same way; this crate depends on none of it.
#[path = "../../../tests/src/skip.rs"]
pub mod skip;

use std::fs;
use std::path::{Path, PathBuf};

use halfgnn_builder::PtxBuilder;
use halfgnn_builder::toolchain::{self, Toolchain};

/// The device toolchain; `None`, with a line that says why, where there is none and none is required.
pub fn toolchain() -> Option<Toolchain> {
    toolchain::find()
        .map_err(|missing| skip::skip("PTX", &missing.to_string()))
        .ok()
}

/// One target folder for all, so that `core` is compiled once.
pub fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels")
}

/// A crate in a fresh folder whose name is its package's: the head of every kernels crate, and `body`.
pub fn write_crate(name: &str, metadata: &str, body: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("crates")
        .join(name);
    // Whatever an earlier run left would be up to date.
    let _ = fs::remove_dir_all(&directory);
    let _ = fs::remove_file(
        target_dir()
            .join("ptx")
            .join(format!("{name}.manifest.json")),
    );
    fs::create_dir_all(directory.join("src")).expect("the tests' folder can be written");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[lib]\ncrate-type = \
         [\"cdylib\"]\n\n{metadata}\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).expect("the manifest can be written");
    fs::write(directory.join("src/lib.rs"), format!("{HEAD}{body}"))
        .expect("the source can be written");
    directory
}

/// A builder for one of these crates.
pub fn builder(directory: &Path, toolchain: Toolchain) -> PtxBuilder {
    PtxBuilder::new(directory)
        .target_dir(target_dir())
        .toolchain(toolchain)
        .rerun_directives(false)
        .arch("sm_80")
}

/// Lines that every crate starts with; a body's first line is the one after.
pub const HEAD: &str = "#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics)]
#![allow(internal_features)]
use core::arch::nvptx::*;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { unsafe { trap() } }
";
