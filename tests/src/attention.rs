//! Attention as a whole, forward and backward, against float64; the unfused operators against the fused ones.
//!
//! The reference computes the gradient edge by edge from its definition, in float64; a test of its own compares it with
//! finite differences of the forward pass.

use crate::Scale;
use crate::graphs::{from_degrees, from_edges, hub, power_law, transposed};
use crate::input::{Random, bits, elements, matrix, read, unwritten};
use crate::reference::{Allowed, FLOAT, HALF, Sum, assert_close, roundoff};
use crate::segment::{SLOPE, planes, unwritten_numbers};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{
    self, Attention, AttentionBackward, AttentionForward, AttentionScores, Dropout, EdgeBiases,
    EdgeMap, EdgeStep, EdgeValues, EdgeWeights, OptimizerSnapshot, OptimizerState, RandomState,
    Sddmm, SegmentReduction, Spmm, edge_plane,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use halfgnn_contract::rng;

const SEED: u64 = 11;
const STREAM: u32 = 5;
const STEP: u32 = 3;

/// A layer of attention and the gradient of its output.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    graph: &'a Csr,
    heads: usize,
    width: usize,
    dropout: f32,
    pub(crate) h: Vec<f32>,
    pub(crate) vectors: Vec<f32>,
    pub(crate) dy: Vec<f32>,
    /// Biases of the edges, head by head, if they have some: of the fused operators alone.
    pub(crate) biases: Vec<f32>,
}

impl<'a> Case<'a> {
    pub(crate) fn random<E: Element>(
        graph: &'a Csr,
        heads: usize,
        width: usize,
        dropout: f32,
    ) -> Self {
        let (vertices, columns) = (graph.vertices(), heads * width);
        Self {
            graph,
            heads,
            width,
            dropout,
            h: Random(120).uniform::<E>(vertices * columns),
            vectors: Random(121).uniform::<E>(2 * columns),
            dy: Random(122).uniform::<E>(vertices * columns),
            biases: Vec::new(),
        }
    }

    fn columns(&self) -> usize {
        self.heads * self.width
    }

    /// What dropout multiplies an edge with.
    fn kept(&self, head: usize, destination: u32, source: u32) -> f64 {
        if self.dropout == 0.0 {
            return 1.0;
        }
        let counter = rng::edge_dropout_counter(STEP, head as u32, destination, source);
        if rng::philox(rng::key(SEED, STREAM), counter)[0] < rng::threshold(self.dropout) {
            0.0
        } else {
            1.0 / (1.0 - f64::from(self.dropout))
        }
    }

    fn numbers<B: Backend>(&self, backend: &B) -> RandomState<B> {
        RandomState::new(backend, SEED, STEP).expect("room for a word")
    }

