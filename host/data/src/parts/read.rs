//! A folder of parts, read whole or some parts of it.

use super::columns::{self, check_row};
use super::layout::{Header, Kind, Sections, check_length};
use super::manifest::{FeaturePrecision, Manifest};
use super::rows::{PartRows, RowFeatures, not_finite, zeros};
use super::table::VertexTable;
use super::{LAYOUT, MANIFEST, VERTICES, part_file};
use crate::error::{DataError, DataProblem};
use crate::input::Progress;
use crate::open::{OpenOptions, Parts};
use crate::stored::{Slots, StoredFeatures, StoredFile};
use crate::{Dataset, EdgeFeatures, Features, Format, Origin, Outline, Preparation, VertexIds};
use half::f16;
use halfgnn_graph::{Graph, parallel};
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether a path leads to a folder of parts.
pub fn is_parted(path: &Path) -> bool {
    let mut head = Vec::new();
    let file = File::open(path.join(MANIFEST));
    file.is_ok_and(|file| file.take(4096).read_to_end(&mut head).is_ok())
        && Manifest::recognises(&head)
}

/// Parts that are read at the same time take at most the bytes of all parts divided by this, or one part.
const IN_FLIGHT_DIVISOR: u64 = 8;

/// A part that was read.
struct PartRead {
    /// The places of its rows.
    places: Vec<usize>,
    offsets: Vec<u64>,
    columns: Vec<u32>,
    weights: Vec<f32>,
    /// How many an edge has, and those of all.
    edge_features: (usize, Vec<f32>),
    /// Unless they stay in the file.
    features: Option<RowFeatures>,
    /// Where features start, and columns, that stay in the file.
    stays: Stays,
    names: VertexIds,
}

/// Where in a file of a part what stays there starts.
#[derive(Default)]
struct Stays {
    features: Option<StoredFile>,
    columns: Option<StoredFile>,
}

impl PartRead {
    /// Puts it to its places, and takes note of where what is `left` there lies; gives the names of its vertices.
    fn put(self, rows: &mut PartRows, left: &mut Left) -> Result<VertexIds, DataProblem> {
        let (width, features) = self.edge_features;
        for (row, &place) in self.places.iter().enumerate() {
            let from = self.offsets[row] as usize..self.offsets[row + 1] as usize;
            let to = rows.offsets[place] as usize..rows.offsets[place + 1] as usize;
            if left.columns.is_none() {
                rows.columns[to.clone()].copy_from_slice(&self.columns[from.clone()]);
            }
            if let Some(all) = &mut rows.edge_weights {
                all[to.clone()].copy_from_slice(&self.weights[from.clone()]);
            }
            if let Some(all) = &mut rows.edge_features {
                all.values_mut()[to.start * width..to.end * width]
                    .copy_from_slice(&features[from.start * width..from.end * width]);
            }
        }
        if let (Some(left), Some(file)) = (&mut left.features, self.stays.features) {
            let first = left.rows;
            left.add(StoredFile { first, ..file }, &self.places);
        }
        if let (Some(left), Some(file)) = (&mut left.columns, self.stays.columns) {
            left.push((file, self.offsets.last().copied().unwrap_or(0)));
        }
        if let Some(own) = self.features {
            rows.features.place(own, &self.places)?;
        }
        Ok(self.names)
    }
}

/// A folder of parts, of which nothing but the manifest was read.
#[derive(Clone, Debug)]
pub struct Parted {
    path: PathBuf,
    manifest: Manifest,
}

