//! SpMM of rows that cross chunks of CTAs, so that their parts are added chunk by chunk.

use crate::Scale;
use crate::coo::BY_ROW_IDS;
use crate::graphs;
use crate::input::{Random, bits, elements, matrix, rounded};
use crate::quantized;
use crate::spmm::{Case, Ending, IN_FLOAT, IN_HALF, POST, PRE, Weighted, has_arithmetic};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::graph::Csr;
use halfgnn::ops::{Addend, Aggregation, Spmm, SpmmEpilogue, SpmmPolicy};
use halfgnn::tensor::{Element, Precision};

/// Columns of the graph, an even number.
const COLUMNS: usize = 1_200;

/// Long rows one behind the other, between short ones: the second begins in a chunk in which the first ends.
fn graph() -> Csr {
    let degrees = [3, 0, 70_300, 2, 513, 1, 0, 40_000, 5];
    let square = graphs::from_degrees(&degrees, Random(110));
    let cols: Vec<u32> = (0..square.edges())
        .map(|edge| Random(111).bits(edge) % COLUMNS as u32)
        .collect();
    Csr::rectangular_from_edges((degrees.len(), COLUMNS), square.rows(), &cols)
        .expect("edges of the graph")
}

/// Columns, and edges a warp: one load a row, packed lanes, and several tiles of 32 floats.
fn shapes<E: Element>() -> [(usize, u32); 3] {
    match E::PRECISION {
        Precision::Float => [(3, 128), (20, 64), (35, 16)],
        Precision::Half | Precision::BFloat16 => [(3, 128), (40, 64), (70, 16)],
    }
}

fn of_warps(policy: SpmmPolicy, edges: u32) -> SpmmPolicy {
    SpmmPolicy {
        edges_per_warp: Some(edges),
        ..policy
    }
}

/// Integers of which each second row has the opposite: sums of many stay small. Of each `every` pairs of rows one is not zero: of 40, the
/// longest row has fewer edges to those than half counts, so that half holds what any warp has of its parts.
fn balanced(features: usize, every: usize) -> Vec<f32> {
    let rows = Random(112).integers(1, COLUMNS / 2 * features);
    let mut pairs = Vec::new();
    for (i, row) in rows.chunks_exact(features).enumerate() {
        let factor = if i % every == 0 { 1.0 } else { 0.0 };
        pairs.extend(row.iter().map(|value| factor * value));
        pairs.extend(row.iter().map(|value| -factor * value));
    }
    pairs
}

/// Sums of integers, under every policy that merges parts, with weights of edges and an epilogue: no part is lost, and none is
/// added twice.
pub fn integers_are_exact<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, case: &Case<'_>) {
        let features = case.features;
        let mut sums = vec![0.0_f32; case.graph.vertices() * features];
        for (edge, (&row, &column)) in case.graph.rows().iter().zip(case.graph.cols()).enumerate() {
            let weight = case.weights.get(edge).map_or(1.0, |&weight| weight);
            for k in 0..features {
                sums[row as usize * features + k] +=
                    weight * case.x[column as usize * features + k];
            }
        }
        for (i, sum) in sums.iter_mut().enumerate() {
            if let Some((factor, _)) = case.ending.addend {
                *sum += factor * case.x[i];
            }
            if let Some(bias) = &case.ending.bias {
                *sum += bias[i % features];
            }
            if case.ending.relu {
                *sum = sum.max(0.0);
            }
            *sum = rounded::<E>(*sum);
        }
        let found = case.run::<B, E>(backend);
        let differs = found.iter().zip(&sums).position(|(a, b)| a != b);
        assert!(
            differs.is_none(),
            "element {differs:?} is {:?}, should be {:?}; {features} columns of {}, {:?}, {:?}, {:?}",
            differs.map(|at| found[at]),
            differs.map(|at| sums[at]),
            E::PRECISION,
            case.policy,
            case.weighted,
            case.ending
        );
    }
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for (features, edges) in shapes::<E>() {
            let of = |policy| {
                let mut case = Case::random::<E>(graph, features, of_warps(policy, edges));
                let merges_in_half = [POST, PRE].iter().any(|of| of.scaling == policy.scaling);
                case.x = balanced(features, if merges_in_half { 40 } else { 1 });
                case
            };
            let policies = [IN_FLOAT, IN_HALF, POST, PRE, BY_ROW_IDS];
            let in_half = E::PRECISION == Precision::Half;
            for policy in policies.into_iter().filter(|policy| {
                has_arithmetic::<E>(policy) && (in_half || [IN_FLOAT, BY_ROW_IDS].contains(policy))
            }) {
                check::<B, E>(backend, &of(policy));
            }
            let mut weighted = of(IN_FLOAT);
            weighted.weighted = Weighted::Edges;
            weighted.weights = (0..graph.edges())
                .map(|edge| 1.0 + (Random(113).bits(edge) % 2) as f32)
                .collect();
            check::<B, E>(backend, &weighted);
            let mut ended = of(IN_FLOAT);
            ended.ending = Ending {
                addend: Some((2.0, None)),
                bias: Some(Random(114).integers(3, features)),
                relu: true,
                ..Ending::default()
            };
            check::<B, E>(backend, &ended);
        }
    }
    let graph = graph();
    of_element::<B, f16>(backend, &graph);
    of_element::<B, bf16>(backend, &graph);
    of_element::<B, f32>(backend, &graph);
}

