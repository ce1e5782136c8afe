//! Metrics as JSON lines.

use crate::failure::Failure;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where JSON lines go.
#[derive(Debug)]
enum Target {
    Nowhere,
    Stdout,
    /// A pipe or a device: written as the lines come.
    Stream(File),
    /// A file: written beside its place and moved there when it is whole.
    File {
        temporary: BufWriter<NamedTempFile>,
        place: PathBuf,
    },
}

/// Writes one JSON object a line.
#[derive(Debug)]
pub struct JsonLines {
    target: Target,
}

impl JsonLines {
    /// Opens what `--json` names, so that a place that cannot be written is found out before anything is computed.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self {
                target: Target::Nowhere,
            });
        };
        if path.as_os_str() == "-" {
            return Ok(Self {
                target: Target::Stdout,
            });
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
            found => {
                // A file that must not be written must not be replaced either, and a link stays a link.
                let place = if found.is_ok() {
                    File::options()
                        .append(true)
                        .open(path)
                        .map_err(|error| refuse(&error))?;
                    path.canonicalize().map_err(|error| refuse(&error))?
                } else {
                    path.to_owned()
                };
                let folder = place
                    .parent()
                    .filter(|folder| !folder.as_os_str().is_empty());
                let temporary = temporary_in(folder.unwrap_or(Path::new(".")))
                    .map_err(|error| refuse(&error))?;
                Target::File {
                    temporary: BufWriter::new(temporary),
                    place,
                }
            }
        };
        Ok(Self { target })
    }

    /// Whether stdout is taken by JSON.
    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes a line.
    pub fn write(&mut self, event: &impl Serialize) -> io::Result<()> {
        let writer: &mut dyn Write = match &mut self.target {
            Target::Nowhere => return Ok(()),
            Target::Stdout => &mut io::stdout().lock(),
            Target::Stream(file) => file,
            Target::File { temporary, .. } => temporary,
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
        let Target::File { temporary, place } = self.target else {
            return Ok(());
        };
        let failed =
            |error: io::Error| Failure::Run(format!("--json {}: {error}", place.display()));
        let temporary = temporary
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        temporary.as_file().sync_all().map_err(failed)?;
        temporary
            .persist(&place)
            .map_err(|error| failed(error.error))?;
        Ok(())
    }
}

fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".halfgnn-").suffix(".jsonl");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any other file: the umask takes away what it takes away.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
