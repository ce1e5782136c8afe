//! Kernels crate in, unoptimised LLVM modules out: one of a crate with entries, or one for each module of a library.
//!
//! **A library** (`entries` in its metadata) is compiled once, to metadata that holds its generic functions. Then rustc
//! compiles the root of the entries for each module, with the names of the module's entries as `cfg`s, straight to
//! LLVM's text. Modules are compiled in parallel, and each holds the code of its own entries alone.
//!
//! **A crate with entries** is linked. rustc needs a linker. It gets a shell script that writes down its arguments, so
//! that the names to export are known, and runs `llvm-link`: what rustc takes for the finished cdylib is the bitcode of
//! the crate and of `core` in one module. rustc leaves the LLVM passes alone (`no-prepopulate-passes`), for two
//! reasons: the module is optimised once, as a whole, for each architecture; and no pass has run before
//! [`crate::convergence`] has marked what must not be duplicated.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::BuildError;
use crate::files;
use crate::package::Package;
use crate::toolchain::Toolchain;

/// rustc's target.
pub(crate) const TARGET: &str = "nvptx64-nvidia-cuda";

/// The crate and `core`, linked, not optimised.
#[derive(Debug)]
pub(crate) struct Bitcode {
    pub path: PathBuf,
    /// The symbols that rustc exports: kernels, and statics and functions under `no_mangle`.
    pub exports: Vec<String>,
}

/// A command for the device toolchain's cargo, free of what a parent cargo or the user's flags for the host would
/// impose on it: a build script's environment holds `CARGO`, `RUSTC`, `TARGET`, `CARGO_ENCODED_RUSTFLAGS`, ….
pub(crate) fn cargo(toolchain: &Toolchain) -> Command {
    let mut command = undisturbed(&toolchain.cargo);
    command
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "");
    command
}

/// Likewise its rustc.
fn rustc(toolchain: &Toolchain) -> Command {
    undisturbed(&toolchain.rustc)
}

/// A program of the device toolchain, which may use what is unstable.
fn undisturbed(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if steers_cargo(&name) {
            command.env_remove(name);
        }
    }
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

fn steers_cargo(name: &OsString) -> bool {
    const KEPT: [&str; 5] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
    ];
    const BUILD_SCRIPT: [&str; 7] = [
        "TARGET",
        "HOST",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
        "OUT_DIR",
        "NUM_JOBS",
    ];
    let Some(name) = name.to_str() else {
        return false;
    };
    if KEPT.iter().any(|kept| name.starts_with(kept))
        || matches!(name, "RUSTUP_HOME" | "RUST_BACKTRACE" | "RUST_LOG")
    {
        return false;
    }
    name == "CARGO"
        || name.starts_with("CARGO_")
        || name.starts_with("RUST")
        || name.starts_with("DEP_")
        || BUILD_SCRIPT.contains(&name)
}

/// Runs cargo for the crate in `work`, which several kernels crates may share: `core` is then compiled once for all of
/// them. Returns cargo's messages, one JSON object a line, and what rustc says. `color` lets rustc colour that.
fn build(
    package: &Package,
    toolchain: &Toolchain,
    work: &Path,
    color: bool,
) -> Result<(Vec<u8>, String), BuildError> {
    let linker = write_linker(toolchain, work)?;
    let color = if color { "always" } else { "never" };
    let mut cargo = cargo(toolchain);
    cargo
        .current_dir(&package.directory)
        .args([
            "build",
            "--quiet",
            "--release",
            "--lib",
            "-Zbuild-std=core",
            "--target",
            TARGET,
        ])
        .args(["--message-format=json-render-diagnostics", "--color", color])
        .arg("--target-dir")
        .arg(work.join("cargo"))
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("{NO_PASSES}\u{1f}{INLINE}"),
        )
        .env("CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER", &linker)
        .envs(PROFILE)
        .stdin(Stdio::null());
    if package.metadata.entries.is_some() {
        // Of a library most functions stay as they were between two builds.
        cargo.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
    }
    let output = cargo.output().map_err(BuildError::io(&toolchain.cargo))?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok((output.stdout, messages)),
        false => Err(failed(package, &messages)),
    }
}

