//! SDDMM of values that go wrong, and what holds for it whatever its values.

use crate::Scale;
use crate::graphs;
use crate::input::{Random, bits};
use crate::reference::exact_integers;
use crate::sddmm::{Case, policies};
use crate::spmm::{self, IN_FLOAT, Weighted};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::SddmmPolicy;
use halfgnn::tensor::Element;

/// Dot products of small integers, which half holds exactly, under every policy.
pub fn integers_are_exact<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        for (name, graph) in graphs::odd(Scale::Small) {
            for &policy in policies::<E>() {
                for (heads, features) in [(1, 50), (3, 16)] {
                    let case = Case::random::<E>(&graph, heads, features, policy)
                        .integers((exact_integers::<E>() / 50).isqrt());
                    let stride = heads * features;
                    let of = |values: &[f32], vertex: u32, head: usize| -> Vec<f32> {
                        values[vertex as usize * stride + head * features..][..features].to_vec()
                    };
                    let mut expected = Vec::new();
                    for head in 0..heads {
                        for (&row, &column) in graph.rows().iter().zip(graph.cols()) {
                            let (u, v) = (of(&case.u, row, head), of(&case.v, column, head));
                            expected.push(u.iter().zip(&v).map(|(u, v)| u * v).sum::<f32>());
                        }
                    }
                    let what = (name, policy, E::PRECISION, heads);
                    assert_eq!(case.run::<B, E>(backend), expected, "{what:?}");
                }
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// A NaN and an infinity reach the edges of their vertex, and no other: neither the edges beside them in a sub-warp, a
/// step or a tile, nor through lanes that a row has no features for.
pub fn infinities_stay_in_their_edges<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = graphs::power_law(80, scale.pick(700, 2_000), Random(70));
        for &policy in policies::<E>() {
            for features in [3, 24, 40, 64] {
                let mut case = Case::random::<E>(&graph, 1, features, policy).integers(3);
                // No zero meets the infinity.
                let odd = |value: &f32| if *value == 0.0 { 1.0 } else { *value };
                case.u = case.u.iter().map(odd).collect();
                let clean = case.run::<B, E>(backend);
                case.u[17 * features + 2] = f32::NAN;
                case.v[5 * features + features - 1] = f32::INFINITY;
                let e = case.run::<B, E>(backend);
                let ends = graph.rows().iter().zip(graph.cols());
                for (edge, (&row, &column)) in ends.enumerate() {
                    let met = match (row, column) {
                        (17, _) => e[edge].is_nan(),
                        (_, 5) => e[edge].is_infinite(),
                        _ => e[edge] == clean[edge],
                    };
                    let what = (row, column, features, policy);
                    assert!(
                        met,
                        "edge {edge}, {what:?}: {} after {}",
                        e[edge], clean[edge]
                    );
                }
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Products of subnormal halves are added up like any other.
pub fn subnormals_are_kept<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::power_law(10, 60, Random(71));
    let step = 2.0_f32.powi(-24);
    for &policy in policies::<f16>() {
        let mut case = Case::random::<f16>(&graph, 1, 9, policy);
        (case.u, case.v) = (vec![3.0 * step; 90], vec![1.0; 90]);
        assert_eq!(
            case.run::<B, f16>(backend),
            vec![27.0 * step; 60],
            "{policy:?}"
        );
    }
}

/// One matrix may be both operands: then an edge and its reverse have one value.
pub fn symmetric<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let forward = graphs::power_law(40, scale.pick(300, 900), Random(72));
        let backward = graphs::transposed(&forward);
        let of = |graph| {
            let mut case = Case::random::<E>(graph, 1, 20, SddmmPolicy::default()).integers(5);
            case.v = case.u.clone();
            let values = case.run::<B, E>(backend);
            let mut pairs: Vec<(u32, u32, i32)> = Vec::new();
            for (edge, value) in values.iter().enumerate() {
                let (row, column) = (graph.rows()[edge], graph.cols()[edge]);
                pairs.push((row.min(column), row.max(column), *value as i32));
            }
            pairs.sort_unstable();
            pairs
        };
        assert_eq!(of(&forward), of(&backward));
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// ⟨sddmm(u, v), w⟩ = ⟨u, spmm_w(v)⟩: what the gradients of an SDDMM rest on.
pub fn adjoint_of_spmm<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        const FEATURES: usize = 12;
        let graph = graphs::power_law(50, scale.pick(400, 1_000), Random(73));
        for &policy in policies::<E>() {
            let case = Case::random::<E>(&graph, 1, FEATURES, policy).integers(2);
            let mut product =
                spmm::Case::random::<E>(&graph, FEATURES, IN_FLOAT).weighted::<E>(Weighted::Edges);
            product.x = case.v.clone();
            product.weights = Random(74).integers(2, graph.edges());
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                let terms = a.iter().zip(b);
                terms.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
            };
            let e = case.run::<B, E>(backend);
            assert!(e.iter().any(|&value| value != 0.0));
            assert_eq!(
                dot(&e, &product.weights),
                dot(&case.u, &product.run::<B, E>(backend)),
                "{policy:?}"
            );
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Ten runs give the same bits, under every policy, with few threads and with many.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = graphs::power_law(200, scale.pick(2_500, 60_000), Random(75));
        for &policy in policies::<E>() {
            let mut case = Case::random::<E>(&graph, 1, 41, policy);
            let first = bits(&case.run::<B, E>(backend));
            for run in 1..scale.pick(3, 10) {
                case.op.policy.ctas_per_multiprocessor = Some(run);
                assert!(bits(&case.run::<B, E>(backend)) == first, "{policy:?}");
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}
