//! SDDMM: a number for each edge, made of what its row and its column have.
//!
//! - The dot product `e[h][k] = scale · Σ_f u[row_k, f] · v[col_k, f]`, `f` over the columns of head `h` (HalfGNN §4.2).
//! - Additive attention's score (Bahdanau et al., ICLR 2015; GATv2, Brody et al., ICLR 2022),
//!   `e[h][k] = Σ_f a[f] · LeakyReLU(u[row_k, f] + v[col_k, f])`, in float whatever the elements.
//! - Element by element, `e[h][k] = l[h][row_k] op r[h][col_k]` and the like ([`CombineParams`]).
//!
//! The edges lie in CSR order with both row and column ids. A warp takes tiles of [`TILE_EDGES`] edges, as many warps
//! apart as there are, and works on a tile by itself: no barrier of a CTA, no atomics. A tile is walked in steps. In a
//! step each sub-warp of `1 << lanes_log2` lanes has [`STEP_EDGES`] consecutive edges, so that the warp has
//! `STEP_EDGES · 32 >> lanes_log2` of them. Results are one plane a head, [`edge_plane_stride`] apart.
//!
//! [`edge_plane_stride`]: crate::attention::edge_plane_stride

use crate::format::table;
use crate::spmm::{Accumulate, Load};
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Edges that a warp caches in shared memory and walks before the next: four indices a lane are one 16-byte load.
pub const TILE_EDGES: u32 = 4 * WARP;

/// Edges whose features a sub-warp has in flight at once.
pub const STEP_EDGES: u32 = 4;

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = WARP * WARPS_PER_CTA;

