//! The rules of optimisers, clipping, the overflow flag and the loss scale.

use crate::Scale;
use crate::input::{Random, matrix, read, rounded};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::ops;
use halfgnn::ops::{
    AdamHyper, LossScaling, Optimizer, OptimizerSnapshot, OptimizerState, ParameterMut, SgdHyper,
};
use halfgnn::tensor::{Element, Matrix};

const HYPER: AdamHyper = AdamHyper {
    learning_rate: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 5e-4,
};

const ADAM: Optimizer = Optimizer::Adam(HYPER);

/// Every rule, with a weight decay that shows.
fn rules() -> Vec<Optimizer> {
    let sgd = |momentum, nesterov| {
        Optimizer::Sgd(SgdHyper {
            learning_rate: 0.05,
            momentum,
            nesterov,
            weight_decay: 0.1,
        })
    };
    let decaying = AdamHyper {
        weight_decay: 0.1,
        ..HYPER
    };
    vec![
        ADAM,
        Optimizer::Adam(decaying),
        Optimizer::AdamW(decaying),
        sgd(0.0, false),
        sgd(0.9, false),
        sgd(0.9, true),
    ]
}

/// `[weight, first moment, second moment]` after step `step`, from 1, in float64, as the pages of `torch.optim.Adam`,
/// `torch.optim.AdamW` and `torch.optim.SGD` have it.
fn reference(rule: &Optimizer, step: i32, rate_factor: f64, of: [f64; 3], g: f64) -> [f64; 3] {
    let [mut w, m, v] = of;
    let rate = f64::from(rule.learning_rate()) * rate_factor;
    let decay = f64::from(rule.weight_decay());
    match rule {
        Optimizer::Adam(adam) | Optimizer::AdamW(adam) => {
            let [beta1, beta2] = [adam.beta1, adam.beta2].map(f64::from);
            let mut g = g;
            if let Optimizer::Adam(_) = rule {
                g += decay * w;
            } else {
                w -= rate * decay * w;
            }
            let m = beta1 * m + (1.0 - beta1) * g;
            let v = beta2 * v + (1.0 - beta2) * g * g;
            let (mean, variance) = (m / (1.0 - beta1.powi(step)), v / (1.0 - beta2.powi(step)));
            [
                w - rate * mean / (variance.sqrt() + f64::from(adam.epsilon)),
                m,
                v,
            ]
        }
        Optimizer::Sgd(sgd) => {
            let momentum = f64::from(sgd.momentum);
            let g = g + decay * w;
            let b = if step > 1 { momentum * m + g } else { g };
            let direction = match (sgd.momentum != 0.0, sgd.nesterov) {
                (false, _) => g,
                (true, false) => b,
                (true, true) => g + momentum * b,
            };
            [w - rate * direction, b, v]
        }
    }
}

const SCALING: LossScaling = LossScaling {
    initial: 512.0,
    growth_interval: 3,
    maximum: 2048.0,
};

struct Weights<B: Backend, E: Element> {
    master: Matrix<B, f32>,
    moments: [Option<Matrix<B, f32>>; 2],
    rounded: Matrix<B, E>,
}

impl<B: Backend, E: Element> Weights<B, E> {
    fn new(backend: &B, rule: &Optimizer, shape: (usize, usize), values: &[f32]) -> Self {
        let zeros = vec![0.0; values.len()];
        Self {
            master: matrix(backend, shape, values),
            moments: [0, 1].map(|k| (k < rule.moments()).then(|| matrix(backend, shape, &zeros))),
            // Its padding is zero from the beginning.
            rounded: matrix(backend, shape, &vec![f32::NAN; shape.0 * shape.1]),
        }
    }

    fn step(
        &mut self,
        backend: &B,
        rule: &Optimizer,
        state: &mut OptimizerState<B>,
        gradient: &[f32],
    ) {
        let gradient = matrix(backend, self.master.shape(), gradient);
        ops::check_finite(backend, &[&gradient], state).expect("a legal check");
        let parameters = &mut [self.parameter(&gradient)];
        ops::update(backend, rule, None, state, parameters).expect("a legal step");
        ops::end_step(backend, &SCALING, state).expect("a legal end");
    }

    fn parameter<'a>(&'a mut self, gradient: &'a Matrix<B, f32>) -> ParameterMut<'a, B, E> {
        let [first_moment, second_moment] = self.moments.each_mut().map(Option::as_mut);
        ParameterMut {
            gradient,
            master: &mut self.master,
            first_moment,
            second_moment,
            rounded: Some(&mut self.rounded),
        }
    }

    fn all(&self) -> Vec<&Matrix<B, f32>> {
        let moments = self.moments.iter().flatten();
        std::iter::once(&self.master).chain(moments).collect()
    }
}

fn state<B: Backend>(backend: &B) -> OptimizerState<B> {
    OptimizerState::new(backend, &SCALING).expect("room for a state")
}