fn failed(package: &Package, output: &str) -> BuildError {
    BuildError::Compile {
        package: package.name.clone(),
        output: output.trim_end().to_owned(),
    }
}

/// Compiles and links a crate with entries.
pub(crate) fn compile(
    package: &Package,
    toolchain: &Toolchain,
    work: &Path,
    color: bool,
) -> Result<(Bitcode, String), BuildError> {
    let (output, messages) = build(package, toolchain, work, color)?;
    let path = artifacts(&output)
        .filter(|artifact| artifact.is_of(&package.directory))
        .flat_map(|artifact| artifact.filenames)
        .find(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .ok_or_else(|| failed(package, "cargo named no .ptx among its products"))?;
    let record = path.with_file_name("deps").join(record_name(&path));
    let arguments = fs::read_to_string(&record).map_err(BuildError::io(&record))?;
    let exports = exports(&arguments);
    Ok((Bitcode { path, exports }, messages))
}

/// The edition that the root of the entries is written in.
const EDITION: &str = "2024";

/// A compiled library of kernels, which the root of its entries is compiled with.
#[derive(Debug)]
pub(crate) struct Library {
    /// `--extern` arguments of the library and of what it depends on.
    externs: Vec<OsString>,
    /// The folder of all of them.
    deps: PathBuf,
    /// The root of the entries.
    root: PathBuf,
}

/// Compiles a library of kernels.
pub(crate) fn library(
    package: &Package,
    root: &Path,
    toolchain: &Toolchain,
    work: &Path,
    color: bool,
) -> Result<(Library, String), BuildError> {
    let (output, messages) = build(package, toolchain, work, color)?;
    let mut externs = Vec::new();
    let mut deps = None;
    for artifact in artifacts(&output) {
        // A library for the host, such as a procedural macro, has no `.rmeta` below the target's folder.
        let mut files = artifact.filenames.iter();
        let Some(file) = files.find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "rmeta")
                && path.components().any(|part| part.as_os_str() == TARGET)
        }) else {
            continue;
        };
        let name = artifact.target.name.replace('-', "_");
        // What comes with the compiler is not for `use` without a path.
        let own = package.source_roots.iter().any(|root| artifact.is_of(root));
        let mut argument = OsString::from(if own { "" } else { "noprelude:" });
        argument.push(format!("{name}="));
        argument.push(file);
        externs.push(argument);
        deps = file.parent().map(Path::to_path_buf);
    }
    let deps = deps.ok_or_else(|| failed(package, "cargo named no library among its products"))?;
    let library = Library {
        externs,
        deps,
        root: root.to_path_buf(),
    };
    Ok((library, messages))
}

impl Library {
    /// Compiles the root with these entries to LLVM's text in `output`, whose name without its end becomes the crate's.
    pub fn compile(
        &self,
        package: &Package,
        toolchain: &Toolchain,
        entries: &[String],
        output: &Path,
        color: bool,
    ) -> Result<(), BuildError> {
        let mut rustc = rustc(toolchain);
        // rustc's temporary files are in its current folder, named after the crate: those of two modules must differ.
        let name = output
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace(['-', '.'], "_");
        rustc.current_dir(output.parent().unwrap_or(Path::new(".")));
        rustc
            .args(["--crate-name", &name, "--crate-type", "lib"])
            .args(["--edition", EDITION, "--target", TARGET])
            .args(["--color", if color { "always" } else { "never" }])
            // The same words for each module otherwise; what is wrong with the root is an error.
            .args(["--cap-lints", "allow", "-Zunstable-options"])
            .args([
                "-Copt-level=3",
                "-Cpanic=abort",
                "-Ccodegen-units=1",
                NO_PASSES,
                INLINE,
            ])
            .arg("-Cdebuginfo=line-directives-only")
            .arg("-L")
            .arg(concatenated("dependency=", &self.deps));
        for argument in &self.externs {
            rustc.arg("--extern").arg(argument);
        }
        for entry in entries {
            rustc.args(["--cfg", entry]);
        }
        let run = rustc
            .arg(concatenated("--emit=llvm-ir=", output))
            .arg(&self.root)
            .stdin(Stdio::null())
            .output()
            .map_err(BuildError::io(&toolchain.rustc))?;
        match run.status.success() {
            true => Ok(()),
            false => Err(failed(package, &String::from_utf8_lossy(&run.stderr))),
        }
    }
}

