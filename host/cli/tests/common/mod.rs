//! The program, run, and what it says read back.
#![allow(dead_code)] // each test file uses its part

pub mod documented;
pub mod ring;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// What runs a program of another processor, by words, such as `qemu-aarch64 -L /usr/aarch64-linux-gnu`.
const RUNNER: &str = "HALFGNN_TEST_RUNNER";

/// The program, by what runs it where the system does not.
fn program() -> Command {
    let program = env!("CARGO_BIN_EXE_halfgnn");
    let runner = std::env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace().chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words);
    command
}

/// The program with these arguments, and nothing of the caller's settings.
pub fn halfgnn(arguments: &[&str]) -> Command {
    let mut command = program();
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR");
    command
}

/// The program on a disk that seems to hold files of a KiB at most: what is longer cannot be written.
pub fn on_a_full_disk(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_halfgnn"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The names in a folder, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What a program wrote, which is UTF-8.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// JSON lines after the first, which is on the machine.
pub fn events(bytes: &[u8]) -> Vec<Value> {
    let mut events: Vec<Value> = text(bytes)
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let machine = events.remove(0);
    assert_eq!(machine["event"], "machine", "{machine}");
    assert_eq!(machine["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(machine["system"], std::env::consts::OS);
    assert_eq!(machine["architecture"], std::env::consts::ARCH);
    assert_eq!(machine["cpu_instructions"][0], "plain", "{machine}");
    assert!(machine["threads"].as_u64().unwrap() > 0, "{machine}");
    let command = machine["command"].as_str().unwrap();
    assert!(command.starts_with("halfgnn "), "{command}");
    events
}

/// That the program refused in one line which has all of `words`; gives the line.
pub fn refused(output: &Output, status: i32, words: &[&str]) -> String {
    let error = text(&output.stderr).trim_end().to_owned();
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("halfgnn: "), "{error}");
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    error
}
