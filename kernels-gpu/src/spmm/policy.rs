//! What an SpMM variant is made of. Each is a type without values; a kernel names one of each kind.

use super::sums::{Both, One, Sums};
use crate::attention::weight::Ends;
use crate::device::float::{self, mul_add};
use crate::device::global::Global;
use crate::device::half;
use crate::device::registers::recomputed;
use crate::device::thread::block_idx_z;
use crate::device::vector::{Floats, HalfVector, Input, Vector};
use halfgnn_contract::attention::{DROPOUT, EdgeAttention, leaky_relu_derivative, weight_by};
use halfgnn_contract::spmm::SpmmParams;

/// Where the weights of edges come from. A weight is a word as [`Vector::weights`] caches it, unless
/// [`Weights::IN_FLOAT`].
pub trait Weights {
    /// Whether there are weights at all.
    const WEIGHTED: bool;
    /// Whether the word holds a float whatever the element.
    const IN_FLOAT: bool;
    /// Whether each head has its own.
    const BY_HEAD: bool;
    /// Whether they depend on the row, which else need not be known here.
    const OF_ROWS: bool = false;
    /// Whether each edge has a term beside its weight, a number that is added up with no row of `x`.
    const TERMED: bool = false;

    /// The weights of edges `edge .. edge + 4`, which have these rows and columns.
    ///
    /// # Safety
    /// The edges are edges of the graph, and `edge` is a multiple of 4.
    #[inline(always)]
    unsafe fn four<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        rows: [u32; 4],
        columns: [u32; 4],
    ) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                Self::one::<V>(params, edge, rows[0], columns[0]),
                Self::one::<V>(params, edge + 1, rows[1], columns[1]),
                Self::one::<V>(params, edge + 2, rows[2], columns[2]),
                Self::one::<V>(params, edge + 3, rows[3], columns[3]),
            ]
        }
    }
    /// The weight of one edge.
    ///
    /// # Safety
    /// It is an edge of the graph.
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, row: u32, column: u32) -> u32;
    /// As [`Weights::four`], with their terms.
    ///
    /// # Safety
    /// As [`Weights::four`].
    #[inline(always)]
    unsafe fn four_termed<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        rows: [u32; 4],
        columns: [u32; 4],
    ) -> ([u32; 4], [f32; 4]) {
        // SAFETY: the caller's promise.
        (
            unsafe { Self::four::<V>(params, edge, rows, columns) },
            [0.0; 4],
        )
    }
    /// The weight of one edge, and its term.
    ///
    /// # Safety
    /// As [`Weights::one`].
    #[inline(always)]
    unsafe fn termed<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        row: u32,
        column: u32,
    ) -> (u32, f32) {
        // SAFETY: the caller's promise.
        (unsafe { Self::one::<V>(params, edge, row, column) }, 0.0)
    }
}

/// All ones, and no array at all: SpMMv.
pub struct Ones;

impl Ones {
    /// Nothing reads it.
    const WORD: u32 = 0;
}

impl Weights for Ones {
    const WEIGHTED: bool = false;
    const IN_FLOAT: bool = false;
    const BY_HEAD: bool = false;
    #[inline(always)]
    unsafe fn one<V: Vector>(_: &SpmmParams, _: u64, _: u32, _: u32) -> u32 {
        Self::WORD
    }
}

/// One an edge, loaded as vectors and mirrored: SpMMve.
pub struct EdgeFeatures;

impl Weights for EdgeFeatures {
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = false;
    const BY_HEAD: bool = true;
    #[inline(always)]
    unsafe fn four<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        _: [u32; 4],
        _: [u32; 4],
    ) -> [u32; 4] {
        // SAFETY: a plane is as long as there are edges and 16-byte aligned, and `edge` is a multiple of 4.
        unsafe { V::weights(Self::plane(params).at(edge)) }
    }
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, _: u32, _: u32) -> u32 {
        // SAFETY: a plane is as long as there are edges.
        unsafe { V::weight(Self::plane(params).at(edge)) }
    }
}

impl EdgeFeatures {
    /// The features of the CTA's head, or other numbers of edges in their place.
    #[inline(always)]
    fn plane<T>(params: &SpmmParams) -> Global<T> {
        Global::new(params.edge_weights).at(block_idx_z() as u64 * params.edge_plane_stride)
    }
}

/// One float an edge and head, whatever the elements.
pub struct EdgeFloats;

