//! The graph convolution of Kipf and Welling (ICLR 2017): `R · A · C · H · W` with the degree norms `R` and `C`.
//!
//! Both maps are linear, so a layer does first what makes its rows narrower ([`Order`]).

use super::aggregation::{Aggregation, Order, Sending};
use super::architecture::{Architecture, LayerOption, norm, norm_option, stack, store};
use super::codes::LayerInput;
use super::messages::Direction;
use super::{
    Context, InputGradient, Kept, Layer, ModelConfig, Norm, Output, OutputGradient, Parameter,
    Place, Propagation, SentBack, Stage,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Activation, Epilogue, Form, QuantizedMatrix, SpmmEpilogue, SpmmPolicy};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use crate::tensor::{Element, Matrix, padded};
use serde::{Deserialize, Serialize};

/// `R · A · C · H · W` (Kipf and Welling, ICLR 2017), two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gcn {
    /// The degree norms `R` and `C`.
    pub norm: Norm,
}

impl Architecture for Gcn {
    const NAME: &'static str = "gcn";
    const TITLE: &'static str = "Graph convolutional network (Kipf and Welling)";
    const OPTIONS: &'static [LayerOption<Self>] =
        &[norm_option(|gcn, text| store(&mut gcn.norm, norm(text)))];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn reads_in_place(&self, model: &ModelConfig) -> bool {
        let (inputs, outputs) = model.layer(0);
        Order::choose(inputs, outputs, model.policy) == Order::AggregateFirst
    }

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        let edges = reads.edges;
        let outputs = model.layer(number).1;
        Some(Box::new(formulas::Gcn { edges, outputs }))
    }

    fn stages<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        stack(model, seed, |place, widths| {
            GcnLayer::new(backend, place, widths, model.policy)
        })
    }
}

impl ModelConfig {
    /// A graph convolutional network: two layers of 64 with dropout 0.5 and symmetric degree norms.
    pub fn gcn(features: usize, classes: usize) -> Self {
        Self::of(Gcn::default(), features, classes)
    }
}

/// The layer of a [`Gcn`].
#[derive(Debug)]
pub struct GcnLayer<B: Backend, E: Element> {
    aggregation: Aggregation,
    weight: Parameter<B, E>,
    /// `R · A · C · H`, where the layer aggregates first.
    aggregated: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> GcnLayer<B, E> {
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
        Ok(Self {
            aggregation: Aggregation {
                policy,
                factor: 1.0,
            },
            weight: place.weights(backend, "weight", (inputs, outputs), 0)?,
            aggregated: match Order::choose(inputs, outputs, policy) {
                Order::AggregateFirst => Some(Kept::new(backend, inputs)?),
                Order::TransformFirst => None,
            },
        })
    }

    fn backward_of_input(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: LayerInput<'_, B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        let plain = SpmmEpilogue::default();
        let (weight, gradient) = self.weight.values_and_gradient();
        if let Some(aggregated) = &self.aggregated {
            dy.weight_gradient(1.0, None, aggregated.get(), gradient)?;
            if !dx.is_wanted() {
                return Ok(());
            }
            let mut sent = at.take_sent(at.rows(), x.columns())?;
            let scaled = Epilogue {
                row_scale: at.graph()?.row_scale(),
                ..Epilogue::default()
            };
            let sending = Sending {
                direction: Direction::Backward,
                scaled: true,
                alone: true,
            };
            let of = [dy.matrix(), weight];
            sending.product(at, Form::NT, of, &scaled, &mut sent)?;
            dx.aggregate(at, self.aggregation, true, &sent)?;
            at.give(sent);
            return Ok(());
        }
        // Codes have the factors of rows in them, where they cost nothing.
        let scaled = at.messages.is_none();
        if let Some(row_scale) = at.graph()?.row_scale().filter(|_| scaled) {
            let scale_rows = Activation {
                bias: None,
                relu: false,
                dropout: None,
            };
            let d = dy.overwrite()?;
            ops::activate_backward(backend, &scale_rows, None, Some(row_scale), d)?;
        }
        let d = dy.matrix();
        // Where that of the forward pass was.
        let mut product = at.take_sent(at.sources(x.rows()), d.columns())?;
        self.aggregation
            .backward(at, scaled, plain, d, &mut product)?;
        let product = at.fold(product)?;
        // Where rows are exchanged around the layer the one gradient goes while the other is computed.
        dx.product(at, &product, weight)?;
        x.weight_gradient(backend, &product, gradient)?;
        at.give(product);
        Ok(())
    }
}

impl<B: Backend, E: Element> Layer<B, E> for GcnLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weight.shape()
    }

    fn hears_sums_alone(&self) -> bool {
        true
    }

    fn picks_own_rows(&self) -> bool {
        true
    }

    fn exchanges_products(&self, graph: &Propagation<B>) -> bool {
        let (inputs, width) = self.weight.shape();
        let is_narrow = width <= padded::<E>(inputs);
        self.aggregated.is_none() && is_narrow && graph.has_sent_scale()
    }

    fn message_columns(&self) -> Option<usize> {
        Some(match &self.aggregated {
            Some(_) => self.weight.shape().0,
            None => self.weight.shape().1,
        })
    }

    fn sends_back(&self) -> SentBack {
        match self.aggregated {
            Some(_) => SentBack::Own,
            None => SentBack::ScaledGradient,
        }
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let weight = self.weight.values();
        if let Some(aggregated) = &mut self.aggregated {
            let plain = SpmmEpilogue::default();
            let aggregated = aggregated.room(at.backend, at.rows())?;
            self.aggregation.forward(at, false, plain, x, aggregated)?;
            return y.product(None, aggregated, weight);
        }
        let mut product = at.take_sent(at.sources(x.rows()), y.columns())?;
        let own_alone = at.exchanges_codes() || at.exchange.is_some();
        let scaled = Epilogue {
            row_scale: at.graph()?.sent_scale(own_alone),
            ..Epilogue::default()
        };
        let sending = Sending {
            direction: Direction::Forward,
            scaled: true,
            alone: true,
        };
        at.product_of_sources(sending, (x, weight), &scaled, &mut product)?;
        y.aggregate(at, self.aggregation, true, None, &product)?;
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
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let aggregated = self.aggregated.iter();
        aggregated.map(|kept| ("aggregated", kept.get())).collect()
    }
}
