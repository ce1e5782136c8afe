//! Ranking metrics as sums on the device, for classes, labels and links.

use super::links::Links;
use super::objective::Answers;
use super::{Objective, Split};
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::error::Error;
use crate::graph::{Csr, GraphError, edge_order};
use crate::metrics::{self, Metric};
use crate::nn::Decoder;
use crate::ops::{self, RANKS, RankSum, Ranking, Ranks, Scores};
use crate::tensor::{Array, Element, Matrix};

/// Sums over the scores of each split in order.
#[derive(Debug)]
pub(super) struct Ranked<B: Backend> {
    ranking: Ranking<B>,
    of: Vec<RankSum>,
    columns: usize,
    /// The number of scores of a column in each split.
    counts: [usize; 3],
    sums: Array<B, u64>,
    /// Present for link prediction.
    pairs: Option<Pairs<B>>,
}

/// The edges of each split, as many pairs that are none, and their scores, in the order of a graph's edges. Padding
/// follows, up to a whole plane of edges; it is not ranked.
#[derive(Debug)]
struct Pairs<B: Backend> {
    ends: [Array<B, u32>; 2],
    /// 1 for edges.
    edges: Array<B, u32>,
    scores: Array<B, f32>,
    /// The graph of the pairs, where scores are computed along its edges.
    graph: Option<Adjacency<B>>,
    /// The same ends on the host, from which the graph is made.
    listed: [Vec<u32>; 2],
}

impl<B: Backend> Pairs<B> {
    /// Also returns the pairs of each split.
    fn new(backend: &B, vertices: usize, links: &Links<B>) -> Result<(Self, [Vec<u32>; 3]), Error> {
        let splits = links.edges.iter().zip(&links.others).enumerate();
        let pairs: Vec<([u32; 2], u32, usize)> = splits
            .flat_map(|(split, (edges, others))| {
                let edges = edges.iter().map(move |&pair| (pair, 1, split));
                edges.chain(others.iter().map(move |&pair| (pair, 0, split)))
            })
            .collect();
        let ends = [0, 1].map(|end| pairs.iter().map(|(pair, ..)| pair[end]).collect::<Vec<_>>());
        let order = edge_order(vertices, &ends[0], &ends[1]).map_err(refuse)?;
        let mut lists = [Vec::new(), Vec::new(), Vec::new()];
        for (place, &pair) in order.iter().enumerate() {
            lists[pairs[pair as usize].2].push(place as u32);
        }
        let len = ops::edge_plane(pairs.len());
        let words = |of: &dyn Fn(u32) -> u32| {
            let mut words: Vec<u32> = order.iter().map(|&pair| of(pair)).collect();
            words.resize(len, 0);
            Array::from_slice(backend, &words, MemoryKind::Features)
        };
        let made = Self {
            ends: [
                words(&|pair| ends[0][pair as usize])?,
                words(&|pair| ends[1][pair as usize])?,
            ],
            edges: words(&|pair| pairs[pair as usize].1)?,
            scores: Array::zeros(backend, len, MemoryKind::Workspace)?,
            graph: None,
            listed: ends,
        };
        Ok((made, lists))
    }

    /// Computes the scores.
    fn score<E: Element>(
        &mut self,
        backend: &B,
        embeddings: &Matrix<B, E>,
        decoder: Option<&Decoder<B, E>>,
    ) -> Result<(), Error> {
        let [firsts, seconds] = &self.ends;
        let ends = [firsts, seconds];
        let scores = &mut self.scores;
        match decoder {
            None => ops::score_pairs(backend, [embeddings; 2], ends, scores),
            Some(Decoder::Bilinear(bilinear)) => {
                let mapped = bilinear.map(backend, embeddings)?;
                ops::score_pairs(backend, [embeddings, &mapped], ends, scores)
            }
            Some(Decoder::Mlp(mlp)) => {
                let graph = match &mut self.graph {
                    Some(graph) => graph,
                    none => {
                        let [rows, columns] = &self.listed;
                        let csr = Csr::from_edges(embeddings.rows(), rows, columns);
                        none.insert(Adjacency::new(backend, &csr.map_err(refuse)?)?)
                    }
                };
                let maps = mlp.maps(backend, embeddings)?;
                *scores = mlp.scores(backend, graph, &maps)?.into_array()?;
                Ok(())
            }
        }
    }
}

