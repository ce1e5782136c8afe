//! Labelled graphs to train on: opened from a file, made from a seed, or put together from arrays.
//!
//! [`Dataset::open`] and [`Graph::open`](OpenGraph::open) take any format, which they detect by content:
//!
//! | format | files | labels | written |
//! |---|---|---|---|
//! | [`Format::GnnBenchmark`] | `.npz`: `adj_indptr`, `adj_indices`, `attr_…`, `labels`, `train_idx` or `train_mask`, … | yes | yes |
//! | [`Format::Pyg`] | `.npz`: `edge_index`, `x`, `y`, `train_mask`, …, `edge_weight`, `edge_attr` | yes | yes |
//! | [`Format::Torch`] | `.pt`: a `Data` object or a dictionary of the same tensors | yes | |
//! | [`Format::Csv`] | `nodes.csv` and `edges.csv`, or `.tsv`, packed or not: columns by their names | yes | |
//! | [`Format::Parquet`] | `nodes.parquet` and `edges.parquet`, the same | yes | |
//! | [`Format::Planetoid`] | `ind.NAME.{allx,ally,tx,ty,y,graph,test.index}` | yes | |
//! | [`Format::Ogb`] | `raw/edge.csv.gz`, `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`, `raw/num-node-list.csv.gz`, `split/` | yes | |
//! | [`Format::Parts`] | a folder of `manifest.json`, `vertices.bin`, `part-00000.bin`, …: [`parts`] | yes | yes |
//! | [`Format::DglReddit`] | `reddit_data.npz`, `reddit_graph.npz` | yes | |
//! | [`Format::ScipySparse`] | `.npz` of `scipy.sparse.save_npz`: CSR, CSC, COO | | yes |
//! | [`Format::MatrixMarket`] | `.mtx`, `.mtx.gz` | | yes |
//! | [`Format::EdgeList`] | `.txt`, `.txt.gz`: `from to` in each line | | yes |
//! | [`Format::RawCsr`] | `i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]` | | yes |
//! | [`Format::Frdc`] | `.frdc`: the arrays of [`Frdc`](halfgnn_graph::Frdc) behind a header | | yes |
//!
//! Readers are Cargo features, except those of [`Format::RawCsr`] and [`Format::Frdc`]: `numpy` (gnn-benchmark, PyG's
//! arrays, DGL's Reddit, scipy), `planetoid`, `ogb`, `text` (Matrix Market, edge lists), `torch`, `csv`, `parquet` and
//! `parts`. The feature of the writers is `write`. `full` is all of them but `parquet`. The error about a file that a
//! build cannot read names the feature.
//!
//! Formats of matrices give the adjacency as it is: entry (i, j) is an edge from j to i. Formats of edges name the
//! source first: `a b` is an edge from a to b, which b's row lists. [`Recipe`] makes datasets, [`Synthetic`] the one of
//! the demonstration. [`HalfRange`] finds where plain sums in half overflow. [`locate`] finds a dataset by its name.
//!
//! ```
//! use halfgnn_data::{Dataset, Features, Splits};
//! use halfgnn_graph::Graph;
//!
//! // Three vertices in a line, two features each, two classes.
//! let graph = Graph::from_edges(3, &[0, 1, 1, 2], &[1, 0, 2, 1])?;
//! let features = Features::dense(2, vec![1.0, 0.0, 0.5, 0.5, 0.0, 1.0])?;
//! let splits = Splits { train: vec![0], val: vec![1], test: vec![2] };
//! let dataset = Dataset::new("line", graph, features, vec![0, 0, 1], splits)?;
//! assert_eq!((dataset.outputs, dataset.feature_len()), (2, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// What readers share has no use in a build without them.
#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, unused_variables)
)]

mod bit_features;
pub mod digest;
mod edge_features;
mod error;
mod features;
#[cfg(feature = "files")]
pub mod file;
mod folder;
mod format;
mod graph_index;
mod half_range;
mod ids;
mod input;
pub mod message;
mod open;
#[cfg(feature = "parts")]
pub mod parts;
mod preparation;
mod published;
mod read;
mod recipe;
mod reordered;
mod row_order;
#[cfg(feature = "parts")]
mod row_spill;
pub mod rules;
mod signature;
mod splits;
mod stored;
#[cfg(feature = "write")]
mod stream;
mod synthetic;
mod targets;
#[cfg(all(test, feature = "full"))]
mod testing;
#[cfg(feature = "text")]
mod text;
mod types;
#[cfg(feature = "write")]
mod write;

