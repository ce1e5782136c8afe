//! A mutant on trial: put in, built, and shown to the tests that must find it.

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use halfgnn_builder::PtxBuilder;
use halfgnn_builder::pattern;
use halfgnn_builder::toolchain::Toolchain;

use super::list::{Killer, Mutant};
use super::record::Record;
use super::scratch::{Scratch, Sources};
use crate::build_ptx::ARCH;
use crate::{Failure, test, workspace};

/// Longest run of a killer. A mutant that is still running then has been seen.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The killer failed.
    Killed,
    /// Everything passed.
    Survived,
    /// It does not apply any more.
    DoesNotApply,
    /// It does not compile, and so no test has seen it.
    DoesNotBuild,
    /// The killer fails without it.
    FailsAnyway,
    /// The killer runs no test.
    NoTest,
}

const WORDS: [(Outcome, &str); 6] = [
    (Outcome::Killed, "killed"),
    (Outcome::Survived, "survived"),
    (Outcome::DoesNotApply, "does not apply"),
    (Outcome::DoesNotBuild, "does not build"),
    (Outcome::FailsAnyway, "killer fails anyway"),
    (Outcome::NoTest, "killer runs no test"),
];

impl Outcome {
    /// As it is shown and noted.
    pub fn word(&self) -> &'static str {
        let of = |(outcome, word): &(Outcome, &'static str)| (outcome == self).then_some(*word);
        WORDS.iter().find_map(of).unwrap_or_default()
    }

    /// What was noted.
    pub fn of_word(word: &str) -> Option<Self> {
        let (outcome, _) = WORDS.iter().find(|(_, other)| *other == word)?;
        Some(outcome.clone())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Where mutants are tried.
#[derive(Debug)]
pub struct Bench<'a> {
    scratch: &'a Scratch,
    files: Sources,
    toolchain: Toolchain,
    /// The PTX of all kernels without a mutant, once it is built.
    whole: Option<String>,
}

/// What a run of a killer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Passes,
    Fails,
    RunsNothing,
}

impl<'a> Bench<'a> {
    /// With the files of the tree, which its copy has.
    pub fn new(scratch: &'a Scratch, files: Sources, toolchain: Toolchain) -> Self {
        Self {
            scratch,
            files,
            toolchain,
            whole: None,
        }
    }

    /// What becomes of a mutant, and after how many seconds.
    pub fn try_out(
        &mut self,
        mutant: &Mutant,
        record: &mut Record,
    ) -> Result<(Outcome, u64), Failure> {
        let start = Instant::now();
        let outcome = self.outcome(mutant, record)?;
        Ok((outcome, start.elapsed().as_secs()))
    }

    fn outcome(&mut self, mutant: &Mutant, record: &mut Record) -> Result<Outcome, Failure> {
        // Before a mutant is in the sources that it is built from.
        if mutant.runs_kernels() {
            self.plain_ptx(&mutant.kernels)?;
        }
        if let Some(outcome) = self.without(mutant, record)? {
            return Ok(outcome);
        }
        if mutant.is_of_ptx() {
            return self.in_ptx(mutant);
        }
        let mutated = match mutant.place(&self.files) {
            Ok(mutated) => mutated,
            Err(error) => {
                eprintln!("{error}");
                return Ok(Outcome::DoesNotApply);
            }
        };
        self.scratch.write(&mutated.path, &mutated.text)?;
        let outcome = self.in_sources(mutant);
        let original = self.files.get(&mutated.path).unwrap_or_default();
        self.scratch.write(&mutated.path, original)?;
        outcome
    }

    /// What the killer says of the tree as it is; an outcome where it cannot judge.
    fn without(
        &mut self,
        mutant: &Mutant,
        record: &mut Record,
    ) -> Result<Option<Outcome>, Failure> {
        let Killer::Test(arguments) = &mutant.killer else {
            return Ok(None);
        };
        let killer = with_kernels(arguments, &mutant.kernels);
        if record.passes(&killer) == Some(true) {
            return Ok(None);
        }
        let start = Instant::now();
        if !self.builds(arguments)? {
            return Ok(Some(Outcome::FailsAnyway));
        }
        let said = self.test(arguments, &mutant.kernels)?;
        match said {
            Said::RunsNothing => return Ok(Some(Outcome::NoTest)),
            Said::Fails => return Ok(Some(Outcome::FailsAnyway)),
            Said::Passes => {}
        }
        record.note_killer(&killer, true, start.elapsed().as_secs())?;
        Ok(None)
    }

