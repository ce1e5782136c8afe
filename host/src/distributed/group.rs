//! The collective operations of a rank, over any transport.

use super::Digest;
use super::communicator::Counting;
use super::digest::{Compared, differences};
use super::{Communicator, Member, Place, Rendezvous, Tcp};
use crate::backend::{Backend, Floats, MemoryKind, Rows, Transfer};
use crate::driver::{LinkPlace, Watch};
use crate::error::Error;
use crate::tensor::{Array, Matrix};
use bytemuck::Pod;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Arrays for gathered values, kept for the next exchange of the same length. From the second step on nothing is
/// allocated.
#[derive(Debug)]
pub struct GatherPool<B: Backend>(Vec<Array<B, f32>>);

impl<B: Backend> Default for GatherPool<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> GatherPool<B> {
    /// An empty pool.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    fn take(&mut self, backend: &B, len: usize) -> Result<Array<B, f32>, Error> {
        match self.0.iter().rposition(|array| array.len() == len) {
            Some(index) => Ok(self.0.swap_remove(index)),
            None => Array::uninit(backend, len, MemoryKind::Activations),
        }
    }

    /// Returns an array to the pool, for the next exchange of its length.
    pub fn give(&mut self, array: Array<B, f32>) {
        self.0.push(array);
    }
}

/// A rank's handle to all ranks; its clones are the same rank.
///
/// Data on devices goes through the host, or from device to device where the ranks are [linked](Group::linked). Values
/// on the host go through the communicator. Each rank computes sums itself, from zero on and in the order of ranks. All
/// ranks therefore have the same bits, in each run and with any transport.
#[derive(Clone, Debug)]
pub struct Group(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    at: Arc<At>,
    link: Option<Linked>,
}

/// The communicator, and how far this rank has come.
#[derive(Debug)]
struct At {
    communicator: Box<dyn Communicator>,
    overlaps: AtomicBool,
    /// Whether exchanges of data on devices are left out.
    is_still: AtomicBool,
    /// Bytes of data on devices that were sent to other ranks.
    given: AtomicU64,
    epoch: AtomicU32,
    /// The last exchange that was issued to devices.
    what: Mutex<String>,
    /// Buffers for rows that go through the host, kept for the next exchange. Memory that is new to the process costs
    /// as much as the network does.
    by_host: Mutex<[Vec<u64>; 2]>,
}

/// The first `count` values in `words`, whose content is arbitrary. `words` grows to the largest request.
fn values_in<T: Pod>(words: &mut Vec<u64>, count: usize) -> &mut [T] {
    let bytes = count * size_of::<T>();
    let most = bytes.div_ceil(size_of::<u64>()).max(words.len());
    words.resize(most, 0);
    let all: &mut [u8] = bytemuck::cast_slice_mut(words);
    bytemuck::cast_slice_mut(&mut all[..bytes])
}

/// The link of a backend with those of other ranks.
struct Linked {
    /// The backend's [`Link`](crate::backend::Storage::Link).
    link: Box<dyn Any + Send + Sync>,
    cut: Box<dyn Fn(&str) + Send + Sync>,
    library: String,
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.library)
    }
}

impl At {
    fn place<'a>(&self, what: &'a str) -> Place<'a> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        Place { epoch, what }
    }

    /// Why the devices' current exchange does not end, where that is known.
    fn failure(&self) -> Option<String> {
        let what = self.last();
        self.communicator.failure(self.place(&what))
    }

    /// Names the ranks that are absent from it.
    fn missing(&self) -> String {
        let what = self.last();
        self.communicator.missing(self.place(&what))
    }

    fn last(&self) -> String {
        let what = self.what.lock().unwrap_or_else(PoisonError::into_inner);
        what.clone()
    }
}

/// Checks that every rank has a library for its devices, and that it is the same one.
pub(super) fn same_library<'a>(
    all: impl Iterator<Item = &'a Result<String, String>>,
) -> Result<(), String> {
    let mut first = None;
    for (rank, said) in all.enumerate() {
        match (said, first) {
            (Err(reason), _) => return Err(format!("rank {rank}: {reason}")),
            (Ok(library), None) => first = Some(library),
            (Ok(library), Some(other)) if library != other => {
                return Err(format!(
                    "rank 0 has {other}, and rank {rank} {library}; give all the same"
                ));
            }
            (Ok(_), Some(_)) => {}
        }
    }
    Ok(())
}

