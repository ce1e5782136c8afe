//! Features of one bit, packed.

use super::error::DataProblem;
use halfgnn_graph::parallel;
use halfgnn_graph::reorder::Permutation;

/// Bits of a word.
const WORD: usize = 64;

/// Features that are all +1 and −1, or all 1 and 0, packed one bit each. Bit `f % 64` of word `f / 64` of a row is set
/// where feature `f` is 1. Bits past the last feature are zero.
#[derive(Debug, Clone, PartialEq)]
pub struct BitFeatures {
    len: usize,
    are_signs: bool,
    words: Vec<u64>,
}

impl BitFeatures {
    /// Features of the given number of vertices, `len` each, none of which is 1 yet. `are_signs` says whether they are
    /// −1, or 0.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where `len` is 0, [`DataProblem::OutOfMemory`] where there is not enough memory.
    pub fn unset(vertices: usize, len: usize, are_signs: bool) -> Result<Self, DataProblem> {
        if len == 0 {
            let shape = [vertices as u64, 0];
            return Err(DataProblem::shape(
                "features",
                &shape,
                "at least one column",
            ));
        }
        let all = (vertices as u64).saturating_mul(len.div_ceil(WORD) as u64);
        let mut words = DataProblem::with_capacity("features", all)?;
        words.resize(all as usize, 0);
        Ok(Self {
            len,
            are_signs,
            words,
        })
    }

    /// Sets the features of a vertex from the bits of `bytes`: eight features a byte, the lowest bit first. Bits past
    /// the last feature are ignored.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn set_row(&mut self, vertex: usize, bytes: &[u8]) {
        let (row, len) = (self.row_words(), self.len);
        let words = self.words[vertex * row..][..row].iter_mut().enumerate();
        for ((at, word), bytes) in words.zip(bytes.chunks(WORD / 8)) {
            let mut little = [0; WORD / 8];
            little[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(little) & mask(len - at * WORD);
        }
    }

    /// The number of features of a vertex.
    pub fn feature_len(&self) -> usize {
        self.len
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.words.len() / self.row_words()
    }

    /// What a bit that is not set stands for: −1 or 0.
    pub fn lowest(&self) -> f32 {
        match self.are_signs {
            true => -1.0,
            false => 0.0,
        }
    }

