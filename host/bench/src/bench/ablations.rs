//! `halfgnn bench ablations`: each of the paper's ideas with it and without, in one run, compared with the paper's
//! figure; and the errors of what a batch can be added up in.

use super::measure::{Operand, Times, check_means};
use super::operator::{Operator, SddmmOperator};
use super::peers;
use crate::failure::Failure;
use crate::graphs::{self, GraphName};
use crate::json::JsonLines;
use crate::names::DeviceName;
use crate::policy::{SddmmPolicyName, SpmmPolicyName};
use clap::{Args, ValueEnum};
use half::f16;
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::graph::Graph;
use halfgnn::ops::{Accumulate, HalfLoad, Scaling, Schedule, Spmm, SpmmPolicy, Write};
use halfgnn::tensor::{Array, Element, Matrix, Precision, padded};
use halfgnn::with_element;
use halfgnn::{Error, ops};
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The paper whose ideas are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// HalfGNN's
    Halfgnn,
    /// GNNOne's: rows kept, wide loads, edges that a warp caches, and how its lanes divide them
    Gnnone,
}

impl Paper {
    fn ablations(self) -> &'static [Ablation] {
        match self {
            Paper::Halfgnn => &ABLATIONS,
            Paper::Gnnone => &GNNONE,
        }
    }

    /// Those whose errors are reported.
    fn sums(self) -> &'static [(SpmmPolicy, Precision)] {
        match self {
            Paper::Halfgnn => &SUMS,
            Paper::Gnnone => &CACHES,
        }
    }
}

/// What `--help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench ablations --graph amazon-like --graph kron:21 --graph products-like --json ablations.jsonl
  halfgnn bench ablations --paper gnnone --graph kron:21 --features 6,16,32 --json gnnone.jsonl
  halfgnn bench ablations --graph kron:10 --device cpu    errors alone

Both sides of a ratio are timed in this run on the same operands: means of the neighbours' rows (SpMM) and dot products
(SDDMM). Errors are those of means of numbers from 0 to 64, which half holds, while it does not hold a hub's sum. Where
there is no GPU there are no times: the CPU has neither loads nor warps nor atomics, and the emulator no clock.";

/// Options of `bench ablations`.
#[derive(Args)]
pub struct AblationsArgs {
    /// Whose ideas; each as policies of this library's kernels, which share everything else
    #[arg(long, value_enum, value_name = "PAPER", default_value_t = Paper::Halfgnn)]
    pub paper: Paper,
    /// Graphs, as of `bench spmm`; may be repeated
    #[arg(long = "graph", value_name = "FILE|NAME|kron:SCALE", required = true)]
    pub graphs: Vec<GraphName>,
    /// Feature lengths
    #[arg(long, value_name = "F", value_delimiter = ',', default_values_t = [32, 64], value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub features: Vec<u32>,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Something that is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    /// The mean of the neighbours' rows.
    Spmm(SpmmPolicyName, Precision),
    /// Dot products, in half.
    Sddmm(SddmmPolicyName),
}

impl Kernel {
    fn name(self) -> String {
        match self {
            Kernel::Spmm(policy, precision) => format!("{precision} {policy}"),
            Kernel::Sddmm(policy) => format!("half {}", SddmmOperator::name(policy)),
        }
    }
}

/// One idea.
#[derive(Clone, Copy, Debug)]
struct Ablation {
    name: &'static str,
    /// How many times faster in the mean it makes the paper's kernel, where the paper has a number.
    paper: Option<f64>,
    /// What the paper says, and where.
    claim: &'static str,
    with: Kernel,
    without: Kernel,
}

/// The paper's SpMM: edge-parallel, half2 arithmetic, discretized, no atomics.
const EDGE: SpmmPolicy = SpmmPolicy {
    accumulate: Accumulate::Half,
    schedule: Schedule::Edge,
    ..SpmmPolicy::DEFAULT
};

/// A warp a row.
const VERTEX: SpmmPolicy = SpmmPolicy {
    accumulate: Accumulate::Half,
    schedule: Schedule::Vertex,
    ..SpmmPolicy::DEFAULT
};

const fn half(policy: SpmmPolicy) -> Kernel {
    Kernel::Spmm(SpmmPolicyName(policy), Precision::Half)
}

