//! What vertices send to their neighbours, in 8 bits while a model trains.
//!
//! Three quarters of a training step are sums over neighbours, which take as long as their rows are to read. In codes these are half as
//! long as in half. They are made by the operator that writes the rows, where that can ([`Coding`]), else in a pass before the sum, with the
//! factors of the sender in them; their scales, one a column, are those of the step before with some room (delayed scaling, as in
//! Transformer Engine), so that nobody has to look at the matrix first. Codes of a forward pass are rounded to the nearest, those of gradients by chance, which keeps them unbiased.
//!
//! An evaluation sends what the model computes with, as it is.
//!
//! Of several ranks, whose scales are the same ones, codes are what is [exchanged](Messages::exchanges): those of the own rows, in both
//! directions, so that a layer sees its own rows alone and what it sums up are the codes that one rank has. That takes a graph whose edges
//! go both ways. Else, and where a layer reads more of its neighbours than their sum, rows are exchanged around it as they are, and each
//! rank makes the codes of its halo once more. What is drawn is drawn by a vertex' number.
//!
//! Ranks that have parts of a batch exchange no messages, and agree on the scales behind each step: in a first one each has its own.

use super::halo::{Halo, SentCodes};
use super::{Mode, Pool, Propagation};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, CodeFormat, Coding, QuantizedMatrix, Rounding};
use crate::tensor::{Array, Element, Matrix};

/// How many times the largest magnitude of the step before there is room for.
pub(crate) const MARGIN: f32 = 1.5;

/// Tags the random numbers of rounding, so that dropout shares none with them.
const ROUNDING_STREAM: u32 = 0x726f_756e;

/// Which way they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Activations, along the edges.
    Forward,
    /// Gradients, against them.
    Backward,
}

/// The messages of a layer, in codes.
#[derive(Debug)]
pub(super) struct Messages<B: Backend> {
    /// By [`Direction`]. Without rows but while they are summed up: layers lend one another the memory.
    codes: [QuantizedMatrix<B>; 2],
    /// Whether their scales follow something.
    has_scales: [bool; 2],
    /// Whether they are there before the sum asks for them.
    made: [bool; 2],
    /// Whether ranks exchange them.
    exchanged: bool,
    /// What is on its way to other ranks.
    underway: [Option<SentCodes<B>>; 2],
    /// The layer's number.
    layer: u32,
}

impl<B: Backend> Messages<B> {
    /// Messages of so many columns.
    ///
    /// # Errors
    /// Those of [`QuantizedMatrix::zeros`].
    pub(super) fn new(
        backend: &B,
        columns: usize,
        format: CodeFormat,
        layer: usize,
    ) -> Result<Self, Error> {
        let none =
            || QuantizedMatrix::zeros(backend, (0, columns), format, MemoryKind::Activations);
        Ok(Self {
            codes: [none()?, none()?],
            has_scales: [false; 2],
            made: [false; 2],
            exchanged: false,
            underway: [None, None],
            layer: layer as u32,
        })
    }

    /// Has ranks exchange the codes, and not what they are made of.
    pub(super) fn exchange(&mut self, exchanged: bool) {
        self.exchanged = exchanged;
    }

    /// Whether they do: then a layer's input has a rank's own rows alone.
    pub(super) fn exchanges(&self) -> bool {
        self.exchanged
    }

