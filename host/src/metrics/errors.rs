//! How far values are off: of each of a row's columns, and the mean of that over the columns.

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
        match variance == 0.0 {
            true if left == 0.0 => 1.0,
            true => 0.0,
            false => 1.0 - left / variance,
        }
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
}
