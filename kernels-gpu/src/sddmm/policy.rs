//! How the products of four edges become four sums.

use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::half::{Half2, Pair};
use crate::device::mma::{FragmentA, Product};
use crate::device::shared::Shared;
use crate::device::thread::block_idx_z;
use crate::device::vector::{Floats, HalfVector, Packed, Vector};
use crate::device::warp::{lane_id, shuffle_xor};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::attention::leaky_relu;

/// How a sub-warp computes the sums of its four edges.
pub trait Reduction<V: Vector> {
    /// A lane's parts of the features of two rows: that of the first of four edges, and that of the last.
    type Rows: Copy;
    /// What a lane has of the sums of four edges.
    type Sums: Copy;
    /// What a lane has that all edges have alike.
    type Common: Copy;
    /// Whether results are floats, whatever the elements.
    const FLOAT_RESULTS: bool = false;

    /// The lane's part of what all edges have alike: of the vector, and the slope.
    ///
    /// # Safety
    /// Where the policy reads the vector there is one, and this is a load of it.
    unsafe fn common(vector: Global<V::Bits>, slope: f32) -> Self::Common;
    /// Any features.
    fn none() -> Self::Rows;
    /// Replaces the features of the first row by what a load gave.
    fn set_first(rows: &mut Self::Rows, features: V);
    /// Replaces the features of the last row.
    fn set_last(rows: &mut Self::Rows, features: V);
    /// Makes the last row the first one as well.
    fn last_is_first(rows: &mut Self::Rows);
    /// No product.
    fn zero() -> Self::Sums;
    /// Adds the products of four columns with the first row, or with the last.
    ///
    /// # Safety
    /// All lanes of the warp make this call together.
    unsafe fn add(
        sums: Self::Sums,
        rows: Self::Rows,
        values: [V; 4],
        of_first: [bool; 4],
        common: Self::Common,
    ) -> Self::Sums;
    /// For each edge the sum in `a` where `which` holds, else that in `b`.
    fn select(which: [bool; 4], a: Self::Sums, b: Self::Sums) -> Self::Sums;
    /// Adds up the lanes of each sub-warp, and stores the sums of its four edges from `results` on.
    ///
    /// # Safety
    /// As [`Reduction::add`]; the four words are 16-byte aligned and the sub-warp's own.
    unsafe fn store(sums: Self::Sums, scale: f32, lanes_log2: u32, results: Shared);
}

/// What a lane adds up its products in.
pub trait Accumulate<V: Vector> {
    /// The features of a row as they are kept.
    type Row: Copy;
    /// A partial sum.
    type Sum: Copy;
    /// What all edges have alike.
    type Common: Copy;
    /// [`Reduction::FLOAT_RESULTS`]
    const FLOAT_RESULTS: bool = false;
    /// [`Reduction::common`]
    ///
    /// # Safety
    /// As there.
    unsafe fn common(vector: Global<V::Bits>, slope: f32) -> Self::Common;
    /// The features of a row as a load gave them.
    fn row(features: V) -> Self::Row;
    /// No product.
    fn zero() -> Self::Sum;
    /// With the products of one edge.
    fn add(sum: Self::Sum, row: Self::Row, values: V, common: Self::Common) -> Self::Sum;
    /// The sum in float.
    fn finish(sum: Self::Sum) -> f32;
}

/// half2 arithmetic, as in the paper: the sums of even and of odd features, added in float.
pub struct InHalf;

impl<V: HalfVector> Accumulate<V> for InHalf {
    type Row = V;
    type Sum = Half2;
    type Common = ();
    #[inline(always)]
    unsafe fn common(_: Global<V::Bits>, _: f32) {}
    #[inline(always)]
    fn row(features: V) -> V {
        features
    }
    #[inline(always)]
    fn zero() -> Half2 {
        Half2::ZERO
    }
    #[inline(always)]
    fn add(sum: Half2, row: V, values: V, (): ()) -> Half2 {
        row.dot(values, sum)
    }
    #[inline(always)]
    fn finish(sum: Half2) -> f32 {
        sum.low() + sum.high()
    }
}

