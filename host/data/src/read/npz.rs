//! numpy's archives (`.npz`): a zip file of arrays, each named by its key.

use std::io::{BufReader, Read};

use zip::ZipArchive;
use zip::read::ZipFile;

use super::npy::{Dtype, Header, Kind, Number};
use crate::UNLABELLED;
use crate::error::DataProblem;
use crate::input::Input;

/// The most that deflate can shrink data, 1032 to 1 (zlib, "Technical details"); what claims more is lying.
const MAX_RATIO: u64 = 1032;

/// Why a number is none, and what to do.
const NO_FLOAT: &str =
    "which is no finite float; put a number in its place, as numpy.nan_to_num does";

/// The arrays of an archive, each read when it is asked for.
pub(crate) struct Npz<'a> {
    archive: ZipArchive<BufReader<Input<'a>>>,
    /// The bytes of the whole file.
    bytes: u64,
}

/// An array: its shape, and its elements with the last index changing fastest.
#[derive(Debug, PartialEq)]
pub(crate) struct Values<T> {
    pub shape: Vec<u64>,
    pub values: Vec<T>,
}

impl<'a> Npz<'a> {
    /// Whether a file that starts with `head` is a zip archive. An empty one starts differently.
    pub fn recognises(head: &[u8]) -> bool {
        head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
    }

    /// Reads the directory of an archive.
    pub fn open(input: Input<'a>) -> Result<Self, DataProblem> {
        let bytes = input.len();
        if bytes == 0 {
            return Err(DataProblem::Empty);
        }
        let reader = BufReader::with_capacity(1 << 16, input);
        Ok(Self {
            archive: ZipArchive::new(reader).map_err(broken)?,
            bytes,
        })
    }

    /// The most vertices that an archive of this size may claim to have, where it lists edges only.
    pub fn most_vertices(&self) -> u64 {
        self.bytes.saturating_mul(32).max(1 << 20)
    }

    /// The keys, as an error can show them: a name may hold anything, line ends included.
    pub fn keys(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        let mut keys: Vec<_> = names
            .map(|name| {
                name.strip_suffix(".npy")
                    .unwrap_or(&name)
                    .escape_debug()
                    .to_string()
            })
            .collect();
        keys.sort();
        keys
    }

    /// Whether there is an array `key`.
    pub fn has(&self, key: &str) -> bool {
        self.archive.index_for_name(&format!("{key}.npy")).is_some()
    }

    /// Whole numbers below `limit`, which is the number of `what`.
    pub fn ids(&mut self, key: &str, limit: u64, what: &str) -> Result<Values<u32>, DataProblem> {
        let refuse = |index, value: &dyn ToString| {
            let why = format!("but there are {limit} {what}, numbered from 0");
            DataProblem::value(key, index, value.to_string(), why)
        };
        self.read(
            key,
            &[Kind::Signed, Kind::Unsigned],
            "whole numbers",
            |index, number| {
                let id = whole(number).map_err(|value| refuse(index, &value))?;
                u32::try_from(id)
                    .ok()
                    .filter(|_| id < limit)
                    .ok_or_else(|| refuse(index, &id))
            },
        )
    }

    /// Labels below `limit`, and -1 for none.
    pub fn labels(&mut self, key: &str, limit: u32) -> Result<Values<u32>, DataProblem> {
        let kinds = [Kind::Signed, Kind::Unsigned];
        self.read(key, &kinds, "whole numbers", |index, number| {
            let label = match number {
                Number::Signed(-1) => return Ok(UNLABELLED),
                other => whole(other),
            };
            let fits = |label: &u64| *label < limit.into();
            label
                .as_ref()
                .ok()
                .filter(|label| fits(label))
                .map(|&label| label as u32)
                .ok_or_else(|| {
                    let shown = label.map_or_else(|text| text, |label| label.to_string());
                    let why = format!(
                        "but there are {limit} classes at most, numbered from 0 (-1 for none)"
                    );
                    DataProblem::value(key, index, shown, why)
                })
        })
    }

