//! SpMM whose weights differ between heads: planes of edge features, and attention that is computed edge by edge.

use crate::Scale;
use crate::graphs::{hub, power_law, rectangular, transposed};
use crate::input::{KIND, Random, elements, matrix, read, rounded, unwritten};
use crate::reference::{Allowed, SpmmReference, Sum, assert_close};
use crate::segment::unwritten_numbers;
use crate::spmm::{BY_VERTEX, BY_VERTEX_IN_HALF, IN_FLOAT, IN_HALF, has_arithmetic};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, Accumulate, AttentionPair, Dropout, EdgeAttention, EdgeWeights, RandomState,
    SoftmaxGradient, Spmm, SpmmPolicy,
};
use halfgnn::tensor::{Array, Element, Precision};
use halfgnn_contract::attention::edge_plane_stride;
use halfgnn_contract::rng;

const SLOPE: f32 = 0.2;
const STEP: u32 = 7;

/// Compares each head of a product with float64. `weight` is that of a head's edge.
fn check<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    (op, heads, width): (&Spmm<'_, B, E>, usize, usize),
    weight: impl Fn(usize, usize) -> f32,
    allowed: impl Fn(usize) -> Allowed,
    what: &str,
) {
    let ((rows, columns), features) = (graph.shape(), heads * width);
    let values = Random(70).uniform::<E>(columns * features);
    let adjacency = Adjacency::new(backend, graph).expect("room for a graph");
    let x = matrix::<B, E>(backend, (columns, features), &values);
    let mut y = unwritten::<B, E>(backend, (rows, features));
    ops::spmm(backend, &adjacency, op, &x, &mut y).expect("a legal product");
    let product = Product {
        graph,
        heads,
        width,
        scale: op.scale,
        x: &values,
    };
    product.check::<E>(&read(backend, &y), weight, allowed, what);
}

/// What a product is one of.
struct Product<'a> {
    graph: &'a Csr,
    heads: usize,
    width: usize,
    scale: f32,
    x: &'a [f32],
}

impl Product<'_> {
    /// Compares each head of `y` with float64.
    fn check<E: Element>(
        &self,
        y: &[f32],
        weight: impl Fn(usize, usize) -> f32,
        allowed: impl Fn(usize) -> Allowed,
        what: &str,
    ) {
        let &Self {
            graph,
            heads,
            width,
            scale,
            x,
        } = self;
        let features = heads * width;
        for head in 0..heads {
            let part = |rows: &[f32]| -> Vec<f32> {
                let rows = rows.chunks_exact(features);
                rows.flat_map(|row| row[head * width..(head + 1) * width].to_vec())
                    .collect()
            };
            let reference = SpmmReference {
                graph,
                weight: &|edge| weight(head, edge),
                row_scale: None,
                scale,
                features: width,
            };
            assert_close::<E>(
                &format!("{what}, head {head} of {}, F = {features}", heads),
                &part(y),
                &reference.of(&part(x)),
                width,
                |row| allowed(graph.row_range(row).len()),
            );
        }
    }
}

/// Planes of edge features, a plane a head.
pub fn planes_of_edge_features<B: Backend>(backend: &B, scale: Scale) {
    fn check_element<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let plane = edge_plane_stride(graph.edges() as u64) as usize;
        for (heads, width) in [(1, 5), (2, 8), (3, 24), (4, 64), (2, 264)] {
            let weights = Random(71).uniform::<E>(heads * plane);
            let array = elements(backend, &weights);
            for policy in [IN_FLOAT, IN_HALF, BY_VERTEX, BY_VERTEX_IN_HALF]
                .into_iter()
                .filter(has_arithmetic::<E>)
            {
                let op = Spmm {
                    weights: EdgeWeights::Planes {
                        values: &array,
                        heads,
                    },
                    scale: rounded::<f32>(0.7),
                    policy,
                    ..Spmm::default()
                };
                let in_half =
                    E::PRECISION == Precision::Half && policy.accumulate == Accumulate::Half;
                check::<B, E>(
                    backend,
                    graph,
                    (&op, heads, width),
                    |head, edge| weights[head * plane + edge],
                    |degree| match in_half {
                        true => Allowed::half(degree.min(128), 1),
                        false => Allowed::float(degree),
                    },
                    "edge features",
                );
            }
        }
    }
    // No multiple of 8 edges, so that planes have room between them.
    let graph = power_law(90, scale.pick(1_101, 20_003), Random(72));
    check_element::<B, f16>(backend, &graph);
    check_element::<B, bf16>(backend, &graph);
    check_element::<B, f32>(backend, &graph);
    for (_, graph) in rectangular(scale) {
        check_element::<B, f16>(backend, &graph);
    }
}

