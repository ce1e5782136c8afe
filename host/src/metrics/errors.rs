//! How far values are off: of each of a row's columns, and the mean of that over the columns.

/// Sums of the errors of some rows, of which the metrics are made as the functions of this module make them of the rows themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorSums {
    /// Of each column.
    pub columns: Vec<ColumnErrors>,
}

/// Sums of a column of some rows, of those whose value is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColumnErrors {
    /// Rows.
    pub count: usize,
    /// Of absolute errors.
    pub absolute: f64,
    /// Of squared errors.
    pub squared: f64,
    /// Of the squared distances of the true values from their mean, which [`squared_deviations`] are.
    pub deviations: f64,
}

impl ErrorSums {
    /// [`mean_absolute_error`].
    pub fn mean_absolute_error(&self) -> f64 {
        self.mean(1, |column| column.absolute / column.count as f64)
    }

    /// [`root_mean_squared_error`].
    pub fn root_mean_squared_error(&self) -> f64 {
        self.mean(1, |column| (column.squared / column.count as f64).sqrt())
    }

    /// [`r2`].
    pub fn r2(&self) -> f64 {
        self.mean(2, |column| share_told(column.squared, column.deviations))
    }

    /// The mean over the columns of at least `least` rows, as labels without both answers are left out; a NaN where there is none.
    fn mean(&self, least: usize, of: impl Fn(&ColumnErrors) -> f64) -> f64 {
        let columns = self.columns.iter();
        super::mean(columns.map(|column| (column.count >= least).then(|| of(column))))
    }
}

/// The sum of the squared distances of values from their mean; 0 of none.
pub fn squared_deviations(values: impl ExactSizeIterator<Item = f32> + Clone) -> f64 {
    let count = values.len() as f64;
    let mean = values.clone().map(f64::from).sum::<f64>() / count;
    values.map(|y| (f64::from(y) - mean).powi(2)).sum()
}

/// The share of squared deviations that squared errors do not leave.
fn share_told(squared: f64, deviations: f64) -> f64 {
    match deviations == 0.0 {
        true if squared == 0.0 => 1.0,
        true => 0.0,
        false => 1.0 - squared / deviations,
    }
}

/// Calls `of` with the pairs (true, predicted) of each column of rows of `columns`, and gives the mean; a NaN where there is no
/// row.
fn by_column(
    columns: usize,
    [truths, predictions]: [&[f32]; 2],
    of: impl Fn(&mut dyn Iterator<Item = (f64, f64)>) -> f64,
) -> f64 {
    assert_eq!(
        truths.len(),
        predictions.len(),
        "a prediction for each value"
    );
    if truths.is_empty() {
        return f64::NAN;
    }
    let each = (0..columns).map(|column| {
        let truths = truths[column..].iter().step_by(columns);
        let predictions = predictions[column..].iter().step_by(columns);
        let mut pairs = truths
            .zip(predictions)
            .map(|(&y, &x)| (f64::from(y), f64::from(x)));
        Some(of(&mut pairs))
    });
    super::mean(each)
}

/// Sum of a function of each pair, and their number.
fn sum(pairs: &mut dyn Iterator<Item = (f64, f64)>, of: impl Fn(f64, f64) -> f64) -> (f64, f64) {
    pairs.fold((0.0, 0.0), |(sum, count), (y, x)| {
        (sum + of(y, x), count + 1.0)
    })
}

/// Mean absolute error of rows of `columns` values; a NaN where there is no row.
///
/// # Panics
/// Where there is not a prediction for each value.
pub fn mean_absolute_error(columns: usize, truths: &[f32], predictions: &[f32]) -> f64 {
    by_column(columns, [truths, predictions], |pairs| {
        let (sum, count) = sum(pairs, |y, x| (x - y).abs());
        sum / count
    })
}

/// Root of the mean squared error of rows of `columns` values; a NaN where there is no row.
///
/// # Panics
/// Where there is not a prediction for each value.
pub fn root_mean_squared_error(columns: usize, truths: &[f32], predictions: &[f32]) -> f64 {
    by_column(columns, [truths, predictions], |pairs| {
        let (sum, count) = sum(pairs, |y, x| (x - y).powi(2));
        (sum / count).sqrt()
    })
}

