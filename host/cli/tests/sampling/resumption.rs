//! Runs in batches that are left and taken up again.

use super::common::ring::{Ring, place};
use super::{SUBGRAPHS, of, run, told};
use halfgnn::train::Checkpoint;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn subgraphs_of_every_task_repeat_and_are_resumed() {
    let place = place(&Ring::new());
    for sampler in SUBGRAPHS {
        let batches = [&["--layers", "2", "--sampler"], sampler].concat();
        for task in [
            &["--task", "multi-label"][..],
            &["--task", "regression"],
            &["--class-weights", "balanced"],
        ] {
            let more = [&batches[..], task, &["--epochs", "3"]].concat();
            let losses = told(&run(&place, &more));
            assert!(
                losses.iter().all(|(loss, _)| loss.is_f64()),
                "{task:?}: {losses:?}"
            );
            assert_eq!(losses, told(&run(&place, &more)), "{task:?} {sampler:?}");
        }
        let epochs = |epochs, file| [&batches[..], &["--epochs", epochs, "--save", file]].concat();
        let whole = told(&run(&place, &epochs("5", "whole")));
        run(&place, &epochs("2", "part"));
        let rest = run(
            &place,
            &["--resume", "part", "--epochs", "5", "--save", "part"],
        );
        assert_eq!(told(&rest), whole[2..], "{sampler:?}");
    }
}

#[test]
fn a_resumed_run_goes_on_in_its_batches() {
    let place = place(&Ring::new());
    let batches = ["--sampler", "neighbor:1,2", "--batch", "2", "--layers", "2"];
    let epochs = |epochs, file| [&batches[..], &["--epochs", epochs, "--save", file]].concat();
    let whole = told(&run(&place, &epochs("6", "whole")));
    run(&place, &epochs("2", "part"));
    let rest = run(
        &place,
        &["--resume", "part", "--epochs", "6", "--save", "part"],
    );
    assert_eq!(of(&rest, "start")[0]["sampler"], "neighbor:1,2");
    assert_eq!(told(&rest), whole[2..]);
    let tensors = |file| {
        let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
        checkpoint.snapshot.tensors
    };
    assert_eq!(tensors("part"), tensors("whole"));
}

/// Ctrl-C leaves an epoch between two batches; the file has how far it came, and the run goes on to the same bits.
#[test]
#[cfg(unix)]
fn a_run_is_left_and_taken_up_between_batches() {
    let place = place(&Ring::new());
    let batches = ["--sampler", "neighbor:2,2", "--batch", "1", "--layers", "2"];
    let long = [
        "--save",
        "kept",
        "--save-every",
        "1",
        "--epochs",
        "1000000",
        "--json",
        "kept.jsonl",
    ];
    let kept = place.folder.path().join("kept");
    let mut parts = 0;
    for _ in 0..20 {
        let mut child = place
            .train(&[&batches[..], &long].concat())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while Checkpoint::open(&kept).is_err() {
            assert!(Instant::now() < deadline, "nothing was kept");
        }
        let interrupt = std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(interrupt.unwrap().success());
        assert!(child.wait().unwrap().success());
        let progress = Checkpoint::open(&kept).unwrap().snapshot.progress;
        if let Some(part) = progress.part {
            parts += 1;
            assert!((1..6).contains(&part.batches), "{part:?}");
            let epochs = (progress.epoch + 2).to_string();
            run(
                &place,
                &["--resume", "kept", "--epochs", &epochs, "--save", "kept"],
            );
            run(
                &place,
                &[&batches[..], &["--epochs", &epochs, "--save", "whole"]].concat(),
            );
            let tensors = |file| {
                let checkpoint = Checkpoint::open(&place.folder.path().join(file)).unwrap();
                let resume = checkpoint.snapshot.tensors.into_iter();
                resume
                    .filter(|(name, _)| name.starts_with("resume."))
                    .collect::<Vec<_>>()
            };
            assert_eq!(tensors("kept"), tensors("whole"));
            break;
        }
        std::fs::remove_file(&kept).unwrap();
    }
    assert!(parts > 0, "each of 20 runs was left at the end of an epoch");
}
