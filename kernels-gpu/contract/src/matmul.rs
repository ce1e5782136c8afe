//! Matrix product: `C = A·B`, `C = A·Bᵀ` or `C = Aᵀ·B`, on tensor cores for halves and on CUDA cores for floats.
//!
//! A layer's forward pass is `H·W` ([`Form::Nn`]), the gradient of its input `dY·Wᵀ` ([`Form::Nt`]) and that of its
//! weights `Hᵀ·dY` ([`Form::Tn`], where `k` is the number of vertices). Sums are kept in float whatever the elements.
//!
//! A CTA computes one [`Tile`] of C. Operands travel to shared memory in steps of [`STEP_VECTORS`] 16-byte vectors of
//! `k`, of which [`STAGES`] are under way at a time. Where C has too few tiles to fill the card, several CTAs share a
//! tile, each with its own range of steps ([`split`]); they leave partial sums in a workspace, and a second kernel adds
//! those in a fixed order: no atomics, and the same bits at every run on the same kind of card.
//!
//! The epilogue is `c[i][j] = relu(alpha · row_scale[i] · sum + bias[j])`, each part of it optional, computed in float
//! and rounded once. A may be what a batch normalisation makes of the matrix ([`Operand::Normalized`]): it is normalised when
//! it has come to shared memory, with the bits that `normalize` would have stored.
//!
//! Of a matrix of int8 codes ([`Operand::Codes`]) the product is that of the whole numbers that the codes stand for; the scales of its
//! columns, which are rows of C in `Aᵀ·B`, are `row_scale`. Codes are widened when they have come to shared memory.
//!
//! A sum may go on over a second pair of operands ([`Operand::Pair`]): `A·B + A₂·B₂`, of which no part is rounded by itself or lies in
//! memory. Of such a sum in 16 bits elements may be dropped where they are written ([`drops`]).
//!
//! Some products make 8-bit codes of C where they write it ([`coded_product`]): what `quantize` would make of what is stored, bit
//! for bit, without another way to memory and back.

use crate::elementwise::DropoutParams;
use crate::quantize::CodesParams;
use crate::{DevicePtr, EntrySpec, Format, HalfBits, VECTOR_BYTES, WARP, param_struct};

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Threads of a CTA, in the product and in the reduction.
pub const THREADS_PER_CTA: u32 = WARP * WARPS_PER_CTA;

/// 16-byte vectors of `k` in one step: 32 halves, or 16 floats.
pub const STEP_VECTORS: u32 = 4;

/// Steps whose operands lie in shared memory or are on their way there.
pub const STAGES: u32 = 4;

/// CTAs of the widest tile that an SM of an H200 holds at a time, by their registers, whatever the entry: the launch bounds ask for as many or
/// one more.
pub const CTAS_PER_SM: u32 = 3;

/// Largest `m`, `n` or `k`, so that the position of a step never exceeds 32 bits.
pub const MAX_EXTENT: u32 = 1 << 31;

/// Fewest steps that are worth a CTA of their own; fewer would spend more on the partial sums than on the product.
pub const MIN_STEPS_PER_SPLIT: u32 = 4;

/// Fewest steps on tensor cores that a CTA has to be spared for a split: the reduction is a launch more, which takes as long. A step of
/// floats, on CUDA cores, takes as long by itself.
pub const MIN_STEPS_SPARED: u32 = 12;

/// 16-byte vectors of C that one CTA of the reduction computes, four floats of the workspace each.
pub const REDUCE_VECTORS_PER_CTA: u32 = WARP;

/// Bytes of dynamic shared memory of the reduction: four floats of every thread.
pub const REDUCE_SHARED_BYTES: u32 = THREADS_PER_CTA * VECTOR_BYTES;

/// Bit of [`MatmulParams::flags`]: negative results become zero. A NaN stays one.
pub const RELU: u32 = 1;

/// Bit of [`MatmulParams::flags`]: where A is [`Operand::Normalized`], what is normalised and negative becomes zero. A NaN stays
/// one.
pub const A_RELU: u32 = 2;

/// Bit of [`MatmulParams::flags`]: only the codes of C are written, and C is not.
pub const CODES_ALONE: u32 = 4;

/// Bit of [`MatmulParams::flags`]: what [`MatmulParams::positive`] names are codes. Of outputs of 16 bits.
pub const POSITIVE_CODES: u32 = 8;

/// Bit of [`MatmulParams::flags`]: what is written is added to what stands in C, after it was rounded as if it were not. For [`Form::Nt`], and
/// not where codes are made.
pub const SUM: u32 = 16;

/// Bytes of the codes of a 16-byte vector of 16-bit elements.
pub const CODE_VECTOR_BYTES: u32 = VECTOR_BYTES / 2;

