//! NCCL between GPUs of several processes, one a rank.
//!
//! Transfers are queued in the driver's stream, or in the one that is being captured. The communicator blocks, as that
//! is what NCCL records: so a thread watches over it. A thread that enters NCCL or waits for the GPU says so
//! (`Watched::waits`); the thread asks the link's [`Watch`] and NCCL whether to go on, and if not, aborts, which ends
//! the kernels that wait for other ranks and with them all waits. From then on every wait is an error that says why.

mod library;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::context::Context;
use crate::link::WATCH_EVERY;
use crate::{DriverError, LinkPlace, Watch};
use library::{BYTES, Comm, IN_PROGRESS, SUCCESS, SUM, Stream, UniqueId, WORDS};

pub use library::{LIBRARY_VARIABLE, Nccl};

/// How long the ranks' own channel may take to say who failed, once NCCL has said that a rank did.
const WORDS_WITHIN: Duration = Duration::from_secs(2);

/// The link of a rank by NCCL.
#[derive(Clone, Debug)]
pub struct NcclLink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    watched: Arc<Watched>,
    /// NCCL takes calls on a communicator one after the other, and groups are of a thread.
    calls: Mutex<()>,
    thread: Option<JoinHandle<()>>,
    context: Arc<Context>,
}

/// A communicator, and who waits for it.
#[derive(Debug)]
pub(super) struct Watched {
    nccl: &'static Nccl,
    comm: Handle,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether [`State::ended`] is there: the one thing that is looked at where nothing is wrong.
    over: AtomicBool,
}

/// A communicator's handle.
#[derive(Clone, Copy, Debug)]
struct Handle(Comm);

// SAFETY: a communicator belongs to a process and a GPU, not to a thread.
unsafe impl Send for Handle {}
// SAFETY: NCCL lets other threads ask for its errors and abort it while one is inside; all else is done under
// `Inner::calls`.
unsafe impl Sync for Handle {}

