//! Sums over neighbours.

use super::messages::{Direction, Messages};
use super::{Context, Mode, Pool, Propagation};
use crate::backend::{Adjacency, Backend};
use crate::error::Error;
use crate::ops::{
    self, Accumulate, Coding, EdgeWeights, Epilogue, Form, MatmulFusion, Scaling, Schedule, Spmm,
    SpmmEpilogue, SpmmPolicy,
};
use crate::tensor::{Array, Element, Matrix};

/// A sum over neighbours with the degree norms of a [`Propagation`](super::Propagation): `factor · R · A · C · x`.
#[derive(Clone, Copy, Debug)]
pub struct Aggregation {
    /// How it sums up.
    pub policy: SpmmPolicy,
    /// Factor of the whole.
    pub factor: f32,
}

/// Whether a policy rounds as the default does: which warp has what is another question.
pub(crate) fn rounds_by_default(policy: SpmmPolicy) -> bool {
    let rounding = SpmmPolicy {
        schedule: Schedule::Auto,
        edges_per_warp: None,
        ..policy
    };
    rounding == SpmmPolicy::DEFAULT
}

/// That edges with weights are summed by a policy.
///
/// # Errors
/// [`Error::Unsupported`] of one that does not sum in float.
pub(crate) fn check_policy_of_weights(policy: SpmmPolicy) -> Result<(), Error> {
    if policy.accumulate == Accumulate::Float && policy.scaling == Scaling::Discretized {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator: "Aggregation",
        reason: "edges with weights are added up in float alone; take the default policy, or leave the weights out".into(),
    })
}

impl Aggregation {
    /// `y = factor · R · A · C · x`, and the epilogue; `scaled` where `x` is multiplied by `C` already.
    ///
    /// # Errors
    /// Those of [`ops::spmm`] and, where a [stage](super::Stage::messages) sends codes, of [`ops::quantized_spmm`].
    pub fn forward<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let graph = at.graph()?;
        let columns = at.column_scale()?.filter(|_| !scaled);
        let factors = graph.edge_factors()?;
        let along = Along {
            direction: Direction::Forward,
            a: graph.forward(),
            columns,
            rows: graph.row_scale(),
            of_edges: factors.map(|it| (it.forward, it.scale)),
        };
        self.sum(at, along, epilogue, x, y)
    }

    /// The gradient: through the transposed adjacency the two norms change places, `dx = factor · C · Aᵀ · R · d`, and
    /// the epilogue; `scaled` where `d` is multiplied by `R` already.
    ///
    /// # Errors
    /// Those of [`Aggregation::forward`].
    pub fn backward<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        d: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let graph = at.graph()?;
        let rows = graph.row_scale().filter(|_| !scaled);
        let factors = graph.edge_factors()?;
        let against = Along {
            direction: Direction::Backward,
            // Codes of gradients come as those of activations do, along the edges that go both ways.
            a: match at.exchanges_codes() {
                true => graph.forward(),
                false => graph.backward(at.backend)?,
            },
            columns: rows,
            rows: at.column_scale()?,
            of_edges: factors.map(|it| (it.backward, it.scale)),
        };
        self.sum(at, against, epilogue, d, dx)
    }

    /// The sum, of `x` as it is or of its codes.
    fn sum<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        along: Along<'_, B, E>,
        epilogue: SpmmEpilogue<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let Along {
            direction,
            a,
            columns,
            rows,
            of_edges,
        } = along;
        let (backend, mode, graph) = (at.backend, at.mode, at.graph()?);
        let Some(messages) = &mut at.messages else {
            let op = self.op([columns, rows], of_edges, epilogue)?;
            return ops::spmm(backend, a, &op, x, y);
        };
        // Factors of columns are in the codes.
        let op = self.op([None, rows], of_edges, epilogue)?;
        let codes = messages.encode(backend, at.pool, (direction, mode), x, (columns, graph))?;
        ops::quantized_spmm(backend, a, &op, codes, y)?;
        messages.release(backend, at.pool, direction)
    }

    /// The SpMM with these factors of columns and of rows, or with these of edges and a power of two.
    fn op<'a, B: Backend, E: Element>(
        self,
        [columns, rows]: [Option<&'a Array<B, f32>>; 2],
        of_edges: Option<(&'a Array<B, E>, f32)>,
        epilogue: SpmmEpilogue<'a, B, E>,
    ) -> Result<Spmm<'a, B, E>, Error> {
        let op = Spmm {
            weights: columns.map_or(EdgeWeights::Ones, EdgeWeights::Columns),
            row_scale: rows,
            scale: self.factor,
            policy: self.policy,
            epilogue,
            ..Spmm::default()
        };
        let Some((factors, scale)) = of_edges else {
            return Ok(op);
        };
        check_policy_of_weights(self.policy)?;
        Ok(Spmm {
            weights: EdgeWeights::Features(factors),
            scale: self.factor * scale,
            ..op
        })
    }
}

