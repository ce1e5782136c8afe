//! Sums of ±1 over the neighbours in a graph of tiles of bits (BitGNN's FRDC, Chen et al., ICS 2023).
//!
//! The format and its kernel are here to be compared with: [`bspmm`](super::bspmm) sums up the same on the graphs that
//! every other operator has, and faster on those that have not most of a tile's edges.

mod cpu;
mod gpu;

use super::bits::{check_shapes, check_sums};
use super::{BitMatrix, Checked, Operator};
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_graph::Frdc;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A pattern of tiles on a backend.
#[derive(Debug)]
pub struct TiledAdjacency<B: Storage> {
    pub(crate) offsets: Array<B, u32>,
    pub(crate) columns: Array<B, u32>,
    pub(crate) tiles: Array<B, u16>,
    shape: (usize, usize),
}

impl<B: Storage> TiledAdjacency<B> {
    /// A copy of `tiled`.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, tiled: &Frdc) -> Result<Self, Error> {
        let kind = MemoryKind::Graph;
        Ok(Self {
            offsets: Array::from_slice(backend, tiled.tile_offsets(), kind)?,
            columns: Array::from_slice(backend, tiled.tile_columns(), kind)?,
            tiles: Array::from_slice(backend, tiled.tiles(), kind)?,
            shape: tiled.shape(),
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape.0
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.shape.1
    }
}

/// How a word of zeros and ones, the edges, is multiplied with one of ±1 (BitGNN §3.2.2). The sums are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trinary {
    /// Each edge is asked for: form (1).
    IfElse,
    /// A count of each sign: form (2).
    TwoCounts,
    /// A count of one sign and of the edges: form (3).
    #[default]
    OneCount,
}

impl Trinary {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 3] = [Self::IfElse, Self::TwoCounts, Self::OneCount];

    /// As the contract of kernels has it, of words of 32 edges.
    pub(crate) const fn dot(self) -> fn(u32, u32) -> i32 {
        use halfgnn_contract::frdc::trinary;
        match self {
            Trinary::IfElse => trinary::if_else,
            Trinary::TwoCounts => trinary::two_counts,
            Trinary::OneCount => trinary::one_count,
        }
    }
}

impl fmt::Display for Trinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Trinary::IfElse => "if-else",
            Trinary::TwoCounts => "two-counts",
            Trinary::OneCount => "one-count",
        })
    }
}

/// `y = scale · R · A · x`, as [`bspmm`](super::bspmm) has it, of a graph of tiles: BitGNN's BSpMM.BBF.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn frdc_bspmm<B: FrdcOperators, E: Element>(
    backend: &B,
    a: &TiledAdjacency<B>,
    x: &BitMatrix<B>,
    (row_scale, scale): (Option<&Array<B, f32>>, f32),
    trinary: Trinary,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = FrdcOperands {
        a,
        x,
        row_scale,
        scale,
        trinary,
        y,
    };
    backend.frdc_bspmm(Checked::new(operands)?)
}

/// `y = sign(A · x)`, as [`bspmm_signs`](super::bspmm_signs) has it, of a graph of tiles: BitGNN's BSpMM.BBB,
/// Algorithm 1.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn frdc_bspmm_signs<B: FrdcOperators>(
    backend: &B,
    a: &TiledAdjacency<B>,
    x: &BitMatrix<B>,
    trinary: Trinary,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let operands = FrdcSignsOperands { a, x, trinary, y };
    backend.frdc_bspmm_signs(Checked::new(operands)?)
}

/// Operands of [`frdc_bspmm`].
#[derive(Debug)]
pub struct FrdcOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a TiledAdjacency<B>,
    /// A row a column of the graph.
    pub x: &'a BitMatrix<B>,
    /// A factor a row of the graph.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// A factor of all.
    pub scale: f32,
    /// How edges and signs are multiplied.
    pub trinary: Trinary,
    /// Becomes the sums.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for FrdcOperands<'_, B, E> {
    const NAME: &'static str = "frdc_bspmm";

    fn check(&self) -> Result<(), Error> {
        check_sums(Self::NAME, self.a.shape, self.x, self.row_scale, self.y)
    }
}

/// Operands of [`frdc_bspmm_signs`].
#[derive(Debug)]
pub struct FrdcSignsOperands<'a, B: Storage> {
    /// The graph.
    pub a: &'a TiledAdjacency<B>,
    /// A row a column of the graph.
    pub x: &'a BitMatrix<B>,
    /// How edges and signs are multiplied.
    pub trinary: Trinary,
    /// Becomes the signs of the sums.
    pub y: &'a mut BitMatrix<B>,
}

impl<B: Storage> Operator for FrdcSignsOperands<'_, B> {
    const NAME: &'static str = "frdc_bspmm_signs";

    fn check(&self) -> Result<(), Error> {
        check_shapes(Self::NAME, self.a.shape, self.x, self.y.shape())
    }
}

/// What is done with graphs of tiles.
pub trait FrdcOperators: Storage {
    /// Sums over neighbours.
    ///
    /// # Errors
    /// Those of the device.
    fn frdc_bspmm<E: Element>(
        &self,
        operands: Checked<FrdcOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Signs of sums over neighbours.
    ///
    /// # Errors
    /// Those of the device.
    fn frdc_bspmm_signs(&self, operands: Checked<FrdcSignsOperands<'_, Self>>)
    -> Result<(), Error>;
}
