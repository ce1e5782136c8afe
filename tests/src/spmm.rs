//! SpMM against float64: every graph, feature length, weight and policy.

use crate::Scale;
use crate::graphs;
use crate::input::{Random, elements, matrix, read, rounded, unwritten};
use crate::reference::{Allowed, SpmmReference, assert_close, roundoff, subnormal_error};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, Accumulate, Addend, Aggregation, EdgeWeights, HalfLoad, Scaling, Schedule, Slices, Spmm,
    SpmmEpilogue, SpmmPolicy, Write,
};
use halfgnn::tensor::{Array, Element, Precision};

/// Sums in float, scaled a batch at a time. Edge-parallel also where a card would choose otherwise, like those below.
pub const IN_FLOAT: SpmmPolicy = SpmmPolicy {
    scaling: Scaling::Discretized,
    accumulate: Accumulate::Float,
    schedule: Schedule::Edge,
    ..SpmmPolicy::DEFAULT
};
/// The paper's: batches in half2 arithmetic, scaled and merged in float.
pub const IN_HALF: SpmmPolicy = SpmmPolicy {
    scaling: Scaling::Discretized,
    accumulate: Accumulate::Half,
    ..IN_FLOAT
};
/// Sums in half that are scaled at their end.
pub const POST: SpmmPolicy = SpmmPolicy {
    scaling: Scaling::PostReduction,
    accumulate: Accumulate::Half,
    ..IN_FLOAT
};
/// Sums in half of scaled products.
pub const PRE: SpmmPolicy = SpmmPolicy {
    scaling: Scaling::PreReduction,
    accumulate: Accumulate::Half,
    ..IN_FLOAT
};

/// A warp a row, sums in float.
pub const BY_VERTEX: SpmmPolicy = SpmmPolicy {
    schedule: Schedule::Vertex,
    ..IN_FLOAT
};
/// A warp a row, batches in half2 arithmetic.
pub const BY_VERTEX_IN_HALF: SpmmPolicy = SpmmPolicy {
    schedule: Schedule::Vertex,
    ..IN_HALF
};

const fn by(load: HalfLoad, policy: SpmmPolicy) -> SpmmPolicy {
    SpmmPolicy { load, ..policy }
}

/// The policies that every backend has for edges without weights.
pub fn policies<E: Element>() -> &'static [SpmmPolicy] {
    const HALF: &[SpmmPolicy] = &[
        IN_FLOAT,
        IN_HALF,
        POST,
        PRE,
        by(HalfLoad::Half4, IN_HALF),
        by(HalfLoad::Half2, IN_HALF),
        BY_VERTEX,
        BY_VERTEX_IN_HALF,
        by(HalfLoad::Half2, BY_VERTEX),
        by(HalfLoad::Half2, BY_VERTEX_IN_HALF),
    ];
    match E::PRECISION {
        Precision::Half => HALF,
        Precision::Float | Precision::BFloat16 => &SCHEDULES,
    }
}

/// Whether elements can be added up as the policy says: bfloats have no arithmetic of their own.
pub fn has_arithmetic<E: Element>(policy: &SpmmPolicy) -> bool {
    E::PRECISION != Precision::BFloat16 || policy.accumulate == Accumulate::Float
}

/// The policies that every backend has for edge weights.
pub fn weighted_policies<E: Element>() -> &'static [SpmmPolicy] {
    const HALF: &[SpmmPolicy] = &[
        IN_FLOAT,
        IN_HALF,
        POST,
        BY_VERTEX,
        BY_VERTEX_IN_HALF,
        by(HalfLoad::Half2, BY_VERTEX_IN_HALF),
    ];
    match E::PRECISION {
        Precision::Half => HALF,
        Precision::Float | Precision::BFloat16 => &SCHEDULES,
    }
}

/// The policies that every backend has for factors of columns, and for maxima.
pub const SCHEDULES: [SpmmPolicy; 2] = [IN_FLOAT, BY_VERTEX];

/// Which weights a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighted {
    /// None.
    Ones,
    /// One an edge.
    Edges,
    /// One a column.
    Columns,
}

