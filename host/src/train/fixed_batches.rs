//! Batches of vertices that are drawn into the same memory each time, so that drawing one and the step on it are recorded and replayed.

use super::batches::Share;
use super::objective::{Objective, Task, features_of_batch};
use super::recorded::Recorded;
use super::{Goal, Loss};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Norm, Propagation};
use crate::ops::Dropout;
use crate::sample::{FixedSampler, LayerSizes, Loader, Sampler, an_eighth_more, sizes};
use crate::tensor::{Array, Element, Matrix};

/// Batches that are looked at to see how much room others want.
pub(super) const LOOKED_AT: usize = 4;

/// Has the features of some vertices in a matrix.
pub(super) type Fetch<'a, B, E> =
    dyn FnMut(&Array<B, u32>, &mut Matrix<B, E>) -> Result<(), Error> + 'a;

/// Batches of vertices in the same memory each time.
#[derive(Debug)]
pub(super) struct FixedBatches<B: Backend, E: Element> {
    sampler: FixedSampler<B>,
    objective: Objective<B, E>,
    norm: Norm,
    /// What the losses of a batch are divided by, times the weight of each.
    divisor: f32,
    /// The rank's part of each batch, for which there is room.
    share: Share,
    drawn: Recorded<B>,
    record: bool,
    /// Whether a step was taken, by which it is known whose transposes are asked for.
    seen: bool,
}

impl<B: Backend, E: Element> FixedBatches<B, E> {
    /// Of what `loader` makes batches of and `sampler` draws, if that has such batches. How much room they have is seen at the first ones
    /// of the first epoch and an eighth more, whatever batch is asked for first: so it is the same for a run that goes on.
    ///
    /// # Errors
    /// Those of the sampler and of [`Objective::of`].
    pub(super) fn new(
        backend: &B,
        (task, loss, norm): (&Objective<B, E>, &Loss, Norm),
        sampler: &mut dyn Sampler<B>,
        (loader, share, record): (&Loader, Share, bool),
    ) -> Result<Option<Self>, Error> {
        let seed = loader.seed();
        let looked_at: Vec<_> = loader.epoch(0).take(LOOKED_AT).collect();
        let mut room: Vec<LayerSizes> = Vec::new();
        for seeds in &looked_at {
            let own = &seeds.vertices[share.of(seeds.vertices.len())];
            if own.is_empty() {
                continue;
            }
            let batch = sampler.sample(backend, own, seed, seeds.step)?;
            let found = sizes(&batch);
            let nothing = LayerSizes {
                destinations: 0,
                edges: 0,
                met: 0,
            };
            room.resize(found.len(), nothing);
            for (room, found) in room.iter_mut().zip(found) {
                room.edges = room.edges.max(found.edges);
                room.met = room.met.max(found.met);
            }
        }
        let vertices = sampler.vertices();
        for room in &mut room {
            room.edges = an_eighth_more(room.edges);
            room.met = an_eighth_more(room.met).min(vertices);
        }
        // The first batch is as large as any, and so is a rank's part of it.
        let whole = &looked_at[0].vertices;
        let first = &whole[share.of(whole.len())];
        if first.is_empty() {
            return Ok(None);
        }
        let Some((mut sampler, mut blocks)) = sampler.fixed(backend, (first.len(), seed), &room)?
        else {
            return Ok(None);
        };
        // What is not drawn yet has no degrees.
        sampler.begin(backend, first, looked_at[0].step)?;
        sampler.draw(backend, blocks.iter_mut())?;
        let graphs = (blocks.into_iter())
            .map(|block| Propagation::of_sampled(backend, block, norm))
            .collect::<Result<_, _>>()?;
        let (rows, columns) = (sampler.inputs().len(), task.0.features.columns());
        let features = Matrix::zeros(backend, rows, columns, MemoryKind::Features)?;
        let all: Vec<u32> = (0..first.len() as u32).collect();
        let goal = Goal {
            targets: &task.0.targets.selected(first),
            outputs: task.outputs(),
            loss,
            splits: [&all, &[], &[]],
        };
        let divisor = task.divisor(loss, whole);
        let objective = Objective::of(backend, graphs, features, &goal)?;
        let weights = vec![1.0; first.len()];
        Ok(Some(Self {
            sampler,
            objective: objective.weighing(backend, &weights, divisor)?,
            norm,
            divisor,
            share,
            drawn: Recorded::new(record),
            record,
            seen: false,
        }))
    }

    /// The rank's part of the batch of some vertices, where it has one; `None` where it has no room. Features that are elsewhere are fetched
    /// when that is known, since a batch fetches them once; others go through the dropout where they are taken.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn batch(
        &mut self,
        backend: &B,
        (task, loss): (&Objective<B, E>, &Loss),
        (step, vertices): (u32, &[u32]),
        (dropout, fetch): (Option<Dropout<'_, B>>, &mut Fetch<'_, B, E>),
    ) -> Result<Option<Objective<B, E>>, Error> {
        let Self {
            sampler,
            objective,
            norm,
            divisor,
            share,
            drawn,
            seen,
            ..
        } = self;
        let own = &vertices[share.of(vertices.len())];
        let targets = task.0.targets.selected(own);
        let weight = *divisor / task.divisor(loss, vertices);
        objective.tell_again(backend, &targets, weight)?;
        sampler.begin(backend, own, step)?;
        let Task {
            graphs,
            features,
            dropped,
            ..
        } = objective.task_mut();
        let all = &task.0.features;
        let whole = all.are_whole();
        *dropped = whole && dropout.is_some();
        let mut work = || {
            let blocks = graphs.iter_mut().filter_map(Propagation::block_mut);
            sampler.draw(backend, blocks)?;
            for graph in graphs.iter_mut() {
                graph.renew_factors(backend, *norm)?;
            }
            let (inputs, taken) = (sampler.inputs(), features_of_batch(features));
            match dropout {
                _ if !whole => Ok(()),
                Some(dropout) => all.take_dropped(backend, dropout, inputs, taken),
                None => all.take_into(backend, inputs, taken),
            }
        };
        match std::mem::replace(seen, true) {
            true => drawn.run(backend, work)?,
            false => work()?,
        }
        if !sampler.fits(backend)? {
            return Ok(None);
        }
        if !whole {
            let features = &mut objective.task_mut().features;
            fetch(sampler.inputs(), features_of_batch(features))?;
        }
        Ok(Some(objective.clone()))
    }

    /// Forgets what was recorded, so that memory that others gave back meanwhile is free.
    pub(super) fn forget(&mut self) {
        self.drawn = Recorded::new(self.record);
    }
}
