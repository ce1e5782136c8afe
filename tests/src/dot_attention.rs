//! Attention by dot products and its gradients against float64.

use crate::Scale;
use crate::graphs::{self, from_edges, hub, power_law};
use crate::input::{Random, bits, matrix, read, unwritten};
use crate::reference::{Allowed, FLOAT, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    DotAttention, DotAttentionBackwardOperands, Dropout, RandomState, dot_attention,
    dot_attention_backward,
};
use halfgnn::tensor::{Array, Element};
use halfgnn_contract::rng;

const SEED: u64 = 12;
const STREAM: u32 = 6;
const STEP: u32 = 2;

/// Attention with its inputs on the host, and the gradient of its output.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    graph: &'a Csr,
    heads: usize,
    width: usize,
    scale: f32,
    dropout: f32,
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) dy: Vec<f32>,
}

/// What a backend makes of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) y: Vec<f32>,
    pub(crate) dq: Vec<f32>,
    pub(crate) dk: Vec<f32>,
    pub(crate) dv: Vec<f32>,
}

impl<'a> Case<'a> {
    pub(crate) fn random<E: Element>(
        graph: &'a Csr,
        (heads, width): (usize, usize),
        dropout: f32,
    ) -> Self {
        let ((rows, columns), features) = (graph.shape(), heads * width);
        Self {
            graph,
            heads,
            width,
            scale: 1.0 / (width as f32).sqrt(),
            dropout,
            q: Random(130).uniform::<E>(rows * features),
            k: Random(131).uniform::<E>(columns * features),
            v: Random(132).uniform::<E>(columns * features),
            dy: Random(133).uniform::<E>(rows * features),
        }
    }

    fn features(&self) -> usize {
        self.heads * self.width
    }

    pub(crate) fn run<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        let ((rows, columns), features) = (self.graph.shape(), self.features());
        let a = Adjacency::new(backend, self.graph).expect("memory for a graph");
        let transposed = self.graph.transposed();
        let transposed = Adjacency::new(backend, &transposed).expect("memory for a graph");
        let of_rows = |values: &[f32]| matrix::<B, E>(backend, (rows, features), values);
        let of_columns = |values: &[f32]| matrix::<B, E>(backend, (columns, features), values);
        let (q, k, v) = (of_rows(&self.q), of_columns(&self.k), of_columns(&self.v));
        let dy = of_rows(&self.dy);
        let random = RandomState::new(backend, SEED, STEP).expect("memory for a word");
        let op = DotAttention {
            heads: self.heads,
            scale: self.scale,
            q: &q,
            k: &k,
            v: &v,
            dropout: (self.dropout > 0.0).then_some(Dropout {
                probability: self.dropout,
                stream: STREAM,
                random: &random,
            }),
        };
        let mut y = unwritten::<B, E>(backend, (rows, features));
        let mut statistics = unwritten_statistics(backend, self.heads * rows);
        dot_attention(backend, &a, op, &mut y, &mut statistics).expect("a legal forward pass");
        let mut dq = unwritten::<B, E>(backend, (rows, features));
        let [mut dk, mut dv] = [(); 2].map(|()| unwritten::<B, E>(backend, (columns, features)));
        let operands = DotAttentionBackwardOperands {
            a: &a,
            transposed: &transposed,
            op,
            y: &y,
            dy: &dy,
            statistics: &mut statistics,
            dq: &mut dq,
            dk: &mut dk,
            dv: &mut dv,
        };
        dot_attention_backward(backend, operands).expect("a legal backward pass");
        Outcome {
            y: read(backend, &y),
            dq: read(backend, &dq),
            dk: read(backend, &dk),
            dv: read(backend, &dv),
        }
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

