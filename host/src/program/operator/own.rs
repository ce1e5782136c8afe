//! Operators of the caller's own.

use crate::backend::Backend;
use crate::error::Error;
use crate::program::value::{Shape, Value};
use crate::tensor::{Element, Matrix};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// An operator that a caller adds: what it computes, and its gradients as operators of the same kind.
///
/// A type that is generic over the backend, such as one that holds compiled kernels, implements it for the backends that it knows.
/// [`Builder::own`](crate::program::Builder::own) puts it into a formula.
pub trait OwnOperator: fmt::Debug + Send + Sync {
    /// The name in the text of a program.
    fn name(&self) -> &str;

    /// The shape of the result, of those of the operands.
    ///
    /// # Errors
    /// What is wrong with the operands.
    fn shape(&self, operands: &[Shape]) -> Result<Shape, String>;

    /// The operator that gives the gradient of operand `number`. It reads the operands, the result, and the gradient of the result. None
    /// where the operand has no gradient.
    fn gradient(&self, number: usize) -> Option<Arc<dyn OwnOperator>>;

    /// Computes the result.
    ///
    /// # Errors
    /// Those of the device, and of [`OwnCall::on`] on a backend or in a precision that it does not know.
    fn run(&self, call: OwnCall<'_>) -> Result<(), Error>;
}

/// A call of an [`OwnOperator`].
#[derive(Debug)]
pub struct OwnCall<'a> {
    name: &'a str,
    backend: &'a dyn Any,
    operands: Vec<&'a dyn Any>,
    result: &'a mut dyn Any,
}

/// What an [`OwnOperator`] computes with on a known backend, in a known precision.
#[derive(Debug)]
pub struct OwnOperands<'a, B: Backend, E: Element> {
    /// The backend.
    pub backend: &'a B,
    /// The operands.
    pub operands: Vec<&'a Matrix<B, E>>,
    /// Memory for the result, of any content.
    pub result: &'a mut Matrix<B, E>,
}

impl<'a> OwnCall<'a> {
    pub(in crate::program) fn new<B: Backend, E: Element>(
        name: &'a str,
        of: OwnOperands<'a, B, E>,
    ) -> Self {
        let operands = of.operands.into_iter();
        Self {
            name,
            backend: of.backend,
            operands: operands.map(|operand| operand as &dyn Any).collect(),
            result: of.result,
        }
    }

    /// The operands, where the program runs on the backend `B` and in the precision `E`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it runs on another backend or in another precision.
    pub fn on<B: Backend, E: Element>(self) -> Result<OwnOperands<'a, B, E>, Error> {
        let name = self.name;
        let refused = || Error::Unsupported {
            operator: "Program",
            reason: format!("{name} is not written for this backend or this precision"),
        };
        let operands = self.operands.into_iter();
        let operands: Option<Vec<&Matrix<B, E>>> = operands.map(<dyn Any>::downcast_ref).collect();
        Ok(OwnOperands {
            backend: self.backend.downcast_ref().ok_or_else(refused)?,
            operands: operands.ok_or_else(refused)?,
            result: self.result.downcast_mut().ok_or_else(refused)?,
        })
    }
}

/// An [`OwnOperator`] with its operands. Two are equal where they are one operator of the same operands.
#[derive(Clone, Debug)]
pub struct Own {
    /// The operator.
    pub operator: Arc<dyn OwnOperator>,
    /// The operands.
    pub operands: Vec<Value>,
}

impl PartialEq for Own {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.operator, &other.operator) && self.operands == other.operands
    }
}
