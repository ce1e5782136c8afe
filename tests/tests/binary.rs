//! Networks of one bit: gradients against float64, evaluations in bits against training without dropout, refusals.

use half::{bf16, f16};
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{
    Binary, HiddenActivation, Inputs, Mode, Model, ModelConfig, Network, Norm, Propagation,
};
use halfgnn::ops::{CodeFormat, RandomState};
use halfgnn::program::Explanation;
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{TrainConfig, Trainer};
use halfgnn_tests::reference::roundoff;
use halfgnn_tests::toy::{Masks, Parameters, Rows, Toy, aggregate, loss_of};
use std::cell::RefCell;

/// Layers, features and hidden width; odd numbers of terms and even ones, whose sums may be zero.
const SHAPES: [(usize, usize, usize); 5] = [(1, 5, 4), (2, 9, 7), (2, 4, 8), (3, 6, 6), (4, 65, 9)];

/// The models there are, so shaped.
fn models(layers: usize, width: usize, hidden: usize) -> Vec<ModelConfig> {
    let kinds = [ModelConfig::gcn(width, 3), ModelConfig::sage(width, 3)];
    let all = [Binary::Full, Binary::Bin];
    // The same of all layers, and layers that differ from the one before.
    let parts = all.into_iter().flat_map(|binary| {
        let turns = (0..layers).map(|layer| all[(layer + binary as usize) % 2]);
        let turns = (layers > 1).then(|| turns.collect());
        std::iter::once(vec![binary]).chain(turns)
    });
    let parts: Vec<Vec<Binary>> = parts.collect();
    let of = |kind: ModelConfig| {
        let shaped = |parts: &Vec<Binary>| ModelConfig {
            layers,
            hidden,
            dropout: 0.0,
            ..kind.clone().of_bits_by_layer(parts)
        };
        parts.iter().map(shaped).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of).collect()
}

/// What was given to each sign, and each row factor, when the model was computed at the weights that its gradient is of. From then on
/// a sign is a line through what it was, of slope 1 where it was given a number in [−1, 1] and else of slope 0, and row factors are
/// constants: so differences of the loss are the straight-through estimator's gradients.
#[derive(Default)]
struct Tape {
    rows: RefCell<Vec<Rows>>,
    at: RefCell<usize>,
    replays: bool,
}

impl Tape {
    fn next(&self, now: &Rows) -> Rows {
        let mut rows = self.rows.borrow_mut();
        let mut at = self.at.borrow_mut();
        if !self.replays {
            rows.push(now.clone());
        }
        *at += 1;
        rows[*at - 1].clone()
    }

    /// The signs of `x`, of which `exact` are those without rounding.
    fn signs(&self, x: &Rows, exact: &Rows) -> Rows {
        let (base, exact) = (self.next(x), self.next(exact));
        let sign = |((x, base), exact): ((&f64, &f64), &f64)| {
            // A mean of signs that add up to nothing is rounded here, and is a zero there.
            let sign = if *exact >= -1e-12 { 1.0 } else { -1.0 };
            sign + if base.abs() <= 1.0 { x - base } else { 0.0 }
        };
        let rows = x.iter().zip(&base).zip(&exact);
        rows.map(|((x, base), exact)| x.iter().zip(base).zip(exact).map(sign).collect())
            .collect()
    }

    /// The mean magnitude of each row, as it was.
    fn factors(&self, x: &Rows) -> Vec<f64> {
        let base = self.next(x);
        base.iter().map(|row| magnitude(row)).collect()
    }
}

fn magnitude(row: &[f64]) -> f64 {
    row.iter().map(|value| value.abs()).sum::<f64>() / row.len() as f64
}

/// `x · wᵀ`.
fn product(x: &Rows, w: &Rows) -> Rows {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
    let row = |x: &Vec<f64>| w.iter().map(|w| dot(x, w)).collect();
    x.iter().map(row).collect()
}

