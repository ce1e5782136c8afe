//! One graph and several ranks, as a person trains on it: `--ranks`.

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod meeting;
#[cfg(all(feature = "mpi", target_os = "linux"))]
mod mpi;
mod processes;
#[cfg(all(feature = "mpi", target_os = "linux"))]
#[path = "../../../../tests/src/skip.rs"]
mod skip;

use common::ring::{Place, Ring, VERTICES, place};
use common::{events, halfgnn, refused, text};
use halfgnn::train::Checkpoint;
use serde_json::Value;
use std::process::Command;
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

/// What each rank takes is reported before the first epoch: on one device all together are what was taken, to a
/// hundredth; and what has no memory is refused with the rank that takes most of it.
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

/// Ranks with messages of 8 bits learn what one does, count together what was beyond scales, and go on to the same
/// bits.
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
                // A value is the next one where a rounding turns, which a batch normalisation amplifies, step by step.
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

/// Ranks that keep activations in 8 bits learn what one does that keeps them so, take what was estimated, and go on to
/// the same bits.
#[test]
fn ranks_store_activations_in_8_bits() {
    let place = place(&Ring::new());
    for (model, precision) in [
        ("gcn", "half"),
        ("gin", "half"),
        ("gat", "bf16"),
        ("sage", "bf16"),
        ("graphconv", "half"),
        ("transformer", "bf16"),
    ] {
        let more = [
            "--model",
            model,
            "--layers",
            "3",
            "--precision",
            precision,
            "--store",
            "eight-bit",
            "--json",
            "-",
            "--save",
        ];
        let train = |of: &[&str]| run(place.train(&[&more[..], of].concat()));
        let alone = train(&["alone", "--epochs", "6"]);
        for ranks in ["2", "3"] {
            let what = format!("{model} in {precision}, {ranks} ranks");
            let of = |file: &'static str, epochs: &'static str| {
                train(&[file, "--epochs", epochs, "--ranks", ranks])
            };
            let whole = of("whole", "6");
            assert_eq!(whole[0]["store"], "eight-bit", "{what}");
            let pairs = course(&whole).into_iter().zip(course(&alone));
            for (epoch, ([loss, _], [expected, _])) in pairs.enumerate() {
                let off = (loss - expected).abs() / expected;
                // Of quantized values a batch normalisation leaves little but the differences.
                let allowed = if model == "gin" { 0.2 } else { 0.03 };
                assert!(
                    off < allowed,
                    "{what}, epoch {epoch}: {loss} and {expected}"
                );
            }
            let took = whole.last().unwrap()["peak_bytes"].as_f64().unwrap();
            let foretold = whole[1]["bytes"].as_array().unwrap().iter();
            let foretold: f64 = foretold.filter_map(Value::as_f64).sum();
            assert!(
                (0.99..1.01).contains(&(foretold / took)),
                "{what}: {foretold} {took}"
            );
            of("part", "3");
            let again = [
                "part", "--resume", "part", "--epochs", "6", "--ranks", ranks,
            ];
            let rest = run(place.train(&[&["--json", "-", "--save"], &again[..]].concat()));
            assert_eq!(course(&rest), course(&whole)[3..], "{what}");
            assert_eq!(weights(&place, "part"), weights(&place, "whole"), "{what}");
        }
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
    // Halves of the ring: four vertices are aggregated across.
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

/// Partitioned by degree the neighbours on a ring are other ranks', so that all rows are given; as arcs a rank
/// aggregates two vertices of the others, and is given all where that is wanted.
#[test]
fn ranks_may_be_given_all_rows_of_the_others() {
    let place = place(&Ring::new());
    for model in ["gcn", "gat"] {
        let of = |more: &[&str]| {
            let common = ["--model", model, "--epochs", "4", "--ranks", "3"];
            run(place.train(&[&FLOAT[..], &common, more].concat()))
        };
        let [auto, halo, whole, arcs] = [
            of(&[]),
            of(&["--gather", "halo"]),
            of(&["--gather", "whole"]),
            of(&["--partition", "louvain"]),
        ];
        for ([loss, _], [expected, _]) in course(&whole).into_iter().zip(course(&halo)) {
            let off = (loss - expected).abs() / expected;
            assert!(off < 1e-3, "{model}: {loss} and {expected}");
        }
        assert_eq!(course(&auto), course(&whole), "{model}");
        let told = |events: &[Value]| events[1]["gather"].as_str().map(str::to_owned);
        assert_eq!(told(&auto).as_deref(), Some("whole"));
        assert_eq!(told(&arcs).as_deref(), Some("halo"));
        assert_eq!(told(&halo).as_deref(), Some("halo"));
        assert_eq!(told(&whole).as_deref(), Some("whole"));
        let took = whole.last().unwrap()["peak_bytes"].as_f64().unwrap();
        let foretold = whole[1]["bytes"].as_array().unwrap().iter();
        let foretold: f64 = foretold.filter_map(Value::as_f64).sum();
        assert!(
            (0.99..1.01).contains(&(foretold / took)),
            "{foretold} {took}"
        );
    }
    for option in [
        ["--gather", "halo"],
        ["--exchange", "host"],
        ["--overlap", "off"],
    ] {
        let bench = ["bench", "train", "--graph", "kron:4", "--device", "cpu"];
        let output = halfgnn(&[&bench[..], &option].concat()).output();
        let told = format!("{} is of several ranks, and this is one", option[0]);
        refused(&output.unwrap(), 2, &[&told]);
    }
    let shown = ["--epochs", "1", "--ranks", "2", "--gather", "whole"];
    let shown = place.train(&shown).output().unwrap();
    let shown = [text(&shown.stdout), text(&shown.stderr)].concat();
    assert!(shown.contains("all rows of the others"), "{shown}");
    refused(
        &place.train(&["--gather", "whole"]).output().unwrap(),
        2,
        &["--gather is of several ranks, and this is one"],
    );
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
        &[&sampled[..], &["--gather", "whole"]].concat(),
        &["--gather is of a graph that is dealt out, and in batches each rank has all of it"],
    );
    for of in [&[][..], &sampled[..]] {
        let float = ["--store", "eight-bit", "--precision", "float"];
        refuse(
            &[of, &float].concat(),
            &["this program computes in float; take one of those"],
        );
    }
    refuse(
        &["--model", "gat", "--attention-dropout", "0.5"],
        &["leave the attention dropout out, or train with one"],
    );
    refuse(
        &["--overlap", "off"],
        &["--overlap is of processes with a GPU each"],
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

/// Whatever a rank does: the program ends in time, in one line that names it and where it was, and what was kept
/// stands.
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
