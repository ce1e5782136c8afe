//! What a person types: `cargo xtask setup | build-ptx | verify-ptx | test | fuzz | mutants | demo | package | wheel | python | tables | book | ci`.
//!
//! One file a task; this one is the command line.

mod book;
mod build_ptx;
mod ci;
mod demo;
mod fuzz;
mod install;
mod mutants;
mod notices;
mod package;
mod python;
mod setup;
mod spelling;
mod supply_chain;
mod tables;
mod target;
mod test;
mod times;
mod verify_ptx;
mod wheel;
mod words;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and shows HalfGNN.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what compiles kernels to PTX, if it is missing
    Setup(setup::Options),
    /// Compile the kernels to PTX into target/ptx
    BuildPtx(build_ptx::BuildOptions),
    /// Check the PTX, and assemble it for every architecture if ptxas is found
    VerifyPtx(verify_ptx::Options),
    /// Build the PTX and run all tests
    Test(test::Options),
    /// Feed what reads files and texts with mutated ones
    Fuzz(fuzz::Options),
    /// Make mistakes on purpose, and see that the tests find each
    Mutants(mutants::Options),
    /// Build the program and its kernels, quickly, and put both where the shell finds them
    Install(install::Options),
    /// Build the PTX and train on the best device there is, in half and in float
    Demo(demo::Options),
    /// Pack the crates as they would be published, the PTX inside, and build from them with --check
    Package(package::Options),
    /// Build the Python package, the PTX inside
    Wheel(wheel::Options),
    /// Install the Python package into a fresh environment, and test it and its types there
    Python(python::Options),
    /// Write the tables of the pages anew from docs/results
    Tables(tables::Options),
    /// Build the book into target/book, with its generated pages, and follow its links
    Book,
    /// All that must pass before a change goes in
    Ci(ci::Options),
}

/// A task's failure, for a person to read.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup(options) => setup::run(&options),
        Task::BuildPtx(options) => build_ptx::run_alone(&options),
        Task::VerifyPtx(options) => verify_ptx::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Install(options) => install::run(&options),
        Task::Demo(options) => demo::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Wheel(options) => wheel::run(&options),
        Task::Python(options) => python::run(&options),
        Task::Tables(options) => tables::run(&options),
        Task::Book => book::run(),
        Task::Ci(options) => ci::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_two_dashes_are_passed_on() {
        for task in ["test", "demo"] {
            let line = ["cargo xtask", task, "--no-setup", "--", "--seed", "1"];
            assert!(Cli::try_parse_from(line).is_ok(), "{task}");
        }
        assert!(Cli::try_parse_from(["cargo xtask", "build-ptx", "--", "x"]).is_err());
    }

    #[test]
    fn options_that_a_target_has_no_use_for_are_refused() {
        let target = ["--target", "aarch64-unknown-linux-gnu"];
        let parse = |task: &str, more: &[&str]| {
            let line = [&["cargo xtask", task], &target[..], more].concat();
            Cli::try_parse_from(line).map(|_| ())
        };
        for (task, more) in [
            ("test", &["--no-setup"][..]),
            ("test", &["--arch", "sm_90"]),
            ("test", &["--require-ptxas"]),
            ("package", &["--check"]),
            ("wheel", &["--release", "--native"]),
        ] {
            let kind = parse(task, more).expect_err(task).kind();
            assert_eq!(
                kind,
                clap::error::ErrorKind::ArgumentConflict,
                "{task} {more:?}"
            );
            assert!(parse(task, &[]).is_ok(), "{task}");
        }
        let line = [&["cargo xtask", "python"], &target[..]].concat();
        let Task::Python(options) = Cli::parse_from(line).task else {
            unreachable!("python was named")
        };
        let refusal = python::run(&options).unwrap_err().to_string();
        assert!(refusal.starts_with("--target aarch64"), "{refusal}");
    }
}