/// The largest product of each column, which is in one part alone.
pub fn maxima<B: Backend>(backend: &B, _: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let (features, edges) = shapes::<E>()[2];
        let mut case = Case::random::<E>(graph, features, of_warps(IN_FLOAT, edges))
            .weighted::<E>(Weighted::Edges);
        case.aggregation = Aggregation::Max;
        let mut largest = vec![None::<f32>; graph.vertices() * features];
        for (edge, (&row, &column)) in graph.rows().iter().zip(graph.cols()).enumerate() {
            for k in 0..features {
                let x = case.x[column as usize * features + k];
                let product = rounded::<E>(case.weights[edge] * x);
                let largest = &mut largest[row as usize * features + k];
                *largest = Some(largest.map_or(product, |largest| largest.max(product)));
            }
        }
        let expected: Vec<f32> = largest.into_iter().map(Option::unwrap_or_default).collect();
        assert!(
            case.run::<B, E>(backend) == expected,
            "{} precision",
            E::PRECISION
        );
    }
    let graph = graph();
    of_element::<B, f16>(backend, &graph);
    of_element::<B, bf16>(backend, &graph);
    of_element::<B, f32>(backend, &graph);
}

/// Means of numbers that are rounded have the same bits from run to run and by row ids, and are close.
pub fn means_repeat<B: Backend>(backend: &B, scale: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr, runs: usize) {
        for (features, edges) in [shapes::<E>()[0], shapes::<E>()[2]] {
            let by = |policy| {
                let case = Case::random::<E>(graph, features, of_warps(policy, edges));
                case.averaged()
            };
            by(IN_FLOAT).check::<B, E>(backend, "long rows");
            let first = bits(&by(IN_FLOAT).run::<B, E>(backend));
            for policy in [IN_FLOAT, BY_ROW_IDS].repeat(runs) {
                let again = bits(&by(policy).run::<B, E>(backend));
                assert!(again == first, "{} precision, {policy:?}", E::PRECISION);
            }
        }
    }
    let graph = graph();
    of_element::<B, f16>(backend, &graph, scale.pick(1, 5));
    of_element::<B, f32>(backend, &graph, scale.pick(1, 5));
}

/// Sums of quantized values, with an epilogue and without: the bits of those of elements.
pub fn quantized<B: Backend>(backend: &B, _: Scale) {
    fn of_element<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let (features, rows) = (24, graph.vertices());
        let addend = Random(115).uniform::<E>(rows * features);
        let addend = matrix::<B, E>(backend, (rows, features), &addend);
        let factors: Vec<f32> = (graph.row_degrees().into_iter())
            .map(|degree| 1.0 / degree.max(1) as f32)
            .collect();
        let factors = elements::<B, f32>(backend, &factors);
        let endings = [
            SpmmEpilogue::default(),
            SpmmEpilogue {
                addend: Some(Addend {
                    matrix: &addend,
                    factor: 1.25,
                    row_scale: None,
                    epsilon: None,
                }),
                relu: true,
                ..SpmmEpilogue::default()
            },
        ];
        for epilogue in endings {
            let op = Spmm {
                row_scale: Some(&factors),
                policy: of_warps(IN_FLOAT, 128),
                epilogue,
                ..Spmm::default()
            };
            quantized::check::<B, E>(backend, graph, features, &op, "long rows");
        }
    }
    let graph = graph();
    of_element::<B, f16>(backend, &graph);
    of_element::<B, bf16>(backend, &graph);
}
