//! Models on the CPU: gradients against float64, memory, repeatability, statistics, overflow.

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::graph::{Graph, GraphCounts};
use halfgnn::nn::{
    Aggregate, Appnp, ConvolutionConfig, EdgeData, Gat, GatV2, Gcn, Gcnii, Gin, HiddenActivation,
    HiddenNorm, Jumping, Mode, Model, ModelConfig, Network, Norm, Propagation, Statistics,
};
use halfgnn::ops::Accumulate;
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Footprint, Objective, TrainConfig, Trainer};
use halfgnn_contract::rng;
use halfgnn_tests::toy::{Masks, Parameters, Toy, random, reference_loss};
use std::ops::ControlFlow;

/// Models of every kind, small and without dropout.
fn models(width: usize, layers: usize, hidden: usize) -> Vec<ModelConfig> {
    let shape = |config: ModelConfig| ModelConfig {
        layers,
        hidden,
        dropout: 0.0,
        ..config
    };
    let gin = |aggregate, lambda, epsilon, learn_epsilon| ModelConfig {
        convolution: Gin {
            aggregate,
            lambda,
            epsilon,
            learn_epsilon,
            statistics: Statistics::Batch,
        }
        .into(),
        ..shape(ModelConfig::gin(width, 3))
    };
    let gat = |heads, hidden| ModelConfig {
        hidden,
        convolution: Gat {
            heads,
            slope: 0.2,
            attention_dropout: 0.0,
            ..Gat::default()
        }
        .into(),
        ..shape(ModelConfig::gat(width, 3))
    };
    let gatv2 = |heads, hidden, share_weights| ModelConfig {
        hidden,
        convolution: GatV2 {
            heads,
            share_weights,
            ..GatV2::default()
        }
        .into(),
        ..shape(ModelConfig::gatv2(width, 3))
    };
    let residual = |config: ModelConfig| ModelConfig {
        residual: true,
        ..config
    };
    let jump = |config: ModelConfig, jumping| ModelConfig {
        jumping: Some(jumping),
        ..config
    };
    let gcn = |norm| ModelConfig {
        convolution: Gcn { norm }.into(),
        ..shape(ModelConfig::gcn(width, 3))
    };
    vec![
        gcn(Norm::Both),
        gcn(Norm::Right),
        gcn(Norm::Left),
        gcn(Norm::In),
        ModelConfig {
            layers: 3,
            hidden_by_layer: vec![hidden, hidden + 3],
            ..gcn(Norm::Both)
        },
        ModelConfig {
            layers: 3,
            hidden_by_layer: vec![hidden + 3, hidden],
            ..shape(ModelConfig::gin(width, 3))
        },
        gcn(Norm::None),
        residual(gcn(Norm::Both)),
        ModelConfig {
            recompute: true,
            ..gin(Aggregate::Mean, 0.1, 0.3, false)
        },
        ModelConfig {
            recompute: true,
            ..gin(Aggregate::Mean, 0.1, 0.3, true)
        },
        gat(1, hidden),
        residual(gat(1, hidden)),
        gat(2, 16),
        gat(3, 15),
        gatv2(3, 15, true),
        gatv2(1, hidden, false),
        residual(gatv2(1, hidden, true)),
        gatv2(2, 16, false),
        jump(shape(ModelConfig::sage(width, 3)), Jumping::Cat),
        jump(residual(gcn(Norm::Both)), Jumping::Max),
        jump(gat(3, 15), Jumping::All),
        ModelConfig {
            hidden_by_layer: vec![hidden; layers - 1],
            hidden_norm: HiddenNorm::Batch,
            activation: HiddenActivation::Elu,
            ..jump(gin(Aggregate::Sum, 1.0, 0.0, false), Jumping::Cat)
        },
        shape(ModelConfig::sage(width, 3)),
        residual(shape(ModelConfig::sage(width, 3))),
        shape(ModelConfig::gin(width, 3)),
        shape(ModelConfig::of(Appnp::default(), width, 3)),
        ModelConfig {
            convolution: Appnp {
                steps: 3,
                alpha: 0.3,
                propagation_dropout: Some(0.0),
            }
            .into(),
            ..shape(ModelConfig::gcn(width, 3))
        },
        shape(ModelConfig::of(Gcnii::default(), width, 3)),
        gin(Aggregate::Mean, 0.5, 0.25, true),
        gin(Aggregate::Sum, 1.0, -0.25, false),
        residual(gin(Aggregate::Sum, 1.0, 0.0, true)),
        ModelConfig {
            recompute: true,
            ..residual(gin(Aggregate::Sum, 1.0, 0.0, false))
        },
    ]
}

