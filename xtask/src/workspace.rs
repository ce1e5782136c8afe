//! Where things are, and how other programs are run.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The workspace's root.
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// The target folder: `CARGO_TARGET_DIR`, which is relative to the current folder as cargo takes it, or `target`.
pub fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => std::path::absolute(&directory).unwrap_or_else(|_| directory.into()),
        None => root().join("target"),
    }
}

/// The workspace's files, relative to its root: those that git tracks, and new ones that it does not ignore.
pub fn files() -> Result<Vec<PathBuf>, Failure> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = git
        .current_dir(root())
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`git ls-files` failed: {}", told.trim()).into());
    }
    let names = String::from_utf8(output.stdout)?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(PathBuf::from).collect())
}

/// The cargo that runs this, in the workspace's root.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Says what it runs, runs it, and fails if it fails.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let line = spell(command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .map_err(|error| format!("cannot run `{line}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{line}` failed ({status})").into())
    }
}

/// A command as a person would type it.
fn spell(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
