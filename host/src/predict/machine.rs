//! The networks of a predictor, behind a trait that has neither backend nor precision.

use super::NewGraph;
use crate::backend::{Backend, MemoryKind};
use crate::data::{Dataset, Features, UploadFeatures};
use crate::device::{Device, Task};
use crate::error::Error;
use crate::nn::{Inputs, Mode, Model, ModelConfig, ModelTypes, Network, PairScores, Propagation};
use crate::tensor::{Element, Matrix};
use crate::train::{Checkpoint, load_weights};
use crate::with_element;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a pass reads; what it has was checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read<'a> {
    /// A graph of one type, with its features as the model reads them.
    One(&'a NewGraph<'a>, &'a Features),
    /// A dataset of several types.
    Types(&'a Dataset),
}

/// What a pass gives, on the host.
#[derive(Debug)]
pub(super) enum Outputs {
    /// Logits, a row for each vertex or graph.
    Logits(Vec<f32>),
    /// What scores of pairs are made of.
    Pairs(PairScores),
}

/// Networks on a device.
pub(super) trait Machine: fmt::Debug + Send + Sync {
    /// The device's name.
    fn device(&self) -> String;

    /// A pass. The memory of its rows is kept for the next one if it `stays`.
    fn pass(&self, read: Read<'_>, stays: bool) -> Result<Outputs, Error>;
}

/// Makes the networks of a checkpoint, on a device that is not known before the program runs.
pub(super) struct Open<'a>(pub &'a Checkpoint);

impl Task for Open<'_> {
    type Output = Result<Box<dyn Machine>, Error>;

    fn run<B: Backend>(self, device: &Device<B>) -> Self::Output {
        Ok(with_element!(self.0.precision, E => Box::new(Networks::<B, E>::new(device, self.0)?)))
    }
}

/// Networks that share their parameters. Each has rows of its own, so each serves one call at a time.
#[derive(Debug)]
struct Networks<B: Backend, E: Element> {
    backend: B,
    config: ModelConfig,
    is_of_links: bool,
    /// Has the parameters, and computes nothing.
    first: Mutex<Network<B, E>>,
    idle: Mutex<Idle<B, E>>,
    returned: Condvar,
    /// The most that compute at once; none is the limit of a CPU.
    most: Option<usize>,
}

/// Networks that compute nothing now.
#[derive(Debug)]
struct Idle<B: Backend, E: Element> {
    networks: Vec<Network<B, E>>,
    /// Those that compute.
    busy: usize,
}

/// What a panic left behind is as it was: networks that computed then are gone.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place among those that compute, which ends with it.
struct Busy<'a, B: Backend, E: Element>(&'a Networks<B, E>);

impl<B: Backend, E: Element> Drop for Busy<'_, B, E> {
    fn drop(&mut self) {
        lock(&self.0.idle).busy -= 1;
        self.0.returned.notify_one();
    }
}

impl<B: Backend, E: Element> Networks<B, E> {
    fn new(device: &Device<B>, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let backend = device.backend.clone();
        // Nothing is recomputed where there is no backward pass.
        let config = ModelConfig {
            recompute: false,
            ..checkpoint.model.clone()
        };
        let mut first = Network::new(&backend, &config, 0)?;
        load_weights(&backend, &mut first, &checkpoint.snapshot.tensors)?;
        Ok(Self {
            is_of_links: checkpoint.links.is_some(),
            first: Mutex::new(first),
            idle: Mutex::new(Idle {
                networks: Vec::new(),
                busy: 0,
            }),
            returned: Condvar::new(),
            // A GPU has one stream here, in whose order passes are computed; more of them would take memory alone.
            most: device.multiprocessors.map(|_| 1),
            backend,
            config,
        })
    }

