//! A small dataset as numpy would write it, whole and broken in every way that a file can be.

use crate::OpenGraph;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::testing::{Array, Folder, archive};
use crate::{DataError, Dataset, Format, OpenOptions};

type Entries = Vec<(&'static str, Array)>;

/// Four vertices in a ring with a chord, edges unsorted in the first row; three features, two classes.
fn ring() -> Entries {
    vec![
        ("adj_data", Array::f32(&[1.0; 10])),
        ("adj_indices", Array::i32(&[3, 1, 2, 0, 2, 1, 0, 3, 2, 0])),
        ("adj_indptr", Array::i32(&[0, 3, 5, 8, 10])),
        ("adj_shape", Array::i64(&[4, 4])),
        ("attr_data", Array::f32(&[1.0, 3.0, 0.5, 2.0])),
        ("attr_indices", Array::i32(&[0, 2, 1, 2])),
        ("attr_indptr", Array::i32(&[0, 2, 3, 3, 4])),
        ("attr_shape", Array::i64(&[4, 3])),
        ("labels", Array::i64(&[0, 1, 0, 1])),
        ("train_idx", Array::i64(&[0])),
        ("val_idx", Array::i64(&[3])),
        ("test_idx", Array::i64(&[1, 2])),
    ]
}

fn with(key: &'static str, array: Array) -> Entries {
    let mut entries = without(key);
    entries.push((key, array));
    entries
}

fn without(key: &str) -> Entries {
    ring()
        .into_iter()
        .filter(|&(name, _)| name != key)
        .collect()
}

fn bytes(entries: &Entries) -> Vec<u8> {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, array)| (*key, array.npy()))
        .collect();
    archive(&entries, true)
}

fn open(entries: &Entries) -> Result<Dataset, DataError> {
    open_bytes(&bytes(entries))
}

fn open_bytes(bytes: &[u8]) -> Result<Dataset, DataError> {
    let folder = Folder::new();
    Dataset::open(folder.write("ring.npz", bytes))
}

/// The message about a file, less the folder.
#[track_caller]
fn refusal(result: Result<Dataset, DataError>) -> String {
    let message = result.expect_err("a broken file").to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    let (_, after) = message.split_once("ring.npz: ").expect("the file's name");
    after.to_string()
}

