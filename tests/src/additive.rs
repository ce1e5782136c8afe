//! Scores of additive attention and their gradients against float64.

use crate::Scale;
use crate::graphs::{self, from_edges, hub, power_law};
use crate::input::{Random, bits, matrix, read, unwritten};
use crate::reference::{Allowed, Sum, assert_close};
use crate::segment::{planes, unwritten_numbers};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    Additive, AdditiveGradientOperands, additive_gradient, additive_scores, edge_plane,
};
use halfgnn::tensor::Element;

/// Scores of additive attention with their inputs on the host.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    graph: &'a Csr,
    heads: usize,
    width: usize,
    pub(crate) slope: f32,
    pub(crate) vector: Vec<f32>,
    pub(crate) u: Vec<f32>,
    pub(crate) v: Vec<f32>,
    /// The gradient of each score, head by head.
    pub(crate) d: Vec<f32>,
}

/// What a backend makes of it: scores, the gradient by `u` alone, and the same with what rows have of that by the vector.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) scores: Vec<f32>,
    pub(crate) alone: Vec<f32>,
    pub(crate) du: Vec<f32>,
    pub(crate) of_vector: Vec<f32>,
}

impl<'a> Case<'a> {
    pub(crate) fn random<E: Element>(graph: &'a Csr, heads: usize, width: usize) -> Self {
        let ((rows, columns), features) = (graph.shape(), heads * width);
        Self {
            graph,
            heads,
            width,
            slope: 0.2,
            vector: Random(90).uniform::<E>(features),
            u: Random(91).uniform::<E>(rows * features),
            v: Random(92).uniform::<E>(columns * features),
            d: Random(93).uniform::<f32>(heads * graph.edges()),
        }
    }

    pub(crate) fn run<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        let ((rows, columns), width) = (self.graph.shape(), self.heads * self.width);
        let a = Adjacency::new(backend, self.graph).expect("room for a graph");
        let op = Additive {
            heads: self.heads,
            slope: self.slope,
            vector: &matrix::<B, E>(backend, (1, width), &self.vector),
            u: &matrix::<B, E>(backend, (rows, width), &self.u),
            v: &matrix::<B, E>(backend, (columns, width), &self.v),
        };
        let plane = edge_plane(self.graph.edges());
        let mut scores = unwritten_numbers(backend, self.heads * plane);
        additive_scores(backend, &a, op, &mut scores).expect("legal scores");
        let scores = scores.to_vec(backend).expect("no failure before");
        let of_edges = scores.chunks_exact(plane.max(1)).flat_map(|plane| {
            let (edges, end) = plane.split_at(self.graph.edges());
            assert!(
                end.iter().all(|&value| value == 0.0),
                "a plane ends in {end:?}"
            );
            edges.to_vec()
        });
        let d = planes::<B, f32>(backend, self.heads, &self.d);
        let [mut alone, mut du, mut of_vector] =
            [(); 3].map(|()| unwritten::<B, E>(backend, (rows, width)));
        let operands = AdditiveGradientOperands {
            a: &a,
            op,
            d: &d,
            du: &mut alone,
            of_vector: None,
        };
        additive_gradient(backend, operands).expect("a legal gradient");
        let operands = AdditiveGradientOperands {
            a: &a,
            op,
            d: &d,
            du: &mut du,
            of_vector: Some(&mut of_vector),
        };
        additive_gradient(backend, operands).expect("a legal gradient");
        Outcome {
            scores: of_edges.collect(),
            alone: read(backend, &alone),
            du: read(backend, &du),
            of_vector: read(backend, &of_vector),
        }
    }

    /// The same in float64.
    fn reference(&self) -> [Vec<Sum>; 3] {
        let (graph, width) = (self.graph, self.heads * self.width);
        let slope = f64::from(self.slope);
        let mut scores = vec![Sum::default(); self.heads * graph.edges()];
        let [mut du, mut of_vector] =
            [(); 2].map(|()| vec![Sum::default(); graph.shape().0 * width]);
        for head in 0..self.heads {
            for (edge, (&row, &column)) in graph.rows().iter().zip(graph.cols()).enumerate() {
                let at = head * graph.edges() + edge;
                let d = f64::from(self.d[at]);
                for f in head * self.width..(head + 1) * self.width {
                    let place = row as usize * width + f;
                    let a = f64::from(self.vector[f]);
                    let given =
                        f64::from(self.u[place]) + f64::from(self.v[column as usize * width + f]);
                    let derivative = if given > 0.0 { 1.0 } else { slope };
                    scores[at].add(a * derivative * given);
                    du[place].add(d * a * derivative);
                    of_vector[place].add(d * derivative * given);
                }
            }
        }
        [scores, du, of_vector]
    }

    fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let (heads, width) = (self.heads, self.width);
        let what = format!("{what}, {heads} heads of {width} in {}", E::PRECISION);
        let found = self.run::<B, E>(backend);
        let [scores, du, of_vector] = self.reference();
        let allowed = Allowed::float(self.width + 2);
        assert_close::<f32>(
            &format!("{what}: scores"),
            &found.scores,
            &scores,
            1,
            |_| allowed,
        );
        let of_row = |row: usize| Allowed::float(self.graph.row_range(row).len());
        let columns = heads * width;
        let alike = bits(&found.alone) == bits(&found.du);
        assert!(
            alike,
            "{what}: the gradient alone and beside that of the vector"
        );
        assert_close::<E>(&format!("{what}: by u"), &found.du, &du, columns, of_row);
        let what = format!("{what}: by the vector");
        assert_close::<E>(&what, &found.of_vector, &of_vector, columns, of_row);
    }
}

