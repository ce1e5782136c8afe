//! Segment reductions: two launches each.

use super::{EdgeValues, SegmentOperators, SegmentReduceOperands, SegmentReduction};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, entry, narrow};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::attention::{EdgeAttention, edge_plane_stride};
use halfgnn_contract::segment::{self as contract, SegmentParams};

const NAME: &str = "segment reduction";

impl<D: Driver> SegmentOperators for Gpu<D> {
    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let mut params = SegmentParams {
            result: self.array(of.result)?,
            ..self.segment_params(of.a)?
        };
        let (plain, follow_up) = match of.reduction {
            SegmentReduction::Sum => ("segment_sum", "segment_follow_up_sum"),
            SegmentReduction::Max => ("segment_max", "segment_follow_up_max"),
        };
        let family = match of.values {
            EdgeValues::Plane(plane) => {
                params.values = self.array(plane)?;
                plain
            }
            EdgeValues::Product(plane, factors) => {
                (params.values, params.factors) = (self.array(plane)?, self.array(factors)?);
                "segment_product_sum"
            }
            EdgeValues::Gathered(plane, map) => {
                (params.values, params.map) = (self.array(plane)?, self.array(map.edges())?);
                "segment_gathered_sum"
            }
        };
        let names = [entry::<E>(family)?, follow_up];
        // SAFETY: the operator checked that planes and map are as long as the edges ask for, and that maxima are of
        // plain values.
        unsafe { self.reduce_segments(names, of.heads, contract::FLOAT_WORDS, params) }
    }
}

impl<D: Driver> Gpu<D> {
    /// The parameters that all segment reductions of a graph share.
    pub(crate) fn segment_params(&self, a: &Adjacency<Self>) -> Result<SegmentParams, Error> {
        let edges = narrow(NAME, "edges", a.edges())?;
        let empty_rows = &a.index(self)?.empty_rows;
        // The CPU's twins walk rows, and want no row of an edge.
        let rows = if self.is_count_of_cpu() {
            DevicePtr::NULL
        } else {
            self.array(a.row_ids(self)?)?
        };
        Ok(SegmentParams {
            rows,
            columns: self.array(&a.column_ids)?,
            offsets: self.array(a.offsets(self)?)?,
            empty_rows: self.array(empty_rows)?,
            values: DevicePtr::NULL,
            factors: DevicePtr::NULL,
            map: DevicePtr::NULL,
            result: DevicePtr::NULL,
            positive_share: DevicePtr::NULL,
            staging: DevicePtr::NULL,
            plane_stride: edge_plane_stride(edges as u64),
            edges,
            warps: contract::warps(edges),
            empty_count: narrow(NAME, "rows without edges", empty_rows.len())?,
            vertices: narrow(NAME, "rows", a.rows())?,
            attention: EdgeAttention::NONE,
        })
    }

    /// A segment reduction and its follow-up, of values of `words` words.
    ///
    /// # Safety
    /// Operands in `params` are as its page asks for, for `heads` heads.
    pub(crate) unsafe fn reduce_segments(
        &self,
        [first, second]: [&'static str; 2],
        heads: usize,
        words: u32,
        params: SegmentParams,
    ) -> Result<(), Error> {
        let heads = narrow(NAME, "heads", heads)?;
        let warps = params.warps;
        let floats = contract::staging_words(warps, words, heads);
        let staging = self.lend(floats)?;
        let config = |ctas| LaunchConfig {
            grid: [ctas, heads, 1],
            block: [contract::THREADS_PER_CTA, 1, 1],
            shared_bytes: 0,
        };
        let params = SegmentParams {
            staging: DevicePtr::new(staging.address()),
            ..params
        };
        // SAFETY: the caller's promise; the staging buffer has `staging_words`.
        unsafe {
            let ctas = config(contract::ctas(warps));
            self.launch(first, ctas, &params)?;
            // One warp leaves nothing to join.
            let params = SegmentParams {
                warps: if warps > 1 { warps } else { 0 },
                ..params
            };
            let ctas = config(contract::follow_up_ctas(params.warps, params.empty_count));
            self.launch(second, ctas, &params)
        }
    }
}
