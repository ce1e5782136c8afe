//! A linear layer, which sees no neighbours: `H · W`.

use super::{Context, InputGradient, Layer, Output, OutputGradient, Parameter, Place};
use crate::backend::Backend;
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// `H · W`. Its bias, if it has one, is the [stage's](super::Stage::bias).
#[derive(Debug)]
pub struct Dense<B: Backend, E: Element> {
    weight: Parameter<B, E>,
}

impl<B: Backend, E: Element> Dense<B, E> {
    /// A layer of so many inputs and outputs.
    ///
    /// # Errors
    /// Those of [`Parameter::weights`].
    pub fn new(backend: &B, place: Place, widths: (usize, usize)) -> Result<Self, Error> {
        Ok(Self {
            weight: place.weights(backend, "weight", widths, 0)?,
        })
    }
}

impl<B: Backend, E: Element> Layer<B, E> for Dense<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weight.shape()
    }

    fn aggregates(&self) -> bool {
        false
    }

    fn forward(
        &mut self,
        _at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        y.product(None, x, self.weight.values())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (weight, gradient) = self.weight.values_and_gradient();
        dy.weight_gradient(1.0, None, x, gradient)?;
        dx.product(at, dy.matrix(), weight)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }
}
