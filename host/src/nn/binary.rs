//! Binary networks: Bi-GCN (Wang et al., CVPR 2021) and Bi-GraphSAGE, whose layers multiply signs of activations by
//! signs of weights. With [`Binary::Bin`] they aggregate signs over neighbours as well (BitGNN, Chen et al., ICS 2023).
//!
//! A product is `Z[i, j] = β[i] · α[j] · Σ sign X[i, k] · sign W[j, k]`. `β[i]` is the mean magnitude of a row of `X`,
//! and `α[j]` that of a row of `W`, which lie outputs × inputs. The sign of zero, and of −0, is +1, that of NaN −1.
//! Features are normalised first, each column over all vertices, without scale and shift. There is no ReLU.
//!
//! A step may be on a subgraph. Features are then normalised by the statistics of all vertices
//! ([`Model::see_features`](super::Model::see_features)), and `R · A · C` has the factors of the subgraph's edges,
//! where it has some. Sums of signs have no factors, and are means over the subgraph's neighbours.
//!
//! | layer | [`Binary::Full`] | [`Binary::Bin`] |
//! |---|---|---|
//! | GCN, hidden | `R · A · C · Z + b` | `D⁻¹ · A · sign Z` |
//! | GCN, last | as the others | `(D⁻¹ · A · sign X) · (α · sign W)ᵀ + b` |
//! | GraphSAGE, hidden | `Z_self + D⁻¹ · A · Z + b` | `½ · (sign Z_self + D⁻¹ · A · sign Z)` |
//! | GraphSAGE, last | as the others | `Z_self + (D⁻¹ · A · sign X) · (α · sign W)ᵀ + b` |
//!
//! Layers may differ: each reads signs of the previous layer's output, so any kind may follow any other. A factor that
//! only a sign follows changes nothing and is skipped. The product of a hidden layer of [`Binary::Bin`] thus takes bits
//! and gives bits.
//!
//! Gradients go straight through a sign where its input is in [−1, 1], and are zero elsewhere. With `g` that of
//! `α · sign W`, weights have `dW = α · 1{|W| ≤ 1} · g + sign(W) / inputs · Σ g · sign W`: the second term is by `α`.
//! `β` is taken for a constant.
//!
//! Dropout applies to the operands of products: a dropped sign is zero. Training therefore multiplies elements. An
//! evaluation drops nothing, and multiplies and sums up bits. Both give the same to the next sign where it is a sum of
//! integers.

use super::{ConvolutionConfig, HiddenActivation, ModelConfig, Norm};
#[cfg(feature = "checkpoints")]
use crate::backend::{MemoryKind, cpu::Cpu};
#[cfg(feature = "checkpoints")]
use crate::error::Error;
use crate::ops::SpmmPolicy;
#[cfg(feature = "checkpoints")]
use crate::program::{row_dots, sign};
#[cfg(feature = "checkpoints")]
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which parts of a network are binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// Both factors of every product, as in Bi-GCN; what is summed up over neighbours is not.
    Full,
    /// What is summed up over neighbours as well.
    Bin,
}

