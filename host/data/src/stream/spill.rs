//! Numbers in an unnamed file, where they do not all fit in memory.

use bytemuck::Pod;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::Path;

/// Bytes that are written, or read, at a time.
const BUFFER: usize = 1 << 18;

/// A file that is being filled.
#[derive(Debug)]
pub(crate) struct SpillWriter<T> {
    /// What is written by now.
    spill: Spill<T>,
    buffer: Vec<T>,
}

impl<T: Pod> SpillWriter<T> {
    /// A file in a folder; it is gone with the process, whatever ends it.
    pub fn create(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            spill: Spill {
                file: tempfile::tempfile_in(folder)?,
                len: 0,
                numbers: PhantomData,
            },
            buffer: Vec::with_capacity(BUFFER / size_of::<T>()),
        })
    }

    /// How many numbers were put there.
    pub fn len(&self) -> u64 {
        self.spill.len + self.buffer.len() as u64
    }

    pub fn push(&mut self, number: T) -> io::Result<()> {
        self.buffer.push(number);
        match self.buffer.len() < BUFFER / size_of::<T>() {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Many at once, which go to the file without a copy.
    pub fn extend(&mut self, numbers: &[T]) -> io::Result<()> {
        self.flush()?;
        self.spill.append(numbers)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spill.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// What was put there, to read.
    pub fn written(&mut self) -> io::Result<&Spill<T>> {
        self.flush()?;
        Ok(&self.spill)
    }

    /// The file, to which nothing is put any more.
    pub fn finish(mut self) -> io::Result<Spill<T>> {
        self.flush()?;
        Ok(self.spill)
    }
}

/// A file of numbers, which can be read any number of times.
#[derive(Debug)]
pub(crate) struct Spill<T> {
    file: File,
    len: u64,
    numbers: PhantomData<T>,
}

impl<T: Pod> Spill<T> {
    pub fn len(&self) -> u64 {
        self.len
    }

    fn append(&mut self, numbers: &[T]) -> io::Result<()> {
        self.write_at(self.len, numbers)?;
        self.len += numbers.len() as u64;
        Ok(())
    }

    /// Puts numbers in the place of others.
    pub fn write_at(&self, place: u64, numbers: &[T]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(place * size_of::<T>() as u64))?;
        file.write_all(bytemuck::cast_slice(numbers))
    }

    /// Numbers from a place on.
    pub fn read_at(&self, place: u64, numbers: &mut [T]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(place * size_of::<T>() as u64))?;
        file.read_exact(bytemuck::cast_slice_mut(numbers))
    }

    /// Calls `take` with `piece` numbers after the other, fewer at the end.
    pub fn each_piece<E: From<io::Error>>(
        &self,
        piece: usize,
        mut take: impl FnMut(&[T]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut numbers = vec![T::zeroed(); self.len.min(piece as u64) as usize];
        let mut place = 0;
        while place < self.len {
            let count = (self.len - place).min(piece as u64) as usize;
            self.read_at(place, &mut numbers[..count])?;
            take(&numbers[..count])?;
            place += count as u64;
        }
        Ok(())
    }

    /// One number after the other, from the first on.
    pub fn reader(&self) -> SpillReader<T> {
        SpillReader::new(0..self.len, BUFFER / size_of::<T>())
    }
}

/// A reader of a [`Spill`], of which there may be several.
#[derive(Debug)]
pub(crate) struct SpillReader<T> {
    left: std::ops::Range<u64>,
    buffer: Vec<T>,
    /// What of the buffer was given out.
    taken: usize,
    /// Numbers that are read at a time.
    piece: usize,
}

impl<T: Pod> SpillReader<T> {
    pub fn new(range: std::ops::Range<u64>, piece: usize) -> Self {
        Self {
            left: range,
            buffer: Vec::new(),
            taken: 0,
            piece,
        }
    }

    /// The next, `None` behind the last.
    pub fn next(&mut self, from: &Spill<T>) -> io::Result<Option<T>> {
        if self.taken == self.buffer.len() {
            let count = (self.left.end - self.left.start).min(self.piece as u64);
            self.buffer.clear();
            self.buffer.reserve_exact(count as usize);
            self.buffer.resize(count as usize, T::zeroed());
            from.read_at(self.left.start, &mut self.buffer)?;
            self.left.start += count;
            self.taken = 0;
        }
        let next = self.buffer.get(self.taken).copied();
        self.taken += usize::from(next.is_some());
        Ok(next)
    }

    /// The bytes of its buffer.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.buffer.capacity() * size_of::<T>()
    }
}
