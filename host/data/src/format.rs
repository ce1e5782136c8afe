//! Which reader a file is for.

#[cfg(feature = "text")]
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{DataError, DataProblem};
use super::input::{BYTE_ORDER_MARK, Input, Silent, check_encoding};
#[cfg(feature = "text")]
use super::message::shown;
#[cfg(feature = "parts")]
use super::parts;
#[cfg(feature = "numpy")]
use super::read::arrays::Arrays;
#[cfg(feature = "numpy")]
use super::read::npz::Npz;
#[cfg(feature = "ogb")]
use super::read::ogb;
#[cfg(feature = "planetoid")]
use super::read::planetoid;
#[cfg(feature = "csv")]
use super::read::tables;
#[cfg(feature = "torch")]
use super::read::torch;
#[cfg(feature = "text")]
use super::read::{edge_list, matrix_market, tu};
use super::read::{frdc, raw_csr};
#[cfg(feature = "numpy")]
use super::read::{pyg, reddit, scipy, types};
#[cfg(feature = "text")]
use {super::input::is_gzip, flate2::read::MultiGzDecoder};

/// A format that graphs or datasets are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The `.npz` of gnn-benchmark (Shchur et al., 2018), which holds adjacency and features as compressed rows.
    GnnBenchmark,
    /// The arrays of a `Data` object of PyTorch Geometric in an `.npz`: `edge_index`, `x`, `y`, masks, `edge_weight`,
    /// `edge_attr`.
    Pyg,
    /// A `Data` object of PyG's, or a dictionary of its tensors, as `torch.save` writes it; nothing in it is executed.
    Torch,
    /// Two tables as text, of vertices and of edges: `nodes.csv` and `edges.csv`, or `.tsv`, packed or not.
    Csv,
    /// The same tables in Parquet.
    Parquet,
    /// Planetoid's raw files, `ind.NAME.…`: pickles of Python, of which nothing is executed.
    Planetoid,
    /// The raw files of a node property prediction dataset of the Open Graph Benchmark, in their folder.
    Ogb,
    /// A collection of many graphs as TU Dortmund publishes them: `NAME_A.txt`, `NAME_graph_indicator.txt` and others.
    /// Their folder, or the `.zip` of the site.
    Tu,
    /// A folder of parts, as `halfgnn dataset partition` writes it: see [`parts`](crate::parts).
    Parts,
    /// Reddit as DGL distributes it: `reddit_data.npz` and `reddit_graph.npz`.
    DglReddit,
    /// A sparse matrix of scipy's (`scipy.sparse.save_npz`): CSR, CSC or COO. A graph only.
    ScipySparse,
    /// Matrix Market's coordinate format, `.mtx` or `.mtx.gz`. A graph only.
    MatrixMarket,
    /// An edge a line, as SNAP publishes graphs, `.txt` or `.txt.gz`. A graph only.
    EdgeList,
    /// `i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]`. A graph only.
    RawCsr,
    /// BitGNN's tiles of 4 × 4 bits ([`Frdc`](halfgnn_graph::Frdc)), `.frdc`. A graph only, whose edges occur once
    /// each. All numbers are little-endian: `"HGNNFRDC", u32 version = 1, u32 vertices, u32 edges, u32 tiles, u32
    /// tile_offsets[⌈vertices / 4⌉ + 1], u32 tile_columns[tiles], u16 tiles[tiles]`.
    Frdc,
}

impl Format {
    /// Every format.
    pub const ALL: &[Self] = &[
        Self::GnnBenchmark,
        Self::Pyg,
        Self::Torch,
        Self::Csv,
        Self::Parquet,
        Self::Planetoid,
        Self::Ogb,
        Self::Tu,
        Self::Parts,
        Self::DglReddit,
        Self::ScipySparse,
        Self::MatrixMarket,
        Self::EdgeList,
        Self::RawCsr,
        Self::Frdc,
    ];

