//! SpMM of values that go wrong: what half cannot hold, and what must not be lost.

use crate::Scale;
use crate::graphs::{self, from_edges};
use crate::input::Random;
use crate::reference::exact_integers;
use crate::spmm::{
    BY_VERTEX, BY_VERTEX_IN_HALF, Case, IN_FLOAT, IN_HALF, POST, PRE, SCHEDULES, Weighted,
    policies, weighted_policies,
};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::tensor::Element;

/// Sums of small integers, which half holds exactly, under every policy.
pub fn integers_are_exact<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (name, graph) in graphs::odd(Scale::Small) {
            // The largest sum stays below 2048.
            let longest = graph.row_degrees().into_iter().max().unwrap_or(0).max(1);
            let most = (exact_integers::<E>() / longest).min(30);
            for &policy in policies::<E>() {
                let mut case = Case::random::<E>(&graph, 7, policy);
                case.x = Random(30).integers(most, case.x.len());
                assert_integers::<B, E>(backend, &case, name);
            }
            for &policy in weighted_policies::<E>() {
                let mut case = Case::random::<E>(&graph, scale.pick(2, 18), policy)
                    .weighted::<E>(Weighted::Edges);
                case.x = Random(31).integers(most.min(3), case.x.len());
                case.weights = Random(32).integers(most / 3, case.weights.len());
                assert_integers::<B, E>(backend, &case, name);
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

fn assert_integers<B: Backend, E: Element>(backend: &B, case: &Case<'_>, name: &str) {
    let features = case.features;
    let mut expected = vec![0.0_f32; case.x.len()];
    for (edge, (&row, &column)) in case.graph.rows().iter().zip(case.graph.cols()).enumerate() {
        let weight = if case.weighted == Weighted::Edges {
            case.weights[edge]
        } else {
            1.0
        };
        for k in 0..features {
            expected[row as usize * features + k] +=
                weight * case.x[column as usize * features + k];
        }
    }
    let what = (name, case.policy, E::PRECISION, case.weighted);
    assert_eq!(case.run::<B, E>(backend), expected, "{what:?}");
}

/// The mean of ones is one, for hubs whose plain sum half cannot hold.
pub fn hubs_average_to_one<B: Backend>(backend: &B, scale: Scale) {
    let degrees = [2047, 2048, 2049, 4096, 65_536];
    for degree in &degrees[..scale.pick(4, 5)] {
        let graph = graphs::hub(*degree);
        for policy in [IN_FLOAT, IN_HALF, BY_VERTEX, BY_VERTEX_IN_HALF] {
            let mut case = Case::random::<f16>(&graph, 3, policy).averaged();
            case.x.fill(1.0);
            let y = case.run::<B, f16>(backend);
            assert_eq!(y[3..6], [1.0; 3], "degree {degree}, {policy:?}");
        }
    }
}

/// Where a sum leaves the range of half, scaling after the reduction is too late; the discretized mean is exact.
pub fn sums_that_leave_half<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::hub(2048);
    let mean = |policy| {
        let mut case = Case::random::<f16>(&graph, 8, policy).averaged();
        case.x.fill(128.0);
        case.run::<B, f16>(backend)[8..16].to_vec()
    };
    for policy in [IN_FLOAT, IN_HALF, BY_VERTEX, BY_VERTEX_IN_HALF] {
        assert_eq!(mean(policy), [128.0; 8], "{policy:?}");
    }
    assert_eq!(mean(POST), [f32::INFINITY; 8]);
}

/// Where a scaled product is below the smallest half, scaling before the reduction loses the whole sum.
pub fn factors_that_underflow<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::hub(1024);
    let sum = |policy| {
        let mut case = Case::random::<f16>(&graph, 5, policy);
        // Each product is 2⁻²⁶, a quarter of the smallest half; 1024 of them are 2⁻¹⁶.
        case.x.fill(2.0_f32.powi(-10));
        case.scale = 2.0_f32.powi(-16);
        case.run::<B, f16>(backend)[5..10].to_vec()
    };
    for policy in [IN_FLOAT, IN_HALF, BY_VERTEX, BY_VERTEX_IN_HALF] {
        assert_eq!(sum(policy), [2.0_f32.powi(-16); 5], "{policy:?}");
    }
    assert_eq!(sum(PRE), [0.0; 5]);
}

