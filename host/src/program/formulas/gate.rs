//! Gates: shares between 0 and 1 that are learnt, element by element.
//!
//! With `σ(s) = (1 + tanh(s / 2)) / 2` a gate is a tanh, a product and sums, which have kernels and gradients.

use crate::ops::Nonlinearity;
use crate::program::builder::Builder;
use crate::program::value::Value;

impl Builder {
    /// `σ(s) ⊙ x`, from `half`, which is `s / 2`.
    pub fn gated(&mut self, half: Value, x: Value) -> Value {
        let shares = self.nonlinearity(Nonlinearity::Tanh, half);
        let product = self.multiply(shares, x);
        self.combine(&[(0.5, x), (0.5, product)])
    }

    /// `σ(s) ⊙ open + (1 − σ(s)) ⊙ closed`, from `half`, which is `s / 2`.
    pub fn gate(&mut self, half: Value, open: Value, closed: Value) -> Value {
        let shares = self.nonlinearity(Nonlinearity::Tanh, half);
        let difference = self.combine(&[(1.0, open), (-1.0, closed)]);
        let product = self.multiply(shares, difference);
        self.combine(&[(0.5, open), (0.5, closed), (0.5, product)])
    }

    /// A gated recurrent unit (Cho et al., EMNLP 2014), as PyTorch's `GRUCell`, from an input and a state to the next state:
    ///
    /// ```text
    /// r  = σ(x · W_r + h · U_r + b_r + c_r)
    /// z  = σ(x · W_z + h · U_z + b_z + c_z)
    /// n  = tanh(x · W_n + b_n + r ⊙ (h · U_n + c_n))
    /// h' = (1 − z) ⊙ n + z ⊙ h
    /// ```
    pub fn gru(&mut self, cell: &GruCell, x: Value, h: Value) -> Value {
        let [reset, update] = [0, 1].map(|gate| {
            let GruGate { weights, biases } = cell.gates[gate];
            let (x, h) = (self.matmul(x, weights[0]), self.matmul(h, weights[1]));
            let bias = self.combine(&[(0.5, biases[0]), (0.5, biases[1])]);
            let half = self.combine(&[(0.5, x), (0.5, h)]);
            self.add_bias(half, bias)
        });
        let GruGate { weights, biases } = cell.gates[2];
        let state = self.matmul(h, weights[1]);
        let state = self.add_bias(state, biases[1]);
        let state = self.gated(reset, state);
        let input = self.matmul(x, weights[0]);
        let new = self.add(input, state);
        let new = self.add_bias(new, biases[0]);
        let new = self.nonlinearity(Nonlinearity::Tanh, new);
        self.gate(update, h, new)
    }

    /// The parameters of a [`gru`](Builder::gru) of `width` columns: `NAME.input.G.weight`, `NAME.hidden.G.weight` and a bias of each, for
    /// the gates `G` in PyTorch's order, which are reset, update and new.
    pub fn gru_cell(&mut self, name: &str, width: usize) -> GruCell {
        let gates = [0, 1, 2].map(|gate| {
            let ends = ["input", "hidden"].map(|end| format!("{name}.{end}.{gate}"));
            let weights = ends.each_ref().map(|of| {
                let name = format!("{of}.weight");
                self.weight(&name, (width, width))
            });
            let biases = ends.map(|of| self.bias(&format!("{of}.bias"), width));
            GruGate { weights, biases }
        });
        GruCell { gates }
    }
}

/// The parameters of a gated recurrent unit.
#[derive(Clone, Copy, Debug)]
pub struct GruCell {
    gates: [GruGate; 3],
}

/// Those of a gate: for the input and for the state.
#[derive(Clone, Copy, Debug)]
struct GruGate {
    weights: [Value; 2],
    biases: [Value; 2],
}
