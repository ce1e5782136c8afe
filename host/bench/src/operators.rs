//! The operators of a training step as lines of JSON.

use halfgnn::program::Profile;
use serde::Serialize;

/// An operator: its time, and the bytes that it must move.
#[derive(Debug, Serialize)]
pub struct OperatorRow<'a> {
    event: &'static str,
    operator: &'a str,
    backward: bool,
    ms: f64,
    streamed_bytes: u64,
    gathered_bytes: u64,
    bandwidth_share: f64,
}

/// A line for each operator, in their order.
pub fn rows(profile: &Profile) -> impl Iterator<Item = OperatorRow<'_>> {
    profile.operators.iter().map(|of| OperatorRow {
        event: "operator",
        operator: &of.text,
        backward: of.is_backward,
        ms: of.ms,
        streamed_bytes: of.traffic.streamed,
        gathered_bytes: of.traffic.gathered,
        bandwidth_share: profile.share(of),
    })
}
