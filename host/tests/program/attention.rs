//! Attention: next to the network, and next to formulas in double.

use super::network::{SAMPLED, SEED, assert_bits, block, both, of_network_over, of_runner, shaped};
use super::reference::{Dense, Values, check, edges};
use super::setup::{compiled, graph, hidden, last, numbers, program};
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{Gat as GatConfig, GatV2 as GatV2Config, ModelConfig, Norm, Propagation};
use halfgnn::program::layers::{Gat, GatV2, Layer};
use halfgnn::program::{Builder, Edges, Program, Runner, Value};
use halfgnn::tensor::Element;
use std::sync::Arc;

/// Features, hidden width, classes and heads. Heads are whole vectors in the first two, and padded in the third.
const SHAPES: [([usize; 3], usize); 3] = [([24, 16, 7], 1), ([24, 16, 7], 2), ([5, 18, 23], 3)];

/// The layers of a model, from a function of a layer's edges, outputs and whether it is the last.
fn stack<L: Layer>(
    g: &mut Builder,
    config: &ModelConfig,
    edges: &[Edges],
    mut x: Value,
    layer: impl Fn(Edges, usize, bool) -> L,
) -> Value {
    for number in 0..config.layers {
        let is_last = config.is_last(number);
        let edges = edges[number.min(edges.len() - 1)];
        x = g.layer(number as u32, |g| {
            let dropped = g.dropout(x, config.dropout);
            let y = layer(edges, config.layer(number).1, is_last).build(g, dropped);
            match is_last {
                true => last(g, y),
                false => hidden(g, y),
            }
        });
    }
    x
}

fn gat(g: &mut Builder, config: &ModelConfig, of: &GatConfig, edges: &[Edges], x: Value) -> Value {
    stack(g, config, edges, x, |edges, outputs, averaged| Gat {
        edges,
        outputs,
        averaged,
        options: of.clone(),
    })
}

fn gatv2(
    g: &mut Builder,
    config: &ModelConfig,
    of: &GatV2Config,
    edges: &[Edges],
    x: Value,
) -> Value {
    stack(g, config, edges, x, |edges, outputs, averaged| GatV2 {
        edges,
        outputs,
        averaged,
        options: of.clone(),
    })
}

fn gat_options(heads: usize, attention_dropout: f32) -> GatConfig {
    GatConfig {
        heads,
        attention_dropout,
        ..GatConfig::default()
    }
}

#[test]
fn gat_has_the_bits_of_the_network() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for ([features, width, classes], heads) in SHAPES {
            for dropout in [0.0, 0.4] {
                let options = gat_options(heads, dropout);
                let config = ModelConfig::of(options.clone(), features, classes);
                let config = shaped(config, 3, width, dropout);
                let name = format!("gat of {heads} heads");
                both::<_, E>(&backend, &name, &config, Norm::None, |g, edges, x| {
                    gat(g, &config, &options, &[edges], x)
                });
            }
        }
    }
    of::<f16>();
    of::<bf16>();
    of::<f32>();
}

/// The ReLU and the dropout before a layer are undone in the products that write the gradient of its input, where the
/// network has a pass of its own for them. With half of the elements dropped the factor is a power of two, and the bits
/// are the same.
#[test]
fn gatv2_has_the_bits_of_the_network() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for ([features, width, classes], heads) in SHAPES {
            for (dropout, share_weights) in [(0.0, false), (0.5, false), (0.5, true)] {
                let options = GatV2Config {
                    heads,
                    attention_dropout: dropout,
                    share_weights,
                    ..GatV2Config::default()
                };
                let config = ModelConfig::of(options.clone(), features, classes);
                let config = shaped(config, 3, width, dropout);
                let name = format!("gatv2 of {heads} heads, one map {share_weights}");
                both::<_, E>(&backend, &name, &config, Norm::None, |g, edges, x| {
                    gatv2(g, &config, &options, &[edges], x)
                });
            }
        }
    }
    of::<f16>();
    of::<bf16>();
    of::<f32>();
}

/// A column of numbers for each feature of an edge.
fn columns(count: usize) -> Vec<Vec<f32>> {
    let len = graph().edges();
    (0..count)
        .map(|column| numbers(column as u64 + 300, len))
        .collect()
}

fn with_features(backend: &Cpu, count: usize) -> Propagation<Cpu> {
    let graph = graph();
    let edges = Propagation::new(backend, &graph, Norm::None).expect("memory");
    edges
        .with_edge_features(backend, &graph, &columns(count))
        .expect("a number for each edge")
}

#[test]
fn scores_of_edges_have_the_bits_of_the_network() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for ([features, width, classes], heads) in SHAPES {
            let options = GatConfig {
                edge_features: 3,
                ..gat_options(heads, 0.3)
            };
            let config = ModelConfig::of(options.clone(), features, classes);
            let config = shaped(config, 2, width, 0.4);
            let graphs = [with_features(&backend, 3)];
            let expected = of_network_over::<_, E>(&backend, &config, &graphs);
            let size = (graph().vertices(), features);
            let program = program(E::PRECISION, size, Norm::None, |g, edges, x| {
                gat(g, &config, &options, &[edges], x)
            });
            let graphs = graphs.into_iter().map(Arc::new).collect();
            let runner = Runner::new(&backend, compiled(program, false), graphs, SEED);
            let found = of_runner(runner.expect("memory"), &expected.1);
            assert_bits(&format!("{heads} heads"), &expected, &found);
        }
    }
    of::<f16>();
    of::<f32>();
}

