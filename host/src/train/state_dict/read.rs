//! Import of another framework's `state_dict` as a model.

mod layers;

use super::jumping::LastMap;
use super::{
    Framework, ImportOptions, LayerPlace, StateDict, StateDictError, StateTensor, layer_place,
    norms, refuse, registry,
};
use crate::nn::{
    Aggregate, ConvolutionConfig, Gat, GatV2, Gcn, Gin, HiddenNorm, ModelConfig, Sage, Statistics,
};
use crate::ops::OptimizerSnapshot;
use crate::train::checkpoint::TaskIdentity;
use crate::train::{Checkpoint, Loss, Progress, Snapshot, Tensors, TrainConfig};
use half::{bf16, f16};
use layers::{DGL, Layer, PYG, Taken, gat, gatv2, gcn, gin, row, sage};
use safetensors::tensor::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// A count of steps, which no result depends on.
const COUNTER: &str = "num_batches_tracked";

/// The tensors of a file, in float.
pub(super) fn tensors(bytes: &[u8]) -> Result<StateDict, StateDictError> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| {
        StateDictError(format!(
            "it is no safetensors file ({error}); save it by safetensors.torch.save_file"
        ))
    })?;
    let mut tensors = StateDict::new();
    for (name, view) in file.iter() {
        if name.ends_with(COUNTER) {
            continue;
        }
        let data = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => data
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f32::from_le_bytes(bytes))
                .collect(),
            Dtype::F64 => data
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f64::from_le_bytes(bytes) as f32)
                .collect(),
            Dtype::F16 => data
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| f16::from_le_bytes(bytes).to_f32())
                .collect(),
            Dtype::BF16 => data
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| bf16::from_le_bytes(bytes).to_f32())
                .collect(),
            other => {
                return refuse(format!(
                    "tensor `{name}` is of {other}, where floats are wanted"
                ));
            }
        };
        let shape = view.shape().to_vec();
        tensors.insert(name.to_owned(), StateTensor { shape, values });
    }
    Ok(tensors)
}

/// The layers in their order.
fn in_order(tensors: &StateDict, from: Framework) -> Result<Vec<Layer<'_>>, StateDictError> {
    let mut ends = match from {
        Framework::Pyg => PYG.to_vec(),
        Framework::Dgl => DGL.to_vec(),
    };
    ends.sort_unstable_by_key(|end| std::cmp::Reverse(end.len()));
    let mut layers: BTreeMap<LayerPlace, BTreeMap<&'static str, &StateTensor>> = BTreeMap::new();
    for (name, tensor) in tensors {
        let found = ends.iter().find_map(|&end| {
            let rest = name.strip_suffix(end)?;
            let prefix = if rest.is_empty() {
                rest
            } else {
                rest.strip_suffix('.')?
            };
            Some((prefix, end))
        });
        let Some((prefix, end)) = found else {
            return refuse(format!(
                "tensor `{name}` has no place in a GCN, GraphSAGE, GIN, GAT or GATv2 here; name its layers, such as --model tag, if they are others"
            ));
        };
        layers
            .entry(layer_place(prefix))
            .or_default()
            .insert(end, tensor);
    }
    let named = layers
        .into_iter()
        .map(|((_, prefix), tensors)| Layer { prefix, tensors });
    let layers: Vec<Layer<'_>> = named.collect();
    match layers.is_empty() {
        true => refuse("it has no tensors"),
        false => Ok(layers),
    }
}

/// The value that all layers have in common.
pub(super) fn one<T: PartialEq + Copy + std::fmt::Debug>(
    what: &str,
    values: &[T],
) -> Result<Option<T>, StateDictError> {
    match values.iter().find(|&value| *value != values[0]) {
        None => Ok(values.first().copied()),
        Some(other) => refuse(format!(
            "its layers have {what} {:?} and {other:?}, and all layers here have the same",
            values[0]
        )),
    }
}

/// Layers that have been read.
struct Layers {
    convolution: ConvolutionConfig,
    taken: Vec<Taken>,
    /// Widths between the two maps of each layer of a GIN.
    inner: Vec<usize>,
}