impl Weights for EdgeFloats {
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = true;
    const BY_HEAD: bool = true;
    #[inline(always)]
    unsafe fn four<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        _: [u32; 4],
        _: [u32; 4],
    ) -> [u32; 4] {
        let four = EdgeFeatures::plane::<f32>(params).at(edge);
        // SAFETY: a plane is as long as there are edges and 16-byte aligned, and `edge` is a multiple of 4.
        unsafe { Global::<[u32; 4]>::cast(four).read() }
    }
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, _: u32, _: u32) -> u32 {
        // SAFETY: a plane is as long as there are edges.
        unsafe { EdgeFeatures::plane::<f32>(params).at(edge).read() }.to_bits()
    }
}

/// A float factor of each column: the left degree norm, without a pass over the input.
pub struct ColumnScale;

impl Weights for ColumnScale {
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = true;
    const BY_HEAD: bool = false;
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, _: u64, _: u32, column: u32) -> u32 {
        // SAFETY: the array is as long as there are columns, and the host validated the columns.
        unsafe {
            Global::<f32>::new(params.column_scale)
                .at(column as u64)
                .read()
        }
        .to_bits()
    }
}

/// Attention of the CTA's head, computed in float from scores and statistics of the two vertices: no array of edges is
/// read or written.
pub type Attention = OfAttention<false>;

/// [`Attention`] whose sums of scores have a bias each: planes of floats in the place of the edge weights.
pub type BiasedAttention = OfAttention<true>;

/// Attention, with a bias an edge or without.
pub struct OfAttention<const BIASED: bool>;

/// Where the sum of the scores of an edge comes from.
pub trait SumsOfScores {
    /// That of one edge.
    ///
    /// # Safety
    /// It is an edge of the graph, which has these ends.
    unsafe fn one(params: &SpmmParams, edge: u64, ends: Ends) -> f32;
    /// Those of edges `edge .. edge + 4`.
    ///
    /// # Safety
    /// They are edges of the graph, which have these ends, and `edge` is a multiple of 4.
    unsafe fn four(params: &SpmmParams, edge: u64, ends: [Ends; 4]) -> [f32; 4];
}

/// From the scores of its ends, and its bias where there are some.
pub struct OfEnds<const BIASED: bool>;

impl<const BIASED: bool> SumsOfScores for OfEnds<BIASED> {
    #[inline(always)]
    unsafe fn one(params: &SpmmParams, edge: u64, ends: Ends) -> f32 {
        // SAFETY: planes have a number for each vertex and edge, and the host validated rows and columns.
        unsafe { biased::<BIASED>(params, edge, ends.sum_of_scores(&params.attention)) }
    }
    #[inline(always)]
    unsafe fn four(params: &SpmmParams, edge: u64, ends: [Ends; 4]) -> [f32; 4] {
        // SAFETY: as above.
        unsafe {
            let sums = ends.map(|ends| ends.sum_of_scores(&params.attention));
            let biased = |i: usize| biased::<BIASED>(params, edge + i as u64, sums[i]);
            [biased(0), biased(1), biased(2), biased(3)]
        }
    }
}

/// From a plane of edges, as the softmax left them: four bytes where the edge lies, and none of a source somewhere.
pub struct Stored;

impl Stored {
    /// The plane of the CTA's head.
    #[inline(always)]
    fn plane(params: &SpmmParams) -> Global<f32> {
        Global::new(params.attention.sums).at(block_idx_z() as u64 * params.edge_plane_stride)
    }
}

impl SumsOfScores for Stored {
    #[inline(always)]
    unsafe fn one(params: &SpmmParams, edge: u64, _: Ends) -> f32 {
        // SAFETY: a plane is as long as there are edges.
        unsafe { Self::plane(params).at(edge).read() }
    }
    #[inline(always)]
    unsafe fn four(params: &SpmmParams, edge: u64, _: [Ends; 4]) -> [f32; 4] {
        let four = Global::<[u32; 4]>::cast(Self::plane(params).at(edge));
        // SAFETY: as above; planes are aligned to 16 bytes, and `edge` is a multiple of 4.
        unsafe { four.load_once_if(true) }.map(f32::from_bits)
    }
}

