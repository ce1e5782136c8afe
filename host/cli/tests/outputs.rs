//! What the program writes: never over what it reads, never two things into one file, and checked before it computes.

mod common;

use common::ring::Ring;
use common::{events, halfgnn, names, refused, text};
use halfgnn::train::Checkpoint;
use std::process::{Command, Output, Stdio};

/// A ring as a file, in a folder of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self::of(&Ring::new())
    }

    fn of(ring: &Ring) -> Self {
        let folder = tempfile::tempdir().unwrap();
        ring.write(folder.path());
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = halfgnn(arguments);
        command.current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What `train` on the ring does with these options.
    fn train(&self, options: &[&str]) -> Output {
        let train = ["train", "--dataset", "ring.npz", "--device", "cpu"];
        self.run(&[&train[..], options].concat())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn an_input_is_never_overwritten_under_any_of_its_names() {
    let place = Place::new();
    succeeded(&place.train(&["--epochs", "1", "--save", "model"]));
    let at = |name: &str| place.0.path().join(name);
    halfgnn_platform::links::to_file("ring.npz", at("link.npz")).unwrap();
    std::fs::hard_link(at("ring.npz"), at("hard.npz")).unwrap();
    std::fs::write(at("pairs.csv"), "0,1\n").unwrap();
    let before = ["ring.npz", "model", "pairs.csv"].map(|name| place.read(name));
    let round = format!(
        "../{}/ring.npz",
        at("").file_name().unwrap().to_string_lossy()
    );
    for name in ["ring.npz", "link.npz", "hard.npz", "./ring.npz", &round] {
        for flag in ["--json", "--csv", "--save"] {
            // More epochs than the test waits for, so only a refusal comes back.
            let output = place.train(&["--epochs", "4000000000", flag, name]);
            refused(&output, 2, &[flag, name, "it is an input"]);
        }
        let refusals: [&[&str]; 6] = [
            &["dataset", "info", "ring.npz", "--json", name],
            &["dataset", "convert", "ring.npz", name],
            &["dataset", "convert", "ring.npz", "x.npz", "--json", name],
            &[
                "dataset",
                "partition",
                "ring.npz",
                "--out",
                "x",
                "--json",
                name,
            ],
            &[
                "predict",
                "--model",
                "model",
                "--dataset",
                "ring.npz",
                "--out",
                "x.npy",
                "--json",
                name,
            ],
            &[
                "bench", "spmm", "--device", "cpu", "--graph", "ring.npz", "--json", name,
            ],
        ];
        for arguments in refusals {
            refused(&place.run(arguments), 2, &[name, "it is an input"]);
        }
    }
    let predict = ["predict", "--model", "model", "--dataset", "ring.npz"];
    let also = ["--pairs", "pairs.csv", "--out", "pairs.csv"];
    refused(
        &place.run(&[&predict[..], &also].concat()),
        2,
        &["--pairs pairs.csv"],
    );
    refused(
        &place.run(&["export", "model", "--to", "pyg", "model"]),
        2,
        &["it is an input"],
    );
    refused(
        &place.run(&["import", "model", "--from", "pyg", "x", "--json", "model"]),
        2,
        &["it is an input"],
    );
    std::fs::write(at("runs.jsonl"), "{}\n").unwrap();
    refused(
        &place.run(&["report", "runs.jsonl", "--output", "runs.jsonl"]),
        2,
        &["--output runs.jsonl", "it is an input"],
    );
    assert_eq!(
        before,
        ["ring.npz", "model", "pairs.csv"].map(|name| place.read(name))
    );
    assert!(!at("x").exists() && !at("x.npz").exists() && !at("x.npy").exists());
}

#[test]
fn the_files_of_a_folder_are_inputs() {
    let place = Place::new();
    let folder = place.0.path().join("team");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("nodes.csv"),
        "id,f,label\na,1,x\nb,2,y\nc,3,x\n",
    )
    .unwrap();
    std::fs::write(folder.join("edges.csv"), "source,target\na,b\nb,c\n").unwrap();
    let nodes = place.read("team/nodes.csv");
    for dataset in ["team", "team/nodes.csv,team/edges.csv"] {
        for name in ["team/nodes.csv", "team/edges.csv"] {
            let output = place.run(&["dataset", "info", dataset, "--json", name]);
            refused(&output, 2, &["it is an input"]);
        }
    }
    succeeded(&place.run(&["dataset", "info", "team", "--json", "team/info.jsonl"]));
    assert_eq!(place.read("team/nodes.csv"), nodes);
}

#[test]
fn two_outputs_are_two_files() {
    let place = Place::new();
    let pairs: [[&str; 4]; 4] = [
        ["--json", "x", "--save", "x"],
        ["--json", "x", "--csv", "./x"],
        ["--save", "x.svg", "--plot", "x.svg"],
        ["--csv", "x", "--tensorboard", "x"],
    ];
    for pair in pairs {
        let output = place.train(&[&["--epochs", "4000000000"], &pair[..]].concat());
        refused(&output, 2, &["is written by", "as well"]);
    }
    let output = place.train(&["--seeds", "3", "--save", "x", "--csv", "x.seed-2"]);
    refused(&output, 2, &["--csv x.seed-2", "--save"]);
    let output = place.run(&["dataset", "convert", "ring.npz", "x.npz", "--json", "x.npz"]);
    refused(
        &output,
        2,
        &["x.npz is written by"].map(|_| "is written by"),
    );
    assert_eq!(place.names(), ["ring.npz"]);
}

#[test]
fn a_run_that_goes_on_may_be_kept_where_it_was_and_nothing_else_may_be_there() {
    let place = Place::new();
    succeeded(&place.train(&["--epochs", "1", "--save", "model"]));
    let more = ["--resume", "model", "--epochs", "2"];
    succeeded(&place.train(&[&more[..], &["--save", "model"]].concat()));
    let output = place.train(&[&more[..], &["--json", "model"]].concat());
    refused(&output, 2, &["--json model", "--resume model"]);
}

#[test]
fn a_name_that_cannot_be_is_refused_before_the_first_step() {
    let place = Place::new();
    let long = "x".repeat(300);
    let long_svg = format!("{long}.svg");
    for (flag, name) in [
        ("--save", long.as_str()),
        ("--json", &long),
        ("--csv", &long),
        ("--tensorboard", &long),
        ("--plot", &long_svg),
        ("--save", "none/model"),
        ("--csv", "none/rows.csv"),
        ("--save", "."),
        ("--json", "."),
    ] {
        let output = place.train(&["--epochs", "4000000000", flag, name]);
        refused(&output, 2, &[flag, "cannot be"]);
    }
    // The seed makes the name too long.
    let close = "x".repeat(250);
    let output = place.train(&["--epochs", "4000000000", "--seeds", "2", "--save", &close]);
    refused(&output, 2, &["--save", "seed-0", "cannot be written"]);
    for arguments in [
        &["dataset", "convert", "ring.npz", &format!("{long}.npz")][..],
        &["dataset", "partition", "ring.npz", "--out", &long],
    ] {
        refused(&place.run(arguments), 2, &["cannot be written"]);
    }
    assert_eq!(place.names(), ["ring.npz"]);
}

#[cfg(target_os = "linux")]
#[test]
fn what_stdout_cannot_take_is_a_failure_of_every_command() {
    let place = Place::new();
    succeeded(&place.train(&["--epochs", "1", "--save", "model"]));
    std::fs::write(place.0.path().join("space.toml"), "lr = [0.1, 0.01]\n").unwrap();
    let commands: [&[&str]; 13] = [
        &["--help"],
        &["--version"],
        &["train", "--help"],
        &["device"],
        &["dataset", "info", "ring.npz"],
        &["dataset", "convert", "ring.npz", "x.npz"],
        &["dataset", "partition", "ring.npz", "--out", "parts"],
        &["dataset", "download", "--print"],
        &[
            "predict",
            "--model",
            "model",
            "--dataset",
            "ring.npz",
            "--out",
            "x.npy",
            "--device",
            "cpu",
        ],
        &["export", "model", "--to", "pyg", "x"],
        &[
            "train",
            "--dataset",
            "ring.npz",
            "--device",
            "cpu",
            "--epochs",
            "2",
        ],
        &["completions", "bash"],
        &["man"],
    ];
    for arguments in commands {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = place.command(arguments).stdout(full).output().unwrap();
        refused(&output, 1, &["cannot write", "No space left"]);
    }
}

/// A ring that has nothing to validate on.
fn unvalidated() -> Place {
    let mut ring = Ring::new();
    ring.validation.clear();
    Place::of(&ring)
}

#[test]
fn without_validation_the_last_epoch_is_kept_and_said() {
    let place = unvalidated();
    let options = ["--epochs", "60", "--precision", "float"];
    let output = place.train(&[&options[..], &["--save", "model", "--json", "-"]].concat());
    succeeded(&output);
    let shown = text(&output.stderr);
    assert!(shown.contains("the last epoch is kept"), "{shown}");
    assert!(!shown.contains("best validation epoch"), "{shown}");
    let events = events(&output.stdout);
    let run = events.iter().find(|event| event["event"] == "run").unwrap();
    assert!(run["best_epoch"].is_null(), "{run}");
    assert_eq!(run["kept_epoch"], 60);
    assert_eq!(run["test_score"], run["test_score_last"]);
    let last = events
        .iter()
        .rfind(|event| event["event"] == "epoch")
        .unwrap();
    assert!(last["validation_accuracy"].is_null(), "{last}");
    // The weights that predict are those of the last epoch as well.
    let test = run["test_accuracy"].as_f64().unwrap();
    let predict = [
        "predict",
        "--model",
        "model",
        "--dataset",
        "ring.npz",
        "--device",
        "cpu",
    ];
    let output = place.run(&[&predict[..], &["--out", "x.npy", "--json", "-"]].concat());
    let events = common::events(&output.stdout);
    assert_eq!(events[0]["test_accuracy"].as_f64(), Some(test));
    // And go on, to the same bits.
    let whole = ["--epochs", "80", "--precision", "float", "--save", "whole"];
    succeeded(&place.train(&whole));
    let more = ["--resume", "model", "--epochs", "80", "--save", "more"];
    succeeded(&place.train(&more));
    let tensors = |name: &str| {
        let kept = Checkpoint::open(&place.0.path().join(name)).unwrap();
        kept.snapshot.tensors
    };
    assert!(tensors("more") == tensors("whole"), "other bits");
}

#[test]
fn a_metric_that_is_undefined_where_it_is_validated_keeps_the_last_epoch() {
    let mut ring = Ring::new();
    // One class alone, which has no curve.
    ring.validation = vec![10, 11];
    let place = Place::of(&ring);
    let output = place.train(&["--epochs", "20", "--metric", "roc-auc", "--json", "-"]);
    succeeded(&output);
    let events = events(&output.stdout);
    let run = events.iter().find(|event| event["event"] == "run").unwrap();
    assert_eq!(
        (&run["best_epoch"], &run["kept_epoch"]),
        (&serde_json::Value::Null, &20.into())
    );
    assert!(text(&output.stderr).contains("the last epoch is kept"));
}

#[test]
fn what_follows_validation_is_refused_where_there_is_none() {
    let place = unvalidated();
    for options in [["--early-stopping", "5"], ["--schedule", "plateau:5,0.5"]] {
        refused(&place.train(&options), 2, &["follows the validation score"]);
    }
}

#[test]
fn a_run_does_not_go_on_with_other_data() {
    let place = Place::new();
    succeeded(&place.train(&["--epochs", "2", "--save", "model"]));
    let resume = |change: &dyn Fn(&mut Ring)| {
        let mut ring = Ring::new();
        change(&mut ring);
        let folder = place.0.path().join("other");
        std::fs::create_dir_all(&folder).unwrap();
        ring.write(&folder);
        let train = ["train", "--device", "cpu", "--dataset", "other/ring.npz"];
        place.run(&[&train[..], &["--epochs", "4", "--resume", "model"]].concat())
    };
    succeeded(&resume(&|_| {}));
    let output = resume(&|ring| ring.values[0] = 0.0);
    refused(&output, 2, &["other features than"]);
    // As many edges, one of which leads elsewhere.
    let output = resume(&|ring| ring.columns[3] = 7);
    refused(&output, 2, &["other edges than"]);
    let output = resume(&|ring| ring.labels[20] = 0);
    refused(&output, 2, &["other labels than"]);
    let output = resume(&|ring| ring.train[0] = 3);
    refused(&output, 2, &["other training split than"]);
}

#[test]
fn files_of_several_seeds_are_named_where_the_one_name_is_asked_for() {
    let place = Place::new();
    succeeded(&place.train(&[
        "--epochs",
        "1",
        "--seeds",
        "3",
        "--save",
        "model.safetensors",
    ]));
    for arguments in [
        &[
            "predict",
            "--model",
            "model.safetensors",
            "--dataset",
            "ring.npz",
            "--out",
            "x.npy",
        ][..],
        &["export", "model.safetensors", "--to", "pyg", "x"],
    ] {
        refused(
            &place.run(arguments),
            2,
            &[
                "model.seed-0.safetensors",
                "model.seed-2.safetensors",
                "name one of them",
            ],
        );
    }
    refused(
        &place.train(&["--resume", "model.safetensors"]),
        2,
        &["model.seed-0.safetensors"],
    );
    let none = place.run(&["export", "none.safetensors", "--to", "pyg", "x"]);
    refused(&none, 2, &["none.safetensors"]);
}

#[test]
fn threads_are_limited_and_said() {
    let place = Place::new();
    let with = |threads: &str| {
        let mut command = place.command(&["train", "--dataset", "ring.npz", "--device", "cpu"]);
        command.args(["--epochs", "3"]);
        command.env("RAYON_NUM_THREADS", threads).output().unwrap()
    };
    let output = with("2000");
    succeeded(&output);
    assert!(text(&output.stderr).contains("RAYON_NUM_THREADS=2000: takes "));
    refused(
        &with("many"),
        2,
        &["RAYON_NUM_THREADS=\"many\"", "a number of threads"],
    );
    let quiet = with("2");
    assert!(
        !text(&quiet.stderr).contains("RAYON"),
        "{}",
        text(&quiet.stderr)
    );
}

#[cfg(unix)]
#[test]
fn a_signal_is_noticed_at_once() {
    let place = Place::new();
    for signal in ["-TERM", "-INT"] {
        let options = ["train", "--dataset", "ring.npz", "--device", "cpu"];
        let mut command = place.command(&options);
        command.args(["--epochs", "4000000000", "--json", "-"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let is_epoch = |line: &std::io::Result<String>| {
            line.as_ref()
                .is_ok_and(|line| line.contains(r#""event":"epoch""#))
        };
        assert!(lines.any(|line| is_epoch(&line)), "the run ended");
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        lines.for_each(drop);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains("stopping after the step under way"));
    }
}

#[test]
fn the_commands_of_the_readme_for_a_graph_of_one_s_own_run_as_written() {
    let place = Place::new();
    let mut nodes = String::from("id,f,label\n");
    let mut edges = String::from("source,target\n");
    for person in 0..40 {
        let team = person / 20;
        nodes += &format!("p{person},{team},{}\n", ["red", "blue"][team]);
        let next = team * 20 + (person + 1) % 20;
        edges += &format!("p{person},p{next}\n");
    }
    std::fs::write(place.0.path().join("people.csv"), nodes).unwrap();
    std::fs::write(place.0.path().join("knows.csv"), edges).unwrap();
    let readme = include_str!("../../../README.md");
    let commands: Vec<Vec<&str>> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("halfgnn "))
        .filter(|line| line.contains("people.csv"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        succeeded(&place.run(&command));
    }
    let classes = String::from_utf8(place.read("classes.csv")).unwrap();
    assert_eq!(classes.lines().count(), 41, "{classes}");
}
