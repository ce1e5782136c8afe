//! Shadow operators: every half through the exponential, and each operator at the edges of the range that it is proved
//! safe for.

use crate::Scale;
use crate::input::{Random, matrix, read, rounded, unwritten};
use crate::reference::{FLOAT, roundoff, subnormal_error};
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::ops::shadow;
use halfgnn::tensor::{Element, Matrix};

type Operator<B, E> = fn(&B, &Matrix<B, E>, &mut Matrix<B, E>) -> Result<(), Error>;

/// An operator's rows of as many columns as `x`, or of one.
fn run<B: Backend, E: Element>(
    backend: &B,
    operator: Operator<B, E>,
    (rows, columns): (usize, usize),
    x: &[f32],
    of_one: bool,
) -> Vec<f32> {
    let x = matrix::<B, E>(backend, (rows, columns), x);
    let mut y = unwritten::<B, E>(backend, (rows, if of_one { 1 } else { columns }));
    operator(backend, &x, &mut y).expect("a legal operator");
    read(backend, &y)
}

/// The exponential of every half, and of floats to the ends of their range.
pub fn exponentials<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, x: &[f32], largest: f64) {
        let y = run::<B, E>(backend, shadow::exp, (1, x.len()), x, false);
        for (&x, &y) in x.iter().zip(&y) {
            let expected = f64::from(x).exp();
            if expected.is_nan() {
                assert!(y.is_nan(), "exp({x}) is {y}");
            } else if expected > largest {
                assert_eq!(y, f32::INFINITY, "exp({x})");
            } else {
                // The float exponential is off by 2 ulp, and is rounded.
                let off = (f64::from(y) - expected).abs();
                let allowed =
                    expected * (roundoff::<E>() + 6.0 * FLOAT) + 2.0 * subnormal_error::<E>();
                assert!(off <= allowed, "exp({x}) is {y}, off by {off:e}");
            }
        }
    }
    let step = scale.pick(7, 1);
    let mut halves: Vec<f32> = (0..=u16::MAX)
        .step_by(step)
        .map(|bits| f16::from_bits(bits).to_f32())
        .collect();
    halves.extend([11.085_937_5, 11.093_75, -17.328_125, -17.34375]);
    check::<B, f16>(backend, &halves, 65_520.0);
    let floats: Vec<f32> = (-1100..1100)
        .map(|i| i as f32 / 10.0)
        .chain([
            88.72,
            88.73,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
        ])
        .collect();
    check::<B, f32>(backend, &floats, f64::from(f32::MAX));
    let edge = run::<B, f16>(
        backend,
        shadow::exp,
        (1, 2),
        &[11.085_937_5, 11.093_75],
        false,
    );
    assert!(edge[0].is_finite() && edge[1] == f32::INFINITY, "{edge:?}");
}

/// Softmax and its logarithm of one row in float64.
fn softmax(row: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted: Vec<f64> = row.iter().map(|&x| f64::from(x) - f64::from(max)).collect();
    let sum: f64 = shifted.iter().map(|x| x.exp()).sum();
    (
        shifted.iter().map(|x| x.exp() / sum).collect(),
        shifted.iter().map(|x| x - sum.ln()).collect(),
    )
}

fn check_softmax<B: Backend, E: Element>(backend: &B, (rows, columns): (usize, usize), x: &[f32]) {
    let y = run::<B, E>(backend, shadow::softmax, (rows, columns), x, false);
    let log = run::<B, E>(backend, shadow::log_softmax, (rows, columns), x, false);
    for (row, x) in x.chunks_exact(columns).enumerate() {
        let (expected, expected_log) = softmax(x);
        for column in 0..columns {
            let what = format!("{rows} x {columns}, row {row}, column {column}");
            let float = (columns + 16) as f64 * FLOAT;
            let at = row * columns + column;
            let (y, e) = (f64::from(y[at]), expected[column]);
            let allowed = e * (roundoff::<E>() + float) + 2.0 * subnormal_error::<E>();
            assert!((y - e).abs() <= allowed, "softmax, {what}: {y} for {e}");
            let (y, e) = (f64::from(log[at]), expected_log[column]);
            let allowed = e.abs() * (roundoff::<E>() + 4.0 * FLOAT) + float;
            assert!((y - e).abs() <= allowed, "log_softmax, {what}: {y} for {e}");
        }
    }
}

