//! Sums of bits as they are: integers.

use super::{BitMatrix, BitsOperators, ColumnFactors, check_factors, check_schedule, check_shapes};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{Checked, Operator, Schedule};
use crate::tensor::{Array, Matrix, padded};

/// A row-major matrix of `i32` on a backend. Its rows start at multiples of 16 bytes; padding is zero, and no public
/// function shows it.
#[derive(Debug)]
pub struct IntegerMatrix<B: Storage> {
    pub(crate) values: Array<B, i32>,
    rows: usize,
    columns: usize,
}

impl<B: Storage> IntegerMatrix<B> {
    /// `rows` × `columns` zeros.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix has more elements than can be addressed, [`Error::Driver`] where there is
    /// not enough memory.
    pub fn zeros(
        backend: &B,
        rows: usize,
        columns: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        // Laid out as a matrix of floats, which are as wide.
        let len = Matrix::<B, f32>::elements(rows, columns)?;
        Ok(Self {
            values: Array::zeros(backend, len, kind)?,
            rows,
            columns,
        })
    }

    /// A copy of `values`, row-major, `rows · columns` long.
    ///
    /// # Errors
    /// Those of [`IntegerMatrix::zeros`]; [`Error::Shape`] where the length is another.
    pub fn from_slice(
        backend: &B,
        (rows, columns): (usize, usize),
        values: &[i32],
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let mut matrix = Self::zeros(backend, rows, columns, kind)?;
        Error::expect(
            "IntegerMatrix::from_slice",
            "values",
            rows * columns,
            values.len(),
        )?;
        if columns > 0 {
            let stride = matrix.stride();
            let mut padded = vec![0; matrix.values.len()];
            let rows = padded
                .chunks_exact_mut(stride)
                .zip(values.chunks_exact(columns));
            rows.for_each(|(to, from)| to[..columns].copy_from_slice(from));
            matrix.values.write(backend, &padded)?;
        }
        Ok(matrix)
    }

    /// The elements, row-major, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_vec(&self, backend: &B) -> Result<Vec<i32>, Error> {
        let values = self.values.to_vec(backend)?;
        if self.columns == 0 {
            return Ok(Vec::new());
        }
        let rows = values.chunks_exact(self.stride());
        Ok(rows.flat_map(|row| &row[..self.columns]).copied().collect())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, padding not counted.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `(rows, columns)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Integers between the starts of two rows.
    pub(crate) fn stride(&self) -> usize {
        padded::<f32>(self.columns)
    }
}

/// `y = A · x`, the sums of ±1 over neighbours, as the integers that they are. Rows without neighbours are zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn bspmm_integers<B: BitsOperators>(
    backend: &B,
    a: &Adjacency<B>,
    x: &BitMatrix<B>,
    y: &mut IntegerMatrix<B>,
) -> Result<(), Error> {
    let operands = BspmmIntegersOperands {
        a,
        factors: None,
        x,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm_integers(Checked::new(operands)?)
}

/// `y = A · Q · x`, where `Q` has the [quantized values](ColumnFactors::to_codes) of the factors of columns: the sums
/// are these integers times [`ColumnFactors::scale`]. Rows without neighbours are zero.
///
/// # Errors
/// Those of [`bspmm_factored`](super::bspmm_factored).
pub fn bspmm_factored_integers<B: BitsOperators>(
    backend: &B,
    (a, factors): (&Adjacency<B>, &ColumnFactors<B>),
    x: &BitMatrix<B>,
    y: &mut IntegerMatrix<B>,
) -> Result<(), Error> {
    let operands = BspmmIntegersOperands {
        a,
        factors: Some(factors),
        x,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm_integers(Checked::new(operands)?)
}

/// Operands of [`bspmm_integers`] and [`bspmm_factored_integers`], which leave the schedule to the backend.
#[derive(Debug)]
pub struct BspmmIntegersOperands<'a, B: Storage> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// A factor a column of the graph, of which the quantized values are taken; ones where absent.
    pub factors: Option<&'a ColumnFactors<B>>,
    /// A row a column of the graph.
    pub x: &'a BitMatrix<B>,
    /// How a GPU distributes the edges: the sums are the same.
    pub schedule: Schedule,
    /// Becomes the sums.
    pub y: &'a mut IntegerMatrix<B>,
}

impl<B: Storage> Operator for BspmmIntegersOperands<'_, B> {
    const NAME: &'static str = "bspmm_integers";

    fn check(&self) -> Result<(), Error> {
        check_factors(Self::NAME, self.a, self.factors)?;
        check_schedule(Self::NAME, self.schedule, self.factors.is_some())?;
        let graph = (self.a.rows(), self.a.columns());
        check_shapes(Self::NAME, graph, self.x, self.y.shape())
    }
}
