//! `cargo xtask ci`: all that must pass before a change goes in. Runs on two cores without a GPU. Each step says at its end how long it took, by
//! the clock and in processor time.
//!
//! Steps follow one another in two lanes, so that what has one thread (LLVM makes one file of all kernels; pip, pytest and mypy) leaves no core idle:
//! PTX beside format, lints, documentation and the compilation of the tests; the book, Python, fuzzing and packages beside the tests.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Child, Command};

use clap::{Args, ValueEnum};

use crate::target::{self, ARM_LINUX, MACOS, MSVC, Target, WINDOWS};
use crate::times::Stopwatch;
use crate::{
    Failure, book, fuzz, package, python, setup, spelling, supply_chain, tables, test, verify_ptx,
    words, workspace,
};

/// The features that a machine without a CUDA toolkit and without MPI must build as well.
const CUDA: [&str; 2] = [
    "--features",
    "halfgnn-cli/cuda,halfgnn-cli/mpi,halfgnn-tests/cuda,halfgnn-benches/cuda",
];

/// Where lints and documentation are made, below the target folder: nothing else reads what they leave.
const CHECKS: &str = "checks";

/// Options of `ci`.
#[derive(Args)]
pub struct Options {
    /// These alone, one after the other; all of them by default
    steps: Vec<Step>,
}

/// One of the things that must pass.
#[derive(Clone, Copy, ValueEnum)]
enum Step {
    /// Wording, sizes, links and tables of the documentation
    Words,
    Spelling,
    SupplyChain,
    Format,
    Lints,
    Documentation,
    /// Lints of macOS and Windows, and a few tests of ARM and Windows under emulators
    Platforms,
    Ptx,
    Tests,
    /// The book, its generated pages and its links
    Book,
    Python,
    Fuzzing,
    Packages,
}

impl Step {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Runs it, and removes what it leaves.
    fn pass(self) -> Result<(), Failure> {
        match self {
            Step::Words => words::run().and_then(|()| tables::run(&tables::Options::checked())),
            Step::Spelling => spelling::run(),
            Step::SupplyChain => supply_chain::run(),
            Step::Format => format(),
            Step::Lints => lints(),
            Step::Documentation => documentation(),
            Step::Platforms => platforms(),
            Step::Ptx => ptx(),
            Step::Tests => test::run(&test::Options::with_ptxas()),
            Step::Book => book::run(),
            Step::Python => python::run(&python::Options::default()),
            // With another seed for each commit: with as many cores and as much time the inputs are the same for whoever looks into a failure, and
            // the next commit tries others. What is the same every time is among the tests.
            Step::Fuzzing => fuzz::run(&fuzz::Options::of_a_minute(commit())),
            Step::Packages => package::run(&package::Options::checked()),
        }?;
        for folder in self.leaves() {
            let folder = workspace::target_dir().join(folder);
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", folder.display()).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Folders below the target folder that nothing reads after it, and of which a small disk has no room for all at once.
    fn leaves(self) -> &'static [&'static str] {
        match self {
            Step::Platforms => &[CHECKS],
            Step::Python => &["python"],
            Step::Packages => &["embed", "package"],
            _ => &[],
        }
    }
}

/// Runs what is asked for, and stops at the first that fails.
pub fn run(options: &Options) -> Result<(), Failure> {
    let whole = Stopwatch::begin();
    let pass = |steps: &[Step]| {
        steps
            .iter()
            .try_for_each(|step| timed(&step.name(), || step.pass()))
    };
    let passed = if options.steps.is_empty() {
        // Both lanes want it.
        setup::ptxas()?;
        let kernels = Beside::begin(&[Step::Ptx])?;
        // Words take no time. Then that the lock file is whole, on which all others rest.
        pass(&[
            Step::Words,
            Step::Spelling,
            Step::SupplyChain,
            Step::Format,
            Step::Lints,
            Step::Documentation,
            Step::Platforms,
        ])?;
        timed("programs of the tests", test::compile)?;
        timed("the rest of ptx", || kernels.finish())?;
        let others = Beside::begin(&[Step::Book, Step::Python, Step::Fuzzing, Step::Packages])?;
        pass(&[Step::Tests])?;
        timed("the rest of book, python, fuzzing, packages", || {
            others.finish()
        })?;
        "all".to_owned()
    } else {
        pass(&options.steps)?;
        names(&options.steps).join(", ")
    };
    eprintln!("== {passed} passed in {whole}");
    Ok(())
}

/// Says what begins, and at its end how long it took.
fn timed(name: &str, pass: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    eprintln!("== {name}");
    let time = Stopwatch::begin();
    pass()?;
    eprintln!("== {name}: {time}");
    Ok(())
}

fn names(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.name()).collect()
}

/// Steps beside those of this process, which another runs.
struct Beside {
    runs: Child,
    log: PathBuf,
}

