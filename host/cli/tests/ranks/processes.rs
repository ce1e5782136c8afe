//! Ranks that are processes, and `bench` of several.

use super::common::ring::{Place, Ring, place};
use super::common::{events, halfgnn, refused, text};
use super::{course, run, weights};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Processes as a launcher starts them, each with its number; what each says.
pub fn processes(place: &Place, ranks: usize, more: impl Fn(usize) -> Vec<String>) -> Vec<Child> {
    let meet = place.folder.path().join("meet");
    let rendezvous = format!("file:{}", meet.display());
    let start = |rank: usize| {
        let more = more(rank);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let mut command = place.train(&[&["--rendezvous", &rendezvous], &more[..]].concat());
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    (0..ranks).map(start).collect()
}

pub fn outputs(children: Vec<Child>) -> Vec<Output> {
    let outputs = children.into_iter().map(|child| child.wait_with_output());
    outputs.collect::<Result<_, _>>().unwrap()
}

#[test]
fn processes_train_as_threads_do() {
    let place = place(&Ring::new());
    fn of<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["--model", "gin", "--epochs", "5"], more].concat()
    }
    let threads = run(place.train(&of(&["--ranks", "3", "--save", "threads", "--json", "-"])));
    let more = of(&["--save", "processes", "--json", "-"]);
    let more: Vec<String> = more.iter().map(|&it| it.to_owned()).collect();
    let outputs = outputs(processes(&place, 3, |_| more.clone()));
    for (rank, output) in outputs.iter().enumerate() {
        assert!(output.status.success(), "{rank}: {}", text(&output.stderr));
        assert_eq!(output.stdout.is_empty(), rank > 0, "{rank}");
    }
    let processes = events(&outputs[0].stdout);
    assert_eq!(course(&processes), course(&threads));
    assert_eq!(processes[0]["ranks"], threads[0]["ranks"]);
    assert_eq!(weights(&place, "processes"), weights(&place, "threads"));
    // The program starts them itself, and shows what the first does.
    let devices = [
        "--device",
        "cpu",
        "--devices",
        "0,1,2",
        "--save",
        "started",
        "--json",
        "-",
    ];
    let arguments = [
        &["train", "--dataset", place.dataset.to_str().unwrap()],
        &of(&devices)[..],
    ]
    .concat();
    let mut command = halfgnn(&arguments);
    command.current_dir(place.folder.path());
    assert_eq!(course(&run(command)), course(&threads));
    assert_eq!(weights(&place, "started"), weights(&place, "threads"));
}

