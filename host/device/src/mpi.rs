//! MPI, opened at run time: what moves bytes between the processes that `mpirun` or `srun` started.
//!
//! The part of it that is called is declared by hand after MPI 3.1 (<https://www.mpi-forum.org/docs>, §3.7 nonblocking
//! communication, §5.4 broadcast, §8.7 startup). What a communicator or a type *is* each MPI decides by itself: bound
//! here is Open MPI, from version 2 on, where they are addresses of variables.

use crate::DriverError;
use halfgnn_platform::library::{Library, Symbols};
use halfgnn_platform::support::Feature;
use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Environment variable that names the library's file, instead of `libmpi.so.40` where the dynamic linker looks.
pub const LIBRARY_VARIABLE: &str = "HALFGNN_LIBMPI";

/// Open MPI's name since its version 2.
const NAME: &str = "libmpi.so.40";

/// What to do where there is none.
const ADVICE: &str = "Debian's libopenmpi3 has Open MPI, and HALFGNN_LIBMPI may name its file; or take --rendezvous tcp://HOST:PORT, which wants none";

/// `MPI_SUCCESS`.
const SUCCESS: c_int = 0;
/// `MPI_THREAD_SERIALIZED` of Open MPI: threads call one at a time.
const SERIALIZED: c_int = 2;
/// `MPI_MAX_LIBRARY_VERSION_STRING` of Open MPI, which is its longest text.
const LONGEST_TEXT: usize = 256;
/// Bytes of a message at most: a count is a C `int`.
const LONGEST_MESSAGE: usize = 1 << 30;
/// The tag of all messages: between two ranks they come in the order in which they were sent.
const TAG: c_int = 186;
/// How long is waited before it is asked again whether messages have come, once they have not for a while.
const REST: Duration = Duration::from_micros(20);

/// `MPI_Comm`, `MPI_Datatype`, `MPI_Errhandler`, `MPI_Request`.
type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ident: $ty:ty),* $(,)?);)*) => {
        /// The functions of an open library.
        struct Functions {
            $($field: unsafe extern "C" fn($($ty),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            /// The library is an MPI, and is never closed while the pointers can be called.
            unsafe fn bind(library: &Library) -> Result<Self, String> {
                // SAFETY: each symbol is declared as MPI 3.1 has it, where handles are pointers; the rest is the
                // caller's promise.
                unsafe {
                    Ok(Self {
                        $($field: library.get::<unsafe extern "C" fn($($ty),*) -> c_int>(
                            concat!($symbol, "\0").as_bytes(),
                        )?,)*
                    })
                }
            }
        }
    };
}

functions! {
    initialized = "MPI_Initialized": fn(flag: *mut c_int);
    init_thread = "MPI_Init_thread": fn(argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int);
    finalize = "MPI_Finalize": fn();
    set_errhandler = "MPI_Comm_set_errhandler": fn(comm: Handle, handler: Handle);
    comm_rank = "MPI_Comm_rank": fn(comm: Handle, rank: *mut c_int);
    comm_size = "MPI_Comm_size": fn(comm: Handle, size: *mut c_int);
    library_version = "MPI_Get_library_version": fn(text: *mut c_char, len: *mut c_int);
    error_string = "MPI_Error_string": fn(code: c_int, text: *mut c_char, len: *mut c_int);
    broadcast = "MPI_Bcast": fn(bytes: *mut c_void, count: c_int, ty: Handle, root: c_int, comm: Handle);
    isend = "MPI_Isend": fn(bytes: *const c_void, count: c_int, ty: Handle, to: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    irecv = "MPI_Irecv": fn(bytes: *mut c_void, count: c_int, ty: Handle, from: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    testall = "MPI_Testall": fn(count: c_int, requests: *mut Handle, flag: *mut c_int, statuses: *mut c_void);
}

/// What of the library is a handle: the address of its variable.
#[derive(Clone, Copy)]
struct Handles {
    world: Handle,
    byte: Handle,
    errors_return: Handle,
}

/// Whether the library is to be called still.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Begun,
    Ended,
}

/// The MPI of this process.
pub struct Mpi {
    functions: Functions,
    handles: Handles,
    /// Held by the thread that calls it.
    life: Mutex<Life>,
    rank: usize,
    ranks: usize,
    version: String,
    /// What the pointers point into.
    _library: Library,
}

// SAFETY: handles are addresses of variables of a library that stays open; calls are made by one thread at a time, who
// holds `life`, as MPI_THREAD_SERIALIZED asks.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)
    }
}

