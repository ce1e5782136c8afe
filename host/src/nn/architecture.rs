//! The list of models by name, and the description of each in its file.
//!
//! A model has a file: its configuration, its options on a command line, its stages and their parameters.
//! [`ConvolutionConfig`] is made from the list of names. Checkpoints, `--model`, its options and their help follow from
//! it.

use super::appnp::Appnp;
use super::gat::Gat;
use super::gatv2::GatV2;
use super::gcn::Gcn;
use super::gcnii::Gcnii;
use super::gin::Gin;
use super::sage::Sage;
use super::{ModelConfig, Norm};
use crate::program::layers::{
    Arma, Cg, Cheb, ClusterGcn, Edge, GatedGraph, Gen, Gine, GraphConv, Hetero, Hgt,
    Layer as Formula, LayerSetting, Le, MixHop, Pna, Reads, ResGated, Rgcn, Sg, Ssg, Tag,
    Transformer, TypeReads, TypedLayer,
};
use serde::de::{DeserializeOwned, MapAccess, Visitor, value::UnitDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A kind of model: its configuration, whose default is the usual one, and what follows from it.
pub trait Architecture:
    Clone + Default + fmt::Debug + PartialEq + Serialize + DeserializeOwned + 'static
{
    /// The name, in lower case, as it is typed and as checkpoints have it.
    const NAME: &'static str;
    /// What it is, in a line of help.
    const TITLE: &'static str;
    /// Options of a command line, which are set in this order.
    const OPTIONS: &'static [LayerOption<Self>] = &[];
    /// Whether [`ModelConfig::policy`] has a meaning, or why not.
    const POLICY: Result<(), &'static str> = Ok(());

    /// Whether edges may have weights, or why not.
    const EDGE_WEIGHTS: Result<(), &'static str> = Ok(());

    /// Gives a model the usual shape of this kind, where that is not two layers of 64 with dropout 0.5.
    fn shape(&self, _model: &mut ModelConfig) {}

    /// Makes it the usual one of models that predict whole graphs.
    fn tell_graphs(&mut self) {}

    /// The degree norm that the model's [`Propagation`](super::Propagation) has to have.
    fn norm(&self) -> Norm;

    /// Whether every vertex needs a self-loop, because the layer reads a vertex' own row in no other way.
    fn wants_self_loops(&self) -> bool {
        false
    }

    /// Whether its layers drop edges in training, by the places of both ends in their graph.
    fn drops_edges(&self) -> bool {
        false
    }

    /// Whether the first layer of a step on a sampled block reads features where they lie. It does where it aggregates
    /// before it multiplies.
    fn reads_in_place(&self, _model: &ModelConfig) -> bool {
        false
    }

    /// Why a layer reads all vertices at once in evaluation, and not only its neighbours, where it does. Then no
    /// [piece of the graph](super::Pieces) can be evaluated by itself.
    fn wants_all_vertices(&self) -> Option<&'static str> {
        None
    }

    /// Numbers of each edge that its layers read as features; 0 for a kind that reads none.
    fn edge_features(&self) -> usize {
        0
    }

    /// Whether its layers read features of edges as a row of elements for each edge, to which linear maps apply, and
    /// not as columns of floats.
    fn reads_edge_rows(&self) -> bool {
        false
    }

    /// Makes its layers read `columns` numbers of each edge, where they can; returns whether they do.
    fn read_edge_features(&mut self, _columns: usize) -> bool {
        false
    }

    /// The usual L2 penalty of such models.
    fn weight_decay(&self) -> f32 {
        5e-4
    }

    /// Checks that there is such a model; what all kinds share is checked already.
    ///
    /// # Errors
    /// What is wrong, in a few words.
    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        Ok(())
    }

    /// The place of each layer in the network: by default [`ModelConfig::layers`] equal layers, one after the other.
    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        stacked(model)
    }

    /// Makes its layers use the mean of ln (1 + degree) over the vertices that a model is trained on, where they do.
    /// Only those call `mean`, which reads the degrees of all vertices.
    fn read_log_degree(&mut self, _mean: &dyn Fn() -> f32) {}

    /// The factor that keeps a sum over at most `largest_degree` neighbours in the range of half, for a kind whose
    /// formula reads [`Builder::largest_degree`](crate::program::Builder::largest_degree).
    fn sum_scale(&self, _largest_degree: u32) -> f32 {
        1.0
    }

    /// Layer `number` of the [settings](Architecture::settings) as a formula, without what the network puts around it.
    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula>;

    /// Whether it reads several types of vertices and edges.
    const KNOWS_TYPES: bool = false;

    /// The same layer over several types of vertices and edges, for a kind that
    /// [supports types](Architecture::KNOWS_TYPES).
    fn formula_of_types(
        &self,
        _model: &ModelConfig,
        _number: usize,
        _reads: TypeReads,
    ) -> Option<Box<dyn TypedLayer>> {
        None
    }
}

