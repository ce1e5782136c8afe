//! Layers that are converted under the names in the [registry of layers](crate::program::layers::ALL).

mod class;
mod fit;
mod layout;

use super::jumping::LastMap;
use super::{Framework, LayerPlace, StateDict, StateDictError, StateTensor, layer_place, refuse};
use crate::nn::{ConvolutionConfig, ModelConfig};
use crate::program::layers::{ALL, Divisor, LayerKind, LayerSetting, Layout, ParameterNames};
use crate::program::shapes;
use crate::tensor::Precision;
use crate::train::snapshot::no_place;
use crate::train::{Checkpoint, Tensor, Tensors};
pub(super) use class::{class_of, notes_on};
use layout::{Joined, Sides, ends_with, joined};
use std::collections::{BTreeMap, BTreeSet};

/// The prefix of a hidden norm's parameters.
const HIDDEN_NORM: &str = "hidden_norm.";

/// The prefix of the number of a linear map around the convolutions.
const MAPS: &str = "lins";

/// A linear map with a bias.
const LINEAR: &[ParameterNames] = &[
    ParameterNames::linear("weight", &["weight"], &[]),
    ParameterNames::same("bias", &["bias"], &[]),
];

/// The names of layers that are converted by the registry, as in a sentence.
pub(super) const NAMES: &str = "graphconv, sg, ssg, tag, cheb, arma, mixhop, clustergcn, leconv, gatedgraph, transformer, gine, resgated, cg, edge, gen, pna, appnp, gcnii and rgcn";

fn kind_of(convolution: &ConvolutionConfig) -> Result<LayerKind, StateDictError> {
    let kind = ALL.into_iter().find(|kind| kind.name == convolution.name());
    kind.ok_or_else(|| StateDictError(format!("no layers are called {}", convolution.name())))
}

/// A layer of the network: a convolution, or a linear map around the convolutions.
struct Stage {
    /// Its number here.
    number: usize,
    /// Its index among the stages of the same sort.
    of_sort: usize,
    is_convolution: bool,
    is_last: bool,
    outputs: usize,
}

/// The settings of a model's layers. With jumping knowledge, the last one is hidden.
pub(super) fn settings(model: &ModelConfig) -> Vec<LayerSetting> {
    let mut layers = model.clone();
    if model.jumping.is_some() {
        layers.classes = model.hidden_of(model.layers.saturating_sub(1));
    }
    layers.convolution.settings(&layers)
}

fn stages(model: &ModelConfig) -> Vec<Stage> {
    let mut counts = [0, 0];
    let settings = settings(model);
    let stages = settings.iter().enumerate().map(|(number, setting)| {
        let count = &mut counts[usize::from(setting.aggregates)];
        *count += 1;
        Stage {
            number,
            of_sort: *count - 1,
            is_convolution: setting.aggregates,
            is_last: model.is_last(number),
            outputs: setting.outputs,
        }
    });
    stages.collect()
}

/// The tensors that hold the parameters of a stage.
fn tensors_of<'a>(
    model: &ModelConfig,
    kind: &LayerKind,
    stage: &Stage,
    own: impl Iterator<Item = (&'a str, (usize, usize))>,
) -> Result<Vec<Joined>, StateDictError> {
    let names = match stage.is_convolution {
        true => kind.parameters,
        false => LINEAR,
    };
    let heads = match &model.convolution {
        ConvolutionConfig::Transformer(of) => of.heads.max(1),
        _ => 1,
    };
    let columns = match stage.is_last {
        true => stage.outputs,
        false => stage.outputs / heads,
    };
    let sides = Sides {
        outputs: stage.outputs,
        heads: (heads, columns),
    };
    joined(names, own, sides).or_else(|name| {
        refuse(format!(
            "`layers.{}.{name}` has no name in PyG's {}",
            stage.number, kind.name
        ))
    })
}

/// Whether such a model has linear maps around its convolutions.
fn stands_between_maps(convolution: &ConvolutionConfig) -> bool {
    let any = ModelConfig::of(convolution.clone(), 1, 1);
    settings(&any).iter().any(|layer| !layer.aggregates)
}