fn sum(a: Rows, b: &Rows) -> Rows {
    let row = |(a, b): (Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    a.into_iter().zip(b).map(row).collect()
}

fn scaled(mut rows: Rows, factors: impl Fn(usize, usize) -> f64) -> Rows {
    for (i, row) in rows.iter_mut().enumerate() {
        for (j, value) in row.iter_mut().enumerate() {
            *value *= factors(i, j);
        }
    }
    rows
}

/// The logits in float64, by the formulas of the papers.
fn logits(
    toy: &Toy,
    config: &ModelConfig,
    parameters: &Parameters,
    masks: Option<Masks>,
    tape: &Tape,
) -> Rows {
    *tape.at.borrow_mut() = 0;
    let rows = |values: &[f32]| values.iter().map(|&value| value.into()).collect();
    let mut x: Rows = toy.features.chunks(toy.width).map(rows).collect();
    // Batch normalisation without scale and shift.
    let count = x.len() as f64;
    for column in 0..toy.width {
        let mean = x.iter().map(|row| row[column]).sum::<f64>() / count;
        let square = |row: &Vec<f64>| (row[column] - mean).powi(2);
        let variance = x.iter().map(square).sum::<f64>() / count;
        for row in &mut x {
            row[column] = (row[column] - mean) / (variance + 1e-5).sqrt();
        }
    }
    let own = config.convolution.name() == "sage";
    for layer in 0..config.layers {
        let drop = |number: u32, mut rows: Rows| {
            if let Some(masks) = masks {
                let number = (number + 1) << 16 | layer as u32;
                masks.drop(number, config.dropout_of(layer), &mut rows);
            }
            rows
        };
        let weight = |name: &str| -> (Rows, Rows) {
            let w = parameters.rows(&format!("layers.{layer}.{name}"));
            let signs = tape.signs(&w, &w);
            let alpha: Vec<f64> = w.iter().map(|row| magnitude(row)).collect();
            (scaled(signs.clone(), |row, _| alpha[row]), signs)
        };
        let signs = drop(0, tape.signs(&x, &x));
        let beta = tape.factors(&x);
        // Z, and the sums of signs that it is multiples of.
        let z = |name: &str| {
            let (scaled_signs, signs_of_w) = weight(name);
            let exact = product(&signs, &signs_of_w);
            (
                scaled(product(&signs, &scaled_signs), |row, _| beta[row]),
                exact,
            )
        };
        let neighbours = if own {
            "neighbours.binary_weight"
        } else {
            "binary_weight"
        };
        let itself = "self.binary_weight";
        let last = layer + 1 == config.layers;
        let binary = config.binary_of(layer).expect("of one bit");
        let mut y = match (binary, last) {
            (Binary::Full, _) => {
                let y = aggregate(toy, config.norm(), &z(neighbours).0);
                if own { sum(y, &z(itself).0) } else { y }
            }
            (Binary::Bin, false) => {
                let (real, exact) = z(neighbours);
                let y = aggregate(toy, Norm::Right, &tape.signs(&real, &exact));
                if own {
                    let (real, exact) = z(itself);
                    scaled(sum(y, &tape.signs(&real, &exact)), |_, _| 0.5)
                } else {
                    y
                }
            }
            (Binary::Bin, true) => {
                let mean = aggregate(toy, Norm::Right, &tape.signs(&x, &x));
                let y = product(&drop(1, mean), &weight(neighbours).0);
                if own { sum(y, &z(itself).0) } else { y }
            }
        };
        if binary == Binary::Full || last {
            let bias = parameters.rows(&format!("layers.{layer}.bias"));
            y = y
                .into_iter()
                .map(|row| sum(vec![row], &bias).remove(0))
                .collect();
        }
        x = y;
    }
    x
}

fn trainer<E: Element>(
    backend: &Cpu,
    toy: &Toy,
    config: &ModelConfig,
) -> Trainer<Cpu, E, Network<Cpu, E>> {
    let objective = toy.objective::<_, E>(backend, config.norm());
    let mut train = TrainConfig::new(E::PRECISION);
    train.scaling.initial = train.scaling.initial.min(256.0);
    let mut model = Network::new(backend, config, train.seed).unwrap();
    for parameter in model.parameters_mut() {
        // Weights on either side of 1, where the gradient ends; biases that are seen.
        let (rows, columns) = parameter.shape();
        let values: Vec<f32> = match parameter.name().ends_with("bias") {
            true => (0..columns).map(|k| 0.37 * (k % 3) as f32 - 0.3).collect(),
            false => {
                let before = parameter.master().to_f32(backend).unwrap();
                before.iter().map(|value| 2.5 * value).collect()
            }
        };
        assert_eq!(values.len(), rows * columns);
        parameter.write(backend, &values).unwrap();
    }
    Trainer::new(backend, &objective, model, train).unwrap()
}

fn compare_with_float64<E: Element>(toy: &Toy, config: &ModelConfig, tolerance: f64) -> usize {
    let backend = Cpu::new();
    let mut trainer = trainer::<E>(&backend, toy, config);
    trainer.gradients().unwrap();
    let masks = (config.dropout > 0.0).then(|| Masks {
        seed: TrainConfig::new(E::PRECISION).seed,
        step: 0,
    });
    let mut parameters = Parameters::of(&backend, trainer.model());
    let case = format!("{config:?} in {}", E::PRECISION);
    let mut tape = Tape::default();
    let loss = loss_of(toy, &logits(toy, config, &parameters, masks, &tape));
    tape.replays = true;
    let measured = f64::from(trainer.loss().unwrap());
    assert!(
        (measured - loss).abs() <= tolerance * loss,
        "{case}: loss {measured}, should be {loss}"
    );
    let scale = trainer.optimizer().unwrap().loss_scale;
    let mut beyond = 0;
    for parameter in trainer.model().parameters() {
        let name = parameter.name();
        let gradient = parameter.gradient().to_f32(&backend).unwrap();
        let gradient: Vec<f64> = gradient.iter().map(|&g| f64::from(g / scale)).collect();
        let largest = gradient.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
        for (k, measured) in gradient.into_iter().enumerate() {
            const STEP: f64 = 1e-6;
            let at = *parameters.at(name, k);
            beyond += usize::from(at.abs() > 1.0);
            let mut loss_at = |value| {
                *parameters.at(name, k) = value;
                loss_of(toy, &logits(toy, config, &parameters, masks, &tape))
            };
            let expected = (loss_at(at + STEP) - loss_at(at - STEP)) / (2.0 * STEP);
            loss_at(at);
            assert!(
                (measured - expected).abs() <= tolerance * (largest + 0.02),
                "{case}: gradient {k} of {name} is {measured}, should be {expected}"
            );
        }
    }
    beyond
}

#[test]
fn gradients_are_those_of_float64() {
    let mut beyond = 0;
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for config in models(layers, width, hidden) {
            beyond += compare_with_float64::<f32>(&toy, &config, 1e-4);
            let dropping = ModelConfig {
                dropout: 0.5,
                ..config
            };
            compare_with_float64::<f32>(&toy, &dropping, 1e-4);
        }
    }
    assert!(beyond > 20, "{beyond} weights are not in [-1, 1]");
}

