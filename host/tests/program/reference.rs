//! Programs next to formulas in double: forward passes, and gradients by central differences of them.

use super::setup::{compiled, graph, numbers, program, runner};
use halfgnn::backend::cpu::Cpu;
use halfgnn::nn::{Gin as GinConfig, HiddenNorm, Norm};
use halfgnn::ops::Nonlinearity;
use halfgnn::program::layers::{Gin, Layer};
use halfgnn::program::{Builder, Edges, Runner, Value};
use halfgnn::tensor::Precision;
use std::collections::HashMap;

/// A matrix in double.
#[derive(Clone, Debug)]
pub struct Dense {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl Dense {
    pub fn new(rows: usize, columns: usize, values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        assert_eq!(values.len(), rows * columns);
        Self {
            rows,
            columns,
            values,
        }
    }

    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    fn make(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self::new(
            rows,
            columns,
            places
                .map(|(row, column)| at(row, column))
                .collect::<Vec<_>>(),
        )
    }

    pub fn product(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.rows);
        let columns = other.columns;
        let mut sums = vec![0.0; self.rows * columns];
        for (at, factor) in self.values.iter().enumerate() {
            let (row, it) = (at / self.columns, at % self.columns);
            for column in 0..columns {
                sums[row * columns + column] += factor * other.values[it * columns + column];
            }
        }
        Self::new(self.rows, columns, sums)
    }

    pub fn plus(&self, factor: f64, other: &Self) -> Self {
        assert_eq!((self.rows, self.columns), (other.rows, other.columns));
        Self::make(self.rows, self.columns, |row, column| {
            self.at(row, column) + factor * other.at(row, column)
        })
    }

    pub fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        Self::new(
            self.rows,
            self.columns,
            self.values.iter().map(|value| of(*value)),
        )
    }

    pub fn transposed(&self) -> Self {
        Self::make(self.columns, self.rows, |row, column| self.at(column, row))
    }

    /// Mean and variance of each column.
    pub fn moments(&self) -> (Vec<f64>, Vec<f64>) {
        let mean = |of: &dyn Fn(f64, usize) -> f64, column: usize| {
            let sum: f64 = (0..self.rows)
                .map(|row| of(self.at(row, column), column))
                .sum();
            sum / self.rows as f64
        };
        let means: Vec<f64> = (0..self.columns).map(|it| mean(&|x, _| x, it)).collect();
        let variance = |it| mean(&|x, column: usize| (x - means[column]).powi(2), it);
        let variances = (0..self.columns).map(variance).collect();
        (means, variances)
    }

    /// The sum, or the mean, over edges (row, column).
    pub fn aggregated(&self, rows: usize, edges: &[(u32, u32)], mean: bool) -> Self {
        let mut sums = vec![0.0; rows * self.columns];
        let mut degrees = vec![0_u32; rows];
        for &(to, from) in edges {
            let (to, from) = (to as usize, from as usize);
            degrees[to] += 1;
            for column in 0..self.columns {
                sums[to * self.columns + column] += self.values[from * self.columns + column];
            }
        }
        if mean {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum /= f64::from(degrees[at / self.columns].max(1));
            }
        }
        Self::new(rows, self.columns, sums)
    }
}

/// Parameters and inputs by name.
pub type Values = HashMap<String, Dense>;