/// Gives attention a dropout.
fn drop_edges(config: &mut ModelConfig) {
    if let ConvolutionConfig::Gat(Gat {
        attention_dropout, ..
    }) = &mut config.convolution
    {
        *attention_dropout = 0.3;
    }
    if let ConvolutionConfig::GatV2(gat) = &mut config.convolution {
        gat.attention_dropout = 0.3;
    }
}

/// Layers, features and hidden width: narrowing and widening ones, and widths that agree.
const SHAPES: [(usize, usize, usize); 5] = [(1, 5, 4), (2, 9, 7), (2, 3, 8), (3, 6, 6), (4, 4, 9)];

/// Diagonals that are compared where `gradients_in_float_are_those_of_float64` compares all elements of the same formulas.
const SOME: usize = 5;

fn trainer<E: Element>(
    backend: &Cpu,
    objective: &Objective<Cpu, E>,
    config: &ModelConfig,
) -> Trainer<Cpu, E, Network<Cpu, E>> {
    let mut train = TrainConfig::new(E::PRECISION);
    // Where a run begins, the gradients of a normalised layer overflow, and a few steps are skipped.
    train.scaling.initial = train.scaling.initial.min(256.0);
    let model = Network::new(backend, config, train.seed).unwrap();
    Trainer::new(backend, objective, model, train).unwrap()
}

/// Parameters that start as zeros or ones, where a mistake in them would not show, become others.
fn shake<E: Element>(backend: &Cpu, model: &mut impl Model<Cpu, E>) {
    for (index, parameter) in model.parameters_mut().into_iter().enumerate() {
        if parameter.shape().0 == 1 && !parameter.name().contains("mlp") {
            let columns = parameter.shape().1 as u64;
            let start = if parameter.name().ends_with("norm.weight") {
                1.0
            } else {
                0.0
            };
            let values =
                (0..columns).map(|k| start + rng::unit_f32(random(k, 50 + index as u32)) - 0.5);
            parameter
                .write(backend, &values.collect::<Vec<_>>())
                .unwrap();
        }
    }
}

/// The gradients of a step are those of float64, with the masks of the step where something is dropped. Each takes two passes in float64: of a
/// matrix every `every`-th diagonal is compared, in which all rows and columns of a larger one have a part.
fn compare_with_float64<E: Element>(
    toy: &Toy,
    config: &ModelConfig,
    masks: Option<Masks>,
    every: usize,
    tolerance: f64,
) {
    let backend = Cpu::new();
    let objective = toy.objective::<_, E>(&backend, config.norm());
    let mut trainer = trainer(&backend, &objective, config);
    shake(&backend, trainer.model_mut());
    trainer.gradients().unwrap();
    let mut parameters = Parameters::of(&backend, trainer.model());
    let case = format!("{config:?} in {}", E::PRECISION);
    let loss = reference_loss(toy, config, &parameters, masks);
    let measured = f64::from(trainer.loss().unwrap());
    assert!(
        (measured - loss).abs() <= tolerance * loss,
        "{case}: loss {measured}, should be {loss}"
    );
    let scale = trainer.optimizer().unwrap().loss_scale;
    for parameter in trainer.model().parameters() {
        let name = parameter.name();
        let gradient = parameter.gradient().to_f32(&backend).unwrap();
        let gradient: Vec<f64> = gradient.iter().map(|&g| f64::from(g / scale)).collect();
        let largest = gradient.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
        let (rows, columns) = parameter.shape();
        for (k, measured) in gradient.into_iter().enumerate() {
            const STEP: f64 = 1e-6;
            if rows > 1 && (k / columns + k % columns) % every != 0 {
                continue;
            }
            let at = *parameters.at(name, k);
            let mut loss_at = |value| {
                *parameters.at(name, k) = value;
                reference_loss(toy, config, &parameters, masks)
            };
            let expected = (loss_at(at + STEP) - loss_at(at - STEP)) / (2.0 * STEP);
            loss_at(at);
            let error = (measured - expected).abs();
            assert!(
                error <= tolerance * (largest + 0.02),
                "{case}: gradient {k} of {name} is {measured}, should be {expected}"
            );
        }
    }
}

