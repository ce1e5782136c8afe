//! `halfgnn._core`: what the Python package calls. Everything takes addresses and sizes; that they are those of arrays
//! that live, with elements of the right type on the right device, is what the Python side sees to, which is the only
//! one to call it.

#[cfg(feature = "cuda")]
mod card;
mod construct;
mod dispatcher;
mod errors;
mod memory;
mod operators;
mod place;
mod rows;
mod sample;
mod threads;
mod train;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::construct::{Adjacency, adjacency, transposed};
    #[pymodule_export]
    use super::dispatcher::register;
    #[pymodule_export]
    use super::errors::DeviceOutOfMemoryError;
    #[pymodule_export]
    use super::operators::{
        dot_backward, dot_forward, edge_softmax, edge_softmax_backward, gat_backward, gat_forward,
        gathered_stride, gatv2_backward, gatv2_forward, messages_backward, messages_forward,
        reduce_backward, reduce_forward, sddmm, spmm,
    };
    #[pymodule_export]
    use super::place::{emulate, kernels, kernels_in, load, processor, survey};
    #[pymodule_export]
    use super::rows::{Rows, Stored};
    #[pymodule_export]
    use super::sample::{Sampler, Vertices};
    #[pymodule_export]
    use super::threads::{set_threads, threads};
    #[pymodule_export]
    use super::train::{Data, Trainer, is_mask, limits, nearest};

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        use super::PyModuleMethods;
        super::threads::check_environment(module.py())?;
        module.add("LARGE", super::dispatcher::LARGE)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
