//! Whole graphs, from a collection of TU's files to a line a graph.

mod common;

use common::{documented, events, halfgnn, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

const GRAPHS: usize = 90;

/// Paths (class -1) and cycles (class 1) of 4 to 9 vertices, one after the other, which have nothing but their edges;
/// every tenth has a leaf more, so that the largest degree does not distinguish them.
fn collection() -> TempDir {
    let folder = tempfile::tempdir().expect("room for a folder");
    let [mut edges, mut indicator, mut labels] = [(); 3].map(|()| String::new());
    let mut first = 1;
    for graph in 0..GRAPHS {
        let size = 4 + graph * 7 % 6;
        let closed = graph % 2 == 1;
        let mut pairs: Vec<_> = (1..size).map(|vertex| (vertex - 1, vertex)).collect();
        pairs.extend(closed.then_some((size - 1, 0)));
        let leaves = usize::from(graph % 10 < 2);
        pairs.extend((0..leaves).map(|leaf| (1, size + leaf)));
        for (a, b) in pairs {
            let (a, b) = (a + first, b + first);
            edges += &format!("{a}, {b}\n{b}, {a}\n");
        }
        indicator += &format!("{}\n", graph + 1).repeat(size + leaves);
        labels += if closed { "1\n" } else { "-1\n" };
        first += size + leaves;
    }
    for (name, text) in [
        ("A", edges),
        ("graph_indicator", indicator),
        ("graph_labels", labels),
    ] {
        std::fs::write(folder.path().join(format!("RINGS_{name}.txt")), text).expect("room");
    }
    folder
}

fn train(folder: &Path, more: &[&str]) -> Output {
    let common = [
        "train",
        "--dataset",
        folder.to_str().expect("text"),
        "--device",
        "cpu",
        "--json",
        "-",
    ];
    halfgnn(&[&common, more].concat())
        .output()
        .expect("the program")
}

const GIN: [&str; 10] = [
    "--model",
    "gin",
    "--layers",
    "3",
    "--hidden",
    "16",
    "--dropout",
    "0",
    "--precision",
    "float",
];

fn of<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    let mut found = events.iter().filter(|event| event["event"] == kind);
    found.next_back().expect(kind)
}

