//! What a launch can do wrong, as `compute-sanitizer` would report it.

use ptx_syntax::shown_name;
use std::fmt;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation, or outside shared, local or parameter memory.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// A read of bytes that nothing wrote.
    UninitialisedRead,
    /// An access to an allocation after it was freed.
    UseAfterFree,
    /// Two threads of a block touch one address without a barrier between, and at least one writes.
    RaceInBlock,
    /// Two blocks of a launch touch one address, at least one writes, and not both atomically.
    RaceBetweenBlocks,
    /// A barrier that not all threads reach, or that they reach at different instructions.
    DivergentBarrier,
    /// A shuffle that reads from a lane that does not take part, or a lane outside its own mask.
    InactiveLane,
    /// Threads that wait for each other for ever.
    Deadlock,
    /// More instructions than the launch may execute: most likely an endless loop.
    StepLimit,
    /// The kernel executed `trap`: a panic, for Rust kernels.
    Trap,
    /// A branch index or a barrier number outside its range.
    InvalidOperand,
}

impl FaultKind {
    /// A short description in words.
    pub fn describe(self) -> &'static str {
        match self {
            FaultKind::OutOfBounds => "access out of bounds",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::UninitialisedRead => "read of uninitialised memory",
            FaultKind::UseAfterFree => "use after free",
            FaultKind::RaceInBlock => "race inside a block",
            FaultKind::RaceBetweenBlocks => "race between blocks",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::InactiveLane => "exchange with an inactive lane",
            FaultKind::Deadlock => "deadlock",
            FaultKind::StepLimit => "step limit reached",
            FaultKind::Trap => "trap (a panic in the kernel)",
            FaultKind::InvalidOperand => "invalid operand",
        }
    }
}

/// A memory space, as reports name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemorySpace {
    /// Device memory.
    Global,
    /// A block's shared memory.
    Shared,
    /// A thread's own memory.
    Local,
    /// Parameters.
    Param,
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemorySpace::Global => "global",
            MemorySpace::Shared => "shared",
            MemorySpace::Local => "local",
            MemorySpace::Param => "parameter",
        })
    }
}

/// What an access does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessKind {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic, a reduction, or a load or store with an order.
    Atomic,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
            AccessKind::Atomic => "atomic",
        })
    }
}

/// The access that went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultAccess {
    /// The memory that was meant.
    pub space: MemorySpace,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u32,
    /// Load, store or atomic.
    pub kind: AccessKind,
}

/// The allocation or variable that a fault concerns: the one that holds the address, or the nearest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultAllocation {
    /// Its name: what the host called it, or the variable's.
    pub name: String,
    /// First address.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes between the access and the allocation: negative before it, 0 inside, positive after its end, where one
    /// that only reaches over the end counts as 1 byte after it.
    pub distance: i64,
}

impl FaultAllocation {
    /// The [`distance`](Self::distance) of an access of `bytes` bytes at any `address` from the `len` bytes at `base`.
    pub(crate) fn distance(address: u64, bytes: u32, base: u64, len: u64) -> i64 {
        let far = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let end = base.saturating_add(len);
        if address < base {
            -far(base - address)
        } else if address.saturating_add(bytes.into()) > end {
            far(address.saturating_sub(end)).max(1)
        } else {
            0
        }
    }
}

/// A place in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultPlace {
    /// The instruction as the text has it.
    pub instruction: String,
    /// Line in the PTX text.
    pub line: u32,
    /// File and line of the source, where the text has `.loc`.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for FaultPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (PTX line {}", self.instruction, self.line)?;
        match &self.source {
            Some((file, line)) => write!(f, ", {}:{line})", shown_name(file)),
            None => f.write_str(")"),
        }
    }
}

/// The other side of a race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherParty {
    /// Its block.
    pub block: [u32; 3],
    /// Its thread.
    pub thread: [u32; 3],
    /// What it did.
    pub kind: AccessKind,
    /// Where.
    pub place: FaultPlace,
}

/// One fault of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The kernel that was launched.
    pub kernel: String,
    /// The function that the instruction belongs to.
    pub function: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in the block.
    pub thread: [u32; 3],
    /// The instruction.
    pub place: FaultPlace,
    /// The access, for faults of memory.
    pub access: Option<FaultAccess>,
    /// The allocation, for faults of memory.
    pub allocation: Option<FaultAllocation>,
    /// The other side, for races.
    pub other: Option<OtherParty>,
    /// What else there is to know, in words; empty when there is nothing.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [tx, ty, tz] = self.thread;
        write!(
            f,
            "{} in kernel {}",
            self.kind.describe(),
            shown_name(&self.kernel)
        )?;
        if self.function != self.kernel {
            write!(f, " (function {})", shown_name(&self.function))?;
        }
        write!(
            f,
            ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}), at {}",
            self.place
        )?;
        if let Some(a) = &self.access {
            write!(
                f,
                ": {} of {} bytes of {} memory at {:#x}",
                a.kind, a.bytes, a.space, a.address
            )?;
        }
        if let Some(a) = &self.allocation {
            let FaultAllocation {
                name,
                base,
                len,
                distance,
            } = a;
            let name = shown_name(name);
            // Where the access begins, and how far it goes.
            let (offset, bytes) = self.access.map_or((0, 0), |x| {
                (x.address.wrapping_sub(*base), u64::from(x.bytes))
            });
            match distance {
                0 => write!(f, ", {offset} bytes into {name}")?,
                1.. if offset < *len => {
                    let over = bytes.saturating_sub(len - offset);
                    write!(f, ", {over} bytes over the end of {name}")?;
                }
                1.. => write!(f, ", {distance} bytes after the end of {name}")?,
                _ => write!(f, ", {} bytes before {name}", distance.unsigned_abs())?,
            }
            write!(f, " ({len} bytes at {base:#x})")?;
        }
        if let Some(o) = &self.other {
            let ([bx, by, bz], [tx, ty, tz]) = (o.block, o.thread);
            write!(
                f,
                "; against the {} of block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}), at {}",
                o.kind, o.place
            )?;
        }
        if !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_on_either_side_and_at_the_ends_of_the_address_space() {
        let of = |address, bytes| FaultAllocation::distance(address, bytes, 1000, 24);
        assert_eq!([of(999, 1), of(900, 16)], [-1, -100]);
        assert_eq!([of(1000, 1), of(1000, 24), of(1023, 1)], [0; 3]);
        // Reaching over the end, right at it, behind it.
        assert_eq!(
            [of(1016, 16), of(1024, 1), of(1025, 1), of(1124, 4)],
            [1, 1, 1, 100]
        );
        assert_eq!(
            [of(0, 16), of(u64::MAX, 16), of(1 << 63, 16)],
            [-1000, i64::MAX, i64::MAX - 1023]
        );
        assert_eq!(FaultAllocation::distance(5, 4, u64::MAX - 8, 8), -i64::MAX);
        assert_eq!(FaultAllocation::distance(1000, 4, 1000, 0), 1);
    }
}
