//! Personalised PageRank of predictions (Gasteiger, Bojchevski and Günnemann, ICLR 2019).

use super::{Layer, LayerKind};
use crate::nn;
use crate::program::{Builder, Edges, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::Appnp>(&[]);

/// `H ← (1 − α) · Â · H + α · H⁰`, a number of times.
#[derive(Clone, Copy, Debug)]
pub struct Appnp {
    /// The adjacency, with self-loops and the norm `both`.
    pub edges: Edges,
    /// The predictions `H⁰`, a row for each destination; those that the steps begin with where there are no others.
    pub initial: Option<Value>,
    /// Steps of propagation.
    pub steps: usize,
    /// Share of the predictions in each step.
    pub alpha: f32,
    /// Probability of an element to be dropped before each step.
    pub dropout: f32,
}

impl Layer for Appnp {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        if self.steps > 1 && !g.expect_hops("appnp", self.edges) {
            return x;
        }
        let initial = self.initial.unwrap_or_else(|| g.own_rows(self.edges, x));
        let mut h = initial;
        for step in 0..self.steps {
            let read = match step {
                0 => g.dropout(x, self.dropout),
                _ => {
                    let dropped = g.dropout(h, self.dropout);
                    g.all_rows(self.edges, dropped)
                }
            };
            let sum = g.aggregate(self.edges, read);
            h = g.combine(&[(1.0 - self.alpha, sum), (self.alpha, initial)]);
        }
        h
    }
}
