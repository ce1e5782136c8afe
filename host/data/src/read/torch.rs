//! torch's own files (`torch.save`, `.pt`): a zip of a pickle, `data.pkl`, and of the storages of its tensors,
//! `data/0`, `data/1`, …
//!
//! Nothing of the pickle is executed. A call that makes a tensor gives its type, shape and strides, which suffice. The
//! reader takes PyG's `Data` objects, dictionaries of tensors, and lists of either, which are a set of graphs. It also
//! takes what PyG keeps of a dataset of one graph (`processed/data.pt`), a tuple whose first item is one of these. A
//! sparse `adj_t`, of torch or torch_sparse, becomes `edge_index` and `edge_weight`: its rows are the destinations of
//! edges. What the tensors mean is in [`pyg`](super::pyg).

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use half::bf16;
use zip::ZipArchive;

use super::arrays::{Arrays, Values, placed};
use super::npy::{Dtype, Kind, Number};
use super::npz::{check_claim, most_vertices};
use super::pickle::{Pickle, Value};
use super::pyg::EDGES;
use super::types::BETWEEN;
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
    /// Tensors of several graphs, one behind the other, and the shape of all.
    Joined(Vec<Tensor>, Vec<u64>),
    Number(i64),
    /// What was made of others, and its shape.
    Made(Vec<i64>, Vec<u64>),
    /// Neither; what it is.
    Other(String),
}

/// A sparse matrix whose rows are where edges end.
struct Sparse {
    /// Row, or where in the others each row starts, or with columns in the place of rows.
    first: Tensor,
    indices: Indices,
    values: Option<Tensor>,
    sizes: Vec<u64>,
}

