//! Pure index arithmetic, kept apart so that it can be tested at sizes no test could allocate.
//!
//! Vertex and edge ids are `u32` in memory, because kernels read them and half the bytes is half the time.
//! Everything computed *from* them (a position in a feature matrix, a byte count) is `u64`.

/// The most vertices a graph may have: every id, and the count itself, fits a `u32`.
pub const MAX_VERTICES: u64 = u32::MAX as u64;

/// The most edges a graph may have: an edge id fits a `u32`, which the edge map relies on.
pub const MAX_EDGES: u64 = u32::MAX as u64;

/// The position of element (`row`, `column`) in a row-major matrix whose rows are `stride` elements apart,
/// or `None` where that is past `u64`.
///
/// ```
/// # use halfgnn_graph::index::flat;
/// // The product of two u32 values must not be taken in u32.
/// assert_eq!(flat(4_294_967_294, 602, 601), Some(4_294_967_294 * 602 + 601));
/// ```
pub const fn flat(row: u64, stride: u64, column: u64) -> Option<u64> {
    match row.checked_mul(stride) {
        Some(start) => start.checked_add(column),
        None => None,
    }
}

/// How many elements of `size` bytes a `rows` × `columns` matrix takes in bytes, or `None` past `u64`.
pub const fn matrix_bytes(rows: u64, columns: u64, size: u64) -> Option<u64> {
    match rows.checked_mul(columns) {
        Some(elements) => elements.checked_mul(size),
        None => None,
    }
}

/// The shift by which a row id becomes a bucket id, such that there are at most `max_buckets` buckets.
pub(crate) const fn bucket_shift(vertices: u64, max_buckets: u64) -> u32 {
    let mut shift = 0;
    while bucket_count(vertices, shift) > max_buckets {
        shift += 1;
    }
    shift
}

/// The number of buckets of `1 << shift` rows that hold `vertices` rows.
pub(crate) const fn bucket_count(vertices: u64, shift: u32) -> u64 {
    vertices.div_ceil(1 << shift)
}

/// One edge as one word whose order is the order of (row, then column).
pub(crate) const fn pack(row: u32, column: u32) -> u64 {
    ((row as u64) << 32) | column as u64
}

/// The row and the column of a [`pack`]ed edge.
pub(crate) const fn unpack(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

/// The half-open range of items that part `part` of `parts` takes; the parts differ by at most one item.
pub const fn part(items: u64, part: u64, parts: u64) -> std::ops::Range<u64> {
    // items * part may pass u64, so the remainder is spread over the first parts instead.
    let (size, more) = (items / parts, items % parts);
    let start = part * size + if part < more { part } else { more };
    start..start + size + (part < more) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes at which 32-bit arithmetic, signed or not, goes wrong.
    const EDGES_OF_U32: [u64; 4] = [(1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1];

    #[test]
    fn flat_positions_do_not_wrap() {
        for row in EDGES_OF_U32 {
            for stride in [1, 7, 8, 602, u32::MAX as u64] {
                let exact = row as u128 * stride as u128 + (stride as u128 - 1);
                assert_eq!(
                    flat(row, stride, stride - 1).map(u128::from),
                    u64::try_from(exact).ok().map(u128::from)
                );
            }
        }
        assert_eq!(flat(u64::MAX, 2, 0), None);
        assert_eq!(flat(u64::MAX, 1, 1), None);
        assert_eq!(flat(0, 0, 0), Some(0));
    }

    #[test]
    fn matrix_bytes_do_not_wrap() {
        assert_eq!(
            matrix_bytes(MAX_VERTICES, 602, 4),
            Some(u32::MAX as u64 * 2408)
        );
        assert_eq!(matrix_bytes(MAX_VERTICES, u32::MAX as u64, 4), None);
        assert_eq!(matrix_bytes(0, u64::MAX, 4), Some(0));
    }

    #[test]
    fn every_row_has_a_bucket() {
        for vertices in EDGES_OF_U32 {
            let shift = bucket_shift(vertices, 1024);
            let buckets = bucket_count(vertices, shift);
            assert!(
                (512..=1024).contains(&buckets),
                "{vertices} vertices: {buckets} buckets"
            );
            assert_eq!((vertices - 1) >> shift, buckets - 1);
        }
        assert_eq!((bucket_shift(0, 1024), bucket_count(0, 0)), (0, 0));
        assert_eq!((bucket_shift(1024, 1024), bucket_shift(1025, 1024)), (0, 1));
    }

    #[test]
    fn packed_edges_keep_their_order_and_their_ends() {
        let ends = [0, 1, i32::MAX as u32, 1 << 31, u32::MAX - 1, u32::MAX];
        for (row, column) in ends
            .iter()
            .flat_map(|&row| ends.map(|column| (row, column)))
        {
            assert_eq!(unpack(pack(row, column)), (row, column));
            for other in ends {
                assert_eq!(
                    pack(row, column).cmp(&pack(other, 5)),
                    (row, column).cmp(&(other, 5))
                );
            }
        }
    }

    #[test]
    fn parts_cover_the_items_once() {
        for items in [0, 1, 5, (1 << 31) - 1, 1 << 31, u32::MAX as u64, u64::MAX] {
            for parts in [1, 2, 3, 64] {
                let mut next = 0;
                for p in 0..parts {
                    let range = part(items, p, parts);
                    assert_eq!(range.start, next);
                    assert!(range.end - range.start <= items.div_ceil(parts));
                    next = range.end;
                }
                assert_eq!(next, items);
            }
        }
    }
}
