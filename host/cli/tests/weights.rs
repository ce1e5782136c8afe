//! Weights of edges, as a person who has some meets them: used, refused, or named as ignored.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};

/// Every vertex aggregates vertex 0, of the first class, and vertex 20, of the other, and has no features of its own:
/// which of the two it is like is in the weights alone.
fn told_by_weights() -> Place {
    let mut ring = Ring::new();
    let own = |v: i32| if v / 20 == 0 { [5.0, 0.1] } else { [0.1, 5.0] };
    ring.columns = (0..VERTICES).flat_map(|_| [0, 20]).collect();
    ring.weights = (0..VERTICES).flat_map(own).collect();
    ring.values = (0..VERTICES)
        .map(|v| if v % 20 == 0 { 1.0 } else { 0.0 })
        .collect();
    place(&ring)
}

/// Test accuracy at the last epoch in percent, and what stands on the terminal.
fn accuracy(place: &Place, more: &[&str]) -> (f64, String) {
    let arguments = [
        &["--precision", "float", "--dropout", "0", "--json", "-"],
        more,
    ]
    .concat();
    let output = place.train(&arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = events(&output.stdout);
    let start = events[0]["preparation"].to_string();
    let run = events.iter().find(|event| event["event"] == "run").unwrap();
    (run["test_accuracy_last"].as_f64().unwrap(), start)
}

#[test]
fn every_model_that_takes_weights_learns_by_them() {
    let place = told_by_weights();
    for model in ["gcn", "sage", "gin", "appnp", "gcnii", "gat"] {
        let layers = ["--layers", if model == "gcnii" { "4" } else { "2" }];
        let of = |more: &[&str]| {
            let given = [&["--model", model, "--epochs", "200"], &layers[..], more].concat();
            accuracy(&place, &given)
        };
        let (with, told) = of(&[]);
        assert!(with > 99.0, "{model} with weights: {with} %");
        let how = match model {
            "gat" => "are in the scores of attention, a term that is learnt",
            _ => "multiply what neighbours send",
        };
        assert!(told.contains(&format!("80 of 0.1 to 5 {how}")), "{told}");
        let (without, told) = of(&["--ignore-edge-weights"]);
        assert!(without < 60.0, "{model} without weights: {without} %");
        assert!(told.contains("ignored, all edges count the same"), "{told}");
    }
}

#[test]
fn a_gat_that_was_made_without_weights_refuses_them() {
    let place = told_by_weights();
    let model = place.folder.path().join("gat.safetensors");
    let model = model.to_str().unwrap();
    let given = [
        "--model",
        "gat",
        "--ignore-edge-weights",
        "--epochs",
        "2",
        "--save",
        model,
    ];
    let output = place.train(&given).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = place
        .train(&["--resume", model, "--epochs", "3"])
        .output()
        .unwrap();
    refused(&output, 2, &["--ignore-edge-weights"]);
    // And one that was made with them needs them.
    let given = ["--model", "gat", "--epochs", "2", "--save", model];
    assert!(place.train(&given).output().unwrap().status.success());
    let given = ["--resume", model, "--epochs", "3"];
    assert!(place.train(&given).output().unwrap().status.success());
    let given = [&given[..], &["--ignore-edge-weights"]].concat();
    let output = place.train(&given).output().unwrap();
    refused(&output, 2, &["trained with the edge weights"]);
}

#[test]
fn a_format_without_a_place_for_weights_says_so() {
    let place = told_by_weights();
    let graph = place.folder.path().join("ring.mtx");
    let output = halfgnn(&["dataset", "convert"])
        .args([&place.dataset, &graph])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(
        said.contains("without features, labels and edge weights"),
        "{said}"
    );
}

#[test]
fn weights_are_told_and_kept_by_conversions() {
    let place = told_by_weights();
    let again = place.folder.path().join("again.npz");
    let converted = halfgnn(&["dataset", "convert"])
        .args([&place.dataset, &again])
        .output()
        .unwrap();
    assert!(converted.status.success(), "{}", text(&converted.stderr));
    for path in [&place.dataset, &again] {
        let output = halfgnn(&["dataset", "info"]).arg(path).output().unwrap();
        let said = text(&output.stdout);
        let row = said.lines().find(|line| line.contains("edge weights"));
        assert!(
            row.is_some_and(|row| row.contains("0.1 to 5, mean 2.55")),
            "{said}"
        );
    }
}

#[test]
fn a_run_with_weights_goes_on_with_weights() {
    let place = told_by_weights();
    let (model, out) = (
        place.folder.path().join("run.safetensors"),
        place.folder.path().join("out.npy"),
    );
    let (model, out) = (model.to_str().unwrap(), out.to_str().unwrap());
    let trained = place
        .train(&["--ignore-edge-weights", "--epochs", "3", "--save", model])
        .output()
        .unwrap();
    assert!(trained.status.success(), "{}", text(&trained.stderr));
    let resumed = |more: &[&str]| {
        let given = [&["--resume", model, "--epochs", "5"], more].concat();
        place.train(&given).output().unwrap()
    };
    refused(&resumed(&[]), 2, &["--ignore-edge-weights"]);
    assert!(resumed(&["--ignore-edge-weights"]).status.success());
    let predicted = |more: &[&str]| {
        let mut command = halfgnn(&["predict", "--device", "cpu", "--model", model, "--out", out]);
        command.arg("--dataset").arg(&place.dataset).args(more);
        command.output().unwrap()
    };
    refused(&predicted(&[]), 2, &["--ignore-edge-weights"]);
    assert!(predicted(&["--ignore-edge-weights"]).status.success());
}