/// Scores of the vertices, and the statistics of the rows that they make, a plane a head.
struct Scores {
    /// Destinations and sources.
    shape: (usize, usize),
    destinations: Vec<f32>,
    sources: Vec<f32>,
    statistics: Vec<[f32; 2]>,
}

impl Scores {
    fn random(graph: &Csr, heads: usize) -> Self {
        let shape @ (rows, columns) = graph.shape();
        let scores = |random, vertices| -> Vec<f32> {
            let scores = Random(random).uniform::<f32>(heads * vertices);
            scores.into_iter().map(|score| 3.0 * score).collect()
        };
        let (destinations, sources) = (scores(73, rows), scores(74, columns));
        let mut statistics = Vec::new();
        for head in 0..heads {
            for row in 0..rows {
                let score = |&column: &u32| {
                    leaky(
                        destinations[head * rows + row],
                        sources[head * columns + column as usize],
                    )
                };
                let scores: Vec<f64> = graph.row(row).iter().map(score).collect();
                let maximum = scores.iter().copied().fold(f64::MIN, f64::max);
                let z: f64 = scores.iter().map(|score| (score - maximum).exp()).sum();
                statistics.push(if scores.is_empty() {
                    [0.0; 2]
                } else {
                    [maximum as f32, (1.0 / z) as f32]
                });
            }
        }
        Self {
            shape,
            destinations,
            sources,
            statistics,
        }
    }

    /// The weight of an edge in float64, from the scores and statistics as they are in float.
    fn weight<B: Backend>(
        &self,
        of: &EdgeAttention<'_, B>,
        (destination, source): (usize, usize),
        head: usize,
    ) -> f32 {
        let kept = of.dropout.map_or(1.0, |dropout| {
            let counter =
                rng::edge_dropout_counter(STEP, head as u32, destination as u32, source as u32);
            let bits = rng::philox(rng::key(dropout.random.seed(), dropout.stream), counter)[0];
            if rng::unit_f32(bits) < dropout.probability {
                0.0
            } else {
                1.0 / (1.0 - f64::from(dropout.probability))
            }
        });
        let (alpha, _) = self.alpha((destination, source), head);
        (alpha * kept) as f32
    }

    /// The weight of an edge before dropout, and whether the sum of its scores is positive.
    fn alpha(&self, (destination, source): (usize, usize), head: usize) -> (f64, bool) {
        let destination = head * self.shape.0 + destination;
        let source = head * self.shape.1 + source;
        let (l, r) = (self.destinations[destination], self.sources[source]);
        let [maximum, inverse] = self.statistics[destination].map(f64::from);
        ((leaky(l, r) - maximum).exp() * inverse, l + r > 0.0)
    }
}

fn leaky(l: f32, r: f32) -> f64 {
    let sum = f64::from(l) + f64::from(r);
    if sum > 0.0 {
        sum
    } else {
        sum * f64::from(SLOPE)
    }
}

fn random_at<B: Backend>(backend: &B, step: u32) -> RandomState<B> {
    RandomState::new(backend, 5, step).expect("room for a word")
}

/// Attention of every kind, along the edges and against them.
pub fn attention<B: Backend>(backend: &B, scale: Scale) {
    fn check_element<B: Backend, E: Element>(backend: &B, forward: &Csr) {
        let backward = transposed(forward);
        let random = &random_at(backend, STEP);
        for (heads, width) in [(1, 7), (1, 64), (2, 32), (8, 8), (3, 264)] {
            let scores = Scores::random(forward, heads);
            let destinations = elements(backend, &scores.destinations);
            let sources = elements(backend, &scores.sources);
            let statistics: Array<B, [f32; 2]> =
                Array::from_slice(backend, &scores.statistics, KIND).expect("room");
            // A quarter is a threshold that 24 bits and 32 bits tell alike.
            let dropout = Some(Dropout {
                probability: 0.25,
                stream: 6,
                random,
            });
            for (transposed, dropout) in [
                (false, None),
                (true, None),
                (false, dropout),
                (true, dropout),
            ] {
                let of = EdgeAttention {
                    heads,
                    destination: &destinations,
                    source: &sources,
                    statistics: &statistics,
                    slope: SLOPE,
                    dropout,
                    transposed,
                    biases: None,
                    sums: None,
                };
                let op = Spmm {
                    weights: EdgeWeights::Attention(&of),
                    ..Spmm::default()
                };
                let graph = if transposed { &backward } else { forward };
                let weight = |head, edge| {
                    let row = graph.rows()[edge] as usize;
                    let column = graph.cols()[edge] as usize;
                    let ends = if transposed {
                        (column, row)
                    } else {
                        (row, column)
                    };
                    scores.weight(&of, ends, head)
                };
                check::<B, E>(
                    backend,
                    graph,
                    (&op, heads, width),
                    weight,
                    // The argument of the exponential is at most 12 and rounded three times, the exponential twice.
                    |degree| Allowed::float(degree + 48),
                    &format!(
                        "attention, transposed {transposed}, dropout {}",
                        dropout.is_some()
                    ),
                );
            }
        }
    }
    let graph = power_law(70, scale.pick(900, 9_000), Random(75));
    check_element::<B, f16>(backend, &graph);
    check_element::<B, bf16>(backend, &graph);
    check_element::<B, f32>(backend, &graph);
    for (_, graph) in rectangular(Scale::Small) {
        check_element::<B, f16>(backend, &graph);
    }
}

