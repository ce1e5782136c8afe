//! Operands that are the same on every machine, and times that are medians.

use halfgnn::Error;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::tensor::{Array, Element, Matrix, padded};
use halfgnn_contract::rng;
use rayon::prelude::*;
use serde::Serialize;
use std::ops::Range;

/// Runs that are not timed.
const WARM_UP: u32 = 2;

/// A run is as many calls as take this long, so that launching them and the resolution of events do not count.
const RUN_MS: f64 = 0.5;

/// Most calls of a run.
const MOST_CALLS: u32 = 200;

/// Milliseconds of one call.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// The median of the runs.
    pub ms: f64,
    /// The fastest.
    pub ms_fastest: f64,
    /// The slowest.
    pub ms_slowest: f64,
}

impl Times {
    /// Times `call`, which queues work on the backend.
    pub fn of<B: Backend>(
        backend: &B,
        runs: u32,
        mut call: impl FnMut() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        for _ in 0..WARM_UP {
            call()?;
        }
        let once = backend.timed(&mut call)?;
        let calls = (RUN_MS / once.max(1e-6))
            .ceil()
            .clamp(1.0, MOST_CALLS.into()) as u32;
        let mut times = (0..runs)
            .map(|_| {
                let ms = backend.timed(|| (0..calls).try_for_each(|_| call()))?;
                Ok(ms / f64::from(calls))
            })
            .collect::<Result<Vec<f64>, Error>>()?;
        times.sort_by(f64::total_cmp);
        Ok(Self {
            ms: times[times.len() / 2],
            ms_fastest: times[0],
            ms_slowest: times[times.len() - 1],
        })
    }
}

/// Element `index` of operand `operand`, in [0, 1).
pub fn unit(operand: u32, index: usize) -> f32 {
    rng::unit_f32(rng::uniform_u32(rng::key(1, operand), index as u64))
}

/// A number of [0, 1) in another range.
fn scaled(range: &Range<f32>, unit: f32) -> f32 {
    range.start + (range.end - range.start) * unit
}

/// A matrix of zeros in this machine's memory.
///
/// # Errors
/// Where there is not that much.
pub fn zeros(rows: usize, columns: usize) -> Result<Vec<f32>, Error> {
    let mut values = reserved(rows, columns)?;
    values.resize(rows * columns, 0.0);
    Ok(values)
}

/// Memory of this machine for a matrix, without anything in it.
///
/// # Errors
/// Where there is not that much.
pub fn reserved(rows: usize, columns: usize) -> Result<Vec<f32>, Error> {
    let mut values = Vec::new();
    let reserved = rows
        .checked_mul(columns)
        .and_then(|len| values.try_reserve_exact(len).ok());
    match reserved {
        Some(()) => Ok(values),
        None => Err(Error::Unsupported {
            operator: "bench",
            reason: format!(
                "there is no room in this machine's memory for random features of {rows} x {columns} floats; take a smaller graph or fewer --features"
            ),
        }),
    }
}

/// A matrix of random numbers, and what it holds.
#[derive(Debug)]
pub struct Operand<B: Backend, E: Element> {
    /// The matrix on the device.
    pub matrix: Matrix<B, E>,
    number: u32,
    range: Range<f32>,
}

impl<B: Backend, E: Element> Operand<B, E> {
    /// Operand `number` of an operator: `rows` × `columns`, in [−0.5, 0.5).
    pub fn new(backend: &B, number: u32, rows: usize, columns: usize) -> Result<Self, Error> {
        Self::within(backend, number, rows, columns, -0.5..0.5)
    }

    /// The same numbers in rows that are `stride` elements apart.
    pub fn apart(
        backend: &B,
        number: u32,
        (rows, columns): (usize, usize),
        stride: usize,
    ) -> Result<Self, Error> {
        if stride == padded::<E>(columns) {
            return Self::new(backend, number, rows, columns);
        }
        let range = -0.5..0.5;
        let write = |row: usize, values: &mut [f32]| {
            for (column, value) in values.iter_mut().enumerate() {
                *value = scaled(&range, unit(number, row * columns + column));
            }
        };
        let kind = MemoryKind::Features;
        let matrix = Matrix::from_rows_apart(backend, (rows, columns), stride, kind, write)?;
        Ok(Self {
            matrix,
            number,
            range,
        })
    }

    /// The same in another range.
    pub fn within(
        backend: &B,
        number: u32,
        rows: usize,
        columns: usize,
        range: Range<f32>,
    ) -> Result<Self, Error> {
        let mut values = zeros(rows, columns)?;
        values
            .par_iter_mut()
            .enumerate()
            .for_each(|(index, to)| *to = scaled(&range, unit(number, index)));
        let matrix = Matrix::from_f32(backend, rows, columns, &values, MemoryKind::Features)?;
        Ok(Self {
            matrix,
            number,
            range,
        })
    }

    /// An element as it was rounded.
    pub fn get(&self, row: usize, column: usize) -> f64 {
        let unit = unit(self.number, row * self.matrix.columns() + column);
        let value = scaled(&self.range, unit);
        E::from_f32(value).to_f32().into()
    }
}

