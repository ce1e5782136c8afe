//! Training on what a rank has of a graph that is partitioned.

use super::{Common, Dealt, InParts};
use crate::checkpoint::Run;
use crate::failure::Failure;
use crate::session::{Observer, Trained};
use crate::task::Goal;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::parts::RowFeatures;
use halfgnn::distributed::{Group, Shard};
use halfgnn::nn::{EdgeData, Network, PreparedGraph, PreparedRows, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{self, Footprint, Learning, Objective, Trainer};

/// A run on what this rank has of a graph that is partitioned.
pub(super) fn train_shard<B: Backend, E: Element>(
    common: &Common<'_, B>,
    dealt: &Dealt,
    group: &Group,
    mut observer: Option<&mut dyn Observer>,
) -> Result<Trained, Failure> {
    let Common {
        device,
        dataset,
        plan,
        graph,
        train,
        ..
    } = common;
    let backend = &device.backend;
    let Goal::Vertices { loss, .. } = &plan.goal else {
        return Err(Failure::Input(
            "links are told by one rank; leave --ranks out".into(),
        ));
    };
    let config = &plan.model;
    let rows = match (graph, &dealt.parts) {
        (_, Some(parts)) => Rows::<E>::read((common, dealt), parts, group)?,
        (Some(graph), None) => {
            let gather = common.ranks.gather;
            let shard = Shard::gathering(&graph.graph, &dealt.partition, group.rank(), gather)?;
            Rows::Dealt(graph, shard)
        }
        (None, None) => unreachable!("the graph is here, or in parts"),
    };
    if common.tells_memory {
        let of = (rows.shard(), rows.of_edges());
        let how = Learning::from((config, train)).of_targets(&dataset.targets);
        let own = Footprint::of_shard::<E>(of, how, device.multiprocessors)?;
        let gather = rows.shard().gather();
        common.agree_on_memory(group, &own, Some(gather), &mut observer)?;
    }
    let model = Network::<B, E>::new(backend, config, train.seed)?;
    let (shard, features, part) = rows.upload(backend, common, model.first_aggregates(), group)?;
    let goal = train::Goal {
        targets: &dataset.targets,
        outputs: dataset.outputs,
        loss,
        splits: [&dataset.train, &dataset.val, &dataset.test],
    };
    let objective = Objective::of_shard(backend, part, features, &goal, &shard)?;
    let mut trainer = Trainer::new(backend, &objective, model, *train)?;
    if let Some(checkpoint) = &plan.resume {
        trainer.restore(&checkpoint.snapshot)?;
    }
    // Weights are every rank's, and the first keeps them.
    let keep = |trainer: &Trainer<B, E, Network<B, E>>| match &plan.saving {
        Some((saving, task)) if group.rank() == 0 => {
            let run = Run {
                task,
                model: config,
                feature_divisors: plan.feature_divisors.as_deref(),
                goal: &plan.goal,
                sampling: None,
                precision: plan.precision,
                train,
            };
            saving.keep(run, trainer)
        }
        _ => Ok(()),
    };
    let mut kept = None;
    let stopped = loop {
        let Some(report) = trainer.next_epoch()? else {
            break false;
        };
        let due = plan.saving.as_ref();
        if due.is_some_and(|(saving, _)| saving.is_due(trainer.progress())) {
            keep(&trainer)?;
            kept = Some(report.epoch);
        }
        let stop = match &mut observer {
            Some(observer) => observer.epoch(plan, train.seed, &report).is_break(),
            None => false,
        };
        if trainer.any_rank(stop)? {
            break true;
        }
    };
    if kept != Some(trainer.progress().epoch) {
        keep(&trainer)?;
    }
    // Each counts what its own vertices send. None ends the program before the others have seen their last exchange.
    let saturated = trainer.model().saturated_messages(backend)?;
    let all = group.gather("end of the run", &[saturated.unwrap_or(0)])?;
    Ok(Trained {
        summary: trainer.summary(),
        stopped,
        saturated: saturated.map(|_| all.iter().map(|of_rank| of_rank[0]).sum()),
    })
}

/// What a rank has of a graph: the shard, features and the graph on the device.
type OfRank<B, E> = (Shard, Matrix<B, E>, Propagation<B>);

/// The same on the host.
enum Rows<'a, E: Element> {
    /// Of a graph that is here.
    Dealt(&'a PreparedGraph<'a>, Shard),
    /// Read from parts, with the features of the own vertices.
    Read(Box<PreparedRows<E>>, RowFeatures),
}

