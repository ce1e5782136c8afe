//! Options that say which model.

use crate::bench::policy::SpmmPolicyName;
use crate::failure::Failure;
use crate::names::{not_negative, probability};
use clap::{Args, ValueEnum};
use halfgnn::nn::{Aggregate, ConvolutionConfig, ModelConfig, Statistics};

/// Which model, and its shape.
#[derive(Args)]
pub struct ModelArgs {
    /// Model to train
    #[arg(long, value_enum, default_value_t = ModelName::Gcn)]
    pub model: ModelName,
    /// Number of layers [default: 2; GAT 3, GIN 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub layers: Option<u32>,
    /// Make outputs of layers again in the backward pass instead of storing them, where one product does (GIN)
    #[arg(long)]
    pub recompute: bool,
    /// Width of the hidden layers [default: 64; GIN 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden: Option<u32>,
    /// Probability of an input of a layer to be dropped in training
    #[arg(long, value_name = "P", default_value_t = 0.5, value_parser = probability)]
    pub dropout: f32,
    /// Add the input of a layer to its output where they are of one width
    #[arg(long)]
    pub residual: bool,
    /// How neighbours are summed up, as `halfgnn bench spmm --help` says: post-half is the way of frameworks, which overflows;
    /// not of GAT [default: discretized-float]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<SpmmPolicyName>,
    /// GAT: number of heads [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub heads: Option<u32>,
    /// GAT: probability of an edge to be dropped in training [default: 0]
    #[arg(long, value_name = "P", value_parser = probability)]
    pub attention_dropout: Option<f32>,
    /// GIN: what is taken of the neighbours [default: mean]
    #[arg(long, value_enum)]
    pub aggregate: Option<AggregateName>,
    /// GIN: how much of it [default: 0.1 of the mean, 1 of the sum]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub lambda: Option<f32>,
    /// GIN: how much more than once a vertex counts itself [default: -0.95; 0 with the sum]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub epsilon: Option<f32>,
    /// GIN: learn epsilon, one a layer
    #[arg(long)]
    pub learn_epsilon: bool,
    /// GIN: evaluate with the running statistics of training, not with those of all vertices
    #[arg(long)]
    pub running_statistics: bool,
}

impl ModelArgs {
    /// The model for a dataset of `features` features and `classes` classes.
    ///
    /// # Errors
    /// Where an option is given that the model does not have.
    pub fn config(&self, features: usize, classes: usize) -> Result<ModelConfig, Failure> {
        let options = [
            ("--heads", ModelName::Gat, self.heads.is_some()),
            (
                "--attention-dropout",
                ModelName::Gat,
                self.attention_dropout.is_some(),
            ),
            ("--aggregate", ModelName::Gin, self.aggregate.is_some()),
            ("--lambda", ModelName::Gin, self.lambda.is_some()),
            ("--epsilon", ModelName::Gin, self.epsilon.is_some()),
            ("--learn-epsilon", ModelName::Gin, self.learn_epsilon),
            (
                "--running-statistics",
                ModelName::Gin,
                self.running_statistics,
            ),
        ];
        let strange = |(_, of, given): &&(&str, ModelName, bool)| *given && *of != self.model;
        if let Some((option, of, _)) = options.iter().find(strange) {
            return Err(Failure::Input(format!(
                "{option} is an option of {}, and the model is {}; add --model {0}, or leave it out",
                of.as_str(),
                self.model.as_str(),
            )));
        }
        if self.policy.is_some() && self.model == ModelName::Gat {
            return Err(Failure::Input(
                "--policy says how neighbours are summed up, and GAT's attention is always summed up in float; leave it \
                 out, or take another --model"
                    .to_owned(),
            ));
        }
        let mut config = self.model.config(features, classes);
        match &mut config.convolution {
            ConvolutionConfig::Gin {
                aggregate,
                lambda,
                epsilon,
                learn_epsilon,
                statistics,
            } => {
                *aggregate = self.aggregate.map_or(*aggregate, Into::into);
                if *aggregate == Aggregate::Sum {
                    (*lambda, *epsilon) = (1.0, 0.0);
                }
                *lambda = self.lambda.unwrap_or(*lambda);
                *epsilon = self.epsilon.unwrap_or(*epsilon);
                *learn_epsilon = self.learn_epsilon;
                if self.running_statistics {
                    *statistics = Statistics::Running;
                }
            }
            ConvolutionConfig::Gat {
                heads,
                attention_dropout,
                ..
            } => {
                *heads = self.heads.map_or(*heads, |heads| heads as usize);
                *attention_dropout = self.attention_dropout.unwrap_or(*attention_dropout);
            }
            _ => {}
        }
        Ok(ModelConfig {
            hidden: self.hidden.map_or(config.hidden, |hidden| hidden as usize),
            layers: self.layers.map_or(config.layers, |layers| layers as usize),
            dropout: self.dropout,
            residual: self.residual,
            recompute: self.recompute,
            policy: self.policy.map_or(config.policy, |named| named.0),
            ..config
        })
    }
}

