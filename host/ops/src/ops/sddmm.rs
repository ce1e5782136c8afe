//! Numbers for edges: SDDMM.

use super::{MOST_HEADS, expect_shape};
use crate::backend::{Accumulate, Adjacency, Backend, EdgeCombine, EdgeOperand, Sddmm, edge_plane};
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
    const NAME: &str = "sddmm";
    expect_shape(
        NAME,
        ["rows of u", "columns of u"],
        (a.rows(), u.columns()),
        u,
    )?;
    expect_shape(
        NAME,
        ["rows of v", "columns of v"],
        (a.columns(), u.columns()),
        v,
    )?;
    check_heads::<E>(NAME, op.heads, u.columns())?;
    let in_half = op.policy.accumulate == Accumulate::Half;
    if let Some(reason) = E::PRECISION.without_arithmetic(in_half) {
        return Err(Error::Unsupported {
            operator: NAME,
            reason,
        });
    }
    Error::expect(
        NAME,
        "edge values",
        op.heads * edge_plane(a.edges()),
        e.len(),
    )?;
    backend.sddmm(a, op, u, v, e)
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
    const NAME: &str = "combine_edges";
    check_heads::<E>(NAME, heads, 0)?;
    let expect = |name: &'static str, operand: &EdgeOperand<'_, B, E>| match operand {
        EdgeOperand::Row(values) => Error::expect(NAME, name, heads * a.rows(), values.len()),
        EdgeOperand::Column(values) => Error::expect(NAME, name, heads * a.columns(), values.len()),
        EdgeOperand::Edge(values) => {
            Error::expect(NAME, name, heads * edge_plane(a.edges()), values.len())
        }
    };
    let (left, right) = op.operands();
    expect("the first operand", left)?;
    right.map_or(Ok(()), |right| expect("the second operand", right))?;
    Error::expect(NAME, "edge values", heads * edge_plane(a.edges()), e.len())?;
    backend.combine_edges(a, heads, op, e)
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
