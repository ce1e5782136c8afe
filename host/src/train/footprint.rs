//! Estimates of a run's memory, made before any of it is allocated.

use super::objective::TargetKind;
use super::{BatchSizes, Few, Objective, TrainConfig, Trainer};
use crate::backend::gpu::Gpu;
use crate::backend::gpu::KernelSet;
use crate::backend::{Backend, MemoryKind, MemoryReport, Storage};
use crate::data::{DataProblem, Dataset, FeatureRows, Features, GraphIndex, Targets};
use crate::distributed::{Group, Shard};
use crate::driver::DriverError;
use crate::driver::dry::Dry;
use crate::error::Error;
use crate::graph::GraphCounts;
use crate::nn::{
    Decoder, LinkDecoder, Model, ModelConfig, ModelTypes, Network, Norm, Pieces, Propagation,
    Readout,
};
use crate::ops::BitMatrix;
use crate::sample::LayerSources;
use crate::tensor::{Element, Matrix};
use std::sync::Arc;

/// Bytes by kind, in the order of [`MemoryKind::ALL`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    bytes: [u64; MemoryKind::ALL.len()],
    /// Bytes of the features in the host's memory, where they are stored there.
    hosted: Option<u64>,
    /// Whether the features stay on disk.
    on_disk: bool,
    /// The kernels that a run launches, as far as it was counted.
    kernels: KernelSet,
}

impl PartialEq for Footprint {
    /// Compares bytes and locations. A measured footprint has no kernels.
    fn eq(&self, other: &Self) -> bool {
        (self.bytes, self.hosted, self.on_disk) == (other.bytes, other.hosted, other.on_disk)
    }
}

impl Eq for Footprint {}

/// Where the features of a graph are stored while a device computes on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeaturesIn {
    /// In the device's memory.
    #[default]
    Device,
    /// In the host's memory, from which kernels read them: see [`MemoryKind::HostFeatures`].
    Host,
    /// In the device's memory where everything fits there, else in the host's.
    Either,
    /// On disk, from which the needed rows are read: see [`FeatureRows`](crate::data::FeatureRows).
    Disk,
    /// Sharded over the given number of ranks, each of which has its share in its device's memory. A rank
    /// [requests](crate::data::FeatureRows::sharded) other rows that a batch or a piece of the graph needs. This is for
    /// evaluations in pieces; others are as with [`FeaturesIn::Device`].
    Ranks(usize),
}

/// The available memory, and where features may be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Free and total bytes of the device; `None` where they are unknown.
    pub device: Option<(u64, u64)>,
    /// Free and total bytes of the host; `None` where they are unknown.
    pub host: Option<(u64, u64)>,
    /// Where features may be stored.
    pub features: FeaturesIn,
}

impl From<Option<(u64, u64)>> for Room {
    /// The device's memory, for features as well.
    fn from(device: Option<(u64, u64)>) -> Self {
        Self {
            device,
            ..Self::default()
        }
    }
}

/// What memory depends on apart from the graph: a model, its training configuration and the kind of its targets.
///
/// A pair of the configurations is a training on classes; a third element is the [`Work`].
#[derive(Clone, Copy, Debug)]
pub struct Learning<'a> {
    model: &'a ModelConfig,
    train: &'a TrainConfig,
    work: Work,
    targets: TargetKind,
}

impl<'a> From<(&'a ModelConfig, &'a TrainConfig)> for Learning<'a> {
    fn from((model, train): (&'a ModelConfig, &'a TrainConfig)) -> Self {
        Self {
            model,
            train,
            work: Work::Training,
            targets: TargetKind::Classes,
        }
    }
}

impl<'a> From<(&'a ModelConfig, &'a TrainConfig, Work)> for Learning<'a> {
    fn from((model, train, work): (&'a ModelConfig, &'a TrainConfig, Work)) -> Self {
        Self {
            work,
            ..(model, train).into()
        }
    }
}

impl<'a> Learning<'a> {
    /// The same for `targets` of this kind. Labels and values are rows of numbers, and unknown entries among them need
    /// their own buffers.
    #[must_use]
    pub fn of_targets(self, targets: &Targets) -> Self {
        Self {
            targets: TargetKind::of(targets),
            ..self
        }
    }

