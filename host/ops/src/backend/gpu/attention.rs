//! Attention: segment reductions are two launches each, the steps on edges and on heads one.

use super::spmm::Second;
use super::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::backend::{
    Adjacency, AttentionOperators, AttentionScores, Dropout, EdgeAttention, EdgeStep, EdgeValues,
    EdgeWeights, SegmentReduction, Spmm,
};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{
    AttentionPairOperands, AttentionStatisticsOperands, Checked, EdgeStepOperands,
    HeadDotsOperands, HeadMeanBackwardOperands, HeadMeanOperands, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands, SegmentReduceOperands,
};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::attention::{self as contract, EdgeMapParams, edge_plane_stride};
use halfgnn_contract::dense::ColumnSumsParams;
use halfgnn_contract::heads::{
    self, HeadDotsParams, HeadMeanParams, HeadOuterParams, HeadScoresParams, Heads,
};
use halfgnn_contract::segment::{self, SegmentParams};
use halfgnn_contract::{DevicePtr, dense, rng};

const SEGMENT: &str = "segment reduction";
const HEADS: &str = "attention";

impl<D: Driver> Gpu<D> {
    /// What kernels are told of scores.
    fn scores(
        &self,
        of: &AttentionScores<'_, Self>,
        a: &Adjacency<Self>,
        transposed: bool,
    ) -> Result<contract::EdgeAttention, Error> {
        let (destinations, sources) = if transposed {
            (a.columns(), a.rows())
        } else {
            (a.rows(), a.columns())
        };
        Ok(contract::EdgeAttention {
            destination: self.array(of.destination)?,
            source: self.array(of.source)?,
            destinations: narrow(HEADS, "destinations", destinations)?,
            sources: narrow(HEADS, "sources", sources)?,
            slope: of.slope,
            ..contract::EdgeAttention::NONE
        })
    }

    /// What kernels are told of a dropout of edges.
    fn with_dropout(
        &self,
        of: contract::EdgeAttention,
        dropout: Option<Dropout<'_, Self>>,
    ) -> Result<contract::EdgeAttention, Error> {
        Ok(match dropout.filter(|dropout| dropout.probability > 0.0) {
            None => of,
            Some(dropout) => contract::EdgeAttention {
                flags: of.flags | contract::DROPOUT,
                step: self.step(dropout)?,
                key: rng::key(dropout.random.seed(), dropout.stream),
                threshold: rng::threshold(dropout.probability),
                keep_scale: 1.0 / (1.0 - dropout.probability),
                ..of
            },
        })
    }

    /// What kernels are told of weights by attention.
    pub(super) fn edge_attention(
        &self,
        of: &EdgeAttention<'_, Self>,
        a: &Adjacency<Self>,
    ) -> Result<contract::EdgeAttention, Error> {
        let known = AttentionScores {
            heads: of.heads,
            destination: of.destination,
            source: of.source,
            slope: of.slope,
        };
        let params = contract::EdgeAttention {
            statistics: self.array(of.statistics)?,
            flags: if of.transposed {
                contract::TRANSPOSED
            } else {
                0
            },
            ..self.scores(&known, a, of.transposed)?
        };
        self.with_dropout(params, of.dropout)
    }
}

impl<D: Driver> Gpu<D> {
    /// The parameters that all segment reductions of a graph share.
    fn segment_params(&self, a: &Adjacency<Self>) -> Result<SegmentParams, Error> {
        let edges = narrow(SEGMENT, "edges", a.edges())?;
        // The CPU's twins walk rows, and want no row of an edge.
        let rows = if self.is_count_of_cpu() {
            DevicePtr::NULL
        } else {
            self.array(a.row_ids(self)?)?
        };
        Ok(SegmentParams {
            rows,
            columns: self.array(&a.column_ids)?,
            offsets: self.array(&a.offsets)?,
            empty_rows: self.array(&a.empty_rows)?,
            values: DevicePtr::NULL,
            factors: DevicePtr::NULL,
            map: DevicePtr::NULL,
            result: DevicePtr::NULL,
            positive_share: DevicePtr::NULL,
            staging: DevicePtr::NULL,
            plane_stride: edge_plane_stride(edges as u64),
            edges,
            warps: segment::warps(edges),
            empty_count: narrow(SEGMENT, "rows without edges", a.empty_rows.len())?,
            vertices: narrow(SEGMENT, "rows", a.rows())?,
            attention: contract::EdgeAttention::NONE,
        })
    }

