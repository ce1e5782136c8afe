//! Norms between layers under PyG's names: `norms.N.` of its `BasicGNN`.

use super::{StateDict, StateDictError, StateTensor, refuse, registry};
use crate::nn::HiddenNorm;
use crate::train::{Checkpoint, Tensor, Tensors};

/// The prefix of a norm's number.
const PREFIX: &str = "norms.";

/// PyG's names of `hidden_norm.NAME`, one for each row; running statistics have two rows.
const fn names(norm: HiddenNorm) -> &'static [(&'static str, &'static [&'static str])] {
    match norm {
        HiddenNorm::None | HiddenNorm::Pair => &[],
        HiddenNorm::Batch => &[
            ("weight", &["module.weight"]),
            ("bias", &["module.bias"]),
            ("running", &["module.running_mean", "module.running_var"]),
        ],
        HiddenNorm::Layer => &[("weight", &["weight"]), ("bias", &["bias"])],
        HiddenNorm::Graph => &[
            ("weight", &["weight"]),
            ("bias", &["bias"]),
            ("mean_scale", &["mean_scale"]),
        ],
    }
}

/// Writes the norms of a checkpoint's layers, and returns a description of them.
pub(super) fn write(
    checkpoint: &Checkpoint,
    out: &mut StateDict,
) -> Result<Option<String>, StateDictError> {
    let norm = checkpoint.model.hidden_norm;
    let settings = registry::settings(&checkpoint.model);
    let hidden = settings.iter().filter(|layer| layer.is_hidden).count();
    for number in 0..hidden {
        for (own, theirs) in names(norm) {
            let name = format!("layers.{number}.hidden_norm.{own}");
            let Some(tensor) = checkpoint.snapshot.tensors.get(&name) else {
                return refuse(format!(
                    "the checkpoint has no tensor `{name}`, so it is of another model"
                ));
            };
            let rows = tensor.values.chunks_exact(tensor.columns.max(1));
            for (theirs, row) in theirs.iter().zip(rows) {
                let values = row.to_vec();
                let shape = vec![values.len()];
                let tensor = StateTensor { shape, values };
                out.insert(format!("{PREFIX}{number}.{theirs}"), tensor);
            }
        }
    }
    let layer = match norm {
        HiddenNorm::None => return Ok(None),
        HiddenNorm::Batch => "BatchNorm",
        HiddenNorm::Layer => "LayerNorm(…, mode='node')",
        HiddenNorm::Pair => "PairNorm(), of the scale 1 and without tensors,",
        HiddenNorm::Graph => "GraphNorm",
    };
    Ok(Some(format!(
        "{layer} behind each hidden layer, before its activation"
    )))
}

/// The norm between the layers of a file, and its tensors under the names here. They are removed from `tensors`.
pub(super) fn read(tensors: &mut StateDict) -> Result<(HiddenNorm, Tensors), StateDictError> {
    let named = tensors.keys().filter(|name| name.starts_with(PREFIX));
    let of_norms: Vec<String> = named.cloned().collect();
    let ends_with = |end: &str| of_norms.iter().any(|name| name.ends_with(end));
    let norm = match of_norms.is_empty() {
        true => return Ok((HiddenNorm::None, Tensors::new())),
        false if of_norms.iter().any(|name| name.contains(".module.")) => HiddenNorm::Batch,
        false if ends_with(".mean_scale") => HiddenNorm::Graph,
        false => HiddenNorm::Layer,
    };
    let mut own = Tensors::new();
    for number in 0.. {
        let prefix = format!("{PREFIX}{number}.");
        if !of_norms.iter().any(|name| name.starts_with(&prefix)) {
            break;
        }
        for (name, theirs) in names(norm) {
            let mut values = Vec::new();
            for theirs in *theirs {
                let theirs = format!("{prefix}{theirs}");
                match tensors.remove(&theirs) {
                    Some(tensor) if tensor.shape.len() == 1 => values.push(tensor.values),
                    Some(_) => {
                        return refuse(format!("`{theirs}` should be a number for each column"));
                    }
                    None => return refuse(format!("it has no tensor `{theirs}`")),
                }
            }
            let columns = values[0].len();
            let tensor = Tensor {
                rows: values.len(),
                columns,
                values: values.concat(),
            };
            own.insert(format!("layers.{number}.hidden_norm.{name}"), tensor);
        }
    }
    match tensors.keys().find(|name| name.starts_with(PREFIX)) {
        None => Ok((norm, own)),
        Some(left) => refuse(format!(
            "tensor `{left}` has no place in a norm between layers here; BatchNorm, LayerNorm of the mode 'node' and GraphNorm have one"
        )),
    }
}
