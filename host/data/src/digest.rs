//! Digests of a dataset, part by part. A resumed run, and all ranks of a run, must have read the same data.
//!
//! Two datasets with equal parts have equal digests, whatever their formats and the number of threads.

use super::{DataError, Dataset, Features, StoredFeatures, Targets, Types};
use bytemuck::{Pod, cast_slice};
use halfgnn_graph::parallel;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// A SHA-256, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// The name of a part of a dataset, such as `labels`, and its digest: [`Digest::ABSENT`] for a part that the dataset
/// does not have.
pub type DigestedPart = (&'static str, Digest);

/// The name of the part that a vertex' own name is in. Training does not depend on it.
pub const IDS: &str = "ids of vertices";

/// The name of the part that the classes' names are in. Training does not depend on it.
pub const CLASS_NAMES: &str = "names of classes";

/// The name of the part that types of vertices and edges are in, of a dataset of several.
pub const TYPES: &str = "types";

/// Bytes that one thread hashes at a time.
const CHUNK: usize = 1 << 20;

/// Rows of features that a thread hashes at a time. The number is a constant, so that dense and sparse rows have the
/// same chunks.
const ROWS: usize = 256;

/// Rows of features on disk that are compared: reading all would take as long as an epoch.
const STORED_ROWS: usize = 1 << 14;

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        let wrong = "a digest is 64 hexadecimal digits";
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..][..2], 16).map_err(|_| wrong)?;
        }
        Ok(Self(bytes))
    }
}

impl Digest {
    /// What stands for a part that is absent, which differs from one that is empty.
    pub const ABSENT: Self = Self([0; 32]);

    /// The digest of values: chunks are hashed in parallel, and then their hashes.
    pub fn of<T: Pod + Sync>(values: &[T]) -> Self {
        let chunks = parallel::chunks(cast_slice::<T, u8>(values), CHUNK);
        Self::of_digests(parallel::map(chunks, |_, chunk| hash(chunk)))
    }

    /// The digest of a text.
    pub fn of_text(text: &str) -> Self {
        Self::of(text.as_bytes())
    }

    /// The digest of digests, in their order.
    pub fn of_digests(digests: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Sha256::new();
        digests.into_iter().for_each(|digest| all.update(digest.0));
        Self(all.finalize().into())
    }
}

fn hash(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// The parts of a dataset that are in memory. [`of_stored`] hashes features on disk. An [outline](Dataset::outline) has
/// [`of_labels`] only.
///
/// Digests of features are those before scaling, where they are made before.
pub fn in_memory(dataset: &Dataset) -> Vec<DigestedPart> {
    let mut parts = of_labels(dataset);
    if dataset.outline().is_some() {
        return parts;
    }
    let graph = &dataset.graph;
    let edges = [Digest::of(graph.offsets()), Digest::of(graph.cols())];
    let edge_features = dataset.edge_features.as_ref();
    let graphs = dataset.graphs.as_ref();
    parts.extend([
        ("edges", Digest::of_digests(edges)),
        optional(
            "edge weights",
            dataset.edge_weights.as_deref().map(of_floats),
        ),
        optional(
            "edge features",
            edge_features.map(|of| of_columns(of.columns(), of_floats(of.values()))),
        ),
        optional(
            "graphs of vertices",
            graphs.map(|of| Digest::of(of.starts())),
        ),
    ]);
    if dataset.features.as_stored().is_none() {
        parts.push(("features", of_features(&dataset.features)));
    }
    parts.extend(
        dataset
            .types
            .as_ref()
            .map(|types| (TYPES, of_types(types, dataset))),
    );
    parts
}

/// Names, edges and features of all types.
fn of_types(types: &Types, dataset: &Dataset) -> Digest {
    let vertices = types
        .vertices()
        .iter()
        .enumerate()
        .flat_map(|(number, of)| {
            let features = dataset
                .features_of_type(number)
                .map_or(Digest::ABSENT, of_features);
            [
                Digest::of_text(&of.name),
                Digest::of(&[of.vertices as u64]),
                features,
            ]
        });
    let edges = types.edges().iter().flat_map(|of| {
        let (offsets, columns) = (of.edges.offsets(), of.edges.cols());
        [
            Digest::of_text(&types.title(of)),
            Digest::of(offsets),
            Digest::of(columns),
        ]
    });
    Digest::of_digests(vertices.chain(edges))
}

/// The labels, names and splits of a dataset.
pub fn of_labels(dataset: &Dataset) -> Vec<DigestedPart> {
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
        ("labels", of_targets(&dataset.targets)),
        optional(
            CLASS_NAMES,
            names.map(|names| lines(&mut names.iter().map(String::as_str))),
        ),
        optional(IDS, ids.map(|ids| lines(&mut ids.iter()))),
        ("training split", Digest::of(&dataset.train)),
        ("validation split", Digest::of(&dataset.val)),
        ("test split", Digest::of(&dataset.test)),
    ]
}

