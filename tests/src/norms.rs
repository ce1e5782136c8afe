//! Norms of rows and of groups of rows.

use crate::Scale;
use crate::input::{KIND, Random, bits, matrix, read, rounded, unwritten};
use crate::reference::{Allowed, FLOAT, Sum, assert_close, roundoff};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{
    self, AffineGradients, GroupGradients, GroupNorm, GroupNormalization, LayerNorm, RowGroups,
};
use halfgnn::tensor::{Element, Matrix};

/// Added to variances.
const EPSILON: f32 = 1e-5;

/// Widths around those of loads and of warps.
const WIDTHS: [usize; 8] = [1, 7, 8, 9, 41, 64, 257, 300];

/// Numbers about a mean that is large beside their deviation, a mean for each row and column.
fn spread_out<E: Element>((rows, columns): (usize, usize)) -> Vec<f32> {
    let noise = Random(181).uniform::<f32>(rows * columns);
    let value = |(i, noise): (usize, &f32)| {
        let (row, column) = (i / columns.max(1), i % columns.max(1));
        rounded::<E>(3.0 + (row % 3) as f32 + (column % 5) as f32 + noise)
    };
    noise.iter().enumerate().map(value).collect()
}

fn parameters(columns: usize) -> [Vec<f32>; 3] {
    [183, 184, 185].map(|stream| {
        let values = Random(stream).uniform::<f32>(columns);
        values.into_iter().map(|value| 1.0 + 0.5 * value).collect()
    })
}

