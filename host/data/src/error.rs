//! What can be wrong with a dataset.

use std::path::Path;

use crate::message::{escaped, shortened};
use halfgnn_graph::GraphError;

/// Why a dataset was refused: where, and what. One line, for people.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", escaped(place), shortened(&problem.to_string()))]
pub struct DataError {
    place: String,
    problem: DataProblem,
}

impl DataError {
    /// A problem with what is called `place`: a file, or a dataset that was made.
    pub fn new(place: impl Into<String>, problem: DataProblem) -> Self {
        let place = place.into();
        Self { place, problem }
    }

    /// A problem with a file.
    pub(crate) fn in_file(path: &Path, problem: DataProblem) -> Self {
        Self::new(path.display().to_string(), problem)
    }

    /// The file, or the name of the dataset.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn into_problem(self) -> DataProblem {
        self.problem
    }

    /// What is wrong there.
    pub fn problem(&self) -> &DataProblem {
        &self.problem
    }
}

/// What is wrong with a dataset. `key` is the name of an array of the file, or of a field of
/// [`Dataset`](super::Dataset).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataProblem {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(std::io::Error),
    /// The file cannot be written.
    #[error("cannot be written: {0}; name a file in a folder that can be")]
    CannotWrite(std::io::Error),
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// The build has no reader or writer of the format.
    #[error(
        "is {format}, which this build has no reader or writer for: build the crate `halfgnn` with the feature `{feature}`"
    )]
    NotBuilt {
        /// The format, in words.
        format: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// The content is none of the formats that are known.
    #[error("is in no format that is known; it should be one of: {known}")]
    UnknownFormat {
        /// The formats, in words.
        known: String,
    },
    /// A text that might be an edge list, but for its ids.
    #[error(
        "is in no format that is known; if it is an edge list, ids must be whole numbers from 0, and '{id}' is none; ids of any kind go into tables, nodes.csv with a column id and edges.csv with source and target, \
         opened as nodes.csv,edges.csv"
    )]
    NamedVertices {
        /// The first of its ids.
        id: String,
    },
    /// A packing or an encoding of text that is not read.
    #[error("is {what}, which is not read; {instead}")]
    NotUnpacked {
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A format without features and labels, where a dataset is required.
    #[error(
        "is {format}: a graph without features and labels; a dataset to train on is one of: {known}"
    )]
    NotLabelled {
        /// What the file is.
        format: &'static str,
        /// The formats that have labels, in words.
        known: String,
    },
    /// Targets of another kind than one class of each vertex.
    #[error(
        "its targets are {found}, where a class of each vertex is wanted; keep one class of each, numbered from 0"
    )]
    OtherTargets {
        /// What they are.
        found: &'static str,
    },
    /// Names of columns for a format that has none.
    #[error("is {format}, which has no columns to name; leave the options that name them out")]
    NoColumns {
        /// What the file is.
        format: &'static str,
    },
    /// A number of a split that the file does not have, or that a rule makes.
    #[error("has no split number {number}: {}", match splits {
        0 => "there is none in the file; a rule splits, such as fractions:0.6,0.2".into(),
        _ => format!("there are {splits}, from 0, and no rule may be given with the number"),
    })]
    NoSuchSplit {
        /// The number.
        number: usize,
        /// How many there are.
        splits: usize,
    },
    /// A split by class where there are none.
    #[error(
        "there are no classes to split by, for the targets are {found}; split by shares, such as by fractions:0.6,0.2"
    )]
    NoClasses {
        /// What they are.
        found: &'static str,
    },
    /// A format in which something cannot be written.
    #[error("{format} cannot hold {what}; choose another format")]
    NotWritten {
        /// The format.
        format: &'static str,
        /// What it cannot hold.
        what: &'static str,
    },
    /// Features that are to be packed as bits, and one is something else.
    #[error(
        "features: vertex {vertex}, column {column} is {value}{elsewhere}; as bits they are all +1 and -1, or all 1 and 0: leave --features bits out"
    )]
    NotBits {
        /// The vertex.
        vertex: usize,
        /// The column.
        column: usize,
        /// What stands there.
        value: f32,
        /// Which earlier value it does not go with.
        elsewhere: String,
    },
    /// Bytes of one file, where a format has several.
    #[error("{format} is several files; open their folder")]
    SeveralFiles {
        /// The format.
        format: &'static str,
    },
    /// A folder with datasets in several formats.
    #[error("holds {found}; choose one by --format {names}")]
    SeveralFormats {
        /// The formats, in words.
        found: String,
        /// Their names.
        names: String,
    },
    /// What is there is in another format than the one that was given.
    #[error("is {found}, which --format {forced} does not read; leave --format out")]
    OtherFormat {
        /// The format, in words.
        found: String,
        /// The name of the one that was given.
        forced: &'static str,
    },
    /// A folder with several datasets.
    #[error("holds {}; name one by its file, {example}", names.join(" and "))]
    SeveralDatasets {
        /// Their names.
        names: Vec<String>,
        /// A file of the first.
        example: String,
    },
    /// A name that is neither a file nor a dataset below `HALFGNN_DATA`.
    #[error("there is no such file or folder, and {looked}")]
    NotFound {
        /// Where else was looked.
        looked: String,
    },
    /// A file of a folder's is not there.
    #[error("has no file {file}; {layout}")]
    MissingFile {
        /// The file.
        file: String,
        /// Which files belong there.
        layout: &'static str,
    },
    /// A line of a text cannot be understood.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The gzip stream around a text is broken.
    #[error("cannot be unpacked: {reason}")]
    Gzip {
        /// What is wrong with it.
        reason: String,
    },
    /// A Python pickle is broken, or holds something else than it should.
    #[error("as a Python pickle: {reason}")]
    Pickle {
        /// What is wrong with it.
        reason: String,
    },
    /// A file of torch's holds something else than it should.
    #[error("as a file of torch's: {reason}")]
    Torch {
        /// What is wrong with it.
        reason: String,
    },
    /// A Parquet file is broken, or packed in a way that is not known.
    #[error(
        "is not a whole Parquet file ({}); write it again, packed by snappy, gzip or not at all",
        shortened(reason)
    )]
    Parquet {
        /// What its reader said.
        reason: String,
    },
    /// A file of tiles of bits is broken, or of another version.
    #[error(
        "as FRDC: {reason}; fetch the file again, or write it again by `halfgnn dataset convert GRAPH FILE.frdc`"
    )]
    Frdc {
        /// What is wrong with it.
        reason: String,
    },
    /// A raw CSR file whose header and length do not agree.
    #[error(
        "the header says {vertices} vertices and {edges} edges, which is not a file of {bytes} bytes; is it raw CSR?"
    )]
    RawHeader {
        /// The number of vertices in the header.
        vertices: i64,
        /// The number of edges in the header.
        edges: i64,
        /// Length of the file.
        bytes: u64,
    },
    /// A header that declares more vertices than a file of this size can have.
    #[error(
        "the header promises {promised} vertices, more than the {most} that are believed of a file of this size"
    )]
    TooManyPromised {
        /// The number in the header.
        promised: u64,
        /// The most that would be believed.
        most: u64,
    },
    /// The zip archive around the arrays is broken.
    #[error("is not a whole zip archive ({reason}); fetch or write it again")]
    Archive {
        /// What the archive's reader said.
        reason: String,
    },
    /// An array is not in the file.
    #[error("has no array {key}; it has {present}")]
    MissingKey {
        /// The array.
        key: String,
        /// The arrays that there are.
        present: String,
    },
    /// An array's `.npy` header cannot be understood.
    #[error("{key}: the .npy header is broken: {reason}")]
    Header {
        /// The array.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An array of a type that does not fit its meaning.
    #[error("{key}: the type is {dtype}, where {wanted} are wanted")]
    Dtype {
        /// The array.
        key: String,
        /// Its type, as numpy writes it.
        dtype: String,
        /// The types that would do.
        wanted: &'static str,
    },
    /// An array of the wrong shape.
    #[error("{key}: the shape is {shape:?}, where {wanted} is wanted")]
    Shape {
        /// The array.
        key: String,
        /// Its shape.
        shape: Vec<u64>,
        /// The shape that would do.
        wanted: String,
    },
    /// An array whose header declares another size than there is.
    #[error(
        "{key}: the header promises {promised} bytes, but {held} are there; fetch or write the file again"
    )]
    Size {
        /// The array.
        key: String,
        /// What shape and type come to; "more than can be counted" where that is so.
        promised: String,
        /// The bytes after the header.
        held: u64,
    },
    /// Types of vertices and edges that do not fit together.
    #[error("types: {reason}")]
    Types {
        /// What is wrong.
        reason: String,
    },
    /// Several types of vertices, where one is required.
    #[error(
        "has several types of vertices and edges, which this does not read; `halfgnn train` and `predict` take it with --model rgcn, hetero or hgt"
    )]
    SeveralTypes,
    /// One value that cannot be.
    #[error("{key}[{index}] is {value}, {why}")]
    Value {
        /// The array.
        key: String,
        /// The value's position.
        index: u64,
        /// The value.
        value: String,
        /// Why it cannot be.
        why: String,
    },
    /// A number that should be a vertex' and is not.
    #[error("{key}[{index}] is {value}, but there are {vertices} vertices, numbered from 0")]
    NoVertex {
        /// The array.
        key: String,
        /// The number's position.
        index: u64,
        /// The number.
        value: String,
        /// How many vertices there are.
        vertices: u64,
    },
    /// Two splits share a vertex, or one split has it twice.
    #[error(
        "vertex {vertex} is in {first} and again in {second}; every vertex may be in one split, once"
    )]
    Overlap {
        /// The vertex.
        vertex: u32,
        /// The split that has it.
        first: &'static str,
        /// The split that has it too.
        second: &'static str,
    },
    /// The dataset is many graphs, and this is of one.
    #[error("it is {graphs} graphs, and {what}")]
    ManyGraphs {
        /// How many.
        graphs: usize,
        /// What cannot be, and the way out.
        what: &'static str,
    },
    /// Something is wrong with a member of an archive.
    #[error("{member}: {problem}")]
    Member {
        /// The member.
        member: String,
        /// What is wrong there.
        problem: Box<DataProblem>,
    },
    /// A file of a folder of parts is not what its manifest says.
    #[error("{field}: {reason}; partition the dataset again, or fetch the file again")]
    Part {
        /// The field or array of the file.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file whose rows are read on demand is gone or was changed.
    #[error("{field}: {reason}; leave the file alone while its rows are read, and open it again")]
    Changed {
        /// What of the file.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A dataset that cannot be partitioned as requested.
    #[error("cannot be partitioned: {reason}")]
    NotPartitioned {
        /// Why, and the way out.
        reason: String,
    },
    /// Features that are to stay in their files, of a format whose rows cannot be read one by one.
    #[error(
        "its features cannot be read from disk row by row; write it in parts by `halfgnn dataset partition {place} --out FOLDER`, and take that folder"
    )]
    NotStored {
        /// How it is called.
        place: String,
    },
    /// Features that stay in their files, where they are required in memory.
    #[error(
        "its features stay in their files, and {what} requires them in memory; open it with them"
    )]
    NotInMemory {
        /// What requires them.
        what: &'static str,
    },
    /// A folder that is to be made is there.
    #[error("is there already; name a folder that is not, or remove it")]
    Exists,
    /// More memory than there is.
    #[error(
        "{key}: its {elements} elements take {bytes} bytes, and there is not enough memory for them"
    )]
    OutOfMemory {
        /// The array.
        key: String,
        /// How many elements it has.
        elements: u64,
        /// The bytes that they take.
        bytes: u64,
    },
    /// A bound on memory that is too low for the arrays of one entry a vertex.
    #[error(
        "takes at least {} MiB of memory, for what there is one of a vertex, with {} MiB allowed; allow more with --memory",
        wanted.div_ceil(1 << 20), allowed >> 20
    )]
    LittleMemory {
        /// The bytes that suffice.
        wanted: u64,
        /// The bytes that may be used.
        allowed: u64,
    },
    /// More memory than there could be.
    #[error("{what} of {rows} × {columns} floats does not fit in memory")]
    TooLarge {
        /// What was to be made.
        what: &'static str,
        /// Its rows.
        rows: u64,
        /// Its columns.
        columns: u64,
    },
    /// The edges are not a graph's.
    #[error("{key}: {error}")]
    Graph {
        /// The array or arrays that say so.
        key: String,
        /// What is wrong with them.
        error: GraphError,
    },
}

