//! Batches of vertices that are drawn into the same memory each time, so that drawing one and the step on it are recorded and replayed.

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

/// Batches that are looked at to see how much room others want: so many that what they differ by says something.
pub(super) const LOOKED_AT: usize = 8;

/// A batch as a task, and in which place it lies.
type Placed<B, E> = (Objective<B, E>, usize);

/// Has the features of some vertices in a matrix.
pub(super) type Fetch<'a, B, E> =
    dyn FnMut(&Array<B, u32>, &mut Matrix<B, E>) -> Result<(), Error> + 'a;

/// Batches of vertices in the same memory each time. Where a device does several things at a time and has all features, there are places for
/// more than one, and the next are on their way while one is learnt from: [`Handles`].
#[derive(Debug)]
pub(super) struct FixedBatches<B: Backend, E: Element> {
    sampler: FixedSampler<B>,
    places: Vec<Place<B, E>>,
    /// Where the next batch is drawn.
    next: usize,
    /// What was drawn and is not asked for yet, in the order of steps.
    ahead: VecDeque<DrawnAhead>,
    /// Who draws and who takes features, where that is not who learns.
    beside: Option<Handles<B>>,
    /// Of whoever takes the features, and of nobody else: it is written while steps are computed.
    random: RandomOfStep<B>,
    norm: Norm,
    /// What features go in: of the vertices that a batch meets, or those of all, where they lie.
    inputs: LayerSources,
    /// What the losses of a batch are divided by, times the weight of each.
    divisor: f32,
    /// The rank's part of each batch, for which there is room.
    share: Share,
    record: bool,
}

/// Where batches come to lie.
#[derive(Debug)]
struct Place<B: Backend, E: Element> {
    objective: Objective<B, E>,
    /// Whose features go in.
    inputs: Array<B, u32>,
    drawn: Recorded<B>,
    taken: Recorded<B>,
    /// Whether a step was taken there, by which it is known whose transposes are asked for.
    seen: bool,
}

/// A batch that was drawn before it was asked for.
#[derive(Clone, Copy, Debug)]
struct DrawnAhead {
    step: u32,
    place: usize,
    /// Whether it had room.
    fits: bool,
    /// Whether its features are there, or on their way.
    taken: bool,
}

/// Who works beside steps, and goes first where both want room: drawing is short work of many launches, and rows that come over a bus are
/// asked for by few CTAs. Features that lie in the device's own memory are taken by who draws; the others take longer than all else, so that
/// they are taken beside the drawing of the batch behind it.
#[derive(Debug)]
struct Handles<B: Backend> {
    drawer: B,
    taker: Option<B>,
}

/// Batches that are drawn ahead, of such features.
pub(super) fn batches_ahead<B: Backend, E: Element>(
    backend: &B,
    features: &FeatureRows<B, E>,
) -> usize {
    match features.are_whole() && backend.has_beside() {
        true => 1 + usize::from(features.matrix().is_remote(backend)),
        // What is fetched from elsewhere is fetched when a batch is asked for.
        false => 0,
    }
}

/// The most places that there are.
pub(super) const PLACES: usize = 3;

impl<B: Backend, E: Element> FixedBatches<B, E> {
    /// Of what `loader` makes batches of and `sampler` draws, if that has such batches. How much [room](room_beyond) they have is seen at the first
    /// ones of the first epoch, whatever batch is asked for first: so it is the same for a run that goes on.
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
        // The first batch is as large as any, and so is a rank's part of it.
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
            // What is not drawn yet has no degrees.
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

    /// The rank's part of the batch of some vertices, where it has one, and in which place it lies; `None` where it has no room. Features
    /// that are elsewhere are fetched when that is known, since a batch fetches them once; others go through the dropout where they are
    /// taken. Steps on what was drawn before are done.
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
                // What nobody asks for any more is there, or on its way.
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
        // The step asks for the transposes that draws to this place make from then on.
        place.seen = true;
        if !of.0.0.features.are_whole() {
            let features = &mut place.objective.task_mut().features;
            fetch(&place.inputs, features_of_batch(features))?;
        }
        Ok(Some((place.objective.clone(), batch.place)))
    }

    /// What features go in.
    pub(super) fn inputs(&self) -> LayerSources {
        self.inputs
    }

    /// How many batches are drawn ahead.
    pub(super) fn batches_ahead(&self) -> usize {
        self.places.len() - 1
    }

    /// Draws the batch of some vertices, of those that are asked for after the one that is learnt from, beside the step on that; nothing
    /// where it is there. Steps on what was drawn before that one are done.
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
        // Behind one that has no room what was drawn is dropped.
        if self.ahead.len() < self.batches_ahead()
            && self
                .ahead
                .iter()
                .all(|ahead| ahead.fits && ahead.step != step)
        {
            let drawn = self.draw(backend, of, (step, vertices), dropout)?;
            self.ahead.push_back(drawn);
        }
        // The first is wanted first, and nothing else is on its way over the bus: whoever asked for the one before waited for that.
        if let Some(&first) = self.ahead.front().filter(|it| it.fits && !it.taken) {
            self.take(&of.0.0.features, first, dropout)?;
            self.ahead[0].taken = true;
        }
        Ok(())
    }

    /// Draws a batch to the next place, and waits for that.
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

    /// Has the features of a batch taken that was drawn.
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

    /// Who draws beside steps.
    pub(super) fn drawer(&self) -> Option<&B> {
        Some(&self.beside.as_ref()?.drawer)
    }

    /// Waits for what is done beside steps.
    fn wait(&self) -> Result<(), Error> {
        let Some(Handles { drawer, taker }) = &self.beside else {
            return Ok(());
        };
        drawer.synchronize()?;
        taker.as_ref().map_or(Ok(()), B::synchronize)
    }

    /// Forgets what was recorded, so that memory that others gave back meanwhile is free, and who drew ahead, who has memory too.
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
    /// Whoever does that beside `backend`, if it can.
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
