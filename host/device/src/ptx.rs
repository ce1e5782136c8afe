//! Where the kernels' PTX is, and which of it a card can run.
//!
//! A package made by `cargo xtask package` has the PTX inside, and the crate embeds it: a program that depends on the
//! package needs no device toolchain and carries no file along. A clone of the repository looks for the files that
//! `cargo xtask build-ptx` made, at run time.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The folder that is looked at before anything else.
pub const DIRECTORY_VARIABLE: &str = "HALFGNN_PTX_DIR";

/// PTX that is part of the program: architecture as a number, text. Empty where the package had none.
const EMBEDDED: &[(u32, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded_ptx.rs"));

/// Why there is no PTX to load: none was found, or it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; rebuild it with `cargo xtask build-ptx`")]
#[non_exhaustive]
pub struct PtxError {
    /// What was looked for, and where.
    pub reason: String,
}

impl PtxError {
    fn new(reason: String) -> Self {
        Self { reason }
    }
}

/// Where PTX was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// In the program itself.
    Embedded {
        /// The architecture it was built for: 90 for sm_90.
        arch: u32,
    },
    /// In a file.
    File(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Embedded { arch } => write!(f, "built in, for sm_{arch}"),
            Source::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    /// The text.
    ///
    /// # Errors
    /// [`PtxError`] where the file cannot be read.
    pub fn read(&self) -> Result<Cow<'static, str>, PtxError> {
        match self {
            Source::Embedded { arch } => EMBEDDED
                .iter()
                .find(|(embedded, _)| embedded == arch)
                .map(|(_, text)| Cow::Borrowed(*text))
                .ok_or_else(|| PtxError::new(format!("no PTX for sm_{arch} is built in"))),
            Source::File(path) => std::fs::read_to_string(path)
                .map(Cow::Owned)
                .map_err(|error| PtxError::new(format!("{}: {error}", path.display()))),
        }
    }
}

/// The PTX for a card of compute capability `capability`: of what is there, that for the newest architecture that the
/// card has. `None` takes the newest of all.
///
/// The folder that [`DIRECTORY_VARIABLE`] names comes first, and alone, where the variable is set; then what is built
/// in; then files `halfgnn-sm_NN.ptx` in the folders of [`look_in`], in the folder `ptx` beside the program and in each folder
/// above it, where `cargo xtask build-ptx` puts them.
///
/// # Errors
/// [`PtxError`] where there is none, with the folders that were looked at.
pub fn find(capability: Option<(u32, u32)>) -> Result<Source, PtxError> {
    let newest = capability.map_or(u32::MAX, |(major, minor)| major * 10 + minor);
    match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(directory) => find_in(&[], &[directory.into()], newest),
        None => find_in(EMBEDDED, &folders(), newest),
    }
}

/// The text of the PTX that [`find`] finds.
///
/// # Errors
/// Those of [`find`], and [`PtxError`] where the file cannot be read.
pub fn read(capability: Option<(u32, u32)>) -> Result<Cow<'static, str>, PtxError> {
    find(capability)?.read()
}

/// Folders that the program names itself: see [`look_in`].
static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on [`find`] looks in `directory` before those beside the program: for programs that are not where their files are,
/// such as an interpreter that has loaded this crate as a library.
pub fn look_in(directory: PathBuf) {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if !named.contains(&directory) {
        named.push(directory);
    }
}

/// The folders that were named, and those called `ptx` beside the program and above it.
fn folders() -> Vec<PathBuf> {
    let mut folders = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    folders.extend(beside_the_program());
    folders
}

/// The folders `ptx` beside the program and above it.
fn beside_the_program() -> Vec<PathBuf> {
    std::env::current_exe()
        .map(|program| {
            program
                .ancestors()
                .skip(1)
                .map(|directory| directory.join("ptx"))
                .collect()
        })
        .unwrap_or_default()
}

/// The newest PTX of architectures up to `newest`, of `embedded` or else of the first folder that has one.
fn find_in(
    embedded: &[(u32, &str)],
    directories: &[PathBuf],
    newest: u32,
) -> Result<Source, PtxError> {
    let runs = |arch: &u32| *arch <= newest;
    if let Some(arch) = embedded.iter().map(|(arch, _)| *arch).filter(runs).max() {
        return Ok(Source::Embedded { arch });
    }
    let mut too_new = embedded.iter().map(|(arch, _)| *arch).min();
    for directory in directories {
        let mut files = architectures(directory);
        files.sort_unstable();
        if let Some((_, file)) = files.iter().rev().find(|(arch, _)| runs(arch)) {
            return Ok(Source::File(file.clone()));
        }
        too_new = too_new.or(files.first().map(|(arch, _)| *arch));
    }
    let looked = directories
        .iter()
        .map(|directory| directory.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    Err(PtxError::new(match too_new {
        Some(arch) => {
            format!("the PTX is for sm_{arch} and newer, the card is sm_{newest}, in {looked}")
        }
        None => format!("there is no PTX (halfgnn-sm_NN.ptx) in {looked}"),
    }))
}

/// The architectures, as numbers, for which a folder has PTX.
fn architectures(directory: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = directory.read_dir() else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let arch = path
                .file_name()?
                .to_str()?
                .strip_prefix("halfgnn-sm_")?
                .strip_suffix(".ptx")?
                .parse()
                .ok()?;
            Some((arch, path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary folder");
        for name in [
            "halfgnn-sm_80.ptx",
            "halfgnn-sm_90.ptx",
            "halfgnn-sm_90.cubin",
            "other-sm_70.ptx",
        ] {
            std::fs::write(directory.path().join(name), name).expect("the folder takes files");
        }
        directory
    }

    #[test]
    fn only_files_of_the_kernels_count() {
        let directory = folder();
        let mut found: Vec<u32> = architectures(directory.path())
            .into_iter()
            .map(|(arch, _)| arch)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [80, 90]);
        assert!(architectures(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn the_newest_that_the_card_runs_is_taken() {
        let directory = folder();
        let places = [
            PathBuf::from("/no/such/folder"),
            directory.path().to_owned(),
        ];
        for (card, arch) in [(80, 80), (89, 80), (90, 90), (120, 90), (u32::MAX, 90)] {
            let source = find_in(&[], &places, card).expect("there is one");
            let name = format!("halfgnn-sm_{arch}.ptx");
            assert_eq!(source, Source::File(directory.path().join(&name)), "{card}");
            assert_eq!(source.read().expect("it can be read"), name);
        }
        let error = find_in(&[], &places, 75).expect_err("none is old enough");
        assert!(error.to_string().contains("sm_80"), "{error}");
        let error = find_in(&[], &places[..1], 90).expect_err("the folder is not there");
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }

    #[test]
    fn what_is_built_in_comes_before_files() {
        let directory = folder();
        let places = [directory.path().to_owned()];
        let embedded = [(80, "a"), (86, "b")];
        let found = |card| find_in(&embedded, &places, card).expect("there is one");
        assert_eq!(found(90), Source::Embedded { arch: 86 });
        assert_eq!(found(80), Source::Embedded { arch: 80 });
        let error = find_in(&embedded, &[], 75).expect_err("none is old enough");
        assert!(error.to_string().contains("sm_80"), "{error}");
    }
}
