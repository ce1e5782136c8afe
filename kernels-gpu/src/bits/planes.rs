//! Counts of all columns of a word at once.

use super::columns::{Pairs, transpose};
use crate::device::registers::unroll;
use crate::device::warp::{lane_id, shuffle_idx};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::WORD_BITS;

/// 64 columns of a row.
pub type Word = [u32; 2];

/// Adds two bits of each column to one; what is carried.
#[inline(always)]
fn add(sum: &mut u32, a: u32, b: u32) -> u32 {
    let carry = majority(*sum, a, b);
    *sum ^= a ^ b;
    carry
}

/// What two of three have.
#[inline(always)]
fn majority(a: u32, b: u32, c: u32) -> u32 {
    (a & b) | (c & (a | b))
}

/// Vertical counters: bit `f` of plane `p` is bit `p` of the count of column `f`.
#[derive(Clone, Copy)]
pub struct Planes<const N: usize>([Word; N]);

impl<const N: usize> Planes<N> {
    /// Nothing counted.
    pub const EMPTY: Self = Self([[0; 2]; N]);

    /// Counts the columns of two more rows.
    #[inline(always)]
    pub fn add_two(&mut self, a: Word, b: Word) {
        let mut carry = [0; 2];
        unroll!(half in 0..2 => {
            carry[half] = add(&mut self.0[0][half], a[half], b[half]);
        });
        self.carry(1, carry);
    }

    /// Counts the columns of one more row, beside what was counted before where `kept` has all bits, and alone where it has none.
    #[inline(always)]
    pub fn add_one(&mut self, row: Word, kept: u32) {
        for plane in &mut self.0 {
            *plane = plane.map(|bits| bits & kept);
        }
        self.carry(0, row);
    }

    /// Counts the columns of four more rows, as [`Planes::add_one`].
    #[inline(always)]
    pub fn add_four(&mut self, rows: &[Word; 4], kept: u32) {
        const { assert!(N > 2) };
        for plane in &mut self.0 {
            *plane = plane.map(|bits| bits & kept);
        }
        let mut carried = [0; 2];
        unroll!(half in 0..2 => {
            let row = |at: usize| rows[at][half];
            let [mut ones, mut twos] = [self.0[0][half], self.0[1][half]];
            let of_two = [0, 1].map(|two| add(&mut ones, row(2 * two), row(2 * two + 1)));
            carried[half] = add(&mut twos, of_two[0], of_two[1]);
            [self.0[0][half], self.0[1][half]] = [ones, twos];
        });
        self.carry(2, carried);
    }

    /// Counts the columns of eight more rows.
    #[inline(always)]
    pub fn add_eight(&mut self, rows: &[Word; 8]) {
        const { assert!(N > 3) };
        unroll!(half in 0..2 => {
            let row = |at: usize| rows[at][half];
            let mut sum = [self.0[0][half], self.0[1][half], self.0[2][half]];
            // Of two bits of a plane, and what it had, one is left and one goes to the plane above.
            let ones: [u32; 4] = [0, 1, 2, 3].map(|two| add(&mut sum[0], row(2 * two), row(2 * two + 1)));
            let twos = [0, 1].map(|two| add(&mut sum[1], ones[2 * two], ones[2 * two + 1]));
            let mut carry = add(&mut sum[2], twos[0], twos[1]);
            unroll!(plane in 0..3 => {
                self.0[plane][half] = sum[plane];
            });
            let mut plane = 3;
            while plane < N {
                let old = self.0[plane][half];
                self.0[plane][half] = old ^ carry;
                carry &= old;
                plane += 1;
            }
        });
    }

    /// Adds other counts, of both of which only the first `planes` planes are looked at, and the next is what is carried.
    #[inline(always)]
    pub fn add_planes(&mut self, other: &Self, planes: usize) {
        unroll!(half in 0..2 => {
            let mut carried = 0;
            let mut plane = 0;
            while plane < planes.min(N) {
                carried = add(&mut self.0[plane][half], other.0[plane][half], carried);
                plane += 1;
            }
            if planes < N {
                self.0[planes][half] = carried;
            }
        });
    }

