//! `cargo xtask demo`: from nothing to the comparison that this project exists for.

use clap::Args;
use std::path::Path;

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

/// Installs what is missing, builds the PTX and as much of the program as the demo needs, and runs `halfgnn demo`. Where no device toolchain can be
/// had, the demo still runs, on the CPU; and where nothing would read the PTX, it is not built.
pub fn run(options: &Options) -> Result<(), Failure> {
    let on_card = wants_kernels(&options.arguments, has_driver());
    if !on_card {
        eprintln!(
            "the demo runs on the CPU, so that no kernels are built; `cargo xtask build-ptx` builds them"
        );
    } else {
        match options.build.toolchain() {
            Ok(_) => build_ptx::run(&options.build)?,
            Err(failure) => eprintln!("no PTX, so the demo runs without a GPU: {failure}"),
        }
    }
    // Without what only other commands want, and with a profile that is quick to build.
    let mut demo = workspace::cargo();
    demo.args(["run", "--profile", "demo", "--package", "halfgnn-cli"]);
    demo.arg("--no-default-features");
    if on_card {
        demo.args(["--features", "cuda,emulator"]);
    }
    workspace::run(demo.args(["--", "demo"]).args(&options.arguments))
}

/// Whether the demo runs kernels: as its `--device` says, and by itself where there is a GPU's driver.
fn wants_kernels(arguments: &[String], has_driver: bool) -> bool {
    let mut words = arguments.iter().map(String::as_str);
    let device = words.find_map(|word| match word.strip_prefix("--device") {
        Some("") => Some(None),
        Some(rest) => rest.strip_prefix('=').map(Some),
        None => None,
    });
    // What follows `--device` is its value.
    let device = device.map(|given| given.or_else(|| words.next()).unwrap_or_default());
    match device {
        Some("cpu") => false,
        Some("cuda" | "emulator") => true,
        _ => has_driver,
    }
}

/// Whether NVIDIA's driver is loaded, also below Windows.
fn has_driver() -> bool {
    ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"]
        .iter()
        .any(|path| Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_built_where_something_runs_them() {
        let wants = |line: &str, has_driver| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            wants_kernels(&words, has_driver)
        };
        for (line, without, with) in [
            ("", false, true),
            ("--epochs 3", false, true),
            ("--device auto", false, true),
            ("--device cpu", false, false),
            ("--epochs 3 --device=cpu", false, false),
            ("--device cuda", true, true),
            ("--device=emulator", true, true),
        ] {
            assert_eq!(
                (wants(line, false), wants(line, true)),
                (without, with),
                "{line}"
            );
        }
    }
}
