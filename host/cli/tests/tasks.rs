//! Tasks and metrics other than the accuracy of one class: what a person asks for is what is trained and reported.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use serde_json::Value;

fn run(place: &Place, more: &[&str]) -> Vec<Value> {
    let common = ["--precision", "float", "--dropout", "0", "--json", "-"];
    let output = place.train(&[&common, more].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["event"] == kind)
        .collect()
}

#[test]
fn numbers_are_told_by_a_regression() {
    let place = place(&Ring::new());
    for (loss, name) in [("mse", "squared error"), ("mae", "absolute error")] {
        let events = run(
            &place,
            &[
                "--task",
                "regression",
                "--loss",
                loss,
                "--epochs",
                "150",
                "--metrics",
                "rmse,r2",
            ],
        );
        let start = of(&events, "start")[0];
        assert_eq!(
            (&start["task"], &start["loss"]),
            (&"values".into(), &name.into())
        );
        assert_eq!(start["classes"], 1);
        let told = start["preparation"].to_string();
        assert!(
            told.contains("a class of each vertex taken as numbers of each vertex"),
            "{told}"
        );
        let last = *of(&events, "epoch").last().unwrap();
        assert_eq!(last["metric"], "mae");
        assert!(last.get("test_accuracy").is_none(), "{last}");
        let score = |name: &str| last["scores"][name]["test"].as_f64().unwrap();
        assert!(
            score("mae") < 0.2 && score("rmse") < 0.3 && score("r2") > 0.7,
            "{last}"
        );
        assert!(score("mae") <= score("rmse"));
        let summary = of(&events, "summary")[0];
        assert_eq!(summary["metric"], "mae");
        // The best epoch is that of the smallest error.
        let validation = |event: &&Value| event["scores"]["mae"]["validation"].as_f64().unwrap();
        let epochs = of(&events, "epoch");
        let least = epochs.iter().map(validation).fold(f64::INFINITY, f64::min);
        let best = of(&events, "run")[0]["best_epoch"].as_u64().unwrap();
        assert_eq!(validation(&epochs[best as usize - 1]), least);
    }
}

#[test]
fn labels_are_told_one_by_one() {
    let place = place(&Ring::new());
    let events = run(
        &place,
        &[
            "--task",
            "multi-label",
            "--pos-weight",
            "balanced",
            "--metric",
            "roc-auc",
            "--metrics",
            "micro-f1,macro-f1,average-precision",
            "--epochs",
            "60",
        ],
    );
    let start = of(&events, "start")[0];
    assert_eq!(
        (&start["task"], &start["loss"]),
        (&"labels".into(), &"binary cross-entropy".into())
    );
    let summary = of(&events, "summary")[0];
    assert_eq!(summary["metric"], "roc-auc");
    let scores = summary["test_scores"].as_object().unwrap();
    assert_eq!(
        scores.keys().collect::<Vec<_>>(),
        ["average-precision", "macro-f1", "micro-f1", "roc-auc"]
    );
    assert_eq!(scores["roc-auc"]["mean"], 100.0);
}

