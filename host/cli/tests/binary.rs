//! Networks of one bit, as a person meets them: reported, saved, predicted with, refused where there is none.

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
        let rate = if binary == "bin" { 0.001 } else { 0.003 };
        assert_eq!(told[0]["learning_rate"].as_f64().unwrap() as f32, rate);
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

        let [bits, again] =
            ["bits", "again.csv"].map(|name| place.folder.path().join(name).display().to_string());
        let export = ["export", &kept, "--to", "bits", &bits];
        let output = halfgnn(&export).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let predict = ["predict", "--model", &bits, "--dataset", &dataset];
        let output = halfgnn(&[&predict[..], &["--out", &again, "--device", "cpu"]].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let read = |path: &str| std::fs::read(path).unwrap();
        assert_eq!(read(&out), read(&again), "{model} {binary}");
        let (large, small) = (read(&kept).len(), read(&bits).len());
        // Of so small a model most is the header.
        assert!(small * 2 < large, "{small} of {large} bytes");
        let resume = ["train", "--dataset", &dataset, "--resume", &bits];
        let words = ["--resume", "to predict with alone", "train --save"];
        refused(&halfgnn(&resume).output().unwrap(), 2, &words);
        damaged_bits_are_refused(&place, &bits);

        let tune = ["tune-binary", "--model", &kept, "--dataset", &dataset];
        let more = ["--runs", "1", "--device", "cpu", "--json", "-"];
        let output = halfgnn(&[&tune[..], &more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = events(&output.stdout);
        let (chosen, variants) = told.split_last().unwrap();
        assert_eq!(chosen["event"], "chosen");
        let names: Vec<_> = variants
            .iter()
            .map(|of| of["binary"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["full,full", "bin,full", "full,bin", "bin,bin"]);
        for variant in variants {
            let is_trained = variant["binary"] == [binary; 2].join(",");
            assert_eq!(variant["is_trained"], is_trained, "{variant}");
            assert!(
                variant["ms"].as_f64().unwrap() > 0.0 && variant["peak_bytes"].as_u64() > Some(0)
            );
            // What was trained is what it was.
            if is_trained {
                assert_eq!(
                    variant["test_accuracy"], summary["test_accuracy"],
                    "{model} {binary}"
                );
            }
        }
    }
    let mixed = ["--binary", "bin,full", "--epochs", "60", "--save", "kept"];
    let told = events_of(&place, &mixed);
    assert_eq!(told[0]["binary"], "bin,full");
    assert!(told.last().unwrap()["test_accuracy"].as_f64().unwrap() > 99.0);
    let plain = events_of(&place, &["--epochs", "1", "--save", "plain"]);
    assert!(plain[0].get("binary").is_none());
    let [dataset, plain, bits] = ["ring.npz", "plain", "bits"]
        .map(|name| place.folder.path().join(name).display().to_string());
    let export = ["export", &plain, "--to", "bits", &bits];
    refused(
        &halfgnn(&export).output().unwrap(),
        2,
        &["no layers of one bit"],
    );
    let tune = ["tune-binary", "--model", &plain, "--dataset", &dataset];
    refused(
        &halfgnn(&tune).output().unwrap(),
        2,
        &["no layers of one bit"],
    );
}

/// Of subgraphs, whose samplers the log names what of them is normalised; and what is kept goes on, is packed and
/// predicts as any.
#[test]
fn networks_of_one_bit_learn_of_subgraphs() {
    let place = place(&Ring::new());
    let path = |name: &str| place.folder.path().join(name).display().to_string();
    let (dataset, out) = (path("ring.npz"), path("out.csv"));
    let losses = |told: &[Value]| -> Vec<(Value, Value)> {
        let epochs = told.iter().filter(|event| event["event"] == "epoch");
        epochs
            .map(|epoch| (epoch["loss"].clone(), epoch["scores"].clone()))
            .collect()
    };
    let samplers = [
        &["saint-node:30"][..],
        &["saint-edge:16"],
        &["saint-rw:8,3"],
        &["saint-mrw:5,30"],
        &["cluster:6", "--batch", "3"],
    ];
    for (number, (model, binary)) in [
        ("gcn", "full"),
        ("gcn", "bin"),
        ("sage", "full"),
        ("sage", "bin"),
    ]
    .into_iter()
    .enumerate()
    {
        for sampler in samplers {
            let asked = ["--model", model, "--binary", binary, "--sampler"];
            let asked = [&asked[..], sampler].concat();
            let told = events_of(&place, &[&asked[..], &["--epochs", "60"]].concat());
            assert_eq!(told[0]["sampler"], sampler[0]);
            let accuracy = told.last().unwrap()["test_accuracy"].as_f64().unwrap();
            assert!(
                accuracy > 80.0,
                "{model} {binary} {sampler:?}: {accuracy} %"
            );
        }
        let sampler = samplers[number];
        let asked = ["--model", model, "--binary", binary, "--sampler"];
        let asked = [&asked[..], sampler].concat();
        let run = |epochs, kept| {
            let more = ["--epochs", epochs, "--save", kept];
            losses(&events_of(&place, &[&asked[..], &more].concat()))
        };
        let whole = run("5", "whole");
        run("2", "kept");
        let rest = ["--resume", "kept", "--epochs", "5", "--save", "kept"];
        assert_eq!(losses(&events_of(&place, &rest)), whole[2..], "{asked:?}");
        let tensors = |name| {
            Checkpoint::open(path(name).as_ref())
                .unwrap()
                .snapshot
                .tensors
        };
        assert_eq!(tensors("kept"), tensors("whole"), "{asked:?}");

        let export = ["export", &path("kept"), "--to", "bits", &path("bits")];
        let output = halfgnn(&export).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let [kept, bits] = ["kept", "bits"].map(|name| {
            let of = ["predict", "--model", &path(name), "--dataset", &dataset];
            let more = ["--out", &out, "--device", "cpu"];
            let output = halfgnn(&[&of[..], &more].concat()).output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            std::fs::read(&out).unwrap()
        });
        assert_eq!(kept, bits, "{asked:?}");
    }
    let (whole, losses) = (
        "by how often edges and vertices are drawn",
        "and not the edges",
    );
    for (binary, words) in [
        ("", whole),
        ("--binary=bin", losses),
        ("--binary=full", losses),
    ] {
        let mut asked = vec!["--sampler", "saint-rw:8,3"];
        asked.extend(Some(binary).filter(|it| !it.is_empty()));
        let more = ["--epochs", "1", "-v"];
        let output = place.train(&[&asked[..], &more].concat()).output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.success() && told.contains(words), "{told}");
    }
}

/// A file that is cut, and one of whose signs is another, are reported in one line.
fn damaged_bits_are_refused(place: &Place, bits: &str) {
    let damaged = place.folder.path().join("damaged").display().to_string();
    let refused_with = |bytes: &[u8], words: &[&str]| {
        std::fs::write(&damaged, bytes).unwrap();
        let dataset = place.folder.path().join("ring.npz").display().to_string();
        let predict = [
            "predict",
            "--model",
            &damaged,
            "--dataset",
            &dataset,
            "--out",
            "none.csv",
        ];
        refused(&halfgnn(&predict).output().unwrap(), 2, words);
    };
    let bytes = std::fs::read(bits).unwrap();
    refused_with(
        &bytes[..bytes.len() - 9],
        &["damaged", "it is no checkpoint"],
    );
    // The tensors lie behind the header, and words of signs before numbers.
    let header = u64::from_le_bytes(std::array::from_fn(|at| bytes[at])) as usize;
    let mut other = bytes.clone();
    other[8 + header] ^= 1;
    refused_with(&other, &["binary_weight` is damaged"]);
}

#[test]
fn features_of_one_bit_are_packed_and_others_named() {
    let place = place(&Ring::new());
    let [dataset, npz, matrix] = ["ring.npz", "bits.npz", "bits.mtx"]
        .map(|name| place.folder.path().join(name).display().to_string());
    let convert = |from: &str, to: &str| {
        let command = ["dataset", "convert", from, to, "--features", "bits"];
        halfgnn(&command).output().unwrap()
    };
    let words = ["--features bits is of PyG's archive"];
    refused(&convert(&dataset, &matrix), 2, &words);
    let words = ["features: vertex 0, column", "leave --features bits out"];
    refused(&convert("blocks:50", &npz), 2, &words);
    assert!(!std::path::Path::new(&npz).exists());

    // The ring's are zeros and ones.
    let output = convert(&dataset, &npz);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let last = |dataset: &str| {
        let train = [
            "train",
            "--dataset",
            dataset,
            "--epochs",
            "3",
            "--device",
            "cpu",
        ];
        let output = halfgnn(&[&train[..], &["--json", "-"]].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = events(&output.stdout);
        let epochs = told.iter().filter(|event| event["event"] == "epoch");
        epochs
            .map(|event| event["loss"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(last(&dataset), last(&npz));
    assert_eq!(last(&npz).len(), 3);
}

#[test]
fn predictions_of_packed_features_are_those_of_numbers() {
    let place = place(&Ring::new());
    let path = |name: &str| place.folder.path().join(name).display().to_string();
    let convert = ["dataset", "convert", &path("ring.npz"), &path("bits.npz")];
    let output = halfgnn(&[&convert[..], &["--features", "bits"]].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (model, binary) in [("gcn", "bin"), ("sage", "bin"), ("gcn", "full")] {
        let asked = ["--model", model, "--binary", binary, "--save", "kept"];
        events_of(&place, &[&asked[..], &["--epochs", "5"]].concat());
        let kept = path("kept");
        let predict = |dataset: &str, more: &[&str]| {
            let out = path("out.npy");
            let command = ["predict", "--model", &kept, "--dataset", &path(dataset)];
            let more = [&["--out", &out, "--device", "cpu"], more].concat();
            let output = halfgnn(&[&command[..], &more].concat()).output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            (text(&output.stdout).to_owned(), std::fs::read(out).unwrap())
        };
        let tells = |told: &str| told.contains("of signs, since the model reads no more of them");
        for wanted in [&["--logits"][..], &["--layer", "1"]] {
            let (told, expected) = predict("ring.npz", wanted);
            assert!(!tells(&told), "{told}");
            let (told, found) = predict("bits.npz", wanted);
            assert_eq!(tells(&told), binary == "bin", "{told}");
            assert!(found == expected, "{model} {binary} {wanted:?}");
            let on_host = [wanted, &["--features", "host"]].concat();
            let (told, found) = predict("bits.npz", &on_host);
            assert!(!tells(&told), "{told}");
            assert!(
                found == expected,
                "{model} {binary} {wanted:?} from the host"
            );
        }
    }
}

/// The magnitudes of rows are those of the weights, which half has not: kept in bits, they are not rounded to it once
/// more.
#[test]
fn bits_predict_what_the_weights_do() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut program = halfgnn(arguments);
        let output = program.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let of = ["--dataset", "blocks:300", "--device", "cpu"];
    for (model, binary) in [
        ("gcn", "full"),
        ("gcn", "bin"),
        ("sage", "full"),
        ("sage", "bin"),
    ] {
        for precision in ["half", "bf16", "float"] {
            let asked = [
                "--model",
                model,
                "--binary",
                binary,
                "--precision",
                precision,
            ];
            let more = ["--epochs", "2", "--save", "kept"];
            run(&[&["train"][..], &of, &asked, &more].concat());
            run(&["export", "kept", "--to", "bits", "bits"]);
            let logits = |of_model: &str| {
                let asked = ["--model", of_model, "--out", "out.csv", "--logits"];
                run(&[&["predict"][..], &of, &asked].concat());
                std::fs::read(folder.path().join("out.csv")).unwrap()
            };
            assert!(
                logits("kept") == logits("bits"),
                "{model} {binary} {precision}"
            );
        }
    }
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
        (&["--hidden-norm", "layer"], &["leave --hidden-norm out"]),
        (
            &["--store", "eight-bit"],
            &["layers of one bit", "leave store out"],
        ),
        (&["--messages", "int8"], &["leave --messages out"]),
        (&["--policy", "post-half"], &["leave --policy out"]),
        (&["--inductive"], &["--inductive", "leave one of them out"]),
        (&["--ranks", "2"], &["--binary"]),
        (
            &["--sampler", "neighbor:2,2", "--batch", "4"],
            &[
                "--sampler neighbor:2,2",
                "a row for each that they read",
                "saint-rw:2000,4, or leave --binary out",
            ],
        ),
    ] {
        let asked = [&["--binary", "full", "--epochs", "1"], asked].concat();
        refused(&place.train(&asked).output().unwrap(), 2, words);
    }
    let bin = ["--binary", "bin", "--epochs", "1", "--norm", "both"];
    let words = ["--norm is both", "take --norm right"];
    refused(&place.train(&bin).output().unwrap(), 2, &words);
}
