//! The graph attention network of Veličković et al. (ICLR 2018): each vertex takes the mean of what it hears, weighted by
//! a softmax of scores that two learnt vectors give to destination and source.
//!
//! `h = H · W`, `e(i,j) = LeakyReLU(a_d · h_i + a_s · h_j)`, `α(i, ·) = softmax(e(i, ·))`, `y_i = Σ_j α(i,j) · h_j`, for
//! several heads side by side, which are concatenated or, in the last layer, averaged.
//!
//! No weight of an edge is stored, neither here nor in the gradient: they are computed inside the SpMM from a few floats
//! a vertex, by [`ops::Attention`], whose page has the formulas, and the sum of an edge's two scores, of which a plane a head is lent for
//! the length of a forward pass on a card that has room for them.
//!
//! Edges that have numbers of their own, weights or vectors of features `f`, have a third term in their scores, `a_e · (W_e · f(i,j))`,
//! as PyG's `GATConv(edge_dim=…)` has it. Of it a float for each edge and head is lent for the length of a pass.

use super::aggregation::Sending;
use super::architecture::{Architecture, LayerOption, number, probability, stack, store};
use super::codes::LayerInput;
use super::heads::{self, Heads, Joining};
use super::messages::Direction;
use super::{
    Context, EdgeFeatures, InputGradient, Kept, Layer, Mode, ModelConfig, Norm, Output,
    OutputGradient, Parameter, Place, Pool, Propagation, SentBack, Stage,
};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{
    self, Attention, AttentionBackward, AttentionForward, EdgeBiases, Epilogue, Form,
    QuantizedMatrix, SpmmPolicy,
};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use crate::tensor::{Array, Element, Matrix, padded};
use serde::{Deserialize, Serialize};

/// Attention (Veličković et al., ICLR 2018), three layers of 64 with one head and dropout 0.5. With several heads a hidden
/// layer has them side by side, so its width must be a multiple of them; the last layer has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gat {
    /// Heads of every layer.
    pub heads: usize,
    /// Slope of the LeakyReLU of the scores below zero.
    pub slope: f32,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub attention_dropout: f32,
    /// Numbers of each edge, its weight among them, that its score has a term of (PyG's `edge_dim`); 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Default for Gat {
    fn default() -> Self {
        Self {
            heads: 1,
            slope: 0.2,
            attention_dropout: 0.0,
            edge_features: 0,
        }
    }
}

const EDGE_WEIGHTS_ARE_FEATURES: &str = "this GAT was made without a term for weights of edges (Gat::edge_features, ModelConfig::prepare_edges)";

impl Architecture for Gat {
    const NAME: &'static str = "gat";
    const TITLE: &'static str = "Graph attention network (Veličković et al.)";
    const POLICY: Result<(), &'static str> = Err("GAT's attention is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> = Err(EDGE_WEIGHTS_ARE_FEATURES);
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

    fn edge_features(&self) -> usize {
        self.edge_features
    }

    fn read_edge_features(&mut self, columns: usize) -> bool {
        self.edge_features = columns;
        true
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        heads::refusal(model, self.heads, self.attention_dropout, self.slope)?;
        if self.edge_features > MOST_EDGE_FEATURES {
            return Err(format!(
                "{} features of each edge; there can be {MOST_EDGE_FEATURES} at most",
                self.edge_features
            ));
        }
        Ok(())
    }

