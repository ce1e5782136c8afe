//! The files that a command is to write, checked before it computes anything: that each can be written, and that none
//! is one of the command's inputs or another of its outputs.

use crate::failure::Failure;
use crate::source::{OpenArgs, SourceName};
use halfgnn::file::WholeFile;
use halfgnn_platform::identity::Identity as FileIdentity;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Links that are followed one after the other, as the system does.
const MOST_LINKS: usize = 40;

/// What a command reads and writes, as far as it is known before it starts.
#[derive(Debug, Default)]
pub struct Outputs {
    inputs: Vec<(String, Identity)>,
    outputs: Vec<(String, Identity)>,
}

/// What identifies a file, under whatever name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// A file that is there.
    File(FileIdentity),
    /// One that is not: its folder, and the name that it will have.
    New(FileIdentity, OsString),
}

impl Identity {
    /// Of a path; none of what is no regular file, such as `/dev/null`, which any number of outputs may share.
    fn of(path: &Path) -> io::Result<Option<Self>> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            match path.metadata() {
                Ok(found) if found.is_file() || found.is_dir() => {
                    return FileIdentity::of(&path).map(Self::File).map(Some);
                }
                Ok(_) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            // A link to what is not there yet is written through.
            match path.read_link() {
                Ok(target) => path = folder_of(&path).join(target),
                Err(_) => {
                    let name = path.file_name().unwrap_or_default().to_owned();
                    return Ok(Some(Self::New(FileIdentity::of(folder_of(&path))?, name)));
                }
            }
        }
        Err(io::Error::other("its links lead round in a circle"))
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let named = folder.filter(|folder| !folder.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// A failure that names the option, where one is given, and the file.
fn refuse(flag: &str, path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    let space = if flag.is_empty() { "" } else { " " };
    Failure::Input(format!("{flag}{space}{}: {reason}", path.display()))
}

impl Outputs {
    /// A command that reads nothing but what its options name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of an input: `what` is its option, empty for an argument by position.
    pub fn reads(&mut self, what: &str, path: &Path) -> &mut Self {
        if let Ok(Some(identity)) = Identity::of(path) {
            let space = if what.is_empty() { "" } else { " " };
            let name = format!("{what}{space}{}", path.display());
            self.inputs.push((name, identity));
        }
        self
    }

    /// Takes note of the files of a graph or dataset.
    pub fn reads_source(&mut self, source: &SourceName, open: &OpenArgs) -> &mut Self {
        for file in open.input_files(source) {
            self.reads("", &file);
        }
        self
    }

    /// Checks a file that appears whole at the end.
    ///
    /// # Errors
    /// Where it cannot be written, or is an input or another output.
    pub fn file(&mut self, flag: &str, path: &Path) -> Result<&mut Self, Failure> {
        WholeFile::check(path).map_err(|error| cannot(flag, path, &error))?;
        self.add(flag, path)
    }

    /// Checks a file that is written as the command goes on, where there is one; `-` is stdout.
    ///
    /// # Errors
    /// As [`Outputs::file`].
    pub fn stream(&mut self, flag: &str, path: Option<&Path>) -> Result<&mut Self, Failure> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Ok(self);
        };
        match path.metadata() {
            // A pipe or a device.
            Ok(found) if !found.is_file() && !found.is_dir() => Ok(self),
            // Written in its place, whatever its folder takes.
            Ok(found) if found.is_file() => {
                let opened = std::fs::File::options().append(true).open(path);
                opened.map_err(|error| cannot(flag, path, &error))?;
                self.add(flag, path)
            }
            _ => self.file(flag, path),
        }
    }

    /// Checks a folder that is made where it is not there.
    ///
    /// # Errors
    /// Where it cannot be made or is an input or another output.
    pub fn folder(&mut self, flag: &str, path: &Path) -> Result<&mut Self, Failure> {
        let failed = |error: io::Error| cannot_make(flag, path, &error);
        match path.metadata() {
            Ok(found) if !found.is_dir() => {
                return Err(cannot_make(flag, path, &"it is no folder"));
            }
            // A file of its own shows whether one can be written.
            Ok(_) => drop(tempfile::tempfile_in(path).map_err(failed)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut above = folder_of(path);
                while !above.exists() && above != folder_of(above) {
                    above = folder_of(above);
                }
                drop(tempfile::tempfile_in(above).map_err(failed)?);
            }
            Err(error) => return Err(failed(error)),
        }
        // One whose folder is not there either is no other output's.
        match path.exists() || folder_of(path).exists() {
            true => self.add(flag, path),
            false => Ok(self),
        }
    }

