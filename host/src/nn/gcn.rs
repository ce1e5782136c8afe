//! The graph convolution of Kipf and Welling (ICLR 2017): `R · A · C · H · W` with the degree norms `R` and `C`.
//!
//! Both maps are linear, so a layer does first what makes its rows narrower ([`Order`]).

use super::convolution::{Aggregation, Blueprint, Context, Convolution, Order, Place};
use super::{MemoryPlan, Parameter};
use crate::backend::{Activation, Backend, Epilogue, Form, MemoryKind, SpmmEpilogue, SpmmPolicy};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Element, Matrix};

/// The shape of a [`GcnConvolution`].
#[derive(Clone, Copy, Debug)]
pub(super) struct GcnBlueprint {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) policy: SpmmPolicy,
}

impl GcnBlueprint {
    fn order(&self) -> Order {
        Order::choose(self.inputs, self.outputs, self.policy)
    }

    pub(super) fn make<B: Backend, E: Element>(
        &self,
        backend: &B,
        place: Place,
    ) -> Result<GcnConvolution<B, E>, Error> {
        let activations =
            |columns| Matrix::zeros(backend, place.vertices, columns, MemoryKind::Activations);
        Ok(GcnConvolution {
            aggregation: Aggregation {
                policy: self.policy,
                factor: 1.0,
            },
            weight: place.weights(backend, "weight", (self.inputs, self.outputs), 0)?,
            aggregated: match self.order() {
                Order::AggregateFirst => Some(activations(self.inputs)?),
                Order::TransformFirst => None,
            },
        })
    }
}

impl Blueprint for GcnBlueprint {
    fn keeps(&self, plan: &mut MemoryPlan) {
        plan.weights(self.inputs, self.outputs);
        plan.aggregation(self.order().width(self.inputs, self.outputs), None);
        if self.order() == Order::AggregateFirst {
            plan.keep(self.inputs);
        }
    }

    fn forward(&self, plan: &mut MemoryPlan) {
        if self.order() == Order::TransformFirst {
            plan.take(self.outputs);
            plan.give(self.outputs);
        }
    }

    fn backward(&self, plan: &mut MemoryPlan, wants_input: bool) {
        let lent = match self.order() {
            Order::TransformFirst => Some(self.outputs),
            Order::AggregateFirst => wants_input.then_some(self.inputs),
        };
        lent.into_iter().for_each(|columns| plan.take(columns));
        if wants_input {
            plan.take(self.inputs);
        }
        lent.into_iter().for_each(|columns| plan.give(columns));
    }
}

#[derive(Debug)]
pub(super) struct GcnConvolution<B: Backend, E: Element> {
    aggregation: Aggregation,
    weight: Parameter<B, E>,
    /// `R · A · C · H`, where the layer aggregates first.
    aggregated: Option<Matrix<B, E>>,
}

impl<B: Backend, E: Element> Convolution<B, E> for GcnConvolution<B, E> {
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let weight = self.weight.values();
        if let Some(aggregated) = &mut self.aggregated {
            let plain = SpmmEpilogue::default();
            self.aggregation.forward(at, false, plain, x, aggregated)?;
            let epilogue = at.epilogue();
            return ops::matmul(at.backend, Form::NN, aggregated, weight, &epilogue, y);
        }
        let mut product = at.take(y.columns())?;
        let scaled = Epilogue {
            row_scale: at.graph.column_scale(),
            ..Epilogue::default()
        };
        ops::matmul(at.backend, Form::NN, x, weight, &scaled, &mut product)?;
        let epilogue = at.spmm_epilogue();
        self.aggregation.forward(at, true, epilogue, &product, y)?;
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
        let backend = at.backend;
        let plain = SpmmEpilogue::default();
        if let Some(aggregated) = &self.aggregated {
            at.weight_gradient(aggregated, d, self.weight.gradient_mut())?;
            if !wants_input {
                return Ok(None);
            }
            let mut sent = at.take(x.columns())?;
            let scaled = Epilogue {
                row_scale: at.graph.row_scale(),
                ..Epilogue::default()
            };
            let weight = self.weight.values();
            ops::matmul(backend, Form::NT, d, weight, &scaled, &mut sent)?;
            let mut dx = at.take(x.columns())?;
            self.aggregation.backward(at, true, plain, &sent, &mut dx)?;
            at.pool.give(sent);
            return Ok(Some(dx));
        }
        if at.graph.row_scale().is_some() {
            let scale_rows = Activation {
                bias: None,
                relu: false,
                dropout: None,
            };
            ops::activate_backward(backend, &scale_rows, None, at.graph.row_scale(), d)?;
        }
        let mut product = at.take(d.columns())?;
        self.aggregation
            .backward(at, true, plain, d, &mut product)?;
        at.weight_gradient(x, &product, self.weight.gradient_mut())?;
        let dx = if wants_input {
            Some(at.input_gradient(x, &product, self.weight.values())?)
        } else {
            None
        };
        at.pool.give(product);
        Ok(dx)
    }

    fn sums_columns(&self) -> bool {
        self.aggregated.is_some()
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        self.aggregated
            .iter()
            .map(|kept| ("aggregated", kept))
            .collect()
    }
}
