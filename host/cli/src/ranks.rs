//! Training by several ranks, of a graph that is partitioned or of batches that are: `--ranks`.

mod deal;
mod shard;
#[cfg(test)]
mod tests;

pub use deal::{Dealt, InParts, Ranks, RanksArgs};

use crate::failure::Failure;
use crate::processes::{Overlap, device_name, meet, moved_by};
use crate::session::{Observer, Outcome, Placed, Plan, Trained};
use halfgnn::backend::Backend;
use halfgnn::data::Dataset;
use halfgnn::device::Device;
use halfgnn::distributed::{Compared, Digest, Gather, Group, Member, in_process};
use halfgnn::nn::{EdgeData, PreparedGraph};
use halfgnn::tensor::Element;
use halfgnn::train::{Footprint, Snapshot, TrainConfig};
use halfgnn_bench::rank_memory::{self, RankMemory};
use shard::train_shard;

/// What all ranks of a run have in common.
struct Common<'a, B: Backend> {
    device: &'a Device<B>,
    dataset: &'a Dataset,
    plan: &'a Plan,
    ranks: &'a Ranks,
    /// The whole graph, where it is here and partitioned.
    graph: Option<&'a PreparedGraph<'a>>,
    train: TrainConfig,
    /// Whether what ranks take is still to be reported.
    tells_memory: bool,
}

impl<B: Backend> Common<'_, B> {
    /// Has all ranks say what they take of their devices, of which this one takes `own`, and compares it with what
    /// those have.
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
        (Some(_), None) => {
            Some(config.prepare_edges(&dataset.graph, EdgeData::of_dataset(config, dataset))?)
        }
        _ => None,
    };
    backend.reset_peak();
    let own = device_name(&backend.name());
    let name = format!("{own}, {} ranks", ranks.count);
    let group = match &ranks.process {
        Some((rendezvous, rank)) => {
            let compared = compared(dataset, (plan, ranks))?;
            let member = Member::new(*rank, ranks.count, &own, ranks.timeout);
            let group = meet(rendezvous, &member.comparing(compared))?;
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

/// What processes compare when they meet: all that they have read and were given. Of a folder of parts, of which each
/// reads its own, that is its manifest, with the checksums of all, and what there is one of a vertex.
fn compared(dataset: &Dataset, (plan, ranks): (&Plan, &Ranks)) -> Result<Vec<Compared>, Failure> {
    let parts = ranks.dealt.as_ref().and_then(|dealt| dealt.parts.as_ref());
    let mut all = match parts {
        Some(parts) => {
            let manifest = Digest::of_text(&parts.parted.description());
            let mut all = vec![Compared::new("the manifest of the parts", manifest)];
            all.extend(Compared::of_labels(dataset));
            all
        }
        None => Compared::of_dataset(dataset)?,
    };
    let options: [(&str, &dyn std::fmt::Debug); 10] = [
        ("model", &plan.model),
        ("loss", &plan.goal),
        ("training options", &plan.train),
        ("--precision", &plan.precision),
        ("--seeds", &plan.seeds),
        ("sampler", &plan.sampling),
        ("--features", &plan.placement.features),
        ("--exchange", &ranks.exchange),
        ("--overlap", &ranks.overlap),
        ("--gather", &ranks.gather),
    ];
    all.extend(
        options.map(|(what, option)| Compared::new(what, Digest::of_text(&format!("{option:?}")))),
    );
    let partition = ranks.dealt.as_ref().map(|dealt| dealt.partition.owners());
    let divisors = plan.feature_divisors.as_deref();
    let resumed = plan
        .resume
        .as_ref()
        .map(|resumed| of_snapshot(&resumed.snapshot));
    all.extend([
        Compared::optional("partition", partition.map(Digest::of)),
        Compared::optional("scales of features", divisors.map(Digest::of)),
        Compared::optional("the checkpoint to go on from", resumed),
    ]);
    Ok(all)
}

/// Of all that a run goes on from.
fn of_snapshot(snapshot: &Snapshot) -> Digest {
    let mut text = format!("{:?} {:?}", snapshot.progress, snapshot.optimizer);
    for (name, tensor) in &snapshot.tensors {
        let values = Digest::of(&tensor.values);
        text.push_str(&format!("; {name} {} {values:?}", tensor.rows));
    }
    Digest::of_text(&text)
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
        // All report the same reason; the rank that has it knows whether it was asked for too much.
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
        // The first reason that is given stays the one that all report.
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
