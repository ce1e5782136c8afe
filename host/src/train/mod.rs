//! Training: steps on the whole graph or on [batches](Batches) in mixed precision, evaluation, and its results.
//!
//! A step is a forward pass, the [loss](Loss) of the training vertices and its gradient, and a backward pass. A check
//! for overflow and an update of the float master weights by the optimiser follow. All of it stays on the device. An
//! overflow skips the update and halves the loss scale there ([`OptimizerState`](crate::ops::OptimizerState)), and the
//! loss is read only on request.

mod any_f32;
mod batch_sizes;
mod batch_steps;
mod batches;
#[cfg(feature = "checkpoints")]
pub mod checkpoint;
mod clipping;
mod evaluation;
mod fixed_batches;
mod footprint;
mod graph_batches;
mod links;
mod loss;
mod objective;
mod precision;
mod progress;
mod random_of_step;
mod ranked;
mod recorded;
mod schedule;
mod snapshot;
#[cfg(feature = "checkpoints")]
pub mod state_dict;
mod subgraph_batches;
mod summary;
mod trainer;
mod type_batches;
mod types;
mod unknown;

pub use batch_sizes::{BatchSizes, TypeSizes};
pub use batches::Batches;
#[cfg(feature = "checkpoints")]
pub use checkpoint::{Checkpoint, CheckpointError};
pub use clipping::Clipping;
pub use footprint::{FeaturesIn, Footprint, Learning, Room, Work};
pub use graph_batches::GraphBatches;
pub use halfgnn_platform::machine::memory as host_memory;
pub use links::{HeldOut, LinkSplit};
pub use loss::Loss;
pub use objective::{Goal, Objective, Split};
pub use precision::MixedPrecision;
pub use progress::{Part, Progress};
pub use schedule::{Decay, Plateau, Schedule};
pub use snapshot::{Snapshot, Tensor, Tensors, load_weights};
pub use subgraph_batches::SubgraphPlan;
pub use summary::{EpochReport, Few, MOST_OTHERS, RunSummary, Score, Spread, Status};
pub use trainer::{BatchReport, CustomLoss, TrainConfig, Trainer};
