//! What `halfgnn bench` and `halfgnn report` do, and what all commands of the program have in common.
//!
//! - [`mod@bench`]: operators and training, timed on a graph, each checked before it is timed.
//! - `baselines` (feature `cuda`): what a user would pick instead, on the same card, stream and operands.
//! - [`report`]: figures and tables of what was written, in one HTML file.
//! - [`room`]: whether there is memory for what is asked, before it is made.
//! - [`source`], [`reorder`], [`model`], [`names`]: options that several commands have.
//! - [`failure`], [`json`], [`machine`], [`screen`]: how a command fails, and what it writes.

#[cfg(all(feature = "cuda", target_os = "linux"))]
pub mod baselines;
pub mod bench;
pub mod failure;
pub mod json;
pub mod machine;
pub mod model;
pub mod names;
pub mod reorder;
pub mod report;
pub mod room;
pub mod screen;
pub mod source;