/// Reads each layer, as one of the kind that the first is.
fn layers_of(
    layers: &[Layer<'_>],
    options: &ImportOptions,
    has_last_map: bool,
) -> Result<Layers, StateDictError> {
    let count = layers.len();
    let (attends, is_gin, is_sage) = match options.from {
        Framework::Pyg => ("att_src", "nn.0.weight", "lin_l.weight"),
        Framework::Dgl => ("attn_l", "apply_func.0.weight", "fc_neigh.weight"),
    };
    let mut taken = Vec::with_capacity(count);
    let mut inner = Vec::new();
    let convolution = if layers[0].has(attends) {
        let (mut heads, mut features) = (Vec::new(), Vec::new());
        for (number, layer) in layers.iter().enumerate() {
            let (layer, of_layer, of_edges) =
                gat(layer, options, !has_last_map && number + 1 == count)?;
            taken.push(layer);
            heads.push(of_layer);
            features.push(of_edges);
        }
        let heads = one("heads", &heads)?.unwrap_or(1);
        Gat {
            heads,
            edge_features: one("features of edges", &features)?.unwrap_or(0),
            ..Gat::default()
        }
        .into()
    } else if options.from == Framework::Pyg && layers[0].has("att") {
        let (mut heads, mut shared) = (Vec::new(), true);
        for (number, layer) in layers.iter().enumerate() {
            let (layer, of_layer, is_shared) =
                gatv2(layer, options, !has_last_map && number + 1 == count)?;
            taken.push(layer);
            heads.push(of_layer);
            shared &= is_shared;
        }
        if shared {
            // Two equal maps are one, as with share_weights=True.
            for layer in &mut taken {
                layer
                    .tensors
                    .retain(|(name, _)| !name.starts_with("destination."));
            }
        }
        GatV2 {
            heads: one("heads", &heads)?.unwrap_or(1),
            share_weights: shared,
            ..GatV2::default()
        }
        .into()
    } else if layers[0].has(is_gin) {
        let (mut epsilons, mut running) = (Vec::new(), Vec::new());
        for layer in layers {
            let (layer, epsilon, hidden, has_running) = gin(layer, options.from)?;
            taken.push(layer);
            epsilons.push(epsilon);
            inner.push(hidden);
            running.push(has_running);
        }
        let learn_epsilon = epsilons.iter().any(|epsilon| *epsilon != epsilons[0]);
        if learn_epsilon {
            for (layer, epsilon) in taken.iter_mut().zip(&epsilons) {
                layer.tensors.push(("epsilon", row(vec![*epsilon])));
            }
        }
        Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: epsilons[0],
            learn_epsilon,
            statistics: match one("running statistics", &running)? {
                Some(true) => Statistics::Running,
                _ => Statistics::Batch,
            },
        }
        .into()
    } else if layers[0].has(is_sage) {
        for layer in layers {
            taken.push(sage(layer, options.from)?);
        }
        Sage.into()
    } else {
        for layer in layers {
            taken.push(gcn(layer, options.from)?);
        }
        Gcn::default().into()
    };
    Ok(Layers {
        convolution,
        taken,
        inner,
    })
}

