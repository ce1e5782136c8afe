//! Counts of all columns of a unit at once, and the transpose of 32 × 32 bits that tells them apart.

use crate::device::warp::{lane_id, shuffle_xor};

/// `U` words of 32 columns: 64 columns, or 128.
pub type Unit<const U: usize> = [u32; U];

/// Vertical counters: bit `f` of plane `p` is bit `p` of the count of column `f`.
#[derive(Clone, Copy)]
pub struct Planes<const N: usize, const U: usize>([Unit<U>; N]);

impl<const N: usize, const U: usize> Planes<N, U> {
    /// Nothing counted.
    pub const EMPTY: Self = Self([[0; U]; N]);

    /// Counts the columns of one more row.
    #[inline(always)]
    pub fn add(&mut self, row: Unit<U>) {
        self.carry(0, row);
    }

    /// Counts the columns of two more rows.
    #[inline(always)]
    pub fn add_two(&mut self, a: Unit<U>, b: Unit<U>) {
        let mut carry = [0; U];
        let mut word = 0;
        while word < U {
            let (sum, x, y) = (self.0[0][word], a[word], b[word]);
            self.0[0][word] = sum ^ x ^ y;
            carry[word] = (x & y) | (sum & (x | y));
            word += 1;
        }
        self.carry(1, carry);
    }

    /// Adds bits to plane `plane` and what is carried to those above.
    #[inline(always)]
    fn carry(&mut self, mut plane: usize, mut bits: Unit<U>) {
        while plane < N {
            let mut word = 0;
            while word < U {
                let old = self.0[plane][word];
                self.0[plane][word] = old ^ bits[word];
                bits[word] &= old;
                word += 1;
            }
            plane += 1;
        }
    }

    /// The columns whose count is `least` or more.
    #[inline(always)]
    pub fn at_least(&self, least: u32) -> Unit<U> {
        let mut reached = [u32::MAX; U];
        let mut plane = 0;
        while plane < N {
            let is_set = least >> plane & 1 != 0;
            let mut word = 0;
            while word < U {
                let bits = self.0[plane][word];
                reached[word] = if is_set {
                    bits & reached[word]
                } else {
                    bits | reached[word]
                };
                word += 1;
            }
            plane += 1;
        }
        reached
    }

    /// The counts of all lanes together of `U` columns: that of the lane's own number, and others 32 further each. Only the
    /// first `planes` planes are looked at.
    ///
    /// # Safety
    /// All 32 lanes of the warp come together with the same `planes`.
    #[inline(always)]
    pub unsafe fn of_lanes(&self, planes: u32) -> [u32; U] {
        let mut counts = [0; U];
        let mut plane = 0;
        while plane < N {
            if (plane as u32) < planes {
                let mut word = 0;
                while word < U {
                    // SAFETY: the caller's promise.
                    let column = unsafe { transpose(self.0[plane][word]) };
                    counts[word] += column.count_ones() << plane;
                    word += 1;
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