/// One less the share of the variance that predictions leave, R², of rows of `columns` values. Of values that are all the same it
/// is 1 where all predictions are right and else 0; of less than two rows it is a NaN.
///
/// # Panics
/// Where there is not a prediction for each value.
pub fn r2(columns: usize, truths: &[f32], predictions: &[f32]) -> f64 {
    if truths.len() < 2 * columns {
        return f64::NAN;
    }
    by_column(columns, [truths, predictions], |pairs| {
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let mean = pairs.iter().map(|(y, _)| y).sum::<f64>() / pairs.len() as f64;
        let variance: f64 = pairs.iter().map(|(y, _)| (y - mean).powi(2)).sum();
        let left: f64 = pairs.iter().map(|(y, x)| (y - x).powi(2)).sum();
        share_told(left, variance)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_scikit_learns() {
        // from sklearn.metrics import *; y and p in rows of two; mean_absolute_error(y, p), root_mean_squared_error, r2_score
        let y = [1.0, 10.0, 2.0, -3.0, 0.5, 4.0, -1.0, 7.5, 3.0, 2.0];
        let p = [1.5, 9.0, 2.0, -2.5, 0.0, 6.0, -1.25, 7.0, 2.0, 2.5];
        let near = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-12, "{value}");
        near(mean_absolute_error(2, &y, &p), 0.675);
        near(root_mean_squared_error(2, &y, &p), 0.8156987619256542);
        near(r2(2, &y, &p), 0.8866724308300395);
        near(r2(1, &[2.0; 3], &[2.0; 3]), 1.0);
        near(r2(1, &[2.0; 3], &[1.0, 2.0, 3.0]), 0.0);
        assert!(r2(1, &[2.0], &[2.0]).is_nan());
        assert!(mean_absolute_error(1, &[], &[]).is_nan());
        assert!(r2(1, &[1.0, 2.0], &[f32::NAN, 2.0]).is_nan());
    }

    #[test]
    fn sums_say_what_the_rows_say() {
        let of = |columns: usize, y: &[f32], p: &[f32]| {
            let column = |at: usize| {
                let (y, p) = (
                    y[at..].iter().step_by(columns),
                    p[at..].iter().step_by(columns),
                );
                let off = y.clone().zip(p).map(|(y, x)| f64::from(*y) - f64::from(*x));
                ColumnErrors {
                    count: y.len(),
                    absolute: off.clone().map(f64::abs).sum(),
                    squared: off.map(|off| off * off).sum(),
                    deviations: squared_deviations(y.copied()),
                }
            };
            ErrorSums {
                columns: (0..columns).map(column).collect(),
            }
        };
        // Far from zero: sums of squares alone would cancel.
        let y: Vec<f32> = (0..24).map(|at| 4096.0 + (at * 7 % 5) as f32).collect();
        let p: Vec<f32> = y
            .iter()
            .zip(0..)
            .map(|(y, at)| y + (at % 3) as f32 / 4.0)
            .collect();
        for (columns, y, p) in [
            (2, &y[..], &p[..]),
            (3, &y, &p),
            (1, &y[..1], &p[..1]),
            (1, &[2.0; 3], &[2.0; 3]),
            (1, &[2.0; 3], &[1.0, 2.0, 3.0]),
            (1, &[], &[]),
            (1, &[1.0, 2.0], &[f32::NAN, 2.0]),
        ] {
            let sums = of(columns, y, p);
            for (sum, expected) in [
                (
                    sums.mean_absolute_error(),
                    mean_absolute_error(columns, y, p),
                ),
                (
                    sums.root_mean_squared_error(),
                    root_mean_squared_error(columns, y, p),
                ),
                (sums.r2(), r2(columns, y, p)),
            ] {
                let same = (sum - expected).abs() < 1e-12 || sum.is_nan() && expected.is_nan();
                assert!(same, "{y:?} of {columns}: {sum} for {expected}");
            }
        }
    }
}
