//! Which accesses of a block are ordered: a clock for each warp, and who has seen whose.
//!
//! A warp's clock advances with each barrier it takes part in. An access carries the thread and its warp's clock; a
//! later access is ordered after it when the later one's warp (or, inside a warp, its lane) has synchronised with the
//! earlier one's since. `bar.sync`, also with a part of the block, and `bar.warp.sync`, also with a part of the warp,
//! synchronise; shuffles and votes do not, as in PTX's memory model.
//!
//! [`ClockedAccess::next`] is the state machine of one *thread cell*: what the last accesses were, in 32 bits. Where it
//! must forget, it forgets towards silence: it may miss a race among three or more threads, and never reports an
//! ordered pair.

use crate::shadow::Touch;

const CLOCK_BITS: u32 = 19;
const CLOCK_MASK: u32 = (1 << CLOCK_BITS) - 1;
const WHO_MASK: u32 = 0x3FF;
const KIND_SHIFT: u32 = 29;

const WRITE: u32 = 1;
const READ: u32 = 2;
const ATOMIC: u32 = 3;
/// Several lanes of one warp read: the warp, and the clock of the first.
const READ_BY_WARP: u32 = 4;
/// Several warps read: the number of whole-block barriers by then.
const READ_BY_MANY: u32 = 5;

struct WarpClock {
    now: u32,
    /// Accesses before this clock are ordered for all lanes of the warp.
    all_lanes: u32,
    /// After a barrier of some lanes only: for each lane, which clock of each other lane it has seen.
    lanes: Option<Box<[[u32; 32]; 32]>>,
}

pub(crate) struct Clocks {
    warps: Vec<WarpClock>,
    /// `known[w][x]`: accesses of warp `x` before this clock are ordered for warp `w`.
    known: Vec<Vec<u32>>,
    block_barriers: u32,
    partial_barriers: bool,
}

impl Clocks {
    pub(crate) fn new(warps: usize) -> Self {
        let warp = || WarpClock {
            now: 1,
            all_lanes: 0,
            lanes: None,
        };
        Self {
            warps: (0..warps).map(|_| warp()).collect(),
            known: vec![vec![0; warps]; warps],
            block_barriers: 0,
            partial_barriers: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        for w in &mut self.warps {
            *w = WarpClock {
                now: 1,
                all_lanes: 0,
                lanes: None,
            };
        }
        self.known.iter_mut().for_each(|k| k.fill(0));
        (self.block_barriers, self.partial_barriers) = (0, false);
    }

    /// A barrier that these warps took part in.
    pub(crate) fn block_barrier(&mut self, participants: &[usize]) {
        let mut merged = vec![0u32; self.warps.len()];
        for &p in participants {
            for (m, k) in merged.iter_mut().zip(&self.known[p]) {
                *m = (*m).max(*k);
            }
        }
        for &p in participants {
            self.warps[p].now += 1;
            merged[p] = self.warps[p].now;
            self.warps[p].all_lanes = self.warps[p].now;
        }
        for &p in participants {
            self.known[p].copy_from_slice(&merged);
        }
        if participants.len() == self.warps.len() {
            self.block_barriers += 1;
        } else {
            self.partial_barriers = true;
        }
    }

    /// `bar.warp.sync` of `lanes`, all of the warp's live ones if `whole`.
    pub(crate) fn warp_barrier(&mut self, warp: usize, lanes: u32, whole: bool) {
        let w = &mut self.warps[warp];
        w.now += 1;
        if whole {
            w.all_lanes = w.now;
            return;
        }
        let matrix = w.lanes.get_or_insert_with(|| Box::new([[0; 32]; 32]));
        let members = || (0..32usize).filter(|l| lanes >> l & 1 == 1);
        let mut merged = [0u32; 32];
        for l in members() {
            for (m, k) in merged.iter_mut().zip(&matrix[l]) {
                *m = (*m).max(*k);
            }
        }
        for l in members() {
            merged[l] = w.now;
        }
        for l in members() {
            matrix[l] = merged;
        }
    }

    fn is_ordered(&self, who: u32, clock: u32, warp: usize, lane: usize) -> bool {
        let (other, other_lane) = ((who / 32) as usize, (who % 32) as usize);
        if other != warp {
            return self.known[warp].get(other).is_some_and(|k| *k > clock);
        }
        let w = &self.warps[warp];
        w.all_lanes > clock
            || w.lanes
                .as_ref()
                .is_some_and(|m| m[lane][other_lane] > clock)
    }

    /// An access by `thread` of the block, before it has been to a cell.
    #[inline(always)]
    pub(crate) fn access(&self, thread: u32, touch: Touch) -> ClockedAccess<'_> {
        let kind = match touch {
            Touch::Write => WRITE,
            Touch::Read => READ,
            Touch::Atomic => ATOMIC,
        };
        let fresh = kind << KIND_SHIFT
            | (thread & WHO_MASK) << CLOCK_BITS
            | self.warps[(thread / 32) as usize].now & CLOCK_MASK;
        ClockedAccess {
            clocks: self,
            thread,
            touch,
            fresh,
            before: 0,
            after: Some(fresh),
        }
    }