/// A parameter that takes unscaled features, where its model divides them.
fn with_divisors(tensor: &Tensor, divisor: Divisor, divisors: Option<&Vec<f32>>) -> Tensor {
    let mut tensor = tensor.clone();
    let columns = tensor.columns.max(1);
    match (divisors, divisor) {
        (Some(divisors), Divisor::OfRow) => {
            for (row, divisor) in tensor.values.chunks_exact_mut(columns).zip(divisors) {
                row.iter_mut().for_each(|value| *value /= divisor);
            }
        }
        (Some(divisors), Divisor::TimesColumn) => {
            for row in tensor.values.chunks_exact_mut(columns) {
                let values = row.iter_mut().zip(divisors);
                values.for_each(|(value, divisor)| *value *= divisor);
            }
        }
        _ => {}
    }
    tensor
}

/// Writes all layers under PyG's names. The weights of a first layer include the divisors of features.
pub(super) fn write(checkpoint: &Checkpoint, out: &mut StateDict) -> Result<(), StateDictError> {
    let model = &checkpoint.model;
    class::check(model)?;
    if checkpoint.feature_divisors.is_some() {
        class::check_divided(&model.convolution)?;
    }
    let kind = kind_of(&model.convolution)?;
    let known = shapes(model, checkpoint.precision);
    let known = known.map_err(|error| StateDictError(error.to_string()))?;
    let known: BTreeSet<&str> = known.keys().map(|name| &**name).collect();
    for stage in stages(model) {
        let prefix = format!("layers.{}.", stage.number);
        let divisors = checkpoint.feature_divisors.as_ref();
        let divisors = divisors.filter(|_| stage.number == 0);
        let own = checkpoint.snapshot.tensors.iter().filter_map(|(name, of)| {
            let name = name.strip_prefix(&prefix)?;
            (!name.starts_with(HIDDEN_NORM)).then_some((name, of))
        });
        let own: BTreeMap<&str, &Tensor> = own.collect();
        let mut names = own.keys().map(|name| format!("{prefix}{name}"));
        if let Some(name) = names.find(|name| !known.contains(&**name)) {
            return refuse(no_place(&name));
        }
        let shapes = own.iter().map(|(name, of)| (*name, (of.rows, of.columns)));
        let tensors = tensors_of(model, &kind, &stage, shapes)?;
        if divisors.is_some() && !tensors.iter().any(|it| it.has_divisor()) {
            return refuse(format!(
                "columns of its features are divided, and a first layer of {} has no map to divide them in; train without --scale-features",
                kind.name
            ));
        }
        let mut of_layer = StateDict::new();
        for tensor in &tensors {
            let get = |name: &str, divisor| with_divisors(own[name], divisor, divisors);
            for (theirs, values) in tensor.theirs_of(get) {
                match tensor.names.pyg.before {
                    true => {
                        out.insert(format!("{MAPS}.{}.{theirs}", stage.of_sort), values);
                    }
                    false => {
                        of_layer.insert(theirs.to_owned(), values);
                    }
                }
            }
        }
        let prefix = match stage.is_convolution {
            true => Framework::Pyg.prefix(),
            false => MAPS,
        };
        if stage.is_convolution {
            fit::write(model, &stage, &mut of_layer)?;
        }
        let named = of_layer.into_iter();
        out.extend(named.map(|(end, of)| (format!("{prefix}.{}.{end}", stage.of_sort), of)));
    }
    Ok(())
}

/// The tensors of a layer of a file, by the ends of their names.
#[derive(Default)]
struct Layer {
    place: LayerPlace,
    tensors: StateDict,
}

impl Layer {
    /// The name in the file.
    fn name(&self, end: &str) -> String {
        match self.place.1.is_empty() {
            true => end.into(),
            false => format!("{}.{end}", self.place.1),
        }
    }

    /// The rows and columns of a matrix.
    fn matrix(&self, end: &str) -> Result<[usize; 2], StateDictError> {
        match self.side(end, 1).zip(self.side(end, 0)) {
            Some((rows, columns)) => Ok([rows, columns]),
            None => match self.tensors.contains_key(end) {
                true => self.misshapen(end, "a matrix"),
                false => refuse(format!("it has no tensor `{}`", self.name(end))),
            },
        }
    }