/// Rows of any finite elements: far apart, all the same, at the ends of the range.
pub fn softmax_of_rows<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, columns) in [(1, 1), (70, 7), (3, 300), (scale.pick(130, 5_000), 41)] {
            let x = Random(130).uniform::<E>(rows * columns);
            let x: Vec<f32> = x.iter().map(|x| (x * 32.0).round() / 4.0).collect();
            check_softmax::<B, E>(backend, (rows, columns), &x);
        }
        for row in [
            [65_504.0; 9],
            [-65_504.0; 9],
            [0.0; 9],
            // The widest range for which the logarithm is proved to fit.
            [
                32_736.0, -32_736.0, 0.0, 1.0, -1.0, 32_736.0, -32_736.0, 5.0, 0.5,
            ],
        ] {
            check_softmax::<B, E>(backend, (1, 9), &row);
        }
        let bad = [1.0, f32::NAN, 2.0, 1.0, 0.0, 1.0];
        let y = run::<B, E>(backend, shadow::softmax, (2, 3), &bad, false);
        assert!(y[..3].iter().all(|y| y.is_nan()) && y[3..].iter().all(|y| y.is_finite()));
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
    // Past the range of the logarithm: minus infinity, and the softmax is still right.
    let far = [65_504.0, -65_504.0];
    let log = run::<B, f16>(backend, shadow::log_softmax, (1, 2), &far, false);
    assert_eq!(log, [0.0, f32::NEG_INFINITY]);
    let y = run::<B, f16>(backend, shadow::softmax, (1, 2), &far, false);
    assert_eq!(y, [1.0, 0.0]);
}

/// Sums of small integers exactly, and sums and means at the end of half's range.
pub fn sums_and_means<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, columns) in [(1, 1), (65, 9), (scale.pick(40, 900), 602)] {
            let x = Random(131).integers(3, rows * columns);
            let sums = run::<B, E>(backend, shadow::sum, (rows, columns), &x, true);
            let means = run::<B, E>(backend, shadow::mean, (rows, columns), &x, true);
            for (row, x) in x.chunks_exact(columns).enumerate() {
                let sum: f32 = x.iter().sum();
                assert_eq!(sums[row], sum, "{rows} x {columns}");
                let mean = f64::from(sum) / columns as f64;
                let off = (f64::from(means[row]) - mean).abs();
                let allowed = mean.abs() * (roundoff::<E>() + 3.0 * FLOAT) + subnormal_error::<E>();
                assert!(
                    off <= allowed,
                    "{rows} x {columns}: {} for {mean}",
                    means[row]
                );
            }
        }
        // Ones that half cannot count, and a mean whose sum half cannot hold.
        let sum = run::<B, E>(backend, shadow::sum, (1, 4097), &[1.0; 4097], true);
        assert_eq!(sum[0], E::from_f32(4097.0).to_f32());
        let largest = rounded::<E>(65_504.0);
        let mean = run::<B, E>(backend, shadow::mean, (1, 3000), &[largest; 3000], true);
        assert!((mean[0] / largest - 1.0).abs() <= 1e-5, "{mean:?}");
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
    let sum = |x: &[f32]| run::<B, f16>(backend, shadow::sum, (1, x.len()), x, true)[0];
    assert_eq!(sum(&[65_504.0, 15.0]), 65_504.0);
    assert_eq!(sum(&[65_504.0, 16.0]), f32::INFINITY);
    assert_eq!(sum(&[65_504.0, 65_504.0, -65_504.0]), 65_504.0);
}

/// Padding is zero after every operator, which `read` asserts, whatever the columns; no rows are no error.
pub fn every_shape<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let operators: [(Operator<B, E>, bool); 5] = [
            (shadow::exp, false),
            (shadow::softmax, false),
            (shadow::log_softmax, false),
            (shadow::sum, true),
            (shadow::mean, true),
        ];
        for columns in [1, 2, 3, 7, 8, 9, 31, 47, 128, 602] {
            for rows in [0, 1, 5] {
                for (operator, of_one) in operators {
                    let x = vec![0.0; rows * columns];
                    let y = run::<B, E>(backend, operator, (rows, columns), &x, of_one);
                    assert!(y.iter().all(|y| y.is_finite()));
                }
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// What does not fit is refused.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let x = matrix::<B, f16>(backend, (2, 3), &[1.0; 6]);
    let mut y = unwritten::<B, f16>(backend, (2, 3));
    let error = shadow::mean(backend, &x, &mut y).expect_err("a mean has one column");
    assert!(error.to_string().contains("columns of y"), "{error}");
    let none = matrix::<B, f16>(backend, (2, 0), &[]);
    let mut y = unwritten::<B, f16>(backend, (2, 1));
    let error = shadow::mean(backend, &none, &mut y).expect_err("a mean of nothing");
    assert!(error.to_string().contains("no columns"), "{error}");
}
