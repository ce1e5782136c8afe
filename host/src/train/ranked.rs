//! What only the order of scores decides, as sums that are made on the device: of classes, of labels, and of links.

use super::links::Links;
use super::objective::Answers;
use super::{Objective, Split};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::metrics::{self, Metric};
use crate::ops::{self, RANKS, RankSum, Ranking, Ranks, Scores};
use crate::tensor::{Array, Element, Matrix};

/// Sums over the scores of each split in order.
#[derive(Debug)]
pub(super) struct Ranked<B: Backend> {
    ranking: Ranking<B>,
    of: Vec<RankSum>,
    columns: usize,
    /// Scores of a column in each split.
    counts: [usize; 3],
    sums: Array<B, u64>,
    /// Of a task of links.
    pairs: Option<Pairs<B>>,
}

/// The edges of each split, each before as many pairs that are none, and their scores.
#[derive(Debug)]
struct Pairs<B: Backend> {
    firsts: Array<B, u32>,
    seconds: Array<B, u32>,
    /// 1 of edges.
    edges: Array<B, u32>,
    scores: Array<B, f32>,
}

impl<B: Backend> Pairs<B> {
    /// And how many each split has.
    fn new(backend: &B, links: &Links<B>) -> Result<(Self, [usize; 3]), Error> {
        let splits = links.edges.iter().zip(&links.others);
        let pairs = splits.clone().flat_map(|(edges, others)| {
            let edges = edges.iter().map(|&pair| (pair, 1));
            edges.chain(others.iter().map(|&pair| (pair, 0)))
        });
        let words = |of: &dyn Fn(([u32; 2], u32)) -> u32| {
            let words: Vec<u32> = pairs.clone().map(of).collect();
            Array::from_slice(backend, &words, MemoryKind::Features)
        };
        let mut counts = [0; 3];
        for (count, (edges, others)) in counts.iter_mut().zip(splits) {
            *count = edges.len() + others.len();
        }
        let made = Self {
            firsts: words(&|([first, _], _)| first)?,
            seconds: words(&|([_, second], _)| second)?,
            edges: words(&|(_, edge)| edge)?,
            scores: Array::zeros(backend, counts.iter().sum(), MemoryKind::Workspace)?,
        };
        Ok((made, counts))
    }
}

impl<B: Backend> Ranked<B> {
    /// Of all scores of a task.
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
        let (pairs, counts) = match answers {
            Answers::Links(links) => {
                let (pairs, counts) = Pairs::new(backend, links)?;
                (Some(pairs), counts)
            }
            _ => (None, lists.each_ref().map(Vec::len)),
        };
        let ranking = match pairs {
            // They lie in order.
            Some(_) => {
                let all: Vec<u32> = (0..counts.iter().sum::<usize>() as u32).collect();
                let (train, others) = all.split_at(counts[0]);
                let (validation, test) = others.split_at(counts[1]);
                Ranking::new(backend, [train, validation, test], columns)?
            }
            None => Ranking::new(backend, lists.each_ref().map(|list| &list[..]), columns)?,
        };
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

    /// Makes the sums, on the device.
    pub(super) fn count<E: Element>(
        &mut self,
        backend: &B,
        objective: &Objective<B, E>,
        logits: &Matrix<B, E>,
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
                let ends = [&pairs.firsts, &pairs.seconds];
                ops::score_pairs(backend, [logits; 2], ends, &mut pairs.scores)?;
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
    /// Of each sum, of each column, of each split.
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
