//! A run that is put aside and taken up again, on whatever device, goes on with the same bits.

use crate::Scale;
use crate::task;
use crate::training;
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::nn::{ModelConfig, Norm};
use halfgnn::tensor::Element;
use halfgnn::train::{Snapshot, TrainConfig};

/// What of a snapshot does not depend on the clock.
fn without_times(mut snapshot: Snapshot) -> Snapshot {
    let progress = &mut snapshot.progress;
    for report in [&mut progress.best, &mut progress.last]
        .into_iter()
        .flatten()
    {
        report.ms = 0.0;
    }
    snapshot
}

/// Weights, moments, loss scale, dropout, best epoch: all as in the run that was not put aside.
pub fn a_resumed_run_is_the_same_run<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, model: &ModelConfig, [first, all]: [u32; 2]) {
        let objective = task::objective::<B, E>(backend, model.norm());
        let train = |from: Option<&Snapshot>, epochs| {
            let mut config = TrainConfig {
                epochs,
                keep_best: true,
                ..TrainConfig::new(E::PRECISION)
            };
            // Grows now and then, so that a count that is lost would show.
            config.scaling.growth_interval = 3;
            let mut trainer = task::trainer(backend, &objective, model.clone(), config);
            if let Some(snapshot) = from {
                trainer.restore(snapshot).expect("the same model");
            }
            while trainer.next_epoch().expect("a step").is_some() {}
            without_times(trainer.snapshot().expect("nothing failed"))
        };
        let part = train(None, first);
        let resumed = train(Some(&part), all);
        assert_ne!(resumed, part);
        assert_eq!(resumed, train(None, all));
    }
    for model in task::models() {
        check::<B, f16>(backend, &model, scale.pick([2, 4], [7, 20]));
        check::<B, bf16>(backend, &model, scale.pick([2, 4], [7, 20]));
        check::<B, f32>(backend, &model, scale.pick([2, 4], [7, 20]));
    }
    // The scales of messages, and what the next ones are made of.
    for (name, model) in training::models_of_messages() {
        if matches!(name, "gcn" | "gin") {
            check::<B, f16>(backend, &model, scale.pick([1, 3], [7, 20]));
        }
    }
    // Scales of activations are those of the step, and nothing of them goes on.
    for (name, model) in training::models_of_store() {
        if matches!(name, "gcn" | "gin") {
            check::<B, f16>(backend, &model, scale.pick([1, 3], [7, 20]));
        }
    }
}

/// A snapshot of another model is refused by the name of what is missing.
pub fn another_model_is_refused<B: Backend>(backend: &B, _scale: Scale) {
    let objective = task::objective::<B, f16>(backend, Norm::Both);
    let config = TrainConfig::new(f16::PRECISION);
    let snapshot = |hidden, layers| {
        let model = ModelConfig {
            hidden,
            layers,
            ..task::model()
        };
        let trainer = task::trainer(backend, &objective, model, config);
        trainer.snapshot().expect("nothing failed")
    };
    let refused = |snapshot: &Snapshot| {
        let mut trainer = task::trainer(backend, &objective, task::model(), config);
        trainer
            .restore(snapshot)
            .expect_err("another model")
            .to_string()
    };
    let narrow = refused(&snapshot(23, 2));
    assert!(
        narrow.contains("layers.0.weight` is 19 x 23 and the model's is 19 x 24"),
        "{narrow}"
    );
    let mut missing = snapshot(24, 2);
    missing
        .tensors
        .remove("resume.layers.1.weight.second_moment");
    let missing = refused(&missing);
    assert!(
        missing.contains("no tensor `resume.layers.1.weight.second_moment`"),
        "{missing}"
    );
    let shallow = refused(&snapshot(24, 1));
    assert!(shallow.contains("layers.0.weight"), "{shallow}");
    for name in [
        "layers.0.other.bias",
        "layers.0.epsilon",
        "resume.layers.0.other.bias.first_moment",
    ] {
        let mut surplus = snapshot(24, 2);
        let bias = surplus.tensors["layers.0.bias"].clone();
        surplus.tensors.insert(name.into(), bias);
        let surplus = refused(&surplus);
        let words = format!("`{name}` has no place in the model");
        assert!(surplus.contains(&words), "{surplus}");
    }
}
