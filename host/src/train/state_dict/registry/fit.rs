//! What PyG's layers have more than those here, or less: read from the options there or written with them.

use super::super::read::one;
use super::super::{StateDict, StateDictError, StateTensor, refuse};
use super::Layer;
use crate::nn::{ConvolutionConfig, Gine, MixHop, ModelConfig, Statistics};

/// The bias before the normalisation of `GINEConv`, which a layer here does not have.
pub(super) const SHIFT: &str = "nn.0.bias";
const MEAN: &str = "nn.1.running_mean";
const VARIANCE: &str = "nn.1.running_var";

fn vector(values: Vec<f32>) -> StateTensor {
    StateTensor {
        shape: vec![values.len()],
        values,
    }
}

fn zeros(shape: &[usize]) -> StateTensor {
    StateTensor {
        shape: shape.to_vec(),
        values: vec![0.0; shape.iter().product()],
    }
}

/// Takes out of the layers of a file what are options here, and folds what there is no parameter for.
///
/// # Errors
/// What a layer here cannot do.
pub(super) fn read(
    convolution: &mut ConvolutionConfig,
    layers: &mut [Layer],
    has_last_map: bool,
) -> Result<(), StateDictError> {
    let count = layers.len();
    match convolution {
        ConvolutionConfig::Gine(of) => gine(of, layers)?,
        ConvolutionConfig::Cg(of) => {
            let features = layers.iter().map(|layer| {
                let [columns, inputs] = layer.matrix("lin_f.weight")?;
                inputs.checked_sub(2 * columns).map_or_else(
                    || layer.misshapen("lin_f.weight", "as wide as two rows of its columns"),
                    Ok,
                )
            });
            of.edge_features = features_of(features)?;
        }
        ConvolutionConfig::ResGated(of) => {
            let (mut known, mut before) = (Vec::new(), None);
            for layer in layers.iter() {
                let [outputs, inputs] = layer.matrix("lin_key.weight")?;
                let rows = match layer.tensors.contains_key("lin_skip.weight") {
                    true => Some(layer.matrix("lin_skip.weight")?[1]),
                    // Without that map the layer before it has as many columns.
                    false => before,
                };
                before = Some(outputs);
                match rows.map(|rows| inputs.checked_sub(rows)) {
                    Some(None) => {
                        return layer.misshapen("lin_key.weight", "as wide as the layer's input");
                    }
                    Some(features) => known.extend(features.map(Ok)),
                    None => {}
                }
            }
            if !known.is_empty() {
                of.edge_features = features_of(known.into_iter())?;
            }
        }
        ConvolutionConfig::Transformer(of) => {
            for (number, layer) in layers.iter_mut().enumerate() {
                let query = layer.matrix("lin_query.weight")?;
                let skip = layer.matrix("lin_skip.weight")?;
                let is_last = number + 1 == count && !has_last_map;
                if is_last && of.heads > 1 && query[0] == skip[0] {
                    return refuse(format!(
                        "`{}` is of {} heads side by side in the last layer, and a transformer here has their mean there (concat=False)",
                        layer.name("lin_skip.weight"),
                        of.heads
                    ));
                }
                if !of.root_weight {
                    // They are there and PyG's layer does not read them.
                    layer.tensors.remove("lin_skip.weight");
                    let bias = zeros(&skip[..1]);
                    layer.tensors.insert("lin_skip.bias".into(), bias);
                }
            }
        }
        ConvolutionConfig::Arma(of) if of.steps == 1 => {
            for layer in layers {
                layer.tensors.remove("weight");
            }
        }
        ConvolutionConfig::MixHop(of) if !has_last_map => {
            if let Some(bias) = layers.last_mut().and_then(|it| it.tensors.get_mut("bias")) {
                *bias = mean(of, bias);
            }
        }
        ConvolutionConfig::Rgcn(of) => {
            let end = if of.bases > 0 { "comp" } else { "weight" };
            for layer in layers {
                let relations = layer.tensors.get(end).and_then(|it| it.shape.first());
                if let Some(relations @ ..=0 | relations @ 2..) = relations {
                    return refuse(format!(
                        "`{}` is of {relations} relations, and a file does not name the types of their edges; layers of one relation can be carried over",
                        layer.name(end)
                    ));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The features of edges that all layers agree on.
fn features_of(
    layers: impl Iterator<Item = Result<usize, StateDictError>>,
) -> Result<usize, StateDictError> {
    let layers = layers.collect::<Result<Vec<usize>, _>>()?;
    Ok(one("features of edges", &layers)?.unwrap_or(0))
}

/// The mean over the powers of a bias that has a part for each.
fn mean(of: &MixHop, bias: &StateTensor) -> StateTensor {
    let powers = of.powers.len().max(1);
    if bias.shape.len() != 1 || !bias.values.len().is_multiple_of(powers) {
        return bias.clone();
    }
    let columns = bias.values.len() / powers;
    let (first, rest) = bias.values.split_at(columns);
    if rest.chunks_exact(columns.max(1)).all(|part| part == first) {
        return vector(first.to_vec());
    }
    let column = |at: usize| {
        let parts = bias.values.iter().skip(at).step_by(columns);
        parts.sum::<f32>() / powers as f32
    };
    vector((0..columns).map(column).collect())
}

fn gine(of: &mut Gine, layers: &mut [Layer]) -> Result<(), StateDictError> {
    let (mut epsilons, mut running, mut features) = (Vec::new(), Vec::new(), Vec::new());
    for layer in layers.iter_mut() {
        if !layer.tensors.contains_key("lin.weight") {
            return refuse(format!(
                "it has no tensor `{}`: a GINEConv without edge_dim adds edge_attr as it is, and a gine here its linear map; one with edge_dim can be carried over",
                layer.name("lin.weight")
            ));
        }
        features.push(layer.matrix("lin.weight").map(|it| it[1]));
        let epsilon = layer.tensors.get("eps").and_then(|it| it.values.first());
        epsilons.push(epsilon.copied().unwrap_or(0.0));
        let hidden = layer.matrix("nn.0.weight")?[0];
        let stored = [MEAN, VARIANCE].map(|end| layer.tensors.contains_key(end));
        running.push(stored == [true; 2]);
        if !stored[0] && !stored[1] {
            let ones = vector(vec![1.0; hidden]);
            layer.tensors.insert(MEAN.into(), zeros(&[hidden]));
            layer.tensors.insert(VARIANCE.into(), ones);
        }
        // The normalisation takes the mean away, and a bias before it with the mean.
        let shift = layer.tensors.remove(SHIFT);
        let mean = layer.tensors.get_mut(MEAN).filter(|_| stored[0]);
        if let (Some(shift), Some(mean)) = (shift, mean) {
            if shift.shape != mean.shape {
                return layer.misshapen_as(SHIFT, &shift, "that of the running mean");
            }
            let values = mean.values.iter_mut().zip(&shift.values);
            values.for_each(|(mean, shift)| *mean -= shift);
        }
    }
    of.learn_epsilon |= epsilons.iter().any(|epsilon| *epsilon != epsilons[0]);
    if !of.learn_epsilon {
        of.epsilon = epsilons.first().copied().unwrap_or(0.0);
        for layer in layers.iter_mut() {
            layer.tensors.remove("eps");
        }
    }
    of.edge_features = features_of(features.into_iter())?;
    of.statistics = match one("running statistics", &running)? {
        Some(true) => Statistics::Running,
        _ => Statistics::Batch,
    };
    Ok(())
}

/// Adds to the tensors of a layer that is written what PyG's layer has more, and takes out what it has not.
pub(super) fn write(model: &ModelConfig, is_last: bool, tensors: &mut StateDict) {
    match &model.convolution {
        ConvolutionConfig::Gine(of) => {
            if !of.learn_epsilon {
                tensors.insert("eps".into(), vector(vec![of.epsilon]));
            }
            if of.statistics == Statistics::Batch {
                tensors.remove(MEAN);
                tensors.remove(VARIANCE);
            }
            if let Some(hidden) = tensors.get("nn.0.weight").map(|it| it.shape[0]) {
                tensors.insert(SHIFT.into(), zeros(&[hidden]));
            }
        }
        ConvolutionConfig::Arma(of) if of.steps == 1 => {
            if let Some(&outputs) = tensors.get("init_weight").and_then(|it| it.shape.last()) {
                let unread = zeros(&[1, of.stacks, outputs, outputs]);
                tensors.insert("weight".into(), unread);
            }
        }
        ConvolutionConfig::Transformer(of) if !of.root_weight => {
            let inputs = tensors.get("lin_query.weight").map(|it| it.shape[1]);
            let outputs = tensors.get("lin_skip.bias").map(|it| it.shape[0]);
            if let (Some(inputs), Some(outputs)) = (inputs, outputs) {
                let none = zeros(&[outputs, inputs]);
                tensors.insert("lin_skip.weight".into(), none);
            }
        }
        ConvolutionConfig::MixHop(of) if is_last => {
            if let Some(bias) = tensors.get_mut("bias") {
                *bias = vector(bias.values.repeat(of.powers.len()));
            }
        }
        _ => {}
    }
}
