//! Graphs made on a device, of lists of edges that lie there, without any work of the host.
//!
//! `Adjacency::from_coo` and its like are made of these: edges are put in order by [`sort_pairs`](super::sort_pairs),
//! first by column, then by row.

mod adjacency;
mod cpu;
mod gpu;
mod renamed;

pub use renamed::{GraphRows, renaming_bytes};

use super::{Checked, Operator};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};
use bytemuck::Pod;
use halfgnn_contract::construct as contract;

/// The row of each edge from the first edges of the rows, `rows + 1` of them. Edges past the last offset get the number
/// of rows.
///
/// # Errors
/// [`Error::Unsupported`] where there is no offset.
pub fn row_ids<B: ConstructOperators>(
    backend: &B,
    offsets: &Array<B, u64>,
    ids: &mut Array<B, u32>,
) -> Result<(), Error> {
    backend.row_ids(Checked::new(RowIdsOperands { offsets, ids })?)
}

/// The first edge of each row, and the number of edges behind them, from the ascending rows of the edges. What has a
/// number that is no row's, at the end, is no edge.
///
/// # Errors
/// [`Error::Unsupported`] where there is no memory for an offset.
pub fn row_offsets<B: ConstructOperators>(
    backend: &B,
    ids: &Array<B, u32>,
    offsets: &mut Array<B, u64>,
) -> Result<(), Error> {
    backend.row_offsets(Checked::new(RowOffsetsOperands { ids, offsets })?)
}

/// `taken[k] = words[order[k]]`, and 0 where there is no such word.
///
/// # Errors
/// [`Error::Shape`] where `taken` is not as long as `order`.
pub fn take_words<B: ConstructOperators>(
    backend: &B,
    words: &Array<B, u32>,
    order: &Array<B, u32>,
    taken: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = TakeWordsOperands {
        words,
        order,
        taken,
    };
    backend.take_words(Checked::new(operands)?)
}

/// [`take_words`] of elements: `taken[i]` becomes `values[order[i]]`, or 0 where there is no such one.
///
/// # Errors
/// [`Error::Shape`] where `taken` is not as long as `order`.
pub fn take_values<B: ConstructOperators, E: Element>(
    backend: &B,
    values: &Array<B, E>,
    order: &Array<B, u32>,
    taken: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = TakeWordsOperands {
        words: values,
        order,
        taken,
    };
    backend.take_values(Checked::new(operands)?)
}

/// The largest word; 0 where there is none. It waits for the device.
///
/// # Errors
/// Those of the device.
pub fn largest_word<B: ConstructOperators>(
    backend: &B,
    words: &Array<B, u32>,
) -> Result<u32, Error> {
    backend.largest_word(words)
}

/// What of a degree [`degree_factors`] makes. A degree of 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DegreePower {
    /// The degree.
    Degree,
    /// One over the degree.
    Inverse,
    /// One over its square root.
    InverseRoot,
}

impl DegreePower {
    /// As kernels take it.
    pub(crate) const fn word(self) -> u32 {
        match self {
            Self::Degree => contract::DEGREE,
            Self::Inverse => contract::INVERSE,
            Self::InverseRoot => contract::INVERSE_ROOT,
        }
    }
}

/// A factor of each row of `a`, made of its number of edges: of a degree norm.
///
/// # Errors
/// [`Error::Driver`] where there is not enough memory.
pub fn degree_factors<B: ConstructOperators>(
    backend: &B,
    a: &Adjacency<B>,
    power: DegreePower,
) -> Result<Array<B, f32>, Error> {
    let mut factors = Array::uninit(backend, a.rows(), MemoryKind::Graph)?;
    renew_degree_factors(backend, a, power, &mut factors)?;
    Ok(factors)
}

/// [`degree_factors`] in memory that is there.
///
/// # Errors
/// [`Error::Shape`] where there is not a factor for each row.
pub fn renew_degree_factors<B: ConstructOperators>(
    backend: &B,
    a: &Adjacency<B>,
    power: DegreePower,
    factors: &mut Array<B, f32>,
) -> Result<(), Error> {
    backend.degree_factors(Checked::new(DegreeFactorsOperands {
        offsets: a.offsets(backend)?,
        power,
        factors,
    })?)
}

/// Operands of [`degree_factors`].
#[derive(Debug)]
pub struct DegreeFactorsOperands<'a, B: Storage> {
    /// First edge of each row, and the number of edges.
    pub offsets: &'a Array<B, u64>,
    /// What of the degrees.
    pub power: DegreePower,
    /// Becomes the factor of each row.
    pub factors: &'a mut Array<B, f32>,
}

impl<B: Storage> Operator for DegreeFactorsOperands<'_, B> {
    const NAME: &'static str = "degree_factors";

    fn check(&self) -> Result<(), Error> {
        expect_offsets(Self::NAME, self.offsets)?;
        let rows = self.offsets.len() - 1;
        Error::expect(Self::NAME, "factors", rows, self.factors.len())
    }
}

