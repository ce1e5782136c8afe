//! Maxima, minima, softmax sums and deviations of messages and their gradients against float64.

use crate::Scale;
use crate::graphs::{self, from_edges, hub, permutation, power_law};
use crate::input::{Random, bits, matrix, read, unwritten};
use crate::messages::transposed;
use crate::reference::{Allowed, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    EdgeOrder, MessageAct, MessageGradients, MessageReduction, MessageTerms, ReducedMessages,
    ReductionBackwardOperands, ReductionResults, reduce_messages, reduce_messages_backward,
};
use halfgnn::tensor::{Element, Matrix};
use std::ops::Range;

/// Destinations, sources and edges.
const KINDS: usize = 3;

/// Which matrices there are.
pub(crate) type Given = [bool; KINDS];

pub(crate) const ALL: Given = [true; KINDS];
pub(crate) const COPY: Given = [false, true, false];
const PAIR: Given = [true, true, false];
const WITH_EDGES: Given = [false, true, true];

/// A reduction with its inputs on the host, and the gradient that goes back.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    graph: &'a Csr,
    width: usize,
    reduction: MessageReduction,
    act: MessageAct,
    pub(crate) terms: [Option<Vec<f32>>; KINDS],
    order: Option<Vec<u32>>,
    pub(crate) d: Vec<f32>,
}

/// What a backend makes of it.
pub(crate) struct Outcome {
    pub(crate) y: Vec<f32>,
    pub(crate) share: Vec<f32>,
    pub(crate) kept: Vec<f32>,
    pub(crate) gradients: [Option<Vec<f32>>; KINDS],
}

impl<'a> Case<'a> {
    /// Values of few bits, so that messages are often equal.
    pub(crate) fn random<E: Element>(
        graph: &'a Csr,
        width: usize,
        (reduction, act): (MessageReduction, MessageAct),
        given: Given,
    ) -> Self {
        let ((rows, columns), edges) = (graph.shape(), graph.edges());
        let counts = [rows, columns, edges];
        let terms = [0, 1, 2].map(|kind| {
            let random = Random(160 + kind as u32);
            let values = random.uniform::<E>(counts[kind] * width);
            let coarse = |value: f32| (value * 16.0).round() / 8.0;
            given[kind].then(|| values.into_iter().map(coarse).collect())
        });
        Self {
            graph,
            width,
            reduction,
            act,
            terms,
            order: None,
            d: Random(170).uniform::<E>(rows * width),
        }
    }

    /// With rows of edges in another order.
    pub(crate) fn shuffled(mut self) -> Self {
        self.order = Some(permutation(self.graph.edges(), Random(171)));
        self
    }

    /// The same messages as sums with rows of zeros, where maxima of rows as they are have passes of their own.
    fn with_zeros(mut self) -> Self {
        self.terms[0] = Some(vec![0.0; self.graph.shape().0 * self.width]);
        self
    }

    /// The row of an edge in the matrix of edges.
    fn row_of(&self, edge: usize) -> usize {
        let order = self.order.as_ref();
        order.map_or(edge, |order| order[edge] as usize)
    }

