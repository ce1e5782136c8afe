//! Products of every form, tile and pair of elements, and the element-wise operators.

use super::{OperatorCase, Results, product_bound};
use crate::input::{elements, matrix, read, unwritten};
use crate::matmul::{Case, FORMS, Normal};
use crate::reference::Sum;
use half::{bf16, f16};
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::ops;
use halfgnn::ops::{Activation, Dropout, Epilogue, Form, MatmulFusion, Nonlinearity, RandomState};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use std::ops::Range;

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    products::<B, f16, f16>(&mut cases, &FORMS);
    products::<B, f16, f32>(&mut cases, &FORMS);
    products::<B, bf16, bf16>(&mut cases, &[Form::NN, Form::NT]);
    products::<B, bf16, f32>(&mut cases, &[Form::NT, Form::TN]);
    products::<B, f32, f32>(&mut cases, &FORMS);
    gradients::<B, f16>(&mut cases);
    gradients::<B, bf16>(&mut cases);
    gradients::<B, f32>(&mut cases);
    pairs::<B, f16>(&mut cases);
    pairs::<B, bf16>(&mut cases);
    pairs::<B, f32>(&mut cases);
    normalized::<B, f16, f16>(&mut cases, Form::NN);
    normalized::<B, f32, f32>(&mut cases, Form::NN);
    normalized::<B, f16, f32>(&mut cases, Form::TN);
    normalized::<B, bf16, bf16>(&mut cases, Form::NN);
    normalized::<B, bf16, f32>(&mut cases, Form::TN);
    normalized::<B, f32, f32>(&mut cases, Form::TN);
    element_wise::<B, f16>(&mut cases);
    element_wise::<B, bf16>(&mut cases);
    element_wise::<B, f32>(&mut cases);
    nonlinearities::<B, f16>(&mut cases);
    dropped_rows::<B, f16>(&mut cases);
    nonlinearities::<B, bf16>(&mut cases);
    dropped_rows::<B, bf16>(&mut cases);
    nonlinearities::<B, f32>(&mut cases);
    dropped_rows::<B, f32>(&mut cases);
    cases
}

fn products<B: Backend + 'static, E: Element, O: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    forms: &[Form],
) {
    // A tile's columns are 16, 32 or 64; the last shape's sum is so long that several CTAs share it.
    let shapes = [[21, 13, 40], [21, 27, 40], [21, 50, 40], [9, 10, 1500]];
    for &form in forms {
        for [m, n, k] in shapes {
            let (input, output) = (E::PRECISION, O::PRECISION);
            let name = format!("matmul {input} to {output} {form:?} {m} x {n} x {k}");
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let mut case = Case::random::<E>(form, [m, n, k]);
                // One row with corners: each of them reaches all of a row of the result.
                case.a = operands.uniform::<E>(m * k);
                case.b = operands.uniform::<E>(k * n);
                let corners = operands.mixed::<E>(k);
                for (l, corner) in corners.into_iter().enumerate() {
                    let at = if form == Form::TN {
                        l * m + 2
                    } else {
                        2 * k + l
                    };
                    case.a[at] = corner;
                }
                case.row_scale = Some(operands.uniform::<f32>(m));
                case.bias = Some(operands.uniform::<f32>(n));
                case.relu = n == 27;
                let actual = case.run::<B, E, O>(backend);
                if E::PRECISION == Precision::Float {
                    return Results::rows(&actual, n);
                }
                let reference = case.reference();
                let bound = |sum: &Sum| product_bound::<O>(k, sum.size);
                Results::Near(actual, reference.iter().map(bound).collect())
            }));
        }
    }
}