param_struct! {
    /// Parameters of the product and of the reduction.
    ///
    /// Matrices are row-major. Rows are 16-byte aligned; their strides count 16-byte vectors. The elements between the
    /// end of a row and the next multiple of 16 bytes are its padding: zero in A and B, also in those of the second pair, written as zero in C.
    pub struct MatmulParams {
        /// A: `m` rows of `k` elements, or `k` rows of `m` for [`Form::Tn`]. Halves or floats, as the entry says, or int8 codes, whose
        /// padding is the code of zero.
        pub a: DevicePtr<HalfBits>,
        /// B: `k` rows of `n` elements, or `n` rows of `k` for [`Form::Nt`]. The same type as A.
        pub b: DevicePtr<HalfBits>,
        /// The first operand of the second pair, for [`Operand::Pair`] alone: `m` rows of `k2` elements.
        pub a2: DevicePtr<HalfBits>,
        /// The second one: `k2` rows of `n` elements.
        pub b2: DevicePtr<HalfBits>,
        /// C: `m` rows of `n` elements of the entry's output type. Overlaps neither A nor B. With [`SUM`] it is read as well.
        pub c: DevicePtr<HalfBits>,
        /// A number to add to each column of C, `n` long, or null.
        pub bias: DevicePtr<f32>,
        /// A factor of each row of C, `m` long, or null for 1.
        pub row_scale: DevicePtr<f32>,
        /// A matrix of C's shape, stride and type, or null: where it holds no positive number C becomes zero, so that the
        /// product is the gradient of what a ReLU made of it. For [`Form::Nt`], and read by the reduction after any. With
        /// [`POSITIVE_CODES`] int8 codes of such a matrix, rows of [`row_codes`](crate::quantize::row_codes).
        pub positive: DevicePtr<HalfBits>,
        /// The sums of the columns of B, as long as a row of C, padding included, or null. For [`Form::Tn`] with an output
        /// in float, where [`sums_fit`].
        pub column_sums: DevicePtr<f32>,
        /// Mean and reciprocal deviation of each of A's features, a row each of `float_vectors` vectors. As the two rows below
        /// for [`Operand::Normalized`] alone, and padded with zeros; A's features are its columns in memory.
        pub statistics: DevicePtr<f32>,
        /// Scale of each of A's features.
        pub norm_weight: DevicePtr<f32>,
        /// Shift of each of A's features.
        pub norm_bias: DevicePtr<f32>,
        /// Partial sums, [`workspace_floats`] long and 16-byte aligned; not touched where `splits` is 1.
        pub workspace: DevicePtr<f32>,
        /// Rows of C.
        pub m: u32,
        /// Columns of C.
        pub n: u32,
        /// Elements of one sum, of the first pair of operands.
        pub k: u32,
        /// Those of the second pair.
        pub k2: u32,
        /// Steps of the first pair, behind which those of the second come; only for [`Operand::Pair`].
        pub first_steps: u32,
        /// Distance of two rows of `a2` in 16-byte vectors.
        pub a2_stride: u32,
        /// Distance of two rows of `b2` in 16-byte vectors.
        pub b2_stride: u32,
        /// Distance of two rows of A in 16-byte vectors; of codes in vectors of as many, which are [`CODE_VECTOR_BYTES`].
        pub a_stride: u32,
        /// Distance of two rows of B in 16-byte vectors.
        pub b_stride: u32,
        /// Distance of two rows of C in 16-byte vectors.
        pub c_stride: u32,
        /// Distance of two rows of the workspace in 16-byte vectors: [`workspace_stride`].
        pub workspace_stride: u32,
        /// Tiles that lie side by side in C: [`Tile::across`].
        pub column_tiles: u32,
        /// Steps of each split but the last, which has what is left.
        pub steps_per_split: u32,
        /// CTAs that share a tile: CTAs in y.
        pub splits: u32,
        /// [`RELU`], [`A_RELU`], [`CODES_ALONE`], [`POSITIVE_CODES`], [`SUM`].
        pub flags: u32,
        /// Factor of the whole product.
        pub alpha: f32,
        /// Rows of partial sums: `m`, and with `column_sums` one more than [`sum_row`].
        pub sum_rows: u32,
        /// Distance of two rows of `statistics` in 16-byte vectors.
        pub float_vectors: u32,
        /// What is dropped of C, as `activate` would drop it of what is stored; where a product [`drops`].
        pub dropout: DropoutParams,
        /// Where codes of C go, for the entries that make some; of those `splits` is 1.
        pub codes: CodesParams,
    }
}

/// Row of the product in which the columns of B are summed up: in `Aᵀ·B` the first vector of `k` after those of A, which
/// begins with a column of ones, makes it. What lies between it and `m` is nothing.
#[inline]
pub const fn sum_row(element: Format, m: u32) -> u32 {
    m.next_multiple_of(element.per_vector())
}

