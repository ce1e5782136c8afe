//! What was done to a dataset before training, from its file or recipe on.

use std::fmt;

use super::SplitRule;
use crate::message::escaped;
use halfgnn_graph::Graph;

/// Who asked for a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The file says so.
    File,
    /// It belongs to the recipe.
    Recipe,
    /// The default.
    Default,
    /// An option asked for it.
    Option,
    /// The model requires it.
    Model,
    /// The run that goes on, or the model that predicts, was trained so.
    Checkpoint,
}

impl Origin {
    /// One word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Recipe => "recipe",
            Self::Default => "default",
            Self::Option => "option",
            Self::Model => "model",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// One thing that was done to a dataset: accuracies that were reached on differently prepared data cannot be compared.
///
/// Shown as `features: 40 rows divided by their sums (default)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation {
    /// What it was done to: `source`, `edges`, `edge weights`, `edge features`, `self-loops`, `features`, `labels`,
    /// `targets`, `splits`, `order`, `other`.
    pub of: &'static str,
    /// What was done, in words.
    pub what: String,
    /// Who asked for it.
    pub by: Origin,
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.of, self.what, self.by.name())
    }
}

impl Preparation {
    /// Anything.
    pub fn new(of: &'static str, what: impl Into<String>, by: Origin) -> Self {
        let what = what.into();
        Self { of, what, by }
    }

    /// Self-loops were added to `added` vertices.
    pub fn self_loops(added: usize, by: Origin) -> Self {
        Self::new("self-loops", format!("{added} added"), by)
    }

    /// Edges of a graph that are in a file, and not in memory; none of one whose edges are there.
    pub fn edges_on_disk(graph: &Graph) -> Option<Self> {
        let folder = graph.csr().folder()?;
        let bytes = size_of_val(graph.cols());
        let what = format!(
            "{bytes} bytes on the disk of {}",
            escaped(&folder.display().to_string())
        );
        Some(Self::new("edges", what, Origin::Option))
    }

    /// Nothing is known of vertices but their edges.
    pub(crate) fn no_features() -> Self {
        let what = "a column of ones, for there are none";
        Self::new("features", what, Origin::Default)
    }

    /// [`normalize_rows`](super::Features::normalize_rows) divided `rows` rows.
    pub fn normalized(rows: usize, by: Origin) -> Self {
        let why = match by {
            Origin::Default => {
                ", as is customary of counts of words; --normalize-features=false leaves them"
            }
            _ => "",
        };
        Self::new(
            "features",
            format!("{rows} rows divided by their sums{why}"),
            by,
        )
    }

    /// The file has weights of edges, which are used or, on request, ignored.
    pub fn edge_weights(weights: &[f32], ignored: bool) -> Self {
        let (least, most) = weights.iter().fold(
            (f32::INFINITY, f32::NEG_INFINITY),
            |(least, most), &weight| (least.min(weight), most.max(weight)),
        );
        let which = format!("{} of {least} to {most}", weights.len());
        match ignored {
            true => Self::new(
                "edge weights",
                format!("{which} ignored, all edges count the same"),
                Origin::Option,
            ),
            false => Self::new(
                "edge weights",
                format!(
                    "{which} multiply what neighbours send; --ignore-edge-weights leaves them out"
                ),
                Origin::File,
            ),
        }
    }

    /// The file has features of edges.
    pub(crate) fn edge_features(columns: usize, ignored: bool) -> Self {
        match ignored {
            true => Self::new(
                "edge features",
                format!("{columns} of each edge ignored"),
                Origin::Option,
            ),
            false => Self::new(
                "edge features",
                format!("{columns} of each edge"),
                Origin::File,
            ),
        }
    }

    /// Vertices were split as the file has it, which has `all` ways to split.
    pub(crate) fn split_of_file(number: usize, all: usize, by: Origin) -> Self {
        let what = match (all, by) {
            (1, _) => "as they stand there".into(),
            (_, Origin::Option) => format!("number {number} of {all}, from 0"),
            _ => format!("number {number} of {all}, from 0; --split-number chooses another"),
        };
        Self::new("splits", what, by)
    }

    /// Vertices were split by a rule.
    pub fn split(rule: SplitRule, seed: u64, by: Origin) -> Self {
        let why = match by {
            Origin::Default => ", for the file has none",
            _ => "",
        };
        Self::new("splits", format!("{rule} with seed {seed}{why}"), by)
    }
}
