//! How much memory a run will take, before any of it is asked for.

use super::{Few, Objective, TrainConfig, Trainer};
use crate::backend::gpu::Gpu;
use crate::backend::{MemoryKind, MemoryReport, Storage};
use crate::driver::DriverError;
use crate::driver::dry::Dry;
use crate::error::Error;
use crate::graph::GraphCounts;
use crate::nn::{Decoder, LinkDecoder, Model, ModelConfig, Network, Norm, Readout};
use crate::tensor::Element;

/// Bytes by kind, in the order of [`MemoryKind::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    bytes: [u64; MemoryKind::ALL.len()],
}

/// What is done on the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Steps and evaluations.
    Training,
    /// Evaluations alone.
    Evaluation,
}

impl From<MemoryReport> for Footprint {
    /// The peaks.
    fn from(memory: MemoryReport) -> Self {
        Self { bytes: memory.peak }
    }
}

impl Footprint {
    /// All that training a model of `config` takes, and evaluating it, on a graph of `counts` as [`ModelConfig::prepare`] makes
    /// it, by `train`: the graph, features and labels, the activations, the parameters, and on a card of so many multiprocessors the
    /// workspace that operators share. `None` is the CPU, which has no such workspace.
    ///
    /// A step of the [`Trainer`] and an evaluation are done on a device that only counts, so this is what they allocate.
    ///
    /// # Errors
    /// Those of [`Network::new`] and of a step: of shapes that no device can have or no kernel is built for.
    pub fn of_training<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        train: &TrainConfig,
        multiprocessors: Option<u32>,
    ) -> Result<Self, Error> {
        let (mut seen, work) = (Self::default(), Work::Training);
        Self::of_config::<E>(counts, config, train, work, multiprocessors, &mut seen).map(|()| seen)
    }

    /// That a training as [`Footprint::of_training`] has it fits where `free` of `total` bytes are free; `None` where nobody
    /// knows.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] with all that it takes or, where it could not be counted to its end, what it takes at
    /// least; else those of [`Footprint::of_training`].
    pub fn check_training<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        train: &TrainConfig,
        multiprocessors: Option<u32>,
        memory: Option<(u64, u64)>,
    ) -> Result<Self, Error> {
        Self::check_work::<E>(
            counts,
            (config, train, Work::Training),
            multiprocessors,
            memory,
        )
    }

    /// [`Footprint::check_training`] of what is left of it on the whole graph where training is [in
    /// batches](Trainer::sampled): the evaluation.
    ///
    /// # Errors
    /// Those of [`Footprint::check_training`].
    pub fn check_evaluation<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        train: &TrainConfig,
        multiprocessors: Option<u32>,
        memory: Option<(u64, u64)>,
    ) -> Result<Self, Error> {
        Self::check_work::<E>(
            counts,
            (config, train, Work::Evaluation),
            multiprocessors,
            memory,
        )
    }

    fn check_work<E: Element>(
        counts: &GraphCounts,
        (config, train, work): (&ModelConfig, &TrainConfig, Work),
        multiprocessors: Option<u32>,
        memory: Option<(u64, u64)>,
    ) -> Result<Self, Error> {
        let mut seen = Self::default();
        let counted = Self::of_config::<E>(counts, config, train, work, multiprocessors, &mut seen);
        seen.check(memory)?;
        counted.map(|()| seen)
    }

    fn of_config<E: Element>(
        counts: &GraphCounts,
        config: &ModelConfig,
        train: &TrainConfig,
        work: Work,
        multiprocessors: Option<u32>,
        seen: &mut Self,
    ) -> Result<(), Error> {
        config.check()?;
        let shape = [config.features, config.classes];
        // The targets that are counted are of vertices, whose models have no decoder: its parameters are counted beside.
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
        Self::count(counts, of, (train, work), multiprocessors, model, seen)
    }

    /// [`Footprint::of_training`] of any model, such as one of somebody's own layers, that `model` makes: for `[features,
    /// classes]`, on a graph with the degree norm `norm`.
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
            counts,
            (norm, shape, None),
            (train, Work::Training),
            multiprocessors,
            model,
            &mut seen,
        )
        .map(|()| seen)
    }

    /// Counts into `seen`, which also has what was counted before an error.
    fn count<E: Element, M: Model<Gpu<Dry>, E>>(
        counts: &GraphCounts,
        (norm, shape, readout): (Norm, [usize; 2], Option<Readout>),
        (train, work): (&TrainConfig, Work),
        multiprocessors: Option<u32>,
        model: impl FnOnce(&Gpu<Dry>) -> Result<M, Error>,
        seen: &mut Self,
    ) -> Result<(), Error> {
        let backend = &Gpu::counting(multiprocessors)?;
        let run = || {
            let objective = Objective::<_, E>::counted(backend, counts, norm, shape, readout)?;
            let train = TrainConfig {
                record: false,
                // Of classes, as the targets that are counted; others keep a few words.
                metric: None,
                others: Few::default(),
                ..*train
            };
            let mut trainer = Trainer::new(backend, &objective, model(backend)?, train)?;
            if work == Work::Training {
                trainer.step()?;
            }
            trainer.evaluate().map(drop)
        };
        let done = run();
        *seen = backend.memory().into();
        done
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

    /// Bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.bytes
            .iter()
            .fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// That it fits where `free` of `total` bytes are free; `None` where nobody knows.
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

/// Free and total bytes of the machine's memory, or of this process's control group where that has less; `None` where
/// the system does not say.
pub fn host_memory() -> Option<(u64, u64)> {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo(&text));
    let read = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let group = read("memory.max").zip(read("memory.current"));
    let group = group.map(|(most, used)| (most.saturating_sub(used), most));
    [machine, group].into_iter().flatten().min()
}

/// Free and total bytes, from the text of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<(u64, u64)> {
    let bytes = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some((bytes("MemAvailable:")?, bytes("MemTotal:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_as_linux_tells_it() {
        let text = "MemTotal:       16 kB\nMemFree:         4 kB\nMemAvailable:    8 kB\n";
        assert_eq!(meminfo(text), Some((8 * 1024, 16 * 1024)));
        assert_eq!(meminfo("MemTotal: 16 kB\n"), None);
        assert_eq!(meminfo(""), None);
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