/// Both sums of attention, along the edges and against them, and with them the sums of a softmax's gradient.
pub fn attention_pairs<B: Backend>(backend: &B, scale: Scale) {
    fn check_element<B: Backend, E: Element>(backend: &B, forward: &Csr) {
        let shapes = [(1, 7), (1, 64), (2, 32), (8, 8), (3, 264)];
        check_shapes::<B, E>(backend, forward, &shapes, SpmmPolicy::default());
    }
    fn check_shapes<B: Backend, E: Element>(
        backend: &B,
        forward: &Csr,
        shapes: &[(usize, usize)],
        policy: SpmmPolicy,
    ) {
        let backward = transposed(forward);
        let destinations = forward.vertices();
        let random = &random_at(backend, STEP);
        for &(heads, width) in shapes {
            let scores = Scores::random(forward, heads);
            let destination = &elements(backend, &scores.destinations);
            let source = &elements(backend, &scores.sources);
            let statistics = &Array::from_slice(backend, &scores.statistics, KIND).expect("room");
            let numbers = Random(77).uniform::<f32>(heads * destinations);
            let values = elements::<B, f32>(backend, &numbers);
            let dropout = Some(Dropout {
                probability: 0.25,
                stream: 6,
                random,
            });
            for (is_transposed, dropout, wants_gradient) in [
                (false, None, false),
                (true, None, true),
                (false, dropout, false),
                (true, dropout, true),
                (false, dropout, true),
                (true, dropout, false),
            ] {
                let graph = if is_transposed { &backward } else { forward };
                let features = heads * width;
                let (height, columns) = graph.shape();
                let rows = Random(70).uniform::<E>(columns * features);
                let adjacency = Adjacency::new(backend, graph).expect("room for a graph");
                let x = matrix::<B, E>(backend, (columns, features), &rows);
                let [mut all, mut positive] =
                    [(); 2].map(|()| unwritten::<B, E>(backend, (height, features)));
                let mut sums = unwritten_numbers(backend, heads * height);
                let weights = EdgeAttention {
                    heads,
                    destination,
                    source,
                    statistics,
                    slope: SLOPE,
                    dropout,
                    transposed: is_transposed,
                    biases: None,
                    sums: None,
                };
                let pair = AttentionPair {
                    weights: &weights,
                    policy,
                    all: &mut all,
                    positive: &mut positive,
                    softmax_gradient: wants_gradient.then_some(SoftmaxGradient {
                        values: &values,
                        sums: &mut sums,
                    }),
                };
                ops::attention_pair(backend, &adjacency, pair, &x).expect("a legal pair");

                let what = format!("transposed {is_transposed}, dropout {}", dropout.is_some());
                let ends = |edge: usize| {
                    let (row, column) = (graph.rows()[edge] as usize, graph.cols()[edge] as usize);
                    if is_transposed {
                        (column, row)
                    } else {
                        (row, column)
                    }
                };
                let weight = |head, edge| scores.weight(&weights, ends(edge), head);
                let positive_weight = |head, edge| {
                    let (_, is_positive) = scores.alpha(ends(edge), head);
                    if is_positive { weight(head, edge) } else { 0.0 }
                };
                let product = Product {
                    graph,
                    heads,
                    width,
                    scale: 1.0,
                    x: &rows,
                };
                let allowed = |degree| Allowed::float(degree + 48);
                let (all, positive) = (read(backend, &all), read(backend, &positive));
                product.check::<E>(&all, weight, allowed, &format!("all, {what}"));
                let what = format!("positive, {what}");
                product.check::<E>(&positive, positive_weight, allowed, &what);

                let sums = sums.to_vec(backend).expect("no failure before");
                if !wants_gradient {
                    assert!(sums.iter().all(|sum| sum.is_nan()), "nobody asked for sums");
                    continue;
                }
                let mut expected = vec![Sum::default(); heads * height];
                for head in 0..heads {
                    for edge in 0..graph.edges() {
                        let (alpha, is_positive) = scores.alpha(ends(edge), head);
                        let slope = if is_positive { 1.0 } else { f64::from(SLOPE) };
                        let value = numbers[head * destinations + ends(edge).0];
                        expected[head * height + graph.rows()[edge] as usize]
                            .add(slope * alpha * f64::from(value));
                    }
                }
                assert_close::<f32>(&format!("sums, {what}"), &sums, &expected, 1, |at| {
                    Allowed::float(graph.row_range(at % height).len() + 48)
                });
            }
        }
    }
    let graph = power_law(70, scale.pick(900, 9_000), Random(75));
    check_element::<B, f16>(backend, &graph);
    check_element::<B, bf16>(backend, &graph);
    check_element::<B, f32>(backend, &graph);
    for (_, graph) in rectangular(Scale::Small) {
        check_element::<B, f16>(backend, &graph);
    }
    // A row that crosses chunks of CTAs, so that its parts are added chunk by chunk, along the edges or against them.
    let policy = SpmmPolicy {
        edges_per_warp: Some(16),
        ..SpmmPolicy::default()
    };
    for graph in [hub(6_000), transposed(&hub(6_000))] {
        check_shapes::<B, f16>(backend, &graph, &[(3, 64)], policy);
    }
}

