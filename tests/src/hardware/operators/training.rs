//! Loss, right answers, and a step of the optimiser.

use super::sparse::after_steps;
use super::{OperatorCase, Results};
use crate::input::{KIND, matrix, read, unwritten, words};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops;
use halfgnn::ops::{
    AdamHyper, ERRORS, ElementLoss, LossScaling, NO_TARGET, Optimizer, ParameterMut, RANKS,
    RankSum, Ranking, Scores, SgdHyper,
};
use halfgnn::tensor::{Array, Element};

const SCALING: LossScaling = LossScaling {
    initial: 1024.0,
    growth_interval: 3,
    maximum: 4096.0,
};

const HYPER: AdamHyper = AdamHyper {
    learning_rate: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 5e-4,
};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    pairs(&mut cases);
    cases
}

/// Sums over scores in order, of labels and of classes, and scores of pairs, whose bits are compared.
fn ranks<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let of = [
        RankSum::Concordant,
        RankSum::Precisions,
        RankSum::ReciprocalRanks,
        RankSum::Hits(20),
    ];
    for (rows, columns, classes) in [
        (3000, 2, false),
        (90, 41, false),
        (400, 7, true),
        (300, 2, true),
    ] {
        let kind = if classes { "classes" } else { "labels" };
        let name = format!("metric of ranks {} {rows} x {columns} {kind}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (rows, columns);
            let logits = matrix::<B, E>(backend, shape, &operands.striped::<E>(rows, columns));
            let targets = operands.uniform::<f32>(rows * columns);
            let targets = matrix::<B, f32>(backend, shape, &targets);
            let labels = words(backend, &operands.below(columns as u32, rows));
            let splits = operands.below(4, rows);
            let list = |of: u32| -> Vec<u32> {
                let rows = 0..rows as u32;
                rows.filter(|&row| splits[row as usize] == of).collect()
            };
            let (logits, targets, labels) = (&logits, &targets, &labels);
            let scores = match classes {
                true => Scores::Classes { logits, labels },
                false => Scores::Labels { logits, targets },
            };
            let splits = [&list(0)[..], &list(1), &list(2)];
            let mut ranking = Ranking::new(backend, splits, scores.columns()).expect("room");
            let len = of.len() * scores.columns() * 3 * RANKS;
            let mut sums = Array::from_slice(backend, &vec![u64::MAX; len], KIND).expect("room");
            ops::sum_ranks(backend, scores, &of, &mut ranking, &mut sums).expect("legal sums");
            let sums = sums.to_vec(backend).expect("no failure before");
            let words = |sum: u64| [sum as u32, (sum >> 32) as u32];
            Results::words(&sums.into_iter().flat_map(words).collect::<Vec<_>>())
        }));
    }
    let name = format!("metric of pairs {} 200 x 41", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let rows = matrix::<B, E>(backend, (200, 41), &operands.mild::<E>(200 * 41));
        let [firsts, seconds] = [(); 2].map(|()| words(backend, &operands.below(201, 500)));
        let mut scores = Array::from_slice(backend, &[0.0; 500], KIND).expect("room");
        ops::score_pairs(backend, [&rows; 2], [&firsts, &seconds], &mut scores)
            .expect("legal pairs");
        let scores = scores.to_vec(backend).expect("no failure before");
        // Of a NaN the bits are nobody's promise.
        let words = |score: f32| {
            if score.is_nan() {
                u32::MAX
            } else {
                score.to_bits()
            }
        };
        Results::words(&scores.into_iter().map(words).collect::<Vec<_>>())
    }));
}

/// Sums of errors, whose bits are compared.
fn errors<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for (rows, columns) in [(5000, 2), (40, 131)] {
        let name = format!("metric of errors {} {rows} x {columns}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (rows, columns);
            let predictions = operands.striped::<E>(rows, columns);
            let targets = operands.uniform::<f32>(rows * columns);
            let splits = operands.below(4, rows);
            let unwritten = vec![f64::NAN; 3 * ERRORS * columns];
            let mut sums = Array::from_slice(backend, &unwritten, KIND).expect("room");
            ops::sum_errors(
                backend,
                &matrix::<B, E>(backend, shape, &predictions),
                &matrix::<B, f32>(backend, shape, &targets),
                &words(backend, &splits),
                &mut sums,
            )
            .expect("legal sums");
            let sums = sums.to_vec(backend).expect("no failure before");
            // Of a NaN the bits are nobody's promise.
            let words = |sum: f64| match sum.is_nan() {
                true => [u32::MAX; 2],
                false => [sum.to_bits() as u32, (sum.to_bits() >> 32) as u32],
            };
            Results::words(&sums.into_iter().flat_map(words).collect::<Vec<_>>())
        }));
    }
}

