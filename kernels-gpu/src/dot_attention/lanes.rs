//! Which vectors of a row a lane has, and sums over the lanes of a head.

use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::block_idx_y;
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_xor};
use halfgnn_contract::dot_attention::DotAttentionParams;
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES};

/// A lane of a group, which has `R` vectors of one head.
#[derive(Clone, Copy)]
pub struct Lane<const R: usize> {
    /// The group in its warp.
    pub group: u32,
    /// The lane in its group.
    pub place: u32,
    /// The head.
    pub head: u32,
    /// The lane's first vector of a row.
    vector: u32,
    /// How far its vectors are apart: as many as the head has lanes.
    apart: u32,
    /// How many vectors of the head follow from the first on; none of a lane without a head.
    left: u32,
}

impl<const R: usize> Lane<R> {
    #[inline(always)]
    pub fn new(params: &DotAttentionParams) -> Self {
        let of = &params.lanes;
        let lane = lane_id();
        let place = lane & ((1 << of.lanes_log2) - 1);
        let heads = block_idx_y() << (of.lanes_log2 - of.head_lanes_log2);
        let head = heads + (place >> of.head_lanes_log2);
        let in_head = place & ((1 << of.head_lanes_log2) - 1);
        let left = if head < of.heads {
            of.head_vectors.saturating_sub(in_head)
        } else {
            0
        };
        Self {
            group: lane >> of.lanes_log2,
            place,
            head,
            vector: head * of.head_vectors + in_head,
            apart: 1 << of.head_lanes_log2,
            left,
        }
    }

    /// Whether the lane is the one that speaks for its head.
    #[inline(always)]
    pub fn leads_head(&self, params: &DotAttentionParams) -> bool {
        self.left > 0 && self.place & ((1 << params.lanes.head_lanes_log2) - 1) == 0
    }

    #[inline(always)]
    fn has(&self, load: usize) -> bool {
        load as u32 * self.apart < self.left
    }

    /// The lane's vectors of row `row` of a matrix, where `present`; zeros elsewhere.
    ///
    /// # Safety
    /// The launch contract; if `present`, the matrix has the row.
    #[inline(always)]
    pub unsafe fn load<V: Vector>(
        &self,
        params: &DotAttentionParams,
        matrix: DevicePtr<HalfBits>,
        row: u32,
        present: bool,
    ) -> [V; R] {
        let first = Global::<[u32; 4]>::new(matrix).at(self.vector as u64);
        let first = Global::<V::Bits>::cast(first.row(row, params.lanes.stride * VECTOR_BYTES));
        let mut vectors = [V::zero(); R];
        unroll!(load in 0..R => {
            // SAFETY: the caller's promise; the lane has this vector of each row.
            let bits = unsafe { first.at((load as u32 * self.apart) as u64).load_if(present && self.has(load)) };
            vectors[load] = V::from_bits(bits);
        });
        vectors
    }

    /// Writes the lane's vectors of row `row` of an output, rounded, without what lies past the last column.
    ///
    /// # Safety
    /// The launch contract; no other thread writes them.
    #[inline(always)]
    pub unsafe fn store<V: Vector>(
        &self,
        params: &DotAttentionParams,
        matrix: DevicePtr<HalfBits>,
        row: u32,
        values: [V::Floats; R],
    ) {
        let first = Global::<[u32; 4]>::new(matrix).at(self.vector as u64);
        let first = Global::<V::Bits>::cast(first.row(row, params.lanes.stride * VECTOR_BYTES));
        unroll!(load in 0..R => {
            if self.has(load) {
                let column = (self.vector + load as u32 * self.apart) * V::WIDTH;
                let columns = params.features.saturating_sub(column);
                let value = V::narrow(values[load]).first(columns);
                // SAFETY: the caller's promise; the lane has this vector of each row.
                unsafe { first.at((load as u32 * self.apart) as u64).store(value.to_bits()) }
            }
        });
    }

    /// Sums over the lanes of the head, in all of them.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    pub unsafe fn sum<const N: usize>(
        &self,
        params: &DotAttentionParams,
        mut values: [f32; N],
    ) -> [f32; N] {
        let lanes = 1 << params.lanes.head_lanes_log2;
        let mut distance = 1;
        while distance < lanes {
            unroll!(i in 0..N => {
                // SAFETY: the caller's promise; the loop is the same for all lanes.
                values[i] += unsafe { shuffle_xor(values[i], distance) };
            });
            distance *= 2;
        }
        values
    }
}