    /// A dimension of a tensor, counted from the last.
    fn side(&self, end: &str, from_last: usize) -> Option<usize> {
        let shape = &self.tensors.get(end)?.shape;
        let side = shape.iter().rev().nth(from_last).copied();
        side.filter(|_| !shape.contains(&0))
    }

    /// The parameters of a tensor, which is removed.
    fn own_of(
        &mut self,
        tensor: &Joined,
        number: usize,
    ) -> Result<impl Iterator<Item = (String, Tensor)>, StateDictError> {
        let mut tensors = std::mem::take(&mut self.tensors);
        let parts = tensor.own_of(&mut tensors, |end| self.name(end), number);
        self.tensors = tensors;
        Ok(parts?.into_iter())
    }

    fn misshapen<T>(&self, end: &str, needed: &str) -> Result<T, StateDictError> {
        match self.tensors.get(end) {
            Some(tensor) => self.misshapen_as(end, tensor, needed),
            None => refuse(format!("it has no tensor `{}`", self.name(end))),
        }
    }

    fn misshapen_as<T>(
        &self,
        end: &str,
        tensor: &StateTensor,
        needed: &str,
    ) -> Result<T, StateDictError> {
        refuse(format!(
            "tensor `{}` is of shape {:?}, where {needed} is needed",
            self.name(end),
            tensor.shape
        ))
    }
}

/// The convolutions and the linear maps of a file, in their order.
struct File {
    convolutions: Vec<Layer>,
    maps: Vec<Layer>,
    /// A stand-in for a map that the file does not have.
    none: Layer,
}

impl File {
    /// Sorts the tensors of a file by the names that a kind has.
    fn of(
        tensors: &StateDict,
        (convolution, kind): (&ConvolutionConfig, &LayerKind),
    ) -> Result<Self, StateDictError> {
        let around = stands_between_maps(convolution);
        let has_maps = around || kind.parameters.iter().any(|it| it.pyg.before);
        let own = kind.parameters.iter().filter(|of| !of.pyg.before);
        let own = own.flat_map(|of| of.pyg.names.iter().map(move |form| (*form, of.pyg.layout)));
        let more = fit::more_than(kind.name).iter();
        let more = more.map(|form| (*form, Layout::Same));
        let mut forms: Vec<(&str, Layout)> = own.chain(more).collect();
        // Of several matching names the longest is right: a `lin_key.bias` is not a `bias`.
        forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
        let mut convolutions: BTreeMap<LayerPlace, StateDict> = BTreeMap::new();
        let mut maps = convolutions.clone();
        for (name, tensor) in tensors {
            // The weight of a map has two dimensions, and a stacked one has more.
            let may_be = |layout| !has_maps || layout != Layout::Stacked || tensor.shape.len() > 2;
            let mut fitting = forms.iter().filter(|(_, layout)| may_be(*layout));
            let convolution = fitting.find_map(|(form, _)| ends_with(form, name));
            let map = LINEAR.iter().filter(|_| has_maps);
            let map = map.map(|of| ends_with(of.pyg.names[0], name));
            let (layers, (prefix, end)) = match (convolution, map.flatten().next()) {
                (Some(found), _) => (&mut convolutions, found),
                (None, Some(found)) => (&mut maps, found),
                (None, None) => {
                    return refuse(format!(
                        "tensor `{name}` has no place in PyG's {}",
                        kind.name
                    ));
                }
            };
            let layer = layers.entry(layer_place(prefix)).or_default();
            layer.insert(end.to_owned(), tensor.clone());
        }
        let [convolutions, maps] = [convolutions, maps].map(|layers| {
            let layers = layers.into_iter();
            let layers = layers.map(|(place, tensors)| Layer { place, tensors });
            layers.collect()
        });
        Ok(Self {
            convolutions,
            maps,
            none: Layer::default(),
        })
    }

    /// The map before a convolution, which has the same number.
    fn before(&self, convolution: &Layer) -> Option<&Layer> {
        let mut maps = self.maps.iter();
        maps.find(|map| map.place.0 == convolution.place.0)
    }

