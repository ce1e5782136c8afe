//! A mutant on trial: put in, built, and shown to the tests that must find it.

use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use halfgnn_builder::manifest::{Manifest, Store};
use halfgnn_builder::pattern;
use halfgnn_builder::toolchain::Toolchain;
use halfgnn_builder::{Built, PtxBuilder};
use halfgnn_manifest::{Fingerprint, MANIFEST_SUFFIX};

use super::list::{Killer, Mutant};
use super::record::Record;
use super::scratch::{Scratch, Sources};
use crate::build_ptx::{ARCH, NAME};
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
        let said = self.test(arguments)?;
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
                    Ok(_) => Outcome::Survived,
                    Err(halfgnn_builder::BuildError::Checks { .. }) => Outcome::Killed,
                    Err(error) => does_not_build(&error),
                });
            }
            match built {
                Ok(built) => self.install(&built, &mutant.kernels)?,
                Err(error) => return Ok(does_not_build(&error)),
            }
        }
        self.judged(mutant)
    }

    fn in_ptx(&self, mutant: &Mutant) -> Result<Outcome, Failure> {
        let store = self.installed()?;
        let mut manifest = store.manifest()?;
        for record in manifest.modules.values_mut() {
            let Some(file) = record.ptx.get_mut(ARCH) else {
                continue;
            };
            let ptx = String::from_utf8(store.read(file)?)?;
            match mutant.place_in_ptx(&ptx) {
                Ok(Some(mutated)) => {
                    file.fingerprint = Fingerprint::of(&mutated);
                    fs::write(self.ptx_folder().join(&file.file), mutated)?;
                    self.write_manifest(&manifest)?;
                    return self.judged(mutant);
                }
                Ok(None) => {}
                Err(error) => {
                    eprintln!("{error}");
                    return Ok(Outcome::DoesNotApply);
                }
            }
        }
        eprintln!("{}: no module has its kernel", mutant.name);
        Ok(Outcome::DoesNotApply)
    }

    /// What the killer says with the mutant in place.
    fn judged(&self, mutant: &Mutant) -> Result<Outcome, Failure> {
        let Killer::Test(arguments) = &mutant.killer else {
            return Ok(Outcome::NoTest);
        };
        if !self.builds(arguments)? {
            return Ok(Outcome::DoesNotBuild);
        }
        Ok(match self.test(arguments)? {
            Said::Passes => Outcome::Survived,
            Said::Fails => Outcome::Killed,
            Said::RunsNothing => Outcome::NoTest,
        })
    }

    /// Installs the PTX of the kernels as they are, or of a part of them: nothing is built for a part.
    fn plain_ptx(&self, kernels: &[String]) -> Result<(), Failure> {
        // After a mutant the builder builds the modules again that had it.
        let built = self.build_ptx(&[])?;
        self.install(&built, kernels)
    }

    /// Where tests find their kernels.
    fn ptx_folder(&self) -> PathBuf {
        self.scratch.target().join("ptx-trial")
    }

    fn installed(&self) -> Result<Store, Failure> {
        let folder = self.ptx_folder();
        let store = Store::in_folder(&folder, NAME);
        store.ok_or_else(|| format!("there are no kernels in {}", folder.display()).into())
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<(), Failure> {
        let path = self.ptx_folder().join(format!("{NAME}{MANIFEST_SUFFIX}"));
        Ok(fs::write(path, manifest.to_text())?)
    }

    /// Copies kernels that match one of the patterns to where tests find them; all where there are no patterns. A launch of another
    /// kernel fails.
    fn install(&self, built: &Built, kernels: &[String]) -> Result<(), Failure> {
        let (folder, from) = (self.ptx_folder(), built.manifest_path.parent());
        let from = from.ok_or("a manifest without a folder")?;
        let mut manifest = built.manifest.clone();
        manifest.partial |= !kernels.is_empty();
        for record in manifest.modules.values_mut() {
            record
                .entries
                .retain(|name, _| pattern::is_wanted(kernels, name));
        }
        manifest
            .modules
            .retain(|_, record| !record.entries.is_empty());
        for file in manifest
            .modules
            .values()
            .filter_map(|record| record.ptx.get(ARCH))
        {
            let to = folder.join(&file.file);
            fs::create_dir_all(to.parent().ok_or("a file without a folder")?)?;
            fs::copy(from.join(&file.file), to)?;
        }
        self.write_manifest(&manifest)
    }

    fn build_ptx(&self, kernels: &[String]) -> Result<Built, halfgnn_builder::BuildError> {
        let builder = PtxBuilder::new(self.scratch.tree().join("kernels-gpu"))
            .name(NAME)
            .entries(halfgnn_contract::entries().map(|entry| entry.name))
            .target_dir(self.scratch.target())
            .toolchain(self.toolchain.clone())
            .arch(ARCH);
        let builder = kernels.iter().fold(builder, PtxBuilder::only);
        builder.build()
    }

    /// `cargo test` in the copy; what it prints goes into a file next to it.
    fn cargo_test(&self, arguments: &str) -> Result<Command, Failure> {
        let output = File::create(self.output())?;
        let mut cargo = workspace::cargo();
        cargo
            .current_dir(self.scratch.tree())
            .arg("test")
            .args(arguments.split_whitespace())
            .env("CARGO_TARGET_DIR", self.scratch.target())
            .env("HALFGNN_PTX_DIR", self.ptx_folder())
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
            .cargo_test(&format!("{for_cargo} --no-run"))?
            .status()?;
        if !builds.success() {
            eprint!("{}", fs::read_to_string(self.output())?);
        }
        Ok(builds.success())
    }

    fn test(&self, arguments: &str) -> Result<Said, Failure> {
        let mut child = self.cargo_test(arguments)?.spawn()?;
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
    fn a_killer_that_runs_nothing_is_told() {
        let line = |n: u32| format!("test result: ok. {n} passed; 0 failed; 0 ignored\n");
        assert_eq!(passed(&format!("running\n{}{}", line(0), line(3))), 3);
        assert_eq!(passed(&line(0)), 0);
    }
}
