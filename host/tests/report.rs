//! `halfgnn report`: from what the other commands write to a page that loads nothing.
#![cfg(feature = "cli")]

mod common;

use common::{events, halfgnn, refused, text};
use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// What a benchmark and two trainings of two seeds wrote.
fn measured(folder: &Path) {
    run(halfgnn(&[
        "bench",
        "spmm",
        "--graph",
        "kron:7",
        "--features",
        "8,16",
        "--runs",
        "1",
        "--device",
        "cpu",
        "--json",
        "bench.jsonl",
    ])
    .current_dir(folder));
    for precision in ["half", "float"] {
        run(halfgnn(&[
            "train",
            "--dataset",
            "synthetic",
            "--epochs",
            "2",
            "--hidden",
            "4",
            "--seeds",
            "2",
            "--device",
            "cpu",
            "--precision",
            precision,
            "--json",
            &format!("{precision}.jsonl"),
        ])
        .current_dir(folder));
    }
}

#[test]
fn a_page_has_the_figures_the_commands_and_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path());
    let output = halfgnn(&["report", "bench.jsonl", "half.jsonl", "float.jsonl"])
        .args(["--output", "page.html", "--svg", "figures", "--json", "-"])
        .args(["--title", "Mine & yours"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    for part in [
        "<title>Mine &amp; yours</title>",
        "halfgnn bench spmm --graph kron:7",
        "halfgnn train --dataset synthetic",
        "SpMM: half against our own float",
        "SpMM: bytes gathered a second",
        "Test accuracy by epoch, synthetic",
        "Test accuracy of each run, synthetic",
        "Memory at its peak, synthetic",
        "<h2>Training</h2>",
        "<h2>Times</h2>",
        "kron7",
        "threads",
    ] {
        assert!(page.contains(part), "`{part}` is not in the page");
    }
    let svgs = page.matches("<svg").count();
    assert!(svgs >= 6, "{svgs}");
    // The namespace of SVG is a name; no other address is in it.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for foreign in ["http", "src=", "@import", "<script", "<link"] {
        assert!(!page.contains(foreign), "{foreign}");
    }

    let written = &events(&output.stdout)[0];
    assert_eq!(written["event"], "report");
    assert_eq!(written["page"], "page.html");
    assert_eq!(written["trainings"], 2);
    assert_eq!(written["unknown_events"], 0);
    let figures = written["figures"].as_array().unwrap();
    assert_eq!(figures.len(), svgs);
    for figure in figures {
        let file = folder.path().join(figure.as_str().unwrap());
        let svg = std::fs::read_to_string(file).unwrap();
        assert!(svg.starts_with("<svg"), "{figure}");
    }
}

#[test]
fn figures_alone_make_no_page_and_stdin_is_read() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path());
    let input = std::fs::File::open(folder.path().join("bench.jsonl")).unwrap();
    run(halfgnn(&["report", "-", "--svg", "."])
        .stdin(input)
        .current_dir(folder.path()));
    assert!(folder.path().join("roofline-spmm.svg").exists());
    assert!(!folder.path().join("report.html").exists());
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let report = |arguments: &[&str]| {
        halfgnn(&["report"])
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    assert_eq!(report(&[]).status.code(), Some(2));
    refused(&report(&["missing.jsonl"]), 2, &["missing.jsonl"]);
    let write = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).unwrap();
    };
    write("empty.jsonl", b"");
    refused(&report(&["empty.jsonl"]), 2, &["empty.jsonl", "empty"]);
    write("other.jsonl", b"{\"event\":\"device\"}\n");
    refused(
        &report(&["other.jsonl"]),
        2,
        &["nothing to report", "--json"],
    );
    write("binary.jsonl", b"\xff\xfe\x00\x01\n");
    refused(&report(&["binary.jsonl"]), 2, &["binary.jsonl", "line 1"]);
    let row = b"{\"event\":\"spmm\",\"graph\":\"a\",\"ms\":1.0}\n";
    write("row.jsonl", row);
    let output = report(&["row.jsonl", "--output", "nowhere/page.html"]);
    refused(&output, 2, &["--output", "nowhere/page.html"]);
    assert!(report(&["row.jsonl"]).status.success());
    assert!(folder.path().join("report.html").exists());
}