/// The two products of a layer's backward pass, with what they have beside them.
fn gradients<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for [m, n, k] in [[21, 13, 40], [21, 50, 40], [9, 10, 1500]] {
        let precision = E::PRECISION;
        let name = format!("matmul through a ReLU {precision} {m} x {n} x {k}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let mut case = Case::random::<E>(Form::NT, [m, n, k]);
            case.a = operands.uniform::<E>(m * k);
            case.b = operands.uniform::<E>(k * n);
            let output = operands.mixed::<E>(m * n);
            let positive = matrix::<B, E>(backend, (m, n), &output);
            let (actual, _) = case.run_beside::<B, E, E>(backend, Some(&positive), false);
            if E::PRECISION == Precision::Float {
                return Results::rows(&actual, n);
            }
            let bound = |(sum, output): (&Sum, &f32)| match *output > 0.0 {
                true => product_bound::<E>(k, sum.size),
                false => 0.0,
            };
            let bounds = case.reference().iter().zip(&output).map(bound).collect();
            Results::Near(actual, bounds)
        }));
        let name = format!("matmul and sums of columns {precision} {m} x {n} x {k}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let mut case = Case::random::<E>(Form::TN, [m, n, k]);
            case.a = operands.uniform::<E>(m * k);
            case.b = operands.uniform::<E>(k * n);
            let (mut all, sums) = case.run_beside::<B, E, f32>(backend, None, true);
            all.extend(sums);
            if E::PRECISION == Precision::Float {
                return Results::rows(&all, n);
            }
            let mut bounds: Vec<f64> = case
                .reference()
                .iter()
                .map(|sum| product_bound::<f32>(k, sum.size))
                .collect();
            bounds.extend((0..n).map(|column| {
                let column = case.b[column..].iter().step_by(n);
                let size = column.map(|&value| f64::from(value).abs()).sum();
                product_bound::<f32>(k, size)
            }));
            Results::Near(all, bounds)
        }));
    }
}

/// Products of two pairs of operands, which are that of the operands side by side.
fn pairs<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for ([m, n, k], second) in [
        ([21, 13, 110], 70),
        ([21, 27, 110], 70),
        ([21, 50, 110], 70),
        ([9, 10, 1500], 600),
    ] {
        let first = k - second;
        let precision = E::PRECISION;
        let name = format!("matmul of two pairs {precision} {m} x {n} x {first} + {second}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let mut case = Case::random::<E>(Form::NN, [m, n, k]);
            case.a = operands.uniform::<E>(m * k);
            case.b = operands.uniform::<E>(k * n);
            let columns = |range: Range<usize>| -> Matrix<B, E> {
                let rows = case.a.chunks_exact(k);
                let part: Vec<f32> = rows.flat_map(|row| row[range.clone()].to_vec()).collect();
                matrix(backend, (m, range.len()), &part)
            };
            let [a, a2] = [columns(0..first), columns(first..k)];
            let (b, b2) = case.b.split_at(first * n);
            let b = matrix::<B, E>(backend, (first, n), b);
            let b2 = matrix::<B, E>(backend, (second, n), b2);
            let mut c = unwritten::<B, E>(backend, (m, n));
            let (plain, fusion) = (
                Epilogue::default(),
                MatmulFusion {
                    second_pair: Some([&a2, &b2]),
                    ..MatmulFusion::default()
                },
            );
            ops::matmul_fused(backend, Form::NN, &a, &b, &plain, fusion, &mut c).expect("legal");
            let actual = read(backend, &c);
            if E::PRECISION == Precision::Float {
                return Results::rows(&actual, n);
            }
            let reference = case.reference();
            let bound = |sum: &Sum| product_bound::<E>(k, sum.size);
            Results::Near(actual, reference.iter().map(bound).collect())
        }));
    }
}

/// The two products of a normalised operand that a layer has.
fn normalized<B: Backend + 'static, E: Element, O: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    form: Form,
) {
    for [m, n, k] in [[21, 13, 40], [21, 27, 40], [21, 50, 40], [9, 10, 1500]] {
        let precision = E::PRECISION;
        let name = format!("matmul of a normalised operand {precision} {form:?} {m} x {n} x {k}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let mut case = Case::random::<E>(form, [m, n, k]);
            let columns = if form == Form::TN { m } else { k };
            case.a = operands.uniform::<E>(m * k);
            case.b = operands.uniform::<E>(k * n);
            case.normal = Some(Normal {
                statistics: operands.uniform::<f32>(2 * columns),
                weight: operands.uniform::<f32>(columns),
                bias: operands.uniform::<f32>(columns),
                relu: n != 27,
            });
            let actual = case.run::<B, E, O>(backend);
            if E::PRECISION == Precision::Float {
                return Results::rows(&actual, n);
            }
            let reference = case.normalized::<B, E>(backend).reference();
            let bound = |sum: &Sum| product_bound::<O>(k, sum.size);
            Results::Near(actual, reference.iter().map(bound).collect())
        }));
    }
}