    /// A segment reduction and its follow-up, of values of `words` words.
    ///
    /// # Safety
    /// Operands in `params` are as its page asks for, for `heads` heads.
    unsafe fn reduce_segments(
        &self,
        [first, second]: [&'static str; 2],
        heads: usize,
        words: u32,
        params: SegmentParams,
    ) -> Result<(), Error> {
        let heads = narrow(SEGMENT, "heads", heads)?;
        let warps = params.warps;
        let floats = segment::staging_words(warps, words, heads);
        let staging = self.workspace.floats(&self.driver, &self.ledger, floats)?;
        let config = |ctas| LaunchConfig {
            grid: [ctas, heads, 1],
            block: [segment::THREADS_PER_CTA, 1, 1],
            shared_bytes: 0,
        };
        let params = SegmentParams {
            staging: DevicePtr::new(staging.address()),
            ..params
        };
        // SAFETY: the caller's promise; the staging buffer has `staging_words`.
        unsafe {
            let ctas = config(segment::ctas(warps));
            self.kernels.launch(&self.driver, first, ctas, &params)?;
            // One warp leaves nothing to join.
            let params = SegmentParams {
                warps: if warps > 1 { warps } else { 0 },
                ..params
            };
            let ctas = config(segment::follow_up_ctas(params.warps, params.empty_count));
            self.kernels.launch(&self.driver, second, ctas, &params)
        }
    }
}

/// Vectors of a head of a matrix of `heads` heads, and of a row.
fn head_vectors<D: Driver, E: Element>(
    heads: usize,
    x: &Matrix<Gpu<D>, E>,
) -> Result<(u32, u32), Error> {
    let stride = stride_vectors(HEADS, x)?;
    Ok((stride / narrow(HEADS, "heads", heads)?, stride))
}

/// How the heads of a matrix are dealt out to sub-warps, and the launch.
fn deal_heads<D: Driver, E: Element>(
    heads: usize,
    x: &Matrix<Gpu<D>, E>,
) -> Result<(Heads, LaunchConfig), Error> {
    let (head_vectors, stride) = head_vectors(heads, x)?;
    let heads = narrow(HEADS, "heads", heads)?;
    let heads = Heads::new(x.rows() as u64, heads, head_vectors, stride);
    let config = dense_config(HEADS, heads.ctas(), 1, 0)?;
    Ok((heads, config))
}

impl<D: Driver> AttentionOperators for Gpu<D> {
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let AttentionStatisticsOperands {
            a,
            scores: of,
            statistics,
            positive_share,
        } = operands.into_inner();
        let params = SegmentParams {
            attention: self.scores(of, a, false)?,
            result: self.array(statistics)?,
            positive_share: self.optional_array(positive_share.as_deref())?,
            ..self.segment_params(a)?
        };
        let names = ["segment_softmax", "segment_follow_up_softmax"];
        // SAFETY: the operator checked that scores, statistics and shares have a number for each head of each vertex.
        unsafe { self.reduce_segments(names, of.heads, segment::SOFTMAX_WORDS, params) }
    }

    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AttentionPairOperands { a, op, x } = operands.into_inner();
        let spmm = Spmm {
            weights: EdgeWeights::Attention(op.weights),
            policy: op.policy,
            ..Spmm::default()
        };
        let second = Second {
            positive: self.matrix(op.positive)?,
            weights: op.weights,
            through: op.through,
        };
        self.launch_spmm(a, &spmm, x, op.all, Some(second))
    }

    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let SegmentReduceOperands {
            a,
            heads,
            reduction,
            values,
            result,
        } = operands.into_inner();
        let mut params = SegmentParams {
            result: self.array(result)?,
            ..self.segment_params(a)?
        };
        let family = match (reduction, values) {
            (SegmentReduction::Max, EdgeValues::Plane(_)) => "segment_max",
            (SegmentReduction::Sum, EdgeValues::Plane(_)) => "segment_sum",
            (SegmentReduction::Sum, EdgeValues::Product(..)) => "segment_product_sum",
            (SegmentReduction::Sum, EdgeValues::Gathered(..)) => "segment_gathered_sum",
            (SegmentReduction::Max, _) => {
                return Err(Error::Unsupported {
                    operator: "segment_reduce",
                    reason: "maxima are of plain values only, not of products or gathered ones"
                        .into(),
                });
            }
        };
        match values {
            EdgeValues::Plane(plane) => params.values = self.array(plane)?,
            EdgeValues::Product(plane, factors) => {
                (params.values, params.factors) = (self.array(plane)?, self.array(factors)?);
            }
            EdgeValues::Gathered(plane, map) => {
                (params.values, params.map) = (self.array(plane)?, self.array(map.edges())?);
            }
        }
        let follow_up = match reduction {
            SegmentReduction::Sum => "segment_follow_up_sum",
            SegmentReduction::Max => "segment_follow_up_max",
        };
        let names = [entry::<E>(family)?, follow_up];
        // SAFETY: the operator checked that planes and map are as long as the edges ask for.
        unsafe { self.reduce_segments(names, heads, segment::FLOAT_WORDS, params) }
    }

    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeStepOperands {
            a,
            heads,
            step: op,
            x,
            y,
        } = operands.into_inner();
        let edges = narrow(HEADS, "edges", a.edges())?;
        let mut params = EdgeMapParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            x: self.array(x.unwrap_or(y))?,
            f: DevicePtr::NULL,
            y: self.array(y)?,
            v: DevicePtr::NULL,
            plane_stride: edge_plane_stride(edges as u64),
            edges,
            vertices: narrow(HEADS, "rows", a.rows())?,
            attention: contract::EdgeAttention::NONE,
        };
        let name = match op {
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
        let config = LaunchConfig {
            grid: [
                contract::edge_ctas(edges, E::LANES as u32),
                narrow(HEADS, "heads", heads)?,
                1,
            ],
            block: [contract::EDGE_THREADS_PER_CTA, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: the operator checked that planes are as long as the edges, and numbers of rows as the vertices, ask for.
        unsafe { self.kernels.launch(&self.driver, name, config, &params) }
    }

    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadScoresOperands {
            heads,
            x,
            vectors,
            destination,
            source,
        } = operands.into_inner();
        let (heads, config) = deal_heads(heads, x)?;
        let params = HeadScoresParams {
            heads,
            x: self.matrix(x)?,
            vectors: self.matrix(vectors)?,
            destination: self.array(destination)?,
            source: self.array(source)?,
        };
        let name = entry::<E>("head_scores")?;
        // SAFETY: the operator checked that `vectors` is as wide as `x`, and that there is a score for each head of each
        // row.
        unsafe { self.kernels.launch(&self.driver, name, config, &params) }
    }

    fn head_dots<E: Element>(
        &self,
        operands: Checked<HeadDotsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadDotsOperands { op, y } = operands.into_inner();
        let (heads, config) = deal_heads(op.heads, op.a)?;
        let params = HeadDotsParams {
            heads,
            a: self.matrix(op.a)?,
            b: self.matrix(op.b.1)?,
            c: self.optional_matrix(op.c.map(|(_, c)| c))?,
            u: self.optional_array(op.u.map(|(_, u)| u))?,
            v: self.optional_array(op.v)?,
            y: self.array(y)?,
            beta: op.b.0,
            gamma: op.c.map_or(0.0, |(gamma, _)| gamma),
            delta: op.u.map_or(0.0, |(delta, _)| delta),
            reserved: 0,
        };
        let name = entry::<E>("head_dots")?;
        // SAFETY: the operator checked that the matrices have one shape, and that there is a number for each head of
        // each row.
        unsafe { self.kernels.launch(&self.driver, name, config, &params) }
    }

    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadOuterOperands {
            heads,
            destination,
            source,
            vectors,
            x,
        } = operands.into_inner();
        let (head_vectors, stride) = head_vectors(heads, x)?;
        let params = HeadOuterParams {
            x: self.matrix(x)?,
            vectors: self.matrix(vectors)?,
            destination: self.array(destination)?,
            source: self.array(source)?,
            sums: DevicePtr::NULL,
            rows: x.rows() as u64,
            rows_per_cta: dense::rows_per_cta(stride),
            head_vectors,
            stride,
            columns: narrow(HEADS, "columns", x.columns())?,
            sum_stride: 0,
            reciprocal: dense::reciprocal(stride),
        };
        let ctas = params.rows.div_ceil(params.rows_per_cta as u64);
        let name = entry::<E>("head_outer")?;
        // SAFETY: the operator checked that `vectors` is as wide as `x`, and that there is a number for each head of
        // each row.
        unsafe {
            self.kernels.launch(
                &self.driver,
                name,
                dense_config(HEADS, ctas, 1, 0)?,
                &params,
            )
        }
    }

    /// Sums of blocks of rows, then their sums.
    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadSumsOperands {
            heads,
            x,
            destination,
            source,
            sums,
        } = operands.into_inner();
        if x.rows() == 0 {
            return sums.clear(self);
        }
        let (head_vectors, stride) = head_vectors(heads, x)?;
        let sum_stride = stride_vectors(HEADS, sums)? * 4;
        let rows = x.rows() as u64;
        let rows_per_cta = dense::sum_rows_per_cta(rows);
        let ctas = rows.div_ceil(rows_per_cta as u64);
        let most = ctas * 2 * sum_stride as u64;
        let workspace = self
            .workspace
            .floats(&self.driver, &self.ledger, 2 * most)?;
        let turns = [1, 0].map(|turn| workspace.address() + turn * most * 4);
        let params = HeadOuterParams {
            x: self.matrix(x)?,
            vectors: DevicePtr::NULL,
            destination: self.array(destination)?,
            source: self.array(source)?,
            sums: self.matrix(sums)?,
            rows,
            rows_per_cta,
            head_vectors,
            stride,
            columns: narrow(HEADS, "columns", x.columns())?,
            sum_stride,
            reciprocal: 0,
        };
        let name = entry::<E>("head_sums")?;
        let config = dense_config(
            HEADS,
            ctas,
            stride.div_ceil(heads::SUM_VECTORS),
            heads::SUM_SHARED_BYTES,
        )?;
        if ctas == 1 {
            // SAFETY: `sums` has two rows of `sum_stride`; the rest as the operator checked it.
            return unsafe { self.kernels.launch(&self.driver, name, config, &params) };
        }
        let blocks = HeadOuterParams {
            sums: DevicePtr::new(turns[1]),
            ..params
        };
        // The blocks' sums are a matrix of one row a block.
        let rest = ColumnSumsParams {
            x: DevicePtr::new(turns[1]),
            sums: params.sums,
            rows: ctas,
            rows_per_cta: 0,
            columns: 2 * sum_stride,
            vectors: sum_stride / 2,
            sum_vectors: sum_stride / 2,
        };
        // SAFETY: a half of the workspace has two rows of `sum_stride` for each block; the rest as the operator checked.
        unsafe {
            self.kernels.launch(&self.driver, name, config, &blocks)?;
            self.sum_rows("column_sums_f32", rest, turns)
        }
    }

    fn head_mean<E: Element>(
        &self,
        operands: Checked<HeadMeanOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanOperands { heads, x, y } = operands.into_inner();
        self.launch_mean(entry::<E>("head_mean")?, heads, x, y)
    }

    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanBackwardOperands { heads, dy, dx } = operands.into_inner();
        let name = entry::<E>("head_mean_backward")?;
        self.launch_mean(name, heads, dx, dy)
    }
}

impl<D: Driver> Gpu<D> {
    /// The mean over heads or its gradient: `x` has the heads, `y` one.
    fn launch_mean<E: Element>(
        &self,
        name: &'static str,
        heads: usize,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(), Error> {
        let (head_vectors, stride) = head_vectors(heads, x)?;
        let params = HeadMeanParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            rows: x.rows() as u64,
            heads: narrow(HEADS, "heads", heads)?,
            head_vectors,
            stride,
            columns: narrow(HEADS, "columns", y.columns())?,
            rows_per_cta: dense::rows_per_cta(head_vectors),
            reciprocal: dense::reciprocal(head_vectors),
            scale: 1.0 / heads as f32,
            reserved: 0,
        };
        let ctas = params.rows.div_ceil(params.rows_per_cta as u64);
        // SAFETY: the operator checked that a head of `x` is a row of `y`.
        unsafe {
            self.kernels.launch(
                &self.driver,
                name,
                dense_config(HEADS, ctas, 1, 0)?,
                &params,
            )
        }
    }
}
