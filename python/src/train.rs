//! Training as the program does it, step by step: a trainer of whatever device and precision behind one face.

use crate::errors::exception;
use crate::memory::RawArray;
use crate::place::{Place, emulator, precision};
use crate::sample::sampling_of;
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::rules::{Selection, Selects};
use halfgnn::data::{
    DataProblem, Dataset, Features, OpenOptions, Splits, Targets, UploadFeatures, locate, rules,
};
use halfgnn::graph::{Graph, GraphCounts};
use halfgnn::nn::{
    ConvolutionConfig, HiddenActivation, HiddenNorm, Jumping, Model, ModelConfig, Network,
    Propagation,
};
use halfgnn::ops::{AdamHyper, Optimizer, SgdHyper};
use halfgnn::sample::Sampling;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::state_dict::{Framework, ImportOptions, StateDict, StateTensor};
use halfgnn::train::{
    Batches, Checkpoint, EpochReport, Footprint, Goal, Learning, Loss, Objective, Status,
    TrainConfig, Work, host_memory, load_weights,
};
use halfgnn::with_element;
use pyo3::exceptions::{PyIndexError, PyOSError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Tensors by name: shape, and values in C's order.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A value that is not possible.
fn refused(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// As many layers as the program takes at most.
const MOST_LAYERS: usize = 1000;

/// A labelled graph.
#[pyclass(frozen)]
pub struct Data(Arc<Dataset>);

#[pymethods]
impl Data {
    /// A dataset from a file in any format that the program reads, or by the name of one that is known.
    #[staticmethod]
    fn open(py: Python<'_>, name: PathBuf) -> PyResult<Self> {
        let open = || {
            let path = locate(&name, None)?;
            Dataset::open_with(path, &OpenOptions::default())
        };
        let opened = py.detach(|| threads::install(open))?;
        opened
            .map(|data| Self(Arc::new(data)))
            .map_err(|error| match name.exists() {
                true => refused(error),
                false => PyOSError::new_err(error.to_string()),
            })
    }

    /// A dataset of arrays: row offsets and columns of the graph, a float for each edge or none, rows of features,
    /// targets, and the vertices of the three splits. Targets are `integers` of 64 bits, or rows of floats: `numbers`,
    /// which are taken for what [`rules::targets`] says, or `values`.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "arrays, as Python has them")]
    fn new(
        name: String,
        offsets: RawArray,
        columns: RawArray,
        weights: Option<RawArray>,
        features: RawArray,
        targets: (String, usize, RawArray),
        train: RawArray,
        validation: RawArray,
        test: RawArray,
    ) -> PyResult<Self> {
        // SAFETY: Python's arrays, of these types, which it keeps until this returns; so below.
        let offsets = unsafe { offsets.read::<u64>() }.to_vec();
        let vertices = offsets.len().saturating_sub(1);
        // SAFETY: as above.
        let columns = unsafe { columns.read::<u32>() }.to_vec();
        let graph =
            Graph::from_offsets(offsets, columns).map_err(|error| exception(error.into()))?;
        // SAFETY: as above.
        let features = unsafe { features.read::<f32>() };
        let width = features.len().checked_div(vertices).unwrap_or(0);
        let features = Features::dense(width, features.to_vec()).map_err(refused)?;
        let (kind, wide, values) = targets;
        let targets: Targets = match kind.as_str() {
            "integers" => {
                // SAFETY: as above.
                let integers = unsafe { values.read::<i64>() };
                let classes = rules::classes("y", integers);
                classes.map_err(|problem| refused(format!("{problem}: it is no class")))?
            }
            kind => {
                // SAFETY: as above.
                let values = unsafe { values.read::<f32>() }.to_vec();
                let read = match kind {
                    "numbers" => rules::targets(wide, values, "vertex"),
                    _ => rules::values(wide, values, "vertex"),
                };
                read.map_err(refused)?.0
            }
        };
        // SAFETY: as above.
        let splits = unsafe {
            Splits {
                train: train.read::<u32>().to_vec(),
                val: validation.read::<u32>().to_vec(),
                test: test.read::<u32>().to_vec(),
            }
        };
        let splits = splits.labelled(&targets).0;
        let mut data = Dataset::new(name, graph, features, targets, splits).map_err(refused)?;
        // SAFETY: as above.
        data.edge_weights = weights.map(|weights| unsafe { weights.read::<f32>() }.to_vec());
        Ok(Self(Arc::new(data)))
    }

    /// Vertices, edges, features, outputs, and vertices of each split.
    fn counts(&self) -> [usize; 7] {
        let data = &*self.0;
        [
            data.graph.vertices(),
            data.graph.edges(),
            data.feature_len(),
            data.outputs,
            data.train.len(),
            data.val.len(),
            data.test.len(),
        ]
    }
}

/// What a trainer is asked for, whatever it runs on.
trait Running: Send {
    fn step(&mut self) -> Result<(), Error>;
    fn loss(&self) -> Result<f32, Error>;
    fn next_epoch(&mut self) -> Result<Option<EpochReport>, Error>;
    fn evaluate(&mut self) -> Result<String, Error>;
    fn logits(&mut self) -> Result<(usize, usize, Vec<f32>), Error>;
    fn status(&self) -> (Status, f64, Option<EpochReport>, Option<EpochReport>);
    fn checkpoint(&self) -> Result<Checkpoint, Error>;
    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), Error>;
    fn device(&self) -> String;
    fn peak_bytes(&self) -> u64;
    fn is_recorded(&self) -> bool;
    fn learning_rate(&self) -> f32;
}

struct Run<B: Backend, E: Element> {
    backend: B,
    data: Arc<Dataset>,
    /// Of the data, which are read once for it.
    task: OnceLock<TaskIdentity>,
    model: ModelConfig,
    loss: Loss,
    sampling: Option<Sampling>,
    precision: Precision,
    train: TrainConfig,
    trainer: halfgnn::train::Trainer<B, E, Network<B, E>>,
}

impl<B: Backend, E: Element> Run<B, E> {
    fn new(
        backend: &B,
        memory: Option<(u64, u64)>,
        multiprocessors: Option<u32>,
        of: &Wanted,
    ) -> Result<Self, Error> {
        let Wanted {
            data,
            model,
            train,
            loss,
            sampling,
            resume,
            ..
        } = of;
        let of_edges = data.edge_weights.as_deref();
        let (graph, weights) = model.prepare_weighted(&data.graph, of_edges)?;
        let counts = GraphCounts::of(&graph).weighted(weights.is_some());
        let how = (model, train, Work::of_run(sampling.is_some()));
        let how = Learning::from(how).of_targets(&data.targets);
        let footprint = Footprint::check_work::<E>(&counts, how, multiprocessors, memory)?;
        backend.prefetch(footprint.kernels());
        let goal = Goal {
            targets: &data.targets,
            outputs: data.outputs,
            loss,
            splits: [&data.train, &data.val, &data.test],
        };
        let graph = Propagation::of_graph::<E>(backend, &graph, weights.as_deref(), model.norm())?;
        let features = data.upload_features(backend)?;
        let objective = Objective::of(backend, vec![graph], features, &goal)?;
        let network = Network::new(backend, model, train.seed)?;
        let mut trainer = match sampling {
            None => halfgnn::train::Trainer::new(backend, &objective, network, *train)?,
            Some(sampling) => {
                let how = (loss, model, network.hops());
                let seed = (sampling, train.seed);
                let of = (&data.graph, of_edges);
                let batches = Batches::of_sampling(backend, &objective, how, of, seed)?;
                halfgnn::train::Trainer::sampled(backend, batches, &objective, network, *train)?
            }
        };
        if let Some(checkpoint) = resume {
            trainer.restore(&checkpoint.snapshot)?;
        }
        Ok(Self {
            backend: backend.clone(),
            data: Arc::clone(data),
            task: OnceLock::new(),
            model: model.clone(),
            loss: loss.clone(),
            sampling: sampling.clone(),
            precision: E::PRECISION,
            train: *train,
            trainer,
        })
    }
}

impl<B: Backend, E: Element> Running for Run<B, E> {
    fn step(&mut self) -> Result<(), Error> {
        self.trainer.step()
    }

    fn loss(&self) -> Result<f32, Error> {
        self.trainer.loss()
    }

    fn next_epoch(&mut self) -> Result<Option<EpochReport>, Error> {
        self.trainer.next_epoch()
    }

    fn evaluate(&mut self) -> Result<String, Error> {
        let (score, others) = self.trainer.evaluate()?;
        Ok(json(&(score, others)))
    }

    fn logits(&mut self) -> Result<(usize, usize, Vec<f32>), Error> {
        self.trainer.evaluate()?;
        let logits = self.trainer.model().logits();
        let (rows, columns) = logits.shape();
        Ok((rows, columns, logits.to_f32(&self.backend)?))
    }

    fn status(&self) -> (Status, f64, Option<EpochReport>, Option<EpochReport>) {
        let summary = self.trainer.summary();
        (
            summary.status,
            summary.ms_per_epoch,
            summary.best,
            summary.last,
        )
    }

    fn checkpoint(&self) -> Result<Checkpoint, Error> {
        Ok(Checkpoint {
            task: self
                .task
                .get_or_init(|| TaskIdentity::of(&self.data))
                .clone(),
            model: self.model.clone(),
            precision: self.precision,
            train: self.train,
            feature_divisors: None,
            loss: self.loss.clone(),
            inductive: false,
            links: None,
            sampling: self.sampling.clone(),
            snapshot: self.trainer.snapshot()?,
        })
    }

    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let backend = self.backend.clone();
        load_weights(
            &backend,
            self.trainer.model_mut(),
            &checkpoint.snapshot.tensors,
        )
    }

    fn device(&self) -> String {
        self.backend.name()
    }

    fn peak_bytes(&self) -> u64 {
        self.backend.memory().peak_total
    }

    fn is_recorded(&self) -> bool {
        self.trainer.is_recorded()
    }

    fn learning_rate(&self) -> f32 {
        self.trainer.learning_rate()
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Numbers, words and lists of them always can be.
    serde_json::to_string(value).unwrap_or_default()
}

/// What is to be trained.
struct Wanted {
    data: Arc<Dataset>,
    model: ModelConfig,
    precision: Precision,
    train: TrainConfig,
    loss: Loss,
    sampling: Option<Sampling>,
    resume: Option<Checkpoint>,
}

/// A run on a device.
#[pyclass(frozen)]
pub struct Trainer {
    run: Mutex<Box<dyn Running>>,
    /// Whether it computes on threads of the host.
    on_host: bool,
}

/// How to train, as Python says it; what is absent is customary.
#[derive(FromPyObject)]
pub struct Options {
    model: String,
    /// Options of one kind of models, by their names in the program.
    own: BTreeMap<String, String>,
    layers: Option<usize>,
    hidden: Option<Vec<usize>>,
    dropout: Option<Vec<f32>>,
    residual: bool,
    activation: Option<String>,
    hidden_norm: Option<String>,
    jumping: Option<String>,
    epochs: Option<u32>,
    optimizer: String,
    lr: Option<f32>,
    weight_decay: Option<f32>,
    momentum: Option<f32>,
    schedule: Option<String>,
    warmup: Option<u32>,
    early_stopping: Option<u32>,
    metric: Option<String>,
    loss: Option<String>,
    /// The names that Python takes in addition to `own`.
    keywords: Vec<String>,
    class_weights: Option<Vec<f32>>,
    seed: u64,
    record: bool,
    sampler: Option<String>,
    batch_size: Option<u32>,
    coverage: Option<u32>,
}

/// What is called so, where something is.
fn one_of<T: Display + Copy, const N: usize>(
    option: &str,
    given: &Option<String>,
    all: [T; N],
) -> PyResult<Option<T>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let found = all.iter().find(|one| one.to_string() == *given);
    found.copied().map(Some).ok_or_else(|| {
        let names: Vec<String> = all.iter().map(T::to_string).collect();
        refused(format!("{option} {given:?}; take {}", names.join(", ")))
    })
}

