//! Launches, and points in the stream.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cust::sys::{self, CUresult};

use super::context::Context;
use super::error::{check, words};
use super::module::CudaFunction;
use super::stream::{Mark, Queue};
use crate::{DriverError, LaunchConfig};

/// The largest grid: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// The largest CTA in each direction; the threads together are limited further.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];

/// Queues a launch.
///
/// # Safety
/// What [`Driver::launch`](crate::Driver::launch) asks of its caller; the context is current.
pub(super) unsafe fn launch(
    queue: &Queue,
    function: &CudaFunction,
    config: LaunchConfig,
    params: &[u8],
) -> Result<(), DriverError> {
    let context = queue.context();
    prepare(context, function, config)?;
    // A thread that records launches into a stream of its own, which makes none of them.
    let recording = context
        .captures()
        .with(|capture| capture.stream_for(function));
    let stream = recording.unwrap_or(queue.raw());
    // One pointer for each parameter of the kernel, and each of ours has one: the struct.
    let mut param: [*mut c_void; 1] = [params.as_ptr().cast_mut().cast()];
    let LaunchConfig {
        grid,
        block,
        shared_bytes,
    } = config;
    // SAFETY: the function belongs to this context, as `prepare` has checked, and is loaded as long as it lives. The
    // driver copies as many bytes from the one pointer as the kernel declares for its parameter, which the caller
    // promises that `params` has, and has done so when the call returns. What the kernel does is the caller's promise.
    let result = unsafe {
        sys::cuLaunchKernel(
            function.raw(),
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            shared_bytes,
            stream,
            param.as_mut_ptr(),
            ptr::null_mut(),
        )
    };
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failure => Err(failed(function, words(failure))),
    }
}

/// CTAs of one multiprocessor.
pub(super) fn resident_ctas(
    context: &Arc<Context>,
    function: &CudaFunction,
    block_threads: u32,
    shared_bytes: u32,
) -> Result<u32, DriverError> {
    let config = LaunchConfig {
        grid: [1; 3],
        block: [block_threads, 1, 1],
        shared_bytes,
    };
    prepare(context, function, config)?;
    let mut ctas = 0;
    // `prepare` has checked that a CTA has at most 1,024 threads.
    let block_threads = block_threads as i32;
    // SAFETY: the function is of this context and loaded as long as it lives; the call writes one integer.
    let result = unsafe {
        sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut ctas,
            function.raw(),
            block_threads,
            shared_bytes as usize,
        )
    };
    match (result, u32::try_from(ctas)) {
        (CUresult::CUDA_SUCCESS, Ok(ctas)) if ctas > 0 => Ok(ctas),
        (CUresult::CUDA_SUCCESS, _) => Err(failed(
            function,
            format!(
                "no CTA of {block_threads} threads and {shared_bytes} bytes of dynamic shared memory fits"
            ),
        )),
        (failure, _) => Err(failed(function, words(failure))),
    }
}

/// Checks a launch before the driver sees it, since its own words for most mistakes are "invalid argument", and makes
/// it grant the shared memory.
fn prepare(
    context: &Arc<Context>,
    function: &CudaFunction,
    config: LaunchConfig,
) -> Result<(), DriverError> {
    if !Arc::ptr_eq(context, function.context()) {
        return Err(failed(function, "it was loaded by another driver".into()));
    }
    let limits = Limits {
        threads: function.max_threads(),
        static_shared_bytes: function.static_shared_bytes(),
        shared_bytes: context.info().max_shared_bytes,
    };
    limits
        .check(config)
        .map_err(|reason| failed(function, reason))?;
    function.allow_dynamic_shared(config.shared_bytes)
}

/// [`DriverError::Launch`] of `function`.
fn failed(function: &CudaFunction, reason: String) -> DriverError {
    DriverError::Launch {
        kernel: function.name().to_owned(),
        reason,
    }
}

/// What a kernel on a GPU allows a launch.
struct Limits {
    /// Threads of a CTA.
    threads: u32,
    /// Shared memory that the kernel declares itself.
    static_shared_bytes: u32,
    /// Shared memory of a CTA in all.
    shared_bytes: u32,
}

