//! What a row adds up to in one lane, and where it goes: one output, or two and a number.

use super::lane::Load;
use super::policy::Scaling;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::block_idx_z;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::spmm::{SpmmParams, THREADS_PER_CTA, staging_index};

/// The sums of a row, as far as they are one lane's: a vector of each output, and perhaps the sum of the edges' terms, which
/// all lanes of a sub-warp have alike.
pub trait Sums<V: Vector>: Copy {
    /// Vectors.
    const OUTPUTS: u32;
    /// Whether there is a sum of terms.
    const TERM: bool;
    /// Whether a complete row is multiplied by the scales of its columns.
    const QUANTIZED: bool = false;
    /// Floats of a lane.
    const FLOATS: u32 = Self::OUTPUTS * V::WIDTH + if Self::TERM { 1 } else { 0 };

    /// Zeros.
    fn zero() -> Self;
    /// The vector of an output.
    fn vector(&self, output: u32) -> V::Floats;
    /// With another vector of an output.
    fn with_vector(self, output: u32, vector: V::Floats) -> Self;
    /// The sum of the terms.
    fn term(&self) -> f32;
    /// With another sum of the terms.
    fn with_term(self, term: f32) -> Self;

    /// Each float of a function of its index and itself.
    #[inline(always)]
    fn map(mut self, mut f: impl FnMut(u32, f32) -> f32) -> Self {
        let mut output = 0;
        while output < Self::OUTPUTS {
            let mut vector = self.vector(output);
            let mut i = 0;
            while i < V::WIDTH {
                let value = f(output * V::WIDTH + i, vector.get(i as usize));
                vector = vector.with(i as usize, value);
                i += 1;
            }
            self = self.with_vector(output, vector);
            output += 1;
        }
        if Self::TERM {
            let term = f(Self::OUTPUTS * V::WIDTH, self.term());
            self = self.with_term(term);
        }
        self
    }

    /// What a batch's sums are when they leave the batch. Terms have no factor.
    #[inline(always)]
    fn leave<S: Scaling>(mut self, scale: f32) -> Self {
        let mut output = 0;
        while output < Self::OUTPUTS {
            self = self.with_vector(output, S::leave(self.vector(output), scale));
            output += 1;
        }
        self
    }

    /// The sums of this one's edges and then the other's.
    #[inline(always)]
    fn merge<S: Scaling>(mut self, other: Self) -> Self {
        let mut output = 0;
        while output < Self::OUTPUTS {
            let merged = S::merge(self.vector(output), other.vector(output));
            self = self.with_vector(output, merged);
            output += 1;
        }
        if Self::TERM {
            self = self.with_term(self.term() + other.term());
        }
        self
    }

    /// The row, from all its sums.
    #[inline(always)]
    fn complete<S: Scaling>(mut self, scale: f32) -> Self {
        let mut output = 0;
        while output < Self::OUTPUTS {
            self = self.with_vector(output, S::complete(self.vector(output), scale));
            output += 1;
        }
        self
    }

    /// Calls `write` with the place of a load of a row in an output and with what is to stand there, rounded.
    #[inline(always)]
    fn output(
        &self,
        params: &SpmmParams,
        output: u32,
        row: u32,
        load: Load,
        write: impl Fn(Global<V::Bits>, V),
    ) {
        let y = if output == 0 {
            params.y
        } else {
            params.y_positive
        };
        // There are no registers for the addresses of two outputs' first rows.
        let load = if Self::OUTPUTS > 1 {
            load.recomputed()
        } else {
            load
        };
        let place = Global::new(y)
            .at(load.index as u64)
            .row(row, params.y_stride * VECTOR_BYTES);
        load.written(V::narrow(self.vector(output)), |value| write(place, value));
    }

    /// Writes a load of a complete row to the outputs, rounded, unless the lane is idle, and the sum of the terms where it
    /// `leads`.
    ///
    /// # Safety
    /// The launch contract; no other lane writes the load, and one alone leads, of those that write the row.
    #[inline(always)]
    unsafe fn write(&self, params: &SpmmParams, row: u32, load: Load, leads: impl Fn() -> bool) {
        let mut output = 0;
        while output < Self::OUTPUTS {
            self.output(params, output, row, load, |place, value| {
                // SAFETY: the caller's promise.
                unsafe { place.store_once(value.to_bits()) }
            });
            output += 1;
        }
        let sums = Global::<f32>::new(params.term_sums);
        if Self::TERM && !sums.is_null() && leads() {
            let at = block_idx_z() as u64 * params.vertices as u64 + row as u64;
            // SAFETY: the caller's promise; there is a number for each head of each row.
            unsafe { sums.at(at).store(self.term()) };
        }
    }

