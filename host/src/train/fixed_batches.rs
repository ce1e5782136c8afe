//! Batches of vertices that are sampled into the same buffers each time. Sampling and the step are then recorded and
//! replayed.

use super::batches::Share;
use super::objective::{Objective, Task, features_of_batch};
use super::random_of_step::RandomOfStep;
use super::recorded::Recorded;
use super::{Goal, Loss};
use crate::backend::{Backend, Block, MemoryKind};
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::{Norm, Propagation};
use crate::ops::Dropout;
use crate::sample::{FixedSampler, LayerSizes, LayerSources, Loader, Sampler, room_beyond, sizes};
use crate::tensor::{Array, Element, Matrix};
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of batches from which the capacity is determined. It is large enough for their spread to be meaningful.
pub(super) const LOOKED_AT: usize = 8;

/// A batch as a task, and the index of its place.
type Placed<B, E> = (Objective<B, E>, usize);

/// Writes the features of some vertices to a matrix.
pub(super) type Fetch<'a, B, E> =
    dyn FnMut(&Array<B, u32>, &mut Matrix<B, E>) -> Result<(), Error> + 'a;

/// Batches of vertices that use the same buffers each time. Where a device runs several streams and has all features,
/// there are several places. The next batches are then prepared during a step: see [`Handles`].
#[derive(Debug)]
pub(super) struct FixedBatches<B: Backend, E: Element> {
    sampler: FixedSampler<B>,
    places: Vec<Place<B, E>>,
    /// The place that the next batch is sampled into.
    next: usize,
    /// The batches that are sampled and not requested yet, in the order of steps.
    ahead: VecDeque<DrawnAhead>,
    /// The handles that sample and gather features, where they are not the training step's.
    beside: Option<Handles<B>>,
    /// Only the handle that gathers features uses it, because it is written during steps.
    random: RandomOfStep<B>,
    norm: Norm,
    /// The features that are inputs: those of the sampled vertices, or those of all vertices, read in place.
    inputs: LayerSources,
    /// The divisor of a batch's loss, times the weight of each vertex.
    divisor: f32,
    /// The rank's share of each batch, which the buffers are sized for.
    share: Share,
    record: bool,
}

/// The buffers of a batch.
#[derive(Debug)]
struct Place<B: Backend, E: Element> {
    objective: Objective<B, E>,
    /// The vertices whose features are inputs.
    inputs: Array<B, u32>,
    drawn: Recorded<B>,
    taken: Recorded<B>,
    /// Whether a step used this place. The first one determines which transposes are needed.
    seen: bool,
}

/// A batch that was sampled before it was requested.
#[derive(Clone, Copy, Debug)]
struct DrawnAhead {
    step: u32,
    place: usize,
    /// Whether it fits the buffers.
    fits: bool,
    /// Whether its features are gathered, or being gathered.
    taken: bool,
}

/// Handles that run in parallel to steps, and with priority where both need the same resources. Sampling is short work
/// of many launches, and few CTAs request rows over a bus. The sampling handle gathers features that are in the
/// device's own memory. Gathering others takes longest, so a handle of its own does it while the next batch is sampled.
#[derive(Debug)]
struct Handles<B: Backend> {
    drawer: B,
    taker: Option<B>,
}

/// The number of batches that are sampled ahead, for such features.
pub(super) fn batches_ahead<B: Backend, E: Element>(
    backend: &B,
    features: &FeatureRows<B, E>,
) -> usize {
    match features.are_whole() && backend.has_beside() {
        true => 1 + usize::from(features.matrix().is_remote(backend)),
        // Features that are elsewhere are fetched when a batch is requested.
        false => 0,
    }
}

/// The largest number of places.
pub(super) const PLACES: usize = 3;

