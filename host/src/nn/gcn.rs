//! The graph convolutional network of Kipf and Welling (ICLR 2017), of any number of layers.
//!
//! A layer is `H' = dropout(relu(R · A · C · H · W + b))` with the degree norms `R` and `C` of [`Propagation`]; the last
//! one has neither ReLU nor dropout, and the features pass a dropout of their own first. Both maps are linear, so each
//! layer does first what makes its rows narrower ([`Order`]). The backward pass mirrors the forward pass, and of a layer
//! only its output is stored: an element of it is positive exactly where ReLU and dropout let it through.

use super::{Inputs, Mode, Model, Parameter, Pool, glorot_uniform, matrix_bytes};
use crate::backend::{
    Activation, Backend, Dropout, EdgeWeights, Epilogue, Form, MemoryKind, Spmm, SpmmPolicy,
};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Element, Matrix};

/// Tags the random numbers of dropout, so that initial weights share none with them.
const DROPOUT_STREAM: u32 = 0x6472_6f70;

/// The shape of a GCN, and how it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct GcnConfig {
    /// Input features of a vertex.
    pub features: usize,
    /// Width of every layer but the last.
    pub hidden: usize,
    /// Classes, the width of the last layer.
    pub classes: usize,
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Probability of an input of a layer to be dropped in training, in [0, 1).
    pub dropout: f32,
    /// How the aggregations sum up.
    pub policy: SpmmPolicy,
}

impl GcnConfig {
    /// Two layers of 64 with dropout 0.5, the customary shape.
    pub fn new(features: usize, classes: usize) -> Self {
        Self {
            features,
            hidden: 64,
            classes,
            layers: 2,
            dropout: 0.5,
            policy: SpmmPolicy::default(),
        }
    }

    /// Inputs and outputs of each layer.
    fn widths(&self) -> impl Iterator<Item = (usize, usize)> {
        let width = |layer| match layer {
            0 => self.features,
            layer if layer == self.layers => self.classes,
            _ => self.hidden,
        };
        (0..self.layers).map(move |layer| (width(layer), width(layer + 1)))
    }

    /// Widths of the matrices that a step borrows from the pool, as many times as they are lent at once: the same
    /// calls as in `Layer::forward` and `Layer::backward`.
    fn lent(&self) -> Vec<usize> {
        let (mut all, mut free) = (Vec::new(), Vec::new());
        let mut take =
            |free: &mut Vec<usize>, width: usize| match free.iter().position(|&w| w == width) {
                Some(index) => drop(free.swap_remove(index)),
                None => all.push(width),
            };
        let widths: Vec<_> = self.widths().collect();
        for &(inputs, outputs) in &widths {
            if Order::choose(inputs, outputs, self.policy) == Order::TransformFirst {
                take(&mut free, outputs);
                free.push(outputs);
            }
        }
        for (index, &(inputs, outputs)) in widths.iter().enumerate().rev() {
            let lent_twice = match Order::choose(inputs, outputs, self.policy) {
                Order::TransformFirst => Some(outputs),
                Order::AggregateFirst => (index > 0).then_some(inputs),
            };
            lent_twice
                .into_iter()
                .for_each(|width| take(&mut free, width));
            if index > 0 {
                take(&mut free, inputs);
            }
            free.extend(lent_twice);
            if index + 1 < widths.len() {
                free.push(outputs);
            }
        }
        all
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: "Gcn",
                reason,
            })
        };
        if self.layers == 0 {
            return refuse("a model of 0 layers computes nothing; give it at least 1".into());
        }
        if self.classes == 0 || (self.layers > 1 && self.hidden == 0) {
            return refuse("a layer of width 0 computes nothing; give it at least 1".into());
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse(format!(
                "dropout probability {} is not in [0, 1)",
                self.dropout
            ));
        }
        Ok(())
    }
}

/// Which of a layer's two linear maps comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// `A · (H · W)`: the aggregation sees the layer's outputs.
    TransformFirst,
    /// `(A · H) · W`: the aggregation sees the layer's inputs, and its result is stored for the gradient of `W`.
    AggregateFirst,
}

impl Order {
    /// The order whose aggregation is narrower. Aggregating first wants the column factors inside the SpMM, which only
    /// the default policy has kernels for.
    fn choose(inputs: usize, outputs: usize, policy: SpmmPolicy) -> Self {
        if inputs < outputs && policy == SpmmPolicy::default() {
            Order::AggregateFirst
        } else {
            Order::TransformFirst
        }
    }
}

/// A graph convolutional network.
///
/// A function of its configuration and the seed alone: every backend starts from the same weights.
#[derive(Debug)]
pub struct Gcn<B: Backend, E: Element> {
    config: GcnConfig,
    layers: Vec<Layer<B, E>>,
    /// The features after their dropout; absent where nothing is dropped.
    dropped: Option<Matrix<B, E>>,
    gradient: Matrix<B, E>,
    pool: Pool<B, E>,
}

