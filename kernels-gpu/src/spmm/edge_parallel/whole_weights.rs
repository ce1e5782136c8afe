//! Weights of a warp as whole numbers over their largest ([`Accumulate::WHOLE_WEIGHTS`]), and what of four edges that are added at once is
//! one row's.

use super::Tile;
use crate::device::float::max;
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_xor};
use crate::spmm::lanes::Lanes;
use crate::spmm::policy::{Accumulate, Weights};
use crate::spmm::rows::Rows;
use crate::spmm::sums::Sums;
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::SpmmParams;

/// The largest whole weight.
const LARGEST_WEIGHT: f32 = 65_535.0;

/// Weights that are all smaller are no more than this over [`LARGEST_WEIGHT`], so that the reciprocal of that is a float.
const SMALLEST_LARGEST: f32 = 1e-30;

/// The terms with zeros for edges whose bits are not in `edges`.
#[inline(always)]
pub(super) fn terms_of(terms: [f32; 4], edges: u32) -> [f32; 4] {
    let of = |i: usize| if edges >> i & 1 != 0 { terms[i] } else { 0.0 };
    [of(0), of(1), of(2), of(3)]
}

/// The terms of four more edges.
#[inline(always)]
pub(super) fn add_terms<V: Vector, A: Accumulate<V>>(
    sum: A::Sum,
    [a, b, c, d]: [f32; 4],
) -> A::Sum {
    A::add_term(A::add_term(A::add_term(A::add_term(sum, a), b), c), d)
}

impl<V: Vector, T: Sums<V>, L: Lanes> Tile<V, T, L> {
    /// The warp's weights as whole numbers, and what they are multiples of; NaN where one of them is. Of the last four
    /// those that there are not have none.
    ///
    /// # Safety
    /// After stage 1, all lanes together.
    #[inline(always)]
    pub(super) unsafe fn round_weights<W: Weights, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
    ) -> f32 {
        let (base, end) = self.warp;
        let first = base.saturating_add(lane_id() * 4);
        let mut largest = 0.0;
        // SAFETY: what the lane itself wrote; arrays of edges have room for all edges of a CTA, which are a multiple of four.
        unsafe {
            let mut edge = first;
            while edge < end {
                let mut i = end - edge;
                while i < 4 {
                    self.weight(params, edge + i).store_u32(0);
                    if W::TERMED {
                        self.term(params, edge + i).store_f32(0.0);
                    }
                    i += 1;
                }
                let [a, b, c, d] = self.weight(params, edge).load_u32x4().map(f32::from_bits);
                let magnitude = max(max(a.abs(), b.abs()), max(c.abs(), d.abs()));
                largest = max(largest, magnitude);
                edge = edge.saturating_add(4 * WARP);
            }
            let mut distance = WARP / 2;
            while distance > 0 {
                largest = max(largest, shuffle_xor(largest, distance));
                distance /= 2;
            }
            let largest = if largest < SMALLEST_LARGEST {
                SMALLEST_LARGEST
            } else {
                largest
            };
            let factor = LARGEST_WEIGHT / largest;
            let mut edge = first;
            while edge < end {
                let place = self.weight(params, edge);
                place.store_u32x4(A::whole_weights(place.load_u32x4(), factor));
                edge = edge.saturating_add(4 * WARP);
            }
            largest * (1.0 / LARGEST_WEIGHT)
        }
    }

    /// The row's factor times what weights are multiples of.
    #[inline(always)]
    pub(super) fn scale<A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
        rows: &Rows,
    ) -> f32 {
        if A::WHOLE_WEIGHTS {
            rows.scale(params) * self.unit
        } else {
            rows.scale(params)
        }
    }
}