impl<B: Backend, E: Element> FixedBatches<B, E> {
    /// Makes the batches of `loader` and `sampler`, if the sampler has a fixed form. The [capacity](room_beyond)
    /// follows from the first batches of the first epoch, whichever batch is requested first. A resumed run thus has
    /// the same.
    ///
    /// # Errors
    /// Those of the sampler and of [`Objective::of`].
    pub(super) fn new(
        backend: &B,
        (task, loss, norm): (&Objective<B, E>, &Loss, Norm),
        sampler: &mut dyn Sampler<B>,
        of_inputs: LayerSources,
        (loader, share, record): (&Loader, Share, bool),
    ) -> Result<Option<Self>, Error> {
        let seed = loader.seed();
        let looked_at: Vec<_> = loader.epoch(0).take(LOOKED_AT).collect();
        let mut drawn: Vec<Vec<LayerSizes>> = Vec::new();
        for seeds in &looked_at {
            let own = &seeds.vertices[share.of(seeds.vertices.len())];
            if !own.is_empty() {
                drawn.push(sizes(&sampler.sample(backend, own, seed, seeds.step)?));
            }
        }
        let vertices = sampler.vertices();
        let layers = drawn.first().map_or(0, Vec::len);
        let room = |layer: usize| {
            let beyond = |of: fn(&LayerSizes) -> usize| {
                let sizes = || drawn.iter().map(|layers| of(&layers[layer]));
                room_beyond(sizes().min().unwrap_or(0), sizes().max().unwrap_or(0))
            };
            LayerSizes {
                destinations: 0,
                edges: beyond(|it| it.edges),
                met: beyond(|it| it.met).min(vertices),
            }
        };
        let room: Vec<_> = (0..layers).map(room).collect();
        // No batch is larger than the first, and no share of this rank either.
        let whole = &looked_at[0].vertices;
        let first = &whole[share.of(whole.len())];
        if first.is_empty() {
            return Ok(None);
        }
        let drawn = sampler.fixed(backend, (first.len(), seed), (&room, of_inputs))?;
        let Some((mut sampler, blocks)) = drawn else {
            return Ok(None);
        };
        let divisor = task.divisor(loss, whole);
        let mut sets = vec![blocks];
        for _ in 0..batches_ahead(backend, &task.0.features) {
            sets.push(sampler.blocks(backend)?);
        }
        let mut place = |mut blocks: Vec<Block<B>>| {
            // Degrees are known after sampling.
            sampler.begin(backend, first, looked_at[0].step)?;
            sampler.draw(backend, blocks.iter_mut())?;
            let graphs = (blocks.into_iter())
                .map(|block| Propagation::of_sampled(backend, block, norm))
                .collect::<Result<_, _>>()?;
            let (rows, columns) = (sampler.inputs().len(), task.0.features.columns());
            let features = match of_inputs {
                LayerSources::All => Arc::clone(&task.0.features),
                LayerSources::Met => {
                    let kind = MemoryKind::Features;
                    Arc::new(Matrix::zeros(backend, rows, columns, kind)?.into())
                }
            };
            let all: Vec<u32> = (0..first.len() as u32).collect();
            let goal = Goal {
                targets: &task.0.targets.selected(first),
                outputs: task.outputs(),
                loss,
                splits: [&all, &[], &[]],
            };
            let objective = Objective::of_shared(backend, graphs, features, &goal)?;
            let weights = vec![1.0; first.len()];
            Ok(Place {
                objective: objective.weighing(backend, &weights, divisor)?,
                inputs: Array::uninit(backend, rows, MemoryKind::Graph)?,
                drawn: Recorded::new(record),
                taken: Recorded::new(record),
                seen: false,
            })
        };
        let places = sets.into_iter().map(&mut place);
        let places = places.collect::<Result<_, Error>>()?;
        Ok(Some(Self {
            sampler,
            places,
            next: 0,
            ahead: VecDeque::new(),
            beside: None,
            random: RandomOfStep::default(),
            norm,
            inputs: of_inputs,
            divisor,
            share,
            record,
        }))
    }

