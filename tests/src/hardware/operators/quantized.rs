//! Codes of elements, their scales, and sums of codes over neighbours.

use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::input::{KIND, elements, matrix, read, unwritten};
use crate::spmm::{BY_VERTEX, IN_FLOAT};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::{
    self, CodeFormat, EdgeAttention, EdgeWeights, QuantizedMatrix, RandomState, Rounding, Spmm,
    SpmmEpilogue,
};
use halfgnn::tensor::{Array, Element};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    for format in [CodeFormat::Int8, CodeFormat::E4m3] {
        for features in [13, 64] {
            codes::<B, f16>(&mut cases, format, features);
            codes::<B, bf16>(&mut cases, format, features);
            codes::<B, f32>(&mut cases, format, features);
            sums::<B, f16>(&mut cases, format, features);
            sums::<B, bf16>(&mut cases, format, features);
        }
    }
    cases
}

/// Three steps of delayed scaling, the first with factors of rows, the last drawn.
fn codes<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    format: CodeFormat,
    features: usize,
) {
    let name = format!("quantize {} {format:?} F={features}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let shape = (90, features);
        let mut y = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
        let random = RandomState::new(backend, 3, 4).expect("room");
        let drawn = Rounding::Stochastic {
            stream: 2,
            random: &random,
        };
        let row_scale = elements(backend, &operands.mild::<f32>(shape.0));
        let steps = [
            (Some(&row_scale), Rounding::Nearest),
            (None, Rounding::Nearest),
            (None, drawn),
        ];
        let mut results = Vec::new();
        for (row_scale, rounding) in steps {
            let values = operands.striped::<E>(shape.0, features);
            let x = matrix::<B, E>(backend, shape, &values);
            ops::quantize(backend, &x, row_scale, rounding, &mut y).expect("legal");
            results.extend(y.to_f32(backend).expect("no failure"));
            results.extend(y.scales().largest(backend).expect("no failure"));
            ops::update_scales(backend, 1.5, y.scales_mut()).expect("legal");
            results.extend(y.scales().to_vec(backend).expect("no failure"));
        }
        Results::rows(&results, features)
    }));
}

/// Every weight, both schedules, and an epilogue.
fn sums<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    format: CodeFormat,
    features: usize,
) {
    let name = format!("quantized spmm {} {format:?} F={features}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let graph = graph(operands);
        let (vertices, shape) = (graph.vertices(), (graph.vertices(), features));
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let mut x = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
        let values = operands.mild::<E>(vertices * features);
        let numbers = matrix::<B, E>(backend, shape, &values);
        ops::quantize(backend, &numbers, None, Rounding::Nearest, &mut x).expect("legal");
        ops::update_scales(backend, 1.0, x.scales_mut()).expect("legal");
        ops::quantize(backend, &numbers, None, Rounding::Nearest, &mut x).expect("legal");

        let row_scale = elements(backend, &operands.mild::<f32>(vertices));
        let edges = elements::<B, E>(backend, &operands.mild::<E>(graph.edges()));
        let bias = matrix::<B, f32>(backend, (1, features), &operands.mild::<f32>(features));
        let score = elements(backend, &operands.mild::<f32>(vertices));
        let statistics = vec![[0.5, 0.125]; vertices];
        let statistics: Array<B, [f32; 2]> =
            Array::from_slice(backend, &statistics, KIND).expect("room");
        let attention = EdgeAttention {
            biases: None,
            heads: 1,
            destination: &score,
            source: &score,
            statistics: &statistics,
            slope: 0.2,
            dropout: None,
            transposed: false,
        };
        let weights = || {
            [
                EdgeWeights::Ones,
                EdgeWeights::Features(&edges),
                EdgeWeights::Attention(&attention),
            ]
        };
        let mut results = Vec::new();
        let mut run = |op: &Spmm<'_, B, E>| {
            let mut y = unwritten::<B, E>(backend, shape);
            ops::quantized_spmm(backend, &a, op, &x, &mut y).expect("legal");
            results.extend(read(backend, &y));
        };
        for weights in weights() {
            run(&Spmm {
                weights,
                row_scale: Some(&row_scale),
                policy: IN_FLOAT,
                ..Spmm::default()
            });
        }
        for policy in [IN_FLOAT, BY_VERTEX] {
            run(&Spmm {
                policy,
                epilogue: SpmmEpilogue {
                    addend: None,
                    bias: Some(&bias),
                    relu: true,
                },
                ..Spmm::default()
            });
        }
        run(&Spmm {
            scale: 0.3,
            policy: BY_VERTEX,
            ..Spmm::default()
        });
        Results::rows(&results, features)
    }));
}
