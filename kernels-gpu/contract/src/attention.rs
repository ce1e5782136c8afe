//! Attention over the edges of a graph (GAT): what an edge's weight is, written once for every kernel that computes it
//! and for the CPU.
//!
//! Row `i` hears from column `j` over edge `(i, j)`. Each head has a score a vertex as destination, `l`, and one as
//! source, `r`; with `e(i,j) = LeakyReLU(l[i] + r[j])` the weight of the edge is the softmax over the edges of the row,
//! `α(i,j) = exp(e(i,j) − m[i]) / z[i]`, where `m[i]` is the largest `e` of the row and `z[i]` the sum of the
//! exponentials. No kernel stores `α` unless it is asked to: from `l`, `r`, `m` and `1/z` it is had by one exponential,
//! whose argument is never positive. `l[i] + r[j]` can be stored by the kernel that makes `m` and `z`: to read four bytes where an edge lies
//! takes less than to look `r[j]` up, which is a sector of 32 bytes somewhere.
//!
//! # Layouts
//! - Numbers of destinations, and of sources, lie in planes, one a head: that of vertex `v` and head `h` at `h · n + v`, in
//!   float, where there are `n` of them. In a graph of one kind of vertices both are its vertices.
//! - Numbers of edges lie in planes, one a head, each [`edge_plane_stride`] long: that of edge `k` and head `h` at
//!   `h · edge_plane_stride(edges) + k`, edges in the order of the adjacency.
//! - Features of vertices with `H` heads are one matrix of `H · D` columns, where `D`, the width of a head, fills whole
//!   16-byte vectors if there is more than one head.

use crate::format::table;
use crate::math::exp_nonpositive_by;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Edges of a row of the adjacency are those of a source: destination and source change places.
pub const TRANSPOSED: u32 = 1;
/// Weights are dropped.
pub const DROPOUT: u32 = 2;

param_struct! {
    /// What the weight of an edge is made of; part of the parameters of the kernels that compute it.
    pub struct EdgeAttention {
        /// Score of each vertex as destination, a plane a head.
        pub destination: DevicePtr<f32>,
        /// Score of each vertex as source, a plane a head.
        pub source: DevicePtr<f32>,
        /// `m` and `1/z` of each vertex as destination, side by side; a plane a head. Aligned to 8 bytes.
        pub statistics: DevicePtr<[f32; 2]>,
        /// The step of the dropout's numbers: the word [`ATTEMPTS`](crate::optimizer::state::ATTEMPTS) of the optimiser's state, on
        /// the device so that a recorded step drops other edges whenever it is replayed. Read with [`DROPOUT`].
        pub step: DevicePtr<u32>,
        /// `l[i] + r[j]` of each edge, and its bias where there are biases: planes of edges, which the softmax writes and sums over the
        /// edges read in the place of scores and biases. Null for none.
        pub sums: DevicePtr<f32>,
        /// Length of a plane of numbers of destinations.
        pub destinations: u32,
        /// Slope of the LeakyReLU below zero.
        pub slope: f32,
        /// [`TRANSPOSED`], [`DROPOUT`].
        pub flags: u32,
        /// Key of the dropout's numbers.
        pub key: [u32; 2],
        /// Numbers below it drop their edge.
        pub threshold: u32,
        /// Factor of the weights that are kept.
        pub keep_scale: f32,
        /// Length of a plane of numbers of sources.
        pub sources: u32,
    }
}

impl EdgeAttention {
    /// For a kernel that computes no attention.
    pub const NONE: Self = Self {
        destination: DevicePtr::NULL,
        source: DevicePtr::NULL,
        statistics: DevicePtr::NULL,
        step: DevicePtr::NULL,
        sums: DevicePtr::NULL,
        destinations: 0,
        slope: 0.0,
        flags: 0,
        key: [0; 2],
        threshold: 0,
        keep_scale: 1.0,
        sources: 0,
    };
}

param_struct! {
    /// Parameters of `attention_records`: what an edge wants to know of its destination, side by side, so that whoever comes
    /// to destinations in no order reads 32 bytes of memory for each, not three times as many. Record `k` is
    /// `[m, 1/z, l, v]`, with a thread of its own. Heads play no part: all planes are as long.
    pub struct RecordsParams {
        /// `m` and `1/z`.
        pub statistics: DevicePtr<[f32; 2]>,
        /// `l`, the scores as destination.
        pub destination: DevicePtr<f32>,
        /// Numbers `v` of the vertices as destinations.
        pub values: DevicePtr<f32>,
        /// The records; aligned to 16 bytes.
        pub records: DevicePtr<[f32; 4]>,
        /// Length of each array: vertices times heads.
        pub len: u64,
    }
}

/// Threads of a CTA of an `edge_` kernel; each takes one 16-byte vector of edges.
pub const EDGE_THREADS_PER_CTA: u32 = 128;