/// Float. Rows are widened once, when they are loaded.
pub struct InFloat;

impl<V: Vector> Accumulate<V> for InFloat {
    type Row = V::Floats;
    type Sum = f32;
    type Common = ();
    #[inline(always)]
    unsafe fn common(_: Global<V::Bits>, _: f32) {}
    #[inline(always)]
    fn row(features: V) -> V::Floats {
        features.widen()
    }
    #[inline(always)]
    fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    fn add(mut sum: f32, row: V::Floats, values: V, (): ()) -> f32 {
        let values = values.widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            sum = mul_add(row.get(i), values.get(i), sum);
            i += 1;
        }
        sum
    }
    #[inline(always)]
    fn finish(sum: f32) -> f32 {
        sum
    }
}

/// Additive attention's score in float, `Σ_f a[f] · LeakyReLU(u[f] + v[f])`: no dot product, but a sum as one is.
pub struct Additive;

impl<V: Vector> Accumulate<V> for Additive {
    type Row = V::Floats;
    type Sum = f32;
    /// The lane's part of `a`, and the slope.
    type Common = (V::Floats, f32);
    const FLOAT_RESULTS: bool = true;
    #[inline(always)]
    unsafe fn common(vector: Global<V::Bits>, slope: f32) -> Self::Common {
        // SAFETY: the caller's promise.
        (V::from_bits(unsafe { vector.read() }).widen(), slope)
    }
    #[inline(always)]
    fn row(features: V) -> V::Floats {
        features.widen()
    }
    #[inline(always)]
    fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    fn add(mut sum: f32, row: V::Floats, values: V, (vector, slope): Self::Common) -> f32 {
        let values = values.widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            let heard = leaky_relu(row.get(i) + values.get(i), slope);
            sum = mul_add(vector.get(i), heard, sum);
            i += 1;
        }
        sum
    }
    #[inline(always)]
    fn finish(sum: f32) -> f32 {
        sum
    }
}

/// Products by the lanes, added up by shuffles. One tree serves four edges: in its first two rounds a lane gives away
/// the edges that are not its own, so that four edges take three shuffles in two rounds where each by itself would take
/// two.
pub struct Shuffles<A>(PhantomData<A>);

impl<V: Vector, A: Accumulate<V>> Reduction<V> for Shuffles<A> {
    type Rows = [A::Row; 2];
    type Sums = [A::Sum; 4];
    type Common = A::Common;
    const FLOAT_RESULTS: bool = A::FLOAT_RESULTS;

    #[inline(always)]
    unsafe fn common(vector: Global<V::Bits>, slope: f32) -> A::Common {
        // SAFETY: the caller's promise.
        unsafe { A::common(vector, slope) }
    }

    #[inline(always)]
    fn none() -> Self::Rows {
        [A::row(V::zero()); 2]
    }

    #[inline(always)]
    fn set_first(rows: &mut Self::Rows, features: V) {
        rows[0] = A::row(features);
    }

    #[inline(always)]
    fn set_last(rows: &mut Self::Rows, features: V) {
        rows[1] = A::row(features);
    }

    #[inline(always)]
    fn last_is_first(rows: &mut Self::Rows) {
        rows[0] = rows[1];
    }

    #[inline(always)]
    fn zero() -> Self::Sums {
        [A::zero(); 4]
    }

    #[inline(always)]
    unsafe fn add(
        [a, b, c, d]: Self::Sums,
        [first, last]: Self::Rows,
        values: [V; 4],
        of_first: [bool; 4],
        common: A::Common,
    ) -> Self::Sums {
        let of = |edge: usize| if of_first[edge] { first } else { last };
        [
            A::add(a, of(0), values[0], common),
            A::add(b, of(1), values[1], common),
            A::add(c, of(2), values[2], common),
            A::add(d, of(3), values[3], common),
        ]
    }

