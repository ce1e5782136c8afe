//! Tables in Parquet, row by row. A column of lists of one length is as many columns of numbers.

use std::cell::Cell as Flag;
use std::fs::File;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};

use super::{Cell, EachRow, Table};
use crate::error::DataProblem;

/// A file, and the names of its columns, those of lists one for each place.
pub(super) struct Parquet {
    rows: RowIter<'static>,
    first: Option<Row>,
    names: Vec<String>,
}

impl Parquet {
    pub fn open(path: &Path) -> Result<Self, DataProblem> {
        let file = File::open(path)?;
        let opened = guarded(|| {
            let reader = SerializedFileReader::new(file)?;
            let columns = reader.metadata().file_metadata().schema().get_fields();
            let names: Vec<String> = columns.iter().map(|column| column.name().into()).collect();
            let mut rows = RowIter::from_file_into(Box::new(reader));
            let first = rows.next().transpose()?;
            Ok((names, rows, first))
        });
        let (names, rows, first) = opened?;
        let names = match &first {
            Some(row) => spread(&names, row),
            None => names,
        };
        Ok(Self { rows, first, names })
    }
}

impl Table for Parquet {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn for_each(&mut self, each: &mut EachRow<'_>) -> Result<(), DataProblem> {
        let mut line = 0;
        loop {
            let row = match self.first.take() {
                Some(row) => row,
                None => match guarded(|| self.rows.next().transpose())? {
                    Some(row) => row,
                    None => return Ok(()),
                },
            };
            line += 1;
            let mut cells = Vec::with_capacity(self.names.len());
            for (name, field) in row.get_column_iter() {
                match items(field) {
                    Some(fields) => {
                        for field in fields {
                            cells.push(cell(field, line, name)?);
                        }
                    }
                    None => cells.push(cell(field, line, name)?),
                }
            }
            if cells.len() != self.names.len() {
                let reason = format!(
                    "the row has {} numbers and texts, where the first has {}; lists must be of one length",
                    cells.len(),
                    self.names.len()
                );
                return Err(DataProblem::line(line, reason));
            }
            each(line, &cells)?;
        }
    }
}

/// The names of columns, and of the places of lists.
fn spread(names: &[String], row: &Row) -> Vec<String> {
    let mut spread = Vec::new();
    for (name, (_, field)) in names.iter().zip(row.get_column_iter()) {
        match items(field) {
            Some(fields) => spread.extend((0..fields.len()).map(|at| format!("{name}[{at}]"))),
            None => spread.push(name.clone()),
        }
    }
    spread
}

fn items(field: &Field) -> Option<&[Field]> {
    match field {
        Field::ListInternal(list) => Some(list.elements()),
        _ => None,
    }
}

fn cell<'a>(field: &'a Field, line: u64, name: &str) -> Result<Cell<'a>, DataProblem> {
    Ok(match field {
        Field::Null => Cell::Empty,
        Field::Bool(truth) => Cell::Truth(*truth),
        Field::Byte(number) => Cell::Whole((*number).into()),
        Field::Short(number) => Cell::Whole((*number).into()),
        Field::Int(number) => Cell::Whole((*number).into()),
        Field::Long(number) => Cell::Whole(*number),
        Field::UByte(number) => Cell::Whole((*number).into()),
        Field::UShort(number) => Cell::Whole((*number).into()),
        Field::UInt(number) => Cell::Whole((*number).into()),
        Field::ULong(number) => match i64::try_from(*number) {
            Ok(number) => Cell::Whole(number),
            Err(_) => Cell::Number(*number as f64),
        },
        Field::Float16(number) => Cell::Number(f32::from(*number).into()),
        Field::Float(number) => Cell::Number((*number).into()),
        Field::Double(number) => Cell::Number(*number),
        Field::Str(text) => Cell::Text(text),
        _ => {
            let name = crate::message::shown(name.as_bytes());
            let reason = format!(
                "column '{name}' is neither of numbers, truths or texts nor of lists of numbers; leave it out of the file"
            );
            return Err(DataProblem::line(line, reason));
        }
    })
}

/// What the crate makes of a file. It is written for files that are whole, and panics at some that are not.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataProblem> {
    let refuse = |reason: String| DataProblem::Parquet { reason };
    match quietly(|| catch_unwind(AssertUnwindSafe(read))) {
        Ok(read) => read.map_err(|error| refuse(error.to_string())),
        Err(_) => Err(refuse("a number in it leads out of it".into())),
    }
}

thread_local! {
    static QUIET: Flag<bool> = const { Flag::new(false) };
}

type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync>;

/// A hook that does not report the panics of a thread that is quiet.
fn silenced(report: Hook) -> Hook {
    Box::new(move |info| {
        if !QUIET.get() {
            report(info);
        }
    })
}

/// Runs `read` without output of the process's panic hook, which would precede the error that a panic becomes here.
/// Panics of other threads are reported as before.
fn quietly<T>(read: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| panic::set_hook(silenced(panic::take_hook())));
    let before = QUIET.replace(true);
    let result = read();
    QUIET.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn only_the_crates_panics_are_silent() {
        const OURS: &str = "an index out of bounds";
        let reports = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reports);
        let hook: Hook = Box::new(move |info| {
            // Of this thread alone: other tests panic as well.
            if info.payload_as_str() == Some(OURS) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        panic::set_hook(silenced(hook));
        let refused = guarded::<()>(|| panic!("{OURS}"));
        assert!(refused.unwrap_err().to_string().contains("leads out of it"));
        assert_eq!(reports.load(Ordering::SeqCst), 0);
        assert!(catch_unwind(|| panic!("{OURS}")).is_err());
        assert_eq!(reports.load(Ordering::SeqCst), 1);
    }
}
