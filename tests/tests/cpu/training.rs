//! Training on the CPU: learning by heart, overflow, repeatability, memory.

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{MemoryKind, MemoryReport, Storage};
use halfgnn::graph::GraphCounts;
use halfgnn::nn::{Gcn, Mode, Model, ModelConfig, Network, Norm};
use halfgnn::ops::SpmmPolicy;
use halfgnn::tensor::Element;
use halfgnn::train::{Footprint, Objective, Split, Status, TrainConfig, Trainer};
use halfgnn_tests::toy::Toy;
use std::ops::ControlFlow;

fn config(toy: &Toy, layers: usize, hidden: usize, dropout: f32) -> ModelConfig {
    ModelConfig {
        hidden,
        layers,
        dropout,
        ..ModelConfig::gcn(toy.width, toy.classes)
    }
}

type GcnTrainer<E> = Trainer<Cpu, E, Network<Cpu, E>>;

fn trainer<E: Element>(
    backend: &Cpu,
    objective: &Objective<Cpu, E>,
    config: ModelConfig,
    train: TrainConfig,
) -> GcnTrainer<E> {
    let model = Network::new(backend, &config, train.seed).unwrap();
    Trainer::new(backend, objective, model, train).unwrap()
}

fn weights<E: Element>(backend: &Cpu, trainer: &GcnTrainer<E>) -> Vec<Vec<f32>> {
    trainer
        .model()
        .parameters()
        .iter()
        .map(|p| p.master().to_f32(backend).unwrap())
        .collect()
}

/// A trainer outlives the names of what it was made from, goes to another thread, and gives its model back.
#[test]
fn a_trainer_owns_what_it_trains_with() {
    fn is_static<T: 'static + Send + Sync>(value: T) -> T {
        value
    }
    let toy = Toy::new(8);
    let mut trainer = {
        let backend = Cpu::new();
        let objective = toy.objective::<_, f32>(&backend, Norm::Both);
        let config = config(&toy, 2, 16, 0.0);
        let train = TrainConfig::new(f32::PRECISION);
        is_static(trainer(&backend, &objective, config, train))
    };
    let stepped = std::thread::spawn(move || {
        trainer.step().unwrap();
        trainer
    });
    let trainer = stepped.join().unwrap();
    let backend = Cpu::new();
    let after = weights(&backend, &trainer);
    let model = trainer.into_model();
    let kept = model.parameters().into_iter();
    let kept: Vec<_> = kept.map(|p| p.master().to_f32(&backend).unwrap()).collect();
    assert_eq!(kept, after);
    let untrained = Network::<_, f32>::new(&backend, &config(&toy, 2, 16, 0.0), 0).unwrap();
    assert_ne!(
        kept[0],
        untrained.parameters()[0].master().to_f32(&backend).unwrap()
    );
}

