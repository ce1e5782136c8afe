//! A model: graph convolutions one after the other, with bias, ReLU and dropout between them.
//!
//! A layer is `H' = dropout(relu(convolution(H) + b))`, with `+ H` inside the ReLU where the model is residual and the
//! widths agree; the last one has neither ReLU nor dropout, and the features pass a dropout of their own first. The
//! backward pass mirrors the forward pass. Of what follows a convolution only the output is stored: an element of it is
//! positive exactly where ReLU and dropout let it through. With [`ModelConfig::recompute`] not even that is, where the
//! convolution can make it again: it is lent to the next layer, forward, and once more, backward.

use super::config::ConvolutionConfig;
use super::convolution::{After, Blueprint, Context, Convolution, Place, dropout};
use super::gat::GatBlueprint;
use super::gcn::GcnBlueprint;
use super::gin::GinBlueprint;
use super::sage::SageBlueprint;
use super::{Inputs, MemoryPlan, Mode, Model, ModelConfig, ModelMemory, Parameter, Pool};
use crate::backend::{Activation, Backend, Combine, MemoryKind};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Element, Matrix};
use std::ops::Deref;

/// A graph neural network.
///
/// A function of its configuration and the seed alone: every backend starts from the same weights.
#[derive(Debug)]
pub struct Network<B: Backend, E: Element> {
    config: ModelConfig,
    layers: Vec<Layer<B, E>>,
    /// The features after their dropout; absent where nothing is dropped.
    dropped: Option<Matrix<B, E>>,
    gradient: Matrix<B, E>,
    pool: Pool<B, E>,
}

#[derive(Debug)]
struct Layer<B: Backend, E: Element> {
    convolution: Box<dyn Convolution<B, E>>,
    bias: Parameter<B, E>,
    output: Output<B, E>,
}

/// What a convolution may do after its last operator, where no dropout follows.
fn after<'a, B: Backend, E: Element>(
    bias: &'a Parameter<B, E>,
    activation: &Activation<'_, B>,
) -> After<'a, B> {
    After {
        bias: bias.master(),
        relu: activation.relu,
    }
}

/// The output of a layer.
#[derive(Debug)]
struct Output<B: Backend, E: Element> {
    columns: usize,
    /// Absent only where it is not stored, and then while nobody wants to see it.
    matrix: Option<Matrix<B, E>>,
    stored: bool,
}

impl<B: Backend, E: Element> Output<B, E> {
    /// What was computed.
    fn get(&self) -> &Matrix<B, E> {
        self.matrix
            .as_ref()
            .expect("an output that is not stored is made again before it is read")
    }

    /// Room for what is to be computed.
    fn room(&mut self, backend: &B, pool: &mut Pool<B, E>) -> Result<&mut Matrix<B, E>, Error> {
        let matrix = match self.matrix.take() {
            Some(matrix) => matrix,
            None => pool.take(backend, self.columns)?,
        };
        Ok(self.matrix.insert(matrix))
    }

    /// Nobody wants to see it until it is made again.
    fn release(&mut self, pool: &mut Pool<B, E>) {
        if !self.stored {
            self.matrix
                .take()
                .into_iter()
                .for_each(|matrix| pool.give(matrix));
        }
    }
}

/// A convolution of each kind, before it is made.
enum AnyBlueprint {
    Gat(GatBlueprint),
    Gcn(GcnBlueprint),
    Gin(GinBlueprint),
    Sage(SageBlueprint),
}

impl AnyBlueprint {
    fn of(config: &ModelConfig, vertices: usize, layer: usize) -> Self {
        let (inputs, outputs) = config.layer(layer);
        let policy = config.policy;
        match config.convolution {
            ConvolutionConfig::Gcn { .. } => AnyBlueprint::Gcn(GcnBlueprint {
                inputs,
                outputs,
                policy,
            }),
            ConvolutionConfig::Gat {
                heads,
                slope,
                attention_dropout,
            } => AnyBlueprint::Gat(GatBlueprint {
                inputs,
                outputs,
                vertices,
                heads,
                averaged: layer + 1 == config.layers,
                slope,
                dropout: attention_dropout,
                policy,
            }),
            ConvolutionConfig::Gin {
                aggregate,
                lambda,
                epsilon,
                learn_epsilon,
                statistics,
            } => AnyBlueprint::Gin(GinBlueprint {
                inputs,
                hidden: config.hidden,
                outputs,
                policy,
                aggregate,
                lambda,
                epsilon,
                learn_epsilon,
                statistics,
            }),
            ConvolutionConfig::Sage => AnyBlueprint::Sage(SageBlueprint {
                inputs,
                outputs,
                policy,
            }),
        }
    }

