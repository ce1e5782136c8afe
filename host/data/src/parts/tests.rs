//! Folders of parts, written, read and broken.

use super::*;
use crate::testing::{Array, Folder, archive};
use crate::{
    DataError, Dataset, EdgeFeatures, Features, LabelSets, OpenOptions, Splits, StoredRow, Targets,
    UNLABELLED, Values, VertexIds,
};
use halfgnn_graph::Graph;
use std::path::{Path, PathBuf};

/// Seven vertices. One has a self-loop, one no in-neighbour, one the same in-neighbour twice; no other vertex reads the
/// last one.
fn graph() -> Graph {
    let rows = [0, 0, 1, 2, 2, 2, 3, 5, 6, 6];
    let cols = [1, 5, 0, 0, 3, 3, 3, 2, 0, 4];
    Graph::from_edges(7, &rows, &cols).unwrap()
}

fn dataset(targets: impl Into<Targets>) -> Dataset {
    let features = (0..21).map(|value| value as f32 / 7.0 - 1.0).collect();
    let splits = Splits {
        train: vec![0, 2, 6],
        val: vec![3],
        test: vec![5],
    };
    let features = Features::dense(3, features).unwrap();
    Dataset::new("seven", graph(), features, targets, splits).unwrap()
}

fn classes() -> Vec<u32> {
    vec![0, 1, 2, 0, UNLABELLED, 1, 2]
}

/// With all that a dataset may have.
fn everything() -> Dataset {
    let mut all = dataset(classes());
    all.edge_weights = Some((1..=10).map(|weight| weight as f32 / 3.0).collect());
    let values = (0..20).map(|value| value as f32 * 0.1).collect();
    all.edge_features = Some(EdgeFeatures::new(2, values).unwrap());
    let mut ids = VertexIds::default();
    for id in ["ann", "bob", "", "Bjørn", "eve", "f", "g"] {
        ids.push(id).unwrap();
    }
    all.ids = Some(ids);
    all.class_names = Some(["red", "green", "blue"].map(String::from).to_vec());
    all
}

const OWNERS: [u32; 7] = [2, 0, 0, 2, 4, 2, 0];

fn deal(precision: FeaturePrecision) -> Deal<'static> {
    Deal {
        owners: &OWNERS,
        parts: 5,
        by: "hand",
        precision,
    }
}

fn written(dataset: &Dataset, precision: FeaturePrecision) -> (Folder, PathBuf) {
    let folder = Folder::new();
    let path = folder.path().join("seven");
    dataset.save_parts(&path, &deal(precision)).unwrap();
    (folder, path)
}

#[test]
fn a_folder_read_whole_is_what_was_written() {
    let labels = LabelSets::new(2, (0..14).map(|at| (at / 2 != 4).then_some(at % 3 == 0)));
    let values = (0..14).map(|at| if at / 2 == 4 { f32::NAN } else { at as f32 });
    let partial = LabelSets::new(2, (0..14).map(|at| (at % 5 != 4).then_some(at % 3 == 0)));
    let all: [Dataset; 5] = [
        everything(),
        dataset(partial.unwrap()),
        dataset(classes()),
        dataset(labels.unwrap()),
        dataset(Values::new(2, values.collect()).unwrap()),
    ];
    for expected in all {
        let (_folder, path) = written(&expected, FeaturePrecision::Float);
        let found = Dataset::open(&path).unwrap();
        assert_eq!(found.name, "seven");
        assert_eq!(found.graph, expected.graph);
        assert_eq!(found.features, expected.features);
        assert_eq!(found.targets, expected.targets);
        assert_eq!(found.edge_weights, expected.edge_weights);
        assert_eq!(found.edge_features, expected.edge_features);
        assert_eq!(found.ids, expected.ids);
        assert_eq!(found.class_names, expected.class_names);
        let splits = |of: &Dataset| [of.train.clone(), of.val.clone(), of.test.clone()];
        assert_eq!(splits(&found), splits(&expected));
        // By the manifest, and as a graph alone.
        let graph = <Graph as crate::OpenGraph>::open(path.join(MANIFEST)).unwrap();
        assert_eq!(graph, expected.graph);
    }
}

