//! The convolution by auto-regressive moving average filters (Bianchi et al., IEEE TPAMI 2021).

use super::{
    Divisor, IN_FLOAT, Layer, LayerKind, LayerSetting, MOST_HOPS, ParameterNames, Reads, check_hops,
};
use crate::nn::architecture::{
    Architecture, LayerOption, norm, norm_option, number, probability, store,
};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names. PyG has the weights of all stacks in one.
pub(super) const KIND: LayerKind = LayerKind::of::<Arma>(&[
    ParameterNames::stacked("init.*.weight", &["init_weight"], &[]).with_divisor(Divisor::OfRow),
    ParameterNames::stacked("weight.*", &["weight"], &[]),
    ParameterNames::stacked("root.*.weight", &["root_weight"], &[]).with_divisor(Divisor::OfRow),
    ParameterNames::stacked("root.*.bias", &["bias"], &[]),
]);

/// Options of PyG's `ARMAConv`. Edges may have weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arma {
    /// The degree norm of the edges. PyG's is `in`, which is `both` on graphs whose edges go both ways.
    pub norm: Norm,
    /// Filters whose mean is the output, PyG's `num_stacks`.
    pub stacks: usize,
    /// Sums over neighbours of a filter, PyG's `num_layers`.
    pub steps: usize,
    /// Whether the steps of a filter have one weight.
    pub share_weights: bool,
    /// Probability of an element of the input to be dropped where it is added to a step, in [0, 1).
    pub root_dropout: f32,
}

impl Default for Arma {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            stacks: 1,
            steps: 1,
            share_weights: false,
            root_dropout: 0.0,
        }
    }
}

impl Architecture for Arma {
    const NAME: &'static str = "arma";
    const TITLE: &'static str = "Auto-regressive moving average filters (Bianchi et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        norm_option(|arma, text| store(&mut arma.norm, norm(text))),
        LayerOption {
            name: "stacks",
            value: "N",
            help: "filters whose mean is the output of a layer [default: 1]",
            set: |arma, text| store(&mut arma.stacks, number(text, 1..=MOST_HOPS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "steps",
            value: "N",
            help: "sums over neighbours of a filter [default: 1]",
            set: |arma, text| store(&mut arma.steps, number(text, 1..=MOST_HOPS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "share-weights",
            help: "one weight for all steps of a filter",
            set: |arma, _| {
                arma.share_weights = true;
                Ok(())
            },
            ..LayerOption::NONE
        },
        LayerOption {
            name: "root-dropout",
            value: "P",
            help: "probability of an input to be dropped where a step adds it [default: 0]",
            set: |arma, text| store(&mut arma.root_dropout, probability(text)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.steps, 1)?;
        check_hops(self.stacks, 1)?;
        match (0.0..1.0).contains(&self.root_dropout) {
            true => Ok(()),
            false => Err(format!(
                "the dropout {} should be in [0, 1)",
                self.root_dropout
            )),
        }
    }

    /// Its filters have biases of their own.
    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        LayerSetting::stack(model, false)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(ArmaLayer {
            edges,
            outputs,
            is_last: model.is_last(number),
            options: self.clone(),
        })
    }
}

/// The mean of filters, each `X ← relu(Â · X · W + H · V + b)` a number of times from `H` on, with the degree norm of the edges. A last
/// layer has no ReLU behind the last step.
#[derive(Clone, Debug)]
pub struct ArmaLayer {
    /// The adjacency, without self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Whether it is the last layer of a network.
    pub is_last: bool,
    /// Its options.
    pub options: Arma,
}

impl Layer for ArmaLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let Arma { stacks, steps, .. } = self.options;
        if steps > 1 && !g.expect_hops(Arma::NAME, self.edges) {
            return x;
        }
        let (inputs, outputs) = (g.columns(x), self.outputs);
        // Steps that share a weight have that of the first of them.
        let weights = |g: &mut Builder, count: usize, stack: usize, name: &str, rows: usize| {
            let count = if self.options.share_weights {
                count.min(1)
            } else {
                count
            };
            let name = |step| name.replace("STEP", &format!("{step}.{stack}"));
            (0..count)
                .map(|step| g.weight(&name(step), (rows, outputs)))
                .collect::<Vec<_>>()
        };
        let mut filters = Vec::with_capacity(stacks);
        for stack in 0..stacks {
            let init = g.weight(&format!("init.{stack}.weight"), (inputs, outputs));
            let between = weights(g, steps - 1, stack, "weight.STEP", outputs);
            let roots = weights(g, steps, stack, "root.STEP.weight", inputs);
            let biases: Vec<Value> = (0..roots.len())
                .map(|step| g.bias(&format!("root.{step}.{stack}.bias"), outputs))
                .collect();
            filters.push((x, init, between, roots, biases));
        }
        let own = g.own_rows(self.edges, x);
        for step in 0..steps {
            let root = g.dropout(own, self.options.root_dropout);
            for (value, init, between, roots, biases) in &mut filters {
                let of = |all: &[Value], step: usize| all[step.min(all.len() - 1)];
                let weight = match step {
                    0 => *init,
                    _ => of(between, step - 1),
                };
                let mut product = g.matmul(*value, weight);
                if step > 0 {
                    product = g.all_rows(self.edges, product);
                }
                let sum = g.aggregate(self.edges, product);
                let added = g.matmul(root, of(roots, step));
                let y = g.add(sum, added);
                let y = g.add_bias(y, of(biases, step));
                *value = match self.is_last && step + 1 == steps {
                    true => y,
                    false => g.relu(y),
                };
            }
        }
        let terms: Vec<_> = filters
            .iter()
            .map(|it| (1.0 / stacks as f32, it.0))
            .collect();
        match &terms[..] {
            [(_, y)] => *y,
            terms => g.combine(terms),
        }
    }
}
