//! What vertices send to their neighbours, in 8 bits while a model trains.
//!
//! Three quarters of a training step are sums over neighbours, which take as long as their rows are to read. In codes these are half as
//! long as in half. They are made by the operator that writes the rows, where that can ([`Coding`]), else in a pass before the sum, with the
//! factors of the sender in them; their scales, one a column, are those of the step before with some room (delayed scaling, as in
//! Transformer Engine), so that nobody has to look at the matrix first. Codes of a forward pass are rounded to the nearest, those of gradients by chance, which keeps them unbiased.
//!
//! An evaluation sends what the model computes with, as it is.

use super::{Mode, Pool};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, CodeFormat, Coding, QuantizedMatrix, Rounding};
use crate::tensor::{Array, Element, Matrix};

/// How many times the largest magnitude of the step before there is room for.
const ROOM: f32 = 1.5;

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
            layer: layer as u32,
        })
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
        rows: usize,
        factors: Option<&'a Array<B, f32>>,
        alone: bool,
    ) -> Result<Option<Coding<'a, B>>, Error> {
        if self.wants_scales(backend, direction)? {
            return Ok(None);
        }
        self.made[direction as usize] = true;
        self.room(backend, pool, direction, rows)?;
        let rounding = self.rounding(direction, mode);
        let codes = &mut self.codes[direction as usize];
        ops::update_scales(backend, ROOM, codes.scales_mut())?;
        Ok(Some(Coding {
            row_scale: factors,
            rounding,
            codes,
            alone,
        }))
    }

    /// The codes of `factors · x`, until they are [released](Messages::release): those that an operator made of it, or made now.
    ///
    /// # Errors
    /// Those of [`ops::quantize`].
    pub(super) fn encode<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        (direction, mode): (Direction, Mode<'_, B>),
        x: &Matrix<B, E>,
        factors: Option<&Array<B, f32>>,
    ) -> Result<&QuantizedMatrix<B>, Error> {
        let at = direction as usize;
        if std::mem::take(&mut self.made[at]) {
            return Ok(&self.codes[at]);
        }
        self.room(backend, pool, direction, x.rows())?;
        let rounding = self.rounding(direction, mode);
        let finds_scales = self.wants_scales(backend, direction)?;
        let codes = &mut self.codes[at];
        if finds_scales {
            ops::quantize(backend, x, factors, rounding, codes)?;
            codes.scales_mut().forget_counts(backend)?;
        }
        self.has_scales[at] = true;
        ops::update_scales(backend, ROOM, codes.scales_mut())?;
        ops::quantize(backend, x, factors, rounding, codes)?;
        Ok(codes)
    }

    /// What was made of a matrix that changes after all is not sent.
    pub(super) fn unmake(&mut self, direction: Direction) {
        self.made[direction as usize] = false;
    }

    /// Whether scales have nothing to follow yet. Those of a checkpoint go on; a first step has none, and looks at itself.
    fn wants_scales(&mut self, backend: &B, direction: Direction) -> Result<bool, Error> {
        let at = direction as usize;
        if !self.has_scales[at] && !backend.only_counts() {
            let scales = self.codes[at].scales().to_vec(backend)?;
            if scales.iter().all(|&scale| scale == 1.0) {
                return Ok(true);
            }
        }
        self.has_scales[at] = true;
        Ok(false)
    }

    /// Makes room for codes of so many rows.
    fn room<E: Element>(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        direction: Direction,
        rows: usize,
    ) -> Result<(), Error> {
        let codes = &mut self.codes[direction as usize];
        let words = QuantizedMatrix::<B>::words(rows, codes.columns())?;
        let nothing = codes.replace_codes(pool.take_words(backend, words)?, rows)?;
        pool.give_words(nothing);
        Ok(())
    }

    /// How those of a direction are rounded.
    fn rounding<'a>(&self, direction: Direction, mode: Mode<'a, B>) -> Rounding<'a, B> {
        match (direction, mode) {
            (Direction::Backward, Mode::Train { random }) => Rounding::Stochastic {
                stream: ROUNDING_STREAM.wrapping_add(self.layer),
                random,
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
        let buffers = self.codes.iter_mut();
        let buffers = buffers.flat_map(|codes| codes.scales_mut().state_mut());
        NAMES.into_iter().zip(buffers)
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