    fn drops<'s, B: Backend>(&self, random: &'s RandomState<B>) -> Option<Dropout<'s, B>> {
        (self.dropout > 0.0).then_some(Dropout {
            probability: self.dropout,
            stream: STREAM,
            random,
        })
    }

    /// The fused operators.
    pub(crate) fn fused<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        self.fused_between::<B, E>(backend, self.graph.vertices())
    }

    /// The fused operators between the first vertices, as destinations, and all of them; the others have no edges.
    fn fused_between<B: Backend, E: Element>(&self, backend: &B, destinations: usize) -> Outcome {
        let shape = (self.graph.vertices(), self.columns());
        let of_destinations = (destinations, shape.1);
        let (rows, columns) = (self.graph.rows(), self.graph.cols());
        let csr = Csr::rectangular_from_edges((destinations, shape.0), rows, columns)
            .expect("edges of destinations");
        let a = Adjacency::new(backend, &csr).expect("room for a graph");
        let back = Adjacency::new(backend, &csr.transposed()).expect("room for a graph");
        let h = matrix::<B, E>(backend, shape, &self.h);
        let vectors = matrix::<B, E>(backend, (2, shape.1), &self.vectors);
        let dy = &self.dy[..destinations * shape.1];
        let dy = matrix::<B, E>(backend, of_destinations, dy);
        let random = self.numbers(backend);
        let mut attention = Attention::between(backend, (destinations, shape.0), self.heads, SLOPE)
            .expect("room for attention");
        let mut lent = unwritten::<B, E>(backend, shape);
        let dropout = self.drops(&random);
        let edges = csr.edges();
        let biases = (!self.biases.is_empty()).then(|| {
            // Those of the transposed order stand where its edges do.
            let mut order: Vec<usize> = (0..edges).collect();
            order.sort_by_key(|&edge| csr.cols()[edge]);
            let of_heads = (0..self.heads).flat_map(|head| {
                let of_head = &self.biases[head * edges..][..edges];
                order.iter().map(|&edge| of_head[edge])
            });
            let back: Vec<f32> = of_heads.collect();
            [&self.biases, &back].map(|biases| planes::<B, f32>(backend, self.heads, biases))
        });
        let len = self.heads * edge_plane(edges);
        let mut lent_edges = elements::<B, E>(backend, &vec![f32::NAN; len]);
        let mut d_biases = unwritten_numbers(backend, len);
        let mut sums = unwritten_numbers(backend, len);
        // Into matrices of its own each time: what another pass left would hide what this one does not write.
        let mut forward = |stores_sums: bool, with_positive: bool| {
            let [mut y, mut positive] =
                [(); 2].map(|()| unwritten::<B, E>(backend, of_destinations));
            let of = AttentionForward {
                codes: None,
                h: &h,
                vectors: &vectors,
                dropout,
                y: &mut y,
                positive: with_positive.then_some(&mut positive),
                biases: biases.as_ref().map(|biases| &biases[0]),
                sums: stores_sums.then_some(&mut sums),
            };
            attention
                .forward(backend, &a, of)
                .expect("a legal forward pass");
            [y, positive]
        };
        let to_bits = |matrix: &Matrix<B, E>| bits(&read(backend, matrix));
        let (stored, [y, positive]) = (forward(true, true), forward(false, true));
        for [alone, _] in [forward(true, false), forward(false, false)] {
            let what = "with the positive sum and without";
            assert_eq!(to_bits(&alone), to_bits(&y), "{what}");
        }
        let what = "with stored sums and without";
        assert_eq!(
            stored.each_ref().map(to_bits),
            [&y, &positive].map(to_bits),
            "{what}"
        );
        let mut numbers = [destinations, destinations, shape.0, shape.0]
            .map(|vertices| unwritten_numbers(backend, self.heads * vertices));
        let mut dh = unwritten::<B, E>(backend, shape);
        let mut d_vectors = unwritten::<B, f32>(backend, (2, shape.1));
        let of = AttentionBackward {
            codes: None,
            h: &h,
            vectors: &vectors,
            y: &y,
            positive: &positive,
            dy: &dy,
            dropout,
            lent: (&mut lent, numbers.each_mut()),
            dh: &mut dh,
            d_vectors: &mut d_vectors,
            biases: biases.as_ref().map(|[forward, backward]| EdgeBiases {
                a: &a,
                forward,
                backward,
                lent: &mut lent_edges,
                d: &mut d_biases,
            }),
        };
        attention
            .backward(backend, &back, of)
            .expect("a legal backward pass");
        let mut y = read(backend, &y);
        y.resize(shape.0 * shape.1, 0.0);
        Outcome {
            y,
            dh: read(backend, &dh),
            d_vectors: read(backend, &d_vectors),
            d_biases: match biases {
                Some(_) => d_biases.to_vec(backend).expect("no failure before"),
                None => Vec::new(),
            },
        }
    }

    /// The same from operators on arrays of edges, each in the run's precision.
    pub(crate) fn unfused<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        let (heads, shape) = (self.heads, (self.graph.vertices(), self.columns()));
        let (vertices, rows, columns) = (shape.0, self.graph.rows(), self.graph.cols());
        let graph = Graph::from_edges(vertices, rows, columns).expect("edges of a graph");
        let back_csr = transposed(self.graph);
        let a = Adjacency::new(backend, self.graph).expect("room for a graph");
        let back = Adjacency::new(backend, &back_csr).expect("room for a graph");
        let map = EdgeMap::new(backend, graph.edge_map()).expect("numbers of edges");
        let h = matrix::<B, E>(backend, shape, &self.h);
        let vectors = matrix::<B, E>(backend, (2, shape.1), &self.vectors);
        let dy = matrix::<B, E>(backend, shape, &self.dy);
        let random = self.numbers(backend);
        let per_vertex = heads * shape.0;
        let numbers = || unwritten_numbers(backend, per_vertex);
        let (mut l, mut r, mut rows) = (numbers(), numbers(), numbers());
        ops::head_scores(backend, heads, &h, &vectors, &mut l, &mut r).expect("legal scores");
        let scores = AttentionScores {
            heads,
            destination: &l,
            source: &r,
            slope: SLOPE,
            biases: None,
        };
        let edge_array = || planes::<B, E>(backend, heads, &vec![f32::NAN; heads * a.edges()]);
        let step = |step, x: Option<&Array<B, E>>, y: &mut Array<B, E>| {
            ops::edge_step(backend, &a, heads, &step, x, y).expect("a legal step");
        };
        let mut alpha = edge_array();
        step(EdgeStep::Scores(scores), None, &mut alpha);
        ops::edge_softmax(backend, &a, heads, &mut alpha, &mut rows).expect("a legal softmax");
        let dropped = self.drops(&random).map(|dropout| {
            let mut dropped = edge_array();
            step(EdgeStep::Dropout(dropout), Some(&alpha), &mut dropped);
            dropped
        });
        let weights = dropped.as_ref().unwrap_or(&alpha);
        let spmm = |a: &Adjacency<B>, values: &Array<B, E>, x: &_, y: &mut _| {
            let op = Spmm {
                weights: EdgeWeights::Planes { values, heads },
                ..Spmm::default()
            };
            ops::spmm(backend, a, &op, x, y).expect("a legal product");
        };
        let mut y = unwritten::<B, E>(backend, shape);
        spmm(&a, weights, &h, &mut y);

        let mut d = edge_array();
        let sddmm = Sddmm {
            heads,
            ..Sddmm::default()
        };
        ops::sddmm(backend, &a, &sddmm, &dy, &h, &mut d).expect("legal dots");
        if let Some(dropout) = self.drops(&random) {
            step(EdgeStep::Dropout(dropout), None, &mut d);
        }
        ops::edge_softmax_backward(backend, &a, heads, &alpha, &mut d, &mut rows)
            .expect("a legal gradient");
        step(EdgeStep::ScoresBackward(scores), None, &mut d);
        let (mut dl, mut dr) = (numbers(), numbers());
        let sum = |a: &Adjacency<B>, values: EdgeValues<'_, B, E>, sums: &mut Array<B, f32>| {
            ops::segment_reduce(backend, a, heads, SegmentReduction::Sum, &values, sums)
                .expect("legal sums");
        };
        sum(&a, EdgeValues::Plane(&d), &mut dl);
        sum(&back, EdgeValues::Gathered(&d, &map), &mut dr);
        // Weights in the transposed order, moved on the host: each edge keeps its own.
        let weights = weights.to_vec(backend).expect("no failure before");
        let stride = weights.len() / heads;
        let moved: Vec<f32> = (0..heads)
            .flat_map(|head| {
                let plane = &weights[head * stride..];
                let moved = graph
                    .edge_map()
                    .iter()
                    .map(|&edge| plane[edge as usize].to_f32());
                moved.collect::<Vec<_>>()
            })
            .collect();
        let mut dh = unwritten::<B, E>(backend, shape);
        spmm(&back, &planes(backend, heads, &moved), &dy, &mut dh);
        ops::head_outer(backend, heads, &dl, &dr, &vectors, &mut dh).expect("legal products");
        let mut d_vectors = unwritten::<B, f32>(backend, (2, shape.1));
        ops::head_sums(backend, heads, &h, &dl, &dr, &mut d_vectors).expect("legal sums");
        Outcome {
            y: read(backend, &y),
            dh: read(backend, &dh),
            d_vectors: read(backend, &d_vectors),
            d_biases: Vec::new(),
        }
    }

    /// The forward pass in float64: `α` of each head and edge, and the output.
    fn forward(&self) -> (Vec<f64>, Vec<f64>) {
        let (vertices, edges, columns) =
            (self.graph.vertices(), self.graph.edges(), self.columns());
        let mut alpha = vec![0.0; self.heads * edges];
        let mut y = vec![0.0; vertices * columns];
        for head in 0..self.heads {
            for row in 0..vertices {
                let range = self.graph.row_range(row);
                let score = |edge: usize| {
                    let sum = self.sum_of_scores(head, edge);
                    if sum > 0.0 {
                        sum
                    } else {
                        f64::from(SLOPE) * sum
                    }
                };
                let m = range.clone().map(score).fold(f64::MIN, f64::max);
                let z: f64 = range.clone().map(|edge| (score(edge) - m).exp()).sum();
                for edge in range {
                    let weight = (score(edge) - m).exp() / z;
                    alpha[head * edges + edge] = weight;
                    let source = self.graph.cols()[edge];
                    let kept = self.kept(head, row as u32, source);
                    for f in head * self.width..(head + 1) * self.width {
                        y[row * columns + f] +=
                            weight * kept * f64::from(self.h[source as usize * columns + f]);
                    }
                }
            }
        }
        (alpha, y)
    }

    /// `l + r` of an edge.
    fn sum_of_scores(&self, head: usize, edge: usize) -> f64 {
        let columns = self.columns();
        let (row, column) = (self.graph.rows()[edge], self.graph.cols()[edge]);
        (head * self.width..(head + 1) * self.width)
            .map(|f| {
                f64::from(self.vectors[f]) * f64::from(self.h[row as usize * columns + f])
                    + f64::from(self.vectors[columns + f])
                        * f64::from(self.h[column as usize * columns + f])
            })
            .sum()
    }

    /// Output and gradients in float64, edge by edge, with the sizes of what they are sums of.
    fn reference(&self) -> Reference {
        let (vertices, edges, columns) =
            (self.graph.vertices(), self.graph.edges(), self.columns());
        let (alpha, y) = self.forward();
        let mut reference = Reference {
            y: vec![Sum::default(); y.len()],
            dh: vec![Sum::default(); y.len()],
            d_vectors: vec![Sum::default(); 2 * columns],
        };
        for head in 0..self.heads {
            let features = head * self.width..(head + 1) * self.width;
            // Gradients of the scores of each vertex as destination and as source.
            let mut scores = vec![[Sum::default(); 2]; vertices];
            for edge in 0..edges {
                let (i, j) = (self.graph.rows()[edge], self.graph.cols()[edge]);
                let kept = self.kept(head, i, j);
                let (i, j) = (i as usize, j as usize);
                let weight = alpha[head * edges + edge];
                let (mut through, mut inner) = (Sum::default(), Sum::default());
                for f in features.clone() {
                    let (g, h) = (
                        f64::from(self.dy[i * columns + f]),
                        f64::from(self.h[j * columns + f]),
                    );
                    through.add(g * h);
                    inner.add(g * y[i * columns + f]);
                    reference.y[i * columns + f].add(weight * kept * h);
                    reference.dh[j * columns + f].add(weight * kept * g);
                }
                let slope = if self.sum_of_scores(head, edge) > 0.0 {
                    1.0
                } else {
                    f64::from(SLOPE)
                };
                let size = weight * (kept * through.size + inner.size);
                for (vertex, side) in [(i, 0), (j, 1)] {
                    let sum = &mut scores[vertex][side];
                    sum.value += slope * weight * (kept * through.value - inner.value);
                    sum.size += size;
                }
            }
            for (vertex, scores) in scores.iter().enumerate() {
                for f in features.clone() {
                    for (side, score) in scores.iter().enumerate() {
                        let a = f64::from(self.vectors[side * columns + f]);
                        let h = f64::from(self.h[vertex * columns + f]);
                        for (sum, factor) in [
                            (&mut reference.dh[vertex * columns + f], a),
                            (&mut reference.d_vectors[side * columns + f], h),
                        ] {
                            sum.value += score.value * factor;
                            sum.size += score.size * factor.abs();
                        }
                    }
                }
            }
        }
        reference
    }
}

