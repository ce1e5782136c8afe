//! Matrices of 8-bit codes: how they are made, by `==` with the contract's own rounding, and sums over neighbours, by `==` with the
//! SpMM of the same numbers in 16 bits, which hold every number of a code exactly.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use crate::reference::{Allowed, SpmmReference, assert_close, roundoff, subnormal_error};
use crate::spmm::{BY_VERTEX, IN_FLOAT, IN_HALF};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, Addend, Aggregation, AttentionPair, CodeFormat, EdgeAttention, EdgeWeights,
    QuantizedMatrix, RandomState, Rounding, SoftmaxGradient, Spmm, SpmmEpilogue, SpmmPolicy,
    Unrepresented,
};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::spmm::packed_lanes;
use halfgnn_contract::{attention, rng};

const FORMATS: [CodeFormat; 2] = [CodeFormat::Int8, CodeFormat::E4m3];

fn zeros<B: Backend>(backend: &B, shape: (usize, usize), format: CodeFormat) -> QuantizedMatrix<B> {
    QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room for codes")
}

/// Numbers of which each is that of a code.
fn numbers(format: CodeFormat, len: usize, random: u32) -> Vec<f32> {
    let number = |at| {
        let code = Random(random).bits(at) >> 9;
        match format {
            CodeFormat::Int8 => format.decode((code % 255 + 1) as u8),
            CodeFormat::E4m3 => format.decode(((code & 0x80) | (code % 0x7f)) as u8),
        }
    };
    (0..len).map(number).collect()
}

/// Elements of every size to codes: both roundings, scales of their own, with factors of rows and without.
pub fn codes_follow_the_contract<B: Backend>(backend: &B, scale: Scale) {
    const SEED: u64 = 11;
    const STREAM: u32 = 3;
    fn check<B: Backend, E: Element>(backend: &B, shape: (usize, usize), format: CodeFormat) {
        let (rows, columns) = shape;
        let mut values = Random(80).uniform::<E>(rows * columns);
        let corners = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 4.0];
        for (at, &corner) in corners.iter().cycle().take(values.len() / 7).enumerate() {
            values[7 * at] = corner;
        }
        let x = matrix::<B, E>(backend, shape, &values);
        let mut factors: Vec<f32> = Random(81).uniform::<f32>(rows);
        // Which makes of a zero no number, but of padding.
        if let Some(factor) = factors.get_mut(2) {
            *factor = f32::NAN;
        }
        let row_scale = elements::<B, f32>(backend, &factors);
        let scales: Vec<f32> = (0..columns)
            .map(|column| (1.0 + column as f32 / 50.0) / format.limit())
            .collect();
        for step in [None, Some(5)] {
            let random = RandomState::new(backend, SEED, step.unwrap_or(0)).expect("room");
            let rounding = match step {
                None => Rounding::Nearest,
                Some(_) => Rounding::Stochastic {
                    stream: STREAM,
                    random: &random,
                    numbers: None,
                },
            };
            for scaled in [None, Some(&row_scale)] {
                let what = format!("{shape:?} {} {format:?} at {step:?}", E::PRECISION);
                let mut y = zeros(backend, shape, format);
                y.scales_mut().write(backend, &scales).expect("positive");
                ops::quantize(backend, &x, scaled, rounding, &mut y).expect("legal");
                let mut largest = vec![0.0f32; columns];
                let mut counted = Unrepresented::default();
                let mut expected = Vec::new();
                for (at, &value) in values.iter().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let value = scaled.map_or(value, |_| value * factors[row]);
                    counted.not_finite += u32::from(!value.is_finite());
                    let magnitude = match value.is_finite() {
                        true => value.abs(),
                        false => f32::INFINITY,
                    };
                    largest[column] = largest[column].max(magnitude);
                    let number = value * (1.0 / scales[column]);
                    counted.saturated += u32::from(number.abs() > format.saturation());
                    let noise = step.map(|step| {
                        let (block, place) = ((column / 8) as u32, (column % 8) as u32);
                        let key = rng::key(SEED, STREAM);
                        rng::rounding_noise(rng::rounding_bits(key, step, row as u64, block), place)
                    });
                    expected.push(format.encode(number, noise) as u8);
                }
                assert!(
                    y.to_codes(backend).expect("no failure") == expected,
                    "{what}"
                );
                assert_eq!(
                    y.scales().largest(backend).expect("no failure"),
                    largest,
                    "{what}"
                );
                let found = y.scales().unrepresented(backend).expect("no failure");
                assert_eq!(found, counted, "{what}");
            }
        }
    }
    for format in FORMATS {
        for columns in [1, 7, 8, 9, 16, 17, 64, 100, 300] {
            check::<B, f16>(backend, (67, columns), format);
        }
        check::<B, bf16>(backend, (5, 40), format);
        check::<B, f32>(backend, (130, 33), format);
        check::<B, f16>(backend, (scale.pick(1_000, 200_000), 24), format);
    }
    check::<B, f16>(backend, (0, 8), CodeFormat::Int8);
}

