//! What a launch did, as exact numbers: they repeat on every machine and in every order of blocks.

use std::fmt;
use std::ops::AddAssign;

macro_rules! classes {
    ($($variant:ident $name:literal $doc:literal,)*) => {
        /// Classes of instructions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Class {
            $(#[doc = $doc] $variant,)*
        }

        impl Class {
            /// Every class, in the order of [`Counts::classes`].
            pub const ALL: &'static [Class] = &[$(Class::$variant,)*];

            /// A short name for tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$variant => $name,)*
                }
            }
        }
    };
}

classes! {
    Move "move" "Moves, packing, selection, address conversions, special registers.",
    Predicate "predicate" "Comparisons and predicate logic.",
    Integer "integer" "Integer arithmetic and bit operations.",
    Half "fp16" "Arithmetic on halves and pairs of halves.",
    Float "fp32" "Single-precision arithmetic.",
    Double "fp64" "Double-precision arithmetic.",
    Special "special" "Roots, reciprocals, exponentials and other functions of a special unit.",
    Convert "convert" "Conversions between types.",
    Mma "mma" "Matrix multiply-accumulate.",
    Control "control" "Branches, calls, returns, fences and no-operations.",
    LoadParam "ld.param" "Loads of parameters.",
    LoadGlobal "ld.global" "Loads from global memory, also through generic addresses.",
    StoreGlobal "st.global" "Stores to global memory, also through generic addresses.",
    LoadShared "ld.shared" "Loads from shared memory, matrix loads included.",
    StoreShared "st.shared" "Stores to shared memory.",
    LoadLocal "ld.local" "Loads from local memory.",
    StoreLocal "st.local" "Stores to local memory and to parameters of calls.",
    AtomicGlobal "atomic.global" "Atomics and reductions on global memory.",
    AtomicShared "atomic.shared" "Atomics and reductions on shared memory.",
    CopyAsync "cp.async" "Asynchronous copies, their commits and waits.",
    Shuffle "shuffle" "Shuffles: one an exchange.",
    Vote "vote" "Votes, matches and warp reductions.",
    Barrier "barrier" "Barriers of the block and of the warp.",
}

const CLASSES: usize = Class::ALL.len();

/// Traffic of one kind of memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Requests: one for each warp instruction with an active lane.
    pub requests: u64,
    /// Distinct 32-byte sectors, summed over the requests.
    pub sectors: u64,
    /// Bytes that lanes asked for.
    pub bytes: u64,
}

impl Traffic {
    /// The fewest sectors that could carry the bytes, over the sectors that did: 1 is perfectly coalesced.
    pub fn efficiency(&self) -> f64 {
        if self.sectors == 0 {
            1.0
        } else {
            self.bytes as f64 / (self.sectors as f64 * 32.0)
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.bytes += other.bytes;
    }
}

/// Counts of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    warp: [u64; CLASSES],
    lane: [u64; CLASSES],
    /// Loads from global memory.
    pub global_loads: Traffic,
    /// Stores to global memory.
    pub global_stores: Traffic,
    /// Atomics and reductions on global memory.
    pub global_atomics: Traffic,
    /// Requests to shared memory, loads, stores and atomics together.
    pub shared_requests: u64,
    /// Bytes that lanes moved to or from shared memory.
    pub shared_bytes: u64,
    /// Extra passes that bank conflicts cost: of the distinct words that one pass (32 lanes of 4 bytes, 16 of 8, 8 of
    /// 16) needs from one bank, all but the first.
    pub bank_conflicts: u64,
    /// Conditional branches after which the lanes of a warp stood at different instructions.
    pub divergent_branches: u64,
    /// Conditional branches.
    pub conditional_branches: u64,
    /// Barriers of a block, each counted once a warp.
    pub block_barriers: u64,
    /// Barriers of a warp.
    pub warp_barriers: u64,
}

impl Counts {
    pub(crate) fn instruction(&mut self, class: Class, lanes: u32) {
        self.warp[class as usize] += 1;
        self.lane[class as usize] += u64::from(lanes);
    }

    /// Instructions of one class that warps issued.
    pub fn warp_instructions_of(&self, class: Class) -> u64 {
        self.warp[class as usize]
    }

    /// Instructions of one class, times the lanes that executed them.
    pub fn lane_instructions_of(&self, class: Class) -> u64 {
        self.lane[class as usize]
    }

    /// Instructions that warps issued.
    pub fn warp_instructions(&self) -> u64 {
        self.warp.iter().sum()
    }

    /// Instructions times the lanes that executed them.
    pub fn lane_instructions(&self) -> u64 {
        self.lane.iter().sum()
    }

    /// Shuffles that warps issued.
    pub fn shuffles(&self) -> u64 {
        self.warp_instructions_of(Class::Shuffle)
    }

    /// Atomics and reductions that warps issued, on global and shared memory.
    pub fn atomics(&self) -> u64 {
        self.warp_instructions_of(Class::AtomicGlobal)
            + self.warp_instructions_of(Class::AtomicShared)
    }

    /// Every class with its warp and lane instructions, the unused ones included.
    pub fn classes(&self) -> impl Iterator<Item = (Class, u64, u64)> + '_ {
        Class::ALL
            .iter()
            .map(|c| (*c, self.warp[*c as usize], self.lane[*c as usize]))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        for (sum, n) in self.warp.iter_mut().zip(other.warp) {
            *sum += n;
        }
        for (sum, n) in self.lane.iter_mut().zip(other.lane) {
            *sum += n;
        }
        self.global_loads += other.global_loads;
        self.global_stores += other.global_stores;
        self.global_atomics += other.global_atomics;
        self.shared_requests += other.shared_requests;
        self.shared_bytes += other.shared_bytes;
        self.bank_conflicts += other.bank_conflicts;
        self.divergent_branches += other.divergent_branches;
        self.conditional_branches += other.conditional_branches;
        self.block_barriers += other.block_barriers;
        self.warp_barriers += other.warp_barriers;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<15}{:>14}{:>16}",
            "class", "warp instr.", "lane instr."
        )?;
        for (class, warp, lane) in self.classes().filter(|(_, warp, _)| *warp > 0) {
            writeln!(f, "{:<15}{warp:>14}{lane:>16}", class.name())?;
        }
        for (name, t) in [
            ("global loads", self.global_loads),
            ("global stores", self.global_stores),
            ("global atomics", self.global_atomics),
        ] {
            writeln!(
                f,
                "{name}: {} requests, {} sectors, {} bytes",
                t.requests, t.sectors, t.bytes
            )?;
        }
        writeln!(
            f,
            "shared: {} requests, {} bytes, {} bank conflicts",
            self.shared_requests, self.shared_bytes, self.bank_conflicts
        )?;
        write!(
            f,
            "branches: {} conditional, {} divergent; barriers: {} of blocks, {} of warps",
            self.conditional_branches,
            self.divergent_branches,
            self.block_barriers,
            self.warp_barriers
        )
    }
}