    /// The name, as a command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GnnBenchmark => "gnn-benchmark",
            Self::Pyg => "pyg",
            Self::Torch => "torch",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
            Self::Planetoid => "planetoid",
            Self::Ogb => "ogb",
            Self::Tu => "tu",
            Self::Parts => "parts",
            Self::DglReddit => "dgl-reddit",
            Self::ScipySparse => "scipy",
            Self::MatrixMarket => "matrix-market",
            Self::EdgeList => "edge-list",
            Self::RawCsr => "raw-csr",
            Self::Frdc => "frdc",
        }
    }

    /// What to call the format in a message.
    pub const fn description(self) -> &'static str {
        match self {
            Self::GnnBenchmark => {
                "a gnn-benchmark .npz (arrays adj_indptr, adj_indices, attr_…, labels)"
            }
            Self::Pyg => "an .npz of PyG's arrays (edge_index, x, y, train_mask, …)",
            Self::Torch => "a .pt of torch.save (a Data object or a dictionary of tensors)",
            Self::Csv => "tables nodes.csv,edges.csv (.csv, .tsv, packed or not)",
            Self::Parquet => "tables nodes.parquet,edges.parquet",
            Self::Planetoid => "a folder of Planetoid's raw files (ind.NAME.allx, …)",
            Self::Ogb => "a folder of OGB's raw files (raw/edge.csv.gz, …)",
            Self::Tu => {
                "many graphs of TU's (NAME_A.txt, NAME_graph_indicator.txt, …, or their .zip)"
            }
            Self::Parts => "a folder of parts (manifest.json, vertices.bin, part-00000.bin, …)",
            Self::DglReddit => "DGL's Reddit (reddit_data.npz, reddit_graph.npz)",
            Self::ScipySparse => "a scipy sparse .npz (save_npz)",
            Self::MatrixMarket => "a Matrix Market file (.mtx, .mtx.gz)",
            Self::EdgeList => "an edge list (.txt, .txt.gz)",
            Self::RawCsr => "raw CSR (i64 vertices, i64 edges, i32 offsets, i32 columns)",
            Self::Frdc => "FRDC (tiles of 4 x 4 bits, .frdc)",
        }
    }

    /// Whether it has features and labels; if not, it is a graph only.
    pub const fn is_labelled(self) -> bool {
        match self {
            Self::GnnBenchmark
            | Self::Pyg
            | Self::Torch
            | Self::Csv
            | Self::Parquet
            | Self::Planetoid
            | Self::Ogb
            | Self::Tu
            | Self::Parts
            | Self::DglReddit => true,
            Self::ScipySparse | Self::MatrixMarket | Self::EdgeList | Self::RawCsr | Self::Frdc => {
                false
            }
        }
    }

    /// The feature that has its reader and writer; `None` of what every build has.
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            Self::GnnBenchmark | Self::Pyg | Self::DglReddit | Self::ScipySparse => Some("numpy"),
            Self::Torch => Some("torch"),
            Self::Csv => Some("csv"),
            Self::Parquet => Some("parquet"),
            Self::Planetoid => Some("planetoid"),
            Self::Ogb => Some("ogb"),
            Self::Parts => Some("parts"),
            Self::MatrixMarket | Self::EdgeList | Self::Tu => Some("text"),
            Self::RawCsr | Self::Frdc => None,
        }
    }

    /// Whether this build has it.
    const fn is_built(self) -> bool {
        match self {
            Self::GnnBenchmark | Self::Pyg | Self::DglReddit | Self::ScipySparse => {
                cfg!(feature = "numpy")
            }
            Self::Torch => cfg!(feature = "torch"),
            Self::Csv => cfg!(feature = "csv"),
            Self::Parquet => cfg!(feature = "parquet"),
            Self::Planetoid => cfg!(feature = "planetoid"),
            Self::Ogb => cfg!(feature = "ogb"),
            Self::Parts => cfg!(feature = "parts"),
            Self::MatrixMarket | Self::EdgeList | Self::Tu => cfg!(feature = "text"),
            Self::RawCsr | Self::Frdc => true,
        }
    }

    /// That this build has it.
    pub(super) fn check_built(self) -> Result<(), DataProblem> {
        match self.feature() {
            Some(feature) if !self.is_built() => Err(DataProblem::NotBuilt {
                format: self.description(),
                feature,
            }),
            _ => Ok(()),
        }
    }

    /// The format of a folder that this build may have no reader for, by the name of a file that the format always has.
    fn of_names(folder: &Path) -> Option<Self> {
        let has = |test: &dyn Fn(&str) -> bool| {
            [folder.to_path_buf(), folder.join("raw")]
                .iter()
                .any(|folder| {
                    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                    let mut names = entries.map(|entry| entry.file_name());
                    names.any(|name| test(&name.to_string_lossy()))
                })
        };
        type Has<'a> = &'a dyn Fn(&str) -> bool;
        let found: [(Self, Has<'_>); 7] = [
            (Self::Ogb, &|name| name.starts_with("edge.csv")),
            (Self::Csv, &|name| {
                name.starts_with("nodes.csv") || name.starts_with("nodes.tsv")
            }),
            (Self::Parquet, &|name| name == "nodes.parquet"),
            (Self::Planetoid, &|name| {
                name.starts_with("ind.") && name.ends_with(".graph")
            }),
            (Self::Tu, &|name| name.ends_with("_graph_indicator.txt")),
            (Self::DglReddit, &|name| name == "reddit_data.npz"),
            (Self::Parts, &|name| name == "manifest.json"),
        ];
        let mut formats = found.into_iter();
        formats.find_map(|(format, test)| has(test).then_some(format))
    }

    /// The format of a file that this build may have no reader for, by its name and first bytes.
    fn of_head(extension: Option<&str>, head: &[u8]) -> Option<Self> {
        match extension {
            _ if head.starts_with(b"PAR1") => Some(Self::Parquet),
            Some("pt" | "pth") if head.starts_with(b"PK\x03\x04") => Some(Self::Torch),
            Some("zip") if head.starts_with(b"PK\x03\x04") => Some(Self::Tu),
            _ if head.starts_with(b"PK\x03\x04") => Some(Self::Pyg),
            _ if head.starts_with(b"%%MatrixMarket") => Some(Self::MatrixMarket),
            Some("mtx") if head.starts_with(b"\x1f\x8b") => Some(Self::MatrixMarket),
            _ if head.starts_with(b"\x1f\x8b") => Some(Self::EdgeList),
            Some("csv" | "tsv") => Some(Self::Csv),
            Some("txt" | "el" | "edges") => Some(Self::EdgeList),
            _ => None,
        }
    }

    /// The format of a file or folder, by its content.
    ///
    /// # Errors
    /// [`DataProblem::Io`], [`DataProblem::Empty`], [`DataProblem::Archive`], [`DataProblem::UnknownFormat`],
    /// [`DataProblem::SeveralFormats`] of a folder, and [`DataProblem::NotBuilt`].
    pub fn detect(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        Place::of(path, None)
            .map(|place| place.format())
            .map_err(|problem| DataError::in_file(path, problem))
    }
}

