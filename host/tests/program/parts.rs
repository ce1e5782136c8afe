//! Programs of the ranks of a graph: their memory to the byte, and layers that sum several times next to one rank.

use super::ranks::{both_ways, by_ranks};
use super::setup::{compiled, graph, hidden, last, numbers, program, runner};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::distributed::{Gather, Group, Shard};
use halfgnn::graph::Graph;
use halfgnn::nn::{Appnp as AppnpConfig, Gin as GinConfig, Norm, PartFactors, Propagation};
use halfgnn::nn::{HiddenNorm, Statistics};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{
    Appnp, Arma, ArmaLayer, Cheb, ChebLayer, GatedGraphLayer, Gcn, Gin, Layer, MixHop, MixHopLayer,
    Sage, SgLayer, Ssg, SsgLayer, TagLayer,
};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Exchange, Mutual, Pass, Quantize, Recompute, Reorder, apply};
use halfgnn::program::{Builder, Edges, Program, Runner, Value, differentiate};
use halfgnn::tensor::Precision;
use std::sync::Arc;

const FEATURES: usize = 10;

type Formula = fn(&mut Builder, Edges, Value) -> Value;

/// A program of what a rank has, with all passes.
fn of_part(
    shard: &Shard,
    (precision, norm, build): (Precision, Norm, Formula),
    (messages, recompute): (Option<CodeFormat>, bool),
) -> Program {
    let mut g = Builder::new(precision);
    let sources = g.vertices("vertices", shard.part.vertices().len());
    let own = g.vertices("own vertices", shard.part.own().len());
    let edges = g.edges_of_rank("part", sources, own, norm);
    if shard.mutual {
        g.edges_go_both_ways(edges);
    }
    let x = g.input("x", sources, FEATURES);
    let y = build(&mut g, edges, x);
    let mut program = g.finish(y).expect("operands fit");
    let exchange = Exchange {
        of_messages: messages.is_some(),
    };
    apply(&mut program, &[&Reorder, &exchange], |_, _| ()).expect("a forward list");
    differentiate(&mut program).expect("parameters");
    let quantize = messages.map(|format| Quantize { format });
    let mut passes: Vec<&dyn Pass> = Vec::new();
    passes.extend(quantize.as_ref().map(|_| &Mutual as &dyn Pass));
    passes.push(&Fuse);
    if recompute {
        passes.push(&Recompute);
    }
    passes.extend(quantize.as_ref().map(|pass| pass as &dyn Pass));
    apply(&mut program, &passes, |_, _| ()).expect("both lists");
    program
}

fn runner_of(
    backend: &Cpu,
    (graph, norm): (&Graph, Norm),
    (shard, group): (&Shard, &Group),
    program: Program,
) -> Runner {
    let factors = PartFactors::<f32>::new(graph, None, norm).expect("degrees");
    let edges = Propagation::of_shard(backend, &factors, (shard, group)).expect("memory");
    Runner::new(backend, program, vec![Arc::new(edges)], 7).expect("the part fits")
}

/// Rows of these vertices of the numbers of all.
fn rows(values: &[f32], columns: usize, vertices: &[u32]) -> Vec<f32> {
    let rows = vertices.iter().map(|&vertex| vertex as usize * columns);
    rows.flat_map(|row| values[row..row + columns].to_vec())
        .collect()
}

/// Each layer but the first reads rows that are extended.
fn two_layers(
    g: &mut Builder,
    edges: Edges,
    x: Value,
    layer: impl Fn(&mut Builder, Value, usize) -> Value,
) -> Value {
    let y = g.layer(0, |g| {
        let x = g.dropout(x, 0.3);
        let y = layer(g, x, 12);
        hidden(g, y)
    });
    g.layer(1, |g| {
        let own = g.dropout(y, 0.3);
        let all = g.all_rows(edges, own);
        let y = layer(g, all, 5);
        last(g, y)
    })
}

fn gcn_with_norms(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let y = Gcn { edges, outputs }.build(g, x);
        let y = g.hidden_norm("batch", HiddenNorm::Batch, y);
        g.hidden_norm("layer", HiddenNorm::Layer, y)
    })
}

fn sage(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        Sage { edges, outputs }.build(g, x)
    })
}

