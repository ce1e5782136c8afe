//! Tests of held-out edges, and of losses and gradients of decoders against float64 and torch.

use super::*;
use crate::nn::{LinkDecoder, PairScores};
use std::collections::HashSet;

fn held_out(graph: &Graph, shares: [f64; 2], seed: u64) -> Result<LinkSplit, Error> {
    LinkSplit::new(graph, HeldOut { shares, seed })
}

fn ring(vertices: u32) -> Graph {
    let rows: Vec<u32> = (0..vertices)
        .flat_map(|v| [v, (v + 1) % vertices])
        .collect();
    let columns: Vec<u32> = (0..vertices)
        .flat_map(|v| [(v + 1) % vertices, v])
        .collect();
    Graph::from_edges(vertices as usize, &rows, &columns).unwrap()
}

#[test]
fn edges_are_held_out_in_both_directions() {
    let graph = ring(200);
    let split = held_out(&graph, [0.05, 0.1], 3).unwrap();
    assert_eq!([0, 1, 2].map(|of| split.edges[of].len()), [170, 10, 20]);
    assert_eq!([0, 1, 2].map(|of| split.others[of].len()), [170, 10, 20]);
    assert_eq!(
        (split.graph.edges(), split.graph.is_symmetric()),
        (340, true)
    );
    let has = |graph: &Graph, [row, column]: [u32; 2]| {
        graph.csr().row(row as usize).binary_search(&column).is_ok()
    };
    let all: HashSet<[u32; 2]> = split.edges.iter().flatten().copied().collect();
    assert_eq!(all.len(), 200);
    assert!(all.iter().all(|&pair| has(&graph, pair)));
    assert!(split.edges[0].iter().all(|&pair| has(&split.graph, pair)));
    for &[a, b] in split.edges[1].iter().chain(&split.edges[2]) {
        assert!(!has(&split.graph, [a, b]) && !has(&split.graph, [b, a]));
    }
    assert!(
        split
            .others
            .iter()
            .flatten()
            .all(|&pair| !has(&graph, pair))
    );
    let again = held_out(&graph, [0.05, 0.1], 3).unwrap();
    assert_eq!(
        (again.edges, again.others),
        (split.edges.clone(), split.others)
    );
    assert_ne!(held_out(&graph, [0.05, 0.1], 4).unwrap().edges, split.edges);
}

#[test]
fn what_cannot_be_held_out_is_refused() {
    let message = |graph: &Graph, shares| held_out(graph, shares, 0).unwrap_err().to_string();
    let directed = Graph::from_edges(3, &[0, 1], &[1, 2]).unwrap();
    assert!(message(&directed, [0.1, 0.1]).contains("the graph is directed; make it undirected"));
    for shares in [[0.5, 0.5], [-0.1, 0.2], [f64::NAN, 0.1]] {
        assert!(message(&ring(50), shares).contains("leave none to learn from"));
    }
    assert!(message(&ring(5), [0.1, 0.1]).contains("of 5 links 0 are held out"));
}

/// All pairs of vertices except some.
fn complete(vertices: u32, without: &[[u32; 2]]) -> Graph {
    let pairs = (0..vertices).flat_map(|a| (0..vertices).map(move |b| [a, b]));
    let (rows, columns): (Vec<u32>, Vec<u32>) = pairs
        .filter(|&[a, b]| a != b && !without.contains(&[a.min(b), a.max(b)]))
        .map(|[a, b]| (a, b))
        .unzip();
    Graph::from_edges(vertices as usize, &rows, &columns).unwrap()
}

#[test]
fn held_out_links_are_compared_with_pairs_without_an_edge() {
    let refused = held_out(&complete(6, &[]), [0.2, 0.2], 0).unwrap_err();
    assert!(refused.to_string().contains("0 of 15 pairs have no edge"));
    // Five of 15 pairs have no edge, and as many are needed as edges are held out.
    let apart = [[0, 1], [0, 2], [0, 3], [1, 2], [4, 5]];
    for seed in 0..20 {
        let split = held_out(&complete(6, &apart), [0.2, 0.2], seed).unwrap();
        assert_eq!(split.edges.each_ref().map(Vec::len), [6, 2, 2]);
        for pair in split.others.iter().flatten() {
            let pair = [pair[0].min(pair[1]), pair[0].max(pair[1])];
            assert!(apart.contains(&pair), "{pair:?} of seed {seed}");
        }
    }
}

