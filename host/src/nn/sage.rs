//! GraphSAGE with the mean of the neighbours (Hamilton, Ying and Leskovec, NeurIPS 2017): `H · W_self + D⁻¹ · A · H · W`.
//!
//! Both maps of the neighbours are linear, so a layer does first what makes its rows narrower ([`Order`]).

use super::convolution::{Aggregation, Blueprint, Context, Convolution, Order, Place};
use super::{MemoryPlan, Parameter};
use crate::backend::{Backend, Combine, Epilogue, Form, MemoryKind, SpmmEpilogue, SpmmPolicy};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Element, Matrix};

/// The shape of a [`SageConvolution`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SageBlueprint {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) policy: SpmmPolicy,
}

impl SageBlueprint {
    fn order(&self) -> Order {
        Order::choose(self.inputs, self.outputs, self.policy)
    }

    pub(super) fn make<B: Backend, E: Element>(
        &self,
        backend: &B,
        place: Place,
    ) -> Result<SageConvolution<B, E>, Error> {
        let shape = (self.inputs, self.outputs);
        Ok(SageConvolution {
            aggregation: Aggregation {
                policy: self.policy,
                factor: 1.0,
            },
            itself: place.weights(backend, "self.weight", shape, 0)?,
            neighbours: place.weights(backend, "neighbours.weight", shape, 1)?,
            aggregated: match self.order() {
                Order::AggregateFirst => Some(Matrix::zeros(
                    backend,
                    place.vertices,
                    self.inputs,
                    MemoryKind::Activations,
                )?),
                Order::TransformFirst => None,
            },
        })
    }
}

impl Blueprint for SageBlueprint {
    fn keeps(&self, plan: &mut MemoryPlan) {
        plan.weights(self.inputs, self.outputs);
        plan.weights(self.inputs, self.outputs);
        plan.aggregation(self.order().width(self.inputs, self.outputs), None);
        if self.order() == Order::AggregateFirst {
            plan.keep(self.inputs);
        }
    }

    fn forward(&self, plan: &mut MemoryPlan) {
        plan.take(self.outputs);
        plan.give(self.outputs);
    }

    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool) {
        if self.order() == Order::TransformFirst {
            plan.take(self.outputs);
        }
        if wants_input {
            plan.take(self.inputs);
            plan.take(self.inputs);
            plan.give(self.inputs);
        }
        if self.order() == Order::TransformFirst {
            plan.give(self.outputs);
        }
    }
}

#[derive(Debug)]
pub(super) struct SageConvolution<B: Backend, E: Element> {
    aggregation: Aggregation,
    itself: Parameter<B, E>,
    neighbours: Parameter<B, E>,
    /// The mean of the neighbours, where the layer aggregates first.
    aggregated: Option<Matrix<B, E>>,
}

impl<B: Backend, E: Element> Convolution<B, E> for SageConvolution<B, E> {
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let sum = SpmmEpilogue::default();
        let neighbours = self.neighbours.values();
        let mut product = at.take(y.columns())?;
        if let Some(aggregated) = &mut self.aggregated {
            self.aggregation.forward(at, false, sum, x, aggregated)?;
            ops::matmul(backend, Form::NN, aggregated, neighbours, &plain, y)?;
        } else {
            ops::matmul(backend, Form::NN, x, neighbours, &plain, &mut product)?;
            self.aggregation.forward(at, false, sum, &product, y)?;
        }
        let itself = self.itself.values();
        ops::matmul(backend, Form::NN, x, itself, &plain, &mut product)?;
        ops::combine(backend, &Combine::sum(), &product, y)?;
        at.pool.give(product);
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        wants_input: bool,
    ) -> Result<Option<Matrix<B, E>>, Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let sum = SpmmEpilogue::default();
        at.weight_gradient(x, d, self.itself.gradient_mut())?;
        let (itself, gradient) = (self.itself.values(), self.neighbours.gradient_mut());
        if let Some(aggregated) = &self.aggregated {
            ops::matmul(backend, Form::TN, aggregated, d, &plain, gradient)?;
            if !wants_input {
                return Ok(None);
            }
            let neighbours = self.neighbours.values();
            let mut product = at.take(x.columns())?;
            ops::matmul(backend, Form::NT, d, neighbours, &plain, &mut product)?;
            let mut dx = at.take(x.columns())?;
            self.aggregation
                .backward(at, false, sum, &product, &mut dx)?;
            ops::matmul(backend, Form::NT, d, itself, &plain, &mut product)?;
            ops::combine(backend, &Combine::sum(), &product, &mut dx)?;
            at.pool.give(product);
            return Ok(Some(dx));
        }
        let mut heard = at.take(d.columns())?;
        self.aggregation.backward(at, false, sum, d, &mut heard)?;
        ops::matmul(backend, Form::TN, x, &heard, &plain, gradient)?;
        let dx = if wants_input {
            let neighbours = self.neighbours.values();
            let mut product = at.take(x.columns())?;
            ops::matmul(backend, Form::NT, &heard, neighbours, &plain, &mut product)?;
            let mut dx = at.take(x.columns())?;
            ops::matmul(backend, Form::NT, d, itself, &plain, &mut dx)?;
            ops::combine(backend, &Combine::sum(), &product, &mut dx)?;
            at.pool.give(product);
            Some(dx)
        } else {
            None
        };
        at.pool.give(heard);
        Ok(dx)
    }

    fn sums_columns(&self) -> bool {
        true
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.itself, &self.neighbours]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.itself, &mut self.neighbours]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        self.aggregated
            .iter()
            .map(|kept| ("aggregated", kept))
            .collect()
    }
}
