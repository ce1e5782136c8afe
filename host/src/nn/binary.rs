//! Networks of one bit: Bi-GCN (Wang et al., CVPR 2021) and Bi-GraphSAGE, whose layers multiply signs of activations by signs of
//! weights, and with [`Binary::Bin`] sum up signs over neighbours as well (BitGNN, Chen et al., ICS 2023).
//!
//! A product is `Z[i, j] = β[i] · α[j] · Σ sign X[i, k] · sign W[j, k]`, where `β[i]` is the mean magnitude of a row of `X` and `α[j]` of a
//! row of `W`, which lie outputs × inputs. The sign of zero, and of −0, is +1, that of NaN −1. Features are normalised first, each
//! column over all vertices and without scale and shift; there is no ReLU.
//!
//! | layer | [`Binary::Full`] | [`Binary::Bin`] |
//! |---|---|---|
//! | GCN, hidden | `R · A · C · Z + b` | `D⁻¹ · A · sign Z` |
//! | GCN, last | as the others | `(D⁻¹ · A · sign X) · (α · sign W)ᵀ + b` |
//! | GraphSAGE, hidden | `Z_self + D⁻¹ · A · Z + b` | `½ · (sign Z_self + D⁻¹ · A · sign Z)` |
//! | GraphSAGE, last | as the others | `Z_self + (D⁻¹ · A · sign X) · (α · sign W)ᵀ + b` |
//!
//! Gradients go straight through a sign where what it was given is in [−1, 1], and are zero elsewhere. With `g` that of `α · sign W`,
//! weights have `dW = α · 1{|W| ≤ 1} · g + sign(W) / inputs · Σ g · sign W`: the second term is by `α`. `β` is taken for a constant.
//!
//! A dropout is of what is multiplied: a sign that is dropped is zero. So training multiplies elements; an evaluation, which drops
//! nothing, multiplies and sums up bits. What both give to the next sign is the same where it is a sum of integers.

use super::aggregation::Aggregation;
use super::{
    Context, ConvolutionConfig, HiddenActivation, InputGradient, Kept, Layer, Mode, ModelConfig,
    Norm, Output, OutputGradient, Parameter, Place, Stage,
};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{
    self, Activation, BatchNorm, BitMatrix, Bmm, Combine, Dropout, Epilogue, Form, HeadDots,
    Nonlinearity, Normalization, SpmmEpilogue, SpmmPolicy,
};
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which parts of a network are of one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// Both factors of every product, as in Bi-GCN; what is summed up over neighbours is not.
    Full,
    /// What is summed up over neighbours as well.
    Bin,
}

impl Binary {
    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bin => "bin",
        }
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ModelConfig {
    /// The same of one bit, as such models customarily are: no activation behind the layers, dropout 0, and with [`Binary::Bin`] 128 wide and
    /// with the mean over neighbours, as sums of signs have no factors of senders.
    #[must_use]
    pub fn of_bits(mut self, binary: Binary) -> Self {
        self.binary = Some(binary);
        self.activation = HiddenActivation::None;
        self.dropout = 0.0;
        if binary == Binary::Bin {
            self.hidden = 128;
            if let ConvolutionConfig::Gcn(gcn) = &mut self.convolution {
                gcn.norm = Norm::Right;
            }
        }
        self
    }
}

/// That there is such a network, or why not.
pub(super) fn check(model: &ModelConfig, binary: Binary) -> Result<(), String> {
    let refused = [
        (
            model.activation != HiddenActivation::None,
            "have no activation behind them but the sign; leave it out",
        ),
        (
            model.residual,
            "do not add their inputs to their outputs; leave --residual out",
        ),
        (
            model.recompute,
            "keep what they compute; leave --recompute out",
        ),
        (
            model.messages.is_some(),
            "send no messages of 8 bits; leave --messages out",
        ),
        (
            model.jumping.is_some(),
            "go on to the last layer alone; leave --jumping out",
        ),
        (
            model.readout.is_some(),
            "tell something of vertices, and not of whole graphs; leave --binary out",
        ),
        (
            model.policy != SpmmPolicy::default(),
            "sum up in one way; leave --policy out",
        ),
        (
            binary == Binary::Bin && model.norm() != Norm::Right,
            "of --binary bin take the mean of their neighbours; take --norm right, or leave it out",
        ),
    ];
    let name = model.convolution.name();
    if !matches!(
        model.convolution,
        ConvolutionConfig::Gcn(_) | ConvolutionConfig::Sage(_)
    ) {
        return Err(format!(
            "there are layers of one bit of gcn and sage, and the model is {name}; take one of those, or leave --binary out"
        ));
    }
    match refused.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, reason)) => Err(format!("layers of one bit {reason}")),
        None => Ok(()),
    }
}

