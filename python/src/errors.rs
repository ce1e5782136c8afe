//! Errors as Python's exceptions, each with its one line.

use halfgnn::Error;
use halfgnn::driver::DriverError;
use halfgnn::graph::GraphError;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, create_exception};

create_exception!(
    halfgnn._core,
    DeviceOutOfMemoryError,
    PyMemoryError,
    "A device has less memory than an operator asked for."
);

/// The exception that a person expects of such an error.
pub fn exception(error: Error) -> PyErr {
    let line = error.to_string();
    match error {
        Error::Graph(GraphError::VertexOutOfRange { .. }) => PyIndexError::new_err(line),
        Error::Shape { .. }
        | Error::Unsupported { .. }
        | Error::TooLarge { .. }
        | Error::Elsewhere { .. }
        | Error::Graph(_) => PyValueError::new_err(line),
        Error::Driver(DriverError::OutOfMemory { .. }) => DeviceOutOfMemoryError::new_err(line),
        Error::Driver(DriverError::Device { call: "malloc", .. }) => PyMemoryError::new_err(line),
        _ => PyRuntimeError::new_err(line),
    }
}
