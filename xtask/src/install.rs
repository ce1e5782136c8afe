//! `cargo xtask install`: the program and its kernels, where the shell finds them; and both as an archive for another machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use halfgnn_builder::{write_atomically, write_executable};

use crate::build_ptx::{self, MachineCode};
use crate::target::Target;
use crate::{Failure, notices, workspace};

/// Options of `install`.
#[derive(Args, Default)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Folder that gets `bin/halfgnn` [default: cargo's own, whose `bin` is on the PATH]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Without CUDA and without kernels: the program then trains on the CPU
    #[arg(long)]
    cpu: bool,
}

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    /// Quick to build: what launches kernels is not optimised.
    Quick,
    /// As packages have it.
    Release,
}

impl Profile {
    /// The profile's name, which is that of its folder as well.
    fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Release => "release",
        }
    }

    /// The program's features, in the place of its default ones. A GPU takes the place of the emulator, for which all that is generic over
    /// devices would be compiled once more.
    fn features(self) -> Option<&'static str> {
        match self {
            Profile::Quick => Some("bench"),
            Profile::Release => None,
        }
    }
}

/// Builds program and kernels side by side, and puts them into the folder.
pub fn run(options: &Options) -> Result<(), Failure> {
    let bin = match &options.root {
        Some(root) => std::path::absolute(root)?.join("bin"),
        None => cargo_home()?.join("bin"),
    };
    let kernels = match options.cpu {
        true => None,
        false => Some((&options.build, MachineCode::None)),
    };
    // Without a GPU the program itself computes.
    let profile = match options.cpu {
        true => Profile::Release,
        false => Profile::Quick,
    };
    let program = put(&bin, profile, kernels, None)?;
    println!("{}", program.display());
    let on_path =
        env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder == bin));
    if !on_path {
        println!(
            "{} is not on the PATH: call the program by its path, or add the folder",
            bin.display()
        );
    }
    Ok(())
}

/// Builds the program as packages have it, for this machine or another, with machine code for every GPU, and packs both; returns the
/// archive. A kernel's machine code is the same on every machine.
pub fn pack(
    options: &build_ptx::Options,
    target: Option<&'static Target>,
) -> Result<PathBuf, Failure> {
    let own = (env::consts::ARCH, env::consts::OS);
    let (arch, os) = target.map_or(own, Target::arch_and_os);
    let name = format!("halfgnn-{}-{arch}-{os}", env!("CARGO_PKG_VERSION"));
    let folder = workspace::target_dir().join("package");
    let place = folder.join(&name);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    put(
        &place.join("bin"),
        Profile::Release,
        Some((options, MachineCode::All)),
        target,
    )?;
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(workspace::root().join(file), place.join(file))?;
    }
    let triple = target.map(|target| target.triple);
    let notices = notices::of("halfgnn-cli", &["halfgnn-cli/cuda"], triple)?;
    fs::write(place.join(notices::FILE), notices)?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(&folder)
        .arg("-czf")
        .arg(&archive)
        .arg(&name);
    workspace::run(&mut tar)?;
    Ok(archive)
}

/// Gives this process and what it starts from now on a lower priority, where the system has `renice`.
fn yield_cores() {
    let own = std::process::id().to_string();
    let mut renice = Command::new("renice");
    renice.args(["-n", "10", "-p", &own]);
    let _ = renice.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Puts the program into `bin`, and its kernels into the folder `ptx` in it, where the program looks.
fn put(
    bin: &Path,
    profile: Profile,
    kernels: Option<(&build_ptx::Options, MachineCode)>,
    target: Option<&'static Target>,
) -> Result<PathBuf, Failure> {
    let mut cargo = match target {
        Some(target) => target.build()?,
        None => {
            let mut cargo = workspace::cargo();
            cargo.arg("build");
            cargo
        }
    };
    cargo.args(["--locked", "--profile", profile.name()]);
    cargo.args(["--package", "halfgnn-cli", "--bin", "halfgnn"]);
    if let Some(features) = profile.features() {
        cargo.args(["--no-default-features", "--features", features]);
    }
    if kernels.is_some() {
        cargo.args(["--features", "cuda"]);
    }
    // Where there are kernels to build, cores that one of the two leaves idle are the other's. Crates wait for one another, so they come
    // first.
    let mut building = cargo.spawn()?;
    if kernels.is_some() {
        yield_cores();
    }
    let archive = kernels.map(|(options, code)| build_ptx::archive(options, code));
    let built = building.wait()?;
    let archive = archive.transpose()?;
    if !built.success() {
        return Err(format!("the program does not build ({built})").into());
    }
    let own = || format!("halfgnn{}", env::consts::EXE_SUFFIX);
    let name = target.map_or_else(own, |target| target.program("halfgnn"));
    let built = workspace::target_dir().join(target.map_or("", |target| target.triple));
    let from = built.join(profile.name()).join(&name);
    let program = bin.join(&name);
    fs::create_dir_all(bin)?;
    write_executable(&program, &fs::read(&from)?)?;
    if let Some((name, archive)) = archive {
        let folder = bin.join("ptx");
        fs::create_dir_all(&folder)?;
        write_atomically(&folder.join(name), &archive)?;
    }
    Ok(program)
}

/// cargo's folder, as rustup and cargo find it.
fn cargo_home() -> Result<PathBuf, Failure> {
    if let Some(home) = env::var_os("CARGO_HOME").filter(|home| !home.is_empty()) {
        return Ok(std::path::absolute(home)?);
    }
    let home = env::home_dir().ok_or("no home folder; take --root FOLDER")?;
    Ok(home.join(".cargo"))
}
