//! Ranks whose devices move memory from one to another, without the host.
//!
//! A driver says what links its devices ([`Driver::interconnect`](crate::Driver::interconnect)). One rank makes an id,
//! which is handed round by whatever means there are, and each rank is linked by it. From then on
//! [`Driver::transfer`](crate::Driver::transfer) is work like a launch: in the order of the calls, and recorded where
//! launches are.
//!
//! [`LocalLink`] is that of devices that are this process's memory, between threads.

use crate::DriverError;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What links devices of several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interconnect {
    /// The library and its version, such as `NCCL 2.28.9`.
    pub library: String,
    /// What distinguishes this device from all others, of whichever host: no two ranks may have one.
    pub device: [u8; 16],
}

/// Which rank is to be linked.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlace<'a> {
    /// What [`Driver::link_id`](crate::Driver::link_id) gave one of them.
    pub id: &'a [u8],
    /// Its number, from 0 on.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

/// Bytes of a buffer that go to a rank, or come from it.
#[derive(Debug)]
pub struct Part<'a, B> {
    /// Which rank; the own one is as any other.
    pub rank: usize,
    /// Where they lie.
    pub buffer: &'a B,
    /// The first byte.
    pub offset: usize,
    /// How many.
    pub len: usize,
}

/// Asked again and again while a rank waits for the others, with the time that it has waited: why it is to give up, if
/// it is. May take its time, as nothing else goes on.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn(Duration) -> Option<String> + Send + Sync>);

