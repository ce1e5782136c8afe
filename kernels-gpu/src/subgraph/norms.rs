//! What edges multiply in GraphSAINT's batches: made where draws were counted, so that neither counts nor factors cross the bus.

use super::draws::warp;
use crate::device::global::{Global, max_u32, peek_u32};
use crate::device::vector::{Vector, store_element};
use crate::device::warp::{lane_id, maximum};
use halfgnn_contract::WARP;
use halfgnn_contract::subgraph::{EdgeNormParams, edge_norm};

/// Edges of a row that a lane has under way.
const EDGES: usize = 4;

/// # Safety
/// The launch contract of [`EdgeNormParams`]: a warp for each row.
#[inline(always)]
pub unsafe fn edge_norms<V: Vector>(params: &EdgeNormParams) {
    let row = warp();
    if row >= params.graph_rows {
        return;
    }
    let columns = Global::<u32>::new(params.columns);
    let counts = Global::<u32>::new(params.edge_counts);
    let weights = Global::<u32>::new(params.weights);
    let row_factors = Global::<u64>::new(params.row_factors);
    let column_factors = Global::<u64>::new(params.column_factors);
    let values = Global::<V::Feature>::new(params.values);
    let largest = Global::<u32>::new(params.largest);
    let (weighted, by_columns) = (!weights.is_null(), !column_factors.is_null());
    let one = 1.0_f64.to_bits();
    let mut most = 0;
    // SAFETY: the caller's promise: what is there has an item for each row, column or edge; a row is one warp's, an edge one lane's. All
    // lanes go the same way, but for whether their edges are there.
    unsafe {
        let of_row = Global::<u32>::new(params.vertex_counts).at(row).read();
        let row_factor = if row_factors.is_null() {
            1.0
        } else {
            f64::from_bits(row_factors.at(row).read())
        };
        let offset = Global::<u64>::new(params.offsets).at(row);
        let (mut first, end) = (offset.read(), offset.at(1).read());
        while first < end {
            let edge = |each: usize| first + lane_id() as u64 + each as u64 * WARP as u64;
            let (mut ends, mut often) = ([0; EDGES], [0; EDGES]);
            let mut weight = [1.0_f32.to_bits(); EDGES];
            let mut each = 0;
            while each < EDGES {
                let (at, there) = (edge(each), edge(each) < end);
                often[each] = counts.at(at).load_if(there);
                if weighted {
                    weight[each] = weights.at(at).load_if(there);
                }
                if by_columns {
                    ends[each] = columns.at(at).load_if(there);
                }
                each += 1;
            }
            let mut column_factor = [one; EDGES];
            if by_columns {
                each = 0;
                while each < EDGES {
                    let factor = column_factors.at(ends[each] as u64);
                    column_factor[each] = factor.load_if(edge(each) < end);
                    each += 1;
                }
            }
            each = 0;
            while each < EDGES {
                let at = edge(each);
                if at < end {
                    let factor = row_factor * f32::from_bits(weight[each]) as f64;
                    let factor = (factor * f64::from_bits(column_factor[each])) as f32;
                    let factor = factor * edge_norm(of_row, often[each]);
                    most = (factor.abs().to_bits()).max(most);
                    if !values.is_null() {
                        store_element::<V>(values.at(at), factor / params.scale);
                    }
                }
                each += 1;
            }
            first += (EDGES as u64) * WARP as u64;
        }
        if largest.is_null() {
            return;
        }
        let most = maximum(most);
        // Most rows have nothing that is larger than what others have found.
        if lane_id() == 0 && peek_u32(largest) < most {
            max_u32(largest, most);
        }
    }
}
