//! Programs next to the network: the same logits and gradients.

use super::setup::{compiled, graph, hidden, last, numbers, program, runner};
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::graph::{Block, Csr};
use halfgnn::nn::{
    Appnp as AppnpConfig, Degrees, Gcnii as GcniiConfig, Inputs, Mode, Model, ModelConfig, Network,
    Norm, Propagation,
};
use halfgnn::ops::RandomState;
use halfgnn::program::layers::{Appnp, Gcn, Gcnii, Layer, Sage};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Reorder, apply};
use halfgnn::program::{Builder, Edges, Program, Runner, Value, differentiate};
use halfgnn::tensor::{Element, Matrix};
use std::sync::Arc;

pub const SEED: u64 = 7;

/// Logits and gradients of parameters, by name.
pub type Results = (Vec<f32>, Vec<(String, Vec<f32>)>);

/// What the network computes over the shared graph.
pub fn of_network<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    norm: Norm,
) -> Results {
    let graphs = [Propagation::new(backend, &graph(), norm).expect("memory")];
    of_network_over::<B, E>(backend, config, &graphs)
}

pub fn of_network_over<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    graphs: &[Propagation<B>],
) -> Results {
    let mut network = Network::<B, E>::new(backend, config, SEED).expect("a model");
    for (number, parameter) in network.parameters_mut().into_iter().enumerate() {
        if parameter.name().ends_with("bias") {
            let (rows, columns) = parameter.shape();
            let values = numbers(number as u64, rows * columns);
            parameter.write(backend, &values).expect("memory");
        }
    }
    let shape = (graphs[0].sources(), config.features);
    let x = numbers(100, shape.0 * shape.1);
    let kind = MemoryKind::Features;
    let features = Matrix::from_f32(backend, shape.0, shape.1, &x, kind).expect("memory");
    let inputs = Inputs {
        backend,
        graphs,
        features: &features,
        of_types: &[],
        dropped: false,
    };
    let random = RandomState::new(backend, SEED, 3).expect("memory");
    let mode = Mode::Train { random: &random };
    network.forward(inputs, mode).expect("a forward pass");
    let logits = network.logits().to_f32(backend).expect("values");
    let seed = numbers(200, logits.len());
    network
        .loss_operands()
        .1
        .write_f32(backend, &seed)
        .expect("memory");
    network.backward(inputs, mode).expect("a backward pass");
    let gradients = network.parameters().into_iter().map(|parameter| {
        let gradient = parameter.gradient().to_f32(backend).expect("values");
        (parameter.name().to_owned(), gradient)
    });
    (logits, gradients.collect())
}

/// What the program computes, with the names of the network.
pub fn of_program<B: Backend>(
    backend: &B,
    of: Program,
    norm: Norm,
    names: &[(String, Vec<f32>)],
) -> Results {
    of_runner(runner(backend, of, norm), names)
}

pub fn of_runner(mut runner: Runner, names: &[(String, Vec<f32>)]) -> Results {
    let output = runner.program().output().expect("an output");
    runner.set_step(3).expect("a step");
    let x = runner.program().named("x").expect("an input");
    let len = runner.read(x).expect("values").len();
    runner.write(x, &numbers(100, len)).expect("memory");
    for (number, (name, values)) in names.iter().enumerate() {
        let value = runner
            .program()
            .named(name)
            .unwrap_or_else(|| panic!("no parameter {name}"));
        if name.ends_with("bias") {
            runner
                .write(value, &numbers(number as u64, values.len()))
                .expect("memory");
        }
    }
    runner.forward().expect("a forward pass");
    let logits = runner.read(output).expect("logits");
    runner
        .write_seed(&numbers(200, logits.len()))
        .expect("memory");
    runner.backward().expect("a backward pass");
    let gradients = names.iter().map(|(name, _)| {
        let value = runner.program().named(name).expect("a parameter");
        (name.clone(), runner.gradient(value).expect("a gradient"))
    });
    (logits, gradients.collect())
}

