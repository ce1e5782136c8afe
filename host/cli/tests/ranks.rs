//! One graph and several ranks, as a person trains on it: `--ranks`.

mod common;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use halfgnn::train::Checkpoint;
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn run(mut command: Command) -> Vec<Value> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    events(&output.stdout)
}

/// Losses and validation scores by epoch, and the last line.
fn course(events: &[Value]) -> Vec<[f64; 2]> {
    let epochs = events.iter().filter(|event| event["event"] == "epoch");
    epochs
        .map(|event| ["loss", "validation_accuracy"].map(|name| event[name].as_f64().expect(name)))
        .collect()
}

fn weights(place: &Place, file: &str) -> (u32, Vec<f32>) {
    let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
    let tensors = checkpoint.snapshot.tensors.into_values();
    let values = tensors.flat_map(|tensor| tensor.values).collect();
    (checkpoint.snapshot.progress.epoch, values)
}

/// Models with dropout in float, where a sum in another order shows in the last digits alone.
const FLOAT: [&str; 4] = ["--precision", "float", "--json", "-"];

#[test]
fn a_run_of_several_ranks_is_that_of_one() {
    let place = place(&Ring::new());
    for model in ["gcn", "gin", "gat", "sage"] {
        let of = |ranks: &str| {
            let more = ["--model", model, "--epochs", "6", "--ranks", ranks];
            run(place.train(&[&FLOAT[..], &more].concat()))
        };
        let alone = run(place.train(&[&FLOAT[..], &["--model", model, "--epochs", "6"]].concat()));
        assert_eq!(course(&of("1")), course(&alone), "{model}");
        assert!(alone[0].get("ranks").is_none());
        for ranks in ["2", "3", "5"] {
            let events = of(ranks);
            let dealt = &events[0]["ranks"];
            assert_eq!(dealt["ranks"].as_u64(), ranks.parse().ok(), "{dealt}");
            assert_eq!(dealt["partition"], "degree");
            let all = |of: &str| {
                dealt[of]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_u64)
                    .sum::<u64>()
            };
            assert_eq!(
                [all("vertices"), all("edges")],
                [VERTICES as u64, 2 * VERTICES as u64]
            );
            let pairs = course(&events).into_iter().zip(course(&alone));
            for (epoch, ([loss, score], [expected, expected_score])) in pairs.enumerate() {
                let off = (loss - expected).abs() / expected;
                assert!(
                    off < 1e-3,
                    "{model}, {ranks} ranks, epoch {epoch}: {loss} and {expected}"
                );
                // A vertex of four.
                assert!(
                    (score - expected_score).abs() <= 25.0,
                    "{model}, {ranks} ranks"
                );
            }
        }
    }
}

/// Training in batches.
const SAMPLED: [&str; 6] = [
    "--model",
    "sage",
    "--sampler",
    "neighbor:2,2",
    "--batch",
    "7",
];

