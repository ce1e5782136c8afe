//! The columns of a layer of several heads.

use super::{Context, ModelConfig, Output, OutputGradient};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, Epilogue, Form, MOST_HEADS};
use crate::tensor::{Element, Matrix, padded};

/// How a layer of attention shares its columns out to heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub inputs: usize,
    pub outputs: usize,
    /// Whether the outputs are the mean of the heads, and not all of them.
    pub averaged: bool,
    pub count: usize,
}

impl Heads {
    /// Columns of a head that hold something.
    pub fn head(&self) -> usize {
        if self.averaged {
            self.outputs
        } else {
            self.outputs / self.count
        }
    }

    /// Columns of all heads; each but a single one begins at a whole vector.
    pub fn width<E: Element>(&self) -> usize {
        match self.count {
            1 => self.outputs,
            heads => heads * padded::<E>(self.head()),
        }
    }

    /// Values of a matrix of `rows` rows and all heads' columns, zero where a head is padded.
    pub fn spread<E: Element>(&self, rows: usize, values: &[f32]) -> Vec<f32> {
        let width = self.width::<E>();
        let mut all = vec![0.0; rows * width];
        let places = (0..rows).flat_map(|row| self.columns::<E>().map(move |at| row * width + at));
        for (place, &value) in places.zip(values) {
            all[place] = value;
        }
        all
    }

    /// The number of each column that holds something, among [`Heads::width`].
    fn columns<E: Element>(&self) -> impl Iterator<Item = usize> {
        let (head, distance) = (self.head(), self.width::<E>() / self.count);
        (0..self.count * head).map(move |column| column / head * distance + column % head)
    }
}

/// How the output of a layer is made from what its heads heard, and how its gradient comes back to them.
#[derive(Debug)]
pub(super) enum Joining<B: Backend, E: Element> {
    /// It is that.
    Whole,
    /// The mean of so many heads.
    Mean(usize),
    /// The heads side by side, without the columns that pad each: a product with this matrix of zeros and ones, which rounds nothing.
    Packed(Matrix<B, E>),
}

impl<B: Backend, E: Element> Joining<B, E> {
    pub fn new(backend: &B, heads: &Heads) -> Result<Self, Error> {
        let (width, outputs) = (heads.width::<E>(), heads.outputs);
        if heads.averaged && heads.count > 1 {
            return Ok(Self::Mean(heads.count));
        }
        if width == outputs {
            return Ok(Self::Whole);
        }
        let mut packing = Matrix::zeros(backend, width, outputs, MemoryKind::Weights)?;
        packing.write_with(backend, || {
            let mut values = vec![0.0; width * outputs];
            for (to, from) in heads.columns::<E>().enumerate() {
                values[from * outputs + to] = 1.0;
            }
            values
        })?;
        Ok(Self::Packed(packing))
    }

    /// Writes the output.
    pub fn forward(
        &self,
        backend: &B,
        heard: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        match self {
            Self::Whole => y.copy(heard),
            Self::Mean(heads) => ops::head_mean(backend, *heads, heard, y.matrix()),
            Self::Packed(packing) => y.product(None, heard, packing),
        }
    }

    /// The gradient of so many columns of what was heard, to be given back, where it is not that of the output.
    pub fn backward(
        &self,
        at: &mut Context<'_, B, E>,
        columns: usize,
        dy: &OutputGradient<'_, B, E>,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        if let Self::Whole = self {
            return Ok(None);
        }
        let mut spread = at.take(columns)?;
        match self {
            Self::Whole => {}
            Self::Mean(heads) => {
                ops::head_mean_backward(at.backend, *heads, dy.matrix(), &mut spread)?;
            }
            Self::Packed(packing) => {
                let plain = Epilogue::default();
                ops::matmul(
                    at.backend,
                    Form::NT,
                    dy.matrix(),
                    packing,
                    &plain,
                    &mut spread,
                )?;
            }
        }
        Ok(Some(spread))
    }
}

/// What attention is asked for that no layer of `model` can have, if anything.
pub(crate) fn refusal(
    model: &ModelConfig,
    heads: usize,
    attention_dropout: f32,
    slope: f32,
) -> Result<(), String> {
    if heads == 0 {
        return Err("attention without heads computes nothing; give it at least 1".into());
    }
    if heads > MOST_HEADS {
        return Err(format!(
            "{heads} heads of attention; there can be {MOST_HEADS} at most"
        ));
    }
    let mut hidden = (0..model
        .layers
        .saturating_sub(1)
        .min(1 + model.hidden_by_layer.len()))
        .map(|layer| model.hidden_of(layer));
    if heads > 1
        && let Some(width) = hidden.find(|width| !width.is_multiple_of(heads))
    {
        return Err(format!(
            "{heads} heads side by side are a multiple of {heads} wide, and the hidden width is {width}; take {}",
            width.next_multiple_of(heads)
        ));
    }
    if !(0.0..1.0).contains(&attention_dropout) {
        return Err(format!(
            "attention dropout {attention_dropout} is not in [0, 1)"
        ));
    }
    if !slope.is_finite() {
        return Err(format!("the slope {slope} of the scores should be finite"));
    }
    Ok(())
}
