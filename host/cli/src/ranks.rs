//! Training by several ranks, of a graph that is dealt out or of batches that are: `--ranks`.

mod deal;
mod shard;
#[cfg(test)]
mod tests;

pub use deal::{Dealt, InParts, Ranks, RanksArgs};

use crate::failure::Failure;
use crate::processes::{Overlap, device_name, moved_by};
use crate::session::{Observer, Outcome, Placed, Plan, Trained, edge_data};
use halfgnn::backend::Backend;
use halfgnn::data::Dataset;
use halfgnn::device::Device;
use halfgnn::distributed::{Gather, Group, in_process};
use halfgnn::nn::PreparedGraph;
use halfgnn::tensor::Element;
use halfgnn::train::{Footprint, TrainConfig};
use halfgnn_bench::rank_memory::{self, RankMemory};
use shard::train_shard;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What all ranks of a run have in common.
struct Common<'a, B: Backend> {
    device: &'a Device<B>,
    dataset: &'a Dataset,
    plan: &'a Plan,
    ranks: &'a Ranks,
    /// The whole graph, where it is here and dealt out.
    graph: Option<&'a PreparedGraph<'a>>,
    train: TrainConfig,
    /// Whether what ranks take is still to be told.
    tells_memory: bool,
}

impl<B: Backend> Common<'_, B> {
    /// Has all ranks say what they take of their devices, of which this one takes `own`, and compares it with what those have.
    fn agree_on_memory(
        &self,
        group: &Group,
        own: &Footprint,
        gather: Option<Gather>,
        observer: &mut Option<&mut dyn Observer>,
    ) -> Result<(), Failure> {
        let devices = match self.ranks.are_processes() {
            true => rank_memory::Devices::Own,
            false => rank_memory::Devices::Shared,
        };
        let all = RankMemory::agree(group, own, self.device.memory, devices)?;
        if let Some(observer) = observer {
            observer.ranks_take(&all, gather);
        }
        Ok(())
    }
}

/// Carries a plan out on ranks: processes, or threads that share a device. The first reports.
pub fn carry_out<B: Backend, E: Element>(
    device: &Device<B>,
    dataset: &Dataset,
    (plan, ranks): (&Plan, &Ranks),
    observer: &mut dyn Observer,
) -> Result<Outcome, Failure> {
    let backend = &device.backend;
    let config = &plan.model;
    let parts = ranks.dealt.as_ref().and_then(|dealt| dealt.parts.as_ref());
    let graph = match (&ranks.dealt, parts) {
        (Some(_), None) => Some(config.prepare_edges(&dataset.graph, edge_data(config, dataset))?),
        _ => None,
    };
    backend.reset_peak();
    let own = device_name(&backend.name());
    let name = format!("{own}, {} ranks", ranks.count);
    let group = match &ranks.process {
        Some((rendezvous, rank)) => {
            let place = (*rank, ranks.count);
            let group = Group::meet(rendezvous, place, &own, ranks.timeout)?;
            let identity = parts.map_or(0, |parts| parts.parted.identity());
            let words = [&dataset_words(dataset)[..], &identity.to_le_bytes()];
            group.expect_same("dataset", fingerprint(&words))?;
            let options = format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                plan.model,
                plan.train,
                plan.precision,
                plan.sampling,
                ranks.exchange,
                ranks.overlap,
                ranks.gather,
                plan.placement.features
            );
            let owners = ranks
                .dealt
                .iter()
                .flat_map(|dealt| dealt.partition.owners());
            let partition: Vec<u8> = owners.flat_map(|owner| owner.to_le_bytes()).collect();
            let seeds = plan.seeds.to_le_bytes();
            group.expect_same(
                "model, options or partition",
                fingerprint(&[options.as_bytes(), &partition, &seeds]),
            )?;
            Some(Overlap::of(
                ranks.overlap,
                ranks.exchange.link(group, backend)?,
            )?)
        }
        None => None,
    };
    let name = match &group {
        Some(group) => match group.library() {
            Some(library) if group.overlaps() => {
                format!("{name}, exchanges by {library} beside computation")
            }
            _ => format!("{name}, exchanges by {}", moved_by(group)),
        },
        None => name,
    };
    let mut runs = Vec::new();
    let mut saturated = None;
    for seed in (0..plan.seeds).map(|run| plan.train.seed.wrapping_add(run.into())) {
        observer.run_starts(plan, &name, seed);
        let common = Common {
            device,
            dataset,
            plan,
            ranks,
            graph: graph.as_ref(),
            train: TrainConfig { seed, ..plan.train },
            // It is the same for each seed.
            tells_memory: seed == plan.train.seed,
        };
        let run = match &group {
            Some(group) => of_rank::<B, E>(&common, group.clone(), Some(observer))?,
            None => run::<B, E>(&common, observer)?,
        };
        if let Some(more) = run.saturated {
            *saturated.get_or_insert(0) += more;
        }
        observer.run_ends(plan, seed, &run.summary);
        runs.push((seed, run.summary));
        if run.stopped {
            break;
        }
    }
    Ok(Outcome {
        device: name,
        memory: backend.memory(),
        saturated,
        runs,
    })
}

