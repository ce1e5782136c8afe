//! Arrays of numbers by their names, whatever file they are in.

use super::npy::{Kind, Number};
use crate::error::DataProblem;
use crate::rules::{self, Selects};

/// Why a number is none, and what to do.
const NO_FLOAT: &str =
    "which is no finite float; put a number in its place, as numpy.nan_to_num does";

/// An array: its shape, and its elements with the last index changing fastest.
#[derive(Debug, PartialEq)]
pub(crate) struct Values<T> {
    pub shape: Vec<u64>,
    pub values: Vec<T>,
}

/// A file of arrays, each read when it is asked for.
pub(crate) trait Arrays {
    /// The keys, as an error can show them: a name may hold anything, line ends included.
    fn keys(&self) -> Vec<String>;

    /// Whether there is an array `key`.
    fn has(&self, key: &str) -> bool;

    /// The most vertices that a file of this size may claim to have, where it lists edges only.
    fn most_vertices(&self) -> u64;

    /// What the numbers of an array are, and its shape.
    fn kind(&mut self, key: &str) -> Result<(Kind, Vec<u64>), DataProblem>;

    /// An array whose type is one of `kinds`, each element by way of `convert`.
    fn read<T: Copy>(
        &mut self,
        key: &str,
        kinds: &[Kind],
        wanted: &'static str,
        convert: impl FnMut(u64, Number) -> Result<T, DataProblem>,
    ) -> Result<Values<T>, DataProblem>;

    /// That there is no array `key`, but others.
    fn missing(&self, key: &str) -> DataProblem {
        let keys = self.keys();
        let present = match keys.is_empty() {
            true => "no array at all".into(),
            false => keys.join(", "),
        };
        DataProblem::MissingKey {
            key: key.into(),
            present,
        }
    }

    /// Whole numbers below `limit`, which is the number of `what`.
    fn ids(&mut self, key: &str, limit: u64, what: &str) -> Result<Values<u32>, DataProblem> {
        self.read(key, WHOLE, "whole numbers", |index, number| {
            id(key, (limit, what), index, number)
        })
    }

    /// The same one after the other as they lie there, none of which is kept.
    fn each_id(
        &mut self,
        key: &str,
        limit: u64,
        what: &str,
        mut each: impl FnMut(u64, u32) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let all = self.read(key, WHOLE, "whole numbers", |index, number| {
            each(index, id(key, (limit, what), index, number)?)
        });
        all.map(|_: Values<()>| ())
    }

    /// Whole numbers below 256.
    fn bytes(&mut self, key: &str) -> Result<Values<u8>, DataProblem> {
        self.read(key, WHOLE, "whole numbers", |index, number| {
            id(key, (256, "bytes"), index, number).map(|byte| byte as u8)
        })
    }

    /// Classes, of numbers of any kind: see [`rules`].
    fn labels(&mut self, key: &str) -> Result<Values<u32>, DataProblem> {
        self.read(key, ANY, "whole numbers", |index, number| {
            let class = match number {
                Number::Float(value) => rules::class_of_float(value),
                Number::Signed(value) => rules::class_of(value),
                Number::Unsigned(value) => i64::try_from(value).ok().and_then(rules::class_of),
            };
            class.ok_or_else(|| rules::no_class(key, index, shown(number)))
        })
    }

    /// The vertices that an array of one dimension selects, a mask or a list: see [`rules::selection`].
    fn selected(&mut self, key: &str, vertices: usize) -> Result<Vec<u32>, DataProblem> {
        let selects = match self.kind(key)?.0 {
            Kind::Bool => Selects::Truths,
            Kind::Float => Selects::Floats,
            _ => Selects::Integers,
        };
        let numbers = self.read(key, ANY, "a mask or a list of vertices", |_, number| {
            Ok(wide(number))
        })?;
        rules::selected(key, selects, &numbers.line(key)?, vertices)
    }

    /// Whole numbers from 0.
    fn counts(&mut self, key: &str) -> Result<Values<u64>, DataProblem> {
        self.read(
            key,
            &[Kind::Signed, Kind::Unsigned],
            "whole numbers",
            |index, number| {
                whole(number)
                    .map_err(|value| DataProblem::value(key, index, value, "which is negative"))
            },
        )
    }

    /// Numbers of any kind that are finite as floats.
    fn floats(&mut self, key: &str) -> Result<Values<f32>, DataProblem> {
        self.read(key, ANY, "numbers", |index, number| {
            float(key, index, number)
        })
    }

    /// The same one after the other as they lie there, none of which is kept.
    fn each_float(
        &mut self,
        key: &str,
        mut each: impl FnMut(u64, f32) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let all = self.read(key, ANY, "numbers", |index, number| {
            each(index, float(key, index, number)?)
        });
        all.map(|_: Values<()>| ())
    }

    /// Whether all numbers of an array are 1.
    fn are_ones(&mut self, key: &str) -> Result<bool, DataProblem> {
        let mut are_ones = true;
        let all = self.read(key, ANY, "numbers", |_, number| {
            are_ones &= wide(number) == 1.0;
            Ok(())
        });
        all.map(|_: Values<()>| are_ones)
    }