/// The most of what a model may have, as the program has it.
#[pyfunction]
pub fn limits() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("layers", ModelConfig::MOST_LAYERS),
        ("hidden", ModelConfig::MOST_HIDDEN),
    ])
}

/// The name that is nearest to one that there is not, where one is near.
#[pyfunction]
pub fn nearest(given: &str, known: Vec<String>) -> Option<String> {
    rules::nearest(given, known.iter().map(String::as_str)).map(str::to_owned)
}

/// Whether an array of doubles that selects some of `vertices` is a mask, or else a list: see [`rules::selection`].
/// They were truths (0), integers (1) or floats (2).
#[pyfunction]
pub fn is_mask(name: &str, kind: u8, numbers: RawArray, vertices: usize) -> PyResult<bool> {
    let selects = match kind {
        0 => Selects::Truths,
        1 => Selects::Integers,
        _ => Selects::Floats,
    };
    // SAFETY: Python's array, of this type, which it keeps until this returns.
    let numbers = unsafe { numbers.read::<f64>() };
    match rules::selection(name, selects, numbers, vertices) {
        Ok(selection) => Ok(selection == Selection::Mask),
        Err(DataProblem::NoVertex { value, .. }) => Err(PyIndexError::new_err(format!(
            "{name}: {value} is no vertex: there are {vertices} vertices, numbered from 0"
        ))),
        Err(problem) => Err(refused(problem)),
    }
}

