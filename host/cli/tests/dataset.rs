//! `halfgnn dataset` as a person runs it.

mod common;

use common::{events, halfgnn, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// Runs in a folder, with `HALFGNN_DATA` naming its folder `data`.
fn run(folder: &TempDir, arguments: &[&str]) -> Output {
    halfgnn(arguments)
        .current_dir(folder.path())
        .env("HALFGNN_DATA", folder.path().join("data"))
        .output()
        .unwrap()
}

fn succeeded(folder: &TempDir, arguments: &[&str]) -> Output {
    let output = run(folder, arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

/// The `dataset` event of `dataset info`.
fn info(folder: &TempDir, arguments: &[&str]) -> Value {
    let arguments = [&["dataset", "info", "--json", "-"], arguments].concat();
    let mut events = events(&succeeded(folder, &arguments).stdout);
    assert_eq!(
        (events.len(), &events[0]["event"]),
        (1, &Value::from("dataset"))
    );
    events.remove(0)
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    folder
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_graph_goes_through_every_format_and_comes_back() {
    let folder = folder();
    let chain = [
        "a.csr", "b.txt.gz", "c.mtx", "d.npz", "e.txt", "f.mtx.gz", "g.csr",
    ];
    succeeded(
        &folder,
        &[
            "dataset",
            "generate",
            "kron:8",
            chain[0],
            "--data-seed",
            "5",
        ],
    );
    for pair in chain.windows(2) {
        let output = succeeded(
            &folder,
            &["dataset", "convert", pair[0], pair[1], "--json", "-"],
        );
        let written = &events(&output.stdout)[0];
        assert_eq!(
            (&written["vertices"], &written["edges"]),
            (&256.into(), &8192.into()),
            "{written}"
        );
        assert_eq!(written["labelled"], false);
    }
    let bytes = |name| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(bytes("a.csr"), bytes("g.csr"));
    // Nothing but what was asked for is left.
    let mut expected = chain.to_vec();
    expected.push("data");
    expected.sort();
    assert_eq!(files(folder.path()), expected);
}

#[test]
fn a_dataset_is_written_and_looked_at() {
    let folder = folder();
    succeeded(
        &folder,
        &["dataset", "generate", "star:2x3000", "data/star.npz"],
    );
    let told = info(&folder, &["star"]);
    assert_eq!(told["vertices"], 6003);
    assert_eq!(
        (
            &told["symmetric"],
            &told["self_loops"],
            &told["duplicate_edges"]
        ),
        (&true.into(), &0.into(), &0.into())
    );
    assert_eq!(told["degree_quantiles"][4]["degree"], 3001);
    let histogram: Vec<u64> = told["degree_histogram"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rows| rows.as_u64().unwrap())
        .collect();
    assert_eq!(
        (histogram.iter().sum::<u64>(), histogram[1], histogram[12]),
        (6003, 6000, 2)
    );
    assert_eq!(
        (&told["labels"]["features"], &told["labels"]["classes"]),
        (&64.into(), &2.into())
    );
    assert_eq!(told["labels"]["train"], 200);
    assert_eq!(
        (
            &told["half"]["rows_past_2048"],
            &told["half"]["largest_degree"]
        ),
        (&2.into(), &3001.into())
    );
    assert!(told["half"]["rows_at_risk"].as_u64().unwrap() >= 2);
    // The same from the recipe, and other splits and edges on request.
    let mut made = info(&folder, &["star:2x3000"]);
    made["name"] = "star".into();
    // A recipe makes its splits, and the file has them.
    assert_eq!(made["labels"]["file_splits"].take(), 0);
    made["labels"]["file_splits"] = 1.into();
    assert_eq!(made, told);
    let split = info(
        &folder,
        &["star", "--split", "fractions:0.5,0.25", "--self-loops"],
    );
    let train = split["labels"]["train"].as_u64().unwrap();
    assert_eq!((train, &split["self_loops"]), (3002, &6003.into()));
    let page = text(&succeeded(&folder, &["dataset", "info", "star"]).stdout).to_string();
    for words in [
        "vertices",
        "6,003",
        "in 2 rows of more than 2,048 edges",
        "degree 2048–4095",
    ] {
        assert!(page.contains(words), "`{words}` is not in: {page}");
    }
    // A graph of it leaves features out, and says so.
    let output = succeeded(&folder, &["dataset", "convert", "star", "star.txt"]);
    assert!(text(&output.stdout).contains("without features and labels"));
    assert!(info(&folder, &["star.txt"])["labels"].is_null());
}

#[test]
fn training_takes_what_info_takes() {
    let folder = folder();
    succeeded(
        &folder,
        &["dataset", "generate", "grid:60x60", "data/grid.npz"],
    );
    let train = ["train", "--device", "cpu", "--epochs", "2", "--json", "-"];
    for source in [
        &["--dataset", "grid"][..],
        &["--dataset", "grid:60x60"],
        &["--dataset", "data/grid.npz", "--split", "public:5,50,100"],
    ] {
        let output = succeeded(&folder, &[&train, source].concat());
        assert_eq!(events(&output.stdout)[0]["vertices"], 3600);
    }
    refused(
        &run(&folder, &["train", "--dataset", "reddit"]),
        2,
        &[
            "reddit: there is no such file",
            "dataset download reddit --print",
        ],
    );
    std::fs::write(folder.path().join("data/edges.txt"), "0 1\n").unwrap();
    refused(
        &run(&folder, &["train", "--dataset", "edges"]),
        2,
        &[
            "data/edges.txt",
            "without features and labels",
            "gnn-benchmark",
        ],
    );
}

#[test]
fn broken_input_is_told_in_one_line_and_leaves_nothing() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("edges.txt", b"0 1\n1 two\n");
    write(
        "matrix.mtx",
        b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
    );
    write("empty.npz", b"");
    write("odd.bin", b"\x00\x01\x02");
    write("people.txt", b"alice bob\nbob\tcarol\n");
    write("people.csv", b"from,to\nalice,bob\n");
    for (file, words) in [
        (
            "edges.txt",
            "line 2: 'two' is no vertex id, a whole number from 0; if vertices have names, number them first",
        ),
        (
            "people.txt",
            "'alice' is none; ids of any kind go into tables",
        ),
        ("people.csv", "ids must be whole numbers from 0"),
        ("matrix.mtx", "line 1: the layout is 'array'"),
        ("empty.npz", "the file is empty"),
        ("odd.bin", "in no format that is known"),
        ("none.txt", "there is no such file"),
    ] {
        refused(&run(&folder, &["dataset", "info", file]), 2, &[file, words]);
        refused(
            &run(&folder, &["dataset", "convert", file, "out.csr"]),
            2,
            &[file, words],
        );
    }
    refused(
        &run(
            &folder,
            &["dataset", "info", "edges.txt", "--format", "raw-csr"],
        ),
        2,
        &["edges.txt"],
    );
    refused(
        &run(&folder, &["dataset", "convert", "edges.txt", "out.pdf"]),
        2,
        &["out.pdf", "--to"],
    );
    refused(
        &run(
            &folder,
            &["dataset", "convert", "edges.txt", "none/out.csr"],
        ),
        2,
        &["none/out.csr", "cannot be written"],
    );
    refused(
        &run(
            &folder,
            &["dataset", "convert", "edges.txt", "data", "--to", "raw-csr"],
        ),
        2,
        &["data", "it is a folder"],
    );
    refused(
        &run(&folder, &["dataset", "download", "karate", "--print"]),
        2,
        &["'karate' is not known", "cora"],
    );
    write("good.txt", b"0 1\n");
    refused(
        &run(
            &folder,
            &[
                "dataset",
                "convert",
                "good.txt",
                "out.npz",
                "--to",
                "gnn-benchmark",
            ],
        ),
        2,
        &["out.npz", "cannot hold a graph without features"],
    );
    assert_eq!(
        files(folder.path()),
        [
            "data",
            "edges.txt",
            "empty.npz",
            "good.txt",
            "matrix.mtx",
            "odd.bin",
            "people.csv",
            "people.txt"
        ]
    );
}

#[test]
fn the_known_datasets_are_printed() {
    let folder = folder();
    let output = succeeded(&folder, &["dataset", "download", "--print", "--json", "-"]);
    let events = events(&output.stdout);
    let names: Vec<_> = events
        .iter()
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    for name in [
        "cora",
        "citeseer",
        "pubmed",
        "reddit",
        "ogbn-arxiv",
        "ogbn-products",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let place = events[0]["files"][0].as_str().unwrap();
    assert!(
        place.starts_with(folder.path().join("data").to_str().unwrap()),
        "{place}"
    );
    let page = succeeded(&folder, &["dataset", "download", "Cora", "--print"]);
    assert!(
        text(&page.stdout)
            .contains("https://github.com/kimiyoung/planetoid/raw/master/data/ind.cora.graph\n")
    );
}
