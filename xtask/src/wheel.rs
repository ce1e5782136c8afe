//! `cargo xtask wheel`: the Python package, with the kernels inside: PTX, and with `--release` machine code.

mod audit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::build_ptx::MachineCode;
use crate::target::{Target, install_library};
use crate::{Failure, build_ptx, notices, workspace};

/// What builds the wheel, from PyPI.
const MATURIN: &str = "maturin>=1.9,<2";

/// And what links it with a C library that is older than this machine's: the one of [`TAG`].
const ZIG: &str = "ziglang>=0.15,<1";

/// Where a wheel to use installs: on Linux with glibc 2.28, of 2018, or newer.
const TAG: &str = "manylinux_2_28";

/// Options of `wheel`.
#[derive(Args, Default)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Optimised, as a wheel to use is, for any Linux with glibc 2.28 or newer, linked by zig and then checked by auditwheel, both from
    /// PyPI; by default as tests are
    #[arg(long)]
    release: bool,
    /// Without zig and checks, for this machine's glibc or a newer one
    #[arg(long, requires = "release")]
    native: bool,
    /// For another system, linked by zig from PyPI and checked by auditwheel: `aarch64-unknown-linux-gnu`. It is not installed here;
    /// without `--release` it is as tests are
    #[arg(long, value_name = "TRIPLE", conflicts_with = "native")]
    target: Option<String>,
}

/// Builds the wheel and says where it is.
pub fn run(options: &Options) -> Result<(), Failure> {
    let wheel = build(options)?;
    let bytes = fs::metadata(&wheel)?.len();
    println!("{} ({} KiB)", wheel.display(), bytes.div_ceil(1024));
    Ok(())
}

impl Options {
    /// The system that the wheel is for, where it is not this machine's.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }
}

/// The wheel, in `target/wheels`.
pub fn build(options: &Options) -> Result<PathBuf, Failure> {
    let triple = options.target();
    let anywhere = options.release && !options.native || triple.is_some();
    let mut arch = std::env::consts::ARCH;
    if let Some(triple) = triple {
        let (its_arch, system) = Target::named(triple)?.arch_and_os();
        if system != "linux" {
            return Err(format!(
                "--target {triple}: wheels are linked for Linux here; on {system} itself, `maturin build --release` in python/ makes one"
            )
            .into());
        }
        arch = its_arch;
        install_library(triple)?;
    }
    let maturin = match anywhere {
        true => linking(&[audit::AUDITWHEEL], "auditwheel")?.join("maturin"),
        false => maturin()?,
    };
    // What is built for tests runs on no GPU, where assembling would be a minute of nothing.
    let code = match options.release {
        true => MachineCode::All,
        false => MachineCode::None,
    };
    let kernels = put_kernels(&options.build, code)?;
    let notices = notices::of("halfgnn-python", &["halfgnn-python/cuda"], triple)?;
    let package = workspace::root().join("python/halfgnn");
    fs::write(package.join(notices::FILE), notices)?;
    let wheels = workspace::target_dir().join("wheels");
    if wheels.exists() {
        // Of several versions it would be unclear which is meant.
        fs::remove_dir_all(&wheels)?;
    }
    let mut command = Command::new(&maturin);
    command.current_dir(workspace::root().join("python"));
    let how: &[&str] = match options.release {
        true => &["--release", "--features", "cuda"],
        false => &["--features", "cuda,built-on-tests"],
    };
    command.arg("build").args(how).arg("--out");
    command.arg(&wheels);
    if anywhere {
        // Which refuses what wants a newer library than this.
        command.args(["--zig", "--compatibility", TAG]);
        // Where it finds zig.
        let beside = maturin.parent().ok_or("maturin without a folder")?;
        command.env("PATH", workspace::path_with(beside)?);
    }
    if let Some(triple) = triple {
        command.args(["--target", triple]);
    }
    command.env("CARGO_TARGET_DIR", workspace::target_dir());
    workspace::run(&mut command)?;
    let mut built = fs::read_dir(&wheels)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = built
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .ok_or_else(|| format!("maturin left no wheel in {}", wheels.display()))?;
    has_notices(&wheel)?;
    if anywhere {
        let folder = workspace::target_dir().join("python");
        audit::check(
            &wheel,
            &folder.join("tools"),
            triple.is_none().then(|| folder.join("installed")),
            arch,
            &kernels,
        )?;
    }
    Ok(wheel)
}

/// That a wheel, which is a zip archive, has the notices of what is compiled into it.
fn has_notices(wheel: &Path) -> Result<(), Failure> {
    let mut list = Command::new("python3");
    let output = list.args(["-m", "zipfile", "-l"]).arg(wheel).output()?;
    let names = String::from_utf8_lossy(&output.stdout);
    match names.contains(notices::FILE) {
        true => Ok(()),
        false => Err(format!("{} lacks {}", wheel.display(), notices::FILE).into()),
    }
}

/// Writes the archive of kernels to where the package has it, and returns the names of the files.
fn put_kernels(options: &build_ptx::Options, code: MachineCode) -> Result<Vec<String>, Failure> {
    let folder = workspace::root().join("python/halfgnn/ptx");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(&folder)? {
        // Of another build.
        fs::remove_file(entry?.path())?;
    }
    let (name, archive) = build_ptx::archive(options, code)?;
    fs::write(folder.join(&name), archive)?;
    Ok(vec![name])
}

/// maturin: that which is installed, or one in a virtual environment of its own under `target`.
fn maturin() -> Result<PathBuf, Failure> {
    let installed = Command::new("maturin").arg("--version").output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Ok("maturin".into());
    }
    Ok(tools("maturin", &[MATURIN])?.join("maturin"))
}

/// A folder with maturin, zig, and a program of some more packages.
pub fn linking(packages: &[&str], program: &str) -> Result<PathBuf, Failure> {
    let packages = [&[MATURIN, ZIG], packages].concat();
    tools(program, &packages).map_err(|failure| {
        format!(
            "no zig from PyPI to link with for {TAG} ({failure}); take --native for a wheel for this machine's C library"
        )
        .into()
    })
}

/// The programs of a virtual environment of our own that has a program of these packages.
fn tools(program: &str, packages: &[&str]) -> Result<PathBuf, Failure> {
    let place = workspace::target_dir().join("python/tools");
    let folder = place.join("bin");
    if !folder.join("python").exists() {
        environment(&place)?;
    }
    if !folder.join(program).is_file() {
        pip(&place, packages)?;
    }
    Ok(folder)
}

/// A virtual environment in a folder, anew.
pub fn environment(place: &Path) -> Result<(), Failure> {
    let mut python = Command::new("python3");
    python.args(["-m", "venv", "--clear"]).arg(place);
    workspace::run(&mut python)
}

/// Installs packages into a virtual environment.
pub fn pip(place: &Path, packages: &[&str]) -> Result<(), Failure> {
    let mut pip = python_of(place);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    workspace::run(pip.args(packages))
}

/// The interpreter of a virtual environment.
pub fn python_of(place: &Path) -> Command {
    let mut python = Command::new(place.join("bin/python"));
    // What is beside the caller's folder is none of the packages under test.
    python.env_remove("PYTHONPATH");
    python
}