#[test]
fn a_tiny_graph_is_learnt_by_heart() {
    fn learns<E: Element>() {
        let backend = Cpu::new();
        let toy = Toy::new(8);
        let objective = toy.objective::<_, E>(&backend, Norm::Right);
        let config = config(&toy, 2, 32, 0.0);
        let mut train = TrainConfig::new(E::PRECISION);
        train.optimizer = train
            .optimizer
            .with_learning_rate(0.02)
            .with_weight_decay(0.0);
        let summary = trainer(&backend, &objective, config, train)
            .run(|_| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(summary.status, Status::Finished);
        let last = summary.last.unwrap();
        assert_eq!(last.epoch, 200);
        assert_eq!(
            last.score.of(Split::Train),
            100.0,
            "{} loss {}",
            E::PRECISION,
            last.loss
        );
        assert_eq!(last.optimizer.steps + last.optimizer.skipped, 200);
        assert!(last.loss < 0.1, "loss {}", last.loss);
    }
    learns::<f32>();
    learns::<f16>();
}

#[test]
fn an_infinite_gradient_skips_the_step_and_halves_the_loss_scale() {
    let backend = Cpu::new();
    let toy = Toy::new(8);
    let objective = toy.objective::<_, f16>(&backend, Norm::Both);
    let config = config(&toy, 2, 16, 0.5);
    let mut trainer = trainer(
        &backend,
        &objective,
        config,
        TrainConfig::new(f16::PRECISION),
    );
    trainer.step().unwrap();
    let before = weights(&backend, &trainer);
    let state = trainer.optimizer().unwrap();
    assert_eq!((state.steps, state.skipped), (1, 0));

    for bad in [f32::INFINITY, f32::NAN] {
        let state = trainer.optimizer().unwrap();
        trainer.gradients().unwrap();
        {
            let mut parameters = trainer.model_mut().parameters_mut();
            let gradient = parameters[2].gradient_mut();
            let mut values = gradient.to_f32(&backend).unwrap();
            values[7] = bad;
            gradient.write_f32(&backend, &values).unwrap();
        }
        trainer.update().unwrap();
        let after = trainer.optimizer().unwrap();
        assert_eq!(after.loss_scale, state.loss_scale / 2.0);
        assert_eq!((after.steps, after.skipped), (1, state.skipped + 1));
        assert_eq!(
            weights(&backend, &trainer),
            before,
            "a skipped step changes no weight"
        );
    }
    trainer.step().unwrap();
    let state = trainer.optimizer().unwrap();
    assert_eq!((state.steps, state.skipped), (2, 2));
    assert_ne!(weights(&backend, &trainer), before);
}

#[test]
fn a_seed_gives_the_same_bits_on_any_number_of_threads() {
    fn train<E: Element>(seed: u64, threads: usize) -> (Vec<u32>, Vec<u32>) {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let backend = Cpu::new();
            let toy = Toy::new(19);
            let objective = toy.objective::<_, E>(&backend, Norm::Both);
            let train = TrainConfig {
                epochs: 20,
                seed,
                ..TrainConfig::new(E::PRECISION)
            };
            let mut trainer = trainer(&backend, &objective, config(&toy, 3, 24, 0.5), train);
            let mut losses = Vec::new();
            trainer
                .run(|report| {
                    losses.push(report.loss.to_bits());
                    ControlFlow::Continue(())
                })
                .unwrap();
            let weights = weights(&backend, &trainer);
            (
                losses,
                weights.into_iter().flatten().map(f32::to_bits).collect(),
            )
        })
    }
    fn repeats<E: Element>() {
        let first = train::<E>(7, 1);
        assert_eq!(first.0.len(), 20);
        for threads in [1, 2, 3] {
            assert!(
                first == train::<E>(7, threads),
                "{} differs on {threads} threads",
                E::PRECISION
            );
        }
        assert!(
            first != train::<E>(8, 1),
            "another seed must give other weights"
        );
    }
    repeats::<f32>();
    repeats::<f16>();
}

