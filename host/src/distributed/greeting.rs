//! How one process proves to another that it is a rank of the same training.
//!
//! ```text
//!   caller                                     listener
//!   magic, 32 random bytes          ─────►     drops the connection at the first wrong byte
//!                                   ◄─────     magic, 32 random bytes
//!   Greeting, sealed                ─────►     drops it where the seal is wrong
//!                                   ◄─────     Answer, sealed: it knows the key as well
//!                                   ◄─────     Verdict, sealed: of the first rank, once all have come
//! ```
//!
//! A sealed message is its length in 4 bytes, its bytes as JSON, and an HMAC-SHA256. The length has a bound that both
//! sides know. The HMAC covers the kind of message, both random values and those bytes, so a recorded message is
//! useless in another connection. The caller proves itself first: a stranger who calls sees nothing that depends on the
//! key.

use super::Compared;
use super::rendezvous::{Key, random_bytes};
use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The first bytes of each connection, which name the protocol.
const MAGIC: [u8; 8] = *b"halfgnn2";
/// Random bytes of each side.
const NONCE: usize = 32;
/// Bytes of a seal.
const TAG: usize = 32;
/// Bytes of a length.
const HEAD: usize = 4;
/// The most bytes of a greeting or an answer.
const MOST_BYTES: usize = 16 << 10;
/// The most bytes of a name.
const MOST_NAME: usize = 256;

/// How long a whole greeting may take, however its bytes arrive.
pub(super) const GREETING_TIME: Duration = Duration::from_secs(10);
/// How long one attempt to connect may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// The message by which a caller introduces itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The version of the program.
    pub version: String,
    pub from: usize,
    /// The rank that it means to call; any other refuses it.
    pub to: usize,
    pub ranks: usize,
    /// Its name in errors.
    pub name: String,
    /// The port at which it listens itself.
    pub port: u16,
    /// Digests of its inputs.
    pub compared: Vec<Compared>,
}

/// A listener's answer to a greeting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The caller is one of the ranks. The number is how long the listener waits for all ranks, in milliseconds.
    Welcome(u64),
    /// The caller is not one of the ranks, and why.
    Refused(String),
}

/// What the first rank sends once all ranks have come, or some have not come in time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// The address of each rank, and its name in errors.
    Met {
        addresses: Vec<String>,
        names: Vec<String>,
    },
    /// Why no rank continues.
    Refused(String),
}

impl Verdict {
    /// The most bytes of a verdict.
    pub fn most_bytes(ranks: usize) -> usize {
        MOST_BYTES + ranks * 4 * MOST_NAME
    }
}

/// A name of at most [`MOST_NAME`] bytes, without control characters.
pub(super) fn short_name(name: &str) -> String {
    let mut short = String::new();
    for letter in crate::message::escaped(name).chars() {
        if short.len() + letter.len_utf8() > MOST_NAME {
            break;
        }
        short.push(letter);
    }
    short
}

/// The message of a connection that a seal covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Greeting = 1,
    Answer = 2,
    Verdict = 3,
}

/// A connection on which both sides have sent their random bytes.
#[derive(Clone, Debug)]
pub(super) struct Session {
    key: Key,
    caller: [u8; NONCE],
    listener: [u8; NONCE],
}

impl Session {
    fn mac(&self, step: Step, bytes: &[u8]) -> io::Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.bytes()).map_err(io::Error::other)?;
        mac.update(&[step as u8]);
        mac.update(&self.caller);
        mac.update(&self.listener);
        mac.update(bytes);
        Ok(mac)
    }

    /// A message in the form in which it is sent.
    pub fn sealed(&self, step: Step, message: &impl Serialize) -> io::Result<Vec<u8>> {
        let bytes = serde_json::to_vec(message)?;
        let tag = self.mac(step, &bytes)?.finalize().into_bytes();
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        Ok([&length.to_le_bytes()[..], &bytes, &tag].concat())
    }

    /// Opens a sealed message. Its seal is compared in constant time.
    fn opened<T: DeserializeOwned>(&self, step: Step, sealed: &[u8]) -> Option<T> {
        let (bytes, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
        self.mac(step, bytes).ok()?.verify_slice(tag).ok()?;
        serde_json::from_slice(bytes).ok()
    }

    /// Reads a message of at most `most` bytes before `by`.
    pub fn read<T: DeserializeOwned>(
        &self,
        stream: &mut TcpStream,
        step: Step,
        (most, by): (usize, Instant),
    ) -> Result<T, Silence> {
        let mut head = [0; HEAD];
        read_by(stream, &mut head, by)?;
        let length = u32::from_le_bytes(head) as usize;
        if length > most {
            return Err(Silence::Stranger);
        }
        let mut sealed = vec![0; length + TAG];
        read_by(stream, &mut sealed, by)?;
        self.opened(step, &sealed).ok_or(Silence::Stranger)
    }
}