impl Parted {
    /// Reads the manifest.
    ///
    /// # Errors
    /// [`DataProblem::MissingFile`], [`DataProblem::Part`] with the field that cannot be.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref().to_path_buf();
        let place = path.join(MANIFEST);
        let text = std::fs::read(&place).map_err(|error| missing(&path, MANIFEST, error))?;
        let manifest =
            Manifest::parse(&text).map_err(|problem| DataError::in_file(&place, problem))?;
        Ok(Self { path, manifest })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the dataset is called.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.manifest.parts.len()
    }

    /// How it was partitioned: `degree`, `louvain`, or the name of a file.
    pub fn partition(&self) -> &str {
        &self.manifest.partition
    }

    /// A number that another folder does not have.
    pub fn identity(&self) -> u64 {
        self.manifest.identity().unwrap_or_default()
    }

    /// All that the manifest says, with the checksums of every file: another folder has another.
    pub fn description(&self) -> String {
        format!("{:?}", self.manifest)
    }

    /// What features are kept in.
    pub fn feature_precision(&self) -> FeaturePrecision {
        self.manifest.feature_precision
    }

    /// What the features of all parts take in memory, at the most, while the dataset is read whole and once it is.
    pub fn memory_of_features(&self) -> u64 {
        let kept = match self.feature_precision() {
            FeaturePrecision::Half => FeaturePrecision::Half.bytes(),
            FeaturePrecision::Float => 0,
        };
        let numbers = self
            .manifest
            .vertices
            .saturating_mul(self.manifest.features);
        numbers.saturating_mul(FeaturePrecision::Float.bytes() + kept)
    }

    /// The bytes of memory that the edges and the row offsets take, while the dataset is read whole and afterwards;
    /// without weights and features of edges.
    pub fn memory_of_edges(&self) -> u64 {
        let edges = self.manifest.edges.saturating_mul(4);
        edges.saturating_add(self.manifest.vertices.saturating_mul(8))
    }

    /// The parts of one of several ranks: as many as the others have, or one more or less, one behind the other.
    ///
    /// # Errors
    /// [`DataProblem::Part`] where there are more ranks than parts.
    pub fn range_of(&self, rank: usize, ranks: usize) -> Result<Range<usize>, DataError> {
        let parts = self.parts();
        if ranks > parts {
            let reason =
                format!("there are {parts}, and {ranks} ranks, each of which reads one at least");
            return Err(self.problem(MANIFEST, DataProblem::part("parts", reason)));
        }
        Ok(parts * rank / ranks..parts * (rank + 1) / ranks)
    }

    /// Reads what there is one of a vertex.
    ///
    /// # Errors
    /// A [`DataError`] that names the file and the field.
    pub fn table(&self) -> Result<VertexTable, DataError> {
        self.in_file(VERTICES, || {
            let layout = self.manifest.vertices_layout();
            let source = self.source(VERTICES, (Kind::Vertices, 0), layout.as_ref())?;
            VertexTable::read(source, &self.manifest)
        })
    }

    /// Reads the rows of some parts, which `table` is of.
    ///
    /// # Errors
    /// A [`DataError`] that names the file and the field.
    pub fn rows(&self, table: &VertexTable, parts: Range<usize>) -> Result<PartRows, DataError> {
        self.rows_of(table, parts, &crate::input::Silent, &mut Left::default())
    }

    fn rows_of(
        &self,
        table: &VertexTable,
        parts: Range<usize>,
        progress: &dyn Progress,
        left: &mut Left,
    ) -> Result<PartRows, DataError> {
        // Whether all are there, and as long as they should be, is found out before anything is made of their sizes.
        let mut bytes = 0;
        for part in parts.clone() {
            let file = part_file(part);
            bytes += self.in_file(&file, || {
                let layout = self.manifest.part_layout(part);
                self.source(&file, (Kind::Part, part as u32), layout.as_ref())?;
                Ok(layout.map_or(0, |layout| layout.len()))
            })?;
        }
        progress.begin(&self.manifest.name, bytes);
        let mut rows = self
            .empty_rows(table, &parts, left)
            .map_err(|problem| self.problem(VERTICES, problem))?;
        let mut names = Vec::new();
        let bytes_of = |part| self.manifest.part_layout(part).map_or(0, |of| of.len());
        let mut next = parts.start;
        while next < parts.end {
            // On all threads, as far as the bytes in flight stay few in comparison with those of all parts.
            let mut bytes_now = 0;
            let most = (next + rayon::current_num_threads().max(1)).min(parts.end);
            let fits = |&part: &usize| {
                bytes_now += bytes_of(part);
                part == next || bytes_now <= bytes / IN_FLIGHT_DIVISOR
            };
            let now = next..next + (next..most).take_while(fits).count();
            let read = parallel::map(now.clone(), |_, part| {
                self.in_file(&part_file(part), || {
                    self.read_part(table, part, &rows.vertices, left)
                })
            });
            for (part, read) in now.clone().zip(read) {
                let read = read?;
                let own = self.in_file(&part_file(part), || read.put(&mut rows, left))?;
                names.push(own);
                progress.advance(bytes_of(part));
            }
            next = now.end;
        }
        if self.manifest.ids {
            let mut next = vec![0; names.len()];
            let mut ids = VertexIds::default();
            for &vertex in &rows.vertices {
                let part = table.owners[vertex as usize] as usize - parts.start;
                ids.push(names[part].get(next[part]))
                    .map_err(|problem| self.problem(VERTICES, problem))?;
                next[part] += 1;
            }
            rows.ids = Some(ids);
        }
        Ok(rows)
    }

    /// The rows of parts, their columns and numbers to be read; none of what is `left`.
    fn empty_rows(
        &self,
        table: &VertexTable,
        parts: &Range<usize>,
        left: &Left,
    ) -> Result<PartRows, DataProblem> {
        let manifest = &self.manifest;
        let entries = &manifest.parts[parts.clone()];
        let count: u64 = entries.iter().map(|part| part.vertices).sum();
        let edges: u64 = entries.iter().map(|part| part.edges).sum();
        let mut vertices = DataProblem::with_capacity("vertices", count)?;
        let owners = (0..).zip(&table.owners);
        let own = owners.filter(|(_, owner)| parts.contains(&(**owner as usize)));
        vertices.extend(own.map(|(vertex, _): (u32, _)| vertex));
        let mut offsets = DataProblem::with_capacity("offsets", count + 1)?;
        let mut end = 0_u64;
        offsets.push(end);
        for &vertex in &vertices {
            end += u64::from(table.in_degrees[vertex as usize]);
            offsets.push(end);
        }
        let edge_features = match manifest.edge_features {
            0 => None,
            _ if left.ignored.edge_features => None,
            columns => {
                let values = zeros("edge features", edges.saturating_mul(columns))?;
                Some(EdgeFeatures::new(columns as usize, values)?)
            }
        };
        let (precision, len) = (manifest.feature_precision, manifest.features as usize);
        Ok(PartRows {
            features: RowFeatures::zeros(
                precision,
                match left.features {
                    None => vertices.len(),
                    Some(_) => 0,
                },
                len,
            )?,
            vertices,
            offsets,
            columns: match left.columns {
                None => zeros("columns", edges)?,
                Some(_) => Vec::new(),
            },
            edge_weights: match manifest.edge_weights && !left.ignored.edge_weights {
                true => Some(zeros("edge weights", edges)?),
                false => None,
            },
            edge_features,
            ids: None,
        })
    }

    /// Reads a part, whose rows have places among those of `all`, but for what is `left` in the file or not wanted.
    fn read_part(
        &self,
        table: &VertexTable,
        part: usize,
        all: &[u32],
        left: &Left,
    ) -> Result<PartRead, DataProblem> {
        let (manifest, file) = (&self.manifest, part_file(part));
        let Some(layout) = manifest.part_layout(part) else {
            return Err(DataProblem::part("length", "no file is as long"));
        };
        let source = self.source(&file, (Kind::Part, part as u32), Some(&layout))?;
        let length = layout.len();
        let mut sections = Sections::new(source, layout);
        let vertices: Vec<u32> = sections.read("vertices")?;
        let places = places(&vertices, part as u32, table, all)?;
        let offsets: Vec<u64> = sections.read("offsets")?;
        check_offsets(&offsets, &vertices, table)?;
        let header = self.header((Kind::Part, part as u32))?;
        let from = |start| StoredFile {
            path: self.path.join(&file),
            nameless: None,
            header: header.bytes().to_vec(),
            length,
            start,
            // Which it is follows from the parts before it.
            first: 0,
        };
        let (mut columns, mut stays) = (Vec::new(), Stays::default());
        if left.columns.is_some() {
            // They are looked at when they are read again.
            let start = sections.pass(|_, _: u32| ())?;
            stays.columns = Some(from(start));
        } else {
            columns = sections.read("columns")?;
            check_columns(&columns, &offsets, manifest.vertices)?;
        }
        let mut of_edges = |key, ignored| match ignored {
            true => sections.pass(|_, _: f32| ()).map(|_| Vec::new()),
            false => sections.read::<f32>(key),
        };
        let weights = of_edges("edge weights", left.ignored.edge_weights)?;
        let features = of_edges("edge features", left.ignored.edge_features)?;
        for (key, values) in [("edge weights", &weights), ("edge features", &features)] {
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let why = "which is not finite";
                return Err(DataProblem::value(key, at as u64, values[at], why));
            }
        }
        let len = manifest.features as usize;
        let (mut own, mut infinite) = (None, None);
        let mut see = |at: u64, value: f32| {
            if !value.is_finite() {
                infinite.get_or_insert((at, value));
            }
        };
        match (left.features.is_some(), manifest.feature_precision) {
            (false, FeaturePrecision::Half) => {
                own = Some(RowFeatures::of_halves(len, sections.read("features")?));
            }
            (false, FeaturePrecision::Float) => {
                own = Some(RowFeatures::of_floats(len, sections.read("features")?));
            }
            (true, precision) => {
                let start = match precision {
                    // Nearly all are finite, which the bits of a half say: widening takes ten times as long.
                    FeaturePrecision::Half => sections.pass(|at, value: f16| {
                        if !value.is_finite() {
                            see(at, value.to_f32());
                        }
                    })?,
                    FeaturePrecision::Float => sections.pass(see)?,
                };
                stays.features = Some(from(start));
            }
        }
        let ends: Vec<u64> = sections.read("ids")?;
        let text: Vec<u8> = sections.read("ids")?;
        // What is wrong with the file as a whole explains whatever is wrong with a number of it.
        sections.finish(manifest.part_sum(part)?)?;
        if let Some((at, value)) = infinite {
            return Err(not_finite(at, value, len));
        }
        Ok(PartRead {
            places,
            offsets,
            columns,
            weights,
            edge_features: match left.ignored.edge_features {
                true => (0, features),
                false => (manifest.edge_features as usize, features),
            },
            features: own,
            stays,
            names: names(&ends, &text)?,
        })
    }

    /// A file behind its header, which is as long as its layout.
    fn source(
        &self,
        file: &str,
        (kind, number): (Kind, u32),
        layout: Option<&super::layout::Layout>,
    ) -> Result<impl Read + use<>, DataProblem> {
        let header = self.header((kind, number))?;
        let layout = layout.ok_or_else(|| DataProblem::part("length", "no file is as long"))?;
        let found = File::open(self.path.join(file)).map_err(|error| absent(file, error))?;
        let bytes = found.metadata()?.len();
        let mut source = BufReader::with_capacity(1 << 18, found);
        let mut start = [0; Header::BYTES];
        if bytes >= Header::BYTES as u64 {
            source.read_exact(&mut start)?;
            header.check(&start)?;
        }
        check_length(bytes, layout)?;
        Ok(source)
    }

    /// What a file starts with.
    fn header(&self, (kind, number): (Kind, u32)) -> Result<Header, DataProblem> {
        Ok(Header {
            kind,
            number,
            identity: self.manifest.identity()?,
        })
    }

    fn problem(&self, file: &str, problem: DataProblem) -> DataError {
        DataError::in_file(&self.path.join(file), problem)
    }

    fn in_file<T>(
        &self,
        file: &str,
        work: impl FnOnce() -> Result<T, DataProblem>,
    ) -> Result<T, DataError> {
        work().map_err(|problem| match problem {
            missing @ DataProblem::MissingFile { .. } => DataError::in_file(&self.path, missing),
            problem => self.problem(file, problem),
        })
    }

    /// The whole dataset without what `options` leave out. Features may stay in their files, and edges go to disk if
    /// there is a folder for them. The files are read in any case, to check them.
    pub(crate) fn whole(&self, options: &OpenOptions) -> Result<Parts, DataError> {
        let (stored_features, edges) = (options.stored_features, options.stored_edges.as_deref());
        let table = self.table()?;
        let mut left = Left {
            features: match stored_features {
                true => {
                    let slots = zeros("vertices", self.manifest.vertices);
                    Some(LeftFeatures {
                        files: Vec::new(),
                        rows: 0,
                        slots: slots.map_err(|problem| self.problem(MANIFEST, problem))?,
                    })
                }
                false => None,
            },
            columns: edges.map(|_| Vec::new()),
            ignored: Ignored {
                edge_weights: options.ignore_edge_weights,
                edge_features: options.ignore_edge_features,
            },
        };
        let rows = self.rows_of(&table, 0..self.parts(), options.progress(), &mut left)?;
        let graph = |problem| self.problem(MANIFEST, problem);
        let in_graph = |error| graph(DataProblem::graph("columns", error));
        let of_graph = match (&left.columns, edges) {
            (Some(files), Some(folder)) => {
                Graph::new(columns::to_disk(files, &table, folder)?).map_err(in_graph)?
            }
            _ => Graph::from_offsets(rows.offsets, rows.columns).map_err(in_graph)?,
        };
        let len = rows.features.feature_len();
        let features = match left.features {
            None => {
                let values = rows.features.into_floats().map_err(graph)?;
                Features::dense(len, values).map_err(graph)?
            }
            Some(left) => Features::Stored(Arc::new(StoredFeatures {
                files: left.files.into(),
                kept: self.feature_precision().into(),
                len,
                slots: Slots::Listed(left.slots),
                magnitudes: Some(self.manifest.column_magnitudes.clone()),
                divisors: Vec::new(),
            })),
        };
        let splits = table.splits();
        let mut done = vec![self.preparation()];
        if options.ignore_edge_weights {
            done.extend(self.edge_weights(options));
        }
        if options.ignore_edge_features {
            done.extend(self.edge_features(options));
        }
        Ok(Parts {
            edge_weights: rows.edge_weights,
            edge_features: rows.edge_features,
            ids: rows.ids,
            class_names: self.manifest.class_names.clone(),
            splits: vec![splits],
            done,
            ..Parts::new(of_graph, features, table.targets)
        })
    }

    /// What is done with weights of edges, without having read them, where there are some.
    fn edge_weights(&self, options: &OpenOptions) -> Option<Preparation> {
        let (what, by) = match options.ignore_edge_weights {
            true => ("ignored, all edges count the same", Origin::Option),
            false => (
                "multiply what neighbours send; --ignore-edge-weights leaves them out",
                Origin::File,
            ),
        };
        let of_edges = || {
            let what = format!("{} {what}", self.manifest.edges);
            Preparation::new("edge weights", what, by)
        };
        self.manifest.edge_weights.then(of_edges)
    }

    /// The same of features of edges.
    fn edge_features(&self, options: &OpenOptions) -> Option<Preparation> {
        let columns = self.manifest.edge_features as usize;
        (columns > 0).then(|| Preparation::edge_features(columns, options.ignore_edge_features))
    }

    fn preparation(&self) -> Preparation {
        let what = format!(
            "{} by {}, features in {}",
            self.parts(),
            self.partition(),
            self.feature_precision().name()
        );
        Preparation::new("parts", what, Origin::File)
    }

    /// What is known of the dataset without reading a part: targets, splits, and how much there is of the rest. It has
    /// no edges, and zeros for features, because each rank reads its own: see [`Outline`].
    ///
    /// # Errors
    /// [`DataProblem::NotPartitioned`] where `options` ask for what changes edges or features, and those of
    /// [`Dataset::open_with`].
    pub fn outline(
        &self,
        table: &VertexTable,
        options: &OpenOptions,
    ) -> Result<Dataset, DataError> {
        let wrong = |problem| DataError::in_file(&self.path, problem);
        let manifest = &self.manifest;
        options.check_columns(Format::Parts).map_err(wrong)?;
        for (option, given) in [
            ("reverses of edges (--undirected)", options.undirected),
            ("self-loops", options.self_loops),
            (
                "normalised features",
                options.normalize_features == Some(true),
            ),
        ] {
            if given {
                let reason = format!(
                    "ranks read its parts as they are, and {option} are made of a whole dataset; ask for them when it is cut in parts, or train with one rank"
                );
                return Err(wrong(DataProblem::NotPartitioned { reason }));
            }
        }
        let vertices = table.vertices();
        let graph = Graph::from_offsets(vec![0; vertices + 1], Vec::new())
            .map_err(|error| wrong(DataProblem::graph("vertices", error)))?;
        let len = manifest.features as usize;
        let features = Features::sparse(len, vec![0; vertices + 1], Vec::new(), Vec::new());
        let mut done = vec![self.preparation()];
        let (weighted, columns) = (manifest.edge_weights, manifest.edge_features as usize);
        done.extend(self.edge_weights(options));
        done.extend(self.edge_features(options));
        let parts = Parts {
            class_names: manifest.class_names.clone(),
            splits: vec![table.splits()],
            done,
            ..Parts::new(graph, features.map_err(wrong)?, table.targets.clone())
        };
        let mut dataset = parts.into_dataset(options).map_err(wrong)?;
        let source = format!("{}, read in parts", self.path.display());
        let source = Preparation::new("source", source, Origin::File);
        dataset.preparations.insert(0, source);
        dataset.name.clone_from(&manifest.name);
        // Of no edge, as the graph has none.
        dataset.edge_weights = (weighted && !options.ignore_edge_weights).then(Vec::new);
        if columns > 0 && !options.ignore_edge_features {
            let none = EdgeFeatures::new(columns, Vec::new()).map_err(wrong)?;
            dataset.edge_features = Some(none);
        }
        dataset.outline = Some(Outline {
            edges: manifest.edges as usize,
            largest_degree: table.in_degrees.iter().copied().max().unwrap_or(0),
            without_loops: table.without_loops(),
            column_magnitudes: manifest.column_magnitudes.clone(),
        });
        Ok(dataset)
    }
}

