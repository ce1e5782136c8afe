//! SpMM: `y[i] = Σ_j w(i,j) · x[j]` over the edges of row `i`, scaled by a factor of the row.
//!
//! The edges lie in CSR order. Where rows start is told by a bit an edge and a list of the rows that have edges, which is
//! a sixteenth of the row ids. A CTA owns `1 << cta_edges_log2` consecutive edges, its warps equal parts of them, and a
//! sub-warp of `1 << lanes_log2` lanes an equal, consecutive share of the warp's. Two launches make one SpMM: the
//! edge-parallel kernel, which writes every row that lies inside one CTA, puts the rest into the staging buffer and
//! writes zeros to the rows without edges, and the follow-up kernel, which completes the rows that cross CTAs (HalfGNN
//! §4.3.2). Where a row may cross more than a chunk of CTAs, a third launch between them adds its parts chunk by chunk
//! ([`chunk_log2_of`]).
//!
//! Of a row of 5, 6, 9 or 10 loads more sub-warps fit a warp if their lanes are so many and no power of two ([`packed_lanes`]). They have shares that differ by four
//! edges, and the last lanes of a warp none.
//!
//! Or which row an edge is in is read from the row of each edge, as a COO in order of rows has it (GNNOne §4): then no starts,
//! lists or offsets are read. CTAs behind those that have edges look for the rows without any, or the output is zero before the launch.
//!
//! Or one launch does: in the vertex-parallel kernel a warp has a row, empty ones too, and a CTA a long one (§4.3.3).

use crate::attention::EdgeAttention;
use crate::{DevicePtr, EntrySpec, Format, HalfBits, WARP, param_struct};

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Edges that one warp walks, unless a launch says otherwise: at least 64, so that a lane loads half2 edge features
/// (HalfGNN §4.1.1), and 128 so that four indices a lane make one 16-byte load.
pub const EDGES_PER_WARP: u32 = 128;

/// Edges of a CTA, unless a launch says otherwise.
pub const EDGES_PER_CTA: u32 = EDGES_PER_WARP * WARPS_PER_CTA;

/// The fewest edges of a CTA, as a base-2 logarithm: a sub-warp has one step of the walk.
pub const CTA_EDGES_LOG2_MIN: u32 = 6;

/// The most edges of a CTA, as a base-2 logarithm.
pub const CTA_EDGES_LOG2_MAX: u32 = 10;

/// Threads of a CTA, in both kernels.
pub const THREADS_PER_CTA: u32 = WARP * WARPS_PER_CTA;

/// Rows of each of the CTAs without edges: of the list of those that have none, which it writes, or among which it looks for those.
pub const EMPTY_ROWS_PER_CTA: u32 = 128;

/// Staging slots of a CTA: the row that began before it and ends in it ([`STAGED_END`]), and the row that goes on after
/// it ([`STAGED_TAIL`]).
pub const STAGED_SLOTS: u32 = 2;
/// Slot of the row that began in an earlier CTA and ends in this one.
pub const STAGED_END: u32 = 0;
/// Slot of the row that is continued in the next CTA.
pub const STAGED_TAIL: u32 = 1;

/// The fewest CTAs of a chunk, as a base-2 logarithm: a warp asks at once which of them a row goes on from.
pub const CHUNK_LOG2_MIN: u32 = 5;
/// The most CTAs of a chunk, as a base-2 logarithm.
pub const CHUNK_LOG2_MAX: u32 = 8;
/// That of a launch without chunks: no row crosses two of that many CTAs.
pub const NO_CHUNKS: u32 = 31;

param_struct! {
    /// Parameters of all SpMM kernels.
    ///
    /// Rows of `x` and `y` are 16-byte aligned and a whole number of 16-byte vectors long. What lies between the end of
    /// a row and the next vector is padding, zero on input and written as zero.
    pub struct SpmmParams {
        /// Row of each edge, ascending, for the entries that take attention and those by row ids; `edges` long, 16-byte aligned.
        /// Those by row ids read neither offsets nor starts nor lists of rows.
        pub rows: DevicePtr<u32>,
        /// Column of each edge, below the rows of `x`; `edges` long, 16-byte aligned.
        pub columns: DevicePtr<u32>,
        /// First edge of each row, and `edges` at the end; `vertices + 1` long.
        pub offsets: DevicePtr<u64>,
        /// Weight of each edge, for the entries that take edge features (SpMMve): [`HalfBits`], or floats for float
        /// entries and those that take floats of edges; a plane a head, 16-byte aligned.
        pub edge_weights: DevicePtr<HalfBits>,
        /// Factor of each column, for the entries that take one.
        pub column_scale: DevicePtr<f32>,
        /// Factor of each row, or null for 1.
        pub row_scale: DevicePtr<f32>,
        /// Input, one row a column of the matrix.
        pub x: DevicePtr<HalfBits>,
        /// Output, one row a row of the matrix.
        pub y: DevicePtr<HalfBits>,
        /// Second output, laid out as `y`, for the entries of two sums: of the edges of positive sign, or what the vector of
        /// additive attention has as its gradient from the edges of a row.
        pub y_positive: DevicePtr<HalfBits>,
        /// A number a row and head, for the entries whose edges have a term: the sum of the terms, a plane a head, each as long
        /// as [`SpmmParams::vertices`].
        pub term_sums: DevicePtr<f32>,
        /// A [record](crate::attention::RecordsParams) a vertex and head, for the same entries.
        pub records: DevicePtr<[f32; 4]>,
        /// Partial rows of CTAs: [`staging_floats`] long.
        pub staging: DevicePtr<f32>,
        /// Bit `k % 32` of the first number of word `k / 32` is set where edge `k` is the first of its row, and past the last
        /// edge; the second number counts the bits of the words before. A word for each 32 edges, and two of zeros more.
        pub starts: DevicePtr<[u32; 2]>,
        /// The rows that have edges, ascending, and two numbers more.
        pub filled_rows: DevicePtr<u32>,
        /// Rows without edges; `empty_count` long.
        pub empty_rows: DevicePtr<u32>,
        /// What is added to `y`, laid out as `y` but for its stride; read where [`SpmmParams::addend_factor`] is not 0. This and
        /// all others of the epilogue are for the entries that have one.
        pub addend: DevicePtr<HalfBits>,
        /// One float, or null for 0: what the addend's factor is more than once [`SpmmParams::addend_factor`].
        pub epsilon: DevicePtr<f32>,
        /// Another factor of each row of the addend, or null for 1.
        pub addend_scale: DevicePtr<f32>,
        /// A number to add to each column, padded with zeros to a whole number of 16-byte vectors, or null.
        pub bias: DevicePtr<f32>,
        /// A matrix laid out as `y` but for its stride, or null: where it holds no positive number `y` becomes zero, so that it is the
        /// gradient of what a ReLU made of it. Of the vertex-parallel entries alone.
        pub positive: DevicePtr<HalfBits>,
        /// Number of edges.
        pub edges: u32,
        /// Number of rows without edges, where they are listed.
        pub empty_count: u32,
        /// Distance of two rows of `x` in 16-byte vectors.
        pub x_stride: u32,
        /// Distance of two rows of `y` in 16-byte vectors.
        pub y_stride: u32,
        /// Loads of a row: its length in elements, padding included, over the elements of one load.
        pub feature_loads: u32,
        /// Feature length: elements of a row, padding not counted.
        pub features: u32,
        /// Base-2 logarithm of the lanes of a sub-warp, at most 5.
        pub lanes_log2: u32,
        /// CTAs in x that have edges. Those after them write zeros to rows without edges, for the entries by row ids to those that they find among
        /// all rows.
        pub ctas: u32,
        /// Base-2 logarithm of the edges of a CTA, from [`cta_edges_log2_min`] to [`CTA_EDGES_LOG2_MAX`].
        pub cta_edges_log2: u32,
        /// Floats of a staged row: [`staged_row`].
        pub staged_row: u32,
        /// Rows of the matrix.
        pub vertices: u32,
        /// Distance of two rows of the addend in 16-byte vectors.
        pub addend_stride: u32,
        /// Distance of two rows of [`SpmmParams::positive`] in 16-byte vectors.
        pub positive_stride: u32,
        /// Lanes of a sub-warp of the packed entries.
        pub lanes: u32,
        /// Factor of the addend; where it is 0 none is read.
        pub addend_factor: f32,
        /// Not 0 where negative results become zero. A NaN stays one.
        pub relu: u32,
        /// Factor of the whole product, such as GIN's λ.
        pub scale: f32,
        /// Loads of a head: [`SpmmParams::feature_loads`] over the heads, of which the grid has one in z.
        pub head_loads: u32,
        /// Sub-warps of a warp of the packed entries.
        pub sub_warps: u32,
        /// 2¹⁶ over [`SpmmParams::lanes`], rounded up, for the packed entries.
        pub per_lanes: u32,
        /// 2¹⁶ over [`SpmmParams::sub_warps`], rounded up, for the packed entries.
        pub per_sub_warps: u32,
        /// Base-2 logarithm of the CTAs of a chunk, or [`NO_CHUNKS`]. Of a row that crosses the bounds of two chunks the
        /// [tail](STAGED_TAIL) of its last CTA in a chunk has the sum of its tails there, once the chunks are added.
        pub chunk_log2: u32,
        /// Floats of a staged row that are written: [`staged_floats`].
        pub staged_floats: u32,
        /// Zero.
        pub reserved: u32,
        /// Distance of two planes of edge weights in elements ([`crate::attention::edge_plane_stride`]).
        pub edge_plane_stride: u64,
        /// Where weights come from, for the entries that take attention.
        pub attention: EdgeAttention,
        /// Scale of each column of an 8-bit `x`, for the entries that take one; as many as a row of `x` has codes.
        pub scales: DevicePtr<f32>,
        /// What rows are added to before the LeakyReLU of additive attention, for the entries of its gradient: a row a row of
        /// the matrix, laid out as `x`.
        pub row_features: DevicePtr<HalfBits>,
        /// The vector of additive attention, for the same entries: laid out as a row of `x`, zeros in its padding.
        pub vector: DevicePtr<HalfBits>,
    }
}

