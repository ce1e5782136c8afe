//! The part of NCCL that is called, declared by hand after `nccl.h` and its documentation
//! (<https://docs.nvidia.com/deeplearning/nccl>, "NCCL API"), and bound at run time.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use halfgnn_platform::library::{Library, Symbols};
use halfgnn_platform::support::Feature;

use crate::DriverError;

/// Environment variable that names the library's file, instead of the places where it is looked for.
pub const LIBRARY_VARIABLE: &str = "HALFGNN_LIBNCCL";

/// The oldest version that is taken, 2.19: a step with its exchanges is recorded, which earlier ones do not all
/// survive.
const OLDEST: c_int = 21_900;

/// Its name, for the dynamic linker to find (`ldconfig`, `LD_LIBRARY_PATH`).
const NAME: &str = "libnccl.so.2";

/// Where Python's package has it, in a folder of packages.
const IN_PACKAGES: &str = "nvidia/nccl/lib/libnccl.so.2";

/// What to do where there is none.
const ADVICE: &str = "`pip install nvidia-nccl-cu13` in the Python that is first on PATH or Debian's libnccl2 have it, and HALFGNN_LIBNCCL may \
     name its file; or take --exchange host";

/// `ncclResult_t`.
pub(super) type Status = c_int;
/// `ncclSuccess`.
pub(super) const SUCCESS: Status = 0;
/// `ncclInProgress`.
pub(super) const IN_PROGRESS: Status = 7;
/// `ncclComm_t`.
pub(super) type Comm = *mut c_void;
/// `cudaStream_t`, which is `CUstream`.
pub(super) type Stream = *mut c_void;
/// `ncclUint8` and `ncclUint32` of `ncclDataType_t`.
pub(super) const BYTES: c_int = 1;
pub(super) const WORDS: c_int = 3;
/// `ncclSum` of `ncclRedOp_t`.
pub(super) const SUM: c_int = 0;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of an open library.
        struct Functions {
            $($field: unsafe extern "C" fn($($ty),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// The library is NCCL, from 2.19 on, and is never closed while the pointers can be called.
            unsafe fn bind(library: &Library) -> Result<Self, String> {
                // SAFETY: each symbol is declared as NCCL's header has declared it since 2.14, within which names keep
                // their meaning; the rest is the caller's promise.
                unsafe {
                    Ok(Self {
                        $($field: library.get::<unsafe extern "C" fn($($ty),*) -> $result>(
                            concat!($symbol, "\0").as_bytes(),
                        )?,)*
                    })
                }
            }
        }

        impl Nccl {
            $(
                /// The library's function, as its documentation has it.
                ///
                /// # Safety
                /// What the documentation asks of its arguments.
                #[allow(clippy::too_many_arguments)] // NCCL's
                pub(super) unsafe fn $field(&self, $($argument: $ty),*) -> $result {
                    // SAFETY: bound to this name and type; arguments are the caller's promise.
                    unsafe { (self.functions.$field)($($argument),*) }
                }
            )*
        }
    };
}

functions! {
    get_unique_id = "ncclGetUniqueId": fn(id: *mut UniqueId) -> Status;
    comm_init_rank = "ncclCommInitRank": fn(comm: *mut Comm, ranks: c_int, id: UniqueId, rank: c_int) -> Status;
    comm_destroy = "ncclCommDestroy": fn(comm: Comm) -> Status;
    comm_abort = "ncclCommAbort": fn(comm: Comm) -> Status;
    comm_get_async_error = "ncclCommGetAsyncError": fn(comm: Comm, status: *mut Status) -> Status;
    get_error_string = "ncclGetErrorString": fn(status: Status) -> *const c_char;
    group_start = "ncclGroupStart": fn() -> Status;
    group_end = "ncclGroupEnd": fn() -> Status;
    send = "ncclSend": fn(from: *const c_void, count: usize, ty: c_int, peer: c_int, comm: Comm, stream: Stream) -> Status;
    receive = "ncclRecv": fn(to: *mut c_void, count: usize, ty: c_int, peer: c_int, comm: Comm, stream: Stream) -> Status;
    all_reduce = "ncclAllReduce": fn(
        from: *const c_void, to: *mut c_void, count: usize, ty: c_int, op: c_int, comm: Comm, stream: Stream,
    ) -> Status;
}

