//! SDDMM, and the softmax over the edges of a row: values of edges are planes, a head each.

use super::interface::Interface;
use super::operands::{Graph, Site};
use super::operator::{Direct, Operand, operator};
use crate::operators::{SddmmCall, SoftmaxCall};
use halfgnn::ops::edge_plane;

/// A bit of the graph's: behind the operands' last columns is memory of theirs that holds zeros.
const PADDED: usize = 4;

operator! {
    /// Dot products of edges.
    Sddmm = "sddmm_direct" { a: Graph, u: Operand, v: Operand }
}

impl Direct<1> for Sddmm {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 1]> {
        let site = Site::of(torch, &self.u)?;
        let a = site.adjacency(&self.a)?;
        let [_, (columns, _)] = self.u.shape::<2>()?;
        let matrix = |of, rows| site.clean(of, (rows, columns), self.a.has(PADDED));
        let (planes, e) = site.new_planes(self.a.heads(), edge_plane(a.2))?;
        let call = SddmmCall {
            precision: site.precision,
            a,
            u: matrix(&self.u, a.1)?,
            v: matrix(&self.v, a.4)?,
            e,
            heads: self.a.heads(),
        };
        site.perform(&call)?;
        Some([planes])
    }
}

operator! {
    /// Softmax over the edges of each row.
    Softmax = "edge_softmax_direct" { a: Graph, e: Operand }
}

impl Direct<1> for Softmax {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 1]> {
        softmax(torch, &self.a, None, &self.e)
    }
}

operator! {
    /// Its gradient, of what it gave and the gradient of that.
    SoftmaxBackward = "edge_softmax_backward_direct" { a: Graph, alpha: Operand, d: Operand }
}

impl Direct<1> for SoftmaxBackward {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 1]> {
        softmax(torch, &self.a, Some(&self.alpha), &self.d)
    }
}

fn softmax(
    torch: &'static Interface,
    of: &Graph,
    alpha: Option<&Operand>,
    e: &Operand,
) -> Option<[Operand; 1]> {
    let site = Site::of(torch, e)?;
    let a = site.adjacency(of)?;
    let len = of.heads().checked_mul(edge_plane(a.2))?;
    let alpha = match alpha {
        None => None,
        Some(alpha) => Some(site.array_of(alpha, Some(site.precision), len)?),
    };
    let (result, e) = site.copy(e, len)?;
    let (_room, rows) = site.new_floats(of.heads().checked_mul(a.1)?)?;
    let call = SoftmaxCall {
        precision: site.precision,
        a,
        alpha,
        e,
        rows,
        heads: of.heads(),
    };
    site.perform(&call)?;
    Some([result])
}