#[test]
fn features_are_halves_unless_they_are_to_be_floats() {
    let (_folder, path) = written(&dataset(classes()), FeaturePrecision::Half);
    let found = Dataset::open(&path).unwrap().features.to_dense().unwrap();
    let expected = dataset(classes()).features.to_dense().unwrap();
    let rounded: Vec<f32> = (expected.iter())
        .map(|&value| half::f16::from_f32(value).to_f32())
        .collect();
    assert_eq!(found, rounded);
    assert_ne!(found, expected);
    // What half cannot hold is refused, and nothing is left of the folder.
    let mut large = dataset(classes());
    let mut values = expected;
    values[13] = 70_000.0;
    large.features = Features::dense(3, values).unwrap();
    let folder = Folder::new();
    let path = folder.path().join("large");
    let error = large.save_parts(&path, &deal(FeaturePrecision::Half));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("features[13] is 70000, in row 4, column 1"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    large
        .save_parts(&path, &deal(FeaturePrecision::Float))
        .unwrap();
    assert_eq!(Dataset::open(&path).unwrap().features, large.features);
    let again = large.save_parts(&path, &deal(FeaturePrecision::Float));
    assert!(again.unwrap_err().to_string().contains("is there already"));
}

/// Whichever thread comes to one first: vertices 0 and 3 are in part 2, 4 in part 4, and 1 and 2 in part 0.
#[test]
fn of_several_parts_in_which_something_is_wrong_the_first_is_reported() {
    let refused = |wrong: &[usize]| {
        let mut values = vec![0.5; 21];
        wrong.iter().for_each(|vertex| values[vertex * 3 + 1] = 1e5);
        let mut dataset = dataset(classes());
        dataset.features = Features::dense(3, values).unwrap();
        let folder = Folder::new();
        let path = folder.path().join("seven");
        let message = dataset.save_parts(&path, &deal(FeaturePrecision::Half));
        assert!(!path.exists(), "{wrong:?}");
        message.unwrap_err().to_string()
    };
    for (wrong, vertex) in [(&[4][..], 4), (&[4, 3], 3), (&[0, 4, 2], 2), (&[2, 1], 1)] {
        let message = refused(wrong);
        let expected = format!("in row {vertex}, column 1");
        assert!(message.contains(&expected), "{message}");
    }

    // And likewise where several are read.
    let (_folder, path) = written(&everything(), FeaturePrecision::Half);
    for part in [4, 2] {
        let place = path.join(part_file(part));
        let mut bytes = std::fs::read(&place).unwrap();
        // Of the first vertex' number.
        bytes[layout::Header::BYTES] ^= 64;
        std::fs::write(&place, bytes).unwrap();
        assert!(
            message(&path).contains(&part_file(part)),
            "{}",
            message(&path)
        );
    }
}

#[test]
fn some_parts_are_the_rows_of_their_vertices() {
    let expected = everything();
    let (_folder, path) = written(&expected, FeaturePrecision::Float);
    let parted = Parted::open(&path).unwrap();
    let table = parted.table().unwrap();
    let rows = parted.rows(&table, 2..5).unwrap();
    assert_eq!(rows.vertices, [0, 3, 4, 5]);
    assert_eq!(rows.offsets, [0, 2, 3, 3, 4]);
    assert_eq!(rows.columns, [1, 5, 3, 2]);
    let weights = expected.edge_weights.as_ref().unwrap();
    let of = [0, 1, 6, 7].map(|edge: usize| weights[edge]);
    assert_eq!(rows.edge_weights.as_deref(), Some(&of[..]));
    let features = expected.edge_features.as_ref().unwrap();
    assert_eq!(rows.edge_features.unwrap().row(2), features.row(6));
    let ids: Vec<_> = rows.ids.as_ref().unwrap().iter().collect();
    assert_eq!(ids, ["ann", "Bjørn", "eve", "f"]);
    let mut row = [0.0; 3];
    rows.features.write_row(1, &mut row);
    let mut third = [0.0; 3];
    expected.features.write_row(3, &mut third);
    assert_eq!(row, third);
    let packed = rows.features.packed(&[1, 0]);
    assert_eq!(packed.len(), 2 * rows.features.packed_row());
    let extended = rows.features.clone().extended(&packed);
    extended.write_row(4, &mut row);
    assert_eq!((extended.rows(), row), (6, third));
    // Part 1 has no vertex.
    assert!(parted.rows(&table, 1..2).unwrap().vertices.is_empty());

    let all: Vec<_> = (0..3)
        .map(|rank| parted.range_of(rank, 3).unwrap())
        .collect();
    assert_eq!(all, [0..1, 1..3, 3..5]);
    let error = parted.range_of(0, 6).unwrap_err().to_string();
    assert!(error.contains("parts: there are 5, and 6 ranks"), "{error}");
}

#[test]
fn the_table_knows_degrees_and_sums_with_and_without_loops() {
    let mut expected = everything();
    // A self-loop has another weight in a sum before and behind those that take its digits.
    let large = (1_u64 << 60) as f32;
    expected.edge_weights = Some(vec![
        0.3, 0.7, -large, large, -large, 0.5, 0.9, 1.1, 0.25, 0.6,
    ]);
    let (_folder, path) = written(&expected, FeaturePrecision::Half);
    let table = Parted::open(&path).unwrap().table().unwrap();
    assert_eq!(table.in_degrees, expected.graph.in_degrees());
    assert_eq!(table.out_degrees, expected.graph.out_degrees());
    assert_eq!((table.has_loop(3), table.without_loops()), (true, 6));
    let sums = table.sums.unwrap();
    let weights = expected.edge_weights.unwrap();
    let looped = expected.graph.with_self_loops().unwrap();
    let one = halfgnn_graph::AddedWeight::Value(1.0);
    let with = expected
        .graph
        .carry_weights(&weights, &looped, one)
        .unwrap();
    for (graph, weights, of) in [(&expected.graph, &weights, 0), (&looped, &with, 1)] {
        let mut rows = [0.0_f64; 7];
        let mut columns = [0.0_f64; 7];
        for (edge, &weight) in weights.iter().enumerate() {
            rows[graph.rows()[edge] as usize] += f64::from(weight);
            columns[graph.cols()[edge] as usize] += f64::from(weight);
        }
        assert_eq!(sums.rows[of], rows);
        assert_eq!(sums.columns[of], columns);
    }
}

#[test]
fn an_outline_tells_of_edges_that_it_has_not() {
    let (_folder, path) = written(&everything(), FeaturePrecision::Float);
    let parted = Parted::open(&path).unwrap();
    let table = parted.table().unwrap();
    let mut options = OpenOptions::default();
    let outline = parted.outline(&table, &options).unwrap();
    let whole = Dataset::open(&path).unwrap();
    assert_eq!((outline.graph.edges(), outline.edges()), (0, 10));
    assert_eq!(outline.largest_degree(), whole.largest_degree());
    assert_eq!(outline.without_loops(), whole.without_loops());
    assert_eq!(
        outline.column_magnitudes().unwrap(),
        whole.column_magnitudes().unwrap()
    );
    assert_eq!(
        (&outline.train, &outline.targets),
        (&whole.train, &whole.targets)
    );
    assert!(outline.edge_weights.is_some() && outline.edge_features.is_some());
    options.ignore_edge_weights = true;
    assert!(
        parted
            .outline(&table, &options)
            .unwrap()
            .edge_weights
            .is_none()
    );
    options.undirected = true;
    let error = parted.outline(&table, &options).unwrap_err().to_string();
    assert!(
        error.contains("ranks read its parts as they are"),
        "{error}"
    );
}

/// What is said of a folder in which a file was changed.
fn broken(file: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let (_folder, path) = written(&everything(), FeaturePrecision::Half);
    let place = path.join(file);
    let mut bytes = std::fs::read(&place).unwrap();
    change(&mut bytes);
    std::fs::write(&place, bytes).unwrap();
    message(&path)
}

fn message(path: &Path) -> String {
    let error: DataError = Dataset::open(path).unwrap_err();
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

/// What is done to the bytes of a file.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// The place of the first number of a section in `part-00002.bin`, of 3 vertices and 4 edges.
const VERTEX: usize = 24;
const OFFSET: usize = VERTEX + 16;
const COLUMN: usize = OFFSET + 32;

#[test]
fn what_is_wrong_with_a_file_is_reported_with_its_name_and_field() {
    let (_folder, path) = written(&everything(), FeaturePrecision::Half);
    std::fs::remove_file(path.join("part-00003.bin")).unwrap();
    let error = message(&path);
    assert!(
        error.contains("has no file part-00003.bin; a folder of parts has"),
        "{error}"
    );

    let part = "part-00002.bin";
    let all: [(&str, &str, Change<'_>); 14] = [
        (part, "length: it is", &|bytes| bytes.truncate(100)),
        (part, "length: it is 0 bytes", &|bytes| bytes.clear()),
        (part, "length: it is", &|bytes| bytes.push(0)),
        (part, "magic: it is not HGNNPART", &|bytes| bytes[0] = b'x'),
        (part, "version: it is 9", &|bytes| bytes[8] = 9),
        (part, "part: it is 1, where 2 is wanted", &|bytes| {
            bytes[12] = 1
        }),
        (part, "identity: it is of another manifest", &|bytes| {
            bytes[17] ^= 1
        }),
        (
            part,
            "vertices[0] is 1, which vertices.bin has in part 0",
            &|bytes| bytes[VERTEX] = 1,
        ),
        (part, "offsets[1] is 3, where the degrees", &|bytes| {
            bytes[OFFSET + 8] = 3
        }),
        (
            part,
            "columns[0] is 7, but there are 7 vertices",
            &|bytes| bytes[COLUMN] = 7,
        ),
        (
            part,
            "columns[1] is 0, but the columns of a row ascend",
            &|bytes| bytes[COLUMN + 4] = 0,
        ),
        (part, "checksum: it is", &|bytes| bytes[COLUMN] = 0),
        (VERTICES, "parts[0] is 9, but there are 5 parts", &|bytes| {
            bytes[24] = 9
        }),
        (VERTICES, "magic: it is not HGNNVERT", &|bytes| bytes[5] = 0),
    ];
    for (file, words, change) in all {
        let error = broken(file, change);
        // A problem that a checksum finds first is reported as well.
        let is_reported =
            error.contains(words) || words.contains("parts[0]") && error.contains("checksum");
        assert!(is_reported && error.contains(file), "{words}: {error}");
    }
}

#[test]
fn what_is_wrong_with_a_manifest_is_reported() {
    let changed = |from: &str, to: &str| {
        broken(MANIFEST, |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from), "{from}: {text}");
            *bytes = text.replacen(from, to, 1).into_bytes();
        })
    };
    for (from, to, words) in [
        (
            "\"version\": 1",
            "\"version\": 2",
            "version: it is 2, and this build reads 1",
        ),
        (
            "\"vertices\": 7",
            "\"vertices\": 8",
            "vertices: there are 8, and parts have 7",
        ),
        (
            "\"edges\": 10",
            "\"edges\": 11",
            "edges: there are 11, and parts have 10",
        ),
        (
            "\"features\": 3",
            "\"features\": 0",
            "features: there are 0 of a vertex",
        ),
        (
            "\"features\": 3",
            "\"features\": 4",
            "column_magnitudes: there are 3",
        ),
        (
            "\"edge_features\": 2",
            "\"edge_features\": 3",
            "length: it is",
        ),
        ("\"ids\": true", "\"ids\": 1", "manifest: invalid type"),
        (
            "\"edge_weights\"",
            "\"weights\"",
            "manifest: unknown field `weights`",
        ),
        ("\"identity\": \"", "\"identity\": \"z", "identity: "),
        (
            "\"edges\": 10",
            "\"edges\": 18446744073709551615",
            "edges: there are",
        ),
    ] {
        let error = changed(from, to);
        assert!(error.contains(words), "{from}: {error}");
    }
    // Of no part.
    let error = broken(MANIFEST, |bytes| {
        let mut all: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        all["parts"] = serde_json::json!([]);
        *bytes = serde_json::to_vec(&all).unwrap();
    });
    assert!(error.contains("parts: there are 0, where 1 to"), "{error}");
}

