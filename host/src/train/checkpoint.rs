//! Checkpoints: files with all that is needed to resume a run, or to predict with its model.
//!
//! A checkpoint is a [safetensors](https://github.com/huggingface/safetensors) file. Its tensors are those of a
//! [`Snapshot`], in float. The parameters of the best validation epoch have their plain names, so any reader of the
//! format finds the model. Its metadata has one entry, `halfgnn`: the configuration as JSON, a checksum of each tensor
//! and one of the entry itself. Reading verifies the checksums; files without them are accepted. A file is written next
//! to its destination and moved there when it is complete, so that a killed run leaves the last complete file. The same
//! state gives the same bytes.
//!
//! In a [packed](Checkpoint::packed) checkpoint, weights that multiply by their sign alone are stored as bits and one
//! magnitude per row.

mod packed;

use super::{HeldOut, Loss, Progress, Snapshot, Tensor, Tensors, TrainConfig};
use crate::data::Dataset;
use crate::data::digest;
use crate::file;
use crate::message::{escaped, shortened};
use crate::nn::{ConvolutionConfig, ModelConfig};
use crate::ops::OptimizerSnapshot;
use crate::sample::Sampling;
use crate::tensor::Precision;
use packed::Packed;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// The version of the file's layout.
const FORMAT: u32 = 1;
/// The entry of the metadata.
const ENTRY: &str = "halfgnn";
/// The last field of that entry's JSON: the checksum of the text without it.
const SEAL: &str = r#","header_checksum":""#;
/// The loss of files that name none.
const PLAIN: Loss = Loss::CrossEntropy {
    class_weights: None,
};
/// The longest header that the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;

/// A saved run: the model, the training configuration, and the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// What it is trained on.
    pub task: TaskIdentity,
    /// The model's configuration.
    pub model: ModelConfig,
    /// Precision of state tensors.
    pub precision: Precision,
    /// How it is trained.
    pub train: TrainConfig,
    /// The divisors of the columns of the features, where there are some.
    pub feature_divisors: Option<Vec<f32>>,
    /// The loss; cross-entropy without weights in files that name none.
    pub loss: Loss,
    /// Whether training sees only the subgraph of the training vertices.
    pub inductive: bool,
    /// The held-out edges, for link prediction. Pairs are scored from the rows of the model's output by its
    /// [decoder](ModelConfig::decoder).
    pub links: Option<HeldOut>,
    /// How the graph is sampled into batches, where it is.
    pub sampling: Option<Sampling>,
    /// The state of training.
    pub snapshot: Snapshot,
}

/// What distinguishes a dataset from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIdentity {
    /// The dataset's name.
    pub name: String,
    /// Vertices.
    pub vertices: usize,
    /// Edges, without self-loops that the model adds.
    pub edges: usize,
    /// Input features.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// Digests of the parts of the dataset, in hexadecimal, by name. Files of earlier releases have none, and their
    /// data are not compared.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "digests_by_name"
    )]
    pub digest: Option<BTreeMap<String, String>>,
    /// The names of the classes, where the dataset has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_names: Option<Vec<String>>,
    /// Whether weights of edges are used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edge_weights: bool,
}

/// Digests by name; none for other formats, which other releases wrote.
fn digests_by_name<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        ByName(BTreeMap<String, String>),
        Otherwise(IgnoredAny),
    }
    Ok(match Written::deserialize(from)? {
        Written::ByName(digests) => Some(digests),
        Written::Otherwise(_) => None,
    })
}

impl TaskIdentity {
    /// The identity of a dataset whose features are not scaled yet. Reads all of it once.
    pub fn of(dataset: &Dataset) -> Self {
        let parts = digest::in_memory(dataset).into_iter();
        // Names of classes are compared as text, and vertices may be renamed.
        let parts = parts.filter(|(what, _)| ![digest::IDS, digest::CLASS_NAMES].contains(what));
        let parts = parts.map(|(what, digest)| (what.to_owned(), digest.to_string()));
        Self {
            name: dataset.name.clone(),
            vertices: dataset.graph.vertices(),
            edges: dataset.edges(),
            features: dataset.feature_len(),
            classes: dataset.outputs,
            digest: Some(parts.collect()),
            edge_weights: dataset.edge_weights.is_some(),
            class_names: dataset.class_names.clone(),
        }
    }

