//! SDDMM against float64: every graph, feature length, number of heads and policy.

use crate::Scale;
use crate::graphs::{self, from_edges};
use crate::input::{Random, elements, matrix};
use crate::reference::{Allowed, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{self, Accumulate, HalfLoad, Reduction, Sddmm, SddmmPolicy, edge_plane};
use halfgnn::tensor::{Array, Element, Precision};

const fn policy(accumulate: Accumulate, reduction: Reduction, load: HalfLoad) -> SddmmPolicy {
    SddmmPolicy {
        accumulate,
        reduction,
        load,
        ctas_per_multiprocessor: None,
        hybrid: false,
        read_anew: false,
    }
}

/// The policies that every backend has; the first is the default.
pub fn policies<E: Element>() -> &'static [SddmmPolicy] {
    use Accumulate::{Float, Half};
    use HalfLoad::{Half2, Half4, Half8};
    use Reduction::{Shuffles, TensorCores};
    const HALF: [SddmmPolicy; 6] = [
        policy(Float, TensorCores, Half8),
        policy(Float, Shuffles, Half8),
        policy(Half, Shuffles, Half8),
        policy(Half, Shuffles, Half4),
        policy(Half, Shuffles, Half2),
        policy(Float, Shuffles, Half2),
    ];
    match E::PRECISION {
        Precision::Half => &HALF,
        Precision::Float => &HALF[..1],
        // On tensor cores, and by shuffles.
        Precision::BFloat16 => &HALF[..2],
    }
}

/// An SDDMM with its inputs on the host.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The graph.
    pub graph: &'a Csr,
    /// Columns of a head.
    pub features: usize,
    /// Features of the rows, row-major.
    pub u: Vec<f32>,
    /// Features of the columns, row-major.
    pub v: Vec<f32>,
    /// What is done with them.
    pub op: Sddmm,
}

impl<'a> Case<'a> {
    /// Dot products of random numbers.
    pub fn random<E: Element>(
        graph: &'a Csr,
        heads: usize,
        features: usize,
        policy: SddmmPolicy,
    ) -> Self {
        let (rows, columns) = graph.shape();
        let len = |vertices| vertices * heads * features;
        Self {
            graph,
            features,
            u: Random(60).uniform::<E>(len(rows)),
            v: Random(61).uniform::<E>(len(columns)),
            op: Sddmm {
                heads,
                policy,
                ..Sddmm::default()
            },
        }
    }

    /// Dot products of integers from `-most` to `most`.
    pub fn integers(mut self, most: u32) -> Self {
        self.u = Random(62).integers(most, self.u.len());
        self.v = Random(63).integers(most, self.v.len());
        self
    }

    /// What the backend makes of it, head by head without the ends of the planes, which are asserted to be zero.
    pub fn run<B: Backend, E: Element>(&self, backend: &B) -> Vec<f32> {
        let graph = Adjacency::new(backend, self.graph).expect("room for a graph");
        self.run_on::<B, E>(backend, &graph)
    }

    /// [`Case::run`] on the graph as it lies on the backend.
    pub fn run_on<B: Backend, E: Element>(&self, backend: &B, graph: &Adjacency<B>) -> Vec<f32> {
        let heads = self.op.heads;
        let ((rows, columns), width) = (self.graph.shape(), heads * self.features);
        let u = matrix::<B, E>(backend, (rows, width), &self.u);
        let v = matrix::<B, E>(backend, (columns, width), &self.v);
        let plane = edge_plane(self.graph.edges());
        let mut e: Array<B, E> = elements(backend, &vec![f32::NAN; heads * plane]);
        ops::sddmm(backend, graph, &self.op, &u, &v, &mut e).expect("a legal SDDMM");
        let e = e.to_vec(backend).expect("no failure before");
        let mut values = Vec::with_capacity(heads * self.graph.edges());
        for plane in e.chunks_exact(plane.max(1)) {
            let (edges, end) = plane.split_at(self.graph.edges());
            assert!(
                end.iter().all(|value| value.to_f32() == 0.0),
                "the end of a plane is {end:?}"
            );
            values.extend(edges.iter().map(|value| value.to_f32()));
        }
        values
    }

