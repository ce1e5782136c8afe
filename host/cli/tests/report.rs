//! `halfgnn report`: from what the other commands write to a page that loads nothing.

mod common;

use common::{events, halfgnn, refused, text};
use serde_json::json;
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

/// Lines as `bench spmm --against cusparse,gather` and `bench train --against pyg.jsonl` write them on a GPU.
fn measured_on_a_card() -> String {
    let machine = |command: &str| {
        json!({"event": "machine", "version": "0.1.0", "command": command, "environment": [], "cpu": "x86",
            "threads": 16, "driver": "580.1", "cuda": "13.0",
            "gpus": [{"name": "NVIDIA X", "memory_tb_per_s": 4.8}]})
    };
    let mut lines = vec![machine(
        "halfgnn bench spmm --graph road-like --graph kron21 --against cusparse,gather",
    )];
    for (graph, half, float) in [("road-like", 0.25, 0.5), ("kron21", 1.0, 2.0)] {
        for (precision, ms) in [("half", half), ("float", float)] {
            let peer = |precision, ms: f64| {
                json!({"peer": "cusparse", "precision": precision, "algorithm": "csr2", "ms": ms,
                    "ms_fastest": ms, "ms_slowest": ms})
            };
            lines.push(json!({"event": "spmm", "graph": graph, "device": "NVIDIA X", "vertices": 9, "edges": 99,
                "features": 64, "precision": precision, "policy": "discretized-float", "ms": ms, "ms_fastest": ms,
                "ms_slowest": ms, "gathered_tb_per_s": 3.0, "largest_error": 1e-4,
                "peers": [peer("half", 1.0), peer("float", 2.0)],
                "speedup": {"cusparse half": 1.0 / ms, "cusparse float": 2.0 / ms, "cusparse": 1.0 / ms},
                "over_bound": 1.1}));
        }
        lines.push(json!({"event": "speedup", "operator": "spmm", "against": "cusparse", "geometric_mean": 2.0}));
    }
    lines.push(machine(
        "halfgnn bench train --graph kron21 --graph reddit-like --against pyg.jsonl",
    ));
    for (graph, features) in [("kron21", 100), ("reddit-like", 602)] {
        for (model, precision, ms, gib) in [
            ("gcn", "half", 5.0, 1.0),
            ("gcn", "float", 10.0, 2.0),
            ("gin", "half", 20.0, 2.0),
        ] {
            lines.push(json!({"event": "train", "model": model, "graph": graph, "device": "NVIDIA X", "vertices": 9,
                "edges": 99, "features": features, "classes": 41, "hidden": 64, "layers": 2, "precision": precision,
                "recorded": true, "ms": ms, "gib": gib, "foretold_gib": gib, "loss": 1.5,
                "against": [{"name": "PyG 2.8.0, float", "faster": 60.0 / ms, "smaller": 8.0 / gib}]}));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn figures_of_a_card_set_ours_beside_the_peers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gpu.jsonl"), measured_on_a_card()).unwrap();
    run(halfgnn(&[
        "report",
        "gpu.jsonl",
        "--svg",
        "figures",
        "--output",
        "page.html",
    ])
    .current_dir(folder.path()));
    let has = |file: &str, words: &[&str]| {
        let svg = std::fs::read_to_string(folder.path().join("figures").join(file)).expect(file);
        for word in words {
            let whole_text = format!("\n{word}\n");
            assert!(
                svg.contains(&whole_text),
                "{file}: `{word}` is not in {svg}"
            );
        }
    };
    // A bar's value stands over it: cuSPARSE's best took 1 ms, ours 0.25 and 1.
    has(
        "speedup-spmm-cusparse.svg",
        &[
            "SpMM: times faster than cuSPARSE, the better of half and float",
            "road-like",
            "kron21",
            "geometric mean",
            "half, F=64",
            "float, F=64",
            "4.0",
            "2.0",
        ],
    );
    has(
        "speedup-spmm-cusparse-half.svg",
        &["SpMM: times faster than cuSPARSE in half"],
    );
    // Feature lengths are the graphs' own here, and distinguish nothing.
    has(
        "speedup-train-pyg-2-8-0-float.svg",
        &[
            "Training step: times faster than PyG 2.8.0, float",
            "reddit-like",
            "gcn, half",
            "gcn, float",
            "gin, half",
            "geometric mean",
            "12",
            "6.0",
            "3.0",
        ],
    );
    has(
        "memory-against-train-pyg-2-8-0-float.svg",
        &[
            "Training step: times less memory than PyG 2.8.0, float",
            "8.0",
            "4.0",
        ],
    );
    has(
        "memory-train.svg",
        &[
            "kron21 gcn",
            "reddit-like gin",
            "half",
            "float",
            "PyG 2.8.0, float",
            "8.0",
            "1.0",
        ],
    );
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    for part in [
        "12.00 × PyG 2.8.0, float",
        "8.0 × less memory",
        "4.00 × cusparse",
        "NVIDIA X, driver 580.1",
    ] {
        assert!(page.contains(part), "`{part}` is not in the page");
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
