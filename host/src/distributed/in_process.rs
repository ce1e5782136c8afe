//! Ranks that are threads of one process.

use super::communicator::{ROLL_CALL, nobody_missing};
use super::{Communicator, Fault, FaultKind, Place};
use crate::error::Error;
use halfgnn_platform::machine::host_name;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A rank that is a thread. Dropping it while its thread panics makes the calls of the other ranks fail.
#[derive(Debug)]
pub struct InProcess {
    rank: usize,
    room: Arc<Room>,
}

/// The state that the threads share.
#[derive(Debug)]
struct Room {
    ranks: usize,
    /// The host and the device of all ranks.
    device: String,
    /// How long a rank may stay away from an exchange at which another waits.
    deadline: Duration,
    faults: Vec<Fault>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Number of exchanges that each rank has begun.
    begun: Vec<u64>,
    /// Messages by exchange, sender and receiver: the sender's name of the exchange, and the bytes.
    messages: HashMap<(u64, usize, usize), (String, Vec<u8>)>,
    /// The reason for which all calls fail.
    failure: Option<String>,
}

/// Makes `ranks` ranks, each for a thread of its own, on `device`, as errors name it. A rank that is later at an
/// exchange than another by more than `deadline` makes all fail.
///
/// ```
/// use halfgnn::distributed::{Communicator, Place, in_process};
/// use std::time::Duration;
///
/// let place = Place { epoch: 0, what: "greetings" };
/// let received: Vec<_> = std::thread::scope(|scope| {
///     let ranks = in_process(3, "CPU", Duration::from_secs(60), &[]);
///     let greet = |rank: &dyn Communicator| rank.all_gather(place, &[rank.rank() as u8]);
///     let threads: Vec<_> = (ranks.into_iter()).map(|rank| scope.spawn(move || greet(&rank))).collect();
///     threads.into_iter().map(|thread| thread.join().expect("a rank")).collect::<Result<_, _>>()
/// })?;
/// assert_eq!(received, [[[0], [1], [2]], [[0], [1], [2]], [[0], [1], [2]]]);
/// # Ok::<(), halfgnn::Error>(())
/// ```
pub fn in_process(
    ranks: usize,
    device: &str,
    deadline: Duration,
    faults: &[Fault],
) -> Vec<InProcess> {
    let room = Arc::new(Room {
        ranks,
        device: match host_name() {
            Some(host) => format!("host {host}, {device}"),
            None => device.to_owned(),
        },
        deadline,
        faults: faults.to_vec(),
        state: Mutex::new(State {
            begun: vec![0; ranks],
            messages: HashMap::new(),
            failure: None,
        }),
        changed: Condvar::new(),
    });
    let rank = |rank| InProcess {
        rank,
        room: Arc::clone(&room),
    };
    (0..ranks).map(rank).collect()
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all calls fail; the first reason is kept.
    fn fail(&self, reason: String) -> Error {
        let mut state = self.state();
        let reason = state.failure.get_or_insert(reason).clone();
        drop(state);
        self.changed.notify_all();
        Error::Communication(reason)
    }
}

impl InProcess {
    fn name(&self, rank: usize) -> String {
        format!("rank {rank} of {} ({})", self.room.ranks, self.room.device)
    }

    fn failure(state: &State) -> Result<(), Error> {
        match &state.failure {
            Some(reason) => Err(Error::Communication(reason.clone())),
            None => Ok(()),
        }
    }

    /// Does not answer until another rank gives up.
    fn hang(&self) -> Error {
        let mut state = self.room.state();
        loop {
            if let Err(error) = Self::failure(&state) {
                return error;
            }
            state = self
                .room
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Communicator for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.room.ranks
    }

    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.exchange_within(self.room.deadline, place.what, place, (sends, receives))
    }

    fn deadline(&self) -> Duration {
        self.room.deadline
    }

    fn failure(&self, _place: Place<'_>) -> Option<String> {
        self.room.state().failure.clone()
    }

    fn missing(&self, place: Place<'_>) -> String {
        let (ranks, within) = (self.room.ranks, ROLL_CALL.min(self.room.deadline));
        let mut receives: Vec<&mut [u8]> = (0..ranks).map(|_| &mut [][..]).collect();
        let nothing = (&vec![&[][..]; ranks][..], &mut receives[..]);
        let reason = match self.exchange_within(within, "roll call", place, nothing) {
            Ok(()) => nobody_missing(place, self.room.deadline),
            Err(error) => return error.to_string(),
        };
        self.room.fail(reason).to_string()
    }

    fn abort(&self, reason: &str) {
        self.room
            .fail(format!("{}: {reason}", self.name(self.rank)));
    }
}

impl InProcess {
    /// An exchange called `what`, to which other ranks may come later by `within`.
    fn exchange_within(
        &self,
        within: Duration,
        what: &str,
        place: Place<'_>,
        (sends, receives): (&[&[u8]], &mut [&mut [u8]]),
    ) -> Result<(), Error> {
        let room = &*self.room;
        let mut state = room.state();
        Self::failure(&state)?;
        let number = state.begun[self.rank];
        let fault = room
            .faults
            .iter()
            .find(|fault| fault.rank == self.rank && fault.exchange == number);
        let mut shorter = 0;
        match fault.map(|fault| fault.kind) {
            Some(FaultKind::Die) => {
                drop(state);
                return Err(room.fail(format!("{}: it died {place}", self.name(self.rank))));
            }
            Some(FaultKind::Hang) => {
                drop(state);
                return Err(self.hang());
            }
            Some(FaultKind::Delay(by)) => {
                drop(state);
                std::thread::sleep(by);
                state = room.state();
            }
            Some(FaultKind::WrongCount) => shorter = 1,
            None => {}
        }
        state.begun[self.rank] = number + 1;
        for (to, bytes) in sends.iter().enumerate().filter(|(to, _)| *to != self.rank) {
            let bytes = bytes[..bytes.len().saturating_sub(shorter)].to_vec();
            let message = (what.to_owned(), bytes);
            state.messages.insert((number, self.rank, to), message);
        }
        room.changed.notify_all();
        let give_up = Instant::now() + within;
        for (from, receive) in receives.iter_mut().enumerate() {
            if from == self.rank {
                continue;
            }
            let (theirs, bytes) = loop {
                // What was sent before a failure still counts.
                if let Some(message) = state.messages.remove(&(number, from, self.rank)) {
                    break message;
                }
                Self::failure(&state)?;
                let left = give_up.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let away: Vec<String> = (0..room.ranks)
                        .filter(|&rank| state.begun[rank] <= number)
                        .map(|rank| self.name(rank))
                        .collect();
                    drop(state);
                    return Err(room.fail(format!(
                        "{}: no answer for {} s {place}",
                        away.join(", "),
                        room.deadline.as_secs_f32()
                    )));
                }
                state = room
                    .changed
                    .wait_timeout(state, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            };
            if theirs != what {
                drop(state);
                return Err(room.fail(format!(
                    "{}: it is at its {theirs} exchange, and rank {} {place}; all ranks must be given the same graph, model and options",
                    self.name(from),
                    self.rank
                )));
            }
            if bytes.len() != receive.len() {
                drop(state);
                return Err(room.fail(format!(
                    "{}: it gave {} bytes where rank {} wants {}, {place}; all ranks must be given the same graph and partition",
                    self.name(from),
                    bytes.len(),
                    self.rank,
                    receive.len()
                )));
            }
            receive.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort("its thread panicked");
        }
    }
}
