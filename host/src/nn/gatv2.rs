//! The graph attention network of Brody, Alon and Yahav (ICLR 2022): as GAT's, but with the vector of a score behind its LeakyReLU, so
//! that which neighbour counts most depends on who hears it.
//!
//! `l = H · W_l + b_l`, `r = H · W_r + b_r`, `e(i,j) = a · LeakyReLU(r_i + l_j)`, `α(i, ·) = softmax(e(i, ·))`, `y_i = Σ_j α(i,j) · l_j`, for
//! several heads side by side, which are concatenated or, in the last layer, averaged.
//!
//! [`ops::AdditiveAttention`] does what lies between the maps. Of an edge a float or two for each head is lent for the length of a pass,
//! and nothing kept.

use super::architecture::{Architecture, LayerOption, number, probability, stack, store};
use super::heads::{self, Heads, Joining};
use super::{
    Context, InputGradient, Kept, Layer, ModelConfig, Norm, Output, OutputGradient, Parameter,
    Place, Stage,
};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{
    self, AdditiveAttention, AdditiveBackward, AdditiveFeatures, AdditiveRoom, Combine, Epilogue,
    Form, SpmmPolicy, edge_values,
};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use crate::tensor::{Element, Matrix};
use serde::{Deserialize, Serialize};

/// Attention (Brody, Alon and Yahav, ICLR 2022), three layers of 64 with one head and dropout 0.5. With several heads a hidden
/// layer has them side by side, so its width must be a multiple of them; the last layer has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatV2 {
    /// Heads of every layer.
    pub heads: usize,
    /// Slope of the LeakyReLU of the scores below zero.
    pub slope: f32,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub attention_dropout: f32,
    /// Whether destinations and sources have one map, `W_r = W_l`.
    pub share_weights: bool,
}

impl Default for GatV2 {
    fn default() -> Self {
        Self {
            heads: 1,
            slope: 0.2,
            attention_dropout: 0.0,
            share_weights: false,
        }
    }
}

const NO_EDGE_TERM: &str = "GATv2's scores have no term for edges here, as GAT's have";

impl Architecture for GatV2 {
    const NAME: &'static str = "gatv2";
    const TITLE: &'static str = "Graph attention network whose attention is dynamic (Brody et al.)";
    const POLICY: Result<(), &'static str> = Err("GATv2's attention is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> = Err(NO_EDGE_TERM);
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "heads",
            value: "N",
            help: "number of heads [default: 1]",
            set: |gat, text| store(&mut gat.heads, number(text, 1..=65535)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "attention-dropout",
            value: "P",
            help: "probability of an edge to be dropped in training [default: 0]",
            set: |gat, text| store(&mut gat.attention_dropout, probability(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "share-weights",
            help: "one map for destinations and sources",
            set: |gat, _| {
                gat.share_weights = true;
                Ok(())
            },
            ..LayerOption::NONE
        },
    ];

    fn shape(&self, model: &mut ModelConfig) {
        model.layers = 3;
        model.hidden = model.hidden.next_multiple_of(self.heads.max(1));
    }

    fn norm(&self) -> Norm {
        Norm::None
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn drops_edges(&self) -> bool {
        self.attention_dropout > 0.0
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        heads::refusal(model, self.heads, self.attention_dropout, self.slope)
    }

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        let edges = reads.edges;
        Some(Box::new(formulas::GatV2 {
            edges,
            outputs: model.layer(number).1,
            averaged: model.is_last(number),
            options: self.clone(),
        }))
    }

    fn stages<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        stack(model, seed, |place, (inputs, outputs)| {
            let heads = Heads {
                inputs,
                outputs,
                averaged: model.is_last(place.layer),
                count: self.heads,
            };
            GatV2Layer::new(backend, place, heads, self, model.policy)
        })
    }
}

impl ModelConfig {
    /// A graph attention network of the second kind: three layers of 64 with one head, dropout 0.5.
    pub fn gatv2(features: usize, classes: usize) -> Self {
        Self::of(GatV2::default(), features, classes)
    }
}

/// A linear map of vertices.
#[derive(Debug)]
struct Map<B: Backend, E: Element> {
    weight: Parameter<B, E>,
    bias: Parameter<B, E>,
}