pub use bit_features::BitFeatures;
pub use edge_features::EdgeFeatures;
pub use error::{DataError, DataProblem};
pub use features::{DenseFeatures, Features, SparseFeatures};
pub use format::{Format, input_files};
pub use graph_index::GraphIndex;
pub use half_range::{HalfRange, InfiniteFeatures};
pub use ids::VertexIds;
pub use input::Progress;
pub use open::{ColumnNames, OpenGraph, OpenOptions, name_of};
pub use preparation::{Origin, Preparation};
pub use published::{DATA_VARIABLE, Published, locate};
pub use recipe::{Demand, Recipe, RecipeError};
#[cfg(feature = "parts")]
pub use row_spill::RowSpill;
pub use splits::{SplitRule, Splits};
pub use stored::{StoredFeatures, StoredRow};
#[cfg(feature = "write")]
pub use stream::{StreamedGraph, Workplace};
pub use synthetic::Synthetic;
pub use targets::{LabelSets, Targets, Values};
pub use types::{EdgeType, Types, VertexType};
#[cfg(all(feature = "parquet", feature = "write"))]
pub use write::parquet::{ParquetColumn, parquet_file};
#[cfg(feature = "write")]
pub use write::{REPEATED_EDGES, SaveGraph, WriteOptions};

use halfgnn_graph::Graph;

/// The label of a vertex that has none; such a vertex may be in no split.
pub const UNLABELLED: u32 = u32::MAX;

/// What a graph alone has no place for: weights of edges in a matrix that are not all 1.
pub(crate) const WEIGHTS_LEFT_OUT: &str = "edge weights";

/// What a graph alone has no place for: what follows the two ids of a line of an edge list.
pub(crate) const COLUMNS_LEFT_OUT: &str = "the columns after the two ids";

/// More classes than this are taken for a mistake in the labels.
pub const MAX_CLASSES: u32 = 1 << 16;

/// A graph whose vertices have features and targets, some to train on, some to validate and test on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Dataset {
    /// What to call it: the name of its file, without the extension.
    pub name: String,
    /// The graph, as it is in the file: without self-loops that the file does not have.
    pub graph: Graph,
    /// The weight of each edge, in the graph's order, where they are not all 1.
    pub edge_weights: Option<Vec<f32>>,
    /// The features of each edge, in the graph's order, where the file has some.
    pub edge_features: Option<EdgeFeatures>,
    /// Which vertices belong to which graph, where the dataset has many graphs. Targets and splits are then of graphs.
    pub graphs: Option<GraphIndex>,
    /// The features of each vertex.
    pub features: Features,
    /// The prediction targets of each vertex, or of each graph where there are many.
    pub targets: Targets,
    /// How many numbers that takes of a model, [`Targets::outputs`].
    pub outputs: usize,
    /// What each class is called, where the file has names of them.
    pub class_names: Option<Vec<String>>,
    /// What each vertex is called, where the file has ids of its own.
    pub ids: Option<VertexIds>,
    /// The vertices whose labels the model learns from.
    pub train: Vec<u32>,
    /// The vertices that choose the epoch.
    pub val: Vec<u32>,
    /// The vertices that measure how good the model is.
    pub test: Vec<u32>,
    /// How many ways to split its file has.
    pub file_splits: usize,
    /// Where it came from, and what was done to it since, in that order.
    pub preparations: Vec<Preparation>,
    /// Of several types of vertices and edges what is not of the labelled type: see [`Dataset::of_types`].
    pub types: Option<Types>,
    /// Of one whose edges and features are elsewhere.
    outline: Option<Outline>,
}

/// Counts of the edges and features that are not in memory: of a dataset in parts, of which each rank reads its own.
/// The graph of such a dataset has its vertices and no edges, and its features are zeros.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outline {
    /// Edges.
    pub edges: usize,
    /// The most edges that lead to a vertex.
    pub largest_degree: u32,
    /// Vertices without a self-loop.
    pub without_loops: usize,
    /// The largest magnitude of each column of the features, 1 of a column of zeros.
    pub column_magnitudes: Vec<f32>,
}