/// Why a message was not read.
#[derive(Debug)]
pub(super) enum Silence {
    /// The other side does not follow the protocol, or has another key.
    Stranger,
    Io(io::Error),
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The time left until `by`, or an error where there is none.
pub(super) fn left(by: Instant) -> io::Result<Duration> {
    match by.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Fills `bytes` before `by`, in any number of reads.
fn read_by(stream: &mut TcpStream, bytes: &mut [u8], by: Instant) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        stream.set_read_timeout(Some(left(by)?))?;
        match stream.read(&mut bytes[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a read or write may be tried again.
fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// There is no connection.
    Unreachable(io::Error),
    /// What answers there is something else.
    Stranger,
    /// It ends the connection at the greeting, because its key differs.
    WrongKey,
    /// It refuses the call, and why.
    Refused(String),
}

impl From<io::Error> for Unanswered {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error)
    }
}

/// A connection to a rank that has proved itself, and how long that rank waits for others.
pub(super) struct Call {
    pub stream: TcpStream,
    pub session: Session,
    pub waits: Duration,
}

/// Calls a rank at `address`. `greeting` makes the greeting from the connection's local address.
pub(super) fn call(
    address: &str,
    key: &Key,
    give_up: Instant,
    greeting: impl FnOnce(SocketAddr) -> io::Result<Greeting>,
) -> Result<Call, Unanswered> {
    let mut stream = connect(address, give_up)?;
    let by = give_up.min(Instant::now() + GREETING_TIME);
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(left(by)?))?;
    let greeting = greeting(stream.local_addr()?)?;
    let caller = random_bytes()?;
    stream.write_all(&[&MAGIC[..], &caller].concat())?;
    let mut magic = [0; MAGIC.len()];
    let mut listener = [0; NONCE];
    let opening = read_by(&mut stream, &mut magic, by);
    let opening = match opening {
        Ok(()) if magic != MAGIC => return Err(Unanswered::Stranger),
        Ok(()) => read_by(&mut stream, &mut listener, by),
        Err(error) => Err(error),
    };
    opening.map_err(|_| Unanswered::Stranger)?;
    let session = Session {
        key: key.clone(),
        caller,
        listener,
    };
    stream.write_all(&session.sealed(Step::Greeting, &greeting)?)?;
    match session.read(&mut stream, Step::Answer, (MOST_BYTES, by)) {
        Ok(Answer::Welcome(waits)) => Ok(Call {
            stream,
            session,
            waits: Duration::from_millis(waits),
        }),
        Ok(Answer::Refused(reason)) => Err(Unanswered::Refused(reason)),
        Err(Silence::Io(error)) if is_pause(&error) => Err(Unanswered::Stranger),
        Err(_) => Err(Unanswered::WrongKey),
    }
}

