//! Batch normalisation and weighted sums of matrices.

use crate::Scale;
use crate::input::{KIND, Random, bits, elements, matrix, read, rounded, unwritten};
use crate::reference::{Allowed, FLOAT, Sum, assert_close, roundoff};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{BatchNorm, Combine, Normalization, NormalizationGradients};
use halfgnn::tensor::{Element, Matrix};

/// Columns around the widths of loads, and rows around the blocks that are added up.
fn shapes(scale: Scale) -> Vec<(usize, usize)> {
    let rows = scale.pick(70, 3000);
    let columns = [1, 2, 3, 7, 8, 9, 41, 64, 130];
    let tall = scale.pick((200, 5), (140_000, 5));
    let mut all: Vec<_> = columns.into_iter().map(|columns| (rows, columns)).collect();
    all.extend([(1, 3), (2, 8), (63, 4), (64, 12), (65, 16), tall]);
    all
}

/// Numbers about a mean that is large beside their deviation, a mean for each column.
fn spread_out<E: Element>((rows, columns): (usize, usize)) -> Vec<f32> {
    let noise = Random(81).uniform::<f32>(rows * columns);
    let value = |(i, noise): (usize, &f32)| rounded::<E>(30.0 + (i % columns) as f32 + noise);
    noise.iter().enumerate().map(value).collect()
}

/// Mean and variance of each column in float64.
fn moments(x: &[f32], columns: usize) -> Vec<[f64; 2]> {
    let count = (x.len() / columns) as f64;
    let column = |column: usize| {
        let values = || x[column..].iter().step_by(columns).map(|&x| f64::from(x));
        let mean = values().sum::<f64>() / count;
        [
            mean,
            values().map(|x| (x - mean).powi(2)).sum::<f64>() / count,
        ]
    };
    (0..columns).map(column).collect()
}

/// Error of a sum of any column, of the sum of the sizes of its terms: a thread adds up some seventy rows, a block's threads
/// meet, and up to two thousand blocks are added up by 128 threads and then one after the other.
const SUM_ERROR: f64 = 300.0 * FLOAT;

struct Statistics<B: Backend> {
    batch: Matrix<B, f32>,
    running: Matrix<B, f32>,
}

fn statistics<B: Backend, E: Element>(backend: &B, x: &Matrix<B, E>) -> Statistics<B> {
    let columns = x.columns();
    let mut running = matrix(
        backend,
        (2, columns),
        &[vec![0.0; columns], vec![1.0; columns]].concat(),
    );
    let mut batch = unwritten(backend, (2, columns));
    ops::batch_statistics(backend, &BatchNorm::default(), x, &mut running, &mut batch)
        .expect("legal statistics");
    Statistics { batch, running }
}

/// Statistics, output, gradients and dots of one shape against float64.
pub fn follows_float64<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
    statistics_of::<B, E>(backend, shape);
    gradients_of::<B, E>(backend, shape);
    dot_of::<B, E>(backend, shape);
}

/// Means and deviations are those of float64, though the mean is a hundred deviations away from zero; the running ones
/// follow as PyTorch's do, and say the same of a matrix afterwards.
pub fn statistics_follow_float64<B: Backend>(backend: &B, scale: Scale) {
    for shape in shapes(scale) {
        statistics_of::<B, f16>(backend, shape);
        statistics_of::<B, bf16>(backend, shape);
        statistics_of::<B, f32>(backend, shape);
    }
}

