//! Who touched which global memory in a launch: the state from which races are found.
//!
//! Two cells of 32 bits stand for every two bytes. The *block cell* says which blocks touched them and how; its states
//! remember enough that whether two blocks race on an address does not depend on the order in which they ran. The
//! *thread cell* belongs to the one block that has them and holds the last access inside it, with the clock of its warp
//! (see
//! [`crate::order`]). Both carry the number of the launch, so that a new launch needs no clearing.
//!
//! Accesses of single bytes go to a table next to the cells: they are rare in these kernels, and two bytes of one cell
//! may belong to two blocks.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Launches after which the numbers start over and the cells must be cleared.
pub(crate) const EPOCHS: u32 = 1 << 9;

const KIND_SHIFT: u32 = 20;
const EPOCH_SHIFT: u32 = 23;
/// Block numbers are kept modulo this: two blocks a million apart would pass for one.
const BLOCK_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// Repeats a cell for both halves of a word.
const BOTH_HALVES: u64 = 1 << 32 | 1;
const BOTH_BLOCKS: u64 = BLOCK_MASK as u64 * BOTH_HALVES;

const READ_BY: u32 = 1;
const READ_BY_MANY: u32 = 2;
const OWNED_BY: u32 = 3;
const ATOMIC_BY: u32 = 4;
const ATOMIC_BY_MANY: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    Atomic,
}

/// What a block's access found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// This block has no access here yet.
    First,
    /// Only this block was here, so the thread cell is its own.
    Own,
    /// Many blocks read, or many use atomics: nothing to order inside the block.
    Shared,
    /// Another block was here, and one of the two writes.
    Race,
}

/// A cell's next state, and what was found.
fn step(cell: u32, epoch: u32, block: u32, touch: Touch) -> (u32, Found) {
    let me = block & BLOCK_MASK;
    let make = |kind: u32| epoch << EPOCH_SHIFT | kind << KIND_SHIFT | me;
    if cell >> EPOCH_SHIFT != epoch {
        let kind = match touch {
            Touch::Read => READ_BY,
            Touch::Write => OWNED_BY,
            Touch::Atomic => ATOMIC_BY,
        };
        return (make(kind), Found::First);
    }
    let mine = cell & BLOCK_MASK == me;
    match (cell >> KIND_SHIFT & 7, touch) {
        (READ_BY, Touch::Read) if mine => (cell, Found::Own),
        (READ_BY, Touch::Read) => (make(READ_BY_MANY), Found::Shared),
        (READ_BY_MANY, Touch::Read) | (ATOMIC_BY_MANY, Touch::Atomic) => (cell, Found::Shared),
        (ATOMIC_BY, Touch::Atomic) if mine => (cell, Found::Own),
        (ATOMIC_BY, Touch::Atomic) => (make(ATOMIC_BY_MANY), Found::Shared),
        (READ_BY | OWNED_BY | ATOMIC_BY, _) if mine => (make(OWNED_BY), Found::Own),
        _ => (cell, Found::Race),
    }
}

/// Block and thread cells of single bytes, by their offset.
type ByteCells = HashMap<u64, (u32, u32)>;

pub(crate) struct Shadow {
    /// Two block cells for each word of four bytes.
    blocks: Box<[AtomicU64]>,
    /// Two thread cells for each word.
    threads: Box<[AtomicU64]>,
    /// Cells of the launch of this number.
    bytes: Mutex<(u32, ByteCells)>,
}

impl Shadow {
    pub(crate) fn new(len: u64) -> Self {
        // Zeroed by the system page by page, when a page is touched: what no kernel touches costs no memory.
        let cells = || bytemuck::zeroed_slice_box(len.div_ceil(4) as usize);
        Self {
            blocks: cells(),
            threads: cells(),
            bytes: Mutex::default(),
        }
    }

    pub(crate) fn clear(&self) {
        for cell in &self.blocks {
            cell.store(0, Relaxed);
        }
        self.with_bytes(0, |bytes| bytes.clear());
    }

    fn with_bytes<T>(&self, epoch: u32, f: impl FnOnce(&mut ByteCells) -> T) -> T {
        let mut guard = self
            .bytes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if guard.0 != epoch {
            *guard = (epoch, HashMap::new());
        }
        f(&mut guard.1)
    }

