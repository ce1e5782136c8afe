//! SpMM and SDDMM: every weight and policy, on rows inside a sub-warp, a warp and a CTA, and across all of them.

use super::{Operands, OperatorCase, Results, product_bound};
use crate::coo;
use crate::graphs::{from_degrees, power_law, transposed};
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use crate::reference::Sum;
use crate::sddmm;
use crate::segment::unwritten_numbers;
use crate::spmm::{self, Ending, SCHEDULES, Weighted, policies, weighted_policies};
use crate::spmv;
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, Accumulate, Aggregation, AttentionPair, Dropout, EdgeAttention, EdgeCombine, EdgeOperand,
    EdgeWeights, HalfLoad, OptimizerSnapshot, OptimizerState, RandomState, Reduction, Schedule,
    SoftmaxGradient, Spmm, SpmmPolicy, Write,
};
use halfgnn::tensor::{Array, Element, Precision};
use halfgnn_contract::attention::edge_plane_stride;

/// Some rows are empty, and the first has more edges than a CTA walks.
pub(super) fn graph(operands: &mut Operands) -> Csr {
    noted(power_law(120, 2_500, Random(90)), operands)
}

fn noted(graph: Csr, operands: &mut Operands) -> Csr {
    for ids in [graph.rows(), graph.cols()] {
        operands.noted(ids.to_vec(), u32::to_le_bytes);
    }
    graph
}

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    of_element::<B, f16>(&mut cases);
    of_element::<B, bf16>(&mut cases);
    of_element::<B, f32>(&mut cases);
    sddmms::<B, f16>(&mut cases);
    sddmms::<B, bf16>(&mut cases);
    sddmms::<B, f32>(&mut cases);
    combinations::<B, f16>(&mut cases);
    combinations::<B, bf16>(&mut cases);
    combinations::<B, f32>(&mut cases);
    long_rows(&mut cases);
    spmvs::<B, f16>(&mut cases);
    spmvs::<B, bf16>(&mut cases);
    spmvs::<B, f32>(&mut cases);
    cases
}

fn spmvs<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for weighted in [false, true] {
        let name = format!("spmv {} weighted {weighted}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let x = operands.mild::<E>(graph.vertices());
            let weights = weighted.then(|| operands.mild::<E>(graph.edges()));
            Results::rows(
                &spmv::run::<B, E>(backend, &graph, weights.as_deref(), &x),
                1,
            )
        }));
    }
}

fn of_element<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let ones = policies::<E>()
        .iter()
        .map(|&policy| (Weighted::Ones, policy));
    let edges = weighted_policies::<E>()
        .iter()
        .map(|&policy| (Weighted::Edges, policy));
    let columns = SCHEDULES.map(|policy| (Weighted::Columns, policy));
    let by_row_ids = [Weighted::Ones, Weighted::Edges, Weighted::Columns];
    let by_row_ids = by_row_ids.map(|weighted| (weighted, coo::BY_ROW_IDS));
    for (weighted, policy) in ones.chain(edges).chain(columns).chain(by_row_ids) {
        for (features, averaged) in [(13, true), (40, false), (136, true)] {
            let SpmmPolicy {
                scaling,
                accumulate,
                ..
            } = policy;
            let name = format!(
                "spmm {} {weighted:?} {scaling:?} {accumulate:?}{} F={features}",
                E::PRECISION,
                warps_and_loads(policy)
            );
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let graph = graph(operands);
                let mut case = spmm::Case::random::<E>(&graph, features, policy);
                case = case.weighted::<E>(weighted);
                case.x = operands.striped::<E>(graph.vertices(), features);
                case.weights = match weighted {
                    Weighted::Columns => operands.mild::<f32>(case.weights.len()),
                    _ => operands.mild::<E>(case.weights.len()),
                };
                if averaged {
                    case = case.averaged();
                }
                Results::rows(&case.run::<B, E>(backend), features)
            }));
        }
    }
    maxima_and_atomics::<B, E>(cases);
    let weights = [Weighted::Ones, Weighted::Columns];
    for (weighted, policy) in weights
        .into_iter()
        .flat_map(|weighted| SCHEDULES.map(|policy| (weighted, policy)))
    {
        for (features, relu) in [(13, true), (136, false)] {
            let name = format!(
                "spmm {} {weighted:?} with an epilogue{} F={features}",
                E::PRECISION,
                warps_and_loads(policy)
            );
            cases.push(with_epilogue::<B, E>(
                name, weighted, policy, features, relu,
            ));
        }
    }
    packed::<B, E>(cases);
    for (heads, width) in [(1, 40), (4, 16)] {
        let name = format!(
            "spmm {} planes of edge features, {heads} x {width}",
            E::PRECISION
        );
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let plane = edge_plane_stride(graph.edges() as u64) as usize;
            let values = elements(backend, &operands.mild::<E>(heads * plane));
            let values = &values;
            let weights = EdgeWeights::Planes { values, heads };
            run::<B, E>(backend, operands, &graph, weights, heads * width)
        }));
        for (against, dropped) in [(false, false), (true, true)] {
            let name = format!(
                "spmm {} attention, {heads} x {width}, transposed {against}, dropout {dropped}",
                E::PRECISION
            );
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let layer = Layer::<B>::random(backend, operands, heads, against);
                let of = layer.attention(dropped);
                let weights = EdgeWeights::Attention(&of);
                run::<B, E>(backend, operands, &layer.graph, weights, heads * width)
            }));
            let name = format!(
                "both sums of attention {}, {heads} x {width}, transposed {against}, dropout {dropped}",
                E::PRECISION
            );
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let layer = Layer::<B>::random(backend, operands, heads, against);
                let (vertices, features) = (layer.graph.vertices(), heads * width);
                let adjacency = Adjacency::new(backend, &layer.graph).expect("room for a graph");
                let x = operands.striped::<E>(vertices, features);
                let x = matrix::<B, E>(backend, (vertices, features), &x);
                let [mut all, mut positive] =
                    [(); 2].map(|()| unwritten::<B, E>(backend, (vertices, features)));
                let values = elements(backend, &operands.mild::<f32>(heads * vertices));
                let mut sums = unwritten_numbers(backend, heads * vertices);
                let pair = AttentionPair {
                    weights: &layer.attention(dropped),
                    policy: SpmmPolicy::default(),
                    all: &mut all,
                    positive: &mut positive,
                    // As a layer asks: backwards.
                    softmax_gradient: against.then_some(SoftmaxGradient {
                        values: &values,
                        sums: &mut sums,
                    }),
                };
                ops::attention_pair(backend, &adjacency, pair, &x).expect("a legal pair");
                let results = Results::rows(&read(backend, &all), features)
                    .and(Results::rows(&read(backend, &positive), features));
                if !against {
                    return results;
                }
                let sums = sums.to_vec(backend).expect("no failure before");
                results.and(Results::rows(&sums, vertices))
            }));
        }
    }
}

