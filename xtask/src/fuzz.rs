//! `cargo xtask fuzz`: what reads files and texts, fed with what no writer would write.

use clap::Args;
use std::path::PathBuf;

use crate::{Failure, test, workspace};

/// Options of `fuzz`.
#[derive(Args)]
pub struct Options {
    /// Targets; all of them by default
    targets: Vec<String>,
    /// Seconds in all, shared by the targets
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the inputs; another one each time by default
    #[arg(long)]
    seed: Option<u64>,
    /// Feeds this file alone
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

impl Options {
    /// All targets for a minute in all.
    pub fn of_a_minute(seed: Option<u64>) -> Self {
        Self {
            targets: Vec::new(),
            seconds: 60,
            seed,
            input: None,
        }
    }
}

/// Builds the fuzzer as the tests are built, with checks of overflow, and runs it.
pub fn run(options: &Options) -> Result<(), Failure> {
    let mut fuzz = workspace::cargo();
    // By the whole workspace's features and not by its package's: what the tests were built from would be built again.
    fuzz.args(["run", "--quiet", "--bin", "halfgnn-fuzz"]);
    fuzz.args(test::FEATURES).arg("--");
    fuzz.args(&options.targets);
    fuzz.arg("--seconds").arg(options.seconds.to_string());
    if let Some(seed) = options.seed {
        fuzz.arg("--seed").arg(seed.to_string());
    }
    if let Some(input) = &options.input {
        // cargo starts it in the workspace's root.
        fuzz.arg("--input").arg(std::path::absolute(input)?);
    }
    workspace::run(&mut fuzz)
}
