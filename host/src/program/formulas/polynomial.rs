//! Polynomials of an adjacency: sums over neighbours of several hops.

use crate::program::builder::Builder;
use crate::program::value::{Edges, Value};

impl Builder {
    /// Whether `edges` lead from vertices to the same vertices. Where they do not, the program is refused: `layer` aggregates several
    /// times over them.
    pub fn expect_square(&mut self, layer: &str, edges: Edges) -> bool {
        let refusal = match self.ends_of(edges) {
            Some([sources, destinations, name]) if !self.is_square(edges) => format!(
                "{layer} aggregates several times over one adjacency, and `{name}` leads from `{sources}` to `{destinations}`; sample subgraphs (GraphSAINT, clusters) or train on the whole graph"
            ),
            _ => return true,
        };
        self.fail(refusal);
        false
    }

    /// `Σ_k Aᵏ · x · W_k` for the weights that are there. Sums over neighbours are made of `x` or of products, whichever are narrower:
    /// by powers of `A`, or by Horner's rule.
    pub fn polynomial(
        &mut self,
        layer: &str,
        edges: Edges,
        x: Value,
        weights: &[Option<Value>],
    ) -> Value {
        if weights.len() > 2 && !self.expect_square(layer, edges) {
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
        let mut sum = None;
        for (power, weight) in weights.iter().enumerate().rev() {
            let further = sum.map(|sum| self.aggregate(edges, sum));
            let own = weight.map(|weight| {
                let x = self.at_power(edges, x, power);
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
                power = self.aggregate(edges, power);
            }
            if let Some(weight) = weight {
                let x = self.at_power(edges, power, number);
                products.push(self.matmul(x, *weight));
            }
        }
        self.sum(&products)
    }

    /// The rows of destinations, of a value that is not summed. Sums have those rows already, and of several there are no others.
    fn at_power(&mut self, edges: Edges, x: Value, power: usize) -> Value {
        match power {
            0 => self.own_rows(edges, x),
            _ => x,
        }
    }
}
