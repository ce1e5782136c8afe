//! Batch normalisation with its gradient, weighted sums, dot products.

use super::{OperatorCase, Results};
use crate::input::{matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{BatchNorm, Combine, Normalization, NormalizationGradients};
use halfgnn::tensor::Element;

const SHAPE: (usize, usize) = (150, 37);

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    cases
}

fn of_element<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let precision = E::PRECISION;
    let (rows, columns) = SHAPE;
    for relu in [false, true] {
        let name = format!("batch normalisation {precision} relu {relu}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let x = matrix::<B, E>(backend, SHAPE, &operands.striped::<E>(rows, columns));
            let before = operands.uniform::<f32>(2 * columns);
            let before: Vec<f32> = before.into_iter().map(f32::abs).collect();
            let mut running = matrix(backend, (2, columns), &before);
            let mut statistics = unwritten::<B, f32>(backend, (2, columns));
            let op = BatchNorm::default();
            ops::batch_statistics(backend, &op, &x, &mut running, &mut statistics)
                .expect("legal statistics");
            let mut known = unwritten::<B, f32>(backend, (2, columns));
            ops::running_statistics(backend, &op, &running, &mut known).expect("legal statistics");
            let [weight, bias] =
                [(); 2].map(|()| matrix(backend, (1, columns), &operands.mild::<f32>(columns)));
            let op = Normalization {
                statistics: &statistics,
                weight: &weight,
                bias: &bias,
                relu,
            };
            let mut y = unwritten::<B, E>(backend, SHAPE);
            ops::normalize(backend, &op, &x, &mut y).expect("a legal normalisation");
            let mut d = matrix::<B, E>(backend, SHAPE, &operands.striped::<E>(rows, columns));
            let [mut of_weight, mut of_bias] =
                [(); 2].map(|()| unwritten::<B, f32>(backend, (1, columns)));
            let gradients = NormalizationGradients {
                weight: &mut of_weight,
                bias: &mut of_bias,
                scale: 1.0,
                row_scale: None,
            };
            ops::normalize_backward(backend, &op, &x, &mut d, gradients).expect("a legal gradient");
            // Each column of what is one number a column.
            [&statistics, &running, &known, &of_weight, &of_bias]
                .into_iter()
                .map(|values| Results::rows(&read(backend, values), 1))
                .fold(Results::rows(&read(backend, &y), columns), Results::and)
                .and(Results::rows(&read(backend, &d), columns))
        }));
    }
    let name = format!("combine and dot {precision}");
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let epsilon = matrix(backend, (1, 1), &operands.uniform::<f32>(1));
        let op = Combine {
            x_factor: 0.7,
            epsilon: Some(&epsilon),
            x_scale: None,
            y_factor: -1.3,
        };
        let x = matrix::<B, E>(backend, SHAPE, &operands.mild::<E>(rows * columns));
        let mut y = matrix::<B, E>(backend, SHAPE, &operands.mixed::<E>(rows * columns));
        ops::combine(backend, &op, &x, &mut y).expect("a legal sum");
        let z = matrix::<B, E>(backend, SHAPE, &operands.mild::<E>(rows * columns));
        let mut product = unwritten::<B, f32>(backend, (1, 1));
        ops::dot(backend, 1.0, &x, &z, &mut product).expect("a legal product");
        let sums = Results::rows(&read(backend, &y), columns);
        sums.and(Results::rows(&read(backend, &product), 1))
    }));
}