    /// The layer of a stage, or the map before it.
    fn layer_of(&mut self, stage: &Stage, is_before: bool) -> &mut Layer {
        let number = self.convolutions.get(stage.of_sort).map(|it| it.place.0);
        let found = match (stage.is_convolution, is_before) {
            (true, true) => {
                let mut maps = self.maps.iter_mut();
                maps.find(|map| Some(map.place.0) == number)
            }
            (true, false) => self.convolutions.get_mut(stage.of_sort),
            (false, _) => self.maps.get_mut(stage.of_sort),
        };
        self.none.place.1 = format!("{MAPS}.{}", stage.of_sort);
        found.unwrap_or(&mut self.none)
    }
}

/// Widths of inputs and outputs, where they are known.
type Widths = [Option<usize>; 2];

/// Widths of inputs and outputs of a layer, where its tensors have them as dimensions.
fn widths(convolution: &ConvolutionConfig, kind: &LayerKind, of: &Layer) -> Widths {
    let (inputs, outputs) = match convolution {
        ConvolutionConfig::Rgcn(_) => (("root", 1), ("root", 0)),
        ConvolutionConfig::Arma(_) => (("init_weight", 1), ("init_weight", 0)),
        ConvolutionConfig::GatedGraph(_) => return [None, of.side("weight", 0)],
        ConvolutionConfig::Cg(_) => (("lin_f.weight", 1), ("lin_f.weight", 1)),
        ConvolutionConfig::Gine(_) => (("nn.0.weight", 0), ("nn.3.weight", 1)),
        ConvolutionConfig::Edge(_) => {
            let both = of.side("nn.0.weight", 0);
            return [both.map(|both| both / 2), of.side("nn.0.weight", 1)];
        }
        ConvolutionConfig::Gen(_) => {
            let outputs = of.side("mlp.4.weight", 1);
            return [of.side("lin_src.weight", 0).or(outputs), outputs];
        }
        ConvolutionConfig::Pna(_) => (("pre_nns.0.0.weight", 1), ("lin.weight", 1)),
        ConvolutionConfig::ResGated(config) => {
            let inputs = of.side("lin_key.weight", 0);
            let inputs = inputs.and_then(|all| all.checked_sub(config.edge_features));
            return [inputs, of.side("lin_key.weight", 1)];
        }
        ConvolutionConfig::Transformer(_) => (("lin_query.weight", 0), ("lin_skip.bias", 0)),
        _ => {
            let mut all = of.tensors.iter();
            let weight = all.find(|(_, tensor)| tensor.shape.len() == 2);
            let sides = weight.map(|(end, _)| [of.side(end, 0), of.side(end, 1)]);
            let [inputs, outputs] = sides.unwrap_or_default();
            let mut names = kind.parameters.iter();
            let bias = names.find(|it| it.here == "bias");
            let bias = bias.and_then(|bias| of.side(bias.pyg.names[0], 0));
            return [inputs, bias.or(outputs)];
        }
    };
    [inputs, outputs].map(|(end, side)| of.side(end, side))
}

