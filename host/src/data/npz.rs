//! numpy's archives (`.npz`): a zip file of arrays, each named by its key.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::read::ZipFile;

use super::error::DataProblem;
use super::npy::{Dtype, Header, Kind, Number};

/// The most that deflate can shrink data, 1032 to 1 (zlib, "Technical details"); what claims more is lying.
const MAX_RATIO: u64 = 1032;

/// The arrays of an archive, each read when it is asked for.
pub(crate) struct Npz {
    archive: ZipArchive<BufReader<File>>,
    /// The bytes of the whole file.
    bytes: u64,
}

/// An array: its shape, and its elements with the last index changing fastest.
#[derive(Debug, PartialEq)]
pub(crate) struct Values<T> {
    pub shape: Vec<u64>,
    pub values: Vec<T>,
}

impl Npz {
    /// Whether a file that starts with `head` is a zip archive. An empty one starts differently.
    pub fn recognises(head: &[u8]) -> bool {
        head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
    }

    /// Opens an archive and reads its directory.
    pub fn open(path: &Path) -> Result<Self, DataProblem> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            archive: ZipArchive::new(BufReader::new(file)).map_err(broken)?,
            bytes,
        })
    }

    /// The keys.
    pub fn keys(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        let mut keys: Vec<_> = names
            .map(|name| name.strip_suffix(".npy").unwrap_or(&name).to_string())
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
                Number::Float(wide) => Err(DataProblem::value(
                    key,
                    index,
                    wide,
                    "which is no finite float",
                )),
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

        let mut values = Vec::with_capacity(len as usize);
        let io = |error: std::io::Error| DataProblem::Archive {
            reason: format!("{key}: {error}"),
        };
        dtype.for_each(&mut entry, len, io, |index, number| {
            values.push(convert(index, number)?);
            Ok(())
        })?;
        // The checksum is compared at the end, which is reached by reading past the last element.
        if entry.read(&mut [0]).map_err(io)? > 0 {
            return Err(DataProblem::Archive {
                reason: format!("{key} is longer than its directory says"),
            });
        }
        if header.fortran_order && header.shape.len() > 1 && !values.is_empty() {
            values = first_index_slowest(&header, &values)?;
        }
        Ok(Values {
            shape: header.shape,
            values,
        })
    }

    fn entry(&mut self, key: &str) -> Result<ZipFile<'_, BufReader<File>>, DataProblem> {
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
fn first_index_slowest<T: Copy>(header: &Header, values: &[T]) -> Result<Vec<T>, DataProblem> {
    let [rows, columns] = header.shape[..] else {
        return Err(DataProblem::shape(
            "array",
            &header.shape,
            "at most two dimensions in Fortran order",
        ));
    };
    let (rows, columns) = (rows as usize, columns as usize);
    Ok((0..rows)
        .flat_map(|row| (0..columns).map(move |column| values[column * rows + row]))
        .collect())
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

impl<T> Values<T> {
    /// The elements of an array of one dimension; (n, 1) will do.
    pub fn line(self, key: &str) -> Result<Vec<T>, DataProblem> {
        match self.shape[..] {
            [_] | [_, 1] => Ok(self.values),
            _ => Err(DataProblem::shape(key, &self.shape, "one dimension")),
        }
    }
}