/// Asserts that outputs and gradients are those of `formula`, to 1e-5 of the largest number of each, of programs of the
/// same values with other passes.
pub fn assert_is(
    runners: &mut [Runner],
    outputs: &[Value],
    formula: &dyn Fn(&Values) -> Vec<Dense>,
) {
    let mut values = Values::new();
    let program = runners[0].program().clone();
    let outside = [program.inputs(), program.parameters()].concat();
    for (number, value) in outside.iter().enumerate() {
        let description = program.description(*value);
        let len = runners[0].read(*value).expect("values").len();
        let given = numbers(number as u64 + 1, len);
        for runner in &mut *runners {
            runner.write(*value, &given).expect("memory");
        }
        let columns = description.shape.columns;
        let given = given.into_iter().map(f64::from);
        values.insert(
            description.name.clone(),
            Dense::new(len / columns, columns, given),
        );
    }
    let expected = formula(&values);
    let seed = numbers(99, expected[0].values.len());
    for runner in &mut *runners {
        runner.forward().expect("a forward pass");
        for (output, expected) in outputs.iter().zip(&expected) {
            assert_near(
                "an output",
                &expected.values,
                &runner.read(*output).expect("logits"),
            );
        }
        runner.write_seed(&seed).expect("memory");
        runner.backward().expect("a backward pass");
    }
    let loss = |values: &Values| -> f64 {
        let output = &formula(values)[0];
        output
            .values
            .iter()
            .zip(&seed)
            .map(|(y, d)| y * f64::from(*d))
            .sum()
    };
    for parameter in program.parameters() {
        let name = program.description(parameter).name.clone();
        let differences: Vec<f64> = (0..values[&name].values.len())
            .map(|element| {
                const STEP: f64 = 1e-6;
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values.get_mut(&name).expect("a parameter").values[element] += by;
                    loss(&values)
                };
                (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
            })
            .collect();
        if program.gradient_of(parameter).is_none() {
            assert!(
                differences.iter().all(|it| *it == 0.0),
                "{name} has a gradient"
            );
            continue;
        }
        assert!(
            differences.iter().any(|it| it.abs() > 1e-3),
            "{name} does nothing"
        );
        for runner in &*runners {
            let gradient = runner.gradient(parameter).expect("a gradient");
            assert_near(&format!("the gradient of {name}"), &differences, &gradient);
        }
    }
}

fn assert_near(what: &str, expected: &[f64], found: &[f32]) {
    let largest = expected.iter().fold(0.0_f64, |most, it| most.max(it.abs()));
    assert_eq!(expected.len(), found.len(), "{what}");
    for (expected, found) in expected.iter().zip(found) {
        let off = (expected - f64::from(*found)).abs();
        assert!(
            off <= 1e-5 * largest,
            "{what}: {expected} and {found}, of {largest}"
        );
    }
}

/// The edges of the shared graph as (row, column).
pub fn edges() -> Vec<(u32, u32)> {
    let graph = graph();
    (0..graph.edges())
        .map(|edge| (graph.csr().row_of(edge), graph.cols()[edge]))
        .collect()
}

/// Checks a formula over the shared graph, with and without passes.
pub fn check(
    norm: Norm,
    features: usize,
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
    formula: impl Fn(&Values) -> Dense,
) {
    let backend = Cpu::new();
    let size = (graph().vertices(), features);
    let formula = |values: &Values| vec![formula(values)];
    let new = || program(Precision::Float, size, norm, &build);
    let mut plain = new();
    halfgnn::program::differentiate(&mut plain).expect("parameters");
    let output = plain.output().expect("an output");
    let programs = [plain, compiled(new(), false), compiled(new(), true)];
    let mut runners = programs.map(|program| runner(&backend, program, norm));
    assert_is(&mut runners, &[output], &formula);
}

/// `relu(weight · (x − mean) / √(variance + 1e-5) + bias)` by columns.
pub fn normalized(x: &Dense, weight: &Dense, bias: &Dense) -> Dense {
    let (mean, variance) = x.moments();
    Dense::make(x.rows, x.columns, |row, column| {
        let centred = x.at(row, column) - mean[column];
        weight.at(0, column) * centred / (variance[column] + 1e-5).sqrt() + bias.at(0, column)
    })
}

#[test]
fn gin_is_its_formula() {
    for learn_epsilon in [false, true] {
        let layer = move |edges| Gin {
            edges,
            hidden: 6,
            outputs: 3,
            options: GinConfig {
                lambda: 0.5,
                epsilon: 0.25,
                learn_epsilon,
                ..GinConfig::default()
            },
        };
        check(
            Norm::Right,
            4,
            |g, edges, x| layer(edges).build(g, x),
            |values| {
                let x = &values["x"];
                let epsilon = values
                    .get("epsilon")
                    .map_or(0.25, |epsilon| epsilon.values[0]);
                let mean = x.aggregated(x.rows, &edges(), true);
                let sum = mean.map(|it| 0.5 * it).plus(1.0 + epsilon, x);
                let between = sum.product(&values["mlp.0.weight"]);
                let between = normalized(&between, &values["norm.weight"], &values["norm.bias"]);
                between
                    .map(|it| it.max(0.0))
                    .product(&values["mlp.1.weight"])
            },
        );
    }
}