#[test]
fn gradients_in_float_are_those_of_float64() {
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for config in models(width, layers, hidden) {
            compare_with_float64::<f32>(&toy, &config, None, 1, 1e-4);
        }
    }
}

#[test]
fn gradients_on_weighted_edges_are_those_of_float64() {
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::weighted(width);
        for config in models(width, layers, hidden) {
            if config.edge_weights().is_ok() {
                compare_with_float64::<f32>(&toy, &config, None, SOME, 1e-4);
                if config.layers < 3 {
                    compare_with_float64::<f16>(&toy, &config, None, SOME, 4e-2);
                }
            }
        }
    }
}

#[test]
fn gradients_of_features_of_edges_are_those_of_float64() {
    let columns = [1, 3, 5].into_iter().cycle();
    for ((layers, width, hidden), columns) in SHAPES.into_iter().zip(columns) {
        let toy = Toy::with_edge_features(width, columns);
        for mut config in models(width, layers, hidden) {
            if !config.read_edge_features(columns) {
                continue;
            }
            compare_with_float64::<f32>(&toy, &config, None, SOME, 1e-4);
            if config.layers < 3 {
                compare_with_float64::<f16>(&toy, &config, None, SOME, 4e-2);
            }
        }
    }
}

#[test]
fn gradients_through_every_activation_are_those_of_float64() {
    let toy = Toy::new(9);
    for activation in HiddenActivation::ALL {
        for mut config in models(9, 2, 7) {
            config.activation = activation;
            compare_with_float64::<f32>(&toy, &config, None, SOME, 1e-4);
            compare_with_float64::<f16>(&toy, &config, None, SOME, 4e-2);
        }
    }
}

#[test]
fn gradients_through_every_norm_are_those_of_float64() {
    let toy = Toy::new(9);
    let masks = Masks {
        seed: TrainConfig::new(Precision::Float).seed,
        step: 0,
    };
    for norm in HiddenNorm::ALL.into_iter().skip(1) {
        for activation in [HiddenActivation::Relu, HiddenActivation::Elu] {
            for mut config in models(9, 3, 6) {
                config.recompute = false;
                (config.hidden_norm, config.activation) = (norm, activation);
                compare_with_float64::<f32>(&toy, &config, None, SOME, 2e-4);
                config.dropout = 0.4;
                drop_edges(&mut config);
                compare_with_float64::<f32>(&toy, &config, Some(masks), SOME, 2e-4);
            }
        }
        // In half a few normalised layers, one behind the other, of 14 vertices are too far from float64 to tell anything, and
        // gradients of attention that are zero by chance alone are as large as others.
        for mut config in models(9, 2, 7) {
            config.recompute = false;
            config.hidden_norm = norm;
            let attends = matches!(
                config.convolution,
                ConvolutionConfig::Gat(_) | ConvolutionConfig::GatV2(_)
            );
            if config.layers < 3 && !attends {
                compare_with_float64::<f16>(&toy, &config, None, SOME, 8e-2);
            }
        }
    }
}