fn gin(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = Gin {
            edges,
            hidden: 9,
            outputs,
            options: GinConfig {
                learn_epsilon: outputs == 5,
                statistics: Statistics::Running,
                ..GinConfig::default()
            },
        };
        layer.build(g, x)
    })
}

fn tag(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = TagLayer {
            edges,
            outputs,
            hops: 3,
        };
        layer.build(g, x)
    })
}

/// A step whose memory is the plan's.
fn step(backend: &Cpu, mut runner: Runner, values: &[f32]) {
    let [x, output] = [runner.program().named("x"), runner.program().output()];
    let (x, output) = (x.expect("an input"), output.expect("an output"));
    for number in 0..2 {
        runner.set_step(number).expect("a step");
        runner.write(x, values).expect("memory");
        runner.forward().expect("a forward pass");
        let logits = runner.read(output).expect("logits");
        runner
            .write_seed(&numbers(1, logits.len()))
            .expect("memory");
        runner.backward().expect("a backward pass");
    }
    let (plan, report) = (runner.plan(), backend.memory());
    let kinds = [
        (MemoryKind::Activations, plan.activations()),
        (MemoryKind::Weights, plan.weights()),
        (MemoryKind::Features, plan.inputs()),
    ];
    for (kind, planned) in kinds {
        assert_eq!(report.current[kind as usize], planned, "{kind} now");
        assert_eq!(report.peak[kind as usize], planned, "{kind} at the peak");
    }
}

#[test]
fn the_plan_of_a_rank_is_what_a_step_allocates_to_the_byte() {
    let formulas: [(Norm, Formula); 4] = [
        (Norm::Both, gcn_with_norms),
        (Norm::Right, sage),
        (Norm::Right, gin),
        (Norm::Both, tag),
    ];
    for graph in [graph(), both_ways()] {
        let all = numbers(3, graph.vertices() * FEATURES);
        for gather in [Gather::Halo, Gather::Whole] {
            for (norm, build) in formulas {
                let cases = [
                    (Precision::Float, None, false),
                    (Precision::Half, None, true),
                    (Precision::Half, Some(CodeFormat::Int8), false),
                    (Precision::BFloat16, Some(CodeFormat::E4m3), true),
                ];
                for (precision, messages, recompute) in cases {
                    by_ranks((&graph, 3, gather), |shard, group| {
                        let of = (precision, norm, build);
                        let program = of_part(shard, of, (messages, recompute));
                        let exchanges = program.listing().contains("exchanged over part");
                        assert_eq!(exchanges, shard.mutual && messages.is_some());
                        let backend = Cpu::new();
                        let of = (shard, group);
                        let runner = runner_of(&backend, (&graph, norm), of, program);
                        step(
                            &backend,
                            runner,
                            &rows(&all, FEATURES, shard.part.vertices()),
                        );
                    });
                }
            }
        }
    }
}

fn appnp(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let AppnpConfig { alpha, .. } = AppnpConfig::default();
        let weight = g.weight("weight", (g.columns(x), outputs));
        let predictions = g.matmul(x, weight);
        let layer = Appnp {
            edges,
            initial: None,
            steps: 3,
            alpha,
            dropout: 0.2,
        };
        layer.build(g, predictions)
    })
}

fn sg(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = SgLayer {
            edges,
            outputs,
            hops: 3,
        };
        layer.build(g, x)
    })
}

fn ssg(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = SsgLayer {
            edges,
            outputs,
            options: Ssg {
                hops: 3,
                ..Ssg::default()
            },
        };
        layer.build(g, x)
    })
}

fn cheb(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = ChebLayer {
            edges,
            outputs,
            options: Cheb {
                terms: 4,
                lambda_max: 1.6,
                ..Cheb::default()
            },
        };
        layer.build(g, x)
    })
}

fn arma(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = ArmaLayer {
            edges,
            outputs,
            is_last: outputs == 5,
            options: Arma {
                stacks: 2,
                steps: 3,
                root_dropout: 0.2,
                ..Arma::default()
            },
        };
        layer.build(g, x)
    })
}

fn mixhop(g: &mut Builder, edges: Edges, x: Value) -> Value {
    two_layers(g, edges, x, |g, x, outputs| {
        let layer = MixHopLayer {
            edges,
            outputs,
            averaged: outputs == 5,
            options: MixHop {
                powers: vec![0, 1, 3],
                ..MixHop::default()
            },
        };
        layer.build(g, x)
    })
}

