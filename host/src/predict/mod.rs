//! Predictions of a trained model: opened once, asked many times, by several threads.
//!
//! ```
//! # use half::f16;
//! # use halfgnn::backend::cpu::Cpu;
//! # use halfgnn::data::{Synthetic, UploadFeatures};
//! # use halfgnn::graph::generate::BlockModel;
//! # use halfgnn::nn::{ModelConfig, Network, Propagation};
//! # use halfgnn::tensor::Precision;
//! # use halfgnn::train::checkpoint::TaskIdentity;
//! # use halfgnn::train::{Checkpoint, Loss, Objective, TrainConfig, Trainer};
//! use halfgnn::data::Features;
//! use halfgnn::device::Choice;
//! use halfgnn::predict::{NewGraph, Predictor};
//! # let graph = BlockModel { vertices: 300, classes: 3, hubs: 0, hub_degree: 0, ..BlockModel::default() };
//! # let of = Synthetic { graph, features: 16, train_per_class: 20, val_per_class: 20, ..Synthetic::default() };
//! # let data = of.generate(0)?;
//! # let backend = Cpu::new();
//! # let model = ModelConfig::gcn(data.feature_len(), data.outputs);
//! # let graph = Propagation::new(&backend, &*model.prepare(&data.graph)?, model.norm())?;
//! # let features = data.upload_features(&backend)?;
//! # let splits = [&data.train[..], &data.val, &data.test];
//! # let labels = data.class_labels()?;
//! # let objective = Objective::<_, f16>::new(&backend, graph, features, labels, data.outputs, splits)?;
//! # let train = TrainConfig { epochs: 2, ..TrainConfig::new(Precision::Half) };
//! # let network = Network::new(&backend, &model, 0)?;
//! # let mut trainer = Trainer::new(&backend, &objective, network, train)?;
//! # trainer.run(|_| std::ops::ControlFlow::Continue(()))?;
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("model.safetensors");
//! # Checkpoint {
//! #     task: TaskIdentity::of(&data),
//! #     model,
//! #     precision: Precision::Half,
//! #     train,
//! #     feature_divisors: None,
//! #     loss: Loss::CrossEntropy { class_weights: None },
//! #     inductive: false,
//! #     links: None,
//! #     sampling: None,
//! #     snapshot: trainer.snapshot()?,
//! # }
//! # .save(&file)?;
//!
//! // `file` is what `halfgnn train --save` wrote, and `data` a dataset that `Dataset::open` read.
//! let predictor = Predictor::open(&file, Choice::Cpu)?.with_dataset(data)?;
//!
//! // Vertices of the dataset, from several threads.
//! std::thread::scope(|scope| {
//!     for vertex in [0, 7] {
//!         let predictor = &predictor;
//!         scope.spawn(move || predictor.predict(&[vertex]).expect("it is one of 300"));
//!     }
//! });
//!
//! // A graph that the model has not seen: three vertices in a line.
//! let features = Features::dense(16, vec![0.5; 3 * 16])?;
//! let line = NewGraph::from_edges(features, &[[0, 1], [1, 0], [1, 2], [2, 1]])?;
//! let predictions = predictor.predict_graph(&line)?;
//! let classes = predictions.classes().expect("the model predicts classes");
//! let probabilities = predictions.probabilities().expect("those of each class");
//! assert_eq!(classes.len(), 3);
//! assert_eq!(probabilities.len(), 3 * predictor.outputs());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
mod machine;
mod output;

pub use input::NewGraph;
pub use output::{Kind, Predictions, class, sigmoid, softmax};

use crate::data::{Dataset, Features, VertexIds};
use crate::device::{self, Choice};
use crate::error::Error;
use crate::nn::{ModelConfig, PairScores};
use crate::tensor::Precision;
use crate::train::{Checkpoint, CheckpointError};
use machine::{Machine, Open, Outputs, Read};
use std::path::Path;
use std::sync::Arc;

/// Why something is not predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The file of the model.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Vertices, pairs or a graph that do not fit the model: the caller's mistake, in one line.
    #[error("{0}")]
    Input(String),
    /// The device.
    #[error(transparent)]
    Device(Error),
}

impl From<Error> for PredictError {
    /// What a pass refuses of its operands, a caller gave.
    fn from(error: Error) -> Self {
        match error {
            Error::Shape { .. }
            | Error::Unsupported { .. }
            | Error::TooLarge { .. }
            | Error::Graph(_) => Self::Input(error.to_string()),
            other => Self::Device(other),
        }
    }
}

