//! Graphs, numbers and programs that tests share.

use halfgnn::backend::Backend;
use halfgnn::graph::Graph;
use halfgnn::nn::{Norm, Propagation};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Pass, Recompute, Reorder, apply};
use halfgnn::program::{Builder, Edges, Program, Runner, Value, differentiate};
use halfgnn::tensor::Precision;
use std::sync::Arc;

/// Numbers in [−1, 1) that are a function of a seed alone.
pub fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// A graph of 23 vertices that is not symmetric, with a hub, a vertex without edges and self-loops.
pub fn graph() -> Graph {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for vertex in 0..22_u32 {
        for step in [0, 1, 5] {
            rows.push(vertex);
            columns.push((vertex + step * (vertex % 3 + 1)) % 22);
        }
        rows.push(3);
        columns.push(vertex);
    }
    let mut edges: Vec<_> = rows.into_iter().zip(columns).collect();
    edges.sort_unstable();
    edges.dedup();
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
    Graph::from_edges(23, &rows, &columns).expect("ids are in range")
}

/// A program over one graph, from `features` columns to what `build` makes of them.
pub fn program(
    precision: Precision,
    (rows, features): (usize, usize),
    norm: Norm,
    build: impl FnOnce(&mut Builder, Edges, Value) -> Value,
) -> Program {
    let mut g = Builder::new(precision);
    let vertices = g.vertices("vertices", rows);
    let edges = g.edges("edges", vertices, vertices, norm);
    let x = g.input("x", vertices, features);
    let output = build(&mut g, edges, x);
    g.finish(output).expect("operands fit")
}

/// Has all passes made of a program for training.
pub fn compiled(mut program: Program, recompute: bool) -> Program {
    apply(&mut program, &[&Reorder], |_, _| ()).expect("a forward list");
    differentiate(&mut program).expect("parameters");
    let passes: &[&dyn Pass] = match recompute {
        true => &[&Fuse, &Recompute],
        false => &[&Fuse],
    };
    apply(&mut program, passes, |_, _| ()).expect("both lists");
    program
}

/// A runner of a program over [`graph`].
pub fn runner<B: Backend>(backend: &B, program: Program, norm: Norm) -> Runner {
    let edges = Propagation::new(backend, &graph(), norm).expect("memory");
    Runner::new(backend, program, vec![Arc::new(edges)], 7).expect("the graph fits")
}

/// Bias, ReLU and the dropout of the next layer's input are the caller's; here are the first two.
pub fn hidden(g: &mut Builder, y: Value) -> Value {
    let bias = g.bias("bias", g.columns(y));
    let y = g.add_bias(y, bias);
    g.relu(y)
}

/// A bias alone, as of a last layer.
pub fn last(g: &mut Builder, y: Value) -> Value {
    let bias = g.bias("bias", g.columns(y));
    g.add_bias(y, bias)
}
