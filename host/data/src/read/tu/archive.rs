//! The archive as the site ships it.

use super::{Collection, name_of};
use crate::error::{DataError, DataProblem};
use crate::input::{Input, Silent};
use crate::read::npz::check_claim;
use std::io::{BufReader, Cursor, Read};
use zip::ZipArchive;

/// Whether an archive with such members has a collection in it.
pub(crate) fn recognises<'a>(mut members: impl Iterator<Item = &'a str>) -> bool {
    members.any(|member| name_of(member).is_some())
}

/// An archive, and the path of a collection in it, to which `_A.txt` is added.
pub(crate) struct InArchive<'a> {
    archive: ZipArchive<BufReader<Input<'a>>>,
    bytes: u64,
    prefix: String,
}

fn broken(reason: impl ToString) -> DataProblem {
    let reason = reason.to_string();
    DataProblem::Archive { reason }
}

impl<'a> InArchive<'a> {
    pub fn open(input: Input<'a>) -> Result<Self, DataProblem> {
        let bytes = input.len();
        let archive = ZipArchive::new(BufReader::new(input)).map_err(broken)?;
        let members: Vec<String> = archive.file_names().flatten().map(String::from).collect();
        let mut prefixes: Vec<&str> = members
            .iter()
            .filter_map(|member| member.strip_suffix(super::INDICATOR))
            .filter(|prefix| {
                !prefix
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .starts_with('.')
            })
            .collect();
        prefixes.sort_unstable();
        match prefixes[..] {
            [prefix] => Ok(Self {
                prefix: prefix.into(),
                archive,
                bytes,
            }),
            [] => Err(broken("it has no …_graph_indicator.txt")),
            [first, second, ..] => Err(broken(format!(
                "it has several collections, such as {first} and {second}; unpack it, and name the folder of one"
            ))),
        }
    }

    fn member(&self, file: &str) -> String {
        format!("{}_{file}.txt", self.prefix)
    }

    fn unpacked(&mut self, file: &str) -> Result<Vec<u8>, DataProblem> {
        let (member, bytes) = (self.member(file), self.bytes);
        if self.archive.index_for_name(&member).is_none() {
            return Err(broken(format!("it has no {member}")));
        }
        let mut entry = self.archive.by_name(&member).map_err(broken)?;
        let (packed, unpacked) = (entry.entry().compressed_size(), entry.entry().size());
        check_claim(&member, bytes, packed, unpacked)?;
        let mut text = DataProblem::with_capacity(&member, unpacked)?;
        let most = unpacked.saturating_add(1);
        let read = (&mut entry).take(most).read_to_end(&mut text);
        read.map_err(|error| broken(format!("{member}: {error}")))?;
        match text.len() as u64 == unpacked {
            true => Ok(text),
            false => Err(broken(format!(
                "{member} is not of the length that its directory says"
            ))),
        }
    }
}

impl Collection for InArchive<'_> {
    fn has(&self, file: &str) -> bool {
        self.archive.index_for_name(&self.member(file)).is_some()
    }

    fn read<T>(
        &mut self,
        file: &str,
        read: impl FnOnce(Input<'_>) -> Result<T, DataProblem>,
    ) -> Result<T, DataError> {
        let text = self.unpacked(file);
        let member = self.member(file);
        text.and_then(|text| read(Input::new(Cursor::new(text), &Silent)?))
            .map_err(|problem| DataError::new(member, problem))
    }

    fn problem(&self, file: &str, problem: DataProblem) -> DataError {
        DataError::new(self.member(file), problem)
    }
}