#[test]
fn processes_that_are_killed_or_stopped_end_all() {
    for signal in ["-KILL", "-STOP"] {
        let place = place(&Ring::new());
        let more = [
            "--epochs",
            "1000000",
            "--rank-timeout",
            "2",
            "--save",
            "kept",
            "--save-every",
            "1",
        ];
        let mut children = processes(&place, 3, |_| more.map(str::to_owned).to_vec());
        let begin = Instant::now();
        while !place.folder.path().join("kept").exists() {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = children[2].id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        let start = Instant::now();
        let mut stopped = children.pop().unwrap();
        for output in outputs(children) {
            let error = text(&output.stderr).trim_end();
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(
                error.contains("rank 2 of 3 (") && error.contains("in epoch"),
                "{error}"
            );
            let said = if signal == "-KILL" {
                "it ended"
            } else {
                "no answer for 2 s"
            };
            assert!(error.contains(said), "{error}");
        }
        assert!(start.elapsed() < Duration::from_secs(12));
        stopped.kill().unwrap();
        stopped.wait().unwrap();
        assert!(weights(&place, "kept").0 > 0);
    }
}

#[test]
fn processes_that_are_given_other_things_say_so() {
    let place = place(&Ring::new());
    let more = |rank: usize| {
        let hidden = if rank == 1 { "16" } else { "8" };
        ["--hidden", hidden, "--epochs", "3"]
            .map(str::to_owned)
            .to_vec()
    };
    for output in outputs(processes(&place, 2, more)) {
        refused(
            &output,
            1,
            &["rank 1 differs from rank 0 in model; give all ranks the same data and options"],
        );
    }
    let mut alone = place.train(&["--rendezvous", "file:nowhere", "--rank-timeout", "1"]);
    refused(
        &alone.output().unwrap(),
        2,
        &["nothing says which rank this process is"],
    );
    alone.env("RANK", "1").env("WORLD_SIZE", "2");
    refused(
        &alone.output().unwrap(),
        1,
        &["rank 1 of 2: rank 0 has not written its address to file:nowhere within 1 s"],
    );
    let more = ["--partition", "degree"];
    refused(
        &place.train(&more).output().unwrap(),
        2,
        &["--partition is of several ranks, and this is one"],
    );
}

#[test]
fn what_moves_rows_is_chosen_and_timed() {
    let place = place(&Ring::new());
    let train = |more: &[&str]| place.train(more).output().unwrap();
    let cpu = ["--epochs", "1", "--exchange"];
    let processes = [&["--devices", "0,1"], &cpu[..], &["nccl"]].concat();
    refused(
        &train(&processes),
        1,
        &["--exchange nccl: rank 0: CPUs are linked by nothing but the host; take GPUs"],
    );
    let threads = [&["--ranks", "2"], &cpu[..], &["nccl"]].concat();
    refused(
        &train(&threads),
        2,
        &["--exchange nccl is of processes with a GPU each"],
    );
    refused(
        &train(&[&cpu[..], &["host"]].concat()),
        2,
        &["--exchange is of several ranks, and this is one"],
    );
    let processes = [
        &["--devices", "0,1", "--overlap", "on"],
        &cpu[..],
        &["host"],
    ]
    .concat();
    refused(
        &train(&processes),
        2,
        &["--overlap on: exchanges go through the host, beside which nothing is computed"],
    );
    let off = ["--devices", "0,1", "--overlap", "off"];
    let told = train(&[&off[..], &cpu[..], &["host"]].concat());
    assert!(
        text(&told.stdout).contains("2 ranks, exchanges by the host"),
        "{}",
        text(&told.stdout)
    );

    let comm = [
        "bench",
        "comm",
        "--device",
        "cpu",
        "--devices",
        "0,1,2",
        "--sizes",
        "4,64",
        "--runs",
        "2",
        "--json",
        "-",
    ];
    let events = run(halfgnn(&comm));
    for pattern in ["all-to-all", "all-gather"] {
        let of = |event: &str| -> Vec<&Value> {
            let of = |line: &&Value| line["event"] == event && line["pattern"] == pattern;
            events.iter().filter(of).collect()
        };
        let bytes: Vec<_> = of("comm")
            .iter()
            .map(|row| row["bytes"].as_u64().unwrap())
            .collect();
        assert_eq!(bytes, [4096, 65_536], "{pattern}");
        for row in of("comm") {
            assert_eq!(
                (row["ranks"].as_u64(), &row["exchange"]),
                (Some(3), &"the host".into())
            );
            assert!(row["ms"].as_f64().unwrap() > 0.0);
        }
        assert!(of("fit")[0]["alpha_us"].is_number() && of("fit").len() == 1);
    }
    let refuse = halfgnn(&["bench", "comm", "--device", "cpu"])
        .output()
        .unwrap();
    assert_eq!(refuse.status.code(), Some(2));
}

/// Ranks that make a graph together train on what those do that read it whole.
#[test]
fn ranks_that_make_a_graph_train_as_those_that_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("made.mtx");
    let file = file.to_str().expect("a path");
    // The seed of the graphs of benchmarks.
    let convert = ["dataset", "convert", "kron:9", file, "--data-seed", "1"];
    let converted = halfgnn(&convert).output().unwrap();
    assert!(converted.status.success(), "{}", text(&converted.stderr));
    let of = |graph: &str| -> Vec<Value> {
        let what = ["bench", "train", "--graph", graph, "--model", "gcn,gin,gat"];
        let size = ["--hidden", "16", "--features", "20", "--classes", "7"];
        let how = ["--precision", "half", "--epochs", "1", "--json", "-"];
        let where_ = ["--device", "cpu", "--devices", "0,1,2"];
        let events = run(halfgnn(
            &[&what[..], &size[..], &how[..], &where_[..]].concat(),
        ));
        let rows = events.into_iter().filter(|event| event["event"] == "train");
        rows.map(|row| {
            let told = ["vertices", "edges", "ranks", "rank_gib", "loss"];
            told.map(|of| row[of].clone()).into()
        })
        .collect()
    };
    let (made, read) = (of("kron:9"), of(file));
    assert_eq!(made.len(), 3);
    assert_eq!(made, read);
}

