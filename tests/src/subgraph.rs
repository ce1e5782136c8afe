//! Vertices that walks come to and the edges between them, by `==`; how likely each is; and that sums and losses of subgraphs are
//! those of the graph.

use crate::Scale;
use crate::input::{KIND, Random, elements, matrix, words};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend, MemoryKind};
use halfgnn::graph::{Csr, Graph};
use halfgnn::nn::{GraphFactors, Norm, Propagation};
use halfgnn::ops::{self, DRAWS, Draw, EdgeNorms, EdgeWeights, Places, Spmm};
use halfgnn::sample::{SubgraphSampler, Subgraphs};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use halfgnn_contract::rng;
use halfgnn_contract::sampling::choice;
use halfgnn_contract::subgraph::{frontier_counter, walk_counter, wide_choice};
use std::collections::BTreeSet;

const STREAM: u32 = 0x7375_6267;
const DRAW: Draw = Draw {
    seed: 5 << 40,
    step: 3,
    layer: 0,
};

/// Rows of every length about those at which a warp has another turn, a hub, and vertices that hear from nobody.
fn graph() -> Csr {
    let lengths = [0, 1, 2, 31, 32, 33, 63, 64, 65, 97, 300, 0, 3];
    let rows = (0..).zip(lengths);
    let edges = rows
        .flat_map(|(row, length)| (0..length).map(move |edge| (row, (edge * 7 + row) % 400)))
        // So that walks come back.
        .chain((13..400).map(|row| (row, row % 13)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.unzip();
    Csr::from_edges(400, &rows, &columns).expect("ids are in range")
}

fn read<B: Backend>(backend: &B, array: &Array<B, u32>) -> Vec<u32> {
    array.to_vec(backend).expect("no failure before")
}

fn walked<B: Backend>(
    backend: &B,
    graph: &Adjacency<B>,
    roots: Option<&[u32]>,
    (walks, length): (usize, u32),
    draw: Draw,
) -> Vec<u32> {
    let mut vertices = words(backend, &vec![u32::MAX; walks * (length as usize + 1)]);
    let roots = roots.map(|roots| words(backend, roots));
    ops::random_walks(
        backend,
        graph,
        roots.as_ref(),
        (length, draw),
        &mut vertices,
    )
    .expect("legal walks");
    read(backend, &vertices)
}

/// Every walk is the one that the counter gives, from given vertices and from ends of edges.
pub fn walks_follow_the_counter<B: Backend>(backend: &B, scale: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    let expected = |roots: Option<&[u32]>, walks: u32, length: u32, draw: Draw| {
        let key = rng::key(draw.seed, STREAM);
        let mut all = Vec::new();
        for walk in 0..walks {
            let numbers = |edges| rng::philox(key, walk_counter(draw.step, walk, edges));
            let [low, high, ..] = numbers(0);
            let mut vertex = match roots {
                Some(roots) => roots[choice(low, roots.len() as u32) as usize],
                None => csr.cols()[wide_choice([low, high], csr.edges() as u64) as usize],
            };
            all.push(vertex);
            for edges in 1..=length {
                let row = match vertex {
                    0..400 => csr.row(vertex as usize),
                    _ => &[],
                };
                if !row.is_empty() {
                    vertex = row[choice(numbers(edges)[0], row.len() as u32) as usize];
                }
                all.push(vertex);
            }
        }
        all
    };
    // One that is no vertex stays where it is.
    let roots: Vec<u32> = (0..13).chain([399, 400]).collect();
    let many = scale.pick(300, 5_000);
    for (walks, length) in [(0, 3), (1, 0), (many, 4), (129, 1)] {
        for roots in [None, Some(&roots[..])] {
            let made = walked(backend, &graph, roots, (walks as usize, length), DRAW);
            let wanted = expected(roots, walks, length, DRAW);
            assert!(made == wanted, "{walks} walks of {length}, {roots:?}");
        }
    }
    let of = |seed, step| {
        let draw = Draw {
            seed,
            step,
            layer: 0,
        };
        walked(backend, &graph, Some(&roots), (50, 2), draw)
    };
    let apart: BTreeSet<_> = [of(0, 0), of(1, 0), of(0, 1)].into_iter().collect();
    assert_eq!(apart.len(), 3);
}

fn frontier<B: Backend>(
    backend: &B,
    graph: &Adjacency<B>,
    roots: &[u32],
    (frontier, budget): (u32, usize),
    draw: Draw,
) -> Vec<u32> {
    let mut vertices = words(backend, &vec![u32::MAX; budget]);
    let roots = words(backend, roots);
    ops::frontier_walk(backend, graph, &roots, (frontier, draw), &mut vertices)
        .expect("a legal walk");
    read(backend, &vertices)
}

/// Every move is the one that the counter gives, of frontiers about those at which the sums of degrees have another level.
pub fn frontiers_follow_the_counter<B: Backend>(backend: &B, scale: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    let degree = |vertex: u32| csr.row(vertex as usize).len() as u64;
    let expected = |roots: &[u32], length: u32, budget: u32| {
        let key = rng::key(DRAW.seed, STREAM);
        let numbers = |index| rng::philox(key, frontier_counter(DRAW.step, index));
        let root = |index| roots[choice(numbers(index)[0], roots.len() as u32) as usize];
        let mut all: Vec<u32> = (0..length).map(root).collect();
        let mut frontier = all.clone();
        for index in length..budget {
            let [low, high, to, _] = numbers(index);
            let total = frontier.iter().map(|&vertex| degree(vertex)).sum();
            if total == 0 {
                all.push(frontier[0]);
                continue;
            }
            let mut left = wide_choice([low, high], total);
            let moves = frontier.iter_mut().find(|vertex| {
                let degree = degree(**vertex);
                let found = left < degree;
                left -= if found { 0 } else { degree };
                found
            });
            let moves = moves.expect("a number below the sum");
            let row = csr.row(*moves as usize);
            *moves = row[choice(to, row.len() as u32) as usize];
            all.push(*moves);
        }
        all
    };
    let roots: Vec<u32> = (0..30).collect();
    let moves = scale.pick(20, 300);
    for length in [1, 2, 31, 32, 33, 64, 70, 1023, 1024, 1025, 2100] {
        let budget = length + moves;
        let made = frontier(backend, &graph, &roots, (length, budget as usize), DRAW);
        assert!(
            made == expected(&roots, length, budget),
            "a frontier of {length}"
        );
    }
    // Nobody there hears from anybody.
    assert_eq!(frontier(backend, &graph, &[11], (2, 5), DRAW), [11; 5]);
    let whole = frontier(backend, &graph, &roots, (7, 7), DRAW);
    assert_eq!(whole, expected(&roots, 7, 7));
}

/// `(observed - expected)² / expected` of outcomes of these probabilities.
fn chi_square(counts: &[u32], probabilities: &[f64]) -> f64 {
    let all: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let outcomes = counts.iter().zip(probabilities);
    outcomes
        .map(|(&count, probability)| {
            let expected = all * probability;
            (f64::from(count) - expected).powi(2) / expected
        })
        .sum()
}

/// Chi-square against exact probabilities, with bounds that one in a hundred thousand draws passes: sources of edges, neighbours, and
/// who of a frontier moves.
pub fn all_are_as_likely<B: Backend>(backend: &B, scale: Scale) {
    // 0 hears from 1, 2 and 3; 1 from 0; 2 from 0 and 3; 3 from nobody.
    let csr = Csr::from_edges(4, &[0, 0, 0, 1, 2, 2], &[1, 2, 3, 0, 0, 3]).expect("a graph");
    let graph = Adjacency::new(backend, &csr).expect("room");
    let walks = scale.pick(2_000, 50_000);
    let count = |vertices: &mut dyn Iterator<Item = u32>| {
        let mut counts = [0; 4];
        vertices.for_each(|vertex| counts[vertex as usize] += 1);
        counts
    };
    let starts = walked(backend, &graph, None, (walks, 0), DRAW);
    let chi = chi_square(
        &count(&mut starts.into_iter()),
        &[2.0, 1.0, 1.0, 2.0].map(|often| often / 6.0),
    );
    assert!(chi < 25.9, "sources of edges, 3 degrees of freedom: {chi}");
    let steps = walked(backend, &graph, Some(&[0]), (walks, 2), DRAW);
    let ends = steps.chunks(3).map(|walk| walk[2]);
    // From 1 to 0; from 2 to 0 and 3; 3 stays.
    let chi = chi_square(&count(&mut ends.clone())[..], &[0.5, 1e-300, 1e-300, 0.5]);
    assert!(chi < 19.6, "two edges from 0, 1 degree of freedom: {chi}");

    // A frontier of 0 and 2, in any places: 0 moves three times of five, 2 twice; and of 0 and 0 or 2 and 2 that one.
    let mut moves = [0; 4];
    for step in 0..scale.pick(800, 20_000) {
        let draw = Draw { step, ..DRAW };
        let walk = frontier(backend, &graph, &[0, 2], (2, 3), draw);
        moves[walk[2] as usize] += 1;
    }
    let of_zero = 0.25 + 0.5 * 0.6;
    let of_two = 1.0 - of_zero;
    let third = of_zero / 3.0;
    let chi = chi_square(&moves, &[of_two / 2.0, third, third, third + of_two / 2.0]);
    assert!(
        chi < 25.9,
        "moves of a frontier, 3 degrees of freedom: {chi}"
    );
}

/// What lies between some vertices is all that the host finds there, whatever their order and however often they stand there.
pub fn subgraphs_are_induced<B: Backend>(backend: &B, _: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    let mut places = Places::new(backend, 400).expect("room");
    let all: Vec<u32> = (0..400).collect();
    let some: Vec<u32> = (0..150)
        .map(|at| at * 37 % 400)
        .chain([10, 10, 400, u32::MAX])
        .collect();
    for vertices in [&[][..], &[10], &[11, 0], &some, &all] {
        let listed = words(backend, vertices);
        let subgraph = places.induced(backend, &graph, &listed).expect("room");
        let kept: Vec<u32> = vertices.iter().copied().filter(|&it| it < 400).collect();
        let kept: Vec<u32> = kept
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        assert_eq!(read(backend, &subgraph.vertices), kept);
        let place = |vertex| kept.binary_search(vertex).ok();
        let (mut edges, mut ids) = (Vec::new(), Vec::new());
        for (row, &vertex) in kept.iter().enumerate() {
            let range = csr.row_range(vertex as usize);
            for (edge, column) in range.clone().zip(&csr.cols()[range]) {
                if let Some(column) = place(column) {
                    edges.push((row as u32, column as u32));
                    ids.push(edge as u32);
                }
            }
        }
        assert_eq!(read(backend, &subgraph.edges), ids);
        let coo = |a: &Adjacency<B>| {
            let [rows, columns] = a.to_coo(backend).expect("no failure before");
            rows.into_iter().zip(columns).collect::<Vec<(u32, u32)>>()
        };
        assert_eq!(coo(subgraph.block.forward()), edges);
        let order = read(backend, &subgraph.transposed);
        let turned = order.iter().map(|&edge| edges[edge as usize]);
        let turned: Vec<(u32, u32)> = turned.map(|(row, column)| (column, row)).collect();
        assert!(turned.is_sorted());
        assert_eq!(
            coo(subgraph.block.backward(backend).expect("a transpose")),
            turned
        );
    }
}

/// In how many draws vertices and edges are, in the order of draws and all at once, is what the host counts; of draws that are left out
/// nothing is, and counts are added to.
pub fn draws_are_counted_together<B: Backend>(backend: &B, _: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    let of_draw = |draw: u32| -> Vec<u32> {
        let walk = (0..20 * draw).map(|at| (at * at * 31 + draw * 7) % 400);
        // The hub, one twice, and what is no vertex.
        walk.chain([10, draw, draw, 400, u32::MAX]).collect()
    };
    let mut members = words(backend, &[0; 400]);
    let mut sizes = words(backend, &[5; DRAWS as usize]);
    let used = [0, 1, 3, 8, 17, 31];
    for draw in used {
        let vertices = words(backend, &of_draw(draw));
        ops::mark_draw(backend, &mut members, &vertices, draw).expect("legal");
    }
    ops::size_draws(backend, &members, &mut sizes).expect("legal");
    let sets: Vec<(u32, BTreeSet<u32>)> = used
        .map(|draw| {
            let vertices = of_draw(draw).into_iter().filter(|&vertex| vertex < 400);
            (draw, vertices.collect())
        })
        .to_vec();
    let mut expected = vec![5; DRAWS as usize];
    for (draw, set) in &sets {
        expected[*draw as usize] += set.len() as u32;
    }
    assert_eq!(read(backend, &sizes), expected);

    let mut of_vertices = words(backend, &[3; 400]);
    let mut of_edges = words(backend, &vec![7; csr.edges()]);
    let (mut vertices, mut edges) = (vec![3; 400], vec![7; csr.edges()]);
    for draws in [!0, 1 << 8 | 1 << 31, 1 << 30, 0] {
        let of = (&members, draws);
        ops::tally_draws(backend, &graph, of, &mut of_vertices, &mut of_edges).expect("legal");
        for (_, set) in sets.iter().filter(|(draw, _)| draws >> draw & 1 != 0) {
            for &vertex in set {
                vertices[vertex as usize] += 1;
                let row = csr.row_range(vertex as usize);
                for (edge, column) in row.clone().zip(&csr.cols()[row]) {
                    edges[edge] += u32::from(set.contains(column));
                }
            }
        }
        assert_eq!(read(backend, &of_vertices), vertices);
        assert_eq!(read(backend, &of_edges), edges);
    }

    // More words than a warp sizes, and none.
    for count in [0, 1, 1023, 2081] {
        let bits: Vec<u32> = (0..count)
            .map(|at: u32| at.wrapping_mul(0x9e37_79b9))
            .collect();
        let mut sizes = words(backend, &[0; DRAWS as usize]);
        ops::size_draws(backend, &words(backend, &bits), &mut sizes).expect("legal");
        let size = |draw| bits.iter().map(|draws| draws >> draw & 1).sum();
        assert_eq!(
            read(backend, &sizes),
            (0..DRAWS).map(size).collect::<Vec<u32>>()
        );
    }
    let none = words(backend, &[]);
    let refused = ops::mark_draw(backend, &mut members, &none, DRAWS);
    let refused = refused.expect_err("a bit too many").to_string();
    assert!(refused.contains("draw 32 of 32"), "{refused}");
    let mut few = words(backend, &[0; 31]);
    assert!(ops::size_draws(backend, &members, &mut few).is_err());
    assert!(
        ops::tally_draws(backend, &graph, (&none, 1), &mut of_vertices, &mut of_edges).is_err()
    );
    let refused = ops::tally_draws(backend, &graph, (&members, 1), &mut of_vertices, &mut few);
    assert!(refused.is_err());
}

/// What edges multiply is to the bit what the host makes of the same counts, in every format, with weights and degree norms and without,
/// and so is the largest of it, by which halves are scaled.
pub fn edges_have_their_norms<B: Backend>(backend: &B, _: Scale) {
    fn of<B: Backend, E: Element>(backend: &B, graph: &Graph, adjacency: &Adjacency<B>) {
        let (vertices, edges) = (graph.vertices(), graph.edges());
        // As often as not at all; floats cannot tell the largest from their neighbours.
        let counts = |stream, len| -> Vec<u32> {
            let counts = Random(stream).below(1300, len).into_iter().enumerate();
            let count = |(at, count)| match at % 11 {
                3 => 0,
                7 => u32::MAX - count,
                _ => count,
            };
            counts.map(count).collect()
        };
        let (of_vertices, of_edges) = (counts(31, vertices), counts(32, edges));
        let weights = Random(33).uniform::<f32>(edges);
        // The largest has a sign.
        let weights: Vec<f32> = weights.into_iter().map(|weight| weight - 0.5).collect();
        let (vertex_counts, edge_counts) =
            (words(backend, &of_vertices), words(backend, &of_edges));
        let norms = EdgeNorms {
            graph: adjacency,
            vertex_counts: &vertex_counts,
            edge_counts: &edge_counts,
            weights: None,
            sides: None,
        };
        let magnitudes: Vec<f32> = weights.iter().map(|weight| weight.abs()).collect();
        for (weights, norm) in [
            (None, Norm::Both),
            (None, Norm::In),
            (None, Norm::Left),
            (None, Norm::Right),
            (None, Norm::None),
            (Some(&weights), Norm::None),
            (Some(&weights), Norm::Right),
            (Some(&magnitudes), Norm::Both),
        ] {
            let mut sums = [vec![0.0; vertices], vec![0.0; vertices]];
            let weight = |edge: usize| weights.map_or(1.0, |weights| f64::from(weights[edge]));
            let ends = graph.rows().iter().zip(graph.cols());
            for (edge, (&row, &column)) in ends.clone().enumerate() {
                sums[0][row as usize] += weight(edge);
                sums[1][column as usize] += weight(edge);
            }
            let inverse = |sum: f64| if sum == 0.0 { 0.0 } else { 1.0 / sum };
            let side = |sum: f64, is_row: bool| match (norm, is_row) {
                (Norm::Both | Norm::In, _) => inverse(sum).sqrt(),
                (Norm::Right, true) | (Norm::Left, false) => inverse(sum),
                _ => 1.0,
            };
            let of_columns = usize::from(norm != Norm::In);
            let expected: Vec<f32> = (ends.enumerate())
                .map(|(edge, (&row, &column))| {
                    let (row, column) = (row as usize, column as usize);
                    let before = side(sums[0][row], true) * weight(edge);
                    let factor = (before * side(sums[of_columns][column], false)) as f32;
                    let often = |count: u32| count.max(1) as f32;
                    factor * (often(of_vertices[row]) / often(of_edges[edge]))
                })
                .collect();
            let largest = expected
                .iter()
                .fold(0.0_f32, |most, value| most.max(value.abs()));
            let sides = [true, false].map(|is_row| {
                let of = usize::from(!is_row) * of_columns;
                let factors: Vec<f64> = sums[of].iter().map(|&sum| side(sum, is_row)).collect();
                Array::from_slice(backend, &factors, KIND).expect("room")
            });
            let on_device = weights.map(|weights| elements::<B, f32>(backend, weights));
            let all = EdgeNorms {
                weights: on_device.as_ref(),
                sides: Some([&sides[0], &sides[1]]),
                ..norms
            };
            let found = ops::largest_edge_norm(backend, all).expect("legal");
            assert_eq!(found.to_bits(), largest.to_bits(), "{norm}");
            let scale = match E::PRECISION {
                Precision::Half => 2.0_f32.powi(exponent(largest) - 14),
                _ => 1.0,
            };
            let factors =
                GraphFactors::<B, E>::new(backend, graph, weights.map(Vec::as_slice), norm, norms);
            let every: Vec<u32> = (0..vertices as u32).collect();
            let mut places = Places::new(backend, vertices).expect("room");
            let whole = places.induced(backend, adjacency, &words(backend, &every));
            let whole = whole.expect("room");
            let whole = Propagation::of_induced(backend, whole, &factors.expect("legal"));
            let whole = whole.expect("room");
            let made = whole.edge_factors::<E>().expect("of this precision");
            let made = made.expect("edges have factors");
            assert_eq!(made.scale, scale, "{norm}");
            let made = made.forward.to_vec(backend).expect("no failure before");
            for (edge, (made, value)) in made.iter().zip(&expected).enumerate() {
                let value = E::from_f32(value / scale);
                assert!(*made == value, "{norm}, edge {edge}: {made:?} {value:?}");
            }
        }
    }
    let csr = graph();
    let rows: Vec<u32> = (0..400)
        .flat_map(|row| csr.row(row as usize).iter().map(move |_| row))
        .collect();
    let whole = Graph::from_edges(400, &rows, csr.cols()).expect("a graph");
    let adjacency = Adjacency::new(backend, whole.csr()).expect("room");
    of::<B, f16>(backend, &whole, &adjacency);
    of::<B, bf16>(backend, &whole, &adjacency);
    of::<B, f32>(backend, &whole, &adjacency);

    let empty = Adjacency::new(backend, &Csr::from_edges(3, &[], &[]).expect("a graph"));
    let (empty, none) = (empty.expect("room"), words(backend, &[]));
    let three = words(backend, &[0; 3]);
    let norms = EdgeNorms {
        graph: &empty,
        vertex_counts: &three,
        edge_counts: &none,
        weights: None,
        sides: None,
    };
    let mut values = elements::<B, f32>(backend, &[]);
    ops::edge_norms(backend, norms, 1.0, &mut values).expect("no edge is legal");
    let largest = ops::largest_edge_norm(backend, norms).expect("no edge is legal");
    assert_eq!(largest.to_bits(), 0);
    let mut refused = |norms, scale, told| {
        let refused = ops::edge_norms(backend, norms, scale, &mut values);
        let refused = refused.expect_err("a misfit").to_string();
        assert!(refused.contains(told), "{refused}");
    };
    for scale in [0.0, f32::NAN, f32::INFINITY] {
        refused(norms, scale, "take a positive number");
    }
    let one = Array::from_slice(backend, &[1.0], KIND).expect("room");
    let weights = elements::<B, f32>(backend, &[1.0]);
    for (norms, told) in [
        (
            EdgeNorms {
                vertex_counts: &none,
                ..norms
            },
            "counts of vertices should be 3, is 0",
        ),
        (
            EdgeNorms {
                edge_counts: &three,
                ..norms
            },
            "counts of edges should be 0, is 3",
        ),
        (
            EdgeNorms {
                weights: Some(&weights),
                ..norms
            },
            "edge weights should be 0, is 1",
        ),
        (
            EdgeNorms {
                sides: Some([&one, &one]),
                ..norms
            },
            "factors of rows and of columns should be 3, is 1",
        ),
    ] {
        refused(norms, 1.0, told);
    }
}

/// Over the subgraphs that were counted, what a vertex sums up in those that it is in is in the mean what it sums up in the graph,
/// and the losses of their vertices those of all that were drawn: the norms of GraphSAINT, to rounding.
pub fn sums_are_the_graphs_in_the_mean<B: Backend>(backend: &B, _: Scale) {
    let csr = graph();
    let rows: Vec<u32> = (0..400)
        .flat_map(|row| csr.row(row as usize).iter().map(move |_| row))
        .collect();
    let graph = Graph::from_edges(400, &rows, csr.cols()).expect("a graph");
    let graph = graph.with_self_loops().expect("room");
    let (seed, columns, times) = (9, 8, 3);
    let roots: Vec<u32> = (0..400).step_by(2).collect();
    let weights: Vec<f32> = (0..graph.edges())
        .map(|edge| 0.5 + (edge % 5) as f32)
        .collect();
    let values = Random(4).uniform::<f32>(400 * columns);
    let x = matrix::<B, f32>(backend, (400, columns), &values);
    for how in [
        Subgraphs::Nodes(200),
        Subgraphs::Edges(150),
        Subgraphs::Walks {
            roots: 60,
            length: 3,
        },
        Subgraphs::Frontier {
            frontier: 40,
            budget: 200,
        },
    ] {
        let mut sampler = SubgraphSampler::new(backend, &graph, &roots, how).expect("room");
        let coverage = sampler.coverage(backend, seed, times).expect("draws");
        let drawn: u64 = coverage
            .vertices
            .iter()
            .map(|&count| u64::from(count))
            .sum();
        assert!(drawn >= u64::from(times) * 400, "{how:?}");
        let norms = coverage.edge_norms(sampler.graph());
        let norm = Norm::Right;
        let factors = GraphFactors::<B, f32>::new(backend, &graph, Some(&weights), norm, norms);
        let factors = factors.expect("room");
        let mut sums = vec![0.0_f64; 400 * columns];
        let (mut weighed, of_vertices) = (0.0, coverage.vertex_weights());
        let of_edges = read(backend, &coverage.edges);
        let mut counted = (0, vec![0; 400], vec![0; graph.edges()]);
        for number in 0..coverage.subgraphs {
            let subgraph = sampler
                .draw(backend, seed, u32::MAX - number)
                .expect("a draw");
            let vertices = read(backend, &subgraph.vertices);
            let before: u32 = counted.1.iter().sum();
            assert!(before < times * 400, "{how:?}: more draws than are wanted");
            counted.0 += 1;
            (vertices.iter()).for_each(|&vertex| counted.1[vertex as usize] += 1);
            let edges = read(backend, &subgraph.edges);
            (edges.iter()).for_each(|&edge| counted.2[edge as usize] += 1);
            let mut rows = Matrix::zeros(backend, vertices.len(), columns, MemoryKind::Features)
                .expect("room");
            ops::take_rows(backend, &x, &subgraph.vertices, &mut rows).expect("legal");
            let part = Propagation::of_induced(backend, subgraph, &factors).expect("room");
            let summed = aggregate(backend, &part, &rows);
            for (row, &vertex) in summed.chunks(columns).zip(&vertices) {
                let to = &mut sums[vertex as usize * columns..][..columns];
                to.iter_mut()
                    .zip(row)
                    .for_each(|(to, &value)| *to += f64::from(value));
                weighed += f64::from(of_vertices[vertex as usize]);
            }
        }
        let seen = (coverage.subgraphs, &coverage.vertices, &of_edges);
        assert_eq!(seen, (counted.0, &counted.1, &counted.2), "{how:?}");
        let whole = Propagation::weighted::<f32>(backend, &graph, &weights, norm).expect("room");
        let whole = aggregate(backend, &whole, &x);
        let seen = |vertex: usize| {
            let edges = &of_edges[graph.csr().row_range(vertex)];
            coverage.vertices[vertex] > 0 && edges.iter().all(|&count| count > 0)
        };
        assert!(
            (0..400).filter(|&vertex| seen(vertex)).count() > 150,
            "{how:?}"
        );
        for vertex in (0..400).filter(|&vertex| seen(vertex)) {
            for column in 0..columns {
                let at = vertex * columns + column;
                let mean = sums[at] / f64::from(coverage.vertices[vertex]);
                let far = (mean - f64::from(whole[at])).abs();
                assert!(far < 1e-5, "{how:?}, vertex {vertex}: {mean} {}", whole[at]);
            }
        }
        let present = coverage.vertices.iter().filter(|&&count| count > 0).count() as f64;
        let mean = weighed / f64::from(coverage.subgraphs);
        assert!((mean - present).abs() < 1e-3, "{how:?}: {mean} {present}");
    }
}

/// A walk never stays where it could go on, and a vertex that is there has its self-loop.
pub fn self_loops_are_taken_and_not_walked<B: Backend>(backend: &B, _: Scale) {
    let vertices: Vec<u32> = (0..64).collect();
    let next: Vec<u32> = vertices.iter().map(|vertex| (vertex + 1) % 64).collect();
    let ring = Graph::from_edges(64, &vertices, &next).expect("a graph");
    let graph = ring.with_self_loops().expect("room");
    let how = Subgraphs::Walks {
        roots: 1,
        length: 20,
    };
    let mut sampler = SubgraphSampler::new(backend, &graph, &[30], how).expect("room");
    let subgraph = sampler.draw(backend, 1, 1).expect("a walk");
    let walked: Vec<u32> = (30..=50).collect();
    assert_eq!(read(backend, &subgraph.vertices), walked);
    // A loop each, and an edge each but of the last.
    assert_eq!(subgraph.edges.len(), 21 + 20);
}

/// What each destination sums up by the factors of edges.
fn aggregate<B: Backend>(backend: &B, graph: &Propagation<B>, x: &Matrix<B, f32>) -> Vec<f32> {
    let (rows, columns) = (graph.destinations(), x.columns());
    let mut y = Matrix::zeros(backend, rows, columns, MemoryKind::Activations).expect("room");
    let factors = graph.edge_factors::<f32>().expect("float");
    let factors = factors.expect("edges have factors");
    let op = Spmm {
        weights: EdgeWeights::Features(factors.forward),
        scale: factors.scale,
        ..Spmm::default()
    };
    ops::spmm(backend, graph.forward(), &op, x, &mut y).expect("a sum");
    y.to_f32(backend).expect("no failure before")
}

/// Elements in an order, of every width.
pub fn values_are_taken<B: Backend>(backend: &B, _: Scale) {
    fn of<B: Backend, E: Element>(backend: &B) {
        let values: Vec<E> = (0..300)
            .map(|at| E::from_f32(at as f32 / 4.0 - 9.0))
            .collect();
        let from = Array::from_slice(backend, &values, MemoryKind::Graph).expect("room");
        let order: Vec<u32> = (0..400).map(|at| at * 7 % 310).chain([u32::MAX]).collect();
        let mut taken = Array::zeros(backend, order.len(), MemoryKind::Graph).expect("room");
        ops::take_values(backend, &from, &words(backend, &order), &mut taken).expect("legal");
        let expected = order.iter().map(|&at| match values.get(at as usize) {
            Some(&value) => value,
            None => E::from_f32(0.0),
        });
        let taken: Vec<E> = taken.to_vec(backend).expect("no failure before");
        assert!(taken == expected.collect::<Vec<E>>(), "{}", E::PRECISION);
    }
    of::<B, f16>(backend);
    of::<B, bf16>(backend);
    of::<B, f32>(backend);
    let from = Array::<B, f32>::zeros(backend, 3, MemoryKind::Graph).expect("room");
    let mut taken = Array::zeros(backend, 2, MemoryKind::Graph).expect("room");
    let refused = ops::take_values(backend, &from, &words(backend, &[1]), &mut taken);
    assert!(
        refused
            .expect_err("too long")
            .to_string()
            .contains("taken words")
    );
}

/// What cannot be walked or drawn is refused in a line.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    let empty = Csr::from_edges(3, &[], &[]).expect("a graph");
    let empty = Adjacency::new(backend, &empty).expect("room");
    let mut room = words(backend, &[0; 6]);
    let (none, one) = (words(backend, &[]), words(backend, &[1]));
    let mut walks = |graph, roots, length| {
        let refused = ops::random_walks(backend, graph, roots, (length, DRAW), &mut room);
        refused.expect_err("a misfit").to_string()
    };
    assert!(walks(&graph, Some(&one), 3).contains("vertices of whole walks should be 4, is 6"));
    assert!(walks(&graph, Some(&none), 2).contains("no vertex to begin at"));
    assert!(walks(&empty, None, 2).contains("no edge to begin at"));
    let mut walk = |roots, length| {
        let refused = ops::frontier_walk(backend, &graph, roots, (length, DRAW), &mut room);
        refused.expect_err("a misfit").to_string()
    };
    assert!(walk(&none, 2).contains("no vertex to begin at"));
    for length in [0, 7, 32_769] {
        assert!(
            walk(&one, length).contains(&format!("a frontier of {length} vertices in a walk of 6"))
        );
    }
    let mut places = Places::new(backend, 399).expect("room");
    let refused = places.induced(backend, &graph, &one).expect_err("a misfit");
    assert!(
        refused
            .to_string()
            .contains("rows of the graph should be 399, is 400")
    );
    let whole = Graph::from_edges(3, &[0], &[1]).expect("a graph");
    let sampler = |roots: &[u32], how| {
        let refused = SubgraphSampler::new(backend, &whole, roots, how);
        refused.expect_err("a misfit").to_string()
    };
    assert!(sampler(&[3], Subgraphs::Nodes(2)).contains("root 3 of 3 vertices"));
    assert!(sampler(&[], Subgraphs::Edges(2)).contains("no vertex to begin at"));
    assert!(sampler(&[0], Subgraphs::Clusters(0)).contains("choose 1 at least"));
    let mut clusters =
        SubgraphSampler::new(backend, &whole, &[0, 1, 2], Subgraphs::Clusters(1)).expect("room");
    let refused = clusters.of_clusters(backend, &[1]).expect_err("a misfit");
    assert!(refused.to_string().contains("cluster 1 of 1"));
}

/// The exponent of a normal number: its logarithm to base 2, rounded down, without an error.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23) as i32 - 127
}
