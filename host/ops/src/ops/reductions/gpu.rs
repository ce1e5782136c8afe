//! Reductions of messages on a GPU: a walk over the edges for each pass, and a follow-up for rows that several warps
//! share.

use super::{
    MessageReduction, ReducedMessages, ReductionBackwardOperands, ReductionOperands,
    ReductionOperators, ReductionResults,
};
use crate::backend::gpu::{Gpu, expect_stride, narrow};
use crate::backend::{Adjacency, Storage};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::messages::gpu::rows_of_messages;
use crate::ops::{Checked, EdgeOrder, MessageAct, MessageGradients};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::edge_walk::shared_bytes;
use halfgnn_contract::messages::VECTORS;
use halfgnn_contract::reductions::{self as contract, ReductionParams};
use halfgnn_contract::{DevicePtr, HalfBits};

const NAME: &str = "reduce_messages";

/// A pass: its walk and what completes rows of several chunks, the floats of a lane by the elements of a vector, and
/// its matrices of columns and edges.
struct Pass {
    entries: [&'static str; 2],
    floats: fn(u32) -> u32,
    columns: u32,
    edges: u32,
}

/// The passes of a reduction: forward, by rows and by columns.
fn passes(reduction: MessageReduction) -> [Pass; 3] {
    let gradient: fn(u32) -> u32 = |width| contract::part_floats(1, width);
    let of = |names: [[&'static str; 2]; 3], floats, columns| {
        let [forward, rows, of_columns] = names;
        [
            (forward, floats, contract::COLUMNS),
            (rows, gradient, contract::COLUMNS),
            (of_columns, gradient, columns),
        ]
        .map(|(entries, floats, columns)| Pass {
            entries,
            floats,
            columns,
            edges: contract::EDGES,
        })
    };
    /// The entries of a reduction, with what completes the rows of each.
    macro_rules! names {
        ($name:literal) => {
            [
                [$name, concat!($name, "_follow_up")],
                [concat!($name, "_rows"), concat!($name, "_rows_follow_up")],
                [
                    concat!($name, "_columns"),
                    concat!($name, "_columns_follow_up"),
                ],
            ]
        };
    }
    match reduction {
        MessageReduction::Max | MessageReduction::Min => of(
            names!("message_maxima"),
            |width| contract::part_floats(1 + contract::SUMS_OF_MAXIMA, width),
            contract::COLUMNS_OF_MAXIMA,
        ),
        MessageReduction::Softmax => of(
            names!("message_softmax"),
            |width| contract::part_floats(1 + contract::SUMS_OF_SOFTMAX, width),
            contract::COLUMNS_OF_SOFTMAX,
        ),
        MessageReduction::Deviation => of(
            names!("message_deviations"),
            |width| contract::part_floats(contract::SUMS_OF_DEVIATIONS, width),
            contract::COLUMNS_OF_DEVIATIONS,
        ),
    }
}

/// Whether messages are rows of sources as they are, of which maxima have passes of their own.
fn are_copied<B: Storage, E: Element>(op: &ReducedMessages<'_, B, E>) -> bool {
    matches!(op.reduction, MessageReduction::Max | MessageReduction::Min)
        && op.act == MessageAct::Identity
        && op.rows.destination.is_none()
        && op.rows.edge.is_none()
}

/// The pass of copied rows in the place of another, which completes its rows.
fn of_copied(of: Pass, entry: &'static str, columns: u32) -> Pass {
    Pass {
        entries: [entry, of.entries[1]],
        columns,
        edges: 0,
        ..of
    }
}

/// The matrices of a pass, as [`ReductionParams`] has them.
struct Matrices {
    of_rows: [DevicePtr<HalfBits>; 4],
    of_columns: [DevicePtr<HalfBits>; 4],
    outputs: [DevicePtr<HalfBits>; 3],
    edge_output: DevicePtr<HalfBits>,
}

/// One matrix and nothing behind it.
fn alone<const N: usize>(first: DevicePtr<HalfBits>) -> [DevicePtr<HalfBits>; N] {
    let mut found = [DevicePtr::NULL; N];
    found[0] = first;
    found
}

impl<D: Driver> ReductionOperators for Gpu<D> {
    fn reduce_messages<E: Element>(
        &self,
        operands: Checked<ReductionOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ReductionOperands { a, op, results } = operands.into_inner();
        let ReductionResults { y, share, kept } = results;
        let others = [share.as_deref(), kept.as_deref()];
        expect_stride(NAME, y.stride(), others.into_iter().flatten())?;
        let matrices = Matrices {
            of_rows: alone(self.term(op.rows.destination)?),
            of_columns: alone(self.term(op.rows.source)?),
            outputs: [
                self.matrix(y)?,
                self.term(others[0])?,
                self.term(others[1])?,
            ],
            edge_output: DevicePtr::NULL,
        };
        let [mut forward, _, _] = passes(op.reduction);
        if are_copied(&op) {
            forward = of_copied(forward, "message_maxima_copied", contract::COLUMNS);
        }
        let like = (y.columns(), y.stride());
        self.walk_reduced(&forward, (a, op.order), &op, like, matrices)
    }

    fn reduce_messages_backward<E: Element>(
        &self,
        operands: Checked<ReductionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ReductionBackwardOperands {
            a,
            transposed,
            op,
            d,
            y,
            kept,
            gradients,
        } = operands.into_inner();
        let MessageGradients {
            destination,
            source,
            edge,
        } = gradients;
        let outputs = [destination.as_deref(), source.as_deref(), edge.as_deref()];
        let kept = kept.filter(|_| op.reduction.reads_kept());
        let read = match op.reduction.reads_result() {
            true => [y, kept],
            false => [kept, None],
        };
        let all = read.into_iter().chain(outputs).flatten();
        expect_stride(NAME, d.stride(), all)?;
        let read = [self.matrix(d)?, self.term(read[0])?, self.term(read[1])?];
        let [of_destinations, of_sources, of_edges] = outputs;
        let of_destinations = self.term(of_destinations)?;
        let (of_sources, of_edges) = (self.term(of_sources)?, self.term(of_edges)?);
        let destinations = self.term(op.rows.destination)?;
        let with_kept = [destinations, read[0], read[1], read[2]];
        let sources = alone(self.term(op.rows.source)?);
        let [_, rows, mut columns] = passes(op.reduction);
        let like = (d.columns(), d.stride());
        if !of_destinations.is_null() || !of_edges.is_null() {
            let matrices = Matrices {
                of_rows: with_kept,
                of_columns: sources,
                outputs: alone(of_destinations),
                edge_output: of_edges,
            };
            self.walk_reduced(&rows, (a, op.order), &op, like, matrices)?;
        }
        if of_sources.is_null() {
            return Ok(());
        }
        let mut of_columns = with_kept;
        if are_copied(&op) {
            let matrices = contract::COLUMNS_OF_COPIED_MAXIMA;
            columns = of_copied(columns, "message_maxima_copied_columns", matrices);
            of_columns = [read[0], read[1], DevicePtr::NULL, DevicePtr::NULL];
        }
        let matrices = Matrices {
            of_rows: sources,
            of_columns,
            outputs: alone(of_sources),
            edge_output: DevicePtr::NULL,
        };
        self.walk_reduced(&columns, transposed, &op, like, matrices)
    }
}

impl<D: Driver> Gpu<D> {
    fn walk_reduced<E: Element>(
        &self,
        pass: &Pass,
        (a, order): (&Adjacency<Self>, Option<&EdgeOrder<Self>>),
        op: &ReducedMessages<'_, Self, E>,
        (features, stride): (usize, usize),
        matrices: Matrices,
    ) -> Result<(), Error> {
        let terms: [Option<&Matrix<Self, E>>; 3] = op.rows.each();
        expect_stride(NAME, stride, terms.into_iter().flatten())?;
        if a.rows() == 0 || features == 0 || self.is_count_of_cpu() {
            return Ok(());
        }
        let rows = rows_of_messages::<E>(NAME, features, stride)?;
        let width = narrow(NAME, "elements of a vector", E::LANES)?;
        let walk = self.edge_walk(a, &rows, (pass.floats)(width))?;
        let params = ReductionParams {
            walk: walk.params,
            of_rows: matrices.of_rows,
            of_columns: matrices.of_columns,
            of_edges: self.term(op.rows.edge)?,
            outputs: matrices.outputs,
            edge_output: matrices.edge_output,
            order: order.map_or(Ok(DevicePtr::NULL), |order| self.array(order.rows()))?,
            act: op.act.number(),
            sign: match op.reduction {
                MessageReduction::Min => -1.0,
                _ => 1.0,
            },
        };
        let shared = shared_bytes((pass.columns + pass.edges) * VECTORS);
        // SAFETY: the operator checked that all matrices fit the graph and each other.
        unsafe { walk.launch::<E, _>(self, pass.entries, shared, &params) }
    }
}