    /// Whether the output of the layer is kept for the backward pass; that of the last one is the model's.
    fn stores_output(&self, config: &ModelConfig, layer: usize) -> bool {
        let made_again =
            config.recompute && self.repeats() && !config.is_residual(config.layer(layer));
        !made_again || layer + 1 == config.layers
    }

    fn make<B: Backend, E: Element>(
        &self,
        backend: &B,
        place: Place,
    ) -> Result<Box<dyn Convolution<B, E>>, Error> {
        Ok(match self {
            AnyBlueprint::Gat(blueprint) => Box::new(blueprint.make(backend, place)?),
            AnyBlueprint::Gcn(blueprint) => Box::new(blueprint.make(backend, place)?),
            AnyBlueprint::Gin(blueprint) => Box::new(blueprint.make(backend, place)?),
            AnyBlueprint::Sage(blueprint) => Box::new(blueprint.make(backend, place)?),
        })
    }
}

impl Deref for AnyBlueprint {
    type Target = dyn Blueprint;

    fn deref(&self) -> &Self::Target {
        match self {
            AnyBlueprint::Gat(blueprint) => blueprint,
            AnyBlueprint::Gcn(blueprint) => blueprint,
            AnyBlueprint::Gin(blueprint) => blueprint,
            AnyBlueprint::Sage(blueprint) => blueprint,
        }
    }
}

