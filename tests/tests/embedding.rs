//! What a program around the library asks for: hidden activations, and losses of its own.

use half::f16;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{Mode, Model, ModelConfig, Norm};
use halfgnn::tensor::Element;
use halfgnn::train::{CustomLoss, TrainConfig};
use halfgnn_tests::task;

#[test]
fn hidden_activations_are_what_the_next_layer_reads() {
    let backend = &Cpu::new();
    let objective = task::objective::<_, f32>(backend, Norm::Both);
    let config = TrainConfig::new(f32::PRECISION);
    let model = ModelConfig {
        hidden_by_layer: vec![24, 8],
        layers: 3,
        residual: false,
        ..task::model()
    };
    let mut trainer = task::trainer(backend, &objective, model, config);
    let before = trainer.model().activations(0).unwrap_err().to_string();
    assert!(before.contains("before a forward pass"), "{before}");
    let network = trainer.model_mut();
    network.keep_activations();
    network
        .forward(objective.inputs(backend), Mode::Evaluate)
        .expect("a pass");
    assert_eq!(network.depth(), 3);
    let rows = objective.vertices();
    let shapes = [0, 1, 2].map(|layer| network.activations(layer).expect("it is stored").shape());
    assert_eq!(shapes, [(rows, 24), (rows, 8), (rows, task::CLASSES)]);
    let values = |layer| network.activations(layer).unwrap().to_f32(backend).unwrap();
    assert_eq!(values(2), network.logits().to_f32(backend).unwrap());
    let hidden = values(1);
    assert!(hidden.iter().all(|&value| value >= 0.0) && hidden.iter().any(|&value| value > 0.0));
    let none = network.activations(3).unwrap_err().to_string();
    assert!(none.contains("layers 0 to 2"), "{none}");
}

#[test]
fn outputs_that_are_not_kept_are_refused() {
    let backend = &Cpu::new();
    let model = ModelConfig::gin(task::FEATURES, task::CLASSES);
    let objective = task::objective::<_, f32>(backend, model.norm());
    let config = TrainConfig::new(f32::PRECISION);
    let mut trainer = task::trainer(backend, &objective, model, config);
    trainer.evaluate().expect("an evaluation");
    let refused = trainer.model().activations(0).unwrap_err().to_string();
    assert!(
        refused.contains("call Network::keep_activations before the pass"),
        "{refused}"
    );
    assert!(
        trainer.model().activations(4).is_ok(),
        "those are the logits"
    );
}

/// A loss that wants small logits makes them smaller than cross-entropy does, in half as well; one that fails leaves the step out.
#[test]
fn a_loss_of_ones_own_is_trained() {
    fn check<B: Backend, E: Element>(backend: &B) {
        let objective = task::objective::<B, E>(backend, Norm::Both);
        let config = TrainConfig::new(E::PRECISION);
        let trainer = || task::trainer(backend, &objective, task::model(), config);
        let mut own = trainer();
        let mut given = trainer();
        for _ in 0..4 {
            given.step().expect("a step");
            let half_the_squares = |of: CustomLoss<'_, B, E>| {
                let mut values = of.logits.to_f32(of.backend)?;
                values
                    .iter_mut()
                    .for_each(|value| *value *= of.loss_scale / 64.0);
                of.gradient.write_f32(of.backend, &values)
            };
            own.step_with(half_the_squares).expect("a step");
        }
        assert_eq!(own.optimizer().unwrap().steps, 4);
        let size = |trainer: &halfgnn::train::Trainer<B, E, _>| {
            let model: &halfgnn::nn::Network<B, E> = trainer.model();
            let logits = model.logits().to_f32(backend).unwrap();
            logits.iter().map(|value| value * value).sum::<f32>()
        };
        own.evaluate().expect("an evaluation");
        given.evaluate().expect("an evaluation");
        assert!(
            size(&own) < size(&given),
            "{}: {} {}",
            E::PRECISION,
            size(&own),
            size(&given)
        );
        let refused = own.step_with(|_| {
            Err(halfgnn::Error::Unsupported {
                operator: "loss",
                reason: "none".into(),
            })
        });
        assert!(refused.is_err());
        assert_eq!(own.optimizer().unwrap().steps, 4);
    }
    check::<_, f16>(&Cpu::new());
    check::<_, f32>(&Cpu::new());
}

#[test]
fn one_network_serves_two_threads() {
    halfgnn_tests::sharing::two_threads([Cpu::new(), Cpu::new()]);
}

#[test]
fn networks_of_other_layers_share_nothing() {
    halfgnn_tests::sharing::misfits_are_refused(&Cpu::new());
}
