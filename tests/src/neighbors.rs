//! Neighbours drawn at random, the places of vertices, and rows of features, by `==`; and how likely each sample is.

mod in_place;

pub use in_place::{batches_lie_in_the_same_memory, sources_are_all_vertices};

use crate::Scale;
use crate::input::{Random, matrix, words};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend, Block, MemoryKind};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{self, Draw, Fanout, NeighborPolicy, Places, RowCache};
use halfgnn::sample::{EdgesIn, NeighborSampler, Sampler, SamplingPolicy};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::rng;
use halfgnn_contract::sampling::{choice, neighbor_counter};
use halfgnn_contract::scan::{ITEMS_PER_CTA, MOST_ADDED};
use std::collections::{BTreeMap, BTreeSet};

const STREAM: u32 = 0x6e65_6967;

fn policy(fanout: u32, replace: bool, self_loops: bool) -> NeighborPolicy {
    let fanout = match fanout {
        0 => Fanout::All,
        count => Fanout::of(count).expect("a fanout"),
    };
    NeighborPolicy {
        fanout,
        replace,
        self_loops,
    }
}

/// Edges of `vertices` as a device draws them.
fn drawn<B: Backend>(
    backend: &B,
    graph: &Adjacency<B>,
    policy: NeighborPolicy,
    draw: Draw,
    vertices: &[u32],
) -> Vec<[u32; 2]> {
    let vertices = words(backend, vertices);
    let len = vertices.len() + 1;
    let mut firsts = words(backend, &vec![u32::MAX; len]);
    ops::first_edges(backend, graph, policy, &vertices, &mut firsts).expect("legal sums");
    let edges = firsts.to_vec(backend).expect("no failure")[len - 1] as usize;
    let [mut rows, mut neighbors] = [(); 2].map(|()| words(backend, &vec![u32::MAX; edges]));
    let how = (policy, draw);
    ops::sample_neighbors(
        backend,
        graph,
        how,
        &vertices,
        &firsts,
        &mut rows,
        &mut neighbors,
    )
    .expect("legal neighbours");
    let read = |array: &Array<B, u32>| array.to_vec(backend).expect("no failure");
    (read(&rows).into_iter().zip(read(&neighbors)))
        .map(|(row, neighbor)| [row, neighbor])
        .collect()
}

/// Floyd's algorithm, with a set.
fn expected(graph: &Csr, policy: NeighborPolicy, draw: Draw, vertices: &[u32]) -> Vec<[u32; 2]> {
    let key = rng::key(draw.seed, STREAM);
    let mut edges = Vec::new();
    for (row, &vertex) in (0..).zip(vertices) {
        if vertex as usize >= graph.vertices() {
            continue;
        }
        if policy.self_loops {
            edges.push([row, vertex]);
        }
        let neighbors = graph.row(vertex as usize);
        let number = |index: usize, choices: usize| {
            let counter = neighbor_counter(draw.step, draw.layer, vertex, index as u32);
            choice(rng::philox(key, counter)[0], choices as u32) as usize
        };
        let degree = neighbors.len();
        let places: Vec<usize> = match policy.fanout {
            Fanout::AtMost(count) if policy.replace && degree > 0 => {
                let draws = 0..count.get() as usize;
                draws.map(|index| number(index, degree)).collect()
            }
            Fanout::AtMost(count) if (count.get() as usize) < degree => {
                let (count, mut taken) = (count.get() as usize, BTreeSet::new());
                let settle = |index| {
                    let itself = degree - count + index;
                    let drawn = number(index, itself + 1);
                    if taken.insert(drawn) {
                        drawn
                    } else {
                        taken.insert(itself);
                        itself
                    }
                };
                (0..count).map(settle).collect()
            }
            _ => (0..degree).collect(),
        };
        edges.extend(places.into_iter().map(|place| [row, neighbors[place]]));
    }
    edges
}

