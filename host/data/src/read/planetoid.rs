//! Planetoid's raw files, in which Cora, Citeseer and PubMed were published: pickles of Python 2 by the name of
//! `ind.NAME.…` (Yang, Cohen, Salakhutdinov: "Revisiting semi-supervised learning with graph embeddings", 2016).
//!
//! | file | holds |
//! |---|---|
//! | `allx`, `ally` | features (a `csr_matrix`) and labels (one-hot rows) of all vertices but the test's |
//! | `tx`, `ty` | features and labels of the test's, in the order of `test.index` |
//! | `y` | labels of the vertices to train on, which come first |
//! | `graph` | `defaultdict(list)`: the neighbours of each vertex |
//! | `test.index` | as text, the vertex of each row of `tx` |
//!
//! The result is that of PyTorch Geometric's `read_planetoid_data`: the 500 vertices after those to train on validate;
//! self-loops and duplicate edges are removed. There is one difference. Vertices of Citeseer that the test's range has
//! and `test.index` lacks get no features and no label. PyTorch Geometric gives them label 0, on which a split by rule
//! must not train. A row of labels without a one has no label either.

use std::collections::HashSet;

use super::npy::Number;
use super::pickle::{Array, Pickle, Value};
use crate::error::{DataError, DataProblem};
use crate::folder::{Folder, entries};
use crate::input::Input;
use crate::open::Parts;
use crate::{Features, MAX_CLASSES, Origin, Preparation, Splits, UNLABELLED};
use halfgnn_graph::{Direction, EdgeBlocks, Graph};

use super::brought_into_order;

/// How the names of the files begin.
const PREFIX: &str = "ind.";

/// Vertices to validate on.
const VAL: u32 = 500;

/// What belongs in the folder.
pub(crate) const LAYOUT: &str =
    "Planetoid's raw files are ind.NAME.allx, .ally, .tx, .ty, .y, .graph and .test.index";

/// The datasets in a folder, by name.
pub(crate) fn names(folder: &std::path::Path) -> Result<Vec<String>, DataProblem> {
    let names = entries(folder)?.into_iter();
    let names = names.filter_map(|file| name_in(&file).filter(|_| file.ends_with(".graph")));
    Ok(names.collect())
}

/// The name in `ind.NAME.graph` and the like.
pub(crate) fn name_in(file: &str) -> Option<String> {
    let rest = file.strip_prefix(PREFIX)?;
    ["allx", "ally", "tx", "ty", "x", "y", "graph", "test.index"]
        .iter()
        .find_map(|part| rest.strip_suffix(part)?.strip_suffix('.'))
        .filter(|name| !name.is_empty())
        .map(str::to_string)
}

/// Reads the files of a name.
pub(crate) fn read(folder: &Folder<'_>, name: &str) -> Result<Parts, DataError> {
    let file = |part: &str| format!("{PREFIX}{name}.{part}");
    let rows = |part: &str| folder.read(&file(part), |input| unpickle(input, matrix));
    let classes = |part: &str| folder.read(&file(part), |input| unpickle(input, one_hot));

    let (before, test) = (rows("allx")?, rows("tx")?);
    let (mut labels, test_labels) = (classes("ally")?, classes("ty")?);
    let train = classes("y")?.len();
    let first_test = before.rows();
    let refuse = |part: &str, shape: usize, wanted: String| {
        let problem = DataProblem::shape("labels", &[shape as u64], wanted);
        folder.problem(&file(part), problem)
    };
    if labels.len() != first_test {
        return Err(refuse(
            "ally",
            labels.len(),
            format!("({first_test}), as many as allx has rows"),
        ));
    }
    if test_labels.len() != test.rows() {
        return Err(refuse(
            "ty",
            test_labels.len(),
            format!("({}), as many as tx has rows", test.rows()),
        ));
    }
    if train > first_test {
        return Err(refuse(
            "y",
            train,
            format!("(at most {first_test}), part of ally"),
        ));
    }
    if before.columns != test.columns {
        let wanted = format!("({}, {}), as wide as allx", test.rows(), before.columns);
        let shape = [test.rows() as u64, test.columns];
        return Err(folder.problem(&file("tx"), DataProblem::shape("features", &shape, wanted)));
    }
    let index = folder.read(&file("test.index"), |input| {
        test_index(input, first_test as u64, test.rows())
    })?;
    let vertices = index
        .iter()
        .map(|&vertex| vertex as usize + 1)
        .fold(first_test, usize::max);

    let mut row_of = vec![None; vertices - first_test];
    labels.resize(vertices, UNLABELLED);
    for (row, &vertex) in index.iter().enumerate() {
        row_of[vertex as usize - first_test] = Some(row);
        labels[vertex as usize] = test_labels[row];
    }
    let features = Matrix::joined(before, &test, &row_of)
        .into_features()
        .map_err(|problem| folder.problem(&file("allx"), problem))?;

    let (graph, left_out) = read_edges(folder, name, vertices)?;
    let mut done = Vec::new();
    if left_out > 0 {
        let what = format!("{left_out} self-loops and duplicates of the file left out");
        done.push(Preparation::new("edges", what, Origin::Default));
    }
    let missing = row_of.iter().filter(|row| row.is_none()).count();
    if missing > 0 {
        let what = format!(
            "{missing} vertices that test.index lacks get no features and no label, and are in no split"
        );
        done.push(Preparation::new("labels", what, Origin::Default));
    }
    let val_end = (train as u32).saturating_add(VAL).min(first_test as u32);
    let mut test = index;
    test.sort_unstable();
    let is_labelled = |vertex: &u32| labels[*vertex as usize] != UNLABELLED;
    Ok(Parts {
        splits: vec![Splits {
            train: (0..train as u32).filter(is_labelled).collect(),
            val: (train as u32..val_end).filter(is_labelled).collect(),
            test: test.into_iter().filter(is_labelled).collect(),
        }],
        are_counts: true,
        done,
        ..Parts::new(graph, features, labels.into())
    })
}