    fn formula(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: Reads,
    ) -> Option<Box<dyn Formula>> {
        let edges = reads.edges;
        Some(Box::new(formulas::Gat {
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
            GatLayer::new(backend, place, heads, self, model.policy)
        })
    }
}

impl ModelConfig {
    /// A graph attention network: three layers of 64 with one head, dropout 0.5.
    pub fn gat(features: usize, classes: usize) -> Self {
        Self::of(Gat::default(), features, classes)
    }
}

/// More features of an edge than this are taken for a mistake.
const MOST_EDGE_FEATURES: usize = 65_536;

/// The term of an edge in its scores: `a_e · (W_e · f)` of the features `f` of the edge, one a head.
///
/// It is linear in `f`: both parameters together are a vector of as many numbers as `f` has for each head, `u = W_eᵀ · a_e`, and all
/// terms one product of it with the features, and so for the gradient. Everything is float, whatever `E` is.
#[derive(Debug)]
struct EdgeTerm<B: Backend, E: Element> {
    columns: usize,
    heads: usize,
    /// `W_e`, features × columns of all heads; rows are padded to whole vectors by zeros, which have no gradient.
    weight: Parameter<B, E>,
    /// `a_e` in the first row. The second is zero, for the operators have vectors of two ends.
    vector: Parameter<B, E>,
    /// What the second vector gives, and its gradient: zeros.
    of_zero: Array<B, f32>,
}

impl<B: Backend, E: Element> EdgeTerm<B, E> {
    fn new(
        backend: &B,
        place: Place,
        shape: &Heads,
        columns: usize,
    ) -> Result<Option<Self>, Error> {
        let (heads, head) = (shape.count, shape.head());
        if columns == 0 {
            return Ok(None);
        }
        let (rows, width) = (padded::<f32>(columns), shape.width::<E>());
        let weight = Parameter::in_float(backend, "edge.weight".into(), (rows, width), || {
            let weights = place.glorot((columns, heads * head), 3);
            shape.spread::<E>(rows, &weights)
        })?;
        let vector = Parameter::in_float(backend, "edge.attention".into(), (2, width), || {
            shape.spread::<E>(2, &place.glorot((heads, head), 4))
        })?;
        Ok(Some(Self {
            columns,
            heads,
            weight,
            vector,
            of_zero: Array::zeros(backend, heads * rows, MemoryKind::Activations)?,
        }))
    }

    /// Numbers of `u`: a padded row a head.
    fn len(&self) -> usize {
        self.heads * self.weight.shape().0
    }

    /// The terms of all edges in one of the two orders, planes of edges, which are to be given back to the pool.
    fn terms(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        features: &Matrix<B, f32>,
    ) -> Result<Array<B, f32>, Error> {
        let mut u = pool.take_numbers(backend, self.len())?;
        ops::head_scores(
            backend,
            self.heads,
            self.weight.master(),
            self.vector.master(),
            &mut u,
            &mut self.of_zero,
        )?;
        let u = Matrix::from_padded(u, self.heads, self.columns)?;
        let edges = features.columns();
        let terms = pool.take_numbers(backend, self.heads * edges)?;
        let mut terms = Matrix::from_array(terms, self.heads, edges)?;
        ops::matmul(
            backend,
            Form::NN,
            &u,
            features,
            &Epilogue::default(),
            &mut terms,
        )?;
        pool.give_numbers(u.into_array()?);
        terms.into_array()
    }

    /// The gradients of the parameters, from that of the terms in the order of `features`.
    fn backward(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        features: &Matrix<B, f32>,
        d: Array<B, f32>,
    ) -> Result<(), Error> {
        let d = Matrix::from_array(d, self.heads, features.columns())?;
        let du = pool.take_numbers(backend, self.len())?;
        let mut du = Matrix::from_padded(du, self.heads, self.columns)?;
        ops::matmul(
            backend,
            Form::NT,
            &d,
            features,
            &Epilogue::default(),
            &mut du,
        )?;
        pool.give_numbers(d.into_array()?);
        let du = du.into_array()?;
        let (weight, d_weight) = self.weight.master_and_gradient();
        let (vector, d_vector) = self.vector.master_and_gradient();
        d_weight.clear(backend)?;
        ops::head_outer(backend, self.heads, &du, &self.of_zero, vector, d_weight)?;
        ops::head_sums(backend, self.heads, weight, &du, &self.of_zero, d_vector)?;
        pool.give_numbers(du);
        Ok(())
    }
}

/// The features of edges that a layer reads so many of.
fn edge_features<B: Backend>(
    graph: &Propagation<B>,
    wanted: usize,
) -> Result<Option<&EdgeFeatures<B>>, Error> {
    let found = graph.edge_features();
    let columns = found.map_or(0, EdgeFeatures::columns);
    if columns == wanted {
        return Ok(found);
    }
    Err(Error::Unsupported {
        operator: "GatLayer",
        reason: format!(
            "the layer reads {wanted} features of each edge, and its graph has {columns}; make the graph by ModelConfig::prepare_edges"
        ),
    })
}

/// Features, which are sent and of which scores are made.
const SENT: Sending = Sending {
    direction: Direction::Forward,
    scaled: true,
    alone: false,
};

/// The layer of a [`Gat`].
#[derive(Debug)]
pub struct GatLayer<B: Backend, E: Element> {
    heads: Heads,
    joining: Joining<B, E>,
    gat: Gat,
    policy: SpmmPolicy,
    weight: Parameter<B, E>,
    /// The attention vectors of destination and source, a row each.
    vectors: Parameter<B, E>,
    edge: Option<EdgeTerm<B, E>>,
    /// `H · W`
    transformed: Kept<B, E>,
    /// What each vertex has heard, all heads side by side.
    heard: Kept<B, E>,
    /// What it has heard along the edges of positive sum of scores.
    positive: Kept<B, E>,
    /// For so many destinations and sources; absent until there are inputs.
    softmax: Option<((usize, usize), Attention<B>)>,
}

impl<B: Backend, E: Element> GatLayer<B, E> {
    fn new(
        backend: &B,
        place: Place,
        shape: Heads,
        gat: &Gat,
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        let (inputs, width) = (shape.inputs, shape.width::<E>());
        let (heads, head) = (shape.count, shape.head());
        let weight = Parameter::weights(backend, "weight".into(), (inputs, width), || {
            let weights = place.glorot((inputs, heads * head), 0);
            shape.spread::<E>(inputs, &weights)
        })?;
        let vectors = Parameter::weights(backend, "attention".into(), (2, width), || {
            // Of each end of an edge a matrix of heads × columns of a head.
            let vector = |number| place.glorot((heads, head), number);
            shape.spread::<E>(2, &[vector(1), vector(2)].concat())
        })?;
        Ok(Self {
            policy,
            weight,
            vectors,
            edge: EdgeTerm::new(backend, place, &shape, gat.edge_features)?,
            transformed: Kept::new(backend, width)?,
            heard: Kept::new(backend, width)?,
            positive: Kept::new(backend, width)?,
            softmax: None,
            joining: Joining::new(backend, &shape)?,
            heads: shape,
            gat: gat.clone(),
        })
    }

