//! Sums of messages on a GPU: a walk over the edges for each pass, and a follow-up for rows that several warps share.

use super::{
    EdgeOrder, MessageBackwardOperands, MessageGradients, MessageOperands, MessageOperators,
    MessageTerms, Messages,
};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, WalkedRows, expect_stride, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix, padded};
use halfgnn_contract::edge_walk::shared_bytes;
use halfgnn_contract::messages::{self as contract, MessageParams};
use halfgnn_contract::{DevicePtr, HalfBits};

const NAME: &str = "message_sums";

/// A pass: its walk and what completes rows of several chunks, its outputs, and its matrices of columns.
struct Pass {
    entries: [&'static str; 2],
    outputs: u32,
    columns: u32,
}

const FORWARD: Pass = Pass {
    entries: ["message_sums", "message_sums_follow_up"],
    outputs: 1,
    columns: contract::COLUMNS,
};

const ROWS: Pass = Pass {
    entries: ["message_sums_rows", "message_sums_rows_follow_up"],
    outputs: 2,
    columns: contract::COLUMNS,
};

const COLUMNS: Pass = Pass {
    entries: ["message_sums_columns", "message_sums_columns_follow_up"],
    outputs: 2,
    columns: contract::COLUMNS_OF_GRADIENT,
};

/// The matrices of a pass, as [`MessageParams`] has them.
struct Matrices {
    of_rows: [DevicePtr<HalfBits>; 3],
    of_columns: [DevicePtr<HalfBits>; 3],
    outputs: [DevicePtr<HalfBits>; 2],
    edge_outputs: [DevicePtr<HalfBits>; 2],
}

impl<D: Driver> MessageOperators for Gpu<D> {
    fn message_sums<E: Element>(
        &self,
        operands: Checked<MessageOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MessageOperands { a, op, y } = operands.into_inner();
        let [rows, columns] = self.terms(&op)?;
        let matrices = Matrices {
            of_rows: [rows[0], rows[1], DevicePtr::NULL],
            of_columns: [columns[0], columns[1], DevicePtr::NULL],
            outputs: [self.matrix(y)?, DevicePtr::NULL],
            edge_outputs: [DevicePtr::NULL; 2],
        };
        let like = (y.columns(), y.stride());
        self.walk_messages(&FORWARD, (a, op.order), &op, like, matrices)
    }

    fn message_sums_backward<E: Element>(
        &self,
        operands: Checked<MessageBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MessageBackwardOperands {
            a,
            transposed,
            op,
            dy,
            gate,
            value,
        } = operands.into_inner();
        let [rows, columns] = self.terms(&op)?;
        let gradient = self.matrix(dy)?;
        let both = [self.gradients(gate, dy)?, self.gradients(value, dy)?];
        let of = |kind: usize| both.each_ref().map(|of| of[kind]);
        let [destinations, sources, edges] = [of(0), of(1), of(2)];
        let like = (dy.columns(), dy.stride());
        if destinations
            .iter()
            .chain(&edges)
            .any(|output| !output.is_null())
        {
            let matrices = Matrices {
                of_rows: [rows[0], rows[1], gradient],
                of_columns: [columns[0], columns[1], DevicePtr::NULL],
                outputs: destinations,
                edge_outputs: edges,
            };
            self.walk_messages(&ROWS, (a, op.order), &op, like, matrices)?;
        }
        if sources.iter().all(|output| output.is_null()) {
            return Ok(());
        }
        let matrices = Matrices {
            of_rows: [columns[0], columns[1], DevicePtr::NULL],
            of_columns: [rows[0], rows[1], gradient],
            outputs: sources,
            edge_outputs: [DevicePtr::NULL; 2],
        };
        self.walk_messages(&COLUMNS, transposed, &op, like, matrices)
    }
}

/// Rows of messages as a walk has them.
pub(in crate::ops) fn rows_of_messages<E: Element>(
    operator: &'static str,
    features: usize,
    stride: usize,
) -> Result<WalkedRows, Error> {
    let row_vectors = padded::<E>(features) / E::LANES;
    let heads = row_vectors.div_ceil(contract::TILE_VECTORS as usize);
    Ok(WalkedRows {
        operator,
        heads,
        head_vectors: row_vectors.div_ceil(heads),
        row_vectors,
        stride: narrow(operator, "columns of a matrix", stride / E::LANES)?,
        features,
        lane_vectors: contract::VECTORS,
    })
}

impl<D: Driver> Gpu<D> {
    /// The matrices of `a` and `b`, of destinations and of sources.
    fn terms<E: Element>(
        &self,
        op: &Messages<'_, Self, E>,
    ) -> Result<[[DevicePtr<HalfBits>; 2]; 2], Error> {
        let of = |terms: &MessageTerms<'_, Self, E>| {
            Ok::<_, Error>([self.term(terms.destination)?, self.term(terms.source)?])
        };
        let [gate, value] = [of(&op.gate)?, of(&op.value)?];
        Ok([[gate[0], value[0]], [gate[1], value[1]]])
    }

