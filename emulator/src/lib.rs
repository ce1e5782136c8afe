//! Runs PTX on the CPU, lane by lane, and reports what a sanitizer would.
//!
//! A [`Module`] is a PTX text, parsed, linked and typed: an instruction, type or modifier that is not implemented is an
//! error that names it and its line. A [`Device`] is simulated memory and runs kernels, blocks side by side on rayon's
//! threads. Every launch is checked: bounds, alignment, uninitialised reads, races inside a block and between blocks,
//! barriers that not all threads reach, exchanges with inactive lanes, deadlocks, endless loops. A [`Fault`] names
//! kernel, block, thread, instruction, source line, address and allocation. [`Counts`] are exact and repeat on every
//! machine.
//!
//! ```
//! use ptx_emulator::{Device, LaunchOptions, Module};
//!
//! let module = Module::parse(
//!     ".version 8.0 .target sm_80 .address_size 64
//!      .visible .entry twice(.param .u64 data) {
//!          .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!          ld.param.b64 %rd1, [data];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          ld.global.b32 %r2, [%rd3];
//!          add.s32 %r2, %r2, %r2;
//!          st.global.b32 [%rd3], %r2;
//!          ret;
//!      }",
//! )?;
//! let device = Device::default();
//! let data = device.alloc(4 * 32)?;
//! device.write(data, &[1; 4 * 32])?;
//! let options = LaunchOptions::default();
//! let report = device.launch(&module, "twice", [1, 1, 1], [32, 1, 1], 0, &data.to_le_bytes(), &options)?;
//! let mut out = [0; 4];
//! device.read(data, &mut out)?;
//! assert_eq!(out, [2; 4]);
//! assert_eq!(report.counts.global_loads.sectors, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is exact and what is not
//! Integer, half, single and double arithmetic and conversions give the hardware's bits: NaN results are canonical
//! (0x7fff, 0x7fffffff), subnormals are kept unless `.ftz` asks otherwise. Approximate instructions (`ex2`, `rsqrt`, …)
//! are computed in double and rounded once, within the error that PTX documents. `mma` takes exact products and rounds
//! each accumulator once for eight of them; the hardware's own order is not documented.
#![forbid(unsafe_code)]

mod allocate;
mod alu;
mod counts;
mod decode;
mod exec;
mod fault;
mod ir;
mod launch;
mod memory;
mod module;
mod options;
mod order;
mod random;
mod schedule;
mod shadow;
mod shared;

pub use counts::{Class, Counts, Traffic};
pub use fault::{
    AccessKind, Fault, FaultAccess, FaultAllocation, FaultKind, FaultPlace, MemorySpace, OtherParty,
};
pub use launch::Device;
pub use memory::MemoryError;
pub use module::{Entry, Module, Param};
pub use options::{Checks, DeviceOptions, LaunchError, LaunchOptions, LaunchReport};
pub use ptx_syntax::ParseError;
