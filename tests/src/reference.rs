//! References in float64, and how far an answer may be from them.
//!
//! Beside each sum stands the sum of the sizes of its terms: the error of adding `n` terms with unit roundoff `u` is at
//! most `n · u · Σ|terms|` (Higham, "Accuracy and Stability of Numerical Algorithms", §3.1), however the terms cancel.

use halfgnn::graph::Csr;
use halfgnn::tensor::{Element, Precision};

/// Unit roundoff of half.
pub const HALF: f64 = 1.0 / 2048.0;
/// Unit roundoff of bfloat16.
pub const BFLOAT: f64 = 1.0 / 256.0;
/// Unit roundoff of float.
pub const FLOAT: f64 = 1.0 / 16_777_216.0;

/// Half a step of the smallest numbers of an element, by which rounding to a subnormal is off.
pub fn subnormal_error<E: Element>() -> f64 {
    match E::PRECISION {
        Precision::Half => 2.0_f64.powi(-25),
        Precision::Float => 2.0_f64.powi(-150),
        Precision::BFloat16 => 2.0_f64.powi(-134),
    }
}

/// Unit roundoff of an element.
pub fn roundoff<E: Element>() -> f64 {
    match E::PRECISION {
        Precision::Half => HALF,
        Precision::Float => FLOAT,
        Precision::BFloat16 => BFLOAT,
    }
}

/// A number below which every integer is an element; no more than half has, so that cases are the same in float.
pub fn exact_integers<E: Element>() -> u32 {
    match E::PRECISION {
        Precision::Half | Precision::Float => 2047,
        Precision::BFloat16 => 255,
    }
}

/// A sum, and the sum of the sizes of its terms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum.
    pub value: f64,
    /// The sum of the absolute values.
    pub size: f64,
}

impl Sum {
    /// Adds a term.
    pub fn add(&mut self, term: f64) {
        self.value += term;
        self.size += term.abs();
    }

    /// The sum times a factor.
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            size: self.size * factor.abs(),
        }
    }
}

/// An SpMM in float64.
pub struct SpmmReference<'a> {
    /// The graph.
    pub graph: &'a Csr,
    /// Weight of each edge.
    pub weight: &'a dyn Fn(usize) -> f32,
    /// Factor of each row.
    pub row_scale: Option<&'a [f32]>,
    /// Factor of everything.
    pub scale: f32,
    /// Columns of `x`.
    pub features: usize,
}

impl SpmmReference<'_> {
    /// The product with `x`, row-major.
    pub fn of(&self, x: &[f32]) -> Vec<Sum> {
        let features = self.features;
        let mut y = vec![Sum::default(); self.graph.vertices() * features];
        for row in 0..self.graph.vertices() {
            let sums = &mut y[row * features..(row + 1) * features];
            for edge in self.graph.row_range(row) {
                let column = self.graph.cols()[edge] as usize;
                let weight = f64::from((self.weight)(edge));
                for (sum, &x) in sums.iter_mut().zip(&x[column * features..]) {
                    sum.add(weight * f64::from(x));
                }
            }
            let factor =
                self.row_scale.map_or(1.0, |scale| f64::from(scale[row])) * f64::from(self.scale);
            if !self.graph.row_range(row).is_empty() {
                sums.iter_mut().for_each(|sum| *sum = sum.scaled(factor));
            }
        }
        y
    }
}

/// Asserts that `actual` is within `error(row) · Σ|terms|`, the rounding of the result and a subnormal step of
/// `expected`; a NaN or an infinity must be met exactly.
pub fn assert_close<E: Element>(
    what: &str,
    actual: &[f32],
    expected: &[Sum],
    columns: usize,
    error: impl Fn(usize) -> Allowed,
) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    let mut allowed = Allowed::default();
    for (i, (&actual, expected)) in actual.iter().zip(expected).enumerate() {
        let (row, column) = (i / columns, i % columns);
        if column == 0 {
            allowed = error(row);
        }
        let place = || {
            format!(
                "{what}: at row {row}, column {column}: {actual} for {}",
                expected.value
            )
        };
        if !expected.value.is_finite() {
            let met =
                f64::from(actual) == expected.value || actual.is_nan() && expected.value.is_nan();
            assert!(met, "{}", place());
            continue;
        }
        let bound = allowed.relative * expected.size
            + allowed.absolute
            + roundoff::<E>() * expected.value.abs()
            + subnormal_error::<E>();
        let off = (f64::from(actual) - expected.value).abs();
        assert!(
            off <= bound,
            "{}, off by {off:.3e} where {bound:.3e} is allowed",
            place()
        );
    }
}

/// How far a sum may be off before it is rounded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Times the sum of the sizes of the terms.
    pub relative: f64,
    /// Whatever the terms are.
    pub absolute: f64,
}

impl Allowed {
    /// A sum of `terms` products in float, with a handful of factors.
    pub fn float(terms: usize) -> Self {
        Self {
            relative: (terms + 8) as f64 * FLOAT,
            absolute: 0.0,
        }
    }

    /// A sum in half of `terms` terms, each of which `roundings` made.
    pub fn half(terms: usize, roundings: usize) -> Self {
        Self {
            relative: (terms + roundings) as f64 * HALF,
            absolute: terms as f64 * 2.0_f64.powi(-25),
        }
    }
}
