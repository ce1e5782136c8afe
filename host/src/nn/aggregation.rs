//! Sums over neighbours.

use super::Context;
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{
    self, Accumulate, EdgeWeights, Scaling, Schedule, Spmm, SpmmEpilogue, SpmmPolicy,
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

impl Aggregation {
    /// `y = factor · R · A · C · x`, and the epilogue; `scaled` where `x` is multiplied by `C` already.
    ///
    /// # Errors
    /// Those of [`ops::spmm`].
    pub fn forward<B: Backend, E: Element>(
        self,
        at: &Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let graph = at.graph()?;
        let columns = graph.column_scale().filter(|_| !scaled);
        let factors = graph.edge_factors()?;
        let of_edges = factors.map(|it| (it.forward, it.scale));
        let op = self.op([columns, graph.row_scale()], of_edges, epilogue)?;
        ops::spmm(at.backend, graph.forward(), &op, x, y)
    }

    /// The gradient: through the transposed adjacency the two norms change places, `dx = factor · C · Aᵀ · R · d`, and
    /// the epilogue; `scaled` where `d` is multiplied by `R` already.
    ///
    /// # Errors
    /// Those of [`ops::spmm`].
    pub fn backward<B: Backend, E: Element>(
        self,
        at: &Context<'_, B, E>,
        scaled: bool,
        epilogue: SpmmEpilogue<'_, B, E>,
        d: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let graph = at.graph()?;
        let rows = graph.row_scale().filter(|_| !scaled);
        let factors = graph.edge_factors()?;
        let of_edges = factors.map(|it| (it.backward, it.scale));
        let op = self.op([rows, graph.column_scale()], of_edges, epilogue)?;
        ops::spmm(at.backend, graph.backward(), &op, d, dx)
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
        if self.policy.accumulate == Accumulate::Half || self.policy.scaling != Scaling::Discretized
        {
            return Err(Error::Unsupported {
                operator: "Aggregation",
                reason: "edges with weights are added up in float alone; take the default policy, or leave the weights out".into(),
            });
        }
        Ok(Spmm {
            weights: EdgeWeights::Features(factors),
            scale: self.factor * scale,
            ..op
        })
    }
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
        // Which warp has what is another question.
        let rounding = SpmmPolicy {
            schedule: Schedule::Auto,
            edges_per_warp: None,
            ..policy
        };
        if inputs < outputs && rounding == SpmmPolicy::default() {
            Order::AggregateFirst
        } else {
            Order::TransformFirst
        }
    }
}
