//! Tables as text: cells apart by commas, semicolons or tabs, as the first line has them; packed or not.

use std::io::{BufRead, BufReader, Read};

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};

use super::{Cell, EachRow, Table};
use crate::error::DataProblem;
use crate::input::{Input, check_encoding};

/// A text of rows, the first of which has the names.
pub(super) struct Csv<'a> {
    reader: csv::Reader<BufReader<Box<dyn Read + Send + 'a>>>,
    names: Vec<String>,
    packed: bool,
}

impl<'a> Csv<'a> {
    pub fn open(input: Input<'a>) -> Result<Self, DataProblem> {
        /// Enough for the names of thousands of columns.
        const HEAD: usize = 1 << 18;
        if input.len() == 0 {
            return Err(DataProblem::Empty);
        }
        let (source, packed) = input.unpacked()?;
        let mut source = BufReader::with_capacity(HEAD, source);
        let head = source
            .fill_buf()
            .map_err(|error| refuse(error.into(), packed))?;
        check_encoding(head)?;
        let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let line = head.split(ends).next().unwrap_or_default();
        let count = |separator: &u8| line.iter().filter(|byte| *byte == separator).count();
        let delimiter = [b',', b'\t', b';'].into_iter().rev().max_by_key(count);
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter.unwrap_or(b','))
            .trim(Trim::All)
            .from_reader(source);
        let names = reader.headers().map_err(|error| refuse(error, packed))?;
        let names: Vec<String> = names
            .iter()
            .map(|name| name.trim_start_matches('\u{feff}').to_owned())
            .collect();
        Ok(Self {
            reader,
            names,
            packed,
        })
    }
}

impl Table for Csv<'_> {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn for_each(&mut self, each: &mut EachRow<'_>) -> Result<(), DataProblem> {
        let mut record = StringRecord::new();
        loop {
            let more = self.reader.read_record(&mut record);
            if !more.map_err(|error| refuse(error, self.packed))? {
                return Ok(());
            }
            let line = record.position().map_or(0, csv::Position::line);
            let cells: Vec<_> = record
                .iter()
                .map(|text| match text {
                    "" => Cell::Empty,
                    text => Cell::Text(text),
                })
                .collect();
            each(line, &cells)?;
        }
    }
}

/// What is wrong, with its line.
fn refuse(error: csv::Error, packed: bool) -> DataProblem {
    let line = error.position().map_or(0, csv::Position::line);
    match error.into_kind() {
        ErrorKind::Io(error) if packed => DataProblem::Gzip {
            reason: error.to_string(),
        },
        ErrorKind::Io(error) => DataProblem::Io(error),
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => DataProblem::line(
            line,
            format!("there are {len} cells, where the first line names {expected_len} columns"),
        ),
        ErrorKind::Utf8 { .. } => DataProblem::line(line, "it is no text in UTF-8"),
        other => DataProblem::line(line, format!("{other:?}")),
    }
}
