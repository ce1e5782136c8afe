//! Activations that are kept in 8 bits for the backward pass: what they change, what they do not, and what is refused.

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{Binary, HiddenActivation, Model, ModelConfig, Network, Store};
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::TrainConfig;
use halfgnn_tests::task;
use halfgnn_tests::training::{first_and_last_loss, models_of_store, relative_distance};

/// Logits and the gradients of all parameters, by name, of the second step, on weights that the first leaves as they are.
fn step<E: Element>(model: &ModelConfig) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let cpu = Cpu::new();
    let objective = task::objective::<Cpu, E>(&cpu, model.norm());
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = 256.0;
    config.optimizer = config.optimizer.with_learning_rate(0.0);
    let mut trainer = task::trainer(&cpu, &objective, model.clone(), config);
    trainer.step().expect("a step");
    trainer.gradients().expect("half a step");
    let logits = trainer.model().logits().to_f32(&cpu).expect("no failure");
    let read = trainer.model().parameters().into_iter().map(|parameter| {
        let gradient = parameter.gradient().to_f32(&cpu).expect("no failure");
        (parameter.name().to_owned(), gradient)
    });
    (logits, read.collect())
}

fn without_store(model: &ModelConfig) -> ModelConfig {
    ModelConfig {
        store: None,
        ..model.clone()
    }
}

/// The forward pass is not touched. Gradients that go on from layer to layer are the same as well, since codes tell exactly what a ReLU and
/// a dropout let through; what is made of the codes are gradients of weights, and those are near. A GIN's normalisation is computed from
/// codes too.
#[test]
fn gradients_of_weights_alone_are_of_codes() {
    fn check<E: Element>(name: &str, model: &ModelConfig, bound: f64) {
        let (logits, of_codes) = step::<E>(model);
        let (expected, plain) = step::<E>(&without_store(model));
        assert_eq!(logits, expected, "{name}");
        let mut changed = 0;
        for ((parameter, codes), (_, plain)) in of_codes.iter().zip(&plain) {
            let first = parameter.starts_with("layers.0.");
            if name != "gin" && (first || parameter.ends_with("bias")) {
                assert_eq!(codes, plain, "{name}: {parameter} in {}", E::PRECISION);
            }
            changed += usize::from(codes != plain);
            let apart = relative_distance(codes, plain);
            assert!(
                apart < bound,
                "{name}: {parameter} in {} is {apart} away",
                E::PRECISION
            );
        }
        assert!(changed >= 2, "{name}: nothing was a code");
    }
    for (name, model) in models_of_store() {
        for dropout in [0.0, 0.5] {
            let bound = if name == "gin" { 0.25 } else { 0.03 };
            let model = ModelConfig {
                dropout,
                ..model.clone()
            };
            check::<f16>(name, &model, bound);
            check::<bf16>(name, &model, bound);
        }
    }
}

/// A run learns as much as without: its loss falls as far, within a tenth.
#[test]
fn training_comes_as_far() {
    let cpu = Cpu::new();
    for (name, model) in models_of_store() {
        let (first, plain) = first_and_last_loss(&cpu, without_store(&model));
        let (_, codes) = first_and_last_loss(&cpu, model);
        assert!(
            codes - plain < 0.1 * (first - plain),
            "{name}: {codes}, and {plain} without"
        );
    }
}

/// What overflows has a finite code, and is seen all the same: the step is left out.
#[test]
fn an_overflow_is_seen_behind_its_code() {
    let cpu = Cpu::new();
    let (_, model) = models_of_store().remove(0);
    let objective = task::objective::<Cpu, f16>(&cpu, model.norm());
    let config = TrainConfig::new(Precision::Half);
    let mut trainer = task::trainer(&cpu, &objective, model, config);
    let mut is_seen = |factor: f32| {
        let weights = task::weights(&cpu, trainer.model());
        let grown: Vec<f32> = weights[0].iter().map(|weight| weight * factor).collect();
        let mut parameters = trainer.model_mut().parameters_mut();
        parameters[0].write(&cpu, &grown).expect("as many");
        drop(parameters);
        trainer.gradients().expect("half a step");
        let watched = trainer.model().watched().into_iter();
        let watched = watched.flat_map(|matrix| matrix.to_f32(&cpu).expect("no failure"));
        watched.into_iter().any(f32::is_infinite)
    };
    assert!(!is_seen(1.0));
    assert!(is_seen(1e7));
}

#[test]
fn what_keeps_activations_as_they_are_is_refused() {
    let cpu = Cpu::new();
    fn refused<E: Element>(cpu: &Cpu, model: ModelConfig) -> String {
        let model = ModelConfig {
            store: Some(Store::EightBit),
            ..model
        };
        let refused = Network::<Cpu, E>::new(cpu, &model, 0).expect_err("no codes");
        refused.to_string()
    }
    let gcn = ModelConfig::gcn(8, 3);
    assert!(refused::<f32>(&cpu, gcn.clone()).contains("take one of those"));
    let elu = ModelConfig {
        activation: HiddenActivation::Elu,
        ..gcn.clone()
    };
    assert!(refused::<f16>(&cpu, elu).contains("relu"));
    assert!(refused::<f16>(&cpu, gcn.of_bits(Binary::Full)).contains("one bit"));
}
