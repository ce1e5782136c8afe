//! The graph isomorphism layer (Xu et al., ICLR 2019).

use super::Layer;
use crate::program::{Builder, Edges, Value};

/// `relu(S · W₁ + b₁) · W₂` with `S = (1 + ε) · H + A · H`.
///
/// The batch normalisation that [`nn::Gin`](crate::nn::Gin) has between the two maps is no operator of programs yet.
#[derive(Clone, Copy, Debug)]
pub struct Gin {
    /// The adjacency.
    pub edges: Edges,
    /// Columns between the two linear maps.
    pub hidden: usize,
    /// Columns of the output.
    pub outputs: usize,
    /// The first ε.
    pub epsilon: f32,
    /// Whether ε is learnt.
    pub learn_epsilon: bool,
}

impl Layer for Gin {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let sum = g.aggregate(self.edges, x);
        let own = g.own_rows(self.edges, x);
        let sum = match self.learn_epsilon {
            true => {
                let epsilon = g.scalar("epsilon", self.epsilon);
                let share = g.scale(own, epsilon);
                g.sum(&[sum, own, share])
            }
            false => g.combine(&[(1.0, sum), (1.0 + self.epsilon, own)]),
        };
        let first = g.weight("mlp.0.weight", (g.columns(x), self.hidden));
        let bias = g.bias("mlp.0.bias", self.hidden);
        let second = g.weight("mlp.1.weight", (self.hidden, self.outputs));
        let between = g.matmul(sum, first);
        let between = g.add_bias(between, bias);
        let between = g.relu(between);
        g.matmul(between, second)
    }
}