    /// What becomes of a cell that holds another access than this one.
    fn next(&self, cell: u32, fresh: u32, thread: u32, touch: Touch) -> Option<u32> {
        let (warp, lane) = ((thread / 32) as usize, (thread % 32) as usize);
        let (kind, who, clock) = (
            cell >> KIND_SHIFT,
            cell >> CLOCK_BITS & WHO_MASK,
            cell & CLOCK_MASK,
        );
        let now = self.warps[warp].now;
        if now > CLOCK_MASK {
            // The cells cannot hold such a clock: from here on this block is not checked.
            return Some(fresh);
        }
        let many = READ_BY_MANY << KIND_SHIFT | self.block_barriers & CLOCK_MASK;
        match kind {
            WRITE | READ | ATOMIC => {
                if who == thread {
                    // Within one interval a write stays visible behind the thread's own later reads.
                    let keep =
                        clock == now && (kind == WRITE || (kind == ATOMIC && touch == Touch::Read));
                    return Some(if keep { cell } else { fresh });
                }
                if self.is_ordered(who, clock, warp, lane) {
                    return Some(fresh);
                }
                match (kind, touch) {
                    (READ, Touch::Read) if who as usize / 32 == warp => {
                        Some(READ_BY_WARP << KIND_SHIFT | (warp as u32) << CLOCK_BITS | clock)
                    }
                    (READ, Touch::Read) => Some(many),
                    (ATOMIC, Touch::Atomic) => Some(fresh),
                    _ => None,
                }
            }
            READ_BY_WARP => {
                let ordered = if who as usize == warp {
                    self.warps[warp].all_lanes > clock
                        || (touch != Touch::Read && self.warps[warp].lanes.is_some())
                } else {
                    self.known[warp]
                        .get(who as usize)
                        .is_some_and(|k| *k > clock)
                };
                match touch {
                    _ if ordered => Some(fresh),
                    Touch::Read if who as usize == warp => Some(cell),
                    Touch::Read => Some(many),
                    _ => None,
                }
            }
            _ => {
                let passed = self.block_barriers & CLOCK_MASK != clock;
                match touch {
                    _ if passed => Some(fresh),
                    Touch::Read => Some(cell),
                    _ => self.partial_barriers.then_some(fresh),
                }
            }
        }
    }

    /// A thread that the cell's last access may have come from.
    pub(crate) fn culprit(cell: u32) -> Option<u32> {
        match cell >> KIND_SHIFT {
            WRITE | READ | ATOMIC => Some(cell >> CLOCK_BITS & WHO_MASK),
            _ => None,
        }
    }
}

/// An access to some cells, of which those side by side mostly hold the same.
pub(crate) struct ClockedAccess<'a> {
    clocks: &'a Clocks,
    thread: u32,
    touch: Touch,
    /// The state of a cell without an access.
    fresh: u32,
    /// What the last cell held, and what became of it.
    before: u32,
    after: Option<u32>,
}

