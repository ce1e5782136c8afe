//! Exclusive prefix sums: each warp scans 32 items after 32, warps and CTAs know what lies before them.
//!
//! - [`policy`]: what an item counts, and what is done with its prefix.
//! - [`prefix`]: the three launches.

mod policy;
mod prefix;

/// The functions that the entries are, by name.
pub mod family {
    use super::policy::{Neighbors, Rows, Starts, Words};
    use super::prefix::{scan, sums};
    use halfgnn_contract::scan::ScanParams;

    pub use super::prefix::scan_partials;

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_sums_of_neighbors(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { sums::<Neighbors>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_neighbors(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { scan::<Neighbors>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_sums_of_words(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { sums::<Words>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_sums_of_rows(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { sums::<Rows>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_sums_of_starts(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { sums::<Starts>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_words(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { scan::<Words>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_rows(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { scan::<Rows>(params) }
    }

    /// # Safety
    /// The launch contract of [`ScanParams`].
    #[inline(always)]
    pub unsafe fn scan_starts(params: &ScanParams) {
        // SAFETY: the caller's promise.
        unsafe { scan::<Starts>(params) }
    }
}