/// CTAs that walk `edges` edges.
#[inline]
pub const fn ctas(edges: u32, cta_edges_log2: u32) -> u32 {
    edges.div_ceil(1 << cta_edges_log2)
}

/// CTAs of the vertex-parallel kernel for `vertices` rows: a warp a row.
#[inline]
pub const fn vertex_ctas(vertices: u32) -> u32 {
    vertices.div_ceil(WARPS_PER_CTA)
}

/// Rows of a warp of the vertex-parallel kernel where rows are many and short, so that what a warp waits for it waits for once in four
/// rows. A grid of [`vertex_ctas_of_many`] says so: it has no CTA for each four rows.
pub const VERTEX_ROWS: u32 = 4;

/// CTAs of the vertex-parallel kernel for `vertices` rows, [`VERTEX_ROWS`] of them a warp.
#[inline]
pub const fn vertex_ctas_of_many(vertices: u32) -> u32 {
    vertices.div_ceil(WARPS_PER_CTA * VERTEX_ROWS)
}

/// Edges that a sub-warp of the vertex-parallel kernel has in flight at once.
pub const VERTEX_IN_FLIGHT: u32 = 4;

/// Edges above which all warps of a vertex-parallel CTA share a row: it has three groups of 32 or more then, for four warps.
pub const VERTEX_LONG_ROW: u32 = 2 * WARP;

/// Layout of the shared memory of the vertex-parallel kernel: what each warp has of each long row of its CTA.
pub mod vertex_shared {
    use super::{WARP, WARPS_PER_CTA};

    /// Bytes, for `floats` floats of a lane.
    #[inline]
    pub const fn bytes(floats: u32) -> u32 {
        WARPS_PER_CTA * WARPS_PER_CTA * floats * WARP * 4
    }

    /// Byte offset of float `i` of lane `lane` of warp `warp`, of row `row` of the CTA: consecutive lanes
    /// use consecutive banks.
    #[inline]
    pub const fn part(floats: u32, row: u32, warp: u32, i: u32, lane: u32) -> u32 {
        (((row * WARPS_PER_CTA + warp) * floats + i) * WARP + lane) * 4
    }
}

/// The fewest edges of a CTA, as a base-2 logarithm, for sub-warps of `1 << lanes_log2` lanes: each has a multiple of four.
#[inline]
pub const fn cta_edges_log2_min(lanes_log2: u32) -> u32 {
    let four_each = (WARPS_PER_CTA * WARP * 4).ilog2() - lanes_log2;
    if four_each > CTA_EDGES_LOG2_MIN {
        four_each
    } else {
        CTA_EDGES_LOG2_MIN
    }
}

/// Lanes of a sub-warp, as a base-2 logarithm: enough for `loads` loads a row, at most a warp.
#[inline]
pub const fn lanes_log2(loads: u32) -> u32 {
    if loads >= WARP {
        WARP.ilog2()
    } else {
        loads.next_power_of_two().ilog2()
    }
}

/// Lanes of a sub-warp for `loads` loads a row, where more sub-warps fit a warp if their lanes are no power of two: those of the packed entries. Of three loads, ten
/// sub-warps and not eight take 2 to 4 % more time.
#[inline]
pub const fn packed_lanes(loads: u32) -> Option<u32> {
    if loads > 3 && loads < WARP && WARP / loads > WARP >> lanes_log2(loads) {
        Some(loads)
    } else {
        None
    }
}

/// 2¹⁶ over a number, rounded up: a product with it, moved by 16 bits, is a quotient of a number below 2⁸.
#[inline]
pub const fn reciprocal(of: u32) -> u32 {
    (1u32 << 16).div_ceil(of)
}

/// The fewest edges of a CTA of the packed entries, as a base-2 logarithm: each sub-warp of a warp has a step of the walk.
pub const PACKED_CTA_EDGES_LOG2_MIN: u32 = 8;

/// Passes over the edges, each for one tile of the features: CTAs in y.
#[inline]
pub const fn feature_tiles(loads: u32) -> u32 {
    loads.div_ceil(1 << lanes_log2(loads))
}

/// Floats of a staged row: `features` of each output, padding included, and a number a head where edges have a term. Whole
/// 16-byte vectors.
#[inline]
pub const fn staged_row(features: u32, sums: Sums, heads: u32) -> u32 {
    match sums {
        Sums::One | Sums::Quantized => features,
        Sums::Both | Sums::QuantizedBoth => 2 * features + heads.next_multiple_of(4),
    }
}

/// Floats of [`staged_row`] that are written: numbers of heads are padded there.
#[inline]
pub const fn staged_floats(features: u32, sums: Sums, heads: u32) -> u32 {
    match sums {
        Sums::One | Sums::Quantized => features,
        Sums::Both | Sums::QuantizedBoth => 2 * features + heads,
    }
}

