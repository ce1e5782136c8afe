//! Collections of graphs as TU Dortmund publishes them (Morris et al., 2020): MUTAG, PROTEINS, IMDB-BINARY and others,
//! as the archive from the site or what it unpacks to.
//!
//! ```text
//! MUTAG/
//!   MUTAG_A.txt                 1, 2        an edge a line, vertices of all graphs numbered from 1
//!   MUTAG_graph_indicator.txt   1           the graph of each vertex, from 1
//!   MUTAG_graph_labels.txt      -1          the class of each graph: any whole numbers
//!   MUTAG_graph_attributes.txt  0.5, 2      numbers of each graph, in the place of classes
//!   MUTAG_node_labels.txt       3           kinds of each vertex, one or several columns
//!   MUTAG_node_attributes.txt   0.1, -2     numbers of each vertex
//!   MUTAG_edge_labels.txt, MUTAG_edge_attributes.txt, for each edge in the order of MUTAG_A.txt
//! ```
//! The first two are always there. Features of a vertex are its numbers and then a one-hot column for each of its
//! kinds. Where vertices have neither, they are the one-hot degree, as in the code of GIN's paper (Xu et al., 2019).
//! Self-loops and duplicate edges are left out, as PyG leaves them out.

#[cfg(feature = "numpy")]
pub(crate) mod archive;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::error::{DataError, DataProblem};
use crate::folder::{Folder, entries};
use crate::input::Input;
use crate::open::Parts;
use crate::rules;
use table::{Kinds, Table, distinct, finite, float, whole};

use crate::{EdgeFeatures, Features, GraphIndex, MAX_CLASSES, Origin, Preparation, Targets};
use halfgnn_graph::{Graph, edge_order};

/// What belongs in the folder.
pub(crate) const LAYOUT: &str = "a collection of TU's is NAME_A.txt, NAME_graph_indicator.txt, NAME_graph_labels.txt and, where \
     there are such, NAME_node_labels.txt, NAME_node_attributes.txt and others";

const INDICATOR: &str = "_graph_indicator.txt";

/// The name of the collection that has such a file.
pub(crate) fn name_of(file: &str) -> Option<&str> {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    file.strip_suffix(INDICATOR).filter(|name| !name.is_empty())
}

/// The names of the collections in a folder.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, DataProblem> {
    let files = entries(folder)?;
    Ok(files
        .iter()
        .filter_map(|file| name_of(file))
        .map(String::from)
        .collect())
}

/// Where the files of a collection are.
pub(crate) trait Collection {
    /// Whether there is `NAME_<file>.txt`.
    fn has(&self, file: &str) -> bool;

    /// Reads it.
    fn read<T>(
        &mut self,
        file: &str,
        read: impl FnOnce(Input<'_>) -> Result<T, DataProblem>,
    ) -> Result<T, DataError>;

    /// A problem with what files come to together, named after one of them.
    fn problem(&self, file: &str, problem: DataProblem) -> DataError;
}

/// A folder, and the name of a collection in it.
pub(crate) struct InFolder<'a>(pub Folder<'a>, pub String);

impl InFolder<'_> {
    fn file(&self, file: &str) -> String {
        format!("{}_{file}.txt", self.1)
    }
}

impl Collection for InFolder<'_> {
    fn has(&self, file: &str) -> bool {
        self.0.find(&self.file(file)).is_some()
    }

    fn read<T>(
        &mut self,
        file: &str,
        read: impl FnOnce(Input<'_>) -> Result<T, DataProblem>,
    ) -> Result<T, DataError> {
        self.0.read(&self.file(file), read)
    }

    fn problem(&self, file: &str, problem: DataProblem) -> DataError {
        self.0.problem(&self.file(file), problem)
    }
}

/// Reads a collection.
pub(crate) fn read(files: &mut impl Collection) -> Result<Parts, DataError> {
    let indicator = files.read("graph_indicator", |input| {
        let graphs = Table::read(input, whole::<u32>, "number of a graph, from 1")?;
        let graphs = graphs.line("graph_indicator")?;
        let first = graphs.iter().position(|&graph| graph == 0);
        if let Some(at) = first {
            return Err(DataProblem::value(
                "graph_indicator",
                at as u64,
                0,
                "but graphs are numbered from 1",
            ));
        }
        let from_0: Vec<u32> = graphs.iter().map(|&graph| graph - 1).collect();
        GraphIndex::of_vertices(&from_0)
    })?;
    let vertices = indicator.vertices();
    let mut done = Vec::new();
    let (graph, edges) = graph(files, &indicator, &mut done)?;
    let edge_features = edge_features(files, &edges, graph.edges(), &mut done)?;
    let features = features(files, &graph, &mut done)?;
    debug_assert_eq!(features.vertices(), vertices);
    let (targets, class_names) = targets(files, indicator.graphs(), &mut done)?;
    Ok(Parts {
        edge_features,
        class_names,
        graphs: Some(indicator),
        done,
        ..Parts::new(graph, features, targets)
    })
}

/// Kinds for each of which a dense row has a place.
const MOST_KINDS: usize = 4096;