/// An option of a command line that an [`Architecture`] has.
#[derive(Clone, Copy, Debug)]
pub struct LayerOption<C> {
    /// The name, without dashes. Kinds may share one, each with its own meaning.
    pub name: &'static str,
    /// What stands for its value in help; empty where it takes none.
    pub value: &'static str,
    /// What its value may be, each with a line of help; empty where that is not a list.
    pub choices: &'static [(&'static str, &'static str)],
    /// A line of help, which begins in lower case: the kind's name comes before it.
    pub help: &'static str,
    /// Sets it from its text. An error says what is expected, after "it must be".
    pub set: fn(&mut C, &str) -> Result<(), String>,
}

impl<C> LayerOption<C> {
    /// The default.
    pub const NONE: Self = Self {
        name: "",
        value: "",
        choices: &[],
        help: "",
        set: |_, _| Ok(()),
    };

    /// Mean or sum of the neighbours, of a kind whose default is the sum.
    pub const AGGREGATE: Self = Self {
        name: "aggregate",
        value: "AGGREGATE",
        choices: &[("mean", "Their mean"), ("sum", "Their sum")],
        help: "what is taken of the neighbours [default: mean; sum of a model of whole graphs]",
        ..Self::NONE
    };

    /// Likewise, of a kind whose messages can be reduced in every way.
    pub const AGGREGATE_ANY: Self = Self {
        choices: &[
            ("mean", "Their mean"),
            ("sum", "Their sum"),
            ("max", "The largest of each column"),
            ("min", "The smallest of each column"),
            (
                "softmax",
                "Their mean, weighted by the softmax of each column",
            ),
            ("std", "The standard deviation of each column"),
        ],
        ..Self::AGGREGATE
    };
}

/// Puts what was read where it belongs.
///
/// # Errors
/// What is expected, for a text that was not read.
pub fn store<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn parsed<T: std::str::FromStr>(
    text: &str,
    valid: impl Fn(&T) -> bool,
    wanted: &str,
) -> Result<T, String> {
    let value = text.parse().ok().filter(valid);
    value.ok_or_else(|| format!("it must be {wanted}"))
}

/// The option of a degree norm.
pub const fn norm_option<C>(set: fn(&mut C, &str) -> Result<(), String>) -> LayerOption<C> {
    LayerOption {
        name: "norm",
        value: "NORM",
        choices: &[
            ("both", "The roots of in-degrees and out-degrees, symmetric"),
            (
                "in",
                "The roots of in-degrees at both ends, as PyG has it for directed graphs",
            ),
            ("right", "The mean of the neighbours"),
            ("left", "Divided by the sender's out-degree"),
            ("none", "The sum"),
        ],
        help: "which degrees scale what is summed up [default: both]",
        set,
    }
}

/// A degree norm by its name.
///
/// # Errors
/// What is expected.
pub fn norm(text: &str) -> Result<Norm, String> {
    let all = [Norm::Both, Norm::In, Norm::Right, Norm::Left, Norm::None];
    let named = all.into_iter().find(|norm| norm.to_string() == text);
    named.ok_or_else(|| "it must be the name of a norm".to_owned())
}

/// A whole number in `range`.
///
/// # Errors
/// What is expected.
pub fn number(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let wanted = format!("a whole number from {} to {}", range.start(), range.end());
    parsed(text, |value| range.contains(value), &wanted)
}

/// A number.
///
/// # Errors
/// What is expected.
pub fn finite(text: &str) -> Result<f32, String> {
    parsed(text, |value: &f32| value.is_finite(), "a number")
}

/// A number from 0 on.
///
/// # Errors
/// What is expected.
pub fn not_negative(text: &str) -> Result<f32, String> {
    let valid = |value: &f32| value.is_finite() && *value >= 0.0;
    parsed(text, valid, "0 or a number above it")
}