/// Rows that are a part of a matrix are rounded as they are in the whole, by their numbers; copies that come behind are coded and not
/// counted; and rows of codes are taken as rows of a matrix are.
pub fn rows_are_rounded_by_their_numbers<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        (rows, columns): (usize, usize),
        format: CodeFormat,
    ) {
        let values = Random(83).uniform::<E>(rows * columns);
        let whole = matrix::<B, E>(backend, (rows, columns), &values);
        let order: Vec<u32> = (0..rows as u32).rev().filter(|row| row % 3 != 1).collect();
        let order = elements_of(backend, &order);
        let shape = (order.len(), columns);
        let mut part = Matrix::<B, E>::zeros(backend, shape.0, shape.1, KIND).expect("room");
        ops::take_rows(backend, &whole, &order, &mut part).expect("legal");
        let random = RandomState::new(backend, 12, 7).expect("room");
        let code = |x: &Matrix<B, E>, numbers, counted: Option<usize>| {
            let mut codes = zeros(backend, x.shape(), format);
            // Some are too large.
            let scales = vec![0.7 / format.limit(); columns];
            codes
                .scales_mut()
                .write(backend, &scales)
                .expect("positive");
            if let Some(rows) = counted {
                codes.count_first(rows);
            }
            let rounding = Rounding::Stochastic {
                stream: 2,
                random: &random,
                numbers,
            };
            ops::quantize(backend, x, None, rounding, &mut codes).expect("legal");
            codes
        };
        let (all, some) = (code(&whole, None, None), code(&part, Some(&order), None));
        let words = QuantizedMatrix::<B>::words(shape.0, columns).expect("few");
        let mut taken = elements_of::<B>(backend, &vec![7; words]);
        ops::take_codes(backend, &all, &order, &mut taken).expect("legal");
        let mut expected = zeros(backend, shape, format);
        expected
            .replace_codes(taken, shape.0)
            .expect("as many words");
        let codes = |of: &QuantizedMatrix<B>| of.to_codes(backend).expect("no failure");
        let what = format!("{rows} x {columns} {} {format:?}", E::PRECISION);
        assert!(codes(&some) == codes(&expected), "{what}");
        let count = |of: &QuantizedMatrix<B>| {
            of.scales()
                .unrepresented(backend)
                .expect("no failure")
                .saturated
        };
        for counted in [0, shape.0 / 2, shape.0] {
            let first = code(&part, Some(&order), Some(counted));
            assert!(codes(&first) == codes(&some), "{what}");
            let numbers = part.to_f32(backend).expect("no failure");
            let numbers = numbers[..counted * columns].iter();
            let reciprocal = 1.0 / (0.7 / format.limit());
            let larger = numbers.filter(|it| (*it * reciprocal).abs() > format.saturation());
            assert_eq!(count(&first), larger.count() as u32, "{what}, {counted}");
        }
        assert!(rows < 9 || count(&some) > 0, "{what}");
        assert!(
            rows < 9 || codes(&code(&part, None, None)) != codes(&some),
            "{what}"
        );
        let mut wrong = zeros(backend, (rows, columns), format);
        let rounding = Rounding::Stochastic {
            stream: 2,
            random: &random,
            numbers: Some(&order),
        };
        let refused = ops::quantize(backend, &whole, None, rounding, &mut wrong);
        assert!(rows == order.len() || refused.is_err(), "{what}");
        let mut short = elements_of::<B>(backend, &vec![0; words + 1]);
        assert!(
            ops::take_codes(backend, &all, &order, &mut short).is_err(),
            "{what}"
        );
        assert!(wrong.set_rows(rows + 1).is_err(), "{what}");
    }
    fn elements_of<B: Backend>(backend: &B, words: &[u32]) -> Array<B, u32> {
        Array::from_slice(backend, words, KIND).expect("room")
    }
    for format in FORMATS {
        for columns in scale.pick(&[1, 9, 41][..], &[1, 7, 16, 17, 41, 300]) {
            for rows in [0, 1, scale.pick(37, 901)] {
                check::<B, f16>(backend, (rows, *columns), format);
                check::<B, bf16>(backend, (rows, *columns), format);
                check::<B, f32>(backend, (rows, *columns), format);
            }
        }
    }
}

