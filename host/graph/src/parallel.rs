//! Work shared out to the threads of the surrounding rayon pool.
//!
//! What is generic, over formats or sources of edges, is compiled for each of them with what shares its work out. Here
//! that is the halving alone, and all of it meets in one call of rayon: rayon's own adapters were a third of the
//! functions of a program.

use std::ops::Range;

/// Elements of edges and rows that are one piece of work: some tens of microseconds.
const PIECE: usize = 1 << 17;

/// Pieces of equal items for each thread, so that one which waits finds some to take.
const PIECES_PER_THREAD: usize = 8;

/// Calls both, on two threads where one is free.
#[inline(never)]
fn join(first: &mut (dyn FnMut() + Send), second: &mut (dyn FnMut() + Send)) {
    rayon::join(first, second);
}

/// Whether the caller is a thread of a pool, whose others wait for it.
pub fn is_in_pool() -> bool {
    rayon::current_thread_index().is_some()
}

/// Calls `f` with both, on two threads where one is free.
pub fn both<T: Send>(first: T, second: T, f: &(dyn Fn(T) + Sync)) {
    let (mut first, mut second) = (Some(first), Some(second));
    let call = |of: &mut Option<T>| of.take().into_iter().for_each(f);
    join(&mut || call(&mut first), &mut || call(&mut second));
}

/// What is worked on item by item, and can be cut between any two.
pub trait Items: Send + Sized {
    /// One of them.
    type Item;

    /// How many there are.
    fn count(&self) -> usize;

    /// Those before an item, and the rest.
    fn cut(self, at: usize) -> (Self, Self);

    /// One after the other.
    fn each(self) -> impl Iterator<Item = Self::Item>;
}

impl Items for Range<usize> {
    type Item = usize;

    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, at: usize) -> (Self, Self) {
        let middle = self.start + at;
        (self.start..middle, middle..self.end)
    }

    fn each(self) -> impl Iterator<Item = usize> {
        self
    }
}

impl<'a, T: Sync> Items for &'a [T] {
    type Item = &'a T;

    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    fn each(self) -> impl Iterator<Item = &'a T> {
        self.iter()
    }
}

impl<'a, T: Send> Items for &'a mut [T] {
    type Item = &'a mut T;

    fn count(&self) -> usize {
        self.len()
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }

    fn each(self) -> impl Iterator<Item = &'a mut T> {
        self.iter_mut()
    }
}

/// Two of the same number of items, or the first items of the longer.
impl<A: Items, B: Items> Items for (A, B) {
    type Item = (A::Item, B::Item);

    fn count(&self) -> usize {
        self.0.count().min(self.1.count())
    }

    fn cut(self, at: usize) -> (Self, Self) {
        let (a, b) = (self.0.cut(at), self.1.cut(at));
        ((a.0, b.0), (a.1, b.1))
    }

    fn each(self) -> impl Iterator<Item = Self::Item> {
        self.0.each().zip(self.1.each())
    }
}

/// Items that may be missing: as many as others have, each none.
impl<I: Items> Items for Option<I> {
    type Item = Option<I::Item>;

    fn count(&self) -> usize {
        self.as_ref().map_or(usize::MAX, I::count)
    }

    fn cut(self, at: usize) -> (Self, Self) {
        self.map(|items| items.cut(at)).unzip()
    }

    fn each(self) -> impl Iterator<Item = Self::Item> {
        let mut items = self.map(I::each);
        std::iter::from_fn(move || match &mut items {
            Some(items) => items.next().map(Some),
            None => Some(None),
        })
    }
}

/// Chunks of the given number of elements, as of [`slice::chunks`].
pub struct Chunks<'a, T> {
    values: &'a [T],
    width: usize,
}

/// Chunks of the given number of elements to write to, as of [`slice::chunks_mut`].
pub struct ChunksMut<'a, T> {
    values: &'a mut [T],
    width: usize,
}

/// The chunks of `width` elements, the last of what is left; of no elements there are none, whatever the width.
pub fn chunks<T>(values: &[T], width: usize) -> Chunks<'_, T> {
    let width = width.max(1);
    Chunks { values, width }
}

/// As [`chunks`], to write to.
pub fn chunks_mut<T>(values: &mut [T], width: usize) -> ChunksMut<'_, T> {
    let width = width.max(1);
    ChunksMut { values, width }
}

impl<'a, T: Sync> Items for Chunks<'a, T> {
    type Item = &'a [T];

    fn count(&self) -> usize {
        self.values.len().div_ceil(self.width)
    }

    fn cut(self, at: usize) -> (Self, Self) {
        let width = self.width;
        let (before, after) = self.values.split_at(self.values.len().min(at * width));
        (chunks(before, width), chunks(after, width))
    }

    fn each(self) -> impl Iterator<Item = &'a [T]> {
        self.values.chunks(self.width)
    }
}

impl<'a, T: Send> Items for ChunksMut<'a, T> {
    type Item = &'a mut [T];

    fn count(&self) -> usize {
        self.values.len().div_ceil(self.width)
    }

    fn cut(self, at: usize) -> (Self, Self) {
        let (width, middle) = (self.width, self.values.len().min(at * self.width));
        let (before, after) = self.values.split_at_mut(middle);
        (chunks_mut(before, width), chunks_mut(after, width))
    }