    /// Leaves the sums in a merge area of shared memory, in pieces: those of neighbouring threads lie side by side.
    ///
    /// # Safety
    /// The area has a word for each float of each thread; no other thread has this thread's words before a barrier.
    #[inline(always)]
    unsafe fn put(&self, area: Shared, thread: u32) {
        let mut output = 0;
        while output < Self::OUTPUTS {
            let vector = self.vector(output);
            let mut i = 0;
            while i < V::WIDTH {
                let place = Self::place(area, thread, output * V::WIDTH + i);
                let float = |k: u32| vector.get((i + k) as usize);
                // SAFETY: the caller's promise.
                unsafe {
                    if Self::PIECE == 4 {
                        let piece = [float(0), float(1), float(2), float(3)];
                        place.store_u32x4(piece.map(f32::to_bits));
                    } else {
                        place.store_f32(float(0));
                    }
                }
                i += Self::PIECE;
            }
            output += 1;
        }
        if Self::TERM {
            // SAFETY: the caller's promise.
            unsafe { Self::term_place(area, thread).store_f32(self.term()) };
        }
    }

    /// What [`Sums::put`] left there for a thread.
    ///
    /// # Safety
    /// It did, before a barrier.
    #[inline(always)]
    unsafe fn get(area: Shared, thread: u32) -> Self {
        let mut sums = Self::zero();
        let mut output = 0;
        while output < Self::OUTPUTS {
            let mut vector = V::Floats::ZERO;
            let mut i = 0;
            while i < V::WIDTH {
                let place = Self::place(area, thread, output * V::WIDTH + i);
                // SAFETY: the caller's promise.
                unsafe {
                    if Self::PIECE == 4 {
                        let piece = place.load_u32x4().map(f32::from_bits);
                        let mut k = 0;
                        while k < 4 {
                            vector = vector.with((i + k) as usize, piece[k as usize]);
                            k += 1;
                        }
                    } else {
                        vector = vector.with(i as usize, place.load_f32());
                    }
                }
                i += Self::PIECE;
            }
            sums = sums.with_vector(output, vector);
            output += 1;
        }
        if Self::TERM {
            // SAFETY: the caller's promise.
            sums = sums.with_term(unsafe { Self::term_place(area, thread).load_f32() });
        }
        sums
    }

    /// Floats of a thread that lie side by side in a merge area: what one instruction moves, if four registers in a row are to
    /// be had, as with two outputs they are not.
    const PIECE: u32 = if V::WIDTH.is_multiple_of(4) && Self::OUTPUTS == 1 {
        4
    } else {
        1
    };

    /// Where the piece that begins with float `i` of a thread is.
    #[inline(always)]
    fn place(area: Shared, thread: u32, i: u32) -> Shared {
        area.offset((i * THREADS_PER_CTA + thread * Self::PIECE) * 4)
    }

    /// Where the sum of a thread's terms is.
    #[inline(always)]
    fn term_place(area: Shared, thread: u32) -> Shared {
        area.offset((Self::OUTPUTS * V::WIDTH * THREADS_PER_CTA + thread) * 4)
    }

    /// Writes load `load` of a row that crosses CTAs to the staging buffer, and the sum of the terms where the lane `leads`.
    ///
    /// # Safety
    /// As [`Sums::write`], of the slot.
    #[inline(always)]
    unsafe fn stage(
        &self,
        params: &SpmmParams,
        (cta, slot): (u32, u32),
        load: u32,
        leads: impl Fn() -> bool,
    ) {
        let features = (params.feature_loads * V::WIDTH) as u64;
        let row =
            Global::<f32>::new(params.staging).at(staging_index(cta, slot, params.staged_row));
        let mut output = 0;
        while output < Self::OUTPUTS {
            let place = row.at(output as u64 * features + (load * V::WIDTH) as u64);
            // SAFETY: the staging buffer has a row for each slot of each CTA.
            unsafe { self.vector(output).store(place) };
            output += 1;
        }
        if Self::TERM && leads() {
            // SAFETY: behind the outputs there is a number for each head.
            unsafe {
                row.at(Self::OUTPUTS as u64 * features + block_idx_z() as u64)
                    .store(self.term());
            }
        }
    }

