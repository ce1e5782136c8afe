//! What is timed: an operator with its operands, its policies, its check and its baselines.

use super::measure::{Operand, check_sddmm, check_spmm};
use super::peers::{PeerTime, Peers};
use crate::policy::{SddmmPolicyName, SpmmPolicyName};
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{self, Sddmm, Spmm, edge_plane};
use halfgnn::tensor::{Array, Element, Matrix};

/// An operator that is timed.
pub trait Operator {
    /// Its name, and the name of its rows in JSON.
    const NAME: &'static str;
    /// How it computes, as it is typed.
    type Policy: Copy + PartialEq;
    /// What it reads and writes.
    type Operands<B: Backend, E: Element>;

    /// The policy, as it is typed.
    fn name(policy: Self::Policy) -> String;

    /// The policy in a precision that is added up in float, and has no half to choose about.
    fn in_float(policy: Self::Policy) -> Self::Policy;

    /// The policy with everything chosen that can be; with that, two policies give the same sums.
    fn chosen(policy: Self::Policy) -> Self::Policy;

    /// Operands for a graph. The rows that are gathered are `stride` elements apart.
    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
        stride: usize,
    ) -> Result<Self::Operands<B, E>, Error>;

    /// One call.
    fn call<B: Backend, E: Element>(
        backend: &B,
        graph: &Adjacency<B>,
        policy: Self::Policy,
        operands: &mut Self::Operands<B, E>,
    ) -> Result<(), Error>;

    /// The largest |error| over Σ|terms| of some results, or what is wrong with one.
    fn check<B: Backend, E: Element>(
        backend: &B,
        graph: &Csr,
        operands: &Self::Operands<B, E>,
    ) -> Result<f64, String>;

    /// cuSPARSE's time on the same operands.
    fn cusparse<B: Backend, E: Element>(
        peers: &Peers<'_>,
        graph: &Csr,
        operands: &mut Self::Operands<B, E>,
        runs: u32,
    ) -> Result<PeerTime, String>;

    /// DGL's way of doing it, where there is one.
    fn dgl<B: Backend, E: Element>(
        _peers: &Peers<'_>,
        _graph: &Csr,
        _operands: &mut Self::Operands<B, E>,
        _runs: u32,
    ) -> Result<Option<PeerTime>, String> {
        Ok(None)
    }

    /// The matrix whose rows an edge's column names: what must be gathered.
    fn gathered<B: Backend, E: Element>(operands: &Self::Operands<B, E>) -> &Matrix<B, E>;

    /// Elements of the result.
    fn results(vertices: usize, edges: usize, features: usize) -> usize;
}

/// `y = A x`, the plain sum of the neighbours' rows.
pub struct SpmmOperator;

/// Operands of an SpMM.
pub struct SpmmOperands<B: Backend, E: Element> {
    /// vertices × F.
    pub x: Operand<B, E>,
    /// vertices × F.
    pub y: Matrix<B, E>,
}

impl Operator for SpmmOperator {
    const NAME: &'static str = "spmm";
    type Policy = SpmmPolicyName;
    type Operands<B: Backend, E: Element> = SpmmOperands<B, E>;

    fn name(policy: SpmmPolicyName) -> String {
        policy.to_string()
    }

    fn in_float(policy: SpmmPolicyName) -> SpmmPolicyName {
        policy.in_float()
    }