/// Base-2 logarithm of the CTAs of a chunk, of `ctas` CTAs: a row of all edges has some as many chunks as a chunk has CTAs.
#[inline]
pub const fn chunk_log2(ctas: u32) -> u32 {
    let half = match ctas.checked_ilog2() {
        Some(log2) => log2 / 2,
        None => 0,
    };
    if half < CHUNK_LOG2_MIN {
        CHUNK_LOG2_MIN
    } else if half > CHUNK_LOG2_MAX {
        CHUNK_LOG2_MAX
    } else {
        half
    }
}

/// [`chunk_log2`] where a row of `longest` edges may cross the bounds of two chunks, or [`NO_CHUNKS`]. It has the most
/// parts where its first edge is the last of a CTA.
#[inline]
pub const fn chunk_log2_of(longest: u32, cta_edges_log2: u32, ctas: u32) -> u32 {
    let parts = (longest as u64 + (1 << cta_edges_log2)).saturating_sub(2) >> cta_edges_log2;
    let chunk_log2 = chunk_log2(ctas);
    if longest > 0 && parts > 1 << chunk_log2 {
        chunk_log2
    } else {
        NO_CHUNKS
    }
}

/// CTAs in x of the kernel that adds chunks: one a chunk.
#[inline]
pub const fn chunk_ctas(ctas: u32, chunk_log2: u32) -> u32 {
    ctas.div_ceil(1 << chunk_log2)
}

/// CTAs in y of the kernel that adds chunks: a lane a float.
#[inline]
pub const fn chunk_tiles(staged_floats: u32) -> u32 {
    staged_floats.div_ceil(WARP)
}

/// Bytes of dynamic shared memory of the kernel that adds chunks: a float a thread.
pub const CHUNK_SHARED_BYTES: u32 = THREADS_PER_CTA * 4;

/// Floats of the staging buffer for `ctas` CTAs and staged rows of `staged_row` floats.
#[inline]
pub const fn staging_floats(ctas: u32, staged_row: u32) -> u64 {
    ctas as u64 * STAGED_SLOTS as u64 * staged_row as u64
}

/// Index of the first float that CTA `cta` stages in `slot`.
#[inline]
pub const fn staging_index(cta: u32, slot: u32, staged_row: u32) -> u64 {
    (cta as u64 * STAGED_SLOTS as u64 + slot as u64) * staged_row as u64
}

/// CTAs of the follow-up kernel: a sub-warp for each CTA of the first kernel but the first.
#[inline]
pub const fn follow_up_ctas(ctas: u32, lanes_log2: u32) -> u32 {
    ctas.saturating_sub(1)
        .div_ceil(THREADS_PER_CTA >> lanes_log2)
}

/// Bytes of dynamic shared memory of the edge-parallel kernel, for [`Sums::floats`] of a lane and so many words of an edge.
#[inline]
pub const fn shared_bytes(floats: u32, cta_edges_log2: u32, words: u32) -> u32 {
    shared::of_edges(floats, cta_edges_log2, words)
}

/// Bytes of one merge area: the partial row of every lane of the CTA, in float.
#[inline]
pub const fn merge_bytes(floats: u32) -> u32 {
    THREADS_PER_CTA * floats * 4
}

/// Layout of the shared memory of the edge-parallel kernel, as byte offsets.
pub mod shared {
    use super::{THREADS_PER_CTA, merge_bytes};

    /// Flags of each sub-warp, of which there are at most as many as threads.
    pub const FLAGS: u32 = 0;
    /// Row that began before each sub-warp's share and ended in it.
    pub const HEAD_ROWS: u32 = FLAGS + THREADS_PER_CTA * 4;
    /// Factor of that row.
    pub const HEAD_SCALES: u32 = HEAD_ROWS + THREADS_PER_CTA * 4;
    /// The merge areas: partial rows that end in a sub-warp's share, then those that go on.
    pub const MERGE: u32 = HEAD_SCALES + THREADS_PER_CTA * 4;

    /// The word of the CTA's edges in [`of_edges`] that is the column id.
    pub const COLUMNS: u32 = 0;
    /// That which is the weight: mirrored half2, or float.
    pub const WEIGHTS: u32 = 1;
    /// That which is the term, a float.
    pub const TERMS: u32 = 2;

    /// Where word `word` of the CTA's edges begins, for `floats` floats of a lane in a merge area.
    #[inline]
    pub const fn of_edges(floats: u32, cta_edges_log2: u32, word: u32) -> u32 {
        MERGE + merge_bytes(floats) * 2 + (word << (cta_edges_log2 + 2))
    }
}