/// A trained model on a device, and the outputs of a dataset's vertices where it was given one.
///
/// All methods that predict take `&self`, and several threads may call them at once. On the CPU each call computes by a
/// network of its own; the parameters are shared. On a GPU and on the emulator calls upload their graphs at once, and
/// compute one after the other. Results are those of `halfgnn predict`, to the bit, in whatever order calls come.
///
/// Passes read whole graphs in the device's memory. For features or edges on disk, and graphs that need
/// [pieces](crate::nn::Pieces), there is `halfgnn predict`.
#[derive(Debug)]
pub struct Predictor {
    /// Without its tensors.
    checkpoint: Checkpoint,
    class_names: Option<Arc<[String]>>,
    machine: Box<dyn Machine>,
    known: Option<Known>,
}

/// What is known of a dataset that was given.
#[derive(Debug)]
struct Known {
    name: String,
    /// `vertex` or `graph`.
    member: &'static str,
    rows: usize,
    outputs: Outputs,
    ids: Option<VertexIds>,
    /// Vertices in the order of their ids.
    by_id: Vec<u32>,
}

impl Predictor {
    /// Opens the model in a file that `halfgnn train --save`, `halfgnn export --to bits` or [`Checkpoint::save`] wrote:
    /// the weights of the best validation epoch.
    ///
    /// # Errors
    /// [`PredictError::Checkpoint`] where the file cannot be read or is no checkpoint, and those of
    /// [`Predictor::new`].
    pub fn open(path: impl AsRef<Path>, choice: Choice) -> Result<Self, PredictError> {
        Self::new(Checkpoint::open(path.as_ref())?, choice)
    }

    /// The model of a checkpoint. One of the caller's own layers has them set.
    ///
    /// # Errors
    /// [`PredictError::Input`] where the tensors are those of another model, [`PredictError::Device`] where the device
    /// cannot be used or has too little memory.
    pub fn new(mut checkpoint: Checkpoint, choice: Choice) -> Result<Self, PredictError> {
        let machine = device::open(choice, Open(&checkpoint))??;
        checkpoint.snapshot.tensors.clear();
        let class_names = checkpoint.task.class_names.take();
        Ok(Self {
            class_names: class_names.map(Into::into),
            checkpoint,
            machine,
            known: None,
        })
    }

    /// The same with a dataset whose vertices, graphs or pairs [`Predictor::predict`] and [`Predictor::score_pairs`]
    /// are asked for: the one that the model was trained on, or another that it reads.
    ///
    /// The pass over the whole graph is made here, once. What stays is a row of outputs for each vertex, in the host's
    /// memory, and the ids of vertices; a call looks rows up.
    ///
    /// # Errors
    /// [`PredictError::Input`] where the model does not read it, [`PredictError::Device`] where the pass does not fit
    /// the device.
    pub fn with_dataset(mut self, dataset: Dataset) -> Result<Self, PredictError> {
        let outputs = self.pass_over(&dataset, false)?;
        let rows = match &outputs {
            Outputs::Logits(logits) => logits.len() / self.outputs(),
            Outputs::Pairs(scores) => scores.vertices(),
        };
        // Of many graphs ids are those of vertices, which have no row.
        let ids = dataset.ids.filter(|ids| ids.len() == rows);
        let mut by_id: Vec<u32> = match &ids {
            Some(ids) => (0..ids.len() as u32).collect(),
            None => Vec::new(),
        };
        if let Some(ids) = &ids {
            by_id.sort_unstable_by_key(|&vertex| ids.get(vertex as usize));
        }
        self.known = Some(Known {
            member: match dataset.graphs {
                Some(_) => "graph",
                None => "vertex",
            },
            name: dataset.name,
            rows,
            outputs,
            ids,
            by_id,
        });
        Ok(self)
    }

    /// The configuration of the model.
    pub fn model(&self) -> &ModelConfig {
        &self.checkpoint.model
    }

    /// What the model computes with.
    pub fn precision(&self) -> Precision {
        self.checkpoint.precision
    }

