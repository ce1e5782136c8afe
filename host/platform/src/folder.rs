//! Folders as handles.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a folder, to lock it.
///
/// # Errors
/// Those of the system.
pub fn open(path: &Path) -> io::Result<File> {
    #[cfg(windows)]
    {
        use std::os::windows::fs::OpenOptionsExt;
        use windows_sys::Win32::Storage::FileSystem::FILE_FLAG_BACKUP_SEMANTICS;
        // Without the flag Windows opens files alone.
        let mut options = File::options();
        return options
            .read(true)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
            .open(path);
    }
    #[cfg(not(windows))]
    File::open(path)
}

/// Has the names in a folder outlast a machine that stops. Windows writes them with the files.
///
/// # Errors
/// Those of the system.
pub fn synchronize(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return File::open(path)?.sync_all();
    #[cfg(not(unix))]
    path.metadata().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_opened_and_synchronized() {
        let folder = tempfile::tempdir().unwrap();
        assert!(open(folder.path()).unwrap().metadata().unwrap().is_dir());
        synchronize(folder.path()).unwrap();
        let gone = folder.path().join("gone");
        assert!(open(&gone).is_err() && synchronize(&gone).is_err());
    }
}
