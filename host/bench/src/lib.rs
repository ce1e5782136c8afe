//! What `halfgnn bench` and `halfgnn report` do, and what all commands of the program have in common.
//!
//! - `bench` (feature of that name): operators and training, timed on a graph, each checked before it is timed.
//! - `baselines` (feature `cuda`): what a user would pick instead, on the same GPU, stream and operands.
//! - [`report`]: figures and tables of what was written, in one HTML file.
//! - [`room`]: whether there is memory for what is asked, before it is made.
//! - [`source`], [`graphs`], [`reorder`], [`model`], [`names`], [`policy`]: options that several commands have.
//! - [`launch`], [`processes`], [`rank_memory`]: ranks that are processes, started for each GPU or by others, and what
//!   each takes.
//! - [`operators`]: operators of a step, with their times and bytes, as lines of JSON.
//! - [`failure`], [`json`], [`machine`], [`screen`]: how a command fails, and what it writes.

#[cfg(all(feature = "bench", feature = "cuda"))]
pub mod baselines;
#[cfg(feature = "bench")]
pub mod bench;
pub mod failure;
pub mod graphs;
pub mod interrupt;
pub mod json;
pub mod launch;
pub mod machine;
pub mod model;
pub mod names;
pub mod operators;
pub mod outputs;
pub mod policy;
pub mod processes;
pub mod rank_memory;
pub mod reorder;
pub mod report;
pub mod room;
pub mod screen;
pub mod source;