/// The other indices of a sparse matrix.
enum Indices {
    /// `first` has both, as 2 × E.
    Both,
    /// `first` has rows.
    Columns(Tensor),
    /// `first` has offsets of rows.
    ColumnsOfRows(Tensor),
    /// `first` has offsets of columns.
    RowsOfColumns(Tensor),
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
        if let Some(entries) = of_types(&pickle)? {
            torch.entries = entries;
            return Ok(torch);
        }
        let graphs = graphs(&pickle)?;
        let mut read = Vec::new();
        for &graph in &graphs {
            let entries = entries(&pickle, graph)?;
            read.push(torch.with_edges(&pickle, graph, entries)?);
        }
        torch.entries = match read.len() {
            1 => read.remove(0),
            _ => torch.joined(read)?,
        };
        Ok(torch)
    }

    /// The entries with the edges of a sparse adjacency, where there are no others.
    fn with_edges(
        &mut self,
        pickle: &Pickle<'_>,
        graph: Value,
        mut entries: BTreeMap<String, Entry>,
    ) -> Result<BTreeMap<String, Entry>, DataProblem> {
        const KEY: &str = "adj_t";
        let named = pickle.named(graph).unwrap_or_default();
        let adjacency = named.iter().find(|(name, _)| name == KEY);
        let sparse = adjacency.and_then(|&(_, value)| sparse(pickle, value));
        let (Some(sparse), false) = (sparse, entries.contains_key(EDGES)) else {
            return Ok(entries);
        };
        let [size, columns] = sparse.sizes[..] else {
            return Err(DataProblem::shape(KEY, &sparse.sizes, "(n, n)"));
        };
        if size != columns {
            return Err(DataProblem::shape(KEY, &sparse.sizes, "(n, n), a square"));
        }
        let first = self.whole_numbers(KEY, &sparse.first)?;
        let (rows, columns) = match &sparse.indices {
            Indices::Both => {
                let (rows, columns) = first.split_at(first.len() / 2);
                (rows.to_vec(), columns.to_vec())
            }
            Indices::Columns(columns) => (first, self.whole_numbers(KEY, columns)?),
            Indices::ColumnsOfRows(columns) => {
                let columns = self.whole_numbers(KEY, columns)?;
                (expanded(KEY, &first, columns.len())?, columns)
            }
            Indices::RowsOfColumns(rows) => {
                let rows = self.whole_numbers(KEY, rows)?;
                let columns = expanded(KEY, &first, rows.len())?;
                (rows, columns)
            }
        };
        let edges = columns.len();
        if rows.len() != edges {
            let wanted = format!("({edges}), a row for each column");
            return Err(DataProblem::shape(KEY, &[rows.len() as u64], wanted));
        }
        let mut ends = columns;
        ends.extend(rows);
        let shape = vec![2, edges as u64];
        entries.insert(EDGES.into(), Entry::Made(ends, shape));
        entries.remove(KEY);
        let number = Entry::Number(size as i64);
        entries.entry("num_nodes".into()).or_insert(number);
        if let Some(values) = sparse.values {
            entries
                .entry("edge_weight".into())
                .or_insert(Entry::Tensor(values));
        }
        Ok(entries)
    }

    fn whole_numbers(&mut self, key: &str, tensor: &Tensor) -> Result<Vec<i64>, DataProblem> {
        let kinds = [Kind::Signed, Kind::Unsigned];
        let numbers = self.numbers(key, tensor, &kinds, "whole numbers", |at, number| {
            let number = match number {
                Number::Signed(value) => Some(value),
                Number::Unsigned(value) => i64::try_from(value).ok(),
                Number::Float(_) => None,
            };
            number.ok_or_else(|| DataProblem::value(key, at, "beyond", "64 bits with a sign"))
        })?;
        Ok(numbers.values)
    }

    /// The entries of several graphs as those of one set of graphs.
    fn joined(
        &mut self,
        graphs: Vec<BTreeMap<String, Entry>>,
    ) -> Result<BTreeMap<String, Entry>, DataProblem> {
        let (mut starts, mut sources, mut targets) = (vec![0_i64], Vec::new(), Vec::new());
        let mut counted = Vec::new();
        for (at, entries) in graphs.iter().enumerate() {
            let ends = match entries.get(EDGES) {
                Some(Entry::Made(ends, _)) => ends.clone(),
                Some(Entry::Tensor(tensor)) if tensor.shape.first() == Some(&2) => {
                    self.whole_numbers(EDGES, &tensor.clone())?
                }
                _ => return Err(refuse(format!("graph {at} has no {EDGES} of shape (2, E)"))),
            };
            let rows = ["x", "batch"]
                .iter()
                .find_map(|key| match entries.get(*key) {
                    Some(Entry::Tensor(tensor)) => tensor.shape.first().copied(),
                    _ => None,
                });
            let vertices = match entries.get("num_nodes") {
                Some(Entry::Number(number)) => *number,
                _ => rows.map_or_else(
                    || ends.iter().max().map_or(0, |largest| largest + 1),
                    |rows| rows as i64,
                ),
            };
            // A short pickle can name one graph many times.
            let most = self.bytes.max(1 << 20);
            if vertices as u64 > self.most_vertices() || (sources.len() + ends.len()) as u64 > most
            {
                return Err(refuse(format!(
                    "the vertices or edges up to graph {at} are more than a file of {} bytes can hold",
                    self.bytes
                )));
            }
            if let Some(&end) = ends.iter().find(|end| !(0..vertices).contains(*end)) {
                return Err(refuse(format!(
                    "an edge of graph {at} names vertex {end}, but it has {vertices}, numbered from 0"
                )));
            }
            let start = starts[at];
            let (from, to) = ends.split_at(ends.len() / 2);
            sources.extend(from.iter().map(|end| start + end));
            targets.extend(to.iter().map(|end| start + end));
            starts.push(start.saturating_add(vertices));
            counted.push(entries);
        }
        let mut all = BTreeMap::new();
        for key in counted[0].keys() {
            if [EDGES, "num_nodes", "ptr", "batch"].contains(&key.as_str()) {
                continue;
            }
            let mut entries = Vec::new();
            for (at, graph) in counted.iter().enumerate() {
                let entry = graph.get(key);
                entries.push(
                    entry.ok_or_else(|| {
                        refuse(format!("graph {at} has no {key}, as graph 0 has"))
                    })?,
                );
            }
            let entry = one_of_all(key, &entries)?;
            if let Entry::Joined(_, shape) = &entry
                && shape
                    .iter()
                    .fold(1, |all: u64, &side| all.saturating_mul(side))
                    > self.bytes.max(1 << 20)
            {
                return Err(refuse(format!(
                    "{key} of all graphs is of shape {shape:?}, more than a file of {} bytes can hold",
                    self.bytes
                )));
            }
            all.insert(key.clone(), entry);
        }
        let shape = vec![2, sources.len() as u64];
        sources.extend(targets);
        all.insert(EDGES.into(), Entry::Made(sources, shape));
        let shape = vec![starts.len() as u64];
        let vertices = starts.last().copied().unwrap_or(0);
        all.insert("num_nodes".into(), Entry::Number(vertices));
        all.insert("ptr".into(), Entry::Made(starts, shape));
        Ok(all)
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
        let mut content = DataProblem::with_capacity(&name, unpacked)?;
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

/// One entry in the place of those of several graphs, row behind row.
fn one_of_all(key: &str, entries: &[&Entry]) -> Result<Entry, DataProblem> {
    let numbers: Option<Vec<i64>> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Number(number) => Some(*number),
            _ => None,
        })
        .collect();
    if let Some(numbers) = numbers {
        let shape = vec![numbers.len() as u64];
        return Ok(Entry::Made(numbers, shape));
    }
    let mut tensors = Vec::new();
    for entry in entries {
        match entry {
            Entry::Tensor(tensor) => tensors.push(Tensor {
                // A number of each graph is a row.
                shape: match tensor.shape.is_empty() {
                    true => vec![1],
                    false => tensor.shape.clone(),
                },
                strides: match tensor.strides.is_empty() {
                    true => vec![1],
                    false => tensor.strides.clone(),
                },
                ..(*tensor).clone()
            }),
            Entry::Other(what) => return Ok(Entry::Other(what.clone())),
            _ => return Ok(Entry::Other("of several kinds".into())),
        }
    }
    let first = &tensors[0];
    let fits = |tensor: &Tensor| {
        tensor.shape[1..] == first.shape[1..] && tensor.element.kind() == first.element.kind()
    };
    if let Some(at) = tensors.iter().position(|tensor| !fits(tensor)) {
        return Err(refuse(format!(
            "{key} of graph {at} is of shape {:?}, where graph 0 has {:?}, or of another type",
            tensors[at].shape, first.shape
        )));
    }
    let mut shape = first.shape.clone();
    let rows = tensors.iter().map(|tensor| tensor.shape[0]);
    shape[0] = rows.fold(0, u64::saturating_add);
    Ok(Entry::Joined(tensors, shape))
}

