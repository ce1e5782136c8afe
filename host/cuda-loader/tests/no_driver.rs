//! A program that uses `cust` on a machine without a driver: it links, starts, and reports "no device".

use cust::error::CudaError;
use cust::{CudaFlags, device::Device};
use halfgnn_cuda_loader::{LIBRARY_VARIABLE, LoadError, load};

const NOWHERE: &str = "/nonexistent/libcuda.so.1";

/// One test, since what a process has loaded stays loaded.
#[test]
fn cust_answers_no_device_before_and_after_the_search() {
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe { std::env::set_var(LIBRARY_VARIABLE, NOWHERE) };

    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::NoDevice));

    let error = load().expect_err("there is no such library");
    let text = error.to_string();
    assert!(matches!(error, LoadError::NotFound { .. }), "{error:?}");
    for part in [NOWHERE, "install NVIDIA's driver", LIBRARY_VARIABLE] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(!text.contains('\n'));
    assert_eq!(load().expect_err("nothing has changed"), error);

    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::NoDevice));
    assert_eq!(Device::num_devices(), Err(CudaError::NoDevice));
    // cust asks the driver for the words, and panics where it answers none.
    assert_eq!(
        CudaError::NoDevice.to_string(),
        "\"no CUDA driver is loaded\""
    );
    assert_eq!(
        CudaError::OutOfMemory.to_string(),
        "\"unknown error (no CUDA driver is loaded)\""
    );
}
