//! Activations that are stored in 8 bits: by the text of a program, and next to the network.

use super::network::{SEED, SHAPES, assert_bits, of_network, of_program, shaped, stack};
use super::setup::{compiled, graph, hidden, last, program};
use super::trained;
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Aggregate, Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, HiddenActivation,
    HiddenNorm, Jumping, Model, ModelConfig, Network, Norm, Store as StoreIn,
};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{Gat, GatV2, Gcn, Gin, GraphConv, Layer, Sage, Transformer};
use halfgnn::program::passes::fuse::{Fuse, FuseBeforeStore};
use halfgnn::program::passes::{Pass, Quantize, Recompute, Reorder, Store, apply};
use halfgnn::program::{self, Builder, Edges, Plan, Program, Value, differentiate};
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{TrainConfig, Trainer};

/// Has all passes made of a program for training, with this order of them behind the gradient.
fn with_passes(mut program: Program, passes: &[&dyn Pass]) -> Program {
    apply(&mut program, &[&Reorder], |_, _| ()).expect("a forward list");
    differentiate(&mut program).expect("parameters");
    apply(&mut program, passes, |_, _| ()).expect("both lists");
    program
}

fn stored(program: Program) -> Program {
    with_passes(program, &[&FuseBeforeStore, &Store])
}

/// The text without the empty first line and the indentation of a test.
fn text(of: &str) -> String {
    let lines = of.lines().skip(1).map(str::trim_start);
    let lines: Vec<&str> = lines.collect();
    format!("{}\n", lines.join("\n").trim_end())
}

/// Three layers of GCN: the second widens its rows, so it sums them first.
fn gcn(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let mut y = x;
    for (number, outputs) in [4, 8].into_iter().enumerate() {
        y = g.layer(number as u32, |g| {
            let y = g.dropout(y, 0.5);
            let y = Gcn { edges, outputs }.build(g, y);
            hidden(g, y)
        });
    }
    g.layer(2, |g| {
        let y = g.dropout(y, 0.5);
        let y = Gcn { edges, outputs: 2 }.build(g, y);
        last(g, y)
    })
}

fn of_ten(
    features: usize,
    norm: Norm,
    build: impl FnOnce(&mut Builder, Edges, Value) -> Value,
) -> Program {
    program(Precision::Half, (10, features), norm, build)
}

#[test]
fn products_read_what_is_stored_and_other_operators_a_copy() {
    let before = with_passes(of_ten(8, Norm::Both, gcn), &[&FuseBeforeStore]);
    assert_eq!(
        before.listing(),
        text(
            "
            %1 = activate x, dropout 0.5 #0 (kept)
            %3 = matmul %1 layers.0.weight, rows C[edges]
            %4 = aggregate edges %3, operand is scaled
            %8 = activate %4, bias layers.0.bias, relu, dropout 0.5 #1 (kept)
            %21 = aggregate edges %8 (kept)
            %11 = matmul %21 layers.1.weight
            %15 = activate %11, bias layers.1.bias, relu, dropout 0.5 #2 (kept)
            %17 = matmul %15 layers.2.weight, rows C[edges]
            %20 = aggregate edges %17, operand is scaled, bias layers.2.bias
            backward
            %23 = column_sums seed
            %38 = activate_gradient seed, rows R[edges]
            %24 = aggregate edgesᵀ %38, operand is scaled
            %28 = matmul %24 layers.2.weightᵀ, alpha 2, where positive %15
            %26 = matmul %15ᵀ %24
            %30 = matmul %28 layers.1.weightᵀ, rows R[edges]
            %31, %29 = matmul %21ᵀ %28, column sums
            %32 = aggregate edgesᵀ %30, operand is scaled
            %34 = activate_gradient %32, where positive %8, dropout 0.5 #1
            %35 = column_sums %34
            %39 = activate_gradient %34, rows R[edges]
            %36 = aggregate edgesᵀ %39, operand is scaled
            %37 = matmul %1ᵀ %36
            "
        )
    );
    let after = stored(of_ten(8, Norm::Both, gcn));
    assert_eq!(
        after.listing(),
        text(
            "
            %1 = activate x, dropout 0.5 #0 (kept)
            %3 = matmul %1 layers.0.weight, rows C[edges]
            %4 = aggregate edges %3, operand is scaled
            %8 = activate %4, bias layers.0.bias, relu, dropout 0.5 #1
            %21 = aggregate edges %8 (kept)
            %40 = store %8 (kept)
            %11 = matmul %21 layers.1.weight
            %15 = activate %11, bias layers.1.bias, relu, dropout 0.5 #2
            %17 = matmul %15 layers.2.weight, rows C[edges]
            %42 = store %15 (kept)
            %20 = aggregate edges %17, operand is scaled, bias layers.2.bias
            backward
            %23 = column_sums seed
            %38 = activate_gradient seed, rows R[edges]
            %24 = aggregate edgesᵀ %38, operand is scaled
            %28 = matmul %24 layers.2.weightᵀ, alpha 2, where positive %42
            %26 = matmul %42ᵀ %24
            %30 = matmul %28 layers.1.weightᵀ, rows R[edges]
            %31, %29 = matmul %21ᵀ %28, column sums
            %32 = aggregate edgesᵀ %30, operand is scaled
            %41 = dequantize %40
            %34 = activate_gradient %32, where positive %41, dropout 0.5 #1
            %35 = column_sums %34
            %39 = activate_gradient %34, rows R[edges]
            %36 = aggregate edgesᵀ %39, operand is scaled
            %37 = matmul %1ᵀ %36
            "
        )
    );
}

