//! What an item counts, and what is done with the sum of the items before it.

use crate::device::global::Global;
use halfgnn_contract::sampling::{NO_VERTEX, sampled};
use halfgnn_contract::scan::ScanParams;

/// A kind of item.
pub trait Item {
    /// Where to look for what the item counts, for an item of which that is loaded. All are asked for before one is looked at.
    ///
    /// # Safety
    /// The launch contract; `at` is an item if it `is_there`.
    #[inline(always)]
    unsafe fn index(_params: &ScanParams, _at: u64, _is_there: bool) -> u32 {
        0
    }
    /// What the item counts that has this index; nothing where there is none. Without a branch: behind one no other item would be asked for.
    ///
    /// # Safety
    /// The launch contract; `at` is an item if it `is_there`.
    unsafe fn value(params: &ScanParams, at: u64, index: u32, is_there: bool) -> u32;
    /// Keeps what the item counts, where the launch behind the sums reads that instead of asking again.
    ///
    /// # Safety
    /// As [`Item::put`].
    #[inline(always)]
    unsafe fn keep(_params: &ScanParams, _at: u64, _value: u32) {}
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
    unsafe fn value(params: &ScanParams, at: u64, _: u32, is_there: bool) -> u32 {
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
    unsafe fn value(params: &ScanParams, at: u64, _: u32, is_there: bool) -> u32 {
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
    unsafe fn value(params: &ScanParams, at: u64, _: u32, is_there: bool) -> u32 {
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

/// A vertex counts the edges that it has in a batch. To see how many these are takes two loads, of which the second lies anywhere: so they are
/// kept, and the scan behind the sums is one of words.
pub struct Neighbors;

impl Item for Neighbors {
    #[inline(always)]
    unsafe fn index(params: &ScanParams, at: u64, is_there: bool) -> u32 {
        let vertex = Global::<u32>::new(params.words).at(at);
        // SAFETY: the caller's promise: there is a vertex for each item but the last.
        unsafe { vertex.load_or(is_there && at + 1 < params.items, NO_VERTEX) }
    }
    #[inline(always)]
    unsafe fn value(params: &ScanParams, _: u64, vertex: u32, _: bool) -> u32 {
        let is_row = (vertex as u64) < params.graph_rows;
        let first = Global::<u64>::new(params.offsets).at(vertex as u64);
        // SAFETY: the caller's promise: there is an offset more than rows.
        let degree = unsafe { first.at(1).load_if(is_row) - first.load_if(is_row) };
        match is_row {
            true => sampled(degree as u32, params.fanout, params.replace != 0) + params.own,
            false => 0,
        }
    }
    #[inline(always)]
    unsafe fn keep(params: &ScanParams, at: u64, value: u32) {
        // SAFETY: the caller's promise; a word a result.
        unsafe { Words::put(params, at, 0, value) }
    }
    #[inline(always)]
    unsafe fn put(params: &ScanParams, at: u64, value: u32, prefix: u32) {
        // SAFETY: the caller's promise.
        unsafe { Words::put(params, at, value, prefix) }
    }
}
