//! Which rows of a matrix are of one group.

use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;
use halfgnn_contract::norms::{CHUNK_WORDS, GROUP_WORDS, rows_per_chunk};

/// Rows in groups, which follow one another: those of the vertices of many graphs, or of one.
///
/// ```text
///  rows       0 1 2 │ 3 4 │ 5 6 7 … 400           three groups
///  chunks     0 1 2 │ 3 4 │ 5 … 132 │ 133 … 260 │ 261 … 388 │ 389 … 400
/// ```
#[derive(Debug)]
pub struct RowGroups<B: Storage> {
    pub(crate) chunks: Array<B, u32>,
    pub(crate) groups: Array<B, u32>,
    rows: usize,
}

impl<B: Storage> RowGroups<B> {
    /// From where each group starts, and last the number of all rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a group ends before it starts or the first is not at row 0, [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(backend: &B, starts: &[u32]) -> Result<Self, Error> {
        let ordered = starts.first() == Some(&0) && starts.is_sorted();
        let &[.., rows] = starts else {
            return Err(disordered());
        };
        if !ordered {
            return Err(disordered());
        }
        let (mut chunks, mut groups) = (Vec::new(), Vec::new());
        for (group, ends) in starts.windows(2).enumerate() {
            let (start, end) = (ends[0], ends[1]);
            let before = (chunks.len() / CHUNK_WORDS) as u32;
            // A group has fewer than 2³² rows, and so has a chunk of it.
            let step = rows_per_chunk(u64::from(end - start)) as u32;
            let mut first = start;
            while first < end {
                let past = first.saturating_add(step).min(end);
                chunks.extend([first, past, group as u32, start]);
                first = past;
            }
            let after = (chunks.len() / CHUNK_WORDS) as u32;
            groups.extend([before, after, end - start, start]);
        }
        let upload = |words: &[u32]| Array::from_slice(backend, words, MemoryKind::Graph);
        Ok(Self {
            chunks: upload(&chunks)?,
            groups: upload(&groups)?,
            rows: rows as usize,
        })
    }

    /// One group of all rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more rows than 32 bits count, [`Error::Driver`] where there is not enough memory.
    pub fn whole(backend: &B, rows: usize) -> Result<Self, Error> {
        let rows = u32::try_from(rows).map_err(|_| Error::Unsupported {
            operator: NAME,
            reason: format!("{rows} rows; a group counts them in 32 bits"),
        })?;
        Self::new(backend, &[0, rows])
    }

    /// Rows of all groups.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len() / GROUP_WORDS
    }

    /// The number of chunks that they are cut into.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len() / CHUNK_WORDS
    }
}

const NAME: &str = "RowGroups";

fn disordered() -> Error {
    Error::Unsupported {
        operator: NAME,
        reason: "groups should start at row 0 and each where the one before ends or later, and end with the number of rows"
            .into(),
    }
}
