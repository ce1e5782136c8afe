//! Shared libraries, opened at run time.

use std::ffi::{OsStr, c_void};

#[cfg(unix)]
use libloading::os::unix as system;
#[cfg(windows)]
use libloading::os::windows as system;

/// Who finds the symbols of a library. On Windows each library names the one that it takes a symbol from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Who opened it.
    Local,
    /// Libraries that are opened later as well.
    Global,
}

/// A library that was opened; closed when it is dropped.
#[derive(Debug)]
pub struct Library(system::Library);

impl Library {
    /// Opens a library by its path, or by the name that the dynamic linker looks for.
    ///
    /// # Safety
    /// Opening a library runs its initializers, and dropping the result its finalizers: both may be run in this
    /// process.
    ///
    /// # Errors
    /// The dynamic linker's words.
    pub unsafe fn open(name: &OsStr, symbols: Symbols) -> Result<Self, String> {
        #[cfg(unix)]
        {
            let visible = match symbols {
                Symbols::Local => system::RTLD_LOCAL,
                Symbols::Global => system::RTLD_GLOBAL,
            };
            // SAFETY: what this function asks of its caller.
            let opened = unsafe { system::Library::open(Some(name), system::RTLD_NOW | visible) };
            opened.map(Self).map_err(|error| words(&error))
        }
        #[cfg(windows)]
        {
            let _ = symbols;
            // SAFETY: what this function asks of its caller.
            let opened = unsafe { system::Library::new(name) };
            let name = name.to_string_lossy();
            // Windows does not say which.
            opened
                .map(Self)
                .map_err(|error| format!("{name}: {}", words(&error)))
        }
    }

    /// A symbol, as a pointer or function of type `T`. `symbol` ends with a zero byte.
    ///
    /// # Safety
    /// The symbol is of that type, which has the size of a pointer, and is not used when the library is closed.
    ///
    /// # Errors
    /// The dynamic linker's words where there is none.
    pub unsafe fn get<T: Copy>(&self, symbol: &[u8]) -> Result<T, String> {
        // SAFETY: what this function asks of its caller.
        let found = unsafe { self.0.get::<T>(symbol) };
        found.map(|symbol| *symbol).map_err(|error| words(&error))
    }

    /// The address of a symbol; `None` where there is none.
    pub fn address(&self, symbol: &str) -> Option<*mut c_void> {
        // SAFETY: an address is of any symbol, and nothing is done with it here.
        let found = unsafe { self.get::<*mut c_void>(format!("{symbol}\0").as_bytes()) };
        found.ok().filter(|address| !address.is_null())
    }
}

/// What the dynamic linker says, without the call that it says it of.
fn words(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let words = source.unwrap_or_else(|| error.to_string());
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let name = "libhalfgnn-there-is-none.so";
        // SAFETY: there is none.
        let words = unsafe { Library::open(name.as_ref(), Symbols::Local) }.unwrap_err();
        assert!(words.contains(name) && !words.contains('\n'), "{words}");
    }

    #[test]
    fn symbols_of_the_system_s_library_are_found() {
        let (name, symbol) = match std::env::consts::OS {
            "windows" => ("kernel32.dll", "GetTickCount64"),
            "macos" => ("libSystem.B.dylib", "getpid"),
            _ => ("libc.so.6", "getpid"),
        };
        // SAFETY: the system's own library, which is open already.
        let library = unsafe { Library::open(name.as_ref(), Symbols::Global) }.unwrap();
        assert!(library.address(symbol).is_some());
        assert!(library.address("halfgnn_there_is_none").is_none());
    }
}
