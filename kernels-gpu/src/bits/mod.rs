//! Matrices of bits: made of elements, and summed up over neighbours, and multiplied.
//!
//! - [`binarize`](self::signs): a bit an element.
//! - [`columns`]: which columns a lane has, and the transpose that gives it their bits.
//! - [`planes`]: counts of all columns of a word at once.
//! - [`sums`]: the sums over neighbours of a CTA's edges, with a factor a column or without.
//! - [`vertex_parallel`]: the same in one launch, a warp a word of a row.
//! - [`output`]: what sums become: signs, or elements.
//! - [`product`]: products of two matrices of bits, alone or added to what is there.
//! - [`follow_up`]: rows that cross CTAs, and rows without edges.

mod columns;
mod follow_up;
mod output;
mod planes;
mod product;
mod signs;
mod sums;
mod vertex_parallel;

use halfgnn_contract::bits::{BinarizeParams, BmmParams, BspmmParams};

pub use columns::transpose;
pub use output::{Elements, Output, Place, Signs};

/// The functions that the entries are, by name.
mod family {
    use super::output::{Elements, Signs};
    use super::product;
    use super::sums::{Codes, Ones, run};
    use crate::device::vector::Vector;
    use halfgnn_contract::bits::{BmmParams, BspmmParams};

    pub use super::signs::binarize;

    macro_rules! bspmm {
        ($($name:ident, $sign:ident: $factors:ident, $words:literal words, $groups:literal groups;)+) => {$(
            /// # Safety
            /// The launch contract of [`BspmmParams`].
            #[inline(always)]
            pub unsafe fn $name<V: Vector>(params: &BspmmParams) {
                // SAFETY: the caller's promise.
                unsafe { run::<Elements<V>, $factors, $words, $groups>(params) }
            }

            /// # Safety
            /// The launch contract of [`BspmmParams`].
            #[inline(always)]
            pub unsafe fn $sign(params: &BspmmParams) {
                // SAFETY: the caller's promise.
                unsafe { run::<Signs, $factors, $words, $groups>(params) }
            }
        )+};
    }

    bspmm! {
        bspmm_1, bspmm_1_sign: Ones, 1 words, 4 groups;
        bspmm_2, bspmm_2_sign: Ones, 2 words, 2 groups;
        bspmm_4, bspmm_4_sign: Ones, 4 words, 2 groups;
        bspmm_factored_1, bspmm_factored_1_sign: Codes, 1 words, 4 groups;
        bspmm_factored_2, bspmm_factored_2_sign: Codes, 2 words, 2 groups;
        bspmm_factored_4, bspmm_factored_4_sign: Codes, 4 words, 1 groups;
    }

    /// # Safety
    /// The launch contract of [`BspmmParams`].
    #[inline(always)]
    pub unsafe fn bspmm_vertex<V: Vector>(params: &BspmmParams) {
        // SAFETY: the caller's promise.
        unsafe { super::vertex_parallel::run::<Elements<V>>(params) }
    }

    /// # Safety
    /// The launch contract of [`BspmmParams`].
    #[inline(always)]
    pub unsafe fn bspmm_vertex_sign(params: &BspmmParams) {
        // SAFETY: the caller's promise.
        unsafe { super::vertex_parallel::run::<Signs>(params) }
    }

    /// # Safety
    /// The launch contract of [`BspmmParams`].
    #[inline(always)]
    pub unsafe fn bspmm_follow_up<V: Vector>(params: &BspmmParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Elements<V>>(params) }
    }

    /// # Safety
    /// The launch contract of [`BspmmParams`].
    #[inline(always)]
    pub unsafe fn bspmm_follow_up_sign(params: &BspmmParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Signs>(params) }
    }

    macro_rules! bmm {
        ($($name:ident: $sum:ident;)+) => {$(
            /// # Safety
            /// The launch contract of [`BmmParams`].
            #[inline(always)]
            pub unsafe fn $name<V: Vector<Bits = [u32; 4]>>(params: &BmmParams) {
                // SAFETY: the caller's promise.
                unsafe { product::run::<product::Elements<V, product::$sum>>(params) }
            }
        )+};
    }

    bmm! {
        bmm: Alone;
        bmm_add: Added;
        bmm_add_signs: AddedSigns;
    }

    /// # Safety
    /// The launch contract of [`BmmParams`].
    #[inline(always)]
    pub unsafe fn bmm_sign(params: &BmmParams) {
        // SAFETY: the caller's promise.
        unsafe { product::run::<product::Signs>(params) }
    }
}

halfgnn_contract::bits_entries!(entries);