#[test]
fn weights_are_never_left_out_in_silence() {
    let (backend, toy) = (Cpu::new(), Toy::weighted(4));
    let gat = ModelConfig {
        hidden: 8,
        ..ModelConfig::gat(4, 3)
    };
    let weights = toy.weights.as_deref();
    let refused = gat.prepare_weighted(&toy.graph, weights).unwrap_err();
    let told = refused.to_string();
    assert!(
        told.contains("without a term for weights of edges"),
        "{told}"
    );
    let edges = EdgeData {
        weights,
        ..EdgeData::default()
    };
    let refused = gat.prepare_edges(&toy.graph, edges).unwrap_err();
    let told = refused.to_string();
    assert!(
        told.contains("without a term for weights of edges"),
        "{told}"
    );
    let objective = toy.objective::<_, f32>(&backend, gat.norm());
    let told = trainer(&backend, &objective, &gat)
        .step()
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("without a term for weights of edges"),
        "{told}"
    );
    for (columns, reads) in [(2, 0), (0, 3), (2, 3)] {
        let toy = Toy::with_edge_features(4, columns);
        let mut gat = gat.clone();
        assert!(gat.read_edge_features(reads));
        let objective = toy.objective::<_, f32>(&backend, gat.norm());
        let told = trainer(&backend, &objective, &gat)
            .step()
            .unwrap_err()
            .to_string();
        let expected = format!("reads {reads} features of each edge, and its graph has {columns}");
        assert!(told.contains(&expected), "{told}");
    }

    let mut gcn = ModelConfig::gcn(4, 3);
    gcn.policy.accumulate = Accumulate::Half;
    let objective = toy.objective::<_, f16>(&backend, gcn.norm());
    let told = trainer(&backend, &objective, &gcn)
        .step()
        .unwrap_err()
        .to_string();
    assert!(told.contains("added up in float alone"), "{told}");

    // Kept in half, read in float.
    let graph = Propagation::of_graph::<f16>(&backend, &toy.graph, weights, Norm::Both).unwrap();
    let told = graph.edge_factors::<f32>().unwrap_err().to_string();
    assert!(
        told.contains("kept in half") && told.contains("computes in float"),
        "{told}"
    );
}

#[test]
fn gradients_in_half_are_near_those_of_float64() {
    for (layers, width, hidden) in [(1, 5, 4), (2, 9, 7), (2, 3, 8)] {
        let toy = Toy::new(width);
        for config in models(width, layers, hidden) {
            compare_with_float64::<f16>(&toy, &config, None, SOME, 4e-2);
        }
    }
}

#[test]
fn what_is_made_again_has_the_same_bits_and_is_not_stored() {
    let toy = Toy::new(9);
    let train = |recompute, dropout| {
        let config = ModelConfig {
            hidden: 64,
            recompute,
            dropout,
            ..ModelConfig::gin(9, 3)
        };
        let backend = Cpu::new();
        let objective = toy.objective::<_, f16>(&backend, config.norm());
        let mut trainer = trainer(&backend, &objective, &config);
        for _ in 0..5 {
            trainer.step().unwrap();
        }
        let read = |p: &&halfgnn::nn::Parameter<Cpu, f16>| p.master().to_f32(&backend).unwrap();
        let weights: Vec<_> = trainer.model().parameters().iter().map(read).collect();
        let peak = backend.memory().peak[MemoryKind::Activations as usize];
        (weights, peak)
    };
    for dropout in [0.0, 0.4] {
        let (stored, made_again) = (train(false, dropout), train(true, dropout));
        assert_eq!(stored.0, made_again.0);
        // Of four matrices of 64 halves, one for each layer but the last, one is lent at a time.
        let saved = 3 * toy.graph.vertices() as u64 * 128;
        assert_eq!(stored.1 - made_again.1, saved);
    }
}