/// With `--bound` the operators of the first rank are timed, and the time of a step's bytes is reported.
#[test]
fn bench_train_times_the_operators_of_ranks() {
    let what = ["bench", "train", "--graph", "kron:8", "--model", "gin"];
    let how = ["--precision", "half", "--epochs", "2", "--bound"];
    let where_ = ["--device", "cpu", "--devices", "0,1", "--json", "-"];
    let events = run(halfgnn(&[&what[..], &how[..], &where_[..]].concat()));
    let of = |name: &'static str| events.iter().filter(move |event| event["event"] == name);
    let operators: Vec<&Value> = of("operator").collect();
    let texts = operators.iter().map(|row| row["operator"].as_str());
    let texts: Vec<&str> = texts.map(|text| text.expect("a text")).collect();
    for name in ["extend", "fold", "aggregate", "batch_statistics"] {
        assert!(texts.iter().any(|it| it.starts_with(name)), "{texts:?}");
    }
    let row = of("train").next().expect("a line");
    let number = |row: &Value, name: &str| row[name].as_f64().expect("a number");
    assert!(operators.iter().all(|row| number(row, "ms") > 0.0));
    assert!(number(row, "bytes_ms") > 0.0 && number(row, "over_bytes") > 0.0);
}

/// What ranks give one another in a step is reported: with all rows of the others more than with those that are
/// aggregated.
#[test]
fn bench_train_tells_what_ranks_exchange() {
    let of = |gather: &str| -> Value {
        let what = ["bench", "train", "--graph", "kron:9", "--model", "gcn"];
        let size = ["--hidden", "16", "--features", "20", "--classes", "7"];
        let how = ["--precision", "half", "--epochs", "2", "--json", "-"];
        let where_ = ["--device", "cpu", "--devices", "0,1,2", "--gather", gather];
        let events = run(halfgnn(
            &[&what[..], &size[..], &how[..], &where_[..]].concat(),
        ));
        let row = events.into_iter().find(|event| event["event"] == "train");
        row.expect("a line")
    };
    let [halo, whole] = ["halo", "whole"].map(of);
    let number = |row: &Value, name: &str| row[name].as_f64().expect("a number");
    for (row, gather) in [(&halo, "halo"), (&whole, "whole")] {
        assert_eq!(row["gather"], gather);
        assert!((1.0..1.1).contains(&number(row, "imbalance")), "{row}");
        let exposed = number(row, "exposed_ms");
        assert!((0.0..=number(row, "ms")).contains(&exposed), "{row}");
    }
    let (sent, rows) = ("most_sent_bytes", "most_halo");
    assert!(number(&halo, rows) < number(&whole, rows));
    // Of 512 vertices a rank has 170 or 171. Its products of 7 columns, 16 bytes a row, go to two others, and as many
    // gradients come as there are rows of others, besides the gradients of weights.
    assert_eq!(number(&whole, rows), 342.0);
    let of_rows = f64::from((2 * 171 + 341) * 16);
    assert!(number(&whole, sent) > of_rows, "{whole}");
    assert!(number(&halo, sent) < number(&whole, sent), "{halo}");
    assert!(number(&whole, sent) < 2.0 * of_rows, "{whole}");
}
