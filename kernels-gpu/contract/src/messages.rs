//! Sums of messages that are computed of the rows of both ends of an edge and of the edge's own, fused: nothing is stored for an edge.
//!
//! With `a(e)` and `b(e)` sums of up to three rows each, of the destination `i`, the source `j` and the edge `e`, column by column,
//!
//! ```text
//! y[i]  = s[i] · Σ_e f(a(e)) · g(b(e))
//! da(e) = s[i] · dy[i] · f′(a(e)) · g(b(e))
//! db(e) = s[i] · dy[i] · f(a(e)) · g′(b(e))
//! ```
//!
//! The gradient of a row of a destination or a source is the sum over its edges, that of an edge's row is the value itself. Without a `b`,
//! `g(b)` is 1.
//!
//! The walk over edges is that of [`edge_walk`](crate::edge_walk), with one head.

use crate::edge_walk::EdgeWalk;
use crate::format::table;
use crate::math::{exp_nonpositive, ln_from_one_to_two};
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Vectors of a row that one lane has.
pub const VECTORS: u32 = 1;

/// The most 16-byte vectors of a tile of columns: rows that are wider have several tiles.
pub const TILE_VECTORS: u32 = WARP * VECTORS;

/// Matrices of columns of the forward pass and of [`MessageParams::of_rows`]'s gradients: `a` and `b`.
pub const COLUMNS: u32 = 2;

/// Matrices of columns of the gradients of columns: the gradient of the output as well.
pub const COLUMNS_OF_GRADIENT: u32 = 3;

/// Matrices of edges.
pub const EDGES: u32 = 2;

/// What is applied to a sum of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Act {
    /// x
    Identity,
    /// The larger of x and 0.
    Relu,
    /// x, and below zero x times [`LEAK`].
    LeakyRelu,
    /// 1 / (1 + e⁻ˣ)
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// ln (1 + eˣ)
    Softplus,
}

/// Slope of [`Act::LeakyRelu`] below zero.
pub const LEAK: f32 = 0.01;

impl Act {
    /// All of them, by number.
    pub const ALL: [Self; 6] = [
        Self::Identity,
        Self::Relu,
        Self::LeakyRelu,
        Self::Sigmoid,
        Self::Tanh,
        Self::Softplus,
    ];

