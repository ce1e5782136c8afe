//! torch's own files (`torch.save`, `.pt`): a zip of a pickle, `data.pkl`, and of the storages of its tensors, `data/0`, `data/1`, …
//!
//! Of the pickle nothing is executed: what would be called to make a tensor says type, shape and strides, and that is all that is
//! wanted. Read are PyG's `Data` objects, dictionaries of tensors, and what PyG keeps of a dataset of one graph
//! (`processed/data.pt`), a tuple whose first item is one of these. What the tensors mean is in [`pyg`](super::pyg).

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use half::bf16;
use zip::ZipArchive;

use super::arrays::{Arrays, Values, placed};
use super::npy::{Dtype, Kind, Number};
use super::npz::{check_claim, most_vertices};
use super::pickle::{Pickle, Value};
use crate::error::DataProblem;
use crate::input::Input;

/// The end of the name of the member that has the pickle.
const PICKLE: &str = "/data.pkl";

/// What files of before 1.6 begin with, a pickle of a number that stands for torch.
pub(crate) const OLD_MAGIC: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19";

/// A file, whose tensors are read when they are asked for.
pub(crate) struct Torch<'a> {
    archive: ZipArchive<BufReader<Input<'a>>>,
    bytes: u64,
    prefix: String,
    entries: BTreeMap<String, Entry>,
}

/// What stands under a name.
#[derive(Debug, Clone)]
enum Entry {
    Tensor(Tensor),
    Number(i64),
    /// Neither; what it is.
    Other(String),
}

/// Where a tensor lies.
#[derive(Debug, Clone)]
struct Tensor {
    storage: String,
    element: Element,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

/// The type of the numbers of a storage.
#[derive(Debug, Clone, Copy)]
enum Element {
    Numpy(Dtype),
    BFloat16,
}

impl Element {
    /// That of a class of torch's.
    fn of(class: &str) -> Option<Self> {
        let descr = match class {
            "BFloat16Storage" => return Some(Self::BFloat16),
            "DoubleStorage" => "<f8",
            "FloatStorage" => "<f4",
            "HalfStorage" => "<f2",
            "LongStorage" => "<i8",
            "IntStorage" => "<i4",
            "ShortStorage" => "<i2",
            "CharStorage" => "|i1",
            "ByteStorage" => "|u1",
            "BoolStorage" => "|b1",
            _ => return None,
        };
        Dtype::parse(descr).map(Self::Numpy)
    }

    fn kind(self) -> Kind {
        match self {
            Self::Numpy(dtype) => dtype.kind,
            Self::BFloat16 => Kind::Float,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Numpy(dtype) => dtype.size,
            Self::BFloat16 => 2,
        }
    }

    fn number(self, bytes: &[u8]) -> Number {
        match self {
            Self::Numpy(dtype) => dtype.number(bytes),
            Self::BFloat16 => Number::Float(bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64()),
        }
    }
}

/// Whether the members of an archive are those of torch's.
pub(crate) fn recognises<'n>(mut members: impl Iterator<Item = &'n str>) -> bool {
    members.any(|name| name.ends_with(PICKLE))
}

impl<'a> Torch<'a> {
    /// Reads the pickle.
    pub fn open(input: Input<'a>) -> Result<Self, DataProblem> {
        let bytes = input.len();
        if bytes == 0 {
            return Err(DataProblem::Empty);
        }
        let reader = BufReader::with_capacity(1 << 16, input);
        let archive = ZipArchive::new(reader).map_err(broken)?;
        let names: Vec<_> = archive.file_names().flatten().map(String::from).collect();
        let prefix = names.iter().find_map(|name| name.strip_suffix(PICKLE));
        let Some(prefix) = prefix.map(String::from) else {
            return Err(refuse("it has no member data.pkl; save it by torch.save"));
        };
        let mut torch = Self {
            archive,
            bytes,
            prefix,
            entries: BTreeMap::new(),
        };
        if names.contains(&format!("{}/byteorder", torch.prefix))
            && torch.member("byteorder")? == b"big"
        {
            return Err(refuse(
                "its numbers begin with their highest byte; save it on another machine",
            ));
        }
        let pickle = torch.member("data.pkl")?;
        let pickle = Pickle::read(&pickle).map_err(|reason| DataProblem::Pickle { reason })?;
        torch.entries = entries(&pickle)?;
        Ok(torch)
    }

