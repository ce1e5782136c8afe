//! Layers that are formulas alone, next to sums over edges in double: a table of layers, each with its formula in plain
//! loops.
//!
//! The graph has a vertex without edges, one with a single edge, a hub, self-loops and edges that are there twice. Each
//! layer's input is a product of an identity and a parameter, so that the gradient of that parameter is the gradient of
//! the input.

use super::reference::{Dense, Values, normalized};
use super::setup::{compiled, numbers};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::graph::{Block, Csr, Graph};
use halfgnn::nn::{Degrees, Norm, Propagation};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{
    Arma, ArmaLayer, CgLayer, Cheb, ChebLayer, ClusterGcnLayer, GatedGraphLayer, Gine, GineLayer,
    GraphConvLayer, Layer, LeLayer, LgLayer, MixHop, MixHopLayer, ResGated, ResGatedLayer, SgLayer,
    Ssg, SsgLayer, TagLayer, Transformer, TransformerLayer,
};
use halfgnn::program::passes::{Evaluate, Pass, Quantize};
use halfgnn::program::{Builder, Edges, Heads, Program, Runner, Value};
use halfgnn::tensor::Precision;
use std::sync::Arc;

mod reductions;

/// Rows, columns, and edges as (row, column) in the order of a CSR.
struct Adjacency {
    rows: usize,
    columns: usize,
    edges: Vec<(usize, usize)>,
    /// Weights of the edges, which are 1 where there are none.
    weights: Option<Vec<f32>>,
    /// Features of edges, a column each.
    features: Vec<Vec<f32>>,
    norm: Norm,
}

impl Adjacency {
    /// Of a square adjacency, or of a block whose destinations are its first sources.
    fn new((rows, columns): (usize, usize), norm: Norm, is_weighted: bool) -> Self {
        let mut edges = vec![
            (1, 0),
            (2, 2),
            (2, 2),
            (2, 5),
            (4, 4),
            (4, 1),
            (4, 1),
            (4, 1),
        ];
        edges.extend((0..columns).map(|column| (3, column)));
        edges.extend((5..rows).map(|row| (row, (row * 7) % columns)));
        edges.extend((5..rows).map(|row| (row, (row * row + 3) % columns)));
        edges.sort_unstable();
        let weights = numbers(5, edges.len());
        let weights = weights.into_iter().map(|it| it + 1.25).collect();
        Self {
            rows,
            columns,
            edges,
            weights: is_weighted.then_some(weights),
            features: Vec::new(),
            norm,
        }
    }

    /// With the given number of features of each edge, which every precision has exactly.
    fn with_features(self, count: usize) -> Self {
        let exact = |it: f32| (8.0 * it).round() / 8.0;
        let column = |column: usize| numbers(column as u64 + 40, self.edges.len());
        let columns = (0..count).map(|at| column(at).into_iter().map(exact).collect());
        Self {
            features: columns.collect(),
            ..self
        }
    }

    /// The features of edges, a row each.
    fn features(&self) -> Dense {
        let of_edge = |edge: usize| self.features.iter().map(move |it| f64::from(it[edge]));
        let values: Vec<f64> = (0..self.edges.len()).flat_map(of_edge).collect();
        Dense::new(self.edges.len(), self.features.len(), values)
    }

    /// The sum or mean of `message(i, j, e)`, rows of the given number of columns.
    fn messages(
        &self,
        columns: usize,
        message: impl Fn(usize, usize, usize, usize) -> f64,
    ) -> Dense {
        let mut y = Dense::new(self.rows, columns, vec![0.0; self.rows * columns]);
        for (edge, &(row, from)) in self.edges.iter().enumerate() {
            for column in 0..columns {
                let factor = self.factor(edge);
                y.values[row * columns + column] += factor * message(row, from, edge, column);
            }
        }
        y
    }

    fn weight(&self, edge: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |all| all[edge].into())
    }

    /// The sum of the weights of the edges of which `is` says so.
    fn degree(&self, is: impl Fn((usize, usize)) -> bool) -> f64 {
        let edges = self.edges.iter().enumerate();
        let of = edges.filter(|(_, edge)| is(**edge));
        of.map(|(number, _)| self.weight(number)).sum()
    }

    /// The factor of an edge: its weight, and the degree norm of its ends.
    fn factor(&self, edge: usize) -> f64 {
        let (row, column) = self.edges[edge];
        let into = |vertex: usize| self.degree(|(row, _)| row == vertex);
        let out = self.degree(|(_, from)| from == column);
        let root = |degree: f64| {
            if degree == 0.0 {
                0.0
            } else {
                1.0 / degree.sqrt()
            }
        };
        let norm = match self.norm {
            Norm::None => 1.0,
            Norm::Right => 1.0 / into(row),
            Norm::Left => 1.0 / out,
            Norm::Both => root(into(row)) * root(out),
            Norm::In => root(into(row)) * root(into(column)),
        };
        norm * self.weight(edge)
    }

    fn sum(&self, x: &Dense) -> Dense {
        let mut y = Dense::new(self.rows, x.columns, vec![0.0; self.rows * x.columns]);
        for (edge, &(row, from)) in self.edges.iter().enumerate() {
            let factor = self.factor(edge);
            for column in 0..x.columns {
                y.values[row * x.columns + column] += factor * x.at(from, column);
            }
        }
        y
    }

    /// The rows of the destinations.
    fn own(&self, x: &Dense) -> Dense {
        let values = x.values[..self.rows * x.columns].to_vec();
        Dense::new(self.rows, x.columns, values)
    }

    fn power(&self, hops: usize, x: &Dense) -> Dense {
        match hops {
            0 => self.own(x),
            1 => self.sum(x),
            hops => self.sum(&self.power(hops - 1, x)),
        }
    }

    /// `Σ_j softmax(scale · q_i · k_j) · v_j` of one head.
    fn attention(&self, [q, k, v]: [&Dense; 3]) -> Dense {
        let scale = 1.0 / (q.columns as f64).sqrt();
        let dot = |row: usize, from: usize| -> f64 {
            let products = (0..q.columns).map(|it| q.at(row, it) * k.at(from, it));
            scale * products.sum::<f64>()
        };
        let (mut sums, mut y) = (
            vec![0.0; self.rows],
            Dense::new(self.rows, v.columns, vec![0.0; self.rows * v.columns]),
        );
        for &(row, from) in &self.edges {
            let weight = dot(row, from).exp();
            sums[row] += weight;
            for column in 0..v.columns {
                y.values[row * v.columns + column] += weight * v.at(from, column);
            }
        }
        for (row, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum != 0.0) {
            let of_row = &mut y.values[row * v.columns..][..v.columns];
            of_row.iter_mut().for_each(|it| *it /= sum);
        }
        y
    }

    fn propagation<B: Backend>(&self, backend: &B, precision: Precision) -> Propagation<B> {
        let ids = |it: &[(usize, usize)]| -> (Vec<u32>, Vec<u32>) {
            it.iter()
                .map(|&(row, column)| (row as u32, column as u32))
                .unzip()
        };
        let (rows, columns) = ids(&self.edges);
        if self.rows == self.columns {
            let graph = Graph::from_edges(self.rows, &rows, &columns).expect("ids are in range");
            let made = match &self.weights {
                None => Propagation::new(backend, &graph, self.norm),
                Some(weights) => halfgnn::with_element!(precision, E => {
                    Propagation::weighted::<E>(backend, &graph, weights, self.norm)
                }),
            };
            let made = made.expect("memory");
            if self.features.is_empty() {
                return made;
            }
            let with_rows = halfgnn::with_element!(precision, E => {
                made.with_edge_rows::<E>(backend, &graph, &self.features)
            });
            return with_rows.expect("memory");
        }
        let shape = (self.rows, self.columns);
        let csr = Csr::rectangular_from_edges(shape, &rows, &columns).expect("ids are in range");
        let block = Block::new(csr).expect("destinations are sources");
        Propagation::of_block(backend, &block, self.norm, Degrees::OfBlock).expect("memory")
    }
}