    /// Notes an access of `bytes` (1, 2, 4, 8 or 16, aligned). `thread` gets the block's own thread cell, 0 at first,
    /// and gives its next state, or nothing for a race inside the block. The result is the first race, if there is one:
    /// its offset, and whether it is one between blocks.
    #[inline(always)]
    pub(crate) fn touch(
        &self,
        epoch: u32,
        block: u32,
        offset: u64,
        bytes: u32,
        touch: Touch,
        mut thread: impl FnMut(u32) -> Option<u32>,
    ) -> Option<(u64, bool)> {
        if bytes == 1 {
            return self.touch_byte(epoch, block, offset, touch, thread);
        }
        let first = (offset / 4) as usize;
        let (words, halves) = if bytes == 2 {
            (1, 1 << (offset / 2 % 2))
        } else {
            (bytes as usize / 4, 3u32)
        };
        // What many blocks read, as most of a kernel's input is, needs no more than this comparison.
        let settled = u64::from(epoch << EPOCH_SHIFT | READ_BY_MANY << KIND_SHIFT) * BOTH_HALVES;
        for i in first..first + words {
            let cell = &self.blocks[i];
            let mut current = cell.load(Relaxed);
            if touch == Touch::Read && current & !BOTH_BLOCKS == settled {
                continue;
            }
            let (race, own, keep) = loop {
                let (mut next, mut race, mut own, mut keep) = (current, None, 0, 0);
                for half in (0..2).filter(|h| halves >> h & 1 == 1) {
                    let shift = half * 32;
                    let (state, found) = step((current >> shift) as u32, epoch, block, touch);
                    next = next & !(u64::from(u32::MAX) << shift) | u64::from(state) << shift;
                    match found {
                        Found::First => own |= 1 << half,
                        Found::Own => {
                            own |= 1 << half;
                            keep |= 1 << half;
                        }
                        Found::Shared => {}
                        Found::Race => race = race.or(Some(i as u64 * 4 + half * 2)),
                    }
                }
                if next == current {
                    break (race, own, keep);
                }
                match cell.compare_exchange_weak(current, next, Relaxed, Relaxed) {
                    Ok(_) => break (race, own, keep),
                    Err(other) => current = other,
                }
            };
            if let Some(at) = race {
                return Some((at, true));
            }
            if own != 0 {
                let cell = &self.threads[i];
                let old = cell.load(Relaxed);
                let mut new = old;
                for half in (0..2).filter(|h| own >> h & 1 == 1) {
                    let shift = half * 32;
                    let before = if keep >> half & 1 == 1 {
                        (old >> shift) as u32
                    } else {
                        0
                    };
                    let Some(after) = thread(before) else {
                        return Some((i as u64 * 4 + half * 2, false));
                    };
                    new = new & !(u64::from(u32::MAX) << shift) | u64::from(after) << shift;
                }
                if new != old {
                    cell.store(new, Relaxed);
                }
            }
        }
        None
    }

    fn touch_byte(
        &self,
        epoch: u32,
        block: u32,
        offset: u64,
        touch: Touch,
        mut thread: impl FnMut(u32) -> Option<u32>,
    ) -> Option<(u64, bool)> {
        self.with_bytes(epoch, |bytes| {
            let entry = bytes.entry(offset).or_default();
            let (state, found) = step(entry.0, epoch, block, touch);
            entry.0 = state;
            let before = match found {
                Found::Race => return Some((offset, true)),
                Found::Shared => return None,
                Found::First => 0,
                Found::Own => entry.1,
            };
            match thread(before) {
                Some(after) => {
                    entry.1 = after;
                    None
                }
                None => Some((offset, false)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Touch::*;

    fn races(accesses: &[(u32, u64, u32, Touch)]) -> bool {
        let shadow = Shadow::new(64);
        accesses.iter().any(|(block, offset, bytes, touch)| {
            shadow
                .touch(1, *block, *offset, *bytes, *touch, |_| Some(1))
                .is_some_and(|r| r.1)
        })
    }

    /// Whether two blocks race is the same in every order of their accesses.
    #[test]
    fn between_blocks_the_order_does_not_matter() {
        let touches = [Read, Write, Atomic];
        for a in touches {
            for b in touches {
                for c in touches {
                    let list = [(1, 4, 4, a), (2, 4, 4, b), (1, 4, 4, c)];
                    let conflict =
                        |x: Touch, y: Touch| !matches!((x, y), (Read, Read) | (Atomic, Atomic));
                    let expected = conflict(a, b) || conflict(b, c);
                    for order in [
                        [0, 1, 2],
                        [0, 2, 1],
                        [1, 0, 2],
                        [1, 2, 0],
                        [2, 0, 1],
                        [2, 1, 0],
                    ] {
                        assert_eq!(
                            races(&order.map(|i| list[i])),
                            expected,
                            "{a:?} {b:?} {c:?} {order:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn halves_and_bytes_of_a_word_are_apart() {
        assert!(!races(&[
            (1, 0, 2, Write),
            (2, 2, 2, Write),
            (3, 4, 4, Write)
        ]));
        assert!(races(&[(1, 0, 2, Write), (2, 0, 4, Read)]));
        assert!(!races(&[(1, 0, 1, Write), (2, 1, 1, Write)]));
        assert!(races(&[(1, 0, 1, Write), (2, 0, 1, Read)]));
        assert!(races(&[(1, 0, 16, Write), (2, 14, 2, Read)]));
    }

    #[test]
    fn a_new_launch_forgets() {
        let shadow = Shadow::new(16);
        assert_eq!(shadow.touch(1, 1, 0, 4, Write, |_| Some(1)), None);
        assert_eq!(
            shadow.touch(2, 2, 0, 4, Write, |old| (old == 0).then_some(1)),
            None
        );
        assert_eq!(shadow.touch(2, 3, 0, 4, Read, |_| Some(1)), Some((0, true)));
    }
}