fn state(backend: &Cpu) -> OptimizerState<Cpu> {
    let float = super::super::MixedPrecision::of(crate::tensor::Precision::Float);
    OptimizerState::new(backend, &float.loss_scaling).unwrap()
}

/// A decoder whose parameters are `values`, in their order.
fn decoder(kind: LinkDecoder, width: usize, values: &[Vec<f32>]) -> Option<Decoder<Cpu, f32>> {
    let backend = Cpu::new();
    let mut decoder = Decoder::new(&backend, kind, width, 3).unwrap();
    let parameters = decoder.iter_mut().flat_map(Decoder::parameters_mut);
    for (parameter, values) in parameters.zip(values) {
        parameter.write(&backend, values).unwrap();
    }
    decoder
}

/// The loss, and the gradients for the embeddings and the parameters.
fn learn(
    pairs: impl FnOnce(LinkOperands<'_, Cpu, f32>, &mut Array<Cpu, f32>),
    (rows, columns): (usize, usize),
    values: &[f32],
    mut decoder: Option<Decoder<Cpu, f32>>,
) -> (f32, Vec<Vec<f32>>) {
    let (backend, kind) = (Cpu::new(), MemoryKind::Activations);
    let embeddings = Matrix::from_f32(&backend, rows, columns, values, kind).unwrap();
    let mut gradient = Matrix::zeros(&backend, rows, columns, kind).unwrap();
    let mut loss = Array::zeros(&backend, 1, kind).unwrap();
    let operands = LinkOperands {
        logits: &embeddings,
        gradient: &mut gradient,
        decoder: decoder.as_mut(),
    };
    pairs(operands, &mut loss);
    let mut gradients = vec![gradient.to_f32(&backend).unwrap()];
    for parameter in decoder.iter_mut().flat_map(Decoder::parameters_mut) {
        gradients.push(parameter.gradient().to_f32(&backend).unwrap());
    }
    (loss.to_vec(&backend).unwrap()[0], gradients)
}

/// The score of a pair in one order in float64, from the embeddings and the parameters of a decoder.
fn score(kind: LinkDecoder, width: usize, of: &[Vec<f64>], [a, b]: [u32; 2]) -> f64 {
    let row = |vertex: u32| &of[0][vertex as usize * width..][..width];
    let (a, b) = (row(a), row(b));
    let column = |weight: &[f64], x: &[f64], to: usize| -> f64 {
        (0..width)
            .map(|from| x[from] * weight[from * width + to])
            .sum()
    };
    let numbers = 0..width;
    match kind {
        LinkDecoder::Dot => numbers.map(|at| a[at] * b[at]).sum(),
        LinkDecoder::Bilinear => numbers.map(|at| column(&of[1], a, at) * b[at]).sum(),
        LinkDecoder::Mlp => {
            let hidden = |at| column(&of[1], a, at) + column(&of[2], b, at) + of[3][at];
            let terms = numbers.map(|at| of[4][at] * hidden(at).max(0.0));
            terms.sum::<f64>() + of[5][0]
        }
    }
}

#[test]
fn gradients_of_every_decoder_are_differences_of_the_loss_in_float64() {
    let backend = Cpu::new();
    let split = held_out(&ring(40), [0.1, 0.1], 1).unwrap();
    let links = Links::new(&backend, &split).unwrap();
    let state = state(&backend);
    let (rows, width) = (40, 5);
    let shape = (rows, width);
    let random = |len: usize, stream| -> Vec<f32> {
        let key = rng::key(8, stream);
        let unit = |at| 2.0 * rng::unit_f32(rng::uniform_u32(key, at)) - 1.0;
        (0..len as u64).map(unit).collect()
    };
    let edges = &split.edges[0];
    let count = (2 * edges.len()).next_multiple_of(4) - edges.len();
    let others = draw(&backend, rows, Some(&links.graph), links.seed, 0, count).unwrap();
    for kind in LinkDecoder::ALL {
        let squares = match kind {
            LinkDecoder::Dot => vec![],
            LinkDecoder::Bilinear => vec![width * width],
            LinkDecoder::Mlp => vec![width * width, width * width, width, width, 1],
        };
        let lengths = std::iter::once(rows * width).chain(squares).enumerate();
        let values: Vec<Vec<f32>> = lengths.map(|(at, len)| random(len, at as u32)).collect();
        let made = decoder(kind, width, &values[1..]);
        let step = |operands: LinkOperands<'_, Cpu, f32>, loss: &mut Array<Cpu, f32>| {
            links.loss(&backend, operands, &state, loss).unwrap();
        };
        let (loss, gradients) = learn(step, shape, &values[0], made);
        let expected = |values: &[Vec<f64>]| {
            let pairs = edges.iter().map(|&pair| (pair, 1.0));
            let pairs = pairs.chain(others.iter().map(|&pair| (pair, 0.0)));
            let costs = pairs.map(|([a, b], truth)| {
                let of = |ends| score(kind, width, values, ends);
                let score = 0.5 * (of([a, b]) + of([b, a]));
                score.max(0.0) - score * truth + (-score.abs()).exp().ln_1p()
            });
            costs.sum::<f64>() / (edges.len() + others.len()) as f64
        };
        let doubles: Vec<Vec<f64>> = (values.iter())
            .map(|values| values.iter().map(|&value| value.into()).collect())
            .collect();
        let whole = expected(&doubles);
        assert!(
            (f64::from(loss) - whole).abs() < 1e-6,
            "{kind}: {loss} for {whole}"
        );
        assert_eq!(gradients.len(), values.len(), "{kind}");
        for (which, gradient) in gradients.iter().enumerate() {
            for (at, &found) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut values = doubles.clone();
                    values[which][at] += by;
                    expected(&values)
                };
                let difference = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!(
                    (difference - f64::from(found)).abs() < 1e-6,
                    "{kind}, {which}, {at}: {found} for {difference}"
                );
            }
        }
    }
}