/// What a norm makes of numbers, and the gradients of it, in float64.
#[derive(Default)]
struct Expected {
    y: Vec<f64>,
    dx: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
    mean_scale: Vec<f64>,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

/// `Σ terms`, each of which may be off by as much as it is large.
fn near<E: Element>(what: &str, found: &[f32], expected: &[f64], columns: usize, absolute: f64) {
    let sums: Vec<Sum> = expected
        .iter()
        .map(|&value| Sum {
            value,
            size: value.abs(),
        })
        .collect();
    assert_close::<E>(what, found, &sums, columns.max(1), |_| Allowed {
        relative: roundoff::<E>() + 300.0 * FLOAT,
        absolute,
    });
}

/// Rows, by the formula of the paper and its derivative.
fn of_rows(x: &[f32], dy: &[f32], columns: usize, [weight, bias]: [&[f32]; 2]) -> Expected {
    let (weight, bias) = (wide(weight), wide(bias));
    let mut expected = Expected {
        weight: vec![0.0; columns],
        bias: vec![0.0; columns],
        ..Expected::default()
    };
    let width = columns as f64;
    for (x, dy) in x.chunks(columns).zip(dy.chunks(columns)) {
        let (x, dy) = (wide(x), wide(dy));
        let mean = x.iter().sum::<f64>() / width;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width;
        let deviation = (variance + f64::from(EPSILON)).sqrt();
        let normalized: Vec<f64> = x.iter().map(|x| (x - mean) / deviation).collect();
        let d: Vec<f64> = dy.iter().zip(&weight).map(|(d, w)| d * w).collect();
        let first = d.iter().sum::<f64>() / width;
        let products = d.iter().zip(&normalized).map(|(d, n)| d * n);
        let second = products.sum::<f64>() / width;
        for column in 0..columns {
            let n = normalized[column];
            expected.y.push(weight[column] * n + bias[column]);
            expected
                .dx
                .push((d[column] - first - n * second) / deviation);
            expected.weight[column] += dy[column] * n;
            expected.bias[column] += dy[column];
        }
    }
    expected
}

/// Each row follows float64, forward and backward, with the same bits every time; a ReLU cuts off what is negative.
pub fn rows_follow_float64<B: Backend>(backend: &B, scale: Scale) {
    let rows = scale.pick(70, 700);
    for columns in WIDTHS {
        for rows in [0, 1, rows] {
            rows_of::<B, f16>(backend, (rows, columns));
            rows_of::<B, bf16>(backend, (rows, columns));
            rows_of::<B, f32>(backend, (rows, columns));
        }
    }
}

/// One shape of [`rows_follow_float64`].
fn rows_of<B: Backend, E: Element>(backend: &B, shape @ (rows, columns): (usize, usize)) {
    let (x, dy) = (
        spread_out::<E>(shape),
        Random(182).uniform::<E>(rows * columns),
    );
    let [weight, bias, _] = parameters(columns);
    let expected = of_rows(&x, &dy, columns, [&weight, &bias]);
    let row = |values: &[f32]| matrix::<B, f32>(backend, (1, columns), values);
    let (weights, biases) = (row(&weight), row(&bias));
    let inputs = matrix::<B, E>(backend, shape, &x);
    let run = |relu| {
        let op = LayerNorm {
            weight: &weights,
            bias: &biases,
            epsilon: EPSILON,
            relu,
        };
        let mut statistics = unwritten::<B, f32>(backend, (rows, 2));
        let mut y = unwritten::<B, E>(backend, shape);
        ops::normalize_rows(backend, &op, &inputs, &mut statistics, &mut y).expect("legal");
        let mut d = matrix::<B, E>(backend, shape, &dy);
        let [mut d_weight, mut d_bias] = [(); 2].map(|()| unwritten(backend, (1, columns)));
        let gradients = AffineGradients {
            weight: &mut d_weight,
            bias: &mut d_bias,
        };
        let (known, d_x) = (&statistics, &mut d);
        ops::normalize_rows_backward(backend, &weights, &inputs, known, d_x, gradients)
            .expect("legal");
        read(backend, &statistics);
        let all = [read(backend, &y), read(backend, &d)];
        let sums = [&d_weight, &d_bias].map(|sums| read(backend, sums));
        [all, sums].concat()
    };
    let found = run(false);
    let what = |part: &str| format!("{part} of {shape:?} in {}", E::PRECISION);
    // A mean of so many numbers about ten, over deviations of a half at least, and of one column of a hundredth.
    let error = 40.0 * FLOAT * if columns == 1 { 400.0 } else { 10.0 };
    near::<E>(&what("y"), &found[0], &expected.y, columns, error);
    near::<E>(&what("dx"), &found[1], &expected.dx, columns, 10.0 * error);
    let of_sums = error * (rows as f64).max(1.0);
    near::<f32>(
        &what("d weight"),
        &found[2],
        &expected.weight,
        columns,
        of_sums,
    );
    near::<f32>(&what("d bias"), &found[3], &expected.bias, columns, of_sums);
    let again = run(true);
    let cut: Vec<f32> = found[0].iter().map(|y| y.max(0.0)).collect();
    assert_eq!(bits(&again[0]), bits(&cut), "{}", what("relu"));
    for part in 1..4 {
        assert_eq!(bits(&again[part]), bits(&found[part]), "{}", what("again"));
    }
}

/// Groups, by the papers' formulas and their derivatives.
fn of_groups(
    x: &[f32],
    dy: &[f32],
    (columns, starts): (usize, &[u32]),
    graph: Option<[&[f32]; 3]>,
) -> Expected {
    let (x, dy) = (wide(x), wide(dy));
    let mut expected = Expected {
        y: vec![0.0; x.len()],
        dx: vec![0.0; x.len()],
        ..Expected::default()
    };
    for ends in starts.windows(2) {
        let rows = ends[0] as usize..ends[1] as usize;
        let count = rows.len().max(1) as f64;
        let mean_of = |f: &dyn Fn(usize) -> f64, column: usize| {
            let values = rows.clone().map(|row| f(row * columns + column));
            values.sum::<f64>() / count
        };
        let mean: Vec<f64> = (0..columns).map(|c| mean_of(&|at| x[at], c)).collect();
        let mean_dy: Vec<f64> = (0..columns).map(|c| mean_of(&|at| dy[at], c)).collect();
        let epsilon = f64::from(EPSILON);
        let squares = |shift: &dyn Fn(usize) -> f64, c: usize| {
            mean_of(&|at| (x[at] - shift(at % columns)).powi(2), c)
        };
        let Some([weight, bias, mean_scale]) = graph else {
            let shift = |c: usize| mean[c];
            let all: f64 = (0..columns).map(|c| squares(&shift, c)).sum();
            let s = 1.0 / (all + epsilon).sqrt();
            let products: f64 = (0..columns)
                .map(|c| mean_of(&|at| dy[at] * (x[at] - mean[c]) * s, c))
                .sum();
            for row in rows.clone() {
                for (c, mean) in mean.iter().enumerate() {
                    let at = row * columns + c;
                    let n = (x[at] - mean) * s;
                    expected.y[at] = n;
                    expected.dx[at] = s * (dy[at] - mean_dy[c] - n * products);
                }
            }
            continue;
        };
        for c in 0..columns {
            let [w, b, a] = [weight, bias, mean_scale].map(|of| f64::from(of[c]));
            let shift = |c: usize| f64::from(mean_scale[c]) * mean[c];
            let r = 1.0 / (squares(&shift, c) + epsilon).sqrt();
            let product = mean_of(&|at| dy[at] * (x[at] - shift(c)) * r, c);
            // With respect to what is divided.
            let d = |at: usize| w * r * (dy[at] - (x[at] - shift(c)) * r * product);
            let mean_d = mean_of(&d, c);
            for row in rows.clone() {
                let at = row * columns + c;
                expected.y[at] = w * (x[at] - shift(c)) * r + b;
                expected.dx[at] = d(at) - a * mean_d;
            }
            expected.weight.push(count * product);
            expected.bias.push(count * mean_dy[c]);
            expected.mean_scale.push(-mean[c] * count * mean_d);
        }
    }
    expected
}

/// Each group follows float64, forward and backward, with the same bits every time: all rows as one, and many, some without rows,
/// of one, and past a chunk.
pub fn groups_follow_float64<B: Backend>(backend: &B, scale: Scale) {
    // More chunks than a CTA has warps.
    let large = scale.pick(900, 40_000);
    for columns in WIDTHS {
        let columns = if scale == Scale::Full {
            columns.min(41)
        } else {
            columns
        };
        let ends = [0, 3, 3, 4, 132, 261, 261, 290];
        for starts in [&[0, 0][..], &[0, 1], &[0, 150], &ends] {
            groups_of::<B, f16>(backend, columns, starts);
            groups_of::<B, bf16>(backend, columns, starts);
            groups_of::<B, f32>(backend, columns, starts);
        }
    }
    groups_of::<B, f32>(backend, 5, &[0, 2, large]);
}

/// Some groups of [`groups_follow_float64`].
fn groups_of<B: Backend, E: Element>(backend: &B, columns: usize, starts: &[u32]) {
    let shape @ (rows, _) = (starts[starts.len() - 1] as usize, columns);
    let (x, dy) = (
        spread_out::<E>(shape),
        Random(186).uniform::<E>(rows * columns),
    );
    let [weight, bias, mean_scale] = parameters(columns);
    let row = |values: &[f32]| matrix::<B, f32>(backend, (1, columns), values);
    let [weights, biases, multiples] = [&weight, &bias, &mean_scale].map(|values| row(values));
    let inputs = matrix::<B, E>(backend, shape, &x);
    let groups = RowGroups::new(backend, starts).expect("groups in order");
    let count = starts.len() - 1;
    assert_eq!((groups.groups(), groups.rows()), (count, rows));
    for graph in [false, true] {
        let norm = match graph {
            true => GroupNorm::Graph(&multiples),
            false => GroupNorm::Pair,
        };
        let run = |relu| {
            let mut statistics = unwritten::<B, f32>(backend, (3 * count, columns));
            ops::group_statistics(backend, &norm, EPSILON, &groups, &inputs, &mut statistics)
                .expect("legal");
            let op = GroupNormalization {
                groups: &groups,
                statistics: &statistics,
                weight: graph.then_some(&weights),
                bias: graph.then_some(&biases),
                relu,
            };
            let mut y = unwritten::<B, E>(backend, shape);
            ops::normalize_groups(backend, &op, &inputs, &mut y).expect("legal");
            let mut d = matrix::<B, E>(backend, shape, &dy);
            let mut parts = [(); 3].map(|()| unwritten::<B, f32>(backend, (count, columns)));
            let [d_weight, d_bias, d_multiples] = &mut parts;
            let gradients = graph.then_some(GroupGradients {
                weight: d_weight,
                bias: d_bias,
                mean_scale: d_multiples,
            });
            ops::normalize_groups_backward(backend, &norm, &op, &inputs, &mut d, gradients)
                .expect("legal");
            read(backend, &statistics);
            let mut all = vec![read(backend, &y), read(backend, &d)];
            if graph {
                all.extend(parts.iter().map(|part| read(backend, part)));
            }
            all
        };
        let of_graph = [&weight[..], &bias, &mean_scale];
        let expected = of_groups(&x, &dy, (columns, starts), graph.then_some(of_graph));
        let found = run(false);
        let what = |part: &str| format!("{part} of {shape:?}, graph {graph}, in {}", E::PRECISION);
        // As in the statistics of batches; a group of one row is as far from its mean as its rounding.
        let lonely = starts.windows(2).any(|ends| ends[1] - ends[0] == 1) && !graph;
        let error = if lonely { 5e-3 } else { 2e-4 };
        near::<E>(&what("y"), &found[0], &expected.y, columns, error);
        near::<E>(
            &what("dx"),
            &found[1],
            &expected.dx,
            columns,
            error * if lonely { 400.0 } else { 10.0 },
        );
        if graph {
            let all = [&expected.weight, &expected.bias, &expected.mean_scale];
            for (part, expected) in all.into_iter().enumerate() {
                let error = error * (rows as f64).sqrt().max(1.0) * 4.0;
                near::<f32>(&what("parts"), &found[2 + part], expected, columns, error);
            }
        }
        let again = run(true);
        let cut: Vec<f32> = found[0].iter().map(|y| y.max(0.0)).collect();
        assert_eq!(bits(&again[0]), bits(&cut), "{}", what("relu"));
        for part in 1..found.len() {
            assert_eq!(bits(&again[part]), bits(&found[part]), "{}", what("again"));
        }
    }
}

/// What does not fit is refused by name.
pub fn misfits_are_refused<B: Backend>(backend: &B, _scale: Scale) {
    let zeros =
        |rows, columns| Matrix::<B, f32>::zeros(backend, rows, columns, KIND).expect("room");
    let message = |result: Result<(), halfgnn::Error>| result.expect_err("refused").to_string();
    let (row, short) = (zeros(1, 3), zeros(1, 2));
    let op = LayerNorm {
        weight: &row,
        bias: &short,
        epsilon: EPSILON,
        relu: false,
    };
    let (x, mut y) = (zeros(4, 3), zeros(4, 3));
    let told = message(ops::normalize_rows(
        backend,
        &op,
        &x,
        &mut zeros(4, 2),
        &mut y,
    ));
    assert_eq!(
        told,
        "normalize_rows: columns of the shifts should be 3, is 2"
    );
    let told = message(ops::normalize_rows(
        backend,
        &op,
        &x,
        &mut zeros(3, 2),
        &mut y,
    ));
    assert_eq!(
        told,
        "normalize_rows: rows of the statistics should be 4, is 3"
    );
    for starts in [&[][..], &[1, 4], &[0, 3, 2]] {
        let told = RowGroups::new(backend, starts)
            .expect_err("refused")
            .to_string();
        assert!(told.contains("should start at row 0"), "{told}");
    }
    let groups = RowGroups::new(backend, &[0, 2, 5]).expect("in order");
    let told = message(ops::group_statistics(
        backend,
        &GroupNorm::Pair,
        EPSILON,
        &groups,
        &x,
        &mut zeros(6, 3),
    ));
    assert_eq!(
        told,
        "group_statistics: rows of the groups should be 4, is 5"
    );
    let groups = RowGroups::new(backend, &[0, 2, 4]).expect("in order");
    let (statistics, norm) = (zeros(6, 3), GroupNorm::Graph(&row));
    let op = GroupNormalization {
        groups: &groups,
        statistics: &statistics,
        weight: Some(&row),
        bias: Some(&row),
        relu: false,
    };
    let told = message(ops::normalize_groups_backward(
        backend, &norm, &op, &x, &mut y, None,
    ));
    assert!(told.contains("give room for their gradients"), "{told}");
}
