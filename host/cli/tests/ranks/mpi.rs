//! Ranks that MPI has started, where there is one.

use super::common::ring::{Place, Ring, place};
use super::common::{events, text};
use super::{course, run, weights};
use crate::skip::skip;
use std::process::{Command, Output};

/// So many ranks that `mpirun` starts with these arguments of `train`, one kind after the other, and what all have said; nothing where
/// there is none.
fn started(place: &Place, kinds: &[(&str, &[&str])]) -> Option<Output> {
    let mut command = Command::new("mpirun");
    command.arg("--oversubscribe");
    for (ranks, more) in kinds {
        let train = place.train(&[&["--rendezvous", "mpi"], *more].concat());
        command.args(["-np", ranks]).arg(train.get_program());
        command.args(train.get_args()).arg(":");
        command.current_dir(train.get_current_dir().expect("a folder"));
    }
    // Of those who test as root.
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.envs(root.map(|name| (name, "1")));
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            skip("MPI", &format!("there is no mpirun: {error}"));
            None
        }
    }
}

/// Rows longer than what goes with each exchange, and models with exchanges both ways.
#[test]
fn processes_of_mpi_train_as_threads_do() {
    let place = place(&Ring::new());
    for model in ["gcn", "gat"] {
        let of = [
            "--model", model, "--epochs", "4", "--hidden", "64", "--json", "-",
        ];
        let with = |more: &[&'static str]| [&of[..], more].concat();
        let threads = run(place.train(&with(&["--ranks", "3", "--save", "threads"])));
        let Some(output) = started(&place, &[("3", &with(&["--save", "processes"]))]) else {
            return;
        };
        assert!(output.status.success(), "{}", text(&output.stderr));
        let processes = events(&output.stdout);
        assert_eq!(course(&processes), course(&threads), "{model}");
        assert_eq!(
            weights(&place, "processes"),
            weights(&place, "threads"),
            "{model}"
        );
        let moved_by = processes[0]["device"].to_string();
        assert!(moved_by.contains("Open MPI"), "{moved_by}");
    }
}

/// Who was given other options is told, and ends all.
#[test]
fn ranks_of_mpi_that_are_unlike_end_all() {
    let place = place(&Ring::new());
    let kinds: [(&str, &[&str]); 2] = [("2", &[]), ("1", &["--dropout", "0.7"])];
    let Some(output) = started(&place, &kinds) else {
        return;
    };
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(
        told.contains("have another model, options or partition"),
        "{told}"
    );
}

/// A process that MPI has not started is alone in its eyes.
#[test]
fn who_mpi_did_not_start_is_told() {
    let place = place(&Ring::new());
    let told = |library: &str| {
        let mut command = place.train(&["--rendezvous", "mpi"]);
        command.envs([("RANK", "1"), ("WORLD_SIZE", "2")]);
        let output = command.env("HALFGNN_LIBMPI", library).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr).to_string()
    };
    let none = told("no-such-mpi.so");
    assert!(
        none.contains("no MPI: no-such-mpi.so") && none.contains("--rendezvous tcp://"),
        "{none}"
    );
    let other = told("libc.so.6");
    assert!(other.contains("libc.so.6 is not Open MPI"), "{other}");
}
