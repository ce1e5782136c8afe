//! The steps of an epoch on batches.
//!
//! Where batches are sampled ahead and their steps are recorded, a step is launched before the host reads the loss of
//! the previous one. The device goes from one step to the next without waiting.
//!
//! ```text
//!  this handle    │ step 1            │ step 2            │ step 3
//!  second handle  │ draw 2 ───────┐   │ loss 1, draw 3 ┐  │ loss 2, draw 4 …
//!  the host         launch 2 ◄────┘     launch 3 ◄─────┘
//! ```

use super::batches::{Batches, InPlace};
use super::recorded::Recorded;
use super::trainer::{BatchReport, Trainer};
use super::{Objective, Part};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::Model;
use crate::tensor::{Array, Element};
use std::ops::ControlFlow;
use std::time::Instant;

/// The current epoch and its progress.
struct Epoch<F> {
    number: u32,
    batches: usize,
    part: Part,
    /// The start of the interval that the next step's time is counted from.
    since: Instant,
    observe: F,
}

/// A step that was launched and is not accounted for yet.
struct Launched {
    /// The index of its loss.
    place: usize,
    vertices: usize,
}

impl<B: Backend, E: Element, M: Model<B, E>> Trainer<B, E, M> {
    /// Takes the remaining steps of an epoch. Returns nothing where `observe` ended it before the last.
    pub(super) fn learn_batches(
        &mut self,
        batches: &mut Batches<B, E>,
        number: u32,
        observe: impl FnMut(&BatchReport) -> ControlFlow<()>,
    ) -> Result<Option<Part>, Error> {
        self.show_features(&batches.features())?;
        self.backend.synchronize()?;
        let part = self.progress.part.unwrap_or_default();
        let mut epoch = Epoch {
            number,
            batches: batches.count(),
            part,
            since: Instant::now(),
            observe,
        };
        let mut launched: Option<Launched> = None;
        for number in part.batches..epoch.batches {
            let at = (epoch.number - 1, number);
            let next = (at.0, number + 1);
            let dropout = self.dropout_of_features();
            let in_place = batches.next_in_place(&self.backend, at, dropout)?;
            let Some(InPlace {
                batch,
                place,
                vertices,
            }) = in_place
            else {
                if let Some(before) = launched.take()
                    && self.account(&mut epoch, before, None)?.is_break()
                {
                    return Ok(None);
                }
                let vertices = self.learn_batch(batches, at)?;
                let place = self.latest;
                let step = Launched { place, vertices };
                if self.account(&mut epoch, step, None)?.is_break() {
                    return Ok(None);
                }
                continue;
            };
            batches.fetch_ahead(&self.backend, next.0, next.1)?;
            let drawer = batches.drawer();
            if let (Some(drawer), Some(_)) = (&drawer, &launched) {
                // It can then read the loss of that step while this one is computed.
                drawer.follow(&self.backend)?;
            }
            self.launch(&batch, place)?;
            drop(batch);
            let step = Launched { place, vertices };
            if let Some(before) = launched.take()
                && self
                    .account(&mut epoch, before, drawer.as_ref())?
                    .is_break()
            {
                // A request of its observer to stop comes too late.
                let _ = self.account(&mut epoch, step, None)?;
                return Ok(epoch.left());
            }
            // An error of sampling ahead is reported after this step is accounted for.
            let ahead = batches.draw_ahead(&self.backend, next, self.dropout_of_features());
            if ahead.is_ok() && self.goes_ahead(batches) {
                launched = Some(step);
                continue;
            }
            let verdict = self.account(&mut epoch, step, None)?;
            ahead?;
            if verdict.is_break() {
                return Ok(None);
            }
        }
        if let Some(step) = launched {
            // After the last step there is nothing to stop.
            let _ = self.account(&mut epoch, step, None)?;
        }
        Ok(Some(epoch.part))
    }

    /// Whether a step is launched before the previous one is accounted for.
    fn goes_ahead(&self, batches: &Batches<B, E>) -> bool {
        self.records_batches && self.together.is_none() && batches.drawer().is_some()
    }

    /// Takes a step on a batch in a place, recorded or replayed.
    fn launch(&mut self, batch: &Objective<B, E>, place: usize) -> Result<(), Error> {
        while self.losses.len() <= place {
            let loss = Array::zeros(&self.backend, 1, MemoryKind::Workspace)?;
            self.losses.push(loss);
        }
        self.latest = place;
        let mut recorded = std::mem::take(&mut self.recorded_batches[place]);
        self.begin(&recorded, "step");
        let done = recorded.run(&self.backend.clone(), || {
            self.gradients_of(batch)?;
            self.update()
        });
        self.recorded_batches[place] = recorded;
        done
    }

    /// Takes a step on a batch in its own buffers; returns the number of its vertices.
    fn learn_batch(
        &mut self,
        batches: &mut Batches<B, E>,
        (epoch, number): (u32, usize),
    ) -> Result<usize, Error> {
        self.forget_batches();
        let backend = self.backend.clone();
        let dropout = self.dropout_of_features();
        let (batch, vertices) = batches.own(&backend, (epoch, number), dropout)?;
        batches.fetch_ahead(&backend, epoch, number + 1)?;
        match batch {
            Some(batch) => self.step_on(&batch)?,
            None => self.step_of_others()?,
        }
        Ok(vertices)
    }

    /// Waits for a step, adds its loss to the epoch's, and reports it. The memory of its batch is released afterwards.
    /// Where other steps were launched since, `reader` [follows](crate::backend::Storage::follow) this step and not
    /// them.
    fn account<F: FnMut(&BatchReport) -> ControlFlow<()>>(
        &mut self,
        epoch: &mut Epoch<F>,
        step: Launched,
        reader: Option<&B>,
    ) -> Result<ControlFlow<()>, Error> {
        self.share_statistics()?;
        let reader = reader.unwrap_or(&self.backend);
        let loss = self.losses[step.place].to_vec(reader)?[0];
        let now = Instant::now();
        let ms = (now - epoch.since).as_secs_f64() * 1e3;
        epoch.since = now;
        epoch.part.add(loss, step.vertices, ms);
        self.progress.part = Some(epoch.part);
        let report = BatchReport {
            epoch: epoch.number,
            batch: epoch.part.batches,
            of: epoch.batches,
            loss,
        };
        let ends = (epoch.observe)(&report).is_break();
        match self.any_rank(ends)? && epoch.part.batches < epoch.batches {
            true => Ok(ControlFlow::Break(())),
            false => Ok(ControlFlow::Continue(())),
        }
    }

    /// Discards the recorded steps on batches in place.
    pub(super) fn forget_batches(&mut self) {
        self.recorded_batches = std::array::from_fn(|_| Recorded::new(self.records_batches));
    }
}

impl<F> Epoch<F> {
    /// The progress of an epoch that was stopped: its results, where the stop came too late.
    fn left(self) -> Option<Part> {
        (self.part.batches == self.batches).then_some(self.part)
    }
}
