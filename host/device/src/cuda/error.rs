//! The driver's error numbers as words for people.

use std::ffi::{CStr, c_char};
use std::ptr;

use cust::error::CudaError;
use cust::sys::{self, CUresult};

use crate::DriverError;

/// `Ok` for success, or else [`DriverError::Device`] that names `call`.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), DriverError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failure => Err(DriverError::Device {
            call,
            reason: words(failure),
        }),
    }
}

/// [`check`] for what `cust`'s own types return.
pub(super) fn check_cust<T>(
    call: &'static str,
    result: Result<T, CudaError>,
) -> Result<T, DriverError> {
    // cust prints the driver's words as a quoted C string.
    result.map_err(|error| DriverError::Device {
        call,
        reason: format!("{error:?}, {}", error.to_string().trim_matches('"')),
    })
}

/// What the driver calls `failure`, what it means, and what to do where that is known.
pub(super) fn words(failure: CUresult) -> String {
    let (mut name, mut meaning) = (ptr::null(), ptr::null());
    // SAFETY: both take any code and write a pointer to a string that lives as long as the driver, or leave it null.
    let (name, meaning) = unsafe {
        sys::cuGetErrorName(failure, &mut name);
        sys::cuGetErrorString(failure, &mut meaning);
        (text(name), text(meaning))
    };
    let name = name.unwrap_or_else(|| format!("error {}", failure as u32));
    let mut words = meaning.map_or_else(|| name.clone(), |meaning| format!("{name}, {meaning}"));
    if let Some(advice) = advice(failure) {
        words.push_str("; ");
        words.push_str(advice);
    }
    words
}

/// What to do about the failures that people meet.
fn advice(failure: CUresult) -> Option<&'static str> {
    Some(match failure {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_LAUNCH_FAILED => {
            "this kernel or one before it is at fault: CUDA_LAUNCH_BLOCKING=1 makes sure of which, compute-sanitizer \
             finds the place"
        }
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "the driver is older than the PTX: update the driver"
        }
        CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND => {
            "libnvidia-ptxjitcompiler.so.1 is missing: install the whole driver, and in a container give it the \
             driver capability `compute`"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel module differ in version: restart the machine after an update of the driver"
        }
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "this is the toolkit's stub: HALFGNN_LIBCUDA must name the driver's own library"
        }
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE => "the GPU's memory is faulty: see `nvidia-smi -q`",
        _ => return None,
    })
}

/// A C string of the driver's.
///
/// # Safety
/// `string` is null or a C string that lives during the call.
unsafe fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string by what this function asks of its caller.
    Some(
        unsafe { CStr::from_ptr(string) }
            .to_string_lossy()
            .into_owned(),
    )
}