    /// What [`Sums::stage`] wrote.
    ///
    /// # Safety
    /// It did.
    #[inline(always)]
    unsafe fn staged(params: &SpmmParams, cta: u32, slot: u32, load: u32) -> Self {
        let features = (params.feature_loads * V::WIDTH) as u64;
        let row =
            Global::<f32>::new(params.staging).at(staging_index(cta, slot, params.staged_row));
        let mut sums = Self::zero();
        let mut output = 0;
        while output < Self::OUTPUTS {
            let place = row.at(output as u64 * features + (load * V::WIDTH) as u64);
            // SAFETY: the caller's promise.
            sums = sums.with_vector(output, unsafe { V::Floats::load(place) });
            output += 1;
        }
        if Self::TERM {
            let place = row.at(Self::OUTPUTS as u64 * features + block_idx_z() as u64);
            // SAFETY: the caller's promise.
            sums = sums.with_term(unsafe { place.load() });
        }
        sums
    }
}

/// A row of the output.
#[derive(Clone, Copy)]
pub struct One<V: Vector>(pub V::Floats);

impl<V: Vector> Sums<V> for One<V> {
    const OUTPUTS: u32 = 1;
    const TERM: bool = false;
    #[inline(always)]
    fn zero() -> Self {
        Self(V::Floats::ZERO)
    }
    #[inline(always)]
    fn vector(&self, _: u32) -> V::Floats {
        self.0
    }
    #[inline(always)]
    fn with_vector(self, _: u32, vector: V::Floats) -> Self {
        Self(vector)
    }
    #[inline(always)]
    fn term(&self) -> f32 {
        0.0
    }
    #[inline(always)]
    fn with_term(self, _: f32) -> Self {
        self
    }
}

/// A row of the output, over the scales of its columns.
#[derive(Clone, Copy)]
pub struct Quantized<V: Vector>(pub V::Floats);

impl<V: Vector> Sums<V> for Quantized<V> {
    const OUTPUTS: u32 = 1;
    const TERM: bool = false;
    const QUANTIZED: bool = true;
    #[inline(always)]
    fn zero() -> Self {
        Self(V::Floats::ZERO)
    }
    #[inline(always)]
    fn vector(&self, _: u32) -> V::Floats {
        self.0
    }
    #[inline(always)]
    fn with_vector(self, _: u32, vector: V::Floats) -> Self {
        Self(vector)
    }
    #[inline(always)]
    fn term(&self) -> f32 {
        0.0
    }
    #[inline(always)]
    fn with_term(self, _: f32) -> Self {
        self
    }
}

/// [`Both`], over the scales of their columns.
#[derive(Clone, Copy)]
pub struct QuantizedBoth<V: Vector>(pub Both<V>);

impl<V: Vector> Sums<V> for QuantizedBoth<V> {
    const OUTPUTS: u32 = 2;
    const TERM: bool = true;
    const QUANTIZED: bool = true;
    #[inline(always)]
    fn zero() -> Self {
        Self(Sums::zero())
    }
    #[inline(always)]
    fn vector(&self, output: u32) -> V::Floats {
        self.0.vector(output)
    }
    #[inline(always)]
    fn with_vector(self, output: u32, vector: V::Floats) -> Self {
        Self(self.0.with_vector(output, vector))
    }
    #[inline(always)]
    fn term(&self) -> f32 {
        self.0.term
    }
    #[inline(always)]
    fn with_term(self, term: f32) -> Self {
        Self(self.0.with_term(term))
    }
}

/// A row of each of two outputs, and the sum of the terms.
#[derive(Clone, Copy)]
pub struct Both<V: Vector> {
    /// Of all edges.
    pub all: V::Floats,
    /// Of those of positive sign.
    pub positive: V::Floats,
    /// Of the terms.
    pub term: f32,
}

impl<V: Vector> Sums<V> for Both<V> {
    const OUTPUTS: u32 = 2;
    const TERM: bool = true;
    #[inline(always)]
    fn zero() -> Self {
        Self {
            all: V::Floats::ZERO,
            positive: V::Floats::ZERO,
            term: 0.0,
        }
    }
    #[inline(always)]
    fn vector(&self, output: u32) -> V::Floats {
        if output == 0 { self.all } else { self.positive }
    }
    #[inline(always)]
    fn with_vector(mut self, output: u32, vector: V::Floats) -> Self {
        if output == 0 {
            self.all = vector;
        } else {
            self.positive = vector;
        }
        self
    }
    #[inline(always)]
    fn term(&self) -> f32 {
        self.term
    }
    #[inline(always)]
    fn with_term(self, term: f32) -> Self {
        Self { term, ..self }
    }
}