fn of_element<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let precision = E::PRECISION;
    for (rows, classes) in [(300, 7), (40, 131)] {
        let name = format!("cross_entropy {precision} {rows} x {classes}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let mut targets = operands.below(classes as u32, rows);
            targets
                .iter_mut()
                .step_by(5)
                .for_each(|target| *target = NO_TARGET);
            let count = targets
                .iter()
                .filter(|target| **target != NO_TARGET)
                .count();
            let targets = words(backend, &targets);
            // Corners in few rows: the loss of any is the mean's.
            let mut values = operands.uniform::<E>(rows * classes);
            let corners = operands.mixed::<E>(classes * 10);
            values[..classes * 10].copy_from_slice(&corners);
            let logits = matrix::<B, E>(backend, (rows, classes), &values);
            let mut gradient = unwritten::<B, E>(backend, (rows, classes));
            let mut loss = Array::from_slice(backend, &[f32::NAN], KIND).expect("room");
            let state = after_steps(backend, 0);
            ops::cross_entropy(
                backend,
                &logits,
                &targets,
                count,
                &state,
                &mut gradient,
                &mut loss,
            )
            .expect("a legal loss");
            let loss = loss.to_vec(backend).expect("no failure before");
            Results::rows(&read(backend, &gradient), classes).and(Results::rows(&loss, 1))
        }));
        let name = format!("count_correct {precision} {rows} x {classes}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let logits = operands.mixed::<E>(rows * classes);
            let logits = matrix::<B, E>(backend, (rows, classes), &logits);
            let labels = words(backend, &operands.below(classes as u32, rows));
            let splits = words(backend, &operands.below(3, rows));
            let mut correct = words(backend, &[u32::MAX; 3]);
            ops::count_correct(backend, &logits, &labels, &splits, &mut correct)
                .expect("legal counts");
            Results::Bits(correct.to_vec(backend).expect("no failure before"))
        }));
    }
    other_losses::<B, E>(cases);
    errors::<B, E>(cases);
    ranks::<B, E>(cases);
    for overflows in [false, true] {
        let name = format!("adam {precision} overflow {overflows}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (50, 19);
            let len = shape.0 * shape.1;
            let adam = Optimizer::Adam(HYPER);
            let mut gradient = operands.mixed::<f32>(len);
            if !overflows {
                gradient
                    .iter_mut()
                    .filter(|g| !g.is_finite())
                    .for_each(|g| *g = 1e-40);
            }
            let gradient = matrix::<B, f32>(backend, shape, &gradient);
            let mut state = after_steps(backend, 41);
            let [mut master, mut first_moment] =
                [(); 2].map(|()| matrix::<B, f32>(backend, shape, &operands.uniform::<f32>(len)));
            let squares: Vec<f32> = operands.uniform::<f32>(len).iter().map(|x| x * x).collect();
            let mut second_moment = matrix::<B, f32>(backend, shape, &squares);
            let zeros = vec![0.0; len];
            let mut rounded = matrix::<B, E>(backend, shape, &zeros);
            for _ in 0..2 {
                let parameter = ParameterMut {
                    gradient: &gradient,
                    master: &mut master,
                    first_moment: Some(&mut first_moment),
                    second_moment: Some(&mut second_moment),
                    rounded: Some(&mut rounded),
                };
                ops::check_finite(backend, &[&gradient], &mut state).expect("a legal check");
                ops::update(backend, &adam, None, &state, &mut [parameter]).expect("a legal step");
                ops::end_step(backend, &SCALING, &mut state).expect("a legal end");
            }
            let after = state.snapshot(backend).expect("no failure before");
            let words = [
                after.loss_scale.to_bits(),
                after.steps,
                after.skipped,
                after.since_change,
            ];
            [&master, &first_moment, &second_moment]
                .into_iter()
                .map(|values| Results::rows(&read(backend, values), shape.1))
                .fold(
                    Results::rows(&read(backend, &rounded), shape.1),
                    Results::and,
                )
                .and(Results::Bits(words.to_vec()))
        }));
    }
    let rules = [
        ("adamw", Optimizer::AdamW(HYPER)),
        ("sgd", sgd(0.0, false)),
        ("sgd with momentum", sgd(0.9, false)),
        ("sgd with Nesterov's momentum", sgd(0.9, true)),
    ];
    for (title, rule) in rules {
        let name = format!("{title} {precision}, clipped");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let shape = (50, 19);
            let len = shape.0 * shape.1;
            let mut operand = || matrix::<B, f32>(backend, shape, &operands.uniform::<f32>(len));
            let [gradient, mut master, mut first, mut second] = [(); 4].map(|()| operand());
            let mut rounded = matrix::<B, E>(backend, shape, &vec![0.0; len]);
            let mut state = after_steps(backend, 41);
            state.set_rate_factor(backend, 0.75).expect("room");
            // Of the root of 950 squares of numbers up to 1 over a loss scale.
            ops::clip_norm(backend, 0.01, &[&gradient], &mut state).expect("a legal clip");
            let parameter = ParameterMut {
                gradient: &gradient,
                master: &mut master,
                first_moment: (rule.moments() > 0).then_some(&mut first),
                second_moment: (rule.moments() > 1).then_some(&mut second),
                rounded: Some(&mut rounded),
            };
            ops::update(backend, &rule, Some(1e-3), &state, &mut [parameter])
                .expect("a legal step");
            [&master, &first]
                .into_iter()
                .map(|values| Results::rows(&read(backend, values), shape.1))
                .fold(
                    Results::rows(&read(backend, &rounded), shape.1),
                    Results::and,
                )
        }));
    }
}

