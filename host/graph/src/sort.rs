//! Bringing edges into row order: a two-level bucket sort, parallel and without comparison of whole edges.
//!
//! ```text
//!  source ──(pass 1: count)──► edges per (bucket, chunk)          a bucket is 2^shift neighbouring rows,
//!  source ──(pass 2: place)──► │ bucket 0 │ bucket 1 │ …          a chunk is a range of the source
//!                              │c0│c1│c2  │c0│c1│c2  │            (8 bytes an edge)
//!                                   │          │   each bucket on its own: count its rows, place, sort columns
//!                                   ▼          ▼
//!                              offsets, columns                   (4 bytes an edge)
//! ```
//! The source is walked twice instead of being stored, so a generator's edges exist only here: 12 bytes an
//! edge at the peak, 1.5 times the finished rows and columns. A chunk's edges of one bucket are a slice of
//! their own, so threads write disjoint slices and no `unsafe` is needed. Chunks lie in the source's order,
//! which makes the sort stable; the result is the same for any number of threads.

use crate::parallel;
use std::ops::Range;

use rayon::prelude::*;

use super::error::{GraphError, check_edges, check_room};
use super::index::{bucket_count, bucket_shift, pack, part, unpack};

/// Buckets enough to keep one bucket's row counters in the cache, few enough that each chunk's write
/// position in every bucket stays there too.
const MAX_BUCKETS: u64 = 1024;

/// A row this long is sorted by all threads together.
const LONG_ROW: usize = 1 << 17;

/// Edges that can be walked again and again, from any position.
///
/// `emit` must give the same edges for an item each time, in the same order, and rows below the number of
/// vertices that the sort is given.
pub(crate) trait EdgeSource: Sync {
    /// How many items there are; an item is what stands for any number of edges, none included.
    fn items(&self) -> u64;

    /// Gives every edge of `items`, in order, as (row, column) to `sink`.
    fn emit(&self, items: Range<u64>, sink: impl FnMut(u32, u32));
}

impl<S: EdgeSource> EdgeSource for &S {
    fn items(&self) -> u64 {
        S::items(self)
    }

    fn emit(&self, items: Range<u64>, sink: impl FnMut(u32, u32)) {
        S::emit(self, items, sink);
    }
}

/// In what order the columns of one row come out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithinRow {
    /// Ascending.
    Sorted,
    /// As the source gave them.
    AsEmitted,
}

/// The row offsets (`vertices + 1`) and the columns of a source's edges in row order. A source that is given away is
/// dropped once its edges lie in their buckets, before the columns are made.
///
/// # Errors
/// [`GraphError::TooManyEdges`], [`GraphError::OutOfMemory`].
pub(crate) fn sort_by_row(
    vertices: usize,
    source: impl EdgeSource,
    within: WithinRow,
) -> Result<(Vec<u64>, Vec<u32>), GraphError> {
    sort_with_room(vertices, source, within, |edges| {
        check_room("edges in row order", sort_room(vertices as u64, edges))
    })
}

/// The bytes of a sort at its peak: a key and a column an edge, and the offsets.
pub(crate) fn sort_room(vertices: u64, edges: u64) -> u64 {
    12_u64
        .saturating_mul(edges)
        .saturating_add(8 * (vertices + 1))
}

/// [`sort_by_row`], once `room` has seen the number of edges.
pub(crate) fn sort_with_room(
    vertices: usize,
    source: impl EdgeSource,
    within: WithinRow,
    room: impl FnOnce(u64) -> Result<(), GraphError>,
) -> Result<(Vec<u64>, Vec<u32>), GraphError> {
    let shift = bucket_shift(vertices as u64, MAX_BUCKETS);
    let buckets = bucket_count(vertices as u64, shift) as usize;
    // A few chunks a thread even out chunks of unequal cost.
    let chunks = (rayon::current_num_threads() as u64 * 4).min(source.items().max(1));

    let counts = parallel::map(0..chunks as usize, |chunk, _| {
        let mut counts = vec![0_u64; buckets];
        source.emit(part(source.items(), chunk as u64, chunks), |row, _| {
            counts[(row >> shift) as usize] += 1
        });
        counts
    });
    let edges: u64 = counts.iter().flatten().sum();
    check_edges(edges)?;
    room(edges)?;

    let mut keys = vec![0_u64; edges as usize];
    place_in_buckets(&source, shift, &counts, &mut keys);
    drop(source);

    let mut offsets = vec![0_u64; vertices + 1];
    let mut columns = vec![0_u32; edges as usize];
    let mut work = Vec::with_capacity(buckets);
    let (mut keys_left, mut columns_left, mut start) = (keys.as_slice(), columns.as_mut_slice(), 0);
    for (bucket, offsets) in offsets[1..].chunks_mut(1 << shift).enumerate() {
        let size = counts.iter().map(|chunk| chunk[bucket]).sum::<u64>() as usize;
        let keys = keys_left.split_off(..size).unwrap_or_default();
        let columns = columns_left.split_off_mut(..size).unwrap_or_default();
        work.push((keys, columns, offsets, start));
        start += size as u64;
    }
    parallel::for_each(
        work.as_mut_slice(),
        |bucket, (keys, columns, offsets, start)| {
            let first_row = (bucket as u32) << shift;
            sort_bucket(keys, first_row, *start, offsets, columns, within);
        },
    );
    Ok((offsets, columns))
}

