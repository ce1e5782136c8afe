//! Training in batches, as a person asks for it.

#[path = "../common/mod.rs"]
mod common;
mod places;
mod resumption;

use common::ring::{Place, Ring, place};
use common::{events, halfgnn, refused, text};
use serde_json::Value;

fn run(place: &Place, more: &[&str]) -> Vec<Value> {
    let output = place
        .train(&[&["--json", "-"], more].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["event"] == kind)
        .collect()
}

/// Losses and scores by epoch, without times.
fn told(events: &[Value]) -> Vec<(Value, Value)> {
    (of(events, "epoch").into_iter())
        .map(|epoch| (epoch["loss"].clone(), epoch["scores"].clone()))
        .collect()
}

#[test]
fn every_model_learns_in_batches() {
    let place = place(&Ring::new());
    for model in ["gcn", "sage", "gin", "gat", "gcnii"] {
        for precision in ["half", "float", "bf16"] {
            let shape = ["--model", model, "--layers", "2", "--precision", precision];
            let batches = [
                "--sampler",
                "neighbor:2,1",
                "--batch",
                "4",
                "--epochs",
                "60",
            ];
            let more = ["--dropout", "0", "--weight-decay", "0"];
            let events = run(&place, &[&shape[..], &batches, &more].concat());
            let start = of(&events, "start")[0];
            assert_eq!(start["sampler"], "neighbor:2,1");
            assert_eq!(start["batch"], 4);
            let summary = of(&events, "summary")[0];
            let accuracy = summary["test_accuracy"].as_f64().unwrap();
            assert!(accuracy > 80.0, "{model} {precision}: {accuracy}");
        }
    }
    let whole = run(&place, &["--epochs", "1"]);
    let start = of(&whole, "start")[0];
    assert!(
        start.get("sampler").is_none() && start.get("batch").is_none(),
        "{start}"
    );
}

const SUBGRAPHS: [&[&str]; 5] = [
    &["saint-node:30", "--coverage", "20"],
    &["saint-edge:16"],
    &["saint-rw:8,3", "--coverage", "9"],
    &["saint-mrw:5,30"],
    &["cluster:6", "--batch", "3"],
];

#[test]
fn every_model_learns_of_subgraphs() {
    let place = place(&Ring::new());
    for (number, model) in ["gcn", "sage", "gin", "gat", "gatv2"]
        .into_iter()
        .enumerate()
    {
        for (at, sampler) in SUBGRAPHS.into_iter().enumerate() {
            let precision = ["half", "float", "bf16"][(number + at) % 3];
            let shape = ["--model", model, "--layers", "2", "--precision", precision];
            let more = [
                "--dropout",
                "0",
                "--weight-decay",
                "0",
                "--epochs",
                "60",
                "--sampler",
            ];
            let events = run(&place, &[&shape[..], &more, sampler].concat());
            let start = of(&events, "start")[0];
            assert_eq!(start["sampler"], sampler[0]);
            match sampler {
                [_, "--coverage", count] => assert_eq!(start["coverage"].to_string(), *count),
                [_, "--batch", count] => assert_eq!(start["batch"].to_string(), *count),
                _ => assert_eq!(start["coverage"], 50),
            }
            let summary = of(&events, "summary")[0];
            let accuracy = summary["test_accuracy"].as_f64().unwrap();
            assert!(
                accuracy > 80.0,
                "{model} {precision} {sampler:?}: {accuracy}"
            );
        }
    }
}

/// Of whole neighbourhoods and one batch the mean over neighbours is the graph's, so the losses are; of fewer they are
/// others.
#[test]
fn a_batch_of_everything_is_the_graph() {
    // Every vertex is another, so that it shows which neighbours are sampled.
    let mut ring = Ring::new();
    ring.values = (0..40_u16).map(|v| f32::from(v * 7 % 40) / 10.0).collect();
    let place = place(&ring);
    let common = [
        "--model",
        "sage",
        "--layers",
        "2",
        "--precision",
        "float",
        "--dropout",
        "0",
        "--epochs",
        "5",
    ];
    let losses = |more: &[&str]| -> Vec<f64> {
        let events = run(&place, &[&common[..], more].concat());
        of(&events, "epoch")
            .iter()
            .map(|epoch| epoch["loss"].as_f64().unwrap())
            .collect()
    };
    let whole = losses(&[]);
    let close = |a: &[f64]| {
        a.iter()
            .zip(&whole)
            .all(|(a, b)| (a - b).abs() < 1e-4 * b.abs())
    };
    assert!(close(&losses(&["--sampler", "neighbor:-1,-1"])));
    assert!(!close(&losses(&["--sampler", "neighbor:1,1"])));
    assert!(!close(&losses(&[
        "--sampler",
        "neighbor:-1,-1",
        "--batch",
        "3"
    ])));
}

