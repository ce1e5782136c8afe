//! Options that say which model: those that all share, and those of each kind, from the library's list of them.

use crate::failure::Failure;
use crate::names::{
    ActivationName, BinaryName, CodeFormatName, HiddenNormName, JumpingName, PoolName, StoreName,
    probability,
};
use crate::policy::SpmmPolicyName;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use halfgnn::nn::{Binary, ConvolutionConfig, HiddenActivation, ModelConfig, ModelKind, Readout};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The models there are.
static KINDS: LazyLock<Vec<ModelKind>> = LazyLock::new(ConvolutionConfig::kinds);

/// Which model, and its shape.
#[derive(Args)]
#[command(mut_arg("layers", |arg| with_defaults(arg, |model| model.layers.to_string())))]
#[command(mut_arg("hidden", |arg| with_defaults(arg, |model| model.hidden.to_string())))]
#[command(mut_arg("dropout", |arg| with_defaults(arg, |model| model.dropout.to_string())))]
pub struct ModelArgs {
    /// Model to train
    #[arg(long, value_enum, default_value_t)]
    pub model: ModelName,
    /// Number of layers; as many as --hidden makes where that names several widths
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=ModelConfig::MOST_LAYERS as i64))]
    pub layers: Option<u32>,
    /// Make outputs of layers again in the backward pass instead of storing them, where one product does (GIN)
    #[arg(long)]
    pub recompute: bool,
    /// Width of the hidden layers, or a width for each, such as 128,64
    #[arg(long, value_name = "N[,N]…", value_delimiter = ',', num_args = 1, value_parser = clap::value_parser!(u32).range(1..=ModelConfig::MOST_HIDDEN as i64))]
    pub hidden: Option<Vec<u32>>,
    /// Probability of an input of a layer to be dropped in training, or one for each layer, such as 0.5,0.3
    #[arg(long, value_name = "P[,P]…", value_delimiter = ',', num_args = 1, value_parser = probability, allow_hyphen_values = true)]
    pub dropout: Option<Vec<f32>>,
    /// Add the input of a layer to its output where they are of one width
    #[arg(long)]
    pub residual: bool,
    /// What is done to the outputs of hidden layers; all but a ReLU take a pass of their own. That of the paper of GAT
    /// is elu [default: relu; with --binary none]
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub activation: Option<ActivationName>,
    /// What normalises the outputs of hidden layers, before a residual input and the activation, as PyG's models have
    /// it; in addition to the batch normalisation inside GIN's layers. pair and graph are of one rank
    #[arg(long, value_enum, value_name = "NORM", default_value_t = HiddenNormName::None)]
    pub hidden_norm: HiddenNormName,
    /// What of all layers' outputs goes on to a last linear map, jumping knowledge, as PyG's `jk` has it; without it
    /// the last layer's alone. Not of APPNP and GCNII
    #[arg(long, value_enum, value_name = "HOW")]
    pub jumping: Option<JumpingName>,
    /// How neighbours are summed up, as `halfgnn bench spmm --help` says: post-half is the way of frameworks, which
    /// overflows; not of GAT [default: discretized-float]
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<SpmmPolicyName>,
    /// What is taken of the vertices of each graph, of a dataset that is many graphs [default: sum]
    #[arg(long, value_enum, value_name = "READOUT")]
    pub pool: Option<PoolName>,
    /// Send what is summed up over neighbours in 8 bits while training, forward and backward, in half or bf16;
    /// evaluations and predictions send what the model computes with. Not of GATv2. Without a format int8, whose sums
    /// are faster than e4m3's
    #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "int8")]
    pub messages: Option<CodeFormatName>,
    /// Keep what the backward pass reads of the forward pass, outputs of hidden layers and what GIN normalises, in this
    /// way instead of as the model computes with it; of networks with ReLU, in half or bf16
    #[arg(long, value_enum, value_name = "HOW")]
    pub store: Option<StoreName>,
    /// Multiply signs of activations by signs of weights, as Bi-GCN does, of GCN and GraphSAGE; weight decay is then 0
    /// and dropout 0.3 unless they are given, hidden layers of bin 128 wide, and the sign is the only activation; one
    /// of each layer, where they differ
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',')]
    pub binary: Vec<BinaryName>,
    /// What only one kind of model has.
    #[command(flatten)]
    pub own: OwnOptions,
}