    /// The first difference to `other`, apart from the name.
    fn difference(&self, other: &Self) -> Option<String> {
        let figures = [
            ("vertices", self.vertices, other.vertices),
            ("edges", self.edges, other.edges),
            ("features", self.features, other.features),
            ("classes", self.classes, other.classes),
        ];
        let differing = figures.into_iter().find(|(_, mine, its)| mine != its);
        match differing {
            Some((what, mine, its)) => Some(format!(
                "it was trained on {} with {mine} {what}, and {} has {its}",
                self.name, other.name
            )),
            None if self.edge_weights != other.edge_weights => Some(match self.edge_weights {
                true => format!(
                    "it was trained with the edge weights of {}, and {} has none, or they are ignored",
                    self.name, other.name
                ),
                false => format!(
                    "it was trained on {} with edges that all count the same, and those of {} have weights; ignore them \
                     (--ignore-edge-weights)",
                    self.name, other.name
                ),
            }),
            None => {
                let with = |what: &str| {
                    format!(
                        "it was trained on {} with other {what} than {} has",
                        self.name, other.name
                    )
                };
                let names = match (&self.digest, &other.digest) {
                    (Some(mine), Some(its)) => differing_parts(mine, its),
                    _ => Vec::new(),
                };
                if !names.is_empty() {
                    return Some(with(&names.join(" and ")));
                }
                (self.class_names != other.class_names).then(|| with("names of classes"))
            }
        }
    }
}

/// The parts that both have and that differ.
fn differing_parts<'a>(
    mine: &'a BTreeMap<String, String>,
    its: &BTreeMap<String, String>,
) -> Vec<&'a str> {
    let differs =
        |(what, digest): &(&String, &String)| its.get(*what).is_some_and(|other| other != *digest);
    let differing = mine.iter().filter(differs);
    differing.map(|(what, _)| what.as_str()).collect()
}

/// FNV-1a of words, in hexadecimal. Its values do not change between releases, and two lists that differ in one word
/// have different hashes.
fn hash(words: impl Iterator<Item = u64>) -> String {
    let hash = words.fold(0xcbf2_9ce4_8422_2325_u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The checksum of a tensor's shape and bits.
fn checksum(tensor: &Tensor) -> String {
    let shape = [tensor.rows, tensor.columns].map(|side| side as u64);
    let bits = tensor.values.iter().map(|value| value.to_bits().into());
    hash(shape.into_iter().chain(bits))
}

/// The content of the metadata entry.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    version: String,
    task: TaskIdentity,
    model: ModelConfig,
    precision: Precision,
    train: TrainConfig,
    optimizer: OptimizerSnapshot,
    progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feature_divisors: Option<Vec<f32>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inductive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    links: Option<HeldOut>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sampling: Option<Sampling>,
    /// By name; empty for files without checksums.
    #[serde(default)]
    checksums: BTreeMap<String, String>,
}

/// The JSON of a header, with its checksum as the last field.
fn sealed(text: &str) -> String {
    let checksum = hash(text.bytes().map(u64::from));
    let open = text.strip_suffix('}').unwrap_or(text);
    format!("{open}{SEAL}{checksum}\"}}")
}

/// Whether a text is the output of [`sealed`].
fn is_sealed(text: &str) -> bool {
    text.rfind(SEAL)
        .is_some_and(|at| sealed(&format!("{}}}", &text[..at])) == text)
}

/// The part of a header that every format has.
#[derive(Deserialize)]
struct AnyHeader {
    format: u32,
    version: String,
}

/// Why a checkpoint cannot be written, read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be written.
    #[error("{}: cannot be written: {source}", shown(path))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no checkpoint.
    #[error(
        "{}: it is no checkpoint: {}; name a file that --save has written",
        shown(path),
        shortened(reason)
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor is not what was written.
    #[error(
        "{}: the tensor `{}` is damaged: its checksum is another than when it was saved; take another copy of the file",
        shown(path),
        shortened(tensor)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// The header is not what was written.
    #[error(
        "{}: its header is damaged: its checksum is another than when it was saved; take another copy of the file",
        shown(path)
    )]
    DamagedHeader {
        /// The file.
        path: PathBuf,
    },
    /// The model has no counterpart in the other format.
    #[error("{}: {reason}", shown(path))]
    StateDict {
        /// The file.
        path: PathBuf,
        /// What cannot be converted.
        reason: String,
    },
    /// The checkpoint is of another run.
    #[error(
        "{}: {}; name the dataset that it was trained on",
        shown(path),
        shortened(reason)
    )]
    OtherTask {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
}

