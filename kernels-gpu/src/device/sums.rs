//! Sums of 64 bits over the threads of a CTA.

use super::shared::Shared;
use super::thread::sync_threads;
use super::warp::{lane_id, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;

/// What is added up, as two words.
pub trait Sum64: Copy {
    /// Nothing.
    const ZERO: Self;
    /// Its bits.
    fn to_bits(self) -> u64;
    /// From bits.
    fn from_bits(bits: u64) -> Self;
    /// The sum of two.
    fn add(self, other: Self) -> Self;
}

impl Sum64 for f64 {
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }
}

impl Sum64 for u64 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn to_bits(self) -> u64 {
        self
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        bits
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// The value of the lane at a distance of the own one.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
pub unsafe fn shuffle_xor_64<T: Sum64>(value: T, lane_mask: u32) -> T {
    let bits = value.to_bits();
    // SAFETY: the caller's promise.
    let [low, high] =
        unsafe { [bits as u32, (bits >> 32) as u32].map(|half| shuffle_xor(half, lane_mask)) };
    T::from_bits((high as u64) << 32 | low as u64)
}

/// The sum of the values of all of [`THREADS_PER_CTA`] threads, in every thread, in the order of
/// [`sum_of_cta`](halfgnn_contract::optimizer::sum_of_cta).
///
/// # Safety
/// All threads of the CTA reach this call together. Two words a warp from `place` on are its own in shared memory, and nobody
/// touches them before the next barrier that is not this call's.
#[inline(always)]
pub unsafe fn sum_of_cta<T: Sum64>(mut value: T, place: Shared) -> T {
    let mut distance = WARP / 2;
    while distance > 0 {
        // SAFETY: the loop is the same for every thread, and the caller promises that all of them are here.
        value = value.add(unsafe { shuffle_xor_64(value, distance) });
        distance /= 2;
    }
    let own = place.offset(warp_id() * 8);
    let bits = value.to_bits();
    // SAFETY: two words for each warp, written by its first lane before the barrier and read after it.
    unsafe {
        if lane_id() == 0 {
            own.store_u32(bits as u32);
            own.offset(4).store_u32((bits >> 32) as u32);
        }
        sync_threads();
        let mut sum = T::ZERO;
        let mut warp = 0;
        while warp < THREADS_PER_CTA / WARP {
            let [low, high] = place.offset(warp * 8).load_u32x2();
            sum = sum.add(T::from_bits((high as u64) << 32 | low as u64));
            warp += 1;
        }
        sum
    }
}