#[test]
fn norms_are_their_formulas() {
    for norm in HiddenNorm::ALL {
        let build = |g: &mut Builder, edges: Edges, x: Value| {
            let first = g.weight("first", (4, 5));
            let second = g.weight("second", (5, 3));
            let sum = g.aggregate(edges, x);
            let y = g.matmul(sum, first);
            let y = g.hidden_norm("norm", norm, y);
            let y = g.nonlinearity(Nonlinearity::Tanh, y);
            g.matmul(y, second)
        };
        check(Norm::Right, 4, build, |values| {
            let x = &values["x"];
            let y = x
                .aggregated(x.rows, &edges(), true)
                .product(&values["first"]);
            let of = |name: &str| &values[name];
            let y = match norm {
                HiddenNorm::None => y,
                HiddenNorm::Batch => normalized(&y, of("norm.weight"), of("norm.bias")),
                HiddenNorm::Layer => {
                    let (mean, variance) = y.transposed().moments();
                    Dense::make(y.rows, y.columns, |row, column| {
                        let centred = y.at(row, column) - mean[row];
                        of("norm.weight").at(0, column) * centred / (variance[row] + 1e-5).sqrt()
                            + of("norm.bias").at(0, column)
                    })
                }
                HiddenNorm::Pair => {
                    let (mean, variance) = y.moments();
                    // The mean of rows' squares.
                    let square: f64 = variance.iter().sum();
                    Dense::make(y.rows, y.columns, |row, column| {
                        (y.at(row, column) - mean[column]) / (square + 1e-5).sqrt()
                    })
                }
                HiddenNorm::Graph => {
                    let (mean, _) = y.moments();
                    let scale = of("norm.mean_scale");
                    let less = Dense::make(y.rows, y.columns, |row, column| {
                        y.at(row, column) - scale.at(0, column) * mean[column]
                    });
                    let squares = less.map(|it| it * it);
                    let (square, _) = squares.moments();
                    Dense::make(y.rows, y.columns, |row, column| {
                        of("norm.weight").at(0, column) * less.at(row, column)
                            / (square[column] + 1e-5).sqrt()
                            + of("norm.bias").at(0, column)
                    })
                }
            };
            y.map(f64::tanh).product(&values["second"])
        });
    }
}

#[test]
fn activation_functions_and_transposed_products_are_their_formulas() {
    let build = |g: &mut Builder, edges: Edges, x: Value| {
        let first = g.weight("first", (4, 5));
        let second = g.weight("second", (3, 5));
        let share = g.scalar("share", 0.5);
        let sum = g.aggregate(edges, x);
        let y = g.matmul(sum, first);
        let y = g.nonlinearity(Nonlinearity::Gelu, y);
        let z = g.nonlinearity(Nonlinearity::Tanh, y);
        let y = g.combine(&[(0.5, y), (-2.0, z)]);
        let y = g.matmul_transposed(y, second);
        g.scale(y, share)
    };
    check(Norm::Right, 4, build, |values| {
        let x = &values["x"];
        let y = x
            .aggregated(x.rows, &edges(), true)
            .product(&values["first"]);
        let gelu = y.map(|it| it * normal(it));
        let y = gelu.map(|it| 0.5 * it).plus(-2.0, &gelu.map(f64::tanh));
        let second = &values["second"];
        let transposed = Dense::make(5, 3, |row, column| second.at(column, row));
        y.product(&transposed)
            .map(|it| it * values["share"].values[0])
    });
}

/// The normal distribution, by its series.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / (2.0 * f64::from(n));
        sum += term / f64::from(2 * n + 1);
    }
    0.5 + sum / (2.0 * std::f64::consts::PI).sqrt()
}