/// The graph, and how many edges of the file are not in it.
fn read_edges(
    folder: &Folder<'_>,
    name: &str,
    vertices: usize,
) -> Result<(Graph, usize), DataError> {
    folder.read(&format!("{PREFIX}{name}.graph"), |input| {
        let most = input.len();
        let progress = folder.progress;
        let edges = unpickle(input, |pickle, root| {
            let mut edges = EdgeBlocks::default();
            edges.push(neighbours(pickle, root, vertices as u64, most)?);
            Ok(edges)
        })?;
        let all = brought_into_order(edges, vertices, Direction::AsListed, progress)?;
        let graph = all
            .without_self_loops()
            .and_then(|graph| graph.deduplicated());
        let graph = graph.map_err(|error| DataProblem::graph("graph", error))?;
        let left_out = all.edges() - graph.edges();
        Ok((graph, left_out))
    })
}

/// Reads a pickle whole, and makes something of it.
fn unpickle<T>(
    mut input: Input<'_>,
    make: impl FnOnce(&Pickle<'_>, Value) -> Result<T, String>,
) -> Result<T, DataProblem> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut input, &mut bytes)?;
    if bytes.is_empty() {
        return Err(DataProblem::Empty);
    }
    Pickle::read(&bytes)
        .and_then(|pickle| make(&pickle, pickle.root()))
        .map_err(|reason| DataProblem::Pickle { reason })
}

/// A sparse matrix.
struct Matrix {
    columns: u64,
    offsets: Vec<u64>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

fn matrix(pickle: &Pickle<'_>, root: Value) -> Result<Matrix, String> {
    const CLASS: &str = "csr_matrix";
    // The field was renamed in scipy 1.11 or so; old files have the old name.
    let shape = pickle
        .field(root, CLASS, "_shape")
        .or_else(|_| pickle.field(root, CLASS, "shape"))?;
    let shape = pickle.items(shape).unwrap_or_default();
    let shape: Option<Vec<u64>> = shape.iter().map(|&side| pickle.whole(side)).collect();
    let Some([rows, columns]) = shape
        .as_deref()
        .and_then(|shape| <[u64; 2]>::try_from(shape).ok())
    else {
        return Err("the matrix has no shape".into());
    };
    let array = |field| {
        let array = pickle.field(root, CLASS, field)?;
        pickle
            .array(array)
            .map_err(|reason| format!("{field}: {reason}"))
    };
    let offsets: Vec<u64> = wholes(&array("indptr")?, "indptr", u64::MAX)?;
    let indices = wholes(&array("indices")?, "indices", columns.min(u32::MAX.into()))?;
    let values: Vec<f32> = numbers(&array("data")?)
        .map(|number| float(number) as f32)
        .collect();
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        return Err(format!(
            "data[{at}] is {}, which is no finite float",
            values[at]
        ));
    }
    if offsets.len() as u64 != rows.saturating_add(1) {
        return Err(format!(
            "indptr has {} entries, where {rows} rows want one more",
            offsets.len()
        ));
    }
    let matrix = Matrix {
        columns,
        offsets,
        indices: indices.into_iter().map(|index| index as u32).collect(),
        values,
    };
    matrix.check()?;
    Ok(matrix)
}

impl Matrix {
    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// That offsets fit what they point into, so that rows can be taken out.
    fn check(&self) -> Result<(), String> {
        let entries = self.indices.len() as u64;
        if self.values.len() as u64 != entries {
            return Err(format!(
                "data has {} entries, and indices {entries}",
                self.values.len()
            ));
        }
        halfgnn_graph::Csr::check_offsets(&self.offsets, self.indices.len())
            .map_err(|error| format!("indptr: {error}"))
    }

    fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The rows of `before`, and after them rows of `test` or empty ones.
    fn joined(before: Self, test: &Self, row_of: &[Option<usize>]) -> Self {
        let mut joined = before;
        for row in row_of {
            if let Some(row) = *row {
                joined.indices.extend(&test.indices[test.row(row)]);
                joined.values.extend(&test.values[test.row(row)]);
            }
            joined.offsets.push(joined.indices.len() as u64);
        }
        joined
    }

    fn into_features(self) -> Result<Features, DataProblem> {
        Features::sparse(
            self.columns as usize,
            self.offsets,
            self.indices,
            self.values,
        )
    }
}

/// The class of each row: the place of its largest number, the first of several; none of a row of zeros.
fn one_hot(pickle: &Pickle<'_>, root: Value) -> Result<Vec<u32>, String> {
    let array = pickle.array(root)?;
    let &[rows, columns] = array.shape.as_slice() else {
        return Err(format!(
            "labels are of shape {:?}, where rows and classes are wanted",
            array.shape
        ));
    };
    if columns == 0 || columns > MAX_CLASSES.into() || array.fortran_order && rows > 1 {
        return Err(format!(
            "labels are of shape {:?}, or in Fortran's order",
            array.shape
        ));
    }
    let numbers: Vec<f64> = numbers(&array).map(float).collect();
    let largest = |row: &[f64]| {
        let first_largest = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
        match row.iter().any(|&number| number != 0.0) {
            true => (0..row.len()).fold(0, first_largest) as u32,
            false => UNLABELLED,
        }
    };
    Ok(numbers.chunks(columns as usize).map(largest).collect())
}

fn numbers<'p>(array: &'p Array<'_>) -> impl Iterator<Item = Number> + 'p {
    let dtype = array.dtype;
    array
        .data
        .chunks_exact(dtype.size)
        .map(move |bytes| dtype.number(bytes))
}

fn float(number: Number) -> f64 {
    match number {
        Number::Float(value) => value,
        Number::Signed(value) => value as f64,
        Number::Unsigned(value) => value as f64,
    }
}

/// Whole numbers below a limit.
fn wholes(array: &Array<'_>, name: &str, limit: u64) -> Result<Vec<u64>, String> {
    let whole = |(at, number)| {
        let whole = match number {
            Number::Unsigned(value) => Some(value),
            Number::Signed(value) => u64::try_from(value).ok(),
            Number::Float(_) => None,
        };
        whole
            .filter(|&value| value < limit)
            .ok_or_else(|| format!("{name}[{at}] is no whole number below {limit}"))
    };
    numbers(array).enumerate().map(whole).collect()
}

/// Each vertex and its neighbours as edges (vertex, neighbour), of which there are at most `most`: a stream can name
/// one long list many times.
fn neighbours(
    pickle: &Pickle<'_>,
    root: Value,
    vertices: u64,
    most: u64,
) -> Result<Vec<[u32; 2]>, String> {
    let lists = pickle.pairs(root).ok_or("it is no dictionary")?;
    let mut edges = Vec::new();
    for &(vertex, list) in lists {
        let id = |value| match pickle.whole(value) {
            Some(id) if id < vertices => Ok(id as u32),
            _ => Err(format!(
                "{value:?} is no vertex: there are {vertices}, numbered from 0"
            )),
        };
        let row = id(vertex)?;
        let list = pickle
            .items(list)
            .ok_or_else(|| format!("the neighbours of {row} are no list"))?;
        if edges.len() as u64 + list.len() as u64 > most {
            return Err("the lists are longer than the file".into());
        }
        for &neighbour in list {
            edges.push([row, id(neighbour)?]);
        }
    }
    Ok(edges)
}

/// The vertex of each row of `tx`.
fn test_index(input: Input<'_>, first: u64, rows: usize) -> Result<Vec<u32>, DataProblem> {
    let mut text = input.text()?;
    let mut index = Vec::new();
    let mut seen = HashSet::new();
    // Citeseer lacks 15 of 1,015; a range that is mostly gaps is a mistake.
    let most = first + 2 * rows as u64 + 1024;
    loop {
        let line_number = text.line_number();
        let Some(line) = text.line()? else { break };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let refuse = |reason: String| DataProblem::line(line_number, reason);
        let vertex = line
            .parse()
            .ok()
            .filter(|vertex| (first..most.min(u32::MAX.into())).contains(vertex));
        let Some(vertex) = vertex else {
            let line = crate::message::shown(line.as_bytes());
            return Err(refuse(format!(
                "'{line}' is no vertex of the test's, which come after the {first} of allx"
            )));
        };
        if !seen.insert(vertex) {
            return Err(refuse(format!("vertex {vertex} stands twice")));
        }
        index.push(vertex as u32);
    }
    if index.len() != rows {
        let found = index.len();
        return Err(DataProblem::shape(
            "test.index",
            &[found as u64],
            format!("({rows}), a vertex for each row of tx"),
        ));
    }
    Ok(index)
}

#[cfg(test)]
mod tests;