/// What a path leads to.
#[derive(Debug, PartialEq)]
pub(super) enum Place {
    /// A file by itself.
    File(Format),
    /// The folder above `raw` and `split`.
    #[cfg(feature = "ogb")]
    Ogb(PathBuf),
    /// The folder with both files.
    #[cfg(feature = "numpy")]
    DglReddit(PathBuf),
    /// The folder with the manifest.
    #[cfg(feature = "parts")]
    Parts(PathBuf),
    /// A table of vertices, and one of edges.
    #[cfg(feature = "csv")]
    Tables(tables::Pair),
    /// The folder with a table for each type of vertices and of edges.
    #[cfg(feature = "csv")]
    TypedTables(tables::types::TypedTables),
    /// The folder, and the name of one dataset in it.
    #[cfg(feature = "planetoid")]
    Planetoid(PathBuf, String),
    /// The folder, and the name of one collection in it.
    #[cfg(feature = "text")]
    Tu(PathBuf, String),
}

/// A format of a folder, and its place there; or why its files are not one dataset.
type Candidate = (Format, Result<Place, DataProblem>);

impl Place {
    /// The format of what is there.
    pub fn format(&self) -> Format {
        match self {
            Self::File(format) => *format,
            #[cfg(feature = "ogb")]
            Self::Ogb(_) => Format::Ogb,
            #[cfg(feature = "numpy")]
            Self::DglReddit(_) => Format::DglReddit,
            #[cfg(feature = "parts")]
            Self::Parts(_) => Format::Parts,
            #[cfg(feature = "csv")]
            Self::Tables(pair) if pair.is_parquet() => Format::Parquet,
            #[cfg(feature = "csv")]
            Self::Tables(_) => Format::Csv,
            #[cfg(feature = "csv")]
            Self::TypedTables(tables) if tables.is_parquet() => Format::Parquet,
            #[cfg(feature = "csv")]
            Self::TypedTables(_) => Format::Csv,
            #[cfg(feature = "planetoid")]
            Self::Planetoid(..) => Format::Planetoid,
            #[cfg(feature = "text")]
            Self::Tu(..) => Format::Tu,
        }
    }

