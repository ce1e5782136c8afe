//! Batch normalisation, norms of rows and of groups, with their gradients; weighted sums, dot products.

use super::{OperatorCase, Results};
use crate::input::{matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Backend, Floats, MemoryKind};
use halfgnn::ops;
use halfgnn::ops::{
    AffineGradients, BatchNorm, Combine, GroupGradients, GroupNorm, GroupNormalization, LayerNorm,
    Normalization, NormalizationGradients, RowGroups, StatisticsOfParts,
};
use halfgnn::tensor::{Array, Element};

const SHAPE: (usize, usize) = (150, 37);

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    cases.push(of_parts());
    cases
}

/// What several ranks have, put together: sums, and statistics of a batch.
fn of_parts<B: Backend + 'static>() -> OperatorCase<B> {
    OperatorCase::new(
        "sums, maxima and statistics of parts",
        |backend: &B, operands| {
            let (parts, columns, stride) = (3, 41, 44);
            let array = |values: &[f32]| {
                let array = Array::from_slice(backend, values, MemoryKind::Workspace);
                array.expect("room")
            };
            let terms = array(&operands.mixed::<f32>(parts * 300));
            let mut sums = array(&vec![f32::NAN; 300]);
            let of = Floats::Array(&mut sums);
            ops::sum_parts(backend, 0.75, (&terms, parts), of).expect("legal sums");
            let magnitudes: Vec<f32> = operands.mixed::<f32>(parts * 300);
            let magnitudes = array(&magnitudes.iter().map(|it| it.abs()).collect::<Vec<_>>());
            let mut largest = array(&vec![f32::NAN; 300]);
            let of = Floats::Array(&mut largest);
            ops::largest_of_parts(backend, (&magnitudes, parts), of).expect("legal maxima");
            let counts =
                Array::from_slice(backend, &[70, 0, 33], MemoryKind::Workspace).expect("room");
            let moments = operands.mild::<f32>(2 * parts * stride);
            let moments = array(&moments.iter().map(|it| it.abs()).collect::<Vec<_>>());
            let deviations = array(&operands.mild::<f32>(2 * parts * stride));
            let of = StatisticsOfParts {
                counts: &counts,
                moments: &moments,
                deviations: &deviations,
            };
            let mut running = matrix(backend, (2, columns), &operands.mild::<f32>(2 * columns));
            let mut statistics = unwritten::<B, f32>(backend, (2, columns));
            let op = BatchNorm::default();
            ops::merge_statistics(backend, &op, of, Some(&mut running), &mut statistics)
                .expect("legal statistics");
            let floats = |of: &Array<B, f32>| {
                Results::rows(&of.to_vec(backend).expect("no failure before"), 1)
            };
            [&statistics, &running]
                .into_iter()
                .map(|values| Results::rows(&read(backend, values), 1))
                .fold(Results::and(floats(&sums), floats(&largest)), Results::and)
        },
    )
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
                coding: None,
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
    cases.push(norm_of_rows::<B, E>());
    cases.extend([false, true].map(norm_of_groups::<B, E>));
    cases.push(maximum::<B, E>());
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

fn norm_of_rows<B: Backend + 'static, E: Element>() -> OperatorCase<B> {
    let (rows, columns) = SHAPE;
    let name = format!("norm of rows {}", E::PRECISION);
    OperatorCase::new(name, move |backend: &B, operands| {
        let x = matrix::<B, E>(backend, SHAPE, &operands.striped::<E>(rows, columns));
        let [weight, bias] =
            [(); 2].map(|()| matrix(backend, (1, columns), &operands.mild::<f32>(columns)));
        let op = LayerNorm {
            weight: &weight,
            bias: &bias,
            epsilon: 1e-5,
            relu: true,
        };
        let mut statistics = unwritten::<B, f32>(backend, (rows, 2));
        let mut y = unwritten::<B, E>(backend, SHAPE);
        ops::normalize_rows(backend, &op, &x, &mut statistics, &mut y).expect("a legal norm");
        let mut d = matrix::<B, E>(backend, SHAPE, &operands.mild::<E>(rows * columns));
        let [mut of_weight, mut of_bias] =
            [(); 2].map(|()| unwritten::<B, f32>(backend, (1, columns)));
        let gradients = AffineGradients {
            weight: &mut of_weight,
            bias: &mut of_bias,
        };
        ops::normalize_rows_backward(backend, &weight, &x, &statistics, &mut d, gradients)
            .expect("a legal gradient");
        [&of_weight, &of_bias]
            .into_iter()
            .map(|values| Results::rows(&read(backend, values), 1))
            .fold(Results::rows(&read(backend, &y), columns), Results::and)
            .and(Results::rows(&read(backend, &statistics), 2))
            .and(Results::rows(&read(backend, &d), columns))
    })
}