    #[inline(always)]
    fn select(which: [bool; 4], a: Self::Sums, b: Self::Sums) -> Self::Sums {
        select(which, a, b)
    }

    #[inline(always)]
    unsafe fn store(sums: Self::Sums, scale: f32, lanes_log2: u32, results: Shared) {
        let mut sums = sums.map(A::finish);
        // SAFETY: the conditions around shuffles are the same for all lanes.
        unsafe {
            if lanes_log2 >= 1 {
                let odd = lane_id() & 1 != 0;
                sums[0] = exchange(odd, sums[0], sums[1], 1);
                sums[1] = exchange(odd, sums[2], sums[3], 1);
            }
            if lanes_log2 >= 2 {
                sums[0] = exchange(lane_id() & 2 != 0, sums[0], sums[1], 2);
            }
            let mut distance = 4;
            while distance < 1 << lanes_log2 {
                sums[0] += shuffle_xor(sums[0], distance);
                distance *= 2;
            }
        }
        let sums = sums.map(|sum| sum * scale);
        // The edge whose sum the lane has, or the first of them.
        let edge = lane_id() & 3 & ((1 << lanes_log2) - 1);
        // SAFETY: the caller's promise; each word is stored by one lane.
        unsafe {
            if lanes_log2 == 0 {
                results.store_u32x4(sums.map(f32::to_bits));
            } else if lanes_log2 == 1 {
                results.offset(edge * 4).store_f32(sums[0]);
                results.offset(edge * 4 + 8).store_f32(sums[1]);
            } else if lane_id() & ((1 << lanes_log2) - 1) < 4 {
                results.offset(edge * 4).store_f32(sums[0]);
            }
        }
    }
}

/// One of two sums of this lane and of that `distance` away: the first, or the `second`.
///
/// # Safety
/// All lanes of the warp make this call together.
#[inline(always)]
unsafe fn exchange(second: bool, a: f32, b: f32, distance: u32) -> f32 {
    let (own, given) = if second { (b, a) } else { (a, b) };
    // SAFETY: the caller's promise.
    own + unsafe { shuffle_xor(given, distance) }
}

/// The reduction on tensor cores. What lanes loaded are the fragments of a product as they are: each four lanes have one
/// column of B, 32 features of a column of the graph, and two rows of A, 32 features of the row of their first edge and,
/// eight rows below, of that of their last. The order of the features within a sum does not matter as long as both have
/// the same. Of each 16 × 8 tile of sums only the diagonals of its two halves are read: the first row's sums, and the last
/// one's. The rest is computed for nothing, and costs nothing: the tensor cores are idle otherwise, while the lanes are
/// spared all conversions, products and shuffles.
///
/// Sub-warps have four lanes, or eight, whose two halves are added at the end: then a load reads 128 bytes of each row, a
/// whole line. What is not on a diagonal may be infinite or NaN; it is in no sum that is read.
pub struct TensorCores<A>(PhantomData<A>);

impl<P: Product> Reduction<Packed<P, 4>> for TensorCores<InFloat> {
    /// Two fragments of A, of 16 features each: registers 0 and 2 are the first row's, 1 and 3 the last one's.
    type Rows = [FragmentA; 2];
    /// For each edge the element of its tile that is on the diagonal, if one of the lane's is.
    type Sums = [f32; 4];
    type Common = ();

    #[inline(always)]
    unsafe fn common(_: Global<<Packed<P, 4> as Vector>::Bits>, _: f32) {}

    #[inline(always)]
    fn none() -> Self::Rows {
        [[0; 4]; 2]
    }

    #[inline(always)]
    fn set_first(rows: &mut Self::Rows, features: Packed<P, 4>) {
        [rows[0][0], rows[0][2], rows[1][0], rows[1][2]] = placed(features);
    }

