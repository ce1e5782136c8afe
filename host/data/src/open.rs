//! One way in for every format.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{DataError, DataProblem};
use super::folder::Folder;
use super::format::{self, Format, Place};
use super::input::{Input, Progress, Silent};
#[cfg(feature = "parts")]
use super::parts::Parted;
#[cfg(feature = "numpy")]
use super::read::npz::Npz;
#[cfg(feature = "ogb")]
use super::read::ogb;
#[cfg(feature = "planetoid")]
use super::read::planetoid;
#[cfg(feature = "csv")]
use super::read::tables;
#[cfg(feature = "torch")]
use super::read::torch::Torch;
#[cfg(feature = "text")]
use super::read::{edge_list, matrix_market, tu};
use super::read::{frdc, raw_csr};
#[cfg(feature = "numpy")]
use super::read::{gnn_benchmark, pyg, reddit, scipy};
use super::types;
use super::{
    Dataset, EdgeFeatures, Features, GraphIndex, Origin, Preparation, SplitRule, Splits, Targets,
    Types, VertexIds,
};
use halfgnn_graph::{AddedWeight, Graph};

/// How to open a file.
///
/// ```
/// use halfgnn_data::{OpenOptions, SplitRule};
///
/// let mut options = OpenOptions::default();
/// options.undirected = true;
/// options.split = Some(SplitRule::Fractions { train: 0.6, val: 0.2 });
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The format; `None` to go by the content.
    pub format: Option<Format>,
    /// Whether each row of features is divided by its sum where that is more than 1. `None` leaves it to the format:
    /// bags of words are.
    pub normalize_features: Option<bool>,
    /// Whether every edge gets its reverse where it has none. A graph that is symmetric stays as it is; of one that is
    /// not, duplicates go as well.
    pub undirected: bool,
    /// Whether every vertex without a self-loop gets one. (Models that want self-loops add them themselves.)
    pub self_loops: bool,
    /// Whether weights of edges are left out, so that all edges count the same.
    pub ignore_edge_weights: bool,
    /// Leaves the features of edges out.
    pub ignore_edge_features: bool,
    /// How to split; `None` for the splits of the file, and [`SplitRule::default`] where it has none.
    pub split: Option<SplitRule>,
    /// The names of tables' columns that differ from the usual ones; refused for formats without tables.
    pub columns: ColumnNames,
    /// Which of the ways to split that the file has, from 0; `None` for the first. With `split` it is refused.
    pub split_number: Option<usize>,
    /// The seed of splits that are made.
    pub split_seed: u64,
    /// Whether features stay in their files, from which rows are read on demand ([`Features::Stored`]). Only for a
    /// folder of parts; refused for other formats. All files are read once, to check them.
    pub stored_features: bool,
    /// A folder on whose disk the edges of the graph are stored ([`Graph::to_disk`]) instead of in memory. The edges of
    /// a folder of parts go there as they are read, so that memory never has all of them. The edges of other formats go
    /// there after they were read, as do those to which [reverses](Self::undirected) are added. Weights and features of
    /// edges are in memory, unless they are left out.
    pub stored_edges: Option<PathBuf>,
    /// Whether the dataset may have [several types](Dataset::types), for callers that support them; refused otherwise.
    pub several_types: bool,
    /// Receives the progress of reading.
    pub progress: Option<Arc<dyn Progress>>,
}

/// The names of the columns of tables of vertices and of edges; see [`Format::Csv`]. `None` or nothing stands for the
/// usual names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    /// The ids of vertices.
    pub id: Option<String>,
    /// The labels: one column of classes or values, or several of truths or numbers.
    pub labels: Vec<String>,
    /// The split of each vertex.
    pub split: Option<String>,
    /// Where edges start.
    pub source: Option<String>,
    /// Where they end.
    pub target: Option<String>,
    /// Their weights.
    pub weight: Option<String>,
    /// Columns of either table that are left alone.
    pub ignored: Vec<String>,
}

