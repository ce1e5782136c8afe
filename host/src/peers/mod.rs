//! What a user would pick instead, run on the same card, stream and operands, so that a bench can time both in one run.
//!
//! - [`cusparse`]: NVIDIA's library, opened at run time where it is installed.
//! - [`copy`]: the card's own copy, which is the time of writing a result.
//!
//! What is made here is ready to be timed: descriptors, workspace and preprocessing are done, and `run` queues the work
//! on the stream of the backend.

pub mod copy;
pub mod cusparse;

use crate::driver::DriverError;
use crate::error::Error;

/// A failure of the peer's own, as one of the device.
fn failed(call: &'static str, reason: String) -> Error {
    Error::Driver(DriverError::Device { call, reason })
}