    /// The same counts, on more planes.
    #[inline(always)]
    pub fn widened<const M: usize>(&self) -> Planes<M> {
        const { assert!(M >= N) };
        let mut planes = [[0; 2]; M];
        unroll!(plane in 0..N => {
            planes[plane] = self.0[plane];
        });
        Planes(planes)
    }

    /// Each word of the first `planes` planes by a function of it; of the others zero.
    #[inline(always)]
    pub fn map(&self, planes: usize, f: impl Fn(u32) -> u32) -> Self {
        let mut mapped = Self::EMPTY;
        unroll!(plane in 0..N => {
            if plane < planes {
                mapped.0[plane] = self.0[plane].map(&f);
            }
        });
        mapped
    }

    /// By plane, each below the next.
    #[inline(always)]
    pub fn new(planes: [Word; N]) -> Self {
        Self(planes)
    }

    /// Plane `plane`.
    #[inline(always)]
    pub fn plane(&self, plane: usize) -> Word {
        self.0[plane]
    }

    /// Adds bits to plane `plane` and what is carried to those above.
    #[inline(always)]
    fn carry(&mut self, mut plane: usize, mut bits: Word) {
        while plane < N {
            unroll!(half in 0..2 => {
                let old = self.0[plane][half];
                self.0[plane][half] = old ^ bits[half];
                bits[half] &= old;
            });
            plane += 1;
        }
    }

    /// The columns whose count is `least` or more.
    #[inline(always)]
    pub fn at_least(&self, least: u32) -> Word {
        let mut reached = [u32::MAX; 2];
        unroll!(plane in 0..N => {
            // All bits where the number has this one.
            let wanted = (least >> plane & 1).wrapping_neg();
            unroll!(half in 0..2 => {
                let bits = self.0[plane][half];
                reached[half] = (bits & reached[half]) | (!wanted & (bits | reached[half]));
            });
        });
        reached
    }

    /// The counts of the `2 P` columns side by side that are the lane's of a row whose words the `P` lanes from `from` on have: two columns a number, 16
    /// bits each.
    ///
    /// # Safety
    /// All 32 lanes of the warp come together with the same `from`.
    #[inline(always)]
    pub unsafe fn of_row<const P: usize>(&self, from: u32) -> [u32; P] {
        let column = lane_id() * 2 * P as u32;
        let word = from + column / WORD_BITS;
        let in_last_half = column % WORD_BITS >= WARP;
        let mut counts = [0; P];
        unroll!(plane in 0..N => {
            let [a, b] = self.0[plane];
            // SAFETY: the caller's promise.
            let (a, b) = unsafe { (shuffle_idx(a, word), shuffle_idx(b, word)) };
            let bits = (if in_last_half { b } else { a }) >> (column % WARP);
            unroll!(pair in 0..P => {
                let two = bits >> (2 * pair) & 3;
                counts[pair] += ((two | two << 15) & 0x0001_0001) << plane;
            });
        });
        counts
    }

    /// The counts of all lanes together of the columns of a lane. Only the first `planes` planes are looked at.
    ///
    /// # Safety
    /// All 32 lanes of the warp come together with the same `planes`.
    #[inline(always)]
    pub unsafe fn of_lanes(&self, planes: u32) -> Pairs<u32, 1> {
        let mut counts = [[0; 2]];
        let mut plane = 0;
        while plane < N {
            if (plane as u32) < planes {
                // SAFETY: the caller's promise.
                let [columns] = unsafe { transpose([self.0[plane]]) };
                unroll!(at in 0..2 => {
                    counts[0][at] += columns[at].count_ones() << plane;
                });
            }
            plane += 1;
        }
        counts
    }
}