fn snapshot<B: Backend>(backend: &B, state: &OptimizerState<B>) -> OptimizerSnapshot {
    state.snapshot(backend).expect("no failure before")
}

/// A few steps against float64, PyTorch's formulas; the gradients are scaled as the loss is, and the rate changes half-way.
pub fn rules_follow_float64<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        rule: &Optimizer,
        shape: (usize, usize),
        steps: u32,
    ) {
        let len = shape.0 * shape.1;
        let start = Random(90).uniform::<f32>(len);
        let mut weights = Weights::<B, E>::new(backend, rule, shape, &start);
        let mut state = state(backend);
        let mut expected: Vec<[f64; 3]> = start.iter().map(|&w| [f64::from(w), 0.0, 0.0]).collect();
        let mut factor = 1.0;
        for step in 1..=steps {
            if step == steps.div_ceil(2) {
                factor = 0.25;
                state.set_rate_factor(backend, 0.25).expect("room");
            }
            let loss_scale = snapshot(backend, &state).loss_scale;
            let gradient = Random(90 + step).uniform::<f32>(len);
            let scaled: Vec<f32> = gradient.iter().map(|g| g * loss_scale).collect();
            weights.step(backend, rule, &mut state, &scaled);
            for (of, &g) in expected.iter_mut().zip(&gradient) {
                *of = reference(rule, step as i32, factor, *of, f64::from(g));
            }
        }
        let master = read(backend, &weights.master);
        for (i, (&actual, [expected, ..])) in master.iter().zip(&expected).enumerate() {
            // A step is at most about the learning rate long, of SGD some times that, and each is off by some tens of roundings.
            let off = (f64::from(actual) - expected).abs();
            assert!(
                off < 1e-6 * f64::from(steps),
                "{rule:?}: weight {i} of {shape:?}: {actual} for {expected}"
            );
        }
        let copy: Vec<f32> = master.iter().map(|&w| rounded::<E>(w)).collect();
        assert_eq!(read(backend, &weights.rounded), copy);
        for moment in weights.moments.iter().flatten() {
            read(backend, moment);
        }
        assert_eq!(snapshot(backend, &state).steps, steps);
    }
    for rule in &rules() {
        for shape in [(1, 7), (3, 9), (scale.pick(40, 1433), 64), (0, 3)] {
            check::<B, f16>(backend, rule, shape, 5);
            check::<B, bf16>(backend, rule, shape, 5);
            check::<B, f32>(backend, rule, shape, 5);
        }
        together_is_one_by_one::<B, f16>(backend, rule);
        together_is_one_by_one::<B, f32>(backend, rule);
    }
}