/// An addend, a bias and, if it is so, a ReLU.
fn with_epilogue<B: Backend + 'static, E: Element>(
    name: String,
    weighted: Weighted,
    policy: SpmmPolicy,
    features: usize,
    relu: bool,
) -> OperatorCase<B> {
    OperatorCase::new(name, move |backend: &B, operands| {
        let graph = graph(operands);
        let mut case = spmm::Case::random::<E>(&graph, features, policy);
        case = case.weighted::<E>(weighted).averaged();
        case.x = operands.striped::<E>(graph.vertices(), features);
        case.weights = operands.mild::<f32>(case.weights.len());
        case.scale = 0.7;
        let addend_scale = (!relu).then(|| operands.mild::<f32>(graph.vertices()));
        case.ending = Ending {
            addend: Some((-1.3, Some(0.4))),
            matrix: None,
            addend_scale,
            bias: Some(operands.mixed::<f32>(features)),
            relu,
            positive: None,
        };
        Results::rows(&case.run::<B, E>(backend), features)
    })
}

/// Of rows of so many loads that their lanes are packed, where CTAs have as many edges as that wants.
fn packed<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for (loads, edges) in [(5, 64), (6, 128), (10, 256)] {
        let features = loads * E::LANES - 1;
        for accumulate in [Accumulate::Float, Accumulate::Half] {
            let policy = SpmmPolicy {
                accumulate,
                edges_per_warp: Some(edges),
                ..spmm::IN_FLOAT
            };
            if !spmm::has_arithmetic::<E>(&policy) {
                continue;
            }
            let name = format!(
                "spmm {} on packed lanes, {accumulate:?}, {edges} edges a warp, F={features}",
                E::PRECISION
            );
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let graph = graph(operands);
                let mut case = spmm::Case::random::<E>(&graph, features, policy);
                case.x = operands.striped::<E>(graph.vertices(), features);
                Results::rows(&case.run::<B, E>(backend), features)
            }));
        }
        let policy = SpmmPolicy {
            edges_per_warp: Some(edges),
            ..spmm::IN_FLOAT
        };
        let name = format!(
            "spmm {} on packed lanes with an epilogue, {edges} edges a warp, F={features}",
            E::PRECISION
        );
        let relu = loads == 6;
        cases.push(with_epilogue::<B, E>(
            name,
            Weighted::Ones,
            policy,
            features,
            relu,
        ));
    }
}

