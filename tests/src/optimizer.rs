//! Adam, the overflow flag and the loss scale.

use crate::Scale;
use crate::input::{Random, matrix, read, rounded, unwritten};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{AdamHyper, LossScaling, OptimizerSnapshot, OptimizerState, ParameterMut};
use halfgnn::tensor::{Element, Matrix};

const HYPER: AdamHyper = AdamHyper {
    learning_rate: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 5e-4,
};

const SCALING: LossScaling = LossScaling {
    initial: 512.0,
    growth_interval: 3,
    maximum: 2048.0,
};

struct Weights<B: Backend, E: Element> {
    master: Matrix<B, f32>,
    first_moment: Matrix<B, f32>,
    second_moment: Matrix<B, f32>,
    rounded: Matrix<B, E>,
}

impl<B: Backend, E: Element> Weights<B, E> {
    fn new(backend: &B, shape: (usize, usize), values: &[f32]) -> Self {
        let zeros = vec![0.0; values.len()];
        Self {
            master: matrix(backend, shape, values),
            first_moment: matrix(backend, shape, &zeros),
            second_moment: matrix(backend, shape, &zeros),
            rounded: unwritten(backend, shape),
        }
    }

    fn step(&mut self, backend: &B, state: &mut OptimizerState<B>, gradient: &[f32]) {
        let gradient = matrix(backend, self.master.shape(), gradient);
        ops::check_finite(backend, &[&gradient], state).expect("a legal check");
        ops::adam(backend, &HYPER, state, &mut [self.parameter(&gradient)]).expect("a legal step");
        ops::end_step(backend, &SCALING, state).expect("a legal end");
    }

    fn parameter<'a>(&'a mut self, gradient: &'a Matrix<B, f32>) -> ParameterMut<'a, B, E> {
        ParameterMut {
            gradient,
            master: &mut self.master,
            first_moment: &mut self.first_moment,
            second_moment: &mut self.second_moment,
            rounded: Some(&mut self.rounded),
        }
    }

    fn all(&self) -> [&Matrix<B, f32>; 3] {
        [&self.master, &self.first_moment, &self.second_moment]
    }
}

fn state<B: Backend>(backend: &B) -> OptimizerState<B> {
    OptimizerState::new(backend, &SCALING).expect("room for a state")
}

fn snapshot<B: Backend>(backend: &B, state: &OptimizerState<B>) -> OptimizerSnapshot {
    state.snapshot(backend).expect("no failure before")
}

/// A few steps against float64, PyTorch's formula; the gradients are scaled as the loss is.
pub fn adam_follows_float64<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, shape: (usize, usize), steps: u32) {
        let len = shape.0 * shape.1;
        let start = Random(90).uniform::<f32>(len);
        let mut weights = Weights::<B, E>::new(backend, shape, &start);
        let mut state = state(backend);
        let mut expected: Vec<[f64; 3]> = start.iter().map(|&w| [f64::from(w), 0.0, 0.0]).collect();
        let hyper = [
            HYPER.learning_rate,
            HYPER.beta1,
            HYPER.beta2,
            HYPER.epsilon,
            HYPER.weight_decay,
        ];
        let [rate, beta1, beta2, epsilon, decay] = hyper.map(f64::from);
        for step in 1..=steps {
            let loss_scale = snapshot(backend, &state).loss_scale;
            let gradient = Random(90 + step).uniform::<f32>(len);
            let scaled: Vec<f32> = gradient.iter().map(|g| g * loss_scale).collect();
            weights.step(backend, &mut state, &scaled);
            for ([w, m, v], &g) in expected.iter_mut().zip(&gradient) {
                let g = f64::from(g) + decay * *w;
                *m = beta1 * *m + (1.0 - beta1) * g;
                *v = beta2 * *v + (1.0 - beta2) * g * g;
                let m = *m / (1.0 - beta1.powi(step as i32));
                let v = *v / (1.0 - beta2.powi(step as i32));
                *w -= rate * m / (v.sqrt() + epsilon);
            }
        }
        let master = read(backend, &weights.master);
        for (i, (&actual, [expected, ..])) in master.iter().zip(&expected).enumerate() {
            // A step is at most about the learning rate long, and each is off by some tens of roundings.
            let off = (f64::from(actual) - expected).abs();
            assert!(
                off < 1e-6 * f64::from(steps),
                "weight {i} of {shape:?}: {actual} for {expected}"
            );
        }
        let copy: Vec<f32> = master.iter().map(|&w| rounded::<E>(w)).collect();
        assert_eq!(read(backend, &weights.rounded), copy);
        read(backend, &weights.first_moment);
        read(backend, &weights.second_moment);
        assert_eq!(snapshot(backend, &state).steps, steps);
    }
    for shape in [(1, 7), (3, 9), (scale.pick(40, 1433), 64), (0, 3)] {
        check::<B, f16>(backend, shape, 5);
        check::<B, bf16>(backend, shape, 5);
        check::<B, f32>(backend, shape, 5);
    }
    together_is_one_by_one::<B, f16>(backend);
    together_is_one_by_one::<B, f32>(backend);
}

