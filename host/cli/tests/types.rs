//! Several types of vertices and edges, from a recipe to predictions.

mod common;

use common::{documented, events, halfgnn, refused, text};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// 737 papers, 1,135 authors, 9 institutions, 60 fields.
const DATASET: &str = "mag-like:0.001";

fn run(arguments: &[&str]) -> Output {
    halfgnn(arguments).output().expect("the program")
}

/// The last event of a training.
fn train(model: &[&str], more: &[&str]) -> (Value, Vec<Value>) {
    let common = [
        "train",
        "--dataset",
        DATASET,
        "--undirected",
        "--device",
        "cpu",
        "--dropout",
        "0.2",
        "--lr",
        "0.02",
        "--json",
        "-",
    ];
    let output = run(&[&common, model, more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut all = events(&output.stdout);
    are_documented(&all, "train");
    let summary = all.pop().expect("a summary");
    assert_eq!(summary["event"], "summary");
    (summary, all)
}

fn are_documented(all: &[Value], command: &str) {
    let page = documented::events();
    all.iter()
        .for_each(|event| documented::check(&page, event, command));
}

#[test]
fn every_model_of_several_types_learns_them_in_half_and_float() {
    for model in [
        &["--model", "rgcn"][..],
        &["--model", "rgcn", "--bases", "2"],
        &["--model", "rgcn", "--blocks", "4"],
        &["--model", "hetero"],
        &[
            "--model",
            "hetero",
            "--layer",
            "graphconv",
            "--hidden-norm",
            "batch",
        ],
        &["--model", "hetero", "--layer", "gatv2", "--heads", "2"],
        &["--model", "hetero", "--layer", "transformer"],
        &["--model", "hgt", "--heads", "2"],
    ] {
        let accuracy = ["half", "float"].map(|precision| {
            let how = ["--epochs", "30", "--hidden", "32", "--precision", precision];
            let (summary, all) = train(model, &how);
            let types = &all
                .iter()
                .find(|it| it["event"] == "start")
                .expect("a start")["types"];
            assert_eq!(types["labelled"], "paper");
            assert_eq!(types["edges"].as_array().map(Vec::len), Some(7), "{types}");
            let all = all.iter().rev();
            let last = all
                .clone()
                .find(|it| it["event"] == "epoch")
                .expect("epochs");
            assert!(
                last["train_accuracy"].as_f64() > Some(80.0),
                "{model:?}: {last}"
            );
            summary["test_accuracy"].as_f64().expect("a number")
        });
        println!("{model:?}: {accuracy:?}");
        // Eleven classes, of which features say less than edges.
        assert!(
            accuracy.iter().all(|it| *it > 50.0),
            "{model:?}: {accuracy:?}"
        );
    }
}

#[test]
fn a_model_of_several_types_is_kept_goes_on_and_predicts() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (whole, half) = (file("whole.safetensors"), file("half.safetensors"));
    let model = ["--model", "hgt"];
    train(&model, &["--epochs", "8", "--save", &whole]);
    train(&model, &["--epochs", "4", "--save", &half]);
    let resumed = run(&[
        "train",
        "--dataset",
        DATASET,
        "--undirected",
        "--device",
        "cpu",
        "--resume",
        &half,
        "--epochs",
        "8",
        "--save",
        &half,
    ]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let predict = |model: &str, out: &str, more: &[&str]| {
        let common = [
            "predict",
            "--model",
            model,
            "--dataset",
            DATASET,
            "--device",
            "cpu",
            "--out",
            out,
        ];
        run(&[&common, more].concat())
    };
    let read = |name: &str| std::fs::read(Path::new(name)).expect("predictions");
    let (first, second) = (file("whole.npy"), file("half.npy"));
    for (model, out) in [(&whole, &first), (&half, &second)] {
        let output = predict(model, out, &["--undirected", "--logits"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains("logits of 736 vertices"),
            "{}",
            text(&output.stdout)
        );
    }
    assert_eq!(read(&first), read(&second), "a resumed run has other bits");
    let without = predict(&whole, &first, &[]);
    refused(&without, 2, &["rev_writes", "--undirected"]);
    let other = [
        "predict",
        "--model",
        &whole,
        "--dataset",
        "blocks:80",
        "--device",
        "cpu",
        "--out",
        &first,
    ];
    refused(
        &run(&other),
        2,
        &["several types of vertices, and blocks:80 has one"],
    );
}

/// Each model learns in batches, with memory as estimated. A resumed run has the bits of a whole one, and ranks that
/// are processes have those of threads.
#[test]
fn several_types_are_learnt_in_batches() {
    let sampler = "neighbor:10,10/cites:4,0";
    let batches = ["--sampler", sampler, "--batch", "100"];
    let four = [&batches[..], &["--epochs", "4"]].concat();
    for model in [
        &["rgcn"][..],
        &["rgcn", "--store", "eight-bit"],
        &["hetero"],
        &["hgt"],
    ] {
        let (summary, all) = train(&[&["--model"], model].concat(), &four);
        let memory = all.iter().find(|event| event["event"] == "memory");
        let memory = memory.expect("what is estimated");
        let number = |of: &Value, name: &str| of[name].as_f64().expect("a number");
        let (foretold, peak) = (
            number(memory, "foretold_bytes"),
            number(&summary, "peak_bytes"),
        );
        assert!(
            peak <= foretold && foretold < 1.4 * peak,
            "{foretold}, {peak}"
        );
        let accuracy = number(&summary, "test_accuracy");
        assert!(accuracy > 50.0, "{model:?}: {accuracy} %");
    }
    let losses_of = |all: Vec<Value>| -> Vec<Value> {
        let epochs = all.into_iter().filter(|event| event["event"] == "epoch");
        epochs.map(|event| event["loss"].clone()).collect()
    };
    let losses = |epochs: &str, more: &[&str]| {
        let how = [&batches[..], &["--epochs", epochs], more].concat();
        losses_of(train(&["--model", "rgcn"], &how).1)
    };
    let folder = tempfile::tempdir().expect("room for a folder");
    let [first, whole] = ["first", "whole"].map(|name| folder.path().join(name));
    let [first, whole] = [first, whole].map(|path| path.display().to_string());
    let expected = losses("4", &["--save", &whole]);
    losses("2", &["--save", &first]);
    let place = [
        "train",
        "--dataset",
        DATASET,
        "--undirected",
        "--device",
        "cpu",
    ];
    let how = ["--resume", &first, "--epochs", "4", "--json", "-"];
    let resumed = run(&[&place[..], &how].concat());
    assert_eq!(losses_of(events(&resumed.stdout)), expected[2..]);
    // From the host's memory the same neighbors are sampled.
    assert_eq!(losses("4", &["--structure", "host"]), expected);
    let threads = losses("4", &["--ranks", "2"]);
    assert_eq!(losses("4", &["--devices", "0,1"]), threads);
}

#[test]
fn types_are_shown_and_explained() {
    let output = run(&["dataset", "info", DATASET, "--json", "-"]);
    let all = events(&output.stdout);
    are_documented(&all, "dataset");
    let info = all
        .iter()
        .find(|it| it["event"] == "dataset")
        .expect("what there is");
    let types = &info["types"];
    assert_eq!(types["vertices"][0]["name"], "author");
    assert_eq!(types["vertices"][0]["features"], 0);
    assert_eq!(types["edges"][3]["source"], "author");
    let explained = run(&[
        "train",
        "--dataset",
        DATASET,
        "--model",
        "rgcn",
        "--explain",
    ]);
    let listing = text(&explained.stdout);
    for part in [
        "# training, after fuse",
        "aggregate author__writes__paper",
        "layers.1.weight.paper__cites__paper",
        "input.author.embedding",
    ] {
        assert!(listing.contains(part), "{part}: {listing}");
    }
    // Nothing that leads to a paper starts there.
    assert!(!listing.contains("institution.embedding"), "{listing}");
}

#[test]
fn the_operators_of_a_step_are_timed() {
    let step = ["profile", "step", "--dataset", DATASET, "--device", "cpu"];
    let how = ["--model", "rgcn", "--runs", "1", "--json", "-"];
    let all = events(&run(&[&step[..], &how].concat()).stdout);
    are_documented(&all, "profile");
    let operators = all.iter().filter(|event| event["event"] == "operator");
    let texts = operators.map(|event| event["operator"].as_str().expect("a text"));
    let texts: Vec<&str> = texts.collect();
    for part in [
        "aggregate author__writes__paper",
        "aggregate paper__cites__paperᵀ",
    ] {
        assert!(
            texts.iter().any(|it| it.starts_with(part)),
            "{part}: {texts:?}"
        );
    }
    let gcn = [&step[..], &["--model", "gcn"]].concat();
    refused(&run(&gcn), 2, &["gcn reads vertices and edges of one type"]);
}

#[test]
fn what_makes_no_sense_with_several_types_is_refused_in_one_line() {
    let train = ["train", "--dataset", DATASET, "--device", "cpu"];
    for (more, code, parts) in [
        (
            &["--model", "gcn"][..],
            2,
            &[
                "gcn reads vertices and edges of one type",
                "rgcn, hetero and hgt",
            ][..],
        ),
        (
            &["--model", "rgcn", "--sampler", "saint-node:50"],
            2,
            &["--sampler saint-node:50", "take --sampler neighbor:15,10"],
        ),
        (
            &["--model", "rgcn", "--sampler", "neighbor:5,5/sites:1,1"],
            2,
            &["no edges are called sites", "paper__cites__paper"],
        ),
        (
            &["--model", "rgcn", "--sampler", "neighbor:5,5/cites:1"],
            2,
            &["cites has 1 fanouts, and others have 2"],
        ),
        (
            &[
                "--model",
                "rgcn",
                "--sampler",
                "neighbor:5,5",
                "--structure",
                "disk",
            ],
            2,
            &["--structure disk", "several types"],
        ),
        (
            &["--model", "rgcn", "--task", "link"],
            2,
            &["--task link", "several types"],
        ),
        (
            &["--model", "rgcn", "--ranks", "2"],
            2,
            &["--ranks", "several types", "add --sampler neighbor:15,10"],
        ),
        (
            &["--model", "rgcn", "--inductive"],
            2,
            &["--inductive", "several types"],
        ),
        (
            &["--model", "rgcn", "--reorder", "degree"],
            2,
            &["--reorder", "several types"],
        ),
        (
            &["--model", "rgcn", "--features", "host"],
            2,
            &["--features", "several types"],
        ),
        (&["--model", "rgcn", "--self-loops"], 2, &["--self-loops"]),
        (
            &["--model", "rgcn", "--messages"],
            2,
            &["messages of 8 bits", "one type"],
        ),
        (
            &["--model", "rgcn", "--jumping", "cat"],
            2,
            &["jumping knowledge", "one type"],
        ),
        (
            &["--model", "rgcn", "--bases", "2", "--blocks", "2"],
            2,
            &["bases and blocks"],
        ),
        (
            &["--model", "rgcn", "--blocks", "3"],
            2,
            &["64 columns are not 3 blocks"],
        ),
        (
            &["--model", "hgt", "--hidden", "64", "--heads", "5"],
            2,
            &["5 heads of 64 hidden columns"],
        ),
        (
            &["--model", "hgt", "--residual"],
            2,
            &["a residual input of its own"],
        ),
        (
            &["--model", "hetero", "--heads", "2"],
            2,
            &["does not attend"],
        ),
    ] {
        refused(&run(&[&train, more].concat()), code, parts);
    }
    let folder = tempfile::tempdir().expect("room for a folder");
    let out = folder.path().join("mag.csr").display().to_string();
    for command in [
        &["dataset", "generate", DATASET, &out][..],
        &["dataset", "convert", DATASET, &out],
        &["dataset", "partition", DATASET, "--out", &out],
        &["bench", "spmm", "--graph", DATASET, "--device", "cpu"],
    ] {
        refused(&run(command), 2, &["several types of vertices and edges"]);
    }
}

#[test]
fn an_archive_of_several_types_is_what_it_was_made_of() {
    let folder = tempfile::tempdir().expect("room for a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (archive, again) = (file("mag.npz"), file("again.npz"));
    for (from, to) in [(DATASET, &archive), (&archive, &again)] {
        let output = run(&["dataset", "convert", from, to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let bytes = [&archive, &again].map(|name| std::fs::read(name).expect("an archive"));
    assert_eq!(bytes[0], bytes[1]);
    // The same model, to the bits, and a run of one goes on with the other.
    let saved = file("model.safetensors");
    let train = |dataset: &str, more: &[&str]| {
        let common = [
            "train",
            "--dataset",
            dataset,
            "--model",
            "rgcn",
            "--device",
            "cpu",
            "--epochs",
            "3",
            "--json",
            "-",
        ];
        let output = run(&[&common, more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let all = events(&output.stdout);
        let losses = all.iter().filter(|event| event["event"] == "epoch");
        losses
            .map(|event| event["loss"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(train(DATASET, &["--save", &saved]), train(&archive, &[]));
    let resumed = run(&[
        "train",
        "--dataset",
        &archive,
        "--resume",
        &saved,
        "--epochs",
        "4",
        "--device",
        "cpu",
    ]);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
}
