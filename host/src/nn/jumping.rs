//! Jumping knowledge (Xu et al., ICML 2018): the outputs of all layers, and not only the last, go on to what tells the classes.
//!
//! Every layer is then a hidden one, with norm, activation and dropout behind it, as PyG's `BasicGNN(jk=…)` has it. The map behind
//! them is `Σ_l H⁽ˡ⁾ · W_l + b`, which is that of all rows side by side: nothing is copied to lie so.

use super::{ConvolutionConfig, ModelConfig};
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
    if jumping == Jumping::Max && model.hidden_by_layer.windows(2).any(|two| two[0] != two[1]) {
        return Err(
            "the largest of layers' rows is of rows of one width; give one hidden width for all, or take another jumping knowledge"
                .into(),
        );
    }
    Ok(())
}
