//! A layer of one bit, in training by elements and in evaluation by bits.

use super::signs::{BinaryWeight, Signs, Standardized, bits, drop, scale, straight_through};
use crate::backend::{Backend, RowShare};
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::aggregation::Aggregation;
use crate::nn::layer::no_signs;
use crate::nn::{
    Context, InputGradient, Kept, Layer, Mode, Output, OutputGradient, Parameter, Place,
    Propagation, SignsOrElements,
};
use crate::ops::{self, BitMatrix, BitOutput, Combine, SpmmEpilogue, SpmmPolicy};
use crate::tensor::{Element, Matrix, padded};

/// What a layer sums up over neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neighbours {
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
    /// In an evaluation that reads no more of its input, where nobody else has made them.
    input_bits: Option<BitMatrix<B>>,
    weight: BinaryWeight<B, E>,
    itself: Option<BinaryWeight<B, E>>,
    /// What is summed up, where that is bits.
    sent: Option<BitMatrix<B>>,
    /// The mean of the neighbours' signs, less what is dropped, where the layer sums up its inputs.
    heard: Option<Kept<B, E>>,
    /// The same of a share of the rows, where nothing is trained and it need not be kept: in such an evaluation little else is as large.
    heard_by_some: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> BinaryLayer<B, E> {
    pub(super) fn new(
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
        let kept = || match neighbours {
            Neighbours::Inputs => Kept::new(backend, inputs).map(Some),
            _ => Ok(None),
        };
        Ok(Self {
            neighbours,
            dropout,
            features: match place.layer {
                0 => Some(Standardized::new(backend, inputs)?),
                _ => None,
            },
            input: Signs::new(backend, inputs)?,
            input_bits: None,
            weight: match own {
                true => weight("neighbours.binary_weight", 1)?,
                false => weight("binary_weight", 0)?,
            },
            itself: match own {
                true => Some(weight("self.binary_weight", 0)?),
                false => None,
            },
            sent: None,
            heard: kept()?,
            heard_by_some: kept()?,
        })
    }

    /// Factor of each of what is added up where there are signs, so that the sum is in [−1, 1].
    fn share(&self) -> f32 {
        match (self.neighbours, &self.itself) {
            (Neighbours::Signs, Some(_)) => 0.5,
            _ => 1.0,
        }
    }

    /// The graph, of whose vertices all are heard and tell.
    fn graph<'a>(&self, at: &Context<'a, B, E>, rows: usize) -> Result<&'a Propagation<B>, Error> {
        let graph = at.graph()?;
        let reason = if rows != at.rows() || graph.halo().is_some() {
            "layers of one bit give a row for each that they read, on one rank; take a whole graph or a subgraph, or leave the ranks out"
        } else if self.neighbours != Neighbours::Products && graph.edge_factors::<E>()?.is_some() {
            "sums of signs have no weights of edges; leave these out, or take layers that are Binary::Full"
        } else {
            return Ok(graph);
        };
        Err(Error::Unsupported {
            operator: "BinaryLayer",
            reason: reason.into(),
        })
    }
}

/// Bytes of the mean of the neighbours' signs of as many rows as are made at once, where [so few](RowShare::MOST) shares do.
const BYTES_OF_SHARE: usize = 16 << 20;

