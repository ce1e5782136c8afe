//! Linked bitcode in, PTX for one architecture out: `opt`, then `llc`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::compile::Bitcode;
use crate::convergence;
use crate::error::BuildError;
use crate::pattern;
use crate::toolchain::Toolchain;

/// A GPU architecture by its compute capability, such as `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Arch(u32);

impl Arch {
    /// Reads `sm_80` or `sm_90a`'s plain form; the oldest that is accepted has f16x2 min and max, and `redux.sync`.
    pub fn parse(text: &str) -> Result<Self, BuildError> {
        let wrong = |reason: String| BuildError::Option {
            option: format!("arch {text:?}"),
            reason,
        };
        let number: u32 = text
            .strip_prefix("sm_")
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| wrong("is not of the form sm_90".to_owned()))?;
        if number < 70 {
            return Err(wrong(
                "is older than sm_70, which LLVM no longer compiles Rust for".to_owned(),
            ));
        }
        Ok(Self(number))
    }

    pub fn name(self) -> String {
        format!("sm_{}", self.0)
    }

    /// The oldest PTX version that knows the architecture, but no older than 8.0 (CUDA 12.0), the oldest that the
    /// kernels' instructions are tested with (PTX ISA, "Release Notes").
    pub fn ptx_version(self) -> u32 {
        match self.0 {
            ..=99 => 80,
            100 | 101 => 86,
            120 => 87,
            _ => 88,
        }
    }
}

/// The text of a linked crate, without what no export needs. If there are patterns of `only`, entries that match none
/// of them do nothing but trap: a program finds every kernel that it asks for, and a launch of one of them fails.
pub(crate) fn text(
    toolchain: &Toolchain,
    package: &str,
    bitcode: &Bitcode,
    only: &[String],
    work: &Path,
) -> Result<String, BuildError> {
    let needed = |module: &Path| {
        llvm(
            toolchain,
            package,
            "opt",
            [
                OsStr::new("-S"),
                OsStr::new("-passes=internalize,globaldce"),
                OsStr::new(&format!(
                    "-internalize-public-api-list={}",
                    bitcode.exports.join(",")
                )),
                module.as_os_str(),
                OsStr::new("-o"),
                OsStr::new("-"),
            ],
        )
    };
    let ir = needed(&bitcode.path)?;
    if only.is_empty() {
        return Ok(ir);
    }
    let path = work.join(format!("{package}.only.ll"));
    fs::write(&path, without_bodies(&ir, only)).map_err(BuildError::io(&path))?;
    needed(&path)
}

/// The entries that a module's text defines.
pub(crate) fn entries(ir: &str) -> Vec<String> {
    let names = ir.lines().filter_map(convergence::entry_name);
    names.map(str::to_owned).collect()
}

/// The module with a trap for a body in every entry that is not wanted.
fn without_bodies(ir: &str, only: &[String]) -> String {
    const TRAP: &str = "declare void @llvm.trap()";
    let mut text = String::with_capacity(ir.len());
    let mut lines = ir.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        if convergence::entry_name(line).is_some_and(|name| !pattern::is_wanted(only, name)) {
            text.push_str("  call void @llvm.trap()\n  unreachable\n}\n");
            lines.by_ref().find(|line| *line == "}");
        }
    }
    if !ir.contains(TRAP) {
        text.push_str(TRAP);
        text.push('\n');
    }
    text
}