/// An epilogue with its operands on the host.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Factor of the addend, and another less 1.
    pub addend: Option<(f32, Option<f32>)>,
    /// The addend, with as many rows as its values are for; `x` itself where absent.
    pub matrix: Option<Vec<f32>>,
    /// Another factor for each row.
    pub addend_scale: Option<Vec<f32>>,
    /// Added to each row.
    pub bias: Option<Vec<f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// Where it is not positive the result becomes zero; with as many rows as its values are for.
    pub positive: Option<Vec<f32>>,
}

/// An SpMM with its inputs on the host.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The graph.
    pub graph: &'a Csr,
    /// Columns of `x`.
    pub features: usize,
    /// The input, row-major.
    pub x: Vec<f32>,
    /// What `weights` are; where they are none, `weights` is not looked at.
    pub weighted: Weighted,
    /// One an edge or a column.
    pub weights: Vec<f32>,
    /// Factors of the rows.
    pub row_scale: Option<Vec<f32>>,
    /// Factor of everything.
    pub scale: f32,
    /// How it computes.
    pub policy: SpmmPolicy,
    /// What becomes of the products of a row.
    pub aggregation: Aggregation,
    /// What becomes of their sum.
    pub ending: Ending,
}

impl<'a> Case<'a> {
    /// Plain sums of random numbers.
    pub fn random<E: Element>(graph: &'a Csr, features: usize, policy: SpmmPolicy) -> Self {
        Self {
            graph,
            features,
            x: Random(10).uniform::<E>(graph.shape().1 * features),
            weighted: Weighted::Ones,
            weights: Vec::new(),
            row_scale: None,
            scale: 1.0,
            policy,
            aggregation: Aggregation::Sum,
            ending: Ending::default(),
        }
    }

    /// With the mean of each row in place of its sum.
    pub fn averaged(mut self) -> Self {
        let factor = |degree: u32| {
            if degree == 0 {
                0.0
            } else {
                1.0 / degree as f32
            }
        };
        let degrees = self.graph.row_degrees();
        self.row_scale = Some(degrees.into_iter().map(factor).collect());
        self
    }

    /// With random weights.
    pub fn weighted<E: Element>(mut self, weighted: Weighted) -> Self {
        self.weighted = weighted;
        self.weights = match weighted {
            Weighted::Ones => Vec::new(),
            Weighted::Edges => Random(11).uniform::<E>(self.graph.edges()),
            Weighted::Columns => Random(12).uniform::<f32>(self.graph.shape().1),
        };
        self
    }

    /// What the backend makes of it, after asserting that its padding is zero.
    pub fn run<B: Backend, E: Element>(&self, backend: &B) -> Vec<f32> {
        let graph = Adjacency::new(backend, self.graph).expect("room for a graph");
        self.run_on::<B, E>(backend, &graph)
    }

    /// [`Case::run`] on the graph as it lies on the backend.
    pub fn run_on<B: Backend, E: Element>(&self, backend: &B, graph: &Adjacency<B>) -> Vec<f32> {
        let (rows, columns) = self.graph.shape();
        let x = matrix::<B, E>(backend, (columns, self.features), &self.x);
        let mut y = unwritten::<B, E>(backend, (rows, self.features));
        let (edges, columns): (Array<B, E>, Array<B, f32>);
        let weights = match self.weighted {
            Weighted::Ones => EdgeWeights::Ones,
            Weighted::Edges => {
                edges = elements(backend, &self.weights);
                EdgeWeights::Features(&edges)
            }
            Weighted::Columns => {
                columns = elements(backend, &self.weights);
                EdgeWeights::Columns(&columns)
            }
        };
        let row_scale = self
            .row_scale
            .as_ref()
            .map(|scale| elements(backend, scale));
        let Ending {
            addend,
            matrix: other,
            addend_scale,
            bias,
            relu,
            positive,
        } = &self.ending;
        let of_values = |values: &Vec<f32>| {
            let shape = (values.len() / self.features, self.features);
            matrix::<B, E>(backend, shape, values)
        };
        let other = other.as_ref().map(of_values);
        let positive = positive.as_ref().map(of_values);
        let addend_scale = addend_scale.as_ref().map(|scale| elements(backend, scale));
        let epsilon = addend.and_then(|(_, epsilon)| epsilon);
        let epsilon = epsilon.map(|epsilon| matrix::<B, f32>(backend, (1, 1), &[epsilon]));
        let bias = bias
            .as_ref()
            .map(|bias| matrix::<B, f32>(backend, (1, self.features), bias));
        let op = Spmm {
            weights,
            row_scale: row_scale.as_ref(),
            scale: self.scale,
            policy: self.policy,
            aggregation: self.aggregation,
            epilogue: SpmmEpilogue {
                addend: addend.map(|(factor, _)| Addend {
                    matrix: other.as_ref().unwrap_or(&x),
                    factor,
                    row_scale: addend_scale.as_ref(),
                    epsilon: epsilon.as_ref(),
                }),
                bias: bias.as_ref(),
                relu: *relu,
                positive: positive.as_ref(),
            },
        };
        ops::spmm(backend, graph, &op, &x, &mut y).expect("a legal product");
        read(backend, &y)
    }

