//! Which elements of a matrix a thread visits: one vector of every so many rows, so that what is known of its columns
//! is read once.

use crate::device::async_copy;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::normalize::{Column, STAGES};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES};

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

    /// The walk of this thread through the rows `first .. end`, which are the CTA's.
    #[inline(always)]
    pub fn of_rows(first: u64, end: u64, lanes_log2: u32) -> Self {
        let lane = thread_idx_x() & ((1 << lanes_log2) - 1);
        let group = thread_idx_x() >> lanes_log2;
        Self {
            vector: (block_idx_y() << lanes_log2) + lane,
            group,
            groups: THREADS_PER_CTA >> lanes_log2,
            first: first + group as u64,
            end,
        }
    }

    /// The thread's vector of the first row of a matrix.
    #[inline(always)]
    pub fn vectors_of(&self, matrix: DevicePtr<HalfBits>) -> Global<[u32; 4]> {
        Global::new(matrix).at(self.vector as u64)
    }

    /// Calls `visit` with each of the thread's rows, in their order, and its vector of each matrix there. Each begins with the
    /// thread's vector of the first row, `vectors` from one row to the next; one that is null gives zeros.
    ///
    /// Rows come by way of shared memory, `STAGES - 1` of them ahead: what a thread knows of its columns takes so many registers
    /// that too few threads are there to hide the way to memory, and none are left for rows to come.
    ///
    /// # Safety
    /// The launch has the thread's rows of each matrix, and [`walk_shared_bytes`](halfgnn_contract::normalize::walk_shared_bytes)
    /// of shared memory, of which other threads leave alone what is this one's. Nothing writes a row before it is visited.
    #[inline(always)]
    pub unsafe fn for_each<const MATRICES: usize>(
        &self,
        matrices: [Global<[u32; 4]>; MATRICES],
        vectors: u32,
        mut visit: impl FnMut(u64, [[u32; 4]; MATRICES]),
    ) {
        let place = |stage: u32, matrix: usize| {
            let slot = stage % STAGES * MATRICES as u32 + matrix as u32;
            Shared::base().offset((slot * THREADS_PER_CTA + thread_idx_x()) * VECTOR_BYTES)
        };
        let send = |stage: u32, row: u64| {
            if row < self.end {
                let mut matrix = 0;
                while matrix < MATRICES {
                    let source = matrices[matrix].at(row * vectors as u64).address();
                    let present = !matrices[matrix].is_null();
                    // SAFETY: the caller's promise. The thread alone uses the place, and it has read what lay there.
                    unsafe { async_copy::copy_16(place(stage, matrix), source, present) };
                    matrix += 1;
                }
            }
            // A group for every row, even for none, so that their number says which has come.
            async_copy::commit();
        };
        let groups = self.groups as u64;
        // The stage that is sent for next; the one after it, around the corner, is the oldest.
        let mut stage = 0;
        while stage < STAGES - 1 {
            send(stage, self.first + stage as u64 * groups);
            stage += 1;
        }
        let mut row = self.first;
        while row < self.end {
            async_copy::wait::<{ STAGES - 2 }>();
            let mut loaded = [[0; 4]; MATRICES];
            let mut matrix = 0;
            while matrix < MATRICES {
                // SAFETY: the row's copies have come, and they are the thread's own.
                loaded[matrix] = unsafe { place(stage + 1, matrix).load_u32x4() };
                matrix += 1;
            }
            send(stage, row + (STAGES - 1) as u64 * groups);
            visit(row, loaded);
            row += groups;
            stage += 1;
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
    /// Those of a matrix that is not normalised: an element is as far from the mean as it says.
    pub const IDENTITY: Self = Self {
        mean: V::Floats::ZERO,
        reciprocal: V::Floats::ONE,
        weight: V::Floats::ONE,
        bias: V::Floats::ZERO,
    };

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

    /// Those of a group of rows, whose statistics are `shift` and, a row on, `reciprocal`; scales and shifts are 1 and 0 where they
    /// are null.
    ///
    /// # Safety
    /// The launch contract: rows of `float_vectors` vectors, and nothing writes them during the launch.
    #[inline(always)]
    pub unsafe fn of_group(
        statistics: Global<[u32; 4]>,
        [weight, bias]: [DevicePtr<f32>; 2],
        vector: u32,
        float_vectors: u32,
    ) -> Self {
        let [weight, bias] = [Global::new(weight), Global::new(bias)];
        // SAFETY: the caller's promise.
        let row = |row| unsafe { parameters::<V>(row, vector, float_vectors) };
        Self {
            mean: row(statistics),
            reciprocal: row(statistics.at(float_vectors as u64)),
            weight: if weight.is_null() {
                V::Floats::ONE
            } else {
                row(weight)
            },
            bias: if bias.is_null() {
                V::Floats::ZERO
            } else {
                row(bias)
            },
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
