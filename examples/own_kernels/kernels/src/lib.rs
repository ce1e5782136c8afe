//! The kernels of the operator, compiled for the GPU by the package's build script.
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]

mod params;

use core::arch::nvptx;
use params::LeakyRelu;

/// `y = y > 0 ? y : slope · y`, a thread an element.
///
/// # Safety
/// Launched with as many threads as there are elements or more, and with the address of that many floats.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn leaky_relu(params: LeakyRelu) {
    // SAFETY: the caller's promise.
    unsafe {
        each(
            params,
            params.y,
            |y, _| if y > 0.0 { y } else { params.slope * y },
        )
    }
}

/// Its gradient: `d = y > 0 ? d : slope · d`, where `y` is the output.
///
/// # Safety
/// As [`leaky_relu`], for both arrays.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn leaky_relu_backward(params: LeakyRelu) {
    // SAFETY: the caller's promise.
    unsafe {
        each(
            params,
            params.d,
            |y, d| if y > 0.0 { d } else { params.slope * d },
        )
    }
}

/// Writes `f(y, d)` to each float of `to`, which is one of the two.
///
/// # Safety
/// As [`leaky_relu`].
#[inline(always)]
unsafe fn each(params: LeakyRelu, to: u64, f: impl Fn(f32, f32) -> f32) {
    // SAFETY: special registers may be read at any time.
    let (block, threads, thread) = unsafe {
        (
            nvptx::_block_idx_x(),
            nvptx::_block_dim_x(),
            nvptx::_thread_idx_x(),
        )
    };
    let index = block as u64 * threads as u64 + thread as u64;
    if index < params.len {
        let at = |array: u64| (array as *mut f32).wrapping_add(index as usize);
        // SAFETY: `index` is below the number of floats there, and no other thread has it.
        unsafe { at(to).write(f(at(params.y).read(), at(params.d).read())) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: ends the kernel with an error that the host sees.
    unsafe { nvptx::trap() }
}
