//! Ranks at work: what they agree on, whatever moves it.

use super::{Communicator, Place};
use crate::backend::Backend;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A rank among others: a handle, whose clones are the same one.
///
/// Sums are made on each rank, in the order of ranks and from zero on, so that all have the same bits, in each run.
#[derive(Clone, Debug)]
pub struct Group(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    communicator: Box<dyn Communicator>,
    epoch: AtomicU32,
}

impl Group {
    /// The rank that a communicator is.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        Self(Arc::new(Inner {
            communicator: Box::new(communicator),
            epoch: AtomicU32::new(0),
        }))
    }

    /// Which one it is, from 0 on.
    pub fn rank(&self) -> usize {
        self.0.communicator.rank()
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.0.communicator.ranks()
    }

    /// Makes all calls of all ranks fail: what a rank does that cannot go on, so that none waits for it.
    pub fn abort(&self, reason: &str) {
        self.0.communicator.abort(reason);
    }

    /// Errors tell this epoch from now on.
    pub(crate) fn set_epoch(&self, epoch: u32) {
        self.0.epoch.store(epoch, Ordering::Relaxed);
    }

    fn place<'a>(&self, what: &'a str) -> Place<'a> {
        let epoch = self.0.epoch.load(Ordering::Relaxed);
        Place { epoch, what }
    }

    /// Whether any rank says so.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn any(&self, what: &str, own: bool) -> Result<bool, Error> {
        let all = self.gather(what, &[u8::from(own)])?;
        Ok(all.iter().any(|said| said[0] != 0))
    }

    /// That all ranks say the same.
    ///
    /// # Errors
    /// [`Error::Communication`] where they do not, those of [`Communicator::exchange`].
    pub fn expect_same(&self, what: &str, own: u64) -> Result<(), Error> {
        let all = self.gather(what, &[own])?;
        match all.iter().position(|said| said[0] != own) {
            None => Ok(()),
            Some(other) => Err(Error::Communication(format!(
                "ranks {} and {other} of {} have another {what}: give all ranks the same",
                self.rank(),
                self.ranks()
            ))),
        }
    }

    /// What each rank has, as many values of each.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn gather<T: Pod>(&self, what: &str, own: &[T]) -> Result<Vec<Vec<T>>, Error> {
        let communicator = &self.0.communicator;
        let all = communicator.all_gather(self.place(what), bytemuck::cast_slice(own))?;
        Ok(all
            .iter()
            .map(|bytes| bytemuck::pod_collect_to_vec(bytes))
            .collect())
    }

    /// What each rank has, `counts` values of each.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn gather_of<T: Pod>(
        &self,
        what: &str,
        own: &[T],
        counts: &[usize],
    ) -> Result<Vec<Vec<T>>, Error> {
        let rank = self.rank();
        let mut all: Vec<Vec<T>> = counts.iter().map(|&len| vec![T::zeroed(); len]).collect();
        let none: &[u8] = &[];
        let mut sends = vec![bytemuck::cast_slice(own); self.ranks()];
        sends[rank] = none;
        let mut receives: Vec<&mut [u8]> = (all.iter_mut())
            .map(|values| bytemuck::cast_slice_mut(values))
            .collect();
        receives[rank] = &mut [];
        let communicator = &self.0.communicator;
        communicator.exchange(self.place(what), &sends, &mut receives)?;
        all[rank].copy_from_slice(own);
        Ok(all)
    }

    /// Gives `sends[r]` to each other rank `r`, and receives `counts[r]` values from it.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn exchange<T: Pod>(
        &self,
        what: &str,
        sends: &[Vec<T>],
        counts: &[usize],
    ) -> Result<Vec<Vec<T>>, Error> {
        let mut all: Vec<Vec<T>> = counts.iter().map(|&len| vec![T::zeroed(); len]).collect();
        let sends: Vec<&[u8]> = sends.iter().map(|own| bytemuck::cast_slice(own)).collect();
        let mut receives: Vec<&mut [u8]> = (all.iter_mut())
            .map(|values| bytemuck::cast_slice_mut(values))
            .collect();
        let communicator = &self.0.communicator;
        communicator.exchange(self.place(what), &sends, &mut receives)?;
        Ok(all)
    }

    /// Gives rows `sends[r]` of `from` to each other rank `r`, and receives rows `receives[r]` of `to` from it. What is sent and
    /// received lies in the order of ranks, without gaps.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub(crate) fn exchange_rows<B: Backend, E: Element>(
        &self,
        backend: &B,
        what: &str,
        (from, sends): (&Matrix<B, E>, &[Range<usize>]),
        (to, receives): (&mut Matrix<B, E>, &[Range<usize>]),
    ) -> Result<(), Error> {
        let (row, whole) = (from.stride(), |parts: &[Range<usize>]| {
            let ends = parts.first().zip(parts.last());
            ends.map_or(0..0, |(first, last)| first.start..last.end)
        });
        let (sent, received) = (whole(sends), whole(receives));
        let elements = from.read_rows(backend, sent.clone())?;
        let mut arrived = vec![E::zeroed(); received.len() * row];
        let given: Vec<&[u8]> = sends
            .iter()
            .map(|part| (part.start - sent.start) * row..(part.end - sent.start) * row)
            .map(|part| bytemuck::cast_slice(&elements[part]))
            .collect();
        let mut rest = &mut arrived[..];
        let mut places = Vec::with_capacity(receives.len());
        for part in receives {
            let (own, others) = rest.split_at_mut(part.len() * row);
            places.push(bytemuck::cast_slice_mut(own));
            rest = others;
        }
        let communicator = &self.0.communicator;
        communicator.exchange(self.place(what), &given, &mut places)?;
        match received.is_empty() {
            true => Ok(()),
            false => to.write_rows(backend, received.start, &arrived),
        }
    }

    /// Makes each matrix the sum of those of all ranks, in one exchange.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn sum<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        matrices: &mut [&mut Matrix<B, f32>],
    ) -> Result<(), Error> {
        let mut own = Vec::new();
        for matrix in matrices.iter() {
            own.extend(matrix.read_rows(backend, 0..matrix.rows())?);
        }
        let sums = self.sum_numbers(what, &own)?;
        let mut rest = &sums[..];
        for matrix in matrices {
            let (values, others) = rest.split_at(matrix.rows() * matrix.stride());
            matrix.write_rows(backend, 0, values)?;
            rest = others;
        }
        Ok(())
    }

    /// The sums of numbers of all ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn sum_numbers(&self, what: &str, own: &[f32]) -> Result<Vec<f32>, Error> {
        let mut sums = vec![0.0; own.len()];
        for values in self.gather(what, own)? {
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
        }
        Ok(sums)
    }

    /// Makes counts those of all ranks together.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn sum_counts<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        counts: &mut Array<B, u32>,
    ) -> Result<(), Error> {
        let own = counts.to_vec(backend)?;
        let mut sums = vec![0_u32; own.len()];
        for values in self.gather(what, &own)? {
            // They count vertices of one graph, which 32 bits number.
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum = sum.saturating_add(value));
        }
        counts.write(backend, &sums)
    }
}