fn statistics_of<B: Backend, E: Element>(backend: &B, shape @ (rows, columns): (usize, usize)) {
    let x = spread_out::<E>(shape);
    let found = statistics(backend, &matrix::<B, E>(backend, shape, &x));
    let (batch, running) = (read(backend, &found.batch), read(backend, &found.running));
    for (column, [mean, variance]) in moments(&x, columns).into_iter().enumerate() {
        let near = |found: f32, expected: f64, error: f64| {
            let off = (f64::from(found) - expected).abs();
            assert!(
                off <= error,
                "{shape:?}, column {column}: {found} for {expected}"
            );
        };
        // A block adds up a hundred numbers of about one, and two thousand blocks follow.
        let error = 200.0 * FLOAT;
        near(batch[column], mean, error + mean * 2.0 * FLOAT);
        let reciprocal = 1.0 / (variance + 1e-5).sqrt();
        // An error of the variance is 1/2 · reciprocal³ of it in the reciprocal deviation.
        let of_variance = 0.5 * reciprocal.powi(3) * error * variance.max(0.01);
        near(
            batch[columns + column],
            reciprocal,
            of_variance + reciprocal * 8.0 * FLOAT,
        );
        near(running[column], 0.1 * mean, error + mean * FLOAT);
        let unbiased = if rows > 1 {
            variance * rows as f64 / (rows - 1) as f64
        } else {
            variance
        };
        near(
            running[columns + column],
            0.9 + 0.1 * unbiased,
            error + unbiased * 8.0 * FLOAT,
        );
    }
    let mut again = unwritten(backend, (2, columns));
    ops::running_statistics(backend, &BatchNorm::default(), &found.running, &mut again)
        .expect("legal");
    let again = read(backend, &again);
    for column in 0..columns {
        let variance = running[columns + column];
        assert_eq!(again[column], running[column]);
        assert_eq!(again[columns + column], 1.0 / (variance + 1e-5).sqrt());
    }
}

/// Statistics that are not finite, of a step that an overflow spoilt, leave the running ones as they are.
pub fn overflows_leave_the_running_statistics<B: Backend>(backend: &B, _scale: Scale) {
    let mut x = spread_out::<f16>((9, 3));
    x[4] = f32::INFINITY;
    let found = statistics(backend, &matrix::<B, f16>(backend, (9, 3), &x));
    let running = read(backend, &found.running);
    assert_eq!((running[1], running[4]), (0.0, 1.0), "{running:?}");
    assert!(running[0] != 0.0 && running[2] != 0.0, "{running:?}");
    assert!(!read(backend, &found.batch)[1].is_finite());
}

/// Output and gradients, with and without ReLU, follow float64 from the statistics that were found.
pub fn output_and_gradients<B: Backend>(backend: &B, scale: Scale) {
    for shape in shapes(scale) {
        gradients_of::<B, f16>(backend, shape);
        gradients_of::<B, bf16>(backend, shape);
        gradients_of::<B, f32>(backend, shape);
    }
}

