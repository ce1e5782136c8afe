//! Finding the driver's library and binding the entry points to it.

mod entry_points;
mod table;

use std::ffi::OsString;
use std::iter;
use std::path::Path;

use halfgnn_platform::library::{Library, Symbols};

use super::{UNUSUAL_PLACES, USUAL_NAME};
use crate::{CudaDriver, LIBRARY_VARIABLE, LoadError};

/// Opens the first library that there is, checks that it is a driver, and binds the entry points to it.
pub(crate) fn find_and_bind() -> Result<CudaDriver, LoadError> {
    let (name, library) = open_first(candidates())?;
    let symbol = |entry: &str| library.address(entry);
    if symbol("cuInit").is_none() {
        return Err(LoadError::NotADriver { library: name });
    }
    // SAFETY: a library with `cuInit` is the CUDA driver, whose exported names keep their meaning from release to
    // release (a changed one gets a new suffix); it stays open until the process ends, by the next line.
    let missing = unsafe { table::bind(symbol) };
    std::mem::forget(library);
    Ok(CudaDriver {
        library: name,
        missing,
    })
}

/// What is tried: only what the user named, if anything.
fn candidates() -> Vec<OsString> {
    match std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(named) => vec![named],
        None => {
            let unusual = UNUSUAL_PLACES
                .into_iter()
                .filter(|place| Path::new(place).exists());
            iter::once(USUAL_NAME)
                .chain(unusual)
                .map(OsString::from)
                .collect()
        }
    }
}

/// The first of `candidates` that opens, with its name.
fn open_first(candidates: Vec<OsString>) -> Result<(String, Library), LoadError> {
    let mut attempts = Vec::new();
    for candidate in candidates {
        let name = candidate.to_string_lossy().into_owned();
        // SAFETY: opening a library runs its initialisers. The names are those of NVIDIA's driver, whose initialisers
        // any CUDA program runs at its start, or one that the user vouches for.
        match unsafe { Library::open(&candidate, Symbols::Local) } {
            Ok(library) => return Ok((name, library)),
            Err(words) => attempts.push(reason(&name, words)),
        }
    }
    Err(LoadError::NotFound {
        attempts: attempts.join(", "),
    })
}

/// The dynamic linker's words, which begin with the library's name as a rule.
fn reason(name: &str, text: String) -> String {
    if text.contains(name) {
        text
    } else {
        format!("{name}: {text}")
    }
}
