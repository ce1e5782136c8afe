//! `--tensorboard`: event files as TensorBoard reads them.
//!
//! A file is a row of records as TensorFlow frames them (`tensorflow/core/lib/io/record_writer.h`): length, its masked
//! CRC-32C, the bytes, their masked CRC-32C. Each is an `Event` (`tensorboard/compat/proto/event.proto`): wall time,
//! step, and scalars under their tags. That is four fields of protocol buffers, written here.

use super::{SPLITS, scores};
use crate::failure::Failure;
use halfgnn::train::EpochReport;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The folder, and the file of the run that is under way.
#[derive(Debug)]
pub struct EventFiles {
    folder: PathBuf,
    run: Option<File>,
}

impl EventFiles {
    /// Files below `folder`, which is made.
    pub fn below(folder: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|error| {
            Failure::Input(format!(
                "--tensorboard {}: cannot be made: {error}; name a folder that can be written",
                folder.display()
            ))
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            run: None,
        })
    }

    /// Begins the file of a run, in a folder of its own: TensorBoard draws a curve a folder.
    pub fn run_starts(&mut self, model: &str, seed: u64) -> Result<(), Failure> {
        let folder = self
            .folder
            .join(format!("{}-seed-{seed}", model.replace(' ', "-")));
        let begin = || {
            fs::create_dir_all(&folder)?;
            let name = format!("events.out.tfevents.{}.halfgnn", now().as_secs());
            let mut file = File::create(folder.join(name))?;
            file.write_all(&record(&event(0, &[Field::Text(3, "brain.Event:2")])))?;
            Ok(file)
        };
        self.run = Some(begin().map_err(|error| self.failed(&error))?);
        Ok(())
    }

    /// Writes what an epoch says, at once.
    pub fn epoch(&mut self, report: &EpochReport) -> Result<(), Failure> {
        let mut values = vec![
            ("loss/train".to_owned(), report.loss),
            ("learning_rate".to_owned(), report.learning_rate),
            ("ms".to_owned(), report.ms as f32),
        ];
        for score in scores(report) {
            values.extend(
                SPLITS.map(|(name, split)| {
                    (format!("{}/{name}", score.metric), score.of(split) as f32)
                }),
            );
        }
        let mut summary = Vec::new();
        for (tag, value) in values.iter().filter(|(_, value)| !value.is_nan()) {
            let value = message(&[Field::Text(1, tag), Field::Float(2, *value)]);
            summary.extend(message(&[Field::Bytes(1, &value)]));
        }
        let bytes = record(&event(report.epoch, &[Field::Bytes(5, &summary)]));
        let written = match &mut self.run {
            Some(file) => file.write_all(&bytes),
            None => Ok(()),
        };
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::Run(format!(
            "--tensorboard {}: cannot be written: {error}",
            self.folder.display()
        ))
    }
}

fn now() -> std::time::Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// A field of a message of protocol buffers, under its number.
enum Field<'a> {
    Double(u8, f64),
    Float(u8, f32),
    Number(u8, u64),
    Text(u8, &'a str),
    Bytes(u8, &'a [u8]),
}

/// An event at `step`, now.
fn event(step: u32, what: &[Field<'_>]) -> Vec<u8> {
    let mut event = message(&[
        Field::Double(1, now().as_secs_f64()),
        Field::Number(2, step.into()),
    ]);
    event.extend(message(what));
    event
}

/// The bytes of a message.
fn message(fields: &[Field<'_>]) -> Vec<u8> {
    // Types of fields on the wire.
    const VARINT: u8 = 0;
    const EIGHT_BYTES: u8 = 1;
    const LENGTH: u8 = 2;
    const FOUR_BYTES: u8 = 5;
    let mut bytes = Vec::new();
    let mut put = |number: u8, kind: u8, content: &[u8]| {
        bytes.push(number << 3 | kind);
        if kind == LENGTH {
            bytes.extend(varint(content.len() as u64));
        }
        bytes.extend_from_slice(content);
    };
    for field in fields {
        match field {
            Field::Double(number, value) => put(*number, EIGHT_BYTES, &value.to_le_bytes()),
            Field::Float(number, value) => put(*number, FOUR_BYTES, &value.to_le_bytes()),
            Field::Number(number, value) => put(*number, VARINT, &varint(*value)),
            Field::Text(number, text) => put(*number, LENGTH, text.as_bytes()),
            Field::Bytes(number, content) => put(*number, LENGTH, content),
        }
    }
    bytes
}

/// Seven bits a byte, low ones first; the eighth says that more follow.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A record of a file.
fn record(content: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| {
        let sum = crc32c::crc32c(bytes);
        sum.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let length = (content.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), content, &masked(content)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_seven_bits_a_byte() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(127), [127]);
        assert_eq!(varint(300), [0xac, 0x02]);
        assert_eq!(varint(u64::MAX).len(), 10);
    }

    /// What TensorBoard 2.21 writes:
    /// `RecordWriter(file).write(Event(step=7, file_version="brain.Event:2").SerializeToString())` of
    /// `tensorboard.summary.writer.record_writer`.
    #[test]
    fn records_are_tensorboards() {
        let content = message(&[Field::Number(2, 7), Field::Text(3, "brain.Event:2")]);
        let hex: String = record(&content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, EXPECTED);
    }
    const EXPECTED: &str = "11000000000000009d6db52e10071a0d627261696e2e4576656e743a3213b90ac3";
}