/// A number that tells what is given from anything else.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}

/// What ranks must have the same of a dataset.
fn dataset_words(dataset: &Dataset) -> Vec<u8> {
    let graph = &dataset.graph;
    let mut words: Vec<u64> = vec![
        graph.vertices() as u64,
        dataset.edges() as u64,
        halfgnn::graph::generate::fingerprint(graph),
        dataset.feature_len() as u64,
        dataset.outputs as u64,
    ];
    for split in [&dataset.train, &dataset.val, &dataset.test] {
        words.push(split.len() as u64);
        words.extend(split.iter().map(|&vertex| u64::from(vertex)));
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// One run.
fn run<B: Backend, E: Element>(
    common: &Common<'_, B>,
    observer: &mut dyn Observer,
) -> Result<Trained, Failure> {
    let Ranks {
        count,
        timeout,
        faults,
        ..
    } = common.ranks;
    let ranks = in_process(*count, &common.device.backend.name(), *timeout, faults);
    std::thread::scope(|scope| {
        let mut ranks = ranks.into_iter();
        // This thread's, which the observer is.
        let first = ranks.next();
        let others: Vec<_> = ranks
            .map(|rank| scope.spawn(move || of_rank::<B, E>(common, Group::new(rank), None)))
            .collect();
        let Some(first) = first else {
            unreachable!("there are two ranks at least");
        };
        let result = of_rank::<B, E>(common, Group::new(first), Some(observer));
        let others = others.into_iter().map(|other| {
            let panicked = |_| Err(Failure::Run("a rank panicked".into()));
            other.join().unwrap_or_else(panicked)
        });
        let mut failures = others.filter_map(Result::err);
        // All tell the same reason, but for whose it is, which knows whether it was asked for too much.
        match (
            failures.find(|failure| matches!(failure, Failure::Input(_))),
            result,
        ) {
            (Some(failure), Err(_)) => Err(failure),
            (_, result) => result,
        }
    })
}

/// A rank's part of a run; it ends the others' where it fails.
fn of_rank<B: Backend, E: Element>(
    common: &Common<'_, B>,
    group: Group,
    observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let result = match &common.ranks.dealt {
        Some(dealt) => train_shard::<B, E>(common, dealt, &group, observer),
        None => train_batches::<B, E>(common, &group, observer),
    };
    if let Err(failure) = &result {
        // The first reason that is given stays the one that all tell.
        group.abort(&failure.to_string());
    }
    result
}

/// A run in batches, of each of which this rank has a part; it has the whole graph.
fn train_batches<B: Backend, E: Element>(
    common: &Common<'_, B>,
    group: &Group,
    mut observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let Common {
        device,
        dataset,
        plan,
        train,
        ..
    } = common;
    let placed = Placed::<E>::of_rank(device, (dataset, plan), group)?;
    if common.tells_memory {
        if let Some(observer) = &mut observer {
            observer.placed(placed.placement);
        }
        common.agree_on_memory(group, &placed.placement.footprint, None, &mut observer)?;
    }
    let backend = &device.backend;
    let tasks = placed.tasks(backend, Some(group))?;
    let run = placed.train(device, &tasks, (train.seed, Some(group)), observer)?;
    // None ends the program before the others have seen their last exchange.
    group.any("end of the run", false)?;
    Ok(run)
}