impl Dataset {
    /// A dataset without edge weights, from its parts.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where features or targets are not one for each vertex; [`DataProblem::Value`] where a
    /// class is [`MAX_CLASSES`] or more, or a split names a vertex without a label; [`DataProblem::Overlap`] where
    /// splits overlap.
    pub fn new(
        name: impl Into<String>,
        graph: Graph,
        features: Features,
        targets: impl Into<Targets>,
        splits: Splits,
    ) -> Result<Self, DataError> {
        Self::of_parts(name.into(), graph, None, features, targets.into(), splits)
    }

    /// A dataset of many graphs: `graph` has the vertices of all of them, and `graphs` says which belong to which.
    /// Targets and splits are of graphs.
    ///
    /// ```
    /// use halfgnn_data::{Dataset, Features, GraphIndex, Splits};
    /// use halfgnn_graph::Graph;
    ///
    /// // An edge, and a triangle.
    /// let (to, from) = ([0, 1, 2, 3, 3, 4, 4, 2], [1, 0, 3, 2, 4, 3, 2, 4]);
    /// let graph = Graph::from_edges(5, &to, &from)?;
    /// let graphs = GraphIndex::new(vec![0, 2, 5])?;
    /// let features = Features::dense(1, vec![1.0; 5])?;
    /// let splits = Splits { train: vec![0, 1], ..Splits::default() };
    /// let dataset = Dataset::of_graphs("two", graph, graphs, features, vec![0, 1], splits)?;
    /// assert_eq!(dataset.graphs.as_ref().map(GraphIndex::graphs), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Dataset::new`], [`DataProblem::Shape`] where `graphs` is of another number of vertices, and
    /// [`DataProblem::Value`] where an edge joins two graphs.
    pub fn of_graphs(
        name: impl Into<String>,
        graph: Graph,
        graphs: GraphIndex,
        features: Features,
        targets: impl Into<Targets>,
        splits: Splits,
    ) -> Result<Self, DataError> {
        let targets = targets.into();
        Self::of_parts(name.into(), graph, Some(graphs), features, targets, splits)
    }

    fn of_parts(
        name: String,
        graph: Graph,
        graphs: Option<GraphIndex>,
        features: Features,
        targets: Targets,
        splits: Splits,
    ) -> Result<Self, DataError> {
        match check(&graph, graphs.as_ref(), &features, &targets, &splits) {
            Ok(()) => {
                let Splits { train, val, test } = splits;
                Ok(Self {
                    name,
                    graph,
                    edge_weights: None,
                    edge_features: None,
                    graphs,
                    features,
                    outputs: targets.outputs(),
                    targets,
                    class_names: None,
                    ids: None,
                    train,
                    val,
                    test,
                    file_splits: 0,
                    preparations: Vec::new(),
                    types: None,
                    outline: None,
                })
            }
            Err(problem) => Err(DataError::new(name, problem)),
        }
    }

    /// The synthetic dataset of the demonstration: [`Synthetic::default`] with seed 0.
    ///
    /// # Errors
    /// None that could happen with these parameters.
    pub fn synthetic() -> Result<Self, DataError> {
        Synthetic::default().generate(0)
    }

    /// The number of features of a vertex (F).
    pub fn feature_len(&self) -> usize {
        self.features.feature_len()
    }

    /// The number of edges, of all types; of an [`Outline`] those that its parts have.
    pub fn edges(&self) -> usize {
        if let Some(types) = &self.types {
            return types.edge_count();
        }
        let outline = self.outline.as_ref();
        outline.map_or(self.graph.edges(), |outline| outline.edges)
    }

    /// The most edges, of one type, that lead to a vertex.
    pub fn largest_degree(&self) -> u32 {
        if let Some(types) = &self.types {
            let degrees = types.edges().iter().map(|of| of.edges.longest_row());
            return degrees.max().unwrap_or(0);
        }
        let outline = self.outline.as_ref();
        outline.map_or_else(
            || self.graph.csr().longest_row(),
            |outline| outline.largest_degree,
        )
    }

    /// The number of vertices without a self-loop.
    pub fn without_loops(&self) -> usize {
        let csr = self.graph.csr();
        let missing = |&row: &usize| csr.row(row).binary_search(&(row as u32)).is_err();
        let outline = self.outline.as_ref();
        outline.map_or_else(
            || (0..csr.vertices()).filter(missing).count(),
            |outline| outline.without_loops,
        )
    }

