//! Messages of 8 bits: next to the network, over several steps, as scales follow those before.

use super::network::{SEED, assert_bits, shaped, stack};
use super::setup::{compiled, graph, numbers, program};
use half::{bf16, f16};
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{
    Aggregate, Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, Inputs, Mode, Model,
    ModelConfig, Network, Norm, Propagation,
};
use halfgnn::ops::{CodeFormat, RandomState};
use halfgnn::program::layers::{Gat, GatV2, Gcn, Gin, Layer, Sage};
use halfgnn::program::passes::{Pass, Quantize};
use halfgnn::program::{Builder, Edges, Program, Runner, Value, differentiate};
use halfgnn::tensor::{Element, Matrix, Precision};
use std::sync::Arc;

/// Steps, of which the last is compared.
const STEPS: u32 = 3;

/// Features of a step: those of later steps are larger, so that scales have to follow.
fn features(step: u32, len: usize) -> Vec<f32> {
    let values = numbers(u64::from(step) + 100, len).into_iter();
    values.map(|value| value * (1 + step) as f32).collect()
}

type Results = (Vec<f32>, Vec<(String, Vec<f32>)>);

fn of_network<E: Element>(config: &ModelConfig, norm: Norm) -> Results {
    let backend = Cpu::new();
    let mut network = Network::<Cpu, E>::new(&backend, config, SEED).expect("a model");
    let graphs = [Propagation::new(&backend, &graph(), norm).expect("memory")];
    let shape = (graph().vertices(), config.features);
    let mut random = RandomState::new(&backend, SEED, 0).expect("memory");
    for step in 0..STEPS {
        random.set_step(&backend, step).expect("a step");
        let x = features(step, shape.0 * shape.1);
        let x = Matrix::from_f32(&backend, shape.0, shape.1, &x, MemoryKind::Features);
        let inputs = Inputs {
            backend: &backend,
            graphs: &graphs,
            features: &x.expect("memory"),
            of_types: &[],
            dropped: false,
        };
        let mode = Mode::Train { random: &random };
        network.forward(inputs, mode).expect("a forward pass");
        let seed = numbers(200, shape.0 * config.classes);
        let (_, gradient) = network.loss_operands();
        gradient.write_f32(&backend, &seed).expect("memory");
        network.backward(inputs, mode).expect("a backward pass");
    }
    let logits = network.logits().to_f32(&backend).expect("values");
    let gradients = network.parameters().into_iter().map(|parameter| {
        let gradient = parameter.gradient().to_f32(&backend).expect("values");
        (parameter.name().to_owned(), gradient)
    });
    (logits, gradients.collect())
}

fn of_program(config: &ModelConfig, norm: Norm, of: Program, names: &Results) -> Results {
    let backend = Cpu::new();
    let edges = Propagation::new(&backend, &graph(), norm).expect("memory");
    let mut runner = Runner::new(&backend, of, vec![Arc::new(edges)], SEED).expect("memory");
    let x = runner.program().named("x").expect("an input");
    let output = runner.program().output().expect("an output");
    let rows = graph().vertices();
    let mut logits = Vec::new();
    for step in 0..STEPS {
        runner.set_step(step).expect("a step");
        runner
            .write(x, &features(step, rows * config.features))
            .expect("memory");
        runner.forward().expect("a forward pass");
        logits = runner.read(output).expect("logits");
        runner
            .write_seed(&numbers(200, rows * config.classes))
            .expect("memory");
        runner.backward().expect("a backward pass");
    }
    let gradients = names.1.iter().map(|(name, _)| {
        let value = runner.program().named(name).expect("a parameter");
        (name.clone(), runner.gradient(value).expect("a gradient"))
    });
    (logits, gradients.collect())
}

