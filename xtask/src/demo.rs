//! `cargo xtask demo`: from nothing to the comparison that this project exists for.

use clap::Args;

use crate::{Failure, build_ptx, workspace};

/// Options of `demo`.
#[derive(Args, Default)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Given to `halfgnn demo`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs what is missing, builds the PTX and the program, and runs `halfgnn demo`. Where no device toolchain can be
/// had, the demo still runs, on the CPU.
pub fn run(options: &Options) -> Result<(), Failure> {
    match options.build.toolchain() {
        Ok(_) => build_ptx::run(&options.build)?,
        Err(failure) => eprintln!("no PTX, so the demo runs without a GPU: {failure}"),
    }
    let mut demo = workspace::cargo();
    demo.args([
        "run",
        "--release",
        "--bin",
        "halfgnn",
        "--features",
        "cuda",
        "--",
        "demo",
    ]);
    workspace::run(demo.args(&options.arguments))
}