fn values(count: usize, stream: usize, factor: f32) -> Vec<f32> {
    let value = |at| ((at * 37 + stream * 11) % 101) as f32 / 101.0 - 0.5;
    (0..count).map(|at| factor * value(at)).collect()
}

/// The decoder, its parameters, the scores, the loss, and the gradients, that of the embeddings first.
type Case = (LinkDecoder, Vec<Vec<f32>>, Vec<f32>, f32, Vec<Vec<f32>>);

/// The output of the program above the test.
fn cases_of_torch() -> [Case; 2] {
    [
        (
            LinkDecoder::Bilinear,
            vec![values(9, 1, 2.0)],
            vec![
                -5.125085, 3.039054, 3.865996, 2.004016, -3.740868, -3.891162, 3.204287, -4.132909,
            ],
            1.329079,
            vec![
                vec![
                    -0.2420532,
                    -0.3037377,
                    0.6403919,
                    -0.2291045,
                    -0.1333842,
                    0.1698715,
                    0.010986,
                    0.01228545,
                    -0.01720491,
                    0.2056322,
                    0.1224236,
                    -0.1583904,
                    -0.008170081,
                    -0.009439174,
                    0.01385915,
                    0.2220002,
                    0.1314182,
                    -0.1739271,
                ],
                vec![
                    -0.2099772, -0.2872491, 0.5382116, -0.2872491, -0.1388197, 0.2470625,
                    0.5382116, 0.2470625, -0.4318879,
                ],
            ],
        ),
        (
            LinkDecoder::Mlp,
            vec![
                values(18, 1, 2.0)[..9].to_vec(),
                values(18, 1, 2.0)[9..].to_vec(),
                values(3, 2, 1.0),
                values(3, 3, 3.0),
                vec![0.3],
            ],
            vec![
                -0.2560051, -2.081705, -1.060703, -2.685025, 1.19349, -3.628287, -2.565516,
                0.7095536,
            ],
            0.8900866,
            vec![
                vec![
                    -0.004982531,
                    -0.004752617,
                    -0.004522703,
                    -0.0943796,
                    -0.07057142,
                    -0.04676325,
                    0.05135921,
                    0.05610347,
                    0.06084774,
                    -0.0008489799,
                    -0.003728372,
                    0.008218862,
                    0.02398825,
                    0.04258611,
                    -0.0814426,
                    0.02642549,
                    0.026812,
                    -0.08373764,
                ],
                vec![
                    0.008277474,
                    -0.05330174,
                    -0.02473467,
                    -0.000_995_757,
                    -0.05286096,
                    0.1501809,
                    -0.1141482,
                    0.1838875,
                    -0.1523757,
                ],
                vec![
                    0.003351844,
                    -0.018024,
                    -0.1669659,
                    -0.005921388,
                    -0.01758321,
                    0.007949656,
                    -0.1097965,
                    0.08008252,
                    0.1999654,
                ],
                vec![-0.006328354, 0.0003008054, 0.119368],
                vec![-0.03165015, 0.1916238, -0.2728833],
                vec![-0.07459947],
            ],
        ),
    ]
}

