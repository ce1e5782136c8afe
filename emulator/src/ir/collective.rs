//! Instructions that lanes of a warp execute together.

use super::{Pred, Row};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduxOp {
    Add,
    And,
    Or,
    Xor,
    MinU,
    MaxU,
    MinS,
    MaxS,
}

/// An instruction that waits for the lanes that its mask names, and what they exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collective {
    Shuffle {
        mode: ShuffleMode,
        d: Row,
        valid: Pred,
        a: Row,
        b: Row,
        c: Row,
    },
    /// `d` is a predicate, or a row for a ballot.
    Vote {
        mode: VoteMode,
        d: u32,
        p: Pred,
        negated: bool,
    },
    /// A constant predicate operand was turned into one of the program's; `all` also sets `valid`.
    Match {
        wide: bool,
        all: bool,
        d: Row,
        valid: Pred,
        a: Row,
    },
    Redux {
        op: ReduxOp,
        d: Row,
        a: Row,
    },
    WarpBarrier,
    LoadMatrix {
        d: [Row; 4],
        count: u8,
        transposed: bool,
        address: Row,
        offset: i64,
    },
    /// m16n8k8 or m16n8k16 of elements of 16 bits, m16n8k16 or m16n8k32 of bytes, m16n8k128 or m16n8k256 of bits.
    Mma {
        kind: MmaKind,
        d: [Row; 4],
        a: [Row; 4],
        b: [Row; 2],
        c: [Row; 4],
    },
}

/// What a matrix product multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MmaKind {
    /// Pairs of f16, or of bf16; accumulators are f32, or f16 pairs.
    Floats {
        k: u8,
        half_out: bool,
        bfloats: bool,
    },
    /// Bytes, of A and of B with a sign or without; accumulators are s32.
    Bytes { k: u8, signed: [bool; 2] },
    /// Bits, counted where both are set, or where one is; accumulators are s32.
    Bits { k: u16, and: bool },
}

impl MmaKind {
    /// Registers of A, of B, and of the accumulators.
    pub(crate) fn registers(self) -> [usize; 3] {
        match self {
            Self::Floats { k, half_out, .. } => [
                usize::from(k) / 4,
                usize::from(k) / 8,
                if half_out { 2 } else { 4 },
            ],
            Self::Bytes { k, .. } => [usize::from(k) / 8, usize::from(k) / 16, 4],
            Self::Bits { k, .. } => [usize::from(k) / 64, usize::from(k) / 128, 4],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierReduce {
    Popc,
    And,
    Or,
}
