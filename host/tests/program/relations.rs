//! R-GCN over 3 types of vertices and 5 types of edges, next to its formula in double.

use super::reference::{Dense, Values, assert_is};
use super::setup::numbers;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Csr;
use halfgnn::nn::{Norm, Propagation};
use halfgnn::program::layers::{Decomposition, Relation, Rgcn};
use halfgnn::program::passes::fuse::Fuse;
use halfgnn::program::passes::{Pass, Recompute, Reorder, apply};
use halfgnn::program::{Builder, Program, Runner, Value, differentiate};
use halfgnn::tensor::Precision;
use std::sync::Arc;

/// Vertices of each type.
const TYPES: [(&str, usize); 3] = [("paper", 9), ("author", 6), ("venue", 4)];

/// Name, source type and destination type of each edge type. Two join the same types.
const RELATIONS: [(&str, usize, usize); 5] = [
    ("writes", 1, 0),
    ("reviews", 1, 0),
    ("cites", 0, 0),
    ("publishes", 0, 2),
    ("knows", 1, 1),
];

/// Edges of a type as (destination, source): some vertices have none.
fn edges(relation: usize) -> Vec<(u32, u32)> {
    let (_, source, destination) = RELATIONS[relation];
    let (rows, columns) = (TYPES[destination].1, TYPES[source].1);
    let chosen = numbers(relation as u64 + 40, rows * columns);
    let places =
        (0..rows).flat_map(|row| (0..columns).map(move |column| (row as u32, column as u32)));
    let chosen = places
        .zip(chosen)
        .filter(|((row, _), number)| *number > 0.2 && *row != 1);
    chosen.map(|(edge, _)| edge).collect()
}

/// Two layers of a decomposition; the output is that of papers.
fn network(precision: Precision, decomposition: Decomposition) -> (Program, Vec<Value>) {
    let mut g = Builder::new(precision);
    let types = TYPES.map(|(name, rows)| g.vertices(name, rows));
    let relations: Vec<Relation> = RELATIONS
        .iter()
        .map(|&(name, source, destination)| Relation {
            name: name.into(),
            edges: g.edges(name, types[source], types[destination], Norm::Right),
            source,
            destination,
        })
        .collect();
    let mut x: Vec<Value> = TYPES
        .iter()
        .zip(types)
        .map(|((name, _), vertices)| g.input(name, vertices, 6))
        .collect();
    for (number, outputs) in [8, 4].into_iter().enumerate() {
        let layer = Rgcn {
            relations: relations.clone(),
            decomposition,
            outputs,
        };
        x = g.layer(number as u32, |g| {
            let y = layer.build(g, &x);
            match number {
                0 => y.into_iter().map(|y| g.relu(y)).collect(),
                _ => y,
            }
        });
    }
    (g.finish(x[0]).expect("operands fit"), x)
}

/// The same in double.
fn formula(values: &Values, decomposition: Decomposition) -> Vec<Dense> {
    let mut x: Vec<Dense> = TYPES
        .iter()
        .map(|(name, _)| values[*name].clone())
        .collect();
    for number in 0..2 {
        let of = |name: &str| &values[&format!("layers.{number}.{name}")];
        let weight = |relation: &str| match decomposition {
            Decomposition::None => of(&format!("weight.{relation}")).clone(),
            Decomposition::Basis(bases) => {
                let term = |basis: usize| {
                    let share = of(&format!("comp.{relation}.{basis}")).values[0];
                    of(&format!("basis.{basis}")).map(|it| it * share)
                };
                (1..bases).fold(term(0), |sum, basis| sum.plus(1.0, &term(basis)))
            }
            Decomposition::BlockDiagonal(blocks) => {
                let below = of(&format!("weight.{relation}"));
                let (height, width) = (below.rows / blocks, below.columns);
                let places =
                    (0..below.rows).flat_map(|row| (0..width * blocks).map(move |it| (row, it)));
                let at = |(row, column): (usize, usize)| match row / height == column / width {
                    true => below.at(row, column % width),
                    false => 0.0,
                };
                Dense::new(
                    below.rows,
                    width * blocks,
                    places.map(at).collect::<Vec<_>>(),
                )
            }
        };
        let mut next: Vec<Dense> = x.iter().map(|x| x.product(of("root"))).collect();
        for (relation, (name, source, destination)) in RELATIONS.into_iter().enumerate() {
            let rows = TYPES[destination].1;
            let message = x[source]
                .product(&weight(name))
                .aggregated(rows, &edges(relation), true);
            next[destination] = next[destination].plus(1.0, &message);
        }
        x = match number {
            0 => next.iter().map(|y| y.map(|it| it.max(0.0))).collect(),
            _ => next,
        };
    }
    x
}