fn gradients_of<B: Backend, E: Element>(backend: &B, shape @ (rows, columns): (usize, usize)) {
    for relu in [false, true] {
        let x = spread_out::<E>(shape);
        let dy = Random(82).uniform::<E>(rows * columns);
        let (weight, bias) = (
            Random(83).uniform::<f32>(columns),
            Random(84).uniform::<f32>(columns),
        );
        let inputs = matrix::<B, E>(backend, shape, &x);
        let known = statistics(backend, &inputs).batch;
        let row = |values: &[f32]| matrix::<B, f32>(backend, (1, columns), values);
        let (weights, biases) = (row(&weight), row(&bias));
        let op = Normalization {
            statistics: &known,
            weight: &weights,
            bias: &biases,
            relu,
        };
        let mut y = unwritten::<B, E>(backend, shape);
        ops::normalize(backend, &op, &inputs, &mut y).expect("legal");
        let mut d = matrix::<B, E>(backend, shape, &dy);
        let (mut d_weight, mut d_bias) = (
            unwritten(backend, (1, columns)),
            unwritten(backend, (1, columns)),
        );
        // Factors of the rows where there is a ReLU.
        let (scale, of_rows) = (
            if relu { 4.0 } else { 1.0 },
            Random(85).uniform::<f32>(rows),
        );
        let row_scale = relu.then(|| elements(backend, &of_rows));
        let gradients = NormalizationGradients {
            weight: &mut d_weight,
            bias: &mut d_bias,
            scale,
            row_scale: row_scale.as_ref(),
            coding: None,
        };
        ops::normalize_backward(backend, &op, &inputs, &mut d, gradients).expect("legal");

        let known = read(backend, &known);
        let what = format!("{shape:?} relu {relu} {}", E::PRECISION);
        // The very operations, in float: what is cut off must be the same.
        let output = |i: usize| {
            let column = i % columns;
            (x[i] - known[column]) * (known[columns + column] * weight[column]) + bias[column]
        };
        let expected: Vec<f32> = (0..x.len())
            .map(|i| {
                rounded::<E>(if relu && output(i) < 0.0 {
                    0.0
                } else {
                    output(i)
                })
            })
            .collect();
        assert!(bits(&read(backend, &y)) == bits(&expected), "{what}");

        let normalized = |i: usize| {
            (f64::from(x[i]) - f64::from(known[i % columns]))
                * f64::from(known[columns + i % columns])
        };
        let passed = |i: usize| {
            if relu && output(i) <= 0.0 {
                0.0
            } else {
                f64::from(dy[i])
            }
        };
        let mut sums = vec![[Sum::default(); 2]; columns];
        for i in 0..x.len() {
            sums[i % columns][0].add(passed(i));
            sums[i % columns][1].add(passed(i) * normalized(i));
        }
        let plane = |plane: usize| sums.iter().map(|sums| sums[plane]).collect::<Vec<_>>();
        // A term has three roundings.
        let allowed = Allowed {
            relative: SUM_ERROR,
            absolute: 0.0,
        };
        assert_close::<f32>(&what, &read(backend, &d_bias), &plane(0), columns, |_| {
            allowed
        });
        assert_close::<f32>(&what, &read(backend, &d_weight), &plane(1), columns, |_| {
            allowed
        });
        let gradients: Vec<Sum> = (0..x.len())
            .map(|i| {
                let column = i % columns;
                let of_row = if relu { of_rows[i / columns] } else { 1.0 };
                let factor = f64::from(weight[column])
                    * f64::from(known[columns + column])
                    * f64::from(scale * of_row);
                let count = rows as f64;
                let mut sum = Sum::default();
                sum.add(factor * passed(i));
                sum.add(-factor * sums[column][0].value / count);
                sum.add(-factor * normalized(i) * sums[column][1].value / count);
                sum
            })
            .collect();
        // The two means are off by what their sums may be.
        let of_means = |row: usize| {
            let of_row = if relu {
                f64::from(of_rows[row].abs())
            } else {
                1.0
            };
            let of_column = |column: usize| {
                let [dy, product] = sums[column].map(|sum| sum.size / rows as f64);
                let factor = f64::from(weight[column].abs() * known[columns + column]);
                factor * (dy + normalized(row * columns + column).abs() * product)
            };
            let most = (0..columns).map(of_column).fold(0.0, f64::max);
            f64::from(scale) * of_row * SUM_ERROR * most
        };
        assert_close::<E>(&what, &read(backend, &d), &gradients, columns, |row| {
            Allowed {
                relative: roundoff::<E>() + 8.0 * FLOAT,
                absolute: of_means(row),
            }
        });
    }
}

