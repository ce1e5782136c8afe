//! Files: written whole or not at all, and fingerprinted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::BuildError;

/// Writes beside the file and renames, so that a reader never sees half of it.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    write(path, content, |_| Ok(()))
}

/// As [`write_atomically`], and the file can be run from the moment that it is there.
pub(crate) fn write_script(path: &Path, content: &str) -> Result<(), BuildError> {
    #[cfg(unix)]
    let prepare = |beside: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(beside, fs::Permissions::from_mode(0o755))
    };
    #[cfg(not(unix))]
    let prepare = |_: &Path| Ok(());
    write(path, content.as_bytes(), prepare)
}

fn write(
    path: &Path,
    content: &[u8],
    prepare: impl Fn(&Path) -> io::Result<()>,
) -> Result<(), BuildError> {
    /// Tells apart the threads of one process that write the same file.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut beside = path.as_os_str().to_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    beside.push(format!(".{}.{count}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    fs::write(&beside, content)
        .and_then(|()| prepare(&beside))
        .map_err(BuildError::io(&beside))?;
    fs::rename(&beside, path).map_err(BuildError::io(path))
}

/// FNV-1a, 64 bits, over length-prefixed parts: tells whether inputs changed, as cargo's own fingerprints do. It
/// guards against mistakes, not against an adversary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds one part; `add("ab"), add("c")` differs from `add("a"), add("bc")`.
    pub fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        let length = (part.len() as u64).to_le_bytes();
        for &byte in length.iter().chain(part) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    pub fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The fingerprint of a file's content; `None` if it cannot be read.
pub(crate) fn fingerprint(path: &Path) -> Option<String> {
    let content = fs::read(path).ok()?;
    Some(Fingerprint::new().add(content).hex())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_together() {
        let of = |parts: &[&str]| {
            let mut fingerprint = Fingerprint::new();
            for part in parts {
                fingerprint.add(part);
            }
            fingerprint.hex()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }
}
