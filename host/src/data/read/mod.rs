//! The readers, one for each format.
//!
//! A reader of a single file takes an [`Input`](super::input::Input) and returns a [`DataProblem`](super::DataProblem);
//! whoever opened the file adds its name. A reader of a folder names the file itself.

pub(super) mod edge_list;
pub(super) mod gnn_benchmark;
pub(super) mod matrix_market;
mod npy;
pub(super) mod npz;
pub(super) mod ogb;
mod pairs;
mod pickle;
pub(super) mod planetoid;
pub(super) mod raw_csr;
pub(super) mod reddit;
pub(super) mod scipy;
