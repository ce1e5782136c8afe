//! Symbolic links.

use std::io;
use std::path::Path;

/// Makes `link` a symbolic link to the file at `target`, which need not be there.
///
/// # Errors
/// Those of the system: Windows asks for the developer mode.
pub fn to_file(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, link);
    #[cfg(windows)]
    std::os::windows::fs::symlink_file(target, link)
}
