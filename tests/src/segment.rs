//! Segment reductions: sums, maxima and softmax statistics of the edges of each row, on graphs whose rows end at every
//! boundary of lanes and warps and span many of them.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements};
use crate::reference::{Allowed, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{self, AttentionScores, EdgeMap, EdgeValues, SegmentReduction};
use halfgnn::tensor::{Array, Element};
use halfgnn_contract::attention::{edge_plane_stride, leaky_relu};

/// Slope of the LeakyReLU, as GAT has it.
pub const SLOPE: f32 = 0.2;

/// Every odd graph, rows that end at boundaries, and hubs whose parts a lane or a whole warp joins.
fn graphs(scale: Scale) -> Vec<(String, Csr)> {
    let named = |(name, graph): (&str, Csr)| (name.to_string(), graph);
    let mut graphs: Vec<_> = odd(scale).into_iter().map(named).collect();
    graphs.extend(rectangular(scale).into_iter().map(named));
    graphs.extend(boundaries(scale));
    for warps in [8, 9, 10, 41] {
        for extra in [0, 1, 77] {
            let degrees = [extra, 128 * warps, 3, 128 * warps - extra, 0, 5];
            let name = format!("two rows of about {warps} warps after {extra} edges");
            graphs.push((name, from_degrees(&degrees, Random(extra as u32))));
        }
    }
    graphs.push(("a hub".into(), hub(scale.pick(6_000, 300_000))));
    graphs
}

/// Planes of edges of these values; what lies between planes is NaN, which nobody may read as a value.
pub fn planes<B: Backend, E: Element>(backend: &B, heads: usize, values: &[f32]) -> Array<B, E> {
    let edges = values.len() / heads;
    let stride = edge_plane_stride(edges as u64) as usize;
    let mut padded = vec![f32::NAN; heads * stride];
    if edges > 0 {
        for (plane, values) in padded
            .chunks_exact_mut(stride)
            .zip(values.chunks_exact(edges))
        {
            plane[..edges].copy_from_slice(values);
        }
    }
    elements(backend, &padded)
}

/// An array of NaN, for an operator to write.
pub fn unwritten_numbers<B: Backend>(backend: &B, len: usize) -> Array<B, f32> {
    elements(backend, &vec![f32::NAN; len])
}

fn reduce<B: Backend, E: Element>(
    backend: &B,
    graph: &Csr,
    heads: usize,
    reduction: SegmentReduction,
    values: &EdgeValues<'_, B, E>,
) -> Vec<f32> {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let mut result = unwritten_numbers(backend, heads * graph.vertices());
    ops::segment_reduce(backend, &a, heads, reduction, values, &mut result).expect("legal");
    result.to_vec(backend).expect("no failure before")
}

/// Folds `value(head, edge)` of each row's edges.
fn folded(
    graph: &Csr,
    heads: usize,
    start: f32,
    value: impl Fn(usize, usize) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> Vec<f32> {
    let rows = (0..heads).flat_map(|head| (0..graph.vertices()).map(move |row| (head, row)));
    rows.map(|(head, row)| {
        let of_row = graph.row_range(row).map(|edge| value(head, edge));
        of_row.fold(start, &join)
    })
    .collect()
}

/// Sums of small integers, which float holds exactly in any order, and maxima.
pub fn sums_and_maxima<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graphs: &[(String, Csr)]) {
        for (name, graph) in graphs {
            let heads = if graph.edges() < 700 { 3 } else { 1 };
            let edges = graph.edges();
            let values = Random(80).integers(8, heads * edges);
            let factors = Random(81).integers(4, heads * edges);
            let map = Random(82).below(edges.max(1) as u32, edges);
            let plane = planes::<B, E>(backend, heads, &values);
            let other = planes::<B, E>(backend, heads, &factors);
            let at = |head: usize, edge: usize| head * edges + edge;

            let run = |reduction, values: &EdgeValues<'_, B, E>| {
                reduce::<B, E>(backend, graph, heads, reduction, values)
            };
            let sums = run(SegmentReduction::Sum, &EdgeValues::Plane(&plane));
            let expected = folded(graph, heads, 0.0, |h, e| values[at(h, e)], |a, b| a + b);
            assert_eq!(sums, expected, "sums, {name}");

            let maxima = run(SegmentReduction::Max, &EdgeValues::Plane(&plane));
            let start = f32::NEG_INFINITY;
            let expected = folded(graph, heads, start, |h, e| values[at(h, e)], f32::max);
            assert_eq!(maxima, expected, "maxima, {name}");

            let products = run(SegmentReduction::Sum, &EdgeValues::Product(&plane, &other));
            let product = |h, e| values[at(h, e)] * factors[at(h, e)];
            let expected = folded(graph, heads, 0.0, product, |a, b| a + b);
            assert_eq!(products, expected, "products, {name}");

            let map_array = EdgeMap::new(backend, &map).expect("numbers of edges");
            let gathered = run(
                SegmentReduction::Sum,
                &EdgeValues::Gathered(&plane, &map_array),
            );
            let picked = |h, e: usize| values[at(h, map[e] as usize)];
            let expected = folded(graph, heads, 0.0, picked, |a, b| a + b);
            assert_eq!(gathered, expected, "gathered, {name}");
        }
    }
    let graphs = graphs(scale);
    check::<B, f16>(backend, &graphs);
    check::<B, bf16>(backend, &graphs);
    check::<B, f32>(backend, &graphs);
}