/// The row of each entry of compressed rows.
fn expanded(key: &str, offsets: &[i64], entries: usize) -> Result<Vec<i64>, DataProblem> {
    let ascend = offsets.windows(2).all(|two| two[0] <= two[1]);
    if !ascend || offsets.first() != Some(&0) || offsets.last() != Some(&(entries as i64)) {
        return Err(refuse(format!(
            "the offsets of {key} do not ascend from 0 to its {entries} entries"
        )));
    }
    let rows = offsets.windows(2).zip(0_i64..);
    Ok(rows
        .flat_map(|(two, row)| std::iter::repeat_n(row, (two[1] - two[0]) as usize))
        .collect())
}

const WANTED: &str =
    "it is neither a Data object nor a dictionary of tensors; save data.to_dict() by torch.save";

/// What is under a name in the state of an object.
fn field(fields: &[(String, Value)], name: &str) -> Option<Value> {
    let found = fields.iter().find(|(own, _)| own == name);
    found.map(|&(_, value)| value)
}

/// The dictionaries of the graphs that were saved: one, or several.
fn graphs(pickle: &Pickle<'_>) -> Result<Vec<Value>, DataProblem> {
    let root = pickle.root();
    let Some(items) = pickle.items(root) else {
        return Ok(vec![dictionary(pickle, root)?]);
    };
    // A list of graphs; of a tuple of PyG's the second has where each graph starts, by name.
    if !items.is_empty() && items.iter().all(|&item| is_graph(pickle, item)) {
        return items.iter().map(|&item| dictionary(pickle, item)).collect();
    }
    let [first, slices, ..] = items else {
        return Err(refuse(WANTED));
    };
    for (_, slice) in pickle.named(*slices).unwrap_or_default() {
        let graphs = tensor(pickle, slice).and_then(|slice| slice.shape.first().copied());
        if graphs.is_some_and(|ends| ends != 2) {
            return Err(refuse(
                "it is a dataset of several graphs; save a list of them, torch.save(list(dataset), file)",
            ));
        }
    }
    Ok(vec![dictionary(pickle, *first)?])
}

