//! What becomes of a row's sum where it is written: `relu(sum + self_factor · (1 + epsilon) · x[row] + bias)`, each part
//! where the launch has it. So what a layer does to its aggregation takes no pass of its own.

use super::policy::Scaling;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::registers::recomputed;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::norm::combine;
use halfgnn_contract::spmm::SpmmParams;

/// Load `load` of a row of the output, from the row's sums, of which the first has an epilogue. `itself` gives one of the
/// two halves of that load of the row of `x`: both at once would be registers that the walk of the edges does not have.
///
/// # Safety
/// The launch contract; `load` is a load of the row.
#[inline(always)]
pub unsafe fn finish<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    load: u32,
    sums: T,
    itself: impl Fn(u32) -> [u32; 2],
) -> T {
    const { assert!(!S::EPILOGUE || V::PER_16_BYTES == 1, "loads of 16 bytes") };
    if !S::EPILOGUE {
        return sums;
    }
    let mut values = sums.vector(0);
    // SAFETY: the launch contract: where there is an `epsilon` it is a float, and a bias is as long as a row, up to 16 bytes.
    unsafe {
        if params.self_factor != 0.0 {
            let mut factor = params.self_factor;
            let epsilon = Global::<f32>::new(params.epsilon);
            if !epsilon.is_null() {
                factor *= 1.0 + epsilon.fetch();
            }
            let mut half = 0;
            while half < 2 {
                let mut words = [0; 4];
                [words[2 * half], words[2 * half + 1]] = itself(half as u32);
                // What is not 16 bytes long has no epilogue.
                let x = V::from_bits(core::mem::transmute_copy(&words)).widen();
                let mut i = half * V::WIDTH as usize / 2;
                while i < (half + 1) * V::WIDTH as usize / 2 {
                    values = values.with(i, combine(factor, x.get(i), 1.0, values.get(i)));
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

/// Where load `load` of row `row` of `x` is.
#[inline(always)]
pub fn own_load<V: Vector>(params: &SpmmParams, row: u32, load: u32) -> Global<V::Bits> {
    Global::new(params.x)
        .at(load as u64)
        .row(row, params.x_stride * VECTOR_BYTES)
}

/// Half `half` of load `load` of row `row` of `x`, of 16 bytes.
///
/// # Safety
/// The launch contract; `row` is a row and `load` one of its loads.
#[inline(always)]
pub unsafe fn own<V: Vector>(params: &SpmmParams, row: u32, load: u32, half: u32) -> [u32; 2] {
    let halves = Global::<[u32; 2]>::cast(own_load::<V>(params, row, load));
    // SAFETY: the caller's promise.
    unsafe { halves.at(half as u64).load() }
}