impl Binary {
    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bin => "bin",
        }
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ModelConfig {
    /// Makes a model binary, with the usual settings: no activation after the layers and dropout 0.3. [`Binary::Bin`]
    /// is 128 wide and takes the mean over neighbours, because sums of signs have no factors of sources.
    #[must_use]
    pub fn of_bits(mut self, binary: Binary) -> Self {
        self.binary = Some(binary);
        self.activation = HiddenActivation::None;
        self.dropout = 0.3;
        if binary == Binary::Bin {
            self.hidden = 128;
            if let ConvolutionConfig::Gcn(gcn) = &mut self.convolution {
                gcn.norm = Norm::Right;
            }
        }
        self
    }

    /// The same with the parts of each layer, which [`ModelConfig::of_bits`] sets for all; several are as many as it
    /// has layers. Where any layer sums up signs, the network has the settings of [`Binary::Bin`].
    #[must_use]
    pub fn of_bits_by_layer(self, layers: &[Binary]) -> Self {
        let any = layers.iter().find(|&&binary| binary == Binary::Bin);
        let Some(&binary) = any.or(layers.first()) else {
            return self;
        };
        let mut model = self.of_bits(binary);
        model.binary_layers = match layers.len() {
            1 => Vec::new(),
            _ => layers.to_vec(),
        };
        model
    }

    /// Which parts of a layer are binary.
    pub fn binary_of(&self, layer: usize) -> Option<Binary> {
        self.binary_layers.get(layer).copied().or(self.binary)
    }

    /// Which parts are binary, as they are typed: `bin`, or layer by layer `bin,full`.
    pub fn binary_name(&self) -> Option<String> {
        let binary = self.binary?;
        let names: Vec<&str> = self.binary_layers.iter().map(|of| of.name()).collect();
        Some(match names.is_empty() {
            true => binary.name().into(),
            false => names.join(","),
        })
    }

    /// Whether any layer sums up signs over neighbours.
    pub(super) fn sums_signs(&self) -> bool {
        (0..self.binary_layers.len().max(1)).any(|layer| self.binary_of(layer) == Some(Binary::Bin))
    }
}

/// Checks that there is such a network.
pub(super) fn check(model: &ModelConfig) -> Result<(), String> {
    let given = model.binary_layers.len();
    if given > 0 && (given != model.layers || model.binary.is_none()) {
        return Err(format!(
            "--binary has {given} values, and the model {} layers; give one for each layer, or one for all",
            model.layers
        ));
    }
    let refused = [
        (
            model.activation != HiddenActivation::None,
            "have no activation behind them but the sign; leave it out",
        ),
        (
            model.residual,
            "do not add their inputs to their outputs; leave --residual out",
        ),
        (
            !model.hidden_norm.is_none(),
            "have no norm behind them; leave --hidden-norm out",
        ),
        (
            model.recompute,
            "keep what they compute; leave --recompute out",
        ),
        (
            model.messages.is_some(),
            "send no messages of 8 bits; leave --messages out",
        ),
        (
            model.jumping.is_some(),
            "go on to the last layer alone; leave --jumping out",
        ),
        (
            model.readout.is_some(),
            "predict vertices, and not whole graphs; leave --binary out",
        ),
        (
            model.policy != SpmmPolicy::default(),
            "sum up in one way; leave --policy out",
        ),
        (
            model.sums_signs() && model.norm() != Norm::Right,
            "of --binary bin take the mean of their neighbours; take --norm right, or leave it out",
        ),
    ];
    let name = model.convolution.name();
    if !matches!(
        model.convolution,
        ConvolutionConfig::Gcn(_) | ConvolutionConfig::Sage(_)
    ) {
        return Err(format!(
            "there are layers of one bit of gcn and sage, and the model is {name}; take one of those, or leave --binary out"
        ));
    }
    match refused.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, reason)) => Err(format!("layers of one bit {reason}")),
        None => Ok(()),
    }
}

/// The mean magnitudes of the rows of weights as an evaluation on a CPU has them, for a file of bits.
///
/// # Errors
/// Those of the device.
#[cfg(feature = "checkpoints")]
pub(crate) fn magnitudes_of_rows<E: Element>(
    (rows, columns): (usize, usize),
    values: &[f32],
) -> Result<Vec<f32>, Error> {
    let (cpu, kind) = (&Cpu::new(), MemoryKind::Weights);
    let values = Matrix::<Cpu, E>::from_f32(cpu, rows, columns, values, kind)?;
    let mut signs = Matrix::zeros(cpu, rows, columns, kind)?;
    sign(cpu, &values, &mut signs)?;
    let mut means = Array::zeros(cpu, rows, kind)?;
    row_dots(cpu, &values, &signs, &mut means)?;
    means.to_vec(cpu)
}
