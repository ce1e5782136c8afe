//! `halfgnn tune`, end to end.

mod common;

use common::ring::{Ring, place};
use common::{events, halfgnn, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SPACE: &str = "lr = { from = 1e-3, to = 1e-1, scale = \"log\" }\nhidden = [8, 16]\nmodel = [\"gcn\", \"sage\"]\n";

fn tune(folder: &Path, dataset: &Path, arguments: &[&str]) -> Command {
    std::fs::write(folder.join("space.toml"), SPACE).unwrap();
    let mut command = halfgnn(&["tune", "space.toml"]);
    command
        .args(arguments)
        .current_dir(folder)
        .args(["--", "--dataset"]);
    command
        .arg(dataset)
        .args(["--device", "cpu", "--epochs", "9"]);
    command
}

#[test]
fn the_best_validation_is_told_with_the_command_that_trains_it() {
    let place = place(&Ring::new());
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--trials",
        "6",
        "--halving",
        "1",
        "--jobs",
        "2",
        "--json",
        "-",
        "--plot",
        "tune.svg",
    ];
    let output = tune(folder.path(), &place.dataset, &arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = events(&output.stdout);
    let (tuned, trials) = said.split_last().unwrap();
    assert_eq!(
        (trials.len(), &tuned["event"], &tuned["finished"]),
        (6, &"tuned".into(), &6.into())
    );
    let best = trials
        .iter()
        .map(|trial| trial["score"].as_f64().unwrap())
        .fold(0.0, f64::max);
    assert_eq!(tuned["score"].as_f64(), Some(best));
    assert!(
        std::fs::read_to_string(folder.path().join("tune.svg"))
            .unwrap()
            .contains("<svg")
    );

    // The command that it prints gives the same numbers.
    let words: Vec<&str> = tuned["command"]
        .as_str()
        .unwrap()
        .split(' ')
        .skip(1)
        .collect();
    let again = halfgnn(&words).args(["--json", "-"]).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let validation = |event: &Value| event["scores"]["accuracy"]["validation"].as_f64();
    let again = events(&again.stdout)
        .iter()
        .filter_map(validation)
        .fold(0.0, f64::max);
    assert_eq!(again, best);
}

#[test]
fn what_is_interrupted_goes_on() {
    let place = place(&Ring::new());
    let folder = tempfile::tempdir().unwrap();
    let run = |trials: &str| {
        let arguments = [
            "--trials",
            trials,
            "--jobs",
            "1",
            "--state",
            "state.jsonl",
            "--json",
            "-",
        ];
        let output = tune(folder.path(), &place.dataset, &arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        events(&output.stdout)
    };
    let first = run("3");
    let state = folder.path().join("state.jsonl");
    // A line that a kill cut.
    let kept = std::fs::read_to_string(&state).unwrap();
    std::fs::write(&state, format!("{kept}{{\"number\":3,\"opt")).unwrap();
    let second = run("5");
    let numbers = |said: &[Value]| -> Vec<u64> {
        said.iter()
            .filter_map(|event| event["number"].as_u64())
            .collect()
    };
    assert_eq!(
        (numbers(&first), numbers(&second)),
        (vec![0, 1, 2], vec![3, 4])
    );
    assert_eq!(second.last().unwrap()["trials"], 5);

    // In one go the same trials have the same ends, halved ones too.
    std::fs::remove_file(&state).unwrap();
    let whole = run("5");
    let ends = |said: &[Value]| -> Vec<(Value, Value)> {
        let trials = said.iter().filter(|event| event["event"] == "trial");
        trials
            .map(|trial| (trial["status"].clone(), trial["score"].clone()))
            .collect()
    };
    let parts = [ends(&first), ends(&second)].concat();
    assert_eq!(
        ends(&whole).iter().map(|end| &end.0).collect::<Vec<_>>(),
        parts.iter().map(|end| &end.0).collect::<Vec<_>>()
    );

    std::fs::write(folder.path().join("other.toml"), "lr = [0.1]\n").unwrap();
    let mut other = halfgnn(&[
        "tune",
        "other.toml",
        "--state",
        "state.jsonl",
        "--",
        "--dataset",
    ]);
    let other = other
        .arg(&place.dataset)
        .args(["--device", "cpu", "--epochs", "9"]);
    refused(
        &other.current_dir(folder.path()).output().unwrap(),
        2,
        &["--state state.jsonl", "another space"],
    );
}

#[test]
fn misfits_are_refused_before_anything_runs() {
    let place = place(&Ring::new());
    let folder = tempfile::tempdir().unwrap();
    let refuse = |space: &str, train: &[&str], words: &[&str]| {
        std::fs::write(folder.path().join("space.toml"), space).unwrap();
        let mut command = halfgnn(&["tune", "space.toml", "--", "--dataset"]);
        command
            .arg(&place.dataset)
            .args(train)
            .current_dir(folder.path());
        refused(&command.output().unwrap(), 2, words);
    };
    refuse(
        "speed = [1]",
        &[],
        &["space.toml", "`speed` is no option of `train`"],
    );
    refuse("lr = [\n", &[], &["space.toml", "line"]);
    refuse("lr = [-1]", &[], &["trial 0 (--lr -1)"]);
    refuse(
        "lr = [0.1]",
        &["--save", "x.safetensors"],
        &["--save is of a single run"],
    );
    refuse(
        "lr = [0.1]",
        &["--seeds", "3"],
        &["--seeds is of a single run"],
    );
    refuse("lr = [0.1]", &["--nonsense"], &["trial 0", "--nonsense"]);
}

#[test]
fn a_trial_that_fails_takes_nothing_with_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("space.toml"), "lr = [0.1]\n").unwrap();
    let mut command = halfgnn(&[
        "tune",
        "space.toml",
        "--trials",
        "2",
        "--",
        "--dataset",
        "nowhere.npz",
    ]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("failed: nowhere.npz"), "{shown}");
    refused(&output, 1, &["no trial has a score", "nowhere.npz"]);
}
