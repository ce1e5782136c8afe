//! Jumping knowledge under PyG's names: `lin.` of its `BasicGNN(jk=…)`.

use super::{StateDict, StateDictError, StateTensor, refuse, transposed};
use crate::nn::Jumping;
use crate::train::{Checkpoint, Tensor, Tensors};

const WEIGHT: &str = "lin.weight";
const BIAS: &str = "lin.bias";

/// The last map in a file of a model with jumping knowledge.
pub(super) struct LastMap {
    weight: StateTensor,
    bias: StateTensor,
}

impl LastMap {
    /// The map of a `BasicGNN`, whose layers are `convs`. It is removed from `tensors`.
    pub(super) fn take(tensors: &mut StateDict) -> Result<Option<Self>, StateDictError> {
        let of_basic_gnn = tensors.keys().any(|name| name.starts_with("convs."));
        if !of_basic_gnn || !tensors.contains_key(WEIGHT) {
            return Ok(None);
        }
        let (Some(weight), Some(bias)) = (tensors.remove(WEIGHT), tensors.remove(BIAS)) else {
            return refuse(format!("it has `{WEIGHT}` and no `{BIAS}`"));
        };
        if weight.shape.len() != 2 || bias.shape != [weight.shape[0]] {
            return refuse(format!(
                "`{WEIGHT}` should be outputs × inputs, and `{BIAS}` as long as there are outputs"
            ));
        }
        Ok(Some(Self { weight, bias }))
    }

    /// Outputs.
    pub(super) fn outputs(&self) -> usize {
        self.weight.shape[0]
    }

    /// The kind of jumping knowledge for layers of these widths, and the tensors under the names here.
    pub(super) fn read(self, widths: &[usize]) -> Result<(Jumping, Tensors), StateDictError> {
        let (outputs, inputs) = (self.outputs(), self.weight.shape[1]);
        // Inputs × outputs.
        let values = transposed(&self.weight.values, outputs);
        let layers = widths.len();
        let all = widths.iter().copied().try_fold(0_usize, usize::checked_add);
        let map = |rows, values| Tensor {
            rows,
            columns: outputs,
            values,
        };
        let mut own = Tensors::new();
        let bias = map(1, self.bias.values);
        if all == Some(inputs) {
            let mut rest = values;
            for (number, &width) in widths.iter().enumerate() {
                let after = rest.split_off(width * outputs);
                let rows = std::mem::replace(&mut rest, after);
                let name = format!("layers.{layers}.jump.{number}.weight");
                own.insert(name, map(width, rows));
            }
            own.insert(format!("layers.{layers}.bias"), bias);
            return Ok((Jumping::Cat, own));
        }
        if widths.iter().all(|&width| width == inputs) {
            own.insert(format!("layers.{}.weight", layers + 1), map(inputs, values));
            own.insert(format!("layers.{}.bias", layers + 1), bias);
            return Ok((Jumping::Max, own));
        }
        refuse(format!(
            "`{WEIGHT}` takes rows of {inputs}, and the layers give rows of {widths:?}: it is that of neither jk='cat' nor jk='max'"
        ))
    }
}

/// Writes the last map of a checkpoint's model, and returns PyG's class with its option.
pub(super) fn write(
    checkpoint: &Checkpoint,
    out: &mut StateDict,
) -> Result<Option<String>, StateDictError> {
    let (model, tensors) = (&checkpoint.model, &checkpoint.snapshot.tensors);
    let get = |name: String| match tensors.get(&name) {
        Some(tensor) => Ok(tensor),
        None => refuse(format!(
            "the checkpoint has no tensor `{name}`, so it is of another model"
        )),
    };
    let layers = model.layers;
    let (stage, weight) = match model.jumping {
        None => return Ok(None),
        Some(Jumping::All) => {
            return refuse(
                "its jumping knowledge takes the features as well, which PyG's does not; train with --jumping cat or max",
            );
        }
        Some(Jumping::Max) => {
            let weight = get(format!("layers.{}.weight", layers + 1))?;
            (layers + 1, weight.values.clone())
        }
        Some(Jumping::Cat) => {
            let parts =
                (0..layers).map(|number| get(format!("layers.{layers}.jump.{number}.weight")));
            let parts: Result<Vec<&Tensor>, _> = parts.collect();
            let values = parts?.into_iter().flat_map(|part| part.values.clone());
            (layers, values.collect())
        }
    };
    let bias = get(format!("layers.{stage}.bias"))?.values.clone();
    let inputs = weight.len() / model.classes.max(1);
    let weight = StateTensor {
        shape: vec![model.classes, inputs],
        values: transposed(&weight, inputs),
    };
    out.insert(WEIGHT.to_owned(), weight);
    let shape = vec![bias.len()];
    out.insert(
        BIAS.to_owned(),
        StateTensor {
            shape,
            values: bias,
        },
    );
    Ok(model
        .jumping
        .map(|jumping| format!("BasicGNN(…, jk='{jumping}')")))
}
