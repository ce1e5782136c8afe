//! What a lane computes: types, operations and their modes.

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
    /// Dot product of both halfwords with two bytes, the first or the last; whether each side is signed.
    Dp2a {
        high: bool,
        a_signed: bool,
        b_signed: bool,
    },
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
    /// One where both are equal, else zero.
    Equal,
    /// All bits likewise.
    EqualMask,
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
    Bf16,
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
pub(crate) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

impl IntType {
    pub(crate) fn bits(self) -> u8 {
        match self {
            IntType::U16 | IntType::S16 => 16,
            IntType::U32 | IntType::S32 => 32,
            IntType::U64 | IntType::S64 => 64,
        }
    }
}

impl ScalarType {
    pub(crate) fn bits(self) -> u8 {
        match self {
            ScalarType::U8 | ScalarType::S8 => 8,
            ScalarType::U16 | ScalarType::S16 | ScalarType::F16 | ScalarType::Bf16 => 16,
            ScalarType::U32 | ScalarType::S32 | ScalarType::F32 => 32,
            ScalarType::U64 | ScalarType::S64 | ScalarType::F64 => 64,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(
            self,
            ScalarType::F16 | ScalarType::Bf16 | ScalarType::F32 | ScalarType::F64
        )
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(
            self,
            ScalarType::S8 | ScalarType::S16 | ScalarType::S32 | ScalarType::S64
        )
    }
}
