//! `halfgnn`: graph neural networks in half precision from a shell.

mod args;
mod checkpoint;
mod curves;
mod dataset;
mod demo;
mod device;
mod events;
mod exchange;
mod feature_cache;
mod help;
mod optimize;
mod placement;
mod predict;
mod profile;
mod ranks;
mod sampling;
mod session;
mod shell;
mod structure;
mod task;
mod threads;
mod train;
mod tune;
mod tune_binary;
mod types;
mod watch;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
#[cfg(feature = "bench")]
use halfgnn_bench::bench;
#[cfg(feature = "emulator")]
use halfgnn_bench::graphs;
use halfgnn_bench::{
    failure, interrupt, json, launch, machine, model, operators, outputs, processes, reorder,
    report, screen,
};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => start_logging(cli.verbose)
            .and_then(|()| threads::limit())
            .and_then(|()| run(&cli))
            .and_then(|()| screen::check_pages()),
        Err(asked) if !asked.use_stderr() => show(&asked),
        Err(wrong) => wrong.exit(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("halfgnn: {failure}");
            failure.exit_code()
        }
    }
}

/// Shows help or the version; a reader who leaves (`| head`) is no failure.
fn show(asked: &clap::Error) -> Result<(), Failure> {
    match asked.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let command = &cli.command;
    let ends_itself = match command {
        Command::Train(_) | Command::Tune(_) | Command::Demo(_) | Command::Report(_) => true,
        #[cfg(feature = "bench")]
        Command::Bench(_) => true,
        _ => false,
    };
    let stop = stop_on_interrupt(ends_itself)?;
    launch::stop_with_parent(&stop);
    match command {
        Command::Train(args) => train::run(args, &stop),
        Command::Tune(args) => tune::run(args, &stop),
        Command::TuneBinary(args) => tune_binary::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Export(args) => exchange::export(args),
        Command::Import(args) => exchange::import(args),
        Command::Demo(args) => demo::run(args, &stop),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(args, &stop),
        Command::Profile(args) => profile::run(args),
        Command::Report(args) => report::run(args, &stop),
        Command::Dataset(args) => dataset::run(args),
        Command::Device(args) => device::run(args, cli.verbose > 0),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    }
}

/// Messages to stderr: warnings, more with `-v`, or what `RUST_LOG` says. Colours on a terminal, unless `NO_COLOR` is
/// set.
fn start_logging(verbose: u8) -> Result<(), Failure> {
    let level = [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE][usize::from(verbose.min(3))];
    let filter: Targets = match std::env::var("RUST_LOG") {
        Ok(text) if !text.trim().is_empty() => targets(&text).map_err(|why| {
            Failure::Input(format!(
                "RUST_LOG=\"{text}\": {why}; write it such as halfgnn=debug"
            ))
        })?,
        _ => Targets::new().with_target("halfgnn", level),
    };
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(halfgnn_platform::terminal::stderr_takes_ansi() && !plain)
        .without_time()
        .with_target(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .init();
    Ok(())
}

/// What is logged of which module, as `RUST_LOG` has it.
fn targets(text: &str) -> Result<Targets, String> {
    // A list of targets takes a filter by spans or fields for one that says nothing of them.
    if text.contains(['[', '{']) {
        return Err("spans and fields are no filters here".into());
    }
    text.parse::<Targets>().map_err(|error| error.to_string())
}

/// A flag that the first Ctrl-C (or SIGTERM) sets for a command that looks at it and ends itself; the second, the first
/// of any other command or one [that only waits](interrupt::at_once) ends the program at once, without files that are
/// half written.
fn stop_on_interrupt(ends_itself: bool) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        let ends_now = interrupt::came();
        if flag.swap(true, Ordering::Relaxed) || !ends_itself || ends_now {
            halfgnn::file::exit_discarding(interrupt::INTERRUPTED);
        }
        // At once, however long the step under way takes. If the line cannot be written, nothing is lost.
        let _ = writeln!(
            io::stderr(),
            "halfgnn: stopping after the step under way; a second signal ends the program at once"
        );
    })
    .map_err(|error| Failure::Run(format!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}