#[test]
fn another_metric_chooses_and_classes_have_weights() {
    let place = place(&Ring::new());
    let output = place
        .train(&[
            "--class-weights",
            "balanced",
            "--metric",
            "macro-f1",
            "--metrics",
            "accuracy",
            "--epochs",
            "20",
        ])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in [
        "test macro-f1, best validation epoch (%)",
        "test accuracy, best validation epoch (%)",
    ] {
        assert!(said.contains(line), "{said}");
    }
    // A class that counts nothing is not learnt.
    let loss = |weights: &str| {
        let events = run(&place, &["--class-weights", weights, "--epochs", "100"]);
        of(&events, "epoch").last().unwrap()["test_accuracy"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(loss("1,0"), 50.0);
    assert_eq!(loss("1,1"), 100.0);
}

#[test]
fn inductive_training_sees_the_training_vertices_alone() {
    let first_loss = |place: &Place, more: &[&str]| {
        let events = run(place, &[&["--epochs", "1"], more].concat());
        of(&events, "epoch")[0]["loss"].as_f64().unwrap()
    };
    // Every vertex aggregates two of the other class; no two training vertices are neighbours, so what is left are
    // self-loops.
    let mut crossed = Ring::new();
    let neighbours = |v: i32| [(v + 19) % VERTICES, (v + 21) % VERTICES];
    crossed.columns = (0..VERTICES).flat_map(neighbours).collect();
    let whole = place(&crossed);
    let mut alone = Ring::new();
    alone.columns = (0..VERTICES).flat_map(|v| [v, v]).collect();
    let alone = place(&alone);
    let inductive = first_loss(&whole, &["--inductive"]);
    assert_eq!(inductive, first_loss(&alone, &[]));
    assert_ne!(inductive, first_loss(&whole, &[]));
    let events = run(&whole, &["--inductive", "--layers", "1", "--epochs", "60"]);
    let told = of(&events, "start")[0]["preparation"].to_string();
    assert!(
        told.contains("training sees the subgraph of the training vertices alone"),
        "{told}"
    );
    // What it has learnt of vertices alone is wrong of those that aggregate the others.
    let last = |events: &[Value]| of(events, "summary")[0]["test_accuracy_last"].clone();
    assert_eq!(last(&events), 0.0);
    assert_eq!(
        last(&run(&whole, &["--layers", "1", "--epochs", "60"])),
        100.0
    );
}

#[test]
fn links_are_told_from_other_pairs() {
    let train = |more: &[&str]| {
        let output = halfgnn(&[
            "train",
            "--device",
            "cpu",
            "--dataset",
            "blocks:600",
            "--task",
            "link",
            "--hidden",
            "32",
            "--embedding",
            "8",
            "--dropout",
            "0",
            "--weight-decay",
            "0",
            "--epochs",
            "60",
            "--metrics",
            "average-precision,mrr,hits@20",
            "--precision",
            "float",
            "--json",
            "-",
        ])
        .args(more)
        .output()
        .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        events(&output.stdout)
    };
    let events = train(&[]);
    let start = of(&events, "start")[0];
    assert_eq!(
        (&start["task"], &start["classes"]),
        (&"links".into(), &8.into())
    );
    let told = start["preparation"].to_string();
    assert!(told.contains("links to learn from"), "{told}");
    let scores = &of(&events, "summary")[0]["test_scores"];
    assert!(
        scores["roc-auc"]["mean"].as_f64().unwrap() > 65.0,
        "{scores}"
    );
    assert!(
        scores["hits@20"]["mean"].as_f64().unwrap() > 0.0,
        "{scores}"
    );
    let losses = |events: &[Value]| {
        of(events, "epoch")
            .iter()
            .map(|e| e["loss"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(&train(&[])), losses(&events));
}

/// A model of links is saved, goes on, and scores pairs under the ids of a table and by number.
#[test]
fn links_are_kept_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = halfgnn(arguments);
        command.current_dir(folder.path()).output().unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout).to_owned()
    };
    fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
        let common = ["train", "--device", "cpu", "--dataset", "blocks:600"];
        [&common[..], more].concat()
    }
    let links = [
        "--task",
        "link",
        "--embedding",
        "8",
        "--seed",
        "5",
        "--precision",
        "float",
    ];
    let kept = |name: &'static str, epochs: &'static str| {
        done(&train(
            &[&links[..], &["--epochs", epochs, "--save", name]].concat(),
        ));
    };
    kept("whole", "9");
    kept("part", "4");
    done(&train(&[
        "--resume", "part", "--save", "part", "--epochs", "9",
    ]));
    let [whole, part] = ["whole", "part"]
        .map(|name| halfgnn::train::Checkpoint::open(folder.path().join(name).as_path()).unwrap());
    assert_eq!(
        whole.links.map(|links| (links.shares, links.seed)),
        Some(([0.05, 0.1], 5))
    );
    assert_eq!(part.snapshot.tensors, whole.snapshot.tensors);
    // Of another graph it cannot go on.
    let other = [
        "train",
        "--device",
        "cpu",
        "--dataset",
        "blocks:700",
        "--resume",
        "part",
    ];
    refused(&run(&other), 2, &["it was trained on", "vertices"]);

    fn predict<'a>(more: &[&'a str]) -> Vec<&'a str> {
        let common = ["predict", "--device", "cpu", "--model", "whole"];
        [&common[..], &["--dataset", "blocks:600"], more].concat()
    }
    std::fs::write(path("pairs.csv"), "from,to\n0,1\n599, 3\n1,0\n").unwrap();
    std::fs::write(path("pairs.tsv"), "0\t1\n599\t3\n").unwrap();
    done(&predict(&[
        "--pairs",
        "pairs.csv",
        "--out",
        "out.csv",
        "--json",
        "told.jsonl",
    ]));
    let out = std::fs::read_to_string(path("out.csv")).unwrap();
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0], ["source", "target", "score", "probability"]);
    assert_eq!(lines[2][..2], ["599", "3"]);
    assert_eq!((lines.len(), &lines[1][2..]), (4, &lines[3][2..]));
    // What the rows of the last layer say.
    done(&predict(&["--layer", "2", "--out", "rows.csv"]));
    let rows = std::fs::read_to_string(path("rows.csv")).unwrap();
    let row = |vertex: usize| -> Vec<f64> {
        let line = rows.lines().nth(vertex + 1).unwrap();
        line.split(',')
            .skip(1)
            .map(|cell| cell.parse().unwrap())
            .collect()
    };
    for line in &lines[1..] {
        let number = |at: usize| line[at].parse::<f64>().unwrap();
        let [a, b] = [0, 1].map(|at| row(number(at) as usize));
        assert_eq!(a.len(), 8);
        let dot: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
        assert!(
            (number(2) - dot).abs() < 1e-5 * dot.abs().max(1.0),
            "{line:?}: {dot}"
        );
        let probability = 1.0 / (1.0 + (-dot).exp());
        assert!((number(3) - probability).abs() < 1e-5, "{line:?}");
    }
    let told = std::fs::read(path("told.jsonl")).unwrap();
    let told = events(&told);
    let last = of(&told, "prediction")[0];
    assert_eq!(
        (&last["written"], &last["pairs"]),
        (&"links".into(), &3.into())
    );
    done(&predict(&["--pairs", "pairs.tsv", "--out", "out.npy"]));
    let array = std::fs::read(path("out.npy")).unwrap();
    assert!(array.len() > 16 && array[array.len() - 16..].iter().any(|&byte| byte != 0));

    for (file, content, word) in [
        ("three", "0,1,2\n", "line 1 has 3 cells"),
        ("far", "0,1\n0,600\n", "line 2: `600` is no vertex of"),
        ("half", "0,to\n", "line 1: `to` is no vertex of"),
        ("none", "from,to\n", "it has no pairs"),
    ] {
        std::fs::write(path(file), content).unwrap();
        refused(
            &run(&predict(&["--pairs", file, "--out", "x.csv"])),
            2,
            &[word],
        );
    }
    let words = ["its model tells links", "--pairs FILE", "--layer 2"];
    refused(&run(&predict(&["--out", "x.csv"])), 2, &words);
    refused(&run(&predict(&["--out", "x.csv", "--logits"])), 2, &words);
    done(&train(&["--epochs", "1", "--save", "classes"]));
    let of_classes = [
        "predict",
        "--device",
        "cpu",
        "--model",
        "classes",
        "--dataset",
        "blocks:600",
    ];
    let asked = ["--pairs", "pairs.csv", "--out", "x.csv"];
    let told = run(&[&of_classes[..], &asked].concat());
    refused(
        &told,
        2,
        &["--pairs is of models that tell links", "leave it out"],
    );
}

