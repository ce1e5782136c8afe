//! A digest of what a dataset holds, part by part: for a run that goes on and for ranks that train together, which must have read the
//! same.
//!
//! Two datasets with equal parts have equal digests, in whatever format they were stored. A digest tells data apart that differ by
//! accident, in 64 bits for each part; it is no signature.

use super::{Dataset, Features, Targets};
use rayon::prelude::*;

/// Values that are hashed as one chunk: the chunks depend on the data alone, so a digest does not depend on the threads.
const CHUNK: usize = 1 << 16;

/// A part of a dataset that has a digest of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestPart {
    /// Features of the vertices.
    Features,
    /// The edges, and which vertices are of which graph.
    Edges,
    /// Weights and features of the edges.
    Weights,
    /// Classes, labels or values.
    Labels,
    /// Vertices of the splits, in their order.
    Splits,
}

impl DigestPart {
    /// All parts, in the order of [`Digest::words`].
    pub const ALL: [Self; 5] = [
        Self::Features,
        Self::Edges,
        Self::Weights,
        Self::Labels,
        Self::Splits,
    ];

    /// The name, as a message has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Features => "features",
            Self::Edges => "edges",
            Self::Weights => "edge weights",
            Self::Labels => "labels",
            Self::Splits => "splits",
        }
    }
}

/// A digest of each part of a dataset. A part that is not in memory, such as features on disk, has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([Option<u64>; 5]);

impl Digest {
    /// Of a dataset as it is: before its features are scaled, where scaling is to make no difference.
    pub fn of(dataset: &Dataset) -> Self {
        let is_outline = dataset.outline().is_some();
        let here = |digest: u64| (!is_outline).then_some(digest);
        Self([
            features(&dataset.features).and_then(here),
            here(edges(dataset)),
            here(weights(dataset)),
            Some(labels(&dataset.targets)),
            Some(joined(
                [&dataset.train, &dataset.val, &dataset.test].map(|list| of_words(list)),
            )),
        ])
    }

    /// The digests as words, in the order of [`DigestPart::ALL`].
    pub fn words(&self) -> [Option<u64>; 5] {
        self.0
    }

    /// Of words that [`Digest::words`] gave.
    pub fn from_words(words: [Option<u64>; 5]) -> Self {
        Self(words)
    }

    /// The parts that both have and in which they differ.
    pub fn differences(&self, other: &Self) -> Vec<DigestPart> {
        let pairs = self.0.iter().zip(&other.0);
        let differs = pairs.map(|pair| matches!(pair, (Some(mine), Some(its)) if mine != its));
        let parts = DigestPart::ALL.into_iter().zip(differs);
        parts
            .filter_map(|(part, differs)| differs.then_some(part))
            .collect()
    }
}

/// Mixes a word into a hash. Both steps can be undone, so no word is lost.
fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Of words and how many there are.
fn joined(words: impl IntoIterator<Item = u64>) -> u64 {
    let (hash, count) = (words.into_iter()).fold((0xcbf2_9ce4_8422_2325, 0), |(hash, n), word| {
        (mix(hash, word), n + 1)
    });
    mix(hash, count)
}

fn of_chunks<T: Sync>(values: &[T], word: impl Fn(&T) -> u64 + Sync) -> u64 {
    let chunks = values.par_chunks(CHUNK);
    let hashes: Vec<u64> = chunks
        .map(|chunk| joined(chunk.iter().map(&word)))
        .collect();
    joined(hashes)
}

fn of_words(words: &[u32]) -> u64 {
    of_chunks(words, |&word| word.into())
}

fn of_floats(values: &[f32]) -> u64 {
    of_chunks(values, |value| value.to_bits().into())
}

/// Of the entries that are not zero, so that dense and sparse rows of the same numbers are the same; none of features on disk.
fn features(features: &Features) -> Option<u64> {
    if features.as_stored().is_some() {
        return None;
    }
    const ROWS: usize = 256;
    let vertices = features.vertices();
    let chunks = (0..vertices.div_ceil(ROWS)).into_par_iter().map(|chunk| {
        let rows = chunk * ROWS..((chunk + 1) * ROWS).min(vertices);
        let rows = rows.map(|vertex| {
            let (mut hash, mut count) = (0, 0_u64);
            features.for_each(vertex, |column, value| {
                if value != 0.0 {
                    hash = mix(mix(hash, column as u64), value.to_bits().into());
                    count += 1;
                }
            });
            mix(hash, count)
        });
        joined(rows)
    });
    let hashes: Vec<u64> = chunks.collect();
    Some(mix(joined(hashes), features.feature_len() as u64))
}