    pub(crate) fn run<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        let (graph, map) = transposed(self.graph);
        let a = Adjacency::new(backend, self.graph).expect("memory for a graph");
        let transposed = Adjacency::new(backend, &graph).expect("memory for a graph");
        let order = |rows: &[u32]| EdgeOrder::new(backend, rows).expect("a permutation");
        let forward = self.order.as_deref().map(order);
        let of_edge = |&edge: &u32| self.row_of(edge as usize) as u32;
        let backward = order(&map.iter().map(of_edge).collect::<Vec<_>>());
        let terms = self.terms.each_ref().map(|values| {
            let values = values.as_ref()?;
            let shape = (values.len() / self.width, self.width);
            Some(matrix::<B, E>(backend, shape, values))
        });
        let [destination, source, edge] = terms.each_ref().map(Option::as_ref);
        let op = ReducedMessages {
            rows: MessageTerms {
                destination,
                source,
                edge,
            },
            act: self.act,
            order: forward.as_ref(),
            reduction: self.reduction,
        };
        let shape = (self.graph.shape().0, self.width);
        let [mut y, mut share, mut kept] = [0; 3].map(|_| unwritten::<B, E>(backend, shape));
        let results = ReductionResults {
            y: &mut y,
            share: Some(&mut share),
            kept: Some(&mut kept),
        };
        reduce_messages(backend, &a, op, results).expect("a legal reduction");
        let mut alone = unwritten::<B, E>(backend, shape);
        let results = ReductionResults {
            y: &mut alone,
            share: None,
            kept: None,
        };
        reduce_messages(backend, &a, op, results).expect("a legal reduction");
        let d = matrix::<B, E>(backend, shape, &self.d);
        let mut gradients = terms.each_ref().map(|matrix| {
            let like = |matrix: &Matrix<B, E>| unwritten::<B, E>(backend, matrix.shape());
            matrix.as_ref().map(like)
        });
        let [destination, source, edge] = gradients.each_mut().map(Option::as_mut);
        let operands = ReductionBackwardOperands {
            a: &a,
            transposed: (&transposed, Some(&backward)),
            op,
            d: &d,
            y: self.reduction.reads_result().then_some(&y),
            kept: self.reduction.reads_kept().then_some(&kept),
            gradients: MessageGradients {
                destination,
                source,
                edge,
            },
        };
        reduce_messages_backward(backend, operands).expect("legal gradients");
        let y = read(backend, &y);
        assert_eq!(bits(&y), bits(&read(backend, &alone)), "the result alone");
        Outcome {
            y,
            share: read(backend, &share),
            kept: read(backend, &kept),
            gradients: gradients.map(|matrix| matrix.map(|matrix| read(backend, &matrix))),
        }
    }

    /// The message of an edge in a column and its slope, as all backends compute both.
    fn message<E: Element>(&self, ends: [usize; KINDS], column: usize) -> [f32; 2] {
        let mut sum = 0.0;
        for (values, end) in self.terms.iter().zip(ends) {
            if let Some(values) = values {
                sum += values[end * self.width + column];
            }
        }
        let [value, slope] = match (self.act, sum > 0.0) {
            (MessageAct::Identity, _) | (MessageAct::Relu | MessageAct::LeakyRelu, true) => {
                [sum, 1.0]
            }
            (MessageAct::Relu, false) => [0.0, 0.0],
            (MessageAct::LeakyRelu, false) => [sum * 0.01, 0.01],
            (act, _) => panic!("{act:?} has no exact value"),
        };
        [E::from_f32(value).to_f32(), slope]
    }

    fn ends(&self, row: usize, edge: usize) -> [usize; KINDS] {
        [row, self.graph.cols()[edge] as usize, self.row_of(edge)]
    }

    fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let what = format!(
            "{what}, {:?} of {:?}, {} columns in {}",
            self.reduction,
            self.act,
            self.width,
            E::PRECISION
        );
        let found = self.run::<B, E>(backend);
        let (rows, columns) = self.graph.shape();
        let counts = [rows, columns, self.graph.edges()];
        let mut expected = counts.map(|count| vec![Sum::default(); count * self.width]);
        let [mut y, mut share, mut kept] = [0; 3].map(|_| expected[0].clone());
        for row in 0..rows {
            let edges = self.graph.row_range(row);
            for column in 0..self.width {
                let at = row * self.width + column;
                let messages = edges.clone().map(|edge| self.ends(row, edge));
                let messages = messages.map(|ends| self.message::<E>(ends, column)[0]);
                let messages: Vec<f32> = messages.collect();
                (y[at], share[at], kept[at]) = self.reduced(&messages);
                if !self.reduction.reads_kept() {
                    let largest = f64::from(found.y[at]);
                    assert_eq!(largest, kept[at].value, "{what}: element {at}");
                }
                self.add_gradients::<E>(&found, (row, column), edges.clone(), &mut expected);
            }
        }
        let back = self.graph.transposed();
        let allowed = |range: Range<usize>| Allowed::float(range.len() + 40);
        let by_row = |row| allowed(self.graph.row_range(row));
        let by_column = |row| allowed(back.row_range(row));
        assert_close::<E>(&format!("{what}: y"), &found.y, &y, self.width, by_row);
        let name = format!("{what}: share");
        assert_close::<E>(&name, &found.share, &share, self.width, by_row);
        let name = format!("{what}: what is kept");
        assert_close::<E>(&name, &found.kept, &kept, self.width, by_row);
        let [destinations, sources, edges] = &found.gradients;
        let name = |kind: &str| format!("{what}: gradient of {kind}");
        if let Some(found) = destinations {
            let name = name("destinations");
            assert_close::<E>(&name, found, &expected[0], self.width, by_row);
        }
        if let Some(found) = sources {
            assert_close::<E>(&name("sources"), found, &expected[1], self.width, by_column);
        }
        if let Some(found) = edges {
            let each = |_| Allowed::float(41);
            assert_close::<E>(&name("edges"), found, &expected[2], self.width, each);
        }
    }

    /// The result of some messages, the share, and what is kept.
    fn reduced(&self, messages: &[f32]) -> (Sum, Sum, Sum) {
        let smallest = self.reduction == MessageReduction::Min;
        let further = |a: f32, b: f32| if smallest { a.min(b) } else { a.max(b) };
        let Some(largest) = messages.iter().copied().reduce(further) else {
            return (Sum::default(), Sum::default(), Sum::default());
        };
        let of = |f: &dyn Fn(f64) -> f64| messages.iter().map(|&m| f(m.into())).sum::<f64>();
        let sum = |value: f64, size: f64| Sum { value, size };
        let count = messages.len() as f64;
        if self.reduction == MessageReduction::Deviation {
            let (mean, size) = (of(&|m| m) / count, of(&f64::abs) / count);
            let squares = of(&|m| m * m) / count;
            let variance = (squares - mean * mean).max(0.0);
            let kept = sum(mean, size);
            if variance <= 1e-5 {
                return (Sum::default(), Sum::default(), kept);
            }
            let deviation = variance.sqrt();
            let share = 1.0 / (count * deviation);
            // Errors of the variance, of the size of the squares, are divided by twice the deviation.
            let times = squares / variance;
            return (
                sum(deviation, deviation * times),
                sum(share, share * times),
                kept,
            );
        }
        let weight = |m: f64| match self.reduction {
            MessageReduction::Softmax => (m - f64::from(largest)).exp(),
            _ => f64::from(u8::from(m == f64::from(largest))),
        };
        let weights = of(&weight);
        let y = of(&|m| weight(m) * m) / weights;
        let size = of(&|m| weight(m) * m.abs()) / weights;
        let largest = f64::from(largest);
        (
            sum(y, size),
            sum(1.0 / weights, 1.0 / weights),
            sum(largest, largest.abs()),
        )
    }

    /// Adds the gradients of a row's column, with the result that the backend found.
    fn add_gradients<E: Element>(
        &self,
        found: &Outcome,
        (row, column): (usize, usize),
        edges: Range<usize>,
        expected: &mut [Vec<Sum>; KINDS],
    ) {
        let at = row * self.width + column;
        let [y, d, kept] = [found.y[at], self.d[at], found.kept[at]].map(f64::from);
        for edge in edges {
            let ends = self.ends(row, edge);
            let [m, slope] = self.message::<E>(ends, column).map(f64::from);
            let (value, size) = match self.reduction {
                MessageReduction::Softmax => {
                    let weight = (m - kept).exp() * d * slope;
                    let size = weight.abs() * (1.0 + m.abs() + y.abs());
                    (weight * (1.0 + m - y), size)
                }
                MessageReduction::Deviation => {
                    let size = d.abs() * (m.abs() + kept.abs()) * slope;
                    (d * slope * (m - kept), size)
                }
                MessageReduction::Max | MessageReduction::Min => {
                    let value = if m == y { d * slope } else { 0.0 };
                    (value, value.abs())
                }
            };
            for (sums, end) in expected.iter_mut().zip(ends) {
                let sum = &mut sums[end * self.width + column];
                sum.value += value;
                sum.size += size;
            }
        }
    }
}

