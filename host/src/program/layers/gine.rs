//! The graph isomorphism layer with features of edges (Hu et al., ICLR 2020).

use super::gin::mlp;
use super::{
    Divisor, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads, WEIGHTS_ARE_FEATURES,
    check_edge_features, is_zero, reads_edge_rows,
};
use crate::nn::architecture::{Architecture, LayerOption, finite, store};
use crate::nn::{Aggregate, Gin, ModelConfig, Norm, Statistics};
use crate::ops::MessageAct;
use crate::program::{BatchNorm, Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names, with the MLP of GIN.
pub(super) const KIND: LayerKind = LayerKind::of::<Gine>(&[
    ParameterNames::same("epsilon", &["eps"], &["eps"]),
    ParameterNames::linear("edge.weight", &["lin.weight"], &[]).with_divisor(Divisor::TimesColumn),
    ParameterNames::same("edge.bias", &["lin.bias"], &[]).with_divisor(Divisor::TimesColumn),
    ParameterNames::linear("mlp.0.weight", &["nn.0.weight"], &["apply_func.0.weight"]),
    ParameterNames::same("norm.weight", &["nn.1.weight"], &["apply_func.1.weight"]),
    ParameterNames::same("norm.bias", &["nn.1.bias"], &["apply_func.1.bias"]),
    ParameterNames::same(
        "norm.running",
        &["nn.1.running_mean", "nn.1.running_var"],
        &["apply_func.1.running_mean", "apply_func.1.running_var"],
    ),
    ParameterNames::linear("mlp.1.weight", &["nn.3.weight"], &["apply_func.3.weight"])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("bias", &["nn.3.bias"], &["apply_func.3.bias"]),
]);

/// Options of PyG's `GINEConv` with the MLP of [`Gin`], whose batch normalisation takes a factor of the sums out again: five layers of 128
/// with dropout 0.5. Weights of edges count as features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gine {
    /// What is taken of the messages.
    pub aggregate: Aggregate,
    /// How much more than once a vertex counts itself.
    pub epsilon: f32,
    /// Whether `epsilon` is learnt, one a layer, from that value on.
    pub learn_epsilon: bool,
    /// What the batch normalisation evaluates with.
    pub statistics: Statistics,
    /// Features of each edge, its weight among them. With none, a message is the ReLU of the source's row.
    #[serde(skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Default for Gine {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
            epsilon: 0.0,
            learn_epsilon: false,
            statistics: Statistics::Batch,
            edge_features: 0,
        }
    }
}

impl Gine {
    /// The GIN whose MLP it has, and whose sums are kept in the range of half alike.
    fn gin(&self) -> Gin {
        Gin {
            aggregate: self.aggregate,
            lambda: 1.0,
            epsilon: self.epsilon,
            learn_epsilon: self.learn_epsilon,
            statistics: self.statistics,
        }
    }
}

impl Architecture for Gine {
    const NAME: &'static str = "gine";
    const TITLE: &'static str = "Graph isomorphism network with features of edges (Hu et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> = WEIGHTS_ARE_FEATURES;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            set: |gine, text| store(&mut gine.aggregate, Ok(Aggregate::of_option(text))),
            ..LayerOption::AGGREGATE_ANY
        },
        LayerOption {
            name: "epsilon",
            value: "X",
            help: "how much more than once a vertex counts itself [default: 0]",
            set: |gine, text| store(&mut gine.epsilon, finite(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "learn-epsilon",
            help: "learn epsilon, one a layer",
            set: |gine, _| store(&mut gine.learn_epsilon, Ok(true)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "running-statistics",
            help: "evaluate with the running statistics of training, not with those of all vertices; always so for a model of whole graphs",
            set: |gine, _| store(&mut gine.statistics, Ok(Statistics::Running)),
            ..LayerOption::NONE
        },
    ];

    fn tell_graphs(&mut self) {
        self.aggregate = Aggregate::Sum;
        self.statistics = Statistics::Running;
    }

    fn wants_all_vertices(&self) -> Option<&'static str> {
        (self.statistics == Statistics::Batch).then_some(
            "the batch normalisations of GINE take the statistics of all vertices, unless it is trained with running statistics",
        )
    }

    fn shape(&self, model: &mut ModelConfig) {
        self.gin().shape(model);
    }

    fn norm(&self) -> Norm {
        self.gin().norm()
    }

    fn weight_decay(&self) -> f32 {
        self.gin().weight_decay()
    }

    reads_edge_rows!();

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        match self.epsilon.is_finite() {
            true => check_edge_features(self.edge_features),
            false => Err(format!("ε {} should be finite", self.epsilon)),
        }
    }

    fn sum_scale(&self, largest_degree: u32) -> f32 {
        self.gin().sum_scale(largest_degree)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(GineLayer {
            edges: reads.edges,
            hidden: model.hidden_of(number),
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

/// `relu(norm(S · W₁)) · W₂` with `s_i = (1 + ε) · h_i + Σ_j relu(h_j + f_ij · W_e + b_e)`, the sum or the mean.
#[derive(Clone, Debug)]
pub struct GineLayer {
    /// The adjacency, with the norm `right` for a mean and none for a sum.
    pub edges: Edges,
    /// Columns between the two linear maps.
    pub hidden: usize,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options. As GIN's, sums over many neighbours are stored times a power of two, which the normalisation takes out again.
    pub options: Gine,
}

impl Layer for GineLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let Gine {
            epsilon,
            statistics,
            ..
        } = self.options;
        let columns = g.columns(x);
        let scale = self.options.sum_scale(g.largest_degree(self.edges));
        let edge = (self.options.edge_features > 0).then(|| {
            let features = g.edge_features(self.edges, self.options.edge_features);
            g.linear_with_bias("edge", columns, features)
        });
        let rows = MessageRows {
            source: Some(x),
            edge,
            ..MessageRows::default()
        };
        let nothing = (MessageAct::Identity, MessageRows::default());
        let message = (MessageAct::Relu, rows);
        let sum = match self.options.aggregate.reduction() {
            None => g.scaled_message_sums(self.edges, [message, nothing], scale),
            Some(reduction) => g.reduce_messages(self.edges, reduction, message),
        };
        let own = g.own_rows(self.edges, x);
        let sum = match self.options.learn_epsilon {
            true => {
                let epsilon = g.scalar("epsilon", epsilon);
                let more = g.scale(own, epsilon);
                g.combine(&[(1.0, sum), (scale, own), (scale, more)])
            }
            false => g.combine(&[(1.0, sum), (scale * (1.0 + epsilon), own)]),
        };
        let norm = BatchNorm {
            scale,
            relu: true,
            evaluate_with: statistics,
        };
        mlp(g, sum, norm, [self.hidden, self.outputs])
    }
}
