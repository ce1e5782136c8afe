//! Files that appear whole or not at all.
//!
//! A temporary file is named `.halfgnn-PID-RANDOM.part` and lies in the folder of its destination. Its process locks
//! it. The file of a process that was killed is removed by the next process that writes to the folder, provided that no
//! process has its PID and none holds the lock. The lock covers processes of other containers and hosts, whose PIDs are
//! not visible here.

use halfgnn_platform::process::is_running;
use halfgnn_platform::{folder, permissions};
use std::collections::BTreeSet;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

/// Temporary files, for [`exit_discarding`].
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The list of temporary files. Hold it from before a file is created until it is listed, and while it is removed, so
/// that the list is always complete.
fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all temporary files and ends the process with `code`, for a caller that interrupts it. No other file is
/// created or finished meanwhile.
pub fn exit_discarding(code: i32) -> ! {
    let mut unfinished = unfinished();
    for path in unfinished.drain(..) {
        // The file may just have been finished.
        let _ = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
    }
    std::process::exit(code)
}

/// Prefix and suffix of the names of temporary files.
const PREFIX: &str = ".halfgnn-";
const SUFFIX: &str = ".part";

/// Folders that this process has already cleared of others' temporary files.
static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Makes what will be a file or folder in `folder`, by a builder of its name.
fn begin<T>(
    folder: &Path,
    mode: u32,
    make: impl FnOnce(&tempfile::Builder<'_, '_>, &Path) -> io::Result<T>,
) -> io::Result<T> {
    let first = {
        let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let place = folder.canonicalize();
        place.is_ok_and(|place| swept.insert(place))
    };
    if first {
        sweep(folder);
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    // As any other: the umask takes away what it takes away.
    if let Some(permissions) = permissions::of_mode(mode) {
        builder.permissions(permissions);
    }
    make(&builder, folder)
}

/// Removes what processes that have ended left in `folder`, and says so.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_suffix(SUFFIX))
            .and_then(|rest| rest.split_once('-'))
            .and_then(|(number, _)| number.parse().ok());
        let Some(number) = number else { continue };
        let path = entry.path();
        if is_running(number) || !is_free(&path) {
            continue;
        }
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false => std::fs::remove_file(&path),
        };
        match removed {
            Ok(()) => tracing::warn!(
                "removed {}, which process {number} left unfinished when it was killed",
                path.display()
            ),
            Err(error) => tracing::warn!(
                "{}: process {number} left it unfinished when it was killed, and it cannot be removed: {error}",
                path.display()
            ),
        }
    }
}

/// Whether no process holds the lock of a temporary file.
fn is_free(path: &Path) -> bool {
    let opened = match path.is_dir() {
        true => folder::open(path),
        false => File::open(path),
    };
    let Ok(file) = opened else {
        return false;
    };
    // Where there are no locks, the number alone decides.
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// A temporary file, written next to its destination and moved there when it is complete.
#[derive(Debug)]
pub struct WholeFile {
    /// None once it is finished.
    temporary: Option<NamedTempFile>,
    place: PathBuf,
}

impl WholeFile {
    /// A file that will be at `path`; what is there stays until [`WholeFile::finish`], and stays for good where that is
    /// not called.
    ///
    /// # Errors
    /// Where the folder cannot be written to, or a file that is there must not be.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = match path.metadata() {
            Ok(found) => existing(path, &found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => linked(path)?,
            // Such as of a name that is too long for the file system.
            Err(error) => return Err(error),
        };
        let mut unfinished = unfinished();
        let temporary = begin(folder_of(&place), 0o666, |builder, folder| {
            builder.tempfile_in(folder)
        })?;
        unfinished.push(temporary.path().to_owned());
        drop(unfinished);
        // Where there are no locks, its name has the process's number.
        let _ = temporary.as_file().try_lock();
        Ok(Self {
            temporary: Some(temporary),
            place,
        })
    }

    /// That a file can be written at `path`, of which nothing is left.
    ///
    /// # Errors
    /// As [`WholeFile::create`].
    pub fn check(path: &Path) -> io::Result<()> {
        Self::create(path).map(drop)
    }

    fn file(&mut self) -> io::Result<&mut NamedTempFile> {
        let finished = || io::Error::other("the file is finished");
        self.temporary.as_mut().ok_or_else(finished)
    }

    /// Moves the file to its place. When this returns, the file is there whole even if the machine stops.
    ///
    /// # Errors
    /// Where it cannot be written; then what was there before stays.
    pub fn finish(mut self) -> io::Result<()> {
        self.file()?.as_file().sync_all()?;
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.path().to_owned();
            let moved = put(temporary, &self.place);
            forget(&path);
            moved?;
        }
        // The name as well.
        folder::synchronize(folder_of(&self.place))
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.path().to_owned();
            drop(temporary);
            forget(&path);
        }
    }
}