impl<B: Backend, E: Element> Gcn<B, E> {
    /// A model for a graph of `vertices` vertices, with the weights of `seed`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model, [`Error::TooLarge`] and [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(backend: &B, vertices: usize, config: GcnConfig, seed: u64) -> Result<Self, Error> {
        config.check()?;
        let activations =
            |columns| Matrix::zeros(backend, vertices, columns, MemoryKind::Activations);
        let layers = config
            .widths()
            .enumerate()
            .map(|(index, (inputs, outputs))| {
                Ok(Layer {
                    policy: config.policy,
                    output: activations(outputs)?,
                    aggregated: match Order::choose(inputs, outputs, config.policy) {
                        Order::AggregateFirst => Some(activations(inputs)?),
                        Order::TransformFirst => None,
                    },
                    weight: Parameter::weights(
                        backend,
                        format!("layers.{index}.weight"),
                        (inputs, outputs),
                        || glorot_uniform(inputs, outputs, seed, index as u32),
                    )?,
                    bias: Parameter::bias(backend, format!("layers.{index}.bias"), outputs)?,
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
    pub fn config(&self) -> &GcnConfig {
        &self.config
    }

    /// The most bytes that the activations and the parameters of a model in training take, in this order.
    pub fn bytes(vertices: usize, config: &GcnConfig) -> (u64, u64) {
        let matrix = |columns: usize| matrix_bytes::<E>(vertices, columns);
        let mut activations = matrix(config.classes);
        if config.dropout > 0.0 {
            activations = activations.saturating_add(matrix(config.features));
        }
        let mut parameters = 0_u64;
        for (inputs, outputs) in config.widths() {
            activations = activations.saturating_add(matrix(outputs));
            if Order::choose(inputs, outputs, config.policy) == Order::AggregateFirst {
                activations = activations.saturating_add(matrix(inputs));
            }
            parameters = parameters
                .saturating_add(Parameter::<B, E>::bytes(inputs, outputs, true))
                .saturating_add(Parameter::<B, E>::bytes(1, outputs, false));
        }
        let lent = config
            .lent()
            .into_iter()
            .map(matrix)
            .fold(0, u64::saturating_add);
        (activations.saturating_add(lent), parameters)
    }

    fn dropout(&self, layer: usize, mode: Mode) -> Option<Dropout> {
        match mode {
            Mode::Train { seed, step } if self.config.dropout > 0.0 => Some(Dropout {
                probability: self.config.dropout,
                seed,
                stream: DROPOUT_STREAM.wrapping_add(layer as u32),
                step,
            }),
            _ => None,
        }
    }

    /// ReLU of layer `layer`, and the dropout before the next one.
    fn activation(&self, layer: usize, mode: Mode) -> Nonlinearity {
        if layer + 1 == self.config.layers {
            Nonlinearity {
                relu: false,
                dropout: None,
            }
        } else {
            Nonlinearity {
                relu: true,
                dropout: self.dropout(layer + 1, mode),
            }
        }
    }
}

impl<B: Backend, E: Element> Model<B, E> for Gcn<B, E> {
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode) -> Result<(), Error> {
        let input_dropout = self.dropout(0, mode);
        if let (Some(dropped), dropout @ Some(_)) = (&mut self.dropped, input_dropout) {
            let op = Activation {
                bias: None,
                relu: false,
                dropout,
            };
            ops::activate(inputs.backend, &op, Some(inputs.features), dropped)?;
        }
        for index in 0..self.layers.len() {
            let nonlinearity = self.activation(index, mode);
            let (before, rest) = self.layers.split_at_mut(index);
            let x = match before.last() {
                Some(layer) => &layer.output,
                None if input_dropout.is_some() => self.dropped.as_ref().unwrap_or(inputs.features),
                None => inputs.features,
            };
            rest[0].forward(inputs, x, nonlinearity, &mut self.pool)?;
        }
        Ok(())
    }

    fn logits(&self) -> &Matrix<B, E> {
        &self.layers[self.layers.len() - 1].output
    }

    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>) {
        (
            &self.layers[self.layers.len() - 1].output,
            &mut self.gradient,
        )
    }

    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode) -> Result<(), Error> {
        // The gradient of what the layers after have read; none before the last layer, whose gradient is the model's.
        let mut lent: Option<Matrix<B, E>> = None;
        for index in (0..self.layers.len()).rev() {
            let nonlinearity = self.activation(index, mode);
            let (before, rest) = self.layers.split_at_mut(index);
            let x = match before.last() {
                Some(layer) => &layer.output,
                None => match (&self.dropped, mode) {
                    (Some(dropped), Mode::Train { .. }) => dropped,
                    _ => inputs.features,
                },
            };
            let gradient = lent.as_mut().unwrap_or(&mut self.gradient);
            let next =
                rest[0].backward(inputs, x, nonlinearity, gradient, index > 0, &mut self.pool)?;
            if let Some(done) = std::mem::replace(&mut lent, next) {
                self.pool.give(done);
            }
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        self.layers
            .iter()
            .flat_map(|layer| [&layer.weight, &layer.bias])
            .collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        self.layers
            .iter_mut()
            .flat_map(|layer| [&mut layer.weight, &mut layer.bias])
            .collect()
    }
}

/// What follows a layer's linear part.
#[derive(Clone, Copy, Debug)]
struct Nonlinearity {
    relu: bool,
    dropout: Option<Dropout>,
}

impl Nonlinearity {
    fn with_bias<B: Backend>(self, bias: Option<&Matrix<B, f32>>) -> Activation<'_, B> {
        Activation {
            bias,
            relu: self.relu,
            dropout: self.dropout,
        }
    }
}

#[derive(Debug)]
struct Layer<B: Backend, E: Element> {
    policy: SpmmPolicy,
    weight: Parameter<B, E>,
    bias: Parameter<B, E>,
    /// `R · A · C · H`, where the layer aggregates first.
    aggregated: Option<Matrix<B, E>>,
    output: Matrix<B, E>,
}

impl<B: Backend, E: Element> Layer<B, E> {
    fn forward(
        &mut self,
        Inputs { backend, graph, .. }: Inputs<'_, B, E>,
        x: &Matrix<B, E>,
        nonlinearity: Nonlinearity,
        pool: &mut Pool<B, E>,
    ) -> Result<(), Error> {
        let mut aggregation = Spmm {
            row_scale: graph.row_scale(),
            policy: self.policy,
            ..Spmm::default()
        };
        if let Some(aggregated) = &mut self.aggregated {
            if let Some(scale) = graph.column_scale() {
                aggregation.weights = EdgeWeights::Columns(scale);
            }
            ops::spmm(backend, graph.forward(), &aggregation, x, aggregated)?;
            let plain = Epilogue::default();
            ops::matmul(
                backend,
                Form::NN,
                aggregated,
                self.weight.values(),
                &plain,
                &mut self.output,
            )?;
        } else {
            let mut product = pool.take(backend, self.output.columns())?;
            let scaled = Epilogue {
                row_scale: graph.column_scale(),
                ..Epilogue::default()
            };
            ops::matmul(
                backend,
                Form::NN,
                x,
                self.weight.values(),
                &scaled,
                &mut product,
            )?;
            ops::spmm(
                backend,
                graph.forward(),
                &aggregation,
                &product,
                &mut self.output,
            )?;
            pool.give(product);
        }
        let activation = nonlinearity.with_bias(Some(self.bias.master()));
        ops::activate(backend, &activation, None, &mut self.output)
    }