/// Decoders that learn are kept, go on with the same bits, and score pairs of their two orders alike, in any order of
/// the vertices.
#[test]
fn decoders_of_links_are_kept_and_tell_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let run = |arguments: &[&str]| {
        let common = ["--device", "cpu", "--dataset", "blocks:600"];
        let mut command = halfgnn(&[&arguments[..1], &common, &arguments[1..]].concat());
        command.current_dir(folder.path()).output().unwrap()
    };
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout).to_owned()
    };
    std::fs::write(path("pairs.csv"), "0,1\n599,3\n1,0\n3,599\n").unwrap();
    for (decoder, precision, tensors) in [
        ("bilinear", "float", 1),
        ("mlp", "float", 5),
        ("bilinear", "half", 1),
        ("mlp", "half", 5),
        ("mlp", "bf16", 5),
    ] {
        let train = |file: &str, epochs: &str| {
            done(&[
                "train",
                "--task",
                "link",
                "--decoder",
                decoder,
                "--embedding",
                "8",
                "--seed",
                "5",
                "--precision",
                precision,
                "--epochs",
                epochs,
                "--save",
                file,
                "--json",
                "log.jsonl",
            ])
        };
        let told = train("whole", "9");
        assert!(
            told.contains(&format!("a decoder that learns, {decoder}")),
            "{told}"
        );
        let log = events(&std::fs::read(path("log.jsonl")).unwrap());
        assert_eq!(of(&log, "start")[0]["decoder"], decoder);
        train("part", "4");
        done(&[
            "train", "--resume", "part", "--save", "part", "--epochs", "9",
        ]);
        let [whole, part] =
            ["whole", "part"].map(|name| halfgnn::train::Checkpoint::open(&path(name)).unwrap());
        assert_eq!(whole.model.decoder.name(), decoder);
        assert_eq!(part.snapshot.tensors, whole.snapshot.tensors);
        let own = |name: &&String| name.starts_with("decoder.");
        let own = whole.snapshot.tensors.keys().filter(own);
        assert_eq!(own.count(), tensors);
        // They have learnt.
        train("begun", "1");
        let begun = halfgnn::train::Checkpoint::open(&path("begun")).unwrap();
        for (name, tensor) in &whole.snapshot.tensors {
            if name.starts_with("resume.decoder.") {
                assert_ne!(&begun.snapshot.tensors[name], tensor, "{decoder}: {name}");
            }
        }

        let tell = |more: &[&str]| -> Vec<f32> {
            let common = ["predict", "--model", "whole", "--pairs", "pairs.csv"];
            done(&[&common[..], &["--out", "out.csv"], more].concat());
            let out = std::fs::read_to_string(path("out.csv")).unwrap();
            let scores = out.lines().skip(1);
            let score = |line: &str| line.split(',').nth(2).unwrap().parse().unwrap();
            scores.map(score).collect()
        };
        let scores = tell(&[]);
        assert_eq!(scores[..2], scores[2..], "{decoder}");
        assert_ne!(scores[0], scores[1], "{decoder}");
        if precision == "float" {
            let reordered = tell(&["--reorder", "degree"]);
            for (score, again) in scores.iter().zip(&reordered) {
                let off = (score - again).abs();
                assert!(off < 1e-4 * score.abs().max(0.1), "{score} for {again}");
            }
        }
    }
    let other = ["train", "--resume", "part", "--decoder", "dot"];
    refused(&run(&other), 2, &["leave the options of the task out"]);
    let none = ["train", "--decoder", "mlp"];
    refused(&run(&none), 2, &["--decoder is of --task link"]);
}