fn on_all<B: Backend>(
    backend: &B,
    graph: &Csr,
    width: usize,
    (of, given): ((MessageReduction, MessageAct), Given),
    what: &str,
) {
    macro_rules! check {
        ($($format:ty)*) => {$(
            let case = Case::random::<$format>(graph, width, of, given);
            case.check::<B, $format>(backend, what);
            let shuffled = case.shuffled();
            shuffled.check::<B, $format>(backend, &format!("{what}, shuffled"));
        )*};
    }
    check!(f16 bf16 f32);
}

const MAX: (MessageReduction, MessageAct) = (MessageReduction::Max, MessageAct::Identity);
const DEVIATION: (MessageReduction, MessageAct) =
    (MessageReduction::Deviation, MessageAct::Identity);
const SOFTMAX: (MessageReduction, MessageAct) = (MessageReduction::Softmax, MessageAct::Relu);

/// Odd graphs, rectangular ones, and a row that many warps share.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_all(backend, &graph, 9, (MAX, COPY), name);
        on_all(backend, &graph, 9, (SOFTMAX, WITH_EDGES), name);
        on_all(backend, &graph, 9, (DEVIATION, COPY), name);
    }
    for (name, graph) in graphs::rectangular(scale) {
        on_all(backend, &graph, 5, (MAX, PAIR), name);
        on_all(backend, &graph, 5, (SOFTMAX, PAIR), name);
    }
    let hub_of_few = hub(scale.pick(400, 9_000));
    on_all(backend, &hub_of_few, 41, (MAX, ALL), "a hub");
    on_all(backend, &hub_of_few, 41, (SOFTMAX, ALL), "a hub");
    let hub_of_many = hub(scale.pick(500, 70_000));
    on_all(backend, &hub_of_many, 3, (MAX, COPY), "a large hub");
    on_all(backend, &hub_of_many, 3, (SOFTMAX, COPY), "a large hub");
    on_all(backend, &hub_of_many, 3, (DEVIATION, COPY), "a large hub");
}