fn edges(dataset: &Dataset) -> u64 {
    let graph = &dataset.graph;
    let offsets = of_chunks(graph.offsets(), |&offset| offset);
    let starts = dataset
        .graphs
        .as_ref()
        .map(|graphs| of_words(graphs.starts()));
    joined([offsets, of_words(graph.cols()), starts.unwrap_or_default()])
}

fn weights(dataset: &Dataset) -> u64 {
    let weights = dataset.edge_weights.as_deref().map(of_floats);
    let features = dataset.edge_features.as_ref();
    let features = features.map(|of| mix(of_floats(of.values()), of.columns() as u64));
    joined([weights, features].map(Option::unwrap_or_default))
}

fn labels(targets: &Targets) -> u64 {
    match targets {
        Targets::Labels(labels) => mix(of_words(labels.words()), labels.columns() as u64),
        Targets::Values(values) => mix(of_floats(values.values()), values.columns() as u64),
        classes => of_words(classes.classes().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EdgeFeatures, Splits};
    use halfgnn_graph::Graph;

    fn dataset() -> Dataset {
        let graph = Graph::from_edges(4, &[0, 1, 2, 3], &[1, 2, 3, 0]).expect("a graph");
        let features = Features::dense(2, vec![1.0, 0.0, 0.0, 2.0, 0.5, 0.0, 0.0, 0.0]);
        let splits = Splits {
            train: vec![0, 1],
            val: vec![2],
            test: vec![3],
        };
        let features = features.expect("rows");
        Dataset::new("four", graph, features, vec![0, 1, 0, 1], splits).expect("a dataset")
    }

    fn differences(change: impl FnOnce(&mut Dataset)) -> Vec<DigestPart> {
        let mut other = dataset();
        change(&mut other);
        Digest::of(&dataset()).differences(&Digest::of(&other))
    }

    #[test]
    fn each_part_differs_by_itself() {
        assert_eq!(differences(|_| {}), []);
        assert_eq!(differences(|data| data.name = "other".into()), []);
        let swapped = crate::Features::dense(2, vec![0.0, 1.0, 0.0, 2.0, 0.5, 0.0, 0.0, 0.0]);
        let swapped = swapped.expect("rows");
        assert_eq!(
            differences(|data| data.features = swapped),
            [DigestPart::Features]
        );
        let graph = Graph::from_edges(4, &[0, 1, 2, 3], &[1, 2, 3, 1]).expect("a graph");
        assert_eq!(differences(|data| data.graph = graph), [DigestPart::Edges]);
        let weights = vec![1.0, 1.0, 1.0, 2.0];
        assert_eq!(
            differences(|data| data.edge_weights = Some(weights)),
            [DigestPart::Weights]
        );
        let of_edges = EdgeFeatures::new(1, vec![0.0; 4]).expect("rows");
        assert_eq!(
            differences(|data| data.edge_features = Some(of_edges)),
            [DigestPart::Weights]
        );
        let labels = vec![0, 1, 1, 1];
        assert_eq!(
            differences(|data| data.targets = labels.into()),
            [DigestPart::Labels]
        );
        assert_eq!(
            differences(|data| data.val.append(&mut data.test)),
            [DigestPart::Splits]
        );
    }

    #[test]
    fn features_are_the_same_in_whatever_form_they_are() {
        let sparse = Features::sparse(2, vec![0, 1, 2, 3, 3], vec![0, 1, 0], vec![1.0, 2.0, 0.5]);
        let sparse = sparse.expect("rows");
        assert_eq!(differences(|data| data.features = sparse), []);
        let negative = Features::dense(2, vec![1.0, -0.0, 0.0, 2.0, 0.5, 0.0, 0.0, 0.0]);
        let negative = negative.expect("rows");
        assert_eq!(differences(|data| data.features = negative), []);
    }

    #[test]
    fn words_go_round() {
        let digest = Digest::of(&dataset());
        assert_eq!(Digest::from_words(digest.words()), digest);
        let unknown = Digest::from_words([None; 5]);
        assert_eq!(digest.differences(&unknown), []);
    }
}