/// Calls `$with! { entry, element, weight, scale, accumulate; … }` with every edge-parallel entry that is built: the one
/// list from which the kernels crate makes the entries and the host its table.
///
/// - element: what one lane loads: `Half2`, `Half4`, `Half8`, `BFloat8` or `Float4`.
/// - weight: `Ones` (SpMMv), `EdgeFeatures` (SpMMve), `EdgeFloats` (one an edge and head, in float), `ColumnScale`, `Attention`, or with a sign that says whether the sum
///   of scores is positive `SignedAttention` and, with a term beside the weight, `AttentionGradient`; and these three with a
///   bias an edge, `BiasedAttention`, `SignedBiasedAttention` and `BiasedAttentionGradient`; and `StoredAttention`, as `SignedAttention` of
///   sums of scores that are stored.
/// - scale: `Discretized` (each batch, then merged in float), `Finished` (likewise, with an epilogue), `Atomic` (each
///   batch, then added to the output by atomics),
///   `PostReduction` (once a row, after merging in half), `PreReduction` (each product), or `Maximum` (no sums, and the
///   factor once a row).
/// - accumulate, inside a batch: `InHalf` (half2 arithmetic), `InFloat`, `Largest` for maxima, or `BothInFloat` for two sums,
///   of all edges and of those of positive sign. Of an `x` of 8-bit codes ([`crate::quantize`]), of which a lane loads as many as
///   the element has in 16 bytes: `InInteger` (int8, exactly), `Int8InFloat` and `E4m3InFloat`, and for two sums `BothOfInt8` and
///   `BothOfE4m3`. For the gradient of additive
///   attention `Additive`, and `BothAdditive` with that of its vector.
#[macro_export]
macro_rules! spmm_entries {
    ($with:ident) => {
        $with! {
            spmm_v_half8_discretized_half: Half8, Ones, Discretized, InHalf;
            spmm_v_half8_discretized_float: Half8, Ones, Discretized, InFloat;
            spmm_ve_half8_discretized_half: Half8, EdgeFeatures, Discretized, InHalf;
            spmm_ve_half8_discretized_float: Half8, EdgeFeatures, Discretized, InFloat;
            spmm_cs_half8_discretized_float: Half8, ColumnScale, Discretized, InFloat;
            spmm_at_half8_discretized_float: Half8, Attention, Discretized, InFloat;
            spmm_at_half8_both: Half8, SignedAttention, Discretized, BothInFloat;
            spmm_as_half8_both: Half8, StoredAttention, Discretized, BothInFloat;
            spmm_ag_half8_both: Half8, AttentionGradient, Discretized, BothInFloat;
            spmm_ab_half8_discretized_float: Half8, BiasedAttention, Discretized, InFloat;
            spmm_ab_half8_both: Half8, SignedBiasedAttention, Discretized, BothInFloat;
            spmm_abg_half8_both: Half8, BiasedAttentionGradient, Discretized, BothInFloat;
            spmm_ad_half8: Half8, EdgeFloats, Discretized, Additive;
            spmm_ad_half8_both: Half8, EdgeFloats, Discretized, BothAdditive;
            spmm_ad_float4: Float4, EdgeFloats, Discretized, Additive;
            spmm_ad_float4_both: Float4, EdgeFloats, Discretized, BothAdditive;
            spmm_ad_bfloat8: BFloat8, EdgeFloats, Discretized, Additive;
            spmm_ad_bfloat8_both: BFloat8, EdgeFloats, Discretized, BothAdditive;
            spmm_v_half8_finished_float: Half8, Ones, Finished, InFloat;
            spmm_cs_half8_finished_float: Half8, ColumnScale, Finished, InFloat;
            spmm_v_half8_post_half: Half8, Ones, PostReduction, InHalf;
            spmm_v_half8_pre_half: Half8, Ones, PreReduction, InHalf;
            spmm_ve_half8_post_half: Half8, EdgeFeatures, PostReduction, InHalf;
            spmm_v_half4_discretized_half: Half4, Ones, Discretized, InHalf;
            spmm_v_half2_discretized_half: Half2, Ones, Discretized, InHalf;
            spmm_v_half8_atomic_half: Half8, Ones, Atomic, InHalf;
            spmm_v_half8_atomic_float: Half8, Ones, Atomic, InFloat;
            spmm_v_half8_max: Half8, Ones, Maximum, Largest;
            spmm_ve_half8_max: Half8, EdgeFeatures, Maximum, Largest;
            spmm_v_float4_atomic_float: Float4, Ones, Atomic, InFloat;
            spmm_v_float4_max: Float4, Ones, Maximum, Largest;
            spmm_ve_float4_max: Float4, EdgeFeatures, Maximum, Largest;
            spmm_v_float4_discretized_float: Float4, Ones, Discretized, InFloat;
            spmm_ve_float4_discretized_float: Float4, EdgeFeatures, Discretized, InFloat;
            spmm_cs_float4_discretized_float: Float4, ColumnScale, Discretized, InFloat;
            spmm_at_float4_discretized_float: Float4, Attention, Discretized, InFloat;
            spmm_at_float4_both: Float4, SignedAttention, Discretized, BothInFloat;
            spmm_as_float4_both: Float4, StoredAttention, Discretized, BothInFloat;
            spmm_ag_float4_both: Float4, AttentionGradient, Discretized, BothInFloat;
            spmm_ab_float4_discretized_float: Float4, BiasedAttention, Discretized, InFloat;
            spmm_ab_float4_both: Float4, SignedBiasedAttention, Discretized, BothInFloat;
            spmm_abg_float4_both: Float4, BiasedAttentionGradient, Discretized, BothInFloat;
            spmm_v_float4_finished_float: Float4, Ones, Finished, InFloat;
            spmm_cs_float4_finished_float: Float4, ColumnScale, Finished, InFloat;
            spmm_v_bfloat8_discretized_float: BFloat8, Ones, Discretized, InFloat;
            spmm_ve_bfloat8_discretized_float: BFloat8, EdgeFeatures, Discretized, InFloat;
            spmm_cs_bfloat8_discretized_float: BFloat8, ColumnScale, Discretized, InFloat;
            spmm_at_bfloat8_discretized_float: BFloat8, Attention, Discretized, InFloat;
            spmm_at_bfloat8_both: BFloat8, SignedAttention, Discretized, BothInFloat;
            spmm_as_bfloat8_both: BFloat8, StoredAttention, Discretized, BothInFloat;
            spmm_ag_bfloat8_both: BFloat8, AttentionGradient, Discretized, BothInFloat;
            spmm_ab_bfloat8_discretized_float: BFloat8, BiasedAttention, Discretized, InFloat;
            spmm_ab_bfloat8_both: BFloat8, SignedBiasedAttention, Discretized, BothInFloat;
            spmm_abg_bfloat8_both: BFloat8, BiasedAttentionGradient, Discretized, BothInFloat;
            spmm_v_bfloat8_finished_float: BFloat8, Ones, Finished, InFloat;
            spmm_cs_bfloat8_finished_float: BFloat8, ColumnScale, Finished, InFloat;
            spmm_v_bfloat8_max: BFloat8, Ones, Maximum, Largest;
            spmm_ve_bfloat8_max: BFloat8, EdgeFeatures, Maximum, Largest;
            spmm_v_half8_int8: Half8, Ones, Discretized, InInteger;
            spmm_v_half8_int8_finished: Half8, Ones, Finished, InInteger;
            spmm_ve_half8_int8: Half8, EdgeFeatures, Discretized, Int8InFloat;
            spmm_at_half8_int8: Half8, Attention, Discretized, Int8InFloat;
            spmm_v_half8_e4m3: Half8, Ones, Discretized, E4m3InFloat;
            spmm_v_half8_e4m3_finished: Half8, Ones, Finished, E4m3InFloat;
            spmm_ve_half8_e4m3: Half8, EdgeFeatures, Discretized, E4m3InFloat;
            spmm_at_half8_e4m3: Half8, Attention, Discretized, E4m3InFloat;
            spmm_at_half8_int8_both: Half8, SignedAttention, Discretized, BothOfInt8;
            spmm_as_half8_int8_both: Half8, StoredAttention, Discretized, BothOfInt8;
            spmm_ag_half8_int8_both: Half8, AttentionGradient, Discretized, BothOfInt8;
            spmm_ab_half8_int8_both: Half8, SignedBiasedAttention, Discretized, BothOfInt8;
            spmm_abg_half8_int8_both: Half8, BiasedAttentionGradient, Discretized, BothOfInt8;
            spmm_at_half8_e4m3_both: Half8, SignedAttention, Discretized, BothOfE4m3;
            spmm_as_half8_e4m3_both: Half8, StoredAttention, Discretized, BothOfE4m3;
            spmm_ag_half8_e4m3_both: Half8, AttentionGradient, Discretized, BothOfE4m3;
            spmm_ab_half8_e4m3_both: Half8, SignedBiasedAttention, Discretized, BothOfE4m3;
            spmm_abg_half8_e4m3_both: Half8, BiasedAttentionGradient, Discretized, BothOfE4m3;
            spmm_at_bfloat8_int8_both: BFloat8, SignedAttention, Discretized, BothOfInt8;
            spmm_as_bfloat8_int8_both: BFloat8, StoredAttention, Discretized, BothOfInt8;
            spmm_ag_bfloat8_int8_both: BFloat8, AttentionGradient, Discretized, BothOfInt8;
            spmm_ab_bfloat8_int8_both: BFloat8, SignedBiasedAttention, Discretized, BothOfInt8;
            spmm_abg_bfloat8_int8_both: BFloat8, BiasedAttentionGradient, Discretized, BothOfInt8;
            spmm_at_bfloat8_e4m3_both: BFloat8, SignedAttention, Discretized, BothOfE4m3;
            spmm_as_bfloat8_e4m3_both: BFloat8, StoredAttention, Discretized, BothOfE4m3;
            spmm_ag_bfloat8_e4m3_both: BFloat8, AttentionGradient, Discretized, BothOfE4m3;
            spmm_ab_bfloat8_e4m3_both: BFloat8, SignedBiasedAttention, Discretized, BothOfE4m3;
            spmm_abg_bfloat8_e4m3_both: BFloat8, BiasedAttentionGradient, Discretized, BothOfE4m3;
            spmm_v_bfloat8_int8: BFloat8, Ones, Discretized, InInteger;
            spmm_v_bfloat8_int8_finished: BFloat8, Ones, Finished, InInteger;
            spmm_ve_bfloat8_int8: BFloat8, EdgeFeatures, Discretized, Int8InFloat;
            spmm_at_bfloat8_int8: BFloat8, Attention, Discretized, Int8InFloat;
            spmm_v_bfloat8_e4m3: BFloat8, Ones, Discretized, E4m3InFloat;
            spmm_v_bfloat8_e4m3_finished: BFloat8, Ones, Finished, E4m3InFloat;
            spmm_ve_bfloat8_e4m3: BFloat8, EdgeFeatures, Discretized, E4m3InFloat;
            spmm_at_bfloat8_e4m3: BFloat8, Attention, Discretized, E4m3InFloat;
        }
    };
}

