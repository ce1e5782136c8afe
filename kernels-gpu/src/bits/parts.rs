//! Parts of rows that cross warps and CTAs.
//!
//! Each warp leaves in shared memory what it is marked with, then a part of the row that began before it, then one of the row that goes on after
//! it. A CTA puts them together, and stages what crosses CTAs.

use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::block_idx_x;
use crate::device::warp::{lane_id, warp_id};
use core::marker::PhantomData;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, NO_ROW, STAGED_PARTS, staged_part, staged_words,
};

/// What some edges of a row come to.
pub trait Partial: Sized {
    /// Bytes of shared memory that it takes: a multiple of 8.
    const BYTES: u32;
    /// Words of a row of bits.
    const WORDS: u32;
    /// Whether columns of the graph have factors.
    const FACTORED: bool;
    /// Warps of a CTA.
    const WARPS: u32;
    /// That of no edges.
    const NOTHING: Self;

    /// Stores what the lane has of it.
    ///
    /// # Safety
    /// The launch contract; the bytes are there, and no other lane has the same of a part.
    unsafe fn store(&self, at: Shared);

    /// Adds what was stored.
    ///
    /// # Safety
    /// It was, before a barrier.
    unsafe fn add(&mut self, at: Shared);
}

/// A part of which all lanes of a warp have columns.
pub trait Joined: Partial {
    /// Writes a row, as this is all of it.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together with the same row, which nobody else writes.
    unsafe fn write(&self, params: &BspmmParams, row: u32);

    /// Stages it for the follow-up, a sum a column.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and the words are theirs.
    unsafe fn stage(&self, to: Global<u32>);
}

/// The parts of a CTA.
pub struct Parts<'a, S> {
    params: &'a BspmmParams,
    kind: PhantomData<S>,
}

/// Which part of a warp's.
#[derive(Clone, Copy)]
pub enum Part {
    /// Of the row that began before it and ends in it.
    Head,
    /// Of the row that goes on after it.
    Tail,
}

/// A row begins among the warp's edges, the first included, or all edges end before the warp's would.
pub const HAS_START: u32 = 1;
/// The last row goes on.
pub const IS_OPEN: u32 = 2;

impl<'a, S: Partial> Parts<'a, S> {
    /// Those of the CTA of a launch.
    #[inline(always)]
    pub fn new(params: &'a BspmmParams) -> Self {
        Self {
            params,
            kind: PhantomData,
        }
    }

    /// The first edge of the warp, if there are so many.
    #[inline(always)]
    pub fn first_edge(&self) -> u32 {
        let cta = self.params.first_cta + block_idx_x();
        cta * EDGES_PER_CTA + warp_id() * (EDGES_PER_CTA / S::WARPS)
    }

    #[inline(always)]
    fn place_of_mark(warp: u32) -> Shared {
        Shared::base().offset(warp * 8)
    }

    /// What a warp is marked with, and the row that ends in it and began before, or [`NO_ROW`].
    ///
    /// # Safety
    /// The barrier is behind.
    #[inline(always)]
    pub unsafe fn mark_of(&self, warp: u32) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe { Self::place_of_mark(warp).load_u32x2() }
    }

    /// Where a part is.
    #[inline(always)]
    pub fn part(warp: u32, part: Part) -> Shared {
        let parts = Shared::base().offset(S::WARPS * 8);
        parts.offset((warp * 2 + part as u32) * S::BYTES)
    }

    /// Marks the warp, and says which row ends in it that began before, if one does.
    ///
    /// # Safety
    /// All lanes of the warp come together, before the barrier.
    #[inline(always)]
    pub unsafe fn mark(&self, mark: u32, head: u32) {
        if lane_id() == 0 {
            // SAFETY: the caller's promise; the mark is this lane's.
            unsafe { Self::place_of_mark(warp_id()).store_u32x2([mark, head]) }
        }
    }

    /// Stores a part of the warp's.
    ///
    /// # Safety
    /// As [`Partial::store`], before the barrier.
    #[inline(always)]
    pub unsafe fn store(&self, part: Part, value: &S) {
        // SAFETY: the caller's promise; the part is this warp's.
        unsafe { value.store(Self::part(warp_id(), part)) }
    }

    /// Adds the tails of the warps before `warp` down to that in which the row began. Whether one of the CTA's did.
    ///
    /// # Safety
    /// The barrier is behind, and the row comes from the warp before.
    #[inline(always)]
    pub unsafe fn add_before(&self, sum: &mut S, mut warp: u32) -> bool {
        let mut has_begun = false;
        while warp > 0 && !has_begun {
            warp -= 1;
            // SAFETY: the caller's promise: a row that comes from a warp has a tail there.
            unsafe {
                sum.add(Self::part(warp, Part::Tail));
                let [mark, _] = self.mark_of(warp);
                has_begun = mark & HAS_START != 0;
            }
        }
        has_begun
    }

    /// Staged word `at` of the CTA.
    #[inline(always)]
    pub fn staged(&self, at: u32) -> Global<u32> {
        let first = block_idx_x() as u64 * staged_words(S::WORDS, S::FACTORED) as u64;
        Global::new(self.params.staging).at(first + at as u64)
    }

    /// Where a part is staged.
    #[inline(always)]
    pub fn staged_part(&self, part: Part) -> Global<u32> {
        self.staged(STAGED_PARTS + part as u32 * staged_part(S::WORDS, S::FACTORED))
    }
}

impl<S: Joined> Parts<'_, S> {
    /// Writes the row that began before this warp and ends in it, where it began in the CTA, and stages what crosses CTAs.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together, and the barrier is behind.
    #[inline(always)]
    pub unsafe fn join(&self) {
        let warp = warp_id();
        // SAFETY: the caller's promise; each part of a row is added up by the warp that the row ends in, or by the last.
        unsafe {
            let [mark, row] = self.mark_of(warp);
            if row != NO_ROW {
                let mut sum = S::NOTHING;
                sum.add(Self::part(warp, Part::Head));
                if self.add_before(&mut sum, warp) {
                    sum.write(self.params, row);
                } else {
                    sum.stage(self.staged_part(Part::Head));
                    if lane_id() == 0 {
                        self.staged(0).store(row);
                    }
                }
            }
            if warp == S::WARPS - 1 && mark & IS_OPEN != 0 {
                let mut sum = S::NOTHING;
                sum.add(Self::part(warp, Part::Tail));
                if mark & HAS_START == 0 {
                    self.add_before(&mut sum, warp);
                }
                sum.stage(self.staged_part(Part::Tail));
            }
            if warp == 0 && lane_id() == 0 && !self.has_head() {
                self.staged(0).store(NO_ROW);
            }
        }
    }

    /// Whether a row ends in the CTA that began before it.
    ///
    /// # Safety
    /// The barrier is behind.
    #[inline(always)]
    unsafe fn has_head(&self) -> bool {
        let mut warp = 0;
        while warp < S::WARPS {
            // SAFETY: the caller's promise.
            let [mark, row] = unsafe { self.mark_of(warp) };
            if row != NO_ROW || mark & HAS_START != 0 {
                return row != NO_ROW;
            }
            warp += 1;
        }
        false
    }
}