/// The stages of a network of one bit.
pub(super) fn stages<B: Backend, E: Element>(
    backend: &B,
    model: &ModelConfig,
    binary: Binary,
    seed: u64,
) -> Result<Vec<Stage<B, E>>, Error> {
    let own = matches!(model.convolution, ConvolutionConfig::Sage(_));
    let stage = |layer: usize| {
        let last = layer + 1 == model.layers;
        let neighbours = match (binary, last) {
            (Binary::Full, _) => Neighbours::Products,
            (Binary::Bin, false) => Neighbours::Signs,
            (Binary::Bin, true) => Neighbours::Inputs,
        };
        let (place, dropout) = (Place { layer, seed }, model.dropout_of(layer));
        let widths = model.layer(layer);
        let layer = BinaryLayer::new(backend, place, widths, (neighbours, own), dropout)?;
        // Dropout is the layer's own, of signs. A bias behind a mean of signs would be in no sign that is summed up.
        Ok(match neighbours {
            Neighbours::Signs => Stage::new(layer),
            _ => Stage::new(layer).bias(),
        })
    };
    (0..model.layers).map(stage).collect()
}

/// What a layer sums up over neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbours {
    /// Products, as elements.
    Products,
    /// Signs of products.
    Signs,
    /// Signs of its inputs, of which it takes the product.
    Inputs,
}