/// [`spmm_entries!`] for the entries whose sub-warps are as many lanes as a row has loads ([`packed_lanes`](crate::spmm::packed_lanes)).
#[macro_export]
macro_rules! spmm_packed_entries {
    ($with:ident) => {
        $with! {
            spmm_packed_v_half8_discretized_half: Half8, Ones, Discretized, InHalf;
            spmm_packed_v_half8_discretized_float: Half8, Ones, Discretized, InFloat;
            spmm_packed_v_half8_finished_float: Half8, Ones, Finished, InFloat;
            spmm_packed_v_bfloat8_discretized_float: BFloat8, Ones, Discretized, InFloat;
            spmm_packed_v_bfloat8_finished_float: BFloat8, Ones, Finished, InFloat;
            spmm_packed_v_float4_discretized_float: Float4, Ones, Discretized, InFloat;
            spmm_packed_v_float4_finished_float: Float4, Ones, Finished, InFloat;
        }
    };
}

/// [`spmm_entries!`] for the vertex-parallel entries.
#[macro_export]
macro_rules! spmm_vertex_entries {
    ($with:ident) => {
        $with! {
            spmm_vertex_v_half8_discretized_half: Half8, Ones, Discretized, InHalf;
            spmm_vertex_v_half8_discretized_float: Half8, Ones, Discretized, InFloat;
            spmm_vertex_v_half2_discretized_half: Half2, Ones, Discretized, InHalf;
            spmm_vertex_v_half2_discretized_float: Half2, Ones, Discretized, InFloat;
            spmm_vertex_v_half8_finished_float: Half8, Ones, Finished, InFloat;
            spmm_vertex_v_half8_max: Half8, Ones, Maximum, Largest;
            spmm_vertex_v_float4_discretized_float: Float4, Ones, Discretized, InFloat;
            spmm_vertex_v_float4_finished_float: Float4, Ones, Finished, InFloat;
            spmm_vertex_v_float4_max: Float4, Ones, Maximum, Largest;
            spmm_vertex_ve_half8_discretized_half: Half8, EdgeFeatures, Discretized, InHalf;
            spmm_vertex_ve_half8_discretized_float: Half8, EdgeFeatures, Discretized, InFloat;
            spmm_vertex_ve_half2_discretized_half: Half2, EdgeFeatures, Discretized, InHalf;
            spmm_vertex_ve_float4_discretized_float: Float4, EdgeFeatures, Discretized, InFloat;
            spmm_vertex_ve_half8_max: Half8, EdgeFeatures, Maximum, Largest;
            spmm_vertex_ve_float4_max: Float4, EdgeFeatures, Maximum, Largest;
            spmm_vertex_cs_half8_discretized_float: Half8, ColumnScale, Discretized, InFloat;
            spmm_vertex_cs_half8_finished_float: Half8, ColumnScale, Finished, InFloat;
            spmm_vertex_cs_float4_finished_float: Float4, ColumnScale, Finished, InFloat;
            spmm_vertex_cs_float4_discretized_float: Float4, ColumnScale, Discretized, InFloat;
            spmm_vertex_v_bfloat8_discretized_float: BFloat8, Ones, Discretized, InFloat;
            spmm_vertex_v_bfloat8_finished_float: BFloat8, Ones, Finished, InFloat;
            spmm_vertex_v_bfloat8_max: BFloat8, Ones, Maximum, Largest;
            spmm_vertex_ve_bfloat8_discretized_float: BFloat8, EdgeFeatures, Discretized, InFloat;
            spmm_vertex_ve_bfloat8_max: BFloat8, EdgeFeatures, Maximum, Largest;
            spmm_vertex_cs_bfloat8_discretized_float: BFloat8, ColumnScale, Discretized, InFloat;
            spmm_vertex_cs_bfloat8_finished_float: BFloat8, ColumnScale, Finished, InFloat;
            spmm_vertex_v_half8_int8: Half8, Ones, Discretized, InInteger;
            spmm_vertex_v_half8_int8_finished: Half8, Ones, Finished, InInteger;
            spmm_vertex_v_half8_e4m3: Half8, Ones, Discretized, E4m3InFloat;
            spmm_vertex_v_half8_e4m3_finished: Half8, Ones, Finished, E4m3InFloat;
            spmm_vertex_v_bfloat8_int8: BFloat8, Ones, Discretized, InInteger;
            spmm_vertex_v_bfloat8_int8_finished: BFloat8, Ones, Finished, InInteger;
            spmm_vertex_v_bfloat8_e4m3: BFloat8, Ones, Discretized, E4m3InFloat;
            spmm_vertex_v_bfloat8_e4m3_finished: BFloat8, Ones, Finished, E4m3InFloat;
        }
    };
}

/// [`spmm_entries!`] for the entries that know the row of an edge from its id.
#[macro_export]
macro_rules! spmm_coo_entries {
    ($with:ident) => {
        $with! {
            spmm_coo_v_half8: Half8, Ones, Discretized, InFloat;
            spmm_coo_ve_half8: Half8, EdgeFeatures, Discretized, InFloat;
            spmm_coo_cs_half8: Half8, ColumnScale, Discretized, InFloat;
            spmm_coo_v_float4: Float4, Ones, Discretized, InFloat;
            spmm_coo_ve_float4: Float4, EdgeFeatures, Discretized, InFloat;
            spmm_coo_cs_float4: Float4, ColumnScale, Discretized, InFloat;
            spmm_coo_v_float4_atomic: Float4, Ones, Atomic, InFloat;
            spmm_coo_v_bfloat8: BFloat8, Ones, Discretized, InFloat;
            spmm_coo_ve_bfloat8: BFloat8, EdgeFeatures, Discretized, InFloat;
            spmm_coo_cs_bfloat8: BFloat8, ColumnScale, Discretized, InFloat;
        }
    };
}

/// [`spmm_coo_entries!`] whose sub-warps take a warp's edges in turn.
#[macro_export]
macro_rules! spmm_coo_in_turn_entries {
    ($with:ident) => {
        $with! {
            spmm_coo_in_turn_v_float4_atomic: Float4, Ones, Atomic, InFloat;
        }
    };
}

/// `spmm_follow_up_entries!` after `spmm_coo_entries!`.
#[macro_export]
macro_rules! spmm_coo_follow_up_entries {
    ($with:ident) => {
        $with! {
            spmm_coo_follow_up_half8: Half8, Discretized, One;
            spmm_coo_follow_up_float4: Float4, Discretized, One;
            spmm_coo_follow_up_bfloat8: BFloat8, Discretized, One;
        }
    };
}

