use std::io::Cursor;

use super::*;
use crate::testing::{Array, archive};
use crate::{Dataset, Format, OpenGraph, OpenOptions, WriteOptions};

type Entries = Vec<(&'static str, Array)>;

/// Four vertices, edges 0→1, 2→0, 3→1, 0→3 in an order that is not the graph's.
fn entries() -> Entries {
    vec![
        (
            "edge_index",
            Array::i64(&[3, 0, 2, 0, 1, 1, 0, 3]).shaped(&[2, 4]),
        ),
        (
            "x",
            Array::f32(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).shaped(&[4, 2]),
        ),
        ("y", Array::i64(&[2, 0, -1, 1])),
        ("train_mask", Array::bool(&[true, false, false, false])),
        ("val_mask", Array::bool(&[false, true, false, false])),
        ("test_mask", Array::bool(&[false, false, false, true])),
        ("edge_weight", Array::f32(&[0.25, 0.5, 2.0, 3.0])),
        (
            "edge_attr",
            Array::f32(&[1., 2., 3., 4., 5., 6., 7., 8.]).shaped(&[4, 2]),
        ),
    ]
}

fn bytes(entries: &Entries) -> Cursor<Vec<u8>> {
    let files: Vec<_> = entries
        .iter()
        .map(|(key, array)| (*key, array.npy()))
        .collect();
    Cursor::new(archive(&files, true))
}

fn open(entries: &Entries, options: &OpenOptions) -> Result<Dataset, DataProblem> {
    Dataset::read_from(bytes(entries), options)
}

fn with(key: &'static str, array: Array) -> Entries {
    let mut entries = entries();
    entries.retain(|(name, _)| *name != key);
    entries.push((key, array));
    entries
}

fn without(keys: &[&str]) -> Entries {
    let mut entries = entries();
    entries.retain(|(name, _)| !keys.contains(name));
    entries
}

fn done(dataset: &Dataset, of: &str) -> String {
    let step = dataset.preparations.iter().find(|step| step.of == of);
    step.map_or_else(String::new, |step| step.what.clone())
}

#[test]
fn everything_of_a_data_object_is_read() {
    let dataset = open(&entries(), &OpenOptions::default()).unwrap();
    // Edges 2 -> 0, 0 -> 1, 3 -> 1 and 0 -> 3; weights and features go with their edges.
    assert_eq!(dataset.graph.rows(), [0, 1, 1, 3]);
    assert_eq!(dataset.graph.cols(), [2, 0, 3, 0]);
    assert_eq!(dataset.edge_weights, Some(vec![2.0, 0.5, 0.25, 3.0]));
    let features = dataset.edge_features.as_ref().unwrap();
    assert_eq!(features.values(), [5., 6., 3., 4., 1., 2., 7., 8.]);
    assert_eq!(dataset.targets, vec![2, 0, crate::UNLABELLED, 1].into());
    assert_eq!((dataset.outputs, dataset.feature_len()), (3, 2));
    // PyG leaves features as they are, and so does this.
    let mut row = [0.0; 2];
    dataset.features.write_row(3, &mut row);
    assert_eq!(row, [6.0, 7.0]);
    assert_eq!(
        (&dataset.train[..], &dataset.val[..], &dataset.test[..]),
        (&[0][..], &[1][..], &[3][..])
    );
    let graph = Graph::read_from(bytes(&entries()), &OpenOptions::default()).unwrap();
    assert_eq!(graph, dataset.graph);
}

#[test]
fn what_the_options_add_has_weights_and_features_as_well() {
    let options = OpenOptions {
        undirected: true,
        self_loops: true,
        ..OpenOptions::default()
    };
    let dataset = open(&entries(), &options).unwrap();
    let edges: Vec<_> = dataset
        .graph
        .rows()
        .iter()
        .zip(dataset.graph.cols())
        .collect();
    let at = |row, col| edges.iter().position(|&edge| edge == (&row, &col)).unwrap();
    let weights = dataset.edge_weights.as_ref().unwrap();
    let features = dataset.edge_features.as_ref().unwrap();
    assert_eq!(
        (weights[at(3, 1)], features.row(at(3, 1))),
        (0.25, &[1., 2.][..])
    );
    assert_eq!(
        (weights[at(2, 2)], features.row(at(2, 2))),
        (1.0, &[1., 1.][..])
    );
}

#[test]
fn one_column_of_features_is_a_weight() {
    let mut entries = without(&["edge_weight"]);
    entries.retain(|(key, _)| *key != "edge_attr");
    let column = Array::f32(&[0.25, 0.5, 2.0, 3.0]).shaped(&[4, 1]);
    entries.push(("edge_attr", column.clone()));
    let dataset = open(&entries, &OpenOptions::default()).unwrap();
    assert_eq!(dataset.edge_weights, Some(vec![2.0, 0.5, 0.25, 3.0]));
    assert_eq!(dataset.edge_features, None);
    // In a file with weights it is a feature.
    let dataset = open(&with("edge_attr", column), &OpenOptions::default()).unwrap();
    assert_eq!(dataset.edge_features.unwrap().columns(), 1);
}

#[test]
fn y_tells_the_task() {
    let of = |array: Array| open(&without_splits(array), &OpenOptions::default()).unwrap();
    let bits = of(Array::i64(&[1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1]).shaped(&[4, 3]));
    let Targets::Labels(labels) = &bits.targets else {
        panic!("{:?}", bits.targets)
    };
    assert_eq!((labels.columns(), labels.words()), (3, &[5, 0, 3, 4][..]));
    assert_eq!(
        done(&bits, "targets"),
        "any number of 3 labels of each vertex"
    );
    let splits = [&bits.train, &bits.val, &bits.test].map(|list| list.len());
    assert_eq!(splits, [2, 1, 1]);
    let one_hot = of(Array::f32(&[1., 0., 0., 1., 0., 1., 1., 0.]).shaped(&[4, 2]));
    assert!(matches!(one_hot.targets, Targets::Labels(_)));
    assert!(done(&one_hot, "targets").contains("exactly one"));
    let floats = of(Array::f32(&[0.5, -1.0, f32::NAN, 7.0]));
    let Targets::Values(values) = &floats.targets else {
        panic!("{:?}", floats.targets)
    };
    assert_eq!((values.columns(), values.row(3)), (1, &[7.0][..]));
    assert!(!floats.targets.is_labelled(2));
    let whole = of(Array::i64(&[1, 2, 3, 4, 5, 6, 7, 8]).shaped(&[4, 2]));
    assert!(matches!(&whole.targets, Targets::Values(values) if values.columns() == 2));
    let truths = of(Array::bool(&[true, false, true, true]).shaped(&[4, 1]));
    assert_eq!(truths.targets, vec![1, 0, 1, 1].into());
}

#[test]
fn an_entry_of_a_label_matrix_may_be_unknown() {
    for unknown in [f32::NAN, -1.0] {
        let y = Array::f32(&[0., 1., unknown, 1., 1., 0., unknown, unknown]).shaped(&[4, 2]);
        let dataset = open(&without_splits(y), &OpenOptions::default()).unwrap();
        let Targets::Labels(labels) = &dataset.targets else {
            panic!("{:?}", dataset.targets)
        };
        assert_eq!([labels.get(1, 0), labels.get(1, 1)], [None, Some(true)]);
        let mut all = [&dataset.train[..], &dataset.val, &dataset.test].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        // And written so that the same is read again.
        let mut to = Cursor::new(Vec::new());
        dataset
            .write_to(&mut to, WriteOptions::new(Format::Pyg))
            .unwrap();
        to.set_position(0);
        let again = Dataset::read_from(to, &OpenOptions::default()).unwrap();
        assert_eq!(again.targets, dataset.targets);
    }
    // In a split of the file, too: what nothing is known of is left out of it, and said.
    let y = Array::f32(&[0., 1., 1., 1., 1., 0., f32::NAN, f32::NAN]).shaped(&[4, 2]);
    let dataset = open(&with("y", y), &OpenOptions::default()).unwrap();
    assert_eq!((dataset.train.len(), dataset.test.len()), (1, 0));
    assert!(done(&dataset, "labels").starts_with("1 of which nothing is known"));
}

#[test]
fn whole_floats_are_classes() {
    let y = Array::f32(&[2.0, 0.0, f32::NAN, 1.0]);
    let dataset = open(&with("y", y.clone()), &OpenOptions::default());
    assert_eq!(
        dataset.unwrap().targets,
        vec![2, 0, crate::UNLABELLED, 1].into()
    );
    assert!(
        done(
            &open(&without_splits(y), &OpenOptions::default()).unwrap(),
            "targets"
        )
        .contains("whole")
    );
    let large = open(
        &with("y", Array::i64(&[0, (1 << 32) + 1, 0, 0])),
        &OpenOptions::default(),
    );
    let large = large.unwrap_err().to_string();
    assert!(
        large.contains("y[1] is 4294967297, but there are 65536 classes"),
        "{large}"
    );
}

#[test]
fn zeros_and_ones_are_a_mask_under_every_name() {
    let ones = || Array::i64(&[1, 0, 0, 0]);
    for (train, val) in [
        ("train_mask", "valid_mask"),
        ("train_idx", "valid_idx"),
        ("train", "valid"),
    ] {
        let mut entries = without(&["train_mask", "val_mask", "test_mask"]);
        entries.push((train, ones()));
        entries.push((val, Array::f32(&[0.0, 1.0, 0.0, 0.0])));
        let dataset = open(&entries, &OpenOptions::default()).unwrap();
        assert_eq!((dataset.train, dataset.val), (vec![0], vec![1]), "{train}");
    }
    // Other integers are a list, and a name that is nearly one is said.
    let mut entries = without(&["train_mask", "val_mask", "test_mask"]);
    entries.push(("train_mask", Array::i64(&[3, 0])));
    entries.push(("test_maks", ones()));
    let dataset = open(&entries, &OpenOptions::default()).unwrap();
    assert_eq!(dataset.train, [3, 0]);
    assert_eq!(
        done(&dataset, "other"),
        "test_maks (is test_mask meant?) are left alone"
    );
}

fn without_splits(y: Array) -> Entries {
    let mut entries = without(&["y", "train_mask", "val_mask", "test_mask"]);
    entries.push(("y", y));
    entries
}

#[test]
fn masks_of_several_splits_are_chosen_by_number() {
    // WikiCS has several to train on and one to test on.
    let masks = Array::bool(&[true, false, false, true, false, false, false, false]);
    let entries = with("train_mask", masks.shaped(&[4, 2]));
    let at = |number| {
        let options = OpenOptions {
            split_number: number,
            ..OpenOptions::default()
        };
        open(&entries, &options)
    };
    let first = at(None);
    // Vertex 1 is of the second way to train, and of that to validate.
    assert_eq!(first.as_ref().unwrap().train, [0]);
    assert_eq!(first.as_ref().unwrap().file_splits, 2);
    assert!(done(&first.unwrap(), "splits").starts_with("number 0 of 2, from 0; --split-number"));
    assert!(matches!(
        at(Some(1)),
        Err(DataProblem::Overlap { vertex: 1, .. })
    ));
    let refused = at(Some(2)).unwrap_err().to_string();
    assert!(
        refused.starts_with("has no split number 2: there are 2, from 0"),
        "{refused}"
    );
    let options = OpenOptions {
        split_number: Some(0),
        ..OpenOptions::default()
    };
    let none = open(&without_splits(Array::i64(&[0, 1, 0, 1])), &options);
    assert!(none.unwrap_err().to_string().contains("a rule splits"));
}

#[test]
fn a_graph_alone_is_a_dataset_to_predict_on() {
    let mut entries = entries();
    entries.truncate(1);
    entries.push((
        "num_nodes",
        Array {
            shape: vec![],
            ..Array::i64(&[6])
        },
    ));
    entries.push(("pos", Array::f32(&[0.0; 6])));
    let dataset = open(&entries, &OpenOptions::default()).unwrap();
    assert_eq!((dataset.graph.vertices(), dataset.outputs), (6, 0));
    assert_eq!(dataset.feature_len(), 1);
    assert_eq!(
        done(&dataset, "features"),
        "a column of ones, for there are none"
    );
    assert_eq!(done(&dataset, "other"), "pos are left alone");
    entries.truncate(1);
    assert_eq!(
        open(&entries, &OpenOptions::default())
            .unwrap()
            .graph
            .vertices(),
        4
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let message = |entries: Entries| {
        open(&entries, &OpenOptions::default())
            .unwrap_err()
            .to_string()
    };
    let cases = [
        (
            "edge_index",
            Array::i64(&[0; 6]).shaped(&[3, 2]),
            "save edge_index.T",
        ),
        (
            "edge_index",
            Array::i64(&[0; 4]),
            "(2, E), all sources and then",
        ),
        (
            "edge_index",
            Array::i64(&[0, 4]).shaped(&[2, 1]),
            "edge_index[1] is 4, but there are 4",
        ),
        (
            "edge_weight",
            Array::f32(&[1.0; 3]),
            "edge_weight: the shape is [3]",
        ),
        (
            "edge_attr",
            Array::f32(&[1.0; 6]).shaped(&[3, 2]),
            "(4) or (4, D)",
        ),
        (
            "x",
            Array::f32(&[1.0; 3]).shaped(&[3, 1]),
            "but there are 3 vertices",
        ),
        (
            "x",
            Array::f32(&[f32::NAN; 8]).shaped(&[4, 2]),
            "x[0] is NaN, in row 0, column 0",
        ),
        ("y", Array::i64(&[0; 3]), "(4) or (4, K)"),
        (
            "y",
            Array::i64(&[0, 1, 70_000, 0]),
            "y[2] is 70000, but there are 65536",
        ),
        (
            "y",
            Array::f32(&[0.0, 1.0, f32::INFINITY, 0.0]),
            "y[2] is inf",
        ),
        (
            "train_mask",
            Array::bool(&[true; 3]),
            "train_mask: the shape is [3]",
        ),
        (
            "train_mask",
            Array::i64(&[2; 4]),
            "train_mask[0] is 2, which is neither",
        ),
        (
            "num_nodes",
            Array::i64(&[4_000_000_000]),
            "promises 4000000000 vertices",
        ),
        ("num_nodes", Array::i64(&[1, 2]), "(), one number"),
    ];
    for (key, array, words) in cases {
        let message = message(with(key, array));
        assert!(message.contains(words), "{key}: {message}");
    }
    let missing = Dataset::read_from(bytes(&without(&["edge_index"])), &{
        OpenOptions {
            format: Some(Format::Pyg),
            ..OpenOptions::default()
        }
    });
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .starts_with("has no array edge_index; it has edge")
    );
}

#[test]
fn what_is_written_is_read_again() {
    let values = Array::f32(&[0.5, 1.0, -2.0, f32::NAN, 0.0, 3.0, 9.0, 9.5]).shaped(&[4, 2]);
    let labels = Array::f32(&[0.0, 1.0, 1.0, 0.0, f32::NAN, 1.0, 1.0, 1.0]).shaped(&[4, 2]);
    for entries in [entries(), without_splits(values), without_splits(labels)] {
        let dataset = open(&entries, &OpenOptions::default()).unwrap();
        let mut file = Cursor::new(Vec::new());
        dataset
            .write_to(&mut file, WriteOptions::new(Format::Pyg))
            .unwrap();
        assert_eq!(dataset.left_out_by(Format::Pyg), Vec::<&str>::new());
        let again = Dataset::read_from(&mut file, &OpenOptions::default()).unwrap();
        assert_eq!(again.graph, dataset.graph);
        assert_eq!(again.edge_weights, dataset.edge_weights);
        assert_eq!(again.edge_features, dataset.edge_features);
        assert_eq!(again.features, dataset.features);
        assert_eq!(again.targets, dataset.targets);
        assert_eq!(
            [again.train, again.val, again.test],
            [dataset.train, dataset.val, dataset.test]
        );
    }
}

#[test]
fn features_of_one_bit_are_written_and_read_again() {
    let bits = |lowest: f32| {
        let random = |at: usize| if at * at % 7 < 3 { 1.0 } else { lowest };
        let values: Vec<f32> = (0..4 * 11).map(random).collect();
        let mut entries = entries();
        entries.retain(|(key, _)| *key != "x");
        entries.push(("x", Array::f32(&values).shaped(&[4, 11])));
        open(&entries, &OpenOptions::default()).unwrap()
    };
    let options = WriteOptions {
        feature_bits: true,
        ..WriteOptions::new(Format::Pyg)
    };
    for lowest in [0.0, -1.0] {
        let dataset = bits(lowest);
        let mut file = Cursor::new(Vec::new());
        dataset.write_to(&mut file, options).unwrap();
        let again = Dataset::read_from(&mut file, &OpenOptions::default()).unwrap();
        assert!(matches!(again.features, Features::Bits(_)));
        let read = |dataset: &Dataset| dataset.features.to_dense().unwrap();
        assert_eq!(read(&again), read(&dataset), "{lowest}");
        // And once more, of what is packed.
        let mut file = Cursor::new(Vec::new());
        again.write_to(&mut file, options).unwrap();
        let packed = Dataset::read_from(&mut file, &OpenOptions::default()).unwrap();
        assert_eq!(packed.features, again.features);
        assert_eq!(again.graph, dataset.graph);
        let other = WriteOptions {
            feature_bits: true,
            ..WriteOptions::new(Format::GnnBenchmark)
        };
        let message = dataset
            .write_to(Cursor::new(Vec::new()), other)
            .unwrap_err();
        assert!(
            message.to_string().contains("cannot hold features as bits"),
            "{message}"
        );
    }
    for (at, value, words) in [
        (26, 0.5, "vertex 2, column 4 is 0.5; as bits"),
        (26, -1.0, "vertex 2, column 4 is -1, and vertex 0, column"),
    ] {
        let mut values = vec![1.0_f32; 44];
        (values[3], values[at]) = (0.0, value);
        let mut entries = entries();
        entries.retain(|(key, _)| *key != "x");
        entries.push(("x", Array::f32(&values).shaped(&[4, 11])));
        let dataset = open(&entries, &OpenOptions::default()).unwrap();
        let message = dataset
            .write_to(Cursor::new(Vec::new()), options)
            .unwrap_err();
        assert!(message.to_string().contains(words), "{message}");
    }
}
