//! Batches and features that are partitioned between ranks.

use super::common::ring::{Ring, place};
use super::common::{events, halfgnn, refused, text};
use super::processes::{outputs, processes};
use super::{FLOAT, course, run, weights};
use serde_json::Value;

/// Training in batches.
const SAMPLED: [&str; 6] = [
    "--model",
    "sage",
    "--sampler",
    "neighbor:2,2",
    "--batch",
    "7",
];

/// Training in batches: each rank has all of the graph and a part of each batch, and what they learn together is what
/// one learns. Threads and processes, and another run, have the same bits; a run goes on with another number of ranks.
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

/// Features of which each rank has a share are those that each has whole, to the bit; threads and processes have the
/// same. What each takes has less of them.
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
        let words = "in --features; give all ranks the same data and options";
        assert!(!output.status.success() && told.contains(words), "{told}");
    }
}

/// Features are partitioned between several ranks that learn in batches and nowhere else, and a rank that fails while
/// they are exchanged ends all in a line that says so.
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

/// Asserts that runs of several ranks repeat, and have nearly the losses of one; returns the events of such a run.
fn assert_near(of: &dyn Fn(&str) -> Vec<Value>, ranks: &str, alone: &[Value]) -> Vec<Value> {
    let whole = of(ranks);
    assert_eq!(course(&of(ranks)), course(&whole), "{ranks} ranks");
    for ([loss, _], [expected, _]) in course(&whole).iter().zip(&course(alone)) {
        let off = (loss - expected).abs() / expected;
        assert!(off < 0.05, "{ranks} ranks: {loss} and {expected}");
    }
    whole
}

/// So they do in batches: values of a rank's part are quantized by the scales of all. What was beyond those is reported
/// of all together.
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
        let whole = assert_near(&of, ranks, &alone);
        let told =
            |events: &[Value]| events.last().expect("a last line")["saturated_messages"].as_u64();
        let (one, all) = (told(&alone).expect("codes"), told(&whole).expect("codes"));
        let off = one.abs_diff(all);
        assert!(off <= one / 10 + 8, "{ranks} ranks: {one} and {all}");
    }
}

/// Activations that are stored for the backward pass likewise; threads and processes store the same.
#[test]
fn activations_of_batches_have_8_bits() {
    let place = place(&Ring::new());
    let own = ["--store", "eight-bit", "--dropout", "0", "--epochs", "6"];
    let all = [&SAMPLED[..], &own, &["--layers", "2", "--json", "-"]].concat();
    let of = |ranks: &str| run(place.train(&[&all[..], &["--ranks", ranks]].concat()));
    let alone = of("1");
    for ranks in ["2", "3"] {
        assert_near(&of, ranks, &alone);
    }
    let ranks = outputs(processes(&place, 2, |_| {
        all.iter().map(|it| (*it).to_owned()).collect()
    }));
    for output in &ranks {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_eq!(course(&events(&ranks[0].stdout)), course(&of("2")));
}