/// Widths up to several tiles of columns.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(30, scale.pick(100, 3_000), Random(172));
    for width in [1, 2, 7, 8, 33, 64, 127, 256, 264, 300] {
        on_all(backend, &graph, width, (MAX, COPY), "power law");
        on_all(backend, &graph, width, (SOFTMAX, WITH_EDGES), "power law");
        on_all(backend, &graph, width, (DEVIATION, COPY), "power law");
    }
}

/// Each reduction of each set of matrices.
pub fn every_reduction<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(30, scale.pick(100, 3_000), Random(173));
    let acts = [
        MessageAct::Identity,
        MessageAct::Relu,
        MessageAct::LeakyRelu,
    ];
    for reduction in [
        MessageReduction::Max,
        MessageReduction::Min,
        MessageReduction::Softmax,
        MessageReduction::Deviation,
    ] {
        for (act, given) in acts.into_iter().zip([PAIR, WITH_EDGES, ALL]) {
            on_all(backend, &graph, 16, ((reduction, act), given), "power law");
        }
    }
}

/// Edges that have the same message get equal parts, those of duplicates among them.
pub fn equal_messages<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (0, 1), (0, 2), (2, 2)]);
    let mut case = Case::random::<f16>(&graph, 2, MAX, COPY);
    case.terms[1] = Some(vec![9.0, 9.0, 3.0, -4.0, 3.0, -5.0]);
    case.d = vec![1.0; 6];
    for case in [case.clone(), case.with_zeros()] {
        let found = case.run::<B, f16>(backend);
        assert_eq!(found.y, [3.0, -4.0, 0.0, 0.0, 3.0, -5.0]);
        let third = f16::from_f32(1.0 / 3.0).to_f32();
        assert_eq!(found.share, [third, 0.5, 0.0, 0.0, 1.0, 1.0]);
        let of_sources = found.gradients[1].as_ref().expect("there is one");
        assert_eq!(of_sources, &[0.0, 0.0, 2.0, 2.0, 2.0, 1.0]);
    }
}

/// A deviation is zero where its variance is at most PyG's least, 10⁻⁵: that of messages `1 ± x` is `x²`.
pub fn deviations_at_the_bound<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(2, &[(0, 0), (0, 1)]);
    let mut case = Case::random::<f32>(&graph, 2, DEVIATION, COPY);
    let [below, above] = [1.0 / 512.0, 1.0 / 256.0];
    case.terms[1] = Some(vec![1.0 - below, 1.0 - above, 1.0 + below, 1.0 + above]);
    case.d = vec![1.0; 4];
    let found = case.run::<B, f32>(backend);
    assert_eq!(found.y, [0.0, above, 0.0, 0.0]);
    assert_eq!(found.share, [0.0, 0.5 / above, 0.0, 0.0]);
}

/// Results stay in half's range where messages do, and what does not is infinite in its own row.
pub fn extremes<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (0, 2), (2, 2)]);
    for (reduction, expected) in [
        (MessageReduction::Max, 65_504.0),
        (MessageReduction::Min, -65_504.0),
        (MessageReduction::Softmax, 65_504.0),
    ] {
        let of = (reduction, MessageAct::Identity);
        let copied = Case::random::<f16>(&graph, 1, of, COPY);
        for mut case in [copied.clone(), copied.with_zeros()] {
            let mut of_sources = |values: [f32; 3]| {
                case.terms[1] = Some(values.to_vec());
                case.run::<B, f16>(backend)
            };
            let found = of_sources([65_504.0, -65_504.0, 1.0]);
            assert_eq!(found.y, [expected, 0.0, 1.0], "{reduction:?}");
            let found = of_sources([f32::INFINITY, 5.0, 1.0]);
            let expected = if reduction == MessageReduction::Min {
                1.0
            } else {
                f32::INFINITY
            };
            assert_eq!(found.y, [expected, 0.0, 1.0], "{reduction:?}");
            let lowest = f32::NEG_INFINITY;
            let found = of_sources([lowest; 3]);
            assert_eq!(found.y, [lowest, 0.0, lowest], "{reduction:?}");
            if reduction != MessageReduction::Softmax {
                assert_eq!(found.share[2], 1.0, "{reduction:?}: of one edge");
            }
        }
    }
}

