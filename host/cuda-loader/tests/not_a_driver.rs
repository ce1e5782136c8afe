//! A library that is not the CUDA driver is recognized, and nothing is bound to it.

use cust::CudaFlags;
use cust::error::CudaError;
use halfgnn_cuda_loader::{LIBRARY_VARIABLE, LoadError, load};

#[test]
fn a_library_without_cu_init_is_refused() {
    // Every dynamically linked program has it open already.
    let library = match std::env::consts::OS {
        "windows" => "kernel32.dll",
        "macos" => "libSystem.B.dylib",
        _ => "libc.so.6",
    };
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe { std::env::set_var(LIBRARY_VARIABLE, library) };

    assert_eq!(
        load().expect_err("it is no driver"),
        LoadError::NotADriver {
            library: library.into()
        }
    );
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::NoDevice));
}
