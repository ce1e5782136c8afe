//! The exchange of bytes between ranks.

use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// One of several ranks that compute together: its exchange of bytes with the others.
///
/// All ranks make the same calls in the same order. A call returns once all its data has arrived, so no rank gets far
/// ahead of another. Every call ends. It ends with an error where a rank has failed, makes another call, or does not
/// answer before the deadline. From then on each call of each rank fails.
pub trait Communicator: fmt::Debug + Send + Sync {
    /// The rank's number, from 0 on.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn ranks(&self) -> usize;

    /// Sends `sends[r]` to each other rank `r`, and fills `receives[r]` with what that rank sends. Both are empty at
    /// the own index.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank has failed, does not answer or sends another number of bytes.
    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error>;

    /// Gathers `own` of every rank, in the order of ranks; all have the same length.
    ///
    /// # Errors
    /// Those of [`Communicator::exchange`].
    fn all_gather(&self, place: Place<'_>, own: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut all: Vec<Vec<u8>> = (0..self.ranks()).map(|_| vec![0; own.len()]).collect();
        let none: &[u8] = &[];
        let mut sends = vec![own; self.ranks()];
        sends[self.rank()] = none;
        let mut receives: Vec<&mut [u8]> = all.iter_mut().map(|it| &mut it[..]).collect();
        receives[self.rank()] = &mut [];
        self.exchange(place, &sends, &mut receives)?;
        all[self.rank()].copy_from_slice(own);
        Ok(all)
    }

    /// The name of the transport, for messages.
    fn mover(&self) -> &str {
        "the host"
    }

    /// How long a rank may stay away from an exchange at which another waits.
    fn deadline(&self) -> Duration;

    /// The reason for which calls fail, where it is known without an exchange. A rank that waits for others by other
    /// means asks for it, at `place`.
    fn failure(&self, place: Place<'_>) -> Option<String>;

    /// Names the absent ranks, after ranks have waited for one another by other means for the deadline at `place`. All
    /// ranks that wait call this at about the same time; a rank that does not call is absent. It takes a few seconds at
    /// most, and all later calls fail.
    fn missing(&self, place: Place<'_>) -> String;

    /// Makes all calls of all ranks fail for `reason`, which each rank reports.
    fn abort(&self, reason: &str);
}

/// A rank whose memory is counted without the other ranks: all that it receives is zero.
#[derive(Debug)]
pub(super) struct Counting {
    pub(super) rank: usize,
    pub(super) ranks: usize,
}

impl Communicator for Counting {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn exchange(
        &self,
        _place: Place<'_>,
        _sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        receives.iter_mut().for_each(|given| given.fill(0));
        Ok(())
    }

    fn deadline(&self) -> Duration {
        Duration::MAX
    }

    fn failure(&self, _place: Place<'_>) -> Option<String> {
        None
    }

    fn missing(&self, place: Place<'_>) -> String {
        nobody_missing(place, self.deadline())
    }

    fn abort(&self, _reason: &str) {}
}

/// How long a rank may take to answer, once another has waited for the deadline.
pub(super) const ROLL_CALL: Duration = Duration::from_secs(5);

/// The message where no rank is absent.
pub(super) fn nobody_missing(place: Place<'_>, deadline: Duration) -> String {
    format!(
        "all ranks answer, but what they do did not end for {} s {place}; where a step takes longer, give --rank-timeout more, and else \
         take --exchange host",
        deadline.as_secs_f32()
    )
}

/// Where in a run an exchange belongs, for its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The epoch, from 1 on; 0 before the first.
    pub epoch: u32,
    /// What is exchanged, such as `layers.1 forward`.
    pub what: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            0 => write!(f, "before the first epoch, {} exchange", self.what),
            epoch => write!(f, "in epoch {epoch}, {} exchange", self.what),
        }
    }
}