pub fn assert_bits(what: &str, expected: &Results, found: &Results) {
    assert!(
        expected.0.iter().any(|logit| *logit != 0.0),
        "{what}: logits"
    );
    assert_eq!(expected.0, found.0, "{what}: logits");
    for (expected, found) in expected.1.iter().zip(&found.1) {
        assert!(
            expected.1.iter().any(|it| *it != 0.0),
            "{what}: {}",
            expected.0
        );
        assert_eq!(expected, found, "{what}");
    }
}

/// Asserts that numbers differ by no more than this share of the largest.
pub fn assert_near(what: &str, expected: &Results, found: &Results, share: f32) {
    let near = |name: &str, expected: &[f32], found: &[f32]| {
        let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert_eq!(expected.len(), found.len(), "{what}: {name}");
        for (expected, found) in expected.iter().zip(found) {
            let off = (expected - found).abs();
            assert!(
                off <= share * largest,
                "{what}: {name}: {expected} and {found}, of {largest}"
            );
        }
    };
    near("logits", &expected.0, &found.0);
    for (expected, found) in expected.1.iter().zip(&found.1) {
        near(&expected.0, &expected.1, &found.1);
    }
}

/// The layers of `config`, each of which `layer` makes of its edges and outputs.
pub fn stack<L: Layer>(
    g: &mut Builder,
    config: &ModelConfig,
    mut x: Value,
    layer: impl Fn(usize) -> L,
) -> Value {
    for number in 0..config.layers {
        x = g.layer(number as u32, |g| {
            let dropped = g.dropout(x, config.dropout);
            let y = layer(config.layer(number).1).build(g, dropped);
            match config.is_last(number) {
                true => last(g, y),
                false => hidden(g, y),
            }
        });
    }
    x
}

pub fn shaped(mut config: ModelConfig, layers: usize, hidden: usize, dropout: f32) -> ModelConfig {
    (config.layers, config.hidden, config.dropout) = (layers, hidden, dropout);
    config
}

fn gcn<B: Backend, E: Element>(backend: &B, config: &ModelConfig, norm: Norm) {
    let outputs = |edges: Edges| move |outputs| Gcn { edges, outputs };
    both::<B, E>(backend, "gcn", config, norm, |g, edges, x| {
        stack(g, config, x, outputs(edges))
    });
}

fn sage<B: Backend, E: Element>(backend: &B, config: &ModelConfig, norm: Norm) {
    let outputs = |edges: Edges| move |outputs| Sage { edges, outputs };
    both::<B, E>(backend, "sage", config, norm, |g, edges, x| {
        stack(g, config, x, outputs(edges))
    });
}

pub fn both<B: Backend, E: Element>(
    backend: &B,
    name: &str,
    config: &ModelConfig,
    norm: Norm,
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
) {
    let expected = of_network::<B, E>(backend, config, norm);
    let size = (graph().vertices(), config.features);
    for recompute in [false, true] {
        let program = compiled(program(E::PRECISION, size, norm, &build), recompute);
        let found = of_program(backend, program, norm, &expected.1);
        let what = format!(
            "{name} {} dropout {} recompute {recompute}",
            E::PRECISION,
            config.dropout
        );
        assert_bits(&what, &expected, &found);
    }
}

/// Narrowing layers transform first, widening ones aggregate first.
pub const SHAPES: [[usize; 3]; 2] = [[24, 16, 7], [5, 19, 23]];

fn in_all_shapes<B: Backend, E: Element>(backend: &B) {
    for [features, width, classes] in SHAPES {
        for dropout in [0.0, 0.4] {
            let of = |config| shaped(config, 3, width, dropout);
            gcn::<B, E>(
                backend,
                &of(ModelConfig::gcn(features, classes)),
                Norm::Both,
            );
            sage::<B, E>(
                backend,
                &of(ModelConfig::sage(features, classes)),
                Norm::Right,
            );
        }
    }
}