/// `sum` with the bias of the edge and the CTA's head, where there are any.
///
/// # Safety
/// It is an edge of the graph.
#[inline(always)]
unsafe fn biased<const BIASED: bool>(params: &SpmmParams, edge: u64, sum: f32) -> f32 {
    if BIASED {
        // SAFETY: a plane is as long as there are edges.
        sum + unsafe { EdgeFeatures::plane::<f32>(params).at(edge).read() }
    } else {
        sum
    }
}

impl<const BIASED: bool> Weights for OfAttention<BIASED> {
    const OF_ROWS: bool = true;
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = true;
    const BY_HEAD: bool = true;
    #[inline(always)]
    unsafe fn four<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        rows: [u32; 4],
        columns: [u32; 4],
    ) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe { four_weights::<OfEnds<BIASED>>(params, edge, ends_of(params, rows, columns)).0 }
            .map(f32::to_bits)
    }
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, row: u32, column: u32) -> u32 {
        let of = &params.attention;
        let ends = Ends::new(of, block_idx_z(), row, column);
        // SAFETY: planes have a number for each vertex and edge, and the host validated rows and columns.
        unsafe {
            let sum = OfEnds::<BIASED>::one(params, edge, ends);
            ends.dropout(of, ends.weight(of, sum)).to_bits()
        }
    }
}

/// The ends of four edges.
#[inline(always)]
fn ends_of(params: &SpmmParams, rows: [u32; 4], columns: [u32; 4]) -> [Ends; 4] {
    let of = |i: usize| Ends::new(&params.attention, block_idx_z(), rows[i], columns[i]);
    [of(0), of(1), of(2), of(3)]
}

/// Weights of edges `edge .. edge + 4`, which have these ends, and the sums of their scores. What is asked of memory is asked for all four
/// before one is computed, and dropout is a branch of its own: within each edge it had the loads of the next wait for it.
///
/// # Safety
/// The edges are edges of the graph.
#[inline(always)]
unsafe fn four_weights<S: SumsOfScores>(
    params: &SpmmParams,
    edge: u64,
    ends: [Ends; 4],
) -> ([f32; 4], [f32; 4]) {
    let of = &params.attention;
    // SAFETY: planes have a number for each vertex and edge, and the host validated rows and columns.
    unsafe {
        let statistics = ends.map(|ends| ends.statistics(of));
        let sums = S::four(params, edge, ends);
        let of_edge = |i: usize| weight_by(sums[i], of.slope, statistics[i], mul_add);
        let weights = [of_edge(0), of_edge(1), of_edge(2), of_edge(3)];
        (dropped(of, ends, weights), sums)
    }
}

/// What becomes of the weights of four edges by dropout.
///
/// # Safety
/// As [`Ends::dropout`].
#[inline(always)]
unsafe fn dropped(of: &EdgeAttention, ends: [Ends; 4], weights: [f32; 4]) -> [f32; 4] {
    if of.flags & DROPOUT == 0 {
        return weights;
    }
    let of_edge = |i: usize| {
        // Round keys take fewer instructions than registers, for each edge anew.
        let key = || [recomputed(of.key[0]), recomputed(of.key[1])];
        // SAFETY: the caller's promise.
        unsafe { ends[i].dropped(of, key, weights[i]) }
    };
    [of_edge(0), of_edge(1), of_edge(2), of_edge(3)]
}

/// The sign of a weight that tells edges apart and is no part of it: set where the sum of scores is not positive.
pub const SIGN: u32 = 1 << 31;

/// A signed weight as that of the sum of all edges, and as that of the sum of the positive ones.
#[inline(always)]
pub fn both_weights(weight: u32) -> [f32; 2] {
    let all = f32::from_bits(weight & !SIGN);
    [all, if weight & SIGN == 0 { all } else { 0.0 }]
}

/// `weight`, which is not negative, with the sign of the sum of scores. A NaN takes neither side: it is of both sums.
#[inline(always)]
fn signed(weight: f32, sum_of_scores: f32) -> u32 {
    let sign = if sum_of_scores <= 0.0 { SIGN } else { 0 };
    weight.to_bits() & !SIGN | sign
}

/// As [`Attention`], with the sign of the sum of scores.
pub type SignedAttention = OfSignedAttention<OfEnds<false>>;

/// As [`BiasedAttention`], with the sign of the sum of scores and bias.
pub type SignedBiasedAttention = OfSignedAttention<OfEnds<true>>;

/// As [`SignedAttention`], of sums of scores that are stored.
pub type StoredAttention = OfSignedAttention<Stored>;