param_struct! {
    /// Parameters of the `edge_` kernels: a step of an edge softmax, from planes of edges to planes of edges. Heads are
    /// CTAs in y. A number is widened to float, computed with, and rounded once. What lies between the edges and the
    /// next plane is written as zero.
    ///
    /// With `x` and `f` of the edge, `v` of its row, and `s` the sum of its two scores:
    ///
    /// | entry | `y` |
    /// |---|---|
    /// | `edge_scores` | `LeakyReLU(s)` |
    /// | `edge_scores_backward` | `x · LeakyReLU'(s)` |
    /// | `edge_exp` | `exp(x − v)` |
    /// | `edge_divide` | `x / v`, 0 where `v` is 0 |
    /// | `edge_softmax_backward` | `f · (x − v)` |
    /// | `edge_dropout` | `x · keep_scale`, or 0 |
    /// | `edge_bias_gradient` | `LeakyReLU'(s + b) · α · (dropout(x) − v)` |
    ///
    /// The last has planes of floats whatever the entry, `b`, the biases, in the place of `f`, and `y`; and a thread a number.
    pub struct EdgeMapParams {
        /// Row of each edge; `edges` long, 16-byte aligned.
        pub rows: DevicePtr<u32>,
        /// Column of each edge; `edges` long, 16-byte aligned.
        pub columns: DevicePtr<u32>,
        /// Planes of edges; [`HalfBits`], or floats for float entries. `edge_scores` does not use it.
        pub x: DevicePtr<HalfBits>,
        /// Planes of edges, for `edge_softmax_backward`.
        pub f: DevicePtr<HalfBits>,
        /// Output, planes of edges; may be `x`.
        pub y: DevicePtr<HalfBits>,
        /// A number a row, a plane a head.
        pub v: DevicePtr<f32>,
        /// Distance of two planes of edges: [`edge_plane_stride`].
        pub plane_stride: u64,
        /// Number of edges.
        pub edges: u32,
        /// Length of a plane of numbers of rows.
        pub vertices: u32,
        /// Scores, slope and dropout, for the entries that take them.
        pub attention: EdgeAttention,
    }
}

/// CTAs in x of an `edge_` kernel, for vectors of `width` numbers.
#[inline]
pub const fn edge_ctas(edges: u32, width: u32) -> u32 {
    edges.div_ceil(EDGE_THREADS_PER_CTA * width)
}

/// CTAs in x of `edge_bias_gradient`, which also writes the ends of planes.
#[inline]
pub const fn edge_bias_ctas(edges: u32) -> u32 {
    edge_plane_stride(edges as u64).div_ceil(EDGE_THREADS_PER_CTA as u64) as u32
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! attention_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Scores of edges, from the vertices'.
                edge_scores(EdgeMapParams): F16 = edge_scores_f16, F32 = edge_scores_f32, BF16 = edge_scores_bf16;
                /// The gradient of `edge_scores`.
                edge_scores_backward(EdgeMapParams): F16 = edge_scores_backward_f16, F32 = edge_scores_backward_f32, BF16 = edge_scores_backward_bf16;
                /// Exponentials below the largest of the row.
                edge_exp(EdgeMapParams): F16 = edge_exp_f16, F32 = edge_exp_f32, BF16 = edge_exp_bf16;
                /// Quotients by a number of the row.
                edge_divide(EdgeMapParams): F16 = edge_divide_f16, F32 = edge_divide_f32, BF16 = edge_divide_bf16;
                /// The gradient of an edge softmax.
                edge_softmax_backward(EdgeMapParams): F16 = edge_softmax_backward_f16, F32 = edge_softmax_backward_f32, BF16 = edge_softmax_backward_bf16;
                /// The gradient of the biases of edges.
                edge_bias_gradient(EdgeMapParams): F16 = edge_bias_gradient_f16, F32 = edge_bias_gradient_f32, BF16 = edge_bias_gradient_bf16;
                /// Dropout of edges.
                edge_dropout(EdgeMapParams): F16 = edge_dropout_f16, F32 = edge_dropout_f32, BF16 = edge_dropout_bf16;
            }
            plain {
                /// Numbers of destinations, side by side.
                attention_records(RecordsParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[attention_entries!(table)];

/// Distance of two planes of numbers of edges, in numbers: the next multiple of 8, so that planes of halves start at
/// 16-byte boundaries as well.
#[inline]
pub const fn edge_plane_stride(edges: u64) -> u64 {
    edges.next_multiple_of(8)
}

/// `x` where it is positive, else `slope · x`. A NaN stays one.
#[inline]
pub const fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { slope * x }
}

/// The derivative of [`leaky_relu`]: 1 or `slope`.
#[inline]
pub const fn leaky_relu_derivative(x: f32, slope: f32) -> f32 {
    if x > 0.0 { 1.0 } else { slope }
}

/// The weight of an edge: `α`, from the sum of its two scores and its row's `m` and `1/z`. A score that is 88 above `m` or more, which no score of
/// the row is, has no weight that means anything.
#[inline]
pub fn weight(sum_of_scores: f32, slope: f32, statistics: [f32; 2]) -> f32 {
    weight_by(sum_of_scores, slope, statistics, |a, b, c| a * b + c)
}

/// [`weight`] with `mul_add` as [`exp_nonpositive_by`] has it.
#[inline(always)]
pub fn weight_by(
    sum_of_scores: f32,
    slope: f32,
    [m, reciprocal_z]: [f32; 2],
    mul_add: impl Fn(f32, f32, f32) -> f32,
) -> f32 {
    exp_nonpositive_by(leaky_relu(sum_of_scores, slope) - m, mul_add) * reciprocal_z
}

/// A running softmax: the largest score `m` so far, `z`, the sum of `exp(e − m)`, and the part of `z` that scores above
/// zero make, which is what the gradient of a LeakyReLU wants. Adding and joining never takes `exp` of a positive
/// number, so nothing overflows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// The largest score.
    pub m: f32,
    /// Sum of the exponentials.
    pub z: f32,
    /// Sum of the exponentials of the scores whose `l + r` is positive.
    pub positive: f32,
}