    fn add(&mut self, flag: &str, path: &Path) -> Result<&mut Self, Failure> {
        let identity = Identity::of(path).map_err(|error| cannot(flag, path, &error))?;
        let Some(identity) = identity else {
            return Ok(self);
        };
        let same = |(_, other): &&(String, Identity)| *other == identity;
        if let Some((input, _)) = self.inputs.iter().find(same) {
            let reason =
                format!("it is an input, {input}, which would be overwritten; name another file");
            return Err(refuse(flag, path, &reason));
        }
        if let Some((output, _)) = self.outputs.iter().find(same) {
            let reason = format!("it is written by {output} as well; name another file");
            return Err(refuse(flag, path, &reason));
        }
        let name = match flag {
            "" => path.display().to_string(),
            _ => flag.to_owned(),
        };
        self.outputs.push((name, identity));
        Ok(self)
    }
}

fn cannot_make(flag: &str, path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    let reason = format!("cannot be made: {reason}; name a folder that can be written");
    refuse(flag, path, &reason)
}

fn cannot(flag: &str, path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    let reason = format!("cannot be written: {reason}; name a file in a folder that can be");
    refuse(flag, path, &reason)
}

impl OpenArgs {
    /// The files that a source is read from; none of a recipe.
    fn input_files(&self, source: &SourceName) -> Vec<PathBuf> {
        match source {
            SourceName::Made(_) => Vec::new(),
            SourceName::File(path) => {
                let path = crate::source::find(path).unwrap_or_else(|_| path.clone());
                halfgnn::data::input_files(&path, self.format)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_platform::links::to_file as symlink;

    fn refusal(result: Result<&mut Outputs, Failure>) -> String {
        result.map(|_| ()).expect_err("a refusal").to_string()
    }

    #[test]
    fn an_input_is_no_output_under_any_of_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("data"), "1").expect("space");
        symlink(at("data"), at("link")).expect("links");
        std::fs::hard_link(at("data"), at("hard")).expect("links");
        std::fs::create_dir(at("below")).expect("a folder");
        let round = at("below").join("..").join("data");
        for name in [at("data"), at("link"), at("hard"), round] {
            let mut outputs = Outputs::new();
            outputs.reads("--model", &at("data"));
            let message = refusal(outputs.file("--out", &name));
            assert!(message.contains("it is an input, --model"), "{message}");
            assert!(message.starts_with("--out "), "{message}");
            assert!(refusal(outputs.stream("--json", Some(&name))).contains("it is an input"));
        }
        assert_eq!(std::fs::read(at("data")).expect("a file"), b"1");
    }

    #[test]
    fn two_outputs_are_two_files_also_where_neither_is_there_yet() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink(at("new"), at("link")).expect("links");
        for second in [at("new"), at("link"), at(".").join("new")] {
            let mut outputs = Outputs::new();
            outputs
                .file("--save", &at("new"))
                .expect("it can be written");
            let message = refusal(outputs.stream("--json", Some(&second)));
            assert!(message.contains("written by --save as well"), "{message}");
        }
        let mut outputs = Outputs::new();
        let all = ["a", "b", "c"].map(at);
        for path in &all {
            outputs.file("--save", path).expect("another file");
        }
        assert!(all.iter().all(|path| !path.exists()), "nothing is left");
    }

    #[test]
    fn what_cannot_be_written_is_found_out_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = folder.path().join("x".repeat(300));
        let missing = folder.path().join("none").join("a");
        for path in [long.as_path(), missing.as_path(), folder.path()] {
            let message = refusal(Outputs::new().file("--save", path));
            assert!(message.contains("cannot be written"), "{message}");
            assert!(refusal(Outputs::new().stream("--csv", Some(path))).contains("--csv"));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn streams_may_share_a_device_and_stdout() {
        let mut outputs = Outputs::new();
        for path in ["/dev/null", "/dev/null", "-", "-"] {
            outputs
                .stream("--json", Some(Path::new(path)))
                .expect("no file");
        }
    }
}