    /// The number that kernels know it by.
    #[inline]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// The value and the derivative of activation `act` at `x`, by one exponential. A NaN stays one.
#[inline(always)]
pub fn value_and_derivative(act: u32, x: f32) -> [f32; 2] {
    let is_negative = x < 0.0;
    let magnitude = f32::from_bits(x.to_bits() & 0x7fff_ffff);
    let sigmoid = |t: f32| (if is_negative { t } else { 1.0 }) / (1.0 + t);
    let above = if is_negative { 0.0 } else { x };
    match act {
        1 => [above, if x > 0.0 { 1.0 } else { 0.0 }],
        2 => [
            if is_negative { x * LEAK } else { x },
            if x > 0.0 { 1.0 } else { LEAK },
        ],
        3 => {
            let s = sigmoid(exp_nonpositive(-magnitude));
            [s, s * (1.0 - s)]
        }
        4 => {
            let t = exp_nonpositive(-2.0 * magnitude);
            let y = (1.0 - t) / (1.0 + t);
            [if is_negative { -y } else { y }, 1.0 - y * y]
        }
        5 => {
            let t = exp_nonpositive(-magnitude);
            [above + ln_from_one_to_two(1.0 + t), sigmoid(t)]
        }
        _ => [x, 1.0],
    }
}

/// The value of activation `act` at `x`.
#[inline(always)]
pub fn value(act: u32, x: f32) -> f32 {
    value_and_derivative(act, x)[0]
}

/// The derivative of activation `act` at `x`.
#[inline(always)]
pub fn derivative(act: u32, x: f32) -> f32 {
    value_and_derivative(act, x)[1]
}

param_struct! {
    /// Parameters of the kernels of sums of messages. Rows of all matrices are [`stride`](crate::edge_walk::HeadLanes::stride) vectors apart,
    /// aligned to 16 bytes, and zero in their padding. A null input is zero everywhere, a null output is not written.
    ///
    /// | entry | `of_rows` | `of_columns` | `outputs` | `edge_outputs` |
    /// |---|---|---|---|---|
    /// | `message_sums` | `a`, `b` of destinations | `a`, `b` of sources | `y` | |
    /// | `message_sums_rows` | `a`, `b`, `dy` | `a`, `b` of sources | `da`, `db` of destinations | `da`, `db` of edges |
    /// | `message_sums_columns`, of the transposed adjacency | `a`, `b` of sources | `a`, `b`, `dy` of destinations | `da`, `db` of sources | |
    pub struct MessageParams {
        /// The graph, and how its rows lie in lanes.
        pub walk: EdgeWalk,
        /// Matrices with a row for each row of the adjacency.
        pub of_rows: [DevicePtr<HalfBits>; 3],
        /// Matrices with a row for each column of the adjacency.
        pub of_columns: [DevicePtr<HalfBits>; 3],
        /// `a` and `b` of edges, a row for each.
        pub of_edges: [DevicePtr<HalfBits>; 2],
        /// Outputs, with a row for each row of the adjacency.
        pub outputs: [DevicePtr<HalfBits>; 2],
        /// Outputs with a row for each edge.
        pub edge_outputs: [DevicePtr<HalfBits>; 2],
        /// The row of each edge in the matrices of edges; null for the order of the edges.
        pub order: DevicePtr<u32>,
        /// `s`, a number for each destination; null for 1.
        pub row_scale: DevicePtr<f32>,
        /// The activations `f` and `g`, by [`Act::number`].
        pub acts: [u32; 2],
        /// Whether there is a `b`: 0 or 1.
        pub has_value: u32,
        /// What all sums are multiplied by.
        pub factor: f32,
    }
}

/// Floats of a lane's part of a row, of a pass with `outputs` matrices as output, in vectors of `width` elements.
#[inline]
pub const fn part_floats(outputs: u32, width: u32) -> u32 {
    outputs * width * VECTORS
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! messages_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Sums of messages.
                message_sums(MessageParams): F16 = message_sums_f16, F32 = message_sums_f32, BF16 = message_sums_bf16;
                /// Completes its rows of several chunks.
                message_sums_follow_up(MessageParams): F16 = message_sums_follow_up_f16, F32 = message_sums_follow_up_f32, BF16 = message_sums_follow_up_bf16;
                /// Their gradients by rows of destinations and of edges.
                message_sums_rows(MessageParams): F16 = message_sums_rows_f16, F32 = message_sums_rows_f32, BF16 = message_sums_rows_bf16;
                /// Completes its rows of several chunks.
                message_sums_rows_follow_up(MessageParams): F16 = message_sums_rows_follow_up_f16, F32 = message_sums_rows_follow_up_f32, BF16 = message_sums_rows_follow_up_bf16;
                /// Their gradients by rows of sources.
                message_sums_columns(MessageParams): F16 = message_sums_columns_f16, F32 = message_sums_columns_f32, BF16 = message_sums_columns_bf16;
                /// Completes its rows of several chunks.
                message_sums_columns_follow_up(MessageParams): F16 = message_sums_columns_follow_up_f16, F32 = message_sums_columns_follow_up_f32, BF16 = message_sums_columns_follow_up_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[messages_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_those_of_double() {
        let exact = |act, x: f64| match act {
            Act::Identity => x,
            Act::Relu => x.max(0.0),
            Act::LeakyRelu => x.max(f64::from(LEAK) * x),
            Act::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Act::Tanh => x.tanh(),
            Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        };
        for act in Act::ALL {
            let mut x = -90.0f32;
            while x < 90.0 {
                let (found, expected) = (value(act.number(), x), exact(act, f64::from(x)));
                assert!(
                    (f64::from(found) - expected).abs() <= 3e-7 * expected.abs().max(1.0),
                    "{act:?} of {x}: {found}"
                );
                let h = 1e-4;
                let slope =
                    (exact(act, f64::from(x) + h) - exact(act, f64::from(x) - h)) / (2.0 * h);
                let found = f64::from(derivative(act.number(), x));
                assert!(
                    x.abs() < 1e-3 || (found - slope).abs() < 1e-6,
                    "{act:?}′ of {x}: {found}"
                );
                let both = value_and_derivative(act.number(), x);
                let alone = [value(act.number(), x), derivative(act.number(), x)];
                assert_eq!(both, alone, "{act:?} of {x}");
                x += 0.037;
            }
            for act in Act::ALL {
                assert!(value(act.number(), f32::NAN).is_nan());
            }
        }
        assert_eq!(derivative(Act::Relu.number(), 0.0), 0.0);
    }
}
