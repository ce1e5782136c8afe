//! Layers whose parameters are carried over one by one, under the names that the [registry of layers](crate::program::layers::ALL) lists.

use super::{
    Framework, LayerPlace, StateDict, StateDictError, StateTensor, layer_place, refuse, transposed,
};
use crate::backend::cpu::Cpu;
use crate::nn::{ConvolutionConfig, Model, ModelConfig, Network, Norm};
use crate::program::layers::{ALL, LayerKind, ParameterNames};
use crate::train::{Checkpoint, Tensor, Tensors};
use std::collections::BTreeMap;

/// What stands for a relation or a number in a name.
const ANY: char = '*';

/// What a hidden norm's parameters begin with.
const HIDDEN_NORM: &str = "hidden_norm.";

/// The class of PyG's that computes what these layers do, with its options; none of layers that are not carried over one by one.
///
/// # Errors
/// What PyG's class cannot do.
pub(super) fn class_of(convolution: &ConvolutionConfig) -> Result<Option<String>, StateDictError> {
    let symmetric = |class: &str, norm: Norm| match norm {
        Norm::Both => Ok(()),
        _ => refuse(format!(
            "its degree norm is not {class}'s, which is `both` on graphs whose edges go both ways; train with --norm both"
        )),
    };
    let class = match convolution {
        ConvolutionConfig::GraphConv(of) => {
            let aggregate = match of.aggregate.norm() {
                Norm::Right => "mean",
                _ => "add",
            };
            format!("GraphConv(…, aggr='{aggregate}')")
        }
        ConvolutionConfig::Sg(of) => {
            symmetric("SGConv", of.norm)?;
            format!("SGConv(…, K={})", of.hops)
        }
        ConvolutionConfig::Ssg(of) => {
            symmetric("SSGConv", of.norm)?;
            format!("SSGConv(…, alpha={}, K={})", of.alpha, of.hops)
        }
        ConvolutionConfig::Tag(of) => {
            symmetric("TAGConv", of.norm)?;
            format!("TAGConv(…, K={})", of.hops)
        }
        ConvolutionConfig::Cheb(of) => {
            let normalization = match of.norm {
                Norm::Both => "sym",
                Norm::Right => "rw",
                _ => {
                    return refuse(
                        "its degree norm is not ChebConv's, which is `both` or `right`; train with --norm both",
                    );
                }
            };
            format!(
                "ChebConv(…, K={}, normalization='{normalization}'), called with lambda_max={}",
                of.terms, of.lambda_max
            )
        }
        ConvolutionConfig::ClusterGcn(of) => {
            format!("ClusterGCNConv(…, diag_lambda={})", of.diag_lambda)
        }
        ConvolutionConfig::Le(_) => "LEConv(…)".into(),
        ConvolutionConfig::ResGated(of) if of.edge_features == 0 => {
            let aggregate = match of.aggregate.norm() {
                Norm::Right => "mean",
                _ => "add",
            };
            let root = if of.root_weight { "True" } else { "False" };
            format!("ResGatedGraphConv(…, root_weight={root}, aggr='{aggregate}')")
        }
        ConvolutionConfig::Transformer(of) if of.heads == 1 && !of.beta => {
            let root = if of.root_weight { "True" } else { "False" };
            format!("TransformerConv(…, root_weight={root})")
        }
        ConvolutionConfig::ResGated(_) => {
            return refuse(
                "its layers read features of edges, whose weights lie apart here and in one matrix in ResGatedGraphConv; a model without them can be carried over",
            );
        }
        ConvolutionConfig::Transformer(_) => {
            return refuse(
                "its layers have several heads or a learned share of both rows; of one head without --beta they can be carried over",
            );
        }
        _ => return Ok(None),
    };
    Ok(Some(class))
}

/// The names of layers that are carried over one by one, as a sentence has them.
pub(super) const NAMES: &str =
    "graphconv, sg, ssg, tag, cheb, clustergcn, leconv, resgated and transformer";

