//! What can go wrong between a kernels crate and its PTX.

use std::io;
use std::path::PathBuf;

use crate::checks::Fault;

/// Why no PTX came out. The message is meant for a person: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No toolchain for `nvptx64-nvidia-cuda` was found.
    #[error(
        "no device toolchain found; run `cargo xtask setup`, or `rustup toolchain install {nightly} --profile minimal \
         -c rust-src -c llvm-tools`; looked at:\n  {}",
        rejected.join("\n  "),
        nightly = crate::toolchain::PINNED_NIGHTLY
    )]
    NoToolchain {
        /// Each place that was looked at, and why it would not do.
        rejected: Vec<String>,
    },
    /// The folder given to [`PtxBuilder::new`](crate::PtxBuilder::new) holds no usable kernels crate.
    #[error("{}: {reason}", path.display())]
    Crate {
        /// The crate's folder or manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// rustc rejected the kernels.
    #[error("{package} does not compile for nvptx64-nvidia-cuda:\n{output}")]
    Compile {
        /// The package's name.
        package: String,
        /// rustc's and cargo's own words.
        output: String,
    },
    /// One of LLVM's programs failed.
    #[error("{tool} failed on {package}: {output}")]
    Llvm {
        /// The program: `llvm-link`, `opt`, `llc`.
        tool: String,
        /// The package's name.
        package: String,
        /// Its own words.
        output: String,
    },
    /// What LLVM wrote cannot be read.
    #[error("{}: {source}", path.display())]
    Ptx {
        /// The PTX file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        source: ptx_syntax::ParseError,
    },
    /// The emitted PTX breaks a rule.
    #[error("{}: {}", path.display(), list(faults))]
    Checks {
        /// The PTX file that was checked.
        path: PathBuf,
        /// Every rule that is broken, at least one.
        faults: Vec<Fault>,
    },
    /// `ptxas` rejected the PTX, or it does not fit the registers.
    #[error("{}: {reason}", path.display())]
    Ptxas {
        /// The PTX file that was assembled.
        path: PathBuf,
        /// ptxas's own words, or the spill.
        reason: String,
    },
    /// Built kernels cannot be read.
    #[error("{0}; build them again")]
    Manifest(#[from] halfgnn_manifest::ManifestError),
    /// An option has a value that cannot be used.
    #[error("{option}: {reason}")]
    Option {
        /// The option, as the caller spelled it.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read or written, or a program could not be started.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or program.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl BuildError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// One line for each message and place; a helper that many kernels inline would otherwise repeat itself.
fn list(faults: &[Fault]) -> String {
    let mut groups: Vec<(&Fault, Vec<&str>)> = Vec::new();
    for fault in faults {
        let same = |(first, _): &&mut (&Fault, Vec<&str>)| {
            first.message == fault.message && first.source == fault.source && fault.source.is_some()
        };
        match groups.iter_mut().find(same) {
            Some((_, entries)) => entries.push(&fault.entry),
            None => groups.push((fault, vec![&fault.entry])),
        }
    }
    let lines: Vec<String> = groups
        .iter()
        .map(|(first, entries)| match entries.len() {
            1 => first.to_string(),
            many @ 2..=5 => format!("{first}; {} more: {}", many - 1, entries[1..].join(", ")),
            many => format!(
                "{first}; {} more: {}, …",
                many - 1,
                entries[1..5].join(", ")
            ),
        })
        .collect();
    match lines.as_slice() {
        [line] => line.clone(),
        many => many.iter().map(|line| format!("\n  {line}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_many_kernels_is_told_once() {
        let fault = |entry: &str, line: usize, source: Option<&str>| Fault {
            entry: entry.to_owned(),
            line: Some(line),
            source: source.map(str::to_owned),
            message: "can panic".to_owned(),
        };
        let faults = [
            fault("a", 1, Some("k.rs:5:1")),
            fault("b", 9, Some("k.rs:5:1")),
            fault("c", 12, None),
            fault("d", 15, None),
        ];
        assert_eq!(
            list(&faults[..1]),
            "a: can panic (PTX line 1, from k.rs:5:1)"
        );
        assert_eq!(
            list(&faults),
            "\n  a: can panic (PTX line 1, from k.rs:5:1); 1 more: b\n  c: can panic (PTX line 12)\n  d: can panic (PTX line 15)"
        );
    }
}