/// A layer of one bit.
#[derive(Debug)]
pub struct BinaryLayer<B: Backend, E: Element> {
    neighbours: Neighbours,
    dropout: f32,
    /// Of the first layer.
    features: Option<Standardized<B>>,
    input: Signs<B, E>,
    weight: BinaryWeight<B, E>,
    itself: Option<BinaryWeight<B, E>>,
    /// What is summed up, where that is bits.
    sent: Option<BitMatrix<B>>,
    /// The mean of the neighbours' signs, less what is dropped, where the layer sums up its inputs.
    heard: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> BinaryLayer<B, E> {
    fn new(
        backend: &B,
        place: Place,
        (inputs, outputs): (usize, usize),
        (neighbours, own): (Neighbours, bool),
        dropout: f32,
    ) -> Result<Self, Error> {
        let clips = neighbours == Neighbours::Signs;
        let weight = |name, number| {
            BinaryWeight::new(backend, place, (name, number), (inputs, outputs), clips)
        };
        Ok(Self {
            neighbours,
            dropout,
            features: match place.layer {
                0 => Some(Standardized::new(backend, inputs)?),
                _ => None,
            },
            input: Signs::new(backend, inputs)?,
            weight: match own {
                true => weight("neighbours.binary_weight", 1)?,
                false => weight("binary_weight", 0)?,
            },
            itself: match own {
                true => Some(weight("self.binary_weight", 0)?),
                false => None,
            },
            sent: None,
            heard: match neighbours {
                Neighbours::Inputs => Some(Kept::new(backend, inputs)?),
                _ => None,
            },
        })
    }

    /// Factor of each of what is added up where there are signs, so that the sum is in [−1, 1].
    fn share(&self) -> f32 {
        match (self.neighbours, &self.itself) {
            (Neighbours::Signs, Some(_)) => 0.5,
            _ => 1.0,
        }
    }
}

const AGGREGATION: Aggregation = Aggregation {
    policy: SpmmPolicy::DEFAULT,
    factor: 1.0,
};

impl<B: Backend, E: Element> Layer<B, E> for BinaryLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        let (outputs, inputs) = self.weight.parameter.shape();
        (inputs, outputs)
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, rows, columns) = (at.backend, x.rows(), y.columns());
        let graph = at.graph()?;
        if rows != at.rows() || graph.halo().is_some() {
            return Err(Error::Unsupported {
                operator: "BinaryLayer",
                reason: "layers of one bit see a whole graph, on one rank; leave the sampler or the ranks out".into(),
            });
        }
        let (share, sum) = (self.share(), Combine::sum());
        let mut standardized = None;
        let x = match &mut self.features {
            Some(features) => {
                let lent = standardized.insert(at.take(x.columns())?);
                features.forward(backend, x, lent)?;
                &*lent
            }
            None => x,
        };
        if self.heard.is_none() || self.itself.is_some() {
            let dropout = at.dropout(self.dropout, 0);
            self.input.make(backend, at.mode, dropout, x)?;
        }
        if let Some(mean) = &mut self.heard {
            let sent = bits(backend, &mut self.sent, x.shape())?;
            ops::binarize(backend, x, sent)?;
            let mean = mean.room(backend, rows)?;
            ops::bspmm(backend, graph.forward(), sent, graph.row_scale(), 1.0, mean)?;
            drop(backend, at.dropout(self.dropout, 1), mean)?;
            self.weight.product_of(backend, mean, y.matrix())?;
        }
        match self.neighbours {
            Neighbours::Inputs => {}
            Neighbours::Signs => {
                let sent = bits(backend, &mut self.sent, (rows, columns))?;
                self.weight.signs(at, &self.input, sent)?;
                let y = y.matrix();
                ops::bspmm(backend, graph.forward(), sent, graph.row_scale(), share, y)?;
            }
            Neighbours::Products => {
                let mut product = at.take(columns)?;
                self.weight.product(at, &self.input, &mut product)?;
                match &self.itself {
                    None => y.aggregate(at, AGGREGATION, false, None, &product)?,
                    Some(_) => {
                        let plain = SpmmEpilogue::default();
                        AGGREGATION.forward(at, false, plain, &product, y.matrix())?;
                    }
                }
                at.give(product);
            }
        }
        if let Some(itself) = &mut self.itself {
            let mut own = at.take(columns)?;
            match self.neighbours {
                Neighbours::Signs => itself.sign_elements(at, &self.input, &mut own)?,
                _ => itself.product(at, &self.input, &mut own)?,
            }
            let added = Combine {
                x_factor: share,
                ..sum
            };
            ops::combine(backend, &added, &own, y.matrix())?;
            at.give(own);
        }
        standardized.into_iter().for_each(|lent| at.give(lent));
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let (backend, share, wanted) = (at.backend, self.share(), dx.is_wanted());
        let [dropped, dropped_of_heard] = [0, 1].map(|number| at.dropout(self.dropout, number));
        let d_y = dy.matrix();
        let mut d = at.take(d_y.columns())?;
        let mut d_x = at.take(x.columns())?;
        if let Some(mean) = &self.heard {
            let mut d_mean = at.take(x.columns())?;
            let to = wanted.then_some((&mut d_mean, dropped_of_heard));
            self.weight.backward(backend, mean.get(), d_y, to)?;
            if wanted {
                let plain = SpmmEpilogue::default();
                AGGREGATION.backward(at, false, plain, &d_mean, &mut d_x)?;
            }
            at.give(d_mean);
        } else {
            let shared = Aggregation {
                factor: share,
                ..AGGREGATION
            };
            shared.backward(at, false, SpmmEpilogue::default(), d_y, &mut d)?;
            self.weight.clip(backend, &mut d)?;
            scale(backend, self.input.magnitudes.as_ref(), &mut d)?;
            let to = wanted.then_some((&mut d_x, dropped));
            let signs = self.input.elements.get();
            self.weight.backward(backend, signs, &d, to)?;
        }
        if let Some(itself) = &mut self.itself {
            let own = Combine {
                x_factor: share,
                ..Combine::copy()
            };
            ops::combine(backend, &own, d_y, &mut d)?;
            itself.clip(backend, &mut d)?;
            scale(backend, self.input.magnitudes.as_ref(), &mut d)?;
            let mut d_own = at.take(x.columns())?;
            let to = wanted.then_some((&mut d_own, dropped));
            itself.backward(backend, self.input.elements.get(), &d, to)?;
            if wanted {
                ops::combine(backend, &Combine::sum(), &d_own, &mut d_x)?;
            }
            at.give(d_own);
        }
        at.give(d);
        if wanted {
            // No features have a gradient, so that what is normalised has none.
            straight_through(backend, x, &mut d_x)?;
            ops::combine(backend, &Combine::copy(), &d_x, dx.matrix(at)?)?;
        }
        at.give(d_x);
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        let own = self.itself.iter().map(|own| &own.parameter);
        own.chain([&self.weight.parameter]).collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        let own = self.itself.iter_mut().map(|own| &mut own.parameter);
        own.chain([&mut self.weight.parameter]).collect()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let mean = self.heard.iter().map(|mean| ("mean", mean.get()));
        mean.collect()
    }
}

