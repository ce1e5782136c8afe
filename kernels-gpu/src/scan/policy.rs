//! What an item counts, and what is done with the sum of the items before it.

use crate::device::global::Global;
use halfgnn_contract::scan::ScanParams;

/// A kind of item.
pub trait Item {
    /// What the item counts; nothing where there is none. Without a branch: behind one no other item would be asked for.
    ///
    /// # Safety
    /// The launch contract; `at` is an item if it `is_there`.
    unsafe fn value(params: &ScanParams, at: u64, is_there: bool) -> u32;
    /// Takes the sum of the items before it.
    ///
    /// # Safety
    /// The launch contract; `at` is the calling thread's own item, which counts `value`.
    unsafe fn put(params: &ScanParams, at: u64, value: u32, prefix: u32);
}

/// A word counts itself, and its prefix is the result.
pub struct Words;

impl Item for Words {
    #[inline(always)]
    unsafe fn value(params: &ScanParams, at: u64, is_there: bool) -> u32 {
        // SAFETY: the caller's promise. Not `read`: the result may be the words.
        unsafe { Global::<u32>::new(params.words).at(at).load_if(is_there) }
    }
    #[inline(always)]
    unsafe fn put(params: &ScanParams, at: u64, _: u32, prefix: u32) {
        // SAFETY: the caller's promise; a word a result.
        unsafe { Global::<u32>::new(params.result).at(at).store(prefix) }
    }
}

/// A row counts where it has edges; it goes to its place in one of two lists.
pub struct Rows;

impl Item for Rows {
    #[inline(always)]
    unsafe fn value(params: &ScanParams, at: u64, is_there: bool) -> u32 {
        let first = Global::<u64>::new(params.offsets).at(at);
        // SAFETY: the caller's promise: there is an offset more than rows.
        unsafe { (first.load_if(is_there) < first.at(1).load_if(is_there)) as u32 }
    }
    #[inline(always)]
    unsafe fn put(params: &ScanParams, at: u64, value: u32, prefix: u32) {
        let (list, place) = if value != 0 {
            (params.result, prefix as u64)
        } else {
            (params.empty_rows, at - prefix as u64)
        };
        // SAFETY: the caller's promise: each list has room for the rows that the sums have counted.
        unsafe { Global::<u32>::new(list).at(place).store(at as u32) }
    }
}

/// A word of starts counts them, and its prefix is its rank.
pub struct Starts;

impl Item for Starts {
    #[inline(always)]
    unsafe fn value(params: &ScanParams, at: u64, is_there: bool) -> u32 {
        let word = Global::<u32>::new(params.starts).at(2 * at);
        // SAFETY: the caller's promise; nobody writes first words here.
        unsafe { word.load_if(is_there).count_ones() }
    }
    #[inline(always)]
    unsafe fn put(params: &ScanParams, at: u64, _: u32, prefix: u32) {
        let rank = Global::<u32>::new(params.starts).at(2 * at + 1);
        // SAFETY: the caller's promise.
        unsafe { rank.store(prefix) }
    }
}