/// A number above 0.
///
/// # Errors
/// What is expected.
pub fn positive(text: &str) -> Result<f32, String> {
    let valid = |value: &f32| value.is_finite() && *value > 0.0;
    parsed(text, valid, "a number above 0")
}

/// A number in [0, 1).
///
/// # Errors
/// What is expected.
pub fn probability(text: &str) -> Result<f32, String> {
    let valid = |value: &f32| (0.0..1.0).contains(value);
    parsed(text, valid, "at least 0 and below 1")
}

/// A kind of model as a command line shows it.
#[derive(Clone, Debug)]
pub struct ModelKind {
    /// The name, as it is typed.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Its options.
    pub options: Vec<ModelOption>,
    /// Its default configuration.
    pub convolution: ConvolutionConfig,
    /// Whether [`ModelConfig::policy`] has a meaning, or why not.
    pub policy: Result<(), &'static str>,
}

impl ModelKind {
    fn of<A: Architecture + Into<ConvolutionConfig>>() -> Self {
        Self {
            name: A::NAME,
            title: A::TITLE,
            options: Self::options_of::<A>(),
            convolution: A::default().into(),
            policy: A::POLICY,
        }
    }

    /// The options of an architecture.
    pub(crate) fn options_of<A: Architecture>() -> Vec<ModelOption> {
        let option = |option: &LayerOption<A>| ModelOption {
            name: option.name,
            value: option.value,
            choices: option.choices,
            help: option.help,
        };
        A::OPTIONS.iter().map(option).collect()
    }
}

/// A [`LayerOption`] of whatever kind.
#[derive(Clone, Copy, Debug)]
pub struct ModelOption {
    /// The name, without dashes.
    pub name: &'static str,
    /// What stands for its value in help.
    pub value: &'static str,
    /// What its value may be.
    pub choices: &'static [(&'static str, &'static str)],
    /// A line of help.
    pub help: &'static str,
}

fn set<A: Architecture>(config: &mut A, name: &str, text: &str) -> Result<(), String> {
    match A::OPTIONS.iter().find(|option| option.name == name) {
        Some(option) => {
            let names = || option.choices.iter().map(|(name, _)| *name);
            if !option.choices.is_empty() && !names().any(|name| name == text) {
                let all: Vec<&str> = names().collect();
                return Err(format!("it must be {}", all.join(" or ")));
            }
            (option.set)(config, text)
        }
        None => Err(format!("there is no option {name} of {}", A::NAME)),
    }
}

/// Layers of the caller, as [formulas](crate::program::layers::Layer). They can do everything that the layers of this
/// crate can do.
///
/// ```
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::nn::{ModelConfig, Network, OtherLayers, OwnLayers};
/// use halfgnn::program::layers::{Layer, Reads};
/// use halfgnn::program::{Builder, Edges, Value};
/// use std::sync::Arc;
///
/// /// `A · H · W`.
/// #[derive(Debug)]
/// struct Sum(Edges, usize);
///
/// impl Layer for Sum {
///     fn build(&self, g: &mut Builder, x: Value) -> Value {
///         let weight = g.weight("weight", (g.columns(x), self.1));
///         let sum = g.aggregate(self.0, x);
///         g.matmul(sum, weight)
///     }
/// }
///
/// #[derive(Debug)]
/// struct Sums;
///
/// impl OwnLayers for Sums {
///     fn layer(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
///         Box::new(Sum(reads.edges, model.layer(number).1))
///     }
/// }
///
/// let model = ModelConfig::of(OtherLayers::new("sums", Arc::new(Sums)), 16, 4);
/// let network = Network::<_, f32>::new(&Cpu::new(), &model, 0)?;
/// # Ok::<(), halfgnn::Error>(())
/// ```
pub trait OwnLayers: fmt::Debug + Send + Sync {
    /// Layer `number` of the [settings](OwnLayers::settings), without what the network puts around it.
    fn layer(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula>;

    /// The place of each layer in the network: by default [`ModelConfig::layers`] equal layers, one after the other.
    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        stacked(model)
    }

    /// The degree norm of the edges.
    fn norm(&self) -> Norm {
        Norm::None
    }

    /// Whether every vertex gets an edge to itself.
    fn wants_self_loops(&self) -> bool {
        false
    }
}

