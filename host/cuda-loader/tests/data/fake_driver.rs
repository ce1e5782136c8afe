//! A stand-in for libcuda.so.1 with five entry points, which `tests/fake_driver.rs` opens.
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::too_many_arguments,
    missing_docs
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_uint {
    if flags == 0 { 0 } else { 1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_uint {
    unsafe { version.write(12_345) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_uint, text: *mut *const c_char) -> c_uint {
    unsafe {
        text.write(if error == 100 {
            c"words of the fake driver".as_ptr()
        } else {
            c"other".as_ptr()
        })
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_uint {
    unsafe { address.write(bytes as u64 * 3) };
    0
}

/// Eleven arguments: the last five are passed on the stack. Succeeds where all of them arrive.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_uint {
    let grid_and_block = [grid_x, grid_y, grid_z, block_x, block_y, block_z] == [1, 2, 3, 4, 5, 6];
    let pointers = [
        function as usize,
        stream as usize,
        params as usize,
        extra as usize,
    ] == [10, 20, 30, 40];
    if grid_and_block && pointers && shared_bytes == 7 {
        0
    } else {
        719
    }
}