/// Which model to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelName {
    /// Graph convolutional network (Kipf and Welling)
    Gcn,
    /// Graph attention network (Veličković et al.)
    Gat,
    /// Graph isomorphism network (Xu et al.)
    Gin,
    /// GraphSAGE with the mean of the neighbours (Hamilton et al.)
    Sage,
}

impl ModelName {
    /// The model with its customary shape.
    pub fn config(self, features: usize, classes: usize) -> ModelConfig {
        match self {
            ModelName::Gcn => ModelConfig::gcn(features, classes),
            ModelName::Sage => ModelConfig::sage(features, classes),
            ModelName::Gat => ModelConfig::gat(features, classes),
            ModelName::Gin => ModelConfig::gin(features, classes),
        }
    }

    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            ModelName::Gcn => "gcn",
            ModelName::Gat => "gat",
            ModelName::Gin => "gin",
            ModelName::Sage => "sage",
        }
    }
}

/// [`Aggregate`], as it is typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum AggregateName {
    /// Their mean
    Mean,
    /// Their sum
    Sum,
}

impl From<AggregateName> for Aggregate {
    fn from(name: AggregateName) -> Self {
        match name {
            AggregateName::Mean => Aggregate::Mean,
            AggregateName::Sum => Aggregate::Sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use halfgnn::backend::Scaling;

    /// A command with nothing but a model.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        model: ModelArgs,
    }

    fn config(options: &[&str]) -> Result<ModelConfig, String> {
        let words = ["train"].iter().chain(options);
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.model
            .config(10, 3)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_model() {
        assert_eq!(config(&[]).unwrap(), ModelConfig::gcn(10, 3));
        assert_eq!(
            config(&["--model", "gin"]).unwrap(),
            ModelConfig::gin(10, 3)
        );
        let sage = config(&["--model", "sage", "--layers", "3", "--residual"]).unwrap();
        assert_eq!((sage.layers, sage.residual), (3, true));
        let gat = config(&["--model", "gat", "--heads", "4"]).unwrap();
        let expected = ConvolutionConfig::Gat {
            heads: 4,
            slope: 0.2,
            attention_dropout: 0.0,
        };
        assert_eq!(gat.convolution, expected);
        let plain = config(&["--model", "gin", "--policy", "post-half"]).unwrap();
        assert_eq!(plain.policy.scaling, Scaling::PostReduction);
        let sum = config(&["--model", "gin", "--aggregate", "sum", "--epsilon", "-0.5"]).unwrap();
        let expected = ConvolutionConfig::Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: -0.5,
            learn_epsilon: false,
            statistics: Statistics::Batch,
        };
        assert_eq!(sum.convolution, expected);
    }

    #[test]
    fn an_option_of_another_model_is_refused() {
        let message = config(&["--lambda", "0.2"]).unwrap_err();
        assert!(
            message.contains("--lambda is an option of gin, and the model is gcn"),
            "{message}"
        );
        let message = config(&["--model", "gat", "--policy", "post-half"]).unwrap_err();
        assert!(message.contains("--policy"), "{message}");
    }
}
