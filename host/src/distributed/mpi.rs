//! Ranks that are MPI processes: how they meet, and how their rows are moved.

use super::{Communicator, Place, Tcp};
use crate::driver::mpi::Mpi;
use crate::error::Error;
use std::io;
use std::time::{Duration, Instant};

/// Messages of fewer bytes go over TCP at each exchange, and not by MPI.
const LONG: usize = 4096;

/// Bytes of the buffer for an address.
const ADDRESS: usize = 512;

/// A process that MPI started as a rank. MPI moves long messages. Over TCP ranks check that all are at the same
/// exchange, and report failures, because MPI would end the process that asks.
#[derive(Debug)]
pub(super) struct OverMpi {
    tcp: Tcp,
    mpi: &'static Mpi,
}

/// Broadcasts the address of the first rank, and returns it. That rank alone passes `own`; all ranks call this at once.
pub(super) fn announce((rank, ranks): (usize, usize), own: Option<String>) -> io::Result<String> {
    let mpi = Mpi::begin().map_err(io::Error::other)?;
    if (mpi.rank(), mpi.ranks()) != (rank, ranks) {
        return Err(io::Error::other(format!(
            "the launcher says rank {rank} of {ranks}, and {} rank {} of {}; start all by its mpirun, or by an srun that it was built for",
            mpi.version(),
            mpi.rank(),
            mpi.ranks()
        )));
    }
    let mut bytes = [0; ADDRESS];
    let own = own.unwrap_or_default();
    let room = bytes.get_mut(..own.len());
    let room = room.ok_or_else(|| io::Error::other("the host's name is too long"))?;
    room.copy_from_slice(own.as_bytes());
    mpi.broadcast(&mut bytes).map_err(io::Error::other)?;
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(ADDRESS);
    let address = std::str::from_utf8(&bytes[..len]);
    address.map(str::to_owned).map_err(io::Error::other)
}

impl OverMpi {
    /// The communicator of ranks that have met by MPI.
    ///
    /// # Errors
    /// [`Error::Communication`] where there is no MPI.
    pub(super) fn new(tcp: Tcp) -> Result<Self, Error> {
        let mpi = Mpi::begin().map_err(|error| Error::Communication(error.to_string()))?;
        Ok(Self { tcp, mpi })
    }
}

impl Communicator for OverMpi {
    fn rank(&self) -> usize {
        self.tcp.rank()
    }

    fn ranks(&self) -> usize {
        self.tcp.ranks()
    }

    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        // Of a long message only the length goes over TCP.
        let is_long = |bytes: &[u8]| bytes.len() >= LONG;
        let lengths = sends.iter().map(|bytes| (bytes.len() as u64).to_le_bytes());
        let lengths: Vec<_> = lengths.collect();
        let told = sends.iter().zip(&lengths);
        let told: Vec<&[u8]> = told
            .map(|(bytes, length)| if is_long(bytes) { &length[..] } else { bytes })
            .collect();
        let mut claims = vec![[0; 8]; receives.len()];
        let heard = receives.iter_mut().zip(&mut claims);
        let mut heard: Vec<&mut [u8]> = heard
            .map(|(room, claim)| {
                if is_long(room) {
                    &mut claim[..]
                } else {
                    &mut room[..]
                }
            })
            .collect();
        self.tcp.exchange(place, &told, &mut heard)?;
        for (from, (room, claim)) in receives.iter().zip(claims).enumerate() {
            let claim = u64::from_le_bytes(claim);
            if is_long(room) && claim != room.len() as u64 {
                return Err(self.tcp.fail_of_bytes(from, (claim, room.len()), place));
            }
        }
        let none: &[u8] = &[];
        let sends = sends
            .iter()
            .map(|bytes| if is_long(bytes) { *bytes } else { none });
        let sends: Vec<&[u8]> = sends.collect();
        let receives = receives.iter_mut();
        let mut receives: Vec<&mut [u8]> = receives
            .map(|room| {
                if is_long(room) {
                    &mut room[..]
                } else {
                    &mut [][..]
                }
            })
            .collect();
        let give_up = Instant::now() + self.deadline();
        let is_over = || Instant::now() > give_up || self.failure(place).is_some();
        match self.mpi.exchange(&sends, &mut receives, is_over) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason = self.failure(place).unwrap_or_else(|| self.missing(place));
                Err(Error::Communication(reason))
            }
            Err(error) => Err(self.tcp.fail(error.to_string())),
        }
    }

    fn deadline(&self) -> Duration {
        self.tcp.deadline()
    }

    fn failure(&self, place: Place<'_>) -> Option<String> {
        self.tcp.failure(place)
    }

    fn missing(&self, place: Place<'_>) -> String {
        self.tcp.missing(place)
    }

    fn abort(&self, reason: &str) {
        self.tcp.abort(reason);
    }

    fn mover(&self) -> &str {
        self.mpi.version()
    }
}

impl Drop for OverMpi {
    fn drop(&mut self) {
        let place = Place {
            epoch: 0,
            what: "last",
        };
        // The end of MPI waits for all ranks, which would not come after a failure.
        if self.tcp.failure(place).is_none() {
            self.mpi.end();
        }
    }
}
