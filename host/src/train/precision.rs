//! The formats of training, and the scaling that keeps gradients from underflow in them.

use crate::ops::LossScaling;
use crate::tensor::Precision;

/// Storage, master weights and loss scaling of a training. Each could be chosen independently.
///
/// ```
/// use halfgnn::tensor::Precision;
/// use halfgnn::train::MixedPrecision;
///
/// let bfloats = MixedPrecision::of(Precision::BFloat16);
/// assert_eq!((bfloats.master, bfloats.loss_scaling.initial), (Precision::Float, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixedPrecision {
    /// Features, activations, their gradients, and the weights that kernels read.
    pub storage: Precision,
    /// Master weights, their gradients and moments.
    pub master: Precision,
    /// The scale of the loss, so that gradients do not underflow in storage.
    pub loss_scaling: LossScaling,
}

impl MixedPrecision {
    /// The settings that a storage format needs. Gradients underflow in half, so it has a dynamic loss scale with
    /// PyTorch's initial value and interval. Formats with float's range need none. The check for overflows runs in all
    /// of them.
    pub const fn of(storage: Precision) -> Self {
        let loss_scaling = match storage {
            Precision::Half => LossScaling {
                initial: 65536.0,
                growth_interval: 2000,
                maximum: 16_777_216.0,
            },
            Precision::Float | Precision::BFloat16 => LossScaling {
                initial: 1.0,
                growth_interval: 0,
                maximum: 1.0,
            },
        };
        Self {
            storage,
            master: Precision::MASTER,
            loss_scaling,
        }
    }
}