impl<B: Backend, E: Element> Network<B, E> {
    /// A model for a graph of `vertices` vertices, with the weights of `seed`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model, [`Error::TooLarge`] and [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(
        backend: &B,
        vertices: usize,
        config: ModelConfig,
        seed: u64,
    ) -> Result<Self, Error> {
        config.check()?;
        let activations =
            |columns| Matrix::zeros(backend, vertices, columns, MemoryKind::Activations);
        let layers = (0..config.layers)
            .map(|layer| {
                let place = Place {
                    layer,
                    vertices,
                    seed,
                };
                let (_, outputs) = config.layer(layer);
                let blueprint = AnyBlueprint::of(&config, vertices, layer);
                let stored = blueprint.stores_output(&config, layer);
                Ok(Layer {
                    convolution: blueprint.make(backend, place)?,
                    bias: Parameter::bias(backend, place.name("bias"), outputs)?,
                    output: Output {
                        columns: outputs,
                        matrix: if stored {
                            Some(activations(outputs)?)
                        } else {
                            None
                        },
                        stored,
                    },
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self {
            layers,
            dropped: if config.dropout > 0.0 {
                Some(activations(config.features)?)
            } else {
                None
            },
            gradient: activations(config.classes)?,
            pool: Pool::new(vertices),
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What a model takes in training.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such model.
    pub fn memory(vertices: usize, config: &ModelConfig) -> Result<ModelMemory, Error> {
        config.check()?;
        let mut plan = MemoryPlan::new::<E>(vertices);
        plan.keep(config.classes);
        if config.dropout > 0.0 {
            plan.keep(config.features);
        }
        let layers: Vec<_> = (0..config.layers)
            .map(|layer| {
                let blueprint = AnyBlueprint::of(config, vertices, layer);
                let stored = blueprint.stores_output(config, layer);
                (config.layer(layer), blueprint, stored)
            })
            .collect();
        for ((_, outputs), blueprint, stored) in &layers {
            blueprint.keeps(&mut plan);
            plan.bias(*outputs);
            if *stored {
                plan.keep(*outputs);
            }
        }
        // The output of a layer that is lent, if it is.
        let lent = |layer: usize| layers.get(layer).filter(|(_, _, stored)| !stored);
        for (index, (widths, blueprint, _)) in layers.iter().enumerate() {
            lent(index).iter().for_each(|_| plan.take(widths.1));
            blueprint.forward(&mut plan);
            lent(index.wrapping_sub(1))
                .iter()
                .for_each(|((_, before), ..)| plan.give(*before));
        }
        for (index, (widths, blueprint, _)) in layers.iter().enumerate().rev() {
            lent(index).iter().for_each(|_| plan.give(widths.1));
            lent(index.wrapping_sub(1))
                .iter()
                .for_each(|((_, before), ..)| plan.take(*before));
            let residual = index > 0 && config.is_residual(*widths);
            if residual {
                plan.take(widths.1);
            }
            blueprint.backward(&mut plan, index > 0);
            if residual {
                plan.give(widths.1);
            }
            if index + 1 < config.layers {
                plan.give(widths.1);
            }
        }
        Ok(plan.memory())
    }

    /// Computes the output of layer `layer` once more, where it is not stored.
    fn make_again(
        &mut self,
        layer: usize,
        inputs: Inputs<'_, B, E>,
        mode: Mode<'_, B>,
    ) -> Result<(), Error> {
        let activation = self.activation(layer, mode);
        let layer = &mut self.layers[layer];
        if layer.output.stored {
            return Ok(());
        }
        let y = layer.output.room(inputs.backend, &mut self.pool)?;
        let mut at = Context::new(inputs, mode, &mut self.pool);
        let offered = activation.dropout.is_none();
        at.after = offered.then(|| after(&layer.bias, &activation));
        layer.convolution.repeat(&mut at, y)?;
        if offered && at.after.is_none() {
            return Ok(());
        }
        let activation = Activation {
            bias: Some(layer.bias.master()),
            ..activation
        };
        ops::activate(inputs.backend, &activation, None, y)
    }

    /// What follows the convolution of layer `layer`, but for the bias.
    fn activation<'a>(&self, layer: usize, mode: Mode<'a, B>) -> Activation<'a, B> {
        let last = layer + 1 == self.config.layers;
        Activation {
            bias: None,
            relu: !last,
            dropout: if last {
                None
            } else {
                dropout(self.config.dropout, layer as u32 + 1, mode)
            },
        }
    }
}

impl<B: Backend, E: Element> Model<B, E> for Network<B, E> {
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        let input_dropout = dropout(self.config.dropout, 0, mode);
        if let (Some(dropped), dropout @ Some(_)) = (&mut self.dropped, input_dropout) {
            let op = Activation {
                bias: None,
                relu: false,
                dropout,
            };
            ops::activate(inputs.backend, &op, Some(inputs.features), dropped)?;
        }
        for index in 0..self.layers.len() {
            let activation = self.activation(index, mode);
            let (before, rest) = self.layers.split_at_mut(index);
            let x = match before.last() {
                Some(layer) => layer.output.get(),
                None if input_dropout.is_some() => self.dropped.as_ref().unwrap_or(inputs.features),
                None => inputs.features,
            };
            let layer = &mut rest[0];
            let residual = self.config.is_residual((x.columns(), layer.output.columns));
            let y = layer.output.room(inputs.backend, &mut self.pool)?;
            let mut at = Context::new(inputs, mode, &mut self.pool);
            let offered = !residual && activation.dropout.is_none();
            at.after = offered.then(|| after(&layer.bias, &activation));
            layer.convolution.forward(&mut at, x, y)?;
            if !(offered && at.after.is_none()) {
                let mut kept = layer.convolution.output();
                if residual {
                    if let Some(kept) = kept.take() {
                        ops::combine(inputs.backend, &Combine::copy(), kept, y)?;
                    }
                    ops::combine(inputs.backend, &Combine::sum(), x, y)?;
                }
                let activation = Activation {
                    bias: Some(layer.bias.master()),
                    ..activation
                };
                ops::activate(inputs.backend, &activation, kept, y)?;
            }
            if let Some(layer) = before.last_mut() {
                layer.output.release(&mut self.pool);
            }
        }
        Ok(())
    }

    fn logits(&self) -> &Matrix<B, E> {
        self.layers[self.layers.len() - 1].output.get()
    }

    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>) {
        (
            self.layers[self.layers.len() - 1].output.get(),
            &mut self.gradient,
        )
    }

    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        if let Mode::Evaluate = mode {
            return Err(Error::Unsupported {
                operator: "Model::backward",
                reason: "a forward pass for evaluation keeps nothing for it; both want Mode::Train"
                    .into(),
            });
        }
        // The gradient of what the layers after have read; none before the last layer, whose gradient is the model's.
        let mut lent: Option<Matrix<B, E>> = None;
        // Whether it is that of what ReLU and dropout were given already.
        let mut undone = false;
        for index in (0..self.layers.len()).rev() {
            let activation = self.activation(index, mode);
            let through = index
                .checked_sub(1)
                .and_then(|before| self.activation(before, mode).through());
            let layer = &mut self.layers[index];
            let d = lent.as_mut().unwrap_or(&mut self.gradient);
            if !undone && (activation.relu || activation.dropout.is_some()) {
                let output = Some(layer.output.get());
                ops::activate_backward(inputs.backend, &activation, output, None, d)?;
            }
            layer.output.release(&mut self.pool);
            if let Some(before) = index.checked_sub(1) {
                self.make_again(before, inputs, mode)?;
            }
            let (before, rest) = self.layers.split_at_mut(index);
            let x = match before.last() {
                Some(layer) => layer.output.get(),
                None => match (&self.dropped, mode) {
                    (Some(dropped), Mode::Train { .. }) => dropped,
                    _ => inputs.features,
                },
            };
            let layer = &mut rest[0];
            let d = lent.as_mut().unwrap_or(&mut self.gradient);
            let column_sums = layer.bias.gradient_mut();
            let column_sums = if layer.convolution.sums_columns() {
                Some(column_sums)
            } else {
                ops::column_sums(inputs.backend, d, column_sums)?;
                None
            };
            let residual = index > 0 && self.config.is_residual((x.columns(), d.columns()));
            // The convolution may overwrite `d`.
            let skipped = if residual {
                let mut copy = self.pool.take(inputs.backend, d.columns())?;
                ops::combine(inputs.backend, &Combine::copy(), d, &mut copy)?;
                Some(copy)
            } else {
                None
            };
            let through = through.filter(|_| !residual);
            let mut at = Context {
                through,
                column_sums,
                ..Context::new(inputs, mode, &mut self.pool)
            };
            let mut next = layer.convolution.backward(&mut at, x, d, index > 0)?;
            undone = through.is_some() && at.through.is_none();
            if let (Some(skipped), Some(dx)) = (skipped, &mut next) {
                ops::combine(inputs.backend, &Combine::sum(), &skipped, dx)?;
                self.pool.give(skipped);
            }
            if let Some(done) = std::mem::replace(&mut lent, next) {
                self.pool.give(done);
            }
        }
        Ok(())
    }

    fn first_non_finite(&self, backend: &B) -> Result<Option<String>, Error> {
        let spoilt = |matrix: &Matrix<B, E>| {
            // An infinity or a NaN stays one in its column's sum, in float.
            let mut sums = Matrix::zeros(backend, 1, matrix.columns(), MemoryKind::Workspace)?;
            ops::column_sums(backend, matrix, &mut sums)?;
            Ok::<_, Error>(!sums.to_f32(backend)?.iter().all(|sum| sum.is_finite()))
        };
        for (index, layer) in self.layers.iter().enumerate() {
            for (name, matrix) in layer.convolution.kept() {
                if spoilt(matrix)? {
                    return Ok(Some(format!("layers.{index}.{name}")));
                }
            }
            if let Some(output) = &layer.output.matrix
                && spoilt(output)?
            {
                return Ok(Some(format!("layers.{index}.output")));
            }
        }
        // Backward, the last layer comes first.
        for parameter in self.parameters().into_iter().rev() {
            let gradient = parameter.gradient().to_f32(backend)?;
            if !gradient.iter().all(|value| value.is_finite()) {
                return Ok(Some(format!("the gradient of {}", parameter.name())));
            }
        }
        Ok(None)
    }

    fn buffers(&self) -> Vec<(String, &Matrix<B, f32>)> {
        self.layers
            .iter()
            .enumerate()
            .flat_map(|(index, layer)| {
                let buffers = layer.convolution.buffers().into_iter();
                buffers.map(move |(name, buffer)| (format!("layers.{index}.{name}"), buffer))
            })
            .collect()
    }

    fn buffers_mut(&mut self) -> Vec<(String, &mut Matrix<B, f32>)> {
        self.layers
            .iter_mut()
            .enumerate()
            .flat_map(|(index, layer)| {
                let buffers = layer.convolution.buffers_mut().into_iter();
                buffers.map(move |(name, buffer)| (format!("layers.{index}.{name}"), buffer))
            })
            .collect()
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        self.layers
            .iter()
            .flat_map(|layer| {
                let mut all = layer.convolution.parameters();
                all.push(&layer.bias);
                all
            })
            .collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        self.layers
            .iter_mut()
            .flat_map(|layer| {
                let mut all = layer.convolution.parameters_mut();
                all.push(&mut layer.bias);
                all
            })
            .collect()
    }
}
