//! What holds for an SpMM whatever its values: in small integers it holds exactly.

use crate::Scale;
use crate::graphs::{permutation, power_law, renamed, transposed};
use crate::input::{Random, bits};
use crate::spmm::{Case, IN_HALF, SCHEDULES, Weighted, policies, weighted_policies};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::graph::Csr;
use halfgnn::tensor::Element;

const FEATURES: usize = 5;

fn graph(scale: Scale, random: u32) -> Csr {
    power_law(50, scale.pick(600, 1_000), Random(random))
}

fn integers<'a, E: Element>(graph: &'a Csr, random: u32) -> Case<'a> {
    let mut case = Case::random::<E>(graph, FEATURES, IN_HALF);
    case.x = Random(random).integers(2, case.x.len());
    case
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// ⟨Ax, y⟩ = ⟨x, Aᵀy⟩.
pub fn adjoint<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let forward = graph(scale, 40);
        let backward = transposed(&forward);
        let (x, y) = (integers::<E>(&forward, 41), integers::<E>(&backward, 42));
        let (ax, aty) = (x.run::<B, E>(backend), y.run::<B, E>(backend));
        assert!(ax.iter().any(|&value| value != 0.0));
        assert_eq!(dot(&ax, &y.x), dot(&x.x, &aty));
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Renaming the vertices renames the rows of the answer.
pub fn permutations_commute<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = graph(scale, 43);
        let names = permutation(graph.vertices(), Random(44));
        let other = renamed(&graph, &names);
        let rename = |rows: &[f32]| {
            let mut out = vec![0.0; rows.len()];
            for (row, &name) in rows.chunks_exact(FEATURES).zip(&names) {
                out[name as usize * FEATURES..][..FEATURES].copy_from_slice(row);
            }
            out
        };
        let case = integers::<E>(&graph, 45);
        let renamed = Case {
            graph: &other,
            x: rename(&case.x),
            ..case.clone()
        };
        assert_eq!(
            renamed.run::<B, E>(backend),
            rename(&case.run::<B, E>(backend))
        );
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// A(2x + y) = 2Ax + Ay.
pub fn linear<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = graph(scale, 46);
        let (x, y) = (integers::<E>(&graph, 47), integers::<E>(&graph, 48));
        let combine = |a: &[f32], b: &[f32]| -> Vec<f32> {
            a.iter().zip(b).map(|(a, b)| a + a + b).collect()
        };
        let both = Case {
            x: combine(&x.x, &y.x),
            ..x.clone()
        };
        let expected = combine(&x.run::<B, E>(backend), &y.run::<B, E>(backend));
        assert_eq!(both.run::<B, E>(backend), expected);
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Ten runs give the same bits, under every policy.
pub fn repeatable<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = power_law(200, scale.pick(2_500, 60_000), Random(49));
        let mut cases: Vec<Case<'_>> = policies::<E>()
            .iter()
            .map(|&policy| Case::random::<E>(&graph, 9, policy).averaged())
            .collect();
        cases.extend(
            weighted_policies::<E>()
                .iter()
                .map(|&policy| Case::random::<E>(&graph, 9, policy).weighted::<E>(Weighted::Edges)),
        );
        cases.extend(
            SCHEDULES.map(|policy| {
                Case::random::<E>(&graph, 9, policy).weighted::<E>(Weighted::Columns)
            }),
        );
        for case in &cases {
            let first = bits(&case.run::<B, E>(backend));
            for _ in 1..scale.pick(3, 10) {
                let again = bits(&case.run::<B, E>(backend));
                assert!(again == first, "{:?}, {:?}", case.policy, case.weighted);
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}
