//! Training steps on any backend, to compare what they make of the same weights.

use crate::input::bits;
use crate::reference::roundoff;
use crate::task;
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::nn::{
    Aggregate, Appnp, Binary, Cg, ConvolutionConfig, Gat, GatV2, Gcnii, Gen, Gin, Gine,
    HiddenActivation, HiddenNorm, Jumping, ModelConfig, Pna, ResGated, Statistics, Store,
};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::TrainConfig;
use std::ops::ControlFlow;

/// Roundings by which two backends may differ in a gradient, of the largest of its parameter. In 16 bits they differ where a sum
/// in another order turns the rounding of what is stored, twice a layer and by two; in float by each term of the longest sum
/// of a layer, the hub's row.
pub fn roundings<E: Element>(layers: usize) -> f64 {
    let of_layer = match E::PRECISION {
        Precision::Half | Precision::BFloat16 => 4,
        Precision::Float => 2 * task::LONGEST_ROW,
    };
    (layers * of_layer) as f64
}

/// How far `values` are from `expected`, of the norm of those.
pub fn relative_distance(values: &[f32], expected: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f32>| {
        let squares: f64 = values.map(|value| f64::from(value).powi(2)).sum();
        squares.sqrt()
    };
    let mut apart = values.iter().zip(expected).map(|(a, b)| a - b);
    norm(&mut apart) / norm(&mut expected.iter().copied()).max(1e-9)
}

/// The losses of the first step and of one 60 steps later, in half and without dropout.
pub fn first_and_last_loss<B: Backend>(backend: &B, model: ModelConfig) -> (f32, f32) {
    let model = ModelConfig {
        dropout: 0.0,
        ..model
    };
    let objective = task::objective::<B, f16>(backend, model.norm());
    let config = TrainConfig::new(Precision::Half);
    let mut trainer = task::trainer(backend, &objective, model, config);
    trainer.step().expect("a step");
    let first = trainer.loss().expect("a loss");
    for _ in 0..60 {
        trainer.step().expect("a step");
    }
    (first, trainer.loss().expect("a loss"))
}

/// Three layers of a model.
pub fn deep(config: ModelConfig) -> ModelConfig {
    ModelConfig {
        hidden: 16,
        layers: 3,
        dropout: 0.5,
        ..config
    }
}

/// Models beside [`models`]: linear layers before the first that hears, initial rows, norms, other activations, activations that are
/// made again.
pub fn others() -> [(&'static str, ModelConfig); 7] {
    [
        (
            "gcnii",
            deep(ModelConfig::of(
                Gcnii::default(),
                task::FEATURES,
                task::CLASSES,
            )),
        ),
        (
            "gcn with batch norms",
            ModelConfig {
                hidden_norm: HiddenNorm::Batch,
                ..deep(ModelConfig::gcn(task::FEATURES, task::CLASSES))
            },
        ),
        (
            "appnp with layer norms",
            ModelConfig {
                hidden_norm: HiddenNorm::Layer,
                ..deep(ModelConfig::of(
                    Appnp::default(),
                    task::FEATURES,
                    task::CLASSES,
                ))
            },
        ),
        (
            "gin that recomputes",
            ModelConfig {
                recompute: true,
                ..deep(ModelConfig::gin(task::FEATURES, task::CLASSES))
            },
        ),
        (
            "appnp",
            deep(ModelConfig::of(
                Appnp::default(),
                task::FEATURES,
                task::CLASSES,
            )),
        ),
        (
            "gcn with ELU",
            ModelConfig {
                activation: HiddenActivation::Elu,
                ..deep(ModelConfig::gcn(task::FEATURES, task::CLASSES))
            },
        ),
        (
            "sage without activations",
            ModelConfig {
                activation: HiddenActivation::None,
                ..deep(ModelConfig::sage(task::FEATURES, task::CLASSES))
            },
        ),
    ]
}

/// Models of every kind, with dropout: their names, and their shapes.
pub fn models() -> Vec<(&'static str, ModelConfig)> {
    let of = |model: ModelConfig| ModelConfig {
        hidden: 24,
        layers: 3,
        residual: true,
        ..model
    };
    let heads = ModelConfig {
        hidden: 32,
        convolution: Gat {
            heads: 2,
            slope: 0.2,
            attention_dropout: 0.3,
            ..Gat::default()
        }
        .into(),
        ..of(ModelConfig::gat(task::FEATURES, task::CLASSES))
    };
    // Heads of 10, which do not fill whole vectors.
    let v2 = ModelConfig {
        hidden: 30,
        convolution: GatV2 {
            heads: 3,
            attention_dropout: 0.3,
            ..GatV2::default()
        }
        .into(),
        ..of(ModelConfig::gatv2(task::FEATURES, task::CLASSES))
    };
    let gin = ModelConfig::gin(task::FEATURES, task::CLASSES);
    let sum = ModelConfig {
        convolution: Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: 0.0,
            learn_epsilon: true,
            statistics: Statistics::Batch,
        }
        .into(),
        ..gin.clone()
    };
    let jump = |model: ModelConfig, jumping| ModelConfig {
        jumping: Some(jumping),
        residual: false,
        ..of(model)
    };
    let (features, classes) = (task::FEATURES, task::CLASSES);
    let cat = jump(ModelConfig::sage(features, classes), Jumping::All);
    let max = jump(ModelConfig::gcn(features, classes), Jumping::Max);
    vec![
        ("sage-cat", cat),
        ("gcn-max", max),
        ("gcn", task::model()),
        ("gat", of(ModelConfig::gat(task::FEATURES, task::CLASSES))),
        ("gat-heads", heads),
        ("gatv2", v2),
        ("gin", of(gin)),
        ("gin-sum", of(sum)),
        ("sage", of(ModelConfig::sage(task::FEATURES, task::CLASSES))),
    ]
}