impl<'a, E: Element> Rows<'a, E> {
    /// Reads what a rank has.
    fn read<B: Backend>(
        (common, dealt): (&Common<'_, B>, &Dealt),
        parts: &InParts,
        group: &Group,
    ) -> Result<Self, Failure> {
        let (dataset, plan) = (common.dataset, common.plan);
        let own = parts.parted.range_of(group.rank(), group.ranks())?;
        let rows = parts.parted.rows(&parts.table, own)?;
        let features = rows.edge_features.as_ref();
        let edges = EdgeData {
            // What is ignored of a dataset is ignored of its parts.
            weights: rows
                .edge_weights
                .as_deref()
                .filter(|_| dataset.edge_weights.is_some()),
            features: features
                .filter(|_| dataset.edge_features.is_some() && plan.model.edge_features() > 0)
                .map(|features| (features.columns(), features.values())),
        };
        let of_all = (&parts.table, &dealt.partition);
        let prepared =
            plan.model
                .prepare_rows::<E>((&rows, edges), of_all, (group, common.ranks.gather))?;
        Ok(Self::Read(Box::new(prepared), rows.features))
    }

    fn shard(&self) -> &Shard {
        match self {
            Self::Dealt(_, shard) => shard,
            Self::Read(prepared, _) => &prepared.shard,
        }
    }

    /// Whether each edge has a weight, and how many features of each are read.
    fn of_edges(&self) -> (bool, usize) {
        match self {
            Self::Dealt(graph, _) => graph.of_edges(),
            Self::Read(prepared, _) => prepared.of_edges(),
        }
    }

    /// Copies it to the device. Where the model's first layer aggregates neighbours it needs their features as well,
    /// which those who read parts ask the others for.
    fn upload<B: Backend>(
        self,
        backend: &B,
        common: &Common<'_, B>,
        first_aggregates: bool,
        group: &Group,
    ) -> Result<OfRank<B, E>, Failure> {
        let (dataset, plan) = (common.dataset, common.plan);
        let columns = dataset.feature_len();
        match self {
            Self::Dealt(graph, shard) => {
                let vertices = match first_aggregates {
                    true => shard.part.vertices(),
                    false => shard.part.own(),
                };
                let (shape, kind) = ((vertices.len(), columns), MemoryKind::Features);
                let features = Matrix::from_rows(backend, shape, kind, |row, values| {
                    dataset.features.write_row(vertices[row] as usize, values);
                })?;
                let of = (&shard, group);
                let part = graph.propagation_of_shard::<B, E>(backend, &plan.model, of)?;
                Ok((shard, features, part))
            }
            Self::Read(prepared, features) => {
                let part = prepared.propagation(backend, group)?;
                let features = match first_aggregates {
                    true => prepared.shard.with_halo(group, features)?,
                    false => features,
                };
                let (shape, kind) = ((features.rows(), columns), MemoryKind::Features);
                let features = Matrix::from_rows(backend, shape, kind, |row, values| {
                    features.write_row(row, values);
                    if let Some(divisors) = &plan.feature_divisors {
                        let divide = |(value, divisor): (&mut f32, &f32)| *value /= divisor;
                        values.iter_mut().zip(divisors).for_each(divide);
                    }
                })?;
                Ok((prepared.shard, features, part))
            }
        }
    }
}
