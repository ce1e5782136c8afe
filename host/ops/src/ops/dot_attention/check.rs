//! Which operands attention by dot products takes.

use super::{DotAttention, DotAttentionBackwardOperands, DotAttentionOperands};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_shape, expect_transposed, expect_vertices, expect_width};
use crate::tensor::Element;
use halfgnn_contract::dot_attention::HEAD_VECTORS_MAX;
use halfgnn_contract::edge_walk::EDGES_MAX;

impl<B: Storage, E: Element> Operator for DotAttentionOperands<'_, B, E> {
    const NAME: &'static str = "dot_attention";

    fn check(&self) -> Result<(), Error> {
        let DotAttentionOperands {
            a,
            op,
            y,
            statistics,
        } = self;
        op.check(Self::NAME, a)?;
        let what = ["rows of the output", "columns of the output"];
        expect_shape(Self::NAME, what, op.q.shape(), y)?;
        expect_vertices(Self::NAME, "statistics", op.heads, a.rows(), statistics)
    }
}

impl<B: Storage, E: Element> Operator for DotAttentionBackwardOperands<'_, B, E> {
    const NAME: &'static str = "dot_attention_backward";

    fn check(&self) -> Result<(), Error> {
        let Self {
            a,
            transposed,
            op,
            y,
            dy,
            statistics,
            dq,
            dk,
            dv,
        } = self;
        op.check(Self::NAME, a)?;
        expect_transposed(Self::NAME, a, transposed)?;
        let what = ["rows of the output", "columns of the output"];
        expect_shape(Self::NAME, what, op.q.shape(), y)?;
        let what = [
            "rows of the gradient of the output",
            "columns of the gradient of the output",
        ];
        expect_shape(Self::NAME, what, op.q.shape(), dy)?;
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, op.q.shape(), dq)?;
        expect_shape(Self::NAME, what, op.k.shape(), dk)?;
        expect_shape(Self::NAME, what, op.v.shape(), dv)?;
        expect_vertices(Self::NAME, "statistics", op.heads, a.rows(), statistics)
    }
}

impl<B: Storage, E: Element> DotAttention<'_, B, E> {
    fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<(), Error> {
        let columns = self.q.columns();
        expect_width(operator, self.heads, self.q)?;
        let refuse = |reason| Err(Error::Unsupported { operator, reason });
        let widest = HEAD_VECTORS_MAX as usize * E::LANES;
        if columns / self.heads > widest {
            return refuse(format!(
                "heads of {} columns; at most {widest} are possible in {}",
                columns / self.heads,
                E::PRECISION
            ));
        }
        if a.edges() > EDGES_MAX as usize {
            return refuse(format!(
                "{} edges; at most {EDGES_MAX} are possible",
                a.edges()
            ));
        }
        if !self.scale.is_finite() {
            return refuse(format!("the scale {} is not finite", self.scale));
        }
        let what = ["rows of the queries", "columns of the queries"];
        expect_shape(operator, what, (a.rows(), columns), self.q)?;
        let what = ["rows of the keys", "columns of the keys"];
        expect_shape(operator, what, (a.columns(), columns), self.k)?;
        let what = ["rows of the values", "columns of the values"];
        expect_shape(operator, what, (a.columns(), columns), self.v)
    }
}
