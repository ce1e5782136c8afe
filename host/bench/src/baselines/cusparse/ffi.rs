//! The part of cuSPARSE's generic interface that is called, declared by hand after its documentation
//! (<https://docs.nvidia.com/cuda/cusparse>, "cuSPARSE Generic APIs"), and bound at run time.

use halfgnn::Error;
use halfgnn::driver::DriverError;
use halfgnn_platform::library::{Library, Symbols};
use halfgnn_platform::support::Feature;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `cusparseStatus_t`; 0 is success.
pub type Status = c_int;
/// `cusparseHandle_t`.
pub type Handle = *mut c_void;
/// `cusparseSpMatDescr_t`, `cusparseDnMatDescr_t` and `cusparseDnVecDescr_t`.
pub type Descriptor = *mut c_void;

/// `CUSPARSE_INDEX_32I`.
pub const INDEX_32I: c_int = 2;
/// `CUSPARSE_INDEX_BASE_ZERO`.
pub const BASE_ZERO: c_int = 0;
/// `CUSPARSE_OPERATION_NON_TRANSPOSE`.
pub const NON_TRANSPOSE: c_int = 0;
/// `CUSPARSE_ORDER_COL`.
pub const ORDER_COLUMN: c_int = 1;
/// `CUSPARSE_ORDER_ROW`.
pub const ORDER_ROW: c_int = 2;
/// `CUDA_R_32F`.
pub const REAL_32F: c_int = 0;
/// `CUDA_R_16F`.
pub const REAL_16F: c_int = 2;
/// `CUDA_R_16BF`
pub const REAL_16BF: c_int = 14;
/// `CUSPARSE_SDDMM_ALG_DEFAULT`.
pub const SDDMM_DEFAULT: c_int = 0;

/// Names of the library, newest first.
const NAMES: [&str; 5] = [
    "libcusparse.so.12",
    "libcusparse.so.11",
    "libcusparse.so",
    "/usr/local/cuda/lib64/libcusparse.so.12",
    "/usr/local/cuda/lib64/libcusparse.so",
];

/// Environment variable that names the library's file.
pub const LIBRARY_VARIABLE: &str = "HALFGNN_LIBCUSPARSE";