/// An option's help with its customary values: `[default: 2; GAT 3, GIN 5]`.
pub fn with_defaults(arg: Arg, value: impl Fn(&ModelConfig) -> String) -> Arg {
    let mut text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let value = |kind: &ModelKind| value(&ModelConfig::of(kind.convolution.clone(), 1, 1));
    let common = value(&KINDS[0]);
    text.push_str(&format!(" [default: {common}"));
    let others = KINDS.iter().map(|kind| (kind, value(kind)));
    for (number, (kind, own)) in others.filter(|(_, own)| *own != common).enumerate() {
        let comma = if number == 0 { ";" } else { "," };
        text.push_str(&format!("{comma} {} {own}", kind.name.to_uppercase()));
    }
    text.push(']');
    arg.help(text)
}

/// The options that were given of those that only some models have, by name.
#[derive(Debug, Default)]
pub struct OwnOptions(BTreeMap<&'static str, String>);

impl OwnOptions {
    /// Each option once, in the order of the models, and the models that have it.
    fn all() -> Vec<(&'static str, Vec<&'static ModelKind>)> {
        let mut all: Vec<(_, Vec<_>)> = Vec::new();
        for kind in KINDS.iter() {
            for option in &kind.options {
                match all.iter_mut().find(|(name, _)| *name == option.name) {
                    Some((_, of)) => of.push(kind),
                    None => all.push((option.name, vec![kind])),
                }
            }
        }
        all
    }

    /// The option, with the help of every model that has it, each checking its text.
    fn arg(name: &'static str, of: Vec<&'static ModelKind>) -> Arg {
        let option = |kind: &'static ModelKind| {
            let own = kind.options.iter().find(|option| option.name == name);
            own.expect("the models were found by their options")
        };
        // Models whose option is the same share a line.
        let mut lines: Vec<(String, &str)> = Vec::new();
        for kind in &of {
            let (kind_name, help) = (kind.name.to_uppercase(), option(kind).help);
            match lines.iter_mut().find(|(_, of)| *of == help) {
                Some((names, _)) => names.push_str(&format!(", {kind_name}")),
                None => lines.push((kind_name, help)),
            }
        }
        let help: Vec<String> = lines
            .into_iter()
            .map(|(names, help)| format!("{names}: {help}"))
            .collect();
        let arg = Arg::new(name).long(name).help(help.join("; "));
        let first = option(of[0]);
        if !first.choices.is_empty() {
            let value = |(value, help): &(&'static str, &'static str)| {
                PossibleValue::new(*value).help(*help)
            };
            // Whether one of them is the model's is known when there is a model.
            let mut choices: Vec<(&str, &str)> = Vec::new();
            for choice in of.iter().flat_map(|kind| option(kind).choices) {
                if choices.iter().all(|(name, _)| *name != choice.0) {
                    choices.push(*choice);
                }
            }
            let choices: Vec<_> = choices.iter().map(value).collect();
            return arg.value_name(first.value).value_parser(choices);
        }
        if first.value.is_empty() {
            return arg.action(ArgAction::SetTrue);
        }
        arg.value_name(first.value)
            .allow_negative_numbers(true)
            .value_parser(move |text: &str| {
                let tried = of
                    .iter()
                    .map(|kind| kind.convolution.clone().set(name, text));
                // Whether it is one of the model's is known when there is a model.
                let any = tried.reduce(Result::or).unwrap_or(Ok(()));
                any.map(|()| text.to_owned())
            })
    }
}

impl Args for OwnOptions {
    fn augment_args(command: Command) -> Command {
        let all = Self::all();
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        let group = ArgGroup::new("OwnOptions").multiple(true).args(names);
        let args = all.into_iter().map(|(name, of)| Self::arg(name, of));
        command.args(args.collect::<Vec<_>>()).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }

    fn group_id() -> Option<clap::Id> {
        Some("OwnOptions".into())
    }
}