param_struct! {
    /// Parameters of the dot product.
    ///
    /// Rows of `u` and `v`, which may be one matrix, are 16-byte aligned and a whole number of 16-byte vectors long, with
    /// zeros in their padding. With more than one head, each starts at a 16-byte vector.
    pub struct SddmmParams {
        /// Row of each edge, ascending; `edges` long, 16-byte aligned.
        pub rows: DevicePtr<u32>,
        /// Column of each edge, below the rows of `v`; `edges` long, 16-byte aligned.
        pub columns: DevicePtr<u32>,
        /// Features of the rows.
        pub u: DevicePtr<HalfBits>,
        /// Features of the columns.
        pub v: DevicePtr<HalfBits>,
        /// Output, a plane a head: [`HalfBits`], or floats for float entries and those of additive attention; 16-byte aligned. From the last edge to the
        /// end of a plane it becomes zero.
        pub output: DevicePtr<HalfBits>,
        /// Distance of two planes in elements, a multiple of 8.
        pub plane: u64,
        /// Number of edges.
        pub edges: u32,
        /// Distance of two rows of `u` in bytes, a multiple of 16.
        pub u_stride: u32,
        /// Distance of two rows of `v` in bytes, a multiple of 16.
        pub v_stride: u32,
        /// Loads of a head of a row: its length in elements, padding included, over the elements of one load. CTAs in y
        /// are the heads.
        pub head_loads: u32,
        /// Base-2 logarithm of the lanes of a sub-warp, at most 5; 2 or 3 where tensor cores reduce.
        pub lanes_log2: u32,
        /// Times that the sub-warp's lanes load before a row is read to its end: 1 unless the entry is wide.
        pub blocks: u32,
        /// Warps in x.
        pub warps: u32,
        /// Factor of every product.
        pub scale: f32,
        /// The vector `a` of additive attention, for the entries of that: laid out as a row of `u`, zeros in its padding.
        pub vector: DevicePtr<HalfBits>,
        /// Slope of its LeakyReLU below zero.
        pub slope: f32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of the operators on two operands an edge, each of which is a number of its row, of its column or its own.
    pub struct CombineParams {
        /// Row of each edge; `edges` long, 16-byte aligned.
        pub rows: DevicePtr<u32>,
        /// Column of each edge; `edges` long, 16-byte aligned.
        pub columns: DevicePtr<u32>,
        /// The first operand: planes of rows or of columns in float, or planes of edges, as the output is.
        pub left: DevicePtr<HalfBits>,
        /// The second, which [`COPY`] does not read.
        pub right: DevicePtr<HalfBits>,
        /// Output, a plane a head, 16-byte aligned. From the last edge to the end of a plane it becomes zero.
        pub output: DevicePtr<HalfBits>,
        /// Distance of two planes of edges in elements, a multiple of 8.
        pub plane: u64,
        /// Distance of two planes of the first operand in elements, where it is a number of a row or a column.
        pub left_plane: u32,
        /// Number of edges.
        pub edges: u32,
        /// [`COPY`], [`ADD`], [`SUBTRACT`], [`MULTIPLY`] or [`DIVIDE`].
        pub operator: u32,
        /// [`OF_ROW`], [`OF_COLUMN`] or [`OF_EDGE`].
        pub left_is: u32,
        /// The same of the second operand.
        pub right_is: u32,
        /// Distance of two planes of the second operand, as of the first.
        pub right_plane: u32,
    }
}

/// The first operand.
pub const COPY: u32 = 0;
/// Their sum.
pub const ADD: u32 = 1;
/// The first less the second.
pub const SUBTRACT: u32 = 2;
/// Their product.
pub const MULTIPLY: u32 = 3;
/// The first by the second.
pub const DIVIDE: u32 = 4;

/// An operand is a number of the edge's row.
pub const OF_ROW: u32 = 0;
/// An operand is a number of the edge's column.
pub const OF_COLUMN: u32 = 1;
/// An operand is a number of the edge.
pub const OF_EDGE: u32 = 2;

/// Edges of a CTA that combines operands: four a thread.
pub const COMBINE_EDGES_PER_CTA: u32 = 4 * THREADS_PER_CTA;

/// Tiles of `edges` edges.
#[inline]
pub const fn tiles(edges: u32) -> u32 {
    edges.div_ceil(TILE_EDGES)
}

/// Bytes of dynamic shared memory.
pub const SHARED_BYTES: u32 = WARPS_PER_CTA * shared::WARP_BYTES;

/// Layout of a warp's shared memory, as byte offsets.
pub mod shared {
    use super::TILE_EDGES;

    /// Bytes of an array: a word for each edge.
    pub const ARRAY: u32 = TILE_EDGES * 4;
    /// Row ids of a tile, then its column ids; and again for the next tile, which arrives meanwhile.
    pub const TILE: u32 = 2 * ARRAY;
    /// Results, in float.
    pub const RESULTS: u32 = 2 * TILE;
    /// All of it.
    pub const WARP_BYTES: u32 = RESULTS + ARRAY;
}

const _: () = {
    assert!(SHARED_BYTES <= 48 * 1024, "fits without opting in");
    assert!(shared::RESULTS.is_multiple_of(16) && shared::WARP_BYTES.is_multiple_of(16));
    // A tile is a whole number of steps, the largest of which is that of sub-warps of one lane.
    assert!(TILE_EDGES.is_multiple_of(STEP_EDGES * WARP));
};

/// How partial sums of lanes become the sum of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// By shuffles, a tree for four edges at a time: `log₂` of the lanes in rounds.
    Shuffles,
    /// By tensor cores: the sums are the diagonal of a product of the columns' features with the rows'.
    TensorCores,
}

