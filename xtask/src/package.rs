//! `cargo xtask package`: the crates as they would be published, the kernels' PTX inside, and a program built from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::build_ptx::MachineCode;
use crate::target::Target;
use crate::{Failure, build_ptx, install, notices, workspace};

/// What is published, in the order in which one depends on the other.
const PACKAGES: [&str; 14] = [
    "halfgnn-platform",
    "halfgnn-contract",
    "ptx-syntax",
    "ptx-emulator",
    "halfgnn-manifest",
    "halfgnn-builder",
    "halfgnn-cuda-loader",
    "halfgnn-graph",
    "halfgnn-data",
    "halfgnn-device",
    "halfgnn-ops",
    "halfgnn",
    "halfgnn-bench",
    "halfgnn-cli",
];

/// Files without which a package is not whole.
const WANTED: [(&str, &[&str]); 14] = [
    ("halfgnn-platform", &["src/lib.rs", "LICENSE-MIT"]),
    (
        "halfgnn-contract",
        &["src/lib.rs", "build.rs", "LICENSE-MIT"],
    ),
    ("halfgnn-manifest", &["src/lib.rs", "LICENSE-MIT"]),
    ("ptx-syntax", &["src/lib.rs", "LICENSE-MIT"]),
    ("ptx-emulator", &["src/lib.rs", "LICENSE-MIT"]),
    ("halfgnn-builder", &["src/lib.rs", "LICENSE-MIT"]),
    (
        "halfgnn-cuda-loader",
        &["src/lib.rs", "link-stub/lib64/libcuda.so", "LICENSE-MIT"],
    ),
    ("halfgnn-graph", &["src/lib.rs", "LICENSE-MIT"]),
    ("halfgnn-data", &["src/lib.rs", "LICENSE-MIT"]),
    (
        "halfgnn-device",
        &[
            "src/lib.rs",
            "build.rs",
            "LICENSE-MIT",
            "ptx/halfgnn.kernels.zip",
        ],
    ),
    ("halfgnn-ops", &["src/lib.rs", "LICENSE-MIT"]),
    (
        "halfgnn",
        &["src/lib.rs", "README.md", "LICENSE-MIT", "examples/spmm.rs"],
    ),
    (
        "halfgnn-bench",
        &["src/lib.rs", "src/report/page.html", "LICENSE-MIT"],
    ),
    (
        "halfgnn-cli",
        &["src/main.rs", "README.md", "LICENSE-MIT", notices::FILE],
    ),
];

/// What crates.io takes, in bytes.
const LARGEST: u64 = 10 << 20;

/// Options of `package`.
#[derive(Args, Default)]
pub struct Options {
    #[command(flatten)]
    build: build_ptx::Options,
    /// Build the program instead, with machine code for every GPU, and pack it with its kernels for another machine
    #[arg(long, conflicts_with = "check")]
    program: bool,
    /// The program (as `--program`) for another system: `aarch64-unknown-linux-gnu`, linked by zig from PyPI, or
    /// `x86_64-pc-windows-gnu`, by mingw
    #[arg(long, value_name = "TRIPLE", conflicts_with = "check")]
    target: Option<String>,
    /// Also build and run `examples/own_kernels` from the packages, without the network
    #[arg(long)]
    check: bool,
}

impl Options {
    /// With the check that the packages can be built from.
    pub fn checked() -> Self {
        Self {
            check: true,
            ..Self::default()
        }
    }
}

/// Builds the PTX, packs, looks at what was packed, and builds from it if asked to.
pub fn run(options: &Options) -> Result<(), Failure> {
    let target = options.target.as_deref().map(Target::named).transpose()?;
    if options.program || target.is_some() {
        if let Some(target) = target {
            eprintln!(
                "--target packs the program for {}, as --program does for this machine; crates are the same for every system",
                target.triple
            );
        }
        let archive = install::pack(&options.build, target)?;
        let bytes = fs::metadata(&archive)?.len();
        println!("{} ({} KiB)", archive.display(), bytes.div_ceil(1024));
        return Ok(());
    }
    pack(&options.build)?;
    let unpacked = unpack()?;
    if options.check {
        build_from(&unpacked)?;
    }
    Ok(())
}

