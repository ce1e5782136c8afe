//! Link prediction: which pairs of vertices are edges.
//!
//! A model gives each vertex a row of numbers, its embedding; the score of a pair is the dot product of two, an
//! [SDDMM](ops::sddmm) over the graph of the pairs, or what another [decoder](crate::nn::LinkDecoder) makes of them. In each step the edges to learn from are put beside as many random pairs,
//! which the device [draws](ops::sample_pairs), and the loss is the binary cross-entropy of the scores. Its gradient for the
//! embeddings is an SpMM over the same graph, whose edge weights are the gradients of the scores. A pair counts in both
//! directions, so that the graph is its own transpose.

use crate::backend::cpu::Cpu;
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::error::Error;
use crate::graph::generate::{shuffled, stream};
use crate::graph::{Csr, Graph, edge_order};
use crate::nn::{Decoder, EDGE_WIDTH as WIDTH, LinkOperands};
use crate::ops::{self, EdgeWeights, ElementLoss, OptimizerState, Sddmm, Spmm};
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::rng;
use serde::{Deserialize, Serialize};

const NAME: &str = "LinkSplit";

/// Which edges of a graph are held out: what a [`LinkSplit`] is made from beside the graph.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Shares of the edges that are held out: to validate with, and to test with.
    pub shares: [f64; 2],
    /// Of the random numbers.
    pub seed: u64,
}

/// The edges of an undirected graph, some to learn from and to send messages along, others held out, as Kipf and Welling's graph
/// auto-encoder (2016) has them; and as many pairs that are no edges, to measure with.
#[derive(Clone, Debug)]
pub struct LinkSplit {
    /// The graph without the edges that are held out, in both directions.
    pub graph: Graph,
    /// The edges of each split, each once, in the order of [`Split::ALL`](super::Split::ALL).
    pub edges: [Vec<[u32; 2]>; 3],
    /// As many pairs that are no edges of the whole graph.
    pub others: [Vec<[u32; 2]>; 3],
    /// What it was made from.
    pub held_out: HeldOut,
}

impl LinkSplit {
    /// Holds out shares of the edges of `graph` by a seed, rounded down. Self-loops are no links;
    /// they stay in the graph.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the graph is directed, the shares are none or leave nothing to learn from, or hold out
    /// nothing.
    pub fn new(graph: &Graph, held_out: HeldOut) -> Result<Self, Error> {
        let HeldOut {
            shares: [validation, test],
            seed,
        } = held_out;
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: NAME,
                reason,
            })
        };
        if !graph.is_symmetric() {
            return refuse(
                "links are told in both directions at once, and the graph is directed; make it undirected (--undirected)".into(),
            );
        }
        if !(validation >= 0.0 && test >= 0.0 && validation + test < 1.0) {
            return refuse(format!(
                "shares of {validation} and {test} of the edges leave none to learn from; give shares from 0 on that add up to less \
                 than 1"
            ));
        }
        let pairs = graph.rows().iter().zip(graph.cols());
        let mut links: Vec<[u32; 2]> = pairs
            .filter(|(row, column)| row < column)
            .map(|(&row, &column)| [row, column])
            .collect();
        // An edge that is there twice is one link.
        links.dedup();
        let order = shuffled(links.len(), rng::key(seed, stream::SPLIT));
        let counts = [validation, test].map(|share| (share * links.len() as f64) as usize);
        let (chosen_out, rest) = order.split_at(counts[0] + counts[1]);
        if rest.is_empty() || counts[0] + counts[1] == 0 {
            return refuse(format!(
                "of {} links {} are held out; take a graph of more, or other shares",
                links.len(),
                counts[0] + counts[1]
            ));
        }
        let chosen = |places: &[u32]| -> Vec<[u32; 2]> {
            let mut chosen: Vec<_> = places.iter().map(|&place| links[place as usize]).collect();
            chosen.sort_unstable();
            chosen
        };
        let edges = [rest, &chosen_out[..counts[0]], &chosen_out[counts[0]..]].map(chosen);
        let loops = graph
            .rows()
            .iter()
            .zip(graph.cols())
            .filter(|(row, column)| row == column);
        let kept = edges[0].iter().flat_map(|&[a, b]| [(a, b), (b, a)]);
        let (rows, columns): (Vec<u32>, Vec<u32>) = kept
            .chain(loops.map(|(&row, &column)| (row, column)))
            .unzip();
        let vertices = graph.vertices();
        let message = Graph::from_edges(vertices, &rows, &columns);
        let message = message.map_err(|error| Error::Unsupported {
            operator: NAME,
            reason: error.to_string(),
        })?;
        let whole = Adjacency::new(&Cpu::new(), graph.csr())?;
        let mut others = [Vec::new(), Vec::new(), Vec::new()];
        // Each split has a step of its own, after all that training will take.
        for (step, (others, edges)) in (0..3).zip(others.iter_mut().zip(&edges)) {
            *others = draw(
                &Cpu::new(),
                vertices,
                Some(&whole),
                seed,
                u32::MAX - step,
                edges.len(),
            )?;
        }
        Ok(Self {
            graph: message,
            edges,
            others,
            held_out,
        })
    }
}

