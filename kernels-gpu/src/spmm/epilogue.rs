//! What becomes of a row's sum where it is written: `relu(sum + addend_factor · (1 + epsilon) · addend_scale[row] ·
//! addend[row] + bias)`, each part where the launch has it, and zero where a ReLU was that it goes back through. So what a layer does to
//! its aggregation takes no pass of its own.

use super::policy::Scaling;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::registers::{recomputed, unroll};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::normalize::combine;
use halfgnn_contract::spmm::SpmmParams;

/// A row of the addend, as far as it is one lane's.
pub trait Addend {
    /// Its factor.
    ///
    /// # Safety
    /// The launch contract.
    unsafe fn factor(&self) -> f32;
    /// Half `half` of the lane's load of 16 bytes: both at once would be registers that the walk of the edges does not have.
    ///
    /// # Safety
    /// The launch has an addend.
    unsafe fn half(&self, half: u32) -> [u32; 2];
}

/// It is read where it is wanted.
pub struct InMemory<'a> {
    /// The launch.
    pub params: &'a SpmmParams,
    /// The row.
    pub row: u32,
    /// Which load of it.
    pub load: u32,
}

impl InMemory<'_> {
    /// The row's factor.
    ///
    /// # Safety
    /// The launch contract; rows have factors.
    #[inline(always)]
    pub unsafe fn scale(&self) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { addend_scale(self.params, self.row).load() }
    }
}

impl Addend for InMemory<'_> {
    #[inline(always)]
    unsafe fn factor(&self) -> f32 {
        // SAFETY: the launch contract.
        unsafe {
            let factor = addend_factor(self.params);
            if self.params.addend_scale.is_null() {
                factor
            } else {
                factor * self.scale()
            }
        }
    }
    #[inline(always)]
    unsafe fn half(&self, half: u32) -> [u32; 2] {
        let load = addend_load::<[u32; 4]>(self.params, self.row, self.load);
        // SAFETY: the launch contract; the load is one of the row's.
        unsafe { Global::<[u32; 2]>::cast(load).at(half as u64).load() }
    }
}

/// Load `load` of a row of the output, from the row's sums, of which the first has an epilogue.
///
/// # Safety
/// The launch contract; `load` is a load of the row.
#[inline(always)]
pub unsafe fn finish<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    load: u32,
    sums: T,
    addend: impl Addend,
) -> T {
    const { assert!(!S::EPILOGUE || V::PER_16_BYTES == 1, "loads of 16 bytes") };
    let sums = scaled::<V, T>(params, load, sums);
    if !S::EPILOGUE {
        return sums;
    }
    let mut values = sums.vector(0);
    // SAFETY: the launch contract: a bias is as long as a row, up to 16 bytes.
    unsafe {
        if params.addend_factor != 0.0 {
            let factor = addend.factor();
            let mut half = 0;
            while half < 2 {
                let mut words = [0; 4];
                [words[2 * half], words[2 * half + 1]] = addend.half(half as u32);
                // What is not 16 bytes long has no epilogue.
                let row = V::from_bits(core::mem::transmute_copy(&words)).widen();
                let mut i = half * V::WIDTH as usize / 2;
                while i < (half + 1) * V::WIDTH as usize / 2 {
                    values = values.with(i, combine(factor, row.get(i), 1.0, values.get(i)));
                    i += 1;
                }
                half += 1;
            }
        }
        let bias = Global::<[u32; 2]>::new(params.bias);
        if !bias.is_null() {
            let mut i = 0;
            while i < V::WIDTH as usize {
                // What is read here stays here: kept over the walk, it would be too many registers.
                let column = recomputed(load) * V::WIDTH + i as u32;
                // A row of halves may have four floats more of padding than the bias.
                if column < params.features {
                    let [a, b] = bias.at((column / 2) as u64).fetch().map(f32::from_bits);
                    values = values.with(i, values.get(i) + a);
                    values = values.with(i + 1, values.get(i + 1) + b);
                }
                i += 2;
            }
        }
    }
    if params.relu != 0 {
        // Not `max`, which would make a zero of a NaN.
        values = values.map(|value| if value < 0.0 { 0.0 } else { value });
    }
    sums.with_vector(0, values)
}