/// `d`, the gradient of signs of `x`, becomes that of `x`.
fn straight_through<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
) -> Result<(), Error> {
    ops::nonlinearity_backward(backend, Nonlinearity::Sign, x, d)
}

/// Rows times their factors.
fn scale<B: Backend, E: Element>(
    backend: &B,
    factors: Option<&Array<B, f32>>,
    rows: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let nothing = Activation {
        bias: None,
        relu: false,
        dropout: None,
    };
    ops::activate_backward(backend, &nothing, None, factors, rows)
}

/// What a dropout leaves, of values and of their gradient.
fn drop<B: Backend, E: Element>(
    backend: &B,
    dropout: Option<Dropout<'_, B>>,
    rows: &mut Matrix<B, E>,
) -> Result<(), Error> {
    if dropout.is_none() {
        return Ok(());
    }
    let op = Activation {
        bias: None,
        relu: false,
        dropout,
    };
    ops::activate(backend, &op, None, rows)
}

/// The mean of the products of the elements of each row of `a` and of `b`: with the signs of `a`, its mean magnitude.
fn row_dots<B: Backend, E: Element>(
    backend: &B,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    means: &mut Array<B, f32>,
) -> Result<(), Error> {
    let op = HeadDots {
        heads: 1,
        a,
        b: (1.0 / a.columns() as f32, b),
        c: None,
        u: None,
        v: None,
    };
    ops::head_dots(backend, &op, means)
}

/// Room for so many numbers.
fn numbers<'a, B: Backend>(
    backend: &B,
    room: &'a mut Option<Array<B, f32>>,
    len: usize,
) -> Result<&'a mut Array<B, f32>, Error> {
    if room.as_ref().is_none_or(|there| there.len() != len) {
        *room = Some(Array::zeros(backend, len, MemoryKind::Activations)?);
    }
    Ok(room.as_mut().expect("it was made"))
}

/// Room for so many rows and columns of bits.
fn bits<'a, B: Backend>(
    backend: &B,
    room: &'a mut Option<BitMatrix<B>>,
    (rows, columns): (usize, usize),
) -> Result<&'a mut BitMatrix<B>, Error> {
    let fits = |there: &BitMatrix<B>| there.shape() == (rows, columns);
    if !room.as_ref().is_some_and(fits) {
        let kind = MemoryKind::Activations;
        *room = Some(BitMatrix::zeros(backend, rows, columns, kind)?);
    }
    Ok(room.as_mut().expect("it was made"))
}

/// A batch normalisation of features over all vertices, without scale and shift, in training and in evaluation.
#[derive(Debug)]
struct Standardized<B: Backend> {
    statistics: Matrix<B, f32>,
    /// Written and never read: no statistics are carried on.
    running: Matrix<B, f32>,
    ones: Matrix<B, f32>,
    zeros: Matrix<B, f32>,
}

impl<B: Backend> Standardized<B> {
    fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let room = |rows| Matrix::zeros(backend, rows, columns, MemoryKind::Weights);
        let mut ones = room(1)?;
        ones.write_with(backend, || vec![1.0; columns])?;
        Ok(Self {
            statistics: room(2)?,
            running: room(2)?,
            ones,
            zeros: room(1)?,
        })
    }

    fn forward<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = BatchNorm {
            momentum: 0.0,
            ..BatchNorm::default()
        };
        let (statistics, running) = (&mut self.statistics, &mut self.running);
        ops::batch_statistics(backend, &op, x, running, statistics)?;
        let op = Normalization {
            statistics: &self.statistics,
            weight: &self.ones,
            bias: &self.zeros,
            relu: false,
        };
        ops::normalize(backend, &op, x, y)
    }
}

