//! `--state`: the trials so far, a line each, from which an interrupted tuning goes on.

use super::trial::Trial;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What must be the same for trials to be of one tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The text of the space.
    pub space: String,
    /// Options of `train` for all trials.
    pub train: Vec<String>,
    /// The seed.
    pub seed: u64,
}

/// The file.
#[derive(Debug)]
pub struct TrialLog {
    path: PathBuf,
    file: File,
}

impl TrialLog {
    /// Opens the file, or makes it; gives the trials that are in it.
    pub fn open(path: &Path, identity: &Identity) -> Result<(Self, Vec<Trial>), Failure> {
        let refuse =
            |reason: String| Failure::Input(format!("--state {}: {reason}", path.display()));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(refuse(error.to_string())),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines().enumerate();
        if let Some((_, first)) = lines.next() {
            let found: Identity = serde_json::from_str(first)
                .map_err(|error| refuse(format!("line 1: no tuning's: {error}")))?;
            let what = match () {
                () if found.space != identity.space => "space",
                () if found.train != identity.train => "options of train",
                () if found.seed != identity.seed => "seed",
                () => "",
            };
            if !what.is_empty() {
                return Err(refuse(format!(
                    "its trials are of another {what}; name another file, or remove this one"
                )));
            }
        }
        let trials = lines
            .map(|(number, line)| {
                serde_json::from_str(line)
                    .map_err(|error| refuse(format!("line {}: {error}", number + 1)))
            })
            .collect::<Result<_, _>>()?;
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| refuse(format!("cannot be written: {error}")))?;
        let mut log = Self {
            path: path.to_owned(),
            file,
        };
        // What a killed program left of a line.
        let cut = log.file.set_len(whole as u64);
        cut.map_err(|error| refuse(error.to_string()))?;
        if whole == 0 {
            log.write(identity)?;
        }
        Ok((log, trials))
    }

    /// Adds a line, which is in the file when this is done.
    pub fn write(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let written = serde_json::to_string(what)
            .map_err(io::Error::from)
            .and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(|error| {
            Failure::Run(format!(
                "--state {}: cannot be written: {error}",
                self.path.display()
            ))
        })
    }
}