    /// The largest magnitude of each column of the features, and 1 of a column of zeros.
    ///
    /// # Errors
    /// Those of [`Features::column_magnitudes`].
    pub fn column_magnitudes(&self) -> Result<Vec<f32>, DataProblem> {
        match &self.outline {
            Some(outline) => Ok(outline.column_magnitudes.clone()),
            None => self.features.column_magnitudes(),
        }
    }

    /// What is known of the rest of a dataset that is an outline of parts; none of one that is there as a whole.
    pub fn outline(&self) -> Option<&Outline> {
        self.outline.as_ref()
    }

    /// What targets and splits are of: `vertex`, or `graph` where there are many.
    pub fn member(&self) -> &'static str {
        match self.graphs {
            Some(_) => "graph",
            None => "vertex",
        }
    }

    /// Several of [them](Dataset::member).
    pub fn members(&self) -> &'static str {
        match self.graphs {
            Some(_) => "graphs",
            None => "vertices",
        }
    }

    /// The class of each vertex, or [`UNLABELLED`], for callers that support classes only.
    ///
    /// # Errors
    /// [`DataProblem::OtherTargets`] where targets are labels or values.
    pub fn class_labels(&self) -> Result<&[u32], DataError> {
        self.targets.classes().ok_or_else(|| {
            let found = self.targets.description();
            DataError::new(&self.name, DataProblem::OtherTargets { found })
        })
    }

    /// Divides each column of the features by its divisor, as [`Features::column_magnitudes`] gives them for this
    /// dataset or for the one that a model was trained on. `by` is the origin of the request.
    ///
    /// # Panics
    /// If there is not one divisor a column.
    pub fn scale_features(&mut self, divisors: &[f32], by: Origin) {
        self.features.divide_columns(divisors);
        let of = match by {
            Origin::Checkpoint => "largest magnitude in what the model was trained on",
            _ => "largest magnitude",
        };
        let most = divisors.iter().copied().fold(0.0, f32::max);
        let what = format!(
            "each of {} columns divided by its {of}, of which {most} is the largest",
            divisors.len()
        );
        self.preparations
            .push(Preparation::new("features", what, by));
    }
}

/// That the parts fit together.
fn check(
    graph: &Graph,
    graphs: Option<&GraphIndex>,
    features: &Features,
    targets: &Targets,
    splits: &Splits,
) -> Result<(), DataProblem> {
    let vertices = graph.vertices();
    if features.vertices() != vertices {
        let shape = [features.vertices() as u64, features.feature_len() as u64];
        return Err(DataProblem::shape(
            "features",
            &shape,
            format!("a row for each of {vertices} vertices"),
        ));
    }
    if let Some(graphs) = graphs {
        graphs.expect_apart(graph)?;
    }
    let members = graphs.map_or(vertices, GraphIndex::graphs);
    if targets.vertices() != members {
        let of = graphs.map_or("vertex", |_| "graph");
        let wanted = format!("({members}), a label for each {of}");
        return Err(DataProblem::shape(
            "labels",
            &[targets.vertices() as u64],
            wanted,
        ));
    }
    targets.check()?;
    splits.check(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(features: usize, labels: &[u32], train: &[u32]) -> Result<Dataset, DataError> {
        let graph = Graph::from_edges(2, &[0], &[1]).unwrap();
        let features = Features::dense(1, vec![0.5; features]).unwrap();
        let splits = Splits {
            train: train.to_vec(),
            ..Splits::default()
        };
        Dataset::new("pair", graph, features, labels.to_vec(), splits)
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        assert_eq!(new(2, &[3, UNLABELLED], &[0]).unwrap().outputs, 4);
        assert_eq!(new(2, &[UNLABELLED; 2], &[]).unwrap().outputs, 0);
        let message = |result: Result<Dataset, DataError>| result.unwrap_err().to_string();
        assert_eq!(
            message(new(3, &[0, 1], &[])),
            "pair: features: the shape is [3, 1], where a row for each of 2 vertices is wanted"
        );
        assert!(message(new(2, &[0], &[])).starts_with("pair: labels: the shape is [1]"));
        assert!(
            message(new(2, &[0, 65_536], &[]))
                .starts_with("pair: labels[1] is 65536, but more than 65536")
        );
        assert!(
            message(new(2, &[0, 1], &[2]))
                .starts_with("pair: train[0] is 2, but there are 2 vertices")
        );
    }
}
