//! The plan is what is allocated, to the byte.

use super::setup::{compiled, graph, hidden, last, numbers, program, runner};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::nn::{Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, HiddenNorm, Norm};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{
    Gat, GatV2, GatedGraphLayer, Gcn, Gin, Layer, LeLayer, Sage, Transformer, TransformerLayer,
};
use halfgnn::program::passes::{Pass, Quantize, Store};
use halfgnn::program::{Builder, Edges, Plan, Program, Value};
use halfgnn::tensor::Precision;

fn of_kind(backend: &Cpu, kind: MemoryKind) -> u64 {
    backend.memory().current[kind as usize]
}

fn sage(g: &mut Builder, edges: Edges, mut x: Value) -> Value {
    for number in 0..4 {
        x = g.layer(number, |g| {
            let dropped = g.dropout(x, 0.5);
            let y = Sage { edges, outputs: 24 }.build(g, dropped);
            hidden(g, y)
        });
    }
    x
}

fn gin(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let layer = Gin {
        edges,
        hidden: 12,
        outputs: 5,
        options: GinConfig {
            learn_epsilon: true,
            ..GinConfig::default()
        },
    };
    g.layer(0, |g| layer.build(g, x))
}

fn gcn(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let y = g.layer(0, |g| {
        // 41 halves take the place of 48.
        let y = Gcn { edges, outputs: 41 }.build(g, x);
        hidden(g, y)
    });
    g.layer(1, |g| {
        let y = Gcn { edges, outputs: 3 }.build(g, y);
        last(g, y)
    })
}

type Formula = fn(&mut Builder, Edges, Value) -> Value;

/// Both attentions, of heads that are padded and of averaged ones.
fn attention(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let y = g.layer(0, |g| {
        let layer = Gat {
            edges,
            outputs: 9,
            averaged: false,
            options: GatConfig {
                heads: 3,
                ..GatConfig::default()
            },
        };
        let y = layer.build(g, x);
        hidden(g, y)
    });
    g.layer(1, |g| {
        let layer = GatV2 {
            edges,
            outputs: 5,
            averaged: true,
            options: GatV2Config {
                heads: 2,
                ..GatV2Config::default()
            },
        };
        layer.build(g, y)
    })
}

/// A norm of each kind behind the other.
fn norms(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let mut y = g.layer(0, |g| Gcn { edges, outputs: 11 }.build(g, x));
    for (number, norm) in HiddenNorm::ALL.into_iter().enumerate() {
        y = g.hidden_norm(&format!("norm.{number}"), norm, y);
        y = g.relu(y);
    }
    y
}

const FORMULAS: [(&str, Norm, Formula); 8] = [
    ("attention", Norm::None, attention),
    ("norms", Norm::Both, norms),
    ("sage", Norm::Right, sage),
    ("gin", Norm::None, gin),
    ("gcn", Norm::Both, gcn),
    ("transformer", Norm::None, transformer),
    ("gates", Norm::None, gates),
    ("leconv", Norm::None, leconv),
];

/// Attention by dot products, whose sums of the softmax are kept between the passes, and a gate.
fn transformer(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let layer = |outputs, averaged, beta| TransformerLayer {
        edges,
        outputs,
        averaged,
        options: Transformer {
            heads: 3,
            beta,
            ..Transformer::default()
        },
    };
    let y = g.layer(0, |g| {
        let y = layer(9, false, true).build(g, x);
        hidden(g, y)
    });
    g.layer(1, |g| {
        let y = layer(5, true, false).build(g, y);
        last(g, y)
    })
}

fn gates(g: &mut Builder, edges: Edges, x: Value) -> Value {
    let layer = GatedGraphLayer {
        edges,
        outputs: 11,
        steps: 2,
    };
    layer.build(g, x)
}

/// Degrees are sums of ones.
fn leconv(g: &mut Builder, edges: Edges, x: Value) -> Value {
    LeLayer { edges, outputs: 3 }.build(g, x)
}

/// With quantized messages, where there are some.
fn quantized(mut program: Program) -> Option<Program> {
    let format = CodeFormat::Int8;
    Quantize { format }.run(&mut program).ok().map(|()| program)
}

/// With stored activations, where it is in 16 bits.
fn stored(mut program: Program) -> Option<Program> {
    Store.run(&mut program).ok().map(|()| program)
}