impl Group {
    /// Meets the other ranks at `rendezvous` as `member`: over TCP, or over MPI where they meet by it. See
    /// [`Tcp::meet`].
    ///
    /// # Errors
    /// Those of [`Tcp::meet`].
    pub fn meet(rendezvous: &Rendezvous, member: &Member<'_>) -> Result<Self, Error> {
        let tcp = Tcp::meet(rendezvous, member)?;
        #[cfg(feature = "mpi")]
        if *rendezvous == Rendezvous::Mpi {
            return Ok(Self::new(super::mpi::OverMpi::new(tcp)?));
        }
        Ok(Self::new(tcp))
    }

    /// The name of the transport between devices that are not linked, for messages.
    pub fn mover(&self) -> &str {
        self.communicator().mover()
    }

    /// A rank that exchanges by `communicator`.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let at = At {
            communicator: Box::new(communicator),
            overlaps: AtomicBool::new(false),
            is_still: AtomicBool::new(false),
            given: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            what: Mutex::default(),
            by_host: Mutex::default(),
        };
        Self(Arc::new(Inner {
            at: Arc::new(at),
            link: None,
        }))
    }

    /// One of `ranks` on a backend that only counts memory. It receives zeros, and no data on the backend is moved.
    pub(crate) fn counting(rank: usize, ranks: usize) -> Self {
        Self::new(Counting { rank, ranks })
    }

    /// Whether the devices of all ranks can be linked: the library, such as `NCCL 2.28.9`, or why they cannot. All
    /// ranks call this at once and get the same result. `wanted` is whether this rank agrees to it.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn interconnect<B: Backend>(
        &self,
        backend: &B,
        wanted: bool,
    ) -> Result<Result<String, String>, Error> {
        const LONGEST: usize = 1024;
        let own = match wanted {
            true => backend.interconnect().map_err(|error| error.to_string()),
            false => Err("it is told to exchange through the host".into()),
        };
        // Whether it has a library, the device, and text of a fixed length.
        let mut said = vec![u8::from(own.is_ok())];
        said.extend(own.as_ref().map_or([0; 16], |own| own.device));
        let words = own.map_or_else(|reason| reason, |own| own.library);
        let mut end = words.len().min(LONGEST);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        said.extend(&words.as_bytes()[..end]);
        said.resize(17 + LONGEST, 0);
        let all = self.gather("interconnect", &said)?;
        let words: Vec<_> = (all.iter())
            .map(|said| {
                let words = String::from_utf8_lossy(&said[17..]);
                let words = words.trim_end_matches('\0').to_owned();
                if said[0] == 1 { Ok(words) } else { Err(words) }
            })
            .collect();
        if let Err(reason) = same_library(words.iter()) {
            return Ok(Err(reason));
        }
        let device = |rank: usize| &all[rank][1..17];
        for rank in 0..all.len() {
            if let Some(other) = (0..rank).find(|&other| device(other) == device(rank)) {
                return Ok(Err(format!(
                    "ranks {other} and {rank} are on one GPU; give each its own"
                )));
            }
        }
        Ok(words.into_iter().next().unwrap_or(Err(String::new())))
    }

    /// The same ranks, with their devices linked. Rows, gradients and counts then go from device to device, in the
    /// order of the operators, so that a step is [recorded](crate::train::TrainConfig::record) with its exchanges.
    /// Every rank calls this at once, with a backend handle of its own and before the group has another clone. A rank
    /// that does not answer within the communicator's deadline fails all ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of [`Storage::link`](crate::backend::Storage::link).
    pub fn linked<B: Backend>(self, backend: &B, library: &str) -> Result<Self, Error> {
        let (rank, ranks) = (self.rank(), self.ranks());
        let id = match rank {
            0 => backend.link_id(),
            _ => Ok(Vec::new()),
        };
        if let Err(error) = &id {
            self.abort(&error.to_string());
        }
        // Only the rank that makes an id knows its length.
        let id = id?;
        let lengths = self.gather("length of the link's id", &[id.len() as u64])?;
        let mut counts = vec![0; ranks];
        counts[0] = lengths[0][0] as usize;
        let id = self.gather_of("link's id", &id, &counts)?.concat();
        let at = Arc::clone(&self.0.at);
        let watch = Watch::new(move |waited| {
            let late = waited > at.communicator.deadline();
            at.failure().or_else(|| late.then(|| at.missing()))
        });
        let place = LinkPlace {
            id: &id,
            rank,
            ranks,
        };
        let link = backend.link(place, watch)?;
        let (of_cut, handle) = (link.clone(), backend.clone());
        let linked = Linked {
            link: Box::new(link),
            cut: Box::new(move |reason| handle.cut(&of_cut, reason)),
            library: library.to_owned(),
        };
        Ok(Self(Arc::new(Inner {
            at: Arc::clone(&self.0.at),
            link: Some(linked),
        })))
    }

    /// The library that links the devices, if any.
    pub fn library(&self) -> Option<&str> {
        self.0.link.as_ref().map(|linked| &linked.library[..])
    }

    /// The same ranks; with `overlaps` their devices compute while rows are transferred. By default they wait for rows,
    /// which was faster in every measurement. Overlap requires devices that are [linked](Group::linked) and a step that
    /// is recorded. Results have the same bits either way.
    #[must_use]
    pub fn overlapping(self, overlaps: bool) -> Self {
        self.0.at.overlaps.store(overlaps, Ordering::Relaxed);
        self
    }

    /// Whether devices compute while rows are transferred, where they can.
    pub fn overlaps(&self) -> bool {
        self.0.at.overlaps.load(Ordering::Relaxed)
    }

    /// Leaves out exchanges of data on devices where `still` is true, to time a step without them; its results are
    /// meaningless. This applies to all clones, and to steps that are recorded from now on. Every rank calls it at
    /// once.
    pub fn keep_still(&self, still: bool) {
        self.0.at.is_still.store(still, Ordering::Relaxed);
    }

    /// Bytes of data on its device that this rank has sent to others so far, or would have sent. A recorded step counts
    /// when it is recorded, and not when it is replayed.
    pub fn given_bytes(&self) -> u64 {
        self.0.at.given.load(Ordering::Relaxed)
    }

    /// Counts values that go to others; returns whether they are sent.
    fn gives<T: Pod>(&self, values: usize) -> bool {
        let bytes = values * size_of::<T>();
        self.0.at.given.fetch_add(bytes as u64, Ordering::Relaxed);
        !self.0.at.is_still.load(Ordering::Relaxed)
    }

    /// The link of a backend of this kind.
    fn link<B: Backend>(&self) -> Option<&B::Link> {
        self.0.link.as_ref()?.link.downcast_ref()
    }

    /// Sets the exchange of the devices that errors name from now on.
    pub(crate) fn begin(&self, what: &str) {
        let mut last = (self.0.at.what.lock()).unwrap_or_else(PoisonError::into_inner);
        last.clear();
        last.push_str(what);
    }

    #[cfg(test)]
    pub(super) fn missing(&self) -> String {
        self.0.at.missing()
    }

    /// The rank's number, from 0 on.
    pub fn rank(&self) -> usize {
        self.communicator().rank()
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.communicator().ranks()
    }

    fn communicator(&self) -> &dyn Communicator {
        &*self.0.at.communicator
    }

    /// Makes all calls of all ranks fail. A rank that cannot continue calls it, so that no other waits for it.
    pub fn abort(&self, reason: &str) {
        self.communicator().abort(reason);
        if let Some(linked) = &self.0.link {
            // The reason that all ranks report, which may be an earlier one.
            let told = self.0.at.failure();
            (linked.cut)(told.as_deref().unwrap_or(reason));
        }
    }

    /// Sets the epoch that errors name from now on.
    pub(crate) fn set_epoch(&self, epoch: u32) {
        self.0.at.epoch.store(epoch, Ordering::Relaxed);
    }

    fn place<'a>(&self, what: &'a str) -> Place<'a> {
        self.0.at.place(what)
    }

    /// Whether `own` is true on any rank.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn any(&self, what: &str, own: bool) -> Result<bool, Error> {
        let all = self.gather(what, &[u8::from(own)])?;
        Ok(all.iter().any(|said| said[0] != 0))
    }

    /// Checks that `own` is the same on all ranks. Otherwise every rank reports the same differences.
    ///
    /// # Errors
    /// [`Error::Communication`] where it is not the same, and those of [`Communicator::exchange`].
    pub fn expect_same(&self, what: &str, own: u64) -> Result<(), Error> {
        let all = self.gather(what, &[own])?;
        let all: Vec<_> = (all.iter())
            .map(|said| [Compared::new(what, Digest::of(said))])
            .collect();
        let all: Vec<&[Compared]> = all.iter().map(|said| &said[..]).collect();
        match differences(&all) {
            None => Ok(()),
            Some(reason) => Err(Error::Communication(reason)),
        }
    }

    /// Gathers `own` of every rank; all have the same length.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    pub fn gather<T: Pod>(&self, what: &str, own: &[T]) -> Result<Vec<Vec<T>>, Error> {
        let place = self.place(what);
        let all = (self.communicator()).all_gather(place, bytemuck::cast_slice(own))?;
        Ok(all
            .iter()
            .map(|bytes| bytemuck::pod_collect_to_vec(bytes))
            .collect())
    }

    /// Gathers `own` of every rank; rank `r` has `counts[r]` values.
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
        (self.communicator()).exchange(self.place(what), &sends, &mut receives)?;
        all[rank].copy_from_slice(own);
        Ok(all)
    }

    /// Checks that each rank sends another as many rows as that one receives. Exchanges between devices check nothing
    /// themselves.
    ///
    /// # Errors
    /// [`Error::Communication`] where the numbers differ, and those of [`Communicator::exchange`].
    pub(crate) fn expect_fit(
        &self,
        what: &str,
        sends: &[Range<usize>],
        receives: &[Range<usize>],
    ) -> Result<(), Error> {
        let own: Vec<u64> = (sends.iter().chain(receives))
            .map(|part| part.len() as u64)
            .collect();
        let (rank, ranks) = (self.rank(), self.ranks());
        let all = self.gather(what, &own)?;
        match (0..ranks).find(|&other| all[other][rank] != all[rank][ranks + other]) {
            None => Ok(()),
            Some(other) => Err(Error::Communication(format!(
                "rank {other} gives {} rows where rank {rank} wants {}; all ranks must be given the same graph, partition and gather",
                all[other][rank],
                all[rank][ranks + other]
            ))),
        }
    }

    /// Sends `sends[r]` to each other rank `r`, and receives `counts[r]` values from it.
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
        (self.communicator()).exchange(self.place(what), &sends, &mut receives)?;
        Ok(all)
    }

    /// Sends rows `sends[r]` of `from` to each other rank `r`, and receives rows `receives[r]` of `to` from it.
    /// Received rows lie in the order of ranks, without gaps. The same row may be sent to several ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn exchange_rows<B: Backend, T: Pod>(
        &self,
        backend: &B,
        what: &str,
        (from, sends): (Rows<'_, B, T>, &[Range<usize>]),
        (to, receives): (Rows<'_, B, T>, &[Range<usize>]),
    ) -> Result<(), Error> {
        self.begin_rows(backend, what, (from, sends), (to, receives))?;
        self.end_rows(backend, (to, receives))
    }

    /// Begins [`Group::exchange_rows`]. Where devices are linked and [overlap](Group::overlapping), it runs in parallel
    /// with later operators until [`Group::end_rows`]. Before that nothing else may be exchanged, rows that are sent
    /// must not change, and rows that are received must not be read.
    ///
    /// # Errors
    /// Those of [`Group::exchange_rows`].
    pub fn begin_rows<B: Backend, T: Pod>(
        &self,
        backend: &B,
        what: &str,
        (from, sends): (Rows<'_, B, T>, &[Range<usize>]),
        (to, receives): (Rows<'_, B, T>, &[Range<usize>]),
    ) -> Result<(), Error> {
        let rows: usize = sends.iter().map(Range::len).sum();
        if backend.only_counts() || !self.gives::<T>(rows * from.stride()) {
            return Ok(());
        }
        if let Some(link) = self.link::<B>() {
            self.begin(what);
            let (sends, receives) = (transfers(&from, sends), transfers(&to, receives));
            return match self.overlaps() {
                true => backend.transfer_begin(link, &sends, &receives),
                false => backend.transfer(link, &sends, &receives),
            };
        }
        let (row, whole) = (from.stride(), |parts: &[Range<usize>]| {
            let some = || parts.iter().filter(|part| !part.is_empty());
            let start = some().map(|part| part.start).min().unwrap_or(0);
            start..some().map(|part| part.end).max().unwrap_or(start)
        });
        let (sent, received) = (whole(sends), whole(receives));
        let mut by_host = (self.0.at.by_host.lock()).unwrap_or_else(PoisonError::into_inner);
        let [elements, arrived] = &mut *by_host;
        let elements: &mut [T] = values_in(elements, sent.len() * row);
        let arrived: &mut [T] = values_in(arrived, received.len() * row);
        from.read(backend, sent.start, elements)?;
        let given: Vec<&[u8]> = sends
            .iter()
            .map(|part| match part.is_empty() {
                true => &elements[..0],
                false => &elements[(part.start - sent.start) * row..(part.end - sent.start) * row],
            })
            .map(bytemuck::cast_slice)
            .collect();
        let mut rest = &mut *arrived;
        let mut places = Vec::with_capacity(receives.len());
        for part in receives {
            let (own, others) = rest.split_at_mut(part.len() * row);
            places.push(bytemuck::cast_slice_mut(own));
            rest = others;
        }
        (self.communicator()).exchange(self.place(what), &given, &mut places)?;
        match received.is_empty() {
            true => Ok(()),
            false => to.write(backend, received.start, arrived),
        }
    }

    /// Makes later operators wait for what was [begun](Group::begin_rows), to the same rows.
    ///
    /// # Errors
    /// Those of [`Group::exchange_rows`].
    pub fn end_rows<B: Backend, T: Pod>(
        &self,
        backend: &B,
        (to, receives): (Rows<'_, B, T>, &[Range<usize>]),
    ) -> Result<(), Error> {
        let underway = self.overlaps() && !self.0.at.is_still.load(Ordering::Relaxed);
        match self.link::<B>().filter(|_| underway) {
            Some(link) => backend.transfer_end(link, &transfers(&to, receives)),
            None => Ok(()),
        }
    }

    /// Gathers each of `own` from all ranks in one exchange, in the order of ranks, into arrays of `pool`.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn gather_floats<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut GatherPool<B>,
        own: &[Floats<'_, B>],
    ) -> Result<Vec<Array<B, f32>>, Error> {
        let ranks = self.ranks();
        let rooms = own.iter().map(|own| pool.take(backend, ranks * own.len()));
        let mut all = rooms.collect::<Result<Vec<_>, _>>()?;
        self.gather_floats_in(backend, what, own, &mut all)?;
        Ok(all)
    }

    /// [`Group::gather_floats`] into arrays of the caller. Each is [`Group::ranks`] times as long as its element of
    /// `own`.
    ///
    /// # Errors
    /// Those of [`Group::gather_floats`].
    pub(crate) fn gather_floats_in<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        own: &[Floats<'_, B>],
        all: &mut [Array<B, f32>],
    ) -> Result<(), Error> {
        let ranks = self.ranks();
        for (own, all) in own.iter().zip(&*all) {
            Error::expect("Group", "gathered floats", ranks * own.len(), all.len())?;
        }
        let values: usize = own.iter().map(Floats::len).sum();
        if backend.only_counts() || !self.gives::<f32>((ranks - 1) * values) {
            return Ok(());
        }
        if let Some(link) = self.link::<B>() {
            self.begin(what);
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            for (own, all) in own.iter().zip(&*all) {
                for rank in 0..ranks {
                    sends.push(own.transfer(rank));
                    let part = rank * own.len()..(rank + 1) * own.len();
                    receives.push(Transfer::of_array(rank, all, part));
                }
            }
            return backend.transfer(link, &sends, &receives);
        }
        let mut values = Vec::new();
        for own in own {
            values.extend(own.to_vec(backend)?);
        }
        let parts = self.gather(what, &values)?;
        let mut first = 0;
        for (own, all) in own.iter().zip(all) {
            let part = first..first + own.len();
            let mut values = Vec::with_capacity(all.len());
            for rank in &parts {
                values.extend_from_slice(&rank[part.clone()]);
            }
            all.write(backend, &values)?;
            first = part.end;
        }
        Ok(())
    }

    /// Replaces each float by its sum over all ranks, in one exchange. Temporary arrays are from `pool`.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn sum<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut GatherPool<B>,
        terms: Vec<Floats<'_, B>>,
    ) -> Result<(), Error> {
        self.add_up(backend, (what, 1.0), pool, terms)
    }

    /// Replaces each float by its mean over all ranks, like [`Group::sum`].
    ///
    /// # Errors
    /// Those of [`Group::sum`].
    pub fn mean<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut GatherPool<B>,
        terms: Vec<Floats<'_, B>>,
    ) -> Result<(), Error> {
        let share = 1.0 / self.ranks() as f32;
        self.add_up(backend, (what, share), pool, terms)
    }

    fn add_up<B: Backend>(
        &self,
        backend: &B,
        (what, factor): (&str, f32),
        pool: &mut GatherPool<B>,
        terms: Vec<Floats<'_, B>>,
    ) -> Result<(), Error> {
        let all = self.gather_floats(backend, what, pool, &terms)?;
        for (sums, all) in terms.into_iter().zip(all) {
            crate::ops::sum_parts(backend, factor, (&all, self.ranks()), sums)?;
            pool.give(all);
        }
        Ok(())
    }

    /// Replaces each float by its maximum over all ranks, like [`Group::sum`]. None may be negative.
    ///
    /// # Errors
    /// Those of [`Group::sum`].
    pub fn largest<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        pool: &mut GatherPool<B>,
        terms: Vec<Floats<'_, B>>,
    ) -> Result<(), Error> {
        let all = self.gather_floats(backend, what, pool, &terms)?;
        for (largest, all) in terms.into_iter().zip(all) {
            crate::ops::largest_of_parts(backend, (&all, self.ranks()), largest)?;
            pool.give(all);
        }
        Ok(())
    }

    /// [`Group::largest`] through the host, without memory on the device.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub(crate) fn largest_by_host<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        largest: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        let mut values = largest.to_f32(backend)?;
        for others in self.gather(what, &values)? {
            let pairs = values.iter_mut().zip(others);
            pairs.for_each(|(value, other)| *value = value.max(other));
        }
        largest.write_f32(backend, &values)
    }

    /// The sums of `own` over all ranks, element by element.
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

    /// Replaces each count by its sum over all ranks.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`] and of the device.
    pub fn sum_counts<B: Backend>(
        &self,
        backend: &B,
        what: &str,
        counts: &mut Array<B, u32>,
    ) -> Result<(), Error> {
        let others = self.ranks() - 1;
        if backend.only_counts() || !self.gives::<u32>(others * counts.len()) {
            return Ok(());
        }
        if let Some(link) = self.link::<B>() {
            self.begin(what);
            return backend.sum_words(link, counts);
        }
        let own = counts.to_vec(backend)?;
        let mut sums = vec![0_u32; own.len()];
        for values in self.gather(what, &own)? {
            // They count vertices of one graph, whose numbers fit 32 bits.
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        }
        counts.write(backend, &sums)
    }
}

/// Transfers of a range of `rows` to or from each rank.
fn transfers<'a, B: Backend, T: Pod>(
    rows: &Rows<'a, B, T>,
    parts: &[Range<usize>],
) -> Vec<Transfer<'a, B, T>> {
    let parts = parts.iter().enumerate();
    let parts = parts.filter(|(_, part)| !part.is_empty());
    parts
        .map(|(rank, part)| rows.transfer(rank, part.clone()))
        .collect()
}
