//! Which columns a lane has once 32 rows of bits are transposed: pairs that lie side by side, so that elements of a pair are one store.
//!
//! Of `P` words of 64 columns a lane has `P` pairs. A number of a column is held where its pair is: [`Pairs`].

use crate::device::global::Global;
use crate::device::integer::bytes_at;
use crate::device::registers::unroll;
use crate::device::warp::{lane_id, shuffle_xor};

/// A number for each column of a lane.
pub type Pairs<T, const P: usize> = [[T; 2]; P];

/// Each of a lane's numbers, by a function of it.
#[inline(always)]
pub fn map<T: Copy, R: Copy, const P: usize>(
    pairs: Pairs<T, P>,
    f: impl Fn(T) -> R,
) -> Pairs<R, P> {
    pairs.map(|pair| pair.map(&f))
}

/// Columns between two pairs of a lane.
#[inline(always)]
pub const fn columns_apart(words: usize) -> u32 {
    if words < 4 { 64 } else { 32 }
}

/// The first column of the lane's first pair. Of four words lanes of odd numbers have the last two, of fewer the second half of each word.
#[inline(always)]
pub fn first_column<const P: usize>() -> u32 {
    let half = if P < 4 { 32 } else { 128 };
    lane_id() % 2 * half + (lane_id() & !1)
}

/// Rows of bits of 32 edges, one a lane, as their loads leave them. Of at most two words each lane has its edge's row: `[i]` is word `i` of
/// 64 bits. Of four words two lanes load halves of the rows of both their edges, so that a sector is looked up once: `[i]` is word `i` of
/// 32 bits of the lane's half, of the first edge and of the second.
pub type Rows<const P: usize> = Pairs<u32, P>;

/// Asks for the row of the edge of each lane: row `row` of `x`, whose rows are `stride` bytes apart.
///
/// # Safety
/// There is such a row of `P` words, aligned to 16 bytes where that is more than one, and nothing writes it during the launch. All 32 lanes of the warp come
/// together.
#[inline(always)]
pub unsafe fn fetch<const P: usize>(x: Global<u64>, row: u32, stride: u32) -> Rows<P> {
    let mut rows = [[0; 2]; P];
    // SAFETY: the caller's promise.
    unsafe {
        if P == 1 {
            rows[0] = Global::<[u32; 2]>::cast(x.row(row, stride)).fetch();
        } else if P == 2 {
            let [a, b, c, d] = Global::<[u32; 4]>::cast(x.row(row, stride)).fetch();
            rows[0] = [a, b];
            rows[P - 1] = [c, d];
        } else {
            let is_odd = lane_id() % 2 != 0;
            let other = shuffle_xor(row, 1);
            let (first, second) = if is_odd { (other, row) } else { (row, other) };
            let half =
                |row: u32| Global::<[u32; 4]>::cast(x.row(row, stride)).at((lane_id() % 2) as u64);
            let (first, second) = (half(first).fetch(), half(second).fetch());
            unroll!(word in 0..4 => {
                rows[word % P] = [first[word], second[word]];
            });
        }
    }
    rows
}

/// The row of each lane's edge, whole, in the order of columns.
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
pub unsafe fn whole<const P: usize>(rows: &Rows<P>) -> Pairs<u32, P> {
    if P < 4 {
        return *rows;
    }
    let is_odd = lane_id() % 2 != 0;
    let mut whole = *rows;
    unroll!(word in 0..P => {
        // A lane keeps its half of its own edge's row, and gets the other for that of the other's edge.
        let [first, second] = rows[word];
        // SAFETY: the caller's promise.
        let other = unsafe { shuffle_xor(if is_odd { first } else { second }, 1) };
        in_order(&mut whole, word, if is_odd { [other, second] } else { [first, other] });
    });
    whole
}

/// Puts what lanes of even and of odd numbers have at pair `pair` to where it is in the order of columns.
#[inline(always)]
pub fn in_order<const P: usize>(words: &mut Pairs<u32, P>, pair: usize, halves: [u32; 2]) {
    if P < 4 {
        words[pair] = halves;
    } else {
        // Lanes of odd numbers have the last two of four words.
        words[pair / 2][pair % 2] = halves[0];
        words[(2 + pair / 2) % P][pair % 2] = halves[1];
    }
}

/// The columns of the rows of 32 edges: bit `i` of each is that of edge `i` (Warren, Hacker's Delight, 7-3; what is exchanged first is not a
/// bit of the column with one of the edge but the word with the edge's lowest bit).
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
pub unsafe fn transpose<const P: usize>(rows: Rows<P>) -> Pairs<u32, P> {
    let is_odd = lane_id() % 2 != 0;
    let mut columns = rows;
    // SAFETY: the caller's promise.
    unsafe {
        unroll!(pair in 0..P => {
            let [mut a, mut b] = rows[pair];
            if P < 4 {
                // The lane of the even edge gets the first half of both rows, the other the second.
                let other = shuffle_xor(if is_odd { a } else { b }, 1);
                [a, b] = if is_odd { [other, b] } else { [a, other] };
            }
            columns[pair] = interleave([a, b]).map(|word| exchange_blocks(word));
        });
    }
    columns
}

/// Of two words that bits of even numbers go to the first and those of odd numbers to the second, and bits of the second to the odd places: what it
/// does it undoes.
#[inline(always)]
pub fn interleave([a, b]: [u32; 2]) -> [u32; 2] {
    const EVEN: u32 = 0x5555_5555;
    [(a & EVEN) | (b << 1 & !EVEN), (a >> 1 & EVEN) | (b & !EVEN)]
}

/// Exchanges bit `k` of the number of a bit with bit `k` of the number of its lane, for `k` of 1 to 4.
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
unsafe fn exchange_blocks(mut bits: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        bits = exchange_bytes::<16>(bits, 0x5410, 0x3276);
        bits = exchange_bytes::<8>(bits, 0x6240, 0x3715);
        bits = exchange_bits::<4>(bits, 0x0f0f_0f0f);
        exchange_bits::<2>(bits, 0x3333_3333)
    }
}

/// An exchange with the lane `DISTANCE` away by whole bytes, picked as `prmt` does from those of the lane and the other's.
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
unsafe fn exchange_bytes<const DISTANCE: u32>(bits: u32, of_low: u32, of_high: u32) -> u32 {
    let is_high = lane_id() & DISTANCE != 0;
    // SAFETY: the caller's promise.
    let other = unsafe { shuffle_xor(bits, DISTANCE) };
    bytes_at(bits, other, if is_high { of_high } else { of_low })
}

/// An exchange with the lane `DISTANCE` away: each keeps its own half of the bits, `low` those of the lower lane.
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
unsafe fn exchange_bits<const DISTANCE: u32>(bits: u32, low: u32) -> u32 {
    let (kept, turn) = if lane_id() & DISTANCE != 0 {
        (!low, 32 - DISTANCE)
    } else {
        (low, DISTANCE)
    };
    // SAFETY: the caller's promise.
    let other = unsafe { shuffle_xor(bits, DISTANCE) }.rotate_left(turn);
    (bits & kept) | (other & !kept)
}