/// Whether [`sum_row`] lies in a tile that there is anyway, so that the sums cost nothing.
#[inline]
pub const fn sums_fit(element: Format, m: u32) -> bool {
    !sum_row(element, m).is_multiple_of(Tile::WIDE.rows)
}

/// Which operand is transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `A·B`, A of `m × k` and B of `k × n`.
    Nn,
    /// `A·Bᵀ`, A of `m × k` and B of `n × k`.
    Nt,
    /// `Aᵀ·B`, A of `k × m` and B of `k × n`.
    Tn,
}

/// What A is of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The matrix as it lies in memory.
    Plain,
    /// What a batch normalisation of its features makes of it, rounded to its elements: see
    /// [`Column::output`](crate::normalize::Column::output).
    Normalized,
    /// The whole numbers that int8 codes stand for, from −127 to 127.
    Codes,
    /// The matrix, and another one beside it that is multiplied by a matrix of its own: `A·B + A₂·B₂`.
    Pair,
}

/// Whether a product of such an operand and output drops elements where it writes them, if its sum is not [split].
#[inline]
pub const fn drops(operand: Operand, output: Format) -> bool {
    matches!(operand, Operand::Pair) && !matches!(output, Format::F32)
}

/// Elements of `k` in one step.
#[inline]
pub const fn per_step(format: Format) -> u32 {
    STEP_VECTORS * format.per_vector()
}

/// The part of C that one CTA computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
}

impl Tile {
    /// For outputs of more than 32 columns.
    pub const WIDE: Self = Self {
        rows: 128,
        columns: 64,
    };
    /// For outputs of 17 to 32 columns.
    pub const MIDDLE: Self = Self {
        rows: 128,
        columns: 32,
    };
    /// For outputs of up to 16 columns, such as the classes of a small data set.
    pub const NARROW: Self = Self {
        rows: 128,
        columns: 16,
    };

    /// The narrowest tile that holds `n` columns, or the widest there is.
    #[inline]
    pub const fn for_columns(n: u32) -> Self {
        match n {
            ..=16 => Self::NARROW,
            17..=32 => Self::MIDDLE,
            _ => Self::WIDE,
        }
    }

    /// Tiles side by side in `n` columns.
    #[inline]
    pub const fn across(self, n: u32) -> u32 {
        n.div_ceil(self.columns)
    }

    /// Tiles of an `m × n` output: CTAs in x. Neighbours share rows of A, so that A comes from L2 after its first use.
    #[inline]
    pub const fn count(self, m: u32, n: u32) -> u64 {
        m.div_ceil(self.rows) as u64 * self.across(n) as u64
    }

    /// Bytes of dynamic shared memory: the tiles of A and B of all stages.
    #[inline]
    pub const fn shared_bytes(self) -> u32 {
        STAGES * self.stage_bytes()
    }

    /// Bytes of the operands of one step: A's, then B's.
    #[inline]
    pub const fn stage_bytes(self) -> u32 {
        operand_bytes(self.rows) + operand_bytes(self.columns)
    }
}

/// Bytes of one operand's tile of `extent` rows or columns of C and one step of `k`, for either element type.
#[inline]
pub const fn operand_bytes(extent: u32) -> u32 {
    extent * STEP_VECTORS * VECTOR_BYTES
}

/// Position of a 16-byte vector in an operand's tile in shared memory: `vector` of `row`, of `vectors` in a row.
///
/// The low bits of the vector are mixed with the row's, so that eight rows at the same vector lie in eight different
/// groups of four banks, as `ldmatrix` wants them, and so do eight vectors of the same row.
#[inline]
pub const fn swizzle(row: u32, vector: u32, vectors: u32) -> u32 {
    row * vectors + (vector ^ swizzle_mask(row, vectors))
}

/// What [`swizzle`] mixes into the vectors of `row`. `vectors` is a power of two.
#[inline]
pub const fn swizzle_mask(row: u32, vectors: u32) -> u32 {
    if vectors >= 8 {
        row % 8
    } else {
        row / (8 / vectors) % vectors
    }
}

/// How many CTAs share a tile, and how many steps each walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// CTAs that share a tile, at least 1.
    pub splits: u32,
    /// Steps of each split but the last.
    pub steps_per_split: u32,
}

