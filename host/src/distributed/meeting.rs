//! How processes that are ranks meet. All call the first rank, which sends them all addresses; then they call one
//! another.
//!
//! Strangers do not delay a meeting. Connections are polled round-robin and never block. Each has one deadline for its
//! whole greeting, and one that does not prove itself is dropped.

use super::Compared;
use super::digest::{differences, ranks_of};
use super::greeting::{
    Answer, Arrival, Call, GREETING_TIME, Greeting, Received, Session, Silence, Step, Unanswered,
    Verdict, call, left, short_name,
};
use super::rendezvous::{Directions, Door, Key, Rendezvous, with_port};
use halfgnn_platform::machine::host_name;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A process that comes to a meeting as a rank.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The rank's number, from 0 on.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
    /// The name of its device in errors.
    pub device: &'a str,
    /// How long the meeting may take. Later it is how long a rank may stay away from an exchange at which another
    /// waits.
    pub timeout: Duration,
    /// The secret that all ranks share, if any.
    pub key: Option<Key>,
    /// Digests of its inputs. Where ranks differ in them, all are refused with the same message.
    pub compared: Vec<Compared>,
}

impl<'a> Member<'a> {
    /// A member with the key of the environment, and no inputs to compare.
    pub fn new(rank: usize, ranks: usize, device: &'a str, timeout: Duration) -> Self {
        Self {
            rank,
            ranks,
            device,
            timeout,
            key: Key::from_environment(),
            compared: Vec::new(),
        }
    }

    /// The same member, with inputs to compare.
    #[must_use]
    pub fn comparing(self, compared: Vec<Compared>) -> Self {
        Self { compared, ..self }
    }
}

/// Ranks that have met: a connection to each other rank, and the name of each in errors.
#[derive(Debug)]
pub(super) struct Met {
    /// `None` at the own index.
    pub peers: Vec<Option<TcpStream>>,
    pub names: Vec<String>,
}

/// Why ranks did not meet, and the open connections, over which others are informed.
#[derive(Debug)]
pub(super) struct NotMet {
    pub reason: String,
    pub peers: Vec<Option<TcpStream>>,
}

impl From<String> for NotMet {
    fn from(reason: String) -> Self {
        let peers = Vec::new();
        Self { reason, peers }
    }
}

/// How often connections are polled.
const POLL: Duration = Duration::from_millis(5);
/// The pauses before a rank is called again: the first and the longest.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// An attempt that had less time than this may have failed for lack of time.
const CUT_SHORT: Duration = Duration::from_secs(1);
/// Connections that may be greeting at a time, in addition to one for each rank; the oldest is dropped.
const MOST_ARRIVALS: usize = 256;
/// How much later than the first rank's deadline its verdict may arrive.
const GRACE: Duration = Duration::from_secs(2);

/// Meets the other ranks.
pub(super) fn meet(rendezvous: &Rendezvous, member: &Member<'_>) -> Result<Met, NotMet> {
    let Member { rank, ranks, .. } = *member;
    let name = match host_name() {
        None => format!("rank {rank} of {ranks} ({})", member.device),
        Some(host) => format!("rank {rank} of {ranks} (host {host}, {})", member.device),
    };
    let own = Own {
        rendezvous,
        member,
        name: short_name(&name),
        give_up: Instant::now() + member.timeout,
    };
    match (ranks, rank) {
        (1, _) => Ok(Met {
            peers: vec![None],
            names: vec![own.name],
        }),
        (_, 0) => own.gather(),
        _ => own.join(),
    }
}

/// This process at a meeting.
struct Own<'a> {
    rendezvous: &'a Rendezvous,
    member: &'a Member<'a>,
    name: String,
    give_up: Instant,
}

/// A rank that has come.
struct Guest {
    stream: TcpStream,
    session: Session,
    greeting: Greeting,
    from: SocketAddr,
}

/// Connections that a listener has dropped.
#[derive(Debug, Default)]
struct Turned {
    count: usize,
    /// The address of the last one, and why it was dropped.
    last: Option<(IpAddr, String)>,
    /// Ranks that had come, and left before all were there.
    left: Vec<usize>,
}

impl Turned {
    fn away(&mut self, from: SocketAddr, why: impl Into<String>) {
        let why = why.into();
        tracing::info!("a connection from {from} is dropped: {why}");
        self.count += 1;
        self.last = Some((from.ip(), why));
    }