#[test]
fn reads_a_whole_file() {
    for compressed in [true, false] {
        let entries: Vec<_> = ring()
            .iter()
            .map(|(key, array)| (*key, array.npy()))
            .collect();
        let dataset = open_bytes(&archive(&entries, compressed)).unwrap();
        assert_eq!(
            (
                dataset.name.as_str(),
                dataset.outputs,
                dataset.feature_len()
            ),
            ("ring", 2, 3)
        );
        assert_eq!(dataset.graph.offsets(), [0, 3, 5, 8, 10]);
        assert_eq!(dataset.graph.cols(), [1, 2, 3, 0, 2, 0, 1, 3, 0, 2]);
        assert_eq!(dataset.edge_weights, None);
        assert_eq!(dataset.class_labels().unwrap(), [0, 1, 0, 1]);
        assert_eq!(
            (dataset.train, dataset.val, dataset.test),
            (vec![0], vec![3], vec![1, 2])
        );
        let normalized = [0.25, 0.0, 0.75, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(dataset.features.to_dense().unwrap(), normalized);
    }
}

/// What was done to a file's dataset, less the folder.
fn done(entries: &Entries, options: &OpenOptions) -> Vec<String> {
    let folder = Folder::new();
    let path = folder.write("ring.npz", &bytes(entries));
    let dataset = Dataset::open_with(path, options).unwrap();
    let mut done: Vec<String> = dataset
        .preparations
        .iter()
        .map(ToString::to_string)
        .collect();
    let source = done.remove(0);
    assert!(
        source.starts_with("source: ")
            && source.ends_with("ring.npz, read as gnn-benchmark (file)")
    );
    done
}

#[test]
fn what_is_done_to_a_dataset_is_reported() {
    let normalized = "features: 2 rows divided by their sums, as is customary of counts of words; \
                      --normalize-features=false leaves them (default)";
    assert_eq!(
        done(&ring(), &OpenOptions::default()),
        [normalized, "splits: as they stand there (file)"]
    );
    let mut bare = without("train_idx");
    bare.retain(|(key, _)| !key.ends_with("_idx"));
    // Vertex 3 reads 1 and 1 does not read 3; 3 no longer reads 0.
    bare.retain(|(key, _)| *key != "adj_indices");
    bare.push(("adj_indices", Array::i32(&[3, 1, 2, 0, 2, 1, 0, 3, 2, 1])));
    bare.retain(|(key, _)| *key != "adj_data");
    bare.push(("adj_data", Array::f32(&[0.5; 10])));
    let left = OpenOptions {
        normalize_features: Some(false),
        ..OpenOptions::default()
    };
    assert_eq!(
        done(&bare, &left),
        [
            "splits: per-class:20,30 with seed 0, for the file has none (default)",
            "edge weights: 10 of 0.5 to 0.5 multiply what neighbours send; --ignore-edge-weights leaves them out (file)"
        ]
    );
    let all = OpenOptions {
        normalize_features: Some(true),
        undirected: true,
        self_loops: true,
        split: Some(crate::SplitRule::Fractions {
            train: 0.5,
            val: 0.25,
        }),
        split_seed: 7,
        ..OpenOptions::default()
    };
    assert_eq!(
        done(&bare, &all),
        [
            "features: 2 rows divided by their sums (option)",
            "splits: fractions:0.5,0.25 with seed 7 (option)",
            "edge weights: 10 of 0.5 to 0.5 multiply what neighbours send; --ignore-edge-weights leaves them out (file)",
            "edges: the reverse of each added where there was none: 10 became 12 (option)",
            "self-loops: 4 added (option)"
        ]
    );
}

#[test]
fn features_are_left_alone_on_request() {
    let folder = Folder::new();
    let path = folder.write("ring.npz", &bytes(&ring()));
    let options = OpenOptions {
        normalize_features: Some(false),
        ..OpenOptions::default()
    };
    assert_eq!(
        Graph::open(&path).unwrap(),
        Dataset::open(&path).unwrap().graph
    );
    let dataset = Dataset::open_with(&path, &options).unwrap();
    assert_eq!(dataset.features.to_dense().unwrap()[..3], [1.0, 0.0, 3.0]);
    assert_eq!(Format::detect(&path).unwrap(), Format::GnnBenchmark);
}

#[test]
fn weights_follow_their_edges() {
    let weights: Vec<f32> = (0..10).map(|k| k as f32 * 0.5).collect();
    let dataset = open(&with("adj_data", Array::f32(&weights))).unwrap();
    assert_eq!(
        dataset.edge_weights.unwrap(),
        [0.5, 1.0, 0.0, 1.5, 2.0, 3.0, 2.5, 3.5, 4.5, 4.0]
    );
}

#[test]
fn arrays_of_any_numeric_type() {
    let wide = |descr, array: &[i64], convert: fn(i64) -> Vec<u8>| Array {
        descr,
        fortran_order: false,
        shape: vec![array.len() as u64],
        data: array.iter().copied().flat_map(convert).collect(),
    };
    let indptr = [0, 3, 5, 8, 10];
    let expected = open(&ring()).unwrap();
    type Convert = fn(i64) -> Vec<u8>;
    let types: [(&str, Convert); 8] = [
        ("|i1", |v| (v as i8).to_le_bytes().to_vec()),
        ("|u1", |v| (v as u8).to_le_bytes().to_vec()),
        (">i2", |v| (v as i16).to_be_bytes().to_vec()),
        ("<u2", |v| (v as u16).to_le_bytes().to_vec()),
        (">u4", |v| (v as u32).to_be_bytes().to_vec()),
        ("<i8", |v| v.to_le_bytes().to_vec()),
        (">u8", |v| (v as u64).to_be_bytes().to_vec()),
        ("<i4", |v| (v as i32).to_le_bytes().to_vec()),
    ];
    for (descr, convert) in types {
        let dataset = open(&with("adj_indptr", wide(descr, &indptr, convert))).unwrap();
        assert_eq!(dataset.graph, expected.graph, "{descr}");
    }
    // Features of halves and doubles: 1, 3, 0.5, 2.
    let halves = [0x3c00_u16, 0x4200, 0x3800, 0x4000]
        .iter()
        .flat_map(|bits| bits.to_le_bytes())
        .collect();
    let doubles = [1.0_f64, 3.0, 0.5, 2.0]
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect();
    for (descr, data) in [("<f2", halves), (">f8", doubles)] {
        let array = Array {
            descr,
            fortran_order: false,
            shape: vec![4],
            data,
        };
        assert_eq!(
            open(&with("attr_data", array)).unwrap().features,
            expected.features
        );
    }
}

#[test]
fn features_as_a_matrix_in_either_order() {
    let mut entries: Entries = ring()
        .into_iter()
        .filter(|(key, _)| !key.starts_with("attr_"))
        .collect();
    let expected = [0.25, 0.0, 0.75, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let c =
        Array::f32(&[1.0, 0.0, 3.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]).shaped(&[4, 3]);
    let fortran = Array {
        fortran_order: true,
        ..Array::f32(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 3.0, 0.0, 0.0, 2.0]).shaped(&[4, 3])
    };
    for array in [c, fortran] {
        entries.push(("attr_matrix", array));
        assert_eq!(
            open(&entries).unwrap().features.to_dense().unwrap(),
            expected
        );
        entries.pop();
    }
    entries.push(("attr_matrix", Array::f32(&[1.0; 12]).shaped(&[3, 4])));
    assert!(
        refusal(open(&entries))
            .starts_with("attr_matrix: the shape is [3, 4], where (4, at least 1)")
    );
    entries.pop();
    assert!(refusal(open(&entries)).starts_with("has no array attr_shape; it has adj_data, "));
}

#[test]
fn splits_as_masks_or_from_a_seed() {
    let plain: Entries = ring()
        .into_iter()
        .filter(|(key, _)| !key.ends_with("_idx"))
        .collect();
    let mut masks = plain.clone();
    masks.push(("train_mask", Array::bool(&[true, false, false, false])));
    masks.push(("val_mask", Array::bool(&[false, false, false, true])));
    masks.push(("test_mask", Array::bool(&[false, true, true, false])));
    let dataset = open(&masks).unwrap();
    assert_eq!(
        (dataset.train, dataset.val, dataset.test),
        (vec![0], vec![3], vec![1, 2])
    );
    masks.pop();
    assert!(refusal(open(&masks)).starts_with("has no array test_mask; it has "));
    masks.push(("test_mask", Array::bool(&[true])));
    assert!(
        refusal(open(&masks))
            .starts_with("test_mask: the shape is [1], where (4), one for each vertex")
    );
    masks.pop();
    masks.push(("test_mask", Array::i32(&[0, 1, 2, 0])));
    assert_eq!(
        refusal(open(&masks)),
        "test_mask[2] is 2, which is neither 0 nor 1"
    );
    // Two vertices of each class: all are trained on.
    assert_eq!(open(&plain).unwrap().train, [0, 1, 2, 3]);
}

#[test]
fn a_file_that_is_not_there_or_is_something_else() {
    let folder = Folder::new();
    let path = folder.path().join("none.npz");
    let missing = Dataset::open(&path).unwrap_err().to_string();
    let why = std::fs::read(&path).unwrap_err();
    assert!(
        missing.contains(&format!("none.npz: cannot be read: {why}")),
        "{missing}"
    );
    assert!(
        Dataset::open(folder.path())
            .unwrap_err()
            .to_string()
            .contains("is in no format that is known")
    );
    assert_eq!(refusal(open_bytes(b"")), "the file is empty");
    assert!(
        refusal(open_bytes(b"\x89PNG"))
            .starts_with("is in no format that is known; it should be one of: a gnn-")
    );
    assert!(
        refusal(open_bytes(b"1 2\n2 3\n")).starts_with(
            "is an edge list (.txt, .txt.gz): a graph without features and labels; a dataset to train on is one of: a gnn-"
        )
    );
    assert!(refusal(open_bytes(b"PK\x03\x04")).starts_with("is not a whole zip archive ("));
    assert!(
        refusal(open_bytes(&archive(&[], true)))
            .contains("has no array adj_shape; it has no array at all")
    );
}

#[test]
fn an_array_that_is_missing() {
    for key in [
        "adj_indptr",
        "adj_indices",
        "adj_shape",
        "attr_shape",
        "attr_indptr",
        "labels",
        "val_idx",
    ] {
        assert!(
            refusal(open(&without(key))).starts_with(&format!("has no array {key}; it has ")),
            "{key}"
        );
    }
    assert!(open(&without("adj_data")).is_ok(), "weights are not needed");
}

#[test]
fn an_array_of_the_wrong_type() {
    let floats = refusal(open(&with("adj_indices", Array::f32(&[0.0; 10]))));
    assert_eq!(
        floats,
        "adj_indices: the type is <f4, where whole numbers are wanted"
    );
    // Truths and whole floats are classes as well.
    let truths = open(&with("labels", Array::bool(&[true; 4]))).unwrap();
    assert_eq!(truths.class_labels().unwrap(), [1; 4]);
    let floats = open(&with("labels", Array::f32(&[1.0, 0.0, 2.0, 1.0]))).unwrap();
    assert_eq!(floats.class_labels().unwrap(), [1, 0, 2, 1]);
    let fraction = refusal(open(&with("labels", Array::f32(&[1.0, 0.5, 2.0, 1.0]))));
    assert_eq!(
        fraction,
        "labels[1] is 0.5, but there are 65536 classes at most, numbered from 0 (-1 for none)"
    );
    for descr in ["|O", "<c8", "<U3", "[('a', '<i4')]"] {
        let array = Array {
            descr,
            ..Array::f32(&[0.0; 4])
        };
        let message = refusal(open(&with("attr_data", array)));
        assert_eq!(
            message,
            format!("attr_data: the type is {descr}, where numbers are wanted")
        );
    }
}

#[test]
fn an_index_out_of_range() {
    let indices = |last| Array::i32(&[3, 1, 2, 0, 2, 1, 0, 3, 2, last]);
    let expected =
        |value| format!("adj_indices[9] is {value}, but there are 4 vertices, numbered from 0");
    assert_eq!(
        refusal(open(&with("adj_indices", indices(4)))),
        expected("4")
    );
    assert_eq!(
        refusal(open(&with("adj_indices", indices(-1)))),
        expected("-1")
    );
    assert_eq!(
        refusal(open(&with("attr_indices", Array::i32(&[0, 2, 3, 2])))),
        "attr_indices[2] is 3, but there are 3 features, numbered from 0"
    );
    assert_eq!(
        refusal(open(&with("test_idx", Array::i64(&[1, 1 << 40])))),
        "test_idx[1] is 1099511627776, but there are 4 vertices, numbered from 0"
    );
    assert_eq!(
        refusal(open(&with("labels", Array::i64(&[0, 1, -7, 1])))),
        "labels[2] is -7, but there are 65536 classes at most, numbered from 0 (-1 for none)"
    );
    assert!(
        refusal(open(&with("labels", Array::i64(&[0, 1, 65_536, 1]))))
            .starts_with("labels[2] is 65536, but")
    );
}

#[test]
fn offsets_that_are_none() {
    let indptr = |offsets: &[i32]| refusal(open(&with("adj_indptr", Array::i32(offsets))));
    assert_eq!(
        indptr(&[0, 3, 5, 8]),
        "adj_indptr: the shape is [4], where (5), one more than there are vertices is wanted"
    );
    assert_eq!(
        indptr(&[0, -3, 5, 8, 10]),
        "adj_indptr[1] is -3, which is negative"
    );
    assert!(
        indptr(&[0, 5, 3, 8, 10])
            .starts_with("adj_indptr: offsets[2] is 3, but row offsets never decrease")
    );
    assert!(
        indptr(&[0, 3, 5, 8, 11])
            .starts_with("adj_indptr: offsets[4] is 11, but row offsets end at")
    );
    let attr = refusal(open(&with("attr_indptr", Array::i32(&[1, 2, 3, 3, 4]))));
    assert_eq!(
        attr,
        "attr_indptr: offsets[0] is 1, but row offsets start at 0"
    );
}

#[test]
fn shapes_that_disagree() {
    let shape = |key, shape: &[i64]| refusal(open(&with(key, Array::i64(shape))));
    assert!(shape("adj_shape", &[4, 5]).contains("an adjacency is square"));
    assert!(shape("adj_shape", &[-4, -4]).starts_with("adj_shape[0] is -4, which is negative"));
    assert!(shape("adj_shape", &[i64::MAX, i64::MAX]).contains("of at most 4294967295 vertices"));
    assert!(
        shape("adj_shape", &[1 << 31, 1 << 31])
            .starts_with("adj_indptr: the shape is [5], where (2147483649)")
    );
    assert!(
        shape("adj_shape", &[4])
            .starts_with("adj_shape: the shape is [1], where (2), rows and columns")
    );
    assert!(shape("attr_shape", &[4, 0]).contains("(4, 1 to 4294967295) is wanted"));
    assert!(shape("attr_shape", &[3, 3]).contains("a row for each vertex"));
    assert!(
        refusal(open(&with("labels", Array::i64(&[0, 1]))))
            .starts_with("labels: the shape is [2], where (4)")
    );
    assert!(
        refusal(open(&with("adj_data", Array::f32(&[1.0]))))
            .starts_with("adj_data: the shape is [1]")
    );
    assert!(
        refusal(open(&with("attr_data", Array::f32(&[1.0]))))
            .starts_with("attr_data: the shape is [1]")
    );
    let square = Array::i64(&[0, 1, 0, 1]).shaped(&[2, 2]);
    assert!(
        refusal(open(&with("labels", square)))
            .starts_with("labels: the shape is [2, 2], where one dimension")
    );
    assert!(open(&with("labels", Array::i64(&[0, 1, 0, 1]).shaped(&[4, 1]))).is_ok());
}

#[test]
fn features_that_are_no_numbers() {
    for (value, name) in [
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
    ] {
        let message = refusal(open(&with(
            "attr_data",
            Array::f32(&[1.0, 1.0, value, 1.0]),
        )));
        let words = format!(
            "attr_data[2] is {name}, in row 1, column 1 (from 0), which is no finite float;"
        );
        assert!(message.starts_with(&words), "{message}");
    }
    let data = [1.0, 1e300, 1.0, 1.0_f64]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let wide = Array {
        descr: "<f8",
        fortran_order: false,
        shape: vec![4],
        data,
    };
    assert!(refusal(open(&with("attr_data", wide))).contains("which is no finite float; "));
}

#[test]
fn a_number_that_is_none_is_reported_by_row_and_column() {
    let matrix = |fortran_order| {
        let mut values = [1.0; 12];
        values[7] = f32::NAN;
        let mut entries = without("attr_data");
        let array = Array {
            fortran_order,
            ..Array::f32(&values).shaped(&[4, 3])
        };
        entries.push(("attr_matrix", array));
        refusal(open(&entries))
    };
    for (fortran_order, place) in [(false, "row 2, column 1"), (true, "row 3, column 1")] {
        assert_eq!(
            matrix(fortran_order),
            format!(
                "attr_matrix[7] is NaN, in {place} (from 0), which is no finite float; put a number in its place, as numpy.nan_to_num does"
            )
        );
    }
    let entry = |at: usize| {
        let mut values = [1.0; 4];
        values[at] = f32::INFINITY;
        refusal(open(&with("attr_data", Array::f32(&values))))
    };
    assert!(entry(1).starts_with("attr_data[1] is inf, in row 0, column 2 (from 0), "));
    assert!(entry(3).starts_with("attr_data[3] is inf, in row 3, column 2 (from 0), "));
}

#[test]
fn splits_that_overlap() {
    let message = refusal(open(&with("test_idx", Array::i64(&[1, 3]))));
    assert_eq!(
        message,
        "vertex 3 is in val and again in test; every vertex may be in one split, once"
    );
}

#[test]
fn a_header_that_promises_more_than_there_is() {
    for shape in [
        &[2_500_000_000_u64][..],
        &[u64::MAX],
        &[u64::MAX, u64::MAX],
        &[5],
        &[3],
        &[],
    ] {
        let message = refusal(open(&with(
            "labels",
            Array::i64(&[0, 1, 0, 1]).shaped(shape),
        )));
        assert!(
            message.starts_with("labels: the header promises "),
            "{shape:?}: {message}"
        );
        assert!(
            message.contains(", but 32 are there;"),
            "{shape:?}: {message}"
        );
    }
    let empty = Array {
        fortran_order: true,
        ..Array::i64(&[])
    }
    .shaped(&[u64::MAX, 0]);
    assert!(refusal(open(&with("labels", empty))).starts_with("labels: the shape is "));
}

#[test]
fn a_directory_that_promises_more_than_there_is() {
    let mut file = bytes(&ring());
    // The directory's entry of adj_shape, the first array to be read: 24 bytes in, what it takes unpacked.
    let name = file
        .windows(13)
        .rposition(|window| window == b"adj_shape.npy")
        .unwrap();
    let sizes = name - 46 + 20;
    file[sizes + 4..sizes + 8].copy_from_slice(&0xfff0_0000_u32.to_le_bytes());
    let message = refusal(open_bytes(&file));
    assert!(
        message.contains("adj_shape claims 4293918720 bytes packed as "),
        "{message}"
    );
}

#[test]
fn bytes_that_were_changed_are_noticed() {
    let entries: Vec<_> = ring()
        .iter()
        .map(|(key, array)| (*key, array.npy()))
        .collect();
    let mut file = archive(&entries, false);
    let header = file
        .windows(9)
        .position(|window| window == b"labels.np")
        .unwrap();
    file[header + "labels.npy".len() + 128] ^= 1;
    let message = refusal(open_bytes(&file));
    assert!(
        message.starts_with("is not a whole zip archive (labels: "),
        "{message}"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = bytes(&ring());
    for len in (0..whole.len()).step_by(7) {
        let message = refusal(open_bytes(&whole[..len]));
        let known = ["is empty", "is not a whole", "no format that is known"];
        assert!(
            known.iter().any(|reason| message.contains(reason)),
            "{len} bytes: {message}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn bytes_changed_at_random_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let entries: Vec<_> = ring().iter().map(|(key, array)| (*key, array.npy())).collect();
        let mut file = archive(&entries, false);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(dataset) = open_bytes(&file) {
            prop_assert_eq!(dataset.targets.vertices(), dataset.graph.vertices());
        }
    }
}

/// Where the Planetoid graphs lie: `$HALFGNN_DATA`, or a folder next to the workspace.
fn planetoid(name: &str) -> Option<PathBuf> {
    let sibling = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets");
    let folder = std::env::var_os("HALFGNN_DATA").map_or(sibling, PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    println!(
        "skipped: {} is not there; set HALFGNN_DATA to the folder that holds it",
        path.display()
    );
    None
}

#[test]
fn planetoid_graphs_have_their_published_sizes() {
    let sizes = [
        ("cora.npz", 2708, 10_556, 1433, 7, 140, 49_216),
        ("citeseer.npz", 3327, 9104, 3703, 6, 120, 105_165),
    ];
    for (file, vertices, edges, features, classes, train, words) in sizes {
        let Some(path) = planetoid(file) else {
            continue;
        };
        let dataset = Dataset::open(path).unwrap();
        assert_eq!(
            (dataset.graph.vertices(), dataset.graph.edges()),
            (vertices, edges)
        );
        assert_eq!(
            (dataset.feature_len(), dataset.outputs),
            (features, classes)
        );
        assert_eq!(
            (dataset.train.len(), dataset.val.len(), dataset.test.len()),
            (train, 500, 1000)
        );
        assert!(dataset.graph.is_symmetric());
        assert_eq!(
            dataset.graph,
            dataset
                .graph
                .deduplicated()
                .unwrap()
                .without_self_loops()
                .unwrap()
        );
        let Features::Sparse(_) = &dataset.features else {
            panic!("bags of words stay sparse")
        };
        let dense = dataset.features.to_dense().unwrap();
        assert_eq!(dense.iter().filter(|&&value| value != 0.0).count(), words);
        let sums = dense.chunks(features).map(|row| row.iter().sum::<f32>());
        assert!(
            sums.into_iter()
                .all(|sum| sum == 0.0 || (sum - 1.0).abs() < 1e-5)
        );
    }
}
