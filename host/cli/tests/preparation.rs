//! What the program says of a dataset: what was done to it, and what can be wrong with its features and labels.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use std::process::Command;

/// Who asked for what, as the `start` event says; each is in the lines for people as well.
fn preparation(mut command: Command) -> Vec<(String, String)> {
    let output = command
        .args(["--epochs", "1", "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let start = events(&output.stdout).remove(0);
    let steps = start["preparation"].as_array().expect("a list").iter();
    let told = steps.map(|step| {
        let [of, what, by] = ["of", "what", "by"].map(|key| step[key].as_str().unwrap().to_owned());
        let shown = text(&output.stderr);
        let line = |line: &str| {
            line.trim_start().starts_with(&of) && line.ends_with(&format!("{what} ({by})"))
        };
        assert!(shown.lines().any(line), "{step} is not in {shown}");
        (of, by)
    });
    told.collect()
}

#[test]
fn what_is_done_to_the_data_is_told_with_who_asked_for_it() {
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(of, by)| (of.to_string(), by.to_string()))
            .collect()
    };
    let mut ring = Ring::new();
    ring.values.fill(4.0);
    let place = place(&ring);
    assert_eq!(
        preparation(place.train(&["--reorder", "degree"])),
        pairs(&[
            ("source", "file"),
            ("features", "default"),
            ("splits", "file"),
            ("order", "option"),
            ("self-loops", "model")
        ])
    );
    assert_eq!(
        preparation(place.train(&["--normalize-features=false", "--self-loops"])),
        pairs(&[
            ("source", "file"),
            ("splits", "file"),
            ("self-loops", "option")
        ])
    );
    let made = |more: &[&str]| {
        let base = [
            "train",
            "--device",
            "cpu",
            "--dataset",
            "blocks:64",
            "--model",
            "sage",
        ];
        preparation(halfgnn(&[&base, more].concat()))
    };
    assert_eq!(
        made(&[]),
        pairs(&[("source", "recipe"), ("splits", "recipe")])
    );
    assert_eq!(
        made(&["--split", "fractions:0.5,0.2"]),
        pairs(&[("source", "recipe"), ("splits", "option")])
    );
}

/// One number of half's that is none: the feature of vertex 3, which stands in column 0.
fn with_a_large_feature() -> Place {
    let mut ring = Ring::new();
    ring.values[0] = -1.0;
    ring.values[3] = 1e6;
    place(&ring)
}

#[test]
fn features_that_half_does_not_hold_are_told_before_training() {
    let place = with_a_large_feature();
    let warned = |arguments: &[&str]| {
        let output = place
            .train(&[&["--epochs", "2"], arguments].concat())
            .output()
            .unwrap();
        let warnings = text(&output.stderr).lines();
        let warnings = warnings.filter(|line| line.contains("infinite in half"));
        warnings.map(str::to_owned).collect::<Vec<_>>()
    };
    let [line] = &warned(&[])[..] else {
        panic!("one line is wanted")
    };
    for words in [
        "1 features",
        "1000000",
        "column 0",
        "--scale-features",
        "bf16",
    ] {
        assert!(line.contains(words), "`{words}` is not in: {line}");
    }
    for way_out in [
        &["--precision", "float"][..],
        &["--precision", "bf16"],
        &["--scale-features"],
    ] {
        assert_eq!(warned(way_out), Vec::<String>::new(), "{way_out:?}");
    }
}

#[test]
fn scaled_features_are_scaled_wherever_the_model_goes() {
    let place = with_a_large_feature();
    let run = |mut command: Command| {
        let output = command.args(["--json", "-"]).output().unwrap();
        let shown = text(&output.stderr).to_owned();
        assert!(output.status.success(), "{shown}");
        assert!(!shown.contains("infinite in half"), "{shown}");
        (events(&output.stdout), shown)
    };
    let told = |shown: &str, by: &str| {
        let line = |line: &str| {
            line.contains("columns divided by its largest magnitude")
                && line.contains("1000000")
                && line.ends_with(&format!("({by})"))
        };
        assert!(shown.lines().any(line), "{by}: {shown}");
    };
    let save = ["--save", "kept", "--epochs", "20"];
    let (trained, shown) = run(place.train(&[&save[..], &["--scale-features"]].concat()));
    told(&shown, "option");
    let steps = trained[0]["preparation"].as_array().unwrap();
    assert!(
        steps
            .iter()
            .any(|step| step["of"] == "features" && step["by"] == "option")
    );
    let summary = &trained[trained.len() - 1];

    let mut predict = halfgnn(&[
        "predict", "--device", "cpu", "--out", "x.npy", "--model", "kept",
    ]);
    predict.arg("--dataset").arg(&place.dataset);
    predict.current_dir(place.folder.path());
    let (predicted, shown) = run(predict);
    told(&shown, "checkpoint");
    assert_eq!(predicted[0]["test_accuracy"], summary["test_accuracy"]);

    let (resumed, shown) = run(place.train(&["--resume", "kept", "--epochs", "21"]));
    told(&shown, "checkpoint");
    assert!(
        resumed
            .iter()
            .any(|event| event["event"] == "epoch" && event["epoch"] == 21)
    );
}

#[test]
fn labels_that_were_hardly_meant_are_told() {
    let trained = |labels: &dyn Fn(i64) -> i64| {
        let mut ring = Ring::new();
        ring.labels = (0..VERTICES.into()).map(labels).collect();
        let place = place(&ring);
        let output = place.train(&["--epochs", "1"]).output().unwrap();
        assert!(output.status.success());
        let mut info = halfgnn(&["dataset", "info"]);
        let info = info.arg(&place.dataset).output().unwrap();
        (
            text(&output.stderr).to_owned(),
            text(&info.stdout).to_owned(),
        )
    };
    let (warned, _) = trained(&|_| 0);
    assert_eq!(warned.lines().count(), 1, "{warned}");
    assert!(warned.contains("all labels are of one class"), "{warned}");
    let (warned, info) = trained(&|vertex| vertex % 4 * 10);
    for shown in [&warned, &info] {
        assert!(shown.contains("27 of 31 classes have no vertex"), "{shown}");
    }
    let (warned, info) = trained(&|vertex| vertex % 2);
    assert_eq!(warned, "");
    assert!(!info.contains("have no vertex"), "{info}");
}

#[test]
fn a_feature_that_is_no_number_is_told_by_row_and_column() {
    let mut ring = Ring::new();
    ring.values[25] = f32::NAN;
    let output = place(&ring).train(&[]).output().unwrap();
    refused(
        &output,
        2,
        &["attr_data[25] is NaN", "row 25, column 1", "nan_to_num"],
    );
}