/// Whether a value is an object with a store, or a dictionary with edges.
fn is_graph(pickle: &Pickle<'_>, value: Value) -> bool {
    if let Some(fields) = pickle.state(value) {
        return field(&fields, "_store").is_some();
    }
    let entries = pickle.named(value).unwrap_or_default();
    let edges = field(&entries, EDGES).and_then(|edges| tensor(pickle, edges));
    edges.is_some_and(|edges| edges.shape.len() == 2) || field(&entries, "adj_t").is_some()
}

/// The dictionary in an object's store, or the value itself.
fn dictionary(pickle: &Pickle<'_>, value: Value) -> Result<Value, DataProblem> {
    let Some(fields) = pickle.state(value) else {
        return Ok(value);
    };
    let store = field(&fields, "_store").and_then(|store| pickle.state(store));
    let mapping = store.as_deref().and_then(|store| field(store, "_mapping"));
    mapping.ok_or_else(|| refuse(WANTED))
}

/// The entries of a `HeteroData` object, or of its dictionary, under the names of [their types](super::types); none of
/// anything else.
fn of_types(pickle: &Pickle<'_>) -> Result<Option<BTreeMap<String, Entry>>, DataProblem> {
    let root = pickle.root();
    // What PyG keeps of a dataset is a tuple, whose first item is the object.
    let root = pickle
        .items(root)
        .and_then(|items| items.first().copied())
        .unwrap_or(root);
    let mut stores = Vec::new();
    match pickle.state(root) {
        Some(fields) => {
            for name in ["_node_store_dict", "_edge_store_dict"] {
                let pairs = field(&fields, name).and_then(|dict| pickle.pairs(dict));
                stores.extend(pairs.unwrap_or_default());
            }
        }
        None => stores.extend(pickle.pairs(root).unwrap_or_default()),
    }
    let is_of_edges = |key: Value| pickle.items(key).is_some_and(|ends| ends.len() == 3);
    if !stores.iter().any(|(key, _)| is_of_edges(*key)) {
        let fields = pickle.state(root).unwrap_or_default();
        return match field(&fields, "_node_store_dict") {
            Some(_) => Err(refuse(
                "it has types of vertices and no edges; give it the edges of a type",
            )),
            None => Ok(None),
        };
    }
    let mut all = BTreeMap::new();
    for (key, store) in stores {
        let names = match pickle.items(key) {
            Some(names) => names.iter().map(|name| pickle.word(*name)).collect(),
            None => Some(Vec::from_iter(pickle.word(key))),
        };
        let name = names.filter(|names: &Vec<String>| matches!(names.len(), 1 | 3));
        let Some(names) = name else {
            return Err(refuse(
                "a type in it is called neither by a text nor by three; name types by texts",
            ));
        };
        let name = names.join(&BETWEEN.to_string());
        // What is of no type stands under a name of PyG's own.
        if name == "_global_store" {
            continue;
        }
        let mapping = pickle
            .state(store)
            .and_then(|fields| field(&fields, "_mapping"));
        let own = entries(pickle, mapping.unwrap_or(store))?;
        if names.len() == 3 && !own.contains_key(EDGES) {
            return Err(refuse(format!(
                "edges {} have no {EDGES}; save them before ToSparseTensor",
                names.join(" ")
            )));
        }
        let own = own.into_iter();
        all.extend(own.map(|(array, entry)| (format!("{name}{BETWEEN}{array}"), entry)));
    }
    Ok(Some(all))
}