    fn each(self) -> impl Iterator<Item = &'a mut [T]> {
        self.values.chunks_mut(self.width)
    }
}

/// Calls `f(number of the first, items)` for pieces of the items, none cut that has no more than `least`. How many
/// there are depends on the threads, so sums over a piece must not be kept.
pub fn pieces<I: Items>(items: I, least: usize, f: &(dyn Fn(usize, I) + Sync)) {
    let pieces = PIECES_PER_THREAD * rayon::current_num_threads();
    let most = items.count().div_ceil(pieces).max(least);
    halve(0, items, most, f);
}

/// Calls `f(number, item)` for each item.
pub fn for_each<I: Items>(items: I, f: impl Fn(usize, I::Item) + Sync) {
    pieces(items, 1, &|first, items| {
        (first..)
            .zip(items.each())
            .for_each(|(at, item)| f(at, item));
    });
}

/// The results of `f(number, item)`, in the order of the items.
pub fn map<I: Items, R: Send>(items: I, f: impl Fn(usize, I::Item) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..items.count()).map(|_| None).collect();
    for_each((results.as_mut_slice(), items), |at, (result, item)| {
        *result = Some(f(at, item));
    });
    results.into_iter().flatten().collect()
}

/// The place of the first value that is so.
pub fn position_first<T: Sync>(values: &[T], is: impl Fn(&T) -> bool + Sync) -> Option<usize> {
    const CHUNK: usize = 1 << 14;
    let places = map(chunks(values, CHUNK), |chunk, values| {
        values.iter().position(&is).map(|at| chunk * CHUNK + at)
    });
    places.into_iter().flatten().next()
}

fn halve<I: Items>(first: usize, items: I, most: usize, f: &(dyn Fn(usize, I) + Sync)) {
    let count = items.count();
    if count == 0 {
        return;
    }
    if count <= most {
        return f(first, items);
    }
    let (before, after) = items.cut(count / 2);
    both((first, before), (first + count / 2, after), &|(
        first,
        items,
    )| {
        halve(first, items, most, f);
    });
}

/// Calls `f(rows, their part of out)` for pieces of the rows of a graph that have about as many edges each, in
/// parallel. Row `i` has the edges `offsets[i]..offsets[i + 1]` and `stride` elements of `out`.
///
/// A row is in one piece, however many edges it has: who works on it cuts it further.
pub fn by_edges<T: Send>(
    offsets: &[u64],
    stride: usize,
    out: &mut [T],
    f: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
) {
    let rows = offsets.len() - 1;
    split(offsets, 0..rows, stride, &mut out[..rows * stride], f);
}

fn split<T: Send>(
    offsets: &[u64],
    rows: Range<usize>,
    stride: usize,
    out: &mut [T],
    f: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
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
    both((rows.start..low, before), (low..rows.end, after), &|(
        rows,
        out,
    )| {
        split(offsets, rows, stride, out, f);
    });
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
    fn every_item_comes_once_with_its_number_and_its_partner() {
        for (threads, length) in [(1, 1000), (3, 1000), (3, 1), (3, 0)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            pool.build().unwrap().install(|| {
                let mut out = vec![(0, 0, 0); length];
                // The last chunk is shorter, and the range longer than all.
                let values: Vec<usize> = (0..3 * length.max(1) - 1).collect();
                let items = ((out.as_mut_slice(), chunks(&values, 3)), 7..5000);
                for_each(items, |at, ((out, values), number)| {
                    assert_eq!(values.len(), if at + 1 == length { 2 } else { 3 });
                    out.0 += 1;
                    (out.1, out.2) = (values[0], number + at);
                });
                let expected: Vec<_> = (0..length).map(|at| (1, 3 * at, 7 + 2 * at)).collect();
                assert_eq!(out, expected);
                let mut wide = vec![1; 2 * length];
                let lengths = map(chunks_mut(&mut wide, 4), |at, chunk| {
                    chunk.fill(at);
                    chunk.len()
                });
                assert_eq!(lengths.len(), (2 * length).div_ceil(4));
                assert_eq!(lengths.iter().sum::<usize>(), 2 * length);
                assert!(wide.iter().enumerate().all(|(at, &chunk)| chunk == at / 4));
            });
        }
    }

    #[test]
    fn the_first_of_several_is_found() {
        let mut values = vec![0; 100_000];
        assert_eq!(position_first(&values, |&value| value > 0), None);
        for place in [99_999, 70_001, 70_000] {
            values[place] = 1;
            assert_eq!(position_first(&values, |&value| value > 0), Some(place));
        }
    }

    #[test]
    fn pieces_follow_each_other_and_are_not_cut_below_the_least() {
        let seen = Mutex::new(Vec::new());
        pieces(0..1000, 60, &|first, items: Range<usize>| {
            assert_eq!(first, items.start);
            seen.lock().unwrap().push(items);
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_by_key(|items| items.start);
        assert!(seen.len() > 1);
        assert_eq!((seen[0].start, seen[seen.len() - 1].end), (0, 1000));
        assert!(seen.is_sorted_by(|a, b| a.end == b.start));
        assert!(seen.iter().all(|items| items.len() > 30));
    }

    #[test]
    fn no_rows_are_no_work_or_an_empty_piece() {
        by_edges(&[0], 8, &mut [0u8; 0], &|rows, _| assert!(rows.is_empty()));
    }
}