fn adjacencies(backend: &Cpu) -> Vec<Arc<Propagation<Cpu>>> {
    let adjacency = |relation: usize| {
        let (_, source, destination) = RELATIONS[relation];
        let shape = (TYPES[destination].1, TYPES[source].1);
        let (rows, columns): (Vec<u32>, Vec<u32>) = edges(relation).into_iter().unzip();
        let csr = Csr::rectangular_from_edges(shape, &rows, &columns).expect("ids are in range");
        Arc::new(Propagation::bipartite(backend, &csr, Norm::Right).expect("memory"))
    };
    (0..RELATIONS.len()).map(adjacency).collect()
}

#[test]
fn rgcn_is_its_formula_forward_and_backward() {
    let backend = Cpu::new();
    for decomposition in [
        Decomposition::None,
        Decomposition::Basis(3),
        Decomposition::BlockDiagonal(2),
    ] {
        let mut outputs = Vec::new();
        let mut runners = [0, 1, 2].map(|passes| {
            let (mut program, all) = network(Precision::Float, decomposition);
            outputs = all;
            if passes > 0 {
                apply(&mut program, &[&Reorder], |_, _| ()).expect("a forward list");
            }
            differentiate(&mut program).expect("parameters");
            let behind: [&dyn Pass; 2] = [&Fuse, &Recompute];
            apply(&mut program, &behind[..passes], |_, _| ()).expect("both lists");
            Runner::new(&backend, program, adjacencies(&backend), 3).expect("memory")
        });
        let formula = |values: &Values| formula(values, decomposition);
        assert_is(&mut runners, &outputs[..1], &formula);
    }
}

#[test]
fn rgcn_in_half_is_near_what_it_is_in_float() {
    let backend = Cpu::new();
    for decomposition in [Decomposition::Basis(2), Decomposition::BlockDiagonal(2)] {
        let results = [Precision::Half, Precision::Float].map(|precision| {
            let (mut program, outputs) = network(precision, decomposition);
            differentiate(&mut program).expect("parameters");
            apply(&mut program, &[&Fuse], |_, _| ()).expect("both lists");
            let mut runner =
                Runner::new(&backend, program, adjacencies(&backend), 3).expect("memory");
            for (number, input) in runner.program().inputs().into_iter().enumerate() {
                let len = runner.read(input).expect("values").len();
                runner
                    .write(input, &numbers(number as u64, len))
                    .expect("memory");
            }
            runner.forward().expect("a forward pass");
            let logits = runner.read(outputs[0]).expect("logits");
            runner
                .write_seed(&numbers(5, logits.len()))
                .expect("memory");
            runner.backward().expect("a backward pass");
            let root = runner
                .program()
                .named("layers.0.root")
                .expect("a parameter");
            (logits, runner.gradient(root).expect("a gradient"))
        });
        let [(half, half_gradient), (float, float_gradient)] = results;
        for (half, float) in [(half, float), (half_gradient, float_gradient)] {
            let largest = float.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
            let near = |(half, float): (&f32, &f32)| (half - float).abs() <= 5e-3 * largest;
            assert!(half.iter().zip(&float).all(near), "{decomposition:?}");
            assert_ne!(half, float, "{decomposition:?}: half rounds");
        }
    }
}

#[test]
fn an_adjacency_of_other_sizes_is_refused() {
    let backend = Cpu::new();
    let (program, _) = network(Precision::Float, Decomposition::None);
    let mut edges = adjacencies(&backend);
    edges.swap(0, 3);
    let refused = Runner::new(&backend, program, edges, 3)
        .expect_err("another adjacency")
        .to_string();
    assert_eq!(
        refused,
        "Program: `writes` is declared from 6 to 9 vertices, and given from 9 to 4"
    );
}
