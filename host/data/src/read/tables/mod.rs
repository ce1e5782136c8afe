//! Two tables, of vertices and of edges. The names of their columns say what is in them.
//!
//! | table | column | meaning |
//! |---|---|---|
//! | vertices | `id`, `node_id`, `node` or `vertex` | what edges call the vertex, any text; without it rows are numbered from 0 |
//! | | `label`, `y` or `class` | whole numbers from 0: classes; other text: names of classes; numbers that are not whole: values; empty or -1: none |
//! | | `split` | `train`, `val`, `test`, or empty |
//! | | `train_mask`, `val_mask`, `test_mask` | the same as truths |
//! | | any other | a feature, a number |
//! | edges | `source`, `src` or `from`; `target`, `dst` or `to` | ids of vertices |
//! | | `weight` or `edge_weight` | the weight of the edge |
//! | | any other | a feature of the edge, a number |
//!
//! [`ColumnNames`] gives the names of columns that are called otherwise. An error about a cell has its line and column,
//! and says what the cell must be.

mod csv;
mod edges;
mod nodes;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(test)]
mod tests;
pub(crate) mod types;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{DataError, DataProblem};
use crate::input::{Input, Progress};
use crate::message::shown;
use crate::open::Parts;
use crate::rules::{is_missing, truth_of};
use crate::{ColumnNames, Origin, Preparation};
use halfgnn_graph::{Graph, edge_order};

/// Names of files that are tables of vertices, and of edges, in a folder, without their extensions.
const NODES: &str = "nodes";
const EDGES: &str = "edges";
/// What tables' names end in.
const EXTENSIONS: [&str; 5] = ["csv", "tsv", "csv.gz", "tsv.gz", "parquet"];
/// What they end in that is refused by its name.
const UNREAD: [&str; 6] = [
    "csv.zst", "tsv.zst", "csv.bz2", "tsv.bz2", "csv.xz", "tsv.xz",
];

/// A table of vertices, and one of edges.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub nodes: PathBuf,
    pub edges: PathBuf,
}

impl Pair {
    /// The tables of a folder, where it has both.
    pub fn in_folder(folder: &Path) -> Option<Self> {
        let find = |name: &str| {
            let endings = EXTENSIONS.into_iter().chain(UNREAD);
            let mut paths = endings.map(|ending| folder.join(format!("{name}.{ending}")));
            paths.find(|path| path.is_file())
        };
        Some(Self {
            nodes: find(NODES)?,
            edges: find(EDGES)?,
        })
    }

    /// The tables that `NODES,EDGES` names, where both are there.
    pub fn named(path: &Path) -> Option<Self> {
        let (nodes, edges) = path.to_str()?.split_once(',')?;
        let [nodes, edges] = [nodes, edges].map(|name| PathBuf::from(name.trim()));
        (nodes.is_file() && edges.is_file()).then_some(Self { nodes, edges })
    }

    /// Whether the table of vertices is Parquet.
    pub fn is_parquet(&self) -> bool {
        is_parquet(&self.nodes)
    }
}

fn is_parquet(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && &magic == b"PAR1"
}

/// A cell of a table.
#[cfg_attr(not(feature = "parquet"), allow(dead_code))] // texts have texts only
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell<'a> {
    Empty,
    Text(&'a str),
    Whole(i64),
    Number(f64),
    Truth(bool),
}

impl<'a> Cell<'a> {
    /// As text; of a number as it is written shortest.
    fn text(self) -> Cow<'a, str> {
        match self {
            Self::Empty => "".into(),
            Self::Text(text) => text.into(),
            Self::Whole(number) => number.to_string().into(),
            Self::Number(number) => number.to_string().into(),
            Self::Truth(truth) => u8::from(truth).to_string().into(),
        }
    }

    /// As a number: one that is finite, or NaN where it is [missing](is_missing).
    fn number(self) -> Option<f32> {
        let number = match self {
            Self::Empty => f32::NAN,
            Self::Text(text) if is_missing(text) => f32::NAN,
            Self::Text(text) => match truth_of(text) {
                Some(truth) => f32::from(u8::from(truth)),
                None => text.parse().ok()?,
            },
            Self::Whole(number) => number as f32,
            Self::Number(number) => number as f32,
            Self::Truth(truth) => f32::from(u8::from(truth)),
        };
        (!number.is_infinite()).then_some(number)
    }

    /// As a number that is there.
    fn feature(self, line: u64, column: &str) -> Result<f32, DataProblem> {
        self.number().filter(|number| !number.is_nan()).ok_or_else(|| {
            let column = shown(column.as_bytes());
            DataProblem::line(
                line,
                match self.text() {
                    text if text.is_empty() => format!("the cell in column '{column}' is empty, and a feature is a number"),
                    text if has_decimal_comma(&text) => format!(
                        "'{}' in column '{column}' has a decimal comma; write {}",
                        shown(text.as_bytes()),
                        shown(text.replace(',', ".").as_bytes())
                    ),
                    text => format!(
                        "'{}' in column '{column}' is no finite number, and every column that has no other meaning is a feature; \
                         leave the column out (--ignore-columns {column})",
                        shown(text.as_bytes())
                    ),
                },
            )
        })
    }

    fn truth(self, line: u64, column: &str) -> Result<bool, DataProblem> {
        match self.number() {
            Some(1.0) => Ok(true),
            Some(0.0) => Ok(false),
            _ => Err(DataProblem::line(
                line,
                format!(
                    "'{}' in column '{column}' is neither true nor false",
                    shown(self.text().as_bytes())
                ),
            )),
        }
    }
}

