//! A copy on the card: the bandwidth that reading and writing without a thought reaches.

use crate::backend::gpu::Gpu;
use crate::backend::{MemoryKind, Storage};
use crate::driver::cuda::Cuda;
use crate::error::Error;
use crate::tensor::Array;

/// Bytes a second, read and written together, of the fastest of `runs` copies of `bytes` bytes.
///
/// # Errors
/// [`Error::Driver`] where there is not enough memory for two buffers.
pub fn bandwidth(gpu: &Gpu<Cuda>, bytes: usize, runs: u32) -> Result<f64, Error> {
    let from = Array::<_, u8>::zeros(gpu, bytes, MemoryKind::Workspace)?;
    let to = Array::<_, u8>::zeros(gpu, bytes, MemoryKind::Workspace)?;
    let copy = || {
        let (from, to) = (from.buffer.memory(), to.buffer.memory());
        gpu.driver().copy(from, to).map_err(Error::from)
    };
    copy()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..runs {
        fastest = fastest.min(gpu.timed(copy)?);
    }
    Ok(2.0 * bytes as f64 / (fastest * 1e-3))
}