#[test]
fn what_a_batch_normalisation_normalizes_is_stored() {
    let gin = of_ten(8, Norm::Right, |g, edges, x| {
        let layer = Gin {
            edges,
            hidden: 4,
            outputs: 2,
            options: GinConfig {
                lambda: 0.5,
                epsilon: 0.25,
                ..GinConfig::default()
            },
        };
        layer.build(g, x)
    });
    assert_eq!(
        stored(gin).listing(),
        text(
            "
            %11 = matmul x mlp.0.weight
            %3 = aggregate edges %11, factor 0.5, plus 1.25 %11
            %7 = batch_statistics %3, carried on in norm.running (kept)
            %10 = matmul %3 mlp.1.weight, normalized by %7, weight norm.weight, bias norm.bias, relu
            %20 = store %3 (kept)
            backward
            %13 = matmul seed mlp.1.weightᵀ
            %21 = dequantize %20
            %14 = matmul %21ᵀ seed, normalized by %7, weight norm.weight, bias norm.bias, relu
            %15, %16, %17 = normalize_gradient %13 of %21, by %7, weight norm.weight, bias norm.bias, relu, rows R[edges] balanced
            %18 = aggregate edgesᵀ %15, factor 0.5, operand is balanced, plus 1.25 %15
            %19 = matmul xᵀ %18
            "
        )
    );
}

/// Own rows of a block are the first ones of what is stored.
#[test]
fn own_rows_of_a_block_are_read_of_what_is_stored() {
    let mut g = Builder::new(Precision::Half);
    let (sources, destinations) = (g.vertices("sources", 30), g.vertices("destinations", 10));
    let edges = g.edges("block", sources, destinations, Norm::Right);
    let x = g.input("x", sources, 8);
    let w = g.weight("w", (8, 8));
    let x = g.matmul(x, w);
    let x = g.relu(x);
    let y = Sage { edges, outputs: 4 }.build(&mut g, x);
    let program = g.finish(y).expect("operands fit");
    assert_eq!(
        stored(program).listing(),
        text(
            "
            %3 = matmul x w, relu
            %6 = matmul %3 neighbours.weight
            %9 = matmul own[block] %3 self.weight
            %21 = store %3 (kept)
            %10 = aggregate block %6, plus %9
            backward
            %13 = matmul own[block] %21ᵀ seed
            %15 = aggregate blockᵀ seed
            %16 = matmul %15 neighbours.weightᵀ, where positive %21
            %19 = matmul seed self.weightᵀ, where positive %21, added to own[block] %16
            %18 = matmul %21ᵀ %15
            %20 = matmul xᵀ %19
            "
        )
    );
}

fn store(config: ModelConfig) -> ModelConfig {
    ModelConfig {
        store: Some(StoreIn::EightBit),
        ..config
    }
}