    /// Looks at a path. A `forced` format of a file is not checked. One of a folder must be among those that the names
    /// in it indicate.
    pub fn of(path: &Path, forced: Option<Format>) -> Result<Self, DataProblem> {
        forced.map_or(Ok(()), Format::check_built)?;
        if path.is_dir() {
            return Self::of_folder(path, forced);
        }
        #[cfg(feature = "csv")]
        if !path.exists()
            && let Some(pair) = tables::Pair::named(path)
        {
            return Self::Tables(pair).forced_to(forced);
        }
        #[cfg(any(
            feature = "numpy",
            feature = "parts",
            feature = "planetoid",
            feature = "text"
        ))]
        let folder = || match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        #[cfg(feature = "planetoid")]
        if let Some(name) =
            planetoid::name_in(&path.file_name().unwrap_or_default().to_string_lossy())
            && matches!(forced, None | Some(Format::Planetoid))
        {
            return Ok(Self::Planetoid(folder(), name));
        }
        #[cfg(feature = "text")]
        if let Some(name) = tu::name_of(&path.file_name().unwrap_or_default().to_string_lossy())
            && matches!(forced, None | Some(Format::Tu))
        {
            return Ok(Self::Tu(folder(), name.into()));
        }
        #[cfg(feature = "parts")]
        if path.file_name().is_some_and(|name| name == parts::MANIFEST)
            && matches!(forced, None | Some(Format::Parts))
        {
            return Ok(Self::Parts(folder()));
        }
        let format = match forced {
            Some(format) => format,
            None => of_file(path)?,
        };
        match format {
            #[cfg(feature = "numpy")]
            Format::DglReddit => Ok(Self::DglReddit(folder())),
            Format::Ogb | Format::Planetoid | Format::Csv | Format::Parquet | Format::Parts => {
                format.check_built()?;
                Err(DataProblem::SeveralFiles {
                    format: format.description(),
                })
            }
            _ => Ok(Self::File(format)),
        }
    }

    /// The place, if its format is the one that is forced, where one is.
    fn forced_to(self, forced: Option<Format>) -> Result<Self, DataProblem> {
        match forced {
            Some(forced) if forced != self.format() => Err(DataProblem::OtherFormat {
                found: self.format().description().into(),
                forced: forced.name(),
            }),
            _ => Ok(self),
        }
    }

    fn of_folder(path: &Path, forced: Option<Format>) -> Result<Self, DataProblem> {
        #[cfg(feature = "parts")]
        if forced == Some(Format::Parts) {
            // What opens it says which file it lacks.
            return Ok(Self::Parts(path.into()));
        }
        let mut found = Self::in_folder(path)?;
        let is_forced = |format: Format| forced.is_none_or(|forced| forced == format);
        let formats: Vec<Format> = found.iter().map(|(format, _)| *format).collect();
        found.retain(|(format, _)| is_forced(*format));
        match (found.pop(), forced) {
            (Some(_), _) if !found.is_empty() => Err(DataProblem::SeveralFormats {
                found: listed(&formats, " and "),
                names: (formats.iter().map(|format| format.name()))
                    .collect::<Vec<_>>()
                    .join(" or --format "),
            }),
            (Some((_, place)), _) => place,
            (None, Some(forced)) if !formats.is_empty() => Err(DataProblem::OtherFormat {
                found: listed(&formats, " and "),
                forced: forced.name(),
            }),
            (None, _) => {
                let unread = Format::of_names(path).filter(|format| is_forced(*format));
                unread.map_or(Ok(()), Format::check_built)?;
                Err(DataProblem::UnknownFormat {
                    known: known(is_forced),
                })
            }
        }
    }

    /// The formats that the names in a folder indicate, each with its path or the reason why that is not one dataset.
    fn in_folder(path: &Path) -> Result<Vec<Candidate>, DataProblem> {
        #[cfg_attr(
            not(any(
                feature = "csv",
                feature = "numpy",
                feature = "ogb",
                feature = "parts",
                feature = "planetoid",
                feature = "text"
            )),
            allow(unused_mut)
        )]
        let mut found: Vec<(Format, Result<Self, DataProblem>)> = Vec::new();
        // A path may lead to `raw`, where PyTorch Geometric and OGB keep the files, or to the folder that has it.
        #[cfg(feature = "ogb")]
        {
            let above = path.parent().filter(|_| path.ends_with("raw"));
            let mut folders = [Some(path), above].into_iter().flatten();
            if let Some(folder) = folders.find(|folder| ogb::recognises(folder)) {
                found.push((Format::Ogb, Ok(Self::Ogb(folder.into()))));
            }
        }
        #[cfg(feature = "parts")]
        if parts::is_parted(path) {
            found.push((Format::Parts, Ok(Self::Parts(path.into()))));
        }
        #[cfg(feature = "csv")]
        if let Some(pair) = tables::Pair::in_folder(path) {
            let place = Self::Tables(pair);
            found.push((place.format(), Ok(place)));
        }
        #[cfg(feature = "csv")]
        if let Some(tables) = tables::types::TypedTables::in_folder(path)? {
            let place = Self::TypedTables(tables);
            found.push((place.format(), Ok(place)));
        }
        #[cfg(any(feature = "numpy", feature = "planetoid", feature = "text"))]
        for folder in [path.to_path_buf(), path.join("raw")]
            .iter()
            .filter(|folder| folder.is_dir())
        {
            #[cfg(feature = "planetoid")]
            if let Some(place) = one_of(
                planetoid::names(folder)?,
                |name| Self::Planetoid(folder.clone(), name),
                |name| format!("ind.{name}.graph"),
            ) {
                found.push((Format::Planetoid, place));
            }
            #[cfg(feature = "text")]
            if let Some(place) = one_of(
                tu::names(folder)?,
                |name| Self::Tu(folder.clone(), name),
                |name| format!("{name}_graph_indicator.txt"),
            ) {
                found.push((Format::Tu, place));
            }
            #[cfg(feature = "numpy")]
            if folder.join(reddit::DATA).is_file() {
                found.push((Format::DglReddit, Ok(Self::DglReddit(folder.clone()))));
            }
        }
        // The same in `raw` again is the same.
        let mut seen = Vec::new();
        found.retain(|(format, _)| {
            let is_new = !seen.contains(format);
            seen.push(*format);
            is_new
        });
        Ok(found)
    }

    /// The files that are read there, as far as their names say.
    fn files(&self, path: &Path) -> Vec<PathBuf> {
        #[cfg(any(feature = "parts", feature = "planetoid", feature = "text"))]
        let named = |folder: &Path, start: &str| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
                .map(|entry| entry.path())
                .collect()
        };
        match self {
            Self::File(_) => vec![path.to_path_buf()],
            #[cfg(feature = "ogb")]
            Self::Ogb(folder) => below(folder),
            #[cfg(feature = "numpy")]
            Self::DglReddit(folder) => [reddit::DATA, reddit::GRAPH]
                .map(|name| folder.join(name))
                .into(),
            #[cfg(feature = "parts")]
            Self::Parts(folder) => named(folder, ""),
            #[cfg(feature = "csv")]
            Self::Tables(pair) => vec![pair.nodes.clone(), pair.edges.clone()],
            #[cfg(feature = "csv")]
            Self::TypedTables(tables) => tables.files(),
            #[cfg(feature = "planetoid")]
            Self::Planetoid(folder, name) => named(folder, &format!("ind.{name}.")),
            #[cfg(feature = "text")]
            Self::Tu(folder, name) => named(folder, &format!("{name}_")),
        }
    }
}

