//! Codes of elements, their scales, and sums of codes over neighbours.

use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::input::{KIND, elements, matrix, read, unwritten};
use crate::spmm::{BY_VERTEX, IN_FLOAT};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::{
    self, AttentionPair, CodeFormat, Coding, EdgeAttention, EdgeWeights, Epilogue, Form,
    MatmulFusion, Normalization, NormalizationGradients, QuantizedMatrix, RandomState, Rounding,
    SoftmaxGradient, Spmm, SpmmEpilogue,
};
use halfgnn::tensor::{Array, Element};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    stored::<B, f16>(&mut cases);
    stored::<B, bf16>(&mut cases);
    stored::<B, f32>(&mut cases);
    products_of_codes::<B, f16>(&mut cases);
    products_of_codes::<B, bf16>(&mut cases);
    for format in [CodeFormat::Int8, CodeFormat::E4m3] {
        for features in [13, 64] {
            codes::<B, f16>(&mut cases, format, features);
            codes::<B, bf16>(&mut cases, format, features);
            codes::<B, f32>(&mut cases, format, features);
            sums::<B, f16>(&mut cases, format, features);
            sums::<B, bf16>(&mut cases, format, features);
        }
        coded_products::<B, f16>(&mut cases, format);
        coded_products::<B, bf16>(&mut cases, format);
        coded_gradients::<B, f16>(&mut cases, format);
        coded_gradients::<B, bf16>(&mut cases, format);
        coded_gradients::<B, f32>(&mut cases, format);
        pairs::<B, f16>(&mut cases, format);
        pairs::<B, bf16>(&mut cases, format);
    }
    cases
}

/// Codes that keep what is positive, and their numbers again.
fn stored<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let name = format!("stored codes {}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let mut results = Vec::new();
        for format in CodeFormat::ALL {
            let shape @ (rows, columns) = (130, 45);
            let x = matrix::<B, E>(backend, shape, &operands.mixed::<E>(rows * columns));
            let mut codes = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
            ops::quantize_positive(backend, &x, &mut codes).expect("legal");
            let mut y = unwritten::<B, E>(backend, shape);
            ops::dequantize(backend, &codes, &mut y).expect("legal");
            results.extend(codes.to_f32(backend).expect("no failure"));
            results.extend(codes.scales().largest(backend).expect("no failure"));
            results.extend(read(backend, &y));
        }
        Results::rows(&results, 45)
    }));
}

/// Products of codes, of every width of a tile, in one piece and split. Of integers, whose sums are the same on every tensor core.
fn products_of_codes<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let name = format!("products of codes {}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let mut results = Vec::new();
        for (columns, rows) in [(10, 40), (30, 900), (60, 70)] {
            let shape @ (_, features) = (rows, 41);
            let numbers = operands.integers(100, rows * features);
            let x = matrix::<B, E>(backend, shape, &numbers);
            let format = CodeFormat::Int8;
            let mut codes = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
            ops::quantize(backend, &x, None, Rounding::Nearest, &mut codes).expect("legal");
            let b = operands.integers(4, rows * columns);
            let b = matrix::<B, E>(backend, (rows, columns), &b);
            let mut c = unwritten::<B, f32>(backend, (features, columns));
            ops::quantized_matmul(backend, &codes, &b, 0.5, None, &mut c).expect("legal");
            results.extend(read(backend, &c));
        }
        Results::rows(&results, 10)
    }));
}

/// Codes that a product makes of its result, of every width of a tile and both forms. Of integers, whose sums are the same on every
/// tensor core.
fn coded_products<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    format: CodeFormat,
) {
    let name = format!("coded products {} {format:?}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        const ROWS: usize = 150;
        const DEPTH: usize = 40;
        let random = RandomState::new(backend, 5, 6).expect("room");
        let drawn = Rounding::Stochastic {
            stream: 7,
            random: &random,
            numbers: None,
        };
        let row_scale = elements(backend, &operands.mild::<f32>(ROWS));
        let mut results = Vec::new();
        for (columns, form) in [10, 30, 60]
            .into_iter()
            .flat_map(|columns| [(columns, Form::NN), (columns, Form::NT)])
        {
            let of_b = match form {
                Form::NT => (columns, DEPTH),
                _ => (DEPTH, columns),
            };
            let a = matrix::<B, E>(backend, (ROWS, DEPTH), &operands.integers(4, ROWS * DEPTH));
            let b = matrix::<B, E>(backend, of_b, &operands.integers(4, DEPTH * columns));
            for (rounding, row_scale) in [(Rounding::Nearest, None), (drawn, Some(&row_scale))] {
                let shape = (ROWS, columns);
                let mut codes = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
                let mut c = unwritten::<B, E>(backend, shape);
                let fusion = MatmulFusion {
                    coding: Some(Coding {
                        row_scale,
                        rounding,
                        codes: &mut codes,
                        alone: false,
                    }),
                    ..MatmulFusion::default()
                };
                let plain = Epilogue::default();
                ops::matmul_fused(backend, form, &a, &b, &plain, fusion, &mut c).expect("legal");
                results.extend(codes.to_f32(backend).expect("no failure"));
                results.extend(codes.scales().largest(backend).expect("no failure"));
                results.extend(read(backend, &c));
            }
        }
        Results::rows(&results, 10)
    }));
}