/// A GCN with every activation but the usual one, with dropout behind it.
pub fn models_of_activations() -> Vec<ModelConfig> {
    let others = HiddenActivation::ALL.into_iter().skip(1);
    let of = |activation| ModelConfig {
        activation,
        layers: 3,
        ..task::model()
    };
    others.map(of).collect()
}

/// A GCN and a GraphSAGE of one bit, of both kinds. Half of the elements are dropped, so that a factor is a power of two and sums of
/// signs have no roundings.
pub fn models_of_bits() -> Vec<ModelConfig> {
    let kinds = [
        ModelConfig::gcn(task::FEATURES, task::CLASSES),
        ModelConfig::sage(task::FEATURES, task::CLASSES),
    ];
    let of = |kind: ModelConfig| {
        [Binary::Full, Binary::Bin].map(|binary| ModelConfig {
            hidden: 24,
            dropout: 0.5,
            ..kind.clone().of_bits(binary)
        })
    };
    kinds.into_iter().flat_map(of).collect()
}

/// Those of [`models`] whose messages may be codes, in both formats.
pub fn models_of_messages() -> Vec<(&'static str, ModelConfig)> {
    let models = models().into_iter();
    let additive = |model: &ModelConfig| matches!(model.convolution, ConvolutionConfig::GatV2(_));
    let weighed = models.filter(|(_, model)| !additive(model));
    let of = |(name, model): (&'static str, ModelConfig)| {
        CodeFormat::ALL.map(|format| {
            let messages = Some(format);
            (
                name,
                ModelConfig {
                    messages,
                    ..model.clone()
                },
            )
        })
    };
    weighed.flat_map(of).collect()
}

/// Those of [`models`] whose activations may be kept in 8 bits, of three layers.
pub fn models_of_store() -> Vec<(&'static str, ModelConfig)> {
    let models = models().into_iter();
    let stored = models.map(|(name, model)| {
        let model = ModelConfig {
            layers: 3,
            store: Some(Store::EightBit),
            ..model
        };
        (name, model)
    });
    stored
        .filter(|(name, _)| matches!(*name, "gcn" | "sage" | "gin" | "gat"))
        .collect()
}

/// [`models_of_messages`], to compare gradients of. A LeakyReLU's bend is slight: codes are coarse, so that of the few edges of a task some
/// score stands within a rounding of 0, and at the usual slope the side on which a backend finds it decides on a tenth of a gradient.
pub fn models_of_messages_with_a_slight_bend() -> Vec<(&'static str, ModelConfig)> {
    let mut models = models_of_messages();
    for (_, model) in &mut models {
        if let ConvolutionConfig::Gat(gat) = &mut model.convolution {
            gat.slope = 0.8;
        }
    }
    models
}

/// How far apart two neighbouring codes are, of the largest number that there is room for; with the room that delayed scales have.
pub fn step_of_codes(format: CodeFormat) -> f64 {
    1.5 * match format {
        CodeFormat::Int8 => 1.0 / 127.0,
        CodeFormat::E4m3 => 1.0 / 8.0,
    }
}

/// Those of [`models`] whose edges may have weights.
pub fn models_of_weights() -> Vec<(&'static str, ModelConfig)> {
    let mut models = models();
    models.retain(|(_, model)| {
        let weights = task::edge_weights();
        model
            .prepare_weighted(&task::graph(), Some(&weights))
            .is_ok()
    });
    models
}

/// Models whose messages are of both ends of an edge and of its features.
pub fn models_of_both_ends() -> Vec<(&'static str, ModelConfig)> {
    let of = |model: ModelConfig| ModelConfig {
        hidden: 24,
        layers: 2,
        ..model
    };
    // Of CG a hub's sum leaves the range of half.
    let gine = Gine {
        aggregate: Aggregate::Sum,
        ..Gine::default()
    };
    let resgated = ResGated {
        aggregate: Aggregate::Sum,
        ..ResGated::default()
    };
    let (features, classes) = (task::FEATURES, task::CLASSES);
    vec![
        ("gine", of(ModelConfig::of(gine, features, classes))),
        ("resgated", of(ModelConfig::of(resgated, features, classes))),
        ("cg", of(ModelConfig::of(Cg::default(), features, classes))),
        (
            "gen",
            of(ModelConfig::of(Gen::default(), features, classes)),
        ),
        (
            "pna",
            of(ModelConfig::of(Pna::default(), features, classes)),
        ),
    ]
}

