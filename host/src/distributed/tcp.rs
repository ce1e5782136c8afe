//! Ranks that are processes, of one host or several, over TCP.

use super::communicator::{ROLL_CALL, nobody_missing};
#[cfg(all(feature = "mpi", unix))]
use super::mpi::announce;
use super::{Communicator, Place};
use crate::error::Error;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where ranks find one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// An address of the first rank, at which it listens.
    Tcp(String),
    /// A file that all see, which is not there before: the first rank writes its address there.
    File(PathBuf),
    /// Whoever MPI started with this process, which the first rank tells its address by it: for [`Group::meet`](super::Group::meet), whose
    /// group ends MPI. Wants the feature `mpi`.
    Mpi,
}

impl FromStr for Rendezvous {
    type Err = String;

    /// `tcp://HOST:PORT`, `file:PATH` or `mpi`.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("tcp://");
        let path = text.strip_prefix("file:").filter(|path| !path.is_empty());
        match (address, path) {
            (Some(address), _)
                if address
                    .rsplit_once(':')
                    .is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
            {
                Ok(Self::Tcp(address.into()))
            }
            (_, Some(path)) => Ok(Self::File(path.into())),
            _ if text == "mpi" => Ok(Self::Mpi),
            _ => Err(
                "it must be tcp://HOST:PORT of the first rank, file:PATH of a file that all see, or mpi"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Mpi => f.write_str("mpi"),
        }
    }
}

/// A process that is a rank. Dropping it closes its connections, which fails what others still wait for.
#[derive(Debug)]
pub struct Tcp {
    rank: usize,
    deadline: Duration,
    /// What each rank is called in errors.
    names: Vec<String>,
    /// None at the own place.
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
    /// Exchanges that were begun here.
    begun: u64,
    /// What each rank gave at an exchange, and what it takes that for.
    messages: HashMap<(u64, usize), (String, Vec<u8>)>,
    /// What a long message of each rank lay in, for the next: memory that is new to the process costs as much as the network does.
    spare: HashMap<usize, Vec<u8>>,
    /// Why nothing goes on.
    failure: Option<String>,
    /// Ranks that have closed their connections.
    ended: Vec<usize>,
}

/// What begins each connection: both are the same program.
const GREETING: &[u8; 8] = b"halfgnn1";

/// A name is no longer than this; more is nothing that this program wrote.
const LONGEST_NAME: usize = 4096;

/// Messages of so many bytes are long: an allocator asks the system for room for each, and gives it back behind it.
const LONG: usize = 128 << 10;

/// What a frame is.
const MESSAGE: u8 = 0;
const ABORT: u8 = 1;