#[test]
fn memory_is_what_was_foretold_and_nothing_is_allocated_after_the_first_step() {
    fn measure<E: Element>(toy: &Toy, config: &ModelConfig) {
        let counts = GraphCounts::of(&toy.graph);
        let foretold =
            Footprint::of_training::<E>(&counts, config, &TrainConfig::new(E::PRECISION), None)
                .expect("a model");
        let backend = Cpu::new();
        let objective = toy.objective::<_, E>(&backend, config.norm());
        let mut trainer = trainer(&backend, &objective, config);
        let before = backend.memory().current[MemoryKind::Weights as usize];
        trainer.step().unwrap();
        trainer.evaluate().unwrap();
        let first = backend.memory();
        for _ in 0..3 {
            trainer.step().unwrap();
            trainer.evaluate().unwrap();
        }
        assert_eq!(
            backend.memory(),
            first,
            "a later step allocated: {config:?}"
        );
        for kind in MemoryKind::ALL {
            let measured = first.peak[kind as usize];
            assert_eq!(measured, foretold.of(kind), "{kind} of {config:?}");
        }
        assert_eq!(
            before,
            first.peak[MemoryKind::Weights as usize],
            "{config:?}"
        );
    }
    for norm in HiddenNorm::ALL {
        let config = ModelConfig {
            hidden_norm: norm,
            layers: 3,
            ..ModelConfig::gcn(5, 3)
        };
        measure::<f16>(&Toy::new(5), &config);
    }
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for mut config in models(width, layers, hidden) {
            measure::<f32>(&toy, &config);
            config.dropout = 0.5;
            drop_edges(&mut config);
            measure::<f16>(&toy, &config);
        }
    }
}

#[test]
fn a_seed_gives_the_same_bits_on_any_number_of_threads() {
    let run = |config: &ModelConfig, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let (backend, toy) = (Cpu::new(), Toy::new(9));
            let objective = toy.objective::<_, f16>(&backend, config.norm());
            let mut trainer = trainer(&backend, &objective, config);
            for _ in 0..10 {
                trainer.step().unwrap();
            }
            let parameters = trainer.model().parameters();
            let values = parameters
                .iter()
                .map(|p| p.master().to_f32(&backend).unwrap());
            values.flatten().map(f32::to_bits).collect::<Vec<_>>()
        })
    };
    for mut config in models(9, 3, 16) {
        config.dropout = 0.4;
        drop_edges(&mut config);
        let first = run(&config, 1);
        assert!(first == run(&config, 3), "{config:?}");
    }
}

/// Training carries the running statistics on, evaluation does not; it reads them where it is told to.
#[test]
fn evaluation_leaves_the_statistics() {
    for with in [Statistics::Batch, Statistics::Running] {
        let (backend, toy) = (Cpu::new(), Toy::new(6));
        let config = ModelConfig {
            hidden: 64,
            layers: 2,
            dropout: 0.0,
            convolution: Gin {
                aggregate: Aggregate::Mean,
                lambda: 0.1,
                epsilon: 0.0,
                learn_epsilon: false,
                statistics: with,
            }
            .into(),
            ..ModelConfig::gin(6, 3)
        };
        let objective = toy.objective::<_, f32>(&backend, config.norm());
        let mut trainer = trainer(&backend, &objective, &config);
        let running = |model: &Network<Cpu, f32>| -> Vec<Vec<f32>> {
            let buffers = model.buffers().into_iter();
            let read = |(_, buffer): (_, &Matrix<Cpu, f32>)| buffer.to_f32(&backend).unwrap();
            buffers.map(read).collect()
        };
        let buffers = trainer.model().buffers();
        let names: Vec<String> = buffers.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["layers.0.norm.running", "layers.1.norm.running"]);
        let start = running(trainer.model());
        let (mean, variance) = start[0].split_at(64);
        assert!(mean.iter().all(|&mean| mean == 0.0) && variance.iter().all(|&v| v == 1.0));
        let before = trainer.evaluate().unwrap();
        assert_eq!(running(trainer.model()), start);
        assert_eq!(trainer.evaluate().unwrap(), before);
        trainer.gradients().unwrap();
        let after = running(trainer.model());
        assert_ne!(after, start);
        let in_training = trainer.model().logits().to_f32(&backend).unwrap();
        trainer.evaluate().unwrap();
        let evaluated = trainer.model().logits().to_f32(&backend).unwrap();
        assert_eq!(evaluated == in_training, with == Statistics::Batch);
        assert_eq!(running(trainer.model()), after);
    }
}

