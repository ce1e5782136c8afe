//! What attention does to features, whose heads lie side by side: dots, sums and means of heads.

mod check;
mod cpu;
mod gpu;

use super::Checked;
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// Scores of every head of every vertex, `destination[h, v] = x[v, h] · vectors[0, h]` and
/// `source[h, v] = x[v, h] · vectors[1, h]`, in one pass over the features and in float.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
/// heads.
pub fn head_scores<B: HeadOperators, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    vectors: &Matrix<B, E>,
    destination: &mut Array<B, f32>,
    source: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = HeadScoresOperands {
        heads,
        destinations: x.rows(),
        x,
        vectors,
        destination,
        source,
    };
    backend.head_scores(Checked::new(operands)?)
}

/// Operands of [`head_scores`].
#[derive(Debug)]
pub struct HeadScoresOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Rows of `x` that are destinations: the first. All are sources.
    pub destinations: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// The two attention vectors.
    pub vectors: &'a Matrix<B, E>,
    /// Become the scores as destination.
    pub destination: &'a mut Array<B, f32>,
    /// Become the scores as source.
    pub source: &'a mut Array<B, f32>,
}

/// Dots of the heads of each row, in float; see [`HeadDots`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
/// heads.
pub fn head_dots<B: HeadOperators, E: Element>(
    backend: &B,
    op: &HeadDots<'_, B, E>,
    y: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = HeadDotsOperands { op, y };
    backend.head_dots(Checked::new(operands)?)
}

/// `a · (beta · b + gamma · c) + delta · u · v`, of each head of each row.
#[derive(Debug)]
pub struct HeadDots<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Features.
    pub a: &'a Matrix<B, E>,
    /// Features, and their factor.
    pub b: (f32, &'a Matrix<B, E>),
    /// Features, and their factor.
    pub c: Option<(f32, &'a Matrix<B, E>)>,
    /// Numbers of vertices, and their factor.
    pub u: Option<(f32, &'a Array<B, f32>)>,
    /// Numbers of vertices that `u` is multiplied by.
    pub v: Option<&'a Array<B, f32>>,
}

impl<'a, B: Storage, E: Element> HeadDots<'a, B, E> {
    /// `a · (beta · b)`.
    pub fn new(heads: usize, a: &'a Matrix<B, E>, b: (f32, &'a Matrix<B, E>)) -> Self {
        Self {
            heads,
            a,
            b,
            c: None,
            u: None,
            v: None,
        }
    }
}

/// Operands of [`head_dots`].
#[derive(Debug)]
pub struct HeadDotsOperands<'a, B: Storage, E: Element> {
    /// What is multiplied.
    pub op: &'a HeadDots<'a, B, E>,
    /// Becomes a number a head and row.
    pub y: &'a mut Array<B, f32>,
}

/// Dots of each row of `a` with those of two matrices: `u = a · d`, and `y = a · (beta · b) + delta · u · v`, to the
/// bits of two [`head_dots`]; a device reads `a` once.
///
/// # Errors
/// Those of [`head_dots`].
pub fn head_dots_pair<B: HeadOperators, E: Element>(
    backend: &B,
    operands: HeadDotsPairOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.head_dots_pair(Checked::new(operands)?)
}

