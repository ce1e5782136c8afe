//! Counts of all columns of a word at once.

use super::columns::{Pairs, transpose};
use crate::device::registers::unroll;

/// 64 columns of a row.
pub type Word = [u32; 2];

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
            let (sum, x, y) = (self.0[0][half], a[half], b[half]);
            self.0[0][half] = sum ^ x ^ y;
            carry[half] = (x & y) | (sum & (x | y));
        });
        self.carry(1, carry);
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