fn concatenated(head: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(head);
    argument.push(path);
    argument
}

/// LLVM's passes run later, all at once: see the head of this file.
const NO_PASSES: &str = "-Cno-prepopulate-passes";

/// rustc inlines functions before it makes LLVM's text, as it does of itself where a build is not incremental: what
/// LLVM makes of kernels must not depend on that.
const INLINE: &str = "-Zinline-mir=yes";

/// Where the linker script writes its arguments, next to rustc's output `NAME.ptx`.
fn record_name(output: &Path) -> OsString {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".arguments");
    name
}

/// The release profile, whatever the crate's manifest says: `.loc` lines and no other debug information, since that
/// is all that PTX can use; no overflow checks, since a panic cannot be reported.
const PROFILE: [(&str, &str); 9] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-directives-only"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
];

/// Writes the script that rustc calls as its linker; leaves the file alone when it is right, so that cargo sees no
/// change.
fn write_linker(toolchain: &Toolchain, work: &Path) -> Result<PathBuf, BuildError> {
    fs::create_dir_all(work).map_err(BuildError::io(work))?;
    let path = work.join("linker.sh");
    let script = format!(
        r#"#!/bin/sh
# rustc's linker for {TARGET}: keeps its arguments for the builder, and links the bitcode.
arguments=$(printf '%s\n' "$@")
output=
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
        -o) output=$1; shift; count=$((count - 1)) ;;
        *.o | *.rlib) set -- "$@" "$argument" ;;
    esac
done
printf '%s\n' "$arguments" > "$output.arguments"
exec {llvm_link} --ignore-non-bitcode -o "$output" "$@"
"#,
        llvm_link = quote(&toolchain.llvm("llvm-link")),
    );
    if fs::read_to_string(&path).is_ok_and(|old| old == script) {
        return Ok(path);
    }
    files::write_executable(&path, script.as_bytes())?;
    Ok(path)
}

/// A path as one word of a shell's.
fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn exports(arguments: &str) -> Vec<String> {
    let mut lines = arguments.lines();
    let mut names = Vec::new();
    while let Some(line) = lines.next() {
        if line == "--export-symbol" {
            names.extend(lines.next().map(str::to_owned));
        } else if let Some(name) = line.strip_prefix("--export-symbol=") {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// What cargo says of one of its products.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    target: ArtifactTarget,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Default, Deserialize)]
struct ArtifactTarget {
    name: String,
}

impl Artifact {
    /// Whether it is of the crate in `directory`.
    fn is_of(&self, directory: &Path) -> bool {
        let manifest = directory.join("Cargo.toml");
        self.manifest_path
            .canonicalize()
            .is_ok_and(|path| path == manifest)
    }
}

/// The products that cargo names in its messages.
fn artifacts(messages: &[u8]) -> impl Iterator<Item = Artifact> {
    messages
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Artifact>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_symbols_are_read_in_both_spellings_and_sorted() {
        let arguments = "--export-symbol\nspmm\na.o\n--export-symbol=CONTRACT\n-o\nout.ptx\n--export-symbol\nspmm";
        assert_eq!(exports(arguments), ["CONTRACT", "spmm"]);
    }

    #[test]
    fn the_parent_cargos_variables_are_cleared_and_the_users_kept() {
        let steers = |name: &str| steers_cargo(&OsString::from(name));
        for name in [
            "CARGO",
            "RUSTC",
            "RUSTUP_TOOLCHAIN",
            "RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "TARGET",
            "CARGO_TARGET_DIR",
        ] {
            assert!(steers(name), "{name} must not reach the device toolchain");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "PATH",
            "HOME",
            "RUSTUP_HOME",
            "RUST_BACKTRACE",
        ] {
            assert!(!steers(name), "{name} is the user's");
        }
    }

    #[test]
    fn a_quote_in_a_path_stays_one_word() {
        assert_eq!(quote(Path::new("/tmp/it's")), r"'/tmp/it'\''s'");
    }
}