/// A NaN stays in the rows and columns that its edges lead to, and out of padding.
pub fn nan_stays_in_its_rows<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]);
    for reduction in [
        MessageReduction::Max,
        MessageReduction::Min,
        MessageReduction::Softmax,
        MessageReduction::Deviation,
    ] {
        let of = (reduction, MessageAct::Identity);
        for first in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
            let mut case = Case::random::<f16>(&graph, 5, of, COPY);
            let sources = case.terms[1].as_mut().expect("sources");
            (sources[0], sources[5]) = (first[0], first[1]);
            for case in [case.clone(), case.with_zeros()] {
                let found = case.run::<B, f16>(backend);
                assert!(found.y[0].is_nan(), "{reduction:?} of {first:?}");
                let is_nan = found.y.iter().map(|y| y.is_nan());
                let expected = [0, 5].map(|at| at == 0 || first[1].is_nan());
                let of_rows: Vec<bool> = is_nan.collect();
                assert_eq!([of_rows[0], of_rows[5]], expected, "{reduction:?}");
                let others = (1..5).chain(6..15).any(|at| of_rows[at]);
                assert!(!others, "{reduction:?} of {first:?}: {:?}", found.y);
            }
        }
    }
}

/// The same bits every time.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(800, 8_000), Random(174));
    for of in [MAX, SOFTMAX, DEVIATION] {
        let case = Case::random::<f16>(&graph, 24, of, ALL).shuffled();
        let (a, b) = (case.run::<B, f16>(backend), case.run::<B, f16>(backend));
        assert_eq!(bits(&a.y), bits(&b.y));
        assert_eq!(bits(&a.share), bits(&b.share));
        for (a, b) in a.gradients.iter().zip(&b.gradients) {
            assert_eq!(a.as_deref().map(bits), b.as_deref().map(bits));
        }
    }
}

/// Operands that do not fit.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (2, 0)]);
    let a = Adjacency::new(backend, &graph).expect("memory for a graph");
    let make = |(rows, columns): (usize, usize)| {
        matrix::<B, f16>(backend, (rows, columns), &vec![0.0; rows * columns])
    };
    let sources = make((3, 8));
    let op = |source| ReducedMessages {
        rows: MessageTerms {
            source,
            ..MessageTerms::NONE
        },
        act: MessageAct::Identity,
        order: None,
        reduction: MessageReduction::Softmax,
    };
    let forward = |source, y: (usize, usize), share: (usize, usize)| {
        let results = ReductionResults {
            y: &mut make(y),
            share: Some(&mut make(share)),
            kept: None,
        };
        let found = reduce_messages(backend, &a, op(source), results);
        found.expect_err("a misfit").to_string()
    };
    let cases = [
        (
            forward(None, (3, 8), (3, 8)),
            "there are no rows to compute messages of",
        ),
        (
            forward(Some(&sources), (2, 8), (3, 8)),
            "rows of the output should be 3, is 2",
        ),
        (
            forward(Some(&sources), (3, 8), (3, 7)),
            "columns of the shares should be 8, is 7",
        ),
    ];
    for (found, words) in cases {
        assert_eq!(found, format!("reduce_messages: {words}"));
    }
    let (transposed, _) = transposed(&graph);
    let transposed = Adjacency::new(backend, &transposed).expect("memory for a graph");
    let matrices = [0; 2].map(|_| make((3, 8)));
    let operands = ReductionBackwardOperands {
        a: &a,
        transposed: (&transposed, None),
        op: op(Some(&sources)),
        d: &matrices[0],
        y: Some(&matrices[1]),
        kept: None,
        gradients: MessageGradients {
            destination: None,
            source: None,
            edge: None,
        },
    };
    let found = reduce_messages_backward(backend, operands);
    let found = found.expect_err("no largest messages").to_string();
    assert_eq!(
        found,
        "reduce_messages_backward: the gradient of Softmax reads the largest messages or means of its forward pass, which is missing"
    );
}