    /// The sums in float64.
    pub fn reference(&self) -> Vec<Sum> {
        let (graph, features) = (self.graph, self.features);
        let stride = self.op.heads * features;
        let mut sums = Vec::with_capacity(self.op.heads * graph.edges());
        for head in 0..self.op.heads {
            for (&row, &column) in graph.rows().iter().zip(graph.cols()) {
                let u = &self.u[row as usize * stride + head * features..][..features];
                let v = &self.v[column as usize * stride + head * features..][..features];
                let mut sum = Sum::default();
                for (&u, &v) in u.iter().zip(v) {
                    sum.add(f64::from(u) * f64::from(v));
                }
                sums.push(sum.scaled(f64::from(self.op.scale)));
            }
        }
        sums
    }

    /// Runs it and compares the answer with float64.
    pub fn check<B: Backend, E: Element>(&self, backend: &B, what: &str) {
        let what = format!(
            "{what}, {} heads of {}, {} precision, {:?}",
            self.op.heads,
            self.features,
            E::PRECISION,
            self.op.policy
        );
        let in_half =
            E::PRECISION == Precision::Half && self.op.policy.accumulate == Accumulate::Half;
        // A lane adds up four products in half at most, and as many again for each 256 features.
        let allowed = if in_half {
            Allowed::half(4 * self.features.div_ceil(256), 1)
        } else {
            Allowed::float(self.features)
        };
        let actual = self.run::<B, E>(backend);
        assert_close::<E>(&what, &actual, &self.reference(), 1, |_| allowed);
    }
}

fn on_both<B: Backend>(backend: &B, graph: &Csr, features: usize, what: &str) {
    fn on<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, what: &str) {
        for &policy in policies::<E>() {
            Case::random::<E>(graph, 1, features, policy).check::<B, E>(backend, what);
        }
    }
    on::<B, f16>(backend, graph, features, what);
    on::<B, bf16>(backend, graph, features, what);
    on::<B, f32>(backend, graph, features, what);
}

/// Odd graphs, every policy.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::odd(scale) {
        on_both(backend, &graph, 9, name);
    }
}

/// More rows than columns, fewer, none of either.
pub fn rows_and_columns<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::rectangular(scale) {
        on_both(backend, &graph, 21, name);
    }
}

/// Rows that end around every boundary of a sub-warp's edges, a step's and a tile's.
pub fn rows_that_cross_boundaries<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs::boundaries(scale) {
        for &policy in &policies::<f16>()[..2] {
            Case::random::<f16>(&graph, 1, 33, policy).check::<B, f16>(backend, &name);
        }
        if scale == Scale::Full {
            Case::random::<f32>(&graph, 1, 3, SddmmPolicy::default())
                .check::<B, f32>(backend, &name);
        }
    }
}

/// Numbers of edges around every multiple of a tile and of a vector.
pub fn every_number_of_edges<B: Backend>(backend: &B, scale: Scale) {
    let most = scale.pick(140, 700);
    for edges in (0..20).chain((20..most).step_by(scale.pick(9, 1))) {
        let pairs: Vec<(u32, u32)> = (0..edges).map(|edge| (edge / 3 % 90, edge % 7)).collect();
        let graph = from_edges(90, &pairs);
        for &policy in &policies::<f16>()[..2] {
            let case = Case::random::<f16>(&graph, 1, 5, policy);
            case.check::<B, f16>(backend, &format!("{edges} edges"));
        }
    }
}

/// Feature lengths around every width of a load, with padding or without, up to several loads a lane.
pub fn every_feature_length<B: Backend>(backend: &B, scale: Scale) {
    let graph = graphs::power_law(60, scale.pick(500, 5_000), Random(64));
    let lengths: &[usize] = &[
        1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 41, 47, 64, 65, 96, 127, 128, 256, 602, 1100,
    ];
    for &features in lengths {
        on_both(backend, &graph, features, "power law");
    }
}

