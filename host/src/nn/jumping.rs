//! Jumping knowledge (Xu et al., ICML 2018): the outputs of all layers, and not only the last, go on to what tells the classes.
//!
//! Every layer is then a hidden one, with norm, activation and dropout behind it, as PyG's `BasicGNN(jk=…)` has it. The map behind
//! them is `Σ_l H⁽ˡ⁾ · W_l + b`, which is that of all rows side by side: nothing is copied to lie so.

use super::readout::Pooling;
use super::{
    Context, ConvolutionConfig, Dense, InputGradient, Kept, Layer, ModelConfig, Output,
    OutputGradient, Parameter, Place, Stage,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Combine, Epilogue, Form};
use crate::tensor::{Element, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is made of the outputs of all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jumping {
    /// They lie side by side (PyG's `jk='cat'`).
    Cat,
    /// The largest of each element (PyG's `jk='max'`); layers are of one width.
    Max,
    /// They lie side by side, and the features beside them: what GIN reads out of a graph (Xu et al., ICLR 2019, §4.2).
    All,
}

impl Jumping {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Cat, Self::Max, Self::All];

    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cat => "cat",
            Self::Max => "max",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Jumping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// That there is such a network, or why not.
pub(super) fn check(model: &ModelConfig, jumping: Jumping) -> Result<(), String> {
    let name = model.convolution.name();
    if matches!(
        model.convolution,
        ConvolutionConfig::Appnp(_) | ConvolutionConfig::Gcnii(_)
    ) {
        return Err(format!(
            "{name} has a way of its own from its first rows to its last; take another model, or leave jumping knowledge out"
        ));
    }
    if model.recompute {
        return Err(
            "jumping knowledge reads every layer's output, so that recompute would spare nothing; leave one of them out"
                .into(),
        );
    }
    if jumping == Jumping::Max && model.hidden_by_layer.windows(2).any(|two| two[0] != two[1]) {
        return Err(
            "the largest of layers' rows is of rows of one width; give one hidden width for all, or take another jumping knowledge"
                .into(),
        );
    }
    Ok(())
}

/// The stages of a model with jumping knowledge, of vertices or with a pooling behind it.
pub(super) fn stages<B: Backend, E: Element>(
    backend: &B,
    model: &ModelConfig,
    jumping: Jumping,
    seed: u64,
) -> Result<Vec<Stage<B, E>>, Error> {
    let width = model.hidden_of(model.layers - 1);
    let hidden = ModelConfig {
        classes: width,
        readout: None,
        ..model.clone()
    };
    let stages = model.convolution.stages(backend, &hidden, seed)?;
    let last = stages.len() - 1;
    let jump = |(number, stage): (usize, Stage<B, E>)| match number == last {
        true => stage,
        false => stage.jumps(),
    };
    let mut stages: Vec<_> = stages.into_iter().enumerate().map(jump).collect();
    let place = |layer| Place { layer, seed };
    let dense = |layer, outputs| Dense::new(backend, place(layer), (width, outputs));
    let dropout = model.dropout_of(model.layers);
    let pooling = model
        .readout
        .map(|readout| Pooling::new(readout, model.policy));
    let outputs = match pooling {
        Some(_) => width,
        None => model.classes,
    };
    let next = match jumping {
        Jumping::Max => {
            stages.push(Stage::new(LargestOfLayers::new(backend, width)?).dropout(dropout));
            if let Some(pooling) = pooling {
                stages.push(Stage::new(pooling.layer(backend, width)?));
            }
            Stage::new(dense(stages.len(), outputs)?)
        }
        Jumping::Cat | Jumping::All => {
            let features = (jumping == Jumping::All).then_some(model.features);
            let widths = (0..model.layers).map(|layer| hidden.layer(layer).1);
            let widths = features.into_iter().chain(widths).collect();
            let layer = SumOfLayers::new(
                backend,
                place(stages.len()),
                (widths, outputs),
                (features.is_some(), pooling),
            )?;
            Stage::new(layer).dropout(dropout)
        }
    };
    if pooling.is_none() {
        stages.push(next.bias());
        return Ok(stages);
    }
    stages.push(next.bias().relu());
    let logits = Stage::new(dense(stages.len(), model.classes)?);
    stages.push(logits.bias().dropout(dropout));
    Ok(stages)
}

/// `Σ_l H⁽ˡ⁾ · W_l` over all layers' outputs, and over the features where they count as one; of pooled rows where it pools.
#[derive(Debug)]
struct SumOfLayers<B: Backend, E: Element> {
    features: bool,
    pooling: Option<Pooling>,
    /// In the order of the rows: the features, the layers that jump, the input.
    weights: Vec<Parameter<B, E>>,
    /// What was pooled, of each.
    pooled: Vec<Kept<B, E>>,
}

impl<B: Backend, E: Element> SumOfLayers<B, E> {
    fn new(
        backend: &B,
        place: Place,
        (widths, outputs): (Vec<usize>, usize),
        (features, pooling): (bool, Option<Pooling>),
    ) -> Result<Self, Error> {
        let all: usize = widths.iter().sum();
        let mut weights = Vec::with_capacity(widths.len());
        let mut first = 0;
        for (number, &width) in widths.iter().enumerate() {
            // Rows of the weights of one map of all.
            let rows = first..first + width;
            let values = || {
                let values = place.glorot((all, outputs), 0);
                values[rows.start * outputs..rows.end * outputs].to_vec()
            };
            let name = format!("jump.{number}.weight");
            weights.push(Parameter::weights(backend, name, (width, outputs), values)?);
            first += width;
        }
        let pooled = match pooling {
            Some(_) => widths
                .iter()
                .map(|&width| Kept::new(backend, width))
                .collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Self {
            features,
            pooling,
            weights,
            pooled,
        })
    }

    /// The rows of all, in the order of the weights.
    fn rows<'a>(
        &self,
        at: &Context<'a, B, E>,
        x: &'a Matrix<B, E>,
    ) -> Result<Vec<&'a Matrix<B, E>>, Error> {
        let features = match self.features {
            true => Some(at.features()?),
            false => None,
        };
        let all = features.into_iter().chain(at.jumped()).chain([x]);
        let all: Vec<_> = all.collect();
        let (found, wanted) = (all.len(), self.weights.len());
        if found == wanted {
            return Ok(all);
        }
        Err(Error::Unsupported {
            operator: "SumOfLayers",
            reason: format!("there are {found} layers, and weights of {wanted}"),
        })
    }
}