/// Those of [`models`] that read features of edges, of 1 and of 3, and [`models_of_both_ends`].
pub fn models_of_edge_features() -> Vec<(&'static str, ModelConfig)> {
    let reading = [1, 3].into_iter().flat_map(|columns| {
        let models = models().into_iter().chain(models_of_both_ends());
        models.filter_map(move |(name, mut model)| {
            model.read_edge_features(columns).then_some((name, model))
        })
    });
    reading.collect()
}

/// The parameters of a model after `epochs` training steps.
pub fn parameters_after<B: Backend, E: Element>(
    backend: &B,
    model: &ModelConfig,
    epochs: u32,
) -> Vec<Vec<f32>> {
    let objective = task::objective::<B, E>(backend, model.norm());
    let train = TrainConfig {
        epochs,
        ..TrainConfig::new(E::PRECISION)
    };
    let mut trainer = task::trainer(backend, &objective, model.clone(), train);
    trainer
        .run(|_| ControlFlow::Continue(()))
        .expect("the run ends");
    task::weights(backend, trainer.model())
}

/// Asserts that steps of training are the same on two backends: losses and all gradients to so many roundings of the
/// largest of its parameter, which is what sums in another order may differ by; and where a gradient has the same bits, so has
/// the weight after it. `weights` are those of the edges. Each step begins with one state for both, so that no difference grows.
pub fn assert_steps_agree<A: Backend, B: Backend, E: Element>(
    (one, other): (&A, &B),
    model: &ModelConfig,
    weights: Option<&[f32]>,
    steps: u32,
) {
    let mut config = TrainConfig::new(E::PRECISION);
    // Where a run begins a larger one overflows, and a step that is skipped shows nothing.
    config.scaling.initial = config.scaling.initial.min(256.0);
    let edges = (weights, model.edge_features(), model.reads_edge_rows());
    let objective = task::objective_on::<A, E>(one, model.norm(), edges);
    let mut first = task::trainer(one, &objective, model.clone(), config);
    let objective = task::objective_on::<B, E>(other, model.norm(), edges);
    let mut second = task::trainer(other, &objective, model.clone(), config);
    for step in 0..steps {
        let state = first.snapshot().expect("no failure before");
        second.restore(&state).expect("the same model");
        first.gradients().expect("half a step");
        second.gradients().expect("half a step");
        let what = format!("{} in {}, step {step}", model.convolution, E::PRECISION);
        // What follows a sum with weights is a pass of its own on a card, which rounds once more.
        let passes = if weights.is_some() { 2.0 } else { 1.0 };
        let allowed = passes * roundings::<E>(model.layers) * roundoff::<E>();
        // Where that turns a code it is the neighbouring one, forward and backward.
        let codes = model.messages.map_or(0.0, step_of_codes);
        let allowed = allowed + codes * (2 * model.layers) as f64;
        // Likewise a code of what is kept, of which gradients of weights alone are made.
        let stored = model.store.map_or(0.0, |_| 1.0 / 127.0);
        let allowed = allowed + stored * model.layers as f64;
        let losses = [
            first.loss().expect("a loss"),
            second.loss().expect("a loss"),
        ]
        .map(f64::from);
        assert!(
            (losses[0] - losses[1]).abs() <= allowed * losses[0].abs(),
            "{what}: losses of {losses:?}"
        );
        let before = [
            gradients(one, first.model()),
            gradients(other, second.model()),
        ];
        for (parameter, (a, b)) in before[0].iter().zip(&before[1]).enumerate() {
            let largest = a.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            assert!(largest.is_finite(), "{what}: parameter {parameter}");
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                let off = f64::from((a - b).abs());
                assert!(
                    off <= allowed * f64::from(largest),
                    "{what}: gradient {at} of parameter {parameter} is {a} and {b}, where the largest is {largest}: {} \
                     roundings apart",
                    off / roundoff::<E>() / f64::from(largest)
                );
            }
        }
        first.update().expect("half a step");
        second.update().expect("half a step");
        assert_eq!(
            first.optimizer().expect("a state"),
            second.optimizer().expect("a state")
        );
        let after = [
            task::weights(one, first.model()),
            task::weights(other, second.model()),
        ];
        let numbers = |all: &[Vec<f32>]| all.concat();
        let [a, b] = before.each_ref().map(|all| bits(&numbers(all)));
        let [x, y] = after.each_ref().map(|all| bits(&numbers(all)));
        let same = a.iter().zip(&b).zip(x.iter().zip(&y));
        let apart = same.filter(|((a, b), (x, y))| a == b && x != y).count();
        assert_eq!(apart, 0, "{what}: weights after the same gradients");
    }
}

fn gradients<B: Backend, E: Element>(
    backend: &B,
    model: &impl halfgnn::nn::Model<B, E>,
) -> Vec<Vec<f32>> {
    let read = |parameter: &halfgnn::nn::Parameter<B, E>| parameter.gradient().to_f32(backend);
    let parameters = model.parameters();
    parameters
        .into_iter()
        .map(|parameter| read(parameter).expect("no failure before"))
        .collect()
}
