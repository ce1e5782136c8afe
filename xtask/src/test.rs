//! `cargo xtask test`: all tests, on PTX that is fresh.

use std::fs;

use clap::Args;

use crate::target::Target;
use crate::{Failure, build_ptx, setup, workspace};

/// Set for the tests: what needs PTX then fails without it, where a plain `cargo test` would pass it over.
pub const REQUIRE_PTX: &str = "HALFGNN_REQUIRE_PTX";

/// The same for ptxas.
const REQUIRE_PTXAS: &str = "HALFGNN_REQUIRE_PTXAS";

/// A file in which tests note that they were passed over.
const SKIPPED: &str = "HALFGNN_SKIPPED";

/// Options of `test`.
#[derive(Args, Default)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Fail where ptxas is not found; by default the tests that want it are skipped
    #[arg(long)]
    require_ptxas: bool,
    /// Tests of another system, linked by Debian's cross compiler and run by an emulator (qemu, Wine): the CPU's tests and what differs
    /// between systems. No PTX is built, and nothing that needs root is installed
    #[arg(long, value_name = "TRIPLE", conflicts_with_all = ["require_ptxas", "no_setup", "archs"])]
    target: Option<String>,
    /// Given to `cargo test`, such as `-p halfgnn` or a test's name
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Options {
    /// All tests, those that want ptxas among them.
    pub fn with_ptxas() -> Self {
        Self {
            require_ptxas: true,
            ..Self::default()
        }
    }
}

/// What the workspace is tested with: the library can use cards, as the program that people install, and as the wheel, which is then built on it; and
/// MPI, where there is one.
pub const FEATURES: [&str; 2] = ["--features", "halfgnn-cli/cuda,halfgnn-cli/mpi"];

/// Compiles what [`run`] runs where no test is named. No PTX is needed yet.
pub fn compile() -> Result<(), Failure> {
    let mut test = workspace::cargo();
    workspace::run(
        test.args(["test", "--locked", "--no-run", "--workspace"])
            .args(FEATURES),
    )
}

/// Builds the PTX, runs the tests, and shows which of them were skipped. Of another system no PTX is built.
pub fn run(options: &Options) -> Result<(), Failure> {
    if let Some(triple) = &options.target {
        return Target::named(triple)?.test(&options.arguments);
    }
    build_ptx::run(&options.build)?;
    let skipped = workspace::target_dir().join("skipped.txt");
    fs::write(&skipped, "")?;
    let mut test = workspace::cargo();
    test.arg("test")
        .env(REQUIRE_PTX, "1")
        .env(SKIPPED, &skipped);
    if options.require_ptxas {
        test.env(REQUIRE_PTXAS, "1");
    }
    if let Ok(ptxas) = setup::find_ptxas() {
        test.env(halfgnn_builder::ptxas::PTXAS_VARIABLE, ptxas.path);
    }
    if options.arguments.is_empty() {
        // What else fails is told as well.
        test.args(["--locked", "--workspace", "--no-fail-fast"])
            .args(FEATURES);
    }
    let result = workspace::run(test.args(&options.arguments));
    let lines = fs::read_to_string(&skipped)?;
    eprint!("{lines}");
    eprintln!("{} tests were skipped", lines.lines().count());
    result
}
