//! Finds a toolchain that can compile Rust for `nvptx64-nvidia-cuda`.
//!
//! Such a toolchain is a rustc that takes nightly features, the sources of `core`, and LLVM's
//! `llvm-link`, `opt` and `llc` of the LLVM that this rustc was built with. Three places are looked at, in
//! this order:
//!
//! 1. the variable `HALFGNN_DEVICE_RUSTC` (with `HALFGNN_DEVICE_CARGO` and `HALFGNN_DEVICE_LLVM`);
//! 2. a rustup nightly with the components `rust-src` and `llvm-tools`;
//! 3. the distribution's own: `rustc-web`, `cargo-web`, `rust-web-src` and `llvm-22` on Debian 12.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BuildError;

/// The nightly that [`find`] prefers and that `cargo xtask setup` installs.
pub const PINNED_NIGHTLY: &str = "nightly-2026-05-20";

/// The first rustc that marks every function of a GPU target `convergent`. Older ones let the
/// optimiser duplicate barriers and shuffles (rust-lang/rust#137086, fixed by #149637 and #153995).
const OLDEST_RUSTC: (u32, u32) = (1, 96);

/// Names a rustc by its path, and overrides the search.
pub const RUSTC_VARIABLE: &str = "HALFGNN_DEVICE_RUSTC";
/// Names the cargo that goes with [`RUSTC_VARIABLE`]; by default the one next to that rustc.
pub const CARGO_VARIABLE: &str = "HALFGNN_DEVICE_CARGO";
/// Names the folder of `llvm-link`, `opt` and `llc`; searched for if unset.
pub const LLVM_VARIABLE: &str = "HALFGNN_DEVICE_LLVM";

const LLVM_TOOLS: [&str; 3] = ["llvm-link", "opt", "llc"];

/// A toolchain that compiles Rust to PTX: every path exists and the versions fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Path of `cargo`, never a rustup proxy.
    pub cargo: PathBuf,
    /// Path of `rustc`, never a rustup proxy.
    pub rustc: PathBuf,
    /// Folder of `llvm-link`, `opt` and `llc`.
    pub llvm_bin: PathBuf,
    /// Folder of the library sources, which holds `core/`.
    pub library: PathBuf,
    /// What `rustc -vV` says in its first line, e.g. `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub version: String,
    /// The LLVM that this rustc was built with, e.g. `22.1.8`.
    pub llvm_version: String,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, LLVM {} ({})",
            self.version,
            self.llvm_version,
            self.rustc.display()
        )
    }
}

impl Toolchain {
    /// Path of one of LLVM's programs.
    pub fn llvm(&self, tool: &str) -> PathBuf {
        self.llvm_bin.join(tool)
    }
}

/// Where [`find_in`] looks. [`Places::from_env`] gives those of this machine; tests give their own.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// An explicit rustc ([`RUSTC_VARIABLE`]); nothing else is looked at when it is set.
    pub rustc: Option<PathBuf>,
    /// An explicit cargo ([`CARGO_VARIABLE`]).
    pub cargo: Option<PathBuf>,
    /// An explicit folder of LLVM's programs ([`LLVM_VARIABLE`]).
    pub llvm_bin: Option<PathBuf>,
    /// rustup's home, which holds `toolchains/`.
    pub rustup_home: Option<PathBuf>,
    /// The prefix of the distribution's packages, `/usr`: its rustc, and its LLVM for a rustc that has none of its own.
    pub system: Option<PathBuf>,
}

impl Places {
    /// The places of this machine, from the environment.
    pub fn from_env() -> Self {
        let path = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        Self {
            rustc: path(RUSTC_VARIABLE),
            cargo: path(CARGO_VARIABLE),
            llvm_bin: path(LLVM_VARIABLE),
            rustup_home: path("RUSTUP_HOME")
                .or_else(|| path("HOME").map(|home| home.join(".rustup"))),
            system: Some(PathBuf::from("/usr")),
        }
    }
}

/// Finds the device toolchain of this machine.
///
/// # Errors
/// [`BuildError::NoToolchain`], which lists every place that was looked at and why it would not do.
pub fn find() -> Result<Toolchain, BuildError> {
    find_in(&Places::from_env())
}

/// Finds the device toolchain in the given places.
///
/// # Errors
/// As [`find`].
pub fn find_in(places: &Places) -> Result<Toolchain, BuildError> {
    let mut rejected = Vec::new();
    let mut consider = |candidate: Candidate| match candidate.inspect(places) {
        Ok(toolchain) => Some(toolchain),
        Err(reason) => {
            rejected.push(format!("{}: {reason}", candidate.origin));
            None
        }
    };

    if let Some(rustc) = &places.rustc {
        let candidate = Candidate {
            origin: format!("{RUSTC_VARIABLE}={}", rustc.display()),
            rustc: rustc.clone(),
        };
        if let Some(toolchain) = consider(candidate) {
            return Ok(toolchain);
        }
        return Err(BuildError::NoToolchain { rejected });
    }

    let nightlies = match &places.rustup_home {
        Some(home) => rustup_nightlies(home),
        None => Vec::new(),
    };
    let no_nightly = nightlies.is_empty();
    for directory in nightlies {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let candidate = Candidate {
            origin: format!("rustup toolchain {name}"),
            rustc: directory.join("bin/rustc"),
        };
        if let Some(toolchain) = consider(candidate) {
            return Ok(toolchain);
        }
    }
    for rustc in places
        .system
        .iter()
        .flat_map(|prefix| system_rustcs(prefix))
    {
        let candidate = Candidate {
            origin: format!("distribution's {}", rustc.display()),
            rustc,
        };
        if let Some(toolchain) = consider(candidate) {
            return Ok(toolchain);
        }
    }
    if no_nightly {
        let home = match &places.rustup_home {
            Some(home) => home.join("toolchains").display().to_string(),
            None => "(RUSTUP_HOME and HOME are unset)".to_owned(),
        };
        rejected.insert(0, format!("rustup: no nightly toolchain in {home}"));
    }
    Err(BuildError::NoToolchain { rejected })
}