fn step(backend: &Cpu, program: Program, norm: Norm) -> Plan {
    let mut runner = runner(backend, program, norm);
    let output = runner.program().output().expect("an output");
    runner.forward().expect("a forward pass");
    let logits = runner.read(output).expect("logits");
    runner
        .write_seed(&numbers(1, logits.len()))
        .expect("memory");
    runner.backward().expect("a backward pass");
    let plan = runner.plan().clone();
    let kinds = [
        (MemoryKind::Activations, plan.activations()),
        (MemoryKind::Weights, plan.weights()),
        (MemoryKind::Features, plan.inputs()),
    ];
    for (kind, planned) in kinds {
        let report = backend.memory();
        assert_eq!(report.current[kind as usize], planned, "{kind} now");
        assert_eq!(
            report.peak[kind as usize], planned,
            "{kind} at the peak of a step"
        );
    }
    plan
}

#[test]
fn the_plan_is_what_a_step_allocates_to_the_byte() {
    for precision in [Precision::Half, Precision::BFloat16, Precision::Float] {
        for (name, norm, build) in FORMULAS {
            for recompute in [false, true] {
                let backend = Cpu::new();
                let program = program(precision, (graph().vertices(), 70), norm, build);
                let program = compiled(program, recompute);
                if let Some(quantized) = quantized(program.clone()) {
                    step(&Cpu::new(), quantized, norm);
                }
                if let Some(stored) = stored(program.clone()) {
                    step(&Cpu::new(), stored.clone(), norm);
                    let both = quantized(stored);
                    both.map(|both| step(&Cpu::new(), both, norm));
                }
                let plan = step(&backend, program, norm);
                assert!(plan.peak() <= plan.activations(), "{name}");
                assert!(plan.peak() > 0, "{name}");
                assert_eq!(
                    of_kind(&backend, MemoryKind::Activations),
                    0,
                    "{name}: freed"
                );
            }
        }
    }
}

#[test]
fn values_that_are_not_alive_together_share_memory() {
    // A chain without gradients needs two matrices, however long it is: the one that is read and the one that is
    // written.
    let chain = |steps| {
        let program = program(Precision::Float, (50, 16), Norm::None, |g, edges, x| {
            let mut h = x;
            for _ in 0..steps {
                h = g.aggregate(edges, h);
            }
            h
        });
        Plan::new(&program)
    };
    assert_eq!(chain(2).activations(), 2 * 50 * 16 * 4);
    assert_eq!(chain(9).activations(), chain(2).activations());
    assert_eq!(chain(9).peak(), chain(9).activations());
}

#[test]
fn an_element_wise_operator_writes_over_what_is_not_read_again() {
    let program = program(Precision::Float, (50, 16), Norm::None, |g, edges, x| {
        let y = g.aggregate(edges, x);
        let y = hidden(g, y);
        g.dropout(y, 0.5)
    });
    assert_eq!(Plan::new(&program).activations(), 50 * 16 * 4);
}

#[test]
fn a_kept_value_is_readable_behind_a_step_and_costs_its_memory() {
    let backend = Cpu::new();
    let build = |keep: bool| {
        let mut hidden_value = None;
        let program = program(
            Precision::Float,
            (graph().vertices(), 70),
            Norm::Both,
            |g, edges, x| {
                let y = g.layer(0, |g| {
                    let y = Gcn { edges, outputs: 41 }.build(g, x);
                    hidden(g, y)
                });
                hidden_value = Some(y);
                g.layer(1, |g| Gcn { edges, outputs: 3 }.build(g, y))
            },
        );
        let (mut program, value) = (compiled(program, false), hidden_value.expect("a value"));
        if keep {
            program.keep(value);
        }
        (program, value)
    };
    let ((plain, value), (kept, _)) = (build(false), build(true));
    assert!(Plan::new(&kept).activations() >= Plan::new(&plain).activations());
    for (program, is_kept) in [(plain, false), (kept, true)] {
        let mut runner = runner(&backend, program, Norm::Both);
        runner.forward().expect("a forward pass");
        let between = runner.read(value).expect("the backward pass reads it");
        runner
            .write_seed(&vec![1.0; graph().vertices() * 3])
            .expect("memory");
        runner.backward().expect("a backward pass");
        match is_kept {
            true => assert_eq!(runner.read(value).expect("kept"), between),
            false => {
                let refused = runner
                    .read(value)
                    .expect_err("its memory is another's")
                    .to_string();
                assert!(refused.contains("is not kept"), "{refused}");
            }
        }
    }
}