#[test]
fn other_features_of_edges_than_are_read_are_refused() {
    let backend = Cpu::new();
    let options = GatConfig {
        edge_features: 3,
        ..GatConfig::default()
    };
    let config = shaped(ModelConfig::of(options.clone(), 4, 2), 1, 4, 0.0);
    let size = (graph().vertices(), 4);
    let program = program(
        halfgnn::tensor::Precision::Half,
        size,
        Norm::None,
        |g, edges, x| gat(g, &config, &options, &[edges], x),
    );
    let edges = vec![Arc::new(with_features(&backend, 2))];
    let refused = Runner::new(&backend, program, edges, SEED).expect_err("two features");
    assert_eq!(
        refused.to_string(),
        "Program: the program reads 3 features of each edge, and its graph has 2: `edges`"
    );
}

#[test]
fn attention_has_the_bits_of_the_network_on_sampled_blocks() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        let on = |config: &ModelConfig, build: &dyn Fn(&mut Builder, &[Edges], Value) -> Value| {
            let graphs = [0, 1].map(|layer| block(&backend, layer));
            let expected = of_network_over::<_, E>(&backend, config, &graphs);
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
            let x = g.input("x", sets[0], config.features);
            let y = build(&mut g, &edges, x);
            let program: Program = g.finish(y).expect("operands fit");
            let graphs = graphs.into_iter().map(Arc::new).collect();
            let runner = Runner::new(&backend, compiled(program, false), graphs, SEED);
            let found = of_runner(runner.expect("memory"), &expected.1);
            assert_bits("attention on blocks", &expected, &found);
        };
        let options = gat_options(2, 0.0);
        let config = shaped(ModelConfig::of(options.clone(), 24, 7), 2, 16, 0.0);
        on(&config, &|g, edges, x| gat(g, &config, &options, edges, x));
        for share_weights in [false, true] {
            let options = GatV2Config {
                heads: 2,
                share_weights,
                ..GatV2Config::default()
            };
            let config = shaped(ModelConfig::of(options.clone(), 24, 7), 2, 16, 0.0);
            on(&config, &|g, edges, x| {
                gatv2(g, &config, &options, edges, x)
            });
        }
    }
    of::<f16>();
    of::<f32>();
}

/// `Σ_j softmax(score(i, j)) · of_j` over the edges of each row.
fn attended(of: &Dense, rows: usize, score: &dyn Fn(usize, usize) -> f64) -> Dense {
    let edges = edges();
    let mut values = Vec::new();
    for row in 0..rows {
        let into = edges.iter().filter(|(it, _)| *it as usize == row);
        let weights: Vec<(usize, f64)> = into
            .map(|(_, from)| (*from as usize, score(row, *from as usize).exp()))
            .collect();
        let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
        values.extend((0..of.columns).map(|column| {
            let sum: f64 = weights
                .iter()
                .map(|(from, weight)| weight * of.at(*from, column))
                .sum();
            if all == 0.0 { 0.0 } else { sum / all }
        }));
    }
    Dense::new(rows, of.columns, values)
}

fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.2 * x }
}

#[test]
fn gat_is_its_formula() {
    let layer = |edges| Gat {
        edges,
        outputs: 4,
        averaged: false,
        options: GatConfig::default(),
    };
    let formula = |values: &Values| {
        let h = values["x"].product(&values["weight"]);
        let vectors = &values["attention"];
        let dot = |row: usize, end: usize| -> f64 {
            (0..4)
                .map(|column| h.at(row, column) * vectors.at(end, column))
                .sum()
        };
        attended(&h, h.rows, &|to, from| leaky(dot(to, 0) + dot(from, 1)))
    };
    check(
        Norm::None,
        5,
        |g, edges, x| layer(edges).build(g, x),
        formula,
    );
}

#[test]
fn gatv2_is_its_formula() {
    let layer = |edges| GatV2 {
        edges,
        outputs: 4,
        averaged: false,
        options: GatV2Config::default(),
    };
    let formula = |values: &Values| {
        let map = |name: &str| {
            let product = values["x"].product(&values[&format!("{name}.weight")]);
            let bias = &values[&format!("{name}.bias")];
            let row = |row: usize| {
                let product = &product;
                (0..4).map(move |column| product.at(row, column) + bias.at(0, column))
            };
            let all: Vec<f64> = (0..product.rows).flat_map(row).collect();
            Dense::new(product.rows, 4, all)
        };
        let (sources, destinations) = (map("source"), map("destination"));
        let vector = &values["attention"];
        attended(&sources, sources.rows, &|to, from| {
            (0..4)
                .map(|it| vector.at(0, it) * leaky(destinations.at(to, it) + sources.at(from, it)))
                .sum()
        })
    };
    check(
        Norm::None,
        5,
        |g, edges, x| layer(edges).build(g, x),
        formula,
    );
}
