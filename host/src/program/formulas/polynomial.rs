//! Polynomials of an adjacency: sums over neighbours of several hops.

use crate::program::builder::Builder;
use crate::program::value::{Edges, Value};

impl Builder {
    /// Whether `layer` can aggregate several times over `edges`: they lead from vertices to the same vertices, or are the part of a graph that
    /// a rank has, whose ranks exchange rows between the sums ([`all_rows`](Builder::all_rows)). Else the program is refused.
    pub fn expect_hops(&mut self, layer: &str, edges: Edges) -> bool {
        let can = self.is_square(edges) || self.is_of_rank(edges);
        let refusal = match self.ends_of(edges) {
            Some([sources, destinations, name]) if !can => format!(
                "{layer} aggregates several times over one adjacency, and `{name}` leads from `{sources}` to `{destinations}`; sample subgraphs (GraphSAINT, clusters) or train on the whole graph"
            ),
            _ => return true,
        };
        self.fail(refusal);
        false
    }

    /// `Σ_k Aᵏ · x · W_k` for the weights that are there, from a row of `x` for each source to a row for each destination. Sums over
    /// neighbours are made of `x` or of products, whichever are narrower: by powers of `A`, or by Horner's rule.
    pub fn polynomial(
        &mut self,
        layer: &str,
        edges: Edges,
        x: Value,
        weights: &[Option<Value>],
    ) -> Value {
        if weights.len() > 2 && !self.expect_hops(layer, edges) {
            return x;
        }
        let outputs = weights.iter().flatten().next();
        let outputs = outputs.map_or(0, |weight| self.columns(*weight));
        match self.columns(x) > outputs {
            true => self.by_horner(edges, x, weights),
            false => self.by_powers(edges, x, weights),
        }
    }

    /// `(x · W₀) + A · ((x · W₁) + A · …)`.
    fn by_horner(&mut self, edges: Edges, x: Value, weights: &[Option<Value>]) -> Value {
        let (mut sum, last) = (None, weights.len().saturating_sub(1));
        for (power, weight) in weights.iter().enumerate().rev() {
            let further = sum.map(|sum| {
                let all = match power + 1 == last {
                    true => sum,
                    false => self.all_rows(edges, sum),
                };
                self.aggregate(edges, all)
            });
            let own = weight.map(|weight| {
                // The product of the highest power is summed before anything is added to it.
                let x = match power == last && power > 0 {
                    true => x,
                    false => self.own_rows(edges, x),
                };
                self.matmul(x, weight)
            });
            sum = match (further, own) {
                (Some(further), Some(own)) => Some(self.add(further, own)),
                (further, own) => further.or(own),
            };
        }
        sum.unwrap_or(x)
    }

    fn by_powers(&mut self, edges: Edges, x: Value, weights: &[Option<Value>]) -> Value {
        let (mut power, mut products) = (x, Vec::with_capacity(weights.len()));
        for (number, weight) in weights.iter().enumerate() {
            if number > 0 {
                let all = match number {
                    1 => power,
                    _ => self.all_rows(edges, power),
                };
                power = self.aggregate(edges, all);
            }
            if let Some(weight) = weight {
                let x = match number {
                    0 => self.own_rows(edges, power),
                    _ => power,
                };
                products.push(self.matmul(x, *weight));
            }
        }
        self.sum(&products)
    }
}
