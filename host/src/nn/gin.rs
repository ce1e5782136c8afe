//! The graph isomorphism network of Xu et al. (ICLR 2019), with HalfGNN's aggregation for half precision (§4.3.1, eq.
//! 4): `H' = MLP((1 + ε) · H + λ · aggregate(H))`. The MLP is two linear maps with a batch normalisation and a ReLU
//! between them.
//!
//! The aggregation and the first map are linear, so a layer does first what makes its rows narrower ([`Order`]).
//!
//! **Sums in range.** The mean of neighbours is as large as they are. A sum grows with their number, and leaves the
//! range of half on any hub. But it goes through a batch normalisation, whose output is the same for any multiple of
//! its input. The sum is therefore taken in float, and stored times a power of two that brings a row of the largest
//! degree back into range.

use super::architecture::{Architecture, LayerOption, finite, not_negative, store};
use super::{ModelConfig, Norm, Statistics};
use crate::ops::MessageReduction;
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use serde::{Deserialize, Serialize};

/// `MLP((1 + ε) · H + λ · aggregate(H))` (Xu et al., ICLR 2019; HalfGNN eq. 4), the MLP with one batch normalisation:
/// five layers of 128 with dropout 0.5, the mean of the neighbours with λ = 0.1, and ε = −0.95. A vertex thus counts
/// itself half as much as its neighbours.
///
/// Half as wide it learns Cora as well, and Citeseer four points worse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gin {
    /// What is taken of the neighbours.
    pub aggregate: Aggregate,
    /// How much of it.
    pub lambda: f32,
    /// How much more than once a vertex counts itself.
    pub epsilon: f32,
    /// Whether `epsilon` is learnt, one a layer, from that value on.
    pub learn_epsilon: bool,
    /// What the batch normalisation evaluates with.
    pub statistics: Statistics,
}

impl Default for Gin {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
            lambda: 0.1,
            epsilon: -0.95,
            learn_epsilon: false,
            statistics: Statistics::Batch,
        }
    }
}

/// What is taken of the rows of a vertex's neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// Their mean, which is never larger than they are.
    #[default]
    Mean,
    /// Their sum, kept in the range of half by a power of two that the batch normalisation takes out again.
    Sum,
    /// The largest of each column.
    Max,
    /// The smallest of each column.
    Min,
    /// Their mean, weighted by the softmax of each column.
    Softmax,
    /// The standard deviation of each column.
    Std,
}

impl Aggregate {
    /// What the text of an option `aggregate` says.
    pub(crate) fn of_option(text: &str) -> Self {
        match text {
            "mean" => Self::Mean,
            "max" => Self::Max,
            "min" => Self::Min,
            "softmax" => Self::Softmax,
            "std" => Self::Std,
            _ => Self::Sum,
        }
    }

    /// The reduction that it is; none of what is a sum.
    pub(crate) fn reduction(self) -> Option<MessageReduction> {
        match self {
            Aggregate::Mean | Aggregate::Sum => None,
            Aggregate::Max => Some(MessageReduction::Max),
            Aggregate::Min => Some(MessageReduction::Min),
            Aggregate::Softmax => Some(MessageReduction::Softmax),
            Aggregate::Std => Some(MessageReduction::Deviation),
        }
    }

    /// That it is a mean or a sum.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn expect_sum(self) -> Result<(), String> {
        match self.reduction() {
            None => Ok(()),
            Some(_) => Err("its messages are aggregated by `mean` or `sum` alone".into()),
        }
    }

    /// The degree norm of edges over which it is taken.
    pub(crate) fn norm(self) -> Norm {
        match self {
            Aggregate::Mean => Norm::Right,
            _ => Norm::None,
        }
    }
}

impl Gin {
    /// Takes the mean of the neighbours, with the default's λ and ε, or the sum, with the paper's, 1 and 0.
    fn aggregate_by(&mut self, aggregate: Aggregate) {
        let default = Self::default();
        (self.lambda, self.epsilon) = match aggregate {
            Aggregate::Mean => (default.lambda, default.epsilon),
            _ => (1.0, 0.0),
        };
        self.aggregate = aggregate;
    }