/// What is under the names of a dictionary.
fn entries(pickle: &Pickle<'_>, graph: Value) -> Result<BTreeMap<String, Entry>, DataProblem> {
    let pairs = pickle.named(graph).ok_or_else(|| refuse(WANTED))?;
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

/// `_rebuild_sparse_tensor(layout, (…, size))` of torch, or an object of torch_sparse's `SparseTensor`.
fn sparse(pickle: &Pickle<'_>, value: Value) -> Option<Sparse> {
    let sizes = |value: Value| -> Option<Vec<u64>> {
        let items = match pickle.call(value) {
            Some((_, [sides])) => pickle.items(*sides)?,
            _ => pickle.items(value)?,
        };
        items.iter().map(|&side| pickle.whole(side)).collect()
    };
    if let Some(("_rebuild_sparse_tensor", &[layout, parts, ..])) = pickle.call(value) {
        let layout = match pickle.call(layout) {
            Some((_, [name])) => pickle.word(*name)?,
            _ => return None,
        };
        let parts = pickle.items(parts)?;
        return match (layout.as_str(), parts) {
            ("torch.sparse_coo", &[indices, values, size, ..]) => Some(Sparse {
                first: tensor(pickle, indices)?,
                indices: Indices::Both,
                values: tensor(pickle, values),
                sizes: sizes(size)?,
            }),
            ("torch.sparse_csr" | "torch.sparse_csc", &[offsets, plain, values, size, ..]) => {
                let plain = tensor(pickle, plain)?;
                Some(Sparse {
                    first: tensor(pickle, offsets)?,
                    indices: match layout.ends_with("csr") {
                        true => Indices::ColumnsOfRows(plain),
                        false => Indices::RowsOfColumns(plain),
                    },
                    values: tensor(pickle, values),
                    sizes: sizes(size)?,
                })
            }
            _ => None,
        };
    }
    let storage = field(&pickle.state(value)?, "storage")?;
    let fields = pickle.state(storage)?;
    let of = |name: &str| field(&fields, name).and_then(|value| tensor(pickle, value));
    let columns = of("_col")?;
    let (first, indices) = match (of("_row"), of("_rowptr")) {
        (Some(rows), _) => (rows, Indices::Columns(columns)),
        (None, offsets) => (offsets?, Indices::ColumnsOfRows(columns)),
    };
    Some(Sparse {
        first,
        indices,
        values: of("_value"),
        sizes: sizes(field(&fields, "_sparse_sizes")?)?,
    })
}

/// `_rebuild_tensor_v2(storage, offset, size, stride, …)`, whose storage is given as
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
        /// An expanded tensor may have this many elements in any case.
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
            Entry::Joined(tensors, shape) => (tensors[0].element.kind(), shape),
            Entry::Made(_, shape) => (Kind::Signed, shape),
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
        match self.entry(key)? {
            Entry::Tensor(tensor) => self.numbers(key, &tensor, kinds, wanted, convert),
            Entry::Joined(tensors, shape) => {
                let mut values = Vec::new();
                for tensor in &tensors {
                    let before = values.len() as u64;
                    let more = self.numbers(key, tensor, kinds, wanted, |at, number| {
                        convert(before + at, number)
                    })?;
                    values.extend(more.values);
                }
                Ok(Values { shape, values })
            }
            Entry::Number(number) => {
                let value = convert(0, Number::Signed(number))?;
                Ok(Values {
                    shape: Vec::new(),
                    values: vec![value],
                })
            }
            Entry::Made(numbers, shape) => {
                expect_kind(key, Kind::Signed, kinds, wanted)?;
                let values = (0..)
                    .zip(numbers)
                    .map(|(at, number)| convert(at, Number::Signed(number)));
                let values: Result<Vec<T>, _> = values.collect();
                values.map(|values| Values { shape, values })
            }
            Entry::Other(_) => Err(self.missing(key)),
        }
    }
}

impl Torch<'_> {
    /// The numbers of a tensor.
    fn numbers<T: Copy>(
        &mut self,
        key: &str,
        tensor: &Tensor,
        kinds: &[Kind],
        wanted: &'static str,
        mut convert: impl FnMut(u64, Number) -> Result<T, DataProblem>,
    ) -> Result<Values<T>, DataProblem> {
        let element = tensor.element;
        expect_kind(key, element.kind(), kinds, wanted)?;
        let bytes = self.member(&format!("data/{}", tensor.storage))?;
        let size = element.size();
        let len = tensor.check(key, (bytes.len() / size) as u64)?;
        let mut values = DataProblem::with_capacity(key, len)?;
        tensor.for_each_place(len, |at, place| {
            let number = element.number(&bytes[place * size..(place + 1) * size]);
            values.push(
                convert(at, number).map_err(|problem| placed(problem, &tensor.shape, false))?,
            );
            Ok(())
        })?;
        Ok(Values {
            shape: tensor.shape.clone(),
            values,
        })
    }
}

/// That numbers of an array are of one of some kinds.
fn expect_kind(
    key: &str,
    kind: Kind,
    kinds: &[Kind],
    wanted: &'static str,
) -> Result<(), DataProblem> {
    match kinds.contains(&kind) {
        true => Ok(()),
        false => Err(DataProblem::Dtype {
            key: key.into(),
            dtype: format!("{kind:?}").to_lowercase(),
            wanted,
        }),
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
