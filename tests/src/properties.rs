//! Graphs, shapes, policies and values that a generator draws; a failure is shrunk to the smallest that still fails.

use crate::Scale;
use crate::graphs::from_edges;
use crate::input::Random;
use crate::matmul::{self, FORMS};
use crate::sddmm;
use crate::spmm::{self, Weighted, policies, weighted_policies};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{Form, SddmmPolicy, SpmmPolicy};
use halfgnn::tensor::{Element, Precision};
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

/// An SpMM that was drawn.
#[derive(Clone, Debug)]
struct SpmmDraw {
    vertices: usize,
    edges: Vec<(u32, u32)>,
    features: usize,
    weighted: Weighted,
    policy: SpmmPolicy,
    averaged: bool,
    scale: f32,
    /// Decides inputs and weights.
    values: u32,
}

impl SpmmDraw {
    fn any<E: Element>(scale: Scale) -> impl Strategy<Value = Self> {
        let edges = edges(scale.pick(40, 200), scale.pick(600, 3_000));
        let ones = (Just(Weighted::Ones), prop::sample::select(policies::<E>()));
        let weighted = (
            Just(Weighted::Edges),
            prop::sample::select(weighted_policies::<E>()),
        );
        let columns = (
            Just(Weighted::Columns),
            prop::sample::select(&spmm::SCHEDULES[..]),
        );
        let how = prop_oneof![ones, weighted, columns];
        let draw = (
            edges,
            1..70_usize,
            how,
            any::<bool>(),
            -1.0..1.0_f32,
            any::<u32>(),
        );
        draw.prop_map(
            |((vertices, edges), features, (weighted, policy), averaged, scale, values)| Self {
                vertices,
                edges,
                features,
                weighted,
                policy,
                averaged,
                scale,
                values,
            },
        )
    }

    /// Gives the case to `f`.
    fn with<E: Element, T>(&self, f: impl FnOnce(&spmm::Case<'_>) -> T) -> T {
        let graph = from_edges(self.vertices, &self.edges);
        let mut case = spmm::Case::random::<E>(&graph, self.features, self.policy)
            .weighted::<E>(self.weighted);
        case.x = Random(self.values).uniform::<E>(case.x.len());
        case.weights = Random(!self.values).uniform::<E>(case.weights.len());
        if self.averaged {
            case = case.averaged();
        }
        case.scale = self.scale;
        f(&case)
    }
}

/// Vertices and edges, at times all in a few rows.
fn edges(most_vertices: u32, most_edges: usize) -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
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

/// An SDDMM that was drawn.
#[derive(Clone, Debug)]
struct SddmmDraw {
    vertices: usize,
    edges: Vec<(u32, u32)>,
    heads: usize,
    features: usize,
    policy: SddmmPolicy,
    scale: f32,
    /// Decides both operands.
    values: u32,
}

impl SddmmDraw {
    fn any<E: Element>(scale: Scale) -> impl Strategy<Value = Self> {
        let edges = edges(scale.pick(40, 200), scale.pick(600, 3_000));
        let draw = (
            edges,
            1..4_usize,
            1..70_usize,
            prop::sample::select(sddmm::policies::<E>()),
            -1.0..1.0_f32,
            any::<u32>(),
        );
        draw.prop_map(
            |((vertices, edges), heads, features, policy, scale, values)| Self {
                vertices,
                edges,
                heads,
                // Each of several heads begins at a 16-byte boundary.
                features: if heads == 1 {
                    features
                } else {
                    features.next_multiple_of(E::LANES)
                },
                policy,
                scale,
                values,
            },
        )
    }

    /// Gives the case to `f`.
    fn with<E: Element, T>(&self, f: impl FnOnce(&sddmm::Case<'_>) -> T) -> T {
        let graph = from_edges(self.vertices, &self.edges);
        let mut case = sddmm::Case::random::<E>(&graph, self.heads, self.features, self.policy);
        case.u = Random(self.values).uniform::<E>(case.u.len());
        case.v = Random(!self.values).uniform::<E>(case.v.len());
        case.op.scale = self.scale;
        f(&case)
    }
}

/// A product that was drawn.
#[derive(Clone, Debug)]
struct MatmulDraw {
    form: Form,
    shape: [usize; 3],
    /// Decides both operands.
    values: u32,
}

impl MatmulDraw {
    fn any(most: usize) -> impl Strategy<Value = Self> {
        let form = prop::sample::select(&FORMS);
        let draw = (form, 1..most, 1..most, 0..2 * most, any::<u32>());
        draw.prop_map(|(form, m, n, k, values)| Self {
            form,
            shape: [m, n, k],
            values,
        })
    }

