//! Which elements of a matrix a thread visits: one vector of every so many rows, so that what is known of its columns
//! is read once.

use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::dense::THREADS_PER_CTA;
use halfgnn_contract::norm::Column;

/// A thread's way through the rows of its CTA.
#[derive(Clone, Copy)]
pub struct Walk {
    /// The vector of the row.
    pub vector: u32,
    /// Which of the threads that share the vector this is.
    pub group: u32,
    /// Threads that share a vector.
    pub groups: u32,
    /// The thread's first row.
    pub first: u64,
    /// One past the CTA's last row.
    pub end: u64,
}

impl Walk {
    /// The walk of this thread through a matrix of `rows` rows.
    #[inline(always)]
    pub fn new(rows: u64, rows_per_cta: u32, lanes_log2: u32) -> Self {
        let lane = thread_idx_x() & ((1 << lanes_log2) - 1);
        let group = thread_idx_x() >> lanes_log2;
        let first = block_idx_x() as u64 * rows_per_cta as u64;
        Self {
            vector: (block_idx_y() << lanes_log2) + lane,
            group,
            groups: THREADS_PER_CTA >> lanes_log2,
            first: first + group as u64,
            end: rows.min(first + rows_per_cta as u64),
        }
    }

    /// The first of the vector's columns.
    #[inline(always)]
    pub fn column<V: Vector>(&self) -> u64 {
        self.vector as u64 * V::WIDTH as u64
    }
}

/// The floats of a row of parameters that belong to a vector; zero past its end, which a row of halves may exceed.
///
/// # Safety
/// The row has `float_vectors` vectors, and nothing writes it during the launch.
#[inline(always)]
pub unsafe fn parameters<V: Vector>(
    row: Global<[u32; 4]>,
    vector: u32,
    float_vectors: u32,
) -> V::Floats {
    let mut floats = V::Floats::ZERO;
    let mut first = 0;
    while first < V::WIDTH {
        let at = (vector * V::WIDTH + first) / 4;
        if at < float_vectors {
            // SAFETY: a vector of the row.
            let piece = unsafe { row.at(at as u64).read() };
            let mut k = 0;
            while k < 4 {
                floats = floats.with(first as usize + k, f32::from_bits(piece[k]));
                k += 1;
            }
        }
        first += 4;
    }
    floats
}

/// What is known of the columns of a vector.
#[derive(Clone, Copy)]
pub struct Columns<V: Vector> {
    mean: V::Floats,
    reciprocal: V::Floats,
    weight: V::Floats,
    bias: V::Floats,
}

impl<V: Vector> Columns<V> {
    /// Reads statistics, scale and shift of a vector's columns.
    ///
    /// # Safety
    /// The launch contract: two rows of statistics and one of each parameter, of `float_vectors` vectors.
    #[inline(always)]
    pub unsafe fn read(
        [statistics, weight, bias]: [DevicePtr<f32>; 3],
        vector: u32,
        float_vectors: u32,
    ) -> Self {
        let statistics = Global::<[u32; 4]>::new(statistics);
        // SAFETY: the caller's promise.
        let row = |row| unsafe { parameters::<V>(row, vector, float_vectors) };
        Self {
            mean: row(statistics),
            reciprocal: row(statistics.at(float_vectors as u64)),
            weight: row(Global::new(weight)),
            bias: row(Global::new(bias)),
        }
    }

    /// Column `i` of the vector.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Column {
        Column {
            mean: self.mean.get(i),
            reciprocal: self.reciprocal.get(i),
            weight: self.weight.get(i),
            bias: self.bias.get(i),
        }
    }
}
