//! Lines of numbers, and the kinds among them.

use crate::error::DataProblem;
use crate::input::Input;
use crate::message::shown;
use crate::text::LineError;

/// Kinds, numbered from 0 on in each column behind those of the columns before it.
pub(super) struct Kinds {
    pub columns: usize,
    pub rows: Vec<u32>,
    /// Of all columns.
    pub all: usize,
}

impl Kinds {
    pub fn of(table: &Table<i64>) -> Self {
        let mut rows = vec![0; table.values.len()];
        let mut all = 0;
        for column in 0..table.columns {
            let values = table.values.iter().skip(column).step_by(table.columns);
            let known = distinct(values.clone());
            let places = rows.iter_mut().skip(column).step_by(table.columns);
            for (place, value) in places.zip(values) {
                let number = known.partition_point(|known| known < value);
                *place = (all + number) as u32;
            }
            all += known.len();
        }
        Self {
            columns: table.columns,
            rows,
            all,
        }
    }
}

/// Each value once, in order.
pub(super) fn distinct<'a>(values: impl IntoIterator<Item = &'a i64>) -> Vec<i64> {
    let mut values: Vec<i64> = values.into_iter().copied().collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Rows of numbers with commas between them, all of one width.
pub(super) struct Table<T> {
    pub columns: usize,
    pub values: Vec<T>,
}

impl<T: Send + Copy> Table<T> {
    /// What `parse` makes of each number of a text, which is `what`.
    pub fn read(
        input: Input<'_>,
        parse: impl Fn(&str) -> Option<T> + Sync,
        what: &str,
    ) -> Result<Self, DataProblem> {
        let mut text = input.text()?;
        let columns = match text.peek_line()? {
            Some(line) => line.split(',').count(),
            None => return Err(DataProblem::Empty),
        };
        let mut values = Vec::new();
        text.for_each_block(
            |block| rows(block, columns, &parse, what),
            |block| {
                values.extend(block);
                Ok(())
            },
        )?;
        Ok(Self { columns, values })
    }

    /// The one column.
    pub fn line(self, key: &str) -> Result<Vec<T>, DataProblem> {
        self.expect_columns(key, 1, "one number in each line")?;
        Ok(self.values)
    }

    fn shape(&self) -> [u64; 2] {
        let rows = self.values.len() / self.columns;
        [rows as u64, self.columns as u64]
    }

    pub fn expect_columns(
        &self,
        key: &str,
        columns: usize,
        wanted: &str,
    ) -> Result<(), DataProblem> {
        match self.columns == columns {
            true => Ok(()),
            false => Err(DataProblem::shape(key, &self.shape(), wanted)),
        }
    }

    pub fn expect_rows(&self, key: &str, rows: usize, of: &str) -> Result<(), DataProblem> {
        match self.shape()[0] == rows as u64 {
            true => Ok(()),
            false => {
                let wanted = format!("({rows}, …), a line for each {of}");
                Err(DataProblem::shape(key, &self.shape(), wanted))
            }
        }
    }
}

/// The numbers of a block of lines, all but empty ones.
fn rows<T>(
    block: &[u8],
    columns: usize,
    parse: &(impl Fn(&str) -> Option<T> + Sync),
    what: &str,
) -> Result<Vec<T>, LineError> {
    let mut values = Vec::with_capacity(block.len() / 4);
    let mut at = 0;
    for line in block.split(|&byte| byte == b'\n') {
        let error = |reason| LineError { at, reason };
        let text = std::str::from_utf8(line).map_err(|_| error("it is no text".into()))?;
        if !text.trim().is_empty() {
            let before = values.len();
            for field in text.split(',') {
                let field = field.trim();
                values.push(
                    parse(field).ok_or_else(|| {
                        error(format!("'{}' is no {what}", shown(field.as_bytes())))
                    })?,
                );
            }
            let found = values.len() - before;
            if found != columns {
                return Err(error(format!(
                    "there are {found} numbers, where the first line has {columns}"
                )));
            }
        }
        at += line.len() + 1;
    }
    Ok(values)
}

/// A whole number; some files have them with a point and zeros.
pub(super) fn whole<T: std::str::FromStr>(field: &str) -> Option<T> {
    let digits = match field.split_once('.') {
        Some((digits, zeros)) if zeros.bytes().all(|digit| digit == b'0') => digits,
        _ => field,
    };
    digits.parse().ok()
}

/// A number, NaN where it is missing.
pub(super) fn float(field: &str) -> Option<f32> {
    field
        .parse()
        .ok()
        .filter(|value: &f32| !value.is_infinite())
}

pub(super) fn finite(field: &str) -> Option<f32> {
    field.parse().ok().filter(|value: &f32| value.is_finite())
}
