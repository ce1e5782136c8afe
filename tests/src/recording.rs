//! What is recorded and replayed does what it did when it was called: the same, and to no other memory.

use crate::Scale;
use crate::input::{matrix, read};
use crate::task;
use half::{bf16, f16};
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::metrics::Metric;
use halfgnn::nn::{ModelConfig, Norm};
use halfgnn::ops::{self, Activation, CodeFormat};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Clipping, Decay, Few, Schedule, TrainConfig};

/// `y = relu(x)`.
fn relu<B: Backend>(
    backend: &B,
    x: &Matrix<B, f16>,
    y: &mut Matrix<B, f16>,
) -> Result<(), halfgnn::Error> {
    let op = Activation {
        bias: None,
        relu: true,
        dropout: None,
    };
    ops::activate(backend, &op, Some(x), y)
}

/// Weights, losses and accuracies are the same bits whether steps are recorded or called one by one: dropout draws anew in
/// every step, and the loss scale and Adam's corrections move on.
pub fn recorded_steps_are_the_same_steps<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, model: &ModelConfig, steps: usize) {
        let objective = task::objective::<B, E>(backend, model.norm());
        let train = |record: bool| {
            let config = TrainConfig {
                record,
                others: Few::try_from(vec![Metric::RocAuc, Metric::MacroF1]).expect("few"),
                ..TrainConfig::new(E::PRECISION)
            };
            let mut trainer = task::trainer(backend, &objective, model.clone(), config);
            let mut told = Vec::new();
            for _ in 0..steps {
                trainer.step().expect("a step");
                told.push((
                    trainer.loss().expect("a loss").to_bits(),
                    trainer.evaluate().expect("an accuracy"),
                ));
            }
            assert!(record || !trainer.is_recorded());
            (task::weights(backend, trainer.model()), told)
        };
        let (weights, told) = train(false);
        assert_eq!(train(true), (weights, told.clone()));
        assert!(
            told.windows(2).all(|pair| pair[0].0 != pair[1].0),
            "every step has a loss of its own: {told:?}"
        );
    }
    for (number, model) in task::models().into_iter().enumerate() {
        check::<B, f16>(backend, &model, scale.pick(3, 20));
        if number == 0 || scale == Scale::Full {
            check::<B, bf16>(backend, &model, scale.pick(3, 20));
            check::<B, f32>(backend, &model, scale.pick(3, 20));
        }
    }
    check::<B, f16>(backend, &with_messages(), scale.pick(4, 20));
}

/// The task's model, its messages in codes.
fn with_messages() -> ModelConfig {
    ModelConfig {
        messages: Some(CodeFormat::Int8),
        ..task::model()
    }
}

/// A schedule changes the rate of recorded steps, and the norm of their gradients is clipped anew in each: the same bits as of
/// steps that are called.
pub fn schedules_and_clipping_reach_recorded_steps<B: Backend>(backend: &B, scale: Scale) {
    let objective = task::objective::<B, f16>(backend, Norm::Both);
    let epochs = scale.pick(4, 12);
    let train = |record: bool, schedule: Schedule, clipping: Clipping| {
        let config = TrainConfig {
            record,
            epochs,
            schedule,
            clipping,
            ..TrainConfig::new(f16::PRECISION)
        };
        let mut trainer = task::trainer(backend, &objective, task::model(), config);
        let mut rates = Vec::new();
        while let Some(report) = trainer.next_epoch().expect("an epoch") {
            rates.push(report.learning_rate);
        }
        (task::weights(backend, trainer.model()), rates)
    };
    let cosine = Schedule {
        warmup: 2,
        decay: Decay::Cosine,
    };
    let clipped = Clipping::Norm(0.05);
    let called = train(false, cosine, clipped);
    assert_eq!(train(true, cosine, clipped), called);
    assert_eq!(called.1[..3], [0.005, 0.01, 0.01]);
    assert!(called.1[3] < 0.01, "{:?}", called.1);
    for (schedule, clipping) in [(cosine, Clipping::None), (Schedule::default(), clipped)] {
        assert_ne!(train(true, schedule, clipping).0, called.0);
    }
}

/// Whether steps are recorded on a backend, of which it is known: one that forgot how to would else pass every other case.
pub fn assert_recorded<B: Backend>(backend: &B, expected: bool) {
    let objective = task::objective::<B, f16>(backend, Norm::Both);
    for model in [task::model(), with_messages()] {
        let config = TrainConfig::new(f16::PRECISION);
        let mut trainer = task::trainer(backend, &objective, model, config);
        for _ in 0..3 {
            trainer.step().expect("a step");
        }
        assert_eq!(trainer.is_recorded(), expected);
    }
    let recording = backend.record(|| Ok(())).expect("nothing to record");
    assert_eq!(recording.is_some(), expected);
}