/// Rows of a result that are compared with sums in double precision: some from the whole range.
const CHECKED_ROWS: usize = 256;

/// Indices of at most [`CHECKED_ROWS`] of `count`.
pub fn samples(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(count.div_ceil(CHECKED_ROWS).max(1))
}

/// The largest |error| over Σ|terms| of an SpMM `y` on sampled rows, or what is wrong there.
pub fn check_spmm<B: Backend, E: Element>(
    backend: &B,
    graph: &halfgnn::graph::Csr,
    x: &Operand<B, E>,
    y: &Matrix<B, E>,
) -> Result<f64, String> {
    let (columns, stride) = (y.columns(), padded::<E>(y.columns()));
    let y = y.to_padded(backend).map_err(|error| error.to_string())?;
    let mut largest = 0.0f64;
    for row in samples(graph.vertices()) {
        for column in 0..columns {
            let terms = graph
                .row(row)
                .iter()
                .map(|&neighbour| x.get(neighbour as usize, column));
            let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), term| {
                (sum + term, all + term.abs())
            });
            let found = f64::from(y[row * stride + column].to_f32());
            let error = (found - sum).abs() / f64::max(magnitude, 1.0);
            if error.is_nan() || error > 0.01 {
                return Err(format!(
                    "row {row}, column {column} is {found}, should be {sum}"
                ));
            }
            largest = largest.max(error);
        }
    }
    Ok(largest)
}

/// Rows of the most edges that are looked at in addition to the sampled ones: hubs.
const CHECKED_HUBS: usize = 32;

/// Most columns of a row that are looked at.
const CHECKED_COLUMNS: usize = 8;

/// How far means are from the exact ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanErrors {
    /// Largest |error| over the exact mean, of those that are finite.
    pub largest_error: f64,
    /// Elements that are infinite or NaN.
    pub not_finite: usize,
    /// Elements that were compared.
    pub checked: usize,
}

/// Compares means of rows of `x`, none of whose elements is negative, with sums in double precision: on rows from the
/// whole range, and on the longest.
pub fn check_means<B: Backend, E: Element>(
    backend: &B,
    graph: &halfgnn::graph::Csr,
    x: &Operand<B, E>,
    y: &Matrix<B, E>,
) -> Result<MeanErrors, Error> {
    let (columns, stride) = (y.columns(), padded::<E>(y.columns()));
    let y = y.to_padded(backend)?;
    let mut hubs: Vec<usize> = (0..graph.vertices()).collect();
    hubs.sort_by_key(|&row| std::cmp::Reverse(graph.row_range(row).len()));
    hubs.truncate(CHECKED_HUBS);
    let rows: Vec<usize> = samples(graph.vertices()).chain(hubs).collect();
    let of_row = |&row: &usize| {
        let mut found = MeanErrors::default();
        let neighbours = graph.row(row);
        let step = columns.div_ceil(CHECKED_COLUMNS).max(1);
        for column in (0..columns)
            .step_by(step)
            .filter(|_| !neighbours.is_empty())
        {
            let terms = neighbours
                .iter()
                .map(|&neighbour| x.get(neighbour as usize, column));
            let mean = terms.sum::<f64>() / neighbours.len() as f64;
            let error = (f64::from(y[row * stride + column].to_f32()) - mean).abs();
            found.checked += 1;
            if !error.is_finite() {
                found.not_finite += 1;
            } else if error > 0.0 {
                // A mean of zeros that is none has no relative error.
                found.largest_error = found.largest_error.max(error / mean);
            }
        }
        found
    };
    Ok(rows
        .par_iter()
        .map(of_row)
        .reduce(MeanErrors::default, |a, b| MeanErrors {
            largest_error: a.largest_error.max(b.largest_error),
            not_finite: a.not_finite + b.not_finite,
            checked: a.checked + b.checked,
        }))
}

/// The largest |error| over Σ|terms| of an SDDMM `e` on edges of sampled rows, or what is wrong there.
pub fn check_sddmm<B: Backend, E: Element>(
    backend: &B,
    graph: &halfgnn::graph::Csr,
    u: &Operand<B, E>,
    v: &Operand<B, E>,
    e: &Array<B, E>,
) -> Result<f64, String> {
    let columns = u.matrix.columns();
    let e = e.to_vec(backend).map_err(|error| error.to_string())?;
    let mut largest = 0.0f64;
    for row in samples(graph.vertices()) {
        for edge in graph.row_range(row) {
            let column = graph.cols()[edge] as usize;
            let (sum, magnitude) = (0..columns)
                .map(|feature| u.get(row, feature) * v.get(column, feature))
                .fold((0.0, 0.0), |(sum, all), term| {
                    (sum + term, all + term.abs())
                });
            let found = f64::from(e[edge].to_f32());
            let error = (found - sum).abs() / f64::max(magnitude, 1.0);
            if error.is_nan() || error > 0.01 {
                return Err(format!(
                    "edge {edge}, from {row} to {column}, is {found}, should be {sum}"
                ));
            }
            largest = largest.max(error);
        }
    }
    Ok(largest)
}
