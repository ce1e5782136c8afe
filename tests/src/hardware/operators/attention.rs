//! A layer of attention, forward and backward: fused, and of operators on arrays of edges; means of heads.

use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::attention::Case;
use crate::input::{matrix, read, unwritten};
use crate::reference::roundoff;
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::tensor::{Element, Precision};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    cases
}

/// The unfused gradient begins with an SDDMM on tensor cores, whose sums may be rounded to another half; what follows adds
/// those up along rows and rounds to half a few times.
fn near<E: Element>(matrices: &[Vec<f32>], columns: usize) -> Results {
    let values: Vec<f32> = matrices.concat();
    let bound = |row: &[f32]| {
        let largest = row.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        vec![16.0 * roundoff::<E>() * f64::from(largest); row.len()]
    };
    let bounds = values.chunks(columns).flat_map(bound).collect();
    Results::Near(values, bounds)
}

fn of_element<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let precision = E::PRECISION;
    for (heads, width, dropout) in [(1, 40, 0.0), (4, 16, 0.3)] {
        for fused in [true, false] {
            let how = if fused { "fused" } else { "unfused" };
            let name = format!("attention {precision} {how} {heads} x {width} dropout {dropout}");
            let columns = heads * width;
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let graph = graph(operands);
                let vertices = graph.vertices();
                let mut case = Case::random::<E>(&graph, heads, width, dropout);
                case.h = operands.uniform::<E>(vertices * columns);
                case.vectors = operands.uniform::<E>(2 * columns);
                case.dy = operands.mild::<E>(vertices * columns);
                let outcome = match fused {
                    true => case.fused::<B, E>(backend),
                    false => case.unfused::<B, E>(backend),
                };
                if !fused && E::PRECISION != Precision::Float {
                    return near::<E>(&[outcome.y, outcome.dh, outcome.d_vectors], columns);
                }
                Results::rows(&outcome.y, columns)
                    .and(Results::rows(&outcome.dh, columns))
                    .and(Results::rows(&outcome.d_vectors, columns))
            }));
        }
    }
    let name = format!("means of heads {precision}");
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let (heads, wide, narrow) = (3, (50, 24), (50, 8));
        let x = matrix::<B, E>(backend, wide, &operands.mixed::<E>(50 * 24));
        let mut y = unwritten::<B, E>(backend, narrow);
        ops::head_mean(backend, heads, &x, &mut y).expect("a legal mean");
        let dy = matrix::<B, E>(backend, narrow, &operands.mixed::<E>(50 * 8));
        let mut dx = unwritten::<B, E>(backend, wide);
        ops::head_mean_backward(backend, heads, &dy, &mut dx).expect("a legal gradient");
        Results::rows(&read(backend, &y), 8).and(Results::rows(&read(backend, &dx), 24))
    }));
}