/// The scales of a step are the largest magnitudes of the one before, times a margin; zeros change none, and infinities neither.
pub fn scales_follow_the_largest<B: Backend>(backend: &B, _: Scale) {
    for format in FORMATS {
        let mut y = zeros(backend, (2, 3), format);
        assert_eq!(y.scales().to_vec(backend).expect("no failure"), [1.0; 3]);
        let steps: [[f32; 6]; 3] = [
            [1.0, 0.0, -2.0, 0.5, 0.0, 1.0],
            [0.25, 3.0, f32::INFINITY, -0.125, 1.0, 0.75],
            [0.0; 6],
        ];
        let mut scales = [1.0f32; 3];
        for values in steps {
            let x = matrix::<B, f16>(backend, (2, 3), &values);
            ops::quantize(backend, &x, None, Rounding::Nearest, &mut y).expect("legal");
            ops::update_scales(backend, 1.5, y.scales_mut()).expect("legal");
            for (column, scale) in scales.iter_mut().enumerate() {
                let of_column = values.iter().skip(column).step_by(3);
                let largest = of_column.fold(0.0f32, |largest, value| largest.max(value.abs()));
                if largest > 0.0 && largest.is_finite() {
                    *scale = largest * 1.5 / format.limit();
                }
            }
            assert_eq!(y.scales().to_vec(backend).expect("no failure"), scales);
            assert_eq!(y.scales().largest(backend).expect("no failure"), [0.0; 3]);
        }
        // The infinity is the only one that no code stood for.
        let counts = y.scales().unrepresented(backend).expect("no failure");
        assert_eq!((counts.saturated, counts.not_finite), (1, 1));
    }
}

/// An SpMM of codes, with scales of 1, beside that of the same numbers as elements: the same bits.
pub(crate) fn check<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    features: usize,
    op: &Spmm<'_, B, E>,
    what: &str,
) {
    let (_, columns) = graph.shape();
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    for format in FORMATS {
        let values = numbers(format, columns * features, 82);
        check_of::<B, E>(backend, graph, &a, op, (features, format, &values), what);
    }
}

/// [`check`] of these numbers.
fn check_of<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    a: &Adjacency<B>,
    op: &Spmm<'_, B, E>,
    (features, format, values): (usize, CodeFormat, &[f32]),
    what: &str,
) {
    let (rows, columns) = graph.shape();
    let x = matrix::<B, E>(backend, (columns, features), values);
    assert_eq!(read(backend, &x), values, "elements hold the numbers");
    let mut codes = zeros(backend, (columns, features), format);
    ops::quantize(backend, &x, None, Rounding::Nearest, &mut codes).expect("legal");
    assert_eq!(codes.to_f32(backend).expect("no failure"), values);
    let mut expected = unwritten::<B, E>(backend, (rows, features));
    ops::spmm(backend, a, op, &x, &mut expected).expect("legal");
    let mut y = unwritten::<B, E>(backend, (rows, features));
    ops::quantized_spmm(backend, a, op, &codes, &mut y).expect("legal");
    // A zero of either sign is the same number: codes have none.
    assert!(
        read(backend, &y) == read(backend, &expected),
        "{what}, F = {features}, {format:?}, {}, {:?}",
        E::PRECISION,
        op.policy
    );
}

/// A share of a warp that does not depend on the operands.
const fn by_128(policy: SpmmPolicy) -> SpmmPolicy {
    SpmmPolicy {
        edges_per_warp: Some(128),
        ..policy
    }
}

/// The same of so many columns of 16 bits: of so few edges that elements, as codes, have no packed lanes.
fn by_shares(policy: SpmmPolicy, features: usize) -> SpmmPolicy {
    let edges = match packed_lanes((features as u32).div_ceil(8)) {
        Some(_) => 32,
        None => 128,
    };
    SpmmPolicy {
        edges_per_warp: Some(edges),
        ..policy
    }
}