/// Pass 2: every edge into its bucket, chunk after chunk.
fn place_in_buckets(source: &impl EdgeSource, shift: u32, counts: &[Vec<u64>], keys: &mut [u64]) {
    let buckets = counts.first().map_or(0, Vec::len);
    let mut slots: Vec<Vec<std::slice::IterMut<'_, u64>>> =
        counts.iter().map(|_| Vec::with_capacity(buckets)).collect();
    let mut left = keys;
    for bucket in 0..buckets {
        for (count, slots) in counts.iter().zip(&mut slots) {
            let slice = left
                .split_off_mut(..count[bucket] as usize)
                .unwrap_or_default();
            slots.push(slice.iter_mut());
        }
    }
    let chunks = counts.len() as u64;
    parallel::for_each(slots.as_mut_slice(), |chunk, slots| {
        source.emit(part(source.items(), chunk as u64, chunks), |row, column| {
            if let Some(slot) = slots[(row >> shift) as usize].next() {
                *slot = pack(row, column);
            }
        });
    });
}

/// Sorts one bucket: `offsets` are those *after* each of its rows, `first_row` is its first row, `start` the
/// number of edges before it.
fn sort_bucket(
    keys: &[u64],
    first_row: u32,
    start: u64,
    offsets: &mut [u64],
    columns: &mut [u32],
    within: WithinRow,
) {
    for &key in keys {
        offsets[(unpack(key).0 - first_row) as usize] += 1;
    }
    let mut position = start;
    for offset in &mut *offsets {
        position += std::mem::replace(offset, position);
    }
    // Each offset is now where its row starts, and where its next edge goes; it ends as where its row ends.
    for &key in keys {
        let (row, column) = unpack(key);
        let offset = &mut offsets[(row - first_row) as usize];
        columns[(*offset - start) as usize] = column;
        *offset += 1;
    }
    if within == WithinRow::Sorted {
        let mut from = 0;
        for &to in &*offsets {
            let row = &mut columns[from..(to - start) as usize];
            from += row.len();
            sort_row(row);
        }
    }
}

/// Sorts one row's columns.
pub(crate) fn sort_row(row: &mut [u32]) {
    if row.is_sorted() {
        return;
    }
    if row.len() >= LONG_ROW {
        row.par_sort_unstable();
    } else {
        row.sort_unstable();
    }
}

/// The row of every edge, from row offsets as [`Csr::offsets`](crate::Csr::offsets) gives them.
pub fn rows_of(offsets: &[u64]) -> Vec<u32> {
    const BLOCK: usize = 1 << 14;
    let edges = offsets.last().copied().unwrap_or(0);
    let mut rows = vec![0_u32; edges as usize];
    // By blocks of edges, not of rows: a hub's row is as much work as its edges are many.
    parallel::for_each(parallel::chunks_mut(&mut rows, BLOCK), |block, rows| {
        let mut edge = (block * BLOCK) as u64;
        let mut row = offsets.partition_point(|&offset| offset <= edge) - 1;
        let mut left = rows;
        while !left.is_empty() {
            let run = ((offsets[row + 1] - edge) as usize).min(left.len());
            let (filled, rest) = left.split_at_mut(run);
            filled.fill(row as u32);
            left = rest;
            edge += run as u64;
            row += 1;
        }
    });
    rows
}

