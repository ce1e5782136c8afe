//! Every class of instructions against what a few lines of plain Rust say.

mod control;
mod conversions;
mod floats;
mod halves;
mod harness;
mod integers;
mod matrix;
mod memory;
mod warps;
