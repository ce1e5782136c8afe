//! Two tables, of vertices and of edges, whose names of columns tell what is in them.
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
//! [`ColumnNames`] names them where they are called otherwise. What a cell must be and is not is told with its line and column.

mod csv;
mod edges;
mod nodes;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{DataError, DataProblem};
use crate::input::{Input, Progress};
use crate::message::shown;
use crate::open::Parts;
use crate::{ColumnNames, Preparation};
use halfgnn_graph::{Graph, edge_order};

/// Names of files that are tables of vertices, and of edges, in a folder, without their extensions.
const NODES: &str = "nodes";
const EDGES: &str = "edges";
/// What tables' names end in.
const EXTENSIONS: [&str; 5] = ["csv", "tsv", "csv.gz", "tsv.gz", "parquet"];

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
            let paths = EXTENSIONS.map(|extension| folder.join(format!("{name}.{extension}")));
            paths.into_iter().find(|path| path.is_file())
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

    /// As a number: one that is finite, or NaN where the cell is empty or says so.
    fn number(self) -> Option<f32> {
        let number = match self {
            Self::Empty => f32::NAN,
            Self::Text("") => f32::NAN,
            Self::Text("true" | "True" | "TRUE") => 1.0,
            Self::Text("false" | "False" | "FALSE") => 0.0,
            Self::Text(text) => text.parse().ok()?,
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

/// Takes a row and its line in the file, from 1.
type EachRow<'a> = dyn FnMut(u64, &[Cell<'_>]) -> Result<(), DataProblem> + 'a;

/// Rows of cells under names.
trait Table {
    /// The names of the columns.
    fn names(&self) -> &[String];

    /// Calls `each` with every row.
    fn for_each(&mut self, each: &mut EachRow<'_>) -> Result<(), DataProblem>;
}

/// Opens a table, whose first bytes tell what it is.
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

/// Which columns are left for who wants them, by what they are called.
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

    /// The columns that nobody took.
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
    let edges = edges::read(&mut *edges, names, &index).map_err(in_file(&pair.edges))?;
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
