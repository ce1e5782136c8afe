//! How far off each layer of a model is where it sends messages of 8 bits: what it gives, and the gradients of its
//! weights.

use super::{Storage, Table};
use crate::bench::train::objective;
use crate::failure::Failure;
use crate::model::ModelName;
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::device::{Device, Task};
use halfgnn::graph::Graph;
use halfgnn::nn::{Model, ModelConfig, Network};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::Element;
use halfgnn::train::{TrainConfig, Trainer};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};

/// Classes that a model distinguishes.
const CLASSES: usize = 8;
/// Most steps until one has gradients that are finite: a loss scale of half begins too large.
const MOST_STEPS: u32 = 32;

/// One step of training of some models on a graph, nothing dropped, by what is sent.
pub(super) struct Layers<'a, 'b> {
    pub models: &'a [ModelName],
    pub storage: &'a [Storage],
    pub features: &'a [u32],
    pub label: &'a str,
    pub graph: &'a Graph,
    pub table: &'a mut Table<'b>,
    pub stop: &'a AtomicBool,
}

/// What a step gave, in order of layers.
struct Step {
    outputs: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
}

/// A layer of a model in half, compared with the same in float.
#[derive(Serialize)]
struct Row<'a> {
    event: &'static str,
    graph: &'a str,
    device: &'a str,
    model: &'static str,
    features: u32,
    messages: &'static str,
    layer: usize,
    /// Norm of what its output is off over that of the output.
    output_error: f64,
    /// The same of the gradients of its weights, each over its own norm, so that a loss scale counts for nothing.
    gradient_error: f64,
}

impl Task for Layers<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        for &model in self.models {
            for &features in self.features {
                let config = ModelConfig {
                    hidden: features as usize,
                    dropout: 0.0,
                    ..model.config(features as usize, CLASSES)
                };
                let exact = step::<B, f32>(backend, self.graph, &config)?;
                for storage in self.storage {
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    let messages = storage.format();
                    let config = ModelConfig {
                        messages,
                        ..config.clone()
                    };
                    let found = step::<B, f16>(backend, self.graph, &config)?;
                    for layer in 0..exact.outputs.len() {
                        let row = Row {
                            event: "layer",
                            graph: self.label,
                            device: &backend.name(),
                            model: model.as_str(),
                            features,
                            messages: messages.map_or("half", CodeFormat::name),
                            layer: layer + 1,
                            output_error: off(&found.outputs[layer], &exact.outputs[layer]),
                            gradient_error: off(
                                &normed(&found.gradients[layer]),
                                &normed(&exact.gradients[layer]),
                            ),
                        };
                        let line = format!(
                            "{:<16} {:<6} F={:<4} {:<5} layer {}  output {:.1e} off  gradient of weights {:.1e} off",
                            row.graph,
                            row.model,
                            row.features,
                            row.messages,
                            row.layer,
                            row.output_error,
                            row.gradient_error
                        );
                        self.table.tell(&line, &row)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A step that is not skipped, from the same weights in every precision.
fn step<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    config: &ModelConfig,
) -> Result<Step, Failure> {
    let train = TrainConfig {
        record: false,
        ..TrainConfig::new(E::PRECISION)
    };
    let graph = config.prepare(graph)?;
    let mut model = Network::new(backend, config, train.seed)?;
    model.keep_activations();
    let objective = objective::<B, E>(backend, &graph, config)?;
    let mut trainer = Trainer::new(backend, &objective, model, train)?;
    for _ in 0..MOST_STEPS {
        trainer.step()?;
        let model = trainer.model();
        let outputs = (0..model.depth()).map(|layer| model.activations(layer)?.to_f32(backend));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let mut gradients = vec![Vec::new(); outputs.len()];
        for parameter in model.parameters() {
            let of_layer = parameter.name().strip_prefix("layers.");
            let layer = of_layer.and_then(|name| name.split('.').next()?.parse::<usize>().ok());
            if let Some(all) = layer.and_then(|layer| gradients.get_mut(layer)) {
                all.extend(parameter.gradient().to_f32(backend)?);
            }
        }
        if gradients.iter().flatten().all(|value| value.is_finite()) {
            return Ok(Step { outputs, gradients });
        }
    }
    Err(Failure::Run(format!(
        "{MOST_STEPS} steps in {} have gradients that are not finite",
        E::PRECISION
    )))
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Over their norm.
fn normed(values: &[f32]) -> Vec<f32> {
    let norm = norm(values.iter().map(|&value| f64::from(value)));
    values
        .iter()
        .map(|&value| (f64::from(value) / norm) as f32)
        .collect()
}

/// The norm of what `found` is off over that of `exact`.
fn off(found: &[f32], exact: &[f32]) -> f64 {
    assert_eq!(found.len(), exact.len(), "layers of one model");
    let pairs = found.iter().zip(exact);
    let apart = norm(pairs.map(|(&found, &exact)| f64::from(found) - f64::from(exact)));
    apart / norm(exact.iter().map(|&value| f64::from(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn::backend::cpu::Cpu;
    use halfgnn::graph::generate::Rmat;

    #[test]
    fn codes_are_further_off_than_half() {
        let graph = Rmat::graph500(9).generate(0).expect("room");
        let cpu = Cpu::new();
        let models: [fn(usize, usize) -> ModelConfig; 4] = [
            ModelConfig::gcn,
            ModelConfig::gin,
            ModelConfig::gat,
            ModelConfig::sage,
        ];
        for model in models {
            let config = ModelConfig {
                dropout: 0.0,
                ..model(16, CLASSES)
            };
            let exact = step::<Cpu, f32>(&cpu, &graph, &config).expect("a step");
            let of = |messages| {
                let config = ModelConfig {
                    messages,
                    ..config.clone()
                };
                let found = step::<Cpu, f16>(&cpu, &graph, &config).expect("a step");
                let both = found.outputs.iter().zip(&exact.outputs);
                both.map(|(found, exact)| off(found, exact))
                    .collect::<Vec<_>>()
            };
            let [half, int8, e4m3] = [None, Some(CodeFormat::Int8), Some(CodeFormat::E4m3)].map(of);
            for layer in 0..half.len() {
                let name = config.convolution.name();
                let told = format!("{name} {layer}: {half:?} {int8:?} {e4m3:?}");
                for codes in [&int8, &e4m3] {
                    assert!(4.0 * half[layer] < codes[layer], "{told}");
                    assert!(codes[layer] < 0.2, "{told}");
                }
            }
        }
    }
}