    /// Runs it and compares the answer with float64.
    pub fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let weight = |edge: usize| match self.weighted {
            Weighted::Ones => 1.0,
            Weighted::Edges => self.weights[edge],
            Weighted::Columns => self.weights[self.graph.cols()[edge] as usize],
        };
        let reference = SpmmReference {
            graph: self.graph,
            weight: &weight,
            row_scale: self.row_scale.as_deref(),
            scale: self.scale,
            features: self.features,
        };
        let what = format!(
            "{what}, F = {}, {:?} weights, {} precision, {:?}",
            self.features,
            self.weighted,
            E::PRECISION,
            self.policy
        );
        let actual = self.run::<B, E>(backend);
        let mut expected = reference.of(&self.x);
        for (i, sum) in expected.iter_mut().enumerate() {
            if let Some((factor, epsilon)) = self.ending.addend {
                let factor = f64::from(factor) * (1.0 + f64::from(epsilon.unwrap_or(0.0)));
                let of_row = |scale: &Vec<f32>| f64::from(scale[i / self.features]);
                let factor = factor * self.ending.addend_scale.as_ref().map_or(1.0, of_row);
                let values = self.ending.matrix.as_ref().unwrap_or(&self.x);
                sum.add(factor * f64::from(values[i]));
            }
            if let Some(bias) = &self.ending.bias {
                sum.add(f64::from(bias[i % self.features]));
            }
            if self.ending.relu && sum.value < 0.0 {
                sum.value = 0.0;
            }
            if let Some(positive) = &self.ending.positive
                && positive[i] <= 0.0
            {
                sum.value = 0.0;
                assert_eq!(actual[i], 0.0, "{what}: element {i} is let through");
            }
        }
        assert_close::<E>(&what, &actual, &expected, self.features, |row| {
            self.allowed::<E>(self.graph.row_range(row).len())
        });
    }

    fn allowed<E: Element>(&self, degree: usize) -> Allowed {
        let in_half = E::PRECISION == Precision::Half && self.policy.accumulate == Accumulate::Half;
        let roundings = if self.weighted == Weighted::Ones {
            0
        } else {
            1
        };
        match self.policy.scaling {
            // Passes that follow round what came before them: twice where there is an epilogue for edge weights.
            _ if self.weighted == Weighted::Edges
                && (self.ending.addend.is_some() || self.ending.bias.is_some()) =>
            {
                let roundings = 2.0 * roundoff::<E>();
                let allowed = Allowed::float(degree);
                Allowed {
                    relative: allowed.relative + roundings,
                    absolute: allowed.absolute + 2.0 * subnormal_error::<E>(),
                }
            }
            _ if !in_half => Allowed::float(degree),
            // A batch is a warp's edges at most, of a row 32; what is merged is merged in float.
            Scaling::Discretized => Allowed::half(degree.min(256), roundings),
            Scaling::PostReduction => Allowed::half(degree, roundings + 1),
            Scaling::PreReduction => Allowed::half(degree, roundings + 2),
        }
    }
}

fn on_both<B: Backend>(backend: &B, graph: &Csr, features: usize, what: &str) {
    on_policies::<B, f16>(backend, graph, features, what);
    on_policies::<B, f32>(backend, graph, features, what);
}

