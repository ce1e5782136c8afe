//! Where processes that are ranks meet, and the secret by which they authenticate one another.

#[cfg(feature = "mpi")]
use super::mpi::announce;
use crate::error::Error;
use halfgnn_platform::machine::host_name;
use halfgnn_platform::permissions;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where ranks find one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// The address of the first rank, on which alone it listens. An address that other hosts reach requires a [`Key`].
    Tcp(String),
    /// A file that all ranks see and that does not exist before. The first rank writes its address there, for its own
    /// user alone to read. Without a [`Key`] it also writes a random one.
    File(PathBuf),
    /// [`Rendezvous::File`] for ranks on one host, which listen on its loopback addresses alone.
    Local(PathBuf),
    /// The ranks that MPI started, to which the first rank broadcasts its address. It is for
    /// [`Group::meet`](super::Group::meet), whose group ends MPI, and requires the feature `mpi`.
    Mpi,
}

impl FromStr for Rendezvous {
    type Err = String;

    /// `tcp://HOST:PORT`, `file:PATH`, `local:PATH` or `mpi`.
    fn from_str(text: &str) -> Result<Self, String> {
        let path = |prefix| text.strip_prefix(prefix).filter(|path| !path.is_empty());
        let named = |address: &&str| {
            let parts = address.rsplit_once(':');
            parts.is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        if let Some(address) = text.strip_prefix("tcp://").filter(named) {
            return Ok(Self::Tcp(address.into()));
        }
        match (path("file:"), path("local:"), text) {
            (Some(path), ..) => Ok(Self::File(path.into())),
            (_, Some(path), _) => Ok(Self::Local(path.into())),
            (.., "mpi") => Ok(Self::Mpi),
            _ => Err(
                "it must be tcp://HOST:PORT of the first rank with a port from 1 on, file:PATH of a file that all see, local:PATH of one where \
                 all are on this host, or mpi"
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
            Self::Local(path) => write!(f, "local:{}", path.display()),
            Self::Mpi => f.write_str("mpi"),
        }
    }
}

/// The environment variable of the secret that all ranks share.
pub const KEY_VARIABLE: &str = "HALFGNN_RENDEZVOUS_KEY";

/// A secret that all ranks share. A process proves that it is one of them by an HMAC over a random challenge, so the
/// secret itself is never sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// A secret of any bytes. One of at least 16 random bytes cannot be guessed.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    /// The secret in [`KEY_VARIABLE`], where that is set and not empty.
    pub fn from_environment() -> Option<Self> {
        let value = std::env::var_os(KEY_VARIABLE)?;
        let bytes = value.as_encoded_bytes();
        (!bytes.is_empty()).then(|| Self::new(bytes))
    }

    /// A random secret: 32 bytes in hexadecimal.
    fn random() -> io::Result<Self> {
        let digits = random_bytes()?.map(|byte| format!("{byte:02x}"));
        Ok(Self::new(digits.concat()))
    }

    /// An empty key, which proves nothing: for ranks on one host that were given no secret.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Random bytes from the system.
pub(super) fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

impl Rendezvous {
    /// Whether every address by which ranks meet is a loopback address, which no other host reaches.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.to_socket_addrs().is_ok_and(|found| {
                let mut found = found.peekable();
                found.peek().is_some() && found.all(|address| address.ip().is_loopback())
            }),
            Self::Local(_) => true,
            Self::File(_) | Self::Mpi => false,
        }
    }

    /// Refuses an address that other hosts reach where there is no key. A file and MPI transmit one.
    ///
    /// # Errors
    /// What to set.
    pub fn check_key(&self, key: Option<&Key>) -> Result<(), Error> {
        match self {
            Self::Tcp(_) if key.is_none() && !self.is_local() => {
                Err(Error::Communication(format!(
                    "{self} is no loopback address, so ranks must prove that they belong together: set {KEY_VARIABLE} to the same secret for \
                     all of them, such as what `openssl rand -hex 32` prints"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Where the first rank waits for the others.
#[derive(Debug)]
pub(super) struct Door {
    pub listeners: Vec<TcpListener>,
    /// The given key, or one that was made for this meeting.
    pub key: Key,
    /// The file with the address, which is removed after the meeting.
    _note: Option<Note>,
}

/// A file with an address, removed when it is dropped.
#[derive(Debug)]
struct Note(PathBuf);

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Door {
    /// Listens at a rendezvous as rank 0 of `ranks`, and announces its address.
    pub fn open(rendezvous: &Rendezvous, ranks: usize, key: Option<&Key>) -> io::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let made = match (rendezvous, key) {
            (Rendezvous::Tcp(_), _) | (_, Some(_)) => None,
            _ => Some(Key::random()?),
        };
        let (listeners, note) = match rendezvous {
            Rendezvous::Tcp(address) => (listen(address)?, None),
            Rendezvous::File(path) | Rendezvous::Local(path) => {
                let at = match rendezvous {
                    Rendezvous::Local(_) => loopback,
                    _ => any,
                };
                let listener = TcpListener::bind(at)?;
                let own = listener.local_addr()?;
                let address = match own.ip().is_loopback() {
                    true => own.to_string(),
                    false => reachable(own),
                };
                write_note(path, &note(&address, made.as_ref()))?;
                (vec![listener], Some(Note(path.clone())))
            }
            Rendezvous::Mpi => {
                let listener = TcpListener::bind(any)?;
                let address = reachable(listener.local_addr()?);
                announce((0, ranks), Some(note(&address, made.as_ref())))?;
                (vec![listener], None)
            }
        };
        Ok(Self {
            listeners,
            key: key.cloned().or(made).unwrap_or_else(Key::none),
            _note: note,
        })
    }
}

/// Listens on every address of this host that a name resolves to.
fn listen(address: &str) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut problem = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            // Such as the IPv6 address of `localhost` on a host without IPv6.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => problem = error,
            Err(error) => return Err(error),
        }
    }
    match listeners.is_empty() {
        true => Err(problem),
        false => Ok(listeners),
    }
}

/// How other ranks reach the first, and the key that it made.
#[derive(Debug)]
pub(super) struct Directions {
    pub address: String,
    pub made: Option<Key>,
}

impl Directions {
    /// The directions at a rendezvous, for a rank and the number of ranks. A file is read as it is now; MPI is asked
    /// once.
    pub fn find(rendezvous: &Rendezvous, place: (usize, usize)) -> io::Result<Self> {
        match rendezvous {
            Rendezvous::Tcp(address) => Ok(Self {
                address: address.clone(),
                made: None,
            }),
            Rendezvous::File(path) | Rendezvous::Local(path) => {
                Ok(Self::of_note(&fs::read_to_string(path)?))
            }
            Rendezvous::Mpi => Ok(Self::of_note(&announce(place, None)?)),
        }
    }

    fn of_note(text: &str) -> Self {
        let mut lines = text.lines();
        let address = lines.next().unwrap_or_default().trim().to_owned();
        let made = lines.next().map(|key| Key::new(key.trim()));
        Self { address, made }
    }
}

/// The text of an address, with a key on the next line.
fn note(address: &str, key: Option<&Key>) -> String {
    let key = key.map_or(String::new(), |key| {
        String::from_utf8_lossy(key.bytes()).into_owned()
    });
    format!("{address}\n{key}").trim_end().to_owned()
}

/// Writes an address whole or not at all. Only the own user can read it.
fn write_note(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    permissions::for_own_user(&mut options);
    let write = || {
        options.open(&temporary)?.write_all(text.as_bytes())?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// The address by which other hosts reach this one: its name. Where no name service knows the name, it is loopback, for
/// ranks of this host.
fn reachable(address: SocketAddr) -> String {
    let port = address.port();
    let is_known = |host: &String| (&host[..], port).to_socket_addrs().is_ok();
    let host = host_name().filter(is_known);
    format!("{}:{port}", host.as_deref().unwrap_or("127.0.0.1"))
}

/// An address with its port, in the form that `connect` takes.
pub(super) fn with_port(host: IpAddr, port: u16) -> String {
    SocketAddr::new(host, port).to_string()
}

/// Fails, because this was built without MPI.
#[cfg(not(feature = "mpi"))]
fn announce(_: (usize, usize), _: Option<String>) -> io::Result<String> {
    Err(io::Error::other(
        "this program was built without MPI; build it with --features mpi, or take --rendezvous tcp://HOST:PORT",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendezvous_are_read_as_they_are_written() {
        for text in [
            "tcp://host:29500",
            "tcp://[::1]:29500",
            "file:some/meet",
            "local:meet",
            "mpi",
        ] {
            let given: Rendezvous = text.parse().unwrap();
            assert_eq!(given.to_string(), text);
        }
        for wrong in [
            "",
            "tcp://",
            "tcp://host",
            "tcp://host:x",
            "tcp://host:0",
            "tcp://host:70000",
            "tcp://:29500",
            "file:",
            "local:",
            "udp://x:1",
        ] {
            assert!(wrong.parse::<Rendezvous>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_required_where_other_hosts_reach_the_port() {
        let key = Key::new("secret");
        let check = |text: &str, key| text.parse::<Rendezvous>().unwrap().check_key(key);
        for local in [
            "tcp://127.0.0.1:29500",
            "tcp://127.8.9.1:29500",
            "tcp://[::1]:29500",
            "local:meet",
            "file:meet",
            "mpi",
        ] {
            assert!(check(local, None).is_ok(), "{local}");
        }
        for open in [
            "tcp://0.0.0.0:29500",
            "tcp://[::]:29500",
            "tcp://192.0.2.7:29500",
            "tcp://no-such-host.invalid:29500",
        ] {
            let said = check(open, None).unwrap_err().to_string();
            assert!(
                said.starts_with(open) && said.contains("set HALFGNN_RENDEZVOUS_KEY to the same"),
                "{said}"
            );
            assert!(check(open, Some(&key)).is_ok(), "{open}");
        }
        assert_eq!(format!("{key:?}"), "Key(…)");
        assert_ne!(Key::random().unwrap(), Key::random().unwrap());
    }

    /// The first rank listens on the named address and on no other.
    #[test]
    fn a_port_binds_the_address_that_is_named() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let named = Rendezvous::Tcp(format!("127.0.0.1:{port}"));
        let door = Door::open(&named, 2, None).unwrap();
        assert_eq!(door.key, Key::none());
        let ips = |door: &Door| -> Vec<IpAddr> {
            let address = |of: &TcpListener| of.local_addr().unwrap().ip();
            door.listeners.iter().map(address).collect()
        };
        assert_eq!(ips(&door), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        // Another address of this host with the same port is free, and nothing answers there.
        #[cfg(target_os = "linux")]
        {
            let other = SocketAddr::from(([127, 0, 0, 2], port));
            assert!(std::net::TcpStream::connect(other).is_err());
            assert!(TcpListener::bind(other).is_ok());
        }
        drop(door);
        let name = Rendezvous::Tcp(format!("localhost:{port}"));
        let door = Door::open(&name, 2, None).unwrap();
        assert!(ips(&door).iter().all(IpAddr::is_loopback) && !ips(&door).is_empty());

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meet");
        let local = Rendezvous::Local(path.clone());
        let door = Door::open(&local, 2, None).unwrap();
        assert_eq!(ips(&door), [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        let directions = Directions::find(&local, (1, 2)).unwrap();
        assert_eq!(directions.made.as_ref(), Some(&door.key));
        assert_eq!(
            directions.address,
            door.listeners[0].local_addr().unwrap().to_string()
        );
        let mode = permissions::mode(&fs::metadata(&path).unwrap().permissions());
        assert!(mode.is_none_or(|mode| mode == 0o600), "{mode:?}");
        drop(door);
        assert!(!path.exists());
        // A given key is not written to the file.
        let key = Key::new("secret");
        let door = Door::open(&Rendezvous::File(path.clone()), 2, Some(&key)).unwrap();
        assert_eq!(door.key, key);
        assert!(!fs::read_to_string(&path).unwrap().contains("secret"));
    }
}