/// Splits `k` so that a card of `sms` multiprocessors is filled where the tiles of C alone would leave some idle.
///
/// Every split has at least one step, and at least [`MIN_STEPS_PER_SPLIT`] where there is more than one, and on tensor cores spares a CTA
/// [`MIN_STEPS_SPARED`]. The choice
/// depends on the number of multiprocessors, and so does the rounding of the sums: two cards of different size may
/// differ in the last bits, two runs on one do not. Pass a fixed `sms` for results that do not depend on the card.
#[inline]
pub const fn split(element: Format, m: u32, n: u32, k: u32, sms: u32) -> Split {
    let steps = k.div_ceil(per_step(element));
    let tiles = Tile::for_columns(n).count(m, n);
    let single = Split {
        splits: 1,
        steps_per_split: steps,
    };
    if tiles == 0 || tiles >= sms as u64 {
        return single;
    }
    // One CTA an SM hides no latency, so there is work for CTAS_PER_SM of them; `tiles` is below 2³² here.
    let wanted = sms.saturating_mul(CTAS_PER_SM) / tiles as u32;
    let most = steps / MIN_STEPS_PER_SPLIT;
    let splits = if wanted < most { wanted } else { most };
    if splits < 2 {
        return single;
    }
    let splits = if splits < MAX_SPLITS {
        splits
    } else {
        MAX_SPLITS
    };
    let steps_per_split = steps.div_ceil(splits);
    let on_tensor_cores = !matches!(element, Format::F32);
    if on_tensor_cores && steps - steps_per_split < MIN_STEPS_SPARED {
        return single;
    }
    // Rounding up may have left the last splits without a step.
    Split {
        splits: steps.div_ceil(steps_per_split),
        steps_per_split,
    }
}

/// Largest number of splits: CTAs in y of a grid.
pub const MAX_SPLITS: u32 = 65_535;

/// Distance of two rows of the workspace for `n` columns, in 16-byte vectors: rows of floats, padded as halves are, so
/// that one layout serves outputs of either type.
#[inline]
pub const fn workspace_stride(n: u32) -> u32 {
    n.div_ceil(Format::F16.per_vector()) * 2
}

/// Floats of the workspace of an `m × n` output: one output for each split, and none without a split.
#[inline]
pub const fn workspace_floats(m: u32, n: u32, splits: u32) -> u64 {
    if splits <= 1 {
        0
    } else {
        workspace_vector(splits, 0, 0, m, workspace_stride(n)) * Format::F32.per_vector() as u64
    }
}

/// Index of a 16-byte vector in the workspace.
#[inline]
pub const fn workspace_vector(split: u32, row: u32, vector: u32, m: u32, stride: u32) -> u64 {
    (split as u64 * m as u64 + row as u64) * stride as u64 + vector as u64
}

/// Index of a 16-byte vector in a matrix whose rows are `stride` vectors apart.
#[inline]
pub const fn matrix_vector(row: u32, vector: u32, stride: u32) -> u64 {
    row as u64 * stride as u64 + vector as u64
}

/// Workspace vectors in a row that the reduction adds: all that make up C's padded row.
#[inline]
pub const fn reduce_vectors(output: Format, n: u32) -> u32 {
    n.div_ceil(output.per_vector()) * (output.per_vector() / Format::F32.per_vector())
}

/// CTAs in x of the reduction.
#[inline]
pub const fn reduce_ctas(output: Format, m: u32, n: u32) -> u64 {
    (m as u64 * reduce_vectors(output, n) as u64).div_ceil(REDUCE_VECTORS_PER_CTA as u64)
}