/// Calls `$with! { entry: scale; … }` with every entry that adds chunks of long rows.
#[macro_export]
macro_rules! spmm_chunk_entries {
    ($with:ident) => {
        $with! {
            spmm_chunks_sum: Discretized;
            spmm_chunks_half: PostReduction;
            spmm_chunks_max: Maximum;
        }
    };
}

/// [`spmm_chunk_entries!`] after `spmm_coo_entries!`.
#[macro_export]
macro_rules! spmm_coo_chunk_entries {
    ($with:ident) => {
        $with! {
            spmm_coo_chunks_sum: Discretized;
        }
    };
}

/// Calls `$with! { entry: element, scale, sums; … }` with every follow-up entry.
#[macro_export]
macro_rules! spmm_follow_up_entries {
    ($with:ident) => {
        $with! {
            spmm_follow_up_half8_discretized: Half8, Discretized, One;
            spmm_follow_up_half8_both: Half8, Discretized, Both;
            spmm_follow_up_half8_finished: Half8, Finished, One;
            spmm_follow_up_float4_finished: Float4, Finished, One;
            spmm_follow_up_half8_post: Half8, PostReduction, One;
            spmm_follow_up_half8_pre: Half8, PreReduction, One;
            spmm_follow_up_half4_discretized: Half4, Discretized, One;
            spmm_follow_up_half2_discretized: Half2, Discretized, One;
            spmm_follow_up_float4_discretized: Float4, Discretized, One;
            spmm_follow_up_float4_both: Float4, Discretized, Both;
            spmm_follow_up_half8_max: Half8, Maximum, One;
            spmm_follow_up_float4_max: Float4, Maximum, One;
            spmm_follow_up_bfloat8_discretized: BFloat8, Discretized, One;
            spmm_follow_up_bfloat8_both: BFloat8, Discretized, Both;
            spmm_follow_up_bfloat8_finished: BFloat8, Finished, One;
            spmm_follow_up_bfloat8_max: BFloat8, Maximum, One;
            spmm_follow_up_half8_quantized: Half8, Discretized, Quantized;
            spmm_follow_up_half8_quantized_finished: Half8, Finished, Quantized;
            spmm_follow_up_half8_quantized_both: Half8, Discretized, QuantizedBoth;
            spmm_follow_up_bfloat8_quantized_both: BFloat8, Discretized, QuantizedBoth;
            spmm_follow_up_bfloat8_quantized: BFloat8, Discretized, Quantized;
            spmm_follow_up_bfloat8_quantized_finished: BFloat8, Finished, Quantized;
        }
    };
}

/// What one lane loads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Two halves.
    Half2,
    /// Four halves.
    Half4,
    /// Eight halves.
    Half8,
    /// Eight bfloats.
    BFloat8,
    /// Four floats.
    Float4,
}

impl Load {
    /// That of 16 bytes.
    #[inline]
    pub const fn widest(format: Format) -> Self {
        match format {
            Format::F16 => Load::Half8,
            Format::BF16 => Load::BFloat8,
            Format::F32 => Load::Float4,
        }
    }

    /// The elements' format.
    #[inline]
    pub const fn format(self) -> Format {
        match self {
            Load::Half2 | Load::Half4 | Load::Half8 => Format::F16,
            Load::BFloat8 => Format::BF16,
            Load::Float4 => Format::F32,
        }
    }

    /// Elements of a load.
    #[inline]
    pub const fn width(self) -> u32 {
        match self {
            Load::Half2 => 2,
            Load::Half4 | Load::Float4 => 4,
            Load::Half8 | Load::BFloat8 => 8,
        }
    }
}

/// Where the weights of edges come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// All ones: SpMMv.
    Ones,
    /// One an edge: SpMMve.
    EdgeFeatures,
    /// One float an edge and head, whatever the elements.
    EdgeFloats,
    /// One float a column.
    ColumnScale,
    /// Attention, computed in float from scores of the vertices.
    Attention,
    /// The same, negative where the sum of scores is not positive.
    SignedAttention,
    /// The same of sums of scores that are stored.
    StoredAttention,
    /// [`Weights::SignedAttention`] from records of the destinations, and a term of each edge: its part of the gradient of the scores.
    AttentionGradient,
    /// [`Weights::Attention`] with a bias an edge in the sum of scores.
    BiasedAttention,
    /// [`Weights::SignedAttention`] with a bias an edge in the sum of scores.
    SignedBiasedAttention,
    /// [`Weights::AttentionGradient`] with a bias an edge in the sum of scores.
    BiasedAttentionGradient,
}

impl Weights {
    /// Words of an edge in shared memory: column, weight, term.
    #[inline]
    pub const fn words(self) -> u32 {
        match self {
            Weights::Ones => 1,
            Weights::EdgeFeatures
            | Weights::EdgeFloats
            | Weights::ColumnScale
            | Weights::Attention
            | Weights::SignedAttention
            | Weights::StoredAttention
            | Weights::BiasedAttention
            | Weights::SignedBiasedAttention => 2,
            Weights::AttentionGradient | Weights::BiasedAttentionGradient => 3,
        }
    }
}

/// Where the factor of a row is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// After each batch.
    Discretized,
    /// After each batch; and what follows is done where the row is written: an addend, bias, ReLU, and one undone.
    Finished,
    /// Once a row.
    PostReduction,
    /// On each product.
    PreReduction,
    /// After each batch; what is not the whole of a row is added to the output by atomics, in the output's precision.
    Atomic,
    /// Once a row, on the largest product of each column instead of their sum.
    Maximum,
}

impl Scale {
    /// Bytes of dynamic shared memory behind [`shared_bytes`]: with an epilogue a factor of a row of the addend for each
    /// thread.
    #[inline]
    pub const fn addend_scale_bytes(self) -> u32 {
        match self {
            Scale::Finished => THREADS_PER_CTA * 4,
            _ => 0,
        }
    }

    /// The one that merges parts of a row alike and has an entry for [chunks] of them, if parts are merged.
    #[inline]
    pub const fn merged(self) -> Option<Self> {
        match self {
            Scale::Discretized | Scale::Finished => Some(Scale::Discretized),
            Scale::PostReduction | Scale::PreReduction => Some(Scale::PostReduction),
            Scale::Maximum => Some(Scale::Maximum),
            Scale::Atomic => None,
        }
    }
}

/// What a batch is added up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulate {
    /// half2 arithmetic.
    InHalf,
    /// Float.
    InFloat,
    /// The largest, in the elements' own precision, which is exact.
    Largest,
    /// Two sums in float: of all edges, and of those whose weight has a positive sign.
    BothInFloat,
    /// In float the products of the weights with the derivative of additive attention by what its LeakyReLU is given.
    Additive,
    /// Two sums in float: [`Accumulate::Additive`], and with the derivative by its vector.
    BothAdditive,
    /// Of int8 codes, in integers of 16 bits, which hold the sum of a batch exactly.
    InInteger,
    /// Of int8 codes, in float.
    Int8InFloat,
    /// Of e4m3 codes, in float.
    E4m3InFloat,
    /// [`Accumulate::BothInFloat`] of int8 codes.
    BothOfInt8,
    /// [`Accumulate::BothInFloat`] of e4m3 codes.
    BothOfE4m3,
}