/// Rows of every length about those at which a warp has another turn, and a hub.
fn graph() -> Csr {
    let lengths = [
        0, 1, 2, 4, 5, 6, 31, 32, 33, 34, 63, 64, 65, 70, 96, 97, 300,
    ];
    let columns = 400;
    let rows = (0..).zip(lengths);
    let edges = rows
        .flat_map(|(row, length)| (0..length).map(move |edge| (row, (edge * 7 + row) % columns)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.unzip();
    Csr::from_edges(400, &rows, &columns).expect("ids are in range")
}

/// Every sample is the one that the counter gives, whatever the row and the fanout; seeds, steps, layers and vertices draw apart.
pub fn samples_follow_the_counter<B: Backend>(backend: &B, _: Scale) {
    let csr = graph();
    let graph = Adjacency::new(backend, &csr).expect("room");
    // In no order, one twice, and one that is none.
    let mut vertices: Vec<u32> = (0..20).rev().collect();
    vertices.extend([16, 400, u32::MAX, 12]);
    for fanout in [0, 1, 5, 8, 9, 16, 17, 32, 33, 64, 70, 250] {
        for (replace, self_loops) in [(false, false), (true, false), (false, true), (true, true)] {
            let policy = policy(fanout, replace, self_loops);
            for draw in [
                Draw::default(),
                Draw {
                    seed: 7 << 40,
                    step: 3,
                    layer: 2,
                },
            ] {
                let made = drawn(backend, &graph, policy, draw, &vertices);
                let wanted = expected(&csr, policy, draw, &vertices);
                assert_eq!(made, wanted, "{policy:?} {draw:?}");
            }
        }
    }
    let five = policy(5, false, false);
    let of = |seed, step, layer| {
        drawn(
            backend,
            &graph,
            five,
            Draw { seed, step, layer },
            &[10, 11, 12, 13, 14, 15, 16],
        )
    };
    let all = [of(0, 0, 0), of(1, 0, 0), of(0, 1, 0), of(0, 0, 1)];
    let apart: BTreeSet<_> = all.iter().collect();
    assert_eq!(apart.len(), 4);
    assert_eq!(
        drawn(backend, &graph, five, Draw::default(), &[]),
        Vec::<[u32; 2]>::new()
    );
}

/// `(observed - expected)² / expected` of outcomes that are as likely.
fn chi_square(counts: &[u32]) -> f64 {
    let expected = counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64;
    let square = |&count: &u32| (f64::from(count) - expected).powi(2) / expected;
    counts.iter().map(square).sum()
}

/// A graph whose vertices all hear from `degree` vertices, the first ones.
fn regular(vertices: usize, degree: u32) -> Csr {
    let rows = (0..vertices as u32).flat_map(|row| (0..degree).map(move |column| (row, column)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = rows.unzip();
    Csr::from_edges(vertices, &rows, &columns).expect("ids are in range")
}

/// Where edges begin is a prefix sum of how many each vertex has, of as many launches as there are vertices for: numbers that are no
/// vertex have none, wherever they stand.
pub fn first_edges_are_sums<B: Backend>(backend: &B, _: Scale) {
    // Degrees from 0 on, as vertex 0 has none.
    let edges = (0..40_u32).flat_map(|row| (0..row % 7).map(move |column| (row, column)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.unzip();
    let csr = Csr::from_edges(40, &rows, &columns).expect("ids are in range");
    let graph = Adjacency::new(backend, &csr).expect("room");
    // With the end one CTA of a scan, some, and more than add up one another's sums.
    let most = ITEMS_PER_CTA * MOST_ADDED as u32;
    for count in [
        0,
        1,
        ITEMS_PER_CTA - 1,
        ITEMS_PER_CTA,
        3 * ITEMS_PER_CTA,
        most,
    ] {
        // Every number that is none, and some that are far away.
        let number = |at: u32| match at % 45 {
            44 => u32::MAX,
            number => number,
        };
        let vertices: Vec<u32> = (0..count).map(|at| number(at.wrapping_mul(17))).collect();
        for policy in [
            policy(4, false, true),
            policy(4, true, false),
            policy(0, true, false),
        ] {
            let mut firsts = words(backend, &vec![7; vertices.len() + 1]);
            let listed = words(backend, &vertices);
            ops::first_edges(backend, &graph, policy, &listed, &mut firsts).expect("legal sums");
            let mut sum = 0;
            let of_each = |&vertex: &u32| {
                let first = sum;
                if vertex < 40 {
                    sum += match (vertex % 7, policy.fanout) {
                        (0, _) => 0,
                        (degree, Fanout::All) => degree,
                        (_, _) if policy.replace => 4,
                        (degree, _) => degree.min(4),
                    };
                    sum += u32::from(policy.self_loops);
                }
                first
            };
            let mut expected: Vec<u32> = vertices.iter().map(of_each).collect();
            expected.push(sum);
            let found = firsts.to_vec(backend).expect("no failure");
            assert!(found == expected, "{count} vertices, {policy:?}");
        }
    }
}

/// All sets of neighbours are as likely, and with replacement all sequences: chi-square against the exact probabilities, with a bound
/// that one run in a hundred thousand is past (and a run that is not never is: seeds are fixed).
pub fn all_samples_are_as_likely<B: Backend>(backend: &B, scale: Scale) {
    let vertices = scale.pick(1_500, 30_000);
    let all: Vec<u32> = (0..vertices as u32).collect();
    let count = |degree, fanout, replace, outcome: &dyn Fn(&[u32]) -> usize, outcomes: usize| {
        let csr = regular(vertices, degree);
        let graph = Adjacency::new(backend, &csr).expect("room");
        let draw = Draw {
            seed: 11,
            step: 2,
            layer: 1,
        };
        let edges = drawn(backend, &graph, policy(fanout, replace, false), draw, &all);
        let mut counts = vec![0; outcomes];
        for row in edges.chunks(fanout as usize) {
            let sample: Vec<u32> = row.iter().map(|edge| edge[1]).collect();
            counts[outcome(&sample)] += 1;
        }
        chi_square(&counts)
    };
    // Ten pairs of five: as bits, by their rank.
    let pairs: BTreeMap<u32, usize> = (0..32_u32)
        .filter(|bits| bits.count_ones() == 2)
        .zip(0..)
        .collect();
    let pair = |sample: &[u32]| pairs[&sample.iter().fold(0, |bits, at| bits | 1 << at)];
    let chi = count(5, 2, false, &pair, 10);
    assert!(chi < 38.9, "pairs of five, 9 degrees of freedom: {chi}");
    // Which of 40 is missing of 39: past a warp's lanes.
    let missing = |sample: &[u32]| {
        (0..40).sum::<usize>() - sample.iter().map(|&at| at as usize).sum::<usize>()
    };
    let chi = count(40, 39, false, &missing, 40);
    assert!(
        chi < 88.1,
        "which of 40 is missing, 39 degrees of freedom: {chi}"
    );
    let sequence = |sample: &[u32]| {
        sample
            .iter()
            .fold(0, |number, &at| number * 3 + at as usize)
    };
    let chi = count(3, 2, true, &sequence, 9);
    assert!(
        chi < 36.7,
        "two of three with replacement, 8 degrees of freedom: {chi}"
    );
}

fn sorted(mut edges: Vec<[u32; 2]>) -> Vec<[u32; 2]> {
    edges.sort_unstable();
    edges
}

/// Blocks have the edges that were drawn, under the places of a batch: seeds, then what each hop met by its number. The same on
/// every backend, and the transposes beside them.
pub fn batches_are_blocks<B: Backend>(backend: &B, scale: Scale) {
    let vertices = scale.pick(300, 3_000);
    let rows = Random(90).below(vertices as u32, vertices * 9);
    let columns = Random(91).below(vertices as u32, vertices * 9);
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let seeds = [17, 3, 255, 0, 31, 32, 299];
    let fanouts = [4, 0, 2];
    for self_loops in [false, true] {
        let wanted = fanouts.map(|fanout| policy(fanout, false, self_loops));
        let mut sampler = NeighborSampler::new(
            backend,
            graph.csr(),
            wanted.map(|policy| policy.fanout).to_vec(),
        )
        .expect("room")
        .with_self_loops(self_loops);
        for step in [0, 5] {
            let batch = sampler.sample(backend, &seeds, 9, step).expect("a batch");
            assert_eq!(batch.blocks.len(), 3);
            let mut known = seeds.to_vec();
            for (layer, (block, policy)) in batch.blocks.iter().rev().zip(wanted).enumerate() {
                let draw = Draw {
                    seed: 9,
                    step,
                    layer: layer as u32,
                };
                let edges = expected(graph.csr(), policy, draw, &known);
                let destinations = known.len();
                let met: BTreeSet<u32> = (edges.iter().map(|edge| edge[1]))
                    .filter(|vertex| !known.contains(vertex))
                    .collect();
                known.extend(met);
                let place =
                    |vertex| known.iter().position(|&it| it == vertex).expect("known") as u32;
                let edges: Vec<_> = edges
                    .iter()
                    .map(|&[row, vertex]| [row, place(vertex)])
                    .collect();
                assert_eq!(
                    (block.destinations(), block.sources()),
                    (destinations, known.len())
                );
                let of = |a: &Adjacency<B>| {
                    let [rows, columns] = a.to_coo(backend).expect("no failure");
                    rows.into_iter()
                        .zip(columns)
                        .map(|(row, column)| [row, column])
                        .collect::<Vec<_>>()
                };
                assert_eq!(of(block.forward()), edges, "layer {layer}");
                let turned = edges.iter().map(|&[row, column]| [column, row]).collect();
                assert_eq!(
                    of(block.backward(backend).expect("a transpose")),
                    sorted(turned),
                    "layer {layer}"
                );
            }
            assert_eq!(batch.inputs.to_vec(backend).expect("no failure"), known);
        }
    }
}

/// Edges in the host's memory are drawn as those of the device are, and so are batches that are cut from them.
pub fn edges_lie_in_the_memory_of_the_host<B: Backend>(backend: &B, _: Scale) {
    let vertices = 200;
    let rows = Random(94).below(vertices as u32, vertices * 6);
    let columns = Random(95).below(vertices as u32, vertices * 6);
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let fanouts = || vec![Fanout::of(3).expect("a fanout"), Fanout::All];
    // Of a CPU all memory is the host's.
    let edges = 4 * graph.edges() as u64;
    // Other tests allocate on the same device meanwhile, so one of many attempts must find what its samplers alone take.
    let mut attempts = (0..100).map(|_| {
        let kinds = [MemoryKind::HostGraph, MemoryKind::Graph];
        let current = || kinds.map(|kind| backend.memory().current[kind as usize]);
        let added = |from: [u64; 2], to: [u64; 2]| [0, 1].map(|at| to[at].checked_sub(from[at]));
        let before = current();
        let on_host =
            NeighborSampler::new_in(backend, graph.csr(), fanouts(), MemoryKind::HostGraph)
                .expect("memory");
        let now = current();
        let on_device = NeighborSampler::new(backend, graph.csr(), fanouts()).expect("memory");
        let [Some(host), Some(device)] = added(before, now) else {
            return None;
        };
        let is_alone = added(now, current())[1] == Some(host + device);
        (is_alone && [0, edges].contains(&host)).then_some((on_host, on_device))
    });
    let found = attempts.find_map(|samplers| samplers);
    let (mut on_host, mut on_device) = found.expect("edges take the host's memory or none of it");
    for step in 0..3 {
        let seeds = [11, 5, 199, step];
        let batches = [&mut on_host, &mut on_device].map(|sampler| {
            let batch = sampler.sample(backend, &seeds, 9, step).expect("a batch");
            let edges = |block: &Block<B>| block.forward().to_coo(backend).expect("no failure");
            let inputs = batch.inputs.to_vec(backend).expect("no failure");
            (batch.blocks.iter().map(edges).collect::<Vec<_>>(), inputs)
        });
        assert_eq!(batches[0], batches[1], "step {step}");
    }
}

/// What the host draws, be its edges in memory or on disk, is what the device draws, with replacement and self-loops and without, whether or
/// not somebody said beforehand which batch comes next.
pub fn the_host_draws_as_the_device_does<B: Backend>(backend: &B, _: Scale) {
    let vertices = 200;
    let rows = Random(97).below(vertices as u32, vertices * 6);
    let columns = Random(98).below(vertices as u32, vertices * 6);
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let on_disk = graph.to_disk(&std::env::temp_dir()).expect("a folder");
    for (policy, self_loops) in [("neighbor:3,-1", false), ("neighbor-replace:4,2,2", true)] {
        let policy: SamplingPolicy = policy.parse().expect("a policy");
        let samplers = || {
            [&on_disk, &graph].map(|graph| {
                let of = (graph, EdgesIn::Graph);
                policy.sampler(backend, of, self_loops).expect("memory")
            })
        };
        // Other tests allocate on the same device meanwhile, so one of many attempts must find the memory unchanged.
        let of_host = (0..10_000).find_map(|_| {
            let before = backend.memory().current;
            let samplers = samplers();
            (backend.memory().current == before).then_some(samplers)
        });
        let of_host = of_host.expect("samplers that take nothing of the device");
        let of_device = policy.sampler(backend, (&graph, EdgesIn::Device), self_loops);
        let [mut disk, mut memory] = of_host;
        let mut device = of_device.expect("room");
        for step in 0..4 {
            let seeds = [11, 5, 199, step];
            match step {
                // Before the batch, before another one, and twice.
                1 => disk.begin(&seeds, 9, step),
                2 => disk.begin(&seeds, 8, step),
                3 => (0..2).for_each(|_| disk.begin(&seeds, 9, step)),
                _ => {}
            }
            let batches = [&mut disk, &mut memory, &mut device].map(|sampler| {
                let batch = sampler.sample(backend, &seeds, 9, step).expect("a batch");
                let of = |a: &Adjacency<B>| a.to_coo(backend).expect("no failure");
                let blocks = batch.blocks.iter().map(|block| {
                    let backward = block.backward(backend).expect("a transpose");
                    let shape = (block.destinations(), block.sources());
                    (shape, of(block.forward()), of(backward))
                });
                let blocks: Vec<_> = blocks.collect();
                (blocks, batch.inputs.to_vec(backend).expect("no failure"))
            });
            assert_eq!(batches[0], batches[2], "{policy}, step {step}, of a file");
            assert_eq!(batches[1], batches[2], "{policy}, step {step}, of memory");
        }
        let refused = disk.sample(backend, &[200], 9, 0).expect_err("no vertex");
        assert!(refused.to_string().contains("vertex 200"), "{refused}");
        disk.begin(&[7, 7], 9, 0);
        assert!(disk.sample(backend, &[7, 7], 9, 0).is_err());
    }
}

/// Rows are the same bits, padding is zero, and so is what is no row. Those of another memory are taken in turns, 512
/// of 300 columns in each, with copies of some of them and without.
pub fn rows_are_taken<B: Backend>(backend: &B, scale: Scale) {
    fn of<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let near = [0, 1, 8, 41, 100, 300].map(|columns| (MemoryKind::Features, columns, 77));
        let remote = [(1, 77), (300, 2_100)];
        let remote = remote.map(|(columns, taken)| (MemoryKind::HostFeatures, columns, taken));
        for (kind, columns, taken) in near.into_iter().chain(remote) {
            let rows = scale.pick(40, 400);
            let values = Random(95).uniform::<E>(rows * columns);
            let from = values.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
            let from = Matrix::<B, E>::from_f32(backend, rows, columns, &from, kind);
            let from = from.expect("room");
            let mut order = Random(96).below(rows as u32, taken);
            order.extend([rows as u32, u32::MAX, 0]);
            let mut taken = Matrix::<B, E>::from_f32(
                backend,
                order.len(),
                columns,
                &vec![f32::NAN; order.len() * columns],
                MemoryKind::Features,
            )
            .expect("room");
            ops::take_rows(backend, &from, &words(backend, &order), &mut taken)
                .expect("legal rows");
            let stride = taken.stride();
            let check = |taken: &Matrix<B, E>, value: &dyn Fn(usize) -> E| {
                let made = taken.to_padded(backend).expect("no failure");
                for (at, &row) in order.iter().enumerate() {
                    for column in 0..stride {
                        let there = (row as usize) < rows && column < columns;
                        let wanted = match there {
                            true => value(row as usize * columns + column),
                            false => E::zeroed(),
                        };
                        let made = made[at * stride + column];
                        assert_eq!(made, wanted, "row {row}, column {column}");
                    }
                }
            };
            let of_matrix = |at: usize| E::from_f32(values[at]);
            check(&taken, &of_matrix);
            // Of all rows, of some that are in no order, of none. What is written to the matrix later shows which were read there.
            let all: Vec<u32> = (0..rows as u32).collect();
            let some: Vec<u32> = all.iter().rev().copied().filter(|it| it % 3 == 1).collect();
            for copied in [&all[..], &some, &[]] {
                let mut from = Matrix::<B, E>::from_f32(
                    backend,
                    rows,
                    columns,
                    &values.iter().map(|x| x.to_f32()).collect::<Vec<_>>(),
                    kind,
                )
                .expect("room");
                let cache = RowCache::new(backend, &from, copied).expect("room");
                assert_eq!((cache.len(), cache.of()), (copied.len(), rows));
                from.clear(backend).expect("no failure");
                let of = (&from, &cache);
                ops::take_cached_rows(backend, of, &words(backend, &order), &mut taken)
                    .expect("legal rows");
                check(
                    &taken,
                    &|at| match copied.contains(&((at / columns) as u32)) {
                        true => of_matrix(at),
                        false => E::zeroed(),
                    },
                );
            }
        }
    }
    of::<B, f16>(backend, scale);
    of::<B, bf16>(backend, scale);
    of::<B, f32>(backend, scale);
}

/// What does not fit is refused before anything is launched.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = Adjacency::new(backend, &regular(10, 3)).expect("room");
    let ten = words(backend, &[0; 10]);
    let two = policy(2, false, false);
    let message = |error: halfgnn::Error| error.to_string();
    let mut wrong = words(backend, &[0; 10]);
    let firsts = ops::first_edges(backend, &graph, two, &ten, &mut wrong);
    assert_eq!(
        message(firsts.expect_err("a misfit")),
        "first_edges: first edges should be 11, is 10"
    );
    let eleven = words(backend, &[0; 11]);
    let (mut rows, mut neighbors) = (words(backend, &[7; 4]), words(backend, &[7; 5]));
    let how = (two, Draw::default());
    let sample = ops::sample_neighbors(
        backend,
        &graph,
        how,
        &ten,
        &eleven,
        &mut rows,
        &mut neighbors,
    );
    assert_eq!(
        message(sample.expect_err("a misfit")),
        "sample_neighbors: neighbours should be 4, is 5"
    );
    // First edges that are no sums: what would lie past the end is left out.
    let mut rows = words(backend, &[7; 5]);
    let mut firsts = [u32::MAX; 11];
    firsts[4] = 3;
    firsts[5] = 4;
    let firsts = words(backend, &firsts);
    ops::sample_neighbors(
        backend,
        &graph,
        how,
        &ten,
        &firsts,
        &mut rows,
        &mut neighbors,
    )
    .expect("no edges past the end");
    assert_eq!(rows.to_vec(backend).expect("no failure"), [7, 7, 7, 4, 4]);

    let from = matrix::<B, f16>(backend, (10, 3), &[0.5; 30]);
    let no_row = RowCache::new(backend, &from, &[3, 10]).expect_err("no row");
    assert_eq!(
        message(no_row),
        "RowCache: a copy of row 10 is asked for, and there are 10"
    );
    let cache = RowCache::new(backend, &from, &[3]).expect("room");
    let other = matrix::<B, f16>(backend, (9, 3), &[0.5; 27]);
    let mut taken = matrix::<B, f16>(backend, (10, 3), &[0.5; 30]);
    let of_another = ops::take_cached_rows(backend, (&other, &cache), &ten, &mut taken);
    assert_eq!(
        message(of_another.expect_err("a misfit")),
        "take_rows: rows that the cache is of should be 9, is 10"
    );

    let mut places = Places::new(backend, 10).expect("room");
    assert_eq!(
        message(places.begin(backend, &[1, 10]).expect_err("no vertex")),
        "Places: vertex 10 is asked for, and there are 10"
    );
    assert_eq!(
        message(places.begin(backend, &[1, 4, 1]).expect_err("twice")),
        "Places: vertex 1 is asked for twice; list each once"
    );
    let narrow = Csr::rectangular_from_edges((10, 4), &[], &[]).expect("a graph");
    let narrow = Adjacency::new(backend, &narrow).expect("room");
    let hop = places.hop(backend, &narrow, how, &ten);
    assert_eq!(
        message(hop.expect_err("a misfit")),
        "Places::hop: columns of the graph should be 10, is 4"
    );
    let features: Matrix<B, f16> = matrix(backend, (10, 3), &[0.0; 30]);
    let mut taken: Matrix<B, f16> = matrix(backend, (10, 4), &[0.0; 40]);
    let take = ops::take_rows(backend, &features, &ten, &mut taken);
    assert_eq!(
        message(take.expect_err("a misfit")),
        "take_rows: taken columns should be 3, is 4"
    );
    let none = NeighborSampler::new(backend, &regular(3, 1), Vec::new());
    assert_eq!(
        message(none.expect_err("no fanout")),
        "NeighborSampler: no fanout; name one for each layer"
    );
}
