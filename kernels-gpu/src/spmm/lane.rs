//! What one lane has of a row: one load of its features, and the sums that its sub-warp shares with others; and which lanes are a sub-warp.

use super::policy::{Scaling, Weights};
use super::sums::Sums;
use crate::device::registers::recomputed;
use crate::device::thread::{block_idx_y, block_idx_z, thread_idx_x};
use crate::device::vector::Vector;
use crate::device::warp::shuffle_xor;
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::SpmmParams;

/// How the lanes of a warp are dealt out to sub-warps. Lanes that are left over are a sub-warp behind the last, which has no edges.
pub trait Lanes {
    /// Whether all sub-warps of a warp have as many edges.
    const EVEN: bool;
    /// Lanes of a sub-warp.
    fn lanes(params: &SpmmParams) -> u32;
    /// Sub-warps of a warp.
    fn sub_warps(params: &SpmmParams) -> u32;
    /// Which of its warp's sub-warps lane `lane` is in.
    fn sub_warp(params: &SpmmParams, lane: u32) -> u32;
    /// Which of its sub-warp's lanes thread `thread` is.
    fn place(params: &SpmmParams, thread: u32) -> u32;
    /// Which of the CTA's sub-warps thread `thread` is in, if it is in one.
    fn of_cta(params: &SpmmParams, thread: u32) -> u32;
    /// The thread that is lane `place` of sub-warp `sub_warp` of the CTA.
    fn thread(params: &SpmmParams, sub_warp: u32, place: u32) -> u32;
    /// The first edge of sub-warp `sub_warp` of a warp of `warp_edges`, counted from the warp's first, and how many it has.
    fn share(params: &SpmmParams, warp_edges: u32, sub_warp: u32) -> (u32, u32);
}

/// As many lanes as the power of two that is enough for a row's loads.
pub struct Powers;

impl Lanes for Powers {
    const EVEN: bool = true;
    #[inline(always)]
    fn lanes(params: &SpmmParams) -> u32 {
        1 << params.lanes_log2
    }
    #[inline(always)]
    fn sub_warps(params: &SpmmParams) -> u32 {
        WARP >> params.lanes_log2
    }
    #[inline(always)]
    fn sub_warp(params: &SpmmParams, lane: u32) -> u32 {
        lane >> params.lanes_log2
    }
    #[inline(always)]
    fn place(params: &SpmmParams, thread: u32) -> u32 {
        thread & (Self::lanes(params) - 1)
    }
    #[inline(always)]
    fn of_cta(params: &SpmmParams, thread: u32) -> u32 {
        thread >> params.lanes_log2
    }
    #[inline(always)]
    fn thread(params: &SpmmParams, sub_warp: u32, place: u32) -> u32 {
        (sub_warp << params.lanes_log2) | place
    }
    #[inline(always)]
    fn share(params: &SpmmParams, warp_edges: u32, sub_warp: u32) -> (u32, u32) {
        let edges = (warp_edges << params.lanes_log2) / WARP;
        (sub_warp * edges, edges)
    }
}

/// As many lanes as a row has loads.
pub struct Packed;

/// Edges of a step of the walk, of which a share has whole ones.
const STEP: u32 = 4;

impl Lanes for Packed {
    const EVEN: bool = false;
    #[inline(always)]
    fn lanes(params: &SpmmParams) -> u32 {
        params.lanes
    }
    #[inline(always)]
    fn sub_warps(params: &SpmmParams) -> u32 {
        params.sub_warps
    }
    #[inline(always)]
    fn sub_warp(params: &SpmmParams, lane: u32) -> u32 {
        (lane * params.per_lanes) >> 16
    }
    #[inline(always)]
    fn place(params: &SpmmParams, thread: u32) -> u32 {
        let lane = thread % WARP;
        lane - Self::sub_warp(params, lane) * params.lanes
    }
    #[inline(always)]
    fn of_cta(params: &SpmmParams, thread: u32) -> u32 {
        let (warp, lane) = (thread / WARP, thread % WARP);
        warp * params.sub_warps + Self::sub_warp(params, lane)
    }
    #[inline(always)]
    fn thread(params: &SpmmParams, sub_warp: u32, place: u32) -> u32 {
        let warp = (sub_warp * params.per_sub_warps) >> 16;
        let of_warp = sub_warp - warp * params.sub_warps;
        warp * WARP + of_warp * params.lanes + place
    }
    /// The first sub-warps have the steps that are left over.
    #[inline(always)]
    fn share(params: &SpmmParams, warp_edges: u32, sub_warp: u32) -> (u32, u32) {
        let steps = warp_edges / STEP;
        let each = (steps * params.per_sub_warps) >> 16;
        let more = steps - each * params.sub_warps;
        let first = sub_warp * each + sub_warp.min(more);
        let own = each + (sub_warp < more) as u32;
        let is_one = sub_warp < params.sub_warps;
        (first * STEP, if is_one { own * STEP } else { 0 })
    }
}

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