    /// Whole numbers from 0.
    pub fn counts(&mut self, key: &str) -> Result<Values<u64>, DataProblem> {
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
    pub fn floats(&mut self, key: &str) -> Result<Values<f32>, DataProblem> {
        let any = [Kind::Bool, Kind::Signed, Kind::Unsigned, Kind::Float];
        self.read(key, &any, "numbers", |index, number| {
            let value = match number {
                Number::Float(value) => value as f32,
                Number::Signed(value) => value as f32,
                Number::Unsigned(value) => value as f32,
            };
            match number {
                _ if value.is_finite() => Ok(value),
                Number::Float(wide) => Err(DataProblem::value(key, index, wide, NO_FLOAT)),
                _ => Ok(value),
            }
        })
    }

    /// Truths, or numbers that are 0 or 1.
    pub fn mask(&mut self, key: &str) -> Result<Values<bool>, DataProblem> {
        let kinds = [Kind::Bool, Kind::Signed, Kind::Unsigned];
        self.read(key, &kinds, "truths", |index, number| match whole(number) {
            Ok(bit @ (0 | 1)) => Ok(bit == 1),
            Ok(value) => Err(DataProblem::value(
                key,
                index,
                value,
                "which is neither 0 nor 1",
            )),
            Err(value) => Err(DataProblem::value(
                key,
                index,
                value,
                "which is neither 0 nor 1",
            )),
        })
    }

    /// A short text, as numpy stores a string of Python's.
    pub fn word(&mut self, key: &str) -> Result<String, DataProblem> {
        const LONGEST: usize = 64;
        let mut entry = self.entry(key)?;
        let header = Header::read(&mut entry).map_err(|reason| DataProblem::Header {
            key: key.into(),
            reason,
        })?;
        // '|S3' has a byte for each letter, '<U3' four.
        let (kind, letters) = header.descr.split_at_checked(2).unwrap_or_default();
        let width = match kind {
            "|S" => 1,
            "<U" | ">U" => 4,
            _ => 0,
        };
        let letters = letters
            .parse()
            .ok()
            .filter(|&letters: &usize| letters <= LONGEST);
        let (Some(letters), 1 | 4) = (letters, width) else {
            return Err(DataProblem::Dtype {
                key: key.into(),
                dtype: header.descr,
                wanted: "letters of a short word",
            });
        };
        if header.len() != Some(1) {
            return Err(DataProblem::shape(key, &header.shape, "(), one word"));
        }
        let mut bytes = vec![0; letters * width];
        entry
            .read_exact(&mut bytes)
            .map_err(|error| DataProblem::Archive {
                reason: format!("{key}: {error}"),
            })?;
        // Letters of ASCII are the only bytes that are not zero, in either order of bytes.
        bytes.retain(|&byte| byte != 0);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A shape that stands in an array of its own.
    pub fn shape(&mut self, key: &str) -> Result<[u64; 2], DataProblem> {
        let shape = self.counts(key)?.line(key)?;
        let len = [shape.len() as u64];
        shape
            .try_into()
            .map_err(|_| DataProblem::shape(key, &len, "(2), rows and columns"))
    }

    /// An array whose type is one of `kinds`, each element by way of `convert`.
    fn read<T: Copy>(
        &mut self,
        key: &str,
        kinds: &[Kind],
        wanted: &'static str,
        mut convert: impl FnMut(u64, Number) -> Result<T, DataProblem>,
    ) -> Result<Values<T>, DataProblem> {
        let bytes = self.bytes;
        let mut entry = self.entry(key)?;
        // What the archive's directory claims must be possible before anything is made of its size.
        let (packed, unpacked) = (entry.entry().compressed_size(), entry.entry().size());
        if packed > bytes || unpacked > packed.saturating_mul(MAX_RATIO).saturating_add(1024) {
            let reason =
                format!("{key} claims {unpacked} bytes packed as {packed}, in a file of {bytes}");
            return Err(DataProblem::Archive { reason });
        }
        let header = Header::read(&mut entry).map_err(|reason| DataProblem::Header {
            key: key.into(),
            reason,
        })?;
        let dtype = header
            .dtype
            .filter(|dtype| kinds.contains(&dtype.kind))
            .ok_or_else(|| DataProblem::Dtype {
                key: key.into(),
                dtype: header.descr.clone(),
                wanted,
            })?;
        let len = check_size(key, &header, dtype, unpacked)?;

        let mut values = DataProblem::room(key, len)?;
        let io = |error: std::io::Error| DataProblem::Archive {
            reason: format!("{key}: {error}"),
        };
        dtype.for_each(&mut entry, len, io, |index, number| {
            values.push(convert(index, number).map_err(|problem| placed(problem, &header))?);
            Ok(())
        })?;
        // The checksum is compared at the end, which is reached by reading past the last element.
        if entry.read(&mut [0]).map_err(io)? > 0 {
            return Err(DataProblem::Archive {
                reason: format!("{key} is longer than its directory says"),
            });
        }
        if header.fortran_order && header.shape.len() > 1 && !values.is_empty() {
            values = first_index_slowest(key, &header, &values)?;
        }
        Ok(Values {
            shape: header.shape,
            values,
        })
    }

    fn entry(&mut self, key: &str) -> Result<ZipFile<'_, BufReader<Input<'a>>>, DataProblem> {
        if !self.has(key) {
            let keys = self.keys();
            let present = if keys.is_empty() {
                "no array at all".into()
            } else {
                keys.join(", ")
            };
            return Err(DataProblem::MissingKey {
                key: key.into(),
                present,
            });
        }
        self.archive.by_name(&format!("{key}.npy")).map_err(broken)
    }
}

/// That the archive's entry is as long as its header says; the number of elements.
fn check_size(key: &str, header: &Header, dtype: Dtype, unpacked: u64) -> Result<u64, DataProblem> {
    let held = unpacked.saturating_sub(header.bytes);
    let promised = header
        .len()
        .and_then(|len| len.checked_mul(dtype.size as u64));
    if promised != Some(held) {
        let promised =
            promised.map_or("more than can be counted".into(), |bytes| bytes.to_string());
        return Err(DataProblem::Size {
            key: key.into(),
            promised,
            held,
        });
    }
    Ok(held / dtype.size as u64)
}

/// The elements of a matrix in Fortran's order, in C's.
fn first_index_slowest<T: Copy>(
    key: &str,
    header: &Header,
    values: &[T],
) -> Result<Vec<T>, DataProblem> {
    let [rows, columns] = header.shape[..] else {
        return Err(DataProblem::shape(
            key,
            &header.shape,
            "at most two dimensions in Fortran order",
        ));
    };
    let (rows, columns) = (rows as usize, columns as usize);
    let mut turned = DataProblem::room(key, values.len() as u64)?;
    turned.extend(
        (0..rows).flat_map(|row| (0..columns).map(move |column| values[column * rows + row])),
    );
    Ok(turned)
}

/// A problem with a value of a matrix, with its row and column.
fn placed(problem: DataProblem, header: &Header) -> DataProblem {
    match (problem, &header.shape[..]) {
        (
            DataProblem::Value {
                key,
                index,
                value,
                why,
            },
            &[rows, columns],
        ) if columns > 1 => {
            let place = match header.fortran_order {
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

/// A number as a whole number from 0, or the number as it was.
fn whole(number: Number) -> Result<u64, String> {
    match number {
        Number::Unsigned(value) => Ok(value),
        Number::Signed(value) => u64::try_from(value).map_err(|_| value.to_string()),
        Number::Float(value) => Err(value.to_string()),
    }
}

fn broken(error: impl ToString) -> DataProblem {
    DataProblem::Archive {
        reason: error.to_string(),
    }
}

/// That an array has the length that another asks of it.
pub(super) fn expect_len(
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