impl Options {
    fn model(&self, data: &Dataset) -> PyResult<ModelConfig> {
        let kinds = ConvolutionConfig::kinds();
        let Some(kind) = kinds.iter().find(|kind| kind.name == self.model) else {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
            return Err(refused(format!(
                "there is no model {:?}; take one of {}",
                self.model,
                names.join(", ")
            )));
        };
        let mut convolution = kind.convolution.clone();
        for (name, text) in &self.own {
            if !kind.options.iter().any(|option| option.name == name) {
                let names: Vec<&str> = kind.options.iter().map(|option| option.name).collect();
                let has = if names.is_empty() {
                    "none".into()
                } else {
                    names.join(", ")
                };
                let known = self.keywords.iter().map(String::as_str);
                let near = rules::nearest(name, known.chain(names));
                let near = near.map_or_else(String::new, |near| format!("; is {near} meant?"));
                return Err(refused(format!(
                    "{name} is no option of {}, which has {has}{near}",
                    kind.name
                )));
            }
            convolution
                .set(name, text)
                .map_err(|wanted| refused(format!("{name}={text} of {}: {wanted}", kind.name)))?;
        }
        let config = ModelConfig::of(convolution, data.feature_len(), data.outputs);
        let hidden = self.hidden.clone().unwrap_or_default();
        let dropout = self.dropout.clone().unwrap_or_default();
        if let Some(layers) = self
            .layers
            .filter(|layers| !(1..=MOST_LAYERS).contains(layers))
        {
            return Err(refused(format!(
                "layers={layers}; take a number from 1 to {MOST_LAYERS}"
            )));
        }
        let layers = if hidden.len() > 1 {
            hidden.len() + 1
        } else {
            config.layers
        };
        Ok(ModelConfig {
            hidden: hidden.last().copied().unwrap_or(config.hidden),
            layers: self.layers.unwrap_or(layers),
            dropout: dropout.last().copied().unwrap_or(config.dropout),
            dropout_by_layer: if dropout.len() > 1 {
                dropout
            } else {
                Vec::new()
            },
            hidden_by_layer: if hidden.len() > 1 { hidden } else { Vec::new() },
            residual: self.residual,
            activation: one_of("activation", &self.activation, HiddenActivation::ALL)?
                .unwrap_or(config.activation),
            hidden_norm: one_of("hidden_norm", &self.hidden_norm, HiddenNorm::ALL)?
                .unwrap_or(config.hidden_norm),
            jumping: one_of("jumping", &self.jumping, Jumping::ALL)?.or(config.jumping),
            ..config
        })
    }