impl FromArgMatches for OwnOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |(name, of): (&'static str, Vec<&ModelKind>)| {
            let flag = of[0].options.iter().any(|option| {
                option.name == name && option.value.is_empty() && option.choices.is_empty()
            });
            let text = match flag {
                true => matches.get_flag(name).then(String::new),
                false => matches.get_one::<String>(name).cloned(),
            };
            text.map(|text| (name, text))
        };
        Ok(Self(Self::all().into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl OwnOptions {
    /// The name of an option that was given.
    pub fn first(&self) -> Option<&'static str> {
        self.0.keys().next().copied()
    }

    /// The layers of a model with the options that were given.
    ///
    /// # Errors
    /// Where an option is given that the model does not have.
    pub fn convolution(&self, model: ModelName) -> Result<ConvolutionConfig, Failure> {
        let kind = model.kind();
        self.set(kind, kind.convolution.clone())
    }

    fn set(
        &self,
        kind: &ModelKind,
        mut convolution: ConvolutionConfig,
    ) -> Result<ConvolutionConfig, Failure> {
        let own = |name: &str| kind.options.iter().any(|option| option.name == name);
        let given = |name: &str| self.0.contains_key(name);
        let mut all = Self::all().into_iter();
        if let Some((option, of)) = all.find(|(name, _)| given(name) && !own(name)) {
            let of: Vec<&str> = of.iter().map(|kind| kind.name).collect();
            let listed = match &of[..] {
                [others @ .., last] if !others.is_empty() => {
                    format!("{} and {last}", others.join(", "))
                }
                _ => of.concat(),
            };
            return Err(Failure::Input(format!(
                "--{option} is an option of {listed}, and the model is {}; add --model {}, or leave it out",
                kind.name, of[0],
            )));
        }
        for option in &kind.options {
            if let Some(text) = self.0.get(option.name) {
                let refuse = |wanted| {
                    Failure::Input(format!(
                        "--{} {text} of {}: {wanted}",
                        option.name, kind.name
                    ))
                };
                convolution.set(option.name, text).map_err(refuse)?;
            }
        }
        Ok(convolution)
    }
}

impl ModelArgs {
    /// The model for a dataset of `features` features and `classes` classes.
    ///
    /// # Errors
    /// Where an option is given that the model does not have.
    pub fn config(&self, features: usize, classes: usize) -> Result<ModelConfig, Failure> {
        self.config_for(features, classes, false)
    }

    /// The model likewise, or one that classifies whole graphs where a dataset is many.
    ///
    /// # Errors
    /// Those of [`ModelArgs::config`], and where `--pool` is given and the dataset is one graph.
    pub fn config_for(
        &self,
        features: usize,
        classes: usize,
        of_graphs: bool,
    ) -> Result<ModelConfig, Failure> {
        let kind = self.model.kind();
        let given = |name: &str| self.own.0.contains_key(name);
        let mut convolution = kind.convolution.clone();
        if of_graphs {
            convolution.tell_graphs();
        } else if self.pool.is_some() {
            return Err(Failure::Input(
                "--pool makes one row of the vertices of each of many graphs, and the dataset is one graph; leave it out".into(),
            ));
        }
        let convolution = self.own.set(kind, convolution)?;
        if let (Some(_), Err(reason)) = (&self.policy, kind.policy) {
            return Err(Failure::Input(format!(
                "--policy says how neighbours are summed up, and {reason}; leave it out, or take another --model"
            )));
        }
        let mut config = ModelConfig::of(convolution, features, classes);
        let binary: Vec<Binary> = self.binary.iter().map(|&name| name.into()).collect();
        if !binary.is_empty() {
            let norm = config.norm();
            config = config.of_bits_by_layer(&binary);
            // One that was asked for is not replaced in silence.
            if given("norm") && config.norm() != norm {
                return Err(Failure::Input(format!(
                    "--binary bin takes the mean of signs of neighbours, and --norm is {norm}; take --norm right, or leave it out"
                )));
            }
        }
        let hidden = self.hidden.iter().flatten();
        let hidden: Vec<usize> = hidden.map(|&width| width as usize).collect();
        let dropout = self.dropout.as_deref().unwrap_or_default();
        let layers = match hidden.len() {
            0 | 1 => config.layers,
            several => several + 1,
        };
        // One is for all.
        let each = |count: usize| count > 1;
        let config = ModelConfig {
            hidden: hidden.last().copied().unwrap_or(config.hidden),
            layers: self.layers.map_or(layers, |layers| layers as usize),
            dropout: dropout.last().copied().unwrap_or(config.dropout),
            dropout_by_layer: match each(dropout.len()) {
                true => dropout.to_vec(),
                false => Vec::new(),
            },
            hidden_by_layer: match each(hidden.len()) {
                true => hidden,
                false => Vec::new(),
            },
            residual: self.residual,
            activation: self
                .activation
                .map_or(config.activation, HiddenActivation::from),
            hidden_norm: self.hidden_norm.into(),
            jumping: self.jumping.map(Into::into),
            recompute: self.recompute,
            messages: self.messages.map(Into::into),
            store: self.store.map(Into::into),
            policy: self.policy.map_or(config.policy, |named| named.0),
            readout: of_graphs.then(|| self.pool.map_or(Readout::Sum, Readout::from)),
            ..config
        };
        Ok(config)
    }
}

/// Which model to train: its place in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelName(usize);

impl ModelName {
    fn kind(self) -> &'static ModelKind {
        &KINDS[self.0]
    }

    /// The model with its customary shape.
    pub fn config(self, features: usize, classes: usize) -> ModelConfig {
        ModelConfig::of(self.kind().convolution.clone(), features, classes)
    }

    /// The name, as it is typed.
    pub fn as_str(self) -> &'static str {
        self.kind().name
    }

    /// The name of a model of whatever kind.
    pub fn label(convolution: &ConvolutionConfig) -> &'static str {
        let mut kinds = KINDS.iter();
        let known = kinds.find(|kind| kind.name == convolution.name());
        known.map_or("other", |kind| kind.name)
    }
}

