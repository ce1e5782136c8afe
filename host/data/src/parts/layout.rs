//! Where what lies in a file of a folder of parts.

use crate::error::DataProblem;
use crate::signature::Signature;
use std::io::{self, Read};
use std::ops::Range;

/// Of the files' form; a reader knows one.
pub(super) const VERSION: u32 = 1;

/// The bytes of numbers that are read and written at a time.
const PIECE: usize = 1 << 16;

/// What a file starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What is in it.
    pub kind: Kind,
    /// Which part.
    pub number: u32,
    /// Which manifest it is of.
    pub identity: u64,
}

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Vertices,
    Part,
}

impl Kind {
    const fn signature(self) -> Signature {
        let letters = match self {
            Self::Vertices => b"HGNNVERT",
            Self::Part => b"HGNNPART",
        };
        Signature {
            letters,
            version: VERSION,
        }
    }
}

impl Header {
    pub const BYTES: usize = 24;

    /// As it lies in the file.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..Signature::BYTES].copy_from_slice(&self.kind.signature().bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.identity.to_le_bytes());
        bytes
    }

    /// That a file starts with it.
    pub fn check(&self, found: &[u8; Self::BYTES]) -> Result<(), DataProblem> {
        let expected = self.bytes();
        let signature = std::array::from_fn(|at| found[at]);
        let signature = self.kind.signature().check(&signature);
        signature.map_err(|(field, reason)| DataProblem::part(field, reason))?;
        let number = u32::get(&found[Signature::BYTES..]);
        if number != self.number {
            let reason = format!("it is {number}, where {} is wanted", self.number);
            return Err(DataProblem::part("part", reason));
        }
        match found == &expected {
            true => Ok(()),
            false => Err(DataProblem::part("identity", "it is of another manifest")),
        }
    }
}

/// Where sections lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    sections: Vec<Range<u64>>,
}

impl Layout {
    /// Consecutive sections, each given as a count of numbers and the bytes of one; `None` where no file is that long.
    pub fn of(sizes: &[(u64, u64)]) -> Option<Self> {
        let mut sections = Vec::with_capacity(sizes.len());
        let mut start = Header::BYTES as u64;
        for &(count, bytes) in sizes {
            let end = start.checked_add(count.checked_mul(bytes)?)?;
            sections.push(start..end);
            start = end.checked_next_multiple_of(8)?;
        }
        // Offsets in files are signed.
        i64::try_from(start).ok()?;
        Some(Self { sections })
    }

    /// The bytes of the whole file.
    pub fn len(&self) -> u64 {
        let end = self
            .sections
            .last()
            .map_or(Header::BYTES as u64, |last| last.end);
        end.next_multiple_of(8)
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// Where a section lies.
    pub fn section(&self, number: usize) -> Range<u64> {
        self.sections[number].clone()
    }
}

/// A number as it lies in a file.
pub(crate) trait Word: Copy + Default {
    const BYTES: usize;
    fn get(bytes: &[u8]) -> Self;
    fn put(self, to: &mut Vec<u8>);
}

macro_rules! word {
    ($($type:ty),*) => {$(
        impl Word for $type {
            const BYTES: usize = size_of::<$type>();
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(std::array::from_fn(|at| bytes[at]))
            }
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
word!(u8, u32, u64, f32, f64, half::f16);

/// Sections of a file, read one after the other, and what they add up to.
pub(crate) struct Sections<R> {
    source: R,
    layout: Layout,
    next: usize,
    at: u64,
    sum: u32,
}

impl<R: Read> Sections<R> {
    /// Behind a header, which was read.
    pub fn new(source: R, layout: Layout) -> Self {
        Self {
            source,
            layout,
            next: 0,
            at: Header::BYTES as u64,
            sum: 0,
        }
    }

    /// The numbers of the next section; `key` is what they are.
    pub fn read<T: Word>(&mut self, key: &str) -> Result<Vec<T>, DataProblem> {
        let section = self.layout.section(self.next);
        self.next += 1;
        self.skip(section.start)?;
        let mut left = (section.end - section.start) / T::BYTES as u64;
        let mut values = DataProblem::with_capacity(key, left)?;
        let mut piece = vec![0; PIECE.min((section.end - section.start) as usize)];
        while left > 0 {
            let count = left.min((PIECE / T::BYTES) as u64) as usize;
            let bytes = &mut piece[..count * T::BYTES];
            self.source.read_exact(bytes)?;
            self.sum = crc32c::crc32c_append(self.sum, bytes);
            values.extend(bytes.chunks_exact(T::BYTES).map(T::get));
            left -= count as u64;
        }
        self.at = section.end;
        Ok(values)
    }

    /// Passes over the numbers of the next section without keeping them: calls `see` with each number and its position,
    /// and returns the byte where they start.
    pub fn pass<T: Word>(&mut self, mut see: impl FnMut(u64, T)) -> Result<u64, DataProblem> {
        let section = self.layout.section(self.next);
        self.next += 1;
        self.skip(section.start)?;
        let numbers = (section.end - section.start) / T::BYTES as u64;
        let mut piece = vec![0; PIECE.min((section.end - section.start) as usize)];
        let mut at = 0;
        while at < numbers {
            let count = (numbers - at).min((PIECE / T::BYTES) as u64) as usize;
            let bytes = &mut piece[..count * T::BYTES];
            self.source.read_exact(bytes)?;
            self.sum = crc32c::crc32c_append(self.sum, bytes);
            for value in bytes.chunks_exact(T::BYTES) {
                see(at, T::get(value));
                at += 1;
            }
        }
        self.at = section.end;
        Ok(section.start)
    }

    fn skip(&mut self, to: u64) -> io::Result<()> {
        io::copy(&mut (&mut self.source).take(to - self.at), &mut io::sink())?;
        self.at = to;
        Ok(())
    }

    /// That all that was read adds up to `sum`.
    pub fn finish(mut self, sum: u32) -> Result<(), DataProblem> {
        self.skip(self.layout.len())?;
        match self.sum == sum {
            true => Ok(()),
            false => Err(DataProblem::part(
                "checksum",
                format!("it is {:08x}, where manifest.json says {sum:08x}", self.sum),
            )),
        }
    }
}

/// That a file has the length of its layout.
pub(crate) fn check_length(bytes: u64, layout: &Layout) -> Result<(), DataProblem> {
    match bytes == layout.len() {
        true => Ok(()),
        false => Err(DataProblem::part(
            "length",
            format!(
                "it is {bytes} bytes, where manifest.json makes it {}",
                layout.len()
            ),
        )),
    }
}