impl ClockedAccess<'_> {
    /// What a cell holds after the access, or nothing if it races with what the cell holds.
    #[inline(always)]
    pub(crate) fn next(&mut self, cell: u32) -> Option<u32> {
        if cell != self.before {
            self.before = cell;
            let Self {
                fresh,
                thread,
                touch,
                ..
            } = *self;
            self.after = if cell == 0 || cell == fresh {
                Some(fresh)
            } else {
                self.clocks.next(cell, fresh, thread, touch)
            };
        }
        self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Touch::*;

    fn next(clocks: &Clocks, cell: u32, thread: u32, touch: Touch) -> Option<u32> {
        clocks.access(thread, touch).next(cell)
    }

    fn run(clocks: &Clocks, accesses: &[(u32, Touch)]) -> Option<u32> {
        accesses.iter().try_fold(0, |cell, (thread, touch)| {
            next(clocks, cell, *thread, *touch)
        })
    }

    #[test]
    fn unordered_writes_race_and_reads_do_not() {
        let clocks = Clocks::new(3);
        assert!(run(&clocks, &[(0, Write), (1, Read)]).is_none());
        assert!(run(&clocks, &[(0, Write), (0, Read), (1, Read)]).is_none());
        assert!(run(&clocks, &[(0, Read), (1, Read), (40, Read)]).is_some());
        assert!(run(&clocks, &[(0, Read), (1, Read), (40, Read), (0, Write)]).is_none());
        assert!(run(&clocks, &[(0, Atomic), (70, Atomic)]).is_some());
        assert!(run(&clocks, &[(0, Atomic), (70, Read)]).is_none());
    }

    #[test]
    fn barriers_order() {
        let mut clocks = Clocks::new(2);
        let cell = run(&clocks, &[(0, Write)]).unwrap();
        clocks.block_barrier(&[0, 1]);
        let cell = next(&clocks, cell, 33, Read).unwrap();
        let cell = next(&clocks, cell, 0, Read).unwrap();
        assert!(next(&clocks, cell, 1, Write).is_none());
        clocks.block_barrier(&[0, 1]);
        assert!(next(&clocks, cell, 1, Write).is_some());
    }

    #[test]
    fn a_barrier_of_some_warps_orders_only_them() {
        let mut clocks = Clocks::new(3);
        let cell = run(&clocks, &[(0, Write)]).unwrap();
        clocks.block_barrier(&[0, 1]);
        assert!(next(&clocks, cell, 32, Read).is_some());
        assert!(next(&clocks, cell, 64, Read).is_none());
        // Through warp 1, warp 2 learns of warp 0.
        clocks.block_barrier(&[1, 2]);
        assert!(next(&clocks, cell, 64, Read).is_some());
    }

    #[test]
    fn a_barrier_of_some_lanes_orders_only_them() {
        let mut clocks = Clocks::new(1);
        let cell = run(&clocks, &[(0, Write)]).unwrap();
        clocks.warp_barrier(0, 0b11, false);
        assert!(next(&clocks, cell, 1, Read).is_some());
        assert!(next(&clocks, cell, 2, Read).is_none());
        clocks.warp_barrier(0, 0b110, false);
        assert!(next(&clocks, cell, 2, Read).is_some());
        clocks.warp_barrier(0, u32::MAX, true);
        assert!(next(&clocks, cell, 31, Write).is_some());
    }

    /// An access to many cells makes of each what one to it alone does.
    #[test]
    fn cells_do_not_learn_from_each_other() {
        let mut clocks = Clocks::new(2);
        let old = run(&clocks, &[(3, Write)]).unwrap();
        clocks.block_barrier(&[0, 1]);
        let own = run(&clocks, &[(3, Write)]).unwrap();
        let other = run(&clocks, &[(40, Read)]).unwrap();
        let cells = [0, old, own, own, other, other, 0, old, own];
        for touch in [Read, Write, Atomic] {
            let mut access = clocks.access(3, touch);
            for cell in cells {
                assert_eq!(
                    access.next(cell),
                    next(&clocks, cell, 3, touch),
                    "{touch:?}"
                );
            }
        }
    }
}
