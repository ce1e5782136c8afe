//! Vertex features on the host, dense, sparse or packed until they are uploaded.

use halfgnn_graph::parallel;

use super::StoredFeatures;
use super::bit_features::BitFeatures;
use super::error::DataProblem;
use halfgnn_graph::Csr;
use halfgnn_graph::reorder::Permutation;
use std::sync::Arc;

/// One row of numbers for each vertex.
///
/// Bags of words stay sparse: Citeseer's features are 0.9% full.
#[derive(Debug, Clone, PartialEq)]
pub enum Features {
    /// Every number, row-major.
    Dense(DenseFeatures),
    /// Only the numbers that are not zero.
    Sparse(SparseFeatures),
    /// A bit for each: all are +1 and −1, or all 1 and 0.
    Bits(BitFeatures),
    /// None: they stay in their files, from which rows are read on demand.
    Stored(Arc<StoredFeatures>),
}

/// Features as a row-major matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseFeatures {
    len: usize,
    values: Vec<f32>,
}

/// Features as compressed rows. Several entries at one place add up.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseFeatures {
    len: usize,
    offsets: Vec<u64>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl Features {
    /// `values` as rows of `len` numbers.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where `values` is no multiple of `len` long or `len` is 0, [`DataProblem::Value`]
    /// where a number is not finite.
    pub fn dense(len: usize, values: Vec<f32>) -> Result<Self, DataProblem> {
        if len == 0 || !values.len().is_multiple_of(len) {
            return Err(DataProblem::shape(
                "features",
                &[values.len() as u64],
                format!("a multiple of {len}"),
            ));
        }
        check_finite("features", &values)?;
        Ok(Self::Dense(DenseFeatures { len, values }))
    }

    /// One feature of each vertex, 1, where nothing is known of it.
    pub(crate) fn ones(vertices: usize) -> Result<Self, DataProblem> {
        let mut values = DataProblem::with_capacity("features", vertices as u64)?;
        values.resize(vertices, 1.0);
        Ok(Self::Dense(DenseFeatures { len: 1, values }))
    }

    /// Compressed rows: row `i` has `values[k]` at column `indices[k]` for k from `offsets[i]` to `offsets[i + 1]`.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where `len` is 0 or lengths disagree, [`DataProblem::Graph`] where offsets are not row
    /// offsets, [`DataProblem::Value`] where an index is not below `len` or a number is not finite.
    pub fn sparse(
        len: usize,
        offsets: Vec<u64>,
        indices: Vec<u32>,
        values: Vec<f32>,
    ) -> Result<Self, DataProblem> {
        if len == 0 {
            return Err(DataProblem::shape(
                "features",
                &[offsets.len() as u64, 0],
                "at least one column",
            ));
        }
        if indices.len() != values.len() {
            let wanted = format!("({}), one value for each index", indices.len());
            return Err(DataProblem::shape(
                "feature values",
                &[values.len() as u64],
                wanted,
            ));
        }
        Csr::check_offsets(&offsets, indices.len())
            .map_err(|error| DataProblem::graph("features", error))?;
        if let Some(at) = indices.iter().position(|&index| index as usize >= len) {
            let why = format!("but there are {len} features");
            return Err(DataProblem::value(
                "feature indices",
                at as u64,
                indices[at],
                why,
            ));
        }
        check_finite("feature values", &values)?;
        Ok(Self::Sparse(SparseFeatures {
            len,
            offsets,
            indices,
            values,
        }))
    }

    /// The rows in another order.
    ///
    /// # Panics
    /// Where there is not a row for each vertex of `order`.
    pub(super) fn reordered(&self, order: &Permutation) -> Result<Self, DataProblem> {
        Ok(match self {
            Self::Dense(DenseFeatures { len, values }) => {
                // Fails early where there is not enough memory for a copy.
                drop(DataProblem::with_capacity::<f32>(
                    "features",
                    values.len() as u64,
                )?);
                Self::Dense(DenseFeatures {
                    len: *len,
                    values: order.apply(values, *len),
                })
            }
            Self::Sparse(of) => {
                let rows: Vec<&[u64]> = of.offsets.windows(2).collect();
                let rows = order.apply(&rows, 1);
                let mut new = SparseFeatures {
                    len: of.len,
                    offsets: vec![0],
                    indices: DataProblem::with_capacity("features", of.indices.len() as u64)?,
                    values: DataProblem::with_capacity("features", of.values.len() as u64)?,
                };
                for ends in rows {
                    let entries = ends[0] as usize..ends[1] as usize;
                    new.indices.extend_from_slice(&of.indices[entries.clone()]);
                    new.values.extend_from_slice(&of.values[entries]);
                    new.offsets.push(new.indices.len() as u64);
                }
                Self::Sparse(new)
            }
            Self::Bits(bits) => Self::Bits(bits.reordered(order)),
            Self::Stored(of) => {
                let mut of = of.as_ref().clone();
                of.reorder(order);
                Self::Stored(Arc::new(of))
            }
        })
    }

    /// The number of features of a vertex (F).
    pub fn feature_len(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.len,
            Self::Sparse(sparse) => sparse.len,
            Self::Bits(bits) => bits.feature_len(),
            Self::Stored(stored) => stored.feature_len(),
        }
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.values.len() / dense.len,
            Self::Sparse(sparse) => sparse.offsets.len() - 1,
            Self::Bits(bits) => bits.vertices(),
            Self::Stored(stored) => stored.vertices(),
        }
    }

    /// The numbers that are in memory as such: all of them, those that are not zero, or none.
    pub(crate) fn stored(&self) -> &[f32] {
        match self {
            Self::Dense(dense) => &dense.values,
            Self::Sparse(sparse) => &sparse.values,
            Self::Bits(_) | Self::Stored(_) => &[],
        }
    }

    /// Those that stay in their files, if they do.
    pub fn as_stored(&self) -> Option<&Arc<StoredFeatures>> {
        match self {
            Self::Stored(stored) => Some(stored),
            _ => None,
        }
    }

    /// Refuses features that stay in their files; `what` requires them in memory.
    pub(crate) fn expect_in_memory(&self, what: &'static str) -> Result<(), DataProblem> {
        match self {
            Self::Stored(_) => Err(DataProblem::NotInMemory { what }),
            _ => Ok(()),
        }
    }

    /// Whether no number is negative, as where words are counted.
    pub(crate) fn could_be_counts(&self) -> bool {
        let is_none = |value: &f32| value.is_nan() || *value < 0.0;
        match self {
            Self::Bits(bits) => bits.lowest() >= 0.0,
            _ => parallel::position_first(self.stored(), is_none).is_none(),
        }
    }

    /// The bytes on the host.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(dense) => dense.values.len() as u64 * 4,
            Self::Sparse(sparse) => {
                sparse.offsets.len() as u64 * 8 + sparse.indices.len() as u64 * 8
            }
            Self::Bits(bits) => bits.bytes(),
            Self::Stored(stored) => stored.vertices() as u64 * 4,
        }
    }

    /// Calls `put` with the column and the number of each entry of `vertex`. Other columns are zero; the numbers of a
    /// column that occurs several times add up.
    ///
    /// # Panics
    /// If there is no such vertex, or features stay in their files. Reading those can fail: see
    /// [`StoredFeatures::read_rows`].
    pub fn for_each(&self, vertex: usize, mut put: impl FnMut(usize, f32)) {
        match self {
            Self::Dense(dense) => {
                let row = &dense.values[vertex * dense.len..][..dense.len];
                row.iter()
                    .enumerate()
                    .for_each(|(column, &value)| put(column, value));
            }
            Self::Sparse(sparse) => {
                let range = sparse.range(vertex);
                for (&column, &value) in sparse.indices[range.clone()]
                    .iter()
                    .zip(&sparse.values[range])
                {
                    put(column as usize, value);
                }
            }
            Self::Bits(bits) => bits.for_each(vertex, put),
            Self::Stored(_) => {
                unreachable!("features that stay in their files are read from there")
            }
        }
    }

    /// Writes the row of `vertex` to `row`, which is [`feature_len`](Self::feature_len) long.
    ///
    /// # Panics
    /// Where [`Features::for_each`] does, or `row` is shorter.
    pub fn write_row(&self, vertex: usize, row: &mut [f32]) {
        row.fill(0.0);
        self.for_each(vertex, |column, value| row[column] += value);
    }

    /// Every number, row-major.
    ///
    /// # Errors
    /// [`DataProblem::TooLarge`] where there is not enough memory, [`DataProblem::NotInMemory`] for features that stay
    /// in their files.
    pub fn to_dense(&self) -> Result<Vec<f32>, DataProblem> {
        self.expect_in_memory("a matrix of all")?;
        let (rows, columns) = (self.vertices(), self.feature_len());
        let mut values = Vec::new();
        rows.checked_mul(columns)
            .and_then(|len| {
                values
                    .try_reserve_exact(len)
                    .ok()
                    .map(|()| values.resize(len, 0.0))
            })
            .ok_or(DataProblem::TooLarge {
                what: "a matrix",
                rows: rows as u64,
                columns: columns as u64,
            })?;
        parallel::for_each(parallel::chunks_mut(&mut values, columns), |vertex, row| {
            self.write_row(vertex, row);
        });
        Ok(values)
    }

    /// Divides each row whose sum is more than 1 by its sum, and returns the number of rows divided. This is the usual
    /// preparation of bags of words (Cora, Citeseer), after which each row that has words sums to 1. Features that stay
    /// in their files are left as they are.
    pub fn normalize_rows(&mut self) -> usize {
        self.unpack();
        let divide = |row: &mut [f32]| usize::from(divide_by_sum(row));
        match self {
            Self::Dense(dense) => {
                let rows = parallel::chunks_mut(&mut dense.values, dense.len);
                parallel::map(rows, |_, row| divide(row)).into_iter().sum()
            }
            Self::Sparse(sparse) => (0..sparse.offsets.len() - 1)
                .map(|vertex| {
                    let range = sparse.range(vertex);
                    divide(&mut sparse.values[range])
                })
                .sum(),
            Self::Bits(_) | Self::Stored(_) => 0,
        }
    }

    /// Unpacks bits into numbers, for callers that change them.
    fn unpack(&mut self) {
        if let Self::Bits(bits) = self {
            *self = Self::Dense(DenseFeatures {
                len: bits.feature_len(),
                values: bits.to_dense(),
            });
        }
    }

    /// The largest magnitude of each column, and 1 of a column of zeros: what the columns may be divided by.
    ///
    /// # Errors
    /// [`DataProblem::TooLarge`] where there is not enough memory; [`DataProblem::NotInMemory`] for features that stay
    /// in a file without known magnitudes.
    pub fn column_magnitudes(&self) -> Result<Vec<f32>, DataProblem> {
        if let Self::Stored(stored) = self {
            let what = "the largest of each column";
            let magnitudes = stored.magnitudes.clone();
            return magnitudes.ok_or(DataProblem::NotInMemory { what });
        }
        let len = self.feature_len();
        let mut most = Vec::new();
        most.try_reserve_exact(len)
            .map_err(|_| DataProblem::TooLarge {
                what: "a row",
                rows: 1,
                columns: len as u64,
            })?;
        most.resize(len, 0.0_f32);
        for vertex in 0..self.vertices() {
            self.for_each(vertex, |column, value| {
                most[column] = most[column].max(value.abs());
            });
        }
        for most in &mut most {
            if *most == 0.0 {
                *most = 1.0;
            }
        }
        Ok(most)
    }

    /// Divides each column by its divisor.
    ///
    /// # Panics
    /// If there is not one divisor a column.
    pub fn divide_columns(&mut self, divisors: &[f32]) {
        assert_eq!(divisors.len(), self.feature_len(), "one divisor a column");
        self.unpack();
        match self {
            Self::Dense(dense) => {
                let rows = parallel::chunks_mut(&mut dense.values, dense.len);
                parallel::for_each(rows, |_, row| {
                    let divide = |(value, divisor): (&mut f32, &f32)| *value /= divisor;
                    row.iter_mut().zip(divisors).for_each(divide);
                });
            }
            Self::Sparse(sparse) => {
                let entries = (sparse.values.as_mut_slice(), sparse.indices.as_slice());
                parallel::for_each(entries, |_, (value, &column)| {
                    *value /= divisors[column as usize];
                });
            }
            // They were unpacked.
            Self::Bits(_) => {}
            Self::Stored(stored) => {
                let stored = Arc::make_mut(stored);
                let columns = stored.magnitudes.iter_mut().flatten().zip(divisors);
                columns.for_each(|(most, divisor)| *most /= divisor);
                stored.divisors.push(divisors.to_vec());
            }
        }
    }
}