/// Means over graphs of every kind, in both schedules.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    fn means<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, what: &str) {
        let factors: Vec<f32> = (graph.row_degrees().into_iter())
            .map(|degree| 0.01 / degree.max(1) as f32)
            .collect();
        let row_scale = elements::<B, f32>(backend, &factors);
        for policy in [by_shares(IN_FLOAT, features), BY_VERTEX] {
            let op = Spmm {
                row_scale: Some(&row_scale),
                scale: -0.5,
                policy,
                ..Spmm::default()
            };
            check::<B, E>(backend, graph, features, &op, what);
        }
    }
    for (name, graph) in odd(scale).into_iter().chain(rectangular(scale)) {
        means::<B, f16>(backend, &graph, 19, name);
        means::<B, bf16>(backend, &graph, 64, name);
    }
    for (name, graph) in boundaries(scale) {
        means::<B, f16>(backend, &graph, 3, &name);
    }
    means::<B, f16>(backend, &hub(scale.pick(5_000, 300_000)), 40, "a hub");
}

/// Feature lengths around every width of a load.
pub fn every_feature_length<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(700, 5_000), Random(83));
    for features in [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 128, 256, 602] {
        for policy in [by_shares(IN_FLOAT, features), BY_VERTEX] {
            let op = Spmm {
                policy,
                scale: 0.01,
                ..Spmm::default()
            };
            check::<B, f16>(backend, &graph, features, &op, "power law");
            let op = Spmm {
                policy,
                scale: 0.01,
                ..Spmm::default()
            };
            check::<B, bf16>(backend, &graph, features, &op, "power law");
        }
    }
}

/// Edge weights, planes of them, and attention.
pub fn every_weight<B: Backend>(backend: &B, scale: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let policy = by_128(IN_FLOAT);
        let (rows, columns) = graph.shape();
        let features = elements::<B, E>(backend, &Random(84).uniform::<E>(graph.edges()));
        for (length, scale) in [(1, 0.3), (64, 1.0), (100, 1.0)] {
            let op = Spmm {
                weights: EdgeWeights::Features(&features),
                scale,
                policy,
                ..Spmm::default()
            };
            check::<B, E>(backend, graph, length, &op, "edge weights");
        }
        for (heads, width) in [(2, 8), (3, 24), (2, 264)] {
            let plane = ops::edge_plane(graph.edges());
            let values = elements::<B, E>(backend, &Random(85).uniform::<E>(heads * plane));
            let op = Spmm {
                weights: EdgeWeights::Planes {
                    values: &values,
                    heads,
                },
                policy,
                ..Spmm::default()
            };
            check::<B, E>(backend, graph, heads * width, &op, "planes");
            let destination = elements(backend, &Random(86).uniform::<f32>(heads * rows));
            let source = elements(backend, &Random(87).uniform::<f32>(heads * columns));
            let of_row = |at| [1.5, 0.05 + (at % 7) as f32 / 20.0];
            let statistics: Vec<[f32; 2]> = (0..heads * rows).map(of_row).collect();
            let statistics: Array<B, [f32; 2]> =
                Array::from_slice(backend, &statistics, KIND).expect("room");
            let attention = EdgeAttention {
                biases: None,
                sums: None,
                heads,
                destination: &destination,
                source: &source,
                statistics: &statistics,
                slope: 0.2,
                dropout: None,
                transposed: false,
            };
            let op = Spmm {
                weights: EdgeWeights::Attention(&attention),
                policy,
                ..Spmm::default()
            };
            check::<B, E>(backend, graph, heads * width, &op, "attention");
        }
    }
    let graph = power_law(70, scale.pick(900, 30_000), Random(88));
    of_element::<B, f16>(backend, &graph);
    of_element::<B, bf16>(backend, &graph);
}