    fn in_sources(&self, mutant: &Mutant) -> Result<Outcome, Failure> {
        if mutant.builds_ptx {
            let built = self.build_ptx(&mutant.kernels);
            if mutant.killer == Killer::BuildPtx {
                // Refused by a rule; what does not compile is no mutant.
                return Ok(match built {
                    Ok(()) => Outcome::Survived,
                    Err(halfgnn_builder::BuildError::Checks { .. }) => Outcome::Killed,
                    Err(error) => does_not_build(&error),
                });
            }
            if let Err(error) = built {
                return Ok(does_not_build(&error));
            }
        }
        self.judged(mutant)
    }

    fn in_ptx(&self, mutant: &Mutant) -> Result<Outcome, Failure> {
        let file = self.ptx_file(&mutant.kernels);
        let ptx = fs::read_to_string(&file)?;
        let mutated = match mutant.place_in_ptx(&ptx) {
            Ok(mutated) => mutated,
            Err(error) => {
                eprintln!("{error}");
                return Ok(Outcome::DoesNotApply);
            }
        };
        fs::write(&file, mutated)?;
        self.judged(mutant)
    }

    /// What the killer says with the mutant in place.
    fn judged(&self, mutant: &Mutant) -> Result<Outcome, Failure> {
        let Killer::Test(arguments) = &mutant.killer else {
            return Ok(Outcome::NoTest);
        };
        if !self.builds(arguments)? {
            return Ok(Outcome::DoesNotBuild);
        }
        Ok(match self.test(arguments, &mutant.kernels)? {
            Said::Passes => Outcome::Survived,
            Said::Fails => Outcome::Killed,
            Said::RunsNothing => Outcome::NoTest,
        })
    }

    /// Sees to it that the PTX is that of the kernels as they are. Of a part of them it is that of the whole, in which the others
    /// trap, as the builder has it: nothing is built for it.
    fn plain_ptx(&mut self, kernels: &[String]) -> Result<(), Failure> {
        if self.whole.is_none() {
            self.build_ptx(&[])?;
            self.whole = Some(fs::read_to_string(self.ptx_file(&[]))?);
        }
        if let Some(whole) = &self.whole {
            fs::create_dir_all(self.ptx_folder(kernels))?;
            fs::write(self.ptx_file(kernels), with_traps(whole, kernels))?;
        }
        Ok(())
    }

    /// Where the builder puts them.
    fn ptx_folder(&self, kernels: &[String]) -> PathBuf {
        self.scratch.target().join(match kernels.is_empty() {
            true => "ptx",
            false => "ptx-only",
        })
    }

    fn ptx_file(&self, kernels: &[String]) -> PathBuf {
        self.ptx_folder(kernels).join(format!("halfgnn-{ARCH}.ptx"))
    }

    fn build_ptx(&self, kernels: &[String]) -> Result<(), halfgnn_builder::BuildError> {
        let builder = PtxBuilder::new(self.scratch.tree().join("kernels-gpu"))
            .name("halfgnn")
            .target_dir(self.scratch.target())
            .toolchain(self.toolchain.clone())
            .arch(ARCH);
        let builder = kernels.iter().fold(builder, PtxBuilder::only);
        builder.build().map(drop)
    }

    /// `cargo test` in the copy; what it prints goes into a file beside it.
    fn cargo_test(&self, arguments: &str, kernels: &[String]) -> Result<Command, Failure> {
        let output = File::create(self.output())?;
        let mut cargo = workspace::cargo();
        cargo
            .current_dir(self.scratch.tree())
            .arg("test")
            .args(arguments.split_whitespace())
            .env("CARGO_TARGET_DIR", self.scratch.target())
            .env("HALFGNN_PTX_DIR", self.ptx_folder(kernels))
            .env(test::REQUIRE_PTX, "1")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(cargo)
    }

