//! The other losses, of weighted classes, of labels and of values, and the counts that F1 is made of.

use crate::Scale;
use crate::input::{KIND, Random, matrix, read, rounded, unwritten, words};
use crate::reference::{roundoff, subnormal_error};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{self, ElementLoss, LossScaling, NO_TARGET, OUTCOMES, OptimizerState};
use halfgnn::tensor::{Array, Element};

/// How far exponentials, logarithms and divisions in float may be off, relative to the largest term.
const FLOAT_ERROR: f64 = 2e-6;
const LOSS_SCALE: f32 = 512.0;

/// The losses of elements, by name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Binary,
    WeightedBinary,
    Squared,
    Absolute,
}

/// What a loss made of some operands.
struct Made {
    loss: f32,
    gradient: Vec<f32>,
}

fn state<B: Backend>(backend: &B) -> OptimizerState<B> {
    let scaling = LossScaling {
        initial: LOSS_SCALE,
        growth_interval: 0,
        maximum: LOSS_SCALE,
    };
    OptimizerState::new(backend, &scaling).expect("room for a state")
}

fn floats<B: Backend>(backend: &B, values: &[f32]) -> Array<B, f32> {
    Array::from_slice(backend, values, KIND).expect("room for an array")
}

fn weighted<B: Backend, E: Element>(
    backend: &B,
    classes: usize,
    logits: &[f32],
    targets: &[u32],
    weights: &[f32],
) -> Made {
    let shape = (targets.len(), classes);
    let total: f32 = targets
        .iter()
        .filter(|&&target| target != NO_TARGET)
        .map(|&target| weights[target as usize])
        .sum();
    let mut gradient = unwritten::<B, E>(backend, shape);
    let mut loss = floats(backend, &[f32::NAN]);
    ops::weighted_cross_entropy(
        backend,
        &matrix::<B, E>(backend, shape, logits),
        &words(backend, targets),
        &floats(backend, weights),
        total,
        &state(backend),
        &mut gradient,
        &mut loss,
    )
    .expect("a legal loss");
    Made {
        loss: loss.to_vec(backend).expect("no failure before")[0],
        gradient: read(backend, &gradient),
    }
}

