//! Writers of the formats that are one file.

mod arrays;
mod frdc;
mod lines;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

use super::{DataError, DataProblem, Dataset, Format};
use crate::file::WholeFile;
use crate::row_order::InRowOrder;
use halfgnn_graph::Graph;

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// The format: one that is a single file.
    pub format: Format,
    /// Whether a text is packed by gzip; archives are packed anyway.
    pub gzip: bool,
    /// Whether features are written as bits, eight a byte: all are +1 and −1, or 1 and 0. Only PyG's archive can hold
    /// them.
    pub feature_bits: bool,
}

impl WriteOptions {
    /// Of a format, unpacked.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            gzip: false,
            feature_bits: false,
        }
    }

    /// What the name of a file asks for: `.npz` a dataset's archive where it `is_labelled`, else a sparse matrix of
    /// scipy's, `.mtx`, `.txt`, `.csr` or `.frdc`; with `.gz` a packed text.
    pub fn for_path(path: impl AsRef<Path>, is_labelled: bool) -> Option<Self> {
        let name = path.as_ref().file_name()?.to_str()?;
        let (name, gzip) = match name.strip_suffix(".gz") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let format = match Path::new(name).extension()?.to_str()? {
            "npz" if is_labelled => Format::GnnBenchmark,
            "npz" => Format::ScipySparse,
            "mtx" => Format::MatrixMarket,
            "txt" | "tsv" | "el" => Format::EdgeList,
            "csr" => Format::RawCsr,
            "frdc" => Format::Frdc,
            _ => return None,
        };
        let is_text = matches!(format, Format::MatrixMarket | Format::EdgeList);
        (is_text || !gzip).then_some(Self {
            gzip,
            ..Self::new(format)
        })
    }
}

/// Graphs into files, as methods of [`Graph`].
pub trait SaveGraph {
    /// Writes the graph. A reader of the format reads the same graph again, but for [edges](Self::left_out_edges) that
    /// the format cannot hold.
    ///
    /// # Errors
    /// [`DataProblem::Io`], and [`DataProblem::NotWritten`] where the format requires features and labels or several
    /// files, or its numbers are too small for the graph.
    ///
    /// ```
    /// use halfgnn_data::{Format, OpenGraph, OpenOptions, SaveGraph, WriteOptions};
    /// use halfgnn_graph::Graph;
    ///
    /// let graph = Graph::from_edges(3, &[0, 1], &[1, 2])?;
    /// let mut file = std::io::Cursor::new(Vec::new());
    /// graph.write_to(&mut file, WriteOptions::new(Format::MatrixMarket))?;
    /// assert_eq!(Graph::read_from(file, &OpenOptions::default())?, graph);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn write_to(&self, to: impl Write + Seek, options: WriteOptions) -> Result<(), DataProblem>;

    /// Writes the graph to a file, which is there whole or not at all.
    ///
    /// # Errors
    /// As [`write_to`](Self::write_to), with the name of the file.
    fn save(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<(), DataError>;

    /// The number of edges that a format cannot hold, which are not written. In [`Format::Frdc`] a bit is an edge, so
    /// that of an edge that occurs several times one is written.
    fn left_out_edges(&self, format: Format) -> u64;
}

/// What [edges that a format has no place for](SaveGraph::left_out_edges) are called.
pub const REPEATED_EDGES: &str = "edges that occur again";

impl SaveGraph for Graph {
    fn write_to(&self, to: impl Write + Seek, options: WriteOptions) -> Result<(), DataProblem> {
        write_graph(to, self, options)
    }

