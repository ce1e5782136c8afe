//! Every target, fed with its corpus and with the same few thousand mutants everywhere.

use halfgnn_fuzz::{Answer, Budget, Report, TARGETS, Target, allocation, check, fuzz};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

fn target(name: &str) -> &'static Target {
    Target::named(name).expect("a target")
}

fn mutants(name: &str, executions: u64) -> Report {
    let budget = Budget {
        time: Duration::from_secs(300),
        executions,
        seed: 1,
        workers: 2,
    };
    let report = fuzz(target(name), budget).unwrap_or_else(|finding| panic!("{name}: {finding:?}"));
    assert!(report.executions() >= executions, "{name}: {report:?}");
    report
}

/// A file whose name begins with `refused` was found and led to a better error.
#[test]
fn every_corpus_is_answered() {
    for target in TARGETS {
        for (path, bytes) in target.corpus() {
            let answer = check(target, &bytes);
            let answer = answer.unwrap_or_else(|what| panic!("{}: {what}", path.display()));
            let name = path.file_name().expect("a file").to_string_lossy();
            assert_eq!(
                matches!(answer, Answer::Refused(_)),
                name.starts_with("refused"),
                "{}: {answer:?}",
                path.display()
            );
        }
    }
}

/// Both happen: a mutation may be harmless, and most are not.
#[test]
fn mutated_ptx_is_refused_or_parsed() {
    let report = mutants("ptx", 20_000);
    assert!(
        report.accepted > 2000 && report.refused > 5000,
        "{report:?}"
    );
    assert!(report.answers > 100, "{report:?}");
}

#[test]
fn mutated_ptx_that_is_parsed_runs_or_faults() {
    let report = mutants("launch", 15_000);
    assert!(report.accepted > 2000 && report.answers > 100, "{report:?}");
}

#[test]
fn mutated_archives_are_refused_or_read() {
    let report = mutants("npz", 10_000);
    assert!(report.accepted > 200 && report.refused > 5000, "{report:?}");
}

#[test]
fn mutated_files_are_refused_or_read() {
    for (name, executions) in [
        ("pyg", 4000),
        ("torch", 4000),
        ("tables", 1500),
        ("edge-list", 6000),
        ("matrix-market", 6000),
        ("scipy", 4000),
        ("raw-csr", 4000),
        ("frdc", 4000),
        ("planetoid", 500),
        ("ogb", 400),
        ("tu", 400),
        ("parts", 600),
        ("reddit", 600),
        ("checkpoint", 3000),
    ] {
        let report = mutants(name, executions);
        println!("{name}: {report:?}");
        assert!(
            report.accepted > 10 && report.refused > executions / 10,
            "{name}: {report:?}"
        );
    }
}
