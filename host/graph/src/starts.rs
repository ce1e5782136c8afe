//! Where rows start, in a form that an edge-parallel SpMM reads 32 edges at a time.

use super::Csr;

/// What an edge-parallel SpMM reads instead of the row of each edge: a quarter of a byte an edge, and four a row that
/// has edges.
///
/// ```text
///  rows     0 0 2 2 2 2 … 2 5 │ 5 7 …          edge 32 begins the second word
///  starts   1 0 1 0 0 0 … 0 1 │ 0 1 …          bit k % 32 of word k / 32: edge k is the first of its row
///  rank     0                 │ 3              starts before the word
///  filled   0 2 5 7 …                          edge k is in row filled[starts up to and with k, less one]
/// ```
/// Past the last edge stands one more start, and words of zeros up to [`Starts::words`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starts {
    /// Starts and rank of each word.
    pub words: Vec<[u32; 2]>,
    /// The rows that have edges, ascending; then two that stand for none.
    pub filled: Vec<u32>,
}

/// Words that are looked at after the one that holds the last start.
const AHEAD: usize = 2;

impl Starts {
    /// Of the rows of `csr`.
    pub fn new(csr: &Csr) -> Self {
        Self::of_offsets(csr.offsets())
    }

    /// Of the rows that start at `offsets`, the last of which is the number of edges.
    pub fn of_offsets(offsets: &[u64]) -> Self {
        let edges = offsets.last().map_or(0, |&end| end as usize);
        let mut words = vec![[0_u32; 2]; Self::words(edges)];
        let mut filled = Vec::with_capacity(offsets.len() + AHEAD);
        for (row, ends) in offsets.windows(2).enumerate() {
            if ends[0] < ends[1] {
                words[(ends[0] / 32) as usize][0] |= 1 << (ends[0] % 32);
                filled.push(row as u32);
            }
        }
        words[edges / 32][0] |= 1 << (edges % 32);
        let mut rank = 0;
        for word in &mut words {
            word[1] = rank;
            rank += word[0].count_ones();
        }
        filled.extend([0; AHEAD]);
        Self { words, filled }
    }

    /// Words for the given number of edges.
    pub const fn words(edges: usize) -> usize {
        edges / 32 + 1 + AHEAD
    }

    /// Length of [`Starts::filled`] for the given number of rows with edges.
    pub const fn filled(rows: usize) -> usize {
        rows + AHEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(starts: &Starts, edges: usize) -> Vec<u32> {
        (0..edges)
            .map(|edge| {
                let [bits, rank] = starts.words[edge / 32];
                let upto = bits & (2u32 << (edge % 32)).wrapping_sub(1);
                starts.filled[(rank + upto.count_ones() - 1) as usize]
            })
            .collect()
    }

    #[test]
    fn the_row_of_every_edge_comes_back() {
        for degrees in [
            vec![],
            vec![0, 0],
            vec![1],
            vec![31, 1, 0, 32, 33, 0, 0, 64, 1, 1, 200, 0],
            vec![0, 32],
        ] {
            let rows: Vec<u32> = degrees
                .iter()
                .enumerate()
                .flat_map(|(row, &degree)| std::iter::repeat_n(row as u32, degree))
                .collect();
            let columns = vec![0; rows.len()];
            let csr = Csr::from_edges(degrees.len(), &rows, &columns).expect("edges of the graph");
            let starts = Starts::new(&csr);
            assert_eq!(rows_of(&starts, rows.len()), rows);
            // The end of the edges reads as the start of a row.
            let [bits, _] = starts.words[rows.len() / 32];
            assert_eq!(bits >> (rows.len() % 32), 1);
            let filled = degrees.iter().filter(|&&degree| degree > 0).count();
            assert_eq!(Starts::words(rows.len()), starts.words.len());
            assert_eq!(Starts::filled(filled), starts.filled.len());
        }
    }
}