#[test]
fn gcn_and_sage_have_the_bits_of_the_network_in_half() {
    in_all_shapes::<Cpu, f16>(&Cpu::new());
}

#[test]
fn gcn_and_sage_have_the_bits_of_the_network_in_bfloat16() {
    in_all_shapes::<Cpu, bf16>(&Cpu::new());
}

#[test]
fn gcn_and_sage_have_the_bits_of_the_network_in_float() {
    in_all_shapes::<Cpu, f32>(&Cpu::new());
}

#[test]
fn gcn_and_sage_have_the_bits_of_the_network_on_the_emulator() {
    let driver = Emulated::new();
    let kernels = halfgnn::kernels::Kernels::find(Some(driver.info().compute_capability));
    let backend =
        Gpu::new(driver, kernels.expect("the kernels")).expect("the PTX fits this program");
    let of = |config| shaped(config, 2, 8, 0.4);
    gcn::<_, f16>(&backend, &of(ModelConfig::gcn(12, 5)), Norm::Both);
    sage::<_, f16>(&backend, &of(ModelConfig::sage(12, 5)), Norm::Right);
}

/// The perceptron of an APPNP, and its steps.
fn appnp(g: &mut Builder, config: &ModelConfig, of: &AppnpConfig, edges: Edges, x: Value) -> Value {
    let mut h = x;
    for number in 0..config.layers {
        h = g.layer(number as u32, |g| {
            let weight = g.weight("weight", config.layer(number));
            let product = g.matmul(h, weight);
            match config.is_last(number) {
                true => last(g, product),
                false => hidden(g, product),
            }
        });
    }
    let steps = Appnp {
        edges,
        initial: None,
        steps: of.steps,
        alpha: of.alpha,
        dropout: 0.0,
    };
    steps.build(g, h)
}

/// Gradients of the predictions are added with their factors, in one operator, where the network rounds each multiple
/// before: in half that differs by a digit.
#[test]
fn appnp_is_the_network_but_for_one_rounding() {
    fn of<E: Element>(share: f32) {
        let backend = Cpu::new();
        let kind = AppnpConfig {
            steps: 3,
            ..AppnpConfig::default()
        };
        let config = shaped(ModelConfig::of(kind.clone(), 12, 5), 2, 9, 0.0);
        let expected = of_network::<_, E>(&backend, &config, Norm::Both);
        let size = (graph().vertices(), config.features);
        let program = program(E::PRECISION, size, Norm::Both, |g, edges, x| {
            appnp(g, &config, &kind, edges, x)
        });
        let found = of_program(&backend, compiled(program, false), Norm::Both, &expected.1);
        assert_eq!(expected.0, found.0, "logits in {}", E::PRECISION);
        assert_near("appnp", &expected, &found, share);
    }
    of::<f32>(1e-6);
    of::<f16>(4e-3);
    of::<bf16>(3e-2);
}

#[test]
fn gcnii_is_the_network_but_for_one_rounding() {
    fn of<E: Element>(share: f32) {
        let backend = Cpu::new();
        let kind = GcniiConfig::default();
        let config = shaped(ModelConfig::of(kind.clone(), 12, 5), 3, 9, 0.3);
        let expected = of_network::<_, E>(&backend, &config, Norm::Both);
        let size = (graph().vertices(), config.features);
        let program = program(E::PRECISION, size, Norm::Both, |g, edges, x| {
            gcnii(g, &config, &kind, edges, x)
        });
        let found = of_program(&backend, compiled(program, false), Norm::Both, &expected.1);
        assert_eq!(expected.0, found.0, "logits in {}", E::PRECISION);
        assert_near("gcnii", &expected, &found, share);
    }
    of::<f32>(1e-6);
    of::<f16>(6e-3);
    of::<bf16>(4e-2);
}