/// A hub's sum is beyond half; the layer keeps it in range, and the model says what it says in float.
#[test]
fn sums_of_hubs_stay_in_range() {
    fn logits<E: Element>() -> Vec<f32> {
        let (backend, spokes) = (Cpu::new(), 6000);
        // The hub hears from all, and all from the hub.
        let others: Vec<u32> = (1..=spokes).collect();
        let hub = vec![0; others.len()];
        let (rows, columns) = ([&hub[..], &others].concat(), [&others[..], &hub].concat());
        let graph = Graph::from_edges(spokes as usize + 1, &rows, &columns).unwrap();
        let config = ModelConfig {
            layers: 2,
            dropout: 0.0,
            convolution: Gin {
                aggregate: Aggregate::Sum,
                lambda: 1.0,
                epsilon: 0.0,
                learn_epsilon: false,
                statistics: Statistics::Batch,
            }
            .into(),
            ..ModelConfig::gin(4, 3)
        };
        let vertices = graph.vertices();
        let values: Vec<f32> = (0..vertices * 4)
            .map(|k| 20.0 + 10.0 * rng::unit_f32(random(k as u64, 9)))
            .collect();
        let features =
            Matrix::<_, E>::from_f32(&backend, vertices, 4, &values, MemoryKind::Features).unwrap();
        let propagation = Propagation::new(&backend, &graph, config.norm()).unwrap();
        let labels: Vec<u32> = (0..vertices as u32).map(|k| k % 3).collect();
        let splits = [&others[..], &[0], &[]];
        let objective =
            Objective::new(&backend, propagation, features, &labels, 3, splits).unwrap();
        let mut trainer = trainer(&backend, &objective, &config);
        trainer.gradients().unwrap();
        assert!(trainer.loss().unwrap().is_finite());
        let spoilt = trainer.first_non_finite().unwrap();
        assert!(
            E::PRECISION == Precision::Half || spoilt.is_none(),
            "{spoilt:?}"
        );
        trainer.model().logits().to_f32(&backend).unwrap()
    }
    let (half, float) = (logits::<f16>(), logits::<f32>());
    let largest = float
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    for (half, float) in half.iter().zip(&float) {
        assert!((half - float).abs() <= 0.02 * largest, "{half} for {float}");
    }
}

/// An overflow is found by layer and tensor; the step is skipped, and the running statistics stay as they were.
#[test]
fn an_overflow_is_named_and_survived() {
    let backend = Cpu::new();
    let config = ModelConfig {
        hidden: 64,
        layers: 2,
        dropout: 0.0,
        ..ModelConfig::gin(6, 3)
    };
    let toy = Toy::new(6);
    let objective = toy.objective::<_, f16>(&backend, config.norm());
    let mut trainer = trainer(&backend, &objective, &config);
    trainer.step().unwrap();
    assert_eq!(trainer.first_non_finite().unwrap(), None);
    let snapshot = |trainer: &Trainer<Cpu, f16, Network<Cpu, f16>>| {
        let model = trainer.model();
        let buffers: Vec<_> = model
            .buffers()
            .iter()
            .map(|(_, b)| b.to_f32(&backend).unwrap())
            .collect();
        let weights: Vec<_> = model
            .parameters()
            .iter()
            .map(|p| p.master().to_f32(&backend).unwrap())
            .collect();
        (buffers, weights)
    };

    // A column of the second layer's first map becomes so large that its product leaves half.
    let index = trainer
        .model()
        .parameters()
        .iter()
        .position(|p| p.name() == "layers.1.mlp.0.weight")
        .expect("the model has it");
    let original = trainer.model().parameters()[index]
        .master()
        .to_f32(&backend)
        .unwrap();
    let mut large = original.clone();
    large
        .iter_mut()
        .step_by(64)
        .for_each(|weight| *weight = 60_000.0);
    let write = |trainer: &mut Trainer<Cpu, f16, Network<Cpu, f16>>, values: &[f32]| {
        trainer.model_mut().parameters_mut()[index]
            .write(&backend, values)
            .unwrap();
    };
    write(&mut trainer, &large);
    let before = snapshot(&trainer);
    let state = trainer.optimizer().unwrap();
    trainer.step().unwrap();
    let spoilt = trainer.first_non_finite().unwrap().expect("an overflow");
    assert!(
        spoilt.starts_with("matmul") && spoilt.contains("layers.1.mlp.0.weight"),
        "{spoilt}"
    );
    let after = trainer.optimizer().unwrap();
    assert_eq!(
        (after.skipped, after.loss_scale),
        (state.skipped + 1, state.loss_scale / 2.0)
    );
    let (buffers, weights) = snapshot(&trainer);
    assert_eq!(weights, before.1, "a skipped step changes no weight");
    assert!(buffers.iter().flatten().all(|value| value.is_finite()));
    write(&mut trainer, &original);
    trainer.step().unwrap();
    assert_eq!(trainer.first_non_finite().unwrap(), None);

    // A gradient that overflows is named by its parameter.
    trainer.gradients().unwrap();
    {
        let mut parameters = trainer.model_mut().parameters_mut();
        let gradient = parameters[index].gradient_mut();
        let values = vec![f32::INFINITY; 64 * 64];
        gradient.write_f32(&backend, &values).unwrap();
    }
    assert_eq!(
        trainer.first_non_finite().unwrap().as_deref(),
        Some("the gradient of layers.1.mlp.0.weight")
    );
}

