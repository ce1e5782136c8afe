//! Cross-entropy with its gradient, and the count of right answers.

use crate::Scale;
use crate::input::{KIND, Random, matrix, read, rounded, unwritten, words};
use crate::reference::{roundoff, subnormal_error};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{LossScaling, NO_TARGET, OptimizerState};
use halfgnn::tensor::{Array, Element};

/// How far an exponential and a division in float may be off, relative to 1.
const SOFTMAX_ERROR: f64 = 2e-6;

struct Loss {
    loss: f32,
    gradient: Vec<f32>,
}

fn run<B: Backend, E: Element>(
    backend: &B,
    shape: (usize, usize),
    logits: &[f32],
    targets: &[u32],
    loss_scale: f32,
) -> Loss {
    let scaling = LossScaling {
        initial: loss_scale,
        growth_interval: 0,
        maximum: loss_scale,
    };
    let state = OptimizerState::new(backend, &scaling).expect("room for a state");
    let logits = matrix::<B, E>(backend, shape, logits);
    let mut gradient = unwritten::<B, E>(backend, shape);
    let mut loss = Array::from_slice(backend, &[f32::NAN], KIND).expect("room for a loss");
    let count = targets
        .iter()
        .filter(|&&target| target != NO_TARGET)
        .count();
    let targets = words(backend, targets);
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
    let loss = loss.to_vec(backend).expect("no failure before")[0];
    Loss {
        loss,
        gradient: read(backend, &gradient),
    }
}

/// Asserts that loss and gradient of these logits are within roundings of float64's.
pub fn follows_float64<B: Backend, E: Element>(
    backend: &B,
    what: &str,
    classes: usize,
    logits: &[f32],
    targets: &[u32],
) {
    let rows = targets.len();
    let logits: Vec<f32> = logits.iter().map(|&x| rounded::<E>(x)).collect();
    let logits = &logits[..];
    let loss_scale = 1024.0;
    let actual = run::<B, E>(backend, (rows, classes), logits, targets, loss_scale);
    let count = targets
        .iter()
        .filter(|&&target| target != NO_TARGET)
        .count() as f64;
    let factor = f64::from(loss_scale) / count;
    let (mut loss, mut largest) = (0.0, 0.0_f64);
    for (row, &target) in targets.iter().enumerate() {
        let gradient = &actual.gradient[row * classes..][..classes];
        if target == NO_TARGET {
            assert!(
                gradient.iter().all(|&value| value == 0.0),
                "{what}: row {row}: {gradient:?}"
            );
            continue;
        }
        let logits: Vec<f64> = logits[row * classes..][..classes]
            .iter()
            .map(|&x| f64::from(x))
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
        let row_loss = sum.ln() - (logits[target as usize] - max);
        (loss, largest) = (loss + row_loss, largest.max(row_loss.abs()).max(max.abs()));
        for (class, &gradient) in gradient.iter().enumerate() {
            let hit = if class == target as usize { 1.0 } else { 0.0 };
            let expected = ((logits[class] - max).exp() / sum - hit) * factor;
            let bound =
                roundoff::<E>() * expected.abs() + subnormal_error::<E>() + SOFTMAX_ERROR * factor;
            let off = (f64::from(gradient) - expected).abs();
            assert!(
                off <= bound,
                "{what}: row {row}, class {class}: {gradient} for {expected}"
            );
        }
    }
    let (loss, off) = (loss / count, (f64::from(actual.loss) - loss / count).abs());
    // Each row's loss is off by a few steps of its largest term, their sum by a step for each of its levels.
    let bound = SOFTMAX_ERROR * (1.0 + largest) * (1.0 + count.sqrt() / 8.0);
    assert!(
        off <= bound,
        "{what}: the loss is {} for {loss}",
        actual.loss
    );
}

