//! Files with graphs, features and labels.

use crate::Answer;
use halfgnn::data::{DataError, Dataset};
use std::io::Write as _;

/// gnn-benchmark's archive: as it is, and with checksums that fit, behind which the arrays are looked at.
pub(crate) fn npz(bytes: &[u8]) -> Answer {
    let answer = open(bytes, ".npz");
    let mut mended = bytes.to_vec();
    match mend_checksums(&mut mended) {
        true => open(&mended, ".npz"),
        false => answer,
    }
}

/// PyG's arrays in an archive, as the other.
pub(crate) fn pyg(bytes: &[u8]) -> Answer {
    npz(bytes)
}

/// A file of torch's: as it is, and with checksums that fit.
pub(crate) fn torch(bytes: &[u8]) -> Answer {
    let answer = open(bytes, ".pt");
    let mut mended = bytes.to_vec();
    match mend_checksums(&mut mended) {
        true => open(&mended, ".pt"),
        false => answer,
    }
}

/// Puts the checksums of an archive's uncompressed members right, in the members' headers and in the directory: whether
/// any was wrong.
pub(crate) fn mend_checksums(zip: &mut [u8]) -> bool {
    const MEMBER: &[u8] = b"PK\x03\x04";
    const DIRECTORY: &[u8] = b"PK\x01\x02";
    let word = |zip: &[u8], at: usize, bytes: usize| {
        let word = zip.get(at..at + bytes)?;
        Some(
            word.iter()
                .rev()
                .fold(0, |value, byte| value << 8 | usize::from(*byte)),
        )
    };
    let mut sums = Vec::new();
    for at in 0..zip.len() {
        // Fields by their offsets in APPNOTE.TXT 4.3.7 and 4.3.12.
        if zip[at..].starts_with(MEMBER) {
            let field = |offset, bytes| word(zip, at + offset, bytes);
            let entry = (at..zip.len())
                .find(|&d| zip[d..].starts_with(DIRECTORY) && word(zip, d + 42, 4) == Some(at));
            // Torch's members have their size behind their data; the directory has it in any case.
            let size = match field(18, 4) {
                Some(0) => entry.and_then(|entry| word(zip, entry + 20, 4)),
                told => told,
            };
            let (Some(0), Some(size)) = (field(8, 2), size) else {
                continue;
            };
            let (Some(name), Some(extra)) = (field(26, 2), field(28, 2)) else {
                continue;
            };
            let from = at + 30 + name + extra;
            if let Some(data) = zip.get(from..from.saturating_add(size)) {
                let sum = crc32fast::hash(data).to_le_bytes();
                sums.push((at + 14, sum));
                sums.extend(entry.map(|entry| (entry + 16, sum)));
            }
        }
    }
    let mut wrong = false;
    for (at, sum) in sums {
        if let Some(field) = zip.get_mut(at..at + 4) {
            wrong |= field != sum;
            field.copy_from_slice(&sum);
        }
    }
    wrong
}

/// Opens a file with these bytes as a data set.
fn open(bytes: &[u8], suffix: &str) -> Answer {
    let mut file = tempfile::Builder::new()
        .suffix(suffix)
        .tempfile()
        .expect("room for a temporary file");
    file.write_all(bytes).expect("room for the input");
    match Dataset::open(file.path()) {
        Ok(data) => Answer::Accepted(format!("{} classes", data.outputs.min(3))),
        Err(error) => Answer::Refused(kind_of(&error)),
    }
}

pub(crate) fn kind_of(error: &DataError) -> String {
    kind_of_text(&error.to_string())
}

/// The kind of mistake that an error names: its words behind the file's name, up to the first figure.
pub(crate) fn kind_of_text(shown: &str) -> String {
    assert!(
        !shown.contains(char::is_control) && shown.len() < 8000,
        "an error of one line: {shown:?}"
    );
    let problem = shown.split_once(": ").map_or(shown, |(_, rest)| rest);
    problem
        .split(|c: char| c.is_ascii_digit())
        .next()
        .unwrap_or_default()
        .to_owned()
}