/// What a policy has beside its sums, where it is not a share of the edges for each warp by the widest loads.
fn warps_and_loads(policy: SpmmPolicy) -> String {
    let warps = match policy.schedule {
        Schedule::Vertex => " a warp a row",
        Schedule::Hybrid => " by the inequality",
        Schedule::RowIds => " by row ids",
        Schedule::RowIdsInTurn => " by row ids in turn",
        Schedule::Auto | Schedule::Edge => "",
    };
    let loads = match policy.load {
        HalfLoad::Half2 => " by half2",
        HalfLoad::Half4 => " by half4",
        HalfLoad::Half8 => "",
    };
    format!("{warps}{loads}")
}

/// Largest products, which are exact, and sums by atomics, of integers: any order of them gives the same bits.
fn maxima_and_atomics<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    const FEATURES: usize = 40;
    let weights = [Weighted::Ones, Weighted::Edges];
    for (weighted, policy) in weights
        .into_iter()
        .flat_map(|weighted| SCHEDULES.map(|policy| (weighted, policy)))
    {
        let name = format!(
            "spmm {} {weighted:?} maximum{} F={FEATURES}",
            E::PRECISION,
            warps_and_loads(policy)
        );
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let mut case = spmm::Case::random::<E>(&graph, FEATURES, policy);
            case = case.weighted::<E>(weighted);
            case.aggregation = Aggregation::Max;
            case.x = operands.striped::<E>(graph.vertices(), FEATURES);
            case.weights = operands.mild::<E>(case.weights.len());
            Results::rows(&case.run::<B, E>(backend), FEATURES)
        }));
    }
    let policies = match E::PRECISION {
        Precision::Half => &[spmm::IN_FLOAT, spmm::IN_HALF][..],
        Precision::Float => &[spmm::IN_FLOAT, coo::ATOMIC, coo::IN_TURN],
        Precision::BFloat16 => &[],
    };
    for &policy in policies {
        let name = format!(
            "spmm {} atomics {:?}{}",
            E::PRECISION,
            policy.accumulate,
            warps_and_loads(policy)
        );
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let policy = SpmmPolicy {
                write: Write::Atomic,
                ..policy
            };
            let mut case = spmm::Case::random::<E>(&graph, FEATURES, policy);
            case.x = operands.integers(1, case.x.len());
            Results::rows(&case.run::<B, E>(backend), FEATURES)
        }));
    }
}

/// Rows that cross chunks of CTAs, so that their parts are added chunk by chunk.
fn long_rows<B: Backend + 'static>(cases: &mut Vec<OperatorCase<B>>) {
    const FEATURES: usize = 40;
    let by = |policy| SpmmPolicy {
        edges_per_warp: Some(16),
        ..policy
    };
    for (kind, policy, aggregation) in [
        ("sum", spmm::IN_FLOAT, Aggregation::Sum),
        ("sum in half", spmm::POST, Aggregation::Sum),
        ("sum by row ids", coo::BY_ROW_IDS, Aggregation::Sum),
        ("maximum", spmm::IN_FLOAT, Aggregation::Max),
    ] {
        let name = format!("spmm half of a long row, {kind} F={FEATURES}");
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = from_degrees(&[3, 9_000, 0, 2, 5_000, 1], Random(94));
            let graph = noted(graph, operands);
            let mut case = spmm::Case::random::<f16>(&graph, FEATURES, by(policy)).averaged();
            case.aggregation = aggregation;
            case.x = operands.mild::<f16>(case.x.len());
            Results::rows(&case.run::<B, f16>(backend), FEATURES)
        }));
    }
}

/// Every operator on numbers of two vertices or of an edge and a vertex.
fn combinations<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    const HEADS: usize = 2;
    type Combine<'a, B, E> =
        fn(EdgeOperand<'a, B, E>, EdgeOperand<'a, B, E>) -> EdgeCombine<'a, B, E>;
    fn all<'a, B: Backend, E: Element>() -> [(&'static str, Combine<'a, B, E>); 5] {
        [
            ("copy", |x, _| EdgeCombine::Copy(x)),
            ("sum", EdgeCombine::Add),
            ("difference", EdgeCombine::Subtract),
            ("product", EdgeCombine::Multiply),
            ("quotient", EdgeCombine::Divide),
        ]
    }
    for (which, (name, _)) in all::<B, E>().into_iter().enumerate() {
        let name = format!("{name} of numbers of vertices and edges {}", E::PRECISION);
        cases.push(OperatorCase::new(name, move |backend: &B, operands| {
            let graph = graph(operands);
            let adjacency = Adjacency::new(backend, &graph).expect("room for a graph");
            let len = HEADS * edge_plane_stride(graph.edges() as u64) as usize;
            let [row, column]: [Array<B, f32>; 2] = [(); 2]
                .map(|()| elements(backend, &operands.mixed::<f32>(HEADS * graph.vertices())));
            let edge: Array<B, E> = elements(backend, &operands.mixed::<E>(len));
            let operator = |x, y| all::<B, E>()[which].1(x, y);
            let mut values = Vec::new();
            for op in [
                operator(EdgeOperand::Row(&row), EdgeOperand::Column(&column)),
                operator(EdgeOperand::Edge(&edge), EdgeOperand::Row(&row)),
            ] {
                let mut e: Array<B, E> = elements(backend, &vec![f32::NAN; len]);
                ops::combine_edges(backend, &adjacency, HEADS, &op, &mut e)
                    .expect("legal operands");
                let e = e.to_vec(backend).expect("no failure before");
                values.extend(e.iter().map(|value| value.to_f32()));
            }
            Results::rows(&values, len)
        }));
    }
}

