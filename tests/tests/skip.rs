//! A test that is passed over says so where it is seen, and fails where what it needs was promised.

use halfgnn_tests::skip::{SKIPPED, skip};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Set for the runs of this program in which [`passed_over`] is.
const WANTED: &str = "HALFGNN_TESTS_SKIP_WANTED";

/// Skipped in the runs that the other test makes; else there is nothing that it needs.
#[test]
fn passed_over() {
    if env::var_os(WANTED).is_some() {
        skip("UNICORN", "there is none");
    }
}

#[test]
fn what_is_skipped_is_seen_and_what_was_promised_is_required() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skipped.txt");
    fs::write(&file, "").expect("the tests' folder can be written");
    let mut run = Command::new(env::current_exe().expect("this program has a path"));
    run.args(["--exact", "passed_over", "--test-threads", "2"])
        .env(WANTED, "1")
        .env(SKIPPED, &file);
    let output = run.output().expect("this program runs");
    assert!(output.status.success());
    let line = "skipped: passed_over: there is none\n";
    assert!(String::from_utf8_lossy(&output.stderr).contains(line));
    assert_eq!(fs::read_to_string(&file).expect("it was there"), line);

    let output = run.env("HALFGNN_REQUIRE_UNICORN", "1").output();
    let output = output.expect("this program runs");
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains("HALFGNN_REQUIRE_UNICORN is set, but there is none"),
        "{told}"
    );
}
