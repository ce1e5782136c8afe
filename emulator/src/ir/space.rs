//! Memory: state spaces, their windows among generic addresses, and accesses.

use super::{FloatType, IntType, Row};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    /// Kernel parameters below [`ARENA_BASE`], a lane's call parameters from there.
    Param,
}

/// A `cp.async.wait_all`: copies that were not committed included.
pub(crate) const WAIT_ALL: u32 = u32::MAX;
/// Where the lane's own call parameters begin in the parameter space.
pub(crate) const ARENA_BASE: u32 = 1 << 20;
/// First address of shared memory: as on sm_80 and later, where the system keeps the first KiB.
pub(crate) const SHARED_BASE: u32 = 1024;
/// First address of local memory, so that a null pointer is outside it.
pub(crate) const LOCAL_BASE: u32 = 256;
/// The windows of generic addresses; everything else is global.
pub(crate) const SHARED_WINDOW: u64 = 0x7e00_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x7e10_0000_0000;
pub(crate) const PARAM_WINDOW: u64 = 0x7e20_0000_0000;
/// Bytes of each window.
pub(crate) const WINDOW: u64 = 1 << 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub space: Space,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Elements: 1, 2 or 4.
    pub count: u8,
    /// Loads of a signed type extend the sign to the register's width.
    pub signed: bool,
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`: synchronises rather than races.
    pub strong: bool,
    pub address: Row,
    pub offset: i64,
}

impl Access {
    pub(crate) fn total(&self) -> u32 {
        u32::from(self.bytes) * u32::from(self.count)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicType {
    Int(IntType),
    Float(FloatType),
}
