//! Kernels crate in, one linked and unoptimised bitcode module out.
//!
//! rustc wants a linker. It gets a shell script that writes down its arguments, so that the names
//! to export are known, and runs `llvm-link`: what rustc takes for the finished cdylib is the
//! bitcode of the crate and of `core` in one module. rustc is told to leave the LLVM passes alone
//! (`no-prepopulate-passes`), for two reasons: the module is optimised once, as a whole, for each
//! architecture; and no pass has run before [`crate::convergence`] has marked what must not be duplicated.

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
    let mut command = Command::new(&toolchain.cargo);
    for (name, _) in env::vars_os() {
        if steers_cargo(&name) {
            command.env_remove(name);
        }
    }
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "");
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

/// Compiles and links in `work`, which several kernels crates may share: `core` is then compiled once for all of them.
/// `color` lets rustc colour its messages, which are returned.
pub(crate) fn compile(
    package: &Package,
    toolchain: &Toolchain,
    work: &Path,
    color: bool,
) -> Result<(Bitcode, String), BuildError> {
    let linker = write_linker(toolchain, work)?;
    let color = if color { "always" } else { "never" };
    let output = cargo(toolchain)
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
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cno-prepopulate-passes")
        .env("CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER", &linker)
        .envs(PROFILE)
        .stdin(Stdio::null())
        .output()
        .map_err(BuildError::io(&toolchain.cargo))?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let failed = |output: &str| BuildError::Compile {
        package: package.name.clone(),
        output: output.trim_end().to_owned(),
    };
    if !output.status.success() {
        return Err(failed(&messages));
    }
    let path = artifact(&output.stdout, &package.directory)
        .ok_or_else(|| failed("cargo named no .ptx among its products"))?;
    let record = path.with_file_name("deps").join(record_name(&path));
    let arguments = fs::read_to_string(&record).map_err(BuildError::io(&record))?;
    let exports = exports(&arguments);
    Ok((Bitcode { path, exports }, messages))
}

/// Where the linker script writes its arguments, beside rustc's output `NAME.ptx`.
fn record_name(output: &Path) -> OsString {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".arguments");
    name
}

/// The release profile, whatever the crate's manifest says: `.loc` lines and no other debug information, since that
/// is all that PTX can use; no overflow checks, since a panic has nobody to tell.
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

/// Writes the script that rustc calls as its linker; leaves the file alone when it is right, so that cargo sees no change.
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
    files::write_script(&path, &script)?;
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

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// The product of the crate in `directory`, from cargo's messages.
fn artifact(messages: &[u8], directory: &Path) -> Option<PathBuf> {
    let manifest = directory.join("Cargo.toml");
    String::from_utf8_lossy(messages)
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        .filter(|message| {
            message
                .manifest_path
                .canonicalize()
                .is_ok_and(|path| path == manifest)
        })
        .flat_map(|message| message.filenames)
        .find(|path| path.extension().is_some_and(|extension| extension == "ptx"))
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
