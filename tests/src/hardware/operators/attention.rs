//! A layer of attention, forward and backward: fused, with biases of edges, and of operators on arrays of edges; additive attention's
//! scores and their gradients; means of heads; attention by dot products; sums
//! and other reductions of messages.

use super::sparse::graph;
use super::{Operands, OperatorCase, Results};
use crate::additive;
use crate::attention::Case;
use crate::dot_attention;
use crate::input::{matrix, read, unwritten};
use crate::messages;
use crate::reductions;
use crate::reference::{roundoff, subnormal_error};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{self, MessageAct, MessageReduction};
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
        // Below the normal numbers, two results that round apart differ by a whole step.
        let step = 2.0 * subnormal_error::<E>();
        vec![16.0 * roundoff::<E>() * f64::from(largest) + step; row.len()]
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
    for (heads, width, dropout) in [(1, 40, 0.0), (2, 24, 0.3)] {
        for of_biases in [false, true] {
            // The gradient of the biases begins with an SDDMM on tensor cores, and everything else with none.
            let what = if of_biases {
                "gradient of biases"
            } else {
                "biased"
            };
            let name = format!("attention {precision} {what} {heads} x {width} dropout {dropout}");
            let columns = heads * width;
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let graph = graph(operands);
                let vertices = graph.vertices();
                let mut case = Case::random::<E>(&graph, heads, width, dropout);
                case.h = operands.uniform::<E>(vertices * columns);
                case.vectors = operands.uniform::<E>(2 * columns);
                case.dy = operands.mild::<E>(vertices * columns);
                case.biases = operands.uniform::<f32>(heads * graph.edges());
                let outcome = case.fused::<B, E>(backend);
                match (of_biases, E::PRECISION) {
                    (true, Precision::Float) => Results::rows(&outcome.d_biases, 64),
                    (true, _) => near::<E>(&[outcome.d_biases], 64),
                    (false, _) => Results::rows(&outcome.y, columns)
                        .and(Results::rows(&outcome.dh, columns))
                        .and(Results::rows(&outcome.d_vectors, columns)),
                }
            }));
        }
    }
    for (heads, width) in [(1, 41), (3, 16), (1, 300)] {
        let name = format!("additive attention {precision} {heads} x {width}");
        let columns = heads * width;
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let vertices = graph.vertices();
            let mut case = additive::Case::random::<E>(&graph, heads, width);
            case.vector = operands.uniform::<E>(columns);
            case.u = operands.mild::<E>(vertices * columns);
            case.v = operands.mild::<E>(vertices * columns);
            case.d = operands.uniform::<f32>(heads * graph.edges());
            let outcome = case.run::<B, E>(backend);
            Results::rows(&outcome.scores, 64)
                .and(Results::rows(&outcome.du, columns))
                .and(Results::rows(&outcome.of_vector, columns))
        }));
    }
    for (heads, width, dropout) in [(1, 40, 0.0), (4, 16, 0.3), (1, 256, 0.0)] {
        let name = format!("dot attention {precision} {heads} x {width} dropout {dropout}");
        let columns = heads * width;
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let vertices = graph.vertices();
            let mut case = dot_attention::Case::random::<E>(&graph, (heads, width), dropout);
            // Of 16 bits, scores come from tensor cores. Large ones would differ by more than their distance to the next.
            let values = |operands: &mut Operands| match E::PRECISION {
                Precision::Float => operands.mild::<E>(vertices * columns),
                _ => operands.uniform::<E>(vertices * columns),
            };
            case.q = values(operands);
            case.k = values(operands);
            case.v = values(operands);
            case.dy = values(operands);
            let outcome = case.run::<B, E>(backend);
            match E::PRECISION {
                Precision::Float => Results::rows(&outcome.y, columns)
                    .and(Results::rows(&outcome.dq, columns))
                    .and(Results::rows(&outcome.dk, columns))
                    .and(Results::rows(&outcome.dv, columns)),
                _ => near::<E>(&[outcome.y, outcome.dq, outcome.dk, outcome.dv], columns),
            }
        }));
    }
    for (width, given, acts) in [
        (40, messages::GINE, [MessageAct::Relu, MessageAct::Identity]),
        (
            300,
            messages::ALL,
            [MessageAct::Sigmoid, MessageAct::Softplus],
        ),
    ] {
        let name = format!("sums of messages {precision} {acts:?} {width}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let mut case = messages::Case::random::<E>(&graph, width, acts, given).shuffled();
            for values in case.terms.iter_mut().flatten().flatten() {
                *values = operands.mild::<E>(values.len());
            }
            case.dy = operands.mild::<E>(case.dy.len());
            let outcome = case.run::<B, E>(backend);
            let gradients = outcome.gradients.iter().flatten().flatten();
            gradients.fold(Results::rows(&outcome.y, width), |results, gradient| {
                results.and(Results::rows(gradient, width))
            })
        }));
    }
    for (width, reduction, act, given) in [
        (
            40,
            MessageReduction::Max,
            MessageAct::Identity,
            reductions::COPY,
        ),
        (
            300,
            MessageReduction::Min,
            MessageAct::LeakyRelu,
            reductions::ALL,
        ),
        (
            40,
            MessageReduction::Softmax,
            MessageAct::Relu,
            reductions::ALL,
        ),
        (
            40,
            MessageReduction::Deviation,
            MessageAct::Identity,
            reductions::ALL,
        ),
    ] {
        let name = format!("reductions of messages {precision} {reduction:?} {act:?} {width}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let of = (reduction, act);
            let mut case = reductions::Case::random::<E>(&graph, width, of, given).shuffled();
            for values in case.terms.iter_mut().flatten() {
                *values = operands.mild::<E>(values.len());
            }
            case.d = operands.mild::<E>(case.d.len());
            let outcome = case.run::<B, E>(backend);
            let kept = [&outcome.y, &outcome.share, &outcome.kept];
            let all = kept.into_iter().chain(outcome.gradients.iter().flatten());
            all.map(|values| Results::rows(values, width))
                .reduce(Results::and)
                .expect("a result")
        }));
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
