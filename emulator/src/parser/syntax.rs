//! A PTX text as it is written: declarations, and instructions as opcode and operands. `decode` gives them meaning.

use std::collections::HashMap;

/// A whole text.
#[derive(Debug, Default)]
pub(crate) struct Source<'a> {
    pub version: (u32, u32),
    pub target: &'a str,
    /// `.file` numbers and their paths.
    pub files: HashMap<u32, String>,
    pub variables: Vec<Variable<'a>>,
    pub functions: Vec<Function<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableSpace {
    Global,
    Const,
    Shared,
}

/// A variable in `.global`, `.const` or `.shared`.
#[derive(Debug, Clone)]
pub(crate) struct Variable<'a> {
    pub name: &'a str,
    pub space: VariableSpace,
    pub align: u32,
    pub size: u32,
    /// `.extern .shared`: its size comes with the launch.
    pub dynamic: bool,
    pub init: Vec<u8>,
    /// Whether the text gave an initialiser.
    pub initialised: bool,
    /// Addresses of other variables inside `init`: where, of which, plus what.
    pub relocations: Vec<(u32, &'a str, i64)>,
    pub line: u32,
}

/// A `.param` or `.local` variable of a function: a stretch of bytes in each lane's frame.
#[derive(Debug, Clone)]
pub(crate) struct Slot<'a> {
    pub name: &'a str,
    pub align: u32,
    pub size: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Register {
    /// 1 for a predicate.
    pub bits: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Function<'a> {
    pub name: &'a str,
    pub is_entry: bool,
    pub defined: bool,
    pub line: u32,
    pub params: Vec<Slot<'a>>,
    pub results: Vec<Slot<'a>>,
    /// Every `.param` variable that its calls declare.
    pub call_slots: Vec<Slot<'a>>,
    pub locals: Vec<Slot<'a>>,
    pub registers: Vec<Register>,
    pub body: Vec<Instruction<'a>>,
    /// Labels by scope and name, as an index into `body`.
    pub labels: HashMap<(u32, &'a str), u32>,
    /// `.branchtargets` lists by scope and name.
    pub tables: HashMap<(u32, &'a str), Vec<&'a str>>,
    /// The scope that holds each scope; scope 0 is the function.
    pub scope_parents: Vec<u32>,
    pub max_threads: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub line: u32,
    /// Bytes of the text that it was read from.
    pub span: (u32, u32),
    /// `.file` number and line of the last `.loc`; file 0 where there was none.
    pub loc: (u32, u32),
    /// Predicate register, and whether it is negated.
    pub guard: Option<(u32, bool)>,
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
    pub scope: u32,
}

/// Which `.param` variables a name can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Param,
    Result,
    Call,
    Local,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'a> {
    Reg(u32),
    Int(i128),
    F32(u32),
    F64(u64),
    /// A special register or a name from outside the function: a variable, a function, a label.
    Name(&'a str, i64),
    Slot(SlotKind, u32, i64),
    /// `_`: nobody wants this result.
    Sink,
    Not(u32),
    /// `%p1|%p2`; either side may be `_`.
    Pair(Option<u32>, Option<u32>),
    Vector(Vec<Operand<'a>>),
    /// `( … )` of a call.
    List(Vec<Operand<'a>>),
    /// `[base + offset]`.
    Address(Box<Operand<'a>>, i64),
}