impl DenseFeatures {
    /// The numbers, row-major.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }
}

impl SparseFeatures {
    /// Where the entries of each row start, and where the last one's end.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The column of each entry.
    pub(crate) fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The number of each entry.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    fn range(&self, vertex: usize) -> std::ops::Range<usize> {
        self.offsets[vertex] as usize..self.offsets[vertex + 1] as usize
    }
}

/// Divides a row by its sum where that is more than 1; returns whether it did.
pub(crate) fn divide_by_sum(row: &mut [f32]) -> bool {
    let sum: f64 = row.iter().copied().map(f64::from).sum();
    let divisor = sum.max(1.0) as f32;
    row.iter_mut().for_each(|value| *value /= divisor);
    divisor > 1.0
}

fn check_finite(key: &str, values: &[f32]) -> Result<(), DataProblem> {
    match parallel::position_first(values, |value| !value.is_finite()) {
        Some(at) => Err(DataProblem::value(
            key,
            at as u64,
            values[at],
            "which is no finite float",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse() -> Features {
        Features::sparse(
            3,
            vec![0, 2, 2, 5],
            vec![2, 0, 1, 1, 0],
            vec![3.0, 1.0, 0.5, 0.25, -1.0],
        )
        .unwrap()
    }

    #[test]
    fn sparse_rows_are_what_their_dense_form_says() {
        let features = sparse();
        assert_eq!((features.vertices(), features.feature_len()), (3, 3));
        let dense = features.to_dense().unwrap();
        assert_eq!(dense, [1.0, 0.0, 3.0, 0.0, 0.0, 0.0, -1.0, 0.75, 0.0]);
        let again = Features::dense(3, dense.clone()).unwrap();
        assert_eq!(again.to_dense().unwrap(), dense);
        let mut row = [9.0; 3];
        again.write_row(2, &mut row);
        assert_eq!(row, [-1.0, 0.75, 0.0]);
    }

    #[test]
    fn rows_are_divided_by_sums_above_one() {
        let expected = [0.25, 0.0, 0.75, 0.0, 0.0, 0.0, -1.0, 0.75, 0.0];
        let mut features = sparse();
        let mut dense = Features::dense(3, features.to_dense().unwrap()).unwrap();
        assert_eq!((features.normalize_rows(), dense.normalize_rows()), (1, 1));
        assert_eq!(features.to_dense().unwrap(), expected);
        assert_eq!(dense.to_dense().unwrap(), expected);
    }

    #[test]
    fn columns_are_divided_by_their_magnitudes() {
        let mut features = sparse();
        let mut dense = Features::dense(3, features.to_dense().unwrap()).unwrap();
        // Entries at one place are looked at one by one.
        let magnitudes = [1.0, 0.5, 3.0];
        assert_eq!(features.column_magnitudes().unwrap(), magnitudes);
        assert_eq!(dense.column_magnitudes().unwrap(), [1.0, 0.75, 3.0]);
        let expected = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0, 1.5, 0.0];
        features.divide_columns(&magnitudes);
        dense.divide_columns(&magnitudes);
        assert_eq!(features.to_dense().unwrap(), expected);
        assert_eq!(dense.to_dense().unwrap(), expected);
        let zeros = Features::dense(2, vec![0.0, -4.0, 0.0, 2.0]).unwrap();
        assert_eq!(zeros.column_magnitudes().unwrap(), [1.0, 4.0]);
    }

    #[test]
    fn features_are_checked() {
        let message = |result: Result<Features, DataProblem>| result.unwrap_err().to_string();
        assert!(message(Features::dense(0, vec![])).starts_with("features: the shape is [0]"));
        assert!(
            message(Features::dense(2, vec![0.0; 3])).starts_with("features: the shape is [3]")
        );
        assert_eq!(
            message(Features::dense(2, vec![0.0, f32::NAN])),
            "features[1] is NaN, which is no finite float"
        );
        assert_eq!(
            message(Features::sparse(2, vec![0, 1], vec![2], vec![1.0])),
            "feature indices[0] is 2, but there are 2 features"
        );
        assert_eq!(
            message(Features::sparse(
                2,
                vec![0, 1],
                vec![1],
                vec![f32::INFINITY]
            )),
            "feature values[0] is inf, which is no finite float"
        );
        assert!(
            message(Features::sparse(2, vec![0, 2], vec![1], vec![1.0]))
                .contains("end at the number of edges")
        );
        assert!(
            message(Features::sparse(2, vec![0, 1], vec![1], vec![]))
                .contains("one value for each index")
        );
        assert!(
            message(Features::sparse(0, vec![0], vec![], vec![])).contains("at least one column")
        );
    }

    #[test]
    fn a_matrix_wider_than_memory_is_an_error() {
        let wide = Features::sparse(usize::MAX / 2, vec![0; 5], vec![], vec![]).unwrap();
        assert!(matches!(
            wide.to_dense(),
            Err(DataProblem::TooLarge { rows: 4, .. })
        ));
    }
}