/// Layers of the caller's own under the name that they have in checkpoints.
#[derive(Clone, Debug)]
pub struct OtherLayers {
    /// The name.
    pub name: String,
    /// Their configuration, as it stands in a checkpoint.
    pub config: serde_json::Value,
    /// What they compute. None in a configuration that was read from a file, until the caller sets it.
    pub layers: Option<Arc<dyn OwnLayers>>,
}

/// Two are equal where a checkpoint has the same of both.
impl PartialEq for OtherLayers {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.config) == (&other.name, &other.config)
    }
}

impl From<OtherLayers> for ConvolutionConfig {
    fn from(layers: OtherLayers) -> Self {
        Self::Other(layers)
    }
}

/// [`ModelConfig::layers`] equal layers, one after the other.
fn stacked(model: &ModelConfig) -> Vec<LayerSetting> {
    let layers = 0..model.layers;
    layers
        .map(|number| LayerSetting::stacked(model, number))
        .collect()
}

/// Makes the list.
macro_rules! models {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// The kind of a model's layers.
        ///
        /// In a file it is `{"name": configuration}`, or the name alone where there is nothing to configure.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum ConvolutionConfig {
            $($(#[$doc])* $kind($kind),)*
            /// A user's own layers.
            Other(OtherLayers),
        }

        $(impl From<$kind> for ConvolutionConfig {
            fn from(config: $kind) -> Self {
                Self::$kind(config)
            }
        })*

        impl ConvolutionConfig {
            /// All kinds that the program has, in the order of the list.
            pub fn kinds() -> Vec<ModelKind> {
                vec![$(ModelKind::of::<$kind>(),)*]
            }

            /// The name, in lower case, such as `gcn`.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$kind(_) => $kind::NAME,)*
                    Self::Other(other) => &other.name,
                }
            }

            /// Sets one of the kind's [options](Architecture::OPTIONS).
            ///
            /// # Errors
            /// What is expected in place of `text`, or that there is no such option.
            pub fn set(&mut self, option: &str, text: &str) -> Result<(), String> {
                match self {
                    $(Self::$kind(config) => set(config, option, text),)*
                    Self::Other(other) => Err(other.refusal()),
                }
            }

            pub(super) fn shape(&self, model: &mut ModelConfig) {
                match self {
                    $(Self::$kind(config) => config.shape(model),)*
                    Self::Other(_) => {}
                }
            }

            /// Makes it the usual one of models that predict whole graphs: see [`ModelConfig::of_graphs`].
            pub fn tell_graphs(&mut self) {
                match self {
                    $(Self::$kind(config) => config.tell_graphs(),)*
                    Self::Other(_) => {}
                }
            }

            pub(super) fn norm(&self) -> Norm {
                match self {
                    $(Self::$kind(config) => config.norm(),)*
                    Self::Other(other) => other.of(Norm::None, |own| own.norm()),
                }
            }

            pub(super) fn wants_self_loops(&self) -> bool {
                match self {
                    $(Self::$kind(config) => config.wants_self_loops(),)*
                    Self::Other(other) => other.of(false, |own| own.wants_self_loops()),
                }
            }

            pub(super) fn reads_in_place(&self, model: &ModelConfig) -> bool {
                match self {
                    $(Self::$kind(config) => config.reads_in_place(model),)*
                    Self::Other(_) => false,
                }
            }

            pub(super) fn edge_weights(&self) -> Result<(), &'static str> {
                match self {
                    $(Self::$kind(_) => $kind::EDGE_WEIGHTS,)*
                    // Sums multiply by them, and attention refuses them.
                    Self::Other(_) => Ok(()),
                }
            }

            pub(super) fn drops_edges(&self) -> bool {
                match self {
                    $(Self::$kind(config) => config.drops_edges(),)*
                    Self::Other(_) => false,
                }
            }

            pub(super) fn wants_all_vertices(&self) -> Option<&'static str> {
                match self {
                    $(Self::$kind(config) => config.wants_all_vertices(),)*
                    Self::Other(_) => None,
                }
            }

            pub(super) fn edge_features(&self) -> usize {
                match self {
                    $(Self::$kind(config) => config.edge_features(),)*
                    Self::Other(_) => 0,
                }
            }

            pub(super) fn reads_edge_rows(&self) -> bool {
                match self {
                    $(Self::$kind(config) => config.reads_edge_rows(),)*
                    Self::Other(_) => false,
                }
            }

            pub(super) fn read_edge_features(&mut self, columns: usize) -> bool {
                match self {
                    $(Self::$kind(config) => config.read_edge_features(columns),)*
                    Self::Other(_) => false,
                }
            }

            pub(super) fn read_log_degree(&mut self, mean: &dyn Fn() -> f32) {
                match self {
                    $(Self::$kind(config) => config.read_log_degree(mean),)*
                    Self::Other(_) => {}
                }
            }

            pub(super) fn weight_decay(&self) -> f32 {
                match self {
                    $(Self::$kind(config) => config.weight_decay(),)*
                    Self::Other(_) => 5e-4,
                }
            }

            pub(super) fn check(&self, model: &ModelConfig) -> Result<(), String> {
                match self {
                    $(Self::$kind(config) => config.check(model),)*
                    Self::Other(other) => other.check(),
                }
            }

            /// How its layers stand in a network: see [`Architecture::settings`].
            pub(crate) fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
                match self {
                    $(Self::$kind(config) => config.settings(model),)*
                    Self::Other(other) => other.of(Vec::new(), |own| own.settings(model)),
                }
            }

            /// See [`Architecture::sum_scale`].
            pub(crate) fn sum_scale(&self, largest_degree: u32) -> f32 {
                match self {
                    $(Self::$kind(config) => config.sum_scale(largest_degree),)*
                    Self::Other(_) => 1.0,
                }
            }

            /// Whether it reads several types of vertices and edges.
            pub fn knows_types(&self) -> bool {
                match self {
                    $(Self::$kind(_) => $kind::KNOWS_TYPES,)*
                    Self::Other(_) => false,
                }
            }

            /// Layer `number` of `model` over several types: see [`Architecture::formula_of_types`].
            pub(crate) fn formula_of_types(
                &self,
                model: &ModelConfig,
                number: usize,
                reads: TypeReads,
            ) -> Option<Box<dyn TypedLayer>> {
                match self {
                    $(Self::$kind(config) => config.formula_of_types(model, number, reads),)*
                    Self::Other(_) => None,
                }
            }

            /// Layer `number` of `model` as a formula: see [`Architecture::formula`].
            pub(crate) fn formula(
                &self,
                model: &ModelConfig,
                number: usize,
                reads: Reads,
            ) -> Option<Box<dyn Formula>> {
                match self {
                    $(Self::$kind(config) => Some(config.formula(model, number, reads)),)*
                    Self::Other(other) => {
                        other.of(None, |own| Some(own.layer(model, number, reads)))
                    }
                }
            }
        }

        impl Serialize for ConvolutionConfig {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$kind(config) => write(to, config),)*
                    Self::Other(OtherLayers { name, config, .. }) => {
                        to.collect_map([(name, config)])
                    }
                }
            }
        }

        impl<'de> Visitor<'de> for ByName {
            type Value = ConvolutionConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a model, with its configuration if it has one")
            }

            fn visit_str<Er: serde::de::Error>(self, name: &str) -> Result<Self::Value, Er> {
                match name {
                    $($kind::NAME => $kind::deserialize(UnitDeserializer::new())
                        .map(ConvolutionConfig::$kind),)*
                    other => Ok(ConvolutionConfig::Other(OtherLayers {
                        name: other.to_owned(),
                        config: serde_json::Value::Null,
                        layers: None,
                    })),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let Some(name) = map.next_key::<String>()? else {
                    return Err(serde::de::Error::custom("no model is named"));
                };
                Ok(match name.as_str() {
                    $($kind::NAME => ConvolutionConfig::$kind(map.next_value()?),)*
                    _ => ConvolutionConfig::Other(OtherLayers {
                        config: map.next_value()?,
                        name,
                        layers: None,
                    }),
                })
            }
        }
    };
}

