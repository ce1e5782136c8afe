//! Differences between PyG's layers and those here: read into the options, or written with the tensors.

use super::super::read::one;
use super::super::{StateDict, StateDictError, StateTensor, refuse};
use super::{Layer, Stage};
use crate::nn::{Architecture, ConvolutionConfig, Gen, Gine, MixHop, ModelConfig, Pna, Statistics};

/// The normalisation in an MLP of PyG's.
struct Normalised {
    /// The weight of the map before it.
    weight: &'static str,
    /// The bias before it, which a layer here does not have.
    shift: &'static str,
    mean: &'static str,
    variance: &'static str,
}

const OF_GINE: Normalised = Normalised {
    weight: "nn.0.weight",
    shift: "nn.0.bias",
    mean: "nn.1.running_mean",
    variance: "nn.1.running_var",
};

const OF_GEN: Normalised = Normalised {
    weight: "mlp.0.weight",
    shift: "mlp.0.bias",
    mean: "mlp.1.running_mean",
    variance: "mlp.1.running_var",
};

/// The maps of `GENConv` before its MLP. A layer here has no biases for them.
const MAPS_OF_GEN: [[&str; 2]; 3] = [
    ["lin_src.weight", "lin_src.bias"],
    ["lin_dst.weight", "lin_dst.bias"],
    [EDGES_OF_GEN, "lin_edge.bias"],
];
const EDGES_OF_GEN: &str = "lin_edge.weight";
const LAST_BIAS_OF_GEN: &str = "mlp.4.bias";

/// The divisors of the scalers of `PNAConv`: the mean degree, which the scalers here do not read, and the mean
/// logarithm.
const MEAN_DEGREE: &str = "aggr_module.avg_deg_lin";
const MEAN_LOG_DEGREE: &str = "aggr_module.avg_deg_log";

/// The ends of names in PyG's layer that have no parameter here.
pub(super) fn more_than(kind: &str) -> &'static [&'static str] {
    match kind {
        Gine::NAME => &[OF_GINE.shift],
        Gen::NAME => &[
            OF_GEN.shift,
            MAPS_OF_GEN[0][1],
            MAPS_OF_GEN[1][1],
            MAPS_OF_GEN[2][1],
        ],
        Pna::NAME => &[MEAN_DEGREE, MEAN_LOG_DEGREE],
        _ => &[],
    }
}

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

/// Converts tensors of a file's layers that are options here, and folds those without a parameter.
///
/// # Errors
/// What a layer here does not support.
pub(super) fn read(
    convolution: &mut ConvolutionConfig,
    layers: &mut [Layer],
    has_last_map: bool,
) -> Result<(), StateDictError> {
    let count = layers.len();
    match convolution {
        ConvolutionConfig::Gine(of) => gine(of, layers)?,
        ConvolutionConfig::Gen(of) => generalized(of, layers)?,
        ConvolutionConfig::Pna(of) => pna(of, layers)?,
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
                    // Without that map, the previous layer has as many columns.
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
                    // PyG's layer has them and does not read them.
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

/// The number of edge features that all layers have in common.
fn features_of(
    layers: impl Iterator<Item = Result<usize, StateDictError>>,
) -> Result<usize, StateDictError> {
    let layers = layers.collect::<Result<Vec<usize>, _>>()?;
    Ok(one("features of edges", &layers)?.unwrap_or(0))
}

/// The mean over the powers, for a bias that has a part for each.
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
        running.push(OF_GINE.read(layer)?);
    }
    of.learn_epsilon |= epsilons.iter().any(|epsilon| *epsilon != epsilons[0]);
    if !of.learn_epsilon {
        of.epsilon = epsilons.first().copied().unwrap_or(0.0);
        for layer in layers.iter_mut() {
            layer.tensors.remove("eps");
        }
    }
    of.edge_features = features_of(features.into_iter())?;
    of.statistics = statistics(&running)?;
    Ok(())
}

/// The statistics that the normalisations evaluate with, from whether each layer has running ones.
fn statistics(running: &[bool]) -> Result<Statistics, StateDictError> {
    Ok(match one("running statistics", running)? {
        Some(true) => Statistics::Running,
        _ => Statistics::Batch,
    })
}

impl Normalised {
    /// Adds missing statistics, and removes the bias; returns whether there were statistics.
    fn read(&self, layer: &mut Layer) -> Result<bool, StateDictError> {
        let hidden = layer.matrix(self.weight)?[0];
        let stored = [self.mean, self.variance].map(|end| layer.tensors.contains_key(end));
        if !stored[0] && !stored[1] {
            let ones = vector(vec![1.0; hidden]);
            layer.tensors.insert(self.mean.into(), zeros(&[hidden]));
            layer.tensors.insert(self.variance.into(), ones);
        }
        // The normalisation subtracts the mean, and with it a bias that comes before.
        let shift = layer.tensors.remove(self.shift);
        let mean = layer.tensors.get_mut(self.mean).filter(|_| stored[0]);
        if let (Some(shift), Some(mean)) = (shift, mean) {
            if shift.shape != mean.shape {
                return layer.misshapen_as(self.shift, &shift, "that of the running mean");
            }
            let values = mean.values.iter_mut().zip(&shift.values);
            values.for_each(|(mean, shift)| *mean -= shift);
        }
        Ok(stored == [true; 2])
    }

