//! Stored results: `index.txt`, a line for each case, and `results.zlib`, the bytes of all of them one after the other.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const INDEX: &str = "index.txt";
const RESULTS: &str = "results.zlib";

const HEAD: &str = "# What `record_hardware` measured. After the device: fingerprint of kernel and operands, bytes, case.\n\
                    # The bytes stand in results.zlib in this order.\n";

/// More than any recording has.
const MAX_BYTES: u64 = 64 << 20;

/// Where the results are kept in the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/hardware")
}

/// The results of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// [`Case::name`](super::Case::name).
    pub name: String,
    /// [`Case::fingerprint`](super::Case::fingerprint).
    pub fingerprint: u64,
    /// What the kernel wrote.
    pub bytes: Vec<u8>,
}

/// All results of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The card and its driver.
    pub device: String,
    /// By the name of the case.
    pub records: HashMap<String, Record>,
}

/// Writes both files into `folder`, which is made if it is not there.
///
/// # Errors
/// Those of the file system.
pub fn write(folder: &Path, device: &str, records: &[Record]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut index = format!("{HEAD}{device}\n");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for record in records {
        index += &format!(
            "{:016x} {} {}\n",
            record.fingerprint,
            record.bytes.len(),
            record.name
        );
        encoder.write_all(&record.bytes)?;
    }
    fs::write(folder.join(RESULTS), encoder.finish()?)?;
    fs::write(folder.join(INDEX), index)
}

/// Reads what [`write()`] wrote.
///
/// # Errors
/// A file that cannot be read, an index that is none, or results of another length than the index says.
pub fn read(folder: &Path) -> Result<Recording, String> {
    let path = folder.join(INDEX);
    let index = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let path_of_results = folder.join(RESULTS);
    let packed =
        fs::read(&path_of_results).map_err(|e| format!("{}: {e}", path_of_results.display()))?;
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed.as_slice())
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("{}: {e}", path_of_results.display()))?;
    let mut lines = index
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'));
    let device = lines
        .next()
        .map(|(_, line)| line.to_owned())
        .ok_or(format!("{}: it is empty", path.display()))?;
    let mut records = HashMap::new();
    let mut rest = bytes.as_slice();
    for (number, line) in lines {
        let parse = || {
            let (fingerprint, line) = line.split_once(' ')?;
            let (length, name) = line.split_once(' ')?;
            Some((
                u64::from_str_radix(fingerprint, 16).ok()?,
                length.parse::<usize>().ok()?,
                name,
            ))
        };
        let (fingerprint, length, name) = parse().ok_or(format!(
            "{}:{}: not a fingerprint, a length and a name",
            path.display(),
            number + 1
        ))?;
        let (bytes, after) = rest.split_at_checked(length).ok_or(format!(
            "{}: it ends inside the results of {name}",
            path_of_results.display()
        ))?;
        rest = after;
        let record = Record {
            name: name.to_owned(),
            fingerprint,
            bytes: bytes.to_vec(),
        };
        records.insert(name.to_owned(), record);
    }
    if !rest.is_empty() {
        return Err(format!(
            "{}: {} bytes belong to no case",
            path_of_results.display(),
            rest.len()
        ));
    }
    Ok(Recording { device, records })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("halfgnn-recording-{}", std::process::id()));
        let record = |name: &str, bytes: &[u8]| Record {
            name: name.into(),
            fingerprint: 7,
            bytes: bytes.into(),
        };
        let records = [
            record("a/with a space", &[1, 2, 3]),
            record("b", &[4; 1000]),
        ];
        write(&folder, "a GPU", &records).expect("a folder for temporary files");
        let read_back = read(&folder);
        let index = fs::read_to_string(folder.join(INDEX)).expect("the index");
        fs::write(folder.join(INDEX), index.replace("1000", "1001")).expect("the index again");
        let cut = read(&folder);
        fs::remove_dir_all(&folder).expect("the folder");
        let recording = read_back.expect("both files");
        assert_eq!(recording.device, "a GPU");
        assert_eq!(recording.records["a/with a space"], records[0]);
        assert_eq!(recording.records["b"], records[1]);
        assert!(
            cut.expect_err("one byte is missing")
                .ends_with("inside the results of b")
        );
    }
}
