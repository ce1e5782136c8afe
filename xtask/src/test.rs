//! `cargo xtask test`: all tests, on PTX that is fresh.

use clap::Args;

use crate::{Failure, build_ptx, setup, workspace};

/// Set for the tests: what needs PTX then fails without it, where a plain `cargo test` would pass it over.
pub const REQUIRE_PTX: &str = "HALFGNN_REQUIRE_PTX";

/// Options of `test`.
#[derive(Args, Default)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Given to `cargo test`, such as `-p halfgnn` or a test's name
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Builds the PTX, then runs the tests.
pub fn run(options: &Options) -> Result<(), Failure> {
    build_ptx::run(&options.build)?;
    let mut test = workspace::cargo();
    test.arg("test").env(REQUIRE_PTX, "1");
    if let Ok(ptxas) = setup::find_ptxas() {
        test.env(halfgnn_builder::ptxas::PTXAS_VARIABLE, ptxas.path);
    }
    if options.arguments.is_empty() {
        test.arg("--workspace");
    }
    workspace::run(test.args(&options.arguments))
}