/// More parameters than one launch takes, some of them empty: the same bits as each by itself.
fn together_is_one_by_one<B: Backend, E: Element>(backend: &B) {
    let shapes = [(0, 3), (3, 9), (1, 7), (40, 17), (5, 0)];
    let shapes: Vec<_> = shapes.into_iter().cycle().take(21).collect();
    let values = |seed: u32| -> Vec<Vec<f32>> {
        let all = (seed..).zip(&shapes);
        all.map(|(seed, shape)| Random(seed).uniform::<f32>(shape.0 * shape.1))
            .collect()
    };
    let (start, gradients) = (values(100), values(200));
    let make = || -> Vec<Weights<B, E>> {
        let all = shapes.iter().zip(&start);
        all.map(|(&shape, values)| Weights::new(backend, shape, values))
            .collect()
    };
    let (mut single, mut together) = (make(), make());
    for (weights, gradient) in single.iter_mut().zip(&gradients) {
        weights.step(backend, &mut state(backend), gradient);
    }

    let mut state = state(backend);
    let gradients: Vec<_> = shapes
        .iter()
        .zip(&gradients)
        .map(|(&shape, values)| matrix(backend, shape, values))
        .collect();
    let mut parameters: Vec<_> = together
        .iter_mut()
        .zip(&gradients)
        .map(|(weights, gradient)| weights.parameter(gradient))
        .collect();
    let all: Vec<_> = gradients.iter().collect();
    ops::check_finite(backend, &all, &mut state).expect("a legal check");
    ops::adam(backend, &HYPER, &state, &mut parameters).expect("a legal step");
    for (i, (single, together)) in single.iter().zip(&together).enumerate() {
        for (single, together) in single.all().into_iter().zip(together.all()) {
            assert_eq!(
                read(backend, single),
                read(backend, together),
                "parameter {i}, {:?}",
                shapes[i]
            );
        }
        assert_eq!(
            read(backend, &single.rounded),
            read(backend, &together.rounded)
        );
    }

    // In each of them an overflow is found.
    for i in 0..shapes.len() {
        let (rows, columns) = shapes[i];
        let mut values = vec![0.0; rows * columns];
        let Some(last) = values.last_mut() else {
            continue;
        };
        *last = f32::NAN;
        let bad = matrix(backend, shapes[i], &values);
        let mut all = all.clone();
        all[i] = &bad;
        ops::check_finite(backend, &all, &mut state).expect("a legal check");
        ops::end_step(backend, &SCALING, &mut state).expect("a legal end");
    }
    let with_values = shapes.iter().filter(|shape| shape.0 * shape.1 > 0).count();
    assert_eq!(snapshot(backend, &state).skipped, with_values as u32);
}