    /// The bytes of a member.
    fn member(&mut self, name: &str) -> Result<Vec<u8>, DataProblem> {
        let name = format!("{}/{name}", self.prefix);
        let io = |error: std::io::Error| DataProblem::Archive {
            reason: format!("{}: {error}", name.escape_debug()),
        };
        let mut entry = self.archive.by_name(&name).map_err(broken)?;
        let (packed, unpacked) = (entry.entry().compressed_size(), entry.entry().size());
        check_claim(
            &name.escape_debug().to_string(),
            self.bytes,
            packed,
            unpacked,
        )?;
        let mut content = DataProblem::room(&name, unpacked)?;
        (&mut entry)
            .take(unpacked)
            .read_to_end(&mut content)
            .map_err(io)?;
        // The checksum is compared at the end, which is reached by reading past the last byte.
        if entry.read(&mut [0]).map_err(io)? > 0 || content.len() as u64 != unpacked {
            let reason = format!(
                "{} is longer or shorter than its directory says",
                name.escape_debug()
            );
            return Err(DataProblem::Archive { reason });
        }
        Ok(content)
    }

    fn entry(&self, key: &str) -> Result<Entry, DataProblem> {
        match self.entries.get(key) {
            None => Err(self.missing(key)),
            Some(Entry::Other(what)) => Err(refuse(format!(
                "{key} is {what}, where a dense tensor is wanted; save a dictionary of dense tensors, as {{'{key}': tensor, …}}"
            ))),
            Some(entry) => Ok(entry.clone()),
        }
    }
}

/// What is under the names of the object that was saved.
fn entries(pickle: &Pickle<'_>) -> Result<BTreeMap<String, Entry>, DataProblem> {
    const WANTED: &str = "it is neither a Data object nor a dictionary of tensors; save data.to_dict() by torch.save";
    let mut root = pickle.root();
    // A dataset of PyG's: what it holds, where each graph of it starts, and a class.
    if let Some([first, slices, ..]) = pickle.items(root) {
        for (_, slice) in pickle.named(*slices).unwrap_or_default() {
            let graphs = tensor(pickle, slice).and_then(|slice| slice.shape.first().copied());
            if graphs.is_some_and(|ends| ends != 2) {
                return Err(refuse(
                    "it is a dataset of several graphs; save one of them, torch.save(dataset[0].to_dict(), file)",
                ));
            }
        }
        root = *first;
    }
    // An object's store, and the dictionary in it.
    if let Some(fields) = pickle.state(root) {
        let field = |fields: &[(String, Value)], name: &str| {
            fields
                .iter()
                .find(|(own, _)| own == name)
                .map(|&(_, value)| value)
        };
        if field(&fields, "_node_store_dict").is_some() {
            return Err(refuse(
                "it has vertices of several kinds; save data.to_homogeneous().to_dict()",
            ));
        }
        let store = field(&fields, "_store").and_then(|store| pickle.state(store));
        let mapping = store.as_deref().and_then(|store| field(store, "_mapping"));
        root = mapping.ok_or_else(|| refuse(WANTED))?;
    }
    let pairs = pickle.named(root).ok_or_else(|| refuse(WANTED))?;
    let mut entries = BTreeMap::new();
    for (name, value) in pairs {
        let entry = match value {
            Value::None => continue,
            Value::Int(number) => Entry::Number(number),
            value => match tensor(pickle, value) {
                Some(tensor) => Entry::Tensor(tensor),
                None => Entry::Other(pickle.describe(value)),
            },
        };
        entries.insert(name, entry);
    }
    Ok(entries)
}

/// `_rebuild_tensor_v2(storage, offset, size, stride, …)`, whose storage is told as
/// `('storage', FloatStorage, key, device, elements)`.
fn tensor(pickle: &Pickle<'_>, value: Value) -> Option<Tensor> {
    let (function, arguments) = pickle.call(value)?;
    if function == "_rebuild_parameter" {
        return arguments.first().and_then(|&data| tensor(pickle, data));
    }
    let &[storage, offset, shape, strides, ..] = arguments else {
        return None;
    };
    if function != "_rebuild_tensor_v2" {
        return None;
    }
    let &[_, class, key, ..] = pickle.items(pickle.persistent(storage)?)? else {
        return None;
    };
    let sides = |value: Value| -> Option<Vec<u64>> {
        pickle
            .items(value)?
            .iter()
            .map(|&side| pickle.whole(side))
            .collect()
    };
    let tensor = Tensor {
        storage: pickle.word(key)?,
        element: Element::of(pickle.global(class)?)?,
        offset: pickle.whole(offset)?,
        shape: sides(shape)?,
        strides: sides(strides)?,
    };
    (tensor.shape.len() == tensor.strides.len()).then_some(tensor)
}