    /// Removes statistics of all vertices, and adds a zero bias.
    fn write(&self, statistics: Statistics, tensors: &mut StateDict) {
        if statistics == Statistics::Batch {
            tensors.remove(self.mean);
            tensors.remove(self.variance);
        }
        if let Some(hidden) = tensors.get(self.weight).map(|it| it.shape[0]) {
            tensors.insert(self.shift.into(), zeros(&[hidden]));
        }
    }
}

/// The identity matrix.
fn identity(side: usize) -> StateTensor {
    let mut matrix = zeros(&[side, side]);
    let diagonal = matrix.values.iter_mut().step_by(side + 1);
    diagonal.for_each(|value| *value = 1.0);
    matrix
}

fn generalized(of: &mut Gen, layers: &mut [Layer]) -> Result<(), StateDictError> {
    let (mut expansions, mut running, mut features) = (Vec::new(), Vec::new(), Vec::new());
    for layer in layers.iter_mut() {
        let [hidden, outputs] = layer.matrix(OF_GEN.weight)?;
        if !hidden.is_multiple_of(outputs) {
            return layer.misshapen(OF_GEN.weight, "a multiple of its columns as rows");
        }
        expansions.push(hidden / outputs);
        if layer.tensors.contains_key(EDGES_OF_GEN) {
            features.push(layer.matrix(EDGES_OF_GEN));
        }
        for [_, end] in MAPS_OF_GEN {
            let bias = layer.tensors.remove(end);
            if bias.is_some_and(|bias| bias.values.iter().any(|value| *value != 0.0)) {
                return refuse(format!(
                    "`{}` is not zero, and a gen here has no bias before its MLP; GENConv(…, bias=False) can be carried over",
                    layer.name(end)
                ));
            }
        }
        running.push(OF_GEN.read(layer)?);
        let rows = layer.matrix("mlp.4.weight")?[0];
        let last = layer.tensors.entry(LAST_BIAS_OF_GEN.into());
        last.or_insert_with(|| zeros(&[rows]));
    }
    of.edge_features = features_of(features.into_iter().map(|it| it.map(|it| it[1])))?;
    for layer in layers.iter_mut().filter(|_| of.edge_features > 0) {
        // Features that are as wide as the layer are added without a map.
        if layer.matrix(OF_GEN.weight)?[1] == of.edge_features {
            let as_it_is = || identity(of.edge_features);
            let map = layer.tensors.entry(EDGES_OF_GEN.into());
            map.or_insert_with(as_it_is);
        }
    }
    of.expansion = one("an expansion of", &expansions)?.unwrap_or(of.expansion);
    of.statistics = statistics(&running)?;
    Ok(())
}

fn pna(of: &mut Pna, layers: &mut [Layer]) -> Result<(), StateDictError> {
    let (mut means, mut features) = (Vec::new(), Vec::new());
    for layer in layers.iter_mut() {
        layer.tensors.remove(MEAN_DEGREE);
        let mean = layer.tensors.remove(MEAN_LOG_DEGREE);
        match mean.and_then(|it| it.values.first().copied()) {
            Some(mean) if mean > 0.0 && mean.is_finite() => means.push(mean),
            Some(mean) => {
                return refuse(format!(
                    "`{}` is {mean}, and the scalers divide by it",
                    layer.name(MEAN_LOG_DEGREE)
                ));
            }
            None => {
                return refuse(format!(
                    "it has no tensor `{}`, which the scalers divide by",
                    layer.name(MEAN_LOG_DEGREE)
                ));
            }
        }
        let encoder = "edge_encoder.weight";
        features.push(match layer.tensors.contains_key(encoder) {
            true => layer.matrix(encoder).map(|it| it[1]),
            false => Ok(0),
        });
    }
    of.log_degree = one("a mean of ln (1 + degree) of", &means)?.or(of.log_degree);
    of.edge_features = features_of(features.into_iter())?;
    Ok(())
}

/// Adds the tensors that only PyG's layer has to those of a layer that is written, and removes those it lacks.
///
/// # Errors
/// What PyG's layer does not support.
pub(super) fn write(
    model: &ModelConfig,
    stage: &Stage,
    tensors: &mut StateDict,
) -> Result<(), StateDictError> {
    match &model.convolution {
        ConvolutionConfig::Gine(of) => {
            if !of.learn_epsilon {
                tensors.insert("eps".into(), vector(vec![of.epsilon]));
            }
            OF_GINE.write(of.statistics, tensors);
        }
        ConvolutionConfig::Gen(of) => {
            OF_GEN.write(of.statistics, tensors);
            if of.edge_features == stage.outputs {
                let map = tensors.remove(EDGES_OF_GEN);
                if map.is_some_and(|map| map != identity(stage.outputs)) {
                    return refuse(format!(
                        "`layers.{}.edge.weight` maps {} features of edges to as many columns, and GENConv adds those as they are; another --hidden can be carried over",
                        stage.number, of.edge_features
                    ));
                }
            }
            for [weight, bias] in MAPS_OF_GEN {
                if let Some(outputs) = tensors.get(weight).map(|it| it.shape[0]) {
                    tensors.insert(bias.into(), zeros(&[outputs]));
                }
            }
        }
        ConvolutionConfig::Pna(of) => {
            let mean = of.log_degree.unwrap_or(1.0);
            tensors.insert(MEAN_DEGREE.into(), zeros(&[1]));
            tensors.insert(MEAN_LOG_DEGREE.into(), vector(vec![mean]));
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
        ConvolutionConfig::MixHop(of) if stage.is_last => {
            if let Some(bias) = tensors.get_mut("bias") {
                *bias = vector(bias.values.repeat(of.powers.len()));
            }
        }
        _ => {}
    }
    Ok(())
}