/// Operands of [`head_dots_pair`].
#[derive(Debug)]
pub struct HeadDotsPairOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Features.
    pub a: &'a Matrix<B, E>,
    /// Features.
    pub d: &'a Matrix<B, E>,
    /// Features, and their factor.
    pub b: (f32, &'a Matrix<B, E>),
    /// Numbers of vertices that `u` is multiplied by, and the product's factor.
    pub v: (f32, &'a Array<B, f32>),
    /// Becomes `a · d`, a number a head and row.
    pub u: &'a mut Array<B, f32>,
    /// Becomes a number a head and row.
    pub y: &'a mut Array<B, f32>,
}

/// `y = a · (beta · b + gamma · c) + delta · u`, and then `b += destination · vectors[0] + y · vectors[1]`, the first
/// of these of the rows that are destinations, to the bits of [`head_dots`] and [`head_outer`] one after the other; and
/// `sums[0] = Σ destination · a` and `sums[1] = Σ y · a`, as [`head_sums`] has them. A device passes over all of it
/// once, where there is one head of no more vectors of 16 bytes than a warp has lanes.
///
/// # Errors
/// Those of [`head_dots`], [`head_outer`] and [`head_sums`].
pub fn head_dots_outer<B: HeadOperators, E: Element>(
    backend: &B,
    operands: HeadDotsOuterOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.head_dots_outer(Checked::new(operands)?)
}

/// Operands of [`head_dots_outer`].
#[derive(Debug)]
pub struct HeadDotsOuterOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Features.
    pub a: &'a Matrix<B, E>,
    /// Features that the products are added to, and their factor in the dots.
    pub b: (f32, &'a mut Matrix<B, E>),
    /// Features, and their factor.
    pub c: (f32, &'a Matrix<B, E>),
    /// Numbers of vertices, and their factor.
    pub u: (f32, &'a Array<B, f32>),
    /// Rows that are destinations: the first. All are sources.
    pub destinations: usize,
    /// Numbers of the destinations.
    pub destination: &'a Array<B, f32>,
    /// The two attention vectors.
    pub vectors: &'a Matrix<B, E>,
    /// Becomes a number a head and row: those of the rows as sources.
    pub y: &'a mut Array<B, f32>,
    /// Become the two rows of sums.
    pub sums: &'a mut Matrix<B, f32>,
}

/// Adds `destination[h, v] · vectors[0, h] + source[h, v] · vectors[1, h]` to every head of every row of `x`: the
/// gradient of [`head_scores`] for the features.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
/// heads.
pub fn head_outer<B: HeadOperators, E: Element>(
    backend: &B,
    heads: usize,
    destination: &Array<B, f32>,
    source: &Array<B, f32>,
    vectors: &Matrix<B, E>,
    x: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadOuterOperands {
        heads,
        destinations: x.rows(),
        destination,
        source,
        vectors,
        x,
    };
    backend.head_outer(Checked::new(operands)?)
}

/// Operands of [`head_outer`].
#[derive(Debug)]
pub struct HeadOuterOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Rows of `x` that are destinations: the first. All are sources.
    pub destinations: usize,
    /// Numbers of the destinations.
    pub destination: &'a Array<B, f32>,
    /// Numbers of the rows as sources.
    pub source: &'a Array<B, f32>,
    /// The two attention vectors.
    pub vectors: &'a Matrix<B, E>,
    /// What is added to.
    pub x: &'a mut Matrix<B, E>,
}

/// `sums[0, h] = Σ_v destination[h, v] · x[v, h]` and `sums[1, h] = Σ_v source[h, v] · x[v, h]`, in float and in a
/// fixed order: the gradient of [`head_scores`] for the attention vectors.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
/// heads.
pub fn head_sums<B: HeadOperators, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    destination: &Array<B, f32>,
    source: &Array<B, f32>,
    sums: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = HeadSumsOperands {
        heads,
        destinations: x.rows(),
        x,
        destination,
        source,
        sums,
    };
    backend.head_sums(Checked::new(operands)?)
}

/// Operands of [`head_sums`].
#[derive(Debug)]
pub struct HeadSumsOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Rows of `x` that are destinations: the first. All are sources.
    pub destinations: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// Numbers of the destinations.
    pub destination: &'a Array<B, f32>,
    /// Numbers of the rows as sources.
    pub source: &'a Array<B, f32>,
    /// Become the two rows of sums.
    pub sums: &'a mut Matrix<B, f32>,
}

/// The mean of the heads of `x`, in float, rounded once. A head of `x` is as wide as a row of `y`, padded to a whole
/// vector where there is more than one head.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
/// heads.
pub fn head_mean<B: HeadOperators, E: Element>(
    backend: &B,
    heads: usize,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadMeanOperands { heads, x, y };
    backend.head_mean(Checked::new(operands)?)
}

/// Operands of [`head_mean`].
#[derive(Debug)]
pub struct HeadMeanOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// The features.
    pub x: &'a Matrix<B, E>,
    /// Becomes their mean.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of [`head_mean`]: every head of `dx` becomes `dy` over the number of heads.
///
/// # Errors
/// Those of [`head_mean`].
pub fn head_mean_backward<B: HeadOperators, E: Element>(
    backend: &B,
    heads: usize,
    dy: &Matrix<B, E>,
    dx: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = HeadMeanBackwardOperands { heads, dy, dx };
    backend.head_mean_backward(Checked::new(operands)?)
}

/// Operands of [`head_mean_backward`].
#[derive(Debug)]
pub struct HeadMeanBackwardOperands<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Gradient of the mean.
    pub dy: &'a Matrix<B, E>,
    /// Becomes that of the features.
    pub dx: &'a mut Matrix<B, E>,
}

/// What attention does to features.
pub trait HeadOperators: Storage {
    /// The dots of each head of each row with its part of the two rows of `vectors`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Dots of heads; see [`HeadDots`].
    ///
    /// # Errors
    /// Those of the device.
    fn head_dots<E: Element>(
        &self,
        operands: Checked<HeadDotsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `u = a · d` and `y = a · (beta · b) + delta · u · v`, of each head of each row.
    ///
    /// # Errors
    /// Those of the device.
    fn head_dots_pair<E: Element>(
        &self,
        operands: Checked<HeadDotsPairOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Dots of heads, and their products with attention vectors added to one of the matrices; see [`head_dots_outer`].
    ///
    /// # Errors
    /// Those of the device.
    fn head_dots_outer<E: Element>(
        &self,
        operands: Checked<HeadDotsOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Adds `destination · vectors[0] + source · vectors[1]` to each head of each row of `x`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `sums[0] = Σ destination · x` and `sums[1] = Σ source · x` over the rows, head by head, in float and in a fixed
    /// order.
    ///
    /// # Errors
    /// Those of the device.
    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `y` = the mean of the heads of `x`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_mean<E: Element>(
        &self,
        operands: Checked<HeadMeanOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`HeadOperators::head_mean`]: each head of `dx` becomes `dy` over the heads.
    ///
    /// # Errors
    /// Those of the device.
    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