fn kind_of(convolution: &ConvolutionConfig) -> Result<LayerKind, StateDictError> {
    let kind = ALL.into_iter().find(|kind| kind.name == convolution.name());
    kind.ok_or_else(|| StateDictError(format!("no layers are called {}", convolution.name())))
}

/// What stands in the place of [`ANY`] in a name that has this form.
fn part_of<'a>(form: &str, name: &'a str) -> Option<&'a str> {
    match form.split_once(ANY) {
        None => (form == name).then_some(""),
        Some((before, behind)) => name.strip_prefix(before)?.strip_suffix(behind),
    }
}

/// The parameter of a name, and PyG's name of it.
fn theirs(kind: &LayerKind, here: &str) -> Option<(&'static ParameterNames, String)> {
    kind.parameters.iter().find_map(|of| {
        let part = part_of(of.here, here)?;
        let [name] = of.pyg.names else { return None };
        Some((of, name.replace(ANY, part)))
    })
}

/// Writes layer `number` under PyG's names. The weights of a first layer divide the features as the model wants them.
pub(super) fn write(
    checkpoint: &Checkpoint,
    number: usize,
    out: &mut StateDict,
) -> Result<(), StateDictError> {
    let kind = kind_of(&checkpoint.model.convolution)?;
    let prefix = format!("layers.{number}.");
    let divisors = checkpoint.feature_divisors.as_ref().filter(|_| number == 0);
    for (name, tensor) in &checkpoint.snapshot.tensors {
        let Some(here) = name.strip_prefix(&prefix) else {
            continue;
        };
        if here.starts_with(HIDDEN_NORM) {
            continue;
        }
        let Some((names, theirs)) = theirs(&kind, here) else {
            return refuse(format!("`{name}` has no name in PyG's {}", kind.name));
        };
        let mut tensor = tensor.clone();
        if let (Some(divisors), true) = (divisors, names.pyg.transposed) {
            let columns = tensor.columns.max(1);
            for (row, divisor) in tensor.values.chunks_exact_mut(columns).zip(divisors) {
                row.iter_mut().for_each(|value| *value /= divisor);
            }
        }
        let (rows, columns) = (tensor.rows, tensor.columns);
        let (shape, values) = match names.pyg.transposed {
            true => (vec![columns, rows], transposed(&tensor.values, rows)),
            false if rows == 1 => (vec![columns], tensor.values),
            false => (vec![rows, columns], tensor.values),
        };
        let name = format!("{}.{number}.{theirs}", Framework::Pyg.prefix());
        out.insert(name, StateTensor { shape, values });
    }
    Ok(())
}

/// The layers of a file that have PyG's names, as a model and its parameters.
///
/// # Errors
/// The tensor that has no place in such a model, or that it lacks.
pub(super) fn read(
    tensors: &StateDict,
    convolution: &ConvolutionConfig,
) -> Result<(ModelConfig, Tensors), StateDictError> {
    let kind = kind_of(convolution)?;
    let mut layers: BTreeMap<LayerPlace, Vec<(String, Tensor)>> = BTreeMap::new();
    for (name, tensor) in tensors {
        let Some((prefix, here, transposed)) = place_of(&kind, name) else {
            return refuse(format!(
                "tensor `{name}` has no place in PyG's {}",
                kind.name
            ));
        };
        let tensor = matrix(name, tensor, transposed)?;
        let place = layer_place(prefix);
        layers.entry(place).or_default().push((here, tensor));
    }
    let widths: Vec<[usize; 2]> = layers
        .values()
        .map(|layer| {
            let of_weight = layer.iter().find(|(_, tensor)| tensor.rows > 1);
            let of_weight = of_weight.map_or([0; 2], |(_, of)| [of.rows, of.columns]);
            let bias = layer.iter().find(|(name, _)| name == "bias");
            [
                of_weight[0],
                bias.map_or(of_weight[1], |(_, of)| of.columns),
            ]
        })
        .collect();
    let (Some(&[features, hidden]), Some(&[_, classes])) = (widths.first(), widths.last()) else {
        return refuse("it has no tensors");
    };
    let mut model = ModelConfig::of(convolution.clone(), features, classes);
    model.layers = layers.len();
    if layers.len() > 1 {
        model.hidden = hidden;
        let outputs = widths[..widths.len() - 1].iter().map(|of| of[1]);
        let outputs: Vec<usize> = outputs.collect();
        if outputs.iter().any(|width| *width != hidden) {
            model.hidden_by_layer = outputs;
        }
    }
    let mut own = Tensors::new();
    for (number, (_, layer)) in layers.into_iter().enumerate() {
        let named = layer.into_iter();
        own.extend(named.map(|(name, of)| (format!("layers.{number}.{name}"), of)));
    }
    expect_all(&model, &own)?;
    Ok((model, own))
}