impl Accumulate {
    /// What a row adds up to.
    #[inline]
    pub const fn sums(self) -> Sums {
        match self {
            Accumulate::InHalf
            | Accumulate::InFloat
            | Accumulate::Largest
            | Accumulate::Additive => Sums::One,
            Accumulate::BothInFloat | Accumulate::BothAdditive => Sums::Both,
            Accumulate::InInteger | Accumulate::Int8InFloat | Accumulate::E4m3InFloat => {
                Sums::Quantized
            }
            Accumulate::BothOfInt8 | Accumulate::BothOfE4m3 => Sums::QuantizedBoth,
        }
    }
}

/// What a row adds up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sums {
    /// A row of the output.
    One,
    /// A row of each of two outputs, and the sum of the edges' terms.
    Both,
    /// A row of the output, each column of which is then multiplied by its scale.
    Quantized,
    /// [`Sums::Both`], each column of both outputs multiplied by its scale.
    QuantizedBoth,
}

impl Sums {
    /// Whether there are two outputs.
    #[inline]
    pub const fn are_two(self) -> bool {
        matches!(self, Sums::Both | Sums::QuantizedBoth)
    }

    /// Floats of a lane in a merge area, for loads of `width` elements.
    #[inline]
    pub const fn floats(self, width: u32) -> u32 {
        match self {
            Sums::One | Sums::Quantized => width,
            Sums::Both | Sums::QuantizedBoth => 2 * width + 1,
        }
    }
}

/// What a warp has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A share of the edges, whatever the rows.
    EdgeParallel,
    /// The same, of sub-warps whose lanes are as many as a row has loads, and no power of two.
    Packed,
    /// A row, whatever its edges.
    VertexParallel,
    /// A share of the edges, whose rows are known from their ids alone.
    RowIds,
    /// The same; but a warp's sub-warps take its edges in turn.
    RowIdsInTurn,
}

/// One built SpMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpmmEntry {
    /// The entry's name.
    pub name: &'static str,
    /// What one lane loads.
    pub load: Load,
    /// Where weights come from.
    pub weights: Weights,
    /// Where row factors are multiplied.
    pub scale: Scale,
    /// What a batch is added up in.
    pub accumulate: Accumulate,
}

/// One built follow-up kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowUpEntry {
    /// The entry's name.
    pub name: &'static str,
    /// What one lane loads.
    pub load: Load,
    /// Where row factors are multiplied.
    pub scale: Scale,
    /// What a row adds up to.
    pub sums: Sums,
}

/// One built kernel that adds chunks of long rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// The entry's name.
    pub name: &'static str,
    /// Where row factors are multiplied, [by which parts are merged](Scale::merged).
    pub scale: Scale,
}

macro_rules! table {
    ($($entry:ident: $scale:ident;)*) => {
        &[$(ChunkEntry {
            name: stringify!($entry),
            scale: Scale::$scale,
        }),*]
    };
    ($($entry:ident: $load:ident, $weights:ident, $scale:ident, $accumulate:ident;)*) => {
        &[$(SpmmEntry {
            name: stringify!($entry),
            load: Load::$load,
            weights: Weights::$weights,
            scale: Scale::$scale,
            accumulate: Accumulate::$accumulate,
        }),*]
    };
    ($($entry:ident: $load:ident, $scale:ident, $sums:ident;)*) => {
        &[$(FollowUpEntry {
            name: stringify!($entry),
            load: Load::$load,
            scale: Scale::$scale,
            sums: Sums::$sums,
        }),*]
    };
}

impl Schedule {
    /// All.
    pub const ALL: [Self; 5] = [
        Schedule::EdgeParallel,
        Schedule::Packed,
        Schedule::VertexParallel,
        Schedule::RowIds,
        Schedule::RowIdsInTurn,
    ];

    /// Whether rows are known from the ids of edges.
    #[inline]
    pub const fn is_by_row_ids(self) -> bool {
        matches!(self, Schedule::RowIds | Schedule::RowIdsInTurn)
    }

    /// Words of an edge in shared memory beside [those of weights](Weights::words): its row.
    #[inline]
    pub const fn words(self) -> u32 {
        self.is_by_row_ids() as u32
    }

    /// Every SpMM of the schedule.
    #[inline]
    pub const fn spmms(self) -> &'static [SpmmEntry] {
        match self {
            Schedule::EdgeParallel => spmm_entries!(table),
            Schedule::Packed => spmm_packed_entries!(table),
            Schedule::VertexParallel => spmm_vertex_entries!(table),
            Schedule::RowIds => spmm_coo_entries!(table),
            Schedule::RowIdsInTurn => spmm_coo_in_turn_entries!(table),
        }
    }

    /// Every follow-up kernel of the schedule.
    #[inline]
    pub const fn follow_ups(self) -> &'static [FollowUpEntry] {
        match self {
            Schedule::EdgeParallel | Schedule::Packed => spmm_follow_up_entries!(table),
            Schedule::RowIds => spmm_coo_follow_up_entries!(table),
            Schedule::VertexParallel | Schedule::RowIdsInTurn => &[],
        }
    }

    /// Every kernel of the schedule that adds chunks of long rows.
    #[inline]
    pub const fn chunks(self) -> &'static [ChunkEntry] {
        match self {
            Schedule::EdgeParallel | Schedule::Packed => spmm_chunk_entries!(table),
            Schedule::RowIds => spmm_coo_chunk_entries!(table),
            Schedule::VertexParallel | Schedule::RowIdsInTurn => &[],
        }
    }
}

/// The SpMM of these policies, if it is built.
#[inline]
pub fn spmm(
    schedule: Schedule,
    load: Load,
    weights: Weights,
    scale: Scale,
    accumulate: Accumulate,
) -> Option<&'static SpmmEntry> {
    schedule.spmms().iter().find(|entry| {
        (entry.load, entry.weights, entry.scale, entry.accumulate)
            == (load, weights, scale, accumulate)
    })
}

/// The follow-up kernel of an SpMM of these policies, if it is built.
#[inline]
pub fn follow_up(
    schedule: Schedule,
    load: Load,
    scale: Scale,
    sums: Sums,
) -> Option<&'static FollowUpEntry> {
    schedule
        .follow_ups()
        .iter()
        .find(|entry| (entry.load, entry.scale, entry.sums) == (load, scale, sums))
}

/// The kernel that adds chunks of rows whose parts are merged as by this policy, if it is built.
#[inline]
pub fn chunks(schedule: Schedule, scale: Scale) -> Option<&'static ChunkEntry> {
    let merged = scale.merged()?;
    schedule.chunks().iter().find(|entry| entry.scale == merged)
}