const VERTEX_IN_FLOAT: Kernel = Kernel::Spmm(
    SpmmPolicyName(SpmmPolicy {
        accumulate: Accumulate::Float,
        ..VERTEX
    }),
    Precision::Float,
);

/// All of them.
const ABLATIONS: [Ablation; 7] = [
    Ablation {
        name: "SDDMM: half8 over half2 loads",
        paper: Some(1.67),
        claim: "Fig. 8",
        with: Kernel::Sddmm(SddmmPolicyName::Half8InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half2InHalf),
    },
    Ablation {
        name: "SDDMM: half8 over half4 loads",
        paper: None,
        claim: "§4.2: wider is faster",
        with: Kernel::Sddmm(SddmmPolicyName::Half8InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half4InHalf),
    },
    Ablation {
        name: "SDDMM: half4 over half2 loads",
        paper: None,
        claim: "§4.2: wider is faster",
        with: Kernel::Sddmm(SddmmPolicyName::Half4InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half2InHalf),
    },
    Ablation {
        name: "SpMM: non-atomic over atomic writes",
        paper: None,
        claim: "Fig. 9: faster on every graph",
        with: half(EDGE),
        without: half(SpmmPolicy {
            write: Write::Atomic,
            ..EDGE
        }),
    },
    Ablation {
        name: "SpMM, vertex-parallel: half2 over float",
        paper: Some(1.79),
        claim: "Fig. 10",
        with: half(SpmmPolicy {
            load: HalfLoad::Half2,
            ..VERTEX
        }),
        without: VERTEX_IN_FLOAT,
    },
    Ablation {
        name: "SpMM, vertex-parallel: half8 over float",
        paper: None,
        claim: "§4.3.3, with the widest loads on both sides",
        with: half(VERTEX),
        without: VERTEX_IN_FLOAT,
    },
    Ablation {
        name: "SpMM: discretized over post-reduction scaling",
        paper: Some(1.0),
        claim: "§4.3.1: it costs nothing",
        with: half(EDGE),
        without: half(SpmmPolicy {
            scaling: Scaling::PostReduction,
            ..EDGE
        }),
    },
];

/// A warp that caches the given number of edges at once.
const fn caching(edges: u32) -> SpmmPolicy {
    SpmmPolicy {
        accumulate: Accumulate::Float,
        edges_per_warp: Some(edges),
        ..EDGE
    }
}

/// The two sizes of GNNOne's cache, in its precision.
const CACHES: [(SpmmPolicy, Precision); 2] = [
    (caching(128), Precision::Float),
    (caching(32), Precision::Float),
];

const fn float(policy: SpmmPolicy) -> Kernel {
    Kernel::Spmm(SpmmPolicyName(policy), Precision::Float)
}

/// GNNOne's SpMM: plain COO, 128 edges that a warp caches, what threads have of a row added by atomics.
const fn coo(schedule: Schedule) -> SpmmPolicy {
    SpmmPolicy {
        schedule,
        write: Write::Atomic,
        ..caching(128)
    }
}

/// GNNOne's (§5.4), as policies of the kernels here: what they are with and without differs in nothing else.
const GNNONE: [Ablation; 5] = [
    Ablation {
        name: "SDDMM: features of rows kept over read anew",
        paper: Some(2.78),
        claim: "Fig. 8, reuse; there with the caching of edges, which both sides have here",
        with: Kernel::Sddmm(SddmmPolicyName::Half2InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half2InHalfAnew),
    },
    Ablation {
        name: "SDDMM: 16-byte over 4-byte loads",
        paper: Some(1.80),
        claim: "Fig. 8, float4 over float; here half8 over half2",
        with: Kernel::Sddmm(SddmmPolicyName::Half8InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half2InHalf),
    },
    Ablation {
        name: "SDDMM: reuse and 16-byte loads",
        paper: Some(4.59),
        claim: "Fig. 8, both, F = 32",
        with: Kernel::Sddmm(SddmmPolicyName::Half8InHalf),
        without: Kernel::Sddmm(SddmmPolicyName::Half2InHalfAnew),
    },
    Ablation {
        name: "SpMM: 128 over 32 edges cached by a warp",
        paper: Some(1.31),
        claim: "Fig. 9, F = 16, float",
        with: float(caching(128)),
        without: float(caching(32)),
    },
    Ablation {
        name: "SpMM: consecutive over round-robin edges",
        paper: Some(1.10),
        claim: "Fig. 10, loads alone there; here rows as well, by atomics where several groups of lanes have some of one",
        with: float(coo(Schedule::RowIds)),
        without: float(coo(Schedule::RowIdsInTurn)),
    },
];

