//! Networks of one bit, as a person meets them: told, kept, predicted with, refused where there is none.

mod common;

use common::ring::{Place, Ring, place};
use common::{events, halfgnn, refused, text};
use halfgnn::nn::Binary;
use halfgnn::train::Checkpoint;
use serde_json::Value;

fn events_of(place: &Place, more: &[&str]) -> Vec<Value> {
    let output = place
        .train(&[more, &["--json", "-"]].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

#[test]
fn networks_of_one_bit_learn_and_are_kept() {
    let place = place(&Ring::new());
    for (model, binary, parts) in [
        ("gcn", "full", Binary::Full),
        ("gcn", "bin", Binary::Bin),
        ("sage", "full", Binary::Full),
        ("sage", "bin", Binary::Bin),
    ] {
        let asked = ["--model", model, "--binary", binary, "--save", "kept"];
        let told = events_of(&place, &[&asked[..], &["--epochs", "60"]].concat());
        assert_eq!(told[0]["binary"], binary);
        assert_eq!(told[0]["weight_decay"], 0.0);
        assert_eq!(told[0]["hidden"], if binary == "bin" { 128 } else { 64 });
        let summary = told.last().unwrap();
        let accuracy = summary["test_accuracy"].as_f64().unwrap();
        assert!(accuracy > 99.0, "{model} {binary}: {accuracy} %");
        let path = place.folder.path().join("kept");
        let kept = Checkpoint::open(&path).unwrap();
        assert_eq!(kept.model.binary, Some(parts));
        let names: Vec<_> = kept.snapshot.tensors.keys().collect();
        // No other program takes them for weights that multiply.
        assert!(!names.iter().any(|name| name.ends_with("0.weight")));

        let [dataset, kept, out] = ["ring.npz", "kept", "out.csv"]
            .map(|name| place.folder.path().join(name).display().to_string());
        let predict = ["predict", "--model", &kept, "--dataset", &dataset];
        let output = halfgnn(&[&predict[..], &["--out", &out, "--device", "cpu"]].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let export = ["export", &kept, "--to", "pyg", &out];
        refused(&halfgnn(&export).output().unwrap(), 2, &["of one bit"]);
    }
    let plain = events_of(&place, &["--epochs", "1"]);
    assert!(plain[0].get("binary").is_none());
}

#[test]
fn what_has_no_network_of_one_bit_is_refused() {
    let place = place(&Ring::new());
    for (asked, words) in [
        (
            &["--model", "gat"][..],
            &["the model is gat", "leave --binary out"][..],
        ),
        (
            &["--activation", "relu"],
            &["no activation", "leave it out"],
        ),
        (&["--residual"], &["leave --residual out"]),
        (&["--recompute"], &["leave --recompute out"]),
        (&["--messages", "int8"], &["leave --messages out"]),
        (&["--policy", "post-half"], &["leave --policy out"]),
        (&["--inductive"], &["--inductive", "leave one of them out"]),
        (&["--ranks", "2"], &["--binary"]),
        (
            &["--sampler", "neighbor:2,2", "--batch", "4"],
            &["--sampler", "--binary", "leave one of them out"],
        ),
    ] {
        let asked = [&["--binary", "full", "--epochs", "1"], asked].concat();
        refused(&place.train(&asked).output().unwrap(), 2, words);
    }
    let bin = ["--binary", "bin", "--epochs", "1", "--norm", "both"];
    let words = ["--norm is both", "take --norm right"];
    refused(&place.train(&bin).output().unwrap(), 2, &words);
}
