//! What a folder of parts says of itself.

use super::layout::Layout;
use super::{MOST_PARTS, VERTICES, part_file};
use crate::error::DataProblem;
use crate::{LabelSets, MAX_CLASSES, Targets};
use halfgnn_graph::index::{MAX_EDGES, MAX_VERTICES};
use serde::{Deserialize, Serialize};

const FORMAT: &str = "halfgnn-parts";

/// What features are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeaturePrecision {
    /// 16 bits, each number rounded to the nearest half.
    #[default]
    Half,
    /// 32 bits, as they are.
    Float,
}

impl FeaturePrecision {
    /// The bytes of a number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Half => 2,
            Self::Float => 4,
        }
    }

    /// One word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Float => "float",
        }
    }
}

/// The kind of the targets of vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetKind {
    Classes,
    Labels(u64),
    /// Labels of which entries are unknown where others of the same vertex are not.
    PartialLabels(u64),
    Values(u64),
}

impl TargetKind {
    pub fn of(targets: &Targets) -> Self {
        match targets {
            Targets::Classes(_) => Self::Classes,
            Targets::Labels(labels) if targets.is_partial() => {
                Self::PartialLabels(labels.columns() as u64)
            }
            Targets::Labels(labels) => Self::Labels(labels.columns() as u64),
            Targets::Values(values) => Self::Values(values.columns() as u64),
        }
    }
}

/// `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub format: String,
    pub version: u32,
    /// What the dataset is called.
    pub name: String,
    /// How it was partitioned, in words.
    pub partition: String,
    pub vertices: u64,
    pub edges: u64,
    /// Features of a vertex, and what they are kept in.
    pub features: u64,
    pub feature_precision: FeaturePrecision,
    pub targets: TargetKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_names: Option<Vec<String>>,
    /// Whether vertices have names.
    pub ids: bool,
    /// Whether edges have weights.
    pub edge_weights: bool,
    /// Features of an edge.
    pub edge_features: u64,
    /// The largest magnitude of each column of the features, 1 of a column of zeros.
    pub column_magnitudes: Vec<f32>,
    /// Of this folder and no other, in hexadecimal: each file has it.
    pub identity: String,
    /// What `vertices.bin` adds up to, CRC-32C in hexadecimal.
    pub vertices_checksum: String,
    pub parts: Vec<PartEntry>,
}

/// A part's figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartEntry {
    pub vertices: u64,
    pub edges: u64,
    /// Bytes of the names of its vertices.
    pub id_bytes: u64,
    pub checksum: String,
}

impl Manifest {
    /// One of nothing yet.
    pub fn empty(targets: TargetKind) -> Self {
        Self {
            format: FORMAT.into(),
            version: super::layout::VERSION,
            name: String::new(),
            partition: String::new(),
            vertices: 0,
            edges: 0,
            features: 0,
            feature_precision: FeaturePrecision::Half,
            targets,
            class_names: None,
            ids: false,
            edge_weights: false,
            edge_features: 0,
            column_magnitudes: Vec::new(),
            identity: String::new(),
            vertices_checksum: String::new(),
            parts: Vec::new(),
        }
    }

    /// Whether a file may be a manifest: what one starts with.
    pub fn recognises(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        text.trim_start().starts_with('{') && text.contains(FORMAT)
    }

