//! What A's tile becomes in shared memory where A is a matrix of int8 codes: the whole numbers that they stand for.

use core::marker::PhantomData;

use halfgnn_contract::matmul::{CODE_VECTOR_BYTES, MatmulParams};

use super::operand::Source;
use crate::device::code::{Codes, Int8};
use crate::device::vector::{Input, Vector};

/// Eight codes in the first half of a vector of 16-bit elements, which hold every number of a code exactly.
pub struct Widened<V>(PhantomData<V>);

impl<V: Vector<Bits = [u32; 4], Floats = [f32; 8]>> Widened<V> {
    /// The elements of eight codes.
    #[inline(always)]
    pub fn of(codes: [u32; 2]) -> [u32; 4] {
        V::narrow(Codes::<Int8>::from_bits(codes).widen()).to_bits()
    }
}

impl<V: Vector<Bits = [u32; 4], Floats = [f32; 8]>> Source for Widened<V> {
    const VECTOR_BYTES: u32 = CODE_VECTOR_BYTES;
    const REWRITES: bool = true;

    #[inline(always)]
    unsafe fn read(_: &MatmulParams, _: u32) -> Self {
        Self(PhantomData)
    }

    #[inline(always)]
    fn apply(&self, [low, high, ..]: [u32; 4]) -> [u32; 4] {
        Self::of([low, high])
    }
}
