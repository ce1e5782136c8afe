//! The errors of the crate: what was wrong, where, and what to do, in one line each.

use crate::driver::DriverError;
use crate::driver::kernels::KernelsError;

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// An operand of the wrong size. Nothing was launched.
    #[error("{operator}: {operand} should be {expected}, is {actual}")]
    Shape {
        /// The operator that was called.
        operator: &'static str,
        /// The operand and the dimension.
        operand: &'static str,
        /// What it should be.
        expected: usize,
        /// What it is.
        actual: usize,
    },
    /// An operand of another device, or of another backend of the same device.
    #[error(
        "{what} does not lie on {device}, where it is wanted: make it on the backend that is to use it"
    )]
    Elsewhere {
        /// The operand.
        what: String,
        /// The device whose backend was called.
        device: String,
    },
    /// A matrix with more elements than can be addressed.
    #[error("a matrix of {rows} x {columns} has more bytes than can be addressed")]
    TooLarge {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// Ranks of one training that do not agree, or one that does not answer.
    #[error("{0}")]
    Communication(String),
    /// Features on disk that could not be read when they were wanted.
    #[error("{0}")]
    Features(String),
    /// A value that an operator does not take.
    #[error("{operator}: {reason}")]
    Unsupported {
        /// The operator that was called.
        operator: &'static str,
        /// What is not supported, and what is.
        reason: String,
    },
    /// Kernels that do not fit this build of the host.
    #[error("{0}; build them again with `cargo xtask build-ptx`")]
    Contract(String),
    /// A graph that is not one.
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
}

impl From<KernelsError> for Error {
    fn from(error: KernelsError) -> Self {
        Error::Contract(error.reason)
    }
}

impl Error {
    /// [`Error::Shape`] unless `actual` is `expected`.
    ///
    /// # Errors
    /// That it is not.
    pub fn expect(
        operator: &'static str,
        operand: &'static str,
        expected: usize,
        actual: usize,
    ) -> Result<(), Error> {
        if expected == actual {
            Ok(())
        } else {
            Err(Error::Shape {
                operator,
                operand,
                expected,
                actual,
            })
        }
    }
}
