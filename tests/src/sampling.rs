//! Random pairs of vertices.

use crate::Scale;
use crate::input::words;
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops;
use halfgnn_contract::rng;
use halfgnn_contract::sampling::{ATTEMPTS, pair, pair_counter};

fn pairs<B: Backend>(
    backend: &B,
    vertices: usize,
    edges: Option<&Adjacency<B>>,
    step: u32,
    count: usize,
) -> Vec<[u32; 2]> {
    let [mut firsts, mut seconds] = [(); 2].map(|()| words(backend, &vec![u32::MAX; count]));
    ops::sample_pairs(backend, vertices, edges, 5, step, &mut firsts, &mut seconds)
        .expect("legal pairs");
    let read = |array: &halfgnn::tensor::Array<B, u32>| array.to_vec(backend).expect("no failure");
    read(&firsts)
        .into_iter()
        .zip(read(&seconds))
        .map(|(a, b)| [a, b])
        .collect()
}

/// Every pair is the first that is no edge, as the counter gives it; steps draw apart, and all vertices are as likely.
pub fn pairs_follow_the_counter<B: Backend>(backend: &B, scale: Scale) {
    let count = scale.pick(300, 40_000);
    // Half of all pairs, so that most places are drawn anew at times.
    let vertices = 40;
    let all =
        (0..vertices as u32).flat_map(|row| (0..vertices as u32).map(move |column| [row, column]));
    let is_edge = |[row, column]: [u32; 2]| (row * 7 + column * 3).is_multiple_of(2);
    let (rows, columns): (Vec<u32>, Vec<u32>) = all
        .filter(|&pair| is_edge(pair))
        .map(|[row, column]| (row, column))
        .unzip();
    let csr = Csr::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let graph = Adjacency::new(backend, &csr).expect("room for a graph");
    let key = rng::key(5, 0x6c69_6e6b);
    for step in [0, 9] {
        for refuses in [false, true] {
            let made = pairs(backend, vertices, refuses.then_some(&graph), step, count);
            for (at, &made) in made.iter().enumerate() {
                let drawn =
                    |attempt| pair(rng::philox(key, pair_counter(step, attempt, at as u64)), 40);
                let accepted = (0..ATTEMPTS)
                    .map(drawn)
                    .find(|&pair| !refuses || !is_edge(pair));
                assert_eq!(made, accepted.unwrap_or(drawn(ATTEMPTS - 1)), "pair {at}");
                assert!(made[0] != made[1]);
            }
            let mut seen = [0; 40];
            made.iter()
                .flatten()
                .for_each(|&vertex| seen[vertex as usize] += 1);
            let mean = 2.0 * count as f64 / 40.0;
            // Six standard deviations of a count.
            let far = seen
                .iter()
                .any(|&seen| (f64::from(seen) - mean).abs() > 6.0 * mean.sqrt());
            assert!(!far, "{seen:?}");
        }
    }
    assert_ne!(
        pairs(backend, 40, None, 0, 50),
        pairs(backend, 40, None, 1, 50)
    );
    assert_eq!(pairs(backend, 40, None, 0, 0), Vec::<[u32; 2]>::new());
}

/// Of a graph of all pairs an edge is drawn all the same; there is nothing to draw of one vertex.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let csr = Csr::from_edges(2, &[0, 1], &[1, 0]).expect("ids are in range");
    let graph = Adjacency::new(backend, &csr).expect("room for a graph");
    for [first, second] in pairs(backend, 2, Some(&graph), 3, 33) {
        assert_eq!(first + second, 1);
    }
    let message = |vertices, seconds: usize| {
        let (mut firsts, mut seconds) =
            (words(backend, &[0; 3]), words(backend, &vec![0; seconds]));
        let pairs = ops::sample_pairs(
            backend,
            vertices,
            Some(&graph),
            0,
            0,
            &mut firsts,
            &mut seconds,
        );
        pairs.expect_err("a misfit").to_string()
    };
    assert_eq!(
        message(2, 2),
        "sample_pairs: second vertices should be 3, is 2"
    );
    assert_eq!(
        message(3, 3),
        "sample_pairs: rows of the graph should be 3, is 2"
    );
    let (mut firsts, mut seconds) = (words(backend, &[0]), words(backend, &[0]));
    let one = ops::sample_pairs(backend, 1, None, 0, 0, &mut firsts, &mut seconds);
    assert_eq!(
        one.expect_err("one vertex").to_string(),
        "sample_pairs: pairs are drawn of 2 to 2^32 - 1 vertices, and there are 1"
    );
}
