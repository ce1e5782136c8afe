//! Where a command's graph or dataset comes from: a file, a folder, a name below `HALFGNN_DATA`, a recipe.

use crate::failure::Failure;
use crate::room;
use clap::Args;
use halfgnn::data::parts::{Parted, StreamedArchive, VertexTable, is_parted};
use halfgnn::data::{
    ColumnNames, DATA_VARIABLE, DataError, DataProblem, Dataset, Format, OpenGraph, OpenOptions,
    Origin, Preparation, Progress, Recipe, RecipeError, SplitRule, StreamedGraph, Workplace,
    locate, name_of,
};
use halfgnn::graph::Graph;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Which graph or dataset.
#[derive(Clone, Debug)]
pub enum SourceName {
    /// One that the program makes.
    Made(Recipe),
    /// One in a file or folder, or of this name below `HALFGNN_DATA`.
    File(PathBuf),
}

impl SourceName {
    /// Refuses to leave the features of what is made on disk.
    pub fn may_stay_on_disk(&self) -> Result<(), Failure> {
        match self {
            Self::Made(recipe) => Err(Failure::Input(format!(
                "{recipe}: it is made in memory, and so are its features; write it in parts by `halfgnn dataset partition {recipe} --out FOLDER`, and take that folder"
            ))),
            Self::File(_) => Ok(()),
        }
    }
}

impl FromStr for SourceName {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(recipe) => Ok(Self::Made(recipe)),
            // A file may have any name, and a recipe's mistakes are reported only where there is no such file.
            Err(RecipeError::Numbers { .. }) if Path::new(text).exists() => {
                Ok(Self::File(text.into()))
            }
            Err(RecipeError::Unknown(_)) => Ok(Self::File(text.into())),
            Err(error) => Err(error),
        }
    }
}

/// How to open a graph or dataset.
#[derive(Args, Clone, Debug, Default)]
pub struct OpenArgs {
    /// Format of the file [default: recognized by its content]
    #[arg(long, value_name = "FORMAT", help_heading = "Reading")]
    pub format: Option<Format>,
    /// Add the reverse of every edge that has none
    #[arg(long, help_heading = "Reading")]
    pub undirected: bool,
    /// Add a self-loop to every vertex that has none
    #[arg(long, help_heading = "Reading")]
    pub self_loops: bool,
    /// Leave the weights of edges out, which models otherwise use
    #[arg(long, help_heading = "Reading")]
    pub ignore_edge_weights: bool,
    /// Leave the features of edges out, which otherwise are a term in the scores of GAT's attention
    #[arg(long, help_heading = "Reading")]
    pub ignore_edge_features: bool,
    /// Divide each row of features by its sum, or do not; bags of words are divided unless this says `false`
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true, help_heading = "Reading")]
    pub normalize_features: Option<bool>,
    /// Split anew: per-class:20,30 or public:20,500,1000 or fractions:0.6,0.2, or fold:K, K from 0, of ten parts of
    /// which one is tested on and the next validated on; per-class:20,30 where the file has no splits, and
    /// fractions:0.8,0.1 of many graphs
    #[arg(long, value_name = "RULE", help_heading = "Reading")]
    pub split: Option<SplitRule>,
    /// Of tables: the column of the vertices' ids, otherwise `id`, `node_id`, `node` or `vertex`
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub id_column: Option<String>,
    /// The column of labels, otherwise `label`, `y` or `class`; several, apart by commas, are truths or numbers of each
    /// vertex
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Tables"
    )]
    pub label_columns: Vec<String>,
    /// The column of splits, otherwise `split`
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub split_column: Option<String>,
    /// The column of where edges start, otherwise `source`, `src` or `from`
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub source_column: Option<String>,
    /// The column of where edges end, otherwise `target`, `dst` or `to`
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub target_column: Option<String>,
    /// The column of weights of edges, otherwise `weight` or `edge_weight`
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub weight_column: Option<String>,
    /// Columns that are no features
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Tables"
    )]
    pub ignore_columns: Vec<String>,
    /// Which of the ways to split that the file has, from 0: masks of two dimensions have several
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "split",
        help_heading = "Reading"
    )]
    pub split_number: Option<usize>,
    /// Seed of splits and graphs that are made
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Reading")]
    pub data_seed: u64,
}