/// What stays in the files of parts.
#[derive(Default)]
struct Left {
    features: Option<LeftFeatures>,
    /// Of each part in their order, where its columns start, and how many they are.
    columns: Option<Vec<(StoredFile, u64)>>,
    ignored: Ignored,
}

/// Which data of edges are not needed.
#[derive(Clone, Copy, Default)]
struct Ignored {
    edge_weights: bool,
    edge_features: bool,
}

/// Features that stay there.
struct LeftFeatures {
    files: Vec<StoredFile>,
    /// Of those.
    rows: u32,
    /// Of each vertex, where its row comes among them.
    slots: Vec<u32>,
}

impl LeftFeatures {
    /// The features of a part, whose vertices are `places`.
    fn add(&mut self, file: StoredFile, places: &[usize]) {
        self.files.push(file);
        for &vertex in places {
            self.slots[vertex] = self.rows;
            self.rows += 1;
        }
    }
}

fn missing(folder: &Path, file: &str, error: std::io::Error) -> DataError {
    match absent(file, error) {
        missing @ DataProblem::MissingFile { .. } => DataError::in_file(folder, missing),
        problem => DataError::in_file(&folder.join(file), problem),
    }
}

fn absent(file: &str, error: std::io::Error) -> DataProblem {
    match error.kind() {
        std::io::ErrorKind::NotFound => DataProblem::MissingFile {
            file: file.into(),
            layout: LAYOUT,
        },
        _ => DataProblem::Io(error),
    }
}