/// Calls `$with! { entry: form, what A is, element of A and B, element of C, columns of the tile; … }` with every product that is
/// built: the one list from which the kernels crate makes the entries and the host its table.
#[macro_export]
macro_rules! matmul_entries {
    ($with:ident) => {
        $with! {
            gemm_nn_f16_to_f16_128x64: Nn, Plain, F16, F16, 64;
            gemm_nn_f16_to_f16_128x32: Nn, Plain, F16, F16, 32;
            gemm_nn_f16_to_f16_128x16: Nn, Plain, F16, F16, 16;
            gemm_nn_f16_to_f32_128x64: Nn, Plain, F16, F32, 64;
            gemm_nn_f16_to_f32_128x32: Nn, Plain, F16, F32, 32;
            gemm_nn_f16_to_f32_128x16: Nn, Plain, F16, F32, 16;
            gemm_nt_f16_to_f16_128x64: Nt, Plain, F16, F16, 64;
            gemm_nt_f16_to_f16_128x32: Nt, Plain, F16, F16, 32;
            gemm_nt_f16_to_f16_128x16: Nt, Plain, F16, F16, 16;
            gemm_nt_f16_to_f32_128x64: Nt, Plain, F16, F32, 64;
            gemm_nt_f16_to_f32_128x32: Nt, Plain, F16, F32, 32;
            gemm_nt_f16_to_f32_128x16: Nt, Plain, F16, F32, 16;
            gemm_tn_f16_to_f16_128x64: Tn, Plain, F16, F16, 64;
            gemm_tn_f16_to_f16_128x32: Tn, Plain, F16, F16, 32;
            gemm_tn_f16_to_f16_128x16: Tn, Plain, F16, F16, 16;
            gemm_tn_f16_to_f32_128x64: Tn, Plain, F16, F32, 64;
            gemm_tn_f16_to_f32_128x32: Tn, Plain, F16, F32, 32;
            gemm_tn_f16_to_f32_128x16: Tn, Plain, F16, F32, 16;
            gemm_nn_f32_to_f32_128x64: Nn, Plain, F32, F32, 64;
            gemm_nn_f32_to_f32_128x32: Nn, Plain, F32, F32, 32;
            gemm_nn_f32_to_f32_128x16: Nn, Plain, F32, F32, 16;
            gemm_nt_f32_to_f32_128x64: Nt, Plain, F32, F32, 64;
            gemm_nt_f32_to_f32_128x32: Nt, Plain, F32, F32, 32;
            gemm_nt_f32_to_f32_128x16: Nt, Plain, F32, F32, 16;
            gemm_tn_f32_to_f32_128x64: Tn, Plain, F32, F32, 64;
            gemm_tn_f32_to_f32_128x32: Tn, Plain, F32, F32, 32;
            gemm_tn_f32_to_f32_128x16: Tn, Plain, F32, F32, 16;
            gemm_nn_normalized_f16_to_f16_128x64: Nn, Normalized, F16, F16, 64;
            gemm_nn_normalized_f16_to_f16_128x32: Nn, Normalized, F16, F16, 32;
            gemm_nn_normalized_f16_to_f16_128x16: Nn, Normalized, F16, F16, 16;
            gemm_nn_normalized_f32_to_f32_128x64: Nn, Normalized, F32, F32, 64;
            gemm_nn_normalized_f32_to_f32_128x32: Nn, Normalized, F32, F32, 32;
            gemm_nn_normalized_f32_to_f32_128x16: Nn, Normalized, F32, F32, 16;
            gemm_tn_normalized_f16_to_f32_128x64: Tn, Normalized, F16, F32, 64;
            gemm_tn_normalized_f16_to_f32_128x32: Tn, Normalized, F16, F32, 32;
            gemm_tn_normalized_f16_to_f32_128x16: Tn, Normalized, F16, F32, 16;
            gemm_tn_normalized_f32_to_f32_128x64: Tn, Normalized, F32, F32, 64;
            gemm_tn_normalized_f32_to_f32_128x32: Tn, Normalized, F32, F32, 32;
            gemm_tn_normalized_f32_to_f32_128x16: Tn, Normalized, F32, F32, 16;
            gemm_nn_bf16_to_bf16_128x64: Nn, Plain, BF16, BF16, 64;
            gemm_nn_bf16_to_bf16_128x32: Nn, Plain, BF16, BF16, 32;
            gemm_nn_bf16_to_bf16_128x16: Nn, Plain, BF16, BF16, 16;
            gemm_nt_bf16_to_bf16_128x64: Nt, Plain, BF16, BF16, 64;
            gemm_nt_bf16_to_bf16_128x32: Nt, Plain, BF16, BF16, 32;
            gemm_nt_bf16_to_bf16_128x16: Nt, Plain, BF16, BF16, 16;
            gemm_nt_bf16_to_f32_128x64: Nt, Plain, BF16, F32, 64;
            gemm_nt_bf16_to_f32_128x32: Nt, Plain, BF16, F32, 32;
            gemm_nt_bf16_to_f32_128x16: Nt, Plain, BF16, F32, 16;
            gemm_tn_bf16_to_f32_128x64: Tn, Plain, BF16, F32, 64;
            gemm_tn_bf16_to_f32_128x32: Tn, Plain, BF16, F32, 32;
            gemm_tn_bf16_to_f32_128x16: Tn, Plain, BF16, F32, 16;
            gemm_nn_normalized_bf16_to_bf16_128x64: Nn, Normalized, BF16, BF16, 64;
            gemm_nn_normalized_bf16_to_bf16_128x32: Nn, Normalized, BF16, BF16, 32;
            gemm_nn_normalized_bf16_to_bf16_128x16: Nn, Normalized, BF16, BF16, 16;
            gemm_tn_normalized_bf16_to_f32_128x64: Tn, Normalized, BF16, F32, 64;
            gemm_tn_normalized_bf16_to_f32_128x32: Tn, Normalized, BF16, F32, 32;
            gemm_tn_normalized_bf16_to_f32_128x16: Tn, Normalized, BF16, F32, 16;
            gemm_tn_codes_f16_to_f32_128x64: Tn, Codes, F16, F32, 64;
            gemm_tn_codes_f16_to_f32_128x32: Tn, Codes, F16, F32, 32;
            gemm_tn_codes_f16_to_f32_128x16: Tn, Codes, F16, F32, 16;
            gemm_tn_codes_bf16_to_f32_128x64: Tn, Codes, BF16, F32, 64;
            gemm_tn_codes_bf16_to_f32_128x32: Tn, Codes, BF16, F32, 32;
            gemm_tn_codes_bf16_to_f32_128x16: Tn, Codes, BF16, F32, 16;
            gemm_nn_pair_f16_to_f16_128x64: Nn, Pair, F16, F16, 64;
            gemm_nn_pair_f16_to_f16_128x32: Nn, Pair, F16, F16, 32;
            gemm_nn_pair_f16_to_f16_128x16: Nn, Pair, F16, F16, 16;
            gemm_nn_pair_f32_to_f32_128x64: Nn, Pair, F32, F32, 64;
            gemm_nn_pair_f32_to_f32_128x32: Nn, Pair, F32, F32, 32;
            gemm_nn_pair_f32_to_f32_128x16: Nn, Pair, F32, F32, 16;
            gemm_nn_pair_bf16_to_bf16_128x64: Nn, Pair, BF16, BF16, 64;
            gemm_nn_pair_bf16_to_bf16_128x32: Nn, Pair, BF16, BF16, 32;
            gemm_nn_pair_bf16_to_bf16_128x16: Nn, Pair, BF16, BF16, 16;
        }
    };
}