/// Attention with a sign, of sums of scores from wherever they come.
pub struct OfSignedAttention<S>(core::marker::PhantomData<S>);

impl<S: SumsOfScores> Weights for OfSignedAttention<S> {
    const OF_ROWS: bool = true;
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = true;
    const BY_HEAD: bool = true;
    #[inline(always)]
    unsafe fn four<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        rows: [u32; 4],
        columns: [u32; 4],
    ) -> [u32; 4] {
        let ends = ends_of(params, rows, columns);
        // SAFETY: the caller's promise.
        let (weights, sums) = unsafe { four_weights::<S>(params, edge, ends) };
        let of = |i: usize| signed(weights[i], sums[i]);
        [of(0), of(1), of(2), of(3)]
    }
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, row: u32, column: u32) -> u32 {
        let of = &params.attention;
        let ends = Ends::new(of, block_idx_z(), row, column);
        // SAFETY: planes have a number for each vertex and edge, and the host validated rows and columns.
        unsafe {
            let sum = S::one(params, edge, ends);
            signed(ends.dropout(of, ends.weight(of, sum)), sum)
        }
    }
}

/// The record of an edge's destination.
///
/// # Safety
/// The launch contract; it is an edge of the graph.
#[inline(always)]
unsafe fn record_of(params: &SpmmParams, ends: Ends) -> [u32; 4] {
    let at = ends.destination_at(&params.attention);
    // SAFETY: there is a record for each vertex and head.
    unsafe { Global::new(params.records).at(at).load() }
}

/// As [`SignedAttention`], from a record of the destination; an edge's term is `leaky' · α · v`, not dropped, with the
/// number `v` of its destination.
pub type AttentionGradient = OfAttentionGradient<false>;

/// As [`AttentionGradient`], with a bias an edge.
pub type BiasedAttentionGradient = OfAttentionGradient<true>;

/// The gradient of attention, with a bias an edge or without.
pub struct OfAttentionGradient<const BIASED: bool>;

impl<const BIASED: bool> Weights for OfAttentionGradient<BIASED> {
    const OF_ROWS: bool = true;
    const WEIGHTED: bool = true;
    const IN_FLOAT: bool = true;
    const BY_HEAD: bool = true;
    const TERMED: bool = true;
    /// As [`four_weights`] has it.
    #[inline(always)]
    unsafe fn four_termed<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        rows: [u32; 4],
        columns: [u32; 4],
    ) -> ([u32; 4], [f32; 4]) {
        let of = &params.attention;
        let ends = ends_of(params, rows, columns);
        // SAFETY: planes have a number for each vertex, records one as well, and the host validated rows and columns.
        unsafe {
            let records = ends.map(|ends| record_of(params, ends).map(f32::from_bits));
            let sources = ends.map(|ends| ends.source_score(of));
            let sum =
                |i: usize| biased::<BIASED>(params, edge + i as u64, records[i][2] + sources[i]);
            let sums = [sum(0), sum(1), sum(2), sum(3)];
            let alpha = |i: usize| {
                let statistics = [records[i][0], records[i][1]];
                weight_by(sums[i], of.slope, statistics, mul_add)
            };
            let alphas = [alpha(0), alpha(1), alpha(2), alpha(3)];
            let term =
                |i: usize| leaky_relu_derivative(sums[i], of.slope) * alphas[i] * records[i][3];
            let terms = [term(0), term(1), term(2), term(3)];
            let weights = dropped(of, ends, alphas);
            let signed = |i: usize| signed(weights[i], sums[i]);
            ([signed(0), signed(1), signed(2), signed(3)], terms)
        }
    }
    #[inline(always)]
    unsafe fn one<V: Vector>(params: &SpmmParams, edge: u64, row: u32, column: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::termed::<V>(params, edge, row, column) }.0
    }
    #[inline(always)]
    unsafe fn termed<V: Vector>(
        params: &SpmmParams,
        edge: u64,
        row: u32,
        column: u32,
    ) -> (u32, f32) {
        let of = &params.attention;
        let ends = Ends::new(of, block_idx_z(), row, column);
        // SAFETY: planes have a number for each vertex, records one as well, and the host validated rows and columns.
        unsafe {
            let record: [u32; 4] = record_of(params, ends);
            let [m, reciprocal_z, l, v] = record.map(f32::from_bits);
            let sum = biased::<BIASED>(params, edge, l + ends.source_score(of));
            let alpha = weight_by(sum, of.slope, [m, reciprocal_z], mul_add);
            let term = leaky_relu_derivative(sum, of.slope) * alpha * v;
            (signed(ends.dropout(of, alpha), sum), term)
        }
    }
}

