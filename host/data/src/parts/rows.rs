//! Rows of some parts, brought together.

use super::layout::Word;
use super::manifest::FeaturePrecision;
use crate::error::DataProblem;
use crate::{EdgeFeatures, VertexIds};
use half::f16;

/// The rows of the vertices of some parts.
#[derive(Clone, Debug, PartialEq)]
pub struct PartRows {
    /// Which vertices these are of the whole graph, ascending.
    pub vertices: Vec<u32>,
    /// Where the edges of each start, and where the last one's end.
    pub offsets: Vec<u64>,
    /// The in-neighbours of each row in the whole graph, ascending.
    pub columns: Vec<u32>,
    /// A weight for each edge, where edges have some.
    pub edge_weights: Option<Vec<f32>>,
    /// Features of each edge, where edges have some.
    pub edge_features: Option<EdgeFeatures>,
    /// A row of features for each vertex.
    pub features: RowFeatures,
    /// What each vertex is called.
    pub ids: Option<VertexIds>,
}

impl PartRows {
    /// Of a graph whose vertices and edges have nothing more.
    pub fn of_edges(vertices: Vec<u32>, offsets: Vec<u64>, columns: Vec<u32>) -> Self {
        Self {
            vertices,
            offsets,
            columns,
            edge_weights: None,
            edge_features: None,
            features: RowFeatures::of_halves(1, Vec::new()),
            ids: None,
        }
    }
}

/// Features as they are kept in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFeatures {
    len: usize,
    values: Numbers,
}

#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    Half(Vec<f16>),
    Float(Vec<f32>),
}

impl RowFeatures {
    /// `rows` rows of `len` zeros.
    pub(super) fn zeros(
        precision: FeaturePrecision,
        rows: usize,
        len: usize,
    ) -> Result<Self, DataProblem> {
        let count = (rows as u64).saturating_mul(len as u64);
        let values = match precision {
            FeaturePrecision::Half => Numbers::Half(zeros("features", count)?),
            FeaturePrecision::Float => Numbers::Float(zeros("features", count)?),
        };
        Ok(Self { len, values })
    }

    /// The number of features of a vertex.
    pub fn feature_len(&self) -> usize {
        self.len
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        let len = match &self.values {
            Numbers::Half(values) => values.len(),
            Numbers::Float(values) => values.len(),
        };
        len / self.len
    }

    /// Writes a row to the first [numbers](Self::feature_len) of `to`.
    ///
    /// # Panics
    /// If there is no such row, or `to` is shorter.
    pub fn write_row(&self, row: usize, to: &mut [f32]) {
        let range = row * self.len..(row + 1) * self.len;
        let to = &mut to[..self.len];
        match &self.values {
            Numbers::Half(values) => to
                .iter_mut()
                .zip(&values[range])
                .for_each(|(to, value)| *to = value.to_f32()),
            Numbers::Float(values) => to.copy_from_slice(&values[range]),
        }
    }

    /// The bytes of some rows, as another rank takes them.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn packed(&self, rows: &[u32]) -> Vec<u8> {
        fn pack<T: Word>(values: &[T], len: usize, rows: &[u32]) -> Vec<u8> {
            let mut bytes = Vec::with_capacity(rows.len() * len * T::BYTES);
            for &row in rows {
                let start = row as usize * len;
                values[start..start + len]
                    .iter()
                    .for_each(|value| value.put(&mut bytes));
            }
            bytes
        }
        match &self.values {
            Numbers::Half(values) => pack(values, self.len, rows),
            Numbers::Float(values) => pack(values, self.len, rows),
        }
    }

    /// The bytes that a packed row takes.
    pub fn packed_row(&self) -> usize {
        self.len
            * match self.values {
                Numbers::Half(_) => f16::BYTES,
                Numbers::Float(_) => f32::BYTES,
            }
    }

    /// These rows, and behind them others that were [packed](Self::packed).
    pub fn extended(mut self, packed: &[u8]) -> Self {
        fn unpack<T: Word>(bytes: &[u8]) -> impl Iterator<Item = T> {
            bytes.chunks_exact(T::BYTES).map(T::get)
        }
        match &mut self.values {
            Numbers::Half(values) => values.extend(unpack::<f16>(packed)),
            Numbers::Float(values) => values.extend(unpack::<f32>(packed)),
        }
        self
    }

    /// Every number, as floats.
    pub(super) fn into_floats(self) -> Result<Vec<f32>, DataProblem> {
        match self.values {
            Numbers::Float(values) => Ok(values),
            Numbers::Half(values) => {
                let mut floats = DataProblem::with_capacity("features", values.len() as u64)?;
                floats.extend(values.iter().map(|value| value.to_f32()));
                Ok(floats)
            }
        }
    }

    /// Rows of a part, at the places that `places` gives them; all are finite.
    pub(super) fn place(&mut self, part: Self, places: &[usize]) -> Result<(), DataProblem> {
        let len = self.len;
        match (&mut self.values, &part.values) {
            (Numbers::Half(to), Numbers::Half(from)) => {
                check(from, |value| value.is_finite(), len)?;
                scatter(to, from, places, len);
            }
            (Numbers::Float(to), Numbers::Float(from)) => {
                check(from, |value| value.is_finite(), len)?;
                scatter(to, from, places, len);
            }
            _ => return Err(DataProblem::part("features", "they are of two precisions")),
        }
        Ok(())
    }

    /// As they were read.
    pub(super) fn of_halves(len: usize, values: Vec<f16>) -> Self {
        let values = Numbers::Half(values);
        Self { len, values }
    }

    /// As they were read.
    pub(super) fn of_floats(len: usize, values: Vec<f32>) -> Self {
        let values = Numbers::Float(values);
        Self { len, values }
    }
}

/// Rows of `len` to their places.
fn scatter<T: Copy>(to: &mut [T], from: &[T], places: &[usize], len: usize) {
    for (row, &place) in from.chunks_exact(len).zip(places) {
        to[place * len..(place + 1) * len].copy_from_slice(row);
    }
}

fn check<T: Copy + std::fmt::Display>(
    values: &[T],
    is_finite: impl Fn(&T) -> bool,
    len: usize,
) -> Result<(), DataProblem> {
    match values.iter().position(|value| !is_finite(value)) {
        None => Ok(()),
        Some(at) => Err(not_finite(at as u64, values[at], len)),
    }
}

/// That a part's number `at` of features is `value`.
pub(super) fn not_finite(at: u64, value: impl std::fmt::Display, len: usize) -> DataProblem {
    let (row, column) = (at / len as u64, at % len as u64);
    let why = format!("in row {row}, column {column} of the part (from 0), which is not finite");
    DataProblem::value("features", at, value, why)
}

/// Zeros, where there is memory for them.
pub(super) fn zeros<T: Word>(key: &str, count: u64) -> Result<Vec<T>, DataProblem> {
    let mut values = DataProblem::with_capacity(key, count)?;
    values.resize(count as usize, T::default());
    Ok(values)
}