/// What stages write in an evaluation, in bits, and in training, in elements, where nothing is dropped.
fn outputs<E: Element>(toy: &Toy, config: &ModelConfig) -> [Vec<Vec<f32>>; 2] {
    let backend = Cpu::new();
    let objective = toy.objective::<_, E>(&backend, config.norm());
    let mut trainer = trainer::<E>(&backend, toy, config);
    let random = RandomState::new(&backend, 1, 1).unwrap();
    trainer.model_mut().keep_activations();
    [Mode::Evaluate, Mode::Train { random: &random }].map(|mode| {
        let model = trainer.model_mut();
        model.forward(objective.inputs(&backend), mode).unwrap();
        let of = |stage| model.activations(stage).unwrap().to_f32(&backend).unwrap();
        (0..config.layers).map(of).collect()
    })
}

/// Bits of weights that are frozen are those of the weights, and thaw when somebody asks for these to change them.
#[test]
fn frozen_weights_give_the_same_until_they_are_changed() {
    let toy = Toy::new(7);
    for config in models(2, 7, 9) {
        let backend = Cpu::new();
        let objective = toy.objective::<_, f32>(&backend, config.norm());
        let mut trainer = trainer::<f32>(&backend, &toy, &config);
        let model = trainer.model_mut();
        let evaluate = |model: &mut Network<Cpu, f32>| {
            model
                .forward(objective.inputs(&backend), Mode::Evaluate)
                .unwrap();
            model.logits().to_f32(&backend).unwrap()
        };
        let before = evaluate(model);
        model.freeze(&backend).unwrap();
        assert_eq!(evaluate(model), before, "{config:?}");
        // Nothing but what is frozen.
        for parameter in model.parameters_mut() {
            if !parameter.name().ends_with("binary_weight") {
                continue;
            }
            let (rows, columns) = parameter.shape();
            let other: Vec<f32> = (0..rows * columns)
                .map(|at| (at % 5) as f32 - 1.5)
                .collect();
            parameter.write(&backend, &other).unwrap();
        }
        let other = evaluate(model);
        assert_ne!(other, before, "{config:?}");
        model.freeze(&backend).unwrap();
        assert_eq!(evaluate(model), other, "{config:?}");
    }
}