/// Of each edge of the file that of the graph, or [`LEFT_OUT`].
const LEFT_OUT: u32 = u32::MAX;

/// The graph, and which of its edges each line of the file is.
fn graph(
    files: &mut impl Collection,
    indicator: &GraphIndex,
    done: &mut Vec<Preparation>,
) -> Result<(Graph, Vec<u32>), DataError> {
    let vertices = indicator.vertices();
    let of_vertex = indicator.of_each_vertex();
    let [sources, targets] = files.read("A", |input| {
        let table = Table::read(input, whole::<u32>, "vertex, from 1")?;
        let wanted = "(E, 2), both ends of an edge in each line";
        table.expect_columns("A", 2, wanted)?;
        let mut ends = [0, 1].map(|_| Vec::with_capacity(table.values.len() / 2));
        for (line, pair) in table.values.chunks_exact(2).enumerate() {
            if let Some(&end) = pair.iter().find(|&&end| end == 0 || end as usize > vertices) {
                let reason = format!("vertex {end} is none of {vertices}, numbered from 1");
                return Err(DataProblem::line(line as u64 + 1, reason));
            }
            let graphs = [0, 1].map(|of| of_vertex[pair[of] as usize - 1] + 1);
            if graphs[0] != graphs[1] {
                let reason = format!(
                    "an edge from vertex {} of graph {} to vertex {} of graph {}; edges stay within a graph",
                    pair[0], graphs[0], pair[1], graphs[1]
                );
                return Err(DataProblem::line(line as u64 + 1, reason));
            }
            ends[0].push(pair[0] - 1);
            ends[1].push(pair[1] - 1);
        }
        Ok(ends)
    })?;
    let refuse = |error| DataProblem::graph("A", error);
    let order = edge_order(vertices, &targets, &sources)
        .map_err(|error| files.problem("A", refuse(error)))?;
    let mut places = vec![LEFT_OUT; order.len()];
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    let (mut loops, mut again) = (0_usize, 0_usize);
    for &line in &order {
        let (row, column) = (targets[line as usize], sources[line as usize]);
        if row == column {
            loops += 1;
            continue;
        }
        if (rows.last(), columns.last()) == (Some(&row), Some(&column)) {
            again += 1;
        } else {
            rows.push(row);
            columns.push(column);
        }
        places[line as usize] = rows.len() as u32 - 1;
    }
    if loops + again > 0 {
        let what = format!(
            "{loops} of a vertex to itself and {again} that stood there before left out, as PyG leaves them out"
        );
        done.push(Preparation::new("edges", what, Origin::Default));
    }
    let graph = Graph::from_edges(vertices, &rows, &columns)
        .map_err(|error| files.problem("A", refuse(error)))?;
    Ok((graph, places))
}

/// Numbers and kinds of edges; of one that stands there twice the sums.
fn edge_features(
    files: &mut impl Collection,
    places: &[u32],
    edges: usize,
    done: &mut Vec<Preparation>,
) -> Result<Option<EdgeFeatures>, DataError> {
    let mut parts = Vec::new();
    if let Some(numbers) = numbers(files, "edge_attributes", places.len(), "edge")? {
        parts.push((numbers.columns, numbers.values));
    }
    if let Some((kinds, what)) = kinds(files, "edge_labels", places.len(), "edge")? {
        done.push(Preparation::new("edge features", what, Origin::Default));
        let rows = places.len();
        let mut values =
            DataProblem::with_capacity("edge_labels", (rows as u64) * kinds.all as u64)
                .map_err(|problem| files.problem("edge_labels", problem))?;
        values.resize(rows * kinds.all, 0.0_f32);
        for (row, of_row) in kinds.rows.chunks_exact(kinds.columns).enumerate() {
            for &kind in of_row {
                values[row * kinds.all + kind as usize] = 1.0;
            }
        }
        parts.push((kinds.all, values));
    }
    let width: usize = parts.iter().map(|(columns, _)| columns).sum();
    if width == 0 || edges == 0 {
        return Ok(None);
    }
    let mut values = vec![0.0; edges * width];
    let mut first = 0;
    for (columns, part) in &parts {
        for (line, row) in part.chunks_exact(*columns).enumerate() {
            if places[line] != LEFT_OUT {
                let place = places[line] as usize * width + first;
                let sums = &mut values[place..place + columns];
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, value)| *sum += value);
            }
        }
        first += columns;
    }
    EdgeFeatures::new(width, values)
        .map(Some)
        .map_err(|problem| files.problem("edge_attributes", problem))
}

