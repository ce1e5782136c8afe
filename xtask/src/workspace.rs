//! Where things are, and how other programs are run.

use std::env;
use std::ffi::{OsStr, OsString};
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

/// `PATH` with a folder in front of all others.
pub fn path_with(folder: &Path) -> Result<OsString, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(env::split_paths(&path));
    Ok(env::join_paths(folders)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where code may ask for the system or the processor that it is built for: the lowest layers, one file a concern.
    const LOWEST: [&str; 3] = [
        "host/platform/src/",
        "host/cuda-loader/src/platform/",
        "host/ops/src/backend/cpu/simd/platform/",
    ];

    const QUESTIONS: [&str; 9] = [
        "unix",
        "windows",
        "target_os",
        "target_arch",
        "target_family",
        "target_env",
        "target_endian",
        "target_feature",
        "target_pointer_width",
    ];

    /// Whether a line asks, and not of a kernel whether it is compiled for the GPU.
    fn asks(line: &str) -> bool {
        let is_cfg = line.contains("cfg(") || line.contains("cfg!(") || line.contains("cfg_attr(");
        let of_system = |system: &str| line.contains(&format!("std::os::{system}::"));
        let asks = is_cfg && QUESTIONS.iter().any(|question| line.contains(question));
        (asks && !line.contains("nvptx64")) || of_system("unix") || of_system("windows")
    }

    /// Tests are excepted: what is tested is not there on every system.
    #[test]
    fn the_lowest_layers_alone_ask_for_the_system() {
        let mut wrong = Vec::new();
        for file in files().unwrap() {
            let name = file.to_string_lossy().replace('\\', "/");
            let is_test = name.contains("/tests/") || name.starts_with("xtask/");
            if !name.ends_with(".rs") || is_test || LOWEST.iter().any(|of| name.starts_with(of)) {
                continue;
            }
            // What is deleted and still tracked is not there.
            let Ok(text) = std::fs::read_to_string(root().join(&file)) else {
                continue;
            };
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
            let lines = code.lines().enumerate().filter(|(_, line)| asks(line));
            wrong.extend(lines.map(|(at, line)| format!("{name}:{}: {line}", at + 1)));
        }
        assert!(
            wrong.is_empty(),
            "ask halfgnn-platform instead:\n{}",
            wrong.join("\n")
        );
        assert!(asks("#[cfg(target_os = \"linux\")]") && asks("if cfg!(windows) {"));
        assert!(asks("use std::os::unix::fs::FileExt;") && !asks("#[cfg(feature = \"cuda\")]"));
        assert!(!asks(
            "#[cfg_attr(not(target_arch = \"nvptx64\"), derive(A))]"
        ));
    }
}
