//! Counts of 64 columns at once, and the transpose of 32 × 32 bits that tells them apart.

use crate::device::warp::{lane_id, shuffle_xor};

/// 64 columns: the low word and the high one.
pub type Word = [u32; 2];

/// Vertical counters: bit `f` of plane `p` is bit `p` of the count of column `f`.
#[derive(Clone, Copy)]
pub struct Planes<const N: usize>([Word; N]);

impl<const N: usize> Planes<N> {
    /// Nothing counted.
    pub const EMPTY: Self = Self([[0; 2]; N]);

    /// Counts the columns of one more row.
    #[inline(always)]
    pub fn add(&mut self, row: Word) {
        self.carry(0, row);
    }

    /// Counts the columns of two more rows.
    #[inline(always)]
    pub fn add_two(&mut self, a: Word, b: Word) {
        let mut carry = [0; 2];
        let mut half = 0;
        while half < 2 {
            let (sum, x, y) = (self.0[0][half], a[half], b[half]);
            self.0[0][half] = sum ^ x ^ y;
            carry[half] = (x & y) | (sum & (x | y));
            half += 1;
        }
        self.carry(1, carry);
    }

    /// Adds bits to plane `plane` and what is carried to those above.
    #[inline(always)]
    fn carry(&mut self, mut plane: usize, mut bits: Word) {
        while plane < N {
            let mut half = 0;
            while half < 2 {
                let old = self.0[plane][half];
                self.0[plane][half] = old ^ bits[half];
                bits[half] &= old;
                half += 1;
            }
            plane += 1;
        }
    }

    /// The columns whose count is `least` or more.
    #[inline(always)]
    pub fn at_least(&self, least: u32) -> Word {
        let mut reached = [u32::MAX; 2];
        let mut plane = 0;
        while plane < N {
            let is_set = least >> plane & 1 != 0;
            let mut half = 0;
            while half < 2 {
                let bits = self.0[plane][half];
                reached[half] = if is_set {
                    bits & reached[half]
                } else {
                    bits | reached[half]
                };
                half += 1;
            }
            plane += 1;
        }
        reached
    }

    /// The counts of all lanes together of two columns: the lane's own number, and 32 more. Only the first `planes` planes
    /// are looked at.
    ///
    /// # Safety
    /// All 32 lanes of the warp come together with the same `planes`.
    #[inline(always)]
    pub unsafe fn of_lanes(&self, planes: u32) -> [u32; 2] {
        let mut counts = [0; 2];
        let mut plane = 0;
        while plane < N {
            if (plane as u32) < planes {
                let mut half = 0;
                while half < 2 {
                    // SAFETY: the caller's promise.
                    let column = unsafe { transpose(self.0[plane][half]) };
                    counts[half] += column.count_ones() << plane;
                    half += 1;
                }
            }
            plane += 1;
        }
        counts
    }
}

/// Bit `i` of lane `l` becomes bit `l` of lane `i`: five exchanges of blocks of half the size of those before (Warren,
/// Hacker's Delight, 7-3).
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
pub unsafe fn transpose(mut bits: u32) -> u32 {
    let lane = lane_id();
    // Bits whose number has not the bit of the distance.
    const LOW: [u32; 5] = [
        0x5555_5555,
        0x3333_3333,
        0x0f0f_0f0f,
        0x00ff_00ff,
        0x0000_ffff,
    ];
    let mut step = 5;
    while step > 0 {
        step -= 1;
        let distance = 1 << step;
        let is_high = lane & distance != 0;
        let (kept, turn) = if is_high {
            (!LOW[step as usize], 32 - distance)
        } else {
            (LOW[step as usize], distance)
        };
        // SAFETY: the caller's promise.
        let other = unsafe { shuffle_xor(bits, distance) }.rotate_left(turn);
        bits = (bits & kept) | (other & !kept);
    }
    bits
}