/// Random pairs, on the host.
fn draw<B: Backend>(
    backend: &B,
    vertices: usize,
    edges: Option<&Adjacency<B>>,
    seed: u64,
    step: u32,
    count: usize,
) -> Result<Vec<[u32; 2]>, Error> {
    let room = || Array::zeros(backend, count, MemoryKind::Workspace);
    let (mut firsts, mut seconds) = (room()?, room()?);
    ops::sample_pairs(
        backend,
        vertices,
        edges,
        seed,
        step,
        &mut firsts,
        &mut seconds,
    )?;
    let seconds = seconds.to_vec(backend)?;
    Ok(firsts
        .to_vec(backend)?
        .into_iter()
        .zip(seconds)
        .map(|(a, b)| [a, b])
        .collect())
}

/// A [`LinkSplit`] on a backend.
#[derive(Debug)]
pub(super) struct Links<B: Backend> {
    /// What is drawn anew in each step is no edge of it.
    graph: Adjacency<B>,
    /// What is measured.
    pub(super) edges: [Vec<[u32; 2]>; 3],
    pub(super) others: [Vec<[u32; 2]>; 3],
    seed: u64,
}

impl<B: Backend> Links<B> {
    pub(super) fn new(backend: &B, split: &LinkSplit) -> Result<Self, Error> {
        Ok(Self {
            graph: Adjacency::new(backend, split.graph.csr())?,
            edges: split.edges.clone(),
            others: split.others.clone(),
            seed: split.held_out.seed,
        })
    }

    /// The loss of the edges to learn from beside as many random pairs, up to three more, and its gradient for the embeddings and
    /// for the decoder's parameters times the loss scale.
    pub(super) fn loss<E: Element>(
        &self,
        backend: &B,
        operands: LinkOperands<'_, B, E>,
        state: &OptimizerState<B>,
        loss: &mut Array<B, f32>,
    ) -> Result<(), Error> {
        let now = state.snapshot(backend)?;
        let step = now.steps.wrapping_add(now.skipped);
        let (vertices, edges) = (operands.logits.rows(), &self.edges[0]);
        // Both directions of all of them fill whole vectors.
        let count = (2 * edges.len()).next_multiple_of(WIDTH / 2) - edges.len();
        let others = draw(backend, vertices, Some(&self.graph), self.seed, step, count)?;
        Pairs::new(backend, vertices, edges, &others)?.loss(backend, operands, state, loss)
    }
}

/// Pairs in both directions as a graph, and which of them are edges.
struct Pairs<B: Backend> {
    graph: Adjacency<B>,
    targets: Matrix<B, f32>,
    selected: Array<B, u32>,
}

impl<B: Backend> Pairs<B> {
    fn new(
        backend: &B,
        vertices: usize,
        edges: &[[u32; 2]],
        others: &[[u32; 2]],
    ) -> Result<Self, Error> {
        let both = || {
            let pairs = edges.iter().map(|pair| (pair, 1.0));
            let pairs = pairs.chain(others.iter().map(|pair| (pair, 0.0)));
            pairs.flat_map(|(&[a, b], truth)| [([a, b], truth), ([b, a], truth)])
        };
        let rows: Vec<u32> = both().map(|([row, _], _)| row).collect();
        let columns: Vec<u32> = both().map(|([_, column], _)| column).collect();
        let truths: Vec<f32> = both().map(|(_, truth)| truth).collect();
        let refuse = |error: crate::graph::GraphError| Error::Unsupported {
            operator: "links",
            reason: error.to_string(),
        };
        let csr = Csr::from_edges(vertices, &rows, &columns).map_err(refuse)?;
        let order = edge_order(vertices, &rows, &columns).map_err(refuse)?;
        let targets: Vec<f32> = order.iter().map(|&edge| truths[edge as usize]).collect();
        let lines = targets.len() / WIDTH;
        let kind = MemoryKind::Workspace;
        Ok(Self {
            graph: Adjacency::new(backend, &csr)?,
            targets: Matrix::from_f32(backend, lines, WIDTH, &targets, kind)?,
            selected: Array::zeros(backend, lines, kind)?,
        })
    }

