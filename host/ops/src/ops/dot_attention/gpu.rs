//! Attention by dot products on a GPU: a walk over the edges for each pass, and a follow-up for rows that several warps share.

use super::{
    DotAttention, DotAttentionBackwardOperands, DotAttentionOperands, DotAttentionOperators,
};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, padded};
use halfgnn_contract::attention::{EdgeAttention, TRANSPOSED};
use halfgnn_contract::dot_attention::{
    self as contract, DotAttentionParams, HeadLanes, THREADS_PER_CTA, WARPS_PER_CTA,
};
use halfgnn_contract::{DevicePtr, HalfBits};

const NAME: &str = "dot_attention";

/// A pass: its walk, and what completes rows of several chunks.
struct Pass {
    entries: [&'static str; 2],
    outputs: u32,
    softmax: bool,
    transposed: bool,
}

const FORWARD: Pass = Pass {
    entries: ["dot_attention", "dot_attention_follow_up"],
    outputs: 1,
    softmax: true,
    transposed: false,
};

const ROWS: Pass = Pass {
    entries: ["dot_attention_rows", "dot_attention_rows_follow_up"],
    outputs: 1,
    softmax: false,
    transposed: false,
};

const COLUMNS: Pass = Pass {
    entries: ["dot_attention_columns", "dot_attention_columns_follow_up"],
    outputs: 2,
    softmax: false,
    transposed: true,
};

/// The matrices of a pass, as [`DotAttentionParams`] has them.
struct Matrices {
    of_rows: [DevicePtr<HalfBits>; 3],
    of_columns: [DevicePtr<HalfBits>; 2],
    outputs: [DevicePtr<HalfBits>; 2],
}

impl<D: Driver> DotAttentionOperators for Gpu<D> {
    fn dot_attention<E: Element>(
        &self,
        operands: Checked<DotAttentionOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DotAttentionOperands {
            a,
            op,
            y,
            statistics,
        } = operands.into_inner();
        let matrices = Matrices {
            of_rows: [self.matrix(op.q)?, DevicePtr::NULL, DevicePtr::NULL],
            of_columns: [self.matrix(op.k)?, self.matrix(op.v)?],
            outputs: [self.matrix(y)?, DevicePtr::NULL],
        };
        self.walk_dot_attention(&FORWARD, a, &op, matrices, statistics)
    }

    fn dot_attention_backward<E: Element>(
        &self,
        operands: Checked<DotAttentionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DotAttentionBackwardOperands {
            a,
            transposed,
            op,
            y,
            dy,
            statistics,
            dq,
            dk,
            dv,
        } = operands.into_inner();
        let [q, k, v] = [self.matrix(op.q)?, self.matrix(op.k)?, self.matrix(op.v)?];
        let dy = self.matrix(dy)?;
        let matrices = Matrices {
            of_rows: [q, dy, self.matrix(y)?],
            of_columns: [k, v],
            outputs: [self.matrix(dq)?, DevicePtr::NULL],
        };
        self.walk_dot_attention(&ROWS, a, &op, matrices, statistics)?;
        let matrices = Matrices {
            of_rows: [k, v, DevicePtr::NULL],
            of_columns: [q, dy],
            outputs: [self.matrix(dk)?, self.matrix(dv)?],
        };
        self.walk_dot_attention(&COLUMNS, transposed, &op, matrices, statistics)
    }
}

impl<D: Driver> Gpu<D> {
    fn walk_dot_attention<E: Element>(
        &self,
        pass: &Pass,
        a: &Adjacency<Self>,
        op: &DotAttention<'_, Self, E>,
        matrices: Matrices,
        statistics: &mut Array<Self, [f32; 2]>,
    ) -> Result<(), Error> {
        if a.rows() == 0 || self.is_count_of_cpu() {
            return Ok(());
        }
        let index = a.index(self)?;
        let edges = narrow(NAME, "edges", a.edges())?;
        let heads = narrow(NAME, "heads", op.heads)?;
        let columns = padded::<E>(op.q.columns());
        let head_vectors = narrow(NAME, "columns", columns / E::LANES)? / heads;
        let lanes = HeadLanes::new(heads, head_vectors, stride_vectors(NAME, op.q)?);
        let chunk_log2 = contract::chunk_log2(edges, self.driver().info().multiprocessors);
        let chunks = contract::chunks(edges, chunk_log2);
        let width = narrow(NAME, "elements of a vector", E::LANES)?;
        let floats = contract::part_floats(pass.outputs, width, pass.softmax);
        let workspace = self.lend(contract::staging_floats(chunks, &lanes, floats))?;
        let dropout = EdgeAttention {
            flags: if pass.transposed { TRANSPOSED } else { 0 },
            ..EdgeAttention::NONE
        };
        let ctas = chunks.div_ceil(WARPS_PER_CTA);
        let empty_count = narrow(NAME, "rows without edges", index.empty_rows.len())?;
        let params = DotAttentionParams {
            columns: self.array(&a.column_ids)?,
            offsets: self.array(a.offsets(self)?)?,
            starts: self.array(&index.starts)?,
            filled_rows: self.array(&index.filled_rows)?,
            empty_rows: self.array(&index.empty_rows)?,
            of_rows: matrices.of_rows,
            of_columns: matrices.of_columns,
            outputs: matrices.outputs,
            statistics: self.array(statistics)?,
            staging: DevicePtr::new(workspace.address()),
            edges,
            empty_count,
            chunk_log2,
            ctas,
            lanes,
            scale: op.scale,
            features: narrow(NAME, "columns", op.q.columns())?,
            dropout: self.with_dropout(dropout, op.dropout)?,
        };
        let config = |ctas, shared_bytes| LaunchConfig {
            grid: [ctas, lanes.tiles, 1],
            block: [THREADS_PER_CTA, 1, 1],
            shared_bytes,
        };
        let clearing = empty_count.div_ceil(contract::EMPTY_ROWS_PER_CTA);
        let [first, second] = pass.entries;
        // SAFETY: the operator checked that all matrices and the statistics fit the graph, whose arrays were checked when it was made;
        // the staging buffer has `staging_floats`.
        unsafe {
            self.launch(entry::<E>(first)?, config(ctas + clearing, contract::SHARED_BYTES), &params)?;
            // Rows of one chunk leave nothing to complete.
            if chunks > 1 {
                self.launch(entry::<E>(second)?, config(ctas, 0), &params)?;
            }
        }
        drop(workspace);
        Ok(())
    }
}