fn on_policies<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, what: &str) {
    for &policy in policies::<E>() {
        Case::random::<E>(graph, features, policy)
            .averaged()
            .check::<B, E>(backend, what);
    }
}

/// Odd graphs, means of rows, every policy.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_both(backend, &graph, 9, name);
    }
}

/// More rows than columns, fewer, none of either: every policy and every weight.
pub fn rows_and_columns<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, name: &str) {
        for &policy in weighted_policies::<E>() {
            let case = Case::random::<E>(graph, 19, policy).averaged();
            case.clone()
                .weighted::<E>(Weighted::Edges)
                .check::<B, E>(backend, name);
            case.check::<B, E>(backend, name);
        }
        for policy in SCHEDULES {
            Case::random::<E>(graph, 70, policy)
                .averaged()
                .weighted::<E>(Weighted::Columns)
                .check::<B, E>(backend, name);
        }
    }
    for (name, graph) in graphs::rectangular(scale) {
        check::<B, f16>(backend, &graph, name);
        check::<B, f32>(backend, &graph, name);
    }
}

/// Rows that end around every boundary, and that span many CTAs.
pub fn rows_that_cross_boundaries<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::boundaries(scale) {
        for policy in [IN_FLOAT, IN_HALF] {
            Case::random::<f16>(&graph, 3, policy)
                .averaged()
                .check::<B, f16>(backend, &name);
        }
        Case::random::<bf16>(&graph, 3, IN_FLOAT)
            .averaged()
            .check::<B, bf16>(backend, &name);
        if scale == Scale::Full {
            Case::random::<f32>(&graph, 3, IN_FLOAT).check::<B, f32>(backend, &name);
        }
    }
}

/// Feature lengths around every width of a load, with padding or without.
pub fn every_feature_length<B: Backend>(backend: &B, scale: Scale) {
    let graph = graphs::power_law(60, scale.pick(700, 5_000), Random(20));
    let lengths: &[usize] = &[
        1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 41, 47, 64, 127, 128, 256, 602,
    ];
    for &features in lengths {
        for policy in [IN_FLOAT, IN_HALF, BY_VERTEX, BY_VERTEX_IN_HALF] {
            let case = Case::random::<f16>(&graph, features, policy).averaged();
            case.check::<B, f16>(backend, "power law");
        }
        for policy in SCHEDULES {
            let case = Case::random::<bf16>(&graph, features, policy).averaged();
            case.check::<B, bf16>(backend, "power law");
            let case = Case::random::<f32>(&graph, features, policy).averaged();
            case.check::<B, f32>(backend, "power law");
        }
    }
}

/// SpMMve, with and without row factors and a factor of everything.
pub fn edge_weights<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for &policy in weighted_policies::<E>() {
            for features in [1, 16, 33] {
                let mut case = Case::random::<E>(graph, features, policy)
                    .averaged()
                    .weighted::<E>(Weighted::Edges);
                case.check::<B, E>(backend, "mean");
                case.row_scale = None;
                case.scale = rounded::<f32>(-0.3);
                case.check::<B, E>(backend, "times -0.3");
            }
        }
    }
    let graph = graphs::power_law(90, scale.pick(1_100, 30_000), Random(21));
    check::<B, f16>(backend, &graph);
    check::<B, bf16>(backend, &graph);
    check::<B, f32>(backend, &graph);
}

/// A factor of each column.
pub fn column_factors<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for (features, policy) in [3, 64].into_iter().flat_map(|f| SCHEDULES.map(|p| (f, p))) {
            Case::random::<E>(graph, features, policy)
                .averaged()
                .weighted::<E>(Weighted::Columns)
                .check::<B, E>(backend, "mean");
        }
    }
    let graph = graphs::power_law(90, scale.pick(1_100, 30_000), Random(22));
    check::<B, f16>(backend, &graph);
    check::<B, bf16>(backend, &graph);
    check::<B, f32>(backend, &graph);
}

