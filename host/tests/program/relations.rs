//! Layers over 3 types of vertices and 5 types of edges, next to their formulas in double.

use super::reference::{Dense, Values, assert_is};
use super::setup::numbers;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Csr;
use halfgnn::nn::{HiddenActivation, Norm, Propagation};
use halfgnn::program::layers::{
    Decomposition, EdgeLayer, GraphConvLayer, HeteroLayer, HgtLayer, Layer, Relation, RgcnLayer,
    Sage, TypeReads, TypedLayer,
};
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

/// A kind of layers over several types.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Rgcn(Decomposition),
    /// GraphSAGE, or GraphConv, for each type of edges.
    Hetero(EdgeLayer),
    /// With two heads.
    Hgt,
}

const HEADS: usize = 2;

impl Kind {
    fn norm(self) -> Norm {
        match self {
            Kind::Rgcn(_) | Kind::Hetero(EdgeLayer::Sage) => Norm::Right,
            Kind::Hetero(_) | Kind::Hgt => Norm::None,
        }
    }

    fn layer(self, reads: TypeReads, outputs: usize) -> Box<dyn TypedLayer> {
        match self {
            Kind::Rgcn(decomposition) => Box::new(RgcnLayer {
                reads,
                decomposition,
                outputs,
            }),
            Kind::Hetero(of) => {
                let layer = |relation: &Relation| -> Box<dyn Layer> {
                    let edges = relation.edges;
                    match of {
                        EdgeLayer::Sage => Box::new(Sage { edges, outputs }),
                        _ => Box::new(GraphConvLayer {
                            edges,
                            outputs,
                            reduction: None,
                        }),
                    }
                };
                Box::new(HeteroLayer {
                    layers: reads.relations.iter().map(layer).collect(),
                    reads,
                    outputs,
                })
            }
            Kind::Hgt => Box::new(HgtLayer {
                reads,
                heads: HEADS,
                outputs,
                activation: HiddenActivation::Tanh,
            }),
        }
    }
}

/// Which types each of two layers writes: papers are the output, and authors and papers lead to them.
const WRITTEN: [[bool; 3]; 2] = [[true, true, false], [true, false, false]];

/// Two layers of a kind; the output is that of papers. Authors have rows that are learnt in the place of features.
fn network(precision: Precision, kind: Kind, widths: [usize; 3]) -> (Program, Value) {
    let mut g = Builder::new(precision);
    let types = TYPES.map(|(name, rows)| g.vertices(name, rows));
    let relations: Vec<Relation> = RELATIONS
        .iter()
        .map(|&(name, source, destination)| Relation {
            name: name.into(),
            edges: g.edges(name, types[source], types[destination], kind.norm()),
            source,
            destination,
        })
        .collect();
    let mut x = vec![None; TYPES.len()];
    x[0] = Some(g.input("paper", types[0], widths[0]));
    x[1] = Some(g.embedding("author", types[1], widths[0]));
    for (number, outputs) in widths.into_iter().skip(1).enumerate() {
        let written = WRITTEN[number].to_vec();
        let leads = |relation: &&Relation| written[relation.destination];
        let reads = TypeReads {
            types: TYPES.map(|(name, _)| name.to_owned()).to_vec(),
            relations: relations.iter().filter(leads).cloned().collect(),
            written: written.clone(),
        };
        let layer = kind.layer(reads, outputs);
        x = g.layer(number as u32, |g| {
            let y = layer.build(g, &x, &x);
            match number {
                0 => y.into_iter().map(|y| y.map(|y| g.relu(y))).collect(),
                _ => y,
            }
        });
    }
    let output = x[0].expect("papers are written");
    (g.finish(output).expect("operands fit"), output)
}

/// The weight of a relation.
fn weight_of(values: &Values, number: usize, relation: &str, of: Decomposition) -> Dense {
    let of_layer = |name: &str| &values[&format!("layers.{number}.{name}")];
    match of {
        Decomposition::None => of_layer(&format!("weight.{relation}")).clone(),
        Decomposition::Basis(bases) => {
            let term = |basis: usize| {
                let share = of_layer(&format!("comp.{relation}.{basis}")).values[0];
                of_layer(&format!("basis.{basis}")).map(|it| it * share)
            };
            (1..bases).fold(term(0), |sum, basis| sum.plus(1.0, &term(basis)))
        }
        Decomposition::BlockDiagonal(blocks) => {
            blocks_along(of_layer(&format!("weight.{relation}")), blocks)
        }
    }
}

