//! Ranks that are processes, on one host or several, over TCP.

use super::communicator::{ROLL_CALL, nobody_missing};
use super::meeting::{Member, Met, NotMet, meet};
use super::{Communicator, Place, Rendezvous};
use crate::error::Error;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A rank that is a process. Dropping it closes its connections, so that exchanges at which others still wait fail.
#[derive(Debug)]
pub struct Tcp {
    rank: usize,
    deadline: Duration,
    /// The name of each rank in errors.
    names: Vec<String>,
    /// `None` at the own index.
    peers: Vec<Option<TcpStream>>,
    inbox: Arc<Inbox>,
}

#[derive(Debug)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of exchanges that this rank has begun.
    begun: u64,
    /// Messages by exchange and sender: the sender's name of the exchange, and the bytes.
    messages: HashMap<(u64, usize), (String, Vec<u8>)>,
    /// The buffer of each rank's last long message, for the next one. Memory that is new to the process costs as much
    /// as the network does.
    spare: HashMap<usize, Vec<u8>>,
    /// The reason for which all calls fail.
    failure: Option<String>,
    /// Ranks that have closed their connections.
    ended: Vec<usize>,
}

/// The most bytes of an exchange's name or of a reason. This program writes none that is longer.
const MOST_WORDS: u64 = 64 << 10;

/// The most bytes of a message: more than any host has.
const MOST_BYTES: u64 = 1 << 44;

/// Messages of at least this many bytes are long. An allocator requests memory from the system for each, and returns it
/// afterwards.
const LONG: usize = 128 << 10;

/// Kinds of frames.
const MESSAGE: u8 = 0;
const ABORT: u8 = 1;