/// What a name has before its layer's names, the name here, and whether the tensor is outputs × inputs. Of several names that fit it is the
/// longest: a `lin_key.bias` is no `bias`.
fn place_of<'a>(kind: &LayerKind, name: &'a str) -> Option<(&'a str, String, bool)> {
    let fits = kind.parameters.iter().filter_map(|of| {
        let [form] = of.pyg.names else { return None };
        let parts = form.matches('.').count() + 1;
        let ends: Vec<&str> = name.rsplitn(parts + 1, '.').collect();
        let prefix = ends.get(parts).copied().unwrap_or_default();
        let end = name.strip_prefix(prefix)?.trim_start_matches('.');
        let part = match form.contains(ANY) {
            true => part_of(form, end)?,
            // The first of several operands, which the others' weights lie next to there.
            false => part_of(form, end).map(|_| "0")?,
        };
        let here = of.here.replace(ANY, part);
        Some((form.len(), (prefix, here, of.pyg.transposed)))
    });
    // Of two that share a name the last is that of layers without further options.
    fits.max_by_key(|(len, _)| *len).map(|(_, place)| place)
}

fn matrix(name: &str, tensor: &StateTensor, is_transposed: bool) -> Result<Tensor, StateDictError> {
    match (&tensor.shape[..], is_transposed) {
        ([outputs, inputs], true) if *outputs > 0 && *inputs > 0 => Ok(Tensor {
            rows: *inputs,
            columns: *outputs,
            values: transposed(&tensor.values, *outputs),
        }),
        ([columns], false) => Ok(Tensor {
            rows: 1,
            columns: *columns,
            values: tensor.values.clone(),
        }),
        (shape, _) => refuse(format!(
            "tensor `{name}` is of shape {shape:?}, where a {} is wanted",
            if is_transposed { "matrix" } else { "vector" }
        )),
    }
}

/// That a model of this configuration has these parameters, and no others.
fn expect_all(model: &ModelConfig, own: &Tensors) -> Result<(), StateDictError> {
    let made = Network::<_, f32>::new(&Cpu::new(), model, 0);
    let network = made.map_err(|error| StateDictError(error.to_string()))?;
    let parameters = network.parameters();
    for parameter in &parameters {
        let (name, shape) = (parameter.name(), parameter.master().shape());
        match own.get(name) {
            None => return refuse(format!("it has no tensor for `{name}`")),
            Some(of) if (of.rows, of.columns) != shape => {
                return refuse(format!(
                    "the tensor for `{name}` is {} x {}, and {} x {} is wanted",
                    of.rows, of.columns, shape.0, shape.1
                ));
            }
            Some(_) => {}
        }
    }
    let is_known = |name: &&String| parameters.iter().any(|it| it.name() == name.as_str());
    match own.keys().find(|name| !is_known(name)) {
        Some(name) => refuse(format!(
            "a {} with these options has no `{name}`; name the options that the model was made with",
            model.convolution.name()
        )),
        None => Ok(()),
    }
}