/// Blocks that lie one below the other along a diagonal.
fn blocks_along(below: &Dense, blocks: usize) -> Dense {
    let (height, width) = (below.rows / blocks, below.columns);
    let places = (0..below.rows).flat_map(|row| (0..width * blocks).map(move |it| (row, it)));
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

fn linear(values: &Values, name: &str, x: &Dense) -> Dense {
    let (weight, bias) = (
        &values[&format!("{name}.weight")],
        &values[&format!("{name}.bias")],
    );
    let y = x.product(weight);
    let places = y.values.iter().enumerate();
    let moved = places.map(|(at, value)| value + bias.values[at % y.columns]);
    Dense::new(y.rows, y.columns, moved.collect::<Vec<_>>())
}

/// Attention of two heads from keys and values to queries, whose heads are `distance` columns apart.
fn attended([queries, keys, values]: [&Dense; 3], distance: usize, edges: &[(u32, u32)]) -> Dense {
    let columns = values.columns / HEADS;
    let mut y = Dense::new(
        queries.rows,
        values.columns,
        vec![0.0; queries.rows * values.columns],
    );
    for row in 0..queries.rows {
        for head in 0..HEADS {
            let from = edges.iter().filter(|(to, _)| *to as usize == row);
            let score = |from: usize| -> f64 {
                let dot =
                    |at| queries.at(row, head * distance + at) * keys.at(from, head * columns + at);
                (0..columns).map(dot).sum::<f64>() / (columns as f64).sqrt()
            };
            let shares: Vec<(usize, f64)> = from
                .map(|(_, from)| (*from as usize, score(*from as usize).exp()))
                .collect();
            let all: f64 = shares.iter().map(|(_, share)| share).sum();
            for at in head * columns..(head + 1) * columns {
                let sum = shares
                    .iter()
                    .map(|(from, share)| share / all * values.at(*from, at));
                y.values[row * values.columns + at] = sum.sum();
            }
        }
    }
    y
}

/// What a layer of a kind writes of a type.
fn layer_of(values: &Values, kind: Kind, number: usize, x: &[Dense], of: usize) -> Dense {
    let prefix = format!("layers.{number}");
    let at = |name: &str| &values[&format!("{prefix}.{name}")];
    let rows = TYPES[of].1;
    let leading = RELATIONS.into_iter().enumerate();
    let leading: Vec<_> = leading
        .filter(|(_, (_, _, destination))| *destination == of)
        .collect();
    match kind {
        Kind::Rgcn(decomposition) => {
            let root = x[of].product(at("root"));
            leading
                .iter()
                .fold(root, |sum, (relation, (name, source, _))| {
                    let weight = weight_of(values, number, name, decomposition);
                    let message = x[*source].product(&weight);
                    sum.plus(1.0, &message.aggregated(rows, &edges(*relation), true))
                })
        }
        Kind::Hetero(layer) => {
            let terms = leading.iter().map(|(relation, (name, source, _))| {
                let own = x[of].product(at(&format!("{name}.self.weight")));
                let message = x[*source].product(at(&format!("{name}.neighbours.weight")));
                let mean = layer == EdgeLayer::Sage;
                own.plus(1.0, &message.aggregated(rows, &edges(*relation), mean))
            });
            terms
                .reduce(|sum, term| sum.plus(1.0, &term))
                .expect("relations lead to it")
        }
        Kind::Hgt => {
            let name = TYPES[of].0;
            let queries = linear(values, &format!("{prefix}.query.{name}"), &x[of]);
            let distance = queries.columns / HEADS;
            let share = 1.0 / leading.len() as f64;
            let terms = leading.iter().map(|(relation, (name, source, _))| {
                let from = TYPES[*source].0;
                let [keys, messages] =
                    [("key", "attention"), ("value", "message")].map(|(map, matrix)| {
                        let path = format!("{prefix}.{map}.{from}");
                        let mapped = match map {
                            "key" => x[*source].product(&values[&format!("{path}.weight")]),
                            _ => linear(values, &path, &x[*source]),
                        };
                        mapped.product(&blocks_along(at(&format!("{matrix}.{name}")), HEADS))
                    });
                attended([&queries, &keys, &messages], distance, &edges(*relation))
                    .map(|it| it * share)
            });
            let sum = terms
                .reduce(|sum, term| sum.plus(1.0, &term))
                .expect("relations lead to it");
            let a = linear(
                values,
                &format!("{prefix}.output.{name}"),
                &sum.map(f64::tanh),
            );
            if a.columns != x[of].columns {
                return a;
            }
            let skip = at(&format!("skip.{name}")).values[0];
            let open = 1.0 / (1.0 + (-skip).exp());
            a.map(|it| it * open).plus(1.0 - open, &x[of])
        }
    }
}

/// The same in double.
fn formula(values: &Values, kind: Kind) -> Vec<Dense> {
    let mut x = vec![values["paper"].clone(), values["author"].clone()];
    for (number, written) in WRITTEN.iter().enumerate() {
        let of = (0..x.len()).filter(|of| written[*of]);
        let y: Vec<Dense> = of
            .map(|of| layer_of(values, kind, number, &x, of))
            .collect();
        x = match number {
            0 => y.iter().map(|y| y.map(|it| it.max(0.0))).collect(),
            _ => y,
        };
    }
    x
}

fn adjacencies(backend: &Cpu, norm: Norm) -> Vec<Arc<Propagation<Cpu>>> {
    let adjacency = |relation: usize| {
        let (_, source, destination) = RELATIONS[relation];
        let shape = (TYPES[destination].1, TYPES[source].1);
        let (rows, columns): (Vec<u32>, Vec<u32>) = edges(relation).into_iter().unzip();
        let csr = Csr::rectangular_from_edges(shape, &rows, &columns).expect("ids are in range");
        Arc::new(Propagation::bipartite(backend, &csr, norm).expect("memory"))
    };
    (0..RELATIONS.len()).map(adjacency).collect()
}

#[test]
fn layers_of_several_types_are_their_formulas_forward_and_backward() {
    let backend = Cpu::new();
    let few = [6, 8, 4];
    for (kind, widths) in [
        (Kind::Rgcn(Decomposition::None), few),
        (Kind::Rgcn(Decomposition::Basis(3)), few),
        (Kind::Rgcn(Decomposition::BlockDiagonal(2)), few),
        (Kind::Hetero(EdgeLayer::Sage), few),
        (Kind::Hetero(EdgeLayer::GraphConv), few),
        (Kind::Hgt, few),
        // With a share of the input, and heads of which each has padding.
        (Kind::Hgt, [6, 6, 6]),
    ] {
        let mut output = None;
        let mut runners = [0, 1, 2].map(|passes| {
            let (mut program, value) = network(Precision::Float, kind, widths);
            output = Some(value);
            if passes > 0 {
                apply(&mut program, &[&Reorder], |_, _| ()).expect("a forward list");
            }
            differentiate(&mut program).expect("parameters");
            let behind: [&dyn Pass; 2] = [&Fuse, &Recompute];
            apply(&mut program, &behind[..passes], |_, _| ()).expect("both lists");
            let edges = adjacencies(&backend, kind.norm());
            Runner::new(&backend, program, edges, 3).expect("memory")
        });
        let formula = |values: &Values| formula(values, kind);
        let output = output.expect("a network");
        println!("{kind:?}");
        assert_is(&mut runners, &[output], &formula);
    }
}

#[test]
fn layers_of_several_types_in_half_are_near_what_they_are_in_float() {
    let backend = Cpu::new();
    for kind in [
        Kind::Rgcn(Decomposition::Basis(2)),
        Kind::Rgcn(Decomposition::BlockDiagonal(2)),
        Kind::Hetero(EdgeLayer::Sage),
        Kind::Hgt,
    ] {
        let results = [Precision::Half, Precision::Float].map(|precision| {
            let (mut program, output) = network(precision, kind, [6, 6, 6]);
            differentiate(&mut program).expect("parameters");
            apply(&mut program, &[&Fuse], |_, _| ()).expect("both lists");
            let edges = adjacencies(&backend, kind.norm());
            let mut runner = Runner::new(&backend, program, edges, 3).expect("memory");
            for (number, input) in runner.program().inputs().into_iter().enumerate() {
                let len = runner.read(input).expect("values").len();
                runner
                    .write(input, &numbers(number as u64, len))
                    .expect("memory");
            }
            runner.forward().expect("a forward pass");
            let logits = runner.read(output).expect("logits");
            runner
                .write_seed(&numbers(5, logits.len()))
                .expect("memory");
            runner.backward().expect("a backward pass");
            let learnt = runner.program().named("author").expect("a parameter");
            (logits, runner.gradient(learnt).expect("a gradient"))
        });
        let [(half, half_gradient), (float, float_gradient)] = results;
        for (half, float) in [(half, float), (half_gradient, float_gradient)] {
            let largest = float.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
            let near = |(half, float): (&f32, &f32)| (half - float).abs() <= 8e-3 * largest;
            assert!(half.iter().zip(&float).all(near), "{kind:?}");
            assert_ne!(half, float, "{kind:?}: half rounds");
        }
    }
}

#[test]
fn an_adjacency_of_other_sizes_is_refused() {
    let backend = Cpu::new();
    let kind = Kind::Rgcn(Decomposition::None);
    let (program, _) = network(Precision::Float, kind, [6, 8, 4]);
    let mut edges = adjacencies(&backend, kind.norm());
    edges.swap(0, 3);
    let refused = Runner::new(&backend, program, edges, 3)
        .expect_err("another adjacency")
        .to_string();
    assert_eq!(
        refused,
        "Program: `writes` is declared from 6 to 9 vertices, and given from 9 to 4"
    );
}
