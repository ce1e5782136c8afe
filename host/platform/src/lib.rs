//! What differs between operating systems and processors, one file a concern. Everything above it is written once: no
//! other crate asks which system it is built for, but for [vector instructions] and the entry points of the CUDA
//! driver, which are lowest layers of their own.
//!
//! - [`position`]: reads of a file at a position.
//! - [`folder`]: folders as handles, to synchronize and lock.
//! - [`permissions`]: who may read, write and run a file.
//! - [`identity`]: whether two paths lead to one file.
//! - [`links`]: symbolic links.
//! - [`process`]: how a process ended, and whether one runs.
//! - [`machine`]: memory, processor and host name.
//! - [`terminal`]: whether a terminal takes ANSI sequences.
//! - [`support`]: what a system lacks, refused in one line.
//! - `library`, with the feature of that name: shared libraries that are opened at run time.
//!
//! [vector instructions]: https://docs.rs/halfgnn-ops

#![allow(
    clippy::needless_return,
    reason = "of the arms for several systems one is left, which returns or is the last"
)]

#[cfg(not(target_endian = "little"))]
compile_error!(
    "HalfGNN reads and writes its files as they lie in memory, little-endian: build it for a little-endian target, such as \
     powerpc64le instead of powerpc64"
);
#[cfg(not(target_pointer_width = "64"))]
compile_error!("HalfGNN counts edges and bytes in 64 bits: build it for a 64-bit target");

pub mod folder;
pub mod identity;
#[cfg(feature = "library")]
pub mod library;
pub mod links;
pub mod machine;
pub mod permissions;
pub mod position;
pub mod process;
pub mod support;
pub mod terminal;
