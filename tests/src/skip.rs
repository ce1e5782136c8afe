//! Tests that cannot run where they are: they say so, and fail where what they need was promised.

use std::env;
use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::thread;

/// A file to which lines of skipped tests are added; `cargo xtask test` sets it and shows them at its end.
pub const SKIPPED: &str = "HALFGNN_SKIPPED";

/// Says that the test of this thread is passed over for want of `needs`, past the output that a passing test keeps to itself.
///
/// # Panics
/// Where `HALFGNN_REQUIRE_` and `needs` is set.
pub fn skip(needs: &str, reason: &str) {
    let required = format!("HALFGNN_REQUIRE_{needs}");
    assert!(
        env::var_os(&required).is_none(),
        "{required} is set, but {reason}"
    );
    let test = thread::current();
    let line = format!("skipped: {}: {reason}\n", test.name().unwrap_or("a test"));
    // Whoever runs the tests may have closed either.
    let _ = stderr().write_all(line.as_bytes());
    if let Some(file) = env::var_os(SKIPPED) {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
