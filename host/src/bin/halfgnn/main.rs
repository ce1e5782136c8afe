//! `halfgnn`: trains graph neural networks in half precision from a shell.

mod args;
mod bench;
mod demo;
mod events;
mod failure;
mod json;
mod profile;
mod screen;
mod session;
mod train;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(cli.verbose);
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("halfgnn: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    let stop = stop_on_interrupt()?;
    match command {
        Command::Train(args) => train::run(args, &stop),
        Command::Demo(args) => demo::run(args, &stop),
        Command::Bench(args) => bench::run(args, &stop),
        Command::Profile(args) => profile::run(args),
    }
}

/// Messages to stderr: warnings, more with `-v`, or what `RUST_LOG` says.
fn start_logging(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("halfgnn={level}")));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}

/// A flag that the first Ctrl-C (or SIGTERM) sets; the second ends the program at once.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    const INTERRUPTED: i32 = 130; // 128 + SIGINT, as shells have it
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    })
    .map_err(|error| Failure::Run(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}