/// Those whose errors are reported: every way to add up, in both schedules.
const SUMS: [(SpmmPolicy, Precision); 7] = {
    const fn float(policy: SpmmPolicy) -> SpmmPolicy {
        SpmmPolicy {
            accumulate: Accumulate::Float,
            ..policy
        }
    }
    const fn scaled(scaling: Scaling) -> SpmmPolicy {
        SpmmPolicy { scaling, ..EDGE }
    }
    [
        (float(EDGE), Precision::Half),
        (EDGE, Precision::Half),
        (float(VERTEX), Precision::Half),
        (VERTEX, Precision::Half),
        (scaled(Scaling::PostReduction), Precision::Half),
        (scaled(Scaling::PreReduction), Precision::Half),
        (float(EDGE), Precision::Float),
    ]
};

/// One idea on one graph, timed.
#[derive(Clone, Debug, Serialize)]
struct Row {
    event: &'static str,
    ablation: &'static str,
    graph: String,
    device: String,
    features: u32,
    with: String,
    without: String,
    ms_with: f64,
    ms_without: f64,
    /// Times as fast with it.
    ratio: f64,
    paper: Option<f64>,
    claim: &'static str,
}

/// Errors of one way to add up on one graph.
#[derive(Clone, Debug, Serialize)]
struct Accuracy {
    event: &'static str,
    graph: String,
    device: String,
    features: u32,
    precision: String,
    policy: String,
    /// Largest |error| over the exact mean, of those that are finite.
    largest_error: f64,
    /// Elements that are infinite or NaN, where half holds the exact mean.
    not_finite: usize,
    /// Elements that were compared.
    checked: usize,
}

/// An idea over all graphs and feature lengths.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Summary {
    event: &'static str,
    ablation: &'static str,
    geometric_mean: f64,
    least: f64,
    most: f64,
    cases: usize,
    paper: Option<f64>,
    claim: &'static str,
}

impl Summary {
    /// Of the rows of one ablation; none where there are none.
    fn of(ablation: &Ablation, rows: &[Row]) -> Option<Self> {
        let ratios: Vec<f64> = rows
            .iter()
            .filter(|row| row.ablation == ablation.name)
            .map(|row| row.ratio)
            .collect();
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (!ratios.is_empty()).then(|| Self {
            event: "ablation_summary",
            ablation: ablation.name,
            geometric_mean: (logs / ratios.len() as f64).exp(),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            cases: ratios.len(),
            paper: ablation.paper,
            claim: ablation.claim,
        })
    }

    fn line(&self) -> String {
        let paper = match self.paper {
            Some(ratio) => format!("paper {ratio:.2}, {}", self.claim),
            None => format!("paper {}", self.claim),
        };
        format!(
            "{:<46} {:>6.2}x in the geometric mean of {} ({:.2} to {:.2})   {paper}",
            self.ablation, self.geometric_mean, self.cases, self.least, self.most
        )
    }
}

/// Times all of them and reports the errors, graph by graph.
pub fn run(args: &AblationsArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut told = Told {
        json: graphs::json_lines(&args.graphs, args.json.as_deref())?,
        rows: Vec::new(),
    };
    graphs::each(&args.graphs, |label, graph| {
        let ablate = Ablate {
            args,
            label,
            graph: &graph,
            told: &mut told,
            stop,
        };
        device::open(args.device.into(), ablate)?
    })?;
    let ablations = args.paper.ablations();
    let summaries: Vec<Summary> = ablations
        .iter()
        .filter_map(|ablation| Summary::of(ablation, &told.rows))
        .collect();
    for summary in &summaries {
        told.say(&summary.line());
        told.write(summary)?;
    }
    told.json.finish()
}

/// What has been reported so far.
struct Told {
    json: JsonLines,
    rows: Vec<Row>,
}

impl Told {
    fn say(&self, line: &str) {
        // A reader who leaves (`| head`) is no failure.
        let _ = match self.json.is_stdout() {
            true => writeln!(io::stderr(), "{line}"),
            false => writeln!(io::stdout(), "{line}"),
        };
    }

    fn write<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        Ok(self.json.write(value)?)
    }
}