#[test]
fn every_task_of_vertices_learns_in_batches() {
    let place = place(&Ring::new());
    let batches = [
        "--sampler",
        "neighbor-replace:2,2",
        "--batch",
        "4",
        "--layers",
        "2",
        "--epochs",
        "3",
    ];
    for task in [
        &["--task", "multi-label"][..],
        &["--task", "regression"],
        &["--class-weights", "balanced"],
        &["--inductive"],
        &["--seeds", "2"],
    ] {
        let events = run(&place, &[&batches[..], task].concat());
        let losses = told(&events);
        assert!(
            losses.iter().all(|(loss, _)| loss.is_f64()),
            "{task:?}: {losses:?}"
        );
        assert_eq!(
            losses,
            told(&run(&place, &[&batches[..], task].concat())),
            "{task:?}"
        );
    }
    // No two training vertices are neighbours, so that nothing is left to be sampled.
    let of = |more: &[&str]| told(&run(&place, &[&batches[..], more].concat()));
    assert_ne!(of(&[]), of(&["--inductive"]));
}

#[test]
fn what_cannot_be_drawn_is_refused_in_a_line() {
    let ring = Ring::new();
    let place = place(&ring);
    let refuse = |more: &[&str], words: &[&str]| {
        let output = place
            .train(&[more, &["--layers", "3"]].concat())
            .output()
            .unwrap();
        refused(&output, 2, words);
    };
    refuse(
        &["--sampler", "neighbor:5,5"],
        &["neighbor:5,5 has 2 fanouts, and 3 layers", "name 3 fanouts"],
    );
    refuse(
        &["--sampler", "neighbor:5,5,5", "--task", "link"],
        &["--task link", "leave one of them out"],
    );
    refuse(
        &["--sampler", "neighbor:5,5,5", "--norm", "in"],
        &["--norm in", "take --norm both"],
    );
    for (wrong, word) in [
        ("neighbor:5,0,5", "a number from 1 on, or -1"),
        ("neighbor:", "is none"),
        ("neighbours:5", "take neighbor:15,10,5"),
        (
            "saint-rw:5",
            "needs 2 numbers from 1 on, as in saint-rw:2000,4",
        ),
        ("saint-mrw:9,8", "no more than it comes to"),
    ] {
        let output = place.train(&["--sampler", wrong]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains(word) && said.contains("--sampler"), "{said}");
    }
    for (more, words) in [
        (
            &["--sampler", "saint-rw:5,2", "--batch", "4"][..],
            "says itself how large a batch is; leave --batch out",
        ),
        (
            &["--sampler", "neighbor:5,5,5", "--coverage", "4"],
            "--coverage counts how often GraphSAINT's samplers draw a vertex",
        ),
        (&["--coverage", "4"], "add --sampler saint-rw:2000,4"),
        (
            &["--sampler", "cluster:3", "--norm", "in"],
            "take --norm both",
        ),
        (
            &["--sampler", "saint-node:4", "--task", "link"],
            "leave one of them out",
        ),
    ] {
        refuse(more, &[words]);
    }
    let alone = place.train(&["--batch", "5"]).output().unwrap();
    assert!(
        text(&alone.stderr).contains("add --sampler neighbor:15,10"),
        "{}",
        text(&alone.stderr)
    );
    run(&place, &["--epochs", "1", "--save", "kept"]);
    let both = place
        .train(&["--resume", "kept", "--sampler", "neighbor:1"])
        .output()
        .unwrap();
    assert!(
        text(&both.stderr).contains("cannot be used with"),
        "{}",
        text(&both.stderr)
    );
    let mut weighted = Ring::new();
    weighted.weights[3] = 2.0;
    let weighted = common::ring::place(&weighted);
    let output = weighted
        .train(&["--sampler", "neighbor:1,1,1"])
        .output()
        .unwrap();
    refused(&output, 2, &["have some; add --ignore-edge-weights"]);
    let help = halfgnn(&["train", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("--sampler"));
}