/// An epilogue of every kind, with every kind of weight, by one policy.
fn check_epilogues<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    policy: SpmmPolicy,
    features: usize,
    name: &str,
) {
    for weighted in [Weighted::Ones, Weighted::Columns, Weighted::Edges] {
        for parts in [1, 2, 4, 7, 8, 13_u32] {
            let mut case = Case::random::<E>(graph, features, policy)
                .averaged()
                .weighted::<E>(weighted);
            case.scale = 0.7;
            case.ending = Ending {
                addend: (parts & 1 != 0).then_some((-1.3, (parts & 2 != 0).then_some(0.4))),
                // `x` itself, or another matrix, of more rows than the product where it is tall.
                matrix: (parts & 2 != 0).then(|| {
                    let rows = graph.vertices() + (features % 2) * 3;
                    Random(29).uniform::<E>(rows * features)
                }),
                addend_scale: (parts & 4 != 0).then(|| Random(28).uniform::<f32>(graph.vertices())),
                bias: (parts & 2 != 0).then(|| Random(26).uniform::<f32>(features)),
                relu: parts & 4 != 0,
                positive: (parts & 8 != 0).then(|| {
                    let rows = graph.vertices() + (features % 2) * 2;
                    Random(30).uniform::<E>(rows * features)
                }),
            };
            case.check::<B, E>(backend, name);
        }
    }
}

/// An addend, a bias and a ReLU, alone and together: on odd graphs and long rows, whose rows are written in every way
/// there is, and with edge weights, for which passes follow.
pub fn epilogues<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, name: &str) {
        for policy in SCHEDULES {
            check_epilogues::<B, E>(backend, graph, policy, features, name);
        }
    }
    for (name, graph) in graphs::odd(scale) {
        check::<B, f16>(backend, &graph, 13, name);
        check::<B, bf16>(backend, &graph, 13, name);
        check::<B, f32>(backend, &graph, 13, name);
    }
    // `x` has too few rows to be added where there are fewer columns than rows.
    for (name, graph) in graphs::rectangular(scale) {
        if graph.shape().1 >= graph.vertices() {
            check::<B, f16>(backend, &graph, 13, name);
            check::<B, f32>(backend, &graph, 13, name);
        }
    }
    let degrees = [0, 600, 3, scale.pick(2_100, 9_000), 1, 0, 70, 64, 200];
    let graph = graphs::from_degrees(&degrees.repeat(scale.pick(1, 3)), Random(27));
    for features in [1, scale.pick(41, 130)] {
        check::<B, f16>(backend, &graph, features, "long rows");
        check::<B, bf16>(backend, &graph, features, "long rows");
        check::<B, f32>(backend, &graph, features, "long rows");
    }
}

/// Every number of edges a warp, on rows that end around the boundaries that it makes.
pub fn edges_per_warp<B: Backend>(backend: &B, scale: Scale) {
    let degrees = [
        0, 7, 1, 0, 15, 16, 17, 31, 33, 64, 1, 127, 129, 255, 257, 513, 2, 1100, 3,
    ];
    for repeat in [1, scale.pick(2, 9)] {
        let graph = graphs::from_degrees(&degrees.repeat(repeat), Random(23));
        for edges in [16, 32, 64, 128, 256] {
            for accumulate in [Accumulate::Float, Accumulate::Half] {
                let policy = SpmmPolicy {
                    accumulate,
                    edges_per_warp: Some(edges),
                    ..IN_FLOAT
                };
                // Rows of so many loads that a sub-warp of the smallest warp has four edges.
                for features in [57, 130, 300] {
                    Case::random::<f16>(&graph, features, policy)
                        .averaged()
                        .weighted::<f16>(Weighted::Edges)
                        .check::<B, f16>(backend, &format!("{edges} edges a warp"));
                }
                Case::random::<f32>(&graph, 30, policy)
                    .averaged()
                    .check::<B, f32>(backend, &format!("{edges} edges a warp"));
            }
        }
    }
}

