//! A number for each edge, from two numbers: of its row, of its column, or its own.

use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::Vector;
use halfgnn_contract::sddmm::{
    ADD, COMBINE_EDGES_PER_CTA, COPY, CombineParams, DIVIDE, MULTIPLY, OF_COLUMN, OF_ROW, SUBTRACT,
};
use halfgnn_contract::{DevicePtr, HalfBits};

/// # Safety
/// The launch contract of [`CombineParams`]: CTAs of `THREADS_PER_CTA` threads, one for each [`COMBINE_EDGES_PER_CTA`]
/// edges in x, and a head each in y.
#[inline(always)]
pub unsafe fn run<V: Vector>(params: &CombineParams) {
    let edge = block_idx_x() as u64 * COMBINE_EDGES_PER_CTA as u64 + thread_idx_x() as u64 * 4;
    if edge >= params.plane {
        return;
    }
    // SAFETY: the plane has room for four edges from a multiple of 4 on, the thread's own.
    unsafe {
        let left = operand::<V>(params, params.left, params.left_is, params.left_plane, edge);
        let mut results = if params.operator == COPY {
            left
        } else {
            let right = operand::<V>(
                params,
                params.right,
                params.right_is,
                params.right_plane,
                edge,
            );
            let mut results = [0.0; 4];
            for i in 0..4 {
                results[i] = combine(params.operator, left[i], right[i]);
            }
            results
        };
        for i in 0..4 {
            if edge + i as u64 >= params.edges as u64 {
                results[i] = 0.0;
            }
        }
        let at = block_idx_y() as u64 * params.plane + edge;
        V::store_features(Global::new(params.output).at(at), results);
    }
}

#[inline(always)]
fn combine(operator: u32, left: f32, right: f32) -> f32 {
    match operator {
        ADD => left + right,
        SUBTRACT => left - right,
        MULTIPLY => left * right,
        DIVIDE => left / right,
        _ => left,
    }
}

/// One operand of four edges, whose planes of rows or columns are `plane` long.
///
/// # Safety
/// The launch contract; `edge` is a multiple of 4 within the plane.
#[inline(always)]
unsafe fn operand<V: Vector>(
    params: &CombineParams,
    of: DevicePtr<HalfBits>,
    is: u32,
    plane: u32,
    edge: u64,
) -> [f32; 4] {
    let head = block_idx_y() as u64;
    // SAFETY: the caller's promise; a plane has a number for each row, or for each column.
    unsafe {
        let ids = match is {
            OF_ROW => ids(params, params.rows, edge),
            OF_COLUMN => ids(params, params.columns, edge),
            _ => {
                let at = head * params.plane + edge;
                return V::weights(Global::new(of).at(at)).map(V::weight_to_f32);
            }
        };
        let plane = Global::<f32>::new(of).at(head * plane as u64);
        ids.map(|vertex| plane.at(vertex as u64).read())
    }
}

/// The rows or the columns of four edges; past the last edge, that of the last.
///
/// # Safety
/// The launch contract; `edge` is a multiple of 4 within the plane.
#[inline(always)]
unsafe fn ids(params: &CombineParams, ids: DevicePtr<u32>, edge: u64) -> [u32; 4] {
    let edges = params.edges as u64;
    // SAFETY: four edges of the graph from a multiple of 4 on, or single ones.
    unsafe {
        if edge + 4 <= edges {
            Global::<[u32; 4]>::cast(Global::<u32>::new(ids).at(edge)).read()
        } else {
            [0, 1, 2, 3].map(|i| Global::<u32>::new(ids).at((edge + i).min(edges - 1)).read())
        }
    }
}