/// A step of the program has the logits and gradients of the network, which stores the same matrices; and not those of
/// a program that stores none.
fn both<B: Backend, E: Element>(
    backend: &B,
    name: &str,
    config: &ModelConfig,
    norm: Norm,
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
) {
    for messages in [None, Some(CodeFormat::Int8)] {
        let config = ModelConfig {
            messages,
            ..store(config.clone())
        };
        let expected = of_network::<B, E>(backend, &config, norm);
        let size = (graph().vertices(), config.features);
        let plain = program(E::PRECISION, size, norm, &build);
        let quantize = |mut program: Program| {
            if let Some(format) = messages {
                Quantize { format }.run(&mut program).expect("both lists");
            }
            program.check().expect("a legal program");
            program
        };
        let what = format!("{name} in {}, {messages:?}", E::PRECISION);
        let kept = quantize(stored(plain.clone()));
        let found = of_program(backend, kept, norm, &expected.1);
        assert_bits(&what, &expected, &found);
        let as_it_is = quantize(compiled(plain, false));
        let as_it_is = of_program(backend, as_it_is, norm, &expected.1);
        assert_eq!(as_it_is.0, found.0, "{what}: a forward pass is of elements");
        assert_ne!(as_it_is.1, found.1, "{what}: 8 bits round");
    }
}

fn layers<B: Backend, E: Element>(backend: &B, shapes: &[[usize; 3]]) {
    for &[features, width, classes] in shapes {
        for dropout in [0.0, 0.4] {
            let of = |config| shaped(config, 3, width, dropout);
            let config = of(ModelConfig::gcn(features, classes));
            both::<B, E>(backend, "gcn", &config, Norm::Both, |g, edges, x| {
                stack(g, &config, x, |outputs| Gcn { edges, outputs })
            });
            let config = of(ModelConfig::sage(features, classes));
            both::<B, E>(backend, "sage", &config, Norm::Right, |g, edges, x| {
                stack(g, &config, x, |outputs| Sage { edges, outputs })
            });
            let options = GatConfig::default();
            let config = of(ModelConfig::of(options.clone(), features, classes));
            both::<B, E>(backend, "gat", &config, Norm::None, |g, edges, x| {
                stack(g, &config, x, |outputs| Gat {
                    edges,
                    outputs,
                    averaged: false,
                    options: options.clone(),
                })
            });
            for learn_epsilon in [false, true] {
                let options = GinConfig {
                    aggregate: Aggregate::Mean,
                    learn_epsilon,
                    ..GinConfig::default()
                };
                let config = of(ModelConfig::of(options.clone(), features, classes));
                both::<B, E>(backend, "gin", &config, Norm::Right, |g, edges, x| {
                    stack(g, &config, x, |outputs| Gin {
                        edges,
                        hidden: width,
                        outputs,
                        options: options.clone(),
                    })
                });
            }
        }
    }
}

#[test]
fn stored_activations_have_the_bits_of_the_network_in_half() {
    layers::<_, f16>(&Cpu::new(), &SHAPES);
}

#[test]
fn stored_activations_have_the_bits_of_the_network_in_bfloat16() {
    layers::<_, bf16>(&Cpu::new(), &SHAPES);
}

#[test]
fn stored_activations_have_the_bits_of_the_network_on_the_emulator() {
    let driver = Emulated::new();
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    let backend = Gpu::new(driver, kernels).expect("the PTX fits this program");
    let config = shaped(ModelConfig::gcn(12, 5), 3, 8, 0.4);
    both::<_, f16>(&backend, "gcn", &config, Norm::Both, |g, edges, x| {
        stack(g, &config, x, |outputs| Gcn { edges, outputs })
    });
    let config = shaped(ModelConfig::sage(5, 23), 3, 19, 0.4);
    both::<_, f16>(&backend, "sage", &config, Norm::Right, |g, edges, x| {
        stack(g, &config, x, |outputs| Sage { edges, outputs })
    });
}

const FEATURES: usize = 12;
const CLASSES: usize = 3;

