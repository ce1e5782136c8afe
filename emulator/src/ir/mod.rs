//! The typed program that the executor runs: registers are rows of 32 lanes, branch targets are indices.

mod collective;
mod rows;
mod scalar;
mod space;

pub(crate) use collective::*;
pub(crate) use rows::Use;
pub(crate) use scalar::*;
pub(crate) use space::*;

use crate::counts::Class;

/// A row of 32 lanes: a register of the warp, or, with [`CONSTANT`] set, a constant of the program.
pub(crate) type Row = u32;
/// Marks a [`Row`] as an index into the constants.
pub(crate) const CONSTANT: u32 = 1 << 31;
/// A predicate register: 32 bits, one a lane.
pub(crate) type Pred = u32;
/// A result that is not used (`_`, or a reduction's).
pub(crate) const SINK: u32 = u32::MAX;

/// A kernel with all functions that it can reach, linked into one array.
#[derive(Debug, Default, Clone)]
pub(crate) struct Program {
    pub instructions: Vec<Instruction>,
    /// Where each instruction stands in the text; parallel to `instructions`.
    pub places: Vec<Place>,
    /// First instruction of each function, ascending, and its name.
    pub functions: Vec<(u32, String)>,
    /// The bits of the registers that each row is for: what an instruction does to the lanes that do not execute it
    /// must not be more.
    pub rows: Vec<u8>,
    pub preds: u32,
    pub constants: Vec<Constant>,
    pub branch_tables: Vec<Vec<u32>>,
    pub calls: Vec<CallSite>,
    /// Bytes that each lane needs for the parameters and results of calls.
    pub arena_bytes: u32,
    /// Bytes of `.local` variables of each lane.
    pub local_bytes: u32,
    pub param_bytes: u32,
    pub shared: Vec<SharedVariable>,
    /// Bytes up to where dynamic shared memory begins.
    pub static_shared: u32,
    /// Whether blocks can meet in global atomics (or strong accesses), so that their order is visible.
    pub orders_blocks: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub line: u32,
    pub span: (u32, u32),
    pub loc: (u32, u32),
}

#[derive(Debug, Clone)]
pub(crate) struct SharedVariable {
    pub name: String,
    pub offset: u32,
    pub size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    /// The address of a `.global` or `.const` variable of the module, plus an offset.
    Global(u32, i64),
}

/// A call: bytes to copy into the callee's parameters, and its results back.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallSite {
    pub target: u32,
    /// From, to, how many.
    pub arguments: Vec<(u32, u32, u32)>,
    pub results: Vec<(u32, u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub pred: Pred,
    pub negated: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    pub op: Op,
    pub guard: Option<Guard>,
    pub class: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Mov {
        d: Row,
        a: Row,
    },
    Special {
        d: Row,
        s: Special,
    },
    Pack {
        d: Row,
        s: [Row; 4],
        count: u8,
        bits: u8,
    },
    Unpack {
        d: [Row; 4],
        count: u8,
        bits: u8,
        a: Row,
    },
    PredConst {
        d: Pred,
        value: bool,
    },
    PredLogic {
        op: BoolOp,
        d: Pred,
        a: Pred,
        a_negated: bool,
        b: Pred,
        b_negated: bool,
    },
    Int1 {
        op: Int1,
        ty: IntType,
        d: Row,
        a: Row,
    },
    Int2 {
        op: Int2,
        ty: IntType,
        d: Row,
        a: Row,
        b: Row,
    },
    Int3 {
        op: Int3,
        ty: IntType,
        d: Row,
        a: Row,
        b: Row,
        c: Row,
    },
    Bfi {
        wide: bool,
        d: Row,
        a: Row,
        b: Row,
        position: Row,
        length: Row,
    },
    Float1 {
        op: Float1,
        ty: FloatType,
        mode: FloatMode,
        d: Row,
        a: Row,
    },
    Float2 {
        op: Float2,
        ty: FloatType,
        mode: FloatMode,
        d: Row,
        a: Row,
        b: Row,
    },
    Fma {
        ty: FloatType,
        mode: FloatMode,
        d: Row,
        a: Row,
        b: Row,
        c: Row,
    },
    /// `testp`: whether the class of a float is the one asked for.
    Testp {
        test: FloatTest,
        wide: bool,
        d: Pred,
        a: Row,
    },
    Setp {
        cmp: Compare,
        ty: CompareType,
        ftz: bool,
        d: Pred,
        d2: Pred,
        a: Row,
        b: Row,
        with: Option<(BoolOp, Guard)>,
    },
    Selp {
        d: Row,
        a: Row,
        b: Row,
        p: Pred,
    },
    Convert {
        d: Row,
        a: Row,
        how: Convert,
    },
    /// Two floats to the halves of one register; `a` is the upper.
    ConvertPair {
        d: Row,
        a: Row,
        b: Row,
        how: Convert,
    },
    /// A generic address from or to a space's own.
    ToGeneric {
        d: Row,
        a: Row,
        space: Space,
    },
    FromGeneric {
        d: Row,
        a: Row,
        space: Space,
    },
    IsSpace {
        d: Pred,
        a: Row,
        space: Space,
    },
    LoadParam {
        d: [Row; 4],
        offset: u32,
        access: Access,
        width: u8,
    },
    Load {
        d: [Row; 4],
        access: Access,
        width: u8,
    },
    Store {
        s: [Row; 4],
        access: Access,
    },
    Atomic {
        op: AtomicOp,
        ty: AtomicType,
        d: Row,
        access: Access,
        b: Row,
        c: Row,
    },
    CopyAsync {
        to: Row,
        to_offset: i64,
        from: Row,
        from_offset: i64,
        bytes: u8,
        from_bytes: Row,
        ignore: Option<Guard>,
    },
    CopyCommit,
    /// Waits until at most this many of the newest groups are in flight.
    CopyWait {
        pending: u32,
    },
    Branch {
        target: u32,
    },
    BranchIndexed {
        table: u32,
        index: Row,
    },
    Call {
        site: u32,
    },
    Return,
    Exit,
    Trap,
    Nop,
    ActiveMask {
        d: Row,
    },
    Collective {
        what: Collective,
        mask: Row,
        aligned: bool,
    },
    /// `id`, `count` rows; an arrival does not wait. `reduce` with its predicate and its destination.
    Barrier {
        id: Row,
        count: Option<Row>,
        arrive: bool,
        reduce: Option<(BarrierReduce, Guard, u32)>,
    },
}

