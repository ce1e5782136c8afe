//! How ranks hear of one another.

use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// One of several ranks that compute together, as far as the others are concerned: what is moved between them.
///
/// All ranks make the same calls in the same order. A call returns when what it is to receive is there, so none is far ahead of
/// another. Every call ends: with an error where a rank has failed, does another thing, or does not answer before the deadline, and
/// from then on each call of each rank does.
pub trait Communicator: fmt::Debug + Send + Sync {
    /// Which one it is, from 0 on.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Gives `sends[r]` to each other rank `r`, and fills `receives[r]` with what that gives. Both are empty at the own place.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank has failed or does not answer, or gives another number of bytes.
    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error>;

    /// What every rank gives, in the order of ranks: as many bytes of each.
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

    /// What moves bytes, for people.
    fn mover(&self) -> &str {
        "the host"
    }

    /// How long a rank may stay away from an exchange at which another waits.
    fn deadline(&self) -> Duration;

    /// Why nothing goes on, where that is known without an exchange: told to who waits for ranks by other means, at `place`.
    fn failure(&self, place: Place<'_>) -> Option<String>;

    /// Who is away, when ranks waited for one another by other means for the deadline in vain, at `place`: all that wait ask at about
    /// the same time, and whoever does not is it. Takes a few seconds at most, and all calls fail from then on.
    fn missing(&self, place: Place<'_>) -> String;

    /// Makes all calls of all ranks fail for `reason`, which each tells.
    fn abort(&self, reason: &str);
}

/// A rank of which memory is counted alone: nobody is there, and all is zero that the others give.
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

/// How long a rank may take to say that it is there, once another has waited for the deadline.
pub(super) const ROLL_CALL: Duration = Duration::from_secs(5);

/// What is said where no rank is away.
pub(super) fn nobody_missing(place: Place<'_>, deadline: Duration) -> String {
    format!(
        "all ranks answer, but what they do did not end for {} s {place}; where a step takes longer, give --rank-timeout more, and else \
         take --exchange host",
        deadline.as_secs_f32()
    )
}

/// Where in a run an exchange belongs: what its error tells.
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