    /// The model.
    pub fn model(&self) -> &'a ModelConfig {
        self.model
    }

    /// The work on a whole graph.
    pub fn work(&self) -> Work {
        self.work
    }
}

/// What memory is estimated for.
#[derive(Clone, Copy, Debug)]
enum Counted<'a, E: Element> {
    /// Work on a whole graph.
    Whole(&'a GraphCounts, Work),
    /// Evaluations of a graph in pieces, with the number of ranks where features are sharded.
    InPieces(&'a Pieces<E>, Option<usize>),
    /// Work on a whole graph of several types.
    Types(&'a Dataset, Work),
    /// Training on a rank's shard of a graph.
    OfRank(&'a OfRank<'a>),
    /// A step on a batch.
    Batch(&'a BatchSizes),
}

/// A rank's shard.
#[derive(Debug)]
struct OfRank<'a> {
    shard: &'a Shard,
    counts: GraphCounts,
    group: Group,
    /// Whether the features are those of all sources.
    first_aggregates: bool,
}

impl<E: Element> Counted<'_, E> {
    /// The batches that are sampled during a step, with `rows` where layers read the features of all vertices.
    fn sampled_ahead<B: Backend>(
        self,
        backend: &B,
        (norm, readout): (Norm, Option<Readout>),
        rows: &Arc<FeatureRows<B, E>>,
        (vertices, of): (usize, ([usize; 2], TargetKind)),
    ) -> Result<Vec<Objective<B, E>>, Error> {
        let Self::Batch(sizes) = self else {
            return Ok(Vec::new());
        };
        let batch = |_| {
            let (graphs, _) = self.graphs(backend, norm, readout)?;
            let rows = match sizes.sources {
                LayerSources::All => Arc::clone(rows),
                LayerSources::Met => {
                    let (columns, kind) = (rows.columns(), MemoryKind::Features);
                    Arc::new(Matrix::zeros(backend, vertices, columns, kind)?.into())
                }
            };
            Objective::counted(backend, graphs, rows, of, None)
        };
        (0..sizes.drawn_ahead).map(batch).collect()
    }

    /// The graphs on the backend, with zeroed arrays. Also the number of vertices, and the number of vertices or graphs
    /// that are predicted.
    fn graphs<B: Backend>(
        self,
        backend: &B,
        norm: Norm,
        readout: Option<Readout>,
    ) -> Result<(Vec<Propagation<B>>, [usize; 2]), Error> {
        let counts = match self {
            Self::InPieces(pieces, _) => {
                let told = pieces.rows_asked_for();
                return Ok((Vec::new(), [pieces.vertices(), told]));
            }
            Self::OfRank(of) => {
                let shard = (of.shard, &of.group);
                let graph = Propagation::counted_shard::<E>(backend, &of.counts, norm, shard)?;
                let rows = match of.first_aggregates {
                    true => graph.sources(),
                    false => graph.destinations(),
                };
                let own = graph.destinations();
                return Ok((vec![graph], [rows, own]));
            }
            Self::Batch(sizes) => {
                let of = [sizes.inputs(), sizes.destinations()];
                return Ok((sizes.graphs(backend, norm)?, of));
            }
            Self::Types(dataset, _) => {
                let vertices = dataset.graph.vertices();
                let types = dataset.types.as_ref();
                let graphs = types.map(|types| ModelTypes::graphs(backend, types, norm));
                return Ok((graphs.transpose()?.unwrap_or_default(), [vertices; 2]));
            }
            Self::Whole(counts, _) => counts,
        };
        let vertices = counts.vertices();
        let graph = Propagation::counted::<E>(backend, counts, norm)?;
        let Some(readout) = readout else {
            return Ok((vec![graph], [vertices; 2]));
        };
        // The sizes of single graphs matter little.
        let members = counts.graphs.clamp(1, vertices.max(1));
        let starts = (0..=members).map(|graph| (graph * vertices / members) as u32);
        let refuse = |error: DataProblem| Error::Unsupported {
            operator: "Footprint",
            reason: error.to_string(),
        };
        let index = GraphIndex::new(starts.collect()).map_err(refuse)?;
        let pooled = readout.propagation(backend, &index)?;
        Ok((vec![graph, pooled], [vertices, members]))
    }
}

/// The work on the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Steps and evaluations.
    Training,
    /// Evaluations alone, as where training is [in batches](Trainer::sampled).
    Evaluation,
    /// Evaluations of the signs of the features, which are on the device in place of them: see
    /// [`evaluate_signs`](Network::evaluate_signs).
    EvaluationOfSigns,
}

