//! Whether two paths lead to one file.

use std::io;
use std::path::Path;

/// What identifies a file or folder under all of its names: hard links, links and other spellings of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Of the device or volume.
    volume: u64,
    /// Of the file on it.
    file: u64,
}

impl Identity {
    /// That of what is at `path`, where links lead.
    ///
    /// # Errors
    /// Those of the system, as where nothing is there.
    pub fn of(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let found = path.metadata()?;
            Ok(Self {
                volume: found.dev(),
                file: found.ino(),
            })
        }
        #[cfg(windows)]
        {
            use std::os::windows::io::AsRawHandle;
            use windows_sys::Win32::Storage::FileSystem::{
                BY_HANDLE_FILE_INFORMATION, GetFileInformationByHandle,
            };
            let file = crate::folder::open(path)?;
            let mut found = BY_HANDLE_FILE_INFORMATION::default();
            // SAFETY: the handle is open as long as `file` lives; one struct is written, of the type that the function
            // is declared with.
            let done = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut found) };
            if done == 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self {
                volume: found.dwVolumeSerialNumber.into(),
                file: u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_itself_under_all_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "same").unwrap();
        std::fs::write(at("b"), "same").unwrap();
        std::fs::hard_link(at("a"), at("c")).unwrap();
        let of = |name: &str| Identity::of(&at(name)).unwrap();
        assert_eq!(of("a"), of("./a"));
        assert_eq!(of("a"), of("c"));
        assert_ne!(of("a"), of("b"));
        assert_ne!(of("a"), of("."));
        assert_eq!(Identity::of(folder.path()).unwrap(), of("."));
        assert!(Identity::of(&at("none")).is_err());
    }
}