#[derive(Debug, Default)]
struct State {
    /// Since when each thread that waits does.
    waits: Vec<Instant>,
    /// Why it was aborted, or is to be.
    ended: Option<String>,
    aborted: bool,
    /// Its owner goes.
    closing: bool,
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work`, which may wait for other ranks, under the eyes of the thread.
    pub(super) fn waits<T>(
        &self,
        work: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        /// Ends the wait also where `work` panics.
        struct Waiting<'a>(&'a Watched, Instant);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                let mut state = self.0.state();
                if let Some(at) = state.waits.iter().position(|since| *since == self.1) {
                    state.waits.swap_remove(at);
                }
            }
        }
        self.goes_on()?;
        let waiting = Waiting(self, Instant::now());
        self.state().waits.push(waiting.1);
        let done = work();
        drop(waiting);
        // Why it failed is the reason for the abort, if there was one.
        self.goes_on().and(done)
    }

    /// Why it does not go on, if so.
    fn goes_on(&self) -> Result<(), DriverError> {
        if !self.over.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.state().ended.clone().unwrap_or_default();
        Err(DriverError::Link(reason))
    }

    fn end(&self, reason: String) {
        self.state().ended.get_or_insert(reason);
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Looks after it until it is aborted or closed.
    fn watch(&self, watch: &Watch) {
        loop {
            let state = self.state();
            let waited = self
                .changed
                .wait_timeout_while(state, WATCH_EVERY, |state| {
                    !state.closing && state.ended.is_none()
                });
            let state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let (closing, ended) = (state.closing, state.ended.is_some());
            let since = state.waits.iter().min().copied();
            drop(state);
            if ended {
                break;
            }
            if closing {
                return;
            }
            if let Some(reason) = since.and_then(|since| watch.gives_up(since.elapsed())) {
                self.end(reason);
            } else if let Some(words) = self.failure() {
                // Who failed is what the ranks' own channel knows, in a moment.
                let start = Instant::now();
                let reason = loop {
                    match watch.gives_up(Duration::ZERO) {
                        Some(reason) => break reason,
                        None if start.elapsed() > WORDS_WITHIN => break format!("NCCL: {words}"),
                        None => std::thread::sleep(WATCH_EVERY),
                    }
                };
                self.end(reason);
            }
        }
        self.state().aborted = true;
        // SAFETY: the handle is NCCL's and was neither aborted nor destroyed before: that is done here, or where this
        // thread has ended. NCCL documents that a thread may abort what another waits for; later callers are refused by
        // `goes_on`.
        let status = unsafe { self.nccl.comm_abort(self.comm.0) };
        tracing::debug!(status, "aborted a communicator");
    }

    /// What NCCL says went wrong by itself.
    fn failure(&self) -> Option<String> {
        let mut failure = SUCCESS;
        // SAFETY: the handle lives, as of `watch`; writes one status.
        let status = unsafe { self.nccl.comm_get_async_error(self.comm.0, &mut failure) };
        let failure = if status == SUCCESS { failure } else { status };
        (failure != SUCCESS && failure != IN_PROGRESS).then(|| self.nccl.words(failure))
    }
}

impl NcclLink {
    /// Links a rank on the GPU of `context`.
    pub(super) fn new(
        context: &Arc<Context>,
        place: LinkPlace<'_>,
        watch: Watch,
    ) -> Result<Self, DriverError> {
        let nccl = Nccl::load()?;
        let wrong = |what: &str| DriverError::Link(format!("{what} is none of NCCL's"));
        let id = UniqueId(place.id.try_into().map_err(|_| wrong("the link's id"))?);
        let number = |of: usize| c_int::try_from(of).map_err(|_| wrong("a rank's number"));
        let (rank, ranks) = (number(place.rank)?, number(place.ranks)?);
        // Nothing ends this call where a rank stays away, so a thread of its own makes it, and is left where it waits.
        let (sender, receiver) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(context);
        std::thread::spawn(move || {
            let met = of_thread.enter().and_then(|_entered| {
                let mut comm = Handle(std::ptr::null_mut());
                // SAFETY: the context is current; writes one handle.
                let status = unsafe { nccl.comm_init_rank(&mut comm.0, ranks, id, rank) };
                nccl.check("ncclCommInitRank", status).map(|()| comm)
            });
            // There is no receiver any more where the rank has given up.
            let _ = sender.send(met);
        });
        let start = Instant::now();
        let comm = loop {
            match receiver.recv_timeout(WATCH_EVERY) {
                Ok(met) => break met?,
                Err(_) => {
                    if let Some(reason) = watch.gives_up(start.elapsed()) {
                        return Err(DriverError::Link(reason));
                    }
                }
            }
        };
        let watched = Arc::new(Watched {
            nccl,
            comm,
            state: Mutex::default(),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
        });
        context.add_link(&watched);
        let thread = std::thread::spawn({
            let (watched, context) = (Arc::clone(&watched), Arc::clone(context));
            move || {
                // What it aborts is of this context.
                let _entered = context.enter();
                watched.watch(&watch);
            }
        });
        Ok(Self(Arc::new(Inner {
            watched,
            calls: Mutex::default(),
            thread: Some(thread),
            context: Arc::clone(context),
        })))
    }

    /// Queues sends and receives, each a rank, an address and a number of bytes, in `stream`.
    ///
    /// # Safety
    /// The bytes lie in buffers of the link's context that are alive until the work is done, and `stream` is one of its
    /// streams.
    pub(super) unsafe fn transfer(
        &self,
        stream: Stream,
        sends: &[(usize, u64, usize)],
        receives: &[(usize, u64, usize)],
    ) -> Result<(), DriverError> {
        let (nccl, comm) = (self.0.watched.nccl, self.0.watched.comm.0);
        self.call("ncclGroupEnd", || {
            // SAFETY: what this function asks of its caller; ranks are those of the communicator, which is not aborted,
            // as `call` has seen. A group that was begun is ended whatever is in it.
            unsafe {
                let mut status = nccl.group_start();
                for &(rank, address, bytes) in sends.iter().filter(|(_, _, bytes)| *bytes > 0) {
                    let from = address as *const std::ffi::c_void;
                    let sent = nccl.send(from, bytes, BYTES, rank as c_int, comm, stream);
                    status = status.max(sent);
                }
                for &(rank, address, bytes) in receives.iter().filter(|(_, _, bytes)| *bytes > 0) {
                    let to = address as *mut std::ffi::c_void;
                    let received = nccl.receive(to, bytes, BYTES, rank as c_int, comm, stream);
                    status = status.max(received);
                }
                status.max(nccl.group_end())
            }
        })
    }

    /// Queues the sums of words, in place, in `stream`.
    ///
    /// # Safety
    /// As of [`NcclLink::transfer`], of `count` words from `address` on.
    pub(super) unsafe fn sum_words(
        &self,
        stream: Stream,
        address: u64,
        count: usize,
    ) -> Result<(), DriverError> {
        let (nccl, comm) = (self.0.watched.nccl, self.0.watched.comm.0);
        let words = address as *mut std::ffi::c_void;
        // SAFETY: what this function asks of its caller; NCCL sums up in place where both addresses are one.
        self.call("ncclAllReduce", || unsafe {
            nccl.all_reduce(words, words, count, WORDS, SUM, comm, stream)
        })
    }

    fn call(
        &self,
        name: &'static str,
        work: impl FnOnce() -> library::Status,
    ) -> Result<(), DriverError> {
        let Inner {
            watched,
            calls,
            context,
            ..
        } = &*self.0;
        let _entered = context.enter()?;
        let _alone = calls.lock().unwrap_or_else(PoisonError::into_inner);
        watched.waits(|| watched.nccl.check(name, work()))
    }

    /// Whether it is of `context`.
    pub(super) fn check_owner(&self, context: &Arc<Context>) -> Result<(), DriverError> {
        if Arc::ptr_eq(&self.0.context, context) {
            return Ok(());
        }
        Err(DriverError::Link(
            "the link belongs to another driver".into(),
        ))
    }

    /// Ends it for `reason`.
    pub(super) fn cut(&self, reason: &str) {
        self.0.watched.end(reason.to_owned());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watched.state().closing = true;
        self.watched.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let watched = &self.watched;
        if watched.state().aborted {
            return;
        }
        let entered = self.context.enter();
        // SAFETY: the handle is NCCL's, and neither aborted nor used elsewhere: this is its last owner, its thread has
        // ended, and a graph with its work holds the owner.
        let status = unsafe {
            if std::thread::panicking() || entered.is_err() {
                watched.nccl.comm_abort(watched.comm.0)
            } else {
                watched.nccl.comm_destroy(watched.comm.0)
            }
        };
        tracing::debug!(status, "closed a communicator");
    }
}
