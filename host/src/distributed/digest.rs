//! Digests of the inputs of ranks, which all compare when they meet.

use crate::data::Dataset;
use crate::data::digest::{self, Digest, DigestedPart};
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// A part of the inputs of a rank, and its digest. Ranks that meet must have the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Its name in messages, such as `labels`.
    pub what: String,
    /// The digest of its values.
    #[serde(with = "hexadecimal")]
    pub digest: Digest,
}

/// A digest in JSON, as a string.
mod hexadecimal {
    use super::Digest;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(digest)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl From<DigestedPart> for Compared {
    fn from((what, digest): DigestedPart) -> Self {
        Self::new(what, digest)
    }
}

impl Compared {
    /// A part by its name.
    pub fn new(what: &str, digest: Digest) -> Self {
        let what = what.into();
        Self { what, digest }
    }

    /// All parts of a dataset: edges with their weights and features, features of vertices, labels, names and splits.
    /// Of features that stay on disk some rows are compared, evenly spaced.
    ///
    /// # Errors
    /// [`Error::Features`] where features on disk cannot be read.
    pub fn of_dataset(dataset: &Dataset) -> Result<Vec<Self>, Error> {
        let mut parts = digest::in_memory(dataset);
        if let Some(stored) = dataset.features.as_stored() {
            let rows = digest::of_stored(stored);
            parts.push(rows.map_err(|problem| Error::Features(problem.to_string()))?);
        }
        Ok(parts.into_iter().map(Self::from).collect())
    }

    /// The parts of a dataset that describe vertices, other than their features: labels, names and splits.
    pub fn of_labels(dataset: &Dataset) -> Vec<Self> {
        let parts = digest::of_labels(dataset).into_iter();
        parts.map(Self::from).collect()
    }

    /// A part that may be absent, which differs from one that is empty.
    pub fn optional(what: &str, digest: Option<Digest>) -> Self {
        Self::new(what, digest.unwrap_or(Digest::ABSENT))
    }
}

/// A message about the differences between ranks; none where all have the same inputs. The majority is the reference
/// for each part. In a tie the lowest rank decides.
pub(super) fn differences(all: &[&[Compared]]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for part in all.iter().flat_map(|of_rank| *of_rank) {
        if !names.contains(&&part.what[..]) {
            names.push(&part.what);
        }
    }
    // The ranks that differ, those that they differ from, and the parts.
    let mut found: Vec<([Vec<usize>; 2], Vec<&str>)> = Vec::new();
    for what in names {
        let of = |rank: usize| all[rank].iter().find(|part| part.what == what);
        let digests: Vec<_> = (0..all.len())
            .map(|rank| of(rank).map(|it| it.digest))
            .collect();
        let count = |digest| digests.iter().filter(|other| **other == digest).count();
        // Of equal maxima `max_by_key` returns the last.
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

/// Joins words as in a sentence: `a`, `a and b`, `a, b and c`.
fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Names ranks as in a sentence: `rank 2`, `ranks 1, 2 and 3`. Of many ranks it names the first ones.
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
    use crate::data::{Features, Splits};
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

    #[test]
    fn ranks_with_other_data_are_named() {
        let expected = Compared::of_dataset(&dataset()).unwrap();
        assert_eq!(differences(&[&expected, &expected]), None);
        let mut other = dataset();
        other.name = "another name".into();
        other.targets = vec![0, 1, 0].into();
        other.test.clear();
        let found = Compared::of_dataset(&other).unwrap();
        let said = differences(&[&expected, &found]).unwrap();
        assert_eq!(
            said,
            "rank 1 differs from rank 0 in labels and test split; give all ranks the same data and options"
        );
        // As it is sent over a connection.
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Compared>>(&text).unwrap(), found);
        let broken = text.replacen(&found[0].digest.to_string(), "zz", 1);
        assert!(serde_json::from_str::<Vec<Compared>>(&broken).is_err());
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
        // In a tie the lower rank is the reference. A part that only one rank has is a difference.
        let less = of(&[("features", 1), ("labels", 1)]);
        assert_eq!(
            said(&[of(&[("features", 1), ("labels", 1), ("model", 1)]), less]).unwrap(),
            "rank 1 differs from rank 0 in model; give all ranks the same data and options"
        );
        let many: Vec<usize> = (0..12).collect();
        assert_eq!(ranks_of(&many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
    }
}