/// Sums of anything are within the bound of float64, and have the same bits again.
pub fn sums_are_close_and_repeat<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        let values = Random(83).uniform::<E>(graph.edges());
        let plane = planes::<B, E>(backend, 1, &values);
        let run = || {
            reduce::<B, E>(
                backend,
                graph,
                1,
                SegmentReduction::Sum,
                &EdgeValues::Plane(&plane),
            )
        };
        let sums = run();
        let mut expected = vec![Sum::default(); graph.vertices()];
        for (&row, &value) in graph.rows().iter().zip(&values) {
            expected[row as usize].add(f64::from(value));
        }
        assert_close::<f32>("segment sums", &sums, &expected, 1, |row| {
            Allowed::float(graph.row_range(row).len())
        });
        assert_eq!(run(), sums);
    }
    let graph = power_law(60, scale.pick(5_000, 200_000), Random(84));
    check::<B, f16>(backend, &graph);
    check::<B, bf16>(backend, &graph);
    check::<B, f32>(backend, &graph);
}

/// A NaN or an infinity reaches its own row and no other.
pub fn nan_stays_in_its_row<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[3, 130, 0, 1, 260, 7], Random(85));
    for bad in [f32::NAN, f32::INFINITY] {
        for edge in [0, 2, 3, 60, 132, 133, 134, 300, 394, 400] {
            let mut values = Random(86).uniform::<f16>(graph.edges());
            values[edge] = bad;
            let plane = planes::<B, f16>(backend, 1, &values);
            for reduction in [SegmentReduction::Sum, SegmentReduction::Max] {
                let values = EdgeValues::Plane(&plane);
                let result = reduce::<B, f16>(backend, &graph, 1, reduction, &values);
                for (row, &result) in result.iter().enumerate() {
                    if row == graph.rows()[edge] as usize {
                        assert!(result.is_nan() == bad.is_nan() && !result.is_finite());
                    } else {
                        assert!(result.is_finite() || row == 2, "{edge}: {row} is {result}");
                    }
                }
            }
        }
    }
}

/// Scores of vertices in planes, on the host.
pub struct Scores {
    /// As destination.
    pub destination: Vec<f32>,
    /// As source.
    pub source: Vec<f32>,
}

impl Scores {
    /// From -`most` to `most`, of so many destinations and sources.
    pub fn random(shape: (usize, usize), heads: usize, most: f32, random: u32) -> Self {
        let numbers = |random, vertices| -> Vec<f32> {
            let unit = Random(random).uniform::<f32>(vertices * heads);
            unit.into_iter().map(|value| value * most).collect()
        };
        Self {
            destination: numbers(random, shape.0),
            source: numbers(random + 1, shape.1),
        }
    }

    /// The sum of the scores of an edge as float has it, and its row's statistics in float64: largest score, `z`, and the
    /// part of `z` of sums above zero.
    pub fn row(&self, graph: &Csr, head: usize, row: usize) -> [f64; 3] {
        let (rows, columns) = graph.shape();
        let sums = graph.row(row).iter().map(|&column| {
            self.destination[head * rows + row] + self.source[head * columns + column as usize]
        });
        let score = |sum: f32| f64::from(leaky_relu(sum, SLOPE));
        let largest = sums.clone().map(score).fold(f64::NEG_INFINITY, f64::max);
        let mut z = [0.0; 2];
        for sum in sums {
            let term = (score(sum) - largest).exp();
            z[0] += term;
            z[1] += if sum > 0.0 { term } else { 0.0 };
        }
        [largest, z[0], z[1]]
    }
}