/// Training in batches: each rank has all of the graph and a part of each batch, and what they learn together is what one learns. Threads and
/// processes, and another run, have the same bits; a run goes on with another number of ranks.
#[test]
fn batches_are_dealt_out_to_ranks() {
    let place = place(&Ring::new());
    let sampled = [&SAMPLED[..], &["--dropout", "0"]].concat();
    let long = |more: &[&str]| run(place.train(&[&FLOAT[..], &sampled, more].concat()));
    let of = |more: &[&str]| long(&[more, &["--epochs", "4"]].concat());
    let alone = of(&[]);
    assert_eq!(course(&of(&["--ranks", "1"])), course(&alone));
    for ranks in ["2", "3"] {
        let events = of(&["--ranks", ranks]);
        assert_eq!(events[0]["ranks"]["ranks"].as_u64(), ranks.parse().ok());
        assert!(events[0]["ranks"].get("partition").is_none());
        assert_eq!(events[0]["batch"], 7);
        let memory = &events[1]["bytes"];
        assert!(memory[0].as_u64() > Some(0) && memory[0] == memory[1]);
        assert_eq!(course(&of(&["--ranks", ranks])), course(&events), "{ranks}");
        assert_eq!(course(&events).len(), course(&alone).len());
        for ([loss, _], [expected, _]) in course(&events).into_iter().zip(course(&alone)) {
            let off = (loss - expected).abs() / expected;
            assert!(off < 1e-3, "{ranks} ranks: {loss} and {expected}");
        }
    }
    let threads = of(&["--ranks", "2"]);
    let all = [&FLOAT[..], &sampled, &["--epochs", "4"]].concat();
    let ranks = processes(&place, 2, |_| all.iter().map(|it| it.to_string()).collect());
    for (rank, output) in outputs(ranks).into_iter().enumerate() {
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(output.stdout.is_empty(), rank > 0, "{rank}");
        if rank == 0 {
            assert_eq!(course(&events(&output.stdout)), course(&threads));
        }
    }
    // All end at the same epoch, which the first keeps, and which goes on with another number of ranks.
    let stopped = long(&[
        "--ranks",
        "3",
        "--early-stopping",
        "1",
        "--epochs",
        "40",
        "--save",
        "kept",
    ]);
    let epochs = course(&stopped).len();
    assert!(epochs < 40, "{epochs} epochs");
    assert_eq!(weights(&place, "kept").0 as usize, epochs);
    let again = [
        "--resume", "kept", "--ranks", "2", "--json", "-", "--epochs",
    ];
    let more = (epochs + 2).to_string();
    let last = run(place.train(&[&again[..], &[&more, "--early-stopping", "40"]].concat()));
    assert_eq!(course(&last).len(), 2, "{last:?}");
}

/// A rank that fails between two batches ends all.
#[test]
fn a_rank_that_fails_in_a_batch_is_named() {
    let place = place(&Ring::new());
    let fault = [
        "--ranks",
        "3",
        "--rank-fault",
        "die:2@9",
        "--rank-timeout",
        "5",
    ];
    let output = place.train(&[SAMPLED, fault].concat()).output().unwrap();
    refused(&output, 1, &["rank 2 of 3", "it died in epoch", "exchange"]);
}