    fn save(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<(), DataError> {
        save(path.as_ref(), |file| self.write_to(file, options))
    }

    fn left_out_edges(&self, format: Format) -> u64 {
        match format {
            Format::Frdc => self.csr().repeated_edges() as u64,
            _ => 0,
        }
    }
}

impl Dataset {
    /// Writes the dataset to a file, which is there whole or not at all.
    ///
    /// # Errors
    /// As [`write_to`](Self::write_to), with the name of the file.
    pub fn save(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<(), DataError> {
        save(path.as_ref(), |file| self.write_to(file, options))
    }

    /// Writes the dataset; of a format that has no features and labels, its graph.
    ///
    /// # Errors
    /// As [`SaveGraph::write_to`].
    pub fn write_to(
        &self,
        to: impl Write + Seek,
        options: WriteOptions,
    ) -> Result<(), DataProblem> {
        let mut to = BufWriter::with_capacity(1 << 16, to);
        if let (Some(graphs), Format::GnnBenchmark) = (&self.graphs, options.format) {
            return Err(DataProblem::ManyGraphs {
                graphs: graphs.graphs(),
                what: "gnn-benchmark's archive is of one; write PyG's (--to pyg)",
            });
        }
        if self.types.is_some() && (options.format != Format::Pyg || options.feature_bits) {
            let what = match options.feature_bits {
                true => "features of several types as bits",
                false => "several types of vertices and edges",
            };
            return Err(not_written(options.format, what));
        }
        if options.feature_bits && options.format != Format::Pyg {
            return Err(not_written(options.format, "features as bits"));
        }
        if options.format.is_labelled() {
            self.features.expect_in_memory("a file")?;
        }
        match options.format {
            Format::GnnBenchmark => arrays::gnn_benchmark(&mut to, self)?,
            Format::Pyg => match &self.types {
                Some(types) => arrays::pyg_of_types(&mut to, self, types)?,
                None => arrays::pyg(&mut to, self, options.feature_bits)?,
            },
            _ => return self.graph.write_to(to, options),
        }
        to.flush()?;
        Ok(())
    }

    /// The archive that can hold the most of it: gnn-benchmark's for classes; PyG's for other targets, many graphs,
    /// several types and features of edges.
    pub fn archive_format(&self) -> Format {
        let is_plain =
            self.edge_features.is_none() && self.graphs.is_none() && self.types.is_none();
        match self.targets.classes().is_some() && is_plain {
            true => Format::GnnBenchmark,
            false => Format::Pyg,
        }
    }

    /// What of it a format has no place for, in words, and so is not written.
    pub fn left_out_by(&self, format: Format) -> Vec<&'static str> {
        let is_labelled = format.is_labelled();
        let parts = [
            ("features", !is_labelled),
            ("labels", !is_labelled && self.outputs > 0),
            ("edge weights", !is_labelled && self.edge_weights.is_some()),
            (REPEATED_EDGES, self.graph.left_out_edges(format) > 0),
            (
                "features of edges",
                format != Format::Pyg && self.edge_features.is_some(),
            ),
            (
                "which vertices are of which graph",
                format != Format::Pyg && self.graphs.is_some(),
            ),
            ("ids of vertices", self.ids.is_some()),
            ("names of classes", self.class_names.is_some()),
            ("all ways to split but one", self.file_splits > 1),
        ];
        let left = parts.into_iter().filter(|(_, is_left)| *is_left);
        left.map(|(what, _)| what).collect()
    }
}

/// Writes a graph, wherever its edges lie.
pub(crate) fn write_graph(
    to: impl Write + Seek,
    graph: &impl InRowOrder,
    options: WriteOptions,
) -> Result<(), DataProblem> {
    let mut to = BufWriter::with_capacity(1 << 16, to);
    if options.feature_bits {
        return Err(not_written(options.format, "features as bits"));
    }
    match options.format {
        Format::ScipySparse => arrays::scipy(&mut to, graph)?,
        Format::RawCsr => arrays::raw_csr(&mut to, graph)?,
        Format::Frdc => frdc::write(&mut to, graph)?,
        Format::MatrixMarket => {
            packed(&mut to, options.gzip, |to| lines::matrix_market(to, graph))?
        }
        Format::EdgeList => packed(&mut to, options.gzip, |to| lines::edge_list(to, graph))?,
        Format::Torch => {
            return Err(not_written(options.format, "anything that is written here"));
        }
        Format::GnnBenchmark | Format::Pyg => {
            return Err(not_written(
                options.format,
                "a graph without features and labels",
            ));
        }
        Format::Planetoid
        | Format::Ogb
        | Format::Parts
        | Format::Tu
        | Format::DglReddit
        | Format::Csv
        | Format::Parquet => {
            return Err(not_written(
                options.format,
                "anything; they are several files",
            ));
        }
    }
    to.flush()?;
    Ok(())
}

pub(crate) fn save(
    path: &Path,
    write: impl FnOnce(&mut WholeFile) -> Result<(), DataProblem>,
) -> Result<(), DataError> {
    let save = || {
        let mut file = WholeFile::create(path).map_err(DataProblem::CannotWrite)?;
        write(&mut file)?;
        file.finish().map_err(DataProblem::CannotWrite)
    };
    save().map_err(|problem| {
        // What fails between is the file's as well: nothing else is read or written.
        let problem = match problem {
            DataProblem::Io(error) => DataProblem::CannotWrite(error),
            other => other,
        };
        DataError::in_file(path, problem)
    })
}

fn not_written(format: Format, what: &'static str) -> DataProblem {
    DataProblem::NotWritten {
        format: format.description(),
        what,
    }
}

/// Writes by `write`, through gzip or not.
fn packed(
    to: &mut dyn Write,
    gzip: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if !gzip {
        return write(to);
    }
    let mut packed = flate2::write::GzEncoder::new(to, flate2::Compression::fast());
    write(&mut packed)?;
    packed.finish().map(|_| ())
}