/// Rows of 5, 6, 9 and 10 loads, of which more fit a warp than powers of two of its lanes: rows that end about the steps of such shares, which are
/// not all as long, rows without edges, and epilogues.
pub fn packed_lanes<B: Backend>(backend: &B, scale: Scale) {
    let degrees = [
        0, 7, 1, 0, 3, 4, 5, 8, 12, 20, 24, 28, 1, 44, 48, 52, 0, 63, 64, 65, 2, 127, 257, 513, 0,
        1100, 3,
    ];
    let long = graphs::from_degrees(&degrees.repeat(scale.pick(2, 9)), Random(23));
    let short = graphs::from_degrees(&[1, 3, 0, 4, 2].repeat(scale.pick(120, 900)), Random(24));
    for (name, graph) in [("long rows", long), ("short rows", short)] {
        for edges in [64, 128, 256] {
            let policy = SpmmPolicy {
                edges_per_warp: Some(edges),
                ..IN_FLOAT
            };
            let what = format!("{name}, {edges} edges a warp");
            let in_half = SpmmPolicy {
                accumulate: Accumulate::Half,
                ..policy
            };
            for features in [40, 47, 66, 80] {
                for policy in [policy, in_half] {
                    let case = Case::random::<f16>(&graph, features, policy).averaged();
                    case.check::<B, f16>(backend, &what);
                }
                let case = Case::random::<bf16>(&graph, features, policy);
                case.check::<B, bf16>(backend, &what);
                let case = Case::random::<f32>(&graph, features / 2, policy).averaged();
                case.check::<B, f32>(backend, &what);
            }
        }
        let policy = SpmmPolicy {
            edges_per_warp: Some(64),
            ..IN_FLOAT
        };
        check_epilogues::<B, f16>(backend, &graph, policy, 47, name);
        check_epilogues::<B, bf16>(backend, &graph, policy, 80, name);
        check_epilogues::<B, f32>(backend, &graph, policy, 20, name);
    }
}

/// Wide rows in slices of a cache line, the last of which may be part of one: every sum, schedule and epilogue, on rows that end
/// at every place.
pub fn slices<B: Backend>(backend: &B, scale: Scale) {
    let degrees = [0, 7, 1, 129, 0, 255, 513, 2, 1100, 3];
    let graph = graphs::from_degrees(&degrees.repeat(scale.pick(1, 9)), Random(25));
    let lines = |policy: SpmmPolicy| SpmmPolicy {
        slices: Slices::Lines,
        ..policy
    };
    let narrow = lines(by(HalfLoad::Half2, IN_HALF));
    let case = Case::random::<f16>(&graph, 136, narrow).averaged();
    case.check::<B, f16>(backend, "narrow loads in slices");
    for policy in [IN_FLOAT, IN_HALF, BY_VERTEX].map(lines) {
        for features in [64, 65, 128, 300] {
            for weighted in [Weighted::Ones, Weighted::Edges, Weighted::Columns] {
                let case = Case::random::<f16>(&graph, features, policy).averaged();
                let case = case.weighted::<f16>(weighted);
                case.check::<B, f16>(backend, &format!("{weighted:?} in slices"));
            }
        }
    }
    for policy in [IN_FLOAT, BY_VERTEX].map(lines) {
        check_epilogues::<B, f16>(backend, &graph, policy, 136, "in slices");
        check_epilogues::<B, bf16>(backend, &graph, policy, 200, "in slices");
        check_epilogues::<B, f32>(backend, &graph, policy, 72, "in slices");
    }
}

/// HP-SpMM's partition: as many edges a warp as its inequality says, of every length of rows.
pub fn hybrid<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, accumulate: Accumulate) {
        let policy = SpmmPolicy {
            accumulate,
            schedule: Schedule::Hybrid,
            ..SpmmPolicy::DEFAULT
        };
        for features in [1, 6, 16, 57, 130, 300] {
            Case::random::<E>(graph, features, policy)
                .averaged()
                .check::<B, E>(backend, "hybrid");
        }
    }
    let graphs = [
        graphs::from_degrees(&[0, 7, 1, 129, 255, 513, 2, 1100, 3], Random(23)),
        graphs::power_law(300, scale.pick(20_000, 400_000), Random(24)),
    ];
    for graph in graphs {
        check::<B, f16>(backend, &graph, Accumulate::Float);
        check::<B, f16>(backend, &graph, Accumulate::Half);
        check::<B, bf16>(backend, &graph, Accumulate::Float);
        check::<B, f32>(backend, &graph, Accumulate::Float);
    }
}