/// Why bytes are not a checkpoint.
#[derive(Debug, PartialEq)]
enum Refusal {
    Format(String),
    /// This tensor is not what was written.
    Damaged(String),
    /// The header is not what was written.
    DamagedHeader,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Format(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Self::Format(reason.into())
    }
}

/// A path as an error shows it.
fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

impl Checkpoint {
    /// Writes the file atomically.
    ///
    /// # Errors
    /// [`CheckpointError::Write`]; a previous file then stays.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        self.to_bytes()
            .and_then(|bytes| file::write(path, &bytes))
            .map_err(|source| CheckpointError::Write {
                path: path.to_owned(),
                source,
            })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`CheckpointError::Read`], [`CheckpointError::Format`] where it is no checkpoint, or one of another format, and
    /// [`CheckpointError::Damaged`] where a tensor is not what was written.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let bytes = read(path)?;
        let path = path.to_owned();
        Self::from_bytes(&bytes).map_err(|refusal| match refusal {
            Refusal::Format(reason) => CheckpointError::Format { path, reason },
            Refusal::Damaged(tensor) => CheckpointError::Damaged { path, tensor },
            Refusal::DamagedHeader => CheckpointError::DamagedHeader { path },
        })
    }

    /// Checks that the run in the file at `path` can be resumed with the dataset of `task`.
    ///
    /// # Errors
    /// [`CheckpointError::OtherTask`] where it was trained on another.
    pub fn check_task(&self, path: &Path, task: &TaskIdentity) -> Result<(), CheckpointError> {
        match self.task.difference(task) {
            None => Ok(()),
            Some(reason) => Err(CheckpointError::OtherTask {
                path: path.to_owned(),
                reason,
            }),
        }
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let header = Header {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            task: self.task.clone(),
            model: self.model.clone(),
            precision: self.precision,
            train: self.train,
            optimizer: self.snapshot.optimizer,
            progress: self.snapshot.progress,
            feature_divisors: self.feature_divisors.clone(),
            loss: (self.loss != PLAIN).then(|| self.loss.clone()),
            inductive: self.inductive,
            links: self.links,
            sampling: self.sampling.clone(),
            checksums: (self.snapshot.tensors.iter())
                .map(|(name, tensor)| (name.clone(), checksum(tensor)))
                .collect(),
        };
        let text = sealed(&serde_json::to_string(&header)?);
        let metadata = HashMap::from([(ENTRY.to_owned(), text)]);
        let bytes = |tensor: &Tensor| -> Vec<u8> {
            tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect()
        };
        let (mut plain, mut packed) = (Vec::new(), Vec::new());
        for (name, tensor) in &self.snapshot.tensors {
            match Packed::of(name, tensor) {
                Some(bits) => packed.push((name, bits)),
                None => plain.push((name, [tensor.rows, tensor.columns], bytes(tensor))),
            }
        }
        let mut views = plain
            .iter()
            .map(|(name, shape, bytes)| {
                let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes)?;
                Ok((name.to_string(), view))
            })
            .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(io::Error::other)?;
        for (name, bits) in &packed {
            views.extend(bits.views(name).map_err(io::Error::other)?);
        }
        safetensors::serialize(views, Some(metadata)).map_err(io::Error::other)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Refusal> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|error| format!("it is no safetensors file ({error})"))?;
        let text = metadata
            .metadata()
            .as_ref()
            .and_then(|entries| entries.get(ENTRY))
            .ok_or("its metadata has no `halfgnn`, so another program wrote it")?;
        if text.contains(SEAL) && !is_sealed(text) {
            return Err(Refusal::DamagedHeader);
        }
        let header = |error: serde_json::Error| format!("its metadata cannot be read ({error})");
        let any: AnyHeader = serde_json::from_str(text).map_err(header)?;
        if any.format != FORMAT {
            return Err(format!(
                "it has format {} of version {}, and this program reads format {FORMAT}",
                any.format, any.version
            )
            .into());
        }
        let header: Header = serde_json::from_str(text).map_err(header)?;
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        // Each layer is sized before anything is allocated, so the number of layers must be plausible.
        if header.model.layers > file.len() {
            return Err(format!(
                "its metadata tells of {} layers, and there are {} tensors",
                header.model.layers,
                file.len()
            )
            .into());
        }
        if let Some(divisors) = &header.feature_divisors {
            let legal = |divisor: &f32| divisor.is_finite() && *divisor > 0.0;
            if divisors.len() != header.model.features || !divisors.iter().all(legal) {
                return Err(
                    "its metadata divides features by what they cannot be divided by".into(),
                );
            }
        }
        // A user-defined convolution checks its own layers.
        if !matches!(header.model.convolution, ConvolutionConfig::Other(_)) {
            header.model.check().map_err(|error| {
                format!("its metadata tells of no model that there is ({error})")
            })?;
        }
        let mut tensors = Tensors::new();
        for (name, view) in file.iter() {
            match packed::of_weights(name) {
                None => {
                    tensors.insert(name.to_owned(), tensor(name, &view)?);
                }
                // Signs and magnitudes of a tensor are read together.
                Some((name, _)) if tensors.contains_key(name) => {}
                Some((name, _)) => {
                    let columns = weights_a_row(&header.model, name)?;
                    tensors.insert(name.to_owned(), packed::unpack(&file, name, columns)?);
                }
            }
        }
        for (name, written) in header.checksums {
            if tensors.get(&name).map(checksum) != Some(written) {
                return Err(Refusal::Damaged(name));
            }
        }
        Ok(Self {
            task: header.task,
            model: header.model,
            precision: header.precision,
            train: header.train,
            feature_divisors: header.feature_divisors,
            loss: header.loss.unwrap_or(PLAIN),
            inductive: header.inductive,
            links: header.links,
            sampling: header.sampling,
            snapshot: Snapshot {
                progress: header.progress,
                optimizer: header.optimizer,
                tensors,
            },
        })
    }
}