/// The configuration of the layers, and the parameters of a last map after them.
fn config(
    (convolution, kind): (&ConvolutionConfig, &LayerKind),
    file: &File,
    features: Option<usize>,
    last_map: Option<LastMap>,
) -> Result<(ModelConfig, Tensors), StateDictError> {
    // The layers of an APPNP are the maps before its propagation steps.
    let of_model = match convolution {
        ConvolutionConfig::Appnp(_) => &file.maps,
        _ => &file.convolutions,
    };
    let mut layers: Vec<[usize; 2]> = Vec::with_capacity(of_model.len());
    for layer in of_model {
        let [inputs, outputs] = widths(convolution, kind, layer);
        let Some(outputs) = outputs else {
            return refuse(format!(
                "the tensors of `{}` do not say how wide its output is",
                layer.place.1
            ));
        };
        let before = layers.last().map(|before| before[1]).or(features);
        let map = file.before(layer).and_then(|map| map.side("weight", 0));
        if let (None, None, true, Some(features)) = (inputs, map, layers.is_empty(), features)
            && features > outputs
        {
            return refuse(format!(
                "{features} features are more than the {outputs} columns of `{}`, and no linear map is before it",
                layer.place.1
            ));
        }
        let inputs = inputs.or(map).or(before).unwrap_or(outputs);
        layers.push([inputs, outputs]);
    }
    let around = match convolution {
        ConvolutionConfig::Cg(_) | ConvolutionConfig::Gcnii(_) => match &file.maps[..] {
            [first, last] => Some([first.matrix("weight")?[1], last.matrix("weight")?[0]]),
            maps => {
                return refuse(format!(
                    "a {} here has one linear map before its layers and one behind, such as `{MAPS}.0` and `{MAPS}.1`, and the file has {}",
                    kind.name,
                    maps.len()
                ));
            }
        },
        _ => None,
    };
    let (Some(&[inputs, hidden]), Some(&[_, outputs])) = (layers.first(), layers.last()) else {
        return refuse("it has no tensors");
    };
    let [features, classes] = around.unwrap_or([inputs, outputs]);
    let mut model = ModelConfig::of(convolution.clone(), features, classes);
    model.layers = layers.len();
    if around.is_some() || layers.len() > 1 || last_map.is_some() {
        model.hidden = hidden;
    } else if let Some(inner) = of_model[0].side("nn.0.weight", 1) {
        model.hidden = inner;
    }
    let outputs: Vec<usize> = layers.iter().map(|of| of[1]).collect();
    let is_hidden = &outputs[..layers.len() - usize::from(last_map.is_none())];
    if around.is_none() && is_hidden.iter().any(|width| *width != hidden) {
        model.hidden_by_layer = outputs[..layers.len() - 1].to_vec();
    }
    let mut own = Tensors::new();
    if let Some(last_map) = last_map {
        model.classes = last_map.outputs();
        let (jumping, of_map) = last_map.read(&outputs)?;
        model.jumping = Some(jumping);
        own = of_map;
    }
    Ok((model, own))
}

/// What a file is imported as.
pub(super) struct Wanted<'a> {
    /// Its layers.
    pub convolution: &'a ConvolutionConfig,
    /// Precision of state tensors.
    pub precision: Precision,
    /// The number of features of a vertex, where no tensor has it as a dimension.
    pub features: Option<usize>,
    /// The map of jumping knowledge after its layers.
    pub last_map: Option<LastMap>,
}

/// Reads the layers of a file with PyG's names as a model and its parameters.
///
/// # Errors
/// The tensor that such a model does not have, or that is missing.
pub(super) fn read(
    tensors: &StateDict,
    wanted: Wanted<'_>,
) -> Result<(ModelConfig, Tensors), StateDictError> {
    let mut convolution = wanted.convolution.clone();
    let kind = kind_of(&convolution)?;
    let mut file = File::of(tensors, (&convolution, &kind))?;
    let has_last_map = wanted.last_map.is_some();
    fit::read(&mut convolution, &mut file.convolutions, has_last_map)?;
    let of = (&convolution, &kind);
    let (model, mut own) = config(of, &file, wanted.features, wanted.last_map)?;
    class::check(&model)?;
    let shapes = shapes(&model, wanted.precision);
    let shapes = shapes.map_err(|error| StateDictError(error.to_string()))?;
    for stage in stages(&model) {
        let prefix = format!("layers.{}.", stage.number);
        let named = shapes.iter();
        let named = named.filter_map(|(name, of)| Some((name.strip_prefix(&prefix)?, *of)));
        for tensor in tensors_of(&model, &kind, &stage, named)? {
            let layer = file.layer_of(&stage, tensor.names.pyg.before);
            let parts = layer.own_of(&tensor, stage.number)?;
            own.extend(parts.map(|(name, of)| (format!("{prefix}{name}"), of)));
        }
    }
    let mut layers = file.convolutions.iter().chain(&file.maps);
    match layers.find_map(|layer| Some(layer.name(layer.tensors.keys().next()?))) {
        Some(name) => refuse(format!(
            "tensor `{name}` has no place in a {} with these options; name the options that the model was made with",
            kind.name
        )),
        None => Ok((model, own)),
    }
}