impl<B: Backend, E: Element> Map<B, E> {
    fn new(
        backend: &B,
        place: Place,
        heads: &Heads,
        name: &str,
        number: u32,
    ) -> Result<Self, Error> {
        let (inputs, columns) = (heads.inputs, heads.count * heads.head());
        let shape = (inputs, heads.width::<E>());
        Ok(Self {
            weight: Parameter::weights(backend, format!("{name}.weight"), shape, || {
                heads.spread::<E>(inputs, &place.glorot((inputs, columns), number))
            })?,
            bias: Parameter::bias(backend, format!("{name}.bias"), shape.1)?,
        })
    }

    fn forward(&self, backend: &B, x: &Matrix<B, E>, y: &mut Matrix<B, E>) -> Result<(), Error> {
        let epilogue = Epilogue {
            bias: Some(self.bias.master()),
            ..Epilogue::default()
        };
        ops::matmul(backend, Form::NN, x, self.weight.values(), &epilogue, y)
    }

    /// The gradients of weight and bias.
    fn backward(&mut self, backend: &B, x: &Matrix<B, E>, dy: &Matrix<B, E>) -> Result<(), Error> {
        ops::column_sums(backend, dy, self.bias.gradient_mut())?;
        let gradient = self.weight.gradient_mut();
        ops::matmul(backend, Form::TN, x, dy, &Epilogue::default(), gradient)
    }

    /// The gradient of the input.
    fn input_gradient(
        &self,
        backend: &B,
        dy: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let weight = self.weight.values();
        ops::matmul(backend, Form::NT, dy, weight, &Epilogue::default(), dx)
    }
}

/// The layer of a [`GatV2`].
#[derive(Debug)]
pub struct GatV2Layer<B: Backend, E: Element> {
    heads: Heads,
    joining: Joining<B, E>,
    slope: f32,
    attention_dropout: f32,
    policy: SpmmPolicy,
    source: Map<B, E>,
    /// The source's where they share one.
    destination: Option<Map<B, E>>,
    vector: Parameter<B, E>,
    /// `H · W_l + b_l`
    sources: Kept<B, E>,
    /// `H · W_r + b_r`, where it is not what the sources have.
    destinations: Kept<B, E>,
    /// What each vertex has heard, all heads side by side.
    heard: Kept<B, E>,
    /// For so many destinations and sources; absent until there are inputs.
    softmax: Option<((usize, usize), AdditiveAttention<B>)>,
}

impl<B: Backend, E: Element> GatV2Layer<B, E> {
    fn new(
        backend: &B,
        place: Place,
        heads: Heads,
        gat: &GatV2,
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        let width = heads.width::<E>();
        let vector = Parameter::weights(backend, "attention".into(), (1, width), || {
            heads.spread::<E>(1, &place.glorot((heads.count, heads.head()), 1))
        })?;
        let destination = match gat.share_weights {
            true => None,
            false => Some(Map::new(backend, place, &heads, "destination", 2)?),
        };
        Ok(Self {
            slope: gat.slope,
            attention_dropout: gat.attention_dropout,
            policy,
            source: Map::new(backend, place, &heads, "source", 0)?,
            destination,
            vector,
            sources: Kept::new(backend, width)?,
            destinations: Kept::new(backend, width)?,
            heard: Kept::new(backend, width)?,
            softmax: None,
            joining: Joining::new(backend, &heads)?,
            heads,
        })
    }
}