/// What a layer's forward and backward pass give.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) y: Vec<f32>,
    pub(crate) dh: Vec<f32>,
    pub(crate) d_vectors: Vec<f32>,
    /// With the ends of the planes.
    pub(crate) d_biases: Vec<f32>,
}

struct Reference {
    y: Vec<Sum>,
    dh: Vec<Sum>,
    d_vectors: Vec<Sum>,
}

impl Reference {
    /// `roundings`: how many of the run's precision lie in a row one after the other, at most.
    fn check<E: Element>(&self, what: &str, case: &Case<'_>, outcome: &Outcome, roundings: f64) {
        let degrees = |graph: &Csr| {
            let degree = |row| graph.row_range(row).len();
            (0..graph.vertices()).map(degree).max().unwrap_or(0)
        };
        let terms = degrees(case.graph).max(degrees(&transposed(case.graph)));
        let half = match E::PRECISION {
            Precision::Half | Precision::BFloat16 => roundings * roundoff::<E>(),
            Precision::Float => 0.0,
        };
        let allowed = Allowed {
            // Scores are sums over a head; an exponential turns their absolute error into a relative one.
            relative: (terms + 4 * case.width + 200) as f64 * 2.0 * FLOAT + half,
            absolute: if half > 0.0 {
                terms as f64 * 2.0_f64.powi(-22)
            } else {
                0.0
            },
        };
        let vectors = Allowed {
            relative: allowed.relative + case.graph.vertices() as f64 * FLOAT,
            absolute: allowed.absolute * case.graph.vertices() as f64,
        };
        let columns = case.columns();
        let what = |part: &str| format!("{part} of {what}, {} heads of {}", case.heads, case.width);
        assert_close::<E>(&what("y"), &outcome.y, &self.y, columns, |_| allowed);
        assert_close::<E>(&what("dh"), &outcome.dh, &self.dh, columns, |_| allowed);
        let d_vectors = &outcome.d_vectors;
        assert_close::<f32>(&what("da"), d_vectors, &self.d_vectors, columns, |_| {
            vectors
        });
    }
}

