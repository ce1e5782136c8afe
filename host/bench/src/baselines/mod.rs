//! What a user would pick instead, run on the same GPU, stream and operands, so that a bench can time both in one run.
//!
//! - [`cusparse`]: NVIDIA's library, opened at run time where it is installed.
//! - [`kernels`]: DGL's way of an SDDMM, and only reading what an SpMM reads.
//! - [`copy`]: the GPU's own copy, which is the time of writing a result.
//!
//! What is made here is ready to be timed: descriptors, workspace and preprocessing are done, and `run` queues the work
//! on the stream of the backend.

pub mod copy;
pub mod cusparse;
pub mod kernels;

use halfgnn::Error;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::{Driver, DriverError};
use halfgnn::graph::Csr;
use halfgnn::tensor::Array;

/// The ends of a graph's edges, in row order, on a device.
#[derive(Debug)]
pub struct EdgeIds<D: Driver> {
    /// Rows and columns of the adjacency.
    shape: (usize, usize),
    rows: Array<Gpu<D>, u32>,
    columns: Array<Gpu<D>, u32>,
}

impl<D: Driver> EdgeIds<D> {
    /// Copies them to the device.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(gpu: &Gpu<D>, graph: &Csr) -> Result<Self, Error> {
        let upload = |ids: &[u32]| Array::from_slice(gpu, ids, MemoryKind::Graph);
        Ok(Self {
            shape: graph.shape(),
            rows: upload(graph.rows())?,
            columns: upload(graph.cols())?,
        })
    }
}

/// A failure of the baseline's own, as one of the device.
fn failed(call: &'static str, reason: String) -> Error {
    Error::Driver(DriverError::Device { call, reason })
}