    /// The words of a vertex, ⌈[`feature_len`](Self::feature_len) / 64⌉.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn row(&self, vertex: usize) -> &[u64] {
        let row = self.row_words();
        &self.words[vertex * row..][..row]
    }

    /// The features of which no vertex has 1: as a row, a bit each.
    pub fn empty_columns(&self) -> Vec<u64> {
        let row = self.row_words();
        let pieces = parallel::chunks(&self.words, row * PIECE_ROWS);
        let of_pieces = parallel::map(pieces, |_, rows| merged(row, rows));
        let mut empty = merged(row, &of_pieces.concat());
        for (at, word) in empty.iter_mut().enumerate() {
            *word = !*word & mask(self.len - at * WORD);
        }
        empty
    }

    pub(crate) fn reordered(&self, order: &Permutation) -> Self {
        Self {
            words: order.apply(&self.words, self.row_words()),
            ..*self
        }
    }

    /// Every number, row-major.
    pub(crate) fn to_dense(&self) -> Vec<f32> {
        let mut values = vec![self.lowest(); self.vertices() * self.len];
        parallel::for_each(
            parallel::chunks_mut(&mut values, self.len),
            |vertex, row| {
                self.for_each_set(vertex, |column| row[column] = 1.0);
            },
        );
        values
    }

    /// Calls `put` with the features of a vertex that are 1.
    pub(crate) fn for_each_set(&self, vertex: usize, mut put: impl FnMut(usize)) {
        for (at, &word) in self.row(vertex).iter().enumerate() {
            let mut left = word;
            while left != 0 {
                put(at * WORD + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// Calls `put` with the column and the number of each feature of a vertex that is not zero.
    pub(crate) fn for_each(&self, vertex: usize, mut put: impl FnMut(usize, f32)) {
        if !self.are_signs {
            return self.for_each_set(vertex, |column| put(column, 1.0));
        }
        let row = self.row(vertex);
        for column in 0..self.len {
            let sign = match row[column / WORD] >> (column % WORD) & 1 {
                0 => -1.0,
                _ => 1.0,
            };
            put(column, sign);
        }
    }

    /// The largest magnitude of all.
    pub(crate) fn largest_magnitude(&self) -> f32 {
        let is_set = |word: &u64| *word != 0;
        match self.are_signs && !self.words.is_empty()
            || parallel::position_first(&self.words, is_set).is_some()
        {
            true => 1.0,
            false => 0.0,
        }
    }

    /// The bytes on the host.
    pub(crate) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn row_words(&self) -> usize {
        self.len.div_ceil(WORD)
    }
}

/// Rows that a thread looks at.
const PIECE_ROWS: usize = 1 << 12;

/// The bits that are set in some of the rows.
fn merged(row: usize, rows: &[u64]) -> Vec<u64> {
    let mut set = vec![0; row];
    for words in rows.chunks_exact(row) {
        set.iter_mut().zip(words).for_each(|(to, word)| *to |= word);
    }
    set
}

/// A mask of the lowest `left` bits of a word, all of them from 64 on.
fn mask(left: usize) -> u64 {
    match left {
        WORD.. => u64::MAX,
        _ => (1 << left) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;

    /// Of 130 features: feature 0 is 1 of all, feature 1 of none, others of some.
    fn packed(are_signs: bool, vertices: usize) -> BitFeatures {
        let mut bits = BitFeatures::unset(vertices, 130, are_signs).unwrap();
        for vertex in 0..vertices {
            bits.set_row(vertex, &bytes(vertex));
        }
        bits
    }

    fn bytes(vertex: usize) -> [u8; 17] {
        std::array::from_fn(|at| match (vertex * 37 + at * 91) as u8 {
            first if at == 0 => first & !2 | 1,
            byte => byte,
        })
    }

    #[test]
    fn bits_are_what_their_dense_form_says() {
        for are_signs in [false, true] {
            let bits = packed(are_signs, 9);
            let lowest = if are_signs { -1.0 } else { 0.0 };
            let value = |at: usize| {
                let (vertex, column) = (at / 130, at % 130);
                match bytes(vertex)[column / 8] >> (column % 8) & 1 {
                    1 => 1.0,
                    _ => lowest,
                }
            };
            let expected: Vec<f32> = (0..9 * 130).map(value).collect();
            assert_eq!(bits.to_dense(), expected);
            let features = Features::Bits(bits.clone());
            assert_eq!((features.vertices(), features.feature_len()), (9, 130));
            assert_eq!(features.bytes(), 9 * 3 * 8);
            assert_eq!(features.to_dense().unwrap(), expected);
            assert_eq!(features.could_be_counts(), !are_signs);
            let dense = Features::dense(130, expected).unwrap();
            assert_eq!(
                features.column_magnitudes().unwrap(),
                dense.column_magnitudes().unwrap()
            );
            // What makes other numbers of them unpacks them.
            let [mut divided, mut of_dense] = [features, dense];
            assert_eq!(divided.normalize_rows(), of_dense.normalize_rows());
            assert_eq!(divided, of_dense);
            let mut divided = Features::Bits(bits);
            divided.divide_columns(&[2.0; 130]);
            let halves = divided.to_dense().unwrap();
            assert_eq!((halves[0], halves[1]), (0.5, lowest / 2.0));
        }
    }

    #[test]
    fn empty_columns_are_those_of_all_rows() {
        // More rows than a thread looks at, and the last is unlike the others.
        let vertices = 2 * PIECE_ROWS + 3;
        let mut bits = BitFeatures::unset(vertices, 70, true).unwrap();
        let mut row = [0, 0, 0, 0, 0, 0, 0, 0, u8::MAX];
        row[0] = 0b1101;
        (0..vertices).for_each(|vertex| bits.set_row(vertex, &row));
        assert_eq!(bits.row(5), [0b1101, 0b11_1111]);
        assert_eq!(bits.empty_columns(), [!0b1101, 0]);
        row[0] = 0b1111;
        bits.set_row(vertices - 1, &row);
        assert_eq!(bits.empty_columns(), [!0b1111, 0]);

        let unset = BitFeatures::unset(2, 70, false).unwrap();
        let largest = [&unset, &bits].map(BitFeatures::largest_magnitude);
        assert_eq!(largest, [0.0, 1.0]);
        assert!(BitFeatures::unset(2, 0, true).is_err());
    }
}