/// Calls `$with! { entry, element, reduction, accumulate, wide; … }` with every SDDMM entry that is built.
///
/// - element: what one lane loads: `Half2`, `Half4`, `Half8`, `BFloat8` or `Float4`.
/// - reduction: `Shuffles` or `TensorCores`.
/// - accumulate, inside a lane: `InHalf` (half2 arithmetic) or `InFloat`; or `Additive`, which is no dot product but additive
///   attention's score, in float. Lanes are added up in float.
/// - wide: whether a row may have more loads than a sub-warp has lanes. Else the features of a row are kept in registers
///   while it lasts.
#[macro_export]
macro_rules! sddmm_entries {
    ($with:ident) => {
        $with! {
            sddmm_half8_tensor: Half8, TensorCores, InFloat, false;
            sddmm_half8_tensor_wide: Half8, TensorCores, InFloat, true;
            sddmm_half8_float: Half8, Shuffles, InFloat, false;
            sddmm_half8_float_wide: Half8, Shuffles, InFloat, true;
            sddmm_half8_half: Half8, Shuffles, InHalf, false;
            sddmm_half8_half_wide: Half8, Shuffles, InHalf, true;
            sddmm_half4_half: Half4, Shuffles, InHalf, false;
            sddmm_half4_half_wide: Half4, Shuffles, InHalf, true;
            sddmm_half2_half: Half2, Shuffles, InHalf, false;
            sddmm_half2_half_wide: Half2, Shuffles, InHalf, true;
            sddmm_half2_float: Half2, Shuffles, InFloat, false;
            sddmm_half2_float_wide: Half2, Shuffles, InFloat, true;
            sddmm_bfloat8_tensor: BFloat8, TensorCores, InFloat, false;
            sddmm_bfloat8_tensor_wide: BFloat8, TensorCores, InFloat, true;
            sddmm_bfloat8_float: BFloat8, Shuffles, InFloat, false;
            sddmm_bfloat8_float_wide: BFloat8, Shuffles, InFloat, true;
            sddmm_float4_float: Float4, Shuffles, InFloat, false;
            sddmm_float4_float_wide: Float4, Shuffles, InFloat, true;
            sddmm_half8_additive: Half8, Shuffles, Additive, false;
            sddmm_half8_additive_wide: Half8, Shuffles, Additive, true;
            sddmm_bfloat8_additive: BFloat8, Shuffles, Additive, false;
            sddmm_bfloat8_additive_wide: BFloat8, Shuffles, Additive, true;
            sddmm_float4_additive: Float4, Shuffles, Additive, false;
            sddmm_float4_additive_wide: Float4, Shuffles, Additive, true;
        }
    };
}

/// One built SDDMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SddmmEntry {
    /// The entry's name.
    pub name: &'static str,
    /// What one lane loads.
    pub load: Load,
    /// How lanes are added up.
    pub reduction: Reduction,
    /// What a lane adds up in.
    pub accumulate: Accumulate,
    /// Whether a row may have more loads than a sub-warp has lanes.
    pub wide: bool,
}

macro_rules! products {
    ($($entry:ident: $load:ident, $reduction:ident, $accumulate:ident, $wide:literal;)*) => {
        &[$(SddmmEntry {
            name: stringify!($entry),
            load: Load::$load,
            reduction: Reduction::$reduction,
            accumulate: Accumulate::$accumulate,
            wide: $wide,
        }),*]
    };
}

/// Every SDDMM.
pub const SDDMMS: &[SddmmEntry] = sddmm_entries!(products);

/// The SDDMM of these policies, if it is built.
#[inline]
pub fn sddmm(
    load: Load,
    reduction: Reduction,
    accumulate: Accumulate,
    wide: bool,
) -> Option<&'static SddmmEntry> {
    SDDMMS.iter().find(|entry| {
        (entry.load, entry.reduction, entry.accumulate, entry.wide)
            == (load, reduction, accumulate, wide)
    })
}

macro_rules! names {
    ($($entry:ident: $load:ident, $reduction:ident, $accumulate:ident, $wide:literal;)*) => {
        &[$(EntrySpec::new::<SddmmParams>(stringify!($entry))),*]
    };
}

/// Calls `$with!` with the entries that have no dot product: see [`crate::format`].
#[macro_export]
macro_rules! sddmm_combine_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// A number for each edge from two operands.
                sddmm_combine(CombineParams): F16 = sddmm_combine_f16, F32 = sddmm_combine_f32, BF16 = sddmm_combine_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[sddmm_entries!(names), sddmm_combine_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_at_the_ends_of_the_range() {
        assert_eq!(tiles(0), 0);
        assert_eq!(tiles(1), 1);
        assert_eq!(tiles(TILE_EDGES), 1);
        assert_eq!(tiles(TILE_EDGES + 1), 2);
        let last = (tiles(u32::MAX) - 1) as u64 * TILE_EDGES as u64;
        assert!(last < u32::MAX as u64 && u32::MAX as u64 <= last + TILE_EDGES as u64);
    }
}
