//! Sums of messages and their gradients against float64.

use crate::Scale;
use crate::graphs::{self, from_edges, hub, permutation, power_law};
use crate::input::{Random, bits, elements, matrix, read, unwritten};
use crate::reference::{Allowed, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    EdgeOrder, MessageAct, MessageBackwardOperands, MessageGradients, MessageTerms, Messages,
    message_sums, message_sums_backward,
};
use halfgnn::tensor::{Element, Matrix};

/// Destinations, sources and edges.
const KINDS: usize = 3;

/// Sums of messages with their inputs on the host, and the gradient of the output.
#[derive(Clone)]
pub(crate) struct Case<'a> {
    graph: &'a Csr,
    width: usize,
    acts: [MessageAct; 2],
    /// Rows of destinations, sources and edges, of `a` and of `b`.
    pub(crate) terms: [[Option<Vec<f32>>; KINDS]; 2],
    order: Option<Vec<u32>>,
    row_scale: Option<Vec<f32>>,
    factor: f32,
    pub(crate) dy: Vec<f32>,
}

/// What a backend makes of it: the output, and the gradients of what there is.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) y: Vec<f32>,
    pub(crate) gradients: [[Option<Vec<f32>>; KINDS]; 2],
}

/// The value and the derivative of an activation.
fn exact(act: MessageAct, x: f64) -> [f64; 2] {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let step = |below: f64| if x > 0.0 { 1.0 } else { below };
    match act {
        MessageAct::Identity => [x, 1.0],
        MessageAct::Relu => [x.max(0.0), step(0.0)],
        MessageAct::LeakyRelu => [x.max(0.01 * x), step(0.01)],
        MessageAct::Sigmoid => [sigmoid(x), sigmoid(x) * (1.0 - sigmoid(x))],
        MessageAct::Tanh => [x.tanh(), 1.0 - x.tanh() * x.tanh()],
        MessageAct::Softplus => [x.max(0.0) + (-x.abs()).exp().ln_1p(), sigmoid(x)],
    }
}

/// Which matrices there are, of `a` and of `b`.
pub(crate) type Given = [[bool; KINDS]; 2];

pub(crate) const GINE: Given = [[false, true, true], [false; KINDS]];
const GATED: Given = [[true, true, false], [false, true, false]];
pub(crate) const ALL: Given = [[true; KINDS]; 2];

impl<'a> Case<'a> {
    pub(crate) fn random<E: Element>(
        graph: &'a Csr,
        width: usize,
        acts: [MessageAct; 2],
        given: Given,
    ) -> Self {
        let ((rows, columns), edges) = (graph.shape(), graph.edges());
        let counts = [rows, columns, edges];
        let terms = [0, 1].map(|term| {
            [0, 1, 2].map(|kind| {
                let random = Random(140 + 3 * term as u32 + kind as u32);
                given[term][kind].then(|| random.uniform::<E>(counts[kind] * width))
            })
        });
        Self {
            graph,
            width,
            acts,
            terms,
            order: None,
            row_scale: None,
            factor: 1.0,
            dy: Random(150).uniform::<E>(rows * width),
        }
    }

    /// With rows of edges in another order, and means in the place of sums.
    pub(crate) fn shuffled(mut self) -> Self {
        self.order = Some(permutation(self.graph.edges(), Random(151)));
        let rows = 0..self.graph.shape().0;
        let degree = |row| self.graph.row_range(row).len().max(1);
        self.row_scale = Some(rows.map(|row| 1.0 / degree(row) as f32).collect());
        self
    }

    /// The row of an edge in the matrices of edges.
    fn row_of(&self, edge: usize) -> usize {
        self.order
            .as_ref()
            .map_or(edge, |order| order[edge] as usize)
    }