/// A stage whose output the next one reads the signs of has nothing else of it in an evaluation, also behind a step of training, and the
/// network gives the same to the bit; and so it does where nothing but signs of the features is there.
#[test]
fn evaluations_that_pass_signs_on_give_the_same() {
    let (mut passing, mut of_signs) = (0, 0);
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for config in models(layers, width, hidden) {
            let backend = Cpu::new();
            let objective = toy.objective::<_, f16>(&backend, config.norm());
            let inputs = objective.inputs(&backend);
            let mut trainer = trainer::<f16>(&backend, &toy, &config);
            let random = RandomState::new(&backend, 1, 1).unwrap();
            let model = trainer.model_mut();
            let logits = |model: &Network<Cpu, f16>| model.logits().to_f32(&backend).unwrap();
            model
                .forward(inputs, Mode::Train { random: &random })
                .unwrap();
            // What the step has left is of other weights.
            for parameter in model.parameters_mut() {
                let values = parameter.master().to_f32(&backend).unwrap();
                let other: Vec<f32> = values.iter().map(|value| -value).collect();
                parameter.write(&backend, &other).unwrap();
            }
            model.forward(inputs, Mode::Evaluate).unwrap();
            let passed = logits(model);
            for stage in 0..layers - 1 {
                let refused = model.activations(stage).expect_err("is not kept");
                assert!(refused.to_string().contains("is not kept"), "{refused}");
            }
            let size = (toy.graph.vertices(), toy.graph.edges());
            let explanation = Explanation::new(&config, Precision::Half, size).unwrap();
            passing += explanation.to_string().matches(", packed").count();
            if model.reads_signs() {
                let signs = model.signs_of_features(&backend, inputs.features).unwrap();
                model
                    .evaluate_signs(&backend, inputs.graphs, &signs)
                    .unwrap();
                assert_eq!(logits(model), passed, "{config:?}");
                of_signs += 1;
            } else {
                let refused = model.signs_of_features(&backend, inputs.features);
                let refused = refused.expect_err("refused").to_string();
                assert!(
                    refused.contains("more of the features than their signs"),
                    "{refused}"
                );
            }
            model.keep_activations();
            model.forward(inputs, Mode::Evaluate).unwrap();
            assert_eq!(logits(model), passed, "{config:?}");
            assert!((0..layers).all(|stage| model.activations(stage).is_ok()));
        }
    }
    assert!(
        passing > 5 && of_signs > 5,
        "{passing} stages and {of_signs} networks"
    );
}

fn evaluations_in_bits_are_training_without_dropout<E: Element>() {
    let mut compared = 0;
    for (layers, width, hidden) in SHAPES {
        let toy = Toy::new(width);
        for config in models(layers, width, hidden) {
            let [bits, elements] = outputs::<E>(&toy, &config);
            let what = format!("{config:?} in {}", E::PRECISION);
            for (stage, (a, b)) in bits.iter().zip(&elements).enumerate() {
                let signs = |values: &[f32]| values.iter().map(|v| *v >= 0.0).collect::<Vec<_>>();
                let hidden = stage + 1 < layers;
                if config.binary_of(stage) == Some(Binary::Bin)
                    && config.binary_layers.is_empty()
                    && hidden
                {
                    assert_eq!(a, b, "{what}: stage {stage}");
                }
                let largest = b.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                let bound = 8.0 * roundoff::<E>() as f32 * largest;
                for (a, b) in a.iter().zip(b) {
                    assert!((a - b).abs() <= bound, "{what}: stage {stage}: {a} and {b}");
                }
                compared += usize::from(!hidden);
                // Of sums that are rounded a sign may be another, and then all that follows is.
                if signs(a) != signs(b) {
                    break;
                }
            }
        }
    }
    // Of 36 models.
    assert!(compared > 20, "{compared} logits were compared");
}

#[test]
fn evaluations_in_bits_are_training_without_dropout_in_float() {
    evaluations_in_bits_are_training_without_dropout::<f32>();
}