impl Mpi {
    /// That of this process, which is begun by the first call: it waits for all that the launcher has started.
    ///
    /// # Errors
    /// [`DriverError::Link`] where there is none, or one that is not Open MPI, and how to come by one; and with its
    /// words where it does not begin.
    pub fn begin() -> Result<&'static Self, DriverError> {
        static BEGUN: OnceLock<Result<Mpi, String>> = OnceLock::new();
        BEGUN
            .get_or_init(|| {
                (Feature::Mpi.expect()).map_err(|refusal| refusal.to_string())?;
                let named = env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
                let name = named.unwrap_or_else(|| NAME.into());
                // SAFETY: opening a library runs its initialisers: of an MPI, or of what the user vouches for. Its own
                // plugins look for its symbols among the global ones.
                let library = unsafe { Library::open(&name, Symbols::Global) };
                let library = library.map_err(|words| format!("no MPI: {words}; {ADVICE}"))?;
                Self::of(library, &name.to_string_lossy())
            })
            .as_ref()
            .map_err(|reason| DriverError::Link(reason.clone()))
    }

    fn of(library: Library, name: &str) -> Result<Self, String> {
        let none = |words: String| format!("{name} is not Open MPI: {words}; {ADVICE}");
        // SAFETY: these are variables of Open MPI, whose addresses are what its header has for the handles; nothing is
        // read of them here.
        let variable = |symbol: &[u8]| unsafe { library.get::<*mut c_void>(symbol) };
        let handles = Handles {
            world: variable(b"ompi_mpi_comm_world\0").map_err(none)?,
            byte: variable(b"ompi_mpi_byte\0").map_err(none)?,
            errors_return: variable(b"ompi_mpi_errors_return\0").map_err(none)?,
        };
        // SAFETY: a library with those variables is an MPI; it is never closed.
        let functions = unsafe { Functions::bind(&library) }.map_err(none)?;
        let (mut begun, mut provided, mut rank, mut ranks) = (0, 0, 0, 0);
        let mut text = [0; LONGEST_TEXT];
        let mut len = 0;
        // SAFETY: both may be called at any time (§8.1, §8.7); they write an integer, and a text with its end that is
        // no longer than the longest.
        unsafe {
            (functions.initialized)(&mut begun);
            (functions.library_version)(text.as_mut_ptr(), &mut len);
        }
        // SAFETY: the library has written a text and its end, or the first byte is the end still.
        let version = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        // `Open MPI v4.1.4, package: …`.
        let version = version.split(',').next().unwrap_or_default().to_owned();
        if begun != 0 {
            return Err(format!(
                "{version}: somebody else has begun it in this process"
            ));
        }
        // SAFETY: it has not begun; argc and argv may be absent (§8.7), and how threads may call it is written.
        let done =
            unsafe { (functions.init_thread)(null_mut(), null_mut(), SERIALIZED, &mut provided) };
        if done != SUCCESS || provided < SERIALIZED {
            return Err(format!(
                "{version} does not begin, or not for a program of threads; start all ranks by its mpirun, or by an srun that it was built for"
            ));
        }
        // SAFETY: it has begun; each of the two writes an integer.
        unsafe {
            (functions.set_errhandler)(handles.world, handles.errors_return);
            (functions.comm_rank)(handles.world, &mut rank);
            (functions.comm_size)(handles.world, &mut ranks);
        }
        Ok(Self {
            functions,
            handles,
            life: Mutex::new(Life::Begun),
            rank: rank.unsigned_abs() as usize,
            ranks: ranks.unsigned_abs() as usize,
            version,
            _library: library,
        })
    }

    /// Which process of the launcher's this is, from 0 on.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Its name and version, such as `Open MPI v4.1.4`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Gives all what `bytes` are in rank 0. All call it at once: it waits for them.
    ///
    /// # Errors
    /// [`DriverError::Link`] with its words.
    pub fn broadcast<const N: usize>(&self, bytes: &mut [u8; N]) -> Result<(), DriverError> {
        let count = const {
            assert!(N <= LONGEST_MESSAGE);
            N as c_int
        };
        let _calling = self.calling()?;
        let (byte, world) = (self.handles.byte, self.handles.world);
        // SAFETY: it reads or writes the given number of bytes, and is done with them when it returns.
        let done =
            unsafe { (self.functions.broadcast)(bytes.as_mut_ptr().cast(), count, byte, 0, world) };
        self.check("MPI_Bcast", done)
    }

    /// Gives `sends[r]` to each rank `r`, and fills `receives[r]` with what that gives, which must be as long; nothing
    /// goes where both are empty. Whether all has come before `is_over` says that nothing will.
    ///
    /// # Errors
    /// [`DriverError::Link`] with its words. Then, and where it is over, what has come is lost, and nothing else may be
    /// exchanged.
    pub fn exchange(
        &self,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
        mut is_over: impl FnMut() -> bool,
    ) -> Result<bool, DriverError> {
        // What the library reads and writes has no other owner, and is left to it where it is not done.
        let mut flight = Box::new(Flight::default());
        let done = self.fly(&mut flight, (sends, receives), &mut is_over);
        if !matches!(done, Ok(true)) {
            Box::leak(flight);
            return done;
        }
        for (receive, came) in receives.iter_mut().zip(&flight.receives) {
            receive.copy_from_slice(came);
        }
        Ok(true)
    }

    fn fly(
        &self,
        flight: &mut Flight,
        (sends, receives): (&[&[u8]], &[&mut [u8]]),
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<bool, DriverError> {
        flight.sends = sends.iter().map(|bytes| bytes.to_vec()).collect();
        flight.receives = receives.iter().map(|room| vec![0; room.len()]).collect();
        let Handles { world, byte, .. } = self.handles;
        let calling = self.calling()?;
        for (from, room) in flight.receives.iter_mut().enumerate() {
            for part in room.chunks_mut(LONGEST_MESSAGE) {
                let (at, count) = (part.as_mut_ptr().cast(), part.len() as c_int);
                let mut request = null_mut();
                // SAFETY: the buffer is `flight`'s, which lives until the request is done, or for good; a request is
                // written.
                let done = unsafe {
                    (self.functions.irecv)(at, count, byte, from as c_int, TAG, world, &mut request)
                };
                self.check("MPI_Irecv", done)?;
                flight.requests.push(request);
            }
        }
        for (to, bytes) in flight.sends.iter().enumerate() {
            for part in bytes.chunks(LONGEST_MESSAGE) {
                let (at, count) = (part.as_ptr().cast(), part.len() as c_int);
                let mut request = null_mut();
                // SAFETY: as above; the bytes are not written.
                let done = unsafe {
                    (self.functions.isend)(at, count, byte, to as c_int, TAG, world, &mut request)
                };
                self.check("MPI_Isend", done)?;
                flight.requests.push(request);
            }
        }
        drop(calling);
        let mut asked = 0_u32;
        loop {
            let calling = self.calling()?;
            let count = flight.requests.len() as c_int;
            let mut all = 0;
            // SAFETY: the given number of requests, which it overwrites where they are done; MPI_STATUSES_IGNORE is a
            // null pointer in Open MPI.
            let done = unsafe {
                let ignore = null::<c_void>().cast_mut();
                (self.functions.testall)(count, flight.requests.as_mut_ptr(), &mut all, ignore)
            };
            drop(calling);
            self.check("MPI_Testall", done)?;
            if all != 0 {
                return Ok(true);
            }
            asked += 1;
            // Most have come by then, where all ranks are at work.
            if asked > 1000 {
                if is_over() {
                    return Ok(false);
                }
                std::thread::sleep(REST);
            }
        }
    }

    /// Ends it, which waits for all ranks to. Nothing is exchanged any more.
    pub fn end(&self) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if *life == Life::Begun {
            *life = Life::Ended;
            // SAFETY: it was begun, and is called no more.
            unsafe { (self.functions.finalize)() };
        }
    }

    /// The right to call it.
    fn calling(&self) -> Result<MutexGuard<'_, Life>, DriverError> {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        match *life {
            Life::Begun => Ok(life),
            Life::Ended => Err(DriverError::Link(
                "MPI has ended in this process, and begins once".into(),
            )),
        }
    }

    fn check(&self, call: &str, done: c_int) -> Result<(), DriverError> {
        match done {
            SUCCESS => Ok(()),
            code => Err(self.failed(call, code)),
        }
    }

    fn failed(&self, call: &str, code: c_int) -> DriverError {
        let (mut text, mut len) = ([0; LONGEST_TEXT], 0);
        // SAFETY: it writes a text of at most the given number of bytes and its length; it may be called at any time
        // (§8.3).
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr(), &mut len) };
        // SAFETY: the text ends within it.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        DriverError::Link(format!("{}: {call}: {text}", self.version))
    }
}

/// Messages that are on their way.
#[derive(Default)]
struct Flight {
    sends: Vec<Vec<u8>>,
    receives: Vec<Vec<u8>>,
    requests: Vec<Handle>,
}