models! {
    /// A graph convolutional network.
    Gcn,
    /// A graph attention network.
    Gat,
    /// A graph attention network whose attention is dynamic.
    GatV2,
    /// A graph isomorphism network.
    Gin,
    /// GraphSAGE.
    Sage,
    /// Predict, then propagate.
    Appnp,
    /// A deep graph convolutional network.
    Gcnii,
    /// Graph convolutions with a weight for the vertex itself.
    GraphConv,
    /// Simplified graph convolutions.
    Sg,
    /// Simple spectral graph convolutions.
    Ssg,
    /// Topology adaptive graph convolutions.
    Tag,
    /// Chebyshev polynomials of the Laplacian.
    Cheb,
    /// Auto-regressive moving average filters.
    Arma,
    /// Powers of the adjacency side by side.
    MixHop,
    /// Convolutions of Cluster-GCN.
    ClusterGcn,
    /// Convolutions by local extrema.
    Le,
    /// Gated graph convolutions.
    GatedGraph,
    /// A graph transformer.
    Transformer,
    /// A graph isomorphism network with features of edges.
    Gine,
    /// Residual gated graph convolutions.
    ResGated,
    /// Crystal graph convolutions.
    Cg,
    /// Edge convolutions.
    Edge,
    /// Generalized convolutions.
    Gen,
    /// Principal neighbourhood aggregation.
    Pna,
    /// A relational graph convolutional network, of one type of edges or several.
    Rgcn,
    /// A layer for each type of edges, summed.
    Hetero,
    /// A heterogeneous graph transformer.
    Hgt,
}