#[test]
fn what_does_not_fit_the_task_is_refused() {
    let place = place(&Ring::new());
    for (arguments, words) in [
        (
            &["--metric", "r2"][..],
            &["r2 is no metric of a class of each vertex", "take accuracy"][..],
        ),
        (&["--metric", "f1"], &["`f1` is no metric; take accuracy"]),
        (
            &["--loss", "mae"],
            &["--loss is of --task regression", "leave one of them out"],
        ),
        (
            &["--class-weights", "1,2,3"],
            &["there are 3 weights, and 2 classes"],
        ),
        (&["--class-weights", "x"], &["`balanced`"]),
        (
            &["--task", "link", "--inductive"],
            &["--inductive", "leave it out"],
        ),
        (
            &["--task", "link", "--metric", "accuracy"],
            &["accuracy is no metric of links; take roc-auc"],
        ),
        (&["--embedding", "8"], &["--embedding is of --task link"]),
    ] {
        let output = place.train(arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        for word in words {
            assert!(
                text(&output.stderr).contains(word),
                "{arguments:?}: {}",
                text(&output.stderr)
            );
        }
    }
}

#[test]
fn a_regression_goes_on_as_one() {
    let place = place(&Ring::new());
    let given = [
        "--task",
        "regression",
        "--loss",
        "mae",
        "--save",
        "run.safetensors",
    ];
    run(&place, &[&given[..], &["--epochs", "5"]].concat());
    let resume = place.train(&[
        "--resume",
        "run.safetensors",
        "--epochs",
        "9",
        "--json",
        "-",
    ]);
    let output = { resume }.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let resumed = events(&output.stdout);
    assert_eq!(of(&resumed, "start")[0]["loss"], "absolute error");
    let whole = run(
        &place,
        &["--task", "regression", "--loss", "mae", "--epochs", "9"],
    );
    let last = |events: &[Value]| of(events, "epoch").last().unwrap()["loss"].clone();
    assert_eq!(last(&resumed), last(&whole));
    let output = place
        .train(&["--resume", "run.safetensors", "--metric", "rmse"])
        .output()
        .unwrap();
    refused(
        &output,
        2,
        &["--resume goes on with the task and the metrics of the run"],
    );
    let predict = |more: &[&str]| {
        let mut command = halfgnn(&[
            "predict",
            "--device",
            "cpu",
            "--model",
            "run.safetensors",
            "--out",
            "o.csv",
        ]);
        command
            .arg("--dataset")
            .arg(&place.dataset)
            .args(more)
            .current_dir(place.folder.path());
        command.output().unwrap()
    };
    refused(
        &predict(&["--probabilities"]),
        2,
        &["trained by its absolute error", "leave --probabilities out"],
    );
    let table = || std::fs::read_to_string(place.folder.path().join("o.csv")).unwrap();
    assert!(predict(&[]).status.success());
    let values = table();
    assert!(values.starts_with("vertex,value_0\n0,"), "{values}");
    assert!(predict(&["--logits"]).status.success());
    assert_eq!(table(), values.replace("value_0", "logit_0"));
    let labels = ["--task", "multi-label", "--save", "labels.safetensors"];
    run(&place, &[&labels[..], &["--epochs", "9"]].concat());
    let of_labels = |more: &[&str]| -> Vec<f32> {
        let last = ["--model", "labels.safetensors", "--out", "l.csv"];
        let mut command = halfgnn(&["predict", "--device", "cpu"]);
        command
            .arg("--dataset")
            .arg(&place.dataset)
            .args(last)
            .args(more)
            .current_dir(place.folder.path());
        assert!(command.output().unwrap().status.success());
        let text = std::fs::read_to_string(place.folder.path().join("l.csv")).unwrap();
        let cells = text
            .lines()
            .skip(1)
            .flat_map(|line| line.split(',').skip(1));
        cells.map(|cell| cell.parse().unwrap()).collect()
    };
    let (logits, shares) = (of_labels(&["--logits"]), of_labels(&["--probabilities"]));
    let truths = of_labels(&[]);
    assert_eq!(truths.len(), 2 * VERTICES as usize);
    for (at, &logit) in logits.iter().enumerate() {
        assert_eq!(truths[at], f32::from(u8::from(logit > 0.0)));
        assert!((shares[at] - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6);
    }
}