    fn output(&self) -> PathBuf {
        self.scratch.folder().join("output.txt")
    }

    fn builds(&self, arguments: &str) -> Result<bool, Failure> {
        // What comes after `--` is for the tests.
        let for_cargo = arguments.split(" -- ").next().unwrap_or(arguments);
        let builds = self
            .cargo_test(&format!("{for_cargo} --no-run"), &[])?
            .status()?;
        if !builds.success() {
            eprint!("{}", fs::read_to_string(self.output())?);
        }
        Ok(builds.success())
    }

    fn test(&self, arguments: &str, kernels: &[String]) -> Result<Said, Failure> {
        let mut child = self.cargo_test(arguments, kernels)?.spawn()?;
        let start = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if start.elapsed() > LONGEST => {
                    child.kill()?;
                    child.wait()?;
                    return Ok(Said::Fails);
                }
                None => thread::sleep(Duration::from_millis(200)),
            }
        };
        if !status.success() {
            return Ok(Said::Fails);
        }
        let output = fs::read_to_string(self.output())?;
        Ok(if passed(&output) > 0 {
            Said::Passes
        } else {
            Said::RunsNothing
        })
    }
}

/// PTX with nothing but a trap in every kernel that matches none of the patterns; as it is where there are none.
fn with_traps(ptx: &str, patterns: &[String]) -> String {
    let mut text = String::with_capacity(ptx.len());
    let mut lines = ptx.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let entry = line.strip_prefix(".visible .entry ");
        let name = entry.and_then(|rest| rest.split('(').next());
        if name.is_some_and(|name| !pattern::is_wanted(patterns, name)) {
            for line in lines.by_ref().take_while(|line| *line != "{") {
                text.push_str(line);
                text.push('\n');
            }
            text.push_str("{\n\ttrap;\n\texit;\n}\n");
            lines.by_ref().find(|line| *line == "}");
        }
    }
    text
}

/// A killer and what it is given to run, as it is noted.
fn with_kernels(arguments: &str, kernels: &[String]) -> String {
    match kernels {
        [] => arguments.to_owned(),
        some => format!("{arguments} of {}", some.join(" ")),
    }
}

fn does_not_build(error: &halfgnn_builder::BuildError) -> Outcome {
    eprintln!("{error}");
    Outcome::DoesNotBuild
}

/// Tests that passed, of all that cargo ran.
fn passed(output: &str) -> usize {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_noted_and_read_again() {
        for (outcome, word) in WORDS {
            assert_eq!(Outcome::of_word(word), Some(outcome.clone()));
            assert_eq!(outcome.word(), word);
        }
        assert_eq!(Outcome::of_word(""), None);
    }

    #[test]
    fn kernels_that_are_not_wanted_trap() {
        let kernel = |name: &str, body: &str| {
            format!(".visible .entry {name}(\n\t.param .u64 p\n)\n.maxntid 128\n{{\n{body}}}\n")
        };
        let (ret, trap) = ("\tret;\n", "\ttrap;\n\texit;\n");
        let of = |first: &str, second: &str| {
            format!(
                ".version 8.0\n{}{}",
                kernel("spmm_f16", first),
                kernel("sddmm_f16", second)
            )
        };
        let whole = of(ret, ret);
        assert_eq!(with_traps(&whole, &["spmm_*".to_owned()]), of(ret, trap));
        assert_eq!(with_traps(&whole, &["*_f16".to_owned()]), whole);
        assert_eq!(with_traps(&whole, &[]), whole);
    }

    #[test]
    fn a_killer_that_runs_nothing_is_told() {
        let line = |n: u32| format!("test result: ok. {n} passed; 0 failed; 0 ignored\n");
        assert_eq!(passed(&format!("running\n{}{}", line(0), line(3))), 3);
        assert_eq!(passed(&line(0)), 0);
    }
}
