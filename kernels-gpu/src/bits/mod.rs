//! Matrices of bits: made of elements, and summed up over neighbours, and multiplied.
//!
//! - [`binarize`](self::signs): a bit an element.
//! - [`columns`]: which columns a lane has, and the transpose that gives it their bits.
//! - [`planes`]: counts of all columns of a word at once.
//! - [`sums`]: the sums over neighbours of a CTA's edges, by a transpose of 32 edges.
//! - [`factored`]: the same with a factor a column of the graph, by products of bytes.
//! - [`counters`]: signs of the same, without factors, in vertical counters of a few edges a lane.
//! - [`edges`]: the columns of a warp's edges.
//! - [`parts`]: rows that cross the warps of a CTA.
//! - [`vertex_parallel`]: sums and signs in one launch, a warp a word of a row.
//! - [`output`]: what sums become: signs, elements, or integers.
//! - [`product`]: products of two matrices of bits, alone or added to what is there.
//! - [`follow_up`]: rows that cross CTAs, and rows without edges.

mod columns;
mod counters;
mod edges;
mod factored;
mod follow_up;
mod output;
mod parts;
mod planes;
mod product;
mod signs;
mod sums;
mod vertex_parallel;

pub use columns::transpose;
pub use output::{Output, Place, Rounded, Signs};

/// The functions that the entries are, by name.
pub mod family {
    use super::counters;
    use super::factored;
    use super::follow_up;
    use super::output::{Integers, Rounded, Signs};
    use super::product;
    use super::sums::{Any, Long, run};
    use super::vertex_parallel;
    use crate::device::vector::Vector;
    use halfgnn_contract::bits::{BmmParams, BspmmParams};

    pub use super::signs::binarize;

    macro_rules! bspmm {
        ($($name:ident: $run:expr;)+) => {$(
            /// # Safety
            /// The launch contract of [`BspmmParams`].
            #[inline(always)]
            pub unsafe fn $name<V: Vector>(params: &BspmmParams) {
                // SAFETY: the caller's promise.
                unsafe { $run(params) }
            }
        )+};
        (plain $($name:ident: $run:expr;)+) => {$(
            /// # Safety
            /// The launch contract of [`BspmmParams`].
            #[inline(always)]
            pub unsafe fn $name(params: &BspmmParams) {
                // SAFETY: the caller's promise.
                unsafe { $run(params) }
            }
        )+};
    }

    bspmm! {
        bspmm_1: run::<Rounded<V>, Any, 1, 4>;
        bspmm_2: run::<Rounded<V>, Any, 2, 2>;
        bspmm_4: run::<Rounded<V>, Any, 4, 2>;
        bspmm_long_2: run::<Rounded<V>, Long, 2, 2>;
        bspmm_long_4: run::<Rounded<V>, Long, 4, 2>;
        bspmm_factored_1: factored::run::<Rounded<V>, 1>;
        bspmm_factored_2: factored::run::<Rounded<V>, 2>;
        bspmm_factored_4: factored::run::<Rounded<V>, 4>;
        bspmm_vertex: vertex_parallel::run::<Rounded<V>>;
        bspmm_follow_up: follow_up::run::<Rounded<V>>;
    }

    bspmm! {
        plain
        bspmm_1_sign: run::<Signs, Any, 1, 4>;
        bspmm_long_2_sign: run::<Signs, Long, 2, 2>;
        bspmm_counted_1_sign: counters::run::<1, 4>;
        bspmm_counted_2_sign: counters::run::<2, 5>;
        bspmm_counted_4_sign: counters::run::<4, 6>;
        bspmm_factored_1_sign: factored::run::<Signs, 1>;
        bspmm_factored_2_sign: factored::run::<Signs, 2>;
        bspmm_factored_4_sign: factored::run::<Signs, 4>;
        bspmm_1_i32: run::<Integers, Any, 1, 4>;
        bspmm_2_i32: run::<Integers, Any, 2, 2>;
        bspmm_4_i32: run::<Integers, Any, 4, 2>;
        bspmm_long_2_i32: run::<Integers, Long, 2, 2>;
        bspmm_long_4_i32: run::<Integers, Long, 4, 2>;
        bspmm_factored_1_i32: factored::run::<Integers, 1>;
        bspmm_factored_2_i32: factored::run::<Integers, 2>;
        bspmm_factored_4_i32: factored::run::<Integers, 4>;
        bspmm_vertex_sign: vertex_parallel::run::<Signs>;
        bspmm_vertex_i32: vertex_parallel::run::<Integers>;
        bspmm_follow_up_sign: follow_up::run::<Signs>;
        bspmm_follow_up_i32: follow_up::run::<Integers>;
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
