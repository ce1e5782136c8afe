//! A copy on the GPU: the bandwidth that reading and writing without a thought reaches.

use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::cuda::Cuda;

/// Bytes a second, read and written together, of the fastest of `runs` copies of `bytes` bytes.
///
/// # Errors
/// [`Error::Driver`] where there is not enough memory for two buffers.
pub fn bandwidth(gpu: &Gpu<Cuda>, bytes: usize, runs: u32) -> Result<f64, Error> {
    let (from, to) = (gpu.driver().alloc(bytes)?, gpu.driver().alloc(bytes)?);
    gpu.driver().fill(&from, 0)?;
    let copy = || gpu.driver().copy(&from, &to).map_err(Error::from);
    copy()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..runs {
        fastest = fastest.min(gpu.timed(copy)?);
    }
    Ok(2.0 * bytes as f64 / (fastest * 1e-3))
}
