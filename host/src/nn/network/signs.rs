//! Evaluations that read signs: which stages pass them on, so that neither the elements nor the factors that change no sign are computed
//! (BitGNN's planner, §3.3), and features of which nothing but signs lies on the device.

use super::step::{Pass, Step, bend};
use super::{Network, refuse};
use crate::backend::{Backend, MemoryKind};
use crate::data::BitFeatures;
use crate::error::Error;
use crate::nn::fusion::After;
use crate::nn::{Context, Mode, Output, Parameter, Pool, Propagation, SignsOrElements};
use crate::ops::{Activation, BitMatrix};
use crate::tensor::{Element, Matrix};

const NAME: &str = "Network::evaluate_signs";

/// What a stage reads.
#[derive(Debug)]
pub(super) enum Source<'a, B: Backend, E: Element> {
    /// Elements.
    Elements(&'a Matrix<B, E>),
    /// Signs of the features.
    Signs(&'a BitMatrix<B>),
    /// Signs that the stage before has written to this one's.
    Passed,
}

impl<B: Backend, E: Element> Clone for Source<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, E: Element> Copy for Source<'_, B, E> {}

impl<'a, B: Backend, E: Element> Source<'a, B, E> {
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Elements(elements) => elements.rows(),
            Self::Signs(signs) => signs.rows(),
            Self::Passed => 0,
        }
    }

    pub(super) fn elements(self) -> Option<&'a Matrix<B, E>> {
        match self {
            Self::Elements(elements) => Some(elements),
            Self::Signs(_) | Self::Passed => None,
        }
    }
}

/// The matrix of bits of this shape, of any content.
fn room<'a, B: Backend>(
    backend: &B,
    signs: &'a mut Option<BitMatrix<B>>,
    (rows, columns): (usize, usize),
) -> Result<&'a mut BitMatrix<B>, Error> {
    let there = match signs.take() {
        Some(there) if there.shape() == (rows, columns) => there,
        _ => BitMatrix::zeros(backend, rows, columns, MemoryKind::Activations)?,
    };
    Ok(signs.insert(there))
}

impl<B: Backend, E: Element> Network<B, E> {
    /// Whether an evaluation reads nothing of the features but their signs, so that
    /// [`Network::evaluate_signs`] computes what a forward pass does.
    pub fn reads_signs(&self) -> bool {
        let mut layers = self.steps.iter().map(|step| &step.layer);
        !self.steps.is_empty()
            && self.reads_signs_at(0)
            && !layers.any(|layer| layer.reads_features())
    }

    /// What an evaluation reads of features, a row a vertex: [`Network::evaluate_signs`] takes it, and the features need not be on the
    /// device any more.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the network does not [read signs](Network::reads_signs), [`Error::Shape`] where it has another
    /// number of features, and those of the device.
    pub fn signs_of_features(
        &mut self,
        backend: &B,
        features: &Matrix<B, E>,
    ) -> Result<BitMatrix<B>, Error> {
        let columns = self.expect_signs()?;
        Error::expect(NAME, "columns of the features", columns, features.columns())?;
        let kind = MemoryKind::Features;
        let mut signs = BitMatrix::zeros(backend, features.rows(), columns, kind)?;
        let layer = &mut self.steps[0].layer;
        layer.signs_of(backend, features, &mut signs)?;
        Ok(signs)
    }

    /// [`Network::signs_of_features`] of features that are packed: from their words, so that no matrix of them is made. Of up to 2²² vertices
    /// they are the same. Of more a mean in float may be rounded to one of the two numbers of a column, of which both have then one
    /// sign; here they always have two.
    ///
    /// # Errors
    /// Those of [`Network::signs_of_features`].
    pub fn signs_of_bits(
        &self,
        backend: &B,
        features: &BitFeatures,
    ) -> Result<BitMatrix<B>, Error> {
        let columns = self.expect_signs()?;
        let actual = features.feature_len();
        Error::expect(NAME, "columns of the features", columns, actual)?;
        // What is +1 whatever the bit is. A mean lies between the two numbers of its column; of one number nothing is left, whose sign is
        // +1. Where no mean is taken away, +1 is the sign of 1 and of 0.
        let always = match (self.steps[0].layer.centres_columns(), features.lowest()) {
            (true, _) => features.empty_columns(),
            (false, lowest) => {
                let mut all = vec![0_u64; columns.div_ceil(64)];
                let set = (0..columns).filter(|_| lowest >= 0.0);
                set.for_each(|column| all[column / 64] |= 1 << (column % 64));
                all
            }
        };
        let shape = (features.vertices(), columns);
        BitMatrix::from_rows(backend, shape, MemoryKind::Features, |vertex, words| {
            let bits = features.row(vertex).iter().zip(&always);
            let words = words.iter_mut().zip(bits);
            words.for_each(|(word, (bits, always))| *word = bits | always);
        })
    }

