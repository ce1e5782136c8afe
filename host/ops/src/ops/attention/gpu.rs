//! Softmax over the edges of a row: a segment reduction, and steps on edges of a launch each.

use super::{
    AttentionOperators, AttentionStatisticsOperands, EdgeBiasGradientOperands, EdgeStep,
    EdgeStepOperands,
};
use crate::backend::gpu::{Gpu, entry, narrow};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::attention::{self as contract, EdgeMapParams, edge_plane_stride};
use halfgnn_contract::segment::{SOFTMAX_WORDS, SegmentParams};

const NAME: &str = "attention";

/// Sums of scores of fewer sources are made where they are wanted: a plane of such scores is found in the caches.
const FEWEST_SOURCES_OF_SUMS: usize = 1 << 20;

/// And so are those that would take more: with that many edges and heads the memory is needed.
const MOST_BYTES_OF_SUMS: u64 = 2 << 30;

impl<D: Driver> AttentionOperators for Gpu<D> {
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (first, biases) = match of.scores.biases {
            Some(biases) => ("segment_biased_softmax", self.array(biases)?),
            None => ("segment_softmax", DevicePtr::NULL),
        };
        let params = SegmentParams {
            values: biases,
            attention: contract::EdgeAttention {
                sums: self.optional_array(of.sums.as_deref())?,
                ..self.scores(of.scores, of.a, false)?
            },
            result: self.array(of.statistics)?,
            positive_share: self.optional_array(of.positive_share.as_deref())?,
            ..self.segment_params(of.a)?
        };
        let names = [first, "segment_follow_up_softmax"];
        // SAFETY: the operator checked that scores, statistics and shares have a number for each head of each vertex,
        // and biases and sums one of each edge.
        unsafe { self.reduce_segments(names, of.scores.heads, SOFTMAX_WORDS, params) }
    }

    fn keeps_sums_of_scores(&self, sources: usize, edges: usize, heads: usize) -> bool {
        let bytes = edge_plane_stride(edges as u64).saturating_mul((4 * heads) as u64);
        let pays = sources >= FEWEST_SOURCES_OF_SUMS && bytes <= MOST_BYTES_OF_SUMS;
        pays && !self.is_count_of_cpu()
    }

    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let a = of.a;
        let edges = narrow(NAME, "edges", a.edges())?;
        let mut params = EdgeMapParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            x: self.array(of.x.unwrap_or(of.y))?,
            f: DevicePtr::NULL,
            y: self.array(of.y)?,
            v: DevicePtr::NULL,
            plane_stride: edge_plane_stride(edges as u64),
            edges,
            vertices: narrow(NAME, "rows", a.rows())?,
            attention: contract::EdgeAttention::NONE,
        };
        let heads = of.heads;
        let name = match of.step {
            EdgeStep::Scores(of) => {
                params.attention = self.scores(of, a, false)?;
                entry::<E>("edge_scores")?
            }
            EdgeStep::ScoresBackward(of) => {
                params.attention = self.scores(of, a, false)?;
                entry::<E>("edge_scores_backward")?
            }
            EdgeStep::Exp { row } => {
                params.v = self.array(row)?;
                entry::<E>("edge_exp")?
            }
            EdgeStep::Divide { row } => {
                params.v = self.array(row)?;
                entry::<E>("edge_divide")?
            }
            EdgeStep::SoftmaxBackward { factor, row } => {
                (params.f, params.v) = (self.array(factor)?, self.array(row)?);
                entry::<E>("edge_softmax_backward")?
            }
            EdgeStep::Dropout(dropout) => {
                params.attention = self.with_dropout(params.attention, Some(*dropout))?;
                entry::<E>("edge_dropout")?
            }
        };
        let config = edge_config(contract::edge_ctas(edges, E::LANES as u32), heads)?;
        // SAFETY: the operator checked that planes are as long as the edges, and numbers of rows as the vertices, ask
        // for.
        unsafe { self.launch(name, config, &params) }
    }

    fn edge_bias_gradient<E: Element>(
        &self,
        operands: Checked<EdgeBiasGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeBiasGradientOperands {
            a,
            weights,
            x,
            inner,
            d,
        } = operands.into_inner();
        let edges = narrow(NAME, "edges", a.edges())?;
        let params = EdgeMapParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            x: self.array(x)?,
            f: self.optional_array(weights.biases)?,
            y: self.array(d)?,
            v: self.array(inner)?,
            plane_stride: edge_plane_stride(edges as u64),
            edges,
            vertices: narrow(NAME, "rows", a.rows())?,
            attention: self.edge_attention(weights, a)?,
        };
        let config = edge_config(contract::edge_bias_ctas(edges), weights.heads)?;
        let name = entry::<E>("edge_bias_gradient")?;
        // SAFETY: the operator checked that there are biases, and that planes are as long as the edges and numbers of
        // vertices as those ask for.
        unsafe { self.launch(name, config, &params) }
    }
}

/// The launch of a step on edges, of a number of CTAs a head.
fn edge_config(ctas: u32, heads: usize) -> Result<LaunchConfig, Error> {
    Ok(LaunchConfig {
        grid: [ctas, narrow(NAME, "heads", heads)?, 1],
        block: [contract::EDGE_THREADS_PER_CTA, 1, 1],
        shared_bytes: 0,
    })
}