/// A temporary folder, written next to its destination and moved there when it is complete.
#[derive(Debug)]
pub struct WholeFolder {
    /// None once it is finished.
    temporary: Option<tempfile::TempDir>,
    place: PathBuf,
    /// Holds the lock of the temporary folder.
    _lock: Option<File>,
}

impl WholeFolder {
    /// A folder that will be at `path`, where nothing is.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] where something is, and where the folder above cannot be written to.
    pub fn create(path: &Path) -> io::Result<Self> {
        match path.symlink_metadata() {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Such as of a name that is too long for the file system.
            Err(error) => return Err(error),
        }
        let mut unfinished = unfinished();
        let temporary = begin(folder_of(path), 0o777, |builder, folder| {
            builder.tempdir_in(folder)
        })?;
        unfinished.push(temporary.path().to_owned());
        drop(unfinished);
        let lock = folder::open(temporary.path()).ok();
        let lock = lock.filter(|lock| lock.try_lock().is_ok());
        Ok(Self {
            temporary: Some(temporary),
            place: path.to_owned(),
            _lock: lock,
        })
    }

    /// That a folder can be made at `path`, of which nothing is left.
    ///
    /// # Errors
    /// As [`WholeFolder::create`].
    pub fn check(path: &Path) -> io::Result<()> {
        Self::create(path).map(drop)
    }

    /// Where its files are written.
    pub fn path(&self) -> &Path {
        self.temporary.as_ref().map_or(&self.place, |it| it.path())
    }

    /// Moves the folder to its place. Its files are those that were synchronised before.
    ///
    /// # Errors
    /// Where it cannot be moved; then nothing is left of it.
    pub fn finish(mut self) -> io::Result<()> {
        folder::synchronize(self.path())?;
        if self.place.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::fs::rename(self.path(), &self.place)?;
        if let Some(temporary) = self.temporary.take() {
            // It is there no more.
            forget(&temporary.keep());
        }
        folder::synchronize(folder_of(&self.place))
    }
}

impl Drop for WholeFolder {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.path().to_owned();
            drop(temporary);
            forget(&path);
        }
    }
}

/// It is no temporary file any more: it has its name, or is gone.
fn forget(path: &Path) {
    unfinished().retain(|other| other != path);
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.flush()
    }
}

/// For archives, whose directory says where their members lie.
impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file()?.seek(to)
    }
}

/// Writes a file at `path` that is there whole or not at all.
///
/// # Errors
/// Those of [`WholeFile`].
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

/// Moves a temporary file to its destination and replaces what is there. Uses the standard library, which on Windows
/// also replaces a file that readers have open.
fn put(temporary: NamedTempFile, place: &Path) -> io::Result<()> {
    // Locked until it has the name.
    let (_file, path) = temporary.keep()?;
    std::fs::rename(&path, place).inspect_err(|_| {
        let _ = std::fs::remove_file(&path);
    })
}

