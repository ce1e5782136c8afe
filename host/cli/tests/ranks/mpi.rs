//! Ranks that MPI has started, where there is one.

use super::common::ring::{Place, Ring, place};
use super::common::{events, text};
use super::{course, run, weights};
use crate::skip::skip;
use std::process::{Command, Output};

/// Whether there is a program to start ranks with, of the MPI that is bound.
fn has_open_mpi() -> bool {
    let version = Command::new("mpirun").arg("--version").output();
    let reason = match version {
        Ok(output) if text(&output.stdout).contains("Open MPI") => return true,
        Ok(_) => "mpirun is not Open MPI's".to_owned(),
        Err(error) => format!("there is no mpirun: {error}"),
    };
    skip("MPI", &reason);
    false
}

/// Ranks that `mpirun` starts with these arguments of `train`, one kind after the other, and what all have said;
/// nothing where there is none of Open MPI.
fn started(place: &Place, kinds: &[(&str, &[&str])]) -> Option<Output> {
    if !has_open_mpi() {
        return None;
    }
    let mut command = Command::new("mpirun");
    command.arg("--oversubscribe");
    for (number, (ranks, more)) in kinds.iter().enumerate() {
        let train = place.train(&[&["--rendezvous", "mpi"], *more].concat());
        command.args((number > 0).then_some(":"));
        command.args(["-np", ranks]).arg(train.get_program());
        command.args(train.get_args());
        command.current_dir(train.get_current_dir().expect("a folder"));
    }
    // Of those who test as root.
    let root = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    command.envs(root.map(|name| (name, "1")));
    Some(command.output().unwrap())
}

/// Rows longer than what goes with each exchange, and models with exchanges both ways.
#[test]
fn processes_of_mpi_train_as_threads_do() {
    let place = place(&Ring::new());
    for model in ["gcn", "gat"] {
        let of = ["--model", model, "--layers", "3", "--hidden", "512"];
        let of = [&of[..], &["--epochs", "3", "--json", "-"]].concat();
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
        let told = text(&output.stdout);
        assert!(told.contains("exchanges by Open MPI"), "{told}");
    }
}

/// A rank with other options is reported, and ends all.
#[test]
fn ranks_of_mpi_that_are_unlike_end_all() {
    let place = place(&Ring::new());
    let kinds: [(&str, &[&str]); 2] = [("2", &[]), ("1", &["--dropout", "0.7"])];
    let Some(output) = started(&place, &kinds) else {
        return;
    };
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(
        error.contains("rank 2 differs from ranks 0 and 1 in model"),
        "{error}"
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