impl<B: Backend, E: Element> Layer<B, E> for SumOfLayers<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weights[self.weights.len() - 1].shape()
    }

    fn aggregates(&self) -> bool {
        self.pools()
    }

    fn pools(&self) -> bool {
        self.pooling.is_some()
    }

    fn reads_features(&self) -> bool {
        self.features
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, plain, columns) = (at.backend, Epilogue::default(), y.columns());
        let y = y.matrix();
        for (number, rows) in self.rows(at, x)?.into_iter().enumerate() {
            let mut own = None;
            let rows = match self.pooling {
                Some(pooling) => {
                    let pooled = self.pooled[number].room(backend, at.rows())?;
                    pooling.forward(at, rows, pooled)?;
                    &*pooled
                }
                None => own.insert(at.own_rows(rows)?),
            };
            let weight = self.weights[number].values();
            if number == 0 {
                ops::matmul(backend, Form::NN, rows, weight, &plain, y)?;
            } else {
                let mut product = at.take(columns)?;
                ops::matmul(backend, Form::NN, rows, weight, &plain, &mut product)?;
                ops::combine(backend, &Combine::sum(), &product, y)?;
                at.give(product);
            }
            own.into_iter().for_each(|rows| at.give_rows(rows));
        }
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let all = self.rows(at, x)?;
        let last = all.len() - 1;
        for (number, rows) in all.into_iter().enumerate() {
            let own = match self.pooling {
                Some(_) => None,
                None => Some(at.own_rows(rows)?),
            };
            let pooled = self.pooled.get(number).map(Kept::get);
            let (weight, gradient) = self.weights[number].values_and_gradient();
            if let Some(of) = own.as_deref().or(pooled) {
                match number == last {
                    true => dy.weight_gradient(1.0, None, of, gradient)?,
                    false => ops::matmul(backend, Form::TN, of, dy.matrix(), &plain, gradient)?,
                }
            }
            own.into_iter().for_each(|rows| at.give_rows(rows));
            // No features have a gradient.
            let wanted = match number == last {
                true => dx.is_wanted(),
                false => number >= usize::from(self.features),
            };
            if !wanted {
                continue;
            }
            if let (None, true) = (self.pooling, number == last) {
                dx.product(at, dy.matrix(), weight)?;
                continue;
            }
            let mut d = at.take(rows.columns())?;
            ops::matmul(backend, Form::NT, dy.matrix(), weight, &plain, &mut d)?;
            let d = match (self.pooling, pooled) {
                (Some(pooling), Some(pooled)) => {
                    let mut d_rows = at.pool.take(backend, rows.shape())?;
                    pooling.backward(at, (rows, pooled), &d, &mut d_rows)?;
                    at.give(d);
                    d_rows
                }
                _ => d,
            };
            match number == last {
                true => ops::combine(backend, &Combine::copy(), &d, dx.matrix(at)?)?,
                false => at.add_to_jumped(number - usize::from(self.features), &d)?,
            }
            at.give(d);
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        self.weights.iter().collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        self.weights.iter_mut().collect()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let pooled = self.pooled.iter();
        pooled.map(|pooled| ("pooled", pooled.get())).collect()
    }
}

/// The largest of each element of all layers' outputs; the gradient goes to the first layer that has it.
#[derive(Debug)]
struct LargestOfLayers<B: Backend, E: Element> {
    largest: Kept<B, E>,
}

impl<B: Backend, E: Element> LargestOfLayers<B, E> {
    fn new(backend: &B, width: usize) -> Result<Self, Error> {
        Ok(Self {
            largest: Kept::new(backend, width)?,
        })
    }
}

impl<B: Backend, E: Element> Layer<B, E> for LargestOfLayers<B, E> {
    fn widths(&self) -> (usize, usize) {
        let columns = self.largest.get().columns();
        (columns, columns)
    }

    fn aggregates(&self) -> bool {
        false
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let largest = self.largest.room(at.backend, at.rows())?;
        ops::combine_rows(at.backend, at.rows(), &Combine::copy(), x, largest)?;
        for rows in at.jumped() {
            let rows = at.own_rows(rows)?;
            ops::maximum(at.backend, &rows, largest)?;
            at.give_rows(rows);
        }
        y.copy(largest)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, largest) = (at.backend, self.largest.get());
        let left = dy.overwrite()?;
        for (number, rows) in at.jumped().into_iter().enumerate() {
            let own = at.own_rows(rows)?;
            let mut d = at.take(own.columns())?;
            ops::maximum_backward(backend, &own, largest, left, &mut d)?;
            at.give_rows(own);
            at.add_to_jumped(number, &d)?;
            at.give(d);
        }
        if dx.is_wanted() {
            ops::maximum_backward(backend, x, largest, left, dx.matrix(at)?)?;
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        Vec::new()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        Vec::new()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        vec![("largest", self.largest.get())]
    }
}
