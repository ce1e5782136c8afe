use std::io::Cursor;

use crate::testing::{Array, archive};
use crate::{DataProblem, Dataset, Features, OpenOptions};

type Entries = Vec<(&'static str, Array)>;

/// Two authors, three papers with features and labels, and a venue that edges alone name.
fn entries() -> Entries {
    let ends = |ends: &[i64]| Array::i64(ends).shaped(&[2, ends.len() as u64 / 2]);
    vec![
        ("author/num_nodes", Array::i64(&[2])),
        ("paper/x", Array::f32(&[1.0, 2.0, 3.0]).shaped(&[3, 1])),
        ("paper/y", Array::i64(&[1, 0, 1])),
        ("paper/train_idx", Array::i64(&[0, 1])),
        ("author/writes/paper/edge_index", ends(&[0, 0, 1, 0, 1, 2])),
        ("paper/in/venue/edge_index", ends(&[0, 1, 2, 0, 1, 1])),
    ]
}

fn open(entries: &Entries, options: &OpenOptions) -> Result<Dataset, DataProblem> {
    let files: Vec<_> = entries
        .iter()
        .map(|(key, array)| (*key, array.npy()))
        .collect();
    Dataset::read_from(Cursor::new(archive(&files, true)), options)
}

fn options() -> OpenOptions {
    OpenOptions {
        several_types: true,
        ..OpenOptions::default()
    }
}

fn with(key: &'static str, array: Array) -> Entries {
    let mut entries = entries();
    entries.retain(|(name, _)| *name != key);
    entries.push((key, array));
    entries
}

#[test]
fn arrays_of_types_are_read() {
    let dataset = open(&entries(), &options()).unwrap();
    let types = dataset.types.as_ref().unwrap();
    let vertices: Vec<_> = types
        .vertices()
        .iter()
        .map(|of| (&*of.name, of.vertices))
        .collect();
    assert_eq!(vertices, [("author", 2), ("paper", 3), ("venue", 2)]);
    assert_eq!((dataset.edges(), dataset.outputs), (6, 2));
    assert_eq!(
        dataset.features_of_type(1).map(Features::feature_len),
        Some(1)
    );
    assert_eq!(dataset.train, [0, 1]);
    let mut both = options();
    both.undirected = true;
    let dataset = open(&entries(), &both).unwrap();
    assert_eq!(dataset.edges(), 12);
    let done = dataset
        .preparations
        .iter()
        .find(|step| step.of == "edges")
        .unwrap();
    assert!(done.what.contains("6 became 12"), "{done}");
}

#[test]
fn what_is_wrong_with_a_type_names_it() {
    let ends = |ends: &[i64]| Array::i64(ends).shaped(&[2, ends.len() as u64 / 2]);
    let cases: [(Entries, &[&str]); 6] = [
        (
            with("author/writes/paper/edge_index", ends(&[0, 2, 0, 1])),
            &[
                "author/writes/paper/edge_index[1] is 2",
                "2 vertices of type author",
            ],
        ),
        (
            with("author/writes/paper/edge_index", ends(&[0, 1, 0, 3])),
            &["edge_index[3] is 3", "there are 3 vertices"],
        ),
        (
            with("author/writes/paper/edge_index", Array::i64(&[0, 1])),
            &["author/writes/paper/edge_index", "(2, E)"],
        ),
        (
            with("author/y", Array::i64(&[0, 1])),
            &["type author and of type paper have labels"],
        ),
        (
            with("paper/y", Array::i64(&[0, 1])),
            &["paper: y", "a row for each"],
        ),
        (
            with("paper/x", Array::f32(&[1.0, f32::NAN, 2.0]).shaped(&[3, 1])),
            &["paper: x[1] is NaN"],
        ),
    ];
    for (entries, words) in cases {
        let message = open(&entries, &options()).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}

#[test]
fn options_of_one_type_are_refused() {
    let refused = open(&entries(), &OpenOptions::default()).unwrap_err();
    assert!(matches!(refused, DataProblem::SeveralTypes), "{refused}");
    let mut loops = options();
    loops.self_loops = true;
    let mut sums = options();
    sums.normalize_features = Some(true);
    for options in [loops, sums] {
        let refused = open(&entries(), &options).unwrap_err().to_string();
        assert!(refused.contains("of graphs of one type"), "{refused}");
    }
}