impl DataProblem {
    pub(crate) fn shape(key: &str, shape: &[u64], wanted: impl Into<String>) -> Self {
        Self::Shape {
            key: key.into(),
            shape: shape.to_vec(),
            wanted: wanted.into(),
        }
    }

    pub(crate) fn value(
        key: &str,
        index: u64,
        value: impl ToString,
        why: impl Into<String>,
    ) -> Self {
        Self::Value {
            key: key.into(),
            index,
            value: value.to_string(),
            why: why.into(),
        }
    }

    /// An empty vector with the capacity for the elements of an array.
    pub(crate) fn with_capacity<T>(key: &str, elements: u64) -> Result<Vec<T>, Self> {
        let mut values = Vec::new();
        let len = usize::try_from(elements).unwrap_or(usize::MAX);
        match values.try_reserve_exact(len) {
            Ok(()) => Ok(values),
            Err(_) => Err(Self::OutOfMemory {
                key: key.into(),
                elements,
                bytes: elements.saturating_mul(size_of::<T>() as u64),
            }),
        }
    }

    pub(crate) fn part(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Part {
            field: field.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn changed(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Changed {
            field,
            reason: reason.into(),
        }
    }

    pub(crate) fn frdc(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Frdc { reason }
    }

    pub(crate) fn line(line: u64, reason: impl Into<String>) -> Self {
        Self::Line {
            line,
            reason: reason.into(),
        }
    }

    pub(crate) fn graph(key: &str, error: GraphError) -> Self {
        Self::Graph {
            key: key.into(),
            error,
        }
    }
}

impl From<std::io::Error> for DataProblem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