/// NCCL, opened at run time; never closed.
pub struct Nccl {
    functions: Functions,
    version: c_int,
    /// What the pointers point into.
    _library: Library,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Nccl {
    /// The machine's: what `HALFGNN_LIBNCCL` names, or `libnccl.so.2` where the dynamic linker looks, or where the
    /// package of a Python on `PATH`, in `VIRTUAL_ENV` or in `CONDA_PREFIX` has it. The first call decides.
    ///
    /// # Errors
    /// [`DriverError::Link`] where there is none or it is too old, and how to come by one.
    pub fn load() -> Result<&'static Self, DriverError> {
        static FOUND: OnceLock<Result<Nccl, String>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                (Feature::Nccl.expect()).map_err(|refusal| refusal.to_string())?;
                Self::open_first(&candidates())
            })
            .as_ref()
            .map_err(|reason| DriverError::Link(reason.clone()))
    }

    /// The library of a file.
    ///
    /// # Errors
    /// Those of [`Nccl::load`].
    pub fn open(file: &Path) -> Result<Self, DriverError> {
        Self::open_first(&[file.into()]).map_err(DriverError::Link)
    }

    fn open_first(candidates: &[OsString]) -> Result<Self, String> {
        let mut attempts = Vec::new();
        for candidate in candidates {
            // SAFETY: opening a library runs its initialisers: of NVIDIA's library, or of one that the user vouches
            // for.
            match unsafe { Library::open(candidate, Symbols::Local) } {
                Ok(library) => return Self::bind(library, &candidate.to_string_lossy()),
                Err(words) => attempts.push(words),
            }
        }
        Err(format!("no NCCL: {}; {ADVICE}", attempts.join(", ")))
    }

    fn bind(library: Library, name: &str) -> Result<Self, String> {
        let none = |words: String| format!("{name} is no NCCL from 2.19 on: {words}; {ADVICE}");
        let mut version = 0;
        // SAFETY: in every NCCL the function takes a pointer to an integer, which it writes.
        let told = unsafe {
            let ask =
                library.get::<unsafe extern "C" fn(*mut c_int) -> Status>(b"ncclGetVersion\0");
            ask.map_err(none)?(&mut version)
        };
        if told != SUCCESS || version < OLDEST {
            return Err(format!(
                "{name} is NCCL {}, and 2.19 is the oldest that is taken; {ADVICE}",
                version_words(version)
            ));
        }
        // SAFETY: it reports a version of NCCL from 2.19 on, and stays open as long as the pointers, which lie next to
        // it.
        let functions = unsafe { Functions::bind(&library) }.map_err(none)?;
        Ok(Self {
            functions,
            version,
            _library: library,
        })
    }

    /// `NCCL` and the version.
    pub fn name(&self) -> String {
        format!("NCCL {}", version_words(self.version))
    }

    /// An id for a link.
    ///
    /// # Errors
    /// [`DriverError::Link`] with the library's words.
    pub fn unique_id(&self) -> Result<Vec<u8>, DriverError> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: writes one id.
        self.check("ncclGetUniqueId", unsafe { self.get_unique_id(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// `Ok` for success, else the library's words.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), DriverError> {
        match status {
            SUCCESS => Ok(()),
            failure => Err(DriverError::Link(format!(
                "{call}: {}",
                self.words(failure)
            ))),
        }
    }

    /// What a status means.
    pub(super) fn words(&self, status: Status) -> String {
        // SAFETY: takes any status, and gives a string that lives as long as the library, or null.
        let words = unsafe {
            let words = self.get_error_string(status);
            (!words.is_null()).then(|| CStr::from_ptr(words).to_string_lossy().into_owned())
        };
        let words = words.unwrap_or_else(|| format!("status {status}"));
        format!("{words} (NCCL_DEBUG=WARN says more)")
    }
}

/// A version, which is a number such as 22809.
fn version_words(version: c_int) -> String {
    format!(
        "{}.{}.{}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

/// What is tried: only what the user named, if anything.
fn candidates() -> Vec<OsString> {
    if let Some(named) = env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        return vec![named];
    }
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(env::var_os);
    let mut prefixes: Vec<PathBuf> = prefixes.into_iter().flatten().map(PathBuf::from).collect();
    let path = env::var_os("PATH").unwrap_or_default();
    let pythons = env::split_paths(&path).filter(|folder| folder.join("python3").exists());
    prefixes.extend(pythons.filter_map(|folder| Some(folder.parent()?.to_owned())));
    let mut all = vec![OsString::from(NAME)];
    for prefix in prefixes {
        for file in in_packages(&prefix) {
            let file = file.into_os_string();
            if !all.contains(&file) {
                all.push(file);
            }
        }
    }
    all
}

/// The library's files in the folders of packages of a Python that is installed at `prefix`.
fn in_packages(prefix: &Path) -> Vec<PathBuf> {
    let Ok(versions) = std::fs::read_dir(prefix.join("lib")) else {
        return Vec::new();
    };
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = versions
        .filter(|folder| {
            folder
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"python3"))
        })
        .flat_map(|folder| {
            ["site-packages", "dist-packages"].map(|of| folder.join(of).join(IN_PACKAGES))
        })
        .filter(|file| file.exists())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_s_package_is_found() {
        let prefix = tempfile::tempdir().unwrap();
        assert!(in_packages(prefix.path()).is_empty());
        let folder = prefix
            .path()
            .join("lib/python3.12/site-packages/nvidia/nccl/lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(prefix.path().join("lib/python2.7")).unwrap();
        assert!(in_packages(prefix.path()).is_empty());
        let file = folder.join("libnccl.so.2");
        std::fs::write(&file, "no library").unwrap();
        assert_eq!(in_packages(prefix.path()), std::slice::from_ref(&file));
        let refused = Nccl::open(&file).unwrap_err().to_string();
        assert!(
            refused.starts_with("no NCCL: ") && refused.contains("pip install"),
            "{refused}"
        );
        assert_eq!(version_words(22_809), "2.28.9");
    }
}