    #[inline(always)]
    fn set_last(rows: &mut Self::Rows, features: Packed<P, 4>) {
        [rows[0][1], rows[0][3], rows[1][1], rows[1][3]] = placed(features);
    }

    #[inline(always)]
    fn last_is_first(rows: &mut Self::Rows) {
        let [a, b] = *rows;
        *rows = [[a[1], a[1], a[3], a[3]], [b[1], b[1], b[3], b[3]]];
    }

    #[inline(always)]
    fn zero() -> [f32; 4] {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn add(
        [a, b, c, d]: [f32; 4],
        rows: Self::Rows,
        values: [Packed<P, 4>; 4],
        of_first: [bool; 4],
        (): (),
    ) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                diagonal(a, rows, values[0], of_first[0]),
                diagonal(b, rows, values[1], of_first[1]),
                diagonal(c, rows, values[2], of_first[2]),
                diagonal(d, rows, values[3], of_first[3]),
            ]
        }
    }

    #[inline(always)]
    fn select(which: [bool; 4], a: Self::Sums, b: Self::Sums) -> Self::Sums {
        select(which, a, b)
    }

    #[inline(always)]
    unsafe fn store(sums: Self::Sums, scale: f32, lanes_log2: u32, results: Shared) {
        let row = lane_id() / 4;
        let on_diagonal = row / 2 == lane_id() % 4;
        let mut sums = sums;
        let mut stores = on_diagonal;
        if lanes_log2 > 2 {
            // The other half of the features is one row further on, whose lane on the diagonal is four away.
            // SAFETY: the caller's promise; the condition is the same for all lanes.
            sums = sums.map(|sum| sum + unsafe { shuffle_xor(sum, 4) });
            stores = on_diagonal && row.is_multiple_of(2);
        }
        if stores {
            // SAFETY: the caller's promise; this is the one lane of the sub-warp that stores.
            unsafe { results.store_u32x4(sums.map(|sum| (sum * scale).to_bits())) };
        }
    }
}

const _: () = assert!(WARP == 32, "eight rows of four lanes");

/// For each edge one of two.
#[inline(always)]
fn select<T: Copy>(which: [bool; 4], a: [T; 4], b: [T; 4]) -> [T; 4] {
    [
        if which[0] { a[0] } else { b[0] },
        if which[1] { a[1] } else { b[1] },
        if which[2] { a[2] } else { b[2] },
        if which[3] { a[3] } else { b[3] },
    ]
}

/// The words of a load, in registers of their own. The four of a load are neighbours and those of a fragment are others:
/// ptxas would keep the load's and move them to a fragment before each product.
#[inline(always)]
fn placed<P: Product>(features: Packed<P, 4>) -> [u32; 4] {
    // Zero, since the grid has one CTA in z; but ptxas does not know.
    let zero = block_idx_z();
    features.to_bits().map(|word| word | zero)
}

/// The lane's element of the diagonal of the first rows, or of the last ones, with the products of eight features a lane.
///
/// # Safety
/// All lanes of the warp make this call together.
#[inline(always)]
unsafe fn diagonal<P: Product>(
    sum: f32,
    rows: [FragmentA; 2],
    values: Packed<P, 4>,
    of_first: bool,
) -> f32 {
    // A lane has two neighbouring columns of two rows of the tile. Only the one that is read counts; so the others may
    // begin with any number.
    let mut tile = [sum; 4];
    let values = values.to_bits();
    // SAFETY: the caller's promise.
    unsafe {
        P::multiply_add(&mut tile, rows[0], [values[0], values[1]]);
        P::multiply_add(&mut tile, rows[1], [values[2], values[3]]);
    }
    let [even, odd] = if of_first {
        [tile[0], tile[1]]
    } else {
        [tile[2], tile[3]]
    };
    if (lane_id() / 4).is_multiple_of(2) {
        even
    } else {
        odd
    }
}