impl Limits {
    /// What is wrong with `config`, with both figures.
    fn check(&self, config: LaunchConfig) -> Result<(), String> {
        let LaunchConfig {
            grid,
            block,
            shared_bytes,
        } = config;
        if grid.contains(&0) || block.contains(&0) {
            return Err(format!(
                "a grid of {grid:?} CTAs of {block:?} threads is empty"
            ));
        }
        if grid.iter().zip(MAX_GRID).any(|(&asked, max)| asked > max) {
            return Err(format!(
                "a grid of {grid:?} CTAs is larger than {MAX_GRID:?}"
            ));
        }
        let threads: u64 = block
            .iter()
            .map(|&count| u64::from(count))
            .fold(1, u64::saturating_mul);
        if block.iter().zip(MAX_BLOCK).any(|(&asked, max)| asked > max)
            || threads > u64::from(self.threads)
        {
            return Err(format!(
                "a CTA of {block:?} threads is larger than {MAX_BLOCK:?}, or than the {} in all that this kernel allows",
                self.threads
            ));
        }
        let shared = u64::from(shared_bytes) + u64::from(self.static_shared_bytes);
        if shared > u64::from(self.shared_bytes) {
            return Err(format!(
                "it needs {shared} bytes of shared memory a CTA ({} of them static) and the GPU has {}",
                self.static_shared_bytes, self.shared_bytes
            ));
        }
        Ok(())
    }
}

/// A point in a GPU's stream.
#[derive(Debug)]
pub struct CudaEvent {
    mark: Mark,
    // Dropped after the event that belongs to it.
    context: Arc<Context>,
}

impl CudaEvent {
    /// The point that the stream has come to.
    pub(super) fn record(queue: &Queue) -> Result<Self, DriverError> {
        let _entered = queue.context().enter()?;
        Ok(Self {
            mark: Mark::record(queue.raw())?,
            context: Arc::clone(queue.context()),
        })
    }

    /// Has `queue` wait for it.
    pub(super) fn hold(&self, queue: &Queue) -> Result<(), DriverError> {
        if !Arc::ptr_eq(&self.context, queue.context()) {
            return Err(DriverError::Device {
                call: "cuStreamWaitEvent",
                reason: "the event is of another driver".into(),
            });
        }
        let _entered = self.context.enter()?;
        self.mark.hold(queue.raw())
    }

    /// Milliseconds since `start`, once this event has come.
    pub(super) fn elapsed_ms_since(&self, start: &Self) -> Result<f64, DriverError> {
        let _entered = self.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are live; the call writes one float.
        unsafe {
            check(
                "cuEventSynchronize",
                sys::cuEventSynchronize(self.mark.raw()),
            )?;
            check(
                "cuEventElapsedTime",
                sys::cuEventElapsedTime(&mut milliseconds, start.mark.raw(), self.mark.raw()),
            )?;
        }
        Ok(milliseconds.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        threads: 256,
        static_shared_bytes: 1024,
        shared_bytes: 232_448,
    };

    fn config(grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> LaunchConfig {
        LaunchConfig {
            grid,
            block,
            shared_bytes,
        }
    }

    #[test]
    fn launches_within_the_limits_pass() {
        for (grid, block, shared_bytes) in [
            ([1, 1, 1], [1, 1, 1], 0),
            ([i32::MAX as u32, 65_535, 65_535], [256, 1, 1], 0),
            ([7, 1, 1], [2, 2, 64], 231_424),
        ] {
            assert_eq!(LIMITS.check(config(grid, block, shared_bytes)), Ok(()));
        }
    }

    #[test]
    fn launches_past_a_limit_are_told_with_both_figures() {
        for (grid, block, shared_bytes, figures) in [
            ([0, 1, 1], [32, 1, 1], 0, ["[0, 1, 1]", "empty"]),
            ([1, 1, 1], [32, 0, 1], 0, ["[32, 0, 1]", "empty"]),
            ([1 << 31, 1, 1], [32, 1, 1], 0, ["2147483648", "2147483647"]),
            ([1, 65_536, 1], [32, 1, 1], 0, ["65536", "65535"]),
            ([1, 1, 1], [257, 1, 1], 0, ["257", "256"]),
            ([1, 1, 1], [1, 1, 65], 0, ["65", "64"]),
            ([1, 1, 1], [u32::MAX; 3], 0, ["4294967295", "256"]),
            ([1, 1, 1], [32, 1, 1], 231_425, ["232449", "232448"]),
            ([1, 1, 1], [32, 1, 1], u32::MAX, ["4294968319", "232448"]),
        ] {
            let error = LIMITS
                .check(config(grid, block, shared_bytes))
                .expect_err("past a limit");
            assert!(
                figures.iter().all(|figure| error.contains(figure)),
                "{error}"
            );
        }
    }
}