    /// The gradients of the parameters and, where it is wanted, of the input `x`, from `d`, the gradient of the output,
    /// which is overwritten.
    fn backward(
        &mut self,
        Inputs { backend, graph, .. }: Inputs<'_, B, E>,
        x: &Matrix<B, E>,
        nonlinearity: Nonlinearity,
        d: &mut Matrix<B, E>,
        wants_input: bool,
        pool: &mut Pool<B, E>,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        let plain = Epilogue::default();
        // Through the transposed adjacency the two norms change places: A' = C · Aᵀ · R.
        let aggregation = Spmm {
            row_scale: graph.column_scale(),
            policy: self.policy,
            ..Spmm::default()
        };
        if nonlinearity.relu || nonlinearity.dropout.is_some() {
            let activation = nonlinearity.with_bias(None);
            ops::activate_backward(backend, &activation, Some(&self.output), None, d)?;
        }
        ops::column_sums(backend, d, self.bias.gradient_mut())?;
        if let Some(aggregated) = &self.aggregated {
            ops::matmul(
                backend,
                Form::TN,
                aggregated,
                d,
                &plain,
                self.weight.gradient_mut(),
            )?;
            if !wants_input {
                return Ok(None);
            }
            let mut sent = pool.take(backend, x.columns())?;
            let scaled = Epilogue {
                row_scale: graph.row_scale(),
                ..Epilogue::default()
            };
            ops::matmul(
                backend,
                Form::NT,
                d,
                self.weight.values(),
                &scaled,
                &mut sent,
            )?;
            let mut dx = pool.take(backend, x.columns())?;
            ops::spmm(backend, graph.backward(), &aggregation, &sent, &mut dx)?;
            pool.give(sent);
            return Ok(Some(dx));
        }
        if graph.row_scale().is_some() {
            // Not fused with the pass above: the gradient of the bias is summed up before the norm.
            let scale_rows = Activation {
                bias: None,
                relu: false,
                dropout: None,
            };
            ops::activate_backward(backend, &scale_rows, None, graph.row_scale(), d)?;
        }
        let mut product = pool.take(backend, self.output.columns())?;
        ops::spmm(backend, graph.backward(), &aggregation, d, &mut product)?;
        ops::matmul(
            backend,
            Form::TN,
            x,
            &product,
            &plain,
            self.weight.gradient_mut(),
        )?;
        let dx = if wants_input {
            let mut dx = pool.take(backend, x.columns())?;
            ops::matmul(
                backend,
                Form::NT,
                &product,
                self.weight.values(),
                &plain,
                &mut dx,
            )?;
            Some(dx)
        } else {
            None
        };
        pool.give(product);
        Ok(dx)
    }
}
