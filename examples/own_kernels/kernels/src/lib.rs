//! One kernel, compiled for the GPU by the package's build script.
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]

mod params;

use core::arch::nvptx;
use params::LeakyRelu;

/// `y = x > 0 ? x : slope · x` in place, a thread an element.
///
/// # Safety
/// Launched with as many threads as there are elements or more, and with the address of that many floats.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn leaky_relu(params: LeakyRelu) {
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
        let element = (params.values as *mut f32).wrapping_add(index as usize);
        // SAFETY: `index` is below the number of floats there, and no other thread has it.
        unsafe {
            let value = element.read();
            element.write(if value > 0.0 {
                value
            } else {
                params.slope * value
            });
        }
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: ends the kernel with an error that the host sees.
    unsafe { nvptx::trap() }
}