/// Whether a text is a number but for a comma in the place of its point.
fn has_decimal_comma(text: &str) -> bool {
    text.contains(',') && text.replacen(',', ".", 1).parse::<f64>().is_ok()
}

/// Takes a row and its line in the file, from 1.
type EachRow<'a> = dyn FnMut(u64, &[Cell<'_>]) -> Result<(), DataProblem> + 'a;

/// Rows of cells under names.
trait Table {
    /// The names of the columns.
    fn names(&self) -> &[String];

    /// Calls `each` with every row.
    fn for_each(&mut self, each: &mut EachRow<'_>) -> Result<(), DataProblem>;
}

/// Opens a table, whose format its first bytes show.
fn open<'a>(path: &Path, progress: &'a dyn Progress) -> Result<Box<dyn Table + 'a>, DataProblem> {
    if is_parquet(path) {
        #[cfg(feature = "parquet")]
        return Ok(Box::new(parquet::Parquet::open(path)?));
        #[cfg(not(feature = "parquet"))]
        return Err(DataProblem::NotBuilt {
            format: crate::Format::Parquet.description(),
            feature: "parquet",
        });
    }
    Ok(Box::new(csv::Csv::open(Input::open(path, progress)?)?))
}

/// Which columns are not taken yet, by their names.
struct Roles<'a> {
    names: &'a [String],
    taken: Vec<bool>,
}

impl<'a> Roles<'a> {
    fn new(names: &'a [String], ignored: &[String]) -> Self {
        let taken = names.iter().map(|name| ignored.contains(name)).collect();
        Self { names, taken }
    }

    /// The column that is called `named`, or else the one that has one of the customary names.
    fn take(
        &mut self,
        option: &str,
        named: Option<&str>,
        customary: &[&str],
    ) -> Result<Option<usize>, DataProblem> {
        let found: Vec<usize> = match named {
            Some(named) => {
                let found = self.names.iter().position(|name| name == named);
                vec![found.ok_or_else(|| self.missing(named))?]
            }
            None => (0..self.names.len())
                .filter(|&at| {
                    let is = |name: &&str| self.names[at].eq_ignore_ascii_case(name);
                    !self.taken[at] && customary.iter().any(is)
                })
                .collect(),
        };
        match found[..] {
            [] => Ok(None),
            [at] => {
                self.taken[at] = true;
                Ok(Some(at))
            }
            [first, second, ..] => Err(DataProblem::line(
                1,
                format!(
                    "columns '{}' and '{}' could both be meant; name one by {option}, and leave the other out by --ignore-columns",
                    shown(self.names[first].as_bytes()),
                    shown(self.names[second].as_bytes())
                ),
            )),
        }
    }