fn gated(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let y = g.layer(0, |g| {
        let layer = GatedGraphLayer {
            edges,
            outputs: 11,
            steps: 3,
        };
        layer.build(g, x)
    });
    g.layer(1, |g| {
        let all = g.all_rows(edges, y);
        let layer = GatedGraphLayer {
            edges,
            outputs: 7,
            steps: 2,
        };
        layer.build(g, all)
    })
}

/// Output rows, and gradients of parameters by name.
type Results = (Vec<f32>, Vec<(String, Vec<f32>)>);

/// A step. `seed` is of as many rows as the output has.
fn results(mut runner: Runner, x: &[f32], seed: impl Fn(usize) -> Vec<f32>) -> Results {
    runner.set_step(2).expect("a step");
    let input = runner.program().named("x").expect("an input");
    let output = runner.program().output().expect("an output");
    let columns = runner.program().description(output).shape.columns;
    runner.write(input, x).expect("memory");
    runner.forward().expect("a forward pass");
    let logits = runner.read(output).expect("logits");
    runner.write_seed(&seed(columns)).expect("memory");
    runner.backward().expect("a backward pass");
    let parameters = runner.program().parameters().into_iter();
    let gradients = parameters.map(|parameter| {
        let name = runner.program().description(parameter).name.clone();
        (name, runner.gradient(parameter).expect("a gradient"))
    });
    let gradients = gradients.collect();
    (logits, gradients)
}

fn assert_near(what: &str, expected: &[f32], found: &[f32]) {
    assert_eq!(expected.len(), found.len(), "{what}");
    let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
    assert!(largest > 0.0, "{what}: all zeros");
    for (expected, found) in expected.iter().zip(found) {
        let off = (expected - found).abs();
        assert!(off <= 2e-5 * largest, "{what}: {expected} and {found}");
    }
}

#[test]
fn layers_of_several_hops_compute_on_ranks_what_they_compute_on_one() {
    let formulas: [(&str, Norm, Formula); 10] = [
        ("tag", Norm::Both, tag),
        ("sg", Norm::Both, sg),
        ("ssg", Norm::Both, ssg),
        ("cheb", Norm::Both, cheb),
        ("cheb of random walks", Norm::Right, cheb),
        ("arma", Norm::Both, arma),
        ("mixhop", Norm::Both, mixhop),
        ("gatedgraph", Norm::None, gated),
        ("appnp", Norm::Both, appnp),
        ("norms", Norm::Both, gcn_with_norms),
    ];
    let graph = graph();
    let vertices = graph.vertices();
    let (values, seeds) = (numbers(3, vertices * FEATURES), |columns| {
        numbers(4, vertices * columns)
    });
    for (name, norm, build) in formulas {
        let of = program(Precision::Float, (vertices, FEATURES), norm, build);
        let one = runner(&Cpu::new(), compiled(of, false), norm);
        let (logits, gradients) = results(one, &values, seeds);
        let columns = logits.len() / vertices;
        for (ranks, gather) in [(2, Gather::Whole), (3, Gather::Halo)] {
            let what = format!("{name} of {ranks} ranks");
            let all = by_ranks((&graph, ranks, gather), |shard, group| {
                let of = (Precision::Float, norm, build);
                let program = of_part(shard, of, (None, false));
                let of = (shard, group);
                let runner = runner_of(&Cpu::new(), (&graph, norm), of, program);
                let x = rows(&values, FEATURES, shard.part.vertices());
                let own = shard.part.own().to_vec();
                let found = results(runner, &x, |columns| rows(&seeds(columns), columns, &own));
                (own, found)
            });
            for (own, found) in &all {
                assert_near(&what, &rows(&logits, columns, own), &found.0);
            }
            // Gradients of parameters are sums over the ranks.
            for (number, (name, expected)) in gradients.iter().enumerate() {
                let mut sum = vec![0.0; expected.len()];
                for (_, (_, gradients)) in &all {
                    assert_eq!(&gradients[number].0, name, "{what}");
                    let pairs = sum.iter_mut().zip(&gradients[number].1);
                    pairs.for_each(|(sum, term)| *sum += term);
                }
                assert_near(&format!("{what}: {name}"), expected, &sum);
            }
        }
    }
}