#[test]
fn evaluations_in_bits_are_training_without_dropout_in_half() {
    evaluations_in_bits_are_training_without_dropout::<f16>();
}

#[test]
fn evaluations_in_bits_are_training_without_dropout_in_bfloat16() {
    evaluations_in_bits_are_training_without_dropout::<bf16>();
}

#[test]
fn what_layers_of_one_bit_do_not_do_is_refused() {
    let backend = Cpu::new();
    let refused = |config: &ModelConfig| {
        let made = Network::<Cpu, f32>::new(&backend, config, 0);
        made.expect_err("there is no such network").to_string()
    };
    let full = ModelConfig::gcn(5, 3).of_bits(Binary::Full);
    assert!(Network::<Cpu, f32>::new(&backend, &full, 0).is_ok());
    let told = refused(&ModelConfig::gat(5, 3).of_bits(Binary::Full));
    assert!(
        told.contains("of gcn and sage, and the model is gat"),
        "{told}"
    );
    let of = |change: &dyn Fn(&mut ModelConfig)| {
        let mut config = full.clone();
        change(&mut config);
        refused(&config)
    };
    let told = of(&|config| config.activation = HiddenActivation::Relu);
    assert!(
        told.contains("no activation behind them but the sign"),
        "{told}"
    );
    let told = of(&|config| config.residual = true);
    assert!(told.contains("leave --residual out"), "{told}");
    let told = of(&|config| config.recompute = true);
    assert!(told.contains("leave --recompute out"), "{told}");
    let told = of(&|config| config.messages = Some(CodeFormat::Int8));
    assert!(told.contains("leave --messages out"), "{told}");
    let told = of(&|config| config.policy.edges_per_warp = Some(64));
    assert!(told.contains("leave --policy out"), "{told}");
    // Sums of signs have no factors of senders.
    let told = of(&|config| config.binary = Some(Binary::Bin));
    assert!(told.contains("take --norm right"), "{told}");
    assert_eq!(full.clone().of_bits(Binary::Bin).norm(), Norm::Right);
    let mixed = full.clone().of_bits_by_layer(&[Binary::Bin, Binary::Full]);
    assert_eq!(
        (mixed.norm(), mixed.binary_name()),
        (Norm::Right, Some("bin,full".into()))
    );
    let parts = [0, 1].map(|layer| mixed.binary_of(layer));
    assert_eq!(parts, [Some(Binary::Bin), Some(Binary::Full)]);
    assert!(Network::<Cpu, f32>::new(&backend, &mixed, 0).is_ok());
    let told = of(&|config| config.binary_layers = vec![Binary::Full; 3]);
    assert!(
        told.contains("--binary has 3 values, and the model 2 layers"),
        "{told}"
    );
    let weights = Some(&[1.0_f32][..]);
    let bin = ModelConfig::gcn(5, 3).of_bits(Binary::Bin);
    let toy = Toy::new(5);
    let told = bin.prepare_weighted(&toy.graph, weights);
    assert!(
        told.unwrap_err()
            .to_string()
            .contains("no weights of edges")
    );
    // Nor are those ignored that a graph has, as a drawn subgraph may.
    let weights = vec![0.5; toy.graph.edges()];
    for binary in [Binary::Full, Binary::Bin] {
        let mut model = Network::<_, f32>::new(&backend, &bin.clone().of_bits(binary), 0).unwrap();
        let graph = Propagation::weighted::<f32>(&backend, &toy.graph, &weights, Norm::Right);
        let features = (toy.graph.vertices(), 5);
        let kind = MemoryKind::Features;
        let features = Matrix::zeros(&backend, features.0, features.1, kind).unwrap();
        let inputs = Inputs {
            backend: &backend,
            graphs: &[graph.unwrap()],
            features: &features,
            of_types: &[],
            dropped: false,
        };
        let random = RandomState::new(&backend, 1, 1).unwrap();
        for mode in [Mode::Evaluate, Mode::Train { random: &random }] {
            let done = model.forward(inputs, mode);
            match binary {
                Binary::Full => done.unwrap(),
                Binary::Bin => {
                    let told = done.unwrap_err().to_string();
                    assert!(
                        told.contains("sums of signs have no weights of edges"),
                        "{told}"
                    );
                }
            }
        }
    }
}