/// A row without edges is zero, whatever was there and whatever its factor.
pub fn empty_rows_are_zero<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let mut degrees = vec![0; 200];
        (degrees[0], degrees[7], degrees[150]) = (600, 1, 2);
        for degrees in [degrees, vec![0; 200]] {
            let graph = graphs::from_degrees(&degrees, Random(33));
            for &policy in policies::<E>() {
                let mut case = Case::random::<E>(&graph, 11, policy);
                case.row_scale = Some(degrees.iter().map(|&d| 1.0 / d as f32).collect());
                let y = case.run::<B, E>(backend);
                for (row, y) in y.chunks_exact(11).enumerate() {
                    let written = if degrees[row] == 0 {
                        y == [0.0; 11]
                    } else {
                        y.iter().all(|y| y.is_finite())
                    };
                    assert!(
                        written,
                        "row {row} of {} edges, {policy:?}: {y:?}",
                        degrees[row]
                    );
                }
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// A NaN and an infinity reach the rows that hear from them, in their column, and no other element.
pub fn infinities_stay_in_their_rows<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let graph = graphs::power_law(80, scale.pick(300, 900), Random(34));
        for &policy in policies::<E>() {
            let mut case = Case::random::<E>(&graph, 6, policy);
            let clean = case.run::<B, E>(backend);
            case.x[17 * 6 + 2] = f32::NAN;
            case.x[5 * 6 + 4] = f32::INFINITY;
            let y = case.run::<B, E>(backend);
            for row in 0..graph.vertices() {
                for column in 0..6 {
                    let hears = |vertex: u32| graph.row(row).contains(&vertex);
                    let (actual, clean) = (y[row * 6 + column], clean[row * 6 + column]);
                    let met = match column {
                        2 if hears(17) => actual.is_nan(),
                        4 if hears(5) => actual == f32::INFINITY,
                        _ => actual == clean,
                    };
                    assert!(
                        met,
                        "row {row}, column {column}, {policy:?}: {actual} after {clean}"
                    );
                }
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// An edge of weight zero is an edge: zero times infinity is NaN. And it adds zero to anything finite.
pub fn zero_weights_are_edges<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let graph = from_edges(3, &[(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]);
        for &policy in weighted_policies::<E>() {
            let mut case = Case::random::<E>(&graph, 1, policy).weighted::<E>(Weighted::Edges);
            case.x = vec![f32::INFINITY, 3.0, 5.0];
            case.weights = vec![0.0, 1.0, 0.0, 2.0, 0.0];
            let y = case.run::<B, E>(backend);
            assert!(y[0].is_nan(), "{policy:?}: {y:?}");
            assert_eq!(y[1..], [10.0, 0.0], "{policy:?}");
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// Subnormal halves and floats are added up like any other.
pub fn subnormals_are_kept<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(2, &[(0, 0), (0, 1), (1, 1)]);
    for &policy in policies::<f16>() {
        let mut case = Case::random::<f16>(&graph, 2, policy);
        let step = 2.0_f32.powi(-24);
        case.x = vec![3.0 * step, -step, 5.0 * step, -step];
        let expected = [8.0 * step, -2.0 * step, 5.0 * step, -step];
        assert_eq!(case.run::<B, f16>(backend), expected, "{policy:?}");
    }
    let mut case = Case::random::<f32>(&graph, 1, IN_FLOAT);
    let step = f32::from_bits(1);
    case.x = vec![step, 2.0 * step];
    assert_eq!(
        case.run::<B, f32>(backend),
        [f32::from_bits(3), f32::from_bits(2)]
    );
}

/// Factors and weights that make a NaN of a zero do not reach the padding.
pub fn padding_stays_zero<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        // A row inside a CTA, and one across several.
        for degree in [3, 1300] {
            let graph = graphs::hub(degree);
            for &policy in policies::<E>() {
                let mut case = Case::random::<E>(&graph, 3, policy);
                case.x.fill(1.0);
                case.row_scale = Some(vec![f32::INFINITY; 4]);
                let y = case.run::<B, E>(backend);
                assert_eq!(y[3..6], [f32::INFINITY; 3], "{policy:?}");
            }
            for &policy in weighted_policies::<E>() {
                let mut case = Case::random::<E>(&graph, 3, policy).weighted::<E>(Weighted::Edges);
                case.weights.fill(f32::NAN);
                let y = case.run::<B, E>(backend);
                assert!(
                    y[3..6].iter().all(|value| value.is_nan()),
                    "{policy:?}: {y:?}"
                );
            }
            for policy in SCHEDULES {
                let mut case =
                    Case::random::<E>(&graph, 3, policy).weighted::<E>(Weighted::Columns);
                case.weights.fill(f32::NEG_INFINITY);
                case.run::<B, E>(backend);
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}