impl ValueEnum for ModelName {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ModelName>> =
            LazyLock::new(|| (0..KINDS.len()).map(ModelName).collect());
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()).help(self.kind().title))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use halfgnn::nn::{Aggregate, Appnp, Gat, Gcnii, Gin, Statistics};
    use halfgnn::ops::{Scaling, Schedule};

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
        let expected = Gat {
            heads: 4,
            slope: 0.2,
            attention_dropout: 0.0,
            ..Gat::default()
        };
        assert_eq!(gat.convolution, expected.into());
        let plain = config(&["--model", "gin", "--policy", "post-half"]).unwrap();
        assert_eq!(plain.policy.scaling, Scaling::PostReduction);
        let hybrid = config(&["--policy", "hp"]).unwrap();
        assert_eq!(hybrid.policy.schedule, Schedule::Hybrid);
        let sum = config(&["--model", "gin", "--aggregate", "sum", "--epsilon", "-0.5"]).unwrap();
        let expected = Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: -0.5,
            learn_epsilon: false,
            statistics: Statistics::Batch,
        };
        assert_eq!(sum.convolution, expected.into());
        // One name, two models.
        let alpha = config(&["--model", "appnp", "--alpha", "0.2", "--steps", "3"]).unwrap();
        let expected = Appnp {
            steps: 3,
            alpha: 0.2,
            propagation_dropout: None,
        };
        assert_eq!(alpha.convolution, expected.into());
        let deep = config(&["--model", "gcnii", "--alpha", "0.3", "--theta", "0.6"]).unwrap();
        let expected = Gcnii {
            alpha: 0.3,
            theta: 0.6,
        };
        assert_eq!(deep.convolution, expected.into());
        assert_eq!((deep.layers, deep.hidden, deep.dropout), (64, 64, 0.6));
    }

    #[test]
    fn widths_and_dropouts_are_of_all_layers_or_of_each() {
        let one = config(&["--hidden", "32", "--dropout", "0.25"]).unwrap();
        let expected = ModelConfig {
            hidden: 32,
            dropout: 0.25,
            ..ModelConfig::gcn(10, 3)
        };
        assert_eq!(one, expected);
        let each = config(&[
            "--model",
            "gin",
            "--hidden",
            "128,64",
            "--dropout",
            "0.5,0.3,0",
        ]);
        let each = each.unwrap();
        assert_eq!(each.layers, 3);
        assert_eq!(
            [0, 1, 2].map(|layer| (each.layer(layer), each.dropout_of(layer))),
            [((10, 128), 0.5), ((128, 64), 0.3), ((64, 3), 0.0)]
        );
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
        let message = config(&["--model", "gat", "--alpha", "0.2"]).unwrap_err();
        assert!(
            message.contains("--alpha is an option of appnp, gcnii and ssg, and the model is gat"),
            "{message}"
        );
        for wrong in [["--heads", "0"], ["--lambda", "-1"], ["--alpha", "x"]] {
            let message = config(&wrong).unwrap_err();
            assert!(message.contains("it must be"), "{message}");
        }
        assert!(
            config(&["--aggregate", "all"])
                .unwrap_err()
                .contains("possible values")
        );
    }
}