impl Softmax {
    /// Of no edge. The maximum is finite, so that two of them can be joined.
    pub const EMPTY: Self = Self {
        m: f32::MIN,
        z: 0.0,
        positive: 0.0,
    };

    /// Of one edge.
    #[inline]
    pub const fn of(sum_of_scores: f32, slope: f32) -> Self {
        Self {
            m: leaky_relu(sum_of_scores, slope),
            z: 1.0,
            positive: if sum_of_scores > 0.0 { 1.0 } else { 0.0 },
        }
    }

    /// Of the edges of both.
    #[inline]
    pub fn join(self, other: Self) -> Self {
        self.join_by(other, |a, b, c| a * b + c)
    }

    /// [`Softmax::join`] with `mul_add` as [`exp_nonpositive_by`] has it.
    #[inline(always)]
    pub fn join_by(self, other: Self, mul_add: impl Fn(f32, f32, f32) -> f32) -> Self {
        let ahead = self.m - other.m;
        let factor = exp_nonpositive_by(-ahead.abs(), mul_add);
        // One of the two is as it is, by the other's greater maximum the other one shrinks. A NaN makes NaN of `z`.
        let (m, [of_self, of_other]) = if ahead >= 0.0 {
            (self.m, [1.0, factor])
        } else {
            (other.m, [factor, 1.0])
        };
        Self {
            m,
            z: self.z * of_self + other.z * of_other,
            positive: self.positive * of_self + other.positive * of_other,
        }
    }

    /// `m` and `1/z`; zeros for no edge.
    #[inline]
    pub const fn statistics(self) -> [f32; 2] {
        if self.z == 0.0 {
            [0.0, 0.0]
        } else {
            [self.m, 1.0 / self.z]
        }
    }

    /// The share of the scores above zero in all weights of the row: `Σ α` over them.
    #[inline]
    pub const fn positive_share(self) -> f32 {
        if self.z == 0.0 {
            0.0
        } else {
            self.positive / self.z
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scores: &[f32]) -> Softmax {
        scores.iter().fold(Softmax::EMPTY, |softmax, &score| {
            softmax.join(Softmax::of(score, 0.2))
        })
    }

    #[test]
    fn weights_sum_to_one_at_any_size_of_scores() {
        for scores in [
            &[0.0f32][..],
            &[1.0, 1.0, 1.0],
            &[-65_504.0, -65_504.0],
            &[65_504.0, -65_504.0, 3.0],
            &[-1e30, 1e30],
            &[f32::MIN, f32::MIN],
        ] {
            let softmax = of(scores);
            let sum: f32 = scores
                .iter()
                .map(|&score| weight(score, 0.2, softmax.statistics()))
                .sum();
            assert!((sum - 1.0).abs() < 1e-6, "{scores:?}: {sum}");
            assert!(softmax.positive_share() <= 1.0);
        }
    }

    #[test]
    fn joining_is_joining_all() {
        let scores = [3.0, -2.0, 0.5, -40.0, 3.0, 7.25];
        let all = of(&scores);
        let parts = of(&scores[..2]).join(of(&scores[2..]));
        assert_eq!(parts.m, all.m);
        assert!((parts.z - all.z).abs() < 1e-6 && (parts.positive - all.positive).abs() < 1e-6);
        assert_eq!(Softmax::EMPTY.join(Softmax::EMPTY), Softmax::EMPTY);
        assert_eq!(Softmax::EMPTY.statistics(), [0.0, 0.0]);
        assert_eq!(Softmax::EMPTY.positive_share(), 0.0);
        assert_eq!(Softmax::EMPTY.join(all), all);
    }

    #[test]
    fn a_nan_stays() {
        for scores in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
            assert!(of(&scores).statistics()[1].is_nan());
        }
    }

    #[test]
    fn planes_start_at_whole_vectors() {
        assert_eq!(edge_plane_stride(0), 0);
        assert_eq!(edge_plane_stride(1), 8);
        assert_eq!(edge_plane_stride(8), 8);
        assert_eq!(edge_plane_stride(u32::MAX as u64), 1 << 32);
    }
}
