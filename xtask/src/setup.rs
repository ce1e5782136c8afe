//! `cargo xtask setup`: the device toolchain, installed where it is missing.

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use clap::Args;
use halfgnn_builder::toolchain::{self, PINNED_NIGHTLY, Toolchain};

use crate::{Failure, workspace};

/// Debian 12's packages: rustc 1.96 and its library's sources, and LLVM 22.
const APT_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "llvm-22"];

/// Options of `setup`.
#[derive(Args, Default)]
pub struct Options {
    /// Only say whether a device toolchain is there
    #[arg(long)]
    pub check: bool,
}

/// Finds the device toolchain, and installs one if there is none: by rustup, else by apt, else the error holds the
/// commands to type.
pub fn run(options: &Options) -> Result<Toolchain, Failure> {
    let missing = match toolchain::find() {
        Ok(toolchain) => return Ok(report(toolchain)),
        Err(missing) => missing,
    };
    if options.check {
        return Err(missing.into());
    }
    eprintln!("No device toolchain yet; installing one.");
    let mut attempts = Vec::new();
    for install in [by_rustup, by_apt] {
        match install().and_then(|()| Ok(toolchain::find()?)) {
            Ok(toolchain) => return Ok(report(toolchain)),
            Err(failure) => {
                eprintln!("{failure}");
                attempts.push(failure.to_string());
            }
        }
    }
    Err(format!(
        "no device toolchain could be installed. Type one of these, then run this again:\n  rustup {}\n  sudo apt-get install \
         -y --no-install-recommends {}   (Debian 12)\nTried:\n  {}",
        rustup_arguments().join(" "),
        APT_PACKAGES.join(" "),
        attempts.join("\n  ")
    )
    .into())
}

fn report(toolchain: Toolchain) -> Toolchain {
    if std::io::stderr().is_terminal() {
        eprintln!("device toolchain: {toolchain}");
    }
    toolchain
}

fn rustup_arguments() -> [&'static str; 10] {
    [
        "toolchain",
        "install",
        PINNED_NIGHTLY,
        "--profile",
        "minimal",
        "-c",
        "rust-src",
        "-c",
        "llvm-tools",
        "--no-self-update",
    ]
}

fn by_rustup() -> Result<(), Failure> {
    workspace::run(Command::new("rustup").args(rustup_arguments()))
}

fn by_apt() -> Result<(), Failure> {
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return Err("apt-get is not on this machine".into());
    }
    let privilege: &[&str] = if is_root() {
        &[]
    } else if succeeds(Command::new("sudo").args(["-n", "true"])) {
        &["sudo", "-n"]
    } else {
        return Err("apt-get needs root, and sudo asks for a password".into());
    };
    let apt = |arguments: &[&str]| {
        let words: Vec<&str> = privilege
            .iter()
            .chain(&["apt-get"])
            .chain(arguments)
            .copied()
            .collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env("DEBIAN_FRONTEND", "noninteractive");
        workspace::run(&mut command)
    };
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(APT_PACKAGES);
    // The lists may be fresh already; if they are missing, the first attempt fails and costs nothing.
    apt(&install).or_else(|_| {
        apt(&["update"])?;
        apt(&install)
    })
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