/// Evenly spaced rows of features on disk, the first and the last among them.
///
/// # Errors
/// A [`DataError`] that names the file, where it cannot be read.
pub fn of_stored(stored: &StoredFeatures) -> Result<DigestedPart, DataError> {
    let (rows, columns) = (stored.vertices(), stored.feature_len());
    let some = rows.min(STORED_ROWS);
    let row = |at: usize| (at as u64 * (rows as u64 - 1) / (some as u64 - 1).max(1)) as u32;
    let mut values = vec![0.0_f32; some * columns];
    let list = values.chunks_mut(columns.max(1)).enumerate();
    let list = list.map(|(at, values)| (row(at), values)).collect();
    stored.read_rows(list, |read, to| to.copy_from_slice(read.floats()))?;
    let of = [Digest::of(&[rows as u64]), of_floats(&values)];
    Ok((
        "rows of features",
        of_columns(columns, Digest::of_digests(of)),
    ))
}

fn optional(what: &'static str, digest: Option<Digest>) -> DigestedPart {
    (what, digest.unwrap_or(Digest::ABSENT))
}

/// A digest of values that are rows of the given number of columns.
fn of_columns(columns: usize, values: Digest) -> Digest {
    Digest::of_digests([Digest::of(&[columns as u64]), values])
}

/// A digest of numbers. All that are no numbers are the same, whatever their bits.
fn of_floats(values: &[f32]) -> Digest {
    let chunks = parallel::chunks(values, CHUNK / 4);
    Digest::of_digests(parallel::map(chunks, |_, chunk| {
        let words: Vec<u32> = chunk.iter().map(|&value| bits_of(value)).collect();
        hash(cast_slice(&words))
    }))
}

fn bits_of(value: f32) -> u32 {
    match value.is_nan() {
        true => f32::NAN.to_bits(),
        false => value.to_bits(),
    }
}

fn of_targets(targets: &Targets) -> Digest {
    let (kind, columns, parts) = match targets {
        Targets::Classes(classes) => ("classes", 1, vec![Digest::of(classes)]),
        Targets::Labels(labels) => {
            let known = labels.known_words().map_or(Digest::ABSENT, Digest::of);
            let words = Digest::of(labels.words());
            ("labels", labels.columns(), vec![words, known])
        }
        Targets::Values(values) => {
            let columns = values.columns();
            ("values", columns, vec![of_floats(values.values())])
        }
    };
    let kind = Digest::of_text(kind);
    of_columns(
        columns,
        Digest::of_digests(std::iter::once(kind).chain(parts)),
    )
}

/// Of the entries that are not zero, so that dense and sparse rows of the same numbers are the same.
fn of_features(features: &Features) -> Digest {
    let (rows, columns) = (features.vertices(), features.feature_len());
    let starts: Vec<usize> = (0..rows).step_by(ROWS).collect();
    let chunks = parallel::map(parallel::chunks(&starts, 1), |_, start| {
        let mut words = Vec::new();
        for row in start[0]..rows.min(start[0] + ROWS) {
            write_row(features, row, &mut words);
        }
        hash(cast_slice(&words))
    });
    of_columns(columns, Digest::of_digests(chunks))
}