/// The files that a graph or dataset at `path` is read from, as far as their names say: for a caller that must not
/// overwrite them. A path that cannot be opened stands for itself.
pub fn input_files(path: &Path, forced: Option<Format>) -> Vec<PathBuf> {
    match Place::of(path, forced) {
        Ok(place) => place.files(path),
        Err(_) => vec![path.to_path_buf()],
    }
}

/// The files below OGB's folder, which has three levels at most: `raw/relations/EDGES`, `split/RULE/TYPE`, `mapping`.
#[cfg(feature = "ogb")]
fn below(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut level) = (Vec::new(), vec![folder.to_path_buf()]);
    for _ in 0..4 {
        let entries = (level.drain(..)).flat_map(|folder| std::fs::read_dir(folder).into_iter());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let (folders, here): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
        files.extend(here);
        level = folders;
    }
    files
}

/// The one dataset of a folder; `None` where there is none, an error where there are several.
#[cfg(any(feature = "planetoid", feature = "text"))]
fn one_of(
    names: Vec<String>,
    place: impl Fn(String) -> Place,
    example: impl Fn(&str) -> String,
) -> Option<Result<Place, DataProblem>> {
    let first = names.first()?;
    Some(match names.len() {
        1 => Ok(place(first.clone())),
        _ => Err(DataProblem::SeveralDatasets {
            example: example(first),
            names,
        }),
    })
}