/// A graph, and the rest of a dataset where there is more.
pub enum Opened {
    /// A graph by its name.
    Graph(String, Box<Graph>),
    /// A graph with features and labels.
    Dataset(Box<Dataset>),
}

impl Opened {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        match self {
            Opened::Graph(_, graph) => graph,
            Opened::Dataset(dataset) => &dataset.graph,
        }
    }

    /// Vertices, of all types.
    pub fn vertices(&self) -> usize {
        match self {
            Opened::Dataset(dataset) if let Some(types) = &dataset.types => types.vertex_count(),
            _ => self.graph().vertices(),
        }
    }

    /// Edges, of all types.
    pub fn edges(&self) -> usize {
        match self {
            Opened::Dataset(dataset) if let Some(types) = &dataset.types => types.edge_count(),
            _ => self.graph().edges(),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Opened::Graph(name, _) => name,
            Opened::Dataset(dataset) => &dataset.name,
        }
    }
}

impl OpenArgs {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.format = self.format;
        options.undirected = self.undirected;
        options.self_loops = self.self_loops;
        options.ignore_edge_weights = self.ignore_edge_weights;
        options.ignore_edge_features = self.ignore_edge_features;
        options.normalize_features = self.normalize_features;
        options.split = self.split;
        options.split_number = self.split_number;
        options.columns = ColumnNames {
            id: self.id_column.clone(),
            labels: self.label_columns.clone(),
            split: self.split_column.clone(),
            source: self.source_column.clone(),
            target: self.target_column.clone(),
            weight: self.weight_column.clone(),
            ignored: self.ignore_columns.clone(),
        };
        options.split_seed = self.data_seed;
        options.progress = Bar::on_terminal();
        options
    }

    /// Opens or makes a dataset with labels.
    pub fn dataset(&self, name: &SourceName) -> Result<Dataset, Failure> {
        self.dataset_with(name, (false, None))
    }

    /// The same, whose features may stay on disk, and whose edges may go there, to a file without a name in a folder.
    pub fn dataset_with(
        &self,
        name: &SourceName,
        stays: (bool, Option<&Path>),
    ) -> Result<Dataset, Failure> {
        self.dataset_of(name, stays, false)
    }

    /// The same, which may have several types of vertices and edges.
    pub fn dataset_of_types(
        &self,
        name: &SourceName,
        stays: (bool, Option<&Path>),
    ) -> Result<Dataset, Failure> {
        self.dataset_of(name, stays, true)
    }

    fn dataset_of(
        &self,
        name: &SourceName,
        (features_stay, edges): (bool, Option<&Path>),
        several_types: bool,
    ) -> Result<Dataset, Failure> {
        match name {
            SourceName::Made(recipe) if several_types && recipe.has_types() => {
                room::for_recipe(recipe)?;
                let made = recipe.dataset_of_types(self.data_seed);
                made.and_then(|dataset| self.finish(dataset))
                    .map_err(refuse)
            }
            SourceName::Made(_) if features_stay => {
                name.may_stay_on_disk().and_then(|()| self.dataset(name))
            }
            SourceName::Made(recipe) => {
                room::for_recipe(recipe)?;
                let made = recipe.dataset(self.data_seed);
                let mut dataset = made
                    .and_then(|dataset| self.finish(dataset))
                    .map_err(refuse)?;
                if let Some(folder) = edges {
                    let stored = dataset.graph.to_disk(folder);
                    dataset.graph = stored.map_err(|error| Failure::Input(error.to_string()))?;
                    let told = Preparation::edges_on_disk(&dataset.graph);
                    dataset.preparations.extend(told);
                }
                Ok(dataset)
            }
            SourceName::File(path) => find(path)
                .and_then(|path| {
                    let mut options = self.options();
                    options.stored_features = features_stay;
                    options.stored_edges = edges.map(Path::to_owned);
                    options.several_types = several_types;
                    Dataset::open_with(path, &options)
                })
                .map_err(refuse),
        }
    }

    /// The folder of parts that a name leads to, if it is one; nothing of it is read but the manifest.
    pub fn parted(&self, name: &SourceName) -> Result<Option<Parted>, Failure> {
        let Some(path) = file_of(name)? else {
            return Ok(None);
        };
        match self.format {
            None if is_parted(&path) => Parted::open(path).map(Some).map_err(refuse),
            Some(Format::Parts) => Parted::open(path).map(Some).map_err(refuse),
            _ => Ok(None),
        }
    }

    /// An archive that is written in parts as it is read, near where they are to be; none of what is read whole.
    pub fn streamed(
        &self,
        name: &SourceName,
        near: &Path,
    ) -> Result<Option<StreamedArchive>, Failure> {
        let Some(path) = file_of(name)? else {
            return Ok(None);
        };
        StreamedArchive::open(&path, &self.options(), near).map_err(refuse)
    }

    /// A graph alone that is converted without being in memory as a whole; none of what is read whole.
    pub fn streamed_graph(
        &self,
        name: &SourceName,
        place: &Workplace,
    ) -> Result<Option<StreamedGraph>, Failure> {
        let Some(path) = file_of(name)? else {
            return Ok(None);
        };
        StreamedGraph::open(&path, &self.options(), place).map_err(refuse)
    }

    /// What is known of a folder of parts without reading one, for ranks that read their own.
    pub fn outline(&self, parted: &Parted, table: &VertexTable) -> Result<Dataset, Failure> {
        parted.outline(table, &self.options()).map_err(refuse)
    }

    /// Opens or makes what there is: a dataset where it has labels, else a graph. Features of a file stay as they are
    /// unless they are to be normalised. A dataset may have several types of vertices and edges.
    pub fn any(&self, name: &SourceName) -> Result<Opened, Failure> {
        let SourceName::File(path) = name else {
            return self
                .dataset_of_types(name, (false, None))
                .map(|made| Opened::Dataset(Box::new(made)));
        };
        let open = || {
            let path = find(path)?;
            let mut options = self.options();
            options.normalize_features = Some(self.normalize_features.unwrap_or(false));
            options.several_types = true;
            let format = self.format.map_or_else(|| Format::detect(&path), Ok)?;
            if format.is_labelled() {
                return Dataset::open_with(path, &options)
                    .map(|read| Opened::Dataset(Box::new(read)));
            }
            let graph = Graph::open_with(&path, &options)?;
            Ok(Opened::Graph(name_of(&path), Box::new(graph)))
        };
        open().map_err(refuse)
    }

    /// What the options say about a dataset that was made.
    fn finish(&self, dataset: Dataset) -> Result<Dataset, DataError> {
        let place = dataset.name.clone();
        let in_graph = |error| {
            DataError::new(
                &place,
                DataProblem::Graph {
                    key: "edges".into(),
                    error,
                },
            )
        };
        let options = self.options();
        if let Some(number) = options.split_number {
            let problem = DataProblem::NoSuchSplit { number, splits: 0 };
            return Err(DataError::new(&place, problem));
        }
        if options.columns != ColumnNames::default() {
            let format = "made by a recipe";
            return Err(DataError::new(&place, DataProblem::NoColumns { format }));
        }
        let mut dataset = dataset;
        if dataset.types.is_some() {
            self.finish_types(&mut dataset)?;
        }
        let done = &mut dataset.preparations;
        if self.self_loops {
            let before = dataset.graph.edges();
            dataset.graph = dataset.graph.with_self_loops().map_err(in_graph)?;
            let added = dataset.graph.edges() - before;
            done.push(Preparation::self_loops(added, Origin::Option));
        }
        if self.normalize_features == Some(true) {
            let rows = dataset.features.normalize_rows();
            done.push(Preparation::normalized(rows, Origin::Option));
        }
        if let Some(rule) = self.split {
            let splits = rule
                .split(&dataset.targets, self.data_seed)
                .map_err(|problem| DataError::new(&place, problem))?;
            (dataset.train, dataset.val, dataset.test) = (splits.train, splits.val, splits.test);
            done.retain(|step| step.of != "splits");
            done.push(Preparation::split(rule, self.data_seed, Origin::Option));
        }
        Ok(dataset)
    }
}