/// Gradients of several parameters, more than a launch takes, clipped as `clip_grad_norm_` and `clip_grad_value_` clip them: in
/// float64, and with the same bits as gradients that were scaled beforehand by the factor.
pub fn gradients_are_clipped<B: Backend>(backend: &B, scale: Scale) {
    let rule = Optimizer::Sgd(SgdHyper {
        learning_rate: 1.0,
        ..SgdHyper::default()
    });
    let shapes = [(1, 7), (0, 3), (3, 9), (5, 0), (scale.pick(60, 900), 17)];
    let shapes: Vec<_> = shapes.into_iter().cycle().take(41).collect();
    let mut state = state(backend);
    let loss_scale = snapshot(backend, &state).loss_scale;
    let gradients: Vec<Vec<f32>> = (300..)
        .zip(&shapes)
        .map(|(seed, shape)| Random(seed).uniform::<f32>(shape.0 * shape.1))
        .collect();
    let squares = gradients.iter().flatten().map(|&g| f64::from(g).powi(2));
    let norm = squares.sum::<f64>().sqrt();
    let mut step = |clip_norm: Option<f32>, clip_value: Option<f32>| {
        let scaled: Vec<Matrix<B, f32>> = gradients
            .iter()
            .zip(&shapes)
            .map(|(gradient, &shape)| {
                let scaled: Vec<f32> = gradient.iter().map(|g| g * loss_scale).collect();
                matrix(backend, shape, &scaled)
            })
            .collect();
        if let Some(maximum) = clip_norm {
            let all: Vec<_> = scaled.iter().collect();
            ops::clip_norm(backend, maximum, &all, &mut state).expect("a legal clip");
        }
        let zeros = |shape: &(usize, usize)| vec![0.0; shape.0 * shape.1];
        let mut weights: Vec<Weights<B, f32>> = shapes
            .iter()
            .map(|shape| Weights::new(backend, &rule, *shape, &zeros(shape)))
            .collect();
        let pairs = weights.iter_mut().zip(&scaled);
        let mut parameters: Vec<_> = pairs.map(|(w, g)| w.parameter(g)).collect();
        ops::update(backend, &rule, clip_value, &state, &mut parameters).expect("a legal step");
        let read = |w: &Weights<B, f32>| read(backend, &w.master);
        weights.iter().map(read).collect::<Vec<_>>()
    };
    for maximum in [norm * 0.1, norm * 0.999, norm * 1.001] {
        let clipped = step(Some(maximum as f32), None);
        let factor = (f64::from(maximum as f32) / (norm + 1e-6)).min(1.0);
        for (clipped, gradient) in clipped.iter().zip(&gradients) {
            for (&weight, &g) in clipped.iter().zip(gradient) {
                let expected = -f64::from(g) * factor;
                let off = (f64::from(weight) - expected).abs();
                assert!(off <= 4e-7 * expected.abs(), "{weight} for {expected}");
            }
        }
    }
    // The last factor was 1: nothing more is clipped.
    let clipped = step(None, Some(0.25));
    for (clipped, gradient) in clipped.iter().zip(&gradients) {
        for (&weight, &g) in clipped.iter().zip(gradient) {
            assert_eq!(weight, -g.clamp(-0.25, 0.25));
        }
    }
    // What nothing can be clipped to.
    for limit in [0.0, -1.0, f32::NAN] {
        let refused = ops::clip_norm(backend, limit, &[], &mut state).unwrap_err();
        assert!(refused.to_string().contains("above 0"), "{refused}");
        let nothing: &mut [ParameterMut<'_, B, f32>] = &mut [];
        let refused = ops::update(backend, &rule, Some(limit), &state, nothing).unwrap_err();
        assert!(refused.to_string().contains("above 0"), "{refused}");
    }
}

/// Weights, moments and copies have the CPU's bits on every backend, clipped or not: the order of all sums is one.
pub fn bits_are_those_of_the_cpu<B: Backend>(backend: &B, scale: Scale) {
    fn steps<B: Backend>(
        backend: &B,
        rule: &Optimizer,
        shapes: &[(usize, usize)],
    ) -> Vec<Vec<f32>> {
        let mut state = state(backend);
        state.set_rate_factor(backend, 0.3).expect("room");
        let values =
            |seed: u32, shape: &(usize, usize)| Random(seed).uniform::<f32>(shape.0 * shape.1);
        let mut weights: Vec<Weights<B, f16>> = (400..)
            .zip(shapes)
            .map(|(seed, shape)| Weights::new(backend, rule, *shape, &values(seed, shape)))
            .collect();
        for step in 0..3 {
            let gradients: Vec<Matrix<B, f32>> = (500 + 50 * step..)
                .zip(shapes)
                .map(|(seed, shape)| {
                    let of_loss = values(seed, shape).into_iter();
                    let scaled: Vec<f32> = of_loss.map(|g| g * 512.0).collect();
                    matrix(backend, *shape, &scaled)
                })
                .collect();
            let all: Vec<_> = gradients.iter().collect();
            ops::clip_norm(backend, 0.7, &all, &mut state).expect("a legal clip");
            let pairs = weights.iter_mut().zip(&gradients);
            let mut parameters: Vec<_> = pairs.map(|(w, g)| w.parameter(g)).collect();
            ops::update(backend, rule, Some(0.01), &state, &mut parameters).expect("a legal step");
            ops::end_step(backend, &SCALING, &mut state).expect("a legal end");
        }
        let all = |weights: &Weights<B, f16>| {
            let mut all: Vec<_> = weights.all().iter().map(|m| read(backend, m)).collect();
            all.push(read(backend, &weights.rounded));
            all
        };
        weights.iter().flat_map(all).collect()
    }
    let shapes = [(1, 7), (0, 3), (3, 9), (scale.pick(90, 1433), 41)];
    let shapes: Vec<_> = shapes.into_iter().cycle().take(37).collect();
    for rule in &rules() {
        let found = steps(backend, rule, &shapes);
        assert!(found == steps(&Cpu::new(), rule, &shapes), "{rule:?}");
    }
}

/// More parameters than one launch takes, some of them empty: the same bits as each by itself.
fn together_is_one_by_one<B: Backend, E: Element>(backend: &B, rule: &Optimizer) {
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
        all.map(|(&shape, values)| Weights::new(backend, rule, shape, values))
            .collect()
    };
    let (mut single, mut together) = (make(), make());
    for (weights, gradient) in single.iter_mut().zip(&gradients) {
        weights.step(backend, rule, &mut state(backend), gradient);
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
    ops::update(backend, rule, None, &state, &mut parameters).expect("a legal step");
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
        let mut weights = Weights::<B, f16>::new(backend, &ADAM, shape, &start);
        let mut state = state(backend);
        let mut gradient = Random(97).uniform::<f32>(len);
        weights.step(backend, &ADAM, &mut state, &gradient);
        let all = |weights: &Weights<B, f16>| -> Vec<Vec<f32>> {
            let all = weights.all().into_iter();
            all.map(|matrix| read(backend, matrix)).collect()
        };
        let before = (all(&weights), read(backend, &weights.rounded));
        let good = std::mem::replace(&mut gradient[at], bad);
        weights.step(backend, &ADAM, &mut state, &gradient);
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
        weights.step(backend, &ADAM, &mut state, &gradient);
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
