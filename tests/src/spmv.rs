//! SpMV: a graph times a vector, on graphs whose rows end at every boundary of lanes and warps and span many of them.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular, transposed};
use crate::input::{KIND, Random, elements, rounded};
use crate::reference::{Allowed, Sum, assert_close};
use crate::segment::planes;
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops;
use halfgnn::tensor::{Array, Element};

/// The product on the host's numbers, into a vector of NaN.
pub fn run<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    weights: Option<&[f32]>,
    x: &[f32],
) -> Vec<f32> {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let weights = weights.map(|weights| planes::<B, E>(backend, 1, weights));
    let x = elements::<B, E>(backend, x);
    let mut y = elements::<B, E>(backend, &vec![f32::NAN; graph.shape().0]);
    ops::spmv(backend, &a, weights.as_ref(), &x, &mut y).expect("legal");
    let y = y.to_vec(backend).expect("no failure before");
    y.into_iter().map(E::to_f32).collect()
}

fn graphs(scale: Scale) -> Vec<(String, Csr)> {
    let named = |(name, graph): (&str, Csr)| (name.to_string(), graph);
    let mut graphs: Vec<_> = odd(scale).into_iter().map(named).collect();
    graphs.extend(rectangular(scale).into_iter().map(named));
    graphs.extend(boundaries(scale));
    // Rows of so many parts that a lane joins them, or a whole warp.
    for warps in [8, 9, 10, 41] {
        let degrees = [77, 128 * warps, 3, 128 * warps - 77, 0, 5];
        let name = format!("two rows of about {warps} warps");
        graphs.push((name, from_degrees(&degrees, Random(95))));
    }
    graphs.push(("a hub".into(), hub(scale.pick(6_000, 300_000))));
    graphs
}

/// Sums of small integers, which float holds exactly in any order: rounded once, whatever they are.
pub fn integers_are_exact<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graphs: &[(String, Csr)]) {
        for (name, graph) in graphs {
            let x = Random(96).integers(8, graph.shape().1);
            let weights = Random(97).integers(4, graph.edges());
            for weights in [None, Some(&weights[..])] {
                let term = |edge: usize| {
                    weights.map_or(1.0, |weights| weights[edge]) * x[graph.cols()[edge] as usize]
                };
                let sum = |row| rounded::<E>(graph.row_range(row).map(term).sum());
                let expected: Vec<f32> = (0..graph.shape().0).map(sum).collect();
                let found = run::<B, E>(backend, graph, weights, &x);
                assert_eq!(found, expected, "{name}, weights {}", weights.is_some());
            }
        }
    }
    let graphs = graphs(scale);
    check::<B, f16>(backend, &graphs);
    check::<B, bf16>(backend, &graphs);
    check::<B, f32>(backend, &graphs);
}

/// Sums of anything are within the bound of float64, and have the same bits again.
pub fn sums_are_close_and_repeat<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let x = Random(98).uniform::<E>(graph.shape().1);
        let weights = Random(99).uniform::<E>(graph.edges());
        let found = run::<B, E>(backend, graph, Some(&weights), &x);
        let mut expected = vec![Sum::default(); graph.shape().0];
        for (edge, (&row, &column)) in graph.rows().iter().zip(graph.cols()).enumerate() {
            expected[row as usize].add(f64::from(weights[edge]) * f64::from(x[column as usize]));
        }
        assert_close::<E>("spmv", &found, &expected, 1, |row| {
            Allowed::float(graph.row_range(row).len())
        });
        assert_eq!(run::<B, E>(backend, graph, Some(&weights), &x), found);
    }
    let graph = power_law(60, scale.pick(5_000, 200_000), Random(84));
    check::<B, f16>(backend, &graph);
    check::<B, bf16>(backend, &graph);
    check::<B, f32>(backend, &graph);
}

/// The gradient is the product with the transpose: ⟨A x, g⟩ = ⟨x, Aᵀ g⟩, in integers exactly.
pub fn adjoint<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let (rows, columns) = graph.shape();
        let x = Random(100).integers(3, columns);
        let g = Random(101).integers(3, rows);
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            terms.sum()
        };
        let y = run::<B, f32>(backend, &graph, None, &x);
        let back = run::<B, f32>(backend, &graph.transposed(), None, &g);
        assert_eq!(dot(&y, &g), dot(&x, &back), "{name}");
    }
}

/// A NaN or an infinity reaches the rows that name it and no other, with a weight of zero too.
pub fn infinities_stay_in_their_rows<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[3, 130, 0, 1, 260, 7], Random(85));
    for bad in [f32::NAN, f32::INFINITY] {
        for column in 0..6 {
            let mut x = Random(86).uniform::<f16>(6);
            x[column] = bad;
            let names = |row: usize| graph.row(row).contains(&(column as u32));
            let zeros = vec![0.0; graph.edges()];
            for (row, value) in run::<B, f16>(backend, &graph, None, &x).iter().enumerate() {
                assert_eq!(
                    value.is_finite(),
                    !names(row),
                    "{bad} in {column}: {row} is {value}"
                );
            }
            let found = run::<B, f16>(backend, &graph, Some(&zeros), &x);
            for (row, value) in found.iter().enumerate() {
                assert_eq!(
                    value.is_nan(),
                    names(row),
                    "{bad} in {column}: {row} is {value}"
                );
            }
        }
    }
}

/// Operands that do not fit are refused in one line.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = transposed(&from_degrees(&[2, 1, 0], Random(94)));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let of = |len| Array::<B, f16>::zeros(backend, len, KIND).expect("room");
    let refused = |x, weights: Option<usize>, y| {
        let weights = weights.map(of);
        let error = ops::spmv(backend, &a, weights.as_ref(), &of(x), &mut of(y));
        error.expect_err("a misfit").to_string()
    };
    for (error, told) in [
        (refused(2, None, 3), "elements of x"),
        (refused(3, None, 4), "elements of y"),
        (refused(3, Some(3), 3), "edge weights"),
    ] {
        assert!(error.contains("spmv") && error.contains(told), "{error}");
    }
}