/// Checks that the inputs of each layer are as wide as the previous layer's outputs.
fn check_widths(layers: &[Layer<'_>], taken: &[Taken]) -> Result<(), StateDictError> {
    for (number, pair) in taken.windows(2).enumerate() {
        if pair[0].outputs != pair[1].inputs {
            return refuse(format!(
                "`{}` gives rows of {} and `{}` takes rows of {}; do they follow one another?",
                layers[number].prefix,
                pair[0].outputs,
                layers[number + 1].prefix,
                pair[1].inputs
            ));
        }
    }
    Ok(())
}

/// The configuration of the layers, and the parameters of a last map after them.
fn config_of(
    layers: &[Layer<'_>],
    of: Layers,
    (hidden_norm, last_map): (HiddenNorm, Option<LastMap>),
) -> Result<(ModelConfig, Vec<Taken>, Tensors), StateDictError> {
    let Layers {
        convolution,
        taken,
        inner,
    } = of;
    let (count, mut own) = (layers.len(), Tensors::new());
    let mut model = ModelConfig::of(convolution, taken[0].inputs, taken[count - 1].outputs);
    (model.layers, model.hidden_norm) = (count, hidden_norm);
    if let Some(last_map) = last_map {
        model.classes = last_map.outputs();
        let widths: Vec<usize> = taken.iter().map(|layer| layer.outputs).collect();
        let (jumping, of_map) = last_map.read(&widths)?;
        model.jumping = Some(jumping);
        own.extend(of_map);
    }
    let widths: Vec<usize> = taken[..count - 1]
        .iter()
        .map(|layer| layer.outputs)
        .collect();
    let only = taken.first().filter(|_| model.jumping.is_some());
    let only = only.map(|layer| &layer.outputs);
    model.hidden = *widths
        .first()
        .or(only)
        .or(inner.first())
        .unwrap_or(&model.hidden);
    if widths.iter().any(|width| *width != model.hidden) {
        model.hidden_by_layer = widths;
    }
    let (last, wanted) = (taken[count - 1].outputs, model.hidden_of(count - 1));
    if model.jumping.is_some() && last != wanted {
        return refuse(format!(
            "`{}` gives rows of {last}, and with jumping knowledge it is as wide here as the layer before it, {wanted}",
            layers[count - 1].prefix
        ));
    }
    // A GIN layer is two maps, and its width between them is that of its output.
    for (number, &width) in inner.iter().enumerate() {
        let wanted = model.hidden_of(number);
        if width != wanted {
            return refuse(format!(
                "`{}` is {width} wide between its two maps, and layers here are as wide as their output, {wanted}",
                layers[number].prefix
            ));
        }
    }
    model
        .check()
        .map_err(|error| StateDictError(error.to_string()))?;
    Ok((model, taken, own))
}

/// The layers that are [named](ImportOptions::layers), where the registry converts them.
fn by_registry(options: &ImportOptions) -> Result<Option<&ConvolutionConfig>, StateDictError> {
    use ConvolutionConfig::{Gat, GatV2, Gcn, Gin, Sage};
    let named = options.layers.as_ref();
    let Some(layers) =
        named.filter(|of| !matches!(of, Gat(_) | GatV2(_) | Gcn(_) | Gin(_) | Sage(_)))
    else {
        return Ok(None);
    };
    if registry::class_of(layers)?.is_none() {
        return refuse(format!(
            "the layers of {} are not read by their names; those of gcn, sage, gin, gat, gatv2, {} are",
            layers.name(),
            registry::NAMES
        ));
    }
    if options.from == Framework::Dgl {
        return refuse(format!(
            "the layers of {} are read under PyG's names",
            layers.name()
        ));
    }
    Ok(Some(layers))
}

/// The model and its parameters.
pub(super) fn checkpoint(
    tensors: &StateDict,
    options: &ImportOptions,
) -> Result<Checkpoint, StateDictError> {
    let mut tensors = tensors.clone();
    let (hidden_norm, of_norms) = match options.from {
        Framework::Pyg => norms::read(&mut tensors)?,
        Framework::Dgl => (HiddenNorm::None, Tensors::new()),
    };
    let last_map = match options.from {
        Framework::Pyg => LastMap::take(&mut tensors)?,
        Framework::Dgl => None,
    };
    let mut own = of_norms;
    let model = match by_registry(options)? {
        Some(convolution) => {
            let wanted = registry::Wanted {
                convolution,
                precision: options.precision,
                features: options.features,
                last_map,
            };
            let (mut model, of_layers) = registry::read(&tensors, wanted)?;
            model.hidden_norm = hidden_norm;
            own.extend(of_layers);
            model
        }
        None => {
            let layers = in_order(&tensors, options.from)?;
            let of = layers_of(&layers, options, last_map.is_some())?;
            check_widths(&layers, &of.taken)?;
            let (model, taken, of_map) = config_of(&layers, of, (hidden_norm, last_map))?;
            own.extend(of_map);
            for (number, layer) in taken.into_iter().enumerate() {
                let named = layer.tensors.into_iter();
                own.extend(named.map(|(name, tensor)| (format!("layers.{number}.{name}"), tensor)));
            }
            model
        }
    };
    Ok(Checkpoint {
        task: TaskIdentity {
            digest: None,
            name: format!("a model of {}'s", options.from.name()),
            vertices: 0,
            edges: 0,
            features: model.features,
            classes: model.classes,
            edge_weights: options.edge_weights,
            class_names: None,
        },
        precision: options.precision,
        train: TrainConfig::new(options.precision),
        feature_divisors: None,
        loss: Loss::CrossEntropy {
            class_weights: None,
        },
        inductive: false,
        links: None,
        sampling: None,
        snapshot: Snapshot {
            progress: Progress::default(),
            optimizer: OptimizerSnapshot {
                loss_scale: 1.0,
                steps: 0,
                skipped: 0,
                since_change: 0,
            },
            tensors: own,
        },
        model,
    })
}
