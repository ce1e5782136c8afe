//! numpy's archives (`.npz`): a zip file of arrays, each named by its key.

use std::io::{BufReader, Read};

use zip::ZipArchive;
use zip::read::ZipFile;

use super::arrays::{Arrays, Values, placed};
use super::npy::{Dtype, Header, Kind, Number};
use crate::error::DataProblem;
use crate::input::Input;

/// The most that deflate can shrink data, 1032 to 1 (zlib, "Technical details"); what claims more is lying.
const MAX_RATIO: u64 = 1032;

/// The arrays of an archive, each read when it is asked for.
pub(crate) struct Npz<'a> {
    archive: ZipArchive<BufReader<Input<'a>>>,
    /// The bytes of the whole file.
    bytes: u64,
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

    /// The names of the members, as they are.
    pub fn members(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        names.map(String::from).collect()
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

    /// Whether the first index of an array changes fastest, which matters where there are two.
    pub fn is_fortran(&mut self, key: &str) -> Result<bool, DataProblem> {
        let header = Header::read(&mut self.entry(key)?).map_err(|reason| DataProblem::Header {
            key: key.into(),
            reason,
        })?;
        Ok(header.fortran_order && header.shape.len() > 1)
    }

    fn entry(&mut self, key: &str) -> Result<ZipFile<'_, BufReader<Input<'a>>>, DataProblem> {
        if !self.has(key) {
            return Err(self.missing(key));
        }
        self.archive.by_name(&format!("{key}.npy")).map_err(broken)
    }
}

impl Arrays for Npz<'_> {
    fn most_vertices(&self) -> u64 {
        most_vertices(self.bytes)
    }

    fn keys(&self) -> Vec<String> {
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

    fn has(&self, key: &str) -> bool {
        self.archive.index_for_name(&format!("{key}.npy")).is_some()
    }

    fn kind(&mut self, key: &str) -> Result<(Kind, Vec<u64>), DataProblem> {
        let header = Header::read(&mut self.entry(key)?).map_err(|reason| DataProblem::Header {
            key: key.into(),
            reason,
        })?;
        match header.dtype {
            Some(dtype) => Ok((dtype.kind, header.shape)),
            None => Err(DataProblem::Dtype {
                key: key.into(),
                dtype: header.descr,
                wanted: "numbers",
            }),
        }
    }

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
        check_claim(key, bytes, packed, unpacked)?;
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

        let mut values = DataProblem::with_capacity(key, len)?;
        let io = |error: std::io::Error| DataProblem::Archive {
            reason: format!("{key}: {error}"),
        };
        dtype.for_each(&mut entry, len, io, |index, number| {
            values.push(
                convert(index, number)
                    .map_err(|problem| placed(problem, &header.shape, header.fortran_order))?,
            );
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
}

/// The most vertices that an archive of `bytes` bytes may claim to have, where it lists edges only.
pub(super) fn most_vertices(bytes: u64) -> u64 {
    bytes.saturating_mul(32).max(1 << 20)
}

/// That a member can be as long as the directory of its archive, of `bytes`, says.
pub(super) fn check_claim(
    key: &str,
    bytes: u64,
    packed: u64,
    unpacked: u64,
) -> Result<(), DataProblem> {
    if packed <= bytes && unpacked <= packed.saturating_mul(MAX_RATIO).saturating_add(1024) {
        return Ok(());
    }
    let reason = format!("{key} claims {unpacked} bytes packed as {packed}, in a file of {bytes}");
    Err(DataProblem::Archive { reason })
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
    let mut turned = DataProblem::with_capacity(key, values.len() as u64)?;
    turned.extend(
        (0..rows).flat_map(|row| (0..columns).map(move |column| values[column * rows + row])),
    );
    Ok(turned)
}

fn broken(error: impl ToString) -> DataProblem {
    DataProblem::Archive {
        reason: error.to_string(),
    }
}