    pub(crate) fn run<B: Backend, E: Element>(&self, backend: &B) -> Outcome {
        let (graph, map) = transposed(self.graph);
        let a = Adjacency::new(backend, self.graph).expect("memory for a graph");
        let transposed = Adjacency::new(backend, &graph).expect("memory for a graph");
        let order = |rows: &[u32]| EdgeOrder::new(backend, rows).expect("a permutation");
        let forward = self.order.as_deref().map(order);
        let map: Vec<u32> = map
            .iter()
            .map(|&edge| self.row_of(edge as usize) as u32)
            .collect();
        let backward = order(&map);
        let shape = |values: &[f32]| (values.len() / self.width, self.width);
        let upload = |values: &Option<Vec<f32>>| {
            let upload = |values: &Vec<f32>| matrix::<B, E>(backend, shape(values), values);
            values.as_ref().map(upload)
        };
        let terms = self.terms.each_ref().map(|of| of.each_ref().map(upload));
        let [gate, value] = terms
            .each_ref()
            .map(|[destination, source, edge]| MessageTerms {
                destination: destination.as_ref(),
                source: source.as_ref(),
                edge: edge.as_ref(),
            });
        let row_scale = self
            .row_scale
            .as_ref()
            .map(|scale| elements::<B, f32>(backend, scale));
        let op = Messages {
            gate,
            value,
            acts: self.acts,
            order: forward.as_ref(),
            row_scale: row_scale.as_ref(),
            factor: self.factor,
        };
        let output = (self.graph.shape().0, self.width);
        let mut y = unwritten::<B, E>(backend, output);
        message_sums(backend, &a, op, &mut y).expect("legal sums");
        let dy = matrix::<B, E>(backend, output, &self.dy);
        let mut gradients = terms.each_ref().map(|of| {
            of.each_ref().map(|matrix| {
                let like = |matrix: &Matrix<B, E>| unwritten::<B, E>(backend, matrix.shape());
                matrix.as_ref().map(like)
            })
        });
        let [gate, value] =
            gradients
                .each_mut()
                .map(|[destination, source, edge]| MessageGradients {
                    destination: destination.as_mut(),
                    source: source.as_mut(),
                    edge: edge.as_mut(),
                });
        let operands = MessageBackwardOperands {
            a: &a,
            transposed: (&transposed, Some(&backward)),
            op,
            dy: &dy,
            gate,
            value,
        };
        message_sums_backward(backend, operands).expect("legal gradients");
        Outcome {
            y: read(backend, &y),
            gradients: gradients.each_ref().map(|of| {
                of.each_ref()
                    .map(|matrix| matrix.as_ref().map(|matrix| read(backend, matrix)))
            }),
        }
    }

    /// The output and the gradients in float64.
    fn reference(&self) -> (Vec<Sum>, [[Vec<Sum>; KINDS]; 2]) {
        let (rows, columns) = self.graph.shape();
        let counts = [rows, columns, self.graph.edges()];
        let zeros = |kind: usize| vec![Sum::default(); counts[kind] * self.width];
        let mut y = zeros(0);
        let mut gradients = [0, 1].map(|_| [0, 1, 2].map(zeros));
        let has_value = self.terms[1].iter().any(Option::is_some);
        for row in 0..rows {
            let scale = self.row_scale.as_ref().map_or(1.0, |scale| scale[row]);
            let scale = f64::from(self.factor * scale);
            for edge in self.graph.row_range(row) {
                let ends = [row, self.graph.cols()[edge] as usize, self.row_of(edge)];
                for column in 0..self.width {
                    let at = ends.map(|row| row * self.width + column);
                    let sums = self.terms.each_ref().map(|of| {
                        let mut sum = Sum::default();
                        for (values, at) in of.iter().zip(at) {
                            if let Some(values) = values {
                                sum.add(f64::from(values[at]));
                            }
                        }
                        sum
                    });
                    let [f, df] = exact(self.acts[0], sums[0].value);
                    let [g, dg] = match has_value {
                        true => exact(self.acts[1], sums[1].value),
                        false => [1.0, 0.0],
                    };
                    let [size_f, size_g] = [f.abs() + sums[0].size, g.abs() + sums[1].size];
                    let add = |sum: &mut Sum, value: f64, size: f64| {
                        sum.value += value * scale;
                        sum.size += size * scale;
                    };
                    add(&mut y[at[0]], f * g, size_f * size_g);
                    let d = f64::from(self.dy[at[0]]);
                    let of = [
                        (df * g * d, size_g * d.abs()),
                        (f * dg * d, size_f * d.abs()),
                    ];
                    for (gradients, (value, size)) in gradients.iter_mut().zip(of) {
                        for (gradient, at) in gradients.iter_mut().zip(at) {
                            add(&mut gradient[at], value, size);
                        }
                    }
                }
            }
        }
        (y, gradients)
    }

    fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let what = format!(
            "{what}, {:?} of {} columns in {}",
            self.acts,
            self.width,
            E::PRECISION
        );
        let found = self.run::<B, E>(backend);
        let (y, gradients) = self.reference();
        let back = self.graph.transposed();
        let allowed = |edges: usize| Allowed::float(edges + 40);
        let rows = |row| allowed(self.graph.row_range(row).len());
        let columns = |row| allowed(back.row_range(row).len());
        let each = |_| allowed(1);
        assert_close::<E>(&format!("{what}: y"), &found.y, &y, self.width, rows);
        for (term, (found, expected)) in found.gradients.iter().zip(&gradients).enumerate() {
            let name = |kind: &str| format!("{what}: gradient {term} of {kind}");
            let [destinations, sources, edges] = found;
            if let Some(found) = destinations {
                let name = name("destinations");
                assert_close::<E>(&name, found, &expected[0], self.width, rows);
            }
            if let Some(found) = sources {
                assert_close::<E>(&name("sources"), found, &expected[1], self.width, columns);
            }
            if let Some(found) = edges {
                assert_close::<E>(&name("edges"), found, &expected[2], self.width, each);
            }
        }
    }
}

/// A graph's transpose, and which of its edges each edge of that is.
pub(crate) fn transposed(graph: &Csr) -> (Csr, Vec<u32>) {
    let mut edges: Vec<(u32, u32)> = Vec::new();
    for row in 0..graph.shape().0 {
        edges.extend(
            graph
                .row_range(row)
                .map(|edge| (graph.cols()[edge], edge as u32)),
        );
    }
    edges.sort_unstable();
    (
        graph.transposed(),
        edges.into_iter().map(|(_, edge)| edge).collect(),
    )
}

fn on_all<B: Backend>(
    backend: &B,
    graph: &Csr,
    (width, acts, given): (usize, [MessageAct; 2], Given),
    what: &str,
) {
    macro_rules! check {
        ($($format:ty)*) => {$(
            let case = Case::random::<$format>(graph, width, acts, given);
            case.check::<B, $format>(backend, what);
            let mut shuffled = case.shuffled();
            shuffled.check::<B, $format>(backend, &format!("{what}, shuffled"));
            shuffled.factor = 1.5;
            shuffled.check::<B, $format>(backend, &format!("{what}, shuffled, by a factor"));
        )*};
    }
    check!(f16 bf16 f32);
}

const RELU: [MessageAct; 2] = [MessageAct::Relu, MessageAct::Identity];
const SIGMOID: [MessageAct; 2] = [MessageAct::Sigmoid, MessageAct::Identity];

/// Odd graphs, rectangular ones, and a row that many warps share.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_all(backend, &graph, (9, RELU, GINE), name);
    }
    for (name, graph) in graphs::rectangular(scale) {
        on_all(backend, &graph, (5, SIGMOID, GATED), name);
    }
    let hub = hub(scale.pick(400, 9_000));
    on_all(backend, &hub, (41, SIGMOID, ALL), "a hub");
}

/// Widths up to several tiles of columns.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(30, scale.pick(100, 3_000), Random(152));
    for width in [1, 2, 7, 8, 33, 64, 127, 256, 264, 300] {
        on_all(backend, &graph, (width, RELU, GINE), "power law");
    }
}

/// Each activation in each place, and each set of matrices.
pub fn every_message<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(30, scale.pick(100, 3_000), Random(153));
    for act in MessageAct::ALL {
        let other = MessageAct::ALL[5 - act.number() as usize];
        on_all(backend, &graph, (16, [act, other], ALL), "power law");
    }
    let singles = [
        [true, false, false],
        [false, true, false],
        [false, false, true],
    ];
    for (i, gate) in singles.into_iter().enumerate() {
        for value in [[false; KINDS], singles[(i + 1) % KINDS]] {
            on_all(backend, &graph, (8, SIGMOID, [gate, value]), "power law");
        }
    }
}