#[test]
fn a_gin_tells_cycles_from_paths() {
    let folder = collection();
    let kept = folder.path().join("rings.safetensors");
    let kept = kept.to_str().expect("text");
    let how = [
        "--epochs", "40", "--batch", "16", "--split", "fold:0", "--save", kept,
    ];
    let output = train(folder.path(), &[&GIN[..], &how].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let start = of(&events, "start");
    documented::check(&documented::events(), start, "train");
    assert_eq!(
        (&start["graphs"], &start["pool"]),
        (&GRAPHS.into(), &"sum".into())
    );
    assert_eq!(
        (&start["sampler"], &start["batch"]),
        (&"graphs".into(), &16.into())
    );
    let told = start["preparation"].to_string();
    for words in [
        "a one for the degree, of which there are 3",
        "fold:0,10 with seed 0",
        "the sum of the vertices of each of 90",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let summary = of(&events, "summary");
    let accuracy = summary["test_accuracy"].as_f64().expect("a number");
    assert!(accuracy > 95.0, "{summary}");

    // A line a graph, under the names of the classes.
    let table = folder.path().join("out.csv");
    let table = table.to_str().expect("text");
    let dataset = folder.path().to_str().expect("text");
    let predict = |more: &[&str]| {
        let common = [
            "predict",
            "--model",
            kept,
            "--dataset",
            dataset,
            "--device",
            "cpu",
            "--out",
            table,
        ];
        let output = halfgnn(&[&common, more].concat())
            .output()
            .expect("the program");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (
            std::fs::read_to_string(table).expect("the table"),
            text(&output.stdout).to_owned(),
        )
    };
    let (lines, told) = predict(&[]);
    assert!(told.contains("classes of 90 graphs written to"), "{told}");
    let mut lines = lines.lines();
    assert_eq!(lines.next(), Some("graph,class"));
    let right = lines.enumerate().filter(|(graph, line)| {
        *line == format!("{graph},{}", if graph % 2 == 1 { "1" } else { "-1" })
    });
    assert!(right.count() > 85);
    // A layer before the pooling is of vertices, one behind it of graphs.
    let (lines, told) = predict(&["--layer", "3"]);
    assert!(lines.starts_with("vertex,embedding_0,"), "{told}");
    let (lines, _) = predict(&["--layer", "4"]);
    assert!(lines.starts_with("graph,embedding_0,"), "{lines}");
    assert_eq!(lines.lines().count(), GRAPHS + 1);
    // The run goes on with the batches that it had.
    let more = ["--resume", kept, "--epochs", "41", "--split", "fold:0"];
    let output = train(folder.path(), &more);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn all_graphs_at_once_and_means() {
    let folder = collection();
    let how = [
        "--model",
        "gcn",
        "--pool",
        "mean",
        "--epochs",
        "3",
        "--dropout",
        "0",
    ];
    let output = train(folder.path(), &how);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let start = of(&events, "start");
    assert_eq!(start["pool"], "mean");
    assert!(start.get("batch").is_none_or(Value::is_null), "{start}");
    assert!(
        of(&events, "epoch")["loss"]
            .as_f64()
            .expect("a number")
            .is_finite()
    );
}

/// Graphs of a batch are distributed to ranks, which learn together what one learns; all graphs at once are of one
/// rank.
#[test]
fn batches_of_graphs_are_dealt_out_to_ranks() {
    let folder = collection();
    let how = "--model gcn --pool mean --epochs 3 --dropout 0 --precision float";
    let how: Vec<&str> = how.split(' ').collect();
    let losses = |more: &[&str]| -> Vec<f64> {
        let output = train(folder.path(), &[&how[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let events = events(&output.stdout);
        let epochs = events.iter().filter(|event| event["event"] == "epoch");
        epochs
            .map(|event| event["loss"].as_f64().expect("a loss"))
            .collect()
    };
    let alone = losses(&["--batch", "16"]);
    let ranks = losses(&["--batch", "16", "--ranks", "3"]);
    assert_eq!(alone.len(), ranks.len());
    for (own, expected) in ranks.iter().zip(&alone) {
        let off = (own - expected).abs() / expected;
        assert!(off < 1e-3, "{own} and {expected}");
    }
    let words = ["it is 90 graphs", "learn in batches of them (--batch 32)"];
    let whole = train(folder.path(), &[&how[..], &["--ranks", "3"]].concat());
    refused(&whole, 2, &words);
}

/// GIN's readout of the features and of all layers, and the largest of each column.
#[test]
fn readouts_of_all_layers_and_the_largest() {
    let folder = collection();
    let how = [
        "--model",
        "gin",
        "--layers",
        "3",
        "--jumping",
        "all",
        "--pool",
        "max",
        "--batch",
        "30",
        "--epochs",
        "40",
    ];
    let output = train(folder.path(), &how);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let start = of(&events, "start");
    documented::check(&documented::events(), start, "train");
    assert_eq!(start["pool"], "max");
    assert_eq!(start["jumping"], "all");
    let accuracy = of(&events, "summary")["test_accuracy"].as_f64();
    assert!(accuracy.expect("a number") > 80.0, "{accuracy:?}");
}

#[test]
fn it_is_shown_and_converted() {
    let folder = collection();
    let dataset = folder.path().to_str().expect("text");
    let info = halfgnn(&["dataset", "info", dataset])
        .output()
        .expect("the program");
    let shown = text(&info.stdout);
    for words in [
        "90, of 4 to 10 vertices",
        "a class of each graph",
        "2, of 45 to 45 graphs",
        "-1, 1",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let file = folder.path().join("rings.npz");
    let file = file.to_str().expect("text");
    let convert = halfgnn(&["dataset", "convert", dataset, file])
        .output()
        .expect("the program");
    assert!(convert.status.success(), "{}", text(&convert.stderr));
    assert!(
        text(&convert.stdout).contains("names of classes"),
        "{}",
        text(&convert.stdout)
    );
    let again = halfgnn(&["dataset", "info", file])
        .output()
        .expect("the program");
    assert!(text(&again.stdout).contains("90, of 4 to 10 vertices"));
}

#[test]
fn what_is_not_for_many_graphs_is_refused() {
    let folder = collection();
    for (more, words) in [
        (&["--sampler", "neighbor:5,5"][..], &["take --batch N"][..]),
        (
            &["--task", "link"],
            &["it is 90 graphs, and links are told of one"],
        ),
        (&["--inductive"], &["leave --inductive out"]),
        (
            &["--reorder", "degree"],
            &["another order would mix their vertices"],
        ),
    ] {
        refused(&train(folder.path(), more), 2, words);
    }
    let one = |more: &[&str]| {
        let common = ["train", "--dataset", "synthetic", "--device", "cpu"];
        halfgnn(&[&common, more].concat())
            .output()
            .expect("the program")
    };
    refused(
        &one(&["--pool", "sum"]),
        2,
        &["--pool", "the dataset is one graph"],
    );
    refused(
        &one(&["--batch", "3"]),
        2,
        &["--batch", "add --sampler neighbor:15,10"],
    );
    refused(
        &one(&["--sampler", "graphs"]),
        2,
        &["--sampler graphs", "this is one"],
    );
}