fn element_wise<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let (rows, columns) = (70, 37);
    for (relu, dropped) in [(true, false), (false, true), (true, true)] {
        let name = format!("activate {} relu {relu} dropout {dropped}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let random = RandomState::new(backend, 11, 3).expect("room for a word");
            let bias = matrix(backend, (1, columns), &operands.mixed::<f32>(columns));
            let op = Activation {
                bias: Some(&bias),
                relu,
                dropout: dropped.then_some(Dropout {
                    probability: 0.4,
                    stream: 1,
                    random: &random,
                }),
            };
            let x = matrix::<B, E>(
                backend,
                (rows, columns),
                &operands.mixed::<E>(rows * columns),
            );
            let mut y = unwritten::<B, E>(backend, (rows, columns));
            ops::activate(backend, &op, Some(&x), &mut y).expect("a legal activation");
            let factors = elements(backend, &operands.mixed::<f32>(rows));
            let mut d = matrix::<B, E>(
                backend,
                (rows, columns),
                &operands.mixed::<E>(rows * columns),
            );
            ops::activate_backward(backend, &op, relu.then_some(&y), Some(&factors), &mut d)
                .expect("a legal gradient");
            let forward = Results::rows(&read(backend, &y), columns);
            forward.and(Results::rows(&read(backend, &d), columns))
        }));
    }
    for rows in [40, 900] {
        let name = format!("column_sums {} {rows} rows", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let values = operands.striped::<E>(rows, columns);
            let x = matrix::<B, E>(backend, (rows, columns), &values);
            let mut sums = unwritten::<B, f32>(backend, (1, columns));
            ops::column_sums(backend, &x, &mut sums).expect("legal sums");
            Results::rows(&read(backend, &sums), 1)
        }));
    }
}

/// Activation functions other than a ReLU, and their gradients.
fn nonlinearities<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let functions = [
        ("elu", Nonlinearity::Elu),
        ("leaky relu", Nonlinearity::LeakyRelu(0.01)),
        ("gelu", Nonlinearity::Gelu),
        ("tanh", Nonlinearity::Tanh),
        ("sign", Nonlinearity::Sign),
    ];
    for (what, function) in functions {
        let name = format!("nonlinearity {} {what}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (50, 41);
            let x = matrix::<B, E>(backend, shape, &operands.mixed::<E>(50 * 41));
            let bias = matrix::<B, f32>(backend, (1, 41), &operands.uniform::<f32>(41));
            let mut y = unwritten::<B, E>(backend, shape);
            ops::nonlinearity(backend, function, Some(&bias), Some(&x), &mut y).expect("legal");
            let mut d = matrix::<B, E>(backend, shape, &operands.mild::<E>(50 * 41));
            let of = if function.wants_input() { &x } else { &y };
            ops::nonlinearity_backward(backend, function, of, &mut d).expect("legal");
            Results::rows(&read(backend, &y), 41).and(Results::rows(&read(backend, &d), 41))
        }));
    }
}

/// Dropout of rows that are a part of a matrix.
fn dropped_rows<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let name = format!("drop_rows {}", E::PRECISION);
    cases.push(OperatorCase::new(name, |backend: &B, operands| {
        let random = RandomState::new(backend, 11, 3).expect("room for a word");
        let dropout = Dropout {
            probability: 0.4,
            stream: 1,
            random: &random,
        };
        let vertices: Vec<u32> = (0..50).map(|row| (row * 37) % 90).collect();
        let vertices = Array::from_slice(backend, &vertices, MemoryKind::Graph).expect("room");
        let mut y = matrix::<B, E>(backend, (50, 41), &operands.mixed::<E>(50 * 41));
        ops::drop_rows(backend, dropout, &vertices, &mut y).expect("legal");
        Results::rows(&read(backend, &y), 41)
    }));
    let name = format!("activate_rows {}", E::PRECISION);
    cases.push(OperatorCase::new(name, |backend: &B, operands| {
        let random = RandomState::new(backend, 11, 3).expect("room for a word");
        let dropout = Some(Dropout {
            probability: 0.4,
            stream: 1,
            random: &random,
        });
        let op = Activation {
            bias: None,
            relu: false,
            dropout,
        };
        // Some are not there.
        let order: Vec<u32> = (0..50).map(|row| (row * 37) % 40).collect();
        let order = Array::from_slice(backend, &order, MemoryKind::Graph).expect("room");
        let rows = matrix::<B, E>(backend, (30, 41), &operands.mixed::<E>(30 * 41));
        let mut y = unwritten::<B, E>(backend, (50, 41));
        ops::activate_rows(backend, &op, &rows, &order, &mut y).expect("legal");
        Results::rows(&read(backend, &y), 41)
    }));
}
