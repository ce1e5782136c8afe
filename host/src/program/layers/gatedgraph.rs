//! The gated graph convolution (Li et al., ICLR 2016).

use super::{
    IN_FLOAT, Layer, LayerKind, LayerSetting, MOST_HOPS, Names, ParameterNames, Reads, check_hops,
};
use crate::nn::architecture::{Architecture, LayerOption, number, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names. PyG has the weights of all steps in one, and PyTorch those of the three gates. DGL has a weight for each type of edges.
pub(super) const KIND: LayerKind = LayerKind::of::<GatedGraph>(&[
    ParameterNames::of(
        "input.weight",
        Names::linear_before(&["weight"]),
        Names::NONE,
    ),
    ParameterNames::stacked("steps.*.weight", &["weight"], &[]),
    ParameterNames::outputs("rnn.input.*.weight", &["rnn.weight_ih"], &["gru.weight_ih"]),
    ParameterNames::same("rnn.input.*.bias", &["rnn.bias_ih"], &["gru.bias_ih"]),
    ParameterNames::outputs(
        "rnn.hidden.*.weight",
        &["rnn.weight_hh"],
        &["gru.weight_hh"],
    ),
    ParameterNames::same("rnn.hidden.*.bias", &["rnn.bias_hh"], &["gru.bias_hh"]),
]);

/// Options of PyG's `GatedGraphConv`, whose number of steps has no default: here it is 2. Edges may have weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatedGraph {
    /// Steps of the recurrent unit, PyG's `num_layers`.
    pub steps: usize,
}

impl Default for GatedGraph {
    fn default() -> Self {
        Self { steps: 2 }
    }
}

impl Architecture for GatedGraph {
    const NAME: &'static str = "gatedgraph";
    const TITLE: &'static str = "Gated graph convolution (Li et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        name: "steps",
        value: "N",
        help: "steps of the recurrent unit of a layer [default: 2]",
        set: |gated, text| store(&mut gated.steps, number(text, 1..=MOST_HOPS)),
        ..LayerOption::NONE
    }];

    fn norm(&self) -> Norm {
        Norm::None
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.steps, 1)
    }

    /// Its recurrent unit has biases of its own.
    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        LayerSetting::stack(model, false)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (steps, (_, outputs)) = (self.steps, model.layer(number));
        Box::new(GatedGraphLayer {
            edges,
            outputs,
            steps,
        })
    }
}

/// `H ← GRU(A · H · W_t, H)` a number of times, with the sum of the neighbours.
///
/// An input of fewer columns than the output has zeros in the others, as in PyG. One of more columns, which PyG refuses, goes through a
/// linear map first.
#[derive(Clone, Copy, Debug)]
pub struct GatedGraphLayer {
    /// The adjacency.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// How many steps there are.
    pub steps: usize,
}

impl Layer for GatedGraphLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        if self.steps > 1 && !g.expect_hops(GatedGraph::NAME, self.edges) {
            return x;
        }
        let (inputs, width) = (g.columns(x), self.outputs);
        let mut h = match inputs > width {
            true => {
                let weight = g.weight("input.weight", (inputs, width));
                g.matmul(x, weight)
            }
            false => g.place(x, 0, width),
        };
        let cell = g.gru_cell("rnn", width);
        for step in 0..self.steps {
            let weight = g.weight(&format!("steps.{step}.weight"), (width, width));
            let product = g.matmul(h, weight);
            // From the second step on there are states of destinations.
            let (all, own) = match step {
                0 => (product, g.own_rows(self.edges, h)),
                _ => (g.all_rows(self.edges, product), h),
            };
            let sum = g.aggregate(self.edges, all);
            h = g.gru(&cell, sum, own);
        }
        h
    }
}