/// The two sums of attention and the sum of a softmax's gradient, along the edges and against them, with biases of edges and without:
/// those of the same numbers as elements, and with scales of their own so many times as large.
pub fn pairs_of_sums<B: Backend>(backend: &B, scale: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr, heads: usize, width: usize) {
        let (vertices, features) = (graph.vertices(), heads * width);
        let a = Adjacency::new(backend, graph).expect("room for a graph");
        let floats = |seed, len| Random(seed).uniform::<f32>(len);
        let scores = [95, 96].map(|seed| floats(seed, heads * vertices));
        let plane = ops::edge_plane(graph.edges());
        let of_edges = floats(98, heads * plane);
        let of_row = |at| [1.5, 0.05 + (at % 7) as f32 / 20.0];
        let of_rows: Vec<[f32; 2]> = (0..heads * vertices).map(of_row).collect();
        // The weights, as the contract has them.
        let weight = |head: usize, edge: usize, row: usize, transposed: bool, biased: bool| {
            let column = graph.cols()[edge] as usize;
            let (to, from) = if transposed {
                (column, row)
            } else {
                (row, column)
            };
            let at = head * vertices;
            let sum = scores[0][at + to] + scores[1][at + from];
            let bias = if biased {
                of_edges[head * plane + edge]
            } else {
                0.0
            };
            f64::from(attention::weight(sum + bias, 0.2, of_rows[at + to]))
        };
        let [destination, source] = [0, 1].map(|at| elements::<B, f32>(backend, &scores[at]));
        let values = elements::<B, f32>(backend, &floats(97, heads * vertices));
        let biases = elements::<B, f32>(backend, &of_edges);
        let ends = || graph.rows().iter().zip(graph.cols());
        let of_heads = (0..heads).flat_map(|head| {
            let sums = ends().map(move |(&row, &column)| {
                let at = |vertex: u32| head * vertices + vertex as usize;
                [at(row), at(column)]
            });
            let sums = sums.map(|[to, from]| scores[0][to] + scores[1][from]);
            sums.chain(std::iter::repeat(f32::NAN)).take(plane)
        });
        let stored = elements::<B, f32>(backend, &of_heads.collect::<Vec<f32>>());
        let statistics: Array<B, [f32; 2]> =
            Array::from_slice(backend, &of_rows, KIND).expect("room");
        for format in FORMATS {
            let numbers = numbers(format, vertices * features, 99);
            let x = matrix::<B, E>(backend, (vertices, features), &numbers);
            let mut codes = zeros(backend, (vertices, features), format);
            ops::quantize(backend, &x, None, Rounding::Nearest, &mut codes).expect("legal");
            for (transposed, biases, stored) in [
                (false, None, None),
                (false, None, Some(&stored)),
                (true, None, None),
                (false, Some(&biases), None),
                (true, Some(&biases), None),
            ] {
                let weights = EdgeAttention {
                    heads,
                    destination: &destination,
                    source: &source,
                    statistics: &statistics,
                    slope: 0.2,
                    transposed,
                    dropout: None,
                    biases,
                    sums: stored,
                };
                let sums = |codes: Option<&QuantizedMatrix<B>>| {
                    let [mut all, mut positive] =
                        [(); 2].map(|()| unwritten::<B, E>(backend, (vertices, features)));
                    let mut terms = elements::<B, f32>(backend, &vec![0.0; heads * vertices]);
                    let pair = AttentionPair {
                        weights: &weights,
                        policy: by_128(IN_FLOAT),
                        all: &mut all,
                        positive: &mut positive,
                        softmax_gradient: transposed.then_some(SoftmaxGradient {
                            values: &values,
                            sums: &mut terms,
                        }),
                    };
                    match codes {
                        Some(codes) => ops::quantized_attention_pair(backend, &a, pair, codes),
                        None => ops::attention_pair(backend, &a, pair, &x),
                    }
                    .expect("legal");
                    let terms = terms.to_vec(backend).expect("no failure");
                    (read(backend, &all), read(backend, &positive), terms)
                };
                let what = format!(
                    "{heads} heads of {width}, {format:?}, {}, transposed {transposed}, biases {}",
                    E::PRECISION,
                    biases.is_some()
                );
                let (expected, found) = (sums(None), sums(Some(&codes)));
                if format == CodeFormat::E4m3 {
                    assert!(found == expected, "{what}");
                } else {
                    // A weight may be off by half of what the largest one is over 65,535.
                    let mut largest = 0.0_f64;
                    for (head, row) in
                        (0..heads).flat_map(|h| (0..vertices).map(move |row| (h, row)))
                    {
                        for edge in graph.row_range(row) {
                            let weight = weight(head, edge, row, transposed, biases.is_some());
                            largest = largest.max(weight);
                        }
                    }
                    let whole = |sums: &[f32], expected: &[f32]| {
                        for (at, (&sum, &expected)) in sums.iter().zip(expected).enumerate() {
                            let degree = graph.row_range(at / features).len() as f64;
                            let of_weights = degree * largest / 131_070.0 * 127.0;
                            let (sum, expected) = (f64::from(sum), f64::from(expected));
                            let bound = of_weights * 1.001
                                + 3.0 * roundoff::<E>() * expected.abs()
                                + subnormal_error::<E>();
                            assert!(
                                (sum - expected).abs() <= bound,
                                "{what}: at {at}, {sum} for {expected}, where {bound:.3e} is allowed"
                            );
                        }
                    };
                    whole(&found.0, &expected.0);
                    whole(&found.1, &expected.1);
                    assert!(found.2 == expected.2, "{what}: terms");
                }
                assert!(found.0 != found.1, "{what}: some scores are negative");
                // A power of two, so that nothing is rounded otherwise; what half cannot hold is left out.
                codes
                    .scales_mut()
                    .write(backend, &vec![0.5; features])
                    .expect("legal");
                let halved = sums(Some(&codes));
                codes
                    .scales_mut()
                    .write(backend, &vec![1.0; features])
                    .expect("legal");
                for (halved, whole) in [(&halved.0, &found.0), (&halved.1, &found.1)] {
                    let same = |(&halved, &whole): (&f32, &f32)| {
                        whole.abs() < 0.01 || halved == 0.5 * whole
                    };
                    assert!(halved.iter().zip(whole).all(same), "{what}: scales");
                }
                assert_eq!(halved.2, found.2, "{what}: terms have no scale");
            }
        }
    }
    let graph = power_law(70, scale.pick(900, 30_000), Random(100));
    for (heads, width) in [(1, 8), (1, 64), (3, 24)] {
        of_element::<B, f16>(backend, &graph, heads, width);
    }
    of_element::<B, bf16>(backend, &graph, 2, 16);
    // The last edges are four, three, two and one.
    for edges in 61..65 {
        of_element::<B, f16>(backend, &power_law(20, edges, Random(101)), 1, 16);
    }
    // A row that crosses CTAs.
    of_element::<B, f16>(backend, &hub(3_000), 1, 40);
}