/// Packs a copy of the workspace that has the PTX where the library's build script looks. In the workspace itself whatever is built meanwhile
/// would embed it, and PTX that was left there would hide fresher PTX.
fn pack(options: &build_ptx::Options) -> Result<(), Failure> {
    let copy = workspace::target_dir().join("package/workspace");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    for file in workspace::files()? {
        let (from, to) = (workspace::root().join(&file), copy.join(&file));
        // What is deleted and still tracked is not there.
        if from.is_file() {
            fs::create_dir_all(to.parent().ok_or("a file without a folder")?)?;
            fs::copy(from, to)?;
        }
    }
    // PTX alone: with machine code the package would be larger than crates.io takes.
    let (name, archive) = build_ptx::archive(options, MachineCode::None)?;
    fs::write(copy.join("host/device/ptx").join(name), archive)?;
    let notices = notices::of(
        "halfgnn-cli",
        &["halfgnn-cli/cuda", "halfgnn-cli/parquet"],
        None,
    )?;
    fs::write(copy.join("host/cli").join(notices::FILE), notices)?;
    let mut cargo = workspace::cargo();
    // What is built from them is built below; no file of the copy is tracked, which is what --allow-dirty is for.
    cargo.args(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    for package in PACKAGES {
        cargo.args(["--package", package]);
    }
    cargo.current_dir(&copy);
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir());
    workspace::run(&mut cargo)
}

/// Unpacks every package beside itself; the folder of each.
fn unpack() -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let folder = workspace::target_dir().join("package");
    let mut unpacked = Vec::new();
    for (package, wanted) in WANTED {
        let name = format!("{package}-{}", env!("CARGO_PKG_VERSION"));
        let archive = folder.join(format!("{name}.crate"));
        let place = folder.join("unpacked").join(&name);
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir_all(folder.join("unpacked"))?;
        // With the time of now (-m): cargo tells by it what to build anew, and a package's files all have one and the same.
        let mut tar = Command::new("tar");
        tar.arg("-xzmf").arg(&archive);
        tar.arg("-C").arg(folder.join("unpacked"));
        workspace::run(&mut tar)?;
        if let Some(missing) = wanted.iter().find(|file| !place.join(file).is_file()) {
            return Err(format!("{name} lacks {missing}").into());
        }
        let bytes = fs::metadata(&archive)?.len();
        if bytes > LARGEST {
            return Err(format!("{name} has {bytes} bytes, crates.io takes {LARGEST}").into());
        }
        println!("{} ({} KiB)", archive.display(), bytes.div_ceil(1024));
        unpacked.push((package, place));
    }
    Ok(unpacked)
}

/// Runs the example that is a crate of its own, with the packages in the place of the clone.
fn build_from(unpacked: &[(&'static str, PathBuf)]) -> Result<(), Failure> {
    let example = workspace::root().join("examples/own_kernels");
    // The versions that the workspace was tested with, which have been downloaded.
    fs::copy(
        workspace::root().join("Cargo.lock"),
        example.join("Cargo.lock"),
    )?;
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--offline", "--manifest-path"]);
    cargo.arg(example.join("Cargo.toml"));
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("embed"));
    // Nobody debugs it, and half of its compile time would be that.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    // The PTX is in the package.
    cargo.env_remove("HALFGNN_PTX_DIR");
    for (package, place) in unpacked {
        cargo.arg("--config").arg(patch(package, place));
    }
    workspace::run(&mut cargo)
}

/// A setting that makes cargo take a package from a folder.
fn patch(package: &str, place: &Path) -> String {
    // Quoted as Rust does it, a path is a TOML string as well, but for characters that no one's folder has.
    format!("patch.crates-io.{package}.path={place:?}")
}