    /// From the text of the file.
    pub fn parse(text: &[u8]) -> Result<Self, DataProblem> {
        let manifest: Self = serde_json::from_slice(text)
            .map_err(|error| DataProblem::part("manifest", error.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// That figures agree with one another, so that sizes may be computed from them.
    fn check(&self) -> Result<(), DataProblem> {
        let refuse = |field: &str, reason: String| Err(DataProblem::part(field, reason));
        if self.format != FORMAT {
            return refuse(
                "format",
                format!("it is {:?}, where {FORMAT:?} is wanted", self.format),
            );
        }
        if self.version != super::layout::VERSION {
            let reason = format!(
                "it is {}, and this build reads {}",
                self.version,
                super::layout::VERSION
            );
            return refuse("version", reason);
        }
        if self.vertices > MAX_VERTICES {
            let reason = format!("there are {}, more than {MAX_VERTICES}", self.vertices);
            return refuse("vertices", reason);
        }
        let parts = self.parts.len();
        if !(1..=MOST_PARTS).contains(&parts) {
            return refuse(
                "parts",
                format!("there are {parts}, where 1 to {MOST_PARTS} may be"),
            );
        }
        if !(1..=u64::from(u32::MAX)).contains(&self.features) {
            return refuse(
                "features",
                format!("there are {} of a vertex", self.features),
            );
        }
        if self.column_magnitudes.len() as u64 != self.features {
            let reason = format!(
                "there are {}, where one of each of {} features is wanted",
                self.column_magnitudes.len(),
                self.features
            );
            return refuse("column_magnitudes", reason);
        }
        let is_magnitude = |most: &f32| most.is_finite() && *most > 0.0;
        if let Some(at) = self
            .column_magnitudes
            .iter()
            .position(|most| !is_magnitude(most))
        {
            let reason = format!(
                "it is {}, which is no magnitude",
                self.column_magnitudes[at]
            );
            return refuse(&format!("column_magnitudes[{at}]"), reason);
        }
        if let TargetKind::Labels(columns)
        | TargetKind::PartialLabels(columns)
        | TargetKind::Values(columns) = self.targets
            && !(1..=u64::from(MAX_CLASSES)).contains(&columns)
        {
            return refuse("targets", format!("there are {columns} columns"));
        }
        let sum = |of: fn(&PartEntry) -> u64| {
            let mut counts = self.parts.iter().map(of);
            counts.try_fold(0_u64, |sum, count| sum.checked_add(count))
        };
        for (field, of, all) in [
            ("vertices", sum(|part| part.vertices), self.vertices),
            ("edges", sum(|part| part.edges), self.edges),
        ] {
            if of != Some(all) {
                let of = of.map_or("more than can be counted".into(), |of| of.to_string());
                return refuse(field, format!("there are {all}, and parts have {of}"));
            }
        }
        for (number, part) in self.parts.iter().enumerate() {
            if part.edges > MAX_EDGES {
                let reason = format!("there are {}, more than {MAX_EDGES}", part.edges);
                return refuse(&format!("parts[{number}].edges"), reason);
            }
            if self.part_layout(number).is_none() {
                let reason = format!("no file is as long as {}", part_file(number));
                return refuse(&format!("parts[{number}]"), reason);
            }
            sum_of(&part.checksum, &format!("parts[{number}].checksum"))?;
        }
        if self.vertices_layout().is_none() {
            return refuse("vertices", format!("no file is as long as {VERTICES}"));
        }
        sum_of(&self.vertices_checksum, "vertices_checksum")?;
        self.identity()?;
        Ok(())
    }

    pub fn identity(&self) -> Result<u64, DataProblem> {
        u64::from_str_radix(&self.identity, 16)
            .map_err(|_| DataProblem::part("identity", format!("{:?} is no number", self.identity)))
    }

    /// What a part's file adds up to.
    pub fn part_sum(&self, part: usize) -> Result<u32, DataProblem> {
        sum_of(&self.parts[part].checksum, "checksum")
    }

    /// What the file of vertices adds up to.
    pub fn vertices_sum(&self) -> Result<u32, DataProblem> {
        sum_of(&self.vertices_checksum, "vertices_checksum")
    }

    /// Part, in-degree, out-degree, flags and targets of each vertex, and sums of weights.
    pub fn vertices_layout(&self) -> Option<Layout> {
        let n = self.vertices;
        let (first, second) = match self.targets {
            TargetKind::Classes => ((n, 4), (0, 1)),
            TargetKind::Labels(columns) => {
                let words = LabelSets::words_of(columns as usize) as u64;
                ((n.checked_mul(words)?, 4), (n, 1))
            }
            TargetKind::PartialLabels(columns) => {
                let words = LabelSets::words_of(columns as usize) as u64;
                let words = n.checked_mul(words)?;
                ((words, 4), (words, 4))
            }
            TargetKind::Values(columns) => ((n.checked_mul(columns)?, 4), (0, 1)),
        };
        let sums = (if self.edge_weights { n } else { 0 }, 8);
        Layout::of(&[
            (n, 4),
            (n, 4),
            (n, 4),
            (n, 1),
            first,
            second,
            sums,
            sums,
            sums,
            sums,
        ])
    }

    /// Numbers, offsets and columns of rows, weights and features of edges, features, ends and letters of names.
    pub fn part_layout(&self, part: usize) -> Option<Layout> {
        let PartEntry {
            vertices,
            edges,
            id_bytes,
            ..
        } = self.parts[part];
        let features = vertices.checked_mul(self.features)?;
        Layout::of(&[
            (vertices, 4),
            (vertices.checked_add(1)?, 8),
            (edges, 4),
            (if self.edge_weights { edges } else { 0 }, 4),
            (edges.checked_mul(self.edge_features)?, 4),
            (features, self.feature_precision.bytes()),
            (if self.ids { vertices } else { 0 }, 8),
            (if self.ids { id_bytes } else { 0 }, 1),
        ])
    }
}

/// The section of a part's features, which a stream of them fills by itself.
pub(super) const FEATURES: usize = 5;

fn sum_of(text: &str, field: &str) -> Result<u32, DataProblem> {
    u32::from_str_radix(text, 16)
        .map_err(|_| DataProblem::part(field, format!("{text:?} is no sum of 8 digits")))
}