    /// Numbers of any kind that are finite as floats, or NaN.
    fn floats_or_nan(&mut self, key: &str) -> Result<Values<f32>, DataProblem> {
        let any = [Kind::Bool, Kind::Signed, Kind::Unsigned, Kind::Float];
        self.read(key, &any, "numbers", |index, number| {
            let value = match number {
                Number::Float(value) => value as f32,
                Number::Signed(value) => value as f32,
                Number::Unsigned(value) => value as f32,
            };
            match value.is_infinite() {
                true => Err(DataProblem::value(
                    key,
                    index,
                    value,
                    "which is not finite as a float",
                )),
                false => Ok(value),
            }
        })
    }

    /// One whole number from 0, by itself or as an array of one.
    fn count(&mut self, key: &str) -> Result<u64, DataProblem> {
        let Values { shape, values } = self.counts(key)?;
        match values[..] {
            [count] => Ok(count),
            _ => Err(DataProblem::shape(key, &shape, "(), one number")),
        }
    }

    /// Truths, or numbers that are 0 or 1.
    fn mask(&mut self, key: &str) -> Result<Values<bool>, DataProblem> {
        self.read(key, ANY, "truths", |index, number| match wide(number) {
            0.0 => Ok(false),
            1.0 => Ok(true),
            _ => {
                let why = "which is neither 0 nor 1";
                Err(DataProblem::value(key, index, shown(number), why))
            }
        })
    }

    /// A shape that stands in an array of its own.
    fn shape(&mut self, key: &str) -> Result<[u64; 2], DataProblem> {
        let shape = self.counts(key)?.line(key)?;
        let len = [shape.len() as u64];
        shape
            .try_into()
            .map_err(|_| DataProblem::shape(key, &len, "(2), rows and columns"))
    }
}

const WHOLE: &[Kind] = &[Kind::Signed, Kind::Unsigned];
const ANY: &[Kind] = &[Kind::Bool, Kind::Signed, Kind::Unsigned, Kind::Float];

/// A number as one of `limit` of `what`.
fn id(
    key: &str,
    (limit, what): (u64, &str),
    index: u64,
    number: Number,
) -> Result<u32, DataProblem> {
    let refuse = |value: &dyn ToString| {
        let why = format!("but there are {limit} {what}, numbered from 0");
        DataProblem::value(key, index, value.to_string(), why)
    };
    let id = whole(number).map_err(|value| refuse(&value))?;
    let small = u32::try_from(id).ok().filter(|_| id < limit);
    small.ok_or_else(|| refuse(&id))
}

/// A number as a float, which is finite.
fn float(key: &str, index: u64, number: Number) -> Result<f32, DataProblem> {
    let value = match number {
        Number::Float(value) => value as f32,
        Number::Signed(value) => value as f32,
        Number::Unsigned(value) => value as f32,
    };
    match number {
        Number::Float(wide) if !value.is_finite() => {
            Err(DataProblem::value(key, index, wide, NO_FLOAT))
        }
        _ => Ok(value),
    }
}

/// A problem with a value of a matrix, with its row and column.
pub(super) fn placed(problem: DataProblem, shape: &[u64], fortran_order: bool) -> DataProblem {
    match (problem, shape) {
        (
            DataProblem::Value {
                key,
                index,
                value,
                why,
            },
            &[rows, columns],
        ) if columns > 1 => {
            let place = match fortran_order {
                true => [index % rows, index / rows],
                false => [index / columns, index % columns],
            };
            in_place(key, index, value, place, &why)
        }
        (problem, _) => problem,
    }
}

/// A problem with the value of a row and a column.
pub(super) fn in_place(
    key: String,
    index: u64,
    value: String,
    [row, column]: [u64; 2],
    why: &str,
) -> DataProblem {
    let why = format!("in row {row}, column {column} (from 0), {why}");
    DataProblem::Value {
        key,
        index,
        value,
        why,
    }
}

/// A number as a double.
fn wide(number: Number) -> f64 {
    match number {
        Number::Unsigned(value) => value as f64,
        Number::Signed(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// A number as a person reads it.
fn shown(number: Number) -> String {
    match number {
        Number::Unsigned(value) => value.to_string(),
        Number::Signed(value) => value.to_string(),
        Number::Float(value) => value.to_string(),
    }
}

/// A number as a whole number from 0, or the number as it was.
fn whole(number: Number) -> Result<u64, String> {
    match number {
        Number::Unsigned(value) => Ok(value),
        Number::Signed(value) => u64::try_from(value).map_err(|_| value.to_string()),
        Number::Float(value) => Err(value.to_string()),
    }
}

/// That an array has the length that another asks of it.
pub(crate) fn expect_len(
    key: &str,
    len: usize,
    wanted: usize,
    why: &str,
) -> Result<(), DataProblem> {
    if len == wanted {
        Ok(())
    } else {
        let wanted = format!("({wanted}), {why}");
        Err(DataProblem::shape(key, &[len as u64], wanted))
    }
}

impl<T> Values<T> {
    /// The elements of an array of one dimension; (n, 1) will do.
    pub fn line(self, key: &str) -> Result<Vec<T>, DataProblem> {
        match self.shape[..] {
            [_] | [_, 1] => Ok(self.values),
            _ => Err(DataProblem::shape(key, &self.shape, "one dimension")),
        }
    }
}