/// Heads that do not fit the columns, planes of another length, impossible dropout.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = power_law(10, 21, Random(76));
    let adjacency = Adjacency::new(backend, &graph).expect("room for a graph");
    let spmm = |op: &Spmm<'_, B, f16>, features: usize| {
        let x = matrix::<B, f16>(backend, (10, features), &vec![1.0; 10 * features]);
        let mut y = unwritten::<B, f16>(backend, (10, features));
        let refusal = ops::spmm(backend, &adjacency, op, &x, &mut y);
        refusal.expect_err("nothing that fits").to_string()
    };
    let weights = elements(backend, &[1.0; 48]);
    let planes = |heads| Spmm {
        weights: EdgeWeights::Planes {
            values: &weights,
            heads,
        },
        ..Spmm::default()
    };
    for heads in [0, 65_536] {
        let message = spmm(&planes(heads), 16);
        let expected = format!("spmm: {heads} heads; 1 to 65535 are possible");
        assert_eq!(message, expected);
    }
    for (heads, features) in [(2, 12), (2, 24), (3, 16)] {
        let message = spmm(&planes(heads), features);
        assert!(
            message.contains(&format!("into {heads} heads")),
            "{message}"
        );
    }
    let message = spmm(&planes(4), 32);
    assert!(
        message.contains("edge weights should be 96, is 48"),
        "{message}"
    );
    let scores = elements(backend, &[1.0; 20]);
    let statistics = Array::from_slice(backend, &[[0.0, 1.0]; 20], KIND).expect("room");
    let random = &random_at(backend, 0);
    let attention = |heads, probability| EdgeAttention {
        heads,
        destination: &scores,
        source: &scores,
        statistics: &statistics,
        slope: SLOPE,
        transposed: false,
        dropout: Some(Dropout {
            probability,
            stream: 0,
            random,
        }),
        biases: None,
        sums: None,
    };
    let refusal = |of: EdgeAttention<'_, B>| {
        let op = Spmm {
            weights: EdgeWeights::Attention(&of),
            ..Spmm::default()
        };
        spmm(&op, 16)
    };
    let message = refusal(attention(1, 0.5));
    assert!(
        message.contains("scores of destinations should be 10, is 20"),
        "{message}"
    );
    let message = refusal(attention(2, 1.0));
    assert!(message.contains("probability 1 is not in"), "{message}");

    let x = matrix::<B, f16>(backend, (10, 16), &[1.0; 160]);
    let pair = |policy, positive_shape, numbers: usize| {
        let of = attention(2, 0.5);
        let mut all = unwritten::<B, f16>(backend, (10, 16));
        let mut positive = unwritten::<B, f16>(backend, positive_shape);
        let values = unwritten_numbers(backend, numbers);
        let mut sums = unwritten_numbers(backend, 20);
        let pair = AttentionPair {
            weights: &of,
            policy,
            all: &mut all,
            positive: &mut positive,
            softmax_gradient: Some(SoftmaxGradient {
                values: &values,
                sums: &mut sums,
            }),
        };
        ops::attention_pair(backend, &adjacency, pair, &x).map_err(|error| error.to_string())
    };
    let policy = SpmmPolicy::default();
    pair(policy, (10, 16), 20).expect("a legal pair");
    let message = pair(policy, (10, 8), 20).expect_err("a narrow output");
    assert!(
        message.contains("columns of the positive sum should be 16, is 8"),
        "{message}"
    );
    let message = pair(policy, (10, 16), 10).expect_err("too few numbers");
    assert!(
        message.contains("numbers of destinations should be 20, is 10"),
        "{message}"
    );
}