impl OtherLayers {
    fn refusal(&self) -> String {
        let name = crate::message::shortened(&crate::message::escaped(&self.name)).to_string();
        format!("`{name}` is no model of this program; set its layers by OtherLayers::layers")
    }

    /// Layers without a configuration.
    pub fn new(name: &str, layers: Arc<dyn OwnLayers>) -> Self {
        Self {
            name: name.to_owned(),
            config: serde_json::Value::Null,
            layers: Some(layers),
        }
    }

    /// What the layers say, or else this.
    fn of<T>(&self, other: T, say: impl FnOnce(&dyn OwnLayers) -> T) -> T {
        self.layers.as_deref().map_or(other, say)
    }

    /// That there are layers.
    fn check(&self) -> Result<(), String> {
        match self.layers {
            Some(_) => Ok(()),
            None => Err(self.refusal()),
        }
    }
}

/// A configuration under its name; the name alone where there is nothing to configure.
fn write<A: Architecture, S: Serializer>(to: S, config: &A) -> Result<S::Ok, S::Error> {
    if size_of::<A>() == 0 {
        to.serialize_str(A::NAME)
    } else {
        to.collect_map([(A::NAME, config)])
    }
}

/// Reads a [`ConvolutionConfig`].
struct ByName;

impl<'de> Deserialize<'de> for ConvolutionConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ByName)
    }
}

impl fmt::Display for ConvolutionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_written_as_ever_and_read_back() {
        let known = [
            (Gcn::default().into(), r#"{"gcn":{"norm":"both"}}"#),
            (
                Gat::default().into(),
                r#"{"gat":{"heads":1,"slope":0.2,"attention_dropout":0.0}}"#,
            ),
            (
                Gin::default().into(),
                r#"{"gin":{"aggregate":"mean","lambda":0.1,"epsilon":-0.95,"learn_epsilon":false,"statistics":"batch"}}"#,
            ),
            (
                GatV2::default().into(),
                r#"{"gatv2":{"heads":1,"slope":0.2,"attention_dropout":0.0,"share_weights":false}}"#,
            ),
            (ConvolutionConfig::from(Sage), r#""sage""#),
        ];
        for (config, text) in known {
            assert_eq!(serde_json::to_string(&config).unwrap(), text);
            assert_eq!(
                serde_json::from_str::<ConvolutionConfig>(text).unwrap(),
                config
            );
        }
        for kind in ConvolutionConfig::kinds() {
            let text = serde_json::to_string(&kind.convolution).unwrap();
            let read: ConvolutionConfig = serde_json::from_str(&text).unwrap();
            assert_eq!(read, kind.convolution);
            assert_eq!(read.name(), kind.name);
        }
        let other: ConvolutionConfig = serde_json::from_str(r#"{"mine":{"a":1}}"#).unwrap();
        assert_eq!(
            serde_json::to_string(&other).unwrap(),
            r#"{"mine":{"a":1}}"#
        );
        let refused = ModelConfig::of(other, 2, 2)
            .check()
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("`mine` is no model of this program"),
            "{refused}"
        );
        assert!(serde_json::from_str::<ConvolutionConfig>(r#"{"gcn":{"norm":"odd"}}"#).is_err());
        assert!(serde_json::from_str::<ConvolutionConfig>("{}").is_err());
        assert!(serde_json::from_str::<ConvolutionConfig>(r#""gcn""#).is_err());
    }
}