/// Features of which each rank has a share are those that each has whole, to the bit; threads and processes have the same. What each takes has less of
/// them.
#[test]
fn features_are_dealt_out_to_ranks() {
    let place = place(&Ring::new());
    let short = [
        "--sampler",
        "neighbor:2,2",
        "--epochs",
        "3",
        "--pieces",
        "2",
    ];
    let of_seven = [&short[..], &["--model", "sage", "--batch", "7"]].concat();
    let of_two = [&short[..], &["--model", "sage", "--batch", "2"]].concat();
    let of = |ranks: &str, features: &str, more: &[&str]| {
        let own = ["--ranks", ranks, "--features", features, "--save", features];
        let events = run(place.train(&[more, &own, &["--json", "-"]].concat()));
        (events, weights(&place, features))
    };
    let float = [&of_seven[..], &["--precision", "float"]].concat();
    // Of three ranks one has no vertex of any batch.
    let inductive = [&of_two[..], &["--inductive", "--scale-features"]].concat();
    for (ranks, more) in [("2", &of_seven), ("3", &float), ("3", &inductive)] {
        let (whole, expected) = of(ranks, "device", more);
        let (sharded, found) = of(ranks, "sharded", more);
        assert_eq!(course(&sharded).len(), 3);
        assert_eq!(course(&sharded), course(&whole), "{ranks} {more:?}");
        assert!(found == expected, "{ranks} {more:?}");
        let bytes = [&whole, &sharded].map(|events| {
            let features = &events[1]["bytes_by_kind"]["features"];
            features[0].as_u64().expect("bytes")
        });
        assert!(bytes[1] < bytes[0], "{bytes:?}");
    }
    let of_process = |features: &str| {
        let own = ["--features", features, "--json", "-"];
        let all: Vec<String> = [&of_seven[..], &own]
            .concat()
            .iter()
            .map(|it| it.to_string())
            .collect();
        all
    };
    let ranks = outputs(processes(&place, 2, |_| of_process("sharded")));
    for output in &ranks {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let (threads, _) = of("2", "sharded", &of_seven);
    assert_eq!(course(&events(&ranks[0].stdout)), course(&threads));
    let unlike = |rank| of_process(["sharded", "device"][rank]);
    for output in outputs(processes(&place, 2, unlike)) {
        let told = text(&output.stderr);
        let words = "have another model, options or partition";
        assert!(!output.status.success() && told.contains(words), "{told}");
    }
}

/// Features are dealt out to several ranks that learn in batches and nowhere else, and a rank that fails while they are exchanged ends all in a
/// line that says so.
#[test]
fn features_are_dealt_out_or_refused_in_a_line() {
    let place = place(&Ring::new());
    let sharded = ["--features", "sharded", "--epochs", "2"];
    let with = |more: &[&str]| {
        let all = [
            &sharded[..],
            &["--sampler", "neighbor:2,2", "--batch", "7"],
            more,
        ]
        .concat();
        place.train(&all).output().unwrap()
    };
    let sage = ["--model", "sage", "--save", "kept", "--ranks", "3"];
    let shown = with(&sage);
    let line =
        "features: 224 B on each rank at most, of which all have the rows that a batch wants";
    assert!(text(&shown.stdout).contains(line), "{shown:?}");
    for alone in [&sage[..2], &["--model", "sage", "--ranks", "1"]] {
        refused(
            &with(alone),
            2,
            &["--features sharded: ", "this is one; train with --devices"],
        );
    }
    refused(
        &place
            .train(&[&sharded[..], &["--ranks", "2"]].concat())
            .output()
            .unwrap(),
        2,
        &["--features sharded: ", "learn in batches by --sampler"],
    );
    refused(
        &with(&["--ranks", "2", "--model", "gin", "--layers", "2"]),
        2,
        &["--features sharded: ", "take --features device or host"],
    );
    let predict = [
        "predict",
        "--model",
        "kept",
        "--dataset",
        "ring.npz",
        "--out",
        "out.npy",
    ];
    let predict = halfgnn(&[&predict[..], &sharded[..2]].concat())
        .current_dir(place.folder.path())
        .output()
        .unwrap();
    refused(
        &predict,
        2,
        &["--features sharded: ", "or take --features device"],
    );

    for (fault, rank, at) in [
        (
            "die:1@7",
            "rank 1 of 3",
            "it died in epoch 1, features exchange",
        ),
        ("count:2@8", "rank 2 of 3", "in epoch 1, features exchange"),
        ("hang:0@9", "rank 0 of 3", "in epoch 1, features exchange"),
    ] {
        let timeout = ["--rank-timeout", "5", "--rank-fault", fault];
        refused(&with(&[&sage[..], &timeout].concat()), 1, &[rank, at]);
    }
}

/// What each rank takes is told before the first epoch: on one device all together are what was taken, to a hundredth; and what has no
/// room is refused with the rank that takes most of it.
#[test]
fn the_memory_of_each_rank_is_told() {
    let place = place(&Ring::new());
    for ranks in ["2", "3"] {
        let events = run(place.train(&["--epochs", "2", "--ranks", ranks, "--json", "-"]));
        let told = &events[1];
        assert_eq!(told["event"], "rank_memory", "{told}");
        let list = |of: &Value| -> Vec<u64> {
            let list = of.as_array().expect("a list").iter();
            list.map(|bytes| bytes.as_u64().expect("bytes")).collect()
        };
        let bytes = list(&told["bytes"]);
        assert_eq!(bytes.len().to_string(), ranks);
        let most = bytes.iter().max();
        assert_eq!(
            Some(&bytes[told["largest"].as_u64().unwrap() as usize]),
            most
        );
        let kinds = ["graph", "features", "activations", "weights", "workspace"];
        let kinds = kinds.map(|kind| list(&told["bytes_by_kind"][kind]));
        for (rank, bytes) in bytes.iter().enumerate() {
            let sum: u64 = kinds.iter().map(|kind| kind[rank]).sum();
            assert_eq!(sum, *bytes);
        }
        let took = events.last().unwrap()["peak_bytes"].as_f64().unwrap();
        let foretold = bytes.iter().sum::<u64>() as f64;
        assert!(
            (0.99..1.01).contains(&(foretold / took)),
            "{ranks} ranks: {foretold} bytes were foretold, and {took} taken"
        );
    }
    let alone = run(place.train(&["--epochs", "1", "--json", "-"]));
    assert!(alone.iter().all(|event| event["event"] != "rank_memory"));
    let shown = place
        .train(&["--epochs", "1", "--ranks", "2"])
        .output()
        .unwrap();
    let shown = [text(&shown.stdout), text(&shown.stderr)].concat();
    assert!(shown.contains("takes the most: graph"), "{shown}");
    let wide = ["--ranks", "2", "--hidden", "2000000000"];
    let output = place.train(&wide).output().unwrap();
    refused(
        &output,
        2,
        &["out of device memory", "2 ranks take", "the most with"],
    );
}

#[test]
fn a_run_goes_on_with_any_number_of_ranks() {
    let place = place(&Ring::new());
    let train = |more: &[&str]| run(place.train(&[&["--json", "-", "--save"], more].concat()));
    let float = ["--precision", "float", "--model", "gin"];
    let whole = course(&train(&[&["whole", "--epochs", "6"], &float[..]].concat()));
    train(&[&["part", "--epochs", "2", "--ranks", "3"], &float[..]].concat());
    let mut part = course(&train(&[
        "part", "--resume", "part", "--epochs", "4", "--ranks", "2",
    ]));
    part.extend(course(&train(&[
        "part", "--resume", "part", "--epochs", "6",
    ])));
    assert_eq!(part.len(), 4);
    for ([loss, _], [expected, _]) in part.iter().zip(&whole[2..]) {
        assert!(
            (loss - expected).abs() < 1e-3 * expected,
            "{loss} and {expected}"
        );
    }
    let ((epoch, part), (_, whole)) = (weights(&place, "part"), weights(&place, "whole"));
    assert_eq!((epoch, part.len()), (6, whole.len()));
}

/// Ranks with messages of 8 bits learn what one does, count together what was beyond scales, and go on to the same bits.
#[test]
fn ranks_send_messages_of_8_bits() {
    let place = place(&Ring::new());
    for (model, format) in [
        ("gcn", "int8"),
        ("gin", "e4m3"),
        ("gat", "int8"),
        ("sage", "e4m3"),
    ] {
        let more = [
            "--model",
            model,
            "--messages",
            format,
            "--json",
            "-",
            "--save",
        ];
        let train = |of: &[&str]| run(place.train(&[&more[..], of].concat()));
        let alone = train(&["alone", "--epochs", "6"]);
        let told = |events: &[Value]| {
            let last = events.last().expect("a last line");
            last["saturated_messages"].as_u64().expect("codes")
        };
        for ranks in ["2", "3"] {
            let of = |file: &'static str, epochs: &'static str| {
                train(&[file, "--epochs", epochs, "--ranks", ranks])
            };
            let whole = of("whole", "6");
            let pairs = course(&whole).into_iter().zip(course(&alone));
            for (epoch, ([loss, _], [expected, _])) in pairs.enumerate() {
                let off = (loss - expected).abs() / expected;
                let what = format!("{model} with {format}, {ranks} ranks, epoch {epoch}");
                // A code is the one beside it where a rounding turns, which a batch normalisation makes much of, step by step.
                let allowed = if model == "gin" { 0.2 } else { 0.02 };
                assert!(off < allowed, "{what}: {loss} and {expected}");
            }
            let (one, all) = (told(&alone), told(&whole));
            assert!(
                one.abs_diff(all) <= one / 10 + 8,
                "{model}: {one} and {all}"
            );
            of("part", "3");
            let again = [
                "part", "--resume", "part", "--epochs", "6", "--ranks", ranks,
            ];
            let rest = run(place.train(&[&["--json", "-", "--save"], &again[..]].concat()));
            assert_eq!(course(&rest), course(&whole)[3..], "{model}, {ranks} ranks");
            assert_eq!(weights(&place, "part"), weights(&place, "whole"), "{model}");
        }
    }
}

/// So they do in batches: codes of a rank's part with the scales of all. What was beyond those is told of all together.
#[test]
fn messages_of_batches_have_8_bits() {
    let place = place(&Ring::new());
    let of = |ranks: &str| {
        let own = ["--messages", "int8", "--dropout", "0", "--epochs", "6"];
        let more = [&SAMPLED[..], &own, &["--ranks", ranks, "--json", "-"]].concat();
        run(place.train(&more))
    };
    let alone = of("1");
    for ranks in ["2", "3"] {
        let whole = of(ranks);
        assert_eq!(course(&of(ranks)), course(&whole), "{ranks} ranks");
        for ([loss, _], [expected, _]) in course(&whole).iter().zip(&course(&alone)) {
            let off = (loss - expected).abs() / expected;
            assert!(off < 0.05, "{ranks} ranks: {loss} and {expected}");
        }
        let told =
            |events: &[Value]| events.last().expect("a last line")["saturated_messages"].as_u64();
        let (one, all) = (told(&alone).expect("codes"), told(&whole).expect("codes"));
        let off = one.abs_diff(all);
        assert!(off <= one / 10 + 8, "{ranks} ranks: {one} and {all}");
    }
}

#[test]
fn runs_of_ranks_repeat_and_stop_early_together() {
    let place = place(&Ring::new());
    let more = [
        "--ranks",
        "3",
        "--epochs",
        "200",
        "--early-stopping",
        "5",
        "--json",
        "-",
    ];
    let runs = [(); 2].map(|()| run(place.train(&more)));
    let [one, other] = runs.each_ref().map(|events| course(events));
    assert_eq!(one, other);
    assert!(one.len() < 200, "{}", one.len());
    // Several seeds, each with its own ranks; metrics that see all logits.
    let more = [
        "--ranks",
        "2",
        "--epochs",
        "3",
        "--seeds",
        "2",
        "--metrics",
        "roc-auc,macro-f1",
        "--precision",
        "float",
        "--json",
        "-",
    ];
    let seeds = run(place.train(&more));
    assert_eq!(course(&seeds).len(), 6);
    let alone = run(place.train(&more[2..]));
    for metric in ["accuracy", "roc-auc", "macro-f1"] {
        let of = |events: &[Value]| {
            let score = &events.last().unwrap()["test_scores"][metric]["mean"];
            score
                .as_f64()
                .unwrap_or_else(|| panic!("{metric}: {score}"))
        };
        assert!((of(&seeds) - of(&alone)).abs() < 1e-3, "{metric}");
    }
}

#[test]
fn parts_may_be_communities_or_come_from_a_file() {
    let place = place(&Ring::new());
    // Halves of the ring: four vertices are heard across.
    let parts: String = (0..VERTICES).map(|v| format!("{}\n", v / 20)).collect();
    std::fs::write(place.folder.path().join("ring.part"), parts).unwrap();
    for (by, at_most) in [("ring.part", 4), ("louvain", 8)] {
        let more = [
            "--ranks",
            "2",
            "--partition",
            by,
            "--epochs",
            "2",
            "--json",
            "-",
        ];
        let events = run(place.train(&more));
        let halo = events[0]["ranks"]["halo"].as_array().unwrap();
        let halo: u64 = halo.iter().filter_map(Value::as_u64).sum();
        assert!(halo <= at_most, "{by}: {halo}");
    }
}

#[test]
fn what_ranks_do_not_do_is_refused() {
    let place = place(&Ring::new());
    let refuse = |more: &[&str], words: &[&str]| {
        let all = [&["--ranks", "3"], more].concat();
        refused(&place.train(&all).output().unwrap(), 2, words);
    };
    refuse(
        &["--inductive"],
        &["--inductive is trained by one rank; leave it out, or train with one"],
    );
    refuse(&["--task", "link"], &["--task link is trained by one rank"]);
    refuse(
        &["--model", "sage", "--sampler", "cluster:4"],
        &["--sampler saint-… or cluster:… is trained by one rank"],
    );
    let sampled = ["--model", "sage", "--sampler", "neighbor:2,2"];
    refuse(
        &[&sampled[..], &["--partition", "louvain"]].concat(),
        &["--partition deals a graph out, and in batches each rank has all of it"],
    );
    refuse(
        &[&sampled[..], &["--store", "eight-bit"]].concat(),
        &["--store is trained by one rank; leave it out, or train with one"],
    );
    refuse(
        &["--model", "gat", "--attention-dropout", "0.5"],
        &["leave the attention dropout out, or train with one"],
    );
    refuse(
        &["--overlap", "off"],
        &["--overlap is of processes with a card each"],
    );
    refuse(&["--partition", "none"], &["--partition none: "]);
    std::fs::write(place.folder.path().join("short"), "0\n1\n2\n").unwrap();
    refuse(
        &["--partition", "short"],
        &["is of 3 vertices, and the graph has 40"],
    );
    refuse(
        &["--rank-fault", "die:3@0"],
        &["there are 3 ranks, from 0 on"],
    );
}

/// Whatever a rank does: the program ends in time, in one line that names it and where it was, and what was kept stands.
#[test]
fn a_rank_that_fails_ends_the_run_in_one_line() {
    let place = place(&Ring::new());
    let faults = [
        ("die:2@", "it died in epoch"),
        ("hang:2@", "no answer for 1 s in epoch"),
        ("count:2@", "bytes where rank"),
        ("delay(6000 ms):2@", "no answer for 1 s in epoch"),
    ];
    // An epoch of two layers has some ten exchanges.
    for (fault, said) in faults {
        for exchange in [40, 43] {
            let fault = format!("{fault}{exchange}");
            let start = Instant::now();
            let more = [
                "--ranks",
                "4",
                "--epochs",
                "1000000",
                "--rank-timeout",
                "1",
                "--save",
                "kept",
                "--save-every",
                "1",
                "--rank-fault",
                &fault,
            ];
            let output = place.train(&more).output().unwrap();
            assert!(start.elapsed() < Duration::from_secs(11), "{fault}");
            let told = refused(
                &output,
                1,
                &["rank 2 of 4 (", "CPU", said, "in epoch", "exchange"],
            );
            let (kept, _) = weights(&place, "kept");
            assert!(kept > 0, "{told}");
            let told_epoch = told
                .split("in epoch ")
                .nth(1)
                .unwrap()
                .split(',')
                .next()
                .unwrap();
            assert!(
                told_epoch.parse::<u32>().unwrap() >= kept,
                "{told}, and {kept} was kept"
            );
        }
    }
    // A little late is not too late.
    let more = [
        "--ranks",
        "4",
        "--epochs",
        "2",
        "--rank-fault",
        "delay(200 ms):1@3",
        "--json",
        "-",
    ];
    assert_eq!(course(&run(place.train(&more))).len(), 2);
}

/// Processes as a launcher starts them, each with its number; what each says.
fn processes(place: &Place, ranks: usize, more: impl Fn(usize) -> Vec<String>) -> Vec<Child> {
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

fn outputs(children: Vec<Child>) -> Vec<Output> {
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
            &["have another model, options or partition: give all ranks the same"],
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
        &["rank 1 of 2: the ranks did not meet at file:nowhere within 1 s"],
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
        &["--exchange nccl: rank 0: CPUs are linked by nothing but the host; take CUDA cards"],
    );
    let threads = [&["--ranks", "2"], &cpu[..], &["nccl"]].concat();
    refused(
        &train(&threads),
        2,
        &["--exchange nccl is of processes with a card each"],
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