    /// What an operator is told that makes the codes of `factors · x` where it writes `x`, of so many rows, which is sent next;
    /// `alone` where nobody reads `x` itself. None in a first step, which finds its scales by looking at `x`.
    ///
    /// # Errors
    /// Those of [`Messages::encode`].
    pub(super) fn coding<'a, E: Element>(
        &'a mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        (direction, mode): (Direction, Mode<'a, B>),
        (rows, graph): (usize, &'a Propagation<B>),
        factors: Option<&'a Array<B, f32>>,
        alone: bool,
    ) -> Result<Option<Coding<'a, B>>, Error> {
        if self.wants_scales(backend, direction)? {
            return Ok(None);
        }
        self.made[direction as usize] = true;
        let ranks = graph.halo();
        self.room(backend, pool, direction, (rows, ranks))?;
        let rounding = self.rounding((direction, mode), (rows, ranks));
        let codes = &mut self.codes[direction as usize];
        ops::update_scales(backend, MARGIN, codes.scales_mut())?;
        Ok(Some(Coding {
            row_scale: factors,
            rounding,
            codes,
            alone,
        }))
    }

    /// The codes of `factors · x`, until they are [released](Messages::release): those that an operator made of it, or made now; and behind
    /// them those of the halo, where ranks exchange them.
    ///
    /// # Errors
    /// Those of [`ops::quantize`] and [`Halo::begin_codes`].
    pub(super) fn encode<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        (direction, mode): (Direction, Mode<'_, B>),
        x: &Matrix<B, E>,
        (factors, graph): (Option<&Array<B, f32>>, &Propagation<B>),
    ) -> Result<&QuantizedMatrix<B>, Error> {
        let (at, ranks) = (direction as usize, graph.halo());
        if !std::mem::take(&mut self.made[at]) {
            self.room(backend, pool, direction, (x.rows(), ranks))?;
            let rounding = self.rounding((direction, mode), (x.rows(), ranks));
            let finds_scales = self.wants_scales(backend, direction)?;
            let codes = &mut self.codes[at];
            if finds_scales {
                ops::quantize(backend, x, factors, rounding, codes)?;
                codes.scales_mut().forget_counts(backend)?;
                if let Some(ranks) = ranks {
                    let what = format!("layers.{} scales", self.layer);
                    let [_, largest] = codes.scales_mut().state_mut();
                    ranks.group().largest_by_host(backend, &what, largest)?;
                }
            }
            self.has_scales[at] = true;
            ops::update_scales(backend, MARGIN, codes.scales_mut())?;
            ops::quantize(backend, x, factors, rounding, codes)?;
        }
        self.begin(backend, pool, direction, graph)?;
        self.end(backend, pool, direction, graph)?;
        Ok(&self.codes[at])
    }

    /// Sends the codes on their way, where ranks exchange them and they are not: what an operator has made goes while others compute.
    ///
    /// # Errors
    /// Those of [`Halo::begin_codes`].
    pub(super) fn begin<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
        graph: &Propagation<B>,
    ) -> Result<(), Error> {
        let at = direction as usize;
        let Some(ranks) = graph.halo().filter(|_| self.exchanged) else {
            return Ok(());
        };
        if self.underway[at].is_none() {
            let way = match direction {
                Direction::Forward => "forward",
                Direction::Backward => "backward",
            };
            let what = format!("layers.{} {way}", self.layer);
            let codes = &mut self.codes[at];
            self.underway[at] = Some(ranks.begin_codes(backend, &what, pool, codes)?);
        }
        Ok(())
    }

    /// Waits for those of other ranks.
    fn end<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
        graph: &Propagation<B>,
    ) -> Result<(), Error> {
        let at = direction as usize;
        match (graph.halo(), self.underway[at].take()) {
            (Some(ranks), Some(packed)) => {
                ranks.end_codes(backend, pool, (&self.codes[at], packed))
            }
            _ => Ok(()),
        }
    }

    /// What was made of a matrix that changes after all is not sent, or not looked at.
    ///
    /// # Errors
    /// Those of [`Halo::end_codes`].
    pub(super) fn unmake<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
        graph: &Propagation<B>,
    ) -> Result<(), Error> {
        self.made[direction as usize] = false;
        self.end(backend, pool, direction, graph)
    }

    /// Whether scales have nothing to follow yet. Those of a checkpoint go on, and of ranks that have parts of batches those of one that had none so far;
    /// a first step has none, and looks at itself.
    fn wants_scales(&mut self, backend: &B, direction: Direction) -> Result<bool, Error> {
        let at = direction as usize;
        let may_lack = !self.has_scales[at] && !backend.only_counts();
        if may_lack && self.codes[at].scales().are_unset(backend)? {
            return Ok(true);
        }
        self.has_scales[at] = true;
        Ok(false)
    }

    /// Makes room for codes of so many rows, and for those that ranks exchange.
    fn room<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
        (rows, ranks): (usize, Option<&Halo<B>>),
    ) -> Result<(), Error> {
        let codes = &mut self.codes[direction as usize];
        let room = match ranks.filter(|_| self.exchanged) {
            Some(ranks) => ranks.sources(),
            None => rows,
        };
        let words = QuantizedMatrix::<B>::words(room, codes.columns())?;
        let nothing = codes.replace_codes(pool.take_words(backend, words)?, room)?;
        pool.give_words(nothing);
        codes.set_rows(rows)?;
        if let Some(ranks) = ranks {
            codes.count_first(ranks.own());
        }
        Ok(())
    }

    /// How those of a direction are rounded.
    fn rounding<'a>(
        &self,
        (direction, mode): (Direction, Mode<'a, B>),
        (rows, ranks): (usize, Option<&'a Halo<B>>),
    ) -> Rounding<'a, B> {
        match (direction, mode) {
            (Direction::Backward, Mode::Train { random }) => Rounding::Stochastic {
                stream: ROUNDING_STREAM.wrapping_add(self.layer),
                random,
                numbers: ranks.map(|ranks| ranks.vertices(rows)),
            },
            _ => Rounding::Nearest,
        }
    }

    /// Gives the memory of the codes back.
    ///
    /// # Errors
    /// Those of [`Array::zeros`].
    pub(super) fn release<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
    ) -> Result<(), Error> {
        let nothing = pool.take_words(backend, 0)?;
        let codes = self.codes[direction as usize].replace_codes(nothing, 0)?;
        pool.give_words(codes);
        Ok(())
    }

    /// What a checkpoint holds of them, by name: the scales, and the largest magnitudes that the next ones are made of.
    pub(super) fn buffers(&self) -> impl Iterator<Item = (&'static str, &Matrix<B, f32>)> {
        let buffers = self.codes.iter().flat_map(|codes| codes.scales().state());
        NAMES.into_iter().zip(buffers)
    }

    /// The same, in the same order, to be restored.
    pub(super) fn buffers_mut(
        &mut self,
    ) -> impl Iterator<Item = (&'static str, &mut Matrix<B, f32>)> {
        self.has_scales = [false; 2];
        self.made = [false; 2];
        NAMES.into_iter().zip(self.state_mut())
    }

    /// Scales and the largest magnitudes, for ranks to agree on that have parts of a batch.
    pub(super) fn state_mut(&mut self) -> impl Iterator<Item = &mut Matrix<B, f32>> {
        let codes = self.codes.iter_mut();
        codes.flat_map(|codes| codes.scales_mut().state_mut())
    }

    /// Scales follow the step before, and nothing is sent that the next ones would follow.
    ///
    /// # Errors
    /// Those of [`ops::update_scales`].
    pub(super) fn send_nothing(&mut self, backend: &B) -> Result<(), Error> {
        let mut codes = self.codes.iter_mut();
        codes.try_for_each(|codes| ops::update_scales(backend, MARGIN, codes.scales_mut()))
    }

    /// [`Messages::largest`], for ranks to agree on.
    pub(super) fn largest_mut(&mut self) -> impl Iterator<Item = &mut Matrix<B, f32>> {
        let codes = self.codes.iter_mut();
        codes.map(|codes| {
            let [_, largest] = codes.scales_mut().state_mut();
            largest
        })
    }

    /// The largest magnitudes of the last step: infinite where a message was, which its codes do not tell.
    pub(super) fn largest(&self) -> impl Iterator<Item = &Matrix<B, f32>> {
        self.codes.iter().map(|codes| codes.scales().state()[1])
    }

    /// Messages that were larger than their scales had room for, forward and backward, so far.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn saturated(&self, backend: &B) -> Result<u64, Error> {
        let counts = self.codes.iter();
        let counts = counts.map(|codes| codes.scales().unrepresented(backend));
        counts
            .map(|count| count.map(|count| u64::from(count.saturated)))
            .sum()
    }
}

/// Those of [`Messages::buffers`].
const NAMES: [&str; 4] = [
    "messages.scales",
    "messages.largest",
    "messages.gradient_scales",
    "messages.gradient_largest",
];
