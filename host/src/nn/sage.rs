//! GraphSAGE with the mean of the neighbours (Hamilton, Ying and Leskovec, NeurIPS 2017): `H · W_self + D⁻¹ · A · H · W`.
//!
//! Both maps of the neighbours are linear, so a layer does first what makes its rows narrower, or on a sampled block fewer ([`Order`]).

use super::aggregation::{Aggregation, Order, Sending};
use super::architecture::{Architecture, stack};
use super::codes::LayerInput;
use super::messages::Direction;
use super::{
    Context, InputGradient, Kept, Layer, ModelConfig, Norm, Output, OutputGradient, Parameter,
    Place, Propagation, SentBack, Stage,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Epilogue, Form, MatmulFusion, QuantizedMatrix, SpmmEpilogue, SpmmPolicy};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use crate::tensor::{Element, Matrix, padded};
use serde::{Deserialize, Serialize};

/// `H · W_self + mean(H) · W` (Hamilton, Ying and Leskovec, NeurIPS 2017), two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sage;

impl Architecture for Sage {
    const NAME: &'static str = "sage";
    const TITLE: &'static str = "GraphSAGE with the mean of the neighbours (Hamilton et al.)";

    fn norm(&self) -> Norm {
        Norm::Right
    }

    fn reads_in_place(&self, model: &ModelConfig) -> bool {
        let (inputs, outputs) = model.layer(0);
        Order::choose_on_block(inputs, outputs, model.policy) == Order::AggregateFirst
    }

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        let edges = reads.edges;
        let outputs = model.layer(number).1;
        Some(Box::new(formulas::Sage { edges, outputs }))
    }

    fn stages<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        stack(model, seed, |place, widths| {
            SageLayer::new(backend, place, widths, model.policy)
        })
    }
}

impl ModelConfig {
    /// GraphSAGE with the mean of the neighbours: two layers of 64 with dropout 0.5.
    pub fn sage(features: usize, classes: usize) -> Self {
        Self::of(Sage, features, classes)
    }
}

