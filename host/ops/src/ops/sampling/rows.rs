//! Rows of a matrix that an order picks.

use super::{Operator, RowCache, SamplingOperators};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::{Checked, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix};

/// Row `i` of `taken` becomes the row `order[i]` of `rows`, bit for bit, or zeros where there is no such row: the
/// features of the vertices of a batch.
///
/// # Errors
/// [`Error::Shape`] where `taken` has not a row for each of `order`, or another number of columns;
/// [`Error::Unsupported`] where its rows do not [follow](Matrix::is_contiguous) one another.
pub fn take_rows<B: SamplingOperators, E: Element>(
    backend: &B,
    rows: &Matrix<B, E>,
    order: &Array<B, u32>,
    taken: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.take_rows(Checked::new(TakeRowsOperands {
        rows,
        cache: None,
        order,
        taken,
    })?)
}

/// [`take_rows`] of rows that lie in another memory, of which `cache` has copies of some.
///
/// # Errors
/// Those of [`take_rows`], and [`Error::Shape`] where the cache is of a matrix of another shape.
pub fn take_cached_rows<B: SamplingOperators, E: Element>(
    backend: &B,
    (rows, cache): (&Matrix<B, E>, &RowCache<B, E>),
    order: &Array<B, u32>,
    taken: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.take_rows(Checked::new(TakeRowsOperands {
        rows,
        cache: Some(cache),
        order,
        taken,
    })?)
}

/// Row `i` of `taken` becomes the row `order[i]` of `codes`, bit for bit, as [`take_rows`] has it of a matrix: rows of
/// as many quantized values in an array by itself.
///
/// # Errors
/// [`Error::Shape`] where `taken` has not the words of a row for each of `order`.
pub fn take_codes<B: SamplingOperators>(
    backend: &B,
    codes: &QuantizedMatrix<B>,
    order: &Array<B, u32>,
    taken: &mut Array<B, u32>,
) -> Result<(), Error> {
    backend.take_codes(Checked::new(TakeCodesOperands {
        codes,
        order,
        taken,
    })?)
}

/// Operands of [`take_codes`].
#[derive(Debug)]
pub struct TakeCodesOperands<'a, B: Storage> {
    /// What is picked from.
    pub codes: &'a QuantizedMatrix<B>,
    /// Which row each of the results is.
    pub order: &'a Array<B, u32>,
    /// Becomes the rows.
    pub taken: &'a mut Array<B, u32>,
}

impl<B: Storage> Operator for TakeCodesOperands<'_, B> {
    const NAME: &'static str = "take_codes";

    fn check(&self) -> Result<(), Error> {
        let words = QuantizedMatrix::<B>::words(self.order.len(), self.codes.columns())?;
        Error::expect(
            Self::NAME,
            "words of the taken rows",
            words,
            self.taken.len(),
        )
    }
}

/// Operands of [`take_rows`] and [`take_cached_rows`].
#[derive(Debug)]
pub struct TakeRowsOperands<'a, B: Storage, E: Element> {
    /// What is picked from.
    pub rows: &'a Matrix<B, E>,
    /// Copies of some of them.
    pub cache: Option<&'a RowCache<B, E>>,
    /// Which row each of the results is.
    pub order: &'a Array<B, u32>,
    /// Becomes the rows.
    pub taken: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for TakeRowsOperands<'_, B, E> {
    const NAME: &'static str = "take_rows";

    fn check(&self) -> Result<(), Error> {
        let (order, taken) = (self.order.len(), &self.taken);
        Error::expect(Self::NAME, "taken rows", order, taken.rows())?;
        Error::expect(
            Self::NAME,
            "taken columns",
            self.rows.columns(),
            taken.columns(),
        )?;
        if let Some(cache) = self.cache {
            let (rows, columns) = (self.rows.rows(), self.rows.columns());
            Error::expect(Self::NAME, "rows that the cache is of", rows, cache.of())?;
            Error::expect(Self::NAME, "cached columns", columns, cache.columns())?;
        }
        match taken.is_contiguous() {
            true => Ok(()),
            false => Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "between the taken rows there is something else; take a matrix whose rows follow one another".into(),
            }),
        }
    }
}
