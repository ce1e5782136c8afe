//! Digests of what ranks read, which all compare when they meet.

use crate::data::{Dataset, Features, StoredFeatures, Targets};
use crate::error::Error;
use bytemuck::{Pod, cast_slice};
use halfgnn_graph::parallel;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 of a part of what a rank works on, the same on every machine and for any number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        format!("{digest:?}")
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        let wrong = "a digest is 64 hexadecimal digits";
        if text.len() != 2 * bytes.len() || !text.is_ascii() {
            return Err(wrong);
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..][..2], 16).map_err(|_| wrong)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes that one thread hashes at a time.
const CHUNK: usize = 1 << 20;

/// Rows of features on disk that are compared: reading all would take as long as an epoch.
const STORED_ROWS: usize = 1 << 14;

impl Digest {
    /// The digest of values: chunks are hashed in parallel, and then their hashes.
    pub fn of<T: Pod + Sync>(values: &[T]) -> Self {
        let chunks = parallel::chunks(cast_slice::<T, u8>(values), CHUNK);
        Self::of_hashes(parallel::map(chunks, |_, chunk| {
            Sha256::digest(chunk).into()
        }))
    }

    /// The digest of a text.
    pub fn of_text(text: &str) -> Self {
        Self::of(text.as_bytes())
    }

    fn of_hashes(hashes: Vec<[u8; 32]>) -> Self {
        let mut all = Sha256::new();
        hashes.iter().for_each(|hash| all.update(hash));
        Self(all.finalize().into())
    }

    /// The digest of rows that `write` appends to a buffer of words, about a chunk at a time.
    fn of_rows(rows: usize, row_words: usize, write: impl Fn(usize, &mut Vec<u32>) + Sync) -> Self {
        let at_a_time = (CHUNK / 4 / row_words.max(1)).max(1);
        let starts: Vec<usize> = (0..rows).step_by(at_a_time).collect();
        Self::of_hashes(parallel::map(parallel::chunks(&starts, 1), |_, start| {
            let mut words = Vec::new();
            for row in start[0]..rows.min(start[0] + at_a_time) {
                write(row, &mut words);
            }
            Sha256::digest(cast_slice::<u32, u8>(&words)).into()
        }))
    }
}

/// A part of what ranks work on, and its digest: ranks that meet must have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// What a message calls it, such as `labels`.
    pub what: String,
    /// Of its values.
    pub digest: Digest,
}

impl Compared {
    /// A part by its name.
    pub fn new(what: &str, digest: Digest) -> Self {
        let what = what.into();
        Self { what, digest }
    }

    /// All that a dataset has: edges, their weights and features, features, labels, names and splits. Of features that stay on disk some
    /// rows are compared, evenly spaced.
    ///
    /// # Errors
    /// [`Error::Features`] where features on disk cannot be read.
    pub fn of_dataset(dataset: &Dataset) -> Result<Vec<Self>, Error> {
        let graph = &dataset.graph;
        let edges = [Digest::of(graph.offsets()), Digest::of(graph.cols())];
        let weights = dataset.edge_weights.as_deref();
        let edge_features = dataset.edge_features.as_ref();
        let graphs = dataset.graphs.as_ref();
        let mut all = vec![
            Self::new("edges", Digest::of_hashes(edges.map(|it| it.0).into())),
            Self::optional("edge weights", weights.map(Digest::of)),
            Self::optional(
                "edge features",
                edge_features.map(|of| of_columns(of.columns(), Digest::of(of.values()))),
            ),
            Self::optional(
                "graphs of vertices",
                graphs.map(|of| Digest::of(of.starts())),
            ),
            Self::new("features", features(&dataset.features)?),
        ];
        all.extend(Self::of_labels(dataset));
        Ok(all)
    }

    /// What there is one of a vertex in a dataset, apart from its features: labels, names and splits.
    pub fn of_labels(dataset: &Dataset) -> Vec<Self> {
        let names = dataset.class_names.as_deref();
        let ids = dataset.ids.as_ref();
        let lines = |text: &mut dyn Iterator<Item = &str>| {
            let mut all = Vec::new();
            text.for_each(|name| {
                // The length separates a name from the next.
                all.extend((name.len() as u64).to_le_bytes());
                all.extend(name.as_bytes());
            });
            Digest::of(&all)
        };
        vec![
            Self::new("labels", labels(&dataset.targets)),
            Self::optional(
                "names of classes",
                names.map(|names| lines(&mut names.iter().map(String::as_str))),
            ),
            Self::optional("ids of vertices", ids.map(|ids| lines(&mut ids.iter()))),
            Self::new("training split", Digest::of(&dataset.train)),
            Self::new("validation split", Digest::of(&dataset.val)),
            Self::new("test split", Digest::of(&dataset.test)),
        ]
    }

