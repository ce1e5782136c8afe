//! Inputs: a file, or anything that can be read and searched, with a known length and reported progress.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::error::DataProblem;

/// Receives the progress of a long reading; a progress bar, say.
///
/// The calls of one reading come in order, though from different threads.
pub trait Progress: Send + Sync {
    /// Something begins that takes `steps` steps, bytes where a file is read; 0 where the number is not known.
    fn begin(&self, what: &str, steps: u64);
    /// `steps` steps were done since the last call.
    fn advance(&self, steps: u64);
}

/// Ignores progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
}

trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

/// A file, or bytes that stand for one.
pub(crate) struct Input<'a> {
    source: Box<dyn Source + 'a>,
    len: u64,
    progress: &'a dyn Progress,
}

impl<'a> Input<'a> {
    /// Opens a file.
    pub fn open(path: &Path, progress: &'a dyn Progress) -> Result<Self, DataProblem> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            let is_folder = io::Error::new(io::ErrorKind::IsADirectory, "it is a folder");
            return Err(is_folder.into());
        }
        let input = Self::new(file, progress)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        progress.begin(&name, input.len);
        Ok(input)
    }

    /// Takes a source from its beginning.
    pub fn new(
        mut source: impl Read + Seek + Send + 'a,
        progress: &'a dyn Progress,
    ) -> Result<Self, DataProblem> {
        let len = source.seek(SeekFrom::End(0))?;
        source.rewind()?;
        Ok(Self {
            source: Box::new(source),
            len,
            progress,
        })
    }

    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The first bytes, at most `bytes` of them; reading starts over afterwards.
    pub fn head(&mut self, bytes: u64) -> Result<Vec<u8>, DataProblem> {
        let mut head = Vec::new();
        (&mut self.source).take(bytes).read_to_end(&mut head)?;
        self.source.rewind()?;
        Ok(head)
    }
}

/// What UTF-8 may begin with, and is no part of the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// That what starts with `head` is neither packed nor encoded in a way that is known and not read.
pub(crate) fn check_encoding(head: &[u8]) -> Result<(), DataProblem> {
    const KNOWN: [(&[u8], &str, &str); 6] = [
        (
            b"\x28\xb5\x2f\xfd",
            "packed by zstd",
            "unpack it first, by unzstd",
        ),
        (b"BZh", "packed by bzip2", "unpack it first, by bunzip2"),
        (b"\xfd7zXZ", "packed by xz", "unpack it first, by unxz"),
        (
            b"\x04\x22\x4d\x18",
            "packed by lz4",
            "unpack it first, by unlz4",
        ),
        (b"\xff\xfe", "text in UTF-16", "save it as UTF-8"),
        (b"\xfe\xff", "text in UTF-16", "save it as UTF-8"),
    ];
    match KNOWN.iter().find(|(magic, ..)| head.starts_with(magic)) {
        Some(&(_, what, instead)) => Err(DataProblem::NotUnpacked { what, instead }),
        None => Ok(()),
    }
}

/// Whether a file that starts with `head` is gzip.
pub(crate) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(b"\x1f\x8b")
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

impl Seek for Input<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}
