//! Folders of files that make one dataset.

use std::path::{Path, PathBuf};

use super::error::{DataError, DataProblem};
use super::input::{Input, Progress};

/// A folder, and the files of one format in it.
pub(super) struct Folder<'a> {
    pub path: PathBuf,
    /// The files that the format requires, for messages.
    pub layout: &'static str,
    pub progress: &'a dyn Progress,
}

impl<'a> Folder<'a> {
    /// Where a file is; packed or not, if its name ends in `.gz`.
    pub fn find(&self, file: &str) -> Option<PathBuf> {
        let path = self.path.join(file);
        if path.is_file() {
            return Some(path);
        }
        let plain = self.path.join(file.strip_suffix(".gz")?);
        plain.is_file().then_some(plain)
    }

    /// Opens a file and reads it.
    pub fn read<T>(
        &self,
        file: &str,
        read: impl FnOnce(Input<'a>) -> Result<T, DataProblem>,
    ) -> Result<T, DataError> {
        let path = self.find(file).ok_or_else(|| {
            let problem = DataProblem::MissingFile {
                file: file.into(),
                layout: self.layout,
            };
            DataError::in_file(&self.path, problem)
        })?;
        Input::open(&path, self.progress)
            .and_then(|input| {
                // An empty text may be a list of nothing; an empty archive is none.
                let is_packed = path.extension().is_some_and(|extension| extension == "gz");
                if is_packed && input.len() == 0 {
                    return Err(DataProblem::Empty);
                }
                read(input)
            })
            .map_err(|problem| DataError::in_file(&path, problem))
    }

    /// A problem with what the files come to together, named after one of them.
    pub fn problem(&self, file: &str, problem: DataProblem) -> DataError {
        let path = self.find(file).unwrap_or_else(|| self.path.join(file));
        DataError::in_file(&path, problem)
    }
}

/// The names of what is in a folder, sorted.
pub(super) fn entries(folder: &Path) -> Result<Vec<String>, DataProblem> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        // A name that is no text is none that a format has.
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