    /// The loss of all of them, and its gradients times the loss scale.
    fn loss<E: Element>(
        &self,
        backend: &B,
        operands: LinkOperands<'_, B, E>,
        state: &OptimizerState<B>,
        loss: &mut Array<B, f32>,
    ) -> Result<(), Error> {
        let LinkOperands {
            logits: embeddings,
            gradient,
            decoder,
        } = operands;
        match decoder {
            None => {
                let scores = self.dots(backend, [embeddings; 2])?;
                let slopes = self.slopes(backend, &scores, state, loss)?;
                self.spread(backend, slopes, embeddings, gradient)
            }
            Some(Decoder::Bilinear(bilinear)) => {
                let scores =
                    self.dots(backend, [embeddings, &bilinear.map(backend, embeddings)?])?;
                let slopes = self.slopes(backend, &scores, state, loss)?;
                let (rows, columns) = embeddings.shape();
                let mut d = Matrix::uninit(backend, rows, columns, MemoryKind::Workspace)?;
                self.spread(backend, slopes, embeddings, &mut d)?;
                bilinear.backward(backend, embeddings, &d, gradient)
            }
            Some(Decoder::Mlp(mlp)) => {
                let maps = mlp.maps(backend, embeddings)?;
                let scores = mlp.scores(backend, &self.graph, &maps)?;
                let slopes = self.slopes(backend, &scores, state, loss)?;
                mlp.backward(backend, &self.graph, (embeddings, &maps), slopes, gradient)
            }
        }
    }

    /// The dot product of each pair's row of the one and row of the other, as rows of [`WIDTH`].
    fn dots<E: Element>(
        &self,
        backend: &B,
        [u, v]: [&Matrix<B, E>; 2],
    ) -> Result<Matrix<B, E>, Error> {
        let len = ops::edge_values(&self.graph, 1);
        let mut scores = Array::zeros(backend, len, MemoryKind::Workspace)?;
        ops::sddmm(backend, &self.graph, &Sddmm::default(), u, v, &mut scores)?;
        Matrix::from_array(scores, len / WIDTH, WIDTH)
    }

    /// The loss of scores, and its gradient times the loss scale.
    fn slopes<S: Element>(
        &self,
        backend: &B,
        scores: &Matrix<B, S>,
        state: &OptimizerState<B>,
        loss: &mut Array<B, f32>,
    ) -> Result<Matrix<B, S>, Error> {
        let (lines, columns) = scores.shape();
        let mut slopes = Matrix::uninit(backend, lines, columns, MemoryKind::Workspace)?;
        let kind = ElementLoss::BinaryCrossEntropy {
            positive_weights: None,
        };
        let (targets, rows) = (&self.targets, &self.selected);
        let into = &mut slopes;
        ops::element_loss(
            backend, kind, scores, targets, rows, lines, state, into, loss,
        )?;
        Ok(slopes)
    }

    /// The gradient for the embeddings of which the scores are dot products.
    fn spread<E: Element>(
        &self,
        backend: &B,
        slopes: Matrix<B, E>,
        embeddings: &Matrix<B, E>,
        gradient: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = Spmm {
            weights: EdgeWeights::Features(&slopes.into_array()?),
            // Of a pair both scores, and in each both ends.
            scale: 2.0,
            ..Spmm::default()
        };
        ops::spmm(backend, &self.graph, &op, embeddings, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::LinkDecoder;
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
        assert!(
            message(&directed, [0.1, 0.1]).contains("the graph is directed; make it undirected")
        );
        for shares in [[0.5, 0.5], [-0.1, 0.2], [f64::NAN, 0.1]] {
            assert!(message(&ring(50), shares).contains("leave none to learn from"));
        }
        assert!(message(&ring(5), [0.1, 0.1]).contains("of 5 links 0 are held out"));
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

    /// Loss, and the gradients for the embeddings and the parameters.
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

    /// The score of a pair in one of its orders in float64, by embeddings and the parameters of a decoder.
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

    /// What torch 2.11 says, in float64; the layers of an MLP are a `Linear` of `[z_u ‖ z_v]` and one to a number:
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
        let values = |count: usize, stream: usize, factor: f32| -> Vec<f32> {
            let value = |at| ((at * 37 + stream * 11) % 101) as f32 / 101.0 - 0.5;
            (0..count).map(|at| factor * value(at)).collect()
        };
        let edges = [[0, 1], [1, 4], [2, 5]];
        let others = [[0, 3], [2, 2], [4, 3], [5, 0], [1, 2]];
        let pairs = Pairs::new(&backend, 6, &edges, &others).unwrap();
        let state = state(&backend);
        let z = values(18, 0, 4.0);
        let both = values(18, 1, 2.0);
        /// Which, its parameters, the scores, the loss, and the gradients, that of the embeddings first.
        type Case = (LinkDecoder, Vec<Vec<f32>>, Vec<f32>, f32, Vec<Vec<f32>>);
        let cases: [Case; 2] = [
            (
                LinkDecoder::Bilinear,
                vec![values(9, 1, 2.0)],
                vec![
                    -5.125085, 3.039054, 3.865996, 2.004016, -3.740868, -3.891162, 3.204287,
                    -4.132909,
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
                    both[..9].to_vec(),
                    both[9..].to_vec(),
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
        ];
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
        for (kind, parameters, scores, loss, gradients) in cases {
            let made = decoder(kind, 3, &parameters).unwrap();
            let embeddings = Matrix::from_f32(&backend, 6, 3, &z, MemoryKind::Activations).unwrap();
            let all = [&edges[..], &others].concat();
            near(
                "scores",
                &made.score_on_host(&backend, &embeddings, &all).unwrap(),
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
}
