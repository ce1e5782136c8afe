//! A network of its stages: what they have between them, and whether they fit one another.

use super::step::{Step, StoredOutput};
use super::{Network, Stage, refuse};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::codes::StoredCodes;
use crate::nn::hidden_norm::StageNorm;
use crate::nn::messages::Messages;
use crate::nn::{HiddenNorm, Kept, Model, Parameter, Pool};
use crate::tensor::{Element, Matrix, Precision};
use std::collections::HashSet;

impl<B: Backend, E: Element> Network<B, E> {
    /// A model of anybody's layers. Their parameters get `layers.N.` before their names.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no layer, one reads another width than that before it writes, probabilities are
    /// none, or two parameters have one name; [`Error::Driver`] where there is not enough memory.
    pub fn from_layers(
        backend: &B,
        stages: impl IntoIterator<Item = Stage<B, E>>,
    ) -> Result<Self, Error> {
        let (mut initial, mut jumps) = (None, Vec::new());
        let mut stages: Vec<_> = stages.into_iter().collect();
        let (count, mut width) = (stages.len(), None);
        for (number, stage) in stages.iter_mut().enumerate() {
            let (inputs, outputs) = stage.layer.widths();
            if let Some(before) = width.replace(outputs)
                && before != inputs
            {
                return refuse(format!(
                    "layer {number} reads rows of {inputs}, and the layer before it writes rows of {before}"
                ));
            }
            if !(0.0..1.0).contains(&stage.dropout) {
                let dropout = stage.dropout;
                return refuse(format!("dropout probability {dropout} is not in [0, 1)"));
            }
            if stage.residual && inputs != outputs {
                return refuse(format!(
                    "layer {number} cannot add its input of {inputs} columns to its output of {outputs}"
                ));
            }
            if stage.initial && initial.replace(number).is_some() {
                return refuse(format!(
                    "layer {number} is the second that is to be initial"
                ));
            }
            if stage.jumps {
                jumps.push(number);
            }
            let prefix = format!("layers.{number}.");
            for parameter in stage.layer.parameters_mut() {
                parameter.prefix(&prefix);
                parameter.set_decay(parameter.decay() * stage.decay);
            }
        }
        let Some(classes) = width else {
            return refuse("a model of 0 layers computes nothing; give it at least 1".into());
        };
        let nothing = |columns| Matrix::zeros(backend, 0, columns, MemoryKind::Activations);
        let mut steps = Vec::with_capacity(count);
        // Whether what comes is dropped into a matrix of its own: of another function's output than a ReLU's nobody could tell
        // afterwards what was dropped.
        let mut apart = true;
        let takes_codes: Vec<bool> = stages.iter().map(|stage| stage.store.is_some()).collect();
        for (number, mut stage) in stages.into_iter().enumerate() {
            let (inputs, columns) = stage.layer.widths();
            if stage.store.is_some() {
                if E::PRECISION == Precision::Float {
                    return refuse("activations are kept in 8 bits of half or bfloat16, and this model computes in float; take one of those, or keep them as they are".into());
                }
                if !stage.layer.store_codes(backend)? {
                    return refuse(format!(
                        "the backward pass of layer {number} reads activations as they are, and not in 8 bits; keep them so"
                    ));
                }
            }
            // The next layer reads it in its backward pass, and this stage what a ReLU let through.
            let in_codes = stage.store.is_some()
                && takes_codes.get(number + 1) == Some(&true)
                && stage.nonlinearity.is_none()
                && !stage.initial
                && !stage.jumps;
            let stored = !in_codes
                && (!(stage.recompute && stage.layer.repeats())
                    || stage.norm != HiddenNorm::None
                    || stage.residual
                    || stage.initial
                    || stage.jumps
                    || number + 1 == count);
            let bias = if stage.bias {
                let name = format!("layers.{number}.bias");
                let mut bias = Parameter::bias(backend, name, columns)?;
                bias.set_decay(stage.decay);
                Some(bias)
            } else {
                None
            };
            let prefix = format!("layers.{number}.");
            let mut norm = StageNorm::new(backend, stage.norm, columns, &prefix)?;
            for parameter in norm.iter_mut().flat_map(StageNorm::parameters_mut) {
                parameter.set_decay(stage.decay);
            }
            let given = match stage.nonlinearity {
                Some(function) if function.wants_input() => Some(Kept::new(backend, columns)?),
                _ => None,
            };
            let messages = match (stage.messages, stage.layer.message_columns()) {
                (None, _) => None,
                (Some(_), _) if E::PRECISION == Precision::Float => {
                    return refuse("messages of 8 bits are summed up in half or bfloat16, and this model computes in float; take one of those, or leave them as they are".into());
                }
                (Some(_), None) => {
                    return refuse(format!(
                        "layer {number} weighs its messages by more than degrees and weights of edges, and there are no such sums of 8-bit codes; leave them as they are"
                    ));
                }
                (Some(format), Some(columns)) => {
                    Some(Messages::new(backend, columns, format, number)?)
                }
            };
            let drops_apart = std::mem::replace(
                &mut apart,
                initial == Some(number) || stage.nonlinearity.is_some(),
            );
            steps.push(Step {
                bias,
                relu: stage.relu,
                nonlinearity: stage.nonlinearity,
                given,
                norm,
                dropout: stage.dropout,
                residual: stage.residual,
                dropped: if drops_apart && stage.dropout > 0.0 {
                    Some(Kept::new(backend, inputs)?)
                } else {
                    None
                },
                extended: None,
                messages,
                signs: None,
                has_passed_signs: false,
                output: StoredOutput {
                    columns,
                    matrix: if stored {
                        Some(nothing(columns)?)
                    } else {
                        None
                    },
                    stored,
                    codes: match in_codes {
                        true => Some(StoredCodes::new(backend, columns)?),
                        false => None,
                    },
                },
                layer: stage.layer,
            });
        }
        let network = Self {
            program: None,
            steps,
            initial,
            jumps,
            decoder: None,
            gradient: nothing(classes)?,
            pool: Pool::new(),
            rows: Vec::new(),
            in_pieces: false,
            keeps_activations: false,
        };
        let mut names = HashSet::new();
        let mut parameters = network.parameters().into_iter();
        match parameters.find(|parameter| !names.insert(parameter.name().to_owned())) {
            Some(twice) => refuse(format!("two parameters are called {}", twice.name())),
            None => Ok(network),
        }
    }
}