/// All ablations on one graph.
struct Ablate<'a> {
    args: &'a AblationsArgs,
    label: &'a str,
    graph: &'a Graph,
    told: &'a mut Told,
    stop: &'a AtomicBool,
}

impl Task for Ablate<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let adjacency = Adjacency::new(backend, self.graph.csr())?;
        let timed = peers::is_card(backend);
        if !timed {
            self.told.say(&format!(
                "{}: errors alone; {} cannot time what loads, warps and atomics of a GPU are worth",
                self.label,
                backend.name()
            ));
        }
        for &features in &self.args.features {
            for &(policy, precision) in self.args.paper.sums() {
                let policy = SpmmPolicyName(policy);
                with_element!(precision, E => {
                    self.errors::<B, E>(backend, &adjacency, features, policy)
                })?;
            }
            if timed {
                self.times(backend, &adjacency, features)?;
            }
        }
        Ok(())
    }
}

impl Ablate<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What was computed, or nothing where the feature length has no such kernel, which is said.
    fn legal<T>(
        &self,
        features: u32,
        name: String,
        computed: Result<T, Error>,
    ) -> Result<Option<T>, Failure> {
        match computed {
            Ok(computed) => Ok(Some(computed)),
            Err(error @ Error::Unsupported { .. }) => {
                self.told.say(&format!(
                    "{}, F = {features}: no {name}: {error}",
                    self.label
                ));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn errors<B: Backend, E: Element>(
        &mut self,
        backend: &B,
        adjacency: &Adjacency<B>,
        features: u32,
        policy: SpmmPolicyName,
    ) -> Result<(), Failure> {
        if self.stopped() {
            return Ok(());
        }
        let mut means = Means::<B, E>::new(backend, self.graph, features, 0.0..64.0)?;
        let called = means.call(backend, adjacency, policy.0);
        if self.legal(features, policy.to_string(), called)?.is_none() {
            return Ok(());
        }
        let found = check_means(backend, self.graph.csr(), &means.x, &means.y)?;
        let accuracy = Accuracy {
            event: "accuracy",
            graph: self.label.into(),
            device: backend.name(),
            features,
            precision: E::PRECISION.to_string(),
            policy: policy.to_string(),
            largest_error: found.largest_error,
            not_finite: found.not_finite,
            checked: found.checked,
        };
        let infinite = match accuracy.not_finite {
            0 => String::new(),
            count => format!(
                ", and {count} of {} are infinite or NaN, though half holds the mean",
                accuracy.checked
            ),
        };
        self.told.say(&format!(
            "{:<16} F={:<4} {:<5} {:<24} largest error of a mean {:.1e}{infinite}",
            accuracy.graph,
            accuracy.features,
            accuracy.precision,
            accuracy.policy,
            accuracy.largest_error,
        ));
        self.told.write(&accuracy)
    }

    fn times<B: Backend>(
        &mut self,
        backend: &B,
        adjacency: &Adjacency<B>,
        features: u32,
    ) -> Result<(), Failure> {
        // What several of them have is timed once.
        let mut timed: Vec<(Kernel, f64)> = Vec::new();
        for ablation in self.args.paper.ablations() {
            for kernel in [ablation.with, ablation.without] {
                if self.stopped() {
                    return Ok(());
                }
                if timed.iter().all(|(other, _)| *other != kernel) {
                    let ms = match kernel {
                        Kernel::Sddmm(policy) => self.sddmm(backend, adjacency, features, policy),
                        Kernel::Spmm(policy, precision) => with_element!(precision, E => {
                            self.spmm::<B, E>(backend, adjacency, features, policy)
                        }),
                    };
                    let Some(ms) = self.legal(features, kernel.name(), ms)? else {
                        continue;
                    };
                    timed.push((kernel, ms));
                }
            }
            let ms = |kernel| {
                let found = timed.iter().find(|(other, _)| *other == kernel);
                found.map(|(_, ms)| *ms)
            };
            let (Some(ms_with), Some(ms_without)) = (ms(ablation.with), ms(ablation.without))
            else {
                continue;
            };
            let row = Row {
                event: "ablation",
                ablation: ablation.name,
                graph: self.label.into(),
                device: backend.name(),
                features,
                with: ablation.with.name(),
                without: ablation.without.name(),
                ms_with,
                ms_without,
                ratio: ms_without / ms_with,
                paper: ablation.paper,
                claim: ablation.claim,
            };
            self.told.say(&format!(
                "{:<16} F={:<4} {:<46} {:>6.2}x  {:>9.4} ms ({}) for {:.4} ({})",
                row.graph,
                row.features,
                row.ablation,
                row.ratio,
                row.ms_with,
                row.with,
                row.ms_without,
                row.without
            ));
            self.told.write(&row)?;
            self.told.rows.push(row);
        }
        Ok(())
    }

    fn spmm<B: Backend, E: Element>(
        &self,
        backend: &B,
        adjacency: &Adjacency<B>,
        features: u32,
        policy: SpmmPolicyName,
    ) -> Result<f64, Error> {
        let mut means = Means::<B, E>::new(backend, self.graph, features, -0.5..0.5)?;
        let times = Times::of(backend, self.args.runs, || {
            means.call(backend, adjacency, policy.0)
        })?;
        Ok(times.ms)
    }

    fn sddmm<B: Backend>(
        &self,
        backend: &B,
        adjacency: &Adjacency<B>,
        features: u32,
        policy: SddmmPolicyName,
    ) -> Result<f64, Error> {
        let (columns, stride) = (features as usize, padded::<f16>(features as usize));
        let mut operands = SddmmOperator::operands::<B, f16>(backend, self.graph, columns, stride)?;
        let times = Times::of(backend, self.args.runs, || {
            SddmmOperator::call(backend, adjacency, policy, &mut operands)
        })?;
        Ok(times.ms)
    }
}

/// Operands of the mean of the neighbours' rows.
struct Means<B: Backend, E: Element> {
    x: Operand<B, E>,
    y: Matrix<B, E>,
    inverse_degrees: Array<B, f32>,
}

impl<B: Backend, E: Element> Means<B, E> {
    fn new(
        backend: &B,
        graph: &Graph,
        features: u32,
        range: std::ops::Range<f32>,
    ) -> Result<Self, Error> {
        let (vertices, columns) = (graph.vertices(), features as usize);
        let degrees = graph.csr().row_degrees();
        let inverse: Vec<f32> = degrees.iter().map(|&d| 1.0 / d.max(1) as f32).collect();
        Ok(Self {
            x: Operand::within(backend, 0, vertices, columns, range)?,
            y: Matrix::zeros(backend, vertices, columns, MemoryKind::Activations)?,
            inverse_degrees: Array::from_slice(backend, &inverse, MemoryKind::Graph)?,
        })
    }

    fn call(
        &mut self,
        backend: &B,
        adjacency: &Adjacency<B>,
        policy: SpmmPolicy,
    ) -> Result<(), Error> {
        let op = Spmm {
            row_scale: Some(&self.inverse_degrees),
            policy,
            ..Spmm::default()
        };
        ops::spmm(backend, adjacency, &op, &self.x.matrix, &mut self.y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ablation: &Ablation, ratio: f64) -> Row {
        Row {
            event: "ablation",
            ablation: ablation.name,
            graph: "kron18".into(),
            device: "a GPU".into(),
            features: 64,
            with: ablation.with.name(),
            without: ablation.without.name(),
            ms_with: 1.0,
            ms_without: ratio,
            ratio,
            paper: ablation.paper,
            claim: ablation.claim,
        }
    }

    #[test]
    fn ratios_have_a_geometric_mean_and_the_papers_beside_it() {
        let [first, second, ..] = ABLATIONS;
        let rows = [row(&first, 1.0), row(&second, 9.0), row(&first, 4.0)];
        let summary = Summary::of(&first, &rows).expect("rows");
        assert_eq!((summary.cases, summary.least, summary.most), (2, 1.0, 4.0));
        assert!((summary.geometric_mean - 2.0).abs() < 1e-12);
        let line = summary.line();
        assert!(
            line.contains("2.00x") && line.contains("paper 1.67, Fig. 8"),
            "{line}"
        );
        assert_eq!(Summary::of(&ABLATIONS[3], &rows), None);
    }

    #[test]
    fn every_ablation_has_two_sides_of_its_own() {
        let all: Vec<&Ablation> = [Paper::Halfgnn, Paper::Gnnone]
            .into_iter()
            .flat_map(Paper::ablations)
            .collect();
        for (i, ablation) in all.iter().enumerate() {
            assert_ne!(ablation.with, ablation.without, "{}", ablation.name);
            assert!(all[..i].iter().all(|other| other.name != ablation.name));
        }
    }
}