/// What the weights of attention are made of, on a graph.
struct Layer<B: Backend> {
    graph: Csr,
    heads: usize,
    transposed: bool,
    destination: Array<B, f32>,
    source: Array<B, f32>,
    statistics: Array<B, [f32; 2]>,
    random: RandomState<B>,
}

impl<B: Backend> Layer<B> {
    fn random(backend: &B, operands: &mut Operands, heads: usize, against: bool) -> Self {
        let graph = match against {
            true => transposed(&graph(operands)),
            false => graph(operands),
        };
        let scores = heads * graph.vertices();
        let [destination, source] =
            [(); 2].map(|()| elements(backend, &operands.mild::<f32>(scores)));
        // A maximum that is none, and an inverse sum, finite so that most weights are.
        let statistics: Vec<[f32; 2]> = operands
            .uniform::<f32>(scores)
            .into_iter()
            .map(|value| [2.0 + value, value.abs()])
            .collect();
        Self {
            graph,
            heads,
            transposed: against,
            destination,
            source,
            statistics: Array::from_slice(backend, &statistics, KIND).expect("room"),
            random: RandomState::new(backend, 7, 5).expect("room for a word"),
        }
    }

    fn attention(&self, dropped: bool) -> EdgeAttention<'_, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &self.destination,
            source: &self.source,
            statistics: &self.statistics,
            slope: 0.2,
            dropout: dropped.then_some(Dropout {
                probability: 0.3,
                stream: 2,
                random: &self.random,
            }),
            transposed: self.transposed,
            biases: None,
            sums: None,
        }
    }
}

/// SDDMM by every policy; sums of a few features, and of so many that a lane takes several loads.
fn sddmms<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    for &policy in sddmm::policies::<E>() {
        for (heads, features) in [(1, 13), (1, 40), (2, 136), (1, 264)] {
            let name = format!(
                "sddmm {} {:?} {:?} {:?} {heads} x {features}",
                E::PRECISION,
                policy.accumulate,
                policy.reduction,
                policy.load
            );
            let on_tensor_cores =
                E::PRECISION != Precision::Float && policy.reduction == Reduction::TensorCores;
            cases.push(OperatorCase::new(name, move |backend: &B, operands| {
                let graph = graph(operands);
                let mut case = sddmm::Case::random::<E>(&graph, heads, features, policy);
                case.op.scale = 0.7;
                // Rows with corners: a product of any vertex with another is one number.
                let mixed = operands.mixed::<E>(case.u.len() / 8);
                case.u = operands.uniform::<E>(case.u.len());
                case.u[..mixed.len()].copy_from_slice(&mixed);
                case.v = operands.mild::<E>(case.v.len());
                let actual = case.run::<B, E>(backend);
                if !on_tensor_cores {
                    return Results::rows(&actual, graph.edges());
                }
                let bound = |sum: &Sum| product_bound::<E>(features, sum.size);
                let bounds = case.reference().iter().map(bound).collect();
                Results::Near(actual, bounds)
            }));
        }
    }
}

fn run<B: Backend, E: Element>(
    backend: &B,
    operands: &mut Operands,
    graph: &Csr,
    weights: EdgeWeights<'_, B, E>,
    features: usize,
) -> Results {
    let shape = (graph.vertices(), features);
    let adjacency = Adjacency::new(backend, graph).expect("room for a graph");
    let x = matrix::<B, E>(backend, shape, &operands.striped::<E>(shape.0, shape.1));
    let mut y = unwritten::<B, E>(backend, shape);
    let op = Spmm {
        weights,
        scale: 0.7,
        ..Spmm::default()
    };
    ops::spmm(backend, &adjacency, &op, &x, &mut y).expect("a legal product");
    Results::rows(&read(backend, &y), features)
}

pub(super) fn after_steps<B: Backend>(backend: &B, steps: u32) -> OptimizerState<B> {
    let snapshot = OptimizerSnapshot {
        loss_scale: 1024.0,
        steps,
        skipped: 0,
        since_change: 0,
    };
    OptimizerState::resume(backend, &snapshot).expect("room for a state")
}