/// An infinity or a NaN anywhere in a gradient: nothing changes but the scale, which is halved.
pub fn overflow_skips_a_step<B: Backend>(backend: &B, _: Scale) {
    let (shape, len) = ((70, 9), 70 * 9);
    for (at, bad) in [
        (0, f32::INFINITY),
        (len - 1, f32::NAN),
        (333, f32::NEG_INFINITY),
    ] {
        let start = Random(96).uniform::<f32>(len);
        let mut weights = Weights::<B, f16>::new(backend, shape, &start);
        let mut state = state(backend);
        let mut gradient = Random(97).uniform::<f32>(len);
        weights.step(backend, &mut state, &gradient);
        let all = |weights: &Weights<B, f16>| weights.all().map(|matrix| read(backend, matrix));
        let before = (all(&weights), read(backend, &weights.rounded));
        let good = std::mem::replace(&mut gradient[at], bad);
        weights.step(backend, &mut state, &gradient);
        assert_eq!(
            (all(&weights), read(backend, &weights.rounded)),
            before,
            "{bad} at {at}"
        );
        let expected = OptimizerSnapshot {
            loss_scale: 256.0,
            steps: 1,
            skipped: 1,
            since_change: 0,
        };
        assert_eq!(snapshot(backend, &state), expected);
        // The flag was cleared: the next step is taken.
        gradient[at] = good;
        weights.step(backend, &mut state, &gradient);
        assert_ne!(all(&weights)[0], before.0[0]);
        assert_eq!(
            snapshot(backend, &state),
            OptimizerSnapshot {
                steps: 2,
                since_change: 1,
                ..expected
            }
        );
    }
}

/// An infinity is found in whichever place of its vector it stands.
pub fn overflows_are_found_in_every_column<B: Backend>(backend: &B, _: Scale) {
    let (shape, len) = ((3, 8), 24);
    for at in 0..len {
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut state = state(backend);
            let mut gradient = Random(98).uniform::<f32>(len);
            gradient[at] = bad;
            let gradient = matrix::<B, f32>(backend, shape, &gradient);
            ops::check_finite(backend, &[&gradient], &mut state).expect("a legal check");
            ops::end_step(backend, &SCALING, &mut state).expect("a legal end");
            assert_eq!(snapshot(backend, &state).skipped, 1, "{bad} at {at}");
        }
    }
    // The largest float is finite.
    let mut state = state(backend);
    let gradient = matrix::<B, f32>(backend, shape, &[f32::MAX; 24]);
    ops::check_finite(backend, &[&gradient], &mut state).expect("a legal check");
    ops::end_step(backend, &SCALING, &mut state).expect("a legal end");
    assert_eq!(snapshot(backend, &state).skipped, 0);
}

/// The scale doubles after as many good steps as the interval has, up to its maximum, and stays where that is 0.
pub fn the_loss_scale_follows<B: Backend>(backend: &B, _: Scale) {
    let mut doubling = state(backend);
    let scales: Vec<f32> = (0..10)
        .map(|_| {
            ops::end_step(backend, &SCALING, &mut doubling).expect("a legal end");
            snapshot(backend, &doubling).loss_scale
        })
        .collect();
    assert_eq!(
        scales,
        [
            512.0, 512.0, 1024.0, 1024.0, 1024.0, 2048.0, 2048.0, 2048.0, 2048.0, 2048.0
        ]
    );
    assert_eq!(snapshot(backend, &doubling).steps, 10);

    let fixed = LossScaling {
        growth_interval: 0,
        ..SCALING
    };
    let resumed = OptimizerSnapshot {
        loss_scale: 4.0,
        steps: 7,
        skipped: 2,
        since_change: 5,
    };
    let mut state = OptimizerState::resume(backend, &resumed).expect("room for a state");
    assert_eq!(snapshot(backend, &state), resumed);
    for _ in 0..10 {
        ops::end_step(backend, &fixed, &mut state).expect("a legal end");
    }
    let after = snapshot(backend, &state);
    assert_eq!((after.loss_scale, after.steps, after.skipped), (4.0, 17, 2));
}
