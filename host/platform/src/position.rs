//! Reads of a file at a position.

use std::fs::File;
use std::io;

/// Fills `bytes` with those of a file from byte `at` on. Threads may read one file at once: no position is shared
/// between calls.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] where the file ends before; those of the system.
pub fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, bytes, at);
    // Each call says its position, although the handle's own moves as well.
    #[cfg(windows)]
    {
        use std::os::windows::fs::FileExt;
        let (mut rest, mut at) = (bytes, at);
        while !rest.is_empty() {
            match file.seek_read(rest, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    rest = &mut rest[count..];
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn threads_read_one_file_at_their_own_positions() {
        let mut file = tempfile::tempfile().unwrap();
        let all: Vec<u8> = (0..1 << 16).map(|at: u32| (at % 251) as u8).collect();
        file.write_all(&all).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (file, all) = (&file, &all);
                scope.spawn(move || {
                    for at in (thread..all.len() - 97).step_by(811) {
                        let mut bytes = [0; 97];
                        read_exact_at(file, &mut bytes, at as u64).unwrap();
                        assert_eq!(bytes, all[at..at + 97]);
                    }
                });
            }
        });
        let mut bytes = [0; 2];
        let error = read_exact_at(&file, &mut bytes, (1 << 16) - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        read_exact_at(&file, &mut [], 1 << 40).unwrap();
    }
}
