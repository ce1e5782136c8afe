//! Numbers for edges: SDDMM.

use super::{Checked, MOST_HEADS, Operator, expect_shape};
use crate::backend::{
    Accumulate, Adjacency, Backend, EdgeCombine, EdgeOperand, Sddmm, Storage, edge_plane,
};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// Sampled dense times dense (HalfGNN §4.2): `e[h][k] = scale · Σ_f u[row_k, f] · v[col_k, f]` for each edge `k` and head
/// `h`, `f` over the columns of the head.
///
/// `u` is rows × (heads · D) and `v` columns × (heads · D), for any D; of a square graph they may be one matrix; with more than one head, D fills whole
/// 16-byte vectors (8 halves, 4 floats). `e` has a plane for each head, [`edge_plane`] apart. In half precision and with
/// the default policy sums are in float and rounded once, so nothing overflows but a result that half cannot hold.
///
/// The gradients are SpMMs over the same graph, with the gradient `d` of `e` as edge weights: `du = scale · A_d v`, and
/// `dv = scale · A_dᵀ u` in the transposed edge order.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or the other, [`Error::Unsupported`] where the columns cannot
/// be divided into heads or no kernel has the policy.
pub fn sddmm<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: &Sddmm,
    u: &Matrix<B, E>,
    v: &Matrix<B, E>,
    e: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = SddmmOperands { a, op, u, v, e };
    backend.sddmm(Checked::new(operands)?)
}

/// Operands of an [SDDMM](sddmm).
#[derive(Debug)]
pub struct SddmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What is computed, and how.
    pub op: &'a Sddmm,
    /// Features of the rows.
    pub u: &'a Matrix<B, E>,
    /// Features of the columns.
    pub v: &'a Matrix<B, E>,
    /// Becomes the numbers of the edges.
    pub e: &'a mut Array<B, E>,
}

impl<B: Storage, E: Element> Operator for SddmmOperands<'_, B, E> {
    const NAME: &'static str = "sddmm";

    fn check(&self) -> Result<(), Error> {
        let SddmmOperands { a, op, u, v, e } = self;
        expect_shape(
            Self::NAME,
            ["rows of u", "columns of u"],
            (a.rows(), u.columns()),
            u,
        )?;
        expect_shape(
            Self::NAME,
            ["rows of v", "columns of v"],
            (a.columns(), u.columns()),
            v,
        )?;
        check_heads::<E>(Self::NAME, op.heads, u.columns())?;
        let in_half = op.policy.accumulate == Accumulate::Half;
        if let Some(reason) = E::PRECISION.without_arithmetic(in_half) {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason,
            });
        }
        Error::expect(
            Self::NAME,
            "edge values",
            op.heads * edge_plane(a.edges()),
            e.len(),
        )?;
        Ok(())
    }
}

/// SDDMM without a dot product: for each edge and head the sum, difference, product or quotient of two numbers, or a copy
/// of one, each of them of the edge's row, of its column, or its own. Computed in float and rounded once.
///
/// Planes of rows are `heads · rows` floats, those of columns `heads · columns`, planes of edges `heads ·` [`edge_plane`] elements.
///
/// # Errors
/// [`Error::Shape`] where an operand or `e` does not fit the graph and the heads, [`Error::Unsupported`] for no head or
/// too many.
pub fn combine_edges<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    op: &EdgeCombine<'_, B, E>,
    e: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = CombineEdgesOperands { a, heads, op, e };
    backend.combine_edges(Checked::new(operands)?)
}

/// Operands of [`combine_edges`].
#[derive(Debug)]
pub struct CombineEdgesOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// The operator and its operands.
    pub op: &'a EdgeCombine<'a, B, E>,
    /// Becomes the numbers of the edges.
    pub e: &'a mut Array<B, E>,
}

impl<B: Storage, E: Element> Operator for CombineEdgesOperands<'_, B, E> {
    const NAME: &'static str = "combine_edges";

    fn check(&self) -> Result<(), Error> {
        let heads = self.heads;
        let CombineEdgesOperands { a, op, e, .. } = self;
        check_heads::<E>(Self::NAME, heads, 0)?;
        let expect = |name: &'static str, operand: &EdgeOperand<'_, B, E>| match operand {
            EdgeOperand::Row(values) => {
                Error::expect(Self::NAME, name, heads * a.rows(), values.len())
            }
            EdgeOperand::Column(values) => {
                Error::expect(Self::NAME, name, heads * a.columns(), values.len())
            }
            EdgeOperand::Edge(values) => Error::expect(
                Self::NAME,
                name,
                heads * edge_plane(a.edges()),
                values.len(),
            ),
        };
        let (left, right) = op.operands();
        expect("the first operand", left)?;
        right.map_or(Ok(()), |right| expect("the second operand", right))?;
        Error::expect(
            Self::NAME,
            "edge values",
            heads * edge_plane(a.edges()),
            e.len(),
        )?;
        Ok(())
    }
}

/// Refuses columns that are no `heads` heads of whole 16-byte vectors.
fn check_heads<E: Element>(
    operator: &'static str,
    heads: usize,
    columns: usize,
) -> Result<(), Error> {
    let reason = if heads == 0 {
        "there must be one head at least".into()
    } else if heads > MOST_HEADS {
        format!("{heads} heads are more than {MOST_HEADS}")
    } else if heads > 1 && !columns.is_multiple_of(heads.saturating_mul(E::LANES)) {
        format!(
            "{columns} columns are not {heads} heads of a multiple of {} columns each",
            E::LANES
        )
    } else {
        return Ok(());
    };
    Err(Error::Unsupported { operator, reason })
}