/// Rows weighted by their class, as `torch.nn.functional.cross_entropy(x, y, weight=w)`.
pub fn weighted_cross_entropy<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, classes) in [(1, 1), (33, 7), (scale.pick(150, 2000), 41), (40, 130)] {
            let logits = Random(300).uniform::<E>(rows * classes);
            let mut targets = Random(301).below(classes as u32, rows);
            targets
                .iter_mut()
                .skip(1)
                .step_by(4)
                .for_each(|target| *target = NO_TARGET);
            let weights: Vec<f32> = (0..classes)
                .map(|class| 0.25 + class as f32 * 0.5)
                .collect();
            let made = weighted::<B, E>(backend, classes, &logits, &targets, &weights);
            let weight = |row: usize| match targets[row] {
                NO_TARGET => 0.0,
                target => f64::from(weights[target as usize]),
            };
            let total: f64 = (0..rows).map(weight).sum();
            let mut loss = 0.0;
            for (row, &target) in targets.iter().enumerate() {
                let logits = &logits[row * classes..][..classes];
                let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                let factor = f64::from(LOSS_SCALE) * weight(row) / total;
                for (class, &x) in logits.iter().enumerate() {
                    let hit = if class == target as usize { 1.0 } else { 0.0 };
                    let share = f64::from(x).exp() / sum;
                    let expected = (share - hit) * factor;
                    let actual = f64::from(made.gradient[row * classes + class]);
                    let bound = roundoff::<E>() * expected.abs()
                        + subnormal_error::<E>()
                        + FLOAT_ERROR * factor;
                    assert!(
                        (actual - expected).abs() <= bound,
                        "{rows} x {classes}: row {row}, class {class}: {actual} for {expected}"
                    );
                }
                if target != NO_TARGET {
                    loss += weight(row) * (sum.ln() - f64::from(logits[target as usize]));
                }
            }
            let (expected, actual) = (loss / total, f64::from(made.loss));
            let bound = FLOAT_ERROR * (1.0 + expected) * (1.0 + (rows as f64).sqrt() / 8.0);
            assert!(
                (actual - expected).abs() <= bound,
                "{actual} for {expected}"
            );
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

fn elements<B: Backend, E: Element>(
    backend: &B,
    kind: Kind,
    columns: usize,
    logits: &[f32],
    targets: &[f32],
    rows: &[u32],
    weights: &[f32],
) -> Made {
    let shape = (rows.len(), columns);
    let weights = floats(backend, weights);
    let of = match kind {
        Kind::Binary => ElementLoss::BinaryCrossEntropy {
            positive_weights: None,
        },
        Kind::WeightedBinary => ElementLoss::BinaryCrossEntropy {
            positive_weights: Some(&weights),
        },
        Kind::Squared => ElementLoss::SquaredError,
        Kind::Absolute => ElementLoss::AbsoluteError,
    };
    let mut gradient = unwritten::<B, E>(backend, shape);
    let mut loss = floats(backend, &[f32::NAN]);
    let count = rows.iter().filter(|&&row| row != NO_TARGET).count();
    ops::element_loss(
        backend,
        of,
        &matrix::<B, E>(backend, shape, logits),
        &matrix::<B, f32>(backend, shape, targets),
        &words(backend, rows),
        count,
        &state(backend),
        &mut gradient,
        &mut loss,
    )
    .expect("a legal loss");
    Made {
        loss: loss.to_vec(backend).expect("no failure before")[0],
        gradient: read(backend, &gradient),
    }
}

/// Rows that count a power of two have that of the gradient that they have alone, and the loss is the sum of theirs.
pub fn weights_of_rows<B: Backend>(backend: &B, _: Scale) {
    fn every<B: Backend, E: Element>(backend: &B) {
        let (rows, columns) = (150, 7);
        let logits = Random(330).uniform::<E>(rows * columns);
        let truths: Vec<f32> = (0..rows * columns).map(|k| (k % 3 % 2) as f32).collect();
        let factors: Vec<f32> = (0..rows).map(|row| [0.5, 1.0, 4.0][row % 3]).collect();
        let classes: Vec<u32> = (0..rows)
            .map(|row| {
                if row % 4 == 1 {
                    NO_TARGET
                } else {
                    row as u32 % 7
                }
            })
            .collect();
        let (logits, truths, divisor) = (&logits[..], &truths[..], 64.0);
        // Of rows alone, and of those that count so much.
        let cross_entropy = |selected: &dyn Fn(usize) -> bool, weights: Option<&[f32]>| {
            let targets: Vec<u32> = (classes.iter().enumerate())
                .map(|(row, &class)| if selected(row) { class } else { NO_TARGET })
                .collect();
            let weights = weights.map(|weights| floats(backend, weights));
            let mut gradient = unwritten::<B, E>(backend, (rows, columns));
            let mut loss = floats(backend, &[f32::NAN]);
            let operands = ops::CrossEntropyOperands {
                logits: &matrix::<B, E>(backend, (rows, columns), logits),
                targets: &words(backend, &targets),
                weights: None,
                row_weights: weights.as_ref(),
                divisor,
                state: &state(backend),
                gradient: &mut gradient,
                loss: &mut loss,
            };
            ops::cross_entropy_of(backend, operands).expect("a legal loss");
            let loss = loss.to_vec(backend).expect("no failure before")[0];
            (loss, read(backend, &gradient))
        };
        let of_elements = |kind: Kind| {
            move |selected: &dyn Fn(usize) -> bool, weights: Option<&[f32]>| {
                let all: Vec<u32> = (0..rows)
                    .map(|row| if selected(row) { 0 } else { NO_TARGET })
                    .collect();
                let weights = weights.map(|weights| floats(backend, weights));
                let positive = floats(backend, &[0.5, 1.0, 2.0, 1.0, 3.0, 1.0, 0.25]);
                let mut gradient = unwritten::<B, E>(backend, (rows, columns));
                let mut loss = floats(backend, &[f32::NAN]);
                let operands = ops::ElementLossOperands {
                    kind: match kind {
                        Kind::Binary => ElementLoss::BinaryCrossEntropy {
                            positive_weights: None,
                        },
                        Kind::WeightedBinary => ElementLoss::BinaryCrossEntropy {
                            positive_weights: Some(&positive),
                        },
                        Kind::Squared => ElementLoss::SquaredError,
                        Kind::Absolute => ElementLoss::AbsoluteError,
                    },
                    logits: &matrix::<B, E>(backend, (rows, columns), logits),
                    targets: &matrix::<B, f32>(backend, (rows, columns), truths),
                    rows: &words(backend, &all),
                    row_weights: weights.as_ref(),
                    divisor,
                    state: &state(backend),
                    gradient: &mut gradient,
                    loss: &mut loss,
                };
                ops::element_loss_of(backend, operands).expect("a legal loss");
                let loss = loss.to_vec(backend).expect("no failure before")[0];
                (loss, read(backend, &gradient))
            }
        };
        type Run<'a> = &'a dyn Fn(&dyn Fn(usize) -> bool, Option<&[f32]>) -> (f32, Vec<f32>);
        let elements = [
            Kind::Binary,
            Kind::WeightedBinary,
            Kind::Squared,
            Kind::Absolute,
        ]
        .map(of_elements);
        let mut runs: Vec<Run<'_>> = vec![&cross_entropy];
        runs.extend(elements.iter().map(|run| run as Run<'_>));
        for (which, run) in runs.into_iter().enumerate() {
            let (loss, gradient) = run(&|_| true, Some(&factors));
            let mut expected = 0.0;
            for (group, factor) in [0.5, 1.0, 4.0].into_iter().enumerate() {
                let (loss, alone) = run(&|row| row % 3 == group, None);
                expected += loss * factor;
                for row in (0..rows).filter(|row| row % 3 == group) {
                    let [weighed, alone] =
                        [&gradient, &alone].map(|all| &all[row * columns..][..columns]);
                    let times: Vec<f32> = alone.iter().map(|x| x * factor).collect();
                    assert_eq!(weighed, times, "{which}, {}, row {row}", E::PRECISION);
                }
            }
            assert!(
                (loss - expected).abs() < 1e-5 * expected,
                "{which}: {loss} {expected}"
            );
        }
    }
    every::<B, f16>(backend);
    every::<B, bf16>(backend);
    every::<B, f32>(backend);
}

/// Loss and slope in float64.
fn term(kind: Kind, x: f64, y: f64, weight: f64) -> (f64, f64) {
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    match kind {
        Kind::Binary => (softplus(x) - x * y, sigmoid - y),
        Kind::WeightedBinary => (
            weight * y * softplus(-x) + (1.0 - y) * softplus(x),
            (1.0 - y) * sigmoid - weight * y * (1.0 - sigmoid),
        ),
        Kind::Squared => ((x - y).powi(2), 2.0 * (x - y)),
        Kind::Absolute => ((x - y).abs(), if x == y { 0.0 } else { (x - y).signum() }),
    }
}

/// Every loss of elements against float64, some rows not selected.
pub fn losses_of_elements<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for kind in [
            Kind::Binary,
            Kind::WeightedBinary,
            Kind::Squared,
            Kind::Absolute,
        ] {
            for (rows, columns) in [
                (1, 1),
                (33, 3),
                (scale.pick(120, 3000), 7),
                (50, 41),
                (9, 130),
            ] {
                let len = rows * columns;
                let spread = |x: f32| rounded::<E>(x * 6.0);
                let logits: Vec<f32> = Random(310)
                    .uniform::<E>(len)
                    .into_iter()
                    .map(spread)
                    .collect();
                let mut targets = Random(311).uniform::<f32>(len);
                match kind {
                    // Targets between 0 and 1 are legal as well.
                    Kind::Binary | Kind::WeightedBinary => {
                        for (k, target) in targets.iter_mut().enumerate() {
                            *target = if k % 5 == 0 {
                                target.abs()
                            } else {
                                f32::from(*target > 0.0)
                            };
                        }
                    }
                    Kind::Squared | Kind::Absolute => {
                        targets.iter_mut().for_each(|target| *target *= 8.0);
                        targets[0] = logits[0];
                    }
                }
                let selected: Vec<u32> = (0..rows as u32)
                    .map(|row| if row % 3 == 1 { NO_TARGET } else { 0 })
                    .collect();
                let weights: Vec<f32> = (0..columns).map(|k| 0.5 + k as f32 * 0.25).collect();
                let made = elements::<B, E>(
                    backend, kind, columns, &logits, &targets, &selected, &weights,
                );
                let count = selected.iter().filter(|&&row| row == 0).count() * columns;
                let factor = f64::from(LOSS_SCALE) / count as f64;
                let (mut loss, mut largest) = (0.0, 0.0_f64);
                for k in 0..len {
                    let (row, column) = (k / columns, k % columns);
                    let (value, slope) = match selected[row] {
                        0 => term(
                            kind,
                            logits[k].into(),
                            targets[k].into(),
                            weights[column].into(),
                        ),
                        _ => (0.0, 0.0),
                    };
                    (loss, largest) = (loss + value, largest.max(value));
                    let expected = slope * factor;
                    let actual = f64::from(made.gradient[k]);
                    let bound = roundoff::<E>() * expected.abs()
                        + subnormal_error::<E>()
                        // The slope is a difference of terms as large as the weight.
                        + FLOAT_ERROR * factor * (1.0 + slope.abs() + f64::from(weights[column]));
                    assert!(
                        (actual - expected).abs() <= bound,
                        "{kind:?} {rows} x {columns}: row {row}, column {column}: {actual} for {expected}"
                    );
                }
                let (expected, actual) = (loss / count as f64, f64::from(made.loss));
                let bound = FLOAT_ERROR * (1.0 + largest) * (1.0 + (count as f64).sqrt() / 8.0);
                assert!(
                    (actual - expected).abs() <= bound,
                    "{kind:?} {rows} x {columns}: {actual} for {expected}"
                );
            }
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// Logits at the ends of half cost what they are away from zero, and no more.
pub fn far_logits<B: Backend>(backend: &B, _: Scale) {
    fn every<B: Backend, E: Element>(backend: &B) {
        let far = rounded::<E>(60_000.0);
        let made = |logits: &[f32], targets: &[f32]| {
            let columns = logits.len();
            elements::<B, E>(
                backend,
                Kind::Binary,
                columns,
                logits,
                targets,
                &[0],
                &vec![1.0; columns],
            )
        };
        let right = made(&[far, -far], &[1.0, 0.0]);
        assert_eq!((right.loss, right.gradient), (0.0, vec![0.0, 0.0]));
        let wrong = made(&[far, -far], &[0.0, 1.0]);
        assert_eq!((wrong.loss, wrong.gradient), (far, vec![256.0, -256.0]));
        let nan = made(&[f32::NAN, 0.0], &[1.0, 0.5]);
        assert!(nan.loss.is_nan() && nan.gradient[0].is_nan() && nan.gradient[1] == 0.0);
    }
    every::<B, f16>(backend);
    every::<B, bf16>(backend);
    every::<B, f32>(backend);
}

/// Counts of every split and column, against a plain loop; a NaN tells nothing.
pub fn outcomes<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for columns in [1, 3, 8, 41, 130] {
            let rows = scale.pick(150, 9000);
            let mut logits = Random(320).integers(3, rows * columns);
            logits[columns - 1] = f32::NAN;
            let mut labels = Random(321).below(columns as u32, rows);
            labels[1] = NO_TARGET;
            let targets: Vec<f32> = Random(322)
                .below(2, rows * columns)
                .into_iter()
                .map(|bit| bit as f32)
                .collect();
            let splits: Vec<u32> = Random(323)
                .below(4, rows)
                .into_iter()
                .enumerate()
                .map(|(row, split)| match (row, split) {
                    (0 | 1, _) => 2,
                    (_, 3) => NO_TARGET,
                    _ => split,
                })
                .collect();
            let words_of = |split: u32, column: usize, outcome: usize| {
                (split as usize * columns + column) * OUTCOMES + outcome
            };
            let mut of_classes = vec![0; 3 * columns * OUTCOMES];
            let mut of_labels = of_classes.clone();
            for row in 0..rows {
                let (split, label) = (splits[row], labels[row]);
                if split == NO_TARGET {
                    continue;
                }
                let logits = &logits[row * columns..][..columns];
                let told = (0..columns)
                    .rev()
                    .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
                    .filter(|_| !logits.iter().any(|x| x.is_nan()));
                if told == Some(label as usize) {
                    of_classes[words_of(split, label as usize, 0)] += 1;
                } else {
                    told.into_iter()
                        .for_each(|told| of_classes[words_of(split, told, 1)] += 1);
                    if label != NO_TARGET {
                        of_classes[words_of(split, label as usize, 2)] += 1;
                    }
                }
                for (column, &logit) in logits.iter().enumerate() {
                    let has = targets[row * columns + column] == 1.0;
                    match (logit > 0.0, has) {
                        (true, true) => of_labels[words_of(split, column, 0)] += 1,
                        (true, false) => of_labels[words_of(split, column, 1)] += 1,
                        (false, true) => of_labels[words_of(split, column, 2)] += 1,
                        (false, false) => {}
                    }
                }
            }
            let logits = matrix::<B, E>(backend, (rows, columns), &logits);
            let targets = matrix::<B, f32>(backend, (rows, columns), &targets);
            let (labels, splits) = (words(backend, &labels), words(backend, &splits));
            let mut counts = words(backend, &vec![99; 3 * columns * OUTCOMES]);
            for _ in 0..2 {
                ops::count_classes(backend, &logits, &labels, &splits, &mut counts)
                    .expect("legal counts");
                let counts = counts.to_vec(backend).expect("no failure before");
                assert_eq!(counts, of_classes, "{columns} classes");
            }
            ops::count_labels(backend, &logits, &targets, &splits, &mut counts)
                .expect("legal counts");
            let counts = counts.to_vec(backend).expect("no failure before");
            assert_eq!(counts, of_labels, "{columns} labels");
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// Operands that do not fit, and means of nothing.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let state = state(backend);
    let logits = matrix::<B, f16>(backend, (3, 4), &[0.0; 12]);
    let message = |result: Result<(), halfgnn::Error>| result.expect_err("a misfit").to_string();
    let cross = |weights: usize, total: f32| {
        message(ops::weighted_cross_entropy(
            backend,
            &logits,
            &words(backend, &[0; 3]),
            &floats(backend, &vec![1.0; weights]),
            total,
            &state,
            &mut unwritten::<B, f16>(backend, (3, 4)),
            &mut floats(backend, &[0.0]),
        ))
    };
    assert_eq!(
        cross(3, 1.0),
        "cross_entropy: class weights should be 4, is 3"
    );
    for total in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(cross(4, total).contains("the weights of the rows with a target add up to"));
    }
    let weights = floats(backend, &[1.0; 3]);
    let element = |targets: (usize, usize), rows: usize, count: usize, positive| {
        message(ops::element_loss(
            backend,
            ElementLoss::BinaryCrossEntropy {
                positive_weights: positive,
            },
            &logits,
            &matrix::<B, f32>(backend, targets, &vec![0.0; targets.0 * targets.1]),
            &words(backend, &vec![0; rows]),
            count,
            &state,
            &mut unwritten::<B, f16>(backend, (3, 4)),
            &mut floats(backend, &[0.0]),
        ))
    };
    assert_eq!(
        element((3, 5), 3, 3, None),
        "element_loss: columns of the targets should be 4, is 5"
    );
    assert_eq!(
        element((3, 4), 2, 3, None),
        "element_loss: rows should be 3, is 2"
    );
    assert_eq!(
        element((3, 4), 3, 0, None),
        "element_loss: no row has a target"
    );
    assert_eq!(
        element((3, 4), 3, 3, Some(&weights)),
        "element_loss: positive weights should be 4, is 3"
    );
    let (splits, mut counts) = (words(backend, &[0; 3]), words(backend, &[0; 12]));
    assert_eq!(
        message(ops::count_classes(
            backend,
            &logits,
            &splits,
            &splits,
            &mut counts
        )),
        "count_classes: counts should be 36, is 12"
    );
    let targets = matrix::<B, f32>(backend, (2, 4), &[0.0; 8]);
    assert_eq!(
        message(ops::count_labels(
            backend,
            &logits,
            &targets,
            &splits,
            &mut counts
        )),
        "count_labels: rows of the targets should be 3, is 2"
    );
}

/// The numbers of torch 2.15 for the operands here; the loss scale is divided out.
pub fn torchs_numbers<B: Backend>(backend: &B, _: Scale) {
    // x, t, v as below, y = [0, 2, -100, 1], w = [0.5, 2, 1.25], p = [3, 0.5, 1.5], with the gradient of each:
    // F.cross_entropy(x, y, weight=w), F.binary_cross_entropy_with_logits(x, t), the same with pos_weight=p, F.mse_loss(x, v),
    // F.l1_loss(x, v)
    #[rustfmt::skip]
    let x = [1.5, -0.5, 0.25, 0.0, 2.0, -1.0, 3.0, 0.5, 0.5, -2.0, -2.5, 1.0];
    #[rustfmt::skip]
    let t = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.5, 0.0, 1.0];
    let v = [
        1.0, 0.0, 0.25, 2.0, -2.0, 1.0, 0.5, 0.5, 0.5, -1.0, 1.0, 4.0,
    ];
    let expect = |what: &str, made: &Made, loss: f32, gradient: [f32; 12]| {
        assert!(
            (made.loss - loss).abs() < 1e-6,
            "{what}: {} for {loss}",
            made.loss
        );
        for (made, expected) in made.gradient.iter().zip(gradient) {
            let off = (made / LOSS_SCALE - expected).abs();
            assert!(off < 1e-6, "{what}: {} for {expected}", made / LOSS_SCALE);
        }
    };
    let weighted = weighted::<B, f32>(backend, 3, &x, &[0, 2, NO_TARGET, 1], &[0.5, 2.0, 1.25]);
    #[rustfmt::skip]
    expect("weights", &weighted, 3.011_247_2, [
        -0.0395581, 0.0126911, 0.026867, 0.0380651, 0.2812649, -0.31933, 0.0, 0.0, 0.0, 0.0245866, -0.5184209, 0.4938343,
    ]);
    let of = |kind, targets: &[f32]| {
        elements::<B, f32>(backend, kind, 3, &x, targets, &[0; 4], &[3.0, 0.5, 1.5])
    };
    #[rustfmt::skip]
    expect("binary", &of(Kind::Binary, &t), 0.700_049, [
        -0.0152021, 0.0314617, -0.0364853, 0.0416667, 0.0733998, -0.0609215, -0.0039522, -0.0314617, 0.0518716, -0.0317331,
        0.0063215, -0.0224118,
    ]);
    #[rustfmt::skip]
    expect("weighted binary", &of(Kind::WeightedBinary, &t), 0.990_975_86, [
        -0.0456064, 0.0314617, -0.0547279, 0.0416667, 0.0733998, -0.0913823, -0.0118565, -0.0157309, 0.0518716, -0.1051328,
        0.0063215, -0.0336177,
    ]);
    #[rustfmt::skip]
    expect("squared", &of(Kind::Squared, &v), 4.416_666_5, [
        0.0833333, -0.0833333, 0.0, -0.3333333, 0.6666667, -0.3333333, 0.4166667, 0.0, 0.0, -0.1666667, -0.5833334, -0.5,
    ]);
    #[rustfmt::skip]
    expect("absolute", &of(Kind::Absolute, &v), 1.583_333_4, [
        0.0833333, -0.0833333, 0.0, -0.0833333, 0.0833333, -0.0833333, 0.0833333, 0.0, 0.0, -0.0833333, -0.0833333, -0.0833333,
    ]);
}
