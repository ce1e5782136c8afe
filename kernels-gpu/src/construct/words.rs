//! Words that an order picks, and the largest of many numbers.

use crate::device::global::{Access, Global};
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, global_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{lane_id, maximum, warp_id};
use halfgnn_contract::construct::{ConstructParams, THREADS_PER_CTA, WARPS_PER_CTA};

/// # Safety
/// The launch contract of [`ConstructParams`]: a thread for each result.
#[inline(always)]
pub unsafe fn take_words(params: &ConstructParams) {
    // SAFETY: the caller's promise.
    unsafe { take::<u32>(params) }
}

/// # Safety
/// The launch contract of [`ConstructParams`]: a thread for each result.
#[inline(always)]
pub unsafe fn take_halfwords(params: &ConstructParams) {
    // SAFETY: the caller's promise.
    unsafe { take::<u16>(params) }
}

/// Numbers of a width that an order picks.
///
/// # Safety
/// The launch contract of [`ConstructParams`]: a thread for each result, and numbers of that width.
#[inline(always)]
unsafe fn take<T: Access + Default>(params: &ConstructParams) {
    let at = global_idx_x();
    if at < params.results {
        // SAFETY: the caller's promise; a number is read only where there is one.
        unsafe {
            let from = Global::<u32>::new(params.order).at(at).read() as u64;
            let number = if from < params.words_len {
                Global::<T>::new(params.words).at(from).read()
            } else {
                T::default()
            };
            Global::<T>::new(params.result).at(at).store(number);
        }
    }
}

/// # Safety
/// The launch contract of [`ConstructParams`]: `results` CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn largest_word(params: &ConstructParams) {
    let words = Global::<u32>::new(params.words);
    // SAFETY: the caller's promise.
    unsafe { largest(params, params.words_len, |at| words.at(at).read()) }
}

/// # Safety
/// The launch contract of [`ConstructParams`]: `results` CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn longest_row(params: &ConstructParams) {
    let offsets = Global::<u64>::new(params.offsets);
    // SAFETY: the caller's promise: there is an offset more than rows.
    unsafe {
        largest(params, params.row_count, |row| {
            (offsets.at(row + 1).read() - offsets.at(row).read()) as u32
        })
    }
}

/// The largest of the CTA's share of `numbers` numbers.
///
/// # Safety
/// All threads of a launch of `results` CTAs come together; `number` may be called below `numbers`.
#[inline(always)]
unsafe fn largest(params: &ConstructParams, numbers: u64, number: impl Fn(u64) -> u32) {
    let mut at = global_idx_x();
    let mut most = 0;
    while at < numbers {
        most = number(at).max(most);
        at += params.results * THREADS_PER_CTA as u64;
    }
    // SAFETY: all lanes are here again; a word a warp, read behind a barrier.
    unsafe {
        most = maximum(most);
        if lane_id() == 0 {
            Shared::base().offset(warp_id() * 4).store_u32(most);
        }
        sync_threads();
        if thread_idx_x() == 0 {
            let mut warp = 1;
            while warp < WARPS_PER_CTA {
                most = most.max(Shared::base().offset(warp * 4).load_u32());
                warp += 1;
            }
            Global::<u32>::new(params.result)
                .at(block_idx_x() as u64)
                .store(most);
        }
    }
}