fn listed(formats: &[Format], between: &str) -> String {
    let words: Vec<_> = formats.iter().map(|format| format.description()).collect();
    words.join(between)
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.iter().find(|format| format.name() == name);
        named.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            format!("no format has this name; there are {}", names.join(", "))
        })
    }
}

/// The formats of which `keep` holds, in words.
pub(super) fn known(keep: impl Fn(Format) -> bool) -> String {
    let kept = Format::ALL
        .iter()
        .filter(|format| format.is_built() && keep(**format));
    let words: Vec<_> = kept.map(|format| format.description()).collect();
    words.join("; ")
}

/// The format of a file. An error names the feature whose reader this build lacks, if there is one.
fn of_file(path: &Path) -> Result<Format, DataProblem> {
    let mut input = Input::open(path, &Silent)?;
    let problem = match of_input(&mut input) {
        Err(problem @ DataProblem::UnknownFormat { .. }) => problem,
        other => return other,
    };
    let name = path.to_string_lossy().to_lowercase();
    let name = Path::new(name.strip_suffix(".gz").unwrap_or(&name));
    let extension = name.extension().and_then(|extension| extension.to_str());
    Format::of_head(extension, &input.head(1 << 16)?).map_or(Ok(()), Format::check_built)?;
    Err(problem)
}

/// The format of a file, which is left at its beginning.
pub(super) fn of_input(input: &mut Input<'_>) -> Result<Format, DataProblem> {
    /// Enough for the comments that files begin with.
    const HEAD: u64 = 1 << 16;
    let head = input.head(HEAD)?;
    if head.is_empty() {
        return Err(DataProblem::Empty);
    }
    if frdc::recognises(&head) {
        return Ok(Format::Frdc);
    }
    if raw_csr::recognises(&head, input.len()) {
        return Ok(Format::RawCsr);
    }
    #[cfg(feature = "numpy")]
    if Npz::recognises(&head) {
        let npz = Npz::open(Input::new(&mut *input, &Silent)?)?;
        // Any other archive goes to the one reader that says which arrays it misses.
        #[cfg(not(all(feature = "text", feature = "torch")))]
        let has = |end| npz.members().iter().any(|name| name.ends_with(end));
        #[cfg(feature = "torch")]
        let is_torch = torch::recognises(npz.members().iter().map(String::as_str));
        #[cfg(not(feature = "torch"))]
        let is_torch = has("data.pkl");
        #[cfg(feature = "text")]
        let is_tu = tu::archive::recognises(npz.members().iter().map(String::as_str));
        #[cfg(not(feature = "text"))]
        let is_tu = has("_graph_indicator.txt");
        let format = if is_torch {
            Format::Torch
        } else if is_tu {
            Format::Tu
        } else if npz.has(pyg::EDGES) || types::are_several(&npz) {
            Format::Pyg
        } else if npz.has("adj_indptr") {
            Format::GnnBenchmark
        } else if reddit::recognises(&npz) {
            Format::DglReddit
        } else if scipy::recognises(&npz) {
            Format::ScipySparse
        } else {
            Format::GnnBenchmark
        };
        drop(npz);
        input.head(0)?;
        return Ok(format);
    }
    #[cfg(feature = "torch")]
    if head.starts_with(torch::OLD_MAGIC) {
        let reason = "it is of before torch 1.6; save it again by a newer torch".into();
        return Err(DataProblem::Torch { reason });
    }
    if head.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    check_encoding(&head)?;
    #[cfg(feature = "text")]
    {
        let mut text = if is_gzip(&head) {
            unpacked(&head, HEAD)
        } else {
            head
        };
        check_encoding(&text)?;
        if text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        if starts_with_banner(&text) {
            return Ok(Format::MatrixMarket);
        }
        if looks_like_edges(&text) {
            return Ok(Format::EdgeList);
        }
        if let Some(id) = name_of_vertex(&text) {
            return Err(DataProblem::NamedVertices { id });
        }
    }
    Err(DataProblem::UnknownFormat {
        known: known(|_| true),
    })
}