fn refuse(error: GraphError) -> Error {
    Error::Unsupported {
        operator: "links",
        reason: error.to_string(),
    }
}

impl<B: Backend> Ranked<B> {
    /// For all scores of a task.
    pub(super) fn new<E: Element>(
        backend: &B,
        objective: &Objective<B, E>,
        of: Vec<RankSum>,
    ) -> Result<Self, Error> {
        let (answers, lists) = (&objective.0.answers, &objective.0.lists);
        let columns = match (answers, objective.outputs()) {
            (Answers::Links(_), _) | (Answers::Classes { .. }, 2) => 1,
            (_, columns) => columns,
        };
        let (pairs, of_pairs) = match answers {
            Answers::Links(links) => {
                let (pairs, lists) = Pairs::new(backend, objective.vertices(), links)?;
                (Some(pairs), Some(lists))
            }
            _ => (None, None),
        };
        let lists = of_pairs.as_ref().unwrap_or(lists);
        let counts = lists.each_ref().map(Vec::len);
        let ranking = Ranking::new(backend, lists.each_ref().map(|list| &list[..]), columns)?;
        let words = of.len() * columns * counts.len() * RANKS;
        Ok(Self {
            ranking,
            of,
            columns,
            counts,
            sums: Array::zeros(backend, words, MemoryKind::Workspace)?,
            pairs,
        })
    }

    /// Computes the sums on the device.
    pub(super) fn count<E: Element>(
        &mut self,
        backend: &B,
        objective: &Objective<B, E>,
        (logits, decoder): (&Matrix<B, E>, Option<&Decoder<B, E>>),
    ) -> Result<(), Error> {
        let (of, ranking, sums) = (&self.of, &mut self.ranking, &mut self.sums);
        match (&objective.0.answers, &mut self.pairs) {
            (Answers::Classes { labels, .. }, _) => {
                let scores = Scores::Classes { logits, labels };
                ops::sum_ranks(backend, scores, of, ranking, sums)
            }
            (Answers::Elements { targets, .. }, _) => {
                let scores = Scores::Labels { logits, targets };
                ops::sum_ranks(backend, scores, of, ranking, sums)
            }
            (Answers::Links(_), Some(pairs)) => {
                pairs.score(backend, logits, decoder)?;
                let (scores, positives) = (&pairs.scores, &pairs.edges);
                let scores = Scores::Given { scores, positives };
                ops::sum_ranks(backend, scores, of, ranking, sums)
            }
            (Answers::Links(_), None) => Ok(()),
        }
    }

    /// The sums, on the host.
    pub(super) fn read(&self, backend: &B) -> Result<SeenRanks, Error> {
        let words = self.sums.to_vec(backend)?;
        let ranks = words.as_chunks().0.iter().copied().map(Ranks::from_words);
        Ok(SeenRanks {
            of: self.of.clone(),
            columns: self.columns,
            counts: self.counts,
            ranks: ranks.collect(),
        })
    }
}

/// [`Ranked`] on the host.
pub(super) struct SeenRanks {
    of: Vec<RankSum>,
    columns: usize,
    counts: [usize; 3],
    /// For each sum, each column and each split.
    ranks: Vec<Ranks>,
}

impl SeenRanks {
    /// The mean of a metric over the columns.
    pub(super) fn value(&self, metric: Metric, split: Split) -> f64 {
        let wanted = metrics::rank_sum(metric);
        let Some(place) = self.of.iter().position(|&of| Some(of) == wanted) else {
            return f64::NAN;
        };
        let count = self.counts[split as usize];
        let columns = self.ranks.chunks_exact(Split::ALL.len());
        let columns = columns.skip(place * self.columns).take(self.columns);
        metrics::mean(
            columns.map(|splits| metrics::of_ranks(metric, splits[split as usize], count)),
        )
    }
}
