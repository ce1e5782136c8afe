//! Who may read, write and run a file. Windows asks lists of access instead, which a new file has of its folder:
//! nothing is set there.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::path::Path;

/// Permissions of these bits, of which the umask takes away its own; `None` where files have no such bits.
pub fn of_mode(mode: u32) -> Option<Permissions> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    {
        let _ = mode;
        None
    }
}

/// The permission bits of a file; `None` where files have none.
pub fn mode(permissions: &Permissions) -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::mode(permissions) & 0o777);
    #[cfg(not(unix))]
    {
        let _ = permissions;
        None
    }
}

/// Makes a file one that can be run.
///
/// # Errors
/// Those of the system.
pub fn make_executable(path: &Path) -> io::Result<()> {
    match of_mode(0o755) {
        Some(permissions) => std::fs::set_permissions(path, permissions),
        None => Ok(()),
    }
}

/// Has a new file be for its own user alone to read and write. On Windows a user's folders are that user's alone as a
/// rule.
pub fn for_own_user(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_for_the_own_user_is_made_one_that_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut options = OpenOptions::new();
        for_own_user(options.write(true).create_new(true))
            .open(&path)
            .unwrap();
        let found = || mode(&path.metadata().unwrap().permissions());
        let has_bits = of_mode(0o600).is_some();
        assert_eq!(found(), has_bits.then_some(0o600));
        make_executable(&path).unwrap();
        assert_eq!(found(), has_bits.then_some(0o755));
    }
}