fn sgd(momentum: f32, nesterov: bool) -> Optimizer {
    Optimizer::Sgd(SgdHyper {
        learning_rate: 0.05,
        momentum,
        nesterov,
        weight_decay: 5e-4,
    })
}

/// Losses of weighted classes and of elements, and outcomes.
fn other_losses<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let (precision, shape @ (rows, columns)) = (E::PRECISION, (120, 19));
    let name = format!("weighted_cross_entropy {precision} {rows} x {columns}");
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let targets = words(backend, &operands.below(columns as u32, rows));
        let weights: Vec<f32> = operands
            .uniform::<f32>(columns)
            .iter()
            .map(|w| w.abs())
            .collect();
        let weights = Array::from_slice(backend, &weights, KIND).expect("room");
        let logits = matrix::<B, E>(backend, shape, &operands.uniform::<E>(rows * columns));
        let mut gradient = unwritten::<B, E>(backend, shape);
        let mut loss = Array::from_slice(backend, &[f32::NAN], KIND).expect("room");
        let state = after_steps(backend, 0);
        ops::weighted_cross_entropy(
            backend,
            &logits,
            &targets,
            &weights,
            64.0,
            &state,
            &mut gradient,
            &mut loss,
        )
        .expect("a legal loss");
        let loss = loss.to_vec(backend).expect("no failure before");
        Results::rows(&read(backend, &gradient), columns).and(Results::rows(&loss, 1))
    }));
    for kind in ["binary", "weighted binary", "squared", "absolute"] {
        let name = format!("element_loss {kind} {precision} {rows} x {columns}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let selected: Vec<u32> = (0..rows as u32)
                .map(|row| if row % 5 == 0 { NO_TARGET } else { row })
                .collect();
            let mut values = operands.uniform::<E>(rows * columns);
            let corners = operands.mixed::<E>(columns * 10);
            values[..columns * 10].copy_from_slice(&corners);
            let targets: Vec<f32> = operands
                .uniform::<f32>(rows * columns)
                .iter()
                .map(|t| t.abs())
                .collect();
            let targets = matrix::<B, f32>(backend, shape, &targets);
            let weights: Vec<f32> = operands
                .uniform::<f32>(columns)
                .iter()
                .map(|w| w.abs())
                .collect();
            let weights = Array::from_slice(backend, &weights, KIND).expect("room");
            let positive_weights = (kind == "weighted binary").then_some(&weights);
            let of = match kind {
                "squared" => ElementLoss::SquaredError,
                "absolute" => ElementLoss::AbsoluteError,
                _ => ElementLoss::BinaryCrossEntropy { positive_weights },
            };
            let mut gradient = unwritten::<B, E>(backend, shape);
            let mut loss = Array::from_slice(backend, &[f32::NAN], KIND).expect("room");
            let state = after_steps(backend, 0);
            ops::element_loss(
                backend,
                of,
                &matrix::<B, E>(backend, shape, &values),
                &targets,
                &words(backend, &selected),
                96,
                &state,
                &mut gradient,
                &mut loss,
            )
            .expect("a legal loss");
            let loss = loss.to_vec(backend).expect("no failure before");
            Results::rows(&read(backend, &gradient), columns).and(Results::rows(&loss, 1))
        }));
    }
    let name = format!("outcomes {precision} {rows} x {columns}");
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let logits = operands.mixed::<E>(rows * columns);
        let logits = matrix::<B, E>(backend, shape, &logits);
        let labels = words(backend, &operands.below(columns as u32, rows));
        let splits = words(backend, &operands.below(3, rows));
        let targets = operands.uniform::<f32>(rows * columns);
        let targets = matrix::<B, f32>(backend, shape, &targets);
        let mut counts = words(backend, &vec![7; 3 * columns * ops::OUTCOMES]);
        ops::count_classes(backend, &logits, &labels, &splits, &mut counts).expect("legal counts");
        let of_classes = counts.to_vec(backend).expect("no failure before");
        ops::count_labels(backend, &logits, &targets, &splits, &mut counts).expect("legal counts");
        let of_labels = counts.to_vec(backend).expect("no failure before");
        Results::Bits(of_classes).and(Results::Bits(of_labels))
    }));
}

/// Random pairs.
fn pairs<B: Backend + 'static>(cases: &mut Vec<OperatorCase<B>>) {
    let name = "sample_pairs".to_owned();
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let [rows, columns] = [(); 2].map(|()| operands.below(50, 900));
        let csr = Csr::from_edges(50, &rows, &columns).expect("ids are in range");
        let graph = Adjacency::new(backend, &csr).expect("room");
        let [mut firsts, mut seconds] = [(); 2].map(|()| words(backend, &[u32::MAX; 500]));
        ops::sample_pairs(backend, 50, Some(&graph), 3, 4, &mut firsts, &mut seconds)
            .expect("legal pairs");
        let read = |array: &Array<B, u32>| array.to_vec(backend).expect("no failure before");
        Results::Bits(read(&firsts)).and(Results::Bits(read(&seconds)))
    }));
}