    /// What the stored aggregation is of the true one: a power of two, such that a row of `degree` neighbours, each up
    /// to 64, stays within half.
    pub(crate) fn scale(&self, degree: u32) -> f32 {
        let mut scale = 1.0;
        if self.aggregate == Aggregate::Sum {
            while f64::from(degree) * f64::from(self.lambda.abs() * scale) > 1023.0 {
                scale *= 0.5;
            }
        }
        scale
    }
}

impl Architecture for Gin {
    const NAME: &'static str = "gin";
    const TITLE: &'static str = "Graph isomorphism network (Xu et al.)";
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "aggregate",
            value: "AGGREGATE",
            choices: &[("mean", "Their mean"), ("sum", "Their sum")],
            help: "what is taken of the neighbours [default: mean; sum of a model of whole graphs]",
            set: |gin, text| {
                gin.aggregate_by(Aggregate::of_option(text));
                Ok(())
            },
        },
        LayerOption {
            name: "lambda",
            value: "X",
            help: "how much of it [default: 0.1 of the mean, 1 of the sum]",
            set: |gin, text| store(&mut gin.lambda, not_negative(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "epsilon",
            value: "X",
            help: "how much more than once a vertex counts itself [default: -0.95; 0 with the sum]",
            set: |gin, text| store(&mut gin.epsilon, finite(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "learn-epsilon",
            help: "learn epsilon, one a layer",
            set: |gin, _| store(&mut gin.learn_epsilon, Ok(true)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "running-statistics",
            help: "evaluate with the running statistics of training, not with those of all vertices; always so for a model of whole graphs",
            set: |gin, _| store(&mut gin.statistics, Ok(Statistics::Running)),
            ..LayerOption::NONE
        },
    ];

    fn tell_graphs(&mut self) {
        self.aggregate_by(Aggregate::Sum);
        self.statistics = Statistics::Running;
    }

    fn wants_all_vertices(&self) -> Option<&'static str> {
        (self.statistics == Statistics::Batch).then_some(
            "the batch normalisations of GIN take the statistics of all vertices, unless it is trained with running statistics",
        )
    }

    fn shape(&self, model: &mut ModelConfig) {
        (model.layers, model.hidden) = (5, 128);
    }

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    /// A GIN, which has four times the parameters a layer, learns few labels by heart without a larger one.
    fn weight_decay(&self) -> f32 {
        1e-2
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        let (lambda, epsilon) = (self.lambda, self.epsilon);
        self.aggregate.expect_sum()?;
        if lambda.is_finite() && epsilon.is_finite() {
            return Ok(());
        }
        Err(format!("λ {lambda} and ε {epsilon} should be finite"))
    }

    fn sum_scale(&self, largest_degree: u32) -> f32 {
        self.scale(largest_degree)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        Box::new(formulas::Gin {
            edges: reads.edges,
            hidden: model.hidden_of(number),
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

impl ModelConfig {
    /// A graph isomorphism network: see [`Gin`].
    pub fn gin(features: usize, classes: usize) -> Self {
        Self::of(Gin::default(), features, classes)
    }
}

/// The power of two next to the square root of the largest degree, or the one below.
pub(crate) fn balancing_power(largest_degree: u32) -> f32 {
    let exponent = largest_degree.max(1).ilog2() / 2;
    (1_u32 << exponent) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ahead_stay_near_the_middle_of_half() {
        for largest in [0, 1, 2, 3, 4, 1_000, 85_059, u32::MAX] {
            let power = balancing_power(largest);
            assert_eq!(power.log2().fract(), 0.0, "{largest}");
            let degree = f64::from(largest.max(1));
            let (most, least) = (f64::from(power), f64::from(power) / degree);
            assert!(most <= degree.sqrt() && most * least >= 0.25, "{largest}");
        }
        assert_eq!(balancing_power(85_059), 256.0);
    }

    #[test]
    fn sums_of_hubs_are_scaled_into_half() {
        let mut shape = Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: 0.0,
            ..Gin::default()
        };
        assert_eq!([0, 1023].map(|degree| shape.scale(degree)), [1.0; 2]);
        assert_eq!(shape.scale(1024), 0.5);
        assert!(64.0 * 85_059.0 * shape.scale(85_059) < 65_504.0);
        shape.lambda = 0.1;
        assert_eq!(shape.scale(10_000), 1.0);
        shape.aggregate = Aggregate::Mean;
        assert_eq!(shape.scale(u32::MAX), 1.0);
    }
}
