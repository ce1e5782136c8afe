//! Layers that reduce messages other than by sums.

use super::{Adjacency, Case, Dense, biased, case, normalized, relu};
use halfgnn::nn::{Aggregate, Edge, Gen, Gine, Norm, Pna};
use halfgnn::ops::MessageReduction;
use halfgnn::program::layers::{EdgeConvLayer, GenLayer, GineLayer, GraphConvLayer, PnaLayer};

/// The names of its cases.
pub const NAMES: [&str; 5] = ["reduced graphconv", "reduced gine", "edge", "gen", "pna"];

impl Adjacency {
    /// What is made of the messages `message(i, j, e)` of each row, column by column; zeros of a row without edges.
    fn reduced(
        &self,
        columns: usize,
        aggregate: Aggregate,
        message: impl Fn(usize, usize, usize, usize) -> f64,
    ) -> Dense {
        let mut values = Vec::new();
        for of in 0..self.rows {
            for column in 0..columns {
                let edges = self.edges.iter().enumerate();
                let edges = edges.filter(|(_, (row, _))| *row == of);
                let messages = edges.map(|(edge, &(row, from))| message(row, from, edge, column));
                values.push(reduced(aggregate, &messages.collect::<Vec<_>>()));
            }
        }
        Dense::new(self.rows, columns, values)
    }
}

fn reduced(aggregate: Aggregate, messages: &[f64]) -> f64 {
    if messages.is_empty() {
        return 0.0;
    }
    let count = messages.len() as f64;
    let mean = messages.iter().sum::<f64>() / count;
    match aggregate {
        Aggregate::Mean => mean,
        Aggregate::Sum => mean * count,
        Aggregate::Max => messages.iter().copied().fold(f64::MIN, f64::max),
        Aggregate::Min => messages.iter().copied().fold(f64::MAX, f64::min),
        Aggregate::Softmax => {
            let weights = messages.iter().map(|m| m.exp());
            let weighted = messages.iter().map(|m| m * m.exp());
            weighted.sum::<f64>() / weights.sum::<f64>()
        }
        Aggregate::Std => {
            let squares = messages.iter().map(|m| m * m).sum::<f64>() / count;
            let variance = squares - mean * mean;
            if variance <= 1e-5 {
                0.0
            } else {
                variance.sqrt()
            }
        }
    }
}

/// The norm that edges have for an aggregation.
fn norm_of(aggregate: Aggregate) -> Norm {
    match aggregate {
        Aggregate::Mean => Norm::Right,
        _ => Norm::None,
    }
}

pub fn all() -> Vec<Case> {
    let mut all = Vec::new();
    for (aggregate, reduction) in [
        (Aggregate::Max, MessageReduction::Max),
        (Aggregate::Min, MessageReduction::Min),
        (Aggregate::Softmax, MessageReduction::Softmax),
        (Aggregate::Std, MessageReduction::Deviation),
    ] {
        all.push(case(
            ("reduced graphconv", Norm::None),
            (5, 4),
            false,
            move |edges| GraphConvLayer {
                edges,
                outputs: 4,
                reduction: Some(reduction),
            },
            move |values, a, x| {
                let of = a.reduced(5, aggregate, |_, from, _, at| x.at(from, at));
                let own = a.own(x).product(&values["self.weight"]);
                own.plus(1.0, &of.product(&values["neighbours.weight"]))
            },
        ));
    }
    all.push(gine(2));
    for aggregate in [Aggregate::Max, Aggregate::Mean, Aggregate::Softmax] {
        all.push(edge(aggregate));
    }
    for (aggregate, edge_features, widths, temperature) in [
        (Aggregate::Softmax, 0, (5, 4), 1.0),
        (Aggregate::Softmax, 3, (4, 4), 0.5),
        (Aggregate::Mean, 2, (5, 4), 1.0),
    ] {
        all.push(generalized(aggregate, edge_features, widths, temperature));
    }
    all.push(pna(0));
    all.push(pna(2));
    for case in &mut all {
        case.is_weighted = false;
    }
    all
}

fn gine(edge_features: usize) -> Case {
    let options = Gine {
        aggregate: Aggregate::Max,
        edge_features,
        ..Gine::default()
    };
    let mut gine = case(
        ("reduced gine", Norm::None),
        (5, 4),
        false,
        move |edges| GineLayer {
            edges,
            hidden: 6,
            outputs: 4,
            options: options.clone(),
        },
        move |values, a, x| {
            let rows = biased(
                &a.features().product(&values["edge.weight"]),
                &values["edge.bias"],
            );
            let most = a.reduced(5, Aggregate::Max, |_, from, edge, at| {
                relu(x.at(from, at) + rows.at(edge, at))
            });
            let between = most.plus(1.0, &a.own(x)).product(&values["mlp.0.weight"]);
            let between = normalized(&between, &values["norm.weight"], &values["norm.bias"]);
            between.map(relu).product(&values["mlp.1.weight"])
        },
    );
    gine.edge_features = edge_features;
    gine
}

