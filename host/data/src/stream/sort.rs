//! An external merge sort (Knuth, "The Art of Computer Programming", volume 3, 5.4). Keys that fill the memory are
//! sorted and written as a run. The runs are merged as they are read.
//!
//! ```text
//!  keys ─► a full buffer, sorted ─► run 0 │ run 1 │ … │ the last stays in memory
//!                                    └───────┴─────┴──► the smallest of their first keys, over and over
//! ```

use super::spill::{Spill, SpillReader, SpillWriter};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::path::{Path, PathBuf};

/// What is to be sorted.
#[derive(Debug)]
pub(super) struct Sorter {
    folder: PathBuf,
    capacity: usize,
    keys: Vec<u64>,
    runs: Option<SpillWriter<u64>>,
}

impl Sorter {
    /// A sorter that keeps up to `capacity` keys in memory, and runs of as many in a file in `folder`.
    pub fn new(folder: &Path, capacity: usize) -> Self {
        Self {
            folder: folder.into(),
            capacity,
            keys: Vec::new(),
            runs: None,
        }
    }

    pub fn push(&mut self, key: u64) -> io::Result<()> {
        if self.keys.len() == self.capacity {
            self.keys.par_sort_unstable();
            if self.runs.is_none() {
                self.runs = Some(SpillWriter::create(&self.folder)?);
            }
            if let Some(runs) = &mut self.runs {
                runs.extend(&self.keys)?;
            }
            self.keys.clear();
        }
        if self.keys.capacity() == self.keys.len() {
            // Never twice the capacity.
            let more = self.keys.len().clamp(1 << 10, 1 << 20);
            self.keys
                .reserve_exact(more.min(self.capacity - self.keys.len()));
        }
        self.keys.push(key);
        Ok(())
    }

    /// The keys in ascending order, those that are equal as often as they are there.
    pub fn sorted(mut self) -> io::Result<Merge> {
        self.keys.par_sort_unstable();
        let mut merge = Merge {
            spill: self.runs.map(SpillWriter::finish).transpose()?,
            runs: Vec::new(),
            last: self.keys.into_iter(),
            first: BinaryHeap::new(),
        };
        let count = merge
            .spill
            .as_ref()
            .map_or(0, |spill| spill.len() / self.capacity as u64);
        let piece = self
            .capacity
            .checked_div(count as usize)
            .unwrap_or(0)
            .clamp(1, 1 << 15);
        merge.runs = (0..count)
            .map(|run| run * self.capacity as u64..(run + 1) * self.capacity as u64)
            .map(|run| SpillReader::new(run, piece))
            .collect();
        for run in 0..=merge.runs.len() {
            let first = merge.next_of(run)?;
            merge.first.extend(first.map(|key| Reverse((key, run))));
        }
        Ok(merge)
    }
}

/// Runs on their way to one.
#[derive(Debug)]
pub(super) struct Merge {
    spill: Option<Spill<u64>>,
    runs: Vec<SpillReader<u64>>,
    last: std::vec::IntoIter<u64>,
    /// The first key that is left of each run, and which run that is.
    first: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Merge {
    /// The next key.
    pub fn next(&mut self) -> io::Result<Option<u64>> {
        let Some(&Reverse((key, run))) = self.first.peek() else {
            return Ok(None);
        };
        let next = self.next_of(run)?;
        if let Some(mut top) = self.first.peek_mut() {
            match next {
                Some(next) => *top = Reverse((next, run)),
                None => drop(PeekMut::pop(top)),
            }
        }
        Ok(Some(key))
    }

    fn next_of(&mut self, run: usize) -> io::Result<Option<u64>> {
        match (&self.spill, self.runs.get_mut(run)) {
            (Some(spill), Some(reader)) => reader.next(spill),
            _ => Ok(self.last.next()),
        }
    }

    /// The bytes of its buffers.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        let runs: usize = self.runs.iter().map(SpillReader::held).sum();
        8 * self.last.as_slice().len() + runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_and_memory_is_for_room_of_them() {
        let folder = tempfile::tempdir().unwrap();
        for (capacity, keys) in [(1, 0), (1, 1), (1, 40), (7, 6), (7, 7), (7, 8), (64, 5000)] {
            let mut expected: Vec<u64> = (0..keys).map(|at| at * at * 31 % 97).collect();
            let mut sorter = Sorter::new(folder.path(), capacity);
            for &key in &expected {
                sorter.push(key).unwrap();
                assert!(sorter.keys.capacity() <= capacity, "{capacity} of {keys}");
            }
            expected.sort_unstable();
            let mut merge = sorter.sorted().unwrap();
            let runs = (keys as usize).saturating_sub(1) / capacity;
            assert_eq!(merge.runs.len(), runs);
            let mut found = Vec::new();
            while let Some(key) = merge.next().unwrap() {
                found.push(key);
                // The last run, and as much again or a key a run.
                assert!(
                    merge.held() <= 8 * (capacity + capacity.max(runs)),
                    "{capacity} of {keys}"
                );
            }
            assert_eq!(found, expected);
            // On Windows an open file has a name, and the system removes it with its last handle.
            let named = usize::from(runs > 0 && std::env::consts::OS == "windows");
            let names = || std::fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(names(), named);
            drop(merge);
            assert_eq!(names(), 0);
        }
    }
}