    fn train(
        &self,
        precision: Precision,
        model: &ModelConfig,
        data: &Dataset,
    ) -> PyResult<TrainConfig> {
        let defaults = TrainConfig::new(precision);
        let weight_decay = self.weight_decay.unwrap_or(model.weight_decay());
        let learning_rate = self.lr.unwrap_or(model.learning_rate());
        for (name, number) in [("lr", learning_rate), ("weight_decay", weight_decay)] {
            if !(number.is_finite() && number >= 0.0) {
                return Err(refused(format!(
                    "{name}={number}; it should be a number from 0 on"
                )));
            }
        }
        let adam = AdamHyper {
            learning_rate,
            weight_decay,
            ..AdamHyper::default()
        };
        if self.momentum.is_some() && self.optimizer != "sgd" {
            return Err(refused(format!(
                "momentum is of sgd, and the optimizer is {}; leave it out",
                self.optimizer
            )));
        }
        let optimizer = match self.optimizer.as_str() {
            "adam" => Optimizer::Adam(adam),
            "adamw" => Optimizer::AdamW(adam),
            "sgd" => Optimizer::Sgd(SgdHyper {
                learning_rate,
                weight_decay,
                momentum: self.momentum.unwrap_or_default(),
                ..SgdHyper::default()
            }),
            other => {
                return Err(refused(format!(
                    "optimizer {other:?}; take adam, adamw or sgd"
                )));
            }
        };
        let mut train = TrainConfig {
            epochs: self.epochs.unwrap_or(defaults.epochs),
            optimizer,
            early_stopping: self.early_stopping,
            seed: self.seed,
            record: self.record,
            keep_best: true,
            ..defaults
        };
        if let Some(schedule) = &self.schedule {
            train.schedule.decay = schedule
                .parse()
                .map_err(|error| refused(format!("schedule {schedule:?}: {error}")))?;
        }
        train.schedule.warmup = self.warmup.unwrap_or_default();
        if let Some(what) = train.follows_validation()
            && data.val.is_empty()
        {
            return Err(refused(format!(
                "{what} follows the validation score, and {} has no vertices to validate; leave it out, or give some a val_mask",
                data.name
            )));
        }
        if let Some(metric) = &self.metric {
            train.metric = Some(metric.parse().map_err(refused)?);
        }
        Ok(train)
    }

