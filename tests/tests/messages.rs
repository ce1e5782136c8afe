//! Messages of 8 bits: what they change, what they do not, and what is refused.

use half::{bf16, f16};
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{ConvolutionConfig, Model, ModelConfig, Network};
use halfgnn::ops::{Accumulate, CodeFormat, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::TrainConfig;
use halfgnn_tests::task::{self, CLASSES, VERTICES};
use halfgnn_tests::training::{first_and_last_loss, models_of_messages, relative_distance};

/// Gradients of the first step, all parameters one after the other.
fn gradients<E: Element>(model: &ModelConfig) -> Vec<Vec<f32>> {
    let cpu = Cpu::new();
    let objective = task::objective::<Cpu, E>(&cpu, model.norm());
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = 256.0;
    let mut trainer = task::trainer(&cpu, &objective, model.clone(), config);
    trainer.gradients().expect("half a step");
    read_gradients(&cpu, trainer.model())
}

fn read_gradients<E: Element>(cpu: &Cpu, model: &impl Model<Cpu, E>) -> Vec<Vec<f32>> {
    let read = model.parameters().into_iter();
    read.map(|parameter| parameter.gradient().to_f32(cpu).expect("no failure"))
        .collect()
}

/// Codes are near the numbers that they stand for, and no others: gradients are those of the model without them up to a few steps of
/// codes, and not to their last bit. Of models without a batch normalisation, which leaves of a random network's gradients little but
/// the differences.
#[test]
fn gradients_are_those_of_messages_as_they_are() {
    fn check<E: Element>(name: &str, model: &ModelConfig) {
        let plain = ModelConfig {
            messages: None,
            ..model.clone()
        };
        let (codes, plain) = (
            gradients::<E>(model).concat(),
            gradients::<E>(&plain).concat(),
        );
        let apart = relative_distance(&codes, &plain);
        println!(
            "APART {name} {:?} {} {apart:.4}",
            model.messages,
            E::PRECISION
        );
        assert!(codes != plain, "{name}: no message was a code");
        assert!(
            apart < 0.15,
            "{name} with {:?} in {}: gradients are {apart:.3} of their norm away",
            model.messages,
            E::PRECISION
        );
    }
    for (name, model) in models_of_messages() {
        if matches!(name, "gcn" | "sage") {
            let model = ModelConfig {
                dropout: 0.0,
                ..model
            };
            check::<f16>(name, &model);
            check::<bf16>(name, &model);
        }
    }
}

/// A run learns as much as without: its loss falls as far, within a tenth.
#[test]
fn training_comes_as_far_as_with_messages_as_they_are() {
    let cpu = Cpu::new();
    for (name, model) in models_of_messages() {
        let losses = |messages| {
            let model = ModelConfig {
                messages,
                ..model.clone()
            };
            first_and_last_loss(&cpu, model)
        };
        let ((_, codes), (first, plain)) = (losses(model.messages), losses(None));
        println!("LOSS {name} {:?} {first} {plain} {codes}", model.messages);
        assert!(
            codes - plain < 0.1 * (first - plain),
            "{name} with {:?}: a loss of {codes}, and of {plain} without, from {first}",
            model.messages
        );
    }
}

/// Codes of a forward pass are the nearest, those of gradients are drawn: of one model, two steps compute the same logits, and not the
/// same gradients.
#[test]
fn gradients_are_rounded_by_chance_and_activations_are_not() {
    let cpu = Cpu::new();
    for (name, model) in models_of_messages() {
        let mut model = ModelConfig {
            dropout: 0.0,
            ..model
        };
        if let ConvolutionConfig::Gat(gat) = &mut model.convolution {
            gat.attention_dropout = 0.0;
        }
        let objective = task::objective::<Cpu, f16>(&cpu, model.norm());
        let mut config = TrainConfig::new(Precision::Half);
        config.optimizer = config.optimizer.with_learning_rate(0.0);
        let mut trainer = task::trainer(&cpu, &objective, model, config);
        // The first has no scales of a step before.
        trainer.step().expect("a step");
        let mut step = || {
            trainer.step().expect("a step");
            let logits = trainer.model().logits().to_f32(&cpu).expect("no failure");
            (logits, read_gradients(&cpu, trainer.model()))
        };
        let (first, second) = (step(), step());
        assert_eq!(first.0, second.0, "{name}");
        assert_ne!(first.1, second.1, "{name}");
    }
}

/// An overflow of a gradient is seen though its code is finite, and so is all that is computed from it: the step is left out.
#[test]
fn an_overflow_is_seen_behind_its_code() {
    const HIDDEN: usize = 3;
    let cpu = Cpu::new();
    let gcns = models_of_messages().into_iter();
    for (_, model) in gcns.filter(|(name, _)| *name == "gcn") {
        let model = ModelConfig {
            hidden: HIDDEN,
            dropout: 0.0,
            ..model
        };
        let objective = task::objective::<Cpu, f16>(&cpu, model.norm());
        let config = TrainConfig::new(Precision::Half);
        let mut trainer = task::trainer(&cpu, &objective, model, config);
        let before = task::weights(&cpu, trainer.model());
        // Wider than its input, the last layer sums up first: against the edges go gradients of vertices times its weights,
        // here the sum of their magnitudes times a number that half can hold.
        let weights = before
            .iter()
            .find(|values| values.len() == HIDDEN * CLASSES);
        let row = &weights.expect("weights of the last layer")[..CLASSES];
        assert!(row.iter().map(|value| value.abs()).sum::<f32>() > 1.2);
        let gradient: Vec<f32> = row
            .iter()
            .map(|weight| 60_000f32.copysign(*weight))
            .collect();
        let gradient = gradient.repeat(VERTICES);
        let gradient =
            Matrix::from_f32(&cpu, VERTICES, CLASSES, &gradient, MemoryKind::Activations)
                .expect("room");
        trainer
            .step_with(|loss| {
                *loss.gradient = gradient;
                Ok(())
            })
            .expect("half a step");
        for values in read_gradients(&cpu, trainer.model()) {
            assert!(values.iter().all(|value| value.is_finite()));
        }
        let infinite = |matrix: &Matrix<Cpu, f32>| {
            let values = matrix.to_f32(&cpu).expect("no failure");
            values.iter().any(|value| value.is_infinite())
        };
        assert!(trainer.model().watched().into_iter().any(infinite));
        assert_eq!(trainer.optimizer().expect("a state").skipped, 1);
        assert_eq!(task::weights(&cpu, trainer.model()), before);
    }
}

/// An evaluation sends what the model computes with: weights that were trained with codes give what they give without.
#[test]
fn evaluations_send_what_the_model_computes_with() {
    let cpu = Cpu::new();
    let (_, model) = models_of_messages().remove(0);
    let objective = task::objective::<Cpu, f16>(&cpu, model.norm());
    let logits = |messages| {
        let model = ModelConfig {
            messages,
            ..model.clone()
        };
        let trainer = task::trainer(&cpu, &objective, model, TrainConfig::new(Precision::Half));
        let mut network = trainer.into_model();
        let inputs = objective.inputs(&cpu);
        network
            .forward(inputs, halfgnn::nn::Mode::Evaluate)
            .expect("a pass");
        network.logits().to_f32(&cpu).expect("no failure")
    };
    assert_eq!(logits(Some(CodeFormat::Int8)), logits(None));
}

/// What is too large for its scale is counted: of features that grow a hundredfold from one step to the next.
#[test]
fn what_saturates_is_counted() {
    let cpu = Cpu::new();
    let (_, model) = models_of_messages().remove(0);
    let model = ModelConfig {
        dropout: 0.0,
        ..model
    };
    let objective = task::objective::<Cpu, f16>(&cpu, model.norm());
    let mut trainer = task::trainer(&cpu, &objective, model, TrainConfig::new(Precision::Half));
    trainer.step().expect("a step");
    let count = |model: &Network<Cpu, f16>| model.saturated_messages(&cpu).expect("no failure");
    assert_eq!(count(trainer.model()), Some(0));
    let mut weights = task::weights(&cpu, trainer.model());
    weights[0].iter_mut().for_each(|weight| *weight *= 100.0);
    let mut parameters = trainer.model_mut().parameters_mut();
    parameters[0].write(&cpu, &weights[0]).expect("as many");
    trainer.gradients().expect("half a step");
    assert!(count(trainer.model()).expect("it has some") > 0);
}

#[test]
fn what_has_no_sums_of_codes_is_refused() {
    let cpu = Cpu::new();
    fn refused<E: Element>(cpu: &Cpu, model: ModelConfig) -> String {
        let model = ModelConfig {
            messages: Some(CodeFormat::Int8),
            ..model
        };
        Network::<Cpu, E>::new(cpu, &model, 0)
            .expect_err("no sums of codes")
            .to_string()
    }
    let gcn = ModelConfig::gcn(8, 3);
    assert!(refused::<f32>(&cpu, gcn.clone()).contains("take one of those"));
    assert!(refused::<f16>(&cpu, ModelConfig::gatv2(8, 3)).contains("leave messages as they are"));
    let policy = SpmmPolicy {
        accumulate: Accumulate::Half,
        ..SpmmPolicy::default()
    };
    let other = ModelConfig {
        policy,
        ..gcn.clone()
    };
    assert!(refused::<f16>(&cpu, other).contains("policy"));
    assert!(Network::<Cpu, f32>::new(&cpu, &gcn, 0).is_ok());
}