/// Where each of a part's vertices comes among `all`, which they are some of, as the table has them.
fn places(
    vertices: &[u32],
    part: u32,
    table: &VertexTable,
    all: &[u32],
) -> Result<Vec<usize>, DataProblem> {
    let mut places = DataProblem::with_capacity("vertices", vertices.len() as u64)?;
    let mut before = None;
    for (at, &vertex) in vertices.iter().enumerate() {
        let owner = table.owners.get(vertex as usize);
        let why = match owner {
            None => format!("but there are {} vertices", table.vertices()),
            Some(owner) if *owner != part => format!("which {VERTICES} has in part {owner}"),
            _ if before >= Some(vertex) => "but they ascend".into(),
            _ => {
                before = Some(vertex);
                // Everything that the table has in one of these parts is there.
                places.push(all.binary_search(&vertex).unwrap_or_else(|place| place));
                continue;
            }
        };
        return Err(DataProblem::value("vertices", at as u64, vertex, why));
    }
    Ok(places)
}

fn check_offsets(
    offsets: &[u64],
    vertices: &[u32],
    table: &VertexTable,
) -> Result<(), DataProblem> {
    let mut end = 0;
    for (at, &offset) in offsets.iter().enumerate() {
        if offset != end {
            let why = format!("where the degrees of {VERTICES} make it {end}");
            return Err(DataProblem::value("offsets", at as u64, offset, why));
        }
        let degree = vertices
            .get(at)
            .map(|&vertex| table.in_degrees[vertex as usize]);
        end += u64::from(degree.unwrap_or(0));
    }
    Ok(())
}

fn check_columns(columns: &[u32], offsets: &[u64], vertices: u64) -> Result<(), DataProblem> {
    offsets.windows(2).try_for_each(|row| {
        let own = row[0] as usize..row[1] as usize;
        check_row(&columns[own], row[0], vertices)
    })
}

/// Names as they lie in a part.
fn names(ends: &[u64], text: &[u8]) -> Result<VertexIds, DataProblem> {
    let mut ids = VertexIds::default();
    let mut start = 0;
    for (at, &end) in ends.iter().enumerate() {
        let name = usize::try_from(end)
            .ok()
            .and_then(|end| text.get(start..end));
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name else {
            let why = "which ends no name in UTF-8";
            return Err(DataProblem::value("ids", at as u64, end, why));
        };
        ids.push(name)?;
        start = end as usize;
    }
    Ok(ids)
}
