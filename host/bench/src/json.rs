//! Metrics as JSON lines, the first of which says what machine and command they are of.

use crate::failure::Failure;
use crate::machine::Machine;
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where JSON lines go.
#[derive(Debug)]
enum Target {
    Nowhere,
    Stdout,
    /// A pipe or a device.
    Stream(File),
    /// A file. What was there before is there until the first line.
    File {
        file: File,
        /// Whether it was made for this, and goes again if nothing is written.
        new: bool,
    },
}

/// Writes one JSON object a line, each there for others to read when it is written: a run that is killed leaves its
/// lines.
#[derive(Debug)]
pub struct JsonLines {
    target: Target,
    /// What `--json` said.
    path: PathBuf,
    /// Whether the first line is written.
    begun: bool,
}

/// Why a line was not written.
#[derive(Debug)]
pub struct JsonError {
    path: PathBuf,
    source: io::Error,
}

impl JsonError {
    /// Whether the reader at the other end of a pipe has left, which need not be a failure.
    pub fn reader_left(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "--json {}: cannot be written: {}",
            self.path.display(),
            self.source
        )
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        Failure::Run(error.to_string())
    }
}

impl JsonLines {
    /// Opens what `--json` names, so that a place that cannot be written is found out before anything is computed.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::to(Target::Nowhere, Path::new("")));
        };
        if path.as_os_str() == "-" {
            return Ok(Self::to(Target::Stdout, path));
        }
        let refuse = |reason: &dyn fmt::Display| {
            Failure::Input(format!(
                "--json {}: cannot be written: {reason}; name a file in a folder that can be",
                path.display()
            ))
        };
        let found = std::fs::metadata(path);
        if found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            return Err(refuse(&"it is a folder"));
        }
        // Emptied at the first line: a command that is refused before that leaves what was there.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| refuse(&error))?;
        let target = match found {
            Ok(found) if !found.is_file() => Target::Stream(file),
            found => Target::File {
                file,
                new: found.is_err(),
            },
        };
        Ok(Self::to(target, path))
    }

    fn to(target: Target, path: &Path) -> Self {
        Self {
            target,
            path: path.to_owned(),
            begun: false,
        }
    }

    /// Whether stdout is taken by JSON.
    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes a line; before the first, one on the machine.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&mut self, event: &impl Serialize) -> Result<(), JsonError> {
        self.put_lines(event).map_err(|source| JsonError {
            path: self.path.clone(),
            source,
        })
    }

    fn put_lines(&mut self, event: &impl Serialize) -> io::Result<()> {
        if !self.begun && !matches!(self.target, Target::Nowhere) {
            self.begun = true;
            if let Target::File { file, .. } = &self.target {
                file.set_len(0)?;
            }
            self.put(&Machine::survey())?;
        }
        self.put(event)
    }

    fn put(&mut self, event: &impl Serialize) -> io::Result<()> {
        let writer: &mut dyn Write = match &mut self.target {
            Target::Nowhere => return Ok(()),
            Target::Stdout => &mut io::stdout().lock(),
            Target::Stream(file) | Target::File { file, .. } => file,
        };
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        // Nothing is kept back: a line is whole in the file, or with the reader of a pipe, before the next is made.
        writer.write_all(&line)?;
        writer.flush()
    }

    /// Makes sure that the lines are there even if the machine stops.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        let Target::File { file, .. } = &self.target else {
            return Ok(());
        };
        file.sync_all().map_err(|source| {
            JsonError {
                path: self.path.clone(),
                source,
            }
            .into()
        })
    }
}

impl Drop for JsonLines {
    /// A command that is refused leaves no empty file.
    fn drop(&mut self) {
        if let Target::File { new: true, .. } = self.target
            && !self.begun
        {
            // It cannot be removed where the folder has changed meanwhile, and then it does not matter.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).expect("a file");
        let line = |line| serde_json::from_str(line).expect("JSON");
        text.lines().map(line).collect()
    }

    #[test]
    fn each_line_is_there_when_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(
            &path,
            "something longer than that was there before\n".repeat(99),
        )
        .expect("room");
        let mut json = JsonLines::open(Some(&path)).expect("it can be written");
        for count in 1..4 {
            json.write(&count).expect("room");
            let lines = lines(&path);
            assert_eq!(lines.len(), 1 + count);
            assert_eq!(
                (&lines[0]["event"], &lines[count]),
                (&"machine".into(), &count.into())
            );
        }
        json.finish().expect("room");
        assert_eq!(lines(&path).len(), 4);
    }

    #[test]
    fn nothing_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let json = JsonLines::open(Some(&path)).expect("it can be written");
        assert!(path.exists(), "it is there at once");
        drop(json);
        assert!(!path.exists());
        std::fs::write(&path, "before\n").expect("room");
        drop(JsonLines::open(Some(&path)).expect("it can be written"));
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "before\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_cannot_be_written_is_an_error_with_the_name() {
        let mut json = JsonLines::open(Some(Path::new("/dev/full"))).expect("a device");
        let error = json.write(&1).expect_err("it is full");
        assert!(!error.reader_left());
        assert!(
            error
                .to_string()
                .starts_with("--json /dev/full: cannot be written: "),
            "{error}"
        );
    }
}
