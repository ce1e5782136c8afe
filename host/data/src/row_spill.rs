//! Rows of numbers that are made one after the other and do not fit in memory.

use super::error::{DataError, DataProblem};
use super::stored::{Kept, Nameless, Slots, StoredFeatures, StoredFile};
use bytemuck::Pod;
use half::f16;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are written at a time.
const BUFFER: usize = 1 << 20;

/// Rows that are written to an unnamed file, which is removed with its last handle, however the process ends. They are
/// read again as [`StoredFeatures`].
///
/// ```
/// use halfgnn_data::{RowSpill, StoredRow};
///
/// let mut spill = RowSpill::of_floats(&std::env::temp_dir(), 2)?;
/// spill.write_floats(&[1.0, 2.0])?;
/// spill.write_floats(&[3.0, 4.0, 5.0, 6.0])?;
/// let rows = spill.finish()?;
/// let mut last = [0.0; 2];
/// let put = |row: &mut StoredRow<'_>, to: &mut [f32]| to.copy_from_slice(row.floats());
/// rows.read_rows(vec![(2, &mut last)], put)?;
/// assert_eq!(last, [5.0, 6.0]);
/// # Ok::<(), halfgnn_data::DataError>(())
/// ```
#[derive(Debug)]
pub struct RowSpill {
    file: File,
    /// For messages.
    folder: PathBuf,
    kept: Kept,
    columns: usize,
    numbers: u64,
    /// What goes to the file next.
    buffer: Vec<u8>,
}

impl RowSpill {
    /// A file in a folder, for rows of `columns` halves.
    ///
    /// # Errors
    /// A [`DataError`] that names the folder, where no file can be made there.
    ///
    /// # Panics
    /// If rows have no numbers.
    pub fn of_halves(folder: &Path, columns: usize) -> Result<Self, DataError> {
        Self::create(folder, columns, Kept::Half)
    }

    /// The same of floats.
    ///
    /// # Errors
    /// Those of [`RowSpill::of_halves`].
    ///
    /// # Panics
    /// If rows have no numbers.
    pub fn of_floats(folder: &Path, columns: usize) -> Result<Self, DataError> {
        Self::create(folder, columns, Kept::Float)
    }

    fn create(folder: &Path, columns: usize, kept: Kept) -> Result<Self, DataError> {
        assert!(columns > 0, "rows without numbers");
        let file = tempfile::tempfile_in(folder)
            .map_err(|error| DataError::in_file(folder, DataProblem::CannotWrite(error)))?;
        Ok(Self {
            file,
            folder: folder.to_owned(),
            kept,
            columns,
            numbers: 0,
            buffer: Vec::new(),
        })
    }

    /// Writes numbers of the next rows.
    ///
    /// # Errors
    /// A [`DataError`] that names the folder, as where its disk is full.
    ///
    /// # Panics
    /// If rows are of floats.
    pub fn write_halves(&mut self, numbers: &[f16]) -> Result<(), DataError> {
        assert_eq!(self.kept, Kept::Half);
        self.write(numbers)
    }

    /// The same of rows of floats.
    ///
    /// # Errors
    /// Those of [`RowSpill::write_halves`].
    ///
    /// # Panics
    /// If rows are of halves.
    pub fn write_floats(&mut self, numbers: &[f32]) -> Result<(), DataError> {
        assert_eq!(self.kept, Kept::Float);
        self.write(numbers)
    }

    fn write<T: Pod>(&mut self, numbers: &[T]) -> Result<(), DataError> {
        self.numbers += numbers.len() as u64;
        // Little-endian, as every machine that this is built for.
        self.buffer.extend_from_slice(bytemuck::cast_slice(numbers));
        match self.buffer.len() < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), DataError> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| DataError::in_file(&self.folder, DataProblem::CannotWrite(error)))
    }

    /// The rows, to read.
    ///
    /// # Errors
    /// Those of [`RowSpill::write_halves`]; [`DataProblem::TooLarge`] of more than 2³² − 1 rows.
    ///
    /// # Panics
    /// If the last row is not whole.
    pub fn finish(mut self) -> Result<StoredFeatures, DataError> {
        self.flush()?;
        let columns = self.columns as u64;
        assert_eq!(self.numbers % columns, 0, "a row that is not whole");
        let rows = self.numbers / columns;
        let rows = u32::try_from(rows).map_err(|_| {
            let what = "rows on disk";
            DataError::in_file(
                &self.folder,
                DataProblem::TooLarge {
                    what,
                    rows,
                    columns,
                },
            )
        })?;
        let file = StoredFile {
            path: self.folder,
            nameless: Some(Nameless(Arc::new(self.file))),
            header: Vec::new(),
            length: self.numbers * self.kept.bytes() as u64,
            start: 0,
            first: 0,
        };
        Ok(StoredFeatures {
            files: Arc::new([file]),
            kept: self.kept,
            len: self.columns,
            slots: Slots::InOrder(rows),
            magnitudes: None,
            divisors: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredRow;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let number = |at: usize| f16::from_f32((at % 2000) as f32 - 7.5);
        let (columns, rows) = (5, 300_000);
        let mut spill = RowSpill::of_halves(folder.path(), columns).unwrap();
        let all: Vec<f16> = (0..rows * columns).map(number).collect();
        // Not by whole rows.
        all.chunks(7_777)
            .for_each(|some| spill.write_halves(some).unwrap());
        let stored = spill.finish().unwrap();
        assert_eq!((stored.vertices(), stored.feature_len()), (rows, columns));
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        // On Windows it has a name, and the system removes it with its last handle.
        let named = usize::from(std::env::consts::OS == "windows");
        assert_eq!(names, named, "a file that stays if the process is killed");
        for vertices in [vec![0, 299_999, 3, 4, 150_000], (0..rows as u32).collect()] {
            let mut found = vec![f16::ZERO; vertices.len() * columns];
            let wanted = vertices
                .iter()
                .copied()
                .zip(found.chunks_mut(columns))
                .collect();
            let put = |row: &mut StoredRow<'_>, to: &mut [f16]| {
                to.copy_from_slice(row.halves().expect("halves"));
            };
            stored.read_rows(wanted, put).unwrap();
            let expected = vertices
                .iter()
                .flat_map(|&row| &all[row as usize * columns..][..columns]);
            assert!(found.iter().eq(expected));
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap().path().join("gone");
        let message = RowSpill::of_floats(&folder, 1).unwrap_err().to_string();
        assert!(
            message.starts_with(&folder.display().to_string()),
            "{message}"
        );
    }

    /// `/dev/full` is a disk without space.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported() {
        let mut spill = RowSpill::of_floats(&std::env::temp_dir(), 1).unwrap();
        spill.file = File::options().write(true).open("/dev/full").unwrap();
        let message = (spill.write_floats(&[1.0]), spill.finish());
        let message = message.1.unwrap_err().to_string();
        assert!(
            message.contains("cannot be written: No space left on device"),
            "{message}"
        );
    }
}