/// Random logits, some rows without a target, against float64.
pub fn cross_entropy_and_gradient<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        // More than 256 halves have more vectors than a row has lanes.
        let classes = [1, 2, 7, 8, 41, scale.pick(130, 1000)];
        let shapes = [1, 31, 33, scale.pick(200, 3000)]
            .into_iter()
            .flat_map(|rows| classes.map(|classes| (rows, classes)));
        for (rows, classes) in shapes.chain([(1, 300), (7, 257)]) {
            let spread = |x: f32| E::from_f32(x * 8.0).to_f32();
            let logits: Vec<f32> = Random(80)
                .uniform::<E>(rows * classes)
                .into_iter()
                .map(spread)
                .collect();
            let targets = Random(81).below(classes as u32, rows);
            let some: Vec<u32> = (0..rows)
                .map(|row| {
                    if row % 3 == 1 {
                        NO_TARGET
                    } else {
                        targets[row]
                    }
                })
                .collect();
            follows_float64::<B, E>(
                backend,
                &format!("{rows} x {classes}, some"),
                classes,
                &logits,
                &some,
            );
            follows_float64::<B, E>(
                backend,
                &format!("{rows} x {classes}"),
                classes,
                &logits,
                &targets,
            );
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}

/// The ends of half, all equal, one class, a huge spread.
pub fn extreme_logits<B: Backend>(backend: &B, _: Scale) {
    fn every<B: Backend, E: Element>(backend: &B) {
        follows_float64::<B, E>(backend, "all -65504", 7, &[-65_504.0; 14], &[0, 6]);
        follows_float64::<B, E>(backend, "all 65504", 7, &[65_504.0; 14], &[0, 6]);
        follows_float64::<B, E>(backend, "one class", 1, &[-65_504.0, 0.0, 3.0], &[0, 0, 0]);
        let spread = [65_504.0, -65_504.0, 0.0, 1.0, 2.0, 65_504.0];
        follows_float64::<B, E>(backend, "a huge spread", 3, &spread, &[0, 2]);
        follows_float64::<B, E>(backend, "a hopeless row", 3, &spread, &[1, 0]);
    }
    every::<B, f16>(backend);
    every::<B, bf16>(backend);
    every::<B, f32>(backend);
}

/// Ties go to the lowest class, a NaN is never right, and each split is counted by itself.
pub fn counts<B: Backend>(backend: &B, scale: Scale) {
    fn every<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let counts = |classes: usize, logits: &[f32], labels: &[u32], splits: &[u32]| {
            let logits = matrix::<B, E>(backend, (labels.len(), classes), logits);
            let mut correct = words(backend, &[99; 3]);
            let (labels, splits) = (words(backend, labels), words(backend, splits));
            ops::count_correct(backend, &logits, &labels, &splits, &mut correct)
                .expect("legal counts");
            correct.to_vec(backend).expect("no failure before")
        };
        let nan = f32::NAN;
        let logits = [
            1.0, 1.0, 0.0, -3.0, -2.0, -2.0, nan, 5.0, 1.0, 0.0, 5.0, nan,
        ];
        assert_eq!(counts(3, &logits, &[0, 1, 1, 1], &[0, 1, 2, 2]), [1, 1, 0]);
        assert_eq!(counts(3, &logits, &[1, 2, 0, 2], &[0, 1, 2, 2]), [0, 0, 0]);
        assert_eq!(
            counts(3, &logits, &[0, 1, 1, 1], &[2, NO_TARGET, 1, 0]),
            [0, 0, 1]
        );
        let infinite = [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::INFINITY];
        assert_eq!(counts(2, &infinite, &[0, 1], &[0, 0]), [2, 0, 0]);
        assert_eq!(counts(1, &[], &[], &[]), [0; 3]);

        for classes in [1, 7, 8, 41, 130] {
            // So many that each split has rows that are right by chance.
            let rows = scale.pick(200, 5000).max(30 * classes);
            let logits = Random(82).integers(3, rows * classes);
            let labels = Random(83).below(classes as u32, rows);
            let splits: Vec<u32> = Random(84)
                .below(4, rows)
                .into_iter()
                .map(|s| if s == 3 { NO_TARGET } else { s })
                .collect();
            let mut expected = vec![0; 3];
            for row in 0..rows {
                let logits = &logits[row * classes..][..classes];
                let best = (0..classes)
                    .rev()
                    .max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
                if let Some(count) = expected.get_mut(splits[row] as usize) {
                    *count += u32::from(best == Some(labels[row] as usize));
                }
            }
            assert!(expected.iter().all(|&count| count > 0));
            assert_eq!(
                counts(classes, &logits, &labels, &splits),
                expected,
                "{classes} classes"
            );
        }
    }
    every::<B, f16>(backend, scale);
    every::<B, bf16>(backend, scale);
    every::<B, f32>(backend, scale);
}
