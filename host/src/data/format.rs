//! Which reader a file is for.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::error::{DataError, DataProblem};
use super::npz::Npz;
use super::{Dataset, gnn_benchmark};

/// A format that datasets are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The `.npz` of gnn-benchmark (Shchur et al., 2018), which holds adjacency and features as compressed rows.
    GnnBenchmark,
}

impl Format {
    /// Every format.
    pub const ALL: &[Self] = &[Self::GnnBenchmark];

    /// The name, as a command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GnnBenchmark => "gnn-benchmark",
        }
    }

    /// What to call the format in a message.
    pub const fn description(self) -> &'static str {
        match self {
            Self::GnnBenchmark => {
                "a gnn-benchmark .npz (arrays adj_indptr, adj_indices, attr_…, labels)"
            }
        }
    }

    /// The format of a file, by its content.
    ///
    /// # Errors
    /// [`DataProblem::Io`], [`DataProblem::Empty`], [`DataProblem::Archive`] and [`DataProblem::UnknownFormat`].
    pub fn detect(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        detect(path).map_err(|problem| DataError::in_file(path, problem))
    }
}

/// How to open a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The format; `None` to go by the content.
    pub format: Option<Format>,
    /// Whether each row of features is divided by its sum where that is more than 1. `None` leaves it to the format:
    /// bags of words are.
    pub normalize_features: Option<bool>,
    /// The seed of the splits of a file that has none.
    pub split_seed: u64,
}

impl Default for OpenOptions {
    /// By content, as is customary for the format, seed 0.
    fn default() -> Self {
        Self {
            format: None,
            normalize_features: None,
            split_seed: 0,
        }
    }
}

fn detect(path: &Path) -> Result<Format, DataProblem> {
    let mut head = Vec::new();
    File::open(path)?.take(512).read_to_end(&mut head)?;
    if head.is_empty() {
        return Err(DataProblem::Empty);
    }
    // Any zip archive goes to the one reader of archives, which says which arrays it misses.
    if Npz::recognises(&head) {
        return Ok(Format::GnnBenchmark);
    }
    let known: Vec<_> = Format::ALL
        .iter()
        .map(|format| format.description())
        .collect();
    Err(DataProblem::UnknownFormat {
        known: known.join("; "),
    })
}

/// Opens a file by its format.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Dataset, DataError> {
    let read = || {
        let format = options.format.map_or_else(|| detect(path), Ok)?;
        match format {
            Format::GnnBenchmark => gnn_benchmark::read(path, options),
        }
    };
    let parts = read().map_err(|problem| DataError::in_file(path, problem))?;
    let place = path.display().to_string();
    let named = |error: DataError| DataError::new(place, error.into_problem());
    let mut dataset = parts.into_dataset().map_err(named)?;
    dataset.name = path
        .file_stem()
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    Ok(dataset)
}

/// What a reader finds in a file.
pub(super) struct Parts {
    pub graph: crate::graph::Graph,
    pub edge_weights: Option<Vec<f32>>,
    pub features: super::Features,
    pub labels: Vec<u32>,
    pub splits: super::Splits,
}

impl Parts {
    fn into_dataset(self) -> Result<Dataset, DataError> {
        let dataset = Dataset::new("", self.graph, self.features, self.labels, self.splits)?;
        Ok(Dataset {
            edge_weights: self.edge_weights,
            ..dataset
        })
    }
}