impl OpenOptions {
    /// That columns are named of tables only.
    pub(super) fn check_columns(&self, format: Format) -> Result<(), DataProblem> {
        let has_columns = matches!(format, Format::Csv | Format::Parquet);
        match has_columns || self.columns == ColumnNames::default() {
            true => Ok(()),
            false => Err(DataProblem::NoColumns {
                format: format.description(),
            }),
        }
    }

    pub(super) fn progress(&self) -> &dyn Progress {
        self.progress.as_deref().unwrap_or(&Silent)
    }

    /// The graph with the edges that the options ask for, what was done for that, and its weights. A reversed edge has
    /// the weight of its edge, a self-loop 1.
    fn complete(
        &self,
        mut graph: Graph,
        of_edges: &mut OfEdges,
    ) -> Result<(Graph, Vec<Preparation>), DataProblem> {
        let refuse = |error| DataProblem::graph("edges", error);
        let mut done = Vec::new();
        if self.undirected && !graph.is_symmetric() {
            let edited = graph.to_undirected().map_err(refuse)?;
            of_edges.carry(&graph, &edited, AddedWeight::OfReverse)?;
            let what = format!(
                "the reverse of each added where there was none: {} became {}",
                graph.edges(),
                edited.edges()
            );
            graph = edited;
            done.push(Preparation::new("edges", what, Origin::Option));
        }
        if self.self_loops {
            let edited = graph.with_self_loops().map_err(refuse)?;
            of_edges.carry(&graph, &edited, AddedWeight::Value(1.0))?;
            let added = edited.edges() - graph.edges();
            graph = edited;
            done.push(Preparation::self_loops(added, Origin::Option));
        }
        if let Some(folder) = self.stored_edges.as_deref()
            && !graph.csr().is_on_disk()
        {
            graph = graph.to_disk(folder).map_err(refuse)?;
        }
        done.extend(Preparation::edges_on_disk(&graph));
        Ok((graph, done))
    }
}

/// What there is one of an edge.
#[derive(Default)]
struct OfEdges {
    weights: Option<Vec<f32>>,
    features: Option<EdgeFeatures>,
}

