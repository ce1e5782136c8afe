//! Dropout: which elements are dropped, by their place.

use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::elementwise::DropoutParams;
use halfgnn_contract::rng::{dropout_counter, philox_by};

/// What a step drops. By value: a pointer to the launch's parameters that goes through a branch would have them copied to local memory.
#[derive(Clone, Copy)]
pub struct Dropping {
    step: u32,
    key: [u32; 2],
    threshold: u32,
    keep_scale: f32,
}

impl Dropping {
    /// What a launch drops, if anything.
    ///
    /// # Safety
    /// The launch contract: the step is null or a word that nothing writes during the launch.
    #[inline(always)]
    pub unsafe fn of(params: &DropoutParams) -> Option<Self> {
        let step = Global::<u32>::new(params.step);
        if step.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let step = unsafe { step.read() };
        Some(Self {
            step,
            key: params.key,
            threshold: params.threshold,
            keep_scale: params.keep_scale,
        })
    }

    /// Drops elements of a vector of a row, and scales the others.
    #[inline(always)]
    pub fn drop_elements<V: Vector>(
        self,
        row: u64,
        vector: u32,
        mut values: V::Floats,
    ) -> V::Floats {
        let mut i = 0;
        while i < V::WIDTH {
            let mut zeros = true;
            let mut k = 0;
            while k < 4 && i + k < V::WIDTH {
                zeros &= values.get((i + k) as usize).to_bits() == 0;
                k += 1;
            }
            // Kept or not, a zero stays one; bag-of-words features have little else.
            if !zeros {
                let counter = dropout_counter(self.step, row, (vector * V::WIDTH + i) / 4);
                let bits = philox_by(self.key, counter, wide_product);
                let mut k = 0;
                while k < 4 && i + k < V::WIDTH {
                    let at = (i + k) as usize;
                    let kept = bits[k as usize] >= self.threshold;
                    values = values.with(
                        at,
                        if kept {
                            values.get(at) * self.keep_scale
                        } else {
                            0.0
                        },
                    );
                    k += 1;
                }
            }
            i += 4;
        }
        values
    }
}