/// In how many shares the mean of so many rows and columns is made, with two or three launches each.
fn shares<E: Element>((rows, columns): (usize, usize)) -> usize {
    let row = padded::<E>(columns) * size_of::<E>();
    rows.saturating_mul(row).div_ceil(BYTES_OF_SHARE)
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
        let graph = self.graph(at, rows)?;
        if let (Mode::Evaluate, true) = (at.mode, self.reads_signs()) {
            let mut signs = self.input_bits.take();
            self.signs_of(backend, x, bits(backend, &mut signs, x.shape())?)?;
            let done = match &signs {
                Some(signs) => self.forward_of_signs(at, signs, SignsOrElements::Elements(y)),
                None => Ok(()),
            };
            self.input_bits = signs;
            return done;
        }
        let (share, sum) = (self.share(), Combine::sum());
        let mut standardized = None;
        let x = match &mut self.features {
            Some(features) => {
                let lent = standardized.insert(at.take(x.columns())?);
                features.forward(backend, at.mode, x, lent)?;
                &*lent
            }
            None => x,
        };
        if self.heard.is_none() || self.itself.is_some() {
            let dropout = at.dropout(self.dropout, 0);
            self.input.make(backend, at.mode, dropout, x)?;
        }
        if let Some(mean) = &mut self.heard {
            // An evaluation has made them for its own product.
            let sent = match at.mode {
                Mode::Evaluate => self.input.bits(),
                Mode::Train { .. } => {
                    let sent = bits(backend, &mut self.sent, x.shape())?;
                    ops::binarize(backend, x, sent)?;
                    &*sent
                }
            };
            let mean = mean.room(backend, rows)?;
            ops::bspmm(backend, graph.forward(), sent, graph.row_scale(), 1.0, mean)?;
            drop(backend, at.dropout(self.dropout, 1), mean)?;
            match &self.itself {
                None => self.weight.output_of(backend, mean, y)?,
                Some(_) => self.weight.product_of(backend, mean, y.matrix())?,
            }
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
        match (&mut self.itself, at.mode) {
            (None, _) => {}
            // Of signs an evaluation is one of bits, above.
            (Some(itself), Mode::Evaluate) => {
                itself.add_product(backend, &self.input, y.matrix())?;
            }
            (Some(itself), Mode::Train { .. }) => {
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
        }
        standardized.into_iter().for_each(|lent| at.give(lent));
        Ok(())
    }

    fn see_features(&mut self, backend: &B, features: &FeatureRows<B, E>) -> Result<(), Error> {
        match &mut self.features {
            None => Ok(()),
            Some(standardized) if features.are_whole() => {
                standardized.see(backend, features.matrix())
            }
            Some(_) => Err(Error::Unsupported {
                operator: "BinaryLayer",
                reason: "features that stay on disk or are dealt out to ranks are never seen at once, and a network of one bit normalises them over all vertices; have them in memory".into(),
            }),
        }
    }

    fn reads_signs(&self) -> bool {
        match self.neighbours {
            // Of a product whose signs alone go on, a factor a row is none.
            Neighbours::Signs => true,
            Neighbours::Inputs => self.itself.is_none(),
            Neighbours::Products => false,
        }
    }

    fn centres_columns(&self) -> bool {
        self.features.is_some()
    }

    fn writes_signs(&self) -> bool {
        self.neighbours == Neighbours::Signs && self.itself.is_none()
    }

    fn signs_of(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        signs: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        match &mut self.features {
            Some(features) => features.signs(backend, x, signs),
            None => ops::binarize(backend, x, signs),
        }
    }

    fn forward_of_signs(
        &mut self,
        at: &mut Context<'_, B, E>,
        signs: &BitMatrix<B>,
        y: SignsOrElements<'_, '_, B, E>,
    ) -> Result<(), Error> {
        let (backend, rows, columns) = (at.backend, signs.rows(), self.widths().1);
        let (graph, share) = (self.graph(at, rows)?, self.share());
        if let (Some(all), Some(some)) = (&mut self.heard, &mut self.heard_by_some) {
            let SignsOrElements::Elements(y) = y else {
                return Err(no_signs());
            };
            // What training keeps is there already.
            let (mean, shares) = match all.get().rows() == rows {
                true => (all, 1),
                false => (some, shares::<E>(signs.shape())),
            };
            let most = RowShare::each(shares)
                .map(|share| share.rows(rows).len())
                .max();
            let mean = mean.room(backend, most.unwrap_or(0))?;
            let weight = self.weight.scaled(backend)?;
            for share in RowShare::each(shares) {
                let a = (graph.forward(), share);
                ops::bspmm_rows(backend, a, signs, graph.row_scale(), 1.0, mean)?;
                y.rows_of_product_transposed(share.rows(rows), [mean, weight])?;
            }
            return Ok(());
        }
        let sent = bits(backend, &mut self.sent, (rows, columns))?;
        let y = match (y, &self.itself) {
            // Means have the signs of sums.
            (SignsOrElements::Signs(y), None) => {
                let y = BitOutput::Bits(y);
                let sent = (sent, share);
                return self.weight.sum_signs_of(backend, signs, graph, sent, y);
            }
            (SignsOrElements::Signs(_), Some(_)) => return Err(no_signs()),
            (SignsOrElements::Elements(y), _) => y.matrix(),
        };
        let sums = BitOutput::Elements(&mut *y);
        self.weight
            .sum_signs_of(backend, signs, graph, (sent, share), sums)?;
        match &mut self.itself {
            None => Ok(()),
            Some(itself) => itself.add_signs_of(backend, signs, share, y),
        }
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
        let all = self.itself.iter_mut().chain([&mut self.weight]);
        all.map(|weight| {
            weight.is_frozen = false;
            &mut weight.parameter
        })
        .collect()
    }

    fn freeze(&mut self, backend: &B) -> Result<(), Error> {
        let mut all = self.itself.iter_mut().chain([&mut self.weight]);
        all.try_for_each(|weight| weight.freeze(backend))
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let mean = self.heard.iter().map(|mean| ("mean", mean.get()));
        mean.collect()
    }
}