    /// Waits for a place among those that compute.
    ///
    /// On a CPU there always is one. A caller may be a thread of rayon's pool, which takes up another call while it
    /// waits for a part of its own, and would wait for itself.
    fn wait(&self) -> Busy<'_, B, E> {
        let is_full = |idle: &mut Idle<B, E>| self.most.is_some_and(|most| idle.busy >= most);
        let waited = self.returned.wait_while(lock(&self.idle), is_full);
        waited.unwrap_or_else(PoisonError::into_inner).busy += 1;
        Busy(self)
    }

    /// Computes by a network that computes nothing else. It is kept for the next call if it `stays`, and work is done.
    fn compute<T>(
        &self,
        stays: bool,
        work: impl FnOnce(&mut Network<B, E>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Ends behind the network, so that what follows has its memory.
        let _busy = self.wait();
        let idle = lock(&self.idle).networks.pop();
        let mut network = match idle {
            Some(network) => network,
            None => self.network()?,
        };
        let done = work(&mut network)?;
        let most = self.most.unwrap_or_else(cores);
        let mut idle = lock(&self.idle);
        if stays && idle.networks.len() < most {
            idle.networks.push(network);
        }
        Ok(done)
    }

    /// Another network with the same parameters.
    fn network(&self) -> Result<Network<B, E>, Error> {
        let backend = &self.backend;
        let network = Network::new(backend, &self.config, 0)?;
        let mut network = network.sharing(backend, &mut lock(&self.first))?;
        network.freeze(backend)?;
        Ok(network)
    }

    fn matrix(&self, features: &Features) -> Result<Matrix<B, E>, Error> {
        let shape = (features.vertices(), features.feature_len());
        Matrix::from_rows(&self.backend, shape, MemoryKind::Features, |vertex, row| {
            features.write_row(vertex, row);
        })
    }

    /// The pass over operands that are on the device. Nothing here runs on rayon's threads where one pass waits for
    /// another, which is on a GPU.
    fn forward(
        &self,
        graphs: &[Propagation<B>],
        (features, of_types): (&Matrix<B, E>, &[Matrix<B, E>]),
        stays: bool,
    ) -> Result<Outputs, Error> {
        let backend = &self.backend;
        let inputs = Inputs {
            backend,
            graphs,
            features,
            of_types,
            dropped: false,
        };
        self.compute(stays, |network| {
            network.forward(inputs, Mode::Evaluate)?;
            Ok(match self.is_of_links {
                true => Outputs::Pairs(network.pair_scores(backend)?),
                false => Outputs::Logits(network.logits().to_f32(backend)?),
            })
        })
    }
}

/// As many as there are cores are kept.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl<B: Backend, E: Element> Machine for Networks<B, E> {
    fn device(&self) -> String {
        self.backend.name()
    }

    fn pass(&self, read: Read<'_>, stays: bool) -> Result<Outputs, Error> {
        let (backend, config) = (&self.backend, &self.config);
        match (read, &config.types) {
            (Read::Types(dataset), Some(own)) => {
                let types = dataset.types.as_ref();
                let types = types.ok_or_else(|| Error::Unsupported {
                    operator: "Predictor",
                    reason: format!("{} has vertices of one type", dataset.name),
                })?;
                let graphs = ModelTypes::graphs(backend, types, config.norm())?;
                let features = dataset.upload_features(backend)?;
                let of_types = own.features(backend, dataset)?;
                self.forward(&graphs, (&features, &of_types), stays)
            }
            (Read::Types(dataset), None) => Err(Error::Unsupported {
                operator: "Predictor",
                reason: format!("{} has vertices of several types", dataset.name),
            }),
            (Read::One(graph, features), _) => {
                let prepared = config.prepare_edges(&graph.graph, graph.edge_data())?;
                let whole = prepared.propagation::<B, E>(backend, config)?;
                let graphs = config.inputs(backend, Some(whole), graph.graphs.as_deref())?;
                self.forward(&graphs, (&self.matrix(features)?, &[]), stays)
            }
        }
    }
}