/// An addend, a bias and a ReLU: on rows that are written in every way there is.
pub fn epilogues<B: Backend>(backend: &B, scale: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, what: &str) {
        let rows = graph.vertices();
        let addend = matrix::<B, E>(
            backend,
            (rows, features),
            &Random(89).uniform::<E>(rows * features),
        );
        let factors = elements::<B, f32>(backend, &Random(90).uniform::<f32>(rows));
        let bias = Random(91).uniform::<f32>(features);
        let bias = matrix::<B, f32>(backend, (1, features), &bias);
        for policy in [by_shares(IN_FLOAT, features), BY_VERTEX] {
            let op = Spmm {
                scale: 0.01,
                policy,
                epilogue: SpmmEpilogue {
                    addend: Some(Addend {
                        matrix: &addend,
                        factor: 1.25,
                        row_scale: Some(&factors),
                        epsilon: None,
                    }),
                    bias: Some(&bias),
                    relu: true,
                    ..SpmmEpilogue::default()
                },
                ..Spmm::default()
            };
            check::<B, E>(backend, graph, features, &op, what);
        }
    }
    for (name, graph) in odd(scale) {
        of_element::<B, f16>(backend, &graph, 20, name);
        of_element::<B, bf16>(backend, &graph, 64, name);
    }
    of_element::<B, f16>(backend, &hub(3_000), 33, "a hub");
    // Shares of more than one word of starts.
    let uneven = power_law(60, scale.pick(700, 5_000), Random(83));
    of_element::<B, f16>(backend, &uneven, 256, "power law");
}

/// The largest codes and the smallest, as many as a batch can have: sums of 16 bits hold them.
pub fn largest_batches<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[1_100, 3, 0, 257, 900, 256], Random(89));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    for features in [256, 300] {
        for (number, relu) in [(127.0, false), (-127.0, false), (127.0, true)] {
            let op = Spmm {
                scale: 0.01,
                policy: SpmmPolicy {
                    edges_per_warp: Some(256),
                    ..IN_FLOAT
                },
                epilogue: SpmmEpilogue {
                    relu,
                    ..SpmmEpilogue::default()
                },
                ..Spmm::default()
            };
            let values = vec![number; graph.shape().1 * features];
            let of = (features, CodeFormat::Int8, &values[..]);
            check_of::<B, f16>(backend, &graph, &a, &op, of, "largest codes");
        }
    }
}