/// Calls `fill` with each row and the slice of `values` that belongs to it, in parallel.
pub(crate) fn fill_rows<T: Send>(
    offsets: &[u64],
    values: &mut [T],
    fill: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    fn split<T: Send>(
        offsets: &[u64],
        rows: Range<usize>,
        values: &mut [T],
        fill: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        const GRAIN: usize = 1 << 14;
        if rows.len() <= 1 || rows.len() + values.len() <= GRAIN {
            let mut left = values;
            for row in rows {
                let (values, rest) = left.split_at_mut((offsets[row + 1] - offsets[row]) as usize);
                fill(row, values);
                left = rest;
            }
            return;
        }
        let middle = rows.start + rows.len() / 2;
        let (low, high) = values.split_at_mut((offsets[middle] - offsets[rows.start]) as usize);
        parallel::both(
            (rows.start..middle, low),
            (middle..rows.end, high),
            &|(rows, values)| {
                split(offsets, rows, values, fill);
            },
        );
    }
    split(offsets, 0..offsets.len().saturating_sub(1), values, fill);
}

/// Row offsets from the number of edges in each row.
pub(crate) fn offsets_of(lengths: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut total = 0;
    std::iter::once(0)
        .chain(lengths.into_iter().map(|length| {
            total += length;
            total
        }))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each edge is emitted as often as its third field says, so that items and edges differ.
    struct Listed(Vec<(u32, u32, u8)>);

    impl EdgeSource for Listed {
        fn items(&self) -> u64 {
            self.0.len() as u64
        }
        fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
            for &(row, column, times) in &self.0[items.start as usize..items.end as usize] {
                (0..times).for_each(|_| sink(row, column));
            }
        }
    }

    fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a thread pool")
            .install(work)
    }

    proptest! {
        #[test]
        fn agrees_with_a_comparison_sort(
            // 3000 rows: more than the buckets, so that a bucket holds several rows.
            edges in prop::collection::vec((0..3000_u32, 0..50_u32, 0..3_u8), 0..400),
            threads in 1..5_usize,
        ) {
            let source = Listed(edges);
            let mut emitted = Vec::new();
            source.emit(0..source.items(), |row, column| emitted.push((row, column)));
            for within in [WithinRow::Sorted, WithinRow::AsEmitted] {
                let (offsets, columns) = on_threads(threads, || sort_by_row(3000, &source, within)).unwrap();
                let mut expected = emitted.clone();
                match within {
                    WithinRow::Sorted => expected.sort(),
                    WithinRow::AsEmitted => expected.sort_by_key(|&(row, _)| row),
                }
                let rows = rows_of(&offsets);
                prop_assert_eq!(rows.into_iter().zip(columns).collect::<Vec<_>>(), expected);
                prop_assert_eq!(offsets.len(), 3001);
            }
        }

        #[test]
        fn fill_rows_visits_each_row_once(lengths in prop::collection::vec(0..40_u64, 0..2000)) {
            let offsets = offsets_of(lengths.iter().copied());
            let mut values = vec![0_u32; *offsets.last().unwrap() as usize];
            fill_rows(&offsets, &mut values, &|row, values: &mut [u32]| {
                values.iter_mut().for_each(|value| *value += row as u32 + 1);
            });
            let expected: Vec<u32> = rows_of(&offsets).into_iter().map(|row| row + 1).collect();
            prop_assert_eq!(values, expected);
        }
    }

    #[test]
    fn a_row_longer_than_any_block_is_sorted() {
        let edges = (0..300_000_u32)
            .map(|k| (1, k.wrapping_mul(2_654_435_761) >> 8, 1))
            .collect();
        let (offsets, columns) = sort_by_row(3, Listed(edges), WithinRow::Sorted).unwrap();
        assert_eq!(offsets, [0, 0, 300_000, 300_000]);
        assert!(columns.is_sorted());
        assert!(rows_of(&offsets).iter().all(|&row| row == 1));
    }

    #[test]
    fn no_vertices_and_no_edges() {
        let none = Listed(Vec::new());
        assert_eq!(
            sort_by_row(0, &none, WithinRow::Sorted).unwrap(),
            (vec![0], vec![])
        );
        assert_eq!(
            sort_by_row(2, &none, WithinRow::Sorted).unwrap(),
            (vec![0, 0, 0], vec![])
        );
        assert!(rows_of(&[0]).is_empty());
    }
}
