//! Link prediction: which pairs of vertices are edges.
//!
//! A model computes a row of numbers for each vertex, its embedding. The score of a pair is the dot product of two
//! embeddings, an [SDDMM](ops::sddmm) over the graph of the pairs. Another [decoder](crate::nn::LinkDecoder) may
//! compute it instead. Each step takes the training edges and as many random pairs, which the device
//! [samples](ops::sample_pairs). The loss is the binary cross-entropy of the scores. Its gradient for the embeddings is
//! an SpMM over the same graph, whose edge weights are the gradients of the scores. A pair counts in both directions,
//! so the graph is its own transpose.

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

/// Which edges of a graph are held out. With the graph it determines a [`LinkSplit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Shares of the edges that are held out, for validation and for the test.
    pub shares: [f64; 2],
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The edges of an undirected graph: some for training and message passing, others held out, as in Kipf and Welling's
/// graph auto-encoder (2016). It also has as many pairs without an edge, for the metrics.
#[derive(Clone, Debug)]
pub struct LinkSplit {
    /// The graph without the held-out edges, in both directions.
    pub graph: Graph,
    /// The edges of each split, each listed once, in the order of [`Split::ALL`](super::Split::ALL).
    pub edges: [Vec<[u32; 2]>; 3],
    /// As many pairs that are no edges of the whole graph.
    pub others: [Vec<[u32; 2]>; 3],
    /// The shares and the seed of the split.
    pub held_out: HeldOut,
}

impl LinkSplit {
    /// Holds out shares of the edges of `graph`, rounded down, by a seed. Self-loops are no links; they stay in the
    /// graph.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the graph is directed, or the shares are invalid, leave no training edges or hold
    /// out nothing. Likewise where fewer pairs have no edge than links are held out.
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
        let mut links: Vec<[u32; 2]> = (graph.csr().iter())
            .filter(|(row, column)| row < column)
            .map(|(row, column)| [row, column])
            .collect();
        // A duplicate edge is one link.
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
        let vertices = graph.vertices();
        let pairs = vertices as u64 * (vertices as u64).saturating_sub(1) / 2;
        let (apart, held) = (pairs - links.len() as u64, counts[0] + counts[1]);
        if apart < held as u64 {
            return refuse(format!(
                "{apart} of {pairs} pairs have no edge, too few to compare {held} held-out links with; hold out fewer, or take a \
                 sparser graph"
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
        let message = Graph::from_edges(vertices, &rows, &columns);
        let message = message.map_err(|error| Error::Unsupported {
            operator: NAME,
            reason: error.to_string(),
        })?;
        let whole = Adjacency::new(&Cpu::new(), graph.csr())?;
        let mut others = [Vec::new(), Vec::new(), Vec::new()];
        // Each split has its own step number, after all that training uses.
        for (step, (others, edges)) in (0..3).zip(others.iter_mut().zip(&edges)) {
            *others = draw(
                &Cpu::new(),
                vertices,
                Some(&whole),
                seed,
                u32::MAX - step,
                edges.len(),
            )?;
            replace_edges(graph, (seed, step), others);
        }
        Ok(Self {
            graph: message,
            edges,
            others,
            held_out,
        })
    }
}

/// Replaces pairs that are edges, which sampling from a dense graph may return, by pairs without an edge.
fn replace_edges(graph: &Graph, (seed, step): (u64, u32), pairs: &mut [[u32; 2]]) {
    let csr = graph.csr();
    let is_none = |a: u32, b: u32| a != b && csr.row(a as usize).binary_search(&b).is_err();
    let is_wrong = |&&mut [a, b]: &&mut [u32; 2]| !is_none(a, b);
    let mut wrong = pairs.iter_mut().filter(is_wrong).peekable();
    if wrong.peek().is_none() {
        return;
    }
    let vertices = graph.vertices() as u32;
    let apart: Vec<[u32; 2]> = (0..vertices)
        .flat_map(|a| (a + 1..vertices).map(move |b| [a, b]))
        .filter(|&[a, b]| is_none(a, b))
        .collect();
    let key = rng::key(seed ^ u64::from(step) << 32, stream::SPLIT);
    let order = shuffled(apart.len(), key);
    for (pair, &place) in wrong.zip(order.iter().cycle()) {
        *pair = apart[place as usize];
    }
}

/// Samples random pairs, and copies them to the host.
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
    /// Pairs that a step samples are no edges of it.
    graph: Adjacency<B>,
    /// The pairs that metrics are computed from.
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

    /// Computes the loss of the training edges and as many random pairs, or up to three more. Also its gradients for
    /// the embeddings and the decoder's parameters, times the loss scale.
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
        // Both directions of all pairs fill whole vectors.
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

    /// The loss of all pairs, and its gradients times the loss scale.
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

    /// The dot product of each pair's row of `u` and row of `v`, in rows of [`WIDTH`].
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

    /// The gradient for the embeddings whose dot products are the scores.
    fn spread<E: Element>(
        &self,
        backend: &B,
        slopes: Matrix<B, E>,
        embeddings: &Matrix<B, E>,
        gradient: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = Spmm {
            weights: EdgeWeights::Features(&slopes.into_array()?),
            // A pair has two scores, and each depends on both ends.
            scale: 2.0,
            ..Spmm::default()
        };
        ops::spmm(backend, &self.graph, &op, embeddings, gradient)
    }
}

#[cfg(test)]
mod tests;