fn both<E: Element>(
    name: &str,
    config: &ModelConfig,
    norm: Norm,
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
) {
    for format in [CodeFormat::Int8, CodeFormat::E4m3] {
        let config = ModelConfig {
            messages: Some(format),
            ..config.clone()
        };
        let expected = of_network::<E>(&config, norm);
        let size = (graph().vertices(), config.features);
        let plain = program(E::PRECISION, size, norm, &build);
        let mut quantized = compiled(plain.clone(), false);
        Quantize { format }.run(&mut quantized).expect("both lists");
        quantized.check().expect("a legal program");
        let found = of_program(&config, norm, quantized, &expected);
        let what = format!("{name} in {format:?} of {}", E::PRECISION);
        assert_bits(&what, &expected, &found);
        let as_it_is = of_program(&config, norm, compiled(plain, false), &expected);
        assert_ne!(as_it_is.0, found.0, "{what}: 8 bits round");
    }
}

const SHAPES: [[usize; 3]; 2] = [[24, 16, 7], [5, 19, 23]];

fn layers<E: Element>() {
    for [features, width, classes] in SHAPES {
        let of = |config| shaped(config, 3, width, 0.5);
        let config = of(ModelConfig::gcn(features, classes));
        both::<E>("gcn", &config, Norm::Both, |g, edges, x| {
            stack(g, &config, x, |outputs| Gcn { edges, outputs })
        });
        let config = of(ModelConfig::sage(features, classes));
        both::<E>("sage", &config, Norm::Right, |g, edges, x| {
            stack(g, &config, x, |outputs| Sage { edges, outputs })
        });
        for (aggregate, norm) in [(Aggregate::Mean, Norm::Right), (Aggregate::Sum, Norm::None)] {
            let options = GinConfig {
                aggregate,
                ..GinConfig::default()
            };
            let config = of(ModelConfig::of(options.clone(), features, classes));
            both::<E>("gin", &config, norm, |g, edges, x| {
                g.set_largest_degree(edges, 22);
                stack(g, &config, x, |outputs| Gin {
                    edges,
                    hidden: width,
                    outputs,
                    options: options.clone(),
                })
            });
        }
        let options = GatConfig::default();
        let config = of(ModelConfig::of(options.clone(), features, classes));
        both::<E>("gat", &config, Norm::None, |g, edges, x| {
            stack(g, &config, x, |outputs| Gat {
                edges,
                outputs,
                averaged: false,
                options: options.clone(),
            })
        });
    }
}

#[test]
fn quantized_messages_have_the_bits_of_the_network_in_half() {
    layers::<f16>();
}

#[test]
fn quantized_messages_have_the_bits_of_the_network_in_bfloat16() {
    layers::<bf16>();
}

fn refused(precision: Precision, of: impl Fn(&mut Program)) -> String {
    let size = (graph().vertices(), 4);
    let mut program = program(precision, size, Norm::Both, |g, edges, x| {
        Gcn { edges, outputs: 2 }.build(g, x)
    });
    of(&mut program);
    let format = CodeFormat::Int8;
    let refused = Quantize { format }.run(&mut program);
    refused.expect_err("no messages").to_string()
}

#[test]
fn attention_that_has_no_sums_of_quantized_values_keeps_its_messages() {
    let size = (graph().vertices(), 4);
    let mut program = program(Precision::Half, size, Norm::None, |g, edges, x| {
        let layer = GatV2 {
            edges,
            outputs: 2,
            averaged: false,
            options: GatV2Config::default(),
        };
        layer.build(g, x)
    });
    differentiate(&mut program).expect("parameters");
    let format = CodeFormat::Int8;
    let refused = Quantize { format }.run(&mut program);
    let refused = refused.expect_err("no messages").to_string();
    assert!(refused.contains("GATv2"), "{refused}");
}

#[test]
fn quantized_messages_are_of_training_in_16_bits() {
    let evaluation = refused(Precision::Half, |_| ());
    assert!(evaluation.contains("in training alone"), "{evaluation}");
    let float = refused(Precision::Float, |program| {
        differentiate(program).expect("parameters");
    });
    assert!(float.contains("computes in float"), "{float}");
}