    fn sampling(&self) -> PyResult<Option<Sampling>> {
        match &self.sampler {
            Some(sampler) => sampling_of(sampler, self.batch_size, self.coverage).map(Some),
            None => match (self.batch_size, self.coverage) {
                (None, None) => Ok(None),
                (Some(_), _) => Err(refused(
                    "batch_size: nothing says which neighbours a batch samples; add sampler='neighbor:15,10'",
                )),
                (None, Some(_)) => Err(refused(
                    "coverage: nothing is drawn; add sampler='saint-rw:2000,4'",
                )),
            },
        }
    }

    fn loss(&self, data: &Dataset) -> PyResult<Loss> {
        let loss = match Loss::of(&data.targets) {
            Loss::SquaredError if self.loss.as_deref() == Some("mae") => Loss::AbsoluteError,
            Loss::CrossEntropy { .. } if self.class_weights.is_some() => Loss::CrossEntropy {
                class_weights: self.class_weights.clone(),
            },
            loss => loss,
        };
        if let Some(given) = &self.loss
            && !matches!(loss, Loss::SquaredError | Loss::AbsoluteError)
        {
            return Err(refused(format!(
                "the loss {given} is of values, and the targets are {}; leave loss out, or give y in floats",
                data.targets.description()
            )));
        }
        if self.class_weights.is_some() && !matches!(loss, Loss::CrossEntropy { .. }) {
            return Err(refused(
                "class_weights are of classes, and the targets are others; leave them out",
            ));
        }
        Ok(loss)
    }
}