impl OfEdges {
    /// Goes from a graph to one that was made of it.
    fn carry(
        &mut self,
        graph: &Graph,
        edited: &Graph,
        added: AddedWeight,
    ) -> Result<(), DataProblem> {
        if let Some(weights) = &mut self.weights {
            *weights = graph
                .carry_weights(weights, edited, added)
                .map_err(|error| DataProblem::graph("edges", error))?;
        }
        if let Some(features) = &mut self.features {
            *features = features.carried(graph, edited, added)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("format", &self.format)
            .field("normalize_features", &self.normalize_features)
            .field("undirected", &self.undirected)
            .field("self_loops", &self.self_loops)
            .field("ignore_edge_weights", &self.ignore_edge_weights)
            .field("ignore_edge_features", &self.ignore_edge_features)
            .field("split", &self.split)
            .field("columns", &self.columns)
            .field("split_number", &self.split_number)
            .field("split_seed", &self.split_seed)
            .field("stored_features", &self.stored_features)
            .field("stored_edges", &self.stored_edges)
            .field("several_types", &self.several_types)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// What a reader finds in a file.
pub(super) struct Parts {
    pub graph: Graph,
    pub edge_weights: Option<Vec<f32>>,
    pub edge_features: Option<EdgeFeatures>,
    pub features: Features,
    pub targets: Targets,
    pub class_names: Option<Vec<String>>,
    pub ids: Option<VertexIds>,
    /// Which vertices are whose, of many graphs.
    pub graphs: Option<GraphIndex>,
    /// The ways to split that the file has.
    pub splits: Vec<Splits>,
    /// Whether features count words, and are customarily divided by their sums.
    pub are_counts: bool,
    /// What the reader did in addition to reading.
    pub done: Vec<Preparation>,
    /// Types of vertices and edges, where there are several.
    pub types: Option<Types>,
}

impl Parts {
    /// A graph with features and targets and nothing else.
    pub fn new(graph: Graph, features: Features, targets: Targets) -> Self {
        Self {
            graph,
            edge_weights: None,
            edge_features: None,
            features,
            targets,
            class_names: None,
            ids: None,
            graphs: None,
            splits: Vec::new(),
            are_counts: false,
            done: Vec::new(),
            types: None,
        }
    }

    /// Features and targets of the labelled vertices of several types.
    pub fn of_vertices(
        vertices: usize,
        features: Features,
        targets: Targets,
    ) -> Result<Self, DataProblem> {
        let graph = types::without_edges(vertices)?;
        Ok(Self::new(graph, features, targets))
    }

    /// That the options are for several types, where there are several.
    fn check_types(&self, options: &OpenOptions) -> Result<(), DataProblem> {
        if self.types.is_none() {
            return Ok(());
        }
        let refused = [
            (options.self_loops, "self-loops are"),
            (
                options.normalize_features == Some(true),
                "dividing rows of features by their sums is",
            ),
            (options.stored_edges.is_some(), "edges on disk are"),
        ];
        match refused.into_iter().find(|(is_so, _)| *is_so) {
            _ if !options.several_types => Err(DataProblem::SeveralTypes),
            Some((_, what)) => Err(DataProblem::Types {
                reason: format!("{what} of graphs of one type; leave that out"),
            }),
            None => Ok(()),
        }
    }

    /// The split that the options ask for, and how it came about.
    fn split(
        &mut self,
        options: &OpenOptions,
        done: &mut Vec<Preparation>,
    ) -> Result<(Splits, Preparation), DataProblem> {
        let file_splits = self.splits.len();
        let number = options.split_number.unwrap_or(0);
        if let Some(number) = options.split_number
            && (options.split.is_some() || number >= file_splits)
        {
            return Err(DataProblem::NoSuchSplit {
                number,
                splits: file_splits,
            });
        }
        Ok(match options.split {
            _ if self.targets.outputs() == 0 => {
                let what = "none, so that nothing is split";
                let none = Preparation::new("labels", what, Origin::File);
                (Splits::default(), none)
            }
            None if number < file_splits => {
                let by = options
                    .split_number
                    .map_or(Origin::File, |_| Origin::Option);
                let split = Preparation::split_of_file(number, file_splits, by);
                let splits = self.splits.swap_remove(number);
                let (splits, left_out) = splits.labelled(&self.targets);
                if left_out > 0 {
                    let what =
                        format!("{left_out} of which nothing is known are left out of the splits");
                    done.push(Preparation::new("labels", what, Origin::Default));
                }
                (splits, split)
            }
            rule => {
                let by = rule.map_or(Origin::Default, |_| Origin::Option);
                let rule = rule.unwrap_or_else(|| match self.graphs {
                    Some(_) => SplitRule::default_of_graphs(),
                    None => SplitRule::default_of(&self.targets),
                });
                let seed = options.split_seed;
                let split = Preparation::split(rule, seed, by);
                (rule.split(&self.targets, seed)?, split)
            }
        })
    }

    pub(super) fn into_dataset(mut self, options: &OpenOptions) -> Result<Dataset, DataProblem> {
        self.check_types(options)?;
        let types = self.types.take();
        let mut done = std::mem::take(&mut self.done);
        if options.normalize_features.unwrap_or(self.are_counts) {
            self.features
                .expect_in_memory("dividing rows by their sums")?;
            let rows = self.features.normalize_rows();
            let by = match options.normalize_features {
                Some(_) => Origin::Option,
                None => Origin::Default,
            };
            if rows > 0 {
                done.push(Preparation::normalized(rows, by));
            }
        }
        let file_splits = self.splits.len();
        let (splits, split) = self.split(options, &mut done)?;
        done.push(split);
        if let Some(weights) = &self.edge_weights {
            done.push(Preparation::edge_weights(
                weights,
                options.ignore_edge_weights,
            ));
        }
        if options.ignore_edge_weights {
            self.edge_weights = None;
        }
        if let Some(features) = &self.edge_features {
            done.push(Preparation::edge_features(
                features.columns(),
                options.ignore_edge_features,
            ));
        }
        if options.ignore_edge_features {
            self.edge_features = None;
        }
        let mut of_edges = OfEdges {
            weights: self.edge_weights,
            features: self.edge_features,
        };
        let (graph, added) = options.complete(self.graph, &mut of_edges)?;
        done.extend(added);
        let dataset = Dataset::of_parts(
            String::new(),
            graph,
            self.graphs,
            self.features,
            self.targets,
            splits,
        )
        .map_err(DataError::into_problem)?;
        let mut dataset = Dataset {
            edge_weights: of_edges.weights,
            edge_features: of_edges.features,
            class_names: self.class_names,
            ids: self.ids,
            file_splits,
            preparations: done,
            types,
            ..dataset
        };
        if options.undirected {
            let added = dataset.add_reverse_types();
            added.map_err(DataError::into_problem)?;
        }
        Ok(dataset)
    }
}

impl Dataset {
    /// Opens a dataset: a file or a folder, whose format is detected by content. Bags of words are divided by their
    /// sums, as is customary ([`Features::normalize_rows`]).
    ///
    /// # Errors
    /// A [`DataError`] that names the file and, in it, the array or the line, the position and the value.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens a dataset as `options` say.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, DataError> {
        let path = path.as_ref();
        let in_file = |problem| DataError::in_file(path, problem);
        let progress = options.progress();
        let folder = |path, layout| Folder {
            path,
            layout,
            progress,
        };
        let place = Place::of(path, options.format).map_err(in_file)?;
        options.check_columns(place.format()).map_err(in_file)?;
        if options.stored_features && place.format() != Format::Parts {
            let place = path.display().to_string();
            return Err(in_file(DataProblem::NotStored { place }));
        }
        let source = format!("{}, read as {}", path.display(), place.format());
        let (mut parts, name) = match place {
            Place::File(format) => {
                let parts = Input::open(path, progress).and_then(|input| labelled(input, format));
                (parts.map_err(in_file)?, name_of(path))
            }
            #[cfg(feature = "ogb")]
            Place::Ogb(path) => {
                let name = name_of(&path);
                (
                    ogb::read(&folder(path, ogb::LAYOUT), options.undirected)?,
                    name,
                )
            }
            #[cfg(feature = "csv")]
            Place::Tables(pair) => {
                let name = match path.is_dir() {
                    true => name_of(path),
                    false => name_of(&pair.nodes),
                };
                (tables::read(&pair, &options.columns, progress)?, name)
            }
            #[cfg(feature = "csv")]
            Place::TypedTables(found) => {
                let read = tables::types::read(path, &found, &options.columns, progress);
                (read?, name_of(path))
            }
            #[cfg(feature = "numpy")]
            Place::DglReddit(path) => (
                reddit::read(&folder(path, reddit::LAYOUT))?,
                "reddit".into(),
            ),
            #[cfg(feature = "parts")]
            Place::Parts(path) => {
                let folder = Parted::open(&path)?;
                let parts = folder.whole(options)?;
                (parts, folder.name().into())
            }
            #[cfg(feature = "planetoid")]
            Place::Planetoid(path, name) => (
                planetoid::read(&folder(path, planetoid::LAYOUT), &name)?,
                name,
            ),
            #[cfg(feature = "text")]
            Place::Tu(path, name) => {
                let folder = folder(path, tu::LAYOUT);
                (tu::read(&mut tu::InFolder(folder, name.clone()))?, name)
            }
        };
        let source = Preparation::new("source", source, Origin::File);
        parts.done.insert(0, source);
        let dataset = parts.into_dataset(options).map_err(in_file)?;
        Ok(Self { name, ..dataset })
    }

    /// Reads a dataset from something that can be read and searched: a file, or bytes in a
    /// [`Cursor`](std::io::Cursor). Its name is empty.
    ///
    /// # Errors
    /// What is wrong, as [`Dataset::open`], without the name of a file.
    pub fn read_from(
        source: impl Read + Seek + Send,
        options: &OpenOptions,
    ) -> Result<Self, DataProblem> {
        if options.stored_features {
            let place = "FILE".into();
            return Err(DataProblem::NotStored { place });
        }
        let mut input = Input::new(source, options.progress())?;
        let format = format_of(&mut input, options)?;
        labelled(input, format)?.into_dataset(options)
    }
}

/// Graphs from files, as methods of [`Graph`].
pub trait OpenGraph: Sized {
    /// Opens a graph: a file or a folder, whose format is detected by content; of a dataset, its graph.
    ///
    /// # Errors
    /// A [`DataError`] that names the file and, in it, the array or the line, the position and the value.
    fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens a graph as `options` say; what they say about features and splits does not matter.
    ///
    /// # Errors
    /// As [`OpenGraph::open`].
    fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, DataError>;

    /// Reads a graph from something that can be read and searched: a file, or bytes in a [`Cursor`](std::io::Cursor).
    ///
    /// # Errors
    /// What is wrong, as [`OpenGraph::open`], without the name of a file.
    ///
    /// ```
    /// use halfgnn_data::{OpenGraph, OpenOptions};
    /// use halfgnn_graph::Graph;
    ///
    /// let text = std::io::Cursor::new("# from to\n0 1\n2 1\n");
    /// let graph = Graph::read_from(text, &OpenOptions::default())?;
    /// assert_eq!(graph.csr().row(1), [0, 2]);
    /// # Ok::<(), halfgnn_data::DataProblem>(())
    /// ```
    fn read_from(
        source: impl Read + Seek + Send,
        options: &OpenOptions,
    ) -> Result<Self, DataProblem>;
}

impl OpenGraph for Graph {
    fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, DataError> {
        let path = path.as_ref();
        let in_file = |problem| DataError::in_file(path, problem);
        let progress = options.progress();
        let folder = |path, layout| Folder {
            path,
            layout,
            progress,
        };
        let place = Place::of(path, options.format).map_err(in_file)?;
        options.check_columns(place.format()).map_err(in_file)?;
        let graph = match place {
            Place::File(format) => Input::open(path, progress)
                .and_then(|input| bare(input, format, options))
                .map_err(in_file)?,
            #[cfg(feature = "ogb")]
            Place::Ogb(path) => ogb::read_graph(&folder(path, ogb::LAYOUT), options.undirected)?,
            #[cfg(feature = "csv")]
            Place::Tables(pair) => tables::read_graph(&pair, &options.columns, progress)?,
            #[cfg(feature = "csv")]
            Place::TypedTables(_) => return Err(in_file(DataProblem::SeveralTypes)),
            #[cfg(feature = "numpy")]
            Place::DglReddit(path) => reddit::read_graph(&folder(path, reddit::LAYOUT))?,
            #[cfg(feature = "parts")]
            Place::Parts(path) => {
                // Only edges are needed.
                let alone = OpenOptions {
                    stored_features: true,
                    ignore_edge_weights: true,
                    ignore_edge_features: true,
                    ..options.clone()
                };
                Parted::open(&path)?.whole(&alone)?.graph
            }
            #[cfg(feature = "planetoid")]
            Place::Planetoid(path, name) => {
                planetoid::read(&folder(path, planetoid::LAYOUT), &name)?.graph
            }
            #[cfg(feature = "text")]
            Place::Tu(path, name) => {
                tu::read(&mut tu::InFolder(folder(path, tu::LAYOUT), name))?.graph
            }
        };
        let (graph, _) = options
            .complete(graph, &mut OfEdges::default())
            .map_err(in_file)?;
        Ok(graph)
    }

    fn read_from(
        source: impl Read + Seek + Send,
        options: &OpenOptions,
    ) -> Result<Self, DataProblem> {
        let mut input = Input::new(source, options.progress())?;
        let format = format_of(&mut input, options)?;
        let (graph, _) =
            options.complete(bare(input, format, options)?, &mut OfEdges::default())?;
        Ok(graph)
    }
}

/// The format that the options name, or else the one detected by content.
fn format_of(input: &mut Input<'_>, options: &OpenOptions) -> Result<Format, DataProblem> {
    options.format.map_or_else(|| format::of_input(input), Ok)
}

/// The dataset of a format that is one file.
fn labelled(input: Input<'_>, format: Format) -> Result<Parts, DataProblem> {
    format.check_built()?;
    match format {
        #[cfg(feature = "numpy")]
        Format::GnnBenchmark => gnn_benchmark::read(&mut Npz::open(input)?),
        #[cfg(feature = "numpy")]
        Format::Pyg => pyg::read(&mut Npz::open(input)?),
        #[cfg(feature = "torch")]
        Format::Torch => pyg::read(&mut Torch::open(input)?),
        #[cfg(all(feature = "text", feature = "numpy"))]
        Format::Tu => tu_archive(input),
        #[cfg(not(all(feature = "text", feature = "numpy")))]
        Format::Tu => Err(several_files(format)),
        #[cfg(not(feature = "torch"))]
        Format::Torch => Err(several_files(format)), // refused above
        Format::Planetoid
        | Format::Ogb
        | Format::DglReddit
        | Format::Csv
        | Format::Parquet
        | Format::Parts => Err(several_files(format)),
        #[cfg(not(feature = "numpy"))]
        Format::GnnBenchmark | Format::Pyg => Err(several_files(format)), // refused above
        Format::ScipySparse
        | Format::MatrixMarket
        | Format::EdgeList
        | Format::RawCsr
        | Format::Frdc => Err(DataProblem::NotLabelled {
            format: format.description(),
            known: format::known(Format::is_labelled),
        }),
    }
}

/// The graph of a format that is one file.
fn bare(input: Input<'_>, format: Format, options: &OpenOptions) -> Result<Graph, DataProblem> {
    format.check_built()?;
    let progress = options.progress();
    match format {
        #[cfg(feature = "numpy")]
        Format::GnnBenchmark => gnn_benchmark::read_graph(&mut Npz::open(input)?),
        #[cfg(feature = "numpy")]
        Format::Pyg => pyg::read_graph(&mut Npz::open(input)?),
        #[cfg(feature = "torch")]
        Format::Torch => pyg::read_graph(&mut Torch::open(input)?),
        #[cfg(feature = "numpy")]
        Format::ScipySparse => scipy::read(&mut Npz::open(input)?, progress),
        #[cfg(feature = "text")]
        Format::MatrixMarket => matrix_market::read(input, options.undirected, progress),
        #[cfg(feature = "text")]
        Format::EdgeList => edge_list::read(input, options.undirected, progress),
        #[cfg(all(feature = "text", feature = "numpy"))]
        Format::Tu => Ok(tu_archive(input)?.graph),
        Format::RawCsr => raw_csr::read(input),
        Format::Frdc => frdc::read(input),
        // Several files, or refused above.
        _ => Err(several_files(format)),
    }
}

/// A collection of TU's as its site packs it.
#[cfg(all(feature = "text", feature = "numpy"))]
fn tu_archive(input: Input<'_>) -> Result<Parts, DataProblem> {
    tu::read(&mut tu::archive::InArchive::open(input)?).map_err(|error| {
        let member = error.place().to_owned();
        let problem = Box::new(error.into_problem());
        DataProblem::Member { member, problem }
    })
}

fn several_files(format: Format) -> DataProblem {
    DataProblem::SeveralFiles {
        format: format.description(),
    }
}

/// The name of what a path leads to: its last part without extensions; of `.` or `..` the name of that folder.
pub fn name_of(path: &Path) -> String {
    let whole = match path.file_name() {
        Some(_) => None,
        None => path.canonicalize().ok(),
    };
    let path = whole.as_deref().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    Path::new(name)
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
