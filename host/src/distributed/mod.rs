//! Full-graph training of one model by several ranks, each of which owns some of the vertices.
//!
//! ```text
//!  Partition ─ owner of vertices ──► Shard: own rows × (own + halo), the rows to send
//!                                      │
//!  Group ─ Communicator ─► Halo: own rows ─ pack ─ exchange ─► own rows, then those of others      forward
//!                                own rows ◄─ sum ─ exchange ─  their gradients                     backward
//! ```
//!
//! A rank owns vertices and the edges that lead to them. Its in-neighbours on other ranks are its *halo*. Before each
//! layer that aggregates, their rows follow the own rows in one matrix. A layer therefore sees a
//! [`Block`](crate::graph::Block), as in sampled training, and knows nothing of ranks. In the backward pass the
//! gradients of those rows return to their owners, which sum them in float in the order of ranks.
//!
//! Weights are replicated. Each rank gathers the gradients, the loss, counts and the statistics of batch
//! normalisations, and sums them in the order of ranks. All ranks therefore have the same bits: they take the same
//! step, skip the same overflow and stop at the same epoch. Dropout is sampled by the vertex' number in the whole
//! graph, so it does not depend on the owner of a vertex.
//!
//! - [`Partition`]: the owner of each vertex.
//! - [`Shard`]: a rank's part of a graph, on the host. [`Gather`]: whether ranks receive all rows of others, or their
//!   halo.
//! - `SomeEdges`, with the feature `parts`: some of a graph's edges on each rank, which an exchange brings to their
//!   owners.
//! - [`Communicator`]: the exchange of bytes between ranks. [`in_process`] makes ranks of threads, in which tests
//!   inject a [`Fault`]. [`Tcp`] is a rank that is a process. [`Group::meet`] also serves processes that MPI started,
//!   with the feature `mpi`.
//! - [`Member`]: a process as it comes to a [`Rendezvous`], with the [`Key`] that all share and [digests](Compared) of
//!   its inputs.
//! - [`Group`]: the collective operations of a rank. [`Halo`](crate::nn::Halo): a shard's exchanges on a backend.

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