impl OpenArgs {
    /// What the options say about the types of a dataset.
    fn finish_types(&self, dataset: &mut Dataset) -> Result<(), DataError> {
        if self.self_loops {
            let reason = "--self-loops is of graphs of one type; leave it out";
            let problem = DataProblem::Types {
                reason: reason.into(),
            };
            return Err(DataError::new(&dataset.name, problem));
        }
        if self.normalize_features == Some(true) {
            let reason = "--normalize-features is of graphs of one type; leave it out";
            let problem = DataProblem::Types {
                reason: reason.into(),
            };
            return Err(DataError::new(&dataset.name, problem));
        }
        if self.undirected {
            dataset.add_reverse_types()?;
        }
        Ok(())
    }
}

/// Opens or makes a graph and reports its name, for a command without the options of reading.
pub fn graph(name: &Path) -> Result<(String, Graph), Failure> {
    let source: SourceName = match name.to_str() {
        Some(text) => text.parse().map_err(refuse)?,
        None => SourceName::File(name.into()),
    };
    let args = OpenArgs::default();
    match source {
        SourceName::Made(recipe) => {
            room::for_recipe(&recipe)?;
            let graph = recipe.graph(args.data_seed).map_err(refuse)?;
            Ok((recipe.to_string(), graph))
        }
        SourceName::File(path) => {
            let open = || {
                let path = find(&path)?;
                let may_have_weights = matches!(
                    Format::detect(&path)?,
                    Format::GnnBenchmark
                        | Format::Pyg
                        | Format::Torch
                        | Format::Csv
                        | Format::Parquet
                        | Format::Parts
                );
                if !may_have_weights {
                    return Ok((name_of(&path), Graph::open_with(&path, &args.options())?));
                }
                let mut options = args.options();
                options.normalize_features = Some(false);
                let dataset = Dataset::open_with(&path, &options)?;
                if dataset.edge_weights.is_some() || dataset.edge_features.is_some() {
                    tracing::warn!(
                        "{}: weights and features of its edges are left out; what is timed counts every edge the same",
                        dataset.name
                    );
                }
                Ok((dataset.name, dataset.graph))
            };
            open().map_err(|error: DataError| refuse(error))
        }
    }
}