/// Calls `$with!`, as [`matmul_entries!`] does, with every product that makes codes of C: of forward passes and of gradients of
/// inputs, in elements of 16 bits.
#[macro_export]
macro_rules! matmul_coded_entries {
    ($with:ident) => {
        $with! {
            gemm_nn_f16_coded_128x64: Nn, Plain, F16, CodedF16, 64;
            gemm_nn_f16_coded_128x32: Nn, Plain, F16, CodedF16, 32;
            gemm_nn_f16_coded_128x16: Nn, Plain, F16, CodedF16, 16;
            gemm_nt_f16_coded_128x64: Nt, Plain, F16, CodedF16, 64;
            gemm_nt_f16_coded_128x32: Nt, Plain, F16, CodedF16, 32;
            gemm_nt_f16_coded_128x16: Nt, Plain, F16, CodedF16, 16;
            gemm_nn_bf16_coded_128x64: Nn, Plain, BF16, CodedBF16, 64;
            gemm_nn_bf16_coded_128x32: Nn, Plain, BF16, CodedBF16, 32;
            gemm_nn_bf16_coded_128x16: Nn, Plain, BF16, CodedBF16, 16;
            gemm_nt_bf16_coded_128x64: Nt, Plain, BF16, CodedBF16, 64;
            gemm_nt_bf16_coded_128x32: Nt, Plain, BF16, CodedBF16, 32;
            gemm_nt_bf16_coded_128x16: Nt, Plain, BF16, CodedBF16, 16;
        }
    };
}

/// Calls `$with! { entry: element of C; … }` with every reduction of partial sums.
#[macro_export]
macro_rules! matmul_reduce_entries {
    ($with:ident) => {
        $with! {
            gemm_reduce_to_f16: F16;
            gemm_reduce_to_f32: F32;
            gemm_reduce_to_bf16: BF16;
        }
    };
}

/// One built product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatmulEntry {
    /// The entry's name.
    pub name: &'static str,
    /// Which operand is transposed.
    pub form: Form,
    /// What A is.
    pub operand: Operand,
    /// Format of A and B.
    pub input: Format,
    /// Format of C.
    pub output: Format,
    /// Columns of its tile; all tiles have the same rows.
    pub columns: u32,
}

macro_rules! products {
    ($($entry:ident: $form:ident, $operand:ident, $input:ident, $output:ident, $columns:literal;)*) => {
        &[$(MatmulEntry {
            name: stringify!($entry),
            form: Form::$form,
            operand: Operand::$operand,
            input: Format::$input,
            output: Format::$output,
            columns: $columns,
        }),*]
    };
}

/// Every product.
pub const PRODUCTS: &[MatmulEntry] = matmul_entries!(products);

/// The product for an output of `n` columns, or `None` for what is not built: float to half, and with a normalised operand
/// all but what a layer wants, `A·B` of one type and `Aᵀ·B` in float. Of codes there is `Aᵀ·B` of 16 bits in float, of two pairs `A·B` of
/// one type.
#[inline]
pub fn product(
    form: Form,
    operand: Operand,
    input: Format,
    output: Format,
    n: u32,
) -> Option<&'static MatmulEntry> {
    let columns = Tile::for_columns(n).columns;
    PRODUCTS.iter().find(|entry| {
        (entry.form, entry.operand, entry.input, entry.output) == (form, operand, input, output)
            && entry.columns == columns
    })
}