/// A warp a row and a CTA a long one: rows that end around a group of 32 edges, around what makes a row long, and around
/// what four warps walk at a time, at every place of a CTA and beside each other.
pub fn vertex_parallel<B: Backend>(backend: &B, scale: Scale) {
    let degrees = [
        0, 1, 31, 32, 33, 63, 64, 65, 2, 66, 127, 128, 129, 0, 0, 95, 96, 97, 3, 160, 161, 255,
        256, 257, 5, 385, 4, 0, 600,
    ];
    for place in 0..4 {
        let graph: Vec<usize> = std::iter::repeat_n(7, place).chain(degrees).collect();
        let graph = graphs::from_degrees(&graph, Random(26));
        let what = format!("{place} rows before");
        // A lane a row, sub-warps of several widths, whole warps, and several tiles.
        for features in scale.pick(vec![3, 64, 300], vec![3, 16, 40, 64, 130, 300]) {
            for policy in [BY_VERTEX, BY_VERTEX_IN_HALF] {
                Case::random::<f16>(&graph, features, policy)
                    .averaged()
                    .weighted::<f16>(Weighted::Edges)
                    .check::<B, f16>(backend, &what);
            }
            Case::random::<f32>(&graph, features, BY_VERTEX)
                .averaged()
                .weighted::<f32>(Weighted::Columns)
                .check::<B, f32>(backend, &what);
        }
    }
}

/// Parts of rows that are added to the output by atomics: integers that half holds exactly, in any order.
pub fn atomic_writes<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, policy: SpmmPolicy, name: &str) {
        let policy = SpmmPolicy {
            write: Write::Atomic,
            ..policy
        };
        let mut case = Case::random::<E>(graph, 11, policy);
        let longest = graph.row_degrees().into_iter().max().unwrap_or(0).max(1);
        case.x = Random(24).integers((2047 / longest).min(30), case.x.len());
        case.check::<B, E>(backend, name);
    }
    for (name, graph) in graphs::odd(Scale::Small) {
        check::<B, f16>(backend, &graph, IN_FLOAT, name);
        check::<B, f16>(backend, &graph, IN_HALF, name);
        check::<B, f32>(backend, &graph, IN_FLOAT, name);
    }
}

/// The largest of each column: exactly, NaN where one is, zero where there is no edge.
pub fn maxima<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, name: &str) {
        for policy in SCHEDULES {
            check_by::<B, E>(backend, graph, policy, name);
        }
    }
    fn check_by<B: Backend, E: Element>(backend: &B, graph: &Csr, policy: SpmmPolicy, name: &str) {
        for weighted in [Weighted::Ones, Weighted::Edges] {
            for features in [5, 64] {
                let mut case = Case::random::<E>(graph, features, policy).weighted::<E>(weighted);
                case.aggregation = Aggregation::Max;
                case.scale = -0.5;
                if let Some(value) = case.x.get_mut(3 * features) {
                    *value = f32::NAN;
                }
                let actual = case.run::<B, E>(backend);
                for (row, actual) in actual.chunks_exact(features).enumerate() {
                    for (column, &actual) in actual.iter().enumerate() {
                        let mut largest = None::<f32>;
                        for edge in graph.row_range(row) {
                            let x = case.x[graph.cols()[edge] as usize * features + column];
                            let weight = case.weights.get(edge).map_or(1.0, |&weight| weight);
                            let product = rounded::<E>(weight * x);
                            largest = Some(match largest {
                                Some(largest) if product.is_nan() || largest.is_nan() => f32::NAN,
                                Some(largest) => largest.max(product),
                                None => product,
                            });
                        }
                        let expected = rounded::<E>(largest.map_or(0.0, |largest| -0.5 * largest));
                        assert!(
                            actual == expected || actual.is_nan() && expected.is_nan(),
                            "{name}, {policy:?}, row {row}, column {column}: {actual} for {expected}"
                        );
                    }
                }
            }
        }
    }
    for (name, graph) in graphs::odd(scale) {
        check::<B, f16>(backend, &graph, name);
        check::<B, bf16>(backend, &graph, name);
        check::<B, f32>(backend, &graph, name);
    }
    let giant = graphs::from_degrees(&[3, scale.pick(9_000, 90_000), 1, 0], Random(25));
    check::<B, f16>(backend, &giant, "a row of many CTAs");
}