impl Tensor {
    /// The number of its elements, and that all of them are among `held`.
    fn check(&self, key: &str, held: u64) -> Result<u64, DataProblem> {
        /// A tensor that was expanded may have so many elements in any case.
        const EXPANDED: u64 = 1 << 20;
        let sides = || self.shape.iter().zip(&self.strides);
        let len = self
            .shape
            .iter()
            .try_fold(1_u64, |len, &side| len.checked_mul(side));
        if len == Some(0) {
            return Ok(0);
        }
        let last = sides().try_fold(self.offset, |last, (&side, &stride)| {
            last.checked_add((side - 1).checked_mul(stride)?)
        });
        match (len, last) {
            (Some(len), Some(last)) if last < held && len <= held.max(EXPANDED) => Ok(len),
            _ => Err(DataProblem::Size {
                key: key.into(),
                promised: match len.and_then(|len| len.checked_mul(self.element.size() as u64)) {
                    Some(bytes) => bytes.to_string(),
                    None => "more than can be counted".into(),
                },
                held: held * self.element.size() as u64,
            }),
        }
    }

    /// Calls `each` with the place in its storage of every element, the last index changing fastest.
    fn for_each_place(
        &self,
        len: u64,
        mut each: impl FnMut(u64, usize) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let mut index = vec![0_u64; self.shape.len()];
        let mut place = self.offset;
        for at in 0..len {
            each(at, place as usize)?;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                place += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                place -= self.strides[axis] * self.shape[axis];
                index[axis] = 0;
            }
        }
        Ok(())
    }
}

impl Arrays for Torch<'_> {
    fn keys(&self) -> Vec<String> {
        let names = self.entries.keys();
        names.map(|name| name.escape_debug().to_string()).collect()
    }

    fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn most_vertices(&self) -> u64 {
        most_vertices(self.bytes)
    }

    fn kind(&mut self, key: &str) -> Result<(Kind, Vec<u64>), DataProblem> {
        Ok(match self.entry(key)? {
            Entry::Tensor(tensor) => (tensor.element.kind(), tensor.shape),
            _ => (Kind::Signed, Vec::new()),
        })
    }

    fn read<T: Copy>(
        &mut self,
        key: &str,
        kinds: &[Kind],
        wanted: &'static str,
        mut convert: impl FnMut(u64, Number) -> Result<T, DataProblem>,
    ) -> Result<Values<T>, DataProblem> {
        let tensor = match self.entry(key)? {
            Entry::Tensor(tensor) => tensor,
            Entry::Number(number) => {
                let value = convert(0, Number::Signed(number))?;
                return Ok(Values {
                    shape: Vec::new(),
                    values: vec![value],
                });
            }
            Entry::Other(_) => return Err(self.missing(key)),
        };
        let element = tensor.element;
        if !kinds.contains(&element.kind()) {
            return Err(DataProblem::Dtype {
                key: key.into(),
                dtype: format!("{:?}", element.kind()).to_lowercase(),
                wanted,
            });
        }
        let bytes = self.member(&format!("data/{}", tensor.storage))?;
        let size = element.size();
        let len = tensor.check(key, (bytes.len() / size) as u64)?;
        let mut values = DataProblem::room(key, len)?;
        tensor.for_each_place(len, |at, place| {
            let number = element.number(&bytes[place * size..(place + 1) * size]);
            values.push(
                convert(at, number).map_err(|problem| placed(problem, &tensor.shape, false))?,
            );
            Ok(())
        })?;
        Ok(Values {
            shape: tensor.shape,
            values,
        })
    }
}

fn refuse(reason: impl Into<String>) -> DataProblem {
    DataProblem::Torch {
        reason: reason.into(),
    }
}

fn broken(error: impl ToString) -> DataProblem {
    DataProblem::Archive {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
