//! Norms and GIN: next to the network, and next to formulas in double.

use super::network::{
    SAMPLED, SEED, SHAPES, assert_bits, block, both, of_network_over, of_runner, shaped, stack,
};
use super::setup::{compiled, graph, last, numbers, program};
use half::{bf16, f16};
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{
    Aggregate, Gin as GinConfig, HiddenNorm, Inputs, Mode, Model, ModelConfig, Network, Norm,
    Propagation, Statistics,
};
use halfgnn::ops::RandomState;
use halfgnn::program::layers::{Gcn, Gin, Layer};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Evaluate, Reorder, apply};
use halfgnn::program::{Builder, Edges, Program, Runner, Value};
use halfgnn::tensor::{Element, Matrix};
use std::sync::Arc;

const WAYS: [(Aggregate, bool, Statistics); 4] = [
    (Aggregate::Mean, false, Statistics::Batch),
    (Aggregate::Mean, true, Statistics::Running),
    (Aggregate::Sum, false, Statistics::Running),
    (Aggregate::Sum, true, Statistics::Batch),
];

fn options((aggregate, learn_epsilon, statistics): (Aggregate, bool, Statistics)) -> GinConfig {
    GinConfig {
        aggregate,
        lambda: 0.5,
        epsilon: 0.25,
        learn_epsilon,
        statistics,
    }
}

fn norm_of(options: &GinConfig) -> Norm {
    match options.aggregate {
        Aggregate::Mean => Norm::Right,
        _ => Norm::None,
    }
}

fn largest_degree() -> u32 {
    let graph = graph();
    (0..graph.vertices())
        .map(|row| graph.csr().row(row).len() as u32)
        .max()
        .expect("vertices")
}

fn layers(g: &mut Builder, config: &ModelConfig, of: &GinConfig, edges: Edges, x: Value) -> Value {
    g.set_largest_degree(edges, largest_degree());
    stack(g, config, x, |outputs| Gin {
        edges,
        hidden: config.hidden,
        outputs,
        options: of.clone(),
    })
}

#[test]
fn gin_has_the_bits_of_the_network_in_every_precision() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for [features, width, classes] in SHAPES {
            for way in WAYS {
                let options = options(way);
                let config = ModelConfig::of(options.clone(), features, classes);
                let config = shaped(config, 3, width, 0.4);
                let norm = norm_of(&options);
                let name = format!("gin {way:?} {features}");
                both::<_, E>(&backend, &name, &config, norm, |g, edges, x| {
                    layers(g, &config, &options, edges, x)
                });
            }
        }
    }
    of::<f16>();
    of::<bf16>();
    of::<f32>();
}

/// What a step leaves in the buffers, and the logits of an evaluation behind it.
type Evaluated = (Vec<(String, Vec<f32>)>, Vec<f32>);

fn network_evaluated<E: Element>(config: &ModelConfig, norm: Norm) -> Evaluated {
    let backend = Cpu::new();
    let mut network = Network::<Cpu, E>::new(&backend, config, SEED).expect("a model");
    let graphs = [Propagation::new(&backend, &graph(), norm).expect("memory")];
    let x = numbers(100, graph().vertices() * config.features);
    let shape = (graph().vertices(), config.features);
    let features = Matrix::from_f32(&backend, shape.0, shape.1, &x, MemoryKind::Features);
    let inputs = Inputs {
        backend: &backend,
        graphs: &graphs,
        features: &features.expect("memory"),
        of_types: &[],
        dropped: false,
    };
    let random = RandomState::new(&backend, SEED, 3).expect("memory");
    let mode = Mode::Train { random: &random };
    network.forward(inputs, mode).expect("a forward pass");
    network
        .forward(inputs, Mode::Evaluate)
        .expect("an evaluation");
    let buffers = network.buffers().into_iter();
    let buffers = buffers.map(|(name, buffer)| (name, buffer.to_f32(&backend).expect("values")));
    let buffers = buffers.collect();
    (buffers, network.logits().to_f32(&backend).expect("values"))
}

