//! Graphs, shapes, policies and values that a generator draws; a failure is shrunk to the smallest that still fails.

use crate::Scale;
use crate::graphs::from_edges;
use crate::matmul::{self, FORMS};
use crate::spmm::{self, Weighted, policies, weighted_policies};
use half::f16;
use halfgnn::backend::{Backend, SpmmPolicy};
use halfgnn::tensor::Element;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

fn runner(cases: u32) -> TestRunner {
    // A fixed seed: what is run is the same everywhere, and what failed is shrunk and printed rather than stored.
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5eed),
        ..Config::default()
    })
}

type Edges = (usize, Vec<(u32, u32)>);

fn edges(most_vertices: u32, most_edges: usize) -> impl Strategy<Value = Edges> {
    (1..most_vertices, any::<bool>()).prop_flat_map(move |(vertices, skewed)| {
        let rows = if skewed {
            vertices.div_ceil(8)
        } else {
            vertices
        };
        let edge = (0..rows, 0..vertices);
        prop::collection::vec(edge, 0..most_edges).prop_map(move |edges| (vertices as usize, edges))
    })
}

fn spmm_case<E: Element>(
    scale: Scale,
) -> impl Strategy<Value = (Edges, usize, Weighted, SpmmPolicy, bool, f32)> {
    let edges = edges(scale.pick(40, 200), scale.pick(600, 3_000));
    let ones = (Just(Weighted::Ones), prop::sample::select(policies::<E>()));
    let weighted = (
        Just(Weighted::Edges),
        prop::sample::select(weighted_policies::<E>()),
    );
    let columns = (Just(Weighted::Columns), Just(spmm::IN_FLOAT));
    let how = prop_oneof![ones, weighted, columns];
    (edges, 1..70_usize, how, any::<bool>(), -1.0..1.0_f32).prop_map(
        |(edges, features, (weighted, policy), averaged, scale)| {
            (edges, features, weighted, policy, averaged, scale)
        },
    )
}

/// Any SpMM agrees with float64.
pub fn spmm_agrees<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let result = runner(scale.pick(12, 100)).run(&spmm_case::<E>(scale), |drawn| {
            let ((vertices, edges), features, weighted, policy, averaged, factor) = drawn;
            let graph = from_edges(vertices, &edges);
            let mut case =
                spmm::Case::random::<E>(&graph, features, policy).weighted::<E>(weighted);
            if averaged {
                case = case.averaged();
            }
            case.scale = factor;
            case.check::<B, E>(backend, "drawn");
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Any product agrees with float64.
pub fn matmul_agrees<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let most = scale.pick(60, 200_usize);
        let shape = (prop::sample::select(&FORMS), 1..most, 1..most, 0..2 * most);
        let result = runner(scale.pick(12, 60)).run(&shape, |(form, m, n, k)| {
            let case = matmul::Case::random::<E>(form, [m, n, k]);
            case.check::<B, E, f32>(backend);
            case.check::<B, E, E>(backend);
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
    check::<B, f16>(backend, scale);
    check::<B, f32>(backend, scale);
}
