//! Reads PTX as it is written: declarations, and instructions as opcode and operands, with their lines. What an opcode
//! means is the reader's business, so opcodes that do not exist yet are read as well.
//!
//! The one place where PTX is read: the emulator decodes instructions from it, the builder checks its rules on it, and
//! the host compares entries with the launch contract.
//!
//! ```
//! let source = ptx_syntax::parse(
//!     ".version 8.0 .target sm_80 .address_size 64
//!      .visible .entry twice(.param .u64 data) { .reg .b64 %rd<2>; ld.param.b64 %rd1, [data]; ret; }",
//! )?;
//! let entry = source.entries().next().expect("there is one");
//! assert_eq!((entry.name, entry.params[0].size), ("twice", 8));
//! assert_eq!(entry.body[0].opcode, "ld.param.b64");
//! # Ok::<(), ptx_syntax::ParseError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod lexer;
mod parser;
mod source;

pub use error::{ParseError, shorten, shown_name};
pub use parser::{outline, parse};
pub use source::{
    Function, Instruction, Operand, Register, Slot, SlotKind, Source, Variable, VariableSpace,
};