#[cfg(feature = "text")]
fn starts_with_banner(text: &[u8]) -> bool {
    let banner = matrix_market::BANNER.as_bytes();
    text.get(..banner.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(banner))
}

/// What can be unpacked of the first bytes of a packed file.
#[cfg(feature = "text")]
fn unpacked(head: &[u8], most: u64) -> Vec<u8> {
    let mut text = Vec::new();
    // The head ends in the middle of the stream, which is no mistake here; what came before is there.
    let _ = MultiGzDecoder::new(head).take(most).read_to_end(&mut text);
    text
}

/// Whether comments, names of columns and edges come in this order.
#[cfg(feature = "text")]
fn looks_like_edges(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = text
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.is_empty());
    let mut first = lines.find(|line| !line.starts_with(['#', '%']));
    if first.is_some_and(edge_list::is_names) {
        first = lines.next();
    }
    match first {
        Some(line) => line.starts_with(|first: char| first.is_ascii_digit()),
        // Comments alone are a graph without edges.
        None => text.trim_start().starts_with(['#', '%']),
    }
}

/// The first word of a text whose lines begin like edges between vertices that have names: two words, or a few more.
#[cfg(feature = "text")]
fn name_of_vertex(text: &[u8]) -> Option<String> {
    // The last line may be cut, and a letter in it.
    let whole = &text[..memchr::memrchr(b'\n', text).map_or(text.len(), |end| end + 1)];
    let text = std::str::from_utf8(whole).ok()?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '%']));
    let mut first = None;
    for line in lines.take(10) {
        let words: Vec<&str> = line
            .split([' ', '\t', ','])
            .filter(|word| !word.is_empty())
            .collect();
        if !(2..=4).contains(&words.len())
            || line.contains(char::is_control) && !line.contains('\t')
        {
            return None;
        }
        first = first.or(words.first().copied());
    }
    first.map(|word| shown(word.as_bytes()))
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use super::*;
    use crate::testing::{Array, Folder, archive, gzip};

    #[test]
    fn names_and_first_bytes_tell_the_feature_that_a_build_lacks() {
        let of = |extension, head: &[u8]| Format::of_head(Some(extension), head);
        assert_eq!(of("npz", b"PK\x03\x04"), Some(Format::Pyg));
        assert_eq!(of("pt", b"PK\x03\x04"), Some(Format::Torch));
        assert_eq!(of("zip", b"PK\x03\x04"), Some(Format::Tu));
        assert_eq!(of("", b"PAR1"), Some(Format::Parquet));
        assert_eq!(
            of("mtx", b"%%MatrixMarket matrix"),
            Some(Format::MatrixMarket)
        );
        assert_eq!(of("mtx", b"\x1f\x8b"), Some(Format::MatrixMarket));
        assert_eq!(of("txt", b"0 1"), Some(Format::EdgeList));
        assert_eq!(of("csv", b"id,f"), Some(Format::Csv));
        assert_eq!(of("png", b"\x89PNG"), None);
        let folder = Folder::new();
        assert_eq!(Format::of_names(folder.path()), None);
        for (file, format) in [
            ("reddit_data.npz", Format::DglReddit),
            ("x_graph_indicator.txt", Format::Tu),
            ("ind.x.graph", Format::Planetoid),
            ("nodes.parquet", Format::Parquet),
            ("nodes.tsv.gz", Format::Csv),
            ("edge.csv.gz", Format::Ogb),
        ] {
            // Each outranks those before.
            folder.write(file, b"");
            assert_eq!(Format::of_names(folder.path()), Some(format), "{file}");
        }
        let problem = DataProblem::NotBuilt {
            format: Format::Pyg.description(),
            feature: "numpy",
        };
        assert!(problem.to_string().ends_with("with the feature `numpy`"));
    }

    #[test]
    fn the_files_of_a_dataset_are_those_that_are_read() {
        let folder = Folder::new();
        let nodes = folder.write("nodes.csv", b"id\n");
        let edges = folder.write("edges.csv", b"source,target\n");
        let other = folder.write("other.txt", b"0 1\n");
        assert_eq!(
            input_files(folder.path(), None),
            [nodes.clone(), edges.clone()]
        );
        assert_eq!(input_files(&other, None), std::slice::from_ref(&other));
        assert_eq!(
            input_files(&nodes, Some(Format::EdgeList)),
            std::slice::from_ref(&nodes)
        );
        folder.write("x_graph_indicator.txt", b"");
        // In two formats it is not opened.
        assert_eq!(
            input_files(folder.path(), None),
            [folder.path().to_path_buf()]
        );
        assert_eq!(
            input_files(folder.path(), Some(Format::Csv)),
            [nodes, edges]
        );
    }

    #[test]
    fn content_tells_the_format() {
        let shape = || ("shape", Array::i64(&[1, 1]).npy());
        let raw = [1_i64, 0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .chain([0; 8])
            .collect();
        let files: [(Vec<u8>, Option<Format>); 17] = [
            (raw, Some(Format::RawCsr)),
            (b"HGNNFRDC".to_vec(), Some(Format::Frdc)),
            (archive(&[], true), Some(Format::GnnBenchmark)),
            (
                archive(&[("adj_indptr", vec![]), shape()], true),
                Some(Format::GnnBenchmark),
            ),
            (
                archive(&[("indptr", vec![]), shape()], true),
                Some(Format::ScipySparse),
            ),
            (
                b"%%MatrixMarket matrix".to_vec(),
                Some(Format::MatrixMarket),
            ),
            (gzip(b"%%matrixmarket matrix"), Some(Format::MatrixMarket)),
            (b"1 2\n".to_vec(), Some(Format::EdgeList)),
            (b"# x\n\n% y\n  1 2\n".to_vec(), Some(Format::EdgeList)),
            (b"a,b\n1,2\n".to_vec(), Some(Format::EdgeList)),
            (gzip(&b"0 1\n".repeat(50_000)), Some(Format::EdgeList)),
            (b"# nothing".to_vec(), Some(Format::EdgeList)),
            (b"a,b\nc,d\n".to_vec(), None),
            (b"\x1f\x8b".to_vec(), None),
            (b"\x89PNG".to_vec(), None),
            (b"\n\n".to_vec(), None),
            (vec![0; 100], None),
        ];
        let folder = Folder::new();
        for (bytes, expected) in files {
            let found = Format::detect(folder.write("file", &bytes));
            assert_eq!(
                found.as_ref().ok(),
                expected.as_ref(),
                "{:?}",
                &bytes[..bytes.len().min(30)]
            );
            if let Err(error) = found {
                assert!(
                    error.to_string().contains("is in no format that is known"),
                    "{error}"
                );
            }
        }
        let nothing = Format::detect(folder.write("file", b"")).unwrap_err();
        assert!(matches!(nothing.problem(), DataProblem::Empty));
    }

    #[test]
    fn names_are_read_back() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(*format));
        }
        assert!(
            "xlsx"
                .parse::<Format>()
                .unwrap_err()
                .contains("gnn-benchmark, pyg, torch,")
        );
    }
}