    fn backward_of_input(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: LayerInput<'_, B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, heads) = (at.backend, self.heads.count);
        let width = self.heard.get().columns();
        let spread = self.joining.backward(at, width, dy)?;
        let sources = at.sources(x.rows());
        let mut numbers = |rows| at.pool.take_numbers(backend, heads * rows);
        let (mut inner, mut d_destination) = (numbers(at.rows)?, numbers(at.rows)?);
        let (mut softmax_gradient, mut d_source) = (numbers(sources)?, numbers(sources)?);
        let mut room = || at.pool.take(backend, (sources, width));
        let (mut dh, mut lent) = (room()?, room()?);
        let graph = at.graph()?;
        let features = edge_features(graph, self.gat.edge_features)?;
        let mut of_edges = match (&mut self.edge, features) {
            (Some(edge), Some(features)) => {
                let forward = edge.terms(backend, at.pool, &features.forward)?;
                let backward = edge.terms(backend, at.pool, &features.backward)?;
                let edges = features.forward.columns();
                let lent = at.pool.take(backend, (heads, edges))?.into_array()?;
                let d = at.pool.take_numbers(backend, heads * edges)?;
                Some((forward, backward, lent, d))
            }
            _ => None,
        };

        let (vectors, d_vectors) = self.vectors.values_and_gradient();
        let dy = spread.as_ref().unwrap_or(dy.matrix());
        let mut messages = at.messages.take();
        let way = (Direction::Backward, at.mode);
        let codes = match &mut messages {
            Some(messages) => Some(messages.encode(backend, at.pool, way, dy, (None, graph))?),
            None => None,
        };
        let of = AttentionBackward {
            h: self.transformed.get(),
            vectors,
            y: self.heard.get(),
            positive: self.positive.get(),
            dy,
            codes,
            dropout: at.dropout(self.gat.attention_dropout, 0),
            lent: (
                &mut lent,
                [
                    &mut inner,
                    &mut d_destination,
                    &mut softmax_gradient,
                    &mut d_source,
                ],
            ),
            dh: &mut dh,
            d_vectors,
            biases: of_edges
                .as_mut()
                .map(|(forward, backward, lent, d)| EdgeBiases {
                    a: graph.forward(),
                    forward,
                    backward,
                    lent,
                    d,
                }),
        };
        let Some((_, softmax)) = &mut self.softmax else {
            return Err(Error::Unsupported {
                operator: "Model::backward",
                reason: "there was no forward pass before".into(),
            });
        };
        softmax.backward(backend, graph.backward(backend)?, of)?;
        if let Some(messages) = &mut messages {
            messages.release(backend, at.pool, Direction::Backward)?;
        }
        at.messages = messages;
        at.give(lent);
        if let (Some((forward, backward, lent, d)), Some(edge), Some(features)) =
            (of_edges, &mut self.edge, features)
        {
            at.pool.give_numbers(forward);
            at.pool.give_numbers(backward);
            at.pool
                .give(Matrix::from_array(lent, heads, features.forward.columns())?);
            edge.backward(backend, at.pool, &features.forward, d)?;
        }
        for numbers in [inner, d_destination, softmax_gradient, d_source] {
            at.pool.give_numbers(numbers);
        }
        if let Some(spread) = spread {
            at.give(spread);
        }
        let (weight, gradient) = self.weight.values_and_gradient();
        let dh = at.fold(dh)?;
        dx.product(at, &dh, weight)?;
        x.weight_gradient(backend, &dh, gradient)?;
        at.give(dh);
        Ok(())
    }
}

impl<B: Backend, E: Element> Layer<B, E> for GatLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        (self.heads.inputs, self.heads.outputs)
    }

    fn sends_back(&self) -> SentBack {
        match self.joining {
            Joining::Whole => SentBack::Gradient,
            _ => SentBack::Own,
        }
    }

    fn exchanges_products(&self, _graph: &Propagation<B>) -> bool {
        let (inputs, width) = self.weight.shape();
        width <= padded::<E>(inputs)
    }

    fn message_columns(&self) -> Option<usize> {
        Some(self.weight.shape().1)
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        let ends = (at.rows(), at.sources(x.rows()));
        let (heads, slope) = (self.heads.count, self.gat.slope);
        let plain = Epilogue::default();
        let weight = self.weight.values();
        let h = self.transformed.room(backend, ends.1)?;
        at.product_of_sources(SENT, (x, weight), &plain, h)?;
        let graph = at.graph()?;
        if graph.edge_factors::<E>()?.is_some() {
            return Err(Error::Unsupported {
                operator: "GatLayer",
                reason: EDGE_WEIGHTS_ARE_FEATURES.into(),
            });
        }
        let biases = match (
            &mut self.edge,
            edge_features(graph, self.gat.edge_features)?,
        ) {
            (Some(edge), Some(features)) => {
                Some(edge.terms(backend, at.pool, &features.forward)?)
            }
            _ => None,
        };
        let softmax = match &mut self.softmax {
            Some((of, softmax)) if *of == ends => softmax,
            other => {
                let new = Attention::between(backend, ends, heads, slope)?;
                &mut other.insert((ends, new.with_policy(self.policy))).1
            }
        };
        let mut messages = at.messages.take();
        let way = (Direction::Forward, at.mode);
        let codes = match &mut messages {
            Some(messages) => Some(messages.encode(backend, at.pool, way, h, (None, graph))?),
            None => None,
        };
        let edges = graph.forward().edges();
        // An evaluation has one walk over the edges, which reads them from where the softmax does.
        let learns = matches!(at.mode, Mode::Train { .. });
        let mut sums = match learns && backend.keeps_sums_of_scores(ends.1, edges, heads) {
            true => Some(
                at.pool
                    .take_numbers(backend, heads * ops::edge_plane(edges))?,
            ),
            false => None,
        };
        let heard = self.heard.room(backend, at.rows())?;
        // In evaluation as well: a run that first evaluates has all its memory then.
        let positive = self.positive.room(backend, at.rows())?;
        let of = AttentionForward {
            h,
            codes,
            vectors: self.vectors.values(),
            dropout: at.dropout(self.gat.attention_dropout, 0),
            y: &mut *heard,
            positive: match at.mode {
                Mode::Train { .. } => Some(positive),
                Mode::Evaluate => None,
            },
            biases: biases.as_ref(),
            sums: sums.as_mut(),
        };
        softmax.forward(backend, graph.forward(), of)?;
        if let Some(messages) = &mut messages {
            messages.release(backend, at.pool, Direction::Forward)?;
        }
        at.messages = messages;
        for numbers in [biases, sums].into_iter().flatten() {
            at.pool.give_numbers(numbers);
        }
        self.joining.forward(backend, self.heard.get(), y)
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
        let edge = self.edge.iter().flat_map(|it| [&it.weight, &it.vector]);
        [&self.weight, &self.vectors]
            .into_iter()
            .chain(edge)
            .collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        let edge = self.edge.iter_mut();
        let edge = edge.flat_map(|it| [&mut it.weight, &mut it.vector]);
        let own = [&mut self.weight, &mut self.vectors];
        own.into_iter().chain(edge).collect()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let heard = ("heard", self.heard.get());
        vec![("transformed", self.transformed.get()), heard]
    }
}