fn with_checkpoint_error(error: halfgnn::train::CheckpointError) -> PyErr {
    use halfgnn::train::CheckpointError::{Read, Write};
    match error {
        Read { .. } | Write { .. } => PyOSError::new_err(error.to_string()),
        _ => refused(error),
    }
}

#[pymethods]
impl Trainer {
    /// A run before its first epoch.
    #[new]
    fn new(
        py: Python<'_>,
        place: Place,
        format: u8,
        data: &Data,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let options: Options = options.extract()?;
        let (data, precision) = (Arc::clone(&data.0), precision(format)?);
        let model = options.model(&data)?;
        let train = options.train(precision, &model, &data)?;
        let (loss, sampling) = (options.loss(&data)?, options.sampling()?);
        if data.outputs == 0 {
            return Err(refused(format!(
                "{}: it has no targets, so that there is nothing to train on",
                data.name
            )));
        }
        Self::of(
            py,
            place,
            &Wanted {
                data,
                model,
                precision,
                train,
                loss,
                sampling,
                resume: None,
            },
        )
    }

    /// The run in a file of the program's or of [`Trainer::save`], to go on with; `epochs` in all, where more are
    /// wanted.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        place: Place,
        path: PathBuf,
        data: &Data,
        epochs: Option<u32>,
    ) -> PyResult<Self> {
        let checkpoint = Checkpoint::open(&path).map_err(with_checkpoint_error)?;
        let data = Arc::clone(&data.0);
        let task = py.detach(|| threads::install(|| TaskIdentity::of(&data)))?;
        checkpoint
            .check_task(&path, &task)
            .map_err(with_checkpoint_error)?;
        if checkpoint.task.digest.is_none() {
            let message = format!(
                "{}: an earlier release wrote it, without digests of the data, so features, edges, labels and splits are not compared",
                path.display()
            );
            let category = py.get_type::<PyUserWarning>();
            PyErr::warn(py, &category, &CString::new(message).unwrap_or_default(), 2)?;
        }
        if checkpoint.inductive
            || checkpoint.feature_divisors.is_some()
            || checkpoint.links.is_some()
        {
            return Err(refused(format!(
                "{}: it was trained inductively, on scaled features or on links, which the program alone goes on with",
                path.display()
            )));
        }
        let mut train = TrainConfig {
            keep_best: true,
            ..checkpoint.train
        };
        train.epochs = epochs.unwrap_or(train.epochs);
        Self::of(
            py,
            place,
            &Wanted {
                data,
                model: checkpoint.model.clone(),
                precision: checkpoint.precision,
                train,
                loss: checkpoint.loss.clone(),
                sampling: checkpoint.sampling.clone(),
                resume: Some(checkpoint),
            },
        )
    }

    /// One training step, without evaluation.
    fn step(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |run| run.step())
    }

    /// The loss of the last step.
    fn loss(&self, py: Python<'_>) -> PyResult<f32> {
        self.call(py, |run| run.loss())
    }

    /// A step and the evaluation after it, as JSON; none where the run has ended.
    fn next_epoch(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.call(py, |run| Ok(run.next_epoch()?.map(|report| json(&report))))
    }

    /// What the metrics say, as JSON.
    fn evaluate(&self, py: Python<'_>) -> PyResult<String> {
        self.call(py, |run| run.evaluate())
    }

    /// Rows, columns, and the model's output for each vertex.
    fn logits(&self, py: Python<'_>) -> PyResult<(usize, usize, Vec<f32>)> {
        self.call(py, |run| run.logits())
    }

    /// How the run stands, milliseconds of an epoch, and the best and the last one, as JSON.
    fn summary(&self, py: Python<'_>) -> PyResult<(String, f64, String, String)> {
        let (status, ms, best, last) = self.call(py, |run| Ok(run.status()))?;
        let status = match status {
            Status::Finished => "finished".into(),
            Status::Stopped => "stopped".into(),
            Status::EarlyStopped => "early stopped".into(),
            Status::Diverged { since } => format!("diverged in epoch {since}"),
        };
        Ok((status, ms, json(&best), json(&last)))
    }

    /// Keeps the run in a file, which the program goes on with as well.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.checkpoint(py)?
            .save(&path)
            .map_err(with_checkpoint_error)
    }

    /// The parameters of the best epoch under PyG's names or DGL's, and notes on them.
    fn state_dict(&self, py: Python<'_>, dgl: bool) -> PyResult<(Tensors, Vec<String>)> {
        let to = if dgl { Framework::Dgl } else { Framework::Pyg };
        let (tensors, notes) = self.checkpoint(py)?.state_dict(to).map_err(refused)?;
        let pairs = tensors
            .into_iter()
            .map(|(name, tensor)| (name, (tensor.shape, tensor.values)));
        Ok((pairs.collect(), notes))
    }

    /// Takes parameters of the same model under PyG's names or DGL's.
    fn load_state_dict(&self, py: Python<'_>, dgl: bool, tensors: Tensors) -> PyResult<()> {
        let tensors: StateDict = tensors
            .into_iter()
            .map(|(name, (shape, values))| (name, StateTensor { shape, values }))
            .collect();
        let mine = self.checkpoint(py)?;
        let options = ImportOptions {
            layers: Some(mine.model.convolution.clone()),
            from: if dgl { Framework::Dgl } else { Framework::Pyg },
            precision: mine.precision,
            edge_weights: mine.task.edge_weights,
            features: Some(mine.model.features),
        };
        let checkpoint = Checkpoint::from_state_dict(&tensors, &options).map_err(refused)?;
        self.call(py, |run| run.load(&checkpoint))
    }

    /// The device's name, bytes at the peak, whether steps are replayed, and the learning rate.
    fn state(&self, py: Python<'_>) -> PyResult<(String, u64, bool, f32)> {
        self.call(py, |run| {
            Ok((
                run.device(),
                run.peak_bytes(),
                run.is_recorded(),
                run.learning_rate(),
            ))
        })
    }
}

