//! A PTX text as it is written.

use std::collections::HashMap;

/// A whole text.
#[derive(Debug, Default)]
pub struct Source<'a> {
    /// The text itself.
    pub text: &'a str,
    /// `.version`, such as (8, 0).
    pub version: (u32, u32),
    /// `.target`, such as `sm_90`.
    pub target: &'a str,
    /// `.file` numbers and their paths.
    pub files: HashMap<u32, String>,
    /// Variables outside of functions, and shared ones inside.
    pub variables: Vec<Variable<'a>>,
    /// Kernels and device functions, in the text's order.
    pub functions: Vec<Function<'a>>,
}

impl<'a> Source<'a> {
    /// The kernels, in the text's order.
    pub fn entries(&self) -> impl Iterator<Item = &Function<'a>> {
        self.functions.iter().filter(|f| f.is_entry && f.defined)
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Option<&Variable<'a>> {
        self.variables.iter().find(|v| v.name == name)
    }

    /// An instruction's text, as it is written.
    pub fn shown(&self, instruction: &Instruction<'a>) -> &'a str {
        let (start, end) = instruction.span;
        let shown = self.text.get(start as usize..end as usize);
        shown.unwrap_or(instruction.opcode)
    }
}

/// Where a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableSpace {
    /// `.global`
    Global,
    /// `.const`
    Const,
    /// `.shared`
    Shared,
}

/// A variable in `.global`, `.const` or `.shared`.
#[derive(Debug, Clone)]
pub struct Variable<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it lies.
    pub space: VariableSpace,
    /// Alignment in bytes.
    pub align: u32,
    /// Bytes; 0 where `dynamic`.
    pub size: u32,
    /// `.extern .shared`: its size comes with the launch.
    pub dynamic: bool,
    /// `.visible`: the host can find it.
    pub visible: bool,
    /// Its first bytes, as far as the text gives them.
    pub init: Vec<u8>,
    /// Whether the text gave an initialiser.
    pub initialised: bool,
    /// Addresses of other variables inside `init`: where, of which, plus what.
    pub relocations: Vec<(u32, &'a str, i64)>,
    /// Its line, from 1.
    pub line: u32,
}

/// A `.param` or `.local` variable of a function: a stretch of bytes in each lane's frame.
#[derive(Debug, Clone)]
pub struct Slot<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of an element without its dot: `u64`, `b8`.
    pub ty: &'a str,
    /// Alignment in bytes.
    pub align: u32,
    /// Bytes.
    pub size: u32,
    /// Its line, from 1.
    pub line: u32,
}

/// A register that a function uses.
#[derive(Debug, Clone, Copy)]
pub struct Register {
    /// 1 for a predicate.
    pub bits: u8,
}

/// A kernel (`.entry`) or a device function (`.func`).
#[derive(Debug, Default)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// `.entry`, or else `.func`.
    pub is_entry: bool,
    /// Whether it has a body; without one it is to be linked.
    pub defined: bool,
    /// Its line, from 1.
    pub line: u32,
    /// Parameters, in order.
    pub params: Vec<Slot<'a>>,
    /// What a device function returns.
    pub results: Vec<Slot<'a>>,
    /// Every `.param` variable that its calls declare.
    pub call_slots: Vec<Slot<'a>>,
    /// `.local` variables.
    pub locals: Vec<Slot<'a>>,
    /// The registers that it uses, by their number.
    pub registers: Vec<Register>,
    /// Its instructions, in order.
    pub body: Vec<Instruction<'a>>,
    /// Labels by scope and name, as an index into `body`.
    pub labels: HashMap<(u32, &'a str), u32>,
    /// `.branchtargets` lists by scope and name.
    pub tables: HashMap<(u32, &'a str), Vec<&'a str>>,
    /// The scope that holds each scope; scope 0 is the function.
    pub scope_parents: Vec<u32>,
    /// `.maxntid` or `.reqntid` in all dimensions multiplied.
    pub max_threads: Option<u32>,
    /// `.minnctapersm`.
    pub min_ctas: Option<u32>,
}

impl<'a> Function<'a> {
    /// The index in `body` that a label names, seen from a scope.
    pub fn label(&self, scope: u32, name: &'a str) -> Option<u32> {
        self.scopes(scope)
            .find_map(|scope| self.labels.get(&(scope, name)).copied())
    }

    /// The labels of the `.branchtargets` list that a name stands for, seen from a scope.
    pub fn table(&self, scope: u32, name: &'a str) -> Option<&[&'a str]> {
        self.scopes(scope)
            .find_map(|scope| self.tables.get(&(scope, name)))
            .map(Vec::as_slice)
    }

    /// A scope and those that hold it, the innermost first.
    pub fn scopes(&self, scope: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(scope), |scope| match scope {
            0 => None,
            scope => self.scope_parents.get(*scope as usize).copied(),
        })
    }
}

/// An instruction.
#[derive(Debug)]
pub struct Instruction<'a> {
    /// Its line, from 1.
    pub line: u32,
    /// Bytes of the text that it was read from.
    pub span: (u32, u32),
    /// `.file` number and line of the last `.loc` that names a line; file 0 where there was none.
    pub loc: (u32, u32),
    /// The line, from 1, on which the last `.loc` stands, whose comment may say more; 0 where there was none.
    pub loc_line: u32,
    /// Predicate register, and whether it is negated.
    pub guard: Option<(u32, bool)>,
    /// The opcode with its modifiers: `ld.global.b32`.
    pub opcode: &'a str,
    /// Its operands, in order.
    pub operands: Vec<Operand<'a>>,
    /// The scope in which it stands.
    pub scope: u32,
}

/// Which `.param` variables a name can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Of [`Function::params`].
    Param,
    /// Of [`Function::results`].
    Result,
    /// Of [`Function::call_slots`].
    Call,
    /// Of [`Function::locals`].
    Local,
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand<'a> {
    /// A register by its number.
    Reg(u32),
    /// An integer.
    Int(i128),
    /// The bits of a float.
    F32(u32),
    /// The bits of a double.
    F64(u64),
    /// A special register or a name from outside the function (a variable, a function, a label), plus an offset.
    Name(&'a str, i64),
    /// A variable of the function, by its kind and index, plus an offset.
    Slot(SlotKind, u32, i64),
    /// `_`: the result is not used.
    Sink,
    /// `!%p1`
    Not(u32),
    /// `%p1|%p2`; either side may be `_`.
    Pair(Option<u32>, Option<u32>),
    /// `{ … }`
    Vector(Vec<Operand<'a>>),
    /// `( … )` of a call.
    List(Vec<Operand<'a>>),
    /// `[base + offset]`.
    Address(Box<Operand<'a>>, i64),
}

impl<'a> Operand<'a> {
    /// The registers in it, and in what it holds.
    pub fn registers(&self) -> Vec<u32> {
        match self {
            Operand::Reg(r) | Operand::Not(r) => vec![*r],
            Operand::Pair(first, second) => first.iter().chain(second).copied().collect(),
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().flat_map(Operand::registers).collect()
            }
            Operand::Address(base, _) => base.registers(),
            _ => Vec::new(),
        }
    }

    /// The names from outside the function in it, and in what it holds.
    pub fn names(&self) -> Vec<&'a str> {
        match self {
            Operand::Name(name, _) => vec![name],
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().flat_map(Operand::names).collect()
            }
            Operand::Address(base, _) => base.names(),
            _ => Vec::new(),
        }
    }
}
