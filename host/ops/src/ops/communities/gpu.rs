//! A round of label propagation: one launch, a warp for 32 vertices.

use super::{CommunityOperators, PropagateOperands};
use crate::backend::MemoryKind;
use crate::backend::gpu::{Gpu, linear_config, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Array;
use halfgnn_contract::communities::{PropagateParams, THREADS_PER_CTA, ctas, warps};

impl<D: Driver> CommunityOperators for Gpu<D> {
    fn propagate_labels(
        &self,
        operands: Checked<PropagateOperands<'_, Self>>,
    ) -> Result<u64, Error> {
        const NAME: &str = "propagate_labels";
        let of = operands.into_inner();
        let vertices = narrow(NAME, "vertices", of.labels.len())?;
        let words = warps(vertices) as usize;
        let moved = Array::<Self, u32>::uninit(self, words, MemoryKind::Workspace)?;
        let params = PropagateParams {
            offsets: self.array(of.neighbors.offsets)?,
            columns: self.array(of.neighbors.columns)?,
            labels: self.array(of.labels)?,
            next: self.array(of.next)?,
            moved: self.array(&moved)?,
            edges: of.neighbors.columns.len() as u64,
            vertices,
            round: of.round,
        };
        let config = linear_config(NAME, ctas(vertices).into(), THREADS_PER_CTA, 0)?;
        // SAFETY: the operator checked that there is a label a vertex before and after, and an offset more; the kernel
        // looks whether an edge is one and a neighbour a vertex. A count for each warp was just made.
        unsafe { self.launch(NAME, config, &params)? };
        Ok(moved.to_vec(self)?.into_iter().map(u64::from).sum())
    }
}