impl Tcp {
    /// Meets the other ranks, which are given the same number of `ranks` and the same place to meet; `device` is what errors call the
    /// own one. From then on a rank may stay away from an exchange for `deadline` longer than another waits, and no longer than that
    /// from the meeting.
    ///
    /// # Errors
    /// [`Error::Communication`] where they do not come together in time.
    pub fn meet(
        rendezvous: &Rendezvous,
        (rank, ranks): (usize, usize),
        device: &str,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let told = |error: io::Error| {
            Error::Communication(format!(
                "rank {rank} of {ranks}: the ranks did not meet at {rendezvous} within {} s: {error}; start all of them, with one \
                 number of ranks and one place",
                deadline.as_secs_f32()
            ))
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = match host.trim() {
            "" => format!("rank {rank} of {ranks} ({device})"),
            host => format!("rank {rank} of {ranks} (host {host}, {device})"),
        };
        let give_up = Instant::now() + deadline;
        let (peers, names) = mesh(rendezvous, (rank, ranks), &name, give_up).map_err(told)?;
        let inbox = Arc::new(Inbox {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        for (from, peer) in peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            peer.set_read_timeout(None).map_err(told)?;
            peer.set_write_timeout(Some(deadline)).map_err(told)?;
            peer.set_nodelay(true).map_err(told)?;
            let (stream, inbox) = (peer.try_clone().map_err(told)?, Arc::clone(&inbox));
            std::thread::spawn(move || listen(stream, from, &inbox));
        }
        Ok(Self {
            rank,
            deadline,
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

    /// That rank `from` gave another number of bytes than is wanted.
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
            // Who does not hear it any more ends by itself.
            let _ = write_frame(&mut peer, ABORT, 0, reason, &[]);
        }
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
    /// An exchange called `what`, at which others may be `within` later.
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
                // Whether it said why before it ended is in the inbox.
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
        // Whoever found the reason may not have told all of them yet: to those, this rank would be the one that ended.
        let failure = self.inbox.state().failure.clone();
        if let Some(reason) = failure {
            self.tell_all(&reason);
        }
        for peer in self.peers.iter().flatten() {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }
}

/// Puts what comes from a rank into the inbox, until it ends.
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

/// A frame, whose bytes lie in what `spare` has where they are many.
fn read_frame(
    stream: &mut impl Read,
    spare: impl FnOnce() -> Option<Vec<u8>>,
) -> io::Result<(u8, u64, String, Vec<u8>)> {
    let mut head = [0; 25];
    stream.read_exact(&mut head)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
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

/// So many bytes, in `bytes`; room grows with what comes, not with what is claimed.
fn read_bytes(stream: &mut impl Read, len: u64, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    bytes.clear();
    let read = stream.take(len).read_to_end(&mut bytes)?;
    match read as u64 == len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A connection to each other rank, and the names of all. Each tells the first where it listens, hears of all from it, and calls those
/// before it.
fn mesh(
    rendezvous: &Rendezvous,
    (rank, ranks): (usize, usize),
    name: &str,
    give_up: Instant,
) -> io::Result<(Vec<Option<TcpStream>>, Vec<String>)> {
    let mut peers: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
    let mut names = vec![String::new(); ranks];
    names[rank] = name.to_owned();
    if ranks == 1 {
        return Ok((peers, names));
    }
    if rank == 0 {
        let listener = match rendezvous {
            Rendezvous::Tcp(address) => TcpListener::bind(("0.0.0.0", port(address)?))?,
            Rendezvous::File(path) => {
                let listener = TcpListener::bind("0.0.0.0:0")?;
                write_address(path, &reachable(listener.local_addr()?))?;
                listener
            }
            Rendezvous::Mpi => {
                let listener = TcpListener::bind("0.0.0.0:0")?;
                announce((rank, ranks), Some(reachable(listener.local_addr()?)))?;
                listener
            }
        };
        let mut addresses = vec![String::new(); ranks];
        for _ in 1..ranks {
            let (mut stream, address) = accept(&listener, give_up)?;
            let (other, [other_name, own_port]) = read_greeting(&mut stream, ranks)?;
            if peers[other].is_some() || other == 0 {
                return Err(io::Error::other(format!(
                    "there are two that are rank {other}"
                )));
            }
            addresses[other] = format!("{}:{own_port}", address.ip());
            names[other] = other_name;
            peers[other] = Some(stream);
        }
        let all = [addresses.join("\n"), names.join("\n")];
        for (other, peer) in peers.iter_mut().enumerate() {
            if let Some(stream) = peer {
                write_greeting(stream, (other, ranks), &all[0], &all[1])?;
            }
        }
        if let Rendezvous::File(path) = rendezvous {
            let _ = std::fs::remove_file(path);
        }
        return Ok((peers, names));
    }
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let own_port = listener.local_addr()?.port().to_string();
    let told = match rendezvous {
        Rendezvous::Tcp(address) => address.clone(),
        Rendezvous::File(_) => String::new(),
        Rendezvous::Mpi => announce((rank, ranks), None)?,
    };
    let mut first = retry(give_up, || match rendezvous {
        Rendezvous::File(path) => connect(std::fs::read_to_string(path)?.trim(), give_up),
        _ => connect(&told, give_up),
    })?;
    first.set_read_timeout(Some(left(give_up)?))?;
    write_greeting(&mut first, (rank, ranks), name, &own_port)?;
    let (_, [addresses, all]) = read_greeting(&mut first, ranks)?;
    let addresses: Vec<&str> = addresses.split('\n').collect();
    names = all.split('\n').map(str::to_owned).collect();
    if addresses.len() != ranks || names.len() != ranks {
        return Err(io::ErrorKind::InvalidData.into());
    }
    peers[0] = Some(first);
    for (other, address) in addresses.iter().enumerate().take(rank).skip(1) {
        let mut stream = retry(give_up, || connect(address, give_up))?;
        write_greeting(&mut stream, (rank, ranks), name, "")?;
        peers[other] = Some(stream);
    }
    for _ in rank + 1..ranks {
        let (mut stream, _) = accept(&listener, give_up)?;
        let (other, _) = read_greeting(&mut stream, ranks)?;
        if other <= rank || peers[other].is_some() {
            return Err(io::Error::other(format!(
                "there are two that are rank {other}"
            )));
        }
        peers[other] = Some(stream);
    }
    Ok((peers, names))
}

/// Who calls: the same program, with as many ranks.
fn write_greeting(
    stream: &mut TcpStream,
    (rank, ranks): (usize, usize),
    first: &str,
    second: &str,
) -> io::Result<()> {
    stream.write_all(GREETING)?;
    let version = env!("CARGO_PKG_VERSION");
    write_frame(
        stream,
        MESSAGE,
        rank as u64,
        version,
        &(ranks as u64).to_le_bytes(),
    )?;
    write_frame(stream, MESSAGE, 0, first, second.as_bytes())
}

fn read_greeting(stream: &mut TcpStream, ranks: usize) -> io::Result<(usize, [String; 2])> {
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting)?;
    if &greeting != GREETING {
        return Err(io::Error::other("somebody else listens or calls there"));
    }
    let (_, rank, version, count) = read_frame(stream, || None)?;
    if version != env!("CARGO_PKG_VERSION") {
        return Err(io::Error::other(format!(
            "rank {rank} is of version {version} of the program, and this is {}",
            env!("CARGO_PKG_VERSION")
        )));
    }
    if count != (ranks as u64).to_le_bytes() || rank >= ranks as u64 {
        return Err(io::Error::other(format!(
            "rank {rank} was told another number of ranks than {ranks}"
        )));
    }
    let (_, _, first, second) = read_frame(stream, || None)?;
    if first.len() + second.len() > LONGEST_NAME * ranks {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let second =
        String::from_utf8(second).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok((rank as usize, [first, second]))
}

fn left(give_up: Instant) -> io::Result<Duration> {
    match give_up.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Tries again until it is done or too late.
fn retry<T>(give_up: Instant, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if left(give_up).is_err() => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn connect(address: &str, give_up: Instant) -> io::Result<TcpStream> {
    let mut problem = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(give_up)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

fn accept(listener: &TcpListener, give_up: Instant) -> io::Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    let (stream, address) = retry(give_up, || listener.accept())?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(left(give_up)?))?;
    Ok((stream, address))
}

fn port(address: &str) -> io::Result<u16> {
    let port = address
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The address that others reach this host by.
fn reachable(address: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    // Where no name service knows it, ranks of this host do without.
    let host = match (host, address.port()).to_socket_addrs() {
        Ok(_) if !host.is_empty() => host,
        _ => "127.0.0.1",
    };
    format!("{host}:{}", address.port())
}

/// Where this was built without MPI.
#[cfg(not(all(feature = "mpi", unix)))]
fn announce(_: (usize, usize), _: Option<String>) -> io::Result<String> {
    Err(io::Error::other(
        "this program was built without MPI; build it with --features mpi, or take --rendezvous tcp://HOST:PORT",
    ))
}

/// Writes an address whole or not at all.
fn write_address(path: &Path, address: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, address)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long messages of any lengths come as they were sent, in memory that the process has had since the first.
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
                    let deadline = Duration::from_secs(60);
                    let own = Tcp::meet(rendezvous, (rank, 2), "CPU", deadline).unwrap();
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
                        // Before the next one comes.
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

    #[test]
    fn who_ends_for_another_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let place = Rendezvous::File(folder.path().join("meet"));
        let meet = |rank| Tcp::meet(&place, (rank, 3), "CPU", Duration::from_secs(60)).unwrap();
        let [zero, mut one, two] = std::thread::scope(|scope| {
            let meeting = [0, 1, 2].map(|rank| scope.spawn(move || meet(rank)));
            meeting.map(|thread| thread.join().unwrap())
        });
        // The reason has not reached rank 2 when rank 0 hears it and ends.
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