macro_rules! functions {
    ($($(#[$meta:meta])* $field:ident = $symbol:literal: fn($($argument:ident: $ty:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions of an open library.
        pub struct Functions {
            $($(#[$meta])* pub $field: unsafe extern "C" fn($($ty),*) -> $result,)*
            /// What the pointers point into; never closed while they can be called.
            _library: Library,
        }

        impl Functions {
            fn bind(library: Library) -> Result<Self, String> {
                // SAFETY: each symbol is declared above as cuSPARSE's header declares it, and the library stays open as
                // long as the pointers live.
                unsafe {
                    Ok(Self {
                        $($field: library.get::<unsafe extern "C" fn($($ty),*) -> $result>($symbol)?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    create = b"cusparseCreate\0": fn(handle: *mut Handle) -> Status;
    destroy = b"cusparseDestroy\0": fn(handle: Handle) -> Status;
    version = b"cusparseGetVersion\0": fn(handle: Handle, version: *mut c_int) -> Status;
    set_stream = b"cusparseSetStream\0": fn(handle: Handle, stream: *mut c_void) -> Status;
    error_string = b"cusparseGetErrorString\0": fn(status: Status) -> *const c_char;
    create_csr = b"cusparseCreateCsr\0": fn(
        descriptor: *mut Descriptor, rows: i64, columns: i64, entries: i64, offsets: *mut c_void,
        column_ids: *mut c_void, values: *mut c_void, offset_type: c_int, column_type: c_int, base: c_int, value_type: c_int,
    ) -> Status;
    create_coo = b"cusparseCreateCoo\0": fn(
        descriptor: *mut Descriptor, rows: i64, columns: i64, entries: i64, row_ids: *mut c_void,
        column_ids: *mut c_void, values: *mut c_void, index_type: c_int, base: c_int, value_type: c_int,
    ) -> Status;
    destroy_sparse = b"cusparseDestroySpMat\0": fn(descriptor: Descriptor) -> Status;
    create_dense = b"cusparseCreateDnMat\0": fn(
        descriptor: *mut Descriptor, rows: i64, columns: i64, leading: i64, values: *mut c_void, value_type: c_int, order: c_int,
    ) -> Status;
    destroy_dense = b"cusparseDestroyDnMat\0": fn(descriptor: Descriptor) -> Status;
    spmm_buffer = b"cusparseSpMM_bufferSize\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, bytes: *mut usize,
    ) -> Status;
    spmm_preprocess = b"cusparseSpMM_preprocess\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, buffer: *mut c_void,
    ) -> Status;
    spmm = b"cusparseSpMM\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, buffer: *mut c_void,
    ) -> Status;
    create_vector = b"cusparseCreateDnVec\0": fn(
        descriptor: *mut Descriptor, len: i64, values: *mut c_void, value_type: c_int,
    ) -> Status;
    destroy_vector = b"cusparseDestroyDnVec\0": fn(descriptor: Descriptor) -> Status;
    spmv_buffer = b"cusparseSpMV_bufferSize\0": fn(
        handle: Handle, op_a: c_int, alpha: *const c_void, a: Descriptor, x: Descriptor, beta: *const c_void, y: Descriptor,
        compute: c_int, algorithm: c_int, bytes: *mut usize,
    ) -> Status;
    spmv = b"cusparseSpMV\0": fn(
        handle: Handle, op_a: c_int, alpha: *const c_void, a: Descriptor, x: Descriptor, beta: *const c_void, y: Descriptor,
        compute: c_int, algorithm: c_int, buffer: *mut c_void,
    ) -> Status;
    sddmm_buffer = b"cusparseSDDMM_bufferSize\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, bytes: *mut usize,
    ) -> Status;
    sddmm_preprocess = b"cusparseSDDMM_preprocess\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, buffer: *mut c_void,
    ) -> Status;
    sddmm = b"cusparseSDDMM\0": fn(
        handle: Handle, op_a: c_int, op_b: c_int, alpha: *const c_void, a: Descriptor, b: Descriptor, beta: *const c_void,
        c: Descriptor, compute: c_int, algorithm: c_int, buffer: *mut c_void,
    ) -> Status;
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cuSPARSE")
    }
}

impl Functions {
    /// Opens the library: what [`LIBRARY_VARIABLE`] names, or the first of the usual names that can be opened.
    pub fn open() -> Result<Self, Error> {
        let failed = |reason| {
            let call = "dlopen of cuSPARSE";
            Error::Driver(DriverError::Device { call, reason })
        };
        (Feature::Cusparse.expect()).map_err(|refusal| failed(refusal.to_string()))?;
        let named = std::env::var(LIBRARY_VARIABLE).ok();
        let mut tried = Vec::new();
        for name in named
            .as_deref()
            .map_or(&NAMES[..], |_| &[])
            .iter()
            .copied()
            .chain(named.as_deref())
        {
            // SAFETY: loading runs the library's initialisers; it is NVIDIA's, or the file that the user names.
            let opened = unsafe { Library::open(name.as_ref(), Symbols::Local) };
            match opened.and_then(Self::bind) {
                Ok(functions) => return Ok(functions),
                Err(error) => tried.push(format!("{name}: {error}")),
            }
        }
        let tried = tried.join(", ");
        Err(failed(format!(
            "{tried}; {LIBRARY_VARIABLE} may name its file"
        )))
    }

    /// `Ok` for success, or else the library's words.
    pub fn check(&self, call: &'static str, status: Status) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: takes any status, and gives a string that lives as long as the library.
        let words = unsafe {
            let words = (self.error_string)(status);
            if words.is_null() {
                None
            } else {
                Some(CStr::from_ptr(words).to_string_lossy().into_owned())
            }
        };
        Err(super::super::failed(
            call,
            words.unwrap_or_else(|| format!("status {status}")),
        ))
    }
}