    /// A part that may be absent, which differs from one that is empty.
    pub fn optional(what: &str, digest: Option<Digest>) -> Self {
        Self::new(what, digest.unwrap_or(Digest([0; 32])))
    }
}

/// A digest of values that are rows of the given number of columns.
fn of_columns(columns: usize, values: Digest) -> Digest {
    Digest::of_hashes(vec![Digest::of(&[columns as u64]).0, values.0])
}

fn labels(targets: &Targets) -> Digest {
    let (kind, columns, words) = match targets {
        Targets::Classes(classes) => ("classes", 1, Digest::of(classes)),
        Targets::Labels(labels) => ("labels", labels.columns(), Digest::of(labels.words())),
        Targets::Values(values) => ("values", values.columns(), Digest::of(values.values())),
        others => ("others", 1, Digest::of_text(&format!("{others:?}"))),
    };
    let known: Vec<u8> = (0..targets.vertices())
        .map(|vertex| targets.is_labelled(vertex).into())
        .collect();
    of_columns(
        columns,
        Digest::of_hashes(vec![Digest::of_text(kind).0, words.0, Digest::of(&known).0]),
    )
}

fn features(features: &Features) -> Result<Digest, Error> {
    let (rows, columns) = (features.vertices(), features.feature_len());
    let values = match features {
        Features::Stored(stored) => of_stored(stored)?,
        Features::Dense(_) => Digest::of_rows(rows, columns, |row, words| {
            features.for_each(row, |_, value| words.push(value.to_bits()));
        }),
        // Only what is not zero: a row of a bag of words is mostly zeros.
        _ => {
            let filled = (features.bytes() as usize / 8 / rows.max(1)).min(columns);
            Digest::of_rows(rows, 2 * filled + 1, |row, words| {
                features.for_each(row, |column, value| {
                    words.extend([column as u32, value.to_bits()]);
                });
                words.push(u32::MAX);
            })
        }
    };
    Ok(of_columns(columns, values))
}

/// The digest of evenly spaced rows, the first and the last among them.
fn of_stored(stored: &StoredFeatures) -> Result<Digest, Error> {
    let (rows, columns) = (stored.vertices(), stored.feature_len());
    let some = rows.min(STORED_ROWS);
    let row = |at: usize| (at as u64 * (rows as u64 - 1) / (some as u64 - 1).max(1)) as u32;
    let mut values = vec![0.0_f32; some * columns];
    let list = values.chunks_mut(columns.max(1)).enumerate();
    let list = list.map(|(at, values)| (row(at), values)).collect();
    stored
        .read_rows(list, |read, to| to.copy_from_slice(read.floats()))
        .map_err(|problem| Error::Features(problem.to_string()))?;
    Ok(Digest::of_hashes(vec![
        Digest::of(&[rows as u64]).0,
        Digest::of(&values).0,
    ]))
}

/// In what ranks differ, as a message says it: nothing where all have the same. What most have is compared with, of as many what a lower
/// rank has.
pub(super) fn differences(all: &[&[Compared]]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for part in all.iter().flat_map(|of_rank| *of_rank) {
        if !names.contains(&&part.what[..]) {
            names.push(&part.what);
        }
    }
    // For each group of ranks that differ, from which, and in what.
    let mut found: Vec<([Vec<usize>; 2], Vec<&str>)> = Vec::new();
    for what in names {
        let of = |rank: usize| all[rank].iter().find(|part| part.what == what);
        let digests: Vec<_> = (0..all.len())
            .map(|rank| of(rank).map(|it| it.digest))
            .collect();
        let count = |digest| digests.iter().filter(|other| **other == digest).count();
        // Of several that are as many `max_by_key` gives the last.
        let most = digests.iter().rev().max_by_key(|digest| count(**digest))?;
        let (same, others): (Vec<_>, Vec<_>) =
            (0..all.len()).partition(|&rank| digests[rank] == *most);
        if others.is_empty() {
            continue;
        }
        let ranks = [others, same];
        match found.iter_mut().find(|(of, _)| *of == ranks) {
            Some((_, whats)) => whats.push(what),
            None => found.push((ranks, vec![what])),
        }
    }
    let sentences = found.iter().map(|([others, same], whats)| {
        let differ = if others.len() == 1 {
            "differs"
        } else {
            "differ"
        };
        format!(
            "{} {differ} from {} in {}",
            ranks_of(others),
            ranks_of(same),
            listed(whats)
        )
    });
    let sentences: Vec<_> = sentences.collect();
    (!sentences.is_empty()).then(|| {
        format!(
            "{}; give all ranks the same data and options",
            sentences.join(", ")
        )
    })
}