/// The number of weights in a row of `layers.N.…`.
fn weights_a_row(model: &ModelConfig, name: &str) -> Result<usize, String> {
    let mut parts = name.split('.');
    let layer = match (parts.next(), parts.next()) {
        (Some("layers"), Some(layer)) => layer.parse().ok(),
        _ => None,
    };
    match layer.filter(|&layer: &usize| layer < model.layers) {
        Some(layer) => Ok(model.layer(layer).0),
        None => Err(format!("tensor `{name}` is of no layer of the model")),
    }
}

/// Reads a tensor of a file.
fn tensor(name: &str, view: &TensorView<'_>) -> Result<Tensor, String> {
    let &[rows, columns] = view.shape() else {
        return Err(format!("tensor `{name}` is no matrix"));
    };
    if view.dtype() != Dtype::F32 {
        return Err(format!("tensor `{name}` is of {}, not F32", view.dtype()));
    }
    let values = view
        .data()
        .chunks_exact(size_of::<f32>())
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    Ok(Tensor {
        rows,
        columns,
        values,
    })
}

/// Reads a file that begins like a safetensors file. Any other file is not read whole.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let failed = |source| CheckpointError::Read {
        path: path.to_owned(),
        source,
    };
    let no_checkpoint = |reason: &str| CheckpointError::Format {
        path: path.to_owned(),
        reason: reason.into(),
    };
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(no_checkpoint("it is no file"));
    }
    let mut length = [0; 8];
    if metadata.len() < 8 {
        return Err(no_checkpoint("it is shorter than any"));
    }
    file.read_exact(&mut length).map_err(failed)?;
    let header = u64::from_le_bytes(length);
    if header > LONGEST_HEADER || header > metadata.len() - 8 {
        return Err(no_checkpoint(
            "it is no safetensors file (it begins with no length of a header)",
        ));
    }
    file.rewind().map_err(failed)?;
    let mut bytes = Vec::new();
    usize::try_from(metadata.len())
        .ok()
        .and_then(|len| bytes.try_reserve_exact(len).ok())
        .ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Gat, OtherLayers};
    use crate::ops::{Optimizer, SgdHyper};
    use crate::sample::EdgesIn;
    use crate::train::{Clipping, Decay, EpochReport, Few, Part, Plateau, Schedule, Score};

    fn digests(parts: &[(&str, &str)]) -> BTreeMap<String, String> {
        let parts = parts.iter();
        parts
            .map(|(what, digest)| ((*what).into(), (*digest).into()))
            .collect()
    }

    fn checkpoint() -> Checkpoint {
        let report = |epoch, loss| EpochReport {
            epoch,
            loss,
            learning_rate: 0.01,
            // Numbers that have no short decimal form.
            score: Score::accuracy([1, 1, 2], [3, 7, 11]),
            others: Few::default(),
            ms: 0.1 + 0.2,
            optimizer: OptimizerSnapshot {
                loss_scale: 1024.0,
                steps: 3,
                skipped: 1,
                since_change: 2,
            },
        };
        let matrix = |values: &[f32]| Tensor {
            rows: 2,
            columns: values.len() / 2,
            values: values.to_vec(),
        };
        Checkpoint {
            task: TaskIdentity {
                name: "toy".into(),
                vertices: 3,
                edges: 4,
                features: 2,
                classes: 2,
                digest: Some(digests(&[("edges", "01"), ("labels", "02")])),
                class_names: None,
                edge_weights: false,
            },
            model: ModelConfig::gcn(2, 2),
            precision: Precision::Half,
            train: TrainConfig {
                optimizer: Optimizer::Sgd(SgdHyper {
                    momentum: 0.9,
                    ..SgdHyper::default()
                }),
                schedule: Schedule {
                    warmup: 3,
                    decay: Decay::Plateau {
                        patience: 7,
                        factor: 0.1,
                    },
                },
                clipping: Clipping::Norm(0.7),
                ..TrainConfig::new(Precision::Half)
            },
            feature_divisors: Some(vec![0.1, 1e6]),
            loss: Loss::CrossEntropy {
                class_weights: Some(vec![0.5; 4]),
            },
            inductive: true,
            links: Some(HeldOut {
                shares: [0.05, 0.1],
                seed: u64::MAX,
            }),
            sampling: Some(Sampling {
                policy: "neighbor:15,-1".parse().expect("a policy"),
                batch: 7,
                coverage: 12,
                edges: EdgesIn::Device,
            }),
            snapshot: Snapshot {
                progress: Progress {
                    epoch: 4,
                    best: Some(report(2, 0.1)),
                    last: Some(report(4, f32::NAN)),
                    non_finite_since: Some(4),
                    plateau: Plateau { stale: 3, falls: 1 },
                    part: Some(Part {
                        batches: 3,
                        loss: Some(0.1 + 0.2),
                        vertices: 30,
                        ms: 1.5,
                    }),
                },
                optimizer: report(4, 0.0).optimizer,
                tensors: Tensors::from([
                    ("a".into(), matrix(&[1.0, -0.0, f32::INFINITY, 1e-45])),
                    ("resume.a".into(), matrix(&[])),
                ]),
            },
        }
    }

    #[test]
    fn how_a_run_is_trained_is_written_as_ever() {
        let text = r#"{"epochs":200,"adam":{"learning_rate":0.01,"beta1":0.9,"beta2":0.999,"epsilon":1e-8,"weight_decay":0.0005},"scaling":{"initial":65536.0,"growth_interval":2000,"maximum":16777216.0},"seed":0,"record":true,"early_stopping":null,"keep_best":false,"patience_non_finite":10}"#;
        let config = TrainConfig::new(Precision::Half);
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        assert_eq!(serde_json::from_str::<TrainConfig>(text).unwrap(), config);
        let none = text.replace("adam", "lion");
        assert!(serde_json::from_str::<TrainConfig>(&none).is_err());
    }

    #[test]
    fn what_is_written_is_read_bit_for_bit() {
        let written = checkpoint();
        let bytes = written.to_bytes().expect("it is written");
        assert_eq!(written.to_bytes().expect("again"), bytes, "the same bytes");
        let read = Checkpoint::from_bytes(&bytes).expect("it is read");
        assert!(
            read.snapshot
                .progress
                .last
                .is_some_and(|last| last.loss.is_nan())
        );
        let without_nan = |mut checkpoint: Checkpoint| {
            checkpoint.snapshot.progress.last = None;
            checkpoint
        };
        assert_eq!(without_nan(read), without_nan(written));
    }

    #[test]
    fn layers_of_somebody_elses_are_kept_under_their_name() {
        let mut written = checkpoint();
        written.snapshot.progress.last = None;
        written.model.convolution = ConvolutionConfig::Other(OtherLayers {
            name: "mine".into(),
            config: serde_json::json!({ "reach": 2 }),
            layers: None,
        });
        let bytes = written.to_bytes().expect("it is written");
        assert_eq!(Checkpoint::from_bytes(&bytes), Ok(written));
    }

    #[test]
    fn every_float_survives_json() {
        for bits in (0..u32::MAX).step_by(999_983) {
            #[derive(Serialize, Deserialize)]
            struct One(#[serde(with = "crate::train::any_f32")] f32);
            let text = serde_json::to_string(&One(f32::from_bits(bits))).expect("JSON");
            let One(read) = serde_json::from_str(&text).expect(&text);
            assert!(read.to_bits() == bits || read.is_nan() && f32::from_bits(bits).is_nan());
        }
    }

    #[test]
    fn a_tensor_that_is_not_what_was_written_is_named() {
        let written = checkpoint();
        let whole = written.to_bytes().expect("it is written");
        // `a` is the only tensor after the header, so every bit counts.
        for at in whole.len() - 16..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let refused = Checkpoint::from_bytes(&changed);
                assert_eq!(refused, Err(Refusal::Damaged("a".into())));
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.safetensors");
        let mut changed = whole;
        *changed.last_mut().expect("a byte") ^= 0xff;
        std::fs::write(&path, changed).expect("room");
        let error = Checkpoint::open(&path).expect_err("damaged").to_string();
        assert!(
            error.contains("x.safetensors: the tensor `a` is damaged"),
            "{error}"
        );
    }

    #[test]
    fn a_header_that_is_not_what_was_written_is_told() {
        let whole = checkpoint().to_bytes().expect("it is written");
        let find = |what: &[u8]| whole.windows(what.len()).position(|window| window == what);
        let at = find(b"1024.0").expect("the loss scale");
        let mut changed = whole.clone();
        changed[at] = b'7';
        assert_eq!(
            Checkpoint::from_bytes(&changed),
            Err(Refusal::DamagedHeader)
        );
        // A file without a checksum of its header.
        let text = sealed(r#"{"a":1}"#);
        assert!(is_sealed(&text) && !is_sealed(r#"{"a":1}"#));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.safetensors");
        std::fs::write(&path, changed).expect("room");
        let error = Checkpoint::open(&path).expect_err("damaged").to_string();
        assert!(
            error.contains("x.safetensors: its header is damaged"),
            "{error}"
        );
    }

    #[test]
    fn divisors_that_cannot_be_are_refused() {
        for divisors in [vec![1.0], vec![1.0, 0.0], vec![-1.0, 1.0]] {
            let mut written = checkpoint();
            written.feature_divisors = Some(divisors);
            let bytes = written.to_bytes().expect("it is written");
            let refused = Checkpoint::from_bytes(&bytes);
            assert!(matches!(refused, Err(Refusal::Format(_))), "{refused:?}");
        }
    }

    #[test]
    fn what_is_no_checkpoint_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |bytes: &[u8]| {
            let path = folder.path().join("x.safetensors");
            std::fs::write(&path, bytes).expect("room");
            let error = Checkpoint::open(&path).expect_err("refused").to_string();
            assert!(
                error.contains("x.safetensors") && !error.contains(char::is_control),
                "{error}"
            );
            error
        };
        assert!(refused(b"").contains("shorter than any"));
        assert!(refused(&[0xff; 64]).contains("no length of a header"));
        let whole = checkpoint().to_bytes().expect("it is written");
        for length in (0..whole.len()).step_by(7) {
            refused(&whole[..length]);
        }
        for at in 0..whole.len().min(600) {
            // No byte of the header causes a panic; some do not matter.
            let mut changed = whole.clone();
            changed[at] ^= 0x15;
            let _ = Checkpoint::from_bytes(&changed);
        }
        // The reader's message cites the file.
        let header = format!(
            r#"{{"x":{{"dtype":"F\n\u001b[2J{}","shape":[],"data_offsets":[0,0]}}}}"#,
            "7".repeat(5000)
        );
        let mut cited = (header.len() as u64).to_le_bytes().to_vec();
        cited.extend(header.into_bytes());
        let error = refused(&cited);
        assert!(error.contains(r"F\n\u{1b}[2J777"), "{error}");
        assert!(error.len() < 1200, "{error}");
        let other = safetensors::serialize(Vec::<(String, TensorView<'_>)>::new(), None);
        assert!(refused(&other.expect("a file")).contains("another program"));
        let entry = HashMap::from([(
            ENTRY.to_owned(),
            r#"{"format": 9, "version": "7.0", "more": 1}"#.to_owned(),
        )]);
        let newer = safetensors::serialize(Vec::<(String, TensorView<'_>)>::new(), Some(entry));
        assert!(refused(&newer.expect("a file")).contains("format 9 of version 7.0"));
        let mut deep = checkpoint();
        deep.model.layers = 1_000_000_000_000;
        let deep = deep.to_bytes().expect("it is written");
        assert!(refused(&deep).contains("tells of 1000000000000 layers, and there are 2 tensors"));
        let mut headless = checkpoint();
        headless.model.convolution = Gat {
            heads: 0,
            ..Gat::default()
        }
        .into();
        let headless = headless.to_bytes().expect("it is written");
        assert!(refused(&headless).contains("attention without heads"));
        let missing = Checkpoint::open(&folder.path().join("none")).expect_err("no file");
        assert!(matches!(missing, CheckpointError::Read { .. }));
    }

    #[test]
    fn another_task_is_told_with_both_figures() {
        let task = checkpoint().task;
        let other = TaskIdentity {
            name: "other".into(),
            edges: 5,
            ..task.clone()
        };
        assert_eq!(
            task.difference(&other).as_deref(),
            Some("it was trained on toy with 4 edges, and other has 5")
        );
        let weighted = TaskIdentity {
            edge_weights: true,
            ..task.clone()
        };
        let difference = |from: &TaskIdentity, to| from.difference(to).unwrap_or_default();
        assert!(difference(&task, &weighted).contains("--ignore-edge-weights"));
        assert!(difference(&weighted, &task).contains("trained with the edge weights"));
        let renamed = TaskIdentity {
            name: "renamed".into(),
            ..task.clone()
        };
        assert_eq!(task.difference(&renamed), None);
        let with = |digest| TaskIdentity {
            digest,
            ..task.clone()
        };
        let other = with(Some(digests(&[("edges", "03"), ("labels", "04")])));
        assert!(difference(&task, &other).contains("with other edges and labels than toy"));
        // A file of an earlier release has no digest, and features on disk have none.
        assert_eq!(with(None).difference(&other), None);
        let unread = digests(&[("labels", "02"), ("features", "05")]);
        assert_eq!(task.difference(&with(Some(unread))), None);
        let unnamed = TaskIdentity {
            class_names: Some(vec!["a".into()]),
            ..task.clone()
        };
        assert!(difference(&unnamed, &task).contains("other names of classes"));
    }

    /// Files of earlier releases have a hash of labels, and some have text in place of digests. They are read, and
    /// nothing is compared.
    #[test]
    fn identities_of_earlier_releases_have_no_digest() {
        let read = |rest: &str| {
            let text = format!(
                r#"{{"name":"toy","vertices":3,"edges":4,"features":2,"classes":2{rest}}}"#
            );
            serde_json::from_str::<TaskIdentity>(&text).map(|task| task.digest)
        };
        assert_eq!(read(r#","labels":"00""#).unwrap(), None);
        assert_eq!(
            read(r#","labels":"00","digest":[1,2,null,4,5]"#).unwrap(),
            None
        );
        let written = read(r#","digest":{"edges":"01"}"#).unwrap();
        assert_eq!(written, Some(digests(&[("edges", "01")])));
    }
}