/// Networks of other layers, and with what is around layers.
fn others() -> Vec<(&'static str, ModelConfig)> {
    let of = |config| shaped(config, 3, 32, 0.4);
    let gcn = || of(ModelConfig::gcn(FEATURES, CLASSES));
    let mean = GraphConv {
        aggregate: Aggregate::Mean,
    };
    let mut models = vec![
        (
            "gatv2",
            of(ModelConfig::of(GatV2Config::default(), FEATURES, CLASSES)),
        ),
        (
            "transformer",
            of(ModelConfig::of(Transformer::default(), FEATURES, CLASSES)),
        ),
        (
            "graphconv",
            // Of sums the first gradients leave the range of half here or there, so that steps are skipped in one of
            // the two.
            of(ModelConfig::of(mean, FEATURES, CLASSES)),
        ),
    ];
    for jumping in [Jumping::Max, Jumping::Cat] {
        let jumping = Some(jumping);
        models.push(("jumping knowledge", ModelConfig { jumping, ..gcn() }));
    }
    for hidden_norm in [HiddenNorm::Batch, HiddenNorm::Layer] {
        let normed = ModelConfig {
            hidden_norm,
            ..gcn()
        };
        models.push(("a norm between layers", normed));
    }
    models
}

/// Losses, logits and weights of some steps, and the peak of their activations.
fn trained(config: &ModelConfig, blocks: bool) -> (trained::Trace, u64) {
    let backend = Cpu::new();
    let model = program::Network::<_, f16>::new(&backend, config, SEED).expect("a model");
    let trace = match blocks {
        false => trained::whole(&backend, config, model),
        true => trained::sampled(&backend, config, model),
    };
    let peak = backend.memory().peak[MemoryKind::Activations as usize];
    (trace, peak)
}

#[test]
fn every_network_is_trained_with_stored_activations() {
    for (name, plain) in others() {
        for blocks in [false, true] {
            if blocks && (plain.jumping.is_some() || plain.wants_all_vertices().is_some()) {
                continue;
            }
            let (expected, _) = trained(&plain, blocks);
            let (found, _) = trained(&store(plain.clone()), blocks);
            let what = format!("{name}, blocks: {blocks}");
            assert_eq!(expected[0], found[0], "{what}: nothing is stored before it");
            assert_ne!(expected, found, "{what}: 8 bits round");
            for ((of, expected), (_, found)) in expected.iter().zip(&found) {
                if of.starts_with("loss") {
                    let off = (expected[0] - found[0]).abs();
                    assert!(
                        off <= 0.04 * expected[0],
                        "{what}: {of}: {expected:?}, {found:?}"
                    );
                }
            }
        }
    }
}

/// Of four layers three outputs are 8 bits an element, and one at a time is 16.
#[test]
fn stored_activations_take_less_memory() {
    let (rows, width) = (1000, 64);
    let of = |norm, build: &dyn Fn(&mut Builder, Edges, Value) -> Value| {
        let plain = program(Precision::Half, (rows, width), norm, build);
        let [more, less] = [compiled(plain.clone(), false), stored(plain)]
            .map(|program| Plan::new(&program).activations());
        let saved = (rows * width) as u64;
        assert!(less + saved * 9 / 10 <= more, "{less} and {more} bytes");
    };
    let config = shaped(ModelConfig::gcn(width, 8), 4, width, 0.5);
    of(Norm::Both, &|g, edges, x| {
        stack(g, &config, x, |outputs| Gcn { edges, outputs })
    });
    of(Norm::None, &|g, edges, x| {
        stack(g, &config, x, |outputs| GatV2 {
            edges,
            outputs,
            averaged: false,
            options: GatV2Config::default(),
        })
    });
}