#[test]
fn memory_is_what_was_foretold_and_nothing_is_allocated_after_the_first_step() {
    fn measure<E: Element>(layers: usize, width: usize, hidden: usize, dropout: f32, norm: Norm) {
        let toy = Toy::new(width);
        let config = config(&toy, layers, hidden, dropout);
        let config = ModelConfig {
            convolution: Gcn { norm }.into(),
            ..config
        };
        let counts = GraphCounts::of(&toy.graph);
        let foretold =
            Footprint::of_training::<E>(&counts, &config, &TrainConfig::new(E::PRECISION), None)
                .expect("a model");
        let backend = Cpu::new();
        let objective = toy.objective::<_, E>(&backend, norm);
        let mut trainer = trainer(&backend, &objective, config, TrainConfig::new(E::PRECISION));
        trainer.step().unwrap();
        trainer.evaluate().unwrap();
        let first: MemoryReport = backend.memory();
        for _ in 0..3 {
            trainer.step().unwrap();
            trainer.evaluate().unwrap();
        }
        assert_eq!(backend.memory(), first, "a later step allocated");
        let of = |kind: MemoryKind| (first.peak[kind as usize], foretold.of(kind));
        for kind in MemoryKind::ALL {
            let (measured, foretold) = of(kind);
            assert_eq!(
                measured, foretold,
                "{kind} of {layers} layers, {width} to {hidden}"
            );
        }
    }
    for (layers, width, hidden) in [
        (1, 5, 1),
        (2, 9, 7),
        (2, 3, 8),
        (3, 4, 9),
        (5, 16, 16),
        (2, 24, 3),
        (3, 16, 3),
    ] {
        measure::<f16>(layers, width, hidden, 0.5, Norm::Both);
        measure::<f32>(layers, width, hidden, 0.0, Norm::Left);
    }
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_and_leaves_the_weights() {
    let backend = Cpu::new();
    let mut toy = Toy::new(8);
    toy.features[3 * toy.width] = f32::NAN; // of a vertex that others hear from
    let objective = toy.objective::<_, f16>(&backend, Norm::None);
    let config = config(&toy, 2, 16, 0.0);
    let mut trainer = trainer(
        &backend,
        &objective,
        config,
        TrainConfig::new(f16::PRECISION),
    );
    let before = weights(&backend, &trainer);
    let mut epochs = 0;
    let summary = trainer
        .run(|_| {
            epochs += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(
        (summary.status, epochs),
        (Status::Diverged { since: 1 }, 10)
    );
    assert_eq!(weights(&backend, &trainer), before);
}

#[test]
fn a_run_that_is_told_to_stop_has_the_summary_so_far() {
    let backend = Cpu::new();
    let toy = Toy::new(8);
    let objective = toy.objective::<_, f32>(&backend, Norm::Both);
    let config = config(&toy, 2, 16, 0.0);
    let mut trainer = trainer(
        &backend,
        &objective,
        config,
        TrainConfig::new(f32::PRECISION),
    );
    let stop_at_5 = |epoch: u32| {
        if epoch == 5 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let summary = trainer.run(|report| stop_at_5(report.epoch)).unwrap();
    assert_eq!(summary.status, Status::Stopped);
    assert_eq!(summary.last.unwrap().epoch, 5);
    let best = summary.best.unwrap();
    assert!(best.epoch <= 5 && summary.test_score() == best.score.of(Split::Test));
}

#[test]
fn a_model_that_is_none_is_refused() {
    let backend = Cpu::new();
    let refused = |config| {
        Network::<Cpu, f16>::new(&backend, &config, 0)
            .unwrap_err()
            .to_string()
    };
    let config = ModelConfig::gcn(8, 3);
    assert!(
        refused(ModelConfig {
            layers: 0,
            ..config.clone()
        })
        .contains("0 layers")
    );
    assert!(
        refused(ModelConfig {
            hidden: 0,
            ..config.clone()
        })
        .contains("width 0")
    );
    assert!(
        refused(ModelConfig {
            dropout: 1.0,
            ..config.clone()
        })
        .contains("not in [0, 1)")
    );
    assert!(
        refused(ModelConfig {
            dropout: f32::NAN,
            ..config.clone()
        })
        .contains("not in [0, 1)")
    );
    assert!(
        refused(ModelConfig {
            hidden_by_layer: vec![8, 4],
            ..config.clone()
        })
        .contains("2 hidden widths, and 2 layers have 1 in between")
    );
    assert!(
        refused(ModelConfig {
            hidden_by_layer: vec![0],
            ..config.clone()
        })
        .contains("width 0")
    );
    assert!(
        refused(ModelConfig {
            dropout_by_layer: vec![0.5; 3],
            ..config.clone()
        })
        .contains("3 dropout probabilities, and the model has 2 layers")
    );
    assert!(
        refused(ModelConfig {
            dropout_by_layer: vec![0.5, 1.0],
            ..config.clone()
        })
        .contains("not in [0, 1)")
    );
    assert_eq!(config.policy, SpmmPolicy::default());

    let toy = Toy::new(8);
    let objective = toy.objective::<_, f16>(&backend, Norm::Both);
    let four_classes = Network::new(&backend, &ModelConfig::gcn(8, 4), 0).unwrap();
    let error = Trainer::new(
        &backend,
        &objective,
        four_classes,
        TrainConfig::new(f16::PRECISION),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Trainer: logits of the model should be 3, is 4"
    );
    let narrow = Network::new(&backend, &ModelConfig::gcn(7, 3), 0).unwrap();
    let mut trainer = Trainer::new(
        &backend,
        &objective,
        narrow,
        TrainConfig::new(f16::PRECISION),
    )
    .unwrap();
    assert!(
        trainer
            .step()
            .unwrap_err()
            .to_string()
            .contains("should be"),
        "features of another width"
    );
    let mut gcn = Network::<Cpu, f16>::new(&backend, &ModelConfig::gcn(8, 3), 0).unwrap();
    gcn.forward(objective.inputs(&backend), Mode::Evaluate)
        .unwrap();
    assert_eq!(gcn.logits().shape(), (14, 3));
}