    /// The text about them that follows a reason.
    fn words(&self) -> String {
        let mut words = String::new();
        if !self.left.is_empty() {
            words = format!("; {} came and left", ranks_of(&self.left));
        }
        match (&self.last, self.count) {
            (None, _) => {}
            (Some((from, why)), 1) => {
                words.push_str(&format!("; one connection was dropped, from {from}: {why}"))
            }
            (Some((from, why)), count) => words.push_str(&format!(
                "; {count} connections were dropped, the last from {from}: {why}"
            )),
        }
        words
    }
}

impl Own<'_> {
    fn seconds(&self) -> f32 {
        self.member.timeout.as_secs_f32()
    }

    /// A failure of this rank alone, with its number.
    fn failed(&self, what: impl std::fmt::Display) -> NotMet {
        format!("rank {} of {}: {what}", self.member.rank, self.member.ranks).into()
    }

    fn no_peers(&self) -> Vec<Option<TcpStream>> {
        (0..self.member.ranks).map(|_| None).collect()
    }

    /// The first rank: waits for all others, and sends each their addresses, or why no rank continues.
    fn gather(&self) -> Result<Met, NotMet> {
        let Member { rank, ranks, .. } = *self.member;
        let key = self.member.key.as_ref();
        let door = Door::open(self.rendezvous, ranks, key).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::AddrInUse => "; another program listens there, so name another port",
                ErrorKind::AddrNotAvailable => "; name an address of this host",
                _ => "",
            };
            match self.rendezvous {
                Rendezvous::Mpi => self.failed(error),
                at => self.failed(format!("cannot listen at {at}: {error}{advice}")),
            }
        })?;
        let open = self.listen(&door.listeners, &door.key, (1..ranks, self.give_up), None);
        let (mut guests, missing) = open.map_err(|error| self.failed(error))?;
        let refused = match missing {
            Some(missing) => Some(missing),
            None => {
                let of_guest = |at: usize| match &guests[at] {
                    Some(guest) => &guest.greeting.compared[..],
                    None => &self.member.compared[..],
                };
                differences(&(0..ranks).map(of_guest).collect::<Vec<_>>())
            }
        };
        if let Some(reason) = refused {
            let verdict = Verdict::Refused(reason.clone());
            for guest in guests.iter_mut().flatten() {
                // A rank that cannot be informed sees that the connection ends.
                let _ = guest.send(Step::Verdict, &verdict);
            }
            return Err(reason.into());
        }
        let mut names = vec![self.name.clone(); ranks];
        for (guest, name) in guests.iter().zip(&mut names) {
            if let Some(guest) = guest {
                *name = short_name(&guest.greeting.name);
            }
        }
        let addresses = |seen_by: &Guest| -> Vec<String> {
            let of_guest = |guest: &Option<Guest>| match guest {
                Some(guest) => guest.address_for(seen_by),
                None => String::new(),
            };
            guests.iter().map(of_guest).collect()
        };
        let verdicts: Vec<Option<Verdict>> = guests
            .iter()
            .map(|guest| {
                guest.as_ref().map(|guest| Verdict::Met {
                    addresses: addresses(guest),
                    names: names.clone(),
                })
            })
            .collect();
        let mut peers = self.no_peers();
        for (other, (guest, verdict)) in guests.into_iter().zip(verdicts).enumerate() {
            let (Some(mut guest), Some(verdict)) = (guest, verdict) else {
                continue;
            };
            if let Err(error) = guest.send(Step::Verdict, &verdict) {
                let reason = format!("{}: it ended when all had come: {error}", names[other]);
                return Err(NotMet { reason, peers });
            }
            peers[other] = Some(guest.stream);
        }
        debug_assert!(peers[rank].is_none());
        Ok(Met { peers, names })
    }

    /// Waits until `give_up` for the `wanted` ranks to call. Returns those that have come, and a message that names
    /// those that have not. `ended` is set where another thread has given up.
    fn listen(
        &self,
        listeners: &[TcpListener],
        key: &Key,
        (wanted, give_up): (Range<usize>, Instant),
        ended: Option<&AtomicBool>,
    ) -> io::Result<(Vec<Option<Guest>>, Option<String>)> {
        let ranks = self.member.ranks;
        let mut guests: Vec<Option<Guest>> = (0..ranks).map(|_| None).collect();
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut turned = Turned::default();
        for listener in listeners {
            listener.set_nonblocking(true)?;
        }
        loop {
            for listener in listeners {
                // Bounded, so that connections are served where new ones come without end.
                for _ in 0..MOST_ARRIVALS {
                    match listener.accept() {
                        Ok((stream, from)) => {
                            let by = Instant::now() + GREETING_TIME;
                            match Arrival::new(stream, from, by) {
                                Ok(arrival) => arrivals.push(arrival),
                                Err(error) => turned.away(from, error.to_string()),
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        // The connection has gone already, or no descriptor is free: the older half is dropped.
                        Err(_) => {
                            arrivals.drain(..arrivals.len().div_ceil(2));
                            break;
                        }
                    }
                }
            }
            let most = MOST_ARRIVALS + ranks;
            for oldest in arrivals.drain(..arrivals.len().saturating_sub(most)) {
                turned.away(oldest.from, "too many connections greet at once");
            }
            for arrival in std::mem::take(&mut arrivals) {
                let from = arrival.from;
                match arrival.receive(key) {
                    Received::Incomplete(arrival) => arrivals.push(arrival),
                    Received::Dropped(why) => turned.away(from, why),
                    Received::Greeting(stream, session, greeting) => {
                        let mut guest = Guest {
                            stream,
                            session,
                            greeting,
                            from,
                        };
                        let refused = self.refusal(&guest.greeting, &wanted, &mut guests);
                        let answer = match &refused {
                            None => {
                                let waits = give_up.saturating_duration_since(Instant::now());
                                Answer::Welcome(waits.as_millis() as u64)
                            }
                            Some(why) => Answer::Refused(why.clone()),
                        };
                        let sent = guest.send(Step::Answer, &answer);
                        match (refused, sent) {
                            (Some(why), _) => turned.away(from, why),
                            (None, Err(_)) => turned.away(from, "it ended as it had greeted"),
                            (None, Ok(())) => {
                                let rank = guest.greeting.from;
                                turned.left.retain(|&left| left != rank);
                                guests[rank] = Some(guest);
                            }
                        }
                    }
                }
            }
            for rank in wanted.clone() {
                if guests[rank].as_ref().is_some_and(|guest| !guest.is_there()) {
                    guests[rank] = None;
                    turned.left.push(rank);
                }
            }
            let missing: Vec<usize> = wanted.clone().filter(|&it| guests[it].is_none()).collect();
            if missing.is_empty() {
                return Ok((guests, None));
            }
            let given_up = ended.is_some_and(|ended| ended.load(Ordering::Relaxed));
            if given_up || left(give_up).is_err() {
                let reason = format!(
                    "{} of {ranks} did not come to {} within {} s{}; start all ranks with the same number of ranks and the same place",
                    ranks_of(&missing),
                    self.place(),
                    self.seconds(),
                    turned.words(),
                );
                return Ok((guests, Some(reason)));
            }
            thread::sleep(POLL);
        }
    }

    /// The place where others come, for messages.
    fn place(&self) -> String {
        match self.member.rank {
            0 => self.rendezvous.to_string(),
            rank => format!("rank {rank}"),
        }
    }

    /// Why a process that knows the key is not a rank that is waited for.
    fn refusal(
        &self,
        greeting: &Greeting,
        wanted: &Range<usize>,
        guests: &mut [Option<Guest>],
    ) -> Option<String> {
        let Member { rank, ranks, .. } = *self.member;
        let Greeting { from, version, .. } = greeting;
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            let version = short_name(version);
            return Some(format!(
                "rank {from} is halfgnn {version}, and rank {rank} is halfgnn {own}; run one version on all"
            ));
        }
        if greeting.ranks != ranks {
            return Some(format!(
                "rank {from} was started as one of {} ranks, and rank {rank} as one of {ranks}; give all the same number",
                greeting.ranks
            ));
        }
        if greeting.to != rank || !wanted.contains(from) {
            return Some(format!("rank {from} does not call rank {rank} here"));
        }
        match &guests[*from] {
            Some(other) if other.is_there() => Some(format!(
                "another process is rank {from} already; give each process a rank of its own"
            )),
            _ => None,
        }
    }

    /// Any other rank: finds the first, waits for all, calls the ranks before it and is called by those after it.
    fn join(&self) -> Result<Met, NotMet> {
        let Member { rank, ranks, .. } = *self.member;
        let first = self.find_first()?;
        let (mut call, listener, key) = (first.call, first.listener, first.key);
        // The first rank may have begun later, and then waits longer.
        let by = Instant::now() + call.waits.min(self.member.timeout) + GRACE;
        let verdict = call.session.read(
            &mut call.stream,
            Step::Verdict,
            (Verdict::most_bytes(ranks), by),
        );
        let (addresses, names) = match verdict {
            Ok(Verdict::Met { addresses, names }) => (addresses, names),
            Ok(Verdict::Refused(reason)) => return Err(short_reason(&reason).into()),
            Err(Silence::Io(error)) if error.kind() == ErrorKind::TimedOut => {
                return Err(self.failed(format!(
                    "rank 0 at {} did not say within {} s that all ranks are there",
                    self.rendezvous,
                    self.seconds()
                )));
            }
            Err(_) => {
                return Err(self.failed(format!(
                    "rank 0 at {} ended before all ranks were there",
                    self.rendezvous
                )));
            }
        };
        if addresses.len() != ranks || names.len() != ranks {
            return Err(self.failed("rank 0 is of another number of ranks"));
        }
        let names: Vec<String> = names.iter().map(|name| short_name(name)).collect();
        let mut peers = self.no_peers();
        peers[0] = Some(call.stream);
        let give_up = self
            .give_up
            .max(Instant::now() + GREETING_TIME.min(self.member.timeout));
        let ended = AtomicBool::new(false);
        // Ranks after this one call while it calls those before it.
        let (called, guests) = thread::scope(|scope| {
            let listener = std::slice::from_ref(&listener);
            let later = (rank + 1..ranks, give_up);
            let guests = scope.spawn(|| self.listen(listener, &key, later, Some(&ended)));
            let called: Result<Vec<TcpStream>, NotMet> = (1..rank)
                .map(|other| self.call_other((other, &addresses[other]), &key, give_up))
                .collect();
            ended.store(called.is_err(), Ordering::Relaxed);
            (called, guests.join())
        });
        let reason = match (called, guests) {
            (Ok(called), Ok(Ok((guests, None)))) => {
                let before = called.into_iter().map(Some);
                for (peer, stream) in peers[1..rank].iter_mut().zip(before) {
                    *peer = stream;
                }
                for (peer, guest) in peers.iter_mut().zip(guests) {
                    if let Some(guest) = guest {
                        *peer = Some(guest.stream);
                    }
                }
                return Ok(Met { peers, names });
            }
            (Err(problem), _) => problem.reason,
            (_, Ok(Ok((_, Some(missing))))) => missing,
            (_, Ok(Err(error))) => self.failed(error).reason,
            (_, Err(_)) => {
                self.failed("a thread that waited for ranks panicked")
                    .reason
            }
        };
        Err(NotMet { reason, peers })
    }

    /// Calls the first rank until it answers.
    fn find_first(&self) -> Result<First, NotMet> {
        let member = self.member;
        let place = (member.rank, member.ranks);
        let is_local = self.rendezvous.is_local();
        let mut fixed = None;
        if *self.rendezvous == Rendezvous::Mpi {
            let found = Directions::find(self.rendezvous, place);
            fixed = Some(found.map_err(|error| self.failed(error))?);
        }
        let mut listener = None;
        self.until_answered(self.give_up, |patience| {
            let found;
            let directions = match &fixed {
                Some(fixed) => fixed,
                None => {
                    found = Directions::find(self.rendezvous, place).map_err(|error| {
                        (
                            true,
                            format!(
                                "rank 0 has not written its address to {} within {} s ({error}); start rank 0",
                                self.rendezvous,
                                self.seconds()
                            ),
                        )
                    })?;
                    &found
                }
            };
            let given = member.key.as_ref().or(directions.made.as_ref());
            let key = given.cloned().unwrap_or_else(Key::none);
            let greeting = |local: SocketAddr| {
                // Others reach this rank at the address from which it reaches the first.
                let at = match (local.ip().is_loopback(), is_local, local.ip()) {
                    (true, false, IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
                    (true, false, IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
                    (.., ip) => ip,
                };
                let own = TcpListener::bind((at, 0))?;
                let port = own.local_addr()?.port();
                listener = Some(own);
                Ok(self.greeting(0, port))
            };
            let address = &directions.address;
            let called = call(address, &key, patience, greeting);
            let called = called.map_err(|problem| self.words_of((0, address), problem))?;
            match listener.take() {
                Some(listener) => Ok(First {
                    call: called,
                    listener,
                    key,
                }),
                None => Err((true, "there is no port to listen at".into())),
            }
        })
    }

    fn greeting(&self, to: usize, port: u16) -> Greeting {
        Greeting {
            version: env!("CARGO_PKG_VERSION").into(),
            from: self.member.rank,
            to,
            ranks: self.member.ranks,
            name: self.name.clone(),
            port,
            // Only the first rank compares inputs.
            compared: match to {
                0 => self.member.compared.clone(),
                _ => Vec::new(),
            },
        }
    }

    /// Calls a rank before this one, which waits for it.
    fn call_other(
        &self,
        (other, address): (usize, &str),
        key: &Key,
        give_up: Instant,
    ) -> Result<TcpStream, NotMet> {
        self.until_answered(give_up, |patience| {
            let called = call(address, key, patience, |_| Ok(self.greeting(other, 0)));
            called
                .map(|call| call.stream)
                .map_err(|problem| self.words_of((other, address), problem))
        })
    }

    /// Repeats an attempt until it succeeds, is refused for good or is too late. A failed attempt returns whether to
    /// try again, and why it failed.
    fn until_answered<T>(
        &self,
        give_up: Instant,
        mut attempt: impl FnMut(Instant) -> Result<T, (bool, String)>,
    ) -> Result<T, NotMet> {
        let [mut rest, longest] = RETRY;
        let mut before: Option<String> = None;
        loop {
            let time = left(give_up).unwrap_or_default();
            match attempt(give_up) {
                Ok(done) => return Ok(done),
                Err((again, reason)) => {
                    let left = left(give_up).unwrap_or_default();
                    if !again {
                        return Err(self.failed(reason));
                    }
                    if left.is_zero() {
                        // The reason of an attempt that was cut short is less specific than the one before it.
                        let before = before.filter(|_| time < CUT_SHORT);
                        return Err(self.failed(before.unwrap_or(reason)));
                    }
                    tracing::debug!("once more: {reason}");
                    before = Some(reason);
                    thread::sleep(rest.min(left));
                    rest = (rest * 3 / 2).min(longest);
                }
            }
        }
    }

    /// Why a rank did not answer, and whether it may answer later.
    fn words_of(&self, (other, address): (usize, &str), problem: Unanswered) -> (bool, String) {
        let place = match (other, self.rendezvous) {
            (0, Rendezvous::Tcp(_)) => self.rendezvous.to_string(),
            (0, rendezvous) => format!("{address} of {rendezvous}"),
            _ => address.to_owned(),
        };
        let within = format!("within {} s", self.seconds());
        match problem {
            Unanswered::Unreachable(error) => (
                true,
                format!(
                    "rank {other} could not be reached at {place} {within} ({}); start it, and see that this host reaches that address",
                    words(&error)
                ),
            ),
            Unanswered::Stranger => (
                true,
                format!(
                    "what listens at {place} did not greet as rank {other} of halfgnn {} {within}; start rank {other} there, name another port, or \
                     run one version on all",
                    env!("CARGO_PKG_VERSION")
                ),
            ),
            Unanswered::WrongKey => (
                true,
                format!(
                    "rank {other} at {place} did not accept the greeting {within}; give all ranks the same HALFGNN_RENDEZVOUS_KEY"
                ),
            ),
            Unanswered::Refused(reason) => (false, short_reason(&reason)),
        }
    }
}

/// The first rank, as another rank has found it.
struct First {
    call: Call,
    /// Where this rank waits for those after it.
    listener: TcpListener,
    key: Key,
}

impl Guest {
    /// Sends a message, within a short time limit.
    fn send(&mut self, step: Step, message: &impl serde::Serialize) -> io::Result<()> {
        let sealed = self.session.sealed(step, message)?;
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(GRACE))?;
        self.stream.write_all(&sealed)?;
        self.stream.set_nonblocking(step == Step::Answer)
    }

    /// Whether its connection is open. Bytes that have arrived already belong to its first exchange.
    fn is_there(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(bytes) => bytes > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// The address by which `other` reaches this rank. For a rank on the first rank's host, it is where `other` reaches
    /// the first rank.
    fn address_for(&self, other: &Self) -> String {
        let own = self.from.ip();
        let host = match (own.is_loopback(), other.from.ip().is_loopback()) {
            (true, false) => other.stream.local_addr().map_or(own, |local| local.ip()),
            _ => own,
        };
        with_port(host, self.greeting.port)
    }
}

/// Another rank's reason, on one line of bounded length.
fn short_reason(reason: &str) -> String {
    crate::message::shortened(reason)
}

/// A description of an error; for a timeout, that nothing answers.
fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".into(),
        _ => error.to_string(),
    }
}