/// Optimises and lowers a module whose text is [annotated](convergence::annotate); `unroll` is LLVM's
/// `unroll-threshold`. The PTX still has LLVM's comments, which say where a line was inlined.
pub(crate) fn lower(
    toolchain: &Toolchain,
    package: &str,
    ir: &Path,
    arch: Arch,
    unroll: u32,
) -> Result<String, BuildError> {
    let unroll = format!("-unroll-threshold={unroll}");
    let optimised = ir.with_extension(format!("{}.bc", arch.name()));
    let cpu = format!("-mcpu={}", arch.name());
    let features = format!("-mattr=+ptx{}", arch.ptx_version());
    llvm(
        toolchain,
        package,
        "opt",
        [
            OsStr::new("-passes=default<O3>"),
            OsStr::new(&unroll),
            OsStr::new(&cpu),
            OsStr::new(&features),
            ir.as_os_str(),
            OsStr::new("-o"),
            optimised.as_os_str(),
        ],
    )?;
    let ptx = llvm(
        toolchain,
        package,
        "llc",
        [
            OsStr::new("-O3"),
            OsStr::new(&cpu),
            OsStr::new(&features),
            optimised.as_os_str(),
            OsStr::new("-o"),
            OsStr::new("-"),
        ],
    )?;
    // Intermediate files of all modules would fill a small disk.
    fs::remove_file(&optimised).map_err(BuildError::io(&optimised))?;
    Ok(without_empty_sections(&ptx))
}

/// Replaces the folders at the start of the paths in `.file` lines, so that the PTX is the same on every machine.
pub(crate) fn rename_files(ptx: &str, renamed: &[(PathBuf, String)]) -> String {
    let mut text = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        let path = line
            .trim_start()
            .strip_prefix(".file")
            .and_then(|rest| rest.split_once('"'))
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(path, _)| path);
        let renamed = path.and_then(|path| {
            let (relative, name) = renamed.iter().find_map(|(folder, name)| {
                Some((Path::new(path).strip_prefix(folder).ok()?, name))
            })?;
            Some(line.replace(path, &format!("{name}/{}", relative.display())))
        });
        text.push_str(renamed.as_deref().unwrap_or(line));
    }
    text
}

/// LLVM closes a module that has `.loc` lines with an empty `.debug_macinfo`, which is of no use.
fn without_empty_sections(ptx: &str) -> String {
    ptx.split_inclusive('\n')
        .filter(|line| {
            let line = line.trim();
            !(line.starts_with(".section")
                && line
                    .split_once('{')
                    .is_some_and(|(_, rest)| rest.trim() == "}"))
        })
        .collect()
}

fn llvm<'a>(
    toolchain: &Toolchain,
    package: &str,
    tool: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
) -> Result<String, BuildError> {
    let path = toolchain.llvm(tool);
    let output = Command::new(&path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(BuildError::io(&path))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(BuildError::Llvm {
            tool: tool.to_owned(),
            package: package.to_owned(),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_read_and_nonsense_is_refused() {
        assert_eq!(Arch::parse("sm_90").unwrap().name(), "sm_90");
        assert_eq!(Arch::parse("sm_120").unwrap().ptx_version(), 87);
        for wrong in ["90", "sm_", "sm_9x", "compute_90", "sm_35", ""] {
            let error = Arch::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn file_lines_lose_the_machines_folders() {
        let ptx = "\t.file\t1 \"/home/me/kernels-gpu/src/lib.rs\"\n.file 2 \"/usr/lib/rust/core/src/ptr.rs\"\nret;\n";
        let renamed = rename_files(
            ptx,
            &[
                (PathBuf::from("/usr/lib/rust"), "rust-library".to_owned()),
                (
                    PathBuf::from("/home/me/kernels-gpu"),
                    "kernels-gpu".to_owned(),
                ),
            ],
        );
        let expected = "\t.file\t1 \"kernels-gpu/src/lib.rs\"\n.file 2 \"rust-library/core/src/ptr.rs\"\nret;\n";
        assert_eq!(renamed, expected);
    }

    #[test]
    fn only_empty_sections_go() {
        let ptx = "\t.section\t.debug_macinfo\t{\t}\n.section .debug_str { .b8 1 }\nret;\n";
        assert_eq!(
            without_empty_sections(ptx),
            ".section .debug_str { .b8 1 }\nret;\n"
        );
    }
}