fn folder_of(place: &Path) -> &Path {
    place
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Where a file at `path` will lie, where none is: a link to what is not there yet is written through.
fn linked(path: &Path) -> io::Result<PathBuf> {
    /// As many as the system follows.
    const MOST: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST {
        match path.read_link() {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its links lead round in a circle"))
}

/// Where the file at `path` really lies: a link stays a link. One that must not be written must not be replaced either.
fn existing(path: &Path, found: &Metadata) -> io::Result<PathBuf> {
    if !found.is_file() {
        let kind = if found.is_dir() {
            "a folder"
        } else {
            "no file"
        };
        return Err(io::Error::other(format!("it is {kind}")));
    }
    File::options().append(true).open(path)?;
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_when_it_is_finished_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        write(&path, b"old").expect("it is written");
        let mut file = WholeFile::create(&path).expect("it can be written");
        file.write_all(b"new").expect("memory");
        assert_eq!(std::fs::read(&path).expect("a file"), b"old");
        drop(file);
        assert_eq!(names(folder.path()), ["a"], "nothing is left behind");
        write(&path, b"newer").expect("it is written");
        assert_eq!(std::fs::read(&path).expect("a file"), b"newer");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_is_in_the_making_can_be_discarded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let file = WholeFile::create(&path).expect("it can be written");
        let temporary = file
            .temporary
            .as_ref()
            .expect("in the making")
            .path()
            .to_owned();
        let listed = || unfinished().contains(&temporary);
        assert!(listed() && temporary.exists());
        drop(file);
        assert!(!listed() && !temporary.exists());
        write(&path, b"new").expect("it is written");
        let in_folder = |path: &PathBuf| path.starts_with(folder.path());
        assert!(!unfinished().iter().any(in_folder));
    }

    #[test]
    fn what_is_there_is_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        // While the list is held, no other file is created.
        let held = unfinished();
        std::thread::scope(|scope| {
            let file = scope.spawn(|| write(&folder.path().join("a"), b"new"));
            let made = scope.spawn(|| WholeFolder::create(&folder.path().join("b")));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(names(folder.path()).is_empty());
            drop(held);
            file.join().expect("no panic").expect("it is written");
            made.join().expect("no panic").expect("it is made");
        });
        assert_eq!(names(folder.path()), ["a"]);
    }

    /// As when a program shows a file while another writes it anew. Some file systems of Windows, and Wine, replace no
    /// file that is open: there the old one stays complete.
    #[test]
    fn a_file_that_is_being_read_is_replaced() {
        use std::io::Read;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        write(&path, b"old").expect("it is written");
        let mut reader = File::open(&path).expect("a file");
        let replaced = write(&path, b"newer").is_ok();
        assert!(replaced || std::env::consts::OS == "windows");
        let mut read = String::new();
        reader
            .read_to_string(&mut read)
            .expect("the file as it was");
        assert_eq!(read, "old");
        let now = if replaced { "newer" } else { "old" };
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), now);
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = write(folder.path(), b"").expect_err("a folder");
        assert_eq!(error.to_string(), "it is a folder");
        let missing = folder.path().join("none").join("a");
        assert!(write(&missing, b"").is_err());
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = folder.path().join("x".repeat(300));
        // Wine says of such a name that nothing is there, and refuses it when the file is moved to it.
        let finishes = std::env::consts::OS == "windows";
        let file = WholeFile::create(&long);
        let folder_made = WholeFolder::create(&long);
        assert!(finishes || file.is_err() && folder_made.is_err());
        assert!(file.and_then(WholeFile::finish).is_err());
        assert!(folder_made.and_then(WholeFolder::finish).is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    #[cfg(any(target_os = "linux", windows))]
    fn what_dead_processes_left_is_removed_and_what_living_ones_make_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let program = match std::env::consts::OS {
            "windows" => "hostname",
            _ => "true",
        };
        // A process that has ended. Linux does not reuse its PID so soon; Windows does not as long as `ended` lives.
        let mut ended = std::process::Command::new(program)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a process");
        let dead = ended.id();
        ended.wait().expect("it ends");
        let left = format!(".halfgnn-{dead}-abc.part");
        let folder_left = format!(".halfgnn-{dead}-def.part");
        let elsewhere = format!(".halfgnn-{dead}-ghi.part");
        let living = format!(".halfgnn-{}-abc.part", std::process::id());
        for name in [&left, &elsewhere, &living, ".halfgnn-.part", "other.part"] {
            std::fs::write(at(name), "1").expect("space");
        }
        std::fs::create_dir(at(&folder_left)).expect("a folder");
        std::fs::write(at(&folder_left).join("a"), "1").expect("space");
        // As a process of another container holds it, whose number is not seen.
        let lock = File::open(at(&elsewhere)).expect("a file");
        lock.try_lock().expect("a lock");
        write(&at("new"), b"1").expect("it is written");
        let mut expected = [&elsewhere, &living, ".halfgnn-.part", "new", "other.part"];
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
        drop(ended);
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_what_is_not_there_yet_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        std::os::unix::fs::symlink("a", &link).expect("links are there");
        write(&link, b"new").expect("it is written");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).expect("a file"), b"new");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        write(&path, b"old").expect("it is written");
        std::os::unix::fs::symlink(&path, &link).expect("links are there");
        write(&link, b"new").expect("it is written");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).expect("a file"), b"new");
    }
}
