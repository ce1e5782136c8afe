//! Which lanes of a warp are a sub-warp, and which edges it has.

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

/// Edges of a step of the edge-parallel walk, of which a share has whole ones: one 16-byte load of shared memory gives their columns.
pub const STEP: u32 = 4;

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
