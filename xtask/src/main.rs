//! What a person types: `cargo xtask setup | build-ptx | verify-ptx | test | demo | ci`.
//!
//! One file a task; this one is the command line.

mod build_ptx;
mod setup;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and shows HalfGNN.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what compiles kernels to PTX, if it is missing
    Setup(setup::Options),
    /// Compile the kernels to PTX, for sm_80 and sm_90, into target/ptx
    BuildPtx(build_ptx::Options),
}

/// A task's failure, for a person to read.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup(options) => setup::run(&options).map(drop),
        Task::BuildPtx(options) => build_ptx::run(&options).map(drop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