macro_rules! coded_products {
    ($($entry:ident: $form:ident, $operand:ident, $input:ident, $output:ident, $columns:literal;)*) => {
        &[$(MatmulEntry {
            name: stringify!($entry),
            form: Form::$form,
            operand: Operand::$operand,
            input: Format::$input,
            output: Format::$input,
            columns: $columns,
        }),*]
    };
}

/// Every product that makes codes of C.
pub const CODED_PRODUCTS: &[MatmulEntry] = matmul_coded_entries!(coded_products);

/// The product that makes codes of its output of `n` columns, which has the format of the operands, or `None` for what is not
/// built: `Aᵀ·B`, and floats. It is for sums that are not [split].
#[inline]
pub fn coded_product(form: Form, format: Format, n: u32) -> Option<&'static MatmulEntry> {
    let columns = Tile::for_columns(n).columns;
    CODED_PRODUCTS
        .iter()
        .find(|entry| (entry.form, entry.input, entry.columns) == (form, format, columns))
}

macro_rules! reductions {
    ($($entry:ident: $output:ident;)*) => {
        &[$((Format::$output, stringify!($entry))),*]
    };
}

/// Every reduction, by the output's format.
pub const REDUCTIONS: &[(Format, &str)] = matmul_reduce_entries!(reductions);

/// The reduction that goes with an output's format, if it is built.
#[inline]
pub fn reduction(output: Format) -> Option<&'static str> {
    let (_, name) = REDUCTIONS.iter().find(|(format, _)| *format == output)?;
    Some(name)
}

