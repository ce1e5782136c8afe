//! Maxima of messages that are rows of sources as they are, which are what they are rounded to. Pairs of halves are compared and counted at once.

use super::pass::{Columns, Forward};
use super::policy::{InTerms, Maxima};
use crate::device::registers::unroll;
use crate::device::ties::Ties;
use crate::device::vector::Floats;
use crate::device::warp::shuffle_xor;
use crate::edge_walk::{Edge, Lane, PartOf, Pass, Sum, Sums, Walked};
use crate::messages::rows::row_of;
use halfgnn_contract::WARP;
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::reductions::{
    COLUMNS, COLUMNS_OF_COPIED_MAXIMA, ReductionParams, SUMS_OF_MAXIMA,
};

/// The largest messages of a chunk, and how many edges have them.
#[derive(Clone, Copy)]
pub struct Tied<V: Ties, const R: usize>([V::Found; R]);

impl<V: Ties, const R: usize> Walked for Tied<V, R> {
    type Part = InTerms<V, R, { SUMS_OF_MAXIMA as usize }, Maxima>;
    const NOTHING: Self = Self([V::NOTHING; R]);
    #[inline(always)]
    unsafe fn of_groups(self, walk: &EdgeWalk) -> Self::Part {
        let Self(mut found) = self;
        let mut distance = 1 << walk.lanes.lanes_log2;
        while distance < WARP {
            unroll!(load in 0..R => {
                // SAFETY: the caller's promise; the loop is the same for all lanes.
                let other = V::map(found[load], |word| unsafe { shuffle_xor(word, distance) });
                found[load] = V::of_both(found[load], other);
            });
            distance *= 2;
        }
        let (mut largest, mut counts): (Sum<V, R>, Sum<V, R>) =
            ([V::Floats::ZERO; R], [V::Floats::ZERO; R]);
        unroll!(load in 0..R => {
            [largest[load], counts[load]] = V::in_float(found[load]);
        });
        InTerms::new(largest, [counts])
    }
}

/// The maxima.
pub struct CopiedForward;

impl<V: Ties, const R: usize> Pass<V, R> for CopiedForward {
    type Params = ReductionParams;
    const COLUMNS: usize = COLUMNS as usize;
    const IDS: bool = false;
    type Row = ();
    type Part = Tied<V, R>;

    #[inline(always)]
    unsafe fn row(_: &ReductionParams, _: Lane<R>, _: u32, _: bool) {}

    #[inline(always)]
    unsafe fn add(
        params: &ReductionParams,
        _: Lane<R>,
        _: (u32, &()),
        Tied(mut found): Tied<V, R>,
        edge: Edge<R>,
    ) -> Tied<V, R> {
        let signs = if params.sign < 0.0 { V::SIGNS } else { 0 };
        if edge.there {
            // SAFETY: the caller's promise.
            let messages = unsafe { edge.row::<V>(0) };
            unroll!(load in 0..R => {
                found[load] = V::one_more(found[load], messages[load].flipped(signs));
            });
        }
        Tied(found)
    }

    /// A message that is a sum is no −0.
    #[inline(always)]
    fn closed(params: &ReductionParams, part: PartOf<V, R, Self>) -> PartOf<V, R, Self> {
        part.with_largest(|largest| (largest * params.sign + 0.0) * params.sign)
    }

    #[inline(always)]
    unsafe fn write(params: &ReductionParams, lane: Lane<R>, row: u32, part: PartOf<V, R, Self>) {
        // SAFETY: the caller's promise.
        unsafe { <Forward<Maxima> as Pass<V, R>>::write(params, lane, row, part) }
    }
}

/// The gradients of the rows of sources, over the transposed adjacency: all edges of a row have its message.
pub struct CopiedColumns;

impl<V: Ties, const R: usize> Pass<V, R> for CopiedColumns {
    type Params = ReductionParams;
    const COLUMNS: usize = COLUMNS_OF_COPIED_MAXIMA as usize;
    const IDS: bool = false;
    type Row = [V; R];
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &ReductionParams, lane: Lane<R>, row: u32, _: bool) -> [V; R] {
        // SAFETY: the caller's promise.
        unsafe { row_of(&params.walk, lane, params.of_rows[0], row) }
    }

    #[inline(always)]
    unsafe fn add(
        _: &ReductionParams,
        _: Lane<R>,
        (_, message): (u32, &[V; R]),
        Sums([mut sum]): Sums<V, R, 1>,
        edge: Edge<R>,
    ) -> Sums<V, R, 1> {
        if edge.there {
            // SAFETY: the caller's promise.
            let [d, y] = unsafe { [edge.row::<V>(0), edge.row::<V>(1)] };
            unroll!(load in 0..R => {
                sum[load] = V::add_where_equal(sum[load], d[load], [message[load], y[load]]);
            });
        }
        Sums([sum])
    }

    #[inline(always)]
    unsafe fn write(params: &ReductionParams, lane: Lane<R>, row: u32, part: Sums<V, R, 1>) {
        // SAFETY: the caller's promise.
        unsafe { <Columns<Maxima> as Pass<V, R>>::write(params, lane, row, part) }
    }
}