impl Beside {
    fn begin(steps: &[Step]) -> Result<Self, Failure> {
        std::fs::create_dir_all(workspace::target_dir())?;
        let names = names(steps);
        let log = workspace::target_dir().join(format!("ci-{}.log", names.join("-")));
        let told = File::create(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("ci").args(&names);
        let runs = command.stdout(told.try_clone()?).stderr(told).spawn()?;
        Ok(Self { runs, log })
    }

    /// Waits for it, and shows what it had to say.
    fn finish(mut self) -> Result<(), Failure> {
        let status = self.runs.wait()?;
        eprint!("{}", std::fs::read_to_string(&self.log)?);
        match status.success() {
            true => Ok(()),
            false => Err(format!("what ran beside failed ({status})").into()),
        }
    }
}

impl Drop for Beside {
    /// Where another step failed nobody waits for it. One that is done cannot be ended, and need not be.
    fn drop(&mut self) {
        let _ = self.runs.kill();
        let _ = self.runs.wait();
    }
}

/// Assembled for the oldest architecture, the one that most figures are of and the newest; by itself `verify-ptx` assembles for those between as
/// well.
fn ptx() -> Result<(), Failure> {
    setup::ptxas()?;
    verify_ptx::run(&verify_ptx::Options::required_for(&[
        "sm_80", "sm_90", "sm_120",
    ]))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments);
    command
}

/// A cargo whose artifacts are of lints and documentation alone.
fn check(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.env("CARGO_TARGET_DIR", workspace::target_dir().join(CHECKS));
    command
}

fn format() -> Result<(), Failure> {
    workspace::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    for apart in [
        "kernels-gpu",
        "examples/own_kernels",
        "examples/own_kernels/kernels",
    ] {
        let manifest = format!("{apart}/Cargo.toml");
        workspace::run(&mut cargo(&[
            "fmt",
            "--manifest-path",
            &manifest,
            "--check",
        ]))?;
    }
    // A root that the builder compiles, and no target of cargo's.
    let mut entries = Command::new("rustfmt");
    entries.current_dir(workspace::root());
    entries.args(["--check", "--edition", "2024", "kernels-gpu/entries/lib.rs"]);
    workspace::run(&mut entries)?;
    Ok(())
}

fn lints() -> Result<(), Failure> {
    // Without the feature `cuda` macOS is linted, in `platforms`.
    let passes: [&[&str]; 2] = [
        &["--workspace", "--all-targets", CUDA[0], CUDA[1]],
        // As much of the program as `cargo xtask demo` builds.
        &["--package", "halfgnn-cli", "--no-default-features"],
    ];
    for pass in passes {
        let mut clippy = check(&["clippy", "--locked"]);
        workspace::run(clippy.args(pass).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

fn documentation() -> Result<(), Failure> {
    for features in [&[][..], &CUDA] {
        let mut doc = check(&["doc", "--locked", "--workspace", "--no-deps"]);
        workspace::run(doc.args(features).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(())
}

/// Set where tests under emulators must not be skipped.
const REQUIRE_EMULATORS: &str = "HALFGNN_REQUIRE_EMULATORS";

/// Lints of what this machine cannot run, and tests of what an emulator can. Of Windows' other C library the crates that ask for the system
/// are enough: it has the same code above them.
fn platforms() -> Result<(), Failure> {
    let lowest = ["-p", "halfgnn-platform", "-p", "halfgnn-cuda-loader"];
    let passes: [(&str, &[&str]); 3] = [
        (MACOS, &["--workspace", "--all-targets"]),
        (
            WINDOWS,
            &[
                "-p",
                "halfgnn-cli",
                "--features",
                "halfgnn-cli/cuda,halfgnn-cli/mpi",
            ],
        ),
        (MSVC, &[&lowest[..], &["--all-features"]].concat()),
    ];
    for (triple, arguments) in passes {
        target::install_library(triple)?;
        let mut clippy = check(&["clippy", "--locked", "--target", triple]);
        workspace::run(clippy.args(arguments).args(["--", "-D", "warnings"]))?;
    }
    let required = std::env::var_os(REQUIRE_EMULATORS);
    let required = required.is_some_and(|value| !value.is_empty() && value != "0");
    for triple in [ARM_LINUX, WINDOWS] {
        let target = Target::named(triple)?;
        match setup::cross_tools(target) {
            Ok(()) => target.test_few()?,
            Err(missing) if required => return Err(missing),
            Err(missing) => eprintln!(
                "SKIPPED: tests of {triple}: {missing} ({REQUIRE_EMULATORS}=1 fails without)"
            ),
        }
    }
    Ok(())
}

/// The first 32 bits of the commit's hash; nothing outside a repository.
fn commit() -> Option<u64> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"])
        .current_dir(workspace::root());
    let said = git.output().ok().filter(|output| output.status.success())?;
    let hash = String::from_utf8(said.stdout).ok()?;
    u64::from_str_radix(hash.get(..8)?, 16).ok()
}