impl Work {
    /// The work of a run whose steps are on batches, or on the whole graph.
    pub fn of_run(in_batches: bool) -> Self {
        match in_batches {
            true => Self::Evaluation,
            false => Self::Training,
        }
    }

    /// The work of a model that predicts from such features. It reads their signs where they are
    /// [packed](Features::Bits) and the model needs no more.
    ///
    /// # Errors
    /// Those of [`Network::new`].
    pub fn of_prediction<E: Element>(
        config: &ModelConfig,
        features: &Features,
    ) -> Result<Self, Error> {
        let Features::Bits(_) = features else {
            return Ok(Self::Evaluation);
        };
        let model = Network::<_, E>::new(&Gpu::counting(None)?, config, 0)?;
        Ok(match model.reads_signs() {
            true => Self::EvaluationOfSigns,
            false => Self::Evaluation,
        })
    }
}

impl From<MemoryReport> for Footprint {
    /// The peaks of each kind.
    fn from(memory: MemoryReport) -> Self {
        Self {
            bytes: memory.peak,
            ..Self::default()
        }
    }
}

impl Footprint {
    /// Estimates the memory of training a model of `config` on classes, and of evaluating it. `counts` is the graph as
    /// [`ModelConfig::prepare`] makes it. The estimate includes the graph, features, labels, activations and
    /// parameters. On a GPU it includes the workspace that operators share, which depends on `multiprocessors`. `None`
    /// is the CPU, which has no such workspace.
    ///
    /// A step of the [`Trainer`] and an evaluation run on a device that only counts, so the estimate is what they
    /// allocate.
    ///
    /// # Errors
    /// Those of [`Network::new`] and of a step, for shapes that no device can have or no kernel is built for.
    pub fn of_training<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        train: &TrainConfig,
        multiprocessors: Option<u32>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let what = Counted::Whole(counts, Work::Training);
        let learning = (config, train).into();
        Self::of_config::<E>(what, learning, multiprocessors, &mut seen).map(|()| seen)
    }

    /// Checks that the `work` of a training, as in [`Footprint::of_training`], fits the given memory. It decides
    /// [where the features are stored](Footprint::features_kind). On the CPU everything is in the same memory.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] with the total or, where counting ended early, a lower bound of it; else those of
    /// [`Footprint::of_training`].
    pub fn check_work<'a, E: Element>(
        counts: &GraphCounts,
        learning: impl Into<Learning<'a>>,
        multiprocessors: Option<u32>,
        room: impl Into<Room>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let mut room = room.into();
        let learning = learning.into();
        let (config, work) = (learning.model, learning.work);
        let done = match work {
            Work::EvaluationOfSigns => {
                // Signs are stored on the device alone.
                room.features = FeaturesIn::Device;
                Self::count_signs::<E>(counts, config, multiprocessors, &mut seen)
            }
            Work::Training | Work::Evaluation => {
                let what = Counted::Whole(counts, work);
                Self::of_config::<E>(what, learning, multiprocessors, &mut seen)
            }
        };
        let features = (counts.vertices(), config.features);
        let seen = seen.placed::<E>(features, multiprocessors, room)?;
        done.map(|()| seen)
    }

    /// [`Footprint::check_work`] for a dataset of several types, whose features are on the device.
    ///
    /// # Errors
    /// Those of [`Footprint::check_work`].
    pub fn check_types<'a, E: Element>(
        dataset: &Dataset,
        learning: impl Into<Learning<'a>>,
        multiprocessors: Option<u32>,
        room: impl Into<Room>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let mut room = room.into();
        room.features = FeaturesIn::Device;
        let learning = learning.into();
        let what = Counted::Types(dataset, learning.work);
        let done = Self::of_config::<E>(what, learning, multiprocessors, &mut seen);
        let features = (dataset.graph.vertices(), learning.model.features);
        let seen = seen.placed::<E>(features, multiprocessors, room)?;
        done.map(|()| seen)
    }

    /// Counts an evaluation of signs.
    fn count_signs<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        multiprocessors: Option<u32>,
        seen: &mut Self,
    ) -> Result<(), Error> {
        config.check()?;
        let backend = &Gpu::counting(multiprocessors)?;
        let run = || {
            let mut model = Network::<_, E>::new(backend, config, 0)?;
            model.freeze(backend)?;
            let what = Counted::<E>::Whole(counts, Work::EvaluationOfSigns);
            let (graphs, [vertices, _]) = what.graphs(backend, config.norm(), config.readout)?;
            let kind = MemoryKind::Features;
            let signs = BitMatrix::zeros(backend, vertices, config.features, kind)?;
            model.evaluate_signs(backend, &graphs, &signs)
        };
        let done = run();
        *seen = backend.memory().into();
        seen.kernels = backend.kernels_wanted();
        done
    }

    /// [`Footprint::check_work`] for an evaluation of a model on a graph in [pieces](Trainer::evaluated_in). Outputs of
    /// layers are in the host's memory or [on disk](Pieces::on_disk).
    ///
    /// # Errors
    /// Those of [`Footprint::check_work`].
    pub fn check_pieces<'a, E: Element>(
        pieces: &Pieces<E>,
        learning: impl Into<Learning<'a>>,
        multiprocessors: Option<u32>,
        room: impl Into<Room>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let room = room.into();
        let ranks = match room.features {
            FeaturesIn::Ranks(ranks) => Some(ranks),
            _ => None,
        };
        let what = Counted::InPieces(pieces, ranks);
        let learning = learning.into();
        let done = Self::of_config::<E>(what, learning, multiprocessors, &mut seen);
        let features = (pieces.vertices(), learning.model.features);
        let seen = seen.placed::<E>(features, multiprocessors, room)?;
        done.map(|()| seen)
    }

    /// Estimates the memory of training on one rank, whose `shard` of a graph [`PreparedGraph::propagation_of_shard`]
    /// and [`Objective::of_shard`] take. It includes the rank's vertices and edges, the rows of remote in-neighbours,
    /// and the buffers of the exchange. `edges` is whether each edge has a weight, and the number of features of each
    /// that are read. Memory of the communication library itself is not included.
    ///
    /// [`PreparedGraph::propagation_of_shard`]: crate::nn::PreparedGraph::propagation_of_shard
    ///
    /// # Errors
    /// Those of [`Footprint::of_training`].
    pub fn of_shard<'a, E: Element>(
        (shard, edges): (&Shard, (bool, usize)),
        learning: impl Into<Learning<'a>>,
        multiprocessors: Option<u32>,
    ) -> Result<Self, Error> {
        let learning = learning.into();
        let config = learning.model;
        config.check()?;
        let (weighted, features) = edges;
        let counts = shard.counts_of_block().weighted(weighted);
        let model = Network::<_, E>::new(&Gpu::counting(multiprocessors)?, config, 0)?;
        let of = OfRank {
            shard,
            counts: counts
                .with_edge_features(features)
                .with_edge_rows(config.reads_edge_rows()),
            group: Group::counting(shard.rank, shard.counts.len()),
            first_aggregates: model.first_aggregates(),
        };
        let mut seen = Self::default();
        let what = Counted::<E>::OfRank(&of);
        Self::of_config(what, learning, multiprocessors, &mut seen).map(|()| seen)
    }

    /// Estimates the memory of a step on a batch of `sizes` alone: its graphs, features and activations, and the model.
    ///
    /// # Errors
    /// Those of [`Footprint::of_training`].
    pub fn of_batch<'a, E: Element>(
        sizes: &BatchSizes,
        learning: impl Into<Learning<'a>>,
        multiprocessors: Option<u32>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let what = Counted::Batch(sizes);
        let learning = learning.into();
        Self::of_config::<E>(what, learning, multiprocessors, &mut seen)?;
        Ok(match sizes.sources {
            LayerSources::Met => seen,
            // They are those of the whole graph, whose estimate includes them.
            LayerSources::All => {
                let features = (sizes.inputs(), learning.model.features);
                seen.without_features::<E>(features).0
            }
        })
    }

    /// Combines the estimate of evaluations with that of steps on a `batch`, which is sampled from `drawn_from` bytes
    /// of graph. Graphs and features of both exist at the same time. Evaluations and steps share the workspace and,
    /// unless a recorded step `keeps` its own, the activations.
    #[must_use]
    pub fn with_batches(mut self, batch: &Self, (drawn_from, keeps): (u64, bool)) -> Self {
        self.add(MemoryKind::Graph, drawn_from);
        for kind in MemoryKind::ALL {
            let bytes = batch.of(kind);
            match kind {
                MemoryKind::Graph | MemoryKind::Features => self.add(kind, bytes),
                MemoryKind::Activations if keeps => self.add(kind, bytes),
                _ => {
                    let place = &mut self.bytes[kind as usize];
                    *place = (*place).max(bytes);
                }
            }
        }
        self
    }

    /// Checks that it fits the given memory, and decides where features are stored.
    fn placed<E: Element>(
        mut self,
        features: (usize, usize),
        multiprocessors: Option<u32>,
        room: Room,
    ) -> Result<Self, Error> {
        if multiprocessors.is_none() {
            // The CPU's memory is the host's.
            let on_host = std::mem::take(&mut self.bytes[MemoryKind::HostFeatures as usize]);
            self.add(MemoryKind::Features, on_host);
        }
        if room.features == FeaturesIn::Disk {
            self = self.without_features::<E>(features).0;
            self.on_disk = true;
            self.check(room.device)?;
            self.check_host(room.host)?;
            return Ok(self);
        }
        let hosting = self.hosting::<E>(features);
        let hosts = match room.features {
            _ if multiprocessors.is_none() => false,
            FeaturesIn::Device | FeaturesIn::Disk | FeaturesIn::Ranks(_) => false,
            FeaturesIn::Host => true,
            FeaturesIn::Either => {
                self.check(room.device).is_err()
                    && hosting.check(room.device).is_ok()
                    && hosting.check_host(room.host).is_ok()
            }
        };
        let placed = if hosts { hosting } else { self };
        placed.check(room.device)?;
        placed.check_host(room.host)?;
        Ok(placed)
    }

    /// Checks that the part in the host's memory fits there.
    fn check_host(&self, host: Option<(u64, u64)>) -> Result<(), Error> {
        let asked = self.of(MemoryKind::HostFeatures);
        match host {
            Some((free, _)) if asked > free => Err(DriverError::OutOfHostMemory { asked }.into()),
            _ => Ok(()),
        }
    }

    /// Moves features of this shape to the host's memory.
    fn hosting<E: Element>(self, features: (usize, usize)) -> Self {
        let (mut hosting, bytes) = self.without_features::<E>(features);
        hosting.add(MemoryKind::HostFeatures, bytes);
        hosting.hosted = Some(bytes);
        hosting
    }

    /// Removes features of this shape; also returns their bytes.
    fn without_features<E: Element>(mut self, (vertices, features): (usize, usize)) -> (Self, u64) {
        let columns = features.checked_next_multiple_of(E::LANES);
        let row = columns.unwrap_or(features).saturating_mul(size_of::<E>());
        let bytes = (vertices as u64).saturating_mul(row as u64);
        let on_device = &mut self.bytes[MemoryKind::Features as usize];
        // An estimate that ended early may not include the features.
        let moved = bytes.min(*on_device);
        *on_device -= moved;
        (self, bytes)
    }

    /// The kind of memory of the features, where they do not [stay on disk](Footprint::features_on_disk):
    /// [`MemoryKind::Features`] or [`MemoryKind::HostFeatures`].
    pub fn features_kind(&self) -> MemoryKind {
        match self.hosted {
            None => MemoryKind::Features,
            Some(_) => MemoryKind::HostFeatures,
        }
    }

    /// Whether the features stay on disk.
    pub fn features_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Bytes of the features, where they are stored in the host's memory, which may hold others as well.
    pub fn hosted_features(&self) -> Option<u64> {
        self.hosted
    }

    fn of_config<E: Element>(
        what: Counted<'_, E>,
        learning: Learning<'_>,
        multiprocessors: Option<u32>,
        seen: &mut Self,
    ) -> Result<(), Error> {
        let (config, train) = (learning.model, learning.train);
        config.check()?;
        let shape = [config.features, config.classes];
        // The counted targets are of vertices, and models for those have no decoder. Its parameters are counted
        // separately.
        let mut decoder = None;
        let kind = config.decoder;
        let config = &ModelConfig {
            decoder: LinkDecoder::Dot,
            ..config.clone()
        };
        let model = |backend: &Gpu<Dry>| {
            let made = decoder.insert(Decoder::<_, E>::new(backend, kind, config.classes, 0)?);
            for parameter in made.iter_mut().flat_map(Decoder::parameters_mut) {
                parameter.keep_moments(backend, train.optimizer.moments())?;
            }
            Network::<_, E>::new(backend, config, 0)
        };
        let of = (config.norm(), shape, config.readout);
        let train = (train, learning.targets);
        Self::count(what, of, train, multiprocessors, model, seen)
    }

    /// [`Footprint::of_training`] for any model that `model` makes, such as one of user-defined layers. `shape` is
    /// `[features, classes]`, and `norm` is the degree norm of the graph.
    ///
    /// # Errors
    /// Those of `model` and of a step.
    pub fn of_model<E: Element, M: Model<Gpu<Dry>, E>>(
        counts: &GraphCounts,
        norm: Norm,
        shape: [usize; 2],
        train: &TrainConfig,
        multiprocessors: Option<u32>,
        model: impl FnOnce(&Gpu<Dry>) -> Result<M, Error>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        Self::count(
            Counted::<E>::Whole(counts, Work::Training),
            (norm, shape, None),
            (train, TargetKind::Classes),
            multiprocessors,
            model,
            &mut seen,
        )
        .map(|()| seen)
    }

    /// Counts into `seen`, also where an error ends it early.
    fn count<E: Element, M: Model<Gpu<Dry>, E>>(
        what: Counted<'_, E>,
        (norm, shape, readout): (Norm, [usize; 2], Option<Readout>),
        (train, targets): (&TrainConfig, TargetKind),
        multiprocessors: Option<u32>,
        model: impl FnOnce(&Gpu<Dry>) -> Result<M, Error>,
        seen: &mut Self,
    ) -> Result<(), Error> {
        let backend = &Gpu::counting(multiprocessors)?;
        let run = || {
            let (graphs, [vertices, members]) = what.graphs(backend, norm, readout)?;
            let group = match what {
                Counted::OfRank(of) => Some(of.group.clone()),
                Counted::Whole(..)
                | Counted::Types(..)
                | Counted::InPieces(..)
                | Counted::Batch(_) => None,
            };
            let [columns, classes] = shape;
            let rows: Arc<FeatureRows<_, E>> = Arc::new(match what {
                // The first rank has the largest share.
                Counted::InPieces(_, Some(ranks)) => {
                    let group = Group::counting(0, ranks.max(1));
                    FeatureRows::sharded(backend, &group, (vertices, columns), |_, _| {})?
                }
                _ => Matrix::zeros(backend, vertices, columns, MemoryKind::Features)?.into(),
            });
            let of = ([members, classes], targets);
            let mut objective = Objective::counted(backend, graphs, Arc::clone(&rows), of, group)?;
            if let Counted::Types(dataset, _) = what {
                let types = ModelTypes::of(dataset);
                let features = types.map(|types| types.features(backend, dataset));
                objective.task_mut().of_types = features.transpose()?.unwrap_or_default();
            }
            if let Counted::Batch(BatchSizes {
                types: Some(types), ..
            }) = what
            {
                objective.task_mut().of_types = types.features(backend)?;
            }
            let sampled_ahead =
                what.sampled_ahead(backend, (norm, readout), &rows, (vertices, of))?;
            let _beside = match what {
                Counted::Batch(sizes) => Some(sizes.beside::<_, E>(backend)?),
                _ => None,
            };
            // Batches are made from a task on all vertices.
            let _of_all = match what {
                Counted::InPieces(pieces, _) if pieces.asked().is_some() => {
                    let rows = Arc::new(FeatureRows::counted(backend, (vertices, columns))?);
                    let of = ([vertices, classes], targets);
                    Some(Objective::<_, E>::counted(
                        backend,
                        Vec::new(),
                        rows,
                        of,
                        None,
                    )?)
                }
                _ => None,
            };
            let train = TrainConfig {
                record: false,
                // The default metric of the counted targets; others need a few words.
                metric: None,
                others: Few::default(),
                ..*train
            };
            let mut trainer = Trainer::new(backend, &objective, model(backend)?, train)?;
            match what {
                Counted::Whole(_, Work::Training)
                | Counted::Types(_, Work::Training)
                | Counted::OfRank(_) => trainer.step()?,
                Counted::Whole(..) | Counted::Types(..) => {}
                Counted::Batch(_) => {
                    trainer.step_on(&objective)?;
                    // They need the same transposes.
                    return sampled_ahead.iter().try_for_each(|it| trainer.step_on(it));
                }
                Counted::InPieces(pieces, _) => {
                    trainer = trainer.in_pieces(pieces.clone().counted());
                }
            }
            trainer.evaluate().map(drop)
        };
        let done = run();
        *seen = backend.memory().into();
        seen.kernels = backend.kernels_wanted();
        done
    }

    /// The kernels that a step and an evaluation launch, to be [loaded beforehand](crate::backend::Storage::prefetch).
    pub fn kernels(&self) -> KernelSet {
        self.kernels
    }

    /// Adds to a kind.
    pub fn add(&mut self, kind: MemoryKind, bytes: u64) {
        let place = &mut self.bytes[kind as usize];
        *place = place.saturating_add(bytes);
    }

    /// Bytes of a kind.
    pub fn of(&self, kind: MemoryKind) -> u64 {
        self.bytes[kind as usize]
    }

    /// Bytes of all kinds on the device.
    pub fn total(&self) -> u64 {
        let on_device = MemoryKind::ALL
            .into_iter()
            .filter(|kind| !kind.is_on_host());
        on_device.fold(0, |sum, kind| sum.saturating_add(self.of(kind)))
    }

    /// Checks that it fits where `free` of `total` bytes are free; `None` where they are unknown.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`].
    pub fn check(&self, memory: Option<(u64, u64)>) -> Result<(), Error> {
        match memory {
            Some((free, total)) if self.total() > free => Err(DriverError::OutOfMemory {
                asked: self.total(),
                free,
                total,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::nn::EdgeData;
    use crate::tensor::Precision;

    #[test]
    fn features_go_to_the_host_where_the_rest_fits_the_device() {
        let (counts, config) = (GraphCounts::of(&ring()), ModelConfig::gcn(100, 3));
        let train = TrainConfig::new(Precision::Float);
        let place = |multiprocessors, device, features| {
            let room = Room {
                device,
                features,
                ..Room::default()
            };
            let how = (&config, &train, Work::Training);
            Footprint::check_work::<f32>(&counts, how, multiprocessors, room)
        };
        let whole = place(Some(4), None, FeaturesIn::Either).expect("a model");
        assert_eq!(whole.features_kind(), MemoryKind::Features);
        let hosting = place(Some(4), None, FeaturesIn::Host).expect("a model");
        assert_eq!(hosting.features_kind(), MemoryKind::HostFeatures);
        let moved = hosting.of(MemoryKind::HostFeatures);
        assert_eq!(moved, 50 * 100 * 4);
        assert_eq!(hosting.total() + moved, whole.total());

        let least = Some((hosting.total(), hosting.total()));
        let kinds = [FeaturesIn::Either, FeaturesIn::Host].map(|features| {
            let placed = place(Some(4), least, features).expect("what is left fits");
            placed.features_kind()
        });
        assert_eq!(kinds, [MemoryKind::HostFeatures; 2]);
        let refused = place(Some(4), least, FeaturesIn::Device).expect_err("all does not");
        assert!(refused.to_string().contains(&whole.total().to_string()));
        // Where nothing fits, the error reports the total.
        let less = least.map(|(free, total)| (free - 1, total));
        let refused = place(Some(4), less, FeaturesIn::Either).expect_err("too little");
        assert!(refused.to_string().contains(&whole.total().to_string()));
        // Nor does it where they do not fit the host's memory.
        let host = Some((moved - 1, moved));
        for (features, told) in [
            (FeaturesIn::Either, whole.total()),
            (FeaturesIn::Host, moved),
        ] {
            let room = Room {
                device: least,
                host,
                features,
            };
            let how = (&config, &train, Work::Training);
            let refused = Footprint::check_work::<f32>(&counts, how, Some(4), room);
            let refused = refused.expect_err("no room").to_string();
            assert!(refused.contains(&format!("{told} bytes")), "{refused}");
        }
        // The CPU's memory is the host's.
        let on_cpu = place(None, None, FeaturesIn::Host).expect("a model");
        assert_eq!(on_cpu.features_kind(), MemoryKind::Features);
    }

    #[test]
    fn a_rank_has_its_share_of_features_and_room_to_exchange_rows() {
        let (graph, config) = (ring(), ModelConfig::gcn(100, 3));
        let train = TrainConfig::new(Precision::Float);
        let prepared = config.prepare_edges(&graph, EdgeData::default());
        let pieces = Pieces::<f32>::new(&prepared.expect("a graph"), &config, 2).expect("pieces");
        let placed = |features| {
            let room = Room {
                features,
                ..Room::default()
            };
            Footprint::check_pieces(&pieces, (&config, &train), Some(4), room).expect("a model")
        };
        let whole = placed(FeaturesIn::Device);
        let row = 100 * 4;
        for (ranks, own, asked) in [(2, 25, 13), (4, 13, 19)] {
            let share = placed(FeaturesIn::Ranks(ranks));
            let features = [&whole, &share].map(|of| of.of(MemoryKind::Features));
            // A row stands for missing vertices, and two words of each vertex locate its row.
            let has = (own + 1) * row;
            assert_eq!(features[0] - features[1], 50 * row - has, "{ranks} ranks");
            let graph = [&whole, &share].map(|of| of.of(MemoryKind::Graph));
            assert_eq!(graph[1] - graph[0], 50 * 2 * 4, "{ranks} ranks");
            // A piece reads 26 vertices. Their ids are sorted, and their rows are received and reordered. As many are
            // requested from each other rank as from this one.
            let words = 26 + 5 * 26 + asked + 2 * (ranks as u64 + 2);
            let exchanged = (26 + 26 + asked) * row + words * 4;
            assert!(exchanged > whole.of(MemoryKind::Activations));
            assert_eq!(
                share.of(MemoryKind::Activations),
                exchanged,
                "{ranks} ranks"
            );
        }
    }

    fn ring() -> Graph {
        let vertices: Vec<u32> = (0..50).collect();
        let next: Vec<u32> = vertices.iter().map(|vertex| (vertex + 1) % 50).collect();
        Graph::from_edges(50, &vertices, &next).expect("a ring")
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut footprint = Footprint::default();
        footprint.add(MemoryKind::Weights, 100);
        footprint.add(MemoryKind::Activations, 50);
        assert!(footprint.check(None).is_ok());
        assert!(footprint.check(Some((150, 150))).is_ok());
        let refused = footprint.check(Some((149, 200))).unwrap_err().to_string();
        assert!(
            refused.contains("150 bytes") && refused.contains("149 of 200"),
            "{refused}"
        );
        footprint.add(MemoryKind::Weights, u64::MAX);
        assert_eq!(footprint.total(), u64::MAX);
    }
}
