//! A walk over the edges of a graph that sums a message for each into its row, for kernels that compute messages of the rows of both ends.
//!
//! ```text
//!  edges   0 … 255 ║ 256 … 511 ║ 512 …       a warp has a chunk, a group of lanes an edge at a time
//!  rows    aaabbbbbb║bbbbbbbbbbb║bbcc         a: written at once, b: staged in parts, which the follow-up kernel merges
//! ```
//!
//! - [`lanes`]: which vectors of a row a lane has.
//! - [`part`]: what a lane has of the sums of a row.
//! - [`pass`]: what a family says of a pass: its matrices, what an edge adds, what is written.
//! - [`ring`]: rows that arrive in shared memory while others are computed.
//! - [`walk`]: the walk over the rows of a chunk, and the follow-up.

mod lanes;
mod part;
mod pass;
mod ring;
mod walk;

pub use lanes::{Lane, QUAD};
pub use part::{Part, Sum, Sums, Walked, add, both, map_sum, scaled};
pub use pass::{Params, PartOf, Pass};
pub use ring::Edge;
pub use walk::{edges_of, follow_up, walk};

/// The functions of a family's passes: the walk of each, and the follow-up that completes rows of several chunks.
macro_rules! passes {
    ($params:ident, $loads:ident, V: $bound:path; $($pass:ident: $first:ident, $second:ident;)*) => {$(
        /// # Safety
        #[doc = concat!("The launch contract of [`", stringify!($params), "`].")]
        #[inline(always)]
        pub unsafe fn $first<V: $bound>(params: &$params) {
            // SAFETY: the caller's promise.
            unsafe { $crate::edge_walk::walk::<V, $pass, $loads>(params) }
        }

        /// # Safety
        #[doc = concat!("The launch contract of [`", stringify!($params), "`], after the kernel whose rows it completes.")]
        #[inline(always)]
        pub unsafe fn $second<V: $bound>(params: &$params) {
            // SAFETY: the caller's promise.
            unsafe { $crate::edge_walk::follow_up::<V, $pass, $loads>(params) }
        }
    )*};
}

pub(crate) use passes;
