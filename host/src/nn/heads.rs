//! Checks of attention's options.

use super::ModelConfig;
use crate::ops::MOST_HEADS;

/// The option of attention that no layer of `model` has, if one is given.
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