impl Tcp {
    /// Meets the other ranks, which all come to the same place. From then on the member's timeout is how long a rank
    /// may stay away from an exchange at which another waits.
    ///
    /// # Errors
    /// [`Error::Communication`] where they do not meet in time, with the ranks that are missing, or where their inputs
    /// differ. The same where the address requires a [`Key`](super::Key) and there is none.
    pub fn meet(rendezvous: &Rendezvous, member: &Member<'_>) -> Result<Self, Error> {
        if member.ranks > 1 {
            rendezvous.check_key(member.key.as_ref())?;
        }
        let Met { peers, names } = meet(rendezvous, member).map_err(NotMet::reported)?;
        let lost = |error: io::Error| {
            Error::Communication(format!(
                "rank {} of {}: a connection ended as all had come: {error}",
                member.rank, member.ranks
            ))
        };
        let inbox = Arc::new(Inbox {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        for (from, peer) in peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            peer.set_nonblocking(false).map_err(lost)?;
            peer.set_read_timeout(None).map_err(lost)?;
            peer.set_write_timeout(Some(member.timeout)).map_err(lost)?;
            peer.set_nodelay(true).map_err(lost)?;
            let (stream, inbox) = (peer.try_clone().map_err(lost)?, Arc::clone(&inbox));
            std::thread::spawn(move || listen(stream, from, &inbox));
        }
        Ok(Self {
            rank: member.rank,
            deadline: member.timeout,
            names,
            peers,
            inbox,
        })
    }

    pub(super) fn fail(&self, reason: String) -> Error {
        let mut state = self.inbox.state();
        let first = state.failure.is_none();
        let reason = state.failure.get_or_insert(reason).clone();
        drop(state);
        self.inbox.changed.notify_all();
        if first {
            self.tell_all(&reason);
        }
        Error::Communication(reason)
    }

    /// The error that rank `from` sent another number of bytes than expected.
    pub(super) fn fail_of_bytes(
        &self,
        from: usize,
        (gave, wanted): (u64, usize),
        place: Place<'_>,
    ) -> Error {
        self.fail(format!(
            "{}: it gave {gave} bytes where rank {} wants {wanted}, {place}; all ranks must be given the same graph and partition",
            self.names[from], self.rank
        ))
    }

    fn tell_all(&self, reason: &str) {
        for mut peer in self.peers.iter().flatten() {
            // A rank that does not receive it ends by itself.
            let _ = write_frame(&mut peer, ABORT, 0, reason, &[]);
        }
    }
}

impl NotMet {
    /// The error, which is sent to ranks that have come already.
    fn reported(self) -> Error {
        for mut peer in self.peers.iter().flatten() {
            let _ = peer.set_nonblocking(false);
            let _ = write_frame(&mut peer, ABORT, 0, &self.reason, &[]);
        }
        Error::Communication(self.reason)
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for Tcp {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.peers.len()
    }

    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        self.exchange_within(self.deadline, place.what, place, (sends, receives))
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn failure(&self, place: Place<'_>) -> Option<String> {
        let state = self.inbox.state();
        if state.failure.is_some() {
            return state.failure.clone();
        }
        let ended = *state.ended.first()?;
        drop(state);
        let reason = format!("{}: it ended {place}", self.names[ended]);
        Some(self.fail(reason).to_string())
    }

    fn missing(&self, place: Place<'_>) -> String {
        let (ranks, within) = (self.peers.len(), ROLL_CALL.min(self.deadline));
        let mut receives: Vec<&mut [u8]> = (0..ranks).map(|_| &mut [][..]).collect();
        let nothing = (&vec![&[][..]; ranks][..], &mut receives[..]);
        match self.exchange_within(within, "roll call", place, nothing) {
            Ok(()) => self.fail(nobody_missing(place, self.deadline)).to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn abort(&self, reason: &str) {
        self.fail(format!("{}: {reason}", self.names[self.rank]));
    }
}

impl Tcp {
    /// An exchange called `what`, to which other ranks may come later by `within`.
    fn exchange_within(
        &self,
        within: Duration,
        what: &str,
        place: Place<'_>,
        (sends, receives): (&[&[u8]], &mut [&mut [u8]]),
    ) -> Result<(), Error> {
        let mut state = self.inbox.state();
        if let Some(reason) = &state.failure {
            return Err(Error::Communication(reason.clone()));
        }
        let number = state.begun;
        state.begun += 1;
        drop(state);
        let give_up = Instant::now() + within;
        let late = |kind| matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        for (to, bytes) in sends.iter().enumerate() {
            let Some(mut peer) = self.peers[to].as_ref() else {
                continue;
            };
            match write_frame(&mut peer, MESSAGE, number, what, bytes) {
                Ok(()) => {}
                Err(error) if late(error.kind()) => {
                    let waited = self.deadline.as_secs_f32();
                    let name = &self.names[to];
                    return Err(self.fail(format!("{name}: no answer for {waited} s {place}")));
                }
                // If the rank sent a reason before it ended, the inbox has it.
                Err(_) => break,
            }
        }
        for (from, receive) in receives.iter_mut().enumerate() {
            if from == self.rank {
                continue;
            }
            let mut state = self.inbox.state();
            let (theirs, bytes) = loop {
                if let Some(message) = state.messages.remove(&(number, from)) {
                    break message;
                }
                if let Some(reason) = &state.failure {
                    return Err(Error::Communication(reason.clone()));
                }
                let left = give_up.saturating_duration_since(Instant::now());
                let problem = if state.ended.contains(&from) {
                    "it ended".to_owned()
                } else if left.is_zero() {
                    format!("no answer for {} s", self.deadline.as_secs_f32())
                } else {
                    let waited = self.inbox.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                };
                drop(state);
                return Err(self.fail(format!("{}: {problem} {place}", self.names[from])));
            };
            drop(state);
            if theirs != what {
                return Err(self.fail(format!(
                    "{}: it is at its {theirs} exchange, and rank {} {place}; all ranks must be given the same graph, model and options",
                    self.names[from], self.rank
                )));
            }
            if bytes.len() != receive.len() {
                let lengths = (bytes.len() as u64, receive.len());
                return Err(self.fail_of_bytes(from, lengths, place));
            }
            receive.copy_from_slice(&bytes);
            if bytes.len() >= LONG {
                self.inbox.state().spare.insert(from, bytes);
            }
        }
        Ok(())
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // The rank that found the reason may not have sent it to all others yet. Those would report that this rank
        // ended.
        let failure = self.inbox.state().failure.clone();
        if let Some(reason) = failure {
            self.tell_all(&reason);
        }
        for peer in self.peers.iter().flatten() {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }
}

/// Puts the frames of a rank into the inbox, until its connection ends.
fn listen(mut stream: TcpStream, from: usize, inbox: &Inbox) {
    loop {
        let frame = read_frame(&mut stream, || inbox.state().spare.remove(&from));
        let mut state = inbox.state();
        match frame {
            Ok((MESSAGE, number, what, bytes)) => {
                state.messages.insert((number, from), (what, bytes));
            }
            Ok((_, _, reason, _)) => {
                state.failure.get_or_insert(reason);
            }
            Err(_) => state.ended.push(from),
        }
        let ended = state.ended.contains(&from);
        drop(state);
        inbox.changed.notify_all();
        if ended {
            return;
        }
    }
}

fn write_frame(
    stream: &mut impl Write,
    kind: u8,
    number: u64,
    what: &str,
    bytes: &[u8],
) -> io::Result<()> {
    let mut head = vec![kind];
    head.extend(number.to_le_bytes());
    head.extend((what.len() as u64).to_le_bytes());
    head.extend((bytes.len() as u64).to_le_bytes());
    head.extend(what.as_bytes());
    stream.write_all(&head)?;
    stream.write_all(bytes)
}

/// Reads a frame. A long message is read into the buffer that `spare` returns.
fn read_frame(
    stream: &mut impl Read,
    spare: impl FnOnce() -> Option<Vec<u8>>,
) -> io::Result<(u8, u64, String, Vec<u8>)> {
    let mut head = [0; 25];
    stream.read_exact(&mut head)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    if head[0] > ABORT || word(9) > MOST_WORDS || word(17) > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let what = String::from_utf8(read_bytes(stream, word(9), Vec::new())?);
    let what = what.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let len = word(17);
    let spare = match len >= LONG as u64 {
        true => spare(),
        false => None,
    };
    let bytes = read_bytes(stream, len, spare.unwrap_or_default())?;
    Ok((head[0], word(1), what, bytes))
}

/// Reads `len` bytes into `bytes`, whose capacity grows with what arrives, not with what is claimed.
fn read_bytes(stream: &mut impl Read, len: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    bytes.clear();
    let read = stream.take(len).read_to_end(&mut bytes)?;
    match read as u64 == len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long messages of any length arrive as they were sent. They lie in the memory of the first.
    #[test]
    fn long_messages_lie_where_those_before_did() {
        let folder = tempfile::tempdir().unwrap();
        let rendezvous = Rendezvous::File(folder.path().join("meet"));
        let lengths = [3 * LONG, LONG, 5, 2 * LONG + 1, 0, 3 * LONG];
        let both = &std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for rank in 0..2_usize {
                let rendezvous = &rendezvous;
                scope.spawn(move || {
                    let member = Member::new(rank, 2, "CPU", Duration::from_secs(60));
                    let own = Tcp::meet(rendezvous, &member).unwrap();
                    let message = |of: usize, turn: usize, len: usize| -> Vec<u8> {
                        let byte = |at| (at + 3 * of + turn) as u8;
                        (0..len).map(byte).collect()
                    };
                    let other = 1 - rank;
                    let room = || own.inbox.state().spare[&other].as_ptr();
                    let mut first = None;
                    for (turn, len) in lengths.into_iter().enumerate() {
                        let given = message(rank, turn, len);
                        let mut sends: [&[u8]; 2] = Default::default();
                        sends[other] = &given;
                        let mut heard = vec![0; len];
                        let mut receives: [&mut [u8]; 2] = Default::default();
                        receives[other] = &mut heard;
                        let place = Place {
                            epoch: 1,
                            what: "rows",
                        };
                        own.exchange(place, &sends, &mut receives).unwrap();
                        assert!(heard == message(other, turn, len), "{turn}");
                        // Before the next message arrives.
                        first = first.or_else(|| Some(room()));
                        if turn == 0 {
                            both.wait();
                        }
                    }
                    assert_eq!(first, Some(room()));
                });
            }
        });
    }

    /// A frame whose lengths exceed the bounds is not read.
    #[test]
    fn frames_are_bounded_before_they_are_read() {
        let read = |kind: u8, words: u64, bytes: u64| {
            let mut frame = vec![kind];
            for word in [7, words, bytes] {
                frame.extend(u64::to_le_bytes(word));
            }
            frame.extend([b'a'; 9]);
            let mut stream = &frame[..];
            let read = read_frame(&mut stream, || None);
            (read.is_ok(), stream.len())
        };
        assert_eq!(read(MESSAGE, 4, 5), (true, 0));
        assert_eq!(read(MESSAGE, 4, 1 << 62), (false, 9));
        assert_eq!(read(MESSAGE, 1 << 62, 5), (false, 9));
        assert_eq!(read(ABORT + 1, 4, 5), (false, 9));
    }

    #[test]
    fn who_ends_for_another_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let place = Rendezvous::File(folder.path().join("meet"));
        let meet = |rank| {
            let member = Member::new(rank, 3, "CPU", Duration::from_secs(60));
            Tcp::meet(&place, &member).unwrap()
        };
        let [zero, mut one, two] = std::thread::scope(|scope| {
            let meeting = [0, 1, 2].map(|rank| scope.spawn(move || meet(rank)));
            meeting.map(|thread| thread.join().unwrap())
        });
        // The reason has not reached rank 2 when rank 0 receives it and ends.
        let _later = one.peers[2].take();
        one.abort("there is no room");
        let exchange = |rank: &Tcp| {
            let nothing: &[u8] = &[];
            let mut nowhere: [&mut [u8]; 3] = Default::default();
            let place = Place {
                what: "loss",
                epoch: 3,
            };
            let result = rank.exchange(place, &[nothing; 3], &mut nowhere);
            result.unwrap_err().to_string()
        };
        while zero.inbox.state().failure.is_none() {
            std::thread::yield_now();
        }
        assert!(exchange(&zero).ends_with("there is no room"));
        drop(zero);
        let told = exchange(&two);
        assert!(
            told.starts_with("rank 1 of 3 (") && told.ends_with("there is no room"),
            "{told}"
        );
    }
}
