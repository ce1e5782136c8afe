//! Files: written whole or not at all, and hashed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use halfgnn_manifest::Fingerprint;
use halfgnn_platform::permissions;

use crate::error::BuildError;

/// Writes a temporary file next to `path` and renames it, so that a reader never sees half of it.
///
/// # Errors
/// [`BuildError`] with the path that cannot be written.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    write(path, content, |_| Ok(()))
}

/// The same of a file that can be run from the moment that it is there. A program that runs can be replaced so.
///
/// # Errors
/// Those of [`write_atomically`].
pub fn write_executable(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    write(path, content, permissions::make_executable)
}

fn write(
    path: &Path,
    content: &[u8],
    prepare: impl Fn(&Path) -> io::Result<()>,
) -> Result<(), BuildError> {
    /// Distinguishes the threads of one process that write the same file.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut temporary = path.as_os_str().to_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}.{count}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, content)
        .and_then(|()| prepare(&temporary))
        .map_err(BuildError::io(&temporary))?;
    fs::rename(&temporary, path).map_err(BuildError::io(path))
}

/// The fingerprint of a file's content; `None` if it cannot be read.
pub(crate) fn fingerprint(path: &Path) -> Option<String> {
    fs::read(path).ok().map(Fingerprint::of)
}

/// The files under `root` that can change what the compiler makes of it, sorted: everything but
/// build products and hidden files.
pub(crate) fn sources(root: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let entries = directory.read_dir().map_err(BuildError::io(&directory))?;
        for entry in entries {
            let entry = entry.map_err(BuildError::io(&directory))?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with('.') || name == "target" {
                continue;
            }
            let kind = entry.file_type().map_err(BuildError::io(entry.path()))?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
