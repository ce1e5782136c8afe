//! Fuzzes the targets of [`halfgnn_fuzz`]: `cargo xtask fuzz`, or
//!
//! ```text
//! halfgnn-fuzz [TARGET …] [--seconds N] [--seed N]     mutants of the corpus, the time shared by the targets
//! halfgnn-fuzz TARGET --input FILE                     one input, such as one that was found
//! ```
//!
//! An input with which a target breaks its promise is stored, and the exit code is then 1. Guided by coverage, with
//! cargo-fuzz and a C++ compiler, on stable Rust as well (`--sanitizer none`):
//!
//! ```text
//! HALFGNN_FUZZ_TARGET=ptx cargo fuzz run --fuzz-dir tests/fuzz --features libfuzzer --sanitizer none libfuzzer
//! ```

use clap::Parser;
use halfgnn_fuzz::{Budget, TARGETS, Target, allocation, check, fuzz};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

/// Feeds readers with what no writer would write.
#[derive(Parser)]
struct Options {
    /// Targets; all of them by default
    targets: Vec<String>,
    /// Seconds in all, shared by the targets
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the mutants; the clock by default
    #[arg(long)]
    seed: Option<u64>,
    /// Feeds this file alone
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let named = |name: &String| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        Target::named(name).ok_or(format!(
            "no target is called {name}; there are {}",
            names.join(", ")
        ))
    };
    let mut targets: Vec<&'static Target> = options
        .targets
        .iter()
        .map(named)
        .collect::<Result<_, _>>()?;
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    if let Some(path) = &options.input {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for target in targets {
            let answer =
                check(target, &bytes).map_err(|what| format!("{}: {what}", target.name))?;
            println!("{}: {answer:?}", target.name);
        }
        return Ok(());
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    for target in &targets {
        let budget = Budget {
            time: Duration::from_secs(options.seconds) / targets.len() as u32,
            executions: u64::MAX,
            seed,
            workers,
        };
        let begin = Instant::now();
        let report = fuzz(target, budget).map_err(|finding| {
            let path = store(target, &finding.input);
            format!(
                "{}: {} (seed {seed}, {workers} workers)\nthe input is {path}; again: cargo xtask fuzz {} --input {path}",
                target.name, finding.what, target.name
            )
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{:8} {:9} inputs in {seconds:4.0} s, {:7.0} a second: {} accepted, {} refused, {} different answers, seed {seed}",
            target.name,
            report.executions(),
            report.executions() as f64 / seconds,
            report.accepted,
            report.refused,
            report.answers,
        );
    }
    Ok(())
}

/// Keeps an input in the target folder; its path.
fn store(target: &Target, input: &[u8]) -> String {
    let folder = std::env::temp_dir();
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let path: PathBuf = folder.join(format!("halfgnn-fuzz-{}-{hash:016x}", target.name));
    match std::fs::write(&path, input) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("lost ({}: {error})", Path::new(&path).display()),
    }
}