/// A model that is changed between steps is recorded anew.
pub fn a_changed_model_is_recorded_anew<B: Backend>(backend: &B, _scale: Scale) {
    let objective = task::objective::<B, f32>(backend, Norm::Both);
    let config = TrainConfig::new(f32::PRECISION);
    let mut trainer = task::trainer(backend, &objective, task::model(), config);
    for _ in 0..2 {
        trainer.step().expect("a step");
    }
    *trainer.model_mut() = halfgnn::nn::Network::new(backend, &task::model(), 9).expect("room");
    assert!(!trainer.is_recorded());
    trainer.step().expect("a step");
    let after = task::weights(backend, trainer.model());
    trainer.step().expect("a step");
    assert_ne!(
        task::weights(backend, trainer.model()),
        after,
        "the new model is trained"
    );
}

/// The evaluation as well: a model that replaces another is evaluated, and not the one that was recorded.
pub fn a_changed_model_is_evaluated_anew<B: Backend>(backend: &B, _scale: Scale) {
    let objective = task::objective::<B, f32>(backend, Norm::Both);
    let config = TrainConfig::new(f32::PRECISION);
    let model = |seed| halfgnn::nn::Network::new(backend, &task::model(), seed).expect("room");
    let evaluated = |seed| {
        let mut trainer = task::trainer(backend, &objective, task::model(), config);
        *trainer.model_mut() = model(seed);
        trainer.evaluate().expect("an accuracy")
    };
    let mut trainer = task::trainer(backend, &objective, task::model(), config);
    for seed in [9, 10, 11] {
        *trainer.model_mut() = model(seed);
        // The first is called, the second recorded, the third replayed.
        for _ in 0..3 {
            assert_eq!(trainer.evaluate().expect("an accuracy"), evaluated(seed));
        }
    }
    let told = [9, 10, 11].map(evaluated);
    assert!(
        told[0] != told[1] && told[1] != told[2],
        "the models are told apart: {told:?}"
    );
}

/// A fill is part of a recording like a launch.
pub fn fills_are_recorded<B: Backend>(backend: &B, _scale: Scale) {
    let mut x = matrix::<B, f16>(backend, (1, 3), &[1.0, 2.0, 3.0]);
    let recording = backend.record(|| x.clear(backend));
    let Some(recording) = recording.expect("a legal call") else {
        return;
    };
    assert_eq!(read(backend, &x), [1.0, 2.0, 3.0], "recorded, not run");
    backend.replay(&recording).expect("a legal call");
    assert_eq!(read(backend, &x), [0.0; 3]);
}

/// Memory that a recording uses is not handed out again while it lives, though the matrix has gone.
pub fn recorded_memory_stays<B: Backend>(backend: &B, _scale: Scale) {
    let (shape, values) = ((7, 9), [-1.0, 2.0, 3.0].repeat(21));
    let x = matrix::<B, f16>(backend, shape, &values);
    let mut y = matrix::<B, f16>(backend, shape, &[0.0; 63]);
    let Some(recording) = backend
        .record(|| relu(backend, &x, &mut y))
        .expect("a legal operator")
    else {
        return;
    };
    assert_eq!(read(backend, &y), [0.0; 63], "recorded, not run");
    backend.replay(&recording).expect("a legal operator");
    assert_eq!(read(backend, &y)[..3], [0.0, 2.0, 3.0]);

    drop(y);
    let fours = [4.0; 63];
    let others: Vec<Matrix<B, f16>> = (0..3).map(|_| matrix(backend, shape, &fours)).collect();
    drop(x);
    backend
        .replay(&recording)
        .expect("its memory is still there");
    backend.synchronize().expect("nothing failed");
    for other in &others {
        assert_eq!(read(backend, other), fours);
    }
}

/// Inside a recording nothing can be allocated, copied or waited for; afterwards everything can.
pub fn what_cannot_be_recorded_is_refused<B: Backend>(backend: &B, _scale: Scale) {
    if !matches!(backend.record(|| Ok(())), Ok(Some(_))) {
        return;
    }
    let mut x = matrix::<B, f16>(backend, (1, 2), &[1.0, 2.0]);
    let refused = |work: &mut dyn FnMut() -> Result<(), halfgnn::Error>, call: &str| {
        let error = backend.record(work).expect_err(call).to_string();
        assert_eq!(
            error,
            format!(
                "{call} cannot be part of a recorded step: whatever a step needs must be there before it is recorded"
            )
        );
    };
    refused(
        &mut || Matrix::<B, f16>::zeros(backend, 1, 1, MemoryKind::Workspace).map(drop),
        "an allocation",
    );
    refused(&mut || x.to_f32(backend).map(drop), "a copy");
    refused(&mut || backend.synchronize(), "a wait");
    refused(&mut || backend.record(|| Ok(())).map(drop), "a recording");
    refused(&mut || backend.timed(|| Ok(())).map(drop), "an event");
    x.write_f32(backend, &[3.0, 4.0])
        .expect("nothing is recorded any more");
    assert_eq!(read(backend, &x), [3.0, 4.0]);
}
