//! Training of one model on a whole graph by several ranks, each of which has some of its vertices.
//!
//! ```text
//!  Partition ─ whose vertex is it ─► Shard: own rows × (own + halo), which rows others want
//!                                      │
//!  Group ─ Communicator ─► Halo: own rows ─ pack ─ exchange ─► own rows, then those of others      forward
//!                                own rows ◄─ sum ─ exchange ─  their gradients                     backward
//! ```
//!
//! A rank owns vertices, and the edges that lead to them. What it hears from vertices of others, its *halo*, comes behind its own
//! rows in one matrix before each layer that hears from neighbours, so a layer sees a [`Block`](crate::graph::Block) as it does in
//! sampled training, and knows nothing of ranks. Backward the gradients of those rows go back to whose they are, and are added up
//! in float in the order of ranks.
//!
//! Weights are every rank's. Their gradients, the loss, counts and the statistics of batch normalisations are gathered and added up
//! in the order of ranks on each, so all have the same bits, and take the same step, skip the same overflow and stop at the same epoch.
//! Dropout is drawn by the vertex' number in the whole graph: whoever owns a vertex drops the same of it.
//!
//! - [`Partition`]: which rank has which vertex.
//! - [`Shard`]: what a rank has of a graph, on the host. [`Gather`]: whether others give it all their rows, or those that it hears.
//! - `SomeEdges`, with the feature `parts`: edges of a graph that each rank has some of, and their way to whom they belong.
//! - [`Communicator`]: how ranks hear of one another; [`in_process`] makes one of threads, [`Fault`] what can go wrong with it;
//!   [`Tcp`] is one of processes, and [`Group::meet`] makes another of those that MPI started, with the feature `mpi`.
//! - [`Member`]: a process as it comes to a [`Rendezvous`], with the [`Key`] that all share and [digests](Compared) of what it works on.
//! - [`Group`]: ranks at work. [`Halo`](crate::nn::Halo): a shard's exchanges on a backend.

mod communicator;
#[cfg(feature = "parts")]
mod deal;
mod digest;
mod fault;
mod gather;
mod greeting;
mod group;
mod in_process;
mod meeting;
#[cfg(feature = "mpi")]
mod mpi;
mod partition;
mod rendezvous;
mod shard;
#[cfg(test)]
mod strangers;
mod tcp;
#[cfg(test)]
mod tests;

pub use crate::data::digest::Digest;
pub use communicator::{Communicator, Place};
#[cfg(feature = "parts")]
pub use deal::{DealtEdges, SomeEdges};
pub use digest::Compared;
pub use fault::{Fault, FaultKind};
pub use gather::Gather;
pub use group::{GatherPool, Group};
pub use in_process::{InProcess, in_process};
pub use meeting::Member;
pub use partition::{Balance, Partition, PartitionError};
pub use rendezvous::{KEY_VARIABLE, Key, Rendezvous};
pub use shard::Shard;
#[cfg(feature = "parts")]
pub(crate) use shard::all_to_others;
pub use tcp::Tcp;
