//! Runs a linked program: blocks, warps, lanes.
//!
//! A warp's registers are rows of 32 lanes, and an instruction is executed for all lanes of a *group* at once: the
//! lanes that stand at one instruction. Where lanes part, groups split; where they meet again, groups merge. Nothing
//! ties the lanes of a warp together but the instructions that name others in a mask, as on Volta and later.

mod access;
mod arithmetic;
mod block;
mod collective;
mod copies;
mod global;
mod private;
mod shared;
mod warp;

pub(crate) use block::Block;

use crate::fault::{AccessKind, FaultAccess, FaultAllocation, FaultKind};
use crate::ir::{CONSTANT, Program, Row};
use crate::memory::Snapshot;
use crate::module::Module;
use warp::Warp;

/// A row of lanes.
pub(crate) type Lanes = [u64; 32];

/// What a launch fixes for all of its blocks.
pub(crate) struct Env<'a> {
    pub module: &'a Module,
    pub kernel: &'a str,
    pub program: &'a Program,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    pub params: &'a [u8],
    /// The program's constants, one value for all lanes.
    pub constants: Vec<Lanes>,
    pub memory: Snapshot,
    pub epoch: u32,
    pub check_uninitialised: bool,
    pub check_races: bool,
    /// Warp instructions that one block may execute.
    pub step_limit: u64,
    pub seed: u64,
    /// Address whose accesses are to be remembered, to name both sides of a race.
    pub watch: Option<u64>,
}

impl Env<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn shared_bytes(&self) -> u32 {
        self.program.static_shared + self.dynamic_shared
    }

    /// A block's place in the grid.
    pub(crate) fn block_index(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [
            (linear % x) as u32,
            (linear / x % y) as u32,
            (linear / (x * y)) as u32,
        ]
    }

    /// A thread's place in its block.
    pub(crate) fn thread_index(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [linear % x, linear / x % y, linear / (x * y)]
    }
}

/// An access that a watch remembers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub block: u64,
    pub thread: u32,
    pub pc: u32,
    pub kind: AccessKind,
}

/// A fault before it knows its kernel, block and place.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub kind: FaultKind,
    pub lane: u32,
    pub access: Option<FaultAccess>,
    pub allocation: Option<FaultAllocation>,
    pub other: Option<Seen>,
    pub detail: String,
}

impl Trouble {
    pub(crate) fn new(kind: FaultKind, lane: u32, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            kind,
            lane,
            access: None,
            allocation: None,
            other: None,
            detail: detail.into(),
        })
    }
}

pub(crate) type Step<T> = Result<T, Box<Trouble>>;

/// The lanes of a mask, ascending.
#[inline(always)]
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl Warp {
    #[inline(always)]
    pub(crate) fn row<'r>(&'r self, constants: &'r [Lanes], row: Row) -> &'r Lanes {
        if row & CONSTANT == 0 {
            &self.rows[row as usize]
        } else {
            &constants[(row & !CONSTANT) as usize]
        }
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn put(&mut self, d: Row, mask: u32, values: &Lanes) {
        if d == crate::ir::SINK {
            return;
        }
        let row = &mut self.rows[d as usize];
        if mask == u32::MAX {
            *row = *values;
        } else {
            for lane in 0..32 {
                row[lane] = if mask >> lane & 1 == 1 {
                    values[lane]
                } else {
                    row[lane]
                };
            }
        }
    }

    #[inline(always)]
    pub(crate) fn put_pred(&mut self, d: u32, mask: u32, bits: u32) {
        if d != crate::ir::SINK {
            let p = &mut self.preds[d as usize];
            *p = *p & !mask | bits & mask;
        }
    }
}
