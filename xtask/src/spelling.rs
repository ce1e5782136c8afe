//! `cargo xtask ci spelling`: the spelling of pages, comments, names and messages, by typos. `typos.toml` has the words of the field.

use std::process::Command;

use crate::{Failure, setup, supply_chain, workspace};

/// typos as a wheel, packed by its authors.
const WHEEL: &str = "typos>=1.52,<1.53";

/// Checks all files of the repository.
///
/// # Errors
/// Misspelt words, each with its file and line.
pub fn run() -> Result<(), Failure> {
    let program = match setup::from_pypi("typos", WHEEL) {
        Ok(program) => program,
        Err(missing) => return supply_chain::skip("spelling", &missing),
    };
    let mut typos = Command::new(program);
    typos.current_dir(workspace::root());
    workspace::run(typos.args(["--format", "brief", "."]))
        .map_err(|failure| format!("{failure}; a word of the field goes into typos.toml").into())
}