macro_rules! names {
    ($($entry:ident: $($policy:tt),+;)*) => {
        &[$(EntrySpec::new::<MatmulParams>(stringify!($entry))),*]
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[
    matmul_entries!(names),
    matmul_coded_entries!(names),
    matmul_reduce_entries!(names),
];

#[cfg(test)]
mod tests {
    use super::*;

    const SMS: [u32; 6] = [0, 1, 28, 84, 132, u32::MAX];

    #[test]
    fn indices_beyond_32_bits_do_not_wrap_around() {
        // 2.4 million rows of 16 Ki halves, and the ends of the range.
        assert_eq!(matrix_vector(2_400_000, 2047, 2048), 4_915_202_047);
        assert_eq!(
            matrix_vector(MAX_EXTENT - 1, 3, u32::MAX),
            (MAX_EXTENT as u64 - 1) * u32::MAX as u64 + 3
        );
        assert_eq!(
            workspace_vector(MAX_SPLITS, 0, 0, 1 << 16, 1 << 10),
            MAX_SPLITS as u64 * (1 << 26)
        );
        // Splits times rows alone are past them.
        assert_eq!(
            workspace_vector(MAX_SPLITS, 0, 0, MAX_EXTENT, 1),
            (MAX_SPLITS as u64) << 31
        );
        assert_eq!(workspace_floats(1 << 20, 1 << 12, 2), 1 << 33);
        assert_eq!(Tile::WIDE.count(MAX_EXTENT, 1 << 16), 1 << 34);
        assert_eq!(reduce_ctas(Format::F32, MAX_EXTENT, 1 << 12), 1 << 36);
    }

    #[test]
    fn the_last_workspace_vector_is_the_last_of_the_buffer() {
        for (m, n, splits) in [(1, 1, 2), (600, 64, 105), (1 << 20, 7, 3), (2708, 130, 9)] {
            let stride = workspace_stride(n);
            let last = workspace_vector(splits - 1, m - 1, stride - 1, m, stride);
            assert_eq!((last + 1) * 4, workspace_floats(m, n, splits));
            assert!(
                reduce_vectors(Format::F16, n) == stride
                    && reduce_vectors(Format::F32, n) <= stride
            );
        }
        assert_eq!(workspace_floats(600, 64, 1), 0);
    }

    #[test]
    fn splits_cover_k_without_an_empty_one() {
        let extents = [0, 1, 7, 64, 129, 1433, 65_536, 2_400_000, MAX_EXTENT];
        for element in [Format::F16, Format::F32] {
            for (m, n, k) in extents
                .iter()
                .flat_map(|&m| extents.iter().map(move |&k| (m, 64, k)))
            {
                for sms in SMS {
                    let Split {
                        splits,
                        steps_per_split,
                    } = split(element, m, n, k, sms);
                    let steps = k.div_ceil(per_step(element)) as u64;
                    assert!((1..=MAX_SPLITS).contains(&splits));
                    assert!(splits as u64 * steps_per_split as u64 >= steps);
                    assert!(splits == 1 || (splits as u64 - 1) * (steps_per_split as u64) < steps);
                    assert!(splits == 1 || steps_per_split >= MIN_STEPS_PER_SPLIT);
                }
            }
        }
    }

    #[test]
    fn typical_products_fill_an_h200_and_big_ones_are_not_split() {
        // Cora's first layer: 22 tiles, 45 steps.
        assert_eq!(
            split(Format::F16, 2708, 64, 1433, 132),
            Split {
                splits: 9,
                steps_per_split: 5
            }
        );
        // A weight gradient over 2.4 million vertices: 5 tiles.
        let Split { splits, .. } = split(Format::F16, 600, 64, 2_400_000, 132);
        assert!((70..=132 * CTAS_PER_SM / 5).contains(&splits), "{splits}");
        assert_eq!(split(Format::F16, 2_400_000, 64, 100, 132).splits, 1);
        // Eight steps for each of 111 tiles: two splits of four would take a launch more.
        assert_eq!(split(Format::F16, 14_144, 47, 256, 132).splits, 1);
        assert_eq!(split(Format::F32, 14_144, 47, 128, 132).splits, 2);
        // The partial sums stay small: every CTA leaves one tile.
        assert!(workspace_floats(600, 64, splits) * 4 <= (132 * CTAS_PER_SM * 128 * 64 * 4) as u64);
    }

    #[test]
    fn shared_memory_fits_without_opting_in() {
        for tile in [Tile::WIDE, Tile::MIDDLE, Tile::NARROW] {
            assert!(tile.shared_bytes() <= 48 * 1024);
            assert_eq!(tile.stage_bytes() % 128, 0);
        }
    }

    /// Eight rows at one vector, and eight neighbouring vectors of one row, take all eight groups of four banks.
    #[test]
    fn swizzled_vectors_do_not_collide() {
        for vectors in [2, 4, 8, 16, 32] {
            for vector in 0..vectors {
                for first in (0..64).step_by(8) {
                    let groups = (first..first + 8).fold(0, |seen, row| {
                        seen | 1 << (swizzle(row, vector, vectors) % 8)
                    });
                    assert_eq!(
                        groups, 0xff,
                        "{vectors} vectors a row, vector {vector}, rows from {first}"
                    );
                }
            }
            for row in 0..64 {
                let columns = (0..vectors).fold(0u64, |seen, vector| {
                    let at = swizzle(row, vector, vectors);
                    assert_eq!(at / vectors, row);
                    seen | 1 << (at % vectors)
                });
                assert_eq!(columns.count_ones(), vectors);
            }
        }
    }

    #[test]
    fn codes_of_every_width_have_a_product_whose_tiles_cover_their_rows() {
        for form in [Form::Nn, Form::Nt] {
            for n in [1, 16, 17, 40, 47, 64, 65, 72, 4096] {
                for format in [Format::F16, Format::BF16] {
                    let entry = coded_product(form, format, n).expect("built");
                    let tile = Tile::for_columns(n);
                    assert_eq!((entry.form, entry.columns), (form, tile.columns));
                    let codes = crate::quantize::row_codes(n.into());
                    assert!(u64::from(tile.across(n) * tile.columns) >= codes, "{n}");
                }
                assert_eq!(coded_product(form, Format::F32, n), None);
            }
        }
        assert_eq!(coded_product(Form::Tn, Format::F16, 8), None);
    }

    #[test]
    fn every_product_that_is_promised_is_built() {
        for form in [Form::Nn, Form::Nt, Form::Tn] {
            for n in [1, 7, 16, 17, 32, 33, 64, 65, 4096] {
                for (input, output) in [
                    (Format::F16, Format::F16),
                    (Format::F16, Format::F32),
                    (Format::F32, Format::F32),
                ] {
                    let plain = product(form, Operand::Plain, input, output, n).expect("built");
                    assert_eq!(plain.columns, Tile::for_columns(n).columns);
                    let normalized = product(form, Operand::Normalized, input, output, n);
                    let wanted = match form {
                        Form::Nn => input == output,
                        Form::Nt => false,
                        Form::Tn => output == Format::F32,
                    };
                    assert_eq!(
                        normalized.is_some(),
                        wanted,
                        "{form:?} {input:?} {output:?}"
                    );
                    let codes = product(form, Operand::Codes, input, output, n);
                    let wanted = (form, input, output) == (Form::Tn, Format::F16, Format::F32);
                    assert_eq!(codes.is_some(), wanted, "{form:?} {input:?} {output:?}");
                    let pair = product(form, Operand::Pair, input, output, n);
                    let wanted = form == Form::Nn && input == output;
                    assert_eq!(pair.is_some(), wanted, "{form:?} {input:?} {output:?}");
                }
                assert_eq!(
                    product(form, Operand::Plain, Format::F32, Format::F16, n),
                    None
                );
            }
        }
        for output in [Format::F16, Format::F32] {
            assert!(
                ENTRIES
                    .iter()
                    .flat_map(|family| family.iter())
                    .any(|entry| Some(entry.name) == reduction(output))
            );
        }
    }
}