/// Several heads, each a dot product of its own columns.
pub fn heads<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for &policy in policies::<E>() {
            for (heads, vectors) in [(2, 1), (3, 4), (8, 1), (2, 9)] {
                Case::random::<E>(graph, heads, vectors * E::LANES, policy)
                    .check::<B, E>(backend, "heads");
            }
        }
    }
    let graph = graphs::power_law(90, scale.pick(300, 3_000), Random(65));
    check::<B, f16>(backend, &graph);
    check::<B, bf16>(backend, &graph);
    check::<B, f32>(backend, &graph);
}

/// A factor of everything, in float: a dot product that half cannot hold comes out where its multiple does.
pub fn factors<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::power_law(40, 300, Random(66));
    for &policy in policies::<f16>() {
        let mut case = Case::random::<f16>(&graph, 1, 24, policy);
        case.op.scale = -0.3;
        case.check::<B, f16>(backend, "times -0.3");
    }
    let mut case = Case::random::<f16>(&graph, 1, 64, SddmmPolicy::default());
    (case.u, case.v) = (vec![128.0; case.u.len()], vec![64.0; case.v.len()]);
    assert_eq!(case.run::<B, f16>(backend), vec![f32::INFINITY; 300]);
    case.op.scale = 0.0625;
    assert_eq!(case.run::<B, f16>(backend), vec![32_768.0; 300]);
}

/// Operands that do not fit are refused by name, and so are heads that columns cannot be divided into.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_edges(3, &[(0, 1), (2, 0)]);
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let refused = |heads, u: (usize, usize), v: (usize, usize), len: usize| {
        let op = Sddmm {
            heads,
            ..Sddmm::default()
        };
        let (u, v) = (
            matrix::<B, f16>(backend, u, &vec![0.0; u.0 * u.1]),
            matrix::<B, f16>(backend, v, &vec![0.0; v.0 * v.1]),
        );
        let mut e = elements(backend, &vec![0.0; len]);
        let error = ops::sddmm(backend, &a, &op, &u, &v, &mut e).expect_err("a misfit");
        error.to_string()
    };
    let cases = [
        (1, (2, 4), (3, 4), 8, "rows of u should be 3, is 2"),
        (1, (3, 4), (4, 4), 8, "rows of v should be 3, is 4"),
        (1, (3, 4), (3, 5), 8, "columns of v should be 4, is 5"),
        (1, (3, 4), (3, 4), 2, "edge values should be 8, is 2"),
        (2, (3, 16), (3, 16), 8, "edge values should be 16, is 8"),
        (0, (3, 4), (3, 4), 8, "0 heads; 1 to 65535 are possible"),
        (
            2,
            (3, 20),
            (3, 20),
            16,
            "20 columns cannot be cut into 2 heads of whole vectors of 8 elements",
        ),
    ];
    for (heads, u, v, len, words) in cases {
        assert_eq!(refused(heads, u, v, len), format!("sddmm: {words}"));
    }
}

/// HP-SDDMM's partition, and rows that are read anew, give the bits of the default: what a sub-warp computes of an edge is the same.
pub fn partitions<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr, features: usize, what: &str) {
        let base = policies::<E>()[0];
        let run = |policy| Case::random::<E>(graph, 1, features, policy).run::<B, E>(backend);
        let expected = run(base);
        for policy in [
            SddmmPolicy {
                hybrid: true,
                ..base
            },
            SddmmPolicy {
                read_anew: true,
                ..base
            },
        ] {
            assert_eq!(run(policy), expected, "{policy:?}, {what}, F={features}");
        }
    }
    for (name, graph) in graphs::boundaries(scale) {
        check::<B, f16>(backend, &graph, 13, &name);
        check::<B, f32>(backend, &graph, 40, &name);
    }
    let graph = graphs::power_law(60, scale.pick(9_000, 200_000), Random(64));
    for features in [7, 64] {
        check::<B, f16>(backend, &graph, features, "a power law");
        check::<B, bf16>(backend, &graph, features, "a power law");
        check::<B, f32>(backend, &graph, features, "a power law");
    }
}
