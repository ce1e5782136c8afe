//! Jumping knowledge (Xu et al., ICML 2018): the outputs of all layers, and not only the last, go to the classifier.
//!
//! Every layer is then a hidden one, followed by norm, activation and dropout, as in PyG's `BasicGNN(jk=…)`. The map
//! after them is `Σ_l H⁽ˡ⁾ · W_l + b`. It equals one map of the concatenated rows, which are not copied.

use super::{ConvolutionConfig, ModelConfig};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the outputs of all layers are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jumping {
    /// They are concatenated (PyG's `jk='cat'`).
    Cat,
    /// The largest of each element (PyG's `jk='max'`); layers are of one width.
    Max,
    /// They are concatenated, together with the features: GIN's input of the readout (Xu et al., ICLR 2019, §4.2).
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

/// Checks that there is such a network.
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