impl Watch {
    /// Who is asked.
    pub fn new(ask: impl Fn(Duration) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Why to give up after having waited for so long, if so.
    pub fn gives_up(&self, waited: Duration) -> Option<String> {
        (self.0)(waited)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// How often a [`Watch`] is asked.
pub(crate) const WATCH_EVERY: Duration = Duration::from_millis(50);

/// The link of threads of one process: bytes are copied, by their order between each two.
#[derive(Clone, Debug)]
pub struct LocalLink(Arc<Local>);

#[derive(Debug)]
struct Local {
    rank: usize,
    ranks: usize,
    room: Arc<Room>,
    watch: Watch,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Room {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What a rank gave another that it has not taken yet.
    messages: HashMap<(usize, usize), VecDeque<Vec<u8>>>,
    /// Why nothing goes on.
    failure: Option<String>,
}

/// Meeting places by their number, as long as a rank is in them.
static ROOMS: Mutex<Option<HashMap<u64, Weak<Room>>>> = Mutex::new(None);

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, reason: String) -> DriverError {
        let mut state = self.state();
        let reason = state.failure.get_or_insert(reason).clone();
        drop(state);
        self.changed.notify_all();
        DriverError::Link(reason)
    }
}

impl LocalLink {
    /// The id of a link that is not in use yet, for ranks of this process alone.
    pub fn id() -> Vec<u8> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = u64::from(std::process::id());
        [number, process].map(u64::to_le_bytes).concat()
    }

    /// The link of a rank.
    ///
    /// # Errors
    /// [`DriverError::Link`] for an id of another process.
    pub fn join(place: LinkPlace<'_>, watch: Watch) -> Result<Self, DriverError> {
        let word = |at: usize| {
            let bytes = place.id.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let number = match (word(0), word(1)) {
            (Some(number), Some(process)) if process == u64::from(std::process::id()) => number,
            _ => {
                return Err(DriverError::Link(
                    "the ranks are processes, and what their devices have is linked between threads alone".into(),
                ));
            }
        };
        let mut rooms = ROOMS.lock().unwrap_or_else(PoisonError::into_inner);
        let rooms = rooms.get_or_insert_default();
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = match rooms.get(&number).and_then(Weak::upgrade) {
            Some(room) => room,
            None => {
                let room = Arc::<Room>::default();
                rooms.insert(number, Arc::downgrade(&room));
                room
            }
        };
        Ok(Self(Arc::new(Local {
            rank: place.rank,
            ranks: place.ranks,
            room,
            watch,
        })))
    }

    /// Gives each of `sends` to its rank, and fills each of `receives` with what its rank gives: between two ranks, in
    /// the order in which both have them.
    ///
    /// # Errors
    /// [`DriverError::Link`] where another number of bytes comes, or the watch gives up.
    pub fn exchange(
        &self,
        sends: Vec<(usize, Vec<u8>)>,
        receives: &mut [(usize, Vec<u8>)],
    ) -> Result<(), DriverError> {
        let Local {
            rank, room, watch, ..
        } = &*self.0;
        let mut state = room.state();
        for (to, bytes) in sends {
            let waiting = state.messages.entry((*rank, to)).or_default();
            waiting.push_back(bytes);
        }
        room.changed.notify_all();
        let start = Instant::now();
        for (from, receive) in receives {
            let bytes = loop {
                if let Some(reason) = &state.failure {
                    return Err(DriverError::Link(reason.clone()));
                }
                let waiting = state.messages.get_mut(&(*from, *rank));
                if let Some(bytes) = waiting.and_then(VecDeque::pop_front) {
                    break bytes;
                }
                let waited = room.changed.wait_timeout(state, WATCH_EVERY);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() {
                    drop(state);
                    if let Some(reason) = watch.gives_up(start.elapsed()) {
                        return Err(room.fail(reason));
                    }
                    state = room.state();
                }
            };
            if bytes.len() != receive.len() {
                drop(state);
                return Err(room.fail(format!(
                    "rank {from} gave {} bytes where rank {rank} wants {}; all ranks must be given the same graph and partition",
                    bytes.len(),
                    receive.len()
                )));
            }
            receive.copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Makes each of `words` the sum of all ranks', which wraps around.
    ///
    /// # Errors
    /// Those of [`LocalLink::exchange`].
    pub fn sum(&self, words: &mut [u32]) -> Result<(), DriverError> {
        let own: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let others = (0..self.0.ranks).filter(|&rank| rank != self.0.rank);
        let sends = others.clone().map(|rank| (rank, own.clone())).collect();
        let mut receives: Vec<_> = others.map(|rank| (rank, own.clone())).collect();
        self.exchange(sends, &mut receives)?;
        for (_, bytes) in &receives {
            for (word, other) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                let other = [other[0], other[1], other[2], other[3]];
                *word = word.wrapping_add(u32::from_le_bytes(other));
            }
        }
        Ok(())
    }

    /// Ends all that ranks still do with it.
    pub fn cut(&self, reason: &str) {
        self.0.room.fail(reason.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(watch: &Watch) -> [LocalLink; 2] {
        let id = &LocalLink::id();
        [0, 1].map(|rank| {
            let place = LinkPlace { id, rank, ranks: 2 };
            LocalLink::join(place, watch.clone()).unwrap()
        })
    }

    #[test]
    fn bytes_come_in_their_order_between_each_two() {
        let [zero, one] = ranks(&Watch::new(|_| None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                one.exchange(vec![(0, vec![1, 2]), (0, vec![3])], &mut [])
                    .unwrap();
                let mut words = [5, u32::MAX];
                one.sum(&mut words).unwrap();
                assert_eq!(words, [12, 0]);
            });
            let mut receives = [(1, vec![0; 2]), (0, vec![0]), (1, vec![0])];
            zero.exchange(vec![(0, vec![9])], &mut receives).unwrap();
            assert_eq!(receives, [(1, vec![1, 2]), (0, vec![9]), (1, vec![3])]);
            let mut words = [7, 1];
            zero.sum(&mut words).unwrap();
            assert_eq!(words, [12, 0]);
        });
    }

    #[test]
    fn who_waits_gives_up_or_is_cut_off() {
        let [zero, one] = ranks(&Watch::new(|waited| {
            (waited > Duration::from_millis(120)).then(|| "nobody answers".into())
        }));
        let told = |link: &LocalLink| {
            let mut receives = [(1, vec![0])];
            link.exchange(vec![], &mut receives)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(told(&zero), "nobody answers");
        // From then on for all.
        assert_eq!(told(&one), "nobody answers");
        let [zero, one] = ranks(&Watch::new(|_| None));
        one.cut("it is enough");
        assert_eq!(told(&zero), "it is enough");
        let [zero, one] = ranks(&Watch::new(|_| None));
        one.exchange(vec![(0, vec![1, 2])], &mut []).unwrap();
        assert!(told(&zero).contains("rank 1 gave 2 bytes where rank 0 wants 1"));
        let place = LinkPlace {
            id: &[0; 16],
            rank: 0,
            ranks: 2,
        };
        assert!(LocalLink::join(place, Watch::new(|_| None)).is_err());
    }
}