fn connect(address: &str, give_up: Instant) -> io::Result<TcpStream> {
    let mut problem = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(give_up)?.min(CONNECT_TIME)) {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// An accepted connection, and what it has sent so far.
#[derive(Debug)]
pub(super) struct Arrival {
    stream: TcpStream,
    pub from: SocketAddr,
    /// The deadline of its greeting.
    by: Instant,
    listener: [u8; NONCE],
    /// Present once the caller has sent the first bytes.
    session: Option<Session>,
    received: Vec<u8>,
    /// The number of bytes that come next, and whether they are a greeting.
    expected: usize,
    is_greeting: bool,
}

/// The progress of a connection.
#[derive(Debug)]
pub(super) enum Received {
    /// More is to come.
    Incomplete(Arrival),
    /// It knows the key.
    Greeting(TcpStream, Session, Greeting),
    /// It is dropped, and why.
    Dropped(&'static str),
}

impl Arrival {
    /// A new connection, whose greeting must be complete before `by`. Reads of it do not block.
    pub fn new(stream: TcpStream, from: SocketAddr, by: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            from,
            by,
            listener: random_bytes()?,
            session: None,
            received: Vec::new(),
            expected: MAGIC.len() + NONCE,
            is_greeting: false,
        })
    }

    /// Reads what has arrived, and no more than is expected next.
    pub fn receive(mut self, key: &Key) -> Received {
        loop {
            let begin = self.received.len().min(MAGIC.len());
            if self.session.is_none() && self.received[..begin] != MAGIC[..begin] {
                return Received::Dropped("it is not halfgnn, or another version of it");
            }
            if self.received.len() == self.expected {
                match self.next(key) {
                    Ok(true) => continue,
                    Ok(false) => return self.opened(),
                    Err(reason) => return Received::Dropped(reason),
                }
            }
            let mut bytes = [0; 4096];
            let most = (self.expected - self.received.len()).min(bytes.len());
            match self.stream.read(&mut bytes[..most]) {
                Ok(0) => return Received::Dropped("it ended before it had greeted"),
                Ok(read) => self.received.extend(&bytes[..read]),
                Err(error) if is_pause(&error) => {
                    return match left(self.by) {
                        Ok(_) => Received::Incomplete(self),
                        Err(_) => Received::Dropped("it did not greet in time"),
                    };
                }
                Err(_) => return Received::Dropped("it ended before it had greeted"),
            }
        }
    }

    /// Sets what is expected after the received bytes; false where those were the greeting.
    fn next(&mut self, key: &Key) -> Result<bool, &'static str> {
        if self.is_greeting {
            return Ok(false);
        }
        let received = std::mem::take(&mut self.received);
        if self.session.is_some() {
            let length = received
                .try_into()
                .map_or(usize::MAX, |head| u32::from_le_bytes(head) as usize);
            if length > MOST_BYTES {
                return Err("its greeting is too long");
            }
            self.expected = length + TAG;
            self.is_greeting = true;
            return Ok(true);
        }
        let caller = received[MAGIC.len()..].try_into();
        self.session = Some(Session {
            key: key.clone(),
            caller: caller.map_err(|_| "it is not halfgnn")?,
            listener: self.listener,
        });
        self.expected = HEAD;
        // The system's buffer is empty and has space for this.
        let opening = [&MAGIC[..], &self.listener].concat();
        let sent = self.stream.write_all(&opening);
        sent.map_err(|_| "it ended before it had greeted")?;
        Ok(true)
    }

    /// Opens the greeting that has arrived.
    fn opened(self) -> Received {
        let greeting = self.session.and_then(|session| {
            let greeting = session.opened(Step::Greeting, &self.received)?;
            Some((session, greeting))
        });
        match greeting {
            Some((session, greeting)) => Received::Greeting(self.stream, session, greeting),
            None => Received::Dropped("it has another HALFGNN_RENDEZVOUS_KEY"),
        }
    }
}

/// What strangers send in tests.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// The first bytes of a caller.
    pub fn opening() -> Vec<u8> {
        [&MAGIC[..], &[7; NONCE]].concat()
    }

    /// A greeting that is sealed with `opening` and a listener's bytes.
    pub fn sealed(key: &Key, listener: [u8; NONCE], greeting: &Greeting) -> Vec<u8> {
        let session = Session {
            key: key.clone(),
            caller: [7; NONCE],
            listener,
        };
        session.sealed(Step::Greeting, greeting).unwrap()
    }

    /// Sends `opening` and returns the listener's bytes.
    pub fn opened(stream: &mut TcpStream) -> io::Result<[u8; NONCE]> {
        stream.write_all(&opening())?;
        let mut answer = [0; MAGIC.len() + NONCE];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer[..MAGIC.len()], MAGIC);
        let mut listener = [0; NONCE];
        listener.copy_from_slice(&answer[MAGIC.len()..]);
        Ok(listener)
    }
}