/// Appends the runs of entries that are not zero, then the end of the row. A run is its first column, its length and
/// its values.
fn write_row(features: &Features, row: usize, words: &mut Vec<u32>) {
    // The column after the run, and where its length is.
    let mut run: Option<(usize, usize)> = None;
    features.for_each(row, |column, value| {
        if value == 0.0 {
            return;
        }
        let length = match run {
            Some((next, length)) if next == column => length,
            _ => {
                words.extend([column as u32, 0]);
                words.len() - 1
            }
        };
        words[length] += 1;
        words.push(bits_of(value));
        run = Some((column + 1, length));
    });
    words.push(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EdgeFeatures, LabelSets, Splits, Values, VertexIds};
    use halfgnn_graph::Graph;

    fn dataset() -> Dataset {
        let graph = Graph::from_edges(4, &[0, 1, 2, 3], &[1, 2, 3, 0]).expect("a graph");
        let features = Features::dense(2, vec![1.0, 0.0, 0.0, 2.0, 0.5, 3.0, 0.0, 0.0]);
        let splits = Splits {
            train: vec![0, 1],
            val: vec![2],
            test: vec![3],
        };
        let features = features.expect("rows");
        Dataset::new("four", graph, features, vec![0, 1, 0, 1], splits).expect("a dataset")
    }

    /// The parts in which two changes of the dataset differ.
    fn between(
        one: impl FnOnce(&mut Dataset),
        other: impl FnOnce(&mut Dataset),
    ) -> Vec<&'static str> {
        let [mut mine, mut its] = [dataset(), dataset()];
        one(&mut mine);
        other(&mut its);
        let pairs = in_memory(&mine).into_iter().zip(in_memory(&its));
        let differs = pairs.filter(|(mine, its)| mine != its);
        differs.map(|((what, _), _)| what).collect()
    }

    fn differences(change: impl FnOnce(&mut Dataset)) -> Vec<&'static str> {
        between(|_| {}, change)
    }

    #[test]
    fn each_part_differs_by_itself() {
        type Change = fn(&mut Dataset);
        let changes: [(&[&str], Change); 13] = [
            (&[], |_| {}),
            (&[], |it| it.name = "other".into()),
            (&["features"], |it| {
                let values = vec![0.0, 1.0, 0.0, 2.0, 0.5, 3.0, 0.0, 0.0];
                it.features = Features::dense(2, values).expect("rows");
            }),
            (&["edges"], |it| {
                it.graph = Graph::from_edges(4, &[0, 1, 2, 3], &[1, 2, 3, 1]).expect("a graph");
            }),
            (&["edge weights"], |it| {
                it.edge_weights = Some(vec![1.0, 1.0, 1.0, 2.0]);
            }),
            (&["edge features"], |it| {
                it.edge_features = Some(EdgeFeatures::new(1, vec![0.0; 4]).expect("rows"));
            }),
            (&["labels"], |it| it.targets = vec![0, 1, 1, 1].into()),
            (&[CLASS_NAMES], |it| {
                it.class_names = Some(vec!["a".into(), "b".into()]);
            }),
            (&[IDS], |it| {
                let ids = it.ids.insert(VertexIds::default());
                for id in ["a", "b", "c", "d"] {
                    ids.push(id).expect("memory");
                }
            }),
            (&["training split"], |it| it.train.clear()),
            (&["training split"], |it| it.train.reverse()),
            (&["validation split"], |it| it.val.clear()),
            (&["test split"], |it| it.test.clear()),
        ];
        for (at, (parts, change)) in changes.into_iter().enumerate() {
            assert_eq!(differences(change), parts, "change {at}");
        }
    }

    #[test]
    fn features_are_the_same_in_whatever_form_they_are() {
        let sparse = |values: Vec<f32>| {
            Features::sparse(2, vec![0, 1, 2, 4, 4], vec![0, 1, 0, 1], values).expect("rows")
        };
        let same = sparse(vec![1.0, 2.0, 0.5, 3.0]);
        assert_eq!(differences(|data| data.features = same), [""; 0]);
        let other = sparse(vec![1.0, 2.0, 0.5, 4.0]);
        assert_eq!(differences(|data| data.features = other), ["features"]);
        let negative = Features::dense(2, vec![1.0, -0.0, 0.0, 2.0, 0.5, 3.0, 0.0, 0.0]);
        let negative = negative.expect("rows");
        assert_eq!(differences(|data| data.features = negative), [""; 0]);
    }

    /// A label that is unknown is another than one that is false, and unknown values are the same whatever their bits.
    #[test]
    fn unknown_entries_are_part_of_labels() {
        let labels = |last| {
            let mut truths = [[Some(true), None]; 4].concat();
            truths[7] = last;
            let labels = LabelSets::new(2, truths.into_iter()).expect("labels");
            move |data: &mut Dataset| data.targets = Targets::Labels(labels)
        };
        assert_eq!(between(labels(None), labels(None)), [""; 0]);
        assert_eq!(between(labels(None), labels(Some(false))), ["labels"]);
        let values = |bits| {
            let values = Values::new(1, vec![1.0, 2.0, 3.0, f32::from_bits(bits)]).expect("values");
            move |data: &mut Dataset| data.targets = Targets::Values(values)
        };
        assert_eq!(between(values(0x7fc0_0000), values(0xffc0_0001)), [""; 0]);
        assert_eq!(between(values(0x7fc0_0000), values(0)), ["labels"]);
    }

    #[test]
    fn digests_are_texts_and_see_every_chunk() {
        let many: Vec<u32> = (0..CHUNK as u32).collect();
        let mut other = many.clone();
        other[CHUNK - 1] = 7;
        let digest = Digest::of(&many);
        assert_ne!(digest, Digest::of(&other));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in ["", "0x", &"g".repeat(64), &"\u{e9}".repeat(32)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