    /// What the model predicts.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.checkpoint)
    }

    /// Features of each vertex that the model reads.
    pub fn features(&self) -> usize {
        self.checkpoint.model.features
    }

    /// Numbers that the model gives of each vertex or graph: classes, labels or values; of links the width of
    /// embeddings.
    pub fn outputs(&self) -> usize {
        self.checkpoint.model.classes
    }

    /// What the classes are called, where the dataset that the model was trained on has names.
    pub fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref()
    }

    /// The name of the device.
    pub fn device(&self) -> String {
        self.machine.device()
    }

    /// Vertices, or graphs of many, of the dataset; `None` without one.
    pub fn rows(&self) -> Option<usize> {
        self.known.as_ref().map(|known| known.rows)
    }

    /// The number of the vertex that the dataset calls `id`, where it has ids.
    pub fn vertex_of(&self, id: &str) -> Option<u32> {
        let known = self.known.as_ref()?;
        let ids = known.ids.as_ref()?;
        let by_id = &known.by_id;
        let found = by_id.binary_search_by_key(&id, |&vertex| ids.get(vertex as usize));
        found.ok().map(|at| by_id[at])
    }

    /// The id of a vertex of the dataset, where it has ids.
    pub fn id_of(&self, vertex: u32) -> Option<&str> {
        let ids = self.known.as_ref()?.ids.as_ref()?;
        ((vertex as usize) < ids.len()).then(|| ids.get(vertex as usize))
    }

    /// What the model predicts of vertices of the dataset, a row each, in the order of `vertices`; of a dataset of many
    /// graphs, of its graphs.
    ///
    /// # Errors
    /// [`PredictError::Input`] without a dataset, where a number is none of its vertices, and of a model of links.
    pub fn predict(&self, vertices: &[u32]) -> Result<Predictions, PredictError> {
        let known = self.known()?;
        let logits = self.expect_logits(&known.outputs)?;
        known.check(vertices)?;
        let columns = self.outputs();
        let row = |&vertex: &u32| &logits[vertex as usize * columns..][..columns];
        let rows = vertices.iter().flat_map(row);
        Ok(self.predictions(rows.copied().collect()))
    }

    /// What it predicts of all vertices, or graphs, of the dataset.
    ///
    /// # Errors
    /// [`PredictError::Input`] without a dataset, and of a model of links.
    pub fn predict_all(&self) -> Result<Predictions, PredictError> {
        let logits = self.expect_logits(&self.known()?.outputs)?;
        Ok(self.predictions(logits.to_vec()))
    }

    /// What it predicts of each vertex of a graph that it has not seen, or of each graph where the model predicts
    /// [whole graphs](NewGraph::with_graphs).
    ///
    /// # Errors
    /// [`PredictError::Input`] where the model does not read the graph, and of a model of links;
    /// [`PredictError::Device`] where the pass does not fit the device.
    pub fn predict_graph(&self, graph: &NewGraph<'_>) -> Result<Predictions, PredictError> {
        self.expect_rows()?;
        let outputs = self.pass_over_new(graph)?;
        Ok(self.predictions(self.expect_logits(&outputs)?.to_vec()))
    }

    /// The same of a dataset, which may have several types of vertices: then a row for each of the labelled type.
    ///
    /// # Errors
    /// Those of [`Predictor::predict_graph`].
    pub fn predict_dataset(&self, dataset: &Dataset) -> Result<Predictions, PredictError> {
        self.expect_rows()?;
        let outputs = self.pass_over(dataset, true)?;
        Ok(self.predictions(self.expect_logits(&outputs)?.to_vec()))
    }

    /// The score of each pair of vertices of the dataset, by a model of links. The probability of a link is the
    /// [`sigmoid`] of its score.
    ///
    /// # Errors
    /// [`PredictError::Input`] without a dataset, where a number is none of its vertices, and of other models.
    pub fn score_pairs(&self, pairs: &[[u32; 2]]) -> Result<Vec<f32>, PredictError> {
        let known = self.known()?;
        let scores = self.expect_pairs(&known.outputs)?;
        known.check(pairs.as_flattened())?;
        Ok(scores.score(pairs)?)
    }

    /// The same of pairs of vertices of a graph that it has not seen, which has each edge in both directions.
    ///
    /// # Errors
    /// [`PredictError::Input`] where the model does not read the graph, a number is none of its vertices, and of other
    /// models; [`PredictError::Device`] where the pass does not fit the device.
    pub fn score_pairs_of(
        &self,
        graph: &NewGraph<'_>,
        pairs: &[[u32; 2]],
    ) -> Result<Vec<f32>, PredictError> {
        if self.kind() != Kind::Links {
            return Err(self.gives_rows());
        }
        check_numbers(
            pairs.as_flattened(),
            (graph.vertices(), "vertex", "the graph"),
        )?;
        let outputs = self.pass_over_new(graph)?;
        Ok(self.expect_pairs(&outputs)?.score(pairs)?)
    }

    fn pass_over(&self, dataset: &Dataset, stays: bool) -> Result<Outputs, PredictError> {
        self.checkpoint
            .check_dataset(dataset)
            .map_err(PredictError::Input)?;
        let is_on_disk = dataset.graph.csr().is_on_disk() || dataset.outline().is_some();
        if is_on_disk || dataset.features.as_stored().is_some() {
            return Err(PredictError::Input(format!(
                "{}: its features or edges are on disk, and a predictor reads them in memory; open the dataset with them there, \
                 or run halfgnn predict",
                dataset.name
            )));
        }
        if let Some(types) = &dataset.types {
            let all = (0..types.vertices().len()).filter_map(|of| dataset.features_of_type(of));
            self.check_ranges(all)?;
            return Ok(self.machine.pass(Read::Types(dataset), stays)?);
        }
        let graph = NewGraph::of_dataset(self.model(), dataset);
        self.pass_over_checked(&graph, stays)
    }

    fn pass_over_new(&self, graph: &NewGraph<'_>) -> Result<Outputs, PredictError> {
        if self.model().types.is_some() {
            return Err(PredictError::Input(
                "its model reads several types of vertices, and the graph has one; give a dataset of those types".into(),
            ));
        }
        self.checkpoint
            .check_graph("the graph", graph)
            .map_err(PredictError::Input)?;
        if graph.features.as_stored().is_some() || graph.graph.csr().is_on_disk() {
            return Err(PredictError::Input(
                "the graph has features or edges on disk, and a predictor reads them in memory"
                    .into(),
            ));
        }
        self.pass_over_checked(graph, true)
    }

    fn pass_over_checked(
        &self,
        graph: &NewGraph<'_>,
        stays: bool,
    ) -> Result<Outputs, PredictError> {
        let features = self.checkpoint.scaled(&graph.features);
        let features = features.map_err(PredictError::Input)?;
        Ok(self.machine.pass(Read::One(graph, &features), stays)?)
    }

    fn check_ranges<'f>(
        &self,
        mut all: impl Iterator<Item = &'f Features>,
    ) -> Result<(), PredictError> {
        all.try_for_each(|features| self.checkpoint.check_range(features))
            .map_err(PredictError::Input)
    }

    fn known(&self) -> Result<&Known, PredictError> {
        self.known.as_ref().ok_or_else(|| {
            PredictError::Input(
                "the model was opened without a dataset, which vertices are numbered by; open it with one, or give a graph"
                    .into(),
            )
        })
    }

    fn predictions(&self, logits: Vec<f32>) -> Predictions {
        Predictions {
            kind: self.kind(),
            columns: self.outputs(),
            logits,
            class_names: self.class_names.clone(),
        }
    }

    fn gives_rows(&self) -> PredictError {
        PredictError::Input(format!(
            "the model predicts {} and no links; ask for vertices or a graph",
            self.kind()
        ))
    }

    fn expect_rows(&self) -> Result<(), PredictError> {
        match self.kind() {
            Kind::Links => Err(PredictError::Input(
                "the model predicts links; ask for pairs of vertices".into(),
            )),
            _ => Ok(()),
        }
    }

    fn expect_logits<'a>(&self, outputs: &'a Outputs) -> Result<&'a [f32], PredictError> {
        self.expect_rows()?;
        match outputs {
            Outputs::Logits(logits) => Ok(logits),
            Outputs::Pairs(_) => Ok(&[]),
        }
    }

    fn expect_pairs<'a>(&self, outputs: &'a Outputs) -> Result<&'a PairScores, PredictError> {
        match outputs {
            Outputs::Pairs(scores) => Ok(scores),
            Outputs::Logits(_) => Err(self.gives_rows()),
        }
    }
}

impl Known {
    fn check(&self, numbers: &[u32]) -> Result<(), PredictError> {
        check_numbers(numbers, (self.rows, self.member, &self.name))
    }
}

/// That numbers are of the rows that there are.
fn check_numbers(
    numbers: &[u32],
    (rows, member, name): (usize, &str, &str),
) -> Result<(), PredictError> {
    match numbers.iter().find(|&&number| number as usize >= rows) {
        None => Ok(()),
        Some(number) => Err(PredictError::Input(format!(
            "{member} {number} is not there: {name} has {rows}, numbered from 0"
        ))),
    }
}

/// Threads share it.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Predictor>();
};