    /// Returns the rank's part of the batch of some vertices, and the index of its place; `None` where it does not fit.
    /// Features that are elsewhere are fetched after that check, because a batch fetches them once. Dropout applies to
    /// others as they are gathered. Steps on earlier batches must be complete.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn batch(
        &mut self,
        backend: &B,
        of: (&Objective<B, E>, &Loss),
        (step, vertices): (u32, &[u32]),
        (dropout, fetch): (Option<Dropout<'_, B>>, &mut Fetch<'_, B, E>),
    ) -> Result<Option<Placed<B, E>>, Error> {
        let ahead = self.ahead.pop_front().filter(|ahead| ahead.step == step);
        let batch = match ahead {
            Some(ahead) => ahead,
            None => {
                // Batches sampled ahead that are no longer needed may still be in progress.
                self.wait()?;
                self.ahead.clear();
                self.draw(backend, of, (step, vertices), dropout)?
            }
        };
        if !batch.fits {
            return Ok(None);
        }
        if !batch.taken {
            self.take(&of.0.0.features, batch, dropout)?;
        }
        self.wait()?;
        let place = &mut self.places[batch.place];
        // The step requests transposes. Sampling into this place builds them from then on.
        place.seen = true;
        if !of.0.0.features.are_whole() {
            let features = &mut place.objective.task_mut().features;
            fetch(&place.inputs, features_of_batch(features))?;
        }
        Ok(Some((place.objective.clone(), batch.place)))
    }

    /// The features that are inputs.
    pub(super) fn inputs(&self) -> LayerSources {
        self.inputs
    }

    /// The number of batches that are sampled ahead.
    pub(super) fn batches_ahead(&self) -> usize {
        self.places.len() - 1
    }

    /// Samples the batch of some vertices during the step on an earlier one; does nothing where it is sampled already.
    /// Steps before that one must be complete.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn draw_ahead(
        &mut self,
        backend: &B,
        of: (&Objective<B, E>, &Loss),
        (step, vertices): (u32, &[u32]),
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<(), Error> {
        // After a batch that does not fit, batches that are sampled ahead are dropped.
        if self.ahead.len() < self.batches_ahead()
            && self
                .ahead
                .iter()
                .all(|ahead| ahead.fits && ahead.step != step)
        {
            let drawn = self.draw(backend, of, (step, vertices), dropout)?;
            self.ahead.push_back(drawn);
        }
        // The first is needed first. The bus is idle, because the request for the previous batch waited for its
        // features.
        if let Some(&first) = self.ahead.front().filter(|it| it.fits && !it.taken) {
            self.take(&of.0.0.features, first, dropout)?;
            self.ahead[0].taken = true;
        }
        Ok(())
    }

    /// Samples a batch into the next place, and waits for it.
    fn draw(
        &mut self,
        backend: &B,
        (task, loss): (&Objective<B, E>, &Loss),
        (step, vertices): (u32, &[u32]),
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<DrawnAhead, Error> {
        if self.batches_ahead() > 0 && self.beside.is_none() {
            self.beside = Handles::of(backend, &task.0.features)?;
        }
        let Self {
            sampler,
            places,
            next,
            beside,
            random,
            norm,
            inputs: of_inputs,
            divisor,
            share,
            ..
        } = self;
        let (backend, takes) = match beside {
            Some(beside) => (&beside.drawer, beside.taker.is_none()),
            None => (backend, task.0.features.are_whole()),
        };
        let in_place = *of_inputs == LayerSources::All;
        let takes = takes && !in_place;
        let at = *next;
        *next = (at + 1) % places.len();
        let Place {
            objective,
            inputs,
            drawn,
            seen,
            ..
        } = &mut places[at];
        let own = &vertices[share.of(vertices.len())];
        let targets = task.0.targets.selected(own);
        let weight = *divisor / task.divisor(loss, vertices);
        objective.tell_again(backend, &targets, weight)?;
        sampler.begin(backend, own, step)?;
        let dropout = match takes {
            true => random.dropout(backend, dropout, step)?,
            false => None,
        };
        let Task {
            graphs, features, ..
        } = objective.task_mut();
        sampler.swap_inputs(inputs)?;
        let mut work = || {
            let blocks = graphs.iter_mut().filter_map(Propagation::block_mut);
            sampler.draw(backend, blocks)?;
            for graph in graphs.iter_mut() {
                graph.renew_factors(backend, *norm)?;
            }
            match takes {
                true => task.0.features.take_through(
                    backend,
                    dropout,
                    sampler.inputs(),
                    features_of_batch(features),
                ),
                false => Ok(()),
            }
        };
        let done = match *seen {
            true => drawn.run(backend, work),
            false => work(),
        };
        sampler.swap_inputs(inputs)?;
        done?;
        objective.task_mut().dropped = dropout.is_some();
        Ok(DrawnAhead {
            step,
            place: at,
            fits: sampler.fits(backend)?,
            taken: takes || in_place || !task.0.features.are_whole(),
        })
    }

    /// Gathers the features of a sampled batch.
    fn take(
        &mut self,
        all: &FeatureRows<B, E>,
        batch: DrawnAhead,
        dropout: Option<Dropout<'_, B>>,
    ) -> Result<(), Error> {
        let taker = self.beside.as_ref().and_then(|it| it.taker.as_ref());
        let Some(taker) = taker else {
            return Ok(());
        };
        let dropout = self.random.dropout(taker, dropout, batch.step)?;
        let Place {
            objective,
            inputs,
            taken,
            ..
        } = &mut self.places[batch.place];
        let task = objective.task_mut();
        task.dropped = dropout.is_some();
        let features = &mut task.features;
        taken.run(taker, || {
            all.take_through(taker, dropout, inputs, features_of_batch(features))
        })
    }

    /// The handle that samples during steps.
    pub(super) fn drawer(&self) -> Option<&B> {
        Some(&self.beside.as_ref()?.drawer)
    }

    /// Waits for work that runs in parallel to steps.
    fn wait(&self) -> Result<(), Error> {
        let Some(Handles { drawer, taker }) = &self.beside else {
            return Ok(());
        };
        drawer.synchronize()?;
        taker.as_ref().map_or(Ok(()), B::synchronize)
    }

    /// Discards the recordings, so that memory that others released meanwhile is free. The handles are dropped as well,
    /// because they hold memory.
    pub(super) fn forget(&mut self) {
        for place in &mut self.places {
            place.drawn = Recorded::new(self.record);
            place.taken = Recorded::new(self.record);
        }
        self.ahead.clear();
        self.beside = None;
    }
}

impl<B: Backend> Handles<B> {
    /// The handles that run in parallel to `backend`, if it supports them.
    fn of<E: Element>(backend: &B, features: &FeatureRows<B, E>) -> Result<Option<Self>, Error> {
        let Some(drawer) = backend.beside()? else {
            return Ok(None);
        };
        let taker = match features.matrix().is_remote(backend) {
            true => backend.beside()?,
            false => None,
        };
        Ok(Some(Self { drawer, taker }))
    }
}