fn gcnii(g: &mut Builder, config: &ModelConfig, of: &GcniiConfig, edges: Edges, x: Value) -> Value {
    let initial = g.layer(0, |g| {
        let dropped = g.dropout(x, config.dropout);
        let weight = g.weight("weight", (config.features, config.hidden));
        let product = g.matmul(dropped, weight);
        hidden(g, product)
    });
    let mut h = initial;
    for number in 1..=config.layers {
        h = g.layer(number as u32, |g| {
            let dropped = g.dropout(h, config.dropout);
            let convolution = Gcnii {
                edges,
                initial,
                alpha: of.alpha,
                beta: (f64::from(of.theta) / number as f64).ln_1p() as f32,
            };
            let y = convolution.build(g, dropped);
            g.relu(y)
        });
    }
    g.layer(config.layers as u32 + 1, |g| {
        let dropped = g.dropout(h, config.dropout);
        let weight = g.weight("weight", (config.hidden, config.classes));
        let product = g.matmul(dropped, weight);
        last(g, product)
    })
}

/// Vertices of two sampled layers, from the features to the output.
pub const SAMPLED: [usize; 3] = [23, 11, 6];

/// The adjacency of a sampled layer, whose destinations are its first sources.
pub fn block<B: Backend>(backend: &B, layer: usize) -> Propagation<B> {
    let (rows, columns) = (SAMPLED[layer + 1], SAMPLED[layer]);
    let places =
        (0..rows).flat_map(|row| (0..columns).map(move |column| (row as u32, column as u32)));
    let chosen = places.zip(numbers(layer as u64 + 60, rows * columns));
    let edges = chosen.filter(|((row, _), number)| *number > 0.4 && *row != 2);
    let (rows_of, columns_of): (Vec<u32>, Vec<u32>) = edges.map(|(edge, _)| edge).unzip();
    let csr = Csr::rectangular_from_edges((rows, columns), &rows_of, &columns_of).expect("ids");
    let block = Block::new(csr).expect("destinations are sources");
    Propagation::of_block(backend, &block, Norm::Right, Degrees::OfBlock).expect("memory")
}

/// On sampled blocks a layer reads the rows of its destinations, and its output has fewer rows than its input.
#[test]
fn sage_has_the_bits_of_the_network_on_sampled_blocks() {
    fn of<E: Element>([features, width, classes]: [usize; 3]) {
        let backend = Cpu::new();
        let config = shaped(ModelConfig::sage(features, classes), 2, width, 0.0);
        let graphs = [0, 1].map(|layer| block(&backend, layer));
        let expected = of_network_over::<_, E>(&backend, &config, &graphs);
        let mut g = Builder::new(E::PRECISION);
        let sets = SAMPLED.map(|rows| g.vertices(&format!("{rows} vertices"), rows));
        let edges = [0, 1].map(|layer| {
            g.edges(
                &format!("block {layer}"),
                sets[layer],
                sets[layer + 1],
                Norm::Right,
            )
        });
        let x = g.input("x", sets[0], features);
        let layer = |edges, outputs| Sage { edges, outputs };
        let y = g.layer(0, |g| {
            let y = layer(edges[0], width).build(g, x);
            hidden(g, y)
        });
        let y = g.layer(1, |g| {
            let y = layer(edges[1], classes).build(g, y);
            last(g, y)
        });
        let mut program = g.finish(y).expect("operands fit");
        apply(&mut program, &[&Reorder], |_, _| ()).expect("a forward list");
        differentiate(&mut program).expect("parameters");
        apply(&mut program, &[&Fuse], |_, _| ()).expect("both lists");
        let graphs = graphs.into_iter().map(Arc::new).collect();
        let runner = Runner::new(&backend, program, graphs, SEED).expect("memory");
        assert_bits("sage on blocks", &expected, &of_runner(runner, &expected.1));
    }
    for shape in SHAPES {
        of::<f16>(shape);
        of::<f32>(shape);
    }
}