/// Weighted sums, bit for bit: two products, a sum, one rounding. Without a factor `y` is not read.
pub fn weighted_sums<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for shape in shapes(scale) {
            let len = shape.0 * shape.1;
            let (x, y) = (Random(85).uniform::<E>(len), Random(86).uniform::<E>(len));
            for (epsilon, y_factor) in [
                (None, 1.0),
                (Some(0.3), 0.1),
                (Some(-1.0), -2.0),
                (None, 0.0),
            ] {
                let value = epsilon.map(|epsilon| matrix::<B, f32>(backend, (1, 1), &[epsilon]));
                let of_rows = Random(89).uniform::<f32>(shape.0);
                let x_scale = (y_factor < 0.0).then(|| elements(backend, &of_rows));
                let op = Combine {
                    x_factor: 1.5,
                    epsilon: value.as_ref(),
                    x_scale: x_scale.as_ref(),
                    y_factor,
                };
                let inputs = matrix::<B, E>(backend, shape, &x);
                let mut output = if y_factor == 0.0 {
                    unwritten(backend, shape)
                } else {
                    matrix::<B, E>(backend, shape, &y)
                };
                ops::combine(backend, &op, &inputs, &mut output).expect("legal");
                let factor = 1.5 * (1.0 + epsilon.unwrap_or(0.0));
                let expected: Vec<f32> = (0..len)
                    .map(|i| {
                        let factor = match x_scale {
                            Some(_) => factor * of_rows[i / shape.1],
                            None => factor,
                        };
                        rounded::<E>(factor * x[i] + y_factor * y[i])
                    })
                    .collect();
                assert!(
                    bits(&read(backend, &output)) == bits(&expected),
                    "{shape:?} {op:?}"
                );
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// The sum of all products follows float64, and has the same bits every time.
pub fn dots<B: Backend>(backend: &B, scale: Scale) {
    for shape in shapes(scale).into_iter().chain([(0, 5), (5, 0)]) {
        dot_of::<B, f16>(backend, shape);
        dot_of::<B, bf16>(backend, shape);
        dot_of::<B, f32>(backend, shape);
    }
}

fn dot_of<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
    let len = shape.0 * shape.1;
    let (x, y) = (Random(87).uniform::<E>(len), Random(88).uniform::<E>(len));
    let run = || {
        let mut result = unwritten(backend, (1, 1));
        let [x, y] = [&x, &y].map(|values| matrix::<B, E>(backend, shape, values));
        ops::dot(backend, 0.5, &x, &y, &mut result).expect("legal");
        read(backend, &result)
    };
    let mut sum = Sum::default();
    for (&x, &y) in x.iter().zip(&y) {
        sum.add(0.5 * f64::from(x) * f64::from(y));
    }
    let found = run();
    assert_close::<f32>(&format!("{shape:?}"), &found, &[sum], 1, |_| Allowed {
        relative: 500.0 * FLOAT,
        absolute: 0.0,
    });
    assert_eq!(bits(&found), bits(&run()));
}

/// What does not fit is refused by name.
pub fn shapes_are_checked<B: Backend>(backend: &B, _scale: Scale) {
    let zeros =
        |rows, columns| Matrix::<B, f32>::zeros(backend, rows, columns, KIND).expect("room");
    let plain = Combine::sum();
    let message = |result: Result<(), halfgnn::Error>| result.expect_err("refused").to_string();
    let refused = message(ops::combine(
        backend,
        &plain,
        &zeros(2, 3),
        &mut zeros(2, 4),
    ));
    assert_eq!(refused, "combine: columns of y should be 3, is 4");
    let refused = message(ops::batch_statistics(
        backend,
        &BatchNorm::default(),
        &zeros(0, 3),
        &mut zeros(2, 3),
        &mut zeros(2, 3),
    ));
    assert_eq!(
        refused,
        "batch_statistics: a matrix without rows has no mean"
    );
    let refused = message(ops::dot(
        backend,
        1.0,
        &zeros(2, 3),
        &zeros(2, 3),
        &mut zeros(1, 2),
    ));
    assert!(
        refused.contains("columns of the result should be 1, is 2"),
        "{refused}"
    );
    let (statistics, row) = (zeros(2, 3), zeros(1, 3));
    let op = Normalization {
        statistics: &statistics,
        weight: &row,
        bias: &statistics,
        relu: false,
    };
    let refused = message(ops::normalize(backend, &op, &zeros(4, 3), &mut zeros(4, 3)));
    assert!(
        refused.contains("rows of the shifts should be 1, is 2"),
        "{refused}"
    );
}