/// Numbers of each vertex and a one for each of its kinds, or for its degree where it has neither.
fn features(
    files: &mut impl Collection,
    graph: &Graph,
    done: &mut Vec<Preparation>,
) -> Result<Features, DataError> {
    let vertices = graph.vertices();
    let numbers = numbers(files, "node_attributes", vertices, "vertex")?;
    let kinds = kinds(files, "node_labels", vertices, "vertex")?;
    let (kinds, what) = match (kinds, &numbers) {
        (Some((kinds, what)), Some(numbers)) => {
            let what = format!("{} numbers of each vertex, and {what}", numbers.columns);
            (kinds, what)
        }
        (Some(found), None) => found,
        (None, Some(numbers)) => {
            let what = format!("{} numbers of each vertex", numbers.columns);
            done.push(Preparation::new("features", what, Origin::File));
            let Table { columns, values } = numbers;
            return Features::dense(*columns, values.clone())
                .map_err(|problem| files.problem("node_attributes", problem));
        }
        (None, None) => {
            let degrees = graph.in_degrees().into_iter().map(i64::from);
            let kinds = Kinds::of(&Table {
                columns: 1,
                values: degrees.collect(),
            });
            let what = format!(
                "a one for the degree, of which there are {}, for vertices have neither labels nor attributes",
                kinds.all
            );
            (kinds, what)
        }
    };
    done.push(Preparation::new("features", what, Origin::Default));
    let refuse = |problem| files.problem("node_labels", problem);
    let Some(numbers) = numbers else {
        let offsets = (0..=vertices).map(|row| (row * kinds.columns) as u64);
        let ones = vec![1.0; kinds.rows.len()];
        return Features::sparse(kinds.all, offsets.collect(), kinds.rows, ones).map_err(refuse);
    };
    let width = numbers.columns + kinds.all;
    let mut values =
        DataProblem::with_capacity("features", vertices as u64 * width as u64).map_err(refuse)?;
    values.resize(vertices * width, 0.0);
    for (vertex, row) in values.chunks_exact_mut(width).enumerate() {
        let (own, ones) = row.split_at_mut(numbers.columns);
        own.copy_from_slice(&numbers.values[vertex * numbers.columns..][..numbers.columns]);
        let of_vertex = &kinds.rows[vertex * kinds.columns..][..kinds.columns];
        of_vertex.iter().for_each(|&kind| ones[kind as usize] = 1.0);
    }
    Features::dense(width, values).map_err(refuse)
}

/// The targets of each graph, and the names of its classes.
fn targets(
    files: &mut impl Collection,
    graphs: usize,
    done: &mut Vec<Preparation>,
) -> Result<(Targets, Option<Vec<String>>), DataError> {
    let file = match ["graph_attributes", "graph_labels"]
        .into_iter()
        .find(|file| files.has(file))
    {
        Some(file) => file,
        None => return Ok((Targets::unlabelled(graphs), None)),
    };
    files.read(file, |input| {
        let table = Table::read(input, float, "number")?;
        table.expect_rows(file, graphs, "graph")?;
        let is_whole = |&value: &f32| value.fract() == 0.0 && value.abs() < 16_777_216.0;
        if file == "graph_labels" && table.columns == 1 && table.values.iter().all(is_whole) {
            let labels = Table {
                columns: 1,
                values: table.values.iter().map(|&label| label as i64).collect(),
            };
            let (kinds, names) = (Kinds::of(&labels), distinct(&labels.values));
            if kinds.all > MAX_CLASSES as usize {
                let wanted = format!("numbers of at most {MAX_CLASSES} classes");
                return Err(DataProblem::shape(file, &[kinds.all as u64], wanted));
            }
            // Those that are numbered from 0 have no other name.
            let named = names
                .iter()
                .enumerate()
                .any(|(class, &name)| class as i64 != name);
            let names = named.then(|| names.iter().map(i64::to_string).collect());
            return Ok((Targets::Classes(kinds.rows), names));
        }
        // Attributes are a regression by what they are called.
        let (targets, what) = match table.columns {
            1 => rules::values(1, table.values, "graph")?,
            columns => rules::targets(columns, table.values, "graph")?,
        };
        done.push(Preparation::new("targets", what, Origin::File));
        Ok((targets, None))
    })
}

/// Finite numbers of each of `rows`, where there is such a file.
fn numbers(
    files: &mut impl Collection,
    file: &str,
    rows: usize,
    of: &str,
) -> Result<Option<Table<f32>>, DataError> {
    if !files.has(file) {
        return Ok(None);
    }
    files
        .read(file, |input| {
            let table = Table::read(input, finite, "finite number")?;
            table.expect_rows(file, rows, of)?;
            Ok(table)
        })
        .map(Some)
}

/// Kinds of each of `rows`, where there is such a file, and what becomes of them.
fn kinds(
    files: &mut impl Collection,
    file: &str,
    rows: usize,
    of: &str,
) -> Result<Option<(Kinds, String)>, DataError> {
    if !files.has(file) {
        return Ok(None);
    }
    let kinds = files.read(file, |input| {
        let table = Table::read(input, whole::<i64>, "whole number")?;
        table.expect_rows(file, rows, of)?;
        Ok(Kinds::of(&table))
    })?;
    // Rows of edges are dense, and those of vertices that have numbers as well.
    let is_dense = of == "edge" || files.has("node_attributes");
    if is_dense && kinds.all > MOST_KINDS {
        let wanted = format!("numbers of at most {MOST_KINDS} kinds; give them as attributes");
        let problem = DataProblem::shape(file, &[kinds.all as u64], wanted);
        return Err(files.problem(file, problem));
    }
    let what = format!(
        "a one for the label of each {of}, of which there are {}",
        kinds.all
    );
    Ok(Some((kinds, what)))
}
