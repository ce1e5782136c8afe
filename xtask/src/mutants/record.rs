//! What was tried, line by line, so that a run goes on where another was broken off.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::list::Mutant;
use super::scratch::Sources;
use super::trial::Outcome;
use crate::Failure;

/// Outcomes by a number that is another when the mutant, or a source of the tree, is.
#[derive(Debug)]
pub struct Record {
    file: PathBuf,
    tree: u64,
    outcomes: HashMap<u64, (Outcome, u64)>,
}

impl Record {
    /// What is noted in a folder; nothing where it should be forgotten.
    pub fn open(folder: &Path, files: &Sources, fresh: bool) -> Result<Self, Failure> {
        let file = folder.join("tried.tsv");
        if fresh && file.exists() {
            fs::remove_file(&file)?;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        Ok(Self {
            file,
            tree: files.fingerprint(),
            outcomes: text.lines().filter_map(parse).collect(),
        })
    }

    fn key(&self, what: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.tree, what).hash(&mut hasher);
        hasher.finish()
    }

    /// What became of a mutant, and the seconds that it took.
    pub fn outcome(&self, mutant: &Mutant) -> Option<&(Outcome, u64)> {
        self.outcomes.get(&self.key(mutant))
    }

    /// Whether a killer passes where there is no mutant, if that is known.
    pub fn passes(&self, killer: &str) -> Option<bool> {
        let (outcome, _) = self.outcomes.get(&self.key(&killer))?;
        Some(*outcome == Outcome::Survived)
    }

    /// Notes what became of a mutant.
    pub fn note(
        &mut self,
        mutant: &Mutant,
        outcome: &Outcome,
        seconds: u64,
    ) -> Result<(), Failure> {
        self.add(self.key(mutant), outcome, seconds, &mutant.name)
    }

    /// Notes whether a killer passes where there is no mutant.
    pub fn note_killer(&mut self, killer: &str, passes: bool, seconds: u64) -> Result<(), Failure> {
        let outcome = if passes {
            Outcome::Survived
        } else {
            Outcome::Killed
        };
        self.add(self.key(&killer), &outcome, seconds, killer)
    }

    fn add(
        &mut self,
        key: u64,
        outcome: &Outcome,
        seconds: u64,
        name: &str,
    ) -> Result<(), Failure> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)?;
        let word = outcome.word();
        writeln!(file, "{key:016x}\t{word}\t{seconds}\t{name}")?;
        self.outcomes.insert(key, (outcome.clone(), seconds));
        Ok(())
    }
}

fn parse(line: &str) -> Option<(u64, (Outcome, u64))> {
    let mut fields = line.split('\t');
    let key = u64::from_str_radix(fields.next()?, 16).ok()?;
    let outcome = Outcome::of_word(fields.next()?)?;
    Some((key, (outcome, fields.next()?.parse().ok()?)))
}