    fn case<E: Element>(&self) -> matmul::Case {
        let mut case = matmul::Case::random::<E>(self.form, self.shape);
        case.a = Random(self.values).uniform::<E>(case.a.len());
        case.b = Random(!self.values).uniform::<E>(case.b.len());
        case
    }
}

/// Runs a property on what is drawn, and fails with the smallest draw that breaks it.
fn hold<S: Strategy>(cases: u32, draw: S, property: impl Fn(S::Value)) {
    let result = runner(cases).run(&draw, |drawn| {
        property(drawn);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Any SpMM agrees with float64.
pub fn spmm_agrees<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        hold(scale.pick(12, 100), SpmmDraw::any::<E>(scale), |drawn| {
            drawn.with::<E, _>(|case| case.check::<B, E>(backend, "drawn"));
        });
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Any SDDMM agrees with float64.
pub fn sddmm_agrees<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        hold(scale.pick(12, 100), SddmmDraw::any::<E>(scale), |drawn| {
            drawn.with::<E, _>(|case| case.check::<B, E>(backend, "drawn"));
        });
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Any product agrees with float64.
pub fn matmul_agrees<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let draw = MatmulDraw::any(scale.pick(60, 200));
        hold(scale.pick(12, 60), draw, |drawn| {
            let case = drawn.case::<E>();
            // Of bfloats there is what layers want.
            let all = E::PRECISION != Precision::BFloat16;
            if all || case.form == Form::TN {
                case.check::<B, E, f32>(backend);
            }
            if all || case.form != Form::TN {
                case.check::<B, E, E>(backend);
            }
        });
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// The emulated kernels, in an order of blocks and warps that is drawn as well.
pub mod in_any_order {
    use super::*;
    use crate::input::bits;
    use halfgnn::backend::gpu::Gpu;
    use halfgnn::driver::emulated::Emulated;

    /// Runs in the grid's own order and in that of `seed`. A fault in either is an error of the operator, and a failure.
    fn same(backend: &Gpu<Emulated>, seed: u64, run: impl Fn() -> Vec<f32>) {
        backend.driver().set_seed(0);
        let expected = bits(&run());
        backend.driver().set_seed(seed);
        assert_eq!(
            bits(&run()),
            expected,
            "launched in the order of seed {seed}"
        );
    }

    /// Any SpMM has the same bits.
    pub fn spmm(backend: &Gpu<Emulated>) {
        fn check<E: Element>(backend: &Gpu<Emulated>) {
            let draw = (SpmmDraw::any::<E>(Scale::Small), 1..u64::MAX);
            hold(40, draw, |(drawn, seed)| {
                drawn.with::<E, _>(|case| same(backend, seed, || case.run::<_, E>(backend)));
            });
        }
        check::<f16>(backend);
        check::<f32>(backend);
    }

    /// Any SDDMM has the same bits.
    pub fn sddmm(backend: &Gpu<Emulated>) {
        fn check<E: Element>(backend: &Gpu<Emulated>) {
            let draw = (SddmmDraw::any::<E>(Scale::Small), 1..u64::MAX);
            hold(40, draw, |(drawn, seed)| {
                drawn.with::<E, _>(|case| same(backend, seed, || case.run::<_, E>(backend)));
            });
        }
        check::<f16>(backend);
        check::<f32>(backend);
    }

    /// Any sum of bits has the same bits, in two launches or one.
    pub fn bspmm(backend: &Gpu<Emulated>) {
        hold(10, (0..u32::MAX, 1..u64::MAX), |(random, seed)| {
            same(backend, seed, || {
                crate::bit_sums::sums_of_every_schedule(backend, random)
            });
        });
    }

    /// Any product has the same bits.
    pub fn matmul(backend: &Gpu<Emulated>) {
        fn check<E: Element>(backend: &Gpu<Emulated>) {
            hold(30, (MatmulDraw::any(100), 1..u64::MAX), |(drawn, seed)| {
                let case = drawn.case::<E>();
                same(backend, seed, || case.run::<_, E, f32>(backend));
            });
        }
        check::<f16>(backend);
        check::<f32>(backend);
    }
}
