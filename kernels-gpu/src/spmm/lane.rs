//! What one lane has of a row: one load of its features, and the sums that its sub-warp shares with others.

use super::lanes::Lanes;
use super::policy::{Scaling, Weights};
use super::sums::Sums;
use crate::device::registers::recomputed;
use crate::device::thread::{block_idx_y, block_idx_z, thread_idx_x};
use crate::device::vector::Vector;
use crate::device::warp::shuffle_xor;
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::SpmmParams;

/// The load of a row that is a lane's.
#[derive(Clone, Copy)]
pub struct Load {
    /// Which of the row's. That of an idle lane is another's, to be read and not written.
    pub index: u32,
    /// Elements of it that are the row's and no padding, or [`Load::IDLE`]: one number, to be kept in one register.
    elements: u32,
}

impl Load {
    const IDLE: u32 = u32::MAX;

    /// Load `load` of a part of the row that begins with load `first` and has `loads` of them.
    #[inline(always)]
    pub fn new<V: Vector>(params: &SpmmParams, first: u32, load: u32, loads: u32) -> Self {
        let index = first + load.min(loads - 1);
        let elements = params.features.saturating_sub(index * V::WIDTH);
        Self {
            index,
            elements: if load < loads {
                elements.min(V::WIDTH)
            } else {
                Self::IDLE
            },
        }
    }

    /// That of this lane in the CTA's tile of the features (y) and head (z), for weights `W`.
    #[inline(always)]
    pub fn of<V: Vector, W: Weights, L: Lanes>(params: &SpmmParams) -> Self {
        let load = block_idx_y() * L::lanes(params) + L::place(params, thread_idx_x());
        let (first, loads) = if W::BY_HEAD {
            (block_idx_z() * params.head_loads, params.head_loads)
        } else {
            (0, params.feature_loads)
        };
        Self::new::<V>(params, first, load, loads)
    }

    /// The same; addresses that are computed from it stay where they are computed.
    #[inline(always)]
    pub fn recomputed(self) -> Self {
        Self {
            index: recomputed(self.index),
            ..self
        }
    }

    /// Whether the row has such a load.
    #[inline(always)]
    pub fn is_active(self) -> bool {
        self.elements != Self::IDLE
    }

    /// Gives `write` what is to stand in the row of `value`, with zeros for padding, unless the lane is idle.
    #[inline(always)]
    pub fn written<V: Vector>(self, value: V, write: impl Fn(V)) {
        // A NaN or an infinite factor made more than zeros of the padding.
        if self.elements == V::WIDTH {
            write(value);
        } else if self.is_active() {
            // Masks are not worth registers.
            write(value.first(recomputed(self.elements)));
        }
    }
}

/// Whether the lane has the first load of its head.
#[inline(always)]
pub fn leads<L: Lanes>(params: &SpmmParams) -> bool {
    block_idx_y() == 0 && L::place(params, thread_idx_x()) == 0
}

/// What the sub-warps of a warp have of one row, merged as a tree; every sub-warp gets the whole.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn merge_sub_warps<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    mut sums: T,
) -> T {
    let mut distance = WARP / 2;
    while distance >= 1 << params.lanes_log2 {
        // SAFETY: the loops are the same for every lane, and the caller promises that all of them are here.
        let other = sums.map(|_, value| unsafe { shuffle_xor(value, distance) });
        sums = sums.merge::<S>(other);
        distance /= 2;
    }
    sums
}
