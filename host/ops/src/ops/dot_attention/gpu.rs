//! Attention by dot products on a GPU: a walk over the edges for each pass, and a follow-up for rows that several warps share.

use super::{
    DotAttention, DotAttentionBackwardOperands, DotAttentionOperands, DotAttentionOperators,
};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, WalkedRows, expect_stride, narrow, stride_vectors};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, padded};
use halfgnn_contract::attention::{EdgeAttention, TRANSPOSED};
use halfgnn_contract::dot_attention::{self as contract, DotAttentionParams};
use halfgnn_contract::edge_walk::shared_bytes;
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
        expect_stride(NAME, op.q.stride(), [op.k, op.v, &*y])?;
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
        let others = [op.k, op.v, y, dy, &*dq, &*dk, &*dv];
        expect_stride(NAME, op.q.stride(), others)?;
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
        let head_vectors = padded::<E>(op.q.columns()) / E::LANES / op.heads;
        let width = narrow(NAME, "elements of a vector", E::LANES)?;
        let floats = contract::part_floats(pass.outputs, width, pass.softmax);
        let rows = WalkedRows {
            operator: NAME,
            heads: op.heads,
            head_vectors,
            row_vectors: head_vectors * op.heads,
            stride: stride_vectors(NAME, op.q)?,
            features: op.q.columns(),
            lane_vectors: contract::VECTORS,
        };
        let walk = self.edge_walk(a, &rows, floats)?;
        let dropout = EdgeAttention {
            flags: if pass.transposed { TRANSPOSED } else { 0 },
            ..EdgeAttention::NONE
        };
        let params = DotAttentionParams {
            walk: walk.params,
            of_rows: matrices.of_rows,
            of_columns: matrices.of_columns,
            outputs: matrices.outputs,
            statistics: self.array(statistics)?,
            scale: op.scale,
            reserved: 0,
            dropout: self.with_dropout(dropout, op.dropout)?,
        };
        let shared = shared_bytes(contract::EDGE_VECTORS);
        // SAFETY: the operator checked that all matrices and the statistics fit the graph.
        unsafe { walk.launch::<E, _>(self, pass.entries, shared, &params) }
    }
}
