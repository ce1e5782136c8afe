//! `cargo xtask ci`: all that must pass before a change goes in. Runs on two cores without a GPU, in some 40 minutes to an hour by how fast they are.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;

use crate::{Failure, fuzz, package, python, setup, test, workspace};

/// The features that a machine without a CUDA toolkit and without MPI must build as well.
const CUDA: [&str; 2] = [
    "--features",
    "halfgnn-cli/cuda,halfgnn-cli/mpi,halfgnn-tests/cuda,halfgnn-benches/cuda",
];

/// Where lints and documentation are made, below the target folder: nothing else reads what they leave.
const CHECKS: &str = "checks";

/// One of the things that must pass.
struct Step {
    name: &'static str,
    run: fn() -> Result<(), Failure>,
    /// Folders below the target folder that nothing reads after it, and of which a small disk has no room for all at once.
    leaves: &'static [&'static str],
}

impl Step {
    const fn new(name: &'static str, run: fn() -> Result<(), Failure>) -> Self {
        let leaves = &[];
        Self { name, run, leaves }
    }

    const fn leaves(self, leaves: &'static [&'static str]) -> Self {
        Self { leaves, ..self }
    }

    /// Runs it, and removes what it leaves.
    fn pass(&self) -> Result<(), Failure> {
        (self.run)()?;
        for folder in self.leaves {
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
}

/// Runs every step in order and stops at the first that fails.
pub fn run() -> Result<(), Failure> {
    let of_texts = [
        Step::new("format", format),
        Step::new("lints", lints),
        Step::new("documentation", documentation).leaves(&[CHECKS]),
    ];
    let of_what_is_built = [
        // Before the tests, whose programs need not lie beside torch; and before the packages, which put PTX where the library's build
        // script looks: all of it is built anew after that.
        Step::new("Python", python).leaves(&["python"]),
        Step::new("tests", tests),
        Step::new("packages", packages).leaves(&["embed", "package"]),
        Step::new("fuzzing", fuzzing),
    ];
    let start = Instant::now();
    let begin = |name| eprintln!("== {name} (after {} s)", start.elapsed().as_secs());
    let pass = |steps: &[Step]| {
        steps.iter().try_for_each(|step| {
            begin(step.name);
            step.pass()
        })
    };
    let ptx = Ptx::begin()?;
    pass(&of_texts)?;
    begin("PTX");
    ptx.finish()?;
    pass(&of_what_is_built)?;
    eprintln!("== all passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// `cargo xtask verify-ptx` beside the steps that read texts: LLVM has one thread for all kernels. Assembled for the
/// oldest architecture, the one that most figures are of and the newest; by itself the command assembles for those between as well.
struct Ptx {
    made: Child,
    log: PathBuf,
}

impl Ptx {
    fn begin() -> Result<Self, Failure> {
        setup::ptxas()?;
        std::fs::create_dir_all(workspace::target_dir())?;
        let log = workspace::target_dir().join("verify-ptx.log");
        let told = File::create(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["verify-ptx", "--require-ptxas"]);
        for arch in ["sm_80", "sm_90", "sm_120"] {
            command.args(["--for", arch]);
        }
        let made = command.stdout(told.try_clone()?).stderr(told).spawn()?;
        Ok(Self { made, log })
    }

    /// Waits for it, and shows what it had to say.
    fn finish(mut self) -> Result<(), Failure> {
        let status = self.made.wait()?;
        eprint!("{}", std::fs::read_to_string(&self.log)?);
        match status.success() {
            true => Ok(()),
            false => Err(format!("`cargo xtask verify-ptx` failed ({status})").into()),
        }
    }
}

impl Drop for Ptx {
    /// Where another step failed nobody waits for it. One that is done cannot be ended, and need not be.
    fn drop(&mut self) {
        let _ = self.made.kill();
        let _ = self.made.wait();
    }
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
    Ok(())
}

fn lints() -> Result<(), Failure> {
    let passes: [&[&str]; 3] = [
        &["--workspace", "--all-targets", CUDA[0], CUDA[1]],
        // Tests and benches are the same without the feature.
        &["--workspace"],
        // As much of the program as `cargo xtask demo` builds.
        &["--package", "halfgnn-cli", "--no-default-features"],
    ];
    for pass in passes {
        let mut clippy = check(&["clippy"]);
        workspace::run(clippy.args(pass).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

fn documentation() -> Result<(), Failure> {
    for features in [&[][..], &CUDA] {
        let mut doc = check(&["doc", "--workspace", "--no-deps"]);
        workspace::run(doc.args(features).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(())
}

fn tests() -> Result<(), Failure> {
    test::run(&test::Options::with_ptxas())
}

/// What would be published, and a crate that is built from it as a stranger's would be.
fn packages() -> Result<(), Failure> {
    package::run(&package::Options::checked())
}

/// The wheel in a fresh environment.
fn python() -> Result<(), Failure> {
    python::run(&python::Options::default())
}

/// A minute, with another seed for each commit: with as many cores and as much time the inputs are the same for whoever looks
/// into a failure, and the next commit tries others. What is the same every time is among the tests.
fn fuzzing() -> Result<(), Failure> {
    fuzz::run(&fuzz::Options::of_a_minute(commit()))
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
