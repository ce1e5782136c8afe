//! Passes over a program, a file each.
//!
//! A pass changes the list and nothing else, so what it does is seen by the text of the program before and after it. A new
//! one is one more file here: layers and the [runner](super::Runner)'s loop do not change.

mod binarize;
mod evaluate;
mod exchange;
pub mod fuse;
mod mutual;
mod quantize;
mod recompute;
mod reorder;
mod store;

pub use binarize::Binarize;
pub use evaluate::Evaluate;
pub use exchange::Exchange;
pub use mutual::Mutual;
pub use quantize::Quantize;
pub use recompute::Recompute;
pub use reorder::Reorder;
pub use store::Store;

use super::list::Program;
use crate::error::Error;
use std::fmt;

/// A change of the list that keeps what it computes, up to rounding.
pub trait Pass: fmt::Debug {
    /// A word for it.
    fn name(&self) -> &'static str;

    /// Changes the list.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the program is not one that the pass can be made over, such as one without a backward list.
    fn run(&self, program: &mut Program) -> Result<(), Error>;
}

/// Makes passes one after the other, checks the program after each, and shows it to `seen` with the name of the pass.
///
/// # Errors
/// Those of the passes and of [`Program::check`].
pub fn apply(
    program: &mut Program,
    passes: &[&dyn Pass],
    mut seen: impl FnMut(&str, &Program),
) -> Result<(), Error> {
    for pass in passes {
        pass.run(program)?;
        program.check()?;
        seen(pass.name(), program);
    }
    Ok(())
}