/// The path that a name leads to; none of a recipe.
fn file_of(name: &SourceName) -> Result<Option<PathBuf>, Failure> {
    match name {
        SourceName::File(path) => find(path).map(Some).map_err(refuse),
        _ => Ok(None),
    }
}

pub(crate) fn find(path: &Path) -> Result<PathBuf, DataError> {
    let root = std::env::var_os(DATA_VARIABLE).map(PathBuf::from);
    locate(path, root.as_deref())
}

/// What is wrong with a file is the input's fault.
pub fn refuse(error: impl std::fmt::Display) -> Failure {
    Failure::Input(error.to_string())
}

/// A progress bar on stderr, where that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn on_terminal() -> Option<Arc<dyn Progress>> {
        // What takes less than a blink is not worth a bar: indicatif draws nothing before its first tick.
        std::io::stderr()
            .is_terminal()
            .then(|| Arc::new(Self(ProgressBar::no_length())) as Arc<dyn Progress>)
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, steps: u64) {
        let template = match steps {
            0 => "{spinner} {msg} {elapsed}",
            _ => "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left",
        };
        self.0.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.0.set_message(what.to_string());
        match steps {
            0 => self.0.unset_length(),
            steps => self.0.set_length(steps),
        }
        // Last: it draws.
        self.0.reset();
        self.0.enable_steady_tick(Duration::from_millis(200));
    }

    fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_and_files_are_told_apart() {
        assert!(matches!(
            "kron:10".parse(),
            Ok(SourceName::Made(Recipe::Kronecker { scale: 10 }))
        ));
        assert!(
            matches!("cora.npz".parse(), Ok(SourceName::File(path)) if path.as_os_str() == "cora.npz")
        );
        assert!(
            "kron:99"
                .parse::<SourceName>()
                .unwrap_err()
                .to_string()
                .contains("from 1 to 30")
        );
    }
}
