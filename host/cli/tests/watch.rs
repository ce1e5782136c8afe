//! What follows a run: tables, TensorBoard's files, a chart.

mod common;

use common::ring::{Ring, place};
use common::{refused, text};

#[test]
fn a_row_an_epoch_and_an_event_file_a_run_are_written() {
    let place = place(&Ring::new());
    let folder = tempfile::tempdir().unwrap();
    let (table, events) = (folder.path().join("run.csv"), folder.path().join("runs"));
    let output = place
        .train(&["--epochs", "3", "--seeds", "2", "--metrics", "macro-f1"])
        .arg("--csv")
        .arg(&table)
        .arg("--tensorboard")
        .arg(&events)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));

    let rows = std::fs::read_to_string(&table).unwrap();
    let rows: Vec<Vec<&str>> = rows.lines().map(|row| row.split(',').collect()).collect();
    assert_eq!(
        rows[0].join(","),
        "model,seed,epoch,loss,learning_rate,train accuracy,validation accuracy,test accuracy,\
         train macro-f1,validation macro-f1,test macro-f1,ms,loss_scale,skipped_steps"
    );
    let runs: Vec<[&str; 3]> = rows[1..]
        .iter()
        .map(|row| [row[0], row[1], row[2]])
        .collect();
    let expected = [
        ("0", "1"),
        ("0", "2"),
        ("0", "3"),
        ("1", "1"),
        ("1", "2"),
        ("1", "3"),
    ];
    assert_eq!(runs, expected.map(|(seed, epoch)| ["gcn", seed, epoch]));
    assert!(rows[1..].iter().all(|row| row.len() == rows[0].len()));

    for (seed, loss) in [(0, rows[3][3]), (1, rows[6][3])] {
        let run = events.join(format!("gcn-seed-{seed}"));
        let files: Vec<_> = std::fs::read_dir(run).unwrap().collect();
        let [Ok(file)] = &files[..] else {
            panic!("{files:?}")
        };
        let name = file.file_name();
        assert!(
            name.to_str().unwrap().starts_with("events.out.tfevents."),
            "{name:?}"
        );
        let bytes = std::fs::read(file.path()).unwrap();
        let records = records(&bytes);
        assert_eq!(records.len(), 1 + 3, "the version, and an epoch each");
        assert!(records[0].ends_with(b"brain.Event:2"));
        // The last epoch's loss stands behind its tag, as field 2, four bytes.
        let tag = b"loss/train";
        let at = records[3]
            .windows(tag.len())
            .position(|window| window == tag)
            .unwrap();
        let value = &records[3][at + tag.len()..][..5];
        assert_eq!(value[0], 2 << 3 | 5);
        let value = f32::from_le_bytes(value[1..].try_into().unwrap());
        assert_eq!(value, loss.parse::<f32>().unwrap());
    }
}

/// The contents of records: each stands between its length with a sum, and a sum.
fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        records.push(&bytes[12..][..length]);
        bytes = &bytes[12 + length + 4..];
    }
    records
}

#[test]
fn what_cannot_be_written_is_told_in_one_line() {
    let place = place(&Ring::new());
    let train = |arguments: &[&str]| {
        let mut all = vec!["--epochs", "2"];
        all.extend(arguments);
        place.train(&all).output().unwrap()
    };
    refused(
        &train(&["--csv", "/nowhere/run.csv"]),
        2,
        &["--csv /nowhere/run.csv", "No such file"],
    );
    refused(
        &train(&["--tensorboard", "/dev/null/runs"]),
        2,
        &["--tensorboard /dev/null/runs", "cannot be made"],
    );
    if cfg!(target_os = "linux") {
        refused(
            &train(&["--csv", "/dev/full"]),
            1,
            &["--csv /dev/full", "No space left"],
        );
    }
}

#[test]
fn a_chart_wants_a_terminal_and_says_so() {
    let place = place(&Ring::new());
    let output = place.train(&["--epochs", "2", "--watch"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("--watch draws on a terminal, and this is none; --plot FILE.svg"),
        "{shown}"
    );
}