    fn chosen(policy: SpmmPolicyName) -> SpmmPolicyName {
        policy.sums()
    }

    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
        stride: usize,
    ) -> Result<SpmmOperands<B, E>, Error> {
        let vertices = graph.vertices();
        Ok(SpmmOperands {
            x: Operand::apart(backend, 0, (vertices, features), stride)?,
            y: Matrix::zeros(backend, vertices, features, MemoryKind::Activations)?,
        })
    }

    fn call<B: Backend, E: Element>(
        backend: &B,
        graph: &Adjacency<B>,
        policy: SpmmPolicyName,
        operands: &mut SpmmOperands<B, E>,
    ) -> Result<(), Error> {
        let op = Spmm {
            policy: policy.0,
            ..Spmm::default()
        };
        ops::spmm(backend, graph, &op, &operands.x.matrix, &mut operands.y)
    }

    fn check<B: Backend, E: Element>(
        backend: &B,
        graph: &Csr,
        operands: &SpmmOperands<B, E>,
    ) -> Result<f64, String> {
        check_spmm(backend, graph, &operands.x, &operands.y)
    }

    fn cusparse<B: Backend, E: Element>(
        peers: &Peers<'_>,
        graph: &Csr,
        operands: &mut SpmmOperands<B, E>,
        runs: u32,
    ) -> Result<PeerTime, String> {
        peers.spmm(graph, &operands.x, &mut operands.y, runs)
    }

    fn gathered<B: Backend, E: Element>(operands: &SpmmOperands<B, E>) -> &Matrix<B, E> {
        &operands.x.matrix
    }

    fn results(vertices: usize, _edges: usize, features: usize) -> usize {
        vertices * features
    }
}

/// `e[k] = u[row k] · v[column k]`.
pub struct SddmmOperator;

/// Operands of an SDDMM.
pub struct SddmmOperands<B: Backend, E: Element> {
    /// vertices × F.
    pub u: Operand<B, E>,
    /// vertices × F.
    pub v: Operand<B, E>,
    /// A plane of edges.
    pub e: Array<B, E>,
}

impl Operator for SddmmOperator {
    const NAME: &'static str = "sddmm";
    type Policy = SddmmPolicyName;
    type Operands<B: Backend, E: Element> = SddmmOperands<B, E>;

    fn name(policy: SddmmPolicyName) -> String {
        policy.as_str().into()
    }

    fn in_float(policy: SddmmPolicyName) -> SddmmPolicyName {
        match policy {
            SddmmPolicyName::Hp => policy,
            _ => SddmmPolicyName::Half8Tensor,
        }
    }

    fn chosen(policy: SddmmPolicyName) -> SddmmPolicyName {
        match policy {
            SddmmPolicyName::Hp => SddmmPolicyName::Half8Tensor,
            _ => policy,
        }
    }

    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
        stride: usize,
    ) -> Result<SddmmOperands<B, E>, Error> {
        let vertices = graph.vertices();
        Ok(SddmmOperands {
            u: Operand::new(backend, 0, vertices, features)?,
            v: Operand::apart(backend, 1, (vertices, features), stride)?,
            e: Array::zeros(backend, edge_plane(graph.edges()), MemoryKind::Activations)?,
        })
    }

    fn call<B: Backend, E: Element>(
        backend: &B,
        graph: &Adjacency<B>,
        policy: SddmmPolicyName,
        SddmmOperands { u, v, e }: &mut SddmmOperands<B, E>,
    ) -> Result<(), Error> {
        let op = Sddmm {
            policy: policy.into(),
            ..Sddmm::default()
        };
        ops::sddmm(backend, graph, &op, &u.matrix, &v.matrix, e)
    }

    fn check<B: Backend, E: Element>(
        backend: &B,
        graph: &Csr,
        SddmmOperands { u, v, e }: &SddmmOperands<B, E>,
    ) -> Result<f64, String> {
        check_sddmm(backend, graph, u, v, e)
    }

    fn cusparse<B: Backend, E: Element>(
        peers: &Peers<'_>,
        graph: &Csr,
        operands: &mut SddmmOperands<B, E>,
        runs: u32,
    ) -> Result<PeerTime, String> {
        peers.sddmm(graph, &operands.u, &operands.v, runs)
    }

    fn dgl<B: Backend, E: Element>(
        peers: &Peers<'_>,
        graph: &Csr,
        SddmmOperands { u, v, e }: &mut SddmmOperands<B, E>,
        runs: u32,
    ) -> Result<Option<PeerTime>, String> {
        peers.edge_by_edge(graph, u, v, e, runs)
    }

    fn gathered<B: Backend, E: Element>(operands: &SddmmOperands<B, E>) -> &Matrix<B, E> {
        &operands.v.matrix
    }

    fn results(_vertices: usize, edges: usize, _features: usize) -> usize {
        edges
    }
}
