//! The 32 lanes of a warp: shuffles, votes, and the barrier of a warp.
//!
//! These are LLVM's own intrinsics and never inline assembly: LLVM keeps them convergent, while it duplicates or sinks
//! an `asm!` block that synchronises.

use super::thread::thread_idx_x;
use halfgnn_contract::WARP;

/// All lanes of a warp.
pub const FULL_MASK: u32 = u32::MAX;

// The C operand of `shfl.sync`: segments of a whole warp, which ends at lane 31, or begins at lane 0.
const CLAMP_LAST: u32 = 0x1f;
const CLAMP_FIRST: u32 = 0;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_sync_bfly_i32(mask: u32, value: u32, lane_mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn shfl_sync_up_i32(mask: u32, value: u32, distance: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_sync_down_i32(mask: u32, value: u32, distance: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_sync_idx_i32(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
}

/// The lane in its warp, for CTAs of one dimension.
#[inline(always)]
pub fn lane_id() -> u32 {
    thread_idx_x() % WARP
}

/// The warp in its CTA, for CTAs of one dimension.
#[inline(always)]
pub fn warp_id() -> u32 {
    thread_idx_x() / WARP
}

/// A 32-bit value that shuffles can carry.
pub trait Shuffle: Copy {
    /// The bits of the value.
    fn to_bits(self) -> u32;
    /// The value of the bits.
    fn from_bits(bits: u32) -> Self;
}

impl Shuffle for u32 {
    #[inline(always)]
    fn to_bits(self) -> u32 {
        self
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        bits
    }
}

impl Shuffle for f32 {
    #[inline(always)]
    fn to_bits(self) -> u32 {
        f32::to_bits(self)
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        f32::from_bits(bits)
    }
}

/// `shfl.sync.bfly.b32`: the value of the lane whose number differs by `lane_mask`
/// ([PTX ISA, `shfl.sync`](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-shfl-sync)).
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn shuffle_xor<T: Shuffle>(value: T, lane_mask: u32) -> T {
    // SAFETY: the caller promises that every lane of the mask takes part.
    T::from_bits(unsafe { shfl_sync_bfly_i32(FULL_MASK, value.to_bits(), lane_mask, CLAMP_LAST) })
}

/// `shfl.sync.up.b32`: the value of the lane `distance` lanes below; the first lanes get their own.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn shuffle_up<T: Shuffle>(value: T, distance: u32) -> T {
    // SAFETY: the caller promises that every lane of the mask takes part.
    T::from_bits(unsafe { shfl_sync_up_i32(FULL_MASK, value.to_bits(), distance, CLAMP_FIRST) })
}

/// `shfl.sync.down.b32`: the value of the lane `distance` lanes above; the last lanes get their own.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn shuffle_down<T: Shuffle>(value: T, distance: u32) -> T {
    // SAFETY: the caller promises that every lane of the mask takes part.
    T::from_bits(unsafe { shfl_sync_down_i32(FULL_MASK, value.to_bits(), distance, CLAMP_LAST) })
}

/// `shfl.sync.idx.b32`: the value of lane `lane`.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn shuffle_idx<T: Shuffle>(value: T, lane: u32) -> T {
    // SAFETY: the caller promises that every lane of the mask takes part.
    T::from_bits(unsafe { shfl_sync_idx_i32(FULL_MASK, value.to_bits(), lane, CLAMP_LAST) })
}

/// `vote.sync.ballot.b32`: a bit for each lane whose predicate holds.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn ballot(predicate: bool) -> u32 {
    // SAFETY: the caller promises that every lane of the mask takes part.
    unsafe { vote_ballot_sync(FULL_MASK, predicate) }
}

/// `vote.sync.all.pred`: whether the predicate holds in every lane.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn all(predicate: bool) -> bool {
    // SAFETY: the caller promises that every lane of the mask takes part.
    unsafe { vote_all_sync(FULL_MASK, predicate) }
}

/// `bar.warp.sync`: waits for all lanes of the warp and orders their memory accesses.
///
/// # Safety
/// All 32 lanes of the warp reach this call.
#[inline(always)]
pub unsafe fn sync_warp() {
    // SAFETY: the caller promises that every lane of the mask arrives.
    unsafe { bar_warp_sync(FULL_MASK) }
}

/// The sum of all lanes' values, the same in every lane and in a fixed order.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn sum(value: f32) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { combine(value, WARP, |a, b| a + b) }
}

/// The largest of all lanes' values, in every lane.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn maximum(value: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { combine(value, WARP, |a: u32, b| a.max(b)) }
}

/// The values of `lanes` neighbouring lanes, a power of two that divides the warp, as one, in every one of them and in a fixed order.
///
/// # Safety
/// All 32 lanes of the warp reach this call together, with the same number of lanes.
#[inline(always)]
pub unsafe fn combine<T: Shuffle>(value: T, lanes: u32, f: impl Fn(T, T) -> T) -> T {
    // SAFETY: the caller's promise.
    let [value] = unsafe { combine_each([value], lanes, f) };
    value
}

/// [`combine`] of several values, whose shuffles take turns.
///
/// # Safety
/// As [`combine`].
#[inline(always)]
pub unsafe fn combine_each<T: Shuffle, const N: usize>(
    mut values: [T; N],
    lanes: u32,
    f: impl Fn(T, T) -> T,
) -> [T; N] {
    let mut distance = lanes / 2;
    while distance > 0 {
        // SAFETY: the loop is the same for every lane, and the caller promises that all of them are here.
        values = values.map(|value| f(value, unsafe { shuffle_xor(value, distance) }));
        distance /= 2;
    }
    values
}

/// The sum of the values of the lanes up to and with this one, by 32 bits.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn inclusive_sum(mut value: u32) -> u32 {
    let mut distance = 1;
    while distance < WARP {
        // SAFETY: the loop is the same for every lane, and the caller promises that all of them are here.
        let below = unsafe { shuffle_up(value, distance) };
        value = value.wrapping_add(if lane_id() >= distance { below } else { 0 });
        distance *= 2;
    }
    value
}
