//! The trampolines, once they are bound: calls reach the library with all their arguments.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;

use cust::error::CudaError;
use cust::sys::{self, cudaError_enum};
use cust::{CudaApiVersion, CudaFlags};
use halfgnn_cuda_loader::{LIBRARY_VARIABLE, load};

/// The stand-in, an example of this crate that cargo has built for the same system: that may not be the one that
/// compiles.
fn fake_driver() -> PathBuf {
    let program = std::env::current_exe().expect("a test has a path");
    let built = program.ancestors().nth(2).expect("target/debug/deps/test");
    let name = format!("{DLL_PREFIX}fake_driver{DLL_SUFFIX}");
    let library = built.join("examples").join(name);
    assert!(
        library.exists(),
        "{} is not built: run `cargo test -p halfgnn-cuda-loader` without --test, or with --examples",
        library.display()
    );
    library
}

/// One test, since what a process has loaded stays loaded.
#[test]
fn calls_reach_the_bound_library() {
    let library = fake_driver();
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe { std::env::set_var(LIBRARY_VARIABLE, &library) };
    assert_eq!(
        cust::init(CudaFlags::empty()),
        Err(CudaError::NoDevice),
        "bound before it was loaded"
    );

    // Many threads at once, one driver.
    let drivers: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| std::ptr::from_ref(load().expect("it opens")).addr()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert!(drivers.iter().all(|&driver| driver == drivers[0]));

    let driver = load().expect("it is open");
    assert_eq!(
        driver.library(),
        library.to_str().expect("a path in ASCII or UTF-8")
    );
    assert!(driver.missing().contains(&"cuGraphLaunch"));
    for exported in [
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorString",
        "cuMemAlloc_v2",
        "cuLaunchKernel",
    ] {
        assert!(!driver.missing().contains(&exported), "{exported}");
    }

    assert_eq!(cust::init(CudaFlags::empty()), Ok(()));
    let version = CudaApiVersion::get().expect("the stand-in answers");
    assert_eq!((version.major(), version.minor()), (12, 34));
    assert_eq!(
        CudaError::NoDevice.to_string(),
        "\"words of the fake driver\""
    );

    let mut address = 0;
    // SAFETY: the stand-in writes to its first argument and does nothing else.
    let allocated = unsafe { sys::cuMemAlloc_v2(&mut address, 14) };
    assert_eq!(allocated, cudaError_enum::CUDA_SUCCESS);
    assert_eq!(address, 42);

    // SAFETY: the stand-in compares its arguments with these numbers and follows no pointer.
    let launched = unsafe {
        let (function, stream) = (
            std::ptr::without_provenance_mut(10),
            std::ptr::without_provenance_mut(20),
        );
        let (params, extra) = (
            std::ptr::without_provenance_mut(30),
            std::ptr::without_provenance_mut(40),
        );
        sys::cuLaunchKernel(function, 1, 2, 3, 4, 5, 6, 7, stream, params, extra)
    };
    assert_eq!(launched, cudaError_enum::CUDA_SUCCESS);

    // SAFETY: the stand-in does not have it, so the answer reads no argument.
    let missing = unsafe { sys::cuGraphLaunch(std::ptr::null_mut(), std::ptr::null_mut()) };
    assert_eq!(missing, cudaError_enum::CUDA_ERROR_NOT_FOUND);
}