    /// Takes the columns that pandas writes for an index: without a name, or `Unnamed: 0` where a table was read and
    /// written again.
    fn take_index(&mut self) -> Vec<usize> {
        let is_index = |name: &str| {
            let number = name.strip_prefix("Unnamed: ");
            name.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let found = self.rest().into_iter();
        let found: Vec<usize> = found.filter(|&at| is_index(&self.names[at])).collect();
        found.iter().for_each(|&at| self.taken[at] = true);
        found
    }

    /// The names of columns as a person reads them.
    fn shown(&self, columns: &[usize]) -> String {
        let name = |&at: &usize| format!("'{}'", shown(self.names[at].as_bytes()));
        let more = if columns.len() > 5 { ", …" } else { "" };
        let some: Vec<String> = columns.iter().take(5).map(name).collect();
        some.join(", ") + more
    }

    /// The columns whose names are numbers: of a table without a line of names the first row stands in its place.
    fn numbers(&self) -> Vec<usize> {
        let is_number = |at: &usize| self.names[*at].parse::<f64>().is_ok();
        (0..self.names.len()).filter(is_number).collect()
    }

    /// What is said of columns whose names say nothing, and of an index of pandas' that is left alone.
    fn remarks(&self, table: &str, index: &[usize], done: &mut Vec<Preparation>) {
        if !index.is_empty() {
            let what = format!(
                "{} of the table of {table}, an index of pandas', is left alone",
                self.shown(index)
            );
            done.push(Preparation::new("other", what, Origin::Default));
        }
        let numbers: Vec<usize> = self.numbers();
        let numbers: Vec<usize> = numbers.into_iter().filter(|&at| !self.taken[at]).collect();
        if !numbers.is_empty() {
            let what = format!(
                "columns {} of the table of {table} have numbers for names, and are features",
                self.shown(&numbers)
            );
            done.push(Preparation::new("other", what, Origin::File));
        }
    }

    /// That the first line has names, which nothing shows where names are numbers and none has a meaning.
    fn expect_names(&self) -> Result<(), DataProblem> {
        let numbers = self.numbers();
        if numbers.is_empty() || self.taken.contains(&true) {
            return Ok(());
        }
        let reason = format!(
            "the names are numbers ({}), so that the first row may be taken for them; begin the table with a line of names, such as id,x1,x2,label",
            self.shown(&numbers)
        );
        Err(DataProblem::line(1, reason))
    }

    /// The columns that are left.
    fn rest(&self) -> Vec<usize> {
        (0..self.names.len())
            .filter(|&at| !self.taken[at])
            .collect()
    }

    fn missing(&self, named: &str) -> DataProblem {
        let names: Vec<_> = self
            .names
            .iter()
            .map(|name| shown(name.as_bytes()))
            .collect();
        DataProblem::line(
            1,
            format!(
                "there is no column '{}'; there are {}",
                shown(named.as_bytes()),
                names.join(", ")
            ),
        )
    }
}

/// That the columns to be left out are in one of the tables.
fn check_ignored(ignored: &[String], tables: [&[String]; 2]) -> Result<(), DataProblem> {
    let is_there = |name: &String| tables.iter().any(|names| names.contains(name));
    match ignored.iter().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(name) => Err(DataProblem::line(
            1,
            format!(
                "there is no column '{}' to leave out",
                shown(name.as_bytes())
            ),
        )),
    }
}

/// Reads both tables.
pub(crate) fn read(
    pair: &Pair,
    names: &ColumnNames,
    progress: &dyn Progress,
) -> Result<Parts, DataError> {
    let in_file = |path: &Path| {
        let path = path.to_owned();
        move |problem| DataError::in_file(&path, problem)
    };
    let mut nodes = open(&pair.nodes, progress).map_err(in_file(&pair.nodes))?;
    let mut edges = open(&pair.edges, progress).map_err(in_file(&pair.edges))?;
    check_ignored(&names.ignored, [nodes.names(), edges.names()]).map_err(in_file(&pair.nodes))?;
    let nodes = nodes::read(&mut *nodes, names).map_err(in_file(&pair.nodes))?;
    let index = nodes.index().map_err(in_file(&pair.nodes))?;
    let edges = edges::read(&mut *edges, names, [&index, &index]).map_err(in_file(&pair.edges))?;
    drop(index);
    let parts = || {
        let vertices = nodes.vertices();
        let refuse = |error| DataProblem::graph("edges", error);
        let (mut edge_weights, mut edge_features) = (edges.weights, edges.features);
        if edge_weights.is_some() || edge_features.is_some() {
            let order = edge_order(vertices, &edges.targets, &edges.sources).map_err(refuse)?;
            if let Some(weights) = &mut edge_weights {
                *weights = crate::edge_features::gathered("weight", weights, 1, &order)?;
            }
            if let Some(features) = &mut edge_features {
                *features = features.in_order(&order)?;
            }
        }
        let graph = Graph::from_edges(vertices, &edges.targets, &edges.sources).map_err(refuse)?;
        nodes.into_parts(graph, edge_weights, edge_features)
    };
    let mut parts = parts().map_err(in_file(&pair.nodes))?;
    parts.done.extend(edges.done);
    let ignored = names.ignored.join(", ");
    if !ignored.is_empty() {
        let what = format!("columns {ignored} are left alone");
        let step = Preparation::new("other", what, crate::Origin::Option);
        parts.done.push(step);
    }
    Ok(parts)
}

/// Reads the graph alone.
pub(crate) fn read_graph(
    pair: &Pair,
    names: &ColumnNames,
    progress: &dyn Progress,
) -> Result<Graph, DataError> {
    Ok(read(pair, names, progress)?.graph)
}
