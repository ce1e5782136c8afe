//! Optimisers, schedules and clipping, as a person asks for them.

mod common;

use common::ring::{Place, Ring, place};
use common::{events, refused, text};
use halfgnn::ops::{CodeFormat, Optimizer, SgdHyper};
use halfgnn::train::{Checkpoint, Clipping, Decay};
use serde_json::Value;

/// The events of a run of two epochs or as many as are given, after the first.
fn events_of(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let output = place
        .train(&[arguments, &["--json", "-"]].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

fn rates(events: &[Value]) -> Vec<f64> {
    let epochs = events.iter().filter(|event| event["event"] == "epoch");
    epochs
        .map(|event| event["learning_rate"].as_f64().unwrap())
        .collect()
}

#[test]
fn what_was_asked_for_is_told_and_kept() {
    let place = place(&Ring::new());
    let events = events_of(
        &place,
        &[
            "--optimizer",
            "sgd",
            "--momentum",
            "0.9",
            "--nesterov",
            "--lr",
            "0.5",
            "--schedule",
            "step:2,0.5",
            "--warmup",
            "2",
            "--clip-norm",
            "0.25",
            "--epochs",
            "6",
            "--save",
            "kept",
        ],
    );
    let start = &events[0];
    let told = ["optimizer", "learning_rate", "schedule", "clipping"].map(|key| start[key].clone());
    assert_eq!(
        told,
        [
            Value::from("sgd"),
            0.5.into(),
            "step:2,0.5, warm-up of 2".into(),
            "norm 0.25".into()
        ]
    );
    assert_eq!(rates(&events), [0.25, 0.5, 0.5, 0.5, 0.25, 0.25]);
    let kept = Checkpoint::open(&place.folder.path().join("kept")).unwrap();
    let sgd = SgdHyper {
        learning_rate: 0.5,
        momentum: 0.9,
        nesterov: true,
        weight_decay: 5e-4,
    };
    assert_eq!(kept.train.optimizer, Optimizer::Sgd(sgd));
    assert_eq!(kept.train.clipping, Clipping::Norm(0.25));
    let names: Vec<_> = kept.snapshot.tensors.keys().collect();
    assert!(names.iter().any(|name| name.ends_with(".first_moment")));
    assert!(!names.iter().any(|name| name.ends_with(".second_moment")));
}

#[test]
fn messages_of_8_bits_are_told_and_kept() {
    let place = place(&Ring::new());
    let asked = ["--messages", "int8", "--precision", "half", "--epochs", "3"];
    let events = events_of(&place, &[&asked[..], &["--save", "kept"]].concat());
    assert_eq!(events[0]["messages"], "int8");
    let summary = events.iter().find(|event| event["event"] == "summary");
    assert!(summary.expect("it ended")["saturated_messages"].is_u64());
    let kept = Checkpoint::open(&place.folder.path().join("kept")).unwrap();
    assert_eq!(kept.model.messages, Some(CodeFormat::Int8));
    let names: Vec<_> = kept.snapshot.tensors.keys().collect();
    // Those of the best epoch, and those from which a run goes on.
    let scales = |name: &&&String| name.ends_with("messages.scales");
    assert_eq!(names.iter().filter(scales).count(), 2 * kept.model.layers);
    // As they were without.
    assert!(
        events_of(&place, &["--epochs", "1"])[0]
            .get("messages")
            .is_none()
    );
    for (of, way_out) in [
        (["--model", "gatv2"], "leave messages as they are"),
        (["--precision", "float"], "take one of those"),
    ] {
        let asked = [&["--messages", "e4m3"], &of[..]].concat();
        refused(&place.train(&asked).output().unwrap(), 2, &[way_out]);
    }
}

#[test]
fn a_run_goes_on_with_its_schedule() {
    let place = place(&Ring::new());
    let how = [
        "--optimizer",
        "adamw",
        "--schedule",
        "cosine",
        "--clip-value",
        "0.01",
    ];
    let whole = events_of(
        &place,
        &[&how[..], &["--epochs", "6", "--save", "whole"]].concat(),
    );
    // The rates after it are those of the whole run, whose epochs it is given.
    events_of(
        &place,
        &[&how[..], &["--epochs", "3", "--save", "part"]].concat(),
    );
    let part = Checkpoint::open(&place.folder.path().join("part")).unwrap();
    let resumed = events_of(
        &place,
        &["--resume", "part", "--epochs", "6", "--save", "part"],
    );
    assert_eq!(rates(&resumed), rates(&whole)[3..]);
    assert_eq!(part.train.schedule.decay, Decay::Cosine);
}

#[test]
fn another_rate_from_here_on_is_told() {
    let place = place(&Ring::new());
    events_of(&place, &["--epochs", "3", "--save", "kept"]);
    let output = place
        .train(&[
            "--resume",
            "kept",
            "--save",
            "kept",
            "--epochs",
            "5",
            "--lr",
            "0.125",
            "--schedule",
            "plateau:4,0.5",
            "--weight-decay",
            "0",
        ])
        .output()
        .unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        told.contains(
            "from epoch 4 on with a learning rate of 0.125 instead of 0.01, a weight decay of 0 instead of 0.0005, \
             the schedule plateau:4,0.5 instead of constant, 5 epochs in all instead of 3"
        ),
        "{told}"
    );
    let kept = Checkpoint::open(&place.folder.path().join("kept")).unwrap();
    assert_eq!(kept.train.optimizer.learning_rate(), 0.125);
    let last = kept.snapshot.progress.last.unwrap();
    assert_eq!((last.epoch, last.learning_rate), (5, 0.125));
    // What a run cannot go on with, and nothing where nothing is changed.
    let output = place
        .train(&["--resume", "kept", "--optimizer", "sgd"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = place
        .train(&["--resume", "kept", "--lr", "0.125", "--epochs", "5"])
        .output()
        .unwrap();
    assert!(!text(&output.stdout).contains("from epoch"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let place = place(&Ring::new());
    let refuse = |arguments: &[&str], words: &[&str]| {
        refused(&place.train(arguments).output().unwrap(), 2, words);
    };
    refuse(
        &["--momentum", "0.9"],
        &[
            "--momentum is an option of sgd",
            "the optimizer is adam",
            "--optimizer sgd",
        ],
    );
    refuse(
        &["--optimizer", "sgd", "--momentum", "0", "--nesterov"],
        &["--nesterov", "--momentum above 0"],
    );
    for (arguments, words) in [
        (&["--schedule", "step:0,2"][..], "step:EVERY,FACTOR"),
        (&["--clip-norm", "0"], "a number above 0"),
        (
            &["--clip-norm", "1", "--clip-value", "1"],
            "cannot be used with",
        ),
    ] {
        let output = place.train(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert!(error.contains(words), "{error}");
    }
}
