//! Files for tests, written as numpy writes them.

use std::io::Write;
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An array to be written: `descr` and `shape` as numpy has them, and the bytes of the data.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub descr: &'static str,
    pub fortran_order: bool,
    pub shape: Vec<u64>,
    pub data: Vec<u8>,
}

impl Array {
    fn of(descr: &'static str, len: usize, data: Vec<u8>) -> Self {
        Self {
            descr,
            fortran_order: false,
            shape: vec![len as u64],
            data,
        }
    }

    pub fn i32(values: &[i32]) -> Self {
        Self::of(
            "<i4",
            values.len(),
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }

    pub fn i64(values: &[i64]) -> Self {
        Self::of(
            "<i8",
            values.len(),
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }

    pub fn f32(values: &[f32]) -> Self {
        Self::of(
            "<f4",
            values.len(),
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        )
    }

    pub fn bool(values: &[bool]) -> Self {
        Self::of(
            "|b1",
            values.len(),
            values.iter().map(|&value| value.into()).collect(),
        )
    }

    pub fn shaped(self, shape: &[u64]) -> Self {
        Self {
            shape: shape.to_vec(),
            ..self
        }
    }

    /// The `.npy` file, of version 1.0, its data aligned to 64 bytes.
    pub fn npy(&self) -> Vec<u8> {
        let sides: String = self.shape.iter().map(|side| format!("{side}, ")).collect();
        let shape = if self.shape.len() == 1 {
            sides.trim_end()
        } else {
            sides.trim_end_matches(", ")
        };
        let order = if self.fortran_order { "True" } else { "False" };
        let descr = if self.descr.starts_with('[') {
            self.descr.into()
        } else {
            format!("'{}'", self.descr)
        };
        let mut text =
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': ({shape}), }}");
        let padding = 64 - (10 + text.len() + 1) % 64;
        text.extend(std::iter::repeat_n(' ', padding % 64));
        text.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(&self.data);
        bytes
    }
}

/// An archive of raw entries, as `np.savez_compressed` writes it, or `np.savez` where it is not `compressed`.
pub(super) fn archive(entries: &[(&str, Vec<u8>)], compressed: bool) -> Vec<u8> {
    let method = if compressed {
        CompressionMethod::Deflated
    } else {
        CompressionMethod::Stored
    };
    let options = SimpleFileOptions::default().compression_method(method);
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (key, bytes) in entries {
        zip.start_file(format!("{key}.npy"), options)
            .expect("an entry starts");
        zip.write_all(bytes).expect("an entry is written");
    }
    zip.finish().expect("the archive ends").into_inner()
}

/// A folder of its own for the files of one test, gone afterwards.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("a file in a temporary folder");
        path
    }
}

/// Bytes as `gzip` packs them.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).expect("memory takes bytes");
    packed.finish().expect("the stream ends")
}