fn graphs(scale: Scale) -> Vec<(&'static str, Csr)> {
    vec![
        ("no vertices", from_edges(0, &[])),
        ("no edges", from_edges(3, &[])),
        ("one self-loop", from_edges(1, &[(0, 0)])),
        ("duplicate edges", from_edges(2, &[(0, 1), (0, 1), (1, 1)])),
        (
            "rows of warps",
            from_degrees(&[0, 200, 1, 128, 300, 0, 3], Random(123)),
        ),
        ("a hub", hub(scale.pick(1_500, 20_000))),
        (
            "power law",
            power_law(80, scale.pick(1_000, 6_000), Random(124)),
        ),
    ]
}

fn cases<E: Element>(scale: Scale, check: impl Fn(&str, &Case<'_>)) {
    for (name, graph) in graphs(scale) {
        for (heads, width, dropout) in [(1, 7, 0.0), (1, 40, 0.4), (3, 8, 0.25)] {
            check(name, &Case::random::<E>(&graph, heads, width, dropout));
        }
    }
}

/// Which edges of a graph of all pairs dropout keeps: for each head and destination a bit a source, from the lowest on. Drawn
/// by a Philox of another hand, so that a mistake in the one that backends and tests share shows.
pub fn masks_are_known<B: Backend>(backend: &B, _: Scale) {
    const KEPT: [[u32; 6]; 3] = [
        [0x1e, 0x3f, 0x21, 0x33, 0x0f, 0x17],
        [0x05, 0x14, 0x2a, 0x37, 0x15, 0x3b],
        [0x1b, 0x3e, 0x17, 0x1a, 0x10, 0x39],
    ];
    fn check<B: Backend, E: Element>(backend: &B) {
        let pairs: Vec<(u32, u32)> = (0..36).map(|edge| (edge / 6, edge % 6)).collect();
        let a = Adjacency::new(backend, &from_edges(6, &pairs)).expect("room for a graph");
        let snapshot = OptimizerSnapshot {
            loss_scale: 1.0,
            steps: 10,
            skipped: 7,
            since_change: 0,
        };
        let state = OptimizerState::resume(backend, &snapshot).expect("room for a state");
        let dropout = Dropout {
            probability: 0.4,
            stream: 3,
            random: &state.random(0x0123_4567_89ab_cdef),
        };
        let heads = KEPT.len();
        let ones = planes::<B, E>(backend, heads, &vec![1.0; heads * 36]);
        let mut kept = planes::<B, E>(backend, heads, &vec![f32::NAN; heads * 36]);
        let step = EdgeStep::Dropout(dropout);
        ops::edge_step(backend, &a, heads, &step, Some(&ones), &mut kept).expect("a legal step");
        let kept = kept.to_vec(backend).expect("no failure before");
        let plane = kept.len() / heads;
        for (head, expected) in KEPT.iter().enumerate() {
            for (destination, &expected) in expected.iter().enumerate() {
                let first = head * plane + destination * 6;
                let bit = |source: usize| u32::from(kept[first + source].to_f32() != 0.0) << source;
                let found: u32 = (0..6).map(bit).sum();
                assert_eq!(found, expected, "head {head}, destination {destination}");
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, f32>(backend);
}

/// Output and gradients of the fused operators against float64, with and without dropout.
pub fn fused<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        cases::<E>(scale, |name, case| {
            let outcome = case.fused::<B, E>(backend);
            case.reference().check::<E>(name, case, &outcome, 6.0);
        });
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// The same between fewer destinations than sources, which are the first of them, as in a sampled layer.
pub fn fused_between<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, destinations: usize) {
        for (heads, width, dropout) in [(1, 7, 0.0), (1, 40, 0.4), (3, 8, 0.25)] {
            let case = Case::random::<E>(graph, heads, width, dropout);
            let outcome = case.fused_between::<B, E>(backend, destinations);
            let what = format!("{destinations} destinations");
            case.reference().check::<E>(&what, &case, &outcome, 7.0);
        }
    }
    let square = power_law(90, scale.pick(1_000, 30_000), Random(130));
    for destinations in [0, 1, 41, 89] {
        let last = square.offsets()[destinations] as usize;
        let edges = square.rows().iter().zip(square.cols());
        let edges: Vec<(u32, u32)> = edges.take(last).map(|(&i, &j)| (i, j)).collect();
        let graph = from_edges(90, &edges);
        check::<B, f16>(backend, &graph, destinations);
        check::<B, bf16>(backend, &graph, destinations);
        check::<B, f32>(backend, &graph, destinations);
    }
}

/// Output and gradients of the operators on arrays of edges: the same, within what their roundings allow.
pub fn unfused<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        cases::<E>(scale, |name, case| {
            let outcome = case.unfused::<B, E>(backend);
            // Scores of a size of 8 are off by 2 units of roundoff, exponentials and sums, weights and gradients by one.
            let roundings = 24.0 + 2.0 * case.width as f64 / 8.0;
            case.reference().check::<E>(name, case, &outcome, roundings);
        });
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// The same bits again.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(70, scale.pick(1_500, 30_000), Random(125));
    let case = Case::random::<f16>(&graph, 2, 16, 0.3);
    let first = case.fused::<B, f16>(backend);
    assert_eq!(case.fused::<B, f16>(backend), first);
}

/// Softmax of edges in the run's precision: all lowest, all the same, one edge, far apart. Rows sum to one.
pub fn softmax_of_extremes<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let graph = from_degrees(&[1, 200, 0, 130, 1, 9, 1024], Random(126));
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let edges = graph.edges();
        let far = |edge: usize| [-65_504.0, 65_504.0, 3.0, 65_504.0][edge % 4];
        for (name, values) in [
            ("all lowest", vec![-65_504.0; edges]),
            ("all highest", vec![65_504.0; edges]),
            ("all zero", vec![0.0; edges]),
            ("far apart", (0..edges).map(far).collect()),
            ("subnormal", vec![6e-8; edges]),
        ] {
            let mut x = planes::<B, E>(backend, 1, &values);
            let mut rows = unwritten_numbers(backend, graph.vertices());
            ops::edge_softmax(backend, &a, 1, &mut x, &mut rows).expect("a legal softmax");
            let alpha: Vec<E> = x.to_vec(backend).expect("no failure before");
            assert!(alpha[edges..].iter().all(|padding| padding.to_f32() == 0.0));
            for row in 0..graph.vertices() {
                let range = graph.row_range(row);
                let largest = range
                    .clone()
                    .map(|edge| values[edge])
                    .fold(f32::MIN, f32::max);
                let many = range
                    .clone()
                    .filter(|&edge| values[edge] == largest)
                    .count();
                let mut sum = 0.0;
                for edge in range.clone() {
                    let expected = if values[edge] == largest {
                        1.0 / many as f32
                    } else {
                        0.0
                    };
                    let alpha = alpha[edge].to_f32();
                    assert_eq!(alpha, E::from_f32(expected).to_f32(), "{name}, edge {edge}");
                    sum += f64::from(alpha);
                }
                assert!(
                    // Each weight is rounded once.
                    range.is_empty() || (sum - 1.0).abs() <= 2.0 * roundoff::<E>(),
                    "{name}: {sum}"
                );
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// A feature that is 1 everywhere stays 1 in rows with edges: weights sum to one, whatever the scores.
pub fn weights_sum_to_one<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(2_000, 80_000), Random(127));
    for size in [0.0, 1.0, 60.0, 60_000.0] {
        let mut case = Case::random::<f16>(&graph, 1, 9, 0.0);
        for ones in case.h.chunks_exact_mut(9) {
            ones[8] = 1.0;
        }
        case.vectors
            .iter_mut()
            .for_each(|a| *a = (*a * size).round());
        // It does not take part in the scores.
        (case.vectors[8], case.vectors[17]) = (0.0, 0.0);
        let y = case.fused::<B, f16>(backend).y;
        for (row, y) in y.chunks_exact(9).enumerate() {
            let expected = if graph.row_range(row).is_empty() {
                0.0
            } else {
                1.0
            };
            assert!(
                (y[8] - expected).abs() <= HALF as f32,
                "size {size}, row {row}: {}",
                y[8]
            );
        }
    }
}

/// What does not fit is refused before anything is launched.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[2, 1], Random(129));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let h = matrix::<B, f16>(backend, (2, 16), &[1.0; 32]);
    let vectors = matrix::<B, f16>(backend, (2, 16), &[1.0; 32]);
    let mut y = unwritten::<B, f16>(backend, (2, 16));
    let error = Attention::new(backend, 2, 0, SLOPE).expect_err("no heads");
    assert!(error.to_string().contains("0 heads"), "{error}");
    let error = Attention::between(backend, (3, 2), 1, SLOPE).expect_err("destinations unheard of");
    assert!(
        error.to_string().contains("3 destinations and 2 sources"),
        "{error}"
    );
    let mut run = |vertices, heads, vectors: &_| {
        let mut attention = Attention::new(backend, vertices, heads, SLOPE).expect("room");
        let of = AttentionForward {
            codes: None,
            h: &h,
            vectors,
            dropout: None,
            y: &mut y,
            positive: None,
            biases: None,
            sums: None,
        };
        attention
            .forward(backend, &a, of)
            .map_err(|error| error.to_string())
    };
    run(2, 2, &vectors).expect("two heads of 8");
    let error = run(3, 1, &vectors).expect_err("another graph");
    assert!(error.contains("rows of the adjacency"), "{error}");
    let error = run(2, 4, &vectors).expect_err("heads of 4 halves");
    assert!(error.contains("4 heads"), "{error}");
    let one = matrix::<B, f16>(backend, (1, 16), &[1.0; 16]);
    let error = run(2, 1, &one).expect_err("one vector");
    assert!(error.contains("attention vectors"), "{error}");
    let mut edges: Array<B, f16> = elements(backend, &[0.0; 3]);
    let mut rows = unwritten_numbers(backend, 2);
    let error = ops::edge_softmax(backend, &a, 1, &mut edges, &mut rows).expect_err("no padding");
    assert!(error.to_string().contains('8'), "{error}");
    assert_eq!(ops::edge_values(&a, 3), 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient in float64 is that of the forward pass, by central differences.
    #[test]
    fn the_reference_is_right() {
        let graph = from_degrees(&[3, 0, 5, 2, 4], Random(128));
        let case = Case::random::<f32>(&graph, 2, 4, 0.25);
        let loss = |case: &Case<'_>| -> f64 {
            let y = case.forward().1;
            y.iter()
                .zip(&case.dy)
                .map(|(y, dy)| y * f64::from(*dy))
                .sum()
        };
        let reference = case.reference();
        // Steps of a power of two are exact in the float inputs.
        let step = 2.0_f32.powi(-12);
        let difference = |change: &dyn Fn(&mut Case<'_>, f32)| {
            let at = |step| {
                let mut case = case.clone();
                change(&mut case, step);
                loss(&case)
            };
            (at(step) - at(-step)) / (2.0 * f64::from(step))
        };
        for i in 0..case.h.len() {
            let slope = difference(&|case, step| case.h[i] += step);
            let gradient = reference.dh[i].value;
            assert!(
                (slope - gradient).abs() < 1e-5,
                "h {i}: {slope} for {gradient}"
            );
        }
        for i in 0..case.vectors.len() {
            let slope = difference(&|case, step| case.vectors[i] += step);
            let gradient = reference.d_vectors[i].value;
            assert!(
                (slope - gradient).abs() < 1e-5,
                "a {i}: {slope} for {gradient}"
            );
        }
    }
}