macro_rules! names {
    ($($entry:ident: $($policy:ident),+;)*) => {
        &[$(EntrySpec::new::<SpmmParams>(stringify!($entry))),*]
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[
    spmm_entries!(names),
    spmm_packed_entries!(names),
    spmm_follow_up_entries!(names),
    spmm_vertex_entries!(names),
    spmm_coo_entries!(names),
    spmm_coo_in_turn_entries!(names),
    spmm_coo_follow_up_entries!(names),
    spmm_chunk_entries!(names),
    spmm_coo_chunk_entries!(names),
];

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn geometry_at_the_ends_of_the_range() {
        for log2 in CTA_EDGES_LOG2_MIN..=CTA_EDGES_LOG2_MAX {
            let size = 1u32 << log2;
            assert_eq!(ctas(0, log2), 0);
            assert_eq!(ctas(1, log2), 1);
            assert_eq!(ctas(size, log2), 1);
            assert_eq!(ctas(size + 1, log2), 2);
            for edges in [i32::MAX as u32, 1 << 31, u32::MAX] {
                let ctas = ctas(edges, log2);
                let last = (ctas - 1) as u64 * size as u64;
                assert!(last < edges as u64 && edges as u64 <= last + size as u64);
                // The kernels count edges in 32 bits: the first of no warp is beyond them.
                assert!(last + (size - size / WARPS_PER_CTA) as u64 <= u32::MAX as u64);
                // The last float of the largest staging buffer is addressed without wrapping around.
                assert_eq!(
                    staging_index(ctas - 1, STAGED_TAIL, 1024) + 1024,
                    staging_floats(ctas, 1024)
                );
                assert!(follow_up_ctas(ctas, 5) as u64 * 4 >= ctas as u64 - 1);
            }
        }
        assert_eq!(follow_up_ctas(1, 3), 0);
        assert_eq!(follow_up_ctas(0, 3), 0);
        assert_eq!(follow_up_ctas(17, 3), 1);
        assert_eq!(follow_up_ctas(18, 3), 2);
    }

    #[test]
    fn chunks_are_added_where_a_row_may_cross_two() {
        assert_eq!([0, 1, 1023, 4095].map(chunk_log2), [5; 4]);
        assert_eq!([4096, 1 << 14, u32::MAX].map(chunk_log2), [6, 7, 8]);
        // A row from the last edge of a CTA on, through all CTAs of a chunk, to the first edge of another.
        let longest = 2 + 32 * 64;
        assert_eq!(chunk_log2_of(longest - 1, 6, 1000), NO_CHUNKS);
        assert_eq!(chunk_log2_of(longest, 6, 1000), 5);
        assert_eq!(chunk_log2_of(0, 6, 1000), NO_CHUNKS);
        assert_eq!(chunk_log2_of(0, 0, 0), NO_CHUNKS);
        let ctas = ctas(u32::MAX, CTA_EDGES_LOG2_MIN);
        assert_eq!(chunk_log2_of(u32::MAX, CTA_EDGES_LOG2_MIN, ctas), 8);
        // The kernels count CTAs in 32 bits, up to two chunks past the last one.
        let past = (chunk_ctas(ctas, 8) as u64 + 2) << 8;
        assert!(past <= u32::MAX as u64 && ctas >> NO_CHUNKS == 0);
        assert_eq!(staged_floats(16, Sums::Both, 3), 35);
        assert_eq!([0, 1, 32, 33].map(chunk_tiles), [0, 1, 1, 2]);
    }

    #[test]
    fn a_sub_warp_has_whole_steps() {
        for lanes_log2 in 0..=WARP.ilog2() {
            let warp_edges = (1 << cta_edges_log2_min(lanes_log2)) / WARPS_PER_CTA;
            assert!((warp_edges << lanes_log2) / WARP >= 4);
        }
        assert_eq!(cta_edges_log2_min(0), EDGES_PER_CTA.ilog2());
    }

    #[test]
    fn sub_warps_cover_every_feature_length() {
        for loads in 1..=256 {
            let lanes = 1 << lanes_log2(loads);
            assert!(lanes <= WARP && feature_tiles(loads) * lanes >= loads);
            assert!((feature_tiles(loads) - 1) * lanes < loads);
        }
        assert_eq!(lanes_log2(64 / 8), 3);
        assert_eq!(lanes_log2(48 / 8), 3);
    }

    #[test]
    fn packed_sub_warps_are_more() {
        let packed: Vec<u32> = (0..=64).filter_map(packed_lanes).collect();
        assert_eq!(packed, [5, 6, 9, 10]);
        for lanes in packed {
            let sub_warps = WARP / lanes;
            // Quotients are those of whole numbers: of lanes, of the sub-warps of a CTA, and of the steps of a warp.
            for number in 0..256 {
                assert_eq!((number * reciprocal(lanes)) >> 16, number / lanes);
                let quotient = (number * reciprocal(sub_warps)) >> 16;
                assert_eq!(quotient, number / sub_warps);
            }
            assert!((1 << PACKED_CTA_EDGES_LOG2_MIN) / WARPS_PER_CTA / 4 >= sub_warps);
        }
        const { assert!((1 << CTA_EDGES_LOG2_MAX) / WARPS_PER_CTA / 4 < 256) };
    }

    #[test]
    fn every_spmm_has_its_follow_up() {
        for schedule in [
            Schedule::EdgeParallel,
            Schedule::Packed,
            Schedule::RowIds,
            Schedule::RowIdsInTurn,
        ] {
            for entry in schedule.spmms() {
                let sums = entry.accumulate.sums();
                assert!(
                    entry.scale == Scale::Atomic
                        || follow_up(schedule, entry.load, entry.scale, sums).is_some()
                            && chunks(schedule, entry.scale).is_some(),
                    "{}",
                    entry.name
                );
            }
        }
    }

    #[test]
    fn every_spmm_is_found_by_its_policies() {
        for schedule in Schedule::ALL {
            for entry in schedule.spmms() {
                let SpmmEntry {
                    load,
                    weights,
                    scale,
                    accumulate,
                    ..
                } = *entry;
                assert_eq!(
                    spmm(schedule, load, weights, scale, accumulate),
                    Some(entry)
                );
            }
        }
    }

    #[test]
    fn a_warp_a_row_at_the_ends_of_the_range() {
        assert_eq!([0, 1, 4, 5].map(vertex_ctas), [0, 1, 1, 2]);
        assert_eq!([0, 1, 16, 17].map(vertex_ctas_of_many), [0, 1, 1, 2]);
        // Lanes have the offsets of all rows of a CTA, and the one behind them.
        const { assert!(WARPS_PER_CTA * VERTEX_ROWS < WARP) };
        // The kernel counts rows in 32 bits: the first of no warp is beyond them.
        let last = vertex_ctas(u32::MAX) as u64 * WARPS_PER_CTA as u64 - 1;
        assert!(last <= u32::MAX as u64);
        for width in [2, 4, 8] {
            let last = vertex_shared::part(width, 3, 3, width - 1, WARP - 1);
            assert_eq!(last + 4, vertex_shared::bytes(width));
        }
    }

    #[test]
    fn shared_memory_fits_without_opting_in() {
        for schedule in [
            Schedule::EdgeParallel,
            Schedule::Packed,
            Schedule::RowIds,
            Schedule::RowIdsInTurn,
        ] {
            for entry in schedule.spmms() {
                let floats = entry.accumulate.sums().floats(entry.load.width());
                let words = entry.weights.words() + schedule.words();
                let bytes = shared_bytes(floats, CTA_EDGES_LOG2_MAX, words)
                    + entry.scale.addend_scale_bytes();
                assert!(bytes <= 48 * 1024, "{}", entry.name);
            }
        }
        for entry in Schedule::VertexParallel.spmms() {
            let floats = entry.accumulate.sums().floats(entry.load.width());
            assert!(vertex_shared::bytes(floats) <= 48 * 1024, "{}", entry.name);
        }
        assert_eq!(shared::MERGE % 16, 0);
        // The most edges of a sub-warp, each of the largest code, stay below 2¹⁶: `Accumulate::InInteger`.
        assert!((1 << CTA_EDGES_LOG2_MAX) / WARPS_PER_CTA * 255 <= u16::MAX as u32);
    }
}