/// The signs of a layer's input and the mean magnitude of each row, `β`.
#[derive(Debug)]
struct Signs<B: Backend, E: Element> {
    /// Less what is dropped.
    elements: Kept<B, E>,
    magnitudes: Option<Array<B, f32>>,
    /// In evaluation.
    bits: Option<BitMatrix<B>>,
}

impl<B: Backend, E: Element> Signs<B, E> {
    fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        Ok(Self {
            elements: Kept::new(backend, columns)?,
            magnitudes: None,
            bits: None,
        })
    }

    fn make(
        &mut self,
        backend: &B,
        mode: Mode<'_, B>,
        dropout: Option<Dropout<'_, B>>,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let elements = self.elements.room(backend, x.rows())?;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(x), elements)?;
        let means = numbers(backend, &mut self.magnitudes, x.rows())?;
        row_dots(backend, x, elements, means)?;
        if let Mode::Evaluate = mode {
            return ops::binarize(backend, x, bits(backend, &mut self.bits, x.shape())?);
        }
        drop(backend, dropout, elements)
    }

    /// What was made of the input, in evaluation.
    fn bits(&self) -> &BitMatrix<B> {
        self.bits
            .as_ref()
            .expect("bits are made before they are multiplied")
    }
}

/// A gradient that may be wanted, and what was dropped of what it is of.
type Wanted<'d, B, E> = Option<(&'d mut Matrix<B, E>, Option<Dropout<'d, B>>)>;

/// Weights whose signs multiply, outputs × inputs.
#[derive(Debug)]
struct BinaryWeight<B: Backend, E: Element> {
    parameter: Parameter<B, E>,
    signs: Kept<B, E>,
    /// The mean magnitude of each row, `α`.
    magnitudes: Option<Array<B, f32>>,
    /// `α` times the signs.
    scaled: Kept<B, E>,
    /// In evaluation.
    bits: Option<BitMatrix<B>>,
    /// Signs of the master weights, for their gradient, and what goes through them.
    master_signs: Matrix<B, f32>,
    through: Array<B, f32>,
    /// `Z`, where its signs alone go on: what their gradient is clipped by.
    product: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> BinaryWeight<B, E> {
    fn new(
        backend: &B,
        place: Place,
        (name, number): (&str, u32),
        (inputs, outputs): (usize, usize),
        clips: bool,
    ) -> Result<Self, Error> {
        let kind = MemoryKind::Activations;
        Ok(Self {
            parameter: place.weights(backend, name, (outputs, inputs), number)?,
            signs: Kept::new(backend, inputs)?,
            magnitudes: None,
            scaled: Kept::new(backend, inputs)?,
            bits: None,
            master_signs: Matrix::zeros(backend, outputs, inputs, kind)?,
            through: Array::zeros(backend, outputs, kind)?,
            product: match clips {
                true => Some(Kept::new(backend, outputs)?),
                false => None,
            },
        })
    }

    /// Signs and magnitudes of the weights as they are.
    fn make(&mut self, backend: &B) -> Result<(), Error> {
        let values = self.parameter.values();
        let (outputs, _) = values.shape();
        let signs = self.signs.room(backend, outputs)?;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(values), signs)?;
        let means = numbers(backend, &mut self.magnitudes, outputs)?;
        row_dots(backend, values, signs, means)
    }

    /// Their bits.
    fn make_bits(&mut self, backend: &B) -> Result<&BitMatrix<B>, Error> {
        let values = self.parameter.values();
        let bits = bits(backend, &mut self.bits, values.shape())?;
        ops::binarize(backend, values, bits)?;
        Ok(bits)
    }

    /// Signs times magnitudes.
    fn make_scaled(&mut self, backend: &B) -> Result<(), Error> {
        self.make(backend)?;
        let signs = self.signs.get();
        let scaled = Combine {
            x_scale: self.magnitudes.as_ref(),
            ..Combine::copy()
        };
        let to = self.scaled.room(backend, signs.rows())?;
        ops::combine(backend, &scaled, signs, to)
    }