/// What the ReLU that is undone let through of load `load` of `ROWS` rows from `first` on, of the last one where there is none: a bit an element,
/// row after row from the lowest on; all where no ReLU is undone. Of the vertex-parallel kernel alone: the edge-parallel ones have no
/// registers for it.
///
/// # Safety
/// The launch contract; there are rows, and `load` is a load of them.
#[inline(always)]
pub unsafe fn let_through<V: Vector, const ROWS: usize>(
    params: &SpmmParams,
    first: u32,
    load: u32,
) -> u32 {
    const { assert!(ROWS * V::WIDTH as usize <= 32, "a bit an element") };
    let positive = Global::<V::Bits>::new(params.positive);
    if positive.is_null() {
        return u32::MAX;
    }
    let of_load = positive.at(load as u64);
    let mut outputs = [V::narrow(V::Floats::ZERO).to_bits(); ROWS];
    // All are on their way before one is looked at.
    unroll!(it in 0..ROWS => {
        let row = (first + it as u32).min(params.vertices - 1);
        let of_row = of_load.row(row, params.positive_stride * VECTOR_BYTES);
        // SAFETY: the caller's promise: the matrix has the row's load.
        outputs[it] = unsafe { of_row.fetch() };
    });
    let mut bits = 0;
    unroll!(it in 0..ROWS => {
        let output = V::from_bits(outputs[it]).widen();
        let mut i = 0;
        while i < V::WIDTH {
            let is_positive = (output.get(i as usize) > 0.0) as u32;
            bits |= is_positive << (it as u32 * V::WIDTH + i);
            i += 1;
        }
    });
    bits
}

/// What was [`let_through`] of a row's sums, of which the first has an epilogue; zeros for the others.
#[inline(always)]
pub fn keep<V: Vector, T: Sums<V>>(sums: T, bits: u32) -> T {
    let (mut values, mut i) = (sums.vector(0), 0);
    while i < V::WIDTH {
        let value = values.get(i as usize);
        let kept = bits >> i & 1 != 0;
        values = values.with(i as usize, if kept { value } else { 0.0 });
        i += 1;
    }
    sums.with_vector(0, values)
}

/// Sums of 8-bit codes times the scales of their columns; others as they are.
#[inline(always)]
fn scaled<V: Vector, T: Sums<V>>(params: &SpmmParams, load: u32, mut sums: T) -> T {
    if !T::QUANTIZED {
        return sums;
    }
    // What is read here stays here: kept over the walk, it would be too many registers.
    let first = recomputed(load) * V::WIDTH;
    // SAFETY: the launch contract: there is a scale for each element of a row of `x`, padding too.
    let scales = unsafe { V::Floats::load(Global::new(params.scales).at(first as u64)) };
    let mut output = 0;
    while output < T::OUTPUTS {
        let vector = sums.vector(output).zip(scales, |sum, scale| sum * scale);
        sums = sums.with_vector(output, vector);
        output += 1;
    }
    sums
}

/// The factor of the whole addend, `addend_factor · (1 + epsilon)`.
///
/// # Safety
/// The launch contract.
#[inline(always)]
pub unsafe fn addend_factor(params: &SpmmParams) -> f32 {
    let epsilon = Global::<f32>::new(params.epsilon);
    if epsilon.is_null() {
        params.addend_factor
    } else {
        // SAFETY: the launch contract: where it is not null there is a float.
        params.addend_factor * (1.0 + unsafe { epsilon.fetch() })
    }
}

/// Where load `load` of row `row` of the addend is.
#[inline(always)]
pub fn addend_load<T>(params: &SpmmParams, row: u32, load: u32) -> Global<T> {
    Global::new(params.addend)
        .at(load as u64)
        .row(row, params.addend_stride * VECTOR_BYTES)
}

/// Where the factor of row `row` of the addend is.
#[inline(always)]
pub fn addend_scale(params: &SpmmParams, row: u32) -> Global<f32> {
    Global::new(params.addend_scale).at(row as u64)
}