/// What is sent next: which way, and with which factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) direction: Direction,
    /// As [`Aggregation::forward`] and [`Aggregation::backward`] are told.
    pub(super) scaled: bool,
    /// Whether only the sum reads it.
    pub(super) alone: bool,
}

impl Sending {
    /// What an operator is told that makes a matrix of so many rows, where its codes are to be made on the way.
    pub(super) fn coding<'a, B: Backend, E: Element>(
        self,
        backend: &B,
        messages: Option<&'a mut Messages<B>>,
        pool: &mut Pool<B, E>,
        mode: Mode<'a, B>,
        graph: &'a Propagation<B>,
        rows: usize,
    ) -> Result<Option<Coding<'a, B>>, Error> {
        let Some(messages) = messages else {
            return Ok(None);
        };
        let factors = match self.direction {
            Direction::Forward => graph.sent_scale(messages.exchanges()),
            Direction::Backward => graph.row_scale(),
        };
        let factors = factors.filter(|_| !self.scaled);
        let way = (self.direction, mode);
        messages.coding(backend, pool, way, (rows, graph), factors, self.alone)
    }

    /// `y = epilogue(a · b)`, which is sent next: its codes are made where it is written, where codes are sent.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub(super) fn product<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        form: Form,
        [a, b]: [&Matrix<B, E>; 2],
        epilogue: &Epilogue<'_, B>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, graph) = (at.backend, at.graph()?);
        let messages = at.messages.as_deref_mut();
        let fusion = MatmulFusion {
            coding: self.coding(backend, messages, at.pool, at.mode, graph, y.rows())?,
            ..MatmulFusion::default()
        };
        let made = fusion.coding.is_some();
        ops::matmul_fused(backend, form, a, b, epilogue, fusion, y)?;
        match at.messages.as_deref_mut().filter(|_| made) {
            Some(messages) => messages.begin(backend, at.pool, self.direction, graph),
            None => Ok(()),
        }
    }
}

/// The edges that a sum is along, and what they and their ends multiply.
struct Along<'a, B: Backend, E: Element> {
    direction: Direction,
    a: &'a Adjacency<B>,
    /// Of the senders.
    columns: Option<&'a Array<B, f32>>,
    /// Of those that hear.
    rows: Option<&'a Array<B, f32>>,
    of_edges: Option<(&'a Array<B, E>, f32)>,
}

/// Which of a layer's two linear maps comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// `A · (H · W)`: the aggregation sees the layer's outputs.
    TransformFirst,
    /// `(A · H) · W`: the aggregation sees the layer's inputs, and its result is stored for the gradient of `W`.
    AggregateFirst,
}

impl Order {
    /// The order whose aggregation is narrower. Aggregating first wants the column factors inside the SpMM, which only
    /// the default policy has kernels for.
    pub(super) fn choose(inputs: usize, outputs: usize, policy: SpmmPolicy) -> Self {
        Self::where_it_pays(inputs < outputs, policy)
    }

    /// The same of a step on a sampled block, whose few destinations hear from many sources: of equal widths the product is of the
    /// fewer rows where it comes last.
    pub(super) fn choose_on_block(inputs: usize, outputs: usize, policy: SpmmPolicy) -> Self {
        Self::where_it_pays(inputs <= outputs, policy)
    }

    fn where_it_pays(aggregating_first: bool, policy: SpmmPolicy) -> Self {
        if aggregating_first && rounds_by_default(policy) {
            Order::AggregateFirst
        } else {
            Order::TransformFirst
        }
    }
}