/// Operands of [`row_ids`].
#[derive(Debug)]
pub struct RowIdsOperands<'a, B: Storage> {
    /// First edge of each row, and the number of edges.
    pub offsets: &'a Array<B, u64>,
    /// Becomes the row of each edge.
    pub ids: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for RowIdsOperands<'_, B> {
    const NAME: &'static str = "row_ids";

    fn check(&self) -> Result<(), Error> {
        expect_offsets(Self::NAME, self.offsets)
    }
}

/// Operands of [`row_offsets`].
#[derive(Debug)]
pub struct RowOffsetsOperands<'a, B: Storage> {
    /// Row of each edge, ascending.
    pub ids: &'a Array<B, u32>,
    /// Becomes the first edge of each row, and the number of edges.
    pub offsets: &'a mut Array<B, u64>,
}

impl<B: Storage> Operator for RowOffsetsOperands<'_, B> {
    const NAME: &'static str = "row_offsets";

    fn check(&self) -> Result<(), Error> {
        expect_offsets(Self::NAME, self.offsets)
    }
}

/// Operands of [`take_words`].
#[derive(Debug)]
pub struct TakeWordsOperands<'a, B: Storage, T: Pod = u32> {
    /// What is picked from.
    pub words: &'a Array<B, T>,
    /// Which word each of the results is.
    pub order: &'a Array<B, u32>,
    /// Becomes the words.
    pub taken: &'a mut Array<B, T>,
}

impl<B: Storage, T: Pod + Send + Sync> Operator for TakeWordsOperands<'_, B, T> {
    const NAME: &'static str = "take_words";

    fn check(&self) -> Result<(), Error> {
        Error::expect(
            Self::NAME,
            "taken words",
            self.order.len(),
            self.taken.len(),
        )
    }
}

/// Operands of [`ConstructOperators::row_index`].
#[derive(Debug)]
pub struct RowIndexOperands<'a, B: Storage> {
    /// Row of each edge, ascending.
    pub ids: &'a Array<B, u32>,
    /// First edge of each row, and the number of edges.
    pub offsets: &'a Array<B, u64>,
}

impl<B: Storage> Operator for RowIndexOperands<'_, B> {
    const NAME: &'static str = "row_index";

    fn check(&self) -> Result<(), Error> {
        expect_offsets(Self::NAME, self.offsets)
    }
}

/// What an adjacency has in addition to offsets and columns.
#[derive(Debug)]
pub struct RowIndex<B: Storage> {
    /// Where rows start: see [`Starts::words`](crate::graph::Starts::words).
    pub starts: Array<B, [u32; 2]>,
    /// The rows that have edges, and two that stand for none.
    pub filled_rows: Array<B, u32>,
    /// The rows without edges.
    pub empty_rows: Array<B, u32>,
    /// Edges of the longest row.
    pub longest_row: u32,
}

fn expect_offsets<B: Storage>(
    operator: &'static str,
    offsets: &Array<B, u64>,
) -> Result<(), Error> {
    if offsets.is_empty() {
        return Err(Error::Unsupported {
            operator,
            reason: "no offsets; there is one more than rows".into(),
        });
    }
    Ok(())
}

/// What a graph is made of.
pub trait ConstructOperators: Storage {
    /// Whether operators walk rows, and so want offsets of every adjacency.
    const WALKS_ROWS: bool = false;

    /// The row of each edge.
    ///
    /// # Errors
    /// Those of the device.
    fn row_ids(&self, operands: Checked<RowIdsOperands<'_, Self>>) -> Result<(), Error>;

    /// The first edge of each row.
    ///
    /// # Errors
    /// Those of the device.
    fn row_offsets(&self, operands: Checked<RowOffsetsOperands<'_, Self>>) -> Result<(), Error>;

    /// Words that an order picks.
    ///
    /// # Errors
    /// Those of the device.
    fn take_words(&self, operands: Checked<TakeWordsOperands<'_, Self>>) -> Result<(), Error>;

    /// Elements in an order: see [`take_values`].
    ///
    /// # Errors
    /// Those of the device.
    fn take_values<E: Element>(
        &self,
        operands: Checked<TakeWordsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Lists of rows with and without edges, starts, and the longest row. It waits for the device.
    ///
    /// # Errors
    /// Those of the device.
    fn row_index(
        &self,
        operands: Checked<RowIndexOperands<'_, Self>>,
    ) -> Result<RowIndex<Self>, Error>;

    /// The largest word, 0 where there is none. It waits for the device.
    ///
    /// # Errors
    /// Those of the device.
    fn largest_word(&self, words: &Array<Self, u32>) -> Result<u32, Error>;

    /// A factor of each row: see [`degree_factors`].
    ///
    /// # Errors
    /// Those of the device.
    fn degree_factors(
        &self,
        operands: Checked<DegreeFactorsOperands<'_, Self>>,
    ) -> Result<(), Error>;
}