#[test]
fn models_of_every_kind_learn_a_tiny_graph_by_heart() {
    fn learns<E: Element>(config: &ModelConfig) {
        let (backend, toy) = (Cpu::new(), Toy::new(8));
        let objective = toy.objective::<_, E>(&backend, config.norm());
        let mut train = TrainConfig::new(E::PRECISION);
        train.optimizer = train.optimizer.with_weight_decay(0.0);
        let model = Network::new(&backend, config, 0).unwrap();
        let mut trainer = Trainer::new(&backend, &objective, model, train).unwrap();
        let summary = trainer.run(|_| ControlFlow::Continue(())).unwrap();
        let last = summary.last.unwrap();
        assert!(
            last.loss < 0.1,
            "{config:?} in {}: loss {}",
            E::PRECISION,
            last.loss
        );
    }
    for config in models(8, 2, 32) {
        learns::<f16>(&config);
        learns::<bf16>(&config);
        learns::<f32>(&config);
    }
}

#[test]
fn what_is_no_model_is_refused() {
    let config = ModelConfig {
        convolution: Gin {
            aggregate: Aggregate::Mean,
            lambda: f32::NAN,
            epsilon: 0.0,
            learn_epsilon: false,
            statistics: Statistics::Batch,
        }
        .into(),
        ..ModelConfig::gin(4, 3)
    };
    let error = Network::<Cpu, f16>::new(&Cpu::new(), &config, 0).unwrap_err();
    assert!(error.to_string().contains("should be finite"), "{error}");
    let refused = |heads, hidden, attention_dropout| {
        let config = ModelConfig {
            hidden,
            convolution: Gat {
                heads,
                slope: 0.2,
                attention_dropout,
                ..Gat::default()
            }
            .into(),
            ..ModelConfig::gat(4, 3)
        };
        let error = Network::<Cpu, f16>::new(&Cpu::new(), &config, 0).unwrap_err();
        error.to_string()
    };
    assert!(refused(0, 64, 0.0).contains("without heads"));
    assert!(refused(3, 64, 0.0).contains("the hidden width is 64; take 66"));
    assert!(refused(1, 64, 1.0).contains("attention dropout 1 is not in [0, 1)"));
    let (backend, toy) = (Cpu::new(), Toy::new(4));
    let objective = toy.objective::<_, f16>(&backend, ModelConfig::gin(4, 3).norm());
    let mut gin = Network::<Cpu, f16>::new(&backend, &ModelConfig::gin(4, 3), 0).unwrap();
    gin.forward(objective.inputs(&backend), Mode::Evaluate)
        .unwrap();
    assert_eq!(gin.logits().shape(), (14, 3));
}

/// Dropout of features, of every layer and of attention's edges, by masks that the reference draws by itself.
#[test]
fn gradients_under_dropout_are_those_of_float64() {
    let masks = Masks {
        seed: TrainConfig::new(Precision::Float).seed,
        step: 0,
    };
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for mut config in models(width, layers, hidden) {
            config.dropout = 0.4;
            drop_edges(&mut config);
            compare_with_float64::<f32>(&toy, &config, Some(masks), SOME, 1e-4);
        }
    }
}