/// rustup's nightlies, the pinned one first, then by name from the newest date down.
fn rustup_nightlies(home: &Path) -> Vec<PathBuf> {
    let Ok(entries) = home.join("toolchains").read_dir() else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("nightly"))
        .collect();
    names.sort_unstable_by(|a, b| {
        let pinned = |name: &String| name.starts_with(PINNED_NIGHTLY);
        pinned(b).cmp(&pinned(a)).then_with(|| b.cmp(a))
    });
    names
        .into_iter()
        .map(|name| home.join("toolchains").join(name))
        .collect()
}

/// `PREFIX/bin/rustc`, and `PREFIX/lib/rust-1.NN/bin/rustc` as Ubuntu's versioned packages have it, newest first.
fn system_rustcs(prefix: &Path) -> Vec<PathBuf> {
    let mut versioned: Vec<(u32, PathBuf)> = prefix
        .join("lib")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let minor = name.strip_prefix("rust-1.")?.parse().ok()?;
            Some((minor, entry.path().join("bin/rustc")))
        })
        .collect();
    versioned.sort_unstable_by_key(|(minor, _)| std::cmp::Reverse(*minor));
    std::iter::once(prefix.join("bin/rustc"))
        .chain(versioned.into_iter().map(|(_, path)| path))
        .collect()
}

struct Candidate {
    origin: String,
    rustc: PathBuf,
}

impl Candidate {
    fn inspect(&self, places: &Places) -> Result<Toolchain, String> {
        let rustc = &self.rustc;
        if !rustc.is_file() {
            return Err(format!("there is no {}", rustc.display()));
        }
        let about = ask(rustc, &["-vV"])?;
        let field = |key: &str| {
            about
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
        };
        let version = about.lines().next().unwrap_or_default().to_owned();
        let release = field("release:").ok_or("`rustc -vV` names no release")?;
        let llvm_version = field("LLVM version:")
            .ok_or("`rustc -vV` names no LLVM version")?
            .to_owned();
        let host = field("host:").ok_or("`rustc -vV` names no host")?;
        let too_old = match major_minor(release) {
            Some(found) => found < OLDEST_RUSTC,
            None => true,
        };
        if too_old {
            let (major, minor) = OLDEST_RUSTC;
            return Err(format!(
                "rustc {release} is older than {major}.{minor}, and may duplicate barriers"
            ));
        }

        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"])?.trim());
        let library = sysroot.join("lib/rustlib/src/rust/library");
        if !library.join("core/src/lib.rs").is_file() {
            return Err(format!(
                "the sources of core are missing (component rust-src, or Debian's rust-web-src): no {}",
                library.join("core").display()
            ));
        }
        let cargo = match &places.cargo {
            Some(cargo) if places.rustc.is_some() => cargo.clone(),
            _ => rustc.with_file_name("cargo"),
        };
        if !cargo.is_file() {
            return Err(format!("there is no {}", cargo.display()));
        }
        let llvm_bin = find_llvm(places, &sysroot, host, &llvm_version)?;
        Ok(Toolchain {
            cargo,
            rustc: rustc.clone(),
            llvm_bin,
            library,
            version,
            llvm_version,
        })
    }
}

/// The folder of LLVM's programs: the explicit one, the rustup component's, the distribution's.
fn find_llvm(
    places: &Places,
    sysroot: &Path,
    host: &str,
    version: &str,
) -> Result<PathBuf, String> {
    let major = version.split('.').next().unwrap_or(version);
    let folders = match &places.llvm_bin {
        Some(folder) => vec![folder.clone()],
        None => std::iter::once(sysroot.join("lib/rustlib").join(host).join("bin"))
            .chain(
                places
                    .system
                    .as_ref()
                    .map(|prefix| prefix.join(format!("lib/llvm-{major}/bin"))),
            )
            .collect(),
    };
    let mut reasons = Vec::new();
    for folder in &folders {
        match check_llvm(folder, major) {
            Ok(()) => return Ok(folder.clone()),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(format!(
        "LLVM {major}'s programs are missing (component llvm-tools, or the package llvm-{major}): {}",
        reasons.join("; ")
    ))
}

fn check_llvm(folder: &Path, major: &str) -> Result<(), String> {
    for tool in LLVM_TOOLS {
        let path = folder.join(tool);
        if !path.is_file() {
            return Err(format!("no {}", path.display()));
        }
    }
    let answer = ask(&folder.join("llc"), &["--version"])?;
    let found = answer
        .split_once("LLVM version ")
        .and_then(|(_, rest)| rest.split(['.', '\n']).next())
        .unwrap_or("unknown");
    if found == major {
        Ok(())
    } else {
        Err(format!(
            "{} is LLVM {found}, not {major}",
            folder.join("llc").display()
        ))
    }
}

fn major_minor(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Runs a program of a candidate, free of the variables by which a parent cargo would steer it.
fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTFLAGS")
        .output()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "`{} {}` failed: {}",
            program.display(),
            arguments.join(" "),
            stderr.lines().next().unwrap_or("no message")
        ))
    }
}
