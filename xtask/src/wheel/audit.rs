//! Looks into a wheel that is to run elsewhere: which systems it runs on, what is in it, and that it works where nothing else is.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TAG, pip, python_of};
use crate::{Failure, workspace};

/// What tells which libraries a wheel wants, and of which versions, from PyPI.
pub const AUDITWHEEL: &str = "auditwheel>=6.4,<7";

/// What it is without which a wheel would still be built.
const PARTS: [&str; 4] = [
    "halfgnn/_core.abi3.so",
    "halfgnn/_core.pyi",
    "halfgnn/py.typed",
    "halfgnn/ptx/",
];

/// An SpMM in half, and the kernels for cards.
const TRIAL: &str = "import numpy as np, halfgnn
graph = halfgnn.Graph(np.array([[0, 1, 2], [1, 2, 1]]))
y = halfgnn.spmm(graph, np.array([[1.0], [2.0], [4.0]], dtype=np.float16))
assert y.tolist() == [[0.0], [5.0], [2.0]], y
halfgnn.show_config()";

/// Refuses a wheel that does not run wherever [`TAG`] says on processors of `arch`, lacks a part, or does not work by itself. `tools` is a
/// virtual environment with [`AUDITWHEEL`]; `place` becomes one with the wheel, where it is one of this machine.
pub fn check(
    wheel: &Path,
    tools: &Path,
    place: Option<PathBuf>,
    arch: &str,
    kernels: &[String],
) -> Result<(), Failure> {
    let mut audit = python_of(tools);
    let said = output(audit.args(["-m", "auditwheel", "show"]).arg(wheel))?;
    runs_anywhere(&said, arch)?;
    let mut list = python_of(tools);
    let content = output(list.args(["-m", "zipfile", "-l"]).arg(wheel))?;
    is_whole(&content, kernels)?;
    let Some(place) = place else {
        eprintln!("It is of another machine, and was not tried here.");
        return Ok(());
    };
    super::environment(&place)?;
    pip(&place, &[&wheel.to_string_lossy()])?;
    let mut trial = python_of(&place);
    // From elsewhere, so that what is imported is what is installed.
    workspace::run(trial.args(["-c", TRIAL]).current_dir(&place))
}

/// What a program says, which must succeed.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let why = String::from_utf8_lossy(&output.stderr);
            let line = why.lines().last().unwrap_or("it says nothing").trim();
            Err(format!("{command:?} failed: {line}").into())
        }
    }
}

/// Whether auditwheel names a system as old as that of [`TAG`], or an older one, with processors of `arch`. auditwheel reads the processor
/// from the library inside, as it does the symbols that it needs.
fn runs_anywhere(said: &str, arch: &str) -> Result<(), Failure> {
    // It breaks lines wherever they are full.
    let words: Vec<_> = said.split_whitespace().collect();
    let said = words.join(" ");
    let (_, rest) = said
        .split_once("is consistent with the following platform tag: \"")
        .ok_or("auditwheel does not say where the wheel runs")?;
    let (tag, _) = rest.split_once('"').unwrap_or((rest, ""));
    let version = |tag: &str| -> Option<(u32, u32)> {
        let mut parts = tag.strip_prefix("manylinux_")?.split('_');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let own = tag
        .strip_suffix(arch)
        .and_then(|rest| rest.strip_suffix('_'));
    if own.is_none() {
        return Err(format!("the wheel is one of {tag}, and should be one of {arch}").into());
    }
    match (version(tag), version(TAG)) {
        (Some(wants), Some(has)) if wants <= has => Ok(()),
        _ => Err(format!(
            "the wheel is one of {tag}, and should be one of {TAG}: it wants newer or other libraries, which `auditwheel show` tells"
        )
        .into()),
    }
}

/// Whether a list of files has all parts, and the kernels.
fn is_whole(content: &str, kernels: &[String]) -> Result<(), Failure> {
    let kernels = kernels.iter().map(|name| format!("{}{name}", PARTS[3]));
    let mut parts = PARTS.iter().map(|part| (*part).to_owned()).chain(kernels);
    match parts.find(|part| !content.contains(part.as_str())) {
        None => Ok(()),
        Some(part) => Err(format!("the wheel lacks {part}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As auditwheel 6.8 says it.
    fn said(tag: &str) -> String {
        format!(
            "\nhalfgnn-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl is consistent with\nthe following platform tag: \"{tag}\".\n\nThe wheel \
             references external versioned symbols in these\nsystem-provided shared libraries: libc.so.6 with versions\n\
             {{'GLIBC_2.34'}}\n\nThis constrains the platform tag to \"{tag}\"."
        )
    }

    #[test]
    fn what_wants_a_newer_library_than_its_name_says_is_refused() {
        for tag in ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64"] {
            assert!(runs_anywhere(&said(tag), "x86_64").is_ok(), "{tag}");
            // Of another processor than it should be.
            let failure = runs_anywhere(&said(tag), "aarch64")
                .unwrap_err()
                .to_string();
            assert!(failure.ends_with("should be one of aarch64"), "{failure}");
        }
        for tag in [
            "manylinux_2_34_x86_64",
            "manylinux_3_1_x86_64",
            "linux_x86_64",
        ] {
            let failure = runs_anywhere(&said(tag), "x86_64").unwrap_err().to_string();
            assert!(
                failure.contains(tag) && !failure.contains('\n'),
                "{failure}"
            );
        }
        assert!(runs_anywhere("", "x86_64").is_err());
    }

    #[test]
    fn a_wheel_that_lacks_a_part_is_refused() {
        let kernels = [
            "halfgnn-sm_80.ptx".to_owned(),
            "halfgnn-sm_90.ptx".to_owned(),
        ];
        let all = "halfgnn/_core.abi3.so 2026 1\nhalfgnn/_core.pyi 2026 1\nhalfgnn/py.typed 2026 0\n\
                   halfgnn/ptx/halfgnn-sm_80.ptx 2026 1\nhalfgnn/ptx/halfgnn-sm_90.ptx 2026 1\n";
        assert!(is_whole(all, &kernels).is_ok());
        for line in all.lines() {
            let failure = is_whole(&all.replace(line, ""), &kernels)
                .unwrap_err()
                .to_string();
            let name = line.split(' ').next().unwrap_or_default();
            assert_eq!(failure, format!("the wheel lacks {name}"));
        }
        assert!(is_whole("", &[]).is_err());
    }
}
