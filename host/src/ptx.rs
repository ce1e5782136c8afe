//! Where the kernels' PTX is, and which of it a card can run.

use crate::error::Error;
use std::path::{Path, PathBuf};

/// The folder that is looked at first.
pub const DIRECTORY_VARIABLE: &str = "HALFGNN_PTX_DIR";

/// The PTX for a card of compute capability `capability`: of the files `halfgnn-sm_NN.ptx` that are there, the one for
/// the newest architecture that the card has. `None` takes the newest of all.
///
/// Files are looked for in the folder that [`DIRECTORY_VARIABLE`] names, or else in the folder `ptx` beside the program
/// and in each folder above it; there `cargo xtask build-ptx` puts them.
///
/// # Errors
/// [`Error::Contract`] where there is none, with the folders that were looked at.
pub fn find(capability: Option<(u32, u32)>) -> Result<PathBuf, Error> {
    let directories = match std::env::var_os(DIRECTORY_VARIABLE) {
        Some(directory) => vec![PathBuf::from(directory)],
        None => std::env::current_exe()
            .map(|program| {
                program
                    .ancestors()
                    .skip(1)
                    .map(|directory| directory.join("ptx"))
                    .collect()
            })
            .unwrap_or_default(),
    };
    let newest = capability.map_or(u32::MAX, |(major, minor)| major * 10 + minor);
    let mut too_new = None;
    for directory in &directories {
        let mut files = architectures(directory);
        files.sort_unstable();
        if let Some((_, file)) = files.iter().rev().find(|(arch, _)| *arch <= newest) {
            return Ok(file.clone());
        }
        too_new = too_new.or(files.first().map(|(arch, _)| *arch));
    }
    let looked = directories
        .iter()
        .map(|directory| directory.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    Err(Error::Contract(match too_new {
        Some(arch) => {
            format!("the PTX is for sm_{arch} and newer, the card is sm_{newest}, in {looked}")
        }
        None => format!("there is no PTX (halfgnn-sm_NN.ptx) in {looked}"),
    }))
}

/// The text of the PTX that [`find`] finds.
///
/// # Errors
/// Those of [`find`], and [`Error::Contract`] where the file cannot be read.
pub fn read(capability: Option<(u32, u32)>) -> Result<String, Error> {
    let file = find(capability)?;
    std::fs::read_to_string(&file)
        .map_err(|error| Error::Contract(format!("{}: {error}", file.display())))
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

    #[test]
    fn only_files_of_the_kernels_count() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        for name in [
            "halfgnn-sm_80.ptx",
            "halfgnn-sm_90.ptx",
            "halfgnn-sm_90.cubin",
            "other-sm_70.ptx",
        ] {
            std::fs::write(directory.path().join(name), "").expect("the folder takes files");
        }
        let mut found: Vec<u32> = architectures(directory.path())
            .into_iter()
            .map(|(arch, _)| arch)
            .collect();
        found.sort_unstable();
        assert_eq!(found, [80, 90]);
        assert!(architectures(Path::new("/no/such/folder")).is_empty());
    }
}
