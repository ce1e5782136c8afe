//! Metrics as JSON lines, the first of which says what machine and command they are of.

use crate::failure::Failure;
use crate::machine::Machine;
use halfgnn::file::WholeFile;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where JSON lines go.
#[derive(Debug)]
enum Target {
    Nowhere,
    Stdout,
    /// A pipe or a device: written as the lines come.
    Stream(File),
    /// A file: written beside its place and moved there when it is whole.
    File {
        file: BufWriter<WholeFile>,
        place: PathBuf,
    },
}

/// Writes one JSON object a line.
#[derive(Debug)]
pub struct JsonLines {
    target: Target,
    /// Whether the first line is written.
    begun: bool,
}

impl JsonLines {
    /// Opens what `--json` names, so that a place that cannot be written is found out before anything is computed.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::to(Target::Nowhere));
        };
        if path.as_os_str() == "-" {
            return Ok(Self::to(Target::Stdout));
        }
        let refuse = |reason: &dyn std::fmt::Display| {
            Failure::Input(format!(
                "--json {}: cannot be written: {reason}; name a file in a folder that can be",
                path.display()
            ))
        };
        let target = match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return Err(refuse(&"it is a folder")),
            Ok(meta) if !meta.is_file() => Target::Stream(
                File::options()
                    .write(true)
                    .open(path)
                    .map_err(|error| refuse(&error))?,
            ),
            _ => Target::File {
                file: BufWriter::new(WholeFile::create(path).map_err(|error| refuse(&error))?),
                place: path.to_owned(),
            },
        };
        Ok(Self::to(target))
    }

    fn to(target: Target) -> Self {
        Self {
            target,
            begun: false,
        }
    }

    /// Whether stdout is taken by JSON.
    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes a line; before the first, one on the machine.
    pub fn write(&mut self, event: &impl Serialize) -> io::Result<()> {
        if !self.begun && !matches!(self.target, Target::Nowhere) {
            self.begun = true;
            self.put(&Machine::survey())?;
        }
        self.put(event)
    }

    fn put(&mut self, event: &impl Serialize) -> io::Result<()> {
        let writer: &mut dyn Write = match &mut self.target {
            Target::Nowhere => return Ok(()),
            Target::Stdout => &mut io::stdout().lock(),
            Target::Stream(file) => file,
            Target::File { file, .. } => file,
        };
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        writer.write_all(&line)?;
        // A reader at the other end of a pipe wants each line when it is there.
        if matches!(self.target, Target::Stdout) {
            io::stdout().flush()
        } else {
            Ok(())
        }
    }

    /// Puts the file in its place.
    pub fn finish(self) -> Result<(), Failure> {
        let Target::File { file, place } = self.target else {
            return Ok(());
        };
        file.into_inner()
            .map_err(|error| error.into_error())
            .and_then(WholeFile::finish)
            .map_err(|error| Failure::Run(format!("--json {}: {error}", place.display())))
    }
}