/// Words as a sentence has them: `a`, `a and b`, `a, b and c`.
fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Ranks as a sentence names them: `rank 2`, `ranks 1, 2 and 3`; of many the first ones.
pub(super) fn ranks_of(ranks: &[usize]) -> String {
    const MOST: usize = 8;
    let mut words: Vec<String> = ranks.iter().take(MOST).map(usize::to_string).collect();
    if ranks.len() > MOST {
        words.push(format!("{} more", ranks.len() - MOST));
    }
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", listed(&words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{EdgeFeatures, Splits};
    use crate::graph::Graph;

    fn dataset() -> Dataset {
        let graph = Graph::from_edges(3, &[0, 1, 2], &[1, 2, 0]).unwrap();
        let features = Features::dense(2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let splits = Splits {
            train: vec![0],
            val: vec![1],
            test: vec![2],
        };
        Dataset::new("three", graph, features, vec![0, 1, 1], splits).unwrap()
    }

    /// Each part of a dataset changes its own digest and no other; what it is called changes none.
    #[test]
    fn every_part_of_a_dataset_has_a_digest() {
        let expected = Compared::of_dataset(&dataset()).unwrap();
        type Change = fn(&mut Dataset);
        let changes: [(&str, Change); 9] = [
            ("edges", |it| {
                it.graph = Graph::from_edges(3, &[0, 1, 2], &[1, 2, 1]).unwrap();
            }),
            ("edge weights", |it| it.edge_weights = Some(vec![1.0; 3])),
            ("edge features", |it| {
                it.edge_features = Some(EdgeFeatures::new(1, vec![0.0; 3]).unwrap());
            }),
            ("features", |it| {
                let values = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.000_000_5];
                it.features = Features::dense(2, values).unwrap();
            }),
            ("labels", |it| it.targets = vec![0, 1, 0].into()),
            ("names of classes", |it| {
                it.class_names = Some(vec!["a".into(), "b".into()]);
            }),
            ("training split", |it| it.train.clear()),
            ("validation split", |it| it.val.clear()),
            ("test split", |it| it.test.clear()),
        ];
        for (what, change) in changes {
            let mut other = dataset();
            other.name = "another name".into();
            change(&mut other);
            let found = Compared::of_dataset(&other).unwrap();
            let said = differences(&[&expected, &found]);
            let said = said.expect(what);
            assert_eq!(
                said,
                format!(
                    "rank 1 differs from rank 0 in {what}; give all ranks the same data and options"
                )
            );
        }
        assert_eq!(differences(&[&expected, &expected]), None);
        // Numbers in any order of memory are the same numbers, sparse ones by their columns.
        let sparse = |columns: Vec<u32>| {
            let features = Features::sparse(2, vec![0, 1, 2, 2], columns, vec![1.0, 2.0]);
            super::features(&features.unwrap()).unwrap()
        };
        assert_ne!(sparse(vec![0, 1]), sparse(vec![0, 0]));
        // More than a chunk.
        let many: Vec<u32> = (0..CHUNK as u32).collect();
        let mut other = many.clone();
        other[CHUNK - 1] = 7;
        assert_ne!(Digest::of(&many), Digest::of(&other));
        assert_eq!(Digest::of(&many), Digest::of(&many.clone()));
    }

    #[test]
    fn differences_name_ranks_and_parts() {
        let of = |values: &[(&str, u8)]| -> Vec<Compared> {
            let part = |(what, value): &(&str, u8)| Compared::new(what, Digest::of(&[*value]));
            values.iter().map(part).collect()
        };
        let same = of(&[("features", 1), ("labels", 1), ("model", 1)]);
        let said = |all: &[Vec<Compared>]| {
            let all: Vec<&[Compared]> = all.iter().map(|it| &it[..]).collect();
            differences(&all)
        };
        assert_eq!(said(&[same.clone(), same.clone(), same.clone()]), None);
        let two = of(&[("features", 2), ("labels", 2), ("model", 1)]);
        assert_eq!(
            said(&[two.clone(), same.clone(), same.clone()]).unwrap(),
            "rank 0 differs from ranks 1 and 2 in features and labels; give all ranks the same data and options"
        );
        let model = of(&[("features", 1), ("labels", 1), ("model", 3)]);
        assert_eq!(
            said(&[same.clone(), two, same.clone(), model, same]).unwrap(),
            "rank 1 differs from ranks 0, 2, 3 and 4 in features and labels, rank 3 differs from ranks 0, 1, 2 and 4 in model; give all ranks \
             the same data and options"
        );
        // Of as many the lower ranks count, and what one has and the other has not is a difference.
        let less = of(&[("features", 1), ("labels", 1)]);
        assert_eq!(
            said(&[of(&[("features", 1), ("labels", 1), ("model", 1)]), less]).unwrap(),
            "rank 1 differs from rank 0 in model; give all ranks the same data and options"
        );
        let many: Vec<usize> = (0..12).collect();
        assert_eq!(ranks_of(&many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
    }
}
