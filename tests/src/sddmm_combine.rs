//! SDDMM without a dot product: every operator on every pair of operands, bit for bit.

use crate::Scale;
use crate::graphs;
use crate::input::{Random, bits, elements};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{self, EdgeCombine, EdgeOperand, edge_plane};
use halfgnn::tensor::{Array, Element};

const HEADS: usize = 3;

/// What an operand is a number of.
#[derive(Clone, Copy, Debug)]
enum Of {
    Row,
    Column,
    Edge,
}

const ALL: [Of; 3] = [Of::Row, Of::Column, Of::Edge];

/// Planes of an operand, and its number for each head and edge.
fn planes<E: Element>(graph: &Csr, of: Of, random: u32) -> (Vec<f32>, Vec<f32>) {
    let plane = match of {
        Of::Edge => edge_plane(graph.edges()),
        Of::Row => graph.shape().0,
        Of::Column => graph.shape().1,
    };
    let mut values = Random(random).uniform::<E>(HEADS * plane);
    // Zeros of both signs, an infinity and a NaN are numbers like any other.
    let odd = [(3, 0.0), (5, -0.0), (7, f32::INFINITY), (9, f32::NAN)];
    for (at, value) in odd.into_iter().filter(|&(at, _)| at < HEADS * plane) {
        values[at] = value;
    }
    let mut numbers = Vec::new();
    for head in 0..HEADS {
        for edge in 0..graph.edges() {
            let at = match of {
                Of::Row => graph.rows()[edge] as usize,
                Of::Column => graph.cols()[edge] as usize,
                Of::Edge => edge,
            };
            numbers.push(values[head * plane + at]);
        }
    }
    (values, numbers)
}

/// An operand on a backend.
enum Planes<B: Backend, E: Element> {
    Vertices(Array<B, f32>),
    Edges(Array<B, E>),
}

impl<B: Backend, E: Element> Planes<B, E> {
    fn new(backend: &B, of: Of, values: &[f32]) -> Self {
        match of {
            Of::Edge => Planes::Edges(elements(backend, values)),
            Of::Row | Of::Column => Planes::Vertices(elements(backend, values)),
        }
    }

    fn operand(&self, of: Of) -> EdgeOperand<'_, B, E> {
        match (self, of) {
            (Planes::Vertices(values), Of::Row) => EdgeOperand::Row(values),
            (Planes::Vertices(values), _) => EdgeOperand::Column(values),
            (Planes::Edges(values), _) => EdgeOperand::Edge(values),
        }
    }
}

fn run<B: Backend, E: Element>(backend: &B, graph: &Csr, op: &EdgeCombine<'_, B, E>) -> Vec<f32> {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let plane = edge_plane(graph.edges());
    let mut e: Array<B, E> = elements(backend, &vec![f32::NAN; HEADS * plane]);
    ops::combine_edges(backend, &a, HEADS, op, &mut e).expect("legal operands");
    let mut values = Vec::new();
    for plane in e
        .to_vec(backend)
        .expect("no failure before")
        .chunks_exact(plane.max(1))
    {
        let (edges, end) = plane.split_at(graph.edges());
        assert!(
            end.iter().all(|value| value.to_f32().to_bits() == 0),
            "{end:?}"
        );
        values.extend(edges.iter().map(|value| value.to_f32()));
    }
    values
}

/// Each is one operation in float, rounded once; so all backends have the same bits.
pub fn every_operator<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let same = |what: &str, actual: Vec<f32>, expected: Vec<f32>| {
            let canonical = |values: &[f32]| -> Vec<u32> {
                let one_nan = |value: &f32| if value.is_nan() { f32::NAN } else { *value };
                bits(&values.iter().map(one_nan).collect::<Vec<_>>())
            };
            assert!(
                canonical(&actual) == canonical(&expected),
                "{what}: {actual:?} for {expected:?}"
            );
        };
        let rounded = |value: f32| E::from_f32(value).to_f32();
        for left in ALL {
            let (values, x) = planes::<E>(graph, left, 80);
            let a = Planes::<B, E>::new(backend, left, &values);
            let copy = EdgeCombine::Copy(a.operand(left));
            let expected = x.iter().map(|&x| rounded(x)).collect();
            same(
                &format!("a copy of {left:?}"),
                run(backend, graph, &copy),
                expected,
            );
            for right in ALL {
                let (values, y) = planes::<E>(graph, right, 81);
                let b = Planes::<B, E>::new(backend, right, &values);
                type Case<'a, B, E> = (EdgeCombine<'a, B, E>, fn(f32, f32) -> f32);
                let operands = || (a.operand(left), b.operand(right));
                let ((a0, b0), (a1, b1), (a2, b2), (a3, b3)) =
                    (operands(), operands(), operands(), operands());
                let cases: [Case<'_, B, E>; 4] = [
                    (EdgeCombine::Add(a0, b0), |x, y| x + y),
                    (EdgeCombine::Subtract(a1, b1), |x, y| x - y),
                    (EdgeCombine::Multiply(a2, b2), |x, y| x * y),
                    (EdgeCombine::Divide(a3, b3), |x, y| x / y),
                ];
                for (op, f) in &cases {
                    let expected = x.iter().zip(&y).map(|(&x, &y)| rounded(f(x, y))).collect();
                    same(&format!("{op:?}"), run(backend, graph, op), expected);
                }
            }
        }
    }
    for edges in [13, 64, scale.pick(601, 5_003)] {
        let graph = graphs::power_law(40, edges, Random(82));
        check::<B, f16>(backend, &graph);
        check::<B, bf16>(backend, &graph);
        check::<B, f32>(backend, &graph);
    }
    for (_, graph) in graphs::rectangular(Scale::Small) {
        check::<B, f16>(backend, &graph);
        check::<B, f32>(backend, &graph);
    }
}

/// Operands that do not fit are refused by name.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::power_law(40, 100, Random(83));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let (vertices, edges): (Array<B, f32>, Array<B, f16>) = (
        elements(backend, &[1.0; 80]),
        elements(backend, &[1.0; 208]),
    );
    let refused = |heads, op: &EdgeCombine<'_, B, f16>, len: usize| {
        let mut e = elements(backend, &vec![0.0; len]);
        let error = ops::combine_edges(backend, &a, heads, op, &mut e).expect_err("a misfit");
        error.to_string()
    };
    let sum = EdgeCombine::Add(EdgeOperand::Row(&vertices), EdgeOperand::Edge(&edges));
    assert_eq!(
        refused(1, &sum, 104),
        "combine_edges: the first operand should be 40, is 80"
    );
    assert_eq!(
        refused(2, &sum, 200),
        "combine_edges: edge values should be 208, is 200"
    );
    assert_eq!(
        refused(0, &sum, 208),
        "combine_edges: 0 heads; 1 to 65535 are possible"
    );
    assert_eq!(
        refused(65_536, &sum, 208),
        "combine_edges: 65536 heads; 1 to 65535 are possible"
    );
    let short = elements(backend, &[1.0; 104]);
    let product = EdgeCombine::Multiply(EdgeOperand::Column(&vertices), EdgeOperand::Edge(&short));
    assert_eq!(
        refused(2, &product, 208),
        "combine_edges: the second operand should be 208, is 104"
    );
}