/// Numbers of any size with scales of their own, against float64.
pub fn scales_are_multiplied<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(80, scale.pick(1_500, 40_000), Random(92));
    let (rows, columns) = graph.shape();
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    for (format, features) in FORMATS.into_iter().flat_map(|f| [(f, 30), (f, 64)]) {
        let values = Random(93).uniform::<f16>(columns * features);
        let x = matrix::<B, f16>(backend, (columns, features), &values);
        let mut codes = zeros(backend, (columns, features), format);
        // Once for the scales, and once with them.
        ops::quantize(backend, &x, None, Rounding::Nearest, &mut codes).expect("legal");
        ops::update_scales(backend, 1.0, codes.scales_mut()).expect("legal");
        ops::quantize(backend, &x, None, Rounding::Nearest, &mut codes).expect("legal");
        let numbers = codes.to_f32(backend).expect("no failure");
        let largest_error = (values.iter().zip(&numbers))
            .map(|(value, number)| (value - number).abs())
            .fold(0.0, f32::max);
        let most = match format {
            CodeFormat::Int8 => 0.5 / 127.0,
            CodeFormat::E4m3 => 1.0 / 16.0,
        };
        assert!(largest_error <= most * 1.001, "{format:?}: {largest_error}");
        let mut y = unwritten::<B, f16>(backend, (rows, features));
        ops::quantized_spmm(backend, &a, &Spmm::default(), &codes, &mut y).expect("legal");
        let reference = SpmmReference {
            graph: &graph,
            weight: &|_| 1.0,
            row_scale: None,
            scale: 1.0,
            features,
        };
        let what = format!("{format:?}, F = {features}");
        let expected = reference.of(&numbers);
        assert_close::<f16>(&what, &read(backend, &y), &expected, features, |row| {
            Allowed::float(graph.row_range(row).len() + 2)
        });
    }
}

/// What does not fit, and what there is not, is refused with the way out.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = power_law(10, 40, Random(94));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let x = zeros(backend, (10, 16), CodeFormat::Int8);
    let mut y = unwritten::<B, f16>(backend, (10, 16));
    let mut refused = |op: &Spmm<'_, B, f16>, x: &QuantizedMatrix<B>, what: &str| {
        let error = ops::quantized_spmm(backend, &a, op, x, &mut y).expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
    };
    let scales = elements::<B, f32>(backend, &[1.0; 10]);
    let columns = Spmm {
        weights: EdgeWeights::Columns(&scales),
        ..Spmm::default()
    };
    refused(&columns, &x, "give them to `quantize`");
    let maxima = Spmm {
        aggregation: Aggregation::Max,
        ..Spmm::default()
    };
    refused(&maxima, &x, "maxima");
    let in_half = Spmm {
        policy: IN_HALF,
        ..Spmm::default()
    };
    refused(&in_half, &x, "float sums");
    let fewer = zeros(backend, (9, 16), CodeFormat::Int8);
    refused(&Spmm::default(), &fewer, "rows of x");
    let narrower = zeros(backend, (10, 15), CodeFormat::Int8);
    refused(&Spmm::default(), &narrower, "columns of y");
    let mut float = unwritten::<B, f32>(backend, (10, 16));
    let error = ops::quantized_spmm(backend, &a, &Spmm::default(), &x, &mut float);
    let error = error.expect_err("float").to_string();
    assert!(error.contains("take half or bfloat16"), "{error}");

    let mut x = x;
    for margin in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(ops::update_scales(backend, margin, x.scales_mut()).is_err());
    }
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45] {
        let mut scales = [1.0; 16];
        scales[3] = scale;
        let error = x
            .scales_mut()
            .write(backend, &scales)
            .expect_err("no scale");
        assert!(error.to_string().contains("column 3"), "{error}");
    }
    assert!(x.scales_mut().write(backend, &[1.0; 15]).is_err());
    let other = unwritten::<B, f16>(backend, (10, 15));
    assert!(ops::quantize(backend, &other, None, Rounding::Nearest, &mut x).is_err());
    let too_many = (usize::MAX / 2, 64);
    assert!(QuantizedMatrix::zeros(backend, too_many, CodeFormat::E4m3, KIND).is_err());
}