/// Statistics and positive shares of every row and head, after a comparison with float64.
fn check_statistics<B: Backend>(
    backend: &B,
    name: &str,
    graph: &Csr,
    heads: usize,
    scores: &Scores,
) {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let len = heads * graph.vertices();
    let destination = elements::<B, f32>(backend, &scores.destination);
    let source = elements::<B, f32>(backend, &scores.source);
    let op = AttentionScores {
        heads,
        destination: &destination,
        source: &source,
        slope: SLOPE,
        biases: None,
    };
    let mut statistics =
        Array::from_slice(backend, &vec![[f32::NAN; 2]; len], KIND).expect("room for statistics");
    let mut share = unwritten_numbers(backend, len);
    let plane = ops::edge_plane(graph.edges());
    let mut sums = unwritten_numbers(backend, heads * plane);
    let (share_too, sums_too) = (Some(&mut share), Some(&mut sums));
    ops::attention_statistics(backend, &a, &op, &mut statistics, share_too, sums_too)
        .expect("legal");
    let sums = sums.to_vec(backend).expect("no failure before");
    let (rows, columns) = graph.shape();
    for (head, sums) in sums.chunks(plane.max(1)).enumerate() {
        let ends = graph.rows().iter().zip(graph.cols());
        for (edge, ((&row, &column), sum)) in ends.zip(sums).enumerate() {
            let (row, column) = (head * rows + row as usize, head * columns + column as usize);
            let expected = scores.destination[row] + scores.source[column];
            assert_eq!(
                sum.to_bits(),
                expected.to_bits(),
                "{name}: head {head}, edge {edge}"
            );
        }
    }
    let statistics = statistics.to_vec(backend).expect("no failure before");
    let share = share.to_vec(backend).expect("no failure before");
    for at in 0..len {
        let (head, row) = (at / graph.vertices(), at % graph.vertices());
        let [m, reciprocal] = statistics[at];
        let what = format!("{name}: head {head} of row {row}");
        let degree = graph.row_range(row).len();
        if degree == 0 {
            assert_eq!([m, reciprocal, share[at]], [0.0; 3], "{what}");
            continue;
        }
        let [largest, z, positive] = scores.row(graph, head, row);
        assert_eq!(f64::from(m), largest, "{what}");
        // Joining parts takes an exponential, of 2 ulp, and a difference of scores a rounding of their size.
        let relative = (4.0 * degree as f64 + 64.0) / 16_777_216.0;
        let off = (f64::from(reciprocal) * z - 1.0).abs();
        assert!(
            off <= relative * (1.0 + 2.0 * largest.abs()),
            "{what}: {off:e}"
        );
        let off = (f64::from(share[at]) - positive / z).abs();
        assert!(
            off <= relative * (1.0 + 2.0 * largest.abs()),
            "{what}: {off:e}"
        );
    }
}

/// Softmax statistics on every graph.
pub fn softmax_statistics<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let heads = if graph.edges() < 700 { 2 } else { 1 };
        let scores = Scores::random(graph.shape(), heads, 4.0, 87);
        check_statistics(backend, &name, &graph, heads, &scores);
    }
}

/// Scores at the ends of half's range, all the same, of a single edge, and far apart.
pub fn softmax_of_extremes<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[1, 200, 0, 130, 1, 9], Random(89));
    let vertices = graph.vertices();
    for (name, destination, source) in [
        (
            "all lowest",
            vec![-65_504.0; vertices],
            vec![-65_504.0; vertices],
        ),
        (
            "all highest",
            vec![65_504.0; vertices],
            vec![65_504.0; vertices],
        ),
        ("all zero", vec![0.0; vertices], vec![0.0; vertices]),
        (
            "far apart",
            vec![1.0; vertices],
            (0..vertices)
                .map(|v| [-65_504.0, 65_504.0, 3.0][v % 3])
                .collect(),
        ),
    ] {
        let scores = Scores {
            destination,
            source,
        };
        check_statistics(backend, name, &graph, 1, &scores);
    }
}

/// What does not fit is refused, with the operand's name, and a maximum of products is not had.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[2, 1], Random(94));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let plane = planes::<B, f16>(backend, 1, &[1.0; 3]);
    let mut result = unwritten_numbers(backend, 2);
    let mut run = |heads, reduction, values: &EdgeValues<'_, B, f16>| {
        ops::segment_reduce(backend, &a, heads, reduction, values, &mut result)
            .map_err(|error| error.to_string())
    };
    run(1, SegmentReduction::Max, &EdgeValues::Plane(&plane)).expect("legal");
    let error = run(2, SegmentReduction::Sum, &EdgeValues::Plane(&plane)).expect_err("too short");
    assert!(error.contains("result") && error.contains('4'), "{error}");
    let error = run(0, SegmentReduction::Sum, &EdgeValues::Plane(&plane)).expect_err("no heads");
    assert!(error.contains("heads"), "{error}");
    let error = run(
        1,
        SegmentReduction::Max,
        &EdgeValues::Product(&plane, &plane),
    )
    .expect_err("not built");
    assert!(error.contains("maxima"), "{error}");
    let short = EdgeMap::new(backend, &[0; 2]).expect("numbers of edges");
    let error = run(
        1,
        SegmentReduction::Sum,
        &EdgeValues::Gathered(&plane, &short),
    )
    .expect_err("too short");
    assert!(error.contains("edge map"), "{error}");
    let error = EdgeMap::new(backend, &[0, 3, 1]).expect_err("no fourth edge");
    assert_eq!(
        error.to_string(),
        "EdgeMap::new: entry 1 is 3, and there are 3 edges"
    );
}
