//! Element-wise operators, the loss, and the optimiser.
//!
//! - [`activate`]: bias, ReLU and dropout, and their gradient.
//! - [`sums`]: sums of columns.
//! - [`loss`]: cross-entropy with its gradient, and the count of right answers.
//! - [`optimizer`]: Adam, the overflow check, the loss scale.
//!
//! Every kernel is generic over what a lane loads, [`Half8`] or [`Float4`], and computes in float.

mod activate;
mod loss;
mod optimizer;
mod sums;

use crate::device::vector::{Float4, HalfVector8 as Half8};
use halfgnn_contract::dense::{
    ActivateParams, AdamParams, ColumnSumsParams, EndStepParams, LossParams,
};

entries! {
    /// Bias, ReLU and dropout, in half.
    activate_f16(ActivateParams) = activate::forward::<Half8>;
    /// Bias, ReLU and dropout, in float.
    activate_f32(ActivateParams) = activate::forward::<Float4>;
    /// The gradient of `activate_f16`.
    activate_backward_f16(ActivateParams) = activate::backward::<Half8>;
    /// The gradient of `activate_f32`.
    activate_backward_f32(ActivateParams) = activate::backward::<Float4>;
    /// Sums of columns of halves.
    column_sums_f16(ColumnSumsParams) = sums::columns::<Half8>;
    /// Sums of columns of floats.
    column_sums_f32(ColumnSumsParams) = sums::columns::<Float4>;
    /// Cross-entropy and its gradient, in half.
    cross_entropy_f16(LossParams) = loss::cross_entropy::<Half8>;
    /// Cross-entropy and its gradient, in float.
    cross_entropy_f32(LossParams) = loss::cross_entropy::<Float4>;
    /// Right answers by split, in half.
    count_correct_f16(LossParams) = loss::count_correct::<Half8>;
    /// Right answers by split, in float.
    count_correct_f32(LossParams) = loss::count_correct::<Float4>;
    /// The mean loss from its partial sums.
    reduce_loss(LossParams) = loss::reduce_loss;
    /// The counts from their partial counts.
    reduce_counts(LossParams) = loss::reduce_counts;
    /// Adam, and the copy of the weights in half.
    adam_f16(AdamParams) = optimizer::adam::<true>;
    /// Adam, and the copy of the weights in float, if any.
    adam_f32(AdamParams) = optimizer::adam::<false>;
    /// The overflow flag.
    check_finite(AdamParams) = optimizer::check_finite;
    /// The loss scale and the count of steps.
    end_step(EndStepParams) = optimizer::end_step;
}