    /// Where a matrix lies; nowhere if there is none.
    pub(in crate::ops) fn term<E: Element>(
        &self,
        matrix: Option<&Matrix<Self, E>>,
    ) -> Result<DevicePtr<HalfBits>, Error> {
        matrix.map_or(Ok(DevicePtr::NULL), |matrix| self.matrix(matrix))
    }

    /// The outputs of destinations, sources and edges.
    fn gradients<E: Element>(
        &self,
        gradients: MessageGradients<'_, Self, E>,
        like: &Matrix<Self, E>,
    ) -> Result<[DevicePtr<HalfBits>; 3], Error> {
        let matrices = gradients.each();
        expect_stride(NAME, like.stride(), matrices.into_iter().flatten())?;
        let mut found = [DevicePtr::NULL; 3];
        for (found, matrix) in found.iter_mut().zip(matrices) {
            *found = self.term(matrix)?;
        }
        Ok(found)
    }

    fn walk_messages<E: Element>(
        &self,
        pass: &Pass,
        (a, order): (&Adjacency<Self>, Option<&EdgeOrder<Self>>),
        op: &Messages<'_, Self, E>,
        (features, stride): (usize, usize),
        matrices: Matrices,
    ) -> Result<(), Error> {
        let terms = [op.gate.each(), op.value.each()];
        expect_stride(NAME, stride, terms.into_iter().flatten().flatten())?;
        if a.rows() == 0 || features == 0 || self.is_count_of_cpu() {
            return Ok(());
        }
        let rows = rows_of_messages::<E>(NAME, features, stride)?;
        let width = narrow(NAME, "elements of a vector", E::LANES)?;
        let floats = contract::part_floats(pass.outputs, width);
        let walk = self.edge_walk(a, &rows, floats)?;
        let has_value = op.value.each().iter().any(Option::is_some);
        let params = MessageParams {
            walk: walk.params,
            of_rows: matrices.of_rows,
            of_columns: matrices.of_columns,
            of_edges: [self.term(op.gate.edge)?, self.term(op.value.edge)?],
            outputs: matrices.outputs,
            edge_outputs: matrices.edge_outputs,
            order: order.map_or(Ok(DevicePtr::NULL), |order| self.array(order.rows()))?,
            row_scale: op
                .row_scale
                .map_or(Ok(DevicePtr::NULL), |scale| self.array(scale))?,
            acts: op.acts.map(|act| act.number()),
            has_value: u32::from(has_value),
            factor: op.factor,
        };
        let shared = shared_bytes((pass.columns + contract::EDGES) * contract::VECTORS);
        // SAFETY: the operator checked that all matrices fit the graph and each other.
        unsafe { walk.launch::<E, _>(self, pass.entries, shared, &params) }
    }
}
