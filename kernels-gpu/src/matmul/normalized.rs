//! What an operand's tile becomes in shared memory where the product is of what a batch normalisation makes of the matrix.

use halfgnn_contract::matmul::{A_RELU, MatmulParams};

use super::operand::Source;
use crate::device::float;
use crate::device::vector::{Floats, Vector};
use crate::normalize::Columns;

/// The normalisation of the features of one 16-byte vector.
pub struct Normalized<V: Vector> {
    columns: Columns<V>,
    /// What lies below becomes this.
    floor: f32,
}

impl<V: Vector<Bits = [u32; 4]>> Source for Normalized<V> {
    const REWRITES: bool = true;

    /// Features past the end have factors of zero.
    #[inline(always)]
    unsafe fn read(params: &MatmulParams, vector: u32) -> Self {
        let rows = [params.statistics, params.norm_weight, params.norm_bias];
        Self {
            // SAFETY: the caller's promise.
            columns: unsafe { Columns::read(rows, vector, params.float_vectors) },
            floor: if params.flags & A_RELU != 0 {
                0.0
            } else {
                f32::NEG_INFINITY
            },
        }
    }

    /// What `normalize` makes of the vector; but that a -0 is a 0, which no sum tells apart.
    #[inline(always)]
    fn apply(&self, bits: [u32; 4]) -> [u32; 4] {
        let mut values = V::from_bits(bits).widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            let value = self.columns.get(i).output(values.get(i));
            values = values.with(i, float::max(value, self.floor));
            i += 1;
        }
        V::narrow(values).to_bits()
    }
}