    /// The dot product of a head's columns of two rows.
    fn dot(&self, head: usize, a: (&[f32], u32), b: (&[f32], u32)) -> Sum {
        let mut sum = Sum::default();
        let row =
            |(of, row): (&'_ [f32], u32), f| f64::from(of[row as usize * self.features() + f]);
        for f in head * self.width..(head + 1) * self.width {
            sum.add(row(a, f) * row(b, f));
        }
        sum
    }

    /// The output, the gradients, and the largest size of a score, in float64. `y` is the output that the gradient reads.
    fn reference(&self, y: &[f32]) -> ([Vec<Sum>; 4], f64) {
        let ((rows, columns), features) = (self.graph.shape(), self.features());
        let scale = f64::from(self.scale);
        let mut largest = 0.0_f64;
        let [mut output, mut dq] = [(); 2].map(|()| vec![Sum::default(); rows * features]);
        let [mut dk, mut dv] = [(); 2].map(|()| vec![Sum::default(); columns * features]);
        for head in 0..self.heads {
            for row in 0..rows as u32 {
                let sources = &self.graph.cols()[self.graph.row_range(row as usize)];
                let score = |&source: &u32| {
                    self.dot(head, (&self.q, row), (&self.k, source))
                        .scaled(scale)
                };
                let scores: Vec<Sum> = sources.iter().map(score).collect();
                let m = scores.iter().fold(f64::MIN, |m, score| m.max(score.value));
                let z: f64 = scores.iter().map(|score| (score.value - m).exp()).sum();
                let delta = self.dot(head, (&self.dy, row), (y, row));
                for (&source, score) in sources.iter().zip(&scores) {
                    largest = largest.max(score.size);
                    let weight = (score.value - m).exp() / z;
                    let kept = self.kept(head, row, source);
                    let d = self
                        .dot(head, (&self.dy, row), (&self.v, source))
                        .scaled(kept);
                    let t = Sum {
                        value: weight * (d.value - delta.value) * scale,
                        size: weight * (d.size + delta.size) * scale,
                    };
                    for f in head * self.width..(head + 1) * self.width {
                        let at = |row: u32| row as usize * features + f;
                        let number = |of: &[f32], row| f64::from(of[at(row)]);
                        output[at(row)].add(weight * kept * number(&self.v, source));
                        dv[at(source)].add(weight * kept * number(&self.dy, row));
                        let add = |sum: &mut Sum, factor: f64| {
                            sum.value += t.value * factor;
                            sum.size += t.size * factor.abs();
                        };
                        add(&mut dq[at(row)], number(&self.k, source));
                        add(&mut dk[at(source)], number(&self.q, row));
                    }
                }
            }
        }
        ([output, dq, dk, dv], largest)
    }

    fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let (heads, width) = (self.heads, self.width);
        let what = format!("{what}, {heads} heads of {width} in {}", E::PRECISION);
        let found = self.run::<B, E>(backend);
        let ([y, dq, dk, dv], largest) = self.reference(&found.y);
        // A weight is as far off as its score and the sum of its row's exponentials, and a sum by its terms.
        let longest = self.graph.longest_row() as usize;
        let of_weight = (2.0 * (width + 8) as f64 * largest.max(1.0) + longest as f64) * FLOAT;
        let back = self.graph.transposed();
        let allowed = |edges: usize| {
            let Allowed { relative, .. } = Allowed::float(edges + width + 8);
            Allowed {
                relative: relative + of_weight,
                absolute: 0.0,
            }
        };
        let of_row = |row| allowed(self.graph.row_range(row).len());
        let of_column = |row| allowed(back.row_range(row).len());
        let columns = self.features();
        assert_close::<E>(&format!("{what}: y"), &found.y, &y, columns, of_row);
        assert_close::<E>(&format!("{what}: dq"), &found.dq, &dq, columns, of_row);
        assert_close::<E>(&format!("{what}: dk"), &found.dk, &dk, columns, of_column);
        assert_close::<E>(&format!("{what}: dv"), &found.dv, &dv, columns, of_column);
    }
}

fn on_all<B: Backend>(backend: &B, graph: &Csr, heads: (usize, usize), dropout: f32, what: &str) {
    Case::random::<f16>(graph, heads, dropout).check::<B, f16>(backend, what);
    Case::random::<bf16>(graph, heads, dropout).check::<B, bf16>(backend, what);
    Case::random::<f32>(graph, heads, dropout).check::<B, f32>(backend, what);
}

/// Odd graphs, rectangular ones, and a row that many warps share.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_all(backend, &graph, (1, 9), 0.0, name);
    }
    for (name, graph) in graphs::rectangular(scale) {
        on_all(backend, &graph, (2, 8), 0.0, name);
    }
    let hub = hub(scale.pick(400, 9_000));
    on_all(backend, &hub, (1, 41), 0.0, "a hub");
    on_all(backend, &hub, (4, 16), 0.0, "a hub");
}

/// Widths of one head, up to more than a lane has one vector of, and several heads in one tile and in several.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(40, scale.pick(150, 3_000), Random(134));
    for width in [1, 2, 7, 8, 33, 127, 256] {
        on_all(backend, &graph, (1, width), 0.0, "power law");
    }
    for heads in [(2, 8), (3, 8), (4, 16), (5, 24), (3, 64), (20, 8), (2, 256)] {
        on_all(backend, &graph, heads, 0.0, "power law");
    }
}

/// Both passes drop the same weights, and the softmax is that of all edges.
pub fn dropout<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(40, scale.pick(300, 3_000), Random(135));
    for heads in [(1, 16), (4, 16)] {
        on_all(backend, &graph, heads, 0.4, "dropout");
    }
}