    /// A forward pass of an evaluation, of the [signs](Network::signs_of_features) of the features. `graphs` are as those of
    /// [`Inputs`](crate::nn::Inputs).
    ///
    /// # Errors
    /// Those of [`Network::signs_of_features`] and of [`Model::forward`](crate::nn::Model::forward).
    pub fn evaluate_signs(
        &mut self,
        backend: &B,
        graphs: &[Propagation<B>],
        signs: &BitMatrix<B>,
    ) -> Result<(), Error> {
        let columns = self.expect_signs()?;
        Error::expect(NAME, "columns of the signs", columns, signs.columns())?;
        self.pass(
            backend,
            graphs,
            (Source::Signs(signs), false),
            Mode::Evaluate,
        )
    }

    /// The number of features of a network that reads signs.
    fn expect_signs(&self) -> Result<usize, Error> {
        match self.reads_signs() {
            true => Ok(self.steps[0].layer.widths().0),
            false => refuse(
                "its first layer computes with more of the features than their signs; give it a matrix"
                    .into(),
            ),
        }
    }

    /// Whether stage `number` reads signs in an evaluation: nothing else of its input is wanted.
    pub(super) fn reads_signs_at(&self, number: usize) -> bool {
        let step = &self.steps[number];
        step.layer.reads_signs() && !step.residual && step.norm.is_none()
    }

    /// Whether an evaluation has of what stage `number` gives its signs alone.
    pub(super) fn passes_signs(&self, number: usize) -> bool {
        let step = &self.steps[number];
        let is_bare = step.bias.is_none()
            && !step.relu
            && step.nonlinearity.is_none()
            && self.initial != Some(number)
            && !self.jumps.contains(&number);
        is_bare
            && !self.keeps_activations
            && step.layer.writes_signs()
            && self.reads_signs_at(number)
            && number + 1 < self.steps.len()
            && self.reads_signs_at(number + 1)
    }
}

impl<B: Backend, E: Element> Step<B, E> {
    /// Computes its output, or its signs for the stage `next`, in an evaluation that reads no more of its input than signs.
    pub(super) fn forward_of_signs(
        &mut self,
        source: Source<'_, B, E>,
        pass: Pass<'_, B, E>,
        next: Option<&mut Self>,
        pool: &mut Pool<B, E>,
    ) -> Result<(), Error> {
        let Pass {
            backend,
            mode,
            number,
            dropped: _,
            level,
            ranks,
            earlier,
            activation: Activation { relu, .. },
        } = pass;
        if let Source::Elements(elements) = source {
            let signs = room(backend, &mut self.signs, elements.shape())?;
            self.layer.signs_of(backend, elements, signs)?;
        }
        let signs = match (source, &self.signs) {
            (Source::Signs(signs), _) => signs,
            (_, Some(signs)) => signs,
            (_, None) => return refuse(format!("no signs come to layer {number}")),
        };
        let columns = self.output.columns;
        let to = match next {
            Some(next) => Some(room(backend, &mut next.signs, (level.rows, columns))?),
            None => None,
        };
        let mut lent = match to {
            Some(_) => None,
            None => Some(self.output.room(backend, pool, level.rows)?),
        };
        let after = After {
            bias: self.bias.as_ref().map(Parameter::master),
            relu,
            nonlinearity: bend(backend, self.nonlinearity, &mut self.given, level.rows)?,
            ..After::NOTHING
        };
        let mut at = Context {
            backend,
            mode,
            pool,
            layer: number,
            graph: level.graph,
            ranks,
            exchange: None,
            rows: level.rows,
            messages: None,
            earlier,
            d_initial: &mut None,
            d_jumped: &mut [],
        };
        match (to, &mut lent) {
            (Some(to), _) => {
                self.layer
                    .forward_of_signs(&mut at, signs, SignsOrElements::Signs(to))
            }
            (None, Some(y)) => {
                let mut y = Output::new(backend, y, after);
                let to = SignsOrElements::Elements(&mut y);
                self.layer.forward_of_signs(&mut at, signs, to)?;
                y.finish(number)
            }
            (None, None) => Ok(()),
        }
    }
}
