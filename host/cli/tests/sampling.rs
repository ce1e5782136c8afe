//! Training in batches, as a person asks for it.

mod common;

use common::ring::{Place, Ring, place};
use common::{events, halfgnn, refused, text};
use halfgnn::train::Checkpoint;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

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

/// Features that stay in the host's memory train as those of the device do, and everybody is told where they are.
/// A run that is evaluated in pieces, and what it predicts, are those of the whole graph; and the events say which it was.
#[test]
fn a_graph_is_evaluated_in_pieces() {
    let place = place(&Ring::new());
    let run = |arguments: &[&str]| {
        halfgnn(arguments)
            .current_dir(place.folder.path())
            .output()
            .unwrap()
    };
    let train = |more: &[&str]| {
        let shape = [
            "train",
            "--dataset",
            "ring.npz",
            "--layers",
            "2",
            "--epochs",
            "2",
            "--model",
            "sage",
        ];
        run(&[&shape[..], more].concat())
    };
    let batches = ["--sampler", "neighbor:2,1", "--batch", "4"];
    let kept = |pieces, file| {
        let output = train(&[&batches[..], &["--pieces", pieces, "--save", file]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let line = "evaluation: layer by layer in 3 pieces of the graph, each with all neighbours";
    assert!(kept("3", "three").contains(line));
    assert!(!kept("auto", "whole").contains("evaluation:"));
    let predict = |model, pieces, device| {
        let options = [
            "predict",
            "--dataset",
            "ring.npz",
            "--model",
            model,
            "--pieces",
            pieces,
            "--device",
            device,
            "--out",
            "classes.npy",
            "--json",
            "-",
        ];
        let output = run(&options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let event = of(&events(&output.stdout), "prediction")[0].clone();
        let classes = std::fs::read(place.folder.path().join("classes.npy")).unwrap();
        (event.get("pieces").cloned(), classes)
    };
    let (told, expected) = predict("whole", "auto", "cpu");
    assert_eq!(told, None);
    for device in ["cpu", "emulator"] {
        let (told, classes) = predict("three", "7", device);
        assert_eq!(told, Some(7.into()));
        assert!(classes == expected, "{device}");
    }
    // Embeddings of a layer are kept of the pass.
    let embeddings = |pieces, out| {
        let options = [
            "predict",
            "--dataset",
            "ring.npz",
            "--model",
            "three",
            "--layer",
            "1",
            "--pieces",
            pieces,
            "--device",
            "cpu",
            "--out",
            out,
        ];
        let output = run(&options);
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read(place.folder.path().join(out)).unwrap()
    };
    assert_eq!(
        embeddings("4", "a.npy").len(),
        embeddings("1", "b.npy").len()
    );
    for (arguments, why) in [
        (&["--pieces", "2"][..], "steps are on the whole graph"),
        (
            &["--pieces", "2", "--ranks", "2"],
            "--pieces is trained by one rank",
        ),
        (&["--pieces", "0"], "it must be auto, or a number from 1 on"),
    ] {
        let output = train(arguments);
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{told}");
    }
}

#[test]
fn features_may_stay_on_the_host() {
    let place = place(&Ring::new());
    let train = |device: &str, more: &[&str]| {
        let shape = [
            "train",
            "--dataset",
            "ring.npz",
            "--layers",
            "2",
            "--epochs",
            "2",
        ];
        let output = halfgnn(&[&shape[..], &["--device", device], more].concat())
            .current_dir(place.folder.path())
            .output()
            .unwrap();
        (output.status.success(), output)
    };
    let batches = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "4",
        "--model",
        "sage",
    ];
    let with = |more: &[&str]| {
        let (done, output) = train("emulator", &[more, &["--json", "-"]].concat());
        assert!(done, "{}", text(&output.stderr));
        events(&output.stdout)
    };
    let peak = |events: &[Value]| of(events, "summary")[0]["peak_bytes_by_kind"].clone();
    for more in [&[][..], &batches] {
        let on_device = with(more);
        let on_host = with(&[more, &["--features", "host"]].concat());
        assert_eq!(told(&on_host), told(&on_device));
        // 40 vertices, 3 features in half that take a vector.
        assert_eq!(peak(&on_host)["host_features"], 40 * 8 * 2);
        assert!(peak(&on_device).get("host_features").is_none());
        let features = [&on_host, &on_device].map(|events| peak(events)["features"].as_u64());
        assert!(features[0] < features[1], "{features:?}");
    }
    let (done, output) = train("emulator", &["--features", "host", "--save", "kept"]);
    let line = "features: 640 B in the host's memory, from where the card reads them";
    assert!(done && text(&output.stdout).contains(line), "{output:?}");
    let (done, output) = train("cpu", &["--features", "host"]);
    let on_cpu = "features: in the host's memory, as all is on a CPU";
    assert!(done && text(&output.stdout).contains(on_cpu), "{output:?}");
    let (_, output) = train("cpu", &["--features", "host", "--ranks", "2"]);
    refused(&output, 2, &["--features host"]);

    let predicted = |features: &str, out: &str| {
        let model = ["predict", "--model", "kept", "--dataset", "ring.npz"];
        let more = ["--device", "emulator", "--features", features, "--out", out];
        let output = halfgnn(&[&model[..], &more].concat())
            .current_dir(place.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = std::fs::read(place.folder.path().join(out)).unwrap();
        (text(&output.stdout).to_owned(), file)
    };
    let ((out, on_host), (other, on_device)) =
        (predicted("host", "a.npy"), predicted("auto", "b.npy"));
    assert!(out.contains(line) && !other.contains(line), "{out}{other}");
    assert_eq!(on_host, on_device);
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

#[test]
fn subgraphs_of_every_task_repeat_and_are_resumed() {
    let place = place(&Ring::new());
    for sampler in SUBGRAPHS {
        let batches = [&["--layers", "2", "--sampler"], sampler].concat();
        for task in [
            &["--task", "multi-label"][..],
            &["--task", "regression"],
            &["--class-weights", "balanced"],
        ] {
            let more = [&batches[..], task, &["--epochs", "3"]].concat();
            let losses = told(&run(&place, &more));
            assert!(
                losses.iter().all(|(loss, _)| loss.is_f64()),
                "{task:?}: {losses:?}"
            );
            assert_eq!(losses, told(&run(&place, &more)), "{task:?} {sampler:?}");
        }
        let epochs = |epochs, file| [&batches[..], &["--epochs", epochs, "--save", file]].concat();
        let whole = told(&run(&place, &epochs("5", "whole")));
        run(&place, &epochs("2", "part"));
        let rest = run(
            &place,
            &["--resume", "part", "--epochs", "5", "--save", "part"],
        );
        assert_eq!(told(&rest), whole[2..], "{sampler:?}");
    }
}

/// Of whole neighbourhoods and one batch the mean over neighbours is the graph's, so the losses are; of fewer they are others.
#[test]
fn a_batch_of_everything_is_the_graph() {
    // Every vertex is another, so that it shows which neighbours are drawn.
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
    // No two training vertices are neighbours, so that nothing is left to be drawn.
    let of = |more: &[&str]| told(&run(&place, &[&batches[..], more].concat()));
    assert_ne!(of(&[]), of(&["--inductive"]));
}

#[test]
fn a_resumed_run_goes_on_in_its_batches() {
    let place = place(&Ring::new());
    let batches = ["--sampler", "neighbor:1,2", "--batch", "2", "--layers", "2"];
    let epochs = |epochs, file| [&batches[..], &["--epochs", epochs, "--save", file]].concat();
    let whole = told(&run(&place, &epochs("6", "whole")));
    run(&place, &epochs("2", "part"));
    let rest = run(
        &place,
        &["--resume", "part", "--epochs", "6", "--save", "part"],
    );
    assert_eq!(of(&rest, "start")[0]["sampler"], "neighbor:1,2");
    assert_eq!(told(&rest), whole[2..]);
    let tensors = |file| {
        let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
        checkpoint.snapshot.tensors
    };
    assert_eq!(tensors("part"), tensors("whole"));
}

/// Ctrl-C leaves an epoch between two batches; the file has how far it came, and the run goes on to the same bits.
#[test]
#[cfg(unix)]
fn a_run_is_left_and_taken_up_between_batches() {
    let place = place(&Ring::new());
    let batches = ["--sampler", "neighbor:2,2", "--batch", "1", "--layers", "2"];
    let long = [
        "--save",
        "kept",
        "--save-every",
        "1",
        "--epochs",
        "1000000",
        "--json",
        "kept.jsonl",
    ];
    let kept = place.folder.path().join("kept");
    let mut parts = 0;
    for _ in 0..20 {
        let mut child = place
            .train(&[&batches[..], &long].concat())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while Checkpoint::open(&kept).is_err() {
            assert!(Instant::now() < deadline, "nothing was kept");
        }
        let interrupt = std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(interrupt.unwrap().success());
        assert!(child.wait().unwrap().success());
        let progress = Checkpoint::open(&kept).unwrap().snapshot.progress;
        if let Some(part) = progress.part {
            parts += 1;
            assert!((1..6).contains(&part.batches), "{part:?}");
            let epochs = (progress.epoch + 2).to_string();
            run(
                &place,
                &["--resume", "kept", "--epochs", &epochs, "--save", "kept"],
            );
            run(
                &place,
                &[&batches[..], &["--epochs", &epochs, "--save", "whole"]].concat(),
            );
            let tensors = |file| {
                let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
                let resume = checkpoint.snapshot.tensors.into_iter();
                resume
                    .filter(|(name, _)| name.starts_with("resume."))
                    .collect::<Vec<_>>()
            };
            assert_eq!(tensors("kept"), tensors("whole"));
            break;
        }
        std::fs::remove_file(&kept).unwrap();
    }
    assert!(parts > 0, "each of 20 runs was left at the end of an epoch");
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
            "wants 2 numbers from 1 on, as in saint-rw:2000,4",
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

/// A run of the ring in parts, whose features stay on disk, is that of features in memory, to the bit; so is what it predicts. What
/// cannot be read from disk is refused in a line that says what can.
#[test]
fn features_stay_on_disk() {
    fn train<'a>(dataset: &'a str, features: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let shape = [
            "train",
            "--dataset",
            dataset,
            "--layers",
            "2",
            "--epochs",
            "3",
            "--device",
            "cpu",
            "--scale-features",
            "--features",
            features,
        ];
        [&shape[..], more].concat()
    }
    let mut ring = Ring::new();
    ring.values = (1..=40).map(|value| value as f32 * 37.0 / 3.0).collect();
    let place = place(&ring);
    let run = |arguments: &[&str]| {
        halfgnn(arguments)
            .current_dir(place.folder.path())
            .output()
            .unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let cut = ["dataset", "partition", "ring.npz", "--out", "ring.parts"];
    done(&[&cut[..], &["--parts", "3", "--feature-precision", "float"]].concat());
    for of in [
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "sage",
        ][..],
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "gcn",
            "--precision",
            "bf16",
            "--inductive",
        ],
        &[
            "--sampler",
            "saint-rw:4,2",
            "--model",
            "gat",
            "--precision",
            "float",
        ],
        &[
            "--sampler",
            "cluster:5",
            "--batch",
            "2",
            "--reorder",
            "degree",
            "--model",
            "gcnii",
        ],
    ] {
        let kept = ["--pieces", "2", "--save"];
        let course = |features, file| {
            let json = ["--json", "-"];
            let arguments = train(
                "ring.parts",
                features,
                &[of, &kept, &[file], &json].concat(),
            );
            let output = run(&arguments);
            assert!(output.status.success(), "{of:?}: {}", text(&output.stderr));
            let weights = Checkpoint::open(&place.folder.path().join(file)).unwrap();
            (told(&events(&output.stdout)), weights.snapshot.tensors)
        };
        assert_eq!(
            course("disk", "disk.kept"),
            course("host", "host.kept"),
            "{of:?}"
        );
    }
    let neighbours = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "2",
        "--model",
        "sage",
    ];
    let kept = [&neighbours[..], &["--save", "kept"]].concat();
    let lines = done(&train("ring.parts", "disk", &kept));
    assert!(
        lines.contains("features: 480 B on disk, from where rows are read that are wanted"),
        "{lines}"
    );
    assert!(!lines.contains("evaluation:"), "{lines}");

    let predict = |features, dataset, device| {
        let arguments = [
            "predict",
            "--dataset",
            dataset,
            "--model",
            "kept",
            "--out",
            "logits.npy",
            "--logits",
            "--features",
            features,
            "--device",
            device,
        ];
        (run(&arguments), place.folder.path().join("logits.npy"))
    };
    let logits = |features, device| {
        let (output, file) = predict(features, "ring.parts", device);
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read(file).unwrap()
    };
    for device in ["cpu", "emulator"] {
        assert_eq!(logits("disk", device), logits("host", device), "{device}");
    }

    let partition = "`halfgnn dataset partition ring.npz --out FOLDER`";
    refused(
        &run(&train("ring.npz", "disk", &neighbours)),
        2,
        &[partition],
    );
    refused(&predict("disk", "ring.npz", "cpu").0, 2, &[partition]);
    let recipe = "`halfgnn dataset partition kron:8 --out FOLDER`";
    refused(&run(&train("kron:8", "disk", &neighbours)), 2, &[recipe]);
    refused(
        &run(&train("ring.parts", "disk", &[])),
        2,
        &["--features disk: a step on the whole graph", "--sampler"],
    );
    let bn = [
        "--sampler",
        "neighbor:2,1",
        "--batch",
        "2",
        "--model",
        "gin",
    ];
    refused(
        &run(&train("ring.parts", "disk", &bn)),
        2,
        &["--features disk:", "--features host"],
    );
    let part = place.folder.path().join("ring.parts/part-00001.bin");
    let file = std::fs::OpenOptions::new().write(true).open(part).unwrap();
    file.set_len(400).unwrap();
    let before = place.files();
    let cut = [&neighbours[..], &["--save", "never"]].concat();
    refused(
        &run(&train("ring.parts", "disk", &cut)),
        2,
        &["part-00001.bin: length"],
    );
    assert_eq!(place.files(), before);
}

/// What a run in batches takes is told before its first step, and is about what it takes.
#[test]
fn the_memory_of_batches_is_foretold() {
    let place = place(&Ring::new());
    for of in [
        &[
            "--sampler",
            "neighbor:2,1",
            "--batch",
            "2",
            "--model",
            "sage",
        ][..],
        &["--sampler", "saint-rw:4,2", "--model", "gcn"],
        &[
            "--sampler",
            "cluster:5",
            "--batch",
            "2",
            "--model",
            "sage",
            "--precision",
            "float",
        ],
    ] {
        for device in ["cpu", "emulator"] {
            let more = [
                "--layers", "2", "--epochs", "2", "--hidden", "256", "--device", device,
            ];
            let output = halfgnn(&["train", "--dataset", "ring.npz", "--json", "-"])
                .args([of, &more].concat())
                .current_dir(place.folder.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            let events = events(&output.stdout);
            let kinds: Vec<_> = events.iter().map(|event| &event["event"]).collect();
            let told = kinds.iter().position(|kind| *kind == "memory").unwrap();
            assert!(told < kinds.iter().position(|kind| *kind == "epoch").unwrap());
            let (told, summary) = (&events[told], of_kind(&events, "summary"));
            let [told_bytes, peak] = [&told["foretold_bytes"], &summary["peak_bytes"]]
                .map(|bytes| bytes.as_u64().unwrap());
            // Two clusters that are drawn are smaller than the two largest, which are counted.
            assert!(
                told_bytes >= peak && told_bytes <= peak * 5 / 3,
                "{of:?} on {device}: {told} {summary}"
            );
            assert!(told["batch_bytes"].as_u64().unwrap() > 0);
            let vertices = told["batch_vertices"].as_u64().unwrap();
            assert!((2..=180).contains(&vertices), "{told}");
        }
    }
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    of(events, kind)[0]
}
