//! Policies of sums over neighbours.

use crate::error::Error;
use crate::ops::{Accumulate, Scaling, Schedule, SpmmPolicy};

/// Whether a policy rounds as the default does: which warp has what is another question.
pub(crate) fn rounds_by_default(policy: SpmmPolicy) -> bool {
    let rounding = SpmmPolicy {
        schedule: Schedule::Auto,
        edges_per_warp: None,
        ..policy
    };
    rounding == SpmmPolicy::DEFAULT
}

/// That edges with weights are summed by a policy.
///
/// # Errors
/// [`Error::Unsupported`] of one that does not sum in float.
pub(crate) fn check_policy_of_weights(policy: SpmmPolicy) -> Result<(), Error> {
    if policy.accumulate == Accumulate::Float && policy.scaling == Scaling::Discretized {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator: "Aggregation",
        reason: "edges with weights are added up in float alone; take the default policy, or leave the weights out".into(),
    })
}