fn on_all<B: Backend>(backend: &B, graph: &Csr, heads: usize, width: usize, what: &str) {
    Case::random::<f16>(graph, heads, width).check::<B, f16>(backend, what);
    Case::random::<bf16>(graph, heads, width).check::<B, bf16>(backend, what);
    Case::random::<f32>(graph, heads, width).check::<B, f32>(backend, what);
}

/// Odd graphs, rectangular ones, and a row that many warps share.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_all(backend, &graph, 1, 9, name);
    }
    for (name, graph) in graphs::rectangular(scale) {
        on_all(backend, &graph, 1, 7, name);
    }
    on_all(backend, &hub(scale.pick(1_500, 9_000)), 1, 41, "a hub");
    // It crosses chunks of CTAs, so its parts are added chunk by chunk.
    Case::random::<f16>(&hub(40_000), 2, 8).check::<B, f16>(backend, "a long row");
}

/// Widths of one head, up to more than a warp loads at once, and several heads.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(40, scale.pick(300, 3_000), Random(94));
    for width in [1, 2, 7, 8, 9, 33, 41, 127, 256, 300, 602] {
        on_all(backend, &graph, 1, width, "power law");
    }
    for (heads, width) in [(2, 8), (3, 8), (4, 24), (2, 272)] {
        on_all(backend, &graph, heads, width, "power law");
    }
}

/// A NaN and an infinity are seen by those that hear them, and by no padding; the derivative at zero is the slope.
pub fn extremes_stay_where_they_are<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (1, 2), (2, 2)]);
    let mut case = Case {
        v: [[f32::NAN; 5], [1.0; 5], [-0.5; 5]].concat(),
        u: [[1.0; 5], [0.5; 5], [f32::INFINITY; 5]].concat(),
        ..Case::random::<f16>(&graph, 1, 5)
    };
    case.vector = vec![1.0; 5];
    case.d = vec![0.0, 1.0, 4.0, 1.0];
    let found = case.run::<B, f16>(backend);
    assert!(found.scores[0].is_nan(), "{:?}", found.scores);
    assert_eq!(found.scores[1..], [10.0, 0.0, f32::INFINITY]);
    // What is no number is not above zero, and has the slope.
    let slope = f16::from_f32(4.0 * 0.2).to_f32();
    assert_eq!(found.du, [[1.0; 5], [slope; 5], [1.0; 5]].concat());
    assert!(found.of_vector[..5].iter().all(|value| value.is_nan()));
    assert_eq!(found.of_vector[5..10], [0.0; 5]);
}

/// The same bits every time.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(800, 8_000), Random(95));
    let case = Case::random::<f16>(&graph, 2, 24);
    let (a, b) = (case.run::<B, f16>(backend), case.run::<B, f16>(backend));
    assert_eq!(bits(&a.scores), bits(&b.scores));
    assert_eq!(bits(&a.du), bits(&b.du));
    assert_eq!(bits(&a.of_vector), bits(&b.of_vector));
}

/// Operands that do not fit.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (2, 0)]);
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let refused = |heads, shapes: [(usize, usize); 4], len: usize| {
        let [vector, u, v, du] =
            shapes.map(|shape| matrix::<B, f16>(backend, shape, &vec![0.0; shape.0 * shape.1]));
        let op = Additive {
            heads,
            slope: 0.2,
            vector: &vector,
            u: &u,
            v: &v,
        };
        let mut scores = unwritten_numbers(backend, len);
        let told = additive_scores(backend, &a, op, &mut scores).err();
        let mut du = du;
        let operands = AdditiveGradientOperands {
            a: &a,
            op,
            d: &scores,
            du: &mut du,
            of_vector: None,
        };
        let gradient = additive_gradient(backend, operands).expect_err("a misfit");
        (told.map(|error| error.to_string()), gradient.to_string())
    };
    let both = |(scores, gradient): (Option<String>, String), words: &str| {
        assert_eq!(scores, Some(format!("additive_scores: {words}")));
        assert_eq!(gradient, format!("additive_gradient: {words}"));
    };
    let fit = [(1, 4), (3, 4), (3, 4), (3, 4)];
    let with = |at: usize, shape| {
        let mut shapes = fit;
        shapes[at] = shape;
        shapes
    };
    both(
        refused(1, with(0, (1, 5)), 8),
        "columns of the vector should be 4, is 5",
    );
    both(
        refused(1, with(0, (2, 4)), 8),
        "rows of the vector should be 1, is 2",
    );
    both(
        refused(1, with(1, (2, 4)), 8),
        "rows of u should be 3, is 2",
    );
    both(
        refused(1, with(2, (3, 5)), 8),
        "columns of v should be 4, is 5",
    );
    both(refused(0, fit, 8), "0 heads; 1 to 65535 are possible");
    both(
        refused(2, fit, 16),
        "4 columns cannot be cut into 2 heads of whole vectors of 8 elements",
    );
    let (scores, gradient) = refused(1, with(3, (3, 5)), 8);
    assert_eq!(scores, None);
    assert_eq!(
        gradient,
        "additive_gradient: columns of the gradient should be 4, is 5"
    );
    let (scores, gradient) = refused(1, fit, 2);
    assert_eq!(
        scores.expect("a misfit"),
        "additive_scores: scores should be 8, is 2"
    );
    assert_eq!(
        gradient,
        "additive_gradient: gradient of the scores should be 8, is 2"
    );
}
