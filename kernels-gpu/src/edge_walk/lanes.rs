//! Which vectors of a row a lane has, and sums over the lanes of a head.

use crate::device::global::Global;
use crate::device::registers::{recomputed, unroll};
use crate::device::thread::block_idx_y;
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_xor};
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES, WARP};

/// A lane of a group, which has `R` vectors of one head.
#[derive(Clone, Copy)]
pub struct Lane<const R: usize> {
    /// The group in its warp.
    pub group: u32,
    /// Groups of the warp.
    pub groups: u32,
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
    /// As `vector` and `left`, of the row that the lane brings to a product on tensor cores ([`Dots`](crate::dot_attention::Dots)).
    of_product: [u32; 2],
    /// The lane that has this lane's element of such a product.
    pub from: u32,
}

/// Lanes of a column of a product on tensor cores.
pub const QUAD: u32 = 4;

/// The first head of the CTA's tile.
#[inline(always)]
fn first_head(walk: &EdgeWalk) -> u32 {
    let of = &walk.lanes;
    block_idx_y() << (of.lanes_log2 - of.head_lanes_log2)
}

/// Vector `in_head` of head `head` of the CTA's tile: its place in a row, and whether there is one.
#[inline(always)]
pub fn vector_of_slot(walk: &EdgeWalk, head: u32, in_head: u32) -> (u32, bool) {
    let of = &walk.lanes;
    let head = first_head(walk) + head;
    let vector = head * of.head_vectors + in_head;
    let is_one = head < of.heads && in_head < of.head_vectors && vector < walk.row_vectors;
    (vector, is_one)
}

/// The head of a lane at `place` of its group, its first vector, and how many follow.
#[inline(always)]
fn slice(walk: &EdgeWalk, place: u32) -> (u32, [u32; 2]) {
    let of = &walk.lanes;
    let in_head = place & ((1 << of.head_lanes_log2) - 1);
    let in_tile = place >> of.head_lanes_log2;
    let (vector, is_one) = vector_of_slot(walk, in_tile, in_head);
    let left = if is_one { of.head_vectors - in_head } else { 0 };
    (first_head(walk) + in_tile, [vector, left])
}

impl<const R: usize> Lane<R> {
    #[inline(always)]
    pub fn new(walk: &EdgeWalk) -> Self {
        let of = &walk.lanes;
        let lane = lane_id();
        let place = lane & ((1 << of.lanes_log2) - 1);
        let (head, [vector, left]) = slice(walk, place);
        // A quad has several heads or edges where those have fewer lanes: each is a row of the product, with zeros in the lanes of the others.
        let sub_lanes_log2 = of.head_lanes_log2.min(QUAD.ilog2());
        let subs_log2 = QUAD.ilog2() - sub_lanes_log2;
        let (quad, in_quad) = (lane / QUAD, lane % QUAD);
        let row = ((place / QUAD) << subs_log2) + (in_quad >> sub_lanes_log2);
        let part = quad >> subs_log2;
        let brings = in_quad >> sub_lanes_log2 == quad & ((1 << subs_log2) - 1);
        let brought = part * QUAD + in_quad;
        let is_part = part == 0 || brought >> of.lanes_log2 == 0;
        let (_, mut of_product) = slice(walk, brought & ((1 << of.lanes_log2) - 1));
        if !(brings && is_part) {
            of_product[1] = 0;
        }
        Self {
            group: lane >> of.lanes_log2,
            groups: WARP >> of.lanes_log2,
            place,
            head,
            vector,
            apart: 1 << of.head_lanes_log2,
            left,
            of_product,
            from: row * QUAD + quad / 2,
        }
    }

    /// Whether the lane is the one that speaks for its head.
    #[inline(always)]
    pub fn leads_head(&self, walk: &EdgeWalk) -> bool {
        self.left > 0 && self.place & ((1 << walk.lanes.head_lanes_log2) - 1) == 0
    }

    /// Whether the lane has vector `load` of a row.
    #[inline(always)]
    pub fn has(&self, load: usize) -> bool {
        load as u32 * self.apart < self.left
    }

    /// The lane's first vector of row `row` of a matrix.
    #[inline(always)]
    pub fn row(&self, walk: &EdgeWalk, matrix: DevicePtr<HalfBits>, row: u32) -> Global<[u32; 4]> {
        let first = Global::new(matrix).at(self.vector as u64);
        first.row(row, walk.lanes.stride * VECTOR_BYTES)
    }

    /// The same lane, for addresses that are needed once a row: kept for a whole chunk, they would fill the registers.
    #[inline(always)]
    fn computed_again(&self) -> Self {
        let vector = recomputed(self.vector);
        Self { vector, ..*self }
    }

    /// The lane's vector `load` of a row, of which this is the first.
    #[inline(always)]
    pub fn vector_of(&self, first: Global<[u32; 4]>, load: usize) -> Global<[u32; 4]> {
        first.at((load as u32 * self.apart) as u64)
    }

    /// The lane's vectors of row `row` of a matrix.
    ///
    /// # Safety
    /// The launch contract; the matrix has the row.
    #[inline(always)]
    pub unsafe fn load<V: Vector<Bits = [u32; 4]>>(
        &self,
        walk: &EdgeWalk,
        matrix: DevicePtr<HalfBits>,
        row: u32,
    ) -> [V; R] {
        let first = self.computed_again().row(walk, matrix, row);
        let mut vectors = [V::zero(); R];
        unroll!(load in 0..R => {
            // SAFETY: the caller's promise; the lane has this vector of each row.
            let bits = unsafe { self.vector_of(first, load).load_if(self.has(load)) };
            vectors[load] = V::from_bits(bits);
        });
        vectors
    }

    /// What the lane brings of row `row` of a matrix to a product on tensor cores.
    ///
    /// # Safety
    /// As [`Lane::load`].
    #[inline(always)]
    pub unsafe fn load_for_product<V: Vector<Bits = [u32; 4]>>(
        &self,
        walk: &EdgeWalk,
        matrix: DevicePtr<HalfBits>,
        row: u32,
    ) -> [V; R] {
        let [vector, left] = self.of_product;
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                vector,
                left,
                ..*self
            }
            .load(walk, matrix, row)
        }
    }

    /// Writes the lane's vectors of row `row` of an output, rounded, without what lies past the last column.
    ///
    /// # Safety
    /// The launch contract; no other thread writes them.
    #[inline(always)]
    pub unsafe fn store<V: Vector<Bits = [u32; 4]>>(
        &self,
        walk: &EdgeWalk,
        matrix: DevicePtr<HalfBits>,
        row: u32,
        values: [V::Floats; R],
    ) {
        let first = self.computed_again().row(walk, matrix, row);
        unroll!(load in 0..R => {
            if self.has(load) {
                let column = (self.vector + load as u32 * self.apart) * V::WIDTH;
                let columns = walk.features.saturating_sub(column);
                let value = V::narrow(values[load]).first(columns);
                // SAFETY: the caller's promise; the lane has this vector of each row.
                unsafe { self.vector_of(first, load).store(value.to_bits()) }
            }
        });
    }

    /// Sums over the lanes of the head, in all of them; `summed` lanes next to each other have their sum already.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    pub unsafe fn sum<const N: usize>(
        &self,
        walk: &EdgeWalk,
        mut values: [f32; N],
        summed: u32,
    ) -> [f32; N] {
        let lanes = 1 << walk.lanes.head_lanes_log2;
        let mut distance = summed;
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
