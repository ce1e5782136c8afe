//! SpMM.

use super::interface::Interface;
use super::operands::{Graph, Site, lanes};
use super::operator::{Direct, Operand, operator};
use crate::memory::{RawArray, RawMatrix};
use crate::operators::SpmmCall;
use halfgnn::ops::edge_plane;
use halfgnn::tensor::Precision;

/// Bits of the graph's.
const MAXIMUM: usize = 1;
const RELU: usize = 2;

operator! {
    /// `relu(R · A_w · (C · x) + (1 + epsilon) · x + bias)`, each part where it is given; or the maximum in place of
    /// the sum.
    Spmm = "spmm_direct" {
        a: Graph,
        x: Operand,
        weight: Option<Operand>,
        row_scale: Option<Operand>,
        column_scale: Option<Operand>,
        bias: Option<Operand>,
        epsilon: Option<Operand>,
    }
}

operator! {
    /// The same of operands that are all there is: each that need not be said is said faster.
    Plain = "spmm_direct.plain" { a: Graph, x: Operand }
}

impl Direct<1> for Spmm {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 1]> {
        let rest = [
            &self.weight,
            &self.row_scale,
            &self.column_scale,
            &self.bias,
            &self.epsilon,
        ];
        product(torch, &self.a, &self.x, rest)
    }
}

impl Direct<1> for Plain {
    fn run(&self, torch: &'static Interface) -> Option<[Operand; 1]> {
        product(torch, &self.a, &self.x, [&None; 5])
    }
}

fn product(
    torch: &'static Interface,
    of: &Graph,
    x: &Operand,
    [weight, row_scale, column_scale, bias, epsilon]: [&Option<Operand>; 5],
) -> Option<[Operand; 1]> {
    let site = Site::of(torch, x)?;
    let a = site.adjacency(of)?;
    let x = site.matrix(x)?;
    if x.1 != a.4 {
        return None;
    }
    let (y, y_raw) = site.new_matrix(a.1, x.2)?;
    let (format, float) = (Some(site.precision), Some(Precision::Float));
    let bias = site.optional(bias, float, x.2)?;
    if bias.is_some() && x.2 % lanes(Precision::Float) != 0 {
        return None;
    }
    let call = SpmmCall {
        precision: site.precision,
        a,
        x,
        y: y_raw,
        weights: site.optional(weight, format, of.heads().checked_mul(edge_plane(a.2))?)?,
        heads: of.heads(),
        row_scale: site.optional(row_scale, float, a.1)?,
        column_scale: site.optional(column_scale, float, a.4)?,
        bias: bias.map(|RawArray(address, len)| RawMatrix(address, 1, len, len)),
        epsilon: site.optional(epsilon, float, lanes(Precision::Float))?,
        relu: of.has(RELU),
        maximum: of.has(MAXIMUM),
    };
    site.perform(&call)?;
    Some([y])
}
