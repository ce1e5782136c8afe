//! Layers of one bit: Bi-GCN (Wang et al., CVPR 2021) and Bi-GraphSAGE, and those that sum signs over neighbours (BitGNN, Chen et al.,
//! ICS 2023). [`Binary`] has the table of what each computes.

use super::{Layer, LayerSetting, Reads};
use crate::nn::{Binary, ConvolutionConfig, ModelConfig};
use crate::program::{Builder, Edges, Value};

/// What a layer sums over neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// Products, as elements.
    Products,
    /// Signs of products.
    Signs,
    /// Signs of its input, which it multiplies afterwards.
    Inputs,
}

/// A layer of one bit.
#[derive(Clone, Copy, Debug)]
pub(in crate::program) struct BinaryLayer {
    edges: Edges,
    outputs: usize,
    sums: Sums,
    /// Whether it adds a product of a vertex's own row, as GraphSAGE does.
    adds_own: bool,
    dropout: f32,
    /// Whether its input is the features.
    is_first: bool,
}

fn sums_of(model: &ModelConfig, number: usize) -> Sums {
    match (model.binary_of(number), number + 1 == model.layers) {
        (Some(Binary::Bin), false) => Sums::Signs,
        (Some(Binary::Bin), true) => Sums::Inputs,
        (Some(Binary::Full) | None, _) => Sums::Products,
    }
}

/// How the layers of a network of one bit stand in it. Dropout is the layers' own. No bias is in a mean of signs.
pub(in crate::program) fn settings(model: &ModelConfig) -> Vec<LayerSetting> {
    let setting = |number: usize| LayerSetting {
        dropout: 0.0,
        bias: sums_of(model, number) != Sums::Signs,
        is_hidden: false,
        is_residual: false,
        ..LayerSetting::stacked(model, number)
    };
    (0..model.layers).map(setting).collect()
}

impl BinaryLayer {
    /// Layer `number` of a network of one bit.
    pub(in crate::program) fn new(model: &ModelConfig, number: usize, reads: Reads) -> Self {
        Self {
            edges: reads.edges,
            outputs: model.layer(number).1,
            sums: sums_of(model, number),
            adds_own: matches!(model.convolution, ConvolutionConfig::Sage(_)),
            dropout: model.dropout_of(number),
            is_first: number == 0,
        }
    }
}

impl Layer for BinaryLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let (own, neighbours) = match self.adds_own {
            true => {
                let own = g.binary_weight("self.binary_weight", shape);
                (
                    Some(own),
                    g.binary_weight("neighbours.binary_weight", shape),
                )
            }
            false => (None, g.binary_weight("binary_weight", shape)),
        };
        let x = if self.is_first { g.standardize(x) } else { x };
        // Of signs, and of their means.
        let [drop, drop_means] = [(); 2].map(|()| g.drop_with(self.dropout));
        let signs = g.binarize(x, drop);
        match self.sums {
            Sums::Signs => {
                // What is added up is in [−1, 1].
                let share = if own.is_some() { 0.5 } else { 1.0 };
                let sent = g.binary_signs(signs, neighbours);
                let y = g.aggregate_times(self.edges, share, sent);
                match own {
                    Some(own) => {
                        let own = g.binary_signs(signs, own);
                        g.combine(&[(1.0, y), (share, own)])
                    }
                    None => y,
                }
            }
            Sums::Products | Sums::Inputs => {
                let y = match self.sums {
                    Sums::Inputs => g.mean_of_signs((self.edges, x), drop_means, neighbours),
                    _ => {
                        let sent = g.binary_matmul(signs, neighbours);
                        g.aggregate(self.edges, sent)
                    }
                };
                match own {
                    Some(own) => {
                        let own = g.binary_matmul(signs, own);
                        g.add(y, own)
                    }
                    None => y,
                }
            }
        }
    }
}