/// Where the factor of a row is multiplied (HalfGNN §4.3.1).
pub trait Scaling {
    /// Whether each product is scaled before it is added.
    const EACH_PRODUCT: bool;
    /// Whether parts of a row are added to the output by atomics, and not merged.
    const ATOMIC: bool = false;
    /// Whether more is done to a row where it is written: [`epilogue`](super::epilogue).
    const EPILOGUE: bool = false;
    /// What changes nothing when it is merged.
    const IDENTITY: f32 = 0.0;
    /// What a batch's sum is when it leaves the batch.
    fn leave<F: Floats>(sum: F, scale: f32) -> F;
    /// Two partial sums of one row as one.
    fn both(a: f32, b: f32) -> f32;
    /// The same of several columns.
    #[inline(always)]
    fn merge<F: Floats>(a: F, b: F) -> F {
        a.zip(b, Self::both)
    }
    /// The row, from all its sums.
    fn complete<F: Floats>(sum: F, scale: f32) -> F;
}

#[inline(always)]
fn add_in_half(a: f32, b: f32) -> f32 {
    half::to_f32(half::from_f32(a + b))
}

/// Each batch is scaled in float, and batches are added in float: the range of half is left nowhere before the end.
pub type Discretized = Batches<false, false>;

/// [`Discretized`], with an epilogue.
pub type Finished = Batches<true, false>;

/// [`Discretized`], but what is not the whole of a row is added to the output by atomics, in the output's precision: for
/// comparison (HalfGNN §5.3.2).
pub type Atomic = Batches<false, true>;

/// Batches that are scaled one by one; whether a row has an epilogue, and whether its parts are added by atomics.
pub struct Batches<const EPILOGUE: bool, const ATOMIC: bool>;