/// What is rebuilt is made of elements, so it has the bits that it had; and what is stored is not rebuilt.
#[test]
fn recomputation_goes_with_stored_activations() {
    for (name, config) in others() {
        let alone = store(config);
        let rebuilt = ModelConfig {
            recompute: true,
            ..alone.clone()
        };
        let ((expected, more), (found, less)) = (trained(&alone, false), trained(&rebuilt, false));
        assert_eq!(expected, found, "{name}");
        assert!(less <= more, "{name}: {less} and {more} bytes");
    }
    // Of another function than a ReLU nothing is stored, and outputs are rebuilt.
    let chain = |passes: &[&dyn Pass]| {
        let of_rows = of_ten(8, Norm::None, |g, _, mut x| {
            for layer in 0..6 {
                x = g.layer(layer, |g| {
                    let w = g.weight("w", (8, 8));
                    let y = g.matmul(x, w);
                    match layer {
                        4 => g.relu(y),
                        _ => g.hidden_activation(HiddenActivation::Tanh, y),
                    }
                });
            }
            x
        });
        with_passes(of_rows, passes)
    };
    let plain = chain(&[&FuseBeforeStore, &Store]);
    let rebuilt = chain(&[&FuseBeforeStore, &Store, &Recompute]);
    assert_eq!(rebuilt.listing().matches("= store ").count(), 1);
    let bytes = |program: &Program| Plan::new(program).activations();
    assert!(bytes(&rebuilt) < bytes(&plain), "{}", rebuilt.listing());
}

/// Behind a plain [`Fuse`] an aggregation undoes a ReLU by a copy.
#[test]
fn storing_needs_no_other_pass() {
    let of = |passes: &[&dyn Pass]| {
        let size = (graph().vertices(), 8);
        let program = program(Precision::Half, size, Norm::Both, gcn);
        with_passes(program, passes)
    };
    let backend = Cpu::new();
    let config = ModelConfig {
        hidden_by_layer: vec![4, 8],
        ..shaped(ModelConfig::gcn(8, 2), 3, 8, 0.5)
    };
    let names = of_network::<_, f16>(&backend, &config, Norm::Both).1;
    let run = |program| of_program(&backend, program, Norm::Both, &names);
    let [expected, found] = [
        &[&FuseBeforeStore as &dyn Pass, &Store],
        &[&Fuse as &dyn Pass, &Store],
    ]
    .map(|passes| of(passes));
    assert!(found.listing().contains("aggregate edgesᵀ"));
    assert_bits("stored behind a plain fuse", &run(expected), &run(found));
}

#[test]
fn what_is_not_stored_is_refused_in_one_line() {
    let of = |precision, is_differentiated: bool| {
        let mut program = program(precision, (10, 8), Norm::Both, gcn);
        if is_differentiated {
            differentiate(&mut program).expect("parameters");
        }
        let refused = Store.run(&mut program).expect_err("nothing is stored");
        refused.to_string()
    };
    let evaluation = of(Precision::Half, false);
    assert!(
        evaluation.contains("differentiate it before"),
        "{evaluation}"
    );
    let float = of(Precision::Float, true);
    assert!(float.contains("computes in float"), "{float}");
    let backend = Cpu::new();
    let elu = ModelConfig {
        activation: HiddenActivation::Elu,
        ..store(ModelConfig::of(GraphConv::default(), FEATURES, CLASSES))
    };
    let refused = Network::<_, f16>::new(&backend, &elu, SEED).expect_err("no ReLU");
    assert!(refused.to_string().contains("leave store out"), "{refused}");
}

/// What overflows has a finite code, and is seen all the same.
#[test]
fn an_overflow_is_seen_behind_what_is_stored() {
    let backend = Cpu::new();
    let config = store(shaped(ModelConfig::gcn(FEATURES, CLASSES), 3, 8, 0.0));
    let model = program::Network::<_, f16>::new(&backend, &config, SEED).expect("a model");
    assert_eq!(model.watched().len(), 2, "the outputs of two hidden layers");
    let task = trained::objective(&backend, &config);
    let train = TrainConfig::new(Precision::Half);
    let mut trainer = Trainer::new(&backend, &task, model, train).expect("a model of the task");
    let mut is_seen = |factor: f32| {
        let mut parameters = trainer.model_mut().parameters_mut();
        let values = parameters[0].master().to_f32(&backend).expect("values");
        let grown: Vec<f32> = values.iter().map(|value| value * factor).collect();
        parameters[0].write(&backend, &grown).expect("as many");
        drop(parameters);
        trainer.gradients().expect("half a step");
        let watched = trainer.model().watched().into_iter();
        let mut watched = watched.flat_map(|matrix| matrix.to_f32(&backend).expect("values"));
        watched.any(f32::is_infinite)
    };
    assert!(!is_seen(1.0));
    assert!(is_seen(1e7));
}