    /// `y = Z`.
    fn product(
        &mut self,
        at: &Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let row_scale = input.magnitudes.as_ref();
        if let Mode::Evaluate = at.mode {
            self.make(at.backend)?;
            self.make_bits(at.backend)?;
            let op = Bmm {
                row_scale,
                column_scale: self.magnitudes.as_ref(),
                ..Bmm::default()
            };
            let weights = self.bits.as_ref().expect("they were made");
            return ops::bmm(at.backend, input.bits(), weights, &op, y);
        }
        self.make_scaled(at.backend)?;
        let epilogue = Epilogue {
            row_scale,
            ..Epilogue::default()
        };
        let (signs, scaled) = (input.elements.get(), self.scaled.get());
        ops::matmul(at.backend, Form::NT, signs, scaled, &epilogue, y)
    }

    /// `y = x · (α · sign W)ᵀ`, of rows that are no signs.
    fn product_of(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.make_scaled(backend)?;
        let (scaled, plain) = (self.scaled.get(), Epilogue::default());
        ops::matmul(backend, Form::NT, x, scaled, &plain, y)
    }

    /// `y = sign Z`, of sums of signs, so that a zero is a zero; what its gradient is clipped by is kept.
    fn signs(
        &mut self,
        at: &mut Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        if let Mode::Evaluate = at.mode {
            let weights = self.make_bits(at.backend)?;
            return ops::bmm_signs(at.backend, input.bits(), weights, &Bmm::default(), y);
        }
        let mut sums = at.pool.take(at.backend, y.shape())?;
        self.sums(at, input, &mut sums)?;
        ops::binarize(at.backend, &sums, y)?;
        at.give(sums);
        Ok(())
    }

    /// [`BinaryWeight::signs`] as elements.
    fn sign_elements(
        &mut self,
        at: &mut Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        match at.mode {
            Mode::Evaluate => {
                let weights = self.make_bits(at.backend)?;
                ops::bmm(at.backend, input.bits(), weights, &Bmm::default(), y)?;
            }
            Mode::Train { .. } => self.sums(at, input, y)?,
        }
        ops::nonlinearity(at.backend, Nonlinearity::Sign, None, None, y)
    }

    /// Sums of signs, and `Z` beside them.
    fn sums(
        &mut self,
        at: &Context<'_, B, E>,
        input: &Signs<B, E>,
        sums: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, elements) = (at.backend, input.elements.get());
        self.make_scaled(backend)?;
        let epilogue = Epilogue {
            row_scale: input.magnitudes.as_ref(),
            ..Epilogue::default()
        };
        if let Some(product) = &mut self.product {
            let product = product.room(backend, elements.rows())?;
            let scaled = self.scaled.get();
            ops::matmul(backend, Form::NT, elements, scaled, &epilogue, product)?;
        }
        let (signs, plain) = (self.signs.get(), Epilogue::default());
        ops::matmul(backend, Form::NT, elements, signs, &plain, sums)
    }

    /// The gradient of `sign Z`, where that is what goes on, becomes that of `Z`.
    fn clip(&self, backend: &B, d: &mut Matrix<B, E>) -> Result<(), Error> {
        match &self.product {
            Some(product) => straight_through(backend, product.get(), d),
            None => Ok(()),
        }
    }

    /// The gradient of the weights and, where it is wanted, that of what they were multiplied by, from that of the product.
    fn backward(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        d: &Matrix<B, E>,
        dx: Wanted<'_, B, E>,
    ) -> Result<(), Error> {
        let plain = Epilogue::default();
        let (master, gradient) = self.parameter.master_and_gradient();
        ops::matmul(backend, Form::TN, d, x, &plain, gradient)?;
        let signs = &mut self.master_signs;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(master), signs)?;
        row_dots(backend, gradient, signs, &mut self.through)?;
        straight_through(backend, master, gradient)?;
        scale(backend, self.magnitudes.as_ref(), gradient)?;
        let by_magnitude = Combine {
            x_scale: Some(&self.through),
            ..Combine::sum()
        };
        ops::combine(backend, &by_magnitude, signs, gradient)?;
        let Some((dx, dropout)) = dx else {
            return Ok(());
        };
        ops::matmul(backend, Form::NN, d, self.scaled.get(), &plain, dx)?;
        drop(backend, dropout, dx)
    }
}