/// Columns of `x` from `first` on.
fn some(x: &Dense, first: usize, count: usize) -> Dense {
    let rows = (0..x.rows).flat_map(|row| (first..first + count).map(move |it| x.at(row, it)));
    Dense::new(x.rows, count, rows.collect::<Vec<_>>())
}

/// Columns of all, side by side.
fn side_by_side(all: &[Dense]) -> Dense {
    let columns = all.iter().map(|it| it.columns).sum();
    let of_row = |row: usize| {
        let all = all.iter();
        all.flat_map(move |it| (0..it.columns).map(move |column| it.at(row, column)))
    };
    let values: Vec<f64> = (0..all[0].rows).flat_map(of_row).collect();
    Dense::new(all[0].rows, columns, values)
}

fn times(x: &Dense, y: &Dense) -> Dense {
    let products = x.values.iter().zip(&y.values).map(|(x, y)| x * y);
    Dense::new(x.rows, x.columns, products)
}

/// `x + bias` by columns.
fn biased(x: &Dense, bias: &Dense) -> Dense {
    let values = x.values.iter().enumerate();
    let values = values.map(|(at, value)| value + bias.values[at % x.columns]);
    Dense::new(x.rows, x.columns, values)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

type Formula = Box<dyn Fn(&Values, &Adjacency, &Dense) -> Dense>;

/// A layer and its formula.
struct Case {
    name: &'static str,
    /// Columns of the input and of the output.
    widths: (usize, usize),
    norm: Norm,
    /// Whether it sums over neighbours of neighbours, which a block does not have.
    is_square: bool,
    /// Whether edges may have weights.
    is_weighted: bool,
    /// Features of each edge. A block has none.
    edge_features: usize,
    layer: Box<dyn Fn(Edges) -> Box<dyn Layer>>,
    formula: Formula,
}

/// A case, from what its layer is made of.
fn case<L: Layer + 'static>(
    (name, norm): (&'static str, Norm),
    widths: (usize, usize),
    is_square: bool,
    layer: impl Fn(Edges) -> L + 'static,
    formula: impl Fn(&Values, &Adjacency, &Dense) -> Dense + 'static,
) -> Case {
    Case {
        name,
        widths,
        norm,
        is_square,
        is_weighted: true,
        edge_features: 0,
        layer: Box::new(move |edges| Box::new(layer(edges))),
        formula: Box::new(formula),
    }
}

/// Narrowing and widening layers, whose sums are of products and of inputs.
const WIDTHS: [(usize, usize); 2] = [(7, 3), (3, 10)];

fn copies() -> Vec<Case> {
    let mut all = Vec::new();
    for widths in WIDTHS {
        let outputs = widths.1;
        for norm in [Norm::None, Norm::Right] {
            all.push(case(
                ("graphconv", norm),
                widths,
                false,
                move |edges| GraphConvLayer {
                    edges,
                    outputs,
                    reduction: None,
                },
                |values, a, x| {
                    let sum = a.sum(x).product(&values["neighbours.weight"]);
                    a.own(x).product(&values["self.weight"]).plus(1.0, &sum)
                },
            ));
        }
        for hops in [1, 2, 3] {
            all.push(case(
                ("sg", Norm::In),
                widths,
                hops > 1,
                move |edges| SgLayer {
                    edges,
                    outputs,
                    hops,
                },
                move |values, a, x| a.power(hops, x).product(&values["weight"]),
            ));
        }
        for (hops, alpha) in [(1, 0.1), (3, 0.25), (2, 0.0)] {
            all.push(case(
                ("ssg", Norm::In),
                widths,
                hops > 1,
                move |edges| SsgLayer {
                    edges,
                    outputs,
                    options: Ssg {
                        hops,
                        alpha,
                        ..Ssg::default()
                    },
                },
                move |values, a, x| {
                    let alpha = f64::from(alpha);
                    let mut y = a.own(x).map(|it| alpha * it);
                    for hop in 1..=hops {
                        y = y.plus((1.0 - alpha) / hops as f64, &a.power(hop, x));
                    }
                    y.product(&values["weight"])
                },
            ));
        }
        for hops in [0, 1, 3] {
            all.push(case(
                ("tag", Norm::In),
                widths,
                hops > 1,
                move |edges| TagLayer {
                    edges,
                    outputs,
                    hops,
                },
                move |values, a, x| {
                    let term = |hop: usize| {
                        a.power(hop, x)
                            .product(&values[&format!("hops.{hop}.weight")])
                    };
                    (1..=hops).fold(term(0), |sum, hop| sum.plus(1.0, &term(hop)))
                },
            ));
        }
        for (powers, averaged) in [
            (vec![0, 1], false),
            (vec![0, 3, 2], false),
            (vec![1, 2], true),
        ] {
            let options = MixHop {
                powers: powers.clone(),
                ..MixHop::default()
            };
            all.push(case(
                ("mixhop", Norm::In),
                widths,
                powers.iter().any(|power| *power > 1),
                move |edges| MixHopLayer {
                    edges,
                    outputs,
                    averaged,
                    options: options.clone(),
                },
                move |values, a, x| {
                    let part = |power: &usize| {
                        let weight = &values[&format!("hops.{power}.weight")];
                        a.power(*power, x).product(weight)
                    };
                    let parts: Vec<Dense> = powers.iter().map(part).collect();
                    match averaged {
                        true => parts[0].plus(1.0, &parts[1]).map(|it| 0.5 * it),
                        false => side_by_side(&parts),
                    }
                },
            ));
        }
        all.push(case(
            ("leconv", Norm::None),
            widths,
            false,
            move |edges| LeLayer { edges, outputs },
            |values, a, x| {
                let from = biased(&x.product(&values["source.weight"]), &values["source.bias"]);
                let to = x.product(&values["destination.weight"]);
                let mut y = a.own(x).product(&values["self.weight"]);
                for (edge, &(row, column)) in a.edges.iter().enumerate() {
                    for it in 0..y.columns {
                        let difference = from.at(column, it) - to.at(row, it);
                        y.values[row * from.columns + it] += a.factor(edge) * difference;
                    }
                }
                y
            },
        ));
    }
    all.push(case(
        ("lg", Norm::Both),
        (5, 5),
        false,
        |edges| LgLayer { edges },
        |_, a, x| a.sum(x),
    ));
    all
}

fn filters() -> Vec<Case> {
    let mut all = Vec::new();
    for widths in WIDTHS {
        let outputs = widths.1;
        for (terms, lambda_max, norm) in [
            (1, 2.0, Norm::Both),
            (2, 1.5, Norm::Both),
            (3, 2.0, Norm::Right),
            (5, 1.75, Norm::Both),
        ] {
            all.push(case(
                ("cheb", norm),
                widths,
                terms > 2,
                move |edges| ChebLayer {
                    edges,
                    outputs,
                    options: Cheb {
                        terms,
                        lambda_max,
                        ..Cheb::default()
                    },
                },
                move |values, a, x| {
                    // L̂ · x = 2 / λ · (x − Â · x) − x
                    let laplacian = |x: &Dense| {
                        let of = a.own(x).plus(-1.0, &a.sum(x));
                        of.map(|it| 2.0 / f64::from(lambda_max) * it)
                            .plus(-1.0, &a.own(x))
                    };
                    let mut all = vec![a.own(x), laplacian(x)];
                    for term in 2..terms {
                        let next = laplacian(&all[term - 1]).map(|it| 2.0 * it);
                        all.push(next.plus(-1.0, &all[term - 2]));
                    }
                    let product =
                        |term: usize| all[term].product(&values[&format!("terms.{term}.weight")]);
                    (1..terms).fold(product(0), |sum, term| sum.plus(1.0, &product(term)))
                },
            ));
        }
        for (stacks, steps, share_weights, is_last) in [
            (1, 1, false, false),
            (2, 3, false, true),
            (2, 3, true, false),
        ] {
            let options = Arma {
                stacks,
                steps,
                share_weights,
                root_dropout: 0.0,
                ..Arma::default()
            };
            all.push(case(
                ("arma", Norm::In),
                widths,
                steps > 1,
                move |edges| ArmaLayer {
                    edges,
                    outputs,
                    is_last,
                    options: options.clone(),
                },
                move |values, a, x| {
                    let mut mean = None;
                    for stack in 0..stacks {
                        let mut y = x.clone();
                        for step in 0..steps {
                            let at = |step: usize| if share_weights { 0 } else { step };
                            let name = match step {
                                0 => format!("init.{stack}.weight"),
                                step => format!("weight.{}.{stack}", at(step - 1)),
                            };
                            let root = format!("root.{}.{stack}", at(step));
                            let added = a.own(x).product(&values[&format!("{root}.weight")]);
                            y = a.sum(&y).product(&values[&name]).plus(1.0, &added);
                            y = biased(&y, &values[&format!("{root}.bias")]);
                            if !is_last || step + 1 < steps {
                                y = y.map(|it| it.max(0.0));
                            }
                        }
                        let y = y.map(|it| it / stacks as f64);
                        mean = Some(mean.map_or(y.clone(), |mean: Dense| mean.plus(1.0, &y)));
                    }
                    mean.expect("a stack")
                },
            ));
        }
        for diag_lambda in [0.0, 0.75] {
            let mut cluster = case(
                ("clustergcn", Norm::Right),
                widths,
                false,
                move |edges| ClusterGcnLayer {
                    edges,
                    outputs,
                    diag_lambda,
                },
                move |values, a, x| {
                    let mut sum = a.sum(x);
                    for row in 0..a.rows {
                        let degree = a.degree(|(it, _)| it == row).max(1.0);
                        for column in 0..x.columns {
                            sum.values[row * x.columns + column] +=
                                f64::from(diag_lambda) * x.at(row, column) / degree;
                        }
                    }
                    let own = a.own(x).product(&values["self.weight"]);
                    sum.product(&values["neighbours.weight"]).plus(1.0, &own)
                },
            );
            cluster.is_weighted = false;
            all.push(cluster);
        }
    }
    all
}

/// PyTorch's `GRUCell`.
fn gru(values: &Values, x: &Dense, h: &Dense) -> Dense {
    let map = |end: &str, gate: usize, of: &Dense| {
        let weight = &values[&format!("rnn.{end}.{gate}.weight")];
        let bias = &values[&format!("rnn.{end}.{gate}.bias")];
        biased(&of.product(weight), bias)
    };
    let both = |gate: usize| {
        map("input", gate, x)
            .plus(1.0, &map("hidden", gate, h))
            .map(sigmoid)
    };
    let (reset, update) = (both(0), both(1));
    let new = map("input", 2, x).plus(1.0, &times(&reset, &map("hidden", 2, h)));
    let new = new.map(f64::tanh);
    times(&update, h).plus(1.0, &times(&update.map(|it| 1.0 - it), &new))
}

fn gates() -> Vec<Case> {
    let mut all = Vec::new();
    for (widths, steps) in [((3, 5), 1), ((3, 5), 2), ((5, 5), 3), ((7, 4), 2)] {
        all.push(case(
            ("gatedgraph", Norm::None),
            widths,
            steps > 1,
            move |edges| GatedGraphLayer {
                edges,
                outputs: widths.1,
                steps,
            },
            move |values, a, x| {
                let mut h = match widths.0 > widths.1 {
                    true => x.product(&values["input.weight"]),
                    false => {
                        let rest = widths.1 - widths.0;
                        side_by_side(&[
                            x.clone(),
                            Dense::new(x.rows, rest, vec![0.0; x.rows * rest]),
                        ])
                    }
                };
                for step in 0..steps {
                    let messages = a.sum(&h).product(&values[&format!("steps.{step}.weight")]);
                    h = gru(values, &messages, &a.own(&h));
                }
                h
            },
        ));
    }
    all
}

fn attention() -> Vec<Case> {
    let mut all = Vec::new();
    for (heads, outputs, averaged, root_weight, beta) in [
        (1, 6, false, true, false),
        (2, 6, false, true, true),
        (3, 5, true, true, false),
        (2, 16, false, false, false),
    ] {
        let options = Transformer {
            heads,
            attention_dropout: 0.0,
            root_weight,
            beta,
        };
        let mut transformer = case(
            ("transformer", Norm::None),
            (4, outputs),
            false,
            move |edges| TransformerLayer {
                edges,
                outputs,
                averaged,
                options: options.clone(),
            },
            move |values, a, x| {
                let width = if averaged { outputs } else { outputs / heads };
                let map = |name: &str, of: &Dense| {
                    let product = of.product(&values[&format!("{name}.weight")]);
                    biased(&product, &values[&format!("{name}.bias")])
                };
                let all = [map("query", &a.own(x)), map("key", x), map("value", x)];
                // Heads are as far apart as whole vectors are long.
                let distance = all[0].columns / heads;
                let head = |head: usize| {
                    let of = all.each_ref().map(|it| some(it, head * distance, width));
                    a.attention([&of[0], &of[1], &of[2]])
                };
                let of_heads: Vec<Dense> = (0..heads).map(head).collect();
                let y = match averaged {
                    false => side_by_side(&of_heads),
                    true => {
                        let mut sum = of_heads[0].clone();
                        for other in &of_heads[1..] {
                            sum = sum.plus(1.0, other);
                        }
                        sum.map(|it| it / heads as f64)
                    }
                };
                if !root_weight {
                    return y;
                }
                let itself = a.own(x).product(&values["self.weight"]);
                if !beta {
                    return y.plus(1.0, &itself);
                }
                let itself = biased(&itself, &values["self.bias"]);
                let parts = [y.clone(), itself.clone(), y.plus(-1.0, &itself)];
                let scores = parts
                    .iter()
                    .enumerate()
                    .map(|(part, of)| of.product(&values[&format!("beta.{part}.weight")]));
                let scores = scores
                    .reduce(|sum, part| sum.plus(1.0, &part))
                    .expect("parts");
                let shares = scores.map(sigmoid);
                let shares = side_by_side(&vec![shares; outputs]);
                let rest = shares.map(|it| 1.0 - it);
                times(&shares, &itself).plus(1.0, &times(&rest, &y))
            },
        );
        transformer.is_weighted = false;
        all.push(transformer);
    }
    all
}

fn relu(x: f64) -> f64 {
    x.max(0.0)
}

/// Layers whose messages are of both ends of an edge and of its features.
fn messages() -> Vec<Case> {
    let mut all = Vec::new();
    for (edge_features, norm, learn_epsilon) in [
        (0, Norm::None, true),
        (3, Norm::Right, true),
        (2, Norm::None, false),
        (0, Norm::Right, false),
    ] {
        let options = Gine {
            epsilon: 0.25,
            learn_epsilon,
            edge_features,
            ..Gine::default()
        };
        let mut gine = case(
            ("gine", norm),
            (6, 5),
            false,
            move |edges| GineLayer {
                edges,
                hidden: 9,
                outputs: 5,
                options: options.clone(),
            },
            move |values, a, x| {
                let rows = (edge_features > 0).then(|| {
                    let product = a.features().product(&values["edge.weight"]);
                    biased(&product, &values["edge.bias"])
                });
                let of_edge =
                    |edge, column| rows.as_ref().map_or(0.0, |rows| rows.at(edge, column));
                let sum = a.messages(x.columns, |_, from, edge, column| {
                    relu(x.at(from, column) + of_edge(edge, column))
                });
                let epsilon = match learn_epsilon {
                    true => values["epsilon"].values[0],
                    false => 0.25,
                };
                let sum = sum.plus(1.0 + epsilon, &a.own(x));
                let between = sum.product(&values["mlp.0.weight"]);
                let between = normalized(&between, &values["norm.weight"], &values["norm.bias"]);
                between.map(relu).product(&values["mlp.1.weight"])
            },
        );
        gine.edge_features = edge_features;
        all.push(gine);
    }
    for (edge_features, root_weight, norm) in [
        (0, true, Norm::None),
        (0, true, Norm::Right),
        (3, true, Norm::Right),
        (1, false, Norm::None),
    ] {
        let options = ResGated {
            root_weight,
            edge_features,
            ..ResGated::default()
        };
        let mut resgated = case(
            ("resgated", norm),
            (5, 7),
            false,
            move |edges| ResGatedLayer {
                edges,
                outputs: 7,
                options: options.clone(),
            },
            move |values, a, x| {
                let map = |name: &str, rows: &Dense| {
                    let product = rows.product(&values[&format!("{name}.0.weight")]);
                    biased(&product, &values[&format!("{name}.bias")])
                };
                let of_edges = |name: &str| match edge_features {
                    0 => Dense::new(a.edges.len(), 7, vec![0.0; 7 * a.edges.len()]),
                    _ => {
                        let features = a.features();
                        features.product(&values[&format!("{name}.1.weight")])
                    }
                };
                let [k, q, v] = [map("key", &a.own(x)), map("query", x), map("value", x)];
                let [of_k, of_q, of_v] = ["key", "query", "value"].map(of_edges);
                let y = a.messages(7, |row, from, edge, at| {
                    let gate =
                        k.at(row, at) + q.at(from, at) + of_k.at(edge, at) + of_q.at(edge, at);
                    sigmoid(gate) * (v.at(from, at) + of_v.at(edge, at))
                });
                match root_weight {
                    true => y.plus(1.0, &a.own(x).product(&values["self.weight"])),
                    false => y,
                }
            },
        );
        resgated.edge_features = edge_features;
        all.push(resgated);
    }
    for (edge_features, norm) in [
        (0, Norm::None),
        (0, Norm::Right),
        (2, Norm::Right),
        (2, Norm::None),
    ] {
        let mut cg = case(
            ("cg", norm),
            (6, 6),
            false,
            move |edges| CgLayer {
                edges,
                edge_features,
            },
            move |values, a, x| {
                let own = a.own(x);
                let factor = |name: &str| {
                    let weight = |part: usize| &values[&format!("{name}.{part}.weight")];
                    let destination =
                        biased(&own.product(weight(0)), &values[&format!("{name}.bias")]);
                    let edge = match edge_features {
                        0 => Dense::new(a.edges.len(), 6, vec![0.0; 6 * a.edges.len()]),
                        _ => a.features().product(weight(2)),
                    };
                    [destination, x.product(weight(1)), edge]
                };
                let [gate, value] = ["gate", "value"].map(factor);
                let of = |of: &[Dense; 3], ends: [usize; 3], at: usize| -> f64 {
                    of.iter()
                        .zip(ends)
                        .map(|(rows, row)| rows.at(row, at))
                        .sum()
                };
                let sum = a.messages(6, |row, from, edge, at| {
                    let ends = [row, from, edge];
                    sigmoid(of(&gate, ends, at)) * of(&value, ends, at).exp().ln_1p()
                });
                sum.plus(1.0, &own)
            },
        );
        cg.edge_features = edge_features;
        all.push(cg);
    }
    for case in &mut all {
        case.is_weighted = false;
    }
    all
}

fn all() -> Vec<Case> {
    [
        copies(),
        filters(),
        gates(),
        attention(),
        messages(),
        reductions::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The program of a case: `rows` is a parameter with the rows of the layer's input.
fn program(case: &Case, a: &Adjacency, precision: Precision) -> Program {
    let mut g = Builder::new(precision);
    let sources = g.vertices("sources", a.columns);
    let destinations = match a.rows == a.columns {
        true => sources,
        false => g.vertices("destinations", a.rows),
    };
    let edges = g.edges("edges", sources, destinations, a.norm);
    let identity = g.input("identity", sources, a.columns);
    let rows = g.weight("rows", (a.columns, case.widths.0));
    let x = g.matmul(identity, rows);
    let y = (case.layer)(edges).build(&mut g, x);
    g.finish(y)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

/// The output and the gradient of each parameter.
#[derive(PartialEq, Debug)]
struct Results {
    output: Vec<f32>,
    gradients: Vec<(String, Vec<f32>)>,
}

/// Numbers of a parameter. Columns between heads stay zero, as those are that a program begins with: a bias has those
/// of its weight.
fn given(runner: &Runner, parameter: Value, numbers: Vec<f32>) -> Vec<f32> {
    let program = runner.program();
    let name = &program.description(parameter).name;
    let weight = name.strip_suffix(".bias").map(|of| format!("{of}.weight"));
    let like = weight.and_then(|weight| program.named(&weight));
    let like = runner.read(like.unwrap_or(parameter)).expect("values");
    let is_zero = like.iter().all(|it| *it == 0.0);
    let pairs = numbers.into_iter().zip(like);
    let of = |(given, like): (f32, f32)| if is_zero || like != 0.0 { given } else { 0.0 };
    pairs.map(of).collect()
}

/// What parameters and the gradient of the output are.
#[derive(Clone, Copy)]
enum Numbers {
    Any,
    /// −1, 0 and 1, whose sums are exact in any order.
    Whole,
}

impl Numbers {
    fn of(self, seed: u64, len: usize) -> Vec<f32> {
        let any = numbers(seed, len).into_iter();
        match self {
            Numbers::Any => any.collect(),
            Numbers::Whole => any.map(|it| (1.5 * it).round()).collect(),
        }
    }
}

fn run<B: Backend>(
    backend: &B,
    program: Program,
    a: &Adjacency,
    numbers: Numbers,
) -> (Results, Values) {
    let precision = program.precision();
    let edges = vec![Arc::new(a.propagation(backend, precision))];
    let mut runner = Runner::new(backend, program, edges, 7).expect("the graph fits");
    let program = runner.program().clone();
    let identity: Vec<f32> = (0..a.columns * a.columns)
        .map(|at| f32::from(u8::from(at % (a.columns + 1) == 0)))
        .collect();
    let input = program.named("identity").expect("an input");
    runner.write(input, &identity).expect("memory");
    let mut values = Values::new();
    for (number, parameter) in program.parameters().into_iter().enumerate() {
        let description = program.description(parameter);
        let len = runner.read(parameter).expect("values").len();
        let given = given(&runner, parameter, numbers.of(number as u64 + 1, len));
        runner.write(parameter, &given).expect("memory");
        // What products read of a weight is rounded.
        let rounded = |value: f32| match description.format.precision(precision) {
            Precision::Half => f16::from_f32(value).to_f64(),
            Precision::BFloat16 => half::bf16::from_f32(value).to_f64(),
            Precision::Float => value.into(),
        };
        let columns = description.shape.columns;
        let of = Dense::new(
            given.len() / columns,
            columns,
            given.into_iter().map(rounded),
        );
        values.insert(description.name.clone(), of);
    }
    runner.forward().expect("a forward pass");
    let output = runner
        .read(program.output().expect("an output"))
        .expect("values");
    let seed = numbers.of(99, output.len());
    runner.write_seed(&seed).expect("memory");
    runner.backward().expect("a backward pass");
    let gradients = program.parameters().into_iter().filter_map(|parameter| {
        program.gradient_of(parameter)?;
        let gradient = runner.gradient(parameter).expect("a gradient");
        Some((program.description(parameter).name.clone(), gradient))
    });
    let gradients = gradients.collect();
    (Results { output, gradients }, values)
}

/// Gradients of elements, by their positions.
type Picked = Vec<(usize, f64)>;

/// What the formula gives of these values: gradients are central differences, of every `every`-th diagonal of a matrix.
fn expected(
    case: &Case,
    a: &Adjacency,
    values: &Values,
    every: usize,
) -> (Vec<f64>, Vec<(String, Picked)>) {
    let formula = |values: &Values| (case.formula)(values, a, &values["rows"]).values;
    let output = formula(values);
    let seed = numbers(99, output.len());
    let loss = |values: &Values| -> f64 {
        let products = formula(values).into_iter().zip(&seed);
        products.map(|(y, d)| y * f64::from(*d)).sum()
    };
    let mut names: Vec<&String> = values.keys().collect();
    names.sort_unstable();
    let mut moved = values.clone();
    let gradients = names.into_iter().map(|name| {
        let of = &values[name];
        let is_picked = |element: &usize| {
            let (row, column) = (element / of.columns, element % of.columns);
            of.rows == 1 || (row + column).is_multiple_of(every)
        };
        let elements = (0..of.values.len()).filter(is_picked);
        let gradient = elements.map(|element| {
            const STEP: f64 = 1e-5;
            let mut loss_at = |value| {
                moved.get_mut(name).expect("a parameter").values[element] = value;
                loss(&moved)
            };
            let value = of.values[element];
            let difference = loss_at(value + STEP) - loss_at(value - STEP);
            moved.get_mut(name).expect("a parameter").values[element] = value;
            (element, difference / (2.0 * STEP))
        });
        (name.clone(), gradient.collect())
    });
    let gradients = gradients.collect();
    (output, gradients)
}

/// Asserts that numbers are near those expected: in float each to this share of the largest, and of rounded elements
/// all together, since a ReLU next to zero may go either way.
fn assert_near(what: &str, expected: &[f64], found: &[f32], (precision, share): (Precision, f64)) {
    assert_eq!(expected.len(), found.len(), "{what}");
    let largest =
        |of: &mut dyn Iterator<Item = f64>| of.fold(0.0_f64, |most, it| most.max(it.abs()));
    let length = |of: &mut dyn Iterator<Item = f64>| of.map(|it| it * it).sum::<f64>().sqrt();
    let size = |of: &mut dyn Iterator<Item = f64>| match precision {
        Precision::Float => largest(of),
        Precision::Half | Precision::BFloat16 => length(of),
    };
    let pairs = expected.iter().zip(found);
    let off = size(&mut pairs.map(|(expected, found)| expected - f64::from(*found)));
    let mut of = size(&mut expected.iter().copied());
    // The same number is added to all scores of a softmax, which takes it out again.
    match what.ends_with("key.bias") {
        true => of += 1.0,
        false => assert!(of > 1e-3, "{what} is zero"),
    }
    assert!(off <= share * of, "{what}: off by {off} of {of}");
}

fn check(case: &Case, a: &Adjacency, (precision, share): (Precision, f64)) {
    let of = |passes: &str| {
        let weighted = if a.weights.is_some() { " weighted" } else { "" };
        format!(
            "{} {:?} {}{weighted} {precision} {passes}",
            case.name, case.widths, a.norm
        )
    };
    let plain = {
        let mut plain = program(case, a, precision);
        halfgnn::program::differentiate(&mut plain).expect("parameters");
        plain
    };
    let compiled_ = |recompute| compiled(program(case, a, precision), recompute);
    // In float all are compared. A step of a formula takes longer than what is tested.
    let every = if precision == Precision::Float { 1 } else { 3 };
    let mut reference = None;
    for (passes, program) in [
        ("plain", plain),
        ("fused", compiled_(false)),
        ("recomputed", compiled_(true)),
    ] {
        let what = of(passes);
        let (found, values) = run(&Cpu::new(), program, a, Numbers::Any);
        let (output, gradients) =
            reference.get_or_insert_with(|| expected(case, a, &values, every));
        assert_near(
            &format!("{what}: the output"),
            output,
            &found.output,
            (precision, share),
        );
        for (name, gradient) in gradients {
            let mut all = found.gradients.iter();
            let (_, found) = all.find(|(of, _)| of == name).unwrap_or_else(|| {
                panic!("{what}: {name} has no gradient");
            });
            assert_eq!(values[name].values.len(), found.len(), "{what}: {name}");
            let (expected, found): (Vec<f64>, Vec<f32>) = gradient
                .iter()
                .map(|(element, expected)| (expected, found[*element]))
                .unzip();
            // Columns between heads have none.
            assert_near(
                &format!("{what}: the gradient of {name}"),
                &expected,
                &found,
                (precision, share),
            );
        }
    }
}

const SQUARE: (usize, usize) = (13, 13);
const BLOCK: (usize, usize) = (9, 13);

/// The adjacencies of a case: square, with weights where edges may have some, and rectangular.
fn adjacencies(case: &Case) -> Vec<Adjacency> {
    let square = Adjacency::new(SQUARE, case.norm, false);
    let mut all = vec![square.with_features(case.edge_features)];
    if case.is_weighted {
        all.push(Adjacency::new(SQUARE, case.norm, true));
    }
    if !case.is_square && case.edge_features == 0 {
        // A block does not know how many edges its sources have as destinations.
        let norm = match case.norm {
            Norm::In => Norm::Both,
            norm => norm,
        };
        all.push(Adjacency::new(BLOCK, norm, false));
    }
    all
}

fn check_all(cases: Vec<Case>) {
    for case in cases {
        // A ReLU next to zero goes the other way where numbers are rounded.
        let kinks = match case.name {
            "arma" | "gine" => 3.0,
            // So does a maximum next to another one.
            "reduced graphconv" | "reduced gine" | "edge" | "gen" | "pna" => 8.0,
            _ => 1.0,
        };
        for a in adjacencies(&case) {
            check(&case, &a, (Precision::Float, 2e-5));
            check(&case, &a, (Precision::Half, kinks * 1e-2));
            check(&case, &a, (Precision::BFloat16, kinks * 8e-2));
        }
    }
}

#[test]
fn copies_and_their_powers_are_their_formulas() {
    check_all(copies());
}

#[test]
fn filters_are_their_formulas() {
    check_all(filters());
}

#[test]
fn gated_layers_are_their_formulas() {
    check_all(gates());
}

#[test]
fn graph_transformers_are_their_formulas() {
    check_all(attention());
}

#[test]
fn reductions_of_messages_are_their_formulas() {
    check_all(reductions::all());
}

#[test]
fn messages_of_both_ends_are_their_formulas() {
    check_all(messages());
}

/// Sums of whole numbers are exact, so that their order on a device does not matter. Gates and a softmax make other
/// numbers of them, whose sums differ in the last digits of a float.
#[test]
fn formulas_have_the_same_bits_on_the_cpu_and_the_emulator() {
    let driver = Emulated::new();
    let kernels = halfgnn::kernels::Kernels::find(Some(driver.info().compute_capability));
    let emulated =
        Gpu::new(driver, kernels.expect("the kernels")).expect("the PTX fits this program");
    for case in all() {
        for shape in [SQUARE, BLOCK] {
            if (case.is_square || case.edge_features > 0) && shape == BLOCK {
                continue;
            }
            let a = Adjacency::new(shape, Norm::None, false).with_features(case.edge_features);
            let program = || compiled(program(&case, &a, Precision::Half), false);
            let (cpu, _) = run(&Cpu::new(), program(), &a, Numbers::Whole);
            let (gpu, _) = run(&emulated, program(), &a, Numbers::Whole);
            let what = format!("{} {:?} of {shape:?}", case.name, case.widths);
            let others = ["gatedgraph", "transformer", "gine", "resgated", "cg"];
            let others = others.into_iter().chain(reductions::NAMES);
            if !others.into_iter().any(|name| name == case.name) {
                assert_eq!(cpu, gpu, "{what}");
                continue;
            }
            let near = |what: &str, cpu: &[f32], gpu: &[f32]| {
                let cpu: Vec<f64> = cpu.iter().map(|it| f64::from(*it)).collect();
                assert_near(what, &cpu, gpu, (Precision::Half, 1e-3));
            };
            near(&what, &cpu.output, &gpu.output);
            for ((name, cpu), (_, gpu)) in cpu.gradients.iter().zip(&gpu.gradients) {
                near(&format!("{what}: the gradient of {name}"), cpu, gpu);
            }
        }
    }
}

#[test]
fn layers_of_several_hops_are_refused_on_blocks_in_one_line() {
    for case in all().iter().filter(|case| case.is_square) {
        let a = Adjacency::new(BLOCK, Norm::Both, false);
        let mut g = Builder::new(Precision::Half);
        let (sources, destinations) = (g.vertices("batch", 13), g.vertices("seeds", 9));
        let edges = g.edges("block 0", sources, destinations, a.norm);
        let x = g.input("x", sources, case.widths.0);
        let y = (case.layer)(edges).build(&mut g, x);
        let refused = g.finish(y).expect_err("a block").to_string();
        assert_eq!(
            refused,
            format!(
                "Program: {} aggregates several times over one adjacency, and `block 0` leads from `batch` to `seeds`; sample subgraphs (GraphSAINT, clusters) or train on the whole graph",
                case.name
            )
        );
    }
}

#[test]
fn the_sum_is_an_option_and_customary_for_whole_graphs() {
    use halfgnn::nn::{Cg, ConvolutionConfig, GraphConv, ModelConfig};
    let kinds: [(&str, ConvolutionConfig); 4] = [
        ("graphconv", GraphConv::default().into()),
        ("gine", Gine::default().into()),
        ("resgated", ResGated::default().into()),
        ("cg", Cg::default().into()),
    ];
    for (name, convolution) in kinds {
        let norm = |of: &ConvolutionConfig| ModelConfig::of(of.clone(), 8, 4).norm();
        assert_eq!(norm(&convolution), Norm::Right, "{name}");
        let mut sum = convolution.clone();
        sum.set("aggregate", "sum").expect("an option");
        assert_eq!(norm(&sum), Norm::None, "{name}");
        let mut of_graphs = convolution;
        of_graphs.tell_graphs();
        assert_eq!(norm(&of_graphs), Norm::None, "{name}");
    }
}

/// A program of 10 vertices, in half.
fn small(norm: Norm, build: impl FnOnce(&mut Builder, Edges, Value) -> Value) -> Program {
    super::setup::program(Precision::Half, (10, 8), norm, build)
}

/// The text without the empty first line and the indentation of a test.
fn text(of: &str) -> String {
    let lines = of.lines().skip(1).map(str::trim_start);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("{}\n", lines.trim_end())
}

fn transformer(edges: Edges, options: Transformer) -> TransformerLayer {
    TransformerLayer {
        edges,
        outputs: 16,
        averaged: false,
        options,
    }
}

fn dropping() -> Transformer {
    Transformer {
        heads: 2,
        attention_dropout: 0.25,
        ..Transformer::default()
    }
}

#[test]
fn attention_by_dot_products_reads_as_one_operator_each_way() {
    let build = |g: &mut Builder, edges, x| transformer(edges, dropping()).build(g, x);
    let mut program = small(Norm::None, build);
    halfgnn::program::differentiate(&mut program).expect("parameters");
    assert_eq!(
        program.listing(),
        text(
            "
            %3 = matmul x query.weight
            %4 = activate %3, bias query.bias (kept)
            %7 = matmul x key.weight
            %8 = activate %7, bias key.bias (kept)
            %11 = matmul x value.weight
            %12 = activate %11, bias value.bias (kept)
            %13 = dot_attention edges %12, scores 0.35355338 %4 %8ᵀ, 2 heads, dropout 0.25 #65536 (kept)
            %15 = matmul x self.weight
            %16 = combine %13 + %15
            backward
            %18 = matmul xᵀ seed
            %19, %20, %21 = dot_attention_gradient seed of %13, edges %12, scores 0.35355338 %4 %8ᵀ, 2 heads, dropout 0.25 #65536
            %22 = column_sums %21
            %23 = matmul xᵀ %21
            %24 = column_sums %20
            %25 = matmul xᵀ %20
            %26 = column_sums %19
            %27 = matmul xᵀ %19
            "
        )
    );
    let mut evaluated = small(Norm::None, build);
    Evaluate.run(&mut evaluated).expect("a forward list");
    let listing = evaluated.listing();
    assert!(!listing.contains("dropout"), "{listing}");
    assert!(listing.contains("dot_attention"), "{listing}");
}

#[test]
fn a_product_has_a_product_for_each_factor_as_its_gradient() {
    let build = |g: &mut Builder, edges, x: Value| {
        let [a, b] = ["a", "b"].map(|name| g.weight(name, (8, 8)));
        let (left, right) = (g.matmul(x, a), g.matmul(x, b));
        let both = g.multiply(left, right);
        // A factor without parameters has no gradient, and a square has one twice.
        let degrees = g.degrees(edges);
        let degrees = g.repeat(degrees, 8);
        let both = g.multiply(degrees, both);
        g.multiply(both, both)
    };
    let mut program = small(Norm::None, build);
    halfgnn::program::differentiate(&mut program).expect("parameters");
    assert_eq!(
        program.listing(),
        text(
            "
            %3 = matmul x a (kept)
            %4 = matmul x b (kept)
            %5 = multiply %3 %4
            %7 = aggregate edges ones
            %9 = matmul %7 %8 (kept)
            %10 = multiply %9 %5 (kept)
            %11 = multiply %10 %10
            backward
            %13 = multiply seed %10
            %14 = multiply seed %10
            %15 = combine %13 + %14
            %16 = multiply %15 %9
            %17 = multiply %16 %4
            %18 = multiply %16 %3
            %19 = matmul xᵀ %18
            %20 = matmul xᵀ %17
            "
        )
    );
}

#[test]
fn what_attention_by_dot_products_cannot_do_is_refused() {
    let build = |g: &mut Builder, edges, x| transformer(edges, dropping()).build(g, x);
    let mut program = compiled(small(Norm::None, build), false);
    let format = CodeFormat::Int8;
    let refused = Quantize { format }
        .run(&mut program)
        .expect_err("attention");
    assert_eq!(
        refused.to_string(),
        "Program: attention by dot products has no sums of 8-bit values; leave messages as they are"
    );
    let a = Adjacency {
        rows: 10,
        columns: 10,
        edges: vec![(0, 1), (2, 3)],
        weights: Some(vec![0.5, 2.0]),
        features: Vec::new(),
        norm: Norm::None,
    };
    let backend = Cpu::new();
    let edges = vec![Arc::new(a.propagation(&backend, Precision::Half))];
    let refused = Runner::new(&backend, small(Norm::None, build), edges, 7).expect_err("weights");
    assert_eq!(
        refused.to_string(),
        "Program: the program attends over `edges`, whose edges have weights, without a term for weights of edges; give them as features of edges"
    );
    let mut g = Builder::new(Precision::Half);
    let vertices = g.vertices("vertices", 10);
    let edges = g.edges("edges", vertices, vertices, Norm::None);
    let x = g.input("x", vertices, 6);
    let heads = Heads {
        count: 2,
        columns: 3,
        averaged: false,
    };
    let y = g.dot_attention(edges, [x, x, x], heads, 0.0);
    let refused = g.finish(y).expect_err("heads of 3 columns").to_string();
    assert_eq!(
        refused,
        "Program: dot_attention: a head of 3 columns among 2 does not fill whole vectors; make it by Builder::heads_weight"
    );
    let wide = super::setup::program(Precision::Half, (10, 520), Norm::None, |g, edges, x| {
        let heads = g.heads(1, 512, false);
        let all = [0, 1, 2].map(|part| {
            let weight = g.heads_weight(&format!("{part}"), 520, heads);
            g.matmul(x, weight)
        });
        g.dot_attention(edges, all, heads, 0.0)
    });
    assert_eq!(wide.forward_len(), 4);
}

/// A factor of rows alone is one operator each way.
#[test]
fn rows_are_scaled_by_degree_norms_each_way() {
    let build = |g: &mut Builder, edges, x: Value| {
        let w = g.weight("w", (8, 2));
        let product = g.matmul(x, w);
        g.scale_rows(edges, product)
    };
    let mut program = small(Norm::Right, build);
    halfgnn::program::differentiate(&mut program).expect("parameters");
    assert_eq!(
        program.listing(),
        text(
            "
            %2 = matmul x w
            %3 = activate_gradient %2, rows R[edges]
            backward
            %5 = activate_gradient seed, rows R[edges]
            %6 = matmul xᵀ %5
            "
        )
    );
}

/// A layer that narrows sums products, and each sum adds the next product.
#[test]
fn several_hops_are_summed_by_horners_rule_where_products_are_narrower() {
    let hops = |outputs| {
        let build = move |g: &mut Builder, edges, x| {
            let layer = TagLayer {
                edges,
                outputs,
                hops: 2,
            };
            layer.build(g, x)
        };
        compiled(small(Norm::None, build), false).listing()
    };
    assert_eq!(
        hops(2),
        text(
            "
            %4 = matmul x hops.2.weight
            %6 = matmul x hops.1.weight
            %7 = aggregate edges %4, plus %6
            %9 = matmul x hops.0.weight
            %10 = aggregate edges %7, plus %9
            backward
            %12 = matmul xᵀ seed
            %13 = aggregate edgesᵀ seed
            %14 = matmul xᵀ %13
            %15 = aggregate edgesᵀ %13
            %16 = matmul xᵀ %15
            "
        )
    );
    let widening = hops(30);
    assert!(widening.contains("aggregate edges x"), "{widening}");
}