/// Sums far outside of half's range become infinite in the output alone; means of the same stay. Gradients of what is saturated vanish.
pub fn extremes<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (0, 2), (1, 2)]);
    let mut case = Case::random::<f16>(&graph, 8, RELU, GINE);
    case.terms[0][1] = Some(vec![60_000.0; 24]);
    case.terms[0][2] = Some(vec![65_504.0; 32]);
    let found = case.run::<B, f16>(backend);
    assert_eq!(found.y[..8], [f32::INFINITY; 8]);
    assert_eq!(found.y[16..], [0.0; 8]);
    case.row_scale = Some(vec![0.125; 3]);
    let found = case.run::<B, f16>(backend);
    let expected = f16::from_f64(3.0 * (60_000.0 + 65_504.0) / 8.0).to_f32();
    assert_eq!(found.y[..8], [expected; 8]);
    (case.row_scale, case.factor) = (None, 0.125);
    let found = case.run::<B, f16>(backend);
    assert_eq!(found.y[..8], [expected; 8]);
    let mut case = Case::random::<f16>(&graph, 8, SIGMOID, GATED);
    case.terms[0][0] = Some(vec![-65_504.0; 24]);
    let found = case.run::<B, f16>(backend);
    assert_eq!(found.y, [0.0; 24]);
    let of_gate = found.gradients[0][0].as_ref().expect("there is one");
    assert_eq!(of_gate, &[0.0; 24]);
}

/// A NaN stays in the rows and columns that its edges lead to, and out of padding.
pub fn nan_stays_in_its_rows<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]);
    let mut case = Case::random::<f16>(&graph, 5, RELU, GINE);
    case.terms[0][1].as_mut().expect("sources")[0] = f32::NAN;
    let found = case.run::<B, f16>(backend);
    assert!(found.y[0].is_nan());
    assert!(found.y[1..].iter().all(|value| value.is_finite()));
}

/// The same bits every time.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(800, 8_000), Random(154));
    let case = Case::random::<f16>(&graph, 24, SIGMOID, ALL).shuffled();
    let (a, b) = (case.run::<B, f16>(backend), case.run::<B, f16>(backend));
    assert_eq!(bits(&a.y), bits(&b.y));
    for (a, b) in a
        .gradients
        .iter()
        .flatten()
        .zip(b.gradients.iter().flatten())
    {
        assert_eq!(a.as_deref().map(bits), b.as_deref().map(bits));
    }
}

/// Operands that do not fit.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (2, 0)]);
    let a = Adjacency::new(backend, &graph).expect("memory for a graph");
    let refused = |shapes: [Option<(usize, usize)>; KINDS], output: (usize, usize)| {
        let make = |(rows, columns)| {
            matrix::<B, f16>(backend, (rows, columns), &vec![0.0; rows * columns])
        };
        let [destination, source, edge] = shapes.map(|shape| shape.map(make));
        let op = Messages {
            gate: MessageTerms {
                destination: destination.as_ref(),
                source: source.as_ref(),
                edge: edge.as_ref(),
            },
            value: MessageTerms::NONE,
            acts: RELU,
            order: None,
            row_scale: None,
            factor: 1.0,
        };
        let sums = message_sums(backend, &a, op, &mut make(output));
        sums.expect_err("a misfit").to_string()
    };
    let cases = [
        (
            refused([Some((2, 8)), None, None], (3, 8)),
            "rows of destinations should be 3, is 2",
        ),
        (
            refused([Some((3, 8)), Some((3, 9)), None], (3, 8)),
            "columns of sources should be 8, is 9",
        ),
        (
            refused([None, None, Some((3, 8))], (3, 8)),
            "rows of edges should be 2, is 3",
        ),
        (
            refused([None, Some((3, 8)), None], (3, 7)),
            "columns of the output should be 8, is 7",
        ),
        (
            refused([None; 3], (3, 8)),
            "there are no rows to compute messages of",
        ),
    ];
    for (found, words) in cases {
        assert_eq!(found, format!("message_sums: {words}"));
    }
    for (rows, words) in [
        (&[0, 0][..], "row 0 of 2 rows of edges is named twice"),
        (&[0, 2], "row 2 of 2 rows of edges is not there"),
    ] {
        let error = EdgeOrder::new(backend, rows).expect_err("no permutation");
        assert_eq!(error.to_string(), format!("EdgeOrder: {words}"));
    }
}