fn maximum<B: Backend + 'static, E: Element>() -> OperatorCase<B> {
    let (rows, columns) = SHAPE;
    let name = format!("maximum {}", E::PRECISION);
    OperatorCase::new(name, move |backend: &B, operands| {
        let [x, mut largest, dy] =
            [(); 3].map(|()| matrix::<B, E>(backend, SHAPE, &operands.striped::<E>(rows, columns)));
        ops::maximum(backend, &x, &mut largest).expect("legal");
        let (mut left, mut dx) = (dy, unwritten::<B, E>(backend, SHAPE));
        ops::maximum_backward(backend, &x, &largest, &mut left, &mut dx).expect("legal");
        let groups = RowGroups::new(backend, &[0, 5, 5, 140, rows as u32]).expect("in order");
        let of_groups = (groups.groups(), columns);
        let mut y = unwritten::<B, E>(backend, of_groups);
        ops::group_maximum(backend, &groups, &x, &mut y).expect("legal");
        let d = operands.mild::<E>(groups.groups() * columns);
        let d = matrix::<B, E>(backend, of_groups, &d);
        let mut rows = unwritten::<B, E>(backend, SHAPE);
        ops::group_maximum_backward(backend, &groups, (&x, &y), &d, &mut rows).expect("legal");
        [&left, &dx, &y, &rows]
            .into_iter()
            .map(|values| Results::rows(&read(backend, values), columns))
            .fold(
                Results::rows(&read(backend, &largest), columns),
                Results::and,
            )
    })
}

fn norm_of_groups<B: Backend + 'static, E: Element>(graph: bool) -> OperatorCase<B> {
    let (rows, columns) = SHAPE;
    let kind = if graph { "graph" } else { "pair" };
    let name = format!("norm of groups {kind} {}", E::PRECISION);
    OperatorCase::new(name, move |backend: &B, operands| {
        let x = matrix::<B, E>(backend, SHAPE, &operands.striped::<E>(rows, columns));
        let [weight, bias, multiples] =
            [(); 3].map(|()| matrix(backend, (1, columns), &operands.mild::<f32>(columns)));
        let groups = RowGroups::new(backend, &[0, 5, 5, 140, rows as u32]).expect("in order");
        let norm = match graph {
            true => GroupNorm::Graph(&multiples),
            false => GroupNorm::Pair,
        };
        let mut statistics = unwritten::<B, f32>(backend, (3 * groups.groups(), columns));
        ops::group_statistics(backend, &norm, 1e-5, &groups, &x, &mut statistics)
            .expect("legal statistics");
        let op = GroupNormalization {
            groups: &groups,
            statistics: &statistics,
            weight: graph.then_some(&weight),
            bias: graph.then_some(&bias),
            relu: graph,
        };
        let mut y = unwritten::<B, E>(backend, SHAPE);
        ops::normalize_groups(backend, &op, &x, &mut y).expect("a legal norm");
        let mut d = matrix::<B, E>(backend, SHAPE, &operands.mild::<E>(rows * columns));
        let mut parts = [(); 3].map(|()| unwritten::<B, f32>(backend, (groups.groups(), columns)));
        let [of_weight, of_bias, of_multiples] = &mut parts;
        let gradients = graph.then_some(GroupGradients {
            weight: of_weight,
            bias: of_bias,
            mean_scale: of_multiples,
        });
        ops::normalize_groups_backward(backend, &norm, &op, &x, &mut d, gradients)
            .expect("a legal gradient");
        let results = Results::rows(&read(backend, &y), columns)
            .and(Results::rows(&read(backend, &statistics), columns))
            .and(Results::rows(&read(backend, &d), columns));
        match graph {
            false => results,
            true => parts
                .iter()
                .map(|part| Results::rows(&read(backend, part), columns))
                .fold(results, Results::and),
        }
    })
}