#[test]
fn parts_of_another_folder_are_reported() {
    let (_one, path) = written(&everything(), FeaturePrecision::Half);
    let mut other = everything();
    other.train = vec![0, 2];
    let (_other, others) = written(&other, FeaturePrecision::Half);
    std::fs::copy(others.join("part-00000.bin"), path.join("part-00000.bin")).unwrap();
    let error = message(&path);
    assert!(
        error.contains("part-00000.bin: identity: it is of another manifest"),
        "{error}"
    );
}

#[test]
fn partitions_that_are_none_are_refused() {
    let folder = Folder::new();
    let refused = |owners: &[u32], parts| {
        let deal = Deal {
            owners,
            parts,
            by: "hand",
            precision: FeaturePrecision::Half,
        };
        let path = folder.path().join("none");
        let error = dataset(classes()).save_parts(path, &deal).unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        error.to_string()
    };
    assert!(refused(&OWNERS, 0).contains("into 0 parts"));
    assert!(refused(&OWNERS, 4).contains("vertex 4 is in part 4, and there are 4 parts"));
    assert!(refused(&OWNERS[..6], 5).contains("is of 6 vertices, and there are 7"));
}

/// The arrays of a directed graph of 50 vertices with edges in any order, some twice, some to where they start.
fn arrays(more: &[(&'static str, Array)]) -> Vec<(&'static str, Vec<u8>)> {
    let ends = |factor: i64| (0..400).map(move |edge: i64| (edge * factor + edge / 7) % 50);
    let both: Vec<i64> = ends(17).chain(ends(31)).collect();
    let features: Vec<f32> = (0..150).map(|at| (at % 37) as f32 / 11.0 - 1.0).collect();
    let labels: Vec<i64> = (0..50).map(|vertex| vertex % 4 - 1).collect();
    let mask = |of: i64| {
        Array::bool(
            &(0..50)
                .map(|v| v % 4 > 0 && v % 3 == of)
                .collect::<Vec<_>>(),
        )
    };
    let own = [
        ("edge_index", Array::i64(&both).shaped(&[2, 400])),
        ("x", Array::f32(&features).shaped(&[50, 3])),
        ("y", Array::i64(&labels)),
        ("train_mask", mask(0)),
        ("val_mask", mask(1)),
        ("test_mask", mask(2)),
    ];
    let is_given = |key: &str| more.iter().any(|(other, _)| *other == key);
    let own = own.into_iter().filter(|(key, _)| !is_given(key));
    own.chain(more.iter().cloned())
        .map(|(key, array)| (key, array.npy()))
        .collect()
}

#[test]
fn a_stream_writes_what_is_written_of_the_whole() {
    let owners: Vec<u32> = (0..50).map(|vertex| vertex * vertex % 6).collect();
    let (few, wide) = ([1.0; 50], [0.25; 50]);
    for (compressed, more) in [
        (false, vec![]),
        (true, vec![]),
        (true, vec![("x", Array::f32(&few))]),
        (
            false,
            vec![
                ("y", Array::f32(&wide)),
                ("num_nodes", Array::i64(&[50]).shaped(&[])),
            ],
        ),
    ] {
        let folder = Folder::new();
        let bytes = archive(&arrays(&more), compressed);
        let path = folder.write("graph.npz", &bytes);
        assert_streamed(&folder, &path, &owners);
    }
    // As it is converted: rows that are divided by their sums, and rows that are not.
    let folder = Folder::new();
    let path = folder.write("graph.npz", &archive(&arrays(&[]), false));
    let mut dataset = Dataset::open(&path).unwrap();
    for features in [-1.0, 1.0] {
        let values = (0..150).map(|at| (at % 7) as f32 * features).collect();
        dataset.features = Features::dense(3, values).unwrap();
        let folder = Folder::new();
        let path = folder.path().join("graph.npz");
        let format = crate::WriteOptions::new(crate::Format::GnnBenchmark);
        dataset.save(&path, format).unwrap();
        assert_streamed(&folder, &path, &owners);
    }
}

/// That a stream of an archive and the whole of it become the same files.
fn assert_streamed(folder: &Folder, path: &Path, owners: &[u32]) {
    for precision in [FeaturePrecision::Half, FeaturePrecision::Float] {
        let deal = Deal {
            owners,
            parts: 7,
            by: "hand",
            precision,
        };
        let options = OpenOptions::default();
        let streamed = StreamedArchive::open(path, &options, folder.path()).unwrap();
        let streamed = streamed.expect("it can be streamed");
        let dataset = Dataset::open(path).unwrap();
        assert_eq!(streamed.in_degrees(), dataset.graph.in_degrees());
        let name = |what: &str| folder.path().join(format!("{what}-{}", precision.name()));
        let (one, other) = (name("stream"), name("whole"));
        let of_stream = streamed.save_parts(&one, &deal).unwrap();
        assert_eq!(of_stream, dataset.save_parts(&other, &deal).unwrap());
        let files = |path: &Path| -> Vec<(String, Vec<u8>)> {
            let names = crate::folder::entries(path).unwrap();
            let read = |name: String| (name.clone(), std::fs::read(path.join(name)).unwrap());
            names.into_iter().map(read).collect()
        };
        let (one, other) = (files(&one), files(&other));
        let names: Vec<_> = one.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 9, "{names:?}");
        for (one, other) in one.iter().zip(&other) {
            let text = String::from_utf8_lossy;
            assert!(
                one == other,
                "{}: {} {}",
                one.0,
                text(&one.1),
                text(&other.1)
            );
        }
    }
}

#[test]
fn what_is_no_stream_is_read_whole_and_what_is_wrong_is_reported() {
    let folder = Folder::new();
    let open = |more: &[(&'static str, Array)], options: &OpenOptions| {
        let path = folder.write("graph.npz", &archive(&arrays(more), false));
        StreamedArchive::open(&path, options, folder.path())
    };
    let mut options = OpenOptions::default();
    assert!(open(&[], &options).unwrap().is_some());
    let weights = [("edge_weight", Array::f32(&[0.5; 400]))];
    assert!(open(&weights, &options).unwrap().is_none());
    let mut turned = Array::f32(&[0.5; 150]).shaped(&[50, 3]);
    turned.fortran_order = true;
    assert!(open(&[("x", turned)], &options).unwrap().is_none());
    options.undirected = true;
    assert!(open(&[], &options).unwrap().is_none());
    options.undirected = false;

    let mut ends = vec![0; 800];
    ends[777] = 50;
    let wrong = Array::i64(&ends).shaped(&[2, 400]);
    let error = open(&[("edge_index", wrong)], &options)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(
            "graph.npz: edge_index[777] is 50, in row 1, column 377 (from 0), but there are 50"
        ),
        "{error}"
    );
    // What is wrong with features is found when they are written, and nothing is left.
    let mut features = vec![0.5; 150];
    features[100] = f32::NAN;
    let wrong = Array::f32(&features).shaped(&[50, 3]);
    let streamed = open(&[("x", wrong)], &options).unwrap().expect("a stream");
    let deal = Deal {
        owners: &[0; 50],
        parts: 1,
        by: "hand",
        precision: FeaturePrecision::Half,
    };
    let error = streamed
        .save_parts(&folder.path().join("parts"), &deal)
        .unwrap_err();
    assert!(
        error.to_string().contains("graph.npz: x[100] is NaN"),
        "{error}"
    );
    assert_eq!(
        crate::folder::entries(folder.path()).unwrap(),
        ["graph.npz"]
    );
}

/// A dataset whose features stay on disk.
fn stored(path: &Path) -> Result<Dataset, DataError> {
    let options = OpenOptions {
        stored_features: true,
        ..OpenOptions::default()
    };
    Dataset::open_with(path, &options)
}

/// The rows of some vertices, as they are read from disk.
fn rows_on_disk(dataset: &Dataset, vertices: &[u32]) -> Result<Vec<Vec<f32>>, DataError> {
    let features = dataset.features.as_stored().unwrap();
    let mut rows = vec![vec![f32::NAN; features.feature_len()]; vertices.len()];
    let wanted = vertices.iter().zip(&mut rows);
    let wanted = wanted.map(|(&vertex, row)| (vertex, &mut row[..]));
    features.read_rows(wanted.collect(), |row, to| to.copy_from_slice(row.floats()))?;
    Ok(rows)
}

fn rows_in_memory(dataset: &Dataset, vertices: &[u32]) -> Vec<Vec<f32>> {
    let row = |&vertex: &u32| {
        let mut row = vec![f32::NAN; dataset.feature_len()];
        dataset.features.write_row(vertex as usize, &mut row);
        row
    };
    vertices.iter().map(row).collect()
}

#[test]
fn features_on_disk_are_those_in_memory() {
    let wanted = [6, 0, 3, 3, 5, 1, 4, 2, 0];
    let order = halfgnn_graph::reorder::by_degree(&graph());
    for precision in [FeaturePrecision::Half, FeaturePrecision::Float] {
        let (_folder, path) = written(&everything(), precision);
        let (mut whole, mut left) = (Dataset::open(&path).unwrap(), stored(&path).unwrap());
        assert_eq!((left.features.vertices(), left.feature_len()), (7, 3));
        let bytes = left.features.as_stored().unwrap().file_bytes();
        assert_eq!(bytes, 21 * precision.bytes());
        let in_memory = Parted::open(&path).unwrap().memory_of_features();
        // Halves are kept next to the floats that are made of them.
        let halves = u64::from(precision == FeaturePrecision::Half);
        assert_eq!(in_memory, 21 * (4 + 2 * halves));
        let of_graph = |dataset: &Dataset| (dataset.graph.clone(), dataset.edge_weights.clone());
        assert_eq!(of_graph(&left), of_graph(&whole));
        assert_eq!(left.ids, whole.ids);
        assert_eq!((&left.train, &left.targets), (&whole.train, &whole.targets));
        assert_eq!(left.preparations, whole.preparations);
        let expected = rows_in_memory(&whole, &wanted);
        assert_eq!(rows_on_disk(&left, &wanted).unwrap(), expected);

        let magnitudes = whole.column_magnitudes().unwrap();
        assert_eq!(left.column_magnitudes().unwrap(), magnitudes);
        whole.scale_features(&magnitudes, crate::Origin::Option);
        left.scale_features(&magnitudes, crate::Origin::Option);
        let (whole, left) = (whole.reordered(&order), left.reordered(&order));
        let (whole, left) = (whole.unwrap(), left.unwrap());
        assert_eq!(left.column_magnitudes().unwrap(), [1.0; 3]);
        let expected = rows_in_memory(&whole, &wanted);
        assert_eq!(rows_on_disk(&left, &wanted).unwrap(), expected);
        let selected = left.features.as_stored().unwrap().selected(&[5, 2]);
        let mut row = [0.0; 3];
        let read = |row: &mut StoredRow<'_>, to: &mut [f32]| to.copy_from_slice(row.floats());
        selected.read_rows(vec![(1, &mut row[..])], read).unwrap();
        assert_eq!(row.to_vec(), rows_in_memory(&whole, &[2])[0]);
    }
}

/// More rows than a thread has, and than are read in one go; some of them far apart.
#[test]
fn many_rows_are_read_in_runs_by_several_threads() {
    let (vertices, columns) = (5000_u32, 64);
    // Which halves have exactly.
    let values = (0..vertices as usize * columns).map(|value| (value * 31 % 2039) as f32);
    let features = Features::dense(columns, values.collect()).unwrap();
    let none = Graph::from_edges(vertices as usize, &[], &[]).unwrap();
    let classes = vec![0; vertices as usize];
    let dataset = Dataset::new("many", none, features, classes, Splits::default()).unwrap();
    let owners: Vec<u32> = (0..vertices).map(|vertex| vertex % 7 / 5).collect();
    let backwards: Vec<u32> = (0..vertices).rev().collect();
    let apart: Vec<u32> = (0..vertices).step_by(311).collect();
    let scattered: Vec<u32> = (0..6000).map(|at| at * at % vertices).collect();
    for precision in [FeaturePrecision::Float, FeaturePrecision::Half] {
        let folder = Folder::new();
        let path = folder.path().join("many");
        let deal = Deal {
            owners: &owners,
            parts: 2,
            by: "hand",
            precision,
        };
        dataset.save_parts(&path, &deal).unwrap();
        let left = stored(&path).unwrap();
        for wanted in [&backwards, &apart, &scattered, &vec![4999], &Vec::new()] {
            let expected = rows_in_memory(&dataset, wanted);
            assert_eq!(rows_on_disk(&left, wanted).unwrap(), expected);
        }
    }
}

#[test]
fn a_file_that_changes_while_features_are_read_is_an_error() {
    let (_folder, path) = written(&dataset(classes()), FeaturePrecision::Float);
    let left = stored(&path).unwrap();
    let part = path.join("part-00002.bin");
    let bytes = std::fs::read(&part).unwrap();
    let message = || {
        // Vertex 1 is in another part.
        assert!(rows_on_disk(&left, &[1]).is_ok());
        let error = rows_on_disk(&left, &[1, 0]).unwrap_err().to_string();
        let place = part.display().to_string();
        error.strip_prefix(&place).expect("its name").to_owned()
    };
    std::fs::write(&part, &bytes[..bytes.len() - 1]).unwrap();
    let (now, before) = (bytes.len() - 1, bytes.len());
    let expected = format!(
        ": length: it is {now} bytes, and was {before} when it was opened; leave the file alone while its rows are read, and open it again"
    );
    assert_eq!(message(), expected);
    let mut other = bytes.clone();
    other[16] ^= 1;
    std::fs::write(&part, &other).unwrap();
    assert!(message().starts_with(": identity: it is another file"));
    std::fs::remove_file(&part).unwrap();
    assert!(message().starts_with(": cannot be read:"));
}

#[test]
fn features_stay_on_disk_where_they_can_be_read_there() {
    let (folder, path) = written(&dataset(classes()), FeaturePrecision::Float);
    // What is wrong with them is found when the folder is opened.
    let part = path.join("part-00002.bin");
    let bytes = std::fs::read(&part).unwrap();
    let mut wrong = bytes.clone();
    let at = wrong.len() - 8;
    wrong[at] ^= 1;
    std::fs::write(&part, &wrong).unwrap();
    let message = |result: Result<Dataset, DataError>| result.unwrap_err().to_string();
    assert!(message(stored(&path)).contains("part-00002.bin: checksum"));
    std::fs::write(&part, &bytes).unwrap();

    let left = stored(&path).unwrap();
    let archive = folder.path().join("seven.npz");
    let options = crate::WriteOptions::new(crate::Format::Pyg);
    let refused = left.save(&archive, options).unwrap_err().to_string();
    assert!(
        refused.contains("its features stay in their files, and a file requires them"),
        "{refused}"
    );
    let again = left.save_parts(folder.path().join("again"), &deal(FeaturePrecision::Half));
    assert!(
        again
            .unwrap_err()
            .to_string()
            .contains("a folder of parts requires them")
    );
    dataset(classes()).save(&archive, options).unwrap();
    let refused = message(stored(&archive));
    assert!(
        refused.contains("`halfgnn dataset partition")
            && refused.contains("seven.npz --out FOLDER`"),
        "{refused}"
    );
    let options = OpenOptions {
        stored_features: true,
        normalize_features: Some(true),
        ..OpenOptions::default()
    };
    let refused = message(Dataset::open_with(&path, &options));
    assert!(
        refused.contains("dividing rows by their sums requires them in memory"),
        "{refused}"
    );
}

/// A dataset whose edges go to disk, in a folder.
fn edges_on_disk(path: &Path, folder: &Path) -> Result<Dataset, DataError> {
    let options = OpenOptions {
        stored_edges: Some(folder.into()),
        ..OpenOptions::default()
    };
    Dataset::open_with(path, &options)
}

#[test]
fn edges_on_disk_are_those_in_memory() {
    let temporary = tempfile::tempdir().unwrap();
    for (dataset, precision) in [
        (everything(), FeaturePrecision::Half),
        (dataset(classes()), FeaturePrecision::Float),
    ] {
        let (_folder, path) = written(&dataset, precision);
        let bytes = Parted::open(&path).unwrap().memory_of_edges();
        assert_eq!(
            bytes,
            4 * dataset.graph.edges() as u64 + 8 * dataset.graph.vertices() as u64
        );
        let whole = Dataset::open(&path).unwrap();
        let left = edges_on_disk(&path, temporary.path()).unwrap();
        assert!(left.graph.csr().is_on_disk() && !whole.graph.csr().is_on_disk());
        let of = |dataset: &Dataset| {
            let (features, weights) = (dataset.features.clone(), dataset.edge_weights.clone());
            (
                dataset.graph.clone(),
                features,
                weights,
                dataset.ids.clone(),
            )
        };
        assert_eq!(of(&left), of(&whole));
        let message = left.preparations.iter().map(ToString::to_string);
        let message = message.filter(|line| !line.contains(" bytes on the disk of "));
        let of_whole = whole.preparations.iter().map(ToString::to_string);
        assert!(message.eq(of_whole), "{:?}", left.preparations);
        assert_eq!(left.preparations.len(), whole.preparations.len() + 1);
        // Both at once, and a graph alone.
        let options = OpenOptions {
            stored_features: true,
            stored_edges: Some(temporary.path().into()),
            ..OpenOptions::default()
        };
        let both = Dataset::open_with(&path, &options).unwrap();
        assert_eq!(both.graph, whole.graph);
        let wanted = [4, 0, 6];
        let expected = rows_in_memory(&whole, &wanted);
        assert_eq!(rows_on_disk(&both, &wanted).unwrap(), expected);
        let alone = <Graph as crate::OpenGraph>::open_with(&path, &options).unwrap();
        assert!(alone.csr().is_on_disk() && alone == whole.graph);
        let options = OpenOptions {
            undirected: true,
            ignore_edge_weights: true,
            ignore_edge_features: true,
            ..options
        };
        let reversed = Dataset::open_with(&path, &options).unwrap().graph;
        assert!(reversed.csr().is_on_disk());
        assert_eq!(reversed, whole.graph.to_undirected().unwrap());
    }
    // A format of one file.
    let (folder, expected) = (Folder::new(), dataset(classes()));
    let archive = folder.path().join("seven.npz");
    let options = crate::WriteOptions::new(crate::Format::Pyg);
    expected.save(&archive, options).unwrap();
    let found = edges_on_disk(&archive, temporary.path()).unwrap();
    assert!(found.graph.csr().is_on_disk());
    assert_eq!(found.graph, expected.graph);
    // On Windows an open file has a name, and the system removes it with its last handle.
    let named = usize::from(std::env::consts::OS == "windows");
    let names = || std::fs::read_dir(temporary.path()).unwrap().count();
    assert_eq!(names(), named);
    drop(found);
    assert_eq!(names(), 0);
}

#[test]
fn edges_that_go_to_disk_are_looked_at() {
    let temporary = tempfile::tempdir().unwrap();
    let (_folder, path) = written(&dataset(classes()), FeaturePrecision::Float);
    let message = |folder: &Path| {
        let error = edges_on_disk(&path, folder).unwrap_err();
        error.to_string()
    };
    let gone = temporary.path().join("gone");
    let refused = message(&gone);
    assert!(
        refused.starts_with(&gone.display().to_string()),
        "{refused}"
    );
    assert!(refused.contains("edges cannot be kept in"), "{refused}");
    let part = path.join("part-00002.bin");
    let bytes = std::fs::read(&part).unwrap();
    let mut wrong = bytes.clone();
    // The first column, behind a header, 3 vertices and 4 offsets.
    wrong[24 + 16 + 32] ^= 1;
    std::fs::write(&part, &wrong).unwrap();
    assert!(message(temporary.path()).contains("part-00002.bin: checksum"));
    std::fs::write(&part, &bytes[..bytes.len() - 8]).unwrap();
    assert!(message(temporary.path()).contains("part-00002.bin: length"));
    std::fs::remove_file(&part).unwrap();
    assert!(message(temporary.path()).contains("part-00002.bin"));
}

/// The file may have changed since its checksum was taken; that is found when its columns are read again.
#[test]
fn columns_that_are_no_vertices_are_refused() {
    for (row, first, why) in [
        (&[0, 7][..], 3, "columns[4] is 7, but there are 7 vertices"),
        (
            &[2, 1],
            0,
            "columns[1] is 1, but the columns of a row ascend",
        ),
    ] {
        let message = super::columns::check_row(row, first, 7)
            .unwrap_err()
            .to_string();
        assert_eq!(message, why);
    }
    assert!(super::columns::check_row(&[], 0, 0).is_ok());
}
