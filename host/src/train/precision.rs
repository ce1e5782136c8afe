//! What a training keeps in which format, and what is done so that gradients survive it.

use crate::ops::LossScaling;
use crate::tensor::Precision;

/// Storage, master weights and loss scaling of a training: three things, each of which could be chosen by itself.
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
    /// What the loss is multiplied by, so that gradients do not underflow in storage.
    pub loss_scaling: LossScaling,
}

impl MixedPrecision {
    /// What a storage needs: half, whose gradients underflow, a dynamic loss scale with PyTorch's start and interval; what
    /// has float's range none. The check for overflows runs in all of them.
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