/// The results of torch 2.11 in float64. An MLP is a `Linear` of `[z_u ‖ z_v]`, and one with a single output:
///
/// ```python
/// def values(n, s): return torch.tensor([((i * 37 + s * 11) % 101) / 101 - 0.5 for i in range(n)])
/// N, F = 6, 3
/// edges, others = [(0, 1), (1, 4), (2, 5)], [(0, 3), (2, 2), (4, 3), (5, 0), (1, 2)]
/// u, v = (torch.tensor(end) for end in zip(*(edges + others)))
/// truth = torch.tensor([1.0] * len(edges) + [0.0] * len(others))
/// z = (4 * values(N * F, 0)).reshape(N, F).requires_grad_()
/// # bilinear
/// W = (2 * values(F * F, 1)).reshape(F, F).requires_grad_()
/// score = lambda a, b: ((z[a] @ W) * z[b]).sum(1)
/// # mlp
/// one, two = torch.nn.Linear(2 * F, F), torch.nn.Linear(F, 1)
/// one.weight.copy_((2 * values(2 * F * F, 1)).reshape(2 * F, F).T)
/// one.bias.copy_(values(F, 2)); two.weight.copy_((3 * values(F, 3))[None]); two.bias.fill_(0.3)
/// score = lambda a, b: two(torch.relu(one(torch.cat([z[a], z[b]], 1))))[:, 0]
/// # both
/// scores = (score(u, v) + score(v, u)) / 2
/// loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, truth)
/// loss.backward()
/// ```
#[test]
fn decoders_say_what_torch_says() {
    let backend = Cpu::new();
    let shape = (6, 3);
    let edges = [[0, 1], [1, 4], [2, 5]];
    let others = [[0, 3], [2, 2], [4, 3], [5, 0], [1, 2]];
    let pairs = Pairs::new(&backend, 6, &edges, &others).unwrap();
    let state = state(&backend);
    let z = values(18, 0, 4.0);
    let near = |what: &str, found: &[f32], expected: &[f32]| {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            let off = (found - expected).abs();
            assert!(
                off < 1e-5 * expected.abs().max(0.1),
                "{what}: {found} for {expected}"
            );
        }
    };
    for (kind, parameters, scores, loss, gradients) in cases_of_torch() {
        let made = decoder(kind, 3, &parameters).unwrap();
        let embeddings = Matrix::from_f32(&backend, 6, 3, &z, MemoryKind::Activations).unwrap();
        let all = [&edges[..], &others].concat();
        near(
            "scores",
            &PairScores::new(&backend, &embeddings, Some(&made))
                .and_then(|scores| scores.score(&all))
                .unwrap(),
            &scores,
        );
        let step = |operands: LinkOperands<'_, Cpu, f32>, loss: &mut Array<Cpu, f32>| {
            pairs.loss(&backend, operands, &state, loss).unwrap();
        };
        let found = learn(step, shape, &z, Some(made));
        near("loss", &[found.0], &[loss]);
        for (found, expected) in found.1.iter().zip(&gradients) {
            near(kind.name(), found, expected);
        }
        assert_eq!(found.1.len(), gradients.len());
    }
}