fn edge(aggregate: Aggregate) -> Case {
    case(
        ("edge", norm_of(aggregate)),
        (6, 5),
        false,
        move |edges| EdgeConvLayer {
            edges,
            outputs: 5,
            options: Edge { aggregate },
        },
        move |values, a, x| {
            let own = x.product(&values["self.weight"]);
            let map = x.product(&values["difference.weight"]);
            a.reduced(5, aggregate, |row, from, _, at| {
                own.at(row, at) + map.at(from, at) - map.at(row, at)
            })
        },
    )
}

fn generalized(
    aggregate: Aggregate,
    edge_features: usize,
    widths: (usize, usize),
    temperature: f32,
) -> Case {
    let outputs = widths.1;
    let options = Gen {
        aggregate,
        temperature,
        edge_features,
        ..Gen::default()
    };
    let mut generalized = case(
        ("gen", norm_of(aggregate)),
        widths,
        false,
        move |edges| GenLayer {
            edges,
            outputs,
            options: options.clone(),
        },
        move |values, a, x| {
            let own = a.own(x);
            let [x, own] = match widths.0 == widths.1 {
                true => [x.clone(), own],
                false => [
                    x.product(&values["source.weight"]),
                    own.product(&values["self.weight"]),
                ],
            };
            let rows = (edge_features > 0).then(|| a.features().product(&values["edge.weight"]));
            let t = f64::from(temperature);
            let of = a.reduced(outputs, aggregate, |_, from, edge, at| {
                let of_edge = rows.as_ref().map_or(0.0, |rows| rows.at(edge, at));
                t * relu(x.at(from, at) + of_edge)
            });
            let sum = own.plus(1.0 / t, &of).product(&values["mlp.0.weight"]);
            let between = normalized(&sum, &values["norm.weight"], &values["norm.bias"]);
            between.map(relu).product(&values["mlp.1.weight"])
        },
    );
    generalized.edge_features = edge_features;
    generalized
}

fn pna(edge_features: usize) -> Case {
    let options = Pna {
        log_degree: Some(1.25),
        edge_features,
    };
    let mut pna = case(
        ("pna", Norm::Right),
        (4, 5),
        false,
        move |edges| PnaLayer {
            edges,
            outputs: 5,
            options: options.clone(),
        },
        move |values, a, x| {
            let weight = |name: &str, at: usize| &values[&format!("{name}.{at}.weight")];
            let own = biased(
                &a.own(x).product(weight("message", 0)),
                &values["message.bias"],
            );
            let sources = x.product(weight("message", 1));
            let rows = (edge_features > 0).then(|| {
                let encoded = a.features().product(&values["edge.weight"]);
                biased(&encoded, &values["edge.bias"]).product(weight("message", 2))
            });
            let message = |row, from, edge, at| {
                let of_edge = rows.as_ref().map_or(0.0, |rows| rows.at(edge, at));
                own.at(row, at) + sources.at(from, at) + of_edge
            };
            let aggregates = [
                Aggregate::Mean,
                Aggregate::Min,
                Aggregate::Max,
                Aggregate::Std,
            ];
            let all = aggregates.map(|aggregate| a.reduced(4, aggregate, message));
            let degree = |row: usize| {
                let of_row = a.edges.iter().filter(|(of, _)| *of == row);
                of_row.count() as f64
            };
            let scaled = |of: &Dense, scale: &dyn Fn(f64) -> f64| {
                let values = of.values.iter().enumerate();
                let values = values.map(|(at, it)| it * scale(degree(at / of.columns)));
                Dense::new(of.rows, of.columns, values)
            };
            let scales: [&dyn Fn(f64) -> f64; 3] = [
                &|_| 1.0,
                &|degree| degree.ln_1p() / 1.25,
                // The aggregations of a row without edges are zero.
                &|degree| {
                    if degree == 0.0 {
                        0.0
                    } else {
                        1.25 / degree.ln_1p()
                    }
                },
            ];
            let mut parts = vec![a.own(x)];
            for scale in scales {
                parts.extend(all.iter().map(|of| scaled(of, scale)));
            }
            let weights: Vec<&Dense> = (0..parts.len()).map(|at| weight("post", at)).collect();
            let post = parts
                .iter()
                .zip(weights)
                .map(|(part, weight)| part.product(weight))
                .reduce(|sum, part| sum.plus(1.0, &part))
                .expect("parts");
            biased(&post, &values["post.bias"]).product(&values["output.weight"])
        },
    );
    pna.edge_features = edge_features;
    pna
}