/// Codes that the gradient of a batch normalisation makes of itself.
fn coded_gradients<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    format: CodeFormat,
) {
    let name = format!("coded gradient of a norm {} {format:?}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let shape @ (rows, columns) = (70, 40);
        let mut row = |rows: usize| {
            let values = operands.uniform::<f32>(rows * columns);
            let values: Vec<f32> = values.iter().map(|value| 1.5 + value).collect();
            matrix::<B, f32>(backend, (rows, columns), &values)
        };
        let (statistics, weight, bias) = (row(2), row(1), row(1));
        let x = matrix::<B, E>(backend, shape, &operands.uniform::<E>(rows * columns));
        let mut d = matrix::<B, E>(backend, shape, &operands.uniform::<E>(rows * columns));
        let op = Normalization {
            statistics: &statistics,
            weight: &weight,
            bias: &bias,
            relu: true,
        };
        let random = RandomState::new(backend, 8, 9).expect("room");
        let mut codes = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
        let [mut of_weight, mut of_bias] = [(); 2].map(|()| unwritten(backend, (1, columns)));
        let gradients = NormalizationGradients {
            weight: &mut of_weight,
            bias: &mut of_bias,
            scale: 4.0,
            row_scale: None,
            coding: Some(Coding {
                row_scale: None,
                rounding: Rounding::Stochastic {
                    stream: 1,
                    random: &random,
                    numbers: None,
                },
                codes: &mut codes,
                alone: false,
            }),
        };
        ops::normalize_backward(backend, &op, &x, &mut d, gradients).expect("legal");
        let mut results = codes.to_f32(backend).expect("no failure");
        results.extend(codes.scales().largest(backend).expect("no failure"));
        results.extend(read(backend, &d));
        Results::rows(&results, columns)
    }));
}

/// Two sums of codes with the weights of attention, along the edges and against them, with biases and without.
fn pairs<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>, format: CodeFormat) {
    let name = format!("attention pair {} {format:?}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        const FEATURES: usize = 40;
        let graph = graph(operands);
        let (vertices, shape) = (graph.vertices(), (graph.vertices(), FEATURES));
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let numbers = operands.mild::<E>(vertices * FEATURES);
        let numbers = matrix::<B, E>(backend, shape, &numbers);
        let mut x = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
        ops::quantize(backend, &numbers, None, Rounding::Nearest, &mut x).expect("legal");
        ops::update_scales(backend, 1.0, x.scales_mut()).expect("legal");
        ops::quantize(backend, &numbers, None, Rounding::Nearest, &mut x).expect("legal");
        let mut floats = |len| elements(backend, &operands.uniform::<f32>(len));
        let [destination, source, values] = [(); 3].map(|()| floats(vertices));
        let biases = floats(ops::edge_plane(graph.edges()));
        let statistics = vec![[1.5, 0.125]; vertices];
        let statistics: Array<B, [f32; 2]> =
            Array::from_slice(backend, &statistics, KIND).expect("room");
        let mut results = Vec::new();
        for (transposed, biases, sums) in [
            (false, None, None),
            (false, Some(&biases), None),
            (false, None, Some(&biases)),
            (true, None, None),
            (true, Some(&biases), None),
        ] {
            let weights = EdgeAttention {
                biases,
                sums,
                heads: 1,
                destination: &destination,
                source: &source,
                statistics: &statistics,
                slope: 0.2,
                dropout: None,
                transposed,
            };
            let [mut all, mut positive] = [(); 2].map(|()| unwritten::<B, E>(backend, shape));
            let mut sums = elements(backend, &vec![0.0; vertices]);
            let pair = AttentionPair {
                weights: &weights,
                policy: IN_FLOAT,
                all: &mut all,
                positive: &mut positive,
                softmax_gradient: transposed.then_some(SoftmaxGradient {
                    values: &values,
                    sums: &mut sums,
                }),
            };
            ops::quantized_attention_pair(backend, &a, pair, &x).expect("legal");
            results.extend(read(backend, &all));
            results.extend(read(backend, &positive));
            results.extend(sums.to_vec(backend).expect("no failure"));
        }
        Results::rows(&results, FEATURES)
    }));
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
            numbers: None,
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
            sums: None,
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
                    ..SpmmEpilogue::default()
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