impl<const EPILOGUE: bool, const ATOMIC: bool> Scaling for Batches<EPILOGUE, ATOMIC> {
    const EACH_PRODUCT: bool = false;
    const ATOMIC: bool = ATOMIC;
    const EPILOGUE: bool = EPILOGUE;
    #[inline(always)]
    fn leave<F: Floats>(sum: F, scale: f32) -> F {
        sum.map(|value| value * scale)
    }
    #[inline(always)]
    fn both(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn complete<F: Floats>(sum: F, _: f32) -> F {
        sum
    }
}

/// No sum but the largest product, scaled once. A maximum is exact in every precision and order.
pub struct Maximum;

impl Scaling for Maximum {
    const EACH_PRODUCT: bool = false;
    const IDENTITY: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn leave<F: Floats>(largest: F, _: f32) -> F {
        largest
    }
    #[inline(always)]
    fn both(a: f32, b: f32) -> f32 {
        float::max(a, b)
    }
    #[inline(always)]
    fn complete<F: Floats>(largest: F, scale: f32) -> F {
        largest.map(|value| value * scale)
    }
}

/// The whole row is added in half and scaled once, as frameworks do: for comparison.
pub struct PostReduction;

impl Scaling for PostReduction {
    const EACH_PRODUCT: bool = false;
    #[inline(always)]
    fn leave<F: Floats>(sum: F, _: f32) -> F {
        sum
    }
    #[inline(always)]
    fn both(a: f32, b: f32) -> f32 {
        add_in_half(a, b)
    }
    #[inline(always)]
    fn complete<F: Floats>(sum: F, scale: f32) -> F {
        sum.map(|value| value * scale)
    }
}

/// Each product is scaled in half before it is added in half: for comparison.
pub struct PreReduction;

impl Scaling for PreReduction {
    const EACH_PRODUCT: bool = true;
    #[inline(always)]
    fn leave<F: Floats>(sum: F, _: f32) -> F {
        sum
    }
    #[inline(always)]
    fn both(a: f32, b: f32) -> f32 {
        add_in_half(a, b)
    }
    #[inline(always)]
    fn complete<F: Floats>(sum: F, _: f32) -> F {
        sum
    }
}

/// Which sums walk edges [by eight](super::edge_parallel).
#[derive(Clone, Copy)]
pub enum ByEight {
    /// None.
    None,
    /// Those of edges of weight 1.
    OfOnes,
    /// All.
    All,
}

impl ByEight {
    /// Whether those with or without weights do.
    #[inline(always)]
    pub const fn has(self, weighted: bool) -> bool {
        match self {
            Self::None => false,
            Self::OfOnes => !weighted,
            Self::All => true,
        }
    }
}

/// What a batch is added up in, or how its largest is found.
pub trait Accumulate<V: Vector> {
    /// What a lane loads of a row of `x`: as many elements as `V` has.
    type Input: Input;
    /// The sum of a batch so far.
    type Sum: Copy;
    /// What batches leave, and what a row adds up to.
    type Sums: Sums<V>;
    /// Which edges are walked by eight and not by four: twice as many rows under way, which a sum of few registers leaves room for.
    const BY_EIGHT: ByEight = ByEight::None;
    /// The sum of no edge.
    fn zero() -> Self::Sum;
    /// The sum of no edge of row `row`, whose load `load` is the lane's.
    ///
    /// # Safety
    /// The launch contract; there are such a row and load.
    #[inline(always)]
    unsafe fn start(_params: &SpmmParams, _row: u32, _load: u32) -> Self::Sum {
        Self::zero()
    }
    /// One more edge of weight 1.
    fn add(sum: Self::Sum, x: Self::Input) -> Self::Sum;
    /// One more edge.
    fn add_weighted<W: Weights>(sum: Self::Sum, weight: u32, x: Self::Input) -> Self::Sum;
    /// One more edge, its product scaled and rounded before it is added.
    fn add_scaled<W: Weights>(sum: Self::Sum, weight: u32, scale: f32, x: Self::Input)
    -> Self::Sum;
    /// The term of one more edge.
    #[inline(always)]
    fn add_term(sum: Self::Sum, _term: f32) -> Self::Sum {
        sum
    }
    /// Whether weights are whole numbers, as [`Accumulate::whole_weights`] makes them of a warp's, and four edges are added at once
    /// ([`Accumulate::add_four`]), none alone.
    const WHOLE_WEIGHTS: bool = false;
    /// The words of four edges in the place of their weights, which are `factor` times as large and rounded.
    #[inline(always)]
    fn whole_weights(weights: [u32; 4], _factor: f32) -> [u32; 4] {
        weights
    }
    /// What four edges' rows of `x` are as [`Accumulate::add_four`] takes them.
    #[inline(always)]
    fn together(x: [Self::Input; 4]) -> [Self::Input; 4] {
        x
    }
    /// Four edges' words with no weight of those whose bits are not in `edges`.
    #[inline(always)]
    fn weights_of(words: [u32; 4], _edges: u32) -> [u32; 4] {
        words
    }
    /// Four more edges.
    #[inline(always)]
    fn add_four(sum: Self::Sum, _words: [u32; 4], _x: [Self::Input; 4]) -> Self::Sum {
        sum
    }
    /// Whether some of eight edges of weight 1 are added at little cost ([`Accumulate::add_some`]).
    const ADDS_SOME: bool = false;
    /// Those of eight edges whose bits are in `edges`.
    #[inline(always)]
    fn add_some(sum: Self::Sum, _x: [[Self::Input; 4]; 2], _edges: u32) -> Self::Sum {
        sum
    }
    /// The sum in float, exactly.
    fn finish(sum: Self::Sum) -> Self::Sums;
}

/// `sum` with one more edge, `(weight, term, x)`, of a row whose factor is `scale`.
#[inline(always)]
pub fn add<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(
    sum: A::Sum,
    scale: f32,
    (weight, term, x): (u32, f32, A::Input),
) -> A::Sum {
    let sum = if S::EACH_PRODUCT {
        A::add_scaled::<W>(sum, weight, scale, x)
    } else if W::WEIGHTED {
        A::add_weighted::<W>(sum, weight, x)
    } else {
        A::add(sum, x)
    };
    if W::TERMED {
        A::add_term(sum, term)
    } else {
        sum
    }
}

/// In the element's own precision: half2 arithmetic, as in the paper.
pub struct InHalf;

impl<V: HalfVector> Accumulate<V> for InHalf {
    type Input = V;
    type Sum = V;
    type Sums = One<V>;
    // Shorter loads are many more lanes' for a row.
    const BY_EIGHT: ByEight = match V::WIDTH {
        8 => ByEight::OfOnes,
        _ => ByEight::None,
    };
    #[inline(always)]
    fn zero() -> V {
        V::zero()
    }
    #[inline(always)]
    fn add(sum: V, x: V) -> V {
        sum.add(x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: V, weight: u32, x: V) -> V {
        const { assert!(!W::IN_FLOAT, "float weights are accumulated in float") };
        x.scale_add(weight, sum)
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: V, weight: u32, scale: f32, x: V) -> V {
        sum.add(if W::WEIGHTED { x.scale(weight) } else { x }.scale(V::weight_from_f32(scale)))
    }
    #[inline(always)]
    fn finish(sum: V) -> One<V> {
        One(sum.widen())
    }
}

#[inline(always)]
fn weight_in_float<V: Vector, W: Weights>(weight: u32) -> f32 {
    if W::IN_FLOAT {
        f32::from_bits(weight)
    } else {
        V::weight_to_f32(weight)
    }
}

/// In float.
pub struct InFloat;

impl<V: Vector> Accumulate<V> for InFloat {
    type Input = V;
    type Sum = V::Floats;
    type Sums = One<V>;
    #[inline(always)]
    fn zero() -> V::Floats {
        V::Floats::ZERO
    }
    #[inline(always)]
    fn add(sum: V::Floats, x: V) -> V::Floats {
        sum.zip(x.widen(), |sum, x| sum + x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: V::Floats, weight: u32, x: V) -> V::Floats {
        let weight = if W::IN_FLOAT {
            f32::from_bits(weight)
        } else {
            V::weight_to_f32(weight)
        };
        sum.zip(x.widen(), |sum, x| mul_add(x, weight, sum))
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: V::Floats, weight: u32, scale: f32, x: V) -> V::Floats {
        let weight = if W::WEIGHTED {
            weight_in_float::<V, W>(weight)
        } else {
            1.0
        };
        sum.zip(x.widen(), |sum, x| sum + x * weight * scale)
    }
    #[inline(always)]
    fn finish(sum: V::Floats) -> One<V> {
        One(sum)
    }
}

/// Two sums in float: of all edges, and of those whose weight has a positive sign.
pub struct BothInFloat;

impl<V: Vector> Accumulate<V> for BothInFloat {
    type Input = V;
    type Sum = Both<V>;
    type Sums = Both<V>;
    #[inline(always)]
    fn zero() -> Both<V> {
        Sums::zero()
    }
    #[inline(always)]
    fn add(sum: Both<V>, x: V) -> Both<V> {
        let x = x.widen();
        Both {
            all: sum.all.zip(x, |sum, x| sum + x),
            positive: sum.positive.zip(x, |sum, x| sum + x),
            ..sum
        }
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: Both<V>, weight: u32, x: V) -> Both<V> {
        const { assert!(W::IN_FLOAT, "a sign is told apart from a weight") };
        let [all, positive] = both_weights(weight);
        let x = x.widen();
        Both {
            all: sum.all.zip(x, |sum, x| mul_add(x, all, sum)),
            positive: sum.positive.zip(x, |sum, x| mul_add(x, positive, sum)),
            ..sum
        }
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: Both<V>, weight: u32, scale: f32, x: V) -> Both<V> {
        let weight = f32::from_bits(weight) * scale;
        Self::add_weighted::<W>(sum, weight.to_bits(), x)
    }
    #[inline(always)]
    fn add_term(sum: Both<V>, term: f32) -> Both<V> {
        sum.with_term(sum.term + term)
    }
    #[inline(always)]
    fn finish(sum: Both<V>) -> Both<V> {
        sum
    }
}

/// The largest product so far, in the elements' own precision.
pub struct Largest;

impl<V: Vector> Accumulate<V> for Largest {
    type Input = V;
    type Sum = V;
    type Sums = One<V>;
    #[inline(always)]
    fn zero() -> V {
        V::lowest()
    }
    #[inline(always)]
    fn add(largest: V, x: V) -> V {
        largest.max(x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(largest: V, weight: u32, x: V) -> V {
        const { assert!(!W::IN_FLOAT, "products are rounded to the elements") };
        largest.max(x.scale(weight))
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(largest: V, weight: u32, scale: f32, x: V) -> V {
        largest.max(if W::WEIGHTED { x.scale(weight) } else { x }.scale(V::weight_from_f32(scale)))
    }
    #[inline(always)]
    fn finish(largest: V) -> One<V> {
        One(largest.widen())
    }
}