impl Trainer {
    fn of(py: Python<'_>, place: Place, wanted: &Wanted) -> PyResult<Self> {
        fn boxed<B: Backend>(
            backend: &B,
            memory: Option<(u64, u64)>,
            multiprocessors: Option<u32>,
            wanted: &Wanted,
        ) -> Result<Box<dyn Running>, Error> {
            with_element!(wanted.precision, E => {
                Ok(Box::new(Run::<B, E>::new(backend, memory, multiprocessors, wanted)?))
            })
        }
        let (run, on_host) = match place {
            Place::Cpu => {
                let make = || boxed(&Cpu::new(), host_memory(), None, wanted);
                (py.detach(|| threads::install(make))?, true)
            }
            Place::Emulator => {
                let backend = emulator()?;
                let make = || boxed(&backend, host_memory(), Some(4), wanted);
                (py.detach(|| threads::install(make))?, true)
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(ordinal, _) => {
                use halfgnn::driver::Driver;
                let card = crate::card::open(ordinal).map_err(exception)?;
                let make = || {
                    let driver = card.own.driver();
                    let memory = driver.memory_info()?;
                    boxed(
                        &card.own,
                        Some(memory),
                        Some(driver.info().multiprocessors),
                        wanted,
                    )
                };
                (py.detach(|| threads::around(make))?, false)
            }
            #[cfg(not(feature = "cuda"))]
            Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
        };
        Ok(Self {
            run: Mutex::new(run.map_err(exception)?),
            on_host,
        })
    }

    /// Calls the run without holding the interpreter.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut dyn Running) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let work = || {
            let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
            f(&mut **run)
        };
        let done = match self.on_host {
            true => py.detach(|| threads::install(work))?,
            false => py.detach(|| threads::around(work))?,
        };
        done.map_err(exception)
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<Checkpoint> {
        self.call(py, |run| run.checkpoint())
    }
}