fn program_evaluated(of: Program, norm: Norm) -> Evaluated {
    let backend = Cpu::new();
    let new = |program| {
        let edges = Propagation::new(&backend, &graph(), norm).expect("memory");
        Runner::new(&backend, program, vec![Arc::new(edges)], SEED).expect("memory")
    };
    let x = of.named("x").expect("an input");
    let mut evaluation = of.clone();
    apply(&mut evaluation, &[&Evaluate, &Reorder, &Fuse], |_, _| ()).expect("a forward list");
    assert!(!evaluation.listing().contains("dropout"));
    let mut training = new(compiled(of, false));
    let mut evaluation = new(evaluation);
    let features = numbers(100, training.read(x).expect("values").len());
    training.set_step(3).expect("a step");
    training.write(x, &features).expect("memory");
    training.forward().expect("a forward pass");
    evaluation.write(x, &features).expect("memory");
    let mut buffers = Vec::new();
    for buffer in training.program().buffers() {
        let values = training.read(buffer).expect("values");
        evaluation.write(buffer, &values).expect("memory");
        let name = training.program().description(buffer).name.clone();
        buffers.push((name, values));
    }
    evaluation.forward().expect("an evaluation");
    // An evaluation carries nothing on.
    for (buffer, (_, before)) in evaluation.program().buffers().into_iter().zip(&buffers) {
        assert_eq!(&evaluation.read(buffer).expect("values"), before);
    }
    let output = evaluation.program().output().expect("an output");
    (buffers, evaluation.read(output).expect("logits"))
}

#[test]
fn running_statistics_and_evaluations_are_those_of_the_network() {
    fn of<E: Element>() {
        for way in WAYS {
            let options = options(way);
            let config = ModelConfig::of(options.clone(), 12, 5);
            let config = shaped(config, 2, 9, 0.4);
            let norm = norm_of(&options);
            let size = (graph().vertices(), 12);
            let program = program(E::PRECISION, size, norm, |g, edges, x| {
                layers(g, &config, &options, edges, x)
            });
            let expected = network_evaluated::<E>(&config, norm);
            let found = program_evaluated(program, norm);
            assert_eq!(expected.0.len(), 2, "a normalisation in each layer");
            assert_eq!(expected, found, "{way:?} in {}", E::PRECISION);
        }
    }
    of::<f16>();
    of::<f32>();
}

/// GCN with a norm between its layers.
fn normed(g: &mut Builder, config: &ModelConfig, edges: Edges, mut x: Value) -> Value {
    for number in 0..config.layers {
        x = g.layer(number as u32, |g| {
            let dropped = g.dropout(x, config.dropout);
            let outputs = config.layer(number).1;
            let y = Gcn { edges, outputs }.build(g, dropped);
            let y = last(g, y);
            if config.is_last(number) {
                return y;
            }
            let y = g.hidden_norm("hidden_norm", config.hidden_norm, y);
            g.relu(y)
        });
    }
    x
}

#[test]
fn norms_of_hidden_rows_have_the_bits_of_the_network() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for hidden_norm in HiddenNorm::ALL {
            for [features, width, classes] in SHAPES {
                let mut config = shaped(ModelConfig::gcn(features, classes), 3, width, 0.4);
                config.hidden_norm = hidden_norm;
                let name = format!("gcn with the norm {hidden_norm}");
                both::<_, E>(&backend, &name, &config, Norm::Both, |g, edges, x| {
                    normed(g, &config, edges, x)
                });
            }
        }
    }
    of::<f16>();
    of::<bf16>();
    of::<f32>();
}

/// On a sampled block the rows of destinations are the first of the sources, of which the gradient has more.
#[test]
fn gin_has_the_bits_of_the_network_on_a_sampled_block() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for [features, width, classes] in SHAPES {
            for learn_epsilon in [false, true] {
                let options = options((Aggregate::Mean, learn_epsilon, Statistics::Batch));
                let config = ModelConfig::of(options.clone(), features, classes);
                let config = shaped(config, 1, width, 0.0);
                let graphs = [block(&backend, 0)];
                let expected = of_network_over::<_, E>(&backend, &config, &graphs);
                let mut g = Builder::new(E::PRECISION);
                let [sources, destinations] =
                    ["sources", "destinations"].map(|name| g.vertices(name, 0));
                let edges = g.edges("block", sources, destinations, Norm::Right);
                let x = g.input("x", sources, features);
                let y = layers(&mut g, &config, &options, edges, x);
                let mut program = g.finish(y).expect("operands fit");
                program.set_rows(sources, SAMPLED[0]);
                program.set_rows(destinations, SAMPLED[1]);
                let graphs = graphs.into_iter().map(Arc::new).collect();
                let runner = Runner::new(&backend, compiled(program, false), graphs, SEED);
                let found = of_runner(runner.expect("memory"), &expected.1);
                let what = format!("gin of {features} features, learnt {learn_epsilon}");
                assert_bits(&what, &expected, &found);
            }
        }
    }
    of::<f16>();
    of::<f32>();
}