impl<B: Backend, E: Element> Layer<B, E> for GatV2Layer<B, E> {
    fn widths(&self) -> (usize, usize) {
        (self.heads.inputs, self.heads.outputs)
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, heads) = (at.backend, self.heads.count);
        let graph = at.graph()?;
        if graph.edge_factors::<E>()?.is_some() || graph.edge_features().is_some() {
            return Err(Error::Unsupported {
                operator: "GatV2Layer",
                reason: NO_EDGE_TERM.into(),
            });
        }
        let ends = (at.rows(), x.rows());
        let sources = self.sources.room(backend, ends.1)?;
        self.source.forward(backend, x, sources)?;
        let sources = self.sources.get();
        if let Some(map) = &self.destination {
            let own = at.own_rows(x)?;
            let room = self.destinations.room(backend, ends.0)?;
            map.forward(backend, &own, room)?;
            at.give_rows(own);
        } else if ends.0 < ends.1 {
            let room = self.destinations.room(backend, ends.0)?;
            ops::combine_rows(backend, ends.0, &Combine::copy(), sources, room)?;
        }
        let attention = match &mut self.softmax {
            Some((of, attention)) if *of == ends => attention,
            other => {
                let new = AdditiveAttention::new(backend, ends, heads, self.slope)?;
                &mut other.insert((ends, new.with_policy(self.policy))).1
            }
        };
        let alike = self.destination.is_none() && ends.0 == ends.1;
        let features = AdditiveFeatures {
            destinations: match alike {
                true => sources,
                false => self.destinations.get(),
            },
            sources,
            vector: self.vector.values(),
            dropout: at.dropout(self.attention_dropout, 0),
        };
        let heard = self.heard.room(backend, ends.0)?;
        let a = graph.forward();
        let mut scores = at.pool.take_numbers(backend, edge_values(a, heads))?;
        attention.forward(backend, a, features, &mut scores, heard)?;
        at.pool.give_numbers(scores);
        self.joining.forward(backend, self.heard.get(), y)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, heads) = (at.backend, self.heads.count);
        let width = self.heard.get().columns();
        let (rows, sources) = (at.rows(), x.rows());
        let graph = at.graph()?;
        let spread = self.joining.backward(at, width, dy)?;
        let edges = edge_values(graph.forward(), heads);
        let mut numbers = |len| at.pool.take_numbers(backend, len);
        let mut inner = numbers(heads * rows)?;
        let (mut scores, mut d) = (numbers(edges)?, numbers(edges)?);
        let products = at.pool.take(backend, (heads, edges / heads))?;
        let mut products = products.into_array()?;
        let mut room = |rows| at.pool.take(backend, (rows, width));
        let (mut d_destinations, mut d_sources) = (room(rows)?, room(sources)?);
        let (mut of_destinations, mut of_sources) = (room(rows)?, room(sources)?);

        let alike = self.destination.is_none() && rows == sources;
        let (vector, d_vector) = self.vector.values_and_gradient();
        let features = AdditiveFeatures {
            destinations: match alike {
                true => self.sources.get(),
                false => self.destinations.get(),
            },
            sources: self.sources.get(),
            vector,
            dropout: at.dropout(self.attention_dropout, 0),
        };
        let of = AdditiveBackward {
            y: self.heard.get(),
            dy: spread.as_ref().unwrap_or(dy.matrix()),
            lent: AdditiveRoom {
                inner: &mut inner,
                edges: [&mut scores, &mut d],
                products: &mut products,
                destinations: &mut of_destinations,
                sources: &mut of_sources,
            },
            d_destinations: &mut d_destinations,
            d_sources: &mut d_sources,
            d_vector,
        };
        let Some((_, attention)) = &mut self.softmax else {
            return Err(Error::Unsupported {
                operator: "Model::backward",
                reason: "there was no forward pass before".into(),
            });
        };
        let orders = [graph.forward(), graph.backward(backend)?];
        attention.backward(backend, orders, features, of)?;
        for numbers in [inner, scores, d] {
            at.pool.give_numbers(numbers);
        }
        let products = Matrix::from_array(products, heads, edges / heads)?;
        at.pool.give(products);
        for matrix in [of_destinations, of_sources].into_iter().chain(spread) {
            at.give(matrix);
        }

        if let Some(map) = &mut self.destination {
            let own = at.own_rows(x)?;
            map.backward(backend, &own, &d_destinations)?;
            at.give_rows(own);
        } else {
            ops::combine_rows(
                backend,
                rows,
                &Combine::sum(),
                &d_destinations,
                &mut d_sources,
            )?;
        }
        self.source.backward(backend, x, &d_sources)?;
        if dx.is_wanted() {
            let sum = dx.matrix(at)?;
            self.source.input_gradient(backend, &d_sources, sum)?;
            if let Some(map) = &self.destination {
                let mut product = at.take(x.columns())?;
                map.input_gradient(backend, &d_destinations, &mut product)?;
                ops::combine_rows(backend, rows, &Combine::sum(), &product, sum)?;
                at.give(product);
            }
        }
        at.give(d_destinations);
        at.give(d_sources);
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        let maps = std::iter::once(&self.source).chain(&self.destination);
        let maps = maps.flat_map(|map| [&map.weight, &map.bias]);
        maps.chain([&self.vector]).collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        let maps = std::iter::once(&mut self.source).chain(&mut self.destination);
        let maps = maps.flat_map(|map| [&mut map.weight, &mut map.bias]);
        maps.chain([&mut self.vector]).collect()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        vec![
            ("sources", self.sources.get()),
            ("destinations", self.destinations.get()),
            ("heard", self.heard.get()),
        ]
    }
}