/// Scores far outside of half's range: the largest takes all. Neither sums nor gradients overflow.
pub fn extremes<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (0, 2), (1, 2)]);
    let width = 8;
    let case = Case {
        scale: 1.0,
        q: vec![30_000.0; 3 * width],
        k: [[1_000.0; 8], [-60_000.0; 8], [60_000.0; 8]].concat(),
        v: [[1.0; 8], [2.0; 8], [60_000.0; 8]].concat(),
        dy: vec![0.5; 3 * width],
        ..Case::random::<f16>(&graph, (1, width), 0.0)
    };
    let found = case.run::<B, f16>(backend);
    assert_eq!(found.y, [[60_000.0; 8], [60_000.0; 8], [0.0; 8]].concat());
    assert_eq!(found.dv, [[0.0; 8], [0.0; 8], [1.0; 8]].concat());
    assert_eq!(found.dq, [0.0; 24]);
    assert_eq!(found.dk, [0.0; 24]);
    // Each edge has a score far above that of the edge before, and the last has all of the weight.
    // The last warp has 32 edges, several for each group of lanes.
    let (width, count) = (64, 224);
    let edges: Vec<(u32, u32)> = (0..count).map(|source| (0, source)).collect();
    let graph = from_edges(count as usize, &edges);
    let rows = |of: fn(usize) -> f32| (0..count as usize * width).map(|at| of(at / 64)).collect();
    let case = Case {
        scale: 1.0,
        q: rows(|_| 1.0),
        k: rows(|row| 0.5 * row as f32),
        v: rows(|row| row as f32),
        ..Case::random::<f16>(&graph, (1, width), 0.0)
    };
    let found = case.run::<B, f16>(backend);
    assert_eq!(found.y[..width], [223.0; 64]);
}

/// A NaN stays in the rows that its edges lead to, and out of padding.
pub fn nan_stays_in_its_rows<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]);
    let mut case = Case::random::<f16>(&graph, (1, 5), 0.0);
    case.k[0] = f32::NAN;
    let found = case.run::<B, f16>(backend);
    assert!(found.y[..5].iter().all(|value| value.is_nan()));
    assert!(found.y[5..].iter().all(|value| value.is_finite()));
    assert!(found.dq[5..].iter().all(|value| value.is_finite()));
    assert!(found.dk[10..].iter().all(|value| value.is_finite()));
}

/// The same bits every time.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(800, 8_000), Random(136));
    let case = Case::random::<f16>(&graph, (2, 24), 0.2);
    let (a, b) = (case.run::<B, f16>(backend), case.run::<B, f16>(backend));
    for (a, b) in [(a.y, b.y), (a.dq, b.dq), (a.dk, b.dk), (a.dv, b.dv)] {
        assert_eq!(bits(&a), bits(&b));
    }
}

/// Operands that do not fit.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (2, 0)]);
    let a = Adjacency::new(backend, &graph).expect("memory for a graph");
    let refused = |heads: usize, scale: f32, shapes: [(usize, usize); 4], len: usize| {
        let [q, k, v, mut y] =
            shapes.map(|shape| matrix::<B, f16>(backend, shape, &vec![0.0; shape.0 * shape.1]));
        let op = DotAttention {
            heads,
            scale,
            q: &q,
            k: &k,
            v: &v,
            dropout: None,
        };
        let mut statistics = unwritten_statistics(backend, len);
        let forward = dot_attention(backend, &a, op, &mut y, &mut statistics);
        forward.expect_err("a misfit").to_string()
    };
    let fit = [(3, 8); 4];
    let with = |at: usize, shape| {
        let mut shapes = fit;
        shapes[at] = shape;
        shapes
    };
    let cases = [
        (
            refused(1, 1.0, with(0, (2, 8)), 3),
            "rows of the queries should be 3, is 2",
        ),
        (
            refused(1, 1.0, with(1, (3, 9)), 3),
            "columns of the keys should be 8, is 9",
        ),
        (
            refused(1, 1.0, with(2, (4, 8)), 3),
            "rows of the values should be 3, is 4",
        ),
        (
            refused(1, 1.0, with(3, (3, 7)), 3),
            "columns of the output should be 8, is 7",
        ),
        (refused(0, 1.0, fit, 3), "0 heads; 1 to 65535 are possible"),
        (
            refused(2, 1.0, fit, 6),
            "8 columns cannot be cut into 2 heads of whole vectors of 8 elements",
        ),
        (
            refused(1, 1.0, [(3, 513); 4], 3),
            "heads of 513 columns; at most 512 are possible in half",
        ),
        (
            refused(1, f32::INFINITY, fit, 3),
            "the scale inf is not finite",
        ),
        (refused(1, 1.0, fit, 2), "statistics should be 3, is 2"),
    ];
    for (found, words) in cases {
        assert_eq!(found, format!("dot_attention: {words}"));
    }
}

fn unwritten_statistics<B: Backend>(backend: &B, len: usize) -> Array<B, [f32; 2]> {
    Array::zeros(backend, len, MemoryKind::Activations).expect("memory for statistics")
}
