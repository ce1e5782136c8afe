//! The typed program that the executor runs: registers are rows of 32 lanes, branch targets are indices.

use crate::counts::Class;

/// A row of 32 lanes: a register of the warp, or, with [`CONSTANT`] set, a constant of the program.
pub(crate) type Row = u32;
/// Marks a [`Row`] as an index into the constants.
pub(crate) const CONSTANT: u32 = 1 << 31;
/// A predicate register: 32 bits, one a lane.
pub(crate) type Pred = u32;
/// A result that nobody wants (`_`, or a reduction's).
pub(crate) const SINK: u32 = u32::MAX;

/// A kernel with all functions that it can reach, linked into one array.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub instructions: Vec<Instruction>,
    /// Where each instruction stands in the text; parallel to `instructions`.
    pub places: Vec<Place>,
    /// First instruction of each function, ascending, and its name.
    pub functions: Vec<(u32, String)>,
    pub rows: u32,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IntType {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FloatType {
    F16,
    F16x2,
    F32,
    F64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int1 {
    Neg,
    Abs,
    Not,
    Popc,
    Clz,
    Brev,
    Cnot,
    /// `bfind`, and whether it gives the shift amount.
    Bfind(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int2 {
    Add,
    AddSat,
    Sub,
    SubSat,
    MulLo,
    MulHi,
    /// To a result of twice the width.
    MulWide,
    Mul24,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Int3 {
    MadLo,
    MadHi,
    MadWide,
    Sad,
    /// Extract: value, position, length.
    Bfe,
    /// 32-bit funnel shifts; `wrap` takes the amount modulo 32, else it is clamped to 32.
    ShfLeft {
        wrap: bool,
    },
    ShfRight {
        wrap: bool,
    },
    Lop3(u8),
    Prmt(PrmtMode),
    /// Four-way byte dot product; whether each side is signed.
    Dp4a {
        a_signed: bool,
        b_signed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrmtMode {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float1 {
    Neg,
    Abs,
    Sqrt,
    Rcp,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float2 {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    MinNan,
    MaxNan,
    CopySign,
}

/// What `.ftz`, `.sat`, `.relu` and a rounding other than the nearest add to a float instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FloatMode {
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
    pub rounding: Rounding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unordered forms: true when an operand is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoolOp {
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareType {
    Int(IntType),
    Float(FloatType),
}

/// A rounding of `cvt`: to a float (`rn`…) or to an integral value (`rni`…).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Rounding {
    #[default]
    Nearest,
    Zero,
    Down,
    Up,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarType {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Convert {
    pub to: ScalarType,
    pub from: ScalarType,
    pub rounding: Rounding,
    /// `.rni` and its like: a float to an integral float.
    pub integral: bool,
    pub sat: bool,
    pub ftz: bool,
    pub relu: bool,
    /// Width of the destination register, to which the result is extended.
    pub bits: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,
    Clock,
    DynamicShared,
    TotalShared,
}

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
    /// m16n8k`k`; accumulators are f32, or f16 pairs.
    Mma {
        k: u8,
        half_out: bool,
        d: [Row; 4],
        a: [Row; 4],
        b: [Row; 2],
        c: [Row; 4],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierReduce {
    Popc,
    And,
    Or,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
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