impl Op {
    pub(crate) fn class(&self) -> Class {
        match self {
            Op::Mov { .. }
            | Op::Special { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::Selp { .. }
            | Op::ToGeneric { .. }
            | Op::FromGeneric { .. }
            | Op::ActiveMask { .. } => Class::Move,
            Op::PredConst { .. }
            | Op::PredLogic { .. }
            | Op::Setp { .. }
            | Op::IsSpace { .. }
            | Op::Testp { .. } => Class::Predicate,
            Op::Int1 { .. } | Op::Int2 { .. } | Op::Int3 { .. } | Op::Bfi { .. } => Class::Integer,
            Op::Float1 { op, ty, .. } => match (op, ty) {
                (Float1::Neg | Float1::Abs, FloatType::F16 | FloatType::F16x2) => Class::Half,
                (Float1::Neg | Float1::Abs, FloatType::F32) => Class::Float,
                (_, FloatType::F64) => Class::Double,
                _ => Class::Special,
            },
            Op::Float2 { ty, .. } | Op::Fma { ty, .. } => match ty {
                FloatType::F16 | FloatType::F16x2 => Class::Half,
                FloatType::F32 => Class::Float,
                FloatType::F64 => Class::Double,
            },
            Op::Convert { .. } | Op::ConvertPair { .. } => Class::Convert,
            Op::LoadParam { .. } => Class::LoadParam,
            Op::Load { access, .. } => match access.space {
                Space::Generic | Space::Global => Class::LoadGlobal,
                Space::Shared => Class::LoadShared,
                Space::Local => Class::LoadLocal,
                Space::Param => Class::LoadParam,
            },
            Op::Store { access, .. } => match access.space {
                Space::Generic | Space::Global => Class::StoreGlobal,
                Space::Shared => Class::StoreShared,
                Space::Local | Space::Param => Class::StoreLocal,
            },
            Op::Atomic { access, .. } => {
                if access.space == Space::Shared {
                    Class::AtomicShared
                } else {
                    Class::AtomicGlobal
                }
            }
            Op::CopyAsync { .. } | Op::CopyCommit | Op::CopyWait { .. } => Class::CopyAsync,
            Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Call { .. }
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::Nop => Class::Control,
            Op::Barrier { .. } => Class::Barrier,
            Op::Collective { what, .. } => match what {
                Collective::Shuffle { .. } => Class::Shuffle,
                Collective::Vote { .. } | Collective::Match { .. } | Collective::Redux { .. } => {
                    Class::Vote
                }
                Collective::WarpBarrier => Class::Barrier,
                Collective::LoadMatrix { .. } => Class::LoadShared,
                Collective::Mma { .. } => Class::Mma,
            },
        }
    }
}
