//! Jumping knowledge and readout: next to the network, and next to formulas in double.

use super::network::{SEED, SHAPES, assert_near, both, of_network, of_program, shaped};
use super::reference::{Dense, Values, assert_is};
use super::setup::{compiled, graph, hidden, last, program};
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::GraphIndex;
use halfgnn::nn::{HiddenNorm, Jumping, ModelConfig, Norm, Readout};
use halfgnn::program::layers::{Gcn, Layer};
use halfgnn::program::{Builder, Edges, Runner, Value, differentiate};
use halfgnn::tensor::{Element, Precision};
use std::sync::Arc;

/// The outputs of all layers, each with the dropout of what reads it.
fn hidden_layers(g: &mut Builder, config: &ModelConfig, edges: Edges, x: Value) -> Vec<Value> {
    let mut outputs = Vec::new();
    let mut x = g.layer(0, |g| g.dropout(x, config.dropout));
    for number in 0..config.layers as u32 {
        let outputs_of = Gcn {
            edges,
            outputs: config.hidden,
        };
        x = g.layer(number, |g| {
            let y = outputs_of.build(g, x);
            hidden(g, y)
        });
        x = g.layer(number + 1, |g| g.dropout(x, config.dropout));
        outputs.push(x);
    }
    outputs
}

#[test]
fn the_largest_of_layers_has_the_bits_of_the_network() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for [features, width, classes] in SHAPES {
            for dropout in [0.0, 0.4] {
                let mut config = shaped(ModelConfig::gcn(features, classes), 3, width, dropout);
                config.jumping = Some(Jumping::Max);
                both::<_, E>(&backend, "largest", &config, Norm::Both, |g, edges, x| {
                    let outputs = hidden_layers(g, &config, edges, x);
                    let largest = g.largest(&outputs);
                    g.layer(4, |g| {
                        let weight = g.weight("weight", (width, classes));
                        let y = g.matmul(largest, weight);
                        last(g, y)
                    })
                });
            }
        }
    }
    of::<f16>();
    of::<bf16>();
    of::<f32>();
}

/// Two of the products are one product of two pairs, rounded once, where the network rounds each.
#[test]
fn layers_side_by_side_are_the_network_but_for_roundings() {
    fn of<E: Element>(share: f32) {
        let backend = Cpu::new();
        let mut config = shaped(ModelConfig::gcn(12, 5), 3, 9, 0.0);
        config.jumping = Some(Jumping::Cat);
        let expected = of_network::<_, E>(&backend, &config, Norm::Both);
        let size = (graph().vertices(), config.features);
        let program = program(E::PRECISION, size, Norm::Both, |g, edges, x| {
            let outputs = hidden_layers(g, &config, edges, x);
            g.layer(3, |g| {
                let y = g.linear_of_all("jump", &outputs, 5);
                last(g, y)
            })
        });
        let found = of_program(&backend, compiled(program, false), Norm::Both, &expected.1);
        assert_near("side by side", &expected, &found, share);
    }
    of::<f32>(1e-6);
    of::<f16>(5e-3);
}

/// Where the vertices of three graphs start.
const STARTS: [u32; 4] = [0, 5, 6, 11];

#[test]
fn readouts_are_their_formulas() {
    let backend = Cpu::new();
    for readout in [Readout::Sum, Readout::Mean, Readout::Max] {
        let index = GraphIndex::new(STARTS.to_vec()).expect("three graphs");
        let norm = match readout {
            Readout::Mean => Norm::Right,
            Readout::Sum | Readout::Max => Norm::None,
        };
        let new = |passes: bool| {
            let mut g = Builder::new(Precision::Float);
            let (vertices, graphs) = (g.vertices("vertices", 11), g.vertices("graphs", 3));
            let pools = g.edges("pools", vertices, graphs, norm);
            let x = g.input("x", vertices, 4);
            let first = g.weight("first", (4, 6));
            let second = g.weight("second", (6, 2));
            let y = g.matmul(x, first);
            let y = g.pool(readout, pools, y);
            let y = g.matmul(y, second);
            let mut program = g.finish(y).expect("operands fit");
            match passes {
                true => program = compiled(program, false),
                false => differentiate(&mut program).expect("parameters"),
            }
            let pools = readout.propagation(&backend, &index).expect("memory");
            let runner = Runner::new(&backend, program, vec![Arc::new(pools)], SEED);
            (runner.expect("memory"), y)
        };
        let (plain, y) = new(false);
        let mut runners = [plain, new(true).0];
        let formula = |values: &Values| {
            let y = values["x"].product(&values["first"]);
            let mut pooled = Vec::new();
            for ends in STARTS.windows(2) {
                let rows = ends[0] as usize..ends[1] as usize;
                for column in 0..y.columns {
                    let of = rows.clone().map(|row| y.at(row, column));
                    pooled.push(match readout {
                        Readout::Sum => of.sum(),
                        Readout::Mean => of.sum::<f64>() / rows.len() as f64,
                        Readout::Max => of.fold(f64::NEG_INFINITY, f64::max),
                    });
                }
            }
            vec![Dense::new(3, y.columns, pooled).product(&values["second"])]
        };
        assert_is(&mut runners, &[y], &formula);
    }
}

#[test]
fn the_largest_of_graphs_needs_an_adjacency_of_graphs() {
    let backend = Cpu::new();
    let size = (graph().vertices(), 4);
    let program = program(Precision::Float, size, Norm::None, |g, edges, x| {
        g.pool(Readout::Max, edges, x)
    });
    let mut runner = super::setup::runner(&backend, program, Norm::None);
    let refused = runner.forward().expect_err("no graphs").to_string();
    assert_eq!(
        refused,
        "Program: what is taken of the rows of each graph is taken by an adjacency of Readout::propagation"
    );
}

/// A norm of all rows as one graph is another one.
#[test]
fn norms_of_graphs_are_named_with_their_adjacency() {
    let mut g = Builder::new(Precision::Half);
    let (vertices, graphs) = (g.vertices("vertices", 11), g.vertices("graphs", 3));
    let pools = g.edges("members", vertices, graphs, Norm::None);
    let x = g.input("x", vertices, 4);
    let w = g.weight("w", (4, 4));
    let y = g.matmul(x, w);
    let y = g.hidden_norm_of("norm", HiddenNorm::Graph, Some(pools), y);
    let y = g.pool(Readout::Sum, pools, y);
    let mut program = g.finish(y).expect("operands fit");
    differentiate(&mut program).expect("parameters");
    let listing = program.listing();
    for name in ["graph_norm ", "graph_norm_gradient "] {
        let line = listing.lines().find(|line| line.contains(name));
        let line = line.expect("an operator");
        assert!(line.contains(", graphs of members"), "{line}");
    }
}
