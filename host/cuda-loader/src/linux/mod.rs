//! Finding the driver's library and binding the entry points to it, on Linux.

mod entry_points;
mod table;

use std::ffi::{OsString, c_void};
use std::iter;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::{CudaDriver, LIBRARY_VARIABLE, LoadError};

/// The library's name, for the dynamic linker to find (`ldconfig`, `LD_LIBRARY_PATH`).
const USUAL_NAME: &str = "libcuda.so.1";
/// Where it is on two systems that do not tell the dynamic linker: WSL and NixOS.
const UNUSUAL_PLACES: [&str; 2] = [
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
];

/// Opens the first library that there is, checks that it is a driver, and binds the entry points to it.
pub(crate) fn find_and_bind() -> Result<CudaDriver, LoadError> {
    let (name, library) = open_first(candidates())?;
    let symbol = |entry: &str| -> Option<*mut c_void> {
        // SAFETY: nothing is done with the address here but to store it; `bind` says what it must be.
        let symbol = unsafe { library.get::<*mut c_void>(entry.as_bytes()) }.ok()?;
        let address = symbol.into_raw();
        (!address.is_null()).then_some(address)
    };
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
        match unsafe { Library::open(Some(&candidate), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => return Ok((name, library)),
            Err(error) => attempts.push(reason(&name, &error)),
        }
    }
    Err(LoadError::NotFound {
        attempts: attempts.join(", "),
    })
}

/// The dynamic linker's words, which begin with the library's name as a rule.
fn reason(name: &str, error: &libloading::Error) -> String {
    let text =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if text.contains(name) {
        text
    } else {
        format!("{name}: {text}")
    }
}