/// The layer of a [`Sage`].
#[derive(Debug)]
pub struct SageLayer<B: Backend, E: Element> {
    aggregation: Aggregation,
    itself: Parameter<B, E>,
    neighbours: Parameter<B, E>,
    order: Order,
    /// That of a step on a [block](Context::learns_on_block).
    order_on_block: Order,
    /// The mean of the neighbours, where the layer has aggregated first.
    aggregated: Option<Kept<B, E>>,
    /// Whether the last forward pass did.
    has_aggregated: bool,
    /// The rows of the destinations, where the input has those of all vertices.
    picked: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> SageLayer<B, E> {
    /// A layer of so many inputs and outputs.
    ///
    /// # Errors
    /// Those of [`Parameter::weights`].
    pub fn new(
        backend: &B,
        place: Place,
        (inputs, outputs): (usize, usize),
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        let shape = (inputs, outputs);
        Ok(Self {
            aggregation: Aggregation {
                policy,
                factor: 1.0,
            },
            itself: place.weights(backend, "self.weight", shape, 0)?,
            neighbours: place.weights(backend, "neighbours.weight", shape, 1)?,
            order: Order::choose(inputs, outputs, policy),
            order_on_block: Order::choose_on_block(inputs, outputs, policy),
            aggregated: None,
            has_aggregated: false,
            picked: None,
        })
    }

    fn aggregates_first(&self, at: &Context<'_, B, E>) -> bool {
        let order = match at.learns_on_block() {
            true => self.order_on_block,
            false => self.order,
        };
        order == Order::AggregateFirst
    }

    fn backward_of_input(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: LayerInput<'_, B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let sum = SpmmEpilogue::default();
        let picked = self.picked.as_ref().filter(|_| at.picks_rows());
        let own = picked.map_or(x, |picked| LayerInput::Elements(picked.get()));
        dy.weight_gradient_of(own, self.itself.gradient_mut())?;
        let d = dy.matrix();
        let itself = self.itself.values();
        let (neighbours, gradient) = self.neighbours.values_and_gradient();
        let aggregated = self.aggregated.as_ref().filter(|_| self.has_aggregated);
        if let Some(aggregated) = aggregated {
            ops::matmul(backend, Form::TN, aggregated.get(), d, &plain, gradient)?;
            if !dx.is_wanted() {
                return Ok(());
            }
            let mut product = at.take(x.columns())?;
            let sending = Sending {
                direction: Direction::Backward,
                scaled: false,
                alone: true,
            };
            sending.product(at, Form::NT, [d, neighbours], &plain, &mut product)?;
            dx.aggregate(at, self.aggregation, false, &product)?;
            at.give(product);
            return dx.add_product(at, (d, itself));
        }
        // Where the product of the forward pass was.
        let mut heard = at.take_sent(at.sources(x.rows()), d.columns())?;
        self.aggregation.backward(at, false, sum, d, &mut heard)?;
        let heard = at.fold(heard)?;
        dx.two_products(at, [(&heard, neighbours), (d, itself)])?;
        x.weight_gradient(backend, &heard, gradient)?;
        at.give(heard);
        Ok(())
    }
}

impl<B: Backend, E: Element> Layer<B, E> for SageLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.itself.shape()
    }

    fn hears_sums_alone(&self) -> bool {
        true
    }

    fn picks_own_rows(&self) -> bool {
        true
    }

    fn exchanges_products(&self, _graph: &Propagation<B>) -> bool {
        let (inputs, width) = self.itself.shape();
        self.order == Order::TransformFirst && width <= padded::<E>(inputs)
    }

    fn message_columns(&self) -> Option<usize> {
        Some(match self.order {
            Order::AggregateFirst => self.itself.shape().0,
            Order::TransformFirst => self.itself.shape().1,
        })
    }

    fn sends_back(&self) -> SentBack {
        match self.order {
            Order::AggregateFirst => SentBack::Own,
            Order::TransformFirst => SentBack::ScaledGradient,
        }
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, plain) = (at.backend, Epilogue::default());
        let sum = SpmmEpilogue::default();
        let columns = y.columns();
        self.has_aggregated = self.aggregates_first(at);
        if self.has_aggregated {
            let aggregated = match &mut self.aggregated {
                Some(aggregated) => aggregated,
                none => none.insert(Kept::new(backend, x.columns())?),
            };
            let aggregated = aggregated.room(backend, at.rows())?;
            self.aggregation.forward(at, false, sum, x, aggregated)?;
            let of_neighbours = [&*aggregated, self.neighbours.values()];
            let own = at.first_or_picked(x, &mut self.picked)?;
            return y.two_products([of_neighbours, [own, self.itself.values()]]);
        }
        let mut product = at.take_sent(at.sources(x.rows()), columns)?;
        let sending = Sending {
            direction: Direction::Forward,
            scaled: false,
            alone: true,
        };
        let neighbours = self.neighbours.values();
        at.product_of_sources(sending, (x, neighbours), &plain, &mut product)?;
        self.aggregation
            .forward(at, false, sum, &product, y.matrix())?;
        at.give(product);
        let own = MatmulFusion {
            first_rows: Some(at.rows()),
            ..MatmulFusion::default()
        };
        let itself = self.itself.values();
        let mut product = at.take(columns)?;
        let x = at.first_or_picked(x, &mut self.picked)?;
        ops::matmul_fused(backend, Form::NN, x, itself, &plain, own, &mut product)?;
        y.add(&product)?;
        at.give(product);
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        self.backward_of_input(at, LayerInput::Elements(x), dy, dx)
    }

    fn store_codes(&mut self, _backend: &B) -> Result<bool, Error> {
        Ok(true)
    }

    fn backward_of_codes(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &QuantizedMatrix<B>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        self.backward_of_input(at, LayerInput::Codes(x), dy, dx)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.itself, &self.neighbours]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.itself, &mut self.neighbours]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let aggregated = self.aggregated.iter().filter(|_| self.has_aggregated);
        aggregated.map(|kept| ("aggregated", kept.get())).collect()
    }
}
