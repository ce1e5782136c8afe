//! Work shared out to the threads of the surrounding rayon pool, in pieces that depend on the graph and on shapes alone.

use std::ops::Range;

/// Elements of edges and rows that are one piece of work: some tens of microseconds.
const PIECE: usize = 1 << 17;

/// Calls `f(rows, their part of out)` for pieces of the rows of a graph that have about as many edges each, in
/// parallel. Row `i` has the edges `offsets[i]..offsets[i + 1]` and `stride` elements of `out`.
///
/// A row is in one piece, however many edges it has: who works on it cuts it further.
pub(crate) fn by_edges<T: Send>(
    offsets: &[u64],
    stride: usize,
    out: &mut [T],
    f: &(impl Fn(Range<usize>, &mut [T]) + Sync),
) {
    let rows = offsets.len() - 1;
    split(offsets, 0..rows, stride, &mut out[..rows * stride], f);
}

fn split<T: Send>(
    offsets: &[u64],
    rows: Range<usize>,
    stride: usize,
    out: &mut [T],
    f: &(impl Fn(Range<usize>, &mut [T]) + Sync),
) {
    // A row costs something without edges as well.
    let cost = |row: usize| offsets[row] as usize + row;
    let (first, last) = (cost(rows.start), cost(rows.end));
    if rows.len() <= 1 || (last - first).saturating_mul(stride) <= PIECE {
        return f(rows, out);
    }
    let middle = first + (last - first) / 2;
    let (mut low, mut high) = (rows.start + 1, rows.end - 1);
    while low < high {
        let row = low + (high - low) / 2;
        if cost(row) < middle {
            low = row + 1;
        } else {
            high = row;
        }
    }
    let (before, after) = out.split_at_mut((low - rows.start) * stride);
    rayon::join(
        || split(offsets, rows.start..low, stride, before, f),
        || split(offsets, low..rows.end, stride, after, f),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_row_is_in_one_piece_of_about_as_many_edges() {
        let degrees = (0..4000u64).map(|row| if row == 7 { 100_000 } else { row % 50 });
        let mut offsets = vec![0];
        for degree in degrees {
            offsets.push(offsets[offsets.len() - 1] + degree);
        }
        let stride = 64;
        let mut out = vec![0u8; 4000 * stride];
        let pieces = Mutex::new(Vec::new());
        by_edges(&offsets, stride, &mut out, &|rows, out| {
            assert_eq!(out.len(), rows.len() * stride);
            out.iter_mut().for_each(|out| *out += 1);
            pieces.lock().unwrap().push(rows);
        });
        assert!(out.iter().all(|&out| out == 1));
        let pieces = pieces.into_inner().unwrap();
        assert!(pieces.len() > 40);
        for rows in pieces {
            let edges = offsets[rows.end] - offsets[rows.start];
            assert!(
                rows == (7..8) || edges as usize * stride <= PIECE,
                "{rows:?}"
            );
        }
    }

    #[test]
    fn no_rows_are_no_work_or_an_empty_piece() {
        by_edges(&[0], 8, &mut [0u8; 0], &|rows, _| assert!(rows.is_empty()));
    }
}
