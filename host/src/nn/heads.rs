//! The columns of a layer of several heads.

use super::ModelConfig;
use crate::ops::MOST_HEADS;
use crate::tensor::{Element, padded};

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
        let (head, width) = (self.head(), self.width::<E>());
        let distance = width / self.count;
        let mut all = vec![0.0; rows * width];
        for (k, &value) in values.iter().enumerate() {
            let (row, column) = (k / (self.count * head), k % (self.count * head));
            all[row * width + column / head * distance + column % head] = value;
        }
        all
    }

    /// Whether the output is made from what the heads heard, and is not that itself.
    pub fn is_averaged(&self) -> bool {
        self.averaged && self.count > 1
    }
}

/// What attention is asked for that no layer of `model` can have, if anything.
pub(super) fn refusal(
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
        && let Some(width) = hidden.find(|width| !width.is_multiple_of(8 * heads))
    {
        return Err(format!(
            "{heads} heads want a hidden width that is a multiple of {}, and it is {width}",
            8 * heads,
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
